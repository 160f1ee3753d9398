//! Dispatch: may this session call this operation, now, at this cost?
//!
//! What is asked, in this order: the session (stopped, cancelled, over), the binding's word (published, operation
//! allowed), the provider's tag, the policy's numbers, the ledger. Then word and tag are loaded once more: the answer is
//! of that moment, and a reservation of the ledger that it comes too late for is given back. Everything is a load, except
//! the charges themselves.

use crate::broker::capability::Operation;
use crate::broker::error::{Denied, Error, What};
use crate::broker::ground::SessionLease;
use crate::broker::ledger::{self, Cost};
use crate::broker::plan::{Binding, PlanCore};
use crate::broker::policy::StreamBudget;
use crate::broker::session;
use crate::sync::order;

/// What was accepted: a copy of numbers, good for the session that it was asked for and for nothing by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accepted {
    maximum_output: u64,
    stream: Option<StreamBudget>,
    /// Nanoseconds of the node's clock.
    deadline: u64,
    tag: u32,
    provider: u16,
    binding: u8,
    operation: u8,
    pooled: bool,
}

impl Accepted {
    /// Bytes that the call may turn into inline output, added up over its life.
    pub(crate) fn maximum_output(&self) -> u64 {
        self.maximum_output
    }
    /// What the call's one transfer may move, if it may have one.
    pub(crate) fn stream(&self) -> Option<StreamBudget> {
        self.stream
    }
    /// When the call ends: the session's deadline, or its wall time if that is earlier.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }
    /// The logical provider's number and the instance tag, if the provider has pools.
    pub(crate) fn pooled_provider(&self) -> Option<(u16, u32)> {
        self.pooled.then_some((self.provider, self.tag))
    }

    /// Whether the call may still start: to be asked after the step that made it a starter, with the session that it was
    /// accepted for. What this look sees counts; a revocation that comes later finds the call accepted.
    ///
    /// # Errors
    ///
    /// Withdrawn, revoked, or the provider was replaced meanwhile.
    #[inline]
    pub(crate) fn still_valid(&self, session: &SessionLease) -> Result<(), Error> {
        let binding =
            PlanCore::of(session).binding_at(self.binding).ok_or(Error::denied(Denied::NotBound))?;
        valid(session, binding, self.operation)
    }
}

/// The two loads that revocation, withdrawal and rotation are seen by.
#[inline]
fn valid(session: &SessionLease, binding: &Binding, operation: u8) -> Result<(), Error> {
    binding.allows(operation)?;
    let provider = &session.shared().floor.providers[usize::from(binding.provider)];
    if provider.tag() != binding.tag {
        return Err(Error::retired(What::Epoch));
    }
    Ok(())
}

/// Accepts one call of `operation`, or says why not; then nothing is charged. No lock, no allocation, no lease.
///
/// # Errors
///
/// See [`CapabilitySession::dispatch`](super::CapabilitySession::dispatch).
pub(crate) fn authorize(
    session: &SessionLease,
    operation: Operation,
    cost: &Cost,
) -> Result<Accepted, Error> {
    let now = session::check(session)?;
    let (number, binding) = PlanCore::of(session).binding(operation)?;
    valid(session, binding, operation.index())?;
    let granted = binding.terms.grant(operation, cost)?;
    // The coarse clock is never early: a wall time ends at most one kernel tick early, and never late.
    let deadline = session.deadline.load(order::COUNT).min(binding.terms.ends(now));
    ledger::reserve(&session.budgets, &cost.charges).map_err(Error::spent)?;
    if let Err(error) = valid(session, binding, operation.index()) {
        ledger::refund(&session.budgets, &cost.charges);
        return Err(error);
    }
    // Committed: from here on nothing gives the charges back.
    Ok(Accepted {
        maximum_output: granted.maximum_output,
        stream: granted.stream,
        deadline,
        tag: binding.tag,
        provider: binding.provider,
        binding: number,
        operation: operation.index(),
        pooled: binding.pooled,
    })
}
