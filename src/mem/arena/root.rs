//! The outermost arena: an allocation that lives until the last anchor and the last slot are gone.

use std::ptr::NonNull;

use super::lease::{Lease, Occupant, Pin, Taken, sealed};
use super::slot::{INDEX, Shelf};
use crate::sync::{Backoff, order};

const LIVE_SHIFT: u32 = 13;
const LIVE: u64 = 1 << LIVE_SHIFT;
const LIVE_MASK: u64 = INDEX << LIVE_SHIFT;
const ANCHOR_SHIFT: u32 = 26;
const ANCHOR: u64 = 1 << ANCHOR_SHIFT;
const ANCHORS_MASK: u64 = 0xffff << ANCHOR_SHIFT;
const TAG_SHIFT: u32 = 42;

const _: () = assert!(INDEX | LIVE_MASK | ANCHORS_MASK == (1 << TAG_SHIFT) - 1);

/// The allocation: the head word and the slots, and what every lease can reach. It is made by [`Root::new`] and from
/// then on seen only through [`Anchor`]s and leases. Neither lends a value without a lease (M8), so there is no `peek`.
pub struct Root<T: Occupant, C> {
    shared: C,
    shelf: Shelf<T>,
}

/// No slot: the limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<T, C> Root<T, C>
where
    T: Occupant<Pin = RootPin<T, C>>,
    C: Send + Sync + 'static,
{
    /// Allocates an arena of `slots` slots around `shared`. Zero pages: a slot costs memory once it was used.
    ///
    /// # Panics
    ///
    /// If `slots` is zero or above [`SLOTS_MAX`](super::SLOTS_MAX).
    #[allow(clippy::new_ret_no_self, reason = "a root is only ever seen through its anchors")]
    #[must_use]
    pub fn new(slots: usize, shared: C) -> Anchor<T, C> {
        let root = Box::new(Self { shared, shelf: Shelf::new(slots, ANCHOR) });
        Anchor { root: NonNull::from(Box::leak(root)) }
    }
}

/// Takes `unit`, a LIVE or an ANCHOR, away from the head word and frees the root if that was the last of both.
///
/// # Safety
///
/// The caller owns such a unit and gives it up with this call.
unsafe fn let_go<T: Occupant, C>(root: NonNull<Root<T, C>>, unit: u64, mask: u64) {
    // M9: from here to the step only the atomic is referred to.
    // SAFETY: M7 (the caller's unit keeps the root until the step below).
    let head = unsafe { &(*root.as_ptr()).shelf.head };
    let old = head.fetch_sub(unit, order::STEP);
    if old & mask == 0 {
        // The borrow ran into the neighbouring field. Nothing can be trusted, so nothing is freed.
        crate::broken::accounting_in_drop("an arena was let go of more often than it was held");
    } else if (old - unit) & (LIVE_MASK | ANCHORS_MASK) == 0 {
        // SAFETY: M7 (this step brought both counts to zero, so nobody else is left; the pointer came from `Box::leak`).
        drop(unsafe { Box::from_raw(root.as_ptr()) });
    }
}

/// A hold on a [`Root`] itself. Control path: cloning it is a step on the head word.
pub struct Anchor<T: Occupant, C> {
    root: NonNull<Root<T, C>>,
}

// SAFETY: M7 (a counted hold; what it reaches is `Sync`, and the end of the root may run on any thread).
unsafe impl<T: Occupant, C: Send + Sync> Send for Anchor<T, C> {}
// SAFETY: M7 (as for `Send`).
unsafe impl<T: Occupant, C: Send + Sync> Sync for Anchor<T, C> {}

impl<T: Occupant, C> Anchor<T, C> {
    fn root(&self) -> &Root<T, C> {
        // SAFETY: M7 (an anchor keeps the root).
        unsafe { self.root.as_ref() }
    }

    /// The state that every lease can reach too.
    #[inline]
    #[must_use]
    pub fn shared(&self) -> &C {
        &self.root().shared
    }

    /// How many slots are in use, as of now.
    #[must_use]
    pub fn live(&self) -> u32 {
        live(self.root().shelf.head.load(order::OBSERVE))
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.root().shelf.length()
    }
}

const fn live(head: u64) -> u32 {
    ((head & LIVE_MASK) >> LIVE_SHIFT) as u32
}

