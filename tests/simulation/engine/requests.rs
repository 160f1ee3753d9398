//! Steps of the request path: sessions, admission, waiting, dispatch, stops, time.

use super::jobs::Stage;
use super::model::{self, Expect, MS, PROVIDERS, Phase, Session, Target, Whose, nth, which, why};
use super::real::{About, Call, Done, Front, Ready, RealOper, Task};
use super::script::{Kind, Op};
use super::transfers::{INPUT, OUTPUT};
use super::world::{DIRECT, Outcome, POOLED, World};
use latent_capabilities::broker::{Activation, Budget, Cost, Dimension, StreamBudget};
use std::rc::Rc;

impl World {
    /// Does a step. What is left out of a script is nobody's loss: a step that finds nothing to do does nothing.
    pub(crate) async fn step(&mut self, op: Op) -> Outcome {
        let Op { kind, a, b } = op;
        let mut settled = false;
        self.passed = 0;
        let did = match kind {
            Kind::Open => self.open(a, b),
            Kind::Close => self.end_session(a, true),
            Kind::StopSession => self.end_session(a, false),
            Kind::Admit => self.admit(a, b, false),
            Kind::AdmitNow => self.admit(a, b, true),
            Kind::Ingress => self.ingress(a, b),
            Kind::BeginOperation => self.begin_operation(a),
            Kind::FollowUp => self.follow_up(a, b),
            Kind::Metadata => self.metadata(a, b),
            Kind::Maintain => self.maintain(a, b),
            Kind::BeginRequest => self.begin_request(a),
            Kind::MaintenanceDial => self.maintenance_dial(a),
            Kind::EndMaintenance => self.end_maintenance(a, b),
            Kind::Wait => self.wait(a),
            Kind::Poll => self.poll(a, false),
            Kind::Run => self.poll(a, true),
            Kind::Cancel => self.cancel_nth(a),
            Kind::Stop => self.stop(a),
            Kind::Leave => self.leave_nth(a),
            Kind::Dispatch => self.dispatch(a, b),
            Kind::Buffer => self.take_buffer(a, b),
            Kind::Fill => self.fill(a, b),
            Kind::Retain => self.retain(a),
            Kind::Consume => self.consume(a, b),
            Kind::Free => self.free(a),
            Kind::Stream => self.open_stream(a, b),
            Kind::Write => self.write(a, b),
            Kind::TryWrite => self.try_write(a, b),
            Kind::Read => self.read(a),
            Kind::TryRead => self.try_read(a),
            Kind::Finish => self.finish_nth(a, b),
            Kind::Shut => self.shut_nth(a),
            Kind::Transfer => self.make_transfer(a, b),
            Kind::Send => self.take_place(a, b, INPUT),
            Kind::Receive => self.take_place(a, b, OUTPUT),
            Kind::FillChunk => self.fill_chunk(a, b),
            Kind::FinishChunk => self.finish_chunk(a),
            Kind::FreeChunk => self.free_chunk(a),
            Kind::AwaitPlace => self.wait_for_place(a, b),
            Kind::DropTransfer => self.drop_transfer(a),
            Kind::Spawn => self.spawn(a, false),
            Kind::SpawnBlocking => self.spawn(a, true),
            Kind::ControlWork => self.control_work(),
            Kind::CleanUp => self.clean_up(a),
            Kind::EndJob => {
                let (did, joined) = self.end_job(a, b).await?;
                settled = joined;
                Ok(did)
            }
            Kind::WakeJob => self.wake_job(a),
            Kind::Checkout => self.checkout(a),
            Kind::Reserve => self.reserve(a),
            Kind::Acquire => self.acquire(a),
            Kind::DialOk => self.dial_ok(a),
            Kind::DialFail => self.dial_fail(a),
            Kind::Park => self.park(a),
            Kind::Destroy => self.destroy(a),
            Kind::Kill => self.kill(a),
            Kind::CloseIdle => self.close_idle(a),
            Kind::Rotate => self.rotate(a),
            Kind::RetireProvider => self.retire_provider(a),
            Kind::Seal => self.seal_nth(a),
            Kind::Revoke => self.revoke(a, b),
            Kind::Withdraw => self.withdraw(a),
            Kind::Lower => self.lower(a),
            Kind::Time => {
                let millis = match b % 8 {
                    0 => u64::from(a % 1000),
                    1 | 2 => u64::from(a % 100),
                    _ => u64::from(a % 12),
                };
                self.pass(millis).await;
                settled = true;
                Ok(true)
            }
            Kind::Control => {
                self.control().await;
                settled = true;
                Ok(true)
            }
            Kind::Forget => self.forget(a),
            Kind::SwapWaker => self.swap_waker(a),
            Kind::Exact => match self.next_instant() {
                Some(millis) => {
                    self.pass(millis).await;
                    settled = true;
                    Ok(true)
                }
                None => Ok(false),
            },
            Kind::Jump => {
                self.pass(u64::from(a % 60) * 1000).await;
                settled = true;
                Ok(true)
            }
            // A job that begins between the pieces begins at another time.
            Kind::Bunch if self.m.jobs.iter().flatten().any(|job| job.stage == Stage::Submitted) => Ok(false),
            Kind::Bunch => {
                for piece in 0..3 {
                    self.advance(u64::from(a >> piece) % 30).await;
                }
                self.control().await;
                settled = true;
                Ok(true)
            }
            Kind::StaleInstall => self.stale_install(a, b),
            Kind::SecondRegistry => self.second_registry(),
            Kind::LoudWake => self.loud_wake(a),
            Kind::LoudDestroy => self.loud_destroy(a),
            Kind::LoudExpiry => {
                settled = self.loud_expiry().await?;
                Ok(settled)
            }
            Kind::CloseAdmission => {
                self.pools.close_admission();
                self.m.closed = true;
                Ok(true)
            }
            Kind::Retire => {
                self.pools.retire();
                (self.m.closed, self.m.retired) = (true, true);
                self.m.installed = [None; PROVIDERS];
                Ok(true)
            }
        }?;
        self.check(settled)?;
        Ok(did)
    }

