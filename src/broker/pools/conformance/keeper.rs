//! Deadlines that the control task serves: no timer per wait, and grants that are not started go back.
use super::poll::poll_once;
use super::support::*;
use crate::broker::error::{Invalid, Terminal};
use crate::broker::io::{IoBuffer, TryWrite};
use std::future::{Future, pending};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tokio::time::Instant;

fn one_running() -> PoolLimits {
    PoolLimits {
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        queue_age: Duration::from_secs(2),
        ..PoolLimits::default()
    }
}

/// Served at the instant, never before it; tokio's timers count whole milliseconds.
#[track_caller]
fn assert_at(begun: Instant, wanted: Duration) {
    let after = begun.elapsed();
    assert!(after >= wanted && after <= wanted + ms(2), "after {after:?} instead of {wanted:?}");
}

/// pools.52, pools.53: a grant that is neither polled nor started goes back at its deadline, and the next in line has it;
/// whether it was got at once or from the line, and before the control task has run at all.
/// Case S17.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_not_started_goes_back_at_its_deadline() {
    let node = Node::paused(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));

    let begun = Instant::now();
    let ready = node.pools.admit_now_until(&client, &session, within(Duration::from_secs(1))).expect("room");
    let next = node.pools.admit(&client, &session).expect("room").wait().await.expect("it is taken back");
    assert_at(begun, Duration::from_secs(1));
    assert_kind(ready.dispatch(SEND, Cost::new()), Kind::Deadline(Which::Operation));
    assert_eq!((node.counts().running_requests, node.counts().pending_requests), (1, 0));

    // From the line: granted to a future that nobody polls again.
    let begun = Instant::now();
    let until = within(Duration::from_secs(1));
    let mut forgotten = Box::pin(node.pools.admit_until(&client, &session, until).expect("room").wait());
    assert!(poll_once(forgotten.as_mut()).is_pending());
    let mut behind = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(behind.as_mut()).is_pending());
    drop(next);
    assert!(poll_once(behind.as_mut()).is_pending(), "it was granted to the one in front");
    let call = behind.await.expect("it is taken back").dispatch(SEND, Cost::new()).expect("allowed");
    assert_at(begun, Duration::from_secs(1));
    let Poll::Ready(late) = poll_once(forgotten.as_mut()) else { panic!("its deadline has passed") };
    assert_kind(late, Kind::Deadline(Which::Operation));
    drop((call, forgotten));

    // Through a wait that did not have to wait.
    let begun = Instant::now();
    let until = within(Duration::from_secs(1));
    let ready =
        node.pools.admit_until(&client, &session, until).expect("room").wait().await.expect("there is room");
    let next = node.pools.admit(&client, &session).expect("room").wait().await.expect("it is taken back");
    assert_at(begun, Duration::from_secs(1));
    assert_kind(ready.dispatch(SEND, Cost::new()), Kind::Deadline(Which::Operation));
    drop((next, session));
    node.assert_clean_end().await;
}

