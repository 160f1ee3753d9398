//! Lowering limits while work is running: all that was asked, or nothing.
//!
//! * LW1. The books and the control state are held, in this order, from the first look to the last word (P1). Whoever makes
//!   an epoch or a client, or gives a number to a tenant or a provider, comes before, and is lowered with the rest, or
//!   after, and gets the new limits.
//! * LW2. What is counted in room words goes through [`lower_all`]: units of a lowering in flight count as used, so
//!   that use is at most the limit at every instant, and a refusal meanwhile is as true as any.
//! * LW3. Whoever waits is looked at again whatever came of it, after both are let go: wakers are foreign code.
use super::client::AnyClient;
use super::registry::{Books, Registry};
use crate::account::lower::{Change, Lower, Unchanged, look, lower_all};
use crate::account::scope::Scope;
use crate::broker::control::{Control, RequestLimits};
use crate::broker::ground::Ground;
use crate::broker::limits::{Dimension, NotLowered, POOL_COSTS, PoolLimits, Violation};
use crate::foreign::Panics;
use crate::sync::order;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why limits were not lowered. Nothing was changed. It holds numbers and names of limits only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LowerError {
    /// The registry is retired.
    Retired,
    /// Everything that stands in the way; at least one.
    Refused(Vec<Obstacle>),
}

/// One limit that stands in the way of a lowering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The limit.
    pub dimension: Dimension,
    /// Whose it is. Limits that contradict each other, or cannot be lowered at all, are the node's.
    pub scope: Scope,
    /// What was asked for, in the dimension's unit (milliseconds for times, rounded up).
    pub asked: u64,
    /// What was found, in the same unit: the use, the present limit, or the nearest value that would be right.
    pub found: u64,
    /// What stands in the way.
    pub why: Standing,
}

/// What stands in the way of a lower limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// So much is in use, or reserved for a moment by an attempt in flight.
    InUse,
    /// The present limit is lower: limits are never raised again.
    Raised,
    /// The limit is fixed for the life of the registry.
    Fixed,
    /// The new limits would contradict each other, or the range of this one.
    Contradiction(String),
}

impl LowerError {
    /// Everything that stands in the way; empty only if the registry is retired.
    pub fn obstacles(&self) -> &[Obstacle] {
        match self {
            LowerError::Retired => &[],
            LowerError::Refused(obstacles) => obstacles,
        }
    }
}

impl fmt::Display for LowerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LowerError::Refused(obstacles) = self else {
            return out.write_str("the registry is retired");
        };
        for (position, obstacle) in obstacles.iter().enumerate() {
            if position > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{obstacle}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LowerError {}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Obstacle { dimension, scope, asked, found, why } = self;
        let (asked, found) = (dimension.show(*asked), dimension.show(*found));
        write!(out, "{dimension} of ")?;
        match scope {
            Scope::Node | Scope::Session => write!(out, "the {scope}")?,
            Scope::Tenant(number) | Scope::Provider(number) | Scope::Client(number) => {
                write!(out, "{scope} {number}")?;
            }
        }
        write!(out, " cannot be {asked}: ")?;
        match why {
            Standing::InUse => write!(out, "{found} is in use"),
            Standing::Raised => write!(out, "its limit is {found}, and no limit is raised again"),
            Standing::Fixed => write!(out, "it is {found} for the life of the registry"),
            Standing::Contradiction(rule) => write!(out, "{found} would be right; {rule}"),
        }
    }
}

impl Obstacle {
    fn at_node(dimension: Dimension, asked: u64, found: u64, why: Standing) -> Obstacle {
        Obstacle { dimension, scope: Scope::Node, asked, found, why }
    }
    fn of_rule(violation: Violation) -> Obstacle {
        let Violation { dimension, value, lowest, highest, rule } = violation;
        let nearest = if value > highest { highest } else { lowest };
        Obstacle::at_node(dimension, value, nearest, Standing::Contradiction(rule))
    }
    /// `prepaid`: what all slots of the new limits cost in metadata.
    fn of_word(unchanged: Unchanged<'_>, prepaid: u64) -> Obstacle {
        let Change { scope, dimension, limit, .. } = unchanged.change;
        // Of metadata the word counts what is not prepaid; what was asked for is all of it.
        let beside = if dimension == Dimension::PoolsMetadataBytes { prepaid } else { 0 };
        let (found, why) = match unchanged.why {
            NotLowered::InUse { used, .. } => (used, Standing::InUse),
            NotLowered::Raised { limit, .. } => (limit, Standing::Raised),
            NotLowered::NotHere(_) => {
                crate::broken::accounting("a limit was to be lowered where it is not counted")
            }
        };
        Obstacle { dimension, scope, asked: limit + beside, found: found + beside, why }
    }
}

