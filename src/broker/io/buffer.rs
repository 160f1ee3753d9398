//! Buffers: fixed, zeroizing storage of one operation, charged before it exists.
use crate::account::budget::spend;
use crate::account::dimension::Dimension;
use crate::broker::bytes::{Blocks, Charge, Charged};
use crate::broker::error::{Denied, Error};
use crate::broker::ground::OperationLease;
use crate::broker::io::admission::{check, glance, goes_on, goes_on_by_clock, has_started};
use crate::broker::slots::StreamLease;
use crate::sync::order;

/// Initialized, fixed-capacity, zeroizing storage that belongs to one operation.
///
/// * It is charged by the size of its block (a power of two from 512 bytes up), whatever of it is used, for as long as it
///   exists, and counts as one buffer.
/// * Before [`retain`](Self::retain) it is *staged*: it can be written. After it is a *result*: it can be read, consumed,
///   and written to a stream of its operation.
/// * There is no way to grow it, to take its storage out, or to see bytes that were not written through it.
/// * Whatever was exposed for writing is wiped before the block is given to somebody else.
///
/// It holds its operation, and with it the session and the running unit, until it is dropped. Dropping it allocates
/// nothing and waits for nobody. It is `Send + Sync + 'static + AsRef<[u8]>`, so `Bytes::from_owner(buffer)` works.
#[must_use = "dropping a buffer gives its block back"]
pub struct IoBuffer(Charged);

const _: () = assert!(size_of::<IoBuffer>() == 16, "a handle is two words");

/// A staged buffer of `capacity` bytes (1 to a chunk) with `framing` bytes of declared metadata, or nothing charged.
pub(super) fn stage(lease: &OperationLease, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
    Charged::stage(lease, capacity, framing).map(IoBuffer)
}

/// The same for a call that may go on, which may keep a block ready.
#[inline(always)]
pub(super) fn checked(lease: &OperationLease, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
    if framing == 0
        && (goes_on(lease) || goes_on_by_clock(lease))
        && let Some(staged) = Charged::stage_at_once(lease, capacity)
    {
        return Ok(IoBuffer(staged));
    }
    checked_slowly(lease, capacity, framing)
}

/// The same for an operation that has not started.
pub(super) fn from_node(lease: &OperationLease, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
    if framing == 0
        && glance(lease).is_some()
        && let Some(staged) = Charged::stage_from_node(lease, capacity)
    {
        return Ok(IoBuffer(staged));
    }
    checked_slowly(lease, capacity, framing)
}

/// With metadata; and once more where it did not come about at once, to say why.
#[inline(never)]
fn checked_slowly(lease: &OperationLease, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
    check(lease)?;
    stage(lease, capacity, framing)
}

impl IoBuffer {
    /// The operation that it belongs to.
    #[inline]
    pub(super) fn operation(&self) -> &OperationLease {
        self.0.operation()
    }
    /// Whether a stream has delivered it.
    pub(super) fn is_delivered(&self) -> bool {
        self.0.is_delivered()
    }
    /// See [`Charged::deliver`].
    #[inline]
    pub(super) fn deliver(
        &mut self,
        blocks: &Blocks,
        most: u64,
        stream: impl FnOnce() -> StreamLease,
    ) -> Option<u64> {
        self.0.deliver(blocks, most, stream)
    }
    /// See [`Charged::is_deliverable`].
    pub(super) fn is_deliverable(&self, most: u64) -> bool {
        self.0.is_deliverable(most)
    }
    /// What lies in a stream's ring.
    #[inline]
    pub(super) fn into_charged(self) -> Charged {
        self.0
    }
    #[inline]
    pub(super) fn from_charged(charged: Charged) -> IoBuffer {
        IoBuffer(charged)
    }

    /// Bytes that it was made for.
    pub fn capacity(&self) -> usize {
        self.0.meta().capacity()
    }
    /// Bytes that it is charged with: the size of its block, at least its capacity.
    pub fn charged_bytes(&self) -> usize {
        self.0.size()
    }
    /// The bytes that were written and not consumed.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
    /// How many bytes were written and not consumed.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.meta().live().len()
    }
    /// Whether nothing was written, or all of it was consumed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether it was retained: charged as a result, no longer writable.
    #[inline]
    pub fn is_retained(&self) -> bool {
        self.0.meta().charge() == Charge::Result
    }

    /// At most `limit` bytes of the unused rest, for a read or a copy. They count as exposed: they are wiped before the
    /// block is used again, whether they were written or not.
    ///
    /// # Errors
    ///
    /// The operation was stopped or its deadline passed; the buffer was retained.
    pub fn spare_mut(&mut self, limit: usize) -> Result<&mut [u8], Error> {
        check(self.operation())?;
        let meta = self.0.meta();
        meta.check_staged()?;
        let spare = meta.spare(limit);
        Ok(self.0.bytes_mut(spare))
    }

    /// Notes that `count` bytes of the spare part were written.
    ///
    /// # Errors
    ///
    /// More than fit; the buffer was retained. Then nothing changed.
    pub fn advance_written(&mut self, count: usize) -> Result<(), Error> {
        self.0.change(|meta| {
            meta.check_staged()?;
            meta.advance(count)
        })
    }

    /// Moves past `count` bytes at the front. The charge stays complete. Works after stop and expiry too.
    ///
    /// # Errors
    ///
    /// More than there are; then nothing changed.
    pub fn consume(&mut self, count: usize) -> Result<(), Error> {
        self.0.change(|meta| meta.consume(count))
    }

    /// Makes a result of it: moves its charge from the staged to the result side, in one step and without copying, and
    /// spends as much of the call's output permission as it has bytes. What is spent stays spent, whatever happens to
    /// the buffer. A buffer that is a result already comes back as it is.
    ///
    /// # Errors
    ///
    /// In each case the buffer is destroyed: the result side is full; the call's output ceiling would be passed; the
    /// operation has not started (what waits for its turn cannot become output); it was stopped or its deadline passed.
    pub fn retain(mut self) -> Result<IoBuffer, Error> {
        let meta = self.0.meta();
        if meta.charge() == Charge::Result {
            return Ok(self);
        }
        let length = meta.live().len() as u64;
        check(self.operation())?;
        if !has_started(self.operation()) {
            return Err(Error::denied(Denied::NotStarted));
        }
        self.0.retain()?;
        let operation = self.operation();
        spend(&operation.output_spent, operation.output_limit.load(order::COUNT), length)
            .map_err(|_| Error::too_large(Dimension::BrokerOutputBytes))?;
        Ok(self)
    }
}

impl AsRef<[u8]> for IoBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// Shows sizes, never bytes.
impl std::fmt::Debug for IoBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("IoBuffer");
        shown.field("len", &self.len()).field("capacity", &self.capacity());
        shown.field("retained", &self.is_retained()).finish_non_exhaustive()
    }
}
