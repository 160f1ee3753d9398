//! Instructions of each hot operation. Run by `perf/check.sh`; see there.
//!
//! Each bench gets a warm node, does one operation, and hands everything back, so that taking it down is not counted.
//! Under valgrind one thread runs: what is counted is the undisturbed path.
#![allow(missing_docs, reason = "the macros make public items")]

use std::future::{pending, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::Poll;

use iai_callgrind::{LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use latent_capabilities::broker::io::{IoTransfer, TransferOptions};
use latent_capabilities::broker::pools::{Exchange, PoolCall, PoolReady};
use latent_capabilities::broker::{Activation, Cost, Plan, StreamBudget};
use perf::{CHUNK, Node, Queue, SEND, Stream, fill, must, plan, poll, until_later};

fn with_plan() -> (Node, Plan, Activation) {
    let node = Node::warm();
    let plan = plan(&node.broker, "first", &node.fast);
    for _ in 0..3 {
        node.broker.open(&plan, until_later()).map(drop).unwrap();
    }
    (node, plan, until_later())
}

fn with_call() -> (PoolCall, Node) {
    let node = Node::warm();
    (node.call(), node)
}

fn with_call_that_keeps_a_block() -> (PoolCall, Node) {
    let (call, node) = with_call();
    for _ in 0..4 {
        drop(must(call.io().buffer(CHUNK, 0)));
    }
    (call, node)
}

fn with_call_that_keeps_64k() -> (PoolCall, Node) {
    let (call, node) = with_call();
    for _ in 0..4 {
        expose_64k(&call);
    }
    (call, node)
}

fn expose_64k(call: &PoolCall) {
    let mut buffer = must(call.io().buffer(64 << 10, 0));
    black_box(must(buffer.spare_mut(64 << 10)));
}

fn with_ready() -> (PoolReady, Node) {
    let node = Node::warm();
    (must(node.pools.admit_now(&node.fast.client, &node.session)), node)
}

fn with_transfer() -> (IoTransfer, PoolCall, Node) {
    let node = Node::warm();
    let ready = must(node.pools.admit_now(&node.fast.client, &node.session));
    let budget = must(StreamBudget::new(1 << 20, 1 << 20));
    let call = must(ready.dispatch(SEND, Cost::new().stream(budget)));
    let transfer = must(call.io().transfer(TransferOptions { chunk_bytes: CHUNK as u32, outstanding: 2 }));
    for _ in 0..3 {
        one_chunk(&transfer);
    }
    (transfer, call, node)
}

fn one_chunk(transfer: &IoTransfer) {
    let mut chunk = must(transfer.output_buffer(CHUNK));
    must(chunk.spare_mut(1))[0] = 7;
    must(chunk.advance_written(1));
    drop(must(chunk.finish()));
}

#[library_benchmark]
#[bench::one(setup = with_plan)]
fn session_open_close((node, plan, activation): (Node, Plan, Activation)) -> (Node, Plan) {
    must(node.broker.open(&plan, activation)).close();
    (node, plan)
}

#[library_benchmark]
#[bench::one(setup = Node::warm)]
#[bench::recalled(setup = Node::recalled)]
fn request_granted_at_once(node: Node) -> Node {
    let wait = pin!(must(node.pools.admit(&node.fast.client, &node.session)).wait());
    match poll(wait) {
        Poll::Ready(ready) => drop(must(must(ready).dispatch(SEND, Cost::new()))),
        Poll::Pending => panic!("nobody waits in front"),
    }
    node
}

#[library_benchmark]
#[bench::one(setup = Node::warm)]
#[bench::recalled(setup = Node::recalled)]
#[bench::after_others(setup = Node::after_others)]
fn request_admitted_now(node: Node) -> Node {
    drop(node.call());
    node
}

// The same, however many wait elsewhere. Nobody is lent credits then.
#[library_benchmark]
#[bench::of_1(args = (1), setup = Node::beside_waiters)]
#[bench::of_100(args = (100), setup = Node::beside_waiters)]
#[bench::of_1000(args = (1000), setup = Node::beside_waiters)]
fn request_admitted_beside_waiters(node: Node) -> Node {
    drop(node.call());
    node
}

#[library_benchmark]
#[bench::one(setup = with_ready)]
fn request_dispatched((ready, node): (PoolReady, Node)) -> (PoolCall, Node) {
    (must(ready.dispatch(SEND, Cost::new())), node)
}

#[library_benchmark]
#[bench::one(setup = Node::warm)]
fn epoch_check(node: Node) -> Node {
    assert!(node.fast.installed.is_current());
    node
}

#[library_benchmark]
#[bench::one(args = (1), setup = Queue::of_one_tenant)]
fn request_refused(queue: Queue) -> Queue {
    let refused = queue.node.pools.admit_now(&queue.node.fast.client, &queue.node.session);
    assert!(refused.is_err());
    queue
}

#[library_benchmark]
#[bench::one(args = (1), setup = Queue::of_one_tenant)]
fn request_queued_and_cancelled(queue: Queue) -> Queue {
    {
        let mut wait =
            pin!(must(queue.node.pools.admit(&queue.node.fast.client, &queue.node.session)).wait());
        assert!(poll(wait.as_mut()).is_pending());
    }
    queue
}

// The cost of a release that grants: the same, however many wait and however many tenants are blocked.
#[library_benchmark]
#[bench::behind_2_waiters(args = (2), setup = Queue::of_one_tenant)]
#[bench::behind_1000_waiters(args = (1000), setup = Queue::of_one_tenant)]
#[bench::beside_1_blocked_tenant(args = (1), setup = Queue::beside_blocked)]
#[bench::beside_1000_blocked_tenants(args = (1000), setup = Queue::beside_blocked)]
fn release_and_grant(mut queue: Queue) -> Queue {
    drop(queue.running.take());
    queue
}

// From the end of one request to the start of the one that waited for it: release, grant, wake, the last poll, dispatch.
#[library_benchmark]
#[bench::one(args = (2), setup = Queue::of_one_tenant)]
fn queued_handoff(mut queue: Queue) -> Queue {
    drop(queue.running.take());
    match poll(queue.waiting[0].as_mut()) {
        Poll::Ready(ready) => queue.running = Some(must(must(ready).dispatch(SEND, Cost::new()))),
        Poll::Pending => panic!("the release granted nobody"),
    }
    queue
}

#[library_benchmark]
#[bench::one(setup = with_call)]
fn wait_for_ready((call, node): (PoolCall, Node)) -> (PoolCall, Node) {
    let done = poll(pin!(call.io().wait_for(ready(7))));
    assert!(matches!(done, Poll::Ready(Ok(7))));
    (call, node)
}

#[library_benchmark]
#[bench::one(setup = with_call)]
fn wait_for_parked((call, node): (PoolCall, Node)) -> (PoolCall, Node) {
    assert!(poll(pin!(call.io().wait_for(pending::<()>()))).is_pending());
    (call, node)
}

#[library_benchmark]
#[bench::untouched(setup = with_call_that_keeps_a_block)]
#[bench::first_of_a_call(setup = with_call)]
fn buffer_take_drop((call, node): (PoolCall, Node)) -> (PoolCall, Node) {
    drop(must(call.io().buffer(CHUNK, 0)));
    (call, node)
}

// With the wipe of all that was exposed.
#[library_benchmark]
#[bench::exposed_64k(setup = with_call_that_keeps_64k)]
fn buffer_expose_drop((call, node): (PoolCall, Node)) -> (PoolCall, Node) {
    expose_64k(&call);
    (call, node)
}

#[library_benchmark]
#[bench::copy_4k(setup = with_call)]
fn buffer_fill_retain_consume((call, node): (PoolCall, Node)) -> (PoolCall, Node) {
    let mut buffer = must(call.io().buffer(CHUNK, 0));
    fill(&mut buffer);
    let mut buffer = must(buffer.retain());
    must(buffer.consume(CHUNK));
    drop(buffer);
    (call, node)
}

#[library_benchmark]
#[bench::one(setup = Stream::warm)]
fn stream_write_read(mut stream: Stream) -> Stream {
    stream.pass();
    stream
}

#[library_benchmark]
#[bench::one(setup = with_transfer)]
fn transfer_output_chunk(
    (transfer, call, node): (IoTransfer, PoolCall, Node),
) -> (IoTransfer, PoolCall, Node) {
    one_chunk(&transfer);
    (transfer, call, node)
}

#[library_benchmark]
#[bench::one(setup = with_call)]
fn connection_checkout_park((call, node): (PoolCall, Node)) -> (PoolCall, Node) {
    match must(node.fast.client.checkout(&call)) {
        Some(idle) => must(idle.park(Exchange::complete())),
        None => panic!("one is idle"),
    }
    (call, node)
}

#[library_benchmark]
#[bench::of_all_three(setup = Node::warm)]
fn snapshot(node: Node) -> Node {
    black_box((node.broker.snapshot(), node.io.snapshot(), node.pools.snapshot()));
    node
}

library_benchmark_group!(name = hot; benchmarks =
    session_open_close, request_granted_at_once, request_admitted_now, request_admitted_beside_waiters, request_dispatched,
    epoch_check, request_refused, request_queued_and_cancelled, release_and_grant, queued_handoff, wait_for_ready,
    wait_for_parked, buffer_take_drop, buffer_expose_drop, buffer_fill_retain_consume, stream_write_read,
    transfer_output_chunk, connection_checkout_park, snapshot);

main!(
    // The C library chooses its memcpy by the processor: the widest differences are ruled out.
    config = LibraryBenchmarkConfig::default()
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX2,-ERMS");
    library_benchmark_groups = hot
);
