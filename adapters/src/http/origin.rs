//! One configured origin: scheme, host, port, the `Host` field, its addresses and its trust, checked at installation.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use http::{HeaderValue, Uri};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::config::{AllowedAddresses, MAXIMUM_ADDRESSES, OriginConfig, TlsRoots, fault};
use super::error::HttpError;
use super::tls;

/// What a host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// Fixed addresses: a literal in the URL, static ones, or loopback for `localhost`.
    Fixed(Vec<IpAddr>),
    /// A name to ask for, absolute, in lower case, without the last dot.
    Name(String),
}

/// An origin as requests use it.
pub(crate) struct Origin {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) host_field: HeaderValue,
    pub(crate) allow: AllowedAddresses,
    pub(crate) tls: Option<Tls>,
    pub(crate) keep_alive: bool,
    /// The last answer of a name server. Only touched while dialling, and a client has one dial at a time.
    pub(crate) resolved: Mutex<Option<Resolved>>,
}

/// How TLS is spoken with an origin.
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    pub(crate) server_name: ServerName<'static>,
}

/// A remembered answer.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) until: Instant,
}

impl Origin {
    /// Checks an origin's configuration; `slot` is its place, for the message.
    pub(crate) fn new(config: &OriginConfig, slot: u16) -> Result<Self, HttpError> {
        let wrong = |key, rule| fault(Some(slot), key, rule);
        let uri: Uri = config.url.parse().map_err(|_| wrong("url", "must be http(s)://host[:port]"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("url", "must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("url", "must have a host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("url", "must not hold a user or password"));
        }
        // `Uri` drops a fragment without a word.
        if uri.path() != "/" || uri.query().is_some() || config.url.contains('#') {
            return Err(wrong("url", "must not hold a path, query or fragment"));
        }
        let standard = if secure { 443 } else { 80 };
        let text = authority.host();
        // Not `port_u16`: it says `None` for what is no port.
        let port = match authority.as_str().strip_prefix(text) {
            Some("") => Some(standard),
            Some(port) => port[1..].parse().ok().filter(|port| *port != 0),
            None => None,
        };
        let port = port.ok_or_else(|| wrong("url", "must have a port from 1 to 65535, or none"))?;
        let host = host(text, &config.addresses).ok_or_else(|| wrong("url", "must have a valid host"))?;
        if let Host::Fixed(addresses) = &host {
            if addresses.len() > MAXIMUM_ADDRESSES {
                return Err(wrong("addresses", "must be at most 8"));
            }
            if !addresses.iter().any(|address| config.allow.permits(*address)) {
                return Err(wrong("allow", "must name the special range that the origin's addresses are of"));
            }
        }
        let host_field = if port == standard { text.to_owned() } else { format!("{text}:{port}") };
        Ok(Self {
            host,
            port,
            host_field: HeaderValue::try_from(host_field)
                .map_err(|_| wrong("url", "must have a valid host"))?,
            allow: config.allow.clone(),
            tls: if secure { Some(trust(config, text, slot)?) } else { None },
            keep_alive: config.keep_alive,
            resolved: Mutex::new(None),
        })
    }

    /// The remembered answer, while it holds.
    pub(crate) fn remembered(&self, now: Instant) -> Option<Vec<IpAddr>> {
        let resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        resolved.as_ref().filter(|resolved| now < resolved.until).map(|resolved| resolved.addresses.clone())
    }

    pub(crate) fn remember(&self, resolved: Resolved) {
        *self.resolved.lock().unwrap_or_else(PoisonError::into_inner) = Some(resolved);
    }
}

fn trust(config: &OriginConfig, host: &str, slot: u16) -> Result<Tls, HttpError> {
    let wrong = |key, rule| fault(Some(slot), key, rule);
    if let TlsRoots::Der(roots) = &config.tls.roots
        && !(1..=64).contains(&roots.len())
    {
        return Err(wrong("tls.roots", "must be 1 to 64 certificates"));
    }
    let client = tls::client_config(&config.tls.roots)
        .ok_or_else(|| wrong("tls.roots", "must be DER certificates of authorities"))?;
    let name = config.tls.server_name.as_deref().unwrap_or_else(|| host.trim_matches(['[', ']']));
    let server_name = ServerName::try_from(name.trim_end_matches('.').to_owned())
        .map_err(|_| wrong("tls.server_name", "must be a DNS name or an address"))?;
    Ok(Tls { connector: TlsConnector::from(client), server_name })
}

/// What a URL's host leads to; `None` if it is none.
fn host(text: &str, addresses: &[IpAddr]) -> Option<Host> {
    let literal = match text.strip_prefix('[') {
        Some(rest) => Some(IpAddr::V6(rest.strip_suffix(']')?.parse().ok()?)),
        None => text.parse().ok().map(IpAddr::V4),
    };
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if literal.is_none() && !is_name(&name) {
        return None;
    }
    Some(if !addresses.is_empty() {
        Host::Fixed(addresses.to_vec())
    } else if let Some(literal) = literal {
        Host::Fixed(vec![literal])
    } else if name == "localhost" || name.ends_with(".localhost") {
        // RFC 6761: never asked of a name server.
        Host::Fixed(vec![std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()])
    } else {
        Host::Name(name)
    })
}

/// Letters, digits, hyphens and underscores in labels of 1 to 63, 253 in all, and a last label that is no number
/// (an address in some other notation).
fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = name.rsplit('.').next().unwrap_or(name);
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    name.len() <= 253 && name.split('.').all(label) && !numeric
}

