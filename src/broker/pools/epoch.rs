//! Installed configurations: immutable, numbered, each with its own instance tag.
use crate::account::provider::ProviderWord;
use crate::broker::control::Logical;
use crate::broker::error::Error;
use crate::broker::ground::{Ground, GroundAnchor};
use crate::broker::plan::ProviderRef;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::order;
use std::sync::Arc;
use zeroize::Zeroize;

/// The number of a configuration, as the operator counts them. A replacement must have a larger one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Nothing is installed.
    pub const NONE: Epoch = Epoch(0);
}

/// Which of a provider's approved origins a client is for. The adapter maps its origins to slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OriginSlot(u16);

impl OriginSlot {
    /// The slot with this number.
    pub const fn new(number: u16) -> Self {
        OriginSlot(number)
    }
    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// Private bytes: zeros once they are dropped, never printed.
pub(crate) struct Credentials {
    bytes: Box<[u8]>,
}

impl Credentials {
    fn new(bytes: &[u8]) -> Self {
        Credentials { bytes: bytes.into() }
    }
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    pub(super) fn wipe(&mut self) {
        // On the slice: a vector would be wiped byte by byte.
        self.bytes.zeroize();
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// What is to be installed.
///
/// It has no `Debug`: the credentials it carries are shown nowhere.
#[must_use = "a setup does nothing until it is installed"]
#[expect(missing_debug_implementations, reason = "the credentials it carries are shown nowhere")]
pub struct ProviderSetup {
    pub(crate) name: String,
    pub(crate) authority: String,
    pub(crate) epoch: Epoch,
    pub(crate) digest: String,
    pub(crate) credentials: Credentials,
}

impl ProviderSetup {
    /// A configuration of the logical provider `name`, speaking for the public identity `authority`. Epoch 1, no digest,
    /// no credentials.
    pub fn new(name: &str, authority: &str) -> Self {
        ProviderSetup {
            name: name.to_owned(),
            authority: authority.to_owned(),
            epoch: Epoch(1),
            digest: String::new(),
            credentials: Credentials::new(&[]),
        }
    }
    /// Its number; must be larger than the one it replaces.
    pub fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = Epoch(epoch);
        self
    }
    /// A digest of the public configuration. It must not be made from credentials.
    pub fn digest(mut self, digest: impl Into<String>) -> Self {
        self.digest = digest.into();
        self
    }
    /// Private bytes for the adapter: copied into storage that is zeroed on drop. The caller's copy is its own to wipe. How
    /// many there may be, `pools.configuration_bytes`, is checked at the installation.
    pub fn credentials(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.credentials = Credentials::new(bytes.as_ref());
        self
    }
}

/// The counts of an epoch. They outlive it by a moment, hold nothing of it, and are what snapshots read.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The logical provider's number and the instance tag.
    pub(crate) provider: u16,
    pub(crate) tag: u32,
    /// The name and the number of the configuration, for whoever lists epochs.
    pub(super) name: Arc<str>,
    pub(super) number: Epoch,
    /// Connections of this epoch, idle ones and dials included.
    connections: AtomicU64,
    kept: AtomicBool,
}

impl Tally {
    pub(super) fn new(logical: &Logical, tag: u32, number: Epoch) -> Tally {
        Tally {
            provider: logical.number(),
            tag,
            name: logical.shared_name().clone(),
            number,
            connections: AtomicU64::new(0),
            kept: AtomicBool::new(true),
        }
    }
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(order::OBSERVE)
    }
    /// Whether anything still keeps the epoch's private bytes.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.load(order::OBSERVE)
    }
}

/// The immutable part of an installed configuration. Plans, clients and handles keep it; the private bytes are wiped when
/// the last of them is gone, on the control path.
pub(crate) struct EpochData {
    pub(crate) number: Epoch,
    pub(crate) authority: String,
    pub(crate) digest: String,
    pub(crate) credentials: Credentials,
    pub(crate) tally: Arc<Tally>,
}

