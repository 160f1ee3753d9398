//! One writer, one reader, eight chunks in flight at most: on one thread, as two tasks, on two threads.

use std::hint::spin_loop;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use perf::must;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout_at;

use super::alloc::{aside, taken};
use super::lanes::{AsyncChannel, Flume, Kanal, Lane, Ours, Rtrb, Tachyonix, Thingbuf, TokioMpsc, Waits};
use super::measure::{Group, Subject, Work};
use super::ours::runtime;

/// Chunks that are prepared at once, outside what is measured.
const CHUNKS: usize = 256;
/// The same where tasks or threads are made for them.
const MANY: usize = 1024;

const PLAIN: &str = "no byte budget, no session, no terminal";
const BARE: &str = "no deadline, no byte budget, no session";

/// On one thread: `in_flight` are written, then as many read.
fn alone<L: Lane>(lane: L, in_flight: usize) -> Work {
    let mut sink = Vec::with_capacity(CHUNKS);
    Box::new(move |operations| {
        let (mut left, mut took) = (operations as usize, Duration::ZERO);
        while left > 0 {
            let count = left.min(CHUNKS).next_multiple_of(in_flight);
            let (mut tx, mut rx, mut source) = aside(|| lane.open(count));
            let start = Instant::now();
            for _ in 0..count / in_flight {
                for _ in 0..in_flight {
                    L::push(&mut tx, source.pop().expect("prepared"));
                }
                for _ in 0..in_flight {
                    sink.push(L::pop(&mut rx));
                }
            }
            took += start.elapsed();
            sink.clear();
            left = left.saturating_sub(count);
        }
        took
    })
}

/// Two tasks of one runtime; peers with a deadline are inside `timeout_at`.
fn tasks<L: Waits>(runtime: &'static Runtime, lane: L, until: Option<tokio::time::Instant>) -> Work {
    let mut kept = Some(Vec::with_capacity(MANY));
    Box::new(move |operations| {
        let (mut left, mut took) = (operations as usize, Duration::ZERO);
        while left > 0 {
            let count = left.min(MANY);
            let (mut tx, mut rx, source) = aside(|| lane.open(count));
            let mut sink = kept.take().unwrap_or_default();
            let start = Instant::now();
            let (ended, sink) = runtime.block_on(async {
                let writer = tokio::spawn(async move {
                    for item in source {
                        match until {
                            Some(until) => must(timeout_at(until, L::send(&mut tx, item)).await),
                            None => L::send(&mut tx, item).await,
                        }
                    }
                    tx
                });
                let reader = tokio::spawn(async move {
                    for _ in 0..count {
                        sink.push(match until {
                            Some(until) => must(timeout_at(until, L::recv(&mut rx)).await),
                            None => L::recv(&mut rx).await,
                        });
                    }
                    (rx, sink)
                });
                let (rx, sink) = must(reader.await);
                ((must(writer.await), rx), sink)
            });
            took += start.elapsed();
            let mut sink: Vec<L::Item> = sink;
            sink.clear();
            drop(ended);
            kept = Some(sink);
            left -= count;
        }
        took
    })
}

/// Wakes a thread that does not sleep.
struct Awake(AtomicBool);

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs a future without ever sleeping; gives the core away only if nothing happens for long.
fn spin<F: Future>(future: F) -> F::Output {
    let flag = Arc::new(Awake(AtomicBool::new(false)));
    let waker = Waker::from(flag.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let mut turns = 0_u32;
        while !flag.0.swap(false, Ordering::AcqRel) {
            spin_loop();
            turns += 1;
            if turns.is_multiple_of(1 << 14) {
                std::thread::yield_now();
            }
        }
    }
}

