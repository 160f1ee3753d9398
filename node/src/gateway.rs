//! The library, put together for one configuration: broker, I/O, pools, a plan for each grant.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use latent_adapters::http::{HTTP, HttpCredential, HttpError, HttpProvider};
use latent_capabilities::{
    Activation, Broker, CapabilitySession, Deadline, Epoch, Error, IoRuntime, Plan, PlanSpec, Policy,
    ProviderPools, StreamBudget,
};

use crate::config::{Config, Provider, Tenant};
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

/// A provider that is installed.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) name: Arc<str>,
    pub(crate) origins: u16,
    pub(crate) provider: HttpProvider,
    place: usize,
}

/// A tenant with its sealed plans.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) name: Arc<str>,
    /// The longest deadline that its requests may name.
    longest: Duration,
    /// For each provider; `None`: it may not be called.
    terms: Box<[Option<Terms>]>,
}

/// What one tenant may do with one provider: a plan binds a capability once, so each pair has its own.
#[derive(Debug)]
pub(crate) struct Terms {
    plan: Plan,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
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

        let each =
            config.providers.iter().enumerate().map(|(place, provider)| install(&pools, place, provider));
        let doors = each.collect::<Result<Box<[Door]>, _>>()?;
        let each = config.tenants.iter().map(|tenant| admit(&broker, config, &doors, tenant));
        let tenants = each.collect::<Result<Box<[Admitted]>, _>>()?;
        let tokens = config.tenants.iter().map(|tenant| tenant.token.reveal());
        Ok(Self {
            tokens: Tokens::new(tokens).map_err(BuildError::Randomness)?,
            names: doors.iter().map(|door| (door.name.clone(), door.place)).collect(),
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

    /// Opens a session for one request of `tenant` under `terms`.
    pub(crate) fn open(
        &self,
        tenant: &Admitted,
        terms: &Terms,
        wanted: Option<Duration>,
    ) -> Result<CapabilitySession, Error> {
        let time = wanted.unwrap_or(self.deadline).min(tenant.longest);
        let until = Deadline::after(time).expect("a deadline of at most one day from now is an instant");
        self.broker.open(&terms.plan, Activation::until(until))
    }
}

impl Admitted {
    /// What this tenant may do with a provider; `None`: nothing.
    pub(crate) fn terms(&self, door: &Door) -> Option<&Terms> {
        self.terms[door.place].as_ref()
    }
}

fn install(pools: &ProviderPools, place: usize, provider: &Provider) -> Result<Door, BuildError> {
    let name = provider.name.as_str();
    let mut http = provider.http.clone();
    http.credentials = provider.credential.as_ref().map(|credential| {
        HttpCredential::new(credential.header.clone(), credential.value.reveal().as_bytes())
    });
    let installed = HttpProvider::install(pools, http, Epoch::NONE)
        .map_err(|error| BuildError::Provider { name: name.to_owned(), error })?;
    let origins =
        u16::try_from(provider.http.origins.len()).expect("the configuration allows 64 origins at most");
    Ok(Door { name: name.into(), origins, provider: installed, place })
}

fn admit(broker: &Broker, config: &Config, doors: &[Door], tenant: &Tenant) -> Result<Admitted, BuildError> {
    let each = config.providers.iter().zip(doors).zip(&tenant.allowed).map(|((provider, door), allowed)| {
        let seal = || seal(broker, tenant, provider, door);
        allowed.then(seal).transpose()
    });
    let terms = each
        .collect::<Result<Box<[_]>, Error>>()
        .map_err(|error| BuildError::Tenant { name: tenant.name.clone(), error })?;
    let longest = tenant.deadline.unwrap_or(config.ingress.longest_deadline);
    Ok(Admitted { name: tenant.name.as_str().into(), longest, terms })
}

fn seal(broker: &Broker, tenant: &Tenant, provider: &Provider, door: &Door) -> Result<Terms, Error> {
    let body = &provider.http.body;
    // The adapter asks for what the provider allows; what one tenant may is less, and counted at the ingress.
    let mut policy = Policy::new().stream(StreamBudget::new(body.request_bytes, body.response_bytes)?);
    if let Some(time) = provider.wall_time {
        policy = policy.wall_time(time);
    }
    let reference = door.provider.installed().reference();
    let plan =
        broker.seal(PlanSpec::new(&tenant.name, &provider.name).bind_with(&HTTP, &reference, policy))?;
    Ok(Terms {
        plan,
        request_bytes: tenant.request_bytes.unwrap_or(u64::MAX).min(body.request_bytes),
        response_bytes: tenant.response_bytes.unwrap_or(u64::MAX).min(body.response_bytes),
    })
}
