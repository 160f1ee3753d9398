//! The park cell: one waker, guarded by three bits of the word that decides.
//!
//! Whoever waits for a change of a slot's word leaves its waker in one of the slot's four cells, by a step that sees the
//! change has not come. Whoever makes the change takes the waker by the same step that makes it. Both steps are on one
//! word, so they cannot miss each other, and there is nothing to wait for.
//!
//! # Handles
//!
//! A [`Seat`] is the right to wait at one cell: there is at most one for each. It is got by [`Lease::claim`], used with
//! a lease of the same slot, and given back by [`Lease::release`]. It holds no lease itself. A seat that was forgotten
//! keeps its cell claimed until the slot ends; the ending then wakes whoever is parked there.
//!
//! # Bits
//!
//! ```text
//!   CLAIMED  there is a seat                             set: claim (alone or with a step)   cleared: release, end
//!   PARKED   a waker lies in the cell and is owed        set: park           cleared: unpark, wake, end
//!   TAKING   a wake is moving the waker out              set: wake           cleared: the same wake, when it has moved
//!
//!            claim           park                       wake: the step that changes the word
//!     free ────────▶ C ───────────────▶ C P ───────────────────────────────────────────▶ C T
//!      ▲             │ ▲◀── unpark ─────┘                                                │ │
//!      │◀── release ─┘ └◀──────────────────────────────── moved out: and(!T) ────────────┘ │
//!      │                                                                                   │ release (▶), claim (◀)
//!      └◀───────────────────────────────────────────────── moved out: and(!T) ◀──────── T ◀┘
//! ```
//!
//! # Who may touch the cell
//!
//! | bits | may write it | may read it |
//! | --- | --- | --- |
//! | none | nobody | nobody |
//! | C | the seat | the seat |
//! | C P | nobody | the seat (to compare, or to leave); whoever clears P owns the waker in it |
//! | T, C T | nobody | the wake that set T; a seat that saw P just before (to compare, or to leave: bits only) |
//! | P, C P, and no lease | nobody | whoever clears P: the ending, or a wake under HELD |
//!
//! # Invariants
//!
//! * **P1.** A cell is written by its seat alone, and only while PARKED and TAKING are clear. A seat is claimed only while
//!   CLAIMED is clear, PARKED is set only by a seat, and TAKING only from PARKED: so there is no other writer and no reader
//!   then, nor before the seat itself changes that.
//! * **P2.** PARKED means: the cell holds a waker that nobody has taken. It is set after the cell was written. Whoever
//!   clears it, by a step, has taken the waker: the seat (unpark) may do as it likes with it, for the cell is its own
//!   again; a seat that leaves by the same step has read the waker before; a wake must set TAKING in the same step.
//! * **P3.** TAKING belongs to the wake that set it, and no other step clears it. While it is set the cell does not
//!   change (no seat writes it, and the slot is not taken), so the waker can be moved out. (Without it the seat could park
//!   again, and write, while the wake still reads.)
//! * **P4.** Parked means owed: a seat that finds TAKING wakes its own waker and counts as parked, so `Parked` always
//!   leads to a wake or an unpark. It never spins.
//! * **P5.** To use a seat takes a lease. So when the last lease is gone no cell is written until the slot has another
//!   occupant, and a slot is not taken while TAKING is set. The ending clears CLAIMED and PARKED by a step, and owns
//!   the wakers that this step found; a wake under HELD may have been faster, and its TAKING is left to it.
//! * **P6.** Foreign code (a waker's clone, drop, wake) runs between steps: a clone before the cell is written, drops and
//!   wakes after the last step.

use std::mem::MaybeUninit;
use std::task::Waker;

use super::arena::word::{CLAIMED_SHIFT, HELD, PARKED_SHIFT, TAKING_SHIFT, USER, advance};
use super::arena::{Bits, Lease, Occupant};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Hollow, order};

use crate::foreign::WakeBatch;
pub use crate::foreign::Wakers;

/// How many park cells a slot has.
pub const CELLS: usize = 4;
/// All cells, as a mask.
pub const ALL: u8 = 0b1111;

/// CLAIMED and PARKED of all cells.
pub(in crate::mem) const SEATS: u64 = ((ALL as u64) << CLAIMED_SHIFT) | ((ALL as u64) << PARKED_SHIFT);

const fn bit(shift: u32, cell: usize) -> u64 {
    assert!(cell < CELLS, "a slot has four park cells");
    1 << (shift as usize + cell)
}

pub(in crate::mem) const fn claimed(cell: usize) -> u64 {
    bit(CLAIMED_SHIFT, cell)
}

pub(in crate::mem) const fn parked(cell: usize) -> u64 {
    bit(PARKED_SHIFT, cell)
}

const fn taking(cell: usize) -> u64 {
    bit(TAKING_SHIFT, cell)
}

/// TAKING of all cells in `taken`.
#[inline]
pub(in crate::mem) const fn taking_mask(taken: u8) -> u64 {
    (taken as u64) << TAKING_SHIFT
}

