//! Connections: reserved before the dial, destroyed before their charge.
use super::client::{ClientCore, Resource};
use super::holder::{Claim, Holder};
use super::maintenance::MaintenanceRequest;
use super::registry::Registry;
use crate::account::jobs::Job;
use crate::account::scope::Scope;
use crate::account::shares::Share;
use crate::broker::error::{Denied, Error, What};
use crate::foreign::Panics;
use crate::mem::cells::Cell;
use crate::queue::acquire;
use std::sync::Arc;

/// The adapter's word that the exchange on a connection is complete: the request was written to its end, the response read
/// to its end, and both sides keep the connection. Without it nothing is parked.
#[derive(Debug)]
pub struct Exchange(());

impl Exchange {
    /// States it. To say so of an exchange that is not complete hands one tenant's bytes to another.
    pub const fn complete() -> Exchange {
        Exchange(())
    }
}

/// A connection at its place.
#[derive(Debug)]
pub(super) struct Kept<T> {
    pub(super) resource: T,
    /// Nanoseconds since the node's base: since when it rests.
    pub(super) idle_since: u64,
    /// The operation that has it; nobody's while it rests. (Apart from the other holders, so that it is one word to move.)
    pub(super) claim: Claim,
    /// The maintenance request that has it. Such a connection never rests.
    pub(super) maintenance: Option<MaintenanceRequest>,
    /// A close of it has failed, for which it is counted.
    pub(super) close_failed: bool,
}

impl<T> Kept<T> {
    /// Just made.
    pub(super) fn new(resource: T, holder: Holder) -> Kept<T> {
        let (claim, maintenance) = match holder {
            Holder::Operation(claim) => (claim, None),
            Holder::Maintenance(request) => (Claim::nobodys(), Some(request)),
        };
        Kept { resource, idle_since: 0, claim, maintenance, close_failed: false }
    }
}

/// The place of a connection among those of its client.
pub(super) type Place<T> = Cell<Kept<T>>;

/// The right to make one connection of a client, charged before anything is dialled. There is one at a time.
///
/// Dropped without [`connected`](Self::connected) it counts as a failed dial: the client pauses.
#[must_use = "dropping a reservation counts as a failed dial"]
#[derive(Debug)]
pub struct ConnectionReservation<T: Resource> {
    reserved: Option<Reserved<T>>,
}

#[derive(Debug)]
struct Reserved<T: Resource> {
    client: Arc<ClientCore<T>>,
    place: Place<T>,
    holder: Holder,
}

impl<T: Resource> ConnectionReservation<T> {
    /// The dial's unit of the client, a connection of the node and a place are taken already.
    pub(super) fn new(client: Arc<ClientCore<T>>, place: Place<T>, holder: Holder) -> Self {
        ConnectionReservation { reserved: Some(Reserved { client, place, holder }) }
    }
    /// The dial succeeded. The failures of the client are forgotten.
    ///
    /// # Errors
    /// The request was stopped meanwhile, or its deadline passed: the resource is destroyed, and the dial counts as
    /// failed.
    ///
    /// # Panics
    /// If the destructor of a resource that comes too late panics; everything is given back all the same.
    pub fn connected(mut self, resource: T) -> Result<PooledConnection<T>, Error> {
        let Some(reserved) = &self.reserved else {
            crate::broken::accounting("a reservation without its place");
        };
        // The probe of a session is foreign, and asked here. Until it has answered and the clock was read, all of this is a
        // reservation that can be dropped.
        let checked = reserved.holder.check();
        if checked.is_ok() {
            reserved.client.begin_life(&reserved.place);
        }
        let Some(reserved) = self.reserved.take() else {
            crate::broken::accounting("a reservation without its place");
        };
        if let Err(error) = checked {
            let mut panics = Panics::none();
            panics.run(|| drop(resource));
            panics.add(reserved.fail());
            panics.resume();
            return Err(error.after_start());
        }
        let Reserved { client, place, holder } = reserved;
        client.ground().jobs.give(Job::Connecting);
        let waited_for = client.word.dial_done();
        let connection = PooledConnection::made(client, place, resource, holder);
        if waited_for && let Some(parts) = &connection.parts {
            acquire::serve(&*parts.client);
        }
        Ok(connection)
    }
}

impl<T: Resource> Reserved<T> {
    /// Gives everything back and starts the pause. Everyone in line for this client learns of it at once.
    fn fail(self) -> Panics {
        let Reserved { client, place, holder } = self;
        let ground = client.ground();
        drop(client.cells.remove(place));
        let (initial, maximum) = client.registry().backoff_ms;
        let mut panics = Panics::none();
        // A clock that panics costs the pause, and nothing that is charged.
        let mut now_ms = 0;
        panics.run(|| now_ms = client.now_ms());
        let paused = client.word.dial_failed(now_ms, initial, maximum);
        ground.jobs.give(Job::Connecting);
        ground.shares.give(Share::Connection);
        client.epoch.give_connection();
        panics.run(|| drop(holder));
        if paused.marked {
            panics.run(|| acquire::serve(&*client));
        }
        client.registry().ended();
        farewell(client);
        panics
    }
}

