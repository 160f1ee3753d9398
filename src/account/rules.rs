//! The second table: rules between limits, one line each, and the error that lists what breaks them.

use std::fmt;

use super::dimension::{Amount, Dimension, Group};
use Dimension::*;

/// The smallest block of bytes; every byte limit of the node is used in units of it, rounded down.
pub const SMALLEST_BLOCK: u64 = 512;

/// `limit <= sum(bound)`, because of something.
struct AtMost {
    limit: Dimension,
    /// How the limit counts against its bound.
    measured: Measured,
    bound: &'static [Dimension],
    because: &'static str,
}

enum Measured {
    /// As it is.
    Plain,
    /// By the block that it takes.
    AsBlock,
}

const fn at_most(limit: Dimension, bound: &'static [Dimension], because: &'static str) -> AtMost {
    AtMost { limit, measured: Measured::Plain, bound, because }
}

const fn block_within(limit: Dimension, bound: &'static [Dimension], because: &'static str) -> AtMost {
    AtMost { limit, measured: Measured::AsBlock, bound, because }
}

const RULES: &[AtMost] = &[
    at_most(IoRunning, &[IoOwners], "a running operation is an owner"),
    at_most(IoQueued, &[IoOwners], "a waiting operation is an owner"),
    block_within(IoChunkBytes, &[IoStagedBytes], "the block of one chunk must fit on the staged side"),
    block_within(IoChunkBytes, &[IoResultBytes], "the block of one chunk must fit on the result side"),
    block_within(IoChunkBytes, &[IoTenantBytes], "the block of one chunk must fit in a tenant's share"),
    at_most(IoTenantBytes, &[IoStagedBytes, IoResultBytes], "a tenant cannot hold more than the node"),
    at_most(PoolsClientsPerProvider, &[PoolsClients], "a provider's clients are clients"),
    at_most(PoolsConnectionsPerClient, &[PoolsConnections], "a client's connections are connections"),
    at_most(PoolsIdleConnections, &[PoolsConnections], "an idle connection is a connection"),
    at_most(PoolsRunningPerTenant, &[PoolsRunning], "a tenant's running requests are running requests"),
    at_most(PoolsRunningPerTenant, &[PoolsRequestsPerTenant], "a running request is a request"),
    at_most(PoolsRunningPerProvider, &[PoolsRunning], "a provider's running requests are running requests"),
    at_most(PoolsRunningPerProvider, &[PoolsRequestsPerProvider], "a running request is a request"),
    at_most(PoolsConfigurationBytes, &[PoolsMetadataBytes], "configurations are charged as metadata"),
    at_most(PoolsInitialBackoff, &[PoolsMaximumBackoff], "the pause after failures only grows"),
];

/// What each unit of a dimension costs in metadata, whatever it is used for; prepaid at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedCost {
    /// The limit that is the number of units.
    pub dimension: Dimension,
    /// Bytes per unit.
    pub bytes: u64,
    /// What costs it, for documentation: "operation slot".
    pub what: &'static str,
}

impl FixedCost {
    /// What all units together cost. Values are unchecked here, hence the width.
    fn total(&self, value: &impl Fn(Dimension) -> u64) -> u128 {
        u128::from(self.bytes) * u128::from(value(self.dimension))
    }
}

/// The rows of the rules for documentation: the limit, what bounds it, and why.
pub fn described(group: Group) -> impl Iterator<Item = (Dimension, String, &'static str)> {
    let of_group = RULES.iter().filter(move |rule| rule.limit.group() == group);
    of_group.map(|rule| (rule.limit, names(rule.bound), rule.because))
}

fn names(dimensions: &[Dimension]) -> String {
    dimensions.iter().map(|dimension| dimension.name()).collect::<Vec<_>>().join(" + ")
}

