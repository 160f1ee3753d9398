//! Models of credits (`queue::credit`, C1 to C5, and the cells of `mem::arena::stock`): what lies about is charged once, it
//! keeps nobody waiting, and nobody is refused for it.
//!
//! Every model ends with the words as they are when nothing lies about: all zero.
#![cfg(loom)]

use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::queue::model::{self, OperationLease, Session, admit, drop_front, step};
use latent_capabilities::model::queue::operation::{State, Step};
use latent_capabilities::model::queue::wait::enter;
use loom::thread;
use loom_tests::{Bound, check};

type Ground = Anchor<Session, model::Ground>;

const BOUND: Bound = Bound::Preemptions(3);

fn staged(session: &Lease<Session>, tenant: u16) -> OperationLease {
    admit(session, Some(tenant), false).expect("there is room for owners")
}

/// Only what has started leaves a credit: a grant that goes back goes to the words.
fn start(lease: OperationLease) -> OperationLease {
    assert!(lease.word().update(|bits| State(bits).started()).is_ok(), "nobody stopped it");
    lease
}

fn started(session: &Lease<Session>, tenant: u16) -> OperationLease {
    start(admit(session, Some(tenant), true).expect("there is room to run"))
}

fn go(anchor: &Ground, lease: &OperationLease) {
    enter(&anchor.shared().floor, lease);
}

/// A node with one running unit, which lends credits.
fn lay() -> (Ground, Lease<Session>) {
    let anchor = model::lay_lending(1, 4, 4);
    let session = model::open(&anchor);
    (anchor, session)
}

/// C2, C5: who ended before is out of the way, whatever was recalled meanwhile.
#[test]
fn ending_meets_a_refusal() {
    check("credits::ending_meets_a_refusal", BOUND, || {
        let (anchor, session) = lay();
        let running = started(&session, 0);
        let ender = thread::spawn(move || drop_front(running));
        // While the other one runs this may be refused.
        let early = admit(&session, Some(1), true);
        ender.join().expect("no panic");
        match early {
            Some(early) => drop_front(start(early)),
            None => drop_front(started(&session, 1)),
        }
        model::assert_zero(&anchor);
    });
}

/// C1: what lies about is taken by one, or swept.
#[test]
fn taking_meets_a_recall() {
    check("credits::taking_meets_a_recall", BOUND, || {
        let (anchor, session) = lay();
        drop_front(started(&session, 0));
        let other = anchor.clone();
        let counter = thread::spawn(move || {
            let floor = &other.shared().floor;
            let _exactly = floor.exactly();
            let node = floor.node.snapshot();
            assert_eq!(node.owners, node.running, "a slot and its unit go together");
            assert!(node.owners <= 1);
        });
        // What is just being swept counts as used.
        let early = admit(&session, Some(0), true);
        counter.join().expect("no panic");
        match early {
            Some(early) => drop_front(start(early)),
            None => drop_front(started(&session, 0)),
        }
        model::assert_zero(&anchor);
    });
}

/// C1: a pending unit goes for a running one, or both are the words' own.
#[test]
fn trading_meets_a_recall() {
    check("credits::trading_meets_a_recall", BOUND, || {
        let (anchor, session) = lay();
        let waits = staged(&session, 0);
        drop_front(started(&session, 0));
        let other = anchor.clone();
        let counter = thread::spawn(move || {
            let floor = &other.shared().floor;
            let _exactly = floor.exactly();
            let node = floor.node.snapshot();
            assert_eq!(node.owners, 1);
            // The turn takes the one before it gives the other.
            assert!(matches!(node.queued + node.running, 1 | 2), "it waits or it runs: {node:?}");
        });
        go(&anchor, &waits);
        counter.join().expect("no panic");
        assert_eq!(step(&waits), Step::Granted);
        drop_front(start(waits));
        model::assert_zero(&anchor);
    });
}

/// C4: who queues is given what an operation leaves that ends at that moment.
#[test]
fn ending_meets_a_waiter() {
    check("credits::ending_meets_a_waiter", BOUND, || {
        let (anchor, session) = lay();
        let running = started(&session, 0);
        let waits = staged(&session, 1);
        let ender = thread::spawn(move || drop_front(running));
        go(&anchor, &waits);
        ender.join().expect("no panic");
        assert_eq!(step(&waits), Step::Granted, "an eligible waiter was forgotten");
        drop_front(start(waits));
        model::assert_zero(&anchor);
    });
}

/// C4: the same where credits were recalled, and are lent again by an end just before.
#[test]
fn lending_again_meets_a_waiter() {
    check("credits::lending_again_meets_a_waiter", Bound::Preemptions(2), || {
        let (anchor, session) = lay();
        let (before, running) = (staged(&session, 0), started(&session, 0));
        drop(anchor.shared().floor.exactly());
        let ender = thread::spawn(move || {
            drop_front(before);
            drop_front(running);
        });
        let waits = staged(&session, 1);
        go(&anchor, &waits);
        ender.join().expect("no panic");
        assert_eq!(step(&waits), Step::Granted, "an eligible waiter was forgotten");
        drop_front(start(waits));
        model::assert_zero(&anchor);
    });
}

/// C3: one recalls to count and goes, one to be admitted, and the end between them may lend again.
#[test]
fn two_recalls_meet_an_ending() {
    check("credits::two_recalls_meet_an_ending", Bound::Preemptions(1), || {
        let (anchor, session) = lay();
        let running = started(&session, 0);
        let other = anchor.clone();
        let counter = thread::spawn(move || drop(other.shared().floor.exactly()));
        let ender = thread::spawn(move || drop_front(running));
        let early = admit(&session, Some(1), true);
        counter.join().expect("no panic");
        ender.join().expect("no panic");
        match early {
            Some(early) => drop_front(start(early)),
            None => drop_front(started(&session, 1)),
        }
        model::assert_zero(&anchor);
    });
}
