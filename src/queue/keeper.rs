//! The keeper: deadlines without a timer per wait.
//!
//! Each operation slot has one word that says until when it is watched; one task, the control task of the pools, serves
//! all of them with one timer. A slot goes on being watched when its operation ends, so a warm slot's next operation
//! nearly always finds that somebody will look early enough, and a wait arms nothing at all.
//!
//! ```text
//!   who waits or holds a grant                          the keeper
//!   ──────────────────────────                          ──────────
//!   step on the slot's word (park, grant)               at the planned instant: forget the plan, take what was posted
//!   look at `watch`: early enough? done                 each slot that is due: forget `watch`,
//!   no: bring `watch` forward, post the slot,                step on the slot's word, look at it now:
//!       bring the plan forward; if it moved: wake               due: expire      free: forget      else: watch again
//! ```
//!
//! Invariants:
//!
//! * D1. A slot that is watched is in the keeper's heap or among the posted ones, at its instant or before, and the plan is
//!   no later than the earliest of these.
//! * D2. Nobody's deadline is lost. A waiter and the keeper meet at the slot's word: each steps on it, the waiter before it
//!   looks at `watch`, the keeper after it has forgotten `watch`. If the waiter came first, the keeper sees it and
//!   watches the slot again; if the keeper came first, the waiter sees that nobody watches. So the look is a load.
//! * D3. Nobody is expired for another's deadline: the keeper looks at phase and deadline of whoever is there *now*, through
//!   a lease of its own.
//! * D4. A poster and the keeper meet at the plan: who posts steps on it afterwards, the keeper before it takes what was
//!   posted.
//! * D5. Once the keeper is gone, `watch` says so, for good: each slot is marked first, then whoever is parked there is
//!   woken. Who parked before is woken and looks again; who parks later sees the mark. Both then use a timer of their own.
//! * D6. An operation that is granted is watched until its deadline, so a grant that is not started goes back then.
//! * D7. A look at a deadline that is watched needs no clock, fifteen times in a row at most. If it has passed, the operation is
//!   told, or the keeper, which had planned to look by then, is late; it may be, where an owner never lets it run. Where the clock
//!   shows that it is late, each look reads it. An instant that had to be posted may have passed before: the next look reads it.
//!
//! What it costs: a wait at a watched slot is one load. Posting is a step on `watch`, one or two on the bit set of posted
//! slots and one on the plan, and a wake if the plan moved; a slot is posted about once per interval between its
//! deadlines. Each slot that is due costs at most twelve steps in the heap and four on its own words, however many are
//! watched. There is no lock, no allocation and no scan. With nothing watched there is no timer; when the node has become
//! idle, [`tidy`](Keeper::tidy) forgets what operations of the past left behind.
use super::due::Due;
use super::floor::{Floor, OPERATIONS, Tenure};
use super::operation::{ALL_CELLS, Cause, Operation, State, Step};
use crate::foreign::Panics;
use crate::mem::arena::Lease;
use crate::mem::bitset::BitSet;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::order;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// No instant at all.
pub const NEVER: u64 = u64::MAX;

/// The word of a slot when the keeper is gone. As an instant it would be the first one of all, so nothing changes it.
const GONE: u64 = u64::MAX;

/// How many looks at one slot may do without the clock in a row. Threads that look at once may lose counts of each other.
pub const LOOKS: u16 = 15;

/// An instant as `watch` keeps it: upside down, so that zero pages say that nobody watches.
const fn kept(instant: u64) -> u64 {
    !instant
}

/// What others leave for the keeper, and where it says whether there is one.
#[derive(Debug)]
pub struct Keeper {
    /// Whether there is one.
    serves: AtomicBool,
    /// When it will look, nanoseconds since the node's base. Others only ever bring it forward.
    plan: AtomicU64,
    /// Slots whose `watch` was brought forward since it last looked.
    posted: BitSet,
    /// Wakes it when the plan was brought forward.
    wake: Notify,
}

