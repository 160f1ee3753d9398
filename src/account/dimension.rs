//! The table: every number that bounds a node, once.
//!
//! A *dimension* is one thing that is counted. The table below is the only place that knows its name, its
//! default, its ceiling and what it means; the limit structures ([`super::limits`]), the rules between them
//! ([`super::rules`]), `docs/limits.md` and every refusal are made from it.
//!
//! ```text
//! variant          field               unit     default     lowest ..= ceiling        model       lowered
//! IoRunning        running:            Count  =      64,         1 ..= 4_096,         model 2,    startup;
//! ```
//!
//! * *lowest* is 1 unless nothing at all makes sense for the dimension (0), or the smallest block (512 bytes).
//! * *model* is the size used by the models and the simulator: small enough to enumerate.
//! * *startup* is fixed for the life of its owner; *live* may be lowered while work is running.

use std::fmt;

/// 1,024 bytes.
pub(crate) const KIB: u64 = 1 << 10;
/// 1,048,576 bytes.
pub(crate) const MIB: u64 = 1 << 20;
/// 1,073,741,824 bytes.
pub(crate) const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Hands THE table to another macro: `dimensions!(callback)`.
macro_rules! dimensions {
    ($callback:ident) => {
        $callback! {
            /// What one broker may hold: plans, sessions and their calls.
            Broker "broker" BrokerLimits {
                /// Logical providers that have a number: installed, or with an epoch that is still held.
                BrokerProviders providers: Count = 32, 1..=256, model 2, startup;
                /// Sealed plans that are alive.
                BrokerPlans plans: Count = 256, 1..=4_096, model 2, startup;
                /// Sessions that are open, or closed with calls still running.
                BrokerSessions sessions: Count = 128, 1..=4_096, model 2, startup;
                /// Tenants that have a number: named by a plan that is alive, or with work still running.
                BrokerTenants tenants: Count = 256, 1..=4_096, model 2, startup;
                /// Operations of one session: waiting, running and cleaning up together.
                BrokerCallsPerSession calls_per_session: Count = 32, 1..=128, model 2, startup;
                /// Bytes of descriptions: plans, provider descriptors, policies, resource tables.
                BrokerMetadataBytes metadata_bytes: Bytes = 8 * MIB, 1..=256 * MIB, model 8 * MIB, startup;
                /// Bytes of inline input that one call may declare.
                BrokerInputBytes input_bytes: Bytes = 64 * KIB, 1..=MIB, model 512, startup;
                /// Bytes that one call may turn into inline output, added up over its life.
                BrokerOutputBytes output_bytes: Bytes = 64 * KIB, 1..=MIB, model 512, startup;
                /// Bytes of input that the stream budget of one call may declare; 0 allows none.
                BrokerStreamInputBytes stream_input_bytes: Bytes = 16 * MIB, 0..=GIB, model 1_024, startup;
                /// Bytes of output that the stream budget of one call may declare; 0 allows none.
                BrokerStreamOutputBytes stream_output_bytes: Bytes = 16 * MIB, 0..=GIB, model 1_024, startup;
            }
            /// What the operations of one node may hold: places, bytes and streams.
            Io "io" IoLimits {
                /// Operations that exist, from admission to the end of the last lease.
                IoOwners owners: Count = 256, 1..=4_096, model 3, startup;
                /// Operations that hold a running place.
                IoRunning running: Count = 64, 1..=4_096, model 2, startup;
                /// Operations that are staged or wait for a running place.
                IoQueued queued: Count = 128, 1..=4_096, model 2, startup;
                /// Bytes of blocks on the staged side: inputs, and buffers being filled.
                IoStagedBytes staged_bytes: Bytes = 8 * MIB, 512..=256 * MIB, model 2_048, startup;
                /// Bytes of blocks on the result side: retained outputs, queued and delivered chunks.
                IoResultBytes result_bytes: Bytes = 8 * MIB, 512..=256 * MIB, model 2_048, startup;
                /// Blocks that are out, whatever their size.
                IoBuffers buffers: Count = 1_024, 1..=65_536, model 4, startup;
                /// Streams and transfers that exist.
                IoStreams streams: Count = 128, 1..=4_096, model 2, startup;
                /// Bytes of bookkeeping: what every slot costs, and the protocol framing that adapters declare.
                IoMetadataBytes metadata_bytes: Bytes = 4 * MIB, 1..=64 * MIB, model 4 * MIB, startup;
                /// Bytes of one buffer.
                IoChunkBytes chunk_bytes: Bytes = 64 * KIB, 1..=MIB, model 512, startup;
                /// Chunks in the ring of one stream, and in the window of one transfer.
                IoStreamChunks stream_chunks: Count = 8, 1..=128, model 2, startup;
                /// Bytes that one stream accepts, added up over its life.
                IoStreamBytes stream_bytes: Bytes = 64 * MIB, 1..=GIB, model 2_048, startup;
                /// Time that an operation may wait for a running place.
                IoQueueWait queue_wait: Millis = 5 * SECOND, 1..=MINUTE, model SECOND, startup;
                /// Bytes of blocks, staged and result together, that one tenant holds; 0 means all of the node's.
                IoTenantBytes tenant_bytes: Bytes = 0, 0..=512 * MIB, model 0, startup;
            }
            /// What the shared providers of one node may hold: epochs, clients, connections, requests, jobs.
            Pools "pools" PoolLimits {
                /// Epochs that are installed or still held by accepted work.
                PoolsConfigurations configurations: Count = 32, 1..=256, model 2, live;
                /// Clients, those of retired epochs included.
                PoolsClients clients: Count = 128, 1..=1_024, model 2, live;
                /// Clients of one logical provider, over all its epochs.
                PoolsClientsPerProvider clients_per_provider: Count = 8, 1..=128, model 2, live;
                /// Connections, from the reservation of the dial to the destruction of the socket.
                PoolsConnections connections: Count = 256, 1..=4_096, model 2, live;
                /// Connections of one client.
                PoolsConnectionsPerClient connections_per_client: Count = 8, 1..=256, model 2, live;
                /// Connections that are parked.
                PoolsIdleConnections idle_connections: Count = 64, 1..=1_024, model 2, live;
                /// Pool requests that are staged or wait.
                PoolsPending pending: Count = 128, 1..=1_024, model 2, live;
                /// Pool requests that hold a running place.
                PoolsRunning running: Count = 64, 1..=1_024, model 2, live;
                /// Pool requests of one tenant, waiting and running.
                PoolsRequestsPerTenant requests_per_tenant: Count = 32, 1..=1_024, model 2, live;
                /// Pool requests to one logical provider, waiting and running, over all its epochs.
                PoolsRequestsPerProvider requests_per_provider: Count = 64, 1..=1_024, model 2, live;
                /// Running pool requests of one tenant.
                PoolsRunningPerTenant running_per_tenant: Count = 16, 1..=1_024, model 1, live;
                /// Running pool requests to one logical provider, over all its epochs.
                PoolsRunningPerProvider running_per_provider: Count = 32, 1..=1_024, model 1, live;
                /// Jobs of providers on the supplied runtime.
                PoolsWorkers workers: Count = 16, 1..=128, model 1, live;
                /// Cleanup jobs, whose places ordinary workers cannot take.
                PoolsCleanupJobs cleanup_jobs: Count = 8, 1..=128, model 1, live;
                /// Bytes of bookkeeping: what every slot costs, credentials, and the closures and futures of jobs.
                PoolsMetadataBytes metadata_bytes: Bytes = 8 * MIB, 1..=64 * MIB, model 8 * MIB, live;
                /// Bytes of private configuration (credentials) of one epoch.
                PoolsConfigurationBytes configuration_bytes: Bytes = 64 * KIB, 1..=MIB, model 512, live;
                /// Time that a pool request may wait for a running place.
                PoolsQueueAge queue_age: Millis = 5 * SECOND, 1..=MINUTE, model SECOND, live;
                /// Time that a connection may stay parked.
                PoolsIdleAge idle_age: Millis = 30 * SECOND, 1..=HOUR, model SECOND, live;
                /// Time that a connection may live, whatever it does; 0 is no limit. Each one gets up to a tenth less.
                PoolsMaximumLifetime maximum_lifetime: Millis = 30 * MINUTE, 0..=24 * HOUR, model 0, startup;
                /// Time without a dial after the first failure; it doubles with each further one.
                PoolsInitialBackoff initial_backoff: Millis = 100, 1..=5 * MINUTE, model 10, startup;
                /// Longest time without a dial after failures.
                PoolsMaximumBackoff maximum_backoff: Millis = 30 * SECOND, 1..=5 * MINUTE, model 40, startup;
            }
        }
    };
}
pub(crate) use dimensions;

