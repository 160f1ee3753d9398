//! The turn: the right to run, held by at most one thread, never waited for.
//!
//! Whoever has work leaves it where the turn will find it (an index in the inbox, or a mark of its own and a signal), or
//! takes the turn together with all the work that waits, in one step. If another thread has the turn, that one is bound to
//! see the work before it can leave. So nobody waits, and no work is left behind.
//!
//! ```text
//!  31          18 17      16     15                0
//! ┌──────────────┬───────┬──────┬───────────────────┐
//! │ unused       │ DIRTY │ HELD │ inbox: newest + 1 │   inbox 0: empty
//! └──────────────┴───────┴──────┴───────────────────┘
//!
//!   step           needs   HELD is on        HELD is off                     gives the guard
//!   post           -       newest = index    HELD alone: takes all, index    if HELD was off
//!   signal         -       DIRTY             HELD alone: takes all, DIRTY    if HELD was off
//!   try_hold       -       nothing           HELD alone: takes all           if HELD was off
//!   collect        guard   HELD alone: takes all, that is inbox and DIRTY    keeps it
//!   leave          guard   HELD alone -> 0, or nothing        gives it up, or keeps it
//!   leave_dirty    guard   DIRTY, then HELD off               gives it up
//! ```
//!
//! * **T1** The word changes only by read-modify-write. Each step that turns HELD on makes exactly one guard, and only
//!   that guard turns HELD off, as its last access. So at most one guard exists, and the state is its own.
//!   What the step found in the word is handed to the caller with the guard, as [`Collected`].
//! * **T2** Turning HELD off releases, turning it on acquires: a holder sees all that the holders before it did.
//! * **T3** A holder leaves cleanly only from the word HELD alone: empty inbox, not DIRTY. Work posted or signalled before
//!   that step was collected, work after it takes the turn itself.
//! * **T4** A guard that is dropped leaves DIRTY set: what it left undone is not forgotten.
//! * **T5** The inbox is a stack of indices, linked from newer to older through one link per index. It is only pushed to,
//!   and taken as a whole. An index is in it at most once; the poster's own word sees to that, and an index that may be
//!   in the inbox has its link written by nobody.
//!
//! T5 is a matter of sense, not of soundness: links are plain numbers.

use std::ops::Index;

use crate::sync::atomic::{AtomicU16, AtomicU32};
use crate::sync::{Backoff, UnsafeCell, order};

const INBOX: u32 = 0xFFFF;
const HELD: u32 = 1 << 16;
const DIRTY: u32 = 1 << 17;

/// The word after `index` was posted to it.
const fn posted(word: u32, index: u16) -> u32 {
    word & !INBOX | (index as u32 + 1)
}

/// The link that the newest index of `word` is given as the one before it: 0, or the older index + 1.
#[allow(clippy::cast_possible_truncation, reason = "masked to 16 bits")]
const fn inbox(word: u32) -> u16 {
    (word & INBOX) as u16
}

/// The index in a link.
const fn index(link: u16) -> Option<u16> {
    link.checked_sub(1)
}

/// The turn over a state `S` that only its holder touches.
#[derive(Debug)]
pub struct Turn<S> {
    word: AtomicU32,
    state: UnsafeCell<S>,
}

// SAFETY: T1, T2: a shared turn lends its state to one thread at a time, one after another, as a lock would.
unsafe impl<S: Send> Sync for Turn<S> {}

/// The turn is yours. Work through what came with it, then [`Self::leave`]; as often as that fails, through what
/// [`Self::collect`] finds.
#[must_use = "the work in the turn waits for its holder"]
#[derive(Debug)]
pub struct TurnGuard<'a, S> {
    turn: &'a Turn<S>,
}

/// What waited for the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collected {
    /// There was a signal, or the last holder left early: look at your own marks.
    pub dirty: bool,
    /// The newest index of the inbox; the others follow by [`older`].
    pub newest: Option<u16>,
}

