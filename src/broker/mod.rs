//! The broker: who may call what, on whose account, until when.
//!
//! * A [`Plan`] is sealed for one tenant from one publication and binds capabilities to exact provider epochs.
//! * A [`CapabilitySession`] is one activation under a plan: a deadline, cumulative budgets, a call limit, a stop.
//! * [`CapabilitySession::dispatch`] asks policy, publication and provider *now* and yields an affine
//!   [`ProviderCall`]; [`io`] and [`pools`] turn it into a running operation.
#[allow(clippy::module_inception, reason = "the file is about the type of this name")]
mod broker;
mod bytes;
mod call;
mod capability;
mod control;
mod dispatch;
mod error;
mod ground;
mod ledger;
mod limits;
mod observer;
mod plan;
mod policy;
mod session;
mod session_core;
mod slots;
mod snapshot;
mod table;

pub mod io;
pub mod pools;

#[cfg(test)]
mod conformance;
#[cfg(test)]
#[path = "../../tests/support/poll.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the integration tests; these use a part of it")]
mod poll;

pub use crate::account::scope::Scope;
pub use broker::{Broker, Provider, ProviderSpec};
pub use call::ProviderCall;
pub use capability::{Capability, NAME_MAX, OPERATIONS_MAX, Operation};
pub use error::*;
pub use ledger::{Budget, Cost};
pub use limits::*;
pub use observer::{CapabilitySessionObserver, Reclaim, Remaining};
pub use plan::{BINDINGS_MAX, Plan, PlanSpec, ProviderRef};
pub use policy::{Policy, StreamBudget};
pub use session::{Activation, CapabilitySession, Probe, SessionStop};
pub use snapshot::BrokerSnapshot;
pub use table::{ResourceTableReservation, TABLE_BYTES_MAX};
