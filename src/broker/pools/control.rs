//! The one control task of a registry: it keeps the deadlines of all operations, closes what has rested long enough, joins
//! jobs that have ended, frees what nothing keeps, and gives memory of a burst back to the system. It sleeps until there is
//! something to do; on an idle node it does nothing at all. All its instants are the node clock's.
//!
//! | what | wakes it | how often |
//! | --- | --- | --- |
//! | deadlines (`queue::keeper`) | the earliest instant that any operation is watched until | once per instant |
//! | idle connections | the instant at which the first of them will have rested long enough | once per instant |
//! | replaced epochs | a replacement, the end of a connection of theirs | at once, then at growing intervals while something keeps them |
//! | jobs that have ended | their end | once per job: it is joined, and its place is free |
//! | broken accounting | its finder | once: the registry is retired |
//! | blocks of a burst | the first admission since it last looked | every second while there is something to give back, at growing intervals while calls live |
use super::registry::Registry;
use crate::broker::bytes::settle_kept;
use crate::foreign::Panics;
use crate::queue::due::Due;
use crate::queue::floor::OPERATIONS;
use crate::queue::keeper::NEVER;
use crate::queue::look::NextLook;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::order;
use crate::time::Clock;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout_at};

/// Deadlines served in one step; others may run in between.
const EXPIRE: usize = 64;
/// Connections destroyed in one step; others may run in between.
const STEP: usize = 64;
/// Blocks given back to the system in one step, per size class.
const PURGE: usize = 64;
/// How long after the first admission, and after each look that found something, blocks are looked at.
const PURGE_AFTER: Duration = Duration::from_secs(1);
/// The longest interval between two looks while calls live.
const PURGE_MOST: Duration = Duration::from_secs(16);
/// The first interval at which the control task looks again for the end of a replaced epoch. It doubles: whoever keeps an
/// epoch for a while is asked about as rarely.
const SWEEP_AFTER: Duration = Duration::from_millis(20);

/// What wakes the control task, and whether it runs.
#[derive(Debug)]
pub(crate) struct Events {
    wake: Notify,
    /// When idle connections are looked at.
    next: NextLook,
    /// Whether anything was admitted since blocks were last looked at.
    worked: AtomicBool,
    retired: AtomicBool,
    owners: AtomicU64,
    failed: AtomicBool,
    panics: AtomicU64,
    /// How often the control task woke, for tests: an idle node's does not.
    #[cfg(test)]
    looks: AtomicU64,
}

impl Events {
    pub(super) fn new() -> Self {
        Events {
            wake: Notify::new(),
            next: NextLook::new(),
            worked: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            owners: AtomicU64::new(1),
            failed: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            #[cfg(test)]
            looks: AtomicU64::new(0),
        }
    }
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(order::COUNT)
    }
    /// Looks at idle connections at `instant`, if no earlier look is planned. A load when one is, as nearly always.
    ///
    /// For whoever let a connection rest by a step on the idle words (F1 of [`NextLook`]).
    pub(super) fn look_at(&self, instant: u64) {
        if self.next.at_most(instant) {
            self.wake.notify_one();
        }
    }
    /// Looks as soon as possible.
    pub(super) fn look_soon(&self) {
        if self.next.step_to(0) {
            self.wake.notify_one();
        }
    }
    /// Something was admitted: the blocks that it will leave behind are looked at. A load, but for the first one after a
    /// look.
    #[inline]
    pub(super) fn note_work(&self) {
        if !self.worked.load(order::COUNT) && !self.worked.swap(true, order::STEP) {
            self.wake.notify_one();
        }
    }
    pub(super) fn retire(&self) {
        self.retired.store(true, order::PUBLISH);
        self.wake.notify_one();
    }
    /// A job has ended and waits to be joined. After it was posted.
    pub(super) fn job_ended(&self, registry: &Registry) {
        self.wake.notify_one();
        // While a retired registry is drained its control task listens there.
        registry.ended();
    }
    /// So many panics of foreign code were contained.
    pub(super) fn contained(&self, panics: u64) {
        if panics > 0 {
            self.panics.fetch_add(panics, order::COUNT);
        }
    }
    pub(super) fn panics(&self) -> u64 {
        self.panics.load(order::COUNT)
    }
    pub(super) fn owners(&self) -> u64 {
        self.owners.load(order::OBSERVE)
    }
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(order::OBSERVE)
    }
}

/// Starts the task. It keeps the registry until the registry is retired and drained, or the runtime ends.
pub(super) fn spawn(registry: Arc<Registry>) {
    let handle = registry.handle.clone();
    // Made before the task: a runtime that is shut down already drops the future without a poll.
    let watchdog = Watchdog { registry, finished: false };
    // Before the task runs for the first time too: what is granted by then is watched like all that comes later.
    watchdog.registry.ground().floor.keeper.begin();
    handle.spawn(run(watchdog));
}

