//! Streams: chunks in order from one writer to one reader, through a ring of fixed depth.
//!
//! A stream is a slot of its own, pinned by its operation, with one word for everything that the two ends can disagree about
//! (`mem::ring`). Writing a chunk moves its handle; no byte is copied.
//!
//! A chunk that is ready to be taken, by an end that is ready to take it, costs one locked step to write and none to read; beside
//! that each half of a ring costs one, and every sixteenth chunk the count of the slot's leases, which chunks hold.
//!
//! ```text
//!            retained chunk           delivered chunk, holds the stream's slot
//!   writer ───────────────▶ [ring] ─────────────────▶ reader
//!      │ finish(terminal), or drop: uncertain            │ close, or drop: queued chunks are destroyed
//!      └────────── stop, deadline: no delivery any more, queued chunks are destroyed ──────┘
//! ```
use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::account::shares::Share;
use crate::broker::bytes::{ByteScopes, Charged, io};
use crate::broker::error::{Denied, Error, Invalid, Kind, Terminal};
use crate::broker::ground::{Ground, OperationLease};
use crate::broker::io::buffer::IoBuffer;
use crate::broker::io::call::poll_stop;
use crate::broker::io::look::Looks;
use crate::broker::io::wait::IoWait;
use crate::broker::slots::{StreamHold, StreamLease, StreamSlot};
use crate::mem::arena::{Nest, Sheaf};
use crate::mem::ring::{Consumer, Pop, Producer, Push, RingSlot};
use crate::queue::wait::Watch;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The two ends of a new stream of `depth` chunks.
pub(super) fn open(lease: &OperationLease, depth: usize) -> Result<(IoStreamWriter, IoStreamReader), Error> {
    let scopes = ByteScopes::of(lease);
    if depth == 0 || depth > scopes.io().limits.stream_chunks as usize {
        return Err(Error::invalid(Invalid::Depth));
    }
    let ground = scopes.ground();
    ground.shares.reserve(Share::Stream).map_err(|full| ground.refuse(Error::full(full, Scope::Node)))?;
    let Ok(writer) = Nest::take(lease.duplicate(), |ground: &Ground| &ground.streams) else {
        crate::broken::accounting("a stream was charged but no stream slot is free");
    };
    let reader = writer.duplicate();
    let near = |lease| StreamHold::new(lease, |operation| io(operation));
    let (producer, consumer) = RingSlot::open(near(writer), near(reader), depth);
    let looks = Looks::new;
    Ok((
        IoStreamWriter { sheaf: Sheaf::new(), ring: producer, accepted: 0, gap: false, looks: looks() },
        IoStreamReader { ring: consumer, ended: None, looks: looks() },
    ))
}

/// Ends a stream because its operation is to end: no delivery any more, both ends are woken. Gives how it ended, which
/// is how it had ended before if nothing is lost.
fn halt(slot: &StreamLease, why: Error) -> Terminal {
    let terminal = match why.kind() {
        Kind::Deadline(_) => Terminal::DeadlineExceeded,
        _ => Terminal::Cancelled,
    };
    slot.terminate(terminal.bits());
    slot.view().terminal.and_then(Terminal::from_bits).unwrap_or(terminal)
}

/// The terminal of a ring's code. A ring that was closed by its reader and never ended has code 0.
fn terminal(code: u8) -> Terminal {
    Terminal::from_bits(code).unwrap_or(Terminal::Closed)
}

/// Why [`IoStreamWriter::try_write`] did not write.
#[derive(Debug)]
pub enum TryWrite {
    /// The ring is full. The chunk comes back, retained.
    Full(IoBuffer),
    /// It never will be written, and was destroyed.
    Error(Error),
}

/// The writing end of a stream. There is one, and it cannot be cloned.
///
/// Dropped before [`finish`](Self::finish), it ends the stream as [`Terminal::Uncertain`]: the reader gets what is queued
/// and then that error. That is not a statement about what happened at the provider.
#[must_use = "dropping a writer ends its stream as uncertain"]
#[derive(Debug)]
pub struct IoStreamWriter {
    /// Leases of the slot for the chunks that are to come. Declared in front of the ring, which keeps the slot.
    sheaf: Sheaf<StreamSlot>,
    ring: Producer<StreamHold>,
    /// Bytes that went into the ring, ever.
    accepted: u64,
    /// A chunk that belonged into the stream was destroyed.
    gap: bool,
    looks: Looks,
}

