//! Waiting, for a grant and for anything else that an operation's stop must reach.
//!
//! [`Watch`] is the one way to park on behalf of an operation: it registers the waker in one of the operation's park
//! cells, makes sure that a stop of the session finds the operation, and has its deadline served by the keeper. Where
//! there is none it arms a timer, only while it is really parked.
use super::floor::{Floor, Tenure};
use super::keeper::Keeper;
use super::operation::{ALL_CELLS, Cause, Operation, State, Step};
use super::watched::note_for_session;
use crate::account::charge::{self, Request};
use crate::foreign::Panics;
use crate::mem::arena::Lease;
use crate::mem::park::{Park, Seat};
use crate::sync::order;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// How often a session that cannot push its cancellation is looked at while something of it waits (io.28), and how
/// often a waiter looks for itself when all park cells of its operation are taken.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);

pin_project! {
    /// A waiter's registration with its operation: park cell, stop, deadline. The timer is there without a keeper, for a
    /// session that must be looked at, and for who finds no park cell.
    ///
    /// It must be told to [`leave`](Watch::leave) before it is dropped while the operation lives on; a watch that is
    /// forgotten keeps its park cell until the operation ends, and costs nothing else.
    #[derive(Debug)]
    pub struct Watch {
        seat: Option<Seat>,
        // Since when it stands in the line for a grant; nanoseconds since the node's base, 0: it does not.
        in_line_since: u64,
        #[pin]
        sleep: Option<Sleep>,
    }
}

/// What a [`Watch`] saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The condition that the waiter parked under no longer holds: look again.
    Changed,
    /// The instant that was given has passed.
    Due,
    /// The session was stopped or closed, or its probe says cancelled.
    Stopped(Cause),
}

impl Watch {
    /// A watch that is not registered anywhere.
    pub const fn new() -> Self {
        Watch { seat: None, in_line_since: 0, sleep: None }
    }

    /// Parks until `still` fails, the instant `until` (nanoseconds since the node's base) passes, or the session is
    /// stopped. Cancel safe; allocates nothing.
    pub fn poll<K: Tenure>(
        self: Pin<&mut Self>,
        lease: &Lease<Operation<K>>,
        cx: &mut Context<'_>,
        until: u64,
        still: impl Fn(State) -> bool,
    ) -> Poll<Seen> {
        self.poll_at(lease, cx, until, None, still)
    }

    /// [`poll`](Self::poll), for who has just read the coarse clock.
    #[inline]
    fn poll_at<K: Tenure>(
        self: Pin<&mut Self>,
        lease: &Lease<Operation<K>>,
        cx: &mut Context<'_>,
        until: u64,
        now: Option<u64>,
        still: impl Fn(State) -> bool,
    ) -> Poll<Seen> {
        let floor = K::floor(lease.pin().shared());
        let mut this = self.project();
        note_for_session(lease);
        if let Some(cause) = lease.pin().stopped() {
            return Poll::Ready(Seen::Stopped(cause));
        }
        if this.seat.is_none() {
            *this.seat = lease.claim_any(ALL_CELLS);
        }
        let look = match this.seat.as_mut() {
            Some(seat) => match lease.park(seat, cx.waker(), |bits| still(State(bits))) {
                Park::Parked => false,
                Park::Changed(_) => return Poll::Ready(Seen::Changed),
            },
            None if still(State(lease.word().load())) => true,
            None => return Poll::Ready(Seen::Changed),
        };
        // Parking was a step on the word, so this look is enough.
        let served = floor.keeper.watch(lease, until);
        loop {
            let probe = lease.pin().probe();
            if probe == Some(true) {
                return Poll::Ready(Seen::Stopped(Cause::Probe));
            }
            if served && !look && probe.is_none() {
                if this.sleep.is_some() {
                    this.sleep.set(None);
                }
                let is_due = match now {
                    Some(now) => now >= until,
                    None => !Keeper::spares_the_clock(lease) && floor.passed(until),
                };
                return if is_due { Poll::Ready(Seen::Due) } else { Poll::Pending };
            }
            let deadline = floor.deadline(until).instant();
            let now = floor.clock.now();
            if now >= deadline {
                return Poll::Ready(Seen::Due);
            }
            let next = if look || probe.is_some() { deadline.min(now + LOOK_EVERY) } else { deadline };
            let next = tokio::time::Instant::from_std(next);
            match this.sleep.as_mut().as_pin_mut() {
                Some(sleep) if sleep.deadline() == next => {}
                Some(sleep) if sleep.deadline() < next && !sleep.is_elapsed() => {}
                Some(sleep) => sleep.reset(next),
                None => this.sleep.set(Some(tokio::time::sleep_until(next))),
            }
            let Some(sleep) = this.sleep.as_mut().as_pin_mut() else { return Poll::Pending };
            if sleep.poll(cx).is_pending() {
                return Poll::Pending;
            }
            if look && !still(State(lease.word().load())) {
                return Poll::Ready(Seen::Changed);
            }
        }
    }

