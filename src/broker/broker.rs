//! The broker: the handle of the control path over one node's ground.

use std::sync::Arc;

use crate::broker::capability::is_name;
use crate::broker::control::Kind;
use crate::broker::error::{Denied, Error, Invalid};
use crate::broker::ground::{Ground, GroundAnchor};
use crate::broker::limits::{BROKER_COSTS, BrokerLimits, LimitsError};
use crate::broker::plan::{Plan, PlanSpec, ProviderRef};
use crate::broker::session::{self, Activation, CapabilitySession};
use crate::broker::snapshot::{self, BrokerSnapshot};
use crate::foreign::Panics;
use crate::queue::operation::Cause;
use crate::time::Clock;

/// Who may call what, on whose account, until when: one per node.
///
/// It makes everything that a node's operations stand on, at once and from the ceilings, in pages that cost memory when
/// they are first used. Cloning it is a reference count; when the last clone goes, the broker is retired. What is under
/// way then keeps what it needs until it is gone.
#[derive(Clone, Debug)]
pub struct Broker {
    owner: Arc<Owner>,
}

/// What all clones share; its end retires.
#[derive(Debug)]
struct Owner {
    anchor: GroundAnchor,
    /// The number of this broker within the process.
    id: u64,
}

impl Drop for Owner {
    fn drop(&mut self) {
        retire(self.anchor.shared());
    }
}

impl Broker {
    /// A broker with these limits, on the system's clock. Reserves address space for the ceilings, commits little.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the limits.
    pub fn new(limits: BrokerLimits) -> Result<Broker, LimitsError> {
        Broker::with_clock(limits, Clock::system())
    }

    /// A broker whose time comes from `clock`: [`Clock::tokio`] in tests and simulations.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the limits.
    pub fn with_clock(limits: BrokerLimits, clock: Clock) -> Result<Broker, LimitsError> {
        limits.validate_prepaid(BROKER_COSTS)?;
        let anchor = Ground::lay(limits, clock);
        let id = anchor.shared().control().id();
        Ok(Broker { owner: Arc::new(Owner { anchor, id }) })
    }

    /// The ground that everything of this broker stands on.
    pub(crate) fn anchor(&self) -> &GroundAnchor {
        &self.owner.anchor
    }

    pub(crate) fn ground(&self) -> &Ground {
        self.owner.anchor.shared()
    }

    /// Seals a plan: a tenant, a publication, and what the tenant may call, each bound to the instance of a provider that
    /// is current now. Control path: takes the control mutex, allocates.
    ///
    /// # Errors
    ///
    /// A name is no name; more than 11 bindings, or a capability bound twice; a policy that allows nothing or more than
    /// the broker's limits; a provider of another broker, or one that was replaced or retired; no room in
    /// `broker.plans`, `broker.tenants` or `broker.metadata_bytes`; the broker is retired.
    pub fn seal(&self, spec: PlanSpec) -> Result<Plan, Error> {
        let ground = self.ground();
        // Declared before the guard, so dropped after it, as `spec` is.
        let _swept;
        let _exactly = ground.floor.exactly();
        let mut control = ground.control();
        _swept = control.sweep(ground);
        let sealed = control.seal(ground, &spec).map_err(|error| ground.refuse(error));
        Ok(Plan { core: sealed? })
    }

    /// Opens a session under a plan. No lock, no allocation; one step each on the arena's head, the slot's word and the
    /// plan's reference count.
    ///
    /// # Errors
    ///
    /// The plan is of another broker, or was withdrawn; the deadline has passed; a call limit of 0 or above the broker's;
    /// no room in `broker.sessions`; the broker is retired.
    pub fn open(&self, plan: &Plan, activation: Activation) -> Result<CapabilitySession, Error> {
        session::open(&self.owner.anchor, self.owner.id, plan, activation)
    }

