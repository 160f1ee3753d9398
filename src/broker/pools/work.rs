//! Jobs on the supplied runtime: charged before anything is built, joined before their place is free.
//!
//! What a job is charged (a place, metadata, the hold on its call) goes back in this order, whichever way it ends:
//!
//! 1. its future or closure, and with it the call that was moved into it;
//! 2. its answer: to the waiter, or destroyed here if there is none;
//! 3. its own hold on the call;
//! 4. its task: when the runtime has really ended it, and the control task has joined it;
//! 5. its place, its metadata, its unit; then the waiter learns of it, and a shutdown that waits for it.
use super::admission::PoolCall;
use super::job::{NotSpawned, ProviderJob};
use super::pools::ProviderPools;
use super::registry::Registry;
use crate::account::jobs::Job;
use crate::account::scope::{Blocked, Scope};
use crate::broker::error::{Denied, Error, Kind, What, Which};
use crate::broker::ground::OperationLease;
use crate::broker::io::check_operation;
use crate::broker::limits::{Dimension, fixed_cost};
use crate::foreign::{Panics, foreign};
use crate::queue::inventory::{Posted, place_bytes};
use crate::time::Deadline;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What the inventory holds for a job that was submitted.
#[derive(Debug)]
pub(super) struct Held {
    kind: Job,
    /// Metadata beyond the prepaid cost of the place.
    bytes: u64,
    /// None: the runtime took the job and could not say so.
    handle: Option<JoinHandle<()>>,
    /// Dropped when everything was given back: that is what tells the waiter.
    _joined: oneshot::Sender<()>,
}

const _: () = assert!(place_bytes::<Held>() <= fixed_cost(Dimension::PoolsWorkers));
const _: () = assert!(place_bytes::<Held>() <= fixed_cost(Dimension::PoolsCleanupJobs));

impl Registry {
    /// Charges a job: its unit and its metadata, or nothing; then takes its place.
    fn reserve_job(self: &Arc<Self>, kind: Job, bytes: usize) -> Result<Reserved, Error> {
        if crate::broken::is_broken() {
            return Err(Error::retired(What::Broker));
        }
        let (ground, bytes) = (self.ground(), bytes as u64);
        ground.jobs.reserve(kind).map_err(|blocked| match blocked {
            Blocked::Full(dimension) | Blocked::Promised(dimension) => {
                ground.refuse(Error::full(dimension, Scope::Node))
            }
            Blocked::Closed | Blocked::Stale => Error::retired(What::Pools),
        })?;
        if let Err(full) = ground.pool_metadata.charge(bytes) {
            ground.jobs.give(kind);
            // A shutdown may have seen the unit.
            self.ended();
            return Err(ground.refuse(full.into()));
        }
        Ok(Reserved { registry: self.clone(), kind, bytes, place: self.jobs.take() })
    }

    /// Joins what has ended. For the control task.
    pub(super) async fn join_ended(self: &Arc<Self>) {
        self.jobs.look();
        while let Some((place, held)) = self.jobs.next() {
            Joining { registry: self, place, held: Some(held) }.join().await;
        }
    }

    /// The control task is gone: whatever ends from now on is given back by its own end.
    pub(super) fn forsake_jobs(&self) {
        self.jobs.forsake();
        while let Some((place, held)) = self.jobs.next() {
            self.settle(place, held);
        }
    }

    fn settle(&self, place: usize, held: Held) {
        self.jobs.free(place);
        self.ground().pool_metadata.give(held.bytes);
        self.ground().jobs.give(held.kind);
        // The waiter's waker is foreign.
        let mut panics = Panics::none();
        panics.run(|| drop(held));
        self.contain(panics);
        self.ended();
    }

    fn posted(&self, place: usize, posted: Posted<Held>) {
        match posted {
            Posted::NotYet => {}
            Posted::ForTheOwner => self.events.job_ended(self),
            Posted::ForTheCaller(held) => self.settle(place, held),
        }
    }
}

