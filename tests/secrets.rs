//! The end of a replaced epoch: the last request that holds it frees nothing, and its credentials are zero before their memory
//! is given back.
//!
//! One test in one binary: the window counts all threads, the runner's too.
#[path = "support/mod.rs"]
mod support;

use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{
    Epoch, EpochCounts, InstalledProvider, OriginSlot, PoolCall, PooledConnection, ProviderPools,
    ProviderSetup, Resource,
};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, IoLimits, PlanSpec, PoolLimits,
};
use latent_capabilities::{Clock, Deadline};
use std::time::Duration;
use support::alloc::{Counts, Whose, Window};
use support::secret::{SECRET, Searching, freed};

#[global_allocator]
static ALLOCATOR: Searching = Searching;

static BYTES: Capability = Capability::new("latent:test/bytes", &["send"]);

#[derive(Debug)]
struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

/// What a request holds of an epoch: its session, and with it the plan; its call; a connection.
type Holders = (PooledConnection<Nothing>, PoolCall, CapabilitySession);

fn install(pools: &ProviderPools, epoch: u64) -> InstalledProvider {
    let setup = ProviderSetup::new("orders", "authority").epoch(epoch).credentials([0xa5_u8; SECRET]);
    pools.install(setup, Epoch(epoch - 1)).expect("room")
}

/// A request on that epoch. Every handle of the control path is gone when this returns.
fn request(broker: &Broker, pools: &ProviderPools, orders: InstalledProvider) -> Holders {
    let client = pools.client::<Nothing>(&orders, OriginSlot::new(0)).expect("room");
    let plan = broker.seal(PlanSpec::new("alpha", "p").bind(&BYTES, &orders.reference())).expect("current");
    let deadline = Deadline::after(Duration::from_secs(600)).expect("in range");
    let session = broker.open(&plan, Activation::until(deadline)).expect("room");
    let ready = pools.admit_now(&client, &session).expect("room");
    let call = ready.dispatch(BYTES.operation(0), Cost::new()).expect("allowed");
    let connection = client.reserve_connection(&call).expect("room").connected(Nothing).expect("in time");
    (connection, call, session)
}

async fn until_listed(pools: &ProviderPools, wanted: &[Epoch]) {
    let mut list = [EpochCounts::default(), EpochCounts::default(), EpochCounts::default()];
    for _ in 0..10_000 {
        let written = pools.epochs(&mut list).written;
        if list[..written].iter().map(|counts| counts.epoch).eq(wanted.iter().copied()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the epochs are {list:?}, not {wanted:?}");
}

#[test]
fn the_last_request_of_an_epoch_frees_nothing_and_its_credentials_are_wiped_before_they_are_freed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let inside = runtime.enter();
    let broker = Broker::with_clock(BrokerLimits::default(), Clock::system()).expect("valid");
    let io = IoRuntime::new(&broker, IoLimits::default()).expect("valid");
    let handle = runtime.handle().clone();
    let pools = ProviderPools::new(&broker, &io, handle, PoolLimits::default()).expect("valid");
    let mut current = install(&pools, 1);
    for epoch in 2..6 {
        let (connection, call, session) = request(&broker, &pools, current);
        current = install(&pools, epoch);
        // The control task has looked, and found that somebody keeps the old one.
        runtime.block_on(until_listed(&pools, &[Epoch(epoch - 1), Epoch(epoch)]));
        runtime.block_on(tokio::time::sleep(Duration::from_millis(5)));
        assert_eq!(freed(), (epoch - 2, 0), "a request holds it");

        let window = Window::open(Whose::AllThreads);
        drop(connection);
        drop(call);
        drop(session);
        let counts = window.close();
        // The first ends warm what is made once.
        if epoch > 3 {
            assert_eq!(counts, Counts::NONE, "the last holder of epoch {}", epoch - 1);
        }
        assert_eq!(freed(), (epoch - 2, 0), "nothing is freed by a request");

        runtime.block_on(until_listed(&pools, &[Epoch(epoch)]));
        assert_eq!(freed(), (epoch - 1, 0), "the control task freed it, all zero");
    }
    let last = Deadline::after(Duration::from_secs(10)).expect("in range");
    drop(current);
    let left = runtime.block_on(pools.shutdown(last));
    assert!(left.is_clean(), "{left:?}");
    drop((pools, io, broker));
    drop(inside);
    drop(runtime);
    assert_eq!(freed(), (5, 0), "with the registry everything is gone");
}