impl IoStreamWriter {
    #[inline]
    fn slot(&self) -> &StreamLease {
        self.ring.slot().lease()
    }
    #[inline]
    fn operation(&self) -> &OperationLease {
        self.slot().pin()
    }
    /// Ends the stream if it goes on; gives how it ended. A stream that its reader left has ended by that.
    fn end(&mut self, terminal: Terminal) -> Terminal {
        let view = self.slot().view();
        let left = view.closed && view.terminal.is_none();
        let terminal = if left { Terminal::Closed } else { terminal };
        self::terminal(self.ring.finish(terminal.bits()))
    }

    /// Looks whether a chunk may go into this stream, and makes a result of it. Doing it again changes nothing.
    fn admit(&mut self, buffer: IoBuffer) -> Result<IoBuffer, Error> {
        if !buffer.operation().is_same(self.operation()) {
            return Err(Error::denied(Denied::ForeignBuffer));
        }
        if buffer.is_delivered() {
            return Err(Error::denied(Denied::Delivered));
        }
        if buffer.is_empty() {
            return Err(Error::invalid(Invalid::EmptyChunk));
        }
        let limit = io(self.operation()).limits.stream_bytes;
        if buffer.len() as u64 > limit - self.accepted {
            self.end(Terminal::TooLarge);
            let large = Error::too_large(Dimension::IoStreamBytes);
            return Err(self.operation().shared().refuse(large));
        }
        buffer.retain().inspect_err(|error| {
            self.gap = true;
            if error.kind() == Kind::TooLarge(Dimension::BrokerOutputBytes) {
                self.end(Terminal::TooLarge);
            }
        })
    }

    /// Marks an admitted chunk as one that this stream delivers; gives its length.
    #[inline]
    fn mark(&mut self, buffer: &mut IoBuffer) -> Option<u64> {
        let hold = self.ring.slot();
        let most = hold.part().limits.stream_bytes - self.accepted;
        buffer.deliver(&hold.part().blocks, most, || self.sheaf.take(hold.lease()))
    }

    /// Moves a chunk of so many bytes into the ring.
    #[inline]
    fn push(&mut self, buffer: IoBuffer, length: u64) -> Result<(), TryWrite> {
        // Counted first: the reader's waker may panic out of a push that happened.
        self.accepted += length;
        match self.ring.try_push(buffer.into_charged()) {
            Ok(()) => Ok(()),
            Err(refused) => Err(self.refused(refused, length)),
        }
    }

    #[cold]
    fn refused(&mut self, refused: Push<Charged>, length: u64) -> TryWrite {
        self.accepted -= length;
        match refused {
            Push::Full(charged) => TryWrite::Full(IoBuffer::from_charged(charged)),
            Push::Closed(_destroyed) => TryWrite::Error(Terminal::Closed.into()),
            Push::Terminal(_destroyed, code) => TryWrite::Error(terminal(code).into()),
        }
    }

