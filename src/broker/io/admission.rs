//! Before the start: admitted, waiting, ready.
//!
//! Each step consumes the last one. Dropping any of them gives back what its phase holds; staged input that is still
//! held elsewhere goes on holding the rest.
use crate::account::charge::{Marks, Request};
use crate::broker::call::ProviderCall;
use crate::broker::capability::Operation;
use crate::broker::dispatch::{Accepted, Start, authorize, valid};
use crate::broker::error::{Denied, Error, Kind, Refusal, What};
use crate::broker::ground::{Ground, OperationLease, SessionLease};
use crate::broker::io::buffer::{self, IoBuffer};
use crate::broker::io::call::IoCall;
use crate::broker::io::memory::{self, IoMemory};
use crate::broker::io::stop::IoStopHandle;
use crate::broker::ledger::Cost;
use crate::broker::session_core::{SessionBits, SessionSlot};
use crate::mem::arena::{End, Owner};
use crate::queue::keeper::Keeper;
use crate::queue::operation::{self as queue, Cause, Numbers, State, Step, leave_front};
use crate::queue::wait::{Watch, go_straight, poll_grant};
use crate::sync::order;
use crate::time::Deadline;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The front owner of an operation that has not started: its drop leaves the line or gives the running unit back.
#[derive(Debug)]
pub(crate) struct Front {
    lease: Owner<queue::Operation<SessionLease>, NotStarted>,
}

#[derive(Debug)]
enum NotStarted {}

impl End<queue::Operation<SessionLease>> for NotStarted {
    #[inline(never)]
    fn end(lease: OperationLease) {
        let done = leave_front(&lease);
        lease.shared().floor.settle(&lease, done);
    }
}

impl Front {
    #[inline(always)]
    pub(crate) fn new(lease: OperationLease) -> Self {
        Front { lease: Owner::new(lease) }
    }
    #[inline(always)]
    pub(crate) fn lease(&self) -> &OperationLease {
        &self.lease
    }
    /// Passes the front on, without leaving.
    #[inline(always)]
    pub(crate) fn into_lease(self) -> OperationLease {
        self.lease.into_lease()
    }
    pub(crate) fn ground(&self) -> &Ground {
        self.lease().shared()
    }
    /// The instant that everything of this operation ends at.
    pub(crate) fn deadline(&self) -> Deadline {
        let floor = &self.ground().floor;
        floor.deadline(self.lease().deadline.load(order::COUNT))
    }
    /// Refuses what comes after a stop or the deadline.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check(self.lease())
    }
}

/// Whether an operation may go on: not stopped, its session neither, the deadline not passed. What a started call is
/// refused for that is uncertain: a stop undoes nothing that was sent before.
///
/// A stop is seen at once. The deadline is seen once the keeper has told of it, and by the coarse clock, which is at most one
/// tick late and never early: by every look where the keeper does not watch, by every sixteenth where it does. Allocates
/// nothing.
#[inline(always)]
pub(crate) fn check(lease: &OperationLease) -> Result<(), Error> {
    if goes_on(lease) || goes_on_by_clock(lease) { Ok(()) } else { check_by_clock(lease) }
}

/// The same, by the clock in any case.
#[inline(always)]
pub(crate) fn check_by_clock(lease: &OperationLease) -> Result<(), Error> {
    check_at(lease).map(drop).map_err(|error| if has_started(lease) { error.after_start() } else { error })
}

/// Whether nothing is known against an operation that is granted or started, and whatever will be is told to its word and its
/// session's, and this once the clock need not be read. Loads only; `false` says nothing.
#[inline(always)]
pub(crate) fn goes_on(lease: &OperationLease) -> bool {
    State(lease.word().load()).goes_on()
        && SessionSlot::is_undisturbed(lease.pin())
        && Keeper::spares_the_clock(lease)
}

/// [`check_by_clock`] for the doors to connections and jobs. Nothing leaves without one of them, so of the exchange for which
/// one is refused nothing was sent, whatever the call did before.
#[inline(always)]
pub(crate) fn check_unsent(lease: &OperationLease) -> Result<(), Error> {
    check_at(lease).map(drop)
}

/// As [`check_unsent`], and gives the time that it looked at, in nanoseconds of the node's clock: whoever needs it afterwards
/// reads the clock once for both.
#[inline(always)]
pub(crate) fn check_at(lease: &OperationLease) -> Result<u64, Error> {
    match glance(lease) {
        Some(now) => Ok(now),
        None => look(lease),
    }
}

