//! What the library makes (one task, and nothing else of the system's), what its destructors do (memory only), and what
//! those who wait cost (no time).
//!
//! One test in one binary: threads, descriptors, system calls and processor time are of the whole process.
#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::time::Duration;

use latent_capabilities::*;
use rustix::time::{ClockId, clock_gettime};
use support::process::Process;

static HTTP: Capability = Capability::new("latent:test/http", &["send"]);
const SEND: Operation = HTTP.operation(0);

/// Requests that wait in line at once.
const WAITERS: usize = 1_000;

#[derive(Debug)]
struct Socket;

impl Resource for Socket {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

struct Node {
    broker: Broker,
    io: IoRuntime,
    pools: ProviderPools,
    client: ProviderClient<Socket>,
    plan: Plan,
}

/// What of the system this process has: threads, descriptors, tasks of the runtime.
fn made() -> (u64, usize, usize) {
    let this = Process::this();
    (this.threads(), this.descriptors(), tokio::runtime::Handle::current().metrics().num_alive_tasks())
}

fn limits() -> (IoLimits, PoolLimits) {
    let many = 1024;
    let io = IoLimits { owners: 2048, queued: many, ..IoLimits::default() };
    let pools = PoolLimits {
        pending: many,
        running: 4,
        running_per_tenant: 4,
        running_per_provider: 4,
        requests_per_tenant: many,
        requests_per_provider: many,
        queue_age: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    (io, pools)
}

fn node() -> Node {
    let (io_limits, pool_limits) = limits();
    let before = made();
    let broker = Broker::new(BrokerLimits::default()).expect("valid");
    let io = IoRuntime::new(&broker, io_limits).expect("valid");
    assert_eq!(made(), before, "the I/O runtime makes no thread, descriptor or task");
    let handle = tokio::runtime::Handle::current();
    let pools = ProviderPools::new(&broker, &io, handle, pool_limits).expect("valid");
    let (threads, descriptors, tasks) = before;
    assert_eq!(made(), (threads, descriptors, tasks + 1), "the registry makes one task");
    let setup = ProviderSetup::new("orders", "authority").credentials(b"secret");
    let orders = pools.install(setup, Epoch::NONE).expect("room");
    let client = pools.client(&orders, OriginSlot::new(0)).expect("room");
    let plan = broker.seal(PlanSpec::new("alpha", "p").bind(&HTTP, &orders.reference())).expect("current");
    assert_eq!(made(), (threads, descriptors, tasks + 1), "a provider and its client make nothing");
    Node { broker, io, pools, client, plan }
}

impl Node {
    fn session(&self) -> CapabilitySession {
        let deadline = Deadline::after(Duration::from_secs(300)).expect("in range");
        self.broker.open(&self.plan, Activation::until(deadline)).expect("room")
    }
    async fn call(&self, session: &CapabilitySession) -> PoolCall {
        let ready = self.pools.admit(&self.client, session).expect("room").wait().await.expect("its turn");
        ready.dispatch(SEND, Cost::new()).expect("allowed")
    }
}

/// Reads and writes that this process has asked the system for. The look itself is some of them.
fn reads_and_writes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").expect("the kernel counts input and output");
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a known line");
        line.trim().parse::<u64>().expect("a number")
    };
    value("syscr:") + value("syscw:")
}

/// Everything that a request can leave behind, dropped in one go: nothing is read, written, spawned or waited for
/// (io.21, io.69, io.70, S58).
async fn destructors_free_memory_and_do_nothing_else(node: &Node) {
    let mut waits = Vec::new();
    for _ in 0..5 {
        let session = node.session();
        let call = node.call(&session).await;
        let (mut writer, reader) = call.io().stream(4).expect("room");
        for byte in 0..3_u8 {
            let mut chunk = call.io().buffer(4096, 16).expect("room");
            chunk.spare_mut(4096).expect("it goes on").fill(byte);
            chunk.advance_written(4096).expect("it fits");
            writer.write(chunk).await.expect("room");
        }
        let result = call.io().buffer(512, 0).expect("room").retain().expect("room");
        let connection =
            node.client.reserve_connection(&call).expect("room").connected(Socket).expect("in time");
        let staged = node.pools.admit(&node.client, &session).expect("room").input(512, 0).expect("room");
        let (before, waited) = (made(), Process::this().switches().voluntary);
        let alone = {
            let first = reads_and_writes();
            reads_and_writes() - first
        };
        let first = reads_and_writes();
        drop((session, writer, reader, result, connection, staged, call));
        let with_drops = reads_and_writes() - first;
        waits.push(Process::this().switches().voluntary - waited);
        assert_eq!(with_drops, alone, "a destructor reads or writes");
        assert_eq!(made(), before, "a destructor makes or spawns something");
        assert!(node.io.snapshot().is_zero());
    }
    // The kernel may put a process to sleep for reasons of its own, but not every time.
    assert_eq!(waits.iter().min(), Some(&0), "a destructor waits: {waits:?}");
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A thousand requests wait, and whoever waits does nothing (io.3, io.14, S16). When they are through, nothing goes on (S18).
async fn waiters_cost_no_time(node: &Node) {
    let before = made();
    let sessions: Vec<_> = (0..WAITERS.div_ceil(32)).map(|_| node.session()).collect();
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(node.call(&sessions[0]).await);
    }
    let waiting: Vec<_> = (0..WAITERS)
        .map(|number| {
            // The first session has its four calls besides.
            let session = &sessions[(number + 4) / 32 % sessions.len()];
            node.pools.admit(&node.client, session).expect("room to wait").wait()
        })
        .map(tokio::spawn)
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(node.pools.snapshot().pending_requests, WAITERS as u64);
    let spent = at_rest().await;
    assert!(spent < Duration::from_millis(5), "{WAITERS} waiters cost {spent:?} in a second");
    let (threads, descriptors, tasks) = before;
    assert_eq!(made(), (threads, descriptors, tasks + WAITERS), "no task but the test's own");
    drop(running);
    for wait in waiting {
        drop(wait.await.expect("no panic").expect("its turn"));
    }
    drop(sessions);
    assert!(node.io.snapshot().is_zero() && node.pools.snapshot().is_idle());
    let spent = at_rest().await;
    assert!(spent < Duration::from_millis(5), "after the burst a second costs {spent:?}");
    assert_eq!(made(), before);
}

/// Processor time of a second in which nobody does anything: the best of three, as a machine has other things to do too.
async fn at_rest() -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let before = processor_time();
        tokio::time::sleep(Duration::from_secs(1)).await;
        best = best.min(processor_time() - before);
        if best < Duration::from_millis(5) {
            break;
        }
    }
    best
}

/// io.2, io.3, io.14, io.21, io.69, io.70, pools.2, pools.3; cases S16 (a full pool is at rest), S18 (and so is one after a
/// burst), S58 (no destructor spawns, waits, reads or writes).
#[test]
fn one_task_no_thread_no_descriptor_and_nobody_is_busy() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let node = node();
        destructors_free_memory_and_do_nothing_else(&node).await;
        waiters_cost_no_time(&node).await;
        let deadline = Deadline::after(Duration::from_secs(10)).expect("in range");
        let left = node.pools.shutdown(deadline).await;
        assert!(left.is_clean(), "{left:?}");
        tokio::task::yield_now().await;
        assert_eq!(made().2, 0, "the one task has ended");
    });
}
