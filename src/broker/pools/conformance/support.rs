//! A node with pools, as a test needs it.
pub(super) use crate::broker::io::{IoRuntime, SetupError};
pub(super) use crate::broker::pools::{
    Acquired, Epoch, Exchange, InstalledProvider, LowerError, Obstacle, OriginSlot, PoolCall, PoolReady,
    PoolSnapshot, PooledConnection, ProviderClient, ProviderPools, ProviderSetup, Resource, Standing,
};
pub(super) use crate::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, Denied, Dimension, Effect, Error,
    Invalid, IoLimits, Kind, Operation, Plan, PlanSpec, PoolLimits, Refusal, Scope, StopCause, What, Which,
};
pub(super) use crate::time::{Clock, Deadline};
pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
pub(super) use std::time::Duration;

pub(super) static HTTP: Capability = Capability::new("latent:test/http", &["send"]);
pub(super) const SEND: Operation = HTTP.operation(0);

/// A connection that tells how many of its kind are alive.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) alive: Arc<AtomicUsize>,
    pub(super) reusable: Arc<AtomicBool>,
}

impl Socket {
    pub(super) fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Socket { alive: alive.clone(), reusable: Arc::new(AtomicBool::new(true)) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

impl Resource for Socket {
    fn is_reusable(&mut self) -> bool {
        self.reusable.load(SeqCst)
    }
}

/// A connection without anything to it, for tests that count by the snapshot.
#[derive(Debug)]
pub(super) struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

pub(super) struct Node {
    pub(super) broker: Broker,
    pub(super) io: IoRuntime,
    pub(super) pools: ProviderPools,
}

/// Milliseconds.
pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn within(duration: Duration) -> Deadline {
    Deadline::after(duration).expect("in range")
}

impl Node {
    pub(super) fn new(limits: PoolLimits) -> Node {
        Node::with(IoLimits::default(), limits)
    }
    pub(super) fn with(io: IoLimits, limits: PoolLimits) -> Node {
        Node::on(Clock::system(), io, limits)
    }
    /// On tokio's clock, which the test has paused.
    pub(super) fn paused(limits: PoolLimits) -> Node {
        Node::on(Clock::tokio(), IoLimits::default(), limits)
    }
    pub(super) fn on(clock: Clock, io: IoLimits, limits: PoolLimits) -> Node {
        let broker = Broker::with_clock(BrokerLimits::default(), clock).expect("the defaults are valid");
        let io = IoRuntime::new(&broker, io).expect("the limits are valid");
        let handle = tokio::runtime::Handle::current();
        let pools = ProviderPools::new(&broker, &io, handle, limits).expect("the limits are valid");
        Node { broker, io, pools }
    }
    pub(super) fn setup(name: &str, epoch: u64) -> ProviderSetup {
        ProviderSetup::new(name, "authority").epoch(epoch).digest("digest").credentials(b"hunter2")
    }
    pub(super) fn install(&self, name: &str, epoch: u64, expected: u64) -> InstalledProvider {
        self.pools.install(Node::setup(name, epoch), Epoch(expected)).expect("there is room")
    }
    pub(super) fn client<T: Resource>(&self, provider: &InstalledProvider) -> ProviderClient<T> {
        self.pools.client(provider, OriginSlot::new(0)).expect("there is room")
    }
    pub(super) fn plan(&self, tenant: &str, provider: &InstalledProvider) -> Plan {
        let spec = PlanSpec::new(tenant, "publication").bind(&HTTP, &provider.reference());
        self.broker.seal(spec).expect("the provider is current")
    }
    pub(super) fn session(&self, plan: &Plan) -> CapabilitySession {
        self.broker.open(plan, Activation::until(within(Duration::from_secs(20)))).expect("there is room")
    }
    /// A request that runs at once.
    pub(super) fn call<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
    ) -> PoolCall {
        let ready = self.pools.admit_now(client, session).expect("there is room");
        ready.dispatch(SEND, Cost::new()).expect("allowed")
    }
    /// A connection that was dialled and is in use.
    pub(super) fn dialled<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
        resource: T,
    ) -> PooledConnection<T> {
        let call = self.call(client, session);
        client.reserve_connection(&call).expect("there is room").connected(resource).expect("in time")
    }
    /// A connection that rests.
    pub(super) fn parked<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
        resource: T,
    ) {
        self.dialled(client, session, resource).park(Exchange::complete()).expect("there is room");
    }
    pub(super) fn counts(&self) -> PoolSnapshot {
        self.pools.snapshot()
    }
    pub(super) fn assert_idle(&self) {
        let io = self.io.snapshot();
        assert!(io.is_zero(), "{io:?}");
        let pools = self.pools.snapshot();
        assert!(pools.is_idle(), "{pools:?}");
    }
    /// Shuts down, and nothing is left.
    pub(super) async fn assert_clean_end(&self) {
        let left = self.pools.shutdown(within(Duration::from_secs(10))).await;
        assert!(left.is_clean(), "{left:?}");
        self.assert_idle();
    }
}

/// Fails unless the error is a refusal for want of room, of this dimension in this scope.
#[track_caller]
pub(super) fn assert_full<T: std::fmt::Debug>(result: Result<T, Error>, dimension: Dimension, scope: Scope) {
    let error = result.expect_err("there was no room");
    let wanted = Kind::Full(Refusal { dimension, scope, promised: false });
    assert_eq!((error.kind(), error.effect()), (wanted, Effect::NotSent));
}

/// Fails unless the error is of this kind, and nothing was sent.
#[track_caller]
pub(super) fn assert_kind<T: std::fmt::Debug>(result: Result<T, Error>, kind: Kind) {
    let error = result.expect_err("it was to be refused");
    assert_eq!((error.kind(), error.effect()), (kind, Effect::NotSent));
}

pub(super) async fn until(what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if look() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never came: {what}");
}

/// Fails unless most ends are told of within 5 ms: a look every few milliseconds would do for the best of many, and not for
/// most. A busy machine may take a core away for longer: hence eight rounds. A thread sanitizer makes every step slower by
/// the factor that `LATENT_SLOWNESS` tells.
pub(super) async fn assert_told_at_once(mut end: impl AsyncFnMut() -> Duration) {
    let slowness = std::env::var("LATENT_SLOWNESS").map_or(1, |factor| factor.parse().expect("a number"));
    let mut medians = Vec::new();
    for _ in 0..8 {
        let mut ends = Vec::new();
        for _ in 0..5 {
            ends.push(end().await);
        }
        ends.sort();
        if ends[2] < ms(5) * slowness {
            return;
        }
        medians.push(ends[2]);
    }
    panic!("too late: {medians:?}");
}
