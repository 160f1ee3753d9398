//! Fixed atomic bit sets.
//!
//! A set is a row of 64-bit words. A set of more than 256 bits has one more word in front, the summary: its bit says that
//! a word may hold something. So looking through 4,096 bits of which few are set reads few lines.
//!
//! * **S1** Words change only by read-modify-write, and each such step both takes over what was handed over before and hands
//!   on: who sets a bit hands over what it wrote, who clears it has it.
//! * **S2** A bit that was set before a look began, and that nobody clears, is found by it.
//! * **S3** In a set with a summary, a word that is not 0 has its summary bit set, except while the one that made it so
//!   (a setter, or the taker) is between its two steps. Such a set has **one taker at a time** (the holder of a turn):
//!   with two, S2 fails for the second one; nothing worse happens.
//!
//! Why S3 gives S2: a setter steps on the word and then looks at the summary, and sets its bit if it is clear. The taker
//! clears the summary bit, then steps on the word, and sets the summary bit again if it leaves something. Both *step* on
//! the word. If the setter came first, the taker sees its bit. If the taker came first, the setter sees the summary
//! cleared.

use crate::sync::atomic::AtomicU64;
use crate::sync::{Backoff, Table, order};

/// Words up to which a set is looked through without a summary.
const WITHOUT_SUMMARY: usize = if cfg!(loom) { 1 } else { 4 };

/// A fixed number of bits.
#[derive(Debug)]
pub struct BitSet {
    words: Table<AtomicU64>,
    summary: AtomicU64,
    bits: usize,
}

const fn bit(index: usize) -> u64 {
    1 << (index % 64)
}

/// The lowest bit of `word`, if it has one.
const fn lowest(word: u64) -> Option<usize> {
    if word == 0 { None } else { Some(word.trailing_zeros() as usize) }
}

impl BitSet {
    /// A set of `bits` bits, none of them set.
    ///
    /// # Panics
    ///
    /// Above 4,096 bits.
    #[must_use]
    pub fn new(bits: usize) -> Self {
        assert!(bits <= 64 * 64, "a set of {bits} bits: one summary word covers 4,096");
        Self { words: Table::new(bits.div_ceil(64)), summary: AtomicU64::new(0), bits }
    }