impl<T: Resource> Drop for ConnectionReservation<T> {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            reserved.fail().resume();
        }
    }
}

/// A connection in use. It holds its request, so the request's running units stay held until it is parked or destroyed.
///
/// It is two words: the resource stays at its place in the client, whoever has it.
#[must_use = "dropping a connection destroys it"]
#[derive(Debug)]
pub struct PooledConnection<T: Resource> {
    /// Gone only while it is being parked, destroyed or dropped.
    parts: Option<Parts<T>>,
}

/// A connection in use, without the end that it comes to when it is dropped: two words, one of which is never zero.
#[derive(Debug)]
pub(super) struct Parts<T: Resource> {
    client: Arc<ClientCore<T>>,
    place: Place<T>,
}

impl<T: Resource> PooledConnection<T> {
    /// A connection that was just made.
    fn made(client: Arc<ClientCore<T>>, mut place: Place<T>, resource: T, holder: Holder) -> Self {
        let before = client.cells.put(&mut place, Kept::new(resource, holder));
        debug_assert!(before.is_none(), "a connection's place is empty before it is made");
        PooledConnection { parts: Some(Parts { client, place }) }
    }
    #[inline(always)]
    pub(super) fn of(parts: Parts<T>) -> Self {
        PooledConnection { parts: Some(parts) }
    }
    /// The connection itself.
    #[inline]
    pub fn resource(&mut self) -> &mut T {
        match &mut self.parts {
            Some(parts) => &mut parts.kept().resource,
            None => crate::broken::accounting("a connection was used after its end"),
        }
    }
    pub(super) fn is_of(&self, registry: &Registry) -> bool {
        self.parts.as_ref().is_some_and(|parts| std::ptr::eq(&**parts.client.registry(), registry))
    }
    /// A close of it failed: it is counted until it is destroyed.
    pub(super) fn cleanup_failed(&mut self) {
        let Some(parts) = &mut self.parts else {
            crate::broken::accounting("a connection was used after its end");
        };
        if !std::mem::replace(&mut parts.kept().close_failed, true)
            && parts.client.ground().jobs.reserve(Job::FailedCleanup).is_err()
        {
            crate::broken::accounting("there are more failed cleanups than connections");
        }
    }
    /// Gives the connection to whoever comes next, and lets the request go.
    ///
    /// # Errors
    /// The request was stopped, the epoch is no longer current, or there is no room for an idle connection; a close of the
    /// connection failed, or it is as old as connections may become (`NotReusable`), or it belongs to a maintenance request
    /// (`Maintenance`): then it is destroyed.
    ///
    /// # Panics
    /// If the destructor of a connection that cannot be parked panics; everything is given back all the same.
    #[inline(always)]
    pub fn park(mut self, exchange: Exchange) -> Result<(), Error> {
        let Exchange(()) = exchange;
        match self.parts.take() {
            Some(parts) => parts.park(),
            None => crate::broken::accounting("a connection was used after its end"),
        }
    }
}

impl<T: Resource> Drop for PooledConnection<T> {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            parts.destroy().resume();
        }
    }
}

impl<T: Resource> Parts<T> {
    /// A connection that was idle.
    #[inline(always)]
    pub(super) fn of_idle(client: Arc<ClientCore<T>>, mut place: Place<T>, claim: Claim) -> Self {
        let before = std::mem::replace(&mut client.cells.get_mut(&mut place).claim, claim);
        debug_assert!(before.is_nobodys(), "what rests is nobody's");
        Parts { client, place }
    }

    #[inline(always)]
    fn kept(&mut self) -> &mut Kept<T> {
        self.client.cells.get_mut(&mut self.place)
    }

    #[inline(never)]
    fn park(mut self) -> Result<(), Error> {
        let index = self.place.index();
        let kept = self.client.cells.get_mut(&mut self.place);
        if kept.claim.has_probe() {
            return self.ask_and_park();
        }
        let now = match self.client.may_rest(kept, index) {
            Ok(now) => now,
            Err(error) => {
                self.destroy().resume();
                return Err(error);
            }
        };
        kept.idle_since = now;
        let claim = std::mem::replace(&mut kept.claim, Claim::nobodys());
        self.rest(index, now, claim)
    }

