//! The registry: installed epochs, their clients, and admission to them.
use super::admission::{PoolAdmission, PoolReady};
use super::client::{AnyClient, ClientCore, ProviderClient, Resource};
use super::control::{self, Events};
use super::epoch::{Epoch, EpochCore, EpochData, InstalledProvider, OriginSlot, ProviderSetup};
use super::snapshot::PoolSnapshot;
use crate::account::charge::Request;
use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::broker::Broker;
use crate::broker::control::{Kind, Logical, RequestLimits, stop_waiters};
use crate::broker::error::{Denied, Error, What};
use crate::broker::ground::{Ground, GroundAnchor};
use crate::broker::io::{self, Asked, Front, IoAdmission, IoReady, IoRuntime, SetupError};
use crate::broker::limits::{POOL_COSTS, PoolLimits, fixed_cost};
use crate::broker::plan::{PlanCore, ProviderRef};
use crate::broker::session::CapabilitySession;
use crate::sync::order;
use crate::time::Deadline;
use arc_swap::ArcSwap;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Handle;

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const RETIRED: u8 = 2;

/// The current installation of each logical name. Looked up by name on the control path, published whole.
type Installations = HashMap<String, InstalledProvider>;

/// What the control mutex guards: it is never taken on the hot path.
#[derive(Default)]
struct Books {
    /// Every epoch that anything still keeps.
    epochs: Vec<Arc<EpochCore>>,
    clients: Vec<Listed>,
}

struct Listed {
    tag: u32,
    provider: u16,
    origin: OriginSlot,
    kind: TypeId,
    client: Arc<dyn AnyClient>,
    /// The same client, by its type.
    typed: Arc<dyn Any + Send + Sync>,
    charged: u64,
}

