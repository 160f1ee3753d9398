//! Steps of those who hold a slot beyond its leases, and steps that move a lease and the occupant's bits at once.

use super::lease::{Ending, Lease, Occupant, ended};
use super::nest::Nest;
use super::root::{Anchor, RootPin};
use super::slot::one_more_lease;
use super::word::{Bits, ENDED, HELD, LEASE, USER, Word, advance, user};
use crate::foreign::WakeBatch;
use crate::mem::park;
use crate::sync::atomic::AtomicU64;
use crate::sync::order;

/// What a [`step_held`](Nest::step_held) did.
#[derive(Clone, Copy, Debug)]
pub struct SteppedHeld {
    /// The word before the step.
    pub before: Bits,
    /// What the step made of it.
    pub after: Bits,
    /// The hold was let go and was all that kept the slot: it is free now.
    pub freed: bool,
}

impl<T: Occupant> Nest<T> {
    /// One step on a slot that the caller holds by HELD, lease or not: it changes the occupant's bits and, if `step` says
    /// so, lets go of HELD. It takes no waker and counts no lease.
    ///
    /// # Errors
    ///
    /// The word that `step` left alone.
    ///
    /// # Panics
    ///
    /// By way of broken accounting, if nobody holds the slot.
    #[inline]
    pub fn step_held(
        &self,
        index: u16,
        step: impl FnMut(Bits) -> Option<Bits>,
    ) -> Result<SteppedHeld, Bits> {
        self.step_held_and_wake(index, step, 0, &mut WakeBatch::<0>::new())
    }

    /// The same, and the step takes the wakers parked in `cells` with it. They are moved into `woken`, which has room for them:
    /// not by way of a value that would be copied twice. The caller wakes them once it is out of its own steps.
    ///
    /// # Errors
    ///
    /// The word that `step` left alone; no waker is taken then.
    ///
    /// # Panics
    ///
    /// By way of broken accounting, if nobody holds the slot.
    #[inline]
    pub fn step_held_and_wake<const N: usize>(
        &self,
        index: u16,
        mut step: impl FnMut(Bits) -> Option<Bits>,
        cells: u8,
        woken: &mut WakeBatch<N>,
    ) -> Result<SteppedHeld, Bits> {
        let slot = self.shelf().known(index);
        // Wakers are moved out under HELD, so it is let go after them, by the same step that clears TAKING (P3).
        let mut keeps = true;
        let (before, wanted) = advance(&slot.word, |old| {
            if !old.is_held() {
                crate::broken::accounting("a slot was stepped that nobody holds");
            }
            let wanted = step(old)?;
            let new = old.changed_within(wanted, USER | HELD);
            keeps = new.is_held();
            let takes = park::taken(old, cells) != 0;
            Some(park::begin_taking(if takes { new.with_held(true) } else { new }, cells))
        })?;
        let after = wanted.with_held(keeps);
        let taken = park::taken(before, cells);
        if taken == 0 {
            let freed = !keeps && before.is_ended();
            if freed {
                self.shelf().give(index, true);
            }
            return Ok(SteppedHeld { before, after, freed });
        }
        // SAFETY: P2, P3 (this step turned PARKED of these cells into TAKING, and no seat writes and no slot is taken while it
        // is set).
        unsafe { park::drain(&slot.cells, taken, woken) };
        let let_go = if keeps { 0 } else { HELD };
        let old = Bits(slot.word.fetch_and(!(park::taking_mask(taken) | let_go), order::STEP));
        if !old.is_held() {
            // M5: somebody else let it go, and may have given the slot; it is not given twice.
            crate::broken::accounting("a hold was released by one who did not have it");
        }
        let freed = !keeps && old.is_ended();
        if freed {
            self.shelf().give(index, true);
        }
        Ok(SteppedHeld { before, after, freed })
    }

    /// The word of a slot by a read-modify-write that changes nothing: whoever scans for occupants meets whoever publishes
    /// one here, whichever comes first.
    #[inline]
    pub fn touch(&self, index: u16) -> Bits {
        Bits(self.shelf().known(index).word.fetch_or(0, order::STEP))
    }
}

impl<T: Occupant> Lease<T> {
    /// Another lease of the slot, by a step that changes the occupant's bits with it, or refuses.
    ///
    /// # Errors
    ///
    /// The word that `step` left alone.
    #[inline(always)]
    pub fn duplicate_if(&self, mut step: impl FnMut(Bits) -> Option<Bits>) -> Result<Self, Bits> {
        advance(&self.slot().word, |old| step(old).map(|new| one_more_lease(old.changed_within(new, USER))))?;
        // SAFETY: M2 (the step added this lease, and `self` was there).
        Ok(unsafe { Lease::from_counted(std::ptr::NonNull::from(self.slot())) })
    }

    /// Drops the lease and takes `units` off the occupant's bits in the same step. The units must be there: they are counts
    /// or flags that the holder of this lease put in.
    #[inline]
    pub fn release_with(self, units: u64) {
        let slot = std::mem::ManuallyDrop::new(self).slot_pointer();
        // M9: from here to the step only the atomic is referred to.
        // SAFETY: M7 (the lease keeps the slot until the step below).
        let word: &AtomicU64 = unsafe { &(*slot.as_ptr()).word };
        // Looked at before it is written: a borrow would run into the bits of the park cells.
        let released = advance(word, |old| {
            let enough = old.leases() > 0 && old.user() >= units;
            enough.then(|| Bits(old.0 - LEASE - user(units)))
        });
        match released {
            Ok((_, after)) if after.leases() == 0 => ended::<T>(slot, Bits(after.0 + LEASE)),
            Ok(_) => {}
            Err(_) => {
                crate::broken::accounting_in_drop("a lease was released with units that were not there")
            }
        }
    }
}

impl<T, C> Lease<T>
where
    T: Occupant<Pin = RootPin<T, C>>,
    C: Send + Sync + 'static,
{
    /// An anchor of the root that the slot stands in. Control path.
    #[must_use]
    pub fn anchor(&self) -> Anchor<T, C> {
        self.pin().anchor()
    }
}

impl<T, C> Anchor<T, C>
where
    T: Occupant<Pin = RootPin<T, C>>,
    C: Send + Sync + 'static,
{
    /// Whether the lease is of a slot of this root.
    #[inline]
    #[must_use]
    pub fn holds(&self, lease: &Lease<T>) -> bool {
        std::ptr::eq(self.shared(), lease.shared())
    }
}

impl<T, C> Ending<'_, T>
where
    T: Occupant<Pin = RootPin<T, C>>,
    C: Send + Sync + 'static,
{
    /// The occupant, for the ending alone.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: M3 (without a lease the slot belongs to the ending; a root lends no value without a lease, so there is no
        // other reference).
        unsafe { self.value_mut() }
    }
}

impl Word<'_> {
    /// Takes `units` off the occupant's bits. They must be there: a count that the caller put in.
    #[inline]
    pub fn sub(self, units: u64) {
        let old = Bits(self.bare.word.fetch_sub(user(units), order::STEP));
        if old.user() < units {
            crate::broken::accounting_in_drop("units were taken off a slot's word that were not there");
        }
    }
}

impl Bits {
    /// The same word with one lease less: as it was before an observer took one to look.
    #[inline]
    #[must_use]
    pub const fn less_one_lease(self) -> Self {
        if self.leases() == 0 { self } else { Bits(self.0 - LEASE) }
    }
}

const _: () = assert!(HELD & ENDED == 0);
