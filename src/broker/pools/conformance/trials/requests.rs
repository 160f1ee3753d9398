//! The way of a request: admitted, waiting, started, ended, by whatever ends it.
use super::super::support::*;
use super::run::{Cx, Ended, OTHER};
use super::world::End;
use super::{one_connection, refused, roomy, scenarios, tight};
use crate::broker::{Budget, Policy, Probe, ProviderSpec};
use tokio::try_join;

scenarios! {
    tight:
        a_request_dials_parks_and_the_next_reuses,
        a_request_waits_for_its_turn,
        a_cancelled_waiter_with_staged_input,
        tenants_take_turns,
        providers_take_turns,
        a_grant_that_is_dropped_goes_to_the_next,
        a_deadline_ends_a_wait,
        a_session_stop_ends_a_wait,
        a_revocation_while_it_waits,
        a_chain_of_follow_ups;
    roomy:
        admitted_at_once,
        a_stop_handle_stops_a_call,
        a_probe_ends_a_wait,
        a_call_of_another_session,
        a_withdrawal_between_dispatch_and_start,
        budgets_are_spent_for_good,
        calls_of_a_session_are_bounded,
        a_resource_table_outlives_its_session,
        a_session_closes_under_its_call,
        a_policy_narrows_the_time,
        a_dispatched_call_is_dropped;
    full_tenant:
        a_full_tenant_is_passed_by;
    one_direct:
        direct_requests_are_first_come_first_served,
        a_direct_wait_has_its_age;
    one_connection:
        three_ways_to_ask;
}

fn full_tenant() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (io, PoolLimits { running_per_tenant: 1, ..pools })
}

fn one_direct() -> (IoLimits, PoolLimits) {
    let (io, pools) = tight();
    (IoLimits { running: 1, queue_wait: ms(20), ..io }, pools)
}

async fn a_request_dials_parks_and_the_next_reuses(cx: &Cx) -> Ended {
    let session = cx.session()?;
    for _ in 0..2 {
        let call = cx.waited(&session).await?;
        let mut connection = cx.acquired(&call).await?;
        cx.go(call.io().wait_for(cx.work(2))).await??;
        connection.resource();
        connection.park(Exchange::complete())?;
    }
    Ok(())
}

async fn a_request_waits_for_its_turn(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.call(&session)?;
    let (call, ()) = try_join!(cx.waited(&session), async {
        cx.step_aside(3).await;
        drop(running);
        Ok(())
    })?;
    let connection = cx.acquired(&call).await?;
    drop(call);
    connection.park(Exchange::complete())?;
    Ok(())
}

async fn a_cancelled_waiter_with_staged_input(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.call(&session)?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let input = admission.input(600, 16)?;
    let memory = admission.reserve_input(100, 8)?;
    let mut first = Box::pin(cx.go(admission.wait()));
    assert!(futures_pending(&mut first).await?);
    drop(first);
    // What was staged keeps its place among the pending ones; the next waiter does not mind.
    let ((), call) = try_join!(
        async {
            cx.step_aside(2).await;
            drop(running);
            Ok(())
        },
        cx.waited(&session)
    )?;
    drop((input, memory, call));
    Ok(())
}

/// Polls once. An early end is passed on.
pub(super) async fn futures_pending<F, T>(future: &mut std::pin::Pin<Box<F>>) -> Result<bool, End>
where
    F: Future<Output = Result<Result<T, Error>, End>>,
{
    let polled = std::future::poll_fn(|task| std::task::Poll::Ready(future.as_mut().poll(task))).await;
    match polled {
        std::task::Poll::Pending => Ok(true),
        std::task::Poll::Ready(result) => {
            result??;
            Ok(false)
        }
    }
}

async fn tenants_take_turns(cx: &Cx) -> Ended {
    let plans = [cx.plan_of("gamma", &cx.orders)?, cx.plan_of("delta", &cx.orders)?];
    let sessions = [cx.session()?, cx.session_of(&plans[0])?, cx.session_of(&plans[1])?];
    let one = async |session: &CapabilitySession| {
        let call = cx.waited(session).await?;
        cx.go(call.io().wait_for(cx.work(1))).await??;
        drop(call);
        Ok::<(), End>(())
    };
    try_join!(one(&sessions[0]), one(&sessions[1]), one(&sessions[2]), one(&sessions[0]))?;
    Ok(())
}

