//! Foreign code that panics: a resource's look, its destructor, a waker. Nothing is lost by it, and the control task goes on.
use super::poll::{poll_once, poll_with, waker_fn};
use super::support::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A connection that panics where it is told to.
#[derive(Debug)]
struct Bomb {
    alive: Arc<AtomicUsize>,
    in_look: bool,
    in_drop: bool,
}

impl Bomb {
    fn new(alive: &Arc<AtomicUsize>, in_look: bool, in_drop: bool) -> Bomb {
        alive.fetch_add(1, SeqCst);
        Bomb { alive: alive.clone(), in_look, in_drop }
    }
}

impl Resource for Bomb {
    fn is_reusable(&mut self) -> bool {
        assert!(!self.in_look, "planted: it panics when it is looked at");
        true
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
        assert!(!self.in_drop || std::thread::panicking(), "planted: it panics when it is destroyed");
    }
}

struct Scene {
    node: Node,
    orders: InstalledProvider,
    client: ProviderClient<Bomb>,
    session: CapabilitySession,
    alive: Arc<AtomicUsize>,
}

impl Scene {
    fn new(limits: PoolLimits) -> Scene {
        Scene::on(Node::new(limits))
    }
    fn on(node: Node) -> Scene {
        let orders = node.install("orders", 1, 0);
        let client = node.client(&orders);
        let session = node.session(&node.plan("alpha", &orders));
        Scene { node, orders, client, session, alive: Arc::new(AtomicUsize::new(0)) }
    }
    fn dialled(&self, in_look: bool, in_drop: bool) -> PooledConnection<Bomb> {
        self.node.dialled(&self.client, &self.session, Bomb::new(&self.alive, in_look, in_drop))
    }
    fn parked(&self, in_look: bool, in_drop: bool) {
        self.dialled(in_look, in_drop).park(Exchange::complete()).expect("room");
    }
    async fn end(self) {
        assert_eq!(self.alive.load(SeqCst), 0);
        assert_eq!(self.node.counts().connections, 0, "{:?}", self.node.counts());
        drop((self.session, self.client, self.orders));
        self.node.assert_idle();
        assert_eq!(self.node.counts().control_owners, 1, "the control task goes on");
        self.node.assert_clean_end().await;
    }
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// pools.66: on the caller's thread the panic is the caller's, when everything was given back.
#[tokio::test]
async fn a_panic_of_the_callers_own_connection_reaches_the_caller_78() {
    let scene = Scene::new(PoolLimits { idle_connections: 1, ..PoolLimits::default() });
    let doomed = scene.dialled(false, true);
    assert!(panics(|| drop(doomed)));
    scene.parked(false, false);
    // There is no room for a second one to rest, so it is destroyed.
    let doomed = scene.dialled(false, true);
    assert!(panics(|| _ = doomed.park(Exchange::complete())));
    assert_eq!((scene.alive.load(SeqCst), scene.node.counts().running_requests), (1, 0));
    scene.client.close_idle();
    // At checkout: the look, the destructor after a look, and both.
    for (in_look, in_drop) in [(true, false), (true, true)] {
        scene.parked(in_look, in_drop);
        let call = scene.node.call(&scene.client, &scene.session);
        assert!(panics(|| drop(scene.client.checkout(&call))));
        assert_eq!((scene.alive.load(SeqCst), scene.node.counts().connections), (0, 0));
        assert!(scene.client.checkout(&call).expect("allowed").is_none());
    }
    // A dial that comes too late.
    let call = scene.node.call(&scene.client, &scene.session);
    let reservation = scene.client.reserve_connection(&call).expect("room");
    call.io().stop_handle().stop();
    let bomb = Bomb::new(&scene.alive, false, true);
    assert!(panics(|| drop(reservation.connected(bomb))));
    drop(call);
    assert!(scene.client.retry_after().is_some());
    assert_eq!(scene.node.counts().contained_panics, 0);
    scene.end().await;
}

/// A connection that panics when it is handed over to somebody in line: the wait panics, and the next one gets its turn.
#[tokio::test]
async fn a_panic_in_the_line_forgets_nobody() {
    let scene = Scene::new(PoolLimits { connections_per_client: 1, ..PoolLimits::default() });
    for (in_look, in_drop) in [(true, false), (true, true)] {
        let used = scene.dialled(in_look, in_drop);
        let [first, second] = [(); 2].map(|()| scene.node.call(&scene.client, &scene.session));
        let mut one = Box::pin(scene.client.acquire(&first));
        let mut two = Box::pin(scene.client.acquire(&second));
        assert!(poll_once(one.as_mut()).is_pending() && poll_once(two.as_mut()).is_pending());
        used.park(Exchange::complete()).expect("room");
        assert!(panics(|| drop(poll_once(one.as_mut()))));
        drop(one);
        let std::task::Poll::Ready(Ok(Acquired::Dial(reservation))) = poll_once(two.as_mut()) else {
            panic!("it was forgotten")
        };
        drop(reservation.connected(Bomb::new(&scene.alive, false, false)).expect("in time"));
        drop(two);
        drop((first, second));
    }
    scene.end().await;
}

/// pools.74, pools.86: the control task outlives the destructors that it runs, and counts their panics.
#[tokio::test(start_paused = true)]
async fn the_control_task_survives_a_panic_78() {
    let scene =
        Scene::on(Node::paused(PoolLimits { idle_age: Duration::from_secs(1), ..PoolLimits::default() }));
    let made = [true, false, true].map(|in_drop| scene.dialled(false, in_drop));
    for connection in made {
        connection.park(Exchange::complete()).expect("room");
    }
    tokio::time::sleep(ms(1_020)).await;
    let counts = scene.node.counts();
    assert_eq!((counts.idle_connections, counts.contained_panics, counts.control_failed), (0, 2, false));
    scene.parked(false, true);
    tokio::time::sleep(ms(1_020)).await;
    assert_eq!(scene.node.counts().contained_panics, 3);
    scene.end().await;
}

/// A rotation, an eviction for somebody else's dial and the retirement go through, whatever the destructors do.
#[tokio::test]
async fn rotation_eviction_and_retirement_go_through_78() {
    let limits = PoolLimits {
        connections: 1,
        connections_per_client: 1,
        idle_connections: 1,
        ..PoolLimits::default()
    };
    let scene = Scene::new(limits);
    let other = scene.node.pools.client::<Bomb>(&scene.orders, OriginSlot::new(1)).expect("room");
    scene.parked(false, true);
    // The other origin's dial evicts it, and does not pay for its panic.
    drop(scene.node.dialled(&other, &scene.session, Bomb::new(&scene.alive, false, false)));
    assert_eq!(scene.node.counts().contained_panics, 1);
    scene.parked(false, true);
    let next = scene.node.install("orders", 2, 1);
    assert_eq!((scene.node.counts().contained_panics, scene.alive.load(SeqCst)), (2, 0));
    let client = scene.node.client::<Bomb>(&next);
    let session = scene.node.session(&scene.node.plan("alpha", &next));
    scene.node.parked(&client, &session, Bomb::new(&scene.alive, false, true));
    drop((client, session, next, other));
    scene.node.pools.retire();
    assert_eq!((scene.node.counts().contained_panics, scene.alive.load(SeqCst)), (3, 0));
    let left = scene.node.pools.shutdown(within(Duration::from_secs(5))).await;
    assert!(left.is_clean(), "{left:?}");
}

/// Wakers that panic: in line for a turn, in line for a connection, at a rotation and at the retirement.
#[tokio::test]
async fn panicking_wakers_lose_nothing() {
    let limits = PoolLimits {
        running_per_tenant: 1,
        running_per_provider: 1,
        connections_per_client: 1,
        ..PoolLimits::default()
    };
    let scene = Scene::new(limits);
    let angry = waker_fn(|| panic!("planted: this waker panics"));
    let other = scene.node.session(&scene.node.plan("beta", &scene.orders));
    // Whoever gives the unit back meets the waker's panic; the units and the session are given back all the same.
    let running = scene.node.call(&scene.client, &scene.session);
    let mut wait = Box::pin(scene.node.pools.admit(&scene.client, &other).expect("room").wait());
    assert!(poll_with(wait.as_mut(), &angry).is_pending());
    let observer = scene.session.observer();
    assert!(panics(|| drop(running)));
    assert_eq!(observer.live_calls(), 0);
    assert!(matches!(poll_once(wait.as_mut()), std::task::Poll::Ready(Ok(_))));
    // A rotation refuses everyone, and returns its installation.
    let running = scene.node.call(&scene.client, &scene.session);
    let permit = scene.node.pools.maintenance(&scene.client, within(ms(60_000)), 1).expect("room");
    let request = permit.begin_request().expect("the first");
    let connection = scene.client.reserve_maintenance_connection(&request).expect("room");
    let connection = connection.connected(Bomb::new(&scene.alive, false, false)).expect("in time");
    let mut waits = Vec::new();
    for _ in 0..3 {
        let mut wait = Box::pin(scene.node.pools.admit(&scene.client, &other).expect("room").wait());
        assert!(poll_with(wait.as_mut(), &angry).is_pending());
        waits.push(wait);
    }
    let next = scene.node.install("orders", 2, 1);
    assert!(next.is_current());
    for wait in &mut waits {
        let std::task::Poll::Ready(ended) = poll_once(wait.as_mut()) else { panic!("it was not told") };
        assert_kind(ended, Kind::Retired(What::Epoch));
    }
    assert!(scene.node.counts().contained_panics > 0);
    // The retirement reaches everyone.
    let mut acquires = Box::pin(scene.client.acquire(&running));
    assert!(poll_with(acquires.as_mut(), &angry).is_pending());
    scene.node.pools.retire();
    assert!(matches!(poll_once(acquires.as_mut()), std::task::Poll::Ready(Err(_))));
    drop((acquires, waits));
    drop((connection, running, other, permit, request));
    let Scene { node, orders, client, session, alive } = scene;
    drop((orders, client, session, next));
    assert_eq!(alive.load(SeqCst), 0);
    node.assert_clean_end().await;
}

/// L4: a waker that comes back in finds the turn free, so what it gives back is granted to the next before it returns.
#[tokio::test]
async fn a_waker_that_comes_back_in_has_its_release_served() {
    let scene = Scene::new(PoolLimits { running_per_tenant: 1, ..PoolLimits::default() });
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| {
        let session = scene.node.session(&scene.node.plan(tenant, &scene.orders));
        (scene.node.call(&scene.client, &session), session)
    });
    let wait = |session| Box::pin(scene.node.pools.admit(&scene.client, session).expect("room").wait());
    let (mut first, mut second) = (wait(&alpha.1), wait(&beta.1));
    let woken = Arc::new(AtomicUsize::new(0));
    let (count, held) = (woken.clone(), std::sync::Mutex::new(Some(beta.0)));
    let seen = woken.clone();
    let returns = waker_fn(move || {
        let running = held.lock().expect("nobody panicked with it").take();
        let before = seen.load(SeqCst);
        drop(running);
        assert_eq!(seen.load(SeqCst), before + 1, "the one behind was granted meanwhile");
    });
    let counts = waker_fn(move || {
        count.fetch_add(1, SeqCst);
    });
    assert!(poll_with(first.as_mut(), &returns).is_pending());
    assert!(poll_with(second.as_mut(), &counts).is_pending());
    drop(alpha.0);
    assert_eq!(woken.load(SeqCst), 1);
    assert!(poll_once(first.as_mut()).is_ready() && poll_once(second.as_mut()).is_ready());
    drop((first, second, alpha.1, beta.1));
    let Scene { node, orders, client, session, alive: _ } = scene;
    drop((orders, client, session));
    node.assert_clean_end().await;
}

