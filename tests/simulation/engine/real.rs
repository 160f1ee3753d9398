//! What a script holds of the library: fronts, ends, connections, and futures with their wakers.

use super::gates::{Answer, OURS};
use super::sockets::Socket;
use latent_capabilities::broker::Error;
use latent_capabilities::broker::io::{
    IoAdmission, IoBuffer, IoCall, IoReady, IoStopHandle, IoStreamReader, IoStreamWriter, IoTransferBuffer,
    IoTransferChunk,
};
use latent_capabilities::broker::pools::{
    Acquired, CleanupResult, ConnectionReservation, IngressAdmission, IngressRequest, PoolAdmission,
    PoolCall, PoolReady, PooledConnection,
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
    IngressAdmission(IngressAdmission),
    /// A future has it.
    Waiting,
    /// A job has it.
    Job,
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
    Ingress(IngressRequest),
}

impl Call {
    pub(crate) fn io(&self) -> &IoCall {
        match self {
            Call::Pool(call) => call.io(),
            Call::Direct(call) => call,
            Call::Ingress(_) => unreachable!("an inbound event has no buffers"),
        }
    }
}

pub(crate) struct RealOper {
    pub(crate) front: Front,
    /// An inbound event has none.
    pub(crate) stop: Option<IoStopHandle>,
}

#[derive(Default)]
pub(crate) struct RealStream {
    pub(crate) writer: Option<IoStreamWriter>,
    pub(crate) reader: Option<IoStreamReader>,
}

pub(crate) enum RealChunk {
    Filling(IoTransferBuffer),
    Sent(IoTransferChunk),
}

pub(crate) enum RealConn {
    Dial(ConnectionReservation<Socket>),
    Active(PooledConnection<Socket>),
    /// A job has it.
    Cleaning,
    /// The client has it.
    Idle,
}

/// What a future gives when it is ready.
pub(crate) enum Done {
    Wait(Result<Ready, Error>),
    Inbound(Result<IngressRequest, Error>),
    Write(IoStreamWriter, Result<(), Error>),
    Read(IoStreamReader, Result<Option<IoBuffer>, Error>),
    Acquire(Result<Acquired<Socket>, Error>),
    Place(Result<(), Error>),
    Job(Result<Answer, Error>),
    Close(Result<CleanupResult<Socket>, Error>),
}

/// What a future is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    Wait(usize),
    Write { stream: usize, buffer: usize },
    Read(usize),
    Acquire(usize),
    Place { transfer: usize, way: usize },
    Job(usize),
}

/// Whether it was woken, and whether waking it panics.
pub(crate) struct Flag(AtomicBool, AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, SeqCst);
        if self.1.load(SeqCst) {
            std::panic::panic_any(OURS);
        }
    }
}

fn fresh() -> Arc<Flag> {
    Arc::new(Flag(AtomicBool::new(true), AtomicBool::new(false)))
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
        Task { about, polled: false, future: Box::pin(future), flag: fresh() }
    }
    /// From the next poll on it has another waker.
    pub(crate) fn swap(&mut self) {
        self.flag = fresh();
    }
    /// Waking it panics, or does not.
    pub(crate) fn be_loud(&self, loud: bool) {
        self.flag.1.store(loud, SeqCst);
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
