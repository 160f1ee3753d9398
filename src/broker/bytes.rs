//! Byte blocks of operations: what they are charged to, what is kept beside each, and how they go back.
use crate::account::bytes::{BytesWord, Side, TenantBytesWord, Tightness, Units};
use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::broker::error::{Error, Invalid};
use crate::broker::ground::{Ground, IoGround, OperationLease, SessionLease};
use crate::broker::slots::StreamLease;
use crate::mem::arena::{Leased, Returns};
use crate::mem::blocks::{self, Block};
use crate::queue::operation::Operation;
use crate::sync::{Zero, order};

/// What the I/O runtime added to the ground of an operation.
#[inline]
pub(crate) fn io(lease: &OperationLease) -> &IoGround {
    match lease.shared().io.get() {
        Some(io) => io,
        None => crate::broken::accounting("an operation was admitted before its I/O runtime was made"),
    }
}

/// Where the bytes of an operation are charged: its tenant, if tenants have a limit below the node's, and the node.
///
/// Takes from the narrow word first, and gives it back if the wide one refuses: a refusal leaves nothing charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteScopes<'a> {
    ground: &'a Ground,
    io: &'a IoGround,
    tenant: Option<(u16, &'a TenantBytesWord)>,
}

impl<'a> ByteScopes<'a> {
    #[inline]
    pub(crate) fn of(lease: &'a OperationLease) -> Self {
        let (ground, io) = (lease.shared(), io(lease));
        let tenant = io.tenant_bytes.then(|| {
            let number = lease.pin().tenant.load(order::COUNT);
            (number, &*ground.tenant_bytes[usize::from(number)])
        });
        ByteScopes { ground, io, tenant }
    }

    pub(crate) fn io(&self) -> &'a IoGround {
        self.io
    }
    pub(crate) fn ground(&self) -> &'a Ground {
        self.ground
    }
    #[inline]
    pub(crate) fn blocks(&self) -> &'a Blocks {
        &self.io.blocks
    }

    /// Whether a chunk can have so many bytes.
    #[inline(always)]
    fn fits(&self, bytes: usize) -> bool {
        (bytes as u64).wrapping_sub(1) < self.io.limits.chunk_bytes
    }

    /// Refuses a size that no chunk can have.
    pub(crate) fn check_size(&self, bytes: usize) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Error::invalid(Invalid::EmptyChunk));
        }
        if bytes as u64 > self.io.limits.chunk_bytes {
            return Err(self.ground.refuse(Error::too_large(Dimension::IoChunkBytes)));
        }
        Ok(())
    }

    /// Charges one staged block of `size`, and its buffer, or nothing, without saying why.
    #[inline(always)]
    fn reserve_staged(&self, size: Units) -> bool {
        if let Some((_, tenant)) = self.tenant
            && tenant.reserve(1, size).is_err()
        {
            return false;
        }
        let reserved = self.ground.bytes.reserve(Side::Staged, size).is_ok();
        if !reserved && let Some((_, tenant)) = self.tenant {
            tenant.give(1, size);
        }
        reserved
    }

    /// Charges `count` blocks of `size` each, and as many buffers, to one side. All or nothing.
    #[inline]
    pub(crate) fn reserve(&self, side: Side, count: u32, size: Units) -> Result<(), Error> {
        self.reserve_from_rest(side, count, size).or_else(|_| self.reserve_from_all(side, count, size))
    }

    /// The same from what no operation keeps ready.
    fn reserve_from_rest(&self, side: Side, count: u32, size: Units) -> Result<(), Error> {
        if let Some((number, tenant)) = self.tenant {
            tenant.reserve(count, size).map_err(|full| Error::full(full, Scope::Tenant(number)))?;
        }
        self.ground.bytes.reserve_window(side, count, size).map_err(|full| {
            if let Some((_, tenant)) = self.tenant {
                tenant.give(count, size);
            }
            Error::full(full, Scope::Node)
        })
    }

    /// Before anything is refused, what operations keep ready comes back, and none begins to keep anything.
    #[cold]
    fn reserve_from_all(&self, side: Side, count: u32, size: Units) -> Result<(), Error> {
        loop {
            let tight = take_back_kept(self.ground, self.io);
            match self.reserve_from_rest(side, count, size) {
                Ok(()) => return Ok(()),
                Err(full) if self.ground.bytes.tightness() == tight => return Err(self.ground.refuse(full)),
                // Somebody saw half of everything free meanwhile.
                Err(_) => {}
            }
        }
    }

    /// Gives back what [`Self::reserve`] charged.
    #[inline]
    pub(crate) fn give(&self, side: Side, count: u32, size: Units) {
        self.ground.bytes.give_window(side, count, size);
        if let Some((_, tenant)) = self.tenant {
            tenant.give(count, size);
        }
    }

    /// Moves one block from the staged to the result side, in one step of the node's word. Its tenant has it either way.
    #[inline]
    pub(crate) fn retain(&self, size: Units) -> Result<(), Error> {
        self.ground.bytes.retain(size).map_err(|full| self.ground.refuse(Error::full(full, Scope::Node)))
    }

    /// Charges declared protocol metadata.
    #[inline]
    pub(crate) fn frame(&self, framing: u32) -> Result<(), Error> {
        if framing == 0 {
            return Ok(());
        }
        self.ground.io_metadata.charge(u64::from(framing)).map_err(|full| self.ground.refuse(full.into()))
    }

    /// Gives declared protocol metadata back.
    #[inline]
    pub(crate) fn unframe(&self, framing: u32) {
        if framing > 0 {
            self.ground.io_metadata.give(u64::from(framing));
        }
    }
}

