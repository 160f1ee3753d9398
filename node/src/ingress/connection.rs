//! One inbound connection, from its first byte to its orderly end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::canned;
use super::front::{Desk, Doors, Phase};
use super::handle::handle;
use super::pace::{Pace, Paced, reset};

/// How long a draining connection may be idle before it is closed. A request that was already on its way to an idle
/// connection when the node was told to stop gets its answer; a connection that is really idle is gone at once.
const LAST_LOOK: Duration = Duration::from_millis(25);
/// How much of an upload that nobody wants any more is read, and for how long, so that the answer that was already
/// written reaches the client: closing a socket with unread bytes destroys what the peer has not read yet.
const LINGER: (usize, Duration) = (1 << 20, Duration::from_millis(500));

/// What a connection and its requests know of each other.
#[derive(Debug)]
pub(super) struct State {
    /// An answer was given while the request's body was still coming.
    unread: AtomicBool,
    /// Whether an answer is under way, and until when it may take.
    pace: Arc<Pace>,
}

impl State {
    fn new() -> Self {
        Self { unread: AtomicBool::new(false), pace: Arc::new(Pace::new()) }
    }

    /// The request has a deadline, and so has its answer, to the last byte.
    pub(super) fn answer_by(&self, deadline: std::time::Instant) {
        self.pace.answer_by(deadline);
    }

    pub(super) fn leave_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }
}

/// Says that a request is being worked on, for its connection and for the node's figures.
#[derive(Debug)]
pub(super) struct Busy {
    state: Arc<State>,
    desk: Arc<Desk>,
}

impl Busy {
    fn begin(state: &Arc<State>, desk: &Arc<Desk>) -> Self {
        state.pace.begin();
        desk.requests.fetch_add(1, Ordering::Relaxed);
        Self { state: state.clone(), desk: desk.clone() }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.desk.requests.fetch_sub(1, Ordering::Relaxed);
        self.state.pace.end();
    }
}

/// Serves one connection until it ends, or until the node stops.
pub(super) async fn serve(
    stream: TcpStream,
    desk: Arc<Desk>,
    doors: Doors,
    mut phase: watch::Receiver<Phase>,
) {
    let ingress = &desk.ingress;
    let state = Arc::new(State::new());
    let stream = Arc::new(stream);
    let service = {
        let (state, desk) = (state.clone(), desk.clone());
        service_fn(move |request| handle(desk.clone(), doors, Busy::begin(&state, &desk), request))
    };
    let paced = Paced::new(stream.clone(), state.pace.clone(), ingress.head_timeout);
    let mut connection = http1::Builder::new()
        .half_close(!ingress.early_abort)
        .max_buf_size(ingress.head_bytes)
        .max_header_size(ingress.head_bytes)
        .serve_connection(TokioIo::new(paced), service);

    let mut draining = *phase.borrow_and_update() != Phase::Serving;
    let mut closing = false;
    let mut look = std::pin::pin!(sleep(LAST_LOOK));
    // Armed once in a while and not for each head: when it fires it looks at when the head was due.
    let mut patience = std::pin::pin!(sleep_until(state.pace.head_due(ingress.head_timeout)));
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut connection => break ended,
            // Without this a client that is gone would keep its turn: while a request is under way nobody reads.
            () = reset(&stream) => return,
            changed = phase.changed() => {
                if changed.is_err() || *phase.borrow_and_update() == Phase::Aborting {
                    return;
                }
                draining = true;
                look.as_mut().reset(Instant::now() + LAST_LOOK);
            }
            () = &mut look, if draining && !closing => {
                closing = !state.pace.is_busy();
                if closing {
                    Pin::new(&mut connection).graceful_shutdown();
                } else {
                    look.as_mut().reset(Instant::now() + LAST_LOOK);
                }
            }
            () = &mut patience => {
                let due = state.pace.head_due(ingress.head_timeout);
                if due > Instant::now() {
                    patience.as_mut().reset(due);
                    continue;
                }
                tracing::debug!("no request head in time");
                // hyper closes without a word; a client that has begun a head is told why.
                let quiet = state.pace.is_quiet();
                if quiet && !connection.into_parts().read_buf.is_empty() {
                    // Best effort: the client may be gone, and one write fits any socket buffer.
                    let _ = stream.try_write(canned::too_slow().as_bytes());
                }
                return;
            }
        }
    };
    match ended {
        Ok(()) => tracing::trace!("connection closed"),
        Err(error) => tracing::debug!(%error, "connection ended early"),
    }
    if state.unread.load(Ordering::Acquire) || state.pace.has_refused() {
        drop(connection);
        linger(&stream).await;
    }
}

/// Closes the sending half and reads what still comes, bounded.
async fn linger(stream: &TcpStream) {
    if let Err(error) = rustix::net::shutdown(stream, rustix::net::Shutdown::Write) {
        tracing::debug!(%error, "the client went first");
        return;
    }
    let (mut left, patience) = LINGER;
    let drain: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async {
        let mut scrap = [0; 4_096];
        while left > 0 && stream.readable().await.is_ok() {
            match stream.try_read(&mut scrap) {
                Ok(0) => break,
                Ok(read) => left = left.saturating_sub(read),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    });
    // Out of patience is as good as done: the connection is dropped either way.
    let _ = timeout(patience, drain).await;
}
