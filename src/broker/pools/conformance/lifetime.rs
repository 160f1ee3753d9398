//! How long a connection lives, and which of those that rest is used next.
use super::support::*;
use std::task::Poll;

const LIFETIME: Duration = Duration::from_secs(100);

fn living(lifetime: Duration) -> PoolLimits {
    PoolLimits { maximum_lifetime: lifetime, idle_age: Duration::from_secs(3_600), ..PoolLimits::default() }
}

/// The control task destroys what has lived for its time, at that instant: at 90 % to 100 % of the limit, not all at once, and
/// whatever was used in between.
#[tokio::test(start_paused = true)]
async fn what_has_lived_for_its_time_is_destroyed_at_that_instant() {
    let node = Node::paused(living(LIFETIME));
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let made = [(); 8].map(|()| node.dialled(&client, &session, Socket::new(&alive)));
    for connection in made {
        connection.park(Exchange::complete()).expect("room");
    }
    drop(session);
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Using one does not make it younger.
    let session = node.session(&node.plan("alpha", &orders));
    let call = node.call(&client, &session);
    let used = client.checkout(&call).expect("allowed").expect("they rest");
    used.park(Exchange::complete()).expect("room");
    drop((call, session));
    tokio::time::sleep(ms(29_990)).await;
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (8, 8));
    let mut left = Vec::new();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        left.push(alive.load(SeqCst));
        assert_eq!(node.counts().connections as usize, alive.load(SeqCst));
    }
    tokio::time::sleep(ms(20)).await;
    assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    assert!(left.is_sorted_by(|before, after| before >= after));
    let distinct = left.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert!(distinct >= 4, "they ended together: {left:?}");
    assert_eq!(client.retry_after(), None, "nothing failed");
    node.assert_clean_end().await;
}

/// A connection that becomes too old while it is used is not taken from its user; it ends when it would be parked.
#[tokio::test(start_paused = true)]
async fn one_in_use_ends_when_it_is_parked() {
    let node = Node::paused(living(Duration::from_secs(10)));
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let [old, young] = [(); 2].map(|()| node.call(&client, &session));
    let dial = |call| {
        client.reserve_connection(call).expect("room").connected(Socket::new(&alive)).expect("in time")
    };
    let mut first = dial(&old);
    tokio::time::sleep(Duration::from_secs(8)).await;
    let second = dial(&young);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(first.resource().is_reusable());
    assert_eq!((alive.load(SeqCst), node.counts().active_connections), (2, 2));
    assert_kind(first.park(Exchange::complete()), Kind::Denied(Denied::NotReusable));
    second.park(Exchange::complete()).expect("it is young");
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (1, 1));
    assert_eq!(node.counts().connections, 1);
    drop((old, young, session));
    node.assert_clean_end().await;
    assert_eq!(alive.load(SeqCst), 0);
}

/// Checkout and the line look themselves: the thread is kept busy, so that no control task comes in between. The next one
/// that is young enough is given.
#[tokio::test]
async fn one_that_is_too_old_is_not_handed_out() {
    // Wide apart: a busy machine takes a core away for tens of milliseconds, and a sanitizer slows every step.
    let node = Node::new(living(ms(2_000)));
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let [one, two, three] = [(); 3].map(|()| node.call(&client, &session));
    let dial = |call| {
        client.reserve_connection(call).expect("room").connected(Socket::new(&alive)).expect("in time")
    };
    let first = dial(&one);
    first.park(Exchange::complete()).expect("young");
    std::thread::sleep(ms(1_400));
    let held = client.checkout(&one).expect("allowed").expect("young enough");
    let second = dial(&two);
    held.park(Exchange::complete()).expect("young enough");
    second.park(Exchange::complete()).expect("young");
    assert_eq!(alive.load(SeqCst), 2);
    std::thread::sleep(ms(700));
    let given = client.checkout(&three).expect("allowed").expect("the second is young");
    assert_eq!((alive.load(SeqCst), node.counts().connections), (1, 1), "the first was destroyed on the way");
    drop(given);
    drop((one, two, three, session));
    node.assert_clean_end().await;
}

