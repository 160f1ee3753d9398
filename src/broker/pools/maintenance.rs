//! Maintenance: bounded work of the operator at one client, outside of every tenant's request.
//!
//! A permit takes a place of a cleanup job, so ordinary work can neither starve it nor be starved by it, and its metadata.
//! It makes one request at a time. A request is no operation: it has a deadline, and connections of its own that nobody
//! else ever gets.
use super::client::{ClientCore, ProviderClient, Resource};
use super::connection::ConnectionReservation;
use super::epoch::EpochCore;
use super::holder::Holder;
use super::pools::ProviderPools;
use super::registry::Registry;
use crate::account::jobs::Job;
use crate::account::scope::Scope;
use crate::account::uses::{Uses, UsesWord};
use crate::broker::error::{Denied, Error, Invalid, What, Which};
use crate::time::Deadline;
use std::sync::Arc;
use std::time::Duration;

/// Requests that one permit may make.
pub const MAINTENANCE_REQUESTS_MAX: u32 = 64;
/// How far ahead the deadline of a permit may be.
pub const MAINTENANCE_TIME_MAX: Duration = Duration::from_secs(120);
/// What a permit is charged in pool metadata, in bytes.
pub const MAINTENANCE_METADATA: u64 = 4_096;

/// The right to make a number of maintenance requests at one client, one at a time, until a deadline.
///
/// It holds the place of one cleanup job and 4,096 bytes of pool metadata until it, every request of it and every connection
/// of theirs is gone. It holds no operation, no session and nothing of a tenant.
#[must_use = "dropping a permit gives it back"]
#[derive(Debug)]
pub struct ProviderMaintenance {
    permit: Arc<Permit>,
}

#[derive(Debug)]
struct Permit {
    registry: Arc<Registry>,
    /// `None` only while it is dropped.
    epoch: Option<Arc<EpochCore>>,
    /// The client's number.
    client: u32,
    /// Nanoseconds since the node's base.
    deadline: u64,
    uses: UsesWord,
}

impl Permit {
    fn check(&self) -> Result<(), Error> {
        if self.registry.is_retired() {
            return Err(Error::retired(What::Pools));
        }
        if !self.epoch.as_ref().is_some_and(|epoch| epoch.is_current()) {
            return Err(Error::retired(What::Epoch));
        }
        if self.registry.ground().floor.passed(self.deadline) {
            return Err(Error::deadline(Which::Operation));
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let ground = self.registry.ground();
        ground.pool_metadata.give(MAINTENANCE_METADATA);
        ground.jobs.give(Job::Cleanup);
        let replaced = self.epoch.take().is_some_and(|epoch| !epoch.is_current());
        if replaced {
            // It may have been the last thing that kept the epoch.
            self.registry.let_go();
        }
        self.registry.ended();
    }
}

impl ProviderMaintenance {
    /// Begins the next request.
    ///
    /// # Errors
    /// `Busy`: the last request, a clone of it or a connection of it still lives. `Exhausted`: all requests were made. The
    /// registry or the epoch is retired; the deadline has passed. Nothing is used up then.
    pub fn begin_request(&self) -> Result<MaintenanceRequest, Error> {
        self.permit.check()?;
        match self.permit.uses.begin() {
            Ok(()) => Ok(MaintenanceRequest { active: Arc::new(Active { permit: self.permit.clone() }) }),
            Err(Uses::Active) => Err(Error::busy()),
            Err(Uses::Exhausted) => Err(Error::denied(Denied::Exhausted)),
        }
    }
    /// How many requests it may still make.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.permit.uses.left()
    }
    /// The instant at which every request of it ends.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.permit.registry.ground().floor.deadline(self.permit.deadline)
    }
}

/// The one request that a permit has at a time.
#[derive(Debug)]
struct Active {
    permit: Arc<Permit>,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.permit.uses.end();
    }
}

/// A maintenance request. Clones are the same one; it ends with the last clone and the last connection of it.
#[must_use = "dropping the last clone of a request ends it"]
#[derive(Clone, Debug)]
pub struct MaintenanceRequest {
    active: Arc<Active>,
}

impl MaintenanceRequest {
    /// Refuses to go on. Reads the coarse clock: at most one tick late, never early.
    ///
    /// # Errors
    /// The registry is retired; the epoch was replaced or retired; the deadline has passed.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.active.permit.check()
    }
    /// The instant at which it ends, whatever it is doing. Nothing of it is stopped by a push: bound what it waits for by
    /// this instant, and look at [`checkpoint`](Self::checkpoint) before and after.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.active.permit.registry.ground().floor.deadline(self.active.permit.deadline)
    }
    fn is_of<T: Resource>(&self, client: &ClientCore<T>) -> bool {
        let permit = &self.active.permit;
        Arc::ptr_eq(&permit.registry, client.registry()) && permit.client == client.number
    }
}

impl<T: Resource> ProviderClient<T> {
    /// As [`reserve_connection`](Self::reserve_connection), for a maintenance request. What is made of it keeps the request
    /// and its permit, and can only be destroyed: parking it is denied.
    ///
    /// # Errors
    /// A request of another client; what [`MaintenanceRequest::checkpoint`] refuses; otherwise as
    /// [`reserve_connection`](Self::reserve_connection).
    pub fn reserve_maintenance_connection(
        &self,
        request: &MaintenanceRequest,
    ) -> Result<ConnectionReservation<T>, Error> {
        if !request.is_of(&self.core) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        request.checkpoint()?;
        self.reserve(Holder::Maintenance(request.clone()))
    }
}

impl ProviderPools {
    /// A permit for `requests` maintenance requests (1 to 64) at the client, one at a time, until `deadline`, which is
    /// at most 2 minutes ahead. It takes the place of one cleanup job and 4,096 bytes of pool metadata. Control path:
    /// allocates the permit.
    ///
    /// # Errors
    /// A number or a deadline outside of these bounds; a deadline that has passed; a client of another registry, or of an
    /// epoch that is not current; no place of a cleanup job, no metadata; admission is closed.
    pub fn maintenance<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        deadline: Deadline,
        requests: u32,
    ) -> Result<ProviderMaintenance, Error> {
        if requests == 0 || requests > MAINTENANCE_REQUESTS_MAX {
            return Err(Error::invalid(Invalid::Bounds));
        }
        let registry = self.registry_arc();
        let deadline = registry.bounded(deadline, MAINTENANCE_TIME_MAX)?;
        if !Arc::ptr_eq(registry, client.core.registry()) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        registry.check_control()?;
        let epoch = client.core.epoch.clone();
        if !epoch.is_current() {
            return Err(Error::retired(What::Epoch));
        }
        let ground = registry.ground();
        ground.pool_metadata.charge(MAINTENANCE_METADATA).map_err(|full| ground.refuse(full.into()))?;
        if ground.jobs.reserve(Job::Cleanup).is_err() {
            ground.pool_metadata.give(MAINTENANCE_METADATA);
            return Err(ground.refuse(Error::full(Job::Cleanup.dimension(), Scope::Node)));
        }
        let uses = UsesWord::new(requests);
        let permit = Permit {
            registry: registry.clone(),
            epoch: Some(epoch),
            client: client.core.number,
            deadline,
            uses,
        };
        let permit = Arc::new(permit);
        // The place was taken by a step on the word of jobs. Whoever retired the registry before a step on it is seen here.
        registry.check_open()?;
        Ok(ProviderMaintenance { permit })
    }
}
