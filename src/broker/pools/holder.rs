//! Who has a connection: an operation, of which it is the one connection, or a maintenance request.
use super::admission::PoolCall;
use super::maintenance::MaintenanceRequest;
use crate::broker::error::{Denied, Error};
use crate::broker::ground::{OperationLease, SessionLease};
use crate::broker::io::check_operation_at;
use crate::broker::session_core::SessionBits;
use crate::mem::arena::{End, Owner};
use crate::queue::operation::{Operation, State};
use sealed::Sealed;

/// Who may have connections of a client: a [`PoolCall`], or an [`IngressRequest`](super::IngressRequest), under the same
/// rules.
///
/// A maintenance request is none: it has connections of its own making only, and shares them with nobody. So this does not
/// compile:
///
/// ```compile_fail
/// use latent_capabilities::broker::pools::{MaintenanceRequest, ProviderClient, Resource};
/// fn takes_what_rests<T: Resource>(client: &ProviderClient<T>, request: &MaintenanceRequest) {
///     let _idle = client.checkout(request);
/// }
/// ```
pub trait Requester: Sealed {}

impl Requester for PoolCall {}
impl<R: Requester + ?Sized> Requester for &R {}

pub(super) mod sealed {
    use super::PoolCall;

    /// Whoever stands behind it, as the call that it is charged as.
    pub trait Sealed {
        fn call(&self) -> &PoolCall;
    }
    impl Sealed for PoolCall {
        fn call(&self) -> &PoolCall {
            self
        }
    }
    impl<R: Sealed + ?Sized> Sealed for &R {
        fn call(&self) -> &PoolCall {
            (**self).call()
        }
    }
}

/// The one connection that an operation may have of its client: a lease, and HOLDS in the operation's word (O6).
#[derive(Debug)]
pub(super) struct Claim {
    /// `None` where it is nobody's.
    lease: Option<Owner<Operation<SessionLease>, Holding>>,
}

#[derive(Debug)]
enum Holding {}

impl End<Operation<SessionLease>> for Holding {
    #[inline(always)]
    fn end(lease: OperationLease) {
        // The bit and the lease go in one step.
        lease.release_with(State::ONE_CONNECTION);
    }
}

impl Claim {
    /// For a connection, or for the right to make one.
    ///
    /// # Errors
    /// `SecondConnection`: the operation has one. `Busy`: it waits for one.
    pub(super) fn of(lease: &OperationLease) -> Result<Claim, Error> {
        match lease.duplicate_if(|bits| State(bits).with_connection()) {
            Ok(holding) => Ok(Claim::held(holding)),
            Err(bits) => Err(Claim::refused(State(bits))),
        }
    }
    /// HOLDS is set for this lease already.
    pub(super) fn held(lease: OperationLease) -> Claim {
        Claim { lease: Some(Owner::new(lease)) }
    }
    /// In the place of one, where nobody has a connection.
    pub(super) const fn nobodys() -> Claim {
        Claim { lease: None }
    }
    pub(super) const fn is_nobodys(&self) -> bool {
        self.lease.is_none()
    }
    /// Whether the operation may go on; and the time of this look.
    #[inline(always)]
    pub(super) fn check_at(&self) -> Result<u64, Error> {
        match &self.lease {
            Some(lease) => check_operation_at(lease),
            None => crate::broken::accounting("a connection was used after its operation let it go"),
        }
    }
    /// Whether the look asks a session's probe, which is foreign.
    #[inline(always)]
    pub(super) fn has_probe(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| SessionBits(lease.pin().word().load()).is_probed())
    }
    /// Why an operation gets no second one.
    pub(super) fn refused(state: State) -> Error {
        if state.is_seated() { Error::busy() } else { Error::denied(Denied::SecondConnection) }
    }
}

/// Who has a connection, or dials one.
#[derive(Debug)]
pub(super) enum Holder {
    /// The request's running units stay held as long.
    Operation(Claim),
    /// The permit's cleanup place stays held as long.
    Maintenance(MaintenanceRequest),
}

impl Holder {
    /// Whether it may go on.
    ///
    /// # Errors
    /// Stopped, over, or its epoch or its registry is.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Holder::Operation(claim) => claim.check_at().map(drop),
            Holder::Maintenance(request) => request.checkpoint(),
        }
    }
}
