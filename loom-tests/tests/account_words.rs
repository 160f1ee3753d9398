//! Models of the room words, one word at a time: `account::room` R1 to R5, and of the gauge.
//!
//! Library invariants 1 (conservation), 2 (ceiling, lowering included) and 4 (no gap).
#![cfg(loom)]

use latent_capabilities::model::account::bytes::{BytesWord, Side, Units};
use latent_capabilities::model::account::dimension::Dimension;
use latent_capabilities::model::account::gauge::Gauge;
use latent_capabilities::model::account::lower::Lower;
use latent_capabilities::model::account::node::{NodeUnits, NodeWord};
use latent_capabilities::model::account::scope::{Blocked, Heed, NotLowered};
use latent_capabilities::model::sync::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

/// Most of these searches end: every execution there is.
const BOUND: Bound = Bound::Complete;
const RUN: NodeUnits = NodeUnits::RUN_IO;
const FULL: Result<(), Blocked> = Err(Blocked::Full(Dimension::IoRunning));

/// A node that matters only for its running units.
fn node(running: u32) -> Arc<NodeWord> {
    Arc::new(NodeWord::new(4, 4, running))
}

fn reserve(node: &NodeWord) -> Result<(), Blocked> {
    node.reserve(RUN, Heed::Marks)
}

/// What every charged unit is used for: a cell that one owner at a time may touch.
struct Owned(UnsafeCell<u32>);

impl Owned {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    /// loom fails the model if two owners are here without one having given before the other took.
    fn touch(&self) {
        self.0.with_mut(|_| {});
    }
}

#[test]
fn two_charges_one_unit() {
    check("two_charges_one_unit", BOUND, || {
        let node = node(1);
        let other = {
            let node = Arc::clone(&node);
            thread::spawn(move || reserve(&node))
        };
        let mine = reserve(&node);
        let other = other.join().unwrap();
        assert!(
            (mine.is_ok(), other == FULL) == (true, true) || (mine == FULL, other.is_ok()) == (true, true)
        );
        assert_eq!(node.snapshot().running, 1);
    });
}

#[test]
fn charge_vs_give() {
    check("charge_vs_give", BOUND, || {
        let (node, owned) = (node(1), Owned::new());
        reserve(&node).unwrap();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let (node, owned) = (Arc::clone(&node), Arc::clone(&owned));
                thread::spawn(move || {
                    let taken = reserve(&node);
                    if taken.is_ok() {
                        // The unit stands for the cell: whoever gave it is done with it.
                        owned.touch();
                    }
                    taken.is_ok()
                })
            })
            .collect();
        owned.touch();
        node.give(RUN);
        let taken = takers.into_iter().map(|taker| u32::from(taker.join().unwrap())).sum::<u32>();
        assert!(taken <= 1);
        assert_eq!(node.snapshot().running, taken);
    });
}

#[test]
fn charge_vs_lower() {
    check("charge_vs_lower", BOUND, || {
        let node = node(2);
        let taker = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let both = [reserve(&node).is_ok(), reserve(&node).is_ok()];
                both.into_iter().filter(|taken| *taken).count()
            })
        };
        let lowered = node.lower(Dimension::IoRunning, 1);
        let taken = taker.join().unwrap();
        let used = node.snapshot().running;
        assert_eq!(used as usize, taken);
        match lowered {
            Ok(()) => assert!(taken == 1, "the second saw the lowering, the first did not need to"),
            Err(NotLowered::InUse { used, .. }) => assert!(used == 2 && taken == 2),
            Err(other) => panic!("{other:?}"),
        }
        // The limit that was stored is the one that holds.
        for _ in 0..taken {
            node.give(RUN);
        }
        let room = (0..2).filter(|_| reserve(&node).is_ok()).count();
        assert_eq!(room, if lowered.is_ok() { 1 } else { 2 });
    });
}

