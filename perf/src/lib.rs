//! What the counting benches stand on: nodes that are warm and in a known state, and nothing that allocates by itself.
//!
//! `benches/hot.rs` counts the instructions of one operation each; `check.sh` compares them with `figures.txt`.

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use latent_capabilities::Deadline;
use latent_capabilities::broker::io::{IoBuffer, IoRuntime, IoStreamReader, IoStreamWriter};
use latent_capabilities::broker::pools::{
    Epoch, Exchange, InstalledProvider, OriginSlot, PoolCall, PoolWait, ProviderClient, ProviderPools,
    ProviderSetup, Resource,
};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, IoLimits, Operation, Plan,
    PlanSpec, PoolLimits,
};
use tokio::runtime::{EnterGuard, Runtime};

/// What the benches call.
pub static BYTES: Capability = Capability::new("latent:perf/bytes", &["send"]);

/// Its one operation.
pub const SEND: Operation = BYTES.operation(0);

/// Bytes of one chunk.
pub const CHUNK: usize = 4096;

/// A connection that is nothing: the pool's own work is all there is to count.
#[derive(Debug)]
pub struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

/// A provider with its one client.
#[derive(Debug)]
pub struct Provider {
    /// The epoch.
    pub installed: InstalledProvider,
    /// The client of its first origin.
    pub client: ProviderClient<Nothing>,
}

/// A node with two providers, `fast` and `slow`, and one session of a first tenant.
///
/// The executor of its control task is driven once, so that the task serves deadlines, and never again: nothing but the bench
/// runs.
#[derive(Debug)]
pub struct Node {
    /// The first tenant's session. Fields are dropped in this order.
    pub session: CapabilitySession,
    /// The provider that answers.
    pub fast: Provider,
    /// The provider that does not.
    pub slow: Provider,
    /// The pools.
    pub pools: ProviderPools,
    /// The runtime.
    pub io: IoRuntime,
    /// The broker.
    pub broker: Broker,
    _inside: EnterGuard<'static>,
}

/// Unwraps; a bench that cannot be prepared has nothing to count.
///
/// # Panics
///
/// On an error.
#[track_caller]
pub fn must<T, E: Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("the bench cannot be prepared: {error:?}"))
}

/// Polls a future of the library once.
pub fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

impl Node {
    /// A node with every limit at its ceiling but `running_per_provider`.
    pub fn new(running_per_provider: u32) -> Self {
        // For the rest of the process.
        let executor = must(tokio::runtime::Builder::new_current_thread().enable_time().build());
        let executor: &'static Runtime = Box::leak(Box::new(executor));
        let _inside = executor.enter();
        let broker = must(Broker::new(BrokerLimits::ceilings()));
        let io = must(IoRuntime::new(&broker, IoLimits::ceilings()));
        let limits = PoolLimits { running_per_provider, ..PoolLimits::ceilings() };
        let pools = must(ProviderPools::new(&broker, &io, executor.handle().clone(), limits));
        executor.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        let provider = |name| {
            let installed = must(pools.install(ProviderSetup::new(name, "perf"), Epoch::NONE));
            let client = must(pools.client(&installed, OriginSlot::new(0)));
            Provider { installed, client }
        };
        let (fast, slow) = (provider("fast"), provider("slow"));
        let plan = plan(&broker, "first", &fast);
        let session = must(broker.open(&plan, until_later()));
        Self { session, fast, slow, pools, io, broker, _inside }
    }

