//! One operation: its slot, its phase and the causes that end it.
//!
//! Everything that two parties can disagree about stands in the one word of the slot, whose low bits are the leases
//! that `mem::arena` counts:
//!
//! ```text
//!  user bits  23    22     21      20       19       18      17..12  11      10..8   7     6..3   2..0
//!            ┌─────┬──────┬───────┬────────┬────────┬───────┬───────┬───────┬───────┬─────┬──────┬───────┐
//!            │FIRST│SEATED│ACQUIRE│ WATCHED│ LINKED │ INBOX │ waits │ FRONT │ (free)│HOLDS│ cause│ phase │
//!            └─────┴──────┴───────┴────────┴────────┴───────┴───────┴───────┴───────┴─────┴──────┴───────┘
//! ```
//!
//! Invariants (cited as O1 and so on; the slot's own are M1 and so on in `mem::arena`):
//!
//! * O1. The phase moves only along the picture in [`super`], and only by a read-modify-write of the word.
//! * O2. What an operation has charged is a function of its phase alone ([`State::held`]); whoever wins the step moves
//!   the charge, taking the new before giving the old.
//! * O3. The first cause wins and stays.
//! * O4. INBOX is set exactly while the operation is in the line's inbox: one membership, so the inbox cannot overflow.
//!   LINKED is set and cleared by the turn alone. HELD is set while either of them is.
//! * O5. A waiter parks only by a step that saw it still waiting, and every step that ends the wait takes the waker.
//! * O6. HOLDS is set exactly while the operation has a connection of its client, the right to make one, or sits in the
//!   client's line for either: at most one of these at a time, so that it never waits for itself.
use crate::account::charge::{Held, Request};
use crate::mem::arena::{Bits, Lease, Occupant};
use crate::mem::park::Wakers;
use crate::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use crate::sync::{Counter, order};

/// Where an operation stands, and thereby what it has charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Step {
    /// The slot is free, or not yet published.
    Free = 0,
    /// Admitted; pending is charged; not in line.
    Staged = 1,
    /// In line.
    Queued = 2,
    /// Left the line, or never entered it; pending stays charged until the last lease.
    Left = 3,
    /// Holds a running unit, not started.
    Granted = 4,
    /// Started with an accepted call.
    Started = 5,
    /// Gave the running unit back without starting.
    Returned = 6,
}

impl Step {
    const fn from_bits(bits: u64) -> Step {
        match bits & 0b111 {
            1 => Step::Staged,
            2 => Step::Queued,
            3 => Step::Left,
            4 => Step::Granted,
            5 => Step::Started,
            6 => Step::Returned,
            _ => Step::Free,
        }
    }
}

/// Why an operation was stopped. The first cause wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cause {
    /// Nothing stopped it.
    None = 0,
    /// Its front owner (admission, ready, or the future of either) was dropped.
    Dropped = 1,
    /// An explicit stop through a stop handle.
    Stopped = 2,
    /// Its session was stopped or closed.
    Session = 3,
    /// The session's execution probe says cancelled.
    Probe = 4,
    /// The operation's deadline passed.
    Deadline = 5,
    /// The queue age passed.
    QueueAge = 6,
    /// The epoch it was admitted on was replaced or retired.
    Epoch = 7,
    /// The I/O runtime, the registry or the broker was retired.
    Retired = 8,
}

impl Cause {
    const fn from_bits(bits: u64) -> Cause {
        match bits & 0b1111 {
            1 => Cause::Dropped,
            2 => Cause::Stopped,
            3 => Cause::Session,
            4 => Cause::Probe,
            5 => Cause::Deadline,
            6 => Cause::QueueAge,
            7 => Cause::Epoch,
            8 => Cause::Retired,
            _ => Cause::None,
        }
    }
}

const PHASE: u64 = 0b111;
const CAUSE_SHIFT: u32 = 3;
const CAUSE: u64 = 0b1111 << CAUSE_SHIFT;
const HOLDS: u64 = 1 << 7;
const FRONT: u64 = 1 << 11;
const WAITS_SHIFT: u32 = 12;
const WAITS: u64 = 0b11_1111 << WAITS_SHIFT;
const INBOX: u64 = 1 << 18;
const LINKED: u64 = 1 << 19;
const WATCHED: u64 = 1 << 20;
const ACQUIRE: u64 = 1 << 21;
const SEATED: u64 = 1 << 22;
const FIRST: u64 = 1 << 23;

