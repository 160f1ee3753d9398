//! When a connection is used again, and when it must not be.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt, Empty};
use latent_adapters::http::{HttpErrorKind, HttpRequest};
use latent_capabilities::broker::Effect;
use tokio::task::JoinSet;

use crate::support::origin::Origin;
use crate::support::{World, in_time};

/// Requests to an origin that answers each with `answer` and keeps the connection.
async fn connections_for(requests: usize, answer: &'static str) -> usize {
    let origin = Origin::play(move |mut peer, _| async move {
        while peer.head().await.is_some() {
            peer.write(answer).await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    for _ in 0..requests {
        world.get("/").await.expect("an answer");
    }
    world.assert_quiet();
    origin.done().await;
    origin.accepted()
}

#[tokio::test]
async fn s35_close_on_either_side_means_destroy() {
    assert_eq!(connections_for(3, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await, 1);
    assert_eq!(connections_for(3, "HTTP/1.1 204 No Content\r\n\r\n").await, 1);
    assert_eq!(connections_for(3, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").await, 1);
    assert_eq!(
        connections_for(3, "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n").await,
        1
    );
    assert_eq!(
        connections_for(3, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await,
        3
    );
    assert_eq!(
        connections_for(3, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, CLOSE\r\n\r\n").await,
        3
    );
    assert_eq!(connections_for(3, "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").await, 3);
}

#[tokio::test]
async fn s35_a_request_that_says_close_is_not_kept_by_an_answer_that_does_not() {
    let origin = Origin::play(|mut peer, _| async move {
        let head = peer.head().await.expect("a request").to_ascii_lowercase();
        assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
        peer.answer("ok").await;
        peer.closed().await;
    })
    .await;
    let world = World::with(origin.address, |config| config.origins[0].keep_alive = false);
    for _ in 0..2 {
        world.get("/").await.expect("an answer");
        assert_eq!(world.idle(), 0);
    }
    assert_eq!(origin.accepted(), 2);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s35_a_body_that_ends_with_the_connection_is_whole_and_not_kept() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\n\r\nuntil the end").await;
    })
    .await;
    let world = World::plain(origin.address);
    assert_eq!(&world.get("/").await.expect("an answer").1[..], b"until the end");
    assert_eq!(world.idle(), 0);
    world.assert_quiet();
    origin.done().await;
}

/// What an origin does with a connection while it is parked.
#[derive(Clone, Copy)]
enum Meanwhile {
    Ends,
    Resets,
    Speaks,
}

/// Requests to an origin that answers once on each connection and does something else when the connection is parked.
async fn while_parked(meanwhile: Meanwhile) {
    let (parked, waits) = tokio::sync::mpsc::channel::<()>(1);
    let waits = Arc::new(tokio::sync::Mutex::new(waits));
    let (told, mut done) = tokio::sync::mpsc::channel(1);
    let origin = Origin::play(move |mut peer, _| {
        let (waits, told) = (Arc::clone(&waits), told.clone());
        async move {
            peer.head().await;
            peer.answer("ok").await;
            waits.lock().await.recv().await.expect("the test says when");
            match meanwhile {
                Meanwhile::Ends => peer.fin().await,
                Meanwhile::Speaks => peer.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged").await,
                Meanwhile::Resets => {
                    peer.reset();
                    return told.send(()).await.expect("the test listens");
                }
            }
            told.send(()).await.expect("the test listens");
            peer.closed().await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    for round in 1..=5 {
        assert_eq!(&world.get("/").await.expect("never a doubtful connection").1[..], b"ok");
        assert_eq!((world.idle(), origin.accepted()), (1, round), "parked while it was good");
        parked.send(()).await.expect("the script listens");
        done.recv().await.expect("the script goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s33_a_connection_that_ended_while_parked_is_never_handed_out() {
    while_parked(Meanwhile::Ends).await;
}

#[tokio::test]
async fn s33_a_connection_that_was_reset_while_parked_is_never_handed_out() {
    while_parked(Meanwhile::Resets).await;
}

#[tokio::test]
async fn s33_a_connection_with_stray_bytes_is_never_handed_out() {
    while_parked(Meanwhile::Speaks).await;
}

#[tokio::test]
async fn s33_a_server_that_closes_at_random_costs_no_uncertain_request_it_has_not_seen() {
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let origin = Origin::play(move |mut peer, number| {
        let seen = Arc::clone(&counted);
        async move {
            for _ in 0..=(number * 7) % 4 {
                if peer.head().await.is_none() {
                    return;
                }
                seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                peer.answer("ok").await;
            }
            tokio::time::sleep(Duration::from_micros((number as u64 * 131) % 900)).await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    let (mut answered, mut uncertain) = (0, 0);
    for _ in 0..300 {
        match world.get("/").await {
            Ok(_) => answered += 1,
            Err(error) if error.effect() == Effect::NotSent => {
                assert_eq!(error.kind(), HttpErrorKind::Closed, "{error:?}");
            }
            Err(error) => {
                assert_eq!((error.kind(), error.effect()), (HttpErrorKind::Closed, Effect::Uncertain));
                uncertain += 1;
            }
        }
    }
    let seen = seen.load(std::sync::atomic::Ordering::SeqCst);
    assert!(answered <= seen && seen <= answered + uncertain, "each request was sent at most once");
    assert!(answered >= 200, "the check before use spares most: {answered}");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s37_sequential_requests_use_one_socket() {
    let origin = Origin::play(|mut peer, _| async move {
        while peer.head().await.is_some() {
            peer.answer("ok").await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    for _ in 0..2000 {
        world.get("/").await.expect("an answer");
    }
    assert!(origin.accepted() <= 2, "{}", origin.accepted());
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s36_a_response_that_is_not_read_to_its_end_destroys_the_connection() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let mut response =
        world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let frame = response.body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.data_ref().map(|data| &data[..]), Some(&b"abc"[..]));
    drop(response);
    assert_eq!(world.idle(), 0);
    drop((frame, session));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn the_connection_is_parked_as_soon_as_the_last_byte_is_in() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.answer("whole").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let mut response =
        world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let frame = response.body.frame().await.expect("a frame").expect("no error");
    assert_eq!(world.idle(), 1, "before the chunk is dropped, and before the end is asked for");
    assert!(http_body::Body::is_end_stream(&response.body));
    drop((frame, response, session));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_s26_an_origin_that_closes_after_each_answer_starves_nobody() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.answer("ok").await;
    })
    .await;
    let world = Arc::new(World::plain(origin.address));
    let mut workers = JoinSet::new();
    for _ in 0..10 {
        let world = Arc::clone(&world);
        workers.spawn(async move {
            for _ in 0..50 {
                let outcome = world.get("/").await;
                // The origin may close between the check and the request; that is said, and never hidden.
                assert!(
                    outcome.is_ok() || matches!(outcome, Err(error) if error.kind() == HttpErrorKind::Closed),
                    "{outcome:?}"
                );
            }
        });
    }
    while let Some(worker) = in_time(workers.join_next()).await {
        worker.expect("no queue timeout");
    }
    let most = origin.most();
    assert!(most <= 10, "8 connections of a client, and two whose scripts are just ending: {most}");
    world.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s27_a_cold_client_dials_once_at_a_time() {
    let origin = Origin::play(|mut peer, _| async move {
        while peer.head().await.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            peer.answer("ok").await;
        }
    })
    .await;
    let world = Arc::new(World::plain(origin.address));
    let mut requests = JoinSet::new();
    for _ in 0..30 {
        let world = Arc::clone(&world);
        requests.spawn(async move { world.get("/").await.expect("an answer") });
    }
    while let Some(request) = in_time(requests.join_next()).await {
        request.expect("an answer");
    }
    assert!(origin.accepted() <= 8 && origin.most() <= 8, "{} {}", origin.accepted(), origin.most());
    world.settle().await;
    origin.done().await;
}

#[tokio::test]
async fn s30_many_dead_idle_connections_are_skipped_at_once() {
    let (close, closing) = tokio::sync::watch::channel(false);
    let origin = Origin::play(move |mut peer, _| {
        let mut closing = closing.clone();
        let lasts = *closing.borrow();
        async move {
            loop {
                tokio::select! {
                    head = peer.head() => if head.is_none() { return },
                    _ = closing.wait_for(|close| *close), if !lasts => return,
                }
                tokio::time::sleep(Duration::from_millis(30)).await;
                peer.answer("ok").await;
            }
        }
    })
    .await;
    let world = Arc::new(World::plain(origin.address));
    let mut requests = JoinSet::new();
    for _ in 0..8 {
        let world = Arc::clone(&world);
        requests.spawn(async move { world.get("/").await.expect("an answer") });
    }
    while let Some(request) = in_time(requests.join_next()).await {
        request.expect("an answer");
    }
    let parked = world.idle();
    assert!(parked > 1, "{parked}");
    close.send(true).expect("the scripts listen");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(&world.get("/").await.expect("a fresh connection").1[..], b"ok");
    assert_eq!(world.idle(), 1, "the dead ones are gone");
    world.settle().await;
}

#[tokio::test]
async fn methods_without_a_response_body_keep_the_connection() {
    let origin = Origin::play(|mut peer, _| async move {
        let head = peer.head().await.expect("a request");
        assert!(head.starts_with("HEAD / HTTP/1.1\r\n"), "{head}");
        assert!(!head.to_ascii_lowercase().contains("content-length"), "{head}");
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await;
        let head = peer.head().await.expect("a request").to_ascii_lowercase();
        assert!(
            head.starts_with("post / http/1.1\r\n") && head.contains("\r\ncontent-length: 0\r\n"),
            "{head}"
        );
        peer.answer("ok").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let request = HttpRequest { method: Method::HEAD, ..HttpRequest::get("/") };
    let response = world.provider.open(&session, request, Empty::new()).await.expect("a head");
    assert_eq!(response.headers["content-length"], "1000");
    assert_eq!(world.idle(), 1);
    assert!(response.body.collect().await.expect("an end").to_bytes().is_empty());
    assert_eq!(&world.with_body(Method::POST, "").await.expect("an answer").1[..], b"ok");
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s70_a_redirect_is_returned_and_nobody_follows_it() {
    let origin = Origin::play(|mut peer, number| async move {
        assert_eq!(number, 0, "one connection");
        peer.head().await;
        peer.write(
            "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n",
        )
        .await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let response =
        world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a redirect");
    assert_eq!(response.status, 302);
    assert_eq!(response.headers["location"], "http://169.254.169.254/latest");
    drop((response, session));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_request_without_waiting_takes_what_is_there_or_is_refused() {
    let origin = Origin::play(|mut peer, _| async move {
        while peer.head().await.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            peer.answer("ok").await;
        }
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let request = HttpRequest { wait: false, ..HttpRequest::get("/") };
    let answer = world.provider.send(&session, request.clone(), b"").await.expect("a dial at once");
    assert_eq!(answer.bytes(), b"ok");
    assert_eq!(world.idle(), 1);
    drop(answer);
    let (first, second) = tokio::join!(
        world.provider.send(&session, request.clone(), b""),
        world.provider.send(&session, request.clone(), b""),
    );
    assert!(first.is_ok() && second.is_ok(), "the idle one, and a dial");
    drop((first, second));
    assert_eq!((world.idle(), origin.accepted()), (2, 2));
    drop(session);
    world.assert_quiet();
    origin.done().await;
}
