//! Running calls: phases, stops, jobs: io.18 to io.37, io.88.
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use super::poll::{WakeCount, poll_once, poll_with};
use super::support::*;

/// io.33: the states of an operation. io.27: the deadline is asked before a result is handed out. io.26: waiting keeps the
/// running slot.
#[tokio::test(start_paused = true)]
async fn phases_go_from_queued_to_retired_10() {
    let node = Node::new();
    let session = node.session();
    let admission = node.io.admit(&session).expect("there is room");
    let handle = admission.stop_handle();
    assert_eq!(handle.phase(), Phase::Queued);
    let ready = admission.wait().await.expect("nobody in front");
    assert_eq!(handle.phase(), Phase::Ready);
    let call =
        ready.start(session.dispatch(TEST.operation(0), Cost::new()).expect("allowed")).expect("its own");
    assert_eq!(handle.phase(), Phase::Running);
    {
        let mut wait = pin!(call.wait_for(std::future::pending::<()>()));
        assert!(poll_once(wait.as_mut()).is_pending());
        assert_eq!(handle.phase(), Phase::WaitingProvider);
        assert_eq!(node.io.snapshot().running, 1);
    }
    assert_eq!(handle.phase(), Phase::Running);
    assert_eq!(call.wait_for(async { 7 }).await.expect("in time"), 7);
    let buffer = call.buffer(1, 0).expect("there is room");
    drop(call);
    assert_eq!(handle.phase(), Phase::Cleaning);
    drop(buffer);
    assert_eq!(handle.phase(), Phase::Retired);
    drop(session);
    node.assert_zero();
}

/// io.28, io.88: an operation has four park cells. Whoever finds none looks by a timer, and is stopped no later than a look
/// away; who leaves makes room.
#[tokio::test(start_paused = true)]
async fn more_watchers_than_park_cells_are_all_stopped() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (woken, waker) = WakeCount::new();
    let watches: Vec<_> = (0..5).map(|_| Box::pin(StopWatch::new())).collect();
    let [mut a, mut b, mut c, mut d, mut e] = <[_; 5]>::try_from(watches).expect("five");
    let poll = |watch: &mut std::pin::Pin<Box<StopWatch>>| {
        call.poll_stop(watch.as_mut(), &mut std::task::Context::from_waker(&waker))
    };
    for watch in [&mut a, &mut b, &mut c, &mut d, &mut e] {
        assert!(poll(watch).is_pending());
    }
    // The fifth has a timer. It looks, finds nothing, and goes on.
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert_eq!(woken.wakes(), 1);
    assert!(poll(&mut e).is_pending());
    // A seat that was left is the next one's.
    d.as_mut().leave(&call);
    assert!(poll(&mut e).is_pending());
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert!(poll(&mut d).is_pending());
    let before = woken.wakes();
    call.stop_handle().stop();
    assert_eq!(woken.wakes(), before + 4, "all that are parked");
    for watch in [&mut a, &mut b, &mut c, &mut d, &mut e] {
        match poll(watch) {
            Poll::Ready(error) => assert_eq!(error.kind(), Kind::Stopped(StopCause::Caller)),
            Poll::Pending => panic!("a stop must end every watch"),
        }
    }
    drop((a, b, c, d, e, call, session));
    node.assert_zero();
}

/// io.28: the one who looks by a timer finds the stop at its next look.
#[tokio::test(start_paused = true)]
async fn who_found_no_park_cell_is_stopped_at_the_next_look() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let seated: Vec<_> = (0..4).map(|_| Box::pin(StopWatch::new())).collect();
    let mut seated = seated;
    for watch in &mut seated {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(call.poll_stop(watch.as_mut(), &mut cx).is_pending());
    }
    let handle = call.stop_handle();
    let begun = tokio::time::Instant::now();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(25)).await;
        handle.stop();
    };
    let mut looking = Box::pin(StopWatch::new());
    let looks = std::future::poll_fn(|cx| call.poll_stop(looking.as_mut(), cx));
    let (error, ()) = tokio::join!(looks, stop);
    assert_eq!(error.kind(), Kind::Stopped(StopCause::Caller));
    assert!(begun.elapsed() <= Duration::from_millis(25 + 11), "{:?}", begun.elapsed());
    drop((looking, seated, call, session));
    node.assert_zero();
}

