//! What is done about one request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use super::connection::Busy;
use super::front::{Desk, Doors, Phase};
use super::proxy;
use super::reply::{Access, Reply, json};
use super::route::Route;
use crate::admin;
use crate::refusal::Refusal;
use crate::status;

/// Answers one request. It never fails: what goes wrong is an answer too.
pub(super) async fn handle(
    desk: Arc<Desk>,
    doors: Doors,
    busy: Busy,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Infallible> {
    let mut access = Access {
        started: Instant::now(),
        method: request.method().clone(),
        status: None,
        tenant: None,
        provider: None,
        bytes: 0,
        failed: false,
    };
    let has_body = !request.body().is_end_stream();
    let method = request.method().clone();
    let answer = match Route::of(request.uri()) {
        Route::Health => page(&method, || health(&desk)),
        _ if doors == Doors::Admin => admin::answer(&desk, request).await,
        Route::Provider { name, slot, rest } if doors.providers() => {
            let target = proxy::Target { door: desk.gateway.door(name), slot, rest };
            proxy::carry(&desk, request, target, busy.state(), &mut access).await
        }
        Route::Snapshot if doors.status() => page(&method, || snapshot(&desk)),
        Route::Figures if doors.status() => page(&method, || figures(&desk)),
        Route::Page if doors.status() => page(&method, status_page),
        _ => {
            let text = "no such path; providers are at /http/{provider}/{path}";
            Err(Refusal::of_node(StatusCode::NOT_FOUND, "unknown-path", text))
        }
    };
    let mut unread = false;
    let mut response = answer.unwrap_or_else(|refusal| {
        unread = has_body;
        refusal.reply()
    });
    if unread {
        busy.state().leave_unread();
    }
    // What is left of a refused body makes the connection useless for another request.
    if unread || *desk.phase.borrow() != Phase::Serving {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    access.status = Some(response.status());
    Ok(response.map(|reply| reply.with(access, busy)))
}

/// A page of the node itself, which can only be read.
fn page(method: &Method, make: impl FnOnce() -> Response<Reply>) -> Result<Response<Reply>, Refusal> {
    if method != Method::GET && method != Method::HEAD {
        return Err(Refusal::method("GET, HEAD"));
    }
    Ok(make())
}

fn health(desk: &Desk) -> Response<Reply> {
    let serving = *desk.phase.borrow() == Phase::Serving;
    let (status, word) = match serving {
        true => (StatusCode::OK, "serving"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    let mut response = json(format!("{{\"status\":\"{word}\"}}\n"));
    *response.status_mut() = status;
    response
}

fn snapshot(desk: &Desk) -> Response<Reply> {
    json(format!("{:#}\n", status::snapshot(desk)))
}

fn figures(desk: &Desk) -> Response<Reply> {
    json(format!("{:#}\n", admin::figures::figures(&desk.gateway)))
}

fn status_page() -> Response<Reply> {
    let mut response = Response::new(Reply::text(status::PAGE));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(status::PAGE_POLICY));
    response
}
