//! The second phase: no faults any more, nobody asks for anything new, and no time passes. Whatever waits must go on by
//! itself as the others end, and in the end nothing must be left.

use super::gates::End;
use super::jobs::Job;
use super::model::{Phase, nth, which};
use super::real::{About, Front, RealConn};
use super::sockets;
use super::world::{Law, World};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Work that still blocks a thread would keep the runtime from ending.
impl Drop for World {
    fn drop(&mut self) {
        for gate in self.gates.iter().flatten() {
            gate.end(End::Answer);
        }
        // After a law was broken, answers that panic may still be waited for.
        for task in self.tasks.drain(..) {
            let _ours = catch_unwind(AssertUnwindSafe(|| drop(task)));
        }
    }
}

impl World {
    /// Lets everything end, then retires the registry.
    pub(crate) async fn drain(mut self) -> Law {
        (self.m.limits.look_every, self.look_in) = (1, 1);
        loop {
            if self.drain_once()? {
                self.passed = 0;
                if self.told {
                    println!("drain  {}", self.tell());
                }
                self.check(false)?;
            } else if let Some(at) = nth(&self.m.jobs, 0, Job::has_place) {
                if self.m.jobs[at].as_ref().is_some_and(|job| job.end.is_none()) {
                    self.order(at, End::Answer).await?;
                }
                self.control().await;
                self.check(true)?;
            } else if !self.crowded.is_empty() && !self.tasks.is_empty() && self.passed == 0 {
                // Who found no cell looks for itself.
                self.pass(10).await;
                self.check(true)?;
            } else if self.m.forgotten > 0 && !self.tasks.is_empty() {
                // What was leaked holds what these wait for: their time has to end.
                self.pass(120_000).await;
                self.check(true)?;
            } else {
                break;
            }
        }
        if self.m.forgotten > 0 {
            return self.drain_leaked().await;
        }
        if !self.tasks.is_empty() || self.m.opers.iter().flatten().count() > 0 {
            let left: Vec<_> = self.m.opers.iter().flatten().collect();
            return Err(format!("liveness: nothing moves any more, and there is {left:?}"));
        }
        for at in which(&self.m.sessions, |session| session.open) {
            self.sessions[at] = None;
            self.m.sessions[at].as_mut().expect("found").open = false;
        }
        self.check(false)?;
        let (io, pools) = (self.io.snapshot(), self.pools.snapshot());
        if !io.is_zero() || !pools.is_idle() {
            return Err(format!("zero: the last owner is gone, and there is {io:?}, {pools:?}"));
        }
        let rests = self.m.conns.iter().flatten().count();
        if sockets::alive()? != rests {
            return Err(format!("exactly once: {} sockets live, {rests} rest", sockets::alive()?));
        }
        let soon = self.deadline(self.m.now + 60_000_000_000);
        self.clients.clear();
        let left = self.pools.shutdown(soon).await;
        if !self.was_broken() && !left.is_clean() {
            return Err(format!("shutdown: nothing is left, and it says {left:?}"));
        }
        if sockets::alive()? != 0 || self.broker.snapshot().sessions != 0 {
            return Err("zero: something outlived the shutdown".to_owned());
        }
        drop(self);
        // The control task is gone with the registry.
        tokio::time::sleep(Duration::ZERO).await;
        Ok(())
    }

    /// What was leaked is told of after the end too, and is never called clean.
    async fn drain_leaked(mut self) -> Law {
        for at in which(&self.m.sessions, |session| session.open) {
            self.sessions[at] = None;
            self.m.sessions[at].as_mut().expect("found").open = false;
        }
        self.check(false)?;
        let kept: Vec<_> = self.m.opers.iter().flatten().collect();
        let (buffers, pooled) = (self.m.forgotten, kept.iter().any(|oper| oper.target.is_some()));
        let soon = self.deadline(self.m.now + 1_000_000_000);
        self.clients.clear();
        let left = self.pools.shutdown(soon).await;
        let io = self.io.snapshot();
        if io.owners != kept.len() as u64 || io.buffers != buffers {
            return Err(format!("zero: {buffers} buffers were leaked, and there is {io:?}"));
        }
        let holds = left.pending_requests + left.running_requests > 0;
        if holds && left.is_clean() {
            return Err(format!(
                "shutdown: a buffer of a request was leaked ({pooled}), and it says {left:?}"
            ));
        }
        Ok(())
    }

    /// Ends one thing, or lets a woken future go on. `false`: there is nothing to end, or it waits for nobody.
    fn drain_once(&mut self) -> Result<bool, String> {
        if let Some(task) = self.tasks.iter().position(|task| task.is_woken()) {
            self.poll_task(task)?;
            return Ok(true);
        }
        let acts = self.dial_ok(0)? || self.park(0)?;
        if acts || self.wait(0)? {
            return Ok(true);
        }
        // Who holds anything lets it go. Who waits for a connection keeps the call that it is for.
        let waits = |world: &World, at: usize| world.task_of(About::Acquire(at)).is_some();
        for at in which(&self.opers, |real| !matches!(real.front, Front::Waiting | Front::Job | Front::Gone))
        {
            if !waits(self, at) {
                self.leave(at);
                return Ok(true);
            }
        }
        if self.end_maintenance(0, 0)? || self.end_maintenance(0, 1)? {
            return Ok(true);
        }
        if self.free_chunk(0)? || self.drop_transfer(0)? {
            return Ok(true);
        }
        if self.free(0)? {
            return Ok(true);
        }
        if let Some(at) = self.streams.iter().position(|stream| stream.writer.is_some()) {
            self.finish(at, None)?;
            return Ok(true);
        }
        self.shut_nth(0)
    }

    /// A line for people: what there is.
    pub(crate) fn describe(&self) -> String {
        let phases = |phase| self.m.opers.iter().flatten().filter(|oper| oper.phase == phase).count();
        let dials = self.conns.iter().flatten().filter(|conn| matches!(conn, RealConn::Dial(_))).count();
        format!(
            "{} sessions, {} queued, {} granted, {} started, {} buffers, {} streams, {dials} dials, {} futures",
            self.m.sessions.iter().flatten().count(),
            phases(Phase::Queued),
            phases(Phase::Granted),
            phases(Phase::Started),
            self.m.buffers.iter().flatten().count(),
            self.m.streams.iter().flatten().count(),
            self.tasks.len(),
        )
    }
    /// The same with every operation.
    pub(crate) fn tell(&self) -> String {
        let mut line = String::new();
        for (at, oper) in self.m.opers.iter().enumerate() {
            let Some(oper) = oper else { continue };
            let to = oper.target.map_or("-".to_owned(), |target| target.provider.to_string());
            line +=
                &format!("{at}:t{}/{to} {:?}{} ", oper.tenant, oper.phase, if oper.front { "" } else { "!" });
        }
        for (at, client) in self.m.clients.iter().enumerate().filter(|(_, client)| !client.line.is_empty()) {
            line += &format!("line of {at}: {:?} ", client.line);
        }
        for conn in self.m.conns.iter().flatten() {
            line += &format!("{}:{:?}{} ", conn.client, conn.link, if conn.dead { "!" } else { "" });
        }
        line + &self.describe()
    }
}
