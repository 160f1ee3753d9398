//! What hurt others, played through: the cases of the list that no other file of these tests is about. `sNN` is the case.
use super::poll::{poll_once, poll_with};
use super::support::*;
use crate::broker::pools::PoolWait;
use std::any::Any;
use std::pin::Pin;
use std::task::Poll;

type Waiting = Pin<Box<PoolWait>>;

/// Stands in line.
fn wait<T: Resource>(node: &Node, client: &ProviderClient<T>, session: &CapabilitySession) -> Waiting {
    let mut wait = Box::pin(node.pools.admit(client, session).expect("room to wait").wait());
    assert!(poll_once(wait.as_mut()).is_pending(), "there is no room");
    wait
}

#[track_caller]
fn granted(wait: &mut Waiting) -> PoolReady {
    match poll_once(wait.as_mut()) {
        Poll::Ready(ready) => ready.expect("granted"),
        Poll::Pending => panic!("it was to be granted"),
    }
}

/// For tests that poll by hand only: outside of a task nothing counts how often.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// What one request has charged: owners, waiting of the line, running, pending of the pools, running of the pools.
fn charged(node: &Node) -> [u64; 5] {
    let (io, pools) = (node.io.snapshot(), node.counts());
    [io.owners, io.queued, io.running, pools.pending_requests, pools.running_requests]
}

/// Each state that a request can be dropped in.
#[derive(Clone, Copy, Debug)]
enum At {
    Staged,
    Queued,
    /// It left the line; its staged input lives.
    Left,
    Granted,
    /// It gave its grant back; its staged input lives.
    Returned,
    Started,
    Waiting,
    /// The call is gone; a result lives.
    Cleaning,
}

impl At {
    /// Makes a request and brings it there.
    fn reach(
        self,
        node: &Node,
        client: &ProviderClient<Nothing>,
        session: &CapabilitySession,
    ) -> Box<dyn Any> {
        let admission = node.pools.admit(client, session).expect("room");
        if matches!(self, At::Staged) {
            return Box::new(admission);
        }
        let input = admission.input(512, 0).expect("room");
        let mut wait = Box::pin(admission.wait());
        let ready = match (self, poll_once(wait.as_mut())) {
            (At::Queued, Poll::Pending) => return Box::new((wait, input)),
            (At::Left, Poll::Pending) => return Box::new(input),
            (_, Poll::Ready(ready)) => ready.expect("granted"),
            (at, Poll::Pending) => panic!("{at:?} was to be granted"),
        };
        match self {
            At::Granted => return Box::new((ready, input)),
            At::Returned => return Box::new(input),
            _ => {}
        }
        let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
        match self {
            At::Cleaning => Box::new(call.io().buffer(512, 0).expect("room").retain().expect("room")),
            _ => Box::new((call, input)),
        }
    }
}

/// pools.46, pools.58 to pools.60: each state holds what it holds, tenant and provider included, and gives it back exactly.
#[tokio::test]
async fn s07_each_state_gives_back_exactly_what_it_charged() {
    let limits = PoolLimits {
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        requests_per_tenant: 1,
        requests_per_provider: 1,
        ..PoolLimits::default()
    };
    let node = Node::new(limits);
    let [p, q] = ["p", "q"].map(|name| node.install(name, 1, 0));
    let (on_p, on_q) = (node.client::<Nothing>(&p), node.client::<Nothing>(&q));
    let (alpha, beta) = (node.session(&node.plan("alpha", &p)), node.session(&node.plan("beta", &q)));
    let (same_tenant, same_provider) =
        (node.session(&node.plan("alpha", &q)), node.session(&node.plan("gamma", &p)));
    for (at, blocked, expected) in [
        (At::Staged, false, [1, 1, 0, 1, 0]),
        (At::Queued, true, [1, 1, 0, 1, 0]),
        (At::Left, true, [1, 1, 0, 1, 0]),
        (At::Granted, false, [1, 0, 1, 0, 1]),
        (At::Returned, false, [1, 0, 0, 0, 0]),
        (At::Started, false, [1, 0, 1, 0, 1]),
        (At::Waiting, false, [1, 0, 1, 0, 1]),
        (At::Cleaning, false, [1, 0, 1, 0, 1]),
    ] {
        let other = blocked.then(|| node.call(&on_q, &beta));
        let before = charged(&node);
        let held = at.reach(&node, &on_p, &alpha);
        let now = charged(&node);
        let more: Vec<_> = now.iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(more, expected, "{at:?}");
        assert_eq!(alpha.observer().live_calls(), 1, "{at:?}");
        drop(other);
        // Of its tenant and its provider it is the one request that may be.
        let tenant = Scope::Tenant(alpha.tenant());
        assert_full(node.pools.admit(&on_q, &same_tenant), Dimension::PoolsRequestsPerTenant, tenant);
        let refused = node.pools.admit(&on_p, &same_provider).expect_err("the provider has its one request");
        assert_eq!(refused.dimension(), Some(Dimension::PoolsRequestsPerProvider), "{at:?}");
        drop(held);
        assert_eq!(charged(&node), [0; 5], "{at:?}");
        assert_eq!(alpha.observer().live_calls(), 0, "{at:?}");
        drop(node.call(&on_p, &same_provider));
        drop(node.call(&on_q, &same_tenant));
    }
    drop((alpha, beta, same_tenant, same_provider));
    node.assert_clean_end().await;
}