/// What a dimension is counted in. Values cross the table as `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Things; a `u32` in the limit structures.
    Count,
    /// Bytes; a `u64` in the limit structures.
    Bytes,
    /// Milliseconds; a [`std::time::Duration`] in the limit structures.
    Millis,
}

/// Which limit structure a dimension belongs to; the first word of its dotted name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// [`BrokerLimits`](super::limits::BrokerLimits).
    Broker,
    /// [`IoLimits`](super::limits::IoLimits).
    Io,
    /// [`PoolLimits`](super::limits::PoolLimits).
    Pools,
}

/// One row of the table.
struct Row {
    name: &'static str,
    group: Group,
    unit: Unit,
    default: u64,
    lowest: u64,
    ceiling: u64,
    model: u64,
    live: bool,
    about: &'static str,
}

macro_rules! life {
    (live) => {
        true
    };
    (startup) => {
        false
    };
}

macro_rules! define_dimension {
    ($(
        $(#[$group_doc:meta])*
        $group:ident $group_name:literal $limits:ident {$(
            $(#[doc = $about:literal])+
            $variant:ident $field:ident: $unit:ident = $default:expr, $range:expr, model $model:expr, $life:ident;
        )+}
    )+) => {
        /// One thing that is counted and bounded.
        ///
        /// A refusal names its dimension; [`name`](Dimension::name) is the dotted word that configuration,
        /// documentation, metrics and messages use for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Dimension {$($(
            $(#[doc = $about])+
            $variant,
        )+)+}

        impl Dimension {
            /// Every dimension, in the order of the table.
            pub const ALL: &'static [Dimension] = &[$($(Dimension::$variant,)+)+];

            const ROWS: &'static [Row] = &[$($(Row {
                name: concat!($group_name, ".", stringify!($field)),
                group: Group::$group,
                unit: Unit::$unit,
                default: $default,
                lowest: *($range).start(),
                ceiling: *($range).end(),
                model: $model,
                live: life!($life),
                about: concat!($($about),+),
            },)+)+];
        }
    };
}
dimensions!(define_dimension);

