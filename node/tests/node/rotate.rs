//! A provider is replaced while requests wait for it and run on it, and no caller notices.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::carry::config;
use super::support::client::{Client, bearer};
use super::support::node::{ADMIN, ADMIN_FILE, Folder, Node, OPERATOR};
use super::support::origin::{Origin, header};
use super::support::wait_until;

/// A provider whose every request carries what the file `key` holds, with so few running places that others wait.
fn configuration(origin: &Origin) -> String {
    let limits = "limits.pools.running = 4\nlimits.pools.running_per_tenant = 4\n\
                  limits.pools.running_per_provider = 4\n";
    let credential = "[providers.credential]\nheader = \"x-api-key\"\nfile = \"key\"\n";
    format!("{}{credential}{ADMIN}", config(origin, limits))
}

fn rotate(node: &Node) -> (u64, u64) {
    let answer = node.operate("POST", "/admin/providers/local/rotate");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    let epoch = |name| body[name].as_u64().unwrap_or_else(|| panic!("{name} in {body}"));
    (epoch("old_epoch"), epoch("new_epoch"))
}

/// Waits until nothing is left of any replaced epoch.
fn settled(node: &Node) {
    node.settle();
    wait_until("old epochs are gone", || {
        let snapshot = node.operate("GET", "/admin/snapshot").json();
        let pools = &snapshot["pools"];
        let epochs = snapshot["epochs"].as_array().expect("a list");
        snapshot["draining"] == serde_json::json!({"epochs": 0, "requests": 0, "connections": 0})
            && (epochs.len() == 1 && epochs[0]["is_current"] == true)
            && pools["retained_configurations"] == pools["configurations"]
            && pools["retired_connections"] == 0
    });
}

/// Requests without a pause, each with a body of its own, until told; each must be answered whole.
fn load(address: SocketAddr, stop: &AtomicBool, done: &AtomicUsize) {
    let mut client = Client::connect(address);
    let mut number = 0_u32;
    while !stop.load(Ordering::SeqCst) {
        let body = format!("body {number}");
        number += 1;
        let head = format!(
            "POST /http/local/echo HTTP/1.1\r\nhost: node\r\n{}content-length: {}\r\n\r\n",
            bearer("token-of-alice"),
            body.len()
        );
        client.send(head + &body).expect("the node reads");
        let answer = client.answer().expect("an answer");
        assert_eq!((answer.status, answer.text()), (200, body), "request {number}");
        done.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn twenty_rotations_under_load_fail_no_request_and_leave_nothing_of_the_old_epochs() {
    const ROTATIONS: u64 = 20;
    let origin = Origin::start();
    let node = Node::serve(&configuration(&origin), &[ADMIN_FILE, ("key", "key-1")]);
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let waiting = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..16).map(|_| scope.spawn(|| load(node.address, &stop, &done))).collect();
        wait_until("the load runs", || done.load(Ordering::SeqCst) > 100);
        let mut waiting = 0;
        for number in 1..=ROTATIONS {
            waiting += usize::from(node.snapshot()["pools"]["pending_requests"].as_u64() > Some(0));
            node.write("key", &format!("key-{}", number + 1));
            assert_eq!(rotate(&node), (number, number + 1));
            if number % 2 == 0 {
                // Every other one follows at once: nobody is refused twice.
                let before = done.load(Ordering::SeqCst);
                wait_until("the load goes on", || done.load(Ordering::SeqCst) >= before + 50);
            }
        }
        stop.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.join().expect("every request was answered");
        }
        waiting
    });
    assert!(waiting > ROTATIONS as usize / 2, "requests waited at {waiting} rotations only");
    settled(&node);
    assert_eq!(
        node.operate("GET", "/admin/snapshot").json()["providers"][0]["installed_epoch"],
        ROTATIONS + 1
    );
    // Each request was sent once, and with the credential of an epoch that was current while it ran.
    let heads = origin.heads();
    assert_eq!(heads.len(), done.into_inner(), "no request was sent twice");
    let last = format!("key-{}", ROTATIONS + 1);
    let keys: Vec<&str> = heads.iter().filter_map(|head| header(head, "x-api-key")).collect();
    assert_eq!(keys.len(), heads.len());
    for number in 1..=ROTATIONS + 1 {
        assert!(keys.contains(&format!("key-{number}").as_str()), "epoch {number} was never used");
    }
    assert_eq!(keys.last(), Some(&last.as_str()));
    let ended = node.stop();
    assert!(ended.status.success() && ended.printed.ends_with("stopped; left: nothing"), "{}", ended.printed);
    assert!(!ended.log.contains("key-2"), "a credential was logged");
}

