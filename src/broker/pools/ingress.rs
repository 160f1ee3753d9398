//! Ingress: work that an inbound event starts, charged like a tenant's request.
//!
//! An ingress request is an operation like every other: it takes a request and a running unit of its tenant and its
//! provider, and of the node, and waits for them in the one line, in its tenant's turn. It has no session of somebody else to
//! hang from, so it opens one of its own under a plan of the tenant. That session lives as long as the operation does, and
//! carries the memory that was declared for the event.
use super::admission::PoolCall;
use super::client::{ProviderClient, Resource};
use super::holder::{Requester, sealed::Sealed};
use super::pools::ProviderPools;
use crate::account::dimension::{Dimension, KIB, MIB};
use crate::account::uses::UsesWord;
use crate::broker::error::{Denied, Error, Invalid};
use crate::broker::io::{Front, IoReady, Wait, WaitFor, check_operation};
use crate::broker::plan::{Plan, PlanCore};
use crate::broker::session::{self, Activation};
use crate::sync::order;
use crate::time::Deadline;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Operations of one ingress request, at most.
pub const INGRESS_OPERATIONS_MAX: u32 = 16;
/// How far ahead the deadline of an ingress request may be.
pub const INGRESS_TIME_MAX: Duration = Duration::from_secs(60);
/// The least memory that an ingress request declares, in bytes: it pays for the request itself.
pub const INGRESS_MEMORY_MIN: u64 = 4 * KIB;
/// The most memory that an ingress request may declare, in bytes.
pub const INGRESS_MEMORY_MAX: u64 = MIB;

/// What an inbound event may take.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct IngressTerms {
    deadline: Deadline,
    operations: u32,
    memory: u64,
}

impl IngressTerms {
    /// One operation and 4,096 bytes, until `deadline`: in the future, and at most 1 minute ahead.
    pub const fn until(deadline: Deadline) -> IngressTerms {
        IngressTerms { deadline, operations: 1, memory: INGRESS_MEMORY_MIN }
    }
    /// How many operations the event may begin, all clones of its request together: 1 to 16.
    pub const fn operations(mut self, operations: u32) -> IngressTerms {
        self.operations = operations;
        self
    }
    /// Bytes that the event takes: 4,096 to 1 MiB. The whole amount is charged as pool metadata.
    pub const fn memory(mut self, bytes: u64) -> IngressTerms {
        self.memory = bytes;
        self
    }
}

/// An ingress request that has not asked for its turn yet.
#[must_use = "dropping an admission gives it back"]
#[derive(Debug)]
pub struct IngressAdmission {
    front: Front,
    operations: u32,
}

impl IngressAdmission {
    /// Waits for the running units of node, tenant and provider together, in the same line as every request and in the same
    /// turn of its tenant. The place in line is taken by the first poll; the time in it is bounded by the pools' queue age.
    /// Cancel safe: dropping the future leaves the line and gives everything back. Allocates the request when it is granted.
    ///
    /// # Errors
    /// It waited too long, or its deadline passed; the epoch was replaced, the publication withdrawn, the registry retired.
    pub fn wait(self) -> IngressWait {
        IngressWait { wait: Wait::new(self.front), operations: self.operations }
    }
    /// The instant at which the request ends, whatever it is doing.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.front.deadline()
    }
}

pin_project! {
    /// Waits for a turn. See [`IngressAdmission::wait`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct IngressWait {
        #[pin]
        wait: Wait,
        operations: u32,
    }
}

impl Future for IngressWait {
    type Output = Result<IngressRequest, Error>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let ready = ready!(this.wait.poll(cx));
        Poll::Ready(ready.and_then(|ready| IngressRequest::start(ready, *this.operations)))
    }
}

/// An inbound event that runs: a running request of its tenant and its provider. Clones are the same one.
///
/// It may check out, wait for, make, use and park connections of its client, like a call: the same functions take it (see
/// [`Requester`]). Unlike a call it ends with its epoch: when that is replaced or retired, whatever of it waits is
/// refused at once, and it gets no further connection; what it has keeps its units until it is dropped. It charges no
/// budget, has no inline output and no buffers: what the event takes is in the declared memory.
///
/// Its units and its memory are given back when the last clone, the last wait and the last connection of it are gone; a
/// connection that is parked no longer counts.
#[must_use = "dropping the last clone of a request ends it"]
#[derive(Clone, Debug)]
pub struct IngressRequest {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    call: PoolCall,
    operations: UsesWord,
}

