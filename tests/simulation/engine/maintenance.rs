//! Steps of maintenance: permits of the operator, their requests, and connections that nobody else gets.

use super::model::{self, Conn, Expect, Link, MS, Model, Whose, nth, why};
use super::real::RealConn;
use super::world::{Outcome, World};
use latent_capabilities::broker::Dimension;
use latent_capabilities::broker::pools::{MaintenanceRequest, ProviderMaintenance};

/// Holders of connections from this number on are permits, those below are operations.
const PERMITS: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Permit {
    client: usize,
    deadline: u64,
    uses: u32,
    /// Whether the script has the permit, and its request.
    held: bool,
    asked: bool,
}

#[derive(Default)]
pub(crate) struct RealPermit {
    permit: Option<ProviderMaintenance>,
    request: Option<MaintenanceRequest>,
}

impl RealPermit {
    pub(crate) fn asks(&self) -> bool {
        self.request.is_some()
    }
}

impl Model {
    fn permit(&self, at: usize) -> &Permit {
        self.permits[at].as_ref().expect("a script's permit exists")
    }
    /// What stands against anything of a permit.
    fn permit_stops(&self, at: usize) -> Expect {
        let permit = self.permit(at);
        let mut expect = Expect::default();
        expect.when(self.retired, why::RETIRED);
        expect.when(!self.is_current(permit.client), why::EPOCH);
        expect.when(self.now >= permit.deadline, why::DEADLINE);
        expect
    }
    fn has_request(&self, at: usize) -> bool {
        let of_it = |conn: &Conn| match conn.link {
            Link::Dialing(holder) | Link::Active(holder) => holder == PERMITS + at,
            Link::Idle(_) => false,
        };
        self.permit(at).asked || self.conns.iter().flatten().any(of_it)
    }
    /// Forgets permits that nothing of is left.
    pub(crate) fn reap_permits(&mut self) {
        for at in 0..self.permits.len() {
            if self.permits[at].as_ref().is_some_and(|permit| !permit.held) && !self.has_request(at) {
                self.permits[at] = None;
            }
        }
    }
    /// What stands against whoever has a connection: an operation, or a permit.
    pub(crate) fn holder_stops(&self, holder: usize) -> Expect {
        match holder.checked_sub(PERMITS) {
            Some(permit) => self.permit_stops(permit),
            None => self.stops(holder),
        }
    }
    pub(crate) fn is_permit(holder: usize) -> bool {
        holder >= PERMITS
    }
}

impl World {
    /// A permit at the client of provider `a`.
    pub(crate) fn maintain(&mut self, a: u16, b: u16) -> Outcome {
        let client = self.client_of[usize::from(a) % self.m.limits.providers as usize];
        let uses = 1 + u32::from(b % 3);
        let deadline = self.m.now + (1 + u64::from(b / 3) % 2000) * MS;
        let mut expect = Expect::default();
        expect.when(self.m.closed, why::RETIRED);
        expect.when(!self.m.is_current(client), why::EPOCH);
        let (used, limit) = (self.m.used().cleaners, self.m.limits.cleanup_jobs);
        expect.room(Dimension::PoolsCleanupJobs, Whose::Node, used, 1, limit);
        let permit = self.pools.maintenance(&self.clients[client], self.deadline(deadline), uses);
        self.judge("maintenance", &expect, &permit)?;
        if let Ok(permit) = permit {
            let record = Permit { client, deadline, uses, held: true, asked: false };
            let at = model::put(&mut self.m.permits, record);
            while self.permits.len() <= at {
                self.permits.push(RealPermit::default());
            }
            self.permits[at] = RealPermit { permit: Some(permit), request: None };
        }
        Ok(true)
    }
    /// Permit `a` begins its next request.
    pub(crate) fn begin_request(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.m.permits, a, |permit| permit.held) else { return Ok(false) };
        let mut expect = self.m.permit_stops(at);
        expect.when(self.m.has_request(at), why::BUSY);
        expect.when(self.m.permit(at).uses == 0, why::EXHAUSTED);
        let real = self.permits[at].permit.as_ref().expect("the script has it");
        let begun = real.begin_request();
        let left = real.remaining();
        self.judge("request", &expect, &begun)?;
        let permit = self.m.permits[at].as_mut().expect("found");
        if let Ok(request) = begun {
            permit.uses -= 1;
            permit.asked = true;
            self.permits[at].request = Some(request);
        }
        match left == permit.uses {
            true => Ok(true),
            false => Err(format!("ledger: {left} requests are left of {permit:?}")),
        }
    }
    /// The request of permit `a` asks for the right to dial.
    pub(crate) fn maintenance_dial(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.m.permits, a, |permit| permit.asked) else { return Ok(false) };
        let client = self.m.permit(at).client;
        let expect = self.m.expect_dial_of(client, self.m.permit_stops(at), true);
        self.m.evicting = true;
        let request = self.permits[at].request.as_ref().expect("the script has it");
        let reserved = self.clients[client].reserve_maintenance_connection(request);
        self.judge("maintenance dial", &expect, &reserved)?;
        if let Ok(reservation) = reserved {
            let link = Link::Dialing(PERMITS + at);
            let conn = Conn { client, link, dead: false, born: 0, failed: false, socket: None };
            self.put_conn(conn, RealConn::Dial(reservation));
        }
        Ok(true)
    }
    /// The request of permit `a` ends, or by `b` the permit.
    pub(crate) fn end_maintenance(&mut self, a: u16, b: u16) -> Outcome {
        let request = b.is_multiple_of(2);
        let there = |permit: &Permit| if request { permit.asked } else { permit.held };
        let Some(at) = nth(&self.m.permits, a, there) else { return Ok(false) };
        let permit = self.m.permits[at].as_mut().expect("found");
        if request {
            permit.asked = false;
            self.permits[at].request = None;
        } else {
            permit.held = false;
            self.permits[at].permit = None;
        }
        Ok(true)
    }
}
