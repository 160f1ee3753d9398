//! The way to one provider: the epoch that is installed, a plan for each tenant that may call it, and how both are
//! replaced while requests run.
//!
//! Provider and plans are published together, in one step. A request takes what is published once and uses it to its
//! end; if its epoch is replaced before the request has started, the library refuses it as retired, and
//! [`Door::next`] says what to use instead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use latent_adapters::http::{HTTP, HttpCredential, HttpError, HttpProvider, HttpProviderConfig};
use latent_capabilities::{
    Broker, Deadline, Epoch, Error, Plan, PlanSpec, Policy, ProviderPools, ProviderRef, StreamBudget,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::{Provider, Tenant};
use crate::gateway::{Admitted, BuildError};

/// A provider under its name.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) name: Arc<str>,
    /// For each tenant, in the order of the configuration; `None`: it may not call this provider.
    grants: Box<[Option<Grant>]>,
    current: ArcSwap<Installed>,
    stage: Arc<watch::Sender<Stage>>,
}

/// What a tenant may do here, whatever the epoch.
#[derive(Debug)]
pub(crate) struct Grant {
    tenant: String,
    /// Bytes of one body, if fewer than the provider allows.
    request_bytes: Option<u64>,
    response_bytes: Option<u64>,
}

/// One epoch, and what it takes to call it.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) provider: HttpProvider,
    pub(crate) origins: u16,
    /// For each tenant, in the order of the configuration.
    terms: Box<[Option<Terms>]>,
}

/// What one tenant may do with one epoch: a plan binds a capability once, so each pair has its own.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) plan: Plan,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
}

/// What those who were refused as retired wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    /// The epoch that is published.
    published: u64,
    /// Whether another is about to be.
    rotating: bool,
    /// Requests that were refused as retired and are under way a second time.
    again: usize,
}

/// A request that is under way a second time, until this is dropped: who is refused once more has failed, so the next
/// rotation waits for it.
#[derive(Debug)]
pub(crate) struct Again(Arc<watch::Sender<Stage>>);

impl Drop for Again {
    fn drop(&mut self) {
        self.0.send_modify(|stage| stage.again -= 1);
    }
}

/// A provider that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotated {
    pub(crate) old: u64,
    pub(crate) new: u64,
}

/// Why a provider was not replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RotateError {
    /// There is no room for the plans of both epochs, or the new settings allow more than the node does.
    Plans(Error),
    /// The adapter or the library does not take the new settings.
    Install(HttpError),
    /// The new epoch is installed and a tenant's plan could not be sealed, though its room was kept: the node is
    /// retiring.
    Sealing(Error),
    /// There is no larger number.
    LastEpoch,
}

impl fmt::Display for RotateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RotateError::Plans(error) => {
                write!(out, "plans beside those of the old epoch cannot be sealed: {error}")
            }
            RotateError::Install(error) => write!(out, "the next epoch cannot be installed: {error}"),
            RotateError::Sealing(error) => write!(out, "the node is retiring: {error}"),
            RotateError::LastEpoch => out.write_str("this is the last epoch there can be"),
        }
    }
}

impl Grant {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        Self {
            tenant: tenant.name.clone(),
            request_bytes: tenant.request_bytes,
            response_bytes: tenant.response_bytes,
        }
    }

    /// A plan for this tenant under the settings of `provider`, bound to an instance.
    fn seal(&self, broker: &Broker, provider: &Provider, instance: &ProviderRef) -> Result<Plan, Error> {
        let body = &provider.http.body;
        // The adapter asks for what the provider allows; what one tenant may is less, and counted at the ingress.
        let mut policy = Policy::new().stream(StreamBudget::new(body.request_bytes, body.response_bytes)?);
        if let Some(time) = provider.wall_time {
            policy = policy.wall_time(time);
        }
        broker.seal(PlanSpec::new(&self.tenant, &provider.name).bind_with(&HTTP, instance, policy))
    }

    fn terms(&self, plan: Plan, provider: &Provider) -> Terms {
        let body = &provider.http.body;
        Terms {
            plan,
            request_bytes: self.request_bytes.unwrap_or(u64::MAX).min(body.request_bytes),
            response_bytes: self.response_bytes.unwrap_or(u64::MAX).min(body.response_bytes),
        }
    }
}

impl Installed {
    /// The number of this epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.provider.installed().epoch().0
    }

    /// What this tenant may do with it; `None`: nothing.
    pub(crate) fn terms(&self, tenant: &Admitted) -> Option<&Terms> {
        self.terms[tenant.place].as_ref()
    }

    fn new(provider: HttpProvider, terms: Box<[Option<Terms>]>) -> Self {
        let origins = u16::try_from(provider.origins()).expect("the configuration allows 64 origins at most");
        Self { provider, origins, terms }
    }
}

impl Door {
    /// Installs the first epoch and seals the plans of those who may call it.
    pub(crate) fn open(
        broker: &Broker,
        pools: &ProviderPools,
        provider: &Provider,
        grants: Box<[Option<Grant>]>,
    ) -> Result<Self, BuildError> {
        let name = provider.name.as_str();
        let installed = HttpProvider::install(pools, settings(provider, provider.http.epoch), Epoch::NONE)
            .map_err(|error| BuildError::Provider { name: name.to_owned(), error })?;
        let reference = installed.installed().reference();
        let terms = grants.iter().map(|grant| {
            let Some(grant) = grant else { return Ok(None) };
            let plan = grant
                .seal(broker, provider, &reference)
                .map_err(|error| BuildError::Tenant { name: grant.tenant.clone(), error })?;
            Ok(Some(grant.terms(plan, provider)))
        });
        let first = Installed::new(installed, terms.collect::<Result<_, BuildError>>()?);
        let (stage, _) = watch::channel(Stage { published: first.epoch(), rotating: false, again: 0 });
        let current = ArcSwap::from_pointee(first);
        Ok(Self { name: name.into(), grants, current, stage: Arc::new(stage) })
    }

