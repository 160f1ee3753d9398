//! The hot path asks for no lock, no memory and no system call: what a request does runs inside of a function that
//! RealtimeSanitizer knows as one that must not block, so everything that it calls is looked at, to the bottom. The round of
//! the keeper, which the control task runs, is marked in the library.
//!
//! `.ci/stage-realtime.sh` builds it so. In any other build these are tests of the same requests, on three threads that fight
//! for two places and one connection.
//!
//! The sanitizer sees what reaches the C library. A lock of `std` that nobody else holds does not, so the functions of the
//! library that take a lock are marked as blocking (`tidy` checks that no other takes one), and it sees those. It ends at three
//! doors: a waker of others ([`Door`] lets it do what it likes), the library's own bell for its control task, and the timer of
//! tokio (`.ci/rtsan.supp` names these two).
#![cfg_attr(latent_realtime, feature(sanitize))]
#[path = "support/mod.rs"]
mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use latent_capabilities::Deadline;
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{Acquired, Exchange};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Cost, IoLimits, Kind, Plan, PlanSpec, ProviderSpec, StreamBudget,
    Terminal, Which,
};
use support::hot::{BYTES, Node, SCENARIOS, SEND};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// Requests of each thread.
const ROUNDS: usize = 300;

/// Runs `work` where nothing may block.
#[cfg_attr(latent_realtime, sanitize(realtime = "nonblocking"))]
fn hot<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// What is behind a door is not looked at.
#[allow(unsafe_code, reason = "the sanitizer is told by functions of its own")]
mod door {
    #[cfg(latent_realtime)]
    unsafe extern "C" {
        fn __rtsan_disable();
        fn __rtsan_enable();
    }

    pub(super) struct Door;

    impl Door {
        pub(super) fn open() -> Door {
            // SAFETY: it counts on this thread; the door closes on the thread that opened it, for it lives on its stack.
            #[cfg(latent_realtime)]
            unsafe {
                __rtsan_disable();
            }
            Door
        }
    }

    impl Drop for Door {
        fn drop(&mut self) {
            // SAFETY: as above; each opening is closed once.
            #[cfg(latent_realtime)]
            unsafe {
                __rtsan_enable();
            }
        }
    }
}
use door::Door;

/// A waker as executors have them: it takes memory, and it asks the system to let a thread run.
struct Unpark {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Unpark {
    fn here() -> (Arc<Unpark>, Waker) {
        let unpark = Arc::new(Unpark { thread: thread::current(), wakes: AtomicUsize::new(0) });
        (unpark.clone(), Waker::from(unpark))
    }
    fn wakes(&self) -> usize {
        self.wakes.load(SeqCst)
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let _door = Door::open();
        self.wakes.fetch_add(1, SeqCst);
        drop(std::hint::black_box(Box::new(0_u8)));
        self.thread.unpark();
    }
}

/// Polls until it is ready, and drops it. Between two polls the thread sleeps until it is woken.
fn finish<F: Future>(waker: &Waker, future: F) -> F::Output {
    let mut future = pin!(Some(future));
    loop {
        let polled = hot(|| {
            let future = future.as_mut().as_pin_mut().expect("it is not finished");
            future.poll(&mut Context::from_waker(waker))
        });
        if let Poll::Ready(output) = polled {
            hot(|| future.set(None));
            return output;
        }
        let slept = Instant::now();
        thread::park_timeout(LONG);
        assert!(slept.elapsed() < LONG, "nobody woke it");
    }
}

/// A request from its session to its end: a turn, a buffer, a stream, the connection.
fn request(node: &Node, plan: &Plan, waker: &Waker) {
    let session = hot(|| node.session_of(plan));
    let wait = hot(|| node.pools.admit(&node.client, &session).expect("room").wait());
    let granted = finish(waker, wait).expect("its turn comes");
    let stream = StreamBudget::new(1 << 20, 1 << 20).expect("not zero");
    let call = hot(|| granted.dispatch(SEND, Cost::new().stream(stream)).expect("allowed"));
    // Others come while it runs.
    thread::yield_now();
    let (mut writer, mut reader) = hot(|| call.io().stream(2).expect("room"));
    let chunk = hot(|| {
        let mut chunk = call.io().buffer(512, 16).expect("room");
        chunk.spare_mut(8).expect("staged").fill(3);
        chunk.advance_written(8).expect("within");
        chunk.retain().expect("allowed")
    });
    finish(waker, writer.write(chunk)).expect("open");
    hot(|| writer.finish(Terminal::Eof));
    assert!(finish(waker, reader.read()).expect("open").is_some());
    match finish(waker, node.client.acquire(&call)).expect("it comes round") {
        Acquired::Idle(connection) => {
            thread::yield_now();
            hot(|| connection.park(Exchange::complete()).expect("room"));
        }
        Acquired::Dial(_) => panic!("the client's only connection exists"),
    }
    hot(|| drop((reader, call, session)));
}

/// One who stands in line, is stopped and goes.
fn goes(node: &Node, plan: &Plan, waker: &Waker) {
    let session = hot(|| node.session_of(plan));
    let mut wait = pin!(Some(hot(|| node.pools.admit(&node.client, &session).expect("room").wait())));
    hot(|| {
        let stands = wait.as_mut().as_pin_mut().expect("it is there");
        drop(stands.poll(&mut Context::from_waker(waker)));
        session.stop();
        wait.set(None);
        drop(session);
    });
}

fn one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// The control task runs on a thread of its own, which sleeps in the kernel and is woken by a system call.
fn its_own_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime")
}

