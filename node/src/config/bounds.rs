//! What bounds one call of a provider: the sections `dns`, `dial`, `head` and `body`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use latent_adapters::http::HttpProviderConfig;
use latent_capabilities::Dimension;

use super::reader::Section;
use super::{Limits, units};

pub(super) fn read(section: &Section<'_>, http: &mut HttpProviderConfig, limits: &Limits) {
    let dns = section.section("dns");
    http.dns.servers = servers(&dns);
    time(&dns, "attempt", &mut http.dns.attempt, 10..=30_000);
    time(&dns, "maximum_ttl", &mut http.dns.maximum_ttl, 0..=300_000);
    dns.finish();

    let dial = section.section("dial");
    time(&dial, "attempt", &mut http.dial.attempt, 10..=60_000);
    dial.finish();

    let head = section.section("head");
    size(&head, "target_bytes", &mut http.head.target_bytes, 1..=16 << 10);
    size(&head, "request_headers", &mut http.head.request_headers, 1..=256);
    size(&head, "request_bytes", &mut http.head.request_bytes, 64..=64 << 10);
    size(&head, "response_headers", &mut http.head.response_headers, 1..=256);
    size(&head, "response_bytes", &mut http.head.response_bytes, 64..=64 << 10);
    head.finish();

    let body = section.section("body");
    // Without a word of its own, a provider takes what the node allows.
    let (input, output) = (Dimension::BrokerStreamInputBytes, Dimension::BrokerStreamOutputBytes);
    http.body.request_bytes =
        within(&body, "request_bytes", limits, input).unwrap_or_else(|| limits.value(input));
    http.body.response_bytes =
        within(&body, "response_bytes", limits, output).unwrap_or_else(|| limits.value(output));
    let chunk = within(&body, "chunk_bytes", limits, Dimension::IoChunkBytes);
    if let Some(bytes) = chunk.and_then(|bytes| u32::try_from(bytes).ok()) {
        http.body.chunk_bytes = bytes;
    }
    let window = body.count("outstanding_chunks").and_then(|found| {
        let most = limits.value(Dimension::IoStreamChunks);
        found.read(|count| match *count {
            0 => Err("must be 1 or more".to_owned()),
            count if count > most => Err(format!("must be at most limits.io.stream_chunks, which is {most}")),
            count => Ok(count),
        })
    });
    if let Some(chunks) = window.and_then(|chunks| u32::try_from(chunks).ok()) {
        http.body.outstanding_chunks = chunks;
    }
    body.finish();
}

/// A number of bytes that a dimension of the library bounds.
pub(super) fn within(
    section: &Section<'_>,
    key: &'static str,
    limits: &Limits,
    bound: Dimension,
) -> Option<u64> {
    section.bytes(key)?.read(|bytes| {
        let most = limits.value(bound);
        if *bytes > most {
            return Err(format!("must be at most limits.{bound}, which is {}", bound.show(most)));
        }
        Ok(*bytes)
    })
}

fn servers(section: &Section<'_>) -> Vec<SocketAddr> {
    let listed = section.strings("servers").unwrap_or_default();
    if let Some(first_over) = listed.get(8) {
        first_over.wrong("at most 8 name servers are asked");
    }
    let each = listed.into_iter().filter_map(|found| {
        let right = "must be an IP address, with a port or without: \"192.0.2.53\"";
        let with_port =
            |text: &&str| text.parse().or_else(|_| text.parse::<IpAddr>().map(|ip| (ip, 53).into()));
        found.read(|text| with_port(text).map_err(|_| right))
    });
    each.collect()
}

fn time(
    section: &Section<'_>,
    key: &'static str,
    into: &mut Duration,
    millis: std::ops::RangeInclusive<u64>,
) {
    let Some(found) = section.duration(key) else { return };
    let (least, most) = (Duration::from_millis(*millis.start()), Duration::from_millis(*millis.end()));
    if (least..=most).contains(&found.value) {
        *into = found.value;
    } else {
        found.wrong(format!("must be {} to {}", units::show(least), units::show(most)));
    }
}

fn size(section: &Section<'_>, key: &'static str, into: &mut usize, range: std::ops::RangeInclusive<usize>) {
    let Some(found) = section.bytes(key) else { return };
    match usize::try_from(found.value) {
        Ok(value) if range.contains(&value) => *into = value,
        _ => found.wrong(format!("must be {} to {}", range.start(), range.end())),
    }
}
