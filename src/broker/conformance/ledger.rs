//! Cumulative budgets: all or nothing, and never refunded once a call was accepted.

use super::{HTTP, Node, OPEN, SEND, plan_of, soon};
use crate::broker::{Budget, Cost, Policy};
use crate::broker::{Denied, Invalid, Kind};

// b89: the policy's minimum charge is demanded, of every budget it names, before anything is taken.
#[test]
fn a_minimum_charge_is_demanded_and_committed_before_the_call_starts() {
    let node = Node::new();
    let policy = Policy::new().minimum(SEND, Budget::OutboundRequests, 1).minimum(SEND, Budget::Effects, 2);
    let spec = plan_of("tenant").bind_with(&HTTP, &node.provider.reference(), policy);
    let plan = node.broker.seal(spec).unwrap();
    let activation = soon().budget(Budget::OutboundRequests, 3).budget(Budget::Effects, 3);
    let session = node.broker.open(&plan, activation).unwrap();
    let cost = Cost::new().charge(Budget::OutboundRequests, 1);
    let refused = session.dispatch(SEND, cost).expect_err("it pays too little");
    assert_eq!(refused.kind(), Kind::Denied(Denied::BelowMinimum));
    assert_eq!(session.remaining(Budget::OutboundRequests), 3);
    let call = session.dispatch(SEND, cost.charge(Budget::Effects, 2)).unwrap();
    assert_eq!(session.remaining(Budget::OutboundRequests), 2);
    assert_eq!(session.remaining(Budget::Effects), 1);
    assert!(session.dispatch(OPEN, Cost::new()).is_ok(), "the minimum is of one operation");
    // b90's other half: what was committed stays spent, even if the call never starts.
    drop(call);
    assert_eq!(session.remaining(Budget::Effects), 1);
}

// b90: a group that cannot be taken whole leaves every budget as it was.
#[test]
fn a_group_of_charges_is_taken_whole_or_not_at_all() {
    let node = Node::new();
    let mut activation = soon();
    for budget in Budget::ALL {
        activation = activation.budget(budget, 10);
    }
    let session = node.broker.open(&node.plan, activation).unwrap();
    for short in Budget::ALL {
        let cost = Budget::ALL.iter().fold(Cost::new(), |cost, &budget| cost.charge(budget, 10));
        let refused = session.dispatch(SEND, cost.charge(short, 1)).expect_err("one budget is short");
        assert_eq!(refused.kind(), Kind::Spent(short));
        for budget in Budget::ALL {
            assert_eq!(session.remaining(budget), 10, "{budget} after {short} was short");
        }
    }
}

// b90, io.60: budgets are cumulative; nothing that ends gives anything back, and 0 is a budget too.
#[test]
fn budgets_are_spent_for_good() {
    let node = Node::new();
    let activation = soon().budget(Budget::BlobRead, 100).budget(Budget::BlobWrite, 0);
    let session = node.broker.open(&node.plan, activation).unwrap();
    let cost = Cost::new().charge(Budget::BlobRead, 40);
    drop(node.start(&session, cost));
    drop(node.start(&session, cost));
    assert_eq!(session.remaining(Budget::BlobRead), 20);
    assert_eq!(session.dispatch(SEND, cost).unwrap_err().kind(), Kind::Spent(Budget::BlobRead));
    let cost = Cost::new().charge(Budget::BlobWrite, 1);
    assert_eq!(session.dispatch(SEND, cost).unwrap_err().kind(), Kind::Spent(Budget::BlobWrite));
    assert_eq!(session.remaining(Budget::CpuFuel), u64::MAX, "what is not limited is not counted");
    assert!(session.dispatch(SEND, Cost::new().charge(Budget::CpuFuel, u64::MAX)).is_ok());
}

// b92: a sum that cannot be represented is refused, not wrapped.
#[test]
fn a_cost_that_overflows_is_refused() {
    let node = Node::new();
    let session = node.open();
    let cost = Cost::new().charge(Budget::Effects, u64::MAX).charge(Budget::Effects, 1);
    assert_eq!(session.dispatch(SEND, cost).unwrap_err().kind(), Kind::Invalid(Invalid::Overflow));
}

// b90: threads that spend at once never spend more than there is, whatever is given back in between.
#[test]
fn threads_share_a_budget_exactly() {
    let node = Node::new();
    let activation = soon().budget(Budget::CpuFuel, 500).budget(Budget::Effects, 100);
    let session = node.broker.open(&node.plan, activation).unwrap();
    let cost = Cost::new().charge(Budget::CpuFuel, 2).charge(Budget::Effects, 1);
    let dispatch = || (0..200).filter(|_| session.dispatch(SEND, cost).is_ok()).count() as u64;
    let accepted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(dispatch)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(accepted, 100);
    assert_eq!(session.remaining(Budget::Effects), 0);
    assert_eq!(session.remaining(Budget::CpuFuel), 300);
    drop(session);
    node.assert_clean();
}
