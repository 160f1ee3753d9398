//! A logical provider's word: its pool requests over all epochs, and the tag of the epoch that may start them.
//!
//! ```text
//!  63        32 31    24  23     22    21                11 10                 0
//! │ instance tag │      │CLOSED│MARK│ running per provider │ requests per provider │
//! ```
//!
//! * P1. A pool operation holds one request from admission to its end, and one running unit while it is granted;
//!   rotation changes neither.
//! * P2. The tag is the one of the current epoch, and is never used again. 0 stands for none. It is compared in the
//!   step that reserves: once it was swapped, nothing is reserved for the old epoch.
//! * P3. MARK is set only by the turn, in the step that found no running room for a waiter of the current epoch, and
//!   cleared only by the turn. While it is set, no newcomer takes a running unit.
//! * P4. CLOSED refuses everything until the number is given to another provider.
//! * P5. Zero is the word of a number that no provider has: no room, no tag.
//!
//! Rooms: see [`super::room`], R1 to R5.

use std::convert::Infallible;

use super::dimension::Dimension;
use super::room::{Field, Layout, Lowering, Planned, Rooms, given, lowering, taken};
use super::scope::{Blocked, Heed, NotLowered, RequestUnits};
use super::tenant::RequestUse;

const REQUESTS: Field = Field::new(0, 11, Dimension::PoolsRequestsPerProvider);
const RUNNING: Field = Field::new(11, 11, Dimension::PoolsRunningPerProvider);
const MARK: u64 = 1 << 22;
const CLOSED: u64 = 1 << 23;
const TAG_SHIFT: u32 = 32;
const TAG: u64 = (u32::MAX as u64) << TAG_SHIFT;

#[derive(Debug)]
struct ProviderLayout;

impl Layout for ProviderLayout {
    const FIELDS: &'static [Field] = &[REQUESTS, RUNNING];
}

#[inline]
const fn units(asked: RequestUnits) -> u64 {
    match asked {
        RequestUnits::Requests => const { REQUESTS.units(1) },
        RequestUnits::Running => const { RUNNING.units(1) },
        RequestUnits::Both => const { REQUESTS.units(1) | RUNNING.units(1) },
    }
}

#[inline]
const fn tag_of(word: u64) -> u32 {
    (word >> TAG_SHIFT) as u32
}

#[inline(always)]
fn reserved(word: u64, asked: RequestUnits, tag: u32, heed: Heed) -> Result<u64, Blocked> {
    if word & CLOSED != 0 {
        return Err(Blocked::Closed);
    }
    if tag_of(word) != tag || tag == 0 {
        return Err(Blocked::Stale);
    }
    let left = taken::<ProviderLayout>(word, units(asked))?;
    if heed == Heed::Marks && asked.runs() && word & MARK != 0 {
        return Err(Blocked::Promised(RUNNING.dimension()));
    }
    Ok(left)
}

/// What the turn got from a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenRunning {
    /// A running unit.
    Yes,
    /// None; the word is marked, and whoever gives one will signal.
    Marked,
    /// None, and never again for this tag: the epoch was replaced, or the provider is closed.
    Stale,
}

lowering!(ProviderWord);

/// The room of one logical provider, and its tag.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct ProviderWord {
    rooms: Rooms<ProviderLayout>,
}

impl ProviderWord {
    /// Gives a number to a logical provider: its limits and all their room, no tag yet. Control path. `false`: the
    /// number is in use.
    pub fn open(&self, requests: u32, running: u32) -> bool {
        self.rooms.open(REQUESTS.units(u64::from(requests)) | RUNNING.units(u64::from(running)))
    }

    /// Takes the number back, if nothing is in use and nobody waits. Clears the tag and CLOSED. Control path.
    pub fn retire(&self) -> bool {
        self.rooms.retire(CLOSED | TAG)
    }

    /// The tag of the current epoch; 0 if there is none.
    #[inline]
    pub fn tag(&self) -> u32 {
        tag_of(self.rooms.load())
    }

