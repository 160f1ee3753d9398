//! What a session may do: only what its plan binds, allows and still publishes.

use std::time::Duration;

use super::{BLOB, HTTP, Node, OPEN, READ, SEND, after, plan_of, soon};
use crate::broker::{Budget, Cost, PlanSpec, Policy, ProviderSpec, StreamBudget};
use crate::broker::{Denied, Effect, Error, Invalid, Kind, What};

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    let error = result.expect_err("it is refused");
    assert_eq!(error.effect(), Effect::NotSent, "a refusal of the broker sent nothing");
    error.kind()
}

// b81: what a plan binds and allows cannot be widened by naming something else.
#[test]
fn a_capability_or_an_operation_outside_of_the_plan_is_denied() {
    let node = Node::new();
    let policy = Policy::new().only(&[SEND]);
    let spec = plan_of("tenant").bind_with(&HTTP, &node.provider.reference(), policy);
    let session = node.broker.open(&node.broker.seal(spec).unwrap(), soon()).unwrap();
    assert!(session.dispatch(SEND, Cost::new()).is_ok());
    assert_eq!(kind(session.dispatch(OPEN, Cost::new())), Kind::Denied(Denied::Policy));
    assert_eq!(kind(session.dispatch(READ, Cost::new())), Kind::Denied(Denied::NotBound));
}

// b82: a plan of another broker, and a provider of another broker, are refused whatever their names.
#[test]
fn plans_and_providers_of_another_broker_are_refused() {
    let (node, other) = (Node::new(), Node::new());
    assert_eq!(kind(node.broker.open(&other.plan, soon())), Kind::Denied(Denied::ForeignPlan));
    let spec = plan_of("tenant").bind(&HTTP, &other.provider.reference());
    assert_eq!(kind(node.broker.seal(spec)), Kind::Denied(Denied::ForeignProvider));
    let session = node.open();
    assert!(session.uses_provider(&node.provider.reference()));
    assert!(!session.uses_provider(&other.provider.reference()));
}

// b83, pools.55: what was not dispatched reserved nothing, and a revocation before it refuses it.
#[test]
fn a_revocation_before_dispatch_refuses_it_and_charges_nothing() {
    let node = Node::new();
    let session = node.broker.open(&node.plan, soon().budget(Budget::Effects, 5)).unwrap();
    assert_eq!(node.plan.revoke(SEND), Ok(true));
    assert_eq!(node.plan.revoke(SEND), Ok(false), "it is revoked once");
    let cost = Cost::new().charge(Budget::Effects, 5);
    assert_eq!(kind(session.dispatch(SEND, cost)), Kind::Denied(Denied::Policy));
    assert!(session.dispatch(OPEN, cost).is_ok(), "the other operation is untouched");
    assert_eq!(kind(node.plan.revoke(READ).map(drop)), Kind::Denied(Denied::NotBound));
}

// io.15, pools.55, pools.57: capacity is no permission; a call dispatched before the revocation does not start after it.
#[test]
fn a_dispatched_call_does_not_start_after_a_revocation_a_withdrawal_or_a_retirement() {
    for (lose, expected) in [
        (
            (|node: &mut Node| assert_eq!(node.plan.revoke(SEND), Ok(true))) as fn(&mut Node),
            Kind::Denied(Denied::Policy),
        ),
        (|node| assert_eq!(node.broker.withdraw("publication-1"), 1), Kind::Denied(Denied::Withdrawn)),
        (
            |node| {
                let provider = node.broker.register(ProviderSpec::new("spare")).unwrap();
                std::mem::replace(&mut node.provider, provider).retire();
            },
            Kind::Retired(What::Epoch),
        ),
    ] {
        let mut node = Node::new();
        let session = node.open();
        let ready = node.io.admit_now(&session).unwrap();
        let call = session.dispatch(SEND, Cost::new()).unwrap();
        lose(&mut node);
        assert_eq!(kind(ready.start(call)), expected);
        drop(session);
        node.assert_clean();
    }
}

// b84, pools.56: an accepted call finishes after a revocation, a withdrawal and the retirement of its provider.
#[tokio::test]
async fn an_accepted_call_goes_on_after_all_rights_were_taken_back() {
    let node = Node::new();
    let session = node.open();
    let call = node.start(&session, Cost::new());
    assert_eq!(node.plan.revoke(SEND), Ok(true));
    assert_eq!(node.broker.withdraw("publication-1"), 1);
    assert_eq!(node.broker.withdraw("publication-1"), 0, "it is withdrawn once");
    let Node { io, broker, provider, .. } = node;
    provider.retire();
    assert_eq!(call.wait_for(async { 7 }).await, Ok(7));
    assert_eq!(call.checkpoint(), Ok(()));
    drop((call, session));
    assert!(io.snapshot().is_zero() && broker.snapshot().is_clean());
}

