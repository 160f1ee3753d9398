//! A newcomer's first minute.

use std::net::TcpListener;
use std::process::Command;

use super::support::client::Client;
use super::support::node::{Node, program};

/// What each printed line must come to, in their order: a status, and a piece of the body.
const EXPECTED: [(u16, &str); 8] = [
    (200, "\"origin\":\"latent-node demo\""),
    (200, "hello from bob"),
    (200, ""),
    (200, "\"slept_ms\":500"),
    (504, "\"error\":\"deadline"),
    (401, "\"error\":\"unauthenticated\""),
    (200, "\"status\":\"serving\""),
    (200, "\"pools\""),
];

#[test]
fn the_printed_curl_lines_work() {
    let node = Node::demo();
    let printed = node.printed_when(|text| text.contains("Stop with Ctrl-C"));
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(lines.len(), EXPECTED.len(), "{printed}");
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    for (line, (status, body)) in lines.iter().zip(EXPECTED) {
        let answer = if has_curl { with_curl(line) } else { without_curl(line) };
        assert!(answer.1.contains(body) && answer.0 == status, "{line}\n{answer:?}");
    }
    node.settle();
    let ended = node.stop();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.printed.ends_with("stopped; left: nothing"), "{}", ended.printed);
}

/// Runs the line as a shell would, with the status added at the end of what it prints.
fn with_curl(line: &str) -> (u16, String) {
    let download = line.contains(" -w ");
    let line = if download { line.to_owned() } else { format!("{line} -w '\\n%{{http_code}}'") };
    let output = Command::new("sh").arg("-c").arg(&line).output().expect("a shell");
    assert!(output.status.success(), "{line}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if download {
        assert_eq!(text, "10000000 bytes\n");
        return (200, text);
    }
    let (body, status) = text.rsplit_once('\n').expect("the status follows the body");
    (status.parse().expect("a status"), body.to_owned())
}

/// The same for a machine without curl: just the options that the lines use.
fn without_curl(line: &str) -> (u16, String) {
    let mut words = shell_words(line).into_iter().skip(1);
    let (mut headers, mut data, mut url) = (String::new(), None, String::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "-sS" => {}
            "-H" => headers += &format!("{}\r\n", words.next().expect("a header")),
            "-d" => data = words.next(),
            "-o" | "-w" => drop(words.next()),
            _ => url = word,
        }
    }
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL");
    let (method, body) = data.map_or(("GET", String::new()), |data| ("POST", data));
    let mut client = Client::connect(address.parse().expect("an address"));
    let head =
        format!("{method} /{path} HTTP/1.1\r\nhost: node\r\n{headers}content-length: {}\r\n\r\n", body.len());
    client.send(format!("{head}{body}")).expect("the node reads");
    let answer = client.answer().expect("an answer");
    assert!(answer.complete);
    (answer.status, answer.text())
}

/// Splits at spaces that are not between single quotes.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (at, piece) in line.split('\'').enumerate() {
        let last = words.len() - 1;
        if at % 2 == 1 {
            words[last] += piece;
            continue;
        }
        let mut parts = piece.split(' ');
        words[last] += parts.next().unwrap_or_default();
        words.extend(parts.map(str::to_owned));
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn lines_are_split_as_a_shell_does() {
    let words = shell_words("curl -H 'A: b c' -d 'x' http://h/");
    assert_eq!(words, ["curl", "-H", "A: b c", "-d", "x", "http://h/"]);
}

#[test]
fn a_taken_port_is_said_clearly() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket has an address").to_string();
    let output = program().args(["--listen", &address]).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected =
        format!("cannot listen on {address}: another program listens there already; choose another");
    assert!(said.contains(&expected) && said.contains("latent-node --listen 127.0.0.1:"), "{said}");
}

#[test]
fn the_status_page_is_self_contained() {
    let node = Node::demo();
    let page = node.get("/", "");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'"))
    );
    for path in ["\"/snapshot\"", "\"/figures\""] {
        assert!(page.text().contains(path), "{path}");
    }
    assert!(!page.text().contains("http://") && !page.text().contains("https://"));
}
