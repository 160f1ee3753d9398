//! The word of a ring, and every step it can take, as pure functions.
//!
//! ```text
//!  31     24 23     16 15      12 11  7   6    5      4       3       2      1      0
//! ┌─────────┬─────────┬──────────┬─────┬────┬──────┬──────┬───────┬──────┬──────┬──────┐
//! │ tail    │ cut     │ terminal │     │END │READER│WRITER│STOPPED│WRITER│READER│READER│
//! │ mod 256 │ mod 256 │ 0: none  │     │READ│ OPEN │ OPEN │       │PARKED│PARKED│CLOSED│
//! └─────────┴─────────┴──────────┴─────┴────┴──────┴──────┴───────┴──────┴──────┴──────┘
//! ```
//!
//! The tail stands on top, so that a push is an addition that runs into nothing. Being one, it cannot refuse: a push into
//! a ring that is stopped or closed moves the tail all the same, and its writer takes the item back. So what counts as
//! queued ends at the *cut* from then on, which is where the tail stood at the stop or the close.
//!
//! The head is not here: only the reader moves it, so it is a number of its own, and its owner knows it.
//!
//! What holds in every word that the steps can reach, with the head (`check` in the tests looks at all of them):
//!
//! * **W1** What is queued, `end - head` (modulo 256), is at most the capacity. `end` is the tail, or the cut once there is one;
//!   the tail is at most one push behind it.
//! * **W2** READER PARKED: the reader is open and has nothing to take (empty, no terminal, not stopped), or the writer whose
//!   push changed that is about to unpark it. WRITER PARKED: the writer is open, there is no terminal, and the reader has
//!   not closed.
//! * **W3** A terminal is never removed. Without a stop it is never changed. A stop changes it only if chunks that were
//!   queued in front of it are lost by the stop: "end of data" must not be read then. Once it was read, nothing changes it.
//! * **W4** READER CLOSED, STOPPED, END READ, the cut and a closed end stay until both ends are closed and the ring is opened
//!   anew.

/// Places in a ring. Models make do with four.
pub const CELLS: usize = if cfg!(loom) { 4 } else { 128 };

const _: () =
    assert!(256 % CELLS == 0 && CELLS <= 128, "positions modulo 256 name cells, and full differs from empty");

const TAIL: u32 = 24;
const CUT: u32 = 16;
const TERMINAL: u32 = 12;
const READER_CLOSED: u32 = 1;
const READER_PARKED: u32 = 1 << 1;
const WRITER_PARKED: u32 = 1 << 2;
const STOPPED: u32 = 1 << 3;
const WRITER_OPEN: u32 = 1 << 4;
const READER_OPEN: u32 = 1 << 5;
const END_READ: u32 = 1 << 6;
const PARKED: u32 = READER_PARKED | WRITER_PARKED;
const TERMINALS: u32 = (LAST_TERMINAL as u32) << TERMINAL;

/// The largest terminal.
pub const LAST_TERMINAL: u8 = 15;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Word(pub(super) u32);

/// One end of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Reader,
    Writer,
}

impl End {
    const fn parked(self) -> u32 {
        match self {
            Self::Reader => READER_PARKED,
            Self::Writer => WRITER_PARKED,
        }
    }
}

/// Why a push is refused for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPush {
    Closed,
    Terminal(u8),
}

/// What a reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Item,
    Empty,
    End(u8),
}

#[allow(clippy::cast_possible_truncation, reason = "every field is masked to its width")]
impl Word {
    /// Both ends open, nothing in it.
    pub(super) const OPENED: Self = Self(WRITER_OPEN | READER_OPEN);

    /// One more at the tail, as what is added to the word.
    pub(super) const ONE_PUSH: u32 = 1 << TAIL;

    const fn has(self, mask: u32) -> bool {
        self.0 & mask != 0
    }

    /// The position that is written next.
    pub(super) const fn tail(self) -> u8 {
        (self.0 >> TAIL) as u8
    }

