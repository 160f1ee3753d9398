//! The two ends of a ring, and what is left when the reading end closes.

use std::iter::FusedIterator;
use std::task::Waker;

use super::cell::take_out;
use super::word::{End, Found, NoPush, Word};
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
    /// The word as it was when it was last looked at. What it says of the writer's own bits and of the end is true.
    copy: Word,
    /// The position that is written next.
    tail: u8,
    /// So many pushes have room for sure. 0 once one was refused for good.
    room: u8,
    capacity: u8,
}

/// The reading end of a ring.
///
/// Dropping it closes, and drops what is queued.
#[derive(Debug)]
pub struct Consumer<S: RingHold> {
    slot: S,
    /// The word as it was when it was last looked at.
    copy: Word,
    /// The position that is read next.
    head: u8,
    /// Up to here items are queued for sure.
    known: u8,
    /// The head at which to look for a parked writer.
    sync: u8,
    /// How far these looks are apart.
    stride: u8,
}

impl<S: RingHold> Producer<S> {
    /// The caller made sure of R1.
    pub(super) fn new(slot: S, capacity: u8) -> Self {
        Self { slot, copy: Word::OPENED, tail: 0, room: capacity, capacity }
    }

    /// The hold on the slot.
    #[inline]
    pub const fn slot(&self) -> &S {
        &self.slot
    }

