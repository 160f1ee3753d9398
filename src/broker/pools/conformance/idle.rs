//! How long connections rest.
use super::poll::poll_once;
use super::support::*;

fn aging(idle: Duration) -> PoolLimits {
    PoolLimits { idle_age: idle, ..PoolLimits::default() }
}

/// pools.73, pools.74: the control task destroys what has rested long enough, at that instant and not by a tick.
#[tokio::test(start_paused = true)]
async fn what_has_rested_long_enough_is_destroyed_31() {
    let node = Node::paused(aging(Duration::from_secs(30)));
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let (first, second) = (
        node.dialled(&client, &session, Socket::new(&alive)),
        node.dialled(&client, &session, Socket::new(&alive)),
    );
    first.park(Exchange::complete()).expect("room");
    tokio::time::sleep(Duration::from_secs(10)).await;
    second.park(Exchange::complete()).expect("room");
    tokio::time::sleep(ms(19_990)).await;
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (2, 2));
    tokio::time::sleep(ms(20)).await;
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (1, 1));
    tokio::time::sleep(ms(9_970)).await;
    assert_eq!(alive.load(SeqCst), 1);
    tokio::time::sleep(ms(30)).await;
    assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    // Who was used again in between starts anew.
    drop(session);
    node.parked(&client, &node.session(&node.plan("alpha", &orders)), Socket::new(&alive));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let session = node.session(&node.plan("alpha", &orders));
        let call = node.call(&client, &session);
        let connection = client.checkout(&call).expect("allowed").expect("20 s are not 30");
        connection.park(Exchange::complete()).expect("room");
    }
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(alive.load(SeqCst), 0);
    node.assert_idle();
}

/// pools.74: checkout looks itself. The thread is kept busy, so that no control task comes in between.
#[tokio::test]
async fn an_expired_connection_is_not_handed_out_31() {
    let node = Node::new(aging(ms(60)));
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let made = [(); 3].map(|()| node.dialled(&client, &session, Socket::new(&alive)));
        for connection in made {
            connection.park(Exchange::complete()).expect("room");
        }
        std::thread::sleep(ms(100));
        let call = node.call(&client, &session);
        assert!(client.checkout(&call).expect("allowed").is_none());
        assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    }
    drop(session);
    node.assert_idle();
}

/// pools.70, pools.74: a dead connection is destroyed and the next one tried.
#[tokio::test]
async fn a_dead_connection_is_skipped() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let sockets = [(); 3].map(|()| Socket::new(&alive));
    let reusable = sockets.each_ref().map(|socket| socket.reusable.clone());
    let made = sockets.map(|socket| node.dialled(&client, &session, socket));
    for connection in made {
        connection.park(Exchange::complete()).expect("room");
    }
    reusable[0].store(false, SeqCst);
    reusable[1].store(false, SeqCst);
    let call = node.call(&client, &session);
    let mut connection = client.checkout(&call).expect("allowed").expect("one is alive");
    assert!(Arc::ptr_eq(&connection.resource().reusable, &reusable[2]));
    assert_eq!((alive.load(SeqCst), node.counts().connections), (1, 1));
    drop((connection, call, session));
    node.assert_idle();
}

/// pools.74: many at once go in bounded steps, and all of them go.
#[tokio::test(start_paused = true)]
async fn many_that_expire_at_once_all_go() {
    let limits = PoolLimits {
        connections: 512,
        connections_per_client: 256,
        idle_connections: 400,
        running: 1024,
        running_per_tenant: 1024,
        running_per_provider: 1024,
        requests_per_tenant: 1024,
        requests_per_provider: 1024,
        pending: 1024,
        ..aging(Duration::from_secs(5))
    };
    let io = IoLimits { owners: 2048, running: 1024, queued: 1024, ..IoLimits::default() };
    let node = Node::on(Clock::tokio(), io, limits);
    let orders = node.install("orders", 1, 0);
    let sessions: Vec<_> = (0..20).map(|_| node.session(&node.plan("alpha", &orders))).collect();
    let alive = Arc::new(AtomicUsize::new(0));
    let mut made = Vec::new();
    for slot in 0..2 {
        let client = node.pools.client::<Socket>(&orders, OriginSlot::new(slot)).expect("room");
        for number in 0..200 {
            made.push(node.dialled(&client, &sessions[number % 20], Socket::new(&alive)));
        }
    }
    for connection in made {
        connection.park(Exchange::complete()).expect("room");
    }
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (400, 400));
    tokio::time::sleep(ms(5_020)).await;
    assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    drop(sessions);
    node.assert_idle();
}

/// A connection that was handed over and not taken rests again, from the instant at which it began to rest.
#[tokio::test(start_paused = true)]
async fn what_was_handed_over_and_not_taken_expires_too() {
    let node = Node::paused(PoolLimits { connections_per_client: 1, ..aging(Duration::from_secs(5)) });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let used = node.dialled(&client, &session, Socket::new(&alive));
    let call = node.call(&client, &session);
    let mut wait = Box::pin(client.acquire(&call));
    assert!(poll_once(wait.as_mut()).is_pending());
    used.park(Exchange::complete()).expect("room");
    // Nobody polls the one it was handed to, and the control task finds nothing at rest when it looks.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (1, 1));
    drop(wait);
    tokio::time::sleep(ms(20)).await;
    assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    drop((call, session));
    node.assert_idle();
}
