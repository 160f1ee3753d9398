//! The real library beside the model: what a script holds of it, and the look at both after every step.

use super::expect::bit;
use super::gates::Gate;
use super::maintenance::RealPermit;
use super::model::{Expect, MS, Model, Oper, PROVIDERS, Phase, TENANTS, Whose, why};
use super::order::Turns;
use super::real::{About, RealChunk, RealConn, RealOper, RealStream, Task};
use super::script::Settings;
use super::sockets::{self, Socket};
use latent_capabilities::broker::io::{IoBuffer, IoRuntime, IoTransfer, Phase as Seen};
use latent_capabilities::broker::pools::{
    Epoch, InstalledProvider, OriginSlot, ProviderClient, ProviderMetadata, ProviderPools, ProviderSetup,
    TenantCounts,
};
use latent_capabilities::broker::{
    Broker, BrokerLimits, Capability, CapabilitySession, Error, IoLimits, Kind, Plan, PlanSpec, PoolLimits,
    Provider, ProviderSpec, Scope,
};
use latent_capabilities::{Clock, Deadline};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A step that did something, did nothing, or broke a law.
pub(crate) type Outcome = Result<bool, String>;
pub(crate) type Law = Result<(), String>;

pub(crate) static DIRECT: Capability = Capability::new("sim:direct/io", &["send"]);
pub(crate) static POOLED: [Capability; PROVIDERS] = [
    Capability::new("sim:pool/a", &["send"]),
    Capability::new("sim:pool/b", &["send"]),
    Capability::new("sim:pool/c", &["send"]),
];
pub(crate) const NAMES: [&str; PROVIDERS] = ["a", "b", "c"];
const TENANT_NAMES: [&str; TENANTS] = ["t0", "t1", "t2", "t3"];

pub(crate) struct World {
    pub(crate) m: Model,
    pub(crate) broker: Broker,
    pub(crate) io: IoRuntime,
    pub(crate) pools: ProviderPools,
    pub(crate) direct: Provider,
    base: tokio::time::Instant,
    pub(crate) installed: Vec<Option<InstalledProvider>>,
    pub(crate) plans: Vec<Plan>,
    /// The plan in force of each tenant.
    pub(crate) plan_of: [usize; TENANTS],
    pub(crate) clients: Vec<ProviderClient<Socket>>,
    pub(crate) client_of: [usize; PROVIDERS],
    pub(crate) sessions: Vec<Option<CapabilitySession>>,
    pub(crate) opers: Vec<Option<RealOper>>,
    pub(crate) buffers: Vec<Option<IoBuffer>>,
    pub(crate) streams: Vec<RealStream>,
    pub(crate) transfers: Vec<Option<Rc<IoTransfer>>>,
    pub(crate) chunks: Vec<Option<RealChunk>>,
    pub(crate) conns: Vec<Option<RealConn>>,
    pub(crate) gates: Vec<Option<Arc<Gate>>>,
    pub(crate) metadata: Vec<ProviderMetadata>,
    pub(crate) permits: Vec<RealPermit>,
    /// Operations of which more waited at a time than have a cell to park in.
    pub(crate) crowded: BTreeSet<usize>,
    /// Milliseconds that passed in this step.
    pub(crate) passed: u64,
    /// Of those that were called for a connection: who stood before and was not called.
    pub(crate) called: BTreeMap<usize, Vec<usize>>,
    /// Inbound events that were granted in this step.
    pub(crate) inbound_granted: Vec<Oper>,
    pub(crate) tasks: Vec<Task>,
    tenant_numbers: [u16; TENANTS],
    pub(crate) rotations: u64,
    pub(crate) turns: Turns,
    pub(crate) stamp: u8,
    broken_before: bool,
    /// Steps until all counts are looked at again.
    pub(super) look_in: u64,
    looks: u32,
    /// Whether each step is printed.
    pub(crate) told: bool,
    compared: Cell<u64>,
    /// What was seen so far, as one number.
    trace: u64,
}

fn small(value: u64) -> u32 {
    u32::try_from(value).expect("settings are small")
}

pub(crate) fn io_limits(s: &Settings) -> IoLimits {
    IoLimits {
        owners: small(s.owners),
        running: small(s.running),
        queued: small(s.queued),
        staged_bytes: s.staged_units * 512,
        result_bytes: s.result_units * 512,
        buffers: small(s.buffers),
        streams: small(s.streams),
        chunk_bytes: s.chunk_units * 512,
        stream_chunks: small(s.stream_chunks),
        stream_bytes: s.stream_bytes,
        queue_wait: Duration::from_millis(s.queue_wait * 10),
        tenant_bytes: s.tenant_units * 512,
        ..IoLimits::default()
    }
}

