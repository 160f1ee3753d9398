//! One run of one scenario: a node of its own, somebody else who waits for what the scenario holds, and the laws at the end.
//!
//! * Counts are of live charges: with everything gone all of them are zero, and a request goes straight through.
//! * A resource is destroyed before its charge goes: there are as many sockets as connections at every look.
//! * No wake is lost: both parties are polled for a wake of theirs and for nothing else, and the one who waits gets its turn.
//! * After the drain everything is free, and the report says so.
//! * Nothing is swallowed: what was refused comes out as a refusal of that dimension, what panicked as a panic, a failed
//!   job or a contained panic.
use super::super::support::{
    Acquired, Activation, Arc, Capability, Cost, Exchange, HTTP, InstalledProvider, IoLimits, Kind, Node,
    OriginSlot, Plan, PlanSpec, PoolCall, PoolLimits, PooledConnection, ProviderClient, SEND, What, ms,
    within,
};
use super::world::{Asked, DOORS, End, Go, Socket, Trial, Work, World};
use crate::broker::{CapabilitySession, Error};
use crate::refuse::{self, Counted, Orders};
use crate::time::Clock;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

pub(super) type Ended = Result<(), End>;
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = Ended> + 'a>>;

/// What a library is used for, once.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) limits: fn() -> (IoLimits, PoolLimits),
    pub(super) run: for<'a> fn(&'a Cx) -> Running<'a>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a scenario has to work with.
pub(super) struct Cx {
    pub(super) node: Node,
    pub(super) orders: InstalledProvider,
    pub(super) client: ProviderClient<Socket>,
    pub(super) plan: Plan,
    pub(super) world: Arc<World>,
}

pub(super) static OTHER: Capability = Capability::new("latent:test/other", &["send"]);