/// One that was handed over in the line and has become too old meanwhile is destroyed, and the waiter gets the turn to dial.
#[tokio::test]
async fn one_that_became_too_old_in_the_line_is_not_taken() {
    let node = Node::new(PoolLimits { connections_per_client: 1, ..living(ms(400)) });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let used = node.dialled(&client, &session, Socket::new(&alive));
    let call = node.call(&client, &session);
    let mut wait = Box::pin(client.acquire(&call));
    assert!(super::poll::poll_once(wait.as_mut()).is_pending());
    used.park(Exchange::complete()).expect("young");
    std::thread::sleep(ms(420));
    let Poll::Ready(Ok(Acquired::Dial(reservation))) = super::poll::poll_once(wait.as_mut()) else {
        panic!("the turn to dial was expected")
    };
    assert_eq!(alive.load(SeqCst), 0);
    drop(wait);
    drop(reservation.connected(Socket::new(&alive)).expect("in time"));
    drop((call, session));
    node.assert_clean_end().await;
}

/// Without a limit, and by default for less than half an hour, connections live on.
#[tokio::test(start_paused = true)]
async fn connections_without_a_limit_live_as_long_as_they_work() {
    assert_eq!(PoolLimits::default().lifetime(), Some(Duration::from_secs(1_800)));
    assert_eq!(living(PoolLimits::NO_MAXIMUM_LIFETIME).lifetime(), None);
    for (lifetime, lives) in [(PoolLimits::NO_MAXIMUM_LIFETIME, true), (Duration::from_secs(86_400), false)] {
        let node = Node::paused(living(lifetime));
        let orders = node.install("orders", 1, 0);
        let client = node.client::<Socket>(&orders);
        let alive = Arc::new(AtomicUsize::new(0));
        let plan = node.plan("alpha", &orders);
        node.parked(&client, &node.session(&plan), Socket::new(&alive));
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            let session = node.session(&plan);
            let call = node.call(&client, &session);
            if let Some(connection) = client.checkout(&call).expect("allowed") {
                connection.park(Exchange::complete()).expect("young");
            }
        }
        assert_eq!(alive.load(SeqCst), usize::from(lives), "{lifetime:?}");
        node.assert_clean_end().await;
    }
    let above = PoolLimits { maximum_lifetime: Duration::from_secs(86_401), ..PoolLimits::default() };
    assert!(above.validate().is_err());
}

/// The lowest place first: a load of two at a time uses two of six, and the others age out at their own time.
#[tokio::test(start_paused = true)]
async fn load_gathers_on_the_lowest_and_the_rest_ages_out() {
    let limits = PoolLimits { idle_age: Duration::from_secs(30), ..PoolLimits::default() };
    let node = Node::paused(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let alive = Arc::new(AtomicUsize::new(0));
    let plan = node.plan("alpha", &orders);
    let session = node.session(&plan);
    let mut made: Vec<_> = (0..6).map(|_| node.dialled(&client, &session, Socket::new(&alive))).collect();
    let lowest: Vec<_> = made[..2].iter_mut().map(|made| made.resource().reusable.clone()).collect();
    // The order in which they come back does not matter.
    for at in [4, 0, 3, 2, 0, 0] {
        made.remove(at).park(Exchange::complete()).expect("room");
    }
    drop(session);
    for round in 0..5 {
        let session = node.session(&plan);
        let calls = [(); 2].map(|()| node.call(&client, &session));
        let used = calls.each_ref().map(|call| client.checkout(call).expect("allowed").expect("they rest"));
        for (mut connection, lowest) in used.into_iter().zip(&lowest).rev() {
            assert!(Arc::ptr_eq(&connection.resource().reusable, lowest), "round {round}");
            connection.park(Exchange::complete()).expect("room");
        }
        tokio::time::sleep(ms(10_010)).await;
        assert_eq!(alive.load(SeqCst), if round < 2 { 6 } else { 2 }, "round {round}");
    }
    node.assert_clean_end().await;
}