    /// The same after one call of each kind, so that nothing is counted that happens only once.
    pub fn warm() -> Self {
        let node = Self::new(PoolLimits::ceilings().running_per_provider);
        for _ in 0..5 {
            drop(node.call());
            match poll(pin!(must(node.pools.admit(&node.fast.client, &node.session)).wait())) {
                Poll::Ready(ready) => drop(must(must(ready).dispatch(SEND, Cost::new()))),
                Poll::Pending => panic!("nobody waits in front"),
            }
            let call = node.call();
            must(
                must(must(node.fast.client.reserve_connection(&call)).connected(Nothing))
                    .park(Exchange::complete()),
            );
            let mut chunk = must(call.io().buffer(CHUNK, 0));
            fill(&mut chunk);
            drop(must(chunk.retain()));
            let call = node.call();
            drop(must(node.fast.client.checkout(&call)));
            let open = must(node.fast.client.reserve_connection(&call));
            must(must(open.connected(Nothing)).park(Exchange::complete()));
        }
        // Enough that credits are lent, however often they were recalled until now, and that some of each kind lie about.
        for _ in 0..5_000 {
            drop(node.call());
        }
        for _ in 0..3 {
            match poll(pin!(must(node.pools.admit(&node.fast.client, &node.session)).wait())) {
                Poll::Ready(ready) => drop(must(must(ready).dispatch(SEND, Cost::new()))),
                Poll::Pending => panic!("nobody waits in front"),
            }
        }
        node
    }

    /// A warm node whose credits were recalled, as by whoever counts: everybody works on the words alone.
    pub fn recalled() -> Self {
        let node = Self::warm();
        let _counts = node.io.snapshot();
        node
    }

    /// A warm node on which threads of their own tenants, which are gone, have left what they ran with: more than ever was in use
    /// at once.
    pub fn after_others() -> Self {
        let node = Self::warm();
        let calls = || (0..5_000).for_each(|_| drop(node.call()));
        let session = |number| {
            let plan = plan(&node.broker, &format!("tenant-{number}"), &node.fast);
            must(node.broker.open(&plan, until_later()))
        };
        let sessions: Vec<_> = (0..16).map(session).collect();
        // Whoever seals a plan recalls the credits.
        calls();
        let (pools, client) = (&node.pools, &node.fast.client);
        for session in &sessions {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let ready = must(pools.admit_now(client, session));
                    drop(must(ready.dispatch(SEND, Cost::new())));
                });
            });
        }
        calls();
        drop(sessions);
        node
    }

    /// A node on which one request of each of `tenants` tenants waits for the slow provider, which stalls. Nobody uses the fast one.
    pub fn beside_waiters(tenants: usize) -> Self {
        let node = Self::new(1);
        // They stay as they are until the process ends.
        std::mem::forget(node.stall(tenants));
        for _ in 0..3 {
            drop(node.call());
        }
        node
    }

    /// Lets the slow provider stall, and one request of each of `tenants` tenants wait for it until the process ends.
    fn stall(&self, tenants: usize) -> Vec<CapabilitySession> {
        let session = |tenant| {
            let plan = plan(&self.broker, &format!("blocked-{tenant}"), &self.slow);
            must(self.broker.open(&plan, until_later()))
        };
        let sessions: Vec<_> = (0..=tenants).map(session).collect();
        let ready = must(self.pools.admit_now(&self.slow.client, &sessions[0]));
        std::mem::forget(must(ready.dispatch(SEND, Cost::new())));
        for session in &sessions[1..] {
            let mut wait = Box::pin(must(self.pools.admit(&self.slow.client, session)).wait());
            assert!(poll(wait.as_mut()).is_pending(), "the slow provider stalls");
            std::mem::forget(wait);
        }
        sessions
    }

    /// A running call of the first session to the fast provider.
    pub fn call(&self) -> PoolCall {
        let ready = must(self.pools.admit_now(&self.fast.client, &self.session));
        must(ready.dispatch(SEND, Cost::new()))
    }
}

/// An activation that ends long after the bench.
pub fn until_later() -> Activation {
    Activation::until(must(Deadline::after(Duration::from_secs(3600))))
}

/// A plan of `tenant` for one provider.
pub fn plan(broker: &Broker, tenant: &str, provider: &Provider) -> Plan {
    must(broker.seal(PlanSpec::new(tenant, "perf").bind(&BYTES, &provider.installed.reference())))
}

