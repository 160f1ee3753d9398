//! What a job gives: the future of its answer, and the refusal that gives back what it was to own.
use crate::broker::error::{Error, Kind, Which};
use crate::time::Deadline;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// The answer of a job, to be awaited.
///
/// It comes when the job has really ended and was joined: by then its place, its metadata and, unless the answer itself
/// holds some of it, its call are given back.
///
/// Dropping it aborts nothing and refunds nothing. The job goes on, holds what it is charged for until it ends, and
/// destroys an answer that nobody waits for before it gives its charges back.
///
/// Cancel safe. Polling it allocates nothing, except for a timer when
/// [`control_blocking_before`](super::ProviderPools::control_blocking_before) really has to wait. To wait within the
/// deadline and the stop of a call, take its [`job_waiter`](crate::IoCall::job_waiter) before the call is moved into the
/// job.
#[must_use = "the answer of a job says whether it failed"]
pub struct ProviderJob<T> {
    answer: oneshot::Receiver<Result<T, Error>>,
    /// Ends when the job was joined. Nothing is ever sent.
    joined: oneshot::Receiver<()>,
    until: Option<Deadline>,
    timer: Option<Pin<Box<Sleep>>>,
    finished: bool,
}

impl<T> ProviderJob<T> {
    pub(super) fn new(
        answer: oneshot::Receiver<Result<T, Error>>,
        joined: oneshot::Receiver<()>,
        until: Option<Deadline>,
    ) -> Self {
        ProviderJob { answer, joined, until, timer: None, finished: false }
    }
}

impl<T> Future for ProviderJob<T> {
    type Output = Result<T, Error>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.finished {
            // Polled after it was ready: it is inert.
            return Poll::Pending;
        }
        let answer = if Pin::new(&mut this.joined).poll(cx).is_ready() {
            // A job that was lost, with a runtime that was shut down under it, says nothing.
            this.answer.try_recv().unwrap_or(Err(Kind::JobFailed.into()))
        } else {
            let Some(until) = this.until else { return Poll::Pending };
            let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until.tokio())));
            ready!(timer.as_mut().poll(cx));
            Err(Error::deadline(Which::Operation).after_start())
        };
        this.finished = true;
        this.timer = None;
        Poll::Ready(answer)
    }
}

impl<T> fmt::Debug for ProviderJob<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderJob").field("finished", &self.finished).finish_non_exhaustive()
    }
}

/// A job that was refused, with what it was to own: nothing was built or submitted, and nothing is charged for it.
#[must_use = "dropping it drops what the job was to own"]
pub struct NotSpawned<O> {
    error: Error,
    owner: O,
}

impl<O> NotSpawned<O> {
    pub(super) fn new(error: Error, owner: O) -> Self {
        NotSpawned { error, owner }
    }
    /// Why it was refused.
    pub fn error(&self) -> Error {
        self.error
    }
    /// The call, or the connection, as it was.
    pub fn into_owner(self) -> O {
        self.owner
    }
}

impl<O> From<NotSpawned<O>> for Error {
    /// Drops what the job was to own.
    fn from(refused: NotSpawned<O>) -> Error {
        refused.error
    }
}

impl<O> fmt::Debug for NotSpawned<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotSpawned").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<O> fmt::Display for NotSpawned<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<O> std::error::Error for NotSpawned<O> {}
