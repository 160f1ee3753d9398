//! Tests of the blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

fn blocks() -> Blocks<u64> {
    Blocks::with_counts(&[4, 2, 2]).expect("a few kilobytes of address space exist")
}

fn fill(blocks: &Blocks<u64>, block: &mut Block, range: Range<usize>) {
    blocks.bytes_mut(block, range).fill(0xA5);
}

#[test]
fn a_request_gets_the_smallest_class_that_holds_it() {
    let blocks = blocks();
    for (bytes, size) in
        [(0, 512), (1, 512), (512, 512), (513, 1_024), (1_024, 1_024), (1_025, 2_048), (2_048, 2_048)]
    {
        assert_eq!(Blocks::<u64>::rounded(bytes), size);
        let block = blocks.take(bytes).expect("a class with free blocks");
        assert_eq!(blocks.capacity(&block), size);
        assert_eq!(blocks.bytes(&block).len(), size);
        blocks.give(block);
    }
    assert_eq!(blocks.take(2_049), None);
    assert_eq!(blocks.take(usize::MAX), None);
}

#[test]
fn the_limits_give_the_number_of_each_class() {
    let blocks: Blocks<u64> = Blocks::new(60_000, 1_000, 1 << 20).expect("6 MiB of address space exist");
    let counts: Vec<_> =
        blocks.classes.iter().map(|class| (class.size, class.links.len() as usize)).collect();
    let expected: Vec<_> =
        (9..=16).map(|shift| (1 << shift, 1_000.min((1 << 20) / (1 << shift)) + SPARE)).collect();
    assert_eq!(counts, expected);
}

#[test]
fn a_class_gives_each_block_once_and_then_none() {
    let blocks = blocks();
    let mut taken: Vec<_> = std::iter::from_fn(|| blocks.take(512)).collect();
    assert_eq!(taken.len(), 4);
    for (mark, block) in taken.iter_mut().enumerate() {
        blocks.bytes_mut(block, 0..512).fill(u8::try_from(mark + 1).expect("four blocks"));
        *blocks.meta_mut(block) = mark as u64;
    }
    for (mark, block) in taken.iter().enumerate() {
        assert!(blocks.bytes(block).iter().all(|&byte| usize::from(byte) == mark + 1), "blocks overlap");
        assert_eq!(*blocks.meta(block), mark as u64);
    }
    let last = taken.pop().expect("four were taken");
    let number = last.number();
    blocks.give(last);
    assert_eq!(blocks.take(1).map(|block| block.number()), Some(number), "the last given comes first");
}

#[test]
fn a_block_comes_back_zero_over_exactly_what_was_exposed() {
    let blocks = blocks();
    let mut block = blocks.take(2_048).expect("free");
    fill(&blocks, &mut block, 0..7);
    fill(&blocks, &mut block, 100..1_000);
    fill(&blocks, &mut block, 3..50);
    // A mark beyond what was exposed, as only a bug could leave it: the wipe leaves it, and the scan finds it.
    let (class, number) = blocks.find(&block);
    let poke = |byte| {
        // SAFETY: B3: one thread, and no slice of the block lives.
        unsafe { class.pages.bytes_mut(number as usize * class.size + 1_000, 1) }.fill(byte);
    };
    poke(1);
    blocks.give(block);
    assert_eq!(blocks.scan(), Scan { free: 8, total: 8, dirty: 1 });
    let block = blocks.take(2_048).expect("free");
    let expected: Vec<u8> = (0..2_048).map(|at| u8::from(at == 1_000)).collect();
    assert_eq!(blocks.bytes(&block), expected);
    poke(0);
    blocks.give(block);
    assert!(blocks.scan().dirty == 0);
}

