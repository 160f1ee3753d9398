//! The socket under a connection: TCP, or TLS over it, and what must be known of it from outside.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::tcp;

/// The descriptor and what happened on it, shared by the HTTP machinery that uses it and the connection that owns
/// both. All of it runs in the task of the call, so the counters order nothing.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    /// Bytes that the system took for sending.
    accepted: AtomicU64,
    /// Whether bytes handed to this socket still wait for room in it.
    unsent: AtomicBool,
    /// Whether sending has failed; what was sent before may still be answered.
    broken: AtomicBool,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Arc<Self> {
        Arc::new(Self {
            stream,
            accepted: AtomicU64::new(0),
            unsent: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        })
    }

    /// Bytes that the system took for sending so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Whether everything handed over has been taken by the system.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.unsent.load(Ordering::Relaxed) && !self.broken.load(Ordering::Relaxed)
    }

    /// Whether the peer has neither ended nor said anything.
    ///
    /// Asks the descriptor itself: the runtime's cached readiness does not know of an end that has just arrived.
    pub(crate) fn is_silent(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.stream, &mut [0_u8; 1], flags) == Err(rustix::io::Errno::WOULDBLOCK)
    }
}

/// The plain socket.
#[derive(Debug)]
pub(crate) struct Tcp(pub(crate) Arc<Wire>);

impl Tcp {
    fn write(
        &self,
        cx: &mut Context<'_>,
        attempt: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.0.broken.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        loop {
            let outcome = match self.0.stream.poll_write_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => attempt(&self.0.stream),
                Poll::Ready(Err(error)) => Err(error),
            };
            match outcome {
                Ok(count) => {
                    self.0.accepted.fetch_add(count as u64, Ordering::Relaxed);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    // A peer that answers early and closes resets the upload. Its answer may already be here, so the
                    // failure is left to the reading side, which sees the answer first and the end or reset after
                    // it: an error of the connection makes the socket readable.
                    self.0.broken.store(true, Ordering::Relaxed);
                    return Poll::Pending;
                }
            }
        }
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        tcp::poll_read(&self.0.stream, cx, buffer)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream| tcp::try_write_vectored(stream, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The socket is closed by dropping it; nothing is gained by a half-closed one.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What HTTP is spoken over.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) wire: Arc<Wire>,
    pub(crate) layer: Layer,
}

#[derive(Debug)]
pub(crate) enum Layer {
    Plain(Tcp),
    Tls(Box<TlsStream<Tcp>>),
}

impl Socket {
    /// Notes whether bytes stay behind in this socket after a write or a flush.
    fn note<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.wire.unsent.store(outcome.is_pending(), Ordering::Relaxed);
        outcome
    }
}

macro_rules! layer {
    ($socket:expr, $method:ident, $($argument:expr),*) => {
        match &mut $socket.layer {
            Layer::Plain(tcp) => Pin::new(tcp).$method($($argument),*),
            Layer::Tls(tls) => Pin::new(tls.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        layer!(self, poll_read, cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = layer!(self, poll_write, cx, bytes);
        self.note(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = layer!(self, poll_write_vectored, cx, slices);
        self.note(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = layer!(self, poll_flush, cx);
        self.note(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        layer!(self, poll_shutdown, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn s36_what_arrived_before_a_reset_is_read_although_writing_has_failed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let stream =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (mut peer, _) = listener.accept().await.expect("a connection");
        let wire = Wire::new(stream);
        let mut socket = Socket { layer: Layer::Plain(Tcp(Arc::clone(&wire))), wire: Arc::clone(&wire) };
        socket.write_all(b"never read").await.expect("sent");
        assert_eq!((wire.accepted(), wire.is_flushed()), (10, true));
        peer.write_all(b"answer").await.expect("sent");
        // Bytes that were never read make this a reset.
        drop(peer);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;

        for _ in 0..2 {
            let mut writing = std::pin::pin!(socket.write(b"more"));
            let failed = std::future::poll_fn(|cx| Poll::Ready(writing.as_mut().poll(cx).is_pending())).await;
            assert!(failed, "no error: the other direction says what happened");
        }
        assert!(!wire.is_flushed());
        let mut answer = [0; 6];
        socket.read_exact(&mut answer).await.expect("it arrived before the reset");
        assert_eq!(&answer, b"answer");
        let end = tokio::time::timeout(std::time::Duration::from_secs(5), socket.read(&mut answer)).await;
        assert!(matches!(end.expect("the end is told"), Ok(0) | Err(_)));
    }

    #[tokio::test]
    async fn silence_is_asked_of_the_descriptor() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let stream =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (peer, _) = listener.accept().await.expect("a connection");
        let wire = Wire::new(stream);
        assert!(wire.is_silent());
        // On loopback the end is there when the call returns, long before the runtime hears of it.
        drop(peer);
        assert!(!wire.is_silent());
    }
}