impl Collected {
    /// Whether nothing waited: the state is as the last holder left it.
    #[must_use]
    #[inline]
    pub const fn is_nothing(self) -> bool {
        !self.dirty && self.newest.is_none()
    }

    #[inline]
    fn of(word: u32) -> Self {
        Self { dirty: word & DIRTY != 0, newest: index(inbox(word)) }
    }
}

/// The index that was posted before `at`, if `at` was not the first. Read it before `at` can be posted again.
pub fn older<L>(links: &L, at: u16) -> Option<u16>
where
    L: Index<u16, Output = AtomicU16> + ?Sized,
{
    index(links[at].load(order::COUNT))
}

/// Turns a collected inbox around, so that [`older`] leads from older to newer. Gives the oldest index.
pub fn oldest_first<L>(links: &L, newest: Option<u16>) -> Option<u16>
where
    L: Index<u16, Output = AtomicU16> + ?Sized,
{
    let (mut done, mut next) = (None, newest);
    while let Some(at) = next {
        next = older(links, at);
        links[at].store(done.map_or(0, |done| done + 1), order::COUNT);
        done = Some(at);
    }
    done
}

impl<S> Turn<S> {
    /// A free turn without work.
    #[must_use]
    pub fn new(state: S) -> Self {
        Self { word: AtomicU32::new(0), state: UnsafeCell::new(state) }
    }

    /// Takes the turn if it is free, `index` on top of all that waits; else posts it to the inbox. One step either way.
    /// None: the holder will see it.
    ///
    /// The caller made sure that `index` is not in the inbox (T5). All that it wrote before is seen by the holder.
    ///
    /// # Panics
    ///
    /// If `index` is 65,535.
    #[inline]
    pub fn post<L>(&self, index: u16, links: &L) -> Option<(TurnGuard<'_, S>, Collected)>
    where
        L: Index<u16, Output = AtomicU16> + ?Sized,
    {
        assert!(index < u16::MAX, "an inbox holds indices below 65,535");
        let link = &links[index];
        let (before, guard) = self.step(|word| {
            link.store(inbox(word), order::COUNT);
            Some(posted(word, index))
        });
        guard.map(|guard| (guard, Collected::of(posted(before, index))))
    }

    /// Takes the turn if it is free; else says that there is work outside the inbox (a mark that the holder looks at when it
    /// is [`Collected::dirty`]). One step either way. None: the holder will see it.
    #[inline]
    pub fn signal(&self) -> Option<(TurnGuard<'_, S>, Collected)> {
        let (before, guard) = self.step(|word| Some(word | DIRTY));
        guard.map(|guard| (guard, Collected::of(before | DIRTY)))
    }

    /// Takes the turn if it is free, with all that waits. None: somebody has it, and knows nothing of this attempt.
    #[inline]
    pub fn try_hold(&self) -> Option<(TurnGuard<'_, S>, Collected)> {
        let (before, guard) = self.step(|_| None);
        guard.map(|guard| (guard, Collected::of(before)))
    }

    /// One step of who has no guard: a free turn is taken (T1), and of one that is held the word becomes what `left` makes
    /// of it, or is only looked at. Gives the word before.
    #[inline(always)]
    fn step(&self, mut left: impl FnMut(u32) -> Option<u32>) -> (u32, Option<TurnGuard<'_, S>>) {
        let mut backoff = Backoff::new();
        let mut word = self.word.load(order::COUNT);
        loop {
            let left = left(word);
            let free = word & HELD == 0;
            let Some(next) = (if free { Some(HELD) } else { left }) else { return (word, None) };
            match self.word.compare_exchange_weak(word, next, order::STEP, order::COUNT) {
                Ok(_) => return (word, free.then(|| TurnGuard { turn: self })),
                Err(now) => word = now,
            }
            backoff.lost();
        }
    }

    /// Whether the inbox is empty, for a fast path that must not overtake what was posted. Somebody may post right after.
    #[must_use]
    #[inline]
    pub fn inbox_is_empty(&self) -> bool {
        inbox(self.word.load(order::OBSERVE)) == 0
    }

    /// Whether there is nothing to do and nobody at it.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.word.load(order::OBSERVE) == 0
    }
}

