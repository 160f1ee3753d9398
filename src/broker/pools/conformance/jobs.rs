//! Workers and control jobs: charged before they are built, held until they were joined, whoever waits for them.
use super::support::*;
use crate::broker::pools::ProviderJob;
use std::sync::mpsc;
use std::time::Instant;

/// What a job owns that tells when it is destroyed, and may panic then.
pub(super) struct Token {
    alive: Arc<AtomicUsize>,
    panics: bool,
}

impl Token {
    pub(super) fn new(alive: &Arc<AtomicUsize>, panics: bool) -> Token {
        alive.fetch_add(1, SeqCst);
        Token { alive: alive.clone(), panics }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
        assert!(!self.panics || std::thread::panicking(), "planted: it panics when it is destroyed");
    }
}

pub(super) struct Scene {
    pub(super) node: Arc<Node>,
    pub(super) orders: InstalledProvider,
    pub(super) client: ProviderClient<Socket>,
    pub(super) session: CapabilitySession,
    pub(super) alive: Arc<AtomicUsize>,
}

impl Scene {
    pub(super) fn new(limits: PoolLimits) -> Scene {
        let node = Arc::new(Node::new(limits));
        let orders = node.install("orders", 1, 0);
        let client = node.client(&orders);
        let session = node.session(&node.plan("alpha", &orders));
        Scene { node, orders, client, session, alive: Arc::new(AtomicUsize::new(0)) }
    }
    pub(super) fn call(&self) -> PoolCall {
        self.node.call(&self.client, &self.session)
    }
    pub(super) fn dialled(&self) -> PooledConnection<Socket> {
        self.node.dialled(&self.client, &self.session, Socket::new(&self.alive))
    }
    pub(super) fn counts(&self) -> PoolSnapshot {
        self.node.counts()
    }
    /// Workers, running requests.
    fn held(&self) -> (u64, u64) {
        let counts = self.counts();
        (counts.workers, counts.running_requests)
    }
    pub(super) async fn end(self) {
        assert_eq!(self.alive.load(SeqCst), 0);
        drop((self.session, self.client, self.orders));
        self.node.assert_idle();
        self.node.assert_clean_end().await;
    }
}

pub(super) fn one_worker() -> PoolLimits {
    PoolLimits { workers: 1, cleanup_jobs: 1, ..PoolLimits::default() }
}

/// A blocking job that has begun, and runs until the gate is dropped.
fn gated(scene: &Scene) -> (ProviderJob<u32>, mpsc::Sender<()>) {
    let ((gate, opened), (begun, begins)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let work = move |_call: PoolCall| {
        drop(begun);
        assert!(opened.recv().is_err());
        7
    };
    let job = scene.node.pools.spawn_blocking(scene.call(), work).expect("room");
    assert!(begins.recv().is_err(), "a call that is stopped before does not begin");
    (job, gate)
}

fn assert_failed<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("the job failed");
    assert_eq!((error.kind(), error.effect()), (Kind::JobFailed, Effect::Uncertain));
}

/// pools.75: place and metadata are charged before the job is built; when the answer is there, all of it is back.
#[tokio::test]
async fn a_job_is_charged_from_before_its_start_to_its_join() {
    let scene = Scene::new(one_worker());
    let before = scene.counts().metadata_bytes;
    let weight = [0u8; 3_000];
    let work = move |call: PoolCall| async move {
        call.io().checkpoint()?;
        tokio::task::yield_now().await;
        Ok::<_, Error>(weight.len())
    };
    let job = scene.node.pools.spawn(scene.call(), work).expect("room");
    assert_eq!(scene.held(), (1, 1));
    let charged = scene.counts().metadata_bytes - before;
    assert!((6_000..8_000).contains(&charged), "closure and future hold the weight: {charged}");
    assert_eq!(job.await.expect("no panic").expect("allowed"), 3_000);
    assert_eq!((scene.held(), scene.counts().metadata_bytes), ((0, 0), before));
    let job = scene.node.pools.spawn_blocking(scene.call(), move |_call| weight).expect("room");
    let owner = size_of::<PoolCall>() as u64;
    assert_eq!(scene.counts().metadata_bytes - before, 3_000 + owner + 3_000);
    assert_eq!(job.await.expect("no panic"), weight);
    let job = scene.node.pools.control_blocking(move || weight.len()).expect("room");
    assert_eq!((scene.held(), scene.counts().metadata_bytes - before), ((1, 0), 3_000 + 8));
    assert_eq!(job.await.expect("no panic"), 3_000);
    assert_eq!((scene.held(), scene.counts().metadata_bytes), ((0, 0), before));
    scene.end().await;
}

