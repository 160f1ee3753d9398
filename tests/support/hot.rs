//! What a request does on the hot path, one scenario for each way to go, on a small node. `no_alloc` counts blocks of the heap
//! in them, `realtime` lets a sanitizer look at everything that they call.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use latent_capabilities::broker::io::{IoRuntime, TransferOptions};
use latent_capabilities::broker::pools::{
    Acquired, ClientCounts, Epoch, EpochCounts, Exchange, OriginSlot, PoolCall, ProviderClient,
    ProviderCounts, ProviderPools, ProviderSetup, Resource, TenantCounts,
};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Budget, Capability, CapabilitySession, Cost, Dimension, IoLimits,
    Operation, Plan, PlanSpec, PoolLimits, Provider, ProviderSpec, StreamBudget, Terminal,
};
use latent_capabilities::{Clock, Deadline};

/// The one capability that there is.
pub static BYTES: Capability = Capability::new("latent:test/bytes", &["send"]);
/// A capability of a provider that has no pool.
pub static FILES: Capability = Capability::new("latent:test/files", &["read"]);
const READ: Operation = FILES.operation(0);
/// What the plans allow.
pub const SEND: Operation = BYTES.operation(0);

/// A connection without a socket.
#[derive(Debug)]
pub struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

/// Two requests run at once, one client has one connection, which rests, and two tenants may call.
#[derive(Debug)]
pub struct Node {
    pub broker: Broker,
    pub io: IoRuntime,
    pub pools: ProviderPools,
    pub client: ProviderClient<Nothing>,
    pub plan: Plan,
    pub other: Plan,
    /// Keeps its provider.
    pub files: Provider,
}

fn later() -> Deadline {
    Deadline::after(Duration::from_secs(600)).expect("in range")
}

impl Node {
    /// Inside of a runtime, to which it gives its control task.
    pub fn new() -> Node {
        let broker = Broker::with_clock(BrokerLimits::default(), Clock::system()).expect("valid");
        let io_limits = IoLimits { queue_wait: Duration::from_secs(5), ..IoLimits::default() };
        let io = IoRuntime::new(&broker, io_limits).expect("valid");
        let limits = PoolLimits {
            running: 2,
            running_per_tenant: 2,
            running_per_provider: 2,
            connections_per_client: 1,
            ..PoolLimits::default()
        };
        let pools =
            ProviderPools::new(&broker, &io, tokio::runtime::Handle::current(), limits).expect("valid");
        let orders = pools.install(ProviderSetup::new("orders", "authority"), Epoch::NONE).expect("room");
        let client = pools.client(&orders, OriginSlot::new(0)).expect("room");
        let files = broker.register(ProviderSpec::new("files")).expect("room");
        let seal = |tenant| {
            let spec = PlanSpec::new(tenant, "p");
            let spec = spec.bind(&BYTES, &orders.reference()).bind(&FILES, &files.reference());
            broker.seal(spec).expect("room")
        };
        let (plan, other) = (seal("alpha"), seal("beta"));
        let node = Node { broker, io, pools, client, plan, other, files };
        let session = node.session();
        let call = node.call(&session);
        let dial = node.client.reserve_connection(&call).expect("room");
        dial.connected(Nothing).expect("in time").park(Exchange::complete()).expect("room");
        drop((call, session));
        node
    }
    pub fn session(&self) -> CapabilitySession {
        self.session_of(&self.plan)
    }
    pub fn session_of(&self, plan: &Plan) -> CapabilitySession {
        let activation = Activation::until(later()).budget(Budget::OutboundRequests, 100);
        self.broker.open(plan, activation).expect("room")
    }
    pub fn call(&self, session: &CapabilitySession) -> PoolCall {
        let stream = StreamBudget::new(1 << 20, 1 << 20).expect("not zero");
        let ready = self.pools.admit_now(&self.client, session).expect("room");
        ready.dispatch(SEND, Cost::new().charge(Budget::OutboundRequests, 1).stream(stream)).expect("allowed")
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<F: Future>(future: std::pin::Pin<&mut F>, what: &str) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("{what} must be ready"),
    }
}

