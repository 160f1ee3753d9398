//! A global allocator that looks at blocks of one odd size when they are freed: was what they held wiped before?
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use super::alloc::Counting;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How long a secret is that is looked for: a size that nothing else has.
pub const SECRET: usize = 4_093;

static FREED: AtomicU64 = AtomicU64::new(0);
static UNWIPED: AtomicU64 = AtomicU64::new(0);

/// The allocator: [`Counting`], and a look at blocks of [`SECRET`] bytes.
#[derive(Clone, Copy, Debug)]
pub struct Searching;

/// Blocks of that size that were freed so far, and those of them that were not all zero at that moment.
pub fn freed() -> (u64, u64) {
    (FREED.load(SeqCst), UNWIPED.load(SeqCst))
}

fn look(block: *mut u8, layout: Layout) {
    if layout.size() == SECRET {
        let is_zero = |offset| {
            let byte = block.wrapping_add(offset);
            // SAFETY: the block is the caller's to free, so it may be read to its end.
            let byte = unsafe { byte.read_volatile() };
            byte == 0
        };
        UNWIPED.fetch_add(u64::from(!(0..SECRET).all(is_zero)), SeqCst);
        FREED.fetch_add(1, SeqCst);
    }
}

// SAFETY: every call is passed on as it came.
unsafe impl GlobalAlloc for Searching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { Counting.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps what `alloc_zeroed` asks for.
        unsafe { Counting.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        look(block, layout);
        // SAFETY: the caller keeps what `realloc` asks for.
        unsafe { Counting.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        look(block, layout);
        // SAFETY: the caller keeps what `dealloc` asks for.
        unsafe { Counting.dealloc(block, layout) }
    }
}