/// A job whose task has all but ended. Given back when it was joined, or when the control task is cut off here.
struct Joining<'a> {
    registry: &'a Registry,
    place: usize,
    held: Option<Held>,
}

impl Joining<'_> {
    async fn join(mut self) {
        let handle = self.held.as_mut().and_then(|held| held.handle.take());
        if let Some(handle) = handle
            && let Err(error) = handle.await
            && error.is_panic()
        {
            // Ours: foreign panics do not come this far.
            self.registry.events.contained(1);
        }
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.registry.settle(self.place, held);
        }
    }
}

/// A charged place, before anything is built.
struct Reserved {
    registry: Arc<Registry>,
    kind: Job,
    bytes: u64,
    place: usize,
}

impl Reserved {
    /// Builds the job and submits it.
    fn submit<T>(
        self,
        rules: Rules,
        until: Option<Deadline>,
        submit: impl FnOnce(&tokio::runtime::Handle, Ending<T>) -> JoinHandle<()>,
    ) -> ProviderJob<T> {
        let Reserved { registry, kind, bytes, place } = self;
        let (answer, answered) = oneshot::channel();
        let (told, joined) = oneshot::channel();
        let end = End { registry: registry.clone(), place };
        let ending = Ending { rules, answer: Some(answer), end };
        // A runtime that finds no thread for blocking work panics, and keeps the job.
        let handle = match foreign(|| submit(&registry.handle, ending)) {
            Ok(handle) => Some(handle),
            Err(panic) => {
                registry.contain_one(panic);
                None
            }
        };
        let held = Held { kind, bytes, handle, _joined: told };
        registry.posted(place, registry.jobs.submitted(place, held));
        ProviderJob::new(answered, joined, until)
    }
}

/// When a job may begin, and what it holds until it has ended.
#[derive(Debug)]
pub(super) enum Rules {
    /// While its call may go on.
    Call(OperationLease),
    /// Until the registry is retired or the time is over.
    Control(Option<Deadline>),
    /// Whatever happens.
    Cleanup,
}

/// The last part of a job: its answer, its hold, its end.
#[derive(Debug)]
struct Ending<T> {
    rules: Rules,
    answer: Option<oneshot::Sender<Result<T, Error>>>,
    end: End,
}

impl<T> Ending<T> {
    fn may_begin(&self) -> Result<(), Error> {
        match &self.rules {
            Rules::Call(lease) => check_operation(lease),
            Rules::Control(_) if self.end.registry.is_retired() => Err(Error::retired(What::Pools)),
            Rules::Control(Some(until)) if self.end.registry.has_passed(*until) => {
                Err(Error::deadline(Which::Operation))
            }
            Rules::Control(_) | Rules::Cleanup => Ok(()),
        }
    }
    /// Runs foreign code of the job. `None`: it panicked, which is counted.
    fn guard<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        foreign(f).map_err(|panic| self.end.registry.contain_one(panic)).ok()
    }
    /// Answers, or destroys the answer that nobody wants, here and before the hold goes.
    fn answer(&mut self, answer: Result<T, Error>) {
        if let Some(waiter) = self.answer.take() {
            self.guard(|| drop(waiter.send(answer)));
        }
    }
}

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        // Not answered: the runtime was shut down under the job. The waiter is told once everything went back.
        let answer = self.answer.take();
        self.guard(|| drop(answer));
        let hold = std::mem::replace(&mut self.rules, Rules::Cleanup);
        self.guard(|| drop(hold));
        // The end posts the place after this.
    }
}

/// The end of a job: dropped last, it posts the place.
#[derive(Debug)]
struct End {
    registry: Arc<Registry>,
    place: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        self.registry.posted(self.place, self.registry.jobs.ended(self.place));
    }
}

pin_project! {
    /// An asynchronous job.
    struct Task<O, F, Fut, T> {
        start: Option<(F, O)>,
        #[pin]
        running: Option<Fut>,
        ending: Ending<T>,
    }

    impl<O, F, Fut, T> PinnedDrop for Task<O, F, Fut, T> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let start = this.start.take();
            this.ending.guard(|| drop(start));
            this.ending.guard(|| this.running.as_mut().set(None));
        }
    }
}

