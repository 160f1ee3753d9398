//! Streams: io.56 to io.70.
use std::pin::pin;
use std::task::Poll;

use super::poll::{WakeCount, poll_once, poll_with};
use super::support::*;

fn next(reader: &mut IoStreamReader) -> Option<IoBuffer> {
    match reader.try_read() {
        Poll::Ready(Ok(chunk)) => chunk,
        other => panic!("a chunk or the end was expected, not {other:?}"),
    }
}

fn ended(reader: &mut IoStreamReader) -> Terminal {
    match reader.try_read() {
        Poll::Ready(Err(error)) => match error.kind() {
            Kind::Ended(terminal) => terminal,
            other => panic!("an end was expected, not {other:?}"),
        },
        other => panic!("an end was expected, not {other:?}"),
    }
}

/// io.68, io.37, io.74: a delivered chunk keeps bytes, stream, operation, running slot and session, after reader, call and
/// session are gone, however much of it is consumed.
#[tokio::test(start_paused = true)]
async fn a_delivered_chunk_keeps_everything_it_stands_on_1() {
    let node = Node::new();
    let session = node.session();
    let observer = session.observer();
    let call = node.call(&session);
    let handle = call.stop_handle();
    let (mut writer, mut reader) = call.stream(2).expect("there is room");
    writer.write(filled(&call, b"abc")).await.expect("room in the ring");
    writer.finish(Terminal::Eof);
    let mut chunk = next(&mut reader).expect("one chunk");
    chunk.consume(2).expect("three are there");
    reader.close();
    drop((call, session));

    let now = node.io.snapshot();
    assert_eq!((now.result_bytes, now.buffers, now.streams, now.owners, now.running), (BLOCK, 1, 1, 1, 1));
    assert_eq!(handle.phase(), Phase::Cleaning);
    assert_eq!(observer.live_calls(), 1);
    assert_eq!(chunk.bytes(), b"c");

    drop(chunk);
    assert_eq!(handle.phase(), Phase::Retired);
    assert!(observer.is_quiescent());
    node.assert_zero();
}

/// io.57: a full ring suspends the writer with its chunk, in order, without a task of its own.
#[tokio::test(start_paused = true)]
async fn a_ring_of_one_suspends_the_second_write_2() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(1).expect("there is room");
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    writer.write(filled(&call, b"first")).await.expect("room for one");

    let (woken, waker) = WakeCount::new();
    {
        let mut second = pin!(writer.write(filled(&call, b"second")));
        assert!(poll_with(second.as_mut(), &waker).is_pending());
        assert_eq!(node.io.snapshot().result_bytes, 2 * BLOCK, "the chunk that waits is charged too");
        assert_eq!(woken.wakes(), 0);
        assert_eq!(next(&mut reader).expect("one").bytes(), b"first");
        assert_eq!(woken.wakes(), 1, "the first free place wakes the writer");
        assert!(poll_with(second.as_mut(), &waker).is_ready());
    }
    assert_eq!(next(&mut reader).expect("another").bytes(), b"second");
    assert_eq!(writer.accepted(), 11);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks);

    drop((writer, reader, call, session));
    node.assert_zero();
}

/// io.58: a buffer of another operation, an empty one and one that was delivered are refused, and end nothing.
#[tokio::test(start_paused = true)]
async fn foreign_empty_and_delivered_chunks_are_refused_7() {
    let node = Node::new();
    let session = node.session();
    let (call, other) = (node.call(&session), node.call(&session));
    let (mut writer, mut reader) = call.stream(4).expect("there is room");

    assert_eq!(refused(writer.write(filled(&other, b"x")).await), Kind::Denied(Denied::ForeignBuffer));
    let empty = call.buffer(8, 0).expect("there is room");
    assert_eq!(refused(writer.write(empty).await), Kind::Invalid(Invalid::EmptyChunk));
    let mut consumed = filled(&call, b"x");
    consumed.consume(1).expect("one is there");
    assert_eq!(refused(writer.write(consumed).await), Kind::Invalid(Invalid::EmptyChunk));
    writer.write(filled(&call, b"good")).await.expect("room in the ring");
    let delivered = next(&mut reader).expect("one chunk");
    assert_eq!(refused(writer.write(delivered).await), Kind::Denied(Denied::Delivered));
    assert_eq!(writer.finish(Terminal::Eof), Terminal::Eof, "nothing of the stream was lost");
    assert!(next(&mut reader).is_none());

    drop((reader, call, other, session));
    node.assert_zero();
}

