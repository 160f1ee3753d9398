//! Buffers: io.44 to io.55.
use super::support::*;

/// io.47, io.48: the charge is the block, whatever is used of it. io.53: a full result side destroys the input. io.45: a
/// size above a chunk is refused, and so is metadata that does not fit, with nothing charged.
/// Case S25: what never fits is `TooLarge`, what does not fit now is `Full`.
#[tokio::test(start_paused = true)]
async fn charges_count_capacity_and_a_refused_retain_leaves_nothing_4() {
    let node = Node::with(IoLimits { chunk_bytes: 32, result_bytes: 512, ..IoLimits::default() });
    let session = node.session();
    let call = node.call(&session);

    assert_eq!(refused(call.buffer(33, 0)), Kind::TooLarge(Dimension::IoChunkBytes));
    assert_eq!(refused(call.buffer(0, 0)), Kind::Invalid(Invalid::EmptyChunk));
    let before = node.io.snapshot();
    assert_eq!(full(call.buffer(32, u32::MAX)), Dimension::IoMetadataBytes);
    assert_eq!(node.io.snapshot(), before, "a refusal charges nothing");

    let first = filled(&call, b"1").retain().expect("the result side has room for one");
    assert_eq!((node.io.snapshot().staged_bytes, node.io.snapshot().result_bytes), (0, BLOCK));
    assert_eq!((first.capacity(), first.charged_bytes()), (1, 512));
    let second = filled(&call, b"2");
    assert_eq!(node.io.snapshot().staged_bytes, BLOCK);
    assert_eq!(full(second.retain()), Dimension::IoResultBytes);
    assert_eq!(node.io.snapshot().staged_bytes, 0, "the refused input was destroyed");
    assert_eq!(node.io.snapshot().buffers, 1);

    drop((first, call, session));
    node.assert_zero();
}

/// io.45, io.46: only the unused part is handed out, only what fits is taken as written, and it cannot grow.
#[tokio::test(start_paused = true)]
async fn a_buffer_hands_out_its_unused_part_and_nothing_else() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let mut buffer = call.buffer(8, 0).expect("there is room");

    assert_eq!(buffer.spare_mut(usize::MAX).expect("it is staged").len(), 8, "no more than was asked for");
    fill(&mut buffer, b"abcde");
    assert_eq!(buffer.spare_mut(2).expect("it is staged").len(), 2);
    assert_eq!(refused(buffer.advance_written(4)), Kind::Invalid(Invalid::PastCapacity));
    assert_eq!(buffer.bytes(), b"abcde", "a refused step changes nothing");
    buffer.consume(2).expect("two are there");
    assert_eq!(buffer.as_ref(), b"cde");
    assert_eq!(refused(buffer.consume(4)), Kind::Invalid(Invalid::PastCapacity));
    assert_eq!((buffer.len(), buffer.capacity(), buffer.charged_bytes()), (3, 8, 512));

    let mut result = buffer.retain().expect("there is room");
    assert_eq!(refused(result.spare_mut(1).map(|_| ())), Kind::Invalid(Invalid::NotStaged));
    assert_eq!(refused(result.advance_written(1)), Kind::Invalid(Invalid::NotStaged));
    let result = result.retain().expect("it is a result already");
    assert_eq!((result.bytes(), node.io.snapshot().result_bytes), (&b"cde"[..], BLOCK));

    drop((result, call, session));
    node.assert_zero();
}

/// io.44: what was exposed is wiped before anybody else gets the block, written or not.
#[tokio::test(start_paused = true)]
async fn the_next_owner_of_a_block_finds_zeros() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    for round in 1..=8_u8 {
        let mut buffer = call.buffer(512, 0).expect("there is room");
        let spare = buffer.spare_mut(512).expect("it is staged");
        assert!(spare.iter().all(|&byte| byte == 0), "round {round} found what another left");
        spare.fill(round);
        buffer.advance_written(usize::from(round)).expect("it fits");
    }
    drop((call, session));
    node.assert_zero();
}

