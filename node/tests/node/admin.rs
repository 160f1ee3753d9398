//! The listener of operators: who may, what paths mean, what is bounded.

use super::carry::config;
use super::support::client::{Client, bearer};
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
    ] {
        let answer = node.operate(method, path);
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(code)), "{method} {path}");
        if status == 405 {
            let allow = if path.ends_with("snapshot") { "GET, HEAD" } else { "POST" };
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
    assert_eq!(snapshot["providers"][0]["epoch"], 1);
    let metrics = node.operate("GET", "/metrics");
    assert!(metrics.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    let text = metrics.text();
    for line in [
        "# TYPE latent_pools_connections gauge",
        "latent_pools_connections 1",
        "latent_broker_plans 1",
        "latent_io_closed 0",
        "latent_provider_epoch{provider=\"local\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("alice"), "names of tenants are not for everybody's dashboard:\n{text}");
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
