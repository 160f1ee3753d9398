//! The park cell by one thread. Its races are searched by the models in `loom-tests/tests/park.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};

use super::*;
use crate::foreign::foreign;
use crate::mem::arena::{Anchor, Ending, Root, RootPin};
use crate::sync::Zero;

#[derive(Zero)]
struct Call;

impl Occupant for Call {
    type Pin = RootPin<Call, ()>;

    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    (woken.clone(), woken.into())
}

fn call() -> (Anchor<Call, ()>, Lease<Call>) {
    let root = Root::new(2, ());
    let lease = root.take(2, |_| {}).expect("a free slot");
    (root, lease)
}

/// What the tests wait for: the occupant's lowest bit.
fn waiting(bits: Bits) -> bool {
    !bits.has(1)
}

fn change(lease: &Lease<Call>) -> Wakers {
    lease.word().update_and_wake(|bits| Some(bits.with(1)), ALL).expect("a step").2
}

#[test]
fn a_cell_has_one_seat() {
    let (_root, lease) = call();
    let seat = lease.claim(0).expect("free");
    assert!(lease.claim(0).is_none() && lease.word().load().is_claimed(0));
    let others: Vec<_> = std::iter::from_fn(|| lease.claim_any(ALL)).collect();
    assert_eq!(others.iter().map(Seat::cell).collect::<Vec<_>>(), [1, 2, 3]);
    lease.release(seat);
    assert_eq!(lease.claim_any(ALL).map(|seat| seat.cell()), Some(0));
    assert!(foreign(|| lease.claim(CELLS)).is_err());
}

#[test]
fn a_step_claims_the_first_free_cell_or_none() {
    let (_root, lease) = call();
    let second = lease.claim(1).expect("free");
    let (before, seat) = lease.step_and_claim(|bits| Some(bits.with(8)), 0b1110).expect("a step");
    assert!(!before.has(8) && lease.word().load().has(8));
    assert_eq!(seat.as_ref().map(Seat::cell), Some(2));
    let (_, first) = lease.step_and_claim(|bits| Some(bits.without(8)), ALL).expect("a step");
    assert_eq!(first.as_ref().map(Seat::cell), Some(0));
    let (_, none) = lease.step_and_claim(|bits| Some(bits.with(8)), 0b0111).expect("a step");
    assert!(none.is_none() && lease.word().load().has(8), "the step is taken without a seat, too");
    assert!(lease.step_and_claim(|_| None, ALL).is_err() && !lease.word().load().is_claimed(3));
    for seat in [Some(second), seat, first].into_iter().flatten() {
        lease.release(seat);
    }
}

#[test]
fn a_change_takes_the_waker_and_wakes_it_later() {
    let (_root, lease) = call();
    let (woken, waker) = waker();
    let mut seat = lease.claim(2).expect("free");
    assert_eq!(lease.park(&mut seat, &waker, waiting), Park::Parked);
    assert!(lease.word().load().is_parked(2));
    let mut wakers = change(&lease);
    assert!(!lease.word().load().is_parked(2));
    assert_eq!((wakers.len(), woken.0.load(Relaxed)), (1, 0), "taken, not yet woken");
    wakers.wake_all();
    assert_eq!(woken.0.load(Relaxed), 1);
    assert!(matches!(lease.park(&mut seat, &waker, waiting), Park::Changed(bits) if bits.has(1)));
    assert!(!lease.unpark(&mut seat));
    lease.release(seat);
    drop(waker);
    assert_eq!(Arc::strong_count(&woken), 1, "no clone of the waker is left");
}

#[test]
fn only_the_named_cells_are_woken() {
    let (_root, lease) = call();
    let (woken, waker) = waker();
    let mut seat = lease.claim(1).expect("free");
    assert_eq!(lease.park(&mut seat, &waker, waiting), Park::Parked);
    let (_, _, wakers) = lease.word().update_and_wake(|bits| Some(bits.with(2)), 0b1101).expect("a step");
    assert!(wakers.is_empty() && lease.word().load().is_parked(1));
    assert!(lease.word().update_and_wake(|_| None, ALL).is_err(), "no step, no wake");
    assert!(lease.word().load().is_parked(1));
    drop(change(&lease));
    assert_eq!(woken.0.load(Relaxed), 1);
    lease.release(seat);
}

