//! Inbound events: what they may take, that they wait like guests, and that they end with their epoch.
use super::poll::{WakeCount, poll_once, poll_with, sweep_cancels};
use super::support::*;
use crate::broker::pools::{IngressRequest, IngressTerms, PoolWait};
use std::pin::Pin;
use std::task::Poll;

const KIB: u64 = 1024;

fn minute() -> IngressTerms {
    IngressTerms::until(within(ms(50_000)))
}

struct Scene {
    node: Node,
    orders: InstalledProvider,
    client: ProviderClient<Socket>,
    plan: Plan,
    alive: Arc<AtomicUsize>,
    /// Metadata of pools without any event.
    base: u64,
}

impl Scene {
    fn new(limits: PoolLimits) -> Scene {
        Scene::on(Node::new(limits))
    }
    fn on(node: Node) -> Scene {
        let orders = node.install("orders", 1, 0);
        let (client, plan) = (node.client(&orders), node.plan("alpha", &orders));
        let base = node.counts().metadata_bytes;
        Scene { node, orders, client, plan, alive: Arc::new(AtomicUsize::new(0)), base }
    }
    fn event(&self) -> Result<IngressRequest, Error> {
        self.node.pools.ingress(&self.client, &self.plan, minute())
    }
    fn dialled(&self, request: &IngressRequest) -> PooledConnection<Socket> {
        let reservation = self.client.reserve_connection(request).expect("room");
        reservation.connected(Socket::new(&self.alive)).expect("in time")
    }
    /// Sessions, running requests, waiting requests, metadata beyond the base.
    fn held(&self) -> (u64, u64, u64, u64) {
        let counts = self.node.counts();
        let sessions = self.node.broker.snapshot().sessions;
        (sessions, counts.running_requests, counts.pending_requests, counts.metadata_bytes - self.base)
    }
    fn end(self) {
        self.client.close_idle();
        assert_eq!(self.held(), (0, 0, 0, 0));
        assert_eq!((self.node.counts().connections, self.alive.load(SeqCst)), (0, 0));
        self.node.assert_idle();
    }
}

/// The bounds of what an event may ask for; what is refused holds nothing.
#[tokio::test]
async fn an_event_stays_in_its_bounds() {
    let scene = Scene::new(PoolLimits::default());
    let ask = |terms| scene.node.pools.ingress(&scene.client, &scene.plan, terms).map(drop);
    let invalid = |why| Kind::Invalid(why);
    for operations in [0, 17, u32::MAX] {
        assert_kind(ask(minute().operations(operations)), invalid(Invalid::Bounds));
    }
    for bytes in [0, 4 * KIB - 1] {
        assert_kind(ask(minute().memory(bytes)), invalid(Invalid::Bounds));
    }
    for bytes in [KIB * KIB + 1, u64::MAX] {
        assert_kind(ask(minute().memory(bytes)), Kind::TooLarge(Dimension::PoolsMetadataBytes));
    }
    assert_kind(ask(IngressTerms::until(within(ms(60_500)))), invalid(Invalid::TooFar));
    assert_kind(ask(IngressTerms::until(within(ms(0)))), Kind::Deadline(Which::Operation));
    assert_eq!(scene.held(), (0, 0, 0, 0));
    let most = minute().operations(16).memory(KIB * KIB);
    let request = scene.node.pools.ingress(&scene.client, &scene.plan, most).expect("exactly the bounds");
    assert_eq!((request.remaining_operations(), scene.held()), (16, (1, 1, 0, KIB * KIB)));
    drop(request);
    let until = within(ms(59_990));
    let request = scene.node.pools.ingress(&scene.client, &scene.plan, IngressTerms::until(until));
    let request = request.expect("within a minute");
    assert_eq!((request.deadline(), request.remaining_operations()), (until, 1));
    assert_eq!(scene.held(), (1, 1, 0, 4 * KIB));
    drop(request);
    scene.end();
}

