//! The library, put together for one configuration: broker, I/O, pools, a plan for each grant.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latent_adapters::http::HttpError;
use latent_capabilities::{
    Activation, Broker, CapabilitySession, Deadline, Error, IoRuntime, Plan, ProviderPools,
};

use crate::config::{Config, Provider, Tenant};
use crate::door::{Door, Grant, RotateError, Rotated, Rotating};
use crate::tokens::Tokens;

/// What carries requests.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) broker: Broker,
    pub(crate) io: IoRuntime,
    pub(crate) pools: ProviderPools,
    tokens: Tokens,
    tenants: Box<[Admitted]>,
    doors: Box<[Door]>,
    /// Place in `doors`.
    names: HashMap<Arc<str>, usize>,
    /// Deadline of a request that names none.
    deadline: Duration,
}

/// A tenant.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) name: Arc<str>,
    pub(crate) place: usize,
    /// The longest deadline that its requests may name.
    longest: Duration,
}

/// Why the parts do not go together.
#[derive(Debug)]
pub(crate) enum BuildError {
    /// What the library says to its limits.
    Limits(String),
    /// A provider cannot be installed.
    Provider { name: String, error: HttpError },
    /// A tenant's plan cannot be sealed.
    Tenant { name: String, error: Error },
    /// The system gives no randomness.
    Randomness(getrandom::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Limits(text) => write!(out, "limits: {text}"),
            BuildError::Provider { name, error } => {
                write!(out, "provider {name} cannot be installed: {error}")
            }
            BuildError::Tenant { name, error } => {
                write!(out, "the plan of tenant {name} cannot be sealed: {error}")
            }
            BuildError::Randomness(error) => write!(out, "no randomness from the system: {error}"),
        }
    }
}

impl std::error::Error for BuildError {}

impl Gateway {
    /// Puts the library together. Must be called inside the runtime that will serve: the pools keep their control
    /// task there.
    ///
    /// # Errors
    ///
    /// The first part that does not go.
    pub(crate) fn build(config: &Config) -> Result<Self, BuildError> {
        let limits = |error: &dyn fmt::Display| BuildError::Limits(error.to_string());
        let broker = Broker::new(config.limits.broker).map_err(|error| limits(&error))?;
        let io = IoRuntime::new(&broker, config.limits.io).map_err(|error| limits(&error))?;
        let handle = tokio::runtime::Handle::current();
        let pools =
            ProviderPools::new(&broker, &io, handle, config.limits.pools).map_err(|error| limits(&error))?;

        let each = config.providers.iter().enumerate().map(|(place, provider)| {
            let grants = config.tenants.iter().map(|tenant| tenant.allowed[place].then(|| Grant::of(tenant)));
            Door::open(&broker, &pools, provider, grants.collect())
        });
        let doors = each.collect::<Result<Box<[Door]>, _>>()?;
        let each = config.tenants.iter().enumerate().map(|(place, tenant)| admit(config, place, tenant));
        let tenants = each.collect();
        let tokens = config.tenants.iter().map(|tenant| tenant.token.reveal());
        Ok(Self {
            tokens: Tokens::new(tokens).map_err(BuildError::Randomness)?,
            names: doors.iter().enumerate().map(|(place, door)| (door.name.clone(), place)).collect(),
            deadline: config.ingress.deadline,
            broker,
            io,
            pools,
            tenants,
            doors,
        })
    }

    /// Whose token this is.
    pub(crate) fn tenant_of(&self, token: &[u8]) -> Option<&Admitted> {
        self.tokens.find(token).map(|tenant| &self.tenants[tenant])
    }

    /// The provider of this name.
    pub(crate) fn door(&self, name: &str) -> Option<&Door> {
        self.names.get(name).map(|place| &self.doors[*place])
    }

    /// Until when a request of `tenant` may take that began then and asks for so long.
    pub(crate) fn until(&self, tenant: &Admitted, began: Instant, wanted: Option<Duration>) -> Deadline {
        let time = wanted.unwrap_or(self.deadline).min(tenant.longest);
        Deadline::at(began.checked_add(time).expect("a deadline of at most one day from now is an instant"))
    }

    /// Opens a session for one request under `plan`.
    pub(crate) fn open(&self, plan: &Plan, until: Deadline) -> Result<CapabilitySession, Error> {
        self.broker.open(plan, Activation::until(until))
    }

    /// Replaces a provider by its next epoch; see [`Door::rotate`].
    pub(crate) fn rotate(
        &self,
        door: &Door,
        provider: &Provider,
        rotating: Rotating,
    ) -> Result<Rotated, RotateError> {
        door.rotate(&self.broker, &self.pools, provider, rotating)
    }
}

fn admit(config: &Config, place: usize, tenant: &Tenant) -> Admitted {
    let longest = tenant.deadline.unwrap_or(config.ingress.longest_deadline);
    Admitted { name: tenant.name.as_str().into(), place, longest }
}