    /// Whether something may be admitted for the epoch of `tag`.
    #[inline]
    pub fn admits(&self, tag: u32) -> bool {
        let word = self.rooms.load();
        tag_of(word) == tag && word & CLOSED == 0
    }

    /// Makes `new` the current epoch in one step: afterwards nothing is reserved for `expected`. Rooms and mark stay.
    ///
    /// # Errors
    ///
    /// The tag that is there instead of `expected`.
    pub fn swap_tag(&self, expected: u32, new: u32) -> Result<(), u32> {
        let swapped = self.rooms.step(|word| match tag_of(word) {
            tag if tag == expected => Ok((word & !TAG) | (u64::from(new) << TAG_SHIFT)),
            other => Err(other),
        });
        swapped.map(drop)
    }

    /// Refuses everything from now on. `true`: it did before.
    pub fn close(&self) -> bool {
        self.rooms.set(CLOSED) & CLOSED != 0
    }

    /// Whether it refuses everything.
    pub fn is_closed(&self) -> bool {
        self.rooms.load() & CLOSED != 0
    }

    /// Works out, on the word as it is now, the step that takes `asked` for the epoch of `tag`. Writes nothing.
    ///
    /// # Errors
    ///
    /// What stands against it.
    #[inline(always)]
    pub fn plan(&self, asked: RequestUnits, tag: u32, heed: Heed) -> Result<Planned, Blocked> {
        refusable!(REQUESTS.dimension(), Blocked::Full(REQUESTS.dimension()));
        let seen = self.rooms.load();
        Ok(Planned::new(seen, reserved(seen, asked, tag, heed)?))
    }

    /// [`reserve`](ProviderWord::reserve), beginning with what [`plan`](ProviderWord::plan) worked out.
    ///
    /// # Errors
    ///
    /// What stands against it, in the value that decided.
    #[inline(always)]
    pub fn reserve_planned(
        &self,
        planned: Planned,
        asked: RequestUnits,
        tag: u32,
        heed: Heed,
    ) -> Result<(), Blocked> {
        refusable!(RUNNING.dimension(), Blocked::Full(RUNNING.dimension()));
        self.rooms.step_planned(planned, |word| reserved(word, asked, tag, heed)).map(drop)
    }

    /// Takes `asked` for the epoch of `tag`, all or nothing, in one step.
    ///
    /// # Errors
    ///
    /// What stands against it, in the value that decided.
    #[inline]
    pub fn reserve(&self, asked: RequestUnits, tag: u32, heed: Heed) -> Result<(), Blocked> {
        self.rooms.step(|word| reserved(word, asked, tag, heed)).map(drop)
    }

    /// For the turn only: whether there is a running unit, over the mark. If not, the mark is set, by a step that found none;
    /// if it stands already, whoever gives one will see it.
    #[inline]
    pub fn has_running_or_mark(&self, tag: u32) -> TakenRunning {
        let marked = self.rooms.step(|word| match reserved(word, RequestUnits::Running, tag, Heed::Nothing) {
            Ok(_) => Err(TakenRunning::Yes),
            Err(Blocked::Full(_)) if word & MARK != 0 => Err(TakenRunning::Marked),
            Err(Blocked::Full(_)) => Ok(word | MARK),
            Err(_) => Err(TakenRunning::Stale),
        });
        marked.err().unwrap_or(TakenRunning::Marked)
    }

    /// For the turn only: takes a running unit over the mark, or sets the mark, in one step. With the unit for the `last` one
    /// who was blocked here the mark goes.
    #[inline]
    pub fn take_or_mark_running(&self, tag: u32, last: bool) -> TakenRunning {
        let running = |word| reserved(word, RequestUnits::Running, tag, Heed::Nothing);
        let gone = if last { MARK } else { 0 };
        let Ok(replaced) = self.rooms.step(|word| {
            Ok::<u64, Infallible>(match running(word) {
                Ok(left) => left & !gone,
                Err(Blocked::Full(_)) => word | MARK,
                Err(_) => word,
            })
        });
        match running(replaced) {
            Ok(_) => TakenRunning::Yes,
            Err(Blocked::Full(_)) => TakenRunning::Marked,
            Err(_) => TakenRunning::Stale,
        }
    }