/// pools.51: thirty waits, each with a deadline of its own, end each at its own instant.
#[tokio::test(start_paused = true)]
async fn every_wait_ends_at_its_own_instant() {
    let node = Node::paused(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let running = node.call(&client, &session);
    tokio::task::yield_now().await;
    let mut waits = Vec::new();
    for number in 0..30_u64 {
        // In no order: 17 and 30 have no common divisor.
        let after = ms(100 + number * 17 % 30 * 50);
        let begun = Instant::now();
        let wait = node.pools.admit_until(&client, &session, within(after)).expect("room").wait();
        waits.push(tokio::spawn(async move {
            assert_kind(wait.await, Kind::Deadline(Which::Operation));
            assert_at(begun, after);
        }));
        tokio::time::sleep(ms(3)).await;
    }
    for wait in waits {
        wait.await.expect("it asserts nothing wrong");
    }
    assert_eq!((node.counts().running_requests, node.counts().pending_requests), (1, 0));
    drop((running, session));
    node.assert_clean_end().await;
}

/// pools.52: a slot that is watched for who was in it before serves who is in it now at its own instant: not earlier, and
/// not later either.
#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_past_ends_nobody_else() {
    let node = Node::paused(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    tokio::task::yield_now().await;
    for (first, second) in [(ms(300), ms(900)), (ms(900), ms(300))] {
        let call = |after| {
            let ready = node.pools.admit_now_until(&client, &session, within(after)).expect("room");
            ready.dispatch(SEND, Cost::new()).expect("allowed")
        };
        let before = call(first);
        assert!(poll_once(pin!(before.io().wait_for(pending::<()>()))).is_pending());
        drop(before);
        let (begun, now) = (Instant::now(), call(second));
        let error = now.io().wait_for(pending::<()>()).await.expect_err("it never comes");
        assert_eq!(error.kind(), Kind::Deadline(Which::Operation));
        assert_at(begun, second);
    }
    drop(session);
    node.assert_clean_end().await;
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A wait arms no timer: one on a thread without any executor, where tokio's timers panic, ends in time too.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_wait_needs_no_timer_of_its_executor() {
    let node = Node::new(one_running());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let ground = client.core.registry().ground();
    until("the control task runs", || ground.floor.keeper.is_there()).await;
    let begun = std::time::Instant::now();
    let ready = node.pools.admit_now_until(&client, &session, within(ms(60))).expect("room");
    let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
    let admission = node.pools.admit_until(&client, &session, within(ms(30))).expect("room");
    let waits = std::thread::spawn(move || {
        assert_kind(block_on(admission.wait()), Kind::Deadline(Which::Operation));
        assert!(begun.elapsed() >= ms(30));
        let error = block_on(call.io().wait_for(pending::<()>())).expect_err("it never comes");
        assert_eq!(error.kind(), Kind::Deadline(Which::Operation));
        assert!(begun.elapsed() >= ms(60));
    });
    let joined = tokio::task::spawn_blocking(move || waits.join()).await.expect("it does not panic");
    joined.expect("it asserts nothing wrong");
    drop(session);
    node.assert_clean_end().await;
}

/// When the control task is lost, its runtime with it, nobody is left waiting for a deadline that nobody serves.
#[test]
fn nobody_waits_for_a_lost_keeper() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (control, other) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    let node = control.block_on(async { Node::new(one_running()) });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let keeper = &client.core.registry().ground().floor.keeper;
    control.block_on(until("the control task runs", || keeper.is_there()));
    let call = node.call(&client, &session);
    let waits = node.pools.admit(&client, &session).expect("room").wait();
    let started = other.spawn(async move { call.io().wait_for(pending::<()>()).await });
    let queued = other.spawn(async move { waits.await.map(drop) });
    other.block_on(until("both wait", || keeper.planned() < u64::MAX && node.counts().pending_requests == 1));
    control.shutdown_timeout(Duration::from_secs(5));
    assert!(!keeper.is_there());
    let kind = Kind::Retired(What::Io);
    let error = other.block_on(started).expect("it does not panic").expect_err("it was stopped");
    assert_eq!((error.kind(), error.effect()), (kind, Effect::Uncertain));
    assert_kind(other.block_on(queued).expect("it does not panic"), kind);
    drop(session);
    let left = node.counts();
    assert!(left.is_idle() && left.control_failed && !left.is_clean(), "{left:?}");
}