/// A shutdown's waker that panics is contained: the control task and whoever else waits for the end are told all the same,
/// and whoever ended last does not pay for it.
#[tokio::test]
async fn a_waker_of_a_shutdown_that_panics_keeps_nobody_from_the_end() {
    let scene = Scene::new(PoolLimits::default());
    let connection = scene.dialled(false, false);
    let (stops, other) = (scene.node.pools.clone(), scene.node.pools.clone());
    let mut angry = Box::pin(stops.shutdown(within(ms(10_000))));
    assert!(poll_with(angry.as_mut(), &waker_fn(|| panic!("planted: this waker panics"))).is_pending());
    let calm = tokio::spawn(async move { other.shutdown(within(ms(10_000))).await });
    tokio::task::yield_now().await;
    let Scene { node, orders, client, session, alive: _ } = scene;
    drop((orders, client, session));
    drop(connection);
    let left = calm.await.expect("it is told");
    assert!(left.is_clean() && left.contained_panics > 0, "{left:?}");
    assert!(poll_once(angry.as_mut()).is_ready());
    node.assert_idle();
}

/// A session's probe is foreign too. Where a dial ends and where a connection is parked it is asked before anything is let
/// go of, so its panic costs the connection and nothing else.
#[tokio::test]
async fn a_probe_that_panics_costs_its_connection_alone() {
    struct Angry(Arc<AtomicBool>);
    impl crate::broker::Probe for Angry {
        fn is_cancelled(&self) -> bool {
            assert!(!self.0.load(SeqCst), "planted: this probe panics");
            false
        }
    }
    let scene = Scene::new(PoolLimits { initial_backoff: ms(500), ..PoolLimits::default() });
    let panicking = Arc::new(AtomicBool::new(false));
    let activation = Activation::until(within(ms(20_000))).probe(Arc::new(Angry(panicking.clone())));
    let plan = scene.node.plan("alpha", &scene.orders);
    let session = scene.node.broker.open(&plan, activation).expect("room");
    let call = scene.node.call(&scene.client, &session);
    let dial = scene.client.reserve_connection(&call).expect("room");
    panicking.store(true, SeqCst);
    let bomb = Bomb::new(&scene.alive, false, false);
    assert!(panics(|| drop(dial.connected(bomb))));
    let counts = scene.node.counts();
    assert_eq!((counts.connections, counts.connecting_connections, scene.alive.load(SeqCst)), (0, 0, 0));
    assert!(scene.client.retry_after().is_some(), "a dial that failed");
    panicking.store(false, SeqCst);
    tokio::time::sleep(ms(600)).await;
    let dial = scene.client.reserve_connection(&call).expect("the pause is over");
    let used = dial.connected(Bomb::new(&scene.alive, false, false)).expect("in time");
    panicking.store(true, SeqCst);
    assert!(panics(|| _ = used.park(Exchange::complete())));
    panicking.store(false, SeqCst);
    drop((call, session));
    scene.end().await;
}
