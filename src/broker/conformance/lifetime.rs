//! How long what of a session lives, who can tell, and what that says about using its place again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Node, SEND, after, soon};
use crate::Deadline;
use crate::broker::{Activation, Cost, Probe, Reclaim, Remaining, TABLE_BYTES_MAX};
use crate::broker::{Denied, Invalid, Kind, StopCause, Which};

// b86: stop and close are seen at once by everything of the session, and may come twice.
#[test]
fn a_stopped_session_refuses_everything_and_may_be_stopped_again() {
    let node = Node::new();
    let session = node.open();
    let call = node.start(&session, Cost::new());
    let stop = session.stop_handle();
    stop.stop();
    session.stop();
    let stopped = Kind::Stopped(StopCause::Session);
    assert!(stop.is_stopped());
    assert_eq!(session.check().unwrap_err().kind(), stopped);
    assert_eq!(session.dispatch(SEND, Cost::new()).unwrap_err().kind(), stopped);
    assert_eq!(node.io.admit(&session).unwrap_err().kind(), stopped);
    assert_eq!(session.reserve_resource_table(1).unwrap_err().kind(), stopped);
    assert_eq!(call.checkpoint().unwrap_err().kind(), stopped);
    session.close();
    stop.stop();
    assert_eq!(call.checkpoint().unwrap_err().kind(), stopped);
    drop(call);
    node.assert_clean();
}

struct Cancelled(AtomicBool);

impl Probe for Cancelled {
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

// b86, io.28: the execution's probe is asked live, at dispatch, at admission and while something waits.
#[tokio::test]
async fn a_probe_that_says_cancelled_stops_what_it_is_asked_for() {
    let node = Node::new();
    let probe = Arc::new(Cancelled(AtomicBool::new(false)));
    let session = node.broker.open(&node.plan, soon().probe(probe.clone())).unwrap();
    let call = node.start(&session, Cost::new());
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        probe.0.store(true, Ordering::Relaxed);
    };
    let (waited, ()) = tokio::join!(call.wait_for(std::future::pending::<()>()), cancel);
    let cancelled = Kind::Stopped(StopCause::Probe);
    assert_eq!(waited.unwrap_err().kind(), cancelled);
    assert_eq!(session.check().unwrap_err().kind(), cancelled);
    assert_eq!(session.dispatch(SEND, Cost::new()).unwrap_err().kind(), cancelled);
    drop((call, session));
    assert_eq!(Arc::strong_count(&probe), 1, "the session let go of its probe");
    node.assert_clean();
}

// b94: a session whose deadline has passed is not opened, and one that passes it does nothing more.
#[test]
fn an_expired_session_is_refused() {
    let node = Node::new();
    let past = Deadline::at(node.broker.clock().now() - Duration::from_millis(50));
    let refused = node.broker.open(&node.plan, Activation::until(past)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Deadline(Which::Session));
    let session = node.broker.open(&node.plan, Activation::until(after(Duration::from_millis(20)))).unwrap();
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(session.check().unwrap_err().kind(), Kind::Deadline(Which::Session));
    assert_eq!(session.dispatch(SEND, Cost::new()).unwrap_err().kind(), Kind::Deadline(Which::Session));
    drop(session);
    node.assert_clean();
}

// b95, io.10, io.22, io.23: a tighter deadline passes through, a wider one is refused, and none at all too.
#[test]
fn a_deadline_only_narrows_and_there_must_be_one() {
    let node = Node::new();
    let session = node.open();
    let tighter = after(Duration::from_secs(1));
    assert_eq!(node.io.admit_until(&session, tighter).unwrap().deadline(), tighter);
    let wider = after(Duration::from_secs(3600));
    let refused = node.io.admit_until(&session, wider).unwrap_err();
    assert_eq!(refused.kind(), Kind::Denied(Denied::WidenedDeadline));
    let unbounded = node.broker.open(&node.plan, Activation::unbounded()).unwrap();
    assert!(session.is_bounded() && !unbounded.is_bounded());
    assert!(unbounded.deadline() > wider && unbounded.check().is_ok());
    let refused = node.io.admit(&unbounded).unwrap_err();
    assert_eq!(refused.kind(), Kind::Denied(Denied::UnboundedDeadline));
}

// b80, b88, io.18 to io.20: a call in another thread outlives its session and holds it until it ends.
#[test]
fn a_call_in_another_thread_holds_its_session_until_it_ends() {
    let node = Node::new();
    let session = node.open();
    let observer = session.observer();
    let call = node.start(&session, Cost::new());
    let mut buffer = call.buffer(512, 0).unwrap();
    buffer.spare_mut(5).unwrap().copy_from_slice(b"bytes");
    buffer.advance_written(5).unwrap();
    let buffer = buffer.retain().unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        wait.recv().unwrap();
        let late = call.checkpoint();
        drop(call);
        late
    });
    session.close();
    assert_eq!(observer.remaining(), Remaining { calls: 1, ..Remaining::default() });
    assert!(observer.is_closed() && !observer.is_quiescent());
    assert_eq!((node.broker.snapshot().sessions, node.io.snapshot().running), (1, 1));
    go.send(()).unwrap();
    let late = thread.join().unwrap();
    assert_eq!(late.unwrap_err().kind(), Kind::Stopped(StopCause::Session), "a late completion is refused");
    // io.68: what was retained keeps its bytes and the session's slot.
    assert_eq!(buffer.bytes(), b"bytes");
    assert_eq!((observer.live_calls(), node.io.snapshot().result_bytes), (1, 512));
    drop(buffer);
    assert!(observer.is_quiescent());
    node.assert_clean();
}

