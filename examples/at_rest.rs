//! What 1,000 parked waits cost while nothing happens: once requests in line, once running calls that wait for their
//! provider. Prints the processor time of the whole process over five seconds and fails above 0.1 % of one processor. Then
//! it lets their deadlines pass, each at its own instant, and says how late they were served.
//!
//! ```text
//! cargo run --release --example at_rest
//! ```
use latent_capabilities::Deadline;
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{Epoch, OriginSlot, ProviderPools, ProviderSetup, Resource};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Capability, Cost, IoLimits, Operation, PlanSpec, PoolLimits,
};
use rustix::time::{ClockId, clock_gettime};
use std::future::pending;
use std::time::{Duration, Instant};

static BYTES: Capability = Capability::new("latent:example/bytes", &["send"]);
const SEND: Operation = BYTES.operation(0);

const WAITERS: u32 = 1_000;
const PER_SESSION: u32 = 100;
/// Until everybody is parked and the looks that follow a burst are rare.
const SETTLE: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(5);
/// The deadlines begin when the rest is over and lie two milliseconds apart.
const FIRST: Duration = Duration::from_secs(9);
const APART: Duration = Duration::from_millis(2);
/// Of one processor, while at rest.
const MOST: f64 = 0.1;

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug)]
struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

/// Processor time of this process, user and system, all threads: what `getrusage` tells, in nanoseconds.
fn processor() -> Anything<Duration> {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Ok(Duration::new(u64::try_from(now.tv_sec)?, u32::try_from(now.tv_nsec)?))
}

/// The share of one processor at rest, in percent.
fn measure(what: &str, in_line: bool) -> Anything<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let broker = Broker::new(BrokerLimits::ceilings())?;
    let io = IoRuntime::new(&broker, IoLimits::ceilings())?;
    let running = if in_line { 1 } else { WAITERS };
    let limits = PoolLimits { running_per_provider: running, ..PoolLimits::ceilings() };
    let pools = ProviderPools::new(&broker, &io, runtime.handle().clone(), limits)?;
    let orders = pools.install(ProviderSetup::new("orders", "example"), Epoch::NONE)?;
    let client = pools.client::<Nothing>(&orders, OriginSlot::new(0))?;
    let open = |tenant: u32| -> Anything<_> {
        let spec = PlanSpec::new(&format!("tenant-{tenant}"), "example").bind(&BYTES, &orders.reference());
        let until = Deadline::after(Duration::from_secs(60))?;
        Ok(broker.open(&broker.seal(spec)?, Activation::until(until))?)
    };
    let sessions = (0..=WAITERS / PER_SESSION).map(open).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    let mut blocker = None;
    if in_line {
        let last = sessions.last().ok_or("there is a session")?;
        blocker = Some(pools.admit_now(&client, last)?.dispatch(SEND, Cost::new())?);
    }
    let mut waits = Vec::new();
    for number in 0..WAITERS {
        let session = &sessions[usize::try_from(number / PER_SESSION)?];
        let until = Deadline::at(begun + FIRST + APART * number);
        waits.push(if in_line {
            let wait = pools.admit_until(&client, session, until)?.wait();
            runtime.spawn(async move { (wait.await.is_err(), until.instant().elapsed()) })
        } else {
            let call = pools.admit_now_until(&client, session, until)?.dispatch(SEND, Cost::new())?;
            runtime.spawn(async move {
                let ended = call.io().wait_for(pending::<()>()).await.is_err();
                (ended, until.instant().elapsed())
            })
        });
    }
    std::thread::sleep(SETTLE);
    let (before, from) = (processor()?, Instant::now());
    std::thread::sleep(REST);
    let (used, rest) = (processor()? - before, from.elapsed());
    let share = 100.0 * used.as_secs_f64() / rest.as_secs_f64();

    let before = processor()?;
    let mut late = Vec::new();
    for wait in waits {
        let (ended, after) = runtime.block_on(wait)?;
        if !ended {
            return Err("a wait ended with what never comes".into());
        }
        late.push(after);
    }
    let expiry = (processor()? - before) / WAITERS;
    late.sort();
    println!(
        "{WAITERS} {what}: {used:?} in {:.1} s at rest, {share:.4} %; expiry {expiry:?} of processor each, \
         late by {:?} (half), {:?} (most)",
        rest.as_secs_f64(),
        late[late.len() / 2],
        late[late.len() - 1],
    );
    drop((blocker, sessions));
    let left = runtime.block_on(pools.shutdown(Deadline::after(Duration::from_secs(5))?));
    if left.is_clean() { Ok(share) } else { Err(format!("not clean: {left:?}").into()) }
}

fn main() -> Anything<()> {
    let shares = [measure("requests in line", true)?, measure("calls that wait", false)?];
    if shares.iter().any(|&share| share > MOST) {
        return Err(format!("more than {MOST} % of a processor at rest").into());
    }
    Ok(())
}
