//! What the public interface cannot show: who keeps whom, and when memory goes (P3).
use super::epoch::EpochData;
use super::registry::Registry;
use super::*;
use crate::broker::io::IoRuntime;
use crate::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, IoLimits, Plan, PlanSpec,
    PoolLimits,
};
use crate::time::{Clock, Deadline};
use std::sync::{Arc, Weak};
use std::time::Duration;

static HTTP: Capability = Capability::new("latent:test/http", &["send"]);

#[derive(Debug)]
struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

struct Node {
    broker: Broker,
    io: IoRuntime,
    pools: ProviderPools,
}

/// What must be gone in the end.
struct Watched {
    registry: Weak<Registry>,
    data: Weak<EpochData>,
    client: Weak<client::ClientCore<Nothing>>,
}

impl Watched {
    fn of(client: &ProviderClient<Nothing>) -> Watched {
        Watched {
            registry: Arc::downgrade(client.core.registry()),
            data: Arc::downgrade(&client.core.epoch.data),
            client: Arc::downgrade(&client.core),
        }
    }
    /// Registry, data, client: which of them is still there.
    fn alive(&self) -> [bool; 3] {
        [self.registry.strong_count() > 0, self.data.strong_count() > 0, self.client.strong_count() > 0]
    }
}

impl Node {
    fn new() -> Node {
        let broker = Broker::with_clock(BrokerLimits::default(), Clock::tokio()).expect("valid");
        let io = IoRuntime::new(&broker, IoLimits::default()).expect("valid");
        let handle = tokio::runtime::Handle::current();
        let pools = ProviderPools::new(&broker, &io, handle, PoolLimits::default()).expect("valid");
        Node { broker, io, pools }
    }
    fn install(&self, epoch: u64) -> InstalledProvider {
        let setup = ProviderSetup::new("orders", "authority").epoch(epoch).credentials(b"secret");
        self.pools.install(setup, Epoch(epoch - 1)).expect("room")
    }
    fn open(&self, orders: &InstalledProvider) -> (ProviderClient<Nothing>, Plan, CapabilitySession) {
        let client = self.pools.client(orders, OriginSlot::new(0)).expect("room");
        let plan =
            self.broker.seal(PlanSpec::new("alpha", "p").bind(&HTTP, &orders.reference())).expect("current");
        let deadline = Deadline::after(Duration::from_secs(3600)).expect("in range");
        let session = self.broker.open(&plan, Activation::until(deadline)).expect("room");
        (client, plan, session)
    }
    fn call(&self, client: &ProviderClient<Nothing>, session: &CapabilitySession) -> PoolCall {
        let ready = self.pools.admit_now(client, session).expect("room");
        ready.dispatch(HTTP.operation(0), Cost::new()).expect("allowed")
    }
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn credentials_are_wiped() {
    let mut setup = ProviderSetup::new("orders", "authority").credentials(b"secret");
    assert_eq!(setup.credentials.bytes(), b"secret");
    setup.credentials.wipe();
    assert_eq!(setup.credentials.bytes(), [0; 6]);
}

/// Everything goes with the last handle, though a connection rested, one was in use, and nobody waited for the drain.
#[tokio::test(start_paused = true)]
async fn nothing_outlives_the_last_holder() {
    let node = Node::new();
    let orders = node.install(1);
    let (client, plan, session) = node.open(&orders);
    let watched = Watched::of(&client);
    let (first, second) = (node.call(&client, &session), node.call(&client, &session));
    let used = client.reserve_connection(&first).expect("room").connected(Nothing).expect("in time");
    let rests = client.reserve_connection(&second).expect("room").connected(Nothing).expect("in time");
    rests.park(Exchange::complete()).expect("room");
    drop((node, orders, first, second, plan, session));
    settle().await;
    // The connection keeps its client, which keeps the registry and the epoch.
    drop(client);
    settle().await;
    assert_eq!(watched.alive(), [true; 3]);
    drop(used);
    settle().await;
    assert_eq!(watched.alive(), [false; 3]);
}

/// A handle that is kept after the end keeps what it is a handle to, and no more; then that goes too.
#[tokio::test(start_paused = true)]
async fn handles_that_outlive_the_registry_keep_no_ring() {
    for kept in 0..3 {
        let node = Node::new();
        let orders = node.install(1);
        let (client, plan, session) = node.open(&orders);
        let watched = Watched::of(&client);
        drop(session);
        let left = node.pools.shutdown(Deadline::after(Duration::from_secs(1)).expect("in range")).await;
        assert!(left.is_clean(), "{left:?}");
        drop(node);
        let (mut orders, mut client, mut plan) = (Some(orders), Some(client), Some(plan));
        let expected = match kept {
            0 => {
                (client, plan) = (None, None);
                [false, true, false]
            }
            1 => {
                (orders, plan) = (None, None);
                [true; 3]
            }
            _ => {
                (orders, client) = (None, None);
                // A plan is no handle to the ground; the data of what it is bound to is its own.
                [false, true, false]
            }
        };
        settle().await;
        assert_eq!(watched.alive(), expected, "kept {kept}");
        drop((orders, client, plan));
        settle().await;
        assert_eq!(watched.alive(), [false; 3], "kept {kept}");
    }
}

/// An epoch that was replaced is freed when its last holder is gone, whoever that is, without another event.
#[tokio::test(start_paused = true)]
async fn a_replaced_epoch_is_freed_with_its_last_holder() {
    let node = Node::new();
    let mut orders = node.install(1);
    for last in 0..5 {
        let (client, plan, session) = node.open(&orders);
        let watched = Watched::of(&client);
        let call = node.call(&client, &session);
        let used = client.reserve_connection(&call).expect("room").connected(Nothing).expect("in time");
        let old = std::mem::replace(&mut orders, node.install(last + 2));
        drop(call);
        assert_eq!(node.pools.snapshot().retained_configurations, 2);
        match last {
            0 => {
                drop((plan, session, used, client));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(watched.alive()[1], "the handle keeps it");
                drop(old);
            }
            1 => {
                drop((plan, session, used, old));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(watched.alive()[1], "the client keeps it");
                drop(client);
            }
            2 => {
                drop((plan, session, client, old));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(node.pools.snapshot().retired_connections, 1);
                drop(used);
                // A connection's end is looked at at once.
                settle().await;
                assert!(!watched.alive()[2]);
            }
            3 => {
                drop((session, client, old, used));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(watched.alive(), [true, true, false], "the plan keeps its data");
                drop(plan);
            }
            _ => {
                drop((plan, client, old, used));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(watched.alive(), [true, true, false], "the session keeps the plan");
                drop(session);
            }
        }
        // It is looked for at growing intervals: at most as late again as it was kept.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(watched.alive(), [true, false, false], "last {last}");
        assert_eq!(node.pools.snapshot().retained_configurations, 1);
    }
    let left = node.pools.shutdown(Deadline::after(Duration::from_secs(1)).expect("in range")).await;
    assert!(left.is_clean() && node.io.snapshot().is_zero(), "{left:?}");
}

/// After the looks that follow a burst, the control task sleeps until something happens.
/// Case S32: nothing is kept warm, so nothing is made anew at rest.
#[tokio::test(start_paused = true)]
async fn an_idle_node_plans_no_look() {
    let node = Node::new();
    let orders = node.install(1);
    let (client, _plan, session) = node.open(&orders);
    drop(node.call(&client, &session));
    // The looks after the burst are over; from here on there is no timer at all: the next one is the test's own.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let looks = client.core.registry().events.looks();
    assert_eq!(client.core.registry().ground().floor.keeper.planned(), u64::MAX, "a deadline of the past");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(client.core.registry().events.looks(), looks);
    drop((session, client));
}