    /// Whether there is room for an item. A push may be refused all the same: if the ring has ended, or has been closed.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.room > 0 || self.find_room()
    }

    /// Whether an item would find no room, and the ring goes on as far as this end knows.
    pub fn is_full(&mut self) -> bool {
        !self.has_room() && self.copy.refusal().is_none()
    }

    /// Looks at the head, and at the word if that makes no room.
    fn find_room(&mut self) -> bool {
        if self.copy.refusal().is_some() {
            return false;
        }
        let ring = self.slot.ring();
        // Never more than the capacity, since the head of before is at most that far behind.
        let queued = self.tail.wrapping_sub(ring.place.head.load(order::OBSERVE));
        self.room = self.capacity - queued;
        if self.room == 0 {
            self.copy = ring.look();
        }
        self.room > 0
    }

    /// Pushes an item: one step, and another and a wake if the reader is parked. Never waits, never allocates.
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
        if !self.has_room() {
            return Err(match self.copy.refusal() {
                None => Push::Full(item),
                Some(why) => refused(why, item),
            });
        }
        let ring = self.slot.ring();
        // SAFETY: R2, R3: there is room, so the cell at the tail is the producer's, which is this end.
        ring.cell(self.tail).with_mut(|cell| unsafe { cell.cast::<S::Item>().write(item) });
        let before = Word(ring.shared.word.fetch_add(Word::ONE_PUSH, order::STEP));
        self.tail = self.tail.wrapping_add(1);
        self.room -= 1;
        if before.takes_quietly() { Ok(()) } else { self.pushed_into(before) }
    }

    /// What else there is to do about a push that found this word.
    #[cold]
    fn pushed_into(&mut self, before: Word) -> Result<(), Push<S::Item>> {
        let ring = self.slot.ring();
        if let Some(why) = before.refusal() {
            self.copy = before;
            self.room = 0;
            let cell = ring.cell(self.tail.wrapping_sub(1));
            // SAFETY: R2, R4: the step found the ring stopped or closed, so what is queued ends in front of this cell, and
            // this end, which wrote it, owns it.
            let item = cell.with(|cell| unsafe { cell.cast::<S::Item>().read() });
            return Err(refused(why, item));
        }
        ring.wake(End::Reader);
        Ok(())
    }

    /// Parks until a push may succeed or is refused for good. True: `waker` will be woken, or has been. False: try again
    /// now.
    ///
    /// One parked waker: a later call replaces an earlier one's.
    pub fn park(&mut self, waker: &Waker) -> bool {
        if !self.copy.is_open(End::Writer) || self.has_room() || self.copy.refusal().is_some() {
            return false;
        }
        // SAFETY: R1: an open producer is the one writer; a closed one was sent away above.
        let parked = unsafe { self.slot.ring().park(End::Writer, waker, |word| word.refusal().is_none()) };
        // R7: the second look.
        if parked && !planted!("park_without_a_second_look") && self.find_room() {
            self.unpark();
            return false;
        }
        parked
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
        let (before, after) = ring.change(self.copy.at(self.tail), |word| word.finished(terminal));
        // R1: WRITER OPEN is off now, and the copy says so: the cells are not touched any more. The waker cells are under
        // R5, which asks only who turned PARKED off.
        self.copy = after;
        self.room = 0;
        // SAFETY: R5: the step turned PARKED off.
        let own = before.is_parked(End::Writer).then(|| unsafe { ring.shared.writer.take() });
        let mut wakers = Wakers::new();
        if before.is_parked(End::Reader) {
            // SAFETY: R5: the step turned PARKED off.
            wakers.push(unsafe { ring.shared.reader.take() });
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
    pub(super) fn new(slot: S, capacity: u8) -> Self {
        let stride = capacity.div_ceil(2);
        Self { slot, copy: Word::OPENED, head: 0, known: 0, sync: stride, stride }
    }

    /// The hold on the slot.
    #[inline]
    pub const fn slot(&self) -> &S {
        &self.slot
    }

    /// Pops the oldest item. No step but one for each half of a ring, which wakes the writer if it is parked. Never waits,
    /// never allocates.
    ///
    /// After [`RingSlot::terminate`](super::RingSlot::terminate) it gives the end at once, whatever is queued.
    ///
    /// # Panics
    ///
    /// Carries on a panic of the writer's waker; the item is dropped then.
    #[inline]
    pub fn try_pop(&mut self) -> Pop<S::Item> {
        let news = self.slot.ring().place.news.load(order::OBSERVE);
        if (self.known == self.head || news)
            && let Some(nothing) = self.look()
        {
            return nothing;
        }
        let ring = self.slot.ring();
        // SAFETY: R2, R3: the cell at the head holds an item and is the consumer's, which is this end. It is read once, since
        // the head moves on.
        let item = ring.cell(self.head).with(|cell| unsafe { take_out(cell) });
        self.head = self.head.wrapping_add(1);
        ring.place.head.store(self.head, order::PUBLISH);
        if self.head == self.sync {
            self.sync = self.head.wrapping_add(self.stride);
            if !planted!("pop_looks_for_no_writer") {
                ring.wake(End::Writer);
            }
        }
        Pop::Item(item)
    }

    /// Looks at the word. None: an item is known of.
    #[inline]
    fn look(&mut self) -> Option<Pop<S::Item>> {
        if !self.copy.is_reader_closed() {
            self.copy = self.slot.ring().look();
        }
        match self.copy.found(self.head) {
            Found::Item => {
                self.known = self.copy.end();
                None
            }
            Found::Empty => Some(Pop::Empty),
            Found::End(_) => Some(self.read_end()),
        }
    }

    /// The end, which stands from now on.
    #[cold]
    fn read_end(&mut self) -> Pop<S::Item> {
        // What the copy knows is nothing any more.
        self.known = self.head;
        let ring = self.slot.ring();
        let (Ok((_, word)) | Err(word)) = ring.step(self.copy, |word| word.end_read(self.head));
        self.copy = word;
        Pop::End(word.terminal())
    }

    /// Parks until there is something to pop or the ring has ended. True: `waker` will be woken, or has been. False: try
    /// again now.
    ///
    /// One parked waker: a later call replaces an earlier one's.
    pub fn park(&mut self, waker: &Waker) -> bool {
        if self.copy.is_reader_closed() {
            return false;
        }
        let head = self.head;
        // SAFETY: R1: a consumer that did not close is the one reader; one that closed was sent away above.
        unsafe { self.slot.ring().park(End::Reader, waker, |word| word.found(head) == Found::Empty) }
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
        let head = self.head;
        let (before, after) = ring.change(self.copy, |word| word.closed(head));
        self.copy = after;
        self.known = head;
        // SAFETY: R5: the step turned PARKED off.
        let own = before.is_parked(End::Reader).then(|| unsafe { ring.shared.reader.take() });
        let mut wakers = Wakers::new();
        if before.is_parked(End::Writer) {
            // SAFETY: R5: the step turned PARKED off.
            wakers.push(unsafe { ring.shared.writer.take() });
        }
        let open = after.is_open(End::Reader);
        // Made before foreign code runs: if that panics, the drain is dropped and with it what was queued.
        let drain = Drain { consumer: self, next: head, end: before.end(), open };
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

fn refused<T>(why: NoPush, item: T) -> Push<T> {
    match why {
        NoPush::Closed => Push::Closed(item),
        NoPush::Terminal(terminal) => Push::Terminal(item, terminal),
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
            self.consumer.slot.ring().shared.word.fetch_and(Word::READER_LEFT, order::PUBLISH);
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