/// Two threads, both awake. Blocks are counted on the writer's.
fn threads<L: Waits + Sync>(handle: Handle, lane: L) -> Work {
    Box::new(move |operations| {
        let (mut left, mut took) = (operations as usize, Duration::ZERO);
        while left > 0 {
            let count = left.min(MANY);
            let (before, ready) = (taken(), AtomicU32::new(0));
            let meet = || {
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < 2 {
                    spin_loop();
                }
            };
            let (mut tx, mut rx, source) = lane.open(count);
            let mut written = 0;
            std::thread::scope(|scope| {
                let handle = &handle;
                let reader = scope.spawn(move || {
                    let _inside = handle.enter();
                    let mut sink = Vec::with_capacity(count);
                    meet();
                    spin(async {
                        for _ in 0..count {
                            sink.push(L::recv(&mut rx).await);
                        }
                    });
                    (Instant::now(), rx, sink)
                });
                let _inside = handle.enter();
                meet();
                let (start, at_start) = (Instant::now(), taken());
                spin(async {
                    for item in source {
                        L::send(&mut tx, item).await;
                    }
                });
                written = taken() - at_start;
                let (end, rx, sink) = reader.join().expect("the reader does not panic");
                took += end.saturating_duration_since(start);
                drop((rx, sink));
            });
            drop(tx);
            super::alloc::restore(before + written);
            left -= count;
        }
        took
    })
}

pub(super) fn groups(by_hand: &Handle) -> Vec<Group> {
    let one = |key, title, in_flight: usize| Group {
        key,
        title,
        note: "Ours carries charged buffers; peers carry a Box<[u8]>. Chunks are made and dropped outside what is measured.",
        subjects: vec![
            Subject::ours("latent: stream", alone(Ours::new(by_hand), in_flight)),
            Subject::peer("tachyonix", PLAIN, alone(Tachyonix, in_flight)),
            Subject::peer("kanal", PLAIN, alone(Kanal, in_flight)),
            Subject::peer("flume", PLAIN, alone(Flume, in_flight)),
            Subject::peer("tokio mpsc", PLAIN, alone(TokioMpsc, in_flight)),
            Subject::peer("async-channel", PLAIN, alone(AsyncChannel, in_flight)),
            Subject::peer("thingbuf", PLAIN, alone(Thingbuf, in_flight)),
            Subject::peer("rtrb", "cannot wait: no wakers at all", alone(Rtrb, in_flight)),
        ],
    };
    let main = runtime(1);
    let until = Some(tokio::time::Instant::now() + Duration::from_secs(3600));
    let inside = main.enter();
    let ours = Ours::new(main.handle());
    drop(inside);
    let two_tasks = Group {
        key: "stream-tasks",
        title: "stream: two tasks on one runtime, both with a deadline",
        note: "Peers inside timeout_at, and bare.",
        subjects: vec![
            Subject::ours("latent: stream", tasks(main, ours, None)),
            Subject::peer("kanal", PLAIN, tasks(main, Kanal, until)),
            Subject::peer("tachyonix", PLAIN, tasks(main, Tachyonix, until)),
            Subject::peer("tokio mpsc", PLAIN, tasks(main, TokioMpsc, until)),
            Subject::peer("flume", PLAIN, tasks(main, Flume, until)),
            Subject::peer("async-channel", PLAIN, tasks(main, AsyncChannel, until)),
            Subject::peer("thingbuf", PLAIN, tasks(main, Thingbuf, until)),
            Subject::peer("kanal, bare", BARE, tasks(main, Kanal, None)),
            Subject::peer("tachyonix, bare", BARE, tasks(main, Tachyonix, None)),
            Subject::peer("tokio mpsc, bare", BARE, tasks(main, TokioMpsc, None)),
        ],
    };
    // Its worker sleeps but for the node's control task.
    let background = runtime(2).handle();
    let two_threads = Group {
        key: "stream-threads",
        title: "stream: two threads, both awake",
        note: "Neither thread ever sleeps. Ours with its deadline, peers without. Allocations are the writer's.",
        subjects: vec![
            Subject::ours("latent: stream", threads(background.clone(), Ours::new(background))),
            Subject::peer("tokio mpsc", BARE, threads(background.clone(), TokioMpsc)),
            Subject::peer("tachyonix", BARE, threads(background.clone(), Tachyonix)),
            Subject::peer("kanal", BARE, threads(background.clone(), Kanal)),
            Subject::peer("flume", BARE, threads(background.clone(), Flume)),
            Subject::peer("async-channel", BARE, threads(background.clone(), AsyncChannel)),
            Subject::peer("thingbuf", BARE, threads(background.clone(), Thingbuf)),
            super::machine::control(),
        ],
    };
    vec![
        one("stream-one", "stream: write + read on one thread, alternating", 1),
        one("stream-four", "stream: write + read on one thread, batches of 4", 4),
        two_tasks,
        two_threads,
    ]
}
