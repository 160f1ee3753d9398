//! What is held, as counts.
use crate::account::dimension::Dimension;
use crate::broker::bytes::settle_kept;
use crate::broker::ground::Ground;
use crate::broker::limits::fixed_cost;

/// Counts of the I/O runtime at about one moment. Zero everywhere once every owner is gone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IoSnapshot {
    /// Operations that exist, whatever their phase.
    pub owners: u64,
    /// Occupied running slots.
    pub running: u64,
    /// Admitted and not granted.
    pub queued: u64,
    /// Staged bytes, by the size of the blocks.
    pub staged_bytes: u64,
    /// Result bytes, by the size of the blocks.
    pub result_bytes: u64,
    /// Buffers, transfer chunks and prepaid window places.
    pub buffers: u64,
    /// Streams and transfers.
    pub streams: u64,
    /// Metadata: what is declared, plus the fixed cost of each owner.
    pub metadata_bytes: u64,
    /// Whether admission is closed for good.
    pub closed: bool,
}

impl IoSnapshot {
    pub(crate) fn of(ground: &Ground) -> Self {
        let exactly = ground.floor.exactly();
        let node = ground.floor.node.snapshot();
        drop(exactly);
        settle_kept(ground);
        let bytes = ground.bytes.snapshot();
        let streams = ground.shares.snapshot().streams;
        let fixed = u64::from(node.owners) * fixed_cost(Dimension::IoOwners)
            + u64::from(bytes.buffers) * fixed_cost(Dimension::IoBuffers)
            + u64::from(streams) * fixed_cost(Dimension::IoStreams);
        IoSnapshot {
            owners: node.owners.into(),
            running: node.running.into(),
            queued: node.queued.into(),
            staged_bytes: bytes.staged_bytes,
            result_bytes: bytes.result_bytes,
            buffers: bytes.buffers.into(),
            streams: streams.into(),
            metadata_bytes: ground.io_metadata.used() + fixed,
            closed: node.closed,
        }
    }
    /// Whether nothing is held any more.
    pub fn is_zero(&self) -> bool {
        IoSnapshot { closed: false, ..*self } == IoSnapshot::default()
    }
}