pub(crate) fn pool_limits(s: &Settings) -> PoolLimits {
    PoolLimits {
        clients_per_provider: 64,
        connections: small(s.connections),
        connections_per_client: small(s.client_connections),
        idle_connections: small(s.idle_connections),
        workers: small(s.workers),
        cleanup_jobs: small(s.cleanup_jobs),
        pending: small(s.pending),
        running: small(s.pool_running),
        requests_per_tenant: small(s.tenant_requests),
        requests_per_provider: small(s.provider_requests),
        running_per_tenant: small(s.tenant_running),
        running_per_provider: small(s.provider_running),
        queue_age: Duration::from_millis(s.queue_age * 10),
        idle_age: Duration::from_millis(s.idle_age * 10),
        maximum_lifetime: Duration::from_millis(s.lifetime * 10),
        initial_backoff: Duration::from_millis(s.backoff_first),
        maximum_backoff: Duration::from_millis(s.backoff_most),
        ..PoolLimits::default()
    }
}

impl World {
    /// A node with everything installed and a plan for each tenant. Inside a runtime whose clock is paused.
    pub(crate) fn new(settings: &Settings) -> World {
        sockets::forget_all();
        let base = tokio::time::Instant::now();
        let limits = BrokerLimits {
            sessions: small(settings.sessions),
            calls_per_session: small(settings.calls_per_session),
            ..BrokerLimits::default()
        };
        let broker = Broker::with_clock(limits, Clock::tokio()).expect("valid limits");
        let io = IoRuntime::new(&broker, io_limits(settings)).expect("valid limits");
        let handle = tokio::runtime::Handle::current();
        let pools = ProviderPools::new(&broker, &io, handle, pool_limits(settings)).expect("valid limits");
        let broken_before = broker.snapshot().broken;
        let mut world = World {
            m: Model::new(settings.clone()),
            io,
            pools,
            base,
            installed: Vec::new(),
            plans: Vec::new(),
            plan_of: [0; TENANTS],
            clients: Vec::new(),
            client_of: [0; PROVIDERS],
            sessions: Vec::new(),
            opers: Vec::new(),
            buffers: Vec::new(),
            streams: Vec::new(),
            transfers: Vec::new(),
            chunks: Vec::new(),
            conns: Vec::new(),
            gates: Vec::new(),
            metadata: Vec::new(),
            permits: Vec::new(),
            crowded: BTreeSet::new(),
            passed: 0,
            called: BTreeMap::new(),
            inbound_granted: Vec::new(),
            tasks: Vec::new(),
            tenant_numbers: [0; TENANTS],
            rotations: 0,
            turns: Turns::default(),
            stamp: 0,
            broken_before,
            look_in: 1,
            looks: 0,
            told: false,
            compared: Cell::new(0),
            trace: 0xcbf2_9ce4_8422_2325,
            direct: broker.register(ProviderSpec::new("direct")).expect("room"),
            broker,
        };
        for provider in 0..settings.providers as usize {
            world.installed.push(None);
            world.install(provider).expect("an empty registry has room");
        }
        for tenant in 0..settings.tenants as usize {
            world.seal(tenant).expect("an empty broker has room");
        }
        let mut counts: [TenantCounts; TENANTS] = Default::default();
        let listing = world.pools.tenants(&mut counts);
        for found in counts.iter().take(listing.written) {
            if let Some(tenant) = TENANT_NAMES.iter().position(|name| **name == *found.name) {
                world.tenant_numbers[tenant] = found.number;
            }
        }
        world
    }

    /// Installs the next epoch of a provider, with a client.
    pub(crate) fn install(&mut self, provider: usize) -> Result<(), Error> {
        let before = self.m.installed[provider];
        self.rotations += 1;
        let epoch = self.rotations;
        let setup = ProviderSetup::new(NAMES[provider], "authority").epoch(epoch).credentials(b"secret");
        let installed = self.pools.install(setup, Epoch(before.unwrap_or(Epoch::NONE.0)))?;
        self.m.installed[provider] = Some(epoch);
        // What rested of the old epoch says so when it is destroyed; what was handed to somebody in line stays his.
        self.clients.push(self.pools.client(&installed, OriginSlot::new(0))?);
        self.client_of[provider] = self.clients.len() - 1;
        let client = super::model::Client { provider, epoch, failures: 0, not_before: 0, line: Vec::new() };
        self.m.clients.push(client);
        self.installed[provider] = Some(installed);
        Ok(())
    }

