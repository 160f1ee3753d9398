//! What `Broker::new` makes: the one allocation that everything of a node stands in.
//!
//! A session slot of the root arena pins the ground; operations are pinned by their session, streams and transfers by
//! their operation. So whoever holds any lease can reach every word here, without a clone of an `Arc` per call, and
//! the memory goes when the last of them and the last handle are gone.
use crate::account::bytes::{BytesWord, TenantBytesWord};
use crate::account::dimension::Dimension;
use crate::account::gauge::Gauge;
use crate::account::jobs::JobsWord;
use crate::account::shares::SharesWord;
use crate::broker::bytes::Blocks;
use crate::broker::control::{Control, Counts};
use crate::broker::error::Error;
use crate::broker::limits::{BROKER_COSTS, BrokerLimits, IoLimits, PoolLimits};
use crate::broker::session::SessionSlot;
use crate::broker::slots::{StreamSlot, TransferSlot};
use crate::mem::arena::{Anchor, Lease, Nest, Root};
use crate::queue::credit::Credits;
use crate::queue::floor::{Floor, TENANTS};
use crate::queue::operation::Operation;
use crate::queue::spares::Spares;
use crate::sync::{Line, Rows};
use crate::time::Clock;
use std::sync::{Mutex, OnceLock, Weak};

/// A counted hold on a session.
pub(crate) type SessionLease = Lease<SessionSlot>;
/// A counted hold on an operation.
pub(crate) type OperationLease = Lease<Operation<SessionLease>>;
/// What keeps the ground alive where no session does: handles of the control path.
pub(crate) type GroundAnchor = Anchor<SessionSlot, Ground>;

/// How many session slots there are: the ceiling of `broker.sessions`.
pub(crate) const SESSIONS: usize = if cfg!(loom) { 2 } else { 4096 };
/// How many stream slots and how many transfer slots there are: the ceiling of `io.streams`.
pub(crate) const STREAMS: usize = if cfg!(loom) { 2 } else { 4096 };

/// The ground of a node.
#[derive(Debug)]
pub(crate) struct Ground {
    /// Operations, the node word, tenants, providers, the line.
    pub(crate) floor: Floor<SessionLease>,
    /// Staged bytes, result bytes and buffers of the node.
    pub(crate) bytes: Line<BytesWord>,
    /// Bytes of each tenant, by number; consulted only where a tenant's limit is below the node's.
    pub(crate) tenant_bytes: Rows<Line<TenantBytesWord>, TENANTS>,
    /// Streams, connections and idle connections.
    pub(crate) shares: Line<SharesWord>,
    /// Workers, cleanup jobs, connections being made, failed cleanups.
    pub(crate) jobs: Line<JobsWord>,
    pub(crate) broker_metadata: Gauge,
    pub(crate) io_metadata: Gauge,
    pub(crate) pool_metadata: Gauge,
    pub(crate) streams: Nest<StreamSlot>,
    pub(crate) transfers: Nest<TransferSlot>,
    pub(crate) limits: BrokerLimits,
    /// Set once, by the one `IoRuntime` of this broker.
    pub(crate) io: OnceLock<IoGround>,
    /// Set once, by the one registry of this broker; a second is refused for ever.
    pub(crate) pools: OnceLock<PoolLimits>,
    /// Set with `pools`.
    pub(crate) seats: OnceLock<Weak<dyn Seats>>,
    /// How many plans, tenants and providers there are, for snapshots, which take no lock.
    pub(crate) counts: Counts,
    /// The control path's own state: names, plans, registrations. Never taken on the hot path.
    pub(crate) control: Mutex<Control>,
}

/// Who knows the lines in which operations wait for connections.
pub(crate) trait Seats: std::fmt::Debug + Send + Sync {
    /// Takes an operation out of its seat whose wait was leaked: neither polled nor dropped before its call ended.
    fn vacate(&self, lease: &OperationLease);
}

/// What the I/O runtime adds.
#[derive(Debug)]
pub(crate) struct IoGround {
    pub(crate) limits: IoLimits,
    pub(crate) blocks: Blocks,
    /// Whether tenants have a byte limit of their own below the node's.
    pub(crate) tenant_bytes: bool,
    /// Who may keep a block ready.
    pub(crate) spares: Spares,
}

impl Ground {
    /// Lays the ground. Reserves address space for the absolute ceilings; commits a few pages. The limits are valid, and
    /// what all slots cost is within the metadata limit.
    pub(crate) fn lay(limits: BrokerLimits, clock: Clock) -> GroundAnchor {
        let beyond = limits.metadata_bytes - limits.prepaid(BROKER_COSTS);
        let broker_metadata = Gauge::new(Dimension::BrokerMetadataBytes, beyond);
        Root::new(
            SESSIONS,
            Ground {
                floor: Floor::new(clock, Credits::lent()),
                bytes: Line::new(BytesWord::new(0, 0, 0)),
                tenant_bytes: Rows::new(),
                shares: Line::new(SharesWord::new(0, 0, 0)),
                jobs: Line::new(JobsWord::new(0, 0, 0, 0)),
                broker_metadata,
                io_metadata: Gauge::new(Dimension::IoMetadataBytes, 0),
                pool_metadata: Gauge::new(Dimension::PoolsMetadataBytes, 0),
                streams: Nest::new(STREAMS),
                transfers: Nest::new(STREAMS),
                limits,
                io: OnceLock::new(),
                pools: OnceLock::new(),
                seats: OnceLock::new(),
                counts: Counts::default(),
                control: Mutex::new(Control::new()),
            },
        )
    }

    /// Counts a refusal by its dimension, if it has one, and passes it on. For the doors of the library: an attempt that is
    /// made again before the caller learns of it is no refusal.
    #[cold]
    pub(crate) fn refuse(&self, error: Error) -> Error {
        if let Some(dimension) = error.dimension() {
            self.floor.refusals.note(dimension);
        }
        error
    }

    /// The control state. Poisoning cannot lose anything: every change of it is whole before it is visible.
    #[cfg_attr(latent_realtime, sanitize(realtime = "blocking"))]
    pub(crate) fn control(&self) -> std::sync::MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