    /// How many bits there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bits
    }

    /// How many words there are.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    fn has_summary(&self) -> bool {
        self.words.len() > WITHOUT_SUMMARY
    }

    /// Sets a bit. Whether it was set before.
    ///
    /// # Panics
    ///
    /// If there is no such bit.
    #[inline]
    pub fn set(&self, index: usize) -> bool {
        assert!(index < self.bits, "bit {index} of {}", self.bits);
        let before = self.words[index / 64].fetch_or(bit(index), order::STEP);
        if self.has_summary() && self.summary.load(order::OBSERVE) & bit(index / 64) == 0 {
            self.summary.fetch_or(bit(index / 64), order::STEP);
        }
        before & bit(index) != 0
    }

    /// Clears a bit. Whether it was set before.
    ///
    /// # Panics
    ///
    /// If there is no such bit.
    #[inline]
    pub fn clear(&self, index: usize) -> bool {
        assert!(index < self.bits, "bit {index} of {}", self.bits);
        // The summary bit stays; the taker clears it when it finds the word empty.
        self.words[index / 64].fetch_and(!bit(index), order::STEP) & bit(index) != 0
    }

    /// Whether a bit is set. A look, nothing more: it may change right after.
    ///
    /// # Panics
    ///
    /// If there is no such bit.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        assert!(index < self.bits, "bit {index} of {}", self.bits);
        self.words[index / 64].load(order::OBSERVE) & bit(index) != 0
    }

    /// Takes the lowest bit at or above `start`. None: see S2.
    #[inline]
    pub fn take_from(&self, start: usize) -> Option<usize> {
        let mut at = start / 64;
        let mut mask = u64::MAX << (start % 64);
        while at < self.words.len() {
            if let Some(found) = self.take_in(at, mask) {
                return Some(at * 64 + found);
            }
            (at, mask) = (self.next_word(at + 1)?, u64::MAX);
        }
        None
    }

    /// Takes the lowest bit. None: see S2.
    #[inline]
    pub fn take_lowest(&self) -> Option<usize> {
        self.take_from(self.next_word(0)? * 64)
    }

    /// Takes a whole word, always by a read-modify-write: a meeting point with who sets a bit in it.
    ///
    /// # Panics
    ///
    /// If there is no such word.
    #[inline]
    pub fn take_word(&self, word: usize) -> u64 {
        self.words[word].swap(0, order::STEP)
    }

    /// Steps on every word and changes none. Who set a bit before is seen from now on; who sets one later sees what the
    /// caller did before.
    pub fn meet(&self) {
        for word in self.words.iter() {
            word.fetch_or(0, order::STEP);
        }
    }

    /// A look at a word.
    ///
    /// # Panics
    ///
    /// If there is no such word.
    #[must_use]
    #[inline]
    pub fn load_word(&self, word: usize) -> u64 {
        self.words[word].load(order::OBSERVE)
    }

    /// Takes all bits and gives each to `each`, lowest first: those that were set before the call, and perhaps later ones.
    /// Words in which nothing can be are not written.
    #[inline]
    pub fn drain(&self, mut each: impl FnMut(usize)) {
        let mut next = self.next_word(0);
        while let Some(at) = next {
            let mut word = if self.has_summary() {
                self.summary.fetch_and(!bit(at), order::STEP);
                self.take_word(at)
            } else if self.load_word(at) == 0 {
                0
            } else {
                self.take_word(at)
            };
            while let Some(found) = lowest(word) {
                word &= word - 1;
                each(at * 64 + found);
            }
            next = self.next_word(at + 1);
        }
    }

    /// Whether no bit is set, by a look (S2).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut next = self.next_word(0);
        while let Some(at) = next {
            if self.load_word(at) != 0 {
                return false;
            }
            next = self.next_word(at + 1);
        }
        true
    }

    /// How many bits are set, word by word: exact at a quiet point.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.load(order::OBSERVE).count_ones() as usize).sum()
    }

    /// The first word at or above `at` that may hold something.
    #[inline]
    fn next_word(&self, at: usize) -> Option<usize> {
        if at >= self.words.len() {
            return None;
        }
        if !self.has_summary() {
            return Some(at);
        }
        lowest(self.summary.load(order::OBSERVE) & u64::MAX << at)
    }

    /// Takes the lowest bit of one word that is in `mask`.
    #[inline]
    fn take_in(&self, at: usize, mask: u64) -> Option<usize> {
        let (word, mut backoff) = (&self.words[at], Backoff::new());
        let mut now = if self.has_summary() {
            self.summary.fetch_and(!bit(at), order::STEP);
            word.fetch_or(0, order::STEP)
        } else {
            word.load(order::OBSERVE)
        };
        let found = loop {
            let Some(found) = lowest(now & mask) else { break None };
            match word.compare_exchange_weak(now, now & !bit(found), order::STEP, order::LOST) {
                Ok(_) => {
                    now &= !bit(found);
                    break Some(found);
                }
                Err(other) => now = other,
            }
            backoff.lost();
        };
        if now != 0 && self.has_summary() {
            self.summary.fetch_or(bit(at), order::STEP);
        }
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SIZES: [usize; 7] = [1, 63, 64, 65, 256, 257, 4_096];

    #[test]
    fn set_and_clear_say_what_was_there() {
        for bits in SIZES {
            let set = BitSet::new(bits);
            let last = bits - 1;
            assert!(set.is_empty() && set.len() == bits && set.words() == bits.div_ceil(64));
            assert!(!set.set(last) && set.set(last) && set.contains(last));
            assert!(!set.is_empty() && set.count() == 1);
            assert!(set.clear(last) && !set.clear(last) && !set.contains(last));
            assert!(set.is_empty() && set.take_lowest().is_none());
        }
    }

    /// A summary that says too much is allowed, but it would cost every later look a word.
    #[test]
    fn the_summary_names_no_word_that_was_emptied() {
        let set = BitSet::new(4_096);
        for member in [3, 64, 65, 4_095] {
            set.set(member);
        }
        for left in [0b10 | 1 << 63, 0b10 | 1 << 63, 1 << 63, 0] {
            assert!(set.take_lowest().is_some());
            assert_eq!(set.summary.load(order::OBSERVE), left);
        }
    }

    #[test]
    fn the_lowest_is_taken_first_and_from_a_start() {
        for bits in SIZES {
            let set = BitSet::new(bits);
            let members: BTreeSet<usize> =
                [0, 1, 62, 63, 64, 200, 256, 3_000, 4_095].into_iter().filter(|&at| at < bits).collect();
            for &member in members.iter().rev() {
                set.set(member);
            }
            let taken: Vec<_> = std::iter::from_fn(|| set.take_lowest()).collect();
            assert_eq!(taken, members.iter().copied().collect::<Vec<_>>());
            for &member in &members {
                set.set(member);
            }
            for start in [0, 1, 2, 63, 64, 65, 257, 4_095, 4_096] {
                let expected = members.range(start..).next().copied();
                assert_eq!(set.take_from(start), expected, "{bits} bits from {start}");
                if let Some(taken) = expected {
                    assert!(!set.set(taken));
                }
            }
            assert_eq!(set.count(), members.len());
        }
    }

    #[test]
    fn a_drain_and_whole_words_take_everything() {
        for bits in SIZES {
            let set = BitSet::new(bits);
            let members: Vec<usize> = (0..bits).filter(|at| at % 7 == 0 || at % 64 == 63).collect();
            let fill = || members.iter().for_each(|&member| assert!(!set.set(member)));
            fill();
            let mut taken = Vec::new();
            set.drain(|member| taken.push(member));
            assert_eq!(taken, members);
            assert!(set.is_empty());
            fill();
            let words: usize = (0..set.words())
                .map(|word| {
                    let seen = set.load_word(word);
                    assert_eq!(set.take_word(word), seen);
                    seen.count_ones() as usize
                })
                .sum();
            assert_eq!(words, members.len());
            assert!(set.is_empty() && set.take_lowest().is_none());
        }
    }

    #[test]
    #[should_panic(expected = "bit 65 of 65")]
    fn a_bit_beyond_the_end_is_refused() {
        BitSet::new(65).set(65);
    }

    /// Setters of several threads against the one taker: nothing is lost and nothing is found twice.
    #[test]
    fn no_bit_is_lost_between_setters_and_the_one_taker() {
        let rounds: usize = if cfg!(miri) { 20 } else { 2_000 };
        for bits in [256, 4_096] {
            let set = BitSet::new(bits);
            let open = AtomicU64::new(2);
            let taken = std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (set, open) = (&set, &open);
                    scope.spawn(move || {
                        for round in 0..rounds {
                            // Each thread has every other bit, so that a bit found set was not taken yet.
                            let member = (round * 37 % (bits / 2)) * 2 + thread;
                            while set.set(member) {
                                std::thread::yield_now();
                            }
                        }
                        open.fetch_sub(1, order::STEP);
                    });
                }
                let (mut taken, mut turn) = (0, 0);
                loop {
                    let last = open.load(order::OBSERVE) == 0;
                    let before = taken;
                    turn += 1;
                    if turn % 2 == 0 {
                        set.drain(|_| taken += 1);
                    } else {
                        taken += usize::from(set.take_lowest().is_some());
                    }
                    if last && turn % 2 == 0 && taken == before {
                        break taken;
                    }
                }
            });
            assert_eq!((taken, set.count()), (2 * rounds, 0));
        }
    }
}
