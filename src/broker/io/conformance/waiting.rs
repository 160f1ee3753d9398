//! Admission and waiting: io.8 to io.17, io.73.
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::poll::{WakeCount, poll_once, poll_with};
use super::support::*;

fn one_slot() -> IoLimits {
    IoLimits { running: 1, queued: 2, ..small() }
}

/// io.12, io.13, io.14: the line is finite and FIFO. io.34: a waiter that left keeps its place while its input lives.
#[tokio::test(start_paused = true)]
async fn the_line_is_finite_and_fifo_3() {
    let node = Node::with(one_slot());
    let session = node.session();
    let running = node.call(&session);
    let first = node.io.admit(&session).expect("one of two");
    let mut input = first.input(4, 0).expect("there is room");
    fill(&mut input, b"kept");
    let second = node.io.admit(&session).expect("two of two");
    assert_eq!(full(node.io.admit(&session)), Dimension::IoQueued);

    let (woken, waker) = WakeCount::new();
    let (mut first, mut second) = (Box::pin(first.wait()), Box::pin(second.wait()));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_with(second.as_mut(), &waker).is_pending());
    drop(first);
    assert_eq!(node.io.snapshot().queued, 2, "the input keeps the place");
    assert_eq!(node.io.snapshot().staged_bytes, BLOCK);
    assert_eq!(full(node.io.admit(&session)), Dimension::IoQueued);
    drop(input);
    assert_eq!(node.io.snapshot().queued, 1);

    // A newcomer does not overtake.
    let third = node.io.admit(&session).expect("one place is free again");
    let mut third = Box::pin(third.wait());
    assert!(poll_once(third.as_mut()).is_pending());
    drop(running);
    assert_eq!(woken.wakes(), 1);
    assert!(poll_once(third.as_mut()).is_pending());
    let ready = match poll_once(second.as_mut()) {
        Poll::Ready(ready) => ready.expect("granted"),
        Poll::Pending => panic!("the first in line must be granted"),
    };
    drop(ready);
    assert!(matches!(poll_once(third.as_mut()), Poll::Ready(Ok(_))));

    drop((second, third, session));
    node.assert_zero();
}

/// io.13, io.73: queue age ends a wait and leaves the running call's own deadline alone. io.28: retirement wakes waiters
/// and refuses new admissions.
#[tokio::test(start_paused = true)]
async fn queue_age_and_retirement_end_a_wait_9() {
    let node = Node::with(IoLimits { queue_wait: Duration::from_millis(50), ..one_slot() });
    let session = node.session();
    let running = node.call(&session);
    let deadline = running.deadline();
    let old = node.io.admit(&session).expect("there is room");
    assert_eq!(refused(old.wait().await), Kind::Deadline(Which::Queue));
    running.checkpoint().expect("the running call goes on");
    assert_eq!(running.deadline(), deadline);

    let (woken, waker) = WakeCount::new();
    let mut waiting = Box::pin(node.io.admit(&session).expect("there is room").wait());
    assert!(poll_with(waiting.as_mut(), &waker).is_pending());
    node.io.retire();
    assert_eq!(woken.wakes(), 1);
    match poll_once(waiting.as_mut()) {
        Poll::Ready(ready) => assert_eq!(refused(ready), Kind::Retired(What::Io)),
        Poll::Pending => panic!("retirement must end the wait"),
    }
    assert_eq!(refused(node.io.admit(&session)), Kind::Retired(What::Io));
    assert_eq!(refused(node.io.admit_now(&session)), Kind::Retired(What::Io));
    assert_eq!(refused(running.checkpoint()), Kind::Retired(What::Io));

    drop((waiting, running, session));
    node.assert_zero();
}

