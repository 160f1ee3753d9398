//! Jobs: of calls, of the operator, of cleanup; awaited, left alone, refused, too late.
use super::super::support::*;
use super::run::{Cx, Ended};
use super::world::{End, Socket};
use super::{refused, roomy, scenarios};
use crate::broker::pools::CleanupResult;
use crate::refuse;
use std::future::poll_fn;
use tokio::try_join;

scenarios! {
    one_place:
        a_job_answers,
        a_job_without_a_waiter,
        a_job_that_holds_bytes,
        a_job_is_waited_for_by_its_call,
        a_job_that_is_not_begun,
        a_blocking_job_answers,
        a_blocking_job_without_a_waiter,
        a_blocking_job_is_waited_for_by_its_call,
        work_of_the_operator,
        work_of_the_operator_before_a_deadline,
        a_job_is_refused_for_want_of_a_place,
        a_close_that_succeeds,
        a_close_that_fails_and_is_tried_again,
        a_close_without_a_waiter,
        a_failed_close_is_not_parked,
        a_close_while_workers_are_full,
        the_last_call_of_a_closed_session_in_a_job;
    roomy:
        jobs_of_two_kinds_at_once;
}

/// Those whose jobs run on threads of their own.
pub(super) const ON_THREADS: [&str; 6] = [
    "a_blocking_job_answers",
    "a_blocking_job_without_a_waiter",
    "a_blocking_job_is_waited_for_by_its_call",
    "work_of_the_operator",
    "work_of_the_operator_before_a_deadline",
    "jobs_of_two_kinds_at_once",
];

fn one_place() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (io, PoolLimits { workers: 1, cleanup_jobs: 1, ..pools })
}

/// What a job reserves is counted with what its scenario reserves.
async fn counted<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    poll_fn(move |task| refuse::counting(|| future.as_mut().poll(task))).await
}

async fn a_job_answers(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let work = cx.work(1);
    let job = cx.node.pools.spawn(call, move |call| async move {
        work.await;
        drop(call);
        7
    })?;
    assert_eq!(cx.go(job).await??, 7);
    Ok(())
}

async fn a_job_without_a_waiter(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let (work, answer) = (cx.work(2), cx.work(0));
    let job = cx.node.pools.spawn(cx.waited(&session).await?, move |_call| async move {
        work.await;
        (answer,)
    })?;
    cx.step_aside(1).await;
    drop(job);
    cx.step_aside(1).await;
    Ok(())
}

async fn a_job_that_holds_bytes(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let input = admission.input(1_024, 0)?;
    let call = cx.go(admission.wait()).await??.dispatch(SEND, Cost::new())?;
    let work = cx.work(1);
    let job = cx.node.pools.spawn(call, move |call| {
        counted(async move {
            let mut output = call.io().buffer(512, 0)?;
            output.spare_mut(1)?.fill(1);
            output.advance_written(1)?;
            work.await;
            drop(input);
            output.retain()
        })
    })?;
    let kept = cx.go(job).await???;
    cx.step_aside(1).await;
    drop(kept);
    Ok(())
}

async fn a_job_is_waited_for_by_its_call(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let (waiter, work) = (call.io().job_waiter(), cx.work(3));
    let job = cx.node.pools.spawn(call, move |call| async move {
        work.await;
        drop(call);
    })?;
    cx.go(waiter.wait(job)).await???;
    Ok(())
}

async fn a_job_that_is_not_begun(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let (stop, work) = (call.io().stop_handle(), cx.work(0));
    let job = cx.node.pools.spawn(call, move |_call| async move {
        work.await;
        panic!("it was not to begin")
    })?;
    stop.stop();
    let answer: Result<(), Error> = cx.go(job).await?;
    refused(answer, |kind| kind == Kind::Stopped(StopCause::Caller))
}

async fn a_blocking_job_answers(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let work = cx.work(0);
    let job = cx.node.pools.spawn_blocking(call, move |call| {
        work.block();
        drop(call);
        7
    })?;
    assert_eq!(cx.go(job).await??, 7);
    Ok(())
}

async fn a_blocking_job_without_a_waiter(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let (work, answer) = (cx.work(0), cx.work(0));
    let job = cx.node.pools.spawn_blocking(cx.waited(&session).await?, move |_call| {
        work.block();
        answer
    })?;
    drop(job);
    // Until it has ended: what it passes is counted.
    ended(cx).await;
    Ok(())
}

async fn ended(cx: &Cx) {
    while cx.node.counts().workers > 0 {
        tokio::time::sleep(ms(1)).await;
    }
}

async fn a_blocking_job_is_waited_for_by_its_call(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let (waiter, work) = (call.io().job_waiter(), cx.work(0));
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let job = cx.node.pools.spawn_blocking(call, move |call| {
        assert!(opened.recv().is_err());
        work.block();
        drop(call);
    })?;
    {
        let mut waits = Box::pin(cx.go(waiter.wait(job)));
        let polled = poll_fn(|task| std::task::Poll::Ready(waits.as_mut().poll(task))).await;
        if let std::task::Poll::Ready(early) = polled {
            early???;
        }
    }
    // Nobody waits for it any more: its call was asked to stop, and the job has it still.
    drop(gate);
    ended(cx).await;
    Ok(())
}

async fn work_of_the_operator(cx: &Cx) -> Ended {
    let work = cx.work(0);
    cx.go(cx.node.pools.control_blocking(move || work.block())?).await??;
    Ok(())
}