/// What is asked, beside what holds now.
struct Asked {
    now: PoolLimits,
    next: PoolLimits,
}

impl Asked {
    /// A time that is less than a millisecond above the present one, and so equal to it in the unit of limits, is the
    /// present one. One that is fixed is the present one on either side of it: what was not changed is not told as changed.
    fn new(now: PoolLimits, next: PoolLimits) -> Asked {
        let fixed = |now, next| if millis(now) == millis(next) { now } else { next };
        let next = PoolLimits {
            queue_age: same_or(now.queue_age, next.queue_age),
            idle_age: same_or(now.idle_age, next.idle_age),
            maximum_lifetime: fixed(now.maximum_lifetime, next.maximum_lifetime),
            initial_backoff: fixed(now.initial_backoff, next.initial_backoff),
            maximum_backoff: fixed(now.maximum_backoff, next.maximum_backoff),
            ..next
        };
        Asked { now, next }
    }

    /// What can be said without a look at any use: raised, fixed, or against a rule.
    fn contradictions(&self) -> Vec<Obstacle> {
        let raised = PoolLimits::dimensions().filter_map(|dimension| {
            let (now, asked) = (value(&self.now, dimension), value(&self.next, dimension));
            let why = match dimension.lowerable() {
                false if asked != now => Standing::Fixed,
                true if asked > now => Standing::Raised,
                _ => return None,
            };
            Some(Obstacle::at_node(dimension, asked, now, why))
        });
        let mut found: Vec<Obstacle> = raised.collect();
        if let Err(error) = self.next.validate_prepaid(POOL_COSTS) {
            found.extend(error.violations().iter().cloned().map(Obstacle::of_rule));
        }
        found
    }

    /// The new limit of a dimension, if it is lower than the present one.
    fn lower(&self, dimension: Dimension) -> Option<u64> {
        let asked = value(&self.next, dimension);
        (asked < value(&self.now, dimension)).then_some(asked)
    }

    /// Adds a use that is above the new limit.
    fn compare(&self, dimension: Dimension, scope: Scope, used: u64, found: &mut Vec<Obstacle>) {
        if let Some(asked) = self.lower(dimension).filter(|asked| used > *asked) {
            found.push(Obstacle { dimension, scope, asked, found: used, why: Standing::InUse });
        }
    }

    /// What is counted in the books: epochs, clients, private bytes.
    fn in_books(&self, books: &Books, clients: u32, found: &mut Vec<Obstacle>) {
        let node = Scope::Node;
        self.compare(Dimension::PoolsConfigurations, node, books.epochs.len() as u64, found);
        self.compare(Dimension::PoolsClients, node, clients.into(), found);
        let mut providers: Vec<u16> = books.clients.iter().map(|listed| listed.provider).collect();
        providers.sort_unstable();
        for clients in providers.chunk_by(|one, other| one == other) {
            let scope = Scope::Provider(clients[0]);
            self.compare(Dimension::PoolsClientsPerProvider, scope, clients.len() as u64, found);
        }
        for epoch in &books.epochs {
            let (scope, bytes) = (Scope::Provider(epoch.logical.number()), epoch.data.credentials.len());
            self.compare(Dimension::PoolsConfigurationBytes, scope, bytes as u64, found);
        }
    }

    /// What all slots cost in metadata then. Values that no rule has accepted yet may be absurd, and cost as much.
    fn prepaid(&self) -> u64 {
        self.next.prepaid(POOL_COSTS)
    }

