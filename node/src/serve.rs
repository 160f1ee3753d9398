//! The life of a node: listen, serve, drain, close, say what is left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use latent_capabilities::{Deadline, Group};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::admin::Admin;
use crate::check;
use crate::config::{Config, Node};
use crate::gateway::{BuildError, Gateway};
use crate::ingress::front::{Desk, Doors, Front, Phase};
use crate::say;
use crate::status;

/// Connections to the status listener at a time.
const STATUS_PLACES: usize = 16;
/// Connections to the listener of operators at a time.
const ADMIN_PLACES: usize = 16;

/// The sockets of a node.
#[derive(Debug)]
pub(crate) struct Listeners {
    tenants: TcpListener,
    status: Option<TcpListener>,
    admin: Option<TcpListener>,
}

/// An address that cannot be listened on.
#[derive(Debug)]
pub(crate) struct CannotListen {
    pub(crate) address: SocketAddr,
    pub(crate) error: std::io::Error,
}

impl Listeners {
    /// Binds every address that the configuration names.
    pub(crate) async fn bind(config: &Config) -> Result<Self, CannotListen> {
        Ok(Self {
            tenants: bind(config.node.listen).await?,
            status: bind_some(config.node.status).await?,
            admin: bind_some(config.admin.as_ref().map(|admin| admin.listen)).await?,
        })
    }

    /// Where tenants call.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.tenants.local_addr()
    }

    /// Where the status page is, if it has a listener of its own.
    pub(crate) fn status_address(&self) -> Option<SocketAddr> {
        self.status.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Where operators call, if they can.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

async fn bind_some(address: Option<SocketAddr>) -> Result<Option<TcpListener>, CannotListen> {
    match address {
        Some(address) => bind(address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, CannotListen> {
    TcpListener::bind(address).await.map_err(|error| CannotListen { address, error })
}

/// A node that serves.
#[derive(Debug)]
pub(crate) struct Running {
    desk: Arc<Desk>,
    phase: watch::Sender<Phase>,
    fronts: Vec<JoinHandle<()>>,
    /// Places for connections of operators, whose answers are waited for too.
    operators: Arc<Semaphore>,
    node: Node,
    signals: Signals,
}

#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the signals no longer end the process by themselves.
    fn install() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Why a node does not start.
#[derive(Debug)]
pub(crate) enum StartError {
    Build(BuildError),
    Signals(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Build(error) => error.fmt(out),
            StartError::Signals(error) => write!(out, "cannot wait for signals: {error}"),
        }
    }
}

impl Running {
    /// Starts to serve.
    pub(crate) fn start(config: Config, listeners: Listeners) -> Result<Self, StartError> {
        for group in [Group::Broker, Group::Io, Group::Pools] {
            let limits = check::summary(&config, group);
            tracing::info!(group = group.name(), limits, "limits (* from the configuration)");
        }
        let gateway = Gateway::build(&config).map_err(StartError::Build)?;
        let signals = Signals::install().map_err(StartError::Signals)?;
        let (phase, watched) = watch::channel(Phase::Serving);
        let places = Arc::new(Semaphore::new(config.ingress.connections));
        let admin = config.admin.map(|admin| Admin::new(&admin, config.file)).transpose();
        let admin = admin.map_err(|error| StartError::Build(BuildError::Randomness(error)))?;
        let desk = Arc::new(Desk {
            gateway,
            ingress: config.ingress,
            phase: watched,
            admin,
            requests: AtomicUsize::new(0),
            places: places.clone(),
        });
        let doors = if listeners.status.is_none() { Doors::All } else { Doors::Providers };
        let front = |listener, doors, places| {
            tokio::spawn(Front { listener, desk: desk.clone(), doors, places }.run())
        };
        let mut fronts = vec![front(listeners.tenants, doors, places)];
        let few = |places| Arc::new(Semaphore::new(places));
        if let Some(listener) = listeners.status {
            fronts.push(front(listener, Doors::Status, few(STATUS_PLACES)));
        }
        let operators = few(ADMIN_PLACES);
        if let Some(listener) = listeners.admin {
            fronts.push(front(listener, Doors::Admin, operators.clone()));
        }
        Ok(Self { desk, phase, fronts, operators, node: config.node, signals })
    }

    /// Serves until a signal or an operator says otherwise, then drains and closes. Gives whether nothing was left.
    pub(crate) async fn run(mut self) -> bool {
        let cause = tokio::select! {
            signal = self.signals.next() => signal,
            () = self.desk.retirement() => "POST /admin/retire",
        };
        tracing::info!(cause, grace_ms = self.node.grace.as_millis(), "stopping");
        self.drain().await;
        self.close().await
    }

    /// Lets accepted requests finish within the grace time, or until a second signal.
    async fn drain(&mut self) {
        let until = Instant::now() + self.node.grace;
        self.phase.send_replace(Phase::Draining);
        for front in self.fronts.drain(..) {
            if let Err(error) = front.await {
                tracing::error!(%error, "a listener broke");
            }
        }
        let all =
            u32::try_from(self.desk.ingress.connections).expect("the configuration allows 65,536 at most");
        let idle = async {
            let tenants = self.desk.places.acquire_many(all).await;
            // Who asked for this is told so.
            tenants.and(self.operators.acquire_many(ADMIN_PLACES as u32).await).map(drop)
        };
        let cut = tokio::select! {
            finished = timeout_at(until, idle) => finished.is_err().then_some("the grace time is over"),
            cause = self.signals.next() => Some(cause),
        };
        if let Some(cause) = cut {
            let (connections, requests) = (self.desk.connections(), self.desk.requests.load(ORDER));
            tracing::warn!(cause, connections, requests, "cutting what is left");
            self.phase.send_replace(Phase::Aborting);
            // Each connection ends at its next poll; its session and call go with it.
            let _ = timeout_at(Instant::now() + self.node.close, self.desk.places.acquire_many(all)).await;
        }
    }

    /// Shuts the library down and says what is left of it.
    async fn close(self) -> bool {
        let gateway = &self.desk.gateway;
        let deadline = Deadline::after(self.node.close).expect("ten minutes from now is an instant");
        gateway.pools.close_admission();
        let left = gateway.pools.shutdown(deadline).await;
        gateway.io.retire();
        gateway.broker.retire();
        let is_clean = left.is_clean() && self.desk.connections() == 0;
        if is_clean {
            tracing::info!("stopped; nothing is left");
            say("stopped; left: nothing");
            return true;
        }
        let remaining = status::remaining(&status::library(gateway));
        tracing::error!(connections = self.desk.connections(), remaining, "stopped with something left");
        say(&format!("stopped; left: {remaining}"));
        false
    }
}

const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;
