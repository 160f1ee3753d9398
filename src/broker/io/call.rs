//! A running call.
use crate::broker::bytes;
use crate::broker::error::Error;
use crate::broker::ground::{OperationLease, SessionLease};
use crate::broker::io::admission::{check, check_by_clock};
use crate::broker::io::buffer::{self, IoBuffer};
use crate::broker::io::job::IoJobWaiter;
use crate::broker::io::memory::{self, IoMemory};
use crate::broker::io::stop::{IoStopHandle, Phase};
use crate::broker::io::stream::{self, IoStreamReader, IoStreamWriter};
use crate::broker::io::transfer::{self, IoTransfer, TransferOptions};
use crate::mem::arena::{End, Owner};
use crate::queue::operation::{Cause, Operation, State};
use crate::queue::wait::{Seen, Watch};
use crate::sync::order;
use crate::time::Deadline;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A started call: it holds a running unit, and everything that is made from it goes on holding the unit after it.
///
/// Move it into the future or the job that really does the work. Dropping it stops nothing: buffers, streams and chunks
/// that came from it keep working and keep the unit until they are gone.
#[must_use = "dropping a call gives its running unit back once nothing else holds it"]
#[derive(Debug)]
pub struct IoCall {
    lease: Owner<Operation<SessionLease>, Running>,
}

/// The front owner of an operation that has started.
#[derive(Debug)]
enum Running {}

impl End<Operation<SessionLease>> for Running {
    #[inline(always)]
    fn end(lease: OperationLease) {
        // The front's bit and the lease go in one step.
        bytes::end_keeping(lease).release_with(State::FRONT_UNIT);
    }
}

impl IoCall {
    #[inline(always)]
    pub(crate) fn new(lease: OperationLease) -> Self {
        IoCall { lease: Owner::new(lease) }
    }
    #[inline(always)]
    pub(crate) fn lease(&self) -> &OperationLease {
        &self.lease
    }
    /// Refuses to go on after a stop or the deadline. Reads the coarse clock: at most one tick late, never early.
    ///
    /// # Errors
    /// The first cause that stopped the operation; its effect is uncertain, as whoever asks has been at work.
    pub fn checkpoint(&self) -> Result<(), Error> {
        check_by_clock(self.lease())
    }
    /// The instant at which everything of this call ends: the tightest of session, operation and policy.
    pub fn deadline(&self) -> Deadline {
        let lease = self.lease();
        lease.shared().floor.deadline(lease.deadline.load(order::COUNT))
    }
    /// A weak handle to stop and look at this call from elsewhere.
    pub fn stop_handle(&self) -> IoStopHandle {
        IoStopHandle::new(self.lease())
    }
    /// Where the operation stands.
    pub fn phase(&self) -> Phase {
        Phase::of(State(self.lease().word().load()))
    }
    /// Waits for `future`, which waits for a provider; ends at the call's deadline and with its stop.
    ///
    /// The state is looked at before the wait and before a result is handed out: a result that came too late is
    /// dropped, and its effect outside is not undone. Cancel safe if `future` is. Allocates nothing.
    pub fn wait_for<F: Future>(&self, future: F) -> WaitFor<'_, F> {
        WaitFor { call: self, watch: Watch::new(), waiting: false, future }
    }
    /// The same for code that polls by hand: registers the task and resolves only when the call is to end.
    ///
    /// Tell the watch to [`StopWatch::leave`] before it is dropped.
    pub fn poll_stop(&self, watch: Pin<&mut StopWatch>, cx: &mut Context<'_>) -> Poll<Error> {
        poll_stop(self.lease(), watch.project().watch, cx)
    }
    /// A buffer of `capacity` bytes, plus `framing` bytes of declared protocol metadata. See [`IoBuffer`].
    ///
    /// # Errors
    /// The dimension that has no room; too large for a chunk; stopped; deadline.
    #[inline]
    pub fn buffer(&self, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
        buffer::checked(self.lease(), capacity, framing)
    }
    /// Charges `bytes` staged bytes and `framing` metadata for storage that is not ours, until the guard is dropped.
    ///
    /// # Errors
    /// As [`Self::buffer`].
    pub fn reserve_scratch(&self, bytes: usize, framing: u32) -> Result<IoMemory, Error> {
        check(self.lease())?;
        memory::reserve(self.lease(), bytes, framing)
    }
    /// A stream of at most `depth` chunks in flight.
    ///
    /// # Errors
    /// A depth of zero or above the limit; no stream slot; stopped; deadline.
    pub fn stream(&self, depth: usize) -> Result<(IoStreamWriter, IoStreamReader), Error> {
        check(self.lease())?;
        stream::open(self.lease(), depth)
    }
    /// The one transfer of this call, from its approved stream budget, with its window paid for now.
    ///
    /// # Errors
    /// A second one, ever; no stream budget; bad options; no room for the window.
    pub fn transfer(&self, options: TransferOptions) -> Result<IoTransfer, Error> {
        check(self.lease())?;
        transfer::open(self.lease(), options)
    }
    /// What waits for the result of a job that this call is moved into. Dropped before the result, it requests stop.
    pub fn job_waiter(&self) -> IoJobWaiter {
        IoJobWaiter::new(self.lease())
    }
    /// A counted hold without any rights, for an owner that must end after everything else.
    pub fn hold(&self) -> IoLease {
        IoLease { _lease: self.lease().duplicate() }
    }
}

