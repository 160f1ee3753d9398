//! What an HTTP provider is configured with: origins, name servers, bounds, a credential.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::header::{self, HeaderName};
use zeroize::Zeroizing;

use super::error::{ConfigFault, HttpError, HttpErrorKind};

/// The most origins of one provider.
pub const MAXIMUM_ORIGINS: usize = 64;
/// The most addresses dialled for one origin, static or resolved.
pub const MAXIMUM_ADDRESSES: usize = 8;
/// The most bytes of a head, of either direction.
pub const MAXIMUM_HEAD_BYTES: usize = 64 * 1024;
/// The most bytes of a chunk of a body.
pub const MAXIMUM_CHUNK_BYTES: u32 = 1024 * 1024;
/// The most bytes of a credential.
pub const MAXIMUM_CREDENTIAL_BYTES: usize = 8 * 1024;

/// One epoch of an HTTP provider.
///
/// `Debug` shows everything but the credential.
#[derive(Debug, Clone)]
pub struct HttpProviderConfig {
    /// The logical provider's name.
    pub name: String,
    /// The epoch's number; each installation needs a new one.
    pub epoch: u64,
    /// A digest of the configuration, kept beside the epoch for whoever compares; the adapter does not read it.
    pub digest: Option<String>,
    /// The origins that can be called, addressed by their place in this list. 1 to [`MAXIMUM_ORIGINS`].
    pub origins: Vec<OriginConfig>,
    /// Where names are resolved.
    pub dns: ResolverConfig,
    /// A header added to each request; its value lives in the epoch and is wiped with it.
    pub credentials: Option<HttpCredential>,
    /// Bounds of one dial.
    pub dial: DialLimits,
    /// Bounds of heads.
    pub head: HeadLimits,
    /// Bounds of bodies.
    pub body: BodyLimits,
}

impl HttpProviderConfig {
    /// A provider without origins, with the default bounds.
    pub fn new(name: impl Into<String>, epoch: u64) -> Self {
        Self {
            name: name.into(),
            epoch,
            digest: None,
            origins: Vec::new(),
            dns: ResolverConfig::default(),
            credentials: None,
            dial: DialLimits::default(),
            head: HeadLimits::default(),
            body: BodyLimits::default(),
        }
    }

    /// Adds an origin; its slot is its place in the list.
    pub fn origin(mut self, origin: OriginConfig) -> Self {
        self.origins.push(origin);
        self
    }
}

/// One origin: where requests go, and by nothing else than this.
#[derive(Debug, Clone)]
pub struct OriginConfig {
    /// `http://host[:port]` or `https://host[:port]`, without user, path, query or fragment.
    pub url: String,
    /// Addresses to dial instead of asking a name server, at most [`MAXIMUM_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// Which addresses of special ranges may be dialled.
    pub allow: AllowedAddresses,
    /// Trust for https; unused for http.
    pub tls: TlsConfig,
    /// Whether connections are kept for later requests. `false` sends `Connection: close`.
    pub keep_alive: bool,
}

impl OriginConfig {
    /// An origin on public addresses, with public roots, kept alive.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            addresses: Vec::new(),
            allow: AllowedAddresses::default(),
            tls: TlsConfig::default(),
            keep_alive: true,
        }
    }

    /// Allows loopback addresses.
    pub fn allow_loopback(mut self) -> Self {
        self.allow.loopback = true;
        self
    }

    /// Allows private addresses (RFC 1918, `fc00::/7`).
    pub fn allow_private(mut self) -> Self {
        self.allow.private = true;
        self
    }
}

/// Which addresses of special ranges an origin may use. Public addresses need no mention.
#[derive(Debug, Clone, Default)]
pub struct AllowedAddresses {
    /// `127.0.0.0/8` and `::1`.
    pub loopback: bool,
    /// `10.0.0.0/8`, `172.16.0.0/12`, `192.168.0.0/16` and `fc00::/7`.
    pub private: bool,
    /// Exact addresses of any range, metadata services and link-local ones too.
    pub exact: Vec<IpAddr>,
}

/// Trust for an https origin.
#[derive(Debug, Clone, Default)]
pub struct TlsConfig {
    /// Which authorities are trusted.
    pub roots: TlsRoots,
    /// The name asked for and verified, where it is not the host of the URL.
    pub server_name: Option<String>,
}