/// With one place, one job after the other is never refused: what was answered was joined.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_place_is_free_when_the_answer_is_there() {
    let scene = Scene::new(one_worker());
    for round in 0..200u32 {
        let job = scene.node.pools.spawn(scene.call(), move |_call| async move { round }).expect("room");
        assert_eq!(job.await.expect("no panic"), round);
        let job = scene.node.pools.spawn_blocking(scene.call(), move |_call| round).expect("room");
        assert_eq!(job.await.expect("no panic"), round);
        assert_eq!(scene.held(), (0, 0));
    }
    scene.end().await;
}

/// pools.75: a refusal gives the call back, builds nothing and leaves nothing charged.
#[tokio::test]
async fn a_refused_job_gives_its_call_back_47() {
    let scene = Scene::new(one_worker());
    let (job, gate) = gated(&scene);
    let before = scene.counts();
    let refused = scene.node.pools.spawn(scene.call(), |_call| async {}).expect_err("one place");
    assert_full(Err::<(), _>(refused.error()), Dimension::PoolsWorkers, Scope::Node);
    let call = refused.into_owner();
    call.io().checkpoint().expect("it goes on");
    let refused = scene.node.pools.spawn_blocking(call, |_call| ()).expect_err("one place");
    drop(refused);
    assert_full(scene.node.pools.control_blocking(|| ()), Dimension::PoolsWorkers, Scope::Node);
    assert_eq!(scene.counts(), before);
    drop(gate);
    assert_eq!(job.await.expect("no panic"), 7);
    // Metadata: what the answer alone would take is too much.
    let refused = scene.node.pools.spawn_blocking(scene.call(), |_call| Box::new([0u8; 1]));
    refused.expect("that is little").await.expect("no panic");
    let refused = scene.node.pools.spawn_blocking(scene.call(), |_call| [0u8; 16 << 20]);
    let error = refused.expect_err("that is much").error();
    assert_full(Err::<(), _>(error), Dimension::PoolsMetadataBytes, Scope::Node);
    assert_eq!(scene.held(), (0, 0));
    // The place was given back with it.
    scene.node.pools.control_blocking(|| ()).expect("room").await.expect("no panic");
    scene.end().await;
}

/// pools.51: a call of another registry, and one that was stopped.
#[tokio::test]
async fn a_call_that_may_not_go_on_makes_no_job() {
    let (scene, other) = (Scene::new(one_worker()), Scene::new(one_worker()));
    let refused = other.node.pools.spawn(scene.call(), |_call| async {}).expect_err("of another");
    assert_kind(Err::<(), _>(refused.error()), Kind::Denied(Denied::ForeignClient));
    drop(refused);
    let call = scene.call();
    call.io().stop_handle().stop();
    let refused = scene.node.pools.spawn_blocking(call, |_call| ()).expect_err("stopped");
    assert_kind(Err::<(), _>(refused.into()), Kind::Stopped(StopCause::Caller));
    // Stopped after it was submitted and before it began: it is not begun, and its closure is destroyed in the job.
    let call = scene.call();
    let (stop, token) = (call.io().stop_handle(), Token::new(&scene.alive, false));
    let work = move |_call: PoolCall| async move {
        drop(token);
        panic!("it was not to begin")
    };
    let job: ProviderJob<()> = scene.node.pools.spawn(call, work).expect("room");
    stop.stop();
    assert_kind(job.await, Kind::Stopped(StopCause::Caller));
    assert_eq!(scene.counts().contained_panics, 0);
    other.end().await;
    scene.end().await;
}

