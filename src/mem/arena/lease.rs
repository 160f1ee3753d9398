//! Leases: the counted holds on a slot, and what happens when the last one goes.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;

use super::slot::{Shelf, Slot};
use super::stock::Spare;
use super::word::{BareWord, Bits, CELL_BITS, ENDED, LEASE, LEASES_MAX, Word};
use crate::foreign::Wakers;
use crate::mem::park;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Zero, order};

pub(super) mod sealed {
    /// Only this folder knows what keeps a slot's memory alive.
    pub trait Sealed {}
}

/// What keeps the memory that a slot lies in: a [`RootPin`](super::RootPin) or the [`Lease`] of another slot.
pub trait Pin: sealed::Sealed + Send + Sync + Sized + 'static {
    /// The shared state of the root at the end of the chain.
    type Shared: Send + Sync + 'static;

    /// Where the tag begins in the head word of an arena whose slots hold such pins.
    #[doc(hidden)]
    const TAG_SHIFT: u32;

    /// The shared state of the root.
    fn shared(&self) -> &Self::Shared;
}

/// What lives in a slot. It is shared from the first lease to the last, so whatever changes in it changes through atomics
/// or cells of its own. A new occupant finds what the last one left; [`Taken`] and `take_with` say when to write it.
pub trait Occupant: Zero + Send + Sync + Sized + 'static {
    /// What a slot of this kind hangs from.
    type Pin: Pin;

    /// The last lease is gone: let go of what the occupant holds, [`finish`](Ending::finish), and drop the pin last of
    /// all. Runs on whatever thread dropped the lease, inside its `drop`: it must be bounded and must not wait.
    fn last_lease(ending: Ending<'_, Self>);
}

/// A freshly taken slot.
#[must_use = "dropping the lease ends the slot at once"]
pub struct Taken<T: Occupant> {
    /// The first lease.
    pub lease: Lease<T>,
    /// The word that publication replaced: its occupant's bits are the marks that were set on the free slot, or left by
    /// the last occupant.
    pub before: Bits,
}

impl<T: Occupant> std::fmt::Debug for Taken<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Taken({:?}, before {:?})", self.lease, self.before)
    }
}

/// A counted hold on a slot: one pointer. `Deref` gives the occupant.
///
/// Dropping it takes one step on the slot's word; dropping the last one runs [`Occupant::last_lease`].
#[must_use = "dropping a lease may end its slot"]
#[repr(transparent)]
pub struct Lease<T: Occupant> {
    slot: NonNull<Slot<T>>,
}

// SAFETY: M10 (a lease is the pointer to its slot and nothing else, so it is never all zeros).
#[cfg(not(loom))]
unsafe impl<T: Occupant> bytemuck::ZeroableInOption for Lease<T> {}

// SAFETY: M2, M7 (a lease is a counted hold; what it reaches is `Sync`, and its end may run on any thread since occupant
// and pin are `Send`).
unsafe impl<T: Occupant> Send for Lease<T> {}
// SAFETY: M2 (all that `&Lease` offers works on atomics, on a `T` that is `Sync` and on cells guarded by the word).
unsafe impl<T: Occupant> Sync for Lease<T> {}

impl<T: Occupant> Lease<T> {
    /// A lease that is counted already.
    ///
    /// # Safety
    ///
    /// The caller added a unit to the slot's leases, by a step that was allowed to (M2), and makes one lease of it.
    #[inline]
    pub(in crate::mem) unsafe fn from_counted(slot: NonNull<Slot<T>>) -> Self {
        Self { slot }
    }

    #[inline]
    pub(in crate::mem) fn slot(&self) -> &Slot<T> {
        // SAFETY: M7, M10 (a lease keeps its slot, which does not move).
        unsafe { self.slot.as_ref() }
    }

