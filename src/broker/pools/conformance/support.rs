//! A node with pools, as a test needs it.
use crate::broker::io::IoRuntime;
use crate::broker::pools::{
    Epoch, InstalledProvider, OriginSlot, ProviderClient, ProviderPools, ProviderSetup, Resource,
};
use crate::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, IoLimits, Plan, PlanSpec,
    PoolLimits,
};
use crate::time::Deadline;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub(super) static HTTP: Capability = Capability::new("latent:test/http", &["send"]);

/// A connection that tells how many of its kind are alive.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) alive: Arc<AtomicUsize>,
    pub(super) reusable: Arc<AtomicBool>,
}

impl Socket {
    pub(super) fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Socket { alive: alive.clone(), reusable: Arc::new(AtomicBool::new(true)) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Resource for Socket {
    fn is_reusable(&mut self) -> bool {
        self.reusable.load(Ordering::SeqCst)
    }
}

pub(super) struct Node {
    pub(super) broker: Broker,
    pub(super) io: IoRuntime,
    pub(super) pools: ProviderPools,
}

impl Node {
    pub(super) fn new(limits: PoolLimits) -> Node {
        Node::with(IoLimits::default(), limits)
    }
    pub(super) fn with(io: IoLimits, limits: PoolLimits) -> Node {
        let broker = Broker::new(BrokerLimits::default()).expect("the defaults are valid");
        let io = IoRuntime::new(&broker, io).expect("the limits are valid");
        let handle = tokio::runtime::Handle::current();
        let pools = ProviderPools::new(&broker, &io, handle, limits).expect("the limits are valid");
        Node { broker, io, pools }
    }
    pub(super) fn install(&self, name: &str, epoch: u64, expected: u64) -> InstalledProvider {
        let setup = ProviderSetup::new(name, "authority").epoch(epoch).digest("d").credentials(b"secret");
        self.pools.install(setup, Epoch(expected)).expect("there is room")
    }
    pub(super) fn client(&self, provider: &InstalledProvider) -> ProviderClient<Socket> {
        self.pools.client(provider, OriginSlot::new(0)).expect("there is room")
    }
    pub(super) fn plan(&self, tenant: &str, provider: &InstalledProvider) -> Plan {
        let spec = PlanSpec::new(tenant, "publication").bind(&HTTP, &provider.reference());
        self.broker.seal(spec).expect("the provider is current")
    }
    pub(super) fn session(&self, plan: &Plan) -> CapabilitySession {
        let deadline = Deadline::after(Duration::from_secs(20)).expect("in range");
        self.broker.open(plan, Activation::until(deadline)).expect("there is room")
    }
    pub(super) fn assert_idle(&self) {
        let io = self.io.snapshot();
        assert!(io.is_zero(), "{io:?}");
        let pools = self.pools.snapshot();
        assert!(pools.is_idle(), "{pools:?}");
    }
}

pub(super) fn send() -> (crate::broker::Operation, Cost) {
    (HTTP.operation(0), Cost::new())
}

pub(super) async fn until(what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if look() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never came: {what}");
}
