//! The body of an inbound request, on its way to an origin.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// What became of an upload, as the request's handler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Progress {
    /// The client has not sent all of it.
    Open,
    /// All of it has arrived.
    Complete,
    /// The client went away or broke the framing.
    Broken,
    /// More than is allowed.
    TooLarge,
}

/// Tells the handler how far the upload came, after the body itself went to the adapter.
#[derive(Clone, Debug)]
pub(super) struct Watch(Arc<AtomicU8>);

impl Watch {
    fn set(&self, progress: Progress) {
        self.0.store(progress as u8, Ordering::Release);
    }

    pub(super) fn progress(&self) -> Progress {
        match self.0.load(Ordering::Acquire) {
            0 => Progress::Open,
            1 => Progress::Complete,
            2 => Progress::Broken,
            _ => Progress::TooLarge,
        }
    }
}

/// A request body that is cut off where it becomes too large.
#[derive(Debug)]
pub(super) struct Upload {
    inner: Incoming,
    watch: Watch,
    /// Bytes that may still come.
    left: u64,
    /// Whether anybody has asked for any of it.
    asked: bool,
}

/// Why an upload ended early. Says nothing of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadError {
    /// The client went away or broke the framing.
    Broken,
    /// More than is allowed.
    TooLarge,
}

impl fmt::Display for UploadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            UploadError::Broken => "the client broke off its request body",
            UploadError::TooLarge => "the request body is larger than allowed",
        })
    }
}

impl std::error::Error for UploadError {}

impl Upload {
    /// Nothing of `inner` until [`allow`](Self::allow) says how much.
    pub(super) fn new(inner: Incoming) -> (Self, Watch) {
        let watch = Watch(Arc::new(AtomicU8::new(Progress::Open as u8)));
        if inner.is_end_stream() {
            watch.set(Progress::Complete);
        }
        (Self { inner, watch: watch.clone(), left: 0, asked: false }, watch)
    }

    /// At most so many bytes, before any were asked for.
    pub(super) fn allow(&mut self, most: u64) {
        self.left = most;
    }

    /// Whether anybody has asked for any of it, so that it cannot be sent from its beginning again.
    pub(super) fn was_asked(&self) -> bool {
        self.asked
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        self.asked = true;
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let result = match frame {
            None => {
                self.watch.set(Progress::Complete);
                return Poll::Ready(None);
            }
            Some(Err(_)) => Err((Progress::Broken, UploadError::Broken)),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                match self.left.checked_sub(bytes) {
                    Some(left) => {
                        self.left = left;
                        if self.inner.is_end_stream() {
                            self.watch.set(Progress::Complete);
                        }
                        Ok(frame)
                    }
                    None => Err((Progress::TooLarge, UploadError::TooLarge)),
                }
            }
        };
        Poll::Ready(Some(result.map_err(|(progress, error)| {
            self.watch.set(progress);
            error
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
