//! Faults that are no ordinary step: foreign code that panics, clocks, installations that do not fit.

use super::gates::OURS;
use super::model::{Link, MS, nth};
use super::real::{Front, RealConn};
use super::sockets;
use super::world::{NAMES, Outcome, World, pool_limits};
use latent_capabilities::broker::pools::{Epoch, ProviderPools, ProviderSetup};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Does what may panic in foreign code; any other panic goes on. Whether it did.
fn heard(act: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(()) => false,
        Err(panic) if panic.downcast_ref::<&str>() == Some(&OURS) => true,
        Err(panic) => resume_unwind(panic),
    }
}

impl World {
    /// What is leaked stays held, and is told of for ever.
    pub(crate) fn forget(&mut self, a: u16) -> Outcome {
        if self.m.limits.leaks == 0 {
            return Ok(false);
        }
        let Some(at) = nth(&self.m.buffers, a, |buffer| !buffer.away) else { return Ok(false) };
        std::mem::forget(self.buffers[at].take());
        self.m.buffers[at].as_mut().expect("found").away = true;
        self.m.forgotten += 1;
        Ok(true)
    }

    pub(crate) fn swap_waker(&mut self, a: u16) -> Outcome {
        let Some(at) = usize::from(a).checked_rem(self.tasks.len()) else { return Ok(false) };
        self.tasks[at].swap();
        self.poll_task(at).map(|()| true)
    }

    /// Milliseconds until the next instant at which something of an operation ends.
    pub(crate) fn next_instant(&self) -> Option<u64> {
        let instants = self.m.opers.iter().flatten().flat_map(|oper| [oper.deadline, oper.queue_until]);
        instants.filter(|at| *at > self.m.now).min().map(|at| (at - self.m.now) / MS)
    }

    /// Whoever leaves wakes others, whose wakers panic: the rest must be as if they had not.
    pub(crate) fn loud_wake(&mut self, a: u16) -> Outcome {
        let there = |front: &Front| !matches!(front, Front::Waiting | Front::Job | Front::Gone);
        let Some(at) = self.oper_with(a, there) else { return Ok(false) };
        for task in &self.tasks {
            task.be_loud(true);
        }
        let front = self.take_front(at, Front::Gone);
        // A future that waits for a connection keeps the call; dropping this front does nothing then.
        heard(|| drop(front));
        for task in &self.tasks {
            task.be_loud(false);
        }
        self.leave(at);
        Ok(true)
    }

    pub(crate) fn loud_destroy(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.conns, a, |conn| matches!(conn, RealConn::Active(_))) else {
            return Ok(false);
        };
        let socket = self.m.conn(at).socket.expect("it is made");
        sockets::be_loud(socket, true);
        let conn = self.conns[at].take();
        if !heard(|| drop(conn)) {
            return Err("panics: the destructor's panic was swallowed".to_owned());
        }
        self.m.conns[at] = None;
        Ok(true)
    }

    pub(crate) async fn loud_expiry(&mut self) -> Outcome {
        let rests: Vec<usize> = (0..self.m.conns.len())
            .filter(|at| self.m.conns[*at].as_ref().is_some_and(|conn| matches!(conn.link, Link::Idle(_))))
            .filter_map(|at| self.m.conn(at).socket)
            .collect();
        if rests.is_empty() || self.m.clients.iter().any(|client| !client.line.is_empty()) {
            return Ok(false);
        }
        for socket in &rests {
            sockets::be_loud(*socket, true);
        }
        self.pass(self.m.limits.idle_age * 10).await;
        self.m.contained += sockets::destroyed(&rests);
        for socket in &rests {
            sockets::be_loud(*socket, false);
        }
        Ok(true)
    }

    /// An installation that expects another epoch than the one in force changes nothing.
    pub(crate) fn stale_install(&mut self, a: u16, b: u16) -> Outcome {
        let provider = usize::from(a) % self.m.limits.providers as usize;
        let expected = Epoch(self.m.installed[provider].unwrap_or(Epoch::NONE.0) + 1 + u64::from(b % 7));
        let setup = ProviderSetup::new(NAMES[provider], "authority").epoch(1_000_000).credentials(b"secret");
        match self.pools.install(setup, expected) {
            Ok(_) => {
                Err(format!("finality: an epoch was installed after {expected:?}, which is not in force"))
            }
            Err(_) => Ok(true),
        }
    }
    pub(crate) fn second_registry(&mut self) -> Outcome {
        let handle = tokio::runtime::Handle::current();
        match ProviderPools::new(&self.broker, &self.io, handle, pool_limits(&self.m.limits)) {
            Ok(_) => Err("finality: a broker has two registries".to_owned()),
            Err(_) => Ok(true),
        }
    }
}