/// What a call keeps ready is in no snapshot and in nobody's way: not in that of its own other sizes, of other calls, of its
/// tenant, of its own end.
#[tokio::test(start_paused = true)]
async fn what_a_call_keeps_ready_is_in_nobodys_way() {
    // A chunk takes a block of 4 KiB, and the tenant has room for one.
    let limits = IoLimits { chunk_bytes: 4000, tenant_bytes: 4096, ..IoLimits::default() };
    let node = Node::with(limits);
    let session = node.session();
    let (first, second) = (node.call(&session), node.call(&session));
    let kept = |call: &IoCall| call.lease().has_spare() && !call.lease().is_spare_shut();
    let work = |call: &IoCall| {
        for round in 0..12 {
            let buffer = filled(call, &[round; 4000]);
            assert_eq!(node.io.snapshot().staged_bytes, 4096, "what is used is counted");
            drop(buffer);
        }
        for round in 0..12 {
            drop(filled(call, &[round; 4000]));
        }
    };

    work(&first);
    assert!(kept(&first), "a call that takes buffer after buffer keeps one ready");
    let mut again = first.buffer(4000, 0).expect("it is there");
    assert!(again.spare_mut(4000).expect("staged").iter().all(|&byte| byte == 0), "what is kept is clean");
    drop(again);
    drop(filled(&first, &[7; 4000]).retain().expect("there is room"));
    assert!(kept(&first), "a result is kept too, on the staged side");
    assert_eq!((node.io.snapshot().staged_bytes, node.io.snapshot().result_bytes), (0, 0));
    let large = first.buffer(4001, 0);
    assert_eq!(refused(large), Kind::TooLarge(Dimension::IoChunkBytes), "its block would be large enough");

    // Another call, another size, a window and foreign storage: each needs what is kept, and gets it.
    let buffer = second.buffer(4000, 0).expect("nobody uses what is kept");
    assert!(!kept(&first));
    assert_eq!(full(first.buffer(512, 0)), Dimension::IoTenantBytes);
    drop(buffer);
    work(&first);
    let smaller: Vec<_> = (0..8).map(|_| first.buffer(512, 0).expect("nobody uses what is kept")).collect();
    assert_eq!(full(first.buffer(512, 0)), Dimension::IoTenantBytes);
    drop(smaller);
    work(&first);
    drop(second.reserve_scratch(4000, 0).expect("nobody uses what is kept"));

    // It is in no snapshot, and goes with its call, whatever else of the call lives on.
    work(&first);
    assert!(kept(&first));
    assert_eq!((node.io.snapshot().staged_bytes, node.io.snapshot().buffers), (0, 0));
    work(&first);
    let late = first.buffer(512, 0).expect("nobody uses what is kept");
    drop(first);
    let buffer = second.buffer(2048, 0).expect("half is free");
    drop((late, buffer));
    drop((second, session));
    node.assert_zero();
}

/// However many calls keep one, nothing of it is counted.
#[tokio::test(start_paused = true)]
async fn what_many_calls_keep_ready_is_not_counted() {
    let node = Node::with(IoLimits { running: 70, ..small() });
    let sessions: Vec<_> = (0..10).map(|_| node.session()).collect();
    let calls: Vec<_> = (0..70).map(|number| node.call(&sessions[number % 10])).collect();
    for call in &calls {
        for _ in 0..4 {
            drop(filled(call, b"bytes"));
        }
        assert!(call.lease().has_spare());
    }
    let counted = node.io.snapshot();
    assert_eq!((counted.buffers, counted.staged_bytes), (0, 0));
    drop((calls, sessions));
    node.assert_zero();
}

