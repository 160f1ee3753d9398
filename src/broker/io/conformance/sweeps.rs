//! Sweeps: the same scenario, dropped at its k-th poll, and with its n-th reservation refused. After each, the node holds
//! nothing (io.3, io.9, io.21, io.69, io.70).
use std::pin::Pin;

use super::poll::{cancel_at, sweep_cancels};
use super::support::*;

type Scenario =
    for<'a> fn(&'a Node, &'a CapabilitySession) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// Everything a buffered call does: stage, wait, start, retain, stream, read.
fn buffered<'a>(
    node: &'a Node,
    session: &'a CapabilitySession,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>> {
    Box::pin(async move {
        let admission = node.io.admit(session)?;
        let mut input = admission.input(100, 16)?;
        fill(&mut input, b"input");
        let memory = admission.reserve_input(600, 8)?;
        tokio::task::yield_now().await;
        let call = admission.wait().await?.start(session.dispatch(TEST.operation(0), Cost::new())?)?;
        drop(memory);
        let (mut writer, mut reader) = call.stream(1)?;
        writer.write(input).await?;
        call.wait_for(tokio::task::yield_now()).await?;
        let mut rest = call.buffer(512, 4)?;
        fill(&mut rest, b"rest");
        let (written, read) = tokio::join!(writer.write(rest), async {
            tokio::task::yield_now().await;
            reader.read().await
        });
        written?;
        let first = read?.expect("two chunks");
        tokio::task::yield_now().await;
        let second = reader.read().await?.expect("two chunks");
        assert_eq!((first.bytes(), second.bytes()), (&b"input"[..], &b"rest"[..]));
        writer.finish(Terminal::Eof);
        assert!(reader.read().await?.is_none());
        Ok(())
    })
}

/// Everything a streaming call does: a window of one, both ways.
fn streaming<'a>(
    node: &'a Node,
    session: &'a CapabilitySession,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>> {
    Box::pin(async move {
        let ready = node.io.admit(session)?.wait().await?;
        let budget = StreamBudget::new(64, 64)?;
        let call = ready.start(session.dispatch(TEST.operation(0), Cost::new().stream(budget))?)?;
        let transfer = call.transfer(TransferOptions { chunk_bytes: 512, outstanding: 1 })?;
        for round in 0..3_u8 {
            transfer.input_ready().await?;
            let sent = transfer.input(&[round])?;
            transfer.output_ready().await?;
            let mut buffer = transfer.output_buffer(8)?;
            call.wait_for(tokio::task::yield_now()).await?;
            buffer.spare_mut(1)?.fill(round);
            buffer.advance_written(1)?;
            let chunk = buffer.finish()?;
            let (ready, ()) = tokio::join!(transfer.output_ready(), async {
                tokio::task::yield_now().await;
                drop(chunk);
            });
            ready?;
            drop(sent);
        }
        Ok(())
    })
}

/// A job and its waiter.
fn job<'a>(
    node: &'a Node,
    session: &'a CapabilitySession,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>> {
    Box::pin(async move {
        let call = node.io.admit_now(session)?.start(session.dispatch(TEST.operation(0), Cost::new())?)?;
        let waiter = call.job_waiter();
        let answer = waiter.wait(async move {
            let scratch = call.reserve_scratch(512, 0)?;
            tokio::task::yield_now().await;
            call.checkpoint()?;
            Ok::<u64, Error>(scratch.charged_bytes())
        });
        assert_eq!(answer.await??, BLOCK);
        Ok(())
    })
}

const SCENARIOS: [(&str, Scenario); 3] = [("buffered", buffered), ("streaming", streaming), ("job", job)];

#[tokio::test(start_paused = true)]
async fn a_drop_at_any_poll_leaves_nothing() {
    for (name, scenario) in SCENARIOS {
        let node = Node::new();
        let mut k = 0;
        loop {
            let session = node.session();
            let finished = cancel_at(k, scenario(&node, &session)).await;
            drop(session);
            node.assert_zero();
            match finished {
                None => k += 1,
                Some(result) => {
                    result.unwrap_or_else(|error| panic!("{name} is not refused here: {error}"));
                    break;
                }
            }
            assert!(k < 200, "{name} never ends");
        }
        assert!(k >= 2, "{name} was dropped at {k} polls only");
    }
}

/// While another call holds the only running slot, so that the wait is a real one.
#[tokio::test(start_paused = true)]
async fn a_drop_at_any_poll_in_line_leaves_nothing() {
    let node = Node::with(IoLimits { running: 1, ..small() });
    let session = node.session();
    let dropped = sweep_cancels(20, |k| {
        let running = node.call(&session);
        let mut freed = false;
        let admission = node.io.admit(&session).expect("there is room");
        let mut running = Some(running);
        let polled = super::poll::poll_times(k, admission.wait(), |done| {
            if done == 3 {
                running = None;
                freed = true;
            }
        });
        drop(running);
        let granted = matches!(polled, std::task::Poll::Ready(Ok(_)));
        drop(polled);
        node.assert_zero();
        assert!(granted == (freed && k >= 4));
        granted
    });
    assert_eq!(dropped, 4);
}

/// The limits with which the n-th unit of `dimension` is the last one.
fn scarce(dimension: Dimension, n: u64) -> IoLimits {
    let unit = match dimension {
        Dimension::IoBuffers | Dimension::IoStreams => 1,
        Dimension::IoStreamBytes => 4,
        _ => BLOCK,
    };
    let mut limits = IoLimits { chunk_bytes: 1024, ..IoLimits::default() };
    limits.set(dimension, n * unit).expect("one of these limits");
    limits.chunk_bytes =
        limits.chunk_bytes.min(limits.staged_bytes).min(limits.result_bytes).min(limits.bytes_per_tenant());
    limits
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_any_reservation_leaves_nothing() {
    let expected = [
        // Refusals of each scenario before it has enough.
        (Dimension::IoBuffers, [1, 2, 0]),
        (Dimension::IoStagedBytes, [2, 1, 0]),
        (Dimension::IoResultBytes, [1, 0, 0]),
        (Dimension::IoStreams, [0, 0, 0]),
        (Dimension::IoChunkBytes, [1, 0, 0]),
        (Dimension::IoStreamBytes, [2, 15, 0]),
        (Dimension::IoTenantBytes, [2, 2, 0]),
    ];
    for (dimension, expected) in expected {
        let mut refusals = [0; 3];
        for (at, (name, scenario)) in SCENARIOS.iter().enumerate() {
            for n in 1.. {
                assert!(n < 30, "{name} needs more of {} than expected", dimension.name());
                let node = Node::with(scarce(dimension, n));
                let session = node.session();
                let result = scenario(&node, &session).await;
                drop(session);
                node.assert_zero();
                let Err(error) = result else { break };
                assert!(error.dimension().is_some(), "{name}, {n} of {}: {error}", dimension.name());
                refusals[at] += 1;
            }
        }
        assert_eq!(refusals, expected, "{}", dimension.name());
    }
}