/// The park cell of the one who waits for a grant. An operation that waits has not started, so no `wait_for` can
/// want the cell at the same time.
pub const GRANT_CELL: usize = 0;
/// All four cells, as a mask: whoever stops a started operation takes every waker.
pub const ALL_CELLS: u8 = 0b1111;

/// A reading of the word: pure arithmetic, no atomics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(pub Bits);

impl State {
    /// User bits of an operation that was just admitted: staged, with its front owner alive.
    pub const STAGED: u64 = Step::Staged as u64 | FRONT;
    /// User bits of an operation that was admitted straight to a running unit.
    pub const GRANTED: u64 = Step::Granted as u64 | FRONT;
    /// One `wait_for` in progress, as a unit to subtract.
    pub const ONE_WAIT: u64 = 1 << WAITS_SHIFT;
    /// The front owner of a started operation, as a unit to subtract together with its lease.
    pub const FRONT_UNIT: u64 = FRONT;
    /// The connection of an operation, as a unit to subtract together with its lease.
    pub const ONE_CONNECTION: u64 = HOLDS;

    /// Where the operation stands.
    pub fn step(self) -> Step {
        Step::from_bits(self.0.user())
    }
    /// Why it was stopped, if it was.
    pub fn cause(self) -> Cause {
        Cause::from_bits((self.0.user() & CAUSE) >> CAUSE_SHIFT)
    }
    /// Whether it was stopped.
    #[inline]
    pub fn has_cause(self) -> bool {
        self.0.user() & CAUSE != 0
    }
    /// Whether it is granted or started.
    #[inline]
    pub fn is_running(self) -> bool {
        // The two differ in one bit.
        self.0.user() & (PHASE & !1) == Step::Granted as u64
    }
    /// Whether it is granted or started, and was not stopped.
    #[inline]
    pub fn goes_on(self) -> bool {
        self.0.user() & (CAUSE | PHASE & !1) == Step::Granted as u64
    }
    /// Whether the front owner (admission, ready or call) is still alive.
    pub fn has_front(self) -> bool {
        self.0.user() & FRONT != 0
    }
    /// How many `wait_for` are in progress.
    pub fn waits(self) -> u64 {
        (self.0.user() & WAITS) >> WAITS_SHIFT
    }
    /// Whether it lies in the line's inbox.
    pub fn in_inbox(self) -> bool {
        self.0.user() & INBOX != 0
    }
    /// Whether the turn has linked it into a group.
    pub fn is_linked(self) -> bool {
        self.0.user() & LINKED != 0
    }
    /// Whether its session has it in the set that a session stop looks at.
    pub fn is_watched(self) -> bool {
        self.0.user() & WATCHED != 0
    }
    /// Whether it stands in a client's acquire line.
    pub fn is_acquiring(self) -> bool {
        self.0.user() & ACQUIRE != 0
    }
    /// Whether somebody sits in its seat in a client's acquire line.
    pub fn is_seated(self) -> bool {
        self.0.user() & SEATED != 0
    }
    /// What the phase has charged (O2).
    pub fn held(self) -> Held {
        match self.step() {
            Step::Free | Step::Staged | Step::Queued | Step::Left => Held::Staged,
            Step::Granted | Step::Started => Held::Running,
            Step::Returned => Held::Returned,
        }
    }

    fn put(self, clear: u64, set: u64) -> Bits {
        self.0.with_user((self.0.user() & !clear) | set)
    }
    fn at(self, step: Step) -> Bits {
        self.put(PHASE, step as u64)
    }
    fn caused(self, step: Step, cause: Cause) -> Bits {
        self.put(PHASE | CAUSE, step as u64 | ((cause as u64) << CAUSE_SHIFT))
    }