/// Whose it is decides: another registry's client, another broker's plan, a plan that does not bind the epoch, one that was
/// withdrawn.
#[tokio::test]
async fn an_event_needs_a_plan_of_its_tenant_for_this_epoch() {
    let (scene, other) = (Scene::new(PoolLimits::default()), Scene::new(PoolLimits::default()));
    let pools = &scene.node.pools;
    let denied = Kind::Denied;
    assert_kind(pools.ingress(&other.client, &scene.plan, minute()), denied(Denied::ForeignClient));
    assert_kind(pools.ingress(&scene.client, &other.plan, minute()), denied(Denied::ForeignPlan));
    let stock = scene.node.install("stock", 1, 0);
    let of_stock = scene.node.plan("alpha", &stock);
    assert_kind(pools.ingress(&scene.client, &of_stock, minute()), denied(Denied::NotBound));
    // Withdrawn while it waits: asked again at the start.
    let waiting = pools.ingress_queued(&scene.client, &scene.plan, minute()).expect("room");
    scene.plan.withdraw();
    assert_kind(waiting.wait().await, denied(Denied::Withdrawn));
    assert_kind(scene.event(), denied(Denied::Withdrawn));
    assert_eq!(scene.node.counts().running_requests, 0);
    pools.close_admission();
    let plan = &scene.plan;
    assert_kind(pools.ingress(&scene.client, plan, minute()), Kind::Retired(What::Admission));
    other.end();
    drop((of_stock, stock));
    scene.node.assert_clean_end().await;
}

/// pools.8: a socket keeps the running unit, the session and the memory when its request is dropped; parking frees all of
/// it; the next event gets the same socket; closing what is idle closes it; another client's is refused.
#[tokio::test]
async fn a_socket_keeps_its_event_until_it_is_parked_62() {
    let scene = Scene::new(PoolLimits::default());
    let request = scene.event().expect("room");
    assert!(scene.client.checkout(&request).expect("allowed").is_none());
    let connection = scene.dialled(&request);
    drop(request);
    assert_eq!(scene.held(), (1, 1, 0, 4 * KIB));
    connection.park(Exchange::complete()).expect("room");
    assert_eq!((scene.held(), scene.node.counts().idle_connections), ((0, 0, 0, 0), 1));
    // The next event, and a guest, find it.
    let request = scene.event().expect("room");
    let again = scene.client.checkout(&request).expect("allowed").expect("it rests");
    again.park(Exchange::complete()).expect("room");
    let Acquired::Idle(again) = scene.client.acquire(&request).await.expect("it rests") else {
        panic!("it rests")
    };
    again.park(Exchange::complete()).expect("room");
    let session = scene.node.session(&scene.plan);
    let call = scene.node.call(&scene.client, &session);
    drop(scene.client.checkout(&call).expect("allowed").expect("it rests"));
    drop((call, session));
    assert_eq!(scene.alive.load(SeqCst), 0);
    let connection = scene.dialled(&request);
    connection.park(Exchange::complete()).expect("room");
    scene.client.close_idle();
    assert_eq!(scene.alive.load(SeqCst), 0);
    let elsewhere = scene.node.pools.client::<Socket>(&scene.orders, OriginSlot::new(1)).expect("room");
    assert_kind(elsewhere.checkout(&request), Kind::Denied(Denied::ForeignClient));
    assert_kind(elsewhere.reserve_connection(&request), Kind::Denied(Denied::ForeignClient));
    assert_kind(elsewhere.acquire(&request).await, Kind::Denied(Denied::ForeignClient));
    drop((request, elsewhere));
    let base = scene.node.counts().metadata_bytes;
    Scene { base, ..scene }.end();
}

