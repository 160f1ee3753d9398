//! Whose turn it is, and what is refused when there is no room.
use super::poll::poll_once;
use super::support::*;
use crate::broker::pools::PoolWait;
use std::pin::Pin;
use std::task::Poll;

/// Requests in line, in the order in which they came.
struct Queue {
    waiting: Vec<(&'static str, Pin<Box<PoolWait>>)>,
}

impl Queue {
    fn new() -> Queue {
        Queue { waiting: Vec::new() }
    }
    fn stand<T: Resource>(
        &mut self,
        node: &Node,
        name: &'static str,
        client: &ProviderClient<T>,
        session: &CapabilitySession,
    ) {
        let admission = node.pools.admit(client, session).expect("there is room to wait");
        let mut wait = Box::pin(admission.wait());
        assert!(poll_once(wait.as_mut()).is_pending(), "{name} was to wait");
        self.waiting.push((name, wait));
    }
    /// Whoever was granted. At most one is: the test gives back one unit at a time.
    fn granted(&mut self) -> Option<(&'static str, PoolReady)> {
        let mut found = None;
        self.waiting.retain_mut(|(name, wait)| match poll_once(wait.as_mut()) {
            Poll::Ready(ready) => {
                assert!(found.is_none(), "{name} was granted too");
                found = Some((*name, ready.expect("granted")));
                false
            }
            Poll::Pending => true,
        });
        found
    }
    /// Who is granted, one after another, as `running` and each of them gives its unit back.
    fn order<R>(mut self, running: R) -> Vec<&'static str> {
        drop(running);
        let mut order = Vec::new();
        while let Some((name, ready)) = self.granted() {
            order.push(name);
            drop(ready);
        }
        assert!(self.waiting.is_empty(), "forgotten: {:?}", self.waiting);
        order
    }
}

fn one_running() -> PoolLimits {
    PoolLimits { running: 1, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() }
}

