//! Numbers that are spent: what is left of a budget, and what was spent of a permission.
//!
//! * BU1. A group of charges is taken whole, or what was taken of it is given back.
//! * BU2. What is left is at most what there was, and what is spent at most what is permitted, at every instant.
//!
//! Nothing but the number is asked of these words, so their order is that of a count.

use crate::sync::atomic::AtomicU64;
use crate::sync::{Backoff, order};

/// What a word says of a budget that has no limit.
pub const UNLIMITED: u64 = u64::MAX;

/// Takes each amount from its budget, or nothing (BU1).
///
/// # Errors
///
/// Which budget does not cover its amount.
#[inline]
pub fn take_all<const N: usize>(left: &[AtomicU64; N], amounts: &[u64; N]) -> Result<(), usize> {
    for at in 0..N {
        refusable!(None, {
            give_before(left, amounts, at);
            at
        });
        if !take(&left[at], amounts[at]) {
            give_before(left, amounts, at);
            return Err(at);
        }
    }
    Ok(())
}

/// Gives the first `end` amounts of a group back.
#[cold]
pub fn give_before<const N: usize>(left: &[AtomicU64; N], amounts: &[u64; N], end: usize) {
    for (word, &amount) in left.iter().zip(amounts).take(end) {
        // An unlimited budget was not written. A limited one never reads as unlimited: it only ever lost.
        if amount > 0 && word.load(order::COUNT) != UNLIMITED {
            word.fetch_add(amount, order::COUNT);
        }
    }
}

/// Takes `amount` from one budget, if it covers it.
#[inline]
fn take(word: &AtomicU64, amount: u64) -> bool {
    if amount == 0 {
        return true;
    }
    let mut backoff = Backoff::new();
    let mut left = word.load(order::COUNT);
    loop {
        if left == UNLIMITED {
            return true;
        }
        let Some(rest) = left.checked_sub(amount) else { return false };
        match word.compare_exchange_weak(left, rest, order::COUNT, order::COUNT) {
            Ok(_) => return true,
            Err(found) => left = found,
        }
        backoff.lost();
    }
}

/// A cumulative permission has less left than was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent;

/// Spends `amount` of a cumulative permission, which only grows towards its limit; or nothing (BU2).
///
/// # Errors
///
/// `Spent`.
pub fn spend(spent: &AtomicU64, limit: u64, amount: u64) -> Result<(), Spent> {
    refusable!(None, Spent);
    let mut backoff = Backoff::new();
    let mut before = spent.load(order::COUNT);
    loop {
        // Never above the limit, so the difference exists.
        if amount > limit - before {
            return Err(Spent);
        }
        if planted!("spent_after_the_look") {
            spent.fetch_add(amount, order::COUNT);
            return Ok(());
        }
        match spent.compare_exchange_weak(before, before + amount, order::COUNT, order::COUNT) {
            Ok(_) => return Ok(()),
            Err(found) => before = found,
        }
        backoff.lost();
    }
}
