//! A slot, and the shelf that it stands on: the table and its free list, which roots and nests have in common.

use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::task::Waker;

use super::SLOTS_MAX;
use super::lease::{Lease, Occupant, Pin, Taken};
use super::stock::KEY_SHIFT;
use super::word::{BareWord, Bits, ENDED, HELD, LEASE, LEASES_MAX, USER, advance, user};
use crate::mem::park;
use crate::sync::atomic::{AtomicU16, AtomicU64};
use crate::sync::{Backoff, Hollow, Line, Table, UnsafeCell, order, unique};

/// The park cells of a slot: one waker each.
pub(in crate::mem) type Cells = [Hollow<Waker>; park::CELLS];

/// What the steps work on, and what they need to know. Hot fields first; the park cells, seldom used, keep the hot
/// parts of neighbours apart.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable), zeroable(bound = ""))]
#[repr(C)]
pub(in crate::mem) struct Slot<T: Occupant> {
    pub(in crate::mem) word: AtomicU64,
    /// How many occupants came before this one. It never wraps: 2^64 takes at one per nanosecond are 584 years.
    pub(in crate::mem) incarnation: AtomicU64,
    /// The next free index, counted from the index behind this slot, so that zero pages are a complete list.
    next: AtomicU16,
    /// Its own index, for those who have only the pointer.
    pub(in crate::mem) index: AtomicU16,
    /// What one lease leaves for the next: see [`super::spare`].
    pub(in crate::mem) spare: AtomicU64,
    pub(in crate::mem) home: Hollow<NonNull<Shelf<T>>>,
    pub(in crate::mem) pin: Hollow<T::Pin>,
    value: UnsafeCell<T>,
    pub(in crate::mem) cells: Cells,
}

#[cfg(loom)]
impl<T: Occupant> Default for Slot<T> {
    fn default() -> Self {
        Self {
            word: AtomicU64::default(),
            incarnation: AtomicU64::default(),
            next: AtomicU16::default(),
            index: AtomicU16::default(),
            spare: AtomicU64::default(),
            home: Hollow::default(),
            pin: Hollow::default(),
            value: UnsafeCell::default(),
            cells: Cells::default(),
        }
    }
}

impl<T: Occupant> Slot<T> {
    /// The occupant, shared.
    #[inline]
    pub(in crate::mem) fn value(&self) -> &T {
        // SAFETY: M8 (always a valid `T`, lent mutably only while nobody can call this).
        self.value.with(|value| unsafe { &*value })
    }

    /// Ends the incarnation of a slot that the caller owns and goes on owning (M3). `ended`: ENDED is set.
    #[inline]
    pub(super) fn end(&self, ended: bool) {
        if ended {
            self.word.fetch_and(!ENDED, order::STEP);
        }
        let incarnation = self.incarnation.load(order::COUNT);
        let next = if planted!("same_incarnation") { incarnation } else { incarnation + 1 };
        self.incarnation.store(next, order::COUNT);
    }

    /// Where the occupant lies.
    #[inline]
    pub(in crate::mem) fn value_pointer(&self) -> *mut T {
        self.value.with_mut(|value| value)
    }
}

/// The head word's index part. Equal to the length of the table: no slot is free.
pub(super) const INDEX: u64 = (1 << 13) - 1;
const _: () = assert!(SLOTS_MAX as u64 == INDEX);

/// A table of slots with a LIFO free list.
#[repr(C)]
pub(in crate::mem) struct Shelf<T: Occupant> {
    /// Keeps the head word off the line of whatever lies in front.
    gap: Line<()>,
    pub(super) head: Line<AtomicU64>,
    /// Names this table among all of the process, so that a seat of another one is recognised.
    pub(in crate::mem) id: u64,
    /// The same, as a [`Spare`](super::Spare) of it has it.
    pub(super) key: NonZeroU64,
    slots: Table<Slot<T>>,
}

// SAFETY: M3, M6 (cells of a slot are written by the one thread that owns it; the parts that others can reach are atomics
// and a `T` that is `Sync`). The home pointer leads to the shelf itself.
unsafe impl<T: Occupant> Send for Shelf<T> {}
// SAFETY: M3, M6 (as for `Send`; wakers and pins are `Send` and `Sync` by their bounds).
unsafe impl<T: Occupant> Sync for Shelf<T> {}

