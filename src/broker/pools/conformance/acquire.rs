//! Waiting for a connection: an idle one or the turn to dial, first come, first served.
use super::poll::{WakeCount, poll_once, poll_with};
use super::support::*;
use crate::broker::pools::Acquire;
use std::pin::Pin;
use std::task::Poll;

fn one_connection() -> PoolLimits {
    PoolLimits {
        connections_per_client: 1,
        initial_backoff: ms(20),
        maximum_backoff: ms(40),
        ..PoolLimits::default()
    }
}

struct Scene {
    node: Node,
    client: ProviderClient<Socket>,
    session: CapabilitySession,
    alive: Arc<AtomicUsize>,
}

impl Scene {
    fn new(limits: PoolLimits) -> Scene {
        Scene::on(Node::new(limits))
    }
    fn on(node: Node) -> Scene {
        let orders = node.install("orders", 1, 0);
        let (client, plan) = (node.client(&orders), node.plan("alpha", &orders));
        let session = node.session(&plan);
        Scene { node, client, session, alive: Arc::new(AtomicUsize::new(0)) }
    }
    fn calls<const N: usize>(&self) -> [PoolCall; N] {
        [(); N].map(|()| self.node.call(&self.client, &self.session))
    }
    fn dialled(&self) -> PooledConnection<Socket> {
        self.node.dialled(&self.client, &self.session, Socket::new(&self.alive))
    }
    /// Stands in line behind whoever is there.
    fn wait<'a>(&'a self, call: &'a PoolCall) -> Pin<Box<Acquire<'a, Socket>>> {
        let mut wait = Box::pin(self.client.acquire(call));
        assert!(poll_once(wait.as_mut()).is_pending());
        wait
    }
    fn end(self) {
        self.client.close_idle();
        drop(self.session);
        self.node.assert_idle();
        let counts = self.node.counts();
        assert_eq!(
            (counts.connections, counts.idle_connections, self.alive.load(SeqCst)),
            (0, 0, 0),
            "{counts:?}"
        );
    }
}

type Waiting<'a> = Pin<Box<Acquire<'a, Socket>>>;

#[track_caller]
fn idle(wait: &mut Waiting<'_>) -> PooledConnection<Socket> {
    match poll_once(wait.as_mut()) {
        Poll::Ready(Ok(Acquired::Idle(connection))) => connection,
        other => panic!("a connection was expected, not {other:?}"),
    }
}

#[track_caller]
fn dial<'a>(wait: &mut Waiting<'a>) -> crate::broker::pools::ConnectionReservation<Socket> {
    match poll_once(wait.as_mut()) {
        Poll::Ready(Ok(Acquired::Dial(reservation))) => reservation,
        other => panic!("a turn to dial was expected, not {other:?}"),
    }
}

/// A parked connection goes to the first in line; nobody barges in.
#[tokio::test]
async fn a_parked_connection_goes_to_the_first_in_line() {
    let scene = Scene::new(one_connection());
    let used = scene.dialled();
    let [first, second, newcomer] = scene.calls();
    let (mut one, mut two) = (scene.wait(&first), scene.wait(&second));
    used.park(Exchange::complete()).expect("room");
    assert_kind(scene.client.checkout(&newcomer), Kind::Busy);
    let refused = scene.client.reserve_connection(&newcomer).expect_err("they come first");
    assert_eq!(refused.dimension(), Some(Dimension::PoolsConnectionsPerClient));
    assert!(poll_once(two.as_mut()).is_pending());
    let connection = idle(&mut one);
    assert!(poll_once(two.as_mut()).is_pending());
    connection.park(Exchange::complete()).expect("room");
    drop(idle(&mut two));
    // Nobody waits any more, and the connection is gone: whoever comes dials.
    drop(scene.client.reserve_connection(&newcomer).expect("room"));
    drop((one, two));
    drop((first, second, newcomer));
    scene.end();
}

/// A destroyed connection makes room for the first in line to dial, and so does the end of a dial.
#[tokio::test]
async fn a_destroyed_connection_gives_the_first_in_line_the_turn_to_dial() {
    let scene = Scene::new(one_connection());
    let used = scene.dialled();
    let [first, second] = scene.calls();
    let (mut one, mut two) = (scene.wait(&first), scene.wait(&second));
    drop(used);
    let reservation = dial(&mut one);
    assert!(poll_once(two.as_mut()).is_pending(), "one dials at a time");
    let made = reservation.connected(Socket::new(&scene.alive)).expect("in time");
    assert!(poll_once(two.as_mut()).is_pending(), "the client has its one connection");
    made.park(Exchange::complete()).expect("room");
    drop(idle(&mut two));
    drop((one, two));
    drop((first, second));
    scene.end();
}