/// A hundred workers in a loop on ten units, 20 ms each: everyone waits as long as everyone else, to the millisecond.
#[tokio::test(start_paused = true)]
async fn s09_nobody_waits_longer_than_a_round() {
    let limits = PoolLimits {
        running: 10,
        running_per_tenant: 10,
        running_per_provider: 10,
        requests_per_tenant: 128,
        requests_per_provider: 128,
        ..PoolLimits::default()
    };
    let node = Arc::new(Node::paused(limits));
    let orders = node.install("orders", 1, 0);
    let (client, plan) = (node.client::<Nothing>(&orders), node.plan("alpha", &orders));
    let workers = (0..100).map(|_| {
        let (node, client, session) = (node.clone(), client.clone(), node.session(&plan));
        tokio::spawn(async move {
            let (mut longest, mut sum) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..20 {
                let begun = tokio::time::Instant::now();
                let ready = node.pools.admit(&client, &session).expect("room").wait().await.expect("in time");
                longest = longest.max(begun.elapsed());
                sum += begun.elapsed();
                tokio::time::sleep(ms(20)).await;
                drop(ready);
            }
            (longest, sum)
        })
    });
    let (mut longest, mut sum) = (Duration::ZERO, Duration::ZERO);
    for worker in workers.collect::<Vec<_>>() {
        let (most, all) = worker.await.expect("no panic");
        longest = longest.max(most);
        sum += all;
    }
    // Ten rounds of 20 ms serve a hundred; a round of one's own is in between. A timer is late by at most a millisecond.
    let mean = sum / 2_000;
    assert!(longest <= ms(200) && longest <= 2 * (mean + ms(20)), "longest {longest:?}, mean {mean:?}");
    node.assert_idle();
}

/// A provider that never answers holds what is its own; another one is served as if it were alone.
#[test]
fn s10_a_provider_that_never_answers_slows_down_nobody_else() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let node = Node::new(PoolLimits::default());
    let [dead, live] = ["dead", "live"].map(|name| node.install(name, 1, 0));
    let (on_dead, on_live) = (node.client::<Nothing>(&dead), node.client::<Nothing>(&live));
    let alpha: Vec<_> = (0..32).map(|_| node.session(&node.plan("alpha", &dead))).collect();
    let (mut held, mut refused) = (Vec::new(), 0);
    for number in 0..1_000 {
        match node.pools.admit(&on_dead, &alpha[number % 32]) {
            Ok(admission) => held.push(Box::pin(admission.wait())),
            Err(error) => {
                assert_eq!(error.dimension(), Some(Dimension::PoolsRequestsPerTenant));
                refused += 1;
            }
        }
    }
    let mut running: Vec<Box<dyn Any>> = Vec::new();
    for wait in &mut held {
        if let Poll::Ready(ready) = poll_once(wait.as_mut()) {
            running.push(Box::new(ready.expect("granted").dispatch(SEND, Cost::new()).expect("allowed")));
        }
    }
    let counts = node.counts();
    assert_eq!((refused, running.len(), counts.running_requests, counts.pending_requests), (968, 16, 16, 16));
    let beta = node.session(&node.plan("beta", &live));
    for _ in 0..200 {
        let mut wait = Box::pin(node.pools.admit(&on_live, &beta).expect("room").wait());
        drop(granted(&mut wait).dispatch(SEND, Cost::new()).expect("allowed"));
    }
    drop((held, running, alpha, beta));
    node.assert_idle();
}

