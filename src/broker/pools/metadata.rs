//! Metadata that a protocol keeps beside its connections and requests: declared, charged, given back by the drop.
use super::epoch::Charge;
use super::pools::ProviderPools;
use crate::account::dimension::{Dimension, MIB};
use crate::broker::error::{Error, Invalid};

/// Bytes of one reservation, at most.
pub const PROTOCOL_METADATA_MAX: u64 = MIB;

/// Bytes of pool metadata, charged for as long as this lives: through the retirement of the registry too.
#[must_use = "dropping it gives the bytes back"]
pub struct ProviderMetadata {
    charge: Charge,
}

impl ProviderMetadata {
    /// How many bytes are charged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charge.bytes()
    }
}

impl std::fmt::Debug for ProviderMetadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderMetadata").field("bytes", &self.bytes()).finish()
    }
}

impl ProviderPools {
    /// Charges `bytes` (1 to 1 MiB) of what a protocol keeps for itself: session state, tables, parsed configuration.
    /// Control path: it counts at the node. The bytes themselves are the caller's to allocate.
    ///
    /// # Errors
    /// No bytes; more than 1 MiB, which never fits in one reservation; no metadata left; admission is closed.
    pub fn reserve_protocol_metadata(&self, bytes: u64) -> Result<ProviderMetadata, Error> {
        if bytes == 0 {
            return Err(Error::invalid(Invalid::Bounds));
        }
        let registry = self.registry_arc();
        if bytes > PROTOCOL_METADATA_MAX {
            return Err(registry.ground().refuse(Error::too_large(Dimension::PoolsMetadataBytes)));
        }
        registry.check_control()?;
        let charge = Charge::new(&registry.anchor, bytes).map_err(|full| registry.ground().refuse(full))?;
        Ok(ProviderMetadata { charge })
    }
}
