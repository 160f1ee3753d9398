//! A cell that is filled once while it is shared, and emptied while it is not.
//!
//! ```text
//!   EMPTY ── put: exchange ──▶ FILLING ── written: store ──▶ FULL ── take(&mut) ──▶ EMPTY
//! ```
//!
//! * **K1.** The cell is written by whoever moved the state from EMPTY to FILLING, and by nobody else.
//! * **K2.** FULL is set after the write; shared readers read only after they saw FULL.
//! * **K3.** It is emptied through `&mut` only.

use crate::sync::atomic::AtomicU8;
use crate::sync::{Hollow, order};

const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// Holds what a slot keeps for the time of one occupant: all zeros is empty.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable), zeroable(bound = ""))]
#[repr(C)]
pub struct Kept<T> {
    value: Hollow<T>,
    state: AtomicU8,
}

// SAFETY: K1 to K3 (a value moves in from one thread and out on another, and is shared by reference in between).
unsafe impl<T: Send + Sync> Sync for Kept<T> {}
// SAFETY: K1 to K3 (it is sent as the `T` that may be in it).
unsafe impl<T: Send> Send for Kept<T> {}

#[cfg(loom)]
impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T> Kept<T> {
    /// An empty cell.
    #[must_use]
    pub fn empty() -> Self {
        Self { value: Hollow::empty(), state: AtomicU8::new(EMPTY) }
    }

    /// Puts the value in.
    ///
    /// # Panics
    ///
    /// By way of broken accounting, if there is one.
    pub fn put(&self, value: T) {
        if self.state.compare_exchange(EMPTY, FILLING, order::STEP, order::LOST).is_err() {
            crate::broken::accounting("a cell was filled twice");
        }
        // SAFETY: K1 (the exchange made this thread the one that writes).
        self.value.with_mut(|cell| unsafe { cell.write(std::mem::MaybeUninit::new(value)) });
        self.state.store(FULL, order::PUBLISH);
    }

    /// The value, if it is there: not while another thread is still putting it in. It stays there as long as the cell is shared.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        if self.state.load(order::OBSERVE) != FULL {
            return None;
        }
        // SAFETY: K2, K3 (written before FULL was set, and emptied only through `&mut`).
        Some(self.value.with(|cell| unsafe { &*cell.cast::<T>() }))
    }

    /// Takes the value out.
    pub fn take(&mut self) -> Option<T> {
        if self.state.load(order::OBSERVE) != FULL {
            return None;
        }
        // SAFETY: K3 (`&mut` shuts everybody else out, and FULL says that it is there).
        let value = self.value.with(|cell| unsafe { cell.read() });
        self.state.store(EMPTY, order::PUBLISH);
        // SAFETY: K2 (it was written before FULL was set).
        Some(unsafe { value.assume_init() })
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> std::fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_one_value_at_a_time() {
        let mut cell: Kept<Box<u8>> = Kept::empty();
        assert!(cell.get().is_none());
        cell.put(Box::new(7));
        assert_eq!(cell.get().map(|value| **value), Some(7));
        assert_eq!(cell.take().map(|value| *value), Some(7));
        assert!(cell.get().is_none() && cell.take().is_none());
    }

    #[test]
    fn what_is_left_in_it_is_dropped_with_it() {
        let value = std::sync::Arc::new(());
        let cell = Kept::empty();
        cell.put(std::sync::Arc::clone(&value));
        assert_eq!(std::sync::Arc::strong_count(&value), 2);
        drop(cell);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}