/// Takes back the blocks that operations keep ready. Control path, and the way to a refusal.
fn take_back_kept(ground: &Ground, io: &IoGround) -> Tightness {
    io.spares.take_back(&ground.bytes, &ground.floor.operations, take_back)
}

/// The same, if any operation keeps one: before bytes are counted.
pub(crate) fn settle_kept(ground: &Ground) {
    if let Some(io) = ground.io.get()
        && !io.spares.are_none()
    {
        take_back_kept(ground, io);
    }
}

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
    /// Makes the record of a block that was free that of a fresh one. Nothing else is written: what is written here in parts
    /// is read in the same parts.
    #[inline(always)]
    fn begin(&mut self, capacity: usize, framing: u32, charge: Charge) {
        if self.stream.is_some() {
            crate::broken::accounting("a free block is held by a stream");
        }
        // A capacity is at most the ceiling of a chunk, 1 MiB.
        self.capacity = capacity as u32;
        (self.written, self.cursor, self.framing, self.charge) = (0, 0, framing, charge);
    }
    pub(crate) fn charge(&self) -> Charge {
        self.charge
    }
    /// Whether the block is charged to the staged side, if need be by moving its charge back.
    #[inline(always)]
    fn is_staged_again(&mut self, bytes: &BytesWord, size: usize) -> bool {
        // Asked one after the other: a jump by a table would cost more than both.
        if self.charge == Charge::Staged {
            return true;
        }
        let again = self.charge == Charge::Result && bytes.unretain(Units::of_block(size));
        if again {
            self.charge = Charge::Staged;
        }
        again
    }
    /// What its owner has to give back, which is told once.
    #[inline(always)]
    pub(crate) fn take_charge(&mut self) -> Charge {
        std::mem::take(&mut self.charge)
    }
    pub(crate) fn capacity(&self) -> usize {
        self.capacity as usize
    }
    /// How long it is, if a stream of which `most` bytes are left may deliver it.
    #[inline(always)]
    fn deliverable(&self, most: u64) -> Option<u64> {
        // Never below the cursor.
        let length = u64::from(self.written - self.cursor);
        let is_one = self.charge == Charge::Result && self.stream.is_none();
        (is_one && length != 0 && length <= most).then_some(length)
    }
    /// The written bytes that were not consumed, as a range of the block.
    pub(crate) fn live(&self) -> std::ops::Range<usize> {
        self.cursor as usize..self.written as usize
    }
    /// At most `limit` bytes after the written ones, as a range of the block.
    pub(crate) fn spare(&self, limit: usize) -> std::ops::Range<usize> {
        let start = self.written as usize;
        start..start + limit.min(self.capacity as usize - start)
    }
    pub(crate) fn check_staged(&self) -> Result<(), Error> {
        if self.charge == Charge::Result { Err(Error::invalid(Invalid::NotStaged)) } else { Ok(()) }
    }
    /// `count` bytes at the front are done with.
    pub(crate) fn consume(&mut self, count: usize) -> Result<(), Error> {
        if count > self.live().len() {
            return Err(Error::invalid(Invalid::PastCapacity));
        }
        self.cursor += count as u32;
        Ok(())
    }
    /// `count` more bytes were written.
    pub(crate) fn advance(&mut self, count: usize) -> Result<(), Error> {
        if count > (self.capacity - self.written) as usize {
            return Err(Error::invalid(Invalid::PastCapacity));
        }
        self.written += count as u32;
        Ok(())
    }
}

