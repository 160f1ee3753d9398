//! Limits lowered while work is running: all that was asked, or nothing, never below what is in use.
use super::poll::poll_once;
use super::support::*;
use crate::broker::pools::{PoolAdmission, PoolWait};
use Dimension::*;
use std::pin::Pin;
use std::task::Poll;

fn roomy() -> PoolLimits {
    PoolLimits { running: 8, running_per_tenant: 8, running_per_provider: 8, ..PoolLimits::default() }
}

impl Node {
    /// Lowers one limit.
    fn lower(&self, dimension: Dimension, to: u64) -> Result<(), LowerError> {
        self.lower_to(&[(dimension, to)])
    }
    fn lower_to(&self, changes: &[(Dimension, u64)]) -> Result<(), LowerError> {
        let mut limits = self.pools.limits();
        for (dimension, to) in changes {
            limits.set(*dimension, *to).expect("it is one of them");
        }
        self.pools.lower_limits(limits)
    }
}

fn used(dimension: Dimension, scope: Scope, asked: u64, found: u64) -> Obstacle {
    Obstacle { dimension, scope, asked, found, why: Standing::InUse }
}

/// Fails unless exactly these stand in the way, in whatever order.
#[track_caller]
fn assert_refused(result: Result<(), LowerError>, expected: &[Obstacle]) {
    let error = result.expect_err("something stands in the way");
    let found = error.obstacles();
    assert_eq!(found.len(), expected.len(), "{error}");
    for obstacle in expected {
        assert!(found.contains(obstacle), "{obstacle:?} is not in {found:?}");
    }
}

