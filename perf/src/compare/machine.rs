//! What this machine costs at the least: one locked step (R), the clock, and how far two threads that share nothing get.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Cache};

use super::measure::{Group, Part, Subject, looped, part};

/// Name of the subject that gives R.
pub(super) const LOCKED_STEP: &str = "one locked step (R)";

/// Name of the control beside every row of two threads.
pub(super) const CONTROL: &str = "control: memset of own 64 KiB";

pub(super) fn group() -> Group {
    let word = Box::new(AtomicU64::new(0));
    let shared = ArcSwap::from_pointee(7_u64);
    let published = Arc::new(ArcSwap::from_pointee(7_u64));
    let mut cached = Cache::new(published);
    Group {
        key: "machine",
        title: "the machine, and reading an epoch",
        note: "Ours reads its epochs inside admit and dispatch; it has no such call of its own.",
        subjects: vec![
            Subject::peer(
                LOCKED_STEP,
                "",
                looped(move || {
                    black_box(word.fetch_add(1, Ordering::AcqRel));
                }),
            ),
            Subject::peer(
                "Instant::now",
                "",
                looped(|| {
                    black_box(Instant::now());
                }),
            ),
            Subject::peer(
                "arc-swap load",
                "no count of who uses it",
                looped(move || drop(black_box(shared.load()))),
            ),
            Subject::peer(
                "arc-swap Cache::load",
                "no count of who uses it",
                looped(move || {
                    black_box(cached.load());
                }),
            ),
        ],
    }
}

/// Two threads that share nothing: where its scale is below 2, the machine is what is measured.
pub(super) fn control() -> Subject {
    let parts = [(), ()].map(|()| -> Part {
        let mut block = vec![1_u8; 64 << 10];
        part(move || black_box(block.as_mut_slice()).fill(0))
    });
    Subject::peer_twice(CONTROL, "", parts)
}
