//! Sessions: one activation under a plan, with a deadline, budgets, a call limit and a stop.
//!
//! A session is a slot of the ground's root arena; [`super::session_core`] has its word. The slot stays as long as anything
//! of the session does: the owner here, its operations, calls that were dispatched and not started, resource tables.
//! Opening and closing allocate nothing and take no lock: one step on the arena's head and one on the slot's word, and
//! one on the reference count of the plan.

use std::fmt;
use std::sync::Arc;

use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::broker::call::{self, ProviderCall};
use crate::broker::capability::Operation;
use crate::broker::error::{Denied, Error, Invalid, StopCause, What, Which};
use crate::broker::ground::{GroundAnchor, SessionLease};
use crate::broker::ledger::{Budget, Cost, UNLIMITED};
use crate::broker::observer::CapabilitySessionObserver;
use crate::broker::plan::{Plan, PlanCore, ProviderRef};
use crate::broker::session_core::{self, BUDGETS, CLOSED, PROBED, STOPPED, SessionBits};
use crate::broker::table::{self, ResourceTableReservation};
use crate::sync::order;
use crate::time::Deadline;

pub(crate) use crate::broker::session_core::SessionSlot;

/// Says whether the execution that a session belongs to was cancelled, where nobody can call [`SessionStop::stop`].
///
/// It is asked whenever something of the session is checked, and every 10 ms while something of it waits. It must not
/// block. A session that can be stopped by a push needs none, and then nothing is ever polled.
pub trait Probe: Send + Sync {
    /// Whether the execution was cancelled. Once true, always true.
    fn is_cancelled(&self) -> bool;
}

/// What a session is opened with.
#[must_use]
pub struct Activation {
    /// `None`: unbounded.
    deadline: Option<Deadline>,
    budgets: [u64; BUDGETS],
    call_limit: Option<u16>,
    probe: Option<Arc<dyn Probe>>,
}

impl Activation {
    /// A session that ends at `deadline`, with unlimited budgets, as many calls at a time as the broker allows, and no
    /// probe.
    pub const fn until(deadline: Deadline) -> Activation {
        Activation { deadline: Some(deadline), budgets: [UNLIMITED; BUDGETS], call_limit: None, probe: None }
    }

    /// A session without a deadline. It can be opened, checked and stopped; admission refuses it, because every
    /// operation needs a deadline.
    pub const fn unbounded() -> Activation {
        Activation { deadline: None, budgets: [UNLIMITED; BUDGETS], call_limit: None, probe: None }
    }

    /// Limits a budget. What calls charge of it is gone for good. `u64::MAX` is no limit.
    pub const fn budget(mut self, budget: Budget, amount: u64) -> Activation {
        self.budgets[budget.at()] = amount;
        self
    }

    /// At most so many calls at a time, waiting, running and cleaning up together: 1 to the broker's limit.
    pub const fn call_limit(mut self, calls: u16) -> Activation {
        self.call_limit = Some(calls);
        self
    }

    /// Asks `probe` whether the execution was cancelled.
    pub fn probe(mut self, probe: Arc<dyn Probe>) -> Activation {
        self.probe = Some(probe);
        self
    }
}

impl fmt::Debug for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activation")
            .field("deadline", &self.deadline)
            .field("call_limit", &self.call_limit)
            .field("probed", &self.probe.is_some())
            .finish_non_exhaustive()
    }
}

/// Opens a session under `plan`; see [`Broker::open`](super::Broker::open).
pub(crate) fn open(
    anchor: &GroundAnchor,
    broker: u64,
    plan: &Plan,
    activation: Activation,
) -> Result<CapabilitySession, Error> {
    open_lease(anchor, broker, plan, activation).map(|lease| CapabilitySession { lease })
}

