//! Identity is by slot and incarnation, never by name.

use super::{HTTP, Node, SEND, plan_of, soon};
use crate::broker::{Capability, Cost, Operation, Plan};
use crate::broker::{Denied, Kind};

// b79, io.16: a call of another session is refused, even one with the same identifiers.
#[test]
fn a_call_of_another_session_with_equal_names_is_refused() {
    let node = Node::new();
    let (one, other) = (node.open(), node.open());
    let ready = node.io.admit_now(&one).unwrap();
    let refused = ready.start(other.dispatch(SEND, Cost::new()).unwrap()).expect_err("it is not its call");
    assert_eq!(refused.kind(), Kind::Denied(Denied::ForeignSession));
    drop((one, other));
    node.assert_clean();
}

// b79: a slot that is used again is another session; old handles do not reach it.
#[test]
fn handles_of_a_session_do_not_reach_the_next_one_in_its_slot() {
    let node = Node::new();
    let first = node.open();
    let (stop, observer) = (first.stop_handle(), first.observer());
    first.close();
    assert!(observer.is_quiescent() && stop.is_stopped());
    // The free list is last in, first out: this is the slot that was just given back.
    let second = node.open();
    stop.stop();
    assert_eq!(second.check(), Ok(()));
    assert!(observer.is_closed() && !second.observer().is_closed());
    assert!(second.dispatch(SEND, Cost::new()).is_ok());
}

// b79: a call that was dispatched in a slot's earlier life is not of the session that lives there now.
#[test]
fn a_dispatched_call_keeps_its_session_apart_from_later_ones() {
    let node = Node::new();
    let first = node.open();
    let call = first.dispatch(SEND, Cost::new()).unwrap();
    first.close();
    let second = node.open();
    let refused = node.io.admit_now(&second).unwrap().start(call).expect_err("it is of the closed session");
    assert_eq!(refused.kind(), Kind::Denied(Denied::ForeignSession));
    drop(second);
    node.assert_clean();
}

// b81: two interfaces of the same name are two.
#[test]
fn a_capability_is_its_static_and_not_its_name() {
    static TWIN: Capability = Capability::new("test:http", &["send", "open"]);
    let node = Node::new();
    let session = node.open();
    let twin: Operation = TWIN.find("send").unwrap();
    assert_ne!(twin, SEND);
    assert_eq!(
        session.dispatch(twin, Cost::new()).expect_err("it is not bound").kind(),
        Kind::Denied(Denied::NotBound)
    );
}

// pools.47: a tenant's number comes from the plan; equal names are one tenant, and the number is free when the plans are.
#[test]
fn tenants_have_one_number_each_while_a_plan_names_them() {
    let node = Node::new();
    let seal = |tenant| node.broker.seal(plan_of(tenant).bind(&HTTP, &node.provider.reference())).unwrap();
    let open = |plan: &Plan| node.broker.open(plan, soon()).unwrap();
    let first = node.open().tenant();
    let (same, other) = (seal("tenant"), seal("other"));
    assert_eq!(open(&same).tenant(), first);
    let second = open(&other).tenant();
    assert_ne!(second, first);
    assert_eq!(node.broker.snapshot().tenants, 2);
    // A session keeps its plan, and the plan its tenant's number.
    let session = open(&other);
    drop(other);
    node.broker.sweep();
    assert_eq!((node.broker.snapshot().tenants, node.broker.snapshot().plans), (2, 3));
    drop(session);
    node.broker.sweep();
    assert_eq!((node.broker.snapshot().tenants, node.broker.snapshot().plans), (1, 2));
    assert_eq!(open(&seal("third")).tenant(), second, "the lowest number that is free");
}
