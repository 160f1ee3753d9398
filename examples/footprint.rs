//! What a node costs before it does anything, at the defaults and with every limit at its ceiling.
//!
//! ```text
//! cargo run --release --example footprint
//! ```
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::ProviderPools;
use latent_capabilities::broker::{Broker, BrokerLimits, IoLimits, PoolLimits};
use std::time::Instant;

/// Resident memory of this process in KiB, by the system's account.
fn resident() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let number = line.split_whitespace().nth(1).ok_or("VmRSS has no number")?;
    Ok(number.parse()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>10} {:>14} {:>16}", "limits", "built in ms", "resident KiB more");
    let sets = [
        ("defaults", BrokerLimits::default(), IoLimits::default(), PoolLimits::default()),
        ("ceilings", BrokerLimits::ceilings(), IoLimits::ceilings(), PoolLimits::ceilings()),
    ];
    for (name, broker, io, pools) in sets {
        let before = resident()?;
        let start = Instant::now();
        let broker = Broker::new(broker)?;
        let io = IoRuntime::new(&broker, io)?;
        let pools = ProviderPools::new(&broker, &io, tokio::runtime::Handle::current(), pools)?;
        let took = start.elapsed();
        let after = resident()?;
        println!("{name:>10} {:>14.2} {:>16}", took.as_secs_f64() * 1e3, after.saturating_sub(before));
        assert!(io.snapshot().is_zero() && pools.snapshot().is_idle());
    }
    Ok(())
}
