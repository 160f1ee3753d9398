//! The only door to atomics, cells, tables and everything else that a model checker must see.
//!
//! Outside `--cfg loom` these are the types of `std` and zero pages from the system. Under `--cfg loom` they are loom's
//! doubles, so that the models in `loom-tests/` run the real code of the floors above. No other file of the library
//! names `std::sync::atomic`, `core::cell` or `loom`.
//!
//! Memory orders have names here, by the part they play, and are spelled nowhere else. Each can be weakened by a build flag
//! (`--cfg weaken="step"` and so on) at all of its places at once. The model named beside it must then fail, which shows that
//! the order is needed and that the models look at it; `.ci/stage-orders.sh` runs them.

/// Atomic integers, and the fence.
pub mod atomic {
    #[cfg(loom)]
    pub use super::doubles::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
    #[cfg(not(loom))]
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
}

#[cfg(loom)]
mod doubles;
#[cfg(loom)]
pub use doubles::loads_are_steps;

/// Memory orders by role.
pub mod order {
    use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

    const fn weakened(weaken: bool, order: Ordering) -> Ordering {
        if weaken { Relaxed } else { order }
    }

    /// A step of a state word: a read-modify-write that decides something, hands something over, or takes it.
    ///
    /// * weaken `step` to `Relaxed`: `turn::post_vs_leave` fails
    /// * weaken `step_gives` to `Acquire`, so that nothing is given: `park::park_vs_change` fails
    /// * weaken `step_takes` to `Release`, so that nothing is taken: `turn::post_vs_leave` fails
    pub const STEP: Ordering = match () {
        () if cfg!(weaken = "step_gives") => Acquire,
        () if cfg!(weaken = "step_takes") => Release,
        () => weakened(cfg!(weaken = "step"), AcqRel),
    };
    /// A load that acts on what another thread's step handed over.
    ///
    /// * weaken `observe` to `Relaxed`: `ring::spsc_order` fails
    pub const OBSERVE: Ordering = weakened(cfg!(weaken = "observe"), Acquire);
    /// A store, or a step that only gives: what was written before is seen by whoever observes it.
    ///
    /// * weaken `publish` to `Relaxed`: `line::enqueue_meets_release` fails
    pub const PUBLISH: Ordering = weakened(cfg!(weaken = "publish"), Release);
    /// Nothing but the number itself is asked. There is nothing to weaken.
    pub const COUNT: Ordering = Relaxed;
    /// The load of a step that lost its race; the loop looks at the value again.
    ///
    /// * weaken `lost` to `Relaxed`: `arena::free_list_aba` fails
    pub const LOST: Ordering = weakened(cfg!(weaken = "lost"), Acquire);
}

/// What zero pages are a valid value of. `#[derive(Zero)]` derives it in both worlds: `bytemuck::Zeroable` outside loom,
/// `Default` under loom, whose doubles are not made of zeros.
#[cfg(not(loom))]
pub use bytemuck::Zeroable as Zero;
/// What zero pages are a valid value of; under loom, what has a default.
#[cfg(loom)]
pub use std::default::Default as Zero;

/// A cell whose accesses loom can see. The closures get raw pointers; only `mem/` may follow them.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[cfg_attr(not(loom), repr(transparent))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct UnsafeCell<T>(inner::UnsafeCell<T>);

#[cfg(loom)]
use loom::cell as inner;
#[cfg(not(loom))]
use std::cell as inner;

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(inner::UnsafeCell::new(value))
    }

    /// A read access: nobody may write while `f` runs.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        #[cfg(loom)]
        return self.0.with(f);
        #[cfg(not(loom))]
        f(self.0.get().cast_const())
    }

    /// A write access: nobody else may read or write while `f` runs.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(loom)]
        return self.0.with_mut(f);
        #[cfg(not(loom))]
        f(self.0.get())
    }
}

/// A cell that may be empty and does not know whether it is: a bit elsewhere says so. Zero pages are empty cells.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[cfg_attr(not(loom), zeroable(bound = ""))]
#[cfg_attr(not(loom), repr(transparent))]
pub struct Hollow<T>(UnsafeCell<std::mem::MaybeUninit<T>>);

impl<T> Hollow<T> {
    /// An empty cell.
    #[must_use]
    pub fn empty() -> Self {
        Self(UnsafeCell::new(std::mem::MaybeUninit::uninit()))
    }

    /// A read access; see [`UnsafeCell::with`].
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const std::mem::MaybeUninit<T>) -> R) -> R {
        self.0.with(f)
    }

    /// A write access; see [`UnsafeCell::with_mut`].
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut std::mem::MaybeUninit<T>) -> R) -> R {
        self.0.with_mut(f)
    }
}

impl<T> Default for Hollow<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T> std::fmt::Debug for Hollow<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hollow")
    }
}

/// A table of fixed length. Its pages come zeroed from the system and are committed when first touched, so a long table
/// costs address space, not memory. (Keep `T` aligned to 16 bytes at most: a zeroed box above that is written at once.)
#[derive(Debug)]
pub struct Table<T>(Box<[T]>);

impl<T: Zero> Table<T> {
    /// A table of `length` zero elements. Allocates; aborts like any allocation if there is no address space.
    #[must_use]
    pub fn new(length: usize) -> Self {
        const { assert!(align_of::<T>() <= 16, "a zeroed table of this alignment would be written at once") };
        #[cfg(loom)]
        return Self((0..length).map(|_| T::default()).collect());
        #[cfg(not(loom))]
        Self(bytemuck::allocation::zeroed_slice_box(length))
    }
}

