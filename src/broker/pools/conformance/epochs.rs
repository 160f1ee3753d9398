//! Installing, rotating and retiring configurations; what is keyed by what.
use super::poll::poll_once;
use super::support::*;

fn roomy() -> PoolLimits {
    PoolLimits::default()
}

/// pools.11, pools.17, pools.23: a refused replacement, and a second registry, change nothing.
#[tokio::test]
async fn a_rejected_rotation_and_a_second_registry_change_nothing_30() {
    let limits = PoolLimits { configurations: 2, configuration_bytes: 16, ..roomy() };
    let node = Node::new(limits);
    let orders = node.install("orders", 3, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let before = node.counts();
    let install = |setup: ProviderSetup, expected| node.pools.install(setup, Epoch(expected));
    let stale = Kind::Denied(Denied::StaleEpoch);
    assert_kind(install(Node::setup("orders", 4), 0), stale);
    assert_kind(install(Node::setup("orders", 4), 2), stale);
    assert_kind(install(Node::setup("orders", 3), 3), stale);
    assert_kind(install(Node::setup("orders", 2), 3), stale);
    assert_kind(install(Node::setup("other", 1), 1), stale);
    assert_kind(install(Node::setup("other", 0), 0), stale);
    let large = Node::setup("orders", 4).credentials([7; 17]);
    assert_kind(install(large, 3), Kind::TooLarge(Dimension::PoolsConfigurationBytes));
    assert!(
        matches!(install(Node::setup("no name", 1), 0), Err(error) if matches!(error.kind(), Kind::Invalid(_)))
    );
    let second = node.install("second", 1, 0);
    assert_full(install(Node::setup("orders", 4), 3), Dimension::PoolsConfigurations, Scope::Node);
    node.pools.retire_provider(&second).expect("it is current");
    assert_kind(node.pools.retire_provider(&second), Kind::Retired(What::Epoch));
    drop(second);
    until("the second one is forgotten", || node.counts() == before).await;
    let handle = tokio::runtime::Handle::current();
    let again = ProviderPools::new(&node.broker, &node.io, handle.clone(), roomy());
    assert!(matches!(again, Err(SetupError::Second(_))), "{again:?}");
    // What was there goes on.
    assert_eq!(node.pools.provider("orders").expect("installed").epoch(), Epoch(3));
    drop(node.call(&client, &session));
    drop(session);
    node.assert_clean_end().await;
    let again = ProviderPools::new(&node.broker, &node.io, handle, roomy());
    assert!(matches!(again, Err(SetupError::Second(_))), "after the retirement too: {again:?}");
}

/// pools.17: a replacement that has no room for its clients is rejected as a whole.
#[tokio::test]
async fn an_epoch_and_its_clients_are_installed_together_or_not_at_all() {
    let limits = PoolLimits { clients_per_provider: 3, clients: 4, ..roomy() };
    let node = Node::new(limits);
    let install = |epoch, expected, origins| {
        let setup = Node::setup("orders", epoch);
        node.pools.install_with_clients::<Nothing>(setup, Epoch(expected), origins)
    };
    assert_full(install(1, 0, 4), Dimension::PoolsClientsPerProvider, Scope::Provider(0));
    assert_kind(node.pools.provider("orders"), Kind::Denied(Denied::Unknown));
    until("the refused first one is forgotten", || {
        node.counts() == PoolSnapshot { control_owners: 1, ..PoolSnapshot::default() }
    })
    .await;
    let (old, clients) = install(1, 0, 2).expect("room");
    assert_eq!(clients.len(), 2);
    let plan = node.plan("alpha", &old);
    let session = node.session(&plan);
    node.parked(&clients[1], &session, Nothing);
    let before = node.counts();
    assert_eq!((before.clients, before.idle_connections), (2, 1));
    // One client fits beside the two of the old epoch, and two do not.
    assert_full(install(2, 1, 2), Dimension::PoolsClientsPerProvider, Scope::Provider(0));
    assert!(old.is_current());
    assert_eq!(node.counts(), before, "the connection rests where it rested, and nothing more is charged");
    let again = node.pools.client::<Nothing>(&old, OriginSlot::new(1)).expect("made already");
    let call = node.call(&again, &session);
    assert!(again.checkout(&call).expect("allowed").is_some());
    drop(call);
    let (new, made) = install(2, 1, 1).expect("room for one");
    assert!(new.is_current() && !old.is_current());
    assert_kind(node.pools.admit(&clients[0], &session), Kind::Retired(What::Epoch));
    drop((old, plan, session, clients, again));
    let plan = node.plan("alpha", &new);
    let session = node.session(&plan);
    drop(node.call(&made[0], &session));
    until("the old one is gone", || node.counts().retained_configurations == 1).await;
    assert_eq!(node.counts().clients, 1);
    drop((new, made, session, plan));
    node.assert_clean_end().await;
}

/// pools.16, pools.18, pools.55, pools.56: the old epoch's queue is refused at once; its calls finish, and park nothing.
#[tokio::test]
async fn a_rotation_is_one_step_29() {
    let limits = PoolLimits { running: 2, running_per_tenant: 2, running_per_provider: 1, ..roomy() };
    let node = Node::new(limits);
    let old = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&old);
    let plan = node.plan("alpha", &old);
    let session = node.session(&plan);
    node.parked(&client, &session, Nothing);
    let call = node.call(&client, &session);
    let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    let staged = node.pools.admit(&client, &session).expect("room");

    let new = node.install("orders", 7, 1);
    assert!(new.is_current() && !old.is_current());
    let counts = node.counts();
    assert_eq!((counts.configurations, counts.retained_configurations, counts.clients), (1, 2, 1));
    assert_eq!(counts.idle_connections, 0, "what rested on the old epoch is gone");
    let retired = Kind::Retired(What::Epoch);
    // Queued, staged and later admissions.
    let std::task::Poll::Ready(result) = poll_once(wait.as_mut()) else { panic!("it was woken") };
    assert_kind(result, retired);
    assert_kind(Box::pin(staged.wait()).await, retired);
    assert_kind(node.pools.admit(&client, &session), retired);
    assert_kind(node.pools.admit_now(&client, &session), retired);
    assert_kind(node.pools.client::<Nothing>(&old, OriginSlot::new(1)), retired);
    assert_kind(
        node.broker.seal(PlanSpec::new("alpha", "p").bind(&HTTP, &old.reference())).map(drop),
        retired,
    );
    // The accepted call goes on with what it was accepted on: it may dial, and cannot park.
    assert!(client.checkout(&call).expect("allowed").is_none());
    let connection = client.reserve_connection(&call).expect("allowed").connected(Nothing).expect("in time");
    assert_eq!(node.counts().retired_connections, 1);
    assert_kind(connection.park(Exchange::complete()), retired);
    assert_eq!(node.counts().retired_connections, 0);
    // Who holds the old one may still read its credentials.
    assert!(old.with_credentials(|bytes| bytes == b"hunter2"));
    drop((call, session, plan, client, old));
    // The new one is ready for use, under a plan of its own.
    let client = node.client::<Nothing>(&new);
    let session = node.session(&node.plan("alpha", &new));
    node.parked(&client, &session, Nothing);
    drop(session);
    until("the old epoch is freed", || node.counts().retained_configurations == 1).await;
    assert_eq!(node.counts().clients, 1);
    node.assert_clean_end().await;
}