    /// What is counted in words: of the node, of every tenant, provider and client that there is.
    fn in_words<'a>(&self, ground: &'a Ground, control: &Control, books: &'a Books) -> Vec<Change<'a>> {
        use Dimension::*;
        let mut changes = Vec::new();
        let mut add = |word: &'a dyn Lower, scope: Scope, dimensions: &[Dimension]| {
            let lower = |dimension: &Dimension| {
                let limit = self.lower(*dimension)?;
                Some(Change { word, scope, dimension: *dimension, limit })
            };
            changes.extend(dimensions.iter().filter_map(lower));
        };
        let floor = &ground.floor;
        add(&*floor.node, Scope::Node, &[PoolsPending, PoolsRunning]);
        add(&*ground.shares, Scope::Node, &[PoolsConnections, PoolsIdleConnections]);
        add(&*ground.jobs, Scope::Node, &[PoolsWorkers, PoolsCleanupJobs]);
        for tenant in control.tenant_numbers() {
            let word = &*floor.tenants[usize::from(tenant)];
            add(word, Scope::Tenant(tenant), &[PoolsRequestsPerTenant, PoolsRunningPerTenant]);
        }
        for provider in control.pooled_numbers() {
            let word = &*floor.providers[usize::from(provider)];
            add(word, Scope::Provider(provider), &[PoolsRequestsPerProvider, PoolsRunningPerProvider]);
        }
        for listed in &books.clients {
            add(listed.client.word(), Scope::Client(listed.slot), &[PoolsConnectionsPerClient]);
        }
        // What is not prepaid. If fewer slots are prepaid now, there may be more of it than before: the word stays.
        let (dimension, metadata) = (PoolsMetadataBytes, &ground.pool_metadata);
        if let Some(limit) = self.lower(dimension).and_then(|limit| limit.checked_sub(self.prepaid()))
            && limit < metadata.limit()
        {
            changes.push(Change { word: metadata, scope: Scope::Node, dimension, limit });
        }
        changes
    }
}

/// A time in the unit of limits.
fn millis(time: Duration) -> u128 {
    time.as_nanos().div_ceil(1_000_000)
}

/// The smaller one, if the unit of limits does not tell them apart.
fn same_or(now: Duration, next: Duration) -> Duration {
    if millis(now) == millis(next) { now.min(next) } else { next }
}

fn value(limits: &PoolLimits, dimension: Dimension) -> u64 {
    match limits.get(dimension) {
        Some(value) => value,
        None => crate::broken::accounting("a limit of pools that the limits of pools do not have"),
    }
}

/// Clients, to be looked at once nothing is held any more.
type Clients = Vec<Arc<dyn AnyClient>>;

impl Registry {
    /// See [`ProviderPools::lower_limits`](super::ProviderPools::lower_limits).
    pub(super) fn lower_limits(&self, limits: PoolLimits) -> Result<(), LowerError> {
        // What nobody keeps any more is not to stand in the way.
        self.sweep();
        let age = self.idle_age_nanos();
        // Credits are no use.
        let _exactly = self.ground().floor.exactly();
        let (result, touched) = self.lower_all(limits);
        if let Some(clients) = touched {
            let mut panics = Panics::none();
            let floor = &self.ground().floor;
            panics.run(|| floor.line.look_again(floor));
            for client in clients {
                panics.add(client.look_again());
                panics.run(|| drop(client));
            }
            self.contain(panics);
        }
        if self.idle_age_nanos() < age {
            // The plan of the control task may be too late.
            self.events.look_soon();
        }
        result
    }

    /// LW1, LW2. With the answer, who must be looked at again: nobody if no word was touched.
    fn lower_all(&self, limits: PoolLimits) -> (Result<(), LowerError>, Option<Clients>) {
        let books = self.books();
        if self.is_retired() {
            return (Err(LowerError::Retired), None);
        }
        let ground = self.ground();
        let mut control = ground.control();
        let asked = Asked::new(**self.limits.load(), limits);
        let mut obstacles = asked.contradictions();
        asked.in_books(&books, self.clients.load(order::OBSERVE), &mut obstacles);
        let changes = asked.in_words(ground, &control, &books);
        if !obstacles.is_empty() {
            obstacles.extend(look(&changes).into_iter().map(|at| Obstacle::of_word(at, asked.prepaid())));
            return (Err(LowerError::Refused(obstacles)), None);
        }
        let touched = books.clients.iter().map(|listed| listed.client.clone()).collect();
        if let Err(unchanged) = lower_all(&changes) {
            let obstacles = unchanged.into_iter().map(|at| Obstacle::of_word(at, asked.prepaid())).collect();
            return (Err(LowerError::Refused(obstacles)), Some(touched));
        }
        control.request_limits = Some(RequestLimits::of(&asked.next));
        self.publish_limits(asked.next);
        (Ok(()), Some(touched))
    }
}
