//! The tests' own tools: a gate that counts wrongly would pass everything.

mod support;

use std::cell::Cell;
use std::future::{pending, ready};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use support::alloc::{Counting, Counts, Watch, Whose, Window, count_on_this_thread, watch};
use support::poll::{
    WakeCount, cancel_at, poll_once, poll_times, poll_with, sweep_cancels, waker_fn,
    waker_that_panics_when_cloned, waker_that_panics_when_dropped,
};
use support::process::Process;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A future that is ready at its `polls`-th poll and wakes itself before.
async fn ready_at(polls: usize) -> usize {
    let mut done = 1;
    std::future::poll_fn(|cx| {
        if done == polls {
            return Poll::Ready(polls);
        }
        done += 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[test]
fn the_allocator_counts_every_way_to_take_and_give_back() {
    let (block, taken) = count_on_this_thread(|| black_box(Box::new([7_u8; 100])));
    assert_eq!(taken, Counts { allocations: 1, deallocations: 0, bytes: 100 });
    let ((), given) = count_on_this_thread(|| drop(block));
    assert_eq!(given, Counts { allocations: 0, deallocations: 1, bytes: 0 });
    let (zeros, zeroed) = count_on_this_thread(|| black_box(vec![0_u64; 8]));
    assert_eq!(zeroed, Counts { allocations: 1, deallocations: 0, bytes: 64 });
    let mut grown = zeros;
    let ((), moved) = count_on_this_thread(|| grown.reserve_exact(8));
    assert_eq!(moved, Counts { allocations: 1, deallocations: 1, bytes: 128 });
    let ((), none) = count_on_this_thread(|| assert_eq!(black_box(17_u64), 17));
    assert_eq!(none, Counts::NONE);
}

#[test]
fn a_watched_window_counts_watched_threads_and_no_others() {
    let (go, wait) = mpsc::channel::<()>();
    let (done_sender, done) = mpsc::channel();
    let other = thread::spawn(move || {
        wait.recv().unwrap();
        drop(black_box(vec![1_u8; 50]));
        let watched: Watch = watch();
        drop(black_box(vec![1_u8; 70]));
        drop(watched);
        drop(black_box(vec![1_u8; 90]));
        done_sender.send(()).unwrap();
    });
    let window = Window::open(Whose::Watched);
    go.send(()).unwrap();
    done.recv().unwrap();
    assert_eq!(window.close(), Counts { allocations: 1, deallocations: 1, bytes: 70 });
    other.join().unwrap();
}

#[test]
fn a_window_over_all_threads_sees_a_thread_that_nobody_watches() {
    let (go, wait) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        wait.recv().unwrap();
        drop(black_box(vec![1_u8; 1 << 20]));
    });
    let window = Window::open(Whose::AllThreads);
    go.send(()).unwrap();
    other.join().unwrap();
    let counts = window.close();
    assert!(counts.allocations >= 1 && counts.deallocations >= 1 && counts.bytes >= 1 << 20, "{counts:?}");
}

#[test]
fn a_window_that_was_dropped_counts_no_longer() {
    drop(Window::open(Whose::AllThreads));
    let window = Window::open(Whose::Watched);
    drop(black_box(vec![1_u8; 10]));
    assert_eq!(window.close(), Counts::NONE);
}

#[test]
fn poll_times_drops_at_the_given_poll() {
    let between = Cell::new(0);
    assert_eq!(poll_times(2, ready_at(3), |done| between.set(done)), Poll::Pending);
    assert_eq!(between.get(), 1);
    assert_eq!(poll_times(3, ready_at(3), |done| between.set(done)), Poll::Ready(3));
    assert_eq!(between.get(), 2);
    assert_eq!(poll_times(0, ready(1), |_done| ()), Poll::Pending);
}

#[test]
fn cancel_at_drops_as_soon_as_the_k_th_poll_was_pending() {
    struct Dropped<'a>(&'a Cell<bool>);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    for k in 0..4 {
        let dropped = Cell::new(false);
        let held = Dropped(&dropped);
        let mut future = pin!(cancel_at(k, async move {
            let _held = held;
            pending::<()>().await;
        }));
        for _ in 1..k {
            assert_eq!(poll_once(future.as_mut()), Poll::Pending);
            assert!(!dropped.get());
        }
        assert_eq!(poll_once(future.as_mut()), Poll::Ready(None));
        assert!(dropped.get());
    }
    assert_eq!(poll_once(pin!(cancel_at(1, ready(5)))), Poll::Ready(Some(5)));
}

#[test]
fn a_sweep_drops_before_every_poll_and_ends_when_the_future_does() {
    let finished_at = sweep_cancels(10, |k| poll_times(k, ready_at(4), |_done| ()).is_ready());
    assert_eq!(finished_at, 4);
    let never = catch_unwind(|| sweep_cancels(3, |k| poll_times(k, pending::<()>(), |_done| ()).is_ready()));
    assert!(never.is_err());
}

#[test]
fn wakers_count_their_wakes_and_their_clones() {
    let (count, waker) = WakeCount::new();
    assert_eq!((count.wakes(), count.wakers()), (0, 1));
    let second = waker.clone();
    assert_eq!(count.wakers(), 2);
    second.wake();
    waker.wake_by_ref();
    assert_eq!((count.wakes(), count.wakers()), (2, 1));
    assert_eq!(poll_with(pin!(ready_at(2)), &waker), Poll::Pending);
    assert_eq!(count.wakes(), 3);
}

#[test]
fn wakers_panic_at_the_door_they_are_made_for() {
    let panics = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
    let waker = waker_that_panics_when_cloned();
    assert!(panics(&|| drop(waker.clone())));
    waker.wake_by_ref();
    drop(waker);
    let waker: Waker = waker_that_panics_when_dropped();
    drop(waker.clone());
    waker.wake_by_ref();
    let last = Cell::new(Some(waker));
    assert!(panics(&|| drop(last.take())));
    let waker = waker_fn(|| panic!("planted"));
    assert!(panics(&|| waker.wake_by_ref()));
}

#[test]
fn the_kernel_is_asked_about_memory_threads_descriptors_and_switches() {
    let this = Process::this();
    let before = this.resident();
    let touched = black_box(vec![1_u8; 64 << 20]);
    assert!(this.resident() >= before + (48 << 20), "64 MiB more, but {before} became {}", this.resident());
    drop(touched);
    assert!(this.resident_peak() >= before + (48 << 20));
    assert!(this.reserved() > before);

    let open = std::fs::File::open("/proc/self/status").unwrap();
    let with_file = Process::with_id(std::process::id()).descriptors();
    assert!(with_file >= 4, "standard input, output, error and a file, but {with_file}");
    drop(open);

    let switches = this.switches();
    let sleeper = thread::spawn(|| {
        let before = Process::this().threads();
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(1));
        }
        (before, Process::this().switches())
    });
    let (threads, later) = sleeper.join().unwrap();
    assert!(threads >= 2);
    assert!(later.voluntary >= switches.voluntary + 5, "{switches:?}, then {later:?}");
}
