//! A load of eight threads on one node: admit, wait, dispatch, dial, check out, park, install, lower, snapshot. It never
//! sleeps and never waits: who is not granted at a poll is polled again later, or dropped.
use crate::check::{self, Key, Log, Said, Span, Verdict, call};
use crate::limits::{LOWERED, Load};
use latent_capabilities::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, Deadline, Dimension, Epoch, Error,
    Exchange, InstalledProvider, IoLimits, IoRuntime, Kind, Operation, OriginSlot, Plan, PlanSpec,
    PoolAdmission, PoolCall, PoolReady, PoolWait, PooledConnection, ProviderClient, ProviderCounts,
    ProviderPools, ProviderSetup, Refusal, Resource, Scope, Standing, TenantCounts, What,
};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) const THREADS: u32 = 8;
const TENANTS: u32 = 3;
const PROVIDERS: u32 = 2;
/// What one thread holds at once, at most.
const HELD: usize = 4;

static BYTES: Capability = Capability::new("latent:example/bytes", &["send"]);
const SEND: Operation = BYTES.operation(0);

/// Counts whoever waits; it has no limit here.
const WAITS: Key = Key(Dimension::PoolsQueueAge, 0);
const PENDING: Key = Key(Dimension::PoolsPending, 0);
const CONNECTION: Key = Key(Dimension::PoolsConnections, 0);
const IDLE: Key = Key(Dimension::PoolsIdleConnections, 0);

fn dial(client: u32) -> Key {
    Key(Dimension::PoolsInitialBackoff, client)
}

#[derive(Debug)]
struct Socket {
    client: u32,
    idle: bool,
}

impl Socket {
    fn unit(&self) -> Key {
        Key(Dimension::PoolsConnectionsPerClient, self.client)
    }
}

impl Resource for Socket {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let units = [CONNECTION, self.unit(), IDLE];
        check::destroyed(if self.idle { &units } else { &units[..2] });
    }
}

/// One epoch of a provider, with all that is needed to call it.
struct View {
    provider: u32,
    epoch: u64,
    installed: InstalledProvider,
    plans: Vec<Plan>,
    clients: Vec<(ProviderClient<Socket>, u32)>,
}

/// A request of a tenant, through a client of a view.
#[derive(Clone)]
struct Who {
    view: Arc<View>,
    tenant: u32,
    client: usize,
    /// Dropping it would stop what was admitted under it.
    session: Arc<CapabilitySession>,
}

impl Who {
    fn client(&self) -> &ProviderClient<Socket> {
        &self.view.clients[self.client].0
    }
    fn number(&self) -> u32 {
        self.view.clients[self.client].1
    }
    fn requests(&self) -> [Key; 2] {
        let provider = Key(Dimension::PoolsRequestsPerProvider, self.view.provider);
        [Key(Dimension::PoolsRequestsPerTenant, self.tenant), provider]
    }
    fn running(&self) -> [Key; 3] {
        let provider = Key(Dimension::PoolsRunningPerProvider, self.view.provider);
        [Key(Dimension::PoolsRunning, 0), Key(Dimension::PoolsRunningPerTenant, self.tenant), provider]
    }
    fn said(&self, error: Error) -> Said {
        match error.kind() {
            Kind::Full(Refusal { dimension, scope, promised }) => {
                let (number, right) = match scope {
                    Scope::Node => (0, true),
                    Scope::Tenant(number) => (self.tenant, u32::from(number) == self.tenant),
                    Scope::Provider(number) => (self.view.provider, u32::from(number) == self.view.provider),
                    Scope::Client(_) => (self.number(), true),
                    Scope::Session => (0, false),
                };
                match (right, promised) {
                    (false, _) => Said::Other(error),
                    (true, true) => Said::Promised(Key(dimension, number)),
                    (true, false) => Said::Full(Key(dimension, number)),
                }
            }
            Kind::Busy => Said::Full(dial(self.number())),
            Kind::Retired(What::Epoch) => Said::Replaced(self.view.provider, self.view.epoch),
            _ => Said::Other(error),
        }
    }
}

enum Held {
    Staged(Who, PoolAdmission),
    Waiting(Who, Pin<Box<PoolWait>>),
    Call(Who, PoolCall),
    Connected(Who, PoolCall, PooledConnection<Socket>),
}

fn each(keys: &[Key], span: Span, note: impl Fn(Key, Span)) {
    keys.iter().for_each(|key| note(*key, span));
}

/// Everything that a request holds once it was granted is given back.
fn ended(who: &Who, span: Span) {
    each(&who.running(), span, check::gave);
    each(&who.requests(), span, check::gave);
}