    fn open(&mut self, a: u16, b: u16) -> Outcome {
        let tenant = usize::from(a) % self.m.limits.tenants as usize;
        let plan = self.plan_of[tenant];
        let lasts = if b.is_multiple_of(8) { 1 + u64::from(b / 8 % 60) } else { 100 + u64::from(b % 3000) };
        let deadline = self.m.now + lasts * MS;
        let calls = 1 + u64::from(b / 7) % self.m.limits.calls_per_session;
        let budget = b.is_multiple_of(5).then_some(u64::from(b / 5 % 6));
        let mut activation = Activation::until(self.deadline(deadline)).call_limit(calls as u16);
        if let Some(amount) = budget {
            activation = activation.budget(Budget::OutboundRequests, amount);
        }
        let mut expect = Expect::default();
        expect.when(self.m.plans[plan].withdrawn, why::WITHDRAWN);
        let sessions = self.m.used().sessions;
        expect.room(Dimension::BrokerSessions, Whose::Node, sessions, 1, self.m.limits.sessions);
        let opened = self.broker.open(&self.plans[plan], activation);
        self.judge("open", &expect, &opened)?;
        if let Ok(real) = opened {
            let session =
                Session { tenant, plan, open: true, stopped: false, inner: false, deadline, calls, budget };
            let at = model::put(&mut self.m.sessions, session);
            if at == self.sessions.len() {
                self.sessions.push(None);
            }
            self.sessions[at] = Some(real);
        }
        Ok(true)
    }

