//! Admission that nobody has to wait for: ours against semaphores in a row, fair queues and maps of counters.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Instant;

use dashmap::DashMap;
use firq_core::{Scheduler, SchedulerConfig, Task, TenantKey};
use latent_capabilities::broker::{Cost, PoolLimits};
use mea::admission::FairShare;
use perf::{SEND, must, poll};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::measure::{Group, Part, Subject, keep, looped, part};
use super::ours::World;

const MANY: usize = 1 << 20;
const BYTES: u32 = 512;

/// What a user writes first: a semaphore per limit. Shared between threads: all but what is `own`.
#[derive(Clone)]
pub(super) struct Five {
    pending: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    tenant: Arc<Semaphore>,
    provider: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl Five {
    pub(super) fn new() -> Self {
        let one = || Arc::new(Semaphore::new(MANY));
        Self { pending: one(), bytes: one(), tenant: one(), provider: one(), running: one() }
    }

    fn own_tenant(&self) -> Self {
        Self {
            tenant: Arc::new(Semaphore::new(MANY)),
            provider: Arc::new(Semaphore::new(MANY)),
            ..self.clone()
        }
    }

    fn borrowed(&self) -> [SemaphorePermit<'_>; 5] {
        [
            must(self.pending.try_acquire()),
            must(self.bytes.try_acquire_many(BYTES)),
            must(self.tenant.try_acquire()),
            must(self.provider.try_acquire()),
            must(self.running.try_acquire()),
        ]
    }

    pub(super) fn owned(&self) -> [OwnedSemaphorePermit; 5] {
        [
            must(self.pending.clone().try_acquire_owned()),
            must(self.bytes.clone().try_acquire_many_owned(BYTES)),
            must(self.tenant.clone().try_acquire_owned()),
            must(self.provider.clone().try_acquire_owned()),
            must(self.running.clone().try_acquire_owned()),
        ]
    }

    async fn waited(&self) -> [SemaphorePermit<'_>; 5] {
        [
            must(self.pending.acquire().await),
            must(self.bytes.acquire_many(BYTES).await),
            must(self.tenant.acquire().await),
            must(self.provider.acquire().await),
            must(self.running.acquire().await),
        ]
    }
}

/// Counters per tenant and per provider in concurrent maps, and one for the node.
#[derive(Default)]
struct Maps {
    tenants: DashMap<u64, u64>,
    providers: DashMap<u64, u64>,
    running: AtomicU64,
}

impl Maps {
    fn pass(&self, tenant: u64, provider: u64) {
        let up = |map: &DashMap<u64, u64>, key| {
            let mut count = map.entry(key).or_insert(0);
            assert!(*count < MANY as u64);
            *count += 1;
        };
        let down = |map: &DashMap<u64, u64>, key| *map.get_mut(&key).expect("it was counted") -= 1;
        up(&self.tenants, tenant);
        up(&self.providers, provider);
        assert!(self.running.fetch_add(1, Ordering::AcqRel) < MANY as u64);
        self.running.fetch_sub(1, Ordering::AcqRel);
        down(&self.providers, provider);
        down(&self.tenants, tenant);
    }
}

const NOT_FAIR: &str = "five queues in a row, not fair between tenants, no deadline, no policy";

fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nobody waits in front"),
    }
}

pub(super) fn groups(handle: &Handle) -> Vec<Group> {
    let world = World::new(handle, PoolLimits::ceilings(), 2);
    let (session, five) = (world.session("first", 0), Five::new());
    let waiting = Group {
        key: "admit-wait",
        title: "admit, wait, start, release; nobody waits",
        note: "The bounds are taken from try_acquire, which builds no future: the harder peer.",
        subjects: vec![
            {
                let session = world.session("first", 0);
                Subject::ours(
                    "latent: admit + wait",
                    looped(move || {
                        let admission = must(world.pools.admit(&world.clients[0], &session));
                        drop(must(must(ready(admission.wait())).dispatch(SEND, Cost::new())));
                    }),
                )
            },
            borrowed(&five),
            owned(&five),
            {
                let five = five.clone();
                let work = looped(move || drop(black_box(ready(five.waited()))));
                Subject::peer("5 tokio semaphores, acquire().await", NOT_FAIR, work)
            },
        ],
    };
    let fair = FairShare::<u64>::new(MANY);
    let queue = Scheduler::<u64>::new(SchedulerConfig::default());
    let now = Instant::now();
    let maps = Maps::default();
    let keyed: DashMap<u64, Arc<Semaphore>> = DashMap::new();
    keyed.insert(7, Arc::new(Semaphore::new(MANY)));
    let at_once = Group {
        key: "admit-now",
        title: "admit_now, start, release; all scopes, nobody waits",
        note: "",
        subjects: vec![
            Subject::ours("latent: admit_now", looped(move || drop(world.call(&session, 0)))),
            borrowed(&five),
            owned(&five),
            Subject::peer(
                "mea FairShare",
                "one key level, no byte budget, no deadline",
                looped(move || drop(black_box(fair.try_acquire(7).expect("there is room")))),
            ),
            Subject::peer(
                "firq-core enqueue + dequeue",
                "a queue only: nothing is held or given back",
                looped(move || {
                    let task = Task {
                        payload: 7,
                        enqueue_ts: now,
                        deadline: None,
                        priority: Default::default(),
                        cost: 1,
                    };
                    black_box(queue.enqueue(TenantKey::from(7), task));
                    black_box(queue.try_dequeue());
                }),
            ),
            Subject::peer(
                "DashMap x2 + atomic",
                "counts only: nobody can wait",
                looped(move || maps.pass(7, 9)),
            ),
            Subject::peer(
                "DashMap<key, Arc<Semaphore>>",
                "one level only, not fair",
                looped(move || {
                    let semaphore = keyed.get(&7).expect("it is there").clone();
                    drop(black_box(must(semaphore.try_acquire_owned())));
                }),
            ),
        ],
    };
    vec![at_once, waiting]
}

