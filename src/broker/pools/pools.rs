//! The handle to the registry: installing, clients, admission, the end.
use super::admission::{PoolAdmission, PoolReady};
use super::client::{ProviderClient, Resource};
use super::control;
use super::counts::{ClientCounts, EpochCounts, Listing, ProviderCounts, TenantCounts};
use super::epoch::{Epoch, InstalledProvider, OriginSlot, ProviderSetup};
use super::figures::PoolFigures;
use super::lower::LowerError;
use super::registry::Registry;
use super::snapshot::PoolSnapshot;
use crate::account::charge::Request;
use crate::broker::Broker;
use crate::broker::control::RequestLimits;
use crate::broker::error::{Denied, Error};
use crate::broker::ground::SessionLease;
use crate::broker::io::{self, Front, IoAdmission, IoReady, IoRuntime, QueueAge, SetupError};
use crate::broker::limits::{POOL_COSTS, PoolLimits};
use crate::broker::plan::PlanCore;
use crate::broker::session::CapabilitySession;
use crate::sync::order;
use crate::time::Deadline;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// One registry of provider pools. Clones are handles to the same one (control path); dropping the last retires it.
#[derive(Clone, Debug)]
pub struct ProviderPools {
    owner: Arc<Owner>,
}

#[derive(Debug)]
struct Owner {
    registry: Arc<Registry>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.registry.is_retired() {
            self.registry.retire();
        }
    }
}

impl ProviderPools {
    /// Puts the registry on a broker and its I/O runtime, with one control task on `handle`.
    ///
    /// The control task is the registry's only one. It runs until the registry is retired and drained, so the runtime of
    /// `handle` must live that long; if it ends earlier, the registry is retired at that moment and never clean.
    ///
    /// Retiring or dropping the registry retires `io`, for good and for everyone.
    ///
    /// # Errors
    /// Limits that contradict a ceiling, each other or the I/O limits; an I/O runtime of another broker; a second registry
    /// on the same broker, also after the first was retired.
    pub fn new(
        broker: &Broker,
        io: &IoRuntime,
        handle: Handle,
        limits: PoolLimits,
    ) -> Result<ProviderPools, SetupError> {
        limits.validate_prepaid(POOL_COSTS)?;
        let anchor = broker.anchor().clone();
        let ground = anchor.shared();
        if !std::ptr::eq(ground, io.anchor().shared()) {
            return Err(SetupError::ForeignRuntime);
        }
        if ground.pools.set(limits).is_err() {
            return Err(SetupError::Second("a registry of pools"));
        }
        ground.floor.node.open_pools(limits.pending, limits.running);
        ground.shares.open_connections(limits.connections, limits.idle_connections);
        ground.jobs.open(limits.workers, limits.cleanup_jobs, limits.connections);
        ground.pool_metadata.raise(limits.metadata_bytes - limits.prepaid(POOL_COSTS));
        ground.control().open_requests(ground, RequestLimits::of(&limits));
        let registry = Arc::new(Registry::new(anchor, io.clone(), handle, limits));
        let seats: Weak<Registry> = Arc::downgrade(&registry);
        if registry.ground().seats.set(seats).is_err() {
            crate::broken::accounting("a broker has the seats of two registries");
        }
        control::spawn(registry.clone());
        Ok(ProviderPools { owner: Arc::new(Owner { registry }) })
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.owner.registry
    }
    pub(super) fn registry_arc(&self) -> &Arc<Registry> {
        &self.owner.registry
    }

    /// The limits in force.
    pub fn limits(&self) -> PoolLimits {
        **self.registry().limits.load()
    }

    /// Lowers limits while work is running: all of them, or none. Start from [`limits`](Self::limits) and change what is to
    /// be lower.
    ///
    /// It never erases what is held, so a limit cannot go below its present use: of the node, of any tenant, logical
    /// provider (over all its epochs) or client, those of replaced epochs that calls still keep included. Wait for the use to
    /// fall, or close what rests, and ask again. Nothing is ever raised, not even to the values of the startup.
    ///
    /// When it has returned, the next admission, installation, client and dial see the new limits. Shorter ages hold for
    /// admissions and looks at resting connections from then on; what was admitted keeps its instant. While it runs, the units
    /// that it is about to take count as used, in snapshots too, whatever comes of it. Control path: it takes the control
    /// mutexes, and time that grows with the number of tenants, providers and clients.
    ///
    /// # Errors
    /// [`LowerError`] names every limit that stands in the way, whose it is, and the use or the limit that was found: what
    /// is in use, raised, fixed for life (both backoffs), or in contradiction to another of the new limits or to what all
    /// slots cost in metadata. Nothing was changed then.
    pub fn lower_limits(&self, limits: PoolLimits) -> Result<(), LowerError> {
        self.registry().lower_limits(limits)
    }

