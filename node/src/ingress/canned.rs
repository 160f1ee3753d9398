//! Answers that do not come from a request's handler: there was no head that could be read.

use http::StatusCode;

use crate::refusal::Refusal;

/// For a head that has begun and does not come to its end. hyper closes without a word.
pub(super) fn too_slow() -> String {
    let text = "the request head took too long";
    write(&Refusal::of_node(StatusCode::REQUEST_TIMEOUT, "head-timeout", text))
}

/// What says more than hyper's own answer to a head that it does not take. `None`: this is not the beginning of one.
pub(super) fn in_place_of(answer: &[u8]) -> Option<String> {
    let status = StatusCode::from_bytes(answer.strip_prefix(b"HTTP/1.")?.get(2..5)?).ok()?;
    let (code, text) = match status {
        StatusCode::URI_TOO_LONG => ("target-too-long", "the request target is longer than allowed"),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            ("head-too-large", "the request head is larger than ingress.head_bytes or has too many fields")
        }
        status if status.is_client_error() => ("malformed-head", "the request head cannot be read"),
        _ => return None,
    };
    Some(write(&Refusal::of_node(status, code, text)))
}

/// The whole answer, after which the connection is closed.
fn write(refusal: &Refusal) -> String {
    let (status, body) = (refusal.status, refusal.body());
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(answer: &str) -> (&str, serde_json::Value) {
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{} bytes", body.len());
        let body = serde_json::from_str(body).expect("JSON");
        (head.split_once("\r\n").expect("fields").0, body)
    }

    #[test]
    fn what_is_too_slow_is_said_in_json() {
        let answer = too_slow();
        let (line, body) = parts(&answer);
        assert_eq!((line, body["error"].as_str()), ("HTTP/1.1 408 Request Timeout", Some("head-timeout")));
    }

    #[test]
    fn an_answer_of_hypers_own_keeps_its_status() {
        let cases = [
            ("400 Bad Request", "malformed-head"),
            ("414 URI Too Long", "target-too-long"),
            ("431 Request Header Fields Too Large", "head-too-large"),
        ];
        for (status, code) in cases {
            let own = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let answer = in_place_of(own.as_bytes()).expect("an answer");
            let (line, body) = parts(&answer);
            assert_eq!((line, body["error"].as_str()), (&*format!("HTTP/1.1 {status}"), Some(code)));
            assert_eq!(body["effect"], "not-sent");
        }
        for other in [
            "",
            "HTTP/1.1 ",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "hello, this is no head",
        ] {
            assert_eq!(in_place_of(other.as_bytes()), None, "{other:?}");
        }
    }
}
