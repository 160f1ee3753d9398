//! The limits of a node, and what its slots cost.
//!
//! [`BrokerLimits`], [`IoLimits`] and [`PoolLimits`] have one field per [`Dimension`]; the table behind them and the rules
//! between them are in `account/`. `docs/limits.md` is written from the same table by a test of this file.
//!
//! Fixed metadata is prepaid: what a slot costs whatever it is used for is not charged when the slot is taken, but
//! must fit in the metadata limit for all slots together, at startup. Admission then cannot fail for it. Variable
//! metadata (framing, closures, clients' tables, credentials) is charged when it is declared, in what is left.

pub use crate::account::dimension::{Amount, Dimension, Group, Unit};
pub use crate::account::limits::{BrokerLimits, IoLimits, NoSuchLimit, PoolLimits};
pub use crate::account::rules::{FixedCost, LimitsError, Violation};
pub use crate::account::scope::NotLowered;

use Dimension::{
    BrokerPlans, BrokerProviders, BrokerSessions, BrokerTenants, IoBuffers, IoOwners, IoStreams,
    PoolsCleanupJobs, PoolsClients, PoolsConfigurations, PoolsConnections, PoolsPending, PoolsRunning,
    PoolsWorkers,
};

use crate::broker::ground::SessionLease;
use crate::broker::session_core::SessionSlot;
use crate::broker::slots::{StreamSlot, TransferSlot};
use crate::mem::arena::slot_bytes;
use crate::queue::operation::Operation;

const fn cost(dimension: Dimension, bytes: u64, what: &'static str) -> FixedCost {
    FixedCost { dimension, bytes, what }
}

/// What is prepaid in `broker.metadata_bytes`.
pub const BROKER_COSTS: &[FixedCost] = &[
    cost(BrokerProviders, 2_048, "name, word, descriptor"),
    cost(BrokerPlans, 2_048, "plan, policies"),
    cost(BrokerSessions, 2_048, "session slot, its table of operations"),
    cost(BrokerTenants, 2_048, "name, words, row of the waiting line"),
];

/// What is prepaid in `io.metadata_bytes`.
pub const IO_COSTS: &[FixedCost] = &[
    cost(IoOwners, 1_024, "operation slot, its places in the line"),
    cost(IoBuffers, 512, "block token, side table"),
    cost(IoStreams, 4_096, "stream or transfer slot, ring of 128 chunks"),
];

/// What is prepaid in `pools.metadata_bytes`.
pub const POOL_COSTS: &[FixedCost] = &[
    cost(PoolsConfigurations, 4_096, "epoch, descriptor"),
    cost(PoolsClients, 4_096, "client, word, idle set"),
    cost(PoolsConnections, 4_096, "connection cell"),
    cost(PoolsPending, 1_024, "request"),
    cost(PoolsRunning, 1_024, "request"),
    cost(PoolsWorkers, 4_096, "job slot"),
    cost(PoolsCleanupJobs, 4_096, "job slot"),
];

/// What one unit of a dimension costs in metadata; 0 if its use costs nothing fixed.
pub const fn fixed_cost(dimension: Dimension) -> u64 {
    let (mut bytes, mut row) = (0, 0);
    let costs = match dimension.group() {
        Group::Broker => BROKER_COSTS,
        Group::Io => IO_COSTS,
        Group::Pools => POOL_COSTS,
    };
    while row < costs.len() {
        if costs[row].dimension as u8 == dimension as u8 {
            bytes += costs[row].bytes;
        }
        row += 1;
    }
    bytes
}

