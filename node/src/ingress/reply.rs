//! The body of a response, and what must end with it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use latent_adapters::http::{HttpError, ResponseBody};
use latent_capabilities::CapabilitySession;

use super::connection::Busy;

/// The body of a response. It keeps its connection busy, and a call alive, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reply {
    content: Content,
    access: Option<Access>,
    _busy: Option<Busy>,
}

#[derive(Debug)]
enum Content {
    Whole(Option<Bytes>),
    Carried(Box<Carried>),
}

/// A response body that an origin is sending, with the session that pays for it.
#[derive(Debug)]
struct Carried {
    body: ResponseBody,
    /// Bytes that may still come.
    left: u64,
    /// Said after what came before it has been flushed.
    failed: Option<ReplyError>,
    session: CapabilitySession,
}

/// Why an answer ended early. By then its head is with the client, so all that is left to do is to cut it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyError {
    /// What the adapter says.
    Http(HttpError),
    /// More than this tenant may receive.
    TooLarge,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplyError::Http(error) => error.fmt(out),
            ReplyError::TooLarge => out.write_str("the response is larger than this tenant may receive"),
        }
    }
}

impl std::error::Error for ReplyError {}

impl Carried {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        if let Some(error) = self.failed {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let error = match frame {
            None => return Poll::Ready(None),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                match self.left.checked_sub(bytes) {
                    Some(left) => {
                        self.left = left;
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    None => ReplyError::TooLarge,
                }
            }
            Some(Err(error)) => ReplyError::Http(error),
        };
        // hyper drops what it has not written yet when a body fails. Pausing once lets it write the head and the
        // bytes before the failure, so that the client sees a cut answer and not none.
        self.failed = Some(error);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Carried {
    /// A body that is dropped half-way belongs to a client that went away: nobody wants the rest. Stopping the session
    /// before its call is dropped tells everything that still works for it.
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.session.stop();
        }
    }
}

impl Reply {
    /// A body that is there as a whole.
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(Some(text.into())), access: None, _busy: None }
    }

    /// A body that an origin is sending, cut after `most` bytes.
    pub(super) fn carried(body: ResponseBody, most: u64, session: CapabilitySession) -> Self {
        let carried = Carried { body, left: most, failed: None, session };
        Self { content: Content::Carried(Box::new(carried)), access: None, _busy: None }
    }

    /// Keeps the connection busy and writes the access log when this body is done.
    pub(super) fn with(self, access: Access, busy: Busy) -> Self {
        Self { access: Some(access), _busy: Some(busy), ..self }
    }
}

/// A whole answer in JSON that nobody may keep.
pub(crate) fn json(text: String) -> Response<Reply> {
    let mut response = Response::new(Reply::text(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Body for Reply {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        let this = self.get_mut();
        let frame = match &mut this.content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Carried(carried) => carried.poll_frame(context),
        };
        if let (Poll::Ready(frame), Some(access)) = (&frame, &mut this.access) {
            access.note(frame.as_ref());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Carried(carried) => carried.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Carried(carried) => carried.body.size_hint(),
        }
    }
}

/// One line of the access log, written when the body is done or given up. It names no path and no header: either
/// may hold what should not be in a log.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) started: Instant,
    pub(super) method: Method,
    /// `None`: the client went away before there was an answer.
    pub(super) status: Option<StatusCode>,
    pub(super) tenant: Option<Arc<str>>,
    pub(super) provider: Option<Arc<str>>,
    pub(super) bytes: u64,
    pub(super) failed: bool,
}

impl Access {
    fn note(&mut self, frame: Option<&Result<Frame<Bytes>, ReplyError>>) {
        match frame {
            Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => self.failed = true,
            None => {}
        }
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        tracing::debug!(
            method = self.method.as_str(),
            status = self.status.map(|status| status.as_u16()),
            tenant = self.tenant.as_deref(),
            provider = self.provider.as_deref(),
            bytes = self.bytes,
            failed = self.failed,
            micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }
}
