//! A look at every operation from outside, for whoever counts what the words do not: by epoch, by client.
use super::floor::{Floor, OPERATIONS, Tenure};
use super::operation::{Operation, State};

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

    /// How many operations there ever were. Exact while nobody is admitted and nothing ends; else each may be missed or
    /// seen a moment early.
    ///
    /// A sum over the slots, each of which has counted its own occupants: 64 bits hold one a nanosecond for 584 years.
    pub fn operations_ever(&self) -> u64 {
        let of_slot = |index: u16| {
            let lives = self.operations.word(index).load().leases() > 0;
            self.operations.incarnation(index) + u64::from(lives)
        };
        (0..OPERATIONS as u16).map(of_slot).sum()
    }
}