impl Cx {
    fn new(limits: (IoLimits, PoolLimits), world: Arc<World>) -> Cx {
        let node = Node::on(Clock::tokio(), limits.0, limits.1);
        let orders = node.install("orders", 1, 0);
        let (client, plan) = (node.client(&orders), node.plan("alpha", &orders));
        Cx { node, orders, client, plan, world }
    }
    /// Awaits a future of the library.
    pub(super) fn go<F: Future>(&self, future: F) -> Go<F> {
        Go::new(&self.world, future)
    }
    /// What a provider does, pending for some polls.
    pub(super) fn work(&self, polls: u32) -> Work {
        Work::new(&self.world, polls)
    }
    pub(super) fn socket(&self) -> Socket {
        Socket::new(&self.world)
    }
    pub(super) fn session(&self) -> Result<CapabilitySession, End> {
        self.session_of(&self.plan)
    }
    pub(super) fn session_of(&self, plan: &Plan) -> Result<CapabilitySession, End> {
        Ok(self.node.broker.open(plan, self.activation())?)
    }
    pub(super) fn activation(&self) -> Activation {
        let activation = Activation::until(within(Duration::from_secs(20)));
        if self.world.is_probed() {
            activation.probe(Arc::new(Asked(self.world.clone())))
        } else {
            activation
        }
    }
    pub(super) fn plan_of(&self, tenant: &str, provider: &InstalledProvider) -> Result<Plan, End> {
        let spec = PlanSpec::new(tenant, "publication").bind(&HTTP, &provider.reference());
        Ok(self.node.broker.seal(spec)?)
    }
    /// A request that runs at once.
    pub(super) fn call(&self, session: &CapabilitySession) -> Result<PoolCall, End> {
        Ok(self.node.pools.admit_now(&self.client, session)?.dispatch(SEND, Cost::new())?)
    }
    /// A request that waits for its turn.
    pub(super) async fn waited(&self, session: &CapabilitySession) -> Result<PoolCall, End> {
        let ready = self.go(self.node.pools.admit(&self.client, session)?.wait()).await??;
        Ok(ready.dispatch(SEND, Cost::new())?)
    }
    /// A connection that is dialled at once.
    pub(super) fn dialled(&self, call: &PoolCall) -> Result<PooledConnection<Socket>, End> {
        Ok(self.client.reserve_connection(call)?.connected(self.socket())?)
    }
    /// A connection that is waited for, and dialled if it has to be.
    pub(super) async fn acquired(&self, call: &PoolCall) -> Result<PooledConnection<Socket>, End> {
        match self.go(self.client.acquire(call)).await?? {
            Acquired::Idle(connection) => Ok(connection),
            Acquired::Dial(dial) => {
                self.go(call.io().wait_for(self.work(1))).await??;
                Ok(dial.connected(self.socket())?)
            }
        }
    }
    /// So many steps of everybody else.
    pub(super) async fn step_aside(&self, steps: u32) {
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }
    fn is_over(&self) -> bool {
        let counts = self.node.counts();
        counts.closed || counts.retired || self.node.io.snapshot().closed
    }
    /// A request of another tenant: it waits for its turn and for a connection, and lets go of both.
    async fn stander_by(&self, plan: &Plan) -> Result<(), Error> {
        let activation = Activation::until(within(Duration::from_secs(20)));
        let session = self.node.broker.open(plan, activation)?;
        let call =
            self.node.pools.admit(&self.client, &session)?.wait().await?.dispatch(SEND, Cost::new())?;
        for _ in 0..8 {
            let connection = match self.client.acquire(&call).await {
                Ok(Acquired::Idle(connection)) => connection,
                Ok(Acquired::Dial(dial)) => dial.connected(self.socket())?,
                // Somebody's dial failed: everyone in line is told.
                Err(error) if matches!(error.kind(), Kind::Backoff { .. }) => {
                    tokio::time::sleep(ms(2)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            tokio::task::yield_now().await;
            return connection.park(Exchange::complete());
        }
        panic!("the client pauses for ever")
    }
}

/// A party's waker: it notes who is to be polled.
#[derive(Debug, Default)]
struct Flag {
    set: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.set.store(true, SeqCst);
        let task = self.task.lock().expect("nobody panics with it").clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// What became of a party.
#[derive(Debug)]
pub(super) enum Fate<T> {
    Ended(T),
    Dropped,
    /// With what it said.
    Panicked(String),
}

struct Party<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + 'a>>>,
    flag: Arc<Flag>,
    polls: u32,
    fate: Option<Fate<T>>,
}

impl<'a, T> Party<'a, T> {
    fn new(future: impl Future<Output = T> + 'a) -> Party<'a, T> {
        let flag = Arc::new(Flag::default());
        flag.set.store(true, SeqCst);
        Party { future: Some(Box::pin(future)), flag, polls: 0, fate: None }
    }
    /// Polls it if it was woken. Whether it was.
    fn look(&mut self, cx: &Context<'_>, around: impl Fn(&mut dyn FnMut())) -> bool {
        let Some(future) = self.future.as_mut() else { return false };
        *self.flag.task.lock().expect("nobody panics with it") = Some(cx.waker().clone());
        if !self.flag.set.swap(false, SeqCst) {
            return false;
        }
        self.polls += 1;
        let waker = Waker::from(self.flag.clone());
        let mut polled = Poll::Pending;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            around(&mut || polled = future.as_mut().poll(&mut Context::from_waker(&waker)));
        }));
        match (caught, polled) {
            (Err(panic), _) => self.end(Fate::Panicked(said(&*panic)), around),
            (Ok(()), Poll::Ready(output)) => self.end(Fate::Ended(output), around),
            (Ok(()), Poll::Pending) => {}
        }
        true
    }
    /// Drops it, which may panic.
    fn end(&mut self, fate: Fate<T>, around: impl Fn(&mut dyn FnMut())) {
        let mut future = self.future.take();
        let caught = catch_unwind(AssertUnwindSafe(|| around(&mut || drop(future.take()))));
        self.fate = Some(match caught {
            Ok(()) => fate,
            Err(panic) => Fate::Panicked(said(&*panic)),
        });
    }
}

pub(super) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something else").to_owned()
}

/// What one run showed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) reservations: u32,
    pub(super) polls_of_futures: u32,
    /// Which of these were pending.
    pub(super) pending: Vec<u32>,
    pub(super) polls: u32,
    pub(super) passed: [u32; DOORS.len()],
    pub(super) clock_reads: u32,
    /// The trial came about.
    pub(super) happened: bool,
}

