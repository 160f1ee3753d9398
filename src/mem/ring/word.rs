//! The word of a ring, and every step it can take, as pure functions.
//!
//! ```text
//!  31     26   25     24     23      22     21     20   19      16 15     8 7      0
//! ┌─────────┬──────┬──────┬───────┬──────┬──────┬──────┬──────────┬────────┬────────┐
//! │ unused  │READER│WRITER│STOPPED│WRITER│READER│READER│ terminal │ head   │ tail   │
//! │         │ OPEN │ OPEN │       │PARKED│PARKED│CLOSED│ 0: none  │mod 256 │mod 256 │
//! └─────────┴──────┴──────┴───────┴──────┴──────┴──────┴──────────┴────────┴────────┘
//! ```
//!
//! What holds in every word that the steps can reach (`check` in the tests looks at all of them):
//!
//! * **W1** `tail - head` (modulo 256) is at most the capacity.
//! * **W2** READER PARKED: the reader is open and has nothing to take: empty, no terminal, not stopped. WRITER PARKED: the
//!   writer is open and cannot push: full, no terminal, reader not closed.
//! * **W3** A terminal is never removed. Without a stop it is never changed. A stop changes it only if chunks that were
//!   queued in front of it are lost by the stop: "end of data" must not be read then.
//! * **W4** READER CLOSED, STOPPED and a closed end stay until both ends are closed and the ring is opened anew.

/// Places in a ring. Models make do with four.
pub const CELLS: usize = if cfg!(loom) { 4 } else { 128 };

const _: () =
    assert!(256 % CELLS == 0 && CELLS <= 128, "positions modulo 256 name cells, and full differs from empty");

const HEAD: u32 = 8;
const TERMINAL: u32 = 16;
const READER_CLOSED: u32 = 1 << 20;
const READER_PARKED: u32 = 1 << 21;
const WRITER_PARKED: u32 = 1 << 22;
const STOPPED: u32 = 1 << 23;
const WRITER_OPEN: u32 = 1 << 24;
const READER_OPEN: u32 = 1 << 25;
const PARKED: u32 = READER_PARKED | WRITER_PARKED;

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

/// Why a push is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPush {
    Full,
    Closed,
    Terminal(u8),
}

/// Why there is nothing to pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPop {
    Empty,
    End(u8),
}

#[allow(clippy::cast_possible_truncation, reason = "every field is masked to its width")]
impl Word {
    /// Both ends open, nothing in it.
    pub(super) const OPENED: Self = Self(WRITER_OPEN | READER_OPEN);

    const fn has(self, mask: u32) -> bool {
        self.0 & mask != 0
    }

    /// The position that is written next.
    pub(super) const fn tail(self) -> u8 {
        self.0 as u8
    }

    /// The position that is read next.
    pub(super) const fn head(self) -> u8 {
        (self.0 >> HEAD) as u8
    }