/// io.49, io.50: the output total spans buffers and streams and is never refunded.
#[tokio::test(start_paused = true)]
async fn output_permission_is_cumulative_13() {
    let node = Node::new();
    let session = node.session();
    let call = node.call_with(&session, Cost::new().maximum_output(10)).expect("there is room");

    drop(filled(&call, b"1234").retain().expect("four of ten"));
    let (mut writer, reader) = call.stream(2).expect("there is room");
    writer.write(filled(&call, b"12345")).await.expect("nine of ten");
    drop((writer, reader));
    assert_eq!(refused(filled(&call, b"12").retain()), Kind::TooLarge(Dimension::BrokerOutputBytes));
    let last = filled(&call, b"1").retain().expect("ten of ten");
    assert_eq!(refused(filled(&call, b"1").retain()), Kind::TooLarge(Dimension::BrokerOutputBytes));
    assert_eq!(node.io.snapshot().buffers, 1, "what was refused is gone");

    drop((last, call, session));
    node.assert_zero();
}

/// io.51: what waits for its turn cannot become output; after the start it can.
#[tokio::test(start_paused = true)]
async fn staged_input_becomes_output_only_after_the_start_13() {
    let node = Node::new();
    let session = node.session();
    let admission = node.io.admit(&session).expect("there is room");
    let mut early = admission.input(4, 0).expect("there is room");
    fill(&mut early, b"soon");
    let mut late = admission.input(4, 0).expect("there is room");
    fill(&mut late, b"late");
    assert_eq!(refused(early.retain()), Kind::Denied(Denied::NotStarted));

    let ready = admission.wait().await.expect("nobody is in front");
    let call = ready
        .start(session.dispatch(TEST.operation(0), Cost::new()).expect("allowed"))
        .expect("its own call");
    let late = late.retain().expect("started");
    assert_eq!(late.bytes(), b"late");

    drop((late, call, session));
    node.assert_zero();
}

/// io.52: no moment, and no snapshot, shows a retained block on neither side or on both.
#[test]
fn retain_has_no_gap() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let held = filled(&call, b"x");
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let now = node.io.snapshot();
                let sum = now.staged_bytes + now.result_bytes;
                assert!(sum == now.buffers * BLOCK, "a gap: {now:?}");
            }
        });
        for _ in 0..500 {
            drop(filled(&call, b"y").retain().expect("there is room"));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(held);
    });
    drop((call, session));
    node.assert_zero();
}

/// io.55, io.77: declared framing is charged on top, and given back with its buffer.
#[tokio::test(start_paused = true)]
async fn framing_is_charged_as_declared() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let before = node.io.snapshot().metadata_bytes;
    let plain = call.buffer(1, 0).expect("there is room");
    let one = node.io.snapshot().metadata_bytes - before;
    let framed = call.buffer(1, 100).expect("there is room");
    let scratch = call.reserve_scratch(600, 11).expect("there is room");
    assert_eq!(node.io.snapshot().metadata_bytes, before + 3 * one + 111);
    assert_eq!((scratch.charged_bytes(), scratch.framing()), (1024, 11), "whole blocks");
    assert_eq!(node.io.snapshot().staged_bytes, 4 * BLOCK);
    drop((plain, framed, scratch));
    assert_eq!(node.io.snapshot().metadata_bytes, before);
    drop((call, session));
    node.assert_zero();
}

/// A tenant's own byte limit holds for both sides together, and names the tenant.
#[tokio::test(start_paused = true)]
async fn a_tenant_has_a_byte_limit_of_its_own() {
    let node = Node::with(IoLimits { tenant_bytes: 1024, chunk_bytes: 512, ..IoLimits::default() });
    let session = node.session();
    let call = node.call(&session);
    let first = filled(&call, b"1").retain().expect("one of two");
    let second = filled(&call, b"2");
    let error = call.buffer(1, 0).expect_err("two of two");
    assert_eq!(error.dimension(), Some(Dimension::IoTenantBytes));
    assert_eq!(error.scope().map(|scope| scope.kind()), Some("tenant"));
    drop(second);
    let third = call.buffer(1, 0).expect("one of two again");
    drop((first, third, call, session));
    node.assert_zero();
}