    fn end_session(&mut self, a: u16, close: bool) -> Outcome {
        let Some(at) = nth(&self.m.sessions, a, |session| session.open) else { return Ok(false) };
        let session = self.m.sessions[at].as_mut().expect("found");
        if close {
            session.open = false;
            self.sessions[at] = None;
        } else {
            session.stopped = true;
            self.sessions[at].as_ref().expect("an open session").stop();
        }
        Ok(true)
    }

    fn admit(&mut self, a: u16, b: u16, now: bool) -> Outcome {
        let Some(at) = nth(&self.m.sessions, a, |session| session.open) else { return Ok(false) };
        let provider = usize::from(b) % (self.m.limits.providers as usize + 1);
        let target = (provider < self.m.limits.providers as usize)
            .then(|| Target { provider, client: self.client_of[provider] });
        let session = self.m.session(at).clone();
        let until = (b / 4).is_multiple_of(16).then(|| self.m.now + u64::from(b / 64 % 200) * MS);
        let calls = self.m.opers.iter().flatten().filter(|oper| oper.session == at).count() as u64;
        let expect = self.expect_ask(&session, calls, target, until, now);
        let real = self.sessions[at].as_ref().expect("an open session");
        let clients = &self.clients;
        let instant = until.map(|until| self.deadline(until));
        let admitted = match (target.map(|target| &clients[target.client]), now, instant) {
            (Some(client), false, None) => self.pools.admit(client, real).map(Front::Admission),
            (Some(client), false, Some(until)) => {
                self.pools.admit_until(client, real, until).map(Front::Admission)
            }
            (Some(client), true, None) => self.pools.admit_now(client, real).map(ready_of_pool),
            (Some(client), true, Some(until)) => {
                self.pools.admit_now_until(client, real, until).map(ready_of_pool)
            }
            (None, false, None) => self.io.admit(real).map(Front::DirectAdmission),
            (None, false, Some(until)) => self.io.admit_until(real, until).map(Front::DirectAdmission),
            // Direct I/O has no instant of its own for this.
            (None, true, _) => self.io.admit_now(real).map(|ready| Front::Ready(Ready::Direct(ready))),
        };
        self.judge("admission", &expect, &admitted)?;
        let Ok(front) = admitted else { return Ok(true) };
        let stop = Some(match &front {
            Front::Admission(admission) => admission.stop_handle(),
            Front::DirectAdmission(admission) => admission.stop_handle(),
            Front::Ready(Ready::Pool(ready)) => ready.stop_handle(),
            Front::Ready(Ready::Direct(ready)) => ready.stop_handle(),
            _ => unreachable!("just admitted"),
        });
        let until = if target.is_none() && now { None } else { until };
        let deadline = until.unwrap_or(session.deadline);
        let oper = self.m.new_oper(at, target, deadline, now);
        self.put_oper(oper, RealOper { front, stop });
        Ok(true)
    }

