//! Models of the bit sets: `mem::bitset`, invariants S1 to S3. Under loom a set of more than 64 bits has a summary.
#![cfg(loom)]

use latent_capabilities::model::mem::bitset::BitSet;
use latent_capabilities::model::sync::{Arc, UnsafeCell};
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Preemptions(3);

fn set(bits: usize, members: &[usize]) -> Arc<BitSet> {
    let set = BitSet::new(bits);
    for &member in members {
        set.set(member);
    }
    Arc::new(set)
}

#[test]
fn take_lowest_two_takers() {
    check("bitset_two_takers", BOUND, || {
        let shared = set(64, &[1, 5]);
        let set = shared.clone();
        let other = thread::spawn(move || set.take_lowest());
        let mine = shared.take_lowest();
        let mut taken = [mine, other.join().unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [Some(1), Some(5)], "two bits, two takers");
        assert!(shared.is_empty());
    });
}

#[test]
fn set_vs_take() {
    check("bitset_set_vs_take", BOUND, || {
        let shared = set(64, &[3]);
        let set = shared.clone();
        let other = thread::spawn(move || (set.set(1), set.take_lowest()));
        let mine = shared.take_lowest();
        let (was, theirs) = other.join().unwrap();
        assert!(!was && mine.is_some() && theirs.is_some() && mine != theirs);
        assert_eq!(shared.count(), 0);
    });
}

/// A bit hands over what was written before it was set. The cell is loom's: a look at it that does not come after the
/// write fails the model.
#[test]
fn a_bit_hands_over() {
    check("bitset_hands_over", BOUND, || {
        let shared = Arc::new((BitSet::new(64), UnsafeCell::new(0)));
        let (give, take) = (shared.clone(), shared.clone());
        let giver = thread::spawn(move || {
            give.1.with_mut(|_| ());
            give.0.set(7);
        });
        let taker = thread::spawn(move || {
            let taken = take.0.take_lowest();
            if taken.is_some() {
                take.1.with_mut(|_| ());
            }
            taken
        });
        giver.join().unwrap();
        assert_eq!(taker.join().unwrap().is_some(), !shared.0.contains(7));
    });
}

/// Two setters of one word of a set with a summary. The second one then is the taker, and finds its own bit, whatever
/// the first one is about to do to the summary.
#[test]
fn a_set_bit_is_found_through_the_summary() {
    check("bitset_summary_two_setters", BOUND, || {
        let shared = set(128, &[]);
        let set = shared.clone();
        let other = thread::spawn(move || set.set(70));
        shared.set(71);
        let mut found = Vec::new();
        shared.drain(|bit| found.push(bit));
        assert!(found.contains(&71), "a bit that was set before was not found");
        other.join().unwrap();
        shared.drain(|bit| found.push(bit));
        found.sort_unstable();
        assert_eq!(found, [70, 71]);
    });
}

#[test]
fn a_setter_vs_the_one_taker_with_a_summary() {
    check("bitset_summary_set_vs_take", BOUND, || {
        let shared = set(128, &[70]);
        let set = shared.clone();
        let other = thread::spawn(move || {
            set.set(71);
            set.set(1);
        });
        let mut found: Vec<_> = shared.take_lowest().into_iter().chain(shared.take_lowest()).collect();
        other.join().unwrap();
        found.extend(std::iter::from_fn(|| shared.take_lowest()));
        found.sort_unstable();
        assert_eq!(found, [1, 70, 71]);
    });
}

/// A word that was emptied by a clear has its summary bit set still. The taker that finds it empty tidies up, while a
/// setter sees the summary bit and leaves it alone.
#[test]
fn a_setter_vs_a_taker_that_tidies_up() {
    check("bitset_summary_tidied", BOUND, || {
        let shared = set(128, &[70]);
        assert!(shared.clear(70));
        let set = shared.clone();
        let other = thread::spawn(move || set.set(71));
        let mut found = Vec::from_iter(shared.take_lowest());
        other.join().unwrap();
        found.extend(shared.take_lowest());
        assert_eq!(found, [71]);
    });
}
