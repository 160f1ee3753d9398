//! Cleanup: what was closed is destroyed, what could not be closed comes back, and nothing is refunded for a failed close.
use super::jobs::{Scene, one_worker};
use super::support::*;
use crate::broker::pools::{CleanupResult, ProviderJob};
use std::sync::mpsc;

type Cleanup = ProviderJob<CleanupResult<Socket>>;

impl Scene {
    /// A cleanup that answers at once.
    fn cleanup(&self, connection: PooledConnection<Socket>, closes: bool) -> Cleanup {
        let close = async move |_: &mut Socket| closes;
        self.node.pools.cleanup(connection, close).expect("room")
    }
    /// A cleanup that waits until the gate is dropped, and then answers.
    fn delayed(&self, closes: bool) -> (Cleanup, tokio::sync::oneshot::Sender<()>) {
        let (gate, opened) = tokio::sync::oneshot::channel::<()>();
        let close = async move |socket: &mut Socket| {
            assert!(opened.await.is_err());
            socket.reusable.store(false, SeqCst);
            closes
        };
        (self.node.pools.cleanup(self.dialled(), close).expect("room"), gate)
    }
    /// Connections alive, counted, of failed cleanups, and requests that run.
    fn connections(&self) -> (usize, u64, u64, u64) {
        let counts = self.counts();
        (self.alive.load(SeqCst), counts.connections, counts.failed_cleanup, counts.running_requests)
    }
}

fn retained(result: Result<CleanupResult<Socket>, Error>) -> PooledConnection<Socket> {
    match result.expect("no panic") {
        CleanupResult::Retained(connection) => connection,
        CleanupResult::Closed => panic!("the close failed"),
    }
}

/// pools.79, pools.80: a failed close gives the connection back, still owned and charged, until it is destroyed; it can be
/// tried again.
#[tokio::test]
async fn a_failed_cleanup_keeps_its_owner_and_a_second_one_closes_76() {
    let scene = Scene::new(one_worker());
    let before = scene.counts();
    let job = scene.cleanup(scene.dialled(), false);
    assert_eq!((scene.counts().cleanup_jobs, scene.counts().workers), (1, 0));
    let connection = retained(job.await);
    assert_eq!((scene.connections(), scene.counts().cleanup_jobs), ((1, 1, 1, 1), 0));
    let connection = retained(scene.cleanup(connection, false).await);
    assert_eq!(scene.connections(), (1, 1, 1, 1), "it is counted once");
    assert!(matches!(scene.cleanup(connection, true).await, Ok(CleanupResult::Closed)));
    assert_eq!(scene.counts(), before);
    // Dropped, and asked to rest.
    drop(retained(scene.cleanup(scene.dialled(), false).await));
    assert_eq!(scene.counts(), before);
    let connection = retained(scene.cleanup(scene.dialled(), false).await);
    assert_kind(connection.park(Exchange::complete()), Kind::Denied(Denied::NotReusable));
    assert_eq!((scene.counts(), scene.connections()), (before, (0, 0, 0, 0)));
    scene.end().await;
}

/// pools.79: a successful close destroys the resource, then gives back its charge.
#[tokio::test]
async fn a_successful_cleanup_destroys_before_it_refunds() {
    #[derive(Debug)]
    struct Looks(ProviderPools, Arc<AtomicUsize>);
    impl Resource for Looks {
        fn is_reusable(&mut self) -> bool {
            true
        }
    }
    impl Drop for Looks {
        fn drop(&mut self) {
            let counts = self.0.snapshot();
            self.1.store((counts.connections * 10 + counts.cleanup_jobs) as usize, SeqCst);
        }
    }
    let node = Node::new(one_worker());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Looks>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let seen = Arc::new(AtomicUsize::new(0));
    let connection = node.dialled(&client, &session, Looks(node.pools.clone(), seen.clone()));
    let job = node.pools.cleanup(connection, async |_: &mut Looks| true).expect("room");
    assert!(matches!(job.await, Ok(CleanupResult::Closed)));
    assert_eq!((seen.load(SeqCst), node.counts().connections), (11, 0));
    drop((session, client, orders));
    node.assert_clean_end().await;
}

