//! A request as callers state it, and as it goes out.

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri, Version};
use latent_capabilities::Deadline;
use latent_capabilities::broker::pools::OriginSlot;

use super::config::{HeadLimits, HttpCredential};
use super::error::RequestFault;
use super::headers::sanitise_request;
use super::origin::Origin;
use super::upload::Upload;

/// A request to one of the provider's origins.
///
/// The origin is a slot of the configuration, never an address: nothing in a request decides where it goes.
/// `Host`, `Content-Length` and everything hop-by-hop are taken out of the headers and written anew.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// Any method but `CONNECT` and `TRACE`.
    pub method: Method,
    /// Which origin.
    pub origin: OriginSlot,
    /// Absolute path and query, sent as it is.
    pub path_and_query: PathAndQuery,
    /// End-to-end header fields.
    pub headers: HeaderMap,
    /// An earlier deadline than the session's, for everything from the queue to the last byte of the response. A later
    /// one changes nothing.
    pub deadline: Option<Deadline>,
    /// Whether the call may wait: in the queue, and for a connection. `false`: at once or refused.
    pub wait: bool,
}

impl HttpRequest {
    /// A request to the first origin that may wait until the session's deadline, without headers.
    pub fn new(method: Method, path_and_query: PathAndQuery) -> Self {
        Self {
            method,
            origin: OriginSlot::new(0),
            path_and_query,
            headers: HeaderMap::new(),
            deadline: None,
            wait: true,
        }
    }

    /// A `GET` of a path that is known to be valid.
    ///
    /// # Panics
    ///
    /// If the path is not valid.
    pub fn get(path_and_query: &'static str) -> Self {
        Self::new(Method::GET, PathAndQuery::from_static(path_and_query))
    }
}

impl HttpRequest {
    /// Checks a request and takes out of it what does not travel on. Only the origin's fields and the body's framing are
    /// missing then. `exact` is the length that the body itself knows. Returns the length that the body is to have; `None`: it
    /// is sent in chunks.
    pub(crate) fn prepare(
        &mut self,
        limits: &HeadLimits,
        exact: Option<u64>,
    ) -> Result<Option<u64>, RequestFault> {
        if self.method == Method::CONNECT || self.method == Method::TRACE {
            return Err(RequestFault::Method);
        }
        check_target(&self.method, self.path_and_query.as_str(), limits)?;
        let declared = sanitise_request(&mut self.headers, limits)?;
        match (declared, exact) {
            (Some(declared), Some(exact)) if declared != exact => Err(RequestFault::ContentLength),
            (declared, exact) => Ok(exact.or(declared)),
        }
    }

    /// The message for one origin, of a prepared request.
    pub(crate) fn for_origin(
        self,
        length: Option<u64>,
        origin: &Origin,
        credential: Option<(&HttpCredentialHeader, HeaderValue)>,
        body: Upload,
    ) -> Request<Upload> {
        let mut headers = self.headers;
        headers.insert(header::HOST, origin.host_field.clone());
        if let Some((name, value)) = credential {
            headers.insert(name.clone(), value);
        }
        if !origin.keep_alive {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        match length {
            // A method that usually has a body says so when it has none; the others stay silent.
            Some(0) if !matches!(self.method, Method::POST | Method::PUT | Method::PATCH) => {}
            Some(length) => {
                headers.insert(header::CONTENT_LENGTH, length.into());
            }
            None => {
                headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = Uri::from(self.path_and_query);
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers;
        request
    }
}

/// The name of the credential's header.
pub(crate) type HttpCredentialHeader = http::HeaderName;

/// The credential's header value: the bytes are wiped when the last copy is dropped, and it is marked as sensitive.
pub(crate) fn credential_value(bytes: &[u8]) -> Option<HeaderValue> {
    let owned = bytes::Bytes::from_owner(zeroize::Zeroizing::new(bytes.to_vec()));
    let mut value = HeaderValue::from_maybe_shared(owned).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// An absolute path of visible ASCII; `*` for `OPTIONS`.
fn check_target(method: &Method, target: &str, limits: &HeadLimits) -> Result<(), RequestFault> {
    let visible = target.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\'));
    let shaped = target.starts_with('/') || (target == "*" && *method == Method::OPTIONS);
    match (visible && shaped, target.len() <= limits.target_bytes) {
        (true, true) => Ok(()),
        (false, _) => Err(RequestFault::Target),
        (true, false) => Err(RequestFault::TargetTooLong),
    }
}

/// Keeps the two names of the credential in one place.
pub(crate) fn credential_header(credential: Option<&HttpCredential>) -> Option<HttpCredentialHeader> {
    credential.map(|credential| credential.header().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(method: Method, target: &str, exact: Option<u64>) -> Result<Option<u64>, RequestFault> {
        let target = PathAndQuery::try_from(target).map_err(|_| RequestFault::Target)?;
        HttpRequest::new(method, target).prepare(&HeadLimits::default(), exact)
    }

    #[test]
    fn tunnels_and_reflections_are_refused() {
        assert_eq!(outgoing(Method::CONNECT, "/", Some(0)).err(), Some(RequestFault::Method));
        assert_eq!(outgoing(Method::TRACE, "/", Some(0)).err(), Some(RequestFault::Method));
        assert!(outgoing(Method::from_bytes(b"PROPFIND").expect("a method"), "/", Some(0)).is_ok());
    }

    #[test]
    fn targets_are_absolute_paths_of_visible_ascii() {
        assert!(outgoing(Method::GET, "/a%20b?c=d&e=%C3%A9", Some(0)).is_ok());
        assert!(outgoing(Method::OPTIONS, "*", Some(0)).is_ok());
        for target in ["*", "a", "/a b", "/a\\b", "/\u{e9}", "/a\r\nb", "/a\u{7f}"] {
            assert_eq!(
                outgoing(Method::GET, target, Some(0)).err(),
                Some(RequestFault::Target),
                "{target:?}"
            );
        }
        let most = HeadLimits::default().target_bytes;
        let target = |bytes| format!("/{}", "a".repeat(bytes - 1));
        assert!(outgoing(Method::GET, &target(most), Some(0)).is_ok());
        let long = outgoing(Method::GET, &target(most + 1), Some(0));
        assert_eq!(long.err(), Some(RequestFault::TargetTooLong));
    }

    #[test]
    fn a_declared_length_must_be_the_bodys() {
        let with = |declared: &'static str, exact| {
            let mut request = HttpRequest::new(Method::POST, PathAndQuery::from_static("/"));
            request.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static(declared));
            request.prepare(&HeadLimits::default(), exact)
        };
        assert_eq!(with("5", Some(5)), Ok(Some(5)));
        assert_eq!(with("5", None), Ok(Some(5)), "kept, so that the body is not chunked");
        assert_eq!(with("5", Some(6)), Err(RequestFault::ContentLength));
    }

    #[test]
    fn a_credential_is_sensitive_and_has_no_copy() {
        let value = credential_value(b"Bearer hush").expect("a header value");
        assert!(value.is_sensitive());
        assert_eq!(format!("{value:?}"), "Sensitive");
        assert_eq!(credential_value(b"a\nb"), None);
    }
}