/// pools.77, pools.58: a real blocking job. Nobody waits for it any more, its session is stopped: it holds its place, its
/// call and its tenant's unit until it ends.
/// Case S43.
#[tokio::test]
async fn a_dropped_waiter_refunds_nothing_53_72_75() {
    let scene = Scene::new(PoolLimits { running_per_tenant: 1, ..one_worker() });
    let (job, gate) = gated(&scene);
    drop(job);
    scene.session.stop();
    tokio::time::sleep(ms(20)).await;
    assert_eq!(scene.held(), (1, 1));
    let again = scene.node.session(&scene.node.plan("alpha", &scene.orders));
    let refused = scene.node.pools.admit_now(&scene.client, &again).expect_err("its unit is held");
    assert_eq!(refused.dimension(), Some(Dimension::PoolsRunningPerTenant));
    assert_full(scene.node.pools.control_blocking(|| ()), Dimension::PoolsWorkers, Scope::Node);
    drop(gate);
    until("it ends", || scene.held() == (0, 0)).await;
    drop(scene.node.call(&scene.client, &again));
    drop(again);
    scene.end().await;
}

/// The wait of a job within its call's stop: who stops waiting stops the call, and the job keeps what it holds.
#[tokio::test]
async fn a_job_waiter_stops_and_refunds_nothing_72() {
    let scene = Scene::new(one_worker());
    let ((gate, opened), (begun, begins)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let call = scene.call();
    let waiter = call.io().job_waiter();
    let work = move |call: PoolCall| {
        drop(begun);
        assert!(opened.recv().is_err());
        call.io().checkpoint()
    };
    let job = scene.node.pools.spawn_blocking(call, work).expect("room");
    assert!(begins.recv().is_err());
    let mut waiting = Box::pin(waiter.wait(job));
    assert!(super::poll::poll_once(waiting.as_mut()).is_pending());
    drop(waiting);
    assert_eq!(scene.held(), (1, 1));
    drop(gate);
    until("it ends", || scene.held() == (0, 0)).await;
    scene.end().await;
}

/// pools.59: a job that holds input and result bytes. Nobody waits; the bytes stay charged until they are destroyed, and an
/// answer that nobody wants is destroyed in the job before the call is given back.
#[tokio::test]
async fn bytes_in_a_job_stay_charged() {
    let scene = Scene::new(one_worker());
    let admission = scene.node.pools.admit(&scene.client, &scene.session).expect("room");
    let mut input = admission.input(1_024, 0).expect("room");
    input.spare_mut(3).expect("staged").copy_from_slice(b"abc");
    input.advance_written(3).expect("written");
    let call = admission
        .wait()
        .await
        .expect("its turn")
        .dispatch(SEND, Cost::new().maximum_output(512))
        .expect("allowed");
    let (gate, opened) = mpsc::channel::<()>();
    let work = move |call: PoolCall| {
        let mut output = call.io().buffer(512, 0).expect("room");
        output.spare_mut(1).expect("staged").copy_from_slice(b"x");
        output.advance_written(1).expect("written");
        let output = output.retain().expect("room");
        assert!(opened.recv().is_err());
        drop(input);
        output
    };
    let job = scene.node.pools.spawn_blocking(call, work).expect("room");
    let bytes = || {
        let io = scene.node.io.snapshot();
        (io.staged_bytes, io.result_bytes)
    };
    until("the result is there", || bytes() == (1_024, 512)).await;
    drop(job);
    assert_eq!((bytes(), scene.held()), ((1_024, 512), (1, 1)));
    drop(gate);
    until("it ends", || scene.held() == (0, 0)).await;
    assert_eq!(bytes(), (0, 0));
    // An answer that is waited for holds the call as long as it is kept.
    let work = |call: PoolCall| async move { call.io().buffer(512, 0) };
    let kept = scene.node.pools.spawn(scene.call(), work).expect("room").await;
    assert_eq!((bytes(), scene.held()), ((512, 0), (0, 1)));
    drop(kept);
    assert_eq!((bytes(), scene.held()), ((0, 0), (0, 0)));
    scene.end().await;
}

/// pools.89 (provider panic): wherever it panics, the job ends, says so, and is counted; everything comes back, and the
/// control task goes on.
#[tokio::test]
async fn a_panicking_job_gives_everything_back_78() {
    let scene = Scene::new(one_worker());
    let pools = &scene.node.pools;
    let token = |panics| Token::new(&scene.alive, panics);
    // The closure, the future, the blocking closure, operator work.
    let job = pools.spawn(scene.call(), |_call| {
        assert!(scene_is_over(), "planted: the closure");
        async {}
    });
    assert_failed(job.expect("room").await);
    let job = pools.spawn(scene.call(), |_call| async {
        tokio::task::yield_now().await;
        assert!(scene_is_over(), "planted: the future");
    });
    assert_failed(job.expect("room").await);
    let job = pools.spawn_blocking(scene.call(), |_call| assert!(scene_is_over(), "planted: blocking"));
    assert_failed(job.expect("room").await);
    let job = pools.control_blocking(|| assert!(scene_is_over(), "planted: operator work"));
    assert_failed(job.expect("room").await);
    assert_eq!((scene.held(), scene.counts().contained_panics), ((0, 0), 4));
    // What a closure or a future owns: its destructor after the work.
    let planted = token(true);
    let job = pools.spawn_blocking(scene.call(), move |_call| drop(planted)).expect("room");
    assert_failed(job.await);
    let future = Dies { owned: token(true), answer: Some(token(false)) };
    let job = pools.spawn(scene.call(), move |_call| future).expect("room");
    assert!(matches!(job.await.map(drop), Err(error) if error.kind() == Kind::JobFailed));
    assert_eq!((scene.held(), scene.counts().contained_panics), ((0, 0), 6));
    // A closure that was not begun.
    let call = scene.call();
    let (stop, planted) = (call.io().stop_handle(), token(true));
    let job = pools.spawn(call, move |_call| async move { drop(planted) }).expect("room");
    stop.stop();
    assert_kind(job.await, Kind::Stopped(StopCause::Caller));
    // An answer that nobody wants.
    let planted = token(true);
    drop(pools.spawn(scene.call(), move |_call| async move { planted }).expect("room"));
    until("it ends", || scene.held() == (0, 0)).await;
    let counts = scene.counts();
    assert_eq!((counts.contained_panics, counts.control_owners, counts.control_failed), (8, 1, false));
    scene.end().await;
}

fn scene_is_over() -> bool {
    std::hint::black_box(false)
}

/// A future that answers at once and panics when it is destroyed.
struct Dies {
    owned: Token,
    answer: Option<Token>,
}

impl std::future::Future for Dies {
    type Output = Token;
    fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Token> {
        assert!(self.owned.panics);
        std::task::Poll::Ready(self.answer.take().expect("polled once"))
    }
}

/// A panic whose payload panics too, when it is dropped.
#[tokio::test]
async fn a_payload_that_panics_is_contained() {
    let scene = Scene::new(one_worker());
    let payload = Token::new(&scene.alive, true);
    let job = scene
        .node
        .pools
        .spawn_blocking(scene.call(), move |_call| std::panic::resume_unwind(Box::new(payload)))
        .expect("room");
    assert_failed::<()>(job.await);
    assert_eq!((scene.held(), scene.counts().contained_panics), ((0, 0), 1));
    scene.end().await;
}

/// pools.92, pools.93: operator work needs no call, goes on while admission is closed, and is refused once retired.
#[tokio::test]
async fn operator_work_until_the_retirement_51() {
    let scene = Scene::new(one_worker());
    let call = scene.call();
    scene.node.pools.close_admission();
    assert_eq!(scene.node.pools.control_blocking(|| 3).expect("room").await, Ok(3));
    // So does the job of an accepted call.
    assert_eq!(scene.node.pools.spawn(call, |_call| async { 4 }).expect("room").await, Ok(4));
    scene.node.pools.retire();
    assert_kind(scene.node.pools.control_blocking(|| 3), Kind::Retired(What::Pools));
    let soon = within(ms(500));
    assert_kind(scene.node.pools.control_blocking_before(soon, || 3), Kind::Retired(What::Pools));
    scene.end().await;
}

/// pools.92: a deadline bounds the begin and the wait, never the work.
#[tokio::test]
async fn operator_work_before_a_deadline_50_53() {
    let scene = Scene::new(one_worker());
    let pools = &scene.node.pools;
    assert_kind(pools.control_blocking_before(within(ms(0)), || 3), Kind::Deadline(Which::Operation));
    assert_eq!(pools.control_blocking_before(within(ms(5_000)), || 3).expect("room").await, Ok(3));
    let (gate, opened) = mpsc::channel::<()>();
    let work = move || opened.recv().is_err();
    let mut job = pools.control_blocking_before(within(ms(20)), work).expect("room");
    let error = (&mut job).await.expect_err("it is late");
    assert_eq!((error.kind(), error.effect()), (Kind::Deadline(Which::Operation), Effect::Uncertain));
    assert!(super::poll::poll_once(std::pin::Pin::new(&mut job)).is_pending(), "inert after its answer");
    assert_eq!(scene.held(), (1, 0));
    drop(gate);
    until("it ends", || scene.held() == (0, 0)).await;
    scene.end().await;
}

/// A deadline that passes while the work waits for a thread: it is not begun.
#[test]
fn operator_work_that_comes_too_late_is_not_begun_50() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .expect("one");
    runtime.block_on(async {
        let scene = Scene::new(PoolLimits { workers: 3, ..one_worker() });
        let (first, gate) = gated(&scene);
        let pools = &scene.node.pools;
        let token = Token::new(&scene.alive, false);
        let late = move || -> () {
            drop(token);
            panic!("it was not to begin")
        };
        let late = pools.control_blocking_before(within(ms(10)), late).expect("room");
        let retired = pools.control_blocking(|| -> () { panic!("it was not to begin") }).expect("room");
        tokio::time::sleep(ms(30)).await;
        drop(late);
        scene.node.pools.retire();
        assert_eq!(scene.counts().workers, 3);
        drop(gate);
        assert_eq!(first.await, Ok(7));
        assert_kind(retired.await, Kind::Retired(What::Pools));
        assert_eq!(scene.counts().contained_panics, 0);
        scene.end().await;
    });
}