    /// STAGED -> GRANTED, when the first poll of `wait` found room.
    pub fn granted_directly(self) -> Option<Bits> {
        (self.step() == Step::Staged).then(|| self.at(Step::Granted))
    }
    /// LEFT -> RETURNED: it was stopped while the direct path had already exchanged pending for running.
    pub fn left_to_returned(self) -> Option<Bits> {
        (self.step() == Step::Left).then(|| self.at(Step::Returned))
    }
    /// STAGED -> QUEUED and into the inbox; who stands in line is to be reached by a stop of its session.
    pub fn enqueued(self) -> Option<Bits> {
        self.comes(INBOX)
    }
    /// STAGED -> QUEUED and linked, by who has the turn and links it: past the inbox.
    pub fn enqueued_by_turn(self) -> Option<Bits> {
        self.comes(LINKED)
    }
    fn comes(self, place: u64) -> Option<Bits> {
        (self.step() == Step::Staged)
            .then(|| State(self.at(Step::Queued)).put(0, place | WATCHED).with_held(true))
    }
    /// Out of the inbox: a waiter becomes linked, whoever left is forgotten.
    ///
    /// The turn alone calls this, and only for what it took out of the inbox.
    pub fn collected(self) -> Bits {
        match self.step() {
            Step::Queued => self.put(INBOX, LINKED),
            _ => self.put(INBOX | LINKED, 0).with_held(false),
        }
    }
    /// QUEUED -> GRANTED, out of the line.
    pub fn granted(self) -> Option<Bits> {
        (self.step() == Step::Queued && !self.in_inbox())
            .then(|| State(self.at(Step::Granted)).put(LINKED, 0).with_held(false))
    }
    /// Unlinked by the turn because it had left when its grant came. It is in the inbox too, which still holds it.
    pub fn unlinked(self) -> Bits {
        let bits = self.put(LINKED, 0);
        if self.in_inbox() { bits } else { bits.with_held(false) }
    }
    /// QUEUED -> LEFT by the turn's own hand: no inbox. `None`: it had left by itself.
    pub fn left_by_turn(self, cause: Cause) -> Option<Bits> {
        (self.step() == Step::Queued && !self.in_inbox())
            .then(|| State(self.caused(Step::Left, cause)).put(LINKED, 0).with_held(false))
    }
    /// GRANTED -> STARTED, unless it was stopped.
    pub fn started(self) -> Option<Bits> {
        (self.step() == Step::Granted && self.cause() == Cause::None).then(|| self.at(Step::Started))
    }
    /// The step of an interruption, and where it leads. `None` when there is nothing to interrupt.
    pub fn interrupted(self, cause: Cause) -> Option<Bits> {
        match self.step() {
            Step::Staged => Some(self.caused(Step::Left, cause)),
            Step::Queued => {
                Some(State(self.caused(Step::Left, cause)).put(0, INBOX).with_held(true))
            }
            // The queue age is over for who has been granted: it keeps the grant.
            Step::Granted if cause != Cause::QueueAge => Some(self.caused(Step::Returned, cause)),
            Step::Started if planted!("outcome_overwritten") => Some(self.caused(Step::Started, cause)),
            Step::Started if cause != Cause::QueueAge && self.cause() == Cause::None => {
                Some(self.caused(Step::Started, cause))
            }
            _ => None,
        }
    }
    /// The front owner goes. An operation that has not started is interrupted by it.
    pub fn without_front(self) -> Bits {
        let bits = match self.step() {
            Step::Staged | Step::Queued | Step::Granted => {
                self.interrupted(Cause::Dropped).unwrap_or(self.0)
            }
            _ => self.0,
        };
        State(bits).put(FRONT, 0)
    }
    /// Noted in the session's set of those that a session stop must reach.
    pub fn watched(self) -> Bits {
        self.put(0, WATCHED)
    }
    /// One `wait_for` more, as far as the word can count.
    pub fn one_wait_more(self) -> Option<Bits> {
        (self.0.user() & WAITS != WAITS).then(|| self.0.with_user(self.0.user() + Self::ONE_WAIT))
    }
    /// As it was before the observer took a lease to look.
    pub fn less_one_lease(self) -> State {
        State(self.0.less_one_lease())
    }
    /// Whether it asked for the front of its client's acquire line.
    pub fn asks_for_the_front(self) -> bool {
        self.0.user() & FIRST != 0
    }
    /// With the one connection that it may have of its client (O6). `None`: it has one, or waits for one.
    pub fn with_connection(self) -> Option<Bits> {
        (self.step() == Step::Started && self.0.user() & HOLDS == 0).then(|| self.put(0, HOLDS))
    }
    /// Into a client's acquire line, by way of its inbox, and into the one seat that an operation has there. An entry of
    /// an earlier wait that the line has not looked at yet serves again. `None`: somebody has the seat, or the operation
    /// has a connection (O6).
    pub fn acquire_enqueued(self) -> Option<Bits> {
        (self.step() == Step::Started && self.0.user() & (ACQUIRE | SEATED | HOLDS) == 0)
            .then(|| self.put(0, ACQUIRE | SEATED | HOLDS | INBOX).with_held(true))
    }
    /// Back into the line, to its front, by the one who sits there and was given what turned out to be of no use.
    pub fn acquire_again(self) -> Option<Bits> {
        (self.0.user() & (ACQUIRE | SEATED) == SEATED)
            .then(|| self.put(0, ACQUIRE | FIRST | INBOX).with_held(true))
    }
    /// Out of that inbox: a waiter becomes linked, whoever left is forgotten. By the line's turn.
    pub fn acquire_collected(self) -> Bits {
        if self.is_acquiring() {
            self.put(INBOX | FIRST, LINKED)
        } else {
            self.put(INBOX | LINKED | FIRST, 0).with_held(false)
        }
    }
    /// Answered and out of the line, by its turn. `None`: it had left, or is on its way back.
    pub fn acquire_answered(self) -> Option<Bits> {
        (self.is_acquiring() && !self.in_inbox()).then(|| self.put(ACQUIRE | LINKED, 0).with_held(false))
    }
    /// Leaves the line and the seat. `None`: it was answered before.
    pub fn acquire_left(self) -> Option<Bits> {
        self.is_acquiring().then(|| self.put(ACQUIRE | SEATED | HOLDS | FIRST, INBOX).with_held(true))
    }
    /// Leaves the seat with an answer that gave nothing.
    pub fn acquire_taken(self) -> Option<Bits> {
        (self.0.user() & (ACQUIRE | SEATED) == SEATED).then(|| self.put(SEATED | HOLDS, 0))
    }
    /// Leaves the seat with a connection, or with the right to make one (O6).
    pub fn acquire_received(self) -> Option<Bits> {
        (self.0.user() & (ACQUIRE | SEATED) == SEATED).then(|| self.put(SEATED, 0))
    }
}

