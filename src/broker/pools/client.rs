//! Clients: one per approved origin of an epoch, with its connections.
use super::acquire::{self, Acquire, AcquireLine};
use super::admission::PoolCall;
use super::connection::{ConnectionReservation, PooledConnection, destroy};
use super::epoch::{EpochCore, OriginSlot};
use super::registry::Registry;
use crate::account::client::{ClientWord, Dial};
use crate::account::jobs::Job;
use crate::account::scope::{Heed, Scope};
use crate::account::shares::Share;
use crate::broker::error::{Denied, Error};
use crate::broker::ground::Ground;
use crate::broker::io::check_operation;
use crate::foreign::{Panic, foreign};
use crate::mem::cells::{Cell, Cells};
use crate::mem::turn::Turn;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Line, order};
use std::sync::Arc;
use std::time::Duration;

/// What a pool can keep: the real connection, not a handle to something that drives it elsewhere.
pub trait Resource: Send + 'static {
    /// Whether the connection can be used again: no end of the stream and no stray byte is pending. Asked at checkout; must
    /// not block.
    fn is_reusable(&mut self) -> bool;
}

/// A connection that rests in its cell.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    pub(crate) resource: T,
    /// Nanoseconds since the node's base.
    pub(crate) idle_since: u64,
}

/// What the registry knows of a client, whatever its resource is.
pub(crate) trait AnyClient: Send + Sync {
    /// The epoch is replaced: nothing is parked any more and what is idle is destroyed. Accepted calls may still dial.
    fn retire_epoch(&self);
    /// The registry is retired: no dial starts any more either.
    fn retire(&self);
    /// Destroys at most `most` idle connections that have rested for `age` by `now`; tells when the next will have.
    fn expire(&self, now: u64, age: u64, most: usize) -> Expired;
    /// Destroys one idle connection, for somebody else's dial.
    fn evict(&self) -> bool;
    fn connections(&self) -> u32;
    fn idle(&self) -> usize;
    fn is_retired(&self) -> bool;
}

/// What a look for expired connections found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expired {
    /// The earliest instant at which a connection that still rests has rested long enough.
    pub(crate) next: Option<u64>,
    /// The bound was reached: look again at once.
    pub(crate) more: bool,
}

#[derive(Debug)]
pub(crate) struct ClientCore<T: Resource> {
    pub(crate) registry: Arc<Registry>,
    pub(crate) epoch: Arc<EpochCore>,
    pub(crate) origin: OriginSlot,
    /// Names this client among all of its registry.
    pub(crate) number: u32,
    pub(crate) word: Line<ClientWord>,
    pub(crate) cells: Cells<Option<Kept<T>>>,
    /// By cell: since when it rests, for the control task, which must not touch the cells to look.
    rests_since: Box<[AtomicU64]>,
    pub(crate) line: Turn<AcquireLine>,
}