/// Runs a scenario with one trial, and checks the laws.
pub(super) async fn run(scenario: &Scenario, trial: Trial) -> Seen {
    let tried = format!("{}, {trial:?}", scenario.name);
    let world = World::new(trial.clone());
    let cx = Cx::new((scenario.limits)(), world.clone());
    let beside = cx.node.plan("beside", &cx.orders);
    refuse::begin(match &trial {
        Trial::Refuse(numbers) => Orders { refuse: numbers.clone(), clock: None },
        Trial::Clock(number) => Orders { refuse: Vec::new(), clock: Some(*number) },
        _ => Orders::default(),
    });
    let mut scene = Party::new((scenario.run)(&cx));
    let mut stander_by = Party::new(cx.stander_by(&beside));
    let counted = |f: &mut dyn FnMut()| refuse::counting(f);
    let plain = |f: &mut dyn FnMut()| f();
    if trial == Trial::DropAll(0) {
        scene.end(Fate::Dropped, counted);
    }
    let parties = poll_fn(|task| {
        loop {
            let mut looked = scene.look(task, counted);
            if scene.future.is_some() && trial == Trial::DropAll(scene.polls) {
                scene.end(Fate::Dropped, counted);
                looked = true;
            }
            looked |= stander_by.look(task, plain);
            if scene.future.is_none() && stander_by.future.is_none() {
                return Poll::Ready(());
            }
            if !looked {
                return Poll::Pending;
            }
        }
    });
    if tokio::time::timeout(Duration::from_secs(120), parties).await.is_err() {
        panic!("{tried}: somebody waits for ever: {:?}, {:?}", scene.fate, stander_by.fate);
    }
    let counts = refuse::end();
    let (polls, fate) = (scene.polls, scene.fate.take().expect("it has ended"));
    let other = stander_by.fate.take().expect("it has ended");
    drop((scene, stander_by));
    world.is_over();
    let happened = judge(&tried, &cx, &trial, (&fate, &other), &counts);
    let mut passed = [0; DOORS.len()];
    for (passed, door) in passed.iter_mut().zip(DOORS) {
        *passed = world.passed(door);
    }
    let seen = Seen {
        reservations: counts.reservations,
        polls_of_futures: world.polls(),
        pending: world.pending(),
        polls,
        passed,
        clock_reads: counts.clock_reads,
        happened,
    };
    drop(beside);
    settle(&tried, cx, &fate, &other).await;
    seen
}

/// Nothing is swallowed. Whether the trial came about.
fn judge(
    tried: &str,
    cx: &Cx,
    trial: &Trial,
    (fate, other): (&Fate<Ended>, &Fate<Result<(), Error>>),
    counts: &Counted,
) -> bool {
    if let Fate::Ended(Err(End::Refused(error))) = fate {
        assert!(!matches!(error.kind(), Kind::Deadline(_)), "{tried}: it waited for what did not come");
    }
    match trial {
        Trial::Nothing | Trial::Probed => assert!(matches!(fate, Fate::Ended(Ok(()))), "{tried}: {fate:?}"),
        Trial::Refuse(_) => match fate {
            // Another way was found, or it was waited for.
            Fate::Ended(Ok(())) => {}
            Fate::Ended(Err(End::Refused(error))) => {
                let is_it = |refused: &Option<_>| refused.is_none() || *refused == error.dimension();
                assert!(counts.refused.iter().any(is_it), "{tried}: {error} for {:?}", counts.refused);
            }
            Fate::Ended(Err(End::NotLowered(error))) => {
                let is_it = |refused: &Option<_>| {
                    error.obstacles().iter().any(|obstacle| Some(obstacle.dimension) == *refused)
                };
                assert!(counts.refused.iter().any(is_it), "{tried}: {error} for {:?}", counts.refused);
            }
            _ => panic!("{tried}: {fate:?}"),
        },
        Trial::DropOne(_) => assert!(
            !cx.world.has_fired() || matches!(fate, Fate::Ended(Err(End::Dropped))),
            "{tried}: {fate:?}"
        ),
        Trial::DropAll(_) => {
            assert!(matches!(fate, Fate::Dropped | Fate::Ended(Ok(()))), "{tried}: {fate:?}")
        }
        Trial::Panic(..) | Trial::Clock(_) => {
            let failed = |fate: &Fate<Ended>| match fate {
                Fate::Ended(Err(End::Refused(error))) => error.kind() == Kind::JobFailed,
                _ => false,
            };
            let told =
                matches!(fate, Fate::Panicked(_)) || matches!(other, Fate::Panicked(_)) || failed(fate);
            let told = told || cx.node.counts().contained_panics > 0;
            let fired = cx.world.has_fired() || counts.clock_fired;
            assert!(!fired || told, "{tried}: swallowed: {fate:?}, {other:?}");
        }
    }
    match other {
        Fate::Ended(Ok(())) => {}
        Fate::Ended(Err(error)) => {
            let replaced = error.kind() == Kind::Retired(What::Epoch) && !cx.orders.is_current();
            assert!(replaced || cx.is_over(), "{tried}: who stood by was refused: {error}");
        }
        Fate::Panicked(what) => {
            assert!(what.starts_with("planted") && cx.world.has_fired(), "{tried}: who stood by: {what}");
        }
        Fate::Dropped => panic!("{tried}: who stood by is never dropped"),
    }
    if let Fate::Panicked(what) = fate {
        assert!(what.starts_with("planted"), "{tried}: {what}");
    }
    match trial {
        Trial::Nothing | Trial::Probed => true,
        Trial::Refuse(_) => !counts.refused.is_empty(),
        Trial::DropOne(_) => cx.world.has_fired(),
        Trial::DropAll(_) => matches!(fate, Fate::Dropped),
        Trial::Panic(..) => cx.world.has_fired(),
        Trial::Clock(_) => counts.clock_fired,
    }
}