impl Dimension {
    const fn row(self) -> &'static Row {
        &Dimension::ROWS[self as usize]
    }

    /// The dotted name, for example `io.running`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The dimension with this dotted name.
    pub fn from_name(name: &str) -> Option<Dimension> {
        Dimension::ALL.iter().copied().find(|dimension| dimension.name() == name)
    }

    /// The limit structure it belongs to.
    pub const fn group(self) -> Group {
        self.row().group
    }

    /// What it is counted in.
    pub const fn unit(self) -> Unit {
        self.row().unit
    }

    /// The limit where nothing is configured.
    pub const fn default_value(self) -> u64 {
        self.row().default
    }

    /// The smallest limit that is accepted.
    pub const fn lowest(self) -> u64 {
        self.row().lowest
    }

    /// The largest limit that is accepted.
    pub const fn ceiling(self) -> u64 {
        self.row().ceiling
    }

    /// The limit that models and the simulator use.
    pub const fn model_value(self) -> u64 {
        self.row().model
    }

    /// Whether the limit may be lowered while work is running.
    pub const fn lowerable(self) -> bool {
        self.row().live
    }

    /// What it counts, in one sentence.
    pub const fn about(self) -> &'static str {
        self.row().about.trim_ascii()
    }

    /// A value of this dimension with its unit: `64`, `8 MiB`, `5 s`.
    pub const fn show(self, value: u64) -> Amount {
        Amount { unit: self.unit(), value }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Group {
    /// The first word of the dotted names.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Broker => "broker",
            Group::Io => "io",
            Group::Pools => "pools",
        }
    }
}

/// A value with its unit, for messages and documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    unit: Unit,
    value: u64,
}

impl fmt::Display for Amount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scales: &[(u64, &str)] = match self.unit {
            Unit::Count => &[],
            Unit::Bytes => &[(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")],
            Unit::Millis => &[(HOUR, "h"), (MINUTE, "min"), (SECOND, "s")],
        };
        let smallest = match self.unit {
            Unit::Count => "",
            Unit::Bytes => " B",
            Unit::Millis => " ms",
        };
        let exact =
            scales.iter().find(|(scale, _)| self.value >= *scale && self.value.is_multiple_of(*scale));
        match exact {
            Some((scale, word)) => write!(out, "{} {word}", Thousands(self.value / scale)),
            None => write!(out, "{}{smallest}", Thousands(self.value)),
        }
    }
}

/// A number with a comma between thousands.
struct Thousands(u64);

impl fmt::Display for Thousands {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1_000 {
            return write!(out, "{}", self.0);
        }
        write!(out, "{},{:03}", Thousands(self.0 / 1_000), self.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_dimension() {
        for (position, dimension) in Dimension::ALL.iter().copied().enumerate() {
            assert_eq!(dimension as usize, position);
            assert_eq!(Dimension::from_name(dimension.name()), Some(dimension));
            assert_eq!(dimension.name().split('.').next(), Some(dimension.group().name()));
        }
        assert_eq!(Dimension::from_name("io.nothing"), None);
        assert_eq!(Dimension::IoRunning.name(), "io.running");
        assert_eq!(Dimension::PoolsQueueAge.unit(), Unit::Millis);
    }

    #[test]
    fn every_row_is_in_its_own_range() {
        for dimension in Dimension::ALL.iter().copied() {
            let range = dimension.lowest()..=dimension.ceiling();
            assert!(range.contains(&dimension.default_value()), "default of {dimension}");
            assert!(range.contains(&dimension.model_value()), "model of {dimension}");
            assert!(dimension.about().ends_with('.'), "{dimension} has no sentence");
            assert!(dimension.unit() != Unit::Count || dimension.ceiling() <= u64::from(u32::MAX));
        }
    }

    #[test]
    fn amounts_are_shown_in_the_largest_exact_unit() {
        let shown = [
            (Dimension::IoBuffers, 65_536, "65,536"),
            (Dimension::IoStagedBytes, 8 * MIB, "8 MiB"),
            (Dimension::IoStagedBytes, 8 * MIB + 1, "8,388,609 B"),
            (Dimension::IoStreamBytes, GIB, "1 GiB"),
            (Dimension::PoolsIdleAge, 0, "0 ms"),
            (Dimension::PoolsIdleAge, 1_500, "1,500 ms"),
            (Dimension::PoolsIdleAge, HOUR, "1 h"),
        ];
        for (dimension, value, text) in shown {
            assert_eq!(dimension.show(value).to_string(), text);
        }
    }
}
