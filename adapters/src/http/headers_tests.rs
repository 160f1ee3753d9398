//! Tests of the rules of heads (S33 to S36, S39, S70 as far as they are decided by a head).

use super::*;

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().expect("a field name");
        map.append(name, value.parse().expect("a field value"));
    }
    map
}

fn request(lines: &[(&str, &str)]) -> (Result<Option<u64>, RequestFault>, HeaderMap) {
    let mut headers = map(lines);
    (sanitise_request(&mut headers, &HeadLimits::default()), headers)
}

fn response(status: u16, lines: &[(&str, &str)]) -> Result<Verdict, ResponseFault> {
    judge(&Method::GET, Version::HTTP_11, status, lines)
}

fn judge(
    method: &Method,
    version: Version,
    status: u16,
    lines: &[(&str, &str)],
) -> Result<Verdict, ResponseFault> {
    let status = StatusCode::from_u16(status).expect("a status");
    sanitise_response(method, version, status, &mut map(lines), &HeadLimits::default())
}

#[test]
fn hop_by_hop_fields_do_not_travel_on() {
    let (length, left) = request(&[
        ("connection", "close, X-Private"),
        ("connection", "keep-alive"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authorization", "basic"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("host", "elsewhere"),
        ("expect", "100-continue"),
        ("content-length", "12"),
        ("accept", "text/plain"),
    ]);
    assert_eq!(length, Ok(Some(12)));
    assert_eq!(left, map(&[("accept", "text/plain")]));
}

#[test]
fn requests_that_could_be_read_in_two_ways_are_refused() {
    let refused = |lines: &[(&str, &str)]| request(lines).0.expect_err("refused");
    assert_eq!(refused(&[("content-length", "1"), ("content-length", "1")]), RequestFault::ContentLength);
    assert_eq!(refused(&[("content-length", "1, 1")]), RequestFault::ContentLength);
    assert_eq!(refused(&[("content-length", "+1")]), RequestFault::ContentLength);
    assert_eq!(refused(&[("content-length", "-1")]), RequestFault::ContentLength);
    assert_eq!(refused(&[("content-length", "0x10")]), RequestFault::ContentLength);
    assert_eq!(refused(&[("content-length", "")]), RequestFault::ContentLength);
    assert_eq!(refused(&[("content-length", "99999999999999999999")]), RequestFault::ContentLength);
    assert_eq!(refused(&[("transfer-encoding", "gzip, chunked")]), RequestFault::TransferEncoding);
    assert_eq!(refused(&[("transfer-encoding", "identity")]), RequestFault::TransferEncoding);
    assert_eq!(refused(&[("transfer-encoding", "xchunked")]), RequestFault::TransferEncoding);
    assert_eq!(
        refused(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]),
        RequestFault::TransferEncoding
    );
    assert_eq!(
        refused(&[("transfer-encoding", "chunked"), ("content-length", "3")]),
        RequestFault::TransferEncoding
    );
    assert_eq!(refused(&[("connection", "content-length")]), RequestFault::Connection);
    assert_eq!(refused(&[("connection", "close, Host")]), RequestFault::Connection);
    assert_eq!(refused(&[("connection", "upgrade"), ("upgrade", "websocket")]), RequestFault::Upgrade);
    assert_eq!(refused(&[("http2-settings", "AAMAAABk")]), RequestFault::Upgrade);
    assert_eq!(refused(&[("expect", "200-ok")]), RequestFault::Expect);
}

#[test]
fn a_request_that_says_chunked_declares_no_length() {
    let (length, left) = request(&[("transfer-encoding", "Chunked")]);
    assert_eq!((length, left.len()), (Ok(None), 0));
}

#[test]
fn heads_are_bounded() {
    let many: Vec<_> = (0..65).map(|_| ("x-a", "1")).collect();
    assert_eq!(request(&many).0, Err(RequestFault::TooManyHeaders));
    assert_eq!(request(&many[..64]).0, Ok(None));
    let long = "x".repeat(8192);
    assert_eq!(request(&[("x-a", &long)]).0, Err(RequestFault::HeadersTooLong));
    let many: Vec<_> = (0..101).map(|_| ("x-a", "1")).collect();
    assert_eq!(response(200, &many), Err(ResponseFault::HeadTooLarge));
}

