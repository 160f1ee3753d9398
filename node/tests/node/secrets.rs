//! Canaries: secrets that must come out nowhere.

use super::carry::config;
use super::support::client::bearer;
use super::support::node::Node;
use super::support::origin::Origin;

const TOKEN: &str = "token-of-alice";
const CREDENTIAL: &str = "Bearer canary+credential/7f3a";

/// A secret as it is, in base64, and in a URL.
fn forms(secret: &str) -> [String; 3] {
    let in_url = secret.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    [secret.to_owned(), base64(secret.as_bytes()).trim_end_matches('=').to_owned(), in_url.collect()]
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let each = bytes.chunks(3).flat_map(|chunk| {
        let number = chunk.iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |place| char::from(LETTERS[number >> (18 - 6 * place) & 63]))
    });
    each.collect()
}

#[test]
fn base64_is_base64() {
    assert_eq!([base64(b"foo"), base64(b"fo"), base64(b"f")], ["Zm9v", "Zm8", "Zg"]);
}

#[test]
fn no_secret_comes_out_at_the_loudest_log_level() {
    let origin = Origin::start();
    let credential = "[providers.credential]\nheader = \"authorization\"\nfile = \"credential\"\n";
    let node = Node::serve(&format!("{}{credential}", config(&origin, "")), &[("credential", CREDENTIAL)]);
    let mut seen = String::new();
    for path in [
        "/http/local/ok",
        "/http/local/garbage",
        "/http/local/cut",
        "/http/none/ok",
        "/snapshot",
        "/",
        "/healthz",
    ] {
        for headers in [bearer(TOKEN), bearer("canary-wrong-token"), String::new()] {
            let answer = node.get(path, &headers);
            seen += &format!("{:?} {}", answer.headers, answer.text());
        }
    }
    let timeout =
        node.get("/http/local/stall?key=canary-query", &format!("{}x-deadline-ms: 100\r\n", bearer(TOKEN)));
    seen += &timeout.text();
    let mut broken = node.client();
    broken
        .send(format!("GET / HTTP/1.1\r\nhost: node\r\nauthorization Bearer {TOKEN}\r\n\r\n"))
        .expect("it is sent");
    seen += &broken.answer().expect("an answer").text();
    node.settle();
    let heads = origin.heads();
    assert!(heads.iter().all(|head| head.contains(CREDENTIAL)), "the credential goes where it belongs");
    let ended = node.stop();
    assert!(ended.log.contains("DEBUG") && ended.log.contains("request"), "the log is loud: {}", ended.log);
    seen += &ended.log;
    seen += &ended.printed;
    for secret in [TOKEN, CREDENTIAL, "canary-wrong-token", "canary-query"] {
        for form in forms(secret) {
            assert!(!seen.contains(&form), "{form} came out: {}", around(&seen, &form));
        }
    }
}

fn around<'a>(text: &'a str, found: &str) -> &'a str {
    let at = text.find(found).unwrap_or(0);
    let start = text.floor_char_boundary(at.saturating_sub(200));
    let end = text.ceil_char_boundary((at + 200).min(text.len()));
    &text[start..end]
}