    /// A plan for what is installed now.
    pub(crate) fn seal(&mut self, tenant: usize) -> Result<(), Error> {
        let mut spec = PlanSpec::new(TENANT_NAMES[tenant], "p").bind(&DIRECT, &self.direct.reference());
        for (capability, provider) in POOLED.iter().zip(&self.installed) {
            if let Some(provider) = provider {
                spec = spec.bind(capability, &provider.reference());
            }
        }
        self.plans.push(self.broker.seal(spec)?);
        self.plan_of[tenant] = self.plans.len() - 1;
        let plan =
            super::model::Plan { epochs: self.m.installed, withdrawn: false, revoked: [false; PROVIDERS] };
        self.m.plans.push(plan);
        Ok(())
    }

    /// The model's instant as a deadline.
    pub(crate) fn deadline(&self, nanos: u64) -> Deadline {
        Deadline::at((self.base + Duration::from_nanos(nanos)).into_std())
    }

    /// Time passes, and everybody who has something to do at that instant does it.
    pub(crate) async fn pass(&mut self, millis: u64) {
        self.advance(millis).await;
        self.control().await;
    }
    pub(crate) async fn advance(&mut self, millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
        self.m.now += millis * MS;
        self.passed += millis;
    }
    /// The control task runs until it has nothing to do.
    pub(crate) async fn control(&mut self) {
        for _ in 0..6 {
            tokio::task::yield_now().await;
        }
    }

    /// Whether a result is one of those that there is a reason for.
    pub(crate) fn judge<T>(&self, what: &str, expect: &Expect, result: &Result<T, Error>) -> Law {
        self.saw(1);
        let error = match result {
            Ok(_) if expect.succeeds() => return Ok(()),
            Ok(_) => return Err(format!("refusal: {what} succeeded, in spite of {expect:?}")),
            Err(error) => error,
        };
        let justified = match error.kind() {
            Kind::Full(refusal) => {
                let mut full = expect.full.iter().chain(&expect.may_full);
                (!refusal.promised || expect.promised)
                    && full.any(|(dimension, whose)| {
                        *dimension == refusal.dimension && self.is_scope(*whose, refusal.scope)
                    })
            }
            kind => bit(kind) & (expect.must | expect.may) != 0,
        };
        match justified {
            true => Ok(()),
            false => Err(format!("refusal: {what} was refused with {error:?}, expected was {expect:?}")),
        }
    }
    fn is_scope(&self, whose: Whose, scope: Scope) -> bool {
        match (whose, scope) {
            (Whose::Node, Scope::Node) | (Whose::Session, Scope::Session) => true,
            (Whose::Tenant(tenant), Scope::Tenant(number)) => self.tenant_numbers[tenant] == number,
            // Numbers were given in this order, after direct I/O.
            (Whose::Provider(provider), Scope::Provider(number)) => usize::from(number) == provider + 1,
            (Whose::Client, Scope::Client(_)) => true,
            _ => false,
        }
    }

    /// The look after a step: what moved by itself is judged, then everything is compared, the counts only after every
    /// `look_every`th step: whoever counts has credits taken back, and these are to be lent and used too. `settled`: the
    /// control task has run, so what it owes is due.
    pub(crate) fn check(&mut self, settled: bool) -> Law {
        if settled {
            self.settle_jobs()?;
        }
        self.reap()?;
        sockets::check(&mut self.m, &mut self.conns, settled)?;
        self.poll_inbound()?;
        self.reap()?;
        self.phases(settled)?;
        self.note_crowds();
        self.wakes(settled)?;
        self.note_called();
        self.look_in -= 1;
        if self.look_in > 0 {
            return Ok(());
        }
        self.look_in = self.m.limits.look_every;
        self.counts()
    }

    /// What nothing holds any more must be gone, and the rest must be there.
    pub(crate) fn reap(&mut self) -> Law {
        for at in self.m.reap() {
            let real = self.opers[at].take();
            self.crowded.remove(&at);
            if let Some(real) = real
                && let Some(phase) = real.stop.map(|stop| stop.phase())
                && phase != Seen::Retired
            {
                return Err(format!("exactly once: operation {at} has no owner and is {phase:?}"));
            }
        }
        Ok(())
    }

