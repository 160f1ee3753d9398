//! The fuzz targets, as functions of bytes: the engine calls them, and so does the test of the seeds.

use std::path::Path;
use std::time::Duration;

use latent_adapters::http::fuzzing;
use latent_capabilities::{BrokerLimits, Dimension, IoLimits, LimitsError, PoolLimits};

#[allow(dead_code, unused_imports, reason = "the node uses all of it")]
#[path = "../../node/src/config/mod.rs"]
mod config;

/// Every target by its name, which is also that of its folder of seeds.
pub const TARGETS: [(&str, fn(&[u8])); 6] = [
    ("configuration", configuration),
    ("dns", dns),
    ("addresses", addresses),
    ("fields", fields),
    ("response", response),
    ("limits", limits),
];

/// A configuration of the node: it is taken, or everything wrong is said without a word of a token.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(refused) = config::Config::parse(Path::new("node.toml"), text) {
        let said = refused.to_string();
        assert!(!said.trim().is_empty(), "refused without a reason");
        assert!(!said.contains("hunter2"), "a secret is shown: {said}");
    }
}

/// An answer of a name server.
pub fn dns(data: &[u8]) {
    fuzzing::dns(data);
}

/// An address, in both ways to write it.
pub fn addresses(data: &[u8]) {
    if let Some(bytes) = data.first_chunk() {
        fuzzing::addresses(*bytes);
    }
}

/// The fields of a head.
pub fn fields(data: &[u8]) {
    fuzzing::fields(data);
}

/// A response: whatever pieces its bytes come in, the same is seen of it. The first bytes say how many pieces there are, and
/// how long each is.
pub fn response(data: &[u8]) {
    let Some((&many, rest)) = data.split_first() else { return };
    let Some((lengths, mut wire)) = rest.split_at_checked(usize::from(many % 8)) else { return };
    let whole = fuzzing::response(&[wire]);
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, rest) = wire.split_at(usize::from(*length).min(wire.len()));
        pieces.push(piece);
        wire = rest;
    }
    pieces.push(wire);
    assert_eq!(fuzzing::response(&pieces), whole, "it depends on how the bytes come: {pieces:?}");
}

/// Limits, each a dimension and a value: they are valid, or every violation is named and is one; nothing overflows.
pub fn limits(data: &[u8]) {
    let (mut broker, mut io, mut pools) =
        (BrokerLimits::default(), IoLimits::default(), PoolLimits::default());
    let mut changed = Vec::new();
    for change in data.chunks_exact(10) {
        let Some((index, value)) = change.split_first_chunk::<2>() else { return };
        let value = value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let all: Vec<_> = BrokerLimits::dimensions()
            .chain(IoLimits::dimensions())
            .chain(PoolLimits::dimensions())
            .collect();
        let dimension = all[usize::from(u16::from_le_bytes(*index)) % all.len()];
        // One of the three has it; a value that its field cannot hold is refused.
        let set = [broker.set(dimension, value), io.set(dimension, value), pools.set(dimension, value)];
        assert!(set.iter().filter(|set| set.is_ok()).count() <= 1);
        if set.iter().any(Result::is_ok) {
            changed.push((dimension, value));
        }
    }
    let known = |dimension: Dimension| {
        broker.get(dimension).or_else(|| io.get(dimension)).or_else(|| pools.get(dimension))
    };
    for (dimension, value) in changed.iter().rev() {
        let last = changed.iter().rev().find(|(other, _)| other == dimension);
        assert_eq!(last.map(|(_, value)| *value), known(*dimension), "{dimension} {value}");
    }
    let all = LimitsError::join([broker.validate(), io.validate(), pools.validate()]);
    if let Err(error) = &all {
        assert!(!error.violations().is_empty() && !error.to_string().is_empty());
    }
    let above = changed
        .iter()
        .any(|(dimension, _)| known(*dimension).is_some_and(|value| value > dimension.ceiling()));
    assert!(!above || all.is_err(), "above its ceiling and valid: {changed:?}");
    if pools.validate().is_ok() {
        assert!(pools.lifetime().is_none_or(|lifetime| lifetime > Duration::ZERO));
    }
}