async fn providers_take_turns(cx: &Cx) -> Ended {
    let stock = cx.node.pools.install(Node::setup("stock", 1), Epoch::NONE)?;
    let client = cx.node.pools.client::<Nothing>(&stock, OriginSlot::new(0))?;
    let plan = cx.plan_of("alpha", &stock)?;
    let (here, there) = (cx.session()?, cx.session_of(&plan)?);
    let of_stock = async || {
        let ready = cx.go(cx.node.pools.admit(&client, &there)?.wait()).await??;
        drop(ready.dispatch(SEND, Cost::new())?);
        Ok::<(), End>(())
    };
    let running = cx.call(&here)?;
    try_join!(of_stock(), async { cx.waited(&here).await.map(drop) }, of_stock(), async {
        cx.step_aside(2).await;
        drop(running);
        Ok(())
    })?;
    cx.node.pools.retire_provider(&stock)?;
    Ok(())
}

async fn a_grant_that_is_dropped_goes_to_the_next(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let ready = cx.go(cx.node.pools.admit(&cx.client, &session)?.wait()).await??;
    let input = ready.input(512, 0)?;
    let (call, ()) = try_join!(cx.waited(&session), async {
        cx.step_aside(2).await;
        drop(ready);
        cx.step_aside(2).await;
        drop(input);
        Ok(())
    })?;
    drop(call);
    Ok(())
}

async fn a_deadline_ends_a_wait(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.call(&session)?;
    let late = cx.node.pools.admit_until(&cx.client, &session, within(ms(10)))?;
    let ended = cx.go(late.wait()).await?;
    refused(ended, |kind| matches!(kind, Kind::Deadline(_)))?;
    let ready = cx.node.pools.admit_until(&cx.client, &session, within(ms(10)))?;
    let waits = cx.go(ready.wait());
    drop(running);
    // Granted and not started in time: it goes back.
    let ready = waits.await??;
    tokio::time::sleep(ms(15)).await;
    refused(ready.dispatch(SEND, Cost::new()), |kind| matches!(kind, Kind::Deadline(_)))?;
    Ok(())
}

async fn a_session_stop_ends_a_wait(cx: &Cx) -> Ended {
    let (stopped, session) = (cx.session()?, cx.session()?);
    let running = cx.call(&session)?;
    let admission = cx.node.pools.admit(&cx.client, &stopped)?;
    let ((), ()) = try_join!(
        async { refused(cx.go(admission.wait()).await?, |kind| matches!(kind, Kind::Stopped(_))) },
        async {
            cx.step_aside(2).await;
            stopped.stop_handle().stop();
            Ok(())
        }
    )?;
    // The running one ends by its session's stop too, in the middle of a wait.
    let ((), ()) = try_join!(
        async {
            let waited = cx.go(running.io().wait_for(std::future::pending::<()>())).await?;
            refused(waited, |kind| matches!(kind, Kind::Stopped(_)))
        },
        async {
            cx.step_aside(2).await;
            session.stop();
            Ok(())
        }
    )?;
    Ok(())
}

async fn a_revocation_while_it_waits(cx: &Cx) -> Ended {
    let plan = cx.plan_of("gamma", &cx.orders)?;
    let (session, revoked) = (cx.session()?, cx.session_of(&plan)?);
    let running = cx.call(&session)?;
    let admission = cx.node.pools.admit(&cx.client, &revoked)?;
    let (ready, ()) = try_join!(async { Ok::<_, End>(cx.go(admission.wait()).await??) }, async {
        cx.step_aside(2).await;
        plan.revoke(SEND)?;
        drop(running);
        Ok(())
    })?;
    refused(ready.dispatch(SEND, Cost::new()), |kind| matches!(kind, Kind::Denied(Denied::Policy)))?;
    Ok(())
}

async fn a_chain_of_follow_ups(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let mut call = cx.call(&session)?;
    for _ in 0..2 {
        let next = cx.node.pools.admit_followup(&cx.client, &call)?;
        let (ready, ()) = try_join!(async { Ok::<_, End>(cx.go(next.wait()).await??) }, async {
            cx.step_aside(1).await;
            drop(call);
            Ok(())
        })?;
        call = ready.dispatch(SEND, Cost::new())?;
        cx.acquired(&call).await?.park(Exchange::complete())?;
    }
    Ok(())
}