    /// Registers a provider for direct I/O: without pools, without a fair turn per tenant. Control path.
    ///
    /// # Errors
    ///
    /// It is no name; a provider of this name is registered or installed in pools; no room in `broker.providers` or
    /// `broker.metadata_bytes`; the broker is retired.
    pub fn register(&self, spec: ProviderSpec) -> Result<Provider, Error> {
        if !is_name(&spec.name) {
            return Err(Error::invalid(Invalid::Name));
        }
        let ground = self.ground();
        let _swept;
        let _exactly = ground.floor.exactly();
        let mut control = ground.control();
        _swept = control.sweep(ground);
        let logical = control.logical(ground, &spec.name, Kind::Direct);
        let logical = logical.map_err(|error| ground.refuse(error))?;
        let tag = control.next_tag()?;
        let word = &ground.floor.providers[usize::from(logical.number())];
        // 0 stands for no instance: then nobody else has the name.
        word.swap_tag(0, tag).map_err(|_| Error::denied(Denied::ProviderExists))?;
        let reference = ProviderRef::new(logical, tag, spec.epoch, None);
        Ok(Provider { anchor: self.owner.anchor.clone(), reference })
    }

    /// Withdraws every plan of a publication, for good: after this returns, no session is opened and no call starts under
    /// any of them. Accepted calls go on. Says how many plans were published until now. Control path.
    pub fn withdraw(&self, publication: &str) -> usize {
        self.ground().control().withdraw(publication)
    }

    /// Counts of what the broker holds. No lock, no allocation.
    #[must_use]
    pub fn snapshot(&self) -> BrokerSnapshot {
        snapshot::take(&self.owner.anchor)
    }

    /// Retires the broker, for good: nothing is sealed, registered, opened, admitted or started any more, and every
    /// operation is stopped. What they hold is given back when they end. Control path; a second time it does nothing.
    pub fn retire(&self) {
        retire(self.ground());
    }

    /// Takes back the places of plans, tenants and providers that nobody uses any more. Sealing and registering do it by
    /// themselves. Control path.
    pub fn sweep(&self) {
        let ground = self.ground();
        let _exactly = ground.floor.exactly();
        loop {
            let swept = ground.control().sweep(ground);
            // What a plan kept may be what kept a provider.
            if swept.is_empty() {
                return;
            }
        }
    }

    /// The limits that it was made with.
    #[must_use]
    pub fn limits(&self) -> BrokerLimits {
        self.ground().limits
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.ground().floor.clock
    }
}

/// The order matters: rights go first, so that nothing is accepted any more; then the node closes, so that nothing is
/// admitted or started; then whoever is there is stopped.
fn retire(ground: &Ground) {
    if !ground.control().retire() {
        return;
    }
    ground.floor.node.close();
    let mut panics = Panics::none();
    panics.run(|| ground.floor.end_credits());
    panics.run(|| ground.floor.line.look_again(&ground.floor));
    panics.run(|| ground.floor.stop_all(Cause::Retired, |_, _| true));
    panics.resume();
}

/// A provider for direct I/O, to be registered.
#[derive(Clone, Debug)]
pub struct ProviderSpec {
    name: String,
    epoch: u64,
}

impl ProviderSpec {
    /// A provider of this name, with epoch 1.
    #[must_use]
    pub fn new(name: &str) -> ProviderSpec {
        ProviderSpec { name: name.to_owned(), epoch: 1 }
    }

    /// The number of its configuration, for people.
    #[must_use]
    pub fn epoch(mut self, epoch: u64) -> ProviderSpec {
        self.epoch = epoch;
        self
    }
}

/// A registered provider for direct I/O. Dropping it retires it: nothing is dispatched to it or started on it any more,
/// and what was accepted goes on. Registering the name again makes another instance, which old plans do not know.
#[must_use = "dropping a provider retires it"]
#[derive(Debug)]
pub struct Provider {
    anchor: GroundAnchor,
    reference: ProviderRef,
}

impl Provider {
    /// What plans bind to.
    #[must_use]
    pub fn reference(&self) -> ProviderRef {
        self.reference.clone()
    }

    /// Retires it; the same as dropping it.
    pub fn retire(self) {
        drop(self);
    }
}

impl Drop for Provider {
    /// One step. Direct operations wait for the node and not for a provider, so there is no waiter to look for; what is
    /// ready finds the tag changed when it starts.
    fn drop(&mut self) {
        let ground = self.anchor.shared();
        let (number, tag) = (self.reference.number(), self.reference.tag());
        if ground.floor.providers[usize::from(number)].swap_tag(tag, 0).is_err() {
            crate::broken::accounting_in_drop("a registered provider lost its tag to another");
        }
    }
}
