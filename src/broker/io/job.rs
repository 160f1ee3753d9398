//! Waiting for the answer of a job that owns its call.
use crate::broker::error::Error;
use crate::broker::ground::OperationLease;
use crate::broker::io::admission::check;
use crate::broker::io::call::poll_stop;
use crate::broker::io::stop::IoStopHandle;
use crate::queue::operation::Cause;
use crate::queue::wait::Watch;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The side of a job that waits for its answer, while the job itself owns the [`IoCall`](super::IoCall).
///
/// Dropped before the answer, it requests stop: nobody wants the answer any more. That is all it does. The job goes on
/// until it looks at its [`checkpoint`](super::IoCall::checkpoint) or returns, and keeps the running unit, the session and
/// all bytes until then: that nobody waits is no evidence that it has ended.
#[must_use = "dropping it requests the stop of its job"]
#[derive(Debug)]
pub struct IoJobWaiter {
    lease: OperationLease,
    answered: bool,
}

impl IoJobWaiter {
    pub(super) fn new(lease: &OperationLease) -> Self {
        IoJobWaiter { lease: lease.duplicate(), answered: false }
    }

    /// Waits for `job`, a handle to the job's answer, within the call's deadline and stop.
    ///
    /// The future is cancel safe in this sense: dropped early, it requests the stop of the job, whose owner stays the
    /// job. It allocates nothing.
    ///
    /// # Errors
    ///
    /// The call was stopped or its deadline passed, before the answer or together with it.
    pub fn wait<F: Future>(self, job: F) -> JobWait<F> {
        JobWait { watch: Watch::new(), job, waiter: self }
    }

    /// The answer came by another way: dropping the waiter requests nothing any more.
    pub fn answered(mut self) {
        self.answered = true;
    }

    /// A weak handle to stop and look at the call from elsewhere.
    pub fn stop_handle(&self) -> IoStopHandle {
        IoStopHandle::new(&self.lease)
    }
}

impl Drop for IoJobWaiter {
    fn drop(&mut self) {
        if !self.answered {
            self.lease.shared().floor.stop(&self.lease, Cause::Stopped);
        }
    }
}

pin_project! {
    /// Waits for the answer of a job. See [`IoJobWaiter::wait`].
    #[must_use = "a future does nothing unless polled; dropping it requests the stop of its job"]
    #[derive(Debug)]
    pub struct JobWait<F> {
        #[pin]
        watch: Watch,
        #[pin]
        job: F,
        waiter: IoJobWaiter,
    }

    impl<F> PinnedDrop for JobWait<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            this.watch.leave(&this.waiter.lease);
        }
    }
}

impl<F: Future> Future for JobWait<F> {
    type Output = Result<F::Output, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let lease = &this.waiter.lease;
        let ended = match check(lease) {
            Err(error) => Err(error),
            Ok(()) => match this.job.poll(cx) {
                Poll::Ready(answer) => check(lease).map(|()| answer),
                Poll::Pending => match poll_stop(lease, this.watch.as_mut(), cx) {
                    Poll::Ready(error) => Err(error),
                    Poll::Pending => return Poll::Pending,
                },
            },
        };
        this.watch.leave(lease);
        this.waiter.answered = ended.is_ok();
        Poll::Ready(ended.map_err(Error::after_start))
    }
}
