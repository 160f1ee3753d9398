//! The way of one request to a provider: token, tenant, provider, session, call, streamed answer.

use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use latent_adapters::http::{HttpError, HttpRequest};
use latent_capabilities::{Deadline, Dimension, Effect, OriginSlot};

use super::connection::State;
use super::front::Desk;
use super::reply::{Access, Reply};
use super::upload::{Progress, Upload, Watch};
use crate::door::{Door, Installed};
use crate::gateway::{Admitted, Gateway};
use crate::refusal::Refusal;

/// How long the caller will wait, in milliseconds.
static DEADLINE: HeaderName = HeaderName::from_static("x-deadline-ms");

/// What a path named.
pub(super) struct Target<'a> {
    /// The provider of this name, if there is one.
    pub(super) door: Option<&'a Door>,
    pub(super) slot: u16,
    pub(super) rest: PathAndQuery,
}

/// Carries one request to its provider, and the answer back as a stream.
pub(super) async fn carry(
    desk: &Desk,
    request: Request<Incoming>,
    target: Target<'_>,
    state: &State,
    access: &mut Access,
) -> Result<Response<Reply>, Refusal> {
    let gateway = &desk.gateway;
    let tenant = bearer(request.headers())
        .and_then(|token| gateway.tenant_of(token))
        .ok_or_else(Refusal::unauthenticated)?;
    access.tenant = Some(tenant.name.clone());
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        let text = "CONNECT and TRACE are not carried";
        return Err(Refusal::of_node(StatusCode::NOT_IMPLEMENTED, "method-not-carried", text));
    }
    let door = target.door.ok_or_else(|| unknown("no provider of this name"))?;
    access.provider = Some(door.name.clone());
    if !door.admits(tenant) {
        return Err(not_granted());
    }
    let until = gateway.until(tenant, access.started, deadline(request.headers())?);

    let (head, body) = request.into_parts();
    let (mut upload, watch) = Upload::new(body);
    let mut outbound = Some(HttpRequest {
        method: head.method,
        origin: OriginSlot::new(target.slot),
        path_and_query: target.rest,
        headers: forwarded(head.headers),
        deadline: None,
        wait: true,
    });
    let way = Way { gateway, tenant, until, watch: &watch, state };
    let installed = door.current();
    let answer = match way.attempt(&installed, &mut outbound, &mut upload).await {
        // Replaced while it waited: nothing of it went anywhere, and nothing of its body was asked for. It waits once
        // more, under what is published now, within the same deadline.
        Err(refusal) if refusal.was_replaced && outbound.is_some() && !upload.was_asked() => {
            match door.next(installed.epoch(), until).await {
                Some((next, _again)) => way.attempt(&next, &mut outbound, &mut upload).await,
                None => Err(refusal),
            }
        }
        answer => answer,
    };
    if watch.progress() == Progress::Open {
        // The origin answered, or the call failed, before the client had sent everything.
        state.leave_unread();
    }
    answer
}

/// What every attempt at carrying a request has in common.
struct Way<'a> {
    gateway: &'a Gateway,
    tenant: &'a Admitted,
    until: Deadline,
    watch: &'a Watch,
    state: &'a State,
}

