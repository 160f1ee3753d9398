//! The control path: installing, replacing, retiring, lowering, closing, and the end.
use super::super::support::*;
use super::run::{Cx, Ended};
use super::world::{End, Socket};
use super::{one_connection, refused, roomy, scenarios, tight};
use tokio::try_join;

scenarios! {
    roomy:
        an_epoch_with_its_clients,
        a_rejected_rotation_changes_nothing,
        a_rotation_under_running_requests,
        a_rotation_destroys_what_rests,
        a_provider_is_retired,
        tenants_and_plans_are_numbered,
        limits_are_lowered,
        a_lowering_is_refused_whole,
        admission_closes_and_the_accepted_finish,
        a_second_registry_is_refused,
        what_is_of_another_registry_is_refused,
        the_broker_is_retired,
        direct_io_is_retired,
        operators_look;
    tight:
        a_rotation_refuses_who_waits,
        limits_are_lowered_while_somebody_waits,
        a_retirement_reaches_everyone,
        a_shutdown_waits_for_the_last_owner;
    one_connection:
        a_rotation_refuses_who_waits_for_a_connection;
}

fn rotated(cx: &Cx) -> Result<InstalledProvider, End> {
    Ok(cx.node.pools.install(Node::setup("orders", 2), Epoch(1))?)
}

const GONE: Kind = Kind::Retired(What::Epoch);

async fn an_epoch_with_its_clients(cx: &Cx) -> Ended {
    let setup = Node::setup("stock", 1).credentials([7; 100]);
    let (stock, clients) = cx.node.pools.install_with_clients::<Socket>(setup, Epoch::NONE, 2)?;
    let plan = cx.plan_of("alpha", &stock)?;
    let session = cx.session_of(&plan)?;
    for client in &clients {
        let ready = cx.go(cx.node.pools.admit(client, &session)?.wait()).await??;
        let call = ready.dispatch(SEND, Cost::new())?;
        let dial = client.reserve_connection(&call)?;
        dial.connected(cx.socket())?.park(Exchange::complete())?;
    }
    let setup = Node::setup("stock", 2).credentials([8; 10]);
    drop(cx.node.pools.install_with_clients::<Socket>(setup, Epoch(1), 1)?);
    Ok(())
}

async fn a_rejected_rotation_changes_nothing(cx: &Cx) -> Ended {
    let stale = |kind| kind == Kind::Denied(Denied::StaleEpoch);
    refused(cx.node.pools.install(Node::setup("orders", 2), Epoch::NONE), stale)?;
    refused(cx.node.pools.install(Node::setup("orders", 1), Epoch(1)), stale)?;
    let many = cx.node.pools.install_with_clients::<Socket>(Node::setup("orders", 2), Epoch(1), 9);
    refused(many, |kind| matches!(kind, Kind::Full(_)))?;
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    cx.acquired(&call).await?.park(Exchange::complete())?;
    Ok(())
}

async fn a_rotation_under_running_requests(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let connection = cx.acquired(&call).await?;
    let new = rotated(cx)?;
    cx.go(call.io().wait_for(cx.work(1))).await??;
    refused(connection.park(Exchange::complete()), |kind| kind == GONE)?;
    refused(cx.node.pools.admit(&cx.client, &session), |kind| kind == GONE)?;
    let client = cx.node.pools.client::<Socket>(&new, OriginSlot::new(0))?;
    let plan = cx.plan_of("alpha", &new)?;
    let session = cx.session_of(&plan)?;
    let ready = cx.go(cx.node.pools.admit(&client, &session)?.wait()).await??;
    drop(ready.dispatch(SEND, Cost::new())?);
    drop(call);
    cx.step_aside(2).await;
    Ok(())
}

async fn a_rotation_destroys_what_rests(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let made = [cx.dialled(&calls[0])?, cx.dialled(&calls[1])?];
    for connection in made {
        connection.park(Exchange::complete())?;
    }
    drop(rotated(cx)?);
    cx.step_aside(2).await;
    Ok(())
}

async fn a_provider_is_retired(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    cx.acquired(&call).await?.park(Exchange::complete())?;
    cx.node.pools.retire_provider(&cx.orders)?;
    refused(cx.node.pools.retire_provider(&cx.orders), |kind| kind == GONE)?;
    refused(cx.node.pools.provider("orders"), |kind| kind == Kind::Denied(Denied::Unknown))?;
    cx.step_aside(1).await;
    drop(call);
    Ok(())
}