impl<T: Resource> ClientCore<T> {
    pub(crate) fn new(
        registry: Arc<Registry>,
        epoch: Arc<EpochCore>,
        origin: OriginSlot,
        number: u32,
        connections: u32,
    ) -> Self {
        let word = Line::new(ClientWord::default());
        word.open(connections);
        ClientCore {
            registry,
            epoch,
            origin,
            number,
            word,
            cells: Cells::new(connections as usize),
            rests_since: (0..connections).map(|_| AtomicU64::new(0)).collect(),
            line: Turn::new(AcquireLine::default()),
        }
    }
    pub(crate) fn ground(&self) -> &Ground {
        self.epoch.anchor.shared()
    }
    pub(crate) fn now_nanos(&self) -> u64 {
        let clock = &self.ground().floor.clock;
        clock.coarse_nanos()
    }
    /// Exact: dials are no fast path.
    pub(crate) fn now_ms(&self) -> u64 {
        let clock = &self.ground().floor.clock;
        clock.millis_since_base(clock.now())
    }
    pub(crate) fn is_retired(&self) -> bool {
        self.word.is_closed() || !self.epoch.is_current()
    }
    pub(crate) fn note_idle(&self, cell: &Cell<Option<Kept<T>>>, since: u64) {
        self.rests_since[usize::from(cell.index())].store(since, order::PUBLISH);
    }
    /// A connection is gone: gives back its unit of client, node and epoch, and signals whoever waits.
    pub(crate) fn destroyed(&self, dropped: Result<(), Panic>) {
        let waited_for = self.word.give_connection();
        self.ground().shares.give(Share::Connection);
        self.epoch.give_connection();
        if waited_for {
            acquire::serve(self);
        }
        self.registry.ended();
        if let Err(panic) = dropped {
            panic.resume();
        }
    }
    /// Takes the lowest idle connection that can be used again; what is expired or dead on the way is destroyed. At most
    /// as many are looked at as there are cells.
    pub(crate) fn take_idle(&self) -> Option<(Cell<Option<Kept<T>>>, T)> {
        for _ in 0..self.cells.capacity() {
            let mut cell = self.cells.take_idle()?;
            self.ground().shares.give(Share::Idle);
            let Some(kept) = self.cells.get_mut(&mut cell).take() else {
                crate::broken::accounting("an idle cell without a connection");
            };
            if let Some(usable) = self.usable(cell, kept) {
                return Some(usable);
            }
        }
        None
    }
    /// Whether a connection that left the idle set can be used; if not, it is destroyed.
    pub(crate) fn usable(
        &self,
        cell: Cell<Option<Kept<T>>>,
        mut kept: Kept<T>,
    ) -> Option<(Cell<Option<Kept<T>>>, T)> {
        let rested = self.now_nanos().checked_sub(kept.idle_since).unwrap_or(0);
        let looked = if rested < self.registry.idle_age_nanos() {
            foreign(|| kept.resource.is_reusable())
        } else {
            Ok(false)
        };
        match looked {
            Ok(true) => Some((cell, kept.resource)),
            Ok(false) => {
                destroy(self, cell, kept.resource, None);
                None
            }
            // A panic of the adapter's look destroys the connection like a `no`.
            Err(panic) => {
                destroy(self, cell, kept.resource, None);
                panic.resume();
                None
            }
        }
    }
    /// Takes a connection of the node; if there is none, the client with most idle ones gives one up.
    pub(crate) fn take_share(&self) -> Result<(), Error> {
        let ground = self.ground();
        let mut asked = ground.shares.reserve(Share::Connection);
        if asked.is_err() && self.registry.evict_one() {
            asked = ground.shares.reserve(Share::Connection);
        }
        asked.map_err(|dimension| Error::full(dimension, Scope::Node))
    }
}

/// The client of one approved origin. Clones are handles to the same one (control path).
#[derive(Debug)]
pub struct ProviderClient<T: Resource> {
    pub(crate) core: Arc<ClientCore<T>>,
}

impl<T: Resource> Clone for ProviderClient<T> {
    fn clone(&self) -> Self {
        ProviderClient { core: self.core.clone() }
    }
}

