//! Room words: several counts side by side in one `u64`, with the flags that guard them.
//!
//! ```text
//! limits  │        │ limit c │ limit b │ limit a │      written by the control path only
//! word    │ flags  │  room c │  room b │  room a │      one compare-and-swap takes from several rooms
//! ```
//!
//! A word counts *room*, limit minus use, so that the word alone decides: taking needs no second load, and giving is
//! one add that looks at nothing.
//!
//! Invariants:
//!
//! * R1. In each field, at every instant: room + use = limit. Units of an attempt or of a lowering that is in flight
//!   count as used.
//! * R2. Room is never below zero: a step takes only what the value it replaces has.
//! * R3. Room is never above the limit: each unit that is given was taken. A `give` that would break it is broken
//!   accounting. To see it without a false alarm, the limit is loaded *before* the step, and a lowering subtracts
//!   from the word *before* it stores the new limit; the limit that a `give` compares with is then at least the one
//!   that holds.
//! * R4. A limit only falls while its field is in use. It rises only from zero, before anything of that field can be
//!   taken; other fields may be in use meanwhile.
//! * R5. Flags change in the same step as the rooms they guard, or in a step of their own; never by a store.

mod field;

use std::fmt;
use std::marker::PhantomData;

use super::dimension::Dimension;
use super::scope::NotLowered;
use crate::broken;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Backoff, order};

use field::within;
pub use field::{Field, Layout, fits, given, taken};

/// A room word and its limits. Zero has no room.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[cfg_attr(not(loom), zeroable(bound = ""))]
pub struct Rooms<L> {
    word: AtomicU64,
    limits: AtomicU64,
    /// Lowerings and openings begun and ended: while they differ, there is less room than the limits leave to users.
    changes_begun: AtomicU64,
    changes_ended: AtomicU64,
    layout: PhantomData<L>,
}

/// A step that was worked out on a value of a word, and not taken yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a planned step has changed nothing"]
pub struct Planned {
    seen: u64,
    replacement: u64,
}

impl Planned {
    /// Where the word was `seen`, it is to become `replacement`.
    #[inline(always)]
    pub const fn new(seen: u64, replacement: u64) -> Planned {
        Planned { seen, replacement }
    }
}

/// Units taken out of the room of one field by a lowering that is not finished. It must be finished or undone; one
/// that is forgotten leaves the units used for good.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "units taken by a lowering must be finished or undone"]
pub struct Lowering {
    pub(super) units: u64,
    from: u64,
    mask: u64,
}

impl Lowering {
    /// A lowering whose limit stands in the word that its step replaced: there is nothing to finish.
    pub(super) const fn at_once(units: u64) -> Lowering {
        Lowering { units, from: 0, mask: 0 }
    }
}

/// How much less room a field is to have.
#[derive(Clone, Copy)]
struct Less {
    field: Field,
    from: u64,
    units: u64,
}

impl Less {
    /// `word` without that room, or what stands against it.
    fn taken(self, word: u64) -> Result<u64, NotLowered> {
        let Less { field, from, units } = self;
        match field.of(word).checked_sub(units) {
            Some(_) => Ok(word - field.units(units)),
            None if planted!("lower_below_use") => Ok(word & !field.mask()),
            // R1. Another lowering in flight may have made `from` too high; then its units count as used.
            None => {
                Err(NotLowered::InUse { dimension: field.dimension(), used: from - field.of(word).min(from) })
            }
        }
    }
}

impl<L: Layout> Rooms<L> {
    /// A word with all of `limits` as room and no flag set.
    pub fn new(limits: u64) -> Rooms<L> {
        Rooms {
            word: AtomicU64::new(limits),
            limits: AtomicU64::new(limits),
            changes_begun: AtomicU64::new(0),
            changes_ended: AtomicU64::new(0),
            layout: PhantomData,
        }
    }

    /// The rooms and flags at this instant.
    #[inline]
    pub fn load(&self) -> u64 {
        self.word.load(order::OBSERVE)
    }

