//! Why a request did not end well: one small `Copy` error with a stable code, the effect at the origin and a hint for
//! gateways.

use std::fmt;
use std::time::Duration;

use latent_capabilities::broker::{Effect, Error, Kind, Which};

/// Why a request failed, and what that says about its effect at the origin.
///
/// Small and `Copy`; making one allocates nothing, and none holds a header, a path or a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpError {
    kind: HttpErrorKind,
    effect: Effect,
}

/// The kinds of [`HttpError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// The library refused the call or ended it: a full dimension, the deadline, a stop, retirement, backoff.
    Library(Error),
    /// The configuration of the provider cannot be installed.
    Config(ConfigFault),
    /// The request may not be sent as it stands.
    Request(RequestFault),
    /// The request's body is longer than the limit or than the length it declared.
    RequestTooLarge,
    /// The request's body ended before the length it declared.
    RequestCutShort,
    /// The request's body, which the caller supplies, failed.
    RequestBody,
    /// The origin's name could not be turned into an address.
    Resolve(ResolveFault),
    /// A resolved address is of a special range that this origin may not use.
    AddressRefused,
    /// No address of the origin accepted a connection.
    Connect(ConnectFault),
    /// The machine has no local port left for the origin's address.
    LocalPortsExhausted,
    /// The TLS handshake failed.
    Tls(TlsFault),
    /// The origin closed or reset the connection before its answer began.
    Closed,
    /// The origin's answer breaks a rule of HTTP or of this adapter.
    Response(ResponseFault),
    /// The response is longer than the limit.
    ResponseTooLarge,
    /// The response ended before it was complete.
    Truncated {
        /// Bytes of body received until then.
        received: u64,
    },
}

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigFault {
    /// The origin concerned, by its place in the list; `None`: the provider itself.
    pub origin: Option<u16>,
    /// The key concerned, as in `dial.attempt`.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub rule: &'static str,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestFault {
    /// The method opens a tunnel or reflects credentials: `CONNECT`, `TRACE`.
    Method,
    /// The target is not an absolute path of visible ASCII.
    Target,
    /// The target is longer than its bound.
    TargetTooLong,
    /// The provider has no origin of that slot.
    Origin,
    /// There are too many header fields.
    TooManyHeaders,
    /// The header fields are too long together.
    HeadersTooLong,
    /// `Content-Length` is repeated, not a number, or differs from the body's own length.
    ContentLength,
    /// `Transfer-Encoding` is something else than `chunked`, or comes with a `Content-Length`.
    TransferEncoding,
    /// `Connection` names a field that frames or routes the message.
    Connection,
    /// The request asks for another protocol.
    Upgrade,
    /// `Expect` asks for something else than `100-continue`.
    Expect,
}

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveFault {
    /// There is no such name, or it has no address.
    NoAddress,
    /// Each name server refused, failed or could not be reached.
    ServerFailed,
    /// There is no name server to ask.
    NoServer,
    /// A name server's answer could not be understood.
    Malformed,
}

/// Why no connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectFault {
    /// The port is closed.
    Refused,
    /// There is no way to the address.
    Unreachable,
    /// No answer within `dial.attempt`.
    TimedOut,
    /// The system refused the socket.
    System,
}

/// Why a TLS handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// The certificate is not trusted, expired, or for another name.
    Certificate,
    /// The peer broke the protocol, refused ours or speaks something else.
    Handshake,
    /// The peer went away during the handshake.
    Closed,
}

/// Which rule a response breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseFault {
    /// The head cannot be parsed.
    Malformed,
    /// The head is longer or has more fields than the limit.
    HeadTooLarge,
    /// The status is outside `200..=599`.
    Status,
    /// The origin changes to another protocol, unasked.
    Upgrade,
    /// More interim (1xx) responses than the limit.
    TooManyInterim,
    /// `Content-Length` is repeated or not a number.
    ContentLength,
    /// `Transfer-Encoding` is something else than `chunked`, or comes with a `Content-Length`.
    TransferEncoding,
    /// The body's chunks or trailers are malformed or too long.
    Framing,
}

impl HttpError {
    pub(crate) const fn new(kind: HttpErrorKind, effect: Effect) -> Self {
        match (kind, effect) {
            // The library cannot know what the connection had accepted when it ended the call.
            (HttpErrorKind::Library(error), Effect::Sent | Effect::Uncertain) => {
                Self { kind: HttpErrorKind::Library(error.after_start()), effect }
            }
            _ => Self { kind, effect },
        }
    }

