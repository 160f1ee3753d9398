//! Foreign code that panics: wakers. Whatever they do, what is held is given back once, and no stream is silently short.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use super::poll::{poll_with, waker_fn, waker_that_panics_when_cloned};
use super::support::*;

fn angry() -> std::task::Waker {
    waker_fn(|| panic!("planted: this waker panics"))
}

/// A reader's waker that panics takes nothing with it: the chunk is in the ring, and counted.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_readers_waker_keeps_the_chunk() {
    let node = Node::with(IoLimits { stream_bytes: 4, ..small() });
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(2).expect("there is room");
    {
        let mut read = pin!(reader.read());
        assert!(poll_with(read.as_mut(), &angry()).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| writer.try_write(filled(&call, b"123")))).is_err());
        assert_eq!(writer.accepted(), 3);
    }
    let refusal = writer.try_write(filled(&call, b"45"));
    assert!(
        matches!(refusal, Err(TryWrite::Error(error)) if error.kind() == Kind::TooLarge(Dimension::IoStreamBytes))
    );
    match reader.try_read() {
        Poll::Ready(Ok(Some(chunk))) => assert_eq!(chunk.bytes(), b"123"),
        other => panic!("the chunk was expected, not {other:?}"),
    }
    drop((writer, reader, call, session));
    node.assert_zero();
}

/// A writer's waker that panics out of a read takes the chunk with it; the stream then ends, and is not silently short.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_writers_waker_ends_the_stream() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(1).expect("there is room");
    writer.try_write(filled(&call, b"first")).expect("room for one");
    {
        let mut second = pin!(writer.write(filled(&call, b"second")));
        assert!(poll_with(second.as_mut(), &angry()).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| reader.try_read())).is_err());
        assert!(poll_with(second.as_mut(), &angry()).is_ready());
    }
    writer.finish(Terminal::Eof);
    for _ in 0..2 {
        match reader.try_read() {
            Poll::Ready(Err(error)) => assert_eq!(error.kind(), Kind::Ended(Terminal::Uncertain)),
            other => panic!("an end was expected, not {other:?}"),
        }
    }
    drop((reader, call, session));
    node.assert_zero();
}

/// A waker that panics when a chunk frees its place, and one that panics when the stream is closed or stopped.
#[tokio::test(start_paused = true)]
async fn panics_of_wakers_leave_no_charge() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    let options = TransferOptions { chunk_bytes: 512, outstanding: 1 };
    let transfer = call.transfer(options).expect("a budget");
    let chunk = transfer.input(b"x").expect("free");
    {
        let mut ready = pin!(transfer.input_ready());
        assert!(poll_with(ready.as_mut(), &angry()).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(chunk))).is_err());
        assert!(poll_with(ready.as_mut(), &angry()).is_ready());
    }
    drop(transfer);

    let (mut writer, reader) = call.stream(1).expect("there is room");
    writer.try_write(filled(&call, b"queued")).expect("room for one");
    {
        let mut blocked = pin!(writer.write(filled(&call, b"blocked")));
        assert!(poll_with(blocked.as_mut(), &angry()).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(reader))).is_err());
    }
    let (writer_two, mut reader_two) = call.stream(1).expect("there is room");
    {
        let mut read = pin!(reader_two.read());
        assert!(poll_with(read.as_mut(), &angry()).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| call.stop_handle().stop())).is_err());
    }
    drop((writer, writer_two, reader_two, call, session));
    node.assert_zero();
}

/// A waker that panics when it is cloned parks nothing.
#[tokio::test(start_paused = true)]
async fn a_waker_that_cannot_be_cloned_parks_nothing() {
    let node = Node::new();
    let session = node.session();
    let call = node.bulk_call(&session, 64);
    let (writer, mut reader) = call.stream(1).expect("there is room");
    {
        let mut read = pin!(reader.read());
        let waker = waker_that_panics_when_cloned();
        assert!(catch_unwind(AssertUnwindSafe(|| poll_with(read.as_mut(), &waker))).is_err());
    }
    let options = TransferOptions { chunk_bytes: 512, outstanding: 1 };
    let transfer = call.transfer(options).expect("a budget");
    let chunk = transfer.input(b"x").expect("free");
    {
        let mut ready = pin!(transfer.input_ready());
        let waker = waker_that_panics_when_cloned();
        assert!(catch_unwind(AssertUnwindSafe(|| poll_with(ready.as_mut(), &waker))).is_err());
    }
    drop(chunk);
    transfer.input_ready().await.expect("free again");
    drop((transfer, writer, reader, call, session));
    node.assert_zero();
}