/// io.56: a stream has room for one chunk at least, and for no more than the limit says.
#[tokio::test(start_paused = true)]
async fn a_depth_of_zero_or_above_the_limit_is_refused() {
    let node = Node::with(IoLimits { stream_chunks: 4, ..small() });
    let session = node.session();
    let call = node.call(&session);
    assert_eq!(refused(call.stream(0)), Kind::Invalid(Invalid::Depth));
    assert_eq!(refused(call.stream(5)), Kind::Invalid(Invalid::Depth));
    drop((call.stream(1).expect("one"), call.stream(4).expect("as many as the limit says")));
    drop((call, session));
    node.assert_zero();
}

/// io.58, io.59, io.62: bytes beyond the stream's total end it as too large, after what was queued; what was read and
/// consumed counts.
#[tokio::test(start_paused = true)]
async fn a_total_that_is_passed_ends_the_stream_as_too_large_7() {
    let node = Node::with(IoLimits { stream_bytes: 6, ..small() });
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(4).expect("there is room");
    writer.write(filled(&call, b"1234")).await.expect("four of six");
    let mut chunk = next(&mut reader).expect("one chunk");
    chunk.consume(4).expect("four are there");
    drop(chunk);
    writer.write(filled(&call, b"56")).await.expect("six of six");
    assert_eq!(refused(writer.write(filled(&call, b"7")).await), Kind::TooLarge(Dimension::IoStreamBytes));
    assert_eq!(refused(writer.write(filled(&call, b"8")).await), Kind::TooLarge(Dimension::IoStreamBytes));
    assert_eq!(writer.finish(Terminal::Eof), Terminal::TooLarge, "the first end stays");

    assert_eq!(reader.terminal(), Some(Terminal::TooLarge));
    assert_eq!(next(&mut reader).expect("what was queued comes first").bytes(), b"56");
    assert_eq!([ended(&mut reader), ended(&mut reader)], [Terminal::TooLarge; 2]);

    drop((reader, call, session));
    node.assert_zero();
}

/// io.72, io.49: the call's output ceiling bounds its streams too.
#[tokio::test(start_paused = true)]
async fn the_output_ceiling_ends_a_stream_as_too_large_7() {
    let node = Node::new();
    let session = node.session();
    let call = node.call_with(&session, Cost::new().maximum_output(3)).expect("there is room");
    let (mut writer, mut reader) = call.stream(4).expect("there is room");
    writer.write(filled(&call, b"12")).await.expect("two of three");
    let refusal = refused(writer.write(filled(&call, b"34")).await);
    assert_eq!(refusal, Kind::TooLarge(Dimension::BrokerOutputBytes));
    drop(writer);
    assert_eq!(next(&mut reader).expect("what was queued").bytes(), b"12");
    assert_eq!(ended(&mut reader), Terminal::TooLarge);
    drop((reader, call, session));
    node.assert_zero();
}

/// io.61: the end of a complete stream can be read again and again. io.62, io.63: other ends are sticky errors and can be
/// looked at.
#[tokio::test(start_paused = true)]
async fn every_end_drains_the_queue_and_stays() {
    let node = Node::new();
    let session = node.session();
    for terminal in Terminal::ALL {
        let call = node.call(&session);
        let (mut writer, mut reader) = call.stream(2).expect("there is room");
        assert_eq!(reader.terminal(), None);
        writer.write(filled(&call, b"x")).await.expect("room in the ring");
        assert_eq!(writer.finish(*terminal), *terminal);
        assert_eq!(reader.terminal(), Some(*terminal));
        assert_eq!(next(&mut reader).expect("queued before the end").bytes(), b"x");
        for _ in 0..3 {
            match terminal {
                Terminal::Eof => assert!(next(&mut reader).is_none()),
                other => assert_eq!(ended(&mut reader), *other),
            }
        }
        // The operation's stop comes after the stream's end and does not change it.
        call.stop_handle().stop();
        match terminal {
            Terminal::Eof => assert!(next(&mut reader).is_none()),
            other => assert_eq!(ended(&mut reader), *other),
        }
    }
    drop(session);
    node.assert_zero();
}

