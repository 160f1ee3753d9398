//! Clients: one per approved origin of an epoch, with its connections.
use super::acquire::Acquire;
use super::admission::PoolCall;
use super::connection::{ConnectionReservation, Kept, Parts, Place, PooledConnection, destroy};
use super::epoch::{EpochCore, OriginSlot, Tally};
use super::holder::{Claim, Holder, Requester};
use super::lifetime;
use super::registry::{Membership, Registry};
use crate::account::client::{ClientView, ClientWord, Dial};
use crate::account::jobs::Job;
use crate::account::scope::{Heed, Scope};
use crate::account::shares::Share;
use crate::broker::error::{Denied, Error, What};
use crate::broker::ground::{Ground, OperationLease, SessionLease};
use crate::broker::io::{check_operation_at, glance_at_operation as glance};
use crate::foreign::{Panics, foreign};
use crate::mem::cells::Cells;
use crate::queue::acquire::{self, AcquireLine};
use crate::queue::floor::Floor;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Apart, Line, order};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// What a pool can keep: the real connection, not a handle to something that drives it elsewhere.
pub trait Resource: Send + 'static {
    /// Whether the connection can be used again: no end of the stream and no stray byte is pending. Asked at checkout; must
    /// not block.
    fn is_reusable(&mut self) -> bool;
}

/// What the registry knows of a client, whatever its resource is.
pub(super) trait AnyClient: Send + Sync {
    /// Nothing is parked any more, and with `dials` no dial starts either. Runs no foreign code.
    fn close(&self, dials: bool);
    /// After [`close`](Self::close): destroys what is idle, and answers whoever waits.
    fn drain(&self) -> Panics;
    /// Destroys idle connections that by `now` have rested for `age` or lived for their time, at most `left` of them.
    fn expire(&self, now: u64, age: u64, left: &mut usize) -> Expired;
    /// Destroys one idle connection, for somebody else's dial. `None`: there is none.
    fn evict(&self) -> Option<Panics>;
    /// The word that its limit stands in.
    fn word(&self) -> &ClientWord;
    /// Answers whoever waits for a connection and can have one now. Runs foreign code.
    fn look_again(&self) -> Panics;
    /// Takes an operation out of this client's line whose wait was leaked. Runs foreign code.
    fn vacate(&self, lease: &OperationLease) -> Panics;
    fn connections(&self) -> u32;
    fn idle(&self) -> usize;
    fn is_retired(&self) -> bool;
    fn counted(&self) -> ClientCounted<'_>;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// What operators are told of a client.
#[derive(Debug)]
pub(super) struct ClientCounted<'a> {
    pub(super) tally: &'a Tally,
    /// What a request remembers it by.
    pub(super) identity: u32,
    pub(super) view: ClientView,
    pub(super) connections: u32,
    pub(super) idle: usize,
    pub(super) is_retired: bool,
}

