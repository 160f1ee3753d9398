//! The bulk transfer: io.96 to io.102.
use std::pin::pin;
use std::task::{Context, Poll};

use super::poll::{WakeCount, poll_once, poll_with};
use super::support::*;

const ONE: TransferOptions = TransferOptions { chunk_bytes: 512, outstanding: 1 };

fn output(transfer: &IoTransfer, bytes: &[u8]) -> Result<IoTransferChunk, Error> {
    let mut buffer = transfer.output_buffer(bytes.len())?;
    buffer.spare_mut(bytes.len())?.copy_from_slice(bytes);
    buffer.advance_written(bytes.len())?;
    buffer.finish()
}

/// io.98, io.54: more than the window moves through a window of one; nothing is read while it is full; there is no second
/// transfer; what would pass the total changes nothing.
#[tokio::test(start_paused = true)]
async fn bytes_beyond_the_window_flow_through_it_16() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    let transfer = call.transfer(ONE).expect("the call has a budget");
    for round in 0..6_u8 {
        let chunk = output(&transfer, &[round; 10]).expect("the window is free");
        assert_eq!(full(transfer.output_buffer(1)), Dimension::IoStreamChunks);
        assert_eq!(chunk.bytes(), [round; 10]);
        let sent = transfer.input(&[round; 9]).expect("the window is free");
        assert_eq!(full(transfer.input(b"x")), Dimension::IoStreamChunks);
        assert_eq!((transfer.outstanding_input(), transfer.outstanding_output()), (1, 1));
        assert_eq!(sent.as_ref(), [round; 9]);
    }
    assert_eq!((transfer.accepted_input_bytes(), transfer.accepted_output_bytes()), (54, 60));
    let beyond = Kind::TooLarge(Dimension::BrokerStreamOutputBytes);
    assert_eq!(refused(output(&transfer, &[0; 5])), beyond);
    assert_eq!((transfer.accepted_output_bytes(), transfer.outstanding_output()), (60, 0));
    drop(output(&transfer, &[0; 4]).expect("exactly the rest"));

    assert_eq!(refused(call.transfer(ONE)), Kind::Denied(Denied::SecondTransfer));
    drop(transfer);
    assert_eq!(refused(call.transfer(ONE)), Kind::Denied(Denied::SecondTransfer));
    drop((call, session));
    node.assert_zero();
}

/// io.99, io.98: input is charged by the window, totals are not refunded, empty chunks are refused, exhausted or not.
#[tokio::test(start_paused = true)]
async fn input_totals_are_not_refunded_17() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 8);
    let transfer = call.transfer(ONE).expect("the call has a budget");
    assert_eq!(refused(transfer.input(b"")), Kind::Invalid(Invalid::EmptyChunk));
    assert_eq!(refused(transfer.input(&[0; 513])), Kind::TooLarge(Dimension::IoChunkBytes));
    assert_eq!(refused(transfer.input(&[0; 9])), Kind::TooLarge(Dimension::BrokerStreamInputBytes));
    assert_eq!(transfer.accepted_input_bytes(), 0);
    drop(transfer.input(&[1; 5]).expect("five of eight"));
    drop(transfer.input(&[1; 3]).expect("eight of eight"));
    assert_eq!(refused(transfer.input(b"x")), Kind::TooLarge(Dimension::BrokerStreamInputBytes));
    assert_eq!(refused(transfer.input(b"")), Kind::Invalid(Invalid::EmptyChunk));
    assert_eq!((transfer.accepted_input_bytes(), transfer.outstanding_input()), (8, 0));
    drop((transfer, call, session));
    node.assert_zero();
}

