//! The session's slot: what an operation, a call and an observer look at, without a lock.
//!
//! ```text
//!  user bits  27..20   19      18           17       16      15..8    7..0
//!            ┌────────┬───────┬────────────┬────────┬───────┬────────┬───────┐
//!            │accepted│PROBED │ QUARANTINED│ STOPPED│ CLOSED│ tables │ calls │  below: the leases (mem::arena)
//!            └────────┴───────┴────────────┴────────┴───────┴────────┴───────┘
//! ```
//!
//! * B1. `calls` is the number of operations of this session, whatever their phase; each holds one lease.
//!   `accepted` is the number of calls that were dispatched and not started, `tables` of resource tables; each of them
//!   holds one lease too. Other leases are short and stand for nothing, so these counts tell what lives.
//! * B2. CLOSED and STOPPED are never taken back. An admission is refused by the step that would count it.
//! * B3. A session stop first sets STOPPED, then looks at the watched bits: N1 of [`Watched`] says why it misses nobody.
use crate::broker::ground::{Ground, SessionLease};
use crate::broker::plan::PlanCore;
use crate::broker::session::Probe;
use crate::mem::arena::{Bits, Ending, Occupant, Pin, RootPin};
use crate::mem::kept::Kept;
use crate::queue::floor::{Floor, Tenure};
use crate::queue::operation::Cause;
use crate::queue::watched::Watched;
use crate::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use crate::sync::order;
use std::sync::Arc;

/// Cumulative budget dimensions of a session's ledger.
pub(crate) const BUDGETS: usize = 9;

/// One call, as a unit of the word.
pub(crate) const ONE_CALL: u64 = 1;
const CALLS: u64 = 0xff;
/// One resource table, as a unit of the word.
pub(crate) const ONE_TABLE: u64 = 1 << 8;
const TABLES: u64 = 0xff << 8;
pub(crate) const CLOSED: u64 = 1 << 16;
pub(crate) const STOPPED: u64 = 1 << 17;
pub(crate) const QUARANTINED: u64 = 1 << 18;
pub(crate) const PROBED: u64 = 1 << 19;
/// One dispatched call that was not started, as a unit of the word.
pub(crate) const ONE_ACCEPTED: u64 = 1 << 20;
const ACCEPTED: u64 = 0xff << 20;

/// A reading of a session's word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionBits(pub(crate) Bits);

impl SessionBits {
    pub(crate) fn calls(self) -> u64 {
        self.0.user() & CALLS
    }
    pub(crate) fn tables(self) -> u64 {
        (self.0.user() & TABLES) >> 8
    }
    pub(crate) fn is_closed(self) -> bool {
        self.0.user() & CLOSED != 0
    }
    pub(crate) fn is_stopped(self) -> bool {
        self.0.user() & (STOPPED | CLOSED) != 0
    }
    pub(crate) fn is_quarantined(self) -> bool {
        self.0.user() & QUARANTINED != 0
    }
    pub(crate) fn is_probed(self) -> bool {
        self.0.user() & PROBED != 0
    }
    /// One call more, unless the session is stopped or has as many as it may.
    pub(crate) fn with_call(self, limit: u64) -> Option<Bits> {
        (!self.is_stopped() && self.calls() < limit).then(|| self.0.with_user(self.0.user() + ONE_CALL))
    }
    pub(crate) fn accepted(self) -> u64 {
        (self.0.user() & ACCEPTED) >> 20
    }
    /// One dispatched call more, unless the session is stopped or has as many as it may.
    pub(crate) fn with_accepted(self, limit: u64) -> Option<Bits> {
        let may = !self.is_stopped() && self.accepted() < limit;
        may.then(|| self.0.with_user(self.0.user() + ONE_ACCEPTED))
    }
    /// Marked as quarantined, unless it is or nothing is left of it.
    pub(crate) fn quarantined(self) -> Option<Bits> {
        let left = self.0.user() & (CALLS | TABLES | ACCEPTED) != 0 || !self.is_closed();
        (left && !self.is_quarantined()).then(|| self.0.with_user(self.0.user() | QUARANTINED))
    }
    /// One resource table more.
    pub(crate) fn with_table(self) -> Option<Bits> {
        (!self.is_stopped() && self.tables() < 0xff).then(|| self.0.with_user(self.0.user() + ONE_TABLE))
    }
}

/// The contents of a session's slot. All zeros is the state of a slot never used.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[cfg_attr(loom, derive(Default))]
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SessionSlot {
    /// Nanoseconds since the node's base; `u64::MAX`: unbounded, refused at admission.
    pub(crate) deadline: AtomicU64,
    pub(crate) tenant: AtomicU16,
    pub(crate) call_limit: AtomicU16,
    /// Bytes of pool metadata that the end of the session gives back: the memory of an inbound event. 0 for all others.
    pub(crate) pool_metadata: AtomicU32,
    /// What is left of each cumulative budget; `u64::MAX`: not limited.
    pub(crate) budgets: [AtomicU64; BUDGETS],
    /// Operations that a stop of this session must reach.
    pub(crate) watched: Watched,
    pub(crate) plan: Kept<Arc<PlanCore>>,
    pub(crate) probe: Kept<Arc<dyn Probe>>,
}

impl Occupant for SessionSlot {
    type Pin = RootPin<SessionSlot, Ground>;

    fn last_lease(mut ending: Ending<'_, Self>) {
        let (plan, probe, bytes) = {
            let slot = ending.get_mut();
            let bytes = slot.pool_metadata.load(order::COUNT);
            if bytes != 0 {
                slot.pool_metadata.store(0, order::COUNT);
            }
            (slot.plan.take(), slot.probe.take(), bytes)
        };
        // The pin counts the session and keeps the ground; the plan is kept by the control path too, so that its last
        // reference does not die here.
        let pin = ending.finish();
        drop(plan);
        if bytes != 0 {
            pin.shared().pool_metadata.give(u64::from(bytes));
        }
        drop(pin);
        // Foreign code, last of all.
        if let Some(probe) = probe
            && let Err(panic) = crate::foreign::foreign(|| drop(probe))
        {
            panic.resume();
        }
    }
}

impl SessionSlot {
    /// Whether a session is neither stopped nor closed, and has no probe that would have to be asked.
    #[inline]
    pub(crate) fn is_undisturbed(session: &SessionLease) -> bool {
        session.word().load().user() & (STOPPED | CLOSED | PROBED) == 0
    }
}

impl Tenure for SessionLease {
    fn floor(shared: &Ground) -> &Floor<Self> {
        &shared.floor
    }
    fn stopped(&self) -> Option<Cause> {
        SessionBits(self.word().load()).is_stopped().then_some(Cause::Session)
    }
    fn watch(&self, operation: u16) {
        self.watched.set(operation);
    }
    fn unwatch(&self, operation: u16) {
        self.watched.clear(operation);
    }
    fn probe(&self) -> Option<bool> {
        self.probe.get().map(|probe| probe.is_cancelled())
    }
    fn leave(self) {
        self.release_with(ONE_CALL);
    }
}

/// Stops every operation of the session that is parked anywhere. STOPPED or CLOSED was set before.
pub(crate) fn interrupt_watched(session: &SessionLease) {
    let panics = session.watched.stop(&session.shared().floor, |pin: &SessionLease| pin.is_same(session));
    panics.resume();
}