impl Keeper {
    /// No keeper yet.
    pub fn new() -> Self {
        Keeper {
            serves: AtomicBool::new(false),
            plan: AtomicU64::new(NEVER),
            posted: BitSet::new(OPERATIONS),
            wake: Notify::new(),
        }
    }

    /// Makes sure that the keeper looks at the operation at `until` or before. `false`: there is no keeper.
    ///
    /// The caller has stepped on the operation's word since it got to the phase that the instant belongs to (D2).
    #[inline]
    pub fn watch<K: Tenure>(&self, lease: &Lease<Operation<K>>, until: u64) -> bool {
        let watched = lease.watch.load(order::COUNT);
        if watched >= kept(until) && watched != GONE { true } else { self.watch_sooner(lease, until) }
    }

    /// Whether it will look at the operation at its deadline or before. One that is gone will not.
    #[inline]
    #[must_use]
    pub fn watches<K: Tenure>(lease: &Lease<Operation<K>>) -> bool {
        let watched = lease.watch.load(order::COUNT);
        watched >= kept(lease.deadline.load(order::COUNT)) && watched != GONE
    }

    /// Whether a look at an operation that is granted or started can do without the clock (D7). Counts as such a look.
    #[inline]
    pub fn spares_the_clock<K: Tenure>(lease: &Lease<Operation<K>>) -> bool {
        let left = lease.looks.load(order::COUNT);
        if left == 0 || !Self::watches(lease) {
            return false;
        }
        lease.looks.store(left - 1, order::COUNT);
        true
    }

    /// The clock read `now`, and the operation, which is granted or started, goes on: the next looks need not read it (D7), if
    /// somebody looks at its deadline, and is not late already.
    #[inline]
    pub fn clock_was_read<K: Tenure>(&self, lease: &Lease<Operation<K>>, deadline: u64, now: u64) {
        if self.watch(lease, deadline) && kept(lease.watch.load(order::COUNT)) > now {
            lease.looks.store(LOOKS, order::COUNT);
        }
    }

    #[cold]
    fn watch_sooner<K: Tenure>(&self, lease: &Lease<Operation<K>>, until: u64) -> bool {
        if !self.is_there() {
            return false;
        }
        if !planted!("looks_after_a_post") {
            lease.looks.store(0, order::COUNT);
        }
        let watched = lease.watch.fetch_max(kept(until), order::STEP);
        if watched < kept(until) {
            let late = planted!("post_after_the_plan");
            if !late {
                self.posted.set(usize::from(lease.index()));
            }
            if self.plan.fetch_min(until, order::STEP) > until {
                self.wake.notify_one();
            }
            if late {
                self.posted.set(usize::from(lease.index()));
            }
        }
        watched != GONE
    }

    /// The keeper begins. It is one task, which calls [`serve`](Self::serve) at the planned instant.
    pub fn begin(&self) {
        self.serves.store(true, order::PUBLISH);
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.serves.load(order::OBSERVE)
    }

    /// When to serve next; [`NEVER`]: not before [`called`](Self::called).
    pub fn planned(&self) -> u64 {
        self.plan.load(order::OBSERVE)
    }

