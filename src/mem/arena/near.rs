//! What an owner that lives long keeps, so that its hot path neither walks nor counts: a way to a part of the shared state, and a
//! sheaf of leases.

use std::ptr::NonNull;

use super::lease::{Ending, Lease, Occupant};
use super::slot::Slot;
use super::word::{Bits, LEASE, LEASES_MAX};
use crate::sync::atomic::AtomicU64;
use crate::sync::order;

/// A lease, and the address of something that its pin reaches: one load instead of a walk along the chain of pins.
pub struct Near<T: Occupant, U> {
    lease: Lease<T>,
    part: NonNull<U>,
}

// SAFETY: M11 (the lease is `Send`, and of the part only `&U` is given out).
unsafe impl<T: Occupant, U: Sync> Send for Near<T, U> {}
// SAFETY: M11 (the lease is `Sync`, and of the part only `&U` is given out).
unsafe impl<T: Occupant, U: Sync> Sync for Near<T, U> {}

impl<T: Occupant, U> Near<T, U> {
    /// Keeps `lease`, and finds the part in what its pin reaches. That `project` works for every lifetime shows that the part
    /// lives in what the pin keeps.
    #[inline]
    pub fn new(lease: Lease<T>, project: for<'a> fn(&'a T::Pin) -> &'a U) -> Self {
        let part = NonNull::from(project(lease.pin()));
        Self { lease, part }
    }

    /// The lease.
    #[inline]
    pub const fn lease(&self) -> &Lease<T> {
        &self.lease
    }

    /// The part.
    #[inline]
    pub fn part(&self) -> &U {
        // SAFETY: M11 (the lease keeps the pin in its cell, and the pin keeps the part).
        unsafe { self.part.as_ref() }
    }
}

impl<T: Occupant, U> std::fmt::Debug for Near<T, U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lease.fmt(f)
    }
}

/// Leases of one slot that were counted together and are given out one by one, without a step for each. What is left goes back
/// with the drop, in one step.
pub struct Sheaf<T: Occupant> {
    /// The slot that the leases left are of. Without any, nothing keeps it, and it may be no slot at all.
    slot: NonNull<Slot<T>>,
    left: u64,
    /// How many were counted last.
    batch: u64,
}

// SAFETY: M2 (it is as many leases as are left, which are `Send`).
unsafe impl<T: Occupant> Send for Sheaf<T> {}
// SAFETY: M2 (`&Sheaf` offers nothing).
unsafe impl<T: Occupant> Sync for Sheaf<T> {}

/// The most leases that a sheaf counts at once: enough to make the step disappear, and little beside what a word can count.
const BATCH: u64 = 16;

impl<T: Occupant> Sheaf<T> {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { slot: NonNull::dangling(), left: 0, batch: 0 }
    }

    /// Another lease, from the sheaf. An empty one is filled first, in one step, with leases of the slot of `lease`: with one the
    /// first time, with twice as many each time after, up to 16. So who needs few takes few. (Until it is empty, it gives out
    /// leases of the slot that it was filled for.)
    ///
    /// # Panics
    ///
    /// By way of broken accounting, as [`Lease::duplicate`].
    #[inline]
    pub fn take(&mut self, lease: &Lease<T>) -> Lease<T> {
        if self.left == 0 {
            self.fill(lease);
        }
        self.left -= 1;
        // SAFETY: M2 (`fill` counted it, for this slot, and it is given out once).
        unsafe { Lease::from_counted(self.slot) }
    }

    #[cold]
    fn fill(&mut self, lease: &Lease<T>) {
        let batch = if self.batch == 0 { 1 } else { BATCH.min(self.batch * 2) };
        let word = &lease.slot().word;
        // A lease is there, so the count does not come from zero (M2) and hands nothing over.
        let old = Bits(word.fetch_add(LEASE * batch, order::COUNT));
        if old.leases() + batch > LEASES_MAX {
            word.fetch_sub(LEASE * batch, order::STEP);
            crate::broken::accounting("a slot has more leases than its word can count");
        }
        (self.slot, self.left, self.batch) = (lease.slot_pointer(), batch, batch);
    }

}

impl<T: Occupant> Default for Sheaf<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Occupant> Drop for Sheaf<T> {
    fn drop(&mut self) {
        let left = self.left;
        if left == 0 {
            return;
        }
        // M9: from here to the step only the atomic is referred to.
        // SAFETY: M7 (the leases that are left keep the slot until the step below).
        let word: &AtomicU64 = unsafe { &(*self.slot.as_ptr()).word };
        let before = Bits(word.fetch_sub(LEASE * left, order::STEP));
        match before.leases() {
            there if there > left => {}
            there if there == left => {
                T::last_lease(Ending::new(self.slot, Bits(before.0 - LEASE * (left - 1))));
            }
            _ => crate::broken::accounting_in_drop("a sheaf of leases was dropped that nobody had counted"),
        }
    }
}

impl<T: Occupant> std::fmt::Debug for Sheaf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sheaf({} left)", self.left)
    }
}