/// io.64: a writer that is dropped leaves an uncertain end.
#[tokio::test(start_paused = true)]
async fn a_dropped_writer_leaves_uncertainty_7() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(2).expect("there is room");
    writer.write(filled(&call, b"x")).await.expect("room in the ring");
    let (woken, waker) = WakeCount::new();
    assert_eq!(next(&mut reader).expect("one").bytes(), b"x");
    {
        let mut read = pin!(reader.read());
        assert!(poll_with(read.as_mut(), &waker).is_pending());
        drop(writer);
        assert_eq!(woken.wakes(), 1);
        match poll_once(read.as_mut()) {
            Poll::Ready(Err(error)) => {
                assert_eq!(error.kind(), Kind::Ended(Terminal::Uncertain));
                assert_eq!(error.effect(), crate::broker::error::Effect::Uncertain);
            }
            other => panic!("an uncertain end was expected, not {other:?}"),
        }
    }
    drop((reader, call, session));
    node.assert_zero();
}

/// io.67: closing the reader destroys what is queued, wakes the writer, and fails its writes.
/// Case S52.
#[tokio::test(start_paused = true)]
async fn a_closed_reader_fails_the_writer_7() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, reader) = call.stream(1).expect("there is room");
    writer.write(filled(&call, b"queued")).await.expect("room for one");
    let (woken, waker) = WakeCount::new();
    {
        let mut blocked = pin!(writer.write(filled(&call, b"blocked")));
        assert!(poll_with(blocked.as_mut(), &waker).is_pending());
        reader.close();
        assert_eq!(woken.wakes(), 1);
        assert_eq!(
            node.io.snapshot().buffers,
            1,
            "what was queued is destroyed; the blocked chunk is the writer's"
        );
        match poll_once(blocked.as_mut()) {
            Poll::Ready(result) => assert_eq!(refused(result), Kind::Ended(Terminal::Closed)),
            Poll::Pending => panic!("a closed reader must fail the writer"),
        }
        assert_eq!(node.io.snapshot().buffers, 0);
    }
    assert_eq!(refused(writer.write(filled(&call, b"later")).await), Kind::Ended(Terminal::Closed));
    assert_eq!(writer.terminal(), Some(Terminal::Closed));
    assert_eq!(writer.finish(Terminal::Eof), Terminal::Closed, "the first end stays");
    drop((call, session));
    node.assert_zero();
}

/// io.66, io.68: a stop wakes a blocked writer and ends delivery at once; the queued chunk is destroyed, the delivered one
/// stays.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_delivery_at_once_8() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(1).expect("there is room");
    writer.write(filled(&call, b"delivered")).await.expect("room for one");
    let delivered = next(&mut reader).expect("one");
    writer.write(filled(&call, b"queued")).await.expect("room for one");
    let (woken, waker) = WakeCount::new();
    {
        let mut blocked = pin!(writer.write(filled(&call, b"blocked")));
        assert!(poll_with(blocked.as_mut(), &waker).is_pending());
        call.stop_handle().stop();
        assert!(woken.wakes() >= 1);
        match poll_once(blocked.as_mut()) {
            Poll::Ready(result) => assert_eq!(refused(result), Kind::Ended(Terminal::Cancelled)),
            Poll::Pending => panic!("a stop must end the write"),
        }
    }
    assert_eq!([ended(&mut reader), ended(&mut reader)], [Terminal::Cancelled; 2]);
    let now = node.io.snapshot();
    assert_eq!(
        (now.buffers, now.result_bytes, now.streams),
        (1, BLOCK, 1),
        "only the delivered chunk is left"
    );
    assert_eq!(delivered.bytes(), b"delivered");
    drop((writer, reader, call, session, delivered));
    node.assert_zero();
}

