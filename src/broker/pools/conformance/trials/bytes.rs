//! Bytes: staged, retained, streamed, transferred, consumed, and what is dropped on the way.
use super::super::support::*;
use super::run::{Cx, Ended};
use super::world::End;
use super::{refused, roomy, scenarios};
use crate::broker::io::{IoBuffer, IoCall, TransferOptions, TryWrite};
use crate::broker::{StreamBudget, Terminal};
use tokio::try_join;

scenarios! {
    roomy:
        staged_retained_streamed_and_read,
        a_ring_of_one_suspends_the_second_write,
        a_reader_waits_first,
        a_closed_reader_fails_the_writer,
        a_dropped_writer_leaves_uncertainty,
        a_delivered_chunk_keeps_everything,
        a_stop_ends_delivery,
        a_deadline_ends_a_read,
        foreign_empty_and_delivered_chunks,
        a_full_ring_gives_the_chunk_back,
        a_retained_result_outlives_its_call,
        staged_input_is_no_output_before_the_start,
        the_output_ceiling_ends_a_stream,
        memory_without_storage,
        a_window_of_one_both_ways,
        a_chunk_outlives_its_transfer,
        two_wait_for_one_place,
        a_second_transfer_is_refused,
        a_stop_ends_the_wait_for_a_place;
    few_bytes: a_total_that_is_passed_ends_the_stream;
    of_tenants: bytes_of_a_tenant;
}

fn few_bytes() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (IoLimits { stream_bytes: 4, ..io }, pools)
}

fn of_tenants() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (IoLimits { chunk_bytes: 1_024, tenant_bytes: 2_048, ..io }, pools)
}

fn filled(call: &IoCall, bytes: &[u8]) -> Result<IoBuffer, End> {
    let mut buffer = call.buffer(bytes.len(), 4)?;
    buffer.spare_mut(bytes.len())?.copy_from_slice(bytes);
    buffer.advance_written(bytes.len())?;
    Ok(buffer)
}

async fn staged_retained_streamed_and_read(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let mut input = admission.input(100, 16)?;
    input.spare_mut(5)?.copy_from_slice(b"input");
    input.advance_written(5)?;
    let memory = admission.reserve_input(600, 8)?;
    let call = cx.go(admission.wait()).await??.dispatch(SEND, Cost::new())?;
    drop(memory);
    let (mut writer, mut reader) = call.io().stream(1)?;
    cx.go(writer.write(input)).await??;
    let rest = filled(call.io(), b"rest")?;
    let (first, ()) = try_join!(
        async {
            cx.step_aside(1).await;
            Ok::<_, End>(cx.go(reader.read()).await??.expect("two chunks"))
        },
        async { Ok(cx.go(writer.write(rest)).await??) }
    )?;
    let second = cx.go(reader.read()).await??.expect("two chunks");
    assert_eq!((first.bytes(), second.bytes()), (&b"input"[..], &b"rest"[..]));
    assert_eq!(writer.finish(Terminal::Eof), Terminal::Eof);
    assert!(cx.go(reader.read()).await??.is_none());
    drop(first);
    Ok(())
}

async fn a_ring_of_one_suspends_the_second_write(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let (mut writer, mut reader) = call.io().stream(1)?;
    try_join!(
        async {
            for byte in [b"1", b"2", b"3"] {
                cx.go(writer.write(filled(call.io(), byte)?)).await??;
            }
            writer.finish(Terminal::Eof);
            Ok::<(), End>(())
        },
        async {
            while let Some(chunk) = cx.go(reader.read()).await?? {
                cx.step_aside(2).await;
                drop(chunk);
            }
            Ok(())
        }
    )?;
    Ok(())
}

async fn a_reader_waits_first(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let (mut writer, mut reader) = call.io().stream(2)?;
    let (read, ()) = try_join!(async { Ok::<_, End>(cx.go(reader.read()).await??) }, async {
        cx.step_aside(2).await;
        let buffer = filled(call.io(), b"x")?.retain()?;
        match writer.try_write(buffer) {
            Ok(()) => Ok(()),
            Err(TryWrite::Error(error)) => Err(error.into()),
            Err(TryWrite::Full(_)) => panic!("there is room for two"),
        }
    })?;
    assert_eq!(read.expect("a chunk").bytes(), b"x");
    let ((), ()) = try_join!(
        async {
            assert!(cx.go(reader.read()).await??.is_none());
            Ok::<(), End>(())
        },
        async {
            cx.step_aside(2).await;
            writer.finish(Terminal::Eof);
            Ok(())
        }
    )?;
    Ok(())
}

async fn a_closed_reader_fails_the_writer(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let (mut writer, reader) = call.io().stream(1)?;
    cx.go(writer.write(filled(call.io(), b"queued")?)).await??;
    let late = filled(call.io(), b"late")?;
    let ((), ()) = try_join!(
        async { refused(cx.go(writer.write(late)).await?, |kind| kind == Kind::Ended(Terminal::Closed)) },
        async {
            cx.step_aside(2).await;
            drop(reader);
            Ok(())
        }
    )?;
    assert_eq!(writer.finish(Terminal::Eof), Terminal::Closed);
    Ok(())
}

