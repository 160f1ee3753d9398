//! Everything at its worst: limits of one, broken accounting, what nobody does on purpose.
use super::jobs::{Scene, one_worker};
use super::poll::poll_once;
use super::support::*;

/// Broken accounting closes every door for good, wakes whoever waits, and no report is clean any more.
#[test]
#[cfg(not(miri))]
fn broken_accounting_closes_admission_for_good() {
    let name = "broker::pools::conformance::hostile::broken_accounting_closes_admission_for_good";
    crate::broken::in_a_process_of_its_own(name, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
        runtime.block_on(broken_under_a_node());
    });
}

async fn broken_under_a_node() {
    let limits = PoolLimits {
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        // The planted panic prints a backtrace, which takes long in a sanitized build.
        queue_age: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    let node = Node::new(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let plan = node.plan("alpha", &orders);
    let session = node.session(&plan);
    let call = node.call(&client, &session);
    let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());

    let broke = std::panic::catch_unwind(|| crate::broken::accounting("planted"));
    assert!(broke.is_err());
    let closed = Kind::Retired(What::Broker);
    let until = within(ms(5_000));
    assert_kind(node.broker.open(&plan, Activation::until(until)), closed);
    assert_kind(node.pools.admit(&client, &session), closed);
    assert_kind(node.pools.admit_now(&client, &session), closed);
    assert_kind(node.pools.admit_followup(&client, &call), closed);
    assert_kind(node.io.admit(&session), closed);
    assert_kind(node.io.admit_now(&session), closed);
    let terms = crate::broker::pools::IngressTerms::until(until);
    assert_kind(node.pools.ingress(&client, &plan, terms), closed);
    assert_kind(node.pools.maintenance(&client, until, 1), closed);
    assert_kind(node.pools.reserve_protocol_metadata(1), closed);
    assert_kind(node.pools.install(Node::setup("orders", 2), Epoch(1)), closed);
    assert_kind(node.pools.client::<Nothing>(&orders, OriginSlot::new(1)), closed);
    assert_kind(node.pools.control_blocking(|| ()), closed);
    let refused = node.pools.spawn(call, |_call| async {}).expect_err("closed");
    assert_kind(Err::<(), _>(refused.error()), closed);

    // The control task is told, and tells whoever waits.
    let error = wait.await.map(drop).expect_err("it is woken");
    assert_eq!(error.kind(), Kind::Retired(What::Io));
    drop((refused, session));
    let left = node.pools.shutdown(within(ms(200))).await;
    assert!(left.retired && left.control_owners == 0 && !left.is_clean(), "{left:?}");
    assert!(left.is_idle() && node.io.snapshot().is_zero());
}

/// Every refusal that names a dimension is counted once, those of jobs, cleanups and whole installations too.
#[tokio::test]
async fn refused_jobs_and_installations_are_counted() {
    let scene =
        Scene::new(PoolLimits { configurations: 1, clients: 1, clients_per_provider: 1, ..one_worker() });
    let pools = &scene.node.pools;
    let counted = |dimension| pools.figures().refusals(dimension);
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let first = pools.control_blocking(move || opened.recv().is_err()).expect("room");
    let call = pools.spawn(scene.call(), |_call| async {}).expect_err("one place").into_owner();
    let call = pools.spawn_blocking(call, |_call| ()).expect_err("one place").into_owner();
    assert_full(pools.control_blocking(|| ()), Dimension::PoolsWorkers, Scope::Node);
    assert_full(
        pools.control_blocking_before(within(ms(5_000)), || ()),
        Dimension::PoolsWorkers,
        Scope::Node,
    );
    assert_eq!(counted(Dimension::PoolsWorkers), 4);
    drop(gate);
    assert_eq!(first.await, Ok(true));
    drop(call);
    let metadata = pools.control_blocking(|| [0u8; 16 << 20]);
    assert_full(metadata, Dimension::PoolsMetadataBytes, Scope::Node);
    assert_eq!(counted(Dimension::PoolsMetadataBytes), 1);

    let permit = pools.maintenance(&scene.client, within(ms(5_000)), 1).expect("room");
    let close = async |_: &mut Socket| true;
    let refused = pools.cleanup(scene.dialled(), close).expect_err("the permit has the place");
    assert_full(Err::<(), _>(refused.error()), Dimension::PoolsCleanupJobs, Scope::Node);
    assert_eq!(counted(Dimension::PoolsCleanupJobs), 1);
    drop((refused, permit));

    let rotated = pools.install_with_clients::<Socket>(Node::setup("orders", 2), Epoch(1), 1);
    assert_full(rotated, Dimension::PoolsConfigurations, Scope::Node);
    assert_eq!(counted(Dimension::PoolsConfigurations), 1);
    let counted: u64 = pools.figures().all_refusals().map(|(_, count)| count).sum();
    assert_eq!(counted, 7);
    scene.end().await;
}

/// A time that is fixed for life is fixed to the nanosecond: what is asked within its millisecond changes nothing, and what
/// is told is what holds.
#[tokio::test]
async fn times_of_the_startup_stay_as_they_are_told() {
    let (micros, second) = (Duration::from_micros, Duration::from_secs(1));
    let fixed = PoolLimits {
        initial_backoff: micros(99_500),
        maximum_backoff: micros(199_500),
        maximum_lifetime: second + micros(500),
        ..PoolLimits::default()
    };
    let node = Node::new(fixed);
    for step in [1, 400] {
        for nearer in [true, false] {
            let near = |time: Duration| if nearer { time - micros(step) } else { time + micros(step) };
            let asked = PoolLimits {
                initial_backoff: near(fixed.initial_backoff),
                maximum_backoff: near(fixed.maximum_backoff),
                maximum_lifetime: near(fixed.maximum_lifetime),
                workers: 15,
                ..node.pools.limits()
            };
            node.pools.lower_limits(asked).expect("equal in the unit of limits");
            let told = node.pools.limits();
            assert_eq!(
                (told.initial_backoff, told.maximum_backoff, told.maximum_lifetime),
                (fixed.initial_backoff, fixed.maximum_backoff, fixed.maximum_lifetime)
            );
        }
    }
    assert_eq!(node.pools.limits().workers, 15);
    let asked = PoolLimits { maximum_lifetime: second, ..node.pools.limits() };
    let error = node.pools.lower_limits(asked).expect_err("a millisecond less");
    let why = Standing::Fixed;
    let dimension = Dimension::PoolsMaximumLifetime;
    assert_eq!(
        error.obstacles(),
        [Obstacle { dimension, scope: Scope::Node, asked: 1_000, found: 1_001, why }]
    );
    node.assert_clean_end().await;
}

/// A wait for a connection that is leaked, in line and after it was answered, takes nothing with it when its call ends.
#[tokio::test]
async fn a_leaked_wait_for_a_connection_takes_nothing_with_it() {
    for answered in [false, true] {
        for parks in [false, true] {
            let scene =
                Scene::new(PoolLimits { connections_per_client: 1, initial_backoff: ms(1), ..one_worker() });
            let held = scene.dialled();
            let call = scene.call();
            {
                let mut wait = Box::pin(scene.client.acquire(&call));
                assert!(poll_once(wait.as_mut()).is_pending());
                std::mem::forget(wait);
            }
            let end = |held: PooledConnection<Socket>| match parks {
                true => held.park(Exchange::complete()).expect("room"),
                false => drop(held),
            };
            if answered {
                end(held);
                drop(call);
            } else {
                drop(call);
                end(held);
            }
            let what = format!("answered {answered}, parks {parks}");
            let counts = scene.counts();
            assert!(counts.is_idle(), "{what}: {counts:?}");
            // The one connection there can be is had by the next.
            let next = scene.call();
            let got = tokio::time::timeout(ms(1_000), scene.client.acquire(&next)).await.expect(&what);
            match (got.expect(&what), parks) {
                (Acquired::Idle(connection), true) => drop(connection),
                (Acquired::Dial(dial), false) => {
                    drop(dial.connected(Socket::new(&scene.alive)).expect("in time"))
                }
                (got, _) => panic!("{what}: {got:?}"),
            }
            drop(next);
            scene.end().await;
        }
    }
}