/// pools.8: events and guests share the ceilings of tenant, provider and node; an event takes no cleanup place.
#[tokio::test]
async fn events_share_the_ceilings_of_guests_63() {
    let limits =
        PoolLimits { running: 3, running_per_tenant: 1, running_per_provider: 2, ..PoolLimits::default() };
    let scene = Scene::new(limits);
    let (node, client) = (&scene.node, &scene.client);
    let beta = node.plan("beta", &scene.orders);
    let gamma = node.plan("gamma", &scene.orders);
    let event = scene.event().expect("room");
    let counts = node.counts();
    assert_eq!((counts.running_requests, counts.cleanup_jobs, counts.workers), (1, 0, 0));
    let session = node.session(&scene.plan);
    assert_full(node.pools.admit_now(client, &session), Dimension::PoolsRunningPerTenant, Scope::Tenant(0));
    assert_full(scene.event(), Dimension::PoolsRunningPerTenant, Scope::Tenant(0));
    let guest = node.session(&beta);
    let running = node.call(client, &guest);
    let refused = node.pools.ingress(client, &gamma, minute());
    assert_full(refused, Dimension::PoolsRunningPerProvider, Scope::Provider(0));
    let stock = node.install("stock", 1, 0);
    let [delta, epsilon] = ["delta", "epsilon"].map(|tenant| node.plan(tenant, &stock));
    let on_stock = node.client::<Socket>(&stock);
    let third = node.pools.ingress(&on_stock, &delta, minute()).expect("the third");
    let refused = node.pools.ingress(&on_stock, &epsilon, minute());
    assert_full(refused, Dimension::PoolsRunning, Scope::Node);
    assert_eq!(node.counts().running_requests, 3);
    drop((event, running, third));
    drop(scene.event().expect("all of it came back"));
    drop((session, guest));
    node.assert_clean_end().await;
}

/// Memory that the node has not got is refused, and so is a session; nothing is held afterwards.
#[tokio::test]
async fn what_the_node_has_not_got_is_refused() {
    let broker = Broker::new(BrokerLimits { sessions: 1, ..BrokerLimits::default() }).expect("valid");
    let io = IoRuntime::new(&broker, IoLimits::default()).expect("valid");
    let handle = tokio::runtime::Handle::current();
    let pools = ProviderPools::new(&broker, &io, handle, PoolLimits::default()).expect("valid");
    let scene = Scene::on(Node { broker, io, pools });
    let first = scene.event().expect("room");
    assert_full(scene.event(), Dimension::BrokerSessions, Scope::Node);
    assert_eq!(scene.held(), (1, 1, 0, 4 * KIB));
    drop(first);
    // All metadata but a little.
    let mut taken = Vec::new();
    let error = loop {
        match scene.node.pools.reserve_protocol_metadata(512 * KIB) {
            Ok(more) => taken.push(more),
            Err(error) => break error,
        }
    };
    assert_eq!(error.dimension(), Some(Dimension::PoolsMetadataBytes));
    let large = minute().memory(1024 * KIB);
    let refused = scene.node.pools.ingress(&scene.client, &scene.plan, large);
    assert_full(refused, Dimension::PoolsMetadataBytes, Scope::Node);
    drop(taken);
    scene.end();
}

