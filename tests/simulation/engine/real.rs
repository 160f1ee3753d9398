//! What a script holds of the library: fronts, ends, connections, and futures with their wakers.

use super::sockets::Socket;
use latent_capabilities::broker::Error;
use latent_capabilities::broker::io::{
    IoAdmission, IoBuffer, IoCall, IoReady, IoStopHandle, IoStreamReader, IoStreamWriter,
};
use latent_capabilities::broker::pools::{
    Acquired, ConnectionReservation, PoolAdmission, PoolCall, PoolReady, PooledConnection,
};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// The front of a real operation.
pub(crate) enum Front {
    Admission(PoolAdmission),
    DirectAdmission(IoAdmission),
    /// A future has it.
    Waiting,
    Ready(Ready),
    Call(Rc<Call>),
    Gone,
}

pub(crate) enum Ready {
    Pool(PoolReady),
    Direct(IoReady),
}

pub(crate) enum Call {
    Pool(PoolCall),
    Direct(IoCall),
}

impl Call {
    pub(crate) fn io(&self) -> &IoCall {
        match self {
            Call::Pool(call) => call.io(),
            Call::Direct(call) => call,
        }
    }
}

pub(crate) struct RealOper {
    pub(crate) front: Front,
    pub(crate) stop: IoStopHandle,
}

#[derive(Default)]
pub(crate) struct RealStream {
    pub(crate) writer: Option<IoStreamWriter>,
    pub(crate) reader: Option<IoStreamReader>,
}

pub(crate) enum RealConn {
    Dial(ConnectionReservation<Socket>),
    Active(PooledConnection<Socket>),
    /// The client has it.
    Idle,
}

/// What a future gives when it is ready.
pub(crate) enum Done {
    Wait(Result<Ready, Error>),
    Write(IoStreamWriter, Result<(), Error>),
    Read(IoStreamReader, Result<Option<IoBuffer>, Error>),
    Acquire(Result<Acquired<Socket>, Error>),
}

/// What a future is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    Wait(usize),
    Write { stream: usize, buffer: usize },
    Read(usize),
    Acquire(usize),
}

pub(crate) struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// A future, and whether it was woken since it was polled.
pub(crate) struct Task {
    pub(crate) about: About,
    pub(crate) polled: bool,
    future: Pin<Box<dyn Future<Output = Done>>>,
    flag: Arc<Flag>,
}

impl Task {
    pub(crate) fn new(about: About, future: impl Future<Output = Done> + 'static) -> Task {
        Task { about, polled: false, future: Box::pin(future), flag: Arc::new(Flag(AtomicBool::new(true))) }
    }
    pub(crate) fn is_woken(&self) -> bool {
        self.flag.0.load(SeqCst)
    }
    pub(crate) fn poll(&mut self) -> Poll<Done> {
        self.flag.0.store(false, SeqCst);
        self.polled = true;
        let waker = Waker::from(self.flag.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}