impl Way<'_> {
    /// Carries the request to one epoch of its provider, and the answer back as a stream.
    async fn attempt(
        &self,
        installed: &Installed,
        request: &mut Option<HttpRequest>,
        upload: &mut Upload,
    ) -> Result<Response<Reply>, Refusal> {
        let terms = installed.terms(self.tenant).ok_or_else(not_granted)?;
        if request.as_ref().is_some_and(|request| request.origin.number() >= installed.origins) {
            return Err(unknown("this provider has no origin of this number"));
        }
        if upload.size_hint().lower() > terms.request_bytes {
            return Err(Refusal::too_large(terms.request_bytes));
        }
        upload.allow(terms.request_bytes);
        let session = self.gateway.open(&terms.plan, self.until).map_err(Refusal::of_library)?;
        self.state.answer_by(session.deadline().instant());
        let called = installed.provider.open_taking(&session, request, upload).await;
        let answer = called.map_err(|error| refused(&error, self.watch, terms.request_bytes))?;
        if answer.body.size_hint().lower() > terms.response_bytes {
            let text =
                format!("the response is larger than the {} bytes that are allowed", terms.response_bytes);
            let refusal = Refusal::of_node(StatusCode::BAD_GATEWAY, "response-too-large", text);
            let dimension = Some(Dimension::BrokerStreamOutputBytes);
            return Err(Refusal { effect: Effect::Sent, dimension, ..refusal });
        }
        let mut response = Response::new(Reply::carried(answer.body, terms.response_bytes, session));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

fn not_granted() -> Refusal {
    let text = "this tenant may not call this provider";
    Refusal::of_node(StatusCode::FORBIDDEN, "provider-not-granted", text)
}

fn unknown(text: &'static str) -> Refusal {
    Refusal::of_node(StatusCode::NOT_FOUND, "unknown-provider", text)
}

/// The token of `Authorization: Bearer TOKEN`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// What `X-Deadline-Ms` asks for, if it is there.
fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(&DEADLINE) else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let millis = digits.and_then(|text| text.parse::<u64>().ok()).filter(|millis| *millis > 0);
    match millis {
        Some(millis) => Ok(Some(Duration::from_millis(millis))),
        None => {
            let text = "X-Deadline-Ms must be a whole number of milliseconds, 1 or more";
            Err(Refusal::of_node(StatusCode::BAD_REQUEST, "invalid-deadline", text))
        }
    }
}

/// The headers that travel on: not the caller's token, which is for this node. What concerns only the connection to
/// this node, and the framing, are taken out by the adapter, which refuses what contradicts itself.
fn forwarded(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(AUTHORIZATION);
    headers.remove(&DEADLINE);
    headers
}

/// A failure of the caller's own body explains a failed call better than what the adapter saw of it.
fn refused(error: &HttpError, watch: &Watch, most: u64) -> Refusal {
    let refusal = Refusal::of_call(error);
    match (watch.progress(), refusal.status) {
        (Progress::TooLarge, _) => Refusal { effect: refusal.effect, ..Refusal::too_large(most) },
        (Progress::Broken, _) => {
            let text = "the request body ended before it was complete";
            let broken = Refusal::of_node(StatusCode::BAD_REQUEST, "request-cut", text);
            Refusal { effect: refusal.effect, ..broken }
        }
        // The time went by while the client was still sending.
        (Progress::Open, StatusCode::GATEWAY_TIMEOUT) => {
            Refusal { status: StatusCode::REQUEST_TIMEOUT, ..refusal }
        }
        _ => refusal,
    }
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    #[test]
    fn a_token_needs_its_scheme_and_stands_alone() {
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().expect("a header value"));
            }
            bearer(&headers).map(|token| String::from_utf8_lossy(token).into_owned())
        };
        assert_eq!(with(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(with(&["bearer  abc "]).as_deref(), Some("abc"));
        for wrong in [&["Basic abc"][..], &["Bearerabc"], &["abc"], &[], &["Bearer a", "Bearer b"]] {
            assert_eq!(with(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_callers_token_does_not_travel_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("authorization", "Bearer x"), ("x-deadline-ms", "9"), ("accept", "text/plain")]
        {
            headers.insert(HeaderName::from_static(name), value.parse().expect("a header value"));
        }
        let names: Vec<HeaderName> = forwarded(headers).into_iter().filter_map(|(name, _)| name).collect();
        assert_eq!(names, [ACCEPT]);
    }

    #[test]
    fn a_deadline_is_a_positive_number() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(&DEADLINE, value.parse().expect("a header value"));
            deadline(&headers).map_err(|refusal| refusal.status)
        };
        assert_eq!(with("250"), Ok(Some(Duration::from_millis(250))));
        for wrong in ["0", "-1", "+5", "1.5", "soon", ""] {
            assert_eq!(with(wrong), Err(StatusCode::BAD_REQUEST), "{wrong}");
        }
        assert_eq!(deadline(&HeaderMap::new()), Ok(None));
    }
}
