//! Blocks that operations keep ready, and how they come back before anything is refused or counted.
//!
//! A call that takes buffer after buffer leaves the last one, with its charge and its lease, in its own slot
//! (`mem::arena::spare`): whoever takes the next finds it there by one step. What lies there is charged, so limits hold at every
//! instant; but nobody uses it, so nobody may be refused for it.
//!
//! ```text
//!   begins to keep: step on `keepers`, open the slot by a step, look: tight? then shut the slot again
//!   takes back:     make the word tight, step on all words of `keepers`, shut each slot by a step, ask again
//! ```
//!
//! * **D1** Only the front owner of a started operation begins to keep, and it ends keeping before it lets its lease go. So
//!   what lies in a slot never is what keeps its operation.
//! * **D2** From the end of a taking back until the word is loosened, nothing is kept. Of a keeper and who takes back, the
//!   second to step on `keepers`, or on the slot, sees what the other did before: the keeper that the word is tight, or the
//!   other what lies there.
//! * **D3** A refusal asks after a taking back, and stands if the word was not loosened since (B5 of the bytes).

use crate::account::bytes::{BytesWord, Tightness};
use crate::mem::arena::{Lease, Nest, Occupant};
use crate::mem::bitset::BitSet;
use crate::mem::blocks::Block;

/// Who may keep a block ready, by slot.
#[derive(Debug)]
pub struct Spares {
    keepers: BitSet,
}

impl Spares {
    /// Nobody yet, of so many operations.
    pub fn new(operations: usize) -> Spares {
        Spares { keepers: BitSet::new(operations) }
    }

    /// Whether nobody keeps anything, by a look.
    pub fn are_none(&self) -> bool {
        self.keepers.is_empty()
    }

    /// The operation may keep a block ready from now on, unless bytes are short. Of its front owner only (D1). `back` gives
    /// back what is not to be kept.
    pub fn begin<T: Occupant>(&self, bytes: &BytesWord, lease: &Lease<T>, back: impl FnOnce(Lease<T>, Block)) {
        if !bytes.loosen() {
            return;
        }
        self.keepers.set(usize::from(lease.index()));
        lease.open_spare();
        if !planted!("kept_while_tight")
            && bytes.tightness().is_tight()
            && let Some((lease, block)) = lease.shut_spare()
        {
            back(lease, block);
        }
    }

    /// The front owner goes: nothing is kept for the operation any more.
    pub fn end<T: Occupant>(&self, lease: &Lease<T>, back: impl FnOnce(Lease<T>, Block)) {
        if let Some((lease, block)) = lease.close_spare() {
            back(lease, block);
        }
        self.keepers.clear(usize::from(lease.index()));
    }

    /// Takes back all that is kept, and lets nobody begin until the word is loosened.
    pub fn take_back<T: Occupant>(
        &self,
        bytes: &BytesWord,
        operations: &Nest<T>,
        mut back: impl FnMut(Lease<T>, Block),
    ) -> Tightness {
        let tight = bytes.tighten();
        self.keepers.meet();
        for word in 0..self.keepers.words() {
            let mut keepers = self.keepers.load_word(word);
            while keepers != 0 {
                let index = (word * 64) as u16 + keepers.trailing_zeros() as u16;
                keepers &= keepers - 1;
                if let Some(operation) = operations.upgrade_live(index)
                    && let Some((lease, block)) = operation.shut_spare()
                {
                    back(lease, block);
                }
            }
        }
        tight
    }
}