    /// How many are queued.
    pub(super) const fn len(self) -> u8 {
        self.tail().wrapping_sub(self.head())
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

    const fn with_tail(self, tail: u8) -> Self {
        Self(self.0 & !0xFF | tail as u32)
    }

    const fn with_head(self, head: u8) -> Self {
        Self(self.0 & !(0xFF << HEAD) | (head as u32) << HEAD)
    }

    const fn with_terminal(self, terminal: u8) -> Self {
        Self(self.0 & !((LAST_TERMINAL as u32) << TERMINAL) | (terminal as u32) << TERMINAL)
    }

    /// One more at the tail; the reader is woken.
    pub(super) const fn pushed(self, capacity: u8) -> Result<Self, NoPush> {
        if self.is_reader_closed() {
            Err(NoPush::Closed)
        } else if self.terminal() != 0 {
            Err(NoPush::Terminal(self.terminal()))
        } else if self.len() >= capacity {
            Err(NoPush::Full)
        } else {
            Ok(Self(self.with_tail(self.tail().wrapping_add(1)).0 & !READER_PARKED))
        }
    }

    /// One less at the head; the writer is woken.
    pub(super) const fn popped(self) -> Result<Self, NoPop> {
        if self.is_stopped() || self.len() == 0 && self.terminal() != 0 {
            Err(NoPop::End(self.terminal()))
        } else if self.len() == 0 {
            Err(NoPop::Empty)
        } else {
            Ok(Self(self.with_head(self.head().wrapping_add(1)).0 & !WRITER_PARKED))
        }
    }

    /// The writer goes, saying how it ended; an earlier terminal stands. Both are woken.
    pub(super) const fn finished(self, terminal: u8) -> Self {
        let ended = if self.terminal() == 0 { self.with_terminal(terminal) } else { self };
        Self(ended.0 & !(WRITER_OPEN | PARKED))
    }

    /// The reader goes and takes what is queued. It stays open while there is something to take out of the cells.
    pub(super) const fn closed(self) -> Self {
        let open = if self.len() == 0 { READER_OPEN } else { 0 };
        Self((self.with_head(self.tail()).0 | READER_CLOSED) & !(open | PARKED))
    }

    /// The reader has taken out what it closed over.
    pub(super) const READER_LEFT: u32 = !READER_OPEN;

    /// Somebody else ends it, at once: nothing is delivered any more. Both are woken. None: there is nothing to end.
    pub(super) const fn terminated(self, terminal: u8) -> Option<Self> {
        if self.is_stopped() || !self.has(WRITER_OPEN | READER_OPEN) {
            return None;
        }
        let lost = self.len() != 0 || self.terminal() == 0;
        let ended = if lost { self.with_terminal(terminal) } else { self };
        Some(Self((ended.0 | STOPPED) & !PARKED))
    }

    /// Whether `end` has to wait.
    pub(super) const fn waits(self, end: End, capacity: u8) -> bool {
        match end {
            End::Reader => matches!(self.popped(), Err(NoPop::Empty)),
            End::Writer => matches!(self.pushed(capacity), Err(NoPush::Full)),
        }
    }

    pub(super) const fn parked(self, end: End) -> Self {
        Self(self.0 | end.parked())
    }

    pub(super) const fn unparked(self, end: End) -> Self {
        Self(self.0 & !end.parked())
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "head {} tail {} terminal {}", self.head(), self.tail(), self.terminal())?;
        for (bit, name) in [
            (READER_CLOSED, "READER_CLOSED"),
            (READER_PARKED, "READER_PARKED"),
            (WRITER_PARKED, "WRITER_PARKED"),
            (STOPPED, "STOPPED"),
            (WRITER_OPEN, "WRITER_OPEN"),
            (READER_OPEN, "READER_OPEN"),
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

    fn check(word: Word, capacity: u8) {
        assert!(word.len() <= capacity, "W1: {word:?}");
        if word.is_parked(End::Reader) {
            assert!(word.is_open(End::Reader) && word.waits(End::Reader, capacity), "W2: {word:?}");
        }
        if word.is_parked(End::Writer) {
            assert!(word.is_open(End::Writer) && word.waits(End::Writer, capacity), "W2: {word:?}");
        }
        if word.is_stopped() {
            assert_ne!(word.terminal(), 0, "a stop says why: {word:?}");
        }
        if word.is_reader_closed() {
            assert_eq!(word.len(), 0, "the closer took all: {word:?}");
        }
    }

    /// The steps of the ends that are open, and of third parties, with what each may change.
    fn steps(word: Word, capacity: u8) -> Vec<(&'static str, Word)> {
        let mut next = Vec::new();
        if word.is_open(End::Writer) {
            next.extend(word.pushed(capacity).map(|word| ("push", word)));
            next.extend([1, 7].map(|code| ("finish", word.finished(code))));
            if word.is_parked(End::Writer) {
                next.push(("unpark", word.unparked(End::Writer)));
            } else if word.waits(End::Writer, capacity) {
                next.push(("park", word.parked(End::Writer)));
            }
        }
        if word.is_open(End::Reader) && !word.is_reader_closed() {
            next.extend(word.popped().map(|word| ("pop", word)));
            next.push(("close", word.closed()));
            if word.is_parked(End::Reader) {
                next.push(("unpark", word.unparked(End::Reader)));
            } else if word.waits(End::Reader, capacity) {
                next.push(("park", word.parked(End::Reader)));
            }
        }
        if word.is_open(End::Reader) && word.is_reader_closed() {
            next.push(("left", Word(word.0 & Word::READER_LEFT)));
        }
        next.extend(word.terminated(5).map(|word| ("terminate", word)));
        next
    }

    /// Every word that can be reached from an open ring, for each small capacity: all positions, all flags.
    #[test]
    fn every_reachable_word_is_sound_and_every_step_changes_what_it_says() {
        // Plain arithmetic on many words: one capacity will do for Miri.
        let capacities = if cfg!(miri) { 1..=1 } else { 1..=3 };
        for capacity in capacities {
            let (mut seen, mut open) = (HashSet::from([Word::OPENED]), vec![Word::OPENED]);
            while let Some(word) = open.pop() {
                check(word, capacity);
                for (step, next) in steps(word, capacity) {
                    moves(step, word, next);
                    if seen.insert(next) {
                        open.push(next);
                    }
                }
            }
            // All 256 positions were gone through, and the ring ended in every way.
            assert!(seen.iter().map(|word| word.tail()).collect::<HashSet<_>>().len() == 256);
            assert!(seen.iter().any(|word| !word.has(WRITER_OPEN | READER_OPEN)));
            assert_eq!(
                seen.iter().map(|word| word.terminal()).collect::<HashSet<_>>(),
                HashSet::from([0, 1, 5, 7])
            );
        }
    }

    fn moves(step: &str, from: Word, to: Word) {
        let (pushed, popped) = (to.tail().wrapping_sub(from.tail()), to.head().wrapping_sub(from.head()));
        let expected = match step {
            "push" => (1, 0),
            "pop" => (0, 1),
            "close" => (0, from.len()),
            _ => (0, 0),
        };
        assert_eq!((pushed, popped), expected, "{step}: {from:?} -> {to:?}");
        if from.terminal() != 0 && to.terminal() != from.terminal() {
            assert!(step == "terminate" && from.len() > 0, "W3: {step}: {from:?} -> {to:?}");
        }
        for sticky in [READER_CLOSED, STOPPED] {
            assert!(!from.has(sticky) || to.has(sticky), "W4: {step}: {from:?} -> {to:?}");
        }
        for closed in [WRITER_OPEN, READER_OPEN] {
            assert!(from.has(closed) || !to.has(closed), "W4: {step}: {from:?} -> {to:?}");
        }
        // Whoever was waiting and need not wait any more was unparked by the very step: no wake is lost.
        for end in [End::Reader, End::Writer] {
            assert!(
                !to.is_parked(end) || step == "park" || from.is_parked(end),
                "{step}: {from:?} -> {to:?}"
            );
        }
    }

    #[test]
    fn a_stop_hides_an_end_of_data_only_if_data_is_lost() {
        let pushed = Word::OPENED.pushed(2).expect("an empty ring has room");
        let lost = pushed.finished(1).terminated(5).expect("the reader is open");
        assert_eq!((lost.popped(), lost.terminal()), (Err(NoPop::End(5)), 5));
        let whole =
            pushed.finished(1).popped().expect("one is queued").terminated(5).expect("the reader is open");
        assert_eq!((whole.popped(), whole.terminal()), (Err(NoPop::End(1)), 1));
        assert_eq!(whole.terminated(6), None, "the first stop stands");
        assert_eq!(Word(0).terminated(5), None, "there is nothing to stop in a ring that is not open");
    }
}