/// The laws at the end: idle, a request goes straight through, a clean shutdown, nothing retained.
async fn settle(tried: &str, cx: Cx, fate: &Fate<Ended>, other: &Fate<Result<(), Error>>) {
    let Cx { node, orders, client, plan, world } = cx;
    let told = || {
        let sessions = node.broker.snapshot();
        format!("{tried}: {:?}, {:?}, {sessions:?}; {fate:?}, {other:?}", node.counts(), node.io.snapshot())
    };
    let is_idle =
        || node.counts().is_idle() && node.io.snapshot().is_zero() && node.broker.snapshot().is_clean();
    // Jobs go on without their waiters.
    for _ in 0..2_000 {
        if is_idle() {
            break;
        }
        tokio::time::sleep(ms(1)).await;
    }
    assert!(is_idle(), "something is held: {}", told());
    let counts = node.counts();
    assert_eq!(counts.connections as usize, world.alive.load(SeqCst), "{}", told());
    assert_eq!(counts.connections, counts.idle_connections, "{}", told());
    assert!(!counts.control_failed, "{}", told());
    if !counts.closed && !counts.retired && !node.io.snapshot().closed {
        // Of whatever epoch is current: all units there are can be had, one after the other.
        let current = node.pools.provider("orders");
        let current = current.unwrap_or_else(|_| node.install("orders", 1_000, 0));
        let again =
            node.pools.client::<Socket>(&current, OriginSlot::new(0)).expect("it is there or there is room");
        let plan = node.plan("alpha", &current);
        for _ in 0..2 {
            tokio::time::sleep(again.retry_after().unwrap_or(ms(0))).await;
            let session = node.session(&plan);
            let ready =
                node.pools.admit_now(&again, &session).unwrap_or_else(|error| panic!("{error}: {}", told()));
            let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
            match again.acquire(&call).await.unwrap_or_else(|error| panic!("{error}: {}", told())) {
                Acquired::Idle(connection) => connection.park(Exchange::complete()).expect("room"),
                Acquired::Dial(dial) => drop(dial.connected(Socket::new(&world)).expect("in time")),
            }
            drop((call, session));
        }
        assert!(is_idle(), "{}", told());
    }
    drop((orders, client, plan));
    let left = node.pools.shutdown(within(Duration::from_secs(10))).await;
    assert!(left.is_clean(), "{left:?}: {}", told());
    assert_eq!(world.alive.load(SeqCst), 0, "{}", told());
    for _ in 0..50 {
        let counts = node.counts();
        if (counts.retained_configurations, counts.clients, counts.metadata_bytes) == (0, 0, 0) {
            return;
        }
        // Plans that nobody uses any more keep their epochs until the control path looks.
        node.broker.sweep();
        tokio::time::sleep(ms(1)).await;
    }
    panic!("something is retained: {}", told());
}
