//! Bodies: windows, backpressure, lengths, limits, and the buffered form.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use latent_adapters::http::{HttpCredential, HttpErrorKind, HttpRequest, RequestFault};
use latent_capabilities::broker::{Effect, Kind};
use tokio::sync::mpsc;

use crate::support::origin::Origin;
use crate::support::{World, drain, in_time, kind, read};

fn post() -> HttpRequest {
    HttpRequest::new(Method::POST, http::uri::PathAndQuery::from_static("/"))
}

/// A body that yields `count` chunks of `size` bytes and counts how many it was asked for. Its length is unknown.
struct Chunks {
    left: usize,
    size: usize,
    asked: Arc<AtomicU64>,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.asked.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'u'; self.size])))))
    }
}

/// A body that has yielded everything it declared, and does not say yet that it has ended.
struct Lingers(Option<&'static str>);

impl Body for Lingers {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(text) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(text))))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn a_body_is_whole_with_its_last_declared_byte() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        assert_eq!(peer.body(5).await, b"hello");
        peer.answer("ok").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let mut request = post();
    request.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("5"));
    let response = world.provider.open(&session, request, Lingers(Some("hello"))).await.expect("an answer");
    assert_eq!(&read(response).await.expect("a body").1[..], b"ok");
    assert_eq!(world.idle(), 1, "the request was wholly written");
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

/// A body of these parts. Its length is unknown.
struct Parts(std::collections::VecDeque<Result<&'static str, &'static str>>);

impl Parts {
    fn of(parts: &[Result<&'static str, &'static str>]) -> Self {
        Self(parts.to_vec().into())
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.pop_front().map(|part| part.map(|text| Frame::data(Bytes::from(text)))))
    }
}

#[tokio::test]
async fn a_call_future_is_send() {
    fn send<T: Send>(_: &T) {}
    let world = World::plain(crate::support::origin::nobody());
    let session = world.patient();
    send(&world.provider.open(&session, HttpRequest::get("/"), Empty::new()));
    send(&world.provider.send(&session, HttpRequest::get("/"), b""));
}