    /// What stands against one more operation of a session that has so many.
    pub(crate) fn expect_ask(
        &self,
        session: &Session,
        calls: u64,
        target: Option<Target>,
        until: Option<u64>,
        now: bool,
    ) -> Expect {
        let (m, s, used) = (&self.m, &self.m.limits, self.m.used());
        let mut expect = Expect::default();
        let until = if target.is_none() && now { None } else { until };
        expect.when(session.stopped || !(session.open || session.inner), why::SESSION);
        // Who goes straight to a running unit meets the session's deadline at the start.
        expect.when(!now && m.now >= session.deadline, why::DEADLINE);
        expect.when(until.is_some_and(|until| until <= m.now), why::DEADLINE);
        expect.when(until.is_some_and(|until| until > session.deadline), why::WIDENED);
        expect.when(m.retired || (m.closed && target.is_some()), why::RETIRED);
        expect.room(Dimension::BrokerCallsPerSession, Whose::Session, calls, 1, session.calls);
        expect.room(Dimension::IoOwners, Whose::Node, used.owners, 1, s.owners);
        if now {
            expect.room(Dimension::IoRunning, Whose::Node, used.running, 1, s.running);
        } else {
            expect.room(Dimension::IoQueued, Whose::Node, used.queued, 1, s.queued);
        }
        let plan = &m.plans[session.plan];
        let Some(Target { provider, client }) = target else {
            expect.when(plan.withdrawn, why::WITHDRAWN);
            return expect;
        };
        if plan.epochs[provider] != Some(m.clients[client].epoch) {
            expect.must |= why::UNBOUND;
        } else {
            expect.when(plan.withdrawn, why::WITHDRAWN);
            expect.when(plan.revoked[provider], why::REVOKED);
        }
        expect.when(!m.is_current(client), why::EPOCH);
        let (tenant, whose) = (session.tenant, Whose::Provider(provider));
        let (mine, its) = (used.tenant_requests[tenant], used.provider_requests[provider]);
        expect.room(Dimension::PoolsRequestsPerTenant, Whose::Tenant(tenant), mine, 1, s.tenant_requests);
        expect.room(Dimension::PoolsRequestsPerProvider, whose, its, 1, s.provider_requests);
        if now {
            let (mine, its) = (used.tenant_running[tenant], used.provider_running[provider]);
            expect.room(Dimension::PoolsRunning, Whose::Node, used.pool_running, 1, s.pool_running);
            expect.room(Dimension::PoolsRunningPerTenant, Whose::Tenant(tenant), mine, 1, s.tenant_running);
            expect.room(Dimension::PoolsRunningPerProvider, whose, its, 1, s.provider_running);
        } else {
            expect.room(Dimension::PoolsPending, Whose::Node, used.pending, 1, s.pending);
        }
        expect
    }

    fn front_is(&self, at: usize, fits: impl Fn(&Front) -> bool) -> bool {
        self.opers[at].as_ref().is_some_and(|real| fits(&real.front))
    }
    /// The `a`-th operation whose front fits.
    pub(crate) fn oper_with(&self, a: u16, fits: impl Fn(&Front) -> bool) -> Option<usize> {
        nth(&self.opers, a, |real| fits(&real.front))
    }
    pub(crate) fn take_front(&mut self, at: usize, left: Front) -> Front {
        let real = self.opers[at].as_mut().expect("found");
        std::mem::replace(&mut real.front, left)
    }

    pub(crate) fn wait(&mut self, a: u16) -> Outcome {
        let admission = |front: &Front| {
            matches!(front, Front::Admission(_) | Front::DirectAdmission(_) | Front::IngressAdmission(_))
        };
        let Some(at) = self.oper_with(a, admission) else { return Ok(false) };
        let about = About::Wait(at);
        let task = match self.take_front(at, Front::Waiting) {
            Front::Admission(admission) => {
                Task::new(about, async { Done::Wait(admission.wait().await.map(Ready::Pool)) })
            }
            Front::DirectAdmission(admission) => {
                Task::new(about, async { Done::Wait(admission.wait().await.map(Ready::Direct)) })
            }
            Front::IngressAdmission(admission) => {
                Task::new(about, async { Done::Inbound(admission.wait().await) })
            }
            _ => unreachable!("it is an admission"),
        };
        self.tasks.push(task);
        Ok(true)
    }

