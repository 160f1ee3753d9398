//! Models of the park cell: `mem::park`, invariants P1 to P6. loom sees every access to a cell, so two that touch one at
//! the same time fail the model, whatever they read.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};

use latent_capabilities::model::mem::arena::{Anchor, Bits, Ending, Lease, Nest, Occupant, Root, RootPin};
use latent_capabilities::model::mem::park::{ALL, Park, Wakers};
use loom::thread;
use loom_tests::{Bound, check, check_few};

#[derive(Default)]
struct Session;

impl Occupant for Session {
    type Pin = RootPin<Session, Nest<Call>>;

    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

#[derive(Default)]
struct Call;

impl Occupant for Call {
    type Pin = Lease<Session>;

    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

fn call() -> (Anchor<Session, Nest<Call>>, Lease<Call>) {
    let root = Root::new(1, Nest::new(1));
    let session = root.take(1, |_: &Session| {}).expect("free");
    let call = Nest::<Call>::take(session, |nest| nest).expect("free");
    (root, call)
}

/// Counts its wakes, outside of the model's eyes.
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Counter {
    fn new() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self(AtomicUsize::new(0)));
        (counter.clone(), counter.into())
    }

    fn woken(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// The change that is waited for: it sets the lowest bit of the occupant.
fn change(call: &Lease<Call>) {
    let (.., mut wakers) = call.word().update_and_wake(|bits| Some(bits.with(1)), ALL).expect("a step");
    wakers.wake_all();
}

fn waiting(bits: Bits) -> bool {
    !bits.has(1)
}

/// Once all is over: no clone of the waker is left anywhere.
fn nothing_left(counter: &Arc<Counter>, waker: Waker) {
    drop(waker);
    assert_eq!(Arc::strong_count(counter), 1, "a waker was leaked");
}

/// P2, P4: whoever is parked is woken once; whoever is not saw the change.
#[test]
fn park_vs_change() {
    check("park_vs_change", Bound::Complete, || {
        let (_root, call) = call();
        let (counter, waker) = Counter::new();
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        let thread = thread::spawn(move || change(&changer));
        let parked = call.park(&mut seat, &waker, waiting);
        thread.join().unwrap();
        match parked {
            Park::Parked => assert_eq!(counter.woken(), 1),
            Park::Changed(bits) => assert!(bits.has(1) && counter.woken() == 0),
        }
        call.release(seat);
        drop(call);
        nothing_left(&counter, waker);
    });
}

/// P1, P3: another waker replaces the first while a wake may be taking it. The one that stands last is woken.
#[test]
fn replace_waker() {
    check("replace_waker", Bound::Complete, || {
        let (_root, call) = call();
        let ((first, one), (second, two)) = (Counter::new(), Counter::new());
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        let thread = thread::spawn(move || change(&changer));
        let parked_first = call.park(&mut seat, &one, waiting) == Park::Parked;
        let parked_second = parked_first && call.park(&mut seat, &two, waiting) == Park::Parked;
        thread.join().unwrap();
        if parked_second {
            assert_eq!(second.woken(), 1);
            assert_eq!(first.woken(), 0, "its waker was replaced before the change came");
        } else if parked_first {
            assert!(first.woken() <= 1 && second.woken() == 0);
        }
        call.release(seat);
        drop(call);
        nothing_left(&first, one);
        nothing_left(&second, two);
    });
}

/// P1, P2: the same waker parks again, which reads the cell while a wake may be moving it out.
#[test]
fn park_again_with_an_equal_waker() {
    check("park_again_with_an_equal_waker", Bound::Complete, || {
        let (_root, call) = call();
        let (counter, waker) = Counter::new();
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        let thread = thread::spawn(move || change(&changer));
        let first = call.park(&mut seat, &waker, waiting);
        let second = call.park(&mut seat, &waker, waiting);
        thread.join().unwrap();
        if second == Park::Parked {
            assert_eq!((first, counter.woken()), (Park::Parked, 1));
        }
        call.release(seat);
        drop(call);
        nothing_left(&counter, waker);
    });
}

/// P3, P4: what is waited for comes and goes. The waiter, polled for another reason, takes it and parks again while the
/// wake of the first change is still moving the waker out.
#[test]
fn park_again_vs_wake() {
    check("park_again_vs_wake", Bound::Complete, || {
        let (_root, call) = call();
        let (counter, waker) = Counter::new();
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        assert_eq!(call.park(&mut seat, &waker, waiting), Park::Parked);
        let thread = thread::spawn(move || change(&changer));
        // Polled: has it come?
        if !waiting(call.word().load()) {
            call.word().clear(1);
            if call.park(&mut seat, &waker, waiting) == Park::Parked {
                thread.join().unwrap();
                // By the first change, and by itself if it met the wake; the second change did not come yet.
                let before = counter.woken();
                assert!((1..=2).contains(&before));
                let was_parked = call.word().load().is_parked(0);
                change(&call);
                assert_eq!(counter.woken(), before + usize::from(was_parked));
                assert!(was_parked || before == 2, "parked means owed");
            }
        } else {
            thread.join().unwrap();
            assert_eq!(counter.woken(), 1);
        }
        call.release(seat);
        drop(call);
        nothing_left(&counter, waker);
    });
}

/// One change wakes two waiters at two cells.
#[test]
fn park_vs_wake_two_cells() {
    check("park_vs_wake_two_cells", Bound::Preemptions(3), || {
        let (_root, call) = call();
        let ((first, one), (second, two)) = (Counter::new(), Counter::new());
        let (changer, other) = (call.duplicate(), call.duplicate());
        let threads = thread::spawn(move || {
            let mut seat = other.claim(1).expect("free");
            let parked = other.park(&mut seat, &two, waiting) == Park::Parked;
            (parked, other, seat, two)
        });
        let changing = thread::spawn(move || change(&changer));
        let mut seat = call.claim(0).expect("free");
        let parked = call.park(&mut seat, &one, waiting) == Park::Parked;
        let (their_parked, other, their_seat, two) = threads.join().unwrap();
        changing.join().unwrap();
        assert_eq!((first.woken(), second.woken()), (usize::from(parked), usize::from(their_parked)));
        call.release(seat);
        other.release(their_seat);
        drop((call, other));
        nothing_left(&first, one);
        nothing_left(&second, two);
    });
}

/// P1: two threads want the same cell; one has it at a time, and the other may have it afterwards.
#[test]
fn claim_by_two() {
    check("claim_by_two", Bound::Complete, || {
        let (_root, call) = call();
        let (counter, waker) = Counter::new();
        let visit = |call: &Lease<Call>, waker: &Waker| match call.claim(0) {
            Some(mut seat) => {
                assert_eq!(call.park(&mut seat, waker, waiting), Park::Parked);
                call.release(seat);
                true
            }
            None => false,
        };
        let (other, theirs) = (call.duplicate(), waker.clone());
        let thread = thread::spawn(move || visit(&other, &theirs));
        let mine = visit(&call, &waker);
        assert!(thread.join().unwrap() || mine);
        drop(call);
        assert_eq!(counter.woken(), 0);
        nothing_left(&counter, waker);
    });
}

/// P1: one of two claims its cell by a step that does something else, too.
#[test]
fn claim_by_a_step_and_alone() {
    check("claim_by_a_step_and_alone", Bound::Complete, || {
        let (_root, call) = call();
        let (counter, waker) = Counter::new();
        let (other, theirs) = (call.duplicate(), waker.clone());
        let thread = thread::spawn(move || {
            let (_, seat) = other.step_and_claim(|bits| Some(bits.with(2)), 0b0001).expect("a step");
            let Some(mut seat) = seat else { return false };
            assert_eq!(other.park(&mut seat, &theirs, waiting), Park::Parked);
            other.release(seat);
            true
        });
        let mine = match call.claim(0) {
            Some(mut seat) => {
                assert_eq!(call.park(&mut seat, &waker, waiting), Park::Parked);
                call.release(seat);
                true
            }
            None => false,
        };
        assert!(thread.join().unwrap() || mine);
        assert!(call.word().load().has(2), "seat or not, the step was taken");
        drop(call);
        assert_eq!(counter.woken(), 0);
        nothing_left(&counter, waker);
    });
}

/// P1, P3: the waiter goes while a wake takes its waker; the next to claim the cell must not write under the wake.
#[test]
fn release_vs_wake_vs_next_claim() {
    check("release_vs_wake_vs_next_claim", Bound::Complete, || {
        let (_root, call) = call();
        let ((first, one), (second, two)) = (Counter::new(), Counter::new());
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        assert_eq!(call.park(&mut seat, &one, |_| true), Park::Parked);
        let thread = thread::spawn(move || change(&changer));
        call.release(seat);
        let mut next = call.claim(0).expect("released");
        let parked = call.park(&mut next, &two, waiting);
        thread.join().unwrap();
        if parked == Park::Parked {
            assert_eq!((first.woken(), second.woken()), (0, 1), "the change came after it parked");
        } else {
            assert!(first.woken() <= 1 && second.woken() == 0);
        }
        call.release(next);
        drop(call);
        nothing_left(&first, one);
        nothing_left(&second, two);
    });
}

/// A waiter gives up while the change comes: unpark says whose the waker was.
#[test]
fn unpark_vs_change() {
    check("unpark_vs_change", Bound::Complete, || {
        let (_root, call) = call();
        let (counter, waker) = Counter::new();
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        assert_eq!(call.park(&mut seat, &waker, waiting), Park::Parked);
        let thread = thread::spawn(move || change(&changer));
        let mine = call.unpark(&mut seat);
        thread.join().unwrap();
        assert_eq!(counter.woken(), usize::from(!mine));
        call.release(seat);
        drop(call);
        nothing_left(&counter, waker);
    });
}

/// P5: a forgotten seat: the last lease goes after the wake, or wakes the waiter itself.
#[test]
fn forgotten_seat_vs_change() {
    check_few("forgotten_seat_vs_change", "a wake, and a drop of one step", Bound::Complete, || {
        let (root, call) = call();
        let (counter, waker) = Counter::new();
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        assert_eq!(call.park(&mut seat, &waker, waiting), Park::Parked);
        let thread = thread::spawn(move || change(&changer));
        drop(call);
        thread.join().unwrap();
        assert_eq!(counter.woken(), 1);
        let session = root.take(1, |_| {}).expect("free");
        let next = Nest::<Call>::take(session, |nest| nest).expect("free");
        assert!(next.claim(0).is_some());
        drop(next);
        nothing_left(&counter, waker);
    });
}

/// The line's step from outside: it takes the waker and a lease, or finds the waiter gone.
#[test]
fn step_from_outside_vs_leaving_waiter() {
    check("step_from_outside_vs_leaving_waiter", Bound::Complete, || {
        let (root, call) = call();
        let (counter, waker) = Counter::new();
        let mut seat = call.claim(0).expect("free");
        assert_eq!(call.park(&mut seat, &waker, waiting), Park::Parked);
        let line = root.clone();
        let thread = thread::spawn(move || match line.shared().step(0, |bits| Some(bits.with(1)), ALL) {
            Ok(stepped) => usize::from(!stepped.wakers.is_empty()),
            Err(bits) => {
                assert_eq!(bits.leases(), 0);
                0
            }
        });
        call.release(seat);
        drop(call);
        let took = thread.join().unwrap();
        assert_eq!(counter.woken(), took);
        nothing_left(&counter, waker);
    });
}

/// P1, P3, P4: the same, and the next waiter waits for something else, so it meets the wake and must not write under it.
#[test]
fn release_vs_wake_vs_other_waiter() {
    check("release_vs_wake_vs_other_waiter", Bound::Complete, || {
        let (_root, call) = call();
        let ((first, one), (second, two)) = (Counter::new(), Counter::new());
        let changer = call.duplicate();
        let mut seat = call.claim(0).expect("free");
        assert_eq!(call.park(&mut seat, &one, |_| true), Park::Parked);
        let thread = thread::spawn(move || change(&changer));
        call.release(seat);
        let mut next = call.claim(0).expect("released");
        assert_eq!(call.park(&mut next, &two, |bits| !bits.has(2)), Park::Parked);
        thread.join().unwrap();
        assert!(first.woken() <= 1 && second.woken() <= 1);
        let is_parked = call.word().load().is_parked(0);
        assert_eq!(second.woken(), usize::from(!is_parked), "parked means owed");
        call.release(next);
        drop(call);
        nothing_left(&first, one);
        nothing_left(&second, two);
    });
}

/// P2, P5: the line wakes by its hold, without a lease, while the last lease goes and leaves its waker behind: the waker is
/// taken once, by one of them.
#[test]
fn wake_under_hold_vs_last_lease() {
    for lets_go in [false, true] {
        let name = if lets_go {
            "wake_under_hold_vs_last_lease_letting_go"
        } else {
            "wake_under_hold_vs_last_lease"
        };
        check(name, Bound::Complete, move || {
            let (root, call) = call();
            let (counter, waker) = Counter::new();
            let mut seat = call.claim(0).expect("free");
            assert_eq!(call.park(&mut seat, &waker, waiting), Park::Parked);
            call.word().update(|bits| Some(bits.with_held(true))).expect("a step");
            let line = root.clone();
            let thread = thread::spawn(move || {
                let wake = |bits: Bits| Some(bits.with(1).with_held(!lets_go));
                let mut woken = Wakers::new();
                let stepped = line.shared().step_held_and_wake(0, wake, ALL, &mut woken).expect("a step");
                woken.wake_all();
                stepped.freed
            });
            drop(call);
            let freed = thread.join().unwrap();
            assert_eq!(counter.woken(), 1);
            if !lets_go {
                assert!(!freed && root.shared().release_hold(0, 0));
            }
            let session = root.take(1, |_| {}).expect("free");
            let next = Nest::<Call>::take(session, |nest| nest).expect("given back");
            assert_eq!((next.incarnation(), next.word().load().leases()), (1, 1));
            assert!(next.claim(0).is_some());
            drop(next);
            nothing_left(&counter, waker);
        });
    }
}

/// P1, P3: the line wakes by its hold while the waiter parks again or gives up.
#[test]
fn wake_under_hold_vs_waiter() {
    check("wake_under_hold_vs_waiter", Bound::Complete, || {
        let (root, call) = call();
        let ((first, one), (second, two)) = (Counter::new(), Counter::new());
        let mut seat = call.claim(0).expect("free");
        assert_eq!(call.park(&mut seat, &one, waiting), Park::Parked);
        call.word().update(|bits| Some(bits.with_held(true))).expect("a step");
        let line = root.clone();
        let thread = thread::spawn(move || {
            let wake = |bits: Bits| Some(bits.with(1).with_held(false));
            let mut woken = Wakers::new();
            line.shared().step_held_and_wake(0, wake, ALL, &mut woken).expect("a step");
            woken.wake_all();
        });
        let parked = call.park(&mut seat, &two, waiting) == Park::Parked;
        thread.join().unwrap();
        assert_eq!(second.woken(), usize::from(parked));
        assert!(first.woken() <= 1);
        call.release(seat);
        drop(call);
        nothing_left(&first, one);
        nothing_left(&second, two);
    });
}