#[test]
fn what_runs_ends_on_the_old_epoch_and_what_waits_starts_on_the_new_one() {
    let origin = Origin::start();
    let one = configuration(&origin).replace("= 4\n", "= 1\n");
    let node = Node::serve(&one, &[ADMIN_FILE, ("key", "key-1")]);
    let head =
        |path| format!("GET /http/local{path} HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice"));
    let mut runs = node.client();
    runs.send(head("/slow/1500")).expect("the node reads");
    wait_until("it runs", || origin.heads().len() == 1);
    let mut waits = node.client();
    waits.send(head("/ok")).expect("the node reads");
    wait_until("it waits", || node.snapshot()["pools"]["pending_requests"] == 1);
    node.write("key", "key-2");
    assert_eq!(rotate(&node), (1, 2));
    // The first still has the only running place; the second waits for it under the new epoch.
    let pools = node.snapshot()["pools"].clone();
    assert_eq!(
        (pools["configurations"].clone(), pools["retained_configurations"].clone()),
        (1.into(), 2.into())
    );
    assert_eq!((pools["running_requests"].clone(), pools["pending_requests"].clone()), (1.into(), 1.into()));
    let full = node.operate("GET", "/admin/snapshot").json();
    let epochs = full["epochs"].as_array().expect("a list").iter();
    let epochs: Vec<String> = epochs
        .map(|each| {
            ["epoch", "is_current", "running_requests", "pending_requests", "connections"]
                .map(|field| each[field].to_string())
                .join(" ")
        })
        .collect();
    assert_eq!(epochs, ["1 false 1 0 1", "2 true 0 1 0"]);
    assert_eq!(full["draining"], serde_json::json!({"epochs": 1, "requests": 1, "connections": 1}));
    assert_eq!(runs.answer().expect("an answer").text(), "slept");
    assert_eq!(waits.answer().expect("an answer").text(), "fine");
    settled(&node);
    let keys: Vec<String> = origin
        .heads()
        .iter()
        .map(|head| format!("{} {:?}", head.split(' ').nth(1).unwrap_or(""), header(head, "x-api-key")))
        .collect();
    assert_eq!(keys, ["/slow/1500 Some(\"key-1\")", "/ok Some(\"key-2\")"]);
    assert_eq!(origin.accepted(), 2, "the socket of the old epoch was not used again");
}

#[test]
fn a_rotation_that_is_refused_leaves_the_old_epoch_as_it_was() {
    let origin = Origin::start();
    let good = configuration(&origin);
    let node = Node::serve(&good, &[ADMIN_FILE, ("key", "key-1")]);
    let refused = |status: u16, code: &str, text: &str| {
        let answer = node.operate("POST", "/admin/providers/local/rotate");
        assert_eq!(answer.status, status, "{}", answer.text());
        let body = answer.json();
        assert_eq!(body["error"], code, "{body}");
        assert!(body["message"].as_str().unwrap_or("").contains(text), "{body}");
        let carried = node.get_as("token-of-alice", "/http/local/ok");
        assert_eq!((carried.status, carried.text().as_str()), (200, "fine"));
    };
    node.write("node.toml", &format!("lisen = 1\n{good}"));
    refused(422, "configuration-unusable", "lisen: unknown key; did you mean listen?");
    node.write("node.toml", &good.replace("name = \"local\"", "name = \"other\""));
    refused(422, "configuration-unusable", "no provider local");
    // What the running node does not allow, though the file does.
    let larger = "limits.broker.stream_input_bytes = \"64 MiB\"\n";
    node.write("node.toml", &format!("{larger}{good}"));
    let answer = node.operate("POST", "/admin/providers/local/rotate");
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert_eq!(answer.json()["dimension"], "broker.stream_input_bytes");
    node.write("node.toml", &good);
    node.write("key", "");
    refused(422, "configuration-unusable", "the file is empty");
    node.write("key", "key-2");
    assert_eq!(rotate(&node), (1, 2));
    // A larger number of the file is taken, a smaller one counts on.
    node.write("node.toml", &good.replace("name = \"local\"", "name = \"local\"\nepoch = 40"));
    assert_eq!(rotate(&node), (2, 40));
    assert_eq!(rotate(&node), (40, 41));
    let keys: Vec<String> =
        origin.heads().iter().filter_map(|head| header(head, "x-api-key").map(str::to_owned)).collect();
    assert_eq!(keys, ["key-1"; 3]);
}