#[test]
fn an_equal_waker_stays_and_another_replaces_it() {
    let (_root, lease) = call();
    let ((first, one), (second, two)) = (waker(), waker());
    let mut seat = lease.claim(0).expect("free");
    assert_eq!(lease.park(&mut seat, &one, waiting), Park::Parked);
    assert_eq!(lease.park(&mut seat, &one, waiting), Park::Parked);
    assert_eq!(Arc::strong_count(&first), 3, "one in the cell");
    assert_eq!(lease.park(&mut seat, &two, waiting), Park::Parked);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 3));
    drop(change(&lease));
    assert_eq!((first.0.load(Relaxed), second.0.load(Relaxed)), (0, 1));
    lease.release(seat);
}

#[test]
fn what_has_come_without_a_wake_empties_the_cell() {
    let (_root, lease) = call();
    let (woken, waker) = waker();
    let mut seat = lease.claim(0).expect("free");
    assert_eq!(lease.park(&mut seat, &waker, waiting), Park::Parked);
    lease.word().set(1);
    assert!(matches!(lease.park(&mut seat, &waker, waiting), Park::Changed(_)));
    assert!(!lease.word().load().is_parked(0));
    assert_eq!(Arc::strong_count(&woken), 2);
    lease.release(seat);
}

#[test]
fn release_and_unpark_take_the_waker_back() {
    let (_root, lease) = call();
    let (woken, waker) = waker();
    let mut seat = lease.claim(0).expect("free");
    assert_eq!(lease.park(&mut seat, &waker, waiting), Park::Parked);
    assert!(lease.unpark(&mut seat));
    assert!(!lease.unpark(&mut seat));
    assert_eq!(lease.park(&mut seat, &waker, waiting), Park::Parked);
    lease.release(seat);
    assert_eq!((Arc::strong_count(&woken), woken.0.load(Relaxed)), (2, 0));
    assert_eq!(lease.word().load(), lease.word().load().with_user(0), "nothing is left in the word");
    assert!(!lease.word().load().is_claimed(0) && !lease.word().load().is_parked(0));
}

#[test]
fn a_forgotten_seat_is_woken_at_the_end() {
    let (root, lease) = call();
    let (woken, waker) = waker();
    let mut seat = lease.claim(3).expect("free");
    assert_eq!(lease.park(&mut seat, &waker, waiting), Park::Parked);
    drop(lease);
    assert_eq!((woken.0.load(Relaxed), Arc::strong_count(&woken)), (1, 2));
    let next = root.take(2, |_| {}).expect("free");
    assert_eq!((next.index(), next.incarnation()), (0, 1));
    assert!(!next.word().load().is_claimed(3));
    assert!(foreign(|| next.unpark(&mut seat)).is_err(), "the seat was another occupant's");
}

#[test]
fn a_seat_of_another_slot_is_refused() {
    let (root, lease) = call();
    let other = root.take(2, |_| {}).expect("free");
    let (_, elsewhere) = call();
    let mut seat = lease.claim(0).expect("free");
    let (_, waker) = waker();
    assert!(foreign(|| other.park(&mut seat, &waker, waiting)).is_err());
    assert!(foreign(|| elsewhere.unpark(&mut seat)).is_err(), "same index and incarnation, other arena");
    lease.release(seat);
}

#[test]
fn a_step_from_outside_wakes_too() {
    // `Nest::step` is `update_and_wake` for those without a lease; here its bits, through the pure functions.
    let bits = Bits(parked(0) | parked(2) | claimed(0) | claimed(2));
    let after = begin_taking(bits, 0b0110);
    assert_eq!(taken(bits, 0b0110), 0b0100);
    assert!(after.is_parked(0) && !after.is_parked(2) && after.0 & taking(2) != 0);
    assert_eq!(after.0 & (claimed(0) | claimed(2)), claimed(0) | claimed(2));
}
