//! Shared provider pools: one registry per broker, with fair request admission, bounded clients and connections, jobs, and
//! the inbound events and maintenance that share their limits.
//!
//! ```text
//!   install ──▶ InstalledProvider (an epoch) ──client::<T>(origin)──▶ ProviderClient<T>
//!                                                                        │
//!   admit(client, session) ──▶ PoolAdmission ──wait──▶ PoolReady ──dispatch──▶ PoolCall
//!                                                                        │ checkout, acquire, reserve_connection
//!                                                                        ▼
//!                                                    PooledConnection<T> ──park──▶ idle
//! ```
//!
//! A waiting request stands in the node's one line: tenants in rotation, providers in rotation inside a tenant, first come
//! first served inside both. A grant is capacity; [`PoolReady::dispatch`] asks for permission at the moment of the start.
//!
//! **Retiring a registry retires the I/O runtime that it was given, for good**: for users of the runtime without pools too.
//!
//! Invariants (cited as P1 and so on):
//!
//! * P1. The books (which epochs and clients there are) change under one mutex, and so does what is published from them:
//!   the tag in a provider's word, the table of installations, the list of retained epochs. Foreign code never runs under
//!   it. The control mutex of the ground may be taken inside of it, never the other way round. Lowering limits holds both,
//!   so that nothing is made while it runs.
//! * P2. An epoch is closed by the swap of its tag, and its clients by closing their cells, both under that mutex; when the
//!   call that did it returns, nothing is admitted, started or parked on it any more. Accepted calls may still dial and
//!   check out.
//! * P3. Who keeps whom: handles, connections and clients keep their epoch and the ground; clients keep the registry; the
//!   registry keeps clients and epochs until they are of no use any more (`Registry::sweep`) or it is retired.
//!   Plans stand in the ground, so they keep the data of an epoch and nothing that keeps the ground. So there is no ring
//!   that outlives the registry's retirement.
//! * P4. Resources, their `is_reusable` and their destructors are foreign: they run when our own steps are done, or between
//!   steps after which everything is accounted for. On a caller's thread their panic goes on to the caller; on the control
//!   path, and where a third party's resource is destroyed for somebody's dial, it is contained and counted.
//! * P5. What a job is charged goes back in the order that `work.rs` lists, on every way on which it can end. Its place is
//!   free when its task was joined, by the control task; if that was cut off, when the job's own last step is done.
mod acquire;
mod admission;
mod cleanup;
mod client;
mod connection;
mod control;
mod counts;
mod epoch;
mod figures;
mod followup;
mod holder;
mod ingress;
mod install;
mod job;
mod lifetime;
mod lower;
mod maintenance;
mod metadata;
#[allow(clippy::module_inception, reason = "the file is about the type of this name")]
mod pools;
mod registry;
mod shutdown;
mod snapshot;
mod work;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;

pub use acquire::{Acquire, Acquired};
pub use admission::{PoolAdmission, PoolCall, PoolReady, PoolWait};
pub use cleanup::{CleanupResult, Close};
pub use client::{ProviderClient, Resource};
pub use connection::{ConnectionReservation, Exchange, PooledConnection};
pub use counts::{ClientCounts, EpochCounts, Listing, Name, ProviderCounts, RequestCounts, TenantCounts};
pub use epoch::{Epoch, InstalledProvider, OriginSlot, ProviderSetup};
pub use figures::{PoolFigures, QueueAges};
pub use holder::Requester;
pub use ingress::{
    INGRESS_MEMORY_MAX, INGRESS_MEMORY_MIN, INGRESS_OPERATIONS_MAX, INGRESS_TIME_MAX, IngressAdmission,
    IngressRequest, IngressTerms, IngressWait,
};
pub use job::{NotSpawned, ProviderJob};
pub use lower::{LowerError, Obstacle, Standing};
pub use maintenance::{
    MAINTENANCE_METADATA, MAINTENANCE_REQUESTS_MAX, MAINTENANCE_TIME_MAX, MaintenanceRequest,
    ProviderMaintenance,
};
pub use metadata::{PROTOCOL_METADATA_MAX, ProviderMetadata};
pub use pools::ProviderPools;
pub use snapshot::PoolSnapshot;