#[test]
fn without_room_for_both_epochs_a_rotation_names_what_is_full() {
    let origin = Origin::start();
    for (limit, dimension) in [
        ("limits.pools.configurations = 1\n", "pools.configurations"),
        ("limits.broker.plans = 1\n", "broker.plans"),
        ("limits.pools.clients_per_provider = 1\n", "pools.clients_per_provider"),
        ("limits.pools.clients = 1\nlimits.pools.clients_per_provider = 1\n", "pools.clients"),
    ] {
        let node = Node::serve(&format!("{limit}{}", configuration(&origin)), &[ADMIN_FILE, ("key", "k")]);
        for _ in 0..2 {
            let answer = node.operate("POST", "/admin/providers/local/rotate");
            assert_eq!(answer.status, 409, "{limit}{}", answer.text());
            assert_eq!(answer.json()["dimension"], dimension, "{limit}");
            assert_eq!(node.get_as("token-of-alice", "/http/local/ok").status, 200, "{limit}");
        }
        assert!(node.stop().status.success());
    }
}

#[test]
fn one_rotation_runs_at_a_time() {
    let origin = Origin::start();
    let node = Node::serve(&configuration(&origin), &[ADMIN_FILE, ("key", "key-1")]);
    // A credential that comes through a pipe holds the first rotation where it reads.
    let folder = Folder::new();
    let pipe = folder.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let piped = configuration(&origin).replace("\"key\"", &format!("{:?}", pipe.display().to_string()));
    node.write("node.toml", &piped);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| rotate(&node));
        let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).expect("the rotation reads");
        let second = node.operate("POST", "/admin/providers/local/rotate");
        assert_eq!(second.status, 409, "{}", second.text());
        assert_eq!(second.json()["error"], "rotation-under-way");
        writer.write_all(b"key-2").expect("the rotation reads");
        drop(writer);
        assert_eq!(first.join().expect("it ends"), (1, 2));
    });
    node.write("node.toml", &configuration(&origin));
    assert_eq!(rotate(&node), (2, 3));
}

#[test]
fn a_deadline_ends_even_what_was_admitted_again() {
    let origin = Origin::start();
    let one = configuration(&origin).replace("= 4\n", "= 1\n");
    let node = Node::serve(&one, &[ADMIN_FILE, ("key", "key-1")]);
    let mut runs = node.client();
    runs.send(format!("GET /http/local/stall HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice")))
        .expect("the node reads");
    wait_until("it runs", || origin.heads().len() == 1);
    let begun = Instant::now();
    let mut waits = node.client();
    waits
        .send(format!(
            "GET /http/local/ok HTTP/1.1\r\nhost: node\r\nx-deadline-ms: 1000\r\n{}\r\n",
            bearer("token-of-alice")
        ))
        .expect("the node reads");
    wait_until("it waits", || node.snapshot()["pools"]["pending_requests"] == 1);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(rotate(&node), (1, 2));
    let answer = waits.answer().expect("an answer");
    assert_eq!(answer.status, 504, "{}", answer.text());
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(1_300), "its deadline began anew: {took:?}");
    assert_eq!(OPERATOR, ADMIN_FILE.1);
}