/// The same without an owner that closes it: the session ends with the last lease of its slot.
pub(crate) fn open_lease(
    anchor: &GroundAnchor,
    broker: u64,
    plan: &Plan,
    activation: Activation,
) -> Result<SessionLease, Error> {
    let ground = anchor.shared();
    if !plan.core.is_of(broker) {
        return Err(Error::denied(Denied::ForeignPlan));
    }
    if crate::broken::is_broken() {
        return Err(Error::retired(What::Broker));
    }
    plan.core.admits()?;
    let clock = &ground.floor.clock;
    let deadline = match activation.deadline {
        Some(deadline) if clock.passed(deadline) => return Err(Error::deadline(Which::Session)),
        Some(deadline) => ground.floor.nanos(deadline),
        None => u64::MAX,
    };
    // The ceiling of the dimension is 128.
    let most = ground.limits.calls_per_session as u16;
    let call_limit = match activation.call_limit {
        None => most,
        Some(0) => return Err(Error::invalid(Invalid::ZeroLimit)),
        Some(calls) if calls > most => return Err(Error::too_large(Dimension::BrokerCallsPerSession)),
        Some(calls) => calls,
    };
    refusable!(Dimension::BrokerSessions, ground.refuse(Error::full(Dimension::BrokerSessions, Scope::Node)));
    let bits = if activation.probe.is_some() { PROBED } else { 0 };
    let taken = anchor.take_with(ground.limits.sessions, bits, |slot| {
        slot.deadline.store(deadline, order::COUNT);
        slot.tenant.store(plan.core.tenant(), order::COUNT);
        slot.call_limit.store(call_limit, order::COUNT);
        for (word, amount) in slot.budgets.iter().zip(activation.budgets) {
            word.store(amount, order::COUNT);
        }
        slot.plan.put(plan.core.clone());
        if let Some(probe) = activation.probe {
            slot.probe.put(probe);
        }
    });
    match taken {
        Ok(taken) => Ok(taken.lease),
        Err(_) => Err(ground.refuse(Error::full(Dimension::BrokerSessions, Scope::Node))),
    }
}

/// Whether a session may go on now: neither stopped nor closed, its execution not cancelled, its deadline not passed.
/// Gives the time that it looked at, in nanoseconds of the node's clock: one reading of the coarse clock, which is late
/// by at most one kernel tick and never early.
#[inline(always)]
pub(crate) fn check(session: &SessionLease) -> Result<u64, Error> {
    let bits = SessionBits(session.word().load());
    if bits.is_stopped() {
        return Err(Error::stopped(StopCause::Session));
    }
    if bits.is_probed() && session.probe.get().is_some_and(|probe| probe.is_cancelled()) {
        return Err(Error::stopped(StopCause::Probe));
    }
    let clock = &session.shared().floor.clock;
    let now = clock.coarse_nanos();
    if now >= session.deadline.load(order::COUNT) {
        return Err(Error::deadline(Which::Session));
    }
    Ok(now)
}

/// Sets STOPPED or CLOSED and reaches every operation that waits somewhere (B3). An operation is counted in the same
/// word, by a step that a stopped session refuses; so where none is counted there is nobody to reach.
fn end(session: &SessionLease, how: u64) {
    let before = SessionBits(session.word().set(how));
    // Whoever stops it a second time need not wait for the first, who may still be on the way: each reaches them all.
    if before.calls() > 0 {
        session_core::interrupt_watched(session);
    }
}

/// An open session. It is affine: dropping it closes the session, like [`close`](Self::close).
///
/// Closing refuses whatever comes later and stops what is under way, as a stop does. What has been delivered stays, and
/// keeps the session's slot until it is gone too; [`observer`](Self::observer) tells when that is.
#[must_use = "dropping a session closes it"]
#[derive(Debug)]
pub struct CapabilitySession {
    lease: SessionLease,
}

impl CapabilitySession {
    pub(crate) fn lease(&self) -> &SessionLease {
        &self.lease
    }

    /// Whether the session may go on now. Allocates nothing.
    ///
    /// # Errors
    ///
    /// It was stopped, its execution was cancelled (if it has a [`Probe`]), or its deadline has passed, by the coarse
    /// clock.
    pub fn check(&self) -> Result<(), Error> {
        check(&self.lease).map(drop)
    }

    /// Asks policy, publication, provider and ledger now, and accepts one call of `operation`.
    ///
    /// The charges of `cost` are taken together or not at all, and are not given back however the call ends. The call
    /// must be started before it does anything; starting it looks at policy, publication and provider again.
    /// Allocates nothing, takes no lock.
    ///
    /// # Errors
    ///
    /// The session is stopped or over; the plan does not bind the capability, the policy does not allow the operation or
    /// what the cost declares, or it was revoked; the publication was withdrawn; the provider was replaced; a budget does
    /// not cover the cost; the session has as many calls as it may. Nothing was charged then.
    pub fn dispatch(&self, operation: Operation, cost: Cost) -> Result<ProviderCall, Error> {
        call::dispatch(&self.lease, operation, &cost).map_err(|error| self.lease.shared().refuse(error))
    }