/// A release never takes a falling limit for broken accounting (R3): that would panic here.
#[test]
fn give_vs_lower() {
    check("give_vs_lower", BOUND, || {
        let node = node(3);
        reserve(&node).unwrap();
        reserve(&node).unwrap();
        let givers: Vec<_> = (0..2)
            .map(|_| {
                let node = Arc::clone(&node);
                thread::spawn(move || node.give(RUN))
            })
            .collect();
        let lowered = node.lower(Dimension::IoRunning, 1);
        for giver in givers {
            giver.join().unwrap();
        }
        assert_eq!(node.snapshot().running, 0);
        let room = (0..4).filter(|_| reserve(&node).is_ok()).count();
        assert_eq!(room, if lowered.is_ok() { 1 } else { 3 });
    });
}

/// Lowerings are serialised by the control mutex; the word is right even without it.
#[test]
fn lower_vs_lower() {
    check("lower_vs_lower", BOUND, || {
        let node = node(3);
        let lowering = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.lower(Dimension::IoRunning, 1))
        };
        let mine = node.lower(Dimension::IoRunning, 2);
        lowering.join().unwrap().unwrap();
        // The one to 2 came first, or found that it would be a raise, or met the other's units in flight.
        assert!(!matches!(mine, Err(NotLowered::NotHere(_))));
        let room = (0..4).filter(|_| reserve(&node).is_ok()).count();
        assert_eq!(room, 1);
        assert_eq!(node.snapshot().running, 1);
    });
}

#[test]
fn lower_vs_lower_with_a_charge() {
    check("lower_vs_lower_with_a_charge", Bound::Preemptions(4), || {
        let node = node(2);
        let lowering = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.lower(Dimension::IoRunning, 1))
        };
        let taker = {
            let node = Arc::clone(&node);
            thread::spawn(move || reserve(&node))
        };
        let mine = node.lower(Dimension::IoRunning, 1);
        let other = lowering.join().unwrap();
        let taken = taker.join().unwrap();
        let used = node.snapshot().running;
        assert_eq!(used, u32::from(taken.is_ok()));
        if taken.is_ok() {
            node.give(RUN);
        }
        let room = (0..3).filter(|_| reserve(&node).is_ok()).count();
        assert_eq!(room, if mine.is_ok() || other.is_ok() { 1 } else { 2 });
    });
}

/// A lowering that is undone was in use for a while and leaves nothing.
#[test]
fn undone_lowering_vs_charge() {
    check("undone_lowering_vs_charge", BOUND, || {
        let node = node(2);
        let taker = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let taken = [reserve(&node).is_ok(), reserve(&node).is_ok()];
                taken.into_iter().filter(|taken| *taken).count()
            })
        };
        let begun = node.begin_lower(Dimension::IoRunning, 1);
        let begun = begun.map(|lowering| node.undo_lower(lowering)).is_ok();
        let taken = taker.join().unwrap();
        assert!(taken == 2 || (begun && taken == 1), "refused only while the lowering held a unit");
        assert_eq!(node.snapshot().running as usize, taken);
    });
}

/// CLOSED is read by the compare-and-swap that reserves: what got in is seen by whoever looks after closing.
#[test]
fn close_vs_reserve() {
    check("close_vs_reserve", BOUND, || {
        let node = node(2);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let node = Arc::clone(&node);
                thread::spawn(move || reserve(&node))
            })
            .collect();
        assert!(!node.close());
        let seen = node.snapshot().running;
        let taken = takers.into_iter().map(|taker| u32::from(taker.join().unwrap().is_ok())).sum::<u32>();
        assert_eq!(taken, seen, "nothing gets in after close returned");
        assert_eq!(reserve(&node), Err(Blocked::Closed));
    });
}

/// `retain` is one step: no snapshot shows the block on neither side, or on both.
#[test]
fn retain_has_no_gap() {
    check("retain_has_no_gap", BOUND, || {
        let block = Units::of_block(512);
        let bytes = Arc::new(BytesWord::new(1_024, 1_024, 2));
        bytes.reserve(Side::Staged, block).unwrap();
        let reader = {
            let bytes = Arc::clone(&bytes);
            thread::spawn(move || {
                for _ in 0..2 {
                    let seen = bytes.snapshot();
                    assert_eq!(seen.staged_bytes + seen.result_bytes, 512);
                    assert_eq!(seen.buffers, 1);
                }
            })
        };
        bytes.retain(block).unwrap();
        reader.join().unwrap();
        let seen = bytes.snapshot();
        assert_eq!((seen.staged_bytes, seen.result_bytes), (0, 512));
    });
}

