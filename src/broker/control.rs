//! The control state: names and their numbers, plans, provider instances. One mutex, never taken on the hot path.
//!
//! The hot path knows tenants and logical providers by small numbers. They are given here, and taken back here by
//! [`Control::sweep`] when nothing names them any more.
//!
//! * C1. A tenant has a number while a plan of it exists; a logical provider, while anything outside of this state holds
//!   its [`Logical`]. Sessions keep plans and plans keep providers, so a number is never given to somebody else while
//!   an operation, a session or a plan knows it.
//! * C2. A number is free again only when its room word has all its room and no mark: `retire` of the word decides.
//! * C3. An instance tag is given out once in the life of a node. When there is none left, nothing can be installed.
//! * C4. Foreign code (what a plan or an epoch keeps may have destructors of others) never runs under the mutex: what
//!   is swept is handed out in a [`Swept`], to be dropped after the guard.

use std::collections::HashMap;
use std::sync::Arc;

use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::broker::capability::is_name;
use crate::broker::error::{Denied, Error, Invalid, What};
use crate::broker::ground::{Ground, SessionLease};
use crate::broker::limits::{PoolLimits, fixed_cost};
use crate::broker::plan::{self, Binding, PlanCore, PlanSpec};
use crate::broker::policy::Terms;
use crate::foreign::Panics;
use crate::queue::operation::{Cause, Operation, State, Step};
use crate::sync::atomic::AtomicU32;
use crate::sync::{self, order};

/// How many plans, tenants and logical providers there are. Written under the control mutex, read by snapshots.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) plans: AtomicU32,
    pub(crate) tenants: AtomicU32,
    pub(crate) providers: AtomicU32,
}

/// Whose calls a logical provider takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Direct I/O: its calls wait in class 0 and are charged to the node alone.
    Direct,
    /// Pools: its calls are requests of a tenant and of this provider.
    Pooled,
}

/// A logical provider: a name of the operator's choice, and its number while anything of it is alive (C1).
#[derive(Debug)]
pub(crate) struct Logical {
    name: Arc<str>,
    broker: u64,
    number: u16,
    kind: Kind,
}

impl Logical {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
    /// The text of the name by itself: it keeps nothing of the provider.
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }
    /// Its number, which is the index of its word.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
    /// The broker that gave it.
    pub(crate) fn broker(&self) -> u64 {
        self.broker
    }
    /// The value and the name, each with the counts in front of it, and the entry of the table; charged is what of it is
    /// not prepaid.
    fn cost(name: &str) -> u64 {
        let fixed = size_of::<Logical>() + 4 * size_of::<usize>() + size_of::<Entry<Arc<Logical>>>();
        beyond_prepaid(Dimension::BrokerProviders, (fixed + name.len()) as u64)
    }
}

/// What every tenant and every logical provider may have of pool requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) requests_per_tenant: u32,
    pub(crate) running_per_tenant: u32,
    pub(crate) requests_per_provider: u32,
    pub(crate) running_per_provider: u32,
}

impl RequestLimits {
    pub(crate) fn of(limits: &PoolLimits) -> RequestLimits {
        RequestLimits {
            requests_per_tenant: limits.requests_per_tenant,
            running_per_tenant: limits.running_per_tenant,
            requests_per_provider: limits.requests_per_provider,
            running_per_provider: limits.running_per_provider,
        }
    }
}

/// What a sweep took out. Dropping it may run foreign destructors: drop it after the guard (C4).
#[must_use = "to be dropped after the guard of the control state"]
#[derive(Debug, Default)]
pub(crate) struct Swept {
    plans: Vec<Arc<PlanCore>>,
    logicals: Vec<Arc<Logical>>,
}

impl Swept {
    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.plans.is_empty() && self.logicals.is_empty()
    }
}

/// Names and the numbers they have.
#[derive(Debug)]
struct Numbers<T> {
    by_name: HashMap<Arc<str>, u16>,
    entries: Vec<Option<Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    name: Arc<str>,
    value: T,
}

impl<T> Numbers<T> {
    fn new() -> Self {
        Numbers { by_name: HashMap::new(), entries: Vec::new() }
    }

    fn find(&self, name: &str) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    fn get_mut(&mut self, number: u16) -> Option<&mut T> {
        self.entries.get_mut(usize::from(number))?.as_mut().map(|entry| &mut entry.value)
    }

    fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The lowest number that nobody has, if fewer than `limit` are given.
    fn free(&self, limit: u32) -> Option<u16> {
        if self.len() >= limit as usize {
            return None;
        }
        let free = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        u16::try_from(free).ok()
    }

    fn give(&mut self, number: u16, name: Arc<str>, value: T) {
        let at = usize::from(number);
        if at == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[at] = Some(Entry { name: name.clone(), value });
        self.by_name.insert(name, number);
    }

    fn take(&mut self, number: u16) -> Option<T> {
        let entry = self.entries.get_mut(usize::from(number))?.take()?;
        self.by_name.remove(&entry.name);
        Some(entry.value)
    }

    fn iter(&self) -> impl Iterator<Item = (u16, &Entry<T>)> {
        (0_u16..).zip(&self.entries).filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }

    fn numbers(&self) -> impl Iterator<Item = u16> {
        self.iter().map(|(number, _)| number)
    }
}

/// The control state of one node.
#[derive(Debug)]
pub(crate) struct Control {
    /// Names this broker, so that plans and providers of another are refused.
    id: u64,
    retired: bool,
    plans: Vec<Arc<PlanCore>>,
    /// By number: how many plans the tenant has.
    tenants: Numbers<u32>,
    logicals: Numbers<Arc<Logical>>,
    last_tag: u32,
    /// `None` until pools are there. Whoever lowers the words of all numbers in use lowers this too, so that numbers
    /// given later get the same.
    pub(crate) request_limits: Option<RequestLimits>,
    /// Bytes that a tenant may hold; `None` if only the node's limit counts.
    tenant_bytes: Option<u64>,
}

impl Control {
    pub(crate) fn new() -> Control {
        Control {
            id: sync::unique(),
            retired: false,
            plans: Vec::new(),
            tenants: Numbers::new(),
            logicals: Numbers::new(),
            last_tag: 0,
            request_limits: None,
            tenant_bytes: None,
        }
    }

    /// The number of this broker within the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The logical provider of this name: found, or given a number.
    ///
    /// # Errors
    ///
    /// It is no name; the name has a provider of the other kind; there is no number or no metadata left; the broker is
    /// retired.
    pub(crate) fn logical(&mut self, ground: &Ground, name: &str, kind: Kind) -> Result<Arc<Logical>, Error> {
        self.check_alive()?;
        if !is_name(name) {
            return Err(Error::invalid(Invalid::Name));
        }
        if let Some(number) = self.logicals.find(name)
            && let Some(logical) = self.logicals.get_mut(number)
        {
            return match logical.kind == kind {
                true => Ok(logical.clone()),
                false => Err(Error::denied(Denied::ProviderExists)),
            };
        }
        refusable!(Dimension::BrokerProviders, Error::full(Dimension::BrokerProviders, Scope::Node));
        let number = self
            .logicals
            .free(ground.limits.providers)
            .ok_or_else(|| Error::full(Dimension::BrokerProviders, Scope::Node))?;
        charge(ground, Logical::cost(name))?;
        let name: Arc<str> = name.into();
        let logical = Arc::new(Logical { name: name.clone(), broker: self.id, number, kind });
        if let (Kind::Pooled, Some(limits)) = (kind, self.request_limits) {
            open_provider(ground, number, limits);
        }
        self.logicals.give(number, name, logical.clone());
        self.count(ground);
        Ok(logical)
    }

    /// An instance tag that no instance of this node ever had (C3).
    ///
    /// # Errors
    ///
    /// All 4,294,967,295 were used.
    pub(crate) fn next_tag(&mut self) -> Result<u32, Error> {
        self.check_alive()?;
        self.last_tag = self.last_tag.checked_add(1).ok_or(Error::denied(Denied::TagsExhausted))?;
        Ok(self.last_tag)
    }

