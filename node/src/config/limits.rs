//! `[limits]`: every limit of the library by its dotted name.

use latent_capabilities::{
    BROKER_COSTS, BrokerLimits, Dimension, Group, IO_COSTS, IoLimits, LimitsError, POOL_COSTS, PoolLimits,
};

use super::reader::Section;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the table of the library.
    Default,
    /// From the configuration, in this line.
    Config(usize),
}

/// The limits of the library.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) broker: BrokerLimits,
    pub(crate) io: IoLimits,
    pub(crate) pools: PoolLimits,
    /// Of each dimension, in the order of the table.
    sources: Vec<Source>,
}

impl Limits {
    /// The value of a dimension.
    pub(crate) fn value(&self, dimension: Dimension) -> u64 {
        let value = match dimension.group() {
            Group::Broker => self.broker.get(dimension),
            Group::Io => self.io.get(dimension),
            Group::Pools => self.pools.get(dimension),
        };
        value.expect("a dimension belongs to the structure of its group")
    }

    /// Where the value of a dimension comes from.
    pub(crate) fn source(&self, dimension: Dimension) -> Source {
        self.sources[dimension as usize]
    }

    fn set(&mut self, dimension: Dimension, value: u64) -> Result<(), String> {
        let set = match dimension.group() {
            Group::Broker => self.broker.set(dimension, value),
            Group::Io => self.io.set(dimension, value),
            Group::Pools => self.pools.set(dimension, value),
        };
        set.map_err(|error| error.to_string())
    }
}

pub(super) fn read(section: Section<'_>) -> Limits {
    let mut limits = Limits {
        broker: BrokerLimits::default(),
        io: IoLimits::default(),
        pools: PoolLimits::default(),
        sources: vec![Source::Default; Dimension::ALL.len()],
    };
    let groups = [Group::Broker, Group::Io, Group::Pools].map(|group| (group, section.section(group.name())));
    for (group, inner) in &groups {
        let dimensions = || Dimension::ALL.iter().copied().filter(|dimension| dimension.group() == *group);
        for dimension in dimensions() {
            let Some(found) = inner.limit(field(dimension), dimension.unit()) else { continue };
            limits.sources[dimension as usize] = Source::Config(found.line);
            if let Err(text) = limits.set(dimension, found.value) {
                found.wrong(text);
            }
        }
        inner.refuse_unknown(dimensions().map(field));
    }
    for (group, inner) in &groups {
        report(&limits, *group, inner);
    }
    section.finish();
    limits
}

/// The name of a dimension inside its group.
fn field(dimension: Dimension) -> &'static str {
    dimension.name().split_once('.').map_or(dimension.name(), |(_, field)| field)
}

/// Says every rule of the library that these limits break, where the limit was written if it was.
fn report(limits: &Limits, group: Group, section: &Section<'_>) {
    let checked: Result<(), LimitsError> = match group {
        Group::Broker => limits.broker.validate_prepaid(BROKER_COSTS),
        Group::Io => limits.io.validate_prepaid(IO_COSTS),
        Group::Pools => limits.pools.validate_prepaid(POOL_COSTS),
    };
    let Err(error) = checked else { return };
    for violation in error.violations() {
        let show = |value| violation.dimension.show(value);
        let right = match violation.lowest <= violation.highest {
            true => format!("{} to {} would be right", show(violation.lowest), show(violation.highest)),
            false => "no value would be right".to_owned(),
        };
        let text = format!("{} does not go: {}; {right}", show(violation.value), violation.rule);
        match section.limit(field(violation.dimension), violation.dimension.unit()) {
            Some(found) => found.wrong(text),
            None => section.wrong(field(violation.dimension), format!("(default) {text}")),
        }
    }
}