/// Two owners retain into one free result unit: one moves, the other keeps its staged unit.
#[test]
fn retain_vs_retain() {
    check("retain_vs_retain", BOUND, || {
        let block = Units::of_block(512);
        let bytes = Arc::new(BytesWord::new(1_024, 512, 2));
        bytes.reserve_window(Side::Staged, 2, block).unwrap();
        let other = {
            let bytes = Arc::clone(&bytes);
            thread::spawn(move || bytes.retain(block).is_ok())
        };
        let mine = bytes.retain(block).is_ok();
        assert_ne!(mine, other.join().unwrap());
        let seen = bytes.snapshot();
        assert_eq!((seen.staged_bytes, seen.result_bytes, seen.buffers), (512, 512, 2));
    });
}

/// A snapshot is of one instant, also while a limit falls: its use never is above its limit, and never negative.
#[test]
fn snapshot_vs_lower_and_give() {
    check("snapshot_vs_lower_and_give", Bound::Preemptions(4), || {
        let node = node(2);
        reserve(&node).unwrap();
        let giver = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.give(RUN))
        };
        let lowering = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.lower(Dimension::IoRunning, 1))
        };
        // The unit given, and the unit of the lowering in flight.
        assert!(node.snapshot().running <= 2);
        giver.join().unwrap();
        lowering.join().unwrap().unwrap();
        assert_eq!(node.snapshot().running, 0);
    });
}

/// Pools are opened while direct I/O runs: no release and no snapshot takes their new room for broken accounting.
#[test]
fn give_and_snapshot_vs_open() {
    check("give_and_snapshot_vs_open", Bound::Preemptions(4), || {
        let node = node(1);
        reserve(&node).unwrap();
        let giver = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.give(RUN))
        };
        let reader = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let seen = node.snapshot();
                assert!(seen.running <= 1);
                // Its room comes a step after its limit, and counts as used until then.
                assert!(seen.pool_running <= 2);
            })
        };
        assert!(node.open_pools(2, 2));
        giver.join().unwrap();
        reader.join().unwrap();
        let seen = node.snapshot();
        assert_eq!((seen.running, seen.pool_running), (0, 0));
        node.reserve(NodeUnits::RUN_POOL, Heed::Marks).unwrap();
    });
}

/// The same for a step that gives and takes at once.
#[test]
fn exchange_vs_open() {
    check("exchange_vs_open", BOUND, || {
        let node = node(1);
        node.reserve(NodeUnits::WAIT_IO, Heed::Nothing).unwrap();
        let mover = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.exchange(NodeUnits::WAIT_IO, RUN).is_ok())
        };
        assert!(node.open_pools(2, 2));
        assert!(mover.join().unwrap());
        let seen = node.snapshot();
        assert_eq!((seen.queued, seen.running, seen.pending), (0, 1, 0));
    });
}

#[test]
fn gauge_charges_gives_and_falls() {
    check("gauge_charges_gives_and_falls", BOUND, || {
        let (gauge, owned) = (Arc::new(Gauge::new(Dimension::IoMetadataBytes, 3)), Owned::new());
        gauge.charge(2).unwrap();
        let taker = {
            let (gauge, owned) = (Arc::clone(&gauge), Arc::clone(&owned));
            thread::spawn(move || {
                let taken = gauge.charge(2).is_ok();
                if taken {
                    owned.touch();
                }
                assert!(gauge.used() <= 3);
                taken
            })
        };
        let lowering = {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || gauge.lower(2).is_ok())
        };
        owned.touch();
        gauge.give(2);
        let taken = taker.join().unwrap();
        assert!(lowering.join().unwrap(), "never more than 2 are in use");
        assert_eq!((gauge.used(), gauge.limit()), (if taken { 2 } else { 0 }, 2));
    });
}
