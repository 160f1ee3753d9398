//! Models of several who wait in line at once: `queue::line` and `queue::select`, library invariants 5 (no loss), 6 (order) and
//! 7 (finality).
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};

use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::mem::park::Park;
use latent_capabilities::model::queue::model::{self, OperationLease, Session, admit, drop_front, step};
use latent_capabilities::model::queue::operation::{Cause, GRANT_CELL, State, Step};
use latent_capabilities::model::queue::wait::enter;
use loom::thread;
use loom_tests::{Bound, check};

type Ground = Anchor<Session, model::Ground>;

fn staged(session: &Lease<Session>, tenant: u16) -> OperationLease {
    admit(session, Some(tenant), false).expect("there is room for owners")
}

fn granted(session: &Lease<Session>, tenant: u16) -> OperationLease {
    admit(session, Some(tenant), true).expect("there is room to run")
}

fn go(anchor: &Ground, lease: &OperationLease) {
    enter(&anchor.shared().floor, lease);
}

/// Invariant 6: who stands in line already goes before who comes while the unit is given back, and the other one comes next.
#[test]
fn the_first_in_line_goes_first() {
    check("rotation::the_first_in_line_goes_first", Bound::Preemptions(2), || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let running = granted(&session, 0);
        let (first, second) = (staged(&session, 0), staged(&session, 0));
        go(&anchor, &first);
        let releaser = thread::spawn(move || drop_front(running));
        let newcomer = thread::spawn({
            let anchor = anchor.clone();
            move || {
                go(&anchor, &second);
                second
            }
        });
        let second = newcomer.join().expect("no panic");
        releaser.join().expect("no panic");
        assert_eq!((step(&first), step(&second)), (Step::Granted, Step::Queued));
        drop_front(first);
        assert_eq!(step(&second), Step::Granted);
        drop_front(second);
        model::assert_zero(&anchor);
    });
}

/// Invariant 5: two units are given back while one waits and one of another tenant enters the line. Both are granted. (With
/// both of them entering the search has 1.5 million executions; it ended at this bound, too.)
#[test]
fn two_releases_meet_two_waiters() {
    check("rotation::two_releases_meet_two_waiters", Bound::Preemptions(2), || {
        let anchor = model::lay(2, 4, 4);
        let session = model::open(&anchor);
        let running = [granted(&session, 0), granted(&session, 1)];
        let [first, second] = [staged(&session, 0), staged(&session, 1)];
        go(&anchor, &first);
        let releasers = running.map(|lease| thread::spawn(move || drop_front(lease)));
        go(&anchor, &second);
        for releaser in releasers {
            releaser.join().expect("no panic");
        }
        let both = (step(&first), step(&second));
        assert_eq!(both, (Step::Granted, Step::Granted), "an eligible waiter was forgotten");
        drop_front(first);
        drop_front(second);
        model::assert_zero(&anchor);
    });
}

struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Invariant 7: everything is retired while one waits already, with its waker parked, and another one is about to park. Both know
/// when it is over.
#[test]
fn a_retirement_wakes_all_who_wait() {
    check("rotation::a_retirement_wakes_all_who_wait", Bound::Preemptions(3), || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let running = granted(&session, 0);
        let (first, second) = (staged(&session, 0), staged(&session, 1));
        let park = |lease: &OperationLease| {
            let wakes = Arc::new(Counter(AtomicUsize::new(0)));
            let waker = Waker::from(wakes.clone());
            let mut seat = lease.claim(GRANT_CELL).expect("nobody sits there");
            let parked = lease.park(&mut seat, &waker, |bits| State(bits).step() == Step::Queued);
            (seat, parked == Park::Parked, wakes)
        };
        go(&anchor, &first);
        go(&anchor, &second);
        let (first_seat, sleeps, first_wakes) = park(&first);
        assert!(sleeps, "nothing grants it");
        let retirer = thread::spawn({
            let anchor = anchor.clone();
            move || {
                let floor = &anchor.shared().floor;
                floor.node.close();
                floor.stop_all(Cause::Retired, |_, _| true);
            }
        });
        let (second_seat, sleeps, second_wakes) = park(&second);
        retirer.join().expect("no panic");
        assert_eq!((step(&first), step(&second)), (Step::Left, Step::Left));
        assert_eq!(first_wakes.0.load(Relaxed), 1, "it sleeps on");
        assert!(!sleeps || second_wakes.0.load(Relaxed) == 1, "it sleeps on");
        first.release(first_seat);
        second.release(second_seat);
        for lease in [first, second, running] {
            drop_front(lease);
        }
        model::assert_zero(&anchor);
    });
}