pub(crate) struct Registry {
    anchor: GroundAnchor,
    io: IoRuntime,
    limits: ArcSwap<PoolLimits>,
    /// Nanoseconds; read on the hot path instead of the limits.
    queue_age: AtomicU64,
    idle_age: AtomicU64,
    state: AtomicU8,
    installed: ArcSwap<Installations>,
    /// What `books.epochs` keeps, for snapshots, which take no lock.
    retained: ArcSwap<Vec<Arc<EpochData>>>,
    /// How many clients `books` lists.
    clients: AtomicU32,
    books: Mutex<Books>,
    clients_made: AtomicU32,
    pub(crate) events: Events,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("state", &self.state).finish_non_exhaustive()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Registry {
    pub(crate) fn ground(&self) -> &Ground {
        self.anchor.shared()
    }
    pub(crate) fn limits(&self) -> Arc<PoolLimits> {
        self.limits.load_full()
    }
    pub(crate) fn idle_age_nanos(&self) -> u64 {
        self.idle_age.load(order::COUNT)
    }
    pub(crate) fn is_retired(&self) -> bool {
        self.state.load(order::OBSERVE) == RETIRED
    }
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Shows snapshots what the books list. Under the control mutex.
    fn publish(&self, books: &Books) {
        let retained = books.epochs.iter().map(|epoch| epoch.data.clone()).collect();
        self.retained.store(Arc::new(retained));
        self.clients.store(books.clients.len() as u32, order::PUBLISH);
    }
    /// A connection began to rest: the control task looks when it will have rested long enough.
    pub(crate) fn idle_from(&self, since: u64) {
        self.events.look_at(since.checked_add(self.idle_age_nanos()).unwrap_or(u64::MAX));
    }
    /// Something that a shutdown waits for has ended.
    pub(crate) fn ended(&self) {
        if self.is_retired() {
            self.ground().floor.ended.notify_waiters();
        }
    }
    /// The client with most idle connections destroys one. Control path: somebody is about to dial.
    pub(crate) fn evict_one(&self) -> bool {
        let richest = {
            let books = self.books();
            let richest = books.clients.iter().map(|listed| &listed.client).max_by_key(|client| client.idle());
            richest.filter(|client| client.idle() > 0).cloned()
        };
        richest.is_some_and(|client| client.evict())
    }
    /// Destroys what has rested long enough, a bounded number at a time. When to look again.
    pub(crate) fn expire(&self, now: u64) -> Option<u64> {
        const STEP: usize = 64;
        let clients: Vec<Arc<dyn AnyClient>> =
            self.books().clients.iter().map(|listed| listed.client.clone()).collect();
        let age = self.idle_age_nanos();
        let mut next = None;
        for client in clients {
            let found = client.expire(now, age, STEP);
            let due = if found.more { Some(now) } else { found.next };
            if let Some(due) = due {
                next = Some(next.map_or(due, |other: u64| other.min(due)));
            }
        }
        next
    }
    /// Frees clients and epochs that nothing keeps any more, and the metadata they had. Control path, off every request.
    pub(crate) fn sweep(&self) {
        let ground = self.ground();
        let mut gone: Vec<Listed> = Vec::new();
        let mut epochs: Vec<Arc<EpochCore>> = Vec::new();
        {
            let mut books = self.books();
            let mut at = 0;
            while at < books.clients.len() {
                let listed = &books.clients[at];
                // Two references are ours; a retired client that nobody else has cannot get new ones.
                let unused = listed.client.is_retired()
                    && Arc::strong_count(&listed.typed) == 2
                    && listed.client.connections() == 0;
                if unused { gone.push(books.clients.swap_remove(at)) } else { at += 1 }
            }
            let mut at = 0;
            while at < books.epochs.len() {
                let epoch = &books.epochs[at];
                let unused = !epoch.is_current()
                    && Arc::strong_count(epoch) == 1
                    // Plans keep the data without the core; the published list has one reference.
                    && Arc::strong_count(&epoch.data) == 2
                    && !books.clients.iter().any(|listed| listed.tag == epoch.tag);
                if unused { epochs.push(books.epochs.swap_remove(at)) } else { at += 1 }
            }
            if !gone.is_empty() || !epochs.is_empty() {
                self.publish(&books);
            }
        }
        for listed in &gone {
            ground.pool_metadata.give(listed.charged);
        }
        drop(gone);
        for epoch in &epochs {
            ground.pool_metadata.give(epoch.charged);
        }
    }
    pub(crate) fn snapshot(&self) -> PoolSnapshot {
        let ground = self.ground();
        let node = ground.floor.node.snapshot();
        let shares = ground.shares.snapshot();
        let jobs = ground.jobs.snapshot();
        let retained = self.retained.load();
        let is_current =
            |epoch: &EpochData| ground.floor.providers[usize::from(epoch.provider)].tag() == epoch.tag;
        let retired_connections = retained
            .iter()
            .filter(|epoch| !is_current(epoch))
            .map(|epoch| epoch.connections.load(order::OBSERVE))
            .sum();
        let (connections, idle) = (u64::from(shares.connections), u64::from(shares.idle_connections));
        let connecting = u64::from(jobs.connecting);
        PoolSnapshot {
            configurations: self.installed.load().len() as u64,
            retained_configurations: retained.len() as u64,
            clients: self.clients.load(order::OBSERVE).into(),
            connections,
            active_connections: connections.checked_sub(idle + connecting).unwrap_or(0),
            idle_connections: idle,
            connecting_connections: connecting,
            retired_connections,
            pending_requests: node.pending.into(),
            running_requests: node.pool_running.into(),
            workers: jobs.workers.into(),
            cleanup_jobs: jobs.cleanup_jobs.into(),
            failed_cleanup: jobs.failed_cleanup.into(),
            metadata_bytes: ground.pool_metadata.used(),
            control_owners: self.events.owners(),
            control_failed: self.events.has_failed(),
            closed: self.state.load(order::OBSERVE) != OPEN,
            retired: self.is_retired(),
        }
    }
    /// Everything that must be zero before a retired registry is clean.
    pub(crate) fn retire(&self) {
        if self.state.swap(RETIRED, order::STEP) == RETIRED {
            return;
        }
        let ground = self.ground();
        io::retire(ground);
        let current: Vec<InstalledProvider> = {
            let _books = self.books();
            let installed = self.installed.swap(Arc::new(Installations::new()));
            installed.values().cloned().collect()
        };
        for provider in &current {
            let word = &ground.floor.providers[usize::from(provider.core.logical.number())];
            if word.swap_tag(provider.core.tag, 0).is_err() {
                crate::broken::accounting("an installed provider lost its tag to another");
            }
        }
        let clients: Vec<Arc<dyn AnyClient>> =
            self.books().clients.iter().map(|listed| listed.client.clone()).collect();
        for client in clients {
            client.retire();
        }
        self.events.retire();
        ground.floor.ended.notify_waiters();
    }
}

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
        self.registry.retire();
    }
}

