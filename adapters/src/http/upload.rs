//! The request's body on its way into the HTTP machinery: a hand-over of one frame at a time, fed by a pump that
//! copies the caller's body into the call's window.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use latent_capabilities::broker::io::{IoTransfer, TransferWait};
use latent_capabilities::broker::{Effect, Error, Kind};

use super::error::HttpErrorKind;

/// The hand-over. Both ends live in the task of one call and are polled in turn, so the lock is never contended and
/// the taking end needs no waker: whoever hands over polls the connection next.
#[derive(Debug, Default)]
struct Slot {
    frame: Option<Bytes>,
    ended: bool,
}

/// The end that the connection reads from.
#[derive(Debug)]
pub(crate) struct Upload {
    /// `None`: an empty body, as most requests have.
    slot: Option<Arc<Mutex<Slot>>>,
    length: Option<u64>,
}

/// The end that is handed frames.
#[derive(Debug)]
pub(crate) struct Feed {
    slot: Option<Arc<Mutex<Slot>>>,
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upload {
    /// A body that is fed; `length` is what it declares.
    pub(crate) fn fed(length: Option<u64>) -> (Self, Feed) {
        let slot = Some(Arc::new(Mutex::new(Slot::default())));
        (Self { slot: slot.clone(), length }, Feed { slot })
    }

    /// A body that is there whole; `None`: an empty one.
    pub(crate) fn whole(bytes: Option<Bytes>) -> (Self, Feed) {
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let slot = bytes.map(|bytes| Arc::new(Mutex::new(Slot { frame: Some(bytes), ended: true })));
        (Self { slot: slot.clone(), length: Some(length) }, Feed { slot })
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(slot) = &self.slot else { return Poll::Ready(None) };
        let mut slot = lock(slot);
        match slot.frame.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if slot.ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        is_taken(&self.slot)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Whether all of a body was handed over and taken.
fn is_taken(slot: &Option<Arc<Mutex<Slot>>>) -> bool {
    slot.as_ref().is_none_or(|slot| {
        let slot = lock(slot);
        slot.ended && slot.frame.is_none()
    })
}

impl Feed {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(self.slot.as_ref().expect("a body that is pumped is fed, and so has a place"))
    }

    /// Whether there is place for a frame.
    fn is_free(&self) -> bool {
        self.slot().frame.is_none()
    }

    fn put(&self, bytes: Bytes) {
        self.slot().frame = Some(bytes);
    }

    fn end(&self) {
        self.slot().ended = true;
    }

    /// Whether the connection has taken the whole body.
    pub(crate) fn is_taken(&self) -> bool {
        is_taken(&self.slot)
    }
}

/// Frames without data that are skipped in one step. A body may have any number of them.
const EMPTY_FRAMES: usize = 16;

/// What a turn of the pump did.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It handed something over: poll the connection, then the pump again.
    Handed,
    /// It waits, for the caller's body, for the window or for the connection.
    Waiting,
    /// It has nothing more to do.
    Done,
}

/// Where the request's body comes from.
pub(crate) struct Source<'a, B> {
    pub(crate) body: Pin<&'a mut B>,
    pub(crate) transfer: &'a IoTransfer,
    pub(crate) wait: Pin<&'a mut TransferWait>,
    pub(crate) chunk: usize,
    pub(crate) length: Option<u64>,
}

/// Copies the caller's body into the window, chunk by chunk, and hands the chunks over.
pub(crate) struct Pump<'a, B: Body> {
    body: Pin<&'a mut B>,
    transfer: &'a IoTransfer,
    wait: Pin<&'a mut TransferWait>,
    feed: &'a Feed,
    chunk: usize,
    /// What is left of the declared length.
    left: Option<u64>,
    frame: Option<B::Data>,
    done: bool,
}

impl<'a, B: Body<Data = Bytes>> Pump<'a, B> {
    /// Pumps `source` into `feed`.
    pub(crate) fn new(source: Source<'a, B>, feed: &'a Feed) -> Self {
        let Source { body, transfer, wait, chunk, length } = source;
        Self { body, transfer, wait, feed, chunk, left: length, frame: None, done: false }
    }

    /// One step; call again after the connection was polled while it says [`Turn::Handed`].
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Result<Turn, HttpErrorKind> {
        let mut empty = 0;
        loop {
            if self.done {
                return Ok(Turn::Done);
            }
            if !self.feed.is_free() {
                return Ok(Turn::Waiting);
            }
            if let Some(frame) = self.frame.as_mut().filter(|frame| frame.has_remaining()) {
                match self.transfer.poll_input_ready(self.wait.as_mut(), cx) {
                    Poll::Pending => return Ok(Turn::Waiting),
                    Poll::Ready(ready) => ready.map_err(HttpErrorKind::Library)?,
                }
                let size = frame.len().min(self.chunk);
                let chunk = self.transfer.input(&frame[..size]).map_err(too_large)?;
                frame.advance(size);
                let last = frame.is_empty() && (self.left == Some(0) || self.body.is_end_stream());
                self.feed.put(Bytes::from_owner(chunk));
                return Ok(self.handed(last));
            }
            if empty == EMPTY_FRAMES {
                // Others have their turn; then it goes on.
                cx.waker().wake_by_ref();
                return Ok(Turn::Waiting);
            }
            empty += 1;
            match self.body.as_mut().poll_frame(cx) {
                Poll::Pending => return Ok(Turn::Waiting),
                Poll::Ready(Some(Err(_))) => return Err(HttpErrorKind::RequestBody),
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are dropped: the origin was promised none.
                    if let Ok(data) = frame.into_data() {
                        self.spend(data.len() as u64)?;
                        self.frame = Some(data);
                    }
                }
                Poll::Ready(None) => {
                    if self.left.is_some_and(|left| left > 0) {
                        return Err(HttpErrorKind::RequestCutShort);
                    }
                    return Ok(self.handed(true));
                }
            }
        }
    }

    /// The body ends with its declared length, or as soon as it knows that nothing follows: the origin may answer at
    /// once, and that answer is then not an early one.
    fn handed(&mut self, last: bool) -> Turn {
        if last {
            self.feed.end();
            self.done = true;
        }
        Turn::Handed
    }

    fn spend(&mut self, bytes: u64) -> Result<(), HttpErrorKind> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(bytes).ok_or(HttpErrorKind::RequestTooLarge)?;
        }
        Ok(())
    }
}

/// A window refuses what passes its total: that is the body's fault, not the call's.
pub(crate) fn too_large(error: Error) -> HttpErrorKind {
    match error.kind() {
        Kind::TooLarge(_) => HttpErrorKind::RequestTooLarge,
        _ => HttpErrorKind::Library(error),
    }
}

/// The effect of a request of which the connection accepted `bytes`.
pub(crate) fn effect_after(bytes: u64) -> Effect {
    if bytes == 0 { Effect::NotSent } else { Effect::Uncertain }
}
