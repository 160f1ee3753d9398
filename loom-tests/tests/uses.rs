//! Models of a permission that is used up by number: `account::uses`, invariants U1 and U2.
#![cfg(loom)]

use latent_capabilities::model::account::uses::{Uses, UsesWord};
use latent_capabilities::model::sync::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Complete;

/// A permission, and a cell that one active use at a time may touch.
struct Permit {
    uses: UsesWord,
    used: UnsafeCell<u32>,
}

fn permit(uses: u32) -> Arc<Permit> {
    Arc::new(Permit { uses: UsesWord::new(uses), used: UnsafeCell::new(0) })
}

/// U1: the last use is begun by one of two, and the other learns that there is none.
#[test]
fn two_for_the_last_use() {
    check("uses::two_for_the_last_use", BOUND, || {
        let permit = permit(1);
        let other = thread::spawn({
            let permit = permit.clone();
            move || permit.uses.take()
        });
        let mine = permit.uses.take();
        let both = [mine, other.join().unwrap()];
        assert_eq!(both.iter().filter(|use_| use_.is_ok()).count(), 1, "{both:?}");
        assert!(both.contains(&Err(Uses::Exhausted)), "{both:?}");
        assert_eq!(permit.uses.left(), 0);
    });
}

/// U1: three threads, two uses each at most, and three uses in all.
#[test]
fn as_many_begin_as_were_given() {
    check("uses::as_many_begin_as_were_given", Bound::Preemptions(3), || {
        let permit = permit(3);
        let take = |permit: &Permit| (0..2).filter(|_| permit.uses.take().is_ok()).count();
        let others = [(); 2].map(|()| {
            let permit = permit.clone();
            thread::spawn(move || take(&permit))
        });
        let mine = take(&permit);
        let sum = mine + others.into_iter().map(|other| other.join().unwrap()).sum::<usize>();
        assert_eq!((sum, permit.uses.left()), (3, 0));
    });
}

/// U2: uses that come one at a time are never active at once, and each has seen all of the one before. A refusal says the truth:
/// one is active, or none is left.
#[test]
fn one_at_a_time() {
    check("uses::one_at_a_time", BOUND, || {
        let permit = permit(2);
        let use_it = |permit: &Permit| {
            let begun = permit.uses.begin();
            if begun.is_ok() {
                permit.used.with_mut(|_| {});
                permit.uses.end();
            }
            begun
        };
        let other = thread::spawn({
            let permit = permit.clone();
            move || [use_it(&permit), use_it(&permit)]
        });
        let mine = use_it(&permit);
        let theirs = other.join().unwrap();
        let begun = usize::from(mine.is_ok()) + theirs.iter().filter(|use_| use_.is_ok()).count();
        assert_eq!(permit.uses.left() as usize, 2 - begun.min(2));
        assert!(begun <= 2);
        if mine == Err(Uses::Exhausted) {
            assert_eq!(begun, 2, "it was refused as if both were used up");
        }
        assert!(begun == 2 || mine == Err(Uses::Active) || theirs.contains(&Err(Uses::Active)));
    });
}
