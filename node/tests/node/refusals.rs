//! Everything that is not carried gets its own status, and a body that says why.

use std::io::Write;
use std::time::{Duration, Instant};

use super::support::client::{Answer, bearer};
use super::support::node::Node;
use super::support::origin::Origin;

/// Two tenants: `alice` may call everything, `bob` only `other`. The provider `gone` has nobody listening.
fn config(origin: &Origin, limits: &str) -> String {
    let gone = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        socket.local_addr().expect("a bound socket has an address")
    };
    format!(
        "{limits}
        [[tenants]]
        name = \"alice\"
        token = \"token-of-alice\"
        [[tenants]]
        name = \"bob\"
        token = \"token-of-bob\"
        providers = [\"other\"]
        limits.request_bytes = 1000
        limits.response_bytes = 1000
        [[providers]]
        name = \"local\"
        [[providers.origins]]
        url = \"http://{at}\"
        allow_loopback = true
        [[providers]]
        name = \"other\"
        [[providers.origins]]
        url = \"http://{at}\"
        allow_loopback = true
        [[providers]]
        name = \"gone\"
        [[providers.origins]]
        url = \"http://{gone}\"
        allow_loopback = true
        ",
        at = origin.address,
    )
}

/// Checks status, code and effect, and that the body has every field it promises.
fn is(answer: &Answer, status: u16, code: &str, effect: &str) -> serde_json::Value {
    let body = answer.json();
    assert_eq!(
        (answer.status, body["error"].as_str(), body["effect"].as_str()),
        (status, Some(code), Some(effect)),
        "{body}"
    );
    for field in ["dimension", "scope", "retry_after_ms", "message"] {
        assert!(body.get(field).is_some(), "{field} is missing in {body}");
    }
    assert_eq!(answer.header("content-type"), Some("application/json"));
    body
}

#[test]
fn who_where_and_what_are_checked_before_anything_is_sent() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let alice = bearer("token-of-alice");

    for wrong in [
        "",
        "authorization: Bearer nonsense\r\n",
        "authorization: Basic token-of-alice\r\n",
        "authorization: Bearer\r\n",
    ] {
        let answer = node.get("/http/local/ok", wrong);
        is(&answer, 401, "unauthenticated", "not-sent");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    is(&node.get("/http/nowhere/ok", &alice), 404, "unknown-provider", "not-sent");
    is(&node.get("/http/local@7/ok", &alice), 404, "unknown-provider", "not-sent");
    is(&node.get("/nonsense", &alice), 404, "unknown-path", "not-sent");
    is(&node.get_as("token-of-bob", "/http/local/ok"), 403, "provider-not-granted", "not-sent");
    is(&node.get("/http/local@+0/ok", &alice), 404, "unknown-path", "not-sent");
    for wrong in ["0", "soon", "-1", "+5"] {
        let answer = node.get("/http/local/ok", &format!("{alice}x-deadline-ms: {wrong}\r\n"));
        is(&answer, 400, "invalid-deadline", "not-sent");
    }
    let mut client = node.client();
    client.send("POST /healthz HTTP/1.1\r\nhost: node\r\ncontent-length: 0\r\n\r\n").expect("the node reads");
    is(&client.answer().expect("an answer"), 405, "method-not-allowed", "not-sent");
    client
        .send(format!("TRACE /http/local/ok HTTP/1.1\r\nhost: node\r\n{alice}\r\n"))
        .expect("the node reads");
    is(&client.answer().expect("an answer"), 501, "method-not-carried", "not-sent");

    assert_eq!(origin.accepted(), 0, "nothing of this may reach an origin");
    assert_eq!(node.get_as("token-of-bob", "/http/other/ok").text(), "fine");
    assert_eq!(node.get("/http/local/ok", "authorization: bearer token-of-alice\r\n").text(), "fine");
    node.settle();
}

#[test]
fn what_is_too_large_is_refused() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let bob = bearer("token-of-bob");

    let mut client = node.client();
    client
        .send(format!("POST /http/other/echo HTTP/1.1\r\nhost: node\r\n{bob}content-length: 1001\r\n\r\n"))
        .expect("the node reads");
    let body = is(&client.answer().expect("an answer"), 413, "request-too-large", "not-sent");
    assert_eq!(body["dimension"], "broker.stream_input_bytes");
    assert_eq!(origin.accepted(), 0);

    let mut client = node.client();
    let head =
        format!("POST /http/other/sink HTTP/1.1\r\nhost: node\r\n{bob}transfer-encoding: chunked\r\n\r\n");
    client.send(format!("{head}3e8\r\n{}\r\n", "x".repeat(1_000))).expect("the node reads");
    client.send("1\r\nx\r\n").expect("the node reads");
    let answer = client.answer().expect("an answer");
    assert_eq!((answer.status, answer.json()["error"].as_str()), (413, Some("request-too-large")));

    let long = format!("/http/other/ok/{}", "x".repeat(8 << 10));
    is(&node.get_as("token-of-bob", &long), 414, "http-request-invalid", "not-sent");

    let body = node.get_as("token-of-bob", "/http/other/bytes/1000");
    assert_eq!((body.status, body.body.len()), (200, 1_000));
    is(&node.get_as("token-of-bob", "/http/other/bytes/1001"), 502, "response-too-large", "sent");
    let cut = node.get_as("token-of-bob", "/http/other/chunks/1001");
    assert_eq!((cut.status, cut.complete), (200, false), "its length was not known beforehand");

    let mut client = node.client();
    client
        .send(format!("GET / HTTP/1.1\r\nhost: node\r\nx-long: {}\r\n\r\n", "x".repeat(20_000)))
        .expect("it is sent");
    is(&client.answer().expect("an answer"), 431, "head-too-large", "not-sent");
    let mut client = node.client();
    client.send("this is not HTTP\r\n\r\n").expect("it is sent");
    is(&client.answer().expect("an answer"), 400, "malformed-head", "not-sent");
    // What an origin answers stays as it is, and so does what was answered before a head that cannot be read.
    let mut client = node.client();
    let head = format!("GET /http/other/ok HTTP/1.1\r\nhost: node\r\n{bob}\r\n");
    client.send(format!("{head}this is not HTTP\r\n\r\n")).expect("it is sent");
    assert_eq!(client.answer().expect("an answer").status, 200);
    assert_eq!(client.answer().expect("an answer").status, 400);
    node.settle();
}