async fn admitted_at_once(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let connection = cx.dialled(&calls[0])?;
    cx.step_aside(1).await;
    connection.park(Exchange::complete())?;
    let idle = cx.client.checkout(&calls[1])?;
    cx.step_aside(1).await;
    drop((idle, calls));
    Ok(())
}

async fn a_stop_handle_stops_a_call(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let stop = call.io().stop_handle();
    let ((), ()) = try_join!(
        async {
            let waited = cx.go(call.io().wait_for(std::future::pending::<()>())).await?;
            refused(waited, |kind| kind == Kind::Stopped(StopCause::Caller))
        },
        async {
            cx.step_aside(2).await;
            stop.stop();
            Ok(())
        }
    )?;
    refused(call.io().buffer(1, 0), |kind| matches!(kind, Kind::Stopped(_)))?;
    Ok(())
}

struct Cancelled(AtomicBool);

impl Probe for Cancelled {
    fn is_cancelled(&self) -> bool {
        self.0.load(SeqCst)
    }
}

async fn a_probe_ends_a_wait(cx: &Cx) -> Ended {
    let probe = Arc::new(Cancelled(AtomicBool::new(false)));
    let activation = Activation::until(within(Duration::from_secs(20))).probe(probe.clone());
    let session = cx.node.broker.open(&cx.plan, activation)?;
    let call = cx.call(&session)?;
    // Who looks by a timer has its waker in the executor, whose doors are not the library's.
    let waits = call.io().wait_for(std::future::pending::<()>());
    let (waited, ()) = tokio::join!(waits, async {
        tokio::time::sleep(ms(15)).await;
        probe.0.store(true, SeqCst);
    });
    refused(waited, |kind| kind == Kind::Stopped(StopCause::Probe))
}

async fn a_call_of_another_session(cx: &Cx) -> Ended {
    let sessions = [cx.session()?, cx.session()?];
    let ready = cx.go(cx.node.pools.admit(&cx.client, &sessions[0])?.wait()).await??;
    let accepted = sessions[1].dispatch(SEND, Cost::new())?;
    refused(ready.start(accepted), |kind| kind == Kind::Denied(Denied::ForeignSession))?;
    let ready = cx.node.pools.admit_now(&cx.client, &sessions[0])?;
    let call = ready.start(sessions[0].dispatch(SEND, Cost::new())?)?;
    cx.step_aside(1).await;
    drop(call);
    Ok(())
}

async fn a_withdrawal_between_dispatch_and_start(cx: &Cx) -> Ended {
    let spec = PlanSpec::new("gamma", "other").bind(&HTTP, &cx.orders.reference());
    let plan = cx.node.broker.seal(spec)?;
    let session = cx.session_of(&plan)?;
    let ready = cx.go(cx.node.pools.admit(&cx.client, &session)?.wait()).await??;
    let accepted = session.dispatch(SEND, Cost::new())?;
    cx.node.broker.withdraw("other");
    refused(ready.start(accepted), |kind| matches!(kind, Kind::Denied(Denied::Withdrawn)))
}

async fn budgets_are_spent_for_good(cx: &Cx) -> Ended {
    let activation = cx.activation().budget(Budget::Effects, 2).budget(Budget::BlobRead, 100);
    let session = cx.node.broker.open(&cx.plan, activation)?;
    let cost = Cost::new().charge(Budget::Effects, 1).charge(Budget::BlobRead, 60);
    let ready = cx.go(cx.node.pools.admit(&cx.client, &session)?.wait()).await??;
    drop(ready.dispatch(SEND, cost)?);
    refused(session.dispatch(SEND, cost), |kind| kind == Kind::Spent(Budget::BlobRead))?;
    assert_eq!((session.remaining(Budget::Effects), session.remaining(Budget::BlobRead)), (1, 40));
    Ok(())
}

async fn calls_of_a_session_are_bounded(cx: &Cx) -> Ended {
    let activation = cx.activation().call_limit(1);
    let session = cx.node.broker.open(&cx.plan, activation)?;
    let call = cx.waited(&session).await?;
    let second = cx.node.pools.admit(&cx.client, &session);
    refused(second, |kind| matches!(kind, Kind::Full(_)))?;
    cx.go(call.io().wait_for(cx.work(1))).await??;
    drop(call);
    drop(cx.waited(&session).await?);
    Ok(())
}