    /// Installs a configuration of a logical provider, or replaces the one with the epoch `expected`.
    ///
    /// A replacement takes effect in one step: after it, nothing is admitted or started on the old epoch, and what waits
    /// for it is refused; what was accepted finishes, and its connections are destroyed instead of parked. There must be
    /// room for both: the old one gives its room back when the last plan, client, connection and handle of it is gone.
    /// Control path. A panic in the destructor of an idle connection of the old epoch is contained and counted.
    ///
    /// # Errors
    /// Another epoch is installed than expected, or the new number does not advance it; no room; the name is bad; the
    /// registry is retired. The installed configuration stays as it is.
    pub fn install(&self, setup: ProviderSetup, expected: Epoch) -> Result<InstalledProvider, Error> {
        let registry = self.registry();
        registry.install(setup, expected).map_err(|error| registry.ground().refuse(error))
    }

    /// As [`Self::install`], with a client for each of the first `origins` origins, in their order. If there is no room for
    /// one of them, nothing is installed: the epoch and its clients come together or not at all.
    ///
    /// # Errors
    /// As [`Self::install`]; no room for a client of this provider or of the node, those of replaced epochs included. The
    /// installed configuration stays as it is.
    pub fn install_with_clients<T: Resource>(
        &self,
        setup: ProviderSetup,
        expected: Epoch,
        origins: u16,
    ) -> Result<(InstalledProvider, Vec<ProviderClient<T>>), Error> {
        let registry = &self.owner.registry;
        registry
            .install_with_clients(setup, expected, origins)
            .map_err(|error| registry.ground().refuse(error))
    }

    /// Takes a provider out of service: nothing is admitted or started on it any more; what was accepted finishes.
    ///
    /// # Errors
    /// It is not the current installation, or of another registry.
    pub fn retire_provider(&self, provider: &InstalledProvider) -> Result<(), Error> {
        self.registry().retire_provider(provider)
    }

    /// The current installation of a logical name.
    ///
    /// # Errors
    /// Nothing of that name is installed; the registry is retired.
    pub fn provider(&self, name: &str) -> Result<InstalledProvider, Error> {
        let registry = self.registry();
        if registry.is_retired() {
            return registry.check_open().and(Err(Error::denied(Denied::Unknown)));
        }
        registry.installed.load().get(name).cloned().ok_or(Error::denied(Denied::Unknown))
    }

    /// The client of an approved origin: made at the first look, the same one afterwards. Control path.
    ///
    /// # Errors
    /// The installation is not current, or of another registry; the origin's client has another resource type; no room for
    /// a client of this provider or of the node; admission is closed.
    pub fn client<T: Resource>(
        &self,
        provider: &InstalledProvider,
        origin: OriginSlot,
    ) -> Result<ProviderClient<T>, Error> {
        let registry = &self.owner.registry;
        registry.client(provider, origin).map_err(|error| registry.ground().refuse(error))
    }

