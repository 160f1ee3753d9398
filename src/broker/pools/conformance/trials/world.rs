//! What is foreign to the library in a trial: providers, resources, wakers. Each of them passes a door whenever the library
//! calls it, and panics at the one door that the trial names.
use super::super::poll::{Watched, watched_waker};
use crate::broker::pools::{LowerError, NotSpawned, Resource};
use crate::broker::{Error, Probe};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Where foreign code may panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// A provider's future or job is polled.
    ProviderPoll,
    /// A provider's future or job is destroyed.
    ProviderDrop,
    /// A connection is asked whether it can be used again.
    ResourceLook,
    /// A connection is destroyed.
    ResourceDrop,
    /// A waker is woken.
    Wake,
    /// A waker is cloned.
    WakerClone,
    /// A waker is dropped.
    WakerDrop,
    /// A session's probe is asked. Only in runs that have probes: who has one looks by timers, so its wakers are in the
    /// executor, whose doors are not the library's.
    Probe,
}

pub(super) const DOORS: [Door; 8] = [
    Door::ProviderPoll,
    Door::ProviderDrop,
    Door::ResourceLook,
    Door::ResourceDrop,
    Door::Wake,
    Door::WakerClone,
    Door::WakerDrop,
    Door::Probe,
];

/// What is done to one run of a scenario. Numbers count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// Nothing: it is counted.
    Nothing,
    /// Nothing, and every session has a probe.
    Probed,
    /// These reservations are refused.
    Refuse(Vec<u32>),
    /// The future that is polled as the n-th of all polls is dropped after it, if it was pending; the scenario sees it.
    DropOne(u32),
    /// The scenario is dropped after its n-th poll, with all that it has; 0: unpolled.
    DropAll(u32),
    /// The n-th passing of this door panics.
    Panic(Door, u32),
    /// The n-th reading of the clock panics.
    Clock(u32),
}

/// How a scenario ends early.
#[derive(Debug)]
pub(super) enum End {
    /// It was refused.
    Refused(Error),
    /// Limits were not lowered.
    NotLowered(LowerError),
    /// One of its futures was dropped.
    Dropped,
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Refused(error)
    }
}
impl From<LowerError> for End {
    fn from(error: LowerError) -> End {
        End::NotLowered(error)
    }
}
impl<O> From<NotSpawned<O>> for End {
    fn from(refused: NotSpawned<O>) -> End {
        End::Refused(refused.into())
    }
}

/// Everything foreign of one run.
#[derive(Debug)]
pub(super) struct World {
    trial: Trial,
    passed: [AtomicU32; DOORS.len()],
    fired: AtomicBool,
    over: AtomicBool,
    /// Polls of futures that the scenario awaits.
    polls: AtomicU32,
    /// Those of them that were pending.
    pending: Mutex<Vec<u32>>,
    /// Connections that exist.
    pub(super) alive: AtomicUsize,
}

