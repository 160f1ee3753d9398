//! One exchange on one connection: the request out, the response's head in, and everything between them moved inside
//! the call that owns both.

use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use latent_capabilities::broker::io::IoCall;
use latent_capabilities::broker::pools::PooledConnection;

use super::config::HeadLimits;
use super::connection::{Connection, HttpConnection, head_failure};
use super::download::Download;
use super::error::{HttpError, HttpErrorKind, ResponseFault};
use super::headers::sanitise_response;
use super::upload::{Feed, Pump, Source, Turn, Upload, effect_after};

/// A response whose head was accepted.
pub(crate) struct Accepted {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) download: Download,
}

/// Sends a request and reads the head of its response.
///
/// An error destroys the connection and says whether the connection had accepted any byte of the request. The request
/// is sent once: whether to send it again is for whoever knows what it does.
pub(crate) async fn exchange<B: Body<Data = Bytes>>(
    call: &IoCall,
    mut connection: PooledConnection<Connection>,
    request: Request<Upload>,
    feed: &Feed,
    source: Option<Source<'_, B>>,
    keep_alive: bool,
    limits: &HeadLimits,
) -> Result<Accepted, HttpError> {
    let before = connection.resource().accepted();
    let method = request.method().clone();
    let pump = source.map(|source| Pump::new(source, feed));
    let outcome = call.wait_for(head(connection.resource(), request, pump, limits.interim)).await;
    let response = outcome.map_err(HttpErrorKind::Library).flatten();
    let judged = response.and_then(|response| judge(&method, response, limits));
    match judged {
        Ok((response, verdict)) => {
            let (head, incoming) = response.into_parts();
            let whole = feed.is_taken();
            let download = Download::new(connection, incoming, verdict, keep_alive, whole);
            Ok(Accepted { status: head.status, version: head.version, headers: head.headers, download })
        }
        Err(kind) => {
            let accepted = connection.resource().accepted() - before;
            Err(HttpError::new(kind, effect_after(accepted)))
        }
    }
}

/// Moves the connection and the pump by turns until the head is there. A head that arrives before the upload is
/// complete ends the upload.
async fn head<B: Body<Data = Bytes>>(
    connection: &mut HttpConnection,
    request: Request<Upload>,
    mut pump: Option<Pump<'_, B>>,
    most: u32,
) -> Result<Response<Incoming>, HttpErrorKind> {
    let mut response = pin!(connection.send(request));
    std::future::poll_fn(|cx| {
        loop {
            connection.drive(cx);
            // All of them may have arrived together with the answer: counted first.
            if connection.interim() > most {
                return Poll::Ready(Err(HttpErrorKind::Response(ResponseFault::TooManyInterim)));
            }
            if let Poll::Ready(outcome) = response.as_mut().poll(cx) {
                return Poll::Ready(match outcome {
                    Ok(_) if connection.interim() > most => {
                        Err(HttpErrorKind::Response(ResponseFault::TooManyInterim))
                    }
                    outcome => outcome.map_err(|error| head_failure(&error)),
                });
            }
            match pump.as_mut().map_or(Ok(Turn::Done), |pump| pump.poll(cx)) {
                Ok(Turn::Handed) => {}
                Ok(Turn::Waiting | Turn::Done) => return Poll::Pending,
                Err(kind) => return Poll::Ready(Err(kind)),
            }
        }
    })
    .await
}

fn judge(
    method: &Method,
    mut response: Response<Incoming>,
    limits: &HeadLimits,
) -> Result<(Response<Incoming>, super::headers::Verdict), HttpErrorKind> {
    let (version, status) = (response.version(), response.status());
    let verdict = sanitise_response(method, version, status, response.headers_mut(), limits)
        .map_err(HttpErrorKind::Response)?;
    Ok((response, verdict))
}