/// pools.89 (delayed cleanup): nothing of the connection or its call is given back before the close has ended, whoever
/// waits; without a waiter a connection that could not be closed is destroyed in the job.
#[tokio::test]
async fn a_delayed_cleanup_without_a_waiter_77() {
    let scene = Scene::new(one_worker());
    for closes in [true, false] {
        let (job, gate) = scene.delayed(closes);
        tokio::task::yield_now().await;
        drop(job);
        tokio::time::sleep(ms(10)).await;
        assert_eq!((scene.connections(), scene.counts().cleanup_jobs), ((1, 1, 0, 1), 1));
        drop(gate);
        until("it ends", || scene.counts().cleanup_jobs == 0).await;
        assert_eq!(scene.connections(), (0, 0, 0, 0));
    }
    assert_eq!(scene.counts().contained_panics, 0);
    scene.end().await;
}

/// pools.78: workers cannot take the places of cleanup, which goes on while they are all taken; nor the other way round.
/// Case S20: what frees others has places of its own.
#[tokio::test]
async fn cleanup_progresses_while_workers_are_saturated_75() {
    let scene = Scene::new(PoolLimits { workers: 2, ..one_worker() });
    let gates: Vec<_> = (0..2)
        .map(|_| {
            let (gate, opened) = mpsc::channel::<()>();
            let work = move |_call: PoolCall| assert!(opened.recv().is_err());
            drop(scene.node.pools.spawn_blocking(scene.call(), work).expect("room"));
            gate
        })
        .collect();
    assert_full(scene.node.pools.control_blocking(|| ()), Dimension::PoolsWorkers, Scope::Node);
    for _ in 0..3 {
        assert!(matches!(scene.cleanup(scene.dialled(), true).await, Ok(CleanupResult::Closed)));
    }
    let (job, gate) = scene.delayed(true);
    let refused = scene
        .node
        .pools
        .cleanup(scene.dialled(), async |_: &mut Socket| true)
        .expect_err("the one place is taken");
    assert_full(Err::<(), _>(refused.error()), Dimension::PoolsCleanupJobs, Scope::Node);
    // A refused connection is as it was: it can rest.
    refused.into_owner().park(Exchange::complete()).expect("room");
    scene.client.close_idle();
    assert_eq!((scene.counts().workers, scene.counts().cleanup_jobs), (2, 1));
    drop(gates);
    until("they end", || scene.counts().workers == 0).await;
    scene.node.pools.control_blocking(|| ()).expect("cleanup takes no worker").await.expect("no panic");
    drop(gate);
    assert!(matches!(job.await, Ok(CleanupResult::Closed)));
    scene.end().await;
}

/// A close that panics, while it is made and later, and a destructor that panics after a close that did not.
#[tokio::test]
async fn a_panicking_close_destroys_the_connection_78() {
    let scene = Scene::new(one_worker());
    let close = async |_: &mut Socket| -> bool {
        tokio::task::yield_now().await;
        panic!("planted: the close")
    };
    let failed = scene.node.pools.cleanup(scene.dialled(), close).expect("room").await;
    assert_eq!(failed.expect_err("it panicked").kind(), Kind::JobFailed);
    assert_eq!((scene.connections(), scene.counts().contained_panics), ((0, 0, 0, 0), 1));
    // After a failed one: the count goes with the connection.
    let connection = retained(scene.cleanup(scene.dialled(), false).await);
    let failed = scene.node.pools.cleanup(connection, close).expect("room").await;
    assert_eq!(failed.expect_err("it panicked").kind(), Kind::JobFailed);
    assert_eq!((scene.connections(), scene.counts().contained_panics), ((0, 0, 0, 0), 2));

    #[derive(Debug)]
    struct Bomb;
    impl Resource for Bomb {
        fn is_reusable(&mut self) -> bool {
            true
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("planted: the destructor");
        }
    }
    let client = scene.node.pools.client::<Bomb>(&scene.orders, OriginSlot::new(1)).expect("room");
    for closes in [true, false] {
        let connection = scene.node.dialled(&client, &scene.session, Bomb);
        let job = scene.node.pools.cleanup(connection, async move |_: &mut Bomb| closes).expect("room");
        if closes {
            assert_eq!(job.await.expect_err("it panicked").kind(), Kind::JobFailed);
        } else {
            drop(job);
            until("it ends", || scene.counts().cleanup_jobs == 0).await;
        }
        assert_eq!(scene.connections(), (0, 0, 0, 0));
    }
    assert_eq!(scene.counts().contained_panics, 4);
    drop(client);
    scene.end().await;
}

