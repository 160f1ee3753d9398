//! The accepted call: proof, used once, that dispatch said yes.

use crate::broker::capability::Operation;
use crate::broker::dispatch::{self, Accepted};
use crate::broker::error::Error;
use crate::broker::ground::SessionLease;
use crate::broker::ledger::Cost;
use crate::broker::policy::StreamBudget;
use crate::broker::session_core::{ONE_ACCEPTED, SessionBits};
use crate::sync::order;
use crate::time::Deadline;

/// One accepted call of one session. It cannot be copied and is started at most once, by an operation of the same
/// session; whose that is is decided by slot and incarnation, not by names.
///
/// Until then it holds the session's slot and counts in the session's word; dropping it gives both back, and keeps the
/// charges that dispatch has committed.
#[must_use = "an accepted call does nothing until it is started"]
#[derive(Debug)]
pub struct ProviderCall {
    /// `None` only while it is dropped.
    session: Option<SessionLease>,
    accepted: Accepted,
}

/// Accepts a call and counts it in the session's word.
pub(crate) fn dispatch(
    session: &SessionLease,
    operation: Operation,
    cost: &Cost,
) -> Result<ProviderCall, Error> {
    // Counted first: a refusal by the ledger leaves nothing to take back there.
    let limit = u64::from(session.call_limit.load(order::COUNT));
    let held = session
        .duplicate_if(|bits| SessionBits(bits).with_accepted(limit))
        .map_err(|bits| Error::no_call(SessionBits(bits).is_stopped()))?;
    match dispatch::authorize(&held, operation, cost, dispatch::Start::Later) {
        Ok((accepted, _)) => Ok(ProviderCall { session: Some(held), accepted }),
        Err(error) => {
            held.release_with(ONE_ACCEPTED);
            Err(error)
        }
    }
}

impl ProviderCall {
    pub(crate) fn session(&self) -> &SessionLease {
        match &self.session {
            Some(session) => session,
            None => crate::broken::accounting("an accepted call was used after its end"),
        }
    }

    pub(crate) fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// When the call ends: the session's deadline, or the policy's wall time after it was accepted if that is earlier.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.session().shared().floor.deadline(self.accepted.deadline())
    }

    /// Bytes that the call may turn into inline output, added up over its life.
    #[must_use]
    pub fn maximum_output(&self) -> u64 {
        self.accepted.maximum_output()
    }

    /// What the call's one transfer may move each way, if it may have one.
    #[must_use]
    pub fn stream_budget(&self) -> Option<StreamBudget> {
        self.accepted.stream()
    }
}

impl Drop for ProviderCall {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.release_with(ONE_ACCEPTED);
        }
    }
}
