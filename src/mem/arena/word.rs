//! The word of a slot: its bits as pure arithmetic, and its steps. See the picture in [`super`].

use super::slot::Cells;
use crate::foreign::Wakers;
use crate::mem::park;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Backoff, order};

pub(in crate::mem) const LEASE: u64 = 1;
pub(in crate::mem) const LEASES: u64 = (1 << 18) - 1;
pub(in crate::mem) const HELD: u64 = 1 << 18;
pub(in crate::mem) const ENDED: u64 = 1 << 19;
pub(in crate::mem) const USER_SHIFT: u32 = 20;
/// How many bits of a slot's word belong to its occupant.
pub const USER_BITS: u32 = 32;
pub(in crate::mem) const USER: u64 = ((1 << USER_BITS) - 1) << USER_SHIFT;
pub(in crate::mem) const CLAIMED_SHIFT: u32 = 52;
pub(in crate::mem) const PARKED_SHIFT: u32 = 56;
pub(in crate::mem) const TAKING_SHIFT: u32 = 60;
/// All bits of the park cells.
pub(in crate::mem) const CELL_BITS: u64 = !0 << CLAIMED_SHIFT;
/// The most leases that one slot can have. The bit above is a guard: as many threads as this number would have to
/// overrun it at the same moment to reach HELD.
pub const LEASES_MAX: u64 = 1 << 17;

const _: () = assert!(USER_SHIFT + USER_BITS == CLAIMED_SHIFT);
const _: () = assert!(LEASES | HELD | ENDED | USER | CELL_BITS == !0);
const _: () = assert!(LEASES_MAX * 2 - 1 == LEASES);

/// A reading of a slot's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bits(pub(in crate::mem) u64);

impl Bits {
    /// A word with nothing in it, for tests of what the floors above write into it.
    #[cfg(all(test, not(loom)))]
    pub const NOTHING: Bits = Bits(0);

    /// How many leases the slot has.
    #[inline]
    #[must_use]
    pub const fn leases(self) -> u64 {
        self.0 & LEASES
    }

    /// The occupant's own bits, shifted down.
    #[inline]
    #[must_use]
    pub const fn user(self) -> u64 {
        (self.0 & USER) >> USER_SHIFT
    }

    /// Whether all of `mask`, a mask of the occupant's own bits, is set.
    #[inline]
    #[must_use]
    pub const fn has(self, mask: u64) -> bool {
        self.user() & mask == mask
    }

    /// The same word with other bits of the occupant.
    ///
    /// # Panics
    ///
    /// If `user` needs more than [`USER_BITS`].
    #[inline]
    #[must_use]
    pub const fn with_user(self, user: u64) -> Self {
        assert!(user >> USER_BITS == 0, "the occupant's bits of a slot are 32");
        Self((self.0 & !USER) | (user << USER_SHIFT))
    }

    /// The same word with the occupant's bits of `mask` set.
    #[inline]
    #[must_use]
    pub const fn with(self, mask: u64) -> Self {
        self.with_user(self.user() | mask)
    }

    /// The same word with the occupant's bits of `mask` cleared.
    #[inline]
    #[must_use]
    pub const fn without(self, mask: u64) -> Self {
        self.with_user(self.user() & !mask)
    }

    /// Whether the slot is held beyond its leases.
    #[inline]
    #[must_use]
    pub const fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// The same word, held or not held beyond its leases.
    #[inline]
    #[must_use]
    pub const fn with_held(self, held: bool) -> Self {
        Self(if held { self.0 | HELD } else { self.0 & !HELD })
    }

    /// Whether the last lease is gone and only HELD keeps the slot.
    #[inline]
    #[must_use]
    pub const fn is_ended(self) -> bool {
        self.0 & ENDED != 0
    }

    /// Whether a waker lies in this park cell.
    #[inline]
    #[must_use]
    pub const fn is_parked(self, cell: usize) -> bool {
        self.0 & park::parked(cell) != 0
    }

    /// Whether somebody has claimed this park cell.
    #[inline]
    #[must_use]
    pub const fn is_claimed(self, cell: usize) -> bool {
        self.0 & park::claimed(cell) != 0
    }

    /// `wanted`, as far as the bits of `may` go; the rest of this word stays as it is.
    #[inline]
    pub(in crate::mem) const fn changed_within(self, wanted: Self, may: u64) -> Self {
        Self((self.0 & !may) | (wanted.0 & may))
    }
}

impl std::fmt::Debug for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (held, ended) = (self.is_held(), self.is_ended());
        let nibble = |shift: u32| (self.0 >> shift) & 0b1111;
        write!(f, "[leases {}", self.leases())?;
        write!(f, "{}{}", if held { " HELD" } else { "" }, if ended { " ENDED" } else { "" })?;
        write!(f, " user {:#x} claimed {:04b}", self.user(), nibble(CLAIMED_SHIFT))?;
        write!(f, " parked {:04b} taking {:04b}]", nibble(PARKED_SHIFT), nibble(TAKING_SHIFT))
    }
}