    /// Operations that were granted or ended by somebody else's step.
    fn phases(&mut self, settled: bool) -> Law {
        let (mut granted, mut from_line) = (Vec::new(), Vec::new());
        for at in 0..self.m.opers.len() {
            let Some(oper) = &self.m.opers[at] else { continue };
            let real = self.opers[at].as_ref().expect("the model has it");
            let Some(stop) = &real.stop else {
                if settled && phase_is_late(&self.m, oper) {
                    return Err(format!("deadlines: it is {} and {oper:?} goes on", self.m.now));
                }
                continue;
            };
            let (phase, seen) = (oper.phase, stop.phase());
            let ends = match (phase, oper.front, seen) {
                (Phase::Staged | Phase::Queued, true, Seen::Queued) => None,
                (Phase::Queued, true, Seen::Ready) => {
                    granted.push(at);
                    None
                }
                (Phase::Staged | Phase::Queued, true, Seen::Cleaning) => Some(Phase::Left),
                (Phase::Granted, true, Seen::Ready) => None,
                (Phase::Granted, true, Seen::Cleaning) => Some(Phase::Returned),
                (Phase::Started, true, Seen::Running | Seen::WaitingProvider) => None,
                (Phase::Left | Phase::Returned, true, Seen::Cleaning) => None,
                (_, false, Seen::Cleaning) => None,
                _ => return Err(format!("phases: {oper:?} is seen as {seen:?}")),
            };
            let expect = self.m.stops(at);
            // A stop, a closed session, a replaced epoch and a retirement reach who waits at once.
            let ended_for =
                (expect.must | expect.may) & (why::CALLER | why::SESSION | why::EPOCH | why::RETIRED);
            if phase == Phase::Queued && ends.is_none() && ended_for != 0 {
                return Err(format!("stops: {oper:?} was ended and still waits"));
            }
            if let Some(ended) = ends {
                if expect.must | expect.may == 0 {
                    return Err(format!("phases: {oper:?} was ended for no reason"));
                }
                let oper = self.m.oper_mut(at);
                oper.cause |= expect.must | expect.may;
                oper.phase = ended;
                if phase == Phase::Queued {
                    self.turns.note_left(self.m.oper(at));
                    from_line.push(at);
                }
            } else if settled && !granted.contains(&at) {
                let oper = self.m.oper(at);
                let late = match phase {
                    Phase::Queued => self.m.now >= oper.deadline.min(oper.queue_until),
                    Phase::Granted => self.m.now >= oper.deadline,
                    _ => false,
                };
                if late {
                    return Err(format!("deadlines: it is {} and {oper:?} goes on", self.m.now));
                }
            }
        }
        for at in &granted {
            let oper = self.m.oper_mut(*at);
            oper.phase = Phase::Granted;
            let oper = oper.clone();
            self.turns.note(&oper);
        }
        self.unsure(from_line)?;
        for at in &granted {
            self.m.check_fifo(self.m.oper(*at))?;
        }
        for oper in std::mem::take(&mut self.inbound_granted) {
            self.m.check_fifo(&oper)?;
        }
        let used = self.m.used();
        self.m.check_no_loss(&used)?;
        let turns = std::mem::take(&mut self.turns);
        self.m.check_rotation(&turns, &used)
    }

    /// Of those that left the line in a step, some may have been granted first, by a unit that another gave back meanwhile:
    /// then they gave back what they waited with, and hold none of it while something still holds them. Which of them cannot
    /// be seen, how many can.
    fn unsure(&mut self, left: Vec<usize>) -> Law {
        if left.is_empty() && self.m.hidden == [0; 2] {
            self.m.reaped_unsure = [0; 2];
            return Ok(());
        }
        let (io, pools) = (self.io.snapshot(), self.pools.snapshot());
        let before = std::mem::take(&mut self.m.hidden);
        let used = self.m.used();
        let groups = [
            (false, io.queued - pools.pending_requests, used.queued - used.pending),
            (true, pools.pending_requests, used.pending),
        ];
        let mut left = left;
        for (pooled, real, model) in groups {
            let of_it = |m: &Model, at: &usize| m.oper(*at).target.is_some() == pooled;
            let candidates: Vec<usize> = left.extract_if(.., |at| of_it(&self.m, at)).collect();
            let known = before[usize::from(pooled)];
            // More that wait than there are is found by the comparison of the counts.
            let hidden = model.saturating_sub(real);
            let most = known + candidates.len() as u64;
            let gone = self.m.reaped_unsure[usize::from(pooled)];
            if hidden > most || hidden + gone < known {
                return Err(format!("conservation: {real} wait (pooled: {pooled}), the sum is {model}"));
            }
            if hidden > known {
                for at in candidates {
                    self.m.oper_mut(at).unsure = true;
                }
            }
            self.m.hide(pooled, hidden);
        }
        self.m.reaped_unsure = [0; 2];
        Ok(())
    }