/// A step of a transfer reads no clock where the keeper watches the deadline. It meets a stop all the same.
#[tokio::test(start_paused = true)]
async fn a_step_that_reads_no_clock_meets_a_stop() {
    use crate::broker::StreamBudget;
    use crate::broker::io::TransferOptions;
    use crate::queue::keeper::Keeper;
    let node = Node::paused(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    until("the keeper has begun", || node.pools.registry().ground().floor.keeper.is_there()).await;

    let ready = node.pools.admit_now(&client, &session).expect("there is room");
    let budget = StreamBudget::new(64, 64).expect("within the ceilings");
    let call = ready.dispatch(SEND, Cost::new().stream(budget)).expect("allowed");
    assert!(Keeper::watches(call.io().lease()));
    let transfer =
        call.io().transfer(TransferOptions { chunk_bytes: 512, outstanding: 2 }).expect("it has a budget");
    let written = || {
        let mut buffer = transfer.output_buffer(4).expect("a place is free");
        buffer.spare_mut(4).expect("the call goes on").fill(1);
        buffer.advance_written(4).expect("it fits");
        buffer
    };
    let (mut first, second) = (written(), written());
    call.io().stop_handle().stop();
    let of = |error: Error| error.kind();
    let stopped = Some(Kind::Stopped(StopCause::Caller));
    assert_eq!((first.spare_mut(0).err().map(of), second.finish().err().map(of)), (stopped, stopped));
    drop((first, transfer, call, session));
    node.assert_clean_end().await;
}

/// The keeper serves deadlines. Whoever finds no cell to park in, and who has a probe to ask, looks for itself beside it.
#[tokio::test(start_paused = true)]
async fn who_must_look_for_itself_does_so_beside_the_keeper() {
    struct Cancelled(AtomicBool);
    impl crate::broker::Probe for Cancelled {
        fn is_cancelled(&self) -> bool {
            self.0.load(SeqCst)
        }
    }
    let node = Node::paused(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let plan = node.plan("alpha", &orders);
    let session = node.session(&plan);
    until("the keeper has begun", || node.pools.registry().ground().floor.keeper.is_there()).await;

    let begun = Instant::now();
    let call = Arc::new(node.call(&client, &session));
    let stop = call.io().stop_handle();
    let waits: Vec<_> = (0..6)
        .map(|_| {
            let call = call.clone();
            tokio::spawn(
                async move { call.io().wait_for(pending::<()>()).await.map_err(|error| error.kind()) },
            )
        })
        .collect();
    tokio::time::sleep(ms(5)).await;
    stop.stop();
    for wait in waits {
        assert_eq!(wait.await.expect("no panic"), Err(Kind::Stopped(StopCause::Caller)));
    }
    assert!(begun.elapsed() <= ms(20), "it took {:?}", begun.elapsed());

    let begun = Instant::now();
    let cancelled = Arc::new(Cancelled(AtomicBool::new(false)));
    let probed = Activation::until(within(Duration::from_secs(60))).probe(cancelled.clone());
    let probed = node.broker.open(&plan, probed).expect("room");
    let probed_call = node.call(&client, &probed);
    let wait = tokio::spawn(async move {
        probed_call.io().wait_for(pending::<()>()).await.map_err(|error| error.kind())
    });
    tokio::time::sleep(ms(25)).await;
    cancelled.0.store(true, SeqCst);
    assert_eq!(wait.await.expect("no panic"), Err(Kind::Stopped(StopCause::Probe)));
    assert!(begun.elapsed() <= ms(40), "it took {:?}", begun.elapsed());
    drop((call, session, probed));
    node.assert_clean_end().await;
}

/// Ahead enough for a machine that takes the core away meanwhile.
const AHEAD: Duration = ms(300);

/// How many times something succeeds, up to its first error.
fn successes<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> (usize, Error) {
    let mut count = 0;
    loop {
        match attempt() {
            Ok(_) => count += 1,
            Err(error) => return (count, error),
        }
    }
}

/// io.27, D7: the control task is never let run, so nobody tells a call of its deadline. The clock does, by the sixteenth look; a
/// checkpoint reads it each time.
#[tokio::test]
async fn without_the_keeper_the_clock_ends_a_call_by_the_sixteenth_look() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    tokio::task::yield_now().await;
    let started = || {
        let ready = node.pools.admit_now_until(&client, &session, within(AHEAD)).expect("room");
        ready.dispatch(SEND, Cost::new()).expect("allowed")
    };
    let (looked, asked) = (started(), started());
    for call in [&looked, &asked] {
        drop(call.io().buffer(1, 0).expect("the deadline is ahead"));
    }
    std::thread::sleep(AHEAD + ms(50));
    let (late, error) = successes(|| looked.io().buffer(1, 0));
    assert!((1..=15).contains(&late), "{late} looks did without the clock");
    assert_eq!(error.kind(), Kind::Deadline(Which::Operation));
    let (late, error) = successes(|| asked.io().checkpoint());
    assert_eq!((late, error.kind()), (0, Kind::Deadline(Which::Operation)));
    drop((looked, asked, session));
    node.assert_clean_end().await;
}

/// io.27, D7: the same for calls that come one after another, each in the slot of the last: the session is over by the
/// sixteenth at the latest if the control task is never let run, and at once if it is.
#[tokio::test]
async fn a_session_that_is_over_starts_few_calls_beside_a_late_keeper_and_none_beside_one_in_time() {
    let node = Node::new(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    for lets_it_run in [false, true] {
        let activation = Activation::until(within(AHEAD));
        let session = node.broker.open(&node.plan("alpha", &orders), activation).expect("room");
        tokio::task::yield_now().await;
        let start = || node.pools.admit_now(&client, &session)?.dispatch(SEND, Cost::new());
        drop(start().expect("the deadline is ahead"));
        if lets_it_run {
            tokio::time::sleep(AHEAD + ms(50)).await;
        } else {
            std::thread::sleep(AHEAD + ms(50));
        }
        let (late, error) = successes(start);
        assert_eq!(error.kind(), Kind::Deadline(Which::Session));
        assert_eq!(late > 0, !lets_it_run, "{late} calls were started too late");
        assert!(late <= 15, "{late} calls were started too late");
    }
    node.assert_clean_end().await;
}

/// D7: a call is told of its deadline as soon as the keeper runs: the next look refuses.
#[tokio::test(start_paused = true)]
async fn what_the_keeper_told_is_seen_by_the_next_look() {
    let node = Node::paused(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    tokio::task::yield_now().await;
    let ready = node.pools.admit_now_until(&client, &session, within(ms(50))).expect("room");
    let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
    drop(call.io().buffer(1, 0).expect("the deadline is ahead"));
    tokio::time::sleep(ms(51)).await;
    let error = call.io().buffer(1, 0).expect_err("it was told");
    assert_eq!(error.kind(), Kind::Deadline(Which::Operation));
    drop((call, session));
    node.assert_clean_end().await;
}

/// A chunk of a call, written but not yet a result.
fn chunk(call: &PoolCall, bytes: &[u8]) -> IoBuffer {
    let mut buffer = call.io().buffer(16, 0).expect("there is room");
    let spare = buffer.spare_mut(bytes.len()).expect("the call goes on");
    spare.copy_from_slice(bytes);
    buffer.advance_written(bytes.len()).expect("it fits");
    buffer
}

/// io.66: ends of a stream that never wait meet a stop at their next visit, whichever comes first and however many quick looks
/// came before: what is queued is not delivered, and nothing more goes in.
#[tokio::test(start_paused = true)]
async fn ends_that_never_wait_meet_a_stop() {
    let node = Node::paused(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    tokio::task::yield_now().await;
    let cancelled = Kind::Ended(Terminal::Cancelled);
    for (passed, writer_first) in (0..4).flat_map(|passed| [(passed, true), (passed, false)]) {
        let call = node.call(&client, &session);
        let (mut writer, mut reader) = call.io().stream(4).expect("there is room");
        for _ in 0..passed {
            writer.try_write(chunk(&call, b"passed")).expect("room");
            assert!(matches!(reader.try_read(), Poll::Ready(Ok(Some(_)))));
        }
        writer.try_write(chunk(&call, b"queued")).expect("room");
        let late = chunk(&call, b"late").retain().expect("the call goes on");
        call.io().stop_handle().stop();
        let mut write = Some(late);
        for turn in 0..2 {
            if (turn == 0) == writer_first {
                let Some(Err(TryWrite::Error(error))) = write.take().map(|late| writer.try_write(late))
                else {
                    panic!("it was stopped before the write, after {passed}")
                };
                assert_eq!(error.kind(), cancelled);
            } else {
                let Poll::Ready(Err(error)) = reader.try_read() else {
                    panic!("it was stopped before the read, after {passed}")
                };
                assert_eq!(error.kind(), cancelled);
            }
        }
    }
    drop(session);
    node.assert_clean_end().await;
}

/// io.57, io.58: a full ring gives a chunk back that is to wait for room, and says of any other what is wrong with it, as a ring
/// with room does; one whose reader has left says that.
#[tokio::test(start_paused = true)]
async fn a_full_ring_gives_back_what_may_wait_and_refuses_the_rest() {
    let io = IoLimits { stream_bytes: 16, ..IoLimits::default() };
    let node = Node::on(Clock::tokio(), io, PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    tokio::task::yield_now().await;
    let call = node.call(&client, &session);
    let full = || {
        let (mut writer, mut reader) = call.io().stream(2).expect("there is room");
        writer.try_write(chunk(&call, b"1")).expect("room");
        assert!(matches!(reader.try_read(), Poll::Ready(Ok(Some(_)))));
        for _ in 0..2 {
            writer.try_write(chunk(&call, b"2").retain().expect("the call goes on")).expect("room");
        }
        (writer, reader)
    };
    let result = |bytes: &[u8]| chunk(&call, bytes).retain().expect("the call goes on");
    let refused = |tried| match tried {
        Err(TryWrite::Error(error)) => Error::kind(&error),
        other => panic!("an error was expected, not {other:?}"),
    };

    let (mut writer, mut reader) = full();
    let Err(TryWrite::Full(waits)) = writer.try_write(result(b"waits")) else { panic!("it is full") };
    assert_eq!(waits.bytes(), b"waits");
    let mut consumed = result(b"x");
    consumed.consume(1).expect("one is there");
    assert_eq!(refused(writer.try_write(consumed)), Kind::Invalid(Invalid::EmptyChunk));
    let Err(TryWrite::Full(waits)) = writer.try_write(waits) else { panic!("it is full") };
    assert!(matches!(reader.try_read(), Poll::Ready(Ok(Some(_)))));
    writer.try_write(waits).expect("room");
    // Of sixteen bytes eight are left, also for what would have to wait.
    assert_eq!(writer.accepted(), 8);
    assert_eq!(refused(writer.try_write(result(b"123456789"))), Kind::TooLarge(Dimension::IoStreamBytes));
    drop((writer, reader));

    let (mut writer, reader) = full();
    reader.close();
    assert_eq!(refused(writer.try_write(result(b"nobody"))), Kind::Ended(Terminal::Closed));
    drop((writer, call, session));
    node.assert_clean_end().await;
}

/// D7: a wall time counts from the start of each call, also where its slot is watched and the start could do without the clock.
#[tokio::test(start_paused = true)]
async fn a_wall_time_begins_at_each_start() {
    let node = Node::paused(PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let policy = crate::broker::policy::Policy::new().wall_time(ms(900));
    let spec = PlanSpec::new("alpha", "publication").bind_with(&HTTP, &orders.reference(), policy);
    let session = node.session(&node.broker.seal(spec).expect("there is room"));
    tokio::task::yield_now().await;
    for _ in 0..20 {
        let call = node.call(&client, &session);
        assert_eq!(call.io().deadline(), within(ms(900)));
        drop(call);
        tokio::time::sleep(ms(7)).await;
    }
    drop(session);
    node.assert_clean_end().await;
}
