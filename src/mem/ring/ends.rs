//! The two ends of a ring, and what is left when the reading end closes.

use std::iter::FusedIterator;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::task::Waker;

use super::cell::wake;
use super::word::{End, NoPop, NoPush, Word};
use super::{RingHold, UNCERTAIN, check_terminal, order};
use crate::foreign::{Panic, Wakers, foreign};

/// Why an item was not pushed. It comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum Push<T> {
    /// There is no room.
    Full(T),
    /// The consumer closed.
    Closed(T),
    /// The ring has ended, in this way.
    Terminal(T, u8),
}

/// What was there to pop.
#[derive(Debug, PartialEq, Eq)]
pub enum Pop<T> {
    /// The oldest item.
    Item(T),
    /// Nothing yet.
    Empty,
    /// Nothing, and nothing will come: how the ring ended. Repeatable. 0 only after the consumer itself closed a ring that
    /// had not ended.
    End(u8),
}

/// The writing end of a ring.
///
/// Dropping it without [`Self::finish`] ends the ring with [`UNCERTAIN`].
#[derive(Debug)]
pub struct Producer<S: RingHold> {
    slot: S,
    copy: Word,
    capacity: u8,
}

/// The reading end of a ring.
///
/// Dropping it closes, and drops what is queued.
#[derive(Debug)]
pub struct Consumer<S: RingHold> {
    slot: S,
    copy: Word,
}

impl<S: RingHold> Producer<S> {
    /// The caller made sure of R1.
    pub(super) fn new(slot: S, capacity: u8) -> Self {
        Self { slot, copy: Word::OPENED, capacity }
    }

    /// The hold on the slot.
    #[inline]
    pub const fn slot(&self) -> &S {
        &self.slot
    }

    /// Pushes an item: one step, and a wake if the reader is parked. Never waits, never allocates.
    ///
    /// # Errors
    ///
    /// [`Push`], with the item.
    ///
    /// # Panics
    ///
    /// Carries on a panic of the reader's waker, when the item is in the ring.
    #[inline]
    pub fn try_push(&mut self, item: S::Item) -> Result<(), Push<S::Item>> {
        let ring = self.slot.ring();
        let mut refused = self.copy.pushed(self.capacity);
        if refused == Err(NoPush::Full) {
            // The copy may be out of date; it never is about the rest, which nothing undoes.
            self.copy = Word(ring.word.load(order::OBSERVE));
            refused = self.copy.pushed(self.capacity);
        }
        let item = ManuallyDrop::new(item);
        if refused.is_ok() {
            // SAFETY: R2: the item is read once more below only if the step fails, and then the copy in the cell is nobody's.
            let bits = MaybeUninit::new(unsafe { std::ptr::read(&raw const *item) });
            // SAFETY: R2, R3: there is room, so the cell at the tail is the producer's, which is this end.
            ring.cell(self.copy.tail()).with_mut(|cell| unsafe { *cell = bits });
            let capacity = self.capacity;
            let pushed = ring.step(self.copy, |word| {
                refused = word.pushed(capacity);
                refused.ok()
            });
            match pushed {
                Ok((before, after)) => {
                    self.copy = after;
                    if before.is_parked(End::Reader) {
                        // SAFETY: R5: the step turned PARKED off.
                        wake(unsafe { ring.reader.take() });
                    }
                    return Ok(());
                }
                Err(now) => self.copy = now,
            }
        }
        let item = ManuallyDrop::into_inner(item);
        match refused {
            Err(NoPush::Closed) => Err(Push::Closed(item)),
            Err(NoPush::Terminal(terminal)) => Err(Push::Terminal(item, terminal)),
            // A push from a word with room never fails as full, since only this end fills the ring.
            Err(NoPush::Full) | Ok(_) => Err(Push::Full(item)),
        }
    }

    /// Parks until a push may succeed or is refused for good. True: `waker` will be woken, or has been. False: try again
    /// now.
    ///
    /// One parked waker: a later call replaces an earlier one's.
    pub fn park(&mut self, waker: &Waker) -> bool {
        // SAFETY: R1: an open producer is the one writer; a closed one is not asked.
        self.copy.is_open(End::Writer) && unsafe { self.slot.ring().park(End::Writer, self.capacity, waker) }
    }