/// One limit that cannot be as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The limit.
    pub dimension: Dimension,
    /// What it is.
    pub value: u64,
    /// What it may be at least.
    pub lowest: u64,
    /// What it may be at most, everything else unchanged; below `lowest` if something else must change.
    pub highest: u64,
    /// The rule that is broken.
    pub rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { dimension, value, lowest, highest, rule } = self;
        let show = |value| -> Amount { dimension.show(value) };
        write!(out, "{dimension} is {}: ", show(*value))?;
        if lowest <= highest {
            write!(out, "{} to {} would be right; ", show(*lowest), show(*highest))?;
        } else {
            write!(out, "no value would be right; ")?;
        }
        out.write_str(rule)
    }
}

/// Limits that contradict each other or the table. Lists every violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsError {
    violations: Vec<Violation>,
}

impl LimitsError {
    /// What is wrong; never empty.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// One error for several limit structures; `Ok` if none of them is wrong.
    ///
    /// # Errors
    ///
    /// All violations of all results, in order.
    pub fn join(results: impl IntoIterator<Item = Result<(), LimitsError>>) -> Result<(), LimitsError> {
        let wrong = results.into_iter().filter_map(Result::err);
        LimitsError::from_violations(wrong.flat_map(|error| error.violations).collect())
    }

    fn from_violations(violations: Vec<Violation>) -> Result<(), LimitsError> {
        if violations.is_empty() { Ok(()) } else { Err(LimitsError { violations }) }
    }
}