/// What a look for expired connections found.
#[derive(Debug)]
pub(super) struct Expired {
    /// When to look again: at once if the bound was reached, or when the next one will have rested long enough.
    pub(super) next: Option<u64>,
    /// Of destructors.
    pub(super) panics: Panics,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct ClientCore<T: Resource> {
    /// Keeps the count of its handles, which every checkout steps on, off the lines that all only read.
    gap: Line<()>,
    pub(super) epoch: Arc<EpochCore>,
    pub(super) origin: OriginSlot,
    /// What a request of this client remembers it by: no other client of the registry ever has it.
    pub(super) number: u32,
    /// What refusals name it by.
    slot: u16,
    /// The logical provider of its epoch, and the epoch's instance tag: kept here, so that to ask whether the epoch is
    /// current is one look at a word.
    provider: u16,
    tag: u32,
    pub(super) word: Line<ClientWord>,
    pub(super) cells: Cells<Kept<T>>,
    /// By place: what the control task looks at, which does not take what it only looks at. Each is written by whoever parks there.
    times: Box<[Apart<Times>]>,
    /// Dials that succeeded: each connection has its number, and by it its time to live.
    made: AtomicU64,
    line: AcquireLine,
    /// Goes last.
    member: Membership,
}

/// Two instants of the connection at one place, nanoseconds since the node's base.
#[derive(Debug, Default)]
struct Times {
    /// Since when it rests.
    rests_since: AtomicU64,
    /// When its time to live is over; `u64::MAX`: never.
    ends: AtomicU64,
}

impl Times {
    /// When what rests since `since` has rested for `age`, or has lived for its time.
    #[inline(always)]
    fn due(&self, since: u64, age: u64) -> u64 {
        since.saturating_add(age).min(self.ends.load(order::OBSERVE))
    }
}

/// What a client is charged: its value, its places, and the lists it stands in.
pub(super) fn client_cost<T: Resource>(connections: u32) -> u64 {
    let place = Cells::<Kept<T>>::PLACE_BYTES + size_of::<Apart<Times>>() as u64 + 24;
    size_of::<ClientCore<T>>() as u64 + 64 + u64::from(connections) * place
}

impl<T: Resource> ClientCore<T> {
    /// `names`: its number and its slot.
    pub(super) fn new(
        member: Membership,
        epoch: Arc<EpochCore>,
        origin: OriginSlot,
        names: (u32, u16),
        connections: u32,
    ) -> Self {
        const { assert!(std::mem::offset_of!(ClientCore<T>, epoch) >= 64, "the count lies on a line of its own") };
        let word = Line::new(ClientWord::default());
        word.open(connections);
        ClientCore {
            gap: Line::new(()),
            provider: epoch.logical.number(),
            tag: epoch.tag,
            epoch,
            origin,
            number: names.0,
            slot: names.1,
            word,
            cells: Cells::new(connections as usize),
            times: (0..connections).map(|_| Apart::default()).collect(),
            made: AtomicU64::new(0),
            line: AcquireLine::new(),
            member,
        }
    }
    pub(super) fn registry(&self) -> &Arc<Registry> {
        self.member.registry()
    }
    pub(super) fn ground(&self) -> &Ground {
        self.member.ground()
    }
    pub(super) fn now_nanos(&self) -> u64 {
        let clock = &self.ground().floor.clock;
        clock.coarse_nanos()
    }
    /// Exact: dials are no fast path.
    pub(super) fn now_ms(&self) -> u64 {
        let clock = &self.ground().floor.clock;
        clock.millis_since_base(clock.now())
    }
    /// Whether nothing may be parked any more.
    #[inline(always)]
    pub(super) fn is_retired(&self) -> bool {
        let current = || self.ground().floor.providers[usize::from(self.provider)].tag();
        self.word.is_closed() || current() != self.tag
    }
    /// Whether somebody waits in line, or is about to: newcomers that can wait go behind.
    pub(super) fn is_waited_for(&self) -> bool {
        self.word.is_marked() || !self.line.is_quiet()
    }
    /// A connection was made: its time to live begins.
    pub(super) fn begin_life(&self, place: &Place<T>) {
        let number = self.made.fetch_add(1, order::COUNT);
        let ends = self.registry().lifetime.map_or(u64::MAX, |longest| {
            self.now_nanos().saturating_add(lifetime::of(longest, self.number, number))
        });
        self.times[usize::from(place.index())].0.ends.store(ends, order::PUBLISH);
    }
    /// When the time to live of the connection at a place is over.
    pub(super) fn ends_at(&self, place: u8) -> u64 {
        self.times[usize::from(place)].0.ends.load(order::OBSERVE)
    }
    /// It rests from `since` on. When it is to be destroyed, at the latest.
    pub(super) fn note_idle(&self, place: u8, since: u64) -> u64 {
        let times = &self.times[usize::from(place)].0;
        times.rests_since.store(since, order::PUBLISH);
        times.due(since, self.registry().idle_age_nanos())
    }
    /// When what rests at a place has rested for `age`, or has lived for its time.
    fn due(&self, place: usize, age: u64) -> u64 {
        let times = &self.times[place].0;
        times.due(times.rests_since.load(order::OBSERVE), age)
    }
    /// A connection was taken from those that rest: gives its idle share back.
    #[inline(always)]
    pub(super) fn wake_up(&self) {
        self.ground().shares.give(Share::Idle);
    }
    /// Whether a connection that rested can be used: not too old, not too long at rest, and good by its own word.
    ///
    /// # Errors
    /// A panic of the adapter's look: the connection is to be destroyed, like after a `no`.
    #[inline(always)]
    pub(super) fn is_usable(&self, place: &mut Place<T>, now: u64) -> Result<bool, crate::foreign::Panic> {
        let index = place.index();
        let kept = self.cells.get_mut(place);
        let rested = now.saturating_sub(kept.idle_since);
        if planted!("expired_handed_out") {
            return foreign(|| kept.resource.is_reusable());
        }
        if rested >= self.registry().idle_age_nanos() || now >= self.ends_at(index) {
            return Ok(false);
        }
        foreign(|| kept.resource.is_reusable())
    }
    /// Takes the lowest idle connection that can be used again; what is expired or dead on the way is destroyed. At most
    /// as many are looked at as there are places.
    ///
    /// # Panics
    /// What the adapter's look or a destructor panics with.
    #[inline(always)]
    fn take_idle(&self, now: u64) -> Option<Place<T>> {
        for _ in 0..self.cells.capacity() {
            let mut place = self.cells.take_idle()?;
            self.wake_up();
            match self.is_usable(&mut place, now) {
                Ok(true) => return Some(place),
                looked => self.of_no_use(place, looked),
            }
        }
        None
    }
    /// Destroys an idle connection that cannot be used again.
    #[cold]
    #[inline(never)]
    fn of_no_use(&self, place: Place<T>, looked: Result<bool, crate::foreign::Panic>) {
        let mut panics = Panics::none();
        if let Err(panic) = looked {
            panics.run(|| panic.resume());
        }
        panics.add(destroy(self, place));
        panics.resume();
    }
    /// Takes a connection of the node; if there is none, the client with most idle ones gives one up.
    fn take_share(&self) -> Result<(), Error> {
        let shares = &self.ground().shares;
        // Others dial too, and may take what was given up for this one.
        for _ in 0..4 {
            match shares.reserve(Share::Connection) {
                Ok(()) => return Ok(()),
                Err(_) if self.registry().evict_one() => {}
                Err(_) => break,
            }
        }
        shares.reserve(Share::Connection).map_err(|dimension| Error::full(dimension, Scope::Node))
    }
    /// A refusal of the client's word as an error.
    pub(super) fn refused(&self, dial: Dial, now_ms: u64) -> Error {
        if dial == Dial::Closed && self.registry().is_retired() {
            return Error::retired(What::Pools);
        }
        Error::from_dial(dial, self.slot, now_ms)
    }
}

impl<T: Resource> acquire::Client for ClientCore<T> {
    type Tenure = SessionLease;
    type Kept = Kept<T>;
    fn floor(&self) -> &Floor<SessionLease> {
        &self.ground().floor
    }
    fn line(&self) -> &AcquireLine {
        &self.line
    }
    fn word(&self) -> &ClientWord {
        &self.word
    }
    fn cells(&self) -> &Cells<Kept<T>> {
        &self.cells
    }
    fn rests_again(&self, index: u8) {
        // The control task did not see it while it was out.
        self.registry().events.look_at(self.due(usize::from(index), self.registry().idle_age_nanos()));
    }
    fn orphaned(&self, place: Place<T>) {
        self.wake_up();
        destroy(self, place).resume();
    }
}

impl<T: Resource> AnyClient for ClientCore<T> {
    fn close(&self, dials: bool) {
        if dials {
            self.word.close();
        }
        self.cells.close();
    }
    fn drain(&self) -> Panics {
        let mut panics = Panics::none();
        while let Some(more) = self.evict() {
            panics.add(more);
        }
        panics.run(|| acquire::serve(self));
        panics
    }
    fn expire(&self, now: u64, age: u64, left: &mut usize) -> Expired {
        let mut found = Expired { next: None, panics: Panics::none() };
        // Whoever parked before this step is seen below; whoever parks after it sees that no look is planned, and plans one.
        self.cells.meet();
        let due = |index: usize| self.due(index, age);
        for index in 0..self.cells.capacity() {
            if !self.cells.is_idle(index) {
                continue;
            }
            if due(index) <= now {
                if *left == 0 {
                    found.next = Some(now);
                    return found;
                }
                let Some(place) = self.cells.take_idle_at(index) else { continue };
                // It may be another connection by now.
                if due(index) <= now {
                    *left -= 1;
                    self.wake_up();
                    found.panics.add(destroy(self, place));
                    continue;
                }
                found.panics.run(|| acquire::put_back(self, place));
                if self.word.is_marked() {
                    found.panics.run(|| acquire::serve(self));
                }
            }
            found.next = Some(found.next.map_or(due(index), |other| other.min(due(index))));
        }
        found
    }
    fn evict(&self) -> Option<Panics> {
        let place = self.cells.take_idle()?;
        self.wake_up();
        Some(destroy(self, place))
    }
    fn word(&self) -> &ClientWord {
        &self.word
    }
    fn look_again(&self) -> Panics {
        let mut panics = Panics::none();
        if self.word.is_marked() {
            panics.run(|| acquire::serve(self));
        }
        panics
    }
    fn vacate(&self, lease: &OperationLease) -> Panics {
        let mut panics = Panics::none();
        panics.run(|| acquire::leave(self, lease));
        panics
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
    fn counted(&self) -> ClientCounted<'_> {
        // Idle ones first: a connection that is counted there is counted among all.
        let idle = self.idle();
        ClientCounted {
            tally: &self.epoch.data.tally,
            identity: self.number,
            view: self.word.view(),
            connections: self.connections(),
            idle,
            is_retired: self.is_retired(),
        }
    }
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The client of one approved origin. Clones are handles to the same one (control path).
#[derive(Debug)]
pub struct ProviderClient<T: Resource> {
    pub(super) core: Arc<ClientCore<T>>,
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