/// Which authorities are trusted.
#[derive(Clone, Default)]
pub enum TlsRoots {
    /// The public authorities of the Mozilla list that was compiled in.
    #[default]
    Public,
    /// Exactly these certificates (DER), and no public authority.
    Der(Vec<Vec<u8>>),
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("Public"),
            Self::Der(roots) => write!(f, "Der({} certificates)", roots.len()),
        }
    }
}

/// Where names are resolved.
#[derive(Debug, Clone)]
pub struct ResolverConfig {
    /// Name servers in the order they are asked; empty: the `nameserver` lines of `/etc/resolv.conf`, read when the
    /// provider is installed. At most 8.
    pub servers: Vec<SocketAddr>,
    /// How long one server may take before the question is sent again, to the next one. 10 ms to 30 s. Asking goes
    /// on until the call's deadline.
    pub attempt: Duration,
    /// The longest an answer is remembered, whatever its own time to live; zero remembers nothing. At most 5 min.
    pub maximum_ttl: Duration,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self { servers: Vec::new(), attempt: Duration::from_secs(2), maximum_ttl: Duration::from_secs(30) }
    }
}

/// A header that authenticates the node at the origins.
#[derive(Clone)]
pub struct HttpCredential {
    header: HeaderName,
    value: Zeroizing<Vec<u8>>,
}

impl HttpCredential {
    /// A header and its value, as in `authorization` and `Bearer ...`. The value is wiped when the configuration is
    /// dropped, and lives on only in the epoch.
    pub fn new(header: HeaderName, value: impl Into<Vec<u8>>) -> Self {
        Self { header, value: Zeroizing::new(value.into()) }
    }

    pub(crate) fn header(&self) -> &HeaderName {
        &self.header
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }
}

impl fmt::Debug for HttpCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCredential").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Bounds of one dial, inside the call's deadline.
#[derive(Debug, Clone, Copy)]
pub struct DialLimits {
    /// The longest that TCP and TLS with one address may take before the next address is tried. 10 ms to 60 s.
    pub attempt: Duration,
}

impl Default for DialLimits {
    fn default() -> Self {
        Self { attempt: Duration::from_secs(5) }
    }
}

/// Bounds of heads.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Bytes of a request's path and query. At most 16 KiB.
    pub target_bytes: usize,
    /// Fields of a request.
    pub request_headers: usize,
    /// Bytes of a request's field names and values together.
    pub request_bytes: usize,
    /// Fields of a response, and of its trailers.
    pub response_headers: usize,
    /// Bytes of a response's head from the status line to the empty line, and of its trailers.
    pub response_bytes: usize,
    /// Interim (1xx) responses to one request.
    pub interim: u32,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            target_bytes: 8 * 1024,
            request_headers: 64,
            request_bytes: 8 * 1024,
            response_headers: 100,
            response_bytes: 16 * 1024,
            interim: 16,
        }
    }
}

/// Bounds of bodies.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Total bytes of a streamed request body.
    pub request_bytes: u64,
    /// Total bytes of a streamed response body.
    pub response_bytes: u64,
    /// Bytes of a buffered response body; also what a buffered call declares as its output.
    pub buffered_response_bytes: usize,
    /// Bytes of one chunk of a window. 512 to [`MAXIMUM_CHUNK_BYTES`].
    pub chunk_bytes: u32,
    /// Chunks of a window in each direction. 1 to 128. A streaming call prepays its windows.
    pub outstanding_chunks: u32,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            request_bytes: 16 * 1024 * 1024,
            response_bytes: 16 * 1024 * 1024,
            buffered_response_bytes: 32 * 1024,
            chunk_bytes: 16 * 1024,
            outstanding_chunks: 2,
        }
    }
}

pub(crate) fn fault(origin: Option<u16>, key: &'static str, rule: &'static str) -> HttpError {
    HttpError::unsent(HttpErrorKind::Config(ConfigFault { origin, key, rule }))
}

