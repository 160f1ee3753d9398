//! What the holder of one lease leaves in the slot for the holder of the next: the lease, and a block with it.
//!
//! An operation that takes buffer after buffer then finds the block, its charge and its lease where the last one left them, by
//! one step on its own slot, and steps on nothing that it shares with others.
//!
//! ```text
//!          open            leave
//!   NEVER ──────▶ EMPTY ◀───────────▶ token         close, from anywhere: NEVER
//!    SHUT ──────▶         find
//!      ▲            │                   │
//!      └──── shut ──┴───────────────────┘           whoever shuts or closes has what lay there
//! ```
//!
//! * **V1** The word changes by exchange only. A value above EMPTY is the token of a block that was given by value to `leave`,
//!   and with it lies one lease of this slot, counted, of which there is no other value. Whoever's exchange replaces it has both.
//! * **V2** A token that was found by a load may be another leaving of the same block by the time of the exchange. It is the
//!   same right then, and the exchange sees all that was written before the last leaving.
//! * **V3** While a token lies there the slot has a lease, so it does not end: a slot without leases has none.
//! * **V4** A [`Leased`] is taken apart once, by its drop, and not touched afterwards.

use std::mem::ManuallyDrop;
use std::num::NonZeroU64;

use super::lease::{Lease, Occupant};
use crate::mem::blocks::Block;
use crate::sync::order;

/// Never opened by this occupant, or closed for good. What a fresh slot has.
const NEVER: u64 = 0;
/// Was open.
const SHUT: u64 = 1;
/// Open, and nothing lies there.
const EMPTY: u64 = 2;

/// The token that a value of the word is, if one lies there.
#[inline(always)]
fn token(value: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(value).filter(|value| value.get() > EMPTY)
}

impl<T: Occupant> Lease<T> {
    /// What lies in the slot, if it is there and `fits` it: with the lease that came with it.
    #[inline(always)]
    pub fn find_spare(&self, fits: impl FnOnce(&Block) -> bool) -> Option<(Lease<T>, Block)> {
        let word = &self.slot().spare;
        let seen = token(word.load(order::OBSERVE))?;
        // SAFETY: V1 (looked at, and no right to it: it is neither given nor used to reach the block).
        let looked = ManuallyDrop::new(unsafe { Block::from_token(seen) });
        if !fits(&looked) {
            return None;
        }
        word.compare_exchange(seen.get(), EMPTY, order::STEP, order::LOST).ok()?;
        // SAFETY: V1, V2 (this exchange replaced the token).
        Some(unsafe { self.found(seen) })
    }

    /// Leaves the lease and a block in the slot, if it is open and nothing lies there.
    ///
    /// # Errors
    ///
    /// Both.
    #[inline(always)]
    pub fn leave_spare(self, block: Block) -> Result<(), (Lease<T>, Block)> {
        let word = &self.slot().spare;
        let token = block.into_token();
        // M9: after the exchange the slot may be gone.
        match word.compare_exchange(EMPTY, token.get(), order::STEP, order::LOST) {
            Ok(_) => {
                std::mem::forget(self);
                Ok(())
            }
            // SAFETY: V1 (the token was just made of the block, and is nowhere else).
            Err(_) => Err((self, unsafe { Block::from_token(token) })),
        }
    }

    /// Whether something could be left now, by a look.
    #[inline(always)]
    #[must_use]
    pub fn has_room_for_spare(&self) -> bool {
        self.slot().spare.load(order::COUNT) == EMPTY
    }

    /// Whether nothing can be left until it is opened, by a look.
    #[inline(always)]
    #[must_use]
    pub fn is_spare_shut(&self) -> bool {
        self.slot().spare.load(order::COUNT) < EMPTY
    }

    /// Whether it was ever opened, and not closed since.
    #[inline(always)]
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.slot().spare.load(order::COUNT) != NEVER
    }

    /// Lets leases and blocks be left in the slot from now on.
    pub fn open_spare(&self) {
        let word = &self.slot().spare;
        let seen = word.load(order::OBSERVE);
        if seen < EMPTY {
            // Lost: somebody else has opened it, or shut it again just now.
            let _ = word.compare_exchange(seen, EMPTY, order::STEP, order::LOST);
        }
    }

    /// Lets nothing be left any more until it is opened again. Gives what lay there. Always a step: who opens it afterwards
    /// sees what the caller did before.
    #[must_use = "what lay there is the caller's"]
    pub fn shut_spare(&self) -> Option<(Lease<T>, Block)> {
        self.replace_spare(SHUT)
    }

    /// The same for good: to be done before the one who opened it lets the slot go.
    #[must_use = "what lay there is the caller's"]
    pub fn close_spare(&self) -> Option<(Lease<T>, Block)> {
        self.replace_spare(NEVER)
    }

    fn replace_spare(&self, by: u64) -> Option<(Lease<T>, Block)> {
        let found = token(self.slot().spare.swap(by, order::STEP))?;
        // SAFETY: V1 (this exchange replaced the token).
        Some(unsafe { self.found(found) })
    }

    /// # Safety
    ///
    /// The caller's exchange replaced this token.
    #[inline(always)]
    unsafe fn found(&self, token: NonZeroU64) -> (Lease<T>, Block) {
        // SAFETY: V1, M2 (the lease that lay there is counted, and is this one from now on).
        let lease = unsafe { Lease::from_counted(self.slot_pointer()) };
        // SAFETY: V1 (the right to the block came with the token).
        (lease, unsafe { Block::from_token(token) })
    }
}

/// What takes a block back that a lease of it held.
pub trait Returns: Occupant {
    /// The lease was dropped, and the block with it. Runs inside a drop: it must be bounded and must not wait.
    fn come_back(lease: Lease<Self>, block: Block);
}

/// A block, and the lease of what it is charged to. Two words. Dropping it gives both to [`Returns::come_back`].
pub struct Leased<T: Returns> {
    block: ManuallyDrop<Block>,
    lease: ManuallyDrop<Lease<T>>,
}

impl<T: Returns> Leased<T> {
    /// Together from now on.
    #[inline(always)]
    #[must_use]
    pub fn new(lease: Lease<T>, block: Block) -> Self {
        Self { block: ManuallyDrop::new(block), lease: ManuallyDrop::new(lease) }
    }

    /// The block.
    #[inline(always)]
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The lease.
    #[inline(always)]
    pub fn lease(&self) -> &Lease<T> {
        &self.lease
    }

    /// The block, to be written, and the lease.
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut Block, &Lease<T>) {
        (&mut self.block, &self.lease)
    }
}

impl<T: Returns> Drop for Leased<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: V4 (taken out here, and never touched again).
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        // SAFETY: V4 (as above).
        let lease = unsafe { ManuallyDrop::take(&mut self.lease) };
        T::come_back(lease, block);
    }
}

impl<T: Returns> std::fmt::Debug for Leased<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leased({:?}, {:?})", *self.lease, *self.block)
    }
}