fn at_rest(node: &Node) {
    assert!(node.io.snapshot().is_zero(), "{:?}", node.io.snapshot());
    assert!(node.pools.snapshot().is_idle(), "{:?}", node.pools.snapshot());
}

#[test]
fn no_scenario_blocks() {
    let runtime = one_thread();
    let _inside = runtime.enter();
    let node = Node::new();
    for (name, scenario) in SCENARIOS {
        // A thread's first use of its own variables may take memory.
        scenario(&node);
        println!("{name}");
        hot(|| scenario(&node));
    }
    println!("{} scenarios", SCENARIOS.len());
    at_rest(&node);
}

#[test]
fn nothing_blocks_where_threads_fight_for_places() {
    let runtime = its_own_thread();
    let _inside = runtime.enter();
    let node = Node::new();
    let wakes: usize = thread::scope(|scope| {
        let threads = [&node.plan, &node.other, &node.plan].map(|plan| {
            let (node, handle) = (&node, runtime.handle());
            scope.spawn(move || {
                let _inside = handle.enter();
                let (unpark, waker) = Unpark::here();
                for round in 0..ROUNDS {
                    request(node, plan, &waker);
                    if round % 3 == 0 {
                        goes(node, plan, &waker);
                    }
                }
                unpark.wakes()
            })
        });
        threads.map(|thread| thread.join().expect("it does not panic")).into_iter().sum()
    });
    println!("{wakes} wakes");
    assert!(wakes > 0, "nobody waited, so nobody was looked at");
    at_rest(&node);
}

