//! Slots kept off the free list, in cells that belong to nobody in particular, with a label that says what was paid for
//! them.
//!
//! A cell is one word, so a slot and what goes with it change hands in one step:
//!
//! ```text
//!  63 62  61      50 49      38 37      26 25  24 23        0
//! ┌──────┬──────────┬──────────┬──────────┬──────┬───────────┐
//! │unused│ slot 2   │ slot 1   │ slot 0   │ kept │ label 24  │   the slots 0 to kept - 1 count, the last one that came first
//! └──────┴──────────┴──────────┴──────────┴──────┴───────────┘
//! ```
//!
//! Invariants, beside those of [`super`]:
//!
//! * **K1.** A slot stands in at most one cell, and then neither on the free list nor with anybody: it went in by a step of
//!   the one who owned it (M3), and the step that takes it out makes the taker its owner.
//! * **K2.** A cell changes by read-modify-write only. Whoever swept a cell and finds it empty has been before whoever puts
//!   something in, who then sees what the sweeper did before it swept.

use super::lease::{Occupant, Pin, Taken};
use super::nest::{Nest, Project};
use super::slot::Fresh;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Backoff, order};
use std::num::NonZeroU64;

/// The bits of a label.
pub const LABEL_BITS: u32 = 24;
/// What a shelf's number is shifted by to be its key: the index of a slot stands below it.
pub(super) const KEY_SHIFT: u32 = 16;
/// How many slots a cell keeps at most.
pub const KEPT_MAX: u32 = 3;

const LABEL: u64 = (1 << LABEL_BITS) - 1;
const KEPT_SHIFT: u32 = LABEL_BITS;
const KEPT: u64 = 0b11 << KEPT_SHIFT;
const SLOTS_SHIFT: u32 = KEPT_SHIFT + 2;
const BELOW_SLOTS: u64 = (1 << SLOTS_SHIFT) - 1;
const SLOT_BITS: u32 = 12;
const SLOT: u64 = (1 << SLOT_BITS) - 1;

/// The longest arena whose slots can be kept.
pub const KEEPS_MAX: usize = 1 << SLOT_BITS;

/// A value of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u64);

impl Word {
    const fn label(self) -> u32 {
        (self.0 & LABEL) as u32
    }
    const fn kept(self) -> u32 {
        (self.0 >> KEPT_SHIFT) as u32 & 0b11
    }
    const fn labelled(self, label: u32) -> Word {
        Word((self.0 & !LABEL) | (label as u64 & LABEL))
    }
    /// One slot more, if there is a place for it.
    const fn with(self, index: u16) -> Option<Word> {
        let kept = self.kept();
        if kept == KEPT_MAX {
            return None;
        }
        // The others move up: no shift depends on how many there are.
        let slots = (self.0 >> SLOTS_SHIFT) << SLOT_BITS | index as u64;
        Some(Word(slots << SLOTS_SHIFT | ((self.0 & BELOW_SLOTS) + (1 << KEPT_SHIFT))))
    }
    /// The last one that came less, and which it was.
    const fn without(self) -> Option<(Word, u16)> {
        if self.0 & KEPT == 0 {
            return None;
        }
        let slots = self.0 >> SLOTS_SHIFT;
        let less = (slots >> SLOT_BITS) << SLOTS_SHIFT | ((self.0 & BELOW_SLOTS) - (1 << KEPT_SHIFT));
        Some((Word(less), (slots & SLOT) as u16))
    }
}

/// A cell of slots. Zero is an empty one, with label 0.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Cell(AtomicU64);

/// A slot off the free list that belongs to whoever has this (M3). Forgotten, it is lost to its arena.
#[must_use = "a slot that is kept nowhere is lost"]
#[derive(Debug)]
pub struct Spare(NonZeroU64);

impl Spare {
    /// Of the slot at `index`, which the caller owns, of the shelf with this key.
    #[inline]
    pub(super) fn new(index: u16, key: NonZeroU64) -> Spare {
        Spare(key | u64::from(index))
    }
    #[inline]
    const fn index(&self) -> u16 {
        self.0.get() as u16
    }
}

