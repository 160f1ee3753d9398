//! Whether every refusal is justified: eight threads admit, wait, dial, check out, park, install, lower limits and take
//! snapshots, and each refusal is judged afterwards.
//!
//! ```text
//! cargo run --release --example justified -- --seconds 30
//! ```
//!
//! What it can prove. Every call is bracketed by ticks, and from the brackets of all threads follow two bounds on what was
//! in use of each limit at each tick (`check.rs`). A refusal that names a limit is
//!
//! * *certain* if the lowest use that is possible filled the limit throughout the call;
//! * *possible* if the highest use that is possible, attempts in flight included, filled it at some instant of the call;
//! * *by a lowering* if it takes the units of a lowering in flight to fill it;
//! * **unjustified** otherwise: no order of the calls explains it. There must be none.
//!
//! So an unjustified refusal is proven to be one; a *possible* refusal is one that no observer from outside can tell from a
//! justified one, since the use that filled the limit may have lasted for a few instructions only. The second run stays
//! below all limits, lowered ones too: there any refusal at all is unjustified, whatever it names.
mod check;
mod limits;
mod load;

use check::Verdict;
use limits::Load;
use load::{THREADS, round};
use std::time::{Duration, Instant};

const STEPS: u32 = 4_000;

fn seconds() -> Result<u64, String> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, _, _) => Ok(30),
        (Some("--seconds"), Some(value), None) => {
            value.parse().map_err(|error| format!("--seconds {value}: {error}"))
        }
        _ => Err("usage: justified [--seconds N]".to_owned()),
    }
}

fn run(load: Load, seconds: u64, handle: &tokio::runtime::Handle) -> Verdict {
    let (start, mut all, mut rounds) = (Instant::now(), Verdict::default(), 0);
    while start.elapsed() < Duration::from_secs(seconds) || rounds == 0 {
        rounds += 1;
        all.add(round(load, rounds, STEPS, handle));
    }
    println!("{load:?}: {rounds} nodes, {THREADS} threads, {:.1} s", start.elapsed().as_secs_f64());
    println!(
        "  {} calls, {} installations, {} lowerings, {} refused lowerings with {} uses named right",
        all.calls, all.installs, all.accepted_lowerings, all.refused_lowerings, all.named
    );
    println!("  {} refusals, {} of them unjustified", all.refusals(), all.unjustified.len());
    println!(
        "    full: {} certain, {} possible, {} by a lowering in flight, {} by a recall in flight",
        all.certain, all.explained, all.by_lowering, all.by_recall
    );
    println!(
        "    promised: {} with somebody waiting, {} with a mark that outlived its waiter; replaced epoch: {}",
        all.promised, all.late_marks, all.replaced
    );
    for (limit, count) in &all.by_limit {
        println!("    {count:>9} {limit}");
    }
    for line in all.unjustified.iter().take(20) {
        println!("    UNJUSTIFIED {line}");
    }
    all
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = seconds()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let saturated = run(Load::Saturated, seconds, runtime.handle());
    let quiet = run(Load::Quiet, seconds, runtime.handle());
    if !saturated.unjustified.is_empty() {
        return Err("a refusal is not justified".into());
    }
    if quiet.refusals() > 0 {
        return Err("something was refused although no limit was reached".into());
    }
    Ok(())
}