/// A block for what is charged already.
///
/// Blocks go back before their charges do, and each class has as many blocks as can be charged, so one is free.
#[inline(always)]
pub(crate) fn charged_block(scopes: &ByteScopes<'_>, capacity: usize, framing: u32, charge: Charge) -> Block {
    match scopes.blocks().take_with(capacity, |meta| meta.begin(capacity, framing, charge)) {
        Some(block) => block,
        None => crate::broken::accounting("bytes were charged but no block is free"),
    }
}

/// A charged block of one operation: what is inside a buffer, and what lies in the ring of a stream. Two words.
#[derive(Debug)]
pub(crate) struct Charged(Leased<Operation<SessionLease>>);

impl Charged {
    /// A block of `capacity` bytes (1 to a chunk) on the staged side, with declared metadata; or nothing charged.
    pub(crate) fn stage(lease: &OperationLease, capacity: usize, framing: u32) -> Result<Charged, Error> {
        let scopes = ByteScopes::of(lease);
        scopes.check_size(capacity)?;
        let size = Units::of_block(Blocks::rounded(capacity));
        scopes.reserve(Side::Staged, 1, size)?;
        if let Err(full) = scopes.frame(framing) {
            scopes.give(Side::Staged, 1, size);
            return Err(full);
        }
        let block = charged_block(&scopes, capacity, framing, Charge::Staged);
        Ok(Charged(Leased::new(lease.duplicate(), block)))
    }
    /// The same for a call, without metadata, or nothing without saying why: what most calls come to. Two registers, where a
    /// result that can be an error goes through memory.
    ///
    /// The block that the call keeps ready is charged, leased and clean: it takes one step.
    #[inline(always)]
    pub(crate) fn stage_at_once(lease: &OperationLease, capacity: usize) -> Option<Charged> {
        let scopes = ByteScopes::of(lease);
        match lease.find_spare(|block| scopes.blocks().serves(block, capacity)) {
            Some((lease, mut block)) if scopes.fits(capacity) => {
                scopes.blocks().meta_mut(&mut block).begin(capacity, 0, Charge::Staged);
                Some(Charged(Leased::new(lease, block)))
            }
            // Too large for a chunk, if not for the block: it goes back by its drop.
            Some((lease, block)) => {
                drop(Charged(Leased::new(lease, block)));
                None
            }
            None => {
                let staged = Self::stage_from_node(lease, capacity)?;
                begin_to_keep(&scopes, lease);
                Some(staged)
            }
        }
    }
    /// The same for any operation, and nothing of what is kept.
    #[inline(never)]
    pub(crate) fn stage_from_node(lease: &OperationLease, capacity: usize) -> Option<Charged> {
        let scopes = ByteScopes::of(lease);
        if !scopes.fits(capacity) || !scopes.reserve_staged(Units::of_block(Blocks::rounded(capacity))) {
            return None;
        }
        let block = charged_block(&scopes, capacity, 0, Charge::Staged);
        Some(Charged(Leased::new(lease.duplicate(), block)))
    }
    /// The operation that it belongs to.
    #[inline]
    pub(crate) fn operation(&self) -> &OperationLease {
        self.0.lease()
    }
    #[inline]
    pub(crate) fn meta(&self) -> &BlockMeta {
        self.blocks().meta(self.0.block())
    }
    #[inline]
    fn blocks(&self) -> &Blocks {
        &io(self.0.lease()).blocks
    }
    /// The record, to be changed.
    #[inline]
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut BlockMeta) -> R) -> R {
        let (block, blocks) = self.parts();
        change(blocks.meta_mut(block))
    }
    #[inline]
    fn parts(&mut self) -> (&mut Block, &Blocks) {
        let (block, lease) = self.0.parts();
        (block, &io(lease).blocks)
    }
    /// Bytes of the block.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.blocks().capacity(self.0.block())
    }
    /// The bytes that were written and not consumed.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let blocks = self.blocks();
        &blocks.bytes(self.0.block())[blocks.meta(self.0.block()).live()]
    }
    /// The bytes of a range of the block, for writing.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        let (block, blocks) = self.parts();
        blocks.bytes_mut(block, range)
    }
    /// Moves the charge from the staged to the result side, in one step.
    pub(crate) fn retain(&mut self) -> Result<(), Error> {
        ByteScopes::of(self.0.lease()).retain(Units::of_block(self.size()))?;
        self.change(|meta| meta.charge = Charge::Result);
        Ok(())
    }
    /// Whether a stream has delivered it, or is to.
    pub(crate) fn is_delivered(&self) -> bool {
        self.meta().stream.is_some()
    }
    /// A stream is to deliver it: it holds the stream's slot from now on. Gives its length. `blocks` are the node's, which the
    /// stream has at hand. None, and nothing changed: it is not a result, a stream has delivered it, it is empty, or longer than
    /// `most`.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        blocks: &Blocks,
        most: u64,
        stream: impl FnOnce() -> StreamLease,
    ) -> Option<u64> {
        let meta = blocks.meta_mut(self.0.parts().0);
        let length = meta.deliverable(most)?;
        meta.stream = Some(stream());
        Some(length)
    }
    /// Whether [`deliver`](Self::deliver) would.
    pub(crate) fn is_deliverable(&self, most: u64) -> bool {
        self.meta().deliverable(most).is_some()
    }
}