    /// Whether this tenant may call this provider, whatever its epoch.
    pub(crate) fn admits(&self, tenant: &Admitted) -> bool {
        self.grants[tenant.place].is_some()
    }

    /// What is published now.
    pub(crate) fn current(&self) -> Arc<Installed> {
        self.current.load_full()
    }

    /// What to use instead of an epoch that was refused as retired. Waits at most until the deadline for a rotation that
    /// is under way. `None`: nothing replaces it.
    pub(crate) async fn next(&self, refused: u64, until: Deadline) -> Option<(Arc<Installed>, Again)> {
        let until = Instant::from_std(until.instant());
        let mut watched = self.stage.subscribe();
        loop {
            timeout_at(until, watched.wait_for(|stage| !stage.rotating)).await.ok()?.ok()?;
            // In one step with the look: a rotation begins before it, or waits for this request.
            let mut replaced = false;
            let counted = self.stage.send_if_modified(|stage| {
                replaced = stage.published > refused;
                let counts = !stage.rotating && replaced;
                stage.again += usize::from(counts);
                counts
            });
            match (counted, replaced) {
                (true, _) => return Some((self.current(), Again(self.stage.clone()))),
                (false, false) => return None,
                (false, true) => {}
            }
        }
    }

    /// Begins a rotation: from here on nobody is admitted a second time before it is over. Waits for those who are already,
    /// but not longer than `patience`: the time that a request may stand in line. Then each of them has had its turn.
    pub(crate) async fn begin(&self, patience: Duration) -> Rotating {
        self.stage.send_modify(|stage| stage.rotating = true);
        let rotating = Rotating(self.stage.clone());
        let mut watched = self.stage.subscribe();
        if timeout(patience, watched.wait_for(|stage| stage.again == 0)).await.is_err() {
            tracing::debug!("some that were admitted again still run");
        }
        rotating
    }

    /// Installs the next epoch with these settings, seals the plans of all tenants again, and publishes both. What was
    /// accepted on the old epoch ends on it. If it is refused, everything is as it was.
    ///
    /// One rotation at a time: the caller sees to it, and has [begun](Self::begin) it. Control path; destroys idle connections of the old epoch.
    pub(crate) fn rotate(
        &self,
        broker: &Broker,
        pools: &ProviderPools,
        provider: &Provider,
        rotating: Rotating,
    ) -> Result<Rotated, RotateError> {
        let old = self.current();
        let next = old.epoch().checked_add(1).ok_or(RotateError::LastEpoch)?;
        let next = next.max(provider.http.epoch);
        // Plans bind an instance, so they can only be sealed once it is installed, when there is no way back. Plans of the
        // same size that are bound to the old one keep their room until then.
        let kept = self.each(|grant| {
            grant.seal(broker, provider, &old.provider.installed().reference()).map_err(RotateError::Plans)
        })?;
        let installed = HttpProvider::install(pools, settings(provider, next), Epoch(old.epoch()))
            .map_err(RotateError::Install)?;
        let reference = installed.installed().reference();
        let mut kept = kept.into_vec().into_iter();
        let terms = self.each(|grant| {
            drop(kept.next());
            let plan = grant.seal(broker, provider, &reference).map_err(RotateError::Sealing)?;
            Ok(grant.terms(plan, provider))
        })?;
        let rotated = Rotated { old: old.epoch(), new: next };
        let terms = self.spread(terms.into_vec());
        self.current.store(Arc::new(Installed::new(installed, terms)));
        self.stage.send_modify(|stage| stage.published = rotated.new);
        drop(rotating);
        Ok(rotated)
    }

    /// Something for each tenant that may call this provider.
    fn each<T>(&self, make: impl FnMut(&Grant) -> Result<T, RotateError>) -> Result<Box<[T]>, RotateError> {
        self.grants.iter().flatten().map(make).collect()
    }

    /// What was made for each tenant that may call this provider, by the places of all tenants.
    fn spread(&self, terms: Vec<Terms>) -> Box<[Option<Terms>]> {
        let mut terms = terms.into_iter();
        self.grants.iter().map(|grant| grant.as_ref().and_then(|_| terms.next())).collect()
    }
}

/// Says that a rotation is under way, until it is over, however it ends.
#[derive(Debug)]
pub(crate) struct Rotating(Arc<watch::Sender<Stage>>);

impl Drop for Rotating {
    fn drop(&mut self) {
        self.0.send_modify(|stage| stage.rotating = false);
    }
}

/// The settings of a provider as the adapter takes them, under this number.
fn settings(provider: &Provider, epoch: u64) -> HttpProviderConfig {
    let mut http = provider.http.clone();
    http.epoch = epoch;
    http.credentials = provider.credential.as_ref().map(|credential| {
        HttpCredential::new(credential.header.clone(), credential.value.reveal().as_bytes())
    });
    http
}
