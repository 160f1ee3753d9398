//! Callers that go away, stop, panic, or run out of time, at every stage.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use latent_adapters::http::{HttpErrorKind, HttpRequest};
use latent_capabilities::broker::Kind;
use tokio::net::UdpSocket;

use crate::support::origin::Origin;
use crate::support::{World, in_time, kind};

/// Polls a request for a while, then drops it.
async fn abandon(world: &World, after: Duration) {
    let session = world.patient();
    let call = world.provider.open(&session, HttpRequest::get("/"), Empty::new());
    assert!(tokio::time::timeout(after, call).await.is_err(), "it still waits");
    drop(session);
    world.assert_quiet();
}

const WHILE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn s03_dropped_while_the_name_is_resolved() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let server = silent.local_addr().expect("an address");
    let world = World::with(crate::support::origin::nobody(), |config| {
        config.origins[0].url = "http://api.example.org".into();
        config.dns.servers = vec![server];
    });
    abandon(&world, WHILE).await;
}

#[tokio::test]
async fn s03_dropped_while_connecting() {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(WHILE, tokio::net::TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    abandon(&World::plain(address), WHILE).await;
}

#[tokio::test]
async fn s03_dropped_during_the_tls_handshake() {
    let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
    let world = World::with(origin.address, |config| {
        config.origins[0].url = format!("https://{}", origin.address);
    });
    abandon(&world, WHILE).await;
    origin.done().await;
}

#[tokio::test]
async fn s03_dropped_before_the_head() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.closed().await;
    })
    .await;
    abandon(&World::plain(origin.address), WHILE).await;
    origin.done().await;
}