impl Returns for Operation<SessionLease> {
    /// A block without metadata stays with a call that takes buffer after buffer, on the staged side; all others go back.
    #[inline(never)]
    fn come_back(mut lease: OperationLease, mut block: Block) {
        let mut stream = None;
        if lease.has_room_for_spare() {
            let scopes = ByteScopes::of(&lease);
            // Clean before anybody else can have it, its operation included.
            let ready = scopes.blocks().wipe_if(&mut block, |meta, size| {
                let ready = meta.framing == 0 && meta.is_staged_again(&scopes.ground.bytes, size);
                if ready {
                    stream = meta.stream.take();
                }
                ready
            });
            if ready {
                match lease.leave_spare(block) {
                    Ok(()) => return,
                    Err(both) => (lease, block) = both,
                }
            }
        }
        give_back(&lease, block);
        drop(stream);
    }
}

/// How many buffers a call takes from the node before it begins to keep one: most calls take one or two, and would only have
/// the steps of beginning and ending.
const BEFORE_KEEPING: u32 = 2;

/// How many more it takes from the node, because what it keeps is of another size, before that goes back.
const BEFORE_CHANGING: u32 = 8;

/// A call that has taken some buffers keeps one ready from now on, unless bytes are short.
#[inline(always)]
fn begin_to_keep(scopes: &ByteScopes<'_>, lease: &OperationLease) {
    let taken = lease.buffers_taken.load(order::COUNT);
    // A lost count only delays it.
    let count = |taken| lease.buffers_taken.store(taken, order::COUNT);
    if taken < BEFORE_KEEPING {
        count(taken + 1);
    } else if lease.is_spare_shut() {
        open_spare(scopes, lease);
    } else if !lease.has_room_for_spare() {
        if taken < BEFORE_KEEPING + BEFORE_CHANGING {
            count(taken + 1);
        } else {
            count(BEFORE_KEEPING);
            if let Some((lease, block)) = lease.find_spare(|_| true) {
                take_back(lease, block);
            }
        }
    }
}

#[cold]
#[inline(never)]
fn open_spare(scopes: &ByteScopes<'_>, lease: &OperationLease) {
    scopes.io.spares.begin(&scopes.ground.bytes, lease, take_back);
}

/// The call of this lease ends, which is the one that could take buffers: nothing is kept for it any more.
/// By value, so that the lease of those that keep nothing stays in its register.
#[inline(always)]
pub(crate) fn end_keeping(lease: OperationLease) -> OperationLease {
    if lease.has_spare() { close_spare(lease) } else { lease }
}

#[cold]
#[inline(never)]
fn close_spare(lease: OperationLease) -> OperationLease {
    io(&lease).spares.end(&lease, take_back);
    lease
}

/// What was kept ready goes back.
#[cold]
fn take_back(lease: OperationLease, block: Block) {
    give_back(&lease, block);
}

/// The block, then what it was charged to, then what delivered it.
#[inline(never)]
fn give_back(lease: &OperationLease, block: Block) {
    let scopes = ByteScopes::of(lease);
    // Wiped and listed before its charge is given back: whoever is charged next finds it.
    let (stream, framing, charge, size) = scopes.blocks().give_with(block, |meta, size| {
        (meta.stream.take(), meta.framing, meta.take_charge(), Units::of_block(size))
    });
    match charge {
        Charge::Staged => scopes.give(Side::Staged, 1, size),
        Charge::Result => scopes.give(Side::Result, 1, size),
        Charge::None | Charge::WindowInput | Charge::WindowOutput => {
            crate::broken::accounting_in_drop("a buffer without a charge of its own");
        }
    }
    scopes.unframe(framing);
    drop(stream);
}