    /// Writes a chunk, waiting for room in the ring if it is full. A staged chunk is retained first.
    ///
    /// The writer keeps the chunk while it waits, so depth + 1 chunks of a stream can be charged. Dropping the future
    /// destroys the chunk if it is not in the ring; the stream can then no longer end as [`Terminal::Eof`].
    ///
    /// # Errors
    ///
    /// In each case the chunk is destroyed. A buffer of another operation, one that a stream has delivered, or an empty
    /// one; the stream's total would be passed (which ends it as [`Terminal::TooLarge`]); whatever
    /// [`IoBuffer::retain`] refuses; the stream has ended, or its operation was stopped or its deadline passed.
    #[inline]
    pub fn write(&mut self, buffer: IoBuffer) -> Write<'_> {
        Write { writer: self, pending: Some(buffer), watch: Watch::new() }
    }

    /// Writes a chunk if there is room now.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); a full ring gives the chunk back.
    #[inline]
    pub fn try_write(&mut self, mut buffer: IoBuffer) -> Result<(), TryWrite> {
        // All at hand: this operation's, a result, no stop and no end known, room.
        if buffer.operation().is_same(self.operation())
            && self.looks.quick(self.operation())
            && self.ring.has_room()
            && let Some(length) = self.mark(&mut buffer)
        {
            self.looks.spend();
            return self.push(buffer, length);
        }
        self.look_and_write(buffer)
    }

    /// The same, one question after another.
    #[cold]
    fn look_and_write(&mut self, buffer: IoBuffer) -> Result<(), TryWrite> {
        // Nothing but room is missing. A chunk that will wait for it is asked no more.
        let most = self.ring.slot().part().limits.stream_bytes - self.accepted;
        if self.looks.quick(self.operation())
            && self.ring.is_full()
            && buffer.operation().is_same(self.operation())
            && buffer.is_deliverable(most)
        {
            self.looks.spend();
            return Err(TryWrite::Full(buffer));
        }
        let mut buffer = self.admit(buffer).map_err(TryWrite::Error)?;
        let hold = self.ring.slot();
        if let Err(why) = self.looks.check(hold.lease().pin()) {
            return Err(TryWrite::Error(halt(self.slot(), why).into()));
        }
        let length = buffer.len() as u64;
        // What finds no room comes back as it was.
        if self.ring.has_room() {
            let marked = self.mark(&mut buffer);
            debug_assert_eq!(marked, Some(length), "what was admitted may be delivered");
        }
        self.push(buffer, length)
    }

    /// [`write`](Self::write) for code that polls by hand. Takes the chunk out of `pending` when it is written or
    /// destroyed; with nothing in it there is nothing to do.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn poll_write(
        &mut self,
        pending: &mut Option<IoBuffer>,
        wait: Pin<&mut IoWait>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        self.poll(pending, cx, |lease, cx| wait.poll_stop(lease, cx))
    }

    #[inline]
    fn poll(
        &mut self,
        pending: &mut Option<IoBuffer>,
        cx: &mut Context<'_>,
        stop: impl FnOnce(&OperationLease, &mut Context<'_>) -> Poll<Error>,
    ) -> Poll<Result<(), Error>> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let done = loop {
            let Some(buffer) = pending.take() else { break Ok(()) };
            match self.try_write(buffer) {
                Ok(()) => break Ok(()),
                Err(TryWrite::Error(error)) => break Err(error),
                Err(TryWrite::Full(buffer)) => *pending = Some(buffer),
            }
            // Parking is a step that sees the ring full; if it is not, look again.
            if self.ring.park(cx.waker()) {
                let why = ready!(stop(self.operation(), cx));
                *pending = None;
                break Err(halt(self.slot(), why).into());
            }
        };
        coop.made_progress();
        Poll::Ready(done)
    }

    /// Bytes that were accepted so far. Cumulative: what was read or consumed still counts.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// How the stream has ended, if it has.
    pub fn terminal(&self) -> Option<Terminal> {
        let view = self.slot().view();
        if view.closed {
            return Some(Terminal::Closed);
        }
        view.terminal.and_then(Terminal::from_bits)
    }

    /// Ends the stream, unless it has ended: the reader gets what is queued and then this. Gives how it ended.
    ///
    /// A stream of which a chunk was destroyed on the way in does not end as [`Terminal::Eof`] but as
    /// [`Terminal::Uncertain`].
    pub fn finish(mut self, terminal: Terminal) -> Terminal {
        let whole = terminal != Terminal::Eof || !self.gap;
        self.end(if whole { terminal } else { Terminal::Uncertain })
    }
}

pin_project! {
    /// Writes one chunk. See [`IoStreamWriter::write`].
    #[must_use = "a future does nothing unless polled; dropping it destroys the chunk"]
    #[derive(Debug)]
    pub struct Write<'a> {
        writer: &'a mut IoStreamWriter,
        pending: Option<IoBuffer>,
        #[pin]
        watch: Watch,
    }

    impl<'a> PinnedDrop for Write<'a> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Whoever parked has registered its watch too.
            if this.watch.is_registered() {
                this.watch.leave(this.writer.operation());
                this.writer.ring.unpark();
            }
            this.writer.gap |= this.pending.is_some();
        }
    }
}

impl Future for Write<'_> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.writer.poll(this.pending, cx, |lease, cx| poll_stop(lease, this.watch, cx))
    }
}

/// The reading end of a stream. There is one, and it cannot be cloned. Dropping it closes it.
#[must_use = "dropping a reader closes its stream"]
#[derive(Debug)]
pub struct IoStreamReader {
    ring: Consumer<StreamHold>,
    /// How the stream ended, once that was read. It stays.
    ended: Option<Terminal>,
    /// A read that is found under way by the next one says that the writer's waker panicked out of it, with a chunk.
    looks: Looks,
}

impl IoStreamReader {
    #[inline]
    fn slot(&self) -> &StreamLease {
        self.ring.slot().lease()
    }
    #[inline]
    fn operation(&self) -> &OperationLease {
        self.slot().pin()
    }

    /// The end was read: remembers it and destroys what is queued behind a stop.
    #[cold]
    fn end(&mut self, terminal: Terminal) -> Result<Option<IoBuffer>, Error> {
        let terminal = *self.ended.get_or_insert(terminal);
        self.looks.reset();
        drop(self.ring.close());
        match terminal {
            Terminal::Eof => Ok(None),
            _ => Err(terminal.into()),
        }
    }