impl Held {
    fn drop(self) {
        match self {
            Held::Staged(who, staged) => {
                let span = call(|| drop(staged)).1;
                check::gave(PENDING, span);
                each(&who.requests(), span, check::gave);
            }
            Held::Waiting(who, wait) => not_granted(&who, call(|| drop(wait)).1),
            Held::Call(who, running) => ended(&who, call(|| drop(running)).1),
            Held::Connected(who, running, connection) => {
                ended(&who, call(|| drop((running, connection))).1);
            }
        }
    }
}

/// A waiter left without a grant.
fn not_granted(who: &Who, span: Span) {
    each(&who.running(), span, check::was_left);
    each(&[PENDING, WAITS], span, check::is_not_taken);
    each(&who.requests(), span, check::gave);
}

/// xorshift: which step comes next is all that it decides.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Node {
    load: Load,
    broker: Broker,
    pools: ProviderPools,
    /// By provider; the last one is not called in a quiet run, and is the one that is rotated there.
    views: Vec<Mutex<Arc<View>>>,
    clients: AtomicU32,
    lowering: Mutex<()>,
}

impl Node {
    fn new(load: Load, handle: tokio::runtime::Handle) -> Node {
        let broker = Broker::new(BrokerLimits { sessions: 1_024, ..BrokerLimits::default() }).expect("valid");
        let io = IoLimits { owners: 4_096, running: 2_048, queued: 2_048, ..IoLimits::default() };
        let io = IoLimits { metadata_bytes: 16 << 20, ..io };
        let io = IoRuntime::new(&broker, io).expect("valid");
        let pools = ProviderPools::new(&broker, &io, handle, load.startup()).expect("valid");
        let mut node = Node {
            load,
            broker,
            pools,
            views: Vec::new(),
            clients: AtomicU32::new(0),
            lowering: Mutex::new(()),
        };
        for provider in 0..=PROVIDERS {
            let view = node.install(provider, 1);
            node.views.push(Mutex::new(Arc::new(view)));
        }
        node
    }

    fn install(&self, provider: u32, epoch: u64) -> View {
        let setup = ProviderSetup::new(&format!("provider-{provider}"), "example").epoch(epoch);
        let (installed, span) = call(|| self.pools.install(setup, Epoch(epoch - 1)));
        let installed = installed.expect("there is room for every epoch that is kept");
        check::installed(span, provider, epoch);
        let plan = |tenant| {
            let spec =
                PlanSpec::new(&format!("tenant-{tenant}"), "example").bind(&BYTES, &installed.reference());
            self.broker.seal(spec).expect("nobody else rotates this provider")
        };
        let origins = if self.load == Load::Quiet { THREADS } else { 2 };
        let client = |origin| {
            let client =
                self.pools.client(&installed, OriginSlot::new(origin as u16)).expect("there is room");
            (client, self.clients.fetch_add(1, SeqCst))
        };
        let (plans, clients) = ((0..TENANTS).map(plan).collect(), (0..origins).map(client).collect());
        View { provider, epoch, installed, plans, clients }
    }

    /// Replaces one epoch, unless somebody is at it.
    fn rotate(&self, random: &mut Random) {
        let provider =
            if self.load == Load::Quiet { PROVIDERS } else { random.below(PROVIDERS.into()) as u32 };
        let at = &self.views[provider as usize];
        let Ok(_alone) = self.lowering.try_lock() else { return };
        let epoch = at.lock().expect("no panic").epoch;
        let view = Arc::new(self.install(provider, epoch + 1));
        assert!(view.installed.is_current());
        *at.lock().expect("no panic") = view;
    }

