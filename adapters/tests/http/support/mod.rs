//! What the tests stand on: a library with everything installed, and an origin that does exactly what a script says.

pub(crate) mod origin;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full};
use latent_adapters::http::{
    HTTP, HttpError, HttpErrorKind, HttpProvider, HttpProviderConfig, HttpRequest, HttpResponse, OriginConfig,
};
use latent_capabilities::Deadline;
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{Epoch, ProviderPools};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, CapabilitySession, IoLimits, Plan, PlanSpec, PoolLimits,
};

/// Longer than anything that is expected to happen takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A broker, its runtime, its pools and one HTTP provider.
pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) io: IoRuntime,
    pub(crate) pools: ProviderPools,
    pub(crate) provider: HttpProvider,
    plan: Plan,
}

impl World {
    /// One plain origin on loopback.
    pub(crate) fn plain(origin: SocketAddr) -> Self {
        Self::with(origin, |_| {})
    }

    /// One plain origin on loopback, with a changed configuration.
    pub(crate) fn with(origin: SocketAddr, change: impl FnOnce(&mut HttpProviderConfig)) -> Self {
        let mut config = HttpProviderConfig::new("orders", 1)
            .origin(OriginConfig::new(format!("http://{origin}")).allow_loopback());
        change(&mut config);
        Self::of(config, PoolLimits::default())
    }

    pub(crate) fn of(config: HttpProviderConfig, limits: PoolLimits) -> Self {
        let broker = Broker::new(BrokerLimits::default()).expect("a broker");
        let io = IoRuntime::new(&broker, IoLimits::default()).expect("a runtime");
        let handle = tokio::runtime::Handle::current();
        let pools = ProviderPools::new(&broker, &io, handle, limits).expect("pools");
        let provider = HttpProvider::install(&pools, config, Epoch::NONE).expect("a provider");
        let spec = PlanSpec::new("tenant-a", "orders-app").bind(&HTTP, &provider.installed().reference());
        let plan = broker.seal(spec).expect("a plan");
        Self { broker, io, pools, provider, plan }
    }

    /// A session that ends after `time`.
    pub(crate) fn session(&self, time: Duration) -> CapabilitySession {
        let deadline = Deadline::after(time).expect("a deadline");
        self.broker.open(&self.plan, Activation::until(deadline)).expect("a session")
    }

    /// A session that ends long after the test.
    pub(crate) fn patient(&self) -> CapabilitySession {
        self.session(PATIENCE)
    }

    /// `GET path`, read to its end.
    pub(crate) async fn get(&self, path: &'static str) -> Result<(u16, Bytes), HttpError> {
        let session = self.patient();
        read(self.provider.open(&session, HttpRequest::get(path), Empty::new()).await?).await
    }

    /// `GET path` within `time`, read to its end.
    pub(crate) async fn get_within(
        &self,
        time: Duration,
        path: &'static str,
    ) -> Result<(u16, Bytes), HttpError> {
        let session = self.session(time);
        read(self.provider.open(&session, HttpRequest::get(path), Empty::new()).await?).await
    }

    /// A method with a whole body, read to its end.
    pub(crate) async fn with_body(
        &self,
        method: http::Method,
        body: impl Into<Bytes>,
    ) -> Result<(u16, Bytes), HttpError> {
        let session = self.patient();
        let request = HttpRequest::new(method, http::uri::PathAndQuery::from_static("/"));
        read(self.provider.open(&session, request, Full::new(body.into())).await?).await
    }

    /// Nothing is held any more but idle connections; without those, nothing at all.
    pub(crate) fn assert_quiet(&self) {
        self.provider.close_idle();
        assert!(self.io.snapshot().is_zero(), "{:?}", self.io.snapshot());
        let pools = self.pools.snapshot();
        assert!(pools.is_idle() && pools.connections == 0, "{pools:?}");
    }

    /// Connections that are parked.
    pub(crate) fn idle(&self) -> u64 {
        self.pools.snapshot().idle_connections
    }

    /// Waits until nothing is held any more, for tests whose tasks end on their own.
    pub(crate) async fn settle(&self) {
        let quiet = async {
            loop {
                self.provider.close_idle();
                if self.io.snapshot().is_zero()
                    && self.pools.snapshot().is_idle()
                    && self.pools.snapshot().connections == 0
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(5), quiet).await.is_err() {
            self.assert_quiet();
        }
    }
}

/// Reads a response to its verified end. The bytes are a copy: no chunk of the window is kept.
pub(crate) async fn read(response: HttpResponse) -> Result<(u16, Bytes), HttpError> {
    let status = response.status.as_u16();
    let mut body = response.body;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok((status, bytes.into()))
}

/// Reads a body until it ends or fails, keeping nothing. Says how much there was and how it ended.
pub(crate) async fn drain<B>(body: B) -> (u64, Result<(), B::Error>)
where
    B: Body<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    let mut total = 0;
    loop {
        match body.frame().await {
            None => return (total, Ok(())),
            Some(Err(error)) => return (total, Err(error)),
            Some(Ok(frame)) => total += frame.data_ref().map_or(0, |data| data.len() as u64),
        }
    }
}

/// The kind of the error that something ended with.
pub(crate) fn kind<T: std::fmt::Debug>(outcome: Result<T, HttpError>) -> HttpErrorKind {
    outcome.expect_err("an error").kind()
}

/// Ends with a panic where something takes longer than it can.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends in time")
}