impl World {
    pub(super) fn new(trial: Trial) -> Arc<World> {
        Arc::new(World {
            trial,
            passed: Default::default(),
            fired: AtomicBool::new(false),
            over: AtomicBool::new(false),
            polls: AtomicU32::new(0),
            pending: Mutex::default(),
            alive: AtomicUsize::new(0),
        })
    }
    /// Whether every session has a probe.
    pub(super) fn is_probed(&self) -> bool {
        matches!(self.trial, Trial::Probed | Trial::Panic(Door::Probe, _))
    }
    /// Nothing fires from now on.
    pub(super) fn is_over(&self) {
        self.over.store(true, SeqCst);
    }
    pub(super) fn has_fired(&self) -> bool {
        self.fired.load(SeqCst)
    }
    pub(super) fn polls(&self) -> u32 {
        self.polls.load(SeqCst)
    }
    pub(super) fn pending(&self) -> Vec<u32> {
        self.pending.lock().expect("nobody panics with it").clone()
    }
    pub(super) fn passed(&self, door: Door) -> u32 {
        self.passed[door as usize].load(SeqCst)
    }
    /// Nobody panics twice at once: that would end the process.
    fn pass(&self, door: Door) {
        if std::thread::panicking() || QUIET.get() || self.over.load(SeqCst) {
            return;
        }
        let passed = self.passed[door as usize].fetch_add(1, SeqCst) + 1;
        if self.trial == Trial::Panic(door, passed) {
            self.fired.store(true, SeqCst);
            panic!("planted: {door:?} {passed}");
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Socket(Arc<World>);

impl Socket {
    pub(super) fn new(world: &Arc<World>) -> Socket {
        world.alive.fetch_add(1, SeqCst);
        Socket(world.clone())
    }
}
impl Resource for Socket {
    fn is_reusable(&mut self) -> bool {
        self.0.pass(Door::ResourceLook);
        true
    }
}
impl Drop for Socket {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, SeqCst);
        self.0.pass(Door::ResourceDrop);
    }
}

/// The probe of a session that nobody cancels.
pub(super) struct Asked(pub(super) Arc<World>);

impl Probe for Asked {
    fn is_cancelled(&self) -> bool {
        self.0.pass(Door::Probe);
        false
    }
}

/// What a provider does: a future that is pending for some polls, or work of a thread.
#[derive(Debug)]
pub(super) struct Work {
    world: Arc<World>,
    left: u32,
}

impl Work {
    pub(super) fn new(world: &Arc<World>, polls: u32) -> Work {
        Work { world: world.clone(), left: polls }
    }
    /// The same on a thread that may block.
    pub(super) fn block(self) {
        self.world.pass(Door::ProviderPoll);
    }
}
impl Future for Work {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.world.pass(Door::ProviderPoll);
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(()) };
        self.left = left;
        let _quiet = Quiet(QUIET.replace(true));
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
impl Drop for Work {
    fn drop(&mut self) {
        self.world.pass(Door::ProviderDrop);
    }
}

/// The waker of a future of the scenario: it wakes the scenario, then passes the door.
struct Bell {
    world: Arc<World>,
    scenario: Waker,
}

impl Watched for Bell {
    fn cloned(&self) {
        self.world.pass(Door::WakerClone);
    }
    fn woken(&self) {
        self.scenario.wake_by_ref();
        self.world.pass(Door::Wake);
    }
    fn dropped(&self) {
        self.world.pass(Door::WakerDrop);
    }
}

/// Awaits a future of the library with a waker of our own, and drops it where the trial says so.
pub(super) struct Go<F> {
    world: Arc<World>,
    future: Option<Pin<Box<F>>>,
    waker: Option<Waker>,
}

impl<F: Future> Go<F> {
    pub(super) fn new(world: &Arc<World>, future: F) -> Go<F> {
        Go { world: world.clone(), future: Some(Box::pin(future)), waker: None }
    }
}

impl<F: Future> Future for Go<F> {
    type Output = Result<F::Output, End>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let number = this.world.polls.fetch_add(1, SeqCst) + 1;
        let waker = this.waker.get_or_insert_with(|| {
            watched_waker(Arc::new(Bell { world: this.world.clone(), scenario: cx.waker().clone() }))
        });
        let future = this.future.as_mut().expect("polled after it was ready");
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            this.future = None;
            return Poll::Ready(Ok(output));
        }
        this.world.pending.lock().expect("nobody panics with it").push(number);
        if this.world.trial == Trial::DropOne(number) {
            this.world.fired.store(true, SeqCst);
            this.future = None;
            return Poll::Ready(Err(End::Dropped));
        }
        Poll::Pending
    }
}

impl<F> Drop for Go<F> {
    fn drop(&mut self) {
        self.future = None;
        // This one is no clone that the library holds: its end is nobody's business.
        let _quiet = Quiet(QUIET.replace(true));
        self.waker = None;
    }
}

thread_local! {
    /// Nothing is counted: what happens is not of the library's doing.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

struct Quiet(bool);

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.set(self.0);
    }
}
