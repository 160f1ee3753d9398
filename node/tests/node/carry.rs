//! What is carried arrives unchanged, both ways.

use std::net::Shutdown;

use super::support::client::bearer;
use super::support::node::Node;
use super::support::origin::{Origin, header};

pub(crate) fn config(origin: &Origin, extra: &str) -> String {
    format!(
        "{extra}
        [[tenants]]
        name = \"alice\"
        token = \"token-of-alice\"
        [[providers]]
        name = \"local\"
        [[providers.origins]]
        url = \"http://{at}\"
        allow_loopback = true
        ",
        at = origin.address,
    )
}

#[test]
fn paths_queries_and_headers_travel_and_tokens_do_not() {
    let origin = Origin::start();
    let credential = "[providers.credential]\nheader = \"x-api-key\"\nfile = \"key\"\n";
    let node =
        Node::serve(&format!("{}{credential}", config(&origin, "")), &[("key", "key-for-the-origin\n")]);
    let headers = format!(
        "{}x-own: 1\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\nte: trailers\r\nx-api-key: forged\r\n\
         x-deadline-ms: 5000\r\n",
        bearer("token-of-alice")
    );
    let answer = node.client().get("/http/local/ok/a%2Fb?x=1&y=%20", &headers).expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
    let heads = origin.heads();
    let [head] = heads.as_slice() else { panic!("{heads:?}") };
    assert!(head.starts_with("GET /ok/a%2Fb?x=1&y=%20 HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(head, "host"), Some(origin.address.to_string().as_str()));
    assert_eq!(header(head, "x-own"), Some("1"));
    assert_eq!(header(head, "x-api-key"), Some("key-for-the-origin"));
    for gone in ["authorization", "x-hop", "te", "x-deadline-ms"] {
        assert_eq!(header(head, gone), None, "{head}");
    }
    node.settle();
}

#[test]
fn bodies_of_both_directions_are_whole() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let alice = bearer("token-of-alice");
    let answer = node.get_as("token-of-alice", "/http/local/bytes/5000000");
    assert!(
        answer.complete && answer.body.len() == 5_000_000 && answer.body.iter().all(|byte| *byte == b'x')
    );

    let body: Vec<u8> =
        (0..3_000_000_u32).map(|number| number.to_le_bytes()[(number % 3) as usize]).collect();
    let mut client = node.client();
    let mut sender = client.stream.try_clone().expect("a second handle");
    let head = format!(
        "POST /http/local/echo HTTP/1.1\r\nhost: node\r\n{alice}content-length: {}\r\n\r\n",
        body.len()
    );
    let sent = body.clone();
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        sender.write_all(head.as_bytes()).and_then(|()| sender.write_all(&sent))
    });
    let answer = client.answer().expect("an answer");
    sending.join().expect("the sender does not panic").expect("the node reads it all");
    assert!(answer.complete && answer.body == body);

    let answer = node.get_as("token-of-alice", "/http/local/redirect");
    assert_eq!(
        (answer.status, answer.header("location")),
        (302, Some("http://192.0.2.1/")),
        "handed back, not followed"
    );
    node.settle();
}

#[test]
fn connections_are_used_again_on_both_sides() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let mut client = node.client();
    for _ in 0..200 {
        let answer = client.get("/http/local/ok", &bearer("token-of-alice")).expect("an answer");
        assert_eq!(answer.text(), "fine");
    }
    assert!(origin.accepted() <= 2, "{} sockets for 200 requests in a row", origin.accepted());
    node.settle();
}

/// Case S60.
#[test]
fn a_client_that_has_finished_sending_still_gets_its_answer() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let mut client = node.client();
    let head = format!("GET /http/local/slow/200 HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice"));
    client.send(head).expect("the node reads");
    client.stream.shutdown(Shutdown::Write).expect("the socket is open");
    assert_eq!(client.answer().expect("an answer").text(), "slept");

    // Half-closed before the request is complete: a clean end, and nothing held.
    let mut client = node.client();
    let head = format!(
        "POST /http/local/sink HTTP/1.1\r\nhost: node\r\n{}content-length: 10\r\n\r\nabc",
        bearer("token-of-alice")
    );
    client.send(head).expect("the node reads");
    client.stream.shutdown(Shutdown::Write).expect("the socket is open");
    if let Ok(answer) = client.answer() {
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    node.settle();
}

#[test]
fn a_status_listener_keeps_counts_off_the_public_address() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "status = \"127.0.0.1:0\""), &[]);
    assert_eq!(node.get("/snapshot", "").status, 404);
    assert_eq!(node.get("/", "").status, 404);
    assert_eq!(node.get("/healthz", "").status, 200);
    let printed = node.printed_when(|text| text.contains("status page on http://"));
    let (_, at) = printed.split_once("status page on http://").expect("it says where");
    let at = at.lines().next().expect("an address").trim_end_matches('/').parse().expect("an address");
    let mut client = super::support::client::Client::connect(at);
    assert!(client.get("/snapshot", "").expect("an answer").json()["io"].is_object());
    assert_eq!(client.get("/http/local/ok", &bearer("token-of-alice")).expect("an answer").status, 404);
    assert_eq!(origin.accepted(), 0);
}
