//! Shared provider pools: one registry per broker, with fair request admission and bounded clients and connections.
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
mod acquire;
mod admission;
mod client;
mod connection;
mod control;
mod epoch;
mod registry;
mod snapshot;

#[cfg(test)]
mod conformance;

pub use acquire::{Acquire, Acquired};
pub use admission::{PoolAdmission, PoolCall, PoolReady, PoolWait};
pub use client::{ProviderClient, Resource};
pub use connection::{ConnectionReservation, Exchange, PooledConnection};
pub use epoch::{Epoch, InstalledProvider, OriginSlot, ProviderSetup};
pub use registry::ProviderPools;
pub use snapshot::PoolSnapshot;
