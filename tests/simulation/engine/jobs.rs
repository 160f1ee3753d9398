//! Steps of jobs: work of providers, of the operator, and polite closes, on the runtime of this world.

use super::gates::{Answer, Closing, End, Gate, Work};
use super::model::{self, Expect, Whose, nth, why};
use super::real::{About, Call, Done, Front, RealConn, Task};
use super::sockets::Socket;
use super::world::{Law, Outcome, World};
use latent_capabilities::broker::pools::{CleanupResult, PoolCall, ProviderJob};
use latent_capabilities::broker::{Dimension, Error};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Of a call, which it owns.
    Work {
        oper: usize,
    },
    Control,
    /// Of a connection, which it owns.
    Close {
        conn: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Submitted,
    Running,
    /// Ended and joined; `0`: with an answer, else the reasons for which there is none.
    Joined(u32),
}

/// A job, as long as it has a place or somebody waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) what: What,
    pub(crate) blocking: bool,
    pub(crate) stage: Stage,
    pub(crate) end: Option<End>,
    pub(crate) waited: bool,
}

impl Job {
    pub(crate) fn has_place(&self) -> bool {
        !matches!(self.stage, Stage::Joined(_))
    }
}

impl World {
    fn put_job(&mut self, job: Job, gate: Arc<Gate>) -> usize {
        let place = model::put(&mut self.m.jobs, job);
        while self.gates.len() <= place {
            self.gates.push(None);
        }
        self.gates[place] = Some(gate);
        place
    }
    fn expect_worker(&self) -> Expect {
        let mut expect = Expect::default();
        expect.when(self.m.retired, why::RETIRED);
        let (used, limit) = (self.m.used().workers, self.m.limits.workers);
        expect.room(Dimension::PoolsWorkers, Whose::Node, used, 1, limit);
        expect
    }

