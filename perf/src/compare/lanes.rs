//! Channels as one interface: ours, which carries buffers that are charged, and the peers, which carry boxes.

use std::task::Poll;

use latent_capabilities::broker::io::{IoBuffer, IoStreamReader, IoStreamWriter};
use latent_capabilities::broker::pools::PoolCall;
use latent_capabilities::broker::{CapabilitySession, PoolLimits};
use perf::must;
use tokio::runtime::Handle;

use super::ours::World;

/// Chunks that may be in flight.
const DEPTH: usize = 8;

/// A channel with one writer and one reader.
pub(super) trait Lane: Send + 'static {
    type Item: Send + 'static;
    type Tx: Send + 'static;
    type Rx: Send + 'static;
    /// A new one, with `chunks` items to send.
    fn open(&self, chunks: usize) -> (Self::Tx, Self::Rx, Vec<Self::Item>);
    /// Sends into a channel that has room.
    fn push(tx: &mut Self::Tx, item: Self::Item);
    /// Receives from a channel that is not empty.
    fn pop(rx: &mut Self::Rx) -> Self::Item;
}

/// One whose ends can wait.
pub(super) trait Waits: Lane {
    fn send(tx: &mut Self::Tx, item: Self::Item) -> impl Future<Output = ()> + Send;
    fn recv(rx: &mut Self::Rx) -> impl Future<Output = Self::Item> + Send;
}

/// Our streams. Every opening is a call of its own, so that no total of a call is ever reached.
pub(super) struct Ours {
    world: &'static World,
    session: CapabilitySession,
}

impl Ours {
    pub(super) fn new(handle: &Handle) -> Self {
        let world = World::new(handle, PoolLimits::ceilings(), 1);
        Self { world, session: world.session("first", 0) }
    }
}

impl Lane for Ours {
    type Item = IoBuffer;
    type Tx = (IoStreamWriter, PoolCall);
    type Rx = IoStreamReader;

    fn open(&self, chunks: usize) -> (Self::Tx, Self::Rx, Vec<IoBuffer>) {
        let call = self.world.call(&self.session, 0);
        let (writer, reader) = must(call.io().stream(DEPTH));
        let chunk = || {
            let mut chunk = must(call.io().buffer(512, 0));
            must(chunk.spare_mut(1))[0] = 7;
            must(chunk.advance_written(1));
            must(chunk.retain())
        };
        let chunks = (0..chunks).map(|_| chunk()).collect();
        ((writer, call), reader, chunks)
    }

    fn push((writer, _): &mut Self::Tx, item: IoBuffer) {
        must(writer.try_write(item));
    }

    fn pop(reader: &mut Self::Rx) -> IoBuffer {
        match reader.try_read() {
            Poll::Ready(read) => must(read).expect("the stream goes on"),
            Poll::Pending => panic!("what was written can be read"),
        }
    }
}

impl Waits for Ours {
    async fn send((writer, _): &mut Self::Tx, item: IoBuffer) {
        must(writer.write(item).await);
    }

    async fn recv(reader: &mut Self::Rx) -> IoBuffer {
        must(reader.read().await).expect("the stream goes on")
    }
}

/// What peers carry: as a handle to a chunk, 16 bytes.
pub(super) type Chunk = Box<[u8]>;

fn chunks(count: usize) -> Vec<Chunk> {
    (0..count).map(|_| vec![7].into_boxed_slice()).collect()
}

macro_rules! lanes {
    ($($name:ident: $tx:ty, $rx:ty, $open:expr;
        push $push:expr; pop $pop:expr; $([$send:expr, $recv:expr];)?)+) => {$(
        pub(super) struct $name;

        impl Lane for $name {
            type Item = Chunk;
            type Tx = $tx;
            type Rx = $rx;

            fn open(&self, count: usize) -> (Self::Tx, Self::Rx, Vec<Chunk>) {
                let (tx, rx) = $open;
                (tx, rx, chunks(count))
            }

            fn push(tx: &mut Self::Tx, item: Chunk) {
                let push: fn(&mut $tx, Chunk) = $push;
                push(tx, item);
            }

            fn pop(rx: &mut Self::Rx) -> Chunk {
                let pop: fn(&mut $rx) -> Chunk = $pop;
                pop(rx)
            }
        }

        $(impl Waits for $name {
            async fn send(tx: &mut Self::Tx, item: Chunk) {
                let send = $send;
                must(send(tx, item).await);
            }

            async fn recv(rx: &mut Self::Rx) -> Chunk {
                let recv = $recv;
                recv(rx).await.into_iter().next().expect("the channel goes on")
            }
        })?
    )+};
}

lanes! {
    TokioMpsc: tokio::sync::mpsc::Sender<Chunk>, tokio::sync::mpsc::Receiver<Chunk>, tokio::sync::mpsc::channel(DEPTH);
        push |tx, item| must(tx.try_send(item)); pop |rx| must(rx.try_recv());
        [tokio::sync::mpsc::Sender::<Chunk>::send, tokio::sync::mpsc::Receiver::<Chunk>::recv];
    Kanal: kanal::AsyncSender<Chunk>, kanal::AsyncReceiver<Chunk>, kanal::bounded_async(DEPTH);
        push |tx, item| assert!(must(tx.try_send(item))); pop |rx| must(rx.try_recv()).expect("not empty");
        [kanal::AsyncSender::<Chunk>::send, kanal::AsyncReceiver::<Chunk>::recv];
    Tachyonix: tachyonix::Sender<Chunk>, tachyonix::Receiver<Chunk>, tachyonix::channel(DEPTH);
        push |tx, item| must(tx.try_send(item)); pop |rx| must(rx.try_recv());
        [tachyonix::Sender::<Chunk>::send, tachyonix::Receiver::<Chunk>::recv];
    Flume: flume::Sender<Chunk>, flume::Receiver<Chunk>, flume::bounded(DEPTH);
        push |tx, item| must(tx.try_send(item)); pop |rx| must(rx.try_recv());
        [flume::Sender::<Chunk>::send_async, flume::Receiver::<Chunk>::recv_async];
    AsyncChannel: async_channel::Sender<Chunk>, async_channel::Receiver<Chunk>, async_channel::bounded(DEPTH);
        push |tx, item| must(tx.try_send(item)); pop |rx| must(rx.try_recv());
        [async_channel::Sender::<Chunk>::send, async_channel::Receiver::<Chunk>::recv];
    Thingbuf: thingbuf::mpsc::Sender<Chunk>, thingbuf::mpsc::Receiver<Chunk>, thingbuf::mpsc::channel(DEPTH);
        push |tx, item| must(tx.try_send(item)); pop |rx| must(rx.try_recv());
        [thingbuf::mpsc::Sender::<Chunk>::send, thingbuf::mpsc::Receiver::<Chunk>::recv];
    Rtrb: rtrb::Producer<Chunk>, rtrb::Consumer<Chunk>, rtrb::RingBuffer::new(DEPTH);
        push |tx, item| must(tx.push(item)); pop |rx| must(rx.pop());
}
