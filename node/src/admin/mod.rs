//! What operators can do while the node serves, behind a token and a listener of their own.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod` | who may, what a path means, bounds of a request |
//! | `rotate` | a provider's next epoch, from the configuration as it is now |
//! | `limits` | lower limits of the pools |
//! | `lists`, `figures` | who holds what; what happened since the start |
//! | `metrics` | counts in the text format of Prometheus |

pub(crate) mod figures;
mod limits;
pub(crate) mod lists;
mod metrics;
mod rotate;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use crate::config;
use crate::ingress::front::Desk;
use crate::ingress::proxy::bearer;
use crate::ingress::reply::{Reply, json};
use crate::refusal::Refusal;
use crate::status;
use crate::tokens::Tokens;

/// Bytes of a request's body.
const LARGEST_BODY: usize = 64 << 10;

/// What the listener of operators stands on.
#[derive(Debug)]
pub(crate) struct Admin {
    /// The one token of operators.
    token: Tokens,
    /// The configuration, to be read again.
    file: PathBuf,
    /// Held by the one rotation that is under way.
    rotating: Arc<Mutex<()>>,
    /// Held by the one lowering that is under way.
    lowering: std::sync::Mutex<()>,
    retire: Notify,
}

impl Admin {
    /// # Errors
    ///
    /// The system gives no randomness.
    pub(crate) fn new(admin: &config::Admin, file: PathBuf) -> Result<Self, getrandom::Error> {
        let token = Tokens::new(std::iter::once(admin.token.reveal()))?;
        let (rotating, lowering) = Default::default();
        Ok(Self { token, file, rotating, lowering, retire: Notify::new() })
    }

    /// Resolves once an operator has retired the node.
    pub(crate) async fn retirement(&self) {
        self.retire.notified().await;
    }
}

/// What a path means.
enum Route<'a> {
    Snapshot,
    Metrics,
    Limits,
    Rotate(&'a str),
    Retire,
}

impl<'a> Route<'a> {
    fn of(path: &'a str) -> Option<Self> {
        match path {
            "/admin/snapshot" => Some(Self::Snapshot),
            "/metrics" => Some(Self::Metrics),
            "/admin/limits" => Some(Self::Limits),
            "/admin/retire" => Some(Self::Retire),
            _ => {
                let name = path.strip_prefix("/admin/providers/")?.strip_suffix("/rotate")?;
                (!name.is_empty() && !name.contains('/')).then_some(Self::Rotate(name))
            }
        }
    }

    /// The methods that it knows.
    fn methods(&self) -> &'static str {
        match self {
            Self::Snapshot | Self::Metrics => "GET, HEAD",
            Self::Limits => "GET, HEAD, PATCH",
            Self::Rotate(_) | Self::Retire => "POST",
        }
    }

    fn knows(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|known| known == method.as_str())
    }
}

/// Answers one request to the listener of operators.
pub(crate) async fn answer(desk: &Arc<Desk>, request: Request<Incoming>) -> Result<Response<Reply>, Refusal> {
    let admin = desk.admin.as_ref().ok_or_else(unauthenticated)?;
    let token = bearer(request.headers());
    token.and_then(|token| admin.token.find(token)).ok_or_else(unauthenticated)?;
    let (head, body) = request.into_parts();
    let route = Route::of(head.uri.path()).ok_or_else(|| {
        let text = "no such path; there are GET /admin/snapshot, GET /metrics, PATCH /admin/limits, \
                    POST /admin/retire and POST /admin/providers/{name}/rotate";
        Refusal::of_node(StatusCode::NOT_FOUND, "unknown-path", text)
    })?;
    if !route.knows(&head.method) {
        return Err(Refusal::method(route.methods()));
    }
    let body = read(desk, body).await?;
    let patch = head.method == Method::PATCH;
    if !body.is_empty() && !patch {
        let text = "this takes no body: what is to change is changed in the configuration file";
        return Err(Refusal::of_node(StatusCode::BAD_REQUEST, "unexpected-body", text));
    }
    match route {
        Route::Snapshot => Ok(json(format!("{:#}\n", full(desk)))),
        Route::Metrics => {
            let mut response = Response::new(Reply::text(metrics::text(desk)));
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            Ok(response)
        }
        Route::Limits if patch => limits::lower(desk, admin, &body),
        Route::Limits => Ok(limits::show(desk)),
        Route::Rotate(name) => rotate::rotate(desk, admin, name).await,
        Route::Retire => {
            admin.retire.notify_one();
            let mut response = json("{\"status\":\"draining\"}\n".to_owned());
            *response.status_mut() = StatusCode::ACCEPTED;
            Ok(response)
        }
    }
}

/// Everything that the node can tell of itself, names included.
fn full(desk: &Desk) -> Value {
    let mut all = status::snapshot(desk);
    if let Value::Object(all) = &mut all {
        all.append(&mut lists::lists(&desk.gateway));
        all.insert("figures".to_owned(), figures::figures(&desk.gateway));
    }
    all
}

fn unauthenticated() -> Refusal {
    let message = "send the token of operators as Authorization: Bearer TOKEN";
    Refusal { message: message.to_owned(), ..Refusal::unauthenticated() }
}

/// A whole body, bounded in bytes and time.
async fn read(desk: &Desk, body: Incoming) -> Result<Bytes, Refusal> {
    let too_large = || {
        let text = format!("the body is larger than {LARGEST_BODY} bytes");
        Refusal::of_node(StatusCode::PAYLOAD_TOO_LARGE, "request-too-large", text)
    };
    if body.size_hint().lower() > LARGEST_BODY as u64 {
        return Err(too_large());
    }
    match timeout(desk.ingress.head_timeout, Limited::new(body, LARGEST_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let text = "the request body ended before it was complete";
            Err(Refusal::of_node(StatusCode::BAD_REQUEST, "request-cut", text))
        }
        Err(_) => {
            let text = "the request body took too long";
            Err(Refusal::of_node(StatusCode::REQUEST_TIMEOUT, "body-timeout", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_one_thing_with_its_methods() {
        let of = |path| Route::of(path).map(|route| route.methods());
        assert_eq!(of("/admin/snapshot"), Some("GET, HEAD"));
        assert_eq!(of("/metrics"), Some("GET, HEAD"));
        assert_eq!(of("/admin/limits"), Some("GET, HEAD, PATCH"));
        assert_eq!(of("/admin/retire"), Some("POST"));
        assert_eq!(of("/admin/providers/orders/rotate"), Some("POST"));
        for unknown in ["/", "/admin", "/admin/", "/admin/providers//rotate", "/admin/providers/a/b/rotate"] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
        assert!(Route::Retire.knows(&Method::POST) && !Route::Retire.knows(&Method::GET));
    }
}
