//! Models of the keeper (`queue::keeper`, D1 to D7): nobody's deadline is lost, nobody is ended for another's, a grant that is
//! not started goes back or is started, whoever is parked when the keeper goes is woken, and who looks without the clock is told.
//!
//! The keeper's task is a thread that serves once. What comes later is asked of the plan: the keeper would wake at it.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};

use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::mem::park::Park;
use latent_capabilities::model::queue::due::Due;
use latent_capabilities::model::queue::floor::{Floor, OPERATIONS};
use latent_capabilities::model::queue::keeper::Keeper;
use latent_capabilities::model::queue::model::{
    self, OperationLease, Session, admit, admit_until, drop_front, step,
};
use latent_capabilities::model::queue::operation::{Cause, GRANT_CELL, State, Step};
use latent_capabilities::model::queue::wait::enter;
use loom::thread::{self, JoinHandle};
use loom_tests::{Bound, check};

type Ground = Anchor<Session, model::Ground>;

const BOUND: Bound = Bound::Preemptions(3);

/// Instants: so far ahead that the node's own clock calls none of them passed.
const SOON: u64 = 1 << 60;
const LATE: u64 = SOON + 10;

/// Counts its wakes, outside of the model's eyes.
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn counter() -> (Arc<Counter>, Waker) {
    let counter = Arc::new(Counter(AtomicUsize::new(0)));
    (counter.clone(), counter.into())
}

/// A node with so many running units, whose keeper has begun.
fn lay(running: u32) -> (Ground, Lease<Session>) {
    let anchor = model::lay(running, 4, 4);
    anchor.shared().floor.keeper.begin();
    let session = model::open(&anchor);
    (anchor, session)
}

fn floor(anchor: &Ground) -> &Floor<Lease<Session>> {
    &anchor.shared().floor
}

fn granted(session: &Lease<Session>, deadline: u64) -> OperationLease {
    admit_until(session, Some(0), true, deadline, u64::MAX).expect("there is room to run")
}

/// In line, and watched as its future would.
fn queued(anchor: &Ground, session: &Lease<Session>, deadline: u64, queue_until: u64) -> OperationLease {
    let lease =
        admit_until(session, Some(0), false, deadline, queue_until).expect("there is room for owners");
    enter(floor(anchor), &lease);
    assert_eq!(step(&lease), Step::Queued);
    assert!(floor(anchor).keeper.watch(&lease, deadline.min(queue_until)));
    lease
}

/// Somebody who runs, and a staged one behind, until LATE, at a slot that is watched until SOON for who was in it before.
fn at_a_watched_slot(anchor: &Ground, session: &Lease<Session>) -> (OperationLease, OperationLease) {
    let first = granted(session, SOON);
    let place = first.index();
    let running = admit(session, Some(1), false).expect("there is room for owners");
    drop_front(first);
    enter(floor(anchor), &running);
    let waiter = admit_until(session, Some(0), false, LATE, u64::MAX).expect("there is room for owners");
    assert_eq!((step(&running), waiter.index()), (Step::Granted, place));
    (running, waiter)
}

/// The keeper's round at `now`, if it is planned until then.
fn serve(anchor: &Ground, due: &mut Due, now: u64) {
    let floor = floor(anchor);
    if floor.keeper.planned() <= now {
        floor.keeper.serve(floor, due, now, OPERATIONS).resume();
    }
}

/// The same on a thread of its own. It comes because something was planned for it.
fn serving(anchor: &Ground, now: u64) -> JoinHandle<Due> {
    let anchor = anchor.clone();
    thread::spawn(move || {
        let mut due = Due::new(OPERATIONS);
        let floor = floor(&anchor);
        floor.keeper.serve(floor, &mut due, now, OPERATIONS).resume();
        due
    })
}

fn cause(lease: &OperationLease) -> Cause {
    State(lease.word().load()).cause()
}

/// D2: the slot is watched for who was in it before, and that instant comes while somebody else parks there.
#[test]
fn a_wait_at_a_watched_slot_meets_the_keeper() {
    check("keeper::a_wait_at_a_watched_slot_meets_the_keeper", BOUND, || {
        let (anchor, session) = lay(1);
        let (running, waiter) = at_a_watched_slot(&anchor, &session);
        let keeper = serving(&anchor, SOON);
        let (counter, waker) = counter();
        enter(floor(&anchor), &waiter);
        let mut seat = waiter.claim(GRANT_CELL).expect("free");
        let parked = waiter.park(&mut seat, &waker, |bits| State(bits).step() == Step::Queued);
        assert_eq!(parked, Park::Parked, "nothing grants it");
        assert!(floor(&anchor).keeper.watch(&waiter, LATE));
        let mut due = keeper.join().expect("no panic");
        assert_eq!(step(&waiter), Step::Queued, "ended for another's deadline");
        serve(&anchor, &mut due, LATE);
        assert_eq!((step(&waiter), cause(&waiter)), (Step::Left, Cause::Deadline), "a deadline was lost");
        assert_eq!(counter.0.load(Relaxed), 1);
        waiter.release(seat);
        drop_front(waiter);
        drop_front(running);
        model::assert_zero(&anchor);
    });
}

