//! A single-producer single-consumer ring and its one word.
//!
//! A [`RingSlot`] is memory: 128 cells, one word, the reader's place, two waker cells, and what the owner keeps beside it.
//! Opening it gives its two affine ends, a [`Producer`] and a [`Consumer`], each of which keeps the slot alive by a hold of its
//! own. Push, finish, close, stop and the reading of an end are one step of the word each, so which came first is decided in
//! one place. A pop is none: it reads a cell that the word has shown, and stores the head. Each end keeps what it last saw of the
//! other, and looks again only when by that there is no room, or nothing to read.
//!
//! ```text
//!   writer                                                   reader
//!   ──────                                                   ──────
//!   no room known: look at the head                          nothing known: look at the word
//!   write the cell                                           read the cell
//!   add to the tail ── found READER PARKED: ──▶ unpark it    store the head
//!                      found it stopped, closed:             half a ring since the last time: step on the word;
//!                      take the item back                       found WRITER PARKED: unparked, wake it
//!   park: set WRITER PARKED, then look at the head again     park: set READER PARKED, if still nothing
//! ```
//!
//! | | locked steps |
//! | --- | --- |
//! | push | 1, and 1 if the reader is parked |
//! | pop | 0, and 1 for every half of a ring that was read |
//! | park | 1 |
//!
//! * **R1** WRITER OPEN is on exactly while a producer that may touch the cells exists, READER OPEN likewise for the
//!   consumer (or its drain). Both are turned on only by one step of [`RingSlot::open`] from a word that has both off, which
//!   makes one end of each kind; each is turned off only by its end, after its last access to the cells.
//! * **R2** A cell at a position in `[head, tail)` holds an item; the consumer owns it. Every other cell holds nothing;
//!   the producer owns it. Only the producer moves the tail, only the consumer moves the head.
//! * **R3** By R2 what an end last saw of the other errs to the safe side: what it calls room is room, what it calls queued is
//!   queued. The head and every value of the word that an end gets to know are acquired, so the other end's access to a cell
//!   is over before this end touches it.
//! * **R4** A closing consumer owns the items of `[head, end)` of the value that its step replaced. The step leaves the
//!   ring closed for pushes: a push that comes later finds that out by its own step, and its cell is the producer's still.
//! * **R5** A waker cell is written only by its waiter, while PARKED is off and the cell is not `full`. PARKED is turned on
//!   by the waiter, after it wrote. Whoever turns PARKED off owns the waker, moves it out, and then stores `full = false`;
//!   a waiter that comes back before that sees `full` and does not write.
//! * **R6** A ring slot is never moved or exclusively borrowed while an end exists: the contract of [`RingHold`].
//! * **R7** A parked writer is woken when half of a ring was read since it saw it full, or earlier. The reader stores the head and
//!   then steps on the word, once for each half of a ring; the writer sets WRITER PARKED by a step, and then looks at the head
//!   again. If the reader's step came first, the writer sees its head. If it came later, the reader sees the bit. The next
//!   one after the last that the writer can have missed is at most half a ring further, and so much is queued.
//!
//! No step runs foreign code. Items are moved out of the cells before they can be dropped, wakers are woken last.

mod cell;
mod ends;
mod word;

pub use self::ends::{Consumer, Drain, Pop, Producer, Push};
pub use self::word::{CELLS, LAST_TERMINAL};

use self::cell::WakerCell;
use self::word::{End, Word};
use crate::foreign::Wakers;
use crate::mem::arena::{Lease, Near, Occupant};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use crate::sync::{Arc, Backoff, Hollow, Line, order};

/// The terminal of a producer that is dropped without [`Producer::finish`].
pub const UNCERTAIN: u8 = 7;

/// A ring of up to [`CELLS`] items, and an `X` that its owner keeps beside it. Zero pages are a ring that is not open.
///
/// An item that is in the ring when both ends were forgotten is forgotten too.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable), zeroable(bound = "X: bytemuck::Zeroable"))]
#[repr(C)]
pub struct RingSlot<T, X> {
    /// Keeps the word off the line of whatever lies in front.
    gap: Line<()>,
    /// What both ends step on.
    shared: Line<Shared>,
    /// What the reader writes, and others seldom look at.
    place: Line<Place>,
    cells: [Hollow<T>; CELLS],
    user: X,
}

/// What both ends step on.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug)]
#[repr(C)]
struct Shared {
    word: AtomicU32,
    reader: WakerCell,
    writer: WakerCell,
}

/// The reader's own.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug)]
#[repr(C)]
struct Place {
    /// The position that is read next.
    head: AtomicU8,
    /// The word has news for the reader, who would not look at it otherwise: it was stopped.
    news: AtomicBool,
}