    /// Takes the waker back. False: it was not parked, or is being woken.
    pub fn unpark(&mut self) -> bool {
        // SAFETY: R1: an open producer is the one writer; a closed one is not asked.
        self.copy.is_open(End::Writer) && unsafe { self.slot.ring().unpark(End::Writer) }
    }

    /// Ends the ring with `terminal`, unless it has ended already; what is queued is still delivered. Wakes the reader. Later
    /// pushes are refused; a later `finish` changes nothing. Gives how the ring ended.
    ///
    /// # Panics
    ///
    /// If `terminal` is 0 or above 15. Carries on a panic of the reader's waker, when all is done.
    pub fn finish(&mut self, terminal: u8) -> u8 {
        check_terminal(terminal);
        if !self.copy.is_open(End::Writer) {
            return self.copy.terminal();
        }
        let ring = self.slot.ring();
        let (before, after) = ring.change(self.copy, |word| word.finished(terminal));
        // R1: WRITER OPEN is off now, and the copy says so: the cells are not touched any more. The waker cells are under
        // R5, which asks only who turned PARKED off.
        self.copy = after;
        // SAFETY: R5: the step turned PARKED off.
        let own = before.is_parked(End::Writer).then(|| unsafe { ring.writer.take() });
        let mut wakers = Wakers::new();
        if before.is_parked(End::Reader) {
            // SAFETY: R5: the step turned PARKED off.
            wakers.push(unsafe { ring.reader.take() });
        }
        let dropped = foreign(|| drop(own));
        wakers.wake_all();
        carry_on(dropped.err());
        after.terminal()
    }
}

impl<S: RingHold> Drop for Producer<S> {
    fn drop(&mut self) {
        self.finish(UNCERTAIN);
    }
}

impl<S: RingHold> Consumer<S> {
    /// The caller made sure of R1.
    pub(super) fn new(slot: S) -> Self {
        Self { slot, copy: Word::OPENED }
    }

    /// The hold on the slot.
    #[inline]
    pub const fn slot(&self) -> &S {
        &self.slot
    }

    /// Pops the oldest item: one step, and a wake if the writer is parked. Never waits, never allocates.
    ///
    /// After [`RingSlot::terminate`](super::RingSlot::terminate) it gives the end at once, whatever is queued.
    ///
    /// # Panics
    ///
    /// Carries on a panic of the writer's waker; the item is dropped then.
    #[inline]
    pub fn try_pop(&mut self) -> Pop<S::Item> {
        if self.copy.is_reader_closed() {
            return Pop::End(self.copy.terminal());
        }
        let ring = self.slot.ring();
        if self.copy.popped() == Err(NoPop::Empty) {
            self.copy = Word(ring.word.load(order::OBSERVE));
        }
        let item = if self.copy.len() > 0 {
            // SAFETY: R2, R3: the cell at the head holds an item and is the consumer's, which is this end. The bits become
            // the item when the step below succeeds.
            ring.cell(self.copy.head()).with(|cell| unsafe { std::ptr::read(cell) })
        } else {
            MaybeUninit::uninit()
        };
        let mut nothing = NoPop::Empty;
        let popped = ring.step(self.copy, |word| word.popped().map_err(|why| nothing = why).ok());
        match popped {
            Ok((before, after)) => {
                self.copy = after;
                // SAFETY: R2: the step took the item at the head that was read above; the head moves by this end only, and a
                // step succeeds only from a word with an item, which by R3 the copy knew of.
                let item = unsafe { item.assume_init() };
                if before.is_parked(End::Writer) {
                    // SAFETY: R5: the step turned PARKED off.
                    wake(unsafe { ring.writer.take() });
                }
                Pop::Item(item)
            }
            Err(now) => {
                self.copy = now;
                match nothing {
                    NoPop::Empty => Pop::Empty,
                    NoPop::End(terminal) => Pop::End(terminal),
                }
            }
        }
    }

