//! Counts for operators: per tenant, per logical provider, per epoch and per client.
//!
//! Each listing goes into storage of the caller, allocates nothing and writes no shared word. It is control path: names and
//! lists stand under the mutexes of the control state and of the books, which requests never take. What the words of tenants
//! and providers say is read from them. No word counts the requests of one epoch or of one client; those are found by a look
//! at all operation slots, which are [4,096](crate::queue::floor::OPERATIONS), so that the request path counts nothing for it.
//!
//! Entries are of about one moment, as in every snapshot: exact while nothing moves, else an observation.
use super::client::ClientCounted;
use super::epoch::{Epoch, OriginSlot, Tally};
use super::registry::Registry;
use crate::account::charge::Held;
use crate::broker::bytes::settle_kept;
use crate::broker::ground::SessionLease;
use crate::queue::operation::{Operation, State};
use crate::sync::order;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// What a listing wrote, and what there was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[must_use = "storage that was too short was filled and the rest left out"]
pub struct Listing {
    /// Entries written, from the first one on. The others are as they were.
    pub written: usize,
    /// Entries that there were. More than `written` if the storage was too short.
    pub total: usize,
}

impl Listing {
    /// Whether everything was written.
    pub const fn is_complete(self) -> bool {
        self.written == self.total
    }
}

/// The name of a tenant or of a provider, as counts carry it. It keeps its own text and nothing else: neither the tenant's
/// number nor any epoch. Making and cloning one allocates nothing; the last copy of a name that is gone frees it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Option<Arc<str>>);

impl Name {
    fn of(text: &Arc<str>) -> Name {
        Name(Some(text.clone()))
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

/// Requests of one epoch or of one client, by what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequestCounts {
    /// Staged, in line, or ended before a grant while something still holds them.
    pub pending: u32,
    /// Granted or started, until the last owner of anything of the call is gone.
    pub running: u32,
    /// Granted, then given back without a start, while something still holds them.
    pub returned: u32,
}

impl RequestCounts {
    /// All of them.
    pub const fn total(self) -> u32 {
        self.pending + self.running + self.returned
    }
    fn add(&mut self, held: Held) {
        // At most one for each of the operation slots.
        match held {
            Held::Staged => self.pending += 1,
            Held::Running => self.running += 1,
            Held::Returned => self.returned += 1,
        }
    }
}

/// What a tenant holds. A tenant is listed as long as a plan of it exists.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TenantCounts {
    /// Its name.
    pub name: Name,
    /// Its number, as refusals name it. Another tenant may have it once this one has no plan any more.
    pub number: u16,
    /// Plans sealed for it that something still keeps.
    pub plans: u32,
    /// Pool requests that have not ended, running ones included.
    pub requests: u32,
    /// Of these: those that hold a running unit.
    pub running_requests: u32,
    /// Whether one of them waits because all running units of this tenant are taken.
    pub is_blocked: bool,
    /// Bytes in buffers and windows. `None` where only the node's limit counts them.
    pub bytes: Option<u64>,
}

/// What a logical provider holds, over all of its epochs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProviderCounts {
    /// Its name.
    pub name: Name,
    /// Its number, as refusals name it. Another provider may have it once nothing keeps an epoch of this one.
    pub number: u16,
    /// The installed epoch; `None` once it was retired without a replacement.
    pub installed: Option<Epoch>,
    /// Epochs that something still keeps, the installed one included.
    pub epochs: u32,
    /// Pool requests that have not ended, running ones included.
    pub requests: u32,
    /// Of these: those that hold a running unit.
    pub running_requests: u32,
    /// Whether one of them waits because all running units of this provider are taken.
    pub is_blocked: bool,
    /// Clients in the registry's list; empty once that is retired.
    pub clients: u32,
    /// Connections, idle ones and dials included.
    pub connections: u64,
    /// Of these: those that rest.
    pub idle_connections: u64,
}