    /// Seals a plan. The specification stays the caller's: a refusal under the guard drops no last reference (C4).
    ///
    /// # Errors
    ///
    /// See [`Broker::seal`](super::Broker::seal).
    pub(crate) fn seal(&mut self, ground: &Ground, spec: &PlanSpec) -> Result<Arc<PlanCore>, Error> {
        self.check_alive()?;
        plan::check_spec(spec)?;
        let mut bindings = Vec::with_capacity(spec.bindings.len());
        for (capability, reference, policy) in &spec.bindings {
            if reference.logical().broker() != self.id {
                return Err(Error::denied(Denied::ForeignProvider));
            }
            if ground.floor.providers[usize::from(reference.number())].tag() != reference.tag() {
                return Err(Error::retired(What::Epoch));
            }
            let terms = Terms::seal(policy, capability, &ground.limits)?;
            bindings.push(Binding::new(capability, reference.clone(), terms));
        }
        refusable!(Dimension::BrokerPlans, Error::full(Dimension::BrokerPlans, Scope::Node));
        if self.plans.len() >= ground.limits.plans as usize {
            return Err(Error::full(Dimension::BrokerPlans, Scope::Node));
        }
        let cost = PlanCore::cost(spec, &bindings);
        charge(ground, cost)?;
        let tenant = self.tenant(ground, &spec.tenant).inspect_err(|_| ground.broker_metadata.give(cost))?;
        let plan = Arc::new(PlanCore::new(self.id, tenant, spec, bindings.into()));
        self.plans.push(plan.clone());
        self.count(ground);
        Ok(plan)
    }

    /// The number of the tenant of a new plan: found, or given.
    fn tenant(&mut self, ground: &Ground, name: &str) -> Result<u16, Error> {
        if let Some(number) = self.tenants.find(name)
            && let Some(plans) = self.tenants.get_mut(number)
        {
            *plans += 1;
            return Ok(number);
        }
        refusable!(Dimension::BrokerTenants, Error::full(Dimension::BrokerTenants, Scope::Node));
        let number = self
            .tenants
            .free(ground.limits.tenants)
            .ok_or_else(|| Error::full(Dimension::BrokerTenants, Scope::Node))?;
        if let Some(limits) = self.request_limits {
            open_tenant(ground, number, limits);
        }
        if let Some(bytes) = self.tenant_bytes {
            open_bytes(ground, number, bytes);
        }
        self.tenants.give(number, name.into(), 1);
        Ok(number)
    }

    /// The tenants that have a number, in the order of numbers, with how many plans each has.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = (u16, &Arc<str>, u32)> {
        self.tenants.iter().map(|(number, entry)| (number, &entry.name, entry.value))
    }

    /// The logical providers of pools, in the order of numbers.
    pub(crate) fn pooled(&self) -> impl Iterator<Item = (u16, &Arc<str>)> {
        let pooled = self.logicals.iter().filter(|(_, entry)| entry.value.kind == Kind::Pooled);
        pooled.map(|(number, entry)| (number, &entry.name))
    }

    /// Withdraws every plan of a publication; how many were published until now.
    pub(crate) fn withdraw(&self, publication: &str) -> usize {
        let of_it = self.plans.iter().filter(|plan| plan.publication() == publication);
        of_it.filter(|plan| plan.withdraw()).count()
    }

    /// Takes every right from every plan and refuses everything from now on. `false`: it was done before.
    pub(crate) fn retire(&mut self) -> bool {
        for plan in &self.plans {
            plan.retire();
        }
        !std::mem::replace(&mut self.retired, true)
    }

    /// Gives the words of all numbers in use, and of those given later, their room for pool requests. Called once, by
    /// the registry of this broker.
    pub(crate) fn open_requests(&mut self, ground: &Ground, limits: RequestLimits) {
        self.request_limits = Some(limits);
        for tenant in self.tenant_numbers() {
            open_tenant(ground, tenant, limits);
        }
        for provider in self.pooled_numbers() {
            open_provider(ground, provider, limits);
        }
    }

    /// The tenants that have a number.
    pub(crate) fn tenant_numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.tenants.numbers()
    }

    /// The logical providers of pools that have a number.
    pub(crate) fn pooled_numbers(&self) -> impl Iterator<Item = u16> + '_ {
        let pooled = self.logicals.entries.iter().flatten().filter(|entry| entry.value.kind == Kind::Pooled);
        pooled.map(|entry| entry.value.number)
    }

    /// Gives every tenant in use, and those that come later, this limit of bytes. Called once, by the I/O runtime.
    pub(crate) fn open_tenant_bytes(&mut self, ground: &Ground, bytes: u64) {
        self.tenant_bytes = Some(bytes);
        for tenant in self.tenants.numbers() {
            open_bytes(ground, tenant, bytes);
        }
    }

    /// Takes back what nothing outside of this state uses any more: plans first, then their tenants' numbers and
    /// the logical providers that only they kept.
    ///
    /// The last reference of a provider may be in a plan that this very sweep took out; its number is found free by
    /// the next one.
    pub(crate) fn sweep(&mut self, ground: &Ground) -> Swept {
        let mut swept = Swept::default();
        let mut at = 0;
        while at < self.plans.len() {
            // Nobody can clone a reference that only we have: with the guard held, one stays one.
            if Arc::strong_count(&self.plans[at]) > 1 && !planted!("plan_let_go_early") {
                at += 1;
                continue;
            }
            let plan = self.plans.swap_remove(at);
            ground.broker_metadata.give(plan.charged());
            if let Some(plans) = self.tenants.get_mut(plan.tenant()) {
                *plans -= 1;
            }
            swept.plans.push(plan);
        }
        for number in 0..self.tenants.entries.len() as u16 {
            if self.tenants.get_mut(number) == Some(&mut 0) && self.close_tenant(ground, number) {
                self.tenants.take(number);
            }
        }
        for number in 0..self.logicals.entries.len() as u16 {
            let unused = self.logicals.get_mut(number).is_some_and(|logical| Arc::strong_count(logical) == 1);
            if unused
                && ground.floor.providers[usize::from(number)].retire()
                && let Some(logical) = self.logicals.take(number)
            {
                ground.broker_metadata.give(Logical::cost(&logical.name));
                swept.logicals.push(logical);
            }
        }
        self.count(ground);
        swept
    }

    /// Takes a tenant's words back (C2). Either all of them, or none.
    fn close_tenant(&self, ground: &Ground, tenant: u16) -> bool {
        let number = usize::from(tenant);
        if !ground.tenant_bytes[number].retire() {
            return false;
        }
        let closed = ground.floor.tenants[number].retire();
        if !closed && let Some(bytes) = self.tenant_bytes {
            open_bytes(ground, tenant, bytes);
        }
        closed
    }

    fn check_alive(&self) -> Result<(), Error> {
        if self.retired { Err(Error::retired(What::Broker)) } else { Ok(()) }
    }

    fn count(&self, ground: &Ground) {
        let count = |number: usize, shown: &AtomicU32| shown.store(number as u32, order::PUBLISH);
        count(self.plans.len(), &ground.counts.plans);
        count(self.tenants.len(), &ground.counts.tenants);
        count(self.logicals.len(), &ground.counts.providers);
    }
}