/// Clones take from one number of operations; a replaced epoch ends the event: no operation, no connection, no parking,
/// but nothing is refunded before it is dropped.
#[tokio::test]
async fn clones_share_their_operations_and_rotation_ends_them_64() {
    let scene = Scene::new(PoolLimits::default());
    let terms = minute().operations(3).memory(8 * KIB);
    let request = scene.node.pools.ingress(&scene.client, &scene.plan, terms).expect("room");
    let clone = request.clone();
    request.begin_operation().expect("the first");
    clone.begin_operation().expect("the second");
    let connection = scene.dialled(&clone);
    assert_kind(scene.client.checkout(&request), Kind::Denied(Denied::SecondConnection));
    assert_eq!((request.remaining_operations(), clone.remaining_operations()), (1, 1));
    assert_eq!(scene.held(), (1, 1, 0, 8 * KIB));
    let next = scene.node.install("orders", 2, 1);
    let gone = Kind::Retired(What::Epoch);
    let ended = request.checkpoint().expect_err("replaced");
    assert_eq!((ended.kind(), ended.effect()), (gone, Effect::Uncertain));
    assert_kind(clone.begin_operation(), gone);
    assert_eq!(clone.remaining_operations(), 1, "a refusal uses nothing up");
    assert_kind(scene.client.reserve_connection(&request), gone);
    assert_kind(scene.client.acquire(&request).await, gone);
    assert_eq!((scene.node.counts().running_requests, scene.alive.load(SeqCst)), (1, 1));
    assert_kind(connection.park(Exchange::complete()), gone);
    assert_eq!(scene.alive.load(SeqCst), 0);
    assert_kind(scene.event(), gone);
    drop(clone);
    assert_eq!(scene.node.counts().running_requests, 1);
    drop(request);
    assert_eq!((scene.node.counts().running_requests, scene.node.broker.snapshot().sessions), (0, 0));
    // Spent is spent, without a rotation too.
    let (client, plan) = (scene.node.client::<Socket>(&next), scene.node.plan("alpha", &next));
    let request = scene.node.pools.ingress(&client, &plan, minute().operations(2)).expect("room");
    request.begin_operation().expect("the first");
    request.clone().begin_operation().expect("the second");
    assert_kind(request.begin_operation(), Kind::Denied(Denied::Exhausted));
    request.checkpoint().expect("it goes on all the same");
    drop((request, client, plan, next));
    scene.node.assert_clean_end().await;
}