    /// A failure before any byte of the request was accepted by the connection.
    pub(crate) const fn unsent(kind: HttpErrorKind) -> Self {
        Self::new(kind, Effect::NotSent)
    }

    /// What went wrong.
    pub fn kind(&self) -> HttpErrorKind {
        self.kind
    }

    /// What is known about the request's effect.
    ///
    /// [`Effect::NotSent`]: no byte of it was accepted by a connection, sending it again is safe.
    /// [`Effect::Uncertain`]: some of it may have arrived; the adapter never sends it again by itself.
    /// [`Effect::Sent`]: the origin answered it, but the answer did not arrive whole.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// When another attempt can make sense, where that is known: an origin in backoff.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            HttpErrorKind::Library(error) => error.retry_after(),
            _ => None,
        }
    }

    /// A stable word for logs and metrics.
    pub fn code(&self) -> &'static str {
        match self.kind {
            HttpErrorKind::Library(error) => error.code(),
            HttpErrorKind::Config(_) => "http-config-invalid",
            HttpErrorKind::Request(_) => "http-request-invalid",
            HttpErrorKind::RequestTooLarge => "http-request-too-large",
            HttpErrorKind::RequestCutShort => "http-request-cut-short",
            HttpErrorKind::RequestBody => "http-request-body-failed",
            HttpErrorKind::Resolve(_) => "http-resolve-failed",
            HttpErrorKind::AddressRefused => "http-address-refused",
            HttpErrorKind::Connect(_) => "http-connect-failed",
            HttpErrorKind::LocalPortsExhausted => "http-local-ports-exhausted",
            HttpErrorKind::Tls(_) => "http-tls-failed",
            HttpErrorKind::Closed => "http-connection-closed",
            HttpErrorKind::Response(_) => "http-response-invalid",
            HttpErrorKind::ResponseTooLarge => "http-response-too-large",
            HttpErrorKind::Truncated { .. } => "http-response-truncated",
        }
    }

    /// The status a gateway may answer with.
    ///
    /// 400, 413, 414, 431: the request itself. 403: denied. 429: a dimension is full. 500: the provider's configuration.
    /// 502: the origin or its name server broke the exchange. 503: backoff, a dial under way, too long a
    /// wait for a turn, retirement, stop, no local port. 504: the deadline.
    pub fn gateway_status(&self) -> u16 {
        match self.kind {
            HttpErrorKind::Library(error) => library_status(error),
            HttpErrorKind::Config(_) => 500,
            HttpErrorKind::Request(RequestFault::TargetTooLong) => 414,
            HttpErrorKind::Request(RequestFault::TooManyHeaders | RequestFault::HeadersTooLong) => 431,
            HttpErrorKind::Request(_) | HttpErrorKind::RequestCutShort | HttpErrorKind::RequestBody => 400,
            HttpErrorKind::RequestTooLarge => 413,
            HttpErrorKind::LocalPortsExhausted => 503,
            HttpErrorKind::Resolve(_)
            | HttpErrorKind::AddressRefused
            | HttpErrorKind::Connect(_)
            | HttpErrorKind::Tls(_)
            | HttpErrorKind::Closed
            | HttpErrorKind::Response(_)
            | HttpErrorKind::ResponseTooLarge
            | HttpErrorKind::Truncated { .. } => 502,
        }
    }
}

fn library_status(error: Error) -> u16 {
    match error.kind() {
        Kind::Full(_) => 429,
        Kind::TooLarge(_) => 413,
        Kind::Denied(_) => 403,
        Kind::Invalid(_) => 500,
        Kind::Deadline(Which::Operation | Which::Session) => 504,
        // Waited too long for a turn, backoff, a dial under way, stopped, retired: later, elsewhere or never.
        _ => 503,
    }
}

