//! A connection that the pool owns: the socket, HTTP/1.1 on it, and the machinery that moves both, polled by whoever
//! uses the connection and by nobody else.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use http::{Extensions, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use latent_capabilities::broker::pools::Resource;

use super::config::{BodyLimits, HeadLimits};
use super::error::{HttpErrorKind, ResponseFault};
use super::scratch::buffer_bytes;
use super::socket::{Socket, Wire};
use super::upload::Upload;

/// One connection to an origin.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    sender: SendRequest<Upload>,
    driver: http1::Connection<TokioIo<Socket>, Upload>,
    /// Whether the driver has ended: the connection is closed, and polling it again is not allowed.
    ended: bool,
    wire: Arc<Wire>,
    interim: Arc<AtomicU32>,
    /// What makes the machinery count them; each request takes a copy along.
    counting: Extensions,
}

/// The machinery takes more than a kilobyte and moves with every call, so it stays where it is.
pub(crate) type Connection = Box<HttpConnection>;

impl HttpConnection {
    /// Starts HTTP/1.1 on a fresh socket. Nothing is sent.
    pub(crate) async fn open(
        socket: Socket,
        head: &HeadLimits,
        body: &BodyLimits,
    ) -> Result<Connection, HttpErrorKind> {
        let wire = Arc::clone(&socket.wire);
        let mut builder = http1::Builder::new();
        builder
            .max_buf_size(buffer_bytes(head, body))
            .max_header_size(head.response_bytes)
            .max_headers(head.response_headers);
        let (sender, driver) =
            builder.handshake(TokioIo::new(socket)).await.map_err(|_| HttpErrorKind::Closed)?;
        let interim = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&interim);
        let mut request = Request::new(());
        hyper::ext::on_informational(&mut request, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let counting = request.into_parts().0.extensions;
        Ok(Box::new(Self { sender, driver, ended: false, wire, interim, counting }))
    }

    /// Queues a request; it moves when the driver is polled. Interim responses are counted from here on.
    pub(crate) fn send(
        &mut self,
        mut request: Request<Upload>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.interim.store(0, Ordering::Relaxed);
        request.extensions_mut().clone_from(&self.counting);
        self.sender.send_request(request)
    }

    /// Interim responses to the last request so far.
    pub(crate) fn interim(&self) -> u32 {
        self.interim.load(Ordering::Relaxed)
    }

    /// Moves what can be moved in both directions. The driver's own outcome is not looked at: what it means for the
    /// exchange, the response or its body says.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.ended {
            self.ended = Pin::new(&mut self.driver).poll(cx).is_ready();
        }
    }

    /// Bytes that the system took for sending so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.wire.accepted()
    }

    /// Lets the machinery come to rest after a complete response and says whether the connection can be used again:
    /// everything sent, nothing received beyond the response, both sides open.
    ///
    /// This reads until the socket would block, so that what TLS sends after the handshake does not count as stray
    /// bytes later, and it leaves no waker of this call behind.
    pub(crate) fn settle(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready() && self.wire.is_flushed()
    }
}

impl Resource for Connection {
    fn is_reusable(&mut self) -> bool {
        !self.ended && self.sender.is_ready() && self.wire.is_silent()
    }
}

/// What a failure of the machinery before the response's head means.
pub(crate) fn head_failure(error: &hyper::Error) -> HttpErrorKind {
    if error.is_parse_too_large() {
        HttpErrorKind::Response(ResponseFault::HeadTooLarge)
    } else if error.is_parse() {
        HttpErrorKind::Response(ResponseFault::Malformed)
    } else {
        // Cancelled, incomplete, reset: whatever it is, there is no answer.
        HttpErrorKind::Closed
    }
}

/// What a failure of the machinery inside the response's body means: a fault of the framing where a decoder says so,
/// else the connection was lost.
pub(crate) fn body_failure(error: &hyper::Error, received: u64) -> HttpErrorKind {
    use std::error::Error as _;
    use std::io::ErrorKind;
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
            HttpErrorKind::Response(ResponseFault::Framing)
        }
        _ => HttpErrorKind::Truncated { received },
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::socket::{Layer, Tcp};
    use super::*;

    async fn pair() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let stream =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (peer, _) = listener.accept().await.expect("a connection");
        let wire = Wire::new(stream);
        let socket = Socket { layer: Layer::Plain(Tcp(Arc::clone(&wire))), wire };
        let (head, body) = (HeadLimits::default(), BodyLimits::default());
        (HttpConnection::open(socket, &head, &body).await.expect("a connection"), peer)
    }

    /// Sends a request and drives until there is a head or an error.
    async fn ask(connection: &mut HttpConnection) -> hyper::Result<Response<Incoming>> {
        let mut response = std::pin::pin!(connection.send(Request::new(Upload::whole(None).0)));
        std::future::poll_fn(|cx| {
            connection.drive(cx);
            response.as_mut().poll(cx)
        })
        .await
    }

    /// What the peer did takes a moment to arrive, and one more until the runtime has heard of it.
    async fn until(mut arrived: impl FnMut() -> bool) {
        let moment = std::time::Duration::from_millis(5);
        for _ in 0..1000 {
            let arrived = arrived();
            tokio::time::sleep(moment).await;
            if arrived {
                return;
            }
        }
        panic!("it never arrived");
    }

    #[tokio::test]
    async fn s33_an_end_that_is_seen_before_the_request_leaves_it_unsent() {
        let (mut connection, peer) = pair().await;
        assert!(connection.settle() && connection.is_reusable());
        drop(peer);
        until(|| !connection.is_reusable()).await;
        let error = ask(&mut connection).await.expect_err("the connection has ended");
        assert_eq!(head_failure(&error), HttpErrorKind::Closed);
        assert_eq!(connection.accepted(), 0, "no byte of the request was accepted");
    }

    #[tokio::test]
    async fn s33_stray_bytes_leave_the_request_unsent() {
        let (mut connection, mut peer) = pair().await;
        assert!(connection.settle());
        peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("sent");
        until(|| !connection.is_reusable()).await;
        ask(&mut connection).await.expect_err("an answer before the question is none");
        assert_eq!(connection.accepted(), 0);
    }

    #[tokio::test]
    async fn a_connection_is_not_reusable_before_its_response_is_read() {
        let (mut connection, mut peer) = pair().await;
        let mut response = Box::pin(connection.send(Request::new(Upload::whole(None).0)));
        connection.drive(&mut Context::from_waker(Waker::noop()));
        assert!(!connection.settle(), "a request is under way");
        peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await.expect("sent");
        let head = std::future::poll_fn(|cx| {
            connection.drive(cx);
            response.as_mut().poll(cx)
        });
        let _head = head.await.expect("a head");
        assert!(!connection.settle(), "half a body");
        let polled = std::future::poll_fn(|cx| {
            connection.drive(cx);
            Poll::Ready(connection.is_reusable())
        });
        assert!(!polled.await);
    }
}
