//! A lease whose holder stands for something: its drop ends more than a hold.
//!
//! * **V5** An [`Owner`] is taken apart once, by its drop or instead of it, and not touched afterwards.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use super::lease::{Lease, Occupant};

/// How an [`Owner`] ends.
pub trait End<T: Occupant> {
    /// The owner was dropped; this was its lease. Runs inside a drop: it must be bounded and must not wait.
    fn end(lease: Lease<T>);
}

/// A lease that [`End::end`] gets when it is dropped. One pointer, as the lease.
#[must_use = "dropping an owner ends what it stands for"]
#[repr(transparent)]
pub struct Owner<T: Occupant, E: End<T>> {
    lease: ManuallyDrop<Lease<T>>,
    ends_by: PhantomData<fn() -> E>,
}

impl<T: Occupant, E: End<T>> Owner<T, E> {
    /// Stands for something from now on.
    #[inline(always)]
    pub const fn new(lease: Lease<T>) -> Self {
        Self { lease: ManuallyDrop::new(lease), ends_by: PhantomData }
    }

    /// Stands for it no more.
    #[inline(always)]
    pub fn into_lease(self) -> Lease<T> {
        let mut owner = ManuallyDrop::new(self);
        // SAFETY: V5 (taken out here, and never touched again: the owner is not dropped).
        unsafe { ManuallyDrop::take(&mut owner.lease) }
    }
}

impl<T: Occupant, E: End<T>> Deref for Owner<T, E> {
    type Target = Lease<T>;

    #[inline(always)]
    fn deref(&self) -> &Lease<T> {
        &self.lease
    }
}

impl<T: Occupant, E: End<T>> Drop for Owner<T, E> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: V5 (taken out here, and never touched again).
        E::end(unsafe { ManuallyDrop::take(&mut self.lease) });
    }
}

impl<T: Occupant, E: End<T>> std::fmt::Debug for Owner<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lease.fmt(f)
    }
}
