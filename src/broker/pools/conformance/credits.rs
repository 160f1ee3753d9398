//! Credits: what operations leave for the next, which nobody can tell but by how fast it goes.
use super::support::*;
use crate::broker::pools::PoolAdmission;
use std::sync::Barrier;
use std::time::Instant;

fn to_run(running: u32) -> PoolLimits {
    PoolLimits {
        running,
        running_per_tenant: running,
        running_per_provider: running,
        ..PoolLimits::default()
    }
}

/// One unit for everybody, so that whatever lies about is in somebody's way.
fn narrow() -> (Node, InstalledProvider, ProviderClient<Socket>) {
    let node = Node::new(to_run(1));
    let orders = node.install("orders", 1, 0);
    let client = node.client(&orders);
    (node, orders, client)
}

fn floor_says(node: &Node) -> (u32, u64) {
    node.pools.registry().ground().floor.credits_lie_about()
}

fn run_once(node: &Node, client: &ProviderClient<Socket>, session: &CapabilitySession) {
    let ready = node.pools.admit_now(client, session).expect("nobody else runs");
    drop(ready.dispatch(SEND, Cost::new()).expect("allowed"));
}

/// Until credits are lent and one lies about.
fn until_lent(node: &Node, client: &ProviderClient<Socket>, session: &CapabilitySession) {
    for _ in 0..10_000 {
        if floor_says(node).0 > 0 {
            return;
        }
        run_once(node, client, session);
    }
    panic!("no credit was left in ten thousand operations");
}

#[tokio::test]
async fn what_lies_about_is_in_nobodys_way() {
    let (node, orders, client) = narrow();
    let sessions = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    for round in 0..3 {
        let [mine, theirs] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        until_lent(&node, &client, &sessions[mine]);
        // At once, and in line.
        run_once(&node, &client, &sessions[theirs]);
        assert_eq!(floor_says(&node).0, 0, "it was recalled");
        until_lent(&node, &client, &sessions[mine]);
        let admission = node.pools.admit(&client, &sessions[theirs]).expect("there is room");
        drop(admission.wait().await.expect("nobody else runs"));
    }
}

/// Two pairs of tenant and provider whose first cell is the same one: each has a second.
#[tokio::test]
async fn two_pairs_that_share_a_cell_leave_credits_each() {
    let node = Node::new(PoolLimits::default());
    let providers = ["orders", "search"].map(|name| node.install(name, 1, 0));
    let clients: [ProviderClient<Socket>; 2] = providers.each_ref().map(|provider| node.client(provider));
    let session = |number: usize| node.session(&node.plan(["alpha", "beta"][number], &providers[number]));
    let sessions = [session(0), session(1)];
    {
        // More at once than ever again: nobody has to look whether there were more.
        let running = |at: usize| node.pools.admit_now(&clients[at], &sessions[at]).expect("there is room");
        let waiting = |at: usize| node.pools.admit(&clients[at], &sessions[at]).expect("there is room");
        let _most = [0, 1].map(|at| (running(at), running(at), waiting(at), waiting(at)));
    }
    until_lent(&node, &clients[0], &sessions[0]);
    run_once(&node, &clients[1], &sessions[1]);
    assert_eq!(floor_says(&node).0, 2, "one of each");
    let ready = node.pools.admit_now(&clients[1], &sessions[1]).expect("nobody else runs");
    assert_eq!(floor_says(&node).0, 1, "taken from the second cell");
    drop(ready.dispatch(SEND, Cost::new()).expect("allowed"));
    assert_eq!(floor_says(&node).0, 2, "and left there");
    // Who waits is given the running unit that lies there, so whoever comes next finds the slot without one.
    let admission = node.pools.admit(&clients[1], &sessions[1]).expect("there is room");
    let waited = admission.wait().await.expect("nobody else runs");
    let ready = node.pools.admit_now(&clients[1], &sessions[1]).expect("there is room");
    assert_eq!(floor_says(&node).0, 2, "what runs was charged anew");
    drop((waited, ready));
}

#[tokio::test]
async fn what_lies_about_is_not_counted() {
    let (node, orders, client) = narrow();
    let session = node.session(&node.plan("alpha", &orders));
    until_lent(&node, &client, &session);
    node.assert_idle();
    until_lent(&node, &client, &session);
    let mut tenants: [_; 2] = Default::default();
    assert_eq!(node.pools.tenants(&mut tenants).written, 1);
    assert_eq!((tenants[0].requests, tenants[0].running_requests), (0, 0));
    until_lent(&node, &client, &session);
    let most = node.pools.figures();
    assert_eq!(most.high_water(Dimension::PoolsRunning), Some(1));
    assert_eq!(most.high_water(Dimension::IoOwners), Some(1));
}

/// A high-water mark is of what is used at once, also where the last one of them came by what lay about.
#[tokio::test]
async fn a_credit_that_is_taken_counts_for_the_most() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    until_lent(&node, &client, &alpha);
    let direct = node.call(&client, &beta);
    assert_eq!(floor_says(&node).0, 1, "it lies about beside one that runs");
    let taken = node.call(&client, &alpha);
    assert_eq!(node.pools.figures().high_water(Dimension::PoolsRunning), Some(2));
    drop((direct, taken));
}