/// io.33: a handle is to be had as long as it waits.
#[tokio::test(start_paused = true)]
async fn a_wait_has_a_stop_handle() {
    let node = Node::with(IoLimits { running: 1, ..small() });
    let session = node.session();
    let running = node.call(&session);
    let mut wait = Box::pin(node.io.admit(&session).expect("there is room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    let handle = wait.stop_handle().expect("it waits");
    assert_eq!(handle.phase(), Phase::Queued);
    handle.stop();
    match poll_once(wait.as_mut()) {
        Poll::Ready(result) => assert_eq!(refused(result), Kind::Stopped(StopCause::Caller)),
        Poll::Pending => panic!("a stop must end the wait"),
    }
    assert!(wait.stop_handle().is_none(), "it is over");
    drop((wait, running, session));
    node.assert_zero();
}

/// io.27: a result that comes with the stop is not handed out. io.28: a stop wakes the wait.
/// Case S51.
#[tokio::test(start_paused = true)]
async fn a_stop_wins_over_a_result_that_comes_with_it() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let (woken, waker) = WakeCount::new();
    let handle = call.stop_handle();
    {
        let mut wait = pin!(call.wait_for(std::future::pending::<()>()));
        assert!(poll_with(wait.as_mut(), &waker).is_pending());
        handle.stop();
        assert_eq!(woken.wakes(), 1);
        match poll_once(wait.as_mut()) {
            Poll::Ready(result) => assert_eq!(refused(result), Kind::Stopped(StopCause::Caller)),
            Poll::Pending => panic!("a stop must end the wait"),
        }
    }
    let late = node.call(&session);
    let handle = late.stop_handle();
    let result = late.wait_for(async move { handle.stop() }).await;
    assert_eq!(refused(result), Kind::Stopped(StopCause::Caller));
    drop((call, late, session));
    node.assert_zero();
}

/// io.28: a session that can only be asked is asked while it waits, every 10 ms.
#[tokio::test(start_paused = true)]
async fn a_probe_ends_a_wait_within_its_interval() {
    struct Cancelled(std::sync::atomic::AtomicBool);
    impl crate::broker::session::Probe for Cancelled {
        fn is_cancelled(&self) -> bool {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
    }
    let probe = std::sync::Arc::new(Cancelled(false.into()));
    let node = Node::new();
    let activation = Activation::until(in_ms(60_000)).probe(probe.clone());
    let session = node.broker.open(&node.plan, activation).expect("there is room");
    let call = node.call(&session);
    let before = tokio::time::Instant::now();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(25)).await;
        probe.0.store(true, std::sync::atomic::Ordering::Relaxed);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = call.wait_for(std::future::pending::<()>()) => {
            assert_eq!(refused(result), Kind::Stopped(StopCause::Probe));
        }
        () = cancel => panic!("the wait must end"),
    }
    assert!(before.elapsed() <= Duration::from_millis(40), "it took {:?}", before.elapsed());
    drop((call, session));
    node.assert_zero();
}

/// io.19, io.20, io.30: a stop, a retirement and the end of the session refund nothing of a thread that still works.
#[tokio::test]
async fn a_running_thread_keeps_everything_until_it_returns_5() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let input = filled(&call, b"input");
    let (go, told) = mpsc::channel::<()>();
    let (ready, started) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let scratch = call.buffer(100, 0).expect("there is room");
        ready.send(()).expect("the test waits");
        told.recv().expect("the test tells");
        let seen = refused(call.checkpoint());
        drop((scratch, input));
        seen
    });
    started.recv().expect("the thread tells");
    session.stop();
    node.io.retire();
    drop(session);
    let now = node.io.snapshot();
    assert_eq!((now.running, now.buffers, now.staged_bytes), (1, 2, 2 * BLOCK));
    go.send(()).expect("the thread waits");
    let seen = thread.join().expect("the thread does not panic");
    assert!(matches!(seen, Kind::Stopped(StopCause::Session) | Kind::Retired(What::Io)), "{seen:?}");
    node.assert_zero();
}

