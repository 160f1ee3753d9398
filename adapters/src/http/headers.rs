//! Rules of heads: what is removed on the way, what is refused, and how long a response's body is.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};

use super::config::HeadLimits;
use super::error::{RequestFault, ResponseFault};

/// Fields that belong to one connection and never travel on.
static HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
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

/// What one pass over the fields of a head finds. Most heads name little that these rules are about, and looking a name up
/// in a map costs more than walking past it.
#[derive(Debug, Default)]
struct Survey {
    /// Bytes of the fields as they are on the wire.
    bytes: usize,
    length: Declared<u64>,
    chunked: Declared<()>,
    /// Whether there is a `Connection` field.
    connection: bool,
    /// Whether there is another hop-by-hop field.
    hop_by_hop: bool,
    upgrade: bool,
    expect: bool,
    /// An `Expect` that asks for something else than `100-continue`.
    unexpected: bool,
}

/// What may be declared once and in one form.
#[derive(Debug, Default)]
enum Declared<T> {
    #[default]
    Nothing,
    Once(T),
    /// Repeated, or in a form that it does not have.
    Wrong,
}

impl<T: Copy> Declared<T> {
    /// Repeated fields and lists are refused even where they agree.
    fn note(&mut self, value: Option<T>) {
        *self = match (&self, value) {
            (Self::Nothing, Some(value)) => Self::Once(value),
            _ => Self::Wrong,
        };
    }

    fn get(&self) -> Result<Option<T>, Contradiction> {
        match self {
            Self::Nothing => Ok(None),
            Self::Once(value) => Ok(Some(*value)),
            Self::Wrong => Err(Contradiction),
        }
    }
}

impl Survey {
    fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            found.bytes += name.as_str().len() + value.len() + ": \r\n".len();
            match name.as_str() {
                "content-length" => found.length.note(number(value)),
                "transfer-encoding" => {
                    // Any other transfer coding is refused, also on top of chunked.
                    found.chunked.note(value.as_bytes().eq_ignore_ascii_case(b"chunked").then_some(()));
                    found.hop_by_hop = true;
                }
                "connection" => found.connection = true,
                "upgrade" | "http2-settings" => {
                    found.upgrade = true;
                    found.hop_by_hop = true;
                }
                "expect" => {
                    found.expect = true;
                    found.unexpected |= !value.as_bytes().eq_ignore_ascii_case(b"100-continue");
                }
                _ => found.hop_by_hop |= is_hop_by_hop(name),
            }
        }
        found
    }

    /// Removes hop-by-hop fields, those named by `Connection` too.
    fn strip(&self, headers: &mut HeaderMap) -> Result<(), Contradiction> {
        if self.connection {
            let mut named = Vec::new();
            for token in tokens(headers, &header::CONNECTION) {
                // Removed anyway, and what connections say most.
                if token.eq_ignore_ascii_case(b"keep-alive") {
                    continue;
                }
                // What is no field name names nothing to remove, and so does an option such as `close`, or a field that
                // is not there.
                let Ok(name) = std::str::from_utf8(token) else { continue };
                if FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing.as_str())) {
                    return Err(Contradiction);
                }
                if headers.contains_key(name) {
                    named.extend(HeaderName::from_bytes(token));
                }
            }
            for name in named {
                headers.remove(name);
            }
            headers.remove(header::CONNECTION);
        }
        if self.hop_by_hop {
            for name in &HOP_BY_HOP {
                headers.remove(name);
            }
        }
        Ok(())
    }
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
    let found = Survey::of(headers);
    if found.bytes > limits.request_bytes {
        return Err(RequestFault::HeadersTooLong);
    }
    let length = found.length.get().map_err(|_| RequestFault::ContentLength)?;
    let chunked = found.chunked.get().map_err(|_| RequestFault::TransferEncoding)?;
    if chunked.is_some() && length.is_some() {
        return Err(RequestFault::TransferEncoding);
    }
    if found.upgrade {
        return Err(RequestFault::Upgrade);
    }
    if found.unexpected {
        return Err(RequestFault::Expect);
    }
    found.strip(headers).map_err(|_| RequestFault::Connection)?;
    if found.expect {
        // The body follows at once, so the question whether it may is not passed on.
        headers.remove(header::EXPECT);
    }
    headers.remove(header::HOST);
    if length.is_some() {
        headers.remove(header::CONTENT_LENGTH);
    }
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
    let found = Survey::of(headers);
    if headers.len() > limits.response_headers || found.bytes > limits.response_bytes {
        return Err(ResponseFault::HeadTooLarge);
    }
    let length = found.length.get().map_err(|_| ResponseFault::ContentLength)?;
    let chunked = found.chunked.get().map_err(|_| ResponseFault::TransferEncoding)?.is_some();
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
    let says = |option| found.connection && names(headers, option);
    let keep_alive = !says("close")
        && framing != Framing::UntilClose
        && (version == Version::HTTP_11 || (version == Version::HTTP_10 && says("keep-alive")));
    found.strip(headers).map_err(|_| ResponseFault::Malformed)?;
    Ok(Verdict { framing, keep_alive })
}

/// Takes out of a trailer section what may not be in one: fields that frame, route or authenticate.
pub(crate) fn sanitise_trailers(trailers: &mut HeaderMap) -> Result<(), ResponseFault> {
    Survey::of(trailers).strip(trailers).map_err(|_| ResponseFault::Framing)?;
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

fn number(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    // `parse` would take a leading plus sign.
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
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

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
