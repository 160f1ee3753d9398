//! Admission that has to wait: tasks of one runtime that hand units to each other, every wait with a deadline.

use std::time::{Duration, Instant};

use latent_capabilities::broker::pools::PoolCall;
use latent_capabilities::broker::{CapabilitySession, Cost, PoolLimits};
use mea::admission::{FairShare, FairSharePermit};
use perf::{SEND, must};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::timeout_at;

use super::measure::{Group, Subject, Work, keep};
use super::ours::{World, runtime};

/// What a task goes through before it may run.
trait Gate: Clone + Send + Sync + 'static {
    /// Given back when dropped.
    type Held: Send;
    fn enter(&self) -> impl Future<Output = Self::Held> + Send;
}

#[derive(Clone)]
struct Ours {
    world: &'static World,
    session: Arc<CapabilitySession>,
}

impl Gate for Ours {
    type Held = PoolCall;

    async fn enter(&self) -> PoolCall {
        let admission = must(self.world.pools.admit(&self.world.clients[0], &self.session));
        must(must(admission.wait().await).dispatch(SEND, Cost::new()))
    }
}

/// When the waits of peers end, as far away as ours.
fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(3600)
}

#[derive(Clone)]
struct One {
    slots: &'static Semaphore,
    until: tokio::time::Instant,
}

impl Gate for One {
    type Held = SemaphorePermit<'static>;

    async fn enter(&self) -> SemaphorePermit<'static> {
        must(must(timeout_at(self.until, self.slots.acquire()).await))
    }
}

#[derive(Clone)]
struct Three {
    tenant: &'static Semaphore,
    provider: &'static Semaphore,
    node: &'static Semaphore,
    until: tokio::time::Instant,
}

impl Gate for Three {
    type Held = [SemaphorePermit<'static>; 3];

    async fn enter(&self) -> Self::Held {
        let all = async {
            [
                must(self.tenant.acquire().await),
                must(self.provider.acquire().await),
                must(self.node.acquire().await),
            ]
        };
        must(timeout_at(self.until, all).await)
    }
}

#[derive(Clone)]
struct Fair {
    slots: &'static FairShare<u64>,
    key: u64,
    until: tokio::time::Instant,
}

impl Gate for Fair {
    type Held = FairSharePermit<'static, u64>;

    async fn enter(&self) -> Self::Held {
        must(timeout_at(self.until, self.slots.acquire(self.key)).await)
    }
}

/// The tasks take turns: each enters, holds its unit over `yields` turns of the runtime, and gives it back.
fn turns<G: Gate>(runtime: &'static Runtime, gates: Vec<G>, yields: u32) -> Work {
    Box::new(move |operations| {
        let each = operations.div_ceil(gates.len() as u64);
        let start = Instant::now();
        runtime.block_on(async {
            let tasks: Vec<_> = gates
                .iter()
                .cloned()
                .map(|gate| {
                    tokio::spawn(async move {
                        let first = gate.enter().await;
                        // Until the others stand in line.
                        yield_now().await;
                        drop(first);
                        for _ in 1..each {
                            let held = gate.enter().await;
                            for _ in 0..yields {
                                yield_now().await;
                            }
                            drop(held);
                        }
                    })
                })
                .collect();
            for task in tasks {
                must(task.await);
            }
        });
        start.elapsed().mul_f64(operations as f64 / (each * gates.len() as u64) as f64)
    })
}

const NOT_FAIR: &str = "not fair between tenants";

struct Shape {
    tasks: usize,
    tenants: usize,
    slots: usize,
    yields: u32,
    workers: usize,
}

fn group(key: &'static str, title: &'static str, note: &'static str, shape: &Shape) -> Group {
    let (runtime, until) = (runtime(shape.workers), deadline());
    let limits = PoolLimits { running_per_provider: shape.slots as u32, ..PoolLimits::ceilings() };
    let inside = runtime.enter();
    let world = World::new(runtime.handle(), limits, 1);
    drop(inside);
    let tenant_of = |task: usize| task * shape.tenants / shape.tasks;
    let ours = (0..shape.tasks)
        .map(|task| Ours {
            world,
            session: Arc::new(world.session(&format!("tenant-{}", tenant_of(task)), 0)),
        })
        .collect();
    let slots = |count: usize| -> &'static Semaphore { keep(Semaphore::new(count)) };
    let one = vec![One { slots: slots(shape.slots), until }; shape.tasks];
    let (provider, node) = (slots(shape.slots), slots(1 << 20));
    let tenants: Vec<_> = (0..shape.tenants).map(|_| slots(1 << 20)).collect();
    let three = (0..shape.tasks)
        .map(|task| Three { tenant: tenants[tenant_of(task)], provider, node, until })
        .collect();
    let fair: &'static FairShare<u64> = keep(FairShare::new(shape.slots));
    let fair =
        (0..shape.tasks).map(|task| Fair { slots: fair, key: tenant_of(task) as u64, until }).collect();
    Group {
        key,
        title,
        note,
        subjects: vec![
            Subject::ours("latent: admit + wait", turns(runtime, ours, shape.yields)),
            Subject::peer(
                "1 tokio semaphore",
                "one limit, not fair between tenants",
                turns(runtime, one, shape.yields),
            ),
            Subject::peer("3 tokio semaphores in line", NOT_FAIR, turns(runtime, three, shape.yields)),
            Subject::peer(
                "mea FairShare",
                "one key level, no byte budget",
                turns(runtime, fair, shape.yields),
            ),
        ],
    }
}

pub(super) fn groups() -> Vec<Group> {
    const NOTE: &str = "Peers inside timeout_at, one for the whole row of semaphores; theirs only limit the provider, as here ours does.";
    const TWO: &str = "ns are wall time per admission; allocations of workers are not counted.";
    let handoff = Shape { tasks: 2, tenants: 2, slots: 1, yields: 0, workers: 1 };
    let saturated = Shape { tasks: 64, tenants: 8, slots: 8, yields: 1, workers: 1 };
    let two = Shape { workers: 2, ..saturated };
    vec![
        group("handoff", "queued handoff with a deadline: two tasks, one unit, one runtime", NOTE, &handoff),
        group(
            "saturated",
            "saturated: 64 tasks on 8 units, 8 tenants, with deadlines, one runtime",
            NOTE,
            &saturated,
        ),
        group("two-saturated", "saturated, on a runtime of two workers", TWO, &two),
    ]
}
