//! What the fuzz targets call: the parts that read what others send, by themselves. Compiled with `--cfg fuzzing` only.

use std::net::IpAddr;
use std::pin::pin;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::config::{AllowedAddresses, BodyLimits, HeadLimits};
use super::scratch::buffer_bytes;
use super::{address, dns, headers};

/// Reads a DNS answer as one to a question for `example.org`.
pub fn dns(bytes: &[u8]) {
    dns::read(bytes);
}

/// Whether an address may be dialled does not depend on how it is written, and no special one is dialled unasked.
///
/// # Panics
///
/// When it does.
pub fn addresses(bytes: [u8; 16]) {
    let six = IpAddr::V6(bytes.into());
    let none = AllowedAddresses::default();
    let plain = address::canonical(six);
    assert_eq!(address::canonical(plain), plain);
    assert_eq!(address::range(six), address::range(plain));
    assert_eq!(none.permits(six), none.permits(plain));
    assert_eq!(none.permits(six), address::range(plain) == address::Range::Public);
    let exact = AllowedAddresses { exact: vec![plain], ..AllowedAddresses::default() };
    assert!(exact.permits(six) && exact.permits(plain));
    if let IpAddr::V4(four) = plain {
        let mapped = IpAddr::V6(four.to_ipv6_mapped());
        assert_eq!(none.permits(mapped), none.permits(plain));
    }
}

/// Takes lines `name: value` through the rules for requests, responses and trailers, and checks what is left.
///
/// # Panics
///
/// When something is left that must not travel on.
pub fn fields(text: &[u8]) {
    let mut fields = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
        {
            fields.append(name, value);
        }
    }
    let limits = HeadLimits::default();
    let travels = |left: &HeaderMap| left.keys().all(|name| !headers::is_hop_by_hop(name));
    let mut request = fields.clone();
    if headers::sanitise_request(&mut request, &limits).is_ok() {
        assert!(
            travels(&request) && !request.contains_key("host") && !request.contains_key("content-length")
        );
        // Once more changes nothing.
        let again = request.clone();
        assert_eq!(headers::sanitise_request(&mut request, &limits).ok(), Some(None));
        assert_eq!(request, again);
    }
    for version in [Version::HTTP_10, Version::HTTP_11] {
        let mut response = fields.clone();
        let verdict =
            headers::sanitise_response(&Method::GET, version, StatusCode::OK, &mut response, &limits);
        if let Ok(verdict) = verdict {
            assert!(travels(&response));
            assert!(!verdict.keep_alive || verdict.framing != headers::Framing::UntilClose);
        }
    }
    if headers::sanitise_trailers(&mut fields).is_ok() {
        assert!(
            travels(&fields)
                && !fields.contains_key("content-length")
                && !fields.contains_key("authorization")
        );
    }
}

/// Reads one response that comes in `pieces`, as a connection does: with its limits and its rules. Gives all that a caller
/// would see of it, as text.
pub fn response(pieces: &[&[u8]]) -> String {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().unwrap_or_else(|_| std::process::abort());
    runtime.block_on(read(pieces))
}

async fn read(pieces: &[&[u8]]) -> String {
    let (head, body) = (HeadLimits::default(), BodyLimits::default());
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (mut from_us, mut to_us) = tokio::io::split(theirs);
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(buffer_bytes(&head, &body))
        .max_header_size(head.response_bytes)
        .max_headers(head.response_headers);
    let Ok((mut sender, driver)) = builder.handshake::<_, String>(TokioIo::new(ours)).await else {
        return "closed".to_owned();
    };
    let origin = async {
        // The whole request first: what comes before it was asked for by nobody.
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0; 256];
            match from_us.read(&mut byte).await {
                Ok(read @ 1..) => asked.extend_from_slice(&byte[..read]),
                _ => return,
            }
        }
        for piece in pieces {
            if to_us.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
        // Nothing more to be said; what was said is still read.
        let _ended = to_us.shutdown().await;
    };
    let request = Request::get("/").header("host", "example.org").body(String::new());
    let Ok(request) = request else { return "no request".to_owned() };
    let caller = async {
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => return format!("no response ({})", kind(&error)),
        };
        let (mut parts, body) = response.into_parts();
        let verdict =
            headers::sanitise_response(&Method::GET, parts.version, parts.status, &mut parts.headers, &head);
        let mut seen = format!("{} {:?} {:?} {verdict:?}\n", parts.status, parts.version, parts.headers);
        if verdict.is_err() {
            return seen;
        }
        let mut body = pin!(body);
        loop {
            match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data.iter().for_each(|byte| seen.push_str(&format!("{byte:02x}"))),
                    Err(frame) => seen.push_str(&format!("\n{:?}", frame.trailers_ref())),
                },
                Some(Err(error)) => return format!("{seen}\nbroken off ({})", kind(&error)),
                None => return format!("{seen}\nend"),
            }
        }
    };
    let mut caller = pin!(caller);
    let (mut origin, mut driver) = (pin!(origin), pin!(driver));
    let (mut said, mut ended) = (false, false);
    std::future::poll_fn(|cx| {
        said = said || origin.as_mut().poll(cx).is_ready();
        ended = ended || driver.as_mut().poll(cx).is_ready();
        caller.as_mut().poll(cx)
    })
    .await
}

/// What of an error does not depend on where the bytes were cut.
fn kind(error: &hyper::Error) -> &'static str {
    if error.is_parse_too_large() { "too large" } else { "failed" }
}
