//! Time of each hot operation with nobody in the way: `cargo bench --bench operations`.
//!
//! Polled by hand inside a runtime but in no task of it: a task would be made to yield every now and then.

#[allow(dead_code, unreachable_pub, reason = "each bench uses a part of what they share")]
#[path = "../perf/src/lib.rs"]
mod perf;

use std::hint::black_box;
use std::pin::pin;
use std::task::Poll;

use criterion::{Criterion, criterion_group, criterion_main};
use latent_capabilities::broker::Cost;
use latent_capabilities::broker::pools::Exchange;
use perf::{CHUNK, Node, SEND, must, plan, poll, until_later};

fn admission(criterion: &mut Criterion) {
    let node = Node::warm();
    criterion.bench_function("admit_now, start, release", |bencher| bencher.iter(|| drop(node.call())));
    criterion.bench_function("admit, wait, start, release", |bencher| {
        bencher.iter(|| match poll(pin!(must(node.pools.admit(&node.fast.client, &node.session)).wait())) {
            Poll::Ready(ready) => drop(must(must(ready).dispatch(SEND, Cost::new()))),
            Poll::Pending => panic!("nobody waits in front"),
        });
    });
    let plan = plan(&node.broker, "first", &node.fast);
    criterion.bench_function("session: open, close", |bencher| {
        bencher.iter(|| must(node.broker.open(&plan, until_later())).close());
    });
    criterion.bench_function("snapshot of all three", |bencher| {
        bencher.iter(|| black_box((node.broker.snapshot(), node.io.snapshot(), node.pools.snapshot())));
    });
}

fn queue(criterion: &mut Criterion) {
    let node = Node::new(1);
    let mut running = Some(node.call());
    criterion.bench_function("queued: admit, wait, granted by a release, start", |bencher| {
        bencher.iter(|| {
            let mut wait = pin!(must(node.pools.admit(&node.fast.client, &node.session)).wait());
            assert!(poll(wait.as_mut()).is_pending(), "the provider's running unit is taken");
            drop(running.take());
            match poll(wait) {
                Poll::Ready(ready) => running = Some(must(must(ready).dispatch(SEND, Cost::new()))),
                Poll::Pending => panic!("the release granted nobody"),
            }
        });
    });
}

fn connections(criterion: &mut Criterion) {
    let node = Node::warm();
    let call = node.call();
    criterion.bench_function("connection: checkout, park", |bencher| {
        bencher.iter(|| match must(node.fast.client.checkout(&call)) {
            Some(idle) => must(idle.park(Exchange::complete())),
            None => panic!("one is idle"),
        });
    });
}

fn bytes(criterion: &mut Criterion) {
    let node = Node::warm();
    let call = node.call();
    criterion.bench_function("buffer: take, release, untouched", |bencher| {
        bencher.iter(|| drop(black_box(must(call.io().buffer(CHUNK, 0)))));
    });
    criterion.bench_function("stream: call, open, one chunk through, close", |bencher| {
        bencher.iter(|| {
            // A call of its own, so that no total of a call is ever reached.
            let call = node.call();
            let (mut writer, mut reader) = must(call.io().stream(8));
            let mut chunk = must(call.io().buffer(CHUNK, 0));
            must(chunk.spare_mut(1))[0] = 7;
            must(chunk.advance_written(1));
            must(writer.try_write(chunk));
            match reader.try_read() {
                Poll::Ready(read) => drop(black_box(must(read))),
                Poll::Pending => panic!("what was written can be read"),
            }
        });
    });
}

criterion_group!(benches, admission, queue, connections, bytes);
criterion_main!(benches);
