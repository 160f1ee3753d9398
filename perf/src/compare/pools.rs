//! Taking a connection and giving it back: ours, keyed and capped, against pools of connections.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bb8::ManageConnection;
use deadpool::managed::{Manager, Metrics, Pool, RecycleResult};
use hyper_util::client::pool::cache;
use latent_capabilities::broker::PoolLimits;
use pingora_pool::{ConnectionMeta, ConnectionPool, PoolNode};
use tokio::runtime::{Handle, Runtime};
use tower_service::Service;

use super::measure::{Group, Part, Subject, keep, looped, part};
use super::ours::World;
use perf::{must, poll};

/// A connection that is nothing.
#[derive(Clone, Debug)]
pub(super) struct Nothing;

/// Makes it, for every pool that wants a maker.
#[derive(Clone, Debug)]
pub(super) struct Maker;

impl Manager for Maker {
    type Type = Nothing;
    type Error = Infallible;

    async fn create(&self) -> Result<Nothing, Infallible> {
        Ok(Nothing)
    }

    async fn recycle(&self, _: &mut Nothing, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

impl ManageConnection for Maker {
    type Connection = Nothing;
    type Error = Infallible;

    async fn connect(&self) -> Result<Nothing, Infallible> {
        Ok(Nothing)
    }

    async fn is_valid(&self, _: &mut Nothing) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Nothing) -> bool {
        false
    }
}

impl Service<()> for Maker {
    type Response = Nothing;
    type Error = Infallible;
    type Future = Ready<Result<Nothing, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(Nothing))
    }
}

/// The value of a future that does not have to wait.
pub(super) fn at_once<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("one is idle"),
    }
}

/// The value of a future that may have to wait for the other thread for a moment.
fn repeated<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = poll(future.as_mut()) {
            return value;
        }
        std::hint::spin_loop();
    }
}

pub(super) fn deadpool() -> Pool<Maker> {
    must(Pool::builder(Maker).max_size(64).build())
}

/// A pool of bb8 with two idle connections, made where its tasks can run.
fn bb8(runtime: &Runtime) -> bb8::Pool<Maker> {
    let pool = bb8::Pool::builder().max_size(64).build_unchecked(Maker);
    runtime.block_on(async {
        // Two: as many threads share it.
        let both = (must(pool.get().await), must(pool.get().await));
        drop(both);
    });
    pool
}

type Idle = HashMap<u64, Vec<Nothing>>;

fn by_hand(map: &Mutex<Idle>, key: u64) {
    let taken = map.lock().expect("not poisoned").get_mut(&key).and_then(Vec::pop).expect("one is idle");
    map.lock().expect("not poisoned").entry(key).or_default().push(taken);
}

const ONE_KEY: &str = "one key, capped; no scopes above it, no epoch";
const NO_CAP: &str = "one key, no cap";

pub(super) fn groups(handle: &Handle) -> Vec<Group> {
    let world = World::new(handle, PoolLimits::ceilings(), 1);
    let session = world.session("first", 0);
    let call = world.call(&session, 0);
    world.connect(&call, 0);
    // Made in a runtime, polled outside it: `handle` is entered.
    let runtime = super::ours::runtime(1);
    let (dead, eight) = (deadpool(), bb8(runtime));
    let keyed = ConnectionPool::new(64);
    let meta = ConnectionMeta::new(7, 1);
    drop(keyed.put(&meta, Nothing));
    let node = PoolNode::new();
    node.insert(1, Nothing);
    let map = Mutex::new(Idle::from([(7, vec![Nothing])]));
    let mut hyper = cache::builder().build(Maker);
    let checkout = Group {
        key: "checkout",
        title: "connection: checkout + park, keyed and capped",
        note: "",
        subjects: vec![
            Subject::ours("latent: checkout + park", looped(move || world.checkout(&call, 0))),
            Subject::peer("deadpool", ONE_KEY, looped(move || drop(must(at_once(dead.get()))))),
            Subject::peer("bb8", ONE_KEY, looped(move || drop(must(at_once(eight.get()))))),
            Subject::peer(
                "pingora-pool ConnectionPool",
                "keyed, idle cap only: what is in use is not counted",
                looped(move || {
                    let taken = keyed.get(&7).expect("one is idle");
                    drop(keyed.put(&meta, taken));
                }),
            ),
            Subject::peer(
                "pingora-pool PoolNode",
                NO_CAP,
                looped(move || {
                    let (id, taken) = node.get_any().expect("one is idle");
                    node.insert(id, taken);
                }),
            ),
            Subject::peer(
                "hyper-util pool::cache",
                NO_CAP,
                looped(move || {
                    let mut cx = Context::from_waker(Waker::noop());
                    assert!(hyper.poll_ready(&mut cx).is_ready());
                    drop(must(at_once(hyper.call(()))));
                }),
            ),
            Subject::peer(
                "Mutex<HashMap<key, Vec>>",
                "no caps, no waiting",
                looped(move || by_hand(&map, 7)),
            ),
        ],
    };
    // The session's calls live as long as the process.
    std::mem::forget(session);
    vec![checkout]
}

