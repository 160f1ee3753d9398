//! Plans: what a tenant may call, sealed from one publication and bound to exact provider instances.
//!
//! A plan never changes, except that it can lose rights: each binding has one word that dispatch reads, and nothing is
//! ever added to it.
//!
//! ```text
//!  binding  16          15                0        plan  1         0
//!          ┌───────────┬───────────────────┐            ┌─────────┬───────────┐
//!          │ PUBLISHED │ allowed operations│            │ RETIRED │ PUBLISHED │
//!          └───────────┴───────────────────┘            └─────────┴───────────┘
//! ```
//!
//! * PL1. Bits of a binding's word are only ever cleared: an operation by revocation, PUBLISHED by withdrawal or by the
//!   broker's retirement. Whoever starts loads the word after the step that made it a starter, so after a revocation has
//!   returned nothing starts on what it took; what was accepted before goes on.
//! * PL2. A plan keeps the epochs that it is bound to alive, through its [`ProviderRef`]s, and its tenant's number.
//! * PL3. The control state keeps one reference to every plan until it is the only one, and lets go of it on the
//!   control path. So the last reference of a plan, and with it of an epoch, never dies with a session.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::account::dimension::Dimension;
use crate::broker::capability::{Capability, Operation};
use crate::broker::control::{Kind, Logical, beyond_prepaid};
use crate::broker::error::{Denied, Error, Invalid, What};
use crate::broker::ground::SessionLease;
use crate::broker::policy::{Policy, Terms};
use crate::sync::atomic::AtomicU32;
use crate::sync::order;

/// The most bindings of one plan.
pub const BINDINGS_MAX: usize = 11;

const PUBLISHED: u32 = 1 << 16;

const PLAN_PUBLISHED: u32 = 1;
const PLAN_RETIRED: u32 = 2;

/// What a plan binds a capability to: one instance of one provider, for good. When the provider is replaced or retired,
/// calls through this binding are refused; a new plan binds the new instance.
///
/// It keeps the instance's epoch alive. Control path: cloning it is a reference count.
#[derive(Clone)]
pub struct ProviderRef {
    instance: Arc<Instance>,
}

struct Instance {
    logical: Arc<Logical>,
    tag: u32,
    epoch: u64,
    /// What else lives as long as this reference: the epoch, its credentials.
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl ProviderRef {
    /// A reference to the instance with `tag`. `kept` lives as long as the reference; it must not keep the ground, in
    /// which the plans live that keep it.
    pub(crate) fn new(
        logical: Arc<Logical>,
        tag: u32,
        epoch: u64,
        kept: Option<Arc<dyn Any + Send + Sync>>,
    ) -> ProviderRef {
        ProviderRef { instance: Arc::new(Instance { logical, tag, epoch, kept }) }
    }

    /// The name of the logical provider.
    #[must_use]
    pub fn name(&self) -> &str {
        self.instance.logical.name()
    }

    /// The number of the configuration, as the operator gave it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.instance.epoch
    }

    pub(crate) fn logical(&self) -> &Arc<Logical> {
        &self.instance.logical
    }

    /// The logical provider's number.
    pub(crate) fn number(&self) -> u16 {
        self.instance.logical.number()
    }

    /// The instance tag, which no other instance of this node ever has.
    pub(crate) fn tag(&self) -> u32 {
        self.instance.tag
    }
}

impl fmt::Debug for ProviderRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeps = if self.instance.kept.is_some() { ", keeps its epoch" } else { "" };
        write!(f, "ProviderRef({}, epoch {}{keeps})", self.name(), self.epoch())
    }
}

/// What a plan is sealed from. See [`Broker::seal`](super::Broker::seal).
#[derive(Clone, Debug)]
pub struct PlanSpec {
    pub(crate) tenant: String,
    pub(crate) publication: String,
    pub(crate) bindings: Vec<(&'static Capability, ProviderRef, Policy)>,
}

impl PlanSpec {
    /// A plan for `tenant` from `publication`, without bindings yet. Names are 1 to 256 bytes of ASCII letters, digits
    /// and `- _ . : / @`; sealing refuses others.
    #[must_use]
    pub fn new(tenant: &str, publication: &str) -> PlanSpec {
        PlanSpec { tenant: tenant.to_owned(), publication: publication.to_owned(), bindings: Vec::new() }
    }

    /// Binds a capability to a provider, with everything allowed that the broker's limits allow.
    #[must_use]
    pub fn bind(self, capability: &'static Capability, provider: &ProviderRef) -> PlanSpec {
        self.bind_with(capability, provider, Policy::new())
    }

