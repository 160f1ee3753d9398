//! The registry behind the handles: its books, its state, and what the control path does with them.
use super::client::AnyClient;
use super::control::Events;
use super::epoch::{EpochCore, InstalledProvider, OriginSlot, Tally};
use super::snapshot::PoolSnapshot;
use super::work::Held;
use crate::broker::error::{Error, Invalid, What, Which};
use crate::broker::ground::{Ground, GroundAnchor};
use crate::broker::io::IoRuntime;
use crate::broker::limits::PoolLimits;
use crate::foreign::{Panic, Panics};
use crate::queue::inventory::Inventory;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use crate::sync::order;
use crate::time::Deadline;
use crate::time::nanos;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Handle;

/// Admits.
pub(super) const OPEN: u8 = 0;
/// Admits nothing; what was admitted runs on.
pub(super) const CLOSED: u8 = 1;
/// Over, for good.
pub(super) const RETIRED: u8 = 2;

/// The current installation of each logical name. Looked up by name on the control path, published whole.
pub(super) type Installations = HashMap<String, InstalledProvider>;

/// What the registry keeps, under the control mutex of pools (P1): never taken on the hot path.
#[derive(Default)]
pub(super) struct Books {
    /// Every epoch that anything still keeps, until the registry is retired.
    pub(super) epochs: Vec<Arc<EpochCore>>,
    /// The same, retired registry or not, with their counts.
    pub(super) tallies: Vec<Arc<Tally>>,
    pub(super) clients: Vec<Listed>,
    /// Room for a list of all clients, so that a look at them allocates nothing.
    scratch: Vec<Arc<dyn AnyClient>>,
}

/// A client in the books.
pub(super) struct Listed {
    /// The epoch's instance tag and its logical provider.
    pub(super) tag: u32,
    pub(super) provider: u16,
    pub(super) origin: OriginSlot,
    /// Names it in refusals; the lowest number that no listed client has.
    pub(super) slot: u16,
    pub(super) client: Arc<dyn AnyClient>,
}

impl Books {
    /// A client more. The room for looking at all of them is made here, on the control path.
    pub(super) fn list(&mut self, listed: Listed) {
        self.clients.push(listed);
        self.scratch.reserve(self.clients.len());
    }
    /// The lowest number that no listed client has.
    pub(super) fn free_slot(&self) -> u16 {
        let mut taken = vec![false; self.clients.len()];
        for listed in &self.clients {
            if let Some(place) = taken.get_mut(usize::from(listed.slot)) {
                *place = true;
            }
        }
        // The ceiling of clients is 1,024.
        taken.iter().position(|taken| !taken).unwrap_or(taken.len()) as u16
    }
    /// Closes the clients of one epoch, or of all, and lists them: what is idle there is to be destroyed once the books are
    /// let go. `dials`: no dial starts any more either.
    pub(super) fn close_clients(&self, tag: Option<u32>, dials: bool) -> Vec<Arc<dyn AnyClient>> {
        let of_it = self.clients.iter().filter(|listed| tag.is_none_or(|tag| listed.tag == tag));
        of_it.map(|listed| listed.client.clone()).inspect(|client| client.close(dials)).collect()
    }
}