    /// For the turn only: the request of an operation that ends goes back, and its running unit passes to a waiter of the epoch of
    /// `tag` without being free in between. With the unit for the `last` one who was blocked here the mark goes. `false`: that
    /// epoch is not the current one, and nothing has changed.
    #[inline]
    pub fn pass_running(&self, tag: u32, last: bool) -> bool {
        let limits = self.rooms.limits();
        let gone = if last { MARK } else { 0 };
        let passed = self.rooms.step(|word| {
            let current = word & CLOSED == 0 && tag_of(word) == tag && tag != 0;
            let given = || given::<ProviderLayout>(word, units(RequestUnits::Requests), limits) & !gone;
            (current || planted!("passes_to_an_old_epoch")).then(given).ok_or(())
        });
        passed.is_ok()
    }

    /// Gives units back, in one step, whatever the tag is now. `true`: somebody waits for a running unit here; signal
    /// the turn.
    ///
    /// # Panics
    ///
    /// Broken accounting, if they were not taken.
    #[inline(always)]
    #[must_use = "a marked word has somebody waiting at it: signal the turn"]
    pub fn give(&self, back: RequestUnits) -> bool {
        self.rooms.give(units(back)) & MARK != 0
    }

    /// Gives one running unit back. For the turn, which looks again by itself; everybody else uses
    /// [`give`](ProviderWord::give).
    #[inline]
    pub fn give_running(&self) -> bool {
        self.give(RequestUnits::Running)
    }

    /// For the turn only: nobody is blocked here.
    pub fn unmark(&self) {
        if self.is_marked() {
            self.rooms.clear(MARK);
        }
    }

    /// Whether somebody waits here now. An observation.
    pub fn is_marked(&self) -> bool {
        self.rooms.load() & MARK != 0
    }

