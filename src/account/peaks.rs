//! High-water marks: the most that was used of each field of a room word.
//!
//! They stand beside the word, on the line that the step has just written. Whoever takes looks once, at all fields together:
//! one load and one addition. Only who sees more than ever before writes.
//!
//! * K1. A mark is never above what was used at some instant. What a lowering or an opening has in flight looks like use,
//!   so nothing is noted while there is one; who comes next notes it. (A block that an operation keeps ready is charged, and
//!   counts as used here.)
//! * K2. A mark is noted after the step that reached it, by a look at the word. A height that somebody else has left again
//!   between the two may be missed; alone, none is.
//! * K3. Marks decide nothing and are no meeting point: models do not see them.

use std::marker::PhantomData;

use super::dimension::Dimension;
use super::room::{Layout, Rooms};
use crate::sync::Counter;

/// The most fields that a word has.
const FIELDS: usize = 5;

/// The high-water marks of one word. Zero is the start.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[cfg_attr(not(loom), zeroable(bound = ""))]
#[derive(Debug)]
pub struct Peaks<L> {
    /// In each field, what a room must be given to reach the field's highest bit exactly if it is no lower than ever. Zero asks
    /// for a look.
    guard: Counter,
    most: [Counter; FIELDS],
    layout: PhantomData<L>,
}

impl<L: Layout> Peaks<L> {
    /// Looks whether more is used than ever. After a step that took something of use, not for an attempt that may go back.
    #[inline]
    pub fn see(&self, rooms: &Rooms<L>) {
        if self.are_passed(rooms, 0) {
            self.note(rooms);
        }
    }

    /// Whether [`see`](Peaks::see) would have something to note if `idle`, units of these rooms, were not taken.
    #[inline]
    pub fn are_passed(&self, rooms: &Rooms<L>, idle: u64) -> bool {
        const {
            assert!(L::FIELDS.len() <= FIELDS);
            assert!(L::COUNTS & (L::COUNTS + 1) == 0, "the fields lie below the flags, without a gap");
        }
        // A room that reaches past its field (the limit is the ceiling, it was all used once and nothing is now) spoils the
        // field above it, and asks for a look itself.
        let reached = rooms.load().wrapping_add(idle).wrapping_add(self.guard.get());
        reached & L::TOPS != L::TOPS && !cfg!(loom)
    }

    /// A limit was opened: what was no more than ever may be now.
    pub fn limits_rose(&self) {
        self.guard.set(0);
    }

    #[cold]
    fn note(&self, rooms: &Rooms<L>) {
        // K1.
        let Some((used, limits, changes)) = rooms.used_at_rest() else { return };
        let mut guard = 0;
        for (field, most) in L::FIELDS.iter().zip(&self.most) {
            let (most, limit) = (most.raise(field.of(used)), field.of(limits));
            // A limit that was lowered below the mark cannot be used above it.
            let lowest = limit - most.min(limit);
            guard |= (field.mask() & L::TOPS) - field.units(lowest);
        }
        self.guard.set(guard);
        if rooms.changes() != changes {
            self.limits_rose();
        }
    }

    /// The most that was used of each field, in its own units.
    pub fn each(&self) -> impl Iterator<Item = (Dimension, u64)> {
        L::FIELDS.iter().zip(&self.most).map(|(field, most)| (field.dimension(), most.get()))
    }
}