pub(crate) struct Registry {
    pub(super) anchor: GroundAnchor,
    /// Kept so that the runtime's last handle does not go before the registry's.
    _io: IoRuntime,
    pub(super) limits: ArcSwap<PoolLimits>,
    /// Milliseconds, initial and maximum. Fixed for the life of the registry.
    pub(super) backoff_ms: (u64, u64),
    /// Nanoseconds; read on the hot path instead of the limits.
    queue_age: AtomicU64,
    idle_age: AtomicU64,
    /// Nanoseconds that a connection may live; `None`: as long as it works.
    pub(super) lifetime: Option<u64>,
    pub(super) state: AtomicU8,
    pub(super) installed: ArcSwap<Installations>,
    /// What `books.tallies` lists, for snapshots, which take no lock.
    retained: ArcSwap<Vec<Arc<Tally>>>,
    /// How many clients exist, listed or only kept by others.
    pub(super) clients: AtomicU32,
    books: Mutex<Books>,
    /// Where jobs run, and the control task.
    pub(super) handle: Handle,
    /// The jobs that were submitted and not joined: a place for each worker and each cleanup job.
    pub(super) jobs: Inventory<Held>,
    pub(super) clients_made: AtomicU32,
    pub(crate) events: Events,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Whole milliseconds, rounded up: a pause is never no pause.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Registry {
    pub(super) fn new(anchor: GroundAnchor, io: IoRuntime, handle: Handle, limits: PoolLimits) -> Registry {
        Registry {
            anchor,
            _io: io,
            limits: ArcSwap::from_pointee(limits),
            backoff_ms: (millis(limits.initial_backoff), millis(limits.maximum_backoff)),
            queue_age: AtomicU64::new(nanos(limits.queue_age)),
            idle_age: AtomicU64::new(nanos(limits.idle_age)),
            lifetime: limits.lifetime().map(nanos),
            state: AtomicU8::new(OPEN),
            installed: ArcSwap::from_pointee(Installations::new()),
            retained: ArcSwap::from_pointee(Vec::new()),
            clients: AtomicU32::new(0),
            books: Mutex::new(Books::default()),
            handle,
            jobs: Inventory::new((limits.workers + limits.cleanup_jobs) as usize),
            clients_made: AtomicU32::new(0),
            events: Events::new(),
        }
    }
    pub(crate) fn ground(&self) -> &Ground {
        self.anchor.shared()
    }
    pub(super) fn idle_age_nanos(&self) -> u64 {
        self.idle_age.load(order::COUNT)
    }
    pub(super) fn queue_age_nanos(&self) -> u64 {
        self.queue_age.load(order::COUNT)
    }
    /// Puts other limits in force: for the next admission, the next epoch, the next client, the next look at what rests.
    /// With the books held.
    pub(super) fn publish_limits(&self, limits: PoolLimits) {
        self.queue_age.store(nanos(limits.queue_age), order::COUNT);
        self.idle_age.store(nanos(limits.idle_age), order::COUNT);
        self.limits.store(Arc::new(limits));
    }
    pub(crate) fn is_retired(&self) -> bool {
        self.state.load(order::OBSERVE) == RETIRED
    }
    /// Refuses once admission is closed.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        match self.state.load(order::OBSERVE) {
            OPEN => Ok(()),
            CLOSED => Err(Error::retired(What::Admission)),
            _ => Err(Error::retired(What::Pools)),
        }
    }
    /// The same for what is made on the control path. Requests are refused for broken accounting where all of them pass.
    pub(super) fn check_control(&self) -> Result<(), Error> {
        if crate::broken::is_broken() {
            return Err(Error::retired(What::Broker));
        }
        self.check_open()
    }
    #[cfg_attr(latent_realtime, sanitize(realtime = "blocking"))]
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Shows snapshots which epochs there are. With the books held.
    pub(super) fn publish(&self, books: &Books) {
        self.retained.store(Arc::new(books.tallies.clone()));
    }
    /// What [`publish`](Self::publish) showed last: the epochs that something keeps, in the order in which they came, and for
    /// a moment those that nothing keeps any more.
    pub(super) fn kept_epochs(&self) -> arc_swap::Guard<Arc<Vec<Arc<Tally>>>> {
        self.retained.load()
    }
    /// Somebody let go of a replaced epoch: it may have been the last to keep it.
    pub(super) fn let_go(&self) {
        self.events.look_soon();
        if self.is_retired() {
            // The control task may have ended with the last connection, a moment ago.
            self.sweep();
        }
    }
    /// An instant that is to be in the future and at most `most` ahead, in nanoseconds of the node's clock.
    pub(super) fn bounded(&self, deadline: Deadline, most: Duration) -> Result<u64, Error> {
        let floor = &self.ground().floor;
        let (now, until) = (floor.clock.nanos_since_base(floor.clock.now()), floor.nanos(deadline));
        if until <= now {
            return Err(Error::deadline(Which::Operation));
        }
        if until - now > nanos(most) {
            return Err(Error::invalid(Invalid::TooFar));
        }
        Ok(until)
    }
    /// Something of a connection has ended: a shutdown may wait for it. After its counts were given back.
    pub(super) fn ended(&self) {
        if self.is_retired() {
            self.ground().floor.ended.notify_waiters();
        }
    }
    /// A panic of foreign code that is nobody's who could be told: counted.
    pub(super) fn contain(&self, panics: Panics) {
        self.events.contained(panics.count());
    }
    /// The same for one.
    pub(super) fn contain_one(&self, panic: Panic) {
        self.events.contained(1);
        drop(panic);
    }
    /// Whether the instant has passed, by the exact clock: jobs are no fast path.
    pub(super) fn has_passed(&self, deadline: Deadline) -> bool {
        self.ground().floor.clock.passed_exactly(deadline)
    }
    /// One idle connection of the client with most of them is destroyed, so that another origin can be dialled. `false`:
    /// nothing is idle anywhere. Control path: the caller is about to dial.
    pub(super) fn evict_one(&self) -> bool {
        // Who is found rich may have given its last one away meanwhile; then somebody else is.
        for _ in 0..4 {
            let richest = {
                let books = self.books();
                let richest =
                    books.clients.iter().map(|listed| &listed.client).max_by_key(|client| client.idle());
                richest.filter(|client| client.idle() > 0).cloned()
            };
            let Some(richest) = richest else { return false };
            if let Some(panics) = richest.evict() {
                self.contain(panics);
                return true;
            }
        }
        false
    }
    /// Destroys what has rested long enough, at most so many connections. When to look again, if ever.
    pub(super) fn expire(&self, now: u64, most: usize) -> Option<u64> {
        let mut clients = {
            let mut books = self.books();
            let mut scratch = std::mem::take(&mut books.scratch);
            scratch.extend(books.clients.iter().map(|listed| listed.client.clone()));
            scratch
        };
        let (age, mut left, mut next) = (self.idle_age_nanos(), most, None);
        for client in clients.drain(..) {
            let found = client.expire(now, age, &mut left);
            self.contain(found.panics);
            next = [next, found.next].into_iter().flatten().min();
        }
        let mut books = self.books();
        if books.scratch.capacity() < clients.capacity() {
            books.scratch = clients;
        }
        next
    }
    /// Frees the plans, clients and epochs that nothing keeps any more, and what they were charged. Control path, off every
    /// request. Says how many replaced epochs something still keeps.
    pub(super) fn sweep(&self) -> usize {
        let ground = self.ground();
        // A number whose words are in use is not taken back; credits are no use.
        let exactly = ground.floor.exactly();
        let mut panics = Panics::none();
        loop {
            // What a plan kept may be what kept a provider.
            let swept = ground.control().sweep(ground);
            if swept.is_empty() {
                break;
            }
            panics.run(|| drop(swept));
        }
        drop(exactly);
        let (clients, epochs, kept) = {
            let mut books = self.books();
            // The one reference is the books': with the mutex held, one stays one.
            let clients: Vec<Listed> = {
                let unused = |listed: &mut Listed| {
                    listed.client.is_retired()
                        && Arc::strong_count(&listed.client) == 1
                        && listed.client.connections() == 0
                };
                books.clients.extract_if(.., unused).collect()
            };
            // A client that was just taken out keeps its epoch until the next look.
            let unused = |epoch: &mut Arc<EpochCore>| !epoch.is_current() && EpochCore::is_unused(epoch);
            let epochs: Vec<Arc<EpochCore>> = books.epochs.extract_if(.., unused).collect();
            let kept = books.epochs.iter().filter(|epoch| !epoch.is_current()).count();
            (clients, epochs, kept)
        };
        let found = clients.len() + epochs.len();
        panics.run(|| drop(clients));
        panics.run(|| drop(epochs));
        let mut books = self.books();
        let listed = books.tallies.len();
        books.tallies.retain(|tally| tally.is_kept());
        if books.tallies.len() != listed {
            self.publish(&books);
        }
        drop(books);
        self.contain(panics);
        // What was found may have kept something else.
        if found > 0 { self.sweep() } else { kept }
    }
    pub(super) fn snapshot(&self) -> PoolSnapshot {
        let ground = self.ground();
        let exactly = ground.floor.exactly();
        let node = ground.floor.node.snapshot();
        drop(exactly);
        // Jobs last: after the retirement it takes a connection or a call to begin one, so what is seen to be gone here
        // begins none that is not seen below.
        let shares = ground.shares.snapshot();
        let jobs = ground.jobs.snapshot();
        let retained = self.retained.load();
        let is_current =
            |tally: &Tally| ground.floor.providers[usize::from(tally.provider)].tag() == tally.tag;
        let kept = retained.iter().filter(|tally| tally.is_kept());
        let retired_connections =
            kept.clone().filter(|tally| !is_current(tally)).map(|tally| tally.connections()).sum();
        // Of one instant, so there are at most as many idle ones, but for the units of a lowering in flight, which count as
        // used; dials are of another word, read a moment later.
        let connections = u64::from(shares.connections);
        let idle = u64::from(shares.idle_connections).min(connections);
        let connecting = u64::from(jobs.connecting).min(connections - idle);
        PoolSnapshot {
            configurations: self.installed.load().len() as u64,
            retained_configurations: kept.count() as u64,
            clients: self.clients.load(order::OBSERVE).into(),
            connections,
            active_connections: connections - idle - connecting,
            idle_connections: idle,
            connecting_connections: connecting,
            retired_connections,
            pending_requests: node.pending.into(),
            running_requests: node.pool_running.into(),
            workers: jobs.workers.into(),
            cleanup_jobs: jobs.cleanup_jobs.into(),
            failed_cleanup: jobs.failed_cleanup.into(),
            metadata_bytes: ground.pool_metadata.used(),
            contained_panics: self.events.panics(),
            control_owners: self.events.owners(),
            control_failed: self.events.has_failed(),
            closed: self.state.load(order::OBSERVE) != OPEN,
            retired: self.is_retired(),
        }
    }
}

/// A client's hold on its registry, and what the client is charged there. The last thing of a client to go.
#[derive(Debug)]
pub(crate) struct Membership {
    registry: Arc<Registry>,
    bytes: u64,
}

impl Membership {
    /// The bytes are charged already; the client is counted here.
    pub(super) fn new(registry: Arc<Registry>, bytes: u64) -> Membership {
        registry.clients.fetch_add(1, order::STEP);
        Membership { registry, bytes }
    }
    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Deref for Membership {
    type Target = Registry;
    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.registry.ground().pool_metadata.give(self.bytes);
        if self.registry.clients.fetch_sub(1, order::STEP) == 0 {
            crate::broken::accounting_in_drop("a registry lost a client that it did not have");
        }
    }
}
