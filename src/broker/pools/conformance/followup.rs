//! What follows from a call: the next request of a chain, its one connection, and what a protocol keeps beside it.
use super::poll::poll_once;
use super::support::*;
use crate::broker::Policy;
use crate::broker::pools::PROTOCOL_METADATA_MAX;

fn one_running() -> PoolLimits {
    PoolLimits {
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        requests_per_tenant: 2,
        requests_per_provider: 2,
        pending: 1,
        connections_per_client: 1,
        ..PoolLimits::default()
    }
}

/// With room for one running request, a chain of three goes through; each has the deadline of the first.
/// Case S20: it does not wait for what it holds itself.
#[tokio::test]
async fn a_chain_goes_through_one_slot_with_one_deadline_35() {
    let node = Node::new(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let other = node.pools.client::<Nothing>(&orders, OriginSlot::new(1)).expect("room");
    // The policy narrows the first call's time below the session's.
    let policy = Policy::new().wall_time(ms(900));
    let spec = PlanSpec::new("alpha", "publication").bind_with(&HTTP, &orders.reference(), policy);
    let session = node.session(&node.broker.seal(spec).expect("valid"));
    let first = node.call(&client, &session);
    let deadline = first.io().deadline();
    assert!(deadline < session.deadline());
    let mut call = first;
    for at in [&other, &client, &other] {
        let next = node.pools.admit_followup(at, &call).expect("one may wait");
        assert_eq!(next.deadline(), deadline);
        let counts = node.counts();
        assert_eq!((counts.running_requests, counts.pending_requests), (1, 1));
        let mut wait = Box::pin(next.wait());
        assert!(poll_once(wait.as_mut()).is_pending(), "the previous call has the one slot");
        drop(call);
        call = wait.await.expect("its turn").dispatch(SEND, Cost::new()).expect("allowed");
        // A later wall time cannot widen it.
        assert_eq!(call.io().deadline(), deadline);
        drop(at.reserve_connection(&call).expect("room").connected(Nothing).expect("in time"));
    }
    drop((call, session));
    node.assert_clean_end().await;
}

/// What does not follow: another registry's client or call, a call that was stopped, one whose time is over, a replaced
/// epoch.
#[tokio::test(start_paused = true)]
async fn what_is_over_or_elsewhere_has_no_follow_up() {
    let (node, other) = (Node::paused(PoolLimits::default()), Node::paused(PoolLimits::default()));
    let scene = |node: &Node| {
        let orders = node.install("orders", 1, 0);
        let (client, session) = (node.client::<Nothing>(&orders), node.session(&node.plan("alpha", &orders)));
        let call = node.call(&client, &session);
        (client, session, call)
    };
    let (client, session, call) = scene(&node);
    let (far_client, far_session, far_call) = scene(&other);
    let foreign = Kind::Denied(Denied::ForeignClient);
    assert_kind(node.pools.admit_followup(&far_client, &call), foreign);
    assert_kind(node.pools.admit_followup(&client, &far_call), foreign);
    assert_eq!(node.counts().pending_requests, 0);
    drop((far_client, far_session, far_call));
    let next = node.pools.admit_followup(&client, &call).expect("it is alive");
    call.io().stop_handle().stop();
    assert_kind(node.pools.admit_followup(&client, &call), Kind::Stopped(StopCause::Caller));
    drop(next);
    let second = node.call(&client, &session);
    tokio::time::advance(Duration::from_secs(21)).await;
    assert_kind(node.pools.admit_followup(&client, &second), Kind::Deadline(Which::Operation));
    drop((call, second, session));
    let orders = node.pools.provider("orders").expect("installed");
    let session = node.session(&node.plan("alpha", &orders));
    let call = node.call(&client, &session);
    let replaced = node.install("orders", 2, 1);
    let next = node.client::<Nothing>(&replaced);
    assert_kind(node.pools.admit_followup(&client, &call), Kind::Retired(What::Epoch));
    assert_kind(node.pools.admit_followup(&next, &call), Kind::Denied(Denied::NotBound));
    drop((call, session, client, next, orders, replaced));
    node.assert_clean_end().await;
    other.assert_clean_end().await;
}

/// S44: an operation has one connection of its client at a time. Asking for another fails at once, at the ceiling and below
/// it; there is no waiting for oneself.
#[tokio::test]
async fn a_second_connection_is_refused_at_once_s44() {
    for connections_per_client in [1, 4] {
        let limits = PoolLimits { connections_per_client, ..PoolLimits::default() };
        let node = Node::new(limits);
        let orders = node.install("orders", 1, 0);
        let client = node.client::<Nothing>(&orders);
        let session = node.session(&node.plan("alpha", &orders));
        let call = node.call(&client, &session);
        let second = Kind::Denied(Denied::SecondConnection);
        let reservation = client.reserve_connection(&call).expect("room");
        let refused_at_once = || {
            let counts = node.counts();
            assert_kind(client.checkout(&call), second);
            assert_kind(client.reserve_connection(&call), second);
            let mut acquire = Box::pin(client.acquire(&call));
            let std::task::Poll::Ready(refused) = poll_once(acquire.as_mut()) else {
                panic!("it waits for itself")
            };
            assert_kind(refused, second);
            assert_eq!(node.counts(), counts);
        };
        refused_at_once();
        let connection = reservation.connected(Nothing).expect("in time");
        refused_at_once();
        connection.park(Exchange::complete()).expect("room");
        // Again, from the idle set, from the line, and after a destruction.
        let connection = client.checkout(&call).expect("allowed").expect("it rests");
        refused_at_once();
        connection.park(Exchange::complete()).expect("room");
        let Acquired::Idle(connection) = client.acquire(&call).await.expect("it rests") else { panic!() };
        refused_at_once();
        drop(connection);
        drop(client.reserve_connection(&call).expect("room").connected(Nothing).expect("in time"));
        drop((call, session));
        node.assert_clean_end().await;
    }
}

/// The same for who waits: its place in line is its one claim, and leaving the line gives it back.
#[tokio::test]
async fn who_waits_for_a_connection_asks_for_no_other() {
    let node = Node::new(PoolLimits { connections_per_client: 1, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let used = node.dialled(&client, &session, Nothing);
    let call = node.call(&client, &session);
    let mut acquire = Box::pin(client.acquire(&call));
    assert!(poll_once(acquire.as_mut()).is_pending());
    assert_kind(client.checkout(&call), Kind::Busy);
    assert_kind(client.reserve_connection(&call), Kind::Busy);
    assert_kind(client.acquire(&call).await, Kind::Busy);
    drop(acquire);
    let mut acquire = Box::pin(client.acquire(&call));
    assert!(poll_once(acquire.as_mut()).is_pending(), "it left the line, and may come again");
    used.park(Exchange::complete()).expect("room");
    let std::task::Poll::Ready(Ok(Acquired::Idle(connection))) = poll_once(acquire.as_mut()) else {
        panic!("it was handed over")
    };
    drop(acquire);
    assert_kind(client.checkout(&call), Kind::Denied(Denied::SecondConnection));
    drop(connection);
    assert!(client.checkout(&call).expect("allowed").is_none());
    drop((call, session));
    node.assert_clean_end().await;
}

/// Protocol metadata: its bounds, its charge, and that it survives a retirement after which none is given.
#[tokio::test]
async fn protocol_metadata_is_charged_and_survives_the_retirement_37() {
    let node = Node::new(PoolLimits::default());
    let base = node.counts().metadata_bytes;
    let reserve = |bytes| node.pools.reserve_protocol_metadata(bytes);
    assert_kind(reserve(0), Kind::Invalid(Invalid::Bounds));
    assert_kind(reserve(PROTOCOL_METADATA_MAX + 1), Kind::TooLarge(Dimension::PoolsMetadataBytes));
    let (one, most) = (reserve(1).expect("room"), reserve(1 << 20).expect("room"));
    assert_eq!((one.bytes(), most.bytes()), (1, 1 << 20));
    assert_eq!(node.counts().metadata_bytes - base, (1 << 20) + 1);
    let mut all = vec![one];
    let full = loop {
        match reserve(1 << 20) {
            Ok(more) => all.push(more),
            Err(error) => break error,
        }
    };
    assert_full::<()>(Err(full), Dimension::PoolsMetadataBytes, Scope::Node);
    drop(all);
    assert_eq!(node.counts().metadata_bytes - base, 1 << 20);
    node.pools.close_admission();
    assert_kind(reserve(1), Kind::Retired(What::Admission));
    node.pools.retire();
    assert_kind(reserve(1), Kind::Retired(What::Pools));
    assert_eq!(node.counts().metadata_bytes - base, 1 << 20);
    node.assert_clean_end().await;
    drop(most);
    assert_eq!(node.counts().metadata_bytes, base);
}