#[test]
fn what_has_no_room_is_told_which_room_and_when_to_come_back() {
    let origin = Origin::start();
    let limits = "limits.pools.requests_per_tenant = 1\nlimits.pools.running_per_tenant = 1\n";
    let node = Node::serve(&config(&origin, limits), &[]);
    let mut first = node.client();
    let head =
        format!("GET /http/local/slow/1500 HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice"));
    first.send(head).expect("the node reads");
    super::support::wait_until("the first request runs", || {
        node.snapshot()["pools"]["running_requests"] == 1
    });

    let answer = node.get_as("token-of-alice", "/http/local/ok");
    let body = is(&answer, 429, "full", "not-sent");
    assert_eq!(body["dimension"], "pools.requests_per_tenant");
    assert_eq!(body["scope"], "tenant");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(
        node.get_as("token-of-bob", "/http/other/ok").text(),
        "fine",
        "another tenant has its own room"
    );

    assert_eq!(first.answer().expect("an answer").text(), "slept");
    assert_eq!(node.get_as("token-of-alice", "/http/local/ok").text(), "fine");
    node.settle();
}

#[test]
fn time_that_is_over_is_told_as_whose() {
    let origin = Origin::start();
    let limits = "limits.pools.running = 1\nlimits.pools.running_per_tenant = 1\nlimits.pools.running_per_provider = 1\n\
                  limits.pools.queue_age = \"200 ms\"\nlimits.io.queue_wait = \"200 ms\"";
    let node = Node::serve(&config(&origin, limits), &[]);
    let alice = bearer("token-of-alice");

    let begun = Instant::now();
    let answer = node.get("/http/local/stall", &format!("{alice}x-deadline-ms: 150\r\n"));
    let body = answer.json();
    assert_eq!(answer.status, 504, "{body}");
    assert!(body["error"].as_str().is_some_and(|code| code.starts_with("deadline-")), "{body}");
    assert!(begun.elapsed() < Duration::from_secs(10));

    let mut holder = node.client();
    holder
        .send(format!("GET /http/local/slow/1000 HTTP/1.1\r\nhost: node\r\n{alice}\r\n"))
        .expect("the node reads");
    super::support::wait_until("the holder runs", || node.snapshot()["pools"]["running_requests"] == 1);
    let answer = node.get_as("token-of-alice", "/http/local/ok");
    is(&answer, 503, "deadline-queue", "not-sent");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(holder.answer().expect("an answer").text(), "slept");
    node.settle();
}

#[test]
fn a_slow_upload_to_a_waiting_origin_is_the_clients_fault() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let mut slow = node.client();
    let head = format!(
        "POST /http/local/sink HTTP/1.1\r\nhost: node\r\n{}x-deadline-ms: 300\r\ncontent-length: 10\r\n\r\nabc",
        bearer("token-of-alice")
    );
    slow.send(head).expect("the node reads");
    let answer = slow.answer().expect("an answer");
    assert_eq!(answer.status, 408, "{}", answer.text());
    node.settle();
}

#[test]
fn broken_origins_are_told_from_absent_ones() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    is(&node.get_as("token-of-alice", "/http/local/garbage"), 502, "http-response-invalid", "uncertain");

    let answer = node.get_as("token-of-alice", "/http/gone/ok");
    is(&answer, 502, "http-connect-failed", "not-sent");
    let answer = node.get_as("token-of-alice", "/http/gone/ok");
    let body = is(&answer, 503, "backoff", "not-sent");
    assert!(body["retry_after_ms"].as_u64().is_some_and(|millis| millis <= 200), "{body}");
    assert_eq!(answer.header("retry-after"), Some("1"));

    let cut = node.get_as("token-of-alice", "/http/local/cut");
    assert_eq!((cut.status, cut.complete, cut.text().as_str()), (200, false, "0123456789"));
    assert_eq!(node.get_as("token-of-alice", "/http/local/ok").text(), "fine");
    node.settle();
}

#[test]
fn a_head_that_takes_too_long_ends_its_connection() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "ingress.head_timeout = \"200 ms\""), &[]);
    let mut dripping = node.client();
    let begun = Instant::now();
    for byte in b"GET /http/local/ok HTTP/1.1\r\nhost: n" {
        if dripping.stream.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let answer = dripping.answer().expect("an answer");
    assert_eq!((answer.status, answer.json()["error"].as_str()), (408, Some("head-timeout")));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(dripping.is_closed());

    // One that says nothing at all is closed without a word.
    let mut silent = node.client();
    assert!(silent.is_closed());
    node.settle();
}
