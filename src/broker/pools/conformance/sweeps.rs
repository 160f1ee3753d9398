//! Sweeps: the same request, dropped at its k-th poll, and with each of its reservations refused. After each, the node holds
//! nothing, and the next request goes through.
use super::poll::{cancel_at, sweep_cancels};
use super::support::*;

fn tight() -> PoolLimits {
    PoolLimits {
        connections_per_client: 1,
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        initial_backoff: ms(1),
        maximum_backoff: ms(1),
        ..PoolLimits::default()
    }
}

struct Scene {
    node: Node,
    client: ProviderClient<Socket>,
    plan: Plan,
    alive: Arc<AtomicUsize>,
}

impl Scene {
    fn new(io: IoLimits, limits: PoolLimits) -> Scene {
        let node = Node::on(Clock::tokio(), io, limits);
        let orders = node.install("orders", 1, 0);
        let (client, plan) = (node.client(&orders), node.plan("alpha", &orders));
        Scene { node, client, plan, alive: Arc::new(AtomicUsize::new(0)) }
    }

    /// Everything a request does: stage, wait, start, connect, exchange, park.
    async fn request(&self, session: &CapabilitySession) -> Result<(), Error> {
        let admission = self.node.pools.admit(&self.client, session)?;
        let input = admission.input(512, 16)?;
        tokio::task::yield_now().await;
        let call = admission.wait().await?.dispatch(SEND, Cost::new())?;
        let mut connection = match self.client.acquire(&call).await? {
            Acquired::Idle(connection) => connection,
            Acquired::Dial(reservation) => {
                call.io().wait_for(tokio::task::yield_now()).await?;
                reservation.connected(Socket::new(&self.alive))?
            }
        };
        call.io().wait_for(tokio::task::yield_now()).await?;
        drop(input);
        assert!(connection.resource().is_reusable());
        let output = call.io().buffer(512, 0)?.retain()?;
        connection.park(Exchange::complete())?;
        drop((output, call));
        Ok(())
    }

    /// The node holds nothing but what rests, and a request goes through.
    async fn check(&self, after: &str) {
        let counts = self.node.counts();
        assert!(counts.is_idle() && self.node.io.snapshot().is_zero(), "{after}: {counts:?}");
        assert_eq!(counts.connections as usize, self.alive.load(SeqCst), "{after}: {counts:?}");
        tokio::time::sleep(ms(2)).await;
        let session = self.node.session(&self.plan);
        self.request(&session).await.unwrap_or_else(|error| panic!("{after}: {error}"));
    }
}

/// pools.60, pools.63: at every poll.
/// Case S01, behaviour (41): all units there are, of each kind one, can be had again after each drop.
#[tokio::test(start_paused = true)]
async fn a_request_may_be_dropped_at_every_poll() {
    let scene = Scene::new(IoLimits::default(), tight());
    let mut dropped = 0;
    for k in 0.. {
        scene.client.close_idle();
        let session = scene.node.session(&scene.plan);
        let done = cancel_at(k, scene.request(&session)).await;
        drop(session);
        match done {
            Some(result) => {
                result.expect("nothing was in its way");
                break;
            }
            None => dropped += 1,
        }
        scene.check(&format!("dropped at poll {k}")).await;
    }
    assert!(dropped >= 4, "only {dropped}");
    scene.client.close_idle();
    scene.node.assert_clean_end().await;
}

/// The same while others hold the running unit and the connection: dropped while it waits for each of them, and just after
/// each was handed over to it.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_may_be_dropped_at_every_poll() {
    let limits = PoolLimits { running: 2, running_per_tenant: 2, running_per_provider: 2, ..tight() };
    let scene = Scene::new(IoLimits::default(), limits);
    let mut dropped = 0;
    for k in 0.. {
        scene.client.close_idle();
        let (session, other) = (scene.node.session(&scene.plan), scene.node.session(&scene.plan));
        let holder = scene.node.dialled(&scene.client, &other, Socket::new(&scene.alive));
        let second = scene.node.call(&scene.client, &other);
        let hand_over = async {
            // First the unit, then the connection comes free.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            drop(second);
            for _ in 0..6 {
                tokio::task::yield_now().await;
            }
            holder.park(Exchange::complete()).expect("room");
        };
        let (done, ()) = tokio::join!(cancel_at(k, scene.request(&session)), hand_over);
        drop((session, other));
        if let Some(result) = done {
            result.expect("its turn came");
            break;
        }
        dropped += 1;
        scene.check(&format!("dropped at poll {k}")).await;
    }
    assert!(dropped >= 4, "only {dropped}");
    scene.client.close_idle();
    scene.node.assert_clean_end().await;
}