/// Waits for what the control task ends.
fn expire(woken: impl Fn() -> bool, waker: &Waker) {
    let runtime = one_thread();
    let _inside = runtime.enter();
    let node = Node::new();
    let session = node.session();
    let calls = (node.call(&session), node.call(&session));
    let soon = Deadline::after(Duration::from_millis(5)).expect("in range");
    let mut wait = pin!(node.pools.admit_until(&node.client, &session, soon).expect("room").wait());
    let mut poll = || hot(|| wait.as_mut().poll(&mut Context::from_waker(waker)).map(Result::err));
    assert!(poll().is_pending());
    runtime.block_on(async {
        while !woken() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    match poll() {
        Poll::Ready(Some(error)) => assert_eq!(error.kind(), Kind::Deadline(Which::Operation)),
        other => panic!("its time is over: {other:?}"),
    }
    drop((calls, session));
}

/// The one round that the control task makes on behalf of requests.
#[test]
fn the_keepers_round_does_not_block() {
    let (unpark, waker) = Unpark::here();
    expire(|| unpark.wakes() > 0, &waker);
}

/// Without a registry there is no keeper: who waits has a timer of tokio's.
#[test]
fn what_a_timer_is_for_does_not_block() {
    let runtime = its_own_thread();
    let _inside = runtime.enter();
    let broker = Broker::new(BrokerLimits::default()).expect("valid");
    let io = IoRuntime::new(&broker, IoLimits { running: 1, ..IoLimits::default() }).expect("valid");
    let files = broker.register(ProviderSpec::new("files")).expect("room");
    let plan = broker.seal(PlanSpec::new("alpha", "p").bind(&BYTES, &files.reference())).expect("current");
    let soon = Deadline::after(Duration::from_millis(30)).expect("in range");
    let session = broker.open(&plan, Activation::until(soon)).expect("room");
    let (unpark, waker) = Unpark::here();
    let running = finish(&waker, io.admit(&session).expect("room").wait()).expect("nobody waits");
    let mut wait = pin!(io.admit(&session).expect("room").wait());
    let mut poll = || hot(|| wait.as_mut().poll(&mut Context::from_waker(&waker)).map(Result::err));
    assert!(poll().is_pending());
    runtime.block_on(async {
        while unpark.wakes() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(matches!(poll(), Poll::Ready(Some(error)) if matches!(error.kind(), Kind::Deadline(_))));
    drop((running, session));
}

/// The sanitizer sees what it is to see, and the door hides what is behind it: this binary, run again with something planted.
#[cfg(latent_realtime)]
mod planted {
    use super::*;
    use std::process::Command;
    use std::sync::{Condvar, Mutex};

    const PLANT: &str = "LATENT_REALTIME_PLANT";

    /// What to plant, and what the report says.
    const PLANTS: [(&str, Option<&str>); 7] = [
        ("memory", Some("unsafe function `malloc`")),
        ("a lock that is held", Some("unsafe function `syscall`")),
        (
            "a lock of the library",
            Some("blocking function `<latent_capabilities::broker::ground::Ground>::control`"),
        ),
        ("a condition", Some("unsafe function `syscall`")),
        ("memory under the keeper", Some("unsafe function `malloc`")),
        ("memory behind a door", None),
        ("nothing", None),
    ];

    #[test]
    fn what_is_planted_is_reported() {
        match std::env::var(PLANT) {
            Ok(plant) => plant_it(&plant),
            Err(_) => PLANTS.iter().for_each(|(plant, report)| look(plant, *report)),
        }
    }

    fn look(plant: &str, report: Option<&str>) {
        let output = Command::new(std::env::current_exe().expect("this binary has a path"))
            .args(["--exact", "planted::what_is_planted_is_reported", "--nocapture"])
            .env(PLANT, plant)
            .output()
            .expect("this binary runs again");
        let said = String::from_utf8_lossy(&output.stderr);
        match report {
            Some(report) => {
                assert!(said.contains(report), "{plant}: not reported\n{said}");
                assert!(!output.status.success(), "{plant}: reported, and passed");
            }
            None => {
                assert!(
                    output.status.success() && !said.contains("ERROR: RealtimeSanitizer"),
                    "{plant}: {said}"
                )
            }
        }
        println!("planted {plant}: {}", report.unwrap_or("not reported"));
    }

    /// A waker that does not say that it is a door.
    struct Careless(AtomicUsize);

    impl Wake for Careless {
        fn wake(self: Arc<Self>) {
            drop(std::hint::black_box(Box::new(0_u8)));
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn plant_it(plant: &str) {
        let (lock, condition) = (Mutex::new(0_u8), Condvar::new());
        match plant {
            "memory" => hot(|| drop(std::hint::black_box(Box::new(0_u8)))),
            "a lock of the library" => {
                let broker = Broker::new(BrokerLimits::default()).expect("valid");
                hot(|| assert_eq!(broker.withdraw("nothing"), 0));
            }
            "a lock that is held" => thread::scope(|scope| {
                let held = lock.lock().expect("no panic");
                scope.spawn(|| hot(|| drop(lock.lock())));
                thread::sleep(Duration::from_millis(100));
                drop(held);
            }),
            "a condition" => {
                let held = lock.lock().expect("no panic");
                drop(hot(|| condition.wait_timeout(held, Duration::from_millis(1))));
            }
            "memory under the keeper" => {
                let woken = Arc::new(Careless(AtomicUsize::new(0)));
                expire(|| woken.0.load(SeqCst) > 0, &Waker::from(woken.clone()));
            }
            "memory behind a door" => {
                let (unpark, waker) = Unpark::here();
                hot(|| waker.wake_by_ref());
                assert_eq!(unpark.wakes(), 1);
            }
            _ => hot(|| ()),
        }
    }
}
