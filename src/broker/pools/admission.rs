//! From admission to a running call: thin types over the I/O ones, with a tenant and a provider charged.
use crate::broker::call::ProviderCall;
use crate::broker::capability::Operation;
use crate::broker::error::Error;
use crate::broker::ground::{Ground, OperationLease};
use crate::broker::io::{IoAdmission, IoBuffer, IoCall, IoMemory, IoReady, IoStopHandle, Wait};
use crate::broker::ledger::Cost;
use crate::queue::operation::State;
use crate::sync::order;
use crate::time::Deadline;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An admitted request that has not asked for its turn yet. See [`IoAdmission`].
#[must_use = "dropping an admission gives it back"]
#[derive(Debug)]
pub struct PoolAdmission {
    pub(crate) inner: IoAdmission,
}

impl PoolAdmission {
    /// As [`IoAdmission::input`].
    ///
    /// # Errors
    /// As [`IoAdmission::input`].
    pub fn input(&self, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
        self.inner.input(capacity, framing)
    }
    /// As [`IoAdmission::reserve_input`].
    ///
    /// # Errors
    /// As [`IoAdmission::input`].
    pub fn reserve_input(&self, bytes: usize, framing: u32) -> Result<IoMemory, Error> {
        self.inner.reserve_input(bytes, framing)
    }
    /// A weak handle to stop and look at this request from elsewhere.
    pub fn stop_handle(&self) -> IoStopHandle {
        self.inner.stop_handle()
    }
    /// The instant at which the request ends, whatever it is doing.
    pub fn deadline(&self) -> Deadline {
        self.inner.deadline()
    }
    /// Waits for the running units of node, tenant and provider together. The place in line is taken by the first poll.
    /// Cancel safe: dropping the future leaves the line. Allocates nothing.
    ///
    /// # Errors
    /// It waited longer than `pools.queue_age`, or its deadline passed; the epoch was replaced or retired; the session was
    /// stopped; the registry is retired. Nothing was sent.
    pub fn wait(self) -> PoolWait {
        PoolWait { inner: self.inner.wait() }
    }
}

pin_project! {
    /// Waits for a turn. See [`PoolAdmission::wait`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct PoolWait {
        #[pin]
        inner: Wait,
    }
}

impl Future for PoolWait {
    type Output = Result<PoolReady, Error>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx).map(|ready| ready.map(|inner| PoolReady { inner }))
    }
}

/// Holds a running unit of node, tenant and provider: capacity, not permission.
#[must_use = "dropping a ready request gives its running units back"]
#[derive(Debug)]
pub struct PoolReady {
    pub(crate) inner: IoReady,
}

impl PoolReady {
    /// Asks policy, provider and publication now, debits the cost, and starts.
    ///
    /// # Errors
    /// Not bound, revoked, withdrawn, retired; a budget that does not cover the cost; stopped; deadline. The request is
    /// given back; nothing was sent.
    #[inline]
    pub fn dispatch(self, operation: Operation, cost: Cost) -> Result<PoolCall, Error> {
        // Which of the two is mostly known to whoever compiles the caller, and then no cost is written at all.
        if cost.declares_nothing() {
            self.dispatch_plainly(operation)
        } else {
            self.dispatch_at(operation, &cost)
        }
    }
    #[inline(never)]
    fn dispatch_plainly(self, operation: Operation) -> Result<PoolCall, Error> {
        self.inner.dispatch(operation, &Cost::new()).map(|io| PoolCall { io })
    }
    #[inline(never)]
    fn dispatch_at(self, operation: Operation, cost: &Cost) -> Result<PoolCall, Error> {
        self.inner.dispatch(operation, cost).map(|io| PoolCall { io })
    }
    /// Starts with a call that the same session was given.
    ///
    /// # Errors
    /// As [`IoReady::start`].
    pub fn start(self, call: ProviderCall) -> Result<PoolCall, Error> {
        self.inner.start(call).map(|io| PoolCall { io })
    }
    /// As [`IoAdmission::input`].
    ///
    /// # Errors
    /// As [`IoAdmission::input`].
    pub fn input(&self, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
        self.inner.input(capacity, framing)
    }
    /// A weak handle to stop and look at this request from elsewhere.
    pub fn stop_handle(&self) -> IoStopHandle {
        self.inner.stop_handle()
    }
    /// The instant at which the request ends, whatever it is doing.
    pub fn deadline(&self) -> Deadline {
        self.inner.deadline()
    }
}

/// A running request.
#[must_use = "dropping a call gives its running units back once nothing else holds them"]
#[derive(Debug)]
pub struct PoolCall {
    io: IoCall,
}

impl Drop for PoolCall {
    #[inline]
    fn drop(&mut self) {
        // A wait for a connection borrows the call, so it left its seat before, unless it was leaked.
        if State(self.lease().word().load()).is_seated() {
            vacate(self.lease());
        }
    }
}

#[cold]
fn vacate(lease: &OperationLease) {
    if let Some(seats) = lease.shared().seats.get().and_then(std::sync::Weak::upgrade) {
        seats.vacate(lease);
    }
}

impl PoolCall {
    pub(super) fn new(io: IoCall) -> PoolCall {
        PoolCall { io }
    }
    /// The call's buffers, streams and waits.
    pub fn io(&self) -> &IoCall {
        &self.io
    }
    pub(crate) fn lease(&self) -> &OperationLease {
        self.io.lease()
    }
    /// Whether it was admitted on this ground, for the client with this number.
    pub(crate) fn is_of(&self, ground: &Ground, client: u32) -> bool {
        std::ptr::eq(self.lease().shared(), ground) && self.lease().client.load(order::COUNT) == client
    }
}
