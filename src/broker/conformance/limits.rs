//! Bounds: what is full refuses by name, and leaves nothing behind.

use super::{HTTP, Node, SEND, plan_of, soon};
use crate::broker::{BrokerLimits, Dimension};
use crate::broker::{Cost, PlanSpec, ProviderSpec};
use crate::broker::{Error, Invalid, Kind, Refusal};

fn assert_full<T: std::fmt::Debug>(result: Result<T, Error>, dimension: Dimension) {
    let error = result.expect_err("it is full");
    match error.kind() {
        Kind::Full(Refusal { dimension: full, .. }) => assert_eq!(full, dimension),
        other => panic!("{other:?} instead of a full {dimension}"),
    }
}

fn small() -> BrokerLimits {
    BrokerLimits {
        providers: 2,
        plans: 3,
        sessions: 2,
        tenants: 2,
        calls_per_session: 2,
        ..BrokerLimits::default()
    }
}

// b87, io.76: sessions are counted until the last of them is really gone, and a full node refuses by name.
#[test]
fn sessions_are_bounded_and_given_back() {
    let node = Node::with(small());
    let (first, second) = (node.open(), node.open());
    assert_full(node.broker.open(&node.plan, soon()), Dimension::BrokerSessions);
    let table = first.reserve_resource_table(1).unwrap();
    drop(first);
    assert_full(node.broker.open(&node.plan, soon()), Dimension::BrokerSessions);
    drop(table);
    drop(node.open());
    drop(second);
    node.assert_clean();
}

// b87, io.76: calls of one session are bounded by the broker and by the activation, whichever is less.
#[test]
fn calls_of_a_session_are_bounded() {
    let node = Node::with(small());
    let session = node.open();
    let (first, second) = (node.io.admit(&session).unwrap(), node.start(&session, Cost::new()));
    assert_full(node.io.admit(&session), Dimension::BrokerCallsPerSession);
    drop(first);
    let again = node.io.admit_now(&session).unwrap();
    assert_full(node.io.admit_now(&session), Dimension::BrokerCallsPerSession);
    drop((again, second, session));

    let session = node.broker.open(&node.plan, soon().call_limit(1)).unwrap();
    let only = node.io.admit(&session).unwrap();
    assert_full(node.io.admit(&session), Dimension::BrokerCallsPerSession);
    drop(only);
    let call = session.dispatch(SEND, Cost::new()).unwrap();
    assert_full(session.dispatch(SEND, Cost::new()), Dimension::BrokerCallsPerSession);
    drop((call, session));

    let refused = node.broker.open(&node.plan, soon().call_limit(3)).unwrap_err();
    assert_eq!(refused.kind(), Kind::TooLarge(Dimension::BrokerCallsPerSession));
    let refused = node.broker.open(&node.plan, soon().call_limit(0)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid(Invalid::ZeroLimit));
    node.assert_clean();
}

// b87: plans, tenants and providers are bounded, and their places come back when nobody uses them any more.
#[test]
fn plans_tenants_and_providers_are_bounded_and_given_back() {
    let node = Node::with(small());
    let seal = |tenant: &str| node.broker.seal(plan_of(tenant).bind(&HTTP, &node.provider.reference()));
    let second = seal("second").unwrap();
    assert_full(seal("third"), Dimension::BrokerTenants);
    let again = seal("second").unwrap();
    assert_full(seal("second"), Dimension::BrokerPlans);
    drop(again);
    let session = node.broker.open(&second, soon()).unwrap();
    drop(second);
    assert_full(seal("third"), Dimension::BrokerTenants);
    drop(session);
    let third = seal("third").unwrap();
    assert_eq!(third.tenant(), "third");

    let spare = node.broker.register(ProviderSpec::new("spare")).unwrap();
    assert_full(node.broker.register(ProviderSpec::new("other")), Dimension::BrokerProviders);
    let kept = spare.reference();
    drop(spare);
    assert_full(node.broker.register(ProviderSpec::new("other")), Dimension::BrokerProviders);
    drop(kept);
    drop(node.broker.register(ProviderSpec::new("other")).unwrap());
    node.broker.sweep();
    let snapshot = node.broker.snapshot();
    assert_eq!((snapshot.plans, snapshot.tenants, snapshot.providers), (2, 2, 1));
}

// b87, b97: what is described is charged to metadata and comes back to exactly what it was.
#[test]
fn metadata_of_plans_is_charged_and_given_back() {
    let node = Node::new();
    node.broker.sweep();
    let before = node.broker.snapshot();
    let long = "n".repeat(256);
    let plans: Vec<_> = (0..20)
        .map(|at| {
            let spec = PlanSpec::new(&format!("{at}{}", &long[2..]), &long);
            node.broker.seal(spec.bind(&HTTP, &node.provider.reference())).unwrap()
        })
        .collect();
    let during = node.broker.snapshot();
    assert_eq!((during.plans, during.tenants), (before.plans + 20, before.tenants + 20));
    assert!(during.metadata_bytes > before.metadata_bytes);
    drop(plans);
    node.broker.sweep();
    assert_eq!(node.broker.snapshot(), before);
}

// io.75: limits that contradict the table are refused, with everything that is wrong.
#[test]
fn impossible_limits_make_no_broker() {
    let limits =
        BrokerLimits { sessions: 0, input_bytes: 2 << 20, calls_per_session: 129, ..BrokerLimits::default() };
    let error = crate::broker::Broker::new(limits).expect_err("three limits are wrong");
    assert_eq!(error.violations().len(), 3);
}
