//! The adapter in the hands of the pools: rotation, retirement, idle age, ceilings, backoff, shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header;
use http_body_util::{BodyExt, Empty};
use latent_adapters::http::{
    ConnectFault, HttpCredential, HttpErrorKind, HttpProvider, HttpProviderConfig, HttpRequest, OriginConfig,
};
use latent_capabilities::Deadline;
use latent_capabilities::broker::pools::Epoch;
use latent_capabilities::broker::{Activation, Kind, PlanSpec, PoolLimits};
use tokio::task::JoinSet;

use crate::support::origin::{Origin, nobody};
use crate::support::{World, in_time, kind, read};

fn config(origin: &Origin, epoch: u64, secret: &str) -> HttpProviderConfig {
    let url = format!("http://{}", origin.address);
    let mut config = HttpProviderConfig::new("orders", epoch).origin(OriginConfig::new(url).allow_loopback());
    config.credentials = Some(HttpCredential::new(header::AUTHORIZATION, secret));
    config
}

/// An origin that answers with the credential it was sent.
async fn echo() -> Origin {
    Origin::play(|mut peer, _| async move {
        while let Some(head) = peer.head().await {
            let secret =
                head.lines().find_map(|line| line.strip_prefix("authorization: ")).expect("a credential");
            peer.answer(secret).await;
        }
    })
    .await
}

/// Case S40.
#[tokio::test]
async fn a_rotation_uses_the_new_secret_and_closes_the_old_connections() {
    let origin = echo().await;
    let world = World::of(config(&origin, 1, "first"), PoolLimits::default());
    assert_eq!(&world.get("/").await.expect("an answer").1[..], b"first");
    assert_eq!(world.idle(), 1);

    let session = world.patient();
    let rotated =
        HttpProvider::install(&world.pools, config(&origin, 2, "second"), Epoch(1)).expect("rotated");
    assert_eq!(world.idle(), 0, "the old epoch keeps no connection");
    let outcome = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await;
    assert!(
        matches!(kind(outcome), HttpErrorKind::Library(error) if matches!(error.kind(), Kind::Retired(_)))
    );
    drop(session);

    let spec = PlanSpec::new("tenant-a", "orders-app-2")
        .bind(&latent_adapters::http::HTTP, &rotated.installed().reference());
    let plan = world.broker.seal(spec).expect("a plan");
    let until = Activation::until(Deadline::after(Duration::from_secs(10)).expect("a deadline"));
    let session = world.broker.open(&plan, until).expect("a session");
    let response = rotated.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("an answer");
    assert_eq!(&read(response).await.expect("a body").1[..], b"second");
    drop(session);
    rotated.close_idle();
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_stale_installation_is_refused_and_changes_nothing() {
    let origin = echo().await;
    let world = World::of(config(&origin, 1, "first"), PoolLimits::default());
    let refused = HttpProvider::install(&world.pools, config(&origin, 2, "second"), Epoch(7));
    assert!(matches!(refused.expect_err("stale").kind(), HttpErrorKind::Library(_)));
    assert_eq!(&world.get("/").await.expect("an answer").1[..], b"first");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn a_call_that_was_accepted_ends_on_the_old_epoch() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        peer.write("lf").await;
        peer.closed().await;
    })
    .await;
    let world = World::of(config(&origin, 1, "first"), PoolLimits::default());
    let session = world.patient();
    let response = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    HttpProvider::install(&world.pools, config(&origin, 2, "second"), Epoch(1)).expect("rotated");
    assert_eq!(&read(response).await.expect("the rest").1[..], b"half");
    assert_eq!(world.idle(), 0, "destroyed instead of parked");
    drop(session);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s31_idle_connections_are_closed_when_they_are_too_old() {
    let origin = echo().await;
    let limits = PoolLimits { idle_age: Duration::from_millis(150), ..PoolLimits::default() };
    let world = World::of(config(&origin, 1, "x"), limits);
    world.get("/").await.expect("an answer");
    assert_eq!(world.idle(), 1);
    let started = Instant::now();
    origin.done().await;
    assert!((100..1500).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    assert_eq!(world.idle(), 0);
    world.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s26_s28_the_origin_never_sees_more_connections_than_the_limit() {
    let origin = Origin::play(|mut peer, _| async move {
        while peer.head().await.is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            peer.answer("ok").await;
        }
    })
    .await;
    let limits = PoolLimits { connections_per_client: 3, ..PoolLimits::default() };
    let url = format!("http://{}", origin.address);
    let config = HttpProviderConfig::new("orders", 1).origin(OriginConfig::new(url).allow_loopback());
    let world = Arc::new(World::of(config, limits));
    let mut requests = JoinSet::new();
    for _ in 0..30 {
        let world = Arc::clone(&world);
        requests.spawn(async move {
            for _ in 0..10 {
                world.get("/").await.expect("an answer");
            }
        });
    }
    while let Some(request) = in_time(requests.join_next()).await {
        request.expect("all are served");
    }
    assert!((1..=3).contains(&origin.most()), "{}", origin.most());
    assert!(origin.accepted() <= 3, "no connection is wasted: {}", origin.accepted());
    world.settle().await;
    origin.done().await;
}

#[tokio::test]
async fn s29_who_waits_for_a_client_in_backoff_learns_of_it_at_once() {
    let world = Arc::new(World::plain(nobody()));
    let mut requests = JoinSet::new();
    let started = Instant::now();
    for _ in 0..12 {
        let world = Arc::clone(&world);
        requests.spawn(async move { world.get("/").await.expect_err("nobody listens") });
    }
    let mut refused = 0;
    while let Some(request) = in_time(requests.join_next()).await {
        let error = request.expect("no panic");
        match error.kind() {
            HttpErrorKind::Connect(ConnectFault::Refused) => refused += 1,
            HttpErrorKind::Library(library) if matches!(library.kind(), Kind::Backoff { .. }) => {
                assert!(error.retry_after().is_some());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 1, "one dial");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    world.assert_quiet();
}

#[tokio::test]
async fn shutdown_says_what_is_left_and_is_clean_when_it_is_gone() {
    let origin = Origin::play(|mut peer, _| async move {
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
        peer.closed().await;
    })
    .await;
    let world = World::plain(origin.address);
    let session = world.patient();
    let response = world.provider.open(&session, HttpRequest::get("/"), Empty::new()).await.expect("a head");
    let soon = || Deadline::after(Duration::from_millis(100)).expect("a deadline");
    let left = world.pools.shutdown(soon()).await;
    assert_eq!((left.connections, left.is_clean()), (1, false), "{left:?}");
    let mut body = response.body;
    let mut frame = body.frame().await;
    while let Some(Ok(_)) = frame {
        frame = body.frame().await;
    }
    assert!(matches!(frame, Some(Err(error)) if error.gateway_status() == 503), "{frame:?}");
    drop((body, session));
    origin.done().await;
    let left = world.pools.shutdown(soon()).await;
    assert_eq!(left.connections, 0, "{left:?}");
}
