//! What a node costs before it does anything, at the defaults and with every limit at its ceiling, and what a burst leaves
//! behind.
//!
//! ```text
//! cargo run --release --example footprint
//! ```
use latent_capabilities::Deadline;
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::{
    Epoch, OriginSlot, PoolCall, ProviderClient, ProviderPools, ProviderSetup, Resource,
};
use latent_capabilities::broker::{
    Activation, Broker, BrokerLimits, Capability, CapabilitySession, Cost, IoLimits, PlanSpec, PoolLimits,
};
use std::time::{Duration, Instant};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

static BYTES: Capability = Capability::new("latent:example/bytes", &["send"]);

#[derive(Debug)]
struct Nothing;

impl Resource for Nothing {
    fn is_reusable(&mut self) -> bool {
        true
    }
}

/// Resident memory of this process in KiB, by the system's account.
fn resident() -> Anything<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let number = line.split_whitespace().nth(1).ok_or("VmRSS has no number")?;
    Ok(number.parse()?)
}

fn build(
    broker: BrokerLimits,
    io: IoLimits,
    pools: PoolLimits,
) -> Anything<(Broker, IoRuntime, ProviderPools)> {
    let broker = Broker::new(broker)?;
    let io = IoRuntime::new(&broker, io)?;
    let pools = ProviderPools::new(&broker, &io, tokio::runtime::Handle::current(), pools)?;
    Ok((broker, io, pools))
}

fn call(
    pools: &ProviderPools,
    client: &ProviderClient<Nothing>,
    session: &CapabilitySession,
) -> Anything<PoolCall> {
    Ok(pools.admit_now(client, session)?.dispatch(BYTES.operation(0), Cost::new())?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Anything<()> {
    println!("{:>10} {:>14} {:>16}", "limits", "built in ms", "resident KiB more");
    let sets = [
        ("defaults", BrokerLimits::default(), IoLimits::default(), PoolLimits::default()),
        ("ceilings", BrokerLimits::ceilings(), IoLimits::ceilings(), PoolLimits::ceilings()),
    ];
    for (name, broker, io, pools) in sets {
        let before = resident()?;
        let start = Instant::now();
        let (_broker, io, pools) = build(broker, io, pools)?;
        let took = start.elapsed();
        println!("{name:>10} {:>14.2} {:>16}", took.as_secs_f64() * 1e3, resident()?.saturating_sub(before));
        assert!(io.snapshot().is_zero() && pools.snapshot().is_idle());
    }

    // A burst: every staged byte of a default node, written.
    let (broker, io, pools) = build(BrokerLimits::default(), IoLimits::default(), PoolLimits::default())?;
    let provider = pools.install(ProviderSetup::new("burst", "example"), Epoch::NONE)?;
    let client = pools.client::<Nothing>(&provider, OriginSlot::new(0))?;
    let plan = broker.seal(PlanSpec::new("tenant", "example").bind(&BYTES, &provider.reference()))?;
    let session = broker.open(&plan, Activation::until(Deadline::after(Duration::from_secs(60))?))?;
    let before = resident()?;
    let running = call(&pools, &client, &session)?;
    let chunk = io.limits().chunk_bytes as usize;
    let mut held = Vec::new();
    while let Ok(mut buffer) = running.io().buffer(chunk, 0) {
        buffer.spare_mut(chunk)?.fill(1);
        buffer.advance_written(chunk)?;
        held.push(buffer);
    }
    let during = resident()?;
    let bytes = io.snapshot().staged_bytes;
    drop((held, running));
    assert!(io.snapshot().is_zero());
    // The control task gives free blocks back a while after the work that used them.
    let mut after = resident()?;
    for _ in 0..40 {
        if after < before + 1_024 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
        after = resident()?;
    }
    println!("a burst of {bytes} bytes: {before} KiB resident before, {during} during, {after} afterwards");
    Ok(())
}