impl<L> Default for Peaks<L> {
    fn default() -> Self {
        Peaks { guard: Counter::default(), most: Default::default(), layout: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::{NodeUnits, NodeWord};
    use super::super::scope::Heed;
    use super::*;

    fn peaks(node: &NodeWord) -> Vec<u64> {
        node.note_use();
        node.peaks().map(|(_, most)| most).collect()
    }

    fn take(node: &NodeWord, units: NodeUnits, times: usize) {
        for _ in 0..times {
            node.reserve(units, Heed::Nothing).unwrap();
            node.note_use();
        }
    }

    fn give(node: &NodeWord, units: NodeUnits, times: usize) {
        for _ in 0..times {
            node.give(units);
        }
    }

    #[test]
    fn a_mark_stays_where_use_once_was() {
        let node = NodeWord::default();
        assert_eq!(peaks(&node), [0; 5]);
        assert!(node.open_io(4_096, 4_096, 4_096));
        take(&node, NodeUnits::NOW_IO, 1);
        assert_eq!(peaks(&node), [1, 0, 1, 0, 0]);
        // What is opened later is seen from then on.
        assert!(node.open_pools(1_024, 1_024));
        take(&node, NodeUnits::NOW_POOL, 2);
        take(&node, NodeUnits::STAGED_IO, 1);
        assert_eq!(peaks(&node), [4, 1, 3, 0, 2]);
        node.give(NodeUnits::NOW_POOL);
        node.give(NodeUnits::NOW_POOL);
        take(&node, NodeUnits::STAGED_POOL, 1);
        assert_eq!(peaks(&node), [4, 2, 3, 1, 2]);
        node.exchange(NodeUnits::WAIT_IO, NodeUnits::RUN_IO).unwrap();
        assert_eq!(peaks(&node), [4, 2, 3, 1, 2]);
        // What the turn takes is an attempt until it was of use.
        assert!(node.take_or_mark(NodeUnits::RUN_POOL) && node.take_or_mark(NodeUnits::RUN_POOL));
        node.give(NodeUnits::RUN_POOL);
        assert_eq!(peaks(&node), [4, 2, 3, 1, 2]);
        assert!(node.take_or_mark(NodeUnits::RUN_IO));
        assert_eq!(peaks(&node), [4, 2, 4, 1, 2]);
    }

    /// At the ceilings a room and its guard fill the field to the brim.
    #[test]
    fn a_word_at_its_ceilings_is_told_to_the_end() {
        let node = NodeWord::new(4_096, 4_096, 4_096);
        assert!(node.open_pools(1_024, 1_024));
        for round in 0..2 {
            take(&node, NodeUnits::STAGED_POOL, 1_024);
            take(&node, NodeUnits::NOW_POOL, 1_024);
            take(&node, NodeUnits::STAGED_IO, 1_024);
            take(&node, NodeUnits::NOW_IO, 1_024 - round);
            assert_eq!(peaks(&node), [4_096, 2_048, 2_048 * (1 + round as u64), 1_024, 1_024]);
            for _ in 0..2_048 + round {
                assert!(node.take_or_mark(NodeUnits::RUN_IO));
            }
            assert_eq!(peaks(&node), [4_096, 2_048, 4_096, 1_024, 1_024]);
            assert!(!node.take_or_mark(NodeUnits::RUN_IO));
            give(&node, NodeUnits::RUN_IO, 2_048 + round);
            give(&node, NodeUnits::NOW_IO, 1_024 - round);
            give(&node, NodeUnits::STAGED_IO, 1_024);
            give(&node, NodeUnits::NOW_POOL, 1_024);
            give(&node, NodeUnits::STAGED_POOL, 1_024);
        }
    }

    /// K1: what a lowering has in flight is use of nobody; afterwards the limit is another one, and the mark is not.
    #[test]
    fn a_lowering_raises_no_mark() {
        use super::super::lower::Lower;
        let node = NodeWord::new(100, 100, 100);
        take(&node, NodeUnits::NOW_IO, 8);
        give(&node, NodeUnits::NOW_IO, 5);
        let lowering = node.begin_lower(Dimension::IoRunning, 10).unwrap();
        take(&node, NodeUnits::NOW_IO, 1);
        assert_eq!(peaks(&node), [8, 0, 8, 0, 0]);
        node.undo_lower(lowering);
        assert!(node.begin_lower(Dimension::IoRunning, 1).is_err());
        take(&node, NodeUnits::NOW_IO, 1);
        node.lower(Dimension::IoRunning, 6).unwrap();
        assert_eq!(peaks(&node), [8, 0, 8, 0, 0], "the limit is below the mark now");
        take(&node, NodeUnits::NOW_IO, 1);
        take(&node, NodeUnits::STAGED_IO, 3);
        assert_eq!(peaks(&node), [9, 3, 8, 0, 0], "and the other fields go on");
        node.lower(Dimension::IoQueued, 50).unwrap();
        take(&node, NodeUnits::STAGED_IO, 1);
        assert_eq!(peaks(&node), [10, 4, 8, 0, 0]);
    }
}
