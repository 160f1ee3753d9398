//! Cleanup: closing a connection politely, in places of its own.
//!
//! A connection stays owned and charged until its resource is destroyed. A close that succeeded leads there; one that
//! failed gives the connection back, and it is counted as a failed cleanup until it is destroyed. A close that panicked,
//! or whose runtime ended, destroys the connection on the way.
use super::client::Resource;
use super::connection::PooledConnection;
use super::job::{NotSpawned, ProviderJob};
use super::pools::ProviderPools;
use super::work::Rules;
use crate::account::jobs::Job;
use crate::broker::error::{Denied, Error};
use std::future::Future;

/// How a cleanup ended.
#[must_use = "dropping a retained connection destroys it"]
#[derive(Debug)]
pub enum CleanupResult<T: Resource> {
    /// It was closed; its resource is destroyed and everything of it is given back.
    Closed,
    /// The close failed. The connection is as owned and charged as before: for another attempt, or to be destroyed by
    /// dropping it. It cannot be parked any more.
    Retained(PooledConnection<T>),
}

/// A way to close a connection: an `async` closure, `async |socket: &mut Socket| socket.shutdown().await.is_ok()`.
///
/// It says whether the close succeeded. There is nothing to implement: every closure of that shape is one.
pub trait Close<'a, T: 'a>: FnOnce(&'a mut T) -> <Self as Close<'a, T>>::Future {
    /// The close under way.
    type Future: Future<Output = bool> + Send + 'a;
}

impl<'a, T, F, Fut> Close<'a, T> for F
where
    T: 'a,
    F: FnOnce(&'a mut T) -> Fut,
    Fut: Future<Output = bool> + Send + 'a,
{
    type Future = Fut;
}

impl ProviderPools {
    /// Closes a connection as a job in a cleanup place, which no other work can take.
    ///
    /// `close` runs on the supplied runtime, and says whether it succeeded. If so the resource is destroyed, then its
    /// charge. If not, the connection comes back as [`CleanupResult::Retained`], still owned and charged, counted once in
    /// the snapshot's `failed_cleanup` until it is destroyed; another attempt is allowed. If nobody waits for the answer any
    /// more, it is destroyed in the job. The connection keeps its operation, so the call's charges stay as well.
    ///
    /// It works to the end: for connections of replaced epochs, of stopped calls, and of a retired registry.
    ///
    /// Control path: it allocates.
    ///
    /// # Errors
    /// The connection comes back with the reason: no place (`pools.cleanup_jobs`), no room for metadata, a connection of
    /// another registry, accounting that was found broken. The future ends in [`Kind::JobFailed`](crate::Kind::JobFailed) if
    /// the close or the resource's destructor panicked, which is counted, or if the runtime was shut down under the job: then
    /// the connection is destroyed and its charge given back.
    pub fn cleanup<T, F>(
        &self,
        connection: PooledConnection<T>,
        close: F,
    ) -> Result<ProviderJob<CleanupResult<T>>, NotSpawned<PooledConnection<T>>>
    where
        T: Resource,
        F: for<'a> Close<'a, T> + Send + 'static,
    {
        let registry = self.registry_arc();
        if !connection.is_of(registry) {
            return Err(NotSpawned::new(Error::denied(Denied::ForeignClient), connection));
        }
        let work = move |mut connection: PooledConnection<T>| async move {
            if close(connection.resource()).await {
                drop(connection);
                return CleanupResult::Closed;
            }
            connection.cleanup_failed();
            CleanupResult::Retained(connection)
        };
        registry.start(Job::Cleanup, Rules::Cleanup, connection, work)
    }
}
