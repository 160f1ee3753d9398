//! Connections: reserved before the dial, destroyed before their charge.
use super::client::{ClientCore, Kept, Resource};
use super::holder::Holder;
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

/// The place of a connection among those of its client.
pub(super) type Place<T> = Cell<Option<Kept<T>>>;

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
        let Some(reserved) = self.reserved.take() else {
            crate::broken::accounting("a reservation without its place");
        };
        if let Err(error) = reserved.holder.check() {
            let mut panics = Panics::none();
            panics.run(|| drop(resource));
            panics.add(reserved.fail());
            panics.resume();
            return Err(error.after_start());
        }
        let Reserved { client, place, holder } = reserved;
        client.begin_life(&place);
        client.ground().jobs.give(Job::Connecting);
        let waited_for = client.word.dial_done();
        let connection = PooledConnection::new(client, place, resource, holder);
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
        let paused = client.word.dial_failed(client.now_ms(), initial, maximum);
        ground.jobs.give(Job::Connecting);
        ground.shares.give(Share::Connection);
        client.epoch.give_connection();
        let mut panics = Panics::none();
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
#[must_use = "dropping a connection destroys it"]
#[derive(Debug)]
pub struct PooledConnection<T: Resource> {
    parts: Option<Parts<T>>,
}

#[derive(Debug)]
struct Parts<T: Resource> {
    client: Arc<ClientCore<T>>,
    place: Place<T>,
    resource: T,
    holder: Holder,
    closes: Closes,
}

/// Whether a close of a connection has failed, for which it is counted. As wide as its neighbours, so that they are moved
/// together as they were written (see [`Error`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Closes {
    NotFailed,
    Failed,
}

impl<T: Resource> PooledConnection<T> {
    /// A connection that was just made, or one that was idle and left its place empty.
    pub(super) fn new(client: Arc<ClientCore<T>>, place: Place<T>, resource: T, holder: Holder) -> Self {
        PooledConnection { parts: Some(Parts { client, place, resource, holder, closes: Closes::NotFailed }) }
    }
    /// The connection itself.
    pub fn resource(&mut self) -> &mut T {
        match &mut self.parts {
            Some(parts) => &mut parts.resource,
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
        if std::mem::replace(&mut parts.closes, Closes::Failed) == Closes::NotFailed
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
    pub fn park(mut self, exchange: Exchange) -> Result<(), Error> {
        let Exchange(()) = exchange;
        let Some(parts) = self.parts.take() else {
            crate::broken::accounting("a connection was used after its end");
        };
        if parts.closes == Closes::Failed {
            parts.destroy().resume();
            return Err(Error::denied(Denied::NotReusable));
        }
        let Parts { client, mut place, resource, holder, closes: _ } = parts;
        let allowed = holder.check_park().and_then(|now| client.rest(&place, now));
        let now = match allowed {
            Ok(now) => now,
            Err(error) => {
                let panics = destroy(&client, place, resource, Some(holder));
                farewell(client);
                panics.resume();
                return Err(error);
            }
        };
        let due = client.note_idle(&place, now);
        let before = client.cells.put(&mut place, Some(Kept { resource, idle_since: now }));
        debug_assert!(!matches!(before, Some(Some(_))), "a connection's place is empty while it is in use");
        if let Err(mut place) = client.cells.park(place) {
            // Closed meanwhile, and nobody else took it.
            let kept = client.wake_up(&mut place);
            let panics = destroy(&client, place, kept.resource, Some(holder));
            farewell(client);
            panics.resume();
            return Err(Error::retired(What::Epoch));
        }
        client.registry().events.look_at(due);
        // The last lease of the operation may wake others.
        let mut panics = Panics::none();
        panics.run(|| drop(holder));
        // Meets the marker of an acquire line, which steps on the idle words after it has marked.
        if client.word.is_marked() {
            panics.run(|| acquire::serve(&*client));
        }
        panics.resume();
        Ok(())
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
    fn destroy(self) -> Panics {
        let Parts { client, place, resource, holder, closes } = self;
        let panics = destroy(&client, place, resource, Some(holder));
        if closes == Closes::Failed {
            client.ground().jobs.give(Job::FailedCleanup);
            client.registry().ended();
        }
        farewell(client);
        panics
    }
}

/// Destroys a connection: the resource first, guarded, then its place, and after it everything that is charged.
pub(super) fn destroy<T: Resource>(
    client: &ClientCore<T>,
    place: Place<T>,
    resource: T,
    holder: Option<Holder>,
) -> Panics {
    let mut panics = Panics::none();
    let mut resource = Some(resource);
    if !planted!("refund_before_drop") {
        panics.run(|| drop(resource.take()));
    }
    drop(client.cells.remove(place));
    let waited_for = client.word.give_connection();
    client.ground().shares.give(Share::Connection);
    client.epoch.give_connection();
    panics.run(|| drop(holder));
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
    /// Takes the share of an idle connection, if the client may have any and the connection is not too old at `now`, which it
    /// gives back.
    fn rest(&self, place: &Place<T>, now: u64) -> Result<u64, Error> {
        if self.is_retired() {
            return Err(Error::retired(What::Epoch));
        }
        if self.ends_at(place.index()) <= now {
            return Err(Error::denied(Denied::NotReusable));
        }
        let full = |dimension| self.ground().refuse(Error::full(dimension, Scope::Node));
        self.ground().shares.reserve(Share::Idle).map_err(full)?;
        Ok(now)
    }
}