impl<S> TurnGuard<'_, S> {
    /// Takes the work that waits, all at once.
    #[inline]
    pub fn collect(&mut self) -> Collected {
        Collected::of(self.turn.word.swap(HELD, order::STEP))
    }

    /// The state.
    #[inline]
    pub fn state(&mut self) -> &mut S {
        // SAFETY: T1: this guard is the only one, and it is borrowed exclusively.
        self.turn.state.with_mut(|state| unsafe { &mut *state })
    }

    /// Lets the turn go, if nothing came in since [`Self::collect`].
    ///
    /// # Errors
    ///
    /// The turn, if there is new work: go on.
    #[inline]
    pub fn leave(self) -> Result<(), Self> {
        match self.turn.word.compare_exchange(HELD, 0, order::PUBLISH, order::COUNT) {
            Ok(_) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(_) => Err(self),
        }
    }

    /// Lets the turn go with work left in it: whoever takes it next finds [`Collected::dirty`]. The caller sees to it that
    /// somebody does, for instance by trying again itself.
    #[inline]
    pub fn leave_dirty(self) {
        drop(self);
    }
}

/// Leaves the turn with DIRTY set: so does a panic of its holder (T4).
impl<S> Drop for TurnGuard<'_, S> {
    fn drop(&mut self) {
        // Two steps that cannot fail instead of one that can: only a holder clears either bit.
        self.turn.word.fetch_or(DIRTY, order::COUNT);
        self.turn.word.fetch_and(!HELD, order::PUBLISH);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Links(Vec<AtomicU16>);

    impl Index<u16> for Links {
        type Output = AtomicU16;

        fn index(&self, index: u16) -> &AtomicU16 {
            &self.0[usize::from(index)]
        }
    }

    fn links(count: usize) -> Links {
        Links((0..count).map(|_| AtomicU16::new(0)).collect())
    }

    /// Every word of a reduced range, on a turn that is in it.
    fn words() -> impl Iterator<Item = u32> {
        [0, 1, 2, 3, 0xFFFF]
            .into_iter()
            .flat_map(|inbox| [0, HELD, DIRTY, HELD | DIRTY].map(|flags| inbox | flags))
    }

    fn turn_in(word: u32) -> Turn<()> {
        Turn { word: AtomicU32::new(word), state: UnsafeCell::new(()) }
    }

    fn word_of(turn: &Turn<()>) -> u32 {
        turn.word.load(order::COUNT)
    }

    #[test]
    fn every_step_that_turns_held_on_makes_the_guard() {
        for word in words() {
            let free = word & HELD == 0;
            let (links, turn) = (links(5), turn_in(word));
            // A free turn is taken with all that waits; to one that is held the work is added.
            let check = |taken: Option<(TurnGuard<'_, ()>, Collected)>, added: u32| {
                let found = taken.map(|(guard, collected)| {
                    std::mem::forget(guard);
                    collected
                });
                assert_eq!(found, free.then(|| Collected::of(added)), "{word:x}");
                assert_eq!(word_of(&turn), if free { HELD } else { added }, "{word:x}");
                turn.word.store(word, order::COUNT);
            };
            check(turn.post(4, &links), word & !INBOX | 5);
            assert_eq!(links[4].load(order::COUNT), inbox(word));
            check(turn.signal(), word | DIRTY);
            check(turn.try_hold(), word);
            assert_eq!(turn.inbox_is_empty(), word & INBOX == 0);
            assert_eq!(turn.is_at_rest(), word == 0);
        }
    }

    #[test]
    fn a_holder_leaves_cleanly_only_without_work() {
        for word in words().map(|word| word | HELD) {
            let turn = turn_in(word);
            match (TurnGuard { turn: &turn }).leave() {
                Ok(()) => assert_eq!((word, word_of(&turn)), (HELD, 0)),
                Err(guard) => {
                    assert!(word != HELD && word_of(&turn) == word);
                    drop(guard);
                    assert_eq!(word_of(&turn), word & !HELD | DIRTY);
                }
            }
            let turn = turn_in(word);
            let mut guard = TurnGuard { turn: &turn };
            let collected = guard.collect();
            assert_eq!(collected.dirty, word & DIRTY != 0);
            assert_eq!(collected.newest.map_or(0, |newest| u32::from(newest) + 1), word & INBOX);
            assert!(guard.leave().is_ok());
        }
    }

    #[test]
    fn the_inbox_keeps_the_order_of_posting() {
        let (turn, links) = (Turn::new(()), links(4));
        let follow = |first| std::iter::successors(first, |&at| older(&links, at)).collect::<Vec<_>>();
        let (mut guard, collected) = turn.post(2, &links).expect("nobody holds it");
        assert_eq!(follow(collected.newest), [2]);
        for index in [1, 0, 3] {
            assert!(turn.post(index, &links).is_none());
        }
        let newest = guard.collect().newest;
        assert_eq!(newest, Some(3));
        assert_eq!(follow(newest), [3, 0, 1]);
        assert_eq!(follow(oldest_first(&links, newest)), [1, 0, 3]);
        assert_eq!(oldest_first(&links, None), None);
        // What a holder leaves behind is below what comes next.
        assert!(turn.post(0, &links).is_none());
        guard.leave_dirty();
        let (guard, collected) = turn.post(2, &links).expect("nobody holds it");
        assert!(collected.dirty);
        assert_eq!(follow(collected.newest), [2, 0]);
        assert!(guard.leave().is_ok());
    }

    #[test]
    fn a_panic_of_the_holder_leaves_the_turn_dirty() {
        let turn = Turn::new(0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut guard, _) = turn.try_hold().expect("nobody holds it");
            *guard.state() = 7;
            panic!("told to");
        }));
        assert!(panicked.is_err());
        let (mut guard, collected) = turn.try_hold().expect("the panic let it go");
        assert_eq!((collected, *guard.state()), (Collected { dirty: true, newest: None }, 7));
        assert!(guard.leave().is_ok());
    }

    #[test]
    #[should_panic(expected = "an inbox holds indices below 65,535")]
    fn an_index_without_a_link_value_is_refused() {
        let _ = Turn::new(()).post(u16::MAX, &links(0));
    }

    /// Posts from many threads: each is worked through by somebody, in no thread out of order.
    #[test]
    fn no_post_is_left_behind() {
        const THREADS: u16 = 4;
        let rounds: u32 = if cfg!(miri) { 50 } else { 20_000 };
        let (turn, links) = (Turn::new([0_u32; THREADS as usize]), links(THREADS.into()));
        let free: Vec<AtomicU32> = (0..THREADS).map(|_| AtomicU32::new(1)).collect();
        let run = |(mut guard, mut found): (TurnGuard<'_, [u32; THREADS as usize]>, Collected)| {
            loop {
                let mut next = oldest_first(&links, found.newest);
                while let Some(at) = next {
                    next = older(&links, at);
                    guard.state()[usize::from(at)] += 1;
                    free[usize::from(at)].store(1, order::PUBLISH);
                }
                match guard.leave() {
                    Ok(()) => return,
                    Err(again) => guard = again,
                }
                found = guard.collect();
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (turn, links, free, run) = (&turn, &links, &free, &run);
                scope.spawn(move || {
                    for _ in 0..rounds {
                        while free[usize::from(thread)].swap(0, order::STEP) == 0 {
                            std::thread::yield_now();
                        }
                        if let Some(taken) = turn.post(thread, links) {
                            run(taken);
                        }
                    }
                });
            }
        });
        assert!(turn.is_at_rest());
        assert_eq!(*turn.try_hold().expect("at rest").0.state(), [rounds; THREADS as usize]);
    }
}