impl IngressRequest {
    /// The provider is reached on nobody's cost from here on, so the plan is asked once more, after the step of the start.
    fn start(ready: IoReady, operations: u32) -> Result<IngressRequest, Error> {
        let call = PoolCall::new(ready.start_inbound()?);
        let lease = call.lease();
        let request = lease.request().ok_or(Error::denied(Denied::ForeignProvider))?;
        PlanCore::of(lease.pin()).uses(request.provider(), request.tag())?;
        Ok(IngressRequest { shared: Arc::new(Shared { call, operations: UsesWord::new(operations) }) })
    }
    /// Refuses to go on. Reads the coarse clock: at most one tick late, never early.
    ///
    /// # Errors
    /// Whether anything of it was sent is uncertain. The deadline has passed; the epoch was replaced or retired; the registry or its I/O runtime is retired.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.shared.call.io().checkpoint()
    }
    /// The instant at which everything of it ends.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.shared.call.io().deadline()
    }
    /// Takes one of the operations that the event may begin. All clones take from the same number; none is given back.
    ///
    /// # Errors
    /// `Exhausted`: all were begun. What [`checkpoint`](Self::checkpoint) refuses. Nothing is taken then, and nothing of this
    /// operation was sent.
    pub fn begin_operation(&self) -> Result<(), Error> {
        check_operation(self.shared.call.lease())?;
        self.shared.operations.take().map_err(|_none_left| Error::denied(Denied::Exhausted))
    }
    /// How many operations it may still begin.
    #[must_use]
    pub fn remaining_operations(&self) -> u32 {
        self.shared.operations.left()
    }
    /// Waits for `future`, which waits for a provider; ends at the deadline, with the epoch, and with the registry, each
    /// at the moment at which it happens. What it holds stays held. Cancel safe if `future` is. Allocates nothing.
    pub fn wait_for<F: Future>(&self, future: F) -> WaitFor<'_, F> {
        self.shared.call.io().wait_for(future)
    }
}

impl Sealed for IngressRequest {
    fn call(&self) -> &PoolCall {
        &self.shared.call
    }
}
impl Requester for IngressRequest {}

impl ProviderPools {
    /// Starts an inbound event at once, or refuses it; never waits, charges no pending. For events whose source keeps them.
    ///
    /// `plan` says whose event it is: a sealed plan of the tenant that binds the client's epoch and still allows something
    /// on it. The event opens a session of its own under it, which counts in `broker.sessions`.
    ///
    /// # Errors
    /// Operations, memory or a deadline outside of their bounds; a deadline that has passed; a client of another registry, a
    /// plan of another broker, or one that does not bind the client's epoch; the dimension that has no room, by name
    /// and scope, also when somebody waits in front; admission is closed. Nothing is held afterwards. Allocates the
    /// request.
    pub fn ingress<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        plan: &Plan,
        terms: IngressTerms,
    ) -> Result<IngressRequest, Error> {
        let front = self.inbound(client, plan, terms, true)?;
        IngressRequest::start(IoReady::new(front), terms.operations)
    }

    /// The same for an event that waits for its turn among the requests of its tenant: it neither overtakes guests nor is
    /// overtaken by them. A request and a pending unit are charged now, running units when it is granted.
    ///
    /// # Errors
    /// As [`ingress`](Self::ingress); waiting makes no dimension that is charged now any larger. Allocates nothing.
    pub fn ingress_queued<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        plan: &Plan,
        terms: IngressTerms,
    ) -> Result<IngressAdmission, Error> {
        let front = self.inbound(client, plan, terms, false)?;
        Ok(IngressAdmission { front, operations: terms.operations })
    }

    fn inbound<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        plan: &Plan,
        terms: IngressTerms,
        now: bool,
    ) -> Result<Front, Error> {
        let IngressTerms { deadline, operations, memory } = terms;
        if operations == 0 || operations > INGRESS_OPERATIONS_MAX || memory < INGRESS_MEMORY_MIN {
            return Err(Error::invalid(Invalid::Bounds));
        }
        let registry = self.registry_arc();
        if memory > INGRESS_MEMORY_MAX {
            return Err(registry.ground().refuse(Error::too_large(Dimension::PoolsMetadataBytes)));
        }
        registry.bounded(deadline, INGRESS_TIME_MAX)?;
        if !Arc::ptr_eq(registry, client.core.registry()) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        registry.check_open()?;
        let ground = registry.ground();
        let broker = client.core.epoch.logical.broker();
        let activation = Activation::until(deadline).call_limit(1);
        let session = session::open_lease(&registry.anchor, broker, plan, activation)?;
        ground.pool_metadata.charge(memory).map_err(|full| ground.refuse(full.into()))?;
        // From here on the end of the session gives it back; `memory` is at most 1 MiB.
        session.pool_metadata.store(memory as u32, order::COUNT);
        let front = self.ask(client, &session, None, now)?;
        // Before the start, whose step shows it to whoever looks at the operation when the epoch ends.
        front.lease().ends_with_epoch.store(1, order::COUNT);
        Ok(front)
    }
}