/// A counted hold on a call: as long as it lives, the running unit and the session stay held.
#[derive(Debug)]
pub struct IoLease {
    _lease: OperationLease,
}

/// Resolves only with the reason why an operation has to end.
pub(crate) fn poll_stop(
    lease: &OperationLease,
    mut watch: Pin<&mut Watch>,
    cx: &mut Context<'_>,
) -> Poll<Error> {
    loop {
        let until = lease.deadline.load(order::COUNT);
        let seen = watch.as_mut().poll(lease, cx, until, |state| state.cause() == Cause::None);
        match seen {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Seen::Changed) if State(lease.word().load()).cause() == Cause::None => {}
            Poll::Ready(seen) => return Poll::Ready(stop_seen(lease, seen)),
        }
    }
}

/// Ends an operation for what its watch saw, and says why it ended: the first cause stands.
pub(crate) fn stop_seen(lease: &OperationLease, seen: Seen) -> Error {
    let cause = match seen {
        Seen::Changed => State(lease.word().load()).cause(),
        Seen::Due => Cause::Deadline,
        Seen::Stopped(cause) => cause,
    };
    lease.shared().floor.stop(lease, cause);
    Error::from_cause(State(lease.word().load()).cause())
}

pin_project! {
    /// A registration for [`IoCall::poll_stop`].
    #[derive(Debug)]
    pub struct StopWatch {
        #[pin]
        watch: Watch,
    }
}

impl StopWatch {
    /// Not registered anywhere.
    pub const fn new() -> Self {
        StopWatch { watch: Watch::new() }
    }
    /// Takes the registration back. To be called before the watch is dropped while the call lives on.
    pub fn leave(self: Pin<&mut Self>, call: &IoCall) {
        self.project().watch.leave(call.lease());
    }
}

impl Default for StopWatch {
    fn default() -> Self {
        Self::new()
    }
}

pin_project! {
    /// Waits for a provider within the call's deadline and stop. See [`IoCall::wait_for`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct WaitFor<'a, F> {
        call: &'a IoCall,
        #[pin]
        watch: Watch,
        waiting: bool,
        #[pin]
        future: F,
    }

    impl<'a, F> PinnedDrop for WaitFor<'a, F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            leave(this.call.lease(), this.watch, this.waiting);
        }
    }
}

fn leave(lease: &OperationLease, watch: Pin<&mut Watch>, waiting: &mut bool) {
    watch.leave(lease);
    if std::mem::take(waiting) {
        lease.word().sub(State::ONE_WAIT);
    }
}

impl<F: Future> Future for WaitFor<'_, F> {
    type Output = Result<F::Output, Error>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let lease = this.call.lease();
        if let Err(error) = check(lease) {
            leave(lease, this.watch, this.waiting);
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(result) = this.future.poll(cx) {
            leave(lease, this.watch, this.waiting);
            return Poll::Ready(check(lease).map(|()| result));
        }
        // Only who really waits is counted as waiting. More than the word can count wait uncounted.
        if !*this.waiting {
            *this.waiting = lease.word().update(|bits| State(bits).one_wait_more()).is_ok();
        }
        match poll_stop(lease, this.watch.as_mut(), cx) {
            Poll::Ready(error) => {
                leave(lease, this.watch, this.waiting);
                Poll::Ready(Err(error.after_start()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
