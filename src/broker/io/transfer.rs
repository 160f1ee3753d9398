//! The bulk transfer of a call: two windows of chunks, paid for before the first byte moves.
//!
//! ```text
//!            input(bytes)                      output_buffer ─ fill ─ finish
//!  guest ───────────────▶ chunk ─▶ provider ─────────────────────────────▶ chunk ─▶ guest
//!            takes a place                     takes a place                 drop: the place is free again
//! ```
//!
//! A *place* is the right to have one chunk out. All places of both directions are charged when the transfer is made, so
//! a transfer that exists never fails in the middle for want of bytes or buffers: it only waits for a place. An input
//! place is one chunk on the staged side; an output place is one chunk on the result side, and one on the staged side for
//! the copy that hands it to a guest.
//!
//! Places, and who pays for one that comes back, are decided in one word: [`crate::queue::window`]. Accepted totals only
//! grow, and never above the budget.
use crate::account::bytes::Units;
use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::account::shares::Share;
use crate::broker::bytes::{Blocks, ByteScopes};
use crate::broker::error::{Denied, Error, Invalid};
use crate::broker::ground::{Ground, OperationLease};
use crate::broker::io::admission::check;
use crate::broker::io::chunk::{Held, IoTransferBuffer, IoTransferChunk};
use crate::broker::io::ready::TransferReady;
use crate::broker::slots::{TransferLease, TransferSlot, prepay, refund};
use crate::mem::arena::Nest;
use crate::queue::window::{self, Direction, Window};
use crate::sync::order;

/// How the window of a transfer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferOptions {
    /// Bytes of the largest chunk: 1 to `io.chunk_bytes`. Charged rounded up to a power of two from 512 bytes up.
    pub chunk_bytes: u32,
    /// Chunks of each direction that may be out at once: 1 to `io.stream_chunks`.
    pub outstanding: u32,
}

/// The transfer of a started call.
pub(super) fn open(lease: &OperationLease, options: TransferOptions) -> Result<IoTransfer, Error> {
    let limits = &ByteScopes::of(lease).io().limits;
    let budgets = [lease.stream_input.load(order::COUNT), lease.stream_output.load(order::COUNT)];
    if budgets == [0, 0] {
        return Err(Error::denied(Denied::NoStreamBudget));
    }
    if options.chunk_bytes == 0 {
        return Err(Error::invalid(Invalid::EmptyChunk));
    }
    let ground = lease.shared();
    if u64::from(options.chunk_bytes) > limits.chunk_bytes {
        return Err(ground.refuse(Error::too_large(Dimension::IoChunkBytes)));
    }
    if options.outstanding == 0 || options.outstanding > limits.stream_chunks {
        return Err(Error::invalid(Invalid::Depth));
    }
    if budgets.iter().any(|&budget| budget > limits.stream_bytes) {
        return Err(ground.refuse(Error::too_large(Dimension::IoStreamBytes)));
    }
    let issued = &lease.transfer_issued;
    if issued.compare_exchange(0, 1, order::STEP, order::LOST).is_err() {
        return Err(Error::denied(Denied::SecondTransfer));
    }
    // A transfer that could not be made was not issued.
    make(lease, options, budgets).inspect_err(|_| issued.store(0, order::PUBLISH))
}

fn make(lease: &OperationLease, options: TransferOptions, budgets: [u64; 2]) -> Result<IoTransfer, Error> {
    let scopes = ByteScopes::of(lease);
    let ground = scopes.ground();
    let shares = &ground.shares;
    shares.reserve(Share::Stream).map_err(|full| ground.refuse(Error::full(full, Scope::Node)))?;
    let size = Units::of_block(Blocks::rounded(options.chunk_bytes as usize));
    // A direction without a budget carries nothing and costs nothing.
    let places = budgets.map(|budget| if budget == 0 { 0 } else { options.outstanding });
    let paid = prepay(&scopes, Direction::Input, places[0], size).and_then(|()| {
        prepay(&scopes, Direction::Output, places[1], size)
            .inspect_err(|_| refund(&scopes, Direction::Input, places[0], size))
    });
    if let Err(full) = paid {
        shares.give(Share::Stream);
        return Err(full);
    }
    let inscribe = |slot: &TransferSlot| slot.inscribe(options.chunk_bytes, places, budgets);
    match Nest::take_with(lease.duplicate(), |ground: &Ground| &ground.transfers, 0, inscribe) {
        Ok(taken) => Ok(IoTransfer { lease: taken.lease }),
        Err(_) => crate::broken::accounting("a stream was charged but no transfer slot is free"),
    }
}