/// io.66: a blocked reader is woken by a stop, by the session's stop and by the deadline.
#[tokio::test(start_paused = true)]
async fn a_blocked_reader_is_woken_by_stop_session_and_deadline_8() {
    let node = Node::new();
    for how in 0..3 {
        let session = node.session_until(in_ms(500));
        let call = node.call(&session);
        let (writer, mut reader) = call.stream(1).expect("there is room");
        let (woken, waker) = WakeCount::new();
        {
            let mut read = pin!(reader.read());
            assert!(poll_with(read.as_mut(), &waker).is_pending());
            match how {
                0 => call.stop_handle().stop(),
                1 => session.stop(),
                _ => tokio::time::sleep(std::time::Duration::from_millis(501)).await,
            }
            assert!(woken.wakes() >= 1, "way {how} did not wake the reader");
            let expected = if how == 2 { Terminal::DeadlineExceeded } else { Terminal::Cancelled };
            match poll_once(read.as_mut()) {
                Poll::Ready(result) => assert_eq!(refused(result), Kind::Ended(expected)),
                Poll::Pending => panic!("way {how} must end the read"),
            }
        }
        drop((writer, reader, call, session));
        node.assert_zero();
    }
}

/// io.57, io.54: a write that was dropped destroys its chunk, and a stream with a hole is never complete.
#[tokio::test(start_paused = true)]
async fn a_dropped_write_leaves_a_hole_that_no_eof_covers() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(1).expect("there is room");
    writer.write(filled(&call, b"first")).await.expect("room for one");
    {
        let mut blocked = pin!(writer.write(filled(&call, b"lost")));
        assert!(poll_once(blocked.as_mut()).is_pending());
    }
    assert_eq!(node.io.snapshot().buffers, 1);
    assert_eq!(writer.finish(Terminal::Eof), Terminal::Uncertain);
    assert_eq!(next(&mut reader).expect("one").bytes(), b"first");
    assert_eq!(ended(&mut reader), Terminal::Uncertain);
    drop((reader, call, session));
    node.assert_zero();
}

/// A full ring gives a chunk of `try_write` back, retained, to be written again.
#[tokio::test(start_paused = true)]
async fn try_write_gives_the_chunk_back_when_the_ring_is_full() {
    let node = Node::new();
    let session = node.session();
    let call = node.call_with(&session, Cost::new().maximum_output(2)).expect("there is room");
    let (mut writer, mut reader) = call.stream(1).expect("there is room");
    writer.try_write(filled(&call, b"1")).expect("room for one");
    let second = filled(&call, b"2");
    assert!(!second.is_retained());
    let chunk = match writer.try_write(second) {
        Err(TryWrite::Full(chunk)) => chunk,
        other => panic!("the ring is full, not {other:?}"),
    };
    assert!(chunk.is_retained());
    drop(next(&mut reader));
    writer.try_write(chunk).expect("permission was spent once");
    assert_eq!(next(&mut reader).expect("one").bytes(), b"2");
    assert_eq!(writer.finish(Terminal::Eof), Terminal::Eof);
    assert!(next(&mut reader).is_none());
    drop((reader, call, session));
    node.assert_zero();
}