    /// Lowers a few limits, together with those that may not be above them.
    fn lower(&self, random: &mut Random) {
        let Ok(_alone) = self.lowering.try_lock() else { return };
        let now = self.pools.limits();
        let mut next = now;
        for _ in 0..=random.below(3) {
            let dimension = LOWERED[random.below(LOWERED.len() as u64) as usize];
            let (value, lowest) = (next.get(dimension).expect("of pools"), self.load.lowest(dimension));
            let span = value - lowest.min(value);
            let less = if span == 0 { 0 } else { 1 + random.below(1 + span / 8) };
            next.set(dimension, value - less).expect("of pools");
        }
        next.running_per_tenant = next.running_per_tenant.min(next.running).min(next.requests_per_tenant);
        next.running_per_provider =
            next.running_per_provider.min(next.running).min(next.requests_per_provider);
        next.idle_connections = next.idle_connections.min(next.connections);
        next.connections_per_client = next.connections_per_client.min(next.connections);
        let lower = LOWERED.into_iter().filter(|limit| next.get(*limit) < now.get(*limit));
        let asked: Vec<_> = lower.filter_map(|limit| Some((limit, next.get(limit)?))).collect();
        let (result, span) = call(|| self.pools.lower_limits(next));
        check::lowered(span, asked, result.is_ok());
        let Err(error) = result else { return };
        for obstacle in error.obstacles() {
            assert_eq!(obstacle.why, Standing::InUse, "{error}");
            assert!(obstacle.found > obstacle.asked, "{error}");
            let number = match obstacle.scope {
                Scope::Tenant(number) | Scope::Provider(number) => number.into(),
                // Numbers of clients are used again.
                Scope::Client(_) | Scope::Session => continue,
                Scope::Node => 0,
            };
            check::in_use(span, Key(obstacle.dimension, number), obstacle.found);
        }
    }
}

/// One of the threads.
struct Caller<'a> {
    node: &'a Node,
    number: u32,
    random: Random,
    sessions: BTreeMap<(u32, u32), (u64, Arc<CapabilitySession>)>,
    held: Vec<Held>,
}

impl Caller<'_> {
    fn step(&mut self) {
        match self.random.below(1_000) {
            0 => self.node.rotate(&mut self.random),
            1..=4 => self.node.lower(&mut self.random),
            5..=14 => {
                let (counts, _) = call(|| self.node.pools.snapshot());
                assert!(counts.idle_connections <= counts.connections, "{counts:?}");
            }
            15..=19 => {
                if let Some(who) = self.who() {
                    call(|| who.client().close_idle());
                }
            }
            _ if self.held.is_empty() || (self.held.len() < HELD && self.random.below(3) == 0) => {
                self.admit()
            }
            _ => self.advance(),
        }
    }

    /// Somebody who may be called. `None`: the epoch was replaced in between.
    fn who(&mut self) -> Option<Who> {
        let provider = self.random.below(PROVIDERS.into()) as usize;
        let view = self.node.views[provider].lock().expect("no panic").clone();
        let client = match self.node.load {
            Load::Quiet => self.number as usize,
            Load::Saturated => self.random.below(view.clients.len() as u64) as usize,
        };
        let tenant = self.random.below(TENANTS.into()) as u32;
        let at = (view.provider, tenant);
        let session = match self.sessions.get(&at) {
            Some((epoch, session)) if *epoch == view.epoch => session.clone(),
            _ => {
                let until = Deadline::after(Duration::from_secs(600)).expect("in range");
                let plan = &view.plans[tenant as usize];
                match call(|| self.node.broker.open(plan, Activation::until(until))) {
                    (Ok(session), _) => {
                        let session = Arc::new(session);
                        self.sessions.insert(at, (view.epoch, session.clone()));
                        session
                    }
                    (Err(error), span) => {
                        let replaced = error.kind() == Kind::Retired(What::Epoch);
                        let said = if replaced {
                            Said::Replaced(view.provider, view.epoch)
                        } else {
                            Said::Other(error)
                        };
                        check::refused(span, said);
                        return None;
                    }
                }
            }
        };
        Some(Who { view, tenant, client, session })
    }

    fn admit(&mut self) {
        let Some(who) = self.who() else { return };
        let pools = &self.node.pools;
        if self.random.below(4) == 0 {
            let (ready, span) = call(|| pools.admit_now(who.client(), &who.session));
            match ready {
                Ok(ready) => {
                    each(&who.running(), span, check::may_take);
                    each(&who.requests(), span, check::took);
                    self.dispatch(who, ready);
                }
                Err(error) => {
                    each(&who.running(), span, check::tried);
                    each(&who.requests(), span, check::tried);
                    check::refused(span, who.said(error));
                }
            }
            return;
        }
        let (staged, span) = call(|| pools.admit(who.client(), &who.session));
        let note = if staged.is_ok() { check::took } else { check::tried };
        note(PENDING, span);
        each(&who.requests(), span, note);
        match staged {
            Ok(staged) => self.held.push(Held::Staged(who, staged)),
            Err(error) => check::refused(span, who.said(error)),
        }
    }

    /// Until it has started, a rotation may take the grant back at any time.
    fn dispatch(&mut self, who: Who, ready: PoolReady) {
        match call(|| ready.dispatch(SEND, Cost::new())) {
            (Ok(running), span) => {
                each(&who.running(), span, check::was_taken);
                self.held.push(Held::Call(who, running));
            }
            (Err(error), span) => {
                each(&who.running(), span, check::is_not_taken);
                each(&who.requests(), span, check::gave);
                check::refused(span, who.said(error));
            }
        }
    }

    /// Takes one of the things that are held a step further, or drops it.
    fn advance(&mut self) {
        let chosen = self.random.below(self.held.len() as u64) as usize;
        let held = self.held.swap_remove(chosen);
        if self.random.below(8) == 0 {
            return held.drop();
        }
        match held {
            Held::Staged(who, staged) => self.poll(who, Box::pin(staged.wait()), true),
            Held::Waiting(who, wait) => self.poll(who, wait, false),
            Held::Call(who, running) => self.connect(who, running),
            Held::Connected(who, running, connection) => park(&who, running, connection),
        }
    }

    fn poll(&mut self, who: Who, mut wait: Pin<Box<PoolWait>>, first: bool) {
        let (polled, span) = call(|| wait.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        if first {
            each(&who.running(), span, check::may_take);
            check::may_take(WAITS, span);
            check::may_give(PENDING, span);
        }
        match polled {
            Poll::Pending => self.held.push(Held::Waiting(who, wait)),
            Poll::Ready(Ok(ready)) => {
                check::was_left(PENDING, span);
                check::is_not_taken(WAITS, span);
                self.dispatch(who, ready);
            }
            Poll::Ready(Err(error)) => {
                not_granted(&who, span);
                check::refused(span, who.said(error));
            }
        }
    }

    fn connect(&mut self, who: Who, running: PoolCall) {
        match call(|| who.client().checkout(&running)) {
            (Ok(Some(mut connection)), span) => {
                connection.resource().idle = false;
                check::gave(IDLE, span);
                return self.held.push(Held::Connected(who, running, connection));
            }
            (Ok(None), _) => {}
            (Err(error), span) => check::refused(span, who.said(error)),
        }
        let (reserved, span) = call(|| who.client().reserve_connection(&running));
        let units = [CONNECTION, Key(Dimension::PoolsConnectionsPerClient, who.number()), dial(who.number())];
        each(&units, span, if reserved.is_ok() { check::took } else { check::tried });
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(error) => {
                check::refused(span, who.said(error));
                return self.held.push(Held::Call(who, running));
            }
        };
        let socket = Socket { client: who.number(), idle: false };
        let (connection, span) = call(|| reserved.connected(socket));
        check::gave(dial(who.number()), span);
        match connection {
            Ok(connection) => self.held.push(Held::Connected(who, running, connection)),
            Err(error) => {
                check::refused(span, who.said(error));
                self.held.push(Held::Call(who, running));
            }
        }
    }
}