#[test]
fn reading_exposes_nothing_and_the_scan_leaves_the_order_alone() {
    let blocks = blocks();
    let (mut first, second) = (blocks.take(512).expect("free"), blocks.take(512).expect("free"));
    assert!(blocks.bytes(&second).iter().all(|&byte| byte == 0));
    assert!(blocks.bytes_mut(&mut first, 9..9).is_empty());
    assert_eq!(blocks.scan(), Scan { free: 6, total: 8, dirty: 0 });
    let numbers = [first.number(), second.number()];
    blocks.give(first);
    blocks.give(second);
    assert_eq!(blocks.scan(), Scan { free: 8, total: 8, dirty: 0 });
    let again = [blocks.take(512), blocks.take(512)].map(|block| block.expect("free").number());
    assert_eq!(again, [numbers[1], numbers[0]]);
}

#[test]
fn a_block_of_other_blocks_is_refused() {
    let (ours, theirs) = (blocks(), blocks());
    let mut block = theirs.take(512).expect("free");
    let refused = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
    assert!(refused(&mut || assert_eq!(ours.bytes(&block).len(), 512)));
    assert!(refused(&mut || ours.bytes_mut(&mut block, 0..1).fill(1)));
    assert!(refused(&mut || assert_eq!(*ours.meta(&block), 0)));
    assert!(refused(&mut || ours.give(Block(block.0))));
    theirs.give(block);
    assert_eq!((ours.scan().free, theirs.scan().free), (8, 8));
}

#[test]
#[should_panic(expected = "a range outside of its block")]
fn a_range_outside_of_its_block_is_refused() {
    let blocks = blocks();
    let mut block = blocks.take(512).expect("free");
    let _ = blocks.bytes_mut(&mut block, 0..513);
}

#[test]
fn a_purge_moves_what_is_not_used_again() {
    let blocks: Blocks<u64> = Blocks::with_counts(&[1, 1, 1, 8]).expect("32 KiB of address space exist");
    let use_up = |count| {
        let taken: Vec<_> = (0..count).map(|_| blocks.take(4_096).expect("free")).collect();
        for mut block in taken {
            fill(&blocks, &mut block, 0..4_096);
            blocks.give(block);
        }
    };
    assert_eq!(blocks.purge(64).expect("pages go back"), Purged { blocks: 0, more: false });
    use_up(6);
    assert_eq!(blocks.purge(4).expect("pages go back"), Purged { blocks: 0, more: true }, "it was growing");
    assert_eq!(blocks.purge(4).expect("pages go back"), Purged { blocks: 4, more: true });
    use_up(2);
    assert_eq!(
        blocks.purge(4).expect("pages go back"),
        Purged { blocks: 2, more: false },
        "two warm were enough"
    );
    assert_eq!(blocks.purge(4).expect("pages go back"), Purged { blocks: 0, more: false });
    assert_eq!(blocks.scan(), Scan { free: 11, total: 11, dirty: 0 });
    use_up(8);
    assert!(blocks.scan().dirty == 0);
}

/// Each block is in use once while all others go back to the system.
#[test]
fn a_purge_leaves_what_is_in_use_alone() {
    let blocks: Blocks<u64> = Blocks::with_counts(&[1, 1, 1, 1, 5]).expect("40 KiB of address space exist");
    for used in 0..5 {
        let mut taken: Vec<_> = std::iter::from_fn(|| blocks.take(8_192)).collect();
        assert_eq!(taken.len(), 5);
        let place = taken.iter().position(|block| block.number() == used).expect("each is taken");
        for block in &mut taken {
            fill(&blocks, block, 0..8_192);
        }
        let kept = taken.swap_remove(place);
        taken.into_iter().for_each(|block| blocks.give(block));
        let purged: usize = (0..3).map(|_| blocks.purge(64).expect("pages go back").blocks).sum();
        assert_eq!(purged, 4);
        assert!(blocks.bytes(&kept).iter().all(|&byte| byte == 0xA5), "block {used} was in use");
        blocks.give(kept);
    }
}