    /// Binds a capability to a provider under a policy. A plan has at most 11 bindings, each of another capability.
    #[must_use]
    pub fn bind_with(
        mut self,
        capability: &'static Capability,
        provider: &ProviderRef,
        policy: Policy,
    ) -> PlanSpec {
        self.bindings.push((capability, provider.clone(), policy));
        self
    }
}

/// One capability of a plan.
#[derive(Debug)]
pub(crate) struct Binding {
    word: AtomicU32,
    pub(crate) tag: u32,
    pub(crate) provider: u16,
    pub(crate) pooled: bool,
    capability: &'static Capability,
    pub(crate) terms: Terms,
    /// Keeps the epoch (PL2).
    _keeps: ProviderRef,
}

impl Binding {
    pub(crate) fn new(capability: &'static Capability, reference: ProviderRef, terms: Terms) -> Binding {
        Binding {
            word: AtomicU32::new(PUBLISHED | u32::from(terms.operations)),
            tag: reference.tag(),
            provider: reference.number(),
            pooled: reference.logical().kind() == Kind::Pooled,
            capability,
            terms,
            _keeps: reference,
        }
    }

    /// Whether `operation` may be started now.
    ///
    /// # Errors
    ///
    /// The publication was withdrawn, or the operation is not allowed or was revoked.
    #[inline]
    pub(crate) fn allows(&self, operation: u8) -> Result<(), Error> {
        let word = self.word.load(order::OBSERVE);
        if word & PUBLISHED == 0 {
            return Err(Error::denied(Denied::Withdrawn));
        }
        if word & (1 << operation) == 0 {
            return Err(Error::denied(Denied::Policy));
        }
        Ok(())
    }

    /// Bytes on the heap beside the binding itself.
    fn heap_bytes(&self) -> u64 {
        self.terms.heap_bytes()
    }
}

/// A sealed plan, as sessions keep it.
#[derive(Debug)]
pub(crate) struct PlanCore {
    word: AtomicU32,
    tenant: u16,
    /// The broker that sealed it.
    broker: u64,
    bindings: Box<[Binding]>,
    tenant_name: Box<str>,
    publication: Box<str>,
}

impl PlanCore {
    pub(crate) fn new(broker: u64, tenant: u16, spec: &PlanSpec, bindings: Box<[Binding]>) -> PlanCore {
        PlanCore {
            word: AtomicU32::new(PLAN_PUBLISHED),
            tenant,
            broker,
            bindings,
            tenant_name: spec.tenant.as_str().into(),
            publication: spec.publication.as_str().into(),
        }
    }

    /// What a plan of these parts is charged in metadata.
    pub(crate) fn cost(spec: &PlanSpec, bindings: &[Binding]) -> u64 {
        cost(bindings, &spec.tenant, &spec.publication)
    }

    /// What this plan was charged.
    pub(crate) fn charged(&self) -> u64 {
        cost(&self.bindings, &self.tenant_name, &self.publication)
    }

    /// The plan that a session was opened under.
    #[inline]
    pub(crate) fn of(session: &SessionLease) -> &PlanCore {
        match session.plan.get() {
            Some(plan) => plan,
            None => crate::broken::accounting("a session without a plan"),
        }
    }

    /// The number of the plan's tenant.
    #[inline]
    pub(crate) fn tenant(&self) -> u16 {
        self.tenant
    }

    pub(crate) fn tenant_name(&self) -> &str {
        &self.tenant_name
    }

    pub(crate) fn publication(&self) -> &str {
        &self.publication
    }

    pub(crate) fn is_of(&self, broker: u64) -> bool {
        self.broker == broker
    }

    /// Whether sessions may be opened and calls admitted under this plan.
    ///
    /// # Errors
    ///
    /// The broker was retired, or the publication was withdrawn.
    #[inline]
    pub(crate) fn admits(&self) -> Result<(), Error> {
        match self.word.load(order::OBSERVE) {
            PLAN_PUBLISHED => Ok(()),
            word if word & PLAN_RETIRED != 0 => Err(Error::retired(What::Broker)),
            _ => Err(Error::denied(Denied::Withdrawn)),
        }
    }

    /// The binding of an operation's capability, and its number.
    ///
    /// # Errors
    ///
    /// The plan does not bind that capability.
    #[inline]
    pub(crate) fn binding(&self, operation: Operation) -> Result<(u8, &Binding), Error> {
        (0_u8..)
            .zip(&self.bindings)
            .find(|(_, binding)| binding.capability.is(operation.capability()))
            .ok_or(Error::denied(Denied::NotBound))
    }