impl ProviderPools {
    /// Puts the registry on a broker and its I/O runtime, with one control task on `handle`.
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
        ground.pool_metadata.raise(limits.metadata_bytes);
        ground.control().open_requests(
            ground,
            RequestLimits {
                requests_per_tenant: limits.requests_per_tenant,
                running_per_tenant: limits.running_per_tenant,
                requests_per_provider: limits.requests_per_provider,
                running_per_provider: limits.running_per_provider,
            },
        );
        let registry = Arc::new(Registry {
            anchor: anchor.clone(),
            io: io.clone(),
            limits: ArcSwap::from_pointee(limits),
            queue_age: AtomicU64::new(nanos(limits.queue_age)),
            idle_age: AtomicU64::new(nanos(limits.idle_age)),
            state: AtomicU8::new(OPEN),
            installed: ArcSwap::from_pointee(Installations::new()),
            retained: ArcSwap::from_pointee(Vec::new()),
            clients: AtomicU32::new(0),
            books: Mutex::new(Books::default()),
            clients_made: AtomicU32::new(0),
            events: Events::new(),
        });
        control::spawn(&handle, registry.clone());
        Ok(ProviderPools { owner: Arc::new(Owner { registry }) })
    }

    fn registry(&self) -> &Registry {
        &self.owner.registry
    }

    /// The limits in force.
    pub fn limits(&self) -> PoolLimits {
        *self.registry().limits()
    }

    /// Installs a configuration of a logical provider, or replaces the one with the epoch `expected`.
    ///
    /// A replacement takes effect in one step: after it, nothing is admitted or started on the old epoch, and what waits
    /// for it is refused; what was accepted finishes, and its connections are destroyed instead of parked. There must be
    /// room for both. Control path.
    ///
    /// # Errors
    /// Another epoch is installed than expected, or the new number does not advance it; no room; the name is bad; the
    /// registry is retired. The installed configuration stays as it is.
    pub fn install(&self, setup: ProviderSetup, expected: Epoch) -> Result<InstalledProvider, Error> {
        let registry = self.registry();
        let ground = registry.ground();
        registry.sweep();
        let limits = registry.limits();
        if setup.credentials.len() as u64 > limits.configuration_bytes {
            return Err(Error::too_large(Dimension::PoolsConfigurationBytes));
        }
        let swept;
        let (installed, old) = {
            let mut books = registry.books();
            if self.state() != OPEN {
                return Err(self.closed());
            }
            let current = registry.installed.load_full();
            let old = current.get(&setup.name).cloned();
            let found = old.as_ref().map_or(Epoch::NONE, |old| old.core.data.number);
            if found != expected || setup.epoch <= found {
                return Err(Error::denied(Denied::StaleEpoch));
            }
            if books.epochs.len() >= limits.configurations as usize {
                return Err(Error::full(Dimension::PoolsConfigurations, Scope::Node));
            }
            let charged = epoch_cost(&setup);
            let logical = {
                let mut control = ground.control();
                swept = control.sweep(ground);
                control.logical(ground, &setup.name, Kind::Pooled)?
            };
            ground.pool_metadata.charge(charged)?;
            let tag = match ground.control().next_tag() {
                Ok(tag) => tag,
                Err(error) => {
                    ground.pool_metadata.give(charged);
                    return Err(error);
                }
            };
            let name = setup.name.clone();
            let installed = installation(&registry.anchor, &logical, setup, tag, charged);
            let before = old.as_ref().map_or(0, |old| old.core.tag);
            if ground.floor.providers[usize::from(logical.number())].swap_tag(before, tag).is_err() {
                ground.pool_metadata.give(charged);
                return Err(Error::denied(Denied::StaleEpoch));
            }
            // From here on nothing starts on the old one; now it can no longer be looked up either.
            let mut next = Installations::clone(&current);
            next.insert(name, installed.clone());
            registry.installed.store(Arc::new(next));
            books.epochs.push(installed.core.clone());
            registry.publish(&books);
            (installed, old)
        };
        drop(swept);
        if let Some(old) = old {
            self.retire_epoch(&old);
        }
        Ok(installed)
    }

    /// Takes a provider out of service: nothing is admitted or started on it any more; what was accepted finishes.
    ///
    /// # Errors
    /// It is not the current installation.
    pub fn retire_provider(&self, provider: &InstalledProvider) -> Result<(), Error> {
        let registry = self.registry();
        let core = &provider.core;
        {
            let _books = registry.books();
            let word = &registry.ground().floor.providers[usize::from(core.logical.number())];
            word.swap_tag(core.tag, 0).map_err(|_| Error::retired(What::Epoch))?;
            let mut next = Installations::clone(&registry.installed.load_full());
            next.remove(core.logical.name());
            registry.installed.store(Arc::new(next));
        }
        self.retire_epoch(provider);
        Ok(())
    }

    fn retire_epoch(&self, old: &InstalledProvider) {
        let registry = self.registry();
        stop_waiters(registry.ground(), old.core.logical.number(), old.core.tag);
        let clients: Vec<Arc<dyn AnyClient>> = registry
            .books()
            .clients
            .iter()
            .filter(|listed| listed.tag == old.core.tag)
            .map(|listed| listed.client.clone())
            .collect();
        for client in clients {
            client.retire_epoch();
        }
        registry.sweep();
        registry.events.look_soon();
    }

    /// The current installation of a logical name.
    ///
    /// # Errors
    /// Nothing of that name is installed; the registry is retired.
    pub fn provider(&self, name: &str) -> Result<InstalledProvider, Error> {
        if self.state() == RETIRED {
            return Err(self.closed());
        }
        self.registry().installed.load().get(name).cloned().ok_or(Error::denied(Denied::Unknown))
    }

    /// The client of an approved origin: made at the first look, the same one afterwards. Control path.
    ///
    /// # Errors
    /// The installation is not current, or of another registry; the origin's client has another resource type; no room for
    /// a client of this provider or of the node.
    pub fn client<T: Resource>(
        &self,
        provider: &InstalledProvider,
        origin: OriginSlot,
    ) -> Result<ProviderClient<T>, Error> {
        let registry = self.registry();
        let core = &provider.core;
        if !std::ptr::eq(registry.ground(), core.anchor.shared()) {
            return Err(Error::denied(Denied::ForeignProvider));
        }
        if self.state() != OPEN {
            return Err(self.closed());
        }
        if !core.is_current() {
            return Err(Error::retired(What::Epoch));
        }
        registry.sweep();
        let limits = registry.limits();
        let mut books = registry.books();
        let found = books.clients.iter().find(|listed| listed.tag == core.tag && listed.origin == origin);
        if let Some(listed) = found {
            if listed.kind != TypeId::of::<T>() {
                return Err(Error::denied(Denied::OtherType));
            }
            let typed = listed.typed.clone().downcast::<ClientCore<T>>();
            return typed.map(|core| ProviderClient { core }).map_err(|_| Error::denied(Denied::OtherType));
        }
        let number = core.logical.number();
        if books.clients.len() >= limits.clients as usize {
            return Err(Error::full(Dimension::PoolsClients, Scope::Node));
        }
        let of_provider = books.clients.iter().filter(|listed| listed.provider == number).count();
        if of_provider >= limits.clients_per_provider as usize {
            return Err(Error::full(Dimension::PoolsClientsPerProvider, Scope::Provider(number)));
        }
        let charged = client_cost::<T>(limits.connections_per_client);
        registry.ground().pool_metadata.charge(charged)?;
        let made = registry.clients_made.fetch_add(1, order::COUNT) + 1;
        let client = Arc::new(ClientCore::<T>::new(
            self.owner.registry.clone(),
            core.clone(),
            origin,
            made,
            limits.connections_per_client,
        ));
        books.clients.push(Listed {
            tag: core.tag,
            provider: number,
            origin,
            kind: TypeId::of::<T>(),
            client: client.clone(),
            typed: client.clone(),
            charged,
        });
        registry.publish(&books);
        Ok(ProviderClient { core: client })
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
        self.ask(client, session, None, false)
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
        self.ask(client, session, Some(until), false)
            .map(|front| PoolAdmission { inner: IoAdmission::new(front) })
    }
    /// Straight to running units, or refused; never waits, charges no pending.
    ///
    /// # Errors
    /// As [`Self::admit`]; also when somebody waits in front.
    pub fn admit_now<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
    ) -> Result<PoolReady, Error> {
        self.ask(client, session, None, true).map(|front| PoolReady { inner: IoReady::new(front) })
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
        self.ask(client, session, Some(until), true).map(|front| PoolReady { inner: IoReady::new(front) })
    }

    fn ask<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
        until: Option<Deadline>,
        now: bool,
    ) -> Result<Front, Error> {
        let registry = self.registry();
        if !std::ptr::eq(registry, &*client.core.registry) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        let lease = session.lease();
        if !registry.anchor.holds(lease) {
            return Err(Error::denied(Denied::ForeignSession));
        }
        if registry.state.load(order::OBSERVE) != OPEN {
            return Err(self.closed());
        }
        let epoch = &client.core.epoch;
        let plan = PlanCore::of(lease);
        plan.uses(epoch.logical.number(), epoch.tag)?;
        let request = Request { tenant: plan.tenant(), provider: epoch.logical.number(), tag: epoch.tag };
        let queue_age = Duration::from_nanos(registry.queue_age.load(order::COUNT));
        let front = io::admit(lease, Asked { request: Some(request), until, queue_age, now })?;
        front.lease().client.store(client.core.number, order::COUNT);
        Ok(front)
    }

    fn state(&self) -> u8 {
        self.registry().state.load(order::OBSERVE)
    }
    fn closed(&self) -> Error {
        Error::retired(if self.state() == RETIRED { What::Pools } else { What::Admission })
    }

    /// What is held now. Counters are read one after another: an observation, not a decision. No lock, no
    /// allocation once the calling thread has taken one.
    pub fn snapshot(&self) -> PoolSnapshot {
        self.registry().snapshot()
    }

    /// Refuses new requests, installations and clients from now on; what was admitted runs on. For a graceful drain.
    pub fn close_admission(&self) {
        // The state only moves on: a retired registry stays retired.
        let _already = self.registry().state.compare_exchange(OPEN, CLOSED, order::STEP, order::LOST);
    }

    /// Closes admission, **retires the I/O runtime that this registry was given**, stops every operation, retires every
    /// epoch and destroys idle connections. For good; what holds bytes or connections keeps them until it is dropped.
    pub fn retire(&self) {
        self.registry().retire();
    }

    /// Retires, and waits until nothing is owned any more or the deadline passes. Returns what is left then: a deadline is
    /// no error, and nothing is aborted.
    pub async fn shutdown(&self, deadline: Deadline) -> PoolSnapshot {
        self.retire();
        let registry = self.registry();
        loop {
            // Listen first, look afterwards: what ends in between is not missed.
            let ended = registry.ground().floor.ended.notified();
            let snapshot = registry.snapshot();
            if snapshot.is_clean() {
                return snapshot;
            }
            if tokio::time::timeout_at(deadline.tokio(), ended).await.is_err() {
                return registry.snapshot();
            }
        }
    }
}