fn park(who: &Who, running: PoolCall, mut connection: PooledConnection<Socket>) {
    connection.resource().idle = true;
    let (parked, span) = call(|| {
        drop(running);
        connection.park(Exchange::complete())
    });
    check::took(IDLE, span);
    ended(who, span);
    if let Err(error) = parked {
        check::refused(span, who.said(error));
    }
}

/// One node, eight threads, so many steps of each. What the checker says about every refusal.
pub(crate) fn round(load: Load, seed: u64, steps: u32, handle: &tokio::runtime::Handle) -> Verdict {
    let node = Node::new(load, handle.clone());
    let run = |number: u32| -> Log {
        let _timers = handle.enter();
        let random = Random((seed << 8 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut caller = Caller { node: &node, number, random, sessions: BTreeMap::new(), held: Vec::new() };
        (0..steps).for_each(|_| caller.step());
        caller.held.drain(..).for_each(Held::drop);
        check::take_log()
    };
    let mut logs: Vec<Log> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    for view in &node.views {
        for (client, _) in &view.lock().expect("no panic").clients {
            call(|| client.close_idle());
        }
    }
    let counts = node.pools.snapshot();
    assert!(counts.is_idle() && counts.connections == 0, "{counts:?}");
    let (mut tenants, mut providers) = (vec![TenantCounts::default(); 8], vec![ProviderCounts::default(); 8]);
    let listed = (node.pools.tenants(&mut tenants), node.pools.providers(&mut providers));
    assert!(listed.0.is_complete() && listed.1.is_complete());
    let requests = tenants.iter().map(|tenant| tenant.requests).sum::<u32>();
    assert_eq!((requests, providers.iter().map(|provider| provider.requests).sum::<u32>()), (0, 0));
    logs.push(check::take_log());
    let startup = load.startup();
    check::check(logs, &|dimension| match dimension {
        Dimension::PoolsInitialBackoff => 1,
        other => startup.get(other).unwrap_or(0),
    })
}