/// What most looks come to: nothing stands against it, and there is no probe to ask. Gives the time, in a register, where a
/// result that can be an error goes through memory.
#[inline(never)]
pub(crate) fn glance(lease: &OperationLease) -> Option<u64> {
    if State(lease.word().load()).has_cause() || !SessionSlot::is_undisturbed(lease.pin()) {
        return None;
    }
    let now = lease.shared().floor.clock.coarse_nanos();
    (now < lease.deadline.load(order::COUNT)).then_some(now)
}

/// The same for who asks again and again: what [`goes_on`] falls back to, and begins anew after.
#[cold]
#[inline(never)]
pub(crate) fn goes_on_by_clock(lease: &OperationLease) -> bool {
    let Some(now) = glance(lease) else { return false };
    if State(lease.word().load()).goes_on() {
        lease.shared().floor.keeper.clock_was_read(lease, lease.deadline.load(order::COUNT), now);
    }
    true
}

/// What stands against it, if anything does.
#[cold]
#[inline(never)]
fn look(lease: &OperationLease) -> Result<u64, Error> {
    let cause = State(lease.word().load()).cause();
    if cause != Cause::None {
        return Err(Error::from_cause(cause));
    }
    let now = lease.shared().floor.clock.coarse_nanos();
    let cause = if let Some(cause) = crate::queue::floor::Tenure::stopped(lease.pin()) {
        cause
    } else if crate::queue::floor::Tenure::probe(lease.pin()) == Some(true) {
        Cause::Probe
    } else if now >= lease.deadline.load(order::COUNT) {
        Cause::Deadline
    } else {
        return Ok(now);
    };
    Err(stop(lease, cause))
}

#[cold]
fn stop(lease: &OperationLease, cause: Cause) -> Error {
    lease.shared().floor.stop(lease, cause);
    Error::from_cause(cause)
}

/// How long a request may wait for its turn, in nanoseconds from its admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueAge(pub(crate) u64);

/// Charges an operation to its session and its words. Everything is given back on refusal. No lock, no allocation.
///
/// Inlined with its arguments apart: a struct of them would be written in parts and read as a whole, which costs more than
/// ten steps of arithmetic.
#[inline(always)]
pub(crate) fn admit(
    session: &SessionLease,
    request: Option<Request>,
    until: Option<Deadline>,
    wait: Option<QueueAge>,
) -> Result<Front, Error> {
    if crate::broken::is_broken() {
        return Err(Error::retired(What::Broker));
    }
    let floor = &session.shared().floor;
    let own = session.deadline.load(order::COUNT);
    if own == u64::MAX {
        return Err(Error::denied(Denied::UnboundedDeadline));
    }
    let deadline = match until {
        Some(until) => {
            let until = floor.nanos(until);
            if until > own {
                return Err(Error::denied(Denied::WidenedDeadline));
            }
            // Given by the caller, who read the clock to make it: an exact look is worth it.
            if floor.clock.nanos_since_base(floor.clock.now()) >= until {
                return Err(Error::from_cause(Cause::Deadline));
            }
            until
        }
        None => own,
    };
    let queue_until = match wait {
        Some(QueueAge(age)) => {
            let now = floor.clock.coarse_nanos();
            if now >= deadline {
                return Err(Error::from_cause(Cause::Deadline));
            }
            now.checked_add(age).map_or(deadline, |until| until.min(deadline))
        }
        // Straight to a running unit: the start that follows looks, at the clock or at what the keeper told (D7).
        None => deadline,
    };
    refusable!(crate::account::dimension::Dimension::BrokerCallsPerSession, Error::no_call(false));
    let limit = u64::from(session.call_limit.load(order::COUNT));
    let pin = session
        .duplicate_if(|bits| SessionBits(bits).with_call(limit))
        .map_err(|bits| Error::no_call(SessionBits(bits).is_stopped()))?;
    let numbers = Numbers { request, deadline, queue_until };
    match floor.admit(pin, &numbers, wait.is_none()) {
        Ok(lease) => Ok(Front::new(lease)),
        Err(refused) => Err(Error::from_refused(refused)),
    }
}

