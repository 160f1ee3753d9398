//! `[[providers]]`: what may be called, where it is, how it is trusted, and what each call may carry.

use std::net::IpAddr;
use std::time::Duration;

use http::Uri;
use http::header::HeaderName;
use latent_adapters::http::{
    AllowedAddresses, HttpProviderConfig, MAXIMUM_ADDRESSES, MAXIMUM_CREDENTIAL_BYTES, MAXIMUM_ORIGINS,
    OriginConfig, TlsConfig, TlsRoots,
};
use latent_capabilities::Dimension;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::reader::{Found, Section};
use super::{Limits, Secret, bounds, read_file, read_name};

/// A logical provider: one or more origins of one owner.
#[derive(Debug)]
pub(crate) struct Provider {
    /// Its name in URLs, plans, logs and figures.
    pub(crate) name: String,
    /// Longest time of one call.
    pub(crate) wall_time: Option<Duration>,
    /// The header that is added to every request, if any.
    pub(crate) credential: Option<Credential>,
    /// Everything else, as the adapter takes it; its credential is filled in from `credential`.
    pub(crate) http: HttpProviderConfig,
}

/// A header that is added to every request.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) header: HeaderName,
    pub(crate) value: Secret,
}

const LARGEST_PEM: usize = 1 << 20;

pub(super) fn read(sections: Vec<Section<'_>>, limits: &Limits) -> Vec<Provider> {
    let ceiling = limits.value(Dimension::BrokerProviders);
    if let Some(first_over) = sections.get(usize::try_from(ceiling).unwrap_or(usize::MAX)) {
        let text = format!("{} providers are more than limits.broker.providers {ceiling}", sections.len());
        first_over.wrong("", text);
    }
    let mut names = Vec::new();
    sections.into_iter().map(|section| provider(section, &mut names, limits)).collect()
}

fn provider(section: Section<'_>, names: &mut Vec<(String, usize)>, limits: &Limits) -> Provider {
    let name = read_name(&section, names);
    let epoch = section.count("epoch").and_then(|found| {
        found.read(|epoch| if *epoch == 0 { Err("must be 1 or more") } else { Ok(*epoch) })
    });
    let mut http = HttpProviderConfig::new(name.as_str(), epoch.unwrap_or(1));
    http.origins = section.sections("origins").into_iter().map(origin).collect();
    if !section.has("origins") {
        section.wrong("origins", "missing: write at least one [[providers.origins]]");
    }
    let clients = limits.value(Dimension::PoolsClientsPerProvider).min(MAXIMUM_ORIGINS as u64);
    if http.origins.len() as u64 > clients {
        let text = format!(
            "{} origins are more than limits.pools.clients_per_provider and the adapter allow, which is {clients}",
            http.origins.len()
        );
        section.wrong("origins", text);
    }
    let policy = section.section("policy");
    let wall_time = policy.duration("wall_time").and_then(|found| {
        found.read(|time| if time.is_zero() { Err("must be longer than 0 ms") } else { Ok(*time) })
    });
    policy.finish();
    bounds::read(&section, &mut http, limits);
    let credential = credential(section.section("credential"), limits);
    section.finish();
    Provider { name, wall_time, credential, http }
}

fn credential(section: Section<'_>, limits: &Limits) -> Option<Credential> {
    if !section.is_written() {
        return None;
    }
    let header = section.string("header").and_then(|found| {
        found.read(|name| {
            let right = "must be the name of a header, for example \"authorization\"";
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| right)
        })
    });
    if !section.has("header") {
        section.wrong(
            "header",
            "missing: the header that carries the credential, for example \"authorization\"",
        );
    }
    let largest =
        limits.value(Dimension::PoolsConfigurationBytes).min(MAXIMUM_CREDENTIAL_BYTES as u64) as usize;
    let value = section.string("file").and_then(|found| {
        found.read(|name| {
            let content = read_file(section.problems(), name, largest)?;
            let text = std::str::from_utf8(&content).map_err(|_| "the file does not hold text".to_owned())?;
            let text = text.trim_ascii();
            if text.is_empty() {
                return Err("the file is empty: it must hold the value of the header".to_owned());
            }
            if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
                return Err("the file must hold one line of visible ASCII: it travels in a header".to_owned());
            }
            Ok(Secret::new(text))
        })
    });
    if !section.has("file") {
        section.wrong("file", "missing: the file that holds the value, for example \"orders.credential\"");
    }
    section.finish();
    Some(Credential { header: header?, value: value? })
}