fn charge(ground: &Ground, bytes: u64) -> Result<(), Error> {
    Ok(ground.broker_metadata.charge(bytes)?)
}

/// What of `bytes` the prepaid cost of one unit does not cover.
pub(crate) fn beyond_prepaid(dimension: Dimension, bytes: u64) -> u64 {
    let prepaid = fixed_cost(dimension);
    bytes.max(prepaid) - prepaid
}

fn open_tenant(ground: &Ground, number: u16, limits: RequestLimits) {
    let word = &ground.floor.tenants[usize::from(number)];
    if !word.open(limits.requests_per_tenant, limits.running_per_tenant) {
        crate::broken::accounting("a tenant's number was given twice");
    }
}

fn open_bytes(ground: &Ground, number: u16, bytes: u64) {
    if !ground.tenant_bytes[usize::from(number)].open(bytes) {
        crate::broken::accounting("a tenant's bytes were opened twice");
    }
}

fn open_provider(ground: &Ground, number: u16, limits: RequestLimits) {
    let word = &ground.floor.providers[usize::from(number)];
    if !word.open(limits.requests_per_provider, limits.running_per_provider) {
        crate::broken::accounting("a logical provider's number was given twice");
    }
}

/// Ends the wait of everything that was admitted for an instance that is no longer the current one, and takes back
/// grants that were not started. The tag was swapped before, so nothing new comes; what has started goes on, unless it was
/// marked to end with its epoch.
///
/// Control path, without the guard: it wakes. A waker's panic is carried on at the end.
pub(crate) fn stop_waiters(ground: &Ground, provider: u16, tag: u32) {
    let waits_for_it = |operation: &Operation<SessionLease>, state: State| {
        let of_it =
            operation.request().is_some_and(|request| request.provider() == provider && request.tag() == tag);
        let started = state.step() == Step::Started && operation.ends_with_epoch();
        of_it && (started || matches!(state.step(), Step::Staged | Step::Queued | Step::Granted))
    };
    let mut panics = Panics::none();
    panics.run(|| ground.floor.line.look_again(&ground.floor));
    panics.run(|| ground.floor.stop_all(Cause::Epoch, waits_for_it));
    panics.resume();
}

#[cfg(test)]
mod tests;