    /// Where the slot stands in its arena.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u16 {
        self.slot().index.load(order::COUNT)
    }

    /// How many occupants the slot had before this one. With the index it names this occupant for good.
    #[inline]
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.slot().incarnation.load(order::COUNT)
    }

    /// The slot's word.
    #[inline]
    #[must_use]
    pub fn word(&self) -> Word<'_> {
        let slot = self.slot();
        Word { bare: BareWord { word: &slot.word }, cells: &slot.cells }
    }

    /// What the slot hangs from.
    #[inline]
    #[must_use]
    pub fn pin(&self) -> &T::Pin {
        // SAFETY: M6 (the pin lies in its cell while there is a lease, and nobody writes the cell).
        self.slot().pin.with(|cell| unsafe { &*cell.cast::<T::Pin>() })
    }

    /// The shared state of the root at the end of the chain of pins.
    #[inline]
    #[must_use]
    pub fn shared(&self) -> &<T::Pin as Pin>::Shared {
        self.pin().shared()
    }

    #[inline]
    pub(in crate::mem) fn slot_pointer(&self) -> NonNull<Slot<T>> {
        self.slot
    }

    /// Another lease of the same slot.
    ///
    /// # Panics
    ///
    /// If the slot has [`LEASES_MAX`] of them: limits above this floor keep far below.
    #[inline]
    pub fn duplicate(&self) -> Self {
        // A lease is there, so the count does not come from zero (M2) and hands nothing over.
        let old = Bits(self.slot().word.fetch_add(LEASE, order::COUNT));
        if old.leases() >= LEASES_MAX {
            self.slot().word.fetch_sub(LEASE, order::STEP);
            crate::broken::accounting("a slot has more leases than its word can count");
        }
        Self { slot: self.slot }
    }

    /// Whether both are leases of the same slot.
    #[inline]
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.slot == other.slot
    }

    /// The number of the table that the slot stands in.
    #[inline]
    pub(in crate::mem) fn shelf_id(&self) -> u64 {
        // SAFETY: M3 (written before publication, and nobody writes it while there is a lease).
        let shelf = self.slot().home.with(|cell| unsafe { *cell.cast::<NonNull<Shelf<T>>>() });
        // SAFETY: M7 (the lease keeps the memory that its slot lies in, and the shelf with it).
        unsafe { shelf.as_ref() }.id
    }
}

impl<T: Occupant> Deref for Lease<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.slot().value()
    }
}

impl<T: Occupant> Drop for Lease<T> {
    #[inline]
    fn drop(&mut self) {
        // M9: from here to the step only the atomic is referred to.
        // SAFETY: M7 (this lease keeps the slot until the step below).
        let word: &AtomicU64 = unsafe { &(*self.slot.as_ptr()).word };
        let last = Bits(word.fetch_sub(LEASE, order::STEP));
        match last.leases() {
            1 => ended::<T>(self.slot, last),
            0 => crate::broken::accounting_in_drop("a lease was dropped that nobody had counted"),
            _ => {}
        }
    }
}

/// Out of the way of all the leases that are not the last. `last`: the word with the last one still counted.
#[inline(never)]
pub(super) fn ended<T: Occupant>(slot: NonNull<Slot<T>>, last: Bits) {
    T::last_lease(Ending { slot, last, arena: PhantomData });
}

impl<T: Occupant> std::fmt::Debug for Lease<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({}, incarnation {})", self.index(), self.incarnation())
    }
}

impl<T: Occupant> sealed::Sealed for Lease<T> {}

impl<T: Occupant> Pin for Lease<T> {
    type Shared = <T::Pin as Pin>::Shared;

    const TAG_SHIFT: u32 = 13;

    #[inline]
    fn shared(&self) -> &Self::Shared {
        self.pin().shared()
    }
}

/// A slot whose last lease is gone: its owner may read the occupant and then gives the slot back.
///
/// Dropped without [`finish`](Self::finish), as by a panic, it finishes by itself and drops the pin.
pub struct Ending<'a, T: Occupant> {
    /// A pointer, since the slot may be freed while this value is still in scope somewhere (M9).
    slot: NonNull<Slot<T>>,
    /// The word that the last `fetch_sub` found.
    last: Bits,
    arena: PhantomData<&'a T>,
}