/// io.28: the broker's retirement wakes waiters and denies new ones.
#[tokio::test(start_paused = true)]
async fn broker_retirement_wakes_waiters_15() {
    let node = Node::with(one_slot());
    let session = node.session();
    let running = node.call(&session);
    let (woken, waker) = WakeCount::new();
    let mut waiting = Box::pin(node.io.admit(&session).expect("there is room").wait());
    assert!(poll_with(waiting.as_mut(), &waker).is_pending());
    node.broker.retire();
    assert_eq!(woken.wakes(), 1);
    match poll_once(waiting.as_mut()) {
        Poll::Ready(ready) => assert!(matches!(refused(ready), Kind::Retired(_))),
        Poll::Pending => panic!("retirement must end the wait"),
    }
    assert!(matches!(refused(node.io.admit(&session)), Kind::Retired(_)));
    drop((waiting, running, session));
    node.assert_zero();
}

/// io.15: rights are asked again after the wait. io.16: a call of another session is refused, whatever its identifiers.
#[tokio::test(start_paused = true)]
async fn rights_are_asked_again_and_calls_belong_to_their_session_6() {
    let node = Node::new();
    let (session, twin) = (node.session(), node.session());
    let ready = node.io.admit(&session).expect("there is room").wait().await.expect("nobody in front");
    let foreign = twin.dispatch(TEST.operation(0), Cost::new()).expect("allowed");
    assert_eq!(refused(ready.start(foreign)), Kind::Denied(Denied::ForeignSession));
    node.assert_zero();

    let ready = node.io.admit(&session).expect("there is room").wait().await.expect("nobody in front");
    node.plan.withdraw();
    let denied = refused(session.dispatch(TEST.operation(0), Cost::new()));
    assert!(matches!(denied, Kind::Denied(Denied::Withdrawn) | Kind::Retired(What::Plan)), "{denied:?}");
    drop(ready);

    drop((session, twin));
    node.assert_zero();
}

/// io.15, io.17: rights taken back between dispatch and start refuse the start.
#[tokio::test(start_paused = true)]
async fn rights_taken_back_before_the_start_refuse_it_6() {
    let node = Node::new();
    let session = node.session();
    let ready = node.io.admit_now(&session).expect("there is room");
    let call = session.dispatch(TEST.operation(0), Cost::new()).expect("allowed");
    node.plan.revoke(TEST.operation(0)).expect("it is bound");
    assert!(ready.start(call).is_err());
    drop(session);
    node.assert_zero();
}

/// io.10: a session without a deadline is refused, and nothing is charged.
#[tokio::test(start_paused = true)]
async fn a_session_without_deadline_is_refused_14() {
    let node = Node::new();
    let session = node.broker.open(&node.plan, Activation::unbounded()).expect("it may exist");
    assert_eq!(refused(node.io.admit(&session)), Kind::Denied(Denied::UnboundedDeadline));
    assert_eq!(refused(node.io.admit_now(&session)), Kind::Denied(Denied::UnboundedDeadline));
    node.assert_zero();
}

/// io.22, io.23, io.24: deadlines only narrow: the operation's, and the policy's wall time; a wait keeps the instant.
#[tokio::test(start_paused = true)]
async fn deadlines_only_narrow_10() {
    let policy = Policy::new().wall_time(Duration::from_millis(300));
    let node = Node::made(small(), BrokerLimits::default(), policy);
    let session = node.session_until(in_ms(1_000));
    assert_eq!(refused(node.io.admit_until(&session, in_ms(1_001))), Kind::Denied(Denied::WidenedDeadline));
    let past = in_ms(0);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(matches!(refused(node.io.admit_until(&session, past)), Kind::Deadline(_)));
    node.assert_zero();

    let early = in_ms(100);
    let ready = node.io.admit_until(&session, early).expect("earlier").wait().await.expect("nobody in front");
    let call =
        ready.start(session.dispatch(TEST.operation(0), Cost::new()).expect("allowed")).expect("its own");
    assert_eq!(call.deadline(), early, "the tighter of operation and policy");
    assert_eq!(refused(call.wait_for(std::future::pending::<()>()).await), Kind::Deadline(Which::Operation));
    assert_eq!(call.deadline(), early);
    drop(call);

    let call = node.call(&session);
    assert!(call.deadline() < session.deadline(), "the policy's wall time is tighter");
    drop((call, session));
    node.assert_zero();
}