impl From<Error> for HttpError {
    /// A refusal of the library before anything was sent keeps the effect that the library states.
    fn from(error: Error) -> Self {
        Self::new(HttpErrorKind::Library(error), error.effect())
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            HttpErrorKind::Config(fault) => return fault.fmt(f),
            HttpErrorKind::Library(error) => error.fmt(f),
            HttpErrorKind::Request(fault) => write!(f, "the request may not be sent: {}", fault.rule()),
            HttpErrorKind::RequestTooLarge => f.write_str("the request's body is too long"),
            HttpErrorKind::RequestCutShort => {
                f.write_str("the request's body ended before its declared length")
            }
            HttpErrorKind::RequestBody => f.write_str("the request's body failed"),
            HttpErrorKind::Resolve(fault) => f.write_str(fault.rule()),
            HttpErrorKind::AddressRefused => {
                f.write_str("the origin's name leads to an address of a special range")
            }
            HttpErrorKind::Connect(fault) => f.write_str(fault.rule()),
            HttpErrorKind::LocalPortsExhausted => f.write_str("no local port is left for the origin"),
            HttpErrorKind::Tls(fault) => f.write_str(fault.rule()),
            HttpErrorKind::Closed => f.write_str("the origin closed the connection before it answered"),
            HttpErrorKind::Response(fault) => write!(f, "the origin's answer is refused: {}", fault.rule()),
            HttpErrorKind::ResponseTooLarge => f.write_str("the response's body is too long"),
            HttpErrorKind::Truncated { received } => {
                write!(f, "the response's body was cut off after {received} bytes")
            }
        }?;
        match self.effect {
            Effect::NotSent => f.write_str(" (not sent)"),
            Effect::Sent => f.write_str(" (sent)"),
            // The library's own text has said so.
            Effect::Uncertain if matches!(self.kind, HttpErrorKind::Library(error) if error.effect() == self.effect) => {
                Ok(())
            }
            Effect::Uncertain => f.write_str(" (the effect is uncertain)"),
        }
    }
}

impl std::error::Error for HttpError {}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = self.origin {
            write!(f, "origin {origin}: ")?;
        }
        write!(f, "{}: {}", self.key, self.rule)
    }
}

impl RequestFault {
    fn rule(self) -> &'static str {
        match self {
            Self::Method => "CONNECT and TRACE are not forwarded",
            Self::Target => "the target must be an absolute path of visible ASCII",
            Self::TargetTooLong => "the target is too long",
            Self::Origin => "the provider has no such origin",
            Self::TooManyHeaders => "too many header fields",
            Self::HeadersTooLong => "the header fields are too long",
            Self::ContentLength => "Content-Length must be one number and equal the body's length",
            Self::TransferEncoding => "Transfer-Encoding must be chunked, without Content-Length",
            Self::Connection => "Connection may not name a field that frames or routes the message",
            Self::Upgrade => "other protocols cannot be asked for",
            Self::Expect => "Expect may only be 100-continue",
        }
    }
}

impl ResolveFault {
    fn rule(self) -> &'static str {
        match self {
            Self::NoAddress => "the origin's name has no address",
            Self::ServerFailed => "no name server gave an answer",
            Self::NoServer => "there is no name server to ask",
            Self::Malformed => "the name server's answer is malformed",
        }
    }
}

impl ConnectFault {
    fn rule(self) -> &'static str {
        match self {
            Self::Refused => "the origin refused the connection",
            Self::Unreachable => "the origin cannot be reached",
            Self::TimedOut => "the origin did not accept the connection in time",
            Self::System => "the system refused the connection",
        }
    }
}

impl TlsFault {
    fn rule(self) -> &'static str {
        match self {
            Self::Certificate => "the origin's certificate is not accepted",
            Self::Handshake => "the TLS handshake failed",
            Self::Closed => "the origin went away during the TLS handshake",
        }
    }
}

impl ResponseFault {
    fn rule(self) -> &'static str {
        match self {
            Self::Malformed => "the head is malformed",
            Self::HeadTooLarge => "the head is too large",
            Self::Status => "the status is out of range",
            Self::Upgrade => "the origin changes the protocol unasked",
            Self::TooManyInterim => "too many interim responses",
            Self::ContentLength => "Content-Length is repeated or not a number",
            Self::TransferEncoding => "Transfer-Encoding is not chunked, or comes with a Content-Length",
            Self::Framing => "the chunks or trailers are malformed or too long",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_and_names_its_effect() {
        assert!(size_of::<HttpError>() <= 64);
        let error = HttpError::new(HttpErrorKind::Truncated { received: 7 }, Effect::Sent);
        assert_eq!(error.to_string(), "the response's body was cut off after 7 bytes (sent)");
        assert_eq!((error.code(), error.gateway_status()), ("http-response-truncated", 502));
        assert_eq!(error.retry_after(), None);
    }

    #[test]
    fn a_configuration_fault_says_where_and_what() {
        let fault = ConfigFault { origin: Some(2), key: "url", rule: "must be http or https" };
        let error = HttpError::unsent(HttpErrorKind::Config(fault));
        assert_eq!(error.to_string(), "origin 2: url: must be http or https");
    }
}