/// pools.12, pools.13, pools.85: nothing shows a credential; the digest may stay the same.
#[tokio::test]
async fn credentials_are_shown_nowhere_29() {
    let node = Node::new(roomy());
    let first = node.install("orders", 1, 0);
    let second = node.install("orders", 2, 1);
    let client = node.client::<Nothing>(&second);
    let plan = node.plan("alpha", &second);
    let session = node.session(&plan);
    let call = node.call(&client, &session);
    assert_eq!(first.digest(), second.digest());
    let shown = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        node.pools,
        first,
        second,
        client,
        plan,
        call,
        node.counts(),
        second.reference()
    );
    assert!(shown.contains("orders") && !shown.contains("hunter2"), "{shown}");
    let refused = node.pools.install(Node::setup("orders", 2), Epoch(1)).expect_err("stale");
    assert!(!format!("{refused:?} {refused}").contains("hunter2"));
}

/// pools.42, pools.18: the limits of a logical provider are one allowance for all its epochs.
#[tokio::test]
async fn a_rotation_creates_no_second_allowance_27() {
    let limits = PoolLimits { running_per_provider: 1, clients_per_provider: 2, clients: 8, ..roomy() };
    let node = Node::new(limits);
    let old = node.install("orders", 1, 0);
    let kept = node.client::<Nothing>(&old);
    let session = node.session(&node.plan("alpha", &old));
    let call = node.call(&kept, &session);
    let new = node.install("orders", 2, 1);
    let client = node.client::<Nothing>(&new);
    let renewed = node.session(&node.plan("alpha", &new));
    let refused = node.pools.admit_now(&client, &renewed).expect_err("the old epoch's call runs");
    assert_eq!(refused.dimension(), Some(Dimension::PoolsRunningPerProvider));
    let refused =
        node.pools.client::<Nothing>(&new, OriginSlot::new(1)).expect_err("the old epoch's client is kept");
    assert_eq!(refused.dimension(), Some(Dimension::PoolsClientsPerProvider));
    drop(call);
    drop(node.call(&client, &renewed));
    drop(kept);
    // Nobody keeps the old client any more: it does not stand in the way, whoever has swept by now.
    drop(node.pools.client::<Nothing>(&new, OriginSlot::new(1)).expect("there is room"));
    drop((session, renewed));
    node.assert_idle();
}