/// The contents of an operation's slot. All zeros is the state of a slot never used.
///
/// The numbers are written before the word is published and do not change until the last lease is gone, so relaxed
/// reads through a lease see them. The links belong to the turn.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable), zeroable(bound = ""))]
#[derive(Debug)]
#[repr(C)]
pub struct Operation<K> {
    /// The link of the inbox: index + 1 of the entry below, 0 at the bottom.
    pub inbox_next: AtomicU16,
    /// Private to the node's turn: next and previous in the group's FIFO (index + 1).
    pub next: AtomicU16,
    /// Private to the node's turn.
    pub previous: AtomicU16,
    /// Private to the turn of the client's acquire line. Not the same as the two above: the node's turn may still have
    /// to mend its links when the operation that it granted stands in that line already.
    pub acquire_next: AtomicU16,
    /// Private to the turn of the client's acquire line.
    pub acquire_previous: AtomicU16,
    /// What it is charged to, packed: see [`Request::packed`].
    charged_to: AtomicU64,
    /// 1 if the end of its epoch stops it even when it has started.
    pub ends_with_epoch: AtomicU16,
    /// How many looks may still do without the clock, whoever is in the slot. The keeper's: see D7 of [`super::keeper`].
    pub looks: AtomicU16,
    /// What an acquire line handed over, until the one who sits there takes it. See [`super::acquire`].
    pub handed: AtomicU32,
    /// The client whose acquire line it stands in.
    pub client: AtomicU32,
    /// Nanoseconds since the node's base. Only ever narrowed.
    pub deadline: AtomicU64,
    /// When the queue age ends, same unit.
    pub queue_until: AtomicU64,
    /// Until when the slot is watched, whoever is in it. The keeper's own notation: see [`super::keeper`].
    pub watch: AtomicU64,
    /// Cumulative output permission of the accepted call, and how much of it is spent.
    pub output_limit: AtomicU64,
    /// Spent output permission; never given back.
    pub output_spent: AtomicU64,
    /// Stream budget of the accepted call: input bytes.
    pub stream_input: AtomicU64,
    /// Stream budget of the accepted call: output bytes.
    pub stream_output: AtomicU64,
    /// 1 once the call's only transfer was issued.
    pub transfer_issued: AtomicU32,
    /// How many buffers the call has taken from the node, as far as it matters. Decides nothing but when to keep one ready.
    pub buffers_taken: AtomicU32,
    /// Variable metadata charged by live owners of this operation is counted by them; this is the call's own.
    pub call_metadata: AtomicU32,
    /// How many occupants of this slot ended without ever being granted. Written by each one's end, and never reset.
    pub ungranted: Counter,
    kept_by: core::marker::PhantomData<fn() -> K>,
}

