//! Models of a session's stop: `queue::watched`, invariants N1 to N3, on the real wait of `queue::wait` and the real park cells.
//!
//! Each ends with the same question: does anybody still wait for something that a stopped session must not wait for?
#![cfg(loom)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::queue::model::{
    self, OperationLease, Session, admit, drop_front, step, stop_session,
};
use latent_capabilities::model::queue::operation::{Cause, State, Step};
use latent_capabilities::model::queue::wait::{Watch, poll_grant};
use loom::thread;
use loom_tests::{Bound, check};

type Ground = Anchor<Session, model::Ground>;

const BOUND: Bound = Bound::Preemptions(3);

struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A node with a keeper, so that nobody needs a timer.
fn lay(running: u32) -> (Ground, Lease<Session>) {
    let anchor = model::lay(running, 4, 4);
    anchor.shared().floor.keeper.begin();
    let session = model::open(&anchor);
    (anchor, session)
}

fn cause(lease: &OperationLease) -> Cause {
    State(lease.word().load()).cause()
}

/// One poll of a wait, by a task that then sleeps until it is woken.
struct Waiter {
    watch: Pin<Box<Watch>>,
    pending: bool,
    wakes: Arc<Counter>,
}

impl Waiter {
    fn poll<R>(poll: impl FnOnce(Pin<&mut Watch>, &mut Context<'_>) -> Poll<R>) -> Waiter {
        let mut watch = Box::pin(Watch::new());
        let wakes = Arc::new(Counter(AtomicUsize::new(0)));
        let waker = Waker::from(wakes.clone());
        let pending = poll(watch.as_mut(), &mut Context::from_waker(&waker)).is_pending();
        Waiter { watch, pending, wakes }
    }

    /// For as long as nothing stops the operation.
    fn until_stopped(lease: &OperationLease) -> Waiter {
        Waiter::poll(|watch, cx| watch.poll(lease, cx, u64::MAX, |state| state.cause() == Cause::None))
    }

    /// For a grant.
    fn for_a_grant(lease: &OperationLease) -> Waiter {
        Waiter::poll(|watch, cx| poll_grant(lease, watch, cx))
    }

    /// Nobody is under way any more, so who sleeps now was forgotten.
    fn must_be_up(mut self, lease: &OperationLease) {
        assert!(!self.pending || self.wakes.0.load(Relaxed) > 0, "a stop did not reach a waiter");
        self.watch.as_mut().leave(lease);
    }
}

fn started(session: &Lease<Session>) -> OperationLease {
    let lease = admit(session, Some(0), true).expect("there is room to run");
    assert!(lease.word().update(|bits| State(bits).started()).is_ok());
    lease
}

/// N1: somebody begins to wait while the session is stopped.
#[test]
fn a_stop_meets_a_wait() {
    check("watched::a_stop_meets_a_wait", BOUND, || {
        let (anchor, session) = lay(1);
        let call = Arc::new(started(&session));
        let waiting = thread::spawn({
            let call = call.clone();
            move || Waiter::until_stopped(&call)
        });
        stop_session(&session);
        waiting.join().expect("no panic").must_be_up(&call);
        drop_front(Arc::into_inner(call).expect("the other thread is gone"));
        model::assert_zero(&anchor);
    });
}

/// N2: two tasks wait for something of one call, each for the first time, while the session is stopped.
#[test]
fn a_stop_reaches_both_waiters_of_a_call() {
    check("watched::a_stop_reaches_both_waiters_of_a_call", Bound::Preemptions(2), || {
        let (anchor, session) = lay(1);
        let call = Arc::new(started(&session));
        let waiting = [(); 2].map(|()| {
            let call = call.clone();
            thread::spawn(move || Waiter::until_stopped(&call))
        });
        stop_session(&session);
        for waiter in waiting {
            waiter.join().expect("no panic").must_be_up(&call);
        }
        drop_front(Arc::into_inner(call).expect("the other threads are gone"));
        model::assert_zero(&anchor);
    });
}

/// N3: a call that waited ends, and the next one of the session takes its slot and waits there.
#[test]
fn a_stop_reaches_the_next_call_in_the_slot() {
    check("watched::a_stop_reaches_the_next_call_in_the_slot", BOUND, || {
        let (anchor, session) = lay(2);
        let first = started(&session);
        let waited = Waiter::until_stopped(&first);
        assert!(waited.pending);
        let ending = thread::spawn(move || {
            let Waiter { mut watch, .. } = waited;
            watch.as_mut().leave(&first);
            drop_front(first);
        });
        let second = started(&session);
        let waiter = Waiter::until_stopped(&second);
        stop_session(&session);
        waiter.must_be_up(&second);
        ending.join().expect("no panic");
        drop_front(second);
        model::assert_zero(&anchor);
    });
}

/// N1: a request is admitted and queues while the session is stopped. It is refused, or it is told.
#[test]
fn a_stop_meets_an_admission() {
    check("watched::a_stop_meets_an_admission", Bound::Preemptions(2), || {
        let (anchor, session) = lay(1);
        let other = model::open(&anchor);
        let running = started(&other);
        let stopper = thread::spawn({
            let session = session.duplicate();
            move || stop_session(&session)
        });
        let admitted = admit(&session, Some(0), false);
        let waiting = admitted.as_ref().map(Waiter::for_a_grant);
        stopper.join().expect("no panic");
        if let (Some(lease), Some(waiter)) = (admitted, waiting) {
            waiter.must_be_up(&lease);
            assert_eq!((step(&lease), cause(&lease)), (Step::Left, Cause::Session));
            drop_front(lease);
        }
        drop_front(running);
        model::assert_zero(&anchor);
    });
}

/// A session is stopped while everything is retired: the first cause stays (O3), and the unit goes back once.
#[test]
fn a_stop_meets_a_retirement() {
    check("watched::a_stop_meets_a_retirement", BOUND, || {
        let (anchor, session) = lay(1);
        let ready = admit(&session, Some(0), true).expect("there is room to run");
        let waiter = Waiter::until_stopped(&ready);
        assert!(waiter.pending);
        let retirer = thread::spawn({
            let anchor = anchor.clone();
            move || {
                let floor = &anchor.shared().floor;
                floor.node.close();
                floor.stop_all(Cause::Retired, |_, _| true);
            }
        });
        stop_session(&session);
        let seen = cause(&ready);
        assert!(matches!(seen, Cause::Session | Cause::Retired), "{seen:?}");
        retirer.join().expect("no panic");
        assert_eq!(cause(&ready), seen, "a later cause took the place of the first");
        assert_eq!(step(&ready), Step::Returned);
        waiter.must_be_up(&ready);
        drop_front(ready);
        model::assert_zero(&anchor);
    });
}
