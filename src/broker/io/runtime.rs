//! The I/O runtime: one per broker.
use crate::account::rules::LimitsError;
use crate::broker::Broker;
use crate::broker::error::{Denied, Error};
use crate::broker::ground::{GroundAnchor, IoGround};
use crate::broker::io::admission::{IoAdmission, IoReady, QueueAge, admit, admit_again};
use crate::broker::io::snapshot::IoSnapshot;
use crate::broker::limits::{IO_COSTS, IoLimits};
use crate::broker::plan::PlanCore;
use crate::broker::session::CapabilitySession;
use crate::mem::blocks::Blocks;
use crate::queue::floor::OPERATIONS;
use crate::queue::operation::Cause;
use crate::queue::spares::Spares;
use crate::time::Deadline;
use std::sync::Arc;
use thiserror::Error as ThisError;

/// Why a runtime or a registry could not be made.
#[derive(Debug, ThisError)]
pub enum SetupError {
    /// The limits contradict a ceiling, each other, or what fixed metadata costs; all that is wrong is listed.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The broker has one already, or had one: a second would bypass its limits.
    #[error("this broker has {0} already; a broker carries one for its whole life")]
    Second(&'static str),
    /// The I/O runtime stands on another broker.
    #[error("the I/O runtime belongs to another broker")]
    ForeignRuntime,
    /// The operating system gave no address space for the byte blocks.
    #[error("no address space for the byte blocks: {0}")]
    Memory(String),
}

/// Admission, buffers and streams of a node. Clones are handles to the same runtime (control path).
///
/// It creates no executor, thread, socket or worker.
#[derive(Clone, Debug)]
pub struct IoRuntime {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    anchor: GroundAnchor,
    /// The broker is retired with the last handle to it; whoever has the runtime has one.
    _broker: Broker,
}

impl IoRuntime {
    /// Puts the runtime on a broker. Reserves address space for byte blocks; commits a few pages.
    ///
    /// # Errors
    /// Limits that contradict each other, or a second runtime on the same broker.
    pub fn new(broker: &Broker, limits: IoLimits) -> Result<IoRuntime, SetupError> {
        limits.validate_prepaid(IO_COSTS)?;
        let anchor = broker.anchor().clone();
        let ground = anchor.shared();
        let blocks = Blocks::new(
            limits.chunk_bytes as usize,
            limits.buffers as usize,
            (limits.staged_bytes + limits.result_bytes) as usize,
        )
        .map_err(|error| SetupError::Memory(error.to_string()))?;
        let tenant_bytes = limits.bytes_per_tenant() < limits.staged_bytes + limits.result_bytes;
        let made = IoGround { limits, blocks, tenant_bytes, spares: Spares::new(OPERATIONS) };
        if ground.io.set(made).is_err() {
            return Err(SetupError::Second("an I/O runtime"));
        }
        ground.floor.node.open_io(limits.owners, limits.queued, limits.running);
        ground.bytes.open(limits.staged_bytes, limits.result_bytes, limits.buffers);
        ground.shares.open_streams(limits.streams);
        ground.io_metadata.raise(limits.metadata_bytes - limits.prepaid(IO_COSTS));
        ground.control().open_tenant_bytes(ground, limits.bytes_per_tenant());
        Ok(IoRuntime { handle: Arc::new(Handle { anchor, _broker: broker.clone() }) })
    }

    pub(crate) fn anchor(&self) -> &GroundAnchor {
        &self.handle.anchor
    }
    pub(crate) fn io(&self) -> &IoGround {
        match self.handle.anchor.shared().io.get() {
            Some(io) => io,
            None => crate::broken::accounting("an I/O runtime without its ground"),
        }
    }
    /// The limits it was made with.
    pub fn limits(&self) -> &IoLimits {
        &self.io().limits
    }

    /// Admits an operation of the session: it may stage input now and [`wait`](IoAdmission::wait) for its turn.
    ///
    /// # Errors
    /// The dimension that has no room, by name and scope; the session is stopped, over or has no deadline; its
    /// publication was withdrawn; the runtime is retired. Nothing is held afterwards. No lock, no allocation, no exact clock.
    pub fn admit(&self, session: &CapabilitySession) -> Result<IoAdmission, Error> {
        self.ask(session, None, false).map(IoAdmission::new)
    }
    /// The same with a deadline of its own, which can only be earlier than the session's.
    ///
    /// # Errors
    /// As [`Self::admit`]; a later deadline is denied, a passed one is refused as such.
    pub fn admit_until(&self, session: &CapabilitySession, until: Deadline) -> Result<IoAdmission, Error> {
        self.ask(session, Some(until), false).map(IoAdmission::new)
    }
    /// Straight to a running unit, or refused; never waits. Reads no clock: a session whose deadline has passed gets a grant
    /// that cannot start any more.
    ///
    /// # Errors
    /// As [`Self::admit`], but for the session's deadline, which the start meets; also when somebody waits in front.
    pub fn admit_now(&self, session: &CapabilitySession) -> Result<IoReady, Error> {
        self.ask(session, None, true).map(IoReady::new)
    }

    fn ask(
        &self,
        session: &CapabilitySession,
        until: Option<Deadline>,
        now: bool,
    ) -> Result<super::admission::Front, Error> {
        if !self.handle.anchor.holds(session.lease()) {
            return Err(Error::denied(Denied::ForeignSession));
        }
        // Policy and publication are asked here and again at dispatch.
        PlanCore::of(session.lease()).admits()?;
        let wait = (!now).then(|| QueueAge(crate::time::nanos(self.io().limits.queue_wait)));
        match admit(session.lease(), None, until, wait) {
            Ok(front) => Ok(front),
            Err(error) => admit_again(session.lease(), None, until, wait, error),
        }
    }

    /// What is held now. Counters are read one after another: an observation, not a decision.
    pub fn snapshot(&self) -> IoSnapshot {
        IoSnapshot::of(self.handle.anchor.shared())
    }

    /// Refuses everything new and stops everything that runs, for good. What holds bytes keeps them until it is dropped.
    ///
    /// Control path: it looks at every operation slot.
    pub fn retire(&self) {
        retire(self.handle.anchor.shared());
    }
}

/// Closes the node word, then reaches every operation.
pub(crate) fn retire(ground: &crate::broker::ground::Ground) {
    ground.floor.node.close();
    ground.floor.end_credits();
    ground.floor.stop_all(Cause::Retired, |_, _| true);
}

impl Drop for Handle {
    fn drop(&mut self) {
        retire(self.anchor.shared());
    }
}