    /// Parks until there is something to pop or the ring has ended. True: `waker` will be woken, or has been. False: try
    /// again now.
    ///
    /// One parked waker: a later call replaces an earlier one's.
    pub fn park(&mut self, waker: &Waker) -> bool {
        // SAFETY: R1: a consumer that did not close is the one reader; one that closed is not asked.
        !self.copy.is_reader_closed() && unsafe { self.slot.ring().park(End::Reader, 0, waker) }
    }

    /// Takes the waker back. False: it was not parked, or is being woken.
    pub fn unpark(&mut self) -> bool {
        // SAFETY: R1: a consumer that did not close is the one reader; one that closed is not asked.
        !self.copy.is_reader_closed() && unsafe { self.slot.ring().unpark(End::Reader) }
    }

    /// Closes: pushes are refused from now on, the writer is woken, and what was queued at that moment is the caller's. A
    /// second call gives nothing.
    ///
    /// # Panics
    ///
    /// Carries on a panic of the writer's waker; what was queued is dropped then.
    pub fn close(&mut self) -> Drain<'_, S> {
        if self.copy.is_reader_closed() {
            return Drain { consumer: self, next: 0, end: 0, open: false };
        }
        let ring = self.slot.ring();
        let (before, after) = ring.change(self.copy, Word::closed);
        self.copy = after;
        // SAFETY: R5: the step turned PARKED off.
        let own = before.is_parked(End::Reader).then(|| unsafe { ring.reader.take() });
        let mut wakers = Wakers::new();
        if before.is_parked(End::Writer) {
            // SAFETY: R5: the step turned PARKED off.
            wakers.push(unsafe { ring.writer.take() });
        }
        let open = after.is_open(End::Reader);
        // Made before foreign code runs: if that panics, the drain is dropped and with it what was queued.
        let drain = Drain { consumer: self, next: before.head(), end: before.tail(), open };
        let dropped = foreign(|| drop(own));
        wakers.wake_all();
        carry_on(dropped.err());
        drain
    }
}

impl<S: RingHold> Drop for Consumer<S> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

fn carry_on(panic: Option<Panic>) {
    if let Some(panic) = panic {
        panic.resume();
    }
}

/// The items that were queued when the consumer closed, oldest first. Dropping it drops them.
#[must_use = "what was queued is dropped with it"]
#[derive(Debug)]
pub struct Drain<'a, S: RingHold> {
    consumer: &'a mut Consumer<S>,
    /// The position of the next item; up to `end` they are this drain's (R4).
    next: u8,
    end: u8,
    /// Whether READER OPEN is still on.
    open: bool,
}

impl<S: RingHold> Drain<'_, S> {
    /// Turns READER OPEN off, once the cells are empty (R1).
    fn leave(&mut self) {
        if std::mem::take(&mut self.open) {
            self.consumer.slot.ring().word.fetch_and(Word::READER_LEFT, order::PUBLISH);
        }
    }
}

impl<S: RingHold> Iterator for Drain<'_, S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        if self.next == self.end {
            self.leave();
            return None;
        }
        let cell = self.consumer.slot.ring().cell(self.next);
        self.next = self.next.wrapping_add(1);
        // SAFETY: R4: an item that this drain owns, read once since the position moves on.
        Some(cell.with(|cell| unsafe { cell.cast::<S::Item>().read() }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.end.wrapping_sub(self.next));
        (left, Some(left))
    }
}

impl<S: RingHold> ExactSizeIterator for Drain<'_, S> {}
impl<S: RingHold> FusedIterator for Drain<'_, S> {}

impl<S: RingHold> Drop for Drain<'_, S> {
    fn drop(&mut self) {
        if planted!("close_leaks_the_queue") {
            self.next = self.end;
        }
        let mut first = None;
        // Each item is out of its cell before its own destructor runs.
        for item in self.by_ref() {
            if let Err(panic) = foreign(|| drop(item)) {
                first.get_or_insert(panic);
            }
        }
        carry_on(first);
    }
}