async fn tenants_and_plans_are_numbered(cx: &Cx) -> Ended {
    for round in 0..2 {
        let plans = [cx.plan_of("gamma", &cx.orders)?, cx.plan_of("delta", &cx.orders)?];
        let session = cx.session_of(&plans[round])?;
        let call = cx.waited(&session).await?;
        drop(plans);
        cx.step_aside(1).await;
        drop((call, session));
        cx.node.broker.sweep();
    }
    Ok(())
}

fn lower(cx: &Cx, changes: &[(Dimension, u64)]) -> Result<(), LowerError> {
    let mut limits = cx.node.pools.limits();
    for (dimension, to) in changes {
        limits.set(*dimension, *to).expect("it is one of them");
    }
    cx.node.pools.lower_limits(limits)
}

async fn limits_are_lowered(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let connection = cx.acquired(&call).await?;
    lower(
        cx,
        &[
            (Dimension::PoolsPending, 9),
            (Dimension::PoolsRunning, 9),
            (Dimension::PoolsRunningPerTenant, 8),
            (Dimension::PoolsRunningPerProvider, 8),
            (Dimension::PoolsRequestsPerTenant, 9),
            (Dimension::PoolsRequestsPerProvider, 9),
            (Dimension::PoolsConnections, 9),
            (Dimension::PoolsConnectionsPerClient, 5),
            (Dimension::PoolsIdleConnections, 4),
            (Dimension::PoolsWorkers, 3),
            (Dimension::PoolsCleanupJobs, 3),
            (Dimension::PoolsMetadataBytes, 6 << 20),
            (Dimension::PoolsQueueAge, 4_000),
        ],
    )?;
    connection.park(Exchange::complete())?;
    drop(call);
    drop(cx.waited(&session).await?);
    Ok(())
}

async fn a_lowering_is_refused_whole(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let before = cx.node.pools.limits();
    match lower(cx, &[(Dimension::PoolsRunningPerTenant, 1), (Dimension::PoolsPending, 3)]) {
        Ok(()) => panic!("two are running"),
        Err(error) if error.obstacles().iter().any(|it| it.dimension == Dimension::PoolsRunningPerTenant) => {
        }
        Err(error) => return Err(error.into()),
    }
    assert_eq!(cx.node.pools.limits(), before);
    cx.step_aside(1).await;
    drop(calls);
    lower(cx, &[(Dimension::PoolsRunningPerTenant, 1), (Dimension::PoolsPending, 3)])?;
    Ok(())
}

async fn admission_closes_and_the_accepted_finish(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.waited(&session).await?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    cx.node.pools.close_admission();
    refused(cx.node.pools.admit(&cx.client, &session), |kind| kind == Kind::Retired(What::Admission))?;
    cx.acquired(&running).await?.park(Exchange::complete())?;
    let late = cx.go(admission.wait()).await??.dispatch(SEND, Cost::new())?;
    cx.acquired(&late).await?.park(Exchange::complete())?;
    Ok(())
}

async fn a_second_registry_is_refused(cx: &Cx) -> Ended {
    let again = || {
        let handle = tokio::runtime::Handle::current();
        let second = ProviderPools::new(&cx.node.broker, &cx.node.io, handle, PoolLimits::default());
        assert!(matches!(second, Err(SetupError::Second(_))));
    };
    again();
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    cx.node.pools.retire();
    again();
    cx.step_aside(1).await;
    drop(call);
    Ok(())
}

async fn what_is_of_another_registry_is_refused(cx: &Cx) -> Ended {
    let other = Node::on(Clock::tokio(), IoLimits::default(), PoolLimits::default());
    let orders = other.pools.install(Node::setup("orders", 1), Epoch::NONE)?;
    let client = other.pools.client::<Socket>(&orders, OriginSlot::new(0))?;
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    assert!(
        cx.node.pools.admit(&client, &session).is_err() && other.pools.admit(&cx.client, &session).is_err()
    );
    let foreign = |kind| kind == Kind::Denied(Denied::ForeignClient);
    refused(client.checkout(&call), foreign)?;
    refused(client.reserve_connection(&call), foreign)?;
    refused(cx.go(client.acquire(&call)).await?, foreign)?;
    refused(cx.node.pools.client::<Socket>(&orders, OriginSlot::new(0)), |kind| {
        kind == Kind::Denied(Denied::ForeignProvider)
    })?;
    let refusal = match other.pools.spawn(call, |_call| async {}) {
        Ok(_) => panic!("of another registry"),
        Err(refusal) => refusal,
    };
    refused(Err::<(), _>(refusal.error()), foreign)?;
    let call = refusal.into_owner();
    drop((client, orders));
    assert!(other.pools.shutdown(within(Duration::from_secs(5))).await.is_clean());
    drop(call);
    Ok(())
}