impl<T> std::ops::Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> std::ops::DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// A [`Table`] of a length that is known when it is compiled: an index that cannot reach the end is not compared with it.
#[derive(Debug)]
pub struct Rows<T, const LENGTH: usize>(Box<[T; LENGTH]>);

impl<T: Zero, const LENGTH: usize> Rows<T, LENGTH> {
    /// Zero elements. Allocates as [`Table::new`] does.
    #[must_use]
    pub fn new() -> Self {
        match Table::new(LENGTH).0.try_into() {
            Ok(rows) => Self(rows),
            Err(_) => unreachable!("the table has this length"),
        }
    }
}

impl<T: Zero, const LENGTH: usize> Default for Rows<T, LENGTH> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const LENGTH: usize> std::ops::Deref for Rows<T, LENGTH> {
    type Target = [T; LENGTH];

    #[inline]
    fn deref(&self) -> &[T; LENGTH] {
        &self.0
    }
}

/// A value with a gap behind it, so that neighbours in a [`Table`] start at least 128 bytes apart and no two of them
/// share a cache line. Aligned like its value: see [`Table`] for why it is not aligned to 128.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
#[repr(C)]
pub struct Line<T> {
    value: T,
    gap: [u64; 15],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line<u64>>() == 128);

impl<T> Line<T> {
    /// A line that holds `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self { value, gap: [0; 15] }
    }
}

impl<T> std::ops::Deref for Line<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

/// A value on cache lines of its own: who writes it disturbs nobody beside it. (Not for a [`Table`]: see there.)
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Apart<T>(pub T);

const _: () = assert!(size_of::<Apart<u8>>() == 64 && align_of::<Apart<u8>>() == 64);

/// A number that is only looked at: it decides nothing and is no meeting point, so loom need not see it.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(std::sync::atomic::AtomicU64);

impl Counter {
    /// Counts `more`.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, order::COUNT);
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(order::COUNT)
    }

    /// Raises the number to `at_least`; gives what it is then.
    #[inline]
    pub fn raise(&self, at_least: u64) -> u64 {
        self.0.fetch_max(at_least, order::COUNT).max(at_least)
    }

    /// Makes it this number.
    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, order::COUNT);
    }

    /// Counts one, for whoever is the only one to write here: no step, a load and a store.
    #[inline]
    pub fn add_alone(&self) {
        self.0.store(self.get() + 1, order::COUNT);
    }
}

/// The number of the calling thread, given to it when it first asks: threads that ask one after another have neighbouring
/// numbers. For spreading [`Counter`]s, not for telling threads apart. Allocates nothing.
#[inline]
#[must_use]
pub fn thread_number() -> usize {
    use std::cell::Cell;
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, order::COUNT));
        }
        number.get()
    })
}

/// Instead of a number of spins: nothing was lost yet but perhaps a guess.
#[cfg(not(loom))]
const GUESSED: u32 = u32::MAX;

/// What a compare-and-swap loop does after it lost a race: spin hints, twice as many each time, at most 64.
///
/// Under loom it does nothing: a loop that goes on from the value it lost to ends by itself, and a yield would hide
/// schedules from the search.
#[derive(Debug, Default)]
pub struct Backoff {
    #[cfg(not(loom))]
    spins: u32,
}

impl Backoff {
    /// No race lost yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            #[cfg(not(loom))]
            spins: 0,
        }
    }

    /// The same for a loop that begins with a value it guesses: the first loss is the guess's, not another thread's.
    #[must_use]
    pub const fn after_a_guess() -> Self {
        Self {
            #[cfg(not(loom))]
            spins: GUESSED,
        }
    }

    /// A race was lost.
    #[inline]
    pub fn lost(&mut self) {
        #[cfg(not(loom))]
        {
            self.spins = spins_after(self.spins);
        }
    }
}

/// Out of the way of loops that lose no race: it keeps their registers free of its numbers.
#[cfg(not(loom))]
#[cold]
#[inline(never)]
fn spins_after(spins: u32) -> u32 {
    if spins == GUESSED {
        return 0;
    }
    let spins = if spins == 0 { 1 } else { (spins * 2).min(64) };
    for _ in 0..spins {
        std::hint::spin_loop();
    }
    spins
}

/// One turn of a loop that waits for another thread, which is about to get on. On the way of a request there is no such loop.
pub fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Threads and shared ownership, as models need them.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::{JoinHandle, spawn, yield_now};
    #[cfg(not(loom))]
    pub use std::thread::{JoinHandle, spawn, yield_now};
}

#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::Arc;

/// A number that this process gives out once. Control path: it names tables, so that a token of one is refused by
/// another. Not a meeting point of threads, so loom need not see it.
#[must_use]
pub fn unique() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, order::COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_lines_is_zero_and_128_bytes_apart() {
        let table: Table<Line<atomic::AtomicU64>> = Table::new(3);
        assert_eq!(table.len(), 3);
        assert!(table.iter().all(|line| line.load(order::COUNT) == 0));
        let (first, second) = (&raw const *table[0], &raw const *table[1]);
        assert_eq!(second.addr() - first.addr(), 128);
    }

    #[test]
    fn unique_numbers_differ() {
        assert_ne!(unique(), unique());
    }

    #[test]
    fn a_backoff_is_bounded() {
        let mut backoff = Backoff::new();
        for _ in 0..100 {
            backoff.lost();
        }
        #[cfg(not(loom))]
        assert_eq!(backoff.spins, 64);
    }
}
