//! A LIFO list of numbers in zero pages: free blocks, free cells.
//!
//! ```text
//!  63                                  17 16            0
//! ┌──────────────────────────────────────┬───────────────┐
//! │ pushes, modulo 2^47                  │ top           │   head word; top = length of the table: empty
//! └──────────────────────────────────────┴───────────────┘
//! ```
//!
//! * **L1** The word changes only by compare-and-swap. A push adds one to `pushes`; a pop leaves it.
//! * **L2** A number is on at most one list, and the link of a number on a list is not written. Only who took the number
//!   off writes it.
//! * **L3** A compare-and-swap that finds the word it expects has seen no push in between (2^47 pushes inside one load
//!   and swap would take a day). A number comes back to the top by a push only, so the top never left, and by L2 its link
//!   is the one that was read.
//! * **L4** What was written before a push is seen after the pop that takes the number: a push releases, a pop acquires,
//!   and every step in between is a read-modify-write.
//!
//! The link of `i` is stored relative to `i + 1`. So zero pages with a zero word are the complete list 0, 1, 2, ...

use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::{Backoff, Table, order};

/// Bits of a number in the head word.
pub(in crate::mem) const TOP_BITS: u32 = 17;
const TOP: u64 = (1 << TOP_BITS) - 1;
const PUSH: u64 = 1 << TOP_BITS;

/// A value of the head word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mem) struct Head(u64);

impl Head {
    const fn with_top(pushes: u64, top: u32) -> Self {
        Self(pushes & !TOP | top as u64)
    }

    #[allow(clippy::cast_possible_truncation, reason = "masked to 17 bits")]
    const fn top(self) -> u32 {
        (self.0 & TOP) as u32
    }

    /// The top is taken off; `below` becomes the top.
    const fn popped(self, below: u32) -> Self {
        Self::with_top(self.0, below)
    }

    /// The whole word, to see whether it changed.
    pub(in crate::mem) const fn raw(self) -> u64 {
        self.0
    }

    /// `top` comes on top. The count of pushes turns over at 2^47, see L3.
    const fn pushed(self, top: u32) -> Self {
        Self::with_top(self.0.wrapping_add(PUSH), top)
    }
}

/// The links of all numbers of one class. Lists that share a table share its numbers.
#[derive(Debug)]
pub(in crate::mem) struct Links(Table<AtomicU32>);

impl Links {
    /// Links of the numbers `0..length`.
    pub(in crate::mem) fn new(length: usize) -> Self {
        assert!(length < 1 << TOP_BITS, "a list of {length}: the head word has 17 bits for a number");
        Self(Table::new(length))
    }

    pub(in crate::mem) fn len(&self) -> u32 {
        u32::try_from(self.0.len()).expect("below 2^17 by the assertion in new")
    }

    fn below(&self, number: u32) -> u32 {
        self.0[number as usize].load(order::COUNT).wrapping_add(number + 1)
    }

    fn set_below(&self, number: u32, below: u32) {
        self.0[number as usize].store(below.wrapping_sub(number + 1), order::COUNT);
    }
}

/// One list: its head word.
#[derive(Debug)]
pub(in crate::mem) struct List(AtomicU64);

impl List {
    /// The list of all numbers of a table that was never touched, lowest on top.
    pub(in crate::mem) fn complete() -> Self {
        Self(AtomicU64::new(0))
    }

    /// An empty list over `links`.
    pub(in crate::mem) fn empty(links: &Links) -> Self {
        Self(AtomicU64::new(Head::with_top(0, links.len()).0))
    }

    /// The word, to see whether the list was stepped on.
    pub(in crate::mem) fn head(&self) -> Head {
        Head(self.0.load(order::OBSERVE))
    }

    /// Takes the top number off. None: the list was empty.
    #[inline]
    pub(in crate::mem) fn pop(&self, links: &Links) -> Option<u32> {
        let mut backoff = Backoff::new();
        let mut head = self.head();
        loop {
            let top = head.top();
            if top == links.len() {
                return None;
            }
            let next = head.popped(links.below(top));
            match self.0.compare_exchange_weak(head.0, next.0, order::STEP, order::LOST) {
                Ok(_) => return Some(top),
                Err(now) => head = Head(now),
            }
            backoff.lost();
        }
    }

    /// Puts `number` on top. The caller took it off a list of the same table.
    #[inline]
    pub(in crate::mem) fn push(&self, links: &Links, number: u32) {
        let mut backoff = Backoff::new();
        let mut head = Head(self.0.load(order::COUNT));
        loop {
            links.set_below(number, head.top());
            match self.0.compare_exchange_weak(head.0, head.pushed(number).0, order::PUBLISH, order::COUNT) {
                Ok(_) => return,
                Err(now) => head = Head(now),
            }
            backoff.lost();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_step_keeps_the_other_field() {
        let tops = [0, 1, 2, 65_599, (1 << TOP_BITS) - 1];
        for pushes in [0_u64, 1, 2, (1 << 46) - 1, (1 << 47) - 1] {
            for top in tops {
                let head = Head::with_top(pushes << TOP_BITS, top);
                assert_eq!((head.top(), head.0 >> TOP_BITS), (top, pushes));
                for other in tops {
                    assert_eq!(head.popped(other), Head::with_top(pushes << TOP_BITS, other));
                    let turned = (pushes + 1) % (1 << 47);
                    assert_eq!(head.pushed(other), Head::with_top(turned << TOP_BITS, other));
                    assert_ne!(head.pushed(other), head);
                }
            }
        }
    }

    #[test]
    fn zero_pages_are_the_complete_list() {
        let links = Links::new(5);
        let list = List::complete();
        let order: Vec<_> = std::iter::from_fn(|| list.pop(&links)).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert_eq!(list.pop(&links), None);
    }

    #[test]
    fn the_last_pushed_comes_first_and_numbers_move_between_lists() {
        let links = Links::new(4);
        let (cold, warm) = (List::complete(), List::empty(&links));
        assert_eq!(warm.pop(&links), None);
        for number in [0, 1, 2] {
            assert_eq!(cold.pop(&links), Some(number));
            warm.push(&links, number);
        }
        assert_eq!((warm.pop(&links), warm.pop(&links)), (Some(2), Some(1)));
        cold.push(&links, 1);
        assert_eq!((cold.pop(&links), cold.pop(&links)), (Some(1), Some(3)));
        assert_eq!(cold.pop(&links), None);
        assert_eq!(warm.pop(&links), Some(0));
        assert_eq!(warm.pop(&links), None);
    }

    #[test]
    fn a_push_changes_the_word_even_if_the_same_number_comes_back() {
        let links = Links::new(2);
        let list = List::complete();
        let before = list.head();
        assert_eq!(list.pop(&links), Some(0));
        list.push(&links, 0);
        assert_ne!(list.head(), before);
    }
}