fn origin(section: Section<'_>) -> OriginConfig {
    let url = section.string("url");
    if !section.has("url") {
        section.wrong("url", "missing: for example \"https://orders.example\"");
    }
    let parsed = url.clone().and_then(|found| found.read(|text| origin_url(text)));
    let (scheme, host, port) = parsed.unwrap_or_default();
    let mut origin = OriginConfig::new(format!("{scheme}://{host}:{port}"));
    origin.allow = AllowedAddresses {
        loopback: section.boolean("allow_loopback").unwrap_or(false),
        private: section.boolean("allow_private").unwrap_or(false),
        exact: addresses(&section, "allow_addresses").into_iter().map(|found| found.value).collect(),
    };
    origin.keep_alive = section.boolean("keep_alive").unwrap_or(true);
    let listed = addresses(&section, "addresses");
    for found in &listed {
        if let Some(text) = refusal(found.value, &origin.allow) {
            found.wrong(text);
        }
    }
    if let Some(first_over) = listed.get(MAXIMUM_ADDRESSES) {
        first_over.wrong(format!("at most {MAXIMUM_ADDRESSES} addresses are dialled"));
    }
    if let (Some(url), Ok(literal)) = (&url, host.trim_matches(['[', ']']).parse::<IpAddr>())
        && listed.is_empty()
        && let Some(text) = refusal(literal, &origin.allow)
    {
        url.wrong(text);
    }
    origin.addresses = listed.into_iter().map(|found| found.value).collect();
    let inner = section.section("tls");
    if inner.is_written() && scheme == "http" {
        inner.wrong("", "the url is http: write https, or leave tls out");
    }
    origin.tls = tls(&inner);
    inner.finish();
    section.finish();
    origin
}

fn tls(section: &Section<'_>) -> TlsConfig {
    let roots = section.string("roots_file").and_then(|found| {
        found.read(|name| {
            let content = read_file(section.problems(), name, LARGEST_PEM)?;
            let each = CertificateDer::pem_slice_iter(&content);
            let certificates: Result<Vec<Vec<u8>>, _> = each.map(|der| der.map(|der| der.to_vec())).collect();
            match certificates {
                Ok(certificates) if !certificates.is_empty() => Ok(TlsRoots::Der(certificates)),
                Ok(_) => Err("the file holds no PEM certificate (-----BEGIN CERTIFICATE-----)".to_owned()),
                Err(error) => Err(format!("the file is not PEM: {error}")),
            }
        })
    });
    let server_name = section.string("server_name").and_then(|found| {
        found.read(|name| match is_host(name) {
            true => Ok((*name).to_owned()),
            false => Err("must be a host name, for example \"orders.example\""),
        })
    });
    TlsConfig { roots: roots.unwrap_or_default(), server_name }
}