async fn the_broker_is_retired(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let ((), ()) = try_join!(
        async {
            let waited = cx.go(call.io().wait_for(std::future::pending::<()>())).await?;
            refused(waited, |kind| matches!(kind, Kind::Retired(_)))
        },
        async {
            cx.step_aside(2).await;
            cx.node.broker.retire();
            Ok(())
        }
    )?;
    refused(cx.node.pools.admit(&cx.client, &session), |kind| {
        matches!(kind, Kind::Retired(_) | Kind::Denied(_))
    })
}

async fn direct_io_is_retired(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let (writer, mut reader) = call.io().stream(1)?;
    let ((), ()) = try_join!(
        async {
            let read = cx.go(reader.read()).await?;
            refused(read, |kind| matches!(kind, Kind::Ended(_)))
        },
        async {
            cx.step_aside(2).await;
            cx.node.io.retire();
            Ok(())
        }
    )?;
    assert!(call.io().buffer(1, 0).is_err() && writer.terminal().is_some());
    Ok(())
}

async fn operators_look(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let connection = cx.acquired(&call).await?;
    let pools = &cx.node.pools;
    let listings = [
        pools.tenants(&mut <[_; 4]>::default()),
        pools.providers(&mut <[_; 4]>::default()),
        pools.epochs(&mut <[_; 4]>::default()),
        pools.clients(&mut <[_; 4]>::default()),
    ];
    assert!(listings.iter().all(|listing| listing.is_complete() && listing.written >= 1));
    assert!(cx.node.pools.figures().high_water(Dimension::PoolsRunning) >= Some(1));
    connection.park(Exchange::complete())?;
    Ok(())
}

async fn a_rotation_refuses_who_waits(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.call(&session)?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let staged = cx.node.pools.admit(&cx.client, &session)?.input(100, 1)?;
    let (new, ()) = try_join!(
        async {
            cx.step_aside(2).await;
            rotated(cx)
        },
        async { refused(cx.go(admission.wait()).await?, |kind| kind == GONE) }
    )?;
    drop((staged, running));
    let client = cx.node.pools.client::<Socket>(&new, OriginSlot::new(0))?;
    let plan = cx.plan_of("alpha", &new)?;
    let session = cx.session_of(&plan)?;
    drop(cx.go(cx.node.pools.admit(&client, &session)?.wait()).await??);
    Ok(())
}

async fn limits_are_lowered_while_somebody_waits(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.call(&session)?;
    let (call, ()) = try_join!(cx.waited(&session), async {
        cx.step_aside(2).await;
        lower(cx, &[(Dimension::PoolsPending, 4), (Dimension::PoolsWorkers, 2)])?;
        drop(running);
        Ok(())
    })?;
    drop(call);
    Ok(())
}

async fn a_retirement_reaches_everyone(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.call(&session)?;
    let connection = cx.acquired(&running).await?;
    let admission = cx.node.pools.admit(&cx.client, &session)?;
    let retired = |kind| matches!(kind, Kind::Retired(_));
    let ((), (), ()) = try_join!(
        async { refused(cx.go(admission.wait()).await?, retired) },
        async { refused(cx.go(running.io().wait_for(std::future::pending::<()>())).await?, retired) },
        async {
            cx.step_aside(3).await;
            cx.node.pools.retire();
            Ok(())
        }
    )?;
    refused(connection.park(Exchange::complete()), retired)
}

async fn a_shutdown_waits_for_the_last_owner(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let connection = cx.acquired(&call).await?;
    let result = call.io().buffer(8, 0)?.retain()?;
    drop(call);
    let left = cx.node.pools.shutdown(within(ms(5))).await;
    assert!(!left.is_clean());
    let (left, ()) = tokio::join!(cx.go(cx.node.pools.shutdown(within(Duration::from_secs(10)))), async {
        cx.step_aside(2).await;
        drop(connection);
        cx.step_aside(2).await;
        drop((result, session));
    });
    assert!(left?.is_clean());
    Ok(())
}

async fn a_rotation_refuses_who_waits_for_a_connection(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let used = cx.dialled(&calls[0])?;
    let admitted_before = async { cx.acquired(&calls[1]).await };
    let (waited, new) = tokio::join!(admitted_before, async {
        cx.step_aside(3).await;
        let new = rotated(cx);
        cx.step_aside(1).await;
        drop(used);
        new
    });
    // What was accepted goes on to the end: it may dial for itself.
    let (connection, _new) = (waited?, new?);
    refused(connection.park(Exchange::complete()), |kind| kind == GONE)
}