#[tokio::test]
async fn s03_a_dropped_dial_leaves_the_client_usable_after_its_pause() {
    let origin = Origin::play(|mut peer, number| async move {
        if number == 0 {
            peer.closed().await;
        } else {
            peer.head().await;
            peer.answer("ok").await;
            peer.closed().await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    abandon(&world, WHILE).await;
    let answer = loop {
        match world.get("/").await {
            Ok((_, body)) => break body,
            Err(error) => tokio::time::sleep(error.retry_after().expect("backoff")).await,
        }
    };
    assert_eq!(&answer[..], b"ok");
    drop(answer);
    world.assert_quiet();
    origin.done().await;
}

/// Cases S01, S51.
#[tokio::test]
async fn dropped_at_every_poll() {
    let mut finished = false;
    for polls in 1..200 {
        let origin = Origin::play(|mut peer, _| async move {
            if peer.head().await.is_some() {
                peer.answer("ok").await;
            }
            peer.closed().await;
        })
        .await;
        let world = World::plain(origin.address);
        let session = world.patient();
        let mut call = Box::pin(async {
            let response = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await?;
            crate::support::read(response).await
        });
        for _ in 0..polls {
            let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
            if polled {
                finished = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        drop(session);
        world.assert_quiet();
        origin.done().await;
        if finished {
            return;
        }
    }
    assert!(finished, "it never came to an end");
}

#[tokio::test]
async fn stopped_in_each_stage_it_ends_at_once() {
    for stage in ["head", "body"] {
        let origin = Origin::play(move |mut peer, _| async move {
            peer.head().await;
            if stage == "body" {
                peer.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal").await;
            }
            peer.closed().await;
        })
        .await;
        let world = Arc::new(World::plain(origin.address));
        let session = Arc::new(world.patient());
        let (ran, stopped) = (Arc::clone(&world), Arc::clone(&session));
        let call = tokio::spawn(async move {
            let response = ran.provider.open(&session, HttpRequest::get("/"), Empty::new()).await?;
            crate::support::read(response).await
        });
        tokio::time::sleep(WHILE).await;
        let started = Instant::now();
        stopped.stop();
        let error = in_time(call).await.expect("no panic").expect_err("stopped");
        assert!(started.elapsed() < Duration::from_millis(900), "s34: {:?}", started.elapsed());
        assert!(
            matches!(error.kind(), HttpErrorKind::Library(error) if matches!(error.kind(), Kind::Stopped(_))),
            "{error:?}"
        );
        drop(stopped);
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn a_reader_that_is_stopped_while_its_window_is_full_is_woken() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 20)).await;
        peer.write(vec![b'w'; 1 << 20]).await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.session(Duration::from_millis(300));
    let response = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let mut body = response.body;
    let _first = body.frame().await.expect("a frame").expect("no error");
    let _second = body.frame().await.expect("a frame").expect("no error");
    let error = in_time(body.frame()).await.expect("an error").expect_err("the deadline");
    assert_eq!(error.gateway_status(), 504);
    drop((_first, _second, body, session));
    world.assert_quiet();
    origin.done().await;
}

/// A body that panics when it is read.
struct Panics;

impl Body for Panics {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        panic!("a caller's body");
    }
}

#[tokio::test]
async fn s42_a_panic_of_the_caller_gives_everything_back() {
    let origin = Origin::play(|mut peer, number| async move {
        if number == 0 {
            peer.closed().await;
        } else {
            peer.head().await;
            peer.answer("ok").await;
            peer.closed().await;
        }
    })
    .await;
    let world = Arc::new(World::plain(origin.address));
    let ran = Arc::clone(&world);
    let call = tokio::spawn(async move {
        let session = ran.patient();
        let request = HttpRequest::new(Method::POST, http::uri::PathAndQuery::from_static("/"));
        ran.provider.open(&session, request, Panics).await.map(|response| response.status)
    });
    assert!(call.await.expect_err("a panic").is_panic());
    world.assert_quiet();
    assert_eq!(&world.get("/").await.expect("the pool goes on").1[..], b"ok");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s46_the_deadline_of_a_request_only_narrows() {
    let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
    let world = World::plain(origin.address);
    for wait in [true, false] {
        for (session, request) in [(10_000, 200), (200, 10_000)] {
            let started = Instant::now();
            let deadline =
                latent_capabilities::Deadline::after(Duration::from_millis(request)).expect("a deadline");
            let request = HttpRequest { deadline: Some(deadline), wait, ..HttpRequest::get("/") };
            let session = world.session(Duration::from_millis(session));
            let error = world.provider.open(&session, request, Empty::new()).await.expect_err("silence");
            assert_eq!(error.gateway_status(), 504, "{error:?}");
            let took = started.elapsed();
            assert!((200..1100).contains(&took.as_millis()), "{took:?}");
            drop(session);
            world.assert_quiet();
        }
    }
    origin.done().await;
}

#[tokio::test]
async fn s44_a_call_holds_one_connection() {
    let origin = Origin::play(|mut peer, _| async move {
        while peer.head().await.is_some() {
            peer.write("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    for _ in 0..10 {
        assert_eq!(world.get("/").await.expect("a redirect").0, 302);
    }
    assert_eq!(origin.most(), 1);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_session_that_is_over_starts_nothing() {
    let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
    let world = World::plain(origin.address);
    let session = world.patient();
    session.stop();
    let outcome = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await;
    assert!(matches!(kind(outcome), HttpErrorKind::Library(_)));
    assert_eq!(origin.accepted(), 0);
    drop(session);
    world.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_vanish_leave_nothing_behind() {
    let origin = Origin::play(|mut peer, _| async move {
        while peer.head().await.is_some() {
            peer.write("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n").await;
            for _ in 0..6 {
                peer.write([b'v'; 10_000]).await;
                tokio::time::sleep(Duration::from_micros(700)).await;
            }
        }
    })
    .await;
    let world = Arc::new(World::plain(origin.address));
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..120_u64 {
        let world = Arc::clone(&world);
        callers.spawn(async move {
            tokio::time::sleep(Duration::from_millis(number)).await;
            // From before the first byte to after the last one.
            let patience = Duration::from_micros(number * 7919 % 14_000);
            tokio::time::timeout(patience, world.get("/")).await.is_ok()
        });
    }
    while let Some(caller) = in_time(callers.join_next()).await {
        caller.expect("no panic");
    }
    world.settle().await;
    in_time(origin.done()).await;
}
