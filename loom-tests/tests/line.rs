//! Models of the operation's word and of the line: `queue::operation` (O1 to O5), `queue::line` (L1 to L4), and the rows of
//! the meeting rule that meet there.
//!
//! Every model ends with the same two questions: does somebody wait while there is room for it, and is everything given
//! back once all are gone? There are no wakers in them, except where the wake is the question: that keeps them small.
#![cfg(loom)]

use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::mem::park::Park;
use latent_capabilities::model::queue::model::{self, OperationLease, Session, admit, drop_front, step};
use latent_capabilities::model::queue::operation::{Cause, GRANT_CELL, State, Step};
use latent_capabilities::model::queue::wait::enter;
use loom::thread;
use loom_tests::{Bound, check};
use std::task::Waker;

type Ground = Anchor<Session, model::Ground>;

const BOUND: Bound = Bound::Preemptions(3);

fn staged(session: &Lease<Session>, tenant: Option<u16>) -> OperationLease {
    admit(session, tenant, false).expect("there is room for owners")
}

fn granted(session: &Lease<Session>, tenant: Option<u16>) -> OperationLease {
    admit(session, tenant, true).expect("there is room to run")
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
