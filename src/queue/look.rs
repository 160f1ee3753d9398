//! The instant of somebody's next look, which others bring forward.
//!
//! * F1. Whoever looks first forgets what was planned, then steps on the words that others step on before they plan, then looks:
//!   it sees what they did, or they see the plan forgotten and plan anew.

use super::keeper::NEVER;
use crate::sync::atomic::AtomicU64;
use crate::sync::order;

/// When to look next: nanoseconds since the node's base, or [`NEVER`].
#[derive(Debug)]
pub struct NextLook(AtomicU64);

impl NextLook {
    /// Never.
    pub fn new() -> NextLook {
        NextLook(AtomicU64::new(NEVER))
    }

    /// When.
    pub fn at(&self) -> u64 {
        self.0.load(order::OBSERVE)
    }

    /// At `instant` or before. `true`: that is earlier than it was, so wake who looks. A load if it is not, as nearly always.
    ///
    /// After a step on a word that the looker steps on too (F1).
    #[inline]
    #[must_use]
    pub fn at_most(&self, instant: u64) -> bool {
        self.0.load(order::COUNT) > instant && self.step_to(instant)
    }

    /// The same for who has stepped on nothing before: this step meets the one by which the plan is forgotten.
    #[must_use]
    pub fn step_to(&self, instant: u64) -> bool {
        self.0.fetch_min(instant, order::STEP) > instant
    }

    /// The look begins: what was planned is forgotten.
    pub fn forget(&self) {
        self.0.swap(NEVER, order::STEP);
    }
}

impl Default for NextLook {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_brought_forward_and_never_put_off() {
        let next = NextLook::new();
        assert_eq!(next.at(), NEVER);
        assert!(next.at_most(9) && next.step_to(8) && next.at_most(7));
        for (instant, later) in [(7, 7), (8, 7), (NEVER, 7)] {
            assert!(!next.at_most(instant) && !next.step_to(instant), "{instant} is not earlier");
            assert_eq!(next.at(), later);
        }
        next.forget();
        assert_eq!(next.at(), NEVER);
    }
}
