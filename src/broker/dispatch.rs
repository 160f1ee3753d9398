//! Dispatch: may this session call this operation, now, at this cost?
//!
//! What is asked, in this order: the session (stopped, cancelled, over), the binding's word (published, operation
//! allowed), the provider's tag, the policy's numbers, the ledger. If something was charged, word and tag are loaded once
//! more: the answer is of that moment, and a reservation of the ledger that it comes too late for is given back.
//! Everything is a load, except the charges themselves.

use crate::account::charge::Request;
use crate::broker::capability::Operation;
use crate::broker::error::{Denied, Error, What};
use crate::broker::ground::SessionLease;
use crate::broker::ledger::{self, Cost};
use crate::broker::plan::{Binding, PlanCore};
use crate::broker::policy::StreamBudget;
use crate::broker::session;
use crate::queue::operation::Permission;
use crate::sync::order;

/// What was accepted: a copy of numbers, good for the session that it was asked for and for nothing by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accepted {
    permission: Permission,
    /// Nanoseconds of the node's clock: when it was accepted (0: nobody needed to know), and when it ends.
    now: u64,
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
        self.permission.output
    }
    /// What the call's one transfer may move, if it may have one.
    pub(crate) fn stream(&self) -> Option<StreamBudget> {
        StreamBudget::new(self.permission.stream_input, self.permission.stream_output).ok()
    }
    /// The same as numbers.
    #[inline]
    pub(crate) fn permission(&self) -> Permission {
        self.permission
    }
    /// When it was accepted, by the coarse clock; 0 if that was not read.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }
    /// When the call ends: the session's deadline, or its wall time if that is earlier.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }
    /// Whether an operation that is charged to `request` may start it: one of the same epoch, or a direct one if the
    /// provider has no pools.
    #[inline]
    pub(crate) fn is_for(&self, request: Option<Request>) -> bool {
        match request {
            Some(at) => self.pooled && at.provider() == self.provider && at.tag() == self.tag,
            None => !self.pooled,
        }
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
pub(crate) fn valid(session: &SessionLease, binding: &Binding, operation: u8) -> Result<(), Error> {
    binding.allows(operation)?;
    let provider = &session.shared().floor.providers[usize::from(binding.provider)];
    if provider.tag() != binding.tag {
        return Err(Error::retired(What::Epoch));
    }
    Ok(())
}

/// When an accepted call is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Some time later.
    Later,
    /// At once, and then the caller asks [`valid`] of the binding.
    AtOnce,
    /// The same, by an operation that was found to go on without the clock; so does its session.
    AtOnceUnclocked,
}

/// Accepts one call of `operation`, or says why not; then nothing is charged. No lock, no allocation, no lease.
///
/// # Errors
///
/// See [`CapabilitySession::dispatch`](super::CapabilitySession::dispatch).
#[inline(always)]
pub(crate) fn authorize<'a>(
    session: &'a SessionLease,
    operation: Operation,
    cost: &Cost,
    start: Start,
) -> Result<(Accepted, &'a Binding), Error> {
    let unclocked = start == Start::AtOnceUnclocked;
    let mut now = if unclocked { 0 } else { session::check(session)? };
    let (number, binding) = PlanCore::of(session).binding(operation)?;
    if unclocked && binding.terms.has_wall_time() {
        now = session::check(session)?;
    }
    // Who starts at once asks again after the start; before a charge it is asked in any case.
    if start == Start::Later || cost.charges_anything() {
        valid(session, binding, operation.index())?;
    }
    let granted = binding.terms.grant(operation, cost)?;
    // The coarse clock is never early: a wall time ends at most one kernel tick early, and never late.
    let deadline = session.deadline.load(order::COUNT).min(binding.terms.ends(now));
    if cost.charges_anything() {
        ledger::reserve(&session.budgets, &cost.charges).map_err(Error::spent)?;
        if let Err(error) = valid(session, binding, operation.index()) {
            ledger::refund(&session.budgets, &cost.charges);
            return Err(error);
        }
    }
    // Committed: from here on nothing gives the charges back.
    let accepted = Accepted {
        permission: granted,
        now,
        deadline,
        tag: binding.tag,
        provider: binding.provider,
        binding: number,
        operation: operation.index(),
        pooled: binding.pooled,
    };
    Ok((accepted, binding))
}
