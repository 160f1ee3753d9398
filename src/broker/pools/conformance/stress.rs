//! Many tasks on two threads, small limits, random cancels: nobody is forgotten, and everything is given back.
use super::support::*;
use std::sync::atomic::AtomicU64;

fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Case S02: ten thousand requests, about half of them dropped somewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_waiter_is_forgotten_while_others_come_leave_and_cancel() {
    let limits = PoolLimits {
        running: 6,
        running_per_tenant: 3,
        running_per_provider: 4,
        requests_per_tenant: 64,
        requests_per_provider: 128,
        connections_per_client: 2,
        connections: 5,
        idle_connections: 3,
        initial_backoff: Duration::from_millis(1),
        maximum_backoff: Duration::from_millis(1),
        ..PoolLimits::default()
    };
    let io = IoLimits { running: 7, ..IoLimits::default() };
    let node = Arc::new(Node::with(io, limits));
    let providers: Vec<_> = (0..3).map(|n| node.install(&format!("provider-{n}"), 1, 0)).collect();
    let clients: Vec<_> = providers.iter().map(|provider| node.client::<Socket>(provider)).collect();
    let alive = Arc::new(AtomicUsize::new(0));
    let served = Arc::new(AtomicU64::new(0));
    let refused = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for worker in 0..24_u64 {
        let provider = &providers[worker as usize % 3];
        let plan = node.plan(&format!("tenant-{}", worker % 4), provider);
        let client = clients[worker as usize % 3].clone();
        let (node, alive) = (node.clone(), alive.clone());
        let (served, refused) = (served.clone(), refused.clone());
        tasks.push(tokio::spawn(async move {
            let mut seed = 0x9e37_79b9_7f4a_7c15 ^ (worker + 1);
            for _ in 0..420 {
                let session = node.session(&plan);
                let admission = match node.pools.admit(&client, &session) {
                    Ok(admission) => admission,
                    Err(_) => {
                        refused.fetch_add(1, SeqCst);
                        tokio::task::yield_now().await;
                        continue;
                    }
                };
                let mut wait = Box::pin(admission.wait());
                if next(&mut seed).is_multiple_of(4) {
                    // Polled a few times, then dropped wherever it stands.
                    for _ in 0..next(&mut seed) % 3 {
                        let polled = futures_poll(&mut wait).await;
                        if polled {
                            break;
                        }
                    }
                    continue;
                }
                let ready = wait.await.expect("its turn comes");
                if next(&mut seed).is_multiple_of(8) {
                    continue;
                }
                let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
                let mut acquire = Box::pin(client.acquire(&call));
                if next(&mut seed).is_multiple_of(6) {
                    let _ = futures_poll(&mut acquire).await;
                    continue;
                }
                let connection = match acquire.await {
                    Ok(Acquired::Idle(connection)) => connection,
                    Ok(Acquired::Dial(reservation)) => {
                        tokio::task::yield_now().await;
                        reservation.connected(Socket::new(&alive)).expect("in time")
                    }
                    Err(error) => {
                        // A dial that somebody dropped makes the client pause.
                        assert!(error.retry_after().is_some() || error.dimension().is_some(), "{error}");
                        continue;
                    }
                };
                tokio::task::yield_now().await;
                if next(&mut seed).is_multiple_of(5) {
                    drop(connection);
                } else {
                    // No room to rest is an answer too.
                    let _parked = connection.park(Exchange::complete());
                }
                served.fetch_add(1, SeqCst);
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.expect("nobody hangs").expect("no panic");
    }
    until("everything is given back", || node.pools.snapshot().is_idle()).await;
    node.assert_idle();
    assert!(served.load(SeqCst) > 1000, "served only {}", served.load(SeqCst));
    for client in &clients {
        client.close_idle();
    }
    assert_eq!(alive.load(SeqCst), 0);
    let snapshot = node.pools.snapshot();
    assert_eq!((snapshot.connections, snapshot.idle_connections), (0, 0), "{snapshot:?}");
}

/// Polls once with the task's own waker; whether it was ready.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready()))
        .await
}