/// Case S53.
#[tokio::test]
async fn a_reader_that_stops_stops_the_origin_and_costs_a_window() {
    let (told, mut pushed) = mpsc::channel(1);
    let origin = Origin::play(move |mut peer, _| {
        let told = told.clone();
        async move {
            peer.head().await;
            peer.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 16 << 20)).await;
            let written = peer.push(&vec![b'd'; 16 << 20], Duration::from_millis(300)).await;
            told.send(written).await.expect("the test listens");
            peer.closed().await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let mut response =
        world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let mut kept = Vec::new();
    // The window is two chunks: a third is not handed out while both are held.
    for _ in 0..2 {
        kept.push(response.body.frame().await.expect("a frame").expect("no error"));
    }
    let third = tokio::time::timeout(Duration::from_millis(50), response.body.frame()).await;
    assert!(third.is_err(), "the window is full");
    let written = in_time(pushed.recv()).await.expect("a count");
    assert!(written < 16 << 20, "the origin had to stop: {written}");
    let held = world.io.snapshot();
    assert!(held.staged_bytes + held.result_bytes <= 256 * 1024, "{held:?}");
    kept.clear();
    response.body.frame().await.expect("a frame").expect("no error");
    drop((response, session));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn chunks_outlive_the_response_and_hold_only_themselves() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.answer("kept").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let response = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let body = response.body.collect().await.expect("a body").to_bytes();
    drop(session);
    assert!(!world.io.snapshot().is_zero());
    assert_eq!(&body[..], b"kept");
    drop(body);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn an_upload_goes_through_the_window_and_waits_for_the_origin() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let origin = Origin::play(move |mut peer, _| {
        let mut gone = gone.clone();
        async move {
            let head = peer.head().await.expect("a request").to_ascii_lowercase();
            assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
            assert!(!head.contains("content-length"), "{head}");
            gone.wait_for(|go| *go).await.expect("the test says when");
            let mut total = 0;
            loop {
                let mut line = Vec::new();
                while !line.ends_with(b"\r\n") {
                    line.extend(peer.body(1).await);
                }
                let size = std::str::from_utf8(&line[..line.len() - 2]).expect("ASCII");
                let size = usize::from_str_radix(size, 16).expect("a size");
                assert!(peer.body(size + 2).await[..size].iter().all(|byte| *byte == b'u'));
                if size == 0 {
                    break;
                }
                total += size;
            }
            peer.answer(&total.to_string()).await;
            peer.closed().await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    let asked = Arc::new(AtomicU64::new(0));
    let body = Chunks { left: 400, size: 40_000, asked: Arc::clone(&asked) };
    let session = world.patient();
    let mut call = Box::pin(world.provider.open(&session, post(), body));
    let early = tokio::time::timeout(Duration::from_millis(300), call.as_mut()).await;
    assert!(early.is_err(), "no answer yet");
    let before = asked.load(Ordering::SeqCst);
    assert!(before < 400, "the body is not asked for what nobody takes: {before}");
    let held = world.io.snapshot();
    assert!(held.staged_bytes + held.result_bytes <= 256 * 1024, "{held:?}");
    go.send(true).expect("the script listens");
    let (status, answer) = read(in_time(call).await.expect("an answer")).await.expect("a body");
    assert_eq!((status, &answer[..]), (200, &b"16000000"[..]));
    drop(answer);
    assert_eq!(world.idle(), 1, "wholly written and wholly read");
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_known_length_is_kept() {
    let origin = Origin::play(|mut peer, _| async move {
        for _ in 0..2 {
            let head = peer.head().await.expect("a request").to_ascii_lowercase();
            assert!(
                head.contains("\r\ncontent-length: 5\r\n") && !head.contains("transfer-encoding"),
                "{head}"
            );
            assert_eq!(peer.body(5).await, b"hello");
            peer.answer("ok").await;
        }
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    assert_eq!(world.with_body(Method::PUT, "hello").await.expect("an answer").0, 200);
    // Declared by a header, of a body that does not know its length.
    let body = Parts::of(&[Ok("he"), Ok("llo")]);
    let mut request = post();
    request.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("5"));
    let session = world.patient();
    assert_eq!(world.provider.open(&session, request, body).await.expect("an answer").status, 200);
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

/// A body of frames without bytes: so many, then one letter, then as many again. `None` of them never ends.
struct Hollow {
    before: Option<usize>,
    after: usize,
    said: bool,
}

impl Body for Hollow {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let frame = match (&mut this.before, this.said) {
            (None, _) => Bytes::new(),
            (Some(left @ 1..), false) => {
                *left -= 1;
                Bytes::new()
            }
            (Some(_), false) => {
                this.said = true;
                Bytes::from_static(b"x")
            }
            (Some(_), true) if this.after > 0 => {
                this.after -= 1;
                Bytes::new()
            }
            (Some(_), true) => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}

/// Frames without bytes are skipped, a few at a time: a body of nothing else does not keep its call from ending.
#[tokio::test]
async fn s50_frames_without_bytes_are_skipped_in_bounded_steps() {
    let origin = Origin::play(|mut peer, accepted| async move {
        peer.head().await.expect("a request");
        if accepted == 0 {
            assert_eq!(peer.body(11).await, b"1\r\nx\r\n0\r\n\r\n");
            peer.answer("ok").await;
            peer.head().await.expect("another request");
        }
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let body = Hollow { before: Some(1_000), after: 1_000, said: false };
    let answer = in_time(world.provider.open(&session, post(), body)).await.expect("an answer");
    assert_eq!(read(answer).await.expect("a body").0, 200);
    let short = world.session(Duration::from_millis(200));
    let endless = Hollow { before: None, after: 0, said: false };
    let error = kind(in_time(world.provider.open(&short, post(), endless)).await);
    assert!(
        matches!(error, HttpErrorKind::Library(error) if matches!(error.kind(), Kind::Deadline(_))),
        "{error:?}"
    );
    drop((session, short));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_body_that_breaks_its_promise_destroys_the_connection() {
    for (length, expected) in [("10", HttpErrorKind::RequestCutShort), ("4", HttpErrorKind::RequestTooLarge)]
    {
        let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
        let world = World::plain(origin.address);
        let body = Parts::of(&[Ok("hel"), Ok("lo")]);
        let mut request = post();
        request.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static(length));
        let session = world.patient();
        let outcome = world.provider.open(&session, request, body).await;
        let error = outcome.expect_err("a broken promise");
        assert_eq!((error.kind(), error.effect()), (expected, Effect::Uncertain));
        drop(session);
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn a_body_that_fails_destroys_the_connection() {
    let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
    let world = World::plain(origin.address);
    let body = Parts::of(&[Ok("half"), Err("gone")]);
    let session = world.patient();
    let outcome = world.provider.open(&session, post(), body).await;
    assert_eq!(kind(outcome), HttpErrorKind::RequestBody);
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_anything_is_done() {
    let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
    let world = World::with(origin.address, |config| config.body.request_bytes = 1024);
    let error = world.with_body(Method::POST, vec![0; 1025]).await.expect_err("too long");
    assert_eq!((error.kind(), error.effect()), (HttpErrorKind::RequestTooLarge, Effect::NotSent));
    assert_eq!(origin.accepted(), 0);
    // A body of unknown length is only known to be too long when it is.
    let body = Chunks { left: 2, size: 1000, asked: Arc::default() };
    let session = world.patient();
    let error = world.provider.open(&session, post(), body).await.expect_err("too long");
    assert_eq!((error.kind(), error.gateway_status()), (HttpErrorKind::RequestTooLarge, 413));
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s55_a_short_body_delivers_what_came_and_then_says_so_for_ever() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        let head = format!("HTTP/1.1 200 OK\r\nETag: \"v7\"\r\nContent-Length: {}\r\n\r\n", 100_000);
        peer.write(head).await;
        peer.write(vec![b's'; 60_000]).await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let mut response =
        world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let (total, ended) = drain(&mut response.body).await;
    let error = ended.expect_err("never success");
    assert_eq!((total, error.kind()), (60_000, HttpErrorKind::Truncated { received: 60_000 }));
    assert_eq!((response.body.delivered(), error.effect()), (60_000, Effect::Sent));
    assert_eq!(response.body.validator().expect("an etag"), "\"v7\"");
    for _ in 0..3 {
        let again = response.body.frame().await.expect("sticky").expect_err("sticky");
        assert_eq!(again, error);
    }
    drop((response, session));
    assert_eq!(world.idle(), 0);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s56_an_origin_that_thinks_is_not_mistaken_for_one_that_stalls() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        peer.answer("").await;
        peer.closed().await;
    })
    .await;
    let world = World::with(origin.address, |config| config.dial.attempt = Duration::from_millis(50));
    assert_eq!(world.get("/").await.expect("an answer").0, 200);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn trailers_come_once_after_the_verified_end() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        let head = "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n";
        peer.write(format!("{head}2\r\nok\r\n0\r\nx-sum: 7\r\nContent-Length: 9\r\n\r\n")).await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let response = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let collected = response.body.collect().await.expect("a body");
    let trailers = collected.trailers().expect("trailers").clone();
    assert_eq!(
        trailers,
        HeaderMap::from_iter([("x-sum".parse().expect("a name"), HeaderValue::from_static("7"))])
    );
    assert_eq!(world.idle(), 1);
    drop((collected, session));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn the_head_that_goes_out_is_ours() {
    let origin = Origin::play(|mut peer, _| async move {
        let head = peer.head().await.expect("a request");
        let mut lines: Vec<_> = head.trim_end().lines().map(str::to_ascii_lowercase).collect();
        assert_eq!(lines.remove(0), "get /a?b=c http/1.1");
        lines.sort();
        let host = format!("host: {}", peer.stream.local_addr().expect("an address"));
        assert_eq!(lines, ["accept: text/plain", "authorization: bearer ours", host.as_str()]);
        peer.answer("ok").await;
        peer.closed().await;
    })
    .await;
    let world = World::with(origin.address, |config| {
        config.credentials = Some(HttpCredential::new(header::AUTHORIZATION, "Bearer ours"));
    });
    let mut request = HttpRequest::get("/a?b=c");
    for (name, value) in [
        ("accept", "text/plain"),
        ("authorization", "Bearer theirs"),
        ("host", "evil.example"),
        ("connection", "x-hop, close"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("proxy-authorization", "basic x"),
        ("expect", "100-continue"),
    ] {
        request.headers.insert(header::HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let session = world.patient();
    assert_eq!(world.provider.open(&session, request, Empty::new()).await.expect("an answer").status, 200);
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_request_that_breaks_a_rule_costs_nothing() {
    let world = World::plain(crate::support::origin::nobody());
    let session = world.patient();
    let mut request = HttpRequest::get("/");
    request.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let error = world.provider.open(&session, request, Empty::new()).await.expect_err("refused");
    assert_eq!(
        (error.kind(), error.effect()),
        (HttpErrorKind::Request(RequestFault::Upgrade), Effect::NotSent)
    );
    assert_eq!(error.gateway_status(), 400);
    let mut request = HttpRequest::get("/");
    request.origin = latent_capabilities::broker::pools::OriginSlot::new(1);
    let error = world.provider.open(&session, request, Empty::new()).await.expect_err("refused");
    assert_eq!(error.kind(), HttpErrorKind::Request(RequestFault::Origin));
    drop(session);
    world.assert_quiet();
}

#[tokio::test]
async fn the_buffered_form_sends_and_returns_whole_bodies() {
    let origin = Origin::play(|mut peer, _| async move {
        let head = peer.head().await.expect("a request").to_ascii_lowercase();
        assert!(head.contains("\r\ncontent-length: 4\r\n"), "{head}");
        assert_eq!(peer.body(4).await, b"ping");
        peer.answer("pong").await;
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\npo\r\n2\r\nng\r\n0\r\n\r\n")
            .await;
        peer.head().await;
        peer.write("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let answer = world.provider.send(&session, post(), b"ping").await.expect("an answer");
    assert_eq!((answer.status.as_u16(), answer.bytes()), (200, &b"pong"[..]));
    drop(answer);
    let answer = world.provider.send(&session, HttpRequest::get("/"), b"").await.expect("an answer");
    assert_eq!(answer.bytes(), b"pong");
    drop(answer);
    let answer = world.provider.send(&session, HttpRequest::get("/"), b"").await.expect("an answer");
    assert_eq!((answer.status.as_u16(), answer.bytes()), (404, &b""[..]));
    assert_eq!(origin.accepted(), 1);
    drop((answer, session));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_buffered_response_has_a_limit() {
    for head in ["Content-Length: 32769", "Transfer-Encoding: chunked"] {
        let origin = Origin::play(move |mut peer, _| async move {
            peer.head().await;
            peer.write(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n")).await;
            if head.starts_with('T') {
                peer.write("8001\r\n").await;
            }
            peer.write(vec![b'l'; 32_769]).await;
            peer.closed().await;
        })
        .await;
        let world = World::plain(origin.address);
        let session = world.patient();
        let error = world.provider.send(&session, HttpRequest::get("/"), b"").await.expect_err("too long");
        assert_eq!((error.kind(), error.effect()), (HttpErrorKind::ResponseTooLarge, Effect::Sent));
        drop(session);
        world.assert_quiet();
        origin.done().await;
    }
}