/// io.9, io.11: what is admitted is charged before anything is staged, and takes no running slot.
#[tokio::test(start_paused = true)]
async fn an_admission_is_charged_before_it_stages() {
    let node = Node::with(one_slot());
    let session = node.session();
    let admission = node.io.admit(&session).expect("there is room");
    let now = node.io.snapshot();
    assert_eq!((now.owners, now.queued, now.running, now.staged_bytes), (1, 1, 0, 0));
    // Slow staging keeps nobody from running.
    let other = node.call(&session);
    let memory = admission.reserve_input(100, 7).expect("there is room");
    assert_eq!(node.io.snapshot().staged_bytes, BLOCK);
    drop(other);
    let ready = admission.wait().await.expect("nobody in front");
    let now = node.io.snapshot();
    assert_eq!((now.queued, now.running), (0, 1));
    drop((ready, memory, session));
    node.assert_zero();
}

/// io.13: a wait is bounded by the operation's own deadline too.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_operation_deadline_9() {
    let node = Node::with(one_slot());
    let session = node.session();
    let running = node.call(&session);
    let waiting = node.io.admit_until(&session, in_ms(20)).expect("there is room");
    let mut waiting = pin!(waiting.wait());
    assert_eq!(refused(waiting.as_mut().await), Kind::Deadline(Which::Operation));
    assert!(poll_once(waiting.as_mut()).is_pending(), "inert after its end");
    drop((running, session));
    assert_eq!(node.io.snapshot().running, 0);
}

/// io.22, io.75: whatever time somebody asks for, there is a deadline or a refusal, and never a panic.
#[tokio::test(start_paused = true)]
async fn s47_no_length_of_time_panics() {
    let node = Node::new();
    let session = node.session();
    let seconds = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, u64::MAX - (1 << bit)]);
    let (mut made, mut refusals) = (0, 0);
    for seconds in seconds.chain([u64::MAX]) {
        for nanos in [0, 1, 999_999, 1_000_000, 999_999_999] {
            let time = Duration::new(seconds, nanos);
            let Ok(until) = Deadline::after(time) else {
                refusals += 1;
                continue;
            };
            made += 1;
            match node.io.admit_until(&session, until) {
                Ok(admission) => assert!(time <= Duration::from_secs(60) && admission.deadline() == until),
                Err(error) if time < Duration::from_millis(1) => {
                    assert!(matches!(error.kind(), Kind::Deadline(_)), "{time:?}: {error}");
                }
                Err(error) => assert_eq!(error.kind(), Kind::Denied(Denied::WidenedDeadline), "{time:?}"),
            }
            // A session that ends in a million years is a session, and its calls end with their policy.
            let policy = Policy::new().wall_time(time);
            let spec =
                PlanSpec::new("other", "publication").bind_with(&TEST, &node._provider.reference(), policy);
            if let Ok(plan) = node.broker.seal(spec)
                && let Ok(session) = node.broker.open(&plan, Activation::until(until))
            {
                assert!(
                    session.dispatch(TEST.operation(0), Cost::new()).is_ok() || time.is_zero(),
                    "{time:?}"
                );
            }
        }
    }
    assert!(made > 300 && refusals > 300, "{made} made, {refusals} refused");
    drop(session);
    node.assert_zero();
}