/// Scheme, host and port of a URL that names an origin and nothing else.
fn origin_url(text: &str) -> Result<(&'static str, String, u16), String> {
    let right = "must be an origin, for example \"https://orders.example:8443\"";
    let refuse = |why: &str| Err(format!("{why}: {right}"));
    if text.contains('#') {
        return refuse("has a fragment");
    }
    let Ok(uri) = text.parse::<Uri>() else { return refuse("not a URL") };
    let scheme = match uri.scheme_str() {
        Some("http") => "http",
        Some("https") => "https",
        Some(_) => return refuse("neither http nor https"),
        None => return refuse("has no scheme"),
    };
    let Some(authority) = uri.authority() else { return refuse("has no host") };
    if authority.as_str().contains('@') {
        return Err(format!("has a user name; use [providers.credential]: {right}"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return refuse("has a path or query, which comes from the request");
    }
    let host = authority.host();
    if !is_host(host) && host.trim_matches(['[', ']']).parse::<IpAddr>().is_err() {
        return refuse("has no usable host");
    }
    let port = match (authority.port_u16(), authority.as_str().len() > host.len()) {
        (Some(0), _) | (None, true) => return refuse("has no usable port"),
        (Some(port), _) => port,
        (None, false) if scheme == "https" => 443,
        (None, false) => 80,
    };
    Ok((scheme, host.to_ascii_lowercase(), port))
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

/// The addresses of a list. Ports come from the URL.
fn addresses<'a>(section: &Section<'a>, key: &'static str) -> Vec<Found<'a, IpAddr>> {
    let each = section.strings(key).unwrap_or_default().into_iter().filter_map(|found| {
        let right = "must be an IP address without a port, for example \"192.0.2.7\"";
        let ip = found.clone().read(|text| text.parse::<IpAddr>().map_err(|_| right))?;
        Some(found.with(ip))
    });
    each.collect()
}

/// Why an address may not be dialled, and what would allow it.
fn refusal(ip: IpAddr, allow: &AllowedAddresses) -> Option<String> {
    if allow.exact.contains(&ip) {
        return None;
    }
    let ip = ip.to_canonical();
    let is_private = match ip {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    match (ip.is_loopback(), is_private, is_special(ip)) {
        (true, ..) if !allow.loopback => {
            Some("a loopback address: write allow_loopback = true if that is meant".to_owned())
        }
        (_, true, _) if !allow.private => {
            Some("a private address: write allow_private = true if that is meant".to_owned())
        }
        (false, false, true) => {
            Some(format!("a special address: write allow_addresses = [\"{ip}\"] if that is meant"))
        }
        _ => None,
    }
}

/// Addresses that are not public unicast ones: a request to them may reach what was not meant to be reached.
fn is_special(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation()
                || a == 0
                || a >= 240
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b))
                || v4.octets() == [168, 63, 129, 16]
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            let second = v6.segments()[1];
            first & 0xe000 != 0x2000
                || first == 0x2002
                || (first == 0x2001 && (second < 0x0200 || second == 0x0db8))
                || first & 0xfff0 == 0x3ff0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let read =
            |text: &str| origin_url(text).map(|(scheme, host, port)| format!("{scheme} {host} {port}"));
        assert_eq!(read("http://Orders.example"), Ok("http orders.example 80".to_owned()));
        assert_eq!(read("https://orders.example/"), Ok("https orders.example 443".to_owned()));
        assert_eq!(read("http://[::1]:8080"), Ok("http [::1] 8080".to_owned()));
        let wrong = [
            ("orders.example", "has no scheme"),
            ("ftp://orders.example", "neither http nor https"),
            ("http://user:word@orders.example", "has a user name"),
            ("http://orders.example/v1", "has a path"),
            ("http://orders.example?x", "has a path"),
            ("http://orders.example#x", "has a fragment"),
            ("http://orders.example:0", "has no usable port"),
            ("http://orders.example:99999", "has no usable port"),
            ("http://-bad-.example", "has no usable host"),
            ("http:// space", "not a URL"),
        ];
        for (text, why) in wrong {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }

    #[test]
    fn special_addresses_are_known() {
        for special in
            ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "::1", "::ffff:127.0.0.1", "fd00::1"]
        {
            assert!(is_special(special.parse().expect("an address")), "{special}");
        }
        for public in ["1.1.1.1", "192.0.3.1", "2606:4700::1111"] {
            assert!(!is_special(public.parse().expect("an address")), "{public}");
        }
    }
}
