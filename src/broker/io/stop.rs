//! Looking at an operation and stopping it, from elsewhere and without holding anything of it.
use crate::broker::ground::{GroundAnchor, OperationLease};
use crate::queue::operation::{Cause, State, Step};

/// Where an operation stands, for observers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Admitted, waiting for a running unit or not asking for one yet.
    Queued,
    /// Holds a running unit, not started.
    Ready,
    /// Started.
    Running,
    /// Started, and waiting for its provider.
    WaitingProvider,
    /// The front owner is gone; buffers, streams, chunks or jobs still hold it.
    Cleaning,
    /// Everything is given back.
    Retired,
}

impl Phase {
    pub(crate) fn of(state: State) -> Phase {
        if state.0.leases() == 0 {
            return Phase::Retired;
        }
        match state.step() {
            _ if !state.has_front() => Phase::Cleaning,
            Step::Staged | Step::Queued => Phase::Queued,
            Step::Granted => Phase::Ready,
            Step::Started if state.waits() > 0 => Phase::WaitingProvider,
            Step::Started => Phase::Running,
            Step::Free | Step::Left | Step::Returned => Phase::Cleaning,
        }
    }
}

/// A weak handle: it can look and stop, it keeps nothing alive but the ground, and refunds nothing.
///
/// Making one and cloning it belong to the control path (a step on the node's own count).
#[derive(Clone, Debug)]
pub struct IoStopHandle {
    anchor: GroundAnchor,
    index: u16,
    incarnation: u64,
}

impl IoStopHandle {
    pub(crate) fn new(lease: &OperationLease) -> Self {
        IoStopHandle { anchor: lease.pin().anchor(), index: lease.index(), incarnation: lease.incarnation() }
    }
    /// Where the operation stands. What is read can have moved on by the time it is looked at; only `Retired` stays.
    pub fn phase(&self) -> Phase {
        match self.anchor.shared().floor.operations.upgrade(self.index, self.incarnation) {
            Some(lease) => Phase::of(State(lease.word().load()).less_one_lease()),
            None => Phase::Retired,
        }
    }
    /// Stops the operation: whatever of it waits is woken and refused. What holds bytes keeps them until it is dropped.
    /// The first cause wins; stopping twice, or what has ended, does nothing.
    pub fn stop(&self) {
        let floor = &self.anchor.shared().floor;
        if let Some(lease) = floor.operations.upgrade(self.index, self.incarnation) {
            floor.stop(&lease, Cause::Stopped);
        }
    }
}
