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
pub use broker::{
    Activation, Broker, BrokerSnapshot, Budget, Capability, CapabilitySession, CapabilitySessionObserver, Cost,
    Operation, Plan, PlanSpec, Policy, ProviderCall, ProviderRef, StreamBudget,
};
pub use time::{Clock, Deadline, TimeOutOfRange};