#[cfg(test)]
mod tests {
    use super::super::error::HttpErrorKind;
    use super::*;

    fn origin(url: &str) -> Result<Origin, (&'static str, &'static str)> {
        let config = OriginConfig::new(url).allow_loopback().allow_private();
        Origin::new(&config, 3).map_err(|error| match error.kind() {
            HttpErrorKind::Config(fault) => {
                assert_eq!(fault.origin, Some(3));
                (fault.key, fault.rule)
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let plain = origin("http://Example.ORG").expect("an origin");
        assert_eq!((plain.host, plain.port), (Host::Name("example.org".into()), 80));
        assert_eq!(plain.host_field, "Example.ORG");
        assert!(plain.tls.is_none());
        let secure = origin("https://example.org.:8443/").expect("an origin");
        assert_eq!((secure.host, secure.port), (Host::Name("example.org".into()), 8443));
        assert_eq!(secure.host_field, "example.org.:8443");
        assert!(secure.tls.is_some());
        let literal = origin("http://[::1]:8080").expect("an origin");
        assert_eq!(literal.host, Host::Fixed(vec!["::1".parse().expect("an address")]));
        assert_eq!(literal.host_field, "[::1]:8080");
        let local = origin("http://db.localhost").expect("an origin");
        assert!(matches!(local.host, Host::Fixed(addresses) if addresses.iter().all(IpAddr::is_loopback)));
    }

    #[test]
    fn anything_else_in_the_url_is_refused() {
        for url in [
            "",
            "example.org",
            "/path",
            "ftp://example.org",
            "http://",
            "http://user@example.org",
            "http://u:p@example.org",
            "http://example.org/path",
            "http://example.org/?q",
            "http://example.org?q",
            "http://example.org/#f",
            "http://example.org#f",
            "http://example.org:0",
            "http://example.org:65536",
            "http://example.org:",
            "http://exa mple.org",
            "http://-a.org",
            "http://a..org",
            "http://1.2.3",
            "http://0x7f.1",
            "http://127.1",
            "http://[::1",
            "http://b\u{fc}cher.example",
            "http://a%41.org",
        ] {
            assert!(origin(url).is_err(), "{url}");
        }
    }

    #[test]
    fn s70_special_addresses_need_consent_at_installation() {
        for url in [
            "http://127.0.0.1",
            "http://localhost",
            "http://10.1.1.1",
            "http://169.254.169.254",
            "http://[fe80::1]",
        ] {
            let error = Origin::new(&OriginConfig::new(url), 0).err().expect("refused");
            assert!(matches!(error.kind(), HttpErrorKind::Config(fault) if fault.key == "allow"), "{url}");
        }
        assert!(Origin::new(&OriginConfig::new("http://127.0.0.1").allow_loopback(), 0).is_ok());
        let loopback_only = OriginConfig::new("http://169.254.169.254").allow_loopback().allow_private();
        assert!(Origin::new(&loopback_only, 0).is_err());
    }
}