/// io.21, io.69: consuming and dropping work after a stop; writing does not.
#[tokio::test(start_paused = true)]
async fn a_stopped_operation_still_reads_what_it_has() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let mut buffer = filled(&call, b"abc");
    call.stop_handle().stop();
    assert_eq!(refused(buffer.spare_mut(1).map(|_| ())), Kind::Stopped(StopCause::Caller));
    buffer.consume(1).expect("reading needs no permission");
    assert_eq!(buffer.bytes(), b"bc");
    assert_eq!(refused(buffer.retain()), Kind::Stopped(StopCause::Caller));
    assert_eq!(refused(call.buffer(1, 0)), Kind::Stopped(StopCause::Caller));
    drop((call, session));
    node.assert_zero();
}

/// The owners of bytes can be handed to whatever takes an owner of bytes, such as `Bytes::from_owner`.
#[test]
fn owners_of_bytes_go_anywhere() {
    fn goes_anywhere<T: AsRef<[u8]> + Send + Sync + 'static>() {}
    goes_anywhere::<IoBuffer>();
    goes_anywhere::<IoTransferChunk>();
    assert_eq!((size_of::<IoBuffer>(), size_of::<IoTransferChunk>()), (16, 16));
}

/// io.45, io.54, io.55: whatever sizes somebody asks for, what is charged stays below the limits and what is refused
/// charges nothing (S49).
#[tokio::test(start_paused = true)]
async fn s49_no_size_that_is_asked_for_takes_more_than_the_limits() {
    let limits =
        IoLimits { staged_bytes: 64 * 512, metadata_bytes: 512 * 1024, buffers: 48, owners: 64, ..small() };
    let limits = IoLimits { running: 16, queued: 16, streams: 8, ..limits };
    let node = Node::with(limits);
    let session = node.session();
    let call = node.bulk_call(&session, 1 << 20);
    let transfer =
        call.transfer(TransferOptions { chunk_bytes: 4096, outstanding: 1 }).expect("the call has a budget");
    let edges = [0, 1, 511, 512, 513, 4095, 4096, 4097, u64::from(u32::MAX), u64::MAX / 2, u64::MAX];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut any = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let (mut held, mut granted, mut refusals) = (Vec::new(), 0, 0);
    for round in 0..20_000 {
        let size = if round % 3 == 0 { any(8192) } else { edges[any(edges.len() as u64) as usize] };
        let framing = if round % 5 == 0 { any(1 << 20) as u32 } else { (size as u32) >> (any(32) as u32) };
        let size = size as usize;
        let before = node.io.snapshot();
        match call.buffer(size, framing) {
            Ok(mut buffer) => {
                assert!((1..=4096).contains(&size));
                assert!(buffer.spare_mut(any(u64::MAX) as usize).expect("it is staged").len() <= size);
                let taken = any(8192) as usize;
                assert_eq!(buffer.advance_written(taken).is_ok(), taken <= size);
                let (taken, written) = (any(8192) as usize, buffer.len());
                assert_eq!(buffer.consume(taken).is_ok(), taken <= written);
                held.push(buffer);
                granted += 1;
            }
            Err(_) => {
                assert_eq!(node.io.snapshot(), before, "a refusal charges nothing");
                refusals += 1;
            }
        }
        if let Ok(buffer) = transfer.output_buffer(size) {
            assert!((1..=4096).contains(&size));
            drop(buffer);
        }
        let now = node.io.snapshot();
        assert!(
            now.staged_bytes <= 64 * 512 && now.buffers <= 48 && now.metadata_bytes <= 512 * 1024,
            "{now:?}"
        );
        if held.len() > any(40) as usize {
            drop(held.swap_remove(any(held.len() as u64) as usize));
        }
    }
    assert!(granted > 1_000 && refusals > 1_000, "{granted} granted, {refusals} refused");
    drop((held, transfer, call, session));
    node.assert_zero();
}