fn installation(
    anchor: &GroundAnchor,
    logical: &Arc<Logical>,
    setup: ProviderSetup,
    tag: u32,
    charged: u64,
) -> InstalledProvider {
    let data = Arc::new(EpochData {
        number: setup.epoch,
        provider: logical.number(),
        tag,
        connections: AtomicU64::new(0),
        authority: setup.authority,
        digest: setup.digest,
        credentials: setup.credentials,
    });
    let reference = ProviderRef::new(logical.clone(), tag, setup.epoch.0, Some(data.clone()));
    let core = Arc::new(EpochCore {
        anchor: anchor.clone(),
        logical: logical.clone(),
        tag,
        data,
        charged,
    });
    InstalledProvider { core, reference }
}

/// What an epoch is charged beyond the prepaid cost: its private bytes and its public texts.
fn epoch_cost(setup: &ProviderSetup) -> u64 {
    (setup.credentials.len() + setup.authority.len() + setup.digest.len() + 2 * setup.name.len()) as u64
}

/// What a client is charged: its value and its cells.
fn client_cost<T: Resource>(connections: u32) -> u64 {
    let cell = size_of::<super::client::Kept<T>>() as u64 + 32;
    size_of::<ClientCore<T>>() as u64 + u64::from(connections) * cell
}
