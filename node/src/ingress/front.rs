//! A listener: accepts a bounded number of connections, and drains.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::connection;
use crate::admin::Admin;
use crate::config::Ingress;
use crate::gateway::Gateway;

/// How far the node is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// Nothing new is accepted; accepted requests finish.
    Draining,
    /// The grace time is over: what is left is cut.
    Aborting,
}

/// What is served behind a listener; `/healthz` everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doors {
    /// `/http/...`, `/snapshot`, `/figures` and `/`
    All,
    /// `/http/...`
    Providers,
    /// `/snapshot`, `/figures` and `/`
    Status,
    /// `/admin/...` and `/metrics`, with the token of operators.
    Admin,
}

impl Doors {
    pub(crate) fn providers(self) -> bool {
        matches!(self, Self::All | Self::Providers)
    }

    pub(crate) fn status(self) -> bool {
        matches!(self, Self::All | Self::Status)
    }
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) gateway: Gateway,
    pub(crate) ingress: Ingress,
    pub(crate) phase: watch::Receiver<Phase>,
    /// What operators can do; `None`: there is no listener for them.
    pub(crate) admin: Option<Admin>,
    /// Requests in progress, until their answer is handed over.
    pub(crate) requests: AtomicUsize,
    /// Places for connections of tenants.
    pub(crate) places: Arc<Semaphore>,
}

impl Desk {
    /// Connections of tenants that are open.
    pub(crate) fn connections(&self) -> usize {
        self.ingress.connections - self.places.available_permits()
    }

    /// Resolves once an operator has retired the node.
    pub(crate) async fn retirement(&self) {
        match &self.admin {
            Some(admin) => admin.retirement().await,
            None => std::future::pending().await,
        }
    }
}

/// One listener with its connections.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) listener: TcpListener,
    pub(crate) desk: Arc<Desk>,
    pub(crate) doors: Doors,
    pub(crate) places: Arc<Semaphore>,
}

/// What accepting came to.
enum Next {
    Connection(TcpStream, OwnedSemaphorePermit),
    /// The system could not give a connection; the place is free again.
    Failed(std::io::Error),
    Drain,
}

impl Front {
    /// Accepts until the node drains. Then it takes what the system has already accepted on the node's behalf, and
    /// closes the listener.
    pub(crate) async fn run(self) {
        let mut phase = self.desk.phase.clone();
        loop {
            let next = tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => Next::Drain,
                next = self.accept() => next,
            };
            match next {
                Next::Connection(stream, place) => self.spawn(stream, place),
                Next::Failed(error) if is_about_peer(&error) => {}
                Next::Failed(error) => {
                    // Descriptors or memory are short. Waiting lets those who have some finish.
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Next::Drain => break,
            }
        }
        self.take_backlog();
    }

    async fn accept(&self) -> Next {
        let place = self.places.clone().acquire_owned().await.expect("the places are never closed");
        match self.listener.accept().await {
            Ok((stream, _)) => Next::Connection(stream, place),
            Err(error) => Next::Failed(error),
        }
    }

    fn spawn(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        // Answers are written whole or in large chunks; waiting to fill packets only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let (desk, doors, phase) = (self.desk.clone(), self.doors, self.desk.phase.clone());
        tokio::spawn(async move {
            connection::serve(stream, desk, doors, phase).await;
            drop(place);
        });
    }

    /// Connections that clients have already made, and perhaps sent a request on, would be reset with the listener.
    fn take_backlog(self) {
        let address: Option<SocketAddr> = self.listener.local_addr().ok();
        let Self { listener, desk, doors, places } = self;
        let Ok(listener) = listener.into_std() else { return };
        while let Ok(place) = places.clone().try_acquire_owned() {
            let Ok((stream, _)) = listener.accept() else { break };
            let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            let Ok(stream) = ready else { continue };
            let (desk, phase) = (desk.clone(), desk.phase.clone());
            tokio::spawn(async move {
                connection::serve(stream, desk, doors, phase).await;
                drop(place);
            });
        }
        tracing::info!(address = address.map(tracing::field::display), "stopped listening");
    }
}

/// Errors of `accept` that are about the one peer that was about to be accepted.
fn is_about_peer(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