    /// Conservation and ceilings: every count is the sum of what lives, and at most its limit.
    fn counts(&mut self) -> Law {
        let (used, s) = (self.m.used(), &self.m.limits);
        let io = self.io.snapshot();
        let pools = self.pools.snapshot();
        let node = self.broker.snapshot();
        let rows = [
            ("io.owners", io.owners, used.owners, s.owners),
            ("io.running", io.running, used.running, s.running),
            ("io.queued", io.queued, used.queued, s.queued),
            ("io.staged_bytes", io.staged_bytes, used.staged, s.staged_units * 512),
            ("io.result_bytes", io.result_bytes, used.result, s.result_units * 512),
            ("io.buffers", io.buffers, used.buffers, s.buffers),
            ("io.streams", io.streams, used.streams, s.streams),
            ("io.metadata_bytes", io.metadata_bytes, used.io_metadata(), u64::MAX),
            ("pools.pending", pools.pending_requests, used.pending, s.pending),
            ("pools.running", pools.running_requests, used.pool_running, s.pool_running),
            ("pools.connections", pools.connections, used.connections, s.connections),
            ("pools.active", pools.active_connections, used.active, s.connections),
            ("pools.idle", pools.idle_connections, used.idle, s.idle_connections),
            ("pools.connecting", pools.connecting_connections, used.connecting, s.connections),
            ("pools.retired_connections", pools.retired_connections, used.of_replaced, u64::MAX),
            ("broker.sessions", node.sessions, used.sessions, s.sessions),
            ("pools.workers", pools.workers, used.workers, s.workers),
            ("pools.cleanup_jobs", pools.cleanup_jobs, used.cleaners, s.cleanup_jobs),
            ("pools.failed_cleanup", pools.failed_cleanup, used.failed, u64::MAX),
            ("pools.contained_panics", pools.contained_panics, self.m.contained, u64::MAX),
        ];
        for (name, real, model, limit) in rows {
            self.trace = (self.trace ^ real).wrapping_mul(0x0100_0000_01b3);
            if real != model {
                return Err(format!("conservation: {name} says {real}, the sum is {model}"));
            }
            if real > limit {
                return Err(format!("ceiling: {name} is {real}, the limit {limit}"));
            }
        }
        // Phases, grants, wakes and sockets were looked at one by one before.
        self.saw(3 + rows.len() + self.tasks.len() + 2 * self.m.opers.len() + self.m.conns.len());
        let closed = (io.closed, pools.retired, node.broken);
        if closed != (self.m.retired, self.m.retired, self.broken_before) {
            return Err(format!("finality: closed, retired, broken are {closed:?}"));
        }
        self.looks += 1;
        if self.looks.is_multiple_of(16) { self.shares(&used) } else { Ok(()) }
    }

    /// The same for what tenants and providers hold.
    fn shares(&self, used: &super::model::Used) -> Law {
        let mut counts: [TenantCounts; TENANTS] = Default::default();
        let listing = self.pools.tenants(&mut counts);
        for found in counts.iter().take(listing.written) {
            let Some(tenant) = TENANT_NAMES.iter().position(|name| **name == *found.name) else { continue };
            let real = (u64::from(found.requests), u64::from(found.running_requests));
            let model = (used.tenant_requests[tenant], used.tenant_running[tenant]);
            if real != model {
                return Err(format!("conservation: tenant {tenant} has {real:?}, the sum is {model:?}"));
            }
            if found.bytes.is_some_and(|bytes| bytes != used.tenant_bytes[tenant]) {
                return Err(format!("conservation: tenant {tenant} has {:?} bytes", found.bytes));
            }
        }
        Ok(())
    }

    /// Forgets a future and what it is about, as whoever awaited it does.
    pub(crate) fn task_of(&self, about: About) -> Option<usize> {
        self.tasks.iter().position(|task| task.about == about)
    }
    /// Everything that was seen of the library so far, as one number.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }
    fn saw(&self, more: usize) {
        self.compared.set(self.compared.get() + more as u64);
    }
    /// How often something was compared with what the model says.
    pub(crate) fn compared(&self) -> u64 {
        self.compared.get()
    }
    /// Whether the process ever found its accounting broken before this run.
    pub(crate) fn was_broken(&self) -> bool {
        self.broken_before
    }
}

/// Whether a waiter's time is over.
fn phase_is_late(m: &Model, oper: &Oper) -> bool {
    oper.phase == Phase::Queued && m.now >= oper.deadline.min(oper.queue_until)
}