/// pools.18: an epoch that only dead plans keep stands in nobody's way.
#[tokio::test]
async fn what_nothing_keeps_is_no_reason_to_refuse() {
    let node = Node::new(PoolLimits { configurations: 2, ..roomy() });
    let mut installed = node.install("orders", 1, 0);
    for epoch in 2..40 {
        let session = node.session(&node.plan("alpha", &installed));
        drop(node.call(&node.client::<Nothing>(&installed), &session));
        drop(session);
        installed = node.install("orders", epoch, epoch - 1);
    }
    until("all but one are freed", || node.counts().retained_configurations == 1).await;
}

/// pools.26 to pools.28, pools.38: ceilings of the registry's own tables.
#[tokio::test]
async fn the_tables_of_the_registry_are_bounded() {
    let limits = PoolLimits { configurations: 3, clients: 2, clients_per_provider: 2, ..roomy() };
    let node = Node::new(limits);
    let (p, q) = (node.install("p", 1, 0), node.install("q", 1, 0));
    let _first = node.client::<Nothing>(&p);
    let _second = node.pools.client::<Nothing>(&q, OriginSlot::new(0)).expect("room");
    let refused = node.pools.client::<Nothing>(&p, OriginSlot::new(1));
    assert_full(refused, Dimension::PoolsClients, Scope::Node);
    let _third = node.install("r", 1, 0);
    let refused = node.pools.install(Node::setup("s", 1), Epoch::NONE);
    assert_full(refused, Dimension::PoolsConfigurations, Scope::Node);
    // Metadata: what is charged beside the prepaid cost, by the bytes themselves.
    let used = node.counts().metadata_bytes;
    node.pools.retire_provider(&_third).expect("current");
    let large = Node::setup("t", 1).credentials([7; 40 * 1024]);
    drop(_third);
    let large = node.pools.install(large, Epoch::NONE).expect("room");
    assert!(node.counts().metadata_bytes > used + 39 * 1024);
    node.pools.retire_provider(&large).expect("current");
    drop(large);
    until("its metadata comes back", || node.counts().metadata_bytes < used).await;
}

/// pools.19 to pools.22: one client per typed origin slot of an epoch; nothing foreign is taken.
#[tokio::test]
async fn a_client_is_found_by_epoch_and_slot_21() {
    let node = Node::new(roomy());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    assert!(client.is_same(&node.client(&orders)));
    let other = node.pools.client::<Nothing>(&orders, OriginSlot::new(1)).expect("room");
    assert!(!client.is_same(&other) && other.origin() == OriginSlot::new(1));
    let typed = node.pools.client::<Socket>(&orders, OriginSlot::new(0));
    assert_kind(typed, Kind::Denied(Denied::OtherType));
    assert_eq!(node.counts().clients, 2);
    // A request for one client is of no use for another.
    let session = node.session(&node.plan("alpha", &orders));
    let call = node.call(&client, &session);
    assert_kind(other.checkout(&call), Kind::Denied(Denied::ForeignClient));
    assert_kind(other.reserve_connection(&call), Kind::Denied(Denied::ForeignClient));
    assert_kind(other.acquire(&call).await, Kind::Denied(Denied::ForeignClient));
    // Nor is anything of another node, though its numbers are the same.
    let elsewhere = Node::new(roomy());
    let theirs = elsewhere.install("orders", 1, 0);
    let their_client = elsewhere.client::<Nothing>(&theirs);
    assert_kind(
        node.pools.client::<Nothing>(&theirs, OriginSlot::new(0)),
        Kind::Denied(Denied::ForeignProvider),
    );
    assert_kind(node.pools.retire_provider(&theirs), Kind::Denied(Denied::ForeignProvider));
    assert_kind(node.pools.admit(&their_client, &session), Kind::Denied(Denied::ForeignClient));
    assert_kind(their_client.checkout(&call), Kind::Denied(Denied::ForeignClient));
    assert_kind(elsewhere.pools.admit(&their_client, &session), Kind::Denied(Denied::ForeignSession));
    assert!(theirs.is_current() && orders.is_current());
    drop((call, session));
    node.assert_idle();
    let handle = tokio::runtime::Handle::current();
    let mixed = ProviderPools::new(&node.broker, &elsewhere.io, handle, roomy());
    assert!(matches!(mixed, Err(SetupError::ForeignRuntime)), "{mixed:?}");
}

