//! The listener of operators: who may, what paths mean, what is bounded.

use super::carry::config;
use super::support::client::{Answer, Client, bearer};
use super::support::node::{ADMIN, ADMIN_FILE, Node, OPERATOR, program};
use super::support::origin::Origin;
use super::support::wait_until;

fn node(origin: &Origin) -> Node {
    Node::serve(&format!("{}{ADMIN}", config(origin, "")), &[ADMIN_FILE])
}

#[test]
fn only_the_token_of_operators_opens_anything() {
    let origin = Origin::start();
    let node = node(&origin);
    let admin = node.admin();
    for headers in [String::new(), bearer("token-of-alice"), bearer("token-of-operator"), bearer("")] {
        for (method, path) in [
            ("GET", "/admin/snapshot"),
            ("GET", "/metrics"),
            ("POST", "/admin/retire"),
            ("POST", "/admin/providers/local/rotate"),
            ("GET", "/nothing"),
        ] {
            let answer = Client::connect(admin).ask(method, path, &headers).expect("an answer");
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{path}");
            assert_eq!(answer.json()["error"], "unauthenticated");
        }
    }
    // Nor does it open anything elsewhere, nor is anything of it elsewhere.
    assert_eq!(node.get_as(OPERATOR, "/http/local/ok").status, 401);
    for path in ["/admin/snapshot", "/metrics"] {
        assert_eq!(node.get_as(OPERATOR, path).status, 404, "{path}");
    }
    assert_eq!(Client::connect(admin).get("/healthz", "").expect("an answer").status, 200);
    assert!(node.stop().status.success());
}

#[test]
fn unknown_paths_and_methods_are_told_in_json() {
    let origin = Origin::start();
    let node = node(&origin);
    for (method, path, status, code) in [
        ("GET", "/admin", 404, "unknown-path"),
        ("GET", "/", 404, "unknown-path"),
        ("GET", "/http/local/ok", 404, "unknown-path"),
        ("POST", "/admin/providers/none/rotate", 404, "unknown-provider"),
        ("GET", "/admin/providers/local/rotate", 405, "method-not-allowed"),
        ("GET", "/admin/retire", 405, "method-not-allowed"),
        ("POST", "/admin/snapshot", 405, "method-not-allowed"),
        ("DELETE", "/admin/limits", 405, "method-not-allowed"),
    ] {
        let answer = node.operate(method, path);
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(code)), "{method} {path}");
        if status == 405 {
            let allow = match path.rsplit('/').next() {
                Some("snapshot") => "GET, HEAD",
                Some("limits") => "GET, HEAD, PATCH",
                _ => "POST",
            };
            assert_eq!(answer.header("allow"), Some(allow), "{path}");
        }
    }
    assert!(node.stop().status.success());
}

#[test]
fn a_body_is_bounded_and_nobody_wants_one() {
    let origin = Origin::start();
    let node = node(&origin);
    let send = |head: &str, body: &[u8]| {
        let mut client = Client::connect(node.admin());
        client
            .send(format!("POST /admin/retire HTTP/1.1\r\nhost: node\r\n{}{head}\r\n", bearer(OPERATOR)))
            .expect("the node reads");
        // It may close before it has read all.
        let _ = client.send(body);
        client.answer().expect("an answer")
    };
    assert_eq!(send("content-length: 1000000\r\n", b"").status, 413);
    let mut chunked = format!("{:x}\r\n", 80 << 10).into_bytes();
    chunked.resize(chunked.len() + (80 << 10), b'x');
    assert_eq!(send("transfer-encoding: chunked\r\n", &chunked).status, 413);
    let answer = send("content-length: 2\r\n", b"{}");
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("unexpected-body")));
    // The node still serves: nothing of that was a retirement.
    assert_eq!(node.get_as("token-of-alice", "/http/local/ok").status, 200);
    assert!(node.stop().status.success());
}

