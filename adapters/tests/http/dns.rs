//! Names: bounded, inside the deadline, without threads, and never a way to a forbidden address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};
use latent_adapters::http::{HttpErrorKind, HttpProviderConfig, OriginConfig, ResolveFault};
use latent_capabilities::broker::PoolLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use crate::support::origin::{Origin, nobody};
use crate::support::{World, in_time, kind};

/// A name server on loopback.
struct NameServer {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl NameServer {
    /// `answer` changes a well-formed, empty answer; `false`: no datagram is sent. TCP answers always.
    async fn start(answer: impl Fn(&mut Message, bool) -> bool + Send + Sync + 'static) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = tcp.local_addr().expect("an address");
        let udp = UdpSocket::bind(address).await.expect("the same port");
        let asked = Arc::new(AtomicUsize::new(0));
        let (counted, answer) = (Arc::clone(&asked), Arc::new(answer));
        let mut tasks = JoinSet::new();
        let by_datagram = Arc::clone(&answer);
        tasks.spawn(async move {
            let mut bytes = [0; 512];
            loop {
                let (length, from) = udp.recv_from(&mut bytes).await.expect("a question");
                counted.fetch_add(1, Ordering::SeqCst);
                let mut message = respond(&bytes[..length]);
                if by_datagram(&mut message, false) {
                    udp.send_to(&message.to_vec().expect("a message"), from).await.expect("sent");
                }
            }
        });
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.expect("a connection");
                let length = stream.read_u16().await.expect("a length");
                let mut bytes = vec![0; length.into()];
                stream.read_exact(&mut bytes).await.expect("a question");
                let mut message = respond(&bytes);
                answer(&mut message, true);
                let bytes = message.to_vec().expect("a message");
                stream.write_u16(u16::try_from(bytes.len()).expect("short")).await.expect("sent");
                stream.write_all(&bytes).await.expect("sent");
            }
        });
        Self { address, asked, tasks }
    }

    /// Answers every question of IPv4 with these addresses.
    async fn with(addresses: &[[u8; 4]], ttl: u32) -> Self {
        let addresses = addresses.to_vec();
        Self::start(move |message, _| {
            for address in &addresses {
                add(message, (*address).into(), ttl);
            }
            true
        })
        .await
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

fn respond(question: &[u8]) -> Message {
    let question = Message::from_vec(question).expect("a question");
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.add_queries(question.queries);
    message
}

/// Adds an address where the question is for its family.
fn add(message: &mut Message, address: IpAddr, ttl: u32) {
    let query = &message.queries[0];
    let data = match address {
        IpAddr::V4(address) if query.query_type == RecordType::A => RData::A(A(address)),
        IpAddr::V6(address) if query.query_type == RecordType::AAAA => RData::AAAA(AAAA(address)),
        _ => return,
    };
    let record = Record::from_rdata(query.name.clone(), ttl, data);
    message.add_answer(record);
}

fn named(server: SocketAddr, port: u16, change: impl FnOnce(&mut HttpProviderConfig)) -> World {
    let url = format!("http://api.example.org:{port}");
    let mut config = HttpProviderConfig::new("orders", 1).origin(OriginConfig::new(url).allow_loopback());
    config.dns.servers = vec![server];
    change(&mut config);
    World::of(config, PoolLimits::default())
}

async fn echo() -> Origin {
    Origin::play(|mut peer, _| async move {
        let head = peer.head().await.expect("a request");
        assert!(head.to_ascii_lowercase().contains("\r\nhost: api.example.org:"), "{head}");
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
        peer.closed().await;
    })
    .await
}

#[tokio::test]
async fn a_name_is_resolved_dialled_and_remembered() {
    let origin = echo().await;
    let server = NameServer::with(&[[127, 0, 0, 1]], 60).await;
    let world = named(server.address, origin.address.port(), |_| {});
    for _ in 0..5 {
        assert_eq!(&world.get("/").await.expect("an answer").1[..], b"ok");
    }
    assert_eq!(server.asked(), 2, "one question of each family");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn an_answer_is_remembered_no_longer_than_it_and_we_allow() {
    for (ttl, maximum) in [(0, Duration::from_secs(30)), (60, Duration::ZERO)] {
        let origin = echo().await;
        let server = NameServer::with(&[[127, 0, 0, 1]], ttl).await;
        let world = named(server.address, origin.address.port(), |config| config.dns.maximum_ttl = maximum);
        for _ in 0..3 {
            world.get("/").await.expect("an answer");
        }
        assert_eq!(server.asked(), 6);
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn s70_a_name_that_leads_to_a_forbidden_address_is_refused() {
    for addresses in [&[[169, 254, 169, 254]][..], &[[127, 0, 0, 1], [169, 254, 169, 254]], &[[10, 0, 0, 1]]]
    {
        let origin = echo().await;
        let server = NameServer::with(addresses, 60).await;
        let world = named(server.address, origin.address.port(), |_| {});
        assert_eq!(kind(world.get("/").await), HttpErrorKind::AddressRefused, "{addresses:?}");
        assert_eq!(origin.accepted(), 0, "nothing was dialled");
        world.assert_quiet();
    }
    let server = NameServer::with(&[[127, 0, 0, 1]], 60).await;
    let world = named(server.address, 80, |config| config.origins[0].allow.loopback = false);
    assert_eq!(kind(world.get("/").await), HttpErrorKind::AddressRefused);
}

#[tokio::test]
async fn s70_a_name_that_is_bound_anew_is_checked_anew() {
    let origin = echo().await;
    let asked = AtomicUsize::new(0);
    let server = NameServer::start(move |message, _| {
        let first = asked.fetch_add(1, Ordering::SeqCst) < 2;
        add(message, if first { [127, 0, 0, 1] } else { [169, 254, 169, 254] }.into(), 0);
        true
    })
    .await;
    let world = named(server.address, origin.address.port(), |_| {});
    world.get("/").await.expect("an answer");
    assert_eq!(kind(world.get("/").await), HttpErrorKind::AddressRefused);
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_asked_for_over_tcp() {
    let origin = echo().await;
    let server = NameServer::start(|message, tcp| {
        if tcp {
            add(message, [127, 0, 0, 1].into(), 60);
        } else {
            message.metadata.truncation = true;
        }
        true
    })
    .await;
    let world = named(server.address, origin.address.port(), |_| {});
    assert_eq!(&world.get("/").await.expect("an answer").1[..], b"ok");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn names_that_do_not_exist_and_servers_that_refuse() {
    for (code, fault) in [
        (ResponseCode::NXDomain, ResolveFault::NoAddress),
        (ResponseCode::ServFail, ResolveFault::ServerFailed),
    ] {
        let server = NameServer::start(move |message, _| {
            message.metadata.response_code = code;
            true
        })
        .await;
        let world = named(server.address, 80, |_| {});
        let error = world.get("/").await.expect_err("no address");
        assert_eq!((error.kind(), error.gateway_status()), (HttpErrorKind::Resolve(fault), 502));
        world.assert_quiet();
    }
    let world = named(nobody(), 80, |_| {});
    assert_eq!(
        kind(world.get("/").await),
        HttpErrorKind::Resolve(ResolveFault::ServerFailed),
        "nobody listens"
    );
    world.assert_quiet();
}

#[tokio::test]
async fn the_next_server_is_asked_where_the_first_says_nothing() {
    let origin = echo().await;
    let silent = NameServer::start(|_, _| false).await;
    let server = NameServer::with(&[[127, 0, 0, 1]], 60).await;
    let world = named(silent.address, origin.address.port(), |config| {
        config.dns.servers.push(server.address);
        config.dns.attempt = Duration::from_millis(50);
    });
    assert_eq!(&world.get("/").await.expect("an answer").1[..], b"ok");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn one_family_is_enough() {
    let origin = echo().await;
    let server = NameServer::start(|message, _| {
        add(message, [127, 0, 0, 1].into(), 60);
        message.queries[0].query_type == RecordType::A
    })
    .await;
    let world = named(server.address, origin.address.port(), |config| {
        config.dns.attempt = Duration::from_millis(50);
    });
    assert_eq!(&world.get("/").await.expect("an answer").1[..], b"ok");
    world.assert_quiet();
    origin.done().await;
}

#[tokio::test]
async fn s27_a_burst_on_a_cold_client_asks_and_dials_for_one() {
    let origin = Origin::play(|mut peer, _| async move {
        while peer.head().await.is_some() {
            tokio::time::sleep(Duration::from_millis(300)).await;
            peer.answer("ok").await;
        }
    })
    .await;
    let server = NameServer::with(&[[127, 0, 0, 1]], 0).await;
    let world = Arc::new(named(server.address, origin.address.port(), |_| {}));
    let mut requests = JoinSet::new();
    for _ in 0..6 {
        let world = Arc::clone(&world);
        requests.spawn(async move { world.get("/").await.expect("an answer") });
    }
    let mut most = 0;
    while !requests.is_empty() {
        most = most.max(world.pools.snapshot().connecting_connections);
        if let Ok(Some(request)) = tokio::time::timeout(Duration::from_millis(1), requests.join_next()).await
        {
            request.expect("an answer");
        }
    }
    assert!(most <= 1, "one dial at a time: {most}");
    assert_eq!(server.asked(), 2 * origin.accepted(), "each dial asks for itself");
    assert!(origin.accepted() <= 6);
    world.assert_quiet();
    origin.done().await;
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("the process's threads").count()
}

#[tokio::test]
async fn s38_a_resolver_that_never_answers_costs_no_thread_and_no_extra_time() {
    let silent = NameServer::start(|_, _| false).await;
    let mut config = HttpProviderConfig::new("orders", 1);
    for slot in 0..8 {
        config.origins.push(OriginConfig::new(format!("http://api-{slot}.example.org")));
    }
    config.dns.servers = vec![silent.address];
    let world = Arc::new(World::of(config, PoolLimits::default()));
    // Other tests of this process run in threads of their own, so growth is what is looked at, with room for those.
    let before = threads();
    let mut requests = JoinSet::new();
    for number in 0..200_u16 {
        let world = Arc::clone(&world);
        requests.spawn(async move {
            let session = world.session(Duration::from_millis(500));
            let mut request = latent_adapters::http::HttpRequest::get("/");
            request.origin = latent_capabilities::broker::pools::OriginSlot::new(number % 8);
            let started = Instant::now();
            let outcome = world.provider.open(&session, request, http_body_util::Empty::new()).await;
            (outcome.expect_err("no answer"), started.elapsed())
        });
    }
    tokio::time::sleep(Duration::from_millis(250)).await;
    let during = threads();
    while let Some(request) = in_time(requests.join_next()).await {
        let (error, took) = request.expect("no panic");
        assert!(took < Duration::from_millis(1500), "{took:?} {error:?}");
        assert!(matches!(error.gateway_status(), 429 | 503 | 504), "{error:?}");
    }
    assert!(during <= before + 8, "{before} {during}");
    world.assert_quiet();
}
