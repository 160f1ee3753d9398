//! Models of the operation's word and of the line: `queue::operation` (O1 to O5), `queue::line` (L1 to L5), and the rows of
//! the meeting rule that meet there.
//!
//! Every model ends with the same two questions: does somebody wait while there is room for it, and is everything given
//! back once all are gone? There are no wakers in them, except where the wake is the question: that keeps them small.
#![cfg(loom)]

use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::mem::park::Park;
use latent_capabilities::model::queue::model::{self, OperationLease, Session, admit, drop_front, step};
use latent_capabilities::model::queue::operation::{ALL_CELLS, Cause, GRANT_CELL, State, Step};
use latent_capabilities::model::queue::wait::enter;
use loom::thread;
use loom_tests::{Bound, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};

type Ground = Anchor<Session, model::Ground>;

const BOUND: Bound = Bound::Preemptions(3);

fn staged(session: &Lease<Session>, tenant: Option<u16>) -> OperationLease {
    admit(session, tenant, false).expect("there is room for owners")
}

fn granted(session: &Lease<Session>, tenant: Option<u16>) -> OperationLease {
    admit(session, tenant, true).expect("there is room to run")
}

/// A call that runs: its end passes its units on.
fn started(session: &Lease<Session>, tenant: Option<u16>) -> OperationLease {
    let call = granted(session, tenant);
    call.word().update(|bits| State(bits).started()).expect("nobody stops it");
    call
}

fn go(anchor: &Ground, lease: &OperationLease) {
    enter(&anchor.shared().floor, lease);
}

/// L3: nothing is held by others any more, so whoever still waits was forgotten.
fn assert_granted(lease: &OperationLease) {
    assert_eq!(step(lease), Step::Granted, "an eligible waiter was forgotten");
}