// SAFETY: R1, R2: items move through the cells from one thread to another, one owner at a time; wakers are Send; `X` is
// shared.
unsafe impl<T: Send, X: Sync> Sync for RingSlot<T, X> {}

#[cfg(loom)]
impl<T, X: Default> Default for RingSlot<T, X> {
    fn default() -> Self {
        Self::new(X::default())
    }
}

/// A shared hold on a ring slot.
///
/// # Safety
///
/// [`Self::ring`] gives the same slot each time. As long as this value lives, moved or not, the slot is valid, is not moved,
/// and nobody gets an exclusive borrow of it.
pub unsafe trait RingHold {
    /// What goes through the ring.
    type Item;
    /// What is kept beside it.
    type User;

    /// The slot.
    fn ring(&self) -> &RingSlot<Self::Item, Self::User>;
}

// SAFETY: R6: a shared borrow is what the contract asks for.
unsafe impl<T, X> RingHold for &RingSlot<T, X> {
    type Item = T;
    type User = X;

    fn ring(&self) -> &RingSlot<T, X> {
        self
    }
}

// SAFETY: R6: an Arc keeps its value in place, and gives no exclusive borrow while the ring has a second hold.
unsafe impl<T, X> RingHold for Arc<RingSlot<T, X>> {
    type Item = T;
    type User = X;

    fn ring(&self) -> &RingSlot<T, X> {
        self
    }
}

// SAFETY: R6: a lease keeps its slot in place and alive, and slots are only ever borrowed shared.
unsafe impl<T, X> RingHold for Lease<RingSlot<T, X>>
where
    RingSlot<T, X>: Occupant,
{
    type Item = T;
    type User = X;

    #[inline]
    fn ring(&self) -> &RingSlot<T, X> {
        self
    }
}

// SAFETY: R6: what is near a lease holds it.
unsafe impl<T, X, U: Sync> RingHold for Near<RingSlot<T, X>, U>
where
    RingSlot<T, X>: Occupant,
{
    type Item = T;
    type User = X;

    #[inline]
    fn ring(&self) -> &RingSlot<T, X> {
        self.lease()
    }
}

/// What a ring looks like at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingView {
    /// Items that are queued.
    pub queued: usize,
    /// How it ends; none: it goes on.
    pub terminal: Option<u8>,
    /// Whether it was ended by a third party, so that what is queued is not delivered any more.
    pub stopped: bool,
    /// Whether the consumer closed.
    pub closed: bool,
}

impl<T, X> RingSlot<T, X> {
    /// A ring that is not open.
    #[must_use]
    pub fn new(user: X) -> Self {
        Self {
            gap: Line::new(()),
            shared: Line::new(Shared {
                word: AtomicU32::new(0),
                reader: WakerCell::empty(),
                writer: WakerCell::empty(),
            }),
            place: Line::new(Place { head: AtomicU8::new(0), news: AtomicBool::new(false) }),
            cells: std::array::from_fn(|_| Hollow::empty()),
            user,
        }
    }

    /// Opens the ring for up to `capacity` items. `producer` and `consumer` are two holds on the same slot.
    ///
    /// Never allocates. One step.
    ///
    /// # Panics
    ///
    /// If the two are not holds on one slot, if the ring is open (an end of it exists, was forgotten, or its drain was), and
    /// if `capacity` is 0 or above [`CELLS`].
    pub fn open<S>(producer: S, consumer: S, capacity: usize) -> (Producer<S>, Consumer<S>)
    where
        S: RingHold<Item = T, User = X>,
    {
        let ring = producer.ring();
        assert!(std::ptr::eq(ring, consumer.ring()), "the two ends of a ring hold different slots");
        assert!((1..=CELLS).contains(&capacity), "a ring of {capacity}: it has {CELLS} cells");
        let closed = |word: Word| !word.is_open(End::Reader) && !word.is_open(End::Writer);
        let opened = ring.step(ring.look(), |word| closed(word).then_some(Word::OPENED));
        assert!(opened.is_ok(), "a ring that is open");
        // R1: there is no reader but the one that is made here. (A stop that comes in between is told by the word.)
        ring.place.head.store(0, order::PUBLISH);
        ring.place.news.store(false, order::PUBLISH);
        #[allow(clippy::cast_possible_truncation, reason = "at most 128 by the assertion above")]
        let capacity = capacity as u8;
        // R1: the step above turned both OPEN bits on, so these are the only two ends.
        (Producer::new(producer, capacity), Consumer::new(consumer, capacity))
    }