/// Fills a buffer with a chunk.
pub fn fill(buffer: &mut IoBuffer) {
    must(buffer.spare_mut(CHUNK)).fill(7);
    must(buffer.advance_written(CHUNK));
}

/// A running call that holds the only running unit of its provider, and others that wait for it.
#[derive(Debug)]
pub struct Queue {
    /// The call that runs; taken out by the bench.
    pub running: Option<PoolCall>,
    /// In the order of their turns.
    pub waiting: Vec<Pin<Box<PoolWait>>>,
    sessions: Vec<CapabilitySession>,
    /// What they stand on.
    pub node: Node,
}

impl Queue {
    /// `waiters` requests of the first tenant wait behind one that runs.
    pub fn of_one_tenant(waiters: usize) -> Self {
        Self::behind(Node::new(1), waiters)
    }

    /// Two requests wait for the fast provider, and one of each of `tenants` tenants for the slow one, which stalls.
    pub fn beside_blocked(tenants: usize) -> Self {
        let node = Node::new(1);
        let mut sessions = node.stall(tenants);
        let mut queue = Self::behind(node, 2);
        queue.sessions.append(&mut sessions);
        queue
    }

    fn behind(node: Node, waiters: usize) -> Self {
        let per_session = BrokerLimits::ceilings().calls_per_session as usize - 1;
        let plan = plan(&node.broker, "first", &node.fast);
        let sessions: Vec<_> =
            (0..=waiters / per_session).map(|_| must(node.broker.open(&plan, until_later()))).collect();
        let running = Some(node.call());
        // Three more than asked for: they are granted here, so that the line is warm.
        let waiting = (0..waiters + 3)
            .map(|number| {
                let session = if number < 3 { &node.session } else { &sessions[(number - 3) / per_session] };
                let mut wait = Box::pin(must(node.pools.admit(&node.fast.client, session)).wait());
                assert!(poll(wait.as_mut()).is_pending(), "the provider's running unit is taken");
                wait
            })
            .collect();
        let mut queue = Self { running, waiting, sessions, node };
        for _ in 0..3 {
            drop(queue.running.take());
            queue.start_next();
        }
        queue
    }

    /// Starts the request whose turn has come.
    pub fn start_next(&mut self) {
        let mut next = self.waiting.remove(0);
        match poll(next.as_mut()) {
            Poll::Ready(ready) => self.running = Some(must(must(ready).dispatch(SEND, Cost::new()))),
            Poll::Pending => panic!("the release granted nobody"),
        }
    }
}

/// A call with a stream, both ends, and a filled chunk.
#[derive(Debug)]
pub struct Stream {
    /// The writing end.
    pub writer: IoStreamWriter,
    /// The reading end.
    pub reader: IoStreamReader,
    /// What is to be written.
    pub chunk: Option<IoBuffer>,
    /// What was read.
    pub delivered: Option<IoBuffer>,
    /// The call.
    pub call: PoolCall,
    /// What it stands on.
    pub node: Node,
}

impl Stream {
    /// A stream that has carried a few chunks, with one more to write.
    pub fn warm() -> Self {
        let node = Node::warm();
        let call = node.call();
        let (writer, reader) = must(call.io().stream(8));
        let mut stream = Self { writer, reader, chunk: None, delivered: None, call, node };
        for _ in 0..20 {
            stream.load();
            stream.pass();
        }
        stream.load();
        stream
    }

    fn load(&mut self) {
        let mut buffer = must(self.call.io().buffer(CHUNK, 0));
        fill(&mut buffer);
        self.chunk = Some(must(buffer.retain()));
        self.delivered = None;
    }

    /// Writes the chunk and reads it.
    pub fn pass(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            must(self.writer.try_write(chunk));
        }
        match self.reader.try_read() {
            Poll::Ready(read) => self.delivered = must(read),
            Poll::Pending => panic!("what was written can be read"),
        }
    }
}