/// A name, and what is done under it. It leaves the node as it found it.
pub type Scenario = (&'static str, fn(&Node));

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("session open, check, stop, close", |node| {
        let session = node.session();
        session.check().expect("open");
        session.stop();
        session.close();
    }),
    ("admit_now, dispatch, release", |node| {
        let session = node.session();
        drop(node.call(&session));
    }),
    ("admit, wait at once, dispatch, release", |node| {
        let session = node.session();
        let mut wait = pin!(node.pools.admit(&node.client, &session).expect("room").wait());
        let granted = ready(wait.as_mut(), "an idle node's grant").expect("nobody waits");
        drop(granted.dispatch(SEND, Cost::new()).expect("allowed"));
    }),
    ("direct I/O: admit, wait, release", |node| {
        let session = node.session();
        let mut wait = pin!(node.io.admit(&session).expect("room").wait());
        drop(ready(wait.as_mut(), "an idle node's grant").expect("nobody waits"));
    }),
    ("admit, staged input, drop", |node| {
        let session = node.session();
        let admission = node.pools.admit(&node.client, &session).expect("room");
        let mut input = admission.input(4096, 64).expect("room");
        input.spare_mut(16).expect("staged").fill(1);
        input.advance_written(16).expect("within");
        drop(admission);
        drop(input);
    }),
    ("queued, granted by the turn that a drop runs", |node| {
        let session = node.session();
        let (one, two) = (node.call(&session), node.call(&session));
        let mut wait = pin!(node.pools.admit(&node.client, &session).expect("room").wait());
        assert!(poll(wait.as_mut()).is_pending());
        drop(one);
        let granted = ready(wait.as_mut(), "the freed unit").expect("granted");
        drop((granted, two));
    }),
    ("queued, cancelled by a drop", |node| {
        let session = node.session();
        let calls = (node.call(&session), node.call(&session));
        {
            let mut wait = pin!(node.pools.admit(&node.client, &session).expect("room").wait());
            assert!(poll(wait.as_mut()).is_pending());
        }
        drop(calls);
    }),
    ("queued, stopped by its session", |node| {
        let session = node.session();
        let calls = (node.call(&session), node.call(&session));
        let waiting = node.broker.open(&node.other, Activation::until(later()));
        drop(waiting);
        let mut wait = pin!(node.pools.admit(&node.client, &session).expect("room").wait());
        assert!(poll(wait.as_mut()).is_pending());
        session.stop();
        assert!(ready(wait.as_mut(), "a stopped wait").is_err());
        drop(calls);
    }),
    ("queued, expired", |node| {
        let session = node.session();
        let calls = (node.call(&session), node.call(&session));
        let soon = Deadline::after(Duration::from_millis(3)).expect("in range");
        let mut wait = pin!(node.pools.admit_until(&node.client, &session, soon).expect("room").wait());
        assert!(poll(wait.as_mut()).is_pending());
        std::thread::sleep(Duration::from_millis(25));
        assert!(ready(wait.as_mut(), "an expired wait").is_err());
        drop(calls);
    }),
    ("buffer: take, fill, retain, consume, drop", |node| {
        let session = node.session();
        let call = node.call(&session);
        let mut buffer = call.io().buffer(4096, 128).expect("room");
        buffer.spare_mut(4096).expect("staged").fill(7);
        buffer.advance_written(4096).expect("within");
        let mut result = buffer.retain().expect("allowed");
        result.consume(100).expect("within");
        assert_eq!(result.bytes().len(), 3996);
    }),
    ("stream: write and read, both sides parked once", |node| {
        let session = node.session();
        let call = node.call(&session);
        let (mut writer, mut reader) = call.io().stream(1).expect("room");
        let chunk = || {
            let mut chunk = call.io().buffer(512, 0).expect("room");
            chunk.spare_mut(8).expect("staged").fill(3);
            chunk.advance_written(8).expect("within");
            chunk.retain().expect("allowed")
        };
        {
            let mut read = pin!(reader.read());
            assert!(poll(read.as_mut()).is_pending());
            ready(pin!(writer.write(chunk())), "an empty ring").expect("open");
            assert!(ready(read.as_mut(), "a chunk").expect("open").is_some());
        }
        ready(pin!(writer.write(chunk())), "an empty ring").expect("open");
        {
            let mut write = pin!(writer.write(chunk()));
            assert!(poll(write.as_mut()).is_pending());
            assert!(ready(pin!(reader.read()), "a chunk").expect("open").is_some());
            ready(write.as_mut(), "a free place").expect("open");
        }
        writer.finish(Terminal::Eof);
        assert!(ready(pin!(reader.read()), "a chunk").expect("open").is_some());
        assert!(ready(pin!(reader.read()), "the end").expect("complete").is_none());
    }),
    ("transfer: chunks both ways, window full once", |node| {
        let session = node.session();
        let call = node.call(&session);
        let options = TransferOptions { chunk_bytes: 1024, outstanding: 1 };
        let transfer = call.io().transfer(options).expect("room");
        let sent = transfer.input(&[1; 100]).expect("room");
        let mut output = transfer.output_buffer(1024).expect("room");
        output.spare_mut(10).expect("room").fill(2);
        output.advance_written(10).expect("within");
        let received = output.finish().expect("not empty");
        {
            let mut room = pin!(transfer.output_ready());
            assert!(poll(room.as_mut()).is_pending());
            drop(received);
            ready(room.as_mut(), "a free place").expect("open");
        }
        drop(sent);
    }),
    ("wait_for: parked, then done; and stopped", |node| {
        let session = node.session();
        let call = node.call(&session);
        let mut polls = 0;
        let slow = std::future::poll_fn(|_| {
            polls += 1;
            if polls < 3 { Poll::Pending } else { Poll::Ready(polls) }
        });
        let mut waited = pin!(call.io().wait_for(slow));
        assert!(poll(waited.as_mut()).is_pending());
        assert!(poll(waited.as_mut()).is_pending());
        assert_eq!(ready(waited.as_mut(), "the third poll").expect("in time"), 3);
        let mut stopped = pin!(call.io().wait_for(std::future::pending::<()>()));
        assert!(poll(stopped.as_mut()).is_pending());
        session.stop();
        assert!(ready(stopped.as_mut(), "a stopped wait").is_err());
    }),
    ("checkout, park, acquire", |node| {
        let session = node.session();
        let call = node.call(&session);
        let connection = node.client.checkout(&call).expect("allowed").expect("one rests");
        {
            let other = node.call(&session);
            let mut acquire = pin!(node.client.acquire(&other));
            // The client has one connection and it is in use: the second one waits for it.
            assert!(poll(acquire.as_mut()).is_pending());
            connection.park(Exchange::complete()).expect("room");
            match ready(acquire.as_mut(), "a parked connection").expect("handed over") {
                Acquired::Idle(connection) => connection.park(Exchange::complete()).expect("room"),
                Acquired::Dial(_) => panic!("the client's only connection exists"),
            }
        }
    }),
    ("direct I/O: dispatch, start, scratch, stopped by its handle", |node| {
        let session = node.session();
        let accepted = session.dispatch(READ, Cost::new()).expect("allowed");
        let call = node.io.admit_now(&session).expect("room").start(accepted).expect("in time");
        let scratch = call.reserve_scratch(1024, 16).expect("room");
        let held = call.hold();
        call.checkpoint().expect("it goes on");
        call.stop_handle().stop();
        assert!(call.checkpoint().is_err());
        drop((call, scratch, held));
    }),
    ("session: resource table, observer, stopped by its handle", |node| {
        let session = node.session();
        let table = session.reserve_resource_table(4096).expect("room");
        let observer = session.observer();
        session.stop_handle().stop();
        assert!(session.check().is_err());
        drop((session, table));
        assert!(observer.is_quiescent());
    }),
    ("stream: closed with a chunk in it; a writer that is dropped", |node| {
        let session = node.session();
        let call = node.call(&session);
        let chunk = || {
            let mut chunk = call.io().buffer(512, 0).expect("room");
            chunk.spare_mut(8).expect("staged").fill(3);
            chunk.advance_written(8).expect("within");
            chunk
        };
        let (mut writer, reader) = call.io().stream(2).expect("room");
        assert!(writer.try_write(chunk()).is_ok());
        reader.close();
        assert!(writer.try_write(chunk()).is_err());
        let (writer, mut reader) = call.io().stream(2).expect("room");
        drop(writer);
        assert!(matches!(reader.try_read(), Poll::Ready(Err(_))));
        assert_eq!(reader.terminal(), Some(Terminal::Uncertain));
    }),
    ("a follow-up of a call", |node| {
        let session = node.session();
        let call = node.call(&session);
        let next = node.pools.admit_followup(&node.client, &call).expect("room");
        drop(call);
        let mut wait = pin!(next.wait());
        let granted = ready(wait.as_mut(), "an idle node's grant").expect("nobody waits");
        drop(granted.dispatch(SEND, Cost::new()).expect("allowed"));
    }),
    ("snapshots", |node| {
        let counts = (node.broker.snapshot(), node.io.snapshot(), node.pools.snapshot());
        assert_eq!(counts.2.connections, 1);
    }),
    ("figures", |node| {
        let figures = node.pools.figures();
        assert!(figures.grants > 0 && figures.operations > figures.grants);
        assert_eq!(figures.refusals(Dimension::PoolsRunning), 0);
        assert!(figures.queue_age.count() > 0 && figures.queue_age.quantile(500).is_some());
    }),
    ("a refusal", |node| {
        let session = node.session();
        let calls = (node.call(&session), node.call(&session));
        assert!(node.pools.admit_now(&node.client, &session).is_err());
        drop(calls);
    }),
];

/// For operators, who may have to wait for each other: it takes a lock, but no memory.
pub const LISTINGS: Scenario = ("counts by tenant, by provider, by epoch, by client", |node| {
    let mut tenants: [TenantCounts; 4] = Default::default();
    let mut providers: [ProviderCounts; 2] = Default::default();
    let mut epochs: [EpochCounts; 2] = Default::default();
    let mut clients: [ClientCounts; 2] = Default::default();
    assert_eq!(node.pools.tenants(&mut tenants).total, 2);
    assert_eq!(node.pools.providers(&mut providers).total, 1);
    assert_eq!(node.pools.epochs(&mut epochs).total, 1);
    assert_eq!(node.pools.clients(&mut clients).total, 1);
    assert_eq!((&*tenants[1].name, epochs[0].connections, clients[0].connections), ("beta", 1, 1));
});