/// The deadline, a rotation and the retirement each end a wait at that moment; what the event holds stays held.
#[tokio::test(start_paused = true)]
async fn deadline_rotation_and_retirement_end_waits_65() {
    let scene = Scene::on(Node::paused(PoolLimits { running_per_tenant: 3, ..PoolLimits::default() }));
    let terms = IngressTerms::until(within(ms(2_000)));
    let request = scene.node.pools.ingress(&scene.client, &scene.plan, terms).expect("room");
    let started = tokio::time::Instant::now();
    let error = request.wait_for(std::future::pending::<()>()).await.expect_err("its time is over");
    assert_eq!((error.kind(), error.effect()), (Kind::Deadline(Which::Operation), Effect::Uncertain));
    assert!((ms(1_990)..ms(2_020)).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!(scene.held(), (1, 1, 0, 4 * KIB));
    drop(request);
    // Who waits for a connection, and for an answer, is told of the rotation.
    let holder = scene.event().expect("room");
    let connection = scene.dialled(&holder);
    let waiter = scene.event().expect("room");
    let second = scene.client.reserve_connection(&waiter).expect("room");
    let third = scene.event().expect("room");
    let mut answer = Box::pin(holder.wait_for(std::future::pending::<()>()));
    let mut acquire = Box::pin(scene.client.acquire(&third));
    let (wakes, waker) = WakeCount::new();
    assert!(poll_with(answer.as_mut(), &waker).is_pending());
    assert!(poll_with(acquire.as_mut(), &waker).is_pending());
    let next = scene.node.install("orders", 2, 1);
    assert_eq!(wakes.wakes(), 2, "each of them, once");
    let gone = Kind::Retired(What::Epoch);
    let Poll::Ready(Err(error)) = poll_once(answer.as_mut()) else { panic!("it was not told") };
    assert_eq!(error.kind(), gone);
    let Poll::Ready(refused) = poll_once(acquire.as_mut()) else { panic!("it was not told") };
    assert_eq!(refused.expect_err("replaced").kind(), gone);
    drop((answer, acquire));
    let late = second.connected(Socket::new(&scene.alive)).expect_err("a dial that comes too late");
    assert_eq!((late.kind(), scene.alive.load(SeqCst)), (gone, 1));
    assert_eq!(scene.node.counts().running_requests, 3);
    drop((holder, waiter, third, connection));
    assert_eq!((scene.node.counts().running_requests, scene.alive.load(SeqCst)), (0, 0));
    // The same for the retirement.
    let (client, plan) = (scene.node.client::<Socket>(&next), scene.node.plan("alpha", &next));
    let request = scene.node.pools.ingress(&client, &plan, minute()).expect("room");
    let mut answer = Box::pin(request.wait_for(std::future::pending::<()>()));
    assert!(poll_with(answer.as_mut(), &waker).is_pending());
    scene.node.pools.retire();
    assert_eq!(wakes.wakes(), 3);
    assert!(matches!(poll_once(answer.as_mut()), Poll::Ready(Err(_))));
    drop(answer);
    assert!(matches!(request.checkpoint().expect_err("retired").kind(), Kind::Retired(_)));
    assert_eq!(scene.node.counts().running_requests, 1, "it is not refunded");
    drop((request, client, plan, next));
    scene.node.assert_clean_end().await;
}

/// A queued event that is replaced, or waits too long, is refused and holds nothing.
#[tokio::test(start_paused = true)]
async fn a_waiting_event_is_refused_with_its_epoch_and_by_its_age() {
    let limits =
        PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    let scene = Scene::on(Node::paused(limits));
    let running = scene.event().expect("room");
    let queue = || scene.node.pools.ingress_queued(&scene.client, &scene.plan, minute()).expect("room");
    let started = tokio::time::Instant::now();
    assert_kind(queue().wait().await, Kind::Deadline(Which::Queue));
    assert!((ms(4_980)..ms(5_050)).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!(scene.held(), (1, 1, 0, 4 * KIB));
    let short = IngressTerms::until(within(ms(1_000)));
    let waiting = scene.node.pools.ingress_queued(&scene.client, &scene.plan, short).expect("room");
    assert_kind(waiting.wait().await, Kind::Deadline(Which::Operation));
    let mut waiting = Box::pin(queue().wait());
    let staged = queue();
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert_eq!(scene.held(), (3, 1, 2, 12 * KIB));
    let next = scene.node.install("orders", 2, 1);
    let Poll::Ready(refused) = poll_once(waiting.as_mut()) else { panic!("it was not told") };
    assert_kind(refused, Kind::Retired(What::Epoch));
    assert_kind(staged.wait().await, Kind::Retired(What::Epoch));
    drop((running, waiting));
    assert_eq!((scene.node.counts().pending_requests, scene.node.broker.snapshot().sessions), (0, 0));
    drop(next);
    scene.node.assert_clean_end().await;
}

enum Waiting {
    Guest(Pin<Box<PoolWait>>),
    Event(Pin<Box<crate::broker::pools::IngressWait>>),
}

impl Waiting {
    /// Gives its unit back at once when it is granted.
    fn is_granted(&mut self) -> bool {
        match self {
            Waiting::Guest(wait) => match poll_once(wait.as_mut()) {
                Poll::Ready(ready) => {
                    drop(ready.expect("its turn"));
                    true
                }
                Poll::Pending => false,
            },
            Waiting::Event(wait) => match poll_once(wait.as_mut()) {
                Poll::Ready(request) => {
                    drop(request.expect("its turn"));
                    true
                }
                Poll::Pending => false,
            },
        }
    }
}

/// Queued events and guests: tenants take turns, and inside a tenant whoever came first goes first, whatever it is. An event
/// that does not queue neither overtakes them nor is let through.
#[tokio::test]
async fn queued_events_and_guests_of_two_tenants_take_turns() {
    let limits =
        PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    let scene = Scene::new(limits);
    let (node, client) = (&scene.node, &scene.client);
    let beta = node.plan("beta", &scene.orders);
    let sessions = [node.session(&scene.plan), node.session(&beta)];
    let running = scene.event().expect("room");
    let mut queue: Vec<(&str, Waiting)> = Vec::new();
    let guest = |session| Waiting::Guest(Box::pin(node.pools.admit(client, session).expect("room").wait()));
    let event = |plan| {
        let admission = node.pools.ingress_queued(client, plan, minute()).expect("room");
        Waiting::Event(Box::pin(admission.wait()))
    };
    let line = [
        ("alpha guest 1", guest(&sessions[0])),
        ("alpha event 2", event(&scene.plan)),
        ("alpha event 3", event(&scene.plan)),
        ("alpha guest 4", guest(&sessions[0])),
        ("beta event 1", event(&beta)),
        ("beta guest 2", guest(&sessions[1])),
        ("beta event 3", event(&beta)),
    ];
    for (name, mut waiting) in line {
        assert!(!waiting.is_granted(), "{name} was to wait");
        queue.push((name, waiting));
    }
    assert_eq!(scene.held(), (5 + 2, 1, 7, 5 * 4 * KIB));
    let refused = scene.event().expect_err("others wait in front");
    assert!(refused.dimension().is_some());
    drop(running);
    let mut order = Vec::new();
    while !queue.is_empty() {
        let at = queue.iter_mut().position(|(_, waiting)| waiting.is_granted()).expect("somebody is next");
        order.push(queue.remove(at).0);
    }
    let expected = [
        "alpha guest 1",
        "beta event 1",
        "alpha event 2",
        "beta guest 2",
        "alpha event 3",
        "beta event 3",
        "alpha guest 4",
    ];
    // Whose turn the rotation begins with is not ours to say; that they alternate is.
    let swapped = ["beta event 1", "alpha guest 1", "beta guest 2", "alpha event 2", "beta event 3"];
    assert!(order == expected || order[..5] == swapped, "{order:?}");
    drop((sessions, beta));
    scene.end();
}

/// Dropped after each of its polls, before and after it was handed its turn: nothing is held, and the next one goes.
#[tokio::test]
async fn a_waiting_event_may_be_dropped_at_every_poll() {
    let limits =
        PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    let scene = Scene::new(limits);
    let session = scene.node.session(&scene.plan);
    let dropped = sweep_cancels(20, |k| {
        let mut running = Some(scene.node.call(&scene.client, &session));
        let admission = scene.node.pools.ingress_queued(&scene.client, &scene.plan, minute()).expect("room");
        let event = async {
            let request = admission.wait().await?;
            request.begin_operation()?;
            let connection = match scene.client.acquire(&request).await? {
                Acquired::Idle(connection) => connection,
                Acquired::Dial(reservation) => {
                    request.wait_for(tokio::task::yield_now()).await?;
                    reservation.connected(Socket::new(&scene.alive))?
                }
            };
            request.wait_for(tokio::task::yield_now()).await?;
            connection.park(Exchange::complete())
        };
        let done = super::poll::poll_times(k, event, |polls| {
            if polls == 2 {
                running = None;
            }
        });
        drop(running);
        assert_eq!(scene.held(), (1, 0, 0, 0), "dropped at poll {k}");
        scene.client.close_idle();
        assert_eq!((scene.node.counts().connections, scene.alive.load(SeqCst)), (0, 0));
        while scene.client.retry_after().is_some() {
            std::thread::sleep(ms(5));
        }
        drop(scene.event().expect("room"));
        done.map(|result| result.expect("its turn came")).is_ready()
    });
    assert!(dropped >= 4, "only {dropped}");
    drop(session);
    scene.end();
}

/// Dropped in line with its turn handed over and not taken: the next in line gets it.
#[tokio::test]
async fn a_turn_that_an_event_did_not_take_goes_on() {
    let limits =
        PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    let scene = Scene::new(limits);
    let session = scene.node.session(&scene.plan);
    let running = scene.node.call(&scene.client, &session);
    let admission = scene.node.pools.ingress_queued(&scene.client, &scene.plan, minute()).expect("room");
    let mut event = Box::pin(admission.wait());
    let mut guest = Box::pin(scene.node.pools.admit(&scene.client, &session).expect("room").wait());
    assert!(poll_once(event.as_mut()).is_pending() && poll_once(guest.as_mut()).is_pending());
    drop(running);
    assert!(poll_once(guest.as_mut()).is_pending(), "the event has the turn");
    drop(event);
    assert!(matches!(poll_once(guest.as_mut()), Poll::Ready(Ok(_))));
    drop((guest, session));
    scene.end();
}
