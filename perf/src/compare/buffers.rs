//! Byte blocks: taking and giving back, and the wipe.

use std::hint::black_box;
use std::mem::forget;
use std::sync::Mutex;

use crossbeam_queue::ArrayQueue;
use latent_capabilities::broker::PoolLimits;
use latent_capabilities::broker::pools::{PoolAdmission, PoolCall};
use perf::must;
use sharded_slab::Pool;
use tokio::runtime::Handle;
use zeroize::Zeroize;

use super::measure::{Group, Part, Subject, keep, looped, part};
use super::ours::World;

const BLOCK: usize = 64 << 10;

fn call(handle: &Handle) -> &'static PoolCall {
    let world = World::new(handle, PoolLimits::ceilings(), 1);
    let session = world.session("first", 0);
    let call = keep(world.call(&session, 0));
    forget(session);
    call
}

/// An operation that has not started keeps no block ready: each of its buffers is taken from the node.
fn waiting(handle: &Handle) -> &'static PoolAdmission {
    let world = World::new(handle, PoolLimits::ceilings(), 1);
    let session = world.session("first", 0);
    let admission = keep(must(world.pools.admit(&world.clients[0], &session)));
    forget(session);
    admission
}

fn take_from_node(waiting: &PoolAdmission) {
    drop(black_box(must(waiting.input(BLOCK, 0))));
}

fn take(call: &PoolCall) {
    drop(black_box(must(call.io().buffer(BLOCK, 0))));
}

fn block() -> Box<[u8]> {
    vec![0; BLOCK].into_boxed_slice()
}

fn of_list(list: &Mutex<Vec<Box<[u8]>>>) {
    let taken = black_box(list.lock().expect("not poisoned").pop().expect("it was given back"));
    list.lock().expect("not poisoned").push(taken);
}

fn of_queue(queue: &ArrayQueue<Box<[u8]>>) {
    let taken = black_box(queue.pop().expect("it was given back"));
    queue.push(taken).expect("there is room");
}

const NO_BOOKS: &str = "no books: nobody is charged, no limit in bytes, no wipe";

pub(super) fn groups(handle: &Handle) -> Vec<Group> {
    let (call, waiting) = (call(handle), waiting(handle));
    let list = Mutex::new(vec![block(); 4]);
    let queue = ArrayQueue::new(4);
    queue.push(block()).expect("there is room");
    let slab = Pool::<Vec<u8>>::new();
    let take_release = Group {
        key: "buffer",
        title: "buffer of 64 KiB: take + release, without the wipe",
        note: "Ours keeps all books: node, tenant, operation; session and deadline are looked at. A call keeps one block ready; the second row is what its first ones cost.",
        subjects: vec![
            Subject::ours("latent: buffer, untouched", looped(move || take(call))),
            Subject::ours("latent: buffer, from the node", looped(move || take_from_node(waiting))),
            Subject::peer("Mutex<Vec>", NO_BOOKS, looped(move || of_list(&list))),
            Subject::peer("crossbeam ArrayQueue", NO_BOOKS, looped(move || of_queue(&queue))),
            Subject::peer(
                "sharded-slab Pool",
                NO_BOOKS,
                looped(move || {
                    let mut taken = slab.create().expect("there is room");
                    if taken.capacity() == 0 {
                        taken.reserve_exact(BLOCK);
                    }
                    let key = black_box(taken.key());
                    drop(taken);
                    slab.clear(key);
                }),
            ),
            Subject::peer(
                "malloc",
                "no limit, no wipe",
                looped(|| drop(black_box(Vec::<u8>::with_capacity(BLOCK)))),
            ),
        ],
    };
    let mut set = block();
    let mut slice = block();
    let pooled = Mutex::new(vec![block()]);
    let wipe = Group {
        key: "wipe",
        title: "wipe of 64 KiB",
        note: "The wipe is what the first costs above the second.",
        subjects: vec![
            Subject::ours(
                "latent: buffer, 64 KiB exposed",
                looped(move || {
                    let mut buffer = must(call.io().buffer(BLOCK, 0));
                    black_box(must(buffer.spare_mut(BLOCK)).as_mut_ptr());
                    drop(buffer);
                }),
            ),
            Subject::ours("latent: buffer, untouched", looped(move || take(call))),
            Subject::peer("memset", "can be optimised away", looped(move || black_box(&mut set[..]).fill(0))),
            Subject::peer("zeroize on the slice", "", looped(move || black_box(&mut slice[..]).zeroize())),
            Subject::peer(
                "Mutex<Vec> + zeroize",
                "nobody is charged",
                looped(move || {
                    let mut taken = pooled.lock().expect("not poisoned").pop().expect("it was given back");
                    black_box(&mut taken[..]).zeroize();
                    pooled.lock().expect("not poisoned").push(taken);
                }),
            ),
            Subject::peer(
                "malloc + Vec::zeroize",
                "no limit",
                looped(|| {
                    let mut taken = vec![0_u8; BLOCK];
                    black_box(&mut taken).zeroize();
                }),
            ),
        ],
    };
    vec![take_release, wipe]
}

pub(super) fn by_two(handle: &Handle) -> Vec<Group> {
    let world = World::new(handle, PoolLimits::ceilings(), 2);
    let ours = [("first", 0), ("second", 1)].map(|(tenant, provider)| -> Part {
        let session = world.session(tenant, provider);
        let call = world.call(&session, provider);
        forget(session);
        part(move || take(&call))
    });
    let list = keep(Mutex::new(vec![block(); 4]));
    let queue = keep(ArrayQueue::new(4));
    for _ in 0..4 {
        queue.push(block()).expect("there is room");
    }
    let both = |work: fn()| [part(work), part(work)];
    vec![Group {
        key: "two-buffer",
        title: "two threads: buffer of 64 KiB, take + release, own tenants",
        note: "ns per operation and thread; scale = throughput of two threads / of one.",
        subjects: vec![
            Subject::ours_twice("latent: buffer, untouched", ours),
            Subject::peer_twice("Mutex<Vec>", NO_BOOKS, [(), ()].map(|()| part(move || of_list(list)))),
            Subject::peer_twice(
                "crossbeam ArrayQueue",
                NO_BOOKS,
                [(), ()].map(|()| part(move || of_queue(queue))),
            ),
            Subject::peer_twice(
                "malloc",
                "no limit, no wipe",
                both(|| drop(black_box(Vec::<u8>::with_capacity(BLOCK)))),
            ),
            super::machine::control(),
        ],
    }]
}
