//! What a broker holds, as numbers.

use crate::broker::ground::GroundAnchor;
use crate::broker::limits::{Dimension, fixed_cost};
use crate::sync::order;

/// Counts of one broker. An observation: numbers of different kinds may be of different moments, and nothing is decided
/// by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BrokerSnapshot {
    /// Logical providers that have a number.
    pub providers: u64,
    /// Sealed plans that exist; those that nobody uses any more count until the control path looks next.
    pub plans: u64,
    /// Tenants that have a number.
    pub tenants: u64,
    /// Sessions that are open, or closed with something of them still alive.
    pub sessions: u64,
    /// Bytes of metadata: the fixed part of what exists, and what was charged beyond it.
    pub metadata_bytes: u64,
    /// Whether the node is closed for good.
    pub closed: bool,
    /// Whether accounting was ever found broken in this process.
    pub broken: bool,
}

impl BrokerSnapshot {
    /// Whether nothing of any session is left, and no accounting was ever found broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.sessions == 0 && !self.broken
    }
}

pub(crate) fn take(anchor: &GroundAnchor) -> BrokerSnapshot {
    let ground = anchor.shared();
    let providers = u64::from(ground.counts.providers.load(order::OBSERVE));
    let plans = u64::from(ground.counts.plans.load(order::OBSERVE));
    let tenants = u64::from(ground.counts.tenants.load(order::OBSERVE));
    let sessions = u64::from(anchor.live());
    let fixed = providers * fixed_cost(Dimension::BrokerProviders)
        + plans * fixed_cost(Dimension::BrokerPlans)
        + tenants * fixed_cost(Dimension::BrokerTenants)
        + sessions * fixed_cost(Dimension::BrokerSessions);
    BrokerSnapshot {
        providers,
        plans,
        tenants,
        sessions,
        metadata_bytes: fixed + ground.broker_metadata.used(),
        closed: ground.floor.node.is_closed(),
        broken: crate::broken::is_broken(),
    }
}
