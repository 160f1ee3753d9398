//! Waiting for a connection: an idle one, or the turn to dial.
//!
//! Each client has its own small line with a combining turn, like the node's: whoever comes or leaves posts its operation,
//! whoever parks, destroys or ends a dial on a marked client signals. The line is first come first served.
//!
//! * A1. A waiter is answered by one step of its own word (ACQUIRE goes), after the answer stands in its slot. A waiter that
//!   leaves takes ACQUIRE away itself; one of the two steps wins, and an answer that comes too late goes to the next.
//! * A2. The client's word is marked while somebody waits, before the line looks at what there is for the last time. A park
//!   sets its idle bit by a step on the idle words and then looks at the mark; the line marks, then steps on the idle
//!   words: one of them sees the other.
use super::admission::PoolCall;
use super::client::{ClientCore, Kept, ProviderClient, Resource, refused_dial};
use super::connection::{ConnectionReservation, PooledConnection, destroy};
use crate::account::client::Dial;
use crate::account::dimension::Dimension;
use crate::account::shares::Share;
use crate::broker::error::Error;
use crate::broker::ground::{Ground, OperationLease, SessionLease};
use crate::foreign::WakeBatch;
use crate::mem::arena::Nest;
use crate::mem::cells::Cell;
use crate::mem::turn::{TurnGuard, older, oldest_first};
use crate::queue::operation::{ALL_CELLS, Operation, State};
use crate::queue::wait::{Seen, Watch};
use crate::sync::atomic::AtomicU16;
use crate::sync::order;
use pin_project_lite::pin_project;
use std::future::Future;
use std::ops::Index;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What [`ProviderClient::acquire`] gave.
#[must_use = "dropping it destroys the connection or counts as a failed dial"]
#[derive(Debug)]
pub enum Acquired<T: Resource> {
    /// A connection that can be used.
    Idle(PooledConnection<T>),
    /// The right to make one.
    Dial(ConnectionReservation<T>),
}

/// First and last in line, index + 1. Turn-private.
#[derive(Debug, Default)]
pub(crate) struct AcquireLine {
    head: u16,
    tail: u16,
}

/// What stands in a waiter's slot when it is answered. An idle cell's index is added to `IDLE`.
const IDLE: u32 = 1 << 16;
const DIAL: u32 = 1 << 17;
/// The client pauses or is closed: ask its word.
const REFUSED: u32 = 1 << 18;

type Slots = Nest<Operation<SessionLease>>;

struct InboxLinks<'a>(&'a Slots);

impl Index<u16> for InboxLinks<'_> {
    type Output = AtomicU16;
    fn index(&self, index: u16) -> &AtomicU16 {
        &self.0.peek(index).inbox_next
    }
}

impl AcquireLine {
    fn push(&mut self, slots: &Slots, index: u16) {
        slots.peek(index).next.store(0, order::COUNT);
        slots.peek(index).previous.store(self.tail, order::COUNT);
        match self.tail.checked_sub(1) {
            Some(tail) => slots.peek(tail).next.store(index + 1, order::COUNT),
            None => self.head = index + 1,
        }
        self.tail = index + 1;
    }
    fn remove(&mut self, slots: &Slots, index: u16) {
        let next = slots.peek(index).next.load(order::COUNT);
        let previous = slots.peek(index).previous.load(order::COUNT);
        match previous.checked_sub(1) {
            Some(previous) => slots.peek(previous).next.store(next, order::COUNT),
            None => self.head = next,
        }
        match next.checked_sub(1) {
            Some(next) => slots.peek(next).previous.store(previous, order::COUNT),
            None => self.tail = previous,
        }
    }
}

/// Something changed that the line may wait for: looks at it, by whoever has the line's turn.
pub(crate) fn serve<T: Resource>(client: &ClientCore<T>) {
    if let Some(guard) = client.line.signal() {
        run(client, guard);
    }
}

fn run<'a, T: Resource>(client: &'a ClientCore<T>, mut guard: TurnGuard<'a, AcquireLine>) {
    let slots = &client.ground().floor.operations;
    let mut done = Answers::new();
    loop {
        let collected = guard.collect();
        take_inbox(client.ground(), guard.state(), collected.newest, &mut done.freed);
        answer(client, slots, guard.state(), &mut done);
        if done.is_full() {
            guard.leave_dirty();
            done.finish(client);
            match client.line.try_hold() {
                Some(again) => guard = again,
                None => return,
            }
            continue;
        }
        match guard.leave() {
            Ok(()) => break,
            Err(again) => guard = again,
        }
    }
    done.finish(client);
}

/// What a pass has to do after it left the turn.
struct Answers<T: Resource> {
    woken: WakeBatch,
    count: usize,
    freed: u32,
    /// A connection that nobody took any more.
    spare: Option<Cell<Option<Kept<T>>>>,
}