    /// Stops the session: refuses whatever comes later, ends every wait of its operations now. Cannot be taken back.
    pub fn stop(&self) {
        end(&self.lease, STOPPED);
    }

    /// Closes the session; the same as dropping it.
    pub fn close(self) {
        drop(self);
    }

    /// A weak handle that can stop the session from elsewhere. Control path: it counts at the node.
    ///
    /// # Panics
    ///
    /// If 65,535 weak handles and broker handles of this node exist.
    #[must_use]
    pub fn stop_handle(&self) -> SessionStop {
        SessionStop(Weak::new(&self.lease))
    }

    /// A weak handle that tells when everything of the session is gone. Control path: it counts at the node.
    ///
    /// # Panics
    ///
    /// As [`stop_handle`](Self::stop_handle).
    #[must_use]
    pub fn observer(&self) -> CapabilitySessionObserver {
        CapabilitySessionObserver::new(Weak::new(&self.lease))
    }

    /// The instant at which the session ends. Centuries ahead for an unbounded session.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.lease.shared().floor.deadline(self.lease.deadline.load(order::COUNT))
    }

    /// Whether it has a deadline. Without one nothing is admitted.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.lease.deadline.load(order::COUNT) != u64::MAX
    }

    /// Charges the backing of a resource table, 1 to 65,536 bytes, for as long as the reservation lives. It may outlive
    /// the session, holds no call, and keeps the session from being quiescent.
    ///
    /// # Errors
    ///
    /// The session is stopped; the size is 0 or above 65,536; the node has no metadata left, or the session has 255
    /// tables.
    pub fn reserve_resource_table(&self, bytes: u32) -> Result<ResourceTableReservation, Error> {
        table::reserve(&self.lease, bytes).map_err(|error| self.lease.shared().refuse(error))
    }

    /// The number of its tenant, as refusals name it.
    #[must_use]
    pub fn tenant(&self) -> u16 {
        self.lease.tenant.load(order::COUNT)
    }

    /// Whether its plan binds this very instance and still allows something on it.
    #[must_use]
    pub fn uses_provider(&self, provider: &ProviderRef) -> bool {
        let logical = provider.logical();
        let plan = PlanCore::of(&self.lease);
        plan.is_of(logical.broker()) && plan.uses(provider.number(), provider.tag()).is_ok()
    }

    /// What is left of a budget now; `u64::MAX` if it is not limited.
    #[must_use]
    pub fn remaining(&self, budget: Budget) -> u64 {
        self.lease.budgets[budget.at()].load(order::COUNT)
    }
}

impl Drop for CapabilitySession {
    fn drop(&mut self) {
        end(&self.lease, CLOSED);
    }
}

/// A session by slot and incarnation, and the ground that the slot stands in. It keeps nothing of the session.
#[derive(Clone, Debug)]
pub(crate) struct Weak {
    anchor: GroundAnchor,
    incarnation: u64,
    index: u16,
}

impl Weak {
    fn new(session: &SessionLease) -> Weak {
        Weak { anchor: session.pin().anchor(), incarnation: session.incarnation(), index: session.index() }
    }

    /// A lease, if anything of the session still lives.
    pub(crate) fn upgrade(&self) -> Option<SessionLease> {
        self.anchor.upgrade(self.index, self.incarnation)
    }
}

/// Stops a session from elsewhere. It is weak: it keeps nothing of the session and does nothing once that is gone.
#[derive(Clone, Debug)]
pub struct SessionStop(Weak);

impl SessionStop {
    /// Stops the session, like [`CapabilitySession::stop`].
    pub fn stop(&self) {
        if let Some(session) = self.0.upgrade() {
            end(&session, STOPPED);
        }
    }

    /// Whether the session is stopped, closed or gone.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.upgrade().is_none_or(|session| SessionBits(session.word().load()).is_stopped())
    }
}
