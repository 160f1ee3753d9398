//! Models of the byte blocks and their lists: `mem::blocks`, invariants B1 to B6, and L1 to L4 of `mem::list`. loom sees
//! the side record of each block, which every access goes by.
#![cfg(loom)]

use latent_capabilities::model::mem::blocks::{Blocks, Scan};
use latent_capabilities::model::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Preemptions(3);

fn blocks(counts: &[usize]) -> Arc<Blocks<u32>> {
    Arc::new(Blocks::with_counts(counts).expect("boxes, under loom"))
}

/// Takes a block, writes to it, and gives it back. False: there was none.
fn use_one(blocks: &Blocks<u32>, bytes: usize, mark: u32) -> bool {
    let Some(mut block) = blocks.take(bytes) else { return false };
    assert!(blocks.bytes(&block).iter().all(|&byte| byte == 0), "a block that was not wiped");
    blocks.bytes_mut(&mut block, 0..4).copy_from_slice(&mark.to_le_bytes());
    *blocks.meta_mut(&mut block) = mark;
    assert_eq!((&blocks.bytes(&block)[..4], *blocks.meta(&block)), (&mark.to_le_bytes()[..], mark));
    blocks.give(block);
    true
}

#[test]
fn two_takers_one_block() {
    check("blocks_two_takers_one_block", BOUND, || {
        let shared = blocks(&[1]);
        let blocks = shared.clone();
        let other = thread::spawn(move || use_one(&blocks, 1, 1));
        let mine = use_one(&shared, 1, 2);
        assert!(other.join().unwrap() || mine, "one of two takers finds the one block");
        assert_eq!(shared.scan(), Scan { free: 1, total: 1, dirty: 0 });
    });
}

/// One thread pops while another pops two and pushes the first again: the link that was read is out of date.
#[test]
fn a_number_comes_back_to_the_top() {
    check("blocks_number_comes_back", BOUND, || {
        let shared = blocks(&[3]);
        // All on one list: those that were never used stand on another.
        for block in [(); 3].map(|()| shared.take(1).expect("three are free")) {
            shared.give(block);
        }
        let blocks = shared.clone();
        let other = thread::spawn(move || {
            let (first, second) =
                (blocks.take(1).expect("three are free"), blocks.take(1).expect("three are free"));
            blocks.give(first);
            second
        });
        let mine = shared.take(1).expect("three are free");
        let theirs = other.join().unwrap();
        assert_ne!(mine, theirs, "one block, two owners");
        assert_eq!(shared.scan().free, 1, "a block was lost, or is free and in use");
    });
}

#[test]
fn two_givers() {
    check("blocks_two_givers", BOUND, || {
        let shared = blocks(&[2]);
        let (first, second) = (shared.take(1).expect("free"), shared.take(1).expect("free"));
        let blocks = shared.clone();
        let other = thread::spawn(move || blocks.give(first));
        shared.give(second);
        other.join().unwrap();
        assert_eq!(shared.scan(), Scan { free: 2, total: 2, dirty: 0 });
    });
}

/// Two blocks, one user: whatever the purge holds, the user finds one.
#[test]
fn purge_vs_take() {
    check("blocks_purge_vs_take", BOUND, || {
        let shared = blocks(&[1, 1, 1, 2]);
        let (first, second) = (shared.take(4_096).expect("free"), shared.take(4_096).expect("free"));
        shared.give(first);
        shared.give(second);
        assert_eq!(shared.purge(0).expect("boxes").blocks, 0, "the class was growing");
        let blocks = shared.clone();
        let purger = thread::spawn(move || blocks.purge(2).expect("boxes").blocks);
        for mark in [1, 2] {
            assert!(use_one(&shared, 4_096, mark), "a purge made a take fail");
        }
        purger.join().unwrap();
        assert_eq!(shared.scan(), Scan { free: 5, total: 5, dirty: 0 });
    });
}