impl<T: Occupant> Ending<'_, T> {
    /// For whoever took the last lease off the word; `last` is the word with that lease still counted.
    #[inline]
    pub(in crate::mem) fn new(slot: NonNull<Slot<T>>, last: Bits) -> Self {
        Ending { slot, last, arena: PhantomData }
    }

    /// The occupant, mutably.
    ///
    /// # Safety
    ///
    /// Nobody can have a reference to it: the arena lends none without a lease.
    #[inline]
    pub(in crate::mem) unsafe fn value_mut(&mut self) -> &mut T {
        // SAFETY: M8, and by the contract of this function.
        unsafe { &mut *self.slot().value_pointer() }
    }

    #[inline]
    fn slot(&self) -> &Slot<T> {
        // SAFETY: M3, M7 (the ending owns the slot, and the pin in it keeps it).
        unsafe { self.slot.as_ref() }
    }

    /// Where the slot stands in its arena.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u16 {
        self.slot().index.load(order::COUNT)
    }

    /// The word as the last lease left it, that lease still counted.
    #[inline]
    #[must_use]
    pub fn bits(&self) -> Bits {
        self.last
    }

    /// What the slot hangs from.
    #[inline]
    #[must_use]
    pub fn pin(&self) -> &T::Pin {
        // SAFETY: M6 (the pin is moved out by `conclude` only, which consumes this value).
        self.slot().pin.with(|cell| unsafe { &*cell.cast::<T::Pin>() })
    }

    /// The shared state of the root.
    #[inline]
    #[must_use]
    pub fn shared(&self) -> &<T::Pin as Pin>::Shared {
        self.pin().shared()
    }

    /// Gives the slot back, unless it is still held: then whoever releases the hold does. Gives the pin, to be dropped
    /// last of all: it may be what keeps the arena.
    #[inline]
    pub fn finish(self) -> T::Pin {
        self.finish_telling().0
    }

    /// The same, and tells whether the slot is free now. If not, whoever holds it frees it.
    #[inline]
    pub fn finish_telling(self) -> (T::Pin, bool) {
        let mut ending = ManuallyDrop::new(self);
        if ending.last.0 & CELL_BITS != 0 {
            return ending.conclude_and_wake();
        }
        ending.conclude()
    }

    /// The same, but a slot that would be free now goes to the caller instead of to the free list.
    #[inline]
    pub fn finish_keeping(self) -> (T::Pin, Rest) {
        let mut ending = ManuallyDrop::new(self);
        if ending.last.0 & CELL_BITS != 0 {
            let (pin, freed) = ending.conclude_and_wake();
            return (pin, if freed { Rest::Free } else { Rest::Held });
        }
        let (pin, shelf, ours) = ending.part();
        if !ours {
            return (pin, Rest::Held);
        }
        ending.slot().end(ending.last.is_held());
        // SAFETY: M7 (`pin` keeps the arena, and is handed to the caller).
        let key = unsafe { shelf.as_ref() }.key;
        (pin, Rest::Spare(Spare::new(ending.index(), key)))
    }

    /// The steps of `finish` where a seat was forgotten: whoever is parked in it is woken. To be called once.
    #[cold]
    fn conclude_and_wake(&mut self) -> (T::Pin, bool) {
        let left = self.left_wakers();
        let (pin, freed) = self.conclude();
        // Waking is foreign code and may panic; the pin is dropped then, and the slot is given back already.
        drop(left);
        (pin, freed)
    }

    /// Takes the wakers that were left in the park cells.
    fn left_wakers(&mut self) -> Wakers {
        let mut wakers = Wakers::new();
        let slot = self.slot();
        // TAKING is left alone: it belongs to a wake under HELD, which may have been faster.
        let old = Bits(slot.word.fetch_and(!park::SEATS, order::STEP));
        // SAFETY: P2, P5 (this step cleared PARKED of these cells, and nobody has a seat to write them).
        unsafe { park::drain(&slot.cells, park::taken(old, park::ALL), &mut wakers) };
        wakers
    }

    /// The steps of `finish`, with no waker left. To be called once.
    #[inline]
    fn conclude(&mut self) -> (T::Pin, bool) {
        let index = self.index();
        let (pin, shelf, ours) = self.part();
        if ours {
            // SAFETY: M7 (`pin` keeps the arena, and is handed to the caller).
            unsafe { shelf.as_ref() }.give(index, self.last.is_held());
        }
        (pin, ours)
    }

    /// Moves the pin out, and tells the shelf and whether the slot is the caller's (M3). To be called once.
    #[inline]
    fn part(&mut self) -> (T::Pin, NonNull<Shelf<T>>, bool) {
        let slot = self.slot();
        // SAFETY: M6 (moved out here, once; the cell counts as empty afterwards).
        let pin: MaybeUninit<T::Pin> = slot.pin.with(|cell| unsafe { cell.read() });
        // SAFETY: M6 (it lay in the cell until now).
        let pin = unsafe { pin.assume_init() };
        // SAFETY: M3 (written before publication; the ending owns the slot).
        let shelf = slot.home.with(|cell| unsafe { *cell.cast::<NonNull<Shelf<T>>>() });
        let ours = if self.last.is_held() {
            let old = Bits(slot.word.fetch_or(ENDED, order::STEP));
            !old.is_held()
        } else {
            true
        };
        (pin, shelf, ours)
    }
}

/// What became of a slot whose last lease is gone.
#[must_use = "a slot that is kept nowhere is lost"]
#[derive(Debug)]
pub enum Rest {
    /// It is the caller's.
    Spare(Spare),
    /// It is on the free list.
    Free,
    /// Whoever holds it frees it.
    Held,
}

impl<T: Occupant> Deref for Ending<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.slot().value()
    }
}

impl<T: Occupant> Drop for Ending<'_, T> {
    fn drop(&mut self) {
        let (pin, _) = self.conclude_and_wake();
        drop(pin);
    }
}

impl<T: Occupant> std::fmt::Debug for Ending<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ending({}, {:?})", self.index(), self.last)
    }
}