impl<O, F, Fut, T> Task<O, F, Fut, T>
where
    F: FnOnce(O) -> Fut,
    Fut: Future<Output = T>,
{
    /// The answer, when there is one.
    fn advance(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let mut this = self.project();
        let failed = Err(Kind::JobFailed.into());
        if let Some((work, owner)) = this.start.take() {
            if let Err(error) = this.ending.may_begin() {
                this.ending.guard(|| drop((work, owner)));
                return Poll::Ready(Err(error));
            }
            match this.ending.guard(|| work(owner)) {
                Some(future) => this.running.set(Some(future)),
                None => return Poll::Ready(failed),
            }
        }
        let Some(future) = this.running.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = this.ending.guard(|| future.poll(cx));
        if matches!(polled, Some(Poll::Pending)) {
            return Poll::Pending;
        }
        let destroyed = this.ending.guard(|| this.running.set(None)).is_some();
        Poll::Ready(match polled {
            Some(Poll::Ready(answer)) if destroyed => Ok(answer),
            spoiled => {
                // An answer whose job panicked in its last step is none.
                this.ending.guard(|| drop(spoiled));
                failed
            }
        })
    }
}

impl<O, F, Fut, T> Future for Task<O, F, Fut, T>
where
    F: FnOnce(O) -> Fut,
    Fut: Future<Output = T>,
{
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.as_mut().advance(cx).map(|answer| self.project().ending.answer(answer))
    }
}

/// A blocking job.
struct Blocking<O, F, T> {
    start: Option<(F, O)>,
    ending: Ending<T>,
}

impl<O, F: FnOnce(O) -> T, T> Blocking<O, F, T> {
    fn run(mut self) {
        let Some((work, owner)) = self.start.take() else { return };
        let answer = match self.ending.may_begin() {
            Ok(()) => self.ending.guard(|| work(owner)).ok_or(Kind::JobFailed.into()),
            Err(error) => {
                self.ending.guard(|| drop((work, owner)));
                Err(error)
            }
        };
        self.ending.answer(answer);
    }
}

impl<O, F, T> Drop for Blocking<O, F, T> {
    fn drop(&mut self) {
        let start = self.start.take();
        self.ending.guard(|| drop(start));
    }
}

/// What a job is charged beyond its place: its closure and what it owns, its future, its result.
const fn job_bytes<O, F, Fut, T>() -> usize {
    size_of::<F>() + size_of::<O>() + size_of::<Fut>() + size_of::<T>()
}

impl Registry {
    /// Submits an asynchronous job that owns `owner`.
    pub(super) fn start<O, F, Fut, T>(
        self: &Arc<Self>,
        kind: Job,
        rules: Rules,
        owner: O,
        work: F,
    ) -> Result<ProviderJob<T>, NotSpawned<O>>
    where
        O: Send + 'static,
        F: FnOnce(O) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let reserved = match self.reserve_job(kind, job_bytes::<O, F, Fut, T>()) {
            Ok(reserved) => reserved,
            Err(error) => return Err(NotSpawned::new(error, owner)),
        };
        Ok(reserved.submit(rules, None, |handle, ending| {
            handle.spawn(Task { start: Some((work, owner)), running: None, ending })
        }))
    }

    /// Submits a blocking job that owns `owner`.
    fn start_blocking<O, F, T>(
        self: &Arc<Self>,
        rules: Rules,
        until: Option<Deadline>,
        owner: O,
        work: F,
    ) -> Result<ProviderJob<T>, NotSpawned<O>>
    where
        O: Send + 'static,
        F: FnOnce(O) -> T + Send + 'static,
        T: Send + 'static,
    {
        let reserved = match self.reserve_job(Job::Worker, job_bytes::<O, F, (), T>()) {
            Ok(reserved) => reserved,
            Err(error) => return Err(NotSpawned::new(error, owner)),
        };
        Ok(reserved.submit(rules, until, |handle, ending| {
            let job = Blocking { start: Some((work, owner)), ending };
            handle.spawn_blocking(move || job.run())
        }))
    }

    /// Whether a job of this call may be submitted.
    fn check_call(&self, call: &PoolCall) -> Result<(), Error> {
        if !std::ptr::eq(call.lease().shared(), self.ground()) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        if self.is_retired() {
            return Err(Error::retired(What::Pools));
        }
        check_operation(call.lease())
    }
}