    /// The next chunk, or the end, or nothing yet.
    ///
    /// Never waits. Chunks that were queued come before the end; after a stop or the deadline the end comes at once, and
    /// what was queued is destroyed.
    #[inline]
    pub fn try_read(&mut self) -> Poll<Result<Option<IoBuffer>, Error>> {
        match self.take_ready() {
            Some(chunk) => Poll::Ready(Ok(Some(chunk))),
            None => self.look_and_read(),
        }
    }

    /// A chunk that is ready, if nothing stands in the way. Two registers, where a result that can be an error goes through
    /// memory, written in parts and read as a whole.
    #[inline]
    fn take_ready(&mut self) -> Option<IoBuffer> {
        // A reader that has read the end has no quick looks left.
        if !self.looks.quick(self.operation()) {
            return None;
        }
        let before = self.looks.begin();
        let popped = self.ring.try_pop();
        self.looks.over(before);
        match popped {
            Pop::Item(chunk) => Some(IoBuffer::from_charged(chunk)),
            // Asked once more by who looks closely.
            Pop::Empty | Pop::End(_) => None,
        }
    }

    /// A read that asks one question after another.
    #[cold]
    fn look_and_read(&mut self) -> Poll<Result<Option<IoBuffer>, Error>> {
        if let Err(end) = self.look() {
            return Poll::Ready(end);
        }
        let before = self.looks.begin();
        let popped = self.ring.try_pop();
        self.looks.over(before);
        match popped {
            Pop::Item(chunk) => Poll::Ready(Ok(Some(IoBuffer::from_charged(chunk)))),
            Pop::Empty => Poll::Pending,
            Pop::End(code) => Poll::Ready(self.end(terminal(code))),
        }
    }

    /// Whether there is anything to read from; if not, what the read gives.
    fn look(&mut self) -> Result<(), Result<Option<IoBuffer>, Error>> {
        if let Some(terminal) = self.ended {
            return Err(self.end(terminal));
        }
        if self.looks.is_under_way() {
            // A chunk is missing, so what follows is not the stream any more.
            return Err(self.end(Terminal::Uncertain));
        }
        self.looks.check(self.ring.slot().lease().pin()).map_err(|why| {
            let terminal = halt(self.slot(), why);
            self.end(terminal)
        })
    }

    /// The next chunk; `None` at the end of a complete stream, and on every read after it.
    ///
    /// A chunk that was delivered is its consumer's: it keeps its bytes, the stream's slot, the operation and the session
    /// until it is dropped. Cancel safe: a future dropped early has taken nothing.
    ///
    /// # Errors
    ///
    /// The stream ended in another way ([`Kind::Ended`]), after all chunks that were queued before that end; or the
    /// operation was stopped or its deadline passed. It stays so on every read after it.
    #[inline]
    pub fn read(&mut self) -> Read<'_> {
        Read { reader: self, watch: Watch::new() }
    }

    /// [`read`](Self::read) for code that polls by hand.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn poll_read(
        &mut self,
        wait: Pin<&mut IoWait>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<IoBuffer>, Error>> {
        self.poll(cx, |lease, cx| wait.poll_stop(lease, cx))
    }

    #[inline]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stop: impl FnOnce(&OperationLease, &mut Context<'_>) -> Poll<Error>,
    ) -> Poll<Result<Option<IoBuffer>, Error>> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        if let Some(chunk) = self.take_ready() {
            coop.made_progress();
            return Poll::Ready(Ok(Some(chunk)));
        }
        let read = loop {
            if let Poll::Ready(read) = self.try_read() {
                break read;
            }
            // Parking is a step that sees the ring empty; if it is not, look again.
            if self.ring.park(cx.waker()) {
                let why = ready!(stop(self.operation(), cx));
                let terminal = halt(self.slot(), why);
                break self.end(terminal);
            }
        };
        coop.made_progress();
        Poll::Ready(read)
    }

    /// How the stream ended, if it has; chunks that were queued before the end may still be there to read.
    pub fn terminal(&self) -> Option<Terminal> {
        self.ended.or_else(|| self.slot().view().terminal.and_then(Terminal::from_bits))
    }

    /// Closes the stream: destroys what is queued and wakes the writer, whose writes fail from now on.
    pub fn close(self) {
        drop(self);
    }
}

pin_project! {
    /// Reads one chunk. See [`IoStreamReader::read`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct Read<'a> {
        reader: &'a mut IoStreamReader,
        #[pin]
        watch: Watch,
    }

    impl<'a> PinnedDrop for Read<'a> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Whoever parked has registered its watch too.
            if this.watch.is_registered() {
                this.watch.leave(this.reader.operation());
                this.reader.ring.unpark();
            }
        }
    }
}

impl Future for Read<'_> {
    type Output = Result<Option<IoBuffer>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.reader.poll(cx, |lease, cx| poll_stop(lease, this.watch, cx))
    }
}