// The costs are round numbers above the real layout, so that a limit that fits today fits after a small change too.
#[cfg(not(loom))]
const _: () = {
    assert!(slot_bytes::<SessionSlot>() <= fixed_cost(BrokerSessions));
    assert!(slot_bytes::<Operation<SessionLease>>() <= fixed_cost(IoOwners));
    assert!(slot_bytes::<StreamSlot>() <= fixed_cost(IoStreams));
    assert!(slot_bytes::<TransferSlot>() <= fixed_cost(IoStreams));
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::rules;
    use std::fmt::Write;

    #[test]
    fn slots_are_prepaid_by_the_defaults_and_at_every_ceiling() {
        for limits in [BrokerLimits::default(), BrokerLimits::ceilings(), BrokerLimits::model()] {
            limits.validate_prepaid(BROKER_COSTS).unwrap();
        }
        for limits in [IoLimits::default(), IoLimits::ceilings(), IoLimits::model()] {
            limits.validate_prepaid(IO_COSTS).unwrap();
        }
        for limits in [PoolLimits::default(), PoolLimits::ceilings(), PoolLimits::model()] {
            limits.validate_prepaid(POOL_COSTS).unwrap();
        }
    }

    #[test]
    fn costs_belong_to_their_group() {
        for (costs, group) in
            [(BROKER_COSTS, Group::Broker), (IO_COSTS, Group::Io), (POOL_COSTS, Group::Pools)]
        {
            for cost in costs {
                assert_eq!(cost.dimension.group(), group);
                assert_eq!(fixed_cost(cost.dimension), cost.bytes);
            }
        }
        assert_eq!(fixed_cost(Dimension::IoQueueWait), 0);
    }

    /// `docs/limits.md` as the tables have it.
    fn page() -> String {
        let mut page = String::from(PREFACE);
        for (group, costs, title) in [
            (Group::Broker, BROKER_COSTS, "Broker: `BrokerLimits`"),
            (Group::Io, IO_COSTS, "I/O: `IoLimits`"),
            (Group::Pools, POOL_COSTS, "Pools: `PoolLimits`"),
        ] {
            section(&mut page, group, costs, title).expect("writing to a string cannot fail");
        }
        page
    }

    const PREFACE: &str = "\
# Limits

Everything that a node holds is bounded by these numbers, fixed at startup. Written from the table in
`src/account/dimension.rs`; a test compares. To write it anew:
`LATENT_WRITE_DOCS=1 cargo test -p latent-capabilities --lib docs_limits`

* *default* holds where nothing is configured; *range* is from the smallest value that is accepted to the ceiling.
* *live* limits may be lowered while work is running, never below what is in use, and not raised again.
* Byte limits are used in units of 512 bytes, rounded down; a buffer takes the next power of two, at least 512.
* *fixed cost* is the metadata that each unit is prepaid for at startup.
";

    fn section(page: &mut String, group: Group, costs: &[FixedCost], title: &str) -> std::fmt::Result {
        writeln!(page, "\n## {title}\n")?;
        writeln!(page, "| name | default | range | lowered | counts |")?;
        writeln!(page, "| --- | --- | --- | --- | --- |")?;
        for dimension in Dimension::ALL.iter().copied().filter(|dimension| dimension.group() == group) {
            let show = |value| dimension.show(value).to_string();
            writeln!(
                page,
                "| `{dimension}` | {} | {} to {} | {} | {} |",
                show(dimension.default_value()),
                show(dimension.lowest()),
                show(dimension.ceiling()),
                if dimension.lowerable() { "live" } else { "at startup" },
                dimension.about(),
            )?;
        }
        if rules::described(group).next().is_some() {
            writeln!(page, "\n| rule | because |\n| --- | --- |")?;
        }
        for (limit, bound, because) in rules::described(group) {
            writeln!(page, "| `{limit}` is at most {bound} | {because} |")?;
        }
        writeln!(
            page,
            "\n| prepaid in `{}` per | fixed cost | for |\n| --- | --- | --- |",
            group.metadata()
        )?;
        for cost in costs {
            let bytes = group.metadata().show(cost.bytes);
            writeln!(page, "| `{}` | {bytes} | {} |", cost.dimension, cost.what)?;
        }
        let total = |value: fn(Dimension) -> u64| -> u64 {
            costs.iter().map(|cost| value(cost.dimension) * cost.bytes).sum()
        };
        let (defaults, ceilings) = (total(Dimension::default_value), total(Dimension::ceiling));
        let kib = |bytes: u64| bytes.div_ceil(1_024);
        writeln!(
            page,
            "\nPrepaid in total: {} KiB at the defaults, {} KiB at the ceilings.",
            kib(defaults),
            kib(ceilings)
        )
    }

    /// Case S24: whoever changes a default changes what is written down.
    #[test]
    fn docs_limits_are_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/limits.md");
        let page = page();
        if std::env::var_os("LATENT_WRITE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == page, "docs/limits.md is out of date; write it with LATENT_WRITE_DOCS=1");
    }
}