/// io.99, io.101: a chunk outlives transfer, call and session, with its residence and its lowering copy charged.
#[tokio::test(start_paused = true)]
async fn a_chunk_keeps_its_charges_after_the_transfer_18() {
    let node = Node::new();
    let session = node.session();
    let observer = session.observer();
    let call = node.bulk_call(&session, 64);
    let transfer = call.transfer(TransferOptions { chunk_bytes: 16, outstanding: 3 }).expect("a budget");
    let now = node.io.snapshot();
    assert_eq!(
        (now.staged_bytes, now.result_bytes, now.buffers),
        (6 * BLOCK, 3 * BLOCK, 9),
        "all places, in advance"
    );
    let chunk = output(&transfer, b"sixteen bytes ok").expect("the window is free");
    let sent = transfer.input(b"in").expect("the window is free");
    drop((transfer, call, session));

    let now = node.io.snapshot();
    assert_eq!((now.streams, now.result_bytes, now.staged_bytes, now.buffers), (1, BLOCK, 2 * BLOCK, 3));
    assert_eq!((now.owners, now.running), (1, 1));
    assert!(!observer.is_quiescent());
    assert_eq!((chunk.bytes(), sent.bytes()), (&b"sixteen bytes ok"[..], &b"in"[..]));
    drop(sent);
    let now = node.io.snapshot();
    assert_eq!((now.streams, now.result_bytes, now.staged_bytes), (1, BLOCK, BLOCK));
    drop(chunk);
    assert!(observer.is_quiescent());
    node.assert_zero();
}

/// io.96, io.100: no stream budget, no transfer; a budget above the node's stream limit is refused and takes no slot.
#[tokio::test(start_paused = true)]
async fn a_buffered_call_has_no_transfer_19() {
    let node = Node::with(IoLimits { stream_bytes: 32, ..small() });
    let session = node.session();
    let call = node.call(&session);
    assert_eq!(refused(call.transfer(ONE)), Kind::Denied(Denied::NoStreamBudget));
    let bulk = node.bulk_call(&session, 33);
    assert_eq!(refused(bulk.transfer(ONE)), Kind::TooLarge(Dimension::IoStreamBytes));
    assert_eq!(node.io.snapshot().streams, 0);
    drop((call, bulk, session));
    node.assert_zero();
}

/// io.97: policy and broker bound the stream budget at dispatch; nothing is left of a refused call.
#[tokio::test(start_paused = true)]
async fn policy_and_broker_bound_the_stream_budget_20() {
    let most = StreamBudget::new(10, 10).expect("within the ceilings");
    let broker =
        BrokerLimits { stream_input_bytes: 100, stream_output_bytes: 100, ..BrokerLimits::default() };
    let node = Node::made(small(), broker, Policy::new().stream(most));
    let session = node.session();
    let above = Cost::new().stream(StreamBudget::new(10, 11).expect("within the ceilings"));
    assert!(matches!(refused(node.call_with(&session, above)), Kind::TooLarge(_) | Kind::Denied(_)));
    let within = node.call_with(&session, Cost::new().stream(most)).expect("allowed");
    drop(within.transfer(ONE).expect("a budget"));
    drop((within, session));
    node.assert_zero();

    let node = Node::made(small(), broker, Policy::new());
    let session = node.session();
    let above = Cost::new().stream(StreamBudget::new(101, 1).expect("within the ceilings"));
    assert!(matches!(refused(node.call_with(&session, above)), Kind::TooLarge(_) | Kind::Denied(_)));
    drop(session);
    node.assert_zero();
}

/// io.100, io.102: bad options are refused; inline output and transfer output do not count against each other.
#[tokio::test(start_paused = true)]
async fn options_are_checked_and_ceilings_are_independent() {
    let node = Node::new();
    let session = node.session();
    let budget = StreamBudget::new(4, 4).expect("within the ceilings");
    let call = node.call_with(&session, Cost::new().maximum_output(2).stream(budget)).expect("allowed");
    let bad = |chunk_bytes, outstanding| refused(call.transfer(TransferOptions { chunk_bytes, outstanding }));
    assert_eq!(bad(0, 1), Kind::Invalid(Invalid::EmptyChunk));
    assert_eq!(bad(4097, 1), Kind::TooLarge(Dimension::IoChunkBytes));
    assert_eq!(bad(512, 0), Kind::Invalid(Invalid::Depth));
    assert_eq!(bad(512, 9), Kind::Invalid(Invalid::Depth));
    let transfer = call.transfer(ONE).expect("refusals issued nothing");
    drop(output(&transfer, b"1234").expect("four of four"));
    drop(filled(&call, b"12").retain().expect("two of two"));
    drop((transfer, call, session));
    node.assert_zero();
}