async fn a_dropped_writer_leaves_uncertainty(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let (mut writer, mut reader) = call.io().stream(2)?;
    cx.go(writer.write(filled(call.io(), b"one")?)).await??;
    drop(cx.go(reader.read()).await??);
    let ((), ()) = try_join!(
        async { refused(cx.go(reader.read()).await?, |kind| kind == Kind::Ended(Terminal::Uncertain)) },
        async {
            cx.step_aside(2).await;
            drop(writer);
            Ok(())
        }
    )?;
    Ok(())
}

async fn a_delivered_chunk_keeps_everything(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let (mut writer, mut reader) = call.io().stream(2)?;
    cx.go(writer.write(filled(call.io(), b"kept")?)).await??;
    let mut chunk = cx.go(reader.read()).await??.expect("a chunk");
    drop((writer, reader, call, session));
    cx.step_aside(2).await;
    chunk.consume(2)?;
    assert_eq!(chunk.bytes(), b"pt");
    Ok(())
}

async fn a_stop_ends_delivery(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let (mut writer, mut reader) = call.io().stream(1)?;
    cx.go(writer.write(filled(call.io(), b"1")?)).await??;
    let second = filled(call.io(), b"2")?;
    let ended = |kind| matches!(kind, Kind::Ended(Terminal::Cancelled));
    let ((), ()) = try_join!(async { refused(cx.go(writer.write(second)).await?, ended) }, async {
        cx.step_aside(2).await;
        call.io().stop_handle().stop();
        Ok(())
    })?;
    refused(cx.go(reader.read()).await?, ended)
}

async fn a_deadline_ends_a_read(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let ready = cx.node.pools.admit_now_until(&cx.client, &session, within(ms(10)))?;
    let call = ready.dispatch(SEND, Cost::new())?;
    let (writer, mut reader) = call.io().stream(1)?;
    refused(cx.go(reader.read()).await?, |kind| kind == Kind::Ended(Terminal::DeadlineExceeded))?;
    drop(writer);
    Ok(())
}

async fn foreign_empty_and_delivered_chunks(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let (call, other) = (cx.call(&session)?, cx.call(&session)?);
    let (mut writer, mut reader) = call.io().stream(2)?;
    let foreign = cx.go(writer.write(filled(other.io(), b"x")?)).await?;
    refused(foreign, |kind| kind == Kind::Denied(Denied::ForeignBuffer))?;
    let empty = cx.go(writer.write(call.io().buffer(8, 0)?)).await?;
    refused(empty, |kind| kind == Kind::Invalid(Invalid::EmptyChunk))?;
    cx.go(writer.write(filled(call.io(), b"x")?)).await??;
    let delivered = cx.go(reader.read()).await??.expect("a chunk");
    let again = cx.go(writer.write(delivered)).await?;
    refused(again, |kind| kind == Kind::Denied(Denied::Delivered))
}

async fn a_full_ring_gives_the_chunk_back(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let (mut writer, reader) = call.io().stream(1)?;
    cx.go(writer.write(filled(call.io(), b"1")?)).await??;
    let kept = match writer.try_write(filled(call.io(), b"2")?) {
        Err(TryWrite::Full(kept)) => kept,
        Err(TryWrite::Error(error)) => return Err(error.into()),
        Ok(()) => panic!("it is full"),
    };
    reader.close();
    cx.step_aside(1).await;
    drop(kept);
    Ok(())
}

async fn a_retained_result_outlives_its_call(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let input = admission.input(600, 3)?;
    let call = cx.go(admission.wait()).await??.dispatch(SEND, Cost::new().maximum_output(100))?;
    let output = filled(call.io(), b"result")?.retain()?;
    let stop = call.io().stop_handle();
    drop((call, session));
    stop.stop();
    cx.step_aside(2).await;
    assert_eq!(output.bytes(), b"result");
    drop(input);
    cx.step_aside(1).await;
    drop(output);
    Ok(())
}

async fn staged_input_is_no_output_before_the_start(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let input = admission.input(8, 0)?;
    refused(input.retain(), |kind| kind == Kind::Denied(Denied::NotStarted))?;
    let ready = cx.go(admission.wait()).await??;
    let mut input = ready.input(8, 0)?;
    input.spare_mut(1)?.fill(7);
    input.advance_written(1)?;
    let call = ready.dispatch(SEND, Cost::new())?;
    drop(input.retain()?);
    drop(call);
    Ok(())
}