/// pools.48, pools.50: another tenant comes before a second request of the one that queued first.
#[tokio::test]
async fn tenants_take_turns_24() {
    let node = Node::new(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    let running = node.call(&client, &alpha);
    let mut queue = Queue::new();
    for name in ["alpha 1", "alpha 2", "alpha 3"] {
        queue.stand(&node, name, &client, &alpha);
    }
    for name in ["beta 1", "beta 2"] {
        queue.stand(&node, name, &client, &beta);
    }
    assert_eq!(queue.order(running), ["alpha 1", "beta 1", "alpha 2", "beta 2", "alpha 3"]);
    drop((alpha, beta));
    node.assert_idle();
}

/// pools.48, pools.49: inside a tenant its providers take turns, and more providers give it no more turns.
#[tokio::test]
async fn providers_take_turns_inside_a_tenant_25() {
    let node = Node::new(one_running());
    let installed = ["p", "q", "r"].map(|name| node.install(name, 1, 0));
    let clients = installed.each_ref().map(|provider| node.client::<Nothing>(provider));
    let alpha = installed.each_ref().map(|provider| node.session(&node.plan("alpha", provider)));
    let beta = node.session(&node.plan("beta", &installed[0]));
    let running = node.call(&clients[0], &alpha[0]);
    let mut queue = Queue::new();
    queue.stand(&node, "alpha p1", &clients[0], &alpha[0]);
    queue.stand(&node, "alpha p2", &clients[0], &alpha[0]);
    queue.stand(&node, "alpha q1", &clients[1], &alpha[1]);
    queue.stand(&node, "alpha r1", &clients[2], &alpha[2]);
    for name in ["beta 1", "beta 2", "beta 3"] {
        queue.stand(&node, name, &clients[0], &beta);
    }
    let order = queue.order(running);
    let of_alpha: Vec<_> = order.iter().filter(|name| name.starts_with("alpha")).copied().collect();
    // Whichever provider the rotation stands at, p comes again only after q and r had theirs.
    assert_eq!(of_alpha.last(), Some(&"alpha p2"), "{order:?}");
    assert!(of_alpha.contains(&"alpha q1") && of_alpha.contains(&"alpha r1"), "{order:?}");
    for pair in order[..6].chunks(2) {
        let tenants = pair.iter().filter(|name| name.starts_with("alpha")).count();
        assert_eq!(tenants, 1, "each tenant has one turn of two: {order:?}");
    }
    drop((alpha, beta));
    node.assert_idle();
}

/// pools.50: a tenant and a provider at their running ceilings stand in nobody's way.
#[tokio::test]
async fn a_full_tenant_and_a_full_provider_are_passed_by() {
    let limits =
        PoolLimits { running: 8, running_per_tenant: 1, running_per_provider: 2, ..PoolLimits::default() };
    let node = Node::new(limits);
    let [p, q] = ["p", "q"].map(|name| node.install(name, 1, 0));
    let (on_p, on_q) = (node.client::<Nothing>(&p), node.client::<Nothing>(&q));
    let [alpha, beta, gamma] = ["alpha", "beta", "gamma"].map(|tenant| node.session(&node.plan(tenant, &p)));
    let delta = node.session(&node.plan("delta", &q));
    let (first, second) = (node.call(&on_p, &alpha), node.call(&on_p, &beta));
    let mut queue = Queue::new();
    queue.stand(&node, "alpha again", &on_p, &alpha);
    queue.stand(&node, "gamma at the full provider", &on_p, &gamma);
    // Another tenant on another provider goes straight through, and nobody was granted by it.
    let third = node.call(&on_q, &delta);
    assert!(queue.granted().is_none());
    // What beta gives back is of no use to alpha, which is full itself.
    drop(second);
    let (name, ready) = queue.granted().expect("the provider has room");
    assert_eq!(name, "gamma at the full provider");
    drop((third, ready));
    assert_eq!(queue.order(first), ["alpha again"]);
    drop((alpha, beta, gamma, delta));
    node.assert_idle();
}

/// pools.50: a call that ends makes room at its provider and for its tenant, and both are given to who waits for them, whichever
/// of the two is next.
#[tokio::test]
async fn what_a_call_leaves_is_given_to_everybody_it_is_for() {
    let limits =
        PoolLimits { running: 8, running_per_tenant: 1, running_per_provider: 1, ..PoolLimits::default() };
    for order in [["alpha", "beta"], ["beta", "alpha"]] {
        let node = Node::new(limits);
        let [p, q] = ["p", "q"].map(|name| node.install(name, 1, 0));
        let (on_p, on_q) = (node.client::<Nothing>(&p), node.client::<Nothing>(&q));
        // Tenants have their numbers, and so their places in the rotation, in this order.
        let plans = order.map(|tenant| node.plan(tenant, &p));
        let session = |tenant: &str| node.session(&plans[usize::from(order[1] == tenant)]);
        let (alpha, beta, alpha_on_q) =
            (session("alpha"), session("beta"), node.session(&node.plan("alpha", &q)));
        let running = node.call(&on_p, &alpha);
        let mut queue = Queue::new();
        queue.stand(&node, "alpha at another provider", &on_q, &alpha_on_q);
        queue.stand(&node, "beta at the full provider", &on_p, &beta);
        drop(running);
        for (name, wait) in &mut queue.waiting {
            assert!(poll_once(wait.as_mut()).is_ready(), "{name} was forgotten, {} is first", order[0]);
        }
        drop((queue, alpha, beta, alpha_on_q));
        node.assert_idle();
    }
}

/// pools.32 to pools.36, pools.64: each ceiling refuses by its own name, and nothing is held by a refusal.
#[tokio::test]
async fn saturation_names_what_is_full_28() {
    let limits = PoolLimits {
        pending: 5,
        running: 3,
        requests_per_tenant: 3,
        requests_per_provider: 4,
        running_per_tenant: 1,
        running_per_provider: 2,
        ..PoolLimits::default()
    };
    let node = Node::new(limits);
    let [p, q, r] = ["p", "q", "r"].map(|name| node.install(name, 1, 0));
    let [on_p, on_q, on_r] = [&p, &q, &r].map(|provider| node.client::<Nothing>(provider));
    let plan = |tenant, provider| node.session(&node.plan(tenant, provider));
    let (alpha, beta, gamma) = (plan("alpha", &p), plan("beta", &p), plan("gamma", &p));
    let held: Vec<_> = (0..3).map(|_| node.pools.admit(&on_p, &alpha).expect("room")).collect();
    let tenant = Scope::Tenant(alpha.tenant());
    assert_full(node.pools.admit(&on_p, &alpha), Dimension::PoolsRequestsPerTenant, tenant);
    let fourth = node.pools.admit(&on_p, &beta).expect("room");
    let before = node.counts();
    for _ in 0..32 {
        let refused = node.pools.admit(&on_p, &gamma).expect_err("the provider is full");
        assert_eq!(refused.dimension(), Some(Dimension::PoolsRequestsPerProvider));
        assert!(matches!(refused.scope(), Some(Scope::Provider(_))));
    }
    assert_eq!(node.counts(), before);
    // Another provider has room; then the node has none.
    let (other, another) = (plan("gamma", &q), plan("delta", &r));
    let fifth = node.pools.admit(&on_q, &other).expect("another provider is not full");
    assert_full(node.pools.admit(&on_r, &another), Dimension::PoolsPending, Scope::Node);
    drop((held, fourth, fifth));
    // Running units: of a tenant, of a provider, of the node.
    let first = node.call(&on_p, &alpha);
    assert_full(node.pools.admit_now(&on_p, &alpha), Dimension::PoolsRunningPerTenant, tenant);
    let second = node.call(&on_p, &beta);
    let refused = node.pools.admit_now(&on_p, &gamma).expect_err("the provider runs two");
    assert_eq!(refused.dimension(), Some(Dimension::PoolsRunningPerProvider));
    let third = node.call(&on_q, &other);
    assert_full(node.pools.admit_now(&on_r, &another), Dimension::PoolsRunning, Scope::Node);
    drop((first, second, third));
    drop((alpha, beta, gamma, other, another));
    node.assert_idle();
}

/// pools.60: who leaves the line gives back its place only with its last buffer.
#[tokio::test]
async fn a_cancelled_waiter_with_staged_input_keeps_its_place_23() {
    let node = Node::new(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    let running = node.call(&client, &beta);
    let admission = node.pools.admit(&client, &alpha).expect("room");
    let input = admission.input(1024, 64).expect("room");
    let mut wait = Box::pin(admission.wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    drop(wait);
    let (pools, io) = (node.counts(), node.io.snapshot());
    assert_eq!((pools.pending_requests, pools.running_requests), (1, 1));
    assert_eq!((io.queued, io.staged_bytes), (1, 1024));
    // It does not stand in the way of others, and is granted nothing.
    drop(running);
    let next = node.call(&client, &beta);
    drop(next);
    drop(input);
    drop((alpha, beta));
    node.assert_idle();
}

/// pools.53, pools.58, pools.59: what a call delivered goes on holding its running units after the call is gone.
/// Case S13, behaviour (73).
#[tokio::test]
async fn a_delayed_consumer_keeps_the_running_unit() {
    let node = Node::new(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let observer = session.observer();
    let call = node.call(&client, &session);
    let result = call.io().buffer(512, 0).expect("room").retain().expect("room");
    drop((call, session));
    assert_eq!(node.counts().running_requests, 1);
    assert!(!observer.is_quiescent());
    let other = node.session(&node.plan("beta", &orders));
    assert_full(node.pools.admit_now(&client, &other), Dimension::PoolsRunning, Scope::Node);
    drop(result);
    assert!(observer.is_quiescent());
    drop(node.call(&client, &other));
    drop(other);
    node.assert_idle();
}

/// pools.53, pools.54: a grant of one provider does not start a call of another, and one session's call starts in no other.
#[tokio::test]
async fn a_grant_starts_only_the_call_it_is_for_25() {
    let node = Node::new(PoolLimits::default());
    let [p, q] = ["p", "q"].map(|name| node.install(name, 1, 0));
    static OTHER: Capability = Capability::new("latent:test/other", &["send"]);
    let spec = PlanSpec::new("alpha", "publication").bind(&HTTP, &p.reference()).bind(&OTHER, &q.reference());
    let plan = node.broker.seal(spec).expect("both are current");
    let (session, twin) = (node.session(&plan), node.session(&plan));
    let client = node.client::<Nothing>(&p);
    let ready = node.pools.admit_now(&client, &session).expect("room");
    assert_kind(ready.dispatch(OTHER.operation(0), Cost::new()), Kind::Denied(Denied::ForeignProvider));
    let ready = node.pools.admit_now(&client, &session).expect("room");
    let call = twin.dispatch(SEND, Cost::new()).expect("allowed");
    assert_kind(ready.start(call), Kind::Denied(Denied::ForeignSession));
    let ready = node.pools.admit_now(&client, &session).expect("room");
    let call = session.dispatch(SEND, Cost::new()).expect("allowed");
    drop(ready.start(call).expect("its own"));
    drop((session, twin));
    node.assert_idle();
}

/// A word that is marked for nobody any more refuses nobody: whoever would be refused for it has the line looked at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_nobody_stands_at_refuses_nobody() {
    let node = Arc::new(Node::new(one_running()));
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let [alpha, beta] = ["alpha", "beta"].map(|tenant| node.session(&node.plan(tenant, &orders)));
    for _ in 0..300 {
        let running = node.call(&client, &alpha);
        let mut wait = Box::pin(node.pools.admit(&client, &beta).expect("room").wait());
        assert!(poll_once(wait.as_mut()).is_pending());
        let leaver = tokio::spawn(async move { drop(wait) });
        drop(running);
        leaver.await.expect("no panic");
        // The waiter is gone, so whatever it was promised is free.
        drop(node.pools.admit_now(&client, &alpha).expect("nobody waits"));
    }
    drop((alpha, beta));
    node.assert_idle();
}