/// io.96: what a transfer is limited to is also what it may have.
#[tokio::test(start_paused = true)]
async fn a_transfer_may_be_as_large_as_the_limits() {
    let limits = IoLimits { stream_bytes: 64, ..small() };
    let node = Node::with(limits);
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    let options = TransferOptions { chunk_bytes: 4096, outstanding: limits.stream_chunks };
    drop((call.transfer(options).expect("all at their limits"), call));
    let call = node.bulk_call(&session, 65);
    assert_eq!(refused(call.transfer(ONE)), Kind::TooLarge(Dimension::IoStreamBytes));
    drop((call, session));
    node.assert_zero();
}

/// io.54, io.57: whoever waits for a place is woken by the chunk that frees it, in its own direction only.
#[tokio::test(start_paused = true)]
async fn readiness_waits_for_a_place_of_its_direction() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    let transfer = call.transfer(ONE).expect("a budget");
    transfer.input_ready().await.expect("free");
    transfer.output_ready().await.expect("free");
    let (chunk, sent) = (output(&transfer, b"out").expect("free"), transfer.input(b"in").expect("free"));
    let ((out, out_waker), (inp, in_waker)) = (WakeCount::new(), WakeCount::new());
    {
        let (mut output_ready, mut input_ready) =
            (pin!(transfer.output_ready()), pin!(transfer.input_ready()));
        assert!(poll_with(output_ready.as_mut(), &out_waker).is_pending());
        assert!(poll_with(input_ready.as_mut(), &in_waker).is_pending());
        drop(chunk);
        assert_eq!((out.wakes(), inp.wakes()), (1, 0));
        drop(sent);
        assert_eq!((out.wakes(), inp.wakes()), (1, 1));
        assert!(matches!(poll_once(output_ready.as_mut()), Poll::Ready(Ok(()))));
        assert!(matches!(poll_once(input_ready.as_mut()), Poll::Ready(Ok(()))));
    }
    assert_eq!((out.wakers(), inp.wakers()), (1, 1), "nothing of them is left behind");

    let held = output(&transfer, b"out").expect("free");
    let (mut first, mut second, mut third) = (
        Box::pin(transfer.output_ready()),
        Box::pin(transfer.output_ready()),
        Box::pin(transfer.output_ready()),
    );
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    assert!(matches!(poll_once(third.as_mut()), Poll::Ready(Err(_))), "two may wait");
    drop(first);
    assert!(
        poll_once(Box::pin(transfer.output_ready()).as_mut()).is_pending(),
        "a place to wait is free again"
    );
    call.stop_handle().stop();
    match poll_once(second.as_mut()) {
        Poll::Ready(result) => assert_eq!(refused(result), Kind::Stopped(StopCause::Caller)),
        Poll::Pending => panic!("a stop must end the wait"),
    }
    drop((second, third));
    drop((held, transfer, call, session));
    node.assert_zero();
}

/// The forms for code that polls by hand wait and wake like the others, and outlive the transfer.
#[tokio::test(start_paused = true)]
async fn readiness_can_be_polled_by_hand() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    let transfer = call.transfer(ONE).expect("a budget");
    let (woken, waker) = WakeCount::new();
    let mut cx = Context::from_waker(&waker);
    let mut wait = Box::pin(TransferWait::new());
    for round in 1..=3 {
        assert!(transfer.poll_output_ready(wait.as_mut(), &mut cx).is_ready());
        let chunk = output(&transfer, b"x").expect("free");
        assert!(transfer.poll_output_ready(wait.as_mut(), &mut cx).is_pending());
        assert_eq!(woken.wakes(), round - 1);
        drop(chunk);
        assert_eq!(woken.wakes(), round);
    }
    // The same wait, for the other direction.
    let sent = transfer.input(b"x").expect("free");
    assert!(transfer.poll_input_ready(wait.as_mut(), &mut cx).is_pending());
    drop(sent);
    assert_eq!(woken.wakes(), 4);
    drop((transfer, call, session));
    assert_eq!(node.io.snapshot().streams, 1, "a wait that is registered holds what it is registered with");
    drop(wait);
    node.assert_zero();
}

