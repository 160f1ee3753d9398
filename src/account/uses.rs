//! A word of uses: how many are left of a permission that was given out by number, and whether one is active.
//!
//! ```text
//!  31        8 7      0
//! │  │ ACTIVE │  left │
//! ```
//!
//! * U1. `left` only goes down, by the step that lets a use begin: as many begin as were given, whoever asks.
//! * U2. Where uses come one at a time, ACTIVE is set by that same step and cleared by the end of the use: two are never
//!   active at once.

use crate::sync::atomic::AtomicU32;
use crate::sync::{Backoff, order};

const LEFT: u32 = 0xff;
const ACTIVE: u32 = 1 << 8;

/// Why a use did not begin. Nothing was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// None is left.
    Exhausted,
    /// One is active.
    Active,
}

/// What is left of a number of uses.
#[derive(Debug)]
pub struct UsesWord {
    word: AtomicU32,
}

impl UsesWord {
    /// So many uses, at most 255.
    pub fn new(uses: u32) -> UsesWord {
        UsesWord { word: AtomicU32::new(uses.min(LEFT)) }
    }

    fn step(&self, next: impl Fn(u32) -> Result<u32, Uses>) -> Result<(), Uses> {
        let mut backoff = Backoff::new();
        let mut word = self.word.load(order::OBSERVE);
        if planted!("use_without_a_step") {
            self.word.store(next(word)?, order::PUBLISH);
            return Ok(());
        }
        loop {
            match self.word.compare_exchange_weak(word, next(word)?, order::STEP, order::LOST) {
                Ok(_) => return Ok(()),
                Err(found) => word = found,
            }
            backoff.lost();
        }
    }

    /// Begins a use that others may go along with.
    ///
    /// # Errors
    ///
    /// `Exhausted`.
    pub fn take(&self) -> Result<(), Uses> {
        self.step(|word| if word & LEFT == 0 { Err(Uses::Exhausted) } else { Ok(word - 1) })
    }

    /// Begins a use that is alone.
    ///
    /// # Errors
    ///
    /// `Active`, or `Exhausted`.
    pub fn begin(&self) -> Result<(), Uses> {
        self.step(|word| match word {
            word if word & ACTIVE != 0 => Err(Uses::Active),
            word if word & LEFT == 0 => Err(Uses::Exhausted),
            word => Ok((word - 1) | ACTIVE),
        })
    }

    /// Ends the use that [`begin`](Self::begin) began.
    ///
    /// # Panics
    ///
    /// Broken accounting, if none was active.
    pub fn end(&self) {
        if self.word.fetch_and(!ACTIVE, order::STEP) & ACTIVE == 0 {
            crate::broken::accounting_in_drop("a use ended that had not begun");
        }
    }

    /// How many may still begin. An observation.
    pub fn left(&self) -> u32 {
        self.word.load(order::OBSERVE) & LEFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_begin_as_were_given_and_one_at_a_time() {
        let uses = UsesWord::new(2);
        uses.begin().unwrap();
        assert_eq!((uses.begin(), uses.left()), (Err(Uses::Active), 1), "a refusal uses nothing up");
        uses.end();
        uses.begin().unwrap();
        assert_eq!(uses.begin(), Err(Uses::Active));
        uses.end();
        assert_eq!((uses.begin(), uses.left()), (Err(Uses::Exhausted), 0));
    }

    #[cfg(not(any(loom, miri)))]
    #[test]
    fn an_end_of_nothing_breaks_the_accounting() {
        crate::broken::in_a_process_of_its_own(
            "account::uses::tests::an_end_of_nothing_breaks_the_accounting",
            || {
                let uses = UsesWord::new(2);
                assert!(crate::foreign::foreign(|| uses.end()).is_err());
                assert_eq!(uses.left(), 2);
            },
        );
    }

    #[test]
    fn uses_that_go_along_with_each_other_are_counted_too() {
        let uses = UsesWord::new(16);
        for left in (0..16).rev() {
            uses.take().unwrap();
            assert_eq!(uses.left(), left);
        }
        assert_eq!(uses.take(), Err(Uses::Exhausted));
        assert_eq!(UsesWord::new(256).left(), 255);
    }
}
