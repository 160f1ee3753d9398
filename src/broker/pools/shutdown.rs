//! The end of a registry: retirement in one go, the drain, and whoever waits for it.
use super::registry::{CLOSED, Installations, OPEN, RETIRED, Registry};
use super::snapshot::PoolSnapshot;
use crate::account::node::NodeUnits;
use crate::broker::io;
use crate::foreign::Panics;
use crate::sync::order;
use crate::time::Deadline;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

impl Registry {
    /// See [`ProviderPools::close_admission`](super::ProviderPools::close_admission).
    pub(super) fn close_admission(&self) {
        // The state only moves on: a retired registry stays retired.
        let _already = self.state.compare_exchange(OPEN, CLOSED, order::STEP, order::LOST);
        // A step on the word that every admission steps on: one that came before it is counted by now, one that comes
        // after it sees the state, and gives back what it took.
        let _marks = self.ground().floor.node.give(NodeUnits::NONE);
    }

    /// See [`ProviderPools::retire`](super::ProviderPools::retire). Every call does all of it, so that it is done when any
    /// of them returns.
    pub(super) fn retire(&self) {
        self.state.swap(RETIRED, order::STEP);
        let ground = self.ground();
        // A job that came before this step is counted; none comes after it but cleanup.
        let _was = ground.jobs.close();
        let mut panics = Panics::none();
        // Wakes everybody who waits.
        panics.run(|| io::retire(ground));
        let (clients, listed, epochs, installed) = {
            let mut books = self.books();
            let installed = self.installed.swap(Arc::new(Installations::new()));
            for provider in installed.values() {
                if !provider.core.take_out() {
                    crate::broken::accounting("an installed provider lost its tag to another");
                }
            }
            let clients = books.close_clients(None, true);
            (clients, std::mem::take(&mut books.clients), std::mem::take(&mut books.epochs), installed)
        };
        // Connections give their share back, then look whether the registry is retired: a step on that word, and each of
        // them is either seen to be gone or sees that somebody waits for it.
        ground.shares.meet();
        for client in &clients {
            panics.add(client.drain());
        }
        // From here on handles, connections and plans alone keep what there was (P3).
        panics.run(|| drop((clients, listed, epochs, installed)));
        self.contain(panics);
        self.events.retire();
        ground.floor.ended.notify_waiters();
    }

    /// Waits until nothing of a retired registry is owned any more.
    pub(super) async fn drain(self: &Arc<Self>) {
        loop {
            // Listen first, look afterwards: what ends in between is not missed.
            let ended = self.ground().floor.ended.notified();
            self.join_ended().await;
            self.sweep();
            let snapshot = self.snapshot();
            if snapshot.is_idle() && snapshot.connections == 0 {
                return;
            }
            ended.await;
        }
    }

    /// See [`ProviderPools::shutdown`](super::ProviderPools::shutdown).
    pub(super) async fn shutdown(self: &Arc<Self>, deadline: Deadline) -> PoolSnapshot {
        let mut ends = pin!(self.wait_for_the_end(deadline));
        poll_fn(|cx| {
            // Who waits here stands in one list with the control task and with all others who do, and is woken by whoever
            // ends last.
            let told = Told { waker: Some(cx.waker().clone()), registry: self.clone() };
            ends.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(told))))
        })
        .await
    }

    async fn wait_for_the_end(&self, deadline: Deadline) -> PoolSnapshot {
        self.retire();
        loop {
            let ended = self.ground().floor.ended.notified();
            let snapshot = self.snapshot();
            if snapshot.is_clean() {
                return snapshot;
            }
            if tokio::time::timeout_at(deadline.tokio(), ended).await.is_err() {
                return self.snapshot();
            }
        }
    }
}

/// The waker of whoever waits for a shutdown. A panic of it is contained: the list would forget who stands behind, and
/// whoever ended last would pay for it.
struct Told {
    /// `None` only while it is dropped.
    waker: Option<Waker>,
    registry: Arc<Registry>,
}

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let mut panics = Panics::none();
        panics.run(|| {
            if let Some(waker) = &self.waker {
                waker.wake_by_ref();
            }
        });
        self.registry.contain(panics);
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut panics = Panics::none();
        panics.run(|| drop(self.waker.take()));
        self.registry.contain(panics);
    }
}