// b85, b94: plans of a retired instance are refused for good; the name's next instance is another one.
#[test]
fn a_new_instance_of_the_same_name_needs_a_new_plan() {
    let node = Node::new();
    let session = node.open();
    let old = node.provider.reference();
    assert_eq!(kind(node.broker.register(ProviderSpec::new("origin"))), Kind::Denied(Denied::ProviderExists));
    let Node { provider, broker, plan, .. } = node;
    provider.retire();
    let new = broker.register(ProviderSpec::new("origin").epoch(2)).unwrap();
    assert_eq!((new.reference().name(), new.reference().epoch()), (old.name(), 2));
    assert_eq!(kind(session.dispatch(SEND, Cost::new())), Kind::Retired(What::Epoch));
    let again = broker.open(&plan, soon()).unwrap();
    assert_eq!(kind(again.dispatch(SEND, Cost::new())), Kind::Retired(What::Epoch));
    assert_eq!(kind(broker.seal(plan_of("tenant").bind(&HTTP, &old))), Kind::Retired(What::Epoch));
    let plan = broker.seal(plan_of("tenant").bind(&HTTP, &new.reference())).unwrap();
    assert!(broker.open(&plan, soon()).unwrap().dispatch(SEND, Cost::new()).is_ok());
    assert!(session.dispatch(SEND, Cost::new()).is_err(), "the old session stays refused");
}

// b82, b83: a withdrawn publication opens nothing and dispatches nothing; another publication is untouched.
#[test]
fn a_withdrawn_publication_opens_no_session() {
    let node = Node::new();
    let other = PlanSpec::new("tenant", "publication-2").bind(&HTTP, &node.provider.reference());
    let other = node.broker.seal(other).unwrap();
    let session = node.open();
    assert_eq!(node.broker.withdraw("publication-1"), 1);
    assert!(!node.plan.is_published() && other.is_published());
    assert_eq!(kind(node.broker.open(&node.plan, soon())), Kind::Denied(Denied::Withdrawn));
    assert_eq!(kind(session.dispatch(SEND, Cost::new())), Kind::Denied(Denied::Withdrawn));
    assert!(node.broker.open(&other, soon()).unwrap().dispatch(SEND, Cost::new()).is_ok());
    assert!(other.withdraw());
    assert!(!other.withdraw());
}

// b95, io.24: the policy's wall time narrows the call, and never widens it.
#[test]
fn a_call_ends_with_its_session_or_its_wall_time_whichever_is_first() {
    let node = Node::new();
    let short = Policy::new().wall_time(Duration::from_secs(1));
    let long = Policy::new().wall_time(Duration::from_secs(3600));
    let provider = node.provider.reference();
    let spec = plan_of("tenant").bind_with(&HTTP, &provider, short).bind_with(&BLOB, &provider, long);
    let session = node.broker.open(&node.broker.seal(spec).unwrap(), soon()).unwrap();
    let call = session.dispatch(SEND, Cost::new()).unwrap();
    assert!(call.deadline() < session.deadline());
    assert!(call.deadline() <= after(Duration::from_secs(1)));
    let running = node.io.admit_now(&session).unwrap();
    let ends = call.deadline();
    assert_eq!(running.start(call).unwrap().deadline(), ends);
    assert_eq!(session.dispatch(READ, Cost::new()).unwrap().deadline(), session.deadline());
}

// b92, io.49, io.97: what a call declares is checked by size, inline and streamed bytes both, before anything is charged.
#[test]
fn what_a_call_declares_is_checked_against_the_policy() {
    let node = Node::new();
    let limits = node.broker.limits();
    let session = node.broker.open(&node.plan, soon().budget(Budget::Effects, 1)).unwrap();
    let cost = Cost::new().charge(Budget::Effects, 1);
    let stream = |input, output| StreamBudget::new(input, output).unwrap();
    for cost in [
        cost.input(limits.input_bytes + 1),
        cost.input(u64::MAX),
        cost.maximum_output(limits.output_bytes + 1),
        cost.stream(stream(limits.stream_input_bytes + 1, 0)),
        cost.stream(stream(1, limits.stream_output_bytes + 1)),
    ] {
        assert!(matches!(kind(session.dispatch(SEND, cost)), Kind::TooLarge(_)), "{cost:?}");
    }
    assert_eq!(session.remaining(Budget::Effects), 1);
    let budget = stream(limits.stream_input_bytes, 1);
    let call = session.dispatch(SEND, cost.maximum_output(3).stream(budget)).unwrap();
    assert_eq!((call.maximum_output(), call.stream_budget()), (3, Some(budget)));
}

