//! The floor that operations stand on: their arena, the words they are charged to, and their end.
//!
//! Order of an admission: read pass wide to narrow, then reserve narrow to wide (`account::charge`), then the slot, and
//! last its word, by an exchange. Order of an end: slot back, then provider, tenant, node, then the signal, and the
//! session at the very last, because the session keeps the memory alive that all of this stands in.
use super::credit::Credits;
use super::keeper::Keeper;
use super::line;
use super::operation::{Cause, Interrupted, Numbers, Operation, State, Step};
use crate::account::charge::{self, Held, Marks, Refused, Request, Scopes};
use crate::account::figures::{Ages, Refusals};
use crate::account::node::{NodeUnits, NodeWord};
use crate::account::provider::ProviderWord;
use crate::account::scope::{Blocked, Scope};
use crate::account::tenant::TenantWord;
use crate::foreign::Panics;
use crate::mem::arena::{Ending, Lease, Nest, Occupant, Pin, Rest, Spare};
use crate::sync::{Line, Rows, order};
use crate::time::{Clock, Deadline};

/// How many tenants there can be; the ceiling of the dimension `broker.tenants`.
pub const TENANTS: usize = if cfg!(loom) { 2 } else { 4096 };
/// How many logical providers there can be; the ceiling of the dimension `broker.providers`.
pub const PROVIDERS: usize = if cfg!(loom) { 2 } else { 256 };
const _: () = assert!(TENANTS <= Request::TENANTS && PROVIDERS <= Request::PROVIDERS, "a request has bits for every number");
/// How many operations there can be; the ceiling of the dimension `io.owners`.
pub const OPERATIONS: usize = if cfg!(loom) { 4 } else { 4096 };

/// What keeps an operation's memory alive and what it is ended with: the lease of its session.
///
/// The session floor implements it; models use a stand-in.
pub trait Tenure: Pin + Sized + Send + Sync + 'static {
    /// Where the floor stands in what the pin keeps alive.
    fn floor(shared: &Self::Shared) -> &Floor<Self>;
    /// The session was stopped or closed for its operations: why. `None` while they may go on.
    fn stopped(&self) -> Option<Cause>;
    /// Notes that the operation must be reached by a session stop; an RMW on the word that the stop reads.
    fn watch(&self, operation: u16);
    /// Takes that note back.
    fn unwatch(&self, operation: u16);
    /// The execution probe of a session that cannot push, if it was opened with one: whether it says cancelled.
    fn probe(&self) -> Option<bool>;
    /// The operation is gone: gives back the session's count and the lease, in one step. Runs last.
    fn leave(self);
}

/// Operations and the words they are charged to.
#[derive(Debug)]
pub struct Floor<K: Tenure> {
    /// The node's word, on a line of its own.
    pub node: Line<NodeWord>,
    /// The waiting line and its turn.
    pub line: line::Line,
    /// Who serves deadlines, where there are pools.
    pub keeper: Keeper,
    /// What operations that ended leave for the next.
    pub(super) credits: Credits,
    /// The slots.
    pub operations: Nest<Operation<K>>,
    /// One line per tenant number.
    pub tenants: Rows<Line<TenantWord>, TENANTS>,
    /// One line per logical provider number.
    pub providers: Rows<Line<ProviderWord>, PROVIDERS>,
    /// The node's clock.
    pub clock: Clock,
    /// Told whenever something ends after the node was closed: for whoever waits for the drain.
    pub ended: tokio::sync::Notify,
    /// What was refused, by dimension.
    pub refusals: Refusals,
    /// How long those that were granted in line had stood there.
    pub ages: Ages,
}

impl<K: Tenure> Floor<K> {
    /// A floor whose node word has room for `owners`, `queued` and `running` operations.
    pub fn new(clock: Clock, credits: Credits) -> Self {
        Floor {
            credits,
            node: Line::new(NodeWord::new(0, 0, 0)),
            line: line::Line::new(),
            keeper: Keeper::new(),
            operations: Nest::new(OPERATIONS),
            tenants: Rows::new(),
            providers: Rows::new(),
            clock,
            ended: tokio::sync::Notify::new(),
            refusals: Refusals::new(),
            ages: Ages::new(),
        }
    }

