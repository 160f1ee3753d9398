//! What the models of this floor stand on: a session without a plan, in the ground's place.
use super::credit::Credits;
use super::floor::{Floor, Tenure};
use super::operation::{Cause, Numbers, Operation, State, Step};
use super::watched::Watched;
use crate::account::charge::Request;
use crate::mem::arena::{Anchor, Ending, Lease, Occupant, Root, RootPin};
use crate::time::Clock;

/// The ground of a model.
#[derive(Debug)]
pub struct Ground {
    pub floor: Floor<Lease<Session>>,
}

/// A session: whether it is stopped stands in bit 0 of its word, one call is bit 8 and up.
#[derive(Debug, Default)]
pub struct Session {
    pub watched: Watched,
}

pub const STOPPED: u64 = 1;
pub const ONE_CALL: u64 = 1 << 8;

impl Occupant for Session {
    type Pin = RootPin<Session, Ground>;
    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

impl Tenure for Lease<Session> {
    fn floor(shared: &Ground) -> &Floor<Self> {
        &shared.floor
    }
    fn stopped(&self) -> Option<Cause> {
        (self.word().load().user() & STOPPED != 0).then_some(Cause::Session)
    }
    fn watch(&self, operation: u16) {
        self.watched.set(operation);
    }
    fn unwatch(&self, operation: u16) {
        self.watched.clear(operation);
    }
    fn probe(&self) -> Option<bool> {
        None
    }
    fn leave(self) {
        self.release_with(ONE_CALL);
    }
}

pub type OperationLease = Lease<Operation<Lease<Session>>>;

/// A ground with so many running units, tenant and provider 0 (tag 1) with so many.
pub fn lay(running: u32, tenant: u32, provider: u32) -> Anchor<Session, Ground> {
    lay_with(Credits::none(), running, tenant, provider)
}

/// The same, with credits.
pub fn lay_lending(running: u32, tenant: u32, provider: u32) -> Anchor<Session, Ground> {
    lay_with(Credits::lent(), running, tenant, provider)
}

fn lay_with(credits: Credits, running: u32, tenant: u32, provider: u32) -> Anchor<Session, Ground> {
    let anchor = Root::new(2, Ground { floor: Floor::new(Clock::system(), credits) });
    let floor = &anchor.shared().floor;
    floor.node.open_io(4, 4, running);
    floor.node.open_pools(4, running);
    floor.tenants[0].open(4, tenant);
    floor.tenants[1].open(4, tenant);
    floor.providers[0].open(4, provider);
    assert!(floor.providers[0].swap_tag(0, 1).is_ok());
    anchor
}

pub fn open(anchor: &Anchor<Session, Ground>) -> Lease<Session> {
    match anchor.take(2, |_| {}) {
        Ok(session) => session,
        Err(_) => panic!("a model has room for its sessions"),
    }
}

/// Admits a request of tenant `tenant` to provider 0; `None` for direct I/O.
pub fn admit(session: &Lease<Session>, tenant: Option<u16>, now: bool) -> Option<OperationLease> {
    admit_until(session, tenant, now, u64::MAX, u64::MAX)
}

/// The same with a deadline and a queue age.
pub fn admit_until(
    session: &Lease<Session>,
    tenant: Option<u16>,
    now: bool,
    deadline: u64,
    queue_until: u64,
) -> Option<OperationLease> {
    let pin = session
        .duplicate_if(|bits| {
            (bits.user() & STOPPED == 0).then(|| bits.with_user(bits.user() + ONE_CALL))
        })
        .ok()?;
    let request = tenant.map(|tenant| Request::new(tenant, 0, 1));
    let numbers = Numbers { request, deadline, queue_until };
    session.shared().floor.admit(pin, &numbers, now).ok()
}

/// Where an operation stands.
pub fn step(lease: &OperationLease) -> Step {
    State(lease.word().load()).step()
}

/// Drops the front owner and the lease, as an admission, a ready or their futures do.
pub fn drop_front(lease: OperationLease) {
    let done = super::operation::leave_front(&lease);
    let floor = &lease.shared().floor;
    floor.settle(&lease, done);
}

/// STOPPED, then everyone watched, as a session stop does.
pub fn stop_session(session: &Lease<Session>) {
    session.word().set(STOPPED);
    let panics = session.watched.stop(&session.shared().floor, |pin: &Lease<Session>| pin.is_same(session));
    panics.resume();
}

/// Everything is given back: called with no operation left.
pub fn assert_zero(anchor: &Anchor<Session, Ground>) {
    let floor = &anchor.shared().floor;
    let _exactly = floor.exactly();
    let node = floor.node.snapshot();
    assert_eq!(
        (node.owners, node.queued, node.running, node.pending, node.pool_running),
        (0, 0, 0, 0, 0),
        "the node's word"
    );
    for tenant in 0..2 {
        let used = floor.tenants[tenant].snapshot();
        assert_eq!((used.requests, used.running), (0, 0), "a tenant's word");
    }
    let used = floor.providers[0].snapshot();
    assert_eq!((used.requests, used.running), (0, 0), "the provider's word");
}
