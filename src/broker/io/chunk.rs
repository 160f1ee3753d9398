//! What is out of a transfer's window: buffers being filled, and chunks on their way.
use crate::broker::bytes::{BlockMeta, Blocks, ByteScopes, Charge, charged_block, io};
use crate::broker::error::{Denied, Error, Invalid};
use crate::broker::io::admission::check;
use crate::broker::slots::{TransferLease, refund};
use crate::mem::blocks::Block;
use crate::queue::window::{self, Direction, Window};

/// A block in a place of the window.
pub(super) struct Held {
    /// Gone only while it is being dropped. Declared first, so that the transfer is let go last.
    block: Option<Block>,
    lease: TransferLease,
}

impl Held {
    /// A block for a place that was just taken, together with `lease`.
    pub(super) fn new(lease: TransferLease, direction: Direction, capacity: usize) -> Held {
        let scopes = ByteScopes::of(lease.pin());
        let block = charged_block(&scopes, capacity, 0, charge(direction));
        Held { block: Some(block), lease }
    }
    /// An input chunk of these bytes, which fit.
    pub(super) fn filled(mut self, bytes: &[u8]) -> Result<IoTransferChunk, Error> {
        self.spare_mut(bytes.len()).copy_from_slice(bytes);
        self.change(|meta| meta.advance(bytes.len()))?;
        Ok(IoTransferChunk { held: self })
    }
    /// An output buffer.
    pub(super) fn into_buffer(self) -> IoTransferBuffer {
        IoTransferBuffer { held: self }
    }
    #[inline]
    fn blocks(&self) -> &Blocks {
        &io(self.lease.pin()).blocks
    }
    #[inline]
    fn block(&self) -> &Block {
        match &self.block {
            Some(block) => block,
            None => crate::broken::accounting("a chunk was used after its drop"),
        }
    }
    #[inline]
    fn meta(&self) -> &BlockMeta {
        self.blocks().meta(self.block())
    }
    fn bytes(&self) -> &[u8] {
        let blocks = self.blocks();
        &blocks.bytes(self.block())[blocks.meta(self.block()).live()]
    }
    #[inline]
    fn parts(&mut self) -> (&mut Block, &Blocks) {
        let Self { block: Some(block), lease } = self else {
            crate::broken::accounting("a chunk was used after its drop");
        };
        (block, &io(lease.pin()).blocks)
    }
    #[inline]
    fn change<R>(&mut self, change: impl FnOnce(&mut BlockMeta) -> R) -> R {
        let (block, blocks) = self.parts();
        change(blocks.meta_mut(block))
    }
    fn spare_mut(&mut self, limit: usize) -> &mut [u8] {
        let spare = self.meta().spare(limit);
        let (block, blocks) = self.parts();
        blocks.bytes_mut(block, spare)
    }
}

const fn charge(direction: Direction) -> Charge {
    match direction {
        Direction::Input => Charge::WindowInput,
        Direction::Output => Charge::WindowOutput,
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let scopes = ByteScopes::of(self.lease.pin());
        // Wiped and listed before its place is free: whoever takes the place finds a block.
        let charge = scopes.blocks().give_with(block, |meta, _| meta.take_charge());
        let direction = match charge {
            Charge::WindowInput => Direction::Input,
            Charge::WindowOutput => Direction::Output,
            Charge::None | Charge::Staged | Charge::Result => {
                return crate::broken::accounting_in_drop("a chunk without a place in its window");
            }
        };
        let freed = window::free(&self.lease, direction);
        if freed.orphaned {
            refund(&scopes, direction, 1, self.lease.place_size());
        }
        // Woken here; the transfer's slot and the operation go last.
        drop(freed);
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.meta().live().len())
    }
}

/// An output chunk that is being filled. Dropping it frees its place; nothing was accepted.
#[derive(Debug)]
#[must_use = "dropping a buffer frees its place in the window"]
pub struct IoTransferBuffer {
    held: Held,
}

impl IoTransferBuffer {
    /// Bytes that it was made for.
    pub fn capacity(&self) -> usize {
        self.held.meta().capacity()
    }
    /// The bytes that were written.
    pub fn bytes(&self) -> &[u8] {
        self.held.bytes()
    }
    /// At most `limit` bytes of the unused rest, for a read or a copy.
    ///
    /// # Errors
    ///
    /// The operation was stopped or its deadline passed.
    pub fn spare_mut(&mut self, limit: usize) -> Result<&mut [u8], Error> {
        check(self.held.lease.pin())?;
        Ok(self.held.spare_mut(limit))
    }
    /// Notes that `count` bytes of the spare part were written.
    ///
    /// # Errors
    ///
    /// More than fit; then nothing changed.
    pub fn advance_written(&mut self, count: usize) -> Result<(), Error> {
        self.held.change(|meta| meta.advance(count))
    }
    /// Accepts what was written as output of the call: it counts against the output budget from now on.
    ///
    /// # Errors
    ///
    /// In each case the bytes are destroyed and nothing is counted: nothing was written; the output budget would be
    /// passed; the transfer was dropped; stopped or deadline.
    pub fn finish(self) -> Result<IoTransferChunk, Error> {
        let lease = &self.held.lease;
        check(lease.pin())?;
        if Window(lease.word().load()).is_closed(Direction::Output) {
            return Err(Error::denied(Denied::TransferClosed));
        }
        let written = self.held.meta().live().len();
        if written == 0 {
            return Err(Error::invalid(Invalid::EmptyChunk));
        }
        lease.accept(Direction::Output, written)?;
        Ok(IoTransferChunk { held: self.held })
    }
}

/// A chunk on its way, in either direction.
///
/// It holds its bytes, its place in the window, the transfer's slot and the operation, however long it is kept: after
/// the transfer, the call and the session are gone too. Dropping it frees the place and wakes whoever waits for one. It
/// is `Send + Sync + 'static + AsRef<[u8]>`, so `Bytes::from_owner(chunk)` works.
#[derive(Debug)]
#[must_use = "dropping a chunk frees its place in the window"]
pub struct IoTransferChunk {
    held: Held,
}

const _: () = assert!(size_of::<IoTransferChunk>() == 16, "a handle is two words");

impl IoTransferChunk {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.held.bytes()
    }
}

impl AsRef<[u8]> for IoTransferChunk {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
