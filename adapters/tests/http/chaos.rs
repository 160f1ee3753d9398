//! Hostile and broken origins. After each: the expected error, the origin sees the end of the connection, nothing is
//! held any more.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use latent_adapters::http::{ConnectFault, HttpError, HttpErrorKind, ResponseFault};
use latent_capabilities::broker::{Effect, Kind, Which};
use tokio::net::TcpSocket;

use crate::support::origin::{Origin, nobody};
use crate::support::{World, kind};

const SHORT: Duration = Duration::from_millis(300);
/// How late a busy machine may be. A deadline that started anew at each stage or byte would be later by far.
const SLACK: Duration = Duration::from_millis(900);

/// How an origin goes on after its bytes.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Keeps the connection open until the other side closes it.
    Hold,
    /// Ends its direction.
    Fin,
    /// Resets.
    Reset,
}

/// `GET /` at an origin that reads the request's head, writes `bytes` and goes on as told.
pub(crate) async fn get(bytes: impl Into<Bytes>, then: Then) -> Result<(u16, Bytes), HttpError> {
    let bytes = bytes.into();
    let origin = Origin::play(move |mut peer, _| {
        let bytes = bytes.clone();
        async move {
            peer.head().await;
            peer.write(bytes).await;
            match then {
                Then::Hold => peer.closed().await,
                Then::Fin => {
                    peer.fin().await;
                    peer.closed().await;
                }
                Then::Reset => peer.reset(),
            }
        }
    })
    .await;
    let world = World::plain(origin.address);
    let outcome = world.get_within(Duration::from_secs(2), "/").await;
    assert_eq!(world.idle(), 0, "a doubtful connection is not kept");
    world.assert_quiet();
    origin.done().await;
    outcome
}

fn is_deadline(kind: HttpErrorKind) -> bool {
    matches!(kind, HttpErrorKind::Library(error)
        if matches!(error.kind(), Kind::Deadline(Which::Operation | Which::Session)))
}