    /// The three words of a request, or the node's alone.
    #[inline(always)]
    pub fn scopes(&self, request: Option<Request>) -> Scopes<'_> {
        // Direct I/O uses neither of the narrow ones; 0 will do.
        let (tenant, provider) = request.map_or((0, 0), |request| (request.tenant(), request.provider()));
        Scopes {
            node: &self.node,
            tenant: &self.tenants[usize::from(tenant)],
            provider: &self.providers[usize::from(provider)],
        }
    }

    /// Admits into STAGED (`now` false: pending is charged, no running unit) or straight into GRANTED.
    ///
    /// The pin goes into the slot; on refusal it has left already.
    #[inline(always)]
    pub fn admit(&self, pin: K, numbers: &Numbers, now: bool) -> Result<Lease<Operation<K>>, Refused> {
        let request = numbers.request;
        let user = if now { State::GRANTED } else { State::STAGED };
        let lease = match self.credit(request, now) {
            Some(spare) => {
                let inscribe = |slot: &Operation<K>| slot.inscribe(numbers);
                Nest::take_spare(pin, |s| &K::floor(s).operations, spare, user, inscribe).lease
            }
            None => self.take_anew(pin, numbers, now)?,
        };
        // Also of a credit: what lay about was left out when it was looked at last.
        self.note_use(request);
        // The slot's word was published by an exchange. Whoever closed the node or swapped the tag before looking at
        // the slots has either seen this one or is seen here.
        let closed = self.node.is_closed();
        let stale = request.is_some_and(|at| !self.providers[usize::from(at.provider())].admits(at.tag()));
        if closed || stale {
            let done = super::operation::leave_front(&lease);
            self.settle(&lease, done);
            return Err(refused_late(request, closed));
        }
        if now {
            // A grant that is not started in time goes back; nobody needs to wait for that.
            self.keeper.watch(&lease, numbers.deadline);
        }
        Ok(lease)
    }

    /// What was left by one of the same tenant and provider: a slot, with all that the operation needs.
    #[inline(always)]
    fn credit(&self, request: Option<Request>, now: bool) -> Option<Spare> {
        if !self.credits.are_lent() {
            return None;
        }
        self.take_credit(request?, now)
    }

    /// Charges the words and takes a slot off the list.
    #[inline(always)]
    fn take_anew(&self, pin: K, numbers: &Numbers, now: bool) -> Result<Lease<Operation<K>>, Refused> {
        let request = numbers.request;
        let scopes = self.scopes(request);
        let mut panics = Panics::none();
        let reserved = self.try_exactly(request, &mut panics, || {
            if now { charge::reserve_now(&scopes, request) } else { charge::reserve_staged(&scopes, request) }
        });
        if let Err(refused) = reserved {
            // The caller has the session, and with it this floor, as long as this runs.
            pin.leave();
            panics.run(|| self.signal(refused.marks, request));
            panics.resume();
            return Err(refused);
        }
        let user = if now { State::GRANTED } else { State::STAGED };
        let taken = Nest::take_with(pin, |s| &K::floor(s).operations, user, |slot| slot.inscribe(numbers));
        match taken {
            Ok(taken) => {
                panics.resume();
                Ok(taken.lease)
            }
            // An owner was reserved, and slots go back before owners do.
            Err(_) => crate::broken::accounting("an owner was reserved but no operation slot is free"),
        }
    }

    /// Tells the turn that a marked word got room. Does nothing for marks that are not set.
    pub fn signal(&self, marks: Marks, request: Option<Request>) {
        if marks.none() {
            return;
        }
        self.line.released(self, marks, request);
    }

    /// Does what an interruption left to do: gives units back, posts to the line, wakes.
    pub fn settle(&self, lease: &Lease<Operation<K>>, mut done: Interrupted) {
        match (done.before.step(), done.after.step()) {
            (Step::Queued, Step::Left) if !done.before.in_inbox() => self.line.post(self, lease.index()),
            (Step::Granted, Step::Returned) => {
                let request = lease.request();
                let marks = charge::return_running(&self.scopes(request), request);
                if !planted!("swallowed_grant") {
                    self.signal(marks, request);
                }
            }
            _ => {}
        }
        done.wakers.wake_all();
    }

    /// Interrupts one operation and settles it; whether there was anything to interrupt.
    pub fn stop(&self, lease: &Lease<Operation<K>>, cause: Cause) -> bool {
        match super::operation::interrupt(lease, cause) {
            Some(done) => {
                self.settle(lease, done);
                true
            }
            None => false,
        }
    }

    /// Interrupts every operation that `chosen` names. For the control path: it looks at every slot, and the look is a
    /// read-modify-write, so that an operation created meanwhile sees what the caller changed before.
    ///
    /// # Panics
    /// At the end, with what the first waker panicked with: everybody is reached before.
    pub fn stop_all(&self, cause: Cause, chosen: impl Fn(&Operation<K>, State) -> bool) {
        let mut panics = Panics::none();
        for index in 0..OPERATIONS {
            let index = index as u16;
            if self.operations.touch(index).leases() == 0 {
                continue;
            }
            if let Some(lease) = self.operations.upgrade_live(index)
                && chosen(&lease, State(lease.word().load()))
            {
                panics.run(|| {
                    self.stop(&lease, cause);
                });
            }
        }
        panics.resume();
    }

    /// Whether the instant has passed, by the coarse clock: at most one tick late, never early.
    pub fn passed(&self, nanos: u64) -> bool {
        self.clock.coarse_nanos() >= nanos
    }
    /// A deadline as the slots store it.
    pub fn nanos(&self, deadline: Deadline) -> u64 {
        self.clock.nanos_since_base(deadline.instant())
    }
    /// A stored deadline as an instant.
    pub fn deadline(&self, nanos: u64) -> Deadline {
        Deadline::at(self.clock.at_nanos(nanos))
    }
}