// io.39, io.40: after the store is gone, the place is reusable only if nothing of the session lives.
#[test]
fn a_session_without_remains_is_reusable() {
    let node = Node::new();
    let session = node.open();
    let observer = session.observer();
    assert!(!observer.is_quiescent() && !observer.is_closed());
    drop(node.start(&session, Cost::new()));
    drop(session.reserve_resource_table(64).unwrap());
    drop(session);
    assert!(observer.is_quiescent());
    assert_eq!(observer.after_store_dropped(), Reclaim::Reusable);
    assert_eq!(observer.after_store_dropped(), Reclaim::Reusable);
    node.assert_clean();
}

// io.41 to io.43: what is reclaimed after the verdict does not take the quarantine back.
#[test]
fn quarantine_is_sticky() {
    let node = Node::new();
    let session = node.open();
    let (observer, second) = (session.observer(), session.observer());
    let call = node.start(&session, Cost::new());
    drop(session);
    let left = Remaining { calls: 1, ..Remaining::default() };
    assert_eq!(observer.after_store_dropped(), Reclaim::Quarantined(left));
    let clone = observer.clone();
    assert_eq!(second.after_store_dropped(), Reclaim::Quarantined(left));
    drop(call);
    for observer in [&observer, &second, &clone] {
        assert!(observer.is_quiescent());
        assert_eq!(observer.after_store_dropped(), Reclaim::Quarantined(Remaining::default()));
    }
    node.assert_clean();
}

// io.40: each kind of remains prevents a reusable report, an open session included.
#[test]
fn everything_that_lives_prevents_a_reusable_report() {
    let node = Node::new();
    let session = node.open();
    let open = Remaining { open: true, ..Remaining::default() };
    assert_eq!(session.observer().after_store_dropped(), Reclaim::Quarantined(open));
    drop(session);

    let session = node.open();
    let observer = session.observer();
    let accepted = session.dispatch(SEND, Cost::new()).unwrap();
    drop(session);
    let left = Remaining { accepted: 1, ..Remaining::default() };
    assert_eq!((observer.remaining(), observer.live_calls()), (left, 1));
    assert_eq!(observer.after_store_dropped(), Reclaim::Quarantined(left));
    drop(accepted);

    let session = node.open();
    let observer = session.observer();
    let waiting = node.io.admit(&session).unwrap();
    drop(session);
    let left = Remaining { calls: 1, ..Remaining::default() };
    assert_eq!(observer.after_store_dropped(), Reclaim::Quarantined(left));
    drop(waiting);
    node.assert_clean();
}

// b96, io.103, io.104: a resource table is charged, outlives its session, holds no call, and blocks a clean claim.
#[test]
fn a_resource_table_outlives_its_session_and_holds_no_call() {
    let node = Node::new();
    let session = node.open();
    let observer = session.observer();
    let before = node.broker.snapshot().metadata_bytes;
    let table = session.reserve_resource_table(TABLE_BYTES_MAX).unwrap();
    assert_eq!(table.bytes(), TABLE_BYTES_MAX);
    assert_eq!(node.broker.snapshot().metadata_bytes, before + u64::from(TABLE_BYTES_MAX));
    assert_eq!((observer.live_calls(), node.io.snapshot().owners), (0, 0));
    drop(session);
    let left = Remaining { tables: 1, ..Remaining::default() };
    assert_eq!(observer.remaining(), left);
    assert_eq!(observer.after_store_dropped(), Reclaim::Quarantined(left));
    assert_eq!(node.broker.snapshot().sessions, 1);
    drop(table);
    assert!(observer.is_quiescent());
    node.assert_clean();
}

// b96, b87: a table that cannot be is refused and leaves nothing.
#[test]
fn resource_tables_are_bounded() {
    let node = Node::new();
    let session = node.open();
    let before = node.broker.snapshot();
    assert_eq!(session.reserve_resource_table(0).unwrap_err().kind(), Kind::Invalid(Invalid::ZeroLimit));
    let refused = session.reserve_resource_table(TABLE_BYTES_MAX + 1).unwrap_err();
    assert!(matches!(refused.kind(), Kind::TooLarge(_)));
    let mut tables = Vec::new();
    let refused = loop {
        match session.reserve_resource_table(TABLE_BYTES_MAX) {
            Ok(table) => tables.push(table),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused.kind(), Kind::Full(_)), "{refused:?}");
    assert!(!tables.is_empty());
    drop(tables);
    assert_eq!(node.broker.snapshot(), before);
    drop(session);
    node.assert_clean();
}

// b91: a panic of the provider gives everything back.
#[test]
fn a_panic_of_the_provider_gives_everything_back() {
    let node = Node::new();
    let session = node.open();
    let call = node.start(&session, Cost::new());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _buffer = call.buffer(512, 0).unwrap();
        panic!("the provider's");
    }));
    assert!(panicked.is_err());
    assert_eq!(session.observer().live_calls(), 0);
    drop(session);
    node.assert_clean();
}