async fn work_of_the_operator_before_a_deadline(cx: &Cx) -> Ended {
    let late = cx.node.pools.control_blocking_before(within(ms(0)), || ());
    refused(late, |kind| matches!(kind, Kind::Deadline(_)))?;
    let work = cx.work(0);
    // Its timer has its waker in the executor, whose doors are not the library's.
    cx.node.pools.control_blocking_before(within(ms(5_000)), move || work.block())?.await?;
    Ok(())
}

async fn a_job_is_refused_for_want_of_a_place(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let (gate, opened) = tokio::sync::oneshot::channel::<()>();
    let first = cx.node.pools.spawn(cx.call(&session)?, move |_call| async move {
        _ = opened.await;
    })?;
    let refusal = match cx.node.pools.spawn(cx.call(&session)?, |_call| async {}) {
        Ok(_) => panic!("there is one place"),
        Err(refusal) => refusal,
    };
    refused(Err::<(), _>(refusal.error()), |kind| matches!(kind, Kind::Full(_)))?;
    let call = refusal.into_owner();
    drop(gate);
    cx.go(first).await??;
    let work = cx.work(1);
    let second = cx.node.pools.spawn(call, move |call| async move {
        work.await;
        drop(call);
    })?;
    cx.go(second).await??;
    Ok(())
}

async fn used(cx: &Cx) -> Result<PooledConnection<Socket>, End> {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let connection = cx.acquired(&call).await?;
    // A stopped call's connection is closed all the same.
    Ok(connection)
}

async fn a_close_that_succeeds(cx: &Cx) -> Ended {
    let (connection, work) = (used(cx).await?, cx.work(2));
    let close = async move |_: &mut Socket| {
        work.await;
        true
    };
    assert!(matches!(cx.go(cx.node.pools.cleanup(connection, close)?).await??, CleanupResult::Closed));
    Ok(())
}

async fn failed_close(cx: &Cx) -> Result<PooledConnection<Socket>, End> {
    let (connection, work) = (used(cx).await?, cx.work(1));
    let close = async move |_: &mut Socket| {
        work.await;
        false
    };
    match cx.go(cx.node.pools.cleanup(connection, close)?).await?? {
        CleanupResult::Retained(connection) => Ok(connection),
        CleanupResult::Closed => panic!("the close failed"),
    }
}

async fn a_close_that_fails_and_is_tried_again(cx: &Cx) -> Ended {
    let connection = failed_close(cx).await?;
    assert_eq!(cx.node.counts().failed_cleanup, 1);
    let again = cx.node.pools.cleanup(connection, async |_: &mut Socket| true)?;
    assert!(matches!(cx.go(again).await??, CleanupResult::Closed));
    Ok(())
}

async fn a_close_without_a_waiter(cx: &Cx) -> Ended {
    let (connection, work) = (used(cx).await?, cx.work(2));
    let close = async move |_: &mut Socket| {
        work.await;
        false
    };
    let job = cx.node.pools.cleanup(connection, close)?;
    cx.step_aside(1).await;
    drop(job);
    while cx.node.counts().cleanup_jobs > 0 {
        tokio::time::sleep(ms(1)).await;
    }
    Ok(())
}

async fn a_failed_close_is_not_parked(cx: &Cx) -> Ended {
    let connection = failed_close(cx).await?;
    cx.step_aside(1).await;
    refused(connection.park(Exchange::complete()), |kind| kind == Kind::Denied(Denied::NotReusable))
}

async fn a_close_while_workers_are_full(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let (gate, opened) = tokio::sync::oneshot::channel::<()>();
    let first = cx.node.pools.spawn(cx.call(&session)?, move |_call| async move {
        _ = opened.await;
    })?;
    let call = cx.call(&session)?;
    let connection = cx.acquired(&call).await?;
    let closed = cx.node.pools.cleanup(connection, async |_: &mut Socket| true)?;
    let ((), ()) = try_join!(
        async {
            assert!(matches!(cx.go(closed).await??, CleanupResult::Closed));
            Ok::<(), End>(())
        },
        async {
            cx.step_aside(6).await;
            drop(gate);
            Ok(cx.go(first).await??)
        }
    )?;
    Ok(())
}

async fn the_last_call_of_a_closed_session_in_a_job(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let (observer, work) = (session.observer(), cx.work(1));
    let (gate, opened) = tokio::sync::oneshot::channel::<()>();
    let job = cx.node.pools.spawn(call, move |call| async move {
        work.await;
        _ = opened.await;
        call.io().checkpoint()
    })?;
    cx.step_aside(1).await;
    drop((session, gate));
    refused(cx.go(job).await??, |kind| matches!(kind, Kind::Stopped(_)))?;
    assert!(observer.is_quiescent());
    Ok(())
}

async fn jobs_of_two_kinds_at_once(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let (work, blocks) = (cx.work(2), cx.work(0));
    let one = cx.node.pools.spawn(cx.call(&session)?, move |call| async move {
        work.await;
        drop(call);
    })?;
    let two = cx.node.pools.spawn_blocking(cx.call(&session)?, move |call| {
        blocks.block();
        drop(call);
    })?;
    try_join!(async { Ok::<(), End>(cx.go(one).await??) }, async { Ok(cx.go(two).await??) })?;
    Ok(())
}