/// What a cell held.
#[derive(Debug)]
pub struct Drained {
    /// The label.
    pub label: u32,
    /// The slots.
    pub spares: [Option<Spare>; KEPT_MAX as usize],
}

impl Cell {
    /// The label at this instant, and how many slots there are.
    #[inline]
    #[must_use]
    pub fn look(&self) -> (u32, u32) {
        let word = Word(self.0.load(order::OBSERVE));
        (word.label(), word.kept())
    }

    /// Changes the label, unless `next`, which is shown it, says no.
    #[inline]
    pub fn relabel(&self, mut next: impl FnMut(u32) -> Option<u32>) -> bool {
        self.step(|word| Some((word.labelled(next(word.label())?), ()))).is_some()
    }

    #[inline(always)]
    fn step<R>(&self, mut next: impl FnMut(Word) -> Option<(Word, R)>) -> Option<R> {
        let mut backoff = Backoff::new();
        let mut word = self.0.load(order::OBSERVE);
        loop {
            let (Word(replacement), result) = next(Word(word))?;
            match self.0.compare_exchange(word, replacement, order::STEP, order::LOST) {
                Ok(_) => return Some(result),
                Err(found) => word = found,
            }
            backoff.lost();
        }
    }
}

impl<T: Occupant> Nest<T> {
    /// Takes a slot out of a cell of this nest, with the label that `next` makes of the one it is shown; `None` if there is
    /// no slot or `next` says no.
    #[inline(always)]
    pub fn fetch(&self, cell: &Cell, mut next: impl FnMut(u32) -> Option<u32>) -> Option<Spare> {
        let index = cell.step(|word| {
            let label = next(word.label())?;
            let (less, index) = word.without()?;
            Some((less.labelled(label), index))
        })?;
        Some(Spare::new(index, self.shelf().key))
    }

    /// Puts a slot into a cell, with the label that `next` makes of the one it is shown, and of how many slots are there.
    ///
    /// # Errors
    ///
    /// The slot, if the cell is full or `next` says no.
    ///
    /// # Panics
    ///
    /// By way of broken accounting, if the slot is another nest's.
    #[inline(always)]
    pub fn store(
        &self,
        cell: &Cell,
        spare: Spare,
        mut next: impl FnMut(u32, u32) -> Option<u32>,
    ) -> Result<(), Spare> {
        self.known_spare(&spare);
        let stored = cell.step(|word| {
            let label = next(word.label(), word.kept())?;
            Some((word.with(spare.index())?.labelled(label), ()))
        });
        stored.ok_or(spare)
    }

    /// Takes all that a cell has. It is a step even if there is nothing (K2).
    pub fn drain(&self, cell: &Cell) -> Drained {
        let mut word = Word(cell.0.swap(0, order::STEP));
        let label = word.label();
        let mut spares = [const { None }; KEPT_MAX as usize];
        for spare in &mut spares {
            if let Some((less, index)) = word.without() {
                *spare = Some(Spare::new(index, self.shelf().key));
                word = less;
            }
        }
        Drained { label, spares }
    }

    /// Puts a slot back on the free list.
    ///
    /// # Panics
    ///
    /// By way of broken accounting, if the slot is another nest's.
    pub fn put_back(&self, spare: Spare) {
        self.known_spare(&spare);
        self.shelf().push(spare.index());
    }

    /// [`take_with`](Nest::take_with), with a slot that the caller has already.
    ///
    /// # Panics
    ///
    /// By way of broken accounting, if the slot is another nest's.
    #[inline(always)]
    pub fn take_spare(
        pin: T::Pin,
        project: Project<T>,
        spare: Spare,
        bits: u64,
        init: impl FnOnce(&T),
    ) -> Taken<T> {
        let nest = project(pin.shared());
        nest.known_spare(&spare);
        let fresh = Fresh::of(nest.shelf(), spare.index());
        // SAFETY: M10 (the nest was reached from `&C` for any lifetime of that borrow, so it lives as long as the root
        // does, which `pin` keeps, M7).
        unsafe { fresh.occupy(pin, bits, init) }
    }