/// After a refusal. A word that is marked for others may be so only because the line was not looked at since the last of
/// them left: then it is looked at now, before anybody is refused for it.
///
/// # Errors
/// The refusal, counted.
#[cold]
#[inline(never)]
pub(crate) fn admit_again(
    session: &SessionLease,
    request: Option<Request>,
    until: Option<Deadline>,
    wait: Option<QueueAge>,
    error: Error,
) -> Result<Front, Error> {
    let ground = session.shared();
    if !matches!(error.kind(), Kind::Full(Refusal { promised: true, .. })) {
        return Err(ground.refuse(error));
    }
    let pooled = request.is_some();
    let all = Marks { tenant: pooled, provider: pooled, io: true, pool: true };
    ground.floor.line.released(&ground.floor, all, request);
    admit(session, request, until, wait).map_err(|error| ground.refuse(error))
}

/// An admitted operation that has not asked for its turn yet. Pending is charged; no running unit is.
///
/// Staging input here is free of any hurry but the deadline's: it stands in nobody's way.
#[must_use = "dropping an admission gives it back"]
#[derive(Debug)]
pub struct IoAdmission {
    front: Front,
}

impl IoAdmission {
    pub(crate) fn new(front: Front) -> Self {
        IoAdmission { front }
    }
    /// A staged buffer of `capacity` bytes (charged by the block's size, at least 512), plus `framing` bytes of declared
    /// protocol metadata.
    ///
    /// # Errors
    /// The dimension that has no room; too large for a chunk; stopped; deadline. Nothing is held afterwards.
    pub fn input(&self, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
        buffer::from_node(self.front.lease(), capacity, framing)
    }
    /// Charges `bytes` staged bytes and `framing` metadata without storage of ours.
    ///
    /// # Errors
    /// As [`Self::input`].
    pub fn reserve_input(&self, bytes: usize, framing: u32) -> Result<IoMemory, Error> {
        self.front.check()?;
        memory::reserve(self.front.lease(), bytes, framing)
    }
    /// A weak handle to stop and look at this operation from elsewhere.
    pub fn stop_handle(&self) -> IoStopHandle {
        IoStopHandle::new(self.front.lease())
    }
    /// The instant at which the operation ends, whatever it is doing.
    pub fn deadline(&self) -> Deadline {
        self.front.deadline()
    }
    /// Waits for a running unit: straight through if nobody waits in front and there is room, else in line. The place in
    /// line is taken by the first poll. Cancel safe: dropping the future leaves the line. Allocates nothing.
    pub fn wait(self) -> Wait {
        Wait::new(self.front)
    }
}

pin_project! {
    /// Waits for a running unit. See [`IoAdmission::wait`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct Wait {
        front: Option<Front>,
        #[pin]
        watch: Watch,
    }

    impl PinnedDrop for Wait {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(front) = this.front.take() {
                // The park cell first, so that nothing is woken on behalf of who is gone.
                this.watch.leave(front.lease());
            }
        }
    }
}

