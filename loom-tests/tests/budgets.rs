//! Models of numbers that are spent: `account::budget`, invariants BU1 and BU2, which the session's ledger (L1, L2) and the
//! totals of streams and transfers stand on.
#![cfg(loom)]

use latent_capabilities::model::account::budget::{give_before, spend, take_all};
use latent_capabilities::model::sync::atomic::AtomicU64;
use latent_capabilities::model::sync::order;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

fn budgets<const N: usize>(left: [u64; N]) -> Arc<[AtomicU64; N]> {
    Arc::new(left.map(AtomicU64::new))
}

fn left<const N: usize>(budgets: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|at| budgets[at].load(order::COUNT))
}

/// BU1: two costs that one budget covers only once. One of them is accepted, and the other leaves nothing behind.
#[test]
fn two_reservations_of_three_budgets() {
    check("budgets::two_reservations_of_three_budgets", Bound::Complete, || {
        let budgets = budgets([2, 1, 2]);
        let other = thread::spawn({
            let budgets = budgets.clone();
            move || take_all(&budgets, &[1, 1, 0])
        });
        let mine = take_all(&budgets, &[1, 1, 2]);
        let other = other.join().unwrap();
        assert!(matches!((mine, other), (Ok(()), Err(1)) | (Err(1), Ok(()))), "{mine:?} {other:?}");
        assert_eq!(left(&budgets), if mine.is_ok() { [1, 0, 0] } else { [1, 0, 2] });
    });
}

/// BU1: a cost whose last budget does not cover it. What it took counts as spent until it is given back, so the other one may be
/// refused; afterwards nothing is missing.
#[test]
fn a_refused_cost_leaves_nothing_behind() {
    check("budgets::a_refused_cost_leaves_nothing_behind", Bound::Complete, || {
        let budgets = budgets([2, 1, 1]);
        let other = thread::spawn({
            let budgets = budgets.clone();
            move || take_all(&budgets, &[1, 1, 0])
        });
        let mine = take_all(&budgets, &[1, 1, 2]);
        let other = other.join().unwrap();
        assert!(matches!((mine, other), (Err(2), Ok(()) | Err(1)) | (Err(1), Ok(()))), "{mine:?} {other:?}");
        assert_eq!(left(&budgets), if other.is_ok() { [1, 0, 1] } else { [2, 1, 1] });
    });
}

/// BU2: a reservation that did not become a call is given back while others reserve and look.
#[test]
fn a_refund_meets_a_reservation() {
    check("budgets::a_refund_meets_a_reservation", Bound::Complete, || {
        let budgets = budgets([3]);
        assert_eq!(take_all(&budgets, &[2]), Ok(()));
        let giver = thread::spawn({
            let budgets = budgets.clone();
            move || give_before(&budgets, &[2], 1)
        });
        let watcher = thread::spawn({
            let budgets = budgets.clone();
            move || assert!(left(&budgets)[0] <= 3, "more than there was")
        });
        let taken = take_all(&budgets, &[2]);
        giver.join().unwrap();
        watcher.join().unwrap();
        assert_eq!(left(&budgets), [if taken.is_ok() { 1 } else { 3 }]);
    });
}

/// BU2: three chunks of two bytes for a permission of five, while somebody looks.
#[test]
fn two_spend_one_permission() {
    check("budgets::two_spend_one_permission", Bound::Complete, || {
        let spent = Arc::new(AtomicU64::new(0));
        let other = thread::spawn({
            let spent = spent.clone();
            move || [spend(&spent, 5, 2).is_ok(), spend(&spent, 5, 2).is_ok()]
        });
        let mine = spend(&spent, 5, 2).is_ok();
        let seen = spent.load(order::COUNT);
        assert!(seen <= 5, "{seen} of 5");
        let other = other.join().unwrap();
        let accepted = [mine, other[0], other[1]].into_iter().filter(|spent| *spent).count() as u64;
        assert_eq!((accepted, spent.load(order::COUNT)), (2, 4));
        assert!(spend(&spent, 5, 1).is_ok());
        assert!(spend(&spent, 5, 1).is_err());
    });
}
