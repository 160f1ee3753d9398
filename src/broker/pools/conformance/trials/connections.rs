//! Connections: dialled, waited for, handed over, parked, aged, evicted, destroyed.
use super::super::support::*;
use super::run::{Cx, Ended};
use super::world::{End, Socket};
use super::{one_connection, refused, roomy, scenarios};
use tokio::try_join;

scenarios! {
    one_connection:
        a_parked_connection_is_handed_over,
        a_destroyed_connection_gives_the_turn_to_dial,
        a_failed_dial_refuses_everyone_in_line,
        three_stand_in_the_line_of_a_client,
        who_waits_leaves_and_comes_again,
        a_stop_ends_the_wait_for_a_connection;
    roomy:
        a_second_connection_is_refused,
        a_connection_keeps_its_call,
        a_dial_that_comes_too_late,
        a_dial_that_is_given_up,
        idle_connections_are_closed,
        a_dial_is_awaited_by_its_call;
    one_idle: no_room_to_rest;
    aging: idle_connections_end_by_their_age, one_that_rested_too_long_is_not_taken;
    one_of_the_node: a_dial_elsewhere_evicts;
    living: a_connection_ends_with_its_lifetime;
}

fn one_idle() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (io, PoolLimits { idle_connections: 1, ..pools })
}

fn aging() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (io, PoolLimits { idle_age: ms(20), ..pools })
}

fn one_of_the_node() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (io, PoolLimits { connections: 1, connections_per_client: 1, idle_connections: 1, ..pools })
}

fn living() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (io, PoolLimits { maximum_lifetime: ms(50), ..pools })
}

async fn a_parked_connection_is_handed_over(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let used = cx.dialled(&calls[0])?;
    let (taken, ()) = try_join!(cx.acquired(&calls[1]), async {
        cx.step_aside(3).await;
        used.park(Exchange::complete())?;
        Ok(())
    })?;
    cx.step_aside(1).await;
    taken.park(Exchange::complete())?;
    Ok(())
}

async fn a_destroyed_connection_gives_the_turn_to_dial(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let used = cx.dialled(&calls[0])?;
    let (taken, ()) = try_join!(cx.acquired(&calls[1]), async {
        cx.step_aside(3).await;
        drop(used);
        Ok(())
    })?;
    drop(taken);
    Ok(())
}

async fn a_failed_dial_refuses_everyone_in_line(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let dial = cx.client.reserve_connection(&calls[0])?;
    let ((), ()) = try_join!(
        async {
            refused(cx.go(cx.client.acquire(&calls[1])).await?, |kind| matches!(kind, Kind::Backoff { .. }))
        },
        async {
            cx.step_aside(3).await;
            drop(dial);
            Ok(())
        }
    )?;
    tokio::time::sleep(ms(2)).await;
    cx.acquired(&calls[1]).await?.park(Exchange::complete())?;
    Ok(())
}

async fn three_stand_in_the_line_of_a_client(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?, cx.call(&session)?];
    let one = async |call: &PoolCall| {
        let connection = cx.acquired(call).await?;
        cx.go(call.io().wait_for(cx.work(1))).await??;
        connection.park(Exchange::complete())?;
        Ok::<(), End>(())
    };
    try_join!(one(&calls[0]), one(&calls[1]), one(&calls[2]))?;
    Ok(())
}

async fn who_waits_leaves_and_comes_again(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let used = cx.dialled(&calls[0])?;
    {
        let mut waits = Box::pin(cx.go(cx.client.acquire(&calls[1])));
        assert!(super::requests::futures_pending(&mut waits).await?);
        refused(cx.client.checkout(&calls[1]), |kind| kind == Kind::Busy)?;
    }
    let (taken, ()) = try_join!(cx.acquired(&calls[1]), async {
        cx.step_aside(2).await;
        used.park(Exchange::complete())?;
        Ok(())
    })?;
    taken.park(Exchange::complete())?;
    Ok(())
}

async fn a_stop_ends_the_wait_for_a_connection(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let used = cx.dialled(&calls[0])?;
    let stop = calls[1].io().stop_handle();
    let ((), ()) = try_join!(
        async {
            refused(cx.go(cx.client.acquire(&calls[1])).await?, |kind| matches!(kind, Kind::Stopped(_)))
        },
        async {
            cx.step_aside(2).await;
            stop.stop();
            Ok(())
        }
    )?;
    drop(calls);
    used.park(Exchange::complete())?;
    Ok(())
}

