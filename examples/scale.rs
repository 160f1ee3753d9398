//! What one grant costs, by how many wait, how many tenants there are, and how many of them are stuck at a provider that
//! does not answer. The figures must not depend on any of the three.
//!
//! ```text
//! cargo run --release --example scale
//! ```
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{
    Epoch, OriginSlot, PoolCall, PoolWait, ProviderClient, ProviderPools, ProviderSetup, Resource,
};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, IoLimits, Operation, PlanSpec, PoolLimits,
};
use latent_capabilities::Deadline;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

static BYTES: Capability = Capability::new("latent:example/bytes", &["send"]);
const SEND: Operation = BYTES.operation(0);

#[derive(Debug)]
struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

struct Waiting {
    wait: Pin<Box<PoolWait>>,
    tenant: usize,
}

struct Node {
    pools: ProviderPools,
    clients: Vec<ProviderClient<Nothing>>,
    sessions: Vec<CapabilitySession>,
}

impl Node {
    /// `providers` providers with one running unit each, and `tenants` tenants.
    fn new(providers: usize, tenants: usize) -> Anything<Node> {
        let broker = Broker::new(BrokerLimits::ceilings())?;
        let io = IoRuntime::new(&broker, IoLimits::ceilings())?;
        let limits = PoolLimits { running_per_provider: 1, ..PoolLimits::ceilings() };
        let pools = ProviderPools::new(&broker, &io, tokio::runtime::Handle::current(), limits)?;
        let mut installed = Vec::new();
        for number in 0..providers {
            installed.push(pools.install(ProviderSetup::new(&format!("provider-{number}"), "example"), Epoch::NONE)?);
        }
        let clients = installed
            .iter()
            .map(|provider| pools.client(provider, OriginSlot::new(0)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut sessions = Vec::new();
        for tenant in 0..tenants {
            // A plan binds a capability once; each tenant calls the first provider and one of the others.
            let other = 1 + tenant % (providers - 1).max(1);
            let bound = if tenant % 2 == 0 || providers == 1 { 0 } else { other };
            let spec = PlanSpec::new(&format!("tenant-{tenant}"), "example").bind(&BYTES, &installed[bound].reference());
            let until = Deadline::after(Duration::from_secs(3600))?;
            sessions.push(broker.open(&broker.seal(spec)?, Activation::until(until))?);
        }
        Ok(Node { pools, clients, sessions })
    }

    fn queue(&self, provider: usize, tenant: usize) -> Anything<Waiting> {
        let admission = self.pools.admit(&self.clients[provider], &self.sessions[tenant])?;
        let mut wait = Box::pin(admission.wait());
        if poll(wait.as_mut()).is_ready() {
            return Err("somebody runs, so a newcomer waits".into());
        }
        Ok(Waiting { wait, tenant })
    }

    fn run(&self, provider: usize, tenant: usize) -> Anything<PoolCall> {
        let ready = self.pools.admit_now(&self.clients[provider], &self.sessions[tenant])?;
        Ok(ready.dispatch(SEND, Cost::new())?)
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Nanoseconds per release, grant, start and new enqueue at the first provider.
fn measure(waiters: usize, tenants: usize, stuck_providers: usize) -> Anything<f64> {
    const ROUNDS: usize = 20_000;
    let node = Node::new(1 + stuck_providers, (2 * tenants).max(2))?;
    // Even tenants wait for the first provider, odd ones are stuck.
    let mut held = Vec::new();
    let mut stuck = Vec::new();
    for provider in 1..=stuck_providers {
        let tenant = 2 * (provider - 1) + 1;
        held.push(node.run(provider, tenant)?);
        stuck.push(node.queue(provider, tenant)?);
    }
    let mut running = node.run(0, 0)?;
    let mut queue = VecDeque::new();
    for waiter in 0..waiters {
        queue.push_back(node.queue(0, 2 * (waiter % tenants))?);
    }
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..ROUNDS / 5 {
            drop(running);
            let mut next = queue.pop_front().ok_or("nobody waits")?;
            let Poll::Ready(granted) = poll(next.wait.as_mut()) else {
                return Err("the grant went to somebody else than the first in line".into());
            };
            running = granted?.dispatch(SEND, Cost::new())?;
            queue.push_back(node.queue(0, next.tenant)?);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (ROUNDS / 5) as f64);
    }
    drop((running, queue, held, stuck));
    Ok(best)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Anything<()> {
    println!("{:>8} {:>8} {:>16} {:>12} {:>8}", "waiters", "tenants", "stuck providers", "ns/grant", "ratio");
    let mut first = None;
    for (waiters, tenants, stuck) in [(1, 1, 0), (32, 1, 0), (768, 1, 0), (768, 256, 0), (768, 768, 0), (768, 768, 255)] {
        let nanos = measure(waiters, tenants, stuck)?;
        let base = *first.get_or_insert(nanos);
        println!("{waiters:>8} {tenants:>8} {stuck:>16} {nanos:>12.0} {:>8.2}", nanos / base);
    }
    Ok(())
}
