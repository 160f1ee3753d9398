//! The response's way in: frames of the body until its verified end, and what becomes of the connection then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use hyper::body::Incoming;
use latent_capabilities::broker::Effect;
use latent_capabilities::broker::pools::{Exchange, PooledConnection};

use super::connection::{Connection, body_failure};
use super::error::{HttpError, HttpErrorKind};
use super::headers::{Framing, Verdict, sanitise_trailers};

/// A response whose head was accepted and whose body is being read.
pub(crate) struct Download {
    /// Gone when the exchange is over: parked, or destroyed.
    connection: Option<PooledConnection<Connection>>,
    incoming: Option<Incoming>,
    framing: Framing,
    /// Whether both heads and a wholly taken request allow the connection to be used again.
    reusable: bool,
    received: u64,
    effect: Effect,
}

/// A piece of the body.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Download {
    /// `whole` says whether the request was taken wholly before the response began. An early response is passed on,
    /// but its connection is not used again.
    pub(crate) fn new(
        connection: PooledConnection<Connection>,
        incoming: Incoming,
        verdict: Verdict,
        keep_alive: bool,
        whole: bool,
    ) -> Self {
        let mut download = Self {
            connection: Some(connection),
            incoming: Some(incoming),
            framing: verdict.framing,
            reusable: whole && keep_alive && verdict.keep_alive,
            received: 0,
            effect: if whole { Effect::Sent } else { Effect::Uncertain },
        };
        if download.is_at_end() {
            download.finish();
        }
        download
    }

    /// How the end of the body is known.
    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// Bytes of body received.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Whether the exchange is over.
    pub(crate) fn is_over(&self) -> bool {
        self.connection.is_none()
    }

    /// Whether a failure now would leave the request's effect known.
    pub(crate) fn effect(&self) -> Effect {
        self.effect
    }

    /// The next piece; `None` after the verified end. An error destroys the connection.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, HttpError>>> {
        loop {
            let (Some(connection), Some(incoming)) = (&mut self.connection, &mut self.incoming) else {
                return Poll::Ready(None);
            };
            let mut frame = Pin::new(&mut *incoming).poll_frame(cx);
            if frame.is_pending() {
                // Asking for a frame is what lets the machinery read one.
                connection.resource().drive(cx);
                frame = Pin::new(incoming).poll_frame(cx);
            }
            match ready!(frame) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        self.received += data.len() as u64;
                        if self.is_at_end() {
                            self.finish();
                        }
                        return Poll::Ready(Some(Ok(Piece::Data(data))));
                    }
                    Err(frame) => {
                        let Ok(mut trailers) = frame.into_trailers() else { continue };
                        return Poll::Ready(Some(match sanitise_trailers(&mut trailers) {
                            Ok(()) => {
                                self.finish();
                                Ok(Piece::Trailers(trailers))
                            }
                            Err(fault) => Err(self.fail(HttpErrorKind::Response(fault))),
                        }));
                    }
                },
                Some(Err(error)) => {
                    let kind = body_failure(&error, self.received);
                    return Poll::Ready(Some(Err(self.fail(kind))));
                }
                None => {
                    // The machinery verifies lengths itself; a promise this important is checked where it is made.
                    if matches!(self.framing, Framing::Length(length) if length != self.received) {
                        let kind = HttpErrorKind::Truncated { received: self.received };
                        return Poll::Ready(Some(Err(self.fail(kind))));
                    }
                    self.finish();
                    return Poll::Ready(None);
                }
            }
        }
    }

    /// Whether everything has arrived that the head announced.
    fn is_at_end(&self) -> bool {
        match self.framing {
            Framing::Empty => true,
            Framing::Length(length) => self.received == length,
            Framing::Chunked | Framing::UntilClose => false,
        }
    }

    /// The response is complete: the connection is parked if it may be, and destroyed else.
    fn finish(&mut self) {
        self.incoming = None;
        let Some(mut connection) = self.connection.take() else { return };
        if self.reusable && connection.resource().settle() {
            // A refusal (the epoch is retired, enough are idle) destroys it, which is all there is to do about it.
            let _refused = connection.park(Exchange::complete());
        }
    }

    /// Ends the exchange by destroying the connection.
    pub(crate) fn fail(&mut self, kind: HttpErrorKind) -> HttpError {
        self.incoming = None;
        self.connection = None;
        HttpError::new(kind, self.effect)
    }
}