    /// The probe of a session is foreign. Until it has answered, this is a connection that can be dropped.
    #[cold]
    #[inline(never)]
    fn ask_and_park(self) -> Result<(), Error> {
        let mut whole = PooledConnection::of(self);
        let allowed = whole.parts.as_mut().map(|Parts { client, place }| {
            let index = place.index();
            client.may_rest(client.cells.get_mut(place), index)
        });
        let (Some(allowed), Some(mut parts)) = (allowed, whole.parts.take()) else {
            crate::broken::accounting("a connection was used after its end");
        };
        let now = match allowed {
            Ok(now) => now,
            Err(error) => {
                parts.destroy().resume();
                return Err(error);
            }
        };
        let (index, kept) = (parts.place.index(), parts.kept());
        kept.idle_since = now;
        let claim = std::mem::replace(&mut kept.claim, Claim::nobodys());
        parts.rest(index, now, claim)
    }

    /// From now on it rests.
    #[inline(always)]
    fn rest(self, index: u8, now: u64, claim: Claim) -> Result<(), Error> {
        let Parts { client, place } = self;
        let due = client.note_idle(index, now);
        if let Err(place) = client.cells.park(place) {
            return Err(came_too_late(client, place, claim));
        }
        client.registry().events.look_at(due);
        // Meets the marker of an acquire line, which steps on the idle words after it has marked.
        if client.word.is_marked() {
            parked_for_somebody(client, claim);
        } else {
            drop(claim);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn destroy(mut self) -> Panics {
        let close_failed = self.kept().close_failed;
        let Parts { client, place } = self;
        let panics = destroy(&client, place);
        if close_failed {
            client.ground().jobs.give(Job::FailedCleanup);
            client.registry().ended();
        }
        farewell(client);
        panics
    }
}

/// The client was closed while its connection was parked, and nobody else has taken it.
#[cold]
#[inline(never)]
fn came_too_late<T: Resource>(client: Arc<ClientCore<T>>, mut place: Place<T>, claim: Claim) -> Error {
    client.wake_up();
    client.cells.get_mut(&mut place).claim = claim;
    let panics = destroy(&client, place);
    farewell(client);
    panics.resume();
    Error::retired(What::Epoch)
}

/// A connection was parked, and somebody waits for one. The last lease of the operation may wake others, too.
#[cold]
#[inline(never)]
fn parked_for_somebody<T: Resource>(client: Arc<ClientCore<T>>, claim: Claim) {
    let mut panics = Panics::none();
    panics.run(|| drop(claim));
    panics.run(|| acquire::serve(&*client));
    panics.resume();
}

/// Destroys a connection: the resource first, guarded, then its place, and after it everything that is charged.
pub(super) fn destroy<T: Resource>(client: &ClientCore<T>, mut place: Place<T>) -> Panics {
    let mut panics = Panics::none();
    let Some(Kept { resource, claim, maintenance, .. }) = client.cells.take(&mut place) else {
        crate::broken::accounting("a place without its connection");
    };
    let mut resource = Some(resource);
    if !planted!("refund_before_drop") {
        panics.run(|| drop(resource.take()));
    }
    drop(client.cells.remove(place));
    let waited_for = client.word.give_connection();
    client.ground().shares.give(Share::Connection);
    client.epoch.give_connection();
    panics.run(|| drop((claim, maintenance)));
    if waited_for {
        panics.run(|| acquire::serve(client));
    }
    client.registry().ended();
    panics
}

/// Lets go of a client after one of its connections was destroyed. If its epoch was replaced, that may have been the last
/// thing that kept the epoch: the control task looks.
pub(super) fn farewell<T: Resource>(client: Arc<ClientCore<T>>) {
    if !client.is_retired() {
        return;
    }
    let registry = client.registry().clone();
    drop(client);
    registry.let_go();
    registry.ended();
}

impl<T: Resource> ClientCore<T> {
    /// Takes the share of an idle connection, if this one may become one; and gives the time of this look.
    #[inline(always)]
    fn may_rest(&self, kept: &Kept<T>, index: u8) -> Result<u64, Error> {
        if kept.close_failed {
            return Err(Error::denied(Denied::NotReusable));
        }
        if kept.maintenance.is_some() {
            return Err(Error::denied(Denied::Maintenance));
        }
        let now = {
            // Only the probe of a session is guarded: the clock panics in no trial here.
            #[cfg(test)]
            let _shut = crate::refuse::shut();
            kept.claim.check_at()?
        };
        if self.is_retired() {
            return Err(Error::retired(What::Epoch));
        }
        if self.ends_at(index) <= now {
            return Err(Error::denied(Denied::NotReusable));
        }
        let full = |dimension| self.ground().refuse(Error::full(dimension, Scope::Node));
        self.ground().shares.reserve(Share::Idle).map_err(full)?;
        Ok(now)
    }
}