#[test]
fn the_end_of_a_body_is_known_from_the_head() {
    let framing = |status, lines: &[(&str, &str)]| response(status, lines).map(|verdict| verdict.framing);
    assert_eq!(framing(200, &[("content-length", "5")]), Ok(Framing::Length(5)));
    assert_eq!(framing(200, &[("transfer-encoding", "chunked")]), Ok(Framing::Chunked));
    assert_eq!(framing(200, &[]), Ok(Framing::UntilClose));
    assert_eq!(framing(204, &[("content-length", "5")]), Ok(Framing::Empty));
    assert_eq!(framing(304, &[("content-length", "5")]), Ok(Framing::Empty));
    let head = judge(&Method::HEAD, Version::HTTP_11, 200, &[("content-length", "5")]);
    assert_eq!(head, Ok(Verdict { framing: Framing::Empty, keep_alive: true }));
}

#[test]
fn responses_that_could_be_read_in_two_ways_are_refused() {
    let both = [("transfer-encoding", "chunked"), ("content-length", "3")];
    assert_eq!(response(200, &both), Err(ResponseFault::TransferEncoding));
    assert_eq!(response(200, &[("transfer-encoding", "gzip")]), Err(ResponseFault::TransferEncoding));
    assert_eq!(
        response(200, &[("transfer-encoding", "gzip, chunked")]),
        Err(ResponseFault::TransferEncoding)
    );
    let twice = [("content-length", "3"), ("content-length", "3")];
    assert_eq!(response(200, &twice), Err(ResponseFault::ContentLength));
    assert_eq!(response(200, &[("content-length", "-3")]), Err(ResponseFault::ContentLength));
    assert_eq!(response(200, &[("connection", "content-length")]), Err(ResponseFault::Malformed));
    let old = judge(&Method::GET, Version::HTTP_10, 200, &[("transfer-encoding", "chunked")]);
    assert_eq!(old, Err(ResponseFault::TransferEncoding));
}

#[test]
fn statuses_outside_the_range_are_refused() {
    assert_eq!(response(101, &[]), Err(ResponseFault::Upgrade));
    assert_eq!(response(103, &[]), Err(ResponseFault::Status));
    assert_eq!(response(600, &[]), Err(ResponseFault::Status));
    assert_eq!(response(999, &[]), Err(ResponseFault::Status));
    assert!(response(302, &[("location", "http://169.254.169.254/")]).is_ok(), "a redirect is an answer");
}

#[test]
fn s35_close_on_the_origins_side_ends_the_connection() {
    let keeps = |version, lines: &[(&str, &str)]| {
        judge(&Method::GET, version, 200, lines).expect("an answer").keep_alive
    };
    let sized = ("content-length", "0");
    assert!(keeps(Version::HTTP_11, &[sized]));
    assert!(!keeps(Version::HTTP_11, &[sized, ("connection", "Close")]));
    assert!(!keeps(Version::HTTP_11, &[sized, ("connection", "x, close"), ("connection", "keep-alive")]));
    assert!(!keeps(Version::HTTP_11, &[]), "a body that ends with the connection");
    assert!(!keeps(Version::HTTP_10, &[sized]));
    assert!(keeps(Version::HTTP_10, &[sized, ("connection", "keep-alive")]));
}

#[test]
fn a_response_loses_its_hop_by_hop_fields_but_keeps_its_length() {
    let mut headers = map(&[
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-authenticate", "basic"),
        ("upgrade", "h2c"),
        ("content-length", "2"),
        ("etag", "\"a\""),
    ]);
    let limits = HeadLimits::default();
    let verdict = sanitise_response(&Method::GET, Version::HTTP_11, StatusCode::OK, &mut headers, &limits);
    assert_eq!(verdict, Ok(Verdict { framing: Framing::Length(2), keep_alive: true }));
    assert_eq!(headers, map(&[("content-length", "2"), ("etag", "\"a\"")]));
}

#[test]
fn trailers_lose_what_frames_or_authenticates() {
    let mut trailers = map(&[("x-sum", "1"), ("content-length", "9"), ("set-cookie", "a=b"), ("te", "x")]);
    assert_eq!(sanitise_trailers(&mut trailers), Ok(()));
    assert_eq!(trailers, map(&[("x-sum", "1")]));
}
