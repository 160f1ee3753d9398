//! What one grant costs, by how many wait, how many tenants there are, and how many of them are stuck at a provider that
//! does not answer. The figures must not depend on any of the three.
//!
//! ```text
//! cargo run --release --example scale
//! ```
use latent_capabilities::Deadline;
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{
    Epoch, OriginSlot, PoolCall, PoolWait, ProviderClient, ProviderPools, ProviderSetup, Resource,
};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, IoLimits, Operation, PlanSpec,
    PoolLimits,
};
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
    /// Those who call the first provider.
    callers: Vec<CapabilitySession>,
    /// Those who call one of the others, which do not answer.
    stuck: Vec<CapabilitySession>,
}

impl Node {
    /// A first provider with one running unit and `callers` tenants that call it, and `providers` more with one running unit
    /// each and `stuck` tenants that call those.
    fn new(callers: usize, providers: usize, stuck: usize) -> Anything<Node> {
        let broker = Broker::new(BrokerLimits::ceilings())?;
        let io = IoRuntime::new(&broker, IoLimits::ceilings())?;
        let limits = PoolLimits { running_per_provider: 1, ..PoolLimits::ceilings() };
        let pools = ProviderPools::new(&broker, &io, tokio::runtime::Handle::current(), limits)?;
        let mut installed = Vec::new();
        for number in 0..=providers {
            installed.push(
                pools.install(ProviderSetup::new(&format!("provider-{number}"), "example"), Epoch::NONE)?,
            );
        }
        let clients = installed
            .iter()
            .map(|provider| pools.client(provider, OriginSlot::new(0)))
            .collect::<Result<Vec<_>, _>>()?;
        let open = |tenant: String, provider: usize| -> Anything<CapabilitySession> {
            let spec = PlanSpec::new(&tenant, "example").bind(&BYTES, &installed[provider].reference());
            let until = Deadline::after(Duration::from_secs(3600))?;
            Ok(broker.open(&broker.seal(spec)?, Activation::until(until))?)
        };
        let callers = (0..callers).map(|n| open(format!("caller-{n}"), 0)).collect::<Result<_, _>>()?;
        let stuck =
            (0..stuck).map(|n| open(format!("stuck-{n}"), 1 + n % providers)).collect::<Result<_, _>>()?;
        Ok(Node { pools, clients, callers, stuck })
    }

    fn queue(&self, provider: usize, session: &CapabilitySession, tenant: usize) -> Anything<Waiting> {
        let admission = self.pools.admit(&self.clients[provider], session)?;
        let mut wait = Box::pin(admission.wait());
        if poll(wait.as_mut()).is_ready() {
            return Err("somebody runs, so a newcomer waits".into());
        }
        Ok(Waiting { wait, tenant })
    }

    fn run(&self, provider: usize, session: &CapabilitySession) -> Anything<PoolCall> {
        let ready = self.pools.admit_now(&self.clients[provider], session)?;
        Ok(ready.dispatch(SEND, Cost::new())?)
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Nanoseconds per release, grant, start and new enqueue at the first provider.
fn measure(waiters: usize, tenants: usize, stuck_providers: usize, stuck_tenants: usize) -> Anything<f64> {
    const BATCHES: usize = 20;
    const ROUNDS: usize = 2_000;
    let node = Node::new(tenants, stuck_providers, stuck_tenants)?;
    let mut held = Vec::new();
    let mut stuck = Vec::new();
    for (number, session) in node.stuck.iter().enumerate() {
        let provider = 1 + number % stuck_providers;
        // The first at each provider runs and never ends; the others wait behind it.
        if number < stuck_providers {
            held.push(node.run(provider, session)?);
        } else {
            stuck.push(node.queue(provider, session, number)?);
        }
    }
    let mut running = node.run(0, &node.callers[0])?;
    let mut queue = VecDeque::new();
    for waiter in 0..waiters {
        let tenant = waiter % tenants;
        queue.push_back(node.queue(0, &node.callers[tenant], tenant)?);
    }
    // Tenants take turns from wherever the rotation stands: find out who is first.
    let mut best = f64::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            drop(running);
            let mut next = queue.pop_front().ok_or("nobody waits")?;
            let granted = loop {
                match poll(next.wait.as_mut()) {
                    Poll::Ready(granted) => break granted?,
                    Poll::Pending => {
                        queue.push_back(next);
                        next = queue.pop_front().ok_or("nobody waits")?;
                    }
                }
            };
            running = granted.dispatch(SEND, Cost::new())?;
            queue.push_back(node.queue(0, &node.callers[next.tenant], next.tenant)?);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
    }
    drop((running, queue, held, stuck));
    Ok(best)
}

fn main() -> Anything<()> {
    // Entered, not run: a task of tokio would be made to yield every now and then, and that is not what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _inside = runtime.enter();
    println!(
        "{:>8} {:>8} {:>16} {:>14} {:>9} {:>6}",
        "waiters", "tenants", "stuck providers", "stuck tenants", "ns/grant", "ratio"
    );
    let mut first = None;
    for (waiters, tenants, providers, stuck) in [
        (1, 1, 0, 0),
        (16, 16, 0, 0),
        (16, 16, 1, 1_000),
        (100, 1, 0, 0),
        (1_000, 1_000, 0, 0),
        (512, 512, 255, 510),
    ] {
        let nanos = measure(waiters, tenants, providers, stuck)?;
        let base = *first.get_or_insert(nanos);
        println!("{waiters:>8} {tenants:>8} {providers:>16} {stuck:>14} {nanos:>9.0} {:>6.2}", nanos / base);
    }
    Ok(())
}