/// pools.82, pools.83: a blocking job that outsleeps the deadline of a shutdown is in the report; once it has ended, the
/// registry is clean within 5 ms.
/// Case S58.
#[tokio::test]
async fn a_shutdown_reports_a_sleeping_job_and_is_told_of_its_end() {
    assert_told_at_once(async || {
        let scene = Scene::new(one_worker());
        let ((ended, told), (begun, begins)) = (mpsc::channel(), mpsc::channel::<()>());
        // It sleeps until well after the report, however long the report takes on a busy machine.
        let (reported, report) = mpsc::channel::<()>();
        let work = move |_call: PoolCall| {
            drop(begun);
            assert!(report.recv().is_err());
            std::thread::sleep(ms(30));
            ended.send(Instant::now()).expect("it is waited for");
        };
        drop(scene.node.pools.spawn_blocking(scene.call(), work).expect("room"));
        assert!(begins.recv().is_err());
        let Scene { node, orders, client, session, .. } = scene;
        drop((orders, client, session));
        let asked = Instant::now();
        let left = node.pools.shutdown(within(ms(15))).await;
        assert!(asked.elapsed() >= ms(15) && !left.is_clean());
        assert_eq!((left.workers, left.running_requests, left.control_owners), (1, 1, 1));
        assert!(!left.control_failed, "{left:?}");
        drop(reported);
        let left = node.pools.shutdown(within(Duration::from_secs(10))).await;
        let now = Instant::now();
        assert!(left.is_clean(), "{left:?}");
        node.assert_idle();
        now.duration_since(told.recv().expect("it has ended"))
    })
    .await;
}

/// pools.90: a shutdown waits for the join, not for the call: an asynchronous job that holds nothing any more.
#[tokio::test]
async fn a_shutdown_waits_for_joins() {
    let scene = Scene::new(one_worker());
    let (gate, opened) = tokio::sync::oneshot::channel::<()>();
    let work = move |call: PoolCall| async move {
        drop(call);
        _ = opened.await;
    };
    let job = scene.node.pools.spawn(scene.call(), work).expect("room");
    tokio::task::yield_now().await;
    // The job holds its call though its work let go of it.
    assert_eq!(scene.held(), (1, 1));
    let waiting = {
        let node = scene.node.clone();
        tokio::spawn(async move { node.pools.shutdown(within(Duration::from_secs(10))).await })
    };
    tokio::time::sleep(ms(20)).await;
    assert!(!waiting.is_finished());
    drop((scene.session, scene.client, scene.orders));
    drop(gate);
    job.await.expect("no panic");
    let left = waiting.await.expect("no panic");
    assert!(left.is_clean(), "{left:?}");
    scene.node.assert_idle();
}