    /// Moves pooled call `a` into a job; blocking, or not.
    pub(crate) fn spawn(&mut self, a: u16, blocking: bool) -> Outcome {
        let calls = self.own_calls();
        let Some(wanted) = usize::from(a).checked_rem(calls.len()) else { return Ok(false) };
        let at = calls[wanted];
        let Front::Call(call) = self.take_front(at, Front::Gone) else { unreachable!("it is a call") };
        let Ok(Call::Pool(call)) = Rc::try_unwrap(call) else { unreachable!("nobody else has it") };
        let mut expect = self.m.stops(at);
        let place = self.expect_worker();
        expect.must |= place.must;
        expect.full.extend(place.full);
        let gate = Arc::new(Gate::default());
        let (inner, thread) = (gate.clone(), gate.clone());
        let spawned = if blocking {
            self.pools.spawn_blocking(call, move |call: PoolCall| {
                let end = thread.block();
                end.may_panic();
                Answer::of(end, Some(call))
            })
        } else {
            self.pools.spawn(call, move |call| Work::new(inner, call))
        };
        match spawned {
            Ok(job) => {
                self.judge("spawn", &expect, &Ok::<(), Error>(()))?;
                let stage = if blocking { Stage::Running } else { Stage::Submitted };
                if blocking {
                    gate.await_begin();
                }
                let job_at = self.put_job(
                    Job { what: What::Work { oper: at }, blocking, stage, end: None, waited: true },
                    gate,
                );
                self.take_front(at, Front::Job);
                self.wait_for_job(job_at, job, Done::Job);
            }
            Err(refused) => {
                self.judge("spawn", &expect, &Err::<(), Error>(refused.error()))?;
                self.take_front(at, Front::Call(Rc::new(Call::Pool(refused.into_owner()))));
            }
        }
        Ok(true)
    }
    fn wait_for_job<T: 'static>(
        &mut self,
        at: usize,
        job: ProviderJob<T>,
        done: fn(Result<T, Error>) -> Done,
    ) {
        self.tasks.push(Task::new(About::Job(at), async move { done(job.await) }));
    }
    /// Pooled calls that nothing else of the script refers to.
    pub(crate) fn own_calls(&self) -> Vec<usize> {
        let own = |at: &usize| match &self.opers[*at].as_ref().expect("it exists").front {
            Front::Call(call) => Rc::strong_count(call) == 1 && matches!(**call, Call::Pool(_)),
            _ => false,
        };
        self.calls(true).into_iter().filter(own).collect()
    }

    /// Work of the operator, which blocks its thread.
    pub(crate) fn control_work(&mut self) -> Outcome {
        let expect = self.expect_worker();
        let gate = Arc::new(Gate::default());
        let thread = gate.clone();
        let started = self.pools.control_blocking(move || {
            let end = thread.block();
            end.may_panic();
            Answer::of(end, None)
        });
        self.judge("control", &expect, &started)?;
        if let Ok(job) = started {
            gate.await_begin();
            let stage = Stage::Running;
            let at = self
                .put_job(Job { what: What::Control, blocking: true, stage, end: None, waited: true }, gate);
            self.wait_for_job(at, job, Done::Job);
        }
        Ok(true)
    }

    /// Closes connection `a` politely.
    pub(crate) fn clean_up(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.conns, a, |conn| matches!(conn, RealConn::Active(_))) else {
            return Ok(false);
        };
        let Some(RealConn::Active(connection)) = self.conns[at].take() else { unreachable!("it is in use") };
        let mut expect = Expect::default();
        let (used, limit) = (self.m.used().cleaners, self.m.limits.cleanup_jobs);
        expect.room(Dimension::PoolsCleanupJobs, Whose::Node, used, 1, limit);
        let gate = Arc::new(Gate::default());
        let inner = gate.clone();
        match self.pools.cleanup(connection, move |_: &mut Socket| Closing(inner)) {
            Ok(job) => {
                self.judge("cleanup", &expect, &Ok::<(), Error>(()))?;
                self.conns[at] = Some(RealConn::Cleaning);
                let what = What::Close { conn: at };
                let stage = Stage::Submitted;
                let job_at =
                    self.put_job(Job { what, blocking: false, stage, end: None, waited: true }, gate);
                self.wait_for_job(job_at, job, Done::Close);
            }
            Err(refused) => {
                self.judge("cleanup", &expect, &Err::<(), Error>(refused.error()))?;
                self.conns[at] = Some(RealConn::Active(refused.into_owner()));
            }
        }
        Ok(true)
    }

    /// Job `a` ends as `b` says. What blocks a thread is waited for.
    pub(crate) async fn end_job(&mut self, a: u16, b: u16) -> Result<(bool, bool), String> {
        let Some(at) = nth(&self.m.jobs, a, |job| job.has_place() && job.end.is_none()) else {
            return Ok((false, false));
        };
        let ends = [
            End::Answer,
            End::Answer,
            End::KeepCall,
            End::LoudAnswer,
            End::Fail,
            End::Fail,
            End::Panic,
            End::PanicInDrop,
        ];
        let end = ends[usize::from(b) % ends.len()];
        self.order(at, end).await
    }
    pub(crate) async fn order(&mut self, at: usize, end: End) -> Result<(bool, bool), String> {
        let job = self.m.jobs[at].as_mut().expect("found");
        job.end = Some(end);
        let blocking = job.blocking;
        self.gates[at].as_ref().expect("found").end(end);
        if blocking {
            let left = self.m.jobs.iter().flatten().filter(|job| self.goes_on(job)).count() as u64;
            for _ in 0..100_000 {
                self.control().await;
                if self.pools.snapshot().workers == left {
                    return Ok((true, true));
                }
                std::thread::sleep(Duration::from_micros(10));
            }
            return Err("jobs: a blocking job has ended, and is not joined".to_owned());
        }
        Ok((true, false))
    }
    /// Whether it keeps its worker's place when the runtime has run.
    fn goes_on(&self, job: &Job) -> bool {
        let stopped = match job.what {
            What::Close { .. } => return false,
            What::Work { oper } => job.stage == Stage::Submitted && self.m.stops(oper).must != 0,
            What::Control => false,
        };
        job.has_place() && job.end.is_none() && !stopped
    }
    pub(crate) fn wake_job(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.gates, a, |_| true) else { return Ok(false) };
        self.gates[at].as_ref().expect("found").wake();
        Ok(true)
    }

    /// The runtime has run everything that could run: jobs that were submitted have begun, those that end are joined.
    pub(crate) fn settle_jobs(&mut self) -> Law {
        for at in 0..self.m.jobs.len() {
            let Some(job) = self.m.jobs[at].clone() else { continue };
            let begun = self.gates[at].as_ref().is_some_and(|gate| gate.has_begun());
            let mut stage = job.stage;
            if stage == Stage::Submitted {
                let stops = match job.what {
                    What::Work { oper } => self.m.stops(oper).must,
                    What::Control | What::Close { .. } => 0,
                };
                if begun != (stops == 0) {
                    return Err(format!("jobs: {job:?} has begun: {begun}, and is stopped by {stops:x}"));
                }
                stage = if stops == 0 { Stage::Running } else { Stage::Joined(stops) };
                if stops != 0
                    && let What::Work { oper } = job.what
                {
                    self.lost_call(oper);
                }
            }
            if stage == Stage::Running
                && let Some(end) = job.end
            {
                stage = Stage::Joined(self.job_ended(&job, end));
            }
            let job = self.m.jobs[at].as_mut().expect("looked at");
            job.stage = stage;
            if !job.has_place() && !job.waited {
                self.m.jobs[at] = None;
                self.gates[at] = None;
            }
        }
        Ok(())
    }
    /// The call of a job was dropped.
    fn lost_call(&mut self, oper: usize) {
        self.take_front(oper, Front::Gone);
        self.front_gone(oper);
    }
    /// What the end of a job does; the reason for which it has no answer, if it has none.
    fn job_ended(&mut self, job: &Job, end: End) -> u32 {
        let panics = match end {
            // A blocking job has no future whose destructor could panic: it panics before it answers.
            End::Panic | End::PanicInDrop => true,
            End::LoudAnswer => !job.waited && !matches!(job.what, What::Close { .. }),
            End::Answer | End::KeepCall | End::Fail => false,
        };
        self.m.contained += u64::from(panics);
        let failed = panics && end != End::LoudAnswer;
        match job.what {
            What::Work { oper } if failed || end != End::KeepCall || !job.waited => self.lost_call(oper),
            What::Close { conn } if end == End::Fail && job.waited => {
                self.m.conns[conn].as_mut().expect("it is being closed").failed = true;
            }
            What::Close { conn } => {
                self.m.conns[conn] = None;
                self.conns[conn] = None;
            }
            What::Work { .. } | What::Control => {}
        }
        if failed { why::FAILED } else { 0 }
    }

    fn job(&self, at: usize) -> &Job {
        self.m.jobs[at].as_ref().expect("somebody waits for it")
    }
    pub(crate) fn job_pending(&self, at: usize) -> Law {
        match self.job(at).stage {
            Stage::Joined(_) => {
                Err(format!("jobs: {:?} is joined, and its answer is waited for", self.job(at)))
            }
            Stage::Submitted | Stage::Running => Ok(()),
        }
    }
    fn answered<T>(&mut self, at: usize, result: &Result<T, Error>) -> Law {
        let job = self.job(at).clone();
        let Stage::Joined(reasons) = job.stage else {
            return Err(format!("jobs: {job:?} has an answer before it was joined"));
        };
        let expect = Expect { must: reasons, ..Expect::default() };
        self.judge("job", &expect, result)?;
        self.m.jobs[at] = None;
        self.gates[at] = None;
        Ok(())
    }
    pub(crate) fn job_done(&mut self, at: usize, result: Result<Answer, Error>) -> Law {
        let job = self.job(at).clone();
        // What is dropped here is the script's to drop.
        let result = result.map(|mut answer| {
            answer.loud = false;
            answer
        });
        self.answered(at, &result)?;
        if let (Ok(mut answer), What::Work { oper }) = (result, job.what)
            && let Some(call) = answer.call.take()
        {
            self.take_front(oper, Front::Call(Rc::new(Call::Pool(call))));
        }
        Ok(())
    }
    pub(crate) fn close_done(&mut self, at: usize, result: Result<CleanupResult<Socket>, Error>) -> Law {
        let job = self.job(at).clone();
        self.answered(at, &result)?;
        let What::Close { conn } = job.what else { unreachable!("it closes a connection") };
        match (result, job.end) {
            (Ok(CleanupResult::Retained(connection)), Some(End::Fail)) => {
                self.conns[conn] = Some(RealConn::Active(connection));
                Ok(())
            }
            (Ok(CleanupResult::Closed), end) if end != Some(End::Fail) => Ok(()),
            (Err(_), _) => Ok(()),
            (result, _) => Err(format!("connections: {job:?} has ended with {result:?}")),
        }
    }
    /// Nobody waits for the answer any more: it is destroyed.
    pub(crate) fn job_unwaited(&mut self, at: usize) {
        let job = self.m.jobs[at].as_mut().expect("somebody waited for it");
        job.waited = false;
        let job = job.clone();
        if job.has_place() {
            return;
        }
        match (job.what, job.stage) {
            (What::Work { oper }, Stage::Joined(0)) if job.end == Some(End::KeepCall) => self.lost_call(oper),
            (What::Close { conn }, Stage::Joined(0)) if job.end == Some(End::Fail) => {
                self.m.conns[conn] = None;
                self.conns[conn] = None;
            }
            _ => {}
        }
        self.m.jobs[at] = None;
        self.gates[at] = None;
    }
}