    /// It stands in line: since now, by the coarse clock, if it did not before. `now`: what who comes into the line has read.
    fn note_in_line<K: Tenure>(self: Pin<&mut Self>, floor: &Floor<K>, now: Option<u64>) {
        let since = self.project().in_line_since;
        if *since == 0 {
            *since = now.unwrap_or_else(|| floor.clock.coarse_nanos()).max(1);
        }
    }

    /// It was granted, and has come for it: how long that took, if it stood in line.
    fn note_granted<K: Tenure>(self: Pin<&mut Self>, floor: &Floor<K>) {
        let since = std::mem::take(self.project().in_line_since);
        if since > 0 {
            // Readings of one monotonic clock.
            let now = floor.clock.coarse_nanos();
            floor.ages.note(now.max(since) - since, floor.clock.coarse_tick());
        }
    }

    /// Whether there is anything to [`leave`](Self::leave).
    #[inline]
    pub fn is_registered(&self) -> bool {
        self.seat.is_some() || self.sleep.is_some()
    }

    /// Gives the park cell back and forgets the timer. The watch can be used again.
    pub fn leave<K: Tenure>(self: Pin<&mut Self>, lease: &Lease<Operation<K>>) {
        let mut this = self.project();
        if let Some(seat) = this.seat.take() {
            lease.release(seat);
        }
        this.sleep.set(None);
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a wait ended without a grant.
pub type NotGranted = Cause;

/// One poll of waiting for a grant in line, after [`go_straight`] did not lead there.
///
/// `Ok`: the operation is GRANTED. `Err`: it was stopped, and stays charged as the phase says until its last lease.
pub fn poll_grant<K: Tenure>(
    lease: &Lease<Operation<K>>,
    mut watch: Pin<&mut Watch>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), NotGranted>> {
    let floor = K::floor(lease.pin().shared());
    let mut now = None;
    loop {
        let state = State(lease.word().load());
        match state.step() {
            Step::Staged => {
                let read = floor.clock.coarse_nanos();
                match stopped(lease).or_else(|| passed(lease, read)) {
                    Some(cause) => {
                        floor.stop(lease, cause);
                    }
                    None => {
                        now = Some(read);
                        floor.line.come(floor, lease, ALL_CELLS, watch.as_mut().project().seat);
                    }
                }
            }
            Step::Queued => {
                watch.as_mut().note_in_line(floor, now);
                let deadline = lease.deadline.load(order::COUNT);
                let until = deadline.min(lease.queue_until.load(order::COUNT));
                let seen = watch.as_mut().poll_at(lease, cx, until, now, |state| state.step() == Step::Queued);
                match seen {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Seen::Changed) => {}
                    Poll::Ready(Seen::Stopped(cause)) => {
                        floor.stop(lease, cause);
                    }
                    // Whoever was granted before its queue age was noticed keeps the grant.
                    Poll::Ready(Seen::Due) => {
                        let cause = if until == deadline { Cause::Deadline } else { Cause::QueueAge };
                        floor.stop(lease, cause);
                    }
                }
            }
            Step::Granted => {
                watch.as_mut().note_granted(floor);
                watch.leave(lease);
                // What is granted and not started in time goes back; nobody needs to poll for that.
                floor.keeper.watch(lease, lease.deadline.load(order::COUNT));
                return Poll::Ready(Ok(()));
            }
            Step::Free | Step::Started => {
                crate::broken::accounting("an operation that waits for its grant has started")
            }
            Step::Left | Step::Returned => {
                watch.leave(lease);
                return Poll::Ready(Err(state.cause()));
            }
        }
    }
}

/// Out of STAGED straight to GRANTED, if nobody waits in front and there is room. `false`: by way of [`poll_grant`]. No
/// clock is read: who goes straight through meets the deadline at the start.
#[inline(always)]
pub fn go_straight<K: Tenure>(lease: &Lease<Operation<K>>) -> bool {
    let floor = K::floor(lease.pin().shared());
    let goes = State(lease.word().load()).step() == Step::Staged
        && stopped(lease).is_none()
        && go_directly(floor, lease) == Direct::Granted;
    if goes {
        // As every grant: what is not started in time goes back.
        floor.keeper.watch(lease, lease.deadline.load(order::COUNT));
    }
    goes
}

/// What became of an attempt to go straight through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direct {
    Granted,
    /// It was stopped meanwhile.
    Stopped,
    /// Somebody waits in front, or there is no room.
    NoRoom,
}