/// What a tenant does not use is there for the others, and comes back to it with the first unit that is released.
#[tokio::test]
async fn s11_an_idle_tenants_share_is_used_and_comes_back() {
    let limits =
        PoolLimits { running: 4, running_per_tenant: 4, running_per_provider: 4, ..PoolLimits::default() };
    let node = Node::new(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    let mut running: Vec<_> = (0..4).map(|_| node.call(&client, &alpha)).collect();
    let mut of_alpha: Vec<_> = (0..8).map(|_| wait(&node, &client, &alpha)).collect();
    let mut of_beta: Vec<_> = (0..2).map(|_| wait(&node, &client, &beta)).collect();
    // From now on each unit goes to them in turn.
    let mut kept = Vec::new();
    for round in 0..2 {
        running.pop();
        running.pop();
        let ready = granted(&mut of_beta[round]);
        kept.push((granted(&mut of_alpha[round]), ready));
    }
    assert_eq!(node.counts().running_requests, 4);
    assert!(of_alpha[2..].iter_mut().all(|wait| poll_once(wait.as_mut()).is_pending()));
    drop((running, kept, of_alpha, of_beta, alpha, beta));
    node.assert_idle();
}

/// An origin that takes connections and never answers: it has its own few, everyone else there waits, dials stay one at a
/// time, and the other origin notices nothing (S12). The same while a dial hangs (S22).
#[test]
fn s12_s22_a_black_hole_holds_its_own_connections_and_no_more() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let limits = PoolLimits {
        running: 256,
        running_per_tenant: 256,
        running_per_provider: 256,
        requests_per_tenant: 256,
        requests_per_provider: 256,
        connections_per_client: 3,
        ..PoolLimits::default()
    };
    let io = IoLimits { running: 256, ..IoLimits::default() };
    let node = Node::with(io, limits);
    let orders = node.install("orders", 1, 0);
    let hole = node.client::<Socket>(&orders);
    let other = node.pools.client::<Socket>(&orders, OriginSlot::new(1)).expect("room");
    let alive = Arc::new(AtomicUsize::new(0));
    let sessions: Vec<_> = (0..8).map(|_| node.session(&node.plan("alpha", &orders))).collect();
    let calls: Vec<_> = (0..200).map(|number| node.call(&hole, &sessions[number % 8])).collect();
    let mut waits: Vec<_> = calls.iter().map(|call| Box::pin(hole.acquire(call))).collect();
    let mut used = Vec::new();
    let mut hung = None;
    for round in 0..3 {
        let mut dials = Vec::new();
        for wait in &mut waits {
            if let Poll::Ready(dialled) = poll_once(wait.as_mut()) {
                dials.push(dialled.expect("a turn to dial"));
            }
        }
        assert_eq!(dials.len(), 1, "one dials at a time");
        match dials.pop() {
            Some(Acquired::Dial(dial)) if round == 2 => hung = Some(dial),
            Some(Acquired::Dial(dial)) => used.push(dial.connected(Socket::new(&alive)).expect("in time")),
            found => panic!("nothing rests: {found:?}"),
        }
    }
    assert!(waits.iter_mut().all(|wait| poll_once(wait.as_mut()).is_pending()));
    assert_eq!((used.len(), hung.is_some(), node.counts().connections), (2, true, 3));
    let session = node.session(&node.plan("beta", &orders));
    for round in 0..50 {
        let call = node.call(&other, &session);
        let connection = match poll_once(Box::pin(other.acquire(&call)).as_mut()) {
            Poll::Ready(Ok(Acquired::Dial(dial))) if round == 0 => {
                dial.connected(Socket::new(&alive)).expect("in time")
            }
            Poll::Ready(Ok(Acquired::Idle(connection))) => connection,
            found => panic!("round {round}: {found:?}"),
        };
        connection.park(Exchange::complete()).expect("room");
    }
    // Who waits there ends with its session, all at once.
    for session in &sessions {
        session.stop();
    }
    let mut ended = 0;
    for wait in &mut waits {
        if let Poll::Ready(Err(error)) = poll_once(wait.as_mut()) {
            assert_eq!(error.kind(), Kind::Stopped(StopCause::Session));
            ended += 1;
        }
    }
    assert_eq!(ended, 197);
    drop((waits, used, hung));
    drop(calls);
    other.close_idle();
    assert_eq!(alive.load(SeqCst), 0);
    drop((sessions, session));
    node.assert_idle();
}

