//! The socket of an inbound connection, with an end to every answer that its client does not take.
//!
//! hyper asks an answer's body for more only while its own buffer has room. A client that stops reading would so stop the
//! only one who looks at the deadline. Here the writing side looks: at the deadline of the answer that is under way, and,
//! where there is none, at how long nothing could be written.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// Until when the answer that is under way may take. Shared by the socket and the request.
#[derive(Debug)]
pub(super) struct Pace {
    base: Instant,
    /// Milliseconds since `base`; `u64::MAX`: no request has said.
    deadline: AtomicU64,
}

const NONE: u64 = u64::MAX;

impl Pace {
    pub(super) fn new() -> Self {
        Self { base: Instant::now(), deadline: AtomicU64::new(NONE) }
    }

    /// The answer must be with the client by then.
    pub(super) fn answer_by(&self, deadline: std::time::Instant) {
        let after = Instant::from_std(deadline).saturating_duration_since(self.base);
        // Rounded up: the call itself ends first and says why.
        let millis = u64::try_from(after.as_millis()).unwrap_or(NONE - 1);
        self.deadline.store(millis.saturating_add(1), Ordering::Release);
    }

    /// The answer is over.
    pub(super) fn clear(&self) {
        self.deadline.store(NONE, Ordering::Release);
    }

    fn deadline(&self) -> Option<Instant> {
        let millis = self.deadline.load(Ordering::Acquire);
        (millis != NONE).then(|| self.base + Duration::from_millis(millis))
    }
}

/// A TCP stream that gives up on a client that takes nothing.
#[derive(Debug)]
pub(super) struct Paced {
    stream: Arc<TcpStream>,
    pace: Arc<Pace>,
    /// How long nothing may be taken where there is no deadline.
    patience: Duration,
    /// Armed while a write is stuck.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    pub(super) fn new(stream: Arc<TcpStream>, pace: Arc<Pace>, patience: Duration) -> Self {
        Self { stream, pace, patience, stuck: None }
    }

    fn late() -> io::Error {
        io::Error::new(ErrorKind::TimedOut, "the client does not take its answer")
    }

    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let deadline = self.pace.deadline();
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Poll::Ready(Err(Self::late()));
        }
        while let Poll::Ready(writable) = self.stream.poll_write_ready(cx) {
            writable?;
            match attempt(&self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => {
                    self.stuck = None;
                    return Poll::Ready(done);
                }
            }
        }
        let patience = self.patience;
        let stuck = self.stuck.get_or_insert_with(|| {
            Box::pin(sleep_until(deadline.unwrap_or_else(|| Instant::now() + patience)))
        });
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(Self::late()))
    }
}

impl AsyncRead for Paced {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buf.initialize_unfilled()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => {
                    buf.advance(read?);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Paced {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().written(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().written(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The kernel has what was written.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write) {
            // The peer went first.
            Err(rustix::io::Errno::NOTCONN) => Ok(()),
            done => done.map_err(io::Error::from),
        })
    }
}

/// Resolves when the connection was reset: whatever is under way on it has nobody to go to. An end of the client's sending
/// half is no reset.
pub(super) async fn reset(stream: &TcpStream) {
    loop {
        let broken = match stream.ready(Interest::ERROR).await {
            Ok(ready) => ready.is_error(),
            Err(_) => true,
        };
        if broken {
            return;
        }
    }
}
