//! An arena inside the shared state of a root.

use std::ptr::NonNull;

use super::lease::{Lease, Occupant, Pin, Taken};
use super::slot::{Shelf, one_more_lease};
use super::word::{BareWord, Bits, HELD, USER, advance};
use crate::foreign::Wakers;
use crate::mem::park;
use crate::sync::order;

/// A table of slots that lives inside the shared state of a [`Root`](super::Root). Each of its slots holds a pin, which
/// leads to that root and keeps the nest with it.
pub struct Nest<T: Occupant> {
    shelf: Shelf<T>,
}

/// How to find the nest from what a pin reaches. That it works for every lifetime shows that the nest lives in the shared
/// state, so whatever keeps that keeps the nest.
pub(super) type Project<T> = for<'a> fn(&'a <<T as Occupant>::Pin as Pin>::Shared) -> &'a Nest<T>;

/// What a [`step`](Nest::step) did.
#[must_use = "dropping it drops the lease and wakes the wakers at once"]
pub struct Stepped<T: Occupant> {
    /// Whoever was parked in the cells that the step took. Declared before the lease, so woken before it is dropped.
    pub wakers: Wakers,
    /// A lease that the step counted.
    pub lease: Lease<T>,
    /// The word before the step.
    pub before: Bits,
    /// The word after it.
    pub after: Bits,
}

impl<T: Occupant> Nest<T> {
    /// A nest of `slots` slots, all free. Zero pages: a slot costs memory once it was used.
    ///
    /// # Panics
    ///
    /// If `slots` is zero or above [`SLOTS_MAX`](super::SLOTS_MAX).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { shelf: Shelf::new(slots, 0) }
    }

    #[inline]
    pub(super) fn shelf(&self) -> &Shelf<T> {
        &self.shelf
    }

    /// How many slots there are.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> usize {
        self.shelf.length()
    }

    /// Takes a slot, which keeps `pin` until its end. `project` finds the nest in what the pin reaches.
    ///
    /// # Errors
    ///
    /// The pin, if no slot is free.
    #[inline]
    pub fn take(pin: T::Pin, project: Project<T>) -> Result<Lease<T>, T::Pin> {
        Self::take_with(pin, project, 0, |_| {}).map(|taken| taken.lease)
    }

    /// The same, with the occupant's bits at the start, and with a look at the bits that were there before. `init`
    /// prepares the value before anyone can reach it; if it panics, the slot goes back and the pin is dropped.
    ///
    /// # Errors
    ///
    /// The pin, if no slot is free.
    #[inline(always)]
    pub fn take_with(
        pin: T::Pin,
        project: Project<T>,
        bits: u64,
        init: impl FnOnce(&T),
    ) -> Result<Taken<T>, T::Pin> {
        let Some(fresh) = project(pin.shared()).shelf.reserve(Some) else {
            return Err(pin);
        };
        // SAFETY: M10 (the nest was reached from `&C` for any lifetime of that borrow, so it lives as long as the root
        // does, which `pin` keeps, M7).
        Ok(unsafe { fresh.occupy(pin, bits, init) })
    }

    /// A lease of the slot at `index`, if this incarnation still has one.
    #[inline]
    #[must_use]
    pub fn upgrade(&self, index: u16, incarnation: u64) -> Option<Lease<T>> {
        self.shelf.upgrade(usize::from(index), Some(incarnation))
    }

    /// A lease of the slot at `index`, if it has one, whoever the occupant is.
    #[inline]
    #[must_use]
    pub fn upgrade_live(&self, index: u16) -> Option<Lease<T>> {
        self.shelf.upgrade(usize::from(index), None)
    }

    /// The value at `index`, whether the slot is free or not. It is always a valid `T` and may change under the reader in
    /// every way that a shared `T` can; whoever knows the slot to be held or leased knows whose value it is.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[inline]
    #[must_use]
    pub fn peek(&self, index: u16) -> &T {
        self.shelf.known(index).value()
    }

    /// The word of the slot at `index`, whether the slot is free or not: for marks, and for whoever holds it.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[inline]
    #[must_use]
    pub fn word(&self, index: u16) -> BareWord<'_> {
        self.shelf.word(index)
    }

    /// How many occupants the slot at `index` has had that are gone. For whoever counts: it may grow at any moment.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[must_use]
    pub fn incarnation(&self, index: u16) -> u64 {
        self.shelf.known(index).incarnation.load(order::COUNT)
    }

    /// One step on a slot of which the caller has no lease: it changes the word as `step` says (the occupant's bits and
    /// HELD), takes the wakers parked in `cells` and counts a lease for the caller, all at once.
    ///
    /// # Errors
    ///
    /// The word, if the slot has no lease or `step` left it alone.
    #[inline]
    pub fn step(
        &self,
        index: u16,
        mut step: impl FnMut(Bits) -> Option<Bits>,
        cells: u8,
    ) -> Result<Stepped<T>, Bits> {
        let slot = self.shelf.known(index);
        let (before, after) = advance(&slot.word, |old| {
            if old.leases() == 0 {
                return None;
            }
            let new = old.changed_within(step(old)?, USER | HELD);
            Some(park::begin_taking(one_more_lease(new), cells))
        })?;
        // SAFETY: M2 (the step saw a lease and added this one).
        let lease = unsafe { Lease::from_counted(NonNull::from(slot)) };
        let taken = park::taken(before, cells);
        // SAFETY: P3 (the step turned PARKED of these cells into TAKING).
        let wakers = unsafe { park::move_out(&slot.word, &slot.cells, taken) };
        Ok(Stepped { wakers, lease, before, after })
    }

    /// Lets go of HELD, which the caller is the one to have, and clears the occupant's bits of `mask` in the same step.
    /// If the last lease is gone already, the slot is given back now: true.
    ///
    /// # Panics
    ///
    /// By way of broken accounting, if nobody holds the slot.
    #[inline]
    pub fn release_hold(&self, index: u16, mask: u64) -> bool {
        self.shelf.release_hold(index, mask)
    }
}

impl<T: Occupant> std::fmt::Debug for Stepped<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stepped({:?}, {:?} to {:?})", self.lease, self.before, self.after)
    }
}

impl<T: Occupant> std::fmt::Debug for Nest<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nest({} slots)", self.slots())
    }
}