/// Connections of stopped calls, of replaced epochs and of a retired registry are cleaned up too; after it nothing is left.
#[tokio::test]
async fn cleanup_works_to_the_end() {
    let scene = Scene::new(one_worker());
    let (stopped, replaced, kept, given) =
        (scene.dialled(), scene.dialled(), scene.dialled(), scene.dialled());
    scene.session.stop();
    assert!(matches!(scene.cleanup(stopped, true).await, Ok(CleanupResult::Closed)));
    let next = scene.node.install("orders", 2, 1);
    let replaced = retained(scene.cleanup(replaced, false).await);
    assert_eq!(scene.counts().retired_connections, 3);
    assert!(matches!(scene.cleanup(replaced, true).await, Ok(CleanupResult::Closed)));
    scene.node.pools.retire();
    let kept = retained(scene.cleanup(kept, false).await);
    let left = scene.node.pools.shutdown(within(ms(10))).await;
    assert_eq!((left.is_clean(), left.connections, left.failed_cleanup), (false, 2, 1));
    assert!(matches!(scene.cleanup(kept, true).await, Ok(CleanupResult::Closed)));
    assert!(matches!(scene.cleanup(given, true).await, Ok(CleanupResult::Closed)));
    drop(next);
    scene.end().await;
}

/// pools.82, pools.83: a delayed close is in the report of a shutdown; when it has ended, the registry is clean, and the one
/// who waits for that is told.
#[tokio::test]
async fn a_shutdown_waits_for_a_delayed_close_77() {
    let scene = Scene::new(one_worker());
    let (job, gate) = scene.delayed(false);
    drop(job);
    let left = scene.node.pools.shutdown(within(ms(10))).await;
    assert!(!left.is_clean());
    assert_eq!((left.cleanup_jobs, left.connections, left.running_requests), (1, 1, 1));
    let waiting = {
        let node = scene.node.clone();
        tokio::spawn(async move { node.pools.shutdown(within(Duration::from_secs(10))).await })
    };
    let Scene { node, orders, client, session, alive } = scene;
    drop((orders, client, session));
    tokio::time::sleep(ms(10)).await;
    assert!(!waiting.is_finished());
    drop(gate);
    let left = waiting.await.expect("no panic");
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(alive.load(SeqCst), 0);
    node.assert_idle();
}

/// pools.79: the same with somebody who keeps what could not be closed: the shutdown is told when that is destroyed.
#[tokio::test]
async fn a_shutdown_waits_for_a_retained_connection() {
    let scene = Scene::new(one_worker());
    let connection = retained(scene.cleanup(scene.dialled(), false).await);
    let Scene { node, orders, client, session, alive } = scene;
    drop((orders, client, session));
    let waiting = {
        let node = node.clone();
        tokio::spawn(async move { node.pools.shutdown(within(Duration::from_secs(10))).await })
    };
    tokio::time::sleep(ms(10)).await;
    assert!(!waiting.is_finished());
    drop(connection);
    let left = waiting.await.expect("no panic");
    assert!(left.is_clean() && alive.load(SeqCst) == 0, "{left:?}");
    node.assert_idle();
}

/// pools.51: a connection of another registry.
#[tokio::test]
async fn a_foreign_connection_comes_back() {
    let (scene, other) = (Scene::new(one_worker()), Scene::new(one_worker()));
    let refused =
        other.node.pools.cleanup(scene.dialled(), async |_: &mut Socket| true).expect_err("of another");
    assert_kind(Err::<(), _>(refused.error()), Kind::Denied(Denied::ForeignClient));
    drop(refused);
    assert_eq!(scene.connections(), (0, 0, 0, 0));
    other.end().await;
    scene.end().await;
}
