//! The one control task of a registry: it closes what has rested long enough, frees what nothing keeps, and gives memory of
//! a burst back to the system. It sleeps until there is something to do.
use super::registry::Registry;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::order;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

const NEVER: u64 = u64::MAX;
/// Blocks given back to the system in one step, per size class.
const PURGE: usize = 64;
/// How long after the last look at idle connections blocks are looked at: long enough for a burst to be over.
const PURGE_AFTER: Duration = Duration::from_secs(1);

/// What wakes the control task, and whether it runs.
#[derive(Debug)]
pub(crate) struct Events {
    wake: Notify,
    /// The instant of the next look, nanoseconds since the node's base. Parks only ever bring it forward.
    next: AtomicU64,
    retired: AtomicBool,
    owners: AtomicU64,
    failed: AtomicBool,
}

impl Events {
    pub(crate) fn new() -> Self {
        Events {
            wake: Notify::new(),
            next: AtomicU64::new(NEVER),
            retired: AtomicBool::new(false),
            owners: AtomicU64::new(1),
            failed: AtomicBool::new(false),
        }
    }
    /// Looks at `instant`, if no earlier look is planned. A load when one is, as nearly always.
    pub(crate) fn look_at(&self, instant: u64) {
        if self.next.load(order::COUNT) <= instant {
            return;
        }
        if self.next.fetch_min(instant, order::STEP) > instant {
            self.wake.notify_one();
        }
    }
    /// Looks as soon as possible.
    pub(crate) fn look_soon(&self) {
        self.look_at(0);
    }
    pub(crate) fn retire(&self) {
        self.retired.store(true, order::PUBLISH);
        self.wake.notify_one();
    }
    pub(crate) fn owners(&self) -> u64 {
        self.owners.load(order::OBSERVE)
    }
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(order::OBSERVE)
    }
}

/// Starts the task. It keeps the registry until the registry is retired and drained.
pub(crate) fn spawn(handle: &Handle, registry: Arc<Registry>) {
    handle.spawn(run(registry));
}

/// Notes an interruption: a panic, or a runtime that was shut down under the task.
struct Watchdog {
    registry: Arc<Registry>,
    finished: bool,
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if !self.finished {
            self.registry.events.failed.store(true, order::PUBLISH);
            self.registry.retire();
        }
        self.registry.events.owners.store(0, order::PUBLISH);
        self.registry.ground().floor.ended.notify_waiters();
    }
}

async fn run(registry: Arc<Registry>) {
    let mut watchdog = Watchdog { registry, finished: false };
    serve(&watchdog.registry).await;
    watchdog.finished = true;
}

async fn serve(registry: &Registry) {
    let ground = registry.ground();
    let events = &registry.events;
    let clock = ground.floor.clock;
    let mut purge_at: Option<tokio::time::Instant> = None;
    loop {
        if events.retired.load(order::OBSERVE) {
            drain(registry).await;
            return;
        }
        let next = events.next.load(order::OBSERVE);
        let due = (next != NEVER).then(|| tokio::time::Instant::from_std(clock.at_nanos(next)));
        let until = [due, purge_at].into_iter().flatten().min();
        let woken = events.wake.notified();
        match until {
            None => woken.await,
            // Elapsed is as good a reason to look as a wake.
            Some(until) => drop(tokio::time::timeout_at(until, woken).await),
        }
        let now = clock.nanos_since_base(clock.now());
        if events.next.load(order::OBSERVE) <= now {
            events.next.swap(NEVER, order::STEP);
            if let Some(next) = registry.expire(now) {
                events.look_at(next);
            }
            registry.sweep();
            // The blocks of a burst follow a while after it.
            purge_at.get_or_insert(tokio::time::Instant::now() + PURGE_AFTER);
        }
        if purge_at.is_some_and(|at| at <= tokio::time::Instant::now()) {
            let more = purge(registry);
            purge_at = more.then(|| tokio::time::Instant::now() + PURGE_AFTER);
        }
    }
}

/// Gives free blocks back to the system. Whether there are more.
fn purge(registry: &Registry) -> bool {
    let Some(io) = registry.ground().io.get() else { return false };
    // Advice that the system does not take leaves the memory where it was.
    io.blocks.purge(PURGE).is_ok_and(|purged| purged.more)
}

/// A retired registry: wait until nothing of it is owned any more.
async fn drain(registry: &Registry) {
    loop {
        let ended = registry.ground().floor.ended.notified();
        registry.sweep();
        let snapshot = registry.snapshot();
        if snapshot.is_idle() && snapshot.connections == 0 {
            return;
        }
        ended.await;
    }
}
