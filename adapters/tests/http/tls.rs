//! TLS: trust, names, the missing goodbye, and what comes after the handshake.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use latent_adapters::http::{HttpErrorKind, TlsConfig, TlsFault, TlsRoots};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::server::TlsStream;

use crate::support::origin::Origin;
use crate::support::{World, kind};

/// An authority, and what a server needs that it vouches for.
struct Authority {
    root: Vec<u8>,
    acceptor: TlsAcceptor,
}

fn authority(name: &str) -> Authority {
    let root_key = KeyPair::generate().expect("a key");
    let mut root = CertificateParams::new(Vec::new()).expect("parameters");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).expect("a root");
    let key = KeyPair::generate().expect("a key");
    let issuer = Issuer::from_params(&root, &root_key);
    let leaf = CertificateParams::new(vec![name.to_owned()])
        .expect("a name")
        .signed_by(&key, &issuer)
        .expect("a leaf");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(leaf.der().to_vec())],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .expect("a certificate");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Authority { root: root_certificate.der().to_vec(), acceptor: TlsAcceptor::from(Arc::new(config)) }
}

/// Reads one request's head.
async fn head(stream: &mut TlsStream<TcpStream>) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return None,
        }
    }
    Some(String::from_utf8(head).expect("ASCII"))
}

/// How a TLS origin ends its connection.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Goodbye,
    Cut,
    Keep,
}

/// An origin that answers every request on a connection with `bytes` and then ends as told.
async fn origin(authority: &Authority, bytes: &'static str, end: End) -> Origin {
    let acceptor = authority.acceptor.clone();
    Origin::play(move |peer, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(peer.stream).await else { return };
            while head(&mut stream).await.is_some() {
                stream.write_all(bytes.as_bytes()).await.expect("sent");
                stream.flush().await.expect("sent");
                match end {
                    End::Keep => {}
                    End::Goodbye => return stream.shutdown().await.expect("a goodbye"),
                    End::Cut => return stream.get_mut().0.shutdown().await.expect("an end"),
                }
            }
        }
    })
    .await
}

fn world(origin: &Origin, roots: TlsRoots, server_name: Option<&str>) -> World {
    World::with(origin.address, |config| {
        config.origins[0].url = format!("https://{}", origin.address);
        config.origins[0].tls = TlsConfig { roots, server_name: server_name.map(ToOwned::to_owned) };
    })
}

const SIZED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\n\r\nok";