    /// The limits at this instant.
    #[inline]
    pub fn limits(&self) -> u64 {
        self.limits.load(order::OBSERVE)
    }

    /// Replaces the word by what `next` makes of it, in one step. Gives the value replaced, or what `next` says
    /// against the value that it was shown.
    #[inline(always)]
    pub fn step<E>(&self, mut next: impl FnMut(u64) -> Result<u64, E>) -> Result<u64, E> {
        let mut backoff = Backoff::new();
        let mut word = self.load();
        loop {
            let replacement = next(word)?;
            if planted!("check_then_add") {
                self.word.store(replacement, order::PUBLISH);
                return Ok(word);
            }
            match self.word.compare_exchange_weak(word, replacement, order::STEP, order::LOST) {
                Ok(replaced) => return Ok(replaced),
                Err(found) => word = found,
            }
            backoff.lost();
        }
    }

    /// [`step`](Rooms::step), beginning with what was worked out before.
    #[inline(always)]
    pub fn step_planned<E>(
        &self,
        planned: Planned,
        next: impl FnMut(u64) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let Planned { seen, replacement } = planned;
        match self.word.compare_exchange(seen, replacement, order::STEP, order::LOST) {
            Ok(replaced) => Ok(replaced),
            Err(_) => self.step_anew(next),
        }
    }

    /// The word has moved since the step was planned.
    #[cold]
    #[inline(never)]
    fn step_anew<E>(&self, next: impl FnMut(u64) -> Result<u64, E>) -> Result<u64, E> {
        self.step(next)
    }

    /// Gives units back, in one step. Returns the value replaced, whose flags say who must be told.
    ///
    /// # Panics
    ///
    /// Broken accounting, if more is given than was taken (unless the thread is panicking already).
    #[inline(always)]
    pub fn give(&self, units: u64) -> u64 {
        let limits = self.limits();
        let word = self.word.fetch_add(units, order::STEP);
        let limits = if planted!("limit_after_the_step") { self.limits() } else { limits };
        if !fits::<L>(word, units, limits) {
            broken::accounting_in_drop("more was given back to a room word than was taken from it");
        }
        word
    }

    /// Sets flags. Returns the value replaced.
    #[inline]
    pub fn set(&self, flags: u64) -> u64 {
        self.word.fetch_or(flags, order::STEP)
    }

    /// Clears flags. Returns the value replaced.
    #[inline]
    pub fn clear(&self, flags: u64) -> u64 {
        self.word.fetch_and(!flags, order::STEP)
    }

    /// Gives fields whose limit is zero their limit and as much room (R4). Control path.
    ///
    /// `false`: one of them has a limit already, and nothing was changed.
    pub fn open(&self, limits: u64) -> bool {
        let present = self.limits();
        if L::FIELDS.iter().any(|field| field.of(limits) > 0 && field.of(present) > 0) {
            return false;
        }
        // The limit is there before its room is: a give can never find room above it.
        self.change_begins();
        let opened =
            self.limits.compare_exchange(present, present + limits, order::STEP, order::LOST).is_ok();
        if opened {
            self.word.fetch_add(limits, order::STEP);
        }
        self.change_ends();
        opened
    }

    /// Takes all limits and rooms away, if nothing is in use and no flag is set except those of `forgotten`, which are
    /// cleared. Control path.
    pub fn retire(&self, forgotten: u64) -> bool {
        let limits = self.limits();
        let unused = |word| if word & !forgotten == limits { Ok(0) } else { Err(()) };
        let emptied = self.step(unused).is_ok();
        if emptied {
            self.limits.store(0, order::PUBLISH);
        }
        emptied
    }

    /// Looks whether a limit could be lowered now. Writes nothing.
    pub fn look(&self, dimension: Dimension, limit: u64) -> Result<(), NotLowered> {
        let less = self.less(dimension, limit)?;
        less.taken(self.load()).map(drop)
    }