impl<T: Resource> ProviderClient<T> {
    /// Which origin it is for.
    pub fn origin(&self) -> OriginSlot {
        self.core.origin
    }
    /// Whether both handles are of one client.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    fn check(&self, call: &PoolCall) -> Result<(), Error> {
        if !call.is_of(self.core.number) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        check_operation(call.lease())
    }

    /// An idle connection that can be used, or none: then the caller may dial. Expired and dead ones on the way are
    /// destroyed. Never waits, allocates nothing.
    ///
    /// # Errors
    /// A call of another client; stopped; deadline; `Busy` while others wait in [`acquire`](Self::acquire): they come first.
    pub fn checkout(&self, call: &PoolCall) -> Result<Option<PooledConnection<T>>, Error> {
        self.check(call)?;
        if self.core.word.is_marked() {
            return Err(Error::busy());
        }
        Ok(self.core.take_idle().map(|(cell, resource)| {
            PooledConnection::taken(self.core.clone(), cell, resource, call.lease().duplicate())
        }))
    }
    /// Charges one connection before it is dialled, and takes the client's one right to dial.
    ///
    /// # Errors
    /// `Busy`: a dial is in progress. `Backoff`: the client pauses after failures, until then. `Full`: the client's or the
    /// node's connections all exist. Retired; stopped; deadline; a call of another client.
    pub fn reserve_connection(&self, call: &PoolCall) -> Result<ConnectionReservation<T>, Error> {
        self.check(call)?;
        let now_ms = self.core.now_ms();
        self.core
            .word
            .reserve_dial(now_ms, Heed::Marks)
            .map_err(|dial| refused_dial(&self.core, dial, now_ms))?;
        self.dial(call)
    }
    /// The right to dial and the client's unit are taken; the rest follows or they go back.
    pub(crate) fn dial(&self, call: &PoolCall) -> Result<ConnectionReservation<T>, Error> {
        let core = &self.core;
        let give_back = |error| {
            if core.word.undo_dial() {
                acquire::serve(core);
            }
            Err(error)
        };
        if let Err(error) = core.take_share() {
            return give_back(error);
        }
        let Some(cell) = core.cells.reserve() else {
            crate::broken::accounting("a connection was reserved but no cell is free");
        };
        if core.ground().jobs.reserve(Job::Connecting).is_err() {
            crate::broken::accounting("a connection was reserved but no dial");
        }
        core.epoch.take_connection();
        Ok(ConnectionReservation::new(core.clone(), cell, call.lease().duplicate()))
    }
    /// Waits for an idle connection or the right to dial, whichever comes first; first come first served per client,
    /// inside the call's deadline. When the client begins to pause, everyone in line is refused `Backoff` at once.
    ///
    /// Cancel safe: what was handed over and not taken goes to the next. Allocates nothing.
    pub fn acquire<'a>(&'a self, call: &'a PoolCall) -> Acquire<'a, T> {
        Acquire::new(self, call)
    }
    /// How long the client still pauses after failed dials.
    pub fn retry_after(&self) -> Option<Duration> {
        self.core.word.retry_after(self.core.now_ms()).map(Duration::from_millis)
    }
    /// Destroys the client's idle connections.
    pub fn close_idle(&self) {
        while self.core.evict() {}
    }
    pub(crate) fn check_call(&self, call: &PoolCall) -> Result<(), Error> {
        self.check(call)
    }
}

/// A refusal of the client's word as an error.
pub(crate) fn refused_dial<T: Resource>(client: &ClientCore<T>, dial: Dial, now_ms: u64) -> Error {
    Error::from_dial(dial, client.number as u16, now_ms)
}

impl<T: Resource> AnyClient for ClientCore<T> {
    fn retire_epoch(&self) {
        self.cells.close();
        while self.evict() {}
    }
    fn retire(&self) {
        self.word.close();
        self.retire_epoch();
        acquire::serve(self);
    }
    fn expire(&self, now: u64, age: u64, most: usize) -> Expired {
        let mut next = None;
        let mut from = 0;
        let mut looked = 0;
        while let Some(mut cell) = self.cells.take_idle_from(from) {
            from = usize::from(cell.index()) + 1;
            let since = self.rests_since[usize::from(cell.index())].load(order::OBSERVE);
            let due = since.checked_add(age).unwrap_or(u64::MAX);
            if due <= now {
                self.ground().shares.give(Share::Idle);
                if let Some(kept) = self.cells.get_mut(&mut cell).take() {
                    destroy(self, cell, kept.resource, None);
                }
                looked += 1;
                if looked == most {
                    return Expired { next, more: true };
                }
            } else {
                next = Some(next.map_or(due, |other: u64| other.min(due)));
                self.put_back(cell);
            }
        }
        Expired { next, more: false }
    }
    fn evict(&self) -> bool {
        let Some(mut cell) = self.cells.take_idle() else { return false };
        self.ground().shares.give(Share::Idle);
        if let Some(kept) = self.cells.get_mut(&mut cell).take() {
            destroy(self, cell, kept.resource, None);
        }
        true
    }
    fn connections(&self) -> u32 {
        self.word.connections()
    }
    fn idle(&self) -> usize {
        self.cells.idle_count()
    }
    fn is_retired(&self) -> bool {
        self.is_retired()
    }
}

impl<T: Resource> ClientCore<T> {
    /// A cell that was only looked at. It still has its share of idle connections.
    fn put_back(&self, cell: Cell<Option<Kept<T>>>) {
        match self.cells.park(cell) {
            Ok(()) => {
                if self.word.is_marked() {
                    acquire::serve(self);
                }
            }
            Err(mut cell) => {
                self.ground().shares.give(Share::Idle);
                if let Some(kept) = self.cells.get_mut(&mut cell).take() {
                    destroy(self, cell, kept.resource, None);
                }
            }
        }
    }
}