/// pools.40, pools.41: each limit that is counted is saturated, refuses to go below its use, goes down to it, and holds for
/// the next admission; what was held is held still and comes back into the smaller room.
#[tokio::test]
async fn saturation_and_live_lowering_22() {
    let node = Node::new(PoolLimits { pending: 9, ..roomy() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let plan = node.plan("alpha", &orders);
    let session = node.session(&plan);
    let calls = [(); 3].map(|()| node.call(&client, &session));
    let staged: Vec<_> = (0..2).map(|_| node.pools.admit(&client, &session).expect("room")).collect();
    let connections = [0, 1]
        .map(|at| client.reserve_connection(&calls[at]).expect("room").connected(Nothing).expect("in time"));
    node.parked(&client, &session, Nothing);
    let before = (node.counts(), node.pools.limits());
    let (tenant, provider) = (Scope::Tenant(0), Scope::Provider(0));
    let holds = [
        (PoolsPending, Scope::Node, 2),
        (PoolsRunning, Scope::Node, 3),
        (PoolsRequestsPerTenant, tenant, 5),
        (PoolsRunningPerTenant, tenant, 3),
        (PoolsRequestsPerProvider, provider, 5),
        (PoolsRunningPerProvider, provider, 3),
        (PoolsConnections, Scope::Node, 3),
        (PoolsConnectionsPerClient, Scope::Client(0), 3),
    ];
    for (dimension, scope, use_) in holds {
        let refused = node.lower(dimension, use_ - 1).expect_err("it is in use");
        let found = used(dimension, scope, use_ - 1, use_);
        assert!(refused.obstacles().contains(&found), "{dimension}: {refused}");
        assert_eq!((node.counts(), node.pools.limits()), before);
    }
    // All of them at once, exactly to what is in use. Idle connections must fit among connections.
    let mut all: Vec<_> = holds.iter().map(|(dimension, _, use_)| (*dimension, *use_)).collect();
    all.push((PoolsIdleConnections, 1));
    node.lower_to(&all).expect("nothing is erased");
    assert_eq!(node.counts(), before.0);
    for (dimension, to) in all {
        assert_eq!(node.pools.limits().get(dimension), Some(to));
    }
    // The next admission meets them, wherever it looks first.
    assert_full(node.pools.admit(&client, &session), PoolsPending, Scope::Node);
    assert_full(node.pools.admit_now(&client, &session), PoolsRunning, Scope::Node);
    drop(staged);
    let again: [PoolAdmission; 2] =
        [(); 2].map(|()| node.pools.admit(&client, &session).expect("two are free"));
    assert_full(node.pools.admit(&client, &session), PoolsPending, Scope::Node);
    drop((again, connections, calls));
    let calls = [(); 3].map(|()| node.call(&client, &session));
    let idle = client.checkout(&calls[0]).expect("allowed").expect("one rests");
    // A call has one connection at a time; a maintenance request has the third.
    let second = client.reserve_connection(&calls[1]).expect("room").connected(Nothing).expect("in time");
    let permit = node.pools.maintenance(&client, within(ms(60_000)), 1).expect("room");
    let third = client.reserve_maintenance_connection(&permit.begin_request().expect("the first"));
    let made = [second, third.expect("room").connected(Nothing).expect("in time")];
    assert_full(client.reserve_connection(&calls[2]), PoolsConnectionsPerClient, Scope::Client(0));
    drop((idle, made, permit, calls, session));
    node.assert_clean_end().await;
}

/// pools.40, whole or not at all: several scopes and words stand in the way, all of them are named, and nothing changes.
#[tokio::test]
async fn everything_that_stands_in_the_way_is_named_22() {
    let node = Node::new(roomy());
    let [orders, stock] = ["orders", "stock"].map(|name| node.install(name, 1, 0));
    let clients = [&orders, &stock].map(|provider| node.client::<Nothing>(provider));
    let sessions = [("alpha", &orders), ("alpha", &stock), ("beta", &stock)]
        .map(|(tenant, provider)| node.session(&node.plan(tenant, provider)));
    let calls = [
        node.call(&clients[0], &sessions[0]),
        node.call(&clients[1], &sessions[1]),
        node.call(&clients[1], &sessions[2]),
    ];
    let connections = [(0, 0), (1, 1)].map(|(client, call)| {
        clients[client].reserve_connection(&calls[call]).expect("room").connected(Nothing).expect("in time")
    });
    let metadata = node.counts().metadata_bytes;
    let before = (node.counts(), node.pools.limits());
    let asked = [
        (PoolsConfigurations, 1),
        (PoolsClients, 1),
        (PoolsClientsPerProvider, 1),
        (PoolsConnections, 1),
        (PoolsConnectionsPerClient, 1),
        (PoolsIdleConnections, 1),
        (PoolsPending, 1),
        (PoolsRunning, 1),
        (PoolsRequestsPerTenant, 1),
        (PoolsRequestsPerProvider, 1),
        (PoolsRunningPerTenant, 1),
        (PoolsRunningPerProvider, 1),
        (PoolsWorkers, 1),
        (PoolsCleanupJobs, 1),
        (PoolsConfigurationBytes, 6),
    ];
    assert_refused(
        node.lower_to(&asked),
        &[
            used(PoolsConfigurations, Scope::Node, 1, 2),
            used(PoolsClients, Scope::Node, 1, 2),
            used(PoolsConnections, Scope::Node, 1, 2),
            used(PoolsRunning, Scope::Node, 1, 3),
            used(PoolsRequestsPerTenant, Scope::Tenant(0), 1, 2),
            used(PoolsRunningPerTenant, Scope::Tenant(0), 1, 2),
            used(PoolsRequestsPerProvider, Scope::Provider(1), 1, 2),
            used(PoolsRunningPerProvider, Scope::Provider(1), 1, 2),
            used(PoolsConfigurationBytes, Scope::Provider(0), 6, 7),
            used(PoolsConfigurationBytes, Scope::Provider(1), 6, 7),
        ],
    );
    assert_eq!((node.counts(), node.pools.limits()), before);
    // Obstacles that words find and obstacles that the books find are each enough.
    assert_refused(
        node.lower(PoolsRunning, 2).map(drop),
        &[
            used(PoolsRunning, Scope::Node, 2, 3),
            rule(PoolsRunningPerTenant, 8, 2, node.pools.limits(), &[(PoolsRunning, 2)]),
            rule(PoolsRunningPerProvider, 8, 2, node.pools.limits(), &[(PoolsRunning, 2)]),
        ],
    );
    // Metadata: what all slots are prepaid for, and what is charged beside it.
    let needed = node.pools.limits().prepaid(crate::broker::POOL_COSTS) + metadata;
    assert_refused(
        node.lower(PoolsMetadataBytes, needed - 1),
        &[used(PoolsMetadataBytes, Scope::Node, needed - 1, needed)],
    );
    assert_eq!(node.pools.limits(), before.1);
    // All the room is there.
    drop((connections, calls));
    let calls: Vec<_> = (0..8).map(|_| node.call(&clients[0], &sessions[0])).collect();
    assert_full(node.pools.admit_now(&clients[0], &sessions[0]), PoolsRunning, Scope::Node);
    drop((calls, sessions));
    node.lower_to(&asked[3..14]).expect("nothing of it is in use");
    node.assert_clean_end().await;
}

/// What `validate` says about the limits with these changes, as an obstacle.
fn rule(
    dimension: Dimension,
    asked: u64,
    found: u64,
    mut limits: PoolLimits,
    changes: &[(Dimension, u64)],
) -> Obstacle {
    for (dimension, to) in changes {
        limits.set(*dimension, *to).expect("it is one of them");
    }
    let error = limits.validate_prepaid(crate::broker::POOL_COSTS).expect_err("they contradict each other");
    let broken = error.violations().iter().find(|violation| violation.dimension == dimension);
    let rule = broken.expect("this rule is broken").rule.clone();
    Obstacle { dimension, scope: Scope::Node, asked, found, why: Standing::Contradiction(rule) }
}

/// pools.41, pools.42: a replaced epoch that a call keeps counts: its configuration, its private bytes, its client, its
/// requests, its connections.
#[tokio::test]
async fn replaced_epochs_and_their_clients_count_22() {
    let node = Node::new(roomy());
    let install = |epoch, secret: &[u8], expected| {
        let setup = ProviderSetup::new("orders", "authority").epoch(epoch).credentials(secret);
        node.pools.install(setup, Epoch(expected)).expect("room")
    };
    let old = install(1, &[7; 40], 0);
    let client = node.client::<Nothing>(&old);
    let session = node.session(&node.plan("alpha", &old));
    let call = node.call(&client, &session);
    let other = node.call(&client, &session);
    let connections = [&call, &other]
        .map(|call| client.reserve_connection(call).expect("room").connected(Nothing).expect("in time"));
    let new = install(2, &[7; 4], 1);
    let renewed = node.client::<Nothing>(&new);
    drop((old, client, session));
    let asked = [
        (PoolsConfigurations, 1),
        (PoolsClients, 1),
        (PoolsClientsPerProvider, 1),
        (PoolsConfigurationBytes, 39),
        (PoolsConnectionsPerClient, 1),
        (PoolsRunningPerProvider, 1),
        (PoolsRequestsPerProvider, 1),
    ];
    let of_provider = Scope::Provider(0);
    assert_refused(
        node.lower_to(&asked),
        &[
            used(PoolsConfigurations, Scope::Node, 1, 2),
            used(PoolsClients, Scope::Node, 1, 2),
            used(PoolsClientsPerProvider, of_provider, 1, 2),
            used(PoolsConfigurationBytes, of_provider, 39, 40),
            used(PoolsConnectionsPerClient, Scope::Client(0), 1, 2),
            used(PoolsRunningPerProvider, of_provider, 1, 2),
            used(PoolsRequestsPerProvider, of_provider, 1, 2),
        ],
    );
    // The last holder is gone: nothing has to tick before it is forgotten.
    drop((connections, call, other));
    node.lower_to(&asked).expect("nothing of the old epoch is left");
    // A rotation needs room for both.
    let setup = |secret: &[u8]| ProviderSetup::new("orders", "authority").epoch(3).credentials(secret);
    assert_full(node.pools.install(setup(&[1; 39]), Epoch(2)), PoolsConfigurations, Scope::Node);
    let large = node.pools.install(setup(&[1; 40]), Epoch(2));
    assert_kind(large, Kind::TooLarge(PoolsConfigurationBytes));
    assert_full(node.pools.client::<Nothing>(&new, OriginSlot::new(1)), PoolsClients, Scope::Node);
    drop((new, renewed));
    node.assert_clean_end().await;
}

/// pools.40: nothing is raised, not even back; one larger field refuses the whole change; backoff is fixed; the new limits
/// must agree with each other and hold what all slots cost.
#[tokio::test]
async fn nothing_is_raised_again_22() {
    let node = Node::new(roomy());
    let startup = node.pools.limits();
    node.lower_to(&[(PoolsPending, 100), (PoolsIdleAge, 1_000)]).expect("nothing is in use");
    let lowered = node.pools.limits();
    let raised = |dimension, asked, found| Obstacle {
        dimension,
        scope: Scope::Node,
        asked,
        found,
        why: Standing::Raised,
    };
    assert_refused(
        node.pools.lower_limits(startup),
        &[raised(PoolsPending, 128, 100), raised(PoolsIdleAge, 30_000, 1_000)],
    );
    assert_refused(node.lower_to(&[(PoolsPending, 99), (PoolsWorkers, 17)]), &[raised(PoolsWorkers, 17, 16)]);
    let fixed = |dimension, asked, found| Obstacle {
        dimension,
        scope: Scope::Node,
        asked,
        found,
        why: Standing::Fixed,
    };
    assert_refused(
        node.lower_to(&[(PoolsInitialBackoff, 99), (PoolsMaximumBackoff, 30_001), (PoolsPending, 99)]),
        &[fixed(PoolsInitialBackoff, 99, 100), fixed(PoolsMaximumBackoff, 30_001, 30_000)],
    );
    // Two rules and a range at once.
    let changes = [(PoolsRequestsPerTenant, 7), (PoolsConnections, 63), (PoolsWorkers, 0)];
    assert_refused(
        node.lower_to(&changes),
        &[
            rule(PoolsRunningPerTenant, 8, 7, lowered, &changes),
            rule(PoolsIdleConnections, 64, 63, lowered, &changes),
            rule(PoolsWorkers, 0, 1, lowered, &changes),
        ],
    );
    let least = lowered.prepaid(crate::broker::POOL_COSTS);
    let changes = [(PoolsMetadataBytes, least - 1)];
    assert_refused(node.lower_to(&changes), &[rule(PoolsMetadataBytes, least - 1, least, lowered, &changes)]);
    assert_eq!(node.pools.limits(), lowered);
    node.lower(PoolsMetadataBytes, least).expect("exactly what is prepaid");
    // The same limits again are a change of nothing.
    node.pools.lower_limits(node.pools.limits()).expect("nothing is raised");
    node.assert_clean_end().await;
    assert_eq!(node.pools.lower_limits(node.pools.limits()), Err(LowerError::Retired));
}

/// A hair above the present age is no other age, and takes the unit's rounding with it.
#[tokio::test]
async fn ages_are_compared_in_milliseconds() {
    let node = Node::new(PoolLimits { idle_age: Duration::from_micros(2_500), ..roomy() });
    let limits = PoolLimits { idle_age: Duration::from_micros(2_900), ..node.pools.limits() };
    node.pools.lower_limits(limits).expect("3 ms, rounded up, is 3 ms");
    assert_eq!(node.pools.limits().idle_age, Duration::from_micros(2_500));
    node.assert_clean_end().await;
}

/// pools.43: an admitted request keeps the instant at which its waiting ends; the next one has the shorter age.
#[tokio::test(start_paused = true)]
async fn a_shorter_queue_age_is_for_later_admissions_22() {
    let limits = PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..roomy() };
    let node = Node::paused(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let call = node.call(&client, &session);
    let started = tokio::time::Instant::now();
    let waits = |node: &Node| {
        let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
        assert!(poll_once(wait.as_mut()).is_pending());
        wait
    };
    let first = waits(&node);
    node.lower(PoolsQueueAge, 1_000).expect("an age is not in use");
    let second = waits(&node);
    let over = |wait: Pin<Box<PoolWait>>| async move {
        assert_kind(wait.await, Kind::Deadline(Which::Queue));
        tokio::time::Instant::now()
    };
    let (first, second) = tokio::join!(over(first), over(second));
    let late = ms(20);
    assert!((ms(1_000)..=ms(1_000) + late).contains(&(second - started)), "{:?}", second - started);
    assert!((ms(5_000)..=ms(5_000) + late).contains(&(first - started)), "{:?}", first - started);
    drop((call, session));
    node.assert_clean_end().await;
}

/// pools.43: what rests is judged by the shorter age from now on: the control task looks earlier than it had planned, and
/// checkout looks itself.
#[tokio::test(start_paused = true)]
async fn a_shorter_idle_age_is_for_what_rests_22() {
    let node = Node::paused(roomy());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    node.parked(&client, &session, Socket::new(&alive));
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.lower(PoolsIdleAge, 15_000).expect("an age is not in use");
    tokio::time::sleep(ms(4_980)).await;
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (1, 1));
    tokio::time::sleep(ms(40)).await;
    assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    // What has rested too long for the new age is not handed out, whether the control task came or not.
    drop(session);
    let session = node.session(&node.plan("alpha", &orders));
    node.parked(&client, &session, Socket::new(&alive));
    tokio::time::advance(Duration::from_secs(5)).await;
    node.lower(PoolsIdleAge, 4_000).expect("an age is not in use");
    let call = node.call(&client, &session);
    assert!(client.checkout(&call).expect("allowed").is_none());
    assert_eq!((alive.load(SeqCst), node.counts().connections), (0, 0));
    drop((call, session));
    node.assert_clean_end().await;
}

/// pools.40: what rests is in use. It is named, and stays; closing it makes room for the lower limit.
#[tokio::test]
async fn idle_connections_above_the_new_limit_stand_in_the_way_22() {
    let node = Node::new(roomy());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let alive = Arc::new(AtomicUsize::new(0));
    let made = [(); 3].map(|()| node.dialled(&client, &session, Socket::new(&alive)));
    for connection in made {
        connection.park(Exchange::complete()).expect("room");
    }
    let idle = |asked| used(PoolsIdleConnections, Scope::Node, asked, 3);
    assert_refused(node.lower(PoolsIdleConnections, 2), &[idle(2)]);
    assert_refused(
        node.lower_to(&[(PoolsIdleConnections, 1), (PoolsConnections, 8), (PoolsConnectionsPerClient, 2)]),
        &[idle(1), used(PoolsConnectionsPerClient, Scope::Client(0), 2, 3)],
    );
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (3, 3));
    client.close_idle();
    node.lower(PoolsIdleConnections, 1).expect("nothing rests");
    let made = [(); 2].map(|()| node.dialled(&client, &session, Socket::new(&alive)));
    let [first, second] = made;
    first.park(Exchange::complete()).expect("room for one");
    assert_full(second.park(Exchange::complete()), PoolsIdleConnections, Scope::Node);
    assert_eq!((alive.load(SeqCst), node.counts().idle_connections), (1, 1));
    drop(session);
    node.assert_clean_end().await;
}