/// io.15: a word is marked as long as somebody waits at it, and no longer: who comes later goes straight through.
#[tokio::test(start_paused = true)]
async fn nothing_stays_marked_when_nobody_waits() {
    let node = Node::with(IoLimits { running: 1, ..small() });
    let session = node.session();
    let running = node.call(&session);
    let mut left = Box::pin(node.io.admit(&session).expect("there is room").wait());
    assert!(poll_once(left.as_mut()).is_pending());
    drop((left, running));
    let running = node.call(&session);
    let mut granted = Box::pin(node.io.admit(&session).expect("there is room").wait());
    assert!(poll_once(granted.as_mut()).is_pending());
    drop(running);
    drop(granted.await.expect("its turn"));
    let mut straight = Box::pin(node.io.admit(&session).expect("there is room").wait());
    assert!(poll_once(straight.as_mut()).is_ready(), "nobody waits in front");
    drop(straight);
    drop((node.call(&session), session));
    node.assert_zero();
}

/// io.93: the runtime goes with its last handle, and what still runs in it is stopped.
#[tokio::test(start_paused = true)]
async fn a_dropped_runtime_stops_what_runs_in_it() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    call.checkpoint().expect("it goes on");
    let Node { broker, io, plan, _provider } = node;
    drop(io);
    assert_eq!(refused(call.checkpoint()), Kind::Retired(What::Io));
    drop((call, session, plan, broker));
}

/// io.19: a stopped operation stages nothing more, whether it still waits or has its turn.
#[tokio::test(start_paused = true)]
async fn nothing_is_staged_for_what_was_stopped() {
    let node = Node::new();
    let session = node.session();
    let stopped = Kind::Stopped(StopCause::Caller);
    let admission = node.io.admit(&session).expect("there is room");
    drop(admission.input(1, 0).expect("it waits"));
    admission.stop_handle().stop();
    assert_eq!(refused(admission.input(1, 0)), stopped);
    assert_eq!(refused(admission.reserve_input(1, 0)), stopped);
    let ready = node.io.admit_now(&session).expect("there is room");
    drop(ready.input(1, 0).expect("it has its turn"));
    ready.stop_handle().stop();
    assert_eq!(refused(ready.input(1, 0)), stopped);
    drop((admission, ready, session));
    node.assert_zero();
}

/// Somebody is refused because what is free is promised to those in line. Before that is said, the line is looked at; for any
/// other reason it is not.
#[tokio::test(start_paused = true)]
async fn what_is_promised_to_nobody_is_not_refused() {
    use crate::account::charge::{Marks, Refused};
    use crate::account::scope::{Blocked, Scope};
    let node = Node::with(one_slot());
    let session = node.session();
    let refused = |blocked| Refused { blocked, scope: Scope::Node, marks: Marks::NONE };
    let again = |why| admit_again(session.lease(), None, None, None, Error::from_refused(refused(why)));
    let counted = || session.lease().shared().floor.refusals.of(Dimension::IoRunning);
    let before = counted();
    assert_eq!(full(again(Blocked::Full(Dimension::IoRunning))), Dimension::IoRunning);
    assert_eq!(counted(), before + 1);
    let front = again(Blocked::Promised(Dimension::IoRunning)).expect("nobody stands in line");
    assert_eq!((node.io.snapshot().running, counted()), (1, before + 1));
    // And if it is full, that is what is said.
    assert_eq!(full(again(Blocked::Promised(Dimension::IoRunning))), Dimension::IoRunning);
    assert_eq!(counted(), before + 2);
    drop((front, session));
    node.assert_zero();
}

/// Whoever was stopped before it asked for its turn is told so, and is granted nothing: neither where there is room nor in line.
#[tokio::test(start_paused = true)]
async fn a_stopped_session_is_granted_nothing() {
    for full in [false, true] {
        let node = Node::with(one_slot());
        let (session, other) = (node.session(), node.session());
        let running = full.then(|| node.call(&other));
        let admission = node.io.admit(&session).expect("there is a place");
        session.stop();
        let mut wait = Box::pin(admission.wait());
        match poll_once(wait.as_mut()) {
            Poll::Ready(result) => assert_eq!(refused(result), Kind::Stopped(StopCause::Session)),
            Poll::Pending => panic!("it was told already"),
        }
        assert_eq!(node.io.snapshot().running, u64::from(full));
        drop((wait, running, session, other));
        node.assert_zero();
    }
}