async fn the_output_ceiling_ends_a_stream(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let ready = cx.go(cx.node.pools.admit(&cx.client, &session)?.wait()).await??;
    let call = ready.dispatch(SEND, Cost::new().maximum_output(3))?;
    let (mut writer, mut reader) = call.io().stream(2)?;
    cx.go(writer.write(filled(call.io(), b"12")?)).await??;
    let large = cx.go(writer.write(filled(call.io(), b"34")?)).await?;
    refused(large, |kind| kind == Kind::TooLarge(Dimension::BrokerOutputBytes))?;
    drop(cx.go(reader.read()).await??);
    refused(cx.go(reader.read()).await?, |kind| kind == Kind::Ended(Terminal::TooLarge))
}

async fn memory_without_storage(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let input = admission.reserve_input(1_000, 10)?;
    let call = cx.go(admission.wait()).await??.dispatch(SEND, Cost::new())?;
    let scratch = call.io().reserve_scratch(512, 0)?;
    let hold = call.io().hold();
    drop((input, call));
    cx.step_aside(1).await;
    drop(scratch);
    cx.step_aside(1).await;
    drop(hold);
    Ok(())
}

fn window(call: &IoCall) -> Result<crate::broker::io::IoTransfer, End> {
    Ok(call.transfer(TransferOptions { chunk_bytes: 512, outstanding: 1 })?)
}

async fn bulk(cx: &Cx, session: &CapabilitySession) -> Result<PoolCall, End> {
    let ready = cx.go(cx.node.pools.admit(&cx.client, session)?.wait()).await??;
    Ok(ready.dispatch(SEND, Cost::new().stream(StreamBudget::new(64, 64)?))?)
}

async fn a_window_of_one_both_ways(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = bulk(cx, &session).await?;
    let transfer = window(call.io())?;
    for round in 0..2_u8 {
        cx.go(transfer.input_ready()).await??;
        let sent = transfer.input(&[round])?;
        cx.go(transfer.output_ready()).await??;
        let mut buffer = transfer.output_buffer(8)?;
        cx.go(call.io().wait_for(cx.work(1))).await??;
        buffer.spare_mut(1)?.fill(round);
        buffer.advance_written(1)?;
        let chunk = buffer.finish()?;
        try_join!(async { Ok::<(), End>(cx.go(transfer.output_ready()).await??) }, async {
            cx.step_aside(1).await;
            drop(chunk);
            Ok(())
        })?;
        drop(sent);
    }
    Ok(())
}

async fn a_chunk_outlives_its_transfer(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = bulk(cx, &session).await?;
    let transfer = window(call.io())?;
    let sent = transfer.input(b"sent")?;
    let buffer = transfer.output_buffer(9)?;
    drop(transfer);
    refused(buffer.finish(), |kind| kind == Kind::Denied(Denied::TransferClosed))?;
    drop((call, session));
    cx.step_aside(1).await;
    assert_eq!(sent.bytes(), b"sent");
    Ok(())
}

async fn two_wait_for_one_place(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = bulk(cx, &session).await?;
    let transfer = window(call.io())?;
    let sent = transfer.input(b"x")?;
    refused(transfer.input(b"y"), |kind| matches!(kind, Kind::Full(_)))?;
    let wait = async || Ok::<(), End>(cx.go(transfer.input_ready()).await??);
    try_join!(wait(), wait(), async {
        cx.step_aside(2).await;
        drop(sent);
        Ok(())
    })?;
    Ok(())
}

async fn a_second_transfer_is_refused(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = bulk(cx, &session).await?;
    drop(window(call.io())?);
    let options = TransferOptions { chunk_bytes: 512, outstanding: 1 };
    refused(call.io().transfer(options), |kind| kind == Kind::Denied(Denied::SecondTransfer))
}

async fn a_stop_ends_the_wait_for_a_place(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = bulk(cx, &session).await?;
    let transfer = window(call.io())?;
    let sent = transfer.input(b"x")?;
    let ((), ()) = try_join!(
        async { refused(cx.go(transfer.input_ready()).await?, |kind| matches!(kind, Kind::Stopped(_))) },
        async {
            cx.step_aside(2).await;
            session.stop();
            Ok(())
        }
    )?;
    drop(transfer);
    cx.step_aside(1).await;
    drop(sent);
    Ok(())
}

async fn a_total_that_is_passed_ends_the_stream(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let (mut writer, mut reader) = call.io().stream(2)?;
    cx.go(writer.write(filled(call.io(), b"123")?)).await??;
    let large = cx.go(writer.write(filled(call.io(), b"45")?)).await?;
    refused(large, |kind| kind == Kind::TooLarge(Dimension::IoStreamBytes))?;
    drop(cx.go(reader.read()).await??);
    refused(cx.go(reader.read()).await?, |kind| kind == Kind::Ended(Terminal::TooLarge))
}

async fn bytes_of_a_tenant(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = bulk(cx, &session).await?;
    let transfer = window(call.io())?;
    let buffer = call.io().buffer(400, 2)?;
    refused(call.io().buffer(600, 0), |kind| matches!(kind, Kind::Full(_)))?;
    cx.step_aside(1).await;
    drop((transfer, buffer));
    drop(call.io().buffer(600, 0)?.retain()?);
    Ok(())
}
