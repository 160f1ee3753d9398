//! A look at every operation from outside, for whoever counts what the words do not: by epoch, by client.
use super::floor::{Floor, OPERATIONS, Tenure};
use super::operation::{Operation, State};
use crate::account::charge::Held;

impl<K: Tenure> Floor<K> {
    /// Shows every live operation with its state, one after another: loads alone, no step on any word.
    ///
    /// It looks at every slot there is, so it is for the cold path. Slots are of different moments: exact while nothing
    /// moves, else an observation. An operation whose last lease is gone is not shown.
    pub fn glance(&self, mut see: impl FnMut(&Operation<K>, State)) {
        for index in 0..OPERATIONS as u16 {
            let state = State(self.operations.word(index).load());
            // If the slot is given back and taken again after that load, the numbers are the next occupant's and the phase
            // is the last one's: one operation is counted, of the two that were alive about then.
            if state.0.leases() > 0 {
                see(self.operations.peek(index), state);
            }
        }
    }

    /// How many operations there ever were, and how many of them were granted. Exact while nothing moves; else what moves
    /// may be missed or seen a moment early.
    ///
    /// Sums over the slots, each of which counts its own occupants: 64 bits hold one a nanosecond for 584 years.
    pub fn ever(&self) -> Ever {
        let mut ever = Ever::default();
        for index in 0..OPERATIONS as u16 {
            // In this order: whoever is seen to have ended without a grant is one of those counted below.
            let ungranted = self.operations.peek(index).ungranted.get();
            let state = State(self.operations.word(index).load());
            let gone = self.operations.incarnation(index);
            let lives = state.0.leases() > 0;
            let waits = lives && state.held() == Held::Staged;
            // One that has just ended is counted there before its slot says that it is gone.
            let operations = (gone + u64::from(lives)).max(ungranted);
            ever.operations += operations;
            // What waits was admitted after everyone who is gone.
            ever.grants += (operations - ungranted) - u64::from(waits && operations > ungranted);
        }
        ever
    }
}

/// Sums over the life of a node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ever {
    /// Operations that were admitted.
    pub operations: u64,
    /// Of these: those that were granted, at once or in line.
    pub grants: u64,
}