/// What is left of one epoch. It is listed until nothing keeps it any more and its credentials are wiped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EpochCounts {
    /// The logical provider's name.
    pub name: Name,
    /// The logical provider's number.
    pub provider: u16,
    /// The configuration's number, as the operator counts them.
    pub epoch: Epoch,
    /// Whether it is the one that new requests go to.
    pub is_current: bool,
    /// Requests that were admitted on it.
    pub requests: RequestCounts,
    /// Clients in the registry's list; empty once that is retired.
    pub clients: u32,
    /// Connections, idle ones and dials included.
    pub connections: u64,
    /// Of these: those that rest. None of an epoch that was replaced.
    pub idle_connections: u64,
    tag: u32,
}

impl EpochCounts {
    /// Whether no request and no connection of it is left. What still lists it then is a handle, a plan or a session that
    /// keeps it, or the control task's next look.
    pub const fn is_drained(&self) -> bool {
        self.requests.total() == 0 && self.connections == 0
    }
}

impl Default for EpochCounts {
    fn default() -> Self {
        EpochCounts {
            name: Name::default(),
            provider: 0,
            epoch: Epoch::NONE,
            is_current: false,
            requests: RequestCounts::default(),
            clients: 0,
            connections: 0,
            idle_connections: 0,
            tag: 0,
        }
    }
}

/// What a client holds: one origin of one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCounts {
    /// The logical provider's name.
    pub name: Name,
    /// The logical provider's number.
    pub provider: u16,
    /// The configuration's number.
    pub epoch: Epoch,
    /// Which origin it is for.
    pub origin: OriginSlot,
    /// Its number, as refusals name it.
    pub number: u16,
    /// Whether new requests can go to it.
    pub is_current: bool,
    /// Requests that were admitted for it.
    pub requests: RequestCounts,
    /// Requests that wait for a connection of it.
    pub acquiring_requests: u32,
    /// Connections, idle ones and the dial in progress included.
    pub connections: u32,
    /// Of these: those that rest.
    pub idle_connections: u32,
    /// Whether a dial is in progress.
    pub is_dialing: bool,
    /// Failed dials since the last success; stops at 32.
    pub failures: u32,
    /// How long it still pauses after failures.
    pub retry_after: Option<Duration>,
    identity: u32,
}

impl Default for ClientCounts {
    fn default() -> Self {
        ClientCounts {
            name: Name::default(),
            provider: 0,
            epoch: Epoch::NONE,
            origin: OriginSlot::new(0),
            number: 0,
            is_current: false,
            requests: RequestCounts::default(),
            acquiring_requests: 0,
            connections: 0,
            idle_connections: 0,
            is_dialing: false,
            failures: 0,
            retry_after: None,
            identity: 0,
        }
    }
}

/// Writes what comes into the storage, as far as it reaches.
fn list<T>(into: &mut [T], entries: impl Iterator<Item = T>) -> Listing {
    let mut listing = Listing::default();
    for entry in entries {
        if let Some(place) = into.get_mut(listing.total) {
            *place = entry;
            listing.written += 1;
        }
        listing.total += 1;
    }
    listing
}

impl Registry {
    /// See [`ProviderPools::tenants`](super::ProviderPools::tenants).
    pub(super) fn tenants(&self, into: &mut [TenantCounts]) -> Listing {
        let ground = self.ground();
        let _exactly = ground.floor.exactly();
        let counts_bytes = ground.io.get().is_some_and(|io| io.tenant_bytes);
        if counts_bytes {
            settle_kept(ground);
        }
        list(
            into,
            ground.control().tenants().map(|(number, name, plans)| {
                let word = &ground.floor.tenants[usize::from(number)];
                let used = word.snapshot();
                TenantCounts {
                    name: Name::of(name),
                    number,
                    plans,
                    requests: used.requests,
                    running_requests: used.running,
                    is_blocked: word.is_marked(),
                    bytes: counts_bytes.then(|| ground.tenant_bytes[usize::from(number)].used()),
                }
            }),
        )
    }