/// What is over holds nothing, though its futures and its handles are kept.
#[tokio::test]
async fn s14_a_finished_call_holds_nothing_though_its_futures_are_kept() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let admission = node.pools.admit(&client, &session).expect("room");
    let stop = admission.stop_handle();
    let mut wait = Box::pin(admission.wait());
    let call = granted(&mut wait).dispatch(SEND, Cost::new()).expect("allowed");
    assert_eq!(node.counts().running_requests, 1);
    let chunk = call.io().buffer(512, 0).expect("room").retain().expect("room");
    drop(call);
    assert_eq!(node.counts().running_requests, 1, "a result is work that is not over");
    drop(chunk);
    assert_eq!((node.counts().running_requests, node.io.snapshot().owners), (0, 0));
    assert!(poll_once(wait.as_mut()).is_pending(), "a finished future is inert");
    assert_eq!(stop.phase(), crate::broker::io::Phase::Retired);
    drop((wait, stop, session));
    node.assert_idle();
}

/// Refused now, at an age, at a deadline: three ways to ask, with one accounting, and each says which it was.
#[tokio::test(start_paused = true)]
async fn s15_three_ways_to_ask_have_one_accounting() {
    let limits = PoolLimits {
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        queue_age: Duration::from_secs(2),
        ..PoolLimits::default()
    };
    let node = Node::paused(limits);
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    let running = node.call(&client, &alpha);
    let before = (node.counts(), node.io.snapshot());
    let begun = tokio::time::Instant::now();
    assert_full(node.pools.admit_now(&client, &beta), Dimension::PoolsRunning, Scope::Node);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!((node.counts(), node.io.snapshot()), before);
    let aged = node.pools.admit(&client, &beta).expect("room to wait").wait().await;
    assert_kind(aged, Kind::Deadline(Which::Queue));
    assert!(begun.elapsed() >= ms(2_000) && begun.elapsed() <= ms(2_020), "{:?}", begun.elapsed());
    assert_eq!((node.counts(), node.io.snapshot()), before);
    let begun = tokio::time::Instant::now();
    let late = node.pools.admit_until(&client, &beta, within(ms(300))).expect("room to wait").wait().await;
    assert_kind(late, Kind::Deadline(Which::Operation));
    assert!(begun.elapsed() >= ms(300) && begun.elapsed() <= ms(320), "{:?}", begun.elapsed());
    assert_eq!((node.counts(), node.io.snapshot()), before);
    drop((running, alpha, beta));
    node.assert_idle();
}

