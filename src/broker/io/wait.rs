//! Waiting by hand, on behalf of an operation.
use crate::broker::error::Error;
use crate::broker::ground::OperationLease;
use crate::broker::io::call::poll_stop;
use crate::queue::wait::Watch;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// Where a task waits that polls a stream or a transfer by hand.
    ///
    /// It registers the task with the operation, so that stop and deadline wake it, and takes the registration back when
    /// it is dropped. Keep one for each thing that is polled, pinned beside it, and use it again for every poll: a wait
    /// that is still registered with an equal waker costs next to nothing. While it is registered it holds the
    /// operation.
    ///
    /// The `async` forms have one of their own and need none.
    #[derive(Debug, Default)]
    pub struct IoWait {
        lease: Option<OperationLease>,
        #[pin]
        watch: Watch,
    }

    impl PinnedDrop for IoWait {
        fn drop(this: Pin<&mut Self>) {
            this.leave();
        }
    }
}

impl IoWait {
    /// Registered nowhere.
    pub const fn new() -> Self {
        IoWait { lease: None, watch: Watch::new() }
    }

    /// Takes the registration back, if there is one.
    pub fn leave(self: Pin<&mut Self>) {
        let this = self.project();
        if let Some(lease) = this.lease.take() {
            this.watch.leave(&lease);
        }
    }

    /// Registers the task with `lease`; resolves only when the operation is to end, with the reason.
    pub(super) fn poll_stop(
        mut self: Pin<&mut Self>,
        lease: &OperationLease,
        cx: &mut Context<'_>,
    ) -> Poll<Error> {
        if !self.lease.as_ref().is_some_and(|registered| registered.is_same(lease)) {
            self.as_mut().leave();
            *self.as_mut().project().lease = Some(lease.duplicate());
        }
        poll_stop(lease, self.project().watch, cx)
    }
}
