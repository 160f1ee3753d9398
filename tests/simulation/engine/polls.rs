//! Polls of futures, what they give, and futures that are dropped.

use super::model::{Expect, Phase, why};
use super::real::{About, Done, Front};
use super::world::{Law, Outcome, World};
use latent_capabilities::broker::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

impl World {
    pub(crate) fn poll(&mut self, a: u16, woken: bool) -> Outcome {
        let count = self.tasks.iter().filter(|task| !woken || task.is_woken()).count();
        let Some(wanted) = usize::from(a).checked_rem(count) else { return Ok(false) };
        let mut fit = self.tasks.iter().enumerate().filter(|(_, task)| !woken || task.is_woken());
        let (at, _) = fit.nth(wanted).expect("counted");
        self.poll_task(at)?;
        Ok(true)
    }

    /// Polls a future and judges what it gives.
    pub(crate) fn poll_task(&mut self, at: usize) -> Law {
        match self.tasks[at].about {
            About::Wait(oper) if self.m.oper(oper).phase == Phase::Staged => {
                let arrived = self.m.arrivals;
                self.m.arrivals += 1;
                let oper = self.m.oper_mut(oper);
                (oper.phase, oper.arrived) = (Phase::Queued, arrived);
            }
            About::Acquire(_) => self.m.evicting = true,
            _ => {}
        }
        let polled = self.tasks[at].poll();
        let about = self.tasks[at].about;
        match polled {
            Poll::Pending => match about {
                About::Wait(_) => Ok(()),
                About::Write { stream, buffer } => self.write_pending(stream, buffer),
                About::Read(stream) => self.read_pending(stream),
                About::Acquire(oper) => self.acquire_pending(oper),
                About::Place { transfer, way } => self.place_pending(transfer, way),
                About::Job(job) => self.job_pending(job),
            },
            Poll::Ready(done) => {
                self.tasks.swap_remove(at);
                match (about, done) {
                    (About::Wait(oper), Done::Wait(result)) => {
                        let front = result.map(Front::Ready);
                        self.waited(oper, front)
                    }
                    (About::Wait(oper), Done::Inbound(Ok(request))) => {
                        self.inbound_started(oper, request);
                        Ok(())
                    }
                    (About::Wait(oper), Done::Inbound(Err(error))) => {
                        // Perhaps it had its turn, and was refused by the start that follows at once.
                        self.turns.note_left(self.m.oper(oper));
                        self.waited(oper, Err(error))
                    }
                    (About::Write { stream, buffer }, Done::Write(writer, result)) => {
                        self.streams[stream].writer = Some(writer);
                        self.written(stream, buffer, result)
                    }
                    (About::Read(stream), Done::Read(reader, result)) => {
                        self.streams[stream].reader = Some(reader);
                        self.was_read(stream, result)
                    }
                    (About::Acquire(oper), Done::Acquire(result)) => self.acquired(oper, result),
                    (About::Place { transfer, way }, Done::Place(result)) => {
                        self.placed(transfer, way, result)
                    }
                    (About::Job(job), Done::Job(result)) => self.job_done(job, result),
                    (About::Job(job), Done::Close(result)) => self.close_done(job, result),
                    _ => unreachable!("a future gives what it is about"),
                }
            }
        }
    }

    fn waited(&mut self, at: usize, result: Result<Front, Error>) -> Law {
        match result {
            // Whether it was its turn is judged with all others that were granted in this step.
            Ok(front) => {
                self.take_front(at, front);
                Ok(())
            }
            Err(error) => {
                let expect = self.m.stops(at);
                let mut expect = Expect { must: expect.must | expect.may, ..Expect::default() };
                expect.when(self.m.now >= self.m.oper(at).queue_until, why::QUEUE);
                if self.m.is_inbound(at)
                    && let Some(target) = self.m.oper(at).target
                {
                    // It is started by the same step, and the plan is asked once more.
                    let plan = &self.m.plans[self.m.session(self.m.oper(at).session).plan];
                    expect.when(plan.withdrawn, why::WITHDRAWN);
                    expect.when(plan.revoked[target.provider], why::REVOKED);
                }
                self.judge("wait", &expect, &Err::<(), Error>(error))?;
                self.take_front(at, Front::Gone);
                self.front_gone(at);
                Ok(())
            }
        }
    }

    /// The front owner went.
    pub(crate) fn front_gone(&mut self, at: usize) {
        let oper = self.m.oper_mut(at);
        oper.front = false;
        if oper.phase != Phase::Started {
            oper.cause |= why::CALLER;
        }
        oper.phase = match oper.phase {
            Phase::Staged | Phase::Queued | Phase::Left => Phase::Left,
            Phase::Granted | Phase::Returned => Phase::Returned,
            Phase::Started => Phase::Started,
        };
    }

    pub(crate) fn cancel_nth(&mut self, a: u16) -> Outcome {
        let Some(at) = usize::from(a).checked_rem(self.tasks.len()) else { return Ok(false) };
        self.cancel(at);
        Ok(true)
    }
    /// Drops a future, and with it what it has.
    pub(crate) fn cancel(&mut self, at: usize) {
        let task = self.tasks.swap_remove(at);
        let about = task.about;
        let polled = task.polled;
        // An answer whose destructor panics does so here, in the hands of whoever waited for it.
        let _ours = catch_unwind(AssertUnwindSafe(|| drop(task)));
        match about {
            About::Wait(oper) => {
                self.take_front(oper, Front::Gone);
                self.front_gone(oper);
            }
            About::Write { stream, buffer } => {
                self.m.buffers[buffer] = None;
                self.m.writer_gone(stream, None, polled);
            }
            About::Read(stream) => self.m.reader_gone(stream),
            About::Acquire(oper) => {
                self.called.remove(&oper);
                self.m.out_of_line(oper);
            }
            About::Place { .. } => {}
            About::Job(job) => self.job_unwaited(job),
        }
    }
}
