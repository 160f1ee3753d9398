//! Buffers: fixed, zeroizing storage of one operation, charged before it exists.
use crate::account::bytes::{Side, Units};
use crate::account::dimension::Dimension;
use crate::broker::error::{Denied, Error, Invalid};
use crate::broker::ground::OperationLease;
use crate::broker::io::admission::{check, has_started};
use crate::broker::io::memory::{ByteScopes, io, spend};
use crate::broker::io::stream::StreamLease;
use crate::mem::blocks::{self, Block};
use crate::sync::{Zero, order};

/// The blocks of a node, with what is kept beside each.
pub(crate) type Blocks = blocks::Blocks<BlockMeta>;

/// What a block is charged to: what its owner gives back after the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(loom), derive(Zero))]
#[repr(u8)]
pub(crate) enum Charge {
    /// Nothing: the block is free.
    #[default]
    None = 0,
    /// The staged side.
    Staged = 1,
    /// The result side.
    Result = 2,
    /// A place in the input window of a transfer, which the transfer paid for.
    WindowInput = 3,
    /// A place in the output window of a transfer, which the transfer paid for.
    WindowOutput = 4,
}

/// What is kept beside a block. The handle stays at 16 bytes, and moving it moves nothing else.
#[derive(Debug, Zero)]
#[cfg_attr(not(loom), derive(Default))]
pub(crate) struct BlockMeta {
    /// Bytes that the owner asked for: the block may be larger.
    capacity: u32,
    /// Bytes that were written, from the start.
    written: u32,
    /// Bytes that were consumed, of those.
    cursor: u32,
    /// Declared protocol metadata.
    framing: u32,
    charge: Charge,
    /// What delivered the block: it stays as long as the block is out.
    stream: Option<StreamLease>,
}

impl BlockMeta {
    /// The record of a fresh block.
    pub(super) fn new(capacity: usize, framing: u32, charge: Charge) -> Self {
        // A capacity is at most the ceiling of a chunk, 1 MiB.
        BlockMeta { capacity: capacity as u32, framing, charge, ..BlockMeta::default() }
    }
    pub(super) fn charge(&self) -> Charge {
        self.charge
    }
    pub(super) fn capacity(&self) -> usize {
        self.capacity as usize
    }
    /// The written bytes that were not consumed, as a range of the block.
    pub(super) fn live(&self) -> std::ops::Range<usize> {
        self.cursor as usize..self.written as usize
    }
    /// At most `limit` bytes after the written ones, as a range of the block.
    pub(super) fn spare(&self, limit: usize) -> std::ops::Range<usize> {
        let start = self.written as usize;
        start..start + limit.min(self.capacity as usize - start)
    }
    fn check_staged(&self) -> Result<(), Error> {
        if self.charge == Charge::Result { Err(Error::invalid(Invalid::NotStaged)) } else { Ok(()) }
    }
    /// `count` bytes at the front are done with.
    fn consume(&mut self, count: usize) -> Result<(), Error> {
        if count > self.live().len() {
            return Err(Error::invalid(Invalid::PastCapacity));
        }
        self.cursor += count as u32;
        Ok(())
    }
    /// `count` more bytes were written.
    pub(super) fn advance(&mut self, count: usize) -> Result<(), Error> {
        if count > (self.capacity - self.written) as usize {
            return Err(Error::invalid(Invalid::PastCapacity));
        }
        self.written += count as u32;
        Ok(())
    }
}

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
pub struct IoBuffer {
    /// Gone only while the buffer is being dropped. Declared first, so that the operation is let go last.
    block: Option<Block>,
    lease: OperationLease,
}

const _: () = assert!(size_of::<IoBuffer>() == 16, "a handle is two words");

/// A staged buffer of `capacity` bytes (1 to a chunk) with `framing` bytes of declared metadata, or nothing charged.
pub(super) fn stage(lease: &OperationLease, capacity: usize, framing: u32) -> Result<IoBuffer, Error> {
    let scopes = ByteScopes::of(lease);
    scopes.check_size(capacity)?;
    let size = Units::of_block(Blocks::rounded(capacity));
    scopes.reserve(Side::Staged, 1, size)?;
    if let Err(full) = scopes.frame(framing) {
        scopes.give(Side::Staged, 1, size);
        return Err(full);
    }
    let block = charged_block(&scopes, BlockMeta::new(capacity, framing, Charge::Staged));
    Ok(IoBuffer { block: Some(block), lease: lease.duplicate() })
}