#[tokio::test]
async fn a_connection_over_tls_is_used_again() {
    let authority = authority("api.example.org");
    let origin = origin(&authority, SIZED, End::Keep).await;
    let world = world(&origin, TlsRoots::Der(vec![authority.root.clone()]), Some("api.example.org"));
    for _ in 0..5 {
        assert_eq!(&world.get("/").await.expect("an answer").1[..], b"ok");
        // Session tickets, which a TLS 1.3 server sends after the handshake, are not stray bytes.
        assert_eq!(world.idle(), 1);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(origin.accepted(), 1);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s39_a_complete_body_without_the_goodbye_is_whole_and_its_connection_is_destroyed() {
    let authority = authority("api.example.org");
    for bytes in [SIZED, CHUNKED] {
        let origin = origin(&authority, bytes, End::Cut).await;
        let world = world(&origin, TlsRoots::Der(vec![authority.root.clone()]), Some("api.example.org"));
        for round in 1..=3 {
            assert_eq!(&world.get("/").await.expect("an answer").1[..], b"ok");
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(origin.accepted(), round);
        }
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn s39_a_body_that_ends_with_the_connection_needs_the_goodbye() {
    let authority = authority("api.example.org");
    let roots = || TlsRoots::Der(vec![authority.root.clone()]);
    let whole = origin(&authority, UNTIL_CLOSE, End::Goodbye).await;
    let world_of_whole = world(&whole, roots(), Some("api.example.org"));
    assert_eq!(&world_of_whole.get("/").await.expect("an answer").1[..], b"ok");
    world_of_whole.assert_quiet();
    whole.done().await;

    let cut = origin(&authority, UNTIL_CLOSE, End::Cut).await;
    let world = world(&cut, roots(), Some("api.example.org"));
    assert_eq!(kind(world.get("/").await), HttpErrorKind::Truncated { received: 2 });
    assert_eq!(world.idle(), 0);
    world.assert_quiet();
    cut.done().await;
}

#[tokio::test]
async fn certificates_are_checked_against_roots_and_name() {
    let good = authority("api.example.org");
    let other = authority("api.example.org");
    let certificate = HttpErrorKind::Tls(TlsFault::Certificate);
    for (roots, name) in [
        (TlsRoots::Der(vec![other.root.clone()]), Some("api.example.org")),
        (TlsRoots::Public, Some("api.example.org")),
        (TlsRoots::Der(vec![good.root.clone()]), Some("www.example.org")),
        (TlsRoots::Der(vec![good.root.clone()]), None),
    ] {
        let origin = origin(&good, SIZED, End::Keep).await;
        let world = world(&origin, roots, name);
        let error = world.get("/").await.expect_err("not trusted");
        assert_eq!(error.kind(), certificate);
        assert_eq!(
            (error.effect(), error.gateway_status()),
            (latent_capabilities::broker::Effect::NotSent, 502)
        );
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn origins_that_do_not_speak_tls() {
    let plain = Origin::play(|mut peer, _| async move {
        peer.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        peer.closed().await;
    })
    .await;
    let world_of_plain = world(&plain, TlsRoots::Public, None);
    assert_eq!(kind(world_of_plain.get("/").await), HttpErrorKind::Tls(TlsFault::Handshake));
    world_of_plain.assert_quiet();
    plain.done().await;

    let gone = Origin::play(|mut peer, _| async move {
        let mut hello = [0; 64];
        peer.stream.read_exact(&mut hello).await.expect("a hello");
    })
    .await;
    let world_of_gone = world(&gone, TlsRoots::Public, None);
    assert_eq!(kind(world_of_gone.get("/").await), HttpErrorKind::Tls(TlsFault::Closed));
    world_of_gone.assert_quiet();
    gone.done().await;
}

#[tokio::test]
async fn a_stalled_handshake_ends_with_the_attempt() {
    let origin = Origin::play(|mut peer, _| async move { peer.closed().await }).await;
    let world = World::with(origin.address, |config| {
        config.origins[0].url = format!("https://{}", origin.address);
        config.dial.attempt = Duration::from_millis(100);
    });
    let started = std::time::Instant::now();
    assert!(matches!(kind(world.get("/").await), HttpErrorKind::Connect(_)));
    assert!(started.elapsed() < Duration::from_secs(1));
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s34_reset_inside_the_upload() {
    let authority = authority("api.example.org");
    let acceptor = authority.acceptor.clone();
    let origin = Origin::play(move |peer, _| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(peer.stream).await.expect("a handshake");
            head(&mut stream).await.expect("a request");
            stream.read_exact(&mut vec![0; 100_000]).await.expect("a part of the body");
            stream.get_ref().0.set_zero_linger().expect("a socket option");
        }
    })
    .await;
    let world = world(&origin, TlsRoots::Der(vec![authority.root.clone()]), Some("api.example.org"));
    let started = std::time::Instant::now();
    let error = world.with_body(http::Method::POST, vec![7; 8 << 20]).await.expect_err("no answer");
    assert_eq!(
        (error.kind(), error.effect()),
        (HttpErrorKind::Closed, latent_capabilities::broker::Effect::Uncertain)
    );
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions() {
    let authority = authority("api.example.org");
    let acceptor = authority.acceptor.clone();
    let origin = Origin::play(move |peer, _| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(peer.stream).await.expect("a handshake");
            head(&mut stream).await.expect("a request");
            let mut body = vec![0; 3 << 20];
            stream.read_exact(&mut body).await.expect("a body");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await.expect("sent");
            stream.write_all(&body).await.expect("sent");
            stream.flush().await.expect("sent");
            assert!(head_or_end(&mut stream).await, "parked, then closed");
        }
    })
    .await;
    let world = world(&origin, TlsRoots::Der(vec![authority.root.clone()]), Some("api.example.org"));
    let session = world.patient();
    let body: Vec<u8> = (0..3_usize << 20).map(|at| (at / 1000) as u8).collect();
    let request = latent_adapters::http::HttpRequest::new(
        http::Method::POST,
        http::uri::PathAndQuery::from_static("/"),
    );
    let sent = http_body_util::Full::new(Bytes::from(body.clone()));
    let mut response = world.provider.open(&session, request, sent).await.expect("a head").body;
    let mut received = Vec::new();
    while let Some(frame) = http_body_util::BodyExt::frame(&mut response).await {
        received.extend_from_slice(frame.expect("no error").data_ref().expect("data"));
    }
    assert!(received == body, "byte by byte the same");
    assert_eq!(world.idle(), 1);
    drop((response, session));
    world.assert_quiet();
    origin.done().await;
}

async fn head_or_end(stream: &mut TlsStream<TcpStream>) -> bool {
    head(stream).await.is_none()
}
