//! Maintenance permits: their bounds, the place they take, and that nothing of them is shared.
use super::support::*;
use crate::broker::pools::{MAINTENANCE_METADATA, ProviderMaintenance};

struct Scene {
    node: Node,
    orders: InstalledProvider,
    client: ProviderClient<Socket>,
    alive: Arc<AtomicUsize>,
    /// Metadata of pools without any permit.
    base: u64,
}

impl Scene {
    fn new(limits: PoolLimits) -> Scene {
        Scene::on(Node::new(limits))
    }
    fn on(node: Node) -> Scene {
        let orders = node.install("orders", 1, 0);
        let client = node.client(&orders);
        let base = node.counts().metadata_bytes;
        Scene { node, orders, client, alive: Arc::new(AtomicUsize::new(0)), base }
    }
    fn permit(&self, time: Duration, requests: u32) -> Result<ProviderMaintenance, Error> {
        self.node.pools.maintenance(&self.client, within(time), requests)
    }
    /// Cleanup places, metadata beyond the base, connections.
    fn held(&self) -> (u64, u64, u64) {
        let counts = self.node.counts();
        assert_eq!((counts.running_requests, counts.workers), (0, 0), "nothing of a tenant, no worker");
        assert_eq!(counts.connections as usize, self.alive.load(SeqCst));
        (counts.cleanup_jobs, counts.metadata_bytes - self.base, counts.connections)
    }
}

/// The bounds of a permit, and how many requests it makes.
#[tokio::test]
async fn a_permit_stays_in_its_bounds_67() {
    let scene = Scene::new(PoolLimits::default());
    for (time, requests, kind) in [
        (ms(1_000), 0, Kind::Invalid(Invalid::Bounds)),
        (ms(1_000), 65, Kind::Invalid(Invalid::Bounds)),
        (ms(121_000), 1, Kind::Invalid(Invalid::TooFar)),
        (ms(0), 1, Kind::Deadline(Which::Operation)),
    ] {
        assert_kind(scene.permit(time, requests), kind);
    }
    assert_eq!(scene.held(), (0, 0, 0));
    let deadline = within(ms(119_990));
    let permit = scene.node.pools.maintenance(&scene.client, deadline, 64).expect("exactly the bounds");
    assert_eq!(permit.deadline(), deadline);
    for left in (0..64).rev() {
        let request = permit.begin_request().expect("the last one ended");
        assert_eq!((request.deadline(), permit.remaining()), (deadline, left));
    }
    assert_kind(permit.begin_request(), Kind::Denied(Denied::Exhausted));
    assert_eq!(scene.held(), (1, MAINTENANCE_METADATA, 0));
    drop(permit);
    assert_eq!(scene.held(), (0, 0, 0));
    // Places of cleanup run out; ordinary work does not take them, and they are named.
    let permits: Vec<_> = (0..8).map(|_| scene.permit(ms(1_000), 1).expect("room")).collect();
    assert_full(scene.permit(ms(1_000), 1), Dimension::PoolsCleanupJobs, Scope::Node);
    assert_eq!(scene.held(), (8, 8 * MAINTENANCE_METADATA, 0));
    drop(permits);
    scene.node.assert_clean_end().await;
}

/// One request at a time, clones and sockets included; a socket keeps the permit's place until it is gone, cannot be parked,
/// and belongs to one client.
#[tokio::test]
async fn a_socket_keeps_its_permit_and_is_shared_with_nobody_66() {
    let scene = Scene::new(PoolLimits::default());
    let permit = scene.permit(ms(60_000), 3).expect("room");
    let request = permit.begin_request().expect("the first");
    let clone = request.clone();
    assert_kind(permit.begin_request(), Kind::Busy);
    drop(request);
    assert_kind(permit.begin_request(), Kind::Busy);
    clone.checkpoint().expect("nothing ended");
    let elsewhere = scene.node.pools.client::<Socket>(&scene.orders, OriginSlot::new(1)).expect("room");
    assert_kind(elsewhere.reserve_maintenance_connection(&clone), Kind::Denied(Denied::ForeignClient));
    drop(elsewhere);
    let base = scene.node.counts().metadata_bytes - MAINTENANCE_METADATA;
    let scene = Scene { base, ..scene };
    let reservation = scene.client.reserve_maintenance_connection(&clone).expect("room");
    assert_kind(scene.client.reserve_maintenance_connection(&clone), Kind::Busy);
    let connection = reservation.connected(Socket::new(&scene.alive)).expect("in time");
    drop(clone);
    assert_kind(permit.begin_request(), Kind::Busy);
    assert_eq!(permit.remaining(), 2);
    drop(permit);
    assert_eq!(scene.held(), (1, MAINTENANCE_METADATA, 1));
    assert_kind(connection.park(Exchange::complete()), Kind::Denied(Denied::Maintenance));
    assert_eq!(scene.held(), (0, 0, 0));
    // A dial that is given up frees the place too, and counts as failed.
    let permit = scene.permit(ms(60_000), 2).expect("room");
    let request = permit.begin_request().expect("the first");
    let reservation = scene.client.reserve_maintenance_connection(&request).expect("room");
    drop((permit, request));
    assert_eq!(scene.node.counts().cleanup_jobs, 1);
    drop(reservation);
    assert_eq!((scene.held(), scene.client.retry_after().is_some()), ((0, 0, 0), true));
    scene.node.assert_clean_end().await;
}

