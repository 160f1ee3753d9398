//! The fuzz targets, as functions of bytes: the engine calls them, and so does the test of the seeds.

use std::path::Path;
use std::time::Duration;

use latent_adapters::http::fuzzing;
use latent_capabilities::broker::pools::{LowerError, ProviderPools};
use latent_capabilities::{
    Broker, BrokerLimits, Clock, Dimension, IoLimits, IoRuntime, LimitsError, PoolLimits,
};

#[allow(dead_code, unused_imports, reason = "the node uses all of it")]
#[path = "../../node/src/config/mod.rs"]
mod config;
#[allow(dead_code, reason = "the test of the seeds uses all of it")]
#[path = "../../tests/simulation/engine/mod.rs"]
mod simulator;

/// Every target by its name, which is also that of its folder of seeds.
pub const TARGETS: [(&str, fn(&[u8])); 8] = [
    ("configuration", configuration),
    ("dns", dns),
    ("addresses", addresses),
    ("fields", fields),
    ("response", response),
    ("limits", limits),
    ("lowering", lowering),
    ("operations", operations),
];

/// A configuration of the node: it is taken, or everything wrong is said without a word of a token.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(refused) = config::Config::parse(Path::new("node.toml"), text) {
        let said = refused.to_string();
        assert!(!said.trim().is_empty(), "refused without a reason");
        assert!(!said.contains(SECRET) || !is_secret(text), "a secret is shown: {said}");
    }
}

/// What the tokens of the seeds begin with.
const SECRET: &str = "hunter2";

/// Whether it stands in values of `token` only, each on its own line. Where it is a key, a name or another value, there is no
/// reason to hide it, and an engine that moves bytes about puts it everywhere.
fn is_secret(text: &str) -> bool {
    let many_lines = text.contains("\"\"\"") || text.contains("'''");
    !many_lines
        && text.lines().filter(|line| line.contains(SECRET)).all(|line| {
            let value = line.trim_start().strip_prefix("token").map(str::trim_start);
            let value = value.and_then(|rest| rest.strip_prefix('=')).map(str::trim_start);
            let value = value.and_then(|rest| rest.strip_prefix('"'));
            value.is_some_and(|value| {
                let (inside, outside) = value.split_once('"').unwrap_or((value, ""));
                inside.contains(SECRET) && !outside.contains(SECRET)
            })
        })
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

/// A script of the simulator: whatever is done in whatever order, the library does what the model says.
pub fn operations(data: &[u8]) {
    let script = simulator::Script::of_bytes(data);
    if let Err(broken) = simulator::run(&script) {
        panic!("step {}: {}\n{script}", broken.step, broken.law);
    }
}

/// Limits of an idle registry, lowered again and again: each time wholly, or not at all and with everything that stands in
/// the way named. Each change is a byte, which says whose it is, and a value.
pub fn lowering(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let broker = Broker::with_clock(BrokerLimits::default(), Clock::tokio()).expect("the defaults are valid");
    let io = IoRuntime::new(&broker, IoLimits::default()).expect("the defaults are valid");
    let handle = runtime.handle().clone();
    let pools = ProviderPools::new(&broker, &io, handle, PoolLimits::default()).expect("the defaults are valid");
    let all: Vec<Dimension> = PoolLimits::dimensions().collect();
    let mut now = pools.limits();
    for changes in data.chunks(36) {
        let mut asked = now;
        for change in changes.chunks_exact(9) {
            let Some((index, value)) = change.split_first() else { continue };
            let value = value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let dimension = all[usize::from(index & 0x7f) % all.len()];
            // Values near to the present one are the interesting ones.
            let value = match index & 0x80 {
                0 => now.get(dimension).unwrap_or(0).saturating_sub(value % 4),
                _ => value,
            };
            // A value that its field cannot hold is refused, and asked for nowhere.
            let _held = asked.set(dimension, value);
        }
        let lower = |dimension: &Dimension| {
            let (asked, now) = (asked.get(*dimension), now.get(*dimension));
            asked == now || (asked < now && dimension.lowerable())
        };
        let possible = all.iter().all(lower) && asked.validate().is_ok();
        match pools.lower_limits(asked) {
            Ok(()) => {
                assert!(possible, "lowered to {asked:?} from {now:?}");
                now = asked;
            }
            Err(LowerError::Refused(obstacles)) => {
                assert!(!obstacles.is_empty(), "refused without a reason");
                assert!(obstacles.iter().all(|obstacle| !obstacle.to_string().is_empty()));
            }
            Err(LowerError::Retired) => panic!("nobody retired it"),
        }
        assert_eq!(pools.limits(), now, "wholly, or not at all");
    }
}