/// pools.40: a tenant, a provider, an epoch and a client that come later have the lower limits.
#[tokio::test]
async fn who_comes_later_gets_the_lower_limits() {
    let node = Node::new(roomy());
    node.lower_to(&[
        (PoolsRunningPerTenant, 2),
        (PoolsRunningPerProvider, 3),
        (PoolsConnectionsPerClient, 1),
        (PoolsRequestsPerTenant, 3),
        (PoolsRequestsPerProvider, 4),
    ])
    .expect("nothing is in use");
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let sessions = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    let calls = [(); 2].map(|()| node.call(&client, &sessions[0]));
    let tenant = Scope::Tenant(0);
    assert_full(node.pools.admit_now(&client, &sessions[0]), PoolsRunningPerTenant, tenant);
    let staged = node.pools.admit(&client, &sessions[0]).expect("one is left");
    assert_full(node.pools.admit(&client, &sessions[0]), PoolsRequestsPerTenant, tenant);
    let other = node.call(&client, &sessions[1]);
    let provider = Scope::Provider(0);
    assert_full(node.pools.admit(&client, &sessions[1]), PoolsRequestsPerProvider, provider);
    drop(staged);
    assert_full(node.pools.admit_now(&client, &sessions[1]), PoolsRunningPerProvider, provider);
    let connection = client.reserve_connection(&other).expect("room").connected(Nothing).expect("in time");
    assert_full(client.reserve_connection(&calls[0]), PoolsConnectionsPerClient, Scope::Client(0));
    drop((connection, calls, other, sessions));
    node.assert_clean_end().await;
}