impl<T: Occupant> Shelf<T> {
    const TAG: u64 = 1 << T::Pin::TAG_SHIFT;

    /// A table of `length` slots, all free. `others`: the head word's other fields, at first.
    ///
    /// # Panics
    ///
    /// If `length` is zero or above [`SLOTS_MAX`].
    pub(super) fn new(length: usize, others: u64) -> Self {
        assert!((1..=SLOTS_MAX).contains(&length), "an arena has 1 to 8,191 slots");
        let id = unique();
        let key = id.checked_mul(1 << KEY_SHIFT).and_then(NonZeroU64::new);
        Self {
            gap: Line::new(()),
            head: Line::new(AtomicU64::new(others)),
            id,
            key: key.expect("2^48 arenas: their numbers would end"),
            slots: Table::new(length),
        }
    }

    pub(super) fn length(&self) -> usize {
        self.slots.len()
    }

    /// The slot at `index`; `None` behind the end.
    #[inline]
    pub(super) fn slot(&self, index: usize) -> Option<&Slot<T>> {
        self.slots.get(index)
    }

    /// The slot at `index`, which its caller once got from this table.
    #[inline]
    pub(super) fn known(&self, index: u16) -> &Slot<T> {
        match self.slots.get(usize::from(index)) {
            Some(slot) => slot,
            None => crate::broken::accounting("an index lies outside of its arena"),
        }
    }

    /// Takes a slot off the list. `count` moves the other fields of the head word in the same step, or refuses.
    #[inline(always)]
    fn pop(&self, count: impl Fn(u64) -> Option<u64>) -> Option<u16> {
        let mut backoff = Backoff::new();
        let mut head = self.head.load(order::OBSERVE);
        loop {
            let index = (head & INDEX) as u16;
            let slot = self.slots.get(usize::from(index))?;
            // M4: believed only if the tag has not moved.
            let next = index.wrapping_add(1).wrapping_add(slot.next.load(order::COUNT));
            // The tag is a number modulo its width, no count: it only has to differ.
            let tag = if planted!("list_without_tag") { 0 } else { Self::TAG };
            let moved = count((head & !INDEX) | u64::from(next))?.wrapping_add(tag);
            match self.head.compare_exchange(head, moved, order::STEP, order::LOST) {
                Ok(_) => return Some(index),
                Err(seen) => head = seen,
            }
            backoff.lost();
        }
    }

    /// Puts a slot back on the list. The caller owns it (M3) and may not touch it afterwards.
    #[inline]
    pub(super) fn push(&self, index: u16) {
        let slot = self.known(index);
        let mut backoff = Backoff::new();
        let mut head = self.head.load(order::OBSERVE);
        loop {
            let next = ((head & INDEX) as u16).wrapping_sub(index.wrapping_add(1));
            slot.next.store(next, order::COUNT);
            let moved = (head & !INDEX) | u64::from(index);
            match self.head.compare_exchange(head, moved, order::STEP, order::LOST) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
            backoff.lost();
        }
    }

    /// Ends the incarnation of a slot that the caller owns (M3) and puts it back. `ended`: ENDED is set.
    #[inline]
    pub(super) fn give(&self, index: u16, ended: bool) {
        self.known(index).end(ended);
        self.push(index);
    }

    /// Takes a free slot for the caller alone. `count`: see [`Self::pop`].
    #[inline(always)]
    pub(super) fn reserve(&self, count: impl Fn(u64) -> Option<u64>) -> Option<Fresh<T>> {
        Some(Fresh::of(self, self.pop(count)?))
    }

    /// Makes a lease of a slot that has one; with `incarnation`, only if that is the occupant.
    #[inline]
    pub(super) fn upgrade(&self, index: usize, incarnation: Option<u64>) -> Option<Lease<T>> {
        let slot = self.slot(index)?;
        let is_other = || incarnation.is_some_and(|wanted| slot.incarnation.load(order::COUNT) != wanted);
        if is_other() {
            return None;
        }
        let raised = advance(&slot.word, |old| (old.leases() > 0).then(|| one_more_lease(old)));
        raised.ok()?;
        // SAFETY: M2 (the step saw a lease and added this one).
        let lease = unsafe { Lease::from_counted(NonNull::from(slot)) };
        // The occupant may have changed before the step. Now it cannot.
        (!is_other()).then_some(lease)
    }

