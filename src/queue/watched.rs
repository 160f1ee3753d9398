//! Which operations a stop of their session must reach: one bit each, by the index of the slot.
//!
//! * N1. A stop says so first, then looks at the bits by read-modify-writes; a waiter sets its operation's bit by one, then asks
//!   whether the session was stopped, then parks. One of them sees the other.
//! * N2. The bit is there before the operation's own word says WATCHED, so whoever finds that need not look for the bit.
//! * N3. The bit is cleared while the operation still has its slot: the next one in it may be of the same session.

use super::floor::{Floor, OPERATIONS, Tenure};
use super::operation::{Cause, Operation, State};
use crate::foreign::Panics;
use crate::mem::arena::Lease;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Zero, order};

const WORDS: usize = OPERATIONS.div_ceil(64);

/// The bits of one session. Zeros: none.
#[derive(Debug, Zero)]
pub struct Watched {
    words: [AtomicU64; WORDS],
}

impl Watched {
    /// A stop must reach this operation.
    pub fn set(&self, operation: u16) {
        let operation = usize::from(operation);
        self.words[operation / 64].fetch_or(1 << (operation % 64), order::STEP);
    }

    /// The operation ends.
    pub fn clear(&self, operation: u16) {
        let operation = usize::from(operation);
        self.words[operation / 64].fetch_and(!(1 << (operation % 64)), order::STEP);
    }

    /// Stops every operation that waits anywhere and is of the session, which says so already. Everybody is reached; the
    /// panics are those of wakers and destructors.
    pub fn stop<K: Tenure>(&self, floor: &Floor<K>, is_its: impl Fn(&K) -> bool) -> Panics {
        let mut panics = Panics::none();
        for (word, watched) in self.words.iter().enumerate() {
            let mut bits = watched.fetch_or(0, order::STEP);
            while bits != 0 {
                let index = (word * 64) as u16 + bits.trailing_zeros() as u16;
                bits &= bits - 1;
                if let Some(operation) = floor.operations.upgrade_live(index)
                    && is_its(operation.pin())
                {
                    panics.run(|| {
                        floor.stop(&operation, Cause::Session);
                        drop(operation);
                    });
                }
            }
        }
        panics
    }
}

/// The half of [`note_for_session`] that comes first, for who says WATCHED by the step that follows (N2).
#[inline]
pub fn tell_session<K: Tenure>(lease: &Lease<Operation<K>>) {
    if !State(lease.word().load()).is_watched() {
        lease.pin().watch(lease.index());
    }
}

/// The first time that an operation parks, its session learns of it (N2: before the operation says so).
pub fn note_for_session<K: Tenure>(lease: &Lease<Operation<K>>) {
    if planted!("watched_said_first") {
        let noted = lease.word().update(|bits| (!State(bits).is_watched()).then(|| State(bits).watched()));
        if noted.is_ok() {
            lease.pin().watch(lease.index());
        }
        return;
    }
    if !State(lease.word().load()).is_watched() {
        lease.pin().watch(lease.index());
        // Two waiters of one operation may both come here; either says so.
        let _said = lease.word().update(|bits| (!State(bits).is_watched()).then(|| State(bits).watched()));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_set_and_cleared_alone() {
        let watched = Watched { words: [const { AtomicU64::new(0) }; WORDS] };
        let bits = || -> Vec<usize> {
            let load = |at: &usize| watched.words[at / 64].load(order::OBSERVE) >> (at % 64) & 1 == 1;
            (0..OPERATIONS).filter(load).collect()
        };
        let some = [0, 1, 63, 64, 65, 200, 4095];
        some.iter().for_each(|&at| watched.set(at));
        assert_eq!(bits(), some.map(usize::from));
        for (cleared, &at) in some.iter().enumerate() {
            watched.clear(at);
            assert_eq!(bits(), some.map(usize::from)[cleared + 1..]);
        }
    }
}
