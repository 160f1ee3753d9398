//! Runtimes that end under their jobs, and races of everything that can happen to a job.
use super::jobs::{Scene, Token, one_worker};
use super::support::*;
use crate::broker::pools::{CleanupResult, ProviderJob};
use std::sync::mpsc;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// pools.84, pools.87: a runtime that is shut down under its jobs: what they own is destroyed, their charges come back,
/// their waiters learn of it, and there is no clean report.
#[test]
fn jobs_of_a_runtime_that_ends_give_their_charges_back_74() {
    let ends = runtime();
    let (scene, job, begun, cleanup) = ends.block_on(async {
        let scene = Scene::new(PoolLimits { workers: 3, ..one_worker() });
        let pools = &scene.node.pools;
        let token = Token::new(&scene.alive, false);
        let work = move |_call: PoolCall| async move {
            std::future::pending::<()>().await;
            drop(token);
        };
        let begun = pools.spawn(scene.call(), work).expect("room");
        let close = async |_: &mut Socket| std::future::pending::<bool>().await;
        let cleanup = pools.cleanup(scene.dialled(), close).expect("room");
        tokio::task::yield_now().await;
        // Never polled.
        let token = Token::new(&scene.alive, true);
        let job = pools.spawn(scene.call(), move |_call| async move { drop(token) }).expect("room");
        assert_eq!((scene.counts().workers, scene.counts().cleanup_jobs), (2, 1));
        (scene, job, begun, cleanup)
    });
    assert_eq!(scene.alive.load(SeqCst), 3);
    drop(ends);
    let counts = scene.counts();
    assert!(counts.control_failed && counts.retired && counts.control_owners == 0, "{counts:?}");
    assert_eq!((counts.workers, counts.cleanup_jobs, counts.connections), (0, 0, 0));
    assert_eq!((counts.running_requests, scene.alive.load(SeqCst), counts.contained_panics), (0, 0, 1));
    let other = runtime();
    other.block_on(async {
        assert_eq!(job.await.expect_err("it is lost").kind(), Kind::JobFailed);
        assert_eq!(begun.await.expect_err("it is lost").kind(), Kind::JobFailed);
        assert_eq!(cleanup.await.map(drop).expect_err("it is lost").kind(), Kind::JobFailed);
        let left = scene.node.pools.shutdown(within(ms(10))).await;
        assert!(!left.is_clean() && left.control_failed);
    });
    drop((scene.session, scene.client, scene.orders));
    scene.node.assert_idle();
}

/// pools.83, pools.87: a blocking job outlives its runtime and the control task. It is counted until it has ended; what it
/// answered reaches who waits; the report stays that of an interrupted registry.
#[test]
fn a_blocking_job_outlives_its_control_task_74() {
    let ends = runtime();
    let (gate, opened) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel::<()>();
    let (scene, job): (Scene, ProviderJob<u32>) = ends.block_on(async {
        let scene = Scene::new(one_worker());
        let work = move |_call: PoolCall| {
            begun.send(()).expect("it is waited for");
            assert!(opened.recv().is_err());
            7
        };
        let job = scene.node.pools.spawn_blocking(scene.call(), work).expect("room");
        (scene, job)
    });
    begins.recv().expect("it begins");
    ends.shutdown_background();
    let other = runtime();
    other.block_on(async {
        until("the control task is gone", || scene.counts().control_owners == 0).await;
        let left = scene.node.pools.shutdown(within(ms(10))).await;
        assert!(left.control_failed && !left.is_clean());
        assert_eq!((left.workers, left.running_requests), (1, 1));
        drop(gate);
        assert_eq!(job.await, Ok(7));
        let left = scene.node.pools.shutdown(within(ms(10))).await;
        assert!(left.control_failed && !left.is_clean());
        assert_eq!((left.workers, left.running_requests), (0, 0));
    });
    drop((scene.session, scene.client, scene.orders));
    scene.node.assert_idle();
}

/// A connection that outlives the runtime: its cleanup cannot run, so it is destroyed and given back.
#[test]
fn a_cleanup_without_a_runtime_destroys() {
    let ends = runtime();
    let (scene, connection) = ends.block_on(async {
        let scene = Scene::new(one_worker());
        let connection = scene.dialled();
        (scene, connection)
    });
    drop(ends);
    let job = scene.node.pools.cleanup(connection, async |_: &mut Socket| true).expect("there is a place");
    let counts = scene.counts();
    assert_eq!((counts.cleanup_jobs, counts.connections, scene.alive.load(SeqCst)), (0, 0, 0));
    let lost = runtime().block_on(job).map(drop);
    assert_eq!(lost.expect_err("it never ran").kind(), Kind::JobFailed);
    drop((scene.session, scene.client, scene.orders));
    scene.node.assert_idle();
}

/// Ends of jobs, dropped waiters, refusals and a retirement in the middle, on several threads: each owner and each answer is
/// destroyed once, every charge comes back, and the end is clean.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn jobs_waiters_and_the_retirement_race() {
    for round in 0..30u64 {
        let limits = PoolLimits { workers: 4, cleanup_jobs: 2, ..PoolLimits::default() };
        let scene = Arc::new(Scene::new(limits));
        let tasks = (0..3u64).map(|task| {
            let scene = scene.clone();
            tokio::spawn(async move {
                for step in 0..40u64 {
                    let Ok(ready) = scene.node.pools.admit_now(&scene.client, &scene.session) else { break };
                    let Ok(call) = ready.dispatch(SEND, Cost::new()) else { break };
                    let (owned, answer) = (Token::new(&scene.alive, false), Token::new(&scene.alive, false));
                    match (round + task + step) % 4 {
                        0 => {
                            let work = move |_call: PoolCall| async move {
                                tokio::task::yield_now().await;
                                drop(owned);
                                answer
                            };
                            keep_or_drop(scene.node.pools.spawn(call, work), step).await;
                        }
                        1 => {
                            let work = move |_call: PoolCall| {
                                drop(owned);
                                answer
                            };
                            keep_or_drop(scene.node.pools.spawn_blocking(call, work), step).await;
                        }
                        2 => {
                            let job = scene.node.pools.control_blocking(move || (owned, answer).1);
                            keep_or_drop(job, step).await;
                        }
                        _ => {
                            let Ok(dial) = scene.client.reserve_connection(&call) else { continue };
                            let Ok(connection) = dial.connected(Socket::new(&scene.alive)) else { continue };
                            let closes = step.is_multiple_of(3);
                            let close = async move |_: &mut Socket| {
                                drop(owned);
                                closes
                            };
                            let Ok(job) = scene.node.pools.cleanup(connection, close) else { continue };
                            if step % 2 == 0
                                && let Ok(CleanupResult::Retained(again)) = job.await
                            {
                                drop(scene.node.pools.cleanup(again, async |_: &mut Socket| true));
                            }
                        }
                    }
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        if round % 2 == 0 {
            scene.node.pools.retire();
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        let scene = Arc::into_inner(scene).expect("the tasks are over");
        let Scene { node, orders, client, session, alive } = scene;
        drop((orders, client, session));
        let left = node.pools.shutdown(within(Duration::from_secs(10))).await;
        assert!(left.is_clean() && left.contained_panics == 0, "round {round}: {left:?}");
        assert_eq!(alive.load(SeqCst), 0, "round {round}");
        node.assert_idle();
    }
}

async fn keep_or_drop<T: Send, E>(job: Result<ProviderJob<T>, E>, step: u64) {
    let Ok(job) = job else { return };
    if step.is_multiple_of(3) {
        drop(job);
    } else {
        drop(job.await);
    }
}