/// Checks everything that does not belong to one origin.
pub(crate) fn check(config: &HttpProviderConfig) -> Result<(), HttpError> {
    let within = |ok: bool, key, rule| if ok { Ok(()) } else { Err(fault(None, key, rule)) };
    let (head, body) = (&config.head, &config.body);
    within(!config.name.is_empty(), "name", "must not be empty")?;
    within((1..=MAXIMUM_ORIGINS).contains(&config.origins.len()), "origins", "must be 1 to 64")?;
    within(config.dns.servers.len() <= 8, "dns.servers", "must be at most 8")?;
    within(spans(config.dns.attempt, 10, 30_000), "dns.attempt", "must be 10 ms to 30 s")?;
    within(config.dns.maximum_ttl <= Duration::from_secs(300), "dns.maximum_ttl", "must be at most 5 min")?;
    within(spans(config.dial.attempt, 10, 60_000), "dial.attempt", "must be 10 ms to 60 s")?;
    within((1..=16 * 1024).contains(&head.target_bytes), "head.target_bytes", "must be 1 to 16,384")?;
    within((1..=256).contains(&head.request_headers), "head.request_headers", "must be 1 to 256")?;
    within(
        (64..=MAXIMUM_HEAD_BYTES).contains(&head.request_bytes),
        "head.request_bytes",
        "must be 64 to 65,536",
    )?;
    within((1..=256).contains(&head.response_headers), "head.response_headers", "must be 1 to 256")?;
    within(
        (64..=MAXIMUM_HEAD_BYTES).contains(&head.response_bytes),
        "head.response_bytes",
        "must be 64 to 65,536",
    )?;
    within(head.interim <= 1024, "head.interim", "must be at most 1,024")?;
    within(
        (512..=MAXIMUM_CHUNK_BYTES).contains(&body.chunk_bytes),
        "body.chunk_bytes",
        "must be 512 to 1,048,576",
    )?;
    within((1..=128).contains(&body.outstanding_chunks), "body.outstanding_chunks", "must be 1 to 128")?;
    if let Some(credential) = &config.credentials {
        within(
            (1..=MAXIMUM_CREDENTIAL_BYTES).contains(&credential.value.len())
                && http::HeaderValue::from_bytes(&credential.value).is_ok(),
            "credentials",
            "must be 1 to 8,192 bytes that a header may hold",
        )?;
        within(
            credential.header != header::HOST
                && credential.header != header::CONTENT_LENGTH
                && !super::headers::is_hop_by_hop(&credential.header),
            "credentials",
            "must not be a header that frames or routes the message",
        )?;
    }
    Ok(())
}

fn spans(value: Duration, low_ms: u64, high_ms: u64) -> bool {
    (Duration::from_millis(low_ms)..=Duration::from_millis(high_ms)).contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faulty(change: impl FnOnce(&mut HttpProviderConfig)) -> &'static str {
        let mut config = HttpProviderConfig::new("orders", 1).origin(OriginConfig::new("http://example.org"));
        assert_eq!(check(&config), Ok(()));
        change(&mut config);
        match check(&config).expect_err("the change breaks a rule").kind() {
            HttpErrorKind::Config(fault) => fault.key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_bound_is_checked_and_named() {
        assert_eq!(faulty(|c| c.name.clear()), "name");
        assert_eq!(faulty(|c| c.origins.clear()), "origins");
        assert_eq!(faulty(|c| c.dns.attempt = Duration::ZERO), "dns.attempt");
        assert_eq!(faulty(|c| c.dns.maximum_ttl = Duration::from_secs(301)), "dns.maximum_ttl");
        assert_eq!(faulty(|c| c.dial.attempt = Duration::from_secs(61)), "dial.attempt");
        assert_eq!(faulty(|c| c.head.target_bytes = 0), "head.target_bytes");
        assert_eq!(faulty(|c| c.head.request_headers = 257), "head.request_headers");
        assert_eq!(faulty(|c| c.head.response_bytes = 1 << 20), "head.response_bytes");
        assert_eq!(faulty(|c| c.body.chunk_bytes = 100), "body.chunk_bytes");
        assert_eq!(faulty(|c| c.body.outstanding_chunks = 0), "body.outstanding_chunks");
        assert_eq!(
            faulty(|c| c.credentials = Some(HttpCredential::new(header::CONNECTION, "close"))),
            "credentials"
        );
        assert_eq!(
            faulty(|c| c.credentials = Some(HttpCredential::new(header::AUTHORIZATION, "a\nb"))),
            "credentials"
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let config = HttpProviderConfig {
            credentials: Some(HttpCredential::new(header::AUTHORIZATION, "Bearer hush")),
            ..HttpProviderConfig::new("orders", 1)
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("authorization") && !shown.contains("hush"), "{shown}");
    }
}