/// The bulk transfer of one call: its approved stream budget, through a window that is paid for.
///
/// * There is one for a call, ever; its totals are cumulative, and dropping it resets nothing.
/// * A window that is full is an ordinary refusal ([`Kind::Full`](crate::broker::Kind::Full) of `io.stream_chunks`), before
///   anything is read from a transport: wait for [`input_ready`](Self::input_ready) or
///   [`output_ready`](Self::output_ready) and go on.
/// * Chunks outlive it: each holds its bytes, its place, the transfer's slot and the operation until it is dropped.
///
/// Nothing here allocates or locks. All methods take `&self`, so the two directions can be driven by two tasks.
#[must_use = "dropping a transfer gives the free places of its window back"]
#[derive(Debug)]
pub struct IoTransfer {
    lease: TransferLease,
}

impl IoTransfer {
    /// Copies `bytes`, on their way to the provider, into a chunk of the window.
    ///
    /// # Errors
    ///
    /// Empty, or larger than a chunk; the window is full; the input budget would be passed; stopped or deadline. In each
    /// case nothing is spent.
    pub fn input(&self, bytes: &[u8]) -> Result<IoTransferChunk, Error> {
        let place = self.take_place(Direction::Input, bytes.len())?;
        self.lease.accept(Direction::Input, bytes.len())?;
        place.filled(bytes)
    }

    /// A buffer of `capacity` bytes, to be filled with what the provider sends. Take it before reading.
    ///
    /// # Errors
    ///
    /// No capacity, or more than a chunk's; the window is full; stopped or deadline.
    pub fn output_buffer(&self, capacity: usize) -> Result<IoTransferBuffer, Error> {
        Ok(self.take_place(Direction::Output, capacity)?.into_buffer())
    }

    fn take_place(&self, direction: Direction, capacity: usize) -> Result<Held, Error> {
        check(self.lease.pin())?;
        if capacity == 0 {
            return Err(Error::invalid(Invalid::EmptyChunk));
        }
        if capacity > self.maximum_chunk_bytes() {
            return Err(Error::too_large(Dimension::IoChunkBytes));
        }
        let places = self.lease.places(direction);
        if places == 0 {
            return Err(Error::denied(Denied::NoStreamBudget));
        }
        refusable!(
            Dimension::IoStreamChunks,
            self.lease.shared().refuse(Error::full(Dimension::IoStreamChunks, Scope::Session))
        );
        let lease = window::take(&self.lease, direction, places).map_err(|_| {
            self.lease.shared().refuse(Error::full(Dimension::IoStreamChunks, Scope::Session))
        })?;
        Ok(Held::new(lease, direction, capacity))
    }

    /// Resolves when the input window has a free place.
    ///
    /// Cancel safe. A place is not kept for whoever waited: with one task per direction it stays free. At most two tasks
    /// wait for one direction at a time.
    ///
    /// # Errors
    ///
    /// Stopped or deadline; the call has no input budget; two tasks wait already.
    pub fn input_ready(&self) -> TransferReady<'_> {
        TransferReady::new(self, Direction::Input)
    }

    /// Resolves when the output window has a free place. As [`input_ready`](Self::input_ready).
    pub fn output_ready(&self) -> TransferReady<'_> {
        TransferReady::new(self, Direction::Output)
    }

    pub(super) fn lease(&self) -> &TransferLease {
        &self.lease
    }

    /// Bytes of the largest chunk.
    pub fn maximum_chunk_bytes(&self) -> usize {
        self.lease.chunk_bytes()
    }
    /// Input chunks that are out.
    pub fn outstanding_input(&self) -> u32 {
        Window(self.lease.word().load()).out(Direction::Input)
    }
    /// Output buffers and chunks that are out.
    pub fn outstanding_output(&self) -> u32 {
        Window(self.lease.word().load()).out(Direction::Output)
    }
    /// Bytes that were taken from the input budget.
    pub fn accepted_input_bytes(&self) -> u64 {
        self.lease.accepted(Direction::Input)
    }
    /// Bytes that were taken from the output budget.
    pub fn accepted_output_bytes(&self) -> u64 {
        self.lease.accepted(Direction::Output)
    }
}

impl Drop for IoTransfer {
    fn drop(&mut self) {
        let (free, wakers) = window::close(&self.lease, Direction::BOTH.map(|side| self.lease.places(side)));
        let scopes = ByteScopes::of(self.lease.pin());
        for (direction, free) in Direction::BOTH.into_iter().zip(free) {
            refund(&scopes, direction, free, self.lease.place_size());
        }
        // Whoever still waits was using a transfer that is gone; it looks again.
        drop(wakers);
    }
}