impl<T: Resource> Answers<T> {
    fn new() -> Self {
        Answers { woken: WakeBatch::new(), count: 0, freed: 0, spare: None }
    }
    fn is_full(&self) -> bool {
        self.count == 16
    }
    fn finish(&mut self, client: &ClientCore<T>) {
        client.ground().floor.buried(std::mem::take(&mut self.freed));
        if let Some(cell) = self.spare.take() {
            give_back_idle(client, cell);
        }
        self.count = 0;
        self.woken.wake_all();
    }
}

fn take_inbox(ground: &Ground, line: &mut AcquireLine, newest: Option<u16>, freed: &mut u32) {
    let slots = &ground.floor.operations;
    let links = InboxLinks(slots);
    let mut at = oldest_first(&links, newest);
    while let Some(index) = at {
        at = older(&links, index);
        if let Ok(step) = slots.step_held(index, |bits| Some(State(bits).acquire_collected()), 0) {
            *freed += u32::from(step.freed);
            if State(step.after).is_linked() {
                // Who left and came back before the line looked keeps its old place.
                if !State(step.before).is_linked() {
                    line.push(slots, index);
                }
            } else if State(step.before).is_linked() {
                line.remove(slots, index);
            }
        }
    }
}

/// Answers from the head of the line as long as there is something to give. Marks the client while somebody is left.
fn answer<T: Resource>(client: &ClientCore<T>, slots: &Slots, line: &mut AcquireLine, done: &mut Answers<T>) {
    let mut marked = false;
    let mut right_to_dial = false;
    while let Some(index) = line.head.checked_sub(1) {
        if done.is_full() {
            break;
        }
        if done.spare.is_none() {
            done.spare = client.cells.take_idle();
        }
        let given = if let Some(cell) = &done.spare {
            IDLE + u32::from(cell.index())
        } else if right_to_dial {
            DIAL
        } else {
            match client.word.reserve_dial_or_mark(client.now_ms()) {
                Ok(()) => {
                    right_to_dial = true;
                    DIAL
                }
                Err(Dial::Backoff(_) | Dial::Closed) => REFUSED,
                Err(_) if marked => break,
                Err(_) => {
                    // Marked now: step on the idle words and look once more (A2).
                    marked = true;
                    client.cells.meet();
                    continue;
                }
            }
        };
        line.remove(slots, index);
        if given & IDLE != 0
            && let Some(cell) = done.spare.take()
        {
            client.cells.hand_over(cell);
        }
        slots.peek(index).handed.store(given, order::PUBLISH);
        let answered = slots.step_held(index, |bits| State(bits).acquire_answered(), ALL_CELLS);
        match answered {
            Ok(mut step) => {
                done.freed += u32::from(step.freed);
                done.woken.append(&mut step.wakers);
                done.count += 1;
                right_to_dial &= given != DIAL;
            }
            Err(_) => {
                // It left by itself and lies in the inbox, which goes on holding it; what it was to get is the next one's.
                if given & IDLE != 0 {
                    done.spare = client.cells.receive((given - IDLE) as usize);
                }
                let left = slots.step_held(index, |bits| Some(State(bits).unlinked()), 0);
                debug_assert!(left.is_ok(), "O4: who left is in the inbox");
            }
        }
    }
    if right_to_dial {
        // Nobody took it. If somebody is left, the batch is full and the next pass offers it again.
        let _marked = client.word.undo_dial();
    }
    if line.head == 0 {
        client.word.unmark();
    }
}

fn give_back_idle<T: Resource>(client: &ClientCore<T>, cell: Cell<Option<Kept<T>>>) {
    if let Err(mut cell) = client.cells.park(cell) {
        client.ground().shares.give(Share::Idle);
        if let Some(kept) = client.cells.get_mut(&mut cell).take() {
            destroy(client, cell, kept.resource, None);
        }
    }
}

pin_project! {
    /// Waits for a connection. See [`ProviderClient::acquire`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct Acquire<'a, T: Resource> {
        client: &'a ProviderClient<T>,
        call: &'a PoolCall,
        queued: bool,
        finished: bool,
        #[pin]
        watch: Watch,
    }

    impl<'a, T: Resource> PinnedDrop for Acquire<'a, T> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if !*this.finished {
                this.watch.leave(this.call.lease());
                if *this.queued {
                    withdraw(this.client, this.call);
                }
            }
        }
    }
}

impl<'a, T: Resource> Acquire<'a, T> {
    pub(crate) fn new(client: &'a ProviderClient<T>, call: &'a PoolCall) -> Self {
        Acquire { client, call, queued: false, finished: false, watch: Watch::new() }
    }
}

/// Leaves the line, or passes on what was handed over already.
fn withdraw<T: Resource>(client: &ProviderClient<T>, call: &PoolCall) {
    let lease = call.lease();
    let core = &client.core;
    match lease.word().update(|bits| State(bits).acquire_left()) {
        Ok((before, _)) => {
            if !State(before).in_inbox()
                && let Some(guard) = core.line.post(lease.index(), &InboxLinks(&core.ground().floor.operations))
            {
                run(core, guard);
            }
        }
        Err(_) => pass_on(client, lease),
    }
}

