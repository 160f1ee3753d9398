//! Dials, their bounds and their pauses.
use super::support::*;

fn short_pauses() -> PoolLimits {
    PoolLimits { initial_backoff: ms(20), maximum_backoff: ms(40), ..PoolLimits::default() }
}

/// pools.61, pools.62, pools.64: one dial at a time; 32 more attempts during it change nothing. Behaviour (60) too: they are
/// refused at once.
#[tokio::test]
async fn there_is_one_dial_per_client_22() {
    let node = Node::new(PoolLimits { connections_per_client: 2, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let [call, other, third] = [(); 3].map(|()| node.call(&client, &session));
    let reservation = client.reserve_connection(&call).expect("room");
    let before = node.counts();
    assert_eq!((before.connections, before.connecting_connections, before.active_connections), (1, 1, 0));
    for _ in 0..32 {
        assert_kind(client.reserve_connection(&other), Kind::Busy);
    }
    assert_eq!(node.counts(), before);
    let first = reservation.connected(Nothing).expect("in time");
    let counts = node.counts();
    assert_eq!((counts.connections, counts.connecting_connections, counts.active_connections), (1, 0, 1));
    let second = client.reserve_connection(&other).expect("room").connected(Nothing).expect("in time");
    let refused = client.reserve_connection(&third).expect_err("both of its connections exist");
    assert_eq!(refused.dimension(), Some(Dimension::PoolsConnectionsPerClient));
    assert!(matches!(refused.scope(), Some(Scope::Client(_))));
    drop((first, second, call, other, third, session));
    assert_eq!(node.counts().connections, 0);
    node.assert_idle();
}

/// pools.63, pools.64, pools.65: a cancelled dial makes the client pause, for longer each time up to the maximum; a storm of
/// attempts during the pause changes nothing, and nobody dials by itself afterwards.
#[tokio::test(start_paused = true)]
async fn a_cancelled_dial_makes_the_client_pause_32() {
    let node = Node::paused(short_pauses());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let call = node.call(&client, &session);
    assert_eq!(client.retry_after(), None);
    for pause in [20, 40, 40] {
        drop(client.reserve_connection(&call).expect("no pause, no dial"));
        assert_eq!(client.retry_after(), Some(ms(pause)));
        let before = node.counts();
        for _ in 0..64 {
            let refused = client.reserve_connection(&call).expect_err("it pauses");
            assert!(
                matches!(refused.kind(), Kind::Backoff { wait_ms } if u64::from(wait_ms) <= pause),
                "{refused}"
            );
            assert_eq!(refused.retry_after(), Some(ms(pause)));
        }
        assert_eq!(node.counts(), before);
        assert_eq!(before.connections, 0);
        tokio::time::advance(ms(pause - 1)).await;
        assert_eq!(client.retry_after(), Some(ms(1)));
        tokio::time::advance(ms(1)).await;
        assert_eq!(client.retry_after(), None);
        assert_eq!(node.counts().connections, 0, "nobody dials by itself");
    }
    // A success forgets the failures.
    drop(client.reserve_connection(&call).expect("no pause").connected(Nothing).expect("in time"));
    drop(client.reserve_connection(&call).expect("no pause"));
    assert_eq!(client.retry_after(), Some(ms(20)));
    // The pause is the client's own: another origin, and the next epoch's client, start clean.
    let other = node.pools.client::<Nothing>(&orders, OriginSlot::new(1)).expect("room");
    assert_eq!(other.retry_after(), None);
    drop((call, session));
    node.assert_idle();
}

/// pools.63: a dial whose operation ended meanwhile has failed, and what it made is destroyed.
#[tokio::test(start_paused = true)]
async fn a_dial_that_comes_too_late_has_failed() {
    let node = Node::paused(short_pauses());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let call = node.call(&client, &session);
    let reservation = client.reserve_connection(&call).expect("room");
    session.stop();
    let error = reservation.connected(Socket::new(&alive)).expect_err("stopped");
    assert_eq!(error.kind(), Kind::Stopped(StopCause::Session));
    assert_eq!((alive.load(SeqCst), client.retry_after()), (0, Some(ms(20))));
    drop((call, session));
    node.assert_idle();
}

/// pools.29: when all connections of the node exist, an idle one elsewhere makes room; one in use does not.
#[tokio::test]
async fn an_idle_connection_elsewhere_makes_room_for_a_dial() {
    let limits = PoolLimits {
        connections: 2,
        connections_per_client: 2,
        idle_connections: 2,
        ..PoolLimits::default()
    };
    let node = Node::new(limits);
    let orders = node.install("orders", 1, 0);
    let client = |slot| node.pools.client::<Socket>(&orders, OriginSlot::new(slot)).expect("room");
    let (first, second, third) = (client(0), client(1), client(2));
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    node.parked(&first, &session, Socket::new(&alive));
    let used = node.dialled(&second, &session, Socket::new(&alive));
    assert_eq!((node.counts().connections, alive.load(SeqCst)), (2, 2));
    let made = node.dialled(&third, &session, Socket::new(&alive));
    assert_eq!((node.counts().connections, node.counts().idle_connections, alive.load(SeqCst)), (2, 0, 2));
    let call = node.call(&first, &session);
    assert_full(first.reserve_connection(&call), Dimension::PoolsConnections, Scope::Node);
    assert_full(first.acquire(&call).await, Dimension::PoolsConnections, Scope::Node);
    assert_eq!(first.retry_after(), None, "nothing was dialled, so nothing failed");
    drop((used, made, call, session));
    assert_eq!(alive.load(SeqCst), 0);
    node.assert_idle();
}

/// pools.31, pools.66, pools.71, pools.72: what may rest rests without its activation; what may not is destroyed.
#[tokio::test]
async fn parking_is_for_what_may_rest() {
    let node = Node::new(PoolLimits { idle_connections: 1, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let (first, second) = (
        node.dialled(&client, &session, Socket::new(&alive)),
        node.dialled(&client, &session, Socket::new(&alive)),
    );
    let third = node.dialled(&client, &session, Socket::new(&alive));
    assert_eq!(node.counts().running_requests, 3, "in use, a connection holds its request");
    first.park(Exchange::complete()).expect("room");
    let refused = second.park(Exchange::complete());
    assert_full(refused, Dimension::PoolsIdleConnections, Scope::Node);
    assert_eq!((alive.load(SeqCst), node.counts().connections, node.counts().running_requests), (2, 2, 1));
    session.stop();
    assert_kind(third.park(Exchange::complete()), Kind::Stopped(StopCause::Session));
    let observer = session.observer();
    drop(session);
    assert!(observer.is_quiescent(), "an idle connection retains no activation");
    let counts = node.counts();
    assert_eq!((counts.connections, counts.idle_connections, counts.running_requests), (1, 1, 0));
    client.close_idle();
    assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    node.assert_idle();
}

/// The lowest place is taken first, so that load gathers on few connections and the others age.
#[tokio::test]
async fn load_gathers_on_few_connections() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Numbered>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let made: Vec<_> = (0..4).map(|number| node.dialled(&client, &session, Numbered(number))).collect();
    for connection in made.into_iter().rev() {
        connection.park(Exchange::complete()).expect("room");
    }
    for _ in 0..3 {
        let call = node.call(&client, &session);
        let mut connection = client.checkout(&call).expect("allowed").expect("four rest");
        assert_eq!(connection.resource().0, 0);
        connection.park(Exchange::complete()).expect("room");
    }
    client.close_idle();
    drop(session);
    node.assert_idle();
}

#[derive(Debug)]
struct Numbered(u32);

impl Resource for Numbered {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

/// A connection that looks at the registry's counts while it is destroyed.
#[derive(Debug)]
struct Witness {
    pools: ProviderPools,
    seen: Arc<std::sync::Mutex<Vec<[u64; 2]>>>,
}

impl Resource for Witness {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let now = self.pools.snapshot();
        self.seen.lock().expect("no panic").push([now.connections, now.running_requests]);
    }
}

/// pools.66: the resource is destroyed before its charge is given back, and before the request it belongs to. pools.67: in
/// use, and while it is dialled, a connection keeps its request though the call is gone.
#[tokio::test]
async fn a_connection_is_destroyed_before_its_charge() {
    let node = Node::new(PoolLimits { idle_connections: 1, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Witness>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let witness = || Witness { pools: node.pools.clone(), seen: seen.clone() };
    let told = || std::mem::take(&mut *seen.lock().expect("no panic"));

    drop(node.dialled(&client, &session, witness()));
    assert_eq!((told(), node.counts().connections), (vec![[1, 1]], 0));
    node.parked(&client, &session, witness());
    let refused = node.dialled(&client, &session, witness()).park(Exchange::complete());
    assert_full(refused, Dimension::PoolsIdleConnections, Scope::Node);
    assert_eq!((told(), node.counts().connections), (vec![[2, 1]], 1));
    client.close_idle();
    assert_eq!((told(), node.counts().connections), (vec![[1, 0]], 0));

    let call = node.call(&client, &session);
    let stop = call.io().stop_handle();
    let dial = client.reserve_connection(&call).expect("room");
    drop(call);
    assert_eq!((node.counts().connecting_connections, node.counts().running_requests), (1, 1));
    let made = dial.connected(witness()).expect("nobody stopped it");
    assert_eq!((node.counts().active_connections, node.counts().running_requests), (1, 1));
    stop.stop();
    assert_kind(made.park(Exchange::complete()), Kind::Stopped(StopCause::Caller));
    assert_eq!((told(), node.counts().connections), (vec![[1, 1]], 0));
    drop(session);
    node.assert_idle();
}