pub(super) fn by_two(handle: &Handle) -> Vec<Group> {
    let group = |key, title, own: bool| {
        let world = World::new(handle, PoolLimits::ceilings(), 2);
        let ours = [0, 1].map(|number| -> Part {
            let provider = if own { number } else { 0 };
            let session = world.session(["first", "second"][if own { number } else { 0 }], provider);
            let call = world.call(&session, provider);
            world.connect(&call, provider);
            std::mem::forget(session);
            part(move || world.checkout(&call, provider))
        });
        let dead = |pools: [Pool<Maker>; 2]| pools.map(|pool| part(move || drop(must(repeated(pool.get())))));
        let runtime = super::ours::runtime(1);
        let eight = |pools: [bb8::Pool<Maker>; 2]| {
            pools.map(|pool| {
                let handle = runtime.handle().clone();
                let mut inside: Part = Box::new(move |operations| {
                    let _inside = handle.enter();
                    for _ in 0..operations {
                        drop(must(repeated(pool.get())));
                    }
                });
                inside(2);
                inside
            })
        };
        let (one, other, first, second) = (deadpool(), deadpool(), bb8(runtime), bb8(runtime));
        let keyed = keep(ConnectionPool::new(64));
        let pingora = [1, 2].map(|id| -> Part {
            let meta = ConnectionMeta::new(if own { id } else { 1 }, id as i32);
            drop(keyed.put(&meta, Nothing));
            part(move || {
                // The other thread may hold both for a moment.
                if let Some(taken) = keyed.get(&meta.key) {
                    drop(keyed.put(&meta, taken));
                }
            })
        });
        Group {
            key,
            title,
            note: "ns per operation and thread; scale = throughput of two threads / of one. Two connections are idle.",
            subjects: vec![
                Subject::ours_twice("latent: checkout + park", ours),
                Subject::peer_twice("deadpool", ONE_KEY, dead([one.clone(), if own { other } else { one }])),
                Subject::peer_twice("bb8", ONE_KEY, eight([first.clone(), if own { second } else { first }])),
                Subject::peer_twice("pingora-pool ConnectionPool", "what is in use is not counted", pingora),
                super::machine::control(),
            ],
        }
    };
    let mut own = group("two-checkout-own", "two threads: checkout + park, own origins", true);
    // Two threads cannot do better than this on the machine, whatever they share or not.
    let apart = [(); 2].map(|()| -> Part {
        let world = World::new(handle, PoolLimits::ceilings(), 1);
        let session = world.session("first", 0);
        let call = world.call(&session, 0);
        world.connect(&call, 0);
        std::mem::forget(session);
        part(move || world.checkout(&call, 0))
    });
    own.subjects.insert(1, Subject::ours_twice("latent: two nodes, one for each", apart));
    vec![own, group("two-checkout-same", "two threads: checkout + park, same origin", false)]
}