/// Which of `cells` hold a waker in the word `before`: those that a wake replacing this word takes.
#[inline]
pub(in crate::mem) const fn taken(before: Bits, cells: u8) -> u8 {
    ((before.0 >> PARKED_SHIFT) as u8) & cells & ALL
}

/// The word `new`, with PARKED of `cells` turned into TAKING.
#[inline]
pub(in crate::mem) const fn begin_taking(new: Bits, cells: u8) -> Bits {
    let taken = taken(new, cells) as u64;
    Bits((new.0 & !(taken << PARKED_SHIFT)) | (taken << TAKING_SHIFT))
}

/// Moves the wakers of the cells `taken` out and clears TAKING.
///
/// # Safety
///
/// The caller's own step has turned PARKED of just these cells into TAKING.
#[inline]
pub(in crate::mem) unsafe fn move_out(word: &AtomicU64, cells: &[Hollow<Waker>; CELLS], taken: u8) -> Wakers {
    let mut wakers = Wakers::new();
    if taken != 0 {
        // SAFETY: P2, P3 (TAKING is ours, and the cells hold the wakers that PARKED stood for).
        unsafe { drain(cells, taken, &mut wakers) };
        word.fetch_and(!taking_mask(taken), order::STEP);
    }
    wakers
}

/// Moves the wakers of the cells `taken` into a batch.
///
/// # Safety
///
/// These cells hold a waker that is the caller's, and nobody writes them meanwhile.
#[inline]
pub(in crate::mem) unsafe fn drain<const N: usize>(
    cells: &[Hollow<Waker>; CELLS],
    mut taken: u8,
    wakers: &mut WakeBatch<N>,
) {
    while let Some(cell) = cells.get(taken.trailing_zeros() as usize) {
        // SAFETY: P2 (the caller owns the wakers of these cells, by the contract of this function).
        wakers.push(unsafe { take(cell) });
        taken &= taken - 1;
    }
}

/// Moves the waker out of a cell. Its bits stay behind, as those of an empty cell.
///
/// # Safety
///
/// The cell holds a waker that is the caller's, and nobody writes it meanwhile.
#[inline]
unsafe fn take(cell: &Hollow<Waker>) -> Waker {
    // SAFETY: P1, P3 (nobody writes the cell, by the contract of this function).
    let waker: MaybeUninit<Waker> = cell.with(|waker| unsafe { waker.read() });
    // SAFETY: P2 (it holds a waker that is the caller's to move, by the contract of this function).
    unsafe { waker.assume_init() }
}

/// What became of an attempt to park.
#[must_use = "Changed means that no wake will come"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    /// The waker lies in the cell, or a wake is under way: the waiter will be polled again.
    Parked,
    /// What was waited for has come, as this word shows. No waker lies in the cell.
    Changed(Bits),
}

/// The right to wait at one cell of one slot, while this occupant has it. See the module's text.
#[must_use = "a forgotten seat keeps its cell claimed until the slot ends"]
#[derive(Debug)]
pub struct Seat {
    shelf: u64,
    incarnation: u64,
    index: u16,
    cell: u8,
}

impl Seat {
    /// Which of the slot's cells it is.
    #[must_use]
    pub fn cell(&self) -> usize {
        usize::from(self.cell)
    }
}

impl<T: Occupant> Lease<T> {
    /// Claims a park cell. `None`: somebody has a seat at it.
    ///
    /// # Panics
    ///
    /// If `cell` is not below [`CELLS`].
    pub fn claim(&self, cell: usize) -> Option<Seat> {
        let mask = claimed(cell);
        let free = |old: Bits| (old.0 & mask == 0).then_some(Bits(old.0 | mask));
        advance(&self.slot().word, free).ok()?;
        Some(self.seat(cell))
    }

    /// A step of the occupant (its own bits and HELD), and the first free one of `cells` is claimed with it: one step for both.
    /// No seat: somebody has one at each of them. Gives the word before, too.
    ///
    /// # Errors
    ///
    /// The word that `step` left alone; nothing is claimed then.
    #[inline]
    pub fn step_and_claim(
        &self,
        mut step: impl FnMut(Bits) -> Option<Bits>,
        cells: u8,
    ) -> Result<(Bits, Option<Seat>), Bits> {
        let free = |old: Bits| !(old.0 >> CLAIMED_SHIFT) as u8 & cells & ALL;
        let (before, _) = advance(&self.slot().word, |old| {
            let new = old.changed_within(step(old)?, USER | HELD);
            // The lowest bit, if there is one.
            let claimed = free(old) & free(old).wrapping_neg();
            Some(Bits(new.0 | (u64::from(claimed) << CLAIMED_SHIFT)))
        })?;
        let seat = (free(before) != 0).then(|| self.seat(free(before).trailing_zeros() as usize));
        Ok((before, seat))
    }

    /// The seat at a cell that a step of the caller's has just claimed.
    #[inline]
    fn seat(&self, cell: usize) -> Seat {
        Seat {
            shelf: self.shelf_id(),
            incarnation: self.incarnation(),
            index: self.index(),
            cell: cell as u8,
        }
    }