/// When a dial fails, everyone in line learns of the pause at once (pools.63, pools.64).
/// Cases S23, S29.
#[tokio::test]
async fn a_failed_dial_refuses_everyone_in_line() {
    let scene = Scene::new(one_connection());
    let [dialler, first, second] = scene.calls();
    let reservation = scene.client.reserve_connection(&dialler).expect("room");
    let (mut one, mut two) = (scene.wait(&first), scene.wait(&second));
    drop(reservation);
    for wait in [&mut one, &mut two] {
        let Poll::Ready(Err(error)) = poll_once(wait.as_mut()) else { panic!("they were to be refused") };
        assert!(matches!(error.kind(), Kind::Backoff { .. }) && error.retry_after().is_some(), "{error}");
    }
    let Poll::Ready(Err(error)) = poll_once(Box::pin(scene.client.acquire(&dialler)).as_mut()) else {
        panic!("it pauses")
    };
    assert!(matches!(error.kind(), Kind::Backoff { .. }));
    drop((one, two));
    drop((dialler, first, second));
    scene.end();
}

/// Who leaves the line, before or after it was answered, leaves nothing behind: the answer goes to the next.
#[tokio::test]
async fn what_nobody_takes_goes_to_the_next() {
    let scene = Scene::new(one_connection());
    let used = scene.dialled();
    let [first, second, third] = scene.calls();
    let (one, two, mut three) = (scene.wait(&first), scene.wait(&second), scene.wait(&third));
    drop(two);
    used.park(Exchange::complete()).expect("room");
    // It was handed over, and is not taken.
    drop(one);
    let connection = idle(&mut three);
    let (mut one, mut two) = (scene.wait(&first), scene.wait(&second));
    drop(connection);
    drop(one);
    let reservation = dial(&mut two);
    one = scene.wait(&first);
    // A turn to dial that nobody took is no failed dial.
    assert_eq!(scene.client.retry_after(), None);
    drop(reservation.connected(Socket::new(&scene.alive)).expect("in time"));
    drop(dial(&mut one));
    drop((one, two, three));
    drop((first, second, third));
    scene.end();
}

/// A connection that was dead when it was handed over costs its waiter nothing: it is still the first.
#[tokio::test]
async fn a_dead_connection_costs_nobody_the_place() {
    let scene = Scene::new(PoolLimits { connections_per_client: 2, ..one_connection() });
    let socket = Socket::new(&scene.alive);
    let reusable = socket.reusable.clone();
    let dying = scene.node.dialled(&scene.client, &scene.session, socket);
    let other = scene.dialled();
    let [first, second] = scene.calls();
    let (mut one, mut two) = (scene.wait(&first), scene.wait(&second));
    dying.park(Exchange::complete()).expect("room");
    reusable.store(false, SeqCst);
    let reservation = dial(&mut one);
    assert!(poll_once(two.as_mut()).is_pending());
    assert_eq!(scene.alive.load(SeqCst), 1);
    drop(reservation.connected(Socket::new(&scene.alive)).expect("in time"));
    drop((dial(&mut two).connected(Socket::new(&scene.alive)).expect("in time"), other));
    drop((one, two));
    drop((first, second));
    scene.end();
}

/// Whoever comes back stands at the end.
#[tokio::test]
async fn who_left_and_came_back_stands_at_the_end() {
    let scene = Scene::new(one_connection());
    let used = scene.dialled();
    let [first, second] = scene.calls();
    let (one, mut two) = (scene.wait(&first), scene.wait(&second));
    drop(one);
    let mut one = scene.wait(&first);
    used.park(Exchange::complete()).expect("room");
    assert!(poll_once(one.as_mut()).is_pending());
    idle(&mut two).park(Exchange::complete()).expect("room");
    drop(idle(&mut one));
    drop((one, two));
    drop((first, second));
    scene.end();
}

/// One operation waits for one connection at a time; a second wait takes nothing from the first.
#[tokio::test]
async fn one_call_waits_once() {
    let scene = Scene::new(one_connection());
    let used = scene.dialled();
    let [call, behind] = scene.calls();
    let (mut one, mut last) = (scene.wait(&call), scene.wait(&behind));
    let mut twice = Box::pin(scene.client.acquire(&call));
    assert!(matches!(poll_once(twice.as_mut()), Poll::Ready(Err(error)) if error.kind() == Kind::Busy));
    used.park(Exchange::complete()).expect("room");
    // Answered and not taken yet: the seat is still the first one's.
    let mut again = Box::pin(scene.client.acquire(&call));
    assert!(matches!(poll_once(again.as_mut()), Poll::Ready(Err(error)) if error.kind() == Kind::Busy));
    idle(&mut one).park(Exchange::complete()).expect("room");
    drop(idle(&mut last));
    drop((one, last, twice, again));
    drop((call, behind));
    scene.end();
}

