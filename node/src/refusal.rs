//! What a caller is told when a request is not carried: a status, and a small JSON body.

use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use latent_adapters::http::{HttpError, HttpErrorKind};
use latent_capabilities::{Dimension, Effect, Error, Kind, Scope, What};

use crate::ingress::reply::Reply;

/// A request that is not carried, or not to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// Stable words in kebab case.
    pub(crate) code: &'static str,
    /// The dimension that was full or too small.
    pub(crate) dimension: Option<Dimension>,
    /// Whose limit it was.
    pub(crate) scope: Option<Scope>,
    /// Whether the origin may have acted.
    pub(crate) effect: Effect,
    /// When another attempt can make sense.
    pub(crate) retry_after: Option<Duration>,
    /// One sentence for people. It holds nothing that the caller has sent, and no secret.
    pub(crate) message: String,
    /// Whether the provider's epoch was replaced before the call had started: another attempt on the next one repeats
    /// nothing.
    pub(crate) was_replaced: bool,
    /// The methods that a path knows, where that is what was wrong.
    pub(crate) allow: &'static str,
}

impl Refusal {
    /// A refusal by the node itself: nothing was sent anywhere.
    pub(crate) fn of_node(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            dimension: None,
            scope: None,
            effect: Effect::NotSent,
            retry_after: None,
            message: message.into(),
            was_replaced: false,
            allow: "GET, HEAD",
        }
    }

    /// The path exists, with other methods.
    pub(crate) fn method(allow: &'static str) -> Self {
        let message = format!("this path knows {allow}");
        Self { allow, ..Self::of_node(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", message) }
    }

    pub(crate) fn unauthenticated() -> Self {
        Self::of_node(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "send the token of a tenant as Authorization: Bearer TOKEN",
        )
    }

    pub(crate) fn too_large(most: u64) -> Self {
        let message = format!("the request body is larger than the {most} bytes that are allowed");
        let refusal = Self::of_node(StatusCode::PAYLOAD_TOO_LARGE, "request-too-large", message);
        Self { dimension: Some(Dimension::BrokerStreamInputBytes), ..refusal }
    }

    /// A refusal by the library before there was a call.
    pub(crate) fn of_library(error: Error) -> Self {
        Self::of_call(&HttpError::from(error))
    }

    /// What came of a call to an origin. The adapter knows best which status fits.
    pub(crate) fn of_call(error: &HttpError) -> Self {
        let (dimension, scope, replaced) = match error.kind() {
            HttpErrorKind::Library(error) => {
                (error.dimension(), error.scope(), error.kind() == Kind::Retired(What::Epoch))
            }
            _ => (None, None, false),
        };
        let status = StatusCode::from_u16(error.gateway_status()).unwrap_or(StatusCode::BAD_GATEWAY);
        Self {
            dimension,
            scope,
            effect: error.effect(),
            retry_after: error.retry_after(),
            was_replaced: replaced && error.effect() == Effect::NotSent,
            ..Self::of_node(status, error.code(), error.to_string())
        }
    }

    /// What a caller reads.
    pub(crate) fn body(&self) -> String {
        let body = serde_json::json!({
            "error": self.code,
            "dimension": self.dimension.map(Dimension::name),
            "scope": self.scope.map(scope_name),
            "effect": effect_name(self.effect),
            "retry_after_ms": self.retry_after.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            "message": self.message,
        });
        format!("{body}\n")
    }

    /// The response that says so.
    pub(crate) fn reply(&self) -> Response<Reply> {
        let mut response = Response::new(Reply::text(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static(self.allow));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, whole_seconds(self.retry_after));
            }
            _ => {}
        }
        response
    }
}

/// `Retry-After` counts whole seconds, and 0 would invite a storm.
fn whole_seconds(time: Option<Duration>) -> HeaderValue {
    let seconds = time.map_or(1, |time| time.as_millis().div_ceil(1_000).max(1));
    HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX))
}

/// Whose limit it was, as callers are told.
pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Node => "node",
        Scope::Tenant(_) => "tenant",
        Scope::Provider(_) => "provider",
        Scope::Client(_) => "client",
        Scope::Session => "session",
    }
}

fn effect_name(effect: Effect) -> &'static str {
    match effect {
        Effect::NotSent => "not-sent",
        Effect::Sent => "sent",
        Effect::Uncertain => "uncertain",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_never_zero_and_rounds_up() {
        let shown = [(None, "1"), (Some(0), "1"), (Some(100), "1"), (Some(1_001), "2"), (Some(30_000), "30")];
        for (millis, text) in shown {
            assert_eq!(whole_seconds(millis.map(Duration::from_millis)), text);
        }
    }

    #[test]
    fn what_the_node_refuses_names_status_and_effect() {
        let refusal = Refusal::too_large(10);
        assert_eq!(
            (refusal.status.as_u16(), refusal.code, refusal.effect),
            (413, "request-too-large", Effect::NotSent)
        );
        let reply = Refusal::unauthenticated().reply();
        assert_eq!(reply.headers()[WWW_AUTHENTICATE], "Bearer");
    }
}