/// The word of any slot, leased, held or free. It can change the occupant's own bits and nothing else, so no use of it
/// can break a slot; what these bits mean on a free slot is the occupant's affair (a mark that the next taker sees).
#[derive(Clone, Copy, Debug)]
pub struct BareWord<'a> {
    pub(in crate::mem) word: &'a AtomicU64,
}

impl BareWord<'_> {
    /// The word as it is now.
    #[inline]
    #[must_use]
    pub fn load(self) -> Bits {
        Bits(self.word.load(order::OBSERVE))
    }

    /// One step: `step` says what the word becomes (only the occupant's bits of its answer count), or `None` to leave it.
    /// Gives the word before and after.
    ///
    /// # Errors
    ///
    /// The word that `step` left alone.
    #[inline]
    pub fn update(self, mut step: impl FnMut(Bits) -> Option<Bits>) -> Result<(Bits, Bits), Bits> {
        advance(self.word, |old| step(old).map(|new| old.changed_within(new, USER)))
    }

    /// Sets these bits of the occupant; gives the word before.
    #[inline]
    pub fn set(self, mask: u64) -> Bits {
        Bits(self.word.fetch_or(user(mask), order::STEP))
    }

    /// Clears these bits of the occupant; gives the word before.
    #[inline]
    pub fn clear(self, mask: u64) -> Bits {
        Bits(self.word.fetch_and(!user(mask), order::STEP))
    }
}

/// The word of a leased slot.
#[derive(Clone, Copy)]
pub struct Word<'a> {
    pub(in crate::mem) bare: BareWord<'a>,
    pub(in crate::mem) cells: &'a Cells,
}

impl Word<'_> {
    /// The word as it is now.
    #[inline]
    #[must_use]
    pub fn load(self) -> Bits {
        self.bare.load()
    }

    /// One step: `step` says what the word becomes, or `None` to leave it. Of its answer the occupant's bits and HELD
    /// count. Gives the word before and after. (HELD may be cleared here, without a look at ENDED: the borrowed lease
    /// keeps the slot from ending.)
    ///
    /// # Errors
    ///
    /// The word that `step` left alone.
    #[inline(always)]
    pub fn update(self, mut step: impl FnMut(Bits) -> Option<Bits>) -> Result<(Bits, Bits), Bits> {
        advance(self.bare.word, |old| step(old).map(|new| old.changed_within(new, USER | HELD)))
    }

    /// The same, and the step takes the wakers parked in `cells` (one bit per cell) with it. Whoever parked there is
    /// owed a wake, given by waking or dropping the batch, once the caller is out of its own steps.
    ///
    /// # Errors
    ///
    /// The word that `step` left alone; no waker is taken then.
    #[inline]
    pub fn update_and_wake(
        self,
        mut step: impl FnMut(Bits) -> Option<Bits>,
        cells: u8,
    ) -> Result<(Bits, Bits, Wakers), Bits> {
        let (before, after) = advance(self.bare.word, |old| {
            let new = old.changed_within(step(old)?, USER | HELD);
            Some(park::begin_taking(new, cells))
        })?;
        let taken = park::taken(before, cells);
        if taken == 0 {
            return Ok((before, after, Wakers::new()));
        }
        // SAFETY: P3 (this step turned PARKED of the taken cells into TAKING).
        let wakers = unsafe { park::move_out(self.bare.word, self.cells, taken) };
        Ok((before, after, wakers))
    }

    /// Sets these bits of the occupant; gives the word before.
    #[inline]
    pub fn set(self, mask: u64) -> Bits {
        self.bare.set(mask)
    }

    /// Clears these bits of the occupant; gives the word before.
    #[inline]
    pub fn clear(self, mask: u64) -> Bits {
        self.bare.clear(mask)
    }
}

impl std::fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Word").field(&self.load()).finish()
    }
}

/// The compare-and-swap loop of a slot's word.
#[inline(always)]
pub(in crate::mem) fn advance(
    word: &AtomicU64,
    mut step: impl FnMut(Bits) -> Option<Bits>,
) -> Result<(Bits, Bits), Bits> {
    let mut backoff = Backoff::new();
    let mut old = Bits(word.load(order::OBSERVE));
    loop {
        let Some(new) = step(old) else { return Err(old) };
        match word.compare_exchange(old.0, new.0, order::STEP, order::LOST) {
            Ok(_) => return Ok((old, new)),
            Err(seen) => old = Bits(seen),
        }
        backoff.lost();
    }
}

/// A mask of the occupant's bits, in place.
#[inline]
pub(in crate::mem) const fn user(mask: u64) -> u64 {
    assert!(mask >> USER_BITS == 0, "the occupant's bits of a slot are 32");
    mask << USER_SHIFT
}