/// The answer came and nobody takes it: the next in line does.
fn pass_on<T: Resource>(client: &ProviderClient<T>, lease: &OperationLease) {
    let core = &client.core;
    match lease.handed.swap(0, order::STEP) {
        DIAL => {
            // The line is served below, marked or not.
            let _marked = core.word.undo_dial();
        }
        given if given & IDLE != 0 => {
            if let Some(cell) = core.cells.receive((given - IDLE) as usize) {
                give_back_idle(core, cell);
            }
        }
        _ => {}
    }
    serve(core);
}

impl<T: Resource> Future for Acquire<'_, T> {
    type Output = Result<Acquired<T>, Error>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let mut this = self.project();
        let (client, call) = (*this.client, *this.call);
        if *this.finished {
            return Poll::Pending;
        }
        let lease = call.lease();
        loop {
            if !*this.queued {
                match straight(client, call) {
                    Straight::Done(result) => {
                        *this.finished = true;
                        coop.made_progress();
                        return Poll::Ready(result);
                    }
                    Straight::Wait => {}
                }
                lease.handed.store(0, order::COUNT);
                let Ok((before, _)) = lease.word().update(|bits| State(bits).acquire_enqueued()) else {
                    // One operation waits for one connection at a time.
                    *this.finished = true;
                    return Poll::Ready(Err(Error::busy()));
                };
                *this.queued = true;
                let core = &client.core;
                let links = InboxLinks(&core.ground().floor.operations);
                if !State(before).in_inbox()
                    && let Some(guard) = core.line.post(lease.index(), &links)
                {
                    run(core, guard);
                }
            }
            if !State(lease.word().load()).is_acquiring() {
                this.watch.as_mut().leave(lease);
                *this.queued = false;
                match received(client, call) {
                    Some(result) => {
                        *this.finished = true;
                        coop.made_progress();
                        return Poll::Ready(result);
                    }
                    None => continue,
                }
            }
            let until = lease.deadline.load(order::COUNT);
            let still = |state: State| state.is_acquiring() && state.cause() == crate::queue::operation::Cause::None;
            let stopped = match ready!(this.watch.as_mut().poll(lease, cx, until, still)) {
                Seen::Changed if !State(lease.word().load()).is_acquiring() => continue,
                seen => crate::broker::io::stop_seen(lease, seen),
            };
            this.watch.as_mut().leave(lease);
            *this.queued = false;
            *this.finished = true;
            withdraw(client, call);
            return Poll::Ready(Err(stopped));
        }
    }
}

enum Straight<T: Resource> {
    Done(Result<Acquired<T>, Error>),
    Wait,
}

/// Without the line, if nobody waits: an idle connection, or the right to dial.
fn straight<T: Resource>(client: &ProviderClient<T>, call: &PoolCall) -> Straight<T> {
    if client.core.word.is_marked() {
        return match client.check_call(call) {
            Ok(()) => Straight::Wait,
            Err(error) => Straight::Done(Err(error)),
        };
    }
    match client.checkout(call) {
        Ok(Some(connection)) => return Straight::Done(Ok(Acquired::Idle(connection))),
        Ok(None) => {}
        Err(error) if error.is_busy() => return Straight::Wait,
        Err(error) => return Straight::Done(Err(error)),
    }
    match client.reserve_connection(call) {
        Ok(reservation) => Straight::Done(Ok(Acquired::Dial(reservation))),
        Err(error) if error.is_busy() || error.dimension() == Some(Dimension::PoolsConnectionsPerClient) => Straight::Wait,
        Err(error) => Straight::Done(Err(error)),
    }
}

/// Takes what the line handed over. `None`: the connection was dead; start over.
fn received<T: Resource>(client: &ProviderClient<T>, call: &PoolCall) -> Option<Result<Acquired<T>, Error>> {
    let core = &client.core;
    let lease = call.lease();
    match lease.handed.swap(0, order::STEP) {
        DIAL => Some(client.dial(call).map(Acquired::Dial)),
        given if given & IDLE != 0 => {
            let mut cell = core.cells.receive((given - IDLE) as usize)?;
            core.ground().shares.give(Share::Idle);
            let Some(kept) = core.cells.get_mut(&mut cell).take() else {
                crate::broken::accounting("an idle cell without a connection");
            };
            core.usable(cell, kept)
                .map(|(cell, resource)| {
                    let connection = PooledConnection::taken(core.clone(), cell, resource, lease.duplicate());
                    Ok(Acquired::Idle(connection))
                })
        }
        _ => {
            let now_ms = core.now_ms();
            let view = core.word.view();
            if view.closed {
                Some(Err(refused_dial(core, Dial::Closed, now_ms)))
            } else if view.not_before_ms > now_ms {
                Some(Err(refused_dial(core, Dial::Backoff(view.not_before_ms), now_ms)))
            } else {
                None
            }
        }
    }
}
