//! What is not a guest's request: inbound events, maintenance, what a protocol keeps.
use super::super::support::*;
use super::run::{Cx, Ended};
use super::world::End;
use super::{one_connection, refused, roomy, scenarios, tight};
use crate::broker::pools::{IngressRequest, IngressTerms};
use tokio::try_join;

scenarios! {
    roomy:
        an_event_at_once,
        a_socket_keeps_its_event,
        clones_share_their_operations,
        a_rotation_ends_an_event,
        a_deadline_ends_an_event,
        an_event_is_withdrawn,
        metadata_of_a_protocol,
        a_permit_and_its_connection,
        a_permit_outlives_its_epoch,
        a_maintenance_dial_that_is_given_up;
    tight:
        an_event_waits_for_its_turn,
        an_event_among_guests;
    one_connection:
        an_event_waits_for_a_connection;
}

fn terms() -> IngressTerms {
    IngressTerms::until(within(Duration::from_secs(10))).operations(2).memory(5_000)
}

fn event(cx: &Cx) -> Result<IngressRequest, End> {
    Ok(cx.node.pools.ingress(&cx.client, &cx.plan, terms())?)
}

async fn an_event_at_once(cx: &Cx) -> Ended {
    let event = event(cx)?;
    event.begin_operation()?;
    let dial = cx.client.reserve_connection(&event)?;
    cx.go(event.wait_for(cx.work(2))).await??;
    dial.connected(cx.socket())?.park(Exchange::complete())?;
    Ok(())
}

async fn a_socket_keeps_its_event(cx: &Cx) -> Ended {
    let event = event(cx)?;
    let connection = cx.client.reserve_connection(&event)?.connected(cx.socket())?;
    drop(event);
    cx.step_aside(2).await;
    connection.park(Exchange::complete())?;
    Ok(())
}

async fn clones_share_their_operations(cx: &Cx) -> Ended {
    let event = event(cx)?;
    let clone = event.clone();
    event.begin_operation()?;
    clone.begin_operation()?;
    refused(event.begin_operation(), |kind| kind == Kind::Denied(Denied::Exhausted))?;
    drop(event);
    cx.go(clone.wait_for(cx.work(1))).await??;
    Ok(())
}

async fn a_rotation_ends_an_event(cx: &Cx) -> Ended {
    let event = event(cx)?;
    let connection = cx.client.reserve_connection(&event)?.connected(cx.socket())?;
    let gone = |kind| kind == Kind::Retired(What::Epoch);
    let ((), ()) = try_join!(
        async { refused(cx.go(event.wait_for(std::future::pending::<()>())).await?, gone) },
        async {
            cx.step_aside(2).await;
            drop(cx.node.pools.install(Node::setup("orders", 2), Epoch(1))?);
            Ok(())
        }
    )?;
    refused(connection.park(Exchange::complete()), gone)?;
    drop(event);
    Ok(())
}

async fn a_deadline_ends_an_event(cx: &Cx) -> Ended {
    let short = IngressTerms::until(within(ms(10)));
    let event = cx.node.pools.ingress(&cx.client, &cx.plan, short)?;
    let waited = cx.go(event.wait_for(std::future::pending::<()>())).await?;
    refused(waited, |kind| matches!(kind, Kind::Deadline(_)))
}

async fn an_event_is_withdrawn(cx: &Cx) -> Ended {
    let plan = cx.plan_of("gamma", &cx.orders)?;
    let waiting = cx.node.pools.ingress_queued(&cx.client, &plan, terms())?;
    cx.step_aside(1).await;
    plan.withdraw();
    refused(cx.go(waiting.wait()).await?, |kind| kind == Kind::Denied(Denied::Withdrawn))
}

async fn metadata_of_a_protocol(cx: &Cx) -> Ended {
    let kept =
        [cx.node.pools.reserve_protocol_metadata(10_000)?, cx.node.pools.reserve_protocol_metadata(1)?];
    cx.step_aside(1).await;
    drop(kept);
    Ok(())
}