    /// See [`ProviderPools::providers`](super::ProviderPools::providers).
    pub(super) fn providers(&self, into: &mut [ProviderCounts]) -> Listing {
        let ground = self.ground();
        let _exactly = ground.floor.exactly();
        let listing = list(
            into,
            ground.control().pooled().map(|(number, name)| {
                let word = &ground.floor.providers[usize::from(number)];
                let used = word.snapshot();
                ProviderCounts {
                    name: Name::of(name),
                    number,
                    requests: used.requests,
                    running_requests: used.running,
                    is_blocked: word.is_marked(),
                    ..ProviderCounts::default()
                }
            }),
        );
        let written = &mut into[..listing.written];
        for tally in self.kept_epochs().iter().filter(|tally| tally.is_kept()) {
            if let Some(counts) = entry_of(written, tally.provider, |counts| counts.number) {
                counts.epochs += 1;
                counts.connections += tally.connections();
                if self.is_current(tally) {
                    counts.installed = Some(tally.number);
                }
            }
        }
        for listed in &self.books().clients {
            if let Some(counts) = entry_of(written, listed.provider, |counts| counts.number) {
                counts.clients += 1;
                counts.idle_connections += listed.client.idle() as u64;
            }
        }
        listing
    }

    /// See [`ProviderPools::epochs`](super::ProviderPools::epochs).
    pub(super) fn epochs(&self, into: &mut [EpochCounts]) -> Listing {
        let kept = self.kept_epochs();
        let kept = kept.iter().filter(|tally| tally.is_kept());
        let listing = list(
            into,
            kept.map(|tally| EpochCounts {
                name: Name::of(&tally.name),
                provider: tally.provider,
                epoch: tally.number,
                is_current: self.is_current(tally),
                connections: tally.connections(),
                tag: tally.tag,
                ..EpochCounts::default()
            }),
        );
        // Tags are given in rising order, and the list is kept in the order in which epochs were installed.
        let written = &mut into[..listing.written];
        for listed in &self.books().clients {
            if let Some(counts) = entry_of(written, listed.tag, |counts| counts.tag) {
                counts.clients += 1;
                counts.idle_connections += listed.client.idle() as u64;
            }
        }
        self.look_at_requests(|operation, state| {
            let tag = operation.request().map_or(0, |request| request.tag());
            if let Some(counts) = entry_of(written, tag, |counts| counts.tag) {
                counts.requests.add(state.held());
            }
        });
        listing
    }

    /// See [`ProviderPools::clients`](super::ProviderPools::clients).
    pub(super) fn clients(&self, into: &mut [ClientCounts]) -> Listing {
        let clock = &self.ground().floor.clock;
        let now_ms = clock.millis_since_base(clock.now());
        let listing = list(
            into,
            self.books().clients.iter().map(|listed| {
                let ClientCounted { tally, identity, view, connections, idle, is_retired } =
                    listed.client.counted();
                let wait = view.not_before_ms.checked_sub(now_ms).filter(|wait| *wait > 0);
                ClientCounts {
                    name: Name::of(&tally.name),
                    provider: tally.provider,
                    epoch: tally.number,
                    origin: listed.origin,
                    number: listed.slot,
                    is_current: !is_retired,
                    connections,
                    idle_connections: idle as u32,
                    is_dialing: view.dialing,
                    failures: view.failures,
                    retry_after: wait.map(Duration::from_millis),
                    identity,
                    ..ClientCounts::default()
                }
            }),
        );
        // Identities are given in rising order, and the list is kept in the order in which clients were made.
        let written = &mut into[..listing.written];
        self.look_at_requests(|operation, state| {
            let identity = operation.client.load(order::COUNT);
            if let Some(counts) = entry_of(written, identity, |counts| counts.identity) {
                counts.requests.add(state.held());
                counts.acquiring_requests += u32::from(state.is_acquiring());
            }
        });
        listing
    }

    fn is_current(&self, tally: &Tally) -> bool {
        self.ground().floor.providers[usize::from(tally.provider)].tag() == tally.tag
    }

    /// Pool requests that exist, one after another.
    fn look_at_requests(&self, mut see: impl FnMut(&Operation<SessionLease>, State)) {
        self.ground().floor.glance(|operation, state| {
            if operation.request().is_some() {
                see(operation, state);
            }
        });
    }
}

/// The entry with this key, in a list in the order of keys.
fn entry_of<T, K: Ord>(list: &mut [T], key: K, key_of: impl Fn(&T) -> K) -> Option<&mut T> {
    let at = list.binary_search_by_key(&key, key_of).ok()?;
    list.get_mut(at)
}
