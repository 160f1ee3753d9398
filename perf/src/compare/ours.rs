//! Our side: nodes, sessions and calls, through the public interface only.

use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{
    Epoch, Exchange, InstalledProvider, OriginSlot, PoolCall, ProviderClient, ProviderPools, ProviderSetup,
};
use latent_capabilities::broker::{
    Broker, BrokerLimits, CapabilitySession, Cost, IoLimits, PlanSpec, PoolLimits,
};
use perf::{BYTES, Nothing, SEND, must, until_later};
use tokio::runtime::{Builder, Handle, Runtime};

/// A node with some providers. Kept until the process ends.
pub(super) struct World {
    pub(super) broker: Broker,
    pub(super) pools: ProviderPools,
    pub(super) providers: Vec<InstalledProvider>,
    pub(super) clients: Vec<ProviderClient<Nothing>>,
}

impl World {
    /// Its control task runs on `handle`'s runtime, whenever that is driven.
    pub(super) fn new(handle: &Handle, limits: PoolLimits, providers: usize) -> &'static World {
        let broker = must(Broker::new(BrokerLimits::ceilings()));
        let io = must(IoRuntime::new(&broker, IoLimits::ceilings()));
        let pools = must(ProviderPools::new(&broker, &io, handle.clone(), limits));
        let providers: Vec<_> = (0..providers)
            .map(|number| {
                must(pools.install(ProviderSetup::new(&format!("provider-{number}"), "perf"), Epoch::NONE))
            })
            .collect();
        let clients =
            providers.iter().map(|installed| must(pools.client(installed, OriginSlot::new(0)))).collect();
        super::measure::keep(World { broker, pools, providers, clients })
    }

    /// A session of a tenant for one provider.
    pub(super) fn session(&self, tenant: &str, provider: usize) -> CapabilitySession {
        let spec = PlanSpec::new(tenant, "perf").bind(&BYTES, &self.providers[provider].reference());
        must(self.broker.open(&must(self.broker.seal(spec)), until_later()))
    }

    /// A running call.
    pub(super) fn call(&self, session: &CapabilitySession, provider: usize) -> PoolCall {
        let ready = must(self.pools.admit_now(&self.clients[provider], session));
        must(ready.dispatch(SEND, Cost::new()))
    }

    /// An idle connection for every later checkout.
    pub(super) fn connect(&self, call: &PoolCall, provider: usize) {
        let dialled = must(self.clients[provider].reserve_connection(call));
        must(must(dialled.connected(Nothing)).park(Exchange::complete()));
    }

    /// Takes the idle connection and parks it.
    pub(super) fn checkout(&self, call: &PoolCall, provider: usize) {
        match must(self.clients[provider].checkout(call)) {
            Some(idle) => must(idle.park(Exchange::complete())),
            None => panic!("one is idle"),
        }
    }
}

/// A runtime of one thread, or of two workers, for the rest of the process.
pub(super) fn runtime(workers: usize) -> &'static Runtime {
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if workers > 1 {
        builder.worker_threads(workers);
    }
    super::measure::keep(must(builder.enable_time().build()))
}