    /// Takes away the room that a lower limit does not have. The limit itself stays until [`finish`](Rooms::finish).
    pub fn begin(&self, dimension: Dimension, limit: u64) -> Result<Lowering, NotLowered> {
        let less = self.less(dimension, limit)?;
        refusable!(dimension, NotLowered::InUse { dimension, used: limit });
        self.change_begins();
        self.step(|word| less.taken(word)).inspect_err(|_| self.change_ends())?;
        let Less { field, from, units } = less;
        Ok(Lowering { units: field.units(units), from: field.units(from), mask: field.mask() })
    }

    /// What is to be taken for a lower limit.
    fn less(&self, dimension: Dimension, limit: u64) -> Result<Less, NotLowered> {
        let field = L::FIELDS.iter().find(|field| field.dimension() == dimension);
        let field = *field.ok_or(NotLowered::NotHere(dimension))?;
        let from = field.of(self.limits());
        match from.checked_sub(limit) {
            Some(units) => Ok(Less { field, from, units }),
            None => Err(NotLowered::Raised { dimension, limit: from }),
        }
    }

    /// Stores the limit of a lowering, after its units left the room (R3).
    ///
    /// # Errors
    ///
    /// The limit moved since [`begin`](Rooms::begin): another lowering came in between. Undo this one.
    pub fn finish(&self, lowering: Lowering) -> Result<(), Lowering> {
        let mut limits = self.limits();
        loop {
            if limits & lowering.mask != lowering.from {
                return Err(lowering);
            }
            let lower = limits - lowering.units;
            match self.limits.compare_exchange_weak(limits, lower, order::STEP, order::LOST) {
                Ok(_) => {
                    self.change_ends();
                    return Ok(());
                }
                Err(found) => limits = found,
            }
        }
    }

    /// Gives the units of a lowering back.
    pub fn undo(&self, lowering: Lowering) {
        self.give(lowering.units);
        self.change_ends();
    }

    // High-water marks alone ask for these, and models know no such marks.

    fn change_begins(&self) {
        if !cfg!(loom) {
            self.changes_begun.fetch_add(1, order::STEP);
        }
    }
    fn change_ends(&self) {
        if !cfg!(loom) {
            self.changes_ended.fetch_add(1, order::STEP);
        }
    }
    /// How many changes of limits were begun and ended.
    pub fn changes(&self) -> [u64; 2] {
        [self.changes_begun.load(order::OBSERVE), self.changes_ended.load(order::OBSERVE)]
    }

    /// What users hold of each field, as a word, and the limits, all of one instant; and the changes of limits until then.
    /// `None`: a limit is being changed just now.
    pub fn used_at_rest(&self) -> Option<(u64, u64, [u64; 2])> {
        let before = self.changes();
        let (used, word) = self.used();
        let limits = used + (word & L::COUNTS);
        (before[0] == before[1] && self.changes() == before).then_some((used, limits, before))
    }

    /// Lowers one limit, or changes nothing.
    pub fn lower(&self, dimension: Dimension, limit: u64) -> Result<(), NotLowered> {
        loop {
            let lowering = self.begin(dimension, limit)?;
            match self.finish(lowering) {
                Ok(()) => return Ok(()),
                Err(lowering) => self.undo(lowering),
            }
        }
    }

    /// What is used in each field, as a word, and the rooms and flags it was read from.
    ///
    /// All fields are of one instant, in which the limits held too.
    pub fn used(&self) -> (u64, u64) {
        let mut limits = self.limits();
        loop {
            let word = self.load();
            let after = self.limits();
            if after == limits {
                if !within::<L>(word, 0, limits) {
                    broken::accounting("a room word is above its limit");
                }
                return (limits - (word & L::COUNTS), word);
            }
            limits = after;
        }
    }
}

impl<L: Layout> Default for Rooms<L> {
    fn default() -> Rooms<L> {
        Rooms::new(0)
    }
}

