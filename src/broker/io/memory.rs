//! Accounting for storage that is not the library's.
use crate::account::bytes::{Side, Units};
use crate::broker::bytes::ByteScopes;
use crate::broker::error::Error;
use crate::broker::ground::OperationLease;

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