    /// The same word with the tail where its owner knows it to be.
    pub(super) const fn at(self, tail: u8) -> Self {
        Self(self.0 & !(0xFF << TAIL) | (tail as u32) << TAIL)
    }

    /// Where what is queued ends.
    pub(super) const fn end(self) -> u8 {
        if self.has(STOPPED | READER_CLOSED) { (self.0 >> CUT) as u8 } else { self.tail() }
    }

    /// How many are queued, for a reader at `head`.
    pub(super) const fn len(self, head: u8) -> u8 {
        if self.has(READER_CLOSED) { 0 } else { self.end().wrapping_sub(head) }
    }

    /// How it ends; 0: open.
    pub(super) const fn terminal(self) -> u8 {
        (self.0 >> TERMINAL) as u8 & LAST_TERMINAL
    }

    pub(super) const fn is_stopped(self) -> bool {
        self.has(STOPPED)
    }

    pub(super) const fn is_reader_closed(self) -> bool {
        self.has(READER_CLOSED)
    }

    pub(super) const fn is_open(self, end: End) -> bool {
        match end {
            End::Reader => self.has(READER_OPEN),
            End::Writer => self.has(WRITER_OPEN),
        }
    }

    pub(super) const fn is_parked(self, end: End) -> bool {
        self.has(end.parked())
    }

    /// Whether a push that found this word went in, and there is nobody to wake.
    pub(super) const fn takes_quietly(self) -> bool {
        !self.has(READER_CLOSED | READER_PARKED | TERMINALS)
    }

    const fn with_terminal(self, terminal: u8) -> Self {
        Self(self.0 & !TERMINALS | (terminal as u32) << TERMINAL)
    }

    /// What is queued ends here from now on.
    const fn with_cut(self) -> Self {
        Self(self.0 & !(0xFF << CUT) | (self.end() as u32) << CUT)
    }

    /// Why a push that finds this word is not one; none: it went in, if there was room.
    pub(super) const fn refusal(self) -> Option<NoPush> {
        if self.is_reader_closed() {
            Some(NoPush::Closed)
        } else if self.terminal() != 0 {
            Some(NoPush::Terminal(self.terminal()))
        } else {
            None
        }
    }

    /// What a reader at `head` finds.
    pub(super) const fn found(self, head: u8) -> Found {
        if self.has(STOPPED | READER_CLOSED) {
            Found::End(self.terminal())
        } else if self.end() != head {
            Found::Item
        } else if self.terminal() != 0 {
            Found::End(self.terminal())
        } else {
            Found::Empty
        }
    }

    /// The reader at `head` reads the end, which stands from now on. None: there is none, or it stands already.
    pub(super) const fn end_read(self, head: u8) -> Option<Self> {
        let fresh = !self.has(STOPPED | READER_CLOSED | END_READ);
        match self.found(head) {
            Found::End(_) if fresh => Some(Self(self.0 | END_READ)),
            _ => None,
        }
    }

    /// The writer goes, saying how it ended; an earlier terminal stands. Both are woken.
    pub(super) const fn finished(self, terminal: u8) -> Self {
        let ended = if self.terminal() == 0 { self.with_terminal(terminal) } else { self };
        Self(ended.0 & !(WRITER_OPEN | PARKED))
    }

    /// The reader at `head` goes and takes what is queued. It stays open while there is something to take out of the cells.
    pub(super) const fn closed(self, head: u8) -> Self {
        let open = if self.len(head) == 0 { READER_OPEN } else { 0 };
        Self((self.with_cut().0 | READER_CLOSED) & !(open | PARKED))
    }

    /// The reader has taken out what it closed over.
    pub(super) const READER_LEFT: u32 = !READER_OPEN;

    /// Somebody else ends it, at once: nothing is delivered any more. Both are woken. None: there is nothing to end.
    ///
    /// `head` may be an old one, beside a reader that reads on.
    pub(super) const fn terminated(self, terminal: u8, head: u8) -> Option<Self> {
        if self.is_stopped() || !self.has(WRITER_OPEN | READER_OPEN) {
            return None;
        }
        let lost = self.terminal() == 0 || !self.has(END_READ) && self.len(head) != 0;
        let ended = if lost { self.with_terminal(terminal) } else { self };
        Some(Self((ended.with_cut().0 | STOPPED) & !PARKED))
    }