/// A wait that is dropped gives back all that it was registered with, however many there were: an operation has four cells.
#[tokio::test(start_paused = true)]
async fn waits_that_were_dropped_leave_their_cells_to_others() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    assert!(!crate::queue::keeper::Keeper::watches(call.lease()), "without pools there is none");
    let transfer = call.transfer(ONE).expect("a budget");
    let chunk = output(&transfer, b"x").expect("free");
    let (woken, waker) = WakeCount::new();
    let mut cx = Context::from_waker(&waker);
    for _ in 0..8 {
        let mut wait = Box::pin(TransferWait::new());
        assert!(transfer.poll_output_ready(wait.as_mut(), &mut cx).is_pending());
    }
    let mut wait = Box::pin(TransferWait::new());
    assert!(transfer.poll_output_ready(wait.as_mut(), &mut cx).is_pending());
    // Whoever found no cell would look for itself only after a while.
    call.stop_handle().stop();
    assert_eq!(woken.wakes(), 1);
    drop((wait, chunk, transfer, call, session));
    node.assert_zero();
}

/// A direction without a budget carries nothing and costs nothing.
#[tokio::test(start_paused = true)]
async fn a_direction_without_budget_costs_nothing() {
    let node = Node::new();
    let session = node.session();
    let budget = StreamBudget::new(0, 10).expect("one of them may be 0");
    let call = node.call_with(&session, Cost::new().stream(budget)).expect("allowed");
    let transfer = call.transfer(ONE).expect("a budget");
    assert_eq!((node.io.snapshot().staged_bytes, node.io.snapshot().result_bytes), (BLOCK, BLOCK));
    assert_eq!(refused(transfer.input(b"x")), Kind::Denied(Denied::NoStreamBudget));
    assert_eq!(refused(transfer.input_ready().await), Kind::Denied(Denied::NoStreamBudget));
    drop((transfer, call, session));
    node.assert_zero();
}

/// io.98: a buffer that is finished after its transfer is gone is not accepted; an empty one never is.
#[tokio::test(start_paused = true)]
async fn an_output_buffer_ends_with_its_transfer() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    let transfer = call.transfer(ONE).expect("a budget");
    assert_eq!(refused(transfer.output_buffer(0)), Kind::Invalid(Invalid::EmptyChunk));
    let empty = transfer.output_buffer(8).expect("free");
    assert_eq!(refused(empty.finish()), Kind::Invalid(Invalid::EmptyChunk));
    let mut late = transfer.output_buffer(8).expect("free");
    late.spare_mut(8).expect("the call goes on").fill(1);
    late.advance_written(3).expect("it fits");
    assert_eq!(refused(late.advance_written(6)), Kind::Invalid(Invalid::PastCapacity));
    assert_eq!((late.bytes(), late.capacity()), (&[1, 1, 1][..], 8));
    drop(transfer);
    assert_eq!(refused(late.finish()), Kind::Denied(Denied::TransferClosed));
    drop((call, session));
    node.assert_zero();
}

/// Many chunks are freed on another thread while this one fills and waits: no wake is lost, nothing is charged twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_between_two_threads_loses_no_wake() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 1 << 20);
    let transfer = call.transfer(TransferOptions { chunk_bytes: 512, outstanding: 2 }).expect("a budget");
    let (give, take) = std::sync::mpsc::channel::<IoTransferChunk>();
    let freer = std::thread::spawn(move || take.into_iter().map(|chunk| chunk.bytes().len()).sum::<usize>());
    for round in 0..3_000_usize {
        transfer.output_ready().await.expect("in time");
        let bytes = [0; 3];
        give.send(output(&transfer, &bytes[..1 + round % 3]).expect("the place is this task's"))
            .expect("it frees");
    }
    drop((give, transfer, call, session));
    assert_eq!(freer.join().expect("the freer does not panic"), 6_000);
    node.assert_zero();
}