/// D4: posting meets a round that is under way for another slot. The plan is not later than what was posted.
#[test]
fn posting_meets_a_round() {
    check("keeper::posting_meets_a_round", BOUND, || {
        let (anchor, session) = lay(2);
        let first = granted(&session, SOON);
        let keeper = serving(&anchor, SOON);
        let second = granted(&session, LATE);
        let mut due = keeper.join().expect("no panic");
        assert_eq!((step(&first), step(&second)), (Step::Returned, Step::Granted));
        assert!(floor(&anchor).keeper.planned() <= LATE, "nobody would look");
        serve(&anchor, &mut due, LATE);
        assert_eq!((step(&second), cause(&second)), (Step::Returned, Cause::Deadline));
        drop_front(first);
        drop_front(second);
        model::assert_zero(&anchor);
    });
}

/// D3: an operation ends at its deadline, and another takes its place while the keeper looks.
#[test]
fn the_next_operation_meets_a_deadline_of_the_past() {
    check("keeper::the_next_operation_meets_a_deadline_of_the_past", BOUND, || {
        let (anchor, session) = lay(2);
        let first = granted(&session, SOON);
        let keeper = serving(&anchor, SOON);
        drop_front(first);
        let second = granted(&session, LATE);
        let mut due = keeper.join().expect("no panic");
        assert_eq!(step(&second), Step::Granted, "ended for another's deadline");
        serve(&anchor, &mut due, LATE);
        assert_eq!((step(&second), cause(&second)), (Step::Returned, Cause::Deadline), "a deadline was lost");
        drop_front(second);
        model::assert_zero(&anchor);
    });
}

/// D6: a grant is started while the keeper takes it back. One of them wins, and the next in line has the unit as soon as it
/// is free.
#[test]
fn taking_back_meets_the_start() {
    check("keeper::taking_back_meets_the_start", BOUND, || {
        let (anchor, session) = lay(1);
        let ready = granted(&session, SOON);
        let next = queued(&anchor, &session, LATE, u64::MAX);
        let keeper = serving(&anchor, SOON);
        let started = ready.word().update(|bits| State(bits).started()).is_ok();
        drop(keeper.join().expect("no panic"));
        let ended = if started { (Step::Started, Step::Queued) } else { (Step::Returned, Step::Granted) };
        assert_eq!((step(&ready), step(&next)), ended);
        assert_eq!(cause(&ready), Cause::Deadline);
        drop_front(ready);
        assert_eq!(step(&next), Step::Granted);
        drop_front(next);
        model::assert_zero(&anchor);
    });
}

/// D2: the queue age comes together with the grant. Who has the grant keeps it, and is watched until its deadline.
#[test]
fn the_queue_age_meets_the_grant() {
    check("keeper::the_queue_age_meets_the_grant", Bound::Preemptions(2), || {
        let (anchor, session) = lay(1);
        let running = admit(&session, Some(1), true).expect("there is room to run");
        let waiter = queued(&anchor, &session, LATE, SOON);
        let keeper = serving(&anchor, SOON);
        drop_front(running);
        let mut due = keeper.join().expect("no panic");
        match step(&waiter) {
            Step::Left => assert_eq!(cause(&waiter), Cause::QueueAge),
            other => {
                assert_eq!(other, Step::Granted);
                serve(&anchor, &mut due, LATE);
                assert_eq!((step(&waiter), cause(&waiter)), (Step::Returned, Cause::Deadline));
            }
        }
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

/// D5: somebody parks while the keeper goes. It is told that nobody serves it, or it is woken and told then.
#[test]
fn parking_meets_the_end_of_the_keeper() {
    check("keeper::parking_meets_the_end_of_the_keeper", BOUND, || {
        let (anchor, session) = lay(1);
        let (running, waiter) = at_a_watched_slot(&anchor, &session);
        enter(floor(&anchor), &waiter);
        let keeper = thread::spawn({
            let anchor = anchor.clone();
            move || floor(&anchor).keeper.withdraw(floor(&anchor))
        });
        let (counter, waker) = counter();
        let mut seat = waiter.claim(GRANT_CELL).expect("free");
        let parked = waiter.park(&mut seat, &waker, |bits| State(bits).step() == Step::Queued);
        assert_eq!(parked, Park::Parked, "nothing grants it");
        let served = floor(&anchor).keeper.watch(&waiter, LATE);
        keeper.join().expect("no panic");
        assert!(!served || counter.0.load(Relaxed) == 1, "left without a timer");
        assert!(!floor(&anchor).keeper.watch(&waiter, LATE), "nobody serves it");
        waiter.release(seat);
        drop_front(waiter);
        drop_front(running);
        model::assert_zero(&anchor);
    });
}

/// D7: the keeper comes for the one before, and the next operation in the slot, whose deadline has passed as well, looks. Whoever
/// was let do without the clock is told by that very round; who has posted is not let.
#[test]
fn a_look_without_the_clock_meets_the_keeper() {
    check("keeper::a_look_without_the_clock_meets_the_keeper", BOUND, || {
        let (anchor, session) = lay(2);
        let first = granted(&session, SOON);
        floor(&anchor).keeper.clock_was_read(&first, SOON, 0);
        assert!(Keeper::spares_the_clock(&first), "its deadline is watched, and far ahead");
        drop_front(first);
        let keeper = serving(&anchor, LATE);
        let second = granted(&session, SOON + 1);
        let without = Keeper::spares_the_clock(&second);
        let mut due = keeper.join().expect("no panic");
        if !without {
            serve(&anchor, &mut due, LATE);
        }
        assert_eq!((step(&second), cause(&second)), (Step::Returned, Cause::Deadline), "without: {without}");
        drop_front(second);
        model::assert_zero(&anchor);
    });
}