/// io.37: a panic in the work leaves the operation cleaning while a buffer lives. Dropping the runtime frees no survivor.
#[tokio::test(start_paused = true)]
async fn a_panic_leaves_survivors_in_cleaning_11() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let handle = call.stop_handle();
    let buffer = filled(&call, b"kept");
    let work = tokio::spawn(async move {
        let _call = call;
        panic!("planted: the work panics");
    });
    assert!(work.await.is_err());
    assert_eq!(handle.phase(), Phase::Cleaning);
    let Node { broker, io, plan, _provider } = node;
    drop(io);
    assert_eq!(buffer.bytes(), b"kept");
    assert_eq!(handle.phase(), Phase::Cleaning);
    drop(buffer);
    assert_eq!(handle.phase(), Phase::Retired);
    drop((session, plan, _provider, broker));
}

/// io.36: a stop handle keeps nothing and refunds nothing.
#[tokio::test(start_paused = true)]
async fn a_stop_handle_is_weak() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let handle = call.stop_handle();
    let buffer = call.buffer(1, 0).expect("there is room");
    handle.stop();
    handle.stop();
    assert_eq!(node.io.snapshot().buffers, 1, "a stop refunds nothing");
    drop((call, buffer));
    assert_eq!(handle.phase(), Phase::Retired);
    let next = node.call(&session);
    handle.stop();
    next.checkpoint().expect("the handle does not reach the slot's next operation");
    drop((next, session));
    node.assert_zero();
    drop(handle);
}

/// io.88: a job waiter that is dropped before the answer requests stop; the job itself keeps the call.
#[tokio::test(start_paused = true)]
async fn a_dropped_job_waiter_requests_stop_and_the_job_keeps_its_call() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let waiter = call.job_waiter();
    {
        let mut answer = pin!(waiter.wait(std::future::pending::<()>()));
        assert!(poll_once(answer.as_mut()).is_pending());
        call.checkpoint().expect("nobody asked it to stop");
    }
    assert_eq!(refused(call.checkpoint()), Kind::Stopped(StopCause::Caller));
    assert_eq!(node.io.snapshot().running, 1, "the job is not over");
    drop(call);
    node.assert_zero();

    let call = node.call(&session);
    let waiter = call.job_waiter();
    let job = tokio::spawn(async move {
        let scratch = call.buffer(8, 0).expect("there is room");
        (call, scratch.capacity())
    });
    let (call, capacity) = waiter.wait(job).await.expect("in time").expect("the job does not panic");
    assert_eq!(capacity, 8);
    call.checkpoint().expect("an answered waiter requests nothing");
    call.job_waiter().answered();
    call.checkpoint().expect("an answered waiter requests nothing");
    drop((call, session));
    node.assert_zero();
}

/// io.27: a job's answer after the deadline is not handed out.
#[tokio::test(start_paused = true)]
async fn a_job_is_waited_for_until_the_deadline() {
    let node = Node::new();
    let session = node.session_until(in_ms(30));
    let call = node.call(&session);
    let waited = call.job_waiter().wait(std::future::pending::<()>()).await;
    assert!(matches!(refused(waited), Kind::Deadline(_)));
    drop((call, session));
    node.assert_zero();
}

/// io.34: a waiter and a grant that were given up are cleaning while their input lives. io.35: what the operation does
/// inside changes nothing of its session, which is open all the time.
#[tokio::test(start_paused = true)]
async fn an_interrupted_owner_is_cleaning_while_its_input_lives() {
    let node = Node::with(IoLimits { running: 1, ..small() });
    let session = node.session();
    let observer = session.observer();
    for granted in [false, true] {
        let running = (!granted).then(|| node.call(&session));
        let admission = node.io.admit(&session).expect("there is room");
        let handle = admission.stop_handle();
        let input = admission.input(1, 0).expect("there is room");
        let mut wait = Box::pin(admission.wait());
        let polled = poll_once(wait.as_mut());
        assert_eq!(handle.phase(), if granted { Phase::Ready } else { Phase::Queued });
        drop((polled, wait));
        assert_eq!(handle.phase(), Phase::Cleaning);
        drop(running);
        assert_eq!((observer.live_calls(), node.io.snapshot().running), (1, 0));
        drop(input);
        assert_eq!((handle.phase(), observer.live_calls()), (Phase::Retired, 0));
    }
    let call = node.call(&session);
    {
        let mut wait = pin!(call.wait_for(std::future::pending::<()>()));
        assert!(poll_once(wait.as_mut()).is_pending());
        assert_eq!(call.phase(), Phase::WaitingProvider);
        session.check().expect("the session goes on");
        assert!(!observer.is_closed());
    }
    drop((call, session));
    assert!(observer.is_closed());
    node.assert_zero();
}