impl fmt::Display for LimitsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, violation) in self.violations.iter().enumerate() {
            if position > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{violation}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LimitsError {}

/// Checks the ranges of a group, the rules between its limits, and the metadata that is prepaid.
pub(super) fn check(
    group: Group,
    get: &dyn Fn(Dimension) -> Option<u64>,
    costs: &[FixedCost],
) -> Result<(), LimitsError> {
    let value = |dimension| {
        get(dimension).expect("rules and costs name only dimensions of their own group: tested below")
    };
    let mut violations = Vec::new();
    for dimension in Dimension::ALL.iter().copied().filter(|dimension| dimension.group() == group) {
        violations.extend(range(dimension, value(dimension)));
    }
    for rule in RULES.iter().filter(|rule| rule.limit.group() == group) {
        violations.extend(rule.check(&value));
    }
    violations.extend(prepaid(group, &value, costs));
    LimitsError::from_violations(violations)
}

fn range(dimension: Dimension, value: u64) -> Option<Violation> {
    let (lowest, highest) = (dimension.lowest(), dimension.ceiling());
    let rule = if value < lowest {
        "it must not be less"
    } else if value > highest {
        "that is its ceiling"
    } else {
        return None;
    };
    Some(Violation { dimension, value, lowest, highest, rule: rule.to_owned() })
}

impl AtMost {
    fn check(&self, value: &impl Fn(Dimension) -> u64) -> Option<Violation> {
        let limit = value(self.limit);
        // A bound of 0 that may be 0 stands for "the same as the node" and bounds nothing of its own.
        if self.bound.iter().all(|bound| value(*bound) == 0 && bound.lowest() == 0) {
            return None;
        }
        // Unchecked input: the sum is wide enough for two values of any size.
        let bound: u128 = self.bound.iter().map(|bound| u128::from(value(*bound))).sum();
        let (fits, highest) = match self.measured {
            Measured::Plain => (u128::from(limit) <= bound, bound),
            Measured::AsBlock => {
                let largest = if bound < u128::from(SMALLEST_BLOCK) { 0 } else { 1 << bound.ilog2() };
                (u128::from(limit) <= largest, largest)
            }
        };
        if fits {
            return None;
        }
        Some(Violation {
            dimension: self.limit,
            value: limit,
            lowest: self.limit.lowest(),
            // It is below `limit`, which is a u64.
            highest: u64::try_from(highest).unwrap_or(u64::MAX),
            rule: format!("at most {}, because {}", names(self.bound), self.because),
        })
    }
}

fn prepaid(group: Group, value: &impl Fn(Dimension) -> u64, costs: &[FixedCost]) -> Option<Violation> {
    let dimension = group.metadata();
    let needed: u128 = costs.iter().map(|cost| cost.total(value)).sum();
    let limit = value(dimension);
    if u128::from(limit) >= needed {
        return None;
    }
    let terms = costs.iter().map(|cost| {
        let per = cost.dimension;
        format!("{per} {} x {} ({})", per.show(value(per)), dimension.show(cost.bytes), cost.what)
    });
    Some(Violation {
        dimension,
        value: limit,
        lowest: u64::try_from(needed).unwrap_or(u64::MAX),
        highest: dimension.ceiling(),
        rule: format!("every slot is prepaid: {}", terms.collect::<Vec<_>>().join(" + ")),
    })
}

impl Group {
    /// The dimension that fixed and variable metadata of this group is charged to.
    pub const fn metadata(self) -> Dimension {
        match self {
            Group::Broker => BrokerMetadataBytes,
            Group::Io => IoMetadataBytes,
            Group::Pools => PoolsMetadataBytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{BrokerLimits, IoLimits, PoolLimits};
    use super::*;

    #[test]
    fn defaults_models_and_ceilings_are_valid() {
        for limits in [BrokerLimits::default(), BrokerLimits::model(), BrokerLimits::ceilings()] {
            limits.validate().unwrap();
        }
        for limits in [IoLimits::default(), IoLimits::model(), IoLimits::ceilings()] {
            limits.validate().unwrap();
        }
        for limits in [PoolLimits::default(), PoolLimits::model(), PoolLimits::ceilings()] {
            limits.validate().unwrap();
        }
    }

    #[test]
    fn rules_stay_inside_their_group() {
        for rule in RULES {
            assert!(rule.bound.iter().all(|bound| bound.group() == rule.limit.group()), "{}", rule.because);
        }
        for group in [Group::Broker, Group::Io, Group::Pools] {
            assert_eq!(group.metadata().group(), group);
        }
    }

    /// Sets some dimensions of the default limits and gives what is wrong.
    fn broken(changes: &[(Dimension, u64)]) -> Vec<Violation> {
        let (mut broker, mut io, mut pools) =
            (BrokerLimits::default(), IoLimits::default(), PoolLimits::default());
        for (dimension, value) in changes.iter().copied() {
            match dimension.group() {
                Group::Broker => broker.set(dimension, value),
                Group::Io => io.set(dimension, value),
                Group::Pools => pools.set(dimension, value),
            }
            .unwrap();
        }
        match LimitsError::join([broker.validate(), io.validate(), pools.validate()]) {
            Ok(()) => Vec::new(),
            Err(error) => error.violations().to_vec(),
        }
    }

    #[test]
    fn every_range_has_two_ends() {
        for dimension in Dimension::ALL.iter().copied() {
            let above = dimension.ceiling() + 1;
            let found = broken(&[(dimension, above)]);
            assert!(
                found.iter().any(|found| (found.dimension, found.value, found.highest)
                    == (dimension, above, dimension.ceiling())),
                "{dimension} above its ceiling: {found:?}"
            );
            if let Some(below) = dimension.lowest().checked_sub(1) {
                let found = broken(&[(dimension, below)]);
                assert!(
                    found.iter().any(|found| found.dimension == dimension && found.value == below),
                    "{dimension} below its lowest: {found:?}"
                );
            }
        }
    }

    /// One failing example for each line of the table, and the highest value that would be right.
    #[test]
    fn every_rule_has_a_failing_example() {
        /// Changed limits, the one that is wrong then, and what it might be at most.
        type Example = (&'static [(Dimension, u64)], Dimension, u64);
        #[rustfmt::skip]
        let examples: &[Example] = &[
            (&[(IoRunning, 257)], IoRunning, 256),
            (&[(IoQueued, 257)], IoQueued, 256),
            (&[(IoStagedBytes, 65_535)], IoChunkBytes, 32_768),
            (&[(IoResultBytes, 512), (IoChunkBytes, 513)], IoChunkBytes, 512),
            (&[(IoTenantBytes, 1)], IoChunkBytes, 0),
            (&[(IoTenantBytes, 16_777_217)], IoTenantBytes, 16_777_216),
            (&[(PoolsClients, 7)], PoolsClientsPerProvider, 7),
            (&[(PoolsConnections, 64), (PoolsConnectionsPerClient, 65)], PoolsConnectionsPerClient, 64),
            (&[(PoolsConnections, 63)], PoolsIdleConnections, 63),
            (&[(PoolsRunning, 32), (PoolsRunningPerTenant, 33), (PoolsRequestsPerTenant, 33)], PoolsRunningPerTenant, 32),
            (&[(PoolsRunningPerTenant, 33)], PoolsRunningPerTenant, 32),
            (&[(PoolsRunning, 31)], PoolsRunningPerProvider, 31),
            (&[(PoolsRequestsPerProvider, 31)], PoolsRunningPerProvider, 31),
            (&[(PoolsMetadataBytes, 65_535)], PoolsConfigurationBytes, 65_535),
            (&[(PoolsInitialBackoff, 30_001)], PoolsInitialBackoff, 30_000),
        ];
        assert_eq!(examples.len(), RULES.len());
        for ((changes, dimension, highest), rule) in examples.iter().zip(RULES) {
            assert_eq!(*dimension, rule.limit);
            let found = broken(changes);
            assert!(
                matches!(&found[..], [one] if one.dimension == *dimension
                    && one.highest == *highest
                    && one.rule.contains(rule.because)),
                "{changes:?} breaks exactly one rule: {found:?}"
            );
        }
    }

    #[test]
    fn all_violations_are_listed_at_once() {
        let limits = IoLimits { owners: 0, running: 5_000, streams: 0, ..IoLimits::default() };
        let error = limits.validate().unwrap_err();
        let named: Vec<_> = error.violations().iter().map(|violation| violation.dimension).collect();
        assert_eq!(named, [IoOwners, IoRunning, IoStreams, IoRunning, IoQueued]);
        assert!(
            error.to_string().contains("io.owners is 0: 1 to 4,096 would be right; it must not be less\n")
        );
    }

    #[test]
    fn fixed_metadata_is_prepaid_with_the_sum_shown() {
        let costs = [
            FixedCost { dimension: IoOwners, bytes: 2_048, what: "operation" },
            FixedCost { dimension: IoStreams, bytes: 1_000, what: "ring" },
        ];
        let needed = 256 * 2_048 + 128 * 1_000;
        let limits = IoLimits { metadata_bytes: needed, ..IoLimits::default() };
        limits.validate_prepaid(&costs).unwrap();
        let limits = IoLimits { metadata_bytes: needed - 1, ..limits };
        limits.validate().unwrap();
        let error = limits.validate_prepaid(&costs).unwrap_err();
        assert_eq!(error.violations()[0].lowest, needed);
        assert_eq!(
            error.violations()[0].rule,
            "every slot is prepaid: io.owners 256 x 2 KiB (operation) + io.streams 128 x 1,000 B (ring)"
        );
    }

    #[test]
    fn absurd_values_are_refused_and_do_not_overflow() {
        let mut limits = IoLimits::default();
        for dimension in IoLimits::dimensions() {
            limits.set(dimension, u64::MAX).or_else(|_| limits.set(dimension, u64::from(u32::MAX))).unwrap();
        }
        let costs = [FixedCost { dimension: IoStreams, bytes: u64::MAX, what: "ring" }];
        let error = limits.validate_prepaid(&costs).unwrap_err();
        assert!(error.violations().len() >= IoLimits::dimensions().count());
        assert!(!error.to_string().is_empty());
    }
}
