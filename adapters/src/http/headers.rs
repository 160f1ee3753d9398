//! Rules of heads: what is removed on the way, what is refused, and how long a response's body is.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};

use super::config::HeadLimits;
use super::error::{RequestFault, ResponseFault};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Fields that belong to one connection and never travel on.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HTTP2_SETTINGS,
];

/// Fields that `Connection` may not name: removing them would change how the message is framed or where it goes.
const FRAMING: [HeaderName; 3] = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::HOST];

pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// When the connection ends.
    UntilClose,
}

/// What a response's head decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) framing: Framing,
    /// Whether the origin lets the connection live on after the body.
    pub(crate) keep_alive: bool,
}

/// Checks a request's fields and takes out what does not travel on. Returns the length they declare.
///
/// `Host`, `Content-Length` and `Transfer-Encoding` are removed: the adapter writes them itself.
pub(crate) fn sanitise_request(
    headers: &mut HeaderMap,
    limits: &HeadLimits,
) -> Result<Option<u64>, RequestFault> {
    if headers.len() > limits.request_headers {
        return Err(RequestFault::TooManyHeaders);
    }
    if bytes(headers) > limits.request_bytes {
        return Err(RequestFault::HeadersTooLong);
    }
    let length = content_length(headers).map_err(|_| RequestFault::ContentLength)?;
    let chunked = chunked(headers).map_err(|_| RequestFault::TransferEncoding)?;
    if chunked && length.is_some() {
        return Err(RequestFault::TransferEncoding);
    }
    if headers.contains_key(header::UPGRADE) || headers.contains_key(HTTP2_SETTINGS) {
        return Err(RequestFault::Upgrade);
    }
    if headers
        .get_all(header::EXPECT)
        .iter()
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    {
        return Err(RequestFault::Expect);
    }
    strip(headers).map_err(|_| RequestFault::Connection)?;
    // The body follows at once, so the question whether it may is not passed on.
    headers.remove(header::EXPECT);
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    Ok(length)
}

/// Checks a response's head and takes out what does not travel on.
pub(crate) fn sanitise_response(
    method: &Method,
    version: Version,
    status: StatusCode,
    headers: &mut HeaderMap,
    limits: &HeadLimits,
) -> Result<Verdict, ResponseFault> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ResponseFault::Upgrade);
    }
    if !(200..=599).contains(&status.as_u16()) {
        return Err(ResponseFault::Status);
    }
    if headers.len() > limits.response_headers || bytes(headers) > limits.response_bytes {
        return Err(ResponseFault::HeadTooLarge);
    }
    let length = content_length(headers).map_err(|_| ResponseFault::ContentLength)?;
    let chunked = chunked(headers).map_err(|_| ResponseFault::TransferEncoding)?;
    if chunked && (length.is_some() || version != Version::HTTP_11) {
        return Err(ResponseFault::TransferEncoding);
    }
    let bodiless =
        method == Method::HEAD || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let framing = match length {
        _ if bodiless => Framing::Empty,
        _ if chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    let close = names(headers, "close");
    let keep_alive = !close
        && framing != Framing::UntilClose
        && (version == Version::HTTP_11 || (version == Version::HTTP_10 && names(headers, "keep-alive")));
    strip(headers).map_err(|_| ResponseFault::Malformed)?;
    Ok(Verdict { framing, keep_alive })
}

/// Takes out of a trailer section what may not be in one: fields that frame, route or authenticate.
pub(crate) fn sanitise_trailers(trailers: &mut HeaderMap) -> Result<(), ResponseFault> {
    strip(trailers).map_err(|_| ResponseFault::Framing)?;
    for name in [
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_RANGE,
        header::HOST,
        header::AUTHORIZATION,
        header::SET_COOKIE,
        header::CACHE_CONTROL,
        header::LOCATION,
    ] {
        trailers.remove(name);
    }
    Ok(())
}

/// A message that contradicts itself.
#[derive(Debug, PartialEq, Eq)]
struct Contradiction;

/// Removes hop-by-hop fields, those named by `Connection` too.
fn strip(headers: &mut HeaderMap) -> Result<(), Contradiction> {
    let mut named = Vec::new();
    for token in tokens(headers, &header::CONNECTION) {
        // A token that is no field name (or an option such as `close`) names nothing to remove.
        if let Ok(name) = HeaderName::from_bytes(token) {
            if FRAMING.contains(&name) {
                return Err(Contradiction);
            }
            named.push(name);
        }
    }
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    Ok(())
}

/// The one length that is declared. Repeated fields and lists are refused even where they agree.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Contradiction> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => number(value).map(Some),
        (Some(_), Some(_)) => Err(Contradiction),
    }
}

fn number(value: &HeaderValue) -> Result<u64, Contradiction> {
    let digits = value.as_bytes();
    // `parse` would take a leading plus sign.
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Contradiction);
    }
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Contradiction)
}

/// Whether the body is chunked; any other transfer coding is refused, also on top of chunked.
fn chunked(headers: &HeaderMap) -> Result<bool, Contradiction> {
    let mut values = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(false),
        (Some(value), None) if value.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Contradiction),
    }
}

fn names(headers: &HeaderMap, option: &str) -> bool {
    tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case(option.as_bytes()))
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// Bytes of the fields as they are on the wire.
fn bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