    /// Admits a request of the session to the client's provider: it may stage input now and wait for its turn.
    ///
    /// # Errors
    /// The dimension that has no room, by name and scope; the plan does not bind this epoch; the epoch was replaced; the
    /// session is stopped; admission is closed. Nothing is held afterwards. No lock, no allocation, no exact clock.
    pub fn admit<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
    ) -> Result<PoolAdmission, Error> {
        self.ask(client, session.lease(), None, false)
            .map(|front| PoolAdmission { inner: IoAdmission::new(front) })
    }
    /// The same with a deadline of its own, which can only be earlier than the session's.
    ///
    /// # Errors
    /// As [`Self::admit`]; a later deadline is denied.
    pub fn admit_until<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
        until: Deadline,
    ) -> Result<PoolAdmission, Error> {
        self.ask(client, session.lease(), Some(until), false)
            .map(|front| PoolAdmission { inner: IoAdmission::new(front) })
    }
    /// Straight to running units, or refused; never waits, charges no pending. Reads no clock: a session whose deadline has
    /// passed gets a grant that cannot start any more, and that the control task takes back.
    ///
    /// # Errors
    /// As [`Self::admit`], but for the session's deadline, which the start meets; also when somebody waits in front.
    pub fn admit_now<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
    ) -> Result<PoolReady, Error> {
        self.ask(client, session.lease(), None, true).map(|front| PoolReady { inner: IoReady::new(front) })
    }
    /// As [`Self::admit_now`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Self::admit_now`]; a later deadline than the session's is denied.
    pub fn admit_now_until<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
        until: Deadline,
    ) -> Result<PoolReady, Error> {
        self.ask(client, session.lease(), Some(until), true)
            .map(|front| PoolReady { inner: IoReady::new(front) })
    }

    /// Admits a request of whatever kind, for the session of `lease`.
    #[inline(always)]
    pub(super) fn ask<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        lease: &SessionLease,
        until: Option<Deadline>,
        now: bool,
    ) -> Result<Front, Error> {
        let registry = self.registry();
        if !std::ptr::eq(registry, &**client.core.registry()) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        if !registry.anchor.holds(lease) {
            return Err(Error::denied(Denied::ForeignSession));
        }
        // Asked twice: here, so that a request that comes after closing has returned is not even seen for a moment.
        registry.check_open()?;
        let epoch = &client.core.epoch;
        let plan = PlanCore::of(lease);
        let provider = epoch.logical.number();
        plan.uses(provider, epoch.tag)?;
        let request = Request::new(plan.tenant(), provider, epoch.tag);
        let wait = (!now).then(|| QueueAge(registry.queue_age_nanos()));
        let front = match io::admit(lease, Some(request), until, wait) {
            Ok(front) => front,
            Err(error) => io::admit_again(lease, Some(request), until, wait, error)?,
        };
        // The charge was a step on the node's word. Whoever closed admission before it is seen here.
        registry.check_open()?;
        front.lease().client.store(client.core.number, order::COUNT);
        registry.events.note_work();
        Ok(front)
    }

    /// What is held now. Counters are read one after another: an observation, not a decision. No lock, no
    /// allocation once the calling thread has taken one.
    pub fn snapshot(&self) -> PoolSnapshot {
        self.registry().snapshot()
    }

    /// What happened since the node was made: admissions, grants, refusals by dimension, how long requests stood in line.
    /// Control path: it looks at every operation slot. No lock, no allocation.
    pub fn figures(&self) -> PoolFigures {
        self.registry().figures()
    }

    /// Lists the tenants that have a plan, in the order of their numbers, with what each of them holds.
    ///
    /// For operators: control path, never waits for a request, allocates nothing. It fills `into` from the first place on
    /// and says how many there were, so that a caller whose storage was too short can come back with more; 4,096 is the
    /// ceiling of `broker.tenants`. Names are in the entries. The same goes for the other three listings.
    pub fn tenants(&self, into: &mut [TenantCounts]) -> Listing {
        self.registry().tenants(into)
    }

    /// Lists the logical providers, in the order of their numbers, with what each of them holds over all its epochs. At
    /// most 256. As [`tenants`](Self::tenants).
    pub fn providers(&self, into: &mut [ProviderCounts]) -> Listing {
        self.registry().providers(into)
    }

    /// Lists the epochs that something still keeps, oldest first: how the drain of a replaced one is watched. Its requests
    /// and connections fall to zero; once nothing keeps it, its credentials are wiped and it is not listed any more. At most
    /// as many as `pools.configurations`, and for a moment those that were just let go.
    ///
    /// As [`tenants`](Self::tenants). Looks at every operation slot of the node.
    pub fn epochs(&self, into: &mut [EpochCounts]) -> Listing {
        self.registry().epochs(into)
    }

    /// Lists the registry's clients, oldest first, those of replaced epochs included while something keeps them; none once
    /// the registry is retired. At most as many as `pools.clients`.
    ///
    /// As [`tenants`](Self::tenants). Looks at every operation slot of the node.
    pub fn clients(&self, into: &mut [ClientCounts]) -> Listing {
        self.registry().clients(into)
    }

    /// Refuses new requests, installations and clients from now on; what was admitted runs on. For a graceful drain: when
    /// this has returned, every request that was admitted, and no further one, is in the snapshot.
    pub fn close_admission(&self) {
        self.registry().close_admission();
    }

    /// Closes admission, **retires the I/O runtime that this registry was given**, stops every operation, retires every
    /// epoch and destroys idle connections. For good; what holds bytes or connections keeps them until it is dropped.
    pub fn retire(&self) {
        self.registry().retire();
    }

    /// Retires, and waits until nothing is owned any more or the deadline passes. Returns what is left then: a deadline is
    /// no error, and nothing is aborted. It wakes with the end of the last owner, not by a tick. Cancel safe: the registry
    /// is retired from the first poll on, and may be asked again.
    pub async fn shutdown(&self, deadline: Deadline) -> PoolSnapshot {
        self.registry_arc().shutdown(deadline).await
    }
}