/// Requests one behind the other, a body that comes a byte at a time and one that does not come, on a few connections each:
/// operators are bounded too, and a tenant notices nothing.
#[test]
fn pipelined_and_slow_operators_are_bounded() {
    let origin = Origin::start();
    let node = Node::serve(
        &format!("ingress.head_timeout = \"500 ms\"\n{}{ADMIN}", config(&origin, "")),
        &[ADMIN_FILE],
    );
    let mut client = Client::connect(node.admin());
    let one = format!("GET /admin/limits HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer(OPERATOR));
    let lower = format!(
        "PATCH /admin/limits HTTP/1.1\r\nhost: node\r\n{}content-length: 15\r\n\r\n{{\"running\": 32}}",
        bearer(OPERATOR)
    );
    client.send(format!("{one}{lower}{one}")).expect("the node reads");
    let running: Vec<_> =
        (0..3).map(|_| client.answer().expect("an answer").json()["running"].clone()).collect();
    assert_eq!(running, [64, 32, 32]);
    // All places of operators are taken by bodies that never come.
    let head = format!(
        "PATCH /admin/limits HTTP/1.1\r\nhost: node\r\n{}content-length: 15\r\n\r\n{{",
        bearer(OPERATOR)
    );
    drop(client);
    let mut slow: Vec<Client> = (0..16).map(|_| Client::connect(node.admin())).collect();
    for client in &mut slow {
        client.send(head.clone()).expect("the node reads");
    }
    assert_eq!(node.get_as("token-of-alice", "/http/local/ok").status, 200);
    for client in &mut slow {
        let answer = client.answer().expect("an answer");
        assert_eq!((answer.status, answer.json()["error"].as_str()), (408, Some("body-timeout")));
    }
    drop(slow);
    assert_eq!(node.operate("GET", "/admin/limits").json()["running"], 32);
    let ended = node.stop();
    assert!(ended.status.success() && ended.printed.ends_with("stopped; left: nothing"), "{}", ended.printed);
}

#[test]
fn the_snapshot_and_the_metrics_tell_the_same() {
    let origin = Origin::start();
    let node = node(&origin);
    assert_eq!(node.get_as("token-of-alice", "/http/local/ok").status, 200);
    node.settle();
    let snapshot = node.operate("GET", "/admin/snapshot");
    assert_eq!(snapshot.header("content-type"), Some("application/json"));
    let snapshot = snapshot.json();
    assert_eq!(snapshot["pools"]["connections"], 1);
    assert_eq!(snapshot["providers"][0]["provider"], "local");
    assert_eq!(snapshot["providers"][0]["installed_epoch"], 1);
    assert_eq!(snapshot["epochs"][0]["connections"], 1);
    assert_eq!(snapshot["clients"][0]["idle_connections"], 1);
    assert_eq!(snapshot["tenants"][0]["tenant"], "alice");
    assert_eq!(snapshot["figures"]["grants"], 1);
    assert_eq!(node.get("/figures", "").json(), snapshot["figures"]);
    assert_eq!(snapshot["draining"], serde_json::json!({"epochs": 0, "requests": 0, "connections": 0}));
    assert!(!node.snapshot().to_string().contains("alice"), "who may look without a token sees no names");
    let metrics = node.operate("GET", "/metrics");
    assert!(metrics.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    let text = metrics.text();
    for line in [
        "# TYPE latent_pools_connections gauge",
        "latent_pools_connections 1",
        "latent_broker_plans 1",
        "latent_io_closed 0",
        "latent_provider_installed_epoch{provider=\"local\"} 1",
        "latent_epoch_idle_connections{epoch=\"1\",provider=\"local\"} 1",
        "latent_client_idle_connections{epoch=\"1\",origin=\"0\",provider=\"local\"} 1",
        "latent_tenant_plans{tenant=\"alice\"} 1",
        "# TYPE latent_grants_total counter",
        "latent_grants_total 1",
        "latent_refusals_total{dimension=\"pools.running\"} 0",
        "latent_queue_age_seconds_bucket{le=\"+Inf\"} 0",
        "latent_queue_age_seconds_count 0",
        "latent_high_water{dimension=\"pools.connections\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(node.stop().status.success());
}

/// Sends a body to `/admin/limits`.
fn patch(node: &Node, body: &str) -> Answer {
    let mut client = Client::connect(node.admin());
    client
        .send(format!(
            "PATCH /admin/limits HTTP/1.1\r\nhost: node\r\n{}content-length: {}\r\n\r\n{body}",
            bearer(OPERATOR),
            body.len()
        ))
        .expect("the node reads");
    client.answer().expect("an answer")
}

#[test]
fn limits_are_lowered_whole_or_not_at_all() {
    let origin = Origin::start();
    let node = node(&origin);
    let shown = node.operate("GET", "/admin/limits").json();
    assert_eq!((&shown["running"], &shown["queue_age"]), (&64.into(), &"5 s".into()));
    // One request runs, one connection is busy.
    let mut slow = node.client();
    slow.send(format!("GET /http/local/slow/800 HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice")))
        .expect("the node reads");
    wait_until("it runs", || node.snapshot()["pools"]["active_connections"] == 1);

    let lowered = patch(&node, r#"{"running": 32, "pools.pending": 64, "idle_age": "20 s"}"#);
    assert_eq!(lowered.status, 200, "{}", lowered.text());
    let lowered = lowered.json();
    assert_eq!(
        (&lowered["running"], &lowered["pending"], &lowered["idle_age"], &lowered["queue_age"]),
        (&32.into(), &64.into(), &"20 s".into(), &"5 s".into())
    );
    // Raised, fixed, below what is used: each is named, and nothing of it is done.
    let refused =
        patch(&node, r#"{"running": 8, "pending": 128, "initial_backoff": "50 ms", "idle_age": "10 s"}"#);
    assert_eq!(refused.status, 409, "{}", refused.text());
    let obstacles = refused.json()["obstacles"].clone();
    let named = |dimension: &str| {
        let found = obstacles.as_array().into_iter().flatten().find(|each| each["dimension"] == dimension);
        found.cloned().unwrap_or_else(|| panic!("{dimension} is not in {obstacles}"))
    };
    assert_eq!(
        (&named("pools.pending")["why"], &named("pools.pending")["found"]),
        (&"raised".into(), &64.into())
    );
    assert_eq!(named("pools.initial_backoff")["why"], "fixed");
    assert_eq!(node.operate("GET", "/admin/limits").json(), lowered);
    for (body, text) in [
        ("", "must be a JSON object"),
        ("[1]", "must be a JSON object"),
        (r#"{"runing": 1}"#, "runing: no such limit"),
        (r#"{"idle_age": 5}"#, "idle_age: must be a time with its unit"),
        (r#"{"running": 16, "running": 8}"#, "running: named twice"),
        (r#"{"pools.running": 16, "running": 8}"#, "running: named twice"),
        (r#"{"running": 1e1}"#, "running: must be a whole number"),
        (r#"{"running": -1}"#, "running: must be a whole number"),
        (r#"{"running": 4294967296}"#, "pools.running cannot be 4,294,967,296"),
        (r#"{"running": 18446744073709551616}"#, "running: must be a whole number"),
        (r#"{"running": null, "queue_age": {}}"#, "queue_age: must be a time with its unit"),
        (r#"{"metadata_bytes": "99999999999999999999 GiB"}"#, "metadata_bytes: must be a number of bytes"),
        (r#"{"queue_age": "18446744073709551615 h"}"#, "queue_age: must be a time with its unit"),
        (r#"{"running": 16} {"pending": 1}"#, "must be a JSON object"),
        (&"[".repeat(60_000), "must be a JSON object"),
    ] {
        let answer = patch(&node, body);
        assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("invalid-limits")), "{body}");
        assert!(answer.text().contains(text), "{}", answer.text());
    }
    assert_eq!(slow.answer().expect("an answer").text(), "slept");
    assert!(node.stop().status.success());
}

#[test]
fn a_limit_does_not_go_below_what_is_held() {
    let origin = Origin::start();
    let node = node(&origin);
    let mut running: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = node.client();
            let token = bearer("token-of-alice");
            client
                .send(format!("GET /http/local/slow/900 HTTP/1.1\r\nhost: node\r\n{token}\r\n"))
                .expect("the node reads");
            client
        })
        .collect();
    wait_until("they run", || node.snapshot()["pools"]["active_connections"] == 3);
    let all = |units| {
        format!(
            r#"{{"running": {units}, "running_per_tenant": {units}, "running_per_provider": {units},
                "connections": {units}, "connections_per_client": {units}, "idle_connections": {units}}}"#
        )
    };
    let refused = patch(&node, &all(2));
    assert_eq!(refused.status, 409, "{}", refused.text());
    let refused = refused.json();
    let obstacles = refused["obstacles"].as_array().expect("a list");
    let mut said: Vec<String> = obstacles
        .iter()
        .map(|each| format!("{} {} {}", each["dimension"], each["scope"], each["found"]).replace('"', ""))
        .collect();
    said.sort();
    assert_eq!(
        said,
        [
            "pools.connections node 3",
            "pools.connections_per_client client 3",
            "pools.running node 3",
            "pools.running_per_provider provider 3",
            "pools.running_per_tenant tenant 3",
        ],
        "{refused}"
    );
    assert_eq!(patch(&node, &all(3)).status, 200, "exactly what is held fits");
    for client in &mut running {
        assert_eq!(client.answer().expect("an answer").text(), "slept");
    }
    node.settle();
    assert_eq!(patch(&node, &all(3)).status, 200, "the same again is no change");
    assert_eq!(node.get_as("token-of-alice", "/http/local/ok").text(), "fine");
    assert!(node.stop().status.success());
}

#[test]
fn retire_drains_the_node_as_sigterm_does() {
    let origin = Origin::start();
    let node = node(&origin);
    let mut slow = node.client();
    slow.send(format!("GET /http/local/slow/700 HTTP/1.1\r\nhost: node\r\n{}\r\n", bearer("token-of-alice")))
        .expect("the node reads");
    wait_until("it runs", || node.snapshot()["pools"]["running_requests"] == 1);
    let answer = node.operate("POST", "/admin/retire");
    assert_eq!((answer.status, answer.json()["status"].as_str()), (202, Some("draining")));
    wait_until("the node stops listening", || Client::try_connect(node.address).is_err());
    let answer = slow.answer().expect("an answer");
    assert_eq!(
        (answer.status, answer.text().as_str(), answer.header("connection")),
        (200, "slept", Some("close"))
    );
    let ended = node.wait();
    assert!(ended.status.success() && ended.printed.ends_with("stopped; left: nothing"), "{ended:?}");
    assert!(ended.log.contains("POST /admin/retire"), "{}", ended.log);
    assert!(!ended.log.contains(OPERATOR) && !ended.printed.contains(OPERATOR));
}

#[test]
fn a_retirement_without_any_load_is_answered_too() {
    let origin = Origin::start();
    for _ in 0..5 {
        let node = node(&origin);
        assert_eq!(node.operate("POST", "/admin/retire").status, 202);
        assert!(node.wait().status.success());
    }
}

#[test]
fn a_token_may_come_from_the_environment_and_check_says_so() {
    let folder = super::support::node::Folder::new();
    let origin = Origin::start();
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"LATENT_TEST_OPERATORS\"\n";
    let file = folder.write("node.toml", &format!("{}{admin}", config(&origin, "")));
    let check = |value: Option<&str>| {
        let mut command = program();
        command.arg("check").arg("--config").arg(&file);
        if let Some(value) = value {
            command.env("LATENT_TEST_OPERATORS", value);
        }
        let output = command.output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = check(Some("hush-operators"));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("operators on 127.0.0.1:0")
            && said.contains("environment variable LATENT_TEST_OPERATORS")
    );
    assert!(!said.contains("hush-operators"), "{said}");
    let (code, said) = check(None);
    assert_eq!(code, Some(2));
    assert!(said.contains("admin.token_env = \"LATENT_TEST_OPERATORS\": no such variable"), "{said}");
    let (code, said) = check(Some("token-of-alice"));
    assert_eq!(code, Some(2));
    assert!(said.contains("the token of tenant alice: operators need their own"), "{said}");
}