    /// The binding with this number; there is one, because the number came from [`PlanCore::binding`].
    #[inline]
    pub(crate) fn binding_at(&self, number: u8) -> Option<&Binding> {
        self.bindings.get(usize::from(number))
    }

    /// Whether an admission for this instance can make sense: the plan binds it and still allows something on it.
    ///
    /// # Errors
    ///
    /// The instance is not bound, or the publication was withdrawn, or every operation on it was revoked.
    #[inline]
    pub(crate) fn uses(&self, provider: u16, tag: u32) -> Result<(), Error> {
        let mut refusal = Error::denied(Denied::NotBound);
        for binding in &self.bindings {
            if binding.provider == provider && binding.tag == tag {
                let word = binding.word.load(order::OBSERVE);
                if word & PUBLISHED == 0 {
                    refusal = Error::denied(Denied::Withdrawn);
                } else if word & !PUBLISHED == 0 {
                    refusal = Error::denied(Denied::Policy);
                } else {
                    return Ok(());
                }
            }
        }
        Err(refusal)
    }

    /// Takes the publication away from every binding. `true`: it was there before.
    pub(crate) fn withdraw(&self) -> bool {
        let before = self.word.fetch_and(!PLAN_PUBLISHED, order::STEP);
        for binding in &self.bindings {
            binding.word.fetch_and(!PUBLISHED, order::STEP);
        }
        before & PLAN_PUBLISHED != 0
    }

    /// The broker is retired: nothing is opened or started under this plan any more.
    pub(crate) fn retire(&self) {
        self.word.fetch_or(PLAN_RETIRED, order::STEP);
        self.withdraw();
    }

    fn revoke(&self, operation: Operation) -> Result<bool, Error> {
        let (_, binding) = self.binding(operation)?;
        let bit = u32::from(operation.bit());
        Ok(binding.word.fetch_and(!bit, order::STEP) & bit != 0)
    }
}

/// What really lies on the heap for a plan, the reference in the control state and the tenant's entry included; charged
/// is what of it is not prepaid.
fn cost(bindings: &[Binding], tenant: &str, publication: &str) -> u64 {
    let fixed = size_of::<PlanCore>() + 2 * size_of::<usize>() + size_of::<Arc<PlanCore>>();
    let heap: u64 = bindings.iter().map(Binding::heap_bytes).sum();
    let bytes = (fixed + 3 * tenant.len() + publication.len() + size_of_val(bindings)) as u64 + heap;
    beyond_prepaid(Dimension::BrokerPlans, bytes)
}

/// A sealed plan. Sessions are opened under it. Control path: cloning it is a reference count.
///
/// A plan that nobody holds and no session uses any more gives back its place, its metadata and, if it was the last of
/// its tenant, the tenant's number, when the control path next looks.
#[derive(Clone)]
pub struct Plan {
    pub(crate) core: Arc<PlanCore>,
}

impl Plan {
    /// The tenant's name.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.core.tenant_name()
    }

    /// The publication that it was sealed from.
    #[must_use]
    pub fn publication(&self) -> &str {
        self.core.publication()
    }

    /// Takes one operation back, for good. Calls of it that were accepted go on; after this returns, none starts.
    /// `true`: it was allowed until now.
    ///
    /// # Errors
    ///
    /// The plan does not bind the operation's capability.
    pub fn revoke(&self, operation: Operation) -> Result<bool, Error> {
        self.core.revoke(operation)
    }

    /// Withdraws this plan, for good: after this returns no session is opened and no call starts under it. Accepted
    /// calls go on. `true`: it was published until now. [`Broker::withdraw`](super::Broker::withdraw) does it for all
    /// plans of a publication.
    pub fn withdraw(&self) -> bool {
        self.core.withdraw()
    }

    /// Whether sessions can be opened under it.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.core.admits().is_ok()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let published = if self.is_published() { "" } else { ", withdrawn" };
        write!(f, "Plan({}, {}{published})", self.tenant(), self.publication())
    }
}

/// What sealing checks without looking at the control state.
pub(crate) fn check_spec(spec: &PlanSpec) -> Result<(), Error> {
    use crate::broker::capability::is_name;
    if !is_name(&spec.tenant) || !is_name(&spec.publication) {
        return Err(Error::invalid(Invalid::Name));
    }
    if spec.bindings.len() > BINDINGS_MAX {
        return Err(Error::invalid(Invalid::Bindings));
    }
    for (at, (capability, _, _)) in spec.bindings.iter().enumerate() {
        if spec.bindings[..at].iter().any(|(other, _, _)| other.is(capability)) {
            return Err(Error::invalid(Invalid::Twice));
        }
    }
    Ok(())
}