async fn a_second_connection_is_refused(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let second = |kind| kind == Kind::Denied(Denied::SecondConnection);
    let dial = cx.client.reserve_connection(&call)?;
    refused(cx.client.reserve_connection(&call), second)?;
    let connection = dial.connected(cx.socket())?;
    refused(cx.go(cx.client.acquire(&call)).await?, second)?;
    connection.park(Exchange::complete())?;
    let again = cx.client.checkout(&call)?;
    refused(cx.client.checkout(&call), second)?;
    cx.step_aside(1).await;
    drop(again);
    Ok(())
}

async fn a_connection_keeps_its_call(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let connection = cx.acquired(&call).await?;
    drop((call, session));
    cx.step_aside(2).await;
    refused(connection.park(Exchange::complete()), |kind| matches!(kind, Kind::Stopped(_)))
}

async fn a_dial_that_comes_too_late(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let dial = cx.client.reserve_connection(&call)?;
    cx.step_aside(1).await;
    call.io().stop_handle().stop();
    refused(dial.connected(cx.socket()), |kind| matches!(kind, Kind::Stopped(_)))?;
    let call = cx.call(&session)?;
    refused(cx.client.reserve_connection(&call), |kind| matches!(kind, Kind::Backoff { .. }))?;
    tokio::time::sleep(ms(2)).await;
    drop(cx.acquired(&call).await?);
    Ok(())
}

async fn a_dial_that_is_given_up(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let dial = cx.client.reserve_connection(&call)?;
    cx.go(call.io().wait_for(cx.work(2))).await??;
    drop(call);
    cx.step_aside(1).await;
    drop(dial);
    Ok(())
}

async fn idle_connections_are_closed(cx: &Cx) -> Ended {
    let session = cx.session()?;
    for _ in 0..2 {
        let calls = [cx.call(&session)?, cx.call(&session)?];
        let made = [cx.dialled(&calls[0])?, cx.dialled(&calls[1])?];
        for connection in made {
            connection.park(Exchange::complete())?;
        }
        cx.client.close_idle();
        cx.step_aside(1).await;
    }
    Ok(())
}

async fn a_dial_is_awaited_by_its_call(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    let mut connection = cx.acquired(&call).await?;
    let stop = call.io().stop_handle();
    let ((), ()) = try_join!(
        async {
            refused(cx.go(call.io().wait_for(cx.work(9))).await?, |kind| matches!(kind, Kind::Stopped(_)))
        },
        async {
            cx.step_aside(3).await;
            stop.stop();
            Ok(())
        }
    )?;
    connection.resource();
    drop(connection);
    Ok(())
}

async fn no_room_to_rest(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let calls = [cx.call(&session)?, cx.call(&session)?];
    let [one, two] = [cx.dialled(&calls[0])?, cx.dialled(&calls[1])?];
    one.park(Exchange::complete())?;
    refused(two.park(Exchange::complete()), |kind| matches!(kind, Kind::Full(_)))?;
    cx.step_aside(1).await;
    Ok(())
}

async fn idle_connections_end_by_their_age(cx: &Cx) -> Ended {
    let session = cx.session()?;
    for _ in 0..2 {
        let call = cx.waited(&session).await?;
        cx.acquired(&call).await?.park(Exchange::complete())?;
        tokio::time::sleep(ms(25)).await;
    }
    Ok(())
}

async fn one_that_rested_too_long_is_not_taken(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    cx.acquired(&call).await?.park(Exchange::complete())?;
    tokio::time::advance(ms(21)).await;
    let connection = cx.acquired(&call).await?;
    drop(connection);
    Ok(())
}

async fn a_dial_elsewhere_evicts(cx: &Cx) -> Ended {
    let elsewhere = cx.node.pools.client::<Socket>(&cx.orders, OriginSlot::new(1))?;
    let session = cx.session()?;
    let call = cx.call(&session)?;
    let there = cx.node.pools.admit_now(&elsewhere, &session)?.dispatch(SEND, Cost::new())?;
    cx.dialled(&call)?.park(Exchange::complete())?;
    let dial = elsewhere.reserve_connection(&there)?;
    dial.connected(cx.socket())?.park(Exchange::complete())?;
    drop((call, there));
    cx.step_aside(1).await;
    let call = cx.waited(&session).await?;
    drop(cx.acquired(&call).await?);
    Ok(())
}

async fn a_connection_ends_with_its_lifetime(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let call = cx.waited(&session).await?;
    cx.acquired(&call).await?.park(Exchange::complete())?;
    let connection = cx.acquired(&call).await?;
    tokio::time::sleep(ms(51)).await;
    refused(connection.park(Exchange::complete()), |kind| kind == Kind::Denied(Denied::NotReusable))?;
    cx.acquired(&call).await?.park(Exchange::complete())?;
    tokio::time::sleep(ms(60)).await;
    Ok(())
}
