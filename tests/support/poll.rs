//! Polling by hand: dropping a future at its k-th poll, and wakers that count, call back or panic.
//!
//! This file stands alone, so that the conformance tests under `src/` can take it in by path.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

/// Polls once, with a waker that does nothing.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once, with `waker`.
pub fn poll_with<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Polls `future` until it is ready, at most `polls` times, and drops it. Before each poll but the first `between` is
/// told how many there were. `Pending` says that the future was dropped unfinished; 0 drops it unpolled.
pub fn poll_times<F: Future>(polls: usize, future: F, mut between: impl FnMut(usize)) -> Poll<F::Output> {
    let mut future = pin!(future);
    for done in 0..polls {
        if done > 0 {
            between(done);
        }
        if let Poll::Ready(output) = poll_once(future.as_mut()) {
            return Poll::Ready(output);
        }
    }
    Poll::Pending
}

/// A future that drops `future` as soon as its k-th poll was pending, and is then ready with `None`. With 0 it drops it
/// unpolled. If `future` is ready by its k-th poll, it is ready with its output.
pub fn cancel_at<F: Future>(k: usize, future: F) -> CancelAt<F> {
    CancelAt { future: Some(Box::pin(future)), left: k }
}

/// See [`cancel_at`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct CancelAt<F> {
    future: Option<Pin<Box<F>>>,
    left: usize,
}

impl<F: Future> Future for CancelAt<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.left > 0 {
            let future = this.future.as_mut().expect("polled after it was ready");
            this.left -= 1;
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                this.future = None;
                return Poll::Ready(Some(output));
            }
        }
        if this.left == 0 {
            this.future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

/// Runs `scenario` with k = 0, 1, 2, ... until it says that its future finished before it was dropped. Returns how often
/// it was dropped. The scenario checks its own laws.
///
/// # Panics
///
/// When it is still dropped after `most` polls: it would never finish.
pub fn sweep_cancels(most: usize, mut scenario: impl FnMut(usize) -> bool) -> usize {
    let finished = (0..=most).find(|&k| scenario(k));
    finished.unwrap_or_else(|| panic!("unfinished after {most} polls"))
}

/// A waker that counts.
#[derive(Debug, Default)]
pub struct WakeCount(AtomicUsize);

impl WakeCount {
    /// A new count, and its waker.
    pub fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        let waker = Waker::from(Arc::clone(&count));
        (count, waker)
    }

    /// How often it was woken.
    pub fn wakes(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// How many wakers of it are alive, its first one included.
    pub fn wakers(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

struct CallBack<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for CallBack<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        (self.0)();
    }
}

/// A waker that calls back: to re-enter what woke it, or to panic.
pub fn waker_fn(call: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(CallBack(call)))
}

/// A waker that does nothing, but panics when it is cloned.
#[allow(unsafe_code, reason = "a waker that panics in its clone can only be made by hand")]
pub fn waker_that_panics_when_cloned() -> Waker {
    fn nothing(_data: *const ()) {}
    fn clone(_data: *const ()) -> RawWaker {
        panic!("planted: this waker panics when it is cloned")
    }
    const TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    // SAFETY: no function of the table looks at the data.
    unsafe { Waker::new(std::ptr::null(), &TABLE) }
}

/// A waker that panics when its last clone is dropped (and nothing else is unwinding).
pub fn waker_that_panics_when_dropped() -> Waker {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("planted: this waker panics when it is dropped");
            }
        }
    }
    let bomb = Bomb;
    waker_fn(move || {
        let _held = &bomb;
    })
}

/// What is told of the wakers that [`watched_waker`] makes. Each may panic.
pub trait Watched: Send + Sync + 'static {
    /// One of them is about to be cloned.
    fn cloned(&self);
    /// One of them is woken.
    fn woken(&self);
    /// One of them was dropped, or was used up by its wake.
    fn dropped(&self);
}

/// A waker whose watcher is told of everything that is done with it and with its clones.
#[allow(unsafe_code, reason = "the clone of a waker can only be watched by hand")]
pub fn watched_waker<W: Watched>(watcher: Arc<W>) -> Waker {
    // SAFETY: the data is an `Arc<W>` that was turned into a pointer, as the functions of the table expect.
    unsafe { Waker::new(Arc::into_raw(watcher).cast(), &Table::<W>::TABLE) }
}

struct Table<W>(std::marker::PhantomData<W>);

#[allow(unsafe_code, reason = "see `watched_waker`")]
impl<W: Watched> Table<W> {
    const TABLE: RawWakerVTable = RawWakerVTable::new(Self::clone, Self::wake, Self::wake_by_ref, Self::drop);

    fn clone(data: *const ()) -> RawWaker {
        let data: *const W = data.cast();
        // SAFETY: the waker that is cloned keeps its `Arc`, so the watcher is alive.
        let watcher = unsafe { &*data };
        watcher.cloned();
        // SAFETY: the count of the clone; it goes when the clone is dropped.
        unsafe { Arc::increment_strong_count(data) };
        RawWaker::new(data.cast(), &Self::TABLE)
    }

    fn wake(data: *const ()) {
        // SAFETY: the waker is used up, and its count with it.
        let watcher = unsafe { Arc::<W>::from_raw(data.cast()) };
        watcher.woken();
        watcher.dropped();
    }

    fn wake_by_ref(data: *const ()) {
        let data: *const W = data.cast();
        // SAFETY: the waker keeps its `Arc`, so the watcher is alive.
        let watcher = unsafe { &*data };
        watcher.woken();
    }

    fn drop(data: *const ()) {
        // SAFETY: the waker is gone, and its count with it.
        let watcher = unsafe { Arc::<W>::from_raw(data.cast()) };
        watcher.dropped();
    }
}
