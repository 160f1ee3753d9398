//! Bounded, fair, allocation-free ownership of outside calls for nodes that run work for many tenants.

/// Declares the floors. They are private; under `--cfg loom` they are public as `model`, so that the models in
/// `loom-tests/` run the real code.
macro_rules! floors {
    ($($name:ident),* $(,)?) => {
        $(
            #[cfg(not(loom))]
            #[allow(unreachable_pub, reason = "public to the models, which compile with cfg(loom)")]
            mod $name;
            #[cfg(loom)]
            #[allow(missing_docs, missing_debug_implementations, reason = "public to the models only")]
            pub mod $name;
        )*

        /// The floors, for models only.
        #[cfg(loom)]
        pub mod model {
            $(pub use crate::$name;)*
        }
    };
}

floors! {
    sync,
    broken,
    foreign,
    time,
    mem,
    account,
    queue,
}

#[cfg(not(loom))]
pub mod broker;

#[cfg(not(loom))]
pub use broker::io::*;
#[cfg(not(loom))]
pub use broker::pools::*;
#[cfg(not(loom))]
pub use broker::{
    Activation, Amount, BROKER_COSTS, Broker, BrokerLimits, BrokerSnapshot, Budget, Capability, CapabilitySession,
    CapabilitySessionObserver, Cost, Denied, Dimension, Effect, Error, Group, IO_COSTS, Invalid, IoLimits, Kind,
    LimitsError, Operation, POOL_COSTS, Plan, PlanSpec, Policy, PoolLimits, Probe, Provider, ProviderCall, ProviderRef,
    ProviderSpec, Reclaim, Refusal, Remaining, ResourceTableReservation, Retry, Scope, SessionStop, StopCause,
    StreamBudget, Terminal, Unit, Violation, What, Which,
};
pub use time::{Clock, Deadline, TimeOutOfRange};