#[cfg(loom)]
impl<K> Default for Operation<K> {
    fn default() -> Self {
        Operation {
            inbox_next: AtomicU16::new(0),
            next: AtomicU16::new(0),
            previous: AtomicU16::new(0),
            acquire_next: AtomicU16::new(0),
            acquire_previous: AtomicU16::new(0),
            charged_to: AtomicU64::new(0),
            ends_with_epoch: AtomicU16::new(0),
            looks: AtomicU16::new(0),
            handed: AtomicU32::new(0),
            client: AtomicU32::new(0),
            deadline: AtomicU64::new(0),
            queue_until: AtomicU64::new(0),
            watch: AtomicU64::new(0),
            output_limit: AtomicU64::new(0),
            output_spent: AtomicU64::new(0),
            stream_input: AtomicU64::new(0),
            stream_output: AtomicU64::new(0),
            transfer_issued: AtomicU32::new(0),
            buffers_taken: AtomicU32::new(0),
            call_metadata: AtomicU32::new(0),
            ungranted: Counter::default(),
            kept_by: core::marker::PhantomData,
        }
    }
}

/// What admission writes into a fresh slot.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// `None` for direct I/O.
    pub request: Option<Request>,
    /// Nanoseconds since the node's base.
    pub deadline: u64,
    /// Nanoseconds since the node's base.
    pub queue_until: u64,
}

/// What an accepted call may move, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permission {
    /// Inline output, added up.
    pub output: u64,
    /// By its one transfer, to the provider.
    pub stream_input: u64,
    /// By its one transfer, from the provider.
    pub stream_output: u64,
}

impl<K> Operation<K> {
    /// Writes the numbers of a new operation. Called once, before the word is published.
    pub fn inscribe(&self, numbers: &Numbers) {
        self.charged_to.store(Request::packed(numbers.request), order::COUNT);
        self.ends_with_epoch.store(0, order::COUNT);
        self.deadline.store(numbers.deadline, order::COUNT);
        self.queue_until.store(numbers.queue_until, order::COUNT);
    }
    /// Writes what the accepted call may do. Called once, by the front owner, before the step to STARTED publishes it;
    /// nobody looks at these numbers of an operation that has not started.
    pub fn permit(&self, permission: &Permission) {
        self.output_limit.store(permission.output, order::COUNT);
        self.output_spent.store(0, order::COUNT);
        self.stream_input.store(permission.stream_input, order::COUNT);
        self.stream_output.store(permission.stream_output, order::COUNT);
        self.transfer_issued.store(0, order::COUNT);
        self.buffers_taken.store(0, order::COUNT);
        self.handed.store(0, order::COUNT);
    }
    /// The scopes that a pool admission is charged to; `None` for direct I/O.
    pub fn request(&self) -> Option<Request> {
        Request::unpacked(self.charged_to.load(order::COUNT))
    }
    /// Whether the end of its epoch stops it even when it has started.
    pub fn ends_with_epoch(&self) -> bool {
        self.ends_with_epoch.load(order::COUNT) != 0
    }
}

/// What an interruption has to be followed by, outside of the step.
#[derive(Debug)]
pub struct Interrupted {
    /// The state before the step.
    pub before: State,
    /// The state after it.
    pub after: State,
    /// Wakers that the step took; wake them after everything else.
    pub wakers: Wakers,
}

/// Moves an operation to the end that `cause` leads to. `None`: there was nothing to interrupt.
///
/// The caller settles what the step left to do with [`Floor::settle`](super::floor::Floor::settle).
pub fn interrupt<T>(lease: &Lease<T>, cause: Cause) -> Option<Interrupted>
where
    T: Occupant,
{
    lease
        .word()
        .update_and_wake(|bits| State(bits).interrupted(cause), ALL_CELLS)
        .ok()
        .map(|(before, after, wakers)| Interrupted { before: State(before), after: State(after), wakers })
}

/// Takes the front owner away; see [`State::without_front`].
pub fn leave_front<T>(lease: &Lease<T>) -> Interrupted
where
    T: Occupant,
{
    match lease.word().update_and_wake(|bits| Some(State(bits).without_front()), ALL_CELLS) {
        Ok((before, after, wakers)) => {
            Interrupted { before: State(before), after: State(after), wakers }
        }
        Err(bits) => Interrupted { before: State(bits), after: State(bits), wakers: Wakers::new() },
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