    #[inline(always)]
    fn known_spare(&self, spare: &Spare) {
        if (spare.0.get() ^ self.shelf().key.get()) >> KEY_SHIFT != 0 {
            crate::broken::accounting("a slot was given to an arena that it is not of");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mem::arena::{Anchor, Ending, Lease, Rest, Root, RootPin};
    use crate::sync::Zero;

    #[derive(Zero)]
    struct Room(AtomicU64);

    struct House {
        left: Nest<Guest>,
        right: Nest<Guest>,
        cell: Cell,
    }

    impl Occupant for Room {
        type Pin = RootPin<Room, House>;
        fn last_lease(ending: Ending<'_, Self>) {
            drop(ending.finish());
        }
    }

    /// Leaves its slot in the cell.
    #[derive(Zero)]
    struct Guest(AtomicU64);

    impl Occupant for Guest {
        type Pin = Lease<Room>;
        fn last_lease(ending: Ending<'_, Self>) {
            let (pin, rest) = ending.finish_keeping();
            if let Rest::Spare(spare) = rest {
                let house = pin.shared();
                house.left.store(&house.cell, spare, |label, kept| Some(label + kept + 1)).unwrap();
            }
            drop(pin);
        }
    }

    fn house() -> Anchor<Room, House> {
        Root::new(1, House { left: Nest::new(2), right: Nest::new(2), cell: Cell::default() })
    }

    fn leave_one(house: &Anchor<Room, House>) {
        let room = house.take(u32::MAX, |_| {}).unwrap();
        drop(Nest::<Guest>::take(room, |house| &house.left).unwrap());
    }

    #[test]
    fn a_slot_goes_through_a_cell_and_back() {
        let anchor = house();
        leave_one(&anchor);
        let house = anchor.shared();
        assert_eq!(house.cell.look(), (1, 1));
        let room = anchor.take(u32::MAX, |_| {}).unwrap();
        let spare = house.left.fetch(&house.cell, |label| Some(label + 4)).unwrap();
        assert_eq!(house.cell.look(), (5, 0));
        let guest = Nest::take_spare(room, |house: &House| &house.left, spare, 1, |guest: &Guest| {
            guest.0.fetch_add(1, order::COUNT);
        });
        assert_eq!((guest.lease.index(), guest.lease.incarnation()), (0, 1), "the same slot, the next occupant");
        drop(guest);
        let drained = house.left.drain(&house.cell);
        let spares: Vec<_> = drained.spares.into_iter().flatten().collect();
        assert_eq!((drained.label, spares.len(), house.cell.look()), (6, 1, (0, 0)));
        spares.into_iter().for_each(|spare| house.left.put_back(spare));
    }

    #[cfg(not(miri))]
    #[test]
    fn a_slot_of_another_nest_is_not_taken() {
        let name = "mem::arena::stock::tests::a_slot_of_another_nest_is_not_taken";
        crate::broken::in_a_process_of_its_own(name, || {
            let anchor = house();
            leave_one(&anchor);
            let house = anchor.shared();
            let spare = house.left.fetch(&house.cell, Some).unwrap();
            assert!(crate::foreign::foreign(|| house.right.put_back(spare)).is_err());
        });
    }

    #[test]
    fn a_word_is_a_stack_of_three_beside_its_label() {
        let mut word = Word(0).labelled(0x00AB_CDEF);
        for index in [0, 4_095, 7] {
            word = word.with(index).unwrap();
        }
        assert_eq!((word.kept(), word.label()), (KEPT_MAX, 0x00AB_CDEF));
        assert!(word.with(9).is_none(), "a fourth");
        word = word.labelled(1);
        for (kept, index) in [(2, 7), (1, 4_095), (0, 0)] {
            let (less, last) = word.without().unwrap();
            assert_eq!((less.kept(), less.label(), last), (kept, 1, index));
            word = less;
        }
        assert_eq!(word, Word(1), "no trace is left of who went");
        assert!(word.without().is_none());
    }
}
