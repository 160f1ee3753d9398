//! Reservations for resource tables: the backing of a host's table, charged before it exists.

use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::broker::error::{Error, Invalid, StopCause};
use crate::broker::ground::SessionLease;
use crate::broker::session_core::{ONE_TABLE, SessionBits};

/// The largest table, in bytes.
pub const TABLE_BYTES_MAX: u32 = 65_536;

/// A charge of broker metadata for one resource table of a session.
///
/// It counts in the session's word and holds the session's slot: it may outlive the session, and while it lives the
/// session is not quiescent. It holds no operation and no running unit.
#[must_use = "dropping the reservation gives the bytes back"]
#[derive(Debug)]
pub struct ResourceTableReservation {
    /// `None` only while it is dropped.
    session: Option<SessionLease>,
    bytes: u32,
}

/// See [`CapabilitySession::reserve_resource_table`](super::CapabilitySession::reserve_resource_table).
pub(crate) fn reserve(session: &SessionLease, bytes: u32) -> Result<ResourceTableReservation, Error> {
    if bytes == 0 {
        return Err(Error::invalid(Invalid::ZeroLimit));
    }
    if bytes > TABLE_BYTES_MAX {
        return Err(Error::too_large(Dimension::BrokerMetadataBytes));
    }
    let metadata = &session.shared().broker_metadata;
    metadata.charge(u64::from(bytes))?;
    refusable!(Dimension::BrokerMetadataBytes, {
        metadata.give(u64::from(bytes));
        Error::full(Dimension::BrokerMetadataBytes, Scope::Session)
    });
    match session.duplicate_if(|bits| SessionBits(bits).with_table()) {
        Ok(held) => Ok(ResourceTableReservation { session: Some(held), bytes }),
        Err(bits) => {
            metadata.give(u64::from(bytes));
            Err(if SessionBits(bits).is_stopped() {
                Error::stopped(StopCause::Session)
            } else {
                Error::full(Dimension::BrokerMetadataBytes, Scope::Session)
            })
        }
    }
}

impl ResourceTableReservation {
    /// How many bytes are charged.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }
}

impl Drop for ResourceTableReservation {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.shared().broker_metadata.give(u64::from(self.bytes));
            session.release_with(ONE_TABLE);
        }
    }
}