    /// What is used, of one instant.
    pub fn snapshot(&self) -> RequestUse {
        let (used, _) = self.rooms.used();
        RequestUse { requests: REQUESTS.count(used), running: RUNNING.count(used) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::small;
    use super::*;

    const LIMIT: u64 = 2;
    const ASKED: [RequestUnits; 3] = [RequestUnits::Requests, RequestUnits::Running, RequestUnits::Both];
    const FLAGS: u64 = MARK | CLOSED;

    fn at(word: u64, tag: u32) -> ProviderWord {
        let word = word | (u64::from(tag) << TAG_SHIFT);
        ProviderWord { rooms: Rooms::at(word, small::limits::<ProviderLayout>(LIMIT)) }
    }

    fn verdict(word: u64, tags: (u32, u32), asked: RequestUnits, heed: Heed) -> Result<(), Blocked> {
        let (current, admitted) = tags;
        if word & CLOSED != 0 {
            return Err(Blocked::Closed);
        }
        if current == 0 || current != admitted {
            return Err(Blocked::Stale);
        }
        if REQUESTS.of(word) < REQUESTS.of(units(asked)) {
            return Err(Blocked::Full(Dimension::PoolsRequestsPerProvider));
        }
        if RUNNING.of(word) < RUNNING.of(units(asked)) {
            return Err(Blocked::Full(Dimension::PoolsRunningPerProvider));
        }
        if heed == Heed::Marks && asked.runs() && word & MARK != 0 {
            return Err(Blocked::Promised(Dimension::PoolsRunningPerProvider));
        }
        Ok(())
    }

    /// The request goes back and the running unit stays taken, for the epoch of the word alone.
    #[test]
    fn a_unit_passes_within_its_epoch_only() {
        let full = small::limits::<ProviderLayout>(LIMIT);
        for word in small::words::<ProviderLayout>(LIMIT - 1, FLAGS) {
            for (current, next, last) in [(1, 1, false), (1, 1, true), (1, 2, false), (0, 0, false), (0, 1, true)] {
                let provider = at(word, current);
                let before = provider.rooms.load();
                let passes = word & CLOSED == 0 && current == next && current != 0;
                assert_eq!(provider.pass_running(next, last), passes);
                let gone = if last { MARK } else { 0 };
                let after = if passes { (before + REQUESTS.units(1)) & !gone } else { before };
                assert_eq!(provider.rooms.load(), after);
                assert_eq!(provider.rooms.limits(), full);
            }
        }
    }

    #[test]
    fn every_step_of_every_small_word() {
        let tags = [0, 1, 2, u32::MAX];
        for word in small::words::<ProviderLayout>(LIMIT, FLAGS) {
            for (current, admitted) in tags.iter().flat_map(|a| tags.iter().map(|b| (*a, *b))) {
                for asked in ASKED {
                    for heed in [Heed::Marks, Heed::Nothing] {
                        let provider = at(word, current);
                        let before = provider.rooms.load();
                        let expected = verdict(word, (current, admitted), asked, heed);
                        let planned = provider.plan(asked, admitted, heed);
                        assert_eq!(planned.map(drop), expected);
                        if let Ok(planned) = planned {
                            let other = at(word, current);
                            assert_eq!(other.reserve_planned(planned, asked, admitted, heed), Ok(()));
                            assert_eq!(other.rooms.load(), before - units(asked));
                            // The word moved on: it is decided anew.
                            let again = verdict(before - units(asked), (current, admitted), asked, heed);
                            assert_eq!(other.reserve_planned(planned, asked, admitted, heed), again);
                        }
                        assert_eq!(provider.reserve(asked, admitted, heed), expected);
                        let after = if expected.is_ok() { before - units(asked) } else { before };
                        assert_eq!(provider.rooms.load(), after);
                        if expected.is_ok() {
                            // Units come back whatever the tag is by then.
                            provider.swap_tag(current, 7).unwrap();
                            assert_eq!(provider.give(asked), word & MARK != 0);
                            provider.swap_tag(7, current).unwrap();
                            assert_eq!(provider.rooms.load(), before);
                        }
                    }
                }
                let provider = at(word, current);
                let before = provider.rooms.load();
                let (taken, after) =
                    match verdict(word, (current, admitted), RequestUnits::Running, Heed::Nothing) {
                        Ok(()) => (TakenRunning::Yes, before - RUNNING.units(1)),
                        Err(Blocked::Full(_)) => (TakenRunning::Marked, before | MARK),
                        Err(_) => (TakenRunning::Stale, before),
                    };
                let looked = at(word, current);
                assert_eq!(looked.has_running_or_mark(admitted), taken);
                assert_eq!(looked.rooms.load(), if taken == TakenRunning::Yes { before } else { after });
                let last = at(word, current);
                assert_eq!(last.take_or_mark_running(admitted, true), taken);
                assert_eq!(last.rooms.load(), if taken == TakenRunning::Yes { after & !MARK } else { after });
                assert_eq!(provider.take_or_mark_running(admitted, false), taken);
                assert_eq!(provider.rooms.load(), after);
            }
        }
    }

    #[test]
    fn a_tag_is_swapped_once_and_only_from_the_expected() {
        let provider = ProviderWord::default();
        assert!(provider.open(4, 2));
        assert_eq!(provider.reserve(RequestUnits::Both, 0, Heed::Marks), Err(Blocked::Stale));
        provider.swap_tag(0, 9).unwrap();
        assert_eq!(provider.swap_tag(0, 10), Err(9));
        provider.reserve(RequestUnits::Both, 9, Heed::Marks).unwrap();
        provider.swap_tag(9, u32::MAX).unwrap();
        assert_eq!(provider.tag(), u32::MAX);
        assert_eq!(provider.reserve(RequestUnits::Both, 9, Heed::Marks), Err(Blocked::Stale));
        // The limits are of the logical provider: the old epoch's request still counts.
        assert_eq!(provider.snapshot(), RequestUse { requests: 1, running: 1 });
        assert!(!provider.retire());
        assert!(!provider.give(RequestUnits::Both));
        assert!(!provider.close() && provider.close() && provider.is_closed());
        assert!(provider.retire());
        assert_eq!((provider.tag(), provider.is_closed()), (0, false));
        assert!(provider.open(1, 1));
    }
}