    /// What the owner keeps beside the ring.
    #[inline]
    pub const fn user(&self) -> &X {
        &self.user
    }

    /// A look at the ring. Beside ends that are at work, what it says is queued may never have been so at one moment.
    #[must_use]
    pub fn view(&self) -> RingView {
        // In this order, so that the tail is not behind the head.
        let head = self.place.head.load(order::OBSERVE);
        let word = self.look();
        RingView {
            queued: word.len(head).into(),
            terminal: (word.terminal() != 0).then_some(word.terminal()),
            stopped: word.is_stopped(),
            closed: word.is_reader_closed(),
        }
    }

    /// Ends the ring from outside: no item is delivered any more, and both ends learn `terminal`, unless another end of the
    /// ring stood already and no queued item is lost by this one. Wakes both. Does nothing to a ring that is stopped already
    /// or not open.
    ///
    /// The items that are queued stay until the consumer closes.
    ///
    /// # Panics
    ///
    /// If `terminal` is 0 or above [`LAST_TERMINAL`]. Carries on the panic of a waker, once both were woken.
    pub fn terminate(&self, terminal: u8) {
        self.terminate_quietly(terminal).wake_all();
    }

    /// [`Self::terminate`], but leaves the waking to the caller, who is between two steps of its own.
    ///
    /// # Panics
    ///
    /// If `terminal` is 0 or above [`LAST_TERMINAL`].
    pub fn terminate_quietly(&self, terminal: u8) -> Wakers {
        check_terminal(terminal);
        let mut wakers = Wakers::new();
        let stopped = self.step(self.look(), |word| {
            // Looked at again each time. It may be old beside a reader that reads on; a reader that has read the end has said so in
            // the word.
            word.terminated(terminal, self.place.head.load(order::OBSERVE))
        });
        if let Ok((before, _)) = stopped {
            self.place.news.store(true, order::PUBLISH);
            for end in [End::Reader, End::Writer] {
                if before.is_parked(end) {
                    // SAFETY: R5: the step turned PARKED off.
                    wakers.push(unsafe { self.waker(end).take() });
                }
            }
        }
        wakers
    }

    fn waker(&self, end: End) -> &WakerCell {
        match end {
            End::Reader => &self.shared.reader,
            End::Writer => &self.shared.writer,
        }
    }

    /// The word as it is now.
    #[inline]
    fn look(&self) -> Word {
        Word(self.shared.word.load(order::OBSERVE))
    }

    /// Wakes whoever is parked at `end`, as the last thing a call does.
    #[inline]
    fn wake(&self, end: End) {
        let before = Word(self.shared.word.fetch_and(Word::unparking(end), order::STEP));
        if before.is_parked(end) {
            // SAFETY: R5: the step turned PARKED off.
            unsafe { self.waker(end).take_and_wake() };
        }
    }

    fn cell(&self, position: u8) -> &Hollow<T> {
        &self.cells[usize::from(position) % CELLS]
    }

    /// One step of the word, from the value it is thought to have. Gives the value it replaced and the new one.
    ///
    /// # Errors
    ///
    /// The value for which `next` knew no step.
    fn step(&self, mut word: Word, mut next: impl FnMut(Word) -> Option<Word>) -> Result<(Word, Word), Word> {
        let mut backoff = Backoff::after_a_guess();
        loop {
            let Some(new) = next(word) else { return Err(word) };
            match self.shared.word.compare_exchange(word.0, new.0, order::STEP, order::LOST) {
                Ok(_) => return Ok((word, new)),
                Err(now) => word = Word(now),
            }
            backoff.lost();
        }
    }

    /// [`Self::step`] that every word can take.
    fn change(&self, mut word: Word, next: impl Fn(Word) -> Word) -> (Word, Word) {
        let mut backoff = Backoff::after_a_guess();
        loop {
            let new = next(word);
            match self.shared.word.compare_exchange(word.0, new.0, order::STEP, order::LOST) {
                Ok(_) => return (word, new),
                Err(now) => word = Word(now),
            }
            backoff.lost();
        }
    }
}

impl<T, X: std::fmt::Debug> std::fmt::Debug for RingSlot<T, X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingSlot")
            .field("word", &Word(self.shared.word.load(order::COUNT)))
            .field("head", &self.place.head.load(order::COUNT))
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

fn check_terminal(terminal: u8) {
    assert!(
        (1..=LAST_TERMINAL).contains(&terminal),
        "terminal {terminal}: 1 to {LAST_TERMINAL} are terminals"
    );
}

#[cfg(all(test, not(loom)))]
mod tests;
