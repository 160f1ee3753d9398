//! Bounded, fair, allocation-free ownership of outside calls for nodes that run work for many tenants.
//!
//! A gateway, a proxy, a Wasm host or a worker calls HTTP origins, object stores, secret stores and brokers on behalf of many
//! tenants. This crate decides who may go now, counts everything that is held, moves bytes with backpressure, and gives
//! everything back exactly once, however a call ends. All is bounded by numbers that are fixed at startup; tenants get fair
//! turns; after startup the hot path takes no lock and never allocates.
//!
//! ```text
//!  Broker ── seal ──▶ Plan ── open ──▶ CapabilitySession
//!                                          │
//!  ProviderPools ── install ──▶ client ──▶ admit ──▶ wait ──▶ dispatch ──▶ PoolCall
//!                                        charged   a fair    policy,        │  buffers, streams, transfers
//!                                        before    turn      asked now      │  a connection, parked or destroyed
//!                                        staging                            ▼
//!                                                          given back when the last owner is gone
//! ```
//!
//! Each step consumes the one before; none can be skipped or done twice.
//!
//! ```
//! use latent_capabilities::broker::io::IoRuntime;
//! use latent_capabilities::broker::pools::{
//!     Acquired, Epoch, Exchange, OriginSlot, ProviderPools, ProviderSetup, Resource,
//! };
//! use latent_capabilities::broker::{
//!     Activation, Broker, BrokerLimits, Capability, Cost, IoLimits, PlanSpec, PoolLimits,
//! };
//! use latent_capabilities::Deadline;
//! use std::time::Duration;
//!
//! static ORDERS: Capability = Capability::new("example:orders", &["send"]);
//!
//! struct Socket; // the real connection: here, none
//! impl Resource for Socket {
//!     fn is_reusable(&mut self) -> bool { true }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::new(BrokerLimits::default())?;
//! let io = IoRuntime::new(&broker, IoLimits::default())?;
//! let pools = ProviderPools::new(&broker, &io, tokio::runtime::Handle::current(), PoolLimits::default())?;
//!
//! let setup = ProviderSetup::new("orders", "orders.example").credentials(b"secret");
//! let orders = pools.install(setup, Epoch::NONE)?;
//! let client = pools.client::<Socket>(&orders, OriginSlot::new(0))?;
//! let plan = broker.seal(PlanSpec::new("alpha", "release-1").bind(&ORDERS, &orders.reference()))?;
//!
//! let session = broker.open(&plan, Activation::until(Deadline::after(Duration::from_secs(5))?))?;
//! let admission = pools.admit(&client, &session)?; // charged before anything is staged
//! let ready = admission.wait().await?; // a fair turn: capacity, not permission
//! let call = ready.dispatch(ORDERS.operation(0), Cost::new())?; // permission, asked now
//! let mut connection = match client.acquire(&call).await? {
//!     Acquired::Idle(connection) => connection,
//!     Acquired::Dial(dial) => dial.connected(call.io().wait_for(async { Socket }).await?)?,
//! };
//! let _socket = connection.resource();
//! connection.park(Exchange::complete())?; // or drop it, and it is destroyed
//! drop((call, session));
//!
//! assert!(io.snapshot().is_zero());
//! assert_eq!(pools.snapshot().idle_connections, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | module | what is there |
//! | --- | --- |
//! | [`broker`] | plans, sessions, policy, budgets, limits, errors |
//! | [`broker::io`] | admission, calls, buffers, streams, transfers, stop handles |
//! | [`broker::pools`] | provider epochs, clients, connections, jobs, inbound events, the registry |
//!
//! The floors below are private: `queue` (the line and its turn), `account` (counting), `mem` (fixed memory, and all the unsafe
//! code there is). `docs/architecture.md` says how they fit together, `docs/limits.md` lists every limit.

#![cfg_attr(latent_realtime, feature(sanitize))]

#[macro_use]
mod plant;
#[macro_use]
mod refuse;

/// Declares the floors. They are private; under `--cfg loom` they are public as `model`, so that the models in
/// `loom-tests/` run the real code.
macro_rules! floors {
    ($($name:ident),* $(,)?) => {
        $(
            #[cfg(not(loom))]
            #[allow(
                unreachable_pub,
                dead_code,
                unused_imports,
                reason = "public to the models, which compile with cfg(loom) and use parts that the floors above do not"
            )]
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
    Activation, Amount, BROKER_COSTS, Broker, BrokerLimits, BrokerSnapshot, Budget, Capability,
    CapabilitySession, CapabilitySessionObserver, Cost, Denied, Dimension, Effect, Error, Group, IO_COSTS,
    Invalid, IoLimits, Kind, LimitsError, Operation, POOL_COSTS, Plan, PlanSpec, Policy, PoolLimits, Probe,
    Provider, ProviderCall, ProviderRef, ProviderSpec, Reclaim, Refusal, Remaining, ResourceTableReservation,
    Retry, Scope, SessionStop, StopCause, StreamBudget, Terminal, Unit, Violation, What, Which,
};
pub use time::{Clock, Deadline, TimeOutOfRange};