/// What another thread has left is of no use either, though nobody looks for it there: it is recalled.
#[tokio::test]
async fn what_another_thread_has_left_counts_for_no_mark() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    std::thread::scope(|scope| {
        scope.spawn(|| until_lent(&node, &client, &alpha));
    });
    assert_eq!(floor_says(&node).0, 1);
    run_once(&node, &client, &beta);
    assert_eq!(node.pools.figures().high_water(Dimension::PoolsRunning), Some(1));
    let both = [&alpha, &beta].map(|session| node.call(&client, session));
    assert_eq!(node.pools.figures().high_water(Dimension::PoolsRunning), Some(2));
    drop(both);
}

/// What lies about makes a word look fuller than it ever was. That alone recalls nothing: else nobody who waits would ever
/// get beyond the second operation of a round.
#[tokio::test]
async fn whoever_waits_comes_to_take_what_lies_about() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Socket>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let mut rounds = Vec::new();
    for _ in 0..1_000 {
        let admission = node.pools.admit(&client, &session).expect("there is room");
        drop(admission.wait().await.expect("nobody waits").dispatch(SEND, Cost::new()).expect("allowed"));
        rounds.push(floor_says(&node));
    }
    let (slots, round) = rounds[rounds.len() - 1];
    assert_eq!(slots, 2, "one is staged from what lies about, and one unit is traded");
    assert!(rounds.iter().rev().take(500).all(|at| *at == (slots, round)), "no recall since");
    assert_eq!(node.pools.figures().high_water(Dimension::IoOwners), Some(1));
}

