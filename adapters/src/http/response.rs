//! A streamed response: its head, and a body that hands out the chunks of the call's window.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{self, HeaderMap, HeaderValue};
use http::{StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use latent_capabilities::broker::io::{IoTransfer, StopWatch, TransferWait};
use latent_capabilities::broker::pools::PoolCall;
use latent_capabilities::broker::{Error, Kind};
use pin_project_lite::pin_project;

use super::download::{Download, Piece};
use super::error::{HttpError, HttpErrorKind};
use super::headers::Framing;
use super::scratch::Scratch;

/// The head of a response, with its body to be streamed.
///
/// Redirects are answers like any other: they are returned, never followed.
#[derive(Debug)]
pub struct HttpResponse {
    /// The final status, from 200 to 599.
    pub status: StatusCode,
    /// The version the origin spoke.
    pub version: Version,
    /// End-to-end header fields, `Content-Length` included where the origin sent one.
    pub headers: HeaderMap,
    /// The body.
    pub body: ResponseBody,
}

/// The body of a streamed response.
///
/// Every chunk it yields is a place of the call's window: the origin is read only as fast as chunks are dropped.
/// The end is verified. A body that is cut short yields what arrived and then [`HttpErrorKind::Truncated`]; errors are
/// sticky. The connection goes back to its pool as soon as the last byte has arrived; dropping the body earlier
/// destroys it, and gives back everything but what delivered chunks still hold.
pub struct ResponseBody {
    download: Download,
    /// What of a frame did not fit into the last chunk. It lies in the connection's buffer, which the call has charged.
    rest: Bytes,
    error: Option<HttpError>,
    validator: Option<HeaderValue>,
    delivered: u64,
    /// Declared last, in the order in which they must go: the connection above is destroyed before its call ends.
    hold: Option<Hold>,
}

/// What a call holds while its body is being read.
pub(crate) struct Hold {
    waits: Pin<Box<Waits>>,
    transfer: IoTransfer,
    chunk: usize,
    _scratch: Scratch,
    call: PoolCall,
}

pin_project! {
    /// Where whoever reads is registered.
    struct Waits {
        // With the call, for its stop and its deadline.
        #[pin]
        stop: StopWatch,
        // With the window, for a free place.
        #[pin]
        place: TransferWait,
    }
}

impl Hold {
    pub(crate) fn new(call: PoolCall, transfer: IoTransfer, scratch: Scratch, chunk: usize) -> Self {
        let waits = Box::pin(Waits { stop: StopWatch::new(), place: TransferWait::new() });
        Self { waits, transfer, chunk, _scratch: scratch, call }
    }

    /// Resolves when the call is to end.
    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.call.io().poll_stop(self.waits.as_mut().project().stop, cx)
    }

    /// Fills a chunk of the window with the first of these bytes, when there is a place for it. Says how many.
    fn poll_chunk(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<Result<(Bytes, usize), Error>> {
        let place = self.waits.as_mut().project().place;
        ready!(self.transfer.poll_output_ready(place, cx))?;
        let size = bytes.len().min(self.chunk);
        Poll::Ready(self.fill(&bytes[..size]).map(|chunk| (chunk, size)))
    }

    fn fill(&self, bytes: &[u8]) -> Result<Bytes, Error> {
        let mut buffer = self.transfer.output_buffer(bytes.len())?;
        buffer.spare_mut(bytes.len())?.copy_from_slice(bytes);
        buffer.advance_written(bytes.len())?;
        Ok(Bytes::from_owner(buffer.finish()?))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.waits.as_mut().project().stop.leave(self.call.io());
    }
}

impl ResponseBody {
    pub(crate) fn new(download: Download, hold: Hold, headers: &HeaderMap) -> Self {
        let validator = headers.get(header::ETAG).or_else(|| headers.get(header::LAST_MODIFIED)).cloned();
        // Without a body nothing is held once the head is read.
        let hold = (!download.is_over()).then_some(hold);
        Self { download, rest: Bytes::new(), error: None, validator, delivered: 0, hold }
    }

    /// Bytes handed out so far: where a range request would go on after [`HttpErrorKind::Truncated`].
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The response's `ETag`, else its `Last-Modified`: what such a range request must be conditional on.
    pub fn validator(&self) -> Option<&HeaderValue> {
        self.validator.as_ref()
    }

    fn fail(&mut self, kind: HttpErrorKind) -> HttpError {
        let error = self.download.fail(kind);
        self.stick(error)
    }

    fn stick(&mut self, error: HttpError) -> HttpError {
        self.error = Some(error);
        self.rest = Bytes::new();
        self.hold = None;
        error
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let Some(error) = this.error {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(hold) = &mut this.hold else { return Poll::Ready(None) };
        if let Poll::Ready(error) = hold.poll_stop(cx) {
            return Poll::Ready(Some(Err(this.fail(HttpErrorKind::Library(error)))));
        }
        if this.rest.is_empty() {
            match ready!(this.download.poll_piece(cx)) {
                None => {
                    this.hold = None;
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(this.stick(error)))),
                Some(Ok(Piece::Trailers(trailers))) => {
                    this.hold = None;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Some(Ok(Piece::Data(data))) => this.rest = data,
            }
        }
        match ready!(hold.poll_chunk(&this.rest, cx)) {
            Ok((chunk, size)) => {
                this.rest.advance(size);
                this.delivered += size as u64;
                if this.rest.is_empty() && this.download.is_over() {
                    this.hold = None;
                }
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
            Err(error) => Poll::Ready(Some(Err(this.fail(match error.kind() {
                Kind::TooLarge(_) => HttpErrorKind::ResponseTooLarge,
                _ => HttpErrorKind::Library(error),
            })))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.hold.is_none() && self.error.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.download.framing() {
            Framing::Empty => SizeHint::with_exact(0),
            Framing::Length(length) => SizeHint::with_exact(length - self.delivered),
            Framing::Chunked | Framing::UntilClose => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("framing", &self.download.framing())
            .field("received", &self.download.received())
            .field("delivered", &self.delivered)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
