//! Waiting for a place in the window of a transfer.
use crate::broker::error::{Denied, Error};
use crate::broker::io::admission::check;
use crate::broker::io::call::poll_stop;
use crate::broker::io::transfer::IoTransfer;
use crate::broker::io::wait::IoWait;
use crate::broker::slots::TransferLease;
use crate::mem::park::Seat;
use crate::queue::wait::Watch;
use crate::queue::window::{self, Direction, Window};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// One look at a direction's window; parks in one of the direction's cells if it is full.
fn poll_place(
    lease: &TransferLease,
    direction: Direction,
    seat: &mut Option<Seat>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Error>> {
    if let Err(error) = check(lease.pin()) {
        return Poll::Ready(Err(error.after_start()));
    }
    let places = lease.places(direction);
    if places == 0 {
        return Poll::Ready(Err(Error::denied(Denied::NoStreamBudget)));
    }
    if Window(lease.word().load()).has_place(direction, places) {
        return Poll::Ready(Ok(()));
    }
    if seat.is_none() {
        *seat = window::sit(lease, direction);
    }
    let Some(seat) = seat else {
        return Poll::Ready(Err(Error::denied(Denied::ThirdWaiter)));
    };
    match window::park(lease, seat, direction, places, cx.waker()) {
        true => Poll::Pending,
        false => Poll::Ready(Ok(())),
    }
}

pin_project! {
    /// Resolves when a window has a free place. See [`IoTransfer::input_ready`].
    #[must_use = "a future does nothing unless polled"]
    #[derive(Debug)]
    pub struct TransferReady<'a> {
        transfer: &'a IoTransfer,
        direction: Direction,
        seat: Option<Seat>,
        #[pin]
        watch: Watch,
    }

    impl<'a> PinnedDrop for TransferReady<'a> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let lease = this.transfer.lease();
            this.watch.leave(lease.pin());
            if let Some(seat) = this.seat.take() {
                lease.release(seat);
            }
        }
    }
}

impl<'a> TransferReady<'a> {
    pub(super) fn new(transfer: &'a IoTransfer, direction: Direction) -> Self {
        TransferReady { transfer, direction, seat: None, watch: Watch::new() }
    }
}

impl Future for TransferReady<'_> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let this = self.project();
        let lease = this.transfer.lease();
        let ready = match poll_place(lease, *this.direction, this.seat, cx) {
            Poll::Ready(ready) => Poll::Ready(ready),
            Poll::Pending => poll_stop(lease.pin(), this.watch, cx).map(|why| Err(why.after_start())),
        };
        if ready.is_ready() {
            coop.made_progress();
        }
        ready
    }
}

pin_project! {
    /// Where a task waits that polls one direction of a transfer by hand.
    ///
    /// Keep one per direction, pinned beside what polls, and use it again for every poll; it takes its registrations back
    /// when it is dropped. While it is registered it holds the transfer's slot and the operation.
    #[derive(Debug, Default)]
    pub struct TransferWait {
        seat: Option<(TransferLease, Seat)>,
        #[pin]
        wait: IoWait,
    }

    impl PinnedDrop for TransferWait {
        fn drop(this: Pin<&mut Self>) {
            this.leave();
        }
    }
}

impl TransferWait {
    /// Registered nowhere.
    pub const fn new() -> Self {
        TransferWait { seat: None, wait: IoWait::new() }
    }

    /// Takes the registrations back, if there are any.
    pub fn leave(self: Pin<&mut Self>) {
        let this = self.project();
        this.wait.leave();
        if let Some((lease, seat)) = this.seat.take() {
            lease.release(seat);
        }
    }

    fn poll(
        mut self: Pin<&mut Self>,
        transfer: &IoTransfer,
        direction: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let lease = transfer.lease();
        let fits = |(kept, seat): &(TransferLease, Seat)| kept.is_same(lease) && direction.has_seat(seat);
        if self.seat.as_ref().is_some_and(|kept| !fits(kept)) {
            self.as_mut().leave();
        }
        let this = self.project();
        let (held, mut seat) = match this.seat.take() {
            Some((held, seat)) => (Some(held), Some(seat)),
            None => (None, None),
        };
        let place = poll_place(lease, direction, &mut seat, cx);
        *this.seat = seat.map(|seat| (held.unwrap_or_else(|| lease.duplicate()), seat));
        match place {
            Poll::Ready(ready) => Poll::Ready(ready),
            Poll::Pending => this.wait.poll_stop(lease.pin(), cx).map(|why| Err(why.after_start())),
        }
    }
}

impl IoTransfer {
    /// [`input_ready`](IoTransfer::input_ready) for code that polls by hand.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn poll_input_ready(
        &self,
        wait: Pin<&mut TransferWait>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        wait.poll(self, Direction::Input, cx)
    }

    /// [`output_ready`](IoTransfer::output_ready) for code that polls by hand.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn poll_output_ready(
        &self,
        wait: Pin<&mut TransferWait>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        wait.poll(self, Direction::Output, cx)
    }
}
