//! A global allocator that counts between two marks.
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: support::alloc::Counting = support::alloc::Counting;
//!
//! let window = Window::open(Whose::AllThreads);
//! hot_path();
//! assert_eq!(window.close(), Counts::NONE);
//! ```
//!
//! [`Whose::AllThreads`] sees the test runner's own threads too, so a binary that uses it holds one `#[test]` and
//! runs its scenarios inside it. In a binary of several tests, [`Whose::Watched`] counts only the threads that are
//! inside a [`watch`].
//!
//! `LATENT_ALLOC_TRAP=1` prints where the first counted allocation or deallocation of each window comes from.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The allocator: the system's, and a look at whether a window is open.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

/// Which threads a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Whose {
    /// Every thread of the process.
    AllThreads = 1,
    /// The threads that are inside a [`watch`].
    Watched = 2,
}

/// What was counted. A reallocation is one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks taken.
    pub allocations: u64,
    /// Blocks given back.
    pub deallocations: u64,
    /// Bytes of the blocks taken.
    pub bytes: u64,
}

impl Counts {
    /// Nothing at all.
    pub const NONE: Self = Self { allocations: 0, deallocations: 0, bytes: 0 };
}

/// 0, or the open window's [`Whose`].
static OPEN: AtomicU8 = AtomicU8::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static DEALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static TRAP: AtomicBool = AtomicBool::new(false);
static ONE_WINDOW: Mutex<()> = Mutex::new(());

// Both are constants without a destructor: reading them from inside the allocator never allocates.
thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static PRINTING: Cell<bool> = const { Cell::new(false) };
}

/// The time between two marks. One window is open at a time; a second one waits for it.
#[derive(Debug)]
pub struct Window {
    only: MutexGuard<'static, ()>,
}

impl Window {
    /// Starts to count.
    pub fn open(whose: Whose) -> Self {
        let only = ONE_WINDOW.lock().unwrap_or_else(PoisonError::into_inner);
        let trap = std::env::var_os("LATENT_ALLOC_TRAP").is_some();
        for counter in [&ALLOCATIONS, &DEALLOCATIONS, &BYTES] {
            counter.store(0, SeqCst);
        }
        TRAP.store(trap, SeqCst);
        OPEN.store(whose as u8, SeqCst);
        Self { only }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        Counts {
            allocations: ALLOCATIONS.load(SeqCst),
            deallocations: DEALLOCATIONS.load(SeqCst),
            bytes: BYTES.load(SeqCst),
        }
    }

    /// Stops to count.
    pub fn close(self) -> Counts {
        OPEN.store(0, SeqCst);
        self.counts()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        OPEN.store(0, SeqCst);
    }
}

/// Counts what this thread does in a window of [`Whose::Watched`], until it is dropped.
#[derive(Debug)]
pub struct Watch {
    before: bool,
    this_thread_only: PhantomData<*const ()>,
}

/// Watches this thread.
pub fn watch() -> Watch {
    Watch { before: WATCHED.replace(true), this_thread_only: PhantomData }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.set(self.before);
    }
}

/// Runs `work` on this thread and counts what it, and it alone, took and gave back.
pub fn count_on_this_thread<R>(work: impl FnOnce() -> R) -> (R, Counts) {
    let window = Window::open(Whose::Watched);
    let watch = watch();
    let result = work();
    drop(watch);
    (result, window.close())
}

fn counted() -> bool {
    match OPEN.load(SeqCst) {
        0 => false,
        whose if whose == Whose::AllThreads as u8 => true,
        _ => WATCHED.get(),
    }
}

fn count(allocations: u64, deallocations: u64, bytes: usize) {
    if !counted() || PRINTING.get() {
        return;
    }
    ALLOCATIONS.fetch_add(allocations, SeqCst);
    DEALLOCATIONS.fetch_add(deallocations, SeqCst);
    BYTES.fetch_add(bytes as u64, SeqCst);
    if TRAP.swap(false, SeqCst) {
        PRINTING.set(true);
        eprintln!("counted: {allocations} taken, {deallocations} given back\n{}", Backtrace::force_capture());
        PRINTING.set(false);
    }
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, 0, layout.size());
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, 0, layout.size());
        // SAFETY: the caller keeps what `alloc_zeroed` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, 1, size);
        // SAFETY: the caller keeps what `realloc` asks for.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, 1, 0);
        // SAFETY: the caller keeps what `dealloc` asks for.
        unsafe { System.dealloc(block, layout) }
    }
}
