//! Figures: admissions, grants, refusals by dimension, the time in line.
use super::poll::poll_once;
use super::support::*;
use crate::broker::pools::PoolFigures;

fn refusals(figures: &PoolFigures) -> Vec<(Dimension, u64)> {
    figures.all_refusals().filter(|(_, count)| *count > 0).collect()
}

/// Whoever is granted is counted, at once or in line; whoever left before is not.
#[tokio::test]
async fn grants_are_those_who_did_not_leave_before() {
    let limits =
        PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    let node = Node::new(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let counted = |node: &Node| {
        let figures = node.pools.figures();
        (figures.operations, figures.grants, figures.queue_age.count())
    };
    assert_eq!(counted(&node), (0, 0, 0));
    let running = node.call(&client, &session);
    assert_eq!(counted(&node), (1, 1, 0));
    // Never asked for its turn; left the line; granted in line.
    drop(node.pools.admit(&client, &session).expect("room"));
    assert_eq!(counted(&node), (2, 1, 0));
    {
        let mut left = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
        assert!(poll_once(left.as_mut()).is_pending());
        assert_eq!(counted(&node), (3, 1, 0));
    }
    let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    assert_eq!(counted(&node), (4, 1, 0));
    drop(running);
    assert_eq!(counted(&node), (4, 2, 0), "granted, and nobody came for it yet");
    let ready = wait.await.expect("granted");
    assert_eq!(counted(&node), (4, 2, 1));
    drop(ready);
    // Direct ones are operations of the node too.
    drop(node.io.admit_now(&session).expect("room"));
    drop(node.pools.admit(&client, &session).expect("room").wait().await.expect("at once"));
    assert_eq!(counted(&node), (6, 4, 1));
    drop(session);
    node.assert_clean_end().await;
    assert_eq!(counted(&node), (6, 4, 1));
}

/// The age is that from the first poll of the wait to the poll that had the grant, in buckets of powers of two.
#[tokio::test(start_paused = true)]
async fn the_time_in_line_falls_into_its_bucket() {
    let limits =
        PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    let node = Node::paused(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    for age in [1, 1, 1, 1, 1, 1, 1, 2, 500, 4_000] {
        let running = node.call(&client, &session);
        let admission = node.pools.admit(&client, &session).expect("room");
        // Staging is no standing in line.
        tokio::time::advance(ms(100)).await;
        let mut wait = Box::pin(admission.wait());
        assert!(poll_once(wait.as_mut()).is_pending());
        tokio::time::advance(ms(age)).await;
        drop(running);
        drop(wait.await.expect("granted"));
    }
    let ages = node.pools.figures().queue_age;
    let filled: Vec<_> = ages.buckets().filter(|(_, count)| *count > 0).collect();
    let micros = |micros| Some(Duration::from_micros(micros));
    assert_eq!(
        filled,
        [(micros(1 << 10), 7), (micros(1 << 11), 1), (micros(1 << 19), 1), (micros(1 << 22), 1)]
    );
    assert_eq!((ages.count(), ages.total()), (10, ms(7 + 2 + 500 + 4_000)));
    assert_eq!(ages.quantile(500), micros(1 << 10));
    assert_eq!((ages.quantile(800), ages.quantile(900)), (micros(1 << 11), micros(1 << 19)));
    assert_eq!((ages.quantile(901), ages.quantile(1_000)), (micros(1 << 22), micros(1 << 22)));
    drop(session);
    node.assert_clean_end().await;
}

/// A refusal is counted under the dimension that it names, once, whichever part of the library said so.
#[tokio::test]
async fn refusals_are_counted_by_the_dimension_that_they_name() {
    let limits = PoolLimits {
        running: 2,
        running_per_tenant: 1,
        running_per_provider: 2,
        requests_per_tenant: 2,
        connections_per_client: 1,
        configurations: 1,
        clients: 1,
        clients_per_provider: 1,
        ..PoolLimits::default()
    };
    let node = Node::with(IoLimits { streams: 1, ..IoLimits::default() }, limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let call = node.call(&client, &session);
    assert_eq!(refusals(&node.pools.figures()), []);

    let expected = [
        (Dimension::IoChunkBytes, 1),
        (Dimension::IoStreams, 1),
        (Dimension::PoolsConfigurations, 1),
        (Dimension::PoolsClients, 2),
        (Dimension::PoolsRequestsPerTenant, 2),
        (Dimension::PoolsRunningPerTenant, 3),
        (Dimension::PoolsConnectionsPerClient, 1),
    ];
    let refused = |result: Result<(), Error>, dimension| {
        let error = result.expect_err("there was no room");
        assert_eq!(error.dimension(), Some(dimension), "{error}");
    };
    for _ in 0..3 {
        let asked = node.pools.admit_now(&client, &session).map(drop);
        refused(asked, Dimension::PoolsRunningPerTenant);
    }
    let staged = node.pools.admit(&client, &session).expect("room");
    for _ in 0..2 {
        refused(node.pools.admit(&client, &session).map(drop), Dimension::PoolsRequestsPerTenant);
        let second = node.pools.client::<Nothing>(&orders, OriginSlot::new(1)).map(drop);
        refused(second, Dimension::PoolsClients);
    }
    let rotated = node.pools.install(Node::setup("orders", 2), Epoch(1)).map(drop);
    refused(rotated, Dimension::PoolsConfigurations);
    let dialled = client.reserve_connection(&call).expect("room").connected(Nothing).expect("in time");
    let permit = node.pools.maintenance(&client, within(ms(60_000)), 1).expect("room");
    let request = permit.begin_request().expect("the first");
    let second = client.reserve_maintenance_connection(&request).map(drop);
    refused(second, Dimension::PoolsConnectionsPerClient);
    let stream = call.io().stream(1).expect("room");
    refused(call.io().stream(1).map(drop), Dimension::IoStreams);
    refused(call.io().buffer(1 << 30, 0).map(drop), Dimension::IoChunkBytes);
    // What has no dimension is not among them.
    assert_kind(node.pools.install(Node::setup("orders", 2), Epoch(9)), Kind::Denied(Denied::StaleEpoch));

    let figures = node.pools.figures();
    let (mut found, mut expected) = (refusals(&figures), expected.to_vec());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(figures.refusals(Dimension::PoolsRunningPerTenant), 3);
    assert_eq!((figures.operations, figures.grants), (2, 1));
    drop((dialled, stream, staged, permit, request, call, session));
    node.assert_clean_end().await;
}

/// The most that was used of each dimension stays, whatever is given back and however limits are lowered afterwards.
#[tokio::test]
async fn high_water_marks_stay_where_use_once_was() {
    let node = Node::new(PoolLimits { running_per_tenant: 3, ..PoolLimits::default() });
    let marks = |node: &Node| -> Vec<(&'static str, u64)> {
        let figures = node.pools.figures();
        let used = figures.all_high_water().filter(|(_, most)| *most > 0);
        used.map(|(dimension, most)| (dimension.name(), most)).collect()
    };
    assert_eq!(marks(&node), []);
    assert_eq!(node.pools.figures().all_high_water().count(), 13);
    assert_eq!(node.pools.figures().high_water(Dimension::PoolsConfigurations), None);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let calls = [node.call(&client, &session), node.call(&client, &session), node.call(&client, &session)];
    let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    drop(wait);
    let connection = client.reserve_connection(&calls[0]).expect("room").connected(Nothing).expect("in time");
    connection.park(Exchange::complete()).expect("room");
    let chunk = calls[1].io().buffer(4_096, 0).expect("room");
    let mut second = calls[1].io().buffer(1_024, 0).expect("room");
    second.spare_mut(1).expect("staged").fill(1);
    second.advance_written(1).expect("within");
    drop((chunk, calls[2].io().stream(1).expect("room")));
    // On the result side a block is not staged any more.
    let retained = second.retain().expect("room");
    drop((retained, calls));
    let expected = [
        ("io.owners", 4),
        ("io.queued", 1),
        ("io.running", 3),
        ("io.staged_bytes", 5_120),
        ("io.result_bytes", 1_024),
        ("io.buffers", 2),
        ("io.streams", 1),
        ("pools.pending", 1),
        ("pools.running", 3),
        ("pools.connections", 1),
        ("pools.idle_connections", 1),
    ];
    let sorted = |mut list: Vec<(&'static str, u64)>| {
        list.sort_unstable();
        list
    };
    assert_eq!(sorted(marks(&node)), sorted(expected.to_vec()));
    let lower = PoolLimits {
        running: 2,
        pending: 2,
        running_per_tenant: 2,
        running_per_provider: 2,
        ..node.pools.limits()
    };
    node.pools.lower_limits(lower).expect("nothing runs");
    drop(node.call(&client, &session));
    assert_eq!(sorted(marks(&node)), sorted(expected.to_vec()));
    assert_eq!(node.pools.figures().high_water(Dimension::PoolsRunning), Some(3), "above the limit of now");
    drop(session);
    node.assert_clean_end().await;
}