/// Whoever is made while a lowering runs ends with the lower limits: a tenant, a provider and a client each come before it or
/// after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_comes_meanwhile_gets_the_lower_limits() {
    const EACH: usize = 24;
    let node = Node::new(PoolLimits {
        running: 64,
        running_per_tenant: 30,
        running_per_provider: 30,
        requests_per_tenant: 30,
        requests_per_provider: 30,
        connections_per_client: 30,
        ..PoolLimits::default()
    });
    let made = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..EACH {
                let provider = node.install(&format!("provider-{number}"), 1, 0);
                let client = node.client::<Nothing>(&provider);
                let plan = node.plan(&format!("tenant-{number}"), &provider);
                made.lock().expect("no panic").push((provider, client, plan));
            }
        });
        scope.spawn(|| {
            for to in (2..30).rev() {
                node.lower_to(&[
                    (PoolsRunningPerTenant, to),
                    (PoolsRunningPerProvider, to + 1),
                    (PoolsRequestsPerTenant, to),
                    (PoolsConnectionsPerClient, to),
                ])
                .expect("nothing is in use");
                std::thread::yield_now();
            }
        });
    });
    let made = made.into_inner().expect("no panic");
    assert_eq!((made.len(), node.pools.limits().running_per_provider), (EACH, 3));
    for (number, (_, client, plan)) in (0_u16..).zip(&made) {
        let session = node.session(plan);
        let calls = [(); 2].map(|()| node.call(client, &session));
        assert_full(node.pools.admit(client, &session), PoolsRequestsPerTenant, Scope::Tenant(number));
        assert_full(node.pools.admit_now(client, &session), PoolsRequestsPerTenant, Scope::Tenant(number));
        let other = node.session(&node.plan("another", &made[usize::from(number)].0));
        let third = node.call(client, &other);
        let fourth = node.pools.admit_now(client, &other);
        assert_full(fourth, PoolsRunningPerProvider, Scope::Provider(number));
        let made = [&calls[0], &calls[1]]
            .map(|call| client.reserve_connection(call).expect("room").connected(Nothing).expect("in time"));
        assert_full(client.reserve_connection(&third), PoolsConnectionsPerClient, Scope::Client(number));
        drop((made, calls, third));
    }
    drop(made);
    node.assert_clean_end().await;
}

