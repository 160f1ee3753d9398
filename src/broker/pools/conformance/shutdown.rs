//! The end: closing, retiring, draining, and what is reported.
use super::support::*;
use std::time::Instant;

/// pools.81, pools.82, pools.85: at the deadline the report says what is left, by kind; with the last owner it is clean, and
/// whoever waits is told by the event itself.
/// Case S57.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_reports_what_is_left_and_ends_with_the_last_owner() {
    let node = Arc::new(Node::new(PoolLimits::default()));
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    node.parked(&client, &session, Socket::new(&alive));
    let (used, unused) = (
        // The idle one is not taken for it: each of these dials.
        node.call(&client, &session),
        node.call(&client, &session),
    );
    let connection = client.checkout(&used).expect("allowed").expect("one rests");
    node.parked(&client, &session, Socket::new(&alive));
    let reservation = client.reserve_connection(&unused).expect("room");
    let staged = node.pools.admit(&client, &session).expect("room").input(512, 0).expect("room");
    let left = node.pools.shutdown(within(ms(30))).await;
    assert!(!left.is_clean() && left.closed && left.retired && !left.control_failed);
    assert_eq!((left.configurations, left.idle_connections), (0, 0), "what rested is gone");
    assert_eq!((left.active_connections, left.connecting_connections, left.connections), (1, 1, 2));
    assert_eq!((left.pending_requests, left.running_requests, left.control_owners), (1, 2, 1));
    assert_eq!((left.retained_configurations, left.clients, left.retired_connections), (1, 1, 2));
    assert_eq!(alive.load(SeqCst), 1);
    // One owner after another goes; nobody but the last makes it clean.
    drop((reservation, staged, unused, used, client, orders, session));
    assert!(!node.counts().is_clean());
    let waiting = {
        let node = node.clone();
        tokio::spawn(async move {
            let left = node.pools.shutdown(within(Duration::from_secs(10))).await;
            (left, Instant::now())
        })
    };
    tokio::time::sleep(ms(20)).await;
    let ended = Instant::now();
    drop(connection);
    let (left, told) = waiting.await.expect("no panic");
    assert!(left.is_clean(), "{left:?}");
    // References alone are no owners (pools.88): who dropped the last connection lets go of them right after it.
    let nothing =
        |left: PoolSnapshot| (left.retained_configurations, left.clients, left.metadata_bytes) == (0, 0, 0);
    until("nothing is retained", || nothing(node.counts())).await;
    // 5 ms on a machine of its own; a busy one may take a core away for longer.
    assert!(told.duration_since(ended) < ms(250), "{:?}", told.duration_since(ended));
    node.assert_idle();
}

/// How soon a shutdown is told, without another task on the machine's mind: on the thread that ends the last owner.
/// Cases S08, S57.
#[tokio::test]
async fn a_shutdown_is_told_by_the_event_itself() {
    assert_told_at_once(async || {
        let node = Node::new(PoolLimits::default());
        let orders = node.install("orders", 1, 0);
        let client = node.client::<Nothing>(&orders);
        let session = node.session(&node.plan("alpha", &orders));
        let connection = node.dialled(&client, &session, Nothing);
        let pools = node.pools.clone();
        let waiting = tokio::spawn(async move {
            let left = pools.shutdown(within(Duration::from_secs(10))).await;
            (left.is_clean(), Instant::now())
        });
        tokio::time::sleep(ms(5)).await;
        let ended = Instant::now();
        drop((connection, session));
        let (clean, told) = waiting.await.expect("no panic");
        assert!(clean);
        told.duration_since(ended)
    })
    .await;
}

/// pools.81: after the retirement everything new is refused, for direct I/O too, and what was there cannot come back.
#[tokio::test]
async fn a_retired_registry_refuses_everything() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let plan = node.plan("alpha", &orders);
    let session = node.session(&plan);
    let connection = node.dialled(&client, &session, Nothing);
    let call = node.call(&client, &session);
    node.pools.retire();
    node.pools.retire();
    let pools = Kind::Retired(What::Pools);
    assert_kind(node.pools.admit(&client, &session), pools);
    assert_kind(node.pools.admit_now(&client, &session), pools);
    assert_kind(node.pools.install(Node::setup("other", 1), Epoch::NONE), pools);
    assert_kind(node.pools.client::<Nothing>(&orders, OriginSlot::new(1)), pools);
    assert_kind(node.pools.provider("orders"), pools);
    assert_kind(node.pools.retire_provider(&orders), Kind::Retired(What::Epoch));
    assert!(matches!(node.io.admit(&session), Err(error) if matches!(error.kind(), Kind::Retired(What::Io))));
    // Running calls are stopped: they dial, check out and park no more.
    assert!(client.checkout(&call).is_err() && client.reserve_connection(&call).is_err());
    assert!(client.acquire(&call).await.is_err());
    assert!(connection.park(Exchange::complete()).is_err());
    assert_eq!(node.counts().connections, 0);
    drop((call, session));
    node.assert_clean_end().await;
}