/// The word that was found closed, or to be of another epoch, after the slot was published.
fn refused_late(request: Option<Request>, closed: bool) -> Refused {
    let (blocked, scope) = match request {
        Some(at) if !closed => (Blocked::Stale, Scope::Provider(at.provider())),
        _ => (Blocked::Closed, Scope::Node),
    };
    Refused { blocked, scope, marks: Marks::NONE }
}

impl<K: Tenure> Occupant for Operation<K> {
    type Pin = K;

    fn last_lease(ending: Ending<'_, Self>) {
        let state = State(ending.bits());
        let request = ending.request();
        let index = ending.index();
        if !state.is_running() && state.held() == Held::Staged {
            ending.ungranted.add_alone();
        }
        let late = planted!("watched_too_long");
        // N3: the next one in this slot may be of the same session.
        if state.is_watched() && !late {
            ending.pin().unwatch(index);
        }
        // The slot goes back before its counts, so that whoever reserves an owner finds a slot. If the line still holds
        // it, the owner stays counted until the line lets go.
        let (pin, rest) = ending.finish_keeping();
        let floor = K::floor(pin.shared());
        // It may wake others; the session is left whatever they do.
        let mut panics = Panics::none();
        floor.give_up(rest, request, state, &mut panics);
        if late && state.is_watched() {
            pin.unwatch(index);
        }
        if floor.node.is_closed() {
            floor.ended.notify_waiters();
        }
        pin.leave();
        panics.resume();
    }
}

impl<K: Tenure> Floor<K> {
    /// Gives up what an operation held whose last lease is gone: to the next one, or to the words, and tells who waits for it.
    #[inline(always)]
    fn give_up(&self, rest: Rest, request: Option<Request>, state: State, panics: &mut Panics) {
        let rest = match (rest, request) {
            (Rest::Spare(spare), Some(request)) if state.is_running() => {
                match self.leave_credit(request, spare, panics) {
                    Ok(()) => return,
                    Err(spare) => Rest::Spare(spare),
                }
            }
            (rest, _) => rest,
        };
        let marks = self.give_back(rest, request, state.held(), panics);
        if !marks.none() {
            panics.run(|| self.signal(marks, request));
        }
    }

    /// Gives it to the words. Apart, so that an end that leaves a credit looks none of them up.
    #[inline(always)]
    fn give_back(&self, rest: Rest, request: Option<Request>, held: Held, panics: &mut Panics) -> Marks {
        let scopes = self.scopes(request);
        match rest {
            Rest::Held => return charge::release_units(&scopes, request, held),
            Rest::Free => {}
            Rest::Spare(spare) => self.operations.put_back(spare),
        }
        // Who waits for the provider is given what is there, as it is.
        let marks = match (held, request) {
            (Held::Running, Some(ends)) if scopes.provider.is_marked() => match self.line.try_hold() {
                Some(turn) => {
                    panics.run(|| self.line.pass_on(self, turn, ends));
                    Marks::NONE
                }
                None => charge::release(&scopes, request, held),
            },
            _ => charge::release(&scopes, request, held),
        };
        self.ended_without_credit(panics);
        marks
    }

    /// Slots that the line held after their last lease are free now: their owners' counts follow.
    pub fn buried(&self, count: u32) {
        for _ in 0..count {
            // Nobody waits for owners: there is no mark of it.
            let _marks = self.node.give(NodeUnits::OWNER);
        }
    }
    /// Narrows an operation's deadline; later instants change nothing.
    pub fn narrow(&self, lease: &Lease<Operation<K>>, nanos: u64) -> u64 {
        // It never rises, so a look that finds it early enough is enough.
        let deadline = lease.deadline.load(order::COUNT);
        if deadline <= nanos { deadline } else { lease.deadline.fetch_min(nanos, order::COUNT).min(nanos) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Which of two things it was is seen only by who is overtaken between two steps.
    #[test]
    fn what_was_found_late_is_named() {
        let of = |request, closed| {
            let refused = refused_late(request, closed);
            (refused.blocked, refused.scope)
        };
        let request = Request::new(0, 3, 1);
        assert_eq!(of(Some(request), false), (Blocked::Stale, Scope::Provider(3)));
        assert_eq!(of(Some(request), true), (Blocked::Closed, Scope::Node));
        assert_eq!(of(None, true), (Blocked::Closed, Scope::Node));
    }
}