/// The forms for code that polls by hand wait and wake like the others.
#[tokio::test(start_paused = true)]
async fn polling_by_hand_waits_and_wakes() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (mut writer, mut reader) = call.stream(1).expect("there is room");
    let (woken, waker) = WakeCount::new();
    let mut cx = std::task::Context::from_waker(&waker);
    let (mut read_wait, mut write_wait) = (pin!(IoWait::new()), pin!(IoWait::new()));

    assert!(reader.poll_read(read_wait.as_mut(), &mut cx).is_pending());
    for round in 0..3_u8 {
        let mut pending = Some(filled(&call, &[round]));
        assert!(writer.poll_write(&mut pending, write_wait.as_mut(), &mut cx).is_ready());
        assert!(pending.is_none());
        let mut pending = Some(filled(&call, &[round, round]));
        assert!(writer.poll_write(&mut pending, write_wait.as_mut(), &mut cx).is_pending());
        assert!(pending.is_some());
        for expected in [&[round][..], &[round, round][..]] {
            match reader.poll_read(read_wait.as_mut(), &mut cx) {
                Poll::Ready(Ok(Some(chunk))) => assert_eq!(chunk.bytes(), expected),
                other => panic!("a chunk was expected, not {other:?}"),
            }
            assert!(writer.poll_write(&mut pending, write_wait.as_mut(), &mut cx).is_ready());
        }
    }
    assert!(reader.poll_read(read_wait.as_mut(), &mut cx).is_pending());
    let before = woken.wakes();
    call.stop_handle().stop();
    assert!(woken.wakes() > before, "a stop wakes who polls by hand");
    match reader.poll_read(read_wait.as_mut(), &mut cx) {
        Poll::Ready(result) => assert_eq!(refused(result), Kind::Ended(Terminal::Cancelled)),
        Poll::Pending => panic!("a stop must end the read"),
    }
    read_wait.as_mut().leave();
    write_wait.as_mut().leave();
    drop((writer, reader, call, session));
    node.assert_zero();
}

/// io.56: one writer and one reader on two threads, every chunk in order, nothing lost, nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_threads_pass_chunks_in_order() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    for depth in [1, 3, 8] {
        let (mut writer, mut reader) = call.stream(depth).expect("there is room");
        let read = tokio::spawn(async move {
            let mut expected = 0_u16;
            while let Some(chunk) = reader.read().await.expect("the stream is whole") {
                assert_eq!(chunk.bytes(), expected.to_le_bytes());
                expected += 1;
            }
            expected
        });
        for number in 0..2_000_u16 {
            writer.write(filled(&call, &number.to_le_bytes())).await.expect("the reader reads");
        }
        writer.finish(Terminal::Eof);
        assert_eq!(read.await.expect("the reader does not panic"), 2_000);
    }
    drop((call, session));
    node.assert_zero();
}

/// io.54, io.57: a writer of eight times the ring. Without a reader it suspends with one chunk besides and ends at the
/// deadline; with a late one it goes through; nobody else notices (S48).
#[tokio::test(start_paused = true)]
async fn s48_a_writer_ahead_of_its_reader_suspends_and_harms_nobody() {
    let node = Node::new();
    let (session, other) = (node.session_until(in_ms(1_000)), node.session());
    for late in [true, false] {
        let call = node.call(&session);
        let (mut writer, mut reader) = call.stream(2).expect("there is room");
        let writes = async {
            for number in 0..16_u8 {
                writer.write(filled(&call, &[number])).await?;
            }
            Ok::<Terminal, Error>(writer.finish(Terminal::Eof))
        };
        let reads = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let now = node.io.snapshot();
            assert_eq!((now.buffers, now.result_bytes), (3, 3 * BLOCK), "the ring, and the chunk that waits");
            drop(filled(&node.call(&other), b"goes on").retain().expect("there is room"));
            let mut numbers = Vec::new();
            while late && let Some(chunk) = reader.read().await.expect("the stream is whole") {
                numbers.extend_from_slice(chunk.bytes());
            }
            numbers
        };
        let (written, numbers) = tokio::join!(writes, reads);
        if late {
            assert_eq!(written.expect("it went through"), Terminal::Eof);
            assert_eq!(numbers, (0..16).collect::<Vec<_>>());
        } else {
            assert_eq!(refused(written), Kind::Ended(Terminal::DeadlineExceeded));
            assert_eq!(ended(&mut reader), Terminal::DeadlineExceeded);
        }
        drop((reader, call));
    }
    drop((session, other));
    node.assert_zero();
}