impl<L: Layout> fmt::Debug for Rooms<L> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, limits) = (self.load(), self.limits());
        let mut fields = out.debug_map();
        for field in L::FIELDS {
            let room = format_args!("{} of {}", field.of(word), field.of(limits)).to_string();
            fields.entry(&field.dimension().name(), &room);
        }
        fields.finish()
    }
}

/// The lowering of limits, the same for every word that has rooms: at once, or in the two halves of [`super::lower`].
macro_rules! lowering {
    ($($word:ident),+) => {$(
        /// Lowering of limits. Control path. Signal the turn afterwards, whatever came of it: for a moment there may
        /// have been less room than there is now, and somebody may have marked the word for it.
        impl $word {
            /// Lowers one limit, or changes nothing.
            ///
            /// # Errors
            ///
            /// More is in use, the limit is lower already, or it is not counted here.
            pub fn lower(&self, dimension: Dimension, limit: u64) -> Result<(), NotLowered> {
                self.rooms.lower(dimension, limit)
            }
        }

        impl super::lower::Lower for $word {
            fn look_lower(&self, dimension: Dimension, limit: u64) -> Result<(), NotLowered> {
                self.rooms.look(dimension, limit)
            }
            fn begin_lower(&self, dimension: Dimension, limit: u64) -> Result<Lowering, NotLowered> {
                self.rooms.begin(dimension, limit)
            }
            fn finish_lower(&self, lowering: Lowering) -> Result<(), Lowering> {
                self.rooms.finish(lowering)
            }
            fn undo_lower(&self, lowering: Lowering) {
                self.rooms.undo(lowering);
            }
        }
    )+};
}
pub(super) use lowering;

/// The words that decided, for tests of whether refusals are justified.
#[cfg(test)]
pub(crate) mod decided {
    use super::Dimension;
    use std::cell::RefCell;

    /// A word that had too little room, as the step saw it, and the units that were asked of it.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Deciding {
        pub(crate) dimension: Dimension,
        pub(crate) word: u64,
        pub(crate) units: u64,
    }

    thread_local! {
        static DECIDED: RefCell<Vec<Deciding>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(dimension: Dimension, word: u64, units: u64) {
        DECIDED.with_borrow_mut(|decided| decided.push(Deciding { dimension, word, units }));
    }

    /// Those of this thread since it last took them.
    pub(crate) fn take() -> Vec<Deciding> {
        DECIDED.take()
    }
}

/// Enumeration of small words, for the tests of every layout.
#[cfg(test)]
pub(super) mod small {
    use super::{AtomicU64, Layout, PhantomData, Rooms};

    /// All words of a layout in which each room is 0 to `most`, with all subsets of `flags`.
    pub(crate) fn words<L: Layout>(most: u64, flags: u64) -> Vec<u64> {
        let mut words = vec![0];
        for field in L::FIELDS {
            let rooms = 0..=most;
            words = words
                .iter()
                .flat_map(|word| rooms.clone().map(move |room| word | field.units(room)))
                .collect();
        }
        let subsets = (0..64).map(|bit| 1 << bit).filter(|bit| flags & bit != 0);
        for flag in subsets {
            words.extend(words.clone().iter().map(|word| word | flag));
        }
        words
    }

    /// The same limit in every field.
    pub(crate) fn limits<L: Layout>(limit: u64) -> u64 {
        L::FIELDS.iter().fold(0, |limits, field| limits | field.units(limit))
    }

    /// What the fields of a word hold, from the lowest bits up.
    pub(crate) fn counts<L: Layout>(word: u64) -> Vec<u64> {
        L::FIELDS.iter().map(|field| field.of(word)).collect()
    }

    impl<L: Layout> Rooms<L> {
        /// A word in the middle of its life.
        pub(crate) fn at(word: u64, limits: u64) -> Rooms<L> {
            Rooms { word: AtomicU64::new(word), ..Rooms::new(limits) }
        }
    }
}

#[cfg(test)]
mod tests;