    /// Claims the first free one of `cells` (one bit per cell).
    pub fn claim_any(&self, cells: u8) -> Option<Seat> {
        let free = |old: Bits| !(old.0 >> CLAIMED_SHIFT) as u8 & cells & ALL;
        let lowest = |old: Bits| u64::from(free(old) & free(old).wrapping_neg());
        let claim = |old: Bits| (free(old) != 0).then(|| Bits(old.0 | (lowest(old) << CLAIMED_SHIFT)));
        let (before, _) = advance(&self.slot().word, claim).ok()?;
        Some(self.seat(free(before).trailing_zeros() as usize))
    }

    /// Leaves `waker` in the seat's cell, by a step that sees `still_waiting` hold. Parking again with an equal waker
    /// costs a load.
    ///
    /// `still_waiting` looks at the word and does nothing else. If a wake is just taking the last waker, `waker` is woken
    /// at once and counts as parked.
    ///
    /// # Panics
    ///
    /// If the seat is of another slot or of an earlier occupant. A panic of the waker's own code comes through, with
    /// nothing parked.
    pub fn park(&self, seat: &mut Seat, waker: &Waker, still_waiting: impl Fn(Bits) -> bool) -> Park {
        self.check(seat);
        let (word, cell) = (&self.slot().word, &self.slot().cells[seat.cell()]);
        loop {
            let bits = Bits(word.load(order::OBSERVE));
            let is_parked = bits.0 & parked(seat.cell()) != 0;
            if !still_waiting(bits) {
                if is_parked {
                    self.unpark(seat);
                }
                return Park::Changed(bits);
            }
            if bits.0 & taking(seat.cell()) != 0 {
                // P4: the cell must not be written yet, and the waker that is being taken may be another one.
                waker.wake_by_ref();
                return Park::Parked;
            }
            if !is_parked {
                break;
            }
            // SAFETY: P1 (only this seat writes the cell, and it wrote a waker. Should a wake have moved it out since the
            // load, and dropped it, its bits still lie there, and to compare is to look at these alone).
            if cell.with(|old| unsafe { &*old.cast::<Waker>() }.will_wake(waker)) {
                return Park::Parked;
            }
            // Ours again, or lost to a wake: look again.
            self.unpark(seat);
        }
        let fresh = MaybeUninit::new(waker.clone());
        // SAFETY: P1 (the load saw PARKED and TAKING clear, and only this seat can change that).
        cell.with_mut(|place| unsafe { place.write(fresh) });
        let seen = planted!("park_after_the_look");
        let park = |old: Bits| (seen || still_waiting(old)).then_some(Bits(old.0 | parked(seat.cell())));
        match advance(word, park) {
            Ok(_) => Park::Parked,
            Err(bits) => {
                // SAFETY: P1 (PARKED was not set: the waker just written is still the seat's).
                drop(unsafe { take(cell) });
                Park::Changed(bits)
            }
        }
    }

    /// Takes the waker back out of the seat's cell and drops it. False: there was none, or a wake has it: then the waiter
    /// was or will be woken for nothing.
    ///
    /// # Panics
    ///
    /// If the seat is of another slot or of an earlier occupant.
    pub fn unpark(&self, seat: &mut Seat) -> bool {
        self.check(seat);
        let parked = parked(seat.cell());
        let unpark = |old: Bits| (old.0 & parked != 0).then_some(Bits(old.0 & !parked));
        let unparked = advance(&self.slot().word, unpark).is_ok();
        if unparked {
            // SAFETY: P2 (this step cleared PARKED without TAKING: the waker is the seat's, and so is the cell).
            drop(unsafe { take(&self.slot().cells[seat.cell()]) });
        }
        unparked
    }

    /// Gives the seat up, and takes its waker back if one is parked.
    ///
    /// # Panics
    ///
    /// If the seat is of another slot or of an earlier occupant.
    pub fn release(&self, seat: Seat) {
        self.check(&seat);
        let (word, parked, claimed) = (&self.slot().word, parked(seat.cell()), claimed(seat.cell()));
        if word.load(order::OBSERVE) & parked != 0 {
            // Read before the step, since after it the cell is somebody else's to write.
            // SAFETY: P1 (only this seat writes the cell; these are the bits of what it wrote, and no waker yet).
            let waker: MaybeUninit<Waker> =
                self.slot().cells[seat.cell()].with(|waker| unsafe { waker.read() });
            let leave = |old: Bits| (old.0 & parked != 0).then_some(Bits(old.0 & !(parked | claimed)));
            if advance(word, leave).is_ok() {
                // SAFETY: P2 (this step cleared PARKED without TAKING: nobody else has taken the waker).
                drop(unsafe { waker.assume_init() });
                return;
            }
        }
        word.fetch_and(!claimed, order::STEP);
    }

    /// A seat counts only at the slot, and for the occupant, that it was claimed at: P1 leans on it.
    fn check(&self, seat: &Seat) {
        let same = seat.index == self.index() && seat.incarnation == self.incarnation();
        assert!(same && seat.shelf == self.shelf_id(), "a seat of another slot, or of an earlier occupant");
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
