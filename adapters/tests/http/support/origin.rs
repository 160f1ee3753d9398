//! An origin on loopback that does, byte by byte, what a script says.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::{PATIENCE, in_time};

/// A listener whose every connection is played by a script.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
    peers: Arc<Mutex<JoinSet<()>>>,
    listener: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Origin {
    /// Plays `script` on every connection; the number is that of the connection, from 0.
    pub(crate) async fn play<F, S>(script: S) -> Self
    where
        S: Fn(Peer, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        Self::play_on(listener, script)
    }

    pub(crate) fn play_on<F, S>(listener: TcpListener, script: S) -> Self
    where
        S: Fn(Peer, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().expect("an address");
        let counts = Arc::new(Counts::default());
        let peers = Arc::new(Mutex::new(JoinSet::new()));
        let (counted, joined) = (Arc::clone(&counts), Arc::clone(&peers));
        let listener = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                stream.set_nodelay(true).expect("a socket option");
                let number = counted.accepted.fetch_add(1, Ordering::SeqCst);
                let open = counted.open.fetch_add(1, Ordering::SeqCst) + 1;
                counted.most.fetch_max(open, Ordering::SeqCst);
                let played = script(Peer { stream, buffer: Vec::new() }, number);
                let counted = Arc::clone(&counted);
                joined.lock().expect("the peers").spawn(async move {
                    played.await;
                    counted.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, counts, peers, listener }
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// The most connections that were open at once.
    pub(crate) fn most(&self) -> usize {
        self.counts.most.load(Ordering::SeqCst)
    }

    /// Waits until every connection's script has ended. A script that failed fails the test.
    pub(crate) async fn done(&self) {
        let peers = std::mem::take(&mut *self.peers.lock().expect("the peers"));
        let mut peers = peers;
        while let Some(outcome) = in_time(peers.join_next()).await {
            outcome.expect("the script was played to its end");
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// One accepted connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Peer {
    /// Reads a request's head; `None` at the end of the connection.
    pub(crate) async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = self.buffer.split_off(end + 4);
                let head = std::mem::replace(&mut self.buffer, rest);
                return Some(String::from_utf8(head).expect("an ASCII head"));
            }
            if self.more().await == 0 {
                assert!(self.buffer.is_empty(), "the connection ended inside a head");
                return None;
            }
        }
    }

    /// Reads `length` bytes of body.
    pub(crate) async fn body(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert_ne!(self.more().await, 0, "the connection ended inside a body");
        }
        let rest = self.buffer.split_off(length);
        std::mem::replace(&mut self.buffer, rest)
    }

    async fn more(&mut self) -> usize {
        let mut bytes = [0; 16 * 1024];
        match in_time(self.stream.read(&mut bytes)).await {
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                count
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes bytes. That nobody reads them any more is no failure of the script.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _gone = in_time(self.stream.write_all(bytes.as_ref())).await;
    }

    /// Writes as many bytes as there is room for without waiting longer than `patience`. Says how many those were.
    pub(crate) async fn push(&mut self, bytes: &[u8], patience: Duration) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match tokio::time::timeout(patience, self.stream.write(&bytes[written..])).await {
                Ok(Ok(count)) => written += count,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        written
    }

    /// Writes bytes one by one.
    pub(crate) async fn trickle(&mut self, bytes: impl AsRef<[u8]>, pause: Duration) {
        for byte in bytes.as_ref() {
            if self.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Answers with a length and a body, and keeps the connection.
    pub(crate) async fn answer(&mut self, body: &str) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.write(head).await;
    }

    /// Ends the sending direction.
    pub(crate) async fn fin(&mut self) {
        let _gone = self.stream.shutdown().await;
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().expect("a socket option");
    }

    /// Waits until the other side has closed: an end or a reset, whatever was still on its way.
    pub(crate) async fn closed(&mut self) {
        let mut bytes = [0; 16 * 1024];
        let ended = async {
            loop {
                match self.stream.read(&mut bytes).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the peer sees the end of the connection");
    }
}

/// An address of loopback that nobody listens at.
pub(crate) fn nobody() -> SocketAddr {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    socket.local_addr().expect("an address")
}
