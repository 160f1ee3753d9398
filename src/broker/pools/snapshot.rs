//! What a registry holds, as counts.

/// Aggregate counts of a registry at about one moment. While limits are being lowered, for some microseconds, the units that
/// the lowering is about to take count as used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PoolSnapshot {
    /// Installed configurations.
    pub configurations: u64,
    /// Configurations that something still keeps, installed ones included.
    pub retained_configurations: u64,
    /// Clients.
    pub clients: u64,
    /// Connections that exist, dials in progress included.
    pub connections: u64,
    /// Connections in use.
    pub active_connections: u64,
    /// Connections that rest.
    pub idle_connections: u64,
    /// Dials in progress.
    pub connecting_connections: u64,
    /// Connections of replaced epochs.
    pub retired_connections: u64,
    /// Requests that wait or stage.
    pub pending_requests: u64,
    /// Requests that hold running units.
    pub running_requests: u64,
    /// Provider jobs.
    pub workers: u64,
    /// Cleanup jobs.
    pub cleanup_jobs: u64,
    /// Connections whose cleanup failed.
    pub failed_cleanup: u64,
    /// Bytes of metadata charged beyond the prepaid cost of owners.
    pub metadata_bytes: u64,
    /// Panics of foreign code on the control path: destructors of resources that nobody's call was destroying. They were
    /// contained; everything was given back.
    pub contained_panics: u64,
    /// Control tasks that still run: 1 until the drain of a retired registry is over.
    pub control_owners: u64,
    /// The control task was interrupted.
    pub control_failed: bool,
    /// Admission is closed.
    pub closed: bool,
    /// The registry is retired.
    pub retired: bool,
}

impl PoolSnapshot {
    /// Whether a retired registry has nothing left: no owner of any kind, its control task ended by itself, and no
    /// accounting was ever found broken.
    pub fn is_clean(&self) -> bool {
        self.retired
            && !self.control_failed
            && !crate::broken::is_broken()
            && self.control_owners == 0
            && self.is_idle()
            && self.idle_connections == 0
            && self.connections == 0
    }
    /// Whether nothing runs, waits or is being made. Idle connections may rest.
    pub fn is_idle(&self) -> bool {
        self.active_connections == 0
            && self.connecting_connections == 0
            && self.pending_requests == 0
            && (self.running_requests == 0 || planted!("clean_with_a_chunk_alive"))
            && self.workers == 0
            && self.cleanup_jobs == 0
            && self.failed_cleanup == 0
    }
}