/// The deadline, a rotation and the retirement are seen at each checkpoint; what is held stays held.
#[tokio::test(start_paused = true)]
async fn deadline_rotation_and_retirement_end_a_permit_67() {
    let scene = Scene::on(Node::paused(PoolLimits::default()));
    let permit = scene.permit(ms(1_000), 2).expect("room");
    let request = permit.begin_request().expect("the first");
    let reservation = scene.client.reserve_maintenance_connection(&request).expect("room");
    tokio::time::advance(ms(990)).await;
    request.checkpoint().expect("not yet");
    tokio::time::advance(ms(20)).await;
    let over = Kind::Deadline(Which::Operation);
    assert_kind(request.checkpoint(), over);
    assert_kind(scene.client.reserve_maintenance_connection(&request), over);
    let late = reservation.connected(Socket::new(&scene.alive)).expect_err("too late");
    assert_eq!((late.kind(), late.effect(), scene.alive.load(SeqCst)), (over, Effect::Uncertain, 0));
    drop(request);
    assert_kind(permit.begin_request(), over);
    assert_eq!(permit.remaining(), 1, "a refusal uses nothing up");
    drop(permit);
    // Rotation.
    let permit = scene.permit(ms(60_000), 2).expect("room");
    let request = permit.begin_request().expect("the first");
    let next = scene.node.install("orders", 2, 1);
    let gone = Kind::Retired(What::Epoch);
    assert_kind(request.checkpoint(), gone);
    assert_kind(scene.client.reserve_maintenance_connection(&request), gone);
    assert_kind(scene.permit(ms(1_000), 1), gone);
    assert_eq!(scene.node.counts().cleanup_jobs, 1);
    drop(request);
    assert_kind(permit.begin_request(), gone);
    // The permit is the last thing that keeps the old epoch.
    let Scene { node, orders, client, alive, .. } = scene;
    drop((orders, client));
    tokio::time::sleep(ms(100)).await;
    assert_eq!(node.counts().retained_configurations, 2);
    drop(permit);
    tokio::time::sleep(ms(10)).await;
    assert_eq!((node.counts().retained_configurations, node.counts().cleanup_jobs), (1, 0));
    // A closed admission refuses new permits and lets the old one go on; the retirement ends it.
    let client = node.client::<Socket>(&next);
    let permit = node.pools.maintenance(&client, within(ms(60_000)), 2).expect("room");
    node.pools.close_admission();
    let refused = node.pools.maintenance(&client, within(ms(60_000)), 2);
    assert_kind(refused, Kind::Retired(What::Admission));
    let request = permit.begin_request().expect("it was there before");
    node.pools.retire();
    assert_kind(request.checkpoint(), Kind::Retired(What::Pools));
    assert_kind(client.reserve_maintenance_connection(&request), Kind::Retired(What::Pools));
    assert_kind(node.pools.maintenance(&client, within(ms(9)), 1), Kind::Retired(What::Pools));
    let left = node.pools.shutdown(within(ms(50))).await;
    assert!(!left.is_clean() && left.cleanup_jobs == 1, "{left:?}");
    drop((permit, request, client, next));
    assert_eq!(alive.load(SeqCst), 0);
    node.assert_clean_end().await;
}

/// A shutdown waits for a permit and ends with it.
#[tokio::test]
async fn a_shutdown_waits_for_a_permit() {
    let scene = Scene::new(PoolLimits::default());
    let permit = scene.permit(ms(60_000), 1).expect("room");
    let pools = scene.node.pools.clone();
    let shutdown = tokio::spawn(async move { pools.shutdown(within(ms(10_000))).await });
    tokio::time::sleep(ms(30)).await;
    assert!(!shutdown.is_finished());
    drop(permit);
    let left = shutdown.await.expect("it does not panic");
    assert!(left.is_clean(), "{left:?}");
    scene.node.assert_idle();
}

/// A permit of another registry's client is refused.
#[tokio::test]
async fn a_client_of_another_registry_is_refused() {
    let (scene, other) = (Scene::new(PoolLimits::default()), Scene::new(PoolLimits::default()));
    let refused = scene.node.pools.maintenance(&other.client, within(ms(1_000)), 1);
    assert_kind(refused, Kind::Denied(Denied::ForeignClient));
    let permit = other.permit(ms(1_000), 1).expect("room");
    let request = permit.begin_request().expect("the first");
    let refused = scene.client.reserve_maintenance_connection(&request);
    assert_kind(refused, Kind::Denied(Denied::ForeignClient));
    drop((permit, request));
    assert_eq!((scene.held(), other.held()), ((0, 0, 0), (0, 0, 0)));
    scene.node.assert_clean_end().await;
    other.node.assert_clean_end().await;
}