#[test]
fn enqueue_meets_release() {
    check("line::enqueue_meets_release", BOUND, || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let waiter = staged(&session, Some(0));
        let releaser = thread::spawn(move || drop_front(running));
        go(&anchor, &waiter);
        releaser.join().expect("no panic");
        assert_granted(&waiter);
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

#[test]
fn enqueue_meets_release_at_the_tenants_ceiling() {
    check("line::enqueue_meets_release_at_the_tenants_ceiling", BOUND, || {
        let anchor = model::lay(4, 1, 4);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let waiter = staged(&session, Some(0));
        let releaser = thread::spawn(move || drop_front(running));
        go(&anchor, &waiter);
        releaser.join().expect("no panic");
        assert_granted(&waiter);
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

#[test]
fn enqueue_meets_release_at_the_providers_ceiling() {
    check("line::enqueue_meets_release_at_the_providers_ceiling", BOUND, || {
        let anchor = model::lay(4, 4, 1);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let waiter = staged(&session, Some(1));
        let releaser = thread::spawn(move || drop_front(running));
        go(&anchor, &waiter);
        releaser.join().expect("no panic");
        assert_granted(&waiter);
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

#[test]
fn direct_io_meets_a_pool_release() {
    check("line::direct_io_meets_a_pool_release", BOUND, || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let waiter = staged(&session, None);
        let releaser = thread::spawn(move || drop_front(running));
        go(&anchor, &waiter);
        releaser.join().expect("no panic");
        assert_granted(&waiter);
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

#[test]
fn two_go_straight_for_one_unit() {
    check("line::two_go_straight_for_one_unit", Bound::Preemptions(2), || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let first = staged(&session, Some(0));
        let second = staged(&session, Some(1));
        let other = anchor.clone();
        let racer = thread::spawn(move || {
            go(&other, &second);
            second
        });
        go(&anchor, &first);
        let second = racer.join().expect("no panic");
        let both = [step(&first), step(&second)];
        assert_eq!(both.iter().filter(|step| **step == Step::Granted).count(), 1, "{both:?}");
        let (winner, loser) = if both[0] == Step::Granted { (first, second) } else { (second, first) };
        drop_front(winner);
        assert_granted(&loser);
        drop_front(loser);
        model::assert_zero(&anchor);
    });
}

#[test]
fn cancel_meets_grant_and_the_next_one_gets_it() {
    check("line::cancel_meets_grant_and_the_next_one_gets_it", BOUND, || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let first = staged(&session, Some(0));
        go(&anchor, &first);
        let second = staged(&session, Some(0));
        go(&anchor, &second);
        // The first leaves while the unit that it waits for comes free.
        let leaver = thread::spawn(move || drop_front(first));
        drop_front(running);
        leaver.join().expect("no panic");
        assert_granted(&second);
        drop_front(second);
        model::assert_zero(&anchor);
    });
}

#[test]
fn a_refused_reservation_gives_back_like_a_release() {
    check("line::a_refused_reservation_gives_back_like_a_release", Bound::Preemptions(2), || {
        let anchor = model::lay(1, 1, 4);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let waiter = staged(&session, Some(0));
        // A passing reject-now attempt of the same tenant holds the tenant's unit for a moment.
        let passer = thread::spawn({
            let session = session.duplicate();
            move || admit(&session, Some(0), true).map(drop_front)
        });
        let releaser = thread::spawn(move || drop_front(running));
        go(&anchor, &waiter);
        passer.join().expect("no panic");
        releaser.join().expect("no panic");
        assert_granted(&waiter);
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

#[test]
fn admission_meets_retirement() {
    check("line::admission_meets_retirement", BOUND, || {
        let anchor = model::lay(2, 4, 4);
        let session = model::open(&anchor);
        let floor = anchor.clone();
        let retirer = thread::spawn(move || {
            let floor = &floor.shared().floor;
            floor.node.close();
            floor.stop_all(Cause::Retired, |_, _| true);
        });
        let admitted = admit(&session, Some(0), false);
        if let Some(lease) = &admitted {
            go(&anchor, lease);
        }
        retirer.join().expect("no panic");
        // After the retirement returned, nothing waits and nothing holds a running unit that could still start.
        if let Some(lease) = admitted {
            assert!(matches!(step(&lease), Step::Left | Step::Returned), "{:?}", step(&lease));
            drop_front(lease);
        }
        model::assert_zero(&anchor);
    });
}

#[test]
fn admission_meets_the_swap_of_the_epoch() {
    check("line::admission_meets_the_swap_of_the_epoch", BOUND, || {
        let anchor = model::lay(2, 4, 4);
        let session = model::open(&anchor);
        let other = anchor.clone();
        let rotator = thread::spawn(move || {
            let floor = &other.shared().floor;
            floor.providers[0].swap_tag(1, 2).expect("it is current");
            floor.line.look_again(floor);
            floor.stop_all(Cause::Epoch, |operation, _| {
                operation.request().is_some_and(|request| request.tag() == 1)
            });
        });
        let admitted = admit(&session, Some(0), false);
        if let Some(lease) = &admitted {
            go(&anchor, lease);
        }
        rotator.join().expect("no panic");
        if let Some(lease) = admitted {
            assert!(matches!(step(&lease), Step::Left | Step::Returned), "{:?}", step(&lease));
            drop_front(lease);
        }
        model::assert_zero(&anchor);
    });
}

/// The same for who is granted at once: nobody takes it to the line, where it would be found stale.
#[test]
fn a_grant_at_once_meets_the_swap_of_the_epoch() {
    check("line::a_grant_at_once_meets_the_swap_of_the_epoch", BOUND, || {
        let anchor = model::lay(2, 4, 4);
        let session = model::open(&anchor);
        let other = anchor.clone();
        let rotator = thread::spawn(move || {
            let floor = &other.shared().floor;
            floor.providers[0].swap_tag(1, 2).expect("it is current");
            floor.stop_all(Cause::Epoch, |operation, _| {
                operation.request().is_some_and(|request| request.tag() == 1)
            });
        });
        let admitted = admit(&session, Some(0), true);
        rotator.join().expect("no panic");
        if let Some(lease) = admitted {
            assert_eq!(step(&lease), Step::Returned, "a grant of the epoch before it was swapped");
            drop_front(lease);
        }
        model::assert_zero(&anchor);
    });
}

#[test]
fn a_zombie_in_the_line_gives_its_slot_back_once() {
    check("line::a_zombie_in_the_line_gives_its_slot_back_once", BOUND, || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let waiter = staged(&session, Some(1));
        go(&anchor, &waiter);
        // The waiter's last lease goes while the turn may be collecting it, or granting to it.
        let leaver = thread::spawn(move || drop_front(waiter));
        drop_front(running);
        leaver.join().expect("no panic");
        model::assert_zero(&anchor);
        // All four slots can be taken again.
        let all: Vec<_> = (0..4).map(|_| staged(&session, None)).collect();
        all.into_iter().for_each(drop_front);
        model::assert_zero(&anchor);
    });
}

/// While the turn moves the waker out, the hold stays; the waiter may see its grant and end meanwhile. The slot then goes
/// back by the turn's step, and the owner with it.
#[test]
fn a_parked_waiter_ends_while_it_is_granted() {
    check("line::a_parked_waiter_ends_while_it_is_granted", BOUND, || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let running = granted(&session, Some(0));
        let waiter = staged(&session, Some(0));
        go(&anchor, &waiter);
        let mut seat = waiter.claim(GRANT_CELL).expect("nobody sits there");
        let parked = waiter.park(&mut seat, Waker::noop(), |bits| State(bits).step() == Step::Queued);
        assert!(matches!(parked, Park::Parked));
        let leaver = thread::spawn(move || {
            waiter.release(seat);
            drop_front(waiter);
        });
        drop_front(running);
        leaver.join().expect("no panic");
        model::assert_zero(&anchor);
    });
}

#[test]
fn enqueue_meets_the_end_of_a_call() {
    for (name, tenant) in
        [("line::enqueue_meets_the_end_of_a_call", 0), ("line::enqueue_meets_the_end_of_anothers_call", 1)]
    {
        check(name, BOUND, move || {
            let anchor = model::lay(4, 4, 1);
            let session = model::open(&anchor);
            let call = started(&session, Some(0));
            let waiter = staged(&session, Some(tenant));
            let ender = thread::spawn(move || drop_front(call));
            go(&anchor, &waiter);
            ender.join().expect("no panic");
            assert_granted(&waiter);
            drop_front(waiter);
            model::assert_zero(&anchor);
        });
    }
}

/// L2: the unit is on its way from one call to a waiter that leaves; the next one gets it.
#[test]
fn a_passed_unit_meets_a_leaving_waiter() {
    check("line::a_passed_unit_meets_a_leaving_waiter", BOUND, || {
        let anchor = model::lay(4, 4, 1);
        let session = model::open(&anchor);
        let call = started(&session, Some(0));
        let first = staged(&session, Some(0));
        go(&anchor, &first);
        let second = staged(&session, Some(1));
        go(&anchor, &second);
        let leaver = thread::spawn(move || drop_front(first));
        drop_front(call);
        leaver.join().expect("no panic");
        assert_granted(&second);
        drop_front(second);
        model::assert_zero(&anchor);
    });
}

/// The unit is never free while somebody waits for it: no newcomer gets it.
#[test]
fn a_passed_unit_meets_a_newcomer() {
    check("line::a_passed_unit_meets_a_newcomer", BOUND, || {
        let anchor = model::lay(4, 4, 1);
        let session = model::open(&anchor);
        let call = started(&session, Some(0));
        let waiter = staged(&session, Some(1));
        go(&anchor, &waiter);
        let newcomer = thread::spawn({
            let session = session.duplicate();
            move || admit(&session, Some(0), true).is_none()
        });
        drop_front(call);
        assert!(newcomer.join().expect("no panic"), "a waiter was overtaken");
        assert_granted(&waiter);
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

#[test]
fn a_passed_unit_meets_retirement() {
    check("line::a_passed_unit_meets_retirement", Bound::Preemptions(2), || {
        let anchor = model::lay(4, 4, 1);
        let session = model::open(&anchor);
        let call = started(&session, Some(0));
        let waiter = staged(&session, Some(0));
        go(&anchor, &waiter);
        let floor = anchor.clone();
        let retirer = thread::spawn(move || {
            let floor = &floor.shared().floor;
            floor.node.close();
            floor.stop_all(Cause::Retired, |_, _| true);
        });
        drop_front(call);
        retirer.join().expect("no panic");
        assert!(matches!(step(&waiter), Step::Left | Step::Returned), "{:?}", step(&waiter));
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

#[test]
fn a_passed_unit_meets_the_swap_of_the_epoch() {
    check("line::a_passed_unit_meets_the_swap_of_the_epoch", Bound::Preemptions(2), || {
        let anchor = model::lay(4, 4, 1);
        let session = model::open(&anchor);
        let call = started(&session, Some(0));
        let waiter = staged(&session, Some(0));
        go(&anchor, &waiter);
        let other = anchor.clone();
        let rotator = thread::spawn(move || {
            let floor = &other.shared().floor;
            floor.providers[0].swap_tag(1, 2).expect("it is current");
            floor.line.look_again(floor);
            floor.stop_all(Cause::Epoch, |operation, state| {
                state.step() != Step::Started && operation.request().is_some_and(|request| request.tag() == 1)
            });
        });
        drop_front(call);
        rotator.join().expect("no panic");
        assert!(matches!(step(&waiter), Step::Left | Step::Returned), "{:?}", step(&waiter));
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

/// A waiter comes with a seat (one step for both), parks and is granted what a call leaves: it is woken, or sees the grant.
#[test]
fn a_waiter_that_comes_with_a_seat_is_woken() {
    check("line::a_waiter_that_comes_with_a_seat_is_woken", BOUND, || {
        let anchor = model::lay(4, 4, 1);
        let session = model::open(&anchor);
        let call = started(&session, Some(0));
        let waiter = staged(&session, Some(0));
        let ender = thread::spawn(move || drop_front(call));
        let (floor, mut seat) = (&anchor.shared().floor, None);
        floor.line.come(floor, &waiter, ALL_CELLS, &mut seat);
        let mut seat = seat.expect("nobody sits there");
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let parked = waiter.park(&mut seat, &woken.clone().into(), |bits| State(bits).step() == Step::Queued);
        ender.join().expect("no panic");
        assert_granted(&waiter);
        assert_eq!(woken.0.load(Relaxed), usize::from(parked == Park::Parked));
        waiter.release(seat);
        drop_front(waiter);
        assert_eq!(Arc::strong_count(&woken), 1);
        model::assert_zero(&anchor);
    });
}

/// Counts its wakes. Not a meeting point: it is looked at when the threads are gone.
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}