/// A stop, the deadline and the end of the registry end the wait; the waker is called once for it.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_connection_ends_with_its_call() {
    let scene = Scene::on(Node::paused(one_connection()));
    let used = scene.dialled();
    let until = within(Duration::from_secs(1));
    let ready = scene.node.pools.admit_now_until(&scene.client, &scene.session, until).expect("room");
    let timed = ready.dispatch(SEND, Cost::new()).expect("allowed");
    let waited = tokio::time::Instant::now();
    let error = scene.client.acquire(&timed).await.expect_err("nobody parks");
    assert_eq!(error.kind(), Kind::Deadline(Which::Operation));
    assert!(waited.elapsed() < ms(1_020));
    let [stopped, retired] = scene.calls();
    let (mut one, mut two) =
        (Box::pin(scene.client.acquire(&stopped)), Box::pin(scene.client.acquire(&retired)));
    let (count, waker) = WakeCount::new();
    assert!(poll_with(one.as_mut(), &waker).is_pending());
    assert!(poll_with(two.as_mut(), &waker).is_pending());
    stopped.io().stop_handle().stop();
    assert_eq!(count.wakes(), 1);
    let Poll::Ready(Err(error)) = poll_once(one.as_mut()) else { panic!("it was stopped") };
    assert_eq!(error.kind(), Kind::Stopped(StopCause::Caller));
    scene.node.pools.retire();
    let Poll::Ready(Err(error)) = poll_once(two.as_mut()) else { panic!("it was retired") };
    assert!(matches!(error.kind(), Kind::Retired(_)), "{error}");
    drop((one, two));
    drop((stopped, retired, timed, used));
    scene.end();
}

/// A future that was leaked keeps nothing for ever: what its operation is given is taken back once the operation is over.
#[tokio::test]
async fn a_leaked_wait_loses_no_connection() {
    let scene = Scene::new(one_connection());
    let used = scene.dialled();
    let [leaked, waits] = scene.calls();
    std::mem::forget(scene.wait(&leaked));
    let mut wait = scene.wait(&waits);
    drop(leaked);
    used.park(Exchange::complete()).expect("room");
    drop(idle(&mut wait));
    drop(wait);
    drop(waits);
    scene.end();
}

/// Many wakers of one call are woken by one answer, and more of them than a batch holds are no trouble.
#[tokio::test]
async fn calls_with_four_wakers_each_are_answered() {
    let limits =
        PoolLimits { running: 32, running_per_tenant: 32, requests_per_tenant: 32, ..one_connection() };
    let scene = Scene::new(limits);
    let used = scene.dialled();
    let calls: [PoolCall; 12] = scene.calls();
    let mut others = Vec::new();
    let mut waits = Vec::new();
    let mut counts = Vec::new();
    for call in &calls {
        for _ in 0..3 {
            let (count, waker) = WakeCount::new();
            let mut other = Box::pin(call.io().wait_for(std::future::pending::<()>()));
            assert!(poll_with(other.as_mut(), &waker).is_pending());
            others.push(other);
            counts.push((count, waker));
        }
        waits.push(scene.wait(call));
    }
    // A pause answers all of them at once.
    drop(used);
    let reservation = dial(&mut waits[0]);
    drop(reservation);
    for wait in &mut waits[1..] {
        let Poll::Ready(Err(error)) = poll_once(wait.as_mut()) else { panic!("they were to be refused") };
        assert!(matches!(error.kind(), Kind::Backoff { .. }), "{error}");
    }
    assert!(counts.iter().all(|(count, _)| count.wakes() >= 1));
    drop((others, waits));
    drop(calls);
    scene.end();
}

/// Threads come, leave and park at the same client: nobody is forgotten, nothing is lost.
/// Case S04.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_is_forgotten_at_a_busy_client() {
    let limits = PoolLimits {
        connections_per_client: 2,
        running: 64,
        running_per_tenant: 64,
        running_per_provider: 64,
        requests_per_tenant: 64,
        initial_backoff: ms(1),
        maximum_backoff: ms(1),
        ..PoolLimits::default()
    };
    let scene = Arc::new(Scene::new(limits));
    let tasks = (0..12_u64).map(|task| {
        let scene = scene.clone();
        tokio::spawn(async move {
            let mut seed = task + 1;
            let mut random = move || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                seed >> 33
            };
            for _ in 0..400 {
                let call = scene.node.call(&scene.client, &scene.session);
                let mut wait = Box::pin(scene.client.acquire(&call));
                if random() % 3 == 0 {
                    let polls = random() % 3;
                    for _ in 0..polls {
                        let polled =
                            std::future::poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx).is_ready()));
                        if polled.await {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    continue;
                }
                let wait = tokio::time::timeout(Duration::from_secs(30), wait);
                match wait.await.expect("nobody is forgotten") {
                    Ok(Acquired::Idle(connection)) => {
                        if random() % 8 > 0 {
                            // Another one may rest already; there is room for both.
                            connection.park(Exchange::complete()).expect("room");
                        }
                    }
                    Ok(Acquired::Dial(reservation)) => {
                        if random() % 8 > 0 {
                            let socket = Socket::new(&scene.alive);
                            socket.reusable.store(random() % 4 > 0, SeqCst);
                            let connection = reservation.connected(socket).expect("in time");
                            connection.park(Exchange::complete()).expect("room");
                        }
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), Kind::Backoff { .. }), "{error}");
                        tokio::time::sleep(ms(1)).await;
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    let scene = Arc::into_inner(scene).expect("all tasks are over");
    scene.end();
}
