//! The limits of the two runs, at the start and as far as they are lowered.
use latent_capabilities::{Dimension, PoolLimits};

/// Which of the two runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    /// Limits far below what eight threads want, and falling; the providers that are called are rotated.
    Saturated,
    /// Limits that the threads cannot reach, also when they have fallen; nobody shares a client.
    Quiet,
}

impl Load {
    pub(crate) fn startup(self) -> PoolLimits {
        let common = PoolLimits {
            configurations: 256,
            clients: 1_024,
            clients_per_provider: 128,
            metadata_bytes: 32 << 20,
            ..PoolLimits::default()
        };
        match self {
            Load::Saturated => PoolLimits {
                pending: 14,
                running: 12,
                running_per_tenant: 7,
                running_per_provider: 9,
                requests_per_tenant: 14,
                requests_per_provider: 18,
                connections: 9,
                connections_per_client: 4,
                idle_connections: 5,
                ..common
            },
            Load::Quiet => PoolLimits {
                pending: 512,
                running: 512,
                running_per_tenant: 512,
                running_per_provider: 512,
                requests_per_tenant: 512,
                requests_per_provider: 512,
                connections: 512,
                connections_per_client: 32,
                idle_connections: 512,
                ..common
            },
        }
    }
    /// The lowest that a limit is lowered to.
    pub(crate) fn lowest(self, dimension: Dimension) -> u64 {
        match (self, dimension) {
            (Load::Saturated, Dimension::PoolsConnectionsPerClient) => 1,
            (Load::Saturated, _) => 3,
            (Load::Quiet, Dimension::PoolsConnectionsPerClient) => 8,
            (Load::Quiet, _) => 128,
        }
    }
}

/// The limits that are lowered.
pub(crate) const LOWERED: [Dimension; 9] = [
    Dimension::PoolsPending,
    Dimension::PoolsRunning,
    Dimension::PoolsRequestsPerTenant,
    Dimension::PoolsRequestsPerProvider,
    Dimension::PoolsRunningPerTenant,
    Dimension::PoolsRunningPerProvider,
    Dimension::PoolsConnections,
    Dimension::PoolsConnectionsPerClient,
    Dimension::PoolsIdleConnections,
];
