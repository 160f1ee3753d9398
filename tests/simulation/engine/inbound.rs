//! Steps of what comes in from outside of any session, and of what follows a call: ingress, follow-ups, and the metadata
//! of protocols.

use super::model::{self, Expect, MS, Model, Oper, Phase, Session, Target, Whose, nth, why};
use super::real::{About, Call, Front, RealOper};
use super::world::{Law, Outcome, World};
use latent_capabilities::broker::Dimension;
use latent_capabilities::broker::pools::{IngressRequest, IngressTerms};
use std::rc::Rc;

impl Model {
    /// A new operation of that session.
    pub(crate) fn new_oper(&self, session: usize, target: Option<Target>, deadline: u64, now: bool) -> Oper {
        let age = if target.is_some() { self.limits.queue_age } else { self.limits.queue_wait };
        Oper {
            session,
            tenant: self.session(session).tenant,
            target,
            phase: if now { Phase::Granted } else { Phase::Staged },
            front: true,
            cause: 0,
            deadline,
            queue_until: self.now + age * 10 * MS,
            arrived: u64::MAX,
            output_left: 0,
            stream: [0; 2],
            transferred: false,
            unsure: false,
            operations: 0,
        }
    }
    pub(crate) fn is_inbound(&self, at: usize) -> bool {
        self.session(self.oper(at).session).inner
    }
}

impl World {
    pub(crate) fn put_oper(&mut self, oper: Oper, real: RealOper) -> usize {
        let place = model::put(&mut self.m.opers, oper);
        if place == self.opers.len() {
            self.opers.push(None);
        }
        self.opers[place] = Some(real);
        place
    }

    /// An inbound event of tenant `a` at provider `b`: at once, or in its tenant's turn.
    pub(crate) fn ingress(&mut self, a: u16, b: u16) -> Outcome {
        let tenant = usize::from(a) % self.m.limits.tenants as usize;
        let provider = usize::from(b) % self.m.limits.providers as usize;
        let now = (b / 4).is_multiple_of(2);
        let (plan, client) = (self.plan_of[tenant], self.client_of[provider]);
        let deadline = self.m.now + (1 + u64::from(b / 8) % 2000) * MS;
        let operations = 1 + u32::from(a / 8) % 4;
        let session = Session {
            tenant,
            plan,
            open: false,
            stopped: false,
            inner: true,
            deadline,
            calls: 1,
            budget: None,
        };
        let target = Some(Target { provider, client });
        let mut expect = self.expect_ask(&session, 0, target, None, now);
        // Its session is opened first.
        expect.when(self.m.plans[plan].withdrawn, why::WITHDRAWN);
        let sessions = self.m.used().sessions;
        expect.room(Dimension::BrokerSessions, Whose::Node, sessions, 1, self.m.limits.sessions);
        let terms = IngressTerms::until(self.deadline(deadline)).operations(operations).memory(5_000);
        let (real, plan) = (&self.clients[client], &self.plans[plan]);
        let front = if now {
            let request = self.pools.ingress(real, plan, terms);
            request.map(|request| Front::Call(Rc::new(Call::Ingress(request))))
        } else {
            self.pools.ingress_queued(real, plan, terms).map(Front::IngressAdmission)
        };
        self.judge("ingress", &expect, &front)?;
        if let Ok(front) = front {
            let session = model::put(&mut self.m.sessions, session);
            if session == self.sessions.len() {
                self.sessions.push(None);
            }
            let mut oper = self.m.new_oper(session, target, deadline, now);
            oper.operations = operations;
            if now {
                oper.phase = Phase::Started;
            }
            self.put_oper(oper, RealOper { front, stop: None });
        }
        Ok(true)
    }
    /// Inbound waiters cannot be looked at from outside: whoever was woken looks at once.
    pub(crate) fn poll_inbound(&mut self) -> Law {
        loop {
            let woken = |world: &World, at: &usize| {
                let task = &world.tasks[*at];
                matches!(task.about, About::Wait(oper) if world.m.is_inbound(oper))
                    && task.polled
                    && task.is_woken()
            };
            let Some(at) = (0..self.tasks.len()).find(|at| woken(self, at)) else { return Ok(()) };
            self.poll_task(at)?;
        }
    }
    /// An inbound request was granted, and runs.
    pub(crate) fn inbound_started(&mut self, at: usize, request: IngressRequest) {
        self.take_front(at, Front::Call(Rc::new(Call::Ingress(request))));
        let oper = self.m.oper_mut(at);
        oper.phase = Phase::Started;
        let oper = oper.clone();
        self.turns.note(&oper);
        self.inbound_granted.push(oper);
    }
    /// Request `a` begins one of its operations.
    pub(crate) fn begin_operation(&mut self, a: u16) -> Outcome {
        let inbound =
            |front: &Front| matches!(front, Front::Call(call) if matches!(**call, Call::Ingress(_)));
        let Some(at) = self.oper_with(a, inbound) else { return Ok(false) };
        let call = self.call(at);
        let Call::Ingress(request) = &*call else { unreachable!("it is inbound") };
        let left = self.m.oper(at).operations;
        let mut expect = self.m.stops(at);
        expect.when(left == 0, why::EXHAUSTED);
        let begun = request.begin_operation();
        self.judge("operation", &expect, &begun)?;
        self.m.oper_mut(at).operations -= u32::from(begun.is_ok());
        match request.remaining_operations() == self.m.oper(at).operations {
            true => Ok(true),
            false => Err(format!("ledger: {} operations are left", request.remaining_operations())),
        }
    }