fn borrowed(five: &Five) -> Subject {
    let five = five.clone();
    Subject::peer("5 tokio semaphores, borrowed", NOT_FAIR, looped(move || drop(black_box(five.borrowed()))))
}

fn owned(five: &Five) -> Subject {
    let five = five.clone();
    Subject::peer("5 tokio semaphores, owned", NOT_FAIR, looped(move || drop(black_box(five.owned()))))
}

/// The same by two threads.
pub(super) fn by_two(handle: &Handle) -> Vec<Group> {
    let world = World::new(handle, PoolLimits::ceilings(), 2);
    let ours = |tenants: [&str; 2], providers: [usize; 2]| -> [Part; 2] {
        [0, 1].map(|number| {
            let (session, provider) = (world.session(tenants[number], providers[number]), providers[number]);
            part(move || drop(world.call(&session, provider)))
        })
    };
    let semaphores = |own: bool, is_owned: bool| -> [Part; 2] {
        let five = Five::new();
        let other = if own { five.own_tenant() } else { five.clone() };
        [five, other].map(|five| -> Part {
            if is_owned {
                part(move || drop(black_box(five.owned())))
            } else {
                part(move || drop(black_box(five.borrowed())))
            }
        })
    };
    let fair = |keys: [u64; 2]| -> [Part; 2] {
        let fair = keep(FairShare::<u64>::new(MANY));
        keys.map(|key| part(move || drop(black_box(fair.try_acquire(key).expect("there is room")))))
    };
    let maps = |keys: [u64; 2]| -> [Part; 2] {
        let maps = keep(Maps::default());
        keys.map(|key| part(move || maps.pass(key, key + 100)))
    };
    let group = |key, title, own: bool, ours| {
        let keys = if own { [1, 2] } else { [1, 1] };
        Group {
            key,
            title,
            note: "ns per operation and thread; scale = throughput of two threads / of one.",
            subjects: vec![
                Subject::ours_twice("latent: admit_now", ours),
                Subject::peer_twice("5 tokio semaphores, borrowed", NOT_FAIR, semaphores(own, false)),
                Subject::peer_twice("5 tokio semaphores, owned", NOT_FAIR, semaphores(own, true)),
                Subject::peer_twice(
                    "mea FairShare",
                    "one key level, no byte budget, no deadline",
                    fair(keys),
                ),
                Subject::peer_twice("DashMap x2 + atomic", "counts only: nobody can wait", maps(keys)),
                super::machine::control(),
            ],
        }
    };
    let mut own = group(
        "two-own",
        "two threads: admit_now, own tenants and providers",
        true,
        ours(["first", "second"], [0, 1]),
    );
    own.subjects.insert(
        1,
        Subject::ours_twice("latent: own tenants, one provider", ours(["third", "fourth"], [0, 0])),
    );
    // Two threads cannot do better than this on the machine, whatever they share or not.
    let apart = [(); 2].map(|()| -> Part {
        let world = World::new(handle, PoolLimits::ceilings(), 1);
        let session = world.session("first", 0);
        part(move || drop(world.call(&session, 0)))
    });
    own.subjects.insert(2, Subject::ours_twice("latent: two nodes, one for each", apart));
    let same = group(
        "two-same",
        "two threads: admit_now, same tenant and provider",
        false,
        ours(["fifth", "fifth"], [0, 0]),
    );
    vec![own, same]
}