/// A ceiling is a ceiling: 64 workers on eight units, counted where the work is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s16_no_more_run_than_the_ceiling_says() {
    let limits = PoolLimits {
        running: 8,
        running_per_tenant: 8,
        running_per_provider: 8,
        requests_per_tenant: 64,
        ..PoolLimits::default()
    };
    let node = Arc::new(Node::new(limits));
    let orders = node.install("orders", 1, 0);
    let (client, plan) = (node.client::<Nothing>(&orders), node.plan("alpha", &orders));
    let (working, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let workers = (0..64).map(|worker| {
        let (node, client, session) = (node.clone(), client.clone(), node.session(&plan));
        let (working, peak) = (working.clone(), peak.clone());
        tokio::spawn(async move {
            for round in 0..100 {
                let ready = if (worker + round) % 3 == 0 {
                    match node.pools.admit_now(&client, &session) {
                        Ok(ready) => ready,
                        Err(_) => continue,
                    }
                } else {
                    node.pools.admit(&client, &session).expect("room").wait().await.expect("its turn")
                };
                let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
                peak.fetch_max(working.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::task::yield_now().await;
                working.fetch_sub(1, SeqCst);
                drop(call);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    let peak = peak.load(SeqCst);
    assert!((1..=8).contains(&peak), "{peak} ran at once");
    node.assert_idle();
    // How many really ran at once is the scheduler's; that all eight places are still there is not.
    let session = node.session(&plan);
    let all: Vec<_> = (0..8).map(|_| node.call(&client, &session)).collect();
    assert_full(node.pools.admit_now(&client, &session), Dimension::PoolsRunning, Scope::Node);
    drop((all, session));
    node.assert_idle();
}

/// A dead upstream under a thousand calls: dials follow the pause that doubles, every other call is told when to come back,
/// and nothing is tried twice by itself (pools.63 to pools.65).
#[tokio::test(start_paused = true)]
async fn s45_a_dead_upstream_is_dialled_as_the_pause_says() {
    let node = Node::paused(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let plan = node.plan("alpha", &orders);
    let begun = tokio::time::Instant::now();
    let (mut dials, mut told) = (Vec::new(), 0);
    for _ in 0..1_000 {
        let session = node.session(&plan);
        let call = node.call(&client, &session);
        match client.acquire(&call).await {
            Ok(Acquired::Dial(dial)) => {
                dials.push(begun.elapsed().as_millis());
                drop(dial);
            }
            Ok(Acquired::Idle(_)) => panic!("nothing was ever connected"),
            Err(error) => {
                assert!(matches!(error.kind(), Kind::Backoff { .. }), "{error}");
                assert_eq!(error.effect(), Effect::NotSent);
                assert_eq!(error.retry_after(), client.retry_after());
                told += 1;
            }
        }
        drop((call, session));
        tokio::time::advance(ms(10)).await;
    }
    // 100 ms, doubling, from each failure on.
    assert_eq!(dials, [0, 100, 300, 700, 1_500, 3_100, 6_300]);
    assert_eq!(told, 993);
    assert_eq!(node.counts().connections, 0);
    node.assert_idle();
}

/// A waiter that was woken and left is no waiter: the next one has its place, and nobody keeps its waker.
#[tokio::test]
async fn s19_what_has_left_the_line_keeps_nobody() {
    let node = Node::new(PoolLimits { connections_per_client: 1, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let used = node.dialled(&client, &session, Nothing);
    for _ in 0..3 {
        let other = node.session(&node.plan("beta", &orders));
        let observer = other.observer();
        let (count, waker) = super::poll::WakeCount::new();
        let call = node.call(&client, &other);
        let mut acquire = Box::pin(client.acquire(&call));
        assert!(poll_with(acquire.as_mut(), &waker).is_pending());
        drop(acquire);
        drop((call, other));
        // The connection that it waited for is still open and in use.
        assert!(observer.is_quiescent());
        assert_eq!(count.wakers(), 1, "the test's own");
    }
    drop((used, session));
    node.assert_idle();
}

/// Eight tasks at once: four that work, one that rotates, one that lowers limits, one that installs and retires, one that
/// looks. Whatever the others do, each gets on, no step of any takes long, and what is refused is refused with reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s21_reconfiguration_and_requests_do_not_stall_each_other() {
    let node = Arc::new(Node::new(PoolLimits { pending: 1_024, ..PoolLimits::default() }));
    let current = Arc::new(std::sync::RwLock::new(node.install("orders", 1, 0)));
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for role in 0..8 {
        let (node, current, over) = (node.clone(), current.clone(), over.clone());
        tasks.push(tokio::spawn(async move {
            let (mut steps, mut longest) = (0_u64, Duration::ZERO);
            while !over.load(SeqCst) {
                let begun = std::time::Instant::now();
                let installed = current.read().expect("no panic").clone();
                match role {
                    0..4 => {
                        if let Err(error) = one_request(&node, &installed).await {
                            assert_eq!(error.kind(), Kind::Retired(What::Epoch), "{error}");
                        }
                    }
                    4 => {
                        let epoch = installed.epoch().0;
                        *current.write().expect("no panic") = node.install("orders", epoch + 1, epoch);
                    }
                    5 => {
                        let now = node.pools.limits();
                        let pending = now.pending.saturating_sub(1).max(64);
                        node.pools.lower_limits(PoolLimits { pending, ..now }).expect("so many do not wait");
                    }
                    6 => {
                        let other = node.install("other", steps + 1, 0);
                        node.pools.retire_provider(&other).expect("current");
                    }
                    _ => assert!(node.counts().running_requests <= 4),
                }
                longest = longest.max(begun.elapsed());
                steps += 1;
                // The registry keeps what was replaced for a moment; there is room for so many of them only.
                tokio::time::sleep(ms(if role < 4 { 0 } else { 3 })).await;
            }
            (steps, longest)
        }));
    }
    tokio::time::sleep(ms(600)).await;
    over.store(true, SeqCst);
    for (role, task) in tasks.into_iter().enumerate() {
        let (steps, longest) = task.await.expect("no panic");
        assert!(steps >= 10, "role {role} did {steps} steps");
        // 100 ms on a machine of its own.
        assert!(longest < ms(2_000), "a step of role {role} took {longest:?}");
    }
    node.assert_idle();
    node.assert_clean_end().await;
}

/// Admission, a connection, parking, on this epoch.
async fn one_request(node: &Node, installed: &InstalledProvider) -> Result<(), Error> {
    let client = node.pools.client::<Nothing>(installed, OriginSlot::new(0))?;
    let plan = node.broker.seal(PlanSpec::new("alpha", "publication").bind(&HTTP, &installed.reference()))?;
    let session = node.session(&plan);
    let call = node.pools.admit(&client, &session)?.wait().await?.dispatch(SEND, Cost::new())?;
    let connection = match client.acquire(&call).await? {
        Acquired::Idle(connection) => connection,
        Acquired::Dial(reservation) => reservation.connected(Nothing)?,
    };
    connection.park(Exchange::complete())
}
