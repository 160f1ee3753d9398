//! Requests from admission to release, and the connections they use.
use super::support::*;

#[tokio::test]
async fn a_request_dials_parks_and_the_next_reuses_the_connection() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let plan = node.plan("alpha", &orders);
    let alive = Arc::new(AtomicUsize::new(0));
    for round in 0..3 {
        let session = node.session(&plan);
        let admission = node.pools.admit(&client, &session).expect("there is room");
        assert_eq!(node.pools.snapshot().pending_requests, 1);
        let ready = admission.wait().await.expect("nobody waits in front");
        assert_eq!(node.pools.snapshot().running_requests, 1);
        assert_eq!(node.pools.snapshot().pending_requests, 0);
        let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
        let connection = match client.acquire(&call).await.expect("there is room") {
            Acquired::Idle(connection) => {
                assert!(round > 0);
                connection
            }
            Acquired::Dial(reservation) => {
                assert_eq!(round, 0);
                assert_eq!(node.pools.snapshot().connecting_connections, 1);
                reservation.connected(Socket::new(&alive)).expect("in time")
            }
        };
        connection.park(Exchange::complete()).expect("there is room");
        assert_eq!(node.pools.snapshot().idle_connections, 1);
        drop(call);
        drop(session);
        node.assert_idle();
    }
    assert_eq!(alive.load(SeqCst), 1);
    let deadline = crate::Deadline::after(std::time::Duration::from_secs(5)).expect("in range");
    let left = node.pools.shutdown(deadline).await;
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(alive.load(SeqCst), 0);
}

#[tokio::test]
async fn waiters_for_a_connection_are_served_first_come_first_served() {
    let limits = PoolLimits { connections_per_client: 1, ..PoolLimits::default() };
    let node = Node::new(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let plan = node.plan("alpha", &orders);
    let alive = Arc::new(AtomicUsize::new(0));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let session = node.session(&plan);
        let ready = node.pools.admit(&client, &session).expect("room").wait().await.expect("room");
        let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
        let (client, alive, order) = (client.clone(), alive.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let _session = session;
            let connection = match client.acquire(&call).await.expect("its turn comes") {
                Acquired::Idle(connection) => connection,
                Acquired::Dial(reservation) => reservation.connected(Socket::new(&alive)).expect("in time"),
            };
            order.lock().expect("no panic").push(number);
            tokio::task::yield_now().await;
            connection.park(Exchange::complete()).expect("there is room");
        }));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), (0..8).collect::<Vec<_>>());
    assert_eq!(alive.load(SeqCst), 1);
    until("everything is given back", || node.pools.snapshot().is_idle()).await;
    node.assert_idle();
}
