//! Broken accounting: a word left its range, or a step was taken from a state in which it cannot happen.
//!
//! That is a bug of this library, never of its user. It is not saturated, wrapped or repaired. The first one sets a flag
//! for the whole process, which the ground reads: admission closes for good and no later snapshot is clean. Then it
//! panics, unless the thread is panicking already.

use std::sync::atomic::AtomicBool;

use crate::sync::order;

/// Set once, never cleared. A plain flag of `std`: it outlives every model, and nobody meets at it.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Whether any accounting of this process was ever found broken.
#[must_use]
pub fn is_broken() -> bool {
    BROKEN.load(order::OBSERVE)
}

/// Closes admission for good and panics. `what` names the invariant.
///
/// # Panics
///
/// Always.
#[cold]
#[inline(never)]
pub fn accounting(what: &'static str) -> ! {
    BROKEN.store(true, order::PUBLISH);
    panic!("broken accounting: {what}");
}

/// The same for a destructor: returns if the thread is panicking already, because a second panic would end the process.
/// The caller then leaves its step undone.
///
/// # Panics
///
/// Unless the thread is already panicking.
#[cold]
#[inline(never)]
pub fn accounting_in_drop(what: &'static str) {
    BROKEN.store(true, order::PUBLISH);
    if !std::thread::panicking() {
        panic!("broken accounting: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The flag is of the whole process, so a test that sets it would break the snapshots of other tests running beside
    // it. It is set in a process of its own, in `tests/`.
    #[test]
    fn nothing_is_broken_at_first() {
        assert!(!is_broken());
    }
}