    /// Resolves when the plan was brought forward.
    pub fn called(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Serves what is due at `now`, at most so many slots. If there are more, the plan is not after `now`.
    ///
    /// The panics are those of wakers and destructors; everybody is served before they are handed out.
    #[cfg_attr(latent_realtime, sanitize(realtime = "nonblocking"))]
    pub fn serve<K: Tenure>(&self, floor: &Floor<K>, due: &mut Due, now: u64, most: usize) -> Panics {
        self.collect(floor, due);
        let mut panics = Panics::none();
        for _ in 0..most {
            let Some(slot) = due.take(now) else { break };
            if let Some(next) = fire(floor, slot, now, &mut panics) {
                due.put(slot, next);
            }
        }
        self.plan_for(due);
        panics
    }

    /// Looks at every watched slot and forgets those that are free: for a node that has become idle. The only work here
    /// that grows with how many are watched: four steps for each.
    pub fn tidy<K: Tenure>(&self, floor: &Floor<K>, due: &mut Due, now: u64) -> Panics {
        self.collect(floor, due);
        let mut panics = Panics::none();
        due.revise(|slot| fire(floor, slot, now, &mut panics));
        self.plan_for(due);
        panics
    }

    fn collect<K: Tenure>(&self, floor: &Floor<K>, due: &mut Due) {
        // D4: whoever brings the plan forward from here on wakes the keeper; whoever did before has posted.
        self.plan.swap(NEVER, order::STEP);
        self.posted.drain(|slot| {
            let watched = floor.operations.peek(slot as u16).watch.load(order::COUNT);
            if watched != 0 {
                due.put(slot as u16, kept(watched));
            }
        });
    }

    fn plan_for(&self, due: &Due) {
        if let Some(first) = due.first() {
            self.plan.fetch_min(first, order::STEP);
        }
    }

    /// The keeper is over, for good. Whoever is parked is woken and goes on with a timer of its own (D5).
    ///
    /// # Panics
    ///
    /// At the end, with what the first waker panicked with.
    pub fn withdraw<K: Tenure>(&self, floor: &Floor<K>) {
        if !self.serves.swap(false, order::STEP) {
            return;
        }
        let mut panics = Panics::none();
        for index in 0..OPERATIONS as u16 {
            floor.operations.peek(index).watch.swap(GONE, order::STEP);
            if floor.operations.touch(index).leases() == 0 {
                continue;
            }
            panics.run(|| {
                let Some(lease) = floor.operations.upgrade_live(index) else { return };
                if let Ok((_, _, mut wakers)) = lease.word().update_and_wake(Some, ALL_CELLS) {
                    wakers.wake_all();
                }
            });
        }
        panics.resume();
    }
}

impl Default for Keeper {
    fn default() -> Self {
        Self::new()
    }
}

/// Looks at a slot that is due. When to look again, if ever.
fn fire<K: Tenure>(floor: &Floor<K>, slot: u16, now: u64, panics: &mut Panics) -> Option<u64> {
    let mut next = None;
    floor.operations.peek(slot).watch.swap(0, order::STEP);
    // D2: this step comes before the publication of the slot's next operation, or sees it.
    if floor.operations.touch(slot).leases() > 0 {
        // It may be the last lease, and its end wakes and destroys what is foreign.
        panics.run(|| {
            if let Some(lease) = floor.operations.upgrade_live(slot) {
                next = look(floor, &lease, now);
            }
        });
    }
    next
}

/// Expires the operation if it is due, else watches it again, until the instant that is given back.
fn look<K: Tenure>(floor: &Floor<K>, lease: &Lease<Operation<K>>, now: u64) -> Option<u64> {
    loop {
        let (until, cause) = end_of(lease)?;
        if until > now {
            lease.watch.fetch_max(kept(until), order::STEP);
            return Some(until);
        }
        // Lost to a step of somebody else: look again. A grant that beats the queue age keeps the grant.
        if floor.stop(lease, cause?) {
            return None;
        }
    }
}

/// Until when the operation may be as it is, and what it ends with. Nothing ends what is only staged: the first poll of its
/// wait looks for itself, and until then it stands in nobody's way.
fn end_of<K: Tenure>(lease: &Lease<Operation<K>>) -> Option<(u64, Option<Cause>)> {
    let state = State(lease.word().load());
    let deadline = lease.deadline.load(order::COUNT);
    let queue_until = lease.queue_until.load(order::COUNT);
    match state.step() {
        Step::Staged => Some((deadline.min(queue_until), None)),
        Step::Queued if queue_until < deadline => Some((queue_until, Some(Cause::QueueAge))),
        Step::Queued | Step::Granted => Some((deadline, Some(Cause::Deadline))),
        Step::Started if state.cause() == Cause::None => Some((deadline, Some(Cause::Deadline))),
        Step::Started | Step::Free | Step::Left | Step::Returned => None,
    }
}