async fn a_permit_and_its_connection(cx: &Cx) -> Ended {
    let permit = cx.node.pools.maintenance(&cx.client, within(Duration::from_secs(10)), 2)?;
    let request = permit.begin_request()?;
    refused(permit.begin_request(), |kind| kind == Kind::Busy)?;
    let dial = cx.client.reserve_maintenance_connection(&request)?;
    cx.step_aside(1).await;
    let connection = dial.connected(cx.socket())?;
    drop((request, permit));
    cx.step_aside(1).await;
    refused(connection.park(Exchange::complete()), |kind| kind == Kind::Denied(Denied::Maintenance))
}

async fn a_permit_outlives_its_epoch(cx: &Cx) -> Ended {
    let permit = cx.node.pools.maintenance(&cx.client, within(Duration::from_secs(10)), 2)?;
    let request = permit.begin_request()?;
    let dial = cx.client.reserve_maintenance_connection(&request)?;
    drop(cx.node.pools.install(Node::setup("orders", 2), Epoch(1))?);
    cx.step_aside(1).await;
    let gone = |kind| kind == Kind::Retired(What::Epoch);
    refused(dial.connected(cx.socket()), gone)?;
    refused(request.checkpoint(), gone)?;
    drop(permit);
    cx.step_aside(1).await;
    drop(request);
    Ok(())
}

async fn a_maintenance_dial_that_is_given_up(cx: &Cx) -> Ended {
    let permit = cx.node.pools.maintenance(&cx.client, within(Duration::from_secs(10)), 2)?;
    drop(cx.client.reserve_maintenance_connection(&permit.begin_request()?)?);
    tokio::time::sleep(ms(2)).await;
    let dial = cx.client.reserve_maintenance_connection(&permit.begin_request()?)?;
    drop(dial.connected(cx.socket())?);
    Ok(())
}

async fn an_event_waits_for_its_turn(cx: &Cx) -> Ended {
    let running = event(cx)?;
    let waiting = cx.node.pools.ingress_queued(&cx.client, &cx.plan, terms())?;
    let (event, ()) = try_join!(async { Ok::<_, End>(cx.go(waiting.wait()).await??) }, async {
        cx.step_aside(3).await;
        drop(running);
        Ok(())
    })?;
    event.begin_operation()?;
    cx.go(event.wait_for(cx.work(1))).await??;
    Ok(())
}

async fn an_event_among_guests(cx: &Cx) -> Ended {
    let session = cx.session()?;
    let running = cx.call(&session)?;
    let waiting = cx.node.pools.ingress_queued(&cx.client, &cx.plan, terms())?;
    let ((), (), ()) = try_join!(
        async {
            let event = cx.go(waiting.wait()).await??;
            cx.go(event.wait_for(cx.work(1))).await??;
            drop(event);
            Ok::<(), End>(())
        },
        async {
            let call = cx.waited(&session).await?;
            cx.acquired(&call).await?.park(Exchange::complete())?;
            Ok(())
        },
        async {
            cx.step_aside(2).await;
            drop(running);
            Ok(())
        }
    )?;
    Ok(())
}

async fn an_event_waits_for_a_connection(cx: &Cx) -> Ended {
    let events = [event(cx)?, event(cx)?];
    let used = cx.client.reserve_connection(&events[0])?.connected(cx.socket())?;
    let (taken, ()) =
        try_join!(async { Ok::<_, End>(cx.go(cx.client.acquire(&events[1])).await??) }, async {
            cx.step_aside(2).await;
            used.park(Exchange::complete())?;
            Ok(())
        })?;
    match taken {
        Acquired::Idle(connection) => connection.park(Exchange::complete())?,
        Acquired::Dial(dial) => drop(dial.connected(cx.socket())?),
    }
    Ok(())
}