/// A block for what is charged already.
///
/// Blocks go back before their charges do, and each class has as many blocks as can be charged, so one is free.
pub(super) fn charged_block(scopes: &ByteScopes<'_>, meta: BlockMeta) -> Block {
    let Some(mut block) = scopes.blocks().take(meta.capacity as usize) else {
        crate::broken::accounting("bytes were charged but no block is free");
    };
    *scopes.blocks().meta_mut(&mut block) = meta;
    block
}

impl IoBuffer {
    #[inline]
    fn block(&self) -> &Block {
        match &self.block {
            Some(block) => block,
            None => crate::broken::accounting("a buffer was used after its drop"),
        }
    }
    #[inline]
    fn meta(&self) -> &BlockMeta {
        self.blocks().meta(self.block())
    }
    #[inline]
    fn blocks(&self) -> &Blocks {
        &io(&self.lease).blocks
    }
    /// The record and the block, to be changed.
    #[inline]
    fn change<R>(&mut self, change: impl FnOnce(&mut BlockMeta) -> R) -> R {
        let Self { block: Some(block), lease } = self else {
            crate::broken::accounting("a buffer was used after its drop");
        };
        change(io(lease).blocks.meta_mut(block))
    }

    /// The operation that it belongs to.
    pub(super) fn operation(&self) -> &OperationLease {
        &self.lease
    }
    /// Whether a stream has delivered it.
    pub(super) fn is_delivered(&self) -> bool {
        self.meta().stream.is_some()
    }
    /// A stream delivers it: it holds the stream's slot from now on.
    pub(super) fn deliver(&mut self, stream: StreamLease) {
        self.change(|meta| meta.stream = Some(stream));
    }

    /// Bytes that it was made for.
    pub fn capacity(&self) -> usize {
        self.meta().capacity as usize
    }
    /// Bytes that it is charged with: the size of its block, at least its capacity.
    pub fn charged_bytes(&self) -> usize {
        self.blocks().capacity(self.block())
    }
    /// The bytes that were written and not consumed.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let blocks = self.blocks();
        &blocks.bytes(self.block())[blocks.meta(self.block()).live()]
    }
    /// How many bytes were written and not consumed.
    #[inline]
    pub fn len(&self) -> usize {
        self.meta().live().len()
    }
    /// Whether nothing was written, or all of it was consumed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether it was retained: charged as a result, no longer writable.
    #[inline]
    pub fn is_retained(&self) -> bool {
        self.meta().charge == Charge::Result
    }

    /// At most `limit` bytes of the unused rest, for a read or a copy. They count as exposed: they are wiped before the
    /// block is used again, whether they were written or not.
    ///
    /// # Errors
    ///
    /// The operation was stopped or its deadline passed; the buffer was retained.
    pub fn spare_mut(&mut self, limit: usize) -> Result<&mut [u8], Error> {
        check(&self.lease)?;
        let meta = self.meta();
        meta.check_staged()?;
        let spare = meta.spare(limit);
        let Self { block: Some(block), lease } = self else {
            crate::broken::accounting("a buffer was used after its drop");
        };
        Ok(io(lease).blocks.bytes_mut(block, spare))
    }

    /// Notes that `count` bytes of the spare part were written.
    ///
    /// # Errors
    ///
    /// More than fit; the buffer was retained. Then nothing changed.
    pub fn advance_written(&mut self, count: usize) -> Result<(), Error> {
        self.change(|meta| {
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
        self.change(|meta| meta.consume(count))
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
        let meta = self.meta();
        if meta.charge == Charge::Result {
            return Ok(self);
        }
        let length = meta.live().len() as u64;
        check(&self.lease)?;
        if !has_started(&self.lease) {
            return Err(Error::denied(Denied::NotStarted));
        }
        ByteScopes::of(&self.lease).retain(Units::of_block(self.charged_bytes()))?;
        self.change(|meta| meta.charge = Charge::Result);
        spend(&self.lease.output_spent, self.lease.output_limit.load(order::COUNT), length)
            .map_err(|_| Error::too_large(Dimension::BrokerOutputBytes))?;
        Ok(self)
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        let Some(mut block) = self.block.take() else { return };
        let scopes = ByteScopes::of(&self.lease);
        let size = Units::of_block(scopes.blocks().capacity(&block));
        let meta = std::mem::take(scopes.blocks().meta_mut(&mut block));
        // Wiped and listed before its charge is given back: whoever is charged next finds it.
        scopes.blocks().give(block);
        match meta.charge {
            Charge::Staged => scopes.give(Side::Staged, 1, size),
            Charge::Result => scopes.give(Side::Result, 1, size),
            Charge::None | Charge::WindowInput | Charge::WindowOutput => {
                crate::broken::accounting_in_drop("a buffer without a charge of its own");
            }
        }
        scopes.unframe(meta.framing);
        drop(meta.stream);
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