    pub(super) const fn parked(self, end: End) -> Self {
        Self(self.0 | end.parked())
    }

    pub(super) const fn unparked(self, end: End) -> Self {
        Self(self.0 & !end.parked())
    }

    /// What unparks `end`, as a mask to keep.
    pub(super) const fn unparking(end: End) -> u32 {
        !end.parked()
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tail {} end {} terminal {}", self.tail(), self.end(), self.terminal())?;
        for (bit, name) in [
            (READER_CLOSED, "READER_CLOSED"),
            (READER_PARKED, "READER_PARKED"),
            (WRITER_PARKED, "WRITER_PARKED"),
            (STOPPED, "STOPPED"),
            (WRITER_OPEN, "WRITER_OPEN"),
            (READER_OPEN, "READER_OPEN"),
            (END_READ, "END_READ"),
        ] {
            if self.has(bit) {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A ring without its cells: the word, and what the ends know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct State {
        word: Word,
        head: u8,
        /// The writer had a push refused, and pushes no more.
        refused: bool,
        /// A push found the reader parked; its next step unparks it.
        unparking: bool,
    }

    const OPENED: State = State { word: Word::OPENED, head: 0, refused: false, unparking: false };

    fn check(state: State, capacity: u8) {
        let State { word, head, refused, unparking } = state;
        assert!(word.len(head) <= capacity, "W1: {state:?}");
        let behind = word.tail().wrapping_sub(word.end());
        assert_eq!(behind, u8::from(refused), "W1: {state:?}");
        if word.is_parked(End::Reader) {
            let waits = word.found(head) == Found::Empty;
            let unparked_next = unparking && word.refusal().is_none();
            assert!(word.is_open(End::Reader) && (waits || unparked_next), "W2: {state:?}");
        }
        if word.is_parked(End::Writer) {
            assert!(word.is_open(End::Writer) && word.refusal().is_none(), "W2: {state:?}");
        }
        if word.is_stopped() {
            assert_ne!(word.terminal(), 0, "a stop says why: {state:?}");
        }
        if word.is_reader_closed() {
            assert_eq!(word.len(head), 0, "the closer took all: {state:?}");
        }
    }

    /// The steps of the ends that are open, and of third parties, with what each may change.
    fn steps(state: State, capacity: u8) -> Vec<(&'static str, State)> {
        let State { word, head, refused, unparking } = state;
        let to = |word| State { word, ..state };
        let mut next = Vec::new();
        if unparking {
            let word = word.unparked(End::Reader);
            next.push(("claim", State { word, unparking: false, ..state }));
        } else if word.is_open(End::Writer) {
            let word = state.word;
            if !refused && word.tail().wrapping_sub(head) < capacity {
                let refused = word.refusal().is_some();
                let unparking = !refused && word.is_parked(End::Reader);
                let word = Word(word.0.wrapping_add(Word::ONE_PUSH));
                next.push((if refused { "refused" } else { "push" }, State { word, refused, unparking, ..state }));
            }
            next.extend([1, 7].map(|code| ("finish", to(word.finished(code)))));
            if word.is_parked(End::Writer) {
                next.push(("unpark", to(word.unparked(End::Writer))));
            } else if word.refusal().is_none() {
                next.push(("park", to(word.parked(End::Writer))));
            }
        }
        if word.is_open(End::Reader) && !word.is_reader_closed() {
            match word.found(head) {
                Found::Item => next.push(("pop", State { head: head.wrapping_add(1), ..state })),
                Found::Empty if !word.is_parked(End::Reader) => next.push(("park", to(word.parked(End::Reader)))),
                Found::Empty => next.push(("unpark", to(word.unparked(End::Reader)))),
                Found::End(_) => next.extend(word.end_read(head).map(|word| ("end read", to(word)))),
            }
            next.push(("sync", to(word.unparked(End::Writer))));
            next.push(("close", to(word.closed(head))));
        }
        if word.is_open(End::Reader) && word.is_reader_closed() {
            next.push(("left", to(Word(word.0 & Word::READER_LEFT))));
        }
        // Beside a reader that reads on, whoever stops it may still see the head of before.
        for old in [head, head.wrapping_sub(1)] {
            next.extend(word.terminated(5, old).map(|word| ("terminate", to(word))));
        }
        next
    }

    /// Every state that can be reached from an open ring, for each small capacity: all positions, all flags.
    #[test]
    fn every_reachable_word_is_sound_and_every_step_changes_what_it_says() {
        // Plain arithmetic on many words: one capacity will do for Miri.
        let capacities = if cfg!(miri) { 1..=1 } else { 1..=3 };
        for capacity in capacities {
            let (mut seen, mut open) = (HashSet::from([OPENED]), vec![OPENED]);
            while let Some(state) = open.pop() {
                check(state, capacity);
                for (step, next) in steps(state, capacity) {
                    moves(step, state, next);
                    if seen.insert(next) {
                        open.push(next);
                    }
                }
            }
            // All 256 positions were gone through, and the ring ended in every way.
            assert!(seen.iter().map(|state| state.word.tail()).collect::<HashSet<_>>().len() == 256);
            assert!(seen.iter().any(|state| !state.word.has(WRITER_OPEN | READER_OPEN)));
            let refused_behind_others = |state: &State| state.refused && state.word.len(state.head) > 0;
            assert_eq!(seen.iter().any(refused_behind_others), capacity > 1);
            assert_eq!(
                seen.iter().map(|state| state.word.terminal()).collect::<HashSet<_>>(),
                HashSet::from([0, 1, 5, 7])
            );
        }
    }

    fn moves(step: &str, from: State, to: State) {
        let told = || format!("{step}: {from:?} -> {to:?}");
        let pushed = to.word.tail().wrapping_sub(from.word.tail());
        assert_eq!(pushed, u8::from(matches!(step, "push" | "refused")), "{}", told());
        let ended = to.word.end().wrapping_sub(from.word.end());
        assert_eq!(ended, u8::from(step == "push"), "{}", told());
        if from.word.terminal() != 0 && to.word.terminal() != from.word.terminal() {
            assert!(step == "terminate", "W3: {}", told());
            assert!(!from.word.has(END_READ), "W3: {}", told());
        }
        for sticky in [READER_CLOSED, STOPPED, END_READ] {
            assert!(!from.word.has(sticky) || to.word.has(sticky), "W4: {}", told());
        }
        for closed in [WRITER_OPEN, READER_OPEN] {
            assert!(from.word.has(closed) || !to.word.has(closed), "W4: {}", told());
        }
        // Whoever was waiting and need not wait any more is unparked by the very step, or by the next of a push: no wake is
        // lost. (A writer that a pop freed is unparked by the reader's next sync: see R7 of the ring.)
        for end in [End::Reader, End::Writer] {
            assert!(!to.word.is_parked(end) || step == "park" || from.word.is_parked(end), "{}", told());
        }
    }

    #[test]
    fn a_stop_hides_an_end_of_data_only_if_data_is_lost() {
        let pushed = Word(Word::OPENED.0 + Word::ONE_PUSH);
        let lost = pushed.finished(1).terminated(5, 0).expect("the reader is open");
        assert_eq!((lost.found(0), lost.terminal()), (Found::End(5), 5));
        let whole = pushed.finished(1).terminated(5, 1).expect("the reader is open");
        assert_eq!((whole.found(1), whole.terminal()), (Found::End(1), 1));
        assert_eq!(whole.terminated(6, 1), None, "the first stop stands");
        let read = pushed.finished(1).end_read(1).expect("it is the first time");
        let stale = read.terminated(5, 0).expect("the reader is open");
        assert_eq!(stale.terminal(), 1, "what was read stands, whatever head a stop saw");
        assert_eq!(Word(0).terminated(5, 0), None, "there is nothing to stop in a ring that is not open");
    }
}
