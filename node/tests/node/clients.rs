//! Clients that vanish, stall or say nothing hold nothing.

use std::time::{Duration, Instant};

use super::carry::config;
use super::support::client::{Client, bearer};
use super::support::node::Node;
use super::support::origin::Origin;
use super::support::wait_until;

#[test]
fn a_client_that_vanishes_in_mid_download_stops_the_origin() {
    let origin = Origin::start();
    let limits = "limits.broker.stream_output_bytes = \"63 MiB\"";
    let node = Node::serve(&config(&origin, limits), &[]);
    for _ in 0..8 {
        let mut client = node.client();
        let head =
            format!("GET /http/local/flood HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice"));
        client.send(head).expect("the node reads");
        let mut some = [0; 100_000];
        std::io::Read::read_exact(&mut client.stream, &mut some).expect("bytes arrive");
    }
    node.settle();
    wait_until("the origin is let go", || origin.open() == 0);
}

/// Case S53.
#[test]
fn a_client_that_stalls_holds_a_window_and_no_more() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "limits.broker.stream_output_bytes = \"63 MiB\""), &[]);
    let mut client = node.client();
    let head = format!(
        "GET /http/local/flood HTTP/1.1\r\nhost: node\r\n{}x-deadline-ms: 60000\r\n\r\n",
        bearer("token-of-alice")
    );
    client.send(head).expect("the node reads");
    let (mut before, mut same) = (0, 0);
    wait_until("the origin is stopped by the stalled client", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = origin.flooded();
        same = if now == before { same + 1 } else { 0 };
        before = now;
        now > 0 && same >= 5
    });
    assert!(before < 32 << 20, "{before} bytes lie in buffers");
    let io = node.snapshot()["io"].clone();
    let held = io["staged_bytes"].as_u64().unwrap_or(0) + io["result_bytes"].as_u64().unwrap_or(0);
    assert!((1..=512 << 10).contains(&held), "a window and the buffers of one call: {io}");
    drop(client);
    node.settle();
}

#[test]
fn clients_that_vanish_while_they_wait_or_send_hold_nothing() {
    let origin = Origin::start();
    let limits = "ingress.early_abort = true\nlimits.pools.running = 2\nlimits.pools.running_per_tenant = 2\n\
                  limits.pools.running_per_provider = 2";
    let node = Node::serve(&config(&origin, limits), &[]);
    let alice = bearer("token-of-alice");
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = node.client();
        client
            .send(format!("GET /http/local/stall HTTP/1.1\r\nhost: node\r\n{alice}\r\n"))
            .expect("the node reads");
        clients.push(client);
    }
    for _ in 0..5 {
        let mut client = node.client();
        let head = format!(
            "POST /http/local/sink HTTP/1.1\r\nhost: node\r\n{alice}content-length: 1000000\r\n\r\nabc"
        );
        client.send(head).expect("the node reads");
        clients.push(client);
    }
    wait_until("they wait", || node.snapshot()["broker"]["sessions"].as_u64() == Some(15));
    drop(clients);
    node.settle();
    // One of them may have gone while its connection was being made, which pauses dials for a moment.
    wait_until("others are served", || node.get_as("token-of-alice", "/http/local/ok").text() == "fine");
    node.settle();
}

/// Case S59.
#[test]
fn silent_connections_do_not_keep_a_node_from_stopping() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "grace = \"5 s\""), &[]);
    let mut used = node.client();
    assert_eq!(used.get("/http/local/ok", &bearer("token-of-alice")).expect("an answer").status, 200);
    let mut silent: Vec<_> = (0..100).map(|_| node.client()).collect();
    let mut half = node.client();
    half.send("GET /http/local/ok HTT").expect("the node reads");
    wait_until("all are accepted", || node.snapshot()["node"]["connections"].as_u64() >= Some(102));
    let begun = Instant::now();
    node.signal(rustix::process::Signal::TERM);
    wait_until("the node stops listening", || Client::try_connect(node.address).is_err());
    // A half-read head gets its chance.
    half.send(format!("P/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice"))).expect("the node reads");
    let answer = half.answer().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{answer:?}");
    assert!(used.is_closed() && silent.iter_mut().all(|client| client.is_closed()));
    let ended = node.wait();
    assert!(ended.status.success(), "{ended:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?} for connections that say nothing",
        begun.elapsed()
    );
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "ingress.connections = 2"), &[]);
    let alice = bearer("token-of-alice");
    let (mut first, mut second, mut third) = (node.client(), node.client(), node.client());
    for client in [&mut first, &mut second] {
        assert_eq!(client.get("/http/local/ok", &alice).expect("an answer").text(), "fine");
    }
    third.stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout can be set");
    let waiting = third.get("/http/local/ok", &alice).expect_err("there is no place for a third connection");
    assert_eq!(waiting.kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    third.stream.set_read_timeout(Some(super::support::PATIENCE)).expect("a timeout can be set");
    assert_eq!(third.answer().expect("the first one's place").text(), "fine");
    drop((second, third));
    node.settle();
}

#[test]
fn a_download_that_nobody_reads_ends_at_its_deadline() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "limits.broker.stream_output_bytes = \"63 MiB\""), &[]);
    let begun = Instant::now();
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let mut client = node.client();
        let head = format!(
            "GET /http/local/flood HTTP/1.1\r\nhost: node\r\n{}x-deadline-ms: 1500\r\n\r\n",
            bearer("token-of-alice")
        );
        client.send(head).expect("the node reads");
        stalled.push(client);
    }
    wait_until("the origin sends", || origin.flooded() > 0);
    // The clients are still there: it is the deadline that ends it.
    node.settle();
    assert!(begun.elapsed() >= Duration::from_millis(1_400), "{:?}", begun.elapsed());
    wait_until("the origin is let go", || origin.open() == 0);
    drop(stalled);
}

#[test]
fn answers_that_nobody_reads_free_their_connections() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "ingress.head_timeout = \"1 s\""), &[]);
    let mut deaf = Vec::new();
    for _ in 0..20 {
        let mut client = node.client();
        client.stream.set_nonblocking(true).expect("a socket");
        // As many as the node takes before it cannot write any more.
        let asks = "GET /snapshot HTTP/1.1\r\nhost: node\r\n\r\n".repeat(200);
        for _ in 0..50 {
            if client.send(&asks).is_err() {
                break;
            }
        }
        deaf.push(client);
    }
    wait_until("their connections are closed", || {
        node.snapshot()["node"]["connections"].as_u64().is_some_and(|connections| connections <= 2)
    });
    drop(deaf);
}

#[test]
fn a_client_that_resets_gives_up_its_turn_at_once() {
    let origin = Origin::start();
    let limits = "limits.pools.running = 2\nlimits.pools.running_per_tenant = 2\n\
                  limits.pools.running_per_provider = 2";
    let node = Node::serve(&config(&origin, limits), &[]);
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = node.client();
        let head =
            format!("GET /http/local/stall HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice"));
        client.send(head).expect("the node reads");
        rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).expect("a socket");
        clients.push(client);
    }
    wait_until("two run and two wait", || node.snapshot()["broker"]["sessions"].as_u64() == Some(4));
    let begun = Instant::now();
    drop(clients);
    node.settle();
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}: it was a deadline that ended it",
        begun.elapsed()
    );
    // A dial that was cancelled on the way makes the client pause, for 100 ms at first.
    wait_until("the next one is served", || node.get_as("token-of-alice", "/http/local/ok").text() == "fine");
}