impl<T, C> Anchor<T, C>
where
    T: Occupant<Pin = RootPin<T, C>>,
    C: Send + Sync + 'static,
{
    /// Takes a slot if fewer than `limit` are in use: one step decides both. `init` prepares the value before anyone can
    /// reach it; if it panics, the slot goes back.
    ///
    /// # Errors
    ///
    /// [`Full`] if `limit`, or all slots there are, were in use at that step.
    #[inline]
    pub fn take(&self, limit: u32, init: impl FnOnce(&T)) -> Result<Lease<T>, Full> {
        self.take_with(limit, 0, init).map(|taken| taken.lease)
    }

    /// The same, with the occupant's bits at the start, and with a look at the bits that were there before.
    ///
    /// # Errors
    ///
    /// [`Full`] as above.
    #[inline]
    pub fn take_with(&self, limit: u32, bits: u64, init: impl FnOnce(&T)) -> Result<Taken<T>, Full> {
        // A slot is pushed before its LIVE goes, so `live` may count one that is free already. Bounded by the slots it fits its
        // field, and below that bound the list is not empty.
        let limit = limit.min(self.root().shelf.length() as u32);
        let count = |head: u64| (live(head) < limit).then(|| head + LIVE);
        let fresh = self.root().shelf.reserve(count).ok_or(Full)?;
        let pin = RootPin { root: self.root };
        // SAFETY: M7 (the shelf is part of the root, which `pin` keeps by the LIVE just counted).
        Ok(unsafe { fresh.occupy(pin, bits, init) })
    }

    /// A lease of the slot at `index`, if this incarnation still has one.
    #[inline]
    #[must_use]
    pub fn upgrade(&self, index: u16, incarnation: u64) -> Option<Lease<T>> {
        self.root().shelf.upgrade(usize::from(index), Some(incarnation))
    }

    /// A lease of the slot at `index`, if it has one, whoever the occupant is.
    #[inline]
    #[must_use]
    pub fn upgrade_live(&self, index: u16) -> Option<Lease<T>> {
        self.root().shelf.upgrade(usize::from(index), None)
    }
}

impl<T: Occupant, C> Clone for Anchor<T, C> {
    /// # Panics
    ///
    /// If there are 65,535 anchors.
    fn clone(&self) -> Self {
        // SAFETY: M7 (this anchor keeps the root).
        unsafe { anchor(self.root) }
    }
}

/// Counts one more anchor. It is made of the pointer that the allocation gave, not of a reference: the last one frees by
/// it.
///
/// # Safety
///
/// The caller holds the root by an anchor or a pin.
unsafe fn anchor<T: Occupant, C>(root: NonNull<Root<T, C>>) -> Anchor<T, C> {
    // SAFETY: M7 (the caller holds the root, by the contract of this function).
    let head = unsafe { &root.as_ref().shelf.head };
    let mut backoff = Backoff::new();
    let mut old = head.load(order::OBSERVE);
    loop {
        assert!(old & ANCHORS_MASK != ANCHORS_MASK, "an arena has at most 65,535 anchors");
        match head.compare_exchange(old, old + ANCHOR, order::STEP, order::LOST) {
            Ok(_) => return Anchor { root },
            Err(seen) => old = seen,
        }
        backoff.lost();
    }
}

impl<T: Occupant, C> Drop for Anchor<T, C> {
    fn drop(&mut self) {
        // SAFETY: M7 (this anchor is the unit given up).
        unsafe { let_go(self.root, ANCHOR, ANCHORS_MASK) };
    }
}

impl<T: Occupant, C> std::fmt::Debug for Anchor<T, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Anchor(live {} of {})", self.live(), self.slots())
    }
}

/// What a slot of a root hangs from: one unit of `live` in the head word.
pub struct RootPin<T: Occupant, C> {
    root: NonNull<Root<T, C>>,
}

// SAFETY: M7 (a counted hold, as an anchor is).
unsafe impl<T: Occupant, C: Send + Sync> Send for RootPin<T, C> {}
// SAFETY: M7 (as for `Send`).
unsafe impl<T: Occupant, C: Send + Sync> Sync for RootPin<T, C> {}

impl<T: Occupant, C> RootPin<T, C> {
    fn root(&self) -> &Root<T, C> {
        // SAFETY: M7 (the unit in `live` keeps the root).
        unsafe { self.root.as_ref() }
    }

    /// An anchor of the same root. Control path.
    ///
    /// # Panics
    ///
    /// If there are 65,535 anchors.
    #[must_use]
    pub fn anchor(&self) -> Anchor<T, C> {
        // SAFETY: M7 (this pin keeps the root).
        unsafe { anchor(self.root) }
    }
}

impl<T: Occupant, C> sealed::Sealed for RootPin<T, C> {}

impl<T: Occupant, C: Send + Sync + 'static> Pin for RootPin<T, C> {
    type Shared = C;

    const TAG_SHIFT: u32 = TAG_SHIFT;

    #[inline]
    fn shared(&self) -> &C {
        &self.root().shared
    }
}

impl<T: Occupant, C> Drop for RootPin<T, C> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: M7 (this pin is the unit given up).
        unsafe { let_go(self.root, LIVE, LIVE_MASK) };
    }
}

impl<T: Occupant, C> std::fmt::Debug for RootPin<T, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RootPin")
    }
}