async fn a_resource_table_outlives_its_session(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let observer = session.observer();
    let table = session.reserve_resource_table(4_096)?;
    let call = cx.waited(&session).await?;
    session.close();
    cx.step_aside(1).await;
    drop(call);
    assert!(!observer.is_quiescent());
    cx.step_aside(1).await;
    drop(table);
    assert!(observer.is_quiescent());
    Ok(())
}

async fn a_session_closes_under_its_call(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let connection = cx.acquired(&call).await?;
    let buffer = call.io().buffer(700, 9)?;
    drop(session);
    refused(call.io().checkpoint(), |kind| matches!(kind, Kind::Stopped(_)))?;
    refused(connection.park(Exchange::complete()), |kind| matches!(kind, Kind::Stopped(_)))?;
    cx.step_aside(1).await;
    drop((call, buffer));
    Ok(())
}

async fn a_policy_narrows_the_time(cx: &Cx) -> Ended {
    let policy = Policy::new().wall_time(ms(10));
    let spec = PlanSpec::new("alpha", "publication").bind_with(&HTTP, &cx.orders.reference(), policy);
    let plan = cx.node.broker.seal(spec)?;
    let session = cx.session_of(&plan)?;
    let call = cx.waited(&session).await?;
    let waited = cx.go(call.io().wait_for(std::future::pending::<()>())).await?;
    refused(waited, |kind| matches!(kind, Kind::Deadline(_)))
}

async fn a_dispatched_call_is_dropped(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let accepted = session.dispatch(SEND, Cost::new())?;
    let ready = cx.go(cx.node.pools.admit(&cx.client, &session)?.wait()).await??;
    drop(accepted);
    cx.step_aside(1).await;
    drop(ready);
    Ok(())
}

async fn a_full_tenant_is_passed_by(cx: &Cx) -> Ended {
    let plan = cx.plan_of("gamma", &cx.orders)?;
    let (full, other) = (cx.session()?, cx.session_of(&plan)?);
    let running = cx.call(&full)?;
    let (waited, ()) = try_join!(cx.waited(&full), async {
        drop(cx.waited(&other).await?);
        cx.step_aside(2).await;
        drop(running);
        Ok(())
    })?;
    drop(waited);
    Ok(())
}

async fn direct_requests_are_first_come_first_served(cx: &Cx) -> Ended {
    let (provider, plan) = direct(cx)?;
    let session = cx.session_of(&plan)?;
    let one = async || {
        let ready = cx.go(cx.node.io.admit(&session)?.wait()).await??;
        let call = ready.start(session.dispatch(OTHER.operation(0), Cost::new())?)?;
        cx.go(call.wait_for(cx.work(1))).await??;
        drop(call);
        Ok::<(), End>(())
    };
    try_join!(one(), one(), one())?;
    drop(provider);
    Ok(())
}

async fn a_direct_wait_has_its_age(cx: &Cx) -> Ended {
    let (provider, plan) = direct(cx)?;
    let session = cx.session_of(&plan)?;
    let running = cx.node.io.admit_now(&session)?;
    let waited = cx.go(cx.node.io.admit(&session)?.wait()).await?;
    refused(waited, |kind| kind == Kind::Deadline(Which::Queue))?;
    provider.retire();
    let accepted = session.dispatch(OTHER.operation(0), Cost::new());
    refused(accepted, |kind| kind == Kind::Retired(What::Epoch))?;
    drop(running);
    Ok(())
}

/// A provider of direct I/O, and a plan that binds it.
fn direct(cx: &Cx) -> Result<(crate::broker::Provider, Plan), End> {
    let provider = cx.node.broker.register(ProviderSpec::new("direct"))?;
    let spec = PlanSpec::new("alpha", "publication").bind(&OTHER, &provider.reference());
    Ok((provider, cx.node.broker.seal(spec)?))
}

async fn three_ways_to_ask(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let now = cx.call(&session)?;
    let ready = cx.node.pools.admit_now_until(&cx.client, &session, within(ms(500)))?;
    let late = ready.dispatch(SEND, Cost::new())?;
    let waited = cx.waited(&session).await?;
    assert!(cx.node.pools.figures().high_water(Dimension::PoolsRunning) >= Some(3));
    for call in [now, late, waited] {
        cx.acquired(&call).await?.park(Exchange::complete())?;
    }
    Ok(())
}
