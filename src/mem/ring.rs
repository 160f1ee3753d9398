//! A single-producer single-consumer ring and its one word.
//!
//! A [`RingSlot`] is memory: 128 cells, one word, two waker cells, and what the owner keeps beside it. Opening it gives
//! its two affine ends, a [`Producer`] and a [`Consumer`], each of which keeps the slot alive by a hold of its own. Push,
//! pop, finish, close and stop are one compare-and-swap of the word each, so which came first is decided in one place.
//! Each end keeps the value that its last step left as its private copy, and starts the next step from it.
//!
//! * **R1** WRITER OPEN is on exactly while a producer that may touch the cells exists, READER OPEN likewise for the
//!   consumer (or its drain). Both are turned on only by one step of [`RingSlot::open`] from a word that has both off, which
//!   makes one end of each kind; each is turned off only by its end, after its last access to the cells.
//! * **R2** A cell at a position in `[head, tail)` holds an item; the consumer owns it. Every other cell holds nothing;
//!   the producer owns it. Only the producer moves the tail, only the consumer moves the head.
//! * **R3** By R2 a private copy of the word errs to the safe side: what it calls room is room, what it calls queued is
//!   queued. A step from a copy that is out of date fails, and every value of the word that an end gets to know is
//!   acquired, so the other end's access to a cell is over before this end touches it.
//! * **R4** A closing consumer owns the items of `[head, tail)` of the value that its step replaced. The step leaves the
//!   ring closed for pushes, so the producer never writes those cells again.
//! * **R5** A waker cell is written only by its waiter, while PARKED is off and the cell is not `full`. PARKED is turned on
//!   by the waiter, after it wrote. Whoever turns PARKED off owns the waker, moves it out, and then stores `full = false`;
//!   a waiter that comes back before that sees `full` and does not write.
//! * **R6** A ring slot is never moved or exclusively borrowed while an end exists: the contract of [`RingHold`].
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
use crate::mem::arena::{Lease, Occupant};
use crate::sync::atomic::AtomicU32;
use crate::sync::{Arc, Backoff, Hollow, order};

/// The terminal of a producer that is dropped without [`Producer::finish`].
pub const UNCERTAIN: u8 = 7;

/// A ring of up to [`CELLS`] items, and an `X` that its owner keeps beside it. Zero pages are a ring that is not open.
///
/// An item that is in the ring when both ends were forgotten is forgotten too.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable), zeroable(bound = "X: bytemuck::Zeroable"))]
pub struct RingSlot<T, X> {
    word: AtomicU32,
    reader: WakerCell,
    writer: WakerCell,
    cells: [Hollow<T>; CELLS],
    user: X,
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
            word: AtomicU32::new(0),
            reader: WakerCell::empty(),
            writer: WakerCell::empty(),
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
        let opened =
            ring.step(Word(ring.word.load(order::OBSERVE)), |word| closed(word).then_some(Word::OPENED));
        assert!(opened.is_ok(), "a ring that is open");
        #[allow(clippy::cast_possible_truncation, reason = "at most 128 by the assertion above")]
        let capacity = capacity as u8;
        // R1: the step above turned both OPEN bits on, so these are the only two ends.
        (Producer::new(producer, capacity), Consumer::new(consumer))
    }

    /// What the owner keeps beside the ring.
    #[inline]
    pub const fn user(&self) -> &X {
        &self.user
    }

    /// A look at the ring.
    #[must_use]
    pub fn view(&self) -> RingView {
        let word = Word(self.word.load(order::OBSERVE));
        RingView {
            queued: word.len().into(),
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
        if let Ok((before, _)) =
            self.step(Word(self.word.load(order::OBSERVE)), |word| word.terminated(terminal))
        {
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
            End::Reader => &self.reader,
            End::Writer => &self.writer,
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
    #[inline]
    fn step(&self, mut word: Word, mut next: impl FnMut(Word) -> Option<Word>) -> Result<(Word, Word), Word> {
        let mut lost = Lost::default();
        loop {
            let Some(new) = next(word) else { return Err(word) };
            match self.word.compare_exchange(word.0, new.0, order::STEP, order::LOST) {
                Ok(_) => return Ok((word, new)),
                Err(now) => word = lost.to(now),
            }
        }
    }

    /// [`Self::step`] that every word can take.
    #[inline]
    fn change(&self, mut word: Word, next: impl Fn(Word) -> Word) -> (Word, Word) {
        let mut lost = Lost::default();
        loop {
            let new = next(word);
            match self.word.compare_exchange(word.0, new.0, order::STEP, order::LOST) {
                Ok(_) => return (word, new),
                Err(now) => word = lost.to(now),
            }
        }
    }
}

/// Lost compare-and-swaps of one step. The first is no contention: the private copy was out of date, as it is whenever the
/// two ends alternate. Spinning then would cost three times the step.
#[derive(Default)]
struct Lost {
    again: bool,
    backoff: Backoff,
}

impl Lost {
    #[inline]
    fn to(&mut self, now: u32) -> Word {
        if std::mem::replace(&mut self.again, true) {
            self.backoff.lost();
        }
        Word(now)
    }
}

impl<T, X: std::fmt::Debug> std::fmt::Debug for RingSlot<T, X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingSlot")
            .field("word", &Word(self.word.load(order::COUNT)))
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