/// io.4: what is only described holds nothing: a provider, a plan and a session that does nothing.
#[tokio::test(start_paused = true)]
async fn a_dormant_plan_holds_nothing() {
    let node = Node::new();
    node.assert_zero();
    assert_eq!(node.io.snapshot().metadata_bytes, 0);
    let session = node.session();
    assert_eq!(session.observer().live_calls(), 0);
    drop(session.dispatch(TEST.operation(0), Cost::new()).expect("allowed"));
    node.assert_zero();
    drop(session);
    assert!(node.broker.snapshot().is_clean());
}

/// io.31: a stop says of a started call that its effect is uncertain, whoever asks and however it was stopped; of one that
/// had not started it says that nothing was sent. Neither undoes anything, and no answer invites to try again.
#[tokio::test(start_paused = true)]
async fn a_stop_after_the_start_is_uncertain_and_no_reason_to_try_again() {
    use crate::broker::error::{Effect, Retry};
    let node = Node::new();
    let session = node.session_until(in_ms(1_000));
    let options = crate::broker::io::TransferOptions { chunk_bytes: 512, outstanding: 1 };
    let waiting = node.io.admit(&session).expect("there is room");
    waiting.stop_handle().stop();
    let error = waiting.wait().await.expect_err("it was stopped");
    assert_eq!((error.effect(), error.retry()), (Effect::NotSent, Retry::Renewed));
    for how in 0..2 {
        let call = node.call(&session);
        let (mut staged, unwritten) =
            (call.buffer(512, 0).expect("room"), call.buffer(512, 0).expect("room"));
        match how {
            0 => call.stop_handle().stop(),
            _ => tokio::time::advance(Duration::from_millis(1_001)).await,
        }
        let answers = [
            call.buffer(512, 0).map(drop).expect_err("it is over"),
            call.reserve_scratch(512, 0).map(drop).expect_err("it is over"),
            call.stream(1).map(drop).expect_err("it is over"),
            call.transfer(options).map(drop).expect_err("it is over"),
            staged.spare_mut(1).map(drop).expect_err("it is over"),
            unwritten.retain().map(drop).expect_err("it is over"),
            call.checkpoint().expect_err("it is over"),
            call.wait_for(async {}).await.expect_err("it is over"),
            call.job_waiter().wait(async {}).await.expect_err("it is over"),
        ];
        for error in answers {
            assert_eq!(error.effect(), Effect::Uncertain, "{error}");
            assert!(!matches!(error.retry(), Retry::Released | Retry::After(_)), "{error}");
        }
    }
    drop(session);
    node.assert_zero();
}

/// O3: a call that is stopped and then meets the retirement keeps the cause that came first.
#[tokio::test]
async fn the_first_cause_of_a_stop_stays() {
    let node = Node::new();
    let session = node.session_until(in_ms(1_000));
    let call = node.call(&session);
    call.stop_handle().stop();
    node.io.retire();
    assert_eq!(refused(call.checkpoint()), Kind::Stopped(StopCause::Caller));
    let mut wait = Box::pin(call.wait_for(async {}));
    let Poll::Ready(ended) = poll_once(wait.as_mut()) else { panic!("it was stopped") };
    assert_eq!(refused(ended), Kind::Stopped(StopCause::Caller));
    drop(wait);
    drop((call, session));
    node.assert_zero();
}

/// io.28: the runtime ends with its last handle, whatever else of the broker is still there.
#[tokio::test(start_paused = true)]
async fn the_runtime_ends_with_its_last_handle() {
    let node = Node::new();
    let session = node.session();
    let call = node.call(&session);
    let Node { broker, io, plan, _provider } = node;
    let other = io.clone();
    drop(io);
    drop(call.buffer(1, 0).expect("there is another handle"));
    drop(other);
    assert_eq!(refused(call.buffer(1, 0)), Kind::Retired(What::Io));
    drop((call, session, plan, _provider, broker));
}
