//! Counts what each thread takes from the heap. A thread's own cell, so that counting costs no locked step and peers that
//! allocate are not made slower than they are.
#![allow(unsafe_code, reason = "a global allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counted.
#[derive(Debug)]
pub(super) struct Counting;

fn count() {
    TAKEN.with(|taken| taken.set(taken.get() + 1));
}

/// Blocks that this thread has taken since it began, growing included.
pub(super) fn taken() -> u64 {
    TAKEN.with(Cell::get)
}

// SAFETY: every call goes to the system's allocator as it came; counting takes no memory and cannot unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout` is the one that is asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout` is the one that is asked for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises about `block`, `layout` and `size` are the ones that are asked for.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Does what is not measured: what it takes is not counted.
pub(super) fn aside<T>(preparation: impl FnOnce() -> T) -> T {
    let before = taken();
    let value = preparation();
    restore(before);
    value
}

/// Sets this thread's count to what it was.
pub(super) fn restore(count: u64) {
    TAKEN.with(|taken| taken.set(count));
}
