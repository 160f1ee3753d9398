//! A whole request inside the library: admitted, a connection taken, one chunk through a stream, everything given back.

use std::hint::black_box;
use std::task::Poll;

use latent_capabilities::broker::PoolLimits;
use perf::must;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::admission::Five;
use super::measure::{Group, Subject, looped};
use super::ours::World;
use super::pools::{at_once, deadpool};

const CHUNK: usize = 4096;
const LACKS: &str = "not fair, no deadline, no byte budget, no wipe, no policy";

pub(super) fn groups(handle: &Handle) -> Vec<Group> {
    let world = World::new(handle, PoolLimits::ceilings(), 1);
    let session = world.session("first", 0);
    world.connect(&world.call(&session, 0), 0);
    let ours = looped(move || {
        let call = world.call(&session, 0);
        let Some(idle) = must(world.clients[0].checkout(&call)) else { panic!("one is idle") };
        let (mut writer, mut reader) = must(call.io().stream(8));
        let mut chunk = must(call.io().buffer(CHUNK, 0));
        must(chunk.spare_mut(1))[0] = 7;
        must(chunk.advance_written(1));
        must(writer.try_write(chunk));
        match reader.try_read() {
            Poll::Ready(read) => drop(black_box(must(read))),
            Poll::Pending => panic!("what was written can be read"),
        }
        must(idle.park(latent_capabilities::broker::pools::Exchange::complete()));
    });
    let (five, pool) = (Five::new(), deadpool());
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(8);
    let kept = {
        let (five, pool) = (five.clone(), pool.clone());
        looped(move || {
            let permits = five.owned();
            let connection = must(at_once(pool.get()));
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.push(7_u8);
            must(sender.try_send(chunk));
            drop(black_box(must(receiver.try_recv())));
            drop((connection, permits));
        })
    };
    let own = looped(move || {
        let permits = five.owned();
        let connection = must(at_once(pool.get()));
        let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(8);
        let mut chunk = Vec::with_capacity(CHUNK);
        chunk.push(7_u8);
        must(sender.try_send(chunk));
        drop(black_box(must(receiver.try_recv())));
        drop((sender, receiver, connection, permits));
    });
    vec![Group {
        key: "request",
        title: "a whole request: admit, checkout, buffer, one chunk, park, release",
        note: "Ours opens a stream per request. The bounds are taken from the peers with one channel kept for all requests.",
        subjects: vec![
            Subject::ours("latent: whole request", ours),
            Subject::peer("owned semaphores + deadpool + mpsc + malloc", LACKS, kept),
            Subject::peer("the same, a channel per request", LACKS, own),
        ],
    }]
}