/// Dropped by hand at each poll of the wait for a connection, handed over or not.
#[tokio::test]
async fn a_wait_for_a_connection_may_be_dropped_at_every_poll() {
    let node = Node::new(PoolLimits { connections_per_client: 1, ..PoolLimits::default() });
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let dropped = sweep_cancels(20, |k| {
        client.close_idle();
        let used = node.dialled(&client, &session, Nothing);
        let call = node.call(&client, &session);
        let mut used = Some(used);
        let taken = super::poll::poll_times(k, client.acquire(&call), |polls| {
            if polls == 2
                && let Some(used) = used.take()
            {
                used.park(Exchange::complete()).expect("room");
            }
        });
        let finished = taken.is_ready();
        drop((taken, used, call));
        node.assert_idle();
        assert!(node.counts().connections <= 1);
        // Whoever comes next is not stuck behind the one who left.
        let call = node.call(&client, &session);
        client.close_idle();
        drop(client.reserve_connection(&call).expect("nobody waits").connected(Nothing).expect("in time"));
        finished
    });
    assert_eq!(dropped, 3);
    drop(session);
    node.assert_idle();
}

/// Each limit that a request meets, at zero room in turn: the refusal names it, and nothing is held.
/// Case S08: what the dimensions before it took goes back.
#[tokio::test(start_paused = true)]
async fn each_reservation_of_a_request_may_be_refused() {
    let roomy = PoolLimits { initial_backoff: ms(1), maximum_backoff: ms(1), ..PoolLimits::default() };
    let pools = |change: fn(&mut PoolLimits)| {
        let mut limits = roomy;
        change(&mut limits);
        limits
    };
    let io = |change: fn(&mut IoLimits)| {
        let mut limits = IoLimits::default();
        change(&mut limits);
        limits
    };
    let cases: [(Dimension, IoLimits, PoolLimits); 9] = [
        (Dimension::PoolsPending, io(|_| {}), pools(|limits| limits.pending = 1)),
        (
            Dimension::PoolsRequestsPerTenant,
            io(|_| {}),
            pools(|limits| {
                limits.requests_per_tenant = 1;
                limits.running_per_tenant = 1;
            }),
        ),
        (
            Dimension::PoolsRequestsPerProvider,
            io(|_| {}),
            pools(|limits| {
                limits.requests_per_provider = 1;
                limits.running_per_provider = 1;
            }),
        ),
        (
            Dimension::IoOwners,
            io(|limits| {
                limits.owners = 1;
                limits.running = 1;
                limits.queued = 1;
            }),
            roomy,
        ),
        (Dimension::IoQueued, io(|limits| limits.queued = 1), roomy),
        (
            Dimension::IoStagedBytes,
            io(|limits| {
                limits.staged_bytes = 512;
                limits.chunk_bytes = 512;
                limits.stream_chunks = 1;
            }),
            roomy,
        ),
        (
            Dimension::IoBuffers,
            io(|limits| {
                limits.buffers = 1;
                limits.stream_chunks = 1;
            }),
            roomy,
        ),
        (
            Dimension::PoolsConnections,
            io(|_| {}),
            pools(|limits| {
                limits.connections = 1;
                limits.connections_per_client = 1;
                limits.idle_connections = 1;
            }),
        ),
        (Dimension::PoolsIdleConnections, io(|_| {}), pools(|limits| limits.idle_connections = 1)),
    ];
    for (dimension, io, limits) in cases {
        let scene = Scene::new(io, limits);
        let orders = scene.node.pools.provider("orders").expect("installed");
        let second = scene.node.pools.client::<Socket>(&orders, OriginSlot::new(1)).expect("room");
        let (session, other) = (scene.node.session(&scene.plan), scene.node.session(&scene.plan));
        // Whatever the limit is of, one unit of it is held.
        let admission = scene.node.pools.admit(&scene.client, &other).expect("room");
        let input = admission.input(512, 0).expect("room");
        let mut staged = Some((admission, input));
        let pending = matches!(
            dimension,
            Dimension::PoolsPending
                | Dimension::PoolsRequestsPerTenant
                | Dimension::PoolsRequestsPerProvider
                | Dimension::IoOwners
                | Dimension::IoQueued
                | Dimension::IoStagedBytes
                | Dimension::IoBuffers
        );
        let held = if pending {
            None
        } else {
            staged = None;
            let connection = scene.node.dialled(&second, &other, Socket::new(&scene.alive));
            if dimension == Dimension::PoolsIdleConnections {
                connection.park(Exchange::complete()).expect("room");
                None
            } else {
                Some(connection)
            }
        };
        let before = scene.node.counts();
        let error = scene.request(&session).await.expect_err("it was to be refused");
        assert_eq!((error.dimension(), error.effect()), (Some(dimension), Effect::NotSent), "{error}");
        let after = scene.node.counts();
        assert_eq!(
            (after.pending_requests, after.running_requests),
            (before.pending_requests, before.running_requests)
        );
        assert_eq!(after.connections, before.connections, "{dimension}");
        drop((staged, held, session, other));
        second.close_idle();
        scene.check(dimension.name()).await;
        scene.client.close_idle();
        scene.node.assert_clean_end().await;
    }
}
