//! A node that is told to stop finishes what it has accepted.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::carry::config;
use super::support::client::{Client, bearer};
use super::support::node::Node;
use super::support::origin::Origin;
use super::support::wait_until;

#[test]
fn no_accepted_request_is_lost_when_a_loaded_node_stops() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let address = node.address;
    let (told, sent, answered) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let ended = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..16)
            .map(|number| {
                let (told, sent, answered) = (&told, &sent, &answered);
                scope.spawn(move || {
                    let head = format!(
                        "GET /http/local/slow/{} HTTP/1.1\r\nhost: node\r\n{}\r\n",
                        20 + number,
                        bearer("token-of-alice")
                    );
                    let mut client = Client::connect(address);
                    loop {
                        let before = !told.load(Ordering::SeqCst);
                        if client.send(&head).is_err() {
                            assert!(!before, "a connection broke before the node was told to stop");
                            return;
                        }
                        sent.fetch_add(1, Ordering::SeqCst);
                        match client.answer() {
                            Ok(answer) => {
                                assert!(answer.status == 200 && answer.complete, "{answer:?}");
                                answered.fetch_add(1, Ordering::SeqCst);
                                if answer.header("connection") == Some("close") {
                                    return;
                                }
                            }
                            Err(error) => {
                                assert!(
                                    !before,
                                    "a request that was sent before the signal was lost: {error}"
                                );
                                return;
                            }
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        told.store(true, Ordering::SeqCst);
        let ended = node.stop();
        for worker in workers {
            worker.join().expect("no request was lost");
        }
        ended
    });
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.printed.ends_with("stopped; left: nothing"), "{}", ended.printed);
    assert!(answered.into_inner() >= 16 * 3 && sent.into_inner() >= 16 * 3);
}

#[test]
fn health_says_so_and_new_connections_are_refused_while_the_last_request_finishes() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, ""), &[]);
    let mut slow = node.client();
    slow.send(format!(
        "GET /http/local/slow/1000 HTTP/1.1\r\nhost: node\r\n{}\r\n",
        bearer("token-of-alice")
    ))
    .expect("the node reads");
    wait_until("it runs", || node.snapshot()["pools"]["running_requests"] == 1);
    node.signal(Signal::TERM);
    wait_until("the node stops listening", || Client::try_connect(node.address).is_err());
    let answer = slow.answer().expect("an answer");
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("slept", Some("close")));
    let ended = node.wait();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn what_outlasts_the_grace_time_is_cut_and_counted() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "grace = \"300 ms\"\nclose = \"2 s\""), &[]);
    let mut stuck = node.client();
    stuck
        .send(format!("GET /http/local/stall HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice")))
        .expect("the node reads");
    wait_until("it runs", || node.snapshot()["pools"]["running_requests"] == 1);
    let begun = Instant::now();
    let ended = node.stop();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(stuck.answer().is_err(), "the request was cut");
    assert!(ended.status.success(), "what was cut gave back what it held: {}", ended.printed);
    assert!(ended.log.contains("cutting what is left"), "{}", ended.log);
    wait_until("the origin is let go", || origin.open() == 0);
}

#[test]
fn a_second_signal_ends_the_grace_time() {
    let origin = Origin::start();
    let node = Node::serve(&config(&origin, "grace = \"10 min\""), &[]);
    let mut stuck = node.client();
    stuck
        .send(format!("GET /http/local/stall HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice")))
        .expect("the node reads");
    wait_until("it runs", || node.snapshot()["pools"]["running_requests"] == 1);
    node.signal(Signal::INT);
    wait_until("the node drains", || Client::try_connect(node.address).is_err());
    node.signal(Signal::INT);
    assert!(node.wait().status.success());
    assert!(stuck.is_closed());
}