/// Closing admission refuses what is new and lets everything else finish; after it returned, every request is in the count.
#[tokio::test]
async fn closing_admission_lets_accepted_requests_finish() {
    let limits =
        PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    let node = Node::new(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let running = node.call(&client, &session);
    let waiting = node.pools.admit(&client, &session).expect("room");
    node.pools.close_admission();
    assert!(node.counts().closed && !node.counts().retired);
    let closed = Kind::Retired(What::Admission);
    assert_kind(node.pools.admit(&client, &session), closed);
    assert_kind(node.pools.install(Node::setup("other", 1), Epoch::NONE), closed);
    assert_kind(node.pools.client::<Nothing>(&orders, OriginSlot::new(1)), closed);
    client
        .reserve_connection(&running)
        .expect("it may dial")
        .connected(Nothing)
        .expect("in time")
        .park(Exchange::complete())
        .expect("and park");
    drop(running);
    let call = waiting.wait().await.expect("its turn").dispatch(SEND, Cost::new()).expect("allowed");
    drop(client.checkout(&call).expect("allowed").expect("one rests"));
    drop((call, session));
    assert!(node.counts().is_idle());
    node.assert_clean_end().await;
}

/// The same, raced: what the count does not show when closing returned never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn after_closing_returned_no_request_comes() {
    for _ in 0..60 {
        let node = Arc::new(Node::new(PoolLimits::default()));
        let orders = node.install("orders", 1, 0);
        let client = node.client::<Nothing>(&orders);
        let plan = node.plan("alpha", &orders);
        let tasks = (0..2).map(|_| {
            let (node, client, plan) = (node.clone(), client.clone(), plan.clone());
            tokio::spawn(async move {
                let session = node.session(&plan);
                let mut held = Vec::new();
                while let Ok(admission) = node.pools.admit(&client, &session) {
                    held.push(admission);
                    if held.len() > 8 {
                        held.clear();
                    }
                }
                // Refused: from now on only what is held goes.
                (session, held)
            })
        });
        let tasks: Vec<_> = tasks.collect();
        tokio::task::yield_now().await;
        node.pools.close_admission();
        let mut last = node.counts().pending_requests;
        for task in tasks {
            let (session, held) = task.await.expect("no panic");
            let now = node.counts().pending_requests;
            assert!(now <= last, "a request came after closing had returned");
            last = now;
            drop((held, session));
        }
        node.assert_idle();
    }
}

/// pools.86, pools.87: a control task that is cut off closes everything, and there is no clean report any more.
#[test]
fn a_runtime_that_ends_early_leaves_no_clean_report_74() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (node, client, session, connection, alive) = runtime.block_on(async {
        let node = Node::new(PoolLimits::default());
        let orders = node.install("orders", 1, 0);
        let client = node.client::<Socket>(&orders);
        let session = node.session(&node.plan("alpha", &orders));
        let alive = Arc::new(AtomicUsize::new(0));
        let connection = node.dialled(&client, &session, Socket::new(&alive));
        node.parked(&client, &session, Socket::new(&alive));
        tokio::task::yield_now().await;
        (node, client, session, connection, alive)
    });
    drop(runtime);
    let counts = node.counts();
    assert!(counts.control_failed && counts.retired && counts.control_owners == 0, "{counts:?}");
    assert_eq!((counts.idle_connections, alive.load(SeqCst)), (0, 1));
    assert_kind(node.pools.admit(&client, &session), Kind::Retired(What::Pools));
    drop((connection, client, session));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let left = runtime.block_on(node.pools.shutdown(within(ms(20))));
    assert!(!left.is_clean() && left.control_failed);
    assert_eq!((left.connections, alive.load(SeqCst)), (0, 0), "it was given back all the same");
}

