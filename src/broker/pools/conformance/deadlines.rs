//! Ages and deadlines of requests.
use super::poll::poll_once;
use super::support::*;

fn one_running() -> PoolLimits {
    PoolLimits {
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        queue_age: Duration::from_secs(2),
        ..PoolLimits::default()
    }
}

/// pools.51, pools.52: who waits longer than the queue age is refused then; nobody's running call is.
#[tokio::test(start_paused = true)]
async fn a_wait_has_a_finite_age_31() {
    let node = Node::paused(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let running = node.call(&client, &session);
    let admission = node.pools.admit(&client, &session).expect("room");
    let begun = tokio::time::Instant::now();
    // Staging takes some of it: the age counts from the admission, and waiting does not begin it anew.
    tokio::time::sleep(ms(500)).await;
    assert_kind(admission.wait().await, Kind::Deadline(Which::Queue));
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(2) && waited < ms(2_020), "{waited:?}");
    assert_eq!(node.counts().pending_requests, 0);
    running.io().checkpoint().expect("its deadline is its own");
    drop((running, session));
    node.assert_idle();
}

/// Who goes straight to a running unit meets the session's deadline at the start, or is taken back by then.
#[tokio::test(start_paused = true)]
async fn a_grant_of_a_session_that_is_over_never_starts() {
    let node = Node::paused(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_kind(node.pools.admit(&client, &session), Kind::Deadline(Which::Operation));
    let ready = node.pools.admit_now(&client, &session).expect("no clock is read");
    assert_kind(ready.dispatch(SEND, Cost::new()), Kind::Deadline(Which::Session));
    assert_eq!(node.counts().running_requests, 0);
    let kept = node.pools.admit_now(&client, &session).expect("no clock is read");
    tokio::time::sleep(ms(20)).await;
    assert_eq!(node.counts().running_requests, 0, "it was taken back");
    assert_kind(kept.dispatch(SEND, Cost::new()), Kind::Deadline(Which::Session));
    drop(session);
    node.assert_clean_end().await;
}

/// pools.51, pools.52: a deadline of the request itself ends it earlier, in the line and after it; it is never widened.
#[tokio::test(start_paused = true)]
async fn a_deadline_only_narrows_36() {
    let node = Node::paused(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let widened = within(Duration::from_secs(21));
    assert_kind(node.pools.admit_until(&client, &session, widened), Kind::Denied(Denied::WidenedDeadline));
    assert_kind(
        node.pools.admit_now_until(&client, &session, widened),
        Kind::Denied(Denied::WidenedDeadline),
    );
    let expired = within(ms(10));
    tokio::time::advance(ms(10)).await;
    assert_kind(node.pools.admit_until(&client, &session, expired), Kind::Deadline(Which::Operation));
    assert_eq!((node.counts().pending_requests, node.counts().running_requests), (0, 0));
    let until = within(Duration::from_secs(1));
    let ready = node.pools.admit_now_until(&client, &session, until).expect("room");
    assert_eq!(ready.deadline(), until);
    let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
    assert_eq!(call.io().deadline(), until);
    let waits = node.pools.admit_until(&client, &session, until).expect("room").wait();
    assert_kind(waits.await, Kind::Deadline(Which::Operation));
    let error = call.io().checkpoint().expect_err("the same instant");
    assert_eq!(error.kind(), Kind::Deadline(Which::Operation));
    // A connection of it cannot be parked any more, nor one be had.
    assert_kind(client.checkout(&call), Kind::Deadline(Which::Operation));
    assert_kind(client.reserve_connection(&call), Kind::Deadline(Which::Operation));
    assert_kind(client.acquire(&call).await, Kind::Deadline(Which::Operation));
    drop((call, session));
    node.assert_idle();
}

/// pools.51: a session without a deadline admits nothing.
#[tokio::test]
async fn a_request_needs_a_deadline() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.broker.open(&node.plan("alpha", &orders), Activation::unbounded()).expect("room");
    assert_kind(node.pools.admit(&client, &session), Kind::Denied(Denied::UnboundedDeadline));
    drop(session);
    node.assert_idle();
}

/// pools.52: stopping the request itself, its session, or its epoch ends the wait at once.
#[tokio::test]
async fn a_stop_ends_the_wait_at_once() {
    let node = Node::new(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let running = node.call(&client, &session);
    let admission = node.pools.admit(&client, &session).expect("room");
    let stop = admission.stop_handle();
    let mut wait = Box::pin(admission.wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    stop.stop();
    let std::task::Poll::Ready(ended) = poll_once(wait.as_mut()) else { panic!("it was stopped") };
    assert_kind(ended, Kind::Stopped(StopCause::Caller));
    let other = node.session(&node.plan("alpha", &orders));
    let mut wait = Box::pin(node.pools.admit(&client, &other).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    other.stop();
    let std::task::Poll::Ready(ended) = poll_once(wait.as_mut()) else { panic!("it was stopped") };
    assert_kind(ended, Kind::Stopped(StopCause::Session));
    drop((wait, running, session, other));
    node.assert_idle();
}
