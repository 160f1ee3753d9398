//! Connections: reserved before the dial, destroyed before their charge.
use super::acquire;
use super::client::{ClientCore, Kept, Resource};
use crate::account::jobs::Job;
use crate::account::shares::Share;
use crate::account::scope::Scope;
use crate::broker::error::{Error, What};
use crate::broker::ground::OperationLease;
use crate::broker::io::check_operation;
use crate::foreign::foreign;
use crate::mem::cells::Cell;
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

/// The right to make one connection of a client, charged before anything is dialled. There is one at a time.
///
/// Dropped without [`connected`](Self::connected) it counts as a failed dial: the client pauses.
#[must_use = "dropping a reservation counts as a failed dial"]
#[derive(Debug)]
pub struct ConnectionReservation<T: Resource> {
    place: Option<Place<T>>,
}

#[derive(Debug)]
struct Place<T: Resource> {
    client: Arc<ClientCore<T>>,
    cell: Cell<Option<Kept<T>>>,
    operation: OperationLease,
}

impl<T: Resource> ConnectionReservation<T> {
    /// The dial's unit of the client, a connection of the node and a cell are taken already.
    pub(crate) fn new(client: Arc<ClientCore<T>>, cell: Cell<Option<Kept<T>>>, operation: OperationLease) -> Self {
        ConnectionReservation { place: Some(Place { client, cell, operation }) }
    }
    /// The dial succeeded. The failures of the client are forgotten.
    ///
    /// # Errors
    /// The operation was stopped meanwhile, or its deadline passed: the resource is destroyed, and the dial counts as
    /// failed.
    pub fn connected(mut self, resource: T) -> Result<PooledConnection<T>, Error> {
        let Some(place) = self.place.take() else {
            crate::broken::accounting("a reservation without its place");
        };
        if let Err(error) = check_operation(&place.operation) {
            let destroyed = foreign(|| drop(resource));
            place.fail();
            if let Err(panic) = destroyed {
                panic.resume();
            }
            return Err(error.after_start());
        }
        let Place { client, cell, operation } = place;
        client.ground().jobs.give(Job::Connecting);
        let waited_for = client.word.dial_done();
        if waited_for {
            acquire::serve(&client);
        }
        Ok(PooledConnection { parts: Some(Parts { client, cell, resource, operation }) })
    }
}

impl<T: Resource> Place<T> {
    /// Gives everything back and starts the pause. Everyone in line for this client learns of it at once.
    fn fail(self) {
        let Place { client, cell, operation } = self;
        drop(client.cells.remove(cell));
        let ground = client.ground();
        let limits = client.registry.limits();
        let paused = client.word.dial_failed(
            client.now_ms(),
            limits.initial_backoff.as_millis() as u64,
            limits.maximum_backoff.as_millis() as u64,
        );
        ground.jobs.give(Job::Connecting);
        ground.shares.give(Share::Connection);
        client.epoch.give_connection();
        if paused.marked {
            acquire::serve(&client);
        }
        client.registry.ended();
        drop(operation);
    }
}

impl<T: Resource> Drop for ConnectionReservation<T> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.fail();
        }
    }
}

/// A connection in use. It holds its operation, so the request's running units stay held until it is parked or destroyed.
#[must_use = "dropping a connection destroys it"]
#[derive(Debug)]
pub struct PooledConnection<T: Resource> {
    parts: Option<Parts<T>>,
}

#[derive(Debug)]
struct Parts<T: Resource> {
    client: Arc<ClientCore<T>>,
    cell: Cell<Option<Kept<T>>>,
    resource: T,
    operation: OperationLease,
}

impl<T: Resource> PooledConnection<T> {
    /// An idle connection that was taken out of its cell.
    pub(crate) fn taken(
        client: Arc<ClientCore<T>>,
        cell: Cell<Option<Kept<T>>>,
        resource: T,
        operation: OperationLease,
    ) -> Self {
        PooledConnection { parts: Some(Parts { client, cell, resource, operation }) }
    }
    /// The connection itself.
    pub fn resource(&mut self) -> &mut T {
        match &mut self.parts {
            Some(parts) => &mut parts.resource,
            None => crate::broken::accounting("a connection was used after its end"),
        }
    }
    /// Gives the connection to whoever comes next, and lets the operation go.
    ///
    /// # Errors
    /// The operation was stopped, the epoch is no longer current, or there is no room for an idle connection: then the
    /// connection is destroyed.
    pub fn park(mut self, exchange: Exchange) -> Result<(), Error> {
        let Exchange(()) = exchange;
        let Some(Parts { client, mut cell, resource, operation }) = self.parts.take() else {
            crate::broken::accounting("a connection was used after its end");
        };
        let allowed = check_operation(&operation).and_then(|()| {
            if client.is_retired() {
                return Err(Error::retired(What::Epoch));
            }
            let full = |dimension| Error::full(dimension, Scope::Node);
            client.ground().shares.reserve(Share::Idle).map_err(full)
        });
        if let Err(error) = allowed {
            destroy(&client, cell, resource, Some(operation));
            return Err(error);
        }
        let now = client.now_nanos();
        client.note_idle(&cell, now);
        let before = client.cells.put(&mut cell, Some(Kept { resource, idle_since: now }));
        debug_assert!(!matches!(before, Some(Some(_))), "a connection's cell is empty while it is in use");
        if let Err(cell) = client.cells.park(cell) {
            // Closed meanwhile, and nobody else took it.
            client.ground().shares.give(Share::Idle);
            if let Some(kept) = client.cells.remove(cell).flatten() {
                client.destroyed(foreign(|| drop(kept)));
            }
            drop(operation);
            return Err(Error::retired(What::Epoch));
        }
        // Meets the marker of an acquire line, which steps on the idle words after it has marked.
        if client.word.is_marked() {
            acquire::serve(&client);
        }
        client.registry.idle_from(now);
        drop(operation);
        Ok(())
    }
}

impl<T: Resource> Drop for PooledConnection<T> {
    fn drop(&mut self) {
        if let Some(Parts { client, cell, resource, operation }) = self.parts.take() {
            destroy(&client, cell, resource, Some(operation));
        }
    }
}

/// Destroys a connection: the resource first, guarded, then the cell, and after it everything that is charged.
pub(crate) fn destroy<T: Resource>(
    client: &ClientCore<T>,
    cell: Cell<Option<Kept<T>>>,
    resource: T,
    operation: Option<OperationLease>,
) {
    let destroyed = foreign(|| drop(resource));
    drop(client.cells.remove(cell));
    client.destroyed(destroyed);
    drop(operation);
}