#[inline]
fn stopped<K: Tenure>(lease: &Lease<Operation<K>>) -> Option<Cause> {
    lease.pin().stopped().or_else(|| (lease.pin().probe() == Some(true)).then_some(Cause::Probe))
}

fn passed<K: Tenure>(lease: &Lease<Operation<K>>, now: u64) -> Option<Cause> {
    if now >= lease.deadline.load(order::COUNT) {
        Some(Cause::Deadline)
    } else {
        (now >= lease.queue_until.load(order::COUNT)).then_some(Cause::QueueAge)
    }
}

/// Out of STAGED: straight through if nobody waits in front and there is room, else into the line. For models, which park
/// elsewhere.
#[cfg(loom)]
pub fn enter<K: Tenure>(floor: &Floor<K>, lease: &Lease<Operation<K>>) {
    if go_directly(floor, lease) == Direct::NoRoom {
        floor.line.come(floor, lease, 0, &mut None);
    }
}

/// Pending to running without the turn: only if nothing lies in the inbox and no word on the way is marked, so that
/// no waiter is overtaken.
#[inline(always)]
fn go_directly<K: Tenure>(floor: &Floor<K>, lease: &Lease<Operation<K>>) -> Direct {
    let request = lease.request();
    if !request.is_some_and(|request| floor.trades(request)) && !moves_to_running(floor, request) {
        return Direct::NoRoom;
    }
    if lease.word().update(|bits| State(bits).granted_directly()).is_err() {
        return stopped_on_the_way(floor, lease, request);
    }
    floor.note_use(request);
    Direct::Granted
}

/// By way of the words.
#[inline(never)]
fn moves_to_running<K: Tenure>(floor: &Floor<K>, request: Option<Request>) -> bool {
    if !floor.line.is_quiet() {
        return false;
    }
    let scopes = floor.scopes(request);
    let mut panics = Panics::none();
    let moved = floor.try_exactly(request, &mut panics, || charge::move_to_running(&scopes, request));
    if let Err(refused) = moved {
        panics.run(|| floor.signal(refused.marks, request));
        panics.resume();
        return false;
    }
    true
}

/// Its pending unit is gone already, so it ends as one that returned its running unit.
#[cold]
#[inline(never)]
fn stopped_on_the_way<K: Tenure>(
    floor: &Floor<K>,
    lease: &Lease<Operation<K>>,
    request: Option<Request>,
) -> Direct {
    let left = lease.word().update(|bits| State(bits).left_to_returned());
    debug_assert!(left.is_ok(), "O1: only LEFT can follow STAGED from elsewhere");
    let marks = charge::return_running(&floor.scopes(request), request);
    floor.signal(marks, request);
    Direct::Stopped
}
