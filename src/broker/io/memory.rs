//! The byte words as one operation sees them, and accounting without storage.
use crate::account::bytes::{Side, TenantBytesWord, Units};
use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::broker::error::{Error, Invalid};
use crate::broker::ground::{Ground, IoGround, OperationLease};
use crate::broker::io::buffer::Blocks;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Backoff, order};

/// What the I/O runtime added to the ground of an operation.
#[inline]
pub(super) fn io(lease: &OperationLease) -> &IoGround {
    match lease.shared().io.get() {
        Some(io) => io,
        None => crate::broken::accounting("an operation was admitted before its I/O runtime was made"),
    }
}

/// Where the bytes of an operation are charged: its tenant, if tenants have a limit below the node's, and the node.
///
/// Takes from the narrow word first, and gives it back if the wide one refuses: a refusal leaves nothing charged.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteScopes<'a> {
    ground: &'a Ground,
    io: &'a IoGround,
    tenant: Option<(u16, &'a TenantBytesWord)>,
}

impl<'a> ByteScopes<'a> {
    #[inline]
    pub(super) fn of(lease: &'a OperationLease) -> Self {
        let (ground, io) = (lease.shared(), io(lease));
        let tenant = io.tenant_bytes.then(|| {
            let number = lease.pin().tenant.load(order::COUNT);
            (number, &*ground.tenant_bytes[usize::from(number)])
        });
        ByteScopes { ground, io, tenant }
    }

    pub(super) fn io(&self) -> &'a IoGround {
        self.io
    }
    pub(super) fn ground(&self) -> &'a Ground {
        self.ground
    }
    #[inline]
    pub(super) fn blocks(&self) -> &'a Blocks {
        &self.io.blocks
    }

    /// Refuses a size that no chunk can have.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Error::invalid(Invalid::EmptyChunk));
        }
        if bytes as u64 > self.io.limits.chunk_bytes {
            return Err(Error::too_large(Dimension::IoChunkBytes));
        }
        Ok(())
    }

    /// Charges `count` blocks of `size` each, and as many buffers, to one side. All or nothing.
    #[inline]
    pub(super) fn reserve(&self, side: Side, count: u32, size: Units) -> Result<(), Error> {
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

    /// Gives back what [`Self::reserve`] charged.
    #[inline]
    pub(super) fn give(&self, side: Side, count: u32, size: Units) {
        self.ground.bytes.give_window(side, count, size);
        if let Some((_, tenant)) = self.tenant {
            tenant.give(count, size);
        }
    }

    /// Moves one block from the staged to the result side, in one step of the node's word. Its tenant has it either way.
    #[inline]
    pub(super) fn retain(&self, size: Units) -> Result<(), Error> {
        self.ground.bytes.retain(size).map_err(|full| Error::full(full, Scope::Node))
    }

    /// Charges declared protocol metadata.
    #[inline]
    pub(super) fn frame(&self, framing: u32) -> Result<(), Error> {
        if framing == 0 {
            return Ok(());
        }
        Ok(self.ground.io_metadata.charge(u64::from(framing))?)
    }

    /// Gives declared protocol metadata back.
    #[inline]
    pub(super) fn unframe(&self, framing: u32) {
        if framing > 0 {
            self.ground.io_metadata.give(u64::from(framing));
        }
    }
}

/// Spends `amount` of a cumulative permission, which only grows towards its limit; or nothing.
pub(super) fn spend(spent: &AtomicU64, limit: u64, amount: u64) -> Result<(), Spent> {
    let mut backoff = Backoff::new();
    let mut before = spent.load(order::COUNT);
    loop {
        // Never above the limit, so the difference exists.
        if amount > limit - before {
            return Err(Spent);
        }
        match spent.compare_exchange_weak(before, before + amount, order::COUNT, order::COUNT) {
            Ok(_) => return Ok(()),
            Err(found) => before = found,
        }
        backoff.lost();
    }
}

/// A cumulative permission has less left than was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// Staged bytes and metadata charged for storage that is not the library's: a parser's scratch space, a decoded input
/// that lives elsewhere. It counts as one buffer and holds its operation until it is dropped.
///
/// Accounting only: it has no storage. Bytes are rounded up to 512.
#[must_use = "dropping it gives the charge back"]
pub struct IoMemory {
    lease: OperationLease,
    units: Units,
    framing: u32,
}

/// Charges `bytes` (1 to a chunk) of foreign storage and `framing` bytes of metadata to an operation, or nothing.
pub(super) fn reserve(lease: &OperationLease, bytes: usize, framing: u32) -> Result<IoMemory, Error> {
    let scopes = ByteScopes::of(lease);
    scopes.check_size(bytes)?;
    let units = Units::of_block(bytes.next_multiple_of(crate::mem::blocks::SMALLEST));
    scopes.reserve(Side::Staged, 1, units)?;
    if let Err(full) = scopes.frame(framing) {
        scopes.give(Side::Staged, 1, units);
        return Err(full);
    }
    Ok(IoMemory { lease: lease.duplicate(), units, framing })
}

impl IoMemory {
    /// Bytes that are charged.
    pub fn charged_bytes(&self) -> u64 {
        self.units.bytes()
    }
    /// Bytes of metadata that are charged.
    pub fn framing(&self) -> u32 {
        self.framing
    }
}

impl Drop for IoMemory {
    fn drop(&mut self) {
        let scopes = ByteScopes::of(&self.lease);
        scopes.give(Side::Staged, 1, self.units);
        scopes.unframe(self.framing);
    }
}

impl std::fmt::Debug for IoMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("IoMemory");
        shown.field("charged_bytes", &self.charged_bytes()).field("framing", &self.framing).finish()
    }
}
