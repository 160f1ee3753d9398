//! The slots of streams and transfers: what stands in the ground for them, and how it ends.
use crate::account::budget::spend;
use crate::account::bytes::{Side, Units};
use crate::account::dimension::Dimension;
use crate::account::shares::Share;
use crate::broker::bytes::{Blocks, ByteScopes, Charged};
use crate::broker::error::Error;
use crate::broker::ground::{IoGround, OperationLease};
use crate::mem::arena::{Ending, Lease, Near, Occupant};
use crate::mem::ring::RingSlot;
use crate::queue::window::{Direction, PLACES_MAX};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::{Zero, order};

/// What a stream keeps beside its ring: nothing. It makes the slot a type of this floor.
#[derive(Debug, Zero)]
pub(crate) struct Beside;
/// The slot of a stream.
pub(crate) type StreamSlot = RingSlot<Charged, Beside>;
/// A counted hold on a stream's slot.
pub(crate) type StreamLease = Lease<StreamSlot>;
/// The hold of an end, which knows the way to the blocks.
pub(crate) type StreamHold = Near<StreamSlot, IoGround>;

impl Occupant for StreamSlot {
    type Pin = OperationLease;

    fn last_lease(ending: Ending<'_, Self>) {
        // Nothing is queued: the reader's end is gone, and it took all with it. The slot goes back before its count, and
        // the operation, which keeps both, last.
        let operation = ending.finish();
        operation.shared().shares.give(Share::Stream);
        drop(operation);
    }
}

/// A counted hold on a transfer's slot.
pub(crate) type TransferLease = Lease<TransferSlot>;

/// The dimension that bounds a direction's total.
const fn budget(direction: Direction) -> Dimension {
    match direction {
        Direction::Input => Dimension::BrokerStreamInputBytes,
        Direction::Output => Dimension::BrokerStreamOutputBytes,
    }
}

/// What one direction may carry, and has.
#[derive(Debug, Zero)]
struct Lane {
    places: AtomicU32,
    /// Cumulative budget of bytes.
    budget: AtomicU64,
    accepted: AtomicU64,
}

/// The contents of a transfer's slot. All numbers but `accepted` are written before the first lease is handed out.
#[derive(Debug, Zero)]
pub(crate) struct TransferSlot {
    chunk_bytes: AtomicU32,
    lanes: [Lane; 2],
}

const _: () = assert!(Dimension::IoStreamChunks.ceiling() <= PLACES_MAX as u64, "a window's count is 8 bits");

impl TransferSlot {
    fn lane(&self, direction: Direction) -> &Lane {
        &self.lanes[direction.index()]
    }
    /// Writes the numbers of a new transfer.
    pub(crate) fn inscribe(&self, chunk_bytes: u32, places: [u32; 2], budgets: [u64; 2]) {
        self.chunk_bytes.store(chunk_bytes, order::COUNT);
        for direction in Direction::BOTH {
            let lane = self.lane(direction);
            lane.places.store(places[direction.index()], order::COUNT);
            lane.budget.store(budgets[direction.index()], order::COUNT);
            lane.accepted.store(0, order::COUNT);
        }
    }
    /// Bytes of the largest chunk.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes.load(order::COUNT) as usize
    }
    /// Bytes that were accepted, added up over the transfer's life.
    pub(crate) fn accepted(&self, direction: Direction) -> u64 {
        self.lane(direction).accepted.load(order::COUNT)
    }
    /// Places of a direction, all of which the transfer paid for.
    pub(crate) fn places(&self, direction: Direction) -> u32 {
        self.lane(direction).places.load(order::COUNT)
    }
    /// The size that each place is charged with, per side.
    pub(crate) fn place_size(&self) -> Units {
        Units::of_block(Blocks::rounded(self.chunk_bytes()))
    }
    /// Spends accepted bytes, or nothing.
    pub(crate) fn accept(&self, direction: Direction, bytes: usize) -> Result<(), Error> {
        let lane = self.lane(direction);
        spend(&lane.accepted, lane.budget.load(order::COUNT), bytes as u64)
            .map_err(|_| Error::too_large(budget(direction)))
    }
}

impl Occupant for TransferSlot {
    type Pin = OperationLease;

    fn last_lease(ending: Ending<'_, Self>) {
        // The slot goes back before its count, and the operation, which keeps both, last.
        let operation = ending.finish();
        operation.shared().shares.give(Share::Stream);
        drop(operation);
    }
}

/// Charges the places of one direction.
pub(crate) fn prepay(
    scopes: &ByteScopes<'_>,
    direction: Direction,
    places: u32,
    size: Units,
) -> Result<(), Error> {
    if places == 0 {
        return Ok(());
    }
    scopes.reserve(Side::Staged, places, size)?;
    if direction == Direction::Output
        && let Err(full) = scopes.reserve(Side::Result, places, size)
    {
        scopes.give(Side::Staged, places, size);
        return Err(full);
    }
    Ok(())
}

/// Gives places of one direction back.
pub(crate) fn refund(scopes: &ByteScopes<'_>, direction: Direction, places: u32, size: Units) {
    if places == 0 {
        return;
    }
    if direction == Direction::Output {
        scopes.give(Side::Result, places, size);
    }
    scopes.give(Side::Staged, places, size);
}