    /// The request that follows from call `a`, to provider `b`.
    pub(crate) fn follow_up(&mut self, a: u16, b: u16) -> Outcome {
        let calls: Vec<usize> = self.calls(true).into_iter().filter(|at| !self.m.is_inbound(*at)).collect();
        let Some(wanted) = usize::from(a).checked_rem(calls.len()) else { return Ok(false) };
        let at = calls[wanted];
        let provider = usize::from(b) % self.m.limits.providers as usize;
        let client = self.client_of[provider];
        let target = Some(Target { provider, client });
        let previous = self.m.oper(at).clone();
        let session = self.m.session(previous.session).clone();
        let of_it = |oper: &&Oper| oper.session == previous.session;
        let calls = self.m.opers.iter().flatten().filter(of_it).count() as u64;
        let mut expect = self.expect_ask(&session, calls, target, Some(previous.deadline), false);
        expect.must |= self.m.stops(at).must;
        let call = self.call(at);
        let Call::Pool(call) = &*call else { unreachable!("it is pooled") };
        let admitted = self.pools.admit_followup(&self.clients[client], call);
        self.judge("follow-up", &expect, &admitted)?;
        if let Ok(admission) = admitted {
            let oper = self.m.new_oper(previous.session, target, previous.deadline, false);
            let stop = Some(admission.stop_handle());
            self.put_oper(oper, RealOper { front: Front::Admission(admission), stop });
        }
        Ok(true)
    }

    /// Bytes of a protocol, charged or given back; `a` bytes.
    pub(crate) fn metadata(&mut self, a: u16, b: u16) -> Outcome {
        let before = self.pools.snapshot().metadata_bytes;
        let expected = if b.is_multiple_of(2) && !self.metadata.is_empty() {
            let gone = self.metadata.swap_remove(usize::from(b / 2) % self.metadata.len());
            before - gone.bytes()
        } else if self.metadata.len() < 8 {
            let bytes = u64::from(a);
            let mut expect = Expect::default();
            expect.when(self.m.closed, why::RETIRED);
            expect.when(bytes == 0, why::OTHER);
            let reserved = self.pools.reserve_protocol_metadata(bytes);
            self.judge("metadata", &expect, &reserved)?;
            match reserved {
                Ok(metadata) => {
                    self.metadata.push(metadata);
                    before + bytes
                }
                Err(_) => before,
            }
        } else {
            return Ok(false);
        };
        let after = self.pools.snapshot().metadata_bytes;
        match after == expected {
            true => Ok(true),
            false => Err(format!("conservation: {after} bytes of metadata, the sum is {expected}")),
        }
    }
    /// The `a`-th operation that has buffers, streams and the like.
    pub(crate) fn nth_io(&self, a: u16) -> Option<usize> {
        nth(&self.opers, a, |real| has_io(&real.front))
    }
}

/// Whether this front may take buffers.
pub(crate) fn has_io(front: &Front) -> bool {
    match front {
        Front::Admission(_) | Front::DirectAdmission(_) | Front::Ready(_) => true,
        Front::Call(call) => !matches!(**call, Call::Ingress(_)),
        Front::IngressAdmission(_) | Front::Waiting | Front::Job | Front::Gone => false,
    }
}