/// pools.53, pools.55: policy is asked again after the wait, and the refusal leaves the session as it was.
/// Behaviour (34) too: a grant whose session is gone starts nothing.
#[tokio::test]
async fn a_revocation_while_queued_refuses_the_start_33() {
    let node =
        Node::new(PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..roomy() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let plan = node.plan("alpha", &orders);
    let (session, other) = (node.session(&plan), node.session(&node.plan("beta", &orders)));
    let running = node.call(&client, &other);
    let wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    let revoker = plan.clone();
    let waiter = tokio::spawn(wait);
    tokio::task::yield_now().await;
    assert!(revoker.revoke(SEND).expect("bound"));
    drop(running);
    let ready = waiter.await.expect("no panic").expect("a grant is capacity");
    assert_kind(ready.dispatch(SEND, Cost::new()), Kind::Denied(Denied::Policy));
    session.check().expect("the session is open");
    assert_kind(node.pools.admit(&client, &session), Kind::Denied(Denied::Policy));
    // A grant whose session is gone starts nothing (34).
    let ready = node.pools.admit_now(&client, &other).expect("room");
    drop(other);
    assert_kind(ready.dispatch(SEND, Cost::new()), Kind::Stopped(StopCause::Session));
    drop(session);
    node.assert_idle();
}

/// pools.15, pools.16, pools.86: the control path waits for its turn; it is never refused because somebody else is at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn bookkeeping_is_waited_for_26() {
    let node = Arc::new(Node::new(PoolLimits { clients: 1024, ..roomy() }));
    let tasks = (0..6).map(|task| {
        let node = node.clone();
        tokio::spawn(async move {
            let name = format!("provider-{task}");
            let mut installed = node.install(&name, 1, 0);
            for epoch in 2..30 {
                let client = node.client::<Nothing>(&installed);
                let session = node.session(&node.plan("alpha", &installed));
                node.parked(&client, &session, Nothing);
                drop((session, client));
                installed = node.install(&name, epoch, epoch - 1);
                assert!(node.counts().configurations >= 1);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("nothing is refused");
    }
    assert_eq!(node.counts().idle_connections, 0);
    until("every replaced epoch is freed", || node.counts().retained_configurations == 6).await;
    node.assert_clean_end().await;
}

/// pools.16, pools.42: rotations under load, as a node does them: who was refused for the old epoch asks the new one.
/// Case S40.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotations_under_load_lose_no_request() {
    let node = Arc::new(Node::new(PoolLimits {
        running: 4,
        running_per_tenant: 4,
        running_per_provider: 4,
        ..roomy()
    }));
    let current = Arc::new(std::sync::RwLock::new(node.install("orders", 1, 0)));
    let (over, renewed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tasks = (0..8).map(|_| {
        let (node, current, over, renewed) = (node.clone(), current.clone(), over.clone(), renewed.clone());
        tokio::spawn(async move {
            while !over.load(SeqCst) {
                let installed = current.read().expect("no panic").clone();
                match exchange(&node, &installed).await {
                    Ok(()) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Retired(What::Epoch), "{error}");
                        assert_eq!(error.effect(), Effect::NotSent);
                        renewed.fetch_add(1, SeqCst);
                    }
                }
                tokio::task::yield_now().await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for epoch in 2..=50 {
        let next = node.install("orders", epoch, epoch - 1);
        *current.write().expect("no panic") = next;
        tokio::time::sleep(ms(1)).await;
    }
    over.store(true, SeqCst);
    for task in tasks {
        task.await.expect("no panic");
    }
    until("49 epochs are freed", || node.counts().retained_configurations == 1).await;
    assert_eq!(node.counts().retired_connections, 0);
    node.assert_clean_end().await;
}

/// A request on this epoch: whatever was refused, nothing had been sent.
async fn exchange(node: &Node, installed: &InstalledProvider) -> Result<(), Error> {
    let client = node.pools.client::<Nothing>(installed, OriginSlot::new(0))?;
    let plan = node.broker.seal(PlanSpec::new("alpha", "publication").bind(&HTTP, &installed.reference()))?;
    let session = node.session(&plan);
    let ready = node.pools.admit(&client, &session)?.wait().await?;
    let call = ready.dispatch(SEND, Cost::new())?;
    let connection = match client.acquire(&call).await? {
        Acquired::Idle(connection) => connection,
        Acquired::Dial(reservation) => reservation.connected(Nothing)?,
    };
    tokio::task::yield_now().await;
    // On a replaced epoch it is destroyed instead.
    if let Err(error) = connection.park(Exchange::complete()) {
        assert_eq!(error.kind(), Kind::Retired(What::Epoch));
    }
    Ok(())
}