#[tokio::test]
async fn limits_are_lowered_past_what_lies_about() {
    let node = Node::new(PoolLimits { running_per_tenant: 2, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let hold = |count: usize| -> Vec<_> {
        let admit = |_| node.pools.admit_now(&client, &session).expect("there is room");
        (0..count).map(admit).map(|ready| ready.dispatch(SEND, Cost::new()).expect("allowed")).collect()
    };
    drop(hold(2));
    until_lent(&node, &client, &session);
    drop(hold(2));
    assert_eq!(floor_says(&node).0, 2);
    node.pools
        .lower_limits(PoolLimits { running_per_tenant: 1, ..node.pools.limits() })
        .expect("none is in use");
    let one = hold(1);
    assert_full(node.pools.admit_now(&client, &session), Dimension::PoolsRunningPerTenant, Scope::Tenant(0));
    drop(one);
}

#[tokio::test]
async fn a_shutdown_is_clean_with_something_lying_about() {
    let (node, orders, client) = narrow();
    let session = node.session(&node.plan("alpha", &orders));
    until_lent(&node, &client, &session);
    drop((session, client, orders));
    let left = node.pools.shutdown(within(Duration::from_secs(5))).await;
    assert!(left.is_clean(), "{left:?}");
    assert!(node.io.snapshot().is_zero());
    assert_eq!(floor_says(&node).0, 0);
}

#[tokio::test]
async fn the_next_epoch_takes_what_the_last_one_left() {
    let (node, orders, client) = narrow();
    let session = node.session(&node.plan("alpha", &orders));
    until_lent(&node, &client, &session);
    let next = node.install("orders", 2, 1);
    assert_kind(node.pools.admit_now(&client, &session), Kind::Retired(What::Epoch));
    let client = node.client::<Socket>(&next);
    let session = node.session(&node.plan("alpha", &next));
    run_once(&node, &client, &session);
    until_lent(&node, &client, &session);
    node.assert_idle();
}

/// What an operation of the model is, and the handle that it stands for.
enum Held {
    Staged(PoolAdmission),
    Granted(PoolReady),
    Started(#[expect(dead_code, reason = "it is held, and dropped")] PoolCall),
}

/// Operations of two tenants and two providers on one thread, as a plain model counts them.
struct Script {
    node: Node,
    clients: [ProviderClient<Socket>; 2],
    sessions: [[CapabilitySession; 2]; 2],
    live: Vec<(usize, usize, Held)>,
}

impl Script {
    fn new() -> Self {
        let limits = PoolLimits {
            pending: 3,
            running: 4,
            running_per_tenant: 3,
            running_per_provider: 3,
            requests_per_tenant: 5,
            requests_per_provider: 5,
            ..PoolLimits::default()
        };
        let node = Node::new(limits);
        let providers = ["orders", "files"].map(|name| node.install(name, 1, 0));
        let clients = [0, 1].map(|at: usize| node.client(&providers[at]));
        let session = |tenant: &str, at: usize| node.session(&node.plan(tenant, &providers[at]));
        let sessions = ["alpha", "beta"].map(|tenant| [0, 1].map(|at| session(tenant, at)));
        Script { node, clients, sessions, live: Vec::new() }
    }

    fn count(&self, of: impl Fn(usize, usize, bool) -> bool) -> u32 {
        let is_of = |(tenant, provider, held): &&(usize, usize, Held)| {
            of(*tenant, *provider, !matches!(held, Held::Staged(_)))
        };
        self.live.iter().filter(is_of).count() as u32
    }

    fn may_run(&self, tenant: usize, provider: usize) -> bool {
        self.count(|_, _, runs| runs) < 4
            && self.count(|of, _, runs| runs && of == tenant) < 3
            && self.count(|_, of, runs| runs && of == provider) < 3
    }

    fn may_come(&self, tenant: usize, provider: usize) -> bool {
        self.count(|of, _, _| of == tenant) < 5 && self.count(|_, of, _| of == provider) < 5
    }

    fn step(&mut self, number: u64) {
        let (tenant, provider) = (number as usize / 8 % 2, number as usize / 16 % 2);
        let chosen = (number >> 32) as usize;
        let (client, session) = (&self.clients[provider], &self.sessions[tenant][provider]);
        match number % 8 {
            0 | 1 => {
                let expected = self.may_come(tenant, provider) && self.may_run(tenant, provider);
                let ready = self.node.pools.admit_now(client, session);
                assert_eq!(ready.is_ok(), expected, "{ready:?}");
                self.live.extend(ready.ok().map(|ready| (tenant, provider, Held::Granted(ready))));
            }
            2 => {
                let pending = self.count(|_, _, runs| !runs);
                let admission = self.node.pools.admit(client, session);
                assert_eq!(
                    admission.is_ok(),
                    self.may_come(tenant, provider) && pending < 3,
                    "{admission:?}"
                );
                self.live.extend(admission.ok().map(|staged| (tenant, provider, Held::Staged(staged))));
            }
            _ if self.live.is_empty() => {}
            3..6 => {
                let (tenant, provider, held) = self.live.swap_remove(chosen % self.live.len());
                let held = match held {
                    Held::Staged(admission) if self.may_run(tenant, provider) => {
                        let mut wait = std::pin::pin!(admission.wait());
                        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
                        match wait.as_mut().poll(context) {
                            std::task::Poll::Ready(ready) => Held::Granted(ready.expect("nobody stops it")),
                            std::task::Poll::Pending => panic!("there is room, and nobody waits"),
                        }
                    }
                    Held::Granted(ready) => {
                        Held::Started(ready.dispatch(SEND, Cost::new()).expect("allowed"))
                    }
                    other => other,
                };
                self.live.push((tenant, provider, held));
            }
            _ => drop(self.live.swap_remove(chosen % self.live.len())),
        }
    }
}

/// Nobody waits in this model, so whether there is room decides alone, and what lies about must never be seen.
#[test]
fn a_plain_model_foresees_every_answer() {
    // Outside of a task, where polls have no budget.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let (mut taken, mut looks) = (0, 0);
    for seed in 1..=12_u64 {
        let mut script = Script::new();
        let mut number = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        for step in 0..2_000 {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            let lies = floor_says(&script.node).0;
            script.step(number);
            taken += u32::from(floor_says(&script.node).0 < lies);
            if step % 97 == 0 {
                let (running, pending) = (script.count(|_, _, runs| runs), script.count(|_, _, runs| !runs));
                let now = script.node.counts();
                assert_eq!((now.running_requests, now.pending_requests), (running.into(), pending.into()));
                looks += 1;
            }
        }
        script.live.clear();
        drop(script.sessions);
        script.node.assert_idle();
    }
    // It says something only if credits were there to be taken or swept.
    assert!(taken > 500 && looks > 100, "{taken} were taken or swept");
}

/// Threads that end operations while others are refused, count, and lower: each admission is right, and no more run than may.
#[test]
fn threads_that_leave_take_and_recall_lose_nothing() {
    const THREADS: usize = 4;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let node = Node::new(to_run(3));
    let orders = node.install("orders", 1, 0);
    let client: ProviderClient<Socket> = node.client(&orders);
    let plans: Vec<_> = (0..THREADS).map(|n| node.plan(&format!("tenant-{}", n % 3), &orders)).collect();
    let (runs, most, begun) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(THREADS));
    let until = Instant::now() + ms(300);
    std::thread::scope(|scope| {
        for plan in &plans {
            scope.spawn(|| {
                let session = node.session(plan);
                begun.wait();
                let mut turns = 0_u32;
                while Instant::now() < until {
                    turns += 1;
                    if let Ok(ready) = node.pools.admit_now(&client, &session) {
                        most.fetch_max(runs.fetch_add(1, SeqCst) + 1, SeqCst);
                        let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
                        runs.fetch_sub(1, SeqCst);
                        drop(call);
                    }
                    if turns.is_multiple_of(1_000) {
                        let now = node.counts();
                        assert!(now.running_requests <= 3 && now.pending_requests == 0, "{now:?}");
                    }
                }
            });
        }
    });
    assert!((1..=3).contains(&most.load(SeqCst)));
    node.assert_idle();
}
