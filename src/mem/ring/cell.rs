//! The cell that holds the waker of a parked end. See R5 of the ring.

use std::mem::MaybeUninit;
use std::task::Waker;

use super::word::{End, Word};
use super::{RingSlot, order};
use crate::foreign::foreign;
use crate::sync::Hollow;
use crate::sync::atomic::AtomicBool;

/// Moves an item out of its cell.
///
/// A handle of two words was written as two words. Read at once, as the compiler would, it could not be passed on from the
/// writes that are still under way, if both ends are on one core: that would cost more than all the rest of a pop. So each word is
/// read for itself.
///
/// # Safety
///
/// The cell holds an item, which is the caller's, and is not read again.
#[inline]
pub(super) unsafe fn take_out<T>(cell: *const MaybeUninit<T>) -> T {
    type Part = MaybeUninit<u64>;
    if size_of::<T>() != 2 * size_of::<Part>() || align_of::<T>() != align_of::<Part>() {
        // SAFETY: R2: by the contract of this function.
        return unsafe { cell.cast::<T>().read() };
    }
    let from = cell.cast::<Part>();
    // SAFETY: R2: the first half of the cell; any bytes are a valid `Part`.
    let first = unsafe { from.read_volatile() };
    // SAFETY: R2: the second half of the cell, which is two parts long.
    let second = unsafe { from.wrapping_add(1).read_volatile() };
    let mut item = MaybeUninit::<T>::uninit();
    // SAFETY: R2: an item is two parts long and aligned as they are.
    unsafe { item.as_mut_ptr().cast::<[Part; 2]>().write([first, second]) };
    // SAFETY: R2: these are all the bytes of the item, by the contract of this function.
    unsafe { item.assume_init() }
}

/// One waker, guarded by a PARKED bit of the ring's word and by `full`.
///
/// `full` is why a wake costs no second read-modify-write: the waker side turns PARKED off in the step that changes the
/// condition, moves the waker out, and says so with a plain store.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug)]
pub(super) struct WakerCell {
    full: AtomicBool,
    waker: Hollow<Waker>,
}

impl WakerCell {
    pub(super) fn empty() -> Self {
        Self { full: AtomicBool::new(false), waker: Hollow::empty() }
    }

    /// Whether somebody still moves the last waker out. Asked by the waiter, while PARKED is off.
    fn is_being_emptied(&self) -> bool {
        self.full.load(order::OBSERVE)
    }

    /// Puts the waiter's waker in.
    ///
    /// # Safety
    ///
    /// The caller is the waiter, PARKED is off, and the cell is not being emptied.
    unsafe fn put(&self, waker: Waker) {
        // SAFETY: R5: nobody else touches the cell by the contract of this function.
        self.waker.with_mut(|cell| unsafe { *cell = MaybeUninit::new(waker) });
        self.full.store(true, order::COUNT);
    }

    /// Moves the waker out.
    ///
    /// # Safety
    ///
    /// The caller turned PARKED off, or put the waker in and did not turn PARKED on.
    pub(super) unsafe fn take(&self) -> Waker {
        // SAFETY: R5: the waker was put in before PARKED was turned on, and nobody writes before `full` is off.
        let waker = self.waker.with(|cell| unsafe { cell.cast::<Waker>().read() });
        self.full.store(false, order::PUBLISH);
        waker
    }

    /// Moves the waker out and wakes it, as the last thing a call does.
    ///
    /// # Safety
    ///
    /// As for [`Self::take`].
    #[cold]
    pub(super) unsafe fn take_and_wake(&self) {
        // SAFETY: R5: by the contract of this function.
        let waker = unsafe { self.take() };
        if let Err(panic) = foreign(|| waker.wake()) {
            panic.resume();
        }
    }

    /// Whether the waker in the cell and `waker` wake the same task.
    ///
    /// # Safety
    ///
    /// The caller is the waiter, put a waker in, and did not take it out since. Somebody else may have moved it out.
    unsafe fn holds(&self, waker: &Waker) -> bool {
        // SAFETY: R5: only the waiter writes the cell. If the waker was moved out, its bits still stand here, and they are
        // only compared.
        self.waker.with(|cell| unsafe { &*cell.cast::<Waker>() }.will_wake(waker))
    }
}

impl<T, X> RingSlot<T, X> {
    /// Parks the waiter of `end`, by a step from a word that `waits`. False: there is none. True: `waker` will be woken, or was.
    ///
    /// # Safety
    ///
    /// The caller is the open end `end`, exclusively.
    pub(super) unsafe fn park(&self, end: End, waker: &Waker, waits: impl Fn(Word) -> bool) -> bool {
        let cell = self.waker(end);
        let mut word = self.look();
        let _replaced = if word.is_parked(end) {
            // SAFETY: R5: PARKED is on, so the waiter, which is the caller, put its waker in.
            if unsafe { cell.holds(waker) } {
                return true;
            }
            match self.step(word, |word| word.is_parked(end).then(|| word.unparked(end))) {
                Ok((_, now)) => {
                    word = now;
                    // SAFETY: R5: the step turned PARKED off.
                    Some(unsafe { cell.take() })
                }
                Err(now) => {
                    word = now;
                    None
                }
            }
        } else {
            None
        };
        if !waits(word) {
            return false;
        }
        if cell.is_being_emptied() {
            // The wake that goes on is for the waker of the last time; this one may be another task's.
            if let Err(panic) = foreign(|| waker.wake_by_ref()) {
                panic.resume();
            }
            return true;
        }
        let waker = waker.clone();
        // SAFETY: R5: the caller is the waiter, PARKED is off (only the caller turns it on), the cell is not being emptied.
        unsafe { cell.put(waker) };
        let parked = self.step(word, |word| waits(word).then(|| word.parked(end)));
        if parked.is_err() {
            // SAFETY: R5: put in above, and PARKED was not turned on.
            drop(unsafe { cell.take() });
        }
        parked.is_ok()
    }

    /// Takes the waiter's waker back. False: there is none, or somebody took it to wake it.
    ///
    /// # Safety
    ///
    /// The caller is the open end `end`, exclusively.
    pub(super) unsafe fn unpark(&self, end: End) -> bool {
        let word = self.look();
        if !word.is_parked(end) {
            return false;
        }
        let unparked = self.step(word, |word| word.is_parked(end).then(|| word.unparked(end)));
        if unparked.is_ok() {
            // SAFETY: R5: the step turned PARKED off.
            drop(unsafe { self.waker(end).take() });
        }
        unparked.is_ok()
    }
}