#[tokio::test]
async fn silence_after_accept_ends_at_the_deadline() {
    let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
    let world = World::plain(origin.address);
    let started = Instant::now();
    let error = world.get_within(SHORT, "/").await.expect_err("no answer");
    assert!(is_deadline(error.kind()), "{error:?}");
    assert_eq!((error.effect(), error.gateway_status()), (Effect::Uncertain, 504));
    assert!((SHORT..SHORT + SLACK).contains(&started.elapsed()), "{:?}", started.elapsed());
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s46_a_head_byte_by_byte_ends_at_the_absolute_deadline() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.trickle("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", SHORT / 3).await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let started = Instant::now();
    let error = world.get_within(SHORT, "/").await.expect_err("too slow");
    assert!(is_deadline(error.kind()), "{error:?}");
    assert!((SHORT..SHORT + SLACK).contains(&started.elapsed()), "{:?}", started.elapsed());
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s46_a_body_byte_by_byte_ends_at_the_absolute_deadline() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").await;
        peer.trickle([b'x'; 100], SHORT / 3).await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let started = Instant::now();
    let error = world.get_within(SHORT, "/").await.expect_err("too slow");
    assert!(is_deadline(error.kind()), "{error:?}");
    assert_eq!(error.effect(), Effect::Sent);
    assert!((SHORT..SHORT + SLACK).contains(&started.elapsed()), "{:?}", started.elapsed());
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn reset_or_end_at_once() {
    for reset in [true, false] {
        let origin = Origin::play(move |peer, _| async move {
            if reset {
                peer.reset();
            }
        })
        .await;
        let world = World::plain(origin.address);
        assert_eq!(kind(world.get("/").await), HttpErrorKind::Closed);
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn reset_or_end_after_the_request() {
    for reset in [true, false] {
        let origin = Origin::play(move |mut peer, _| async move {
            peer.head().await;
            if reset {
                peer.reset();
            }
        })
        .await;
        let world = World::plain(origin.address);
        let started = Instant::now();
        let error = world.get("/").await.expect_err("no answer");
        assert_eq!((error.kind(), error.effect()), (HttpErrorKind::Closed, Effect::Uncertain));
        assert!(started.elapsed() < SLACK, "s34: an error resolves what waits");
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn s34_reset_or_end_inside_the_head() {
    assert_eq!(kind(get("HTTP/1.1 200 OK\r\nContent-Le", Then::Reset).await), HttpErrorKind::Closed);
    assert_eq!(kind(get("HTTP/1.1 200 OK\r\nContent-Le", Then::Fin).await), HttpErrorKind::Closed);
}

#[tokio::test]
async fn s34_reset_or_end_inside_the_body() {
    let bytes = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    assert!(matches!(kind(get(bytes, Then::Reset).await), HttpErrorKind::Truncated { .. }));
    assert_eq!(kind(get(bytes, Then::Fin).await), HttpErrorKind::Truncated { received: 3 });
    let bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    assert_eq!(kind(get(bytes, Then::Fin).await), HttpErrorKind::Truncated { received: 3 });
}

#[tokio::test]
async fn s34_reset_or_end_inside_the_upload() {
    for reset in [true, false] {
        let origin = Origin::play(move |mut peer, _| async move {
            peer.head().await;
            peer.body(100_000).await;
            if reset {
                peer.reset();
            }
        })
        .await;
        let world = World::plain(origin.address);
        let started = Instant::now();
        let error = world.with_body(Method::POST, vec![7; 15 << 20]).await.expect_err("no answer");
        assert_eq!((error.kind(), error.effect()), (HttpErrorKind::Closed, Effect::Uncertain));
        assert!(
            started.elapsed() < SLACK,
            "the failed direction is noticed by the other: {:?}",
            started.elapsed()
        );
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn s60_half_close_after_a_complete_response() {
    let (status, body) =
        get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", Then::Fin).await.expect("complete");
    assert_eq!((status, &body[..]), (200, &b"abc"[..]));
}

#[tokio::test]
async fn close_right_after_the_promise_to_keep_alive() {
    let bytes = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok";
    let (status, _) = get(bytes, Then::Fin).await.expect("an answer");
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_body_one_byte_over_the_limit() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        peer.write(format!("401\r\n{}\r\n0\r\n\r\n", "x".repeat(1025))).await;
        peer.closed().await;
    })
    .await;
    let world = World::with(origin.address, |config| config.body.response_bytes = 1024);
    let error = world.get("/").await.expect_err("over the limit");
    assert_eq!((error.kind(), error.effect()), (HttpErrorKind::ResponseTooLarge, Effect::Sent));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_closed_port() {
    let world = World::plain(nobody());
    let error = world.get("/").await.expect_err("refused");
    assert_eq!(error.kind(), HttpErrorKind::Connect(ConnectFault::Refused));
    assert_eq!((error.effect(), error.gateway_status()), (Effect::NotSent, 502));
    let error = world.get("/").await.expect_err("in backoff");
    assert!(
        matches!(error.kind(), HttpErrorKind::Library(error) if matches!(error.kind(), Kind::Backoff { .. }))
    );
    assert!(error.retry_after().is_some_and(|wait| !wait.is_zero()));
    assert_eq!((error.effect(), error.gateway_status()), (Effect::NotSent, 503));
    world.assert_quiet();
}

#[tokio::test]
async fn an_origin_that_restarts_is_found_again() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.answer("old").await;
    })
    .await;
    let address = origin.address;
    let world = World::plain(address);
    assert_eq!(&world.get("/").await.expect("an answer").1[..], b"old");
    origin.done().await;
    drop(origin);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(kind(world.get("/").await), HttpErrorKind::Connect(ConnectFault::Refused));
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("a socket option");
    socket.bind(address).expect("the old port");
    let origin = Origin::play_on(socket.listen(16).expect("a listener"), |mut peer, _| async move {
        peer.head().await;
        peer.answer("new").await;
        peer.closed().await;
    });
    let back = loop {
        match world.get("/").await {
            Ok((_, body)) => break body,
            Err(error) => tokio::time::sleep(error.retry_after().expect("backoff")).await,
        }
    };
    assert_eq!(&back[..], b"new");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_full_accept_queue_ends_at_the_deadline() {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    // Fills the queue; the kernel then drops what else knocks.
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(100), tokio::net::TcpStream::connect(address)).await
    {
        waiting.push(stream);
    }
    let world = World::plain(address);
    let started = Instant::now();
    let error = world.get_within(SHORT, "/").await.expect_err("nobody accepts");
    assert!(is_deadline(error.kind()), "{error:?}");
    assert_eq!(error.effect(), Effect::NotSent);
    assert!(started.elapsed() < SHORT + SLACK);
    world.assert_quiet();
}

#[tokio::test]
async fn an_upload_that_is_never_read_ends_at_the_deadline() {
    let origin = Origin::play(|mut peer, _| async move {
        tokio::time::sleep(SHORT * 2).await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.session(SHORT);
    let request =
        latent_adapters::http::HttpRequest::new(Method::POST, http::uri::PathAndQuery::from_static("/"));
    let body = http_body_util::Full::new(Bytes::from(vec![7; 15 << 20]));
    let error = world.provider.open(&session, request, body).await.expect_err("not read");
    assert!(is_deadline(error.kind()), "{error:?}");
    assert_eq!(error.effect(), Effect::Uncertain);
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s36_a_response_before_the_request_is_sent_stops_the_upload() {
    for closes in [false, true] {
        let origin = Origin::play(move |mut peer, _| async move {
            peer.head().await;
            peer.write("HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nstop").await;
            if !closes {
                peer.closed().await;
            }
        })
        .await;
        let world = World::plain(origin.address);
        let (status, body) = world.with_body(Method::POST, vec![7; 15 << 20]).await.expect("an early answer");
        assert_eq!((status, &body[..]), (413, &b"stop"[..]), "closes: {closes}");
        assert_eq!(world.idle(), 0, "its connection is not kept");
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn a_connection_kept_open_after_the_last_chunk_is_used_again() {
    let origin = Origin::play(|mut peer, _| async move {
        for _ in 0..3 {
            peer.head().await;
            peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
        }
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    for _ in 0..3 {
        assert_eq!(&world.get("/").await.expect("an answer").1[..], b"ok");
        assert_eq!(world.idle(), 1);
    }
    assert_eq!(origin.accepted(), 1);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn good_and_bad_by_turns_on_one_socket() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.answer("good").await;
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nbad").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    for round in 1..=5 {
        assert_eq!(&world.get("/").await.expect("a good answer").1[..], b"good");
        assert_eq!(kind(world.get("/").await), HttpErrorKind::Response(ResponseFault::Malformed));
        assert_eq!((world.idle(), origin.accepted()), (0, round));
    }
    world.assert_quiet();
    origin.done().await;
}
