//! What a node costs as a whole: the time to make one, the memory it has at rest and after a burst: `cargo bench --bench node`.

#[allow(dead_code, unreachable_pub, reason = "each bench uses a part of what they share")]
#[path = "../perf/src/lib.rs"]
mod perf;

use criterion::{Criterion, criterion_group, criterion_main};
use latent_capabilities::broker::io::IoRuntime;
use latent_capabilities::broker::pools::ProviderPools;
use latent_capabilities::broker::{Broker, BrokerLimits, IoLimits, PoolLimits};
use perf::{CHUNK, Node, fill, must};

fn construction(criterion: &mut Criterion) {
    let executor = must(tokio::runtime::Builder::new_current_thread().enable_time().build());
    let mut make = |name: &str, limits: (BrokerLimits, IoLimits, PoolLimits)| {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let broker = must(Broker::new(limits.0));
                let io = must(IoRuntime::new(&broker, limits.1));
                let pools = must(ProviderPools::new(&broker, &io, executor.handle().clone(), limits.2));
                drop((pools, io, broker));
                // The control task ends here, and with it what it keeps.
                executor.block_on(tokio::task::yield_now());
            });
        });
    };
    make("a node made and dropped, default limits", Default::default());
    make(
        "a node made and dropped, every limit at its ceiling",
        (BrokerLimits::ceilings(), IoLimits::ceilings(), PoolLimits::ceilings()),
    );
}

/// Resident memory of this process in KiB, as the kernel counts it.
fn resident() -> u64 {
    let status = must(std::fs::read_to_string("/proc/self/status"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says it");
    must(line.trim().trim_end_matches(" kB").parse())
}

/// Not a time, so criterion only gives it its place; printed once.
fn memory(_: &mut Criterion) {
    const BURST: usize = 1_000;
    let before = resident();
    let node = Node::warm();
    let at_rest = resident();
    let call = node.call();
    let mut buffers = Vec::with_capacity(BURST);
    for _ in 0..BURST {
        let mut buffer = must(call.io().buffer(CHUNK, 0));
        fill(&mut buffer);
        buffers.push(buffer);
    }
    let in_burst = resident();
    drop((buffers, call));
    println!("resident memory of a node with every limit at its ceiling, in KiB");
    println!("  at rest                                  {}", at_rest.saturating_sub(before));
    println!("  with {BURST} buffers of {CHUNK} bytes filled     {}", in_burst.saturating_sub(before));
    println!("  right after they were given back         {}", resident().saturating_sub(before));
}

criterion_group!(benches, memory, construction);
criterion_main!(benches);