    /// Whether the call was admitted for this client and may go on; and the time of this look, by the coarse clock.
    #[inline(always)]
    pub(super) fn check(&self, call: &PoolCall) -> Result<u64, Error> {
        if !call.is_of(self.core.ground(), self.core.number) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        check_operation_at(call.lease())
    }

    /// An idle connection that can be used, or none: then the caller may dial. Expired and dead ones on the way are
    /// destroyed. Never waits, allocates nothing.
    ///
    /// # Errors
    /// A request of another client; stopped; deadline; one that has a connection of this client (`SecondConnection`) or waits
    /// for one (`Busy`); `Busy` while others wait in [`acquire`](Self::acquire): they come first.
    ///
    /// # Panics
    /// If [`Resource::is_reusable`] or a destructor panics: that connection is destroyed, and nothing else is lost.
    #[inline(always)]
    pub fn checkout<R: Requester>(&self, request: &R) -> Result<Option<PooledConnection<T>>, Error> {
        let call = request.call();
        match self.checkout_at_once(call) {
            Some(parts) => Ok(Some(PooledConnection::of(parts))),
            None => self.checkout_slowly(call),
        }
    }
    /// What most checkouts come to; or nothing, without saying why. Two registers, where a result that can be an error goes
    /// through memory.
    #[inline(never)]
    fn checkout_at_once(&self, call: &PoolCall) -> Option<Parts<T>> {
        if !call.is_of(self.core.ground(), self.core.number) || self.core.word.is_marked() {
            return None;
        }
        let now = glance(call.lease())?;
        let claim = Claim::of(call.lease()).ok()?;
        self.take(claim, now).ok()
    }
    #[cold]
    #[inline(never)]
    fn checkout_slowly(&self, call: &PoolCall) -> Result<Option<PooledConnection<T>>, Error> {
        let now = self.check(call)?;
        if self.core.word.is_marked() {
            // The last of them may have left without the line having looked since.
            acquire::serve(&*self.core);
            if self.core.word.is_marked() {
                return Err(Error::busy());
            }
        }
        Ok(self.take(Claim::of(call.lease())?, now).ok().map(PooledConnection::of))
    }
    /// An idle connection, whoever waits; or the claim back.
    #[inline(always)]
    pub(super) fn take(&self, claim: Claim, now: u64) -> Result<Parts<T>, Claim> {
        match self.core.take_idle(now) {
            Some(place) => Ok(Parts::of_idle(self.core.clone(), place, claim)),
            None => Err(claim),
        }
    }
    /// Charges one connection before it is dialled, and takes the client's one right to dial. If all connections of the node
    /// exist, the client with most idle ones loses one first.
    ///
    /// # Errors
    /// `Busy`: a dial is in progress. `Backoff`: the client pauses after failures, until then. `Full`: the client's or the
    /// node's connections all exist, or what there is belongs to those who wait in [`acquire`](Self::acquire). Retired;
    /// stopped; deadline; a request of another client, or one that has a connection of this client (`SecondConnection`) or waits
    /// for one (`Busy`).
    pub fn reserve_connection<R: Requester>(&self, request: &R) -> Result<ConnectionReservation<T>, Error> {
        let call = request.call();
        self.check(call)?;
        let claim = Claim::of(call.lease())?;
        self.reserve(Holder::Operation(claim))
    }
    /// Charges a connection for whoever may have one.
    pub(super) fn reserve(&self, holder: Holder) -> Result<ConnectionReservation<T>, Error> {
        let reserved = self.take_dial().and_then(|()| self.dial(holder));
        reserved.map_err(|error| self.core.ground().refuse(error))
    }
    /// The client's unit and its one right to dial.
    fn take_dial(&self) -> Result<(), Error> {
        let now_ms = self.core.now_ms();
        let mut asked = self.core.word.reserve_dial(now_ms, Heed::Marks);
        if asked == Err(Dial::Marked) {
            acquire::serve(&*self.core);
            asked = self.core.word.reserve_dial(now_ms, Heed::Marks);
        }
        asked.map_err(|dial| self.core.refused(dial, now_ms))
    }
    /// The right to dial and the client's unit are taken; the rest follows or they go back.
    pub(super) fn dial(&self, holder: Holder) -> Result<ConnectionReservation<T>, Error> {
        let core = &self.core;
        if let Err(error) = core.take_share() {
            if core.word.undo_dial() {
                acquire::serve(&**core);
            }
            return Err(error);
        }
        let Some(place) = core.cells.reserve() else {
            crate::broken::accounting("a connection was reserved but no place is free");
        };
        if core.ground().jobs.reserve(Job::Connecting).is_err() {
            crate::broken::accounting("a connection was reserved but no dial");
        }
        core.epoch.take_connection();
        Ok(ConnectionReservation::new(core.clone(), place, holder))
    }
    /// Waits for an idle connection or the right to dial, whichever comes first; first come first served per client,
    /// inside the call's deadline. When the client begins to pause, everyone in line is refused `Backoff` at once.
    ///
    /// It waits for connections of this client only. When all connections of the node exist and none is idle, the right to
    /// dial ends in `Full` at once.
    ///
    /// Cancel safe: what was handed over and not taken goes to the next. Allocates nothing.
    ///
    /// # Errors
    /// As [`reserve_connection`](Self::reserve_connection), but for what can be waited for. A request that has a connection of
    /// this client never waits for another: it would wait for itself.
    pub fn acquire<'a, R: Requester>(&'a self, request: &'a R) -> Acquire<'a, T> {
        Acquire::new(self, request.call())
    }
    /// How long the client still pauses after failed dials.
    pub fn retry_after(&self) -> Option<Duration> {
        self.core.word.retry_after(self.core.now_ms()).map(Duration::from_millis)
    }
    /// Destroys the client's idle connections.
    ///
    /// # Panics
    /// If a destructor panics; all are destroyed all the same.
    pub fn close_idle(&self) {
        let mut panics = Panics::none();
        while let Some(more) = self.core.evict() {
            panics.add(more);
        }
        panics.resume();
    }
}
