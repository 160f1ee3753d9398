//! Waiting for a connection: an idle one, or the turn to dial. The future; the line is in `queue::acquire`.
use super::admission::PoolCall;
use super::client::{ClientCore, ProviderClient, Resource};
use super::connection::{ConnectionReservation, Parts, PooledConnection, destroy};
use super::holder::{Claim, Holder};
use super::registry::Registry;
use crate::account::client::Dial;
use crate::account::scope::Heed;
use crate::broker::error::Error;
use crate::broker::ground::{OperationLease, Seats};
use crate::broker::io::{check_operation, stop_seen};
use crate::foreign::Panics;
use crate::queue::acquire::{self, Answer};
use crate::queue::operation::{Cause, State};
use crate::queue::wait::{Seen, Watch};
use crate::sync::order;
use pin_project_lite::pin_project;
use std::future::Future;
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

pin_project! {
    /// Waits for a connection. See [`ProviderClient::acquire`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct Acquire<'a, T: Resource> {
        client: &'a ProviderClient<T>,
        call: &'a PoolCall,
        // Sits in the operation's seat: stands in line, or was answered.
        seated: bool,
        finished: bool,
        #[pin]
        watch: Watch,
    }

    impl<'a, T: Resource> PinnedDrop for Acquire<'a, T> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // The park cell first, so that nothing is woken on behalf of who is gone.
            this.watch.leave(this.call.lease());
            if *this.seated {
                acquire::leave(&*this.client.core, this.call.lease());
            }
        }
    }
}

impl<'a, T: Resource> Acquire<'a, T> {
    pub(super) fn new(client: &'a ProviderClient<T>, call: &'a PoolCall) -> Self {
        Acquire { client, call, seated: false, finished: false, watch: Watch::new() }
    }
}

impl<T: Resource> Future for Acquire<'_, T> {
    type Output = Result<Acquired<T>, Error>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        if self.finished {
            // Polled after it was ready: it is inert.
            return Poll::Pending;
        }
        let result = ready!(self.as_mut().advance(cx));
        *self.as_mut().project().finished = true;
        coop.made_progress();
        Poll::Ready(result.map_err(|error| self.client.core.ground().refuse(error)))
    }
}

impl<T: Resource> Acquire<'_, T> {
    fn advance(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Acquired<T>, Error>> {
        let mut this = self.project();
        let (client, lease) = (*this.client, this.call.lease());
        let core: &ClientCore<T> = &client.core;
        loop {
            if !*this.seated {
                if let Some(result) = straight(client, this.call) {
                    return Poll::Ready(result);
                }
                if !acquire::enter(core, lease) {
                    return Poll::Ready(Err(Claim::refused(State(lease.word().load()))));
                }
                *this.seated = true;
            }
            if acquire::is_answered(lease) {
                this.watch.as_mut().leave(lease);
                match taken(client, this.call) {
                    Taken::Again => continue,
                    Taken::Over(result) => {
                        *this.seated = false;
                        match result {
                            Some(result) => return Poll::Ready(result),
                            None => continue,
                        }
                    }
                }
            }
            let until = lease.deadline.load(order::COUNT);
            let seen =
                ready!(this.watch.as_mut().poll(lease, cx, until, |state| {
                    state.is_acquiring() && state.cause() == Cause::None
                }));
            if seen == Seen::Changed && acquire::is_answered(lease) {
                continue;
            }
            let error = stop_seen(lease, seen);
            this.watch.as_mut().leave(lease);
            *this.seated = false;
            acquire::leave(core, lease);
            return Poll::Ready(Err(error));
        }
    }
}

/// Without the line, if nobody waits: an idle connection, or the right to dial. `None`: wait.
fn straight<T: Resource>(client: &ProviderClient<T>, call: &PoolCall) -> Option<Result<Acquired<T>, Error>> {
    let now = match client.check(call) {
        Ok(now) => now,
        Err(error) => return Some(Err(error)),
    };
    let core = &client.core;
    if core.is_waited_for() {
        return None;
    }
    let claim = match Claim::of(call.lease()) {
        Ok(claim) => claim,
        Err(error) => return Some(Err(error)),
    };
    let claim = match client.take(claim, now) {
        Ok(parts) => return Some(Ok(Acquired::Idle(PooledConnection::of(parts)))),
        Err(claim) => claim,
    };
    let now_ms = core.now_ms();
    match core.word.reserve_dial(now_ms, Heed::Marks) {
        Ok(()) => Some(client.dial(Holder::Operation(claim)).map(Acquired::Dial)),
        Err(Dial::Busy | Dial::Full | Dial::Marked) => None,
        Err(dial) => Some(Err(core.refused(dial, now_ms))),
    }
}

impl Seats for Registry {
    fn vacate(&self, lease: &OperationLease) {
        let number = lease.client.load(order::COUNT);
        let client = {
            let books = self.books();
            let mut clients = books.clients.iter().map(|listed| &listed.client);
            clients.find(|client| client.counted().identity == number).cloned()
        };
        // A retired registry lists none. What was handed over then stays charged, and the report says so.
        if let Some(client) = client {
            self.contain(client.vacate(lease));
        }
    }
}

enum Taken<T: Resource> {
    /// Back in line, at its front.
    Again,
    /// Out of the seat: with a result, or to start over.
    Over(Option<Result<Acquired<T>, Error>>),
}

/// Takes what the line handed over.
fn taken<T: Resource>(client: &ProviderClient<T>, call: &PoolCall) -> Taken<T> {
    let (core, lease) = (&client.core, call.lease());
    if let Err(error) = check_operation(lease) {
        acquire::leave(&**core, lease);
        return Taken::Over(Some(Err(error)));
    }
    // The clock is read before the answer is taken, and not while it is in nobody's hands.
    let now = core.now_nanos();
    match acquire::take_answer(lease) {
        Some(Answer::Dial) => {
            let claim = Claim::held(acquire::unseat_with_connection(lease));
            Taken::Over(Some(client.dial(Holder::Operation(claim)).map(Acquired::Dial)))
        }
        Some(Answer::Idle(index)) => match core.cells.receive(usize::from(index)) {
            Some(place) => received(client, call, place, now),
            None => crate::broken::accounting("a connection was handed over and is not there"),
        },
        Some(Answer::Refused) | None => {
            let now_ms = core.now_ms();
            acquire::unseat(lease);
            let view = core.word.view();
            let refused = if view.closed {
                Some(Dial::Closed)
            } else {
                (view.not_before_ms > now_ms).then_some(Dial::Backoff(view.not_before_ms))
            };
            // A pause that is over already: start over.
            Taken::Over(refused.map(|dial| Err(core.refused(dial, now_ms))))
        }
    }
}

fn received<T: Resource>(
    client: &ProviderClient<T>,
    call: &PoolCall,
    mut place: super::connection::Place<T>,
    now: u64,
) -> Taken<T> {
    let (core, lease) = (&client.core, call.lease());
    core.wake_up();
    match core.is_usable(&mut place, now) {
        Ok(true) => {
            let claim = Claim::held(acquire::unseat_with_connection(lease));
            let connection = Parts::of_idle(core.clone(), place, claim);
            Taken::Over(Some(Ok(Acquired::Idle(PooledConnection::of(connection)))))
        }
        looked => {
            let mut panics = Panics::none();
            // Back in line before the place is free again, so that nobody behind gets what comes of it.
            panics.run(|| acquire::enter_again(&**core, lease));
            panics.add(destroy(core, place));
            if let Err(panic) = looked {
                panic.resume();
            }
            panics.resume();
            Taken::Again
        }
    }
}