// io.97: without an allowance for streams there is no transfer, whatever the call declares.
#[test]
fn a_policy_without_streams_denies_a_stream_budget() {
    let node = Node::new();
    let policy = Policy::new().no_streams();
    let spec = plan_of("tenant").bind_with(&HTTP, &node.provider.reference(), policy);
    let session = node.broker.open(&node.broker.seal(spec).unwrap(), soon()).unwrap();
    let cost = Cost::new().stream(StreamBudget::new(1, 1).unwrap());
    assert_eq!(kind(session.dispatch(SEND, cost)), Kind::Denied(Denied::NoStreamBudget));
    assert_eq!(session.dispatch(SEND, Cost::new()).unwrap().stream_budget(), None);
}

// b82: what is no plan is not sealed, and what is no name is no name.
#[test]
fn malformed_plans_and_names_are_refused() {
    let node = Node::new();
    let provider = node.provider.reference();
    let seal = |spec| kind(node.broker.seal(spec));
    for name in ["", "two words", &"x".repeat(257)] {
        assert_eq!(seal(plan_of(name)), Kind::Invalid(Invalid::Name));
        assert_eq!(seal(PlanSpec::new("tenant", name)), Kind::Invalid(Invalid::Name));
        assert_eq!(kind(node.broker.register(ProviderSpec::new(name))), Kind::Invalid(Invalid::Name));
    }
    let twice = plan_of("tenant").bind(&HTTP, &provider).bind(&HTTP, &provider);
    assert_eq!(seal(twice), Kind::Invalid(Invalid::Twice));
    let nothing = plan_of("tenant").bind_with(&HTTP, &provider, Policy::new().operations(0));
    assert_eq!(seal(nothing), Kind::Invalid(Invalid::Operation));
    // A capability is what its address says: twelve of them, whatever their name.
    static MANY: [crate::broker::Capability; 12] =
        [const { crate::broker::Capability::new("test:many", &["go"]) }; 12];
    let many = MANY.iter().fold(plan_of("tenant"), |spec, capability| spec.bind(capability, &provider));
    assert_eq!(seal(many), Kind::Invalid(Invalid::Bindings));
    assert_eq!(node.broker.snapshot().plans, 1, "nothing was sealed");
}

// pools.81 for the broker: a retired broker refuses everything new and stops what runs.
#[tokio::test]
async fn a_retired_broker_is_retired_for_good() {
    let node = Node::new();
    let session = node.open();
    let call = node.start(&session, Cost::new());
    node.broker.retire();
    node.broker.retire();
    let retired = Kind::Retired(What::Broker);
    assert_eq!(kind(node.broker.open(&node.plan, soon())), retired);
    assert_eq!(kind(node.broker.seal(plan_of("tenant"))), retired);
    assert_eq!(kind(node.broker.register(ProviderSpec::new("late"))), retired);
    assert!(session.dispatch(SEND, Cost::new()).is_err());
    assert!(node.io.admit(&session).is_err() && node.io.admit_now(&session).is_err());
    let waited = call.wait_for(std::future::pending::<()>()).await.expect_err("it was stopped");
    assert!(matches!(waited.kind(), Kind::Retired(_)), "{waited:?}");
    drop((call, session));
    let snapshot = node.broker.snapshot();
    assert!(snapshot.closed && snapshot.is_clean(), "{snapshot:?}");
    node.assert_clean();
}

// DESIGN: the last handle retires; what is under way keeps the memory that it stands in.
#[test]
fn the_last_handle_of_a_broker_retires_it() {
    let Node { broker, io, plan, provider } = Node::new();
    let clone = broker.clone();
    let session = broker.open(&plan, soon()).unwrap();
    drop(broker);
    assert!(session.dispatch(SEND, Cost::new()).is_ok());
    drop(clone);
    assert!(session.dispatch(SEND, Cost::new()).is_ok(), "the runtime is a handle too");
    assert!(io.admit(&session).is_ok());
    drop(io);
    assert!(session.dispatch(SEND, Cost::new()).is_err());
    drop((plan, provider));
    assert!(session.check().is_ok(), "it was not stopped itself");
}