async fn run(mut watchdog: Watchdog) {
    serve(&watchdog.registry).await;
    // Everything was stopped by the retirement, so nobody waits for a deadline any more.
    watchdog.registry.drain().await;
    // What the last burst left behind; nothing is admitted any more.
    while purge(&watchdog.registry) {
        tokio::task::yield_now().await;
    }
    watchdog.finished = true;
}

/// Notes an interruption: a panic, or a runtime that was shut down under the task.
struct Watchdog {
    registry: Arc<Registry>,
    finished: bool,
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let registry = &self.registry;
        let mut panics = Panics::none();
        if !self.finished {
            registry.events.failed.store(true, order::PUBLISH);
            panics.run(|| registry.retire());
        }
        let floor = &registry.ground().floor;
        panics.run(|| floor.keeper.withdraw(floor));
        panics.run(|| registry.forsake_jobs());
        registry.events.owners.store(0, order::PUBLISH);
        registry.ground().floor.ended.notify_waiters();
        panics.resume();
    }
}

/// Until the registry is retired.
async fn serve(registry: &Arc<Registry>) {
    let events = &registry.events;
    let floor = &registry.ground().floor;
    let (clock, keeper) = (floor.clock, &floor.keeper);
    let mut due = Due::new(OPERATIONS);
    let mut sweep = Rhythm::new(SWEEP_AFTER, Duration::MAX);
    let mut blocks = Rhythm::new(PURGE_AFTER, PURGE_MOST);
    loop {
        let broken = crate::broken::told();
        if crate::broken::is_broken() {
            // Whoever waits learns of it.
            registry.retire();
        }
        if events.retired.load(order::OBSERVE) {
            return;
        }
        let until = events.next.at().min(keeper.planned()).min(sweep.at).min(blocks.at);
        sleep(&clock, until, [events.wake.notified(), keeper.called(), broken]).await;
        #[cfg(test)]
        events.looks.fetch_add(1, order::COUNT);
        registry.join_ended().await;
        let now = clock.nanos_since_base(clock.now());
        if keeper.planned() <= now {
            registry.contain(keeper.serve(floor, &mut due, now, EXPIRE));
            if keeper.planned() <= now {
                tokio::task::yield_now().await;
            }
        }
        let called = events.next.at() <= now;
        if called {
            events.next.forget();
            if let Some(next) = registry.expire(now, STEP) {
                events.look_at(next);
                if next <= now {
                    tokio::task::yield_now().await;
                }
            }
        }
        if called || sweep.at <= now {
            let kept = registry.sweep();
            sweep.plan(now, kept > 0, called);
        }
        if blocks.at <= now {
            let worked = events.worked.swap(false, order::STEP);
            let more = purge(registry);
            // Whoever was admitted before that swap and did not see it is counted now, or is gone with the next look.
            let exactly = floor.exactly();
            let alive = floor.node.snapshot().owners > 0;
            drop(exactly);
            blocks.plan(now, more || worked || alive, more || worked);
            if blocks.at == NEVER {
                // Nothing lives, so nothing has a deadline: an idle node plans no look.
                registry.contain(keeper.tidy(floor, &mut due, now));
            }
        } else if blocks.at == NEVER && events.worked.load(order::OBSERVE) {
            blocks.plan(now, true, true);
        }
    }
}

/// Until the instant has come or somebody calls; one is as good a reason to look as the other.
async fn sleep(clock: &Clock, until: u64, [first, second, third]: [Notified<'_>; 3]) {
    let (mut first, mut second, mut third) = (pin!(first), pin!(second), pin!(third));
    let called = poll_fn(|cx| {
        let ready = first.as_mut().poll(cx).is_ready()
            | second.as_mut().poll(cx).is_ready()
            | third.as_mut().poll(cx).is_ready();
        if ready { Poll::Ready(()) } else { Poll::Pending }
    });
    if until == NEVER {
        called.await;
    } else {
        drop(timeout_at(Instant::from_std(clock.at_nanos(until)), called).await);
    }
}

/// When to look next: soon after something happened, then at intervals that double.
struct Rhythm {
    first: Duration,
    most: Duration,
    interval: Duration,
    /// Nanoseconds since the node's base; [`NEVER`]: not at all.
    at: u64,
}

impl Rhythm {
    fn new(first: Duration, most: Duration) -> Self {
        Rhythm { first, most, interval: first, at: NEVER }
    }
    /// After a look: whether another is needed, and whether something happened.
    fn plan(&mut self, now: u64, again: bool, anew: bool) {
        self.interval =
            if anew { self.first } else { self.interval.checked_mul(2).unwrap_or(self.most).min(self.most) };
        // A time may saturate: what lies centuries ahead never comes.
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(NEVER);
        self.at = if again { now.saturating_add(interval) } else { NEVER };
    }
}

/// Gives free blocks back to the system. Whether there are more.
fn purge(registry: &Registry) -> bool {
    let Some(io) = registry.ground().io.get() else { return false };
    settle_kept(registry.ground());
    // Advice that the system does not take leaves the memory where it was.
    io.blocks.purge(PURGE).is_ok_and(|purged| purged.more)
}