/// pools.84, pools.87: a runtime that is over already runs no control task; the registry says so from the start.
#[test]
fn a_runtime_that_is_over_already_makes_no_registry() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let handle = runtime.handle().clone();
    drop(runtime);
    let broker = Broker::new(BrokerLimits::default()).expect("valid");
    let io = IoRuntime::new(&broker, IoLimits::default()).expect("valid");
    let pools =
        ProviderPools::new(&broker, &io, handle, PoolLimits::default()).expect("it is made, and retired");
    let counts = pools.snapshot();
    assert!(counts.control_failed && counts.retired && counts.control_owners == 0, "{counts:?}");
    assert_kind(pools.install(Node::setup("orders", 1), Epoch::NONE), Kind::Retired(What::Pools));
}

/// pools.82: dropping the last handle retires; the control task finishes the drain by itself.
#[tokio::test]
async fn dropping_the_last_handle_drains_by_itself() {
    let Node { broker, io, pools } = Node::new(PoolLimits::default());
    let setup = Node::setup("orders", 1);
    let orders = pools.install(setup, Epoch::NONE).expect("room");
    let client = pools.client::<Socket>(&orders, OriginSlot::new(0)).expect("room");
    let plan = broker.seal(PlanSpec::new("alpha", "p").bind(&HTTP, &orders.reference())).expect("current");
    let session = broker.open(&plan, Activation::until(within(Duration::from_secs(9)))).expect("room");
    let alive = Arc::new(AtomicUsize::new(0));
    let call =
        pools.admit_now(&client, &session).expect("room").dispatch(SEND, Cost::new()).expect("allowed");
    let dial = client.reserve_connection(&call).expect("room");
    dial.connected(Socket::new(&alive)).expect("in time").park(Exchange::complete()).expect("room");
    drop(pools);
    assert_eq!(alive.load(SeqCst), 0, "what rested is gone");
    assert!(call.io().checkpoint().is_err() && io.snapshot().closed);
    drop((call, session, client, orders, plan));
    assert!(io.snapshot().is_zero());
}

/// Retirements and rotations on several threads at once, with admissions and parks between them: when any of them has
/// returned, nothing is admitted and nothing rests.
/// Behaviour (43).
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_retirement_that_returned_is_over_in_every_race() {
    for round in 0..40 {
        let node = Arc::new(Node::new(PoolLimits::default()));
        let orders = node.install("orders", 1, 0);
        let client = node.client::<Socket>(&orders);
        let plan = node.plan("alpha", &orders);
        let alive = Arc::new(AtomicUsize::new(0));
        let worker = {
            let (node, client, plan, alive) = (node.clone(), client.clone(), plan.clone(), alive.clone());
            tokio::spawn(async move {
                let session = node.session(&plan);
                while let Ok(ready) = node.pools.admit_now(&client, &session) {
                    let Ok(call) = ready.dispatch(SEND, Cost::new()) else { break };
                    let connection = match client.acquire(&call).await {
                        Ok(Acquired::Idle(connection)) => connection,
                        Ok(Acquired::Dial(reservation)) => match reservation.connected(Socket::new(&alive)) {
                            Ok(connection) => connection,
                            Err(_) => break,
                        },
                        Err(_) => break,
                    };
                    if connection.park(Exchange::complete()).is_err() {
                        break;
                    }
                }
            })
        };
        let installer = {
            let node = node.clone();
            tokio::spawn(async move {
                for epoch in 2..6 {
                    if node.pools.install(Node::setup("orders", epoch), Epoch(epoch - 1)).is_err() {
                        break;
                    }
                }
            })
        };
        let retirers = (0..2).map(|_| {
            let node = node.clone();
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                node.pools.retire();
                let counts = node.counts();
                assert_eq!(
                    (counts.configurations, counts.closed, counts.retired),
                    (0, true, true),
                    "round {round}"
                );
                counts.idle_connections
            })
        });
        for retirer in retirers.collect::<Vec<_>>() {
            retirer.await.expect("no panic");
        }
        worker.await.expect("no panic");
        installer.await.expect("no panic");
        assert_eq!((node.counts().idle_connections, alive.load(SeqCst)), (0, 0), "round {round}");
        drop((client, orders, plan));
        node.assert_clean_end().await;
    }
}

/// What was retained of a call that is over: as long as it lives, no shutdown is clean.
#[tokio::test]
async fn a_retained_result_keeps_a_shutdown_from_being_clean() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let call = node.call(&client, &session);
    let result = call.io().buffer(512, 0).expect("room").retain().expect("room");
    drop((call, session, client, orders));
    let left = node.pools.shutdown(within(ms(30))).await;
    assert_eq!((left.running_requests, left.pending_requests, left.connections), (1, 0, 0), "{left:?}");
    assert!(!left.is_clean() && !left.is_idle());
    drop(result);
    node.assert_clean_end().await;
}