impl Wait {
    pub(crate) fn new(front: Front) -> Self {
        Wait { front: Some(front), watch: Watch::new() }
    }
    /// Looks through the waiting at the admission's operation.
    pub fn stop_handle(&self) -> Option<IoStopHandle> {
        self.front.as_ref().map(|front| IoStopHandle::new(front.lease()))
    }
    /// The first poll goes straight through if it can: nothing was registered then that would have to be taken back.
    #[inline]
    pub(crate) fn poll_front(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Front, Error>> {
        let front = self.as_mut().project().front;
        if let Some(goes) = front.take_if(|front| go_straight(front.lease())) {
            return Poll::Ready(Ok(goes));
        }
        self.poll_queued(cx)
    }
    #[inline(never)]
    fn poll_queued(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Front, Error>> {
        let this = self.project();
        let Some(front) = this.front.as_ref() else {
            // Polled after it was ready: it is inert.
            return Poll::Pending;
        };
        let granted = ready!(poll_grant(front.lease(), this.watch, cx));
        let Some(front) = this.front.take() else { return Poll::Pending };
        Poll::Ready(match granted {
            Ok(()) => Ok(front),
            Err(cause) => Err(Error::from_cause(cause)),
        })
    }
}

impl Future for Wait {
    type Output = Result<IoReady, Error>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        self.poll_front(cx).map(|front| {
            coop.made_progress();
            front.map(IoReady::new)
        })
    }
}

/// Holds a running unit: capacity, not permission.
#[must_use = "dropping a ready operation gives its running unit back"]
#[derive(Debug)]
pub struct IoReady {
    front: Front,
}

impl IoReady {
    pub(crate) fn new(front: Front) -> Self {
        IoReady { front }
    }
    /// Starts with an accepted call. Whatever was staged stays; what the call allows is what the operation may do now.
    ///
    /// # Errors
    /// A call of another session (equal names do not help) or of another provider; stopped; deadline; revoked or retired
    /// meanwhile. Both the ready operation and the call are given back.
    pub fn start(self, call: ProviderCall) -> Result<IoCall, Error> {
        if !call.session().is_same(self.front.lease().pin()) {
            return Err(Error::denied(Denied::ForeignSession));
        }
        self.front.check()?;
        let lease = self.front.lease();
        begin(lease, call.accepted())?;
        // The start counts from this look on: revoked or retired before it, and it did not happen.
        call.accepted().still_valid(lease.pin())?;
        check_open(lease)?;
        // The operation's own lease of the session goes on; the call's is given back after the start.
        Ok(IoCall::new(self.front.into_lease()))
    }
    /// Asks for the operation's own session, and starts what was accepted: one look at the clock for both, or none.
    #[inline(always)]
    pub(crate) fn dispatch(self, operation: Operation, cost: &Cost) -> Result<IoCall, Error> {
        let lease = self.front.lease();
        let session = lease.pin();
        let start = if goes_on(lease) { Start::AtOnceUnclocked } else { Start::AtOnce };
        let (accepted, binding) = match authorize(session, operation, cost, start) {
            Ok(accepted) => accepted,
            Err(error) => return Err(session.shared().refuse(error)),
        };
        if start == Start::AtOnce {
            let deadline = lease.deadline.load(order::COUNT);
            if accepted.now() >= deadline {
                self.front.check()?;
                return Err(Error::from_cause(Cause::Deadline));
            }
            session.shared().floor.keeper.clock_was_read(lease, deadline, accepted.now());
        }
        begin(lease, &accepted)?;
        // As above.
        valid(session, binding, operation.index())?;
        check_open(lease)?;
        Ok(IoCall::new(self.front.into_lease()))
    }
    /// Starts without an accepted call: no cost, no output, no streams. The caller asks the plan after it.
    pub(crate) fn start_inbound(self) -> Result<IoCall, Error> {
        self.front.check()?;
        if let Err(bits) = self.front.lease().word().update(|bits| State(bits).started()) {
            return Err(Error::from_cause(State(bits).cause()));
        }
        let call = IoCall::new(self.front.into_lease());
        if call.lease().shared().floor.node.is_closed() {
            return Err(Error::from_cause(Cause::Retired));
        }
        Ok(call)
    }
    /// A weak handle to stop and look at this operation from elsewhere.
    pub fn stop_handle(&self) -> IoStopHandle {
        IoStopHandle::new(self.front.lease())
    }
    /// The instant at which the operation ends, whatever it is doing.
    pub fn deadline(&self) -> Deadline {
        self.front.deadline()
    }
    /// As [`IoAdmission::input`].
    ///
    /// # Errors
    /// As [`IoAdmission::input`].
    pub fn input(&self, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
        buffer::from_node(self.front.lease(), capacity, framing)
    }
}

/// The step to STARTED, with the numbers of what was accepted. If what follows refuses, dropping the front owner ends it.
#[inline(always)]
fn begin(lease: &OperationLease, accepted: &Accepted) -> Result<(), Error> {
    if !accepted.is_for(lease.request()) {
        return Err(Error::denied(Denied::ForeignProvider));
    }
    lease.permit(&accepted.permission());
    lease.shared().floor.narrow(lease, accepted.deadline());
    match lease.word().update(|bits| State(bits).started()) {
        Ok(_) => Ok(()),
        Err(bits) => Err(Error::from_cause(State(bits).cause())),
    }
}

/// Refuses once the runtime is retired: asked after the step to STARTED.
#[inline(always)]
fn check_open(lease: &OperationLease) -> Result<(), Error> {
    if lease.shared().floor.node.is_closed() { Err(Error::from_cause(Cause::Retired)) } else { Ok(()) }
}

/// Whether the operation has started: before that, nothing of it may become output.
pub(crate) fn has_started(lease: &OperationLease) -> bool {
    State(lease.word().load()).step() == Step::Started
}
