//! The socket of an inbound connection, with an end to every answer that its client does not take.
//!
//! hyper asks an answer's body for more only while its own buffer has room. A client that stops reading would so stop the
//! only one who looks at the deadline. Here the writing side looks: at the deadline of the answer that is under way, and,
//! where there is none, at how long nothing could be written.
//!
//! It also gives hyper's own answers a body. Where a head cannot be read hyper answers by itself, with a status and nothing
//! else, and asks nobody. But all that it writes while no request is under way is such an answer.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use latent_adapters::tcp;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::canned;

/// Whether an answer is under way and until when it may take. Shared by the socket, the requests and the connection, all of
/// which run in the task of the connection.
#[derive(Debug)]
pub(super) struct Pace {
    base: Instant,
    /// Milliseconds since `base`; `u64::MAX`: no request has said.
    deadline: AtomicU64,
    /// Requests whose answer is not wholly handed over. HTTP/1.1 has one at a time, and a short overlap.
    requests: AtomicUsize,
    /// When the last of them was, in milliseconds since `base`.
    idle_since: AtomicU64,
    /// Whether the system has all answers to the requests so far.
    quiet: AtomicBool,
    /// Whether hyper has answered by itself.
    refused: AtomicBool,
}

const NONE: u64 = u64::MAX;

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            base: Instant::now(),
            deadline: AtomicU64::new(NONE),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            quiet: AtomicBool::new(true),
            refused: AtomicBool::new(false),
        }
    }

    /// A request is under way.
    pub(super) fn begin(&self) {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.quiet.store(false, Ordering::Release);
    }

    /// Its answer is wholly handed over, or given up.
    pub(super) fn end(&self) {
        self.deadline.store(NONE, Ordering::Release);
        self.idle_since.store(self.millis(Instant::now()), Ordering::Release);
        self.requests.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 0
    }

    /// Whether no request is under way and the system has all answers.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire) && !self.is_busy()
    }

    /// Whether hyper has answered by itself, so that the rest of what was sent is not read.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Until when the head of the next request must be there; while a request is under way, if it ended now.
    pub(super) fn head_due(&self, patience: Duration) -> Instant {
        let since = match self.is_busy() {
            true => Instant::now(),
            // Rounded up, as it was rounded down.
            false => self.base + Duration::from_millis(self.idle_since.load(Ordering::Acquire) + 1),
        };
        since + patience
    }

    fn millis(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.base).as_millis()).unwrap_or(NONE - 1)
    }

    /// The answer must be with the client by then.
    pub(super) fn answer_by(&self, deadline: std::time::Instant) {
        // Rounded up: the call itself ends first and says why.
        let millis = self.millis(Instant::from_std(deadline)).saturating_add(1).min(NONE - 1);
        self.deadline.store(millis, Ordering::Release);
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
    /// What is written in place of hyper's own answer, and how much of it has been.
    refusal: Option<(String, usize)>,
}

impl Paced {
    pub(super) fn new(stream: Arc<TcpStream>, pace: Arc<Pace>, patience: Duration) -> Self {
        Self { stream, pace, patience, stuck: None, refusal: None }
    }

    fn late() -> io::Error {
        io::Error::new(ErrorKind::TimedOut, "the client does not take its answer")
    }

    /// Writes what hyper has to say, or a refusal in its place.
    fn write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.refusal.is_none() && self.pace.is_quiet() {
            let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
            self.refusal = canned::in_place_of(first).map(|text| (text, 0));
            self.pace.refused.store(self.refusal.is_some(), Ordering::Release);
        }
        let Some((text, mut sent)) = self.refusal.take() else {
            return self.written(cx, |stream| tcp::try_write_vectored(stream, slices));
        };
        let done = loop {
            let rest = &text.as_bytes()[sent..];
            if rest.is_empty() {
                break Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
            }
            match self.written(cx, |stream| stream.try_write(rest)) {
                Poll::Ready(Ok(count)) => sent += count,
                stopped => break stopped,
            }
        };
        self.refusal = Some((text, sent));
        done
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
        tcp::poll_read(&self.stream, cx, buf)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The kernel has what was written, and hyper asks once that is all it had.
        if !self.pace.is_busy() {
            self.pace.quiet.store(true, Ordering::Release);
        }
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