/// Who waits for a running place or for a connection is neither lost nor passed over by a lowering, whatever comes of it.
#[tokio::test]
async fn whoever_waits_is_served_through_lowerings() {
    let node = Node::new(PoolLimits { connections_per_client: 2, ..roomy() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let mut calls: Vec<_> = (0..8).map(|_| node.call(&client, &session)).collect();
    let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    let made = [0, 1]
        .map(|at| client.reserve_connection(&calls[at]).expect("room").connected(Nothing).expect("in time"));
    let last = calls.pop().expect("eight");
    let mut acquire = Box::pin(client.acquire(&last));
    assert!(poll_once(acquire.as_mut()).is_pending());
    // One unit came free and went to the waiter; now the limit itself is its unit.
    drop(calls.pop());
    node.lower_to(&[(PoolsRunning, 7), (PoolsRunningPerTenant, 7), (PoolsRunningPerProvider, 7)])
        .expect_err("eight are in use");
    node.lower(PoolsPending, 1).expect("nobody is pending");
    let Poll::Ready(Ok(ready)) = poll_once(wait.as_mut()) else { panic!("it was its turn") };
    drop(calls.pop());
    node.lower_to(&[(PoolsRunning, 7), (PoolsRunningPerTenant, 7), (PoolsRunningPerProvider, 7)])
        .expect("seven are in use");
    let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    drop(ready);
    assert!(
        matches!(poll_once(wait.as_mut()), Poll::Ready(Ok(_))),
        "the unit that came free is the waiter's"
    );
    let [one, other] = made;
    drop(one);
    assert!(matches!(poll_once(acquire.as_mut()), Poll::Ready(Ok(Acquired::Dial(_)))));
    drop(acquire);
    drop((last, other, calls, session));
    node.assert_clean_end().await;
}

/// The refusal reads well and shows names of limits and numbers only.
#[tokio::test]
async fn a_refusal_says_what_whose_and_how_much() {
    let node = Node::new(roomy());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let calls = [(); 3].map(|()| node.call(&client, &session));
    let error = node
        .lower_to(&[
            (PoolsRunningPerTenant, 2),
            (PoolsConfigurationBytes, 6),
            (PoolsWorkers, 17),
            (PoolsInitialBackoff, 1),
        ])
        .expect_err("all four stand in the way");
    let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
    let expected = [
        "pools.workers of the node cannot be 17: its limit is 16, and no limit is raised again",
        "pools.initial_backoff of the node cannot be 1 ms: it is 100 ms for the life of the registry",
        "pools.configuration_bytes of provider 0 cannot be 6 B: 7 B is in use",
        "pools.running_per_tenant of tenant 0 cannot be 2: 3 is in use",
    ];
    assert_eq!(lines, expected);
    let shown = format!("{error:?} {error}");
    assert!(!shown.contains("hunter2") && !shown.contains("alpha") && !shown.contains("orders"));
    let as_error: &dyn std::error::Error = &error;
    assert!(as_error.source().is_none());
    drop((calls, session));
    node.assert_clean_end().await;
}