impl ProviderPools {
    /// Runs `work` as a job on the supplied runtime. The job owns the call.
    ///
    /// A worker's place and the metadata (sizes of closure, call, future and answer; 4,096 bytes of each place are prepaid)
    /// are charged before anything is built. `work` is called on the runtime, unless its call has been stopped by then.
    /// The call stays charged, with its tenant and its provider, until the job has ended, whoever waits; the place until
    /// the job was joined.
    ///
    /// Control path: it allocates.
    ///
    /// # Errors
    /// The call comes back with the reason: no place (`pools.workers`), no room for metadata, a call of another registry, a
    /// call that was stopped or is late, a retired registry. Nothing was built or submitted. The future ends in
    /// [`Kind::JobFailed`] if the job panicked, which is counted in the snapshot's `contained_panics`, or if the runtime was
    /// shut down under it; and with the reason if the call was stopped before the job began.
    pub fn spawn<F, Fut, T>(&self, call: PoolCall, work: F) -> Result<ProviderJob<T>, NotSpawned<PoolCall>>
    where
        F: FnOnce(PoolCall) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let registry = self.registry_arc();
        if let Err(error) = registry.check_call(&call) {
            return Err(NotSpawned::new(error, call));
        }
        let rules = Rules::Call(call.lease().duplicate());
        registry.start(Job::Worker, rules, call, work)
    }

    /// The same for work that blocks its thread, among the runtime's threads for that. Nothing aborts it: a shutdown that
    /// does not outwait it reports it.
    ///
    /// # Errors
    /// As [`Self::spawn`].
    pub fn spawn_blocking<F, T>(
        &self,
        call: PoolCall,
        work: F,
    ) -> Result<ProviderJob<T>, NotSpawned<PoolCall>>
    where
        F: FnOnce(PoolCall) -> T + Send + 'static,
        T: Send + 'static,
    {
        let registry = self.registry_arc();
        if let Err(error) = registry.check_call(&call) {
            return Err(NotSpawned::new(error, call));
        }
        let rules = Rules::Call(call.lease().duplicate());
        registry.start_blocking(rules, None, call, work)
    }

    /// Runs blocking work of the operator, such as reading secrets anew, in a worker's place. It has no call, hence no
    /// authority of any guest. It goes on while admission is closed, until the registry is retired; work that has not
    /// begun by then is not begun.
    ///
    /// # Errors
    /// No place (`pools.workers`), no room for metadata, a retired registry. The future fails as that of [`Self::spawn`].
    pub fn control_blocking<F, T>(&self, work: F) -> Result<ProviderJob<T>, Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let start = |work: F| work();
        let rules = Rules::Control(None);
        Ok(self.registry_arc().start_blocking(rules, None, work, start)?)
    }

    /// The same with a deadline: work that has not begun by then is not begun, and the wait for the answer ends then. Work
    /// that has begun is not aborted: it keeps its place until it ends.
    ///
    /// # Errors
    /// As [`Self::control_blocking`]; the deadline has passed.
    pub fn control_blocking_before<F, T>(&self, deadline: Deadline, work: F) -> Result<ProviderJob<T>, Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if self.registry_arc().has_passed(deadline) {
            return Err(Error::deadline(Which::Operation));
        }
        let start = |work: F| work();
        let rules = Rules::Control(Some(deadline));
        Ok(self.registry_arc().start_blocking(rules, Some(deadline), work, start)?)
    }
}