    fn stop(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.opers, a, |real| real.stop.is_some()) else { return Ok(false) };
        if let Some(stop) = &self.opers[at].as_ref().expect("found").stop {
            stop.stop();
        }
        let oper = self.m.oper_mut(at);
        // What it ends is seen in the phases.
        oper.cause |= why::CALLER;
        Ok(true)
    }

    fn leave_nth(&mut self, a: u16) -> Outcome {
        let there = |front: &Front| !matches!(front, Front::Waiting | Front::Job | Front::Gone);
        let Some(at) = self.oper_with(a, there) else { return Ok(false) };
        self.leave(at);
        Ok(true)
    }
    /// Drops the front of an operation.
    pub(crate) fn leave(&mut self, at: usize) {
        if let Some(task) = self.task_of(About::Acquire(at)) {
            self.cancel(task);
        }
        drop(self.take_front(at, Front::Gone));
        self.front_gone(at);
    }

    fn dispatch(&mut self, a: u16, b: u16) -> Outcome {
        let Some(at) = self.oper_with(a, |front| matches!(front, Front::Ready(_))) else { return Ok(false) };
        let oper = self.m.oper(at).clone();
        let output = self.m.limits.output_bytes;
        let mut cost = Cost::new().charge(Budget::OutboundRequests, 1).maximum_output(output);
        let stream = self.stream_budget(b);
        if let Ok(budget) = StreamBudget::new(stream[INPUT], stream[OUTPUT]) {
            cost = cost.stream(budget);
        }
        if oper.target.is_none() && self.sessions[oper.session].is_none() {
            return Ok(false);
        }
        // First what is asked of session, plan, provider and ledger; then whether the operation may go on.
        let session = self.m.session(oper.session);
        let plan = &self.m.plans[session.plan];
        let mut expect = Expect::default();
        expect.when(session.stopped || !session.open, why::SESSION);
        expect.when(self.m.now >= session.deadline, why::DEADLINE);
        expect.when(plan.withdrawn, why::WITHDRAWN);
        if let Some(Target { provider, .. }) = oper.target {
            expect.when(plan.revoked[provider], why::REVOKED);
            expect.when(plan.epochs[provider] != self.m.installed[provider], why::EPOCH);
        }
        expect.when(session.budget == Some(0), why::SPENT);
        let accepted = expect.succeeds();
        let stops = self.m.stops(at);
        expect.must |= stops.must;
        expect.may |= stops.may;
        let Front::Ready(ready) = self.take_front(at, Front::Gone) else { unreachable!("it is ready") };
        let started = match (ready, oper.target) {
            (Ready::Pool(ready), Some(target)) => {
                ready.dispatch(POOLED[target.provider].operation(0), cost).map(Call::Pool)
            }
            (Ready::Direct(ready), None) => {
                let session = self.sessions[oper.session].as_ref().expect("looked at");
                let call = session.dispatch(DIRECT.operation(0), cost);
                call.and_then(|call| ready.start(call)).map(Call::Direct)
            }
            _ => unreachable!("one is pooled, the other is not"),
        };
        self.judge("dispatch", &expect, &started)?;
        if accepted && let Some(left) = &mut self.m.sessions[oper.session].as_mut().expect("found").budget {
            *left -= 1;
        }
        match started {
            Ok(call) => {
                self.take_front(at, Front::Call(Rc::new(call)));
                let oper = self.m.oper_mut(at);
                (oper.phase, oper.output_left, oper.stream) = (Phase::Started, output, stream);
            }
            Err(_) => self.front_gone(at),
        }
        let left = self.m.session(oper.session).budget.unwrap_or(u64::MAX);
        let real = self.sessions[oper.session].as_ref().map(|real| real.remaining(Budget::OutboundRequests));
        match real {
            Some(real) if real != left => Err(format!("ledger: {real} is left, should be {left}")),
            _ => Ok(true),
        }
    }

    /// Calls whose front is there and that are pooled, or any.
    pub(crate) fn calls(&self, pooled: bool) -> Vec<usize> {
        which(&self.opers, |_| true)
            .into_iter()
            .filter(|at| self.front_is(*at, |front| matches!(front, Front::Call(_))))
            .filter(|at| match pooled {
                true => self.m.oper(*at).target.is_some(),
                false => !self.m.is_inbound(*at),
            })
            .collect()
    }
    pub(crate) fn call(&self, at: usize) -> Rc<Call> {
        match &self.opers[at].as_ref().expect("found").front {
            Front::Call(call) => call.clone(),
            _ => unreachable!("it is a call"),
        }
    }
}

fn ready_of_pool(ready: latent_capabilities::broker::pools::PoolReady) -> Front {
    Front::Ready(Ready::Pool(ready))
}