#[test]
fn blocks_wander_between_threads_and_stay_exclusive() {
    let blocks: Blocks<u64> = Blocks::with_counts(&[1, 1, 1, 3]).expect("16 KiB of address space exist");
    let rounds: u64 = if cfg!(miri) { 20 } else { 20_000 };
    std::thread::scope(|scope| {
        for thread in 1..=3_u64 {
            let blocks = &blocks;
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut block = blocks
                        .take(4_096)
                        .expect("three threads, three blocks, and the purge holds one at most");
                    assert_eq!(blocks.bytes(&block)[..16], [0; 16]);
                    let mark = (thread << 32 | round).to_le_bytes();
                    blocks.bytes_mut(&mut block, 0..8).copy_from_slice(&mark);
                    *blocks.meta_mut(&mut block) = thread;
                    assert_eq!((&blocks.bytes(&block)[..8], *blocks.meta(&block)), (&mark[..], thread));
                    blocks.give(block);
                }
            });
        }
    });
    assert_eq!(blocks.scan(), Scan { free: 6, total: 6, dirty: 0 });
}

#[test]
fn a_purge_beside_takes_never_makes_one_fail() {
    let blocks: Blocks<u64> = Blocks::with_counts(&[1, 1, 1, 3]).expect("16 KiB of address space exist");
    let rounds = if cfg!(miri) { 20 } else { 5_000 };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let mut block = blocks.take(4_096).expect("two in use, one with the purge: three in all");
                    assert!(blocks.bytes(&block).iter().all(|&byte| byte == 0));
                    fill(&blocks, &mut block, 0..4_096);
                    blocks.give(block);
                }
            });
        }
        for _ in 0..rounds {
            blocks.purge(64).expect("pages go back");
        }
    });
    assert_eq!(blocks.scan(), Scan { free: 6, total: 6, dirty: 0 });
}

#[cfg(all(target_os = "linux", not(miri)))]
mod resident {
    use super::*;

    /// Resident kilobytes of these pages and of no others: the system merges neighbouring mappings into one, so it is asked
    /// page by page.
    fn resident(pages: &crate::mem::blocks::pages::Pages) -> usize {
        use std::os::unix::fs::FileExt;
        const ENTRY: usize = 8;
        let file = std::fs::File::open("/proc/self/pagemap").expect("Linux has /proc/self/pagemap");
        let mut entries = vec![0; pages.length() / 4096 * ENTRY];
        let at = (pages.address() / 4096 * ENTRY) as u64;
        file.read_exact_at(&mut entries, at).expect("every page has an entry");
        let present = |entry: &[u8]| entry[ENTRY - 1] & 0x80 != 0;
        entries.chunks_exact(ENTRY).filter(|entry| present(entry)).count() * 4
    }

    #[test]
    fn pages_are_committed_when_touched_and_return_after_a_burst() {
        let count = 512;
        let blocks: Blocks<u64> =
            Blocks::with_counts(&[1, 1, 1, 1, 1, 1, 1, count]).expect("32 MiB of address space exist");
        let pages = &blocks.classes[7].pages;
        assert!(resident(pages) < 4 * 1_024, "nothing was touched yet");
        let taken: Vec<_> = (0..count).map(|_| blocks.take(65_536).expect("free")).collect();
        assert!(resident(pages) < 4 * 1_024, "a take touches no page");
        for mut block in taken {
            fill(&blocks, &mut block, 0..65_536);
            blocks.give(block);
        }
        assert!(resident(pages) > 24 * 1_024, "32 MiB were written");
        while blocks.purge(64).expect("pages go back").more {}
        assert!(resident(pages) < 8 * 1_024, "the burst is over");
        assert!(blocks.scan().dirty == 0);
    }

    #[test]
    fn the_ceilings_cost_address_space_only() {
        let started = std::time::Instant::now();
        let blocks: Blocks<[u64; 3]> =
            Blocks::new(LARGEST, 65_536, 512 << 20).expect("5 GiB of address space exist");
        assert!(started.elapsed() < std::time::Duration::from_secs(1));
        for class in &blocks.classes {
            assert!(resident(&class.pages) < 16 * 1_024, "class of {} bytes", class.size);
        }
        let block = blocks.take(LARGEST).expect("free");
        blocks.give(block);
    }
}