impl Drop for EpochData {
    fn drop(&mut self) {
        self.credentials.wipe();
        self.tally.kept.store(false, order::PUBLISH);
    }
}

/// Bytes of pool metadata that are charged as long as this lives.
pub(crate) struct Charge {
    anchor: GroundAnchor,
    bytes: u64,
}

impl Charge {
    /// Charges `bytes` in the ground of `anchor`.
    pub(super) fn new(anchor: &GroundAnchor, bytes: u64) -> Result<Charge, Error> {
        anchor.shared().pool_metadata.charge(bytes)?;
        Ok(Charge { anchor: anchor.clone(), bytes })
    }
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.anchor.shared().pool_metadata.give(self.bytes);
    }
}

/// One installed configuration, with the ground that it was installed in. Plans do not keep this: they stand in that
/// ground themselves.
pub(crate) struct EpochCore {
    pub(crate) logical: Arc<Logical>,
    pub(crate) tag: u32,
    pub(crate) data: Arc<EpochData>,
    /// Goes last.
    charge: Charge,
}

impl EpochCore {
    pub(super) fn new(logical: Arc<Logical>, tag: u32, data: Arc<EpochData>, charge: Charge) -> EpochCore {
        EpochCore { logical, tag, data, charge }
    }
    pub(crate) fn ground(&self) -> &Ground {
        self.charge.anchor.shared()
    }
    fn word(&self) -> &ProviderWord {
        &self.ground().floor.providers[usize::from(self.logical.number())]
    }
    pub(super) fn take_connection(&self) {
        self.data.tally.connections.fetch_add(1, order::STEP);
    }
    pub(super) fn give_connection(&self) {
        if self.data.tally.connections.fetch_sub(1, order::STEP) == 0 {
            crate::broken::accounting_in_drop("an epoch lost a connection that it did not have");
        }
    }
    /// Whether it is still the current one of its logical provider.
    pub(crate) fn is_current(&self) -> bool {
        self.word().tag() == self.tag
    }
    /// Nothing is admitted or started on it after this step. `false`: that was so before.
    pub(super) fn take_out(&self) -> bool {
        self.word().swap_tag(self.tag, 0).is_ok()
    }
    /// Whether the books alone keep it. With the books held: they keep one reference, and nobody can clone it.
    pub(super) fn is_unused(this: &Arc<EpochCore>) -> bool {
        // Plans keep the data without the core.
        Arc::strong_count(this) == 1 && Arc::strong_count(&this.data) == 1
    }
}

impl std::fmt::Debug for EpochCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoch")
            .field("name", &self.logical.name())
            .field("number", &self.data.number.0)
            .field("authority", &self.data.authority)
            .field("digest", &self.data.digest)
            .finish_non_exhaustive()
    }
}

/// An installed provider configuration. Clones are handles to the same one (control path).
#[derive(Clone)]
pub struct InstalledProvider {
    /// Goes before the reference, which keeps the data.
    pub(crate) core: Arc<EpochCore>,
    pub(crate) reference: ProviderRef,
}

impl InstalledProvider {
    /// What a plan binds to. A plan that is bound to it keeps this epoch.
    pub fn reference(&self) -> ProviderRef {
        self.reference.clone()
    }
    /// The logical name.
    pub fn name(&self) -> &str {
        self.core.logical.name()
    }
    /// The configuration's number.
    pub fn epoch(&self) -> Epoch {
        self.core.data.number
    }
    /// The public identity that it speaks for.
    pub fn authority(&self) -> &str {
        &self.core.data.authority
    }
    /// The digest of the public configuration.
    pub fn digest(&self) -> &str {
        &self.core.data.digest
    }
    /// Whether it is still the one that new requests go to.
    pub fn is_current(&self) -> bool {
        self.core.is_current()
    }
    /// Lends the private bytes to trusted adapter code. Do not copy them anywhere that is not wiped.
    pub fn with_credentials<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(self.core.data.credentials.bytes())
    }
}

impl std::fmt::Debug for InstalledProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core.fmt(f)
    }
}
