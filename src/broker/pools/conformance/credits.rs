//! Credits: what operations leave for the next, which nobody can tell but by how fast it goes.
use super::support::*;
use std::sync::Barrier;
use std::time::Instant;

fn to_run(running: u32) -> PoolLimits {
    PoolLimits {
        running,
        running_per_tenant: running,
        running_per_provider: running,
        ..PoolLimits::default()
    }
}

/// One unit for everybody, so that whatever lies about is in somebody's way.
fn narrow() -> (Node, InstalledProvider, ProviderClient<Socket>) {
    let node = Node::new(to_run(1));
    let orders = node.install("orders", 1, 0);
    let client = node.client(&orders);
    (node, orders, client)
}

fn floor_says(node: &Node) -> (u32, u64) {
    node.pools.registry().ground().floor.credits_lie_about()
}

fn run_once(node: &Node, client: &ProviderClient<Socket>, session: &CapabilitySession) {
    let ready = node.pools.admit_now(client, session).expect("nobody else runs");
    drop(ready.dispatch(SEND, Cost::new()).expect("allowed"));
}

/// Until credits are lent and one lies about.
fn until_lent(node: &Node, client: &ProviderClient<Socket>, session: &CapabilitySession) {
    for _ in 0..10_000 {
        if floor_says(node).0 > 0 {
            return;
        }
        run_once(node, client, session);
    }
    panic!("no credit was left in ten thousand operations");
}

#[tokio::test]
async fn what_lies_about_is_in_nobodys_way() {
    let (node, orders, client) = narrow();
    let sessions = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    for round in 0..3 {
        let [mine, theirs] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        until_lent(&node, &client, &sessions[mine]);
        // At once, and in line.
        run_once(&node, &client, &sessions[theirs]);
        assert_eq!(floor_says(&node).0, 0, "it was recalled");
        until_lent(&node, &client, &sessions[mine]);
        let admission = node.pools.admit(&client, &sessions[theirs]).expect("there is room");
        drop(admission.wait().await.expect("nobody else runs"));
    }
}

#[tokio::test]
async fn what_lies_about_is_not_counted() {
    let (node, orders, client) = narrow();
    let session = node.session(&node.plan("alpha", &orders));
    until_lent(&node, &client, &session);
    node.assert_idle();
    until_lent(&node, &client, &session);
    let mut tenants: [_; 2] = Default::default();
    assert_eq!(node.pools.tenants(&mut tenants).written, 1);
    assert_eq!((tenants[0].requests, tenants[0].running_requests), (0, 0));
    until_lent(&node, &client, &session);
    let most = node.pools.figures();
    assert_eq!(most.high_water(Dimension::PoolsRunning), Some(1));
    assert_eq!(most.high_water(Dimension::IoOwners), Some(1));
}

#[tokio::test]
async fn limits_are_lowered_past_what_lies_about() {
    let node = Node::new(PoolLimits { running_per_tenant: 2, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let hold = |count: usize| -> Vec<_> {
        let admit = |_| node.pools.admit_now(&client, &session).expect("there is room");
        (0..count).map(admit).map(|ready| ready.dispatch(SEND, Cost::new()).expect("allowed")).collect()
    };
    drop(hold(2));
    until_lent(&node, &client, &session);
    drop(hold(2));
    assert_eq!(floor_says(&node).0, 2);
    node.pools
        .lower_limits(PoolLimits { running_per_tenant: 1, ..node.pools.limits() })
        .expect("none is in use");
    let one = hold(1);
    assert_full(node.pools.admit_now(&client, &session), Dimension::PoolsRunningPerTenant, Scope::Tenant(0));
    drop(one);
}

#[tokio::test]
async fn a_shutdown_is_clean_with_something_lying_about() {
    let (node, orders, client) = narrow();
    let session = node.session(&node.plan("alpha", &orders));
    until_lent(&node, &client, &session);
    drop((session, client, orders));
    let left = node.pools.shutdown(within(Duration::from_secs(5))).await;
    assert!(left.is_clean(), "{left:?}");
    assert!(node.io.snapshot().is_zero());
    assert_eq!(floor_says(&node).0, 0);
}

#[tokio::test]
async fn the_next_epoch_takes_what_the_last_one_left() {
    let (node, orders, client) = narrow();
    let session = node.session(&node.plan("alpha", &orders));
    until_lent(&node, &client, &session);
    let next = node.install("orders", 2, 1);
    assert_kind(node.pools.admit_now(&client, &session), Kind::Retired(What::Epoch));
    let client = node.client::<Socket>(&next);
    let session = node.session(&node.plan("alpha", &next));
    run_once(&node, &client, &session);
    until_lent(&node, &client, &session);
    node.assert_idle();
}

/// Threads that end operations while others are refused, count, and lower: each admission is right, and no more run than may.
#[test]
fn threads_that_leave_take_and_recall_lose_nothing() {
    const THREADS: usize = 4;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let node = Node::new(to_run(3));
    let orders = node.install("orders", 1, 0);
    let client: ProviderClient<Socket> = node.client(&orders);
    let plans: Vec<_> = (0..THREADS).map(|n| node.plan(&format!("tenant-{}", n % 3), &orders)).collect();
    let (runs, most, begun) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(THREADS));
    let until = Instant::now() + ms(300);
    std::thread::scope(|scope| {
        for plan in &plans {
            scope.spawn(|| {
                let session = node.session(plan);
                begun.wait();
                let mut turns = 0_u32;
                while Instant::now() < until {
                    turns += 1;
                    if let Ok(ready) = node.pools.admit_now(&client, &session) {
                        most.fetch_max(runs.fetch_add(1, SeqCst) + 1, SeqCst);
                        let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
                        runs.fetch_sub(1, SeqCst);
                        drop(call);
                    }
                    if turns.is_multiple_of(1_000) {
                        let now = node.counts();
                        assert!(now.running_requests <= 3 && now.pending_requests == 0, "{now:?}");
                    }
                }
            });
        }
    });
    assert!((1..=3).contains(&most.load(SeqCst)));
    node.assert_idle();
}