    /// Clears HELD, and the occupant's bits of `mask` with it. Gives the slot back if only HELD kept it.
    #[inline]
    pub(super) fn release_hold(&self, index: u16, mask: u64) -> bool {
        let slot = self.known(index);
        let old = Bits(slot.word.fetch_and(!(HELD | user(mask)), order::STEP));
        if !old.is_held() {
            crate::broken::accounting("a hold was released that nobody had");
        }
        if old.is_ended() {
            // M5: the ending found HELD set and left; the slot is ours to give (M3).
            self.give(index, true);
        }
        old.is_ended()
    }

    pub(super) fn word(&self, index: u16) -> BareWord<'_> {
        BareWord { word: &self.known(index).word }
    }
}

/// The same word with a lease more.
#[inline]
pub(in crate::mem) fn one_more_lease(old: Bits) -> Bits {
    if old.leases() >= LEASES_MAX {
        crate::broken::accounting("a slot has more leases than its word can count");
    }
    Bits(old.0 + LEASE)
}

/// A slot between its pop and its publication: the taker owns it.
pub(super) struct Fresh<T: Occupant> {
    shelf: NonNull<Shelf<T>>,
    slot: NonNull<Slot<T>>,
    index: u16,
}

impl<T: Occupant> Fresh<T> {
    /// The free slot at `index`, which the caller owns (M3).
    #[inline(always)]
    pub(super) fn of(shelf: &Shelf<T>, index: u16) -> Self {
        let slot = shelf.known(index);
        // The list would be broken, and with it M3: look before anything is written.
        if slot.word.load(order::OBSERVE) & !USER != 0 {
            crate::broken::accounting("a slot on the free list is in use");
        }
        Fresh { shelf: NonNull::from(shelf), slot: NonNull::from(slot), index }
    }

    /// Writes the slot, lets `init` prepare the value, and publishes it with its first lease.
    ///
    /// If `init` panics, the slot goes back and then the pin is dropped.
    ///
    /// # Safety
    ///
    /// The shelf must live as long as `pin` does.
    #[inline(always)]
    pub(super) unsafe fn occupy(self, pin: T::Pin, bits: u64, init: impl FnOnce(&T)) -> Taken<T> {
        // SAFETY: M10, and by the contract of this function: `pin` keeps the shelf, and with it the slot.
        let slot = unsafe { self.slot.as_ref() };
        slot.index.store(self.index, order::COUNT);
        // SAFETY: M3 (the taker owns the cell).
        slot.home.with_mut(|home| unsafe { home.write(MaybeUninit::new(self.shelf)) });
        // SAFETY: M3 (the taker owns the cell, and the pin of the last occupant was moved out, M6).
        slot.pin.with_mut(|cell| unsafe { cell.write(MaybeUninit::new(pin)) });
        let undo = GiveUnpublished { fresh: &self };
        init(slot.value());
        std::mem::forget(undo);
        let before = Bits(slot.word.swap(LEASE | user(bits), order::STEP));
        debug_assert!(before.0 & !USER == 0, "nobody but the taker moves a free slot");
        // SAFETY: M2 (the publication counted this lease).
        let lease = unsafe { Lease::from_counted(self.slot) };
        Taken { lease, before }
    }
}

/// Undoes a take whose `init` panics.
struct GiveUnpublished<'a, T: Occupant> {
    fresh: &'a Fresh<T>,
}

impl<T: Occupant> Drop for GiveUnpublished<'_, T> {
    fn drop(&mut self) {
        // SAFETY: M7 (the pin still lies in the slot and keeps it).
        let slot = unsafe { self.fresh.slot.as_ref() };
        // SAFETY: M6 (written by the taker just before; nobody else has seen the slot).
        let pin = slot.pin.with(|cell| unsafe { cell.read() });
        // SAFETY: M6 (it was written, as above).
        let pin = unsafe { pin.assume_init() };
        // SAFETY: M7 (`pin` keeps the shelf until the end of this function).
        unsafe { self.fresh.shelf.as_ref() }.give(self.fresh.index, false);
        drop(pin);
    }
}
