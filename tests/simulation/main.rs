//! The simulator: the real library against a plain model, on virtual time, with a seeded scheduler.
//!
//! A run is a script: small random limits, and some hundred steps of one language (`script.rs`). Each step is done by the
//! library and by the model; then everything is looked at and compared (`world.rs`). After the last step comes the liveness
//! phase (`drain.rs`): nothing new, no faults, no time; everything must end by itself.
//!
//! ```text
//! cargo test --test simulation                              700 runs, with what was kept first
//! LATENT_SIM_SECONDS=90 cargo test --test simulation        as many as the time allows; LATENT_SIM_FROM says the first seed
//! LATENT_SIM_STEPS=10000000 cargo test --test simulation    so many steps
//! SEED=7 STEPS=400 cargo test --test simulation             one run again
//! ```
//!
//! A run that breaks a law is shrunk: steps are left out as long as it breaks the same law. What is left is printed as a
//! script; put into `kept/NAME.txt` it is run first, for ever.
//!
//! The laws, by the word that a failure begins with:
//!
//! | law | says |
//! | --- | --- |
//! | conservation, ceiling | every count of every snapshot is the sum of what lives, and at most its limit, after every step |
//! | exactly once | what has no owner is gone; nothing is destroyed twice |
//! | refusal | an attempt fails if and only if there is a reason, and names one that holds: dimension and scope, or cause |
//! | fifo, rotation, no loss | who is granted was next; whoever could be granted is |
//! | wakes | who can go on was woken; who waits in line was not |
//! | deadlines, stops, phases | waiting ends in time, at once when it is stopped, and never for no reason |
//! | bytes, streams | bytes in order and once; the first end stays |
//! | connections, backoff | no expired, dead or replaced one is handed out; none is destroyed for no reason; pauses are exact |
//! | ledger, finality | what is spent is spent; what is closed stays closed |
//! | liveness, zero, shutdown | without faults everything drains, to zero, and is clean |
//!
//! Covered: sessions, budgets, admission (direct and pooled, staged and at once, with instants of its own), waiting in any
//! order of polls, cancellation anywhere, stops, buffers, streams, connections, dials, acquire lines, rotation, retirement of
//! epochs, revocation, withdrawal, lowering of limits, closing, retirement, time. Not yet: transfers, jobs and cleanup,
//! ingress, maintenance, follow-ups, probes, maximum lifetime, panics of foreign code. One thread runs it: races of steps
//! are for the models in `loom-tests/`.
//!
//! Open: `SEED=1003908` ends with an operation that the model has among the waiting and the library does not. Whose mistake
//! that is has not been found out.
#![allow(clippy::print_stdout, reason = "the figures of a run are its result")]

mod bytes;
mod conns;
mod control;
mod drain;
mod model;
mod order;
mod real;
mod requests;
mod script;
mod sockets;
mod world;

use script::{Kind, Script};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use world::World;

/// Steps of one run, unless `STEPS` says otherwise.
const STEPS: usize = 400;
/// How many runs the test does, unless `LATENT_SIM_SECONDS` says for how long or `LATENT_SIM_STEPS` how far.
const RUNS: u64 = 700;

/// What a run did: steps that found something to do, by kind.
#[derive(Clone)]
struct Done {
    by_kind: Vec<u64>,
}

/// Where and how a run broke a law.
#[derive(Debug)]
struct Broken {
    step: usize,
    law: String,
}

impl Broken {
    /// The first word: which law it was.
    fn name(&self) -> &str {
        self.law.split(':').next().unwrap_or_default()
    }
}

/// Runs a script from an empty node to a clean shutdown.
fn run(script: &Script) -> Result<Done, Broken> {
    let mut at = 0;
    let mut done = Done { by_kind: vec![0; Kind::ALL.len()] };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        // Futures are polled by hand: tokio's budget for a task would end some of those polls early.
        runtime.block_on(tokio::task::unconstrained(async {
            let mut world = World::new(&script.settings);
            for op in &script.ops {
                match world.step(*op).await {
                    Ok(did) => done.by_kind[op.kind as usize] += u64::from(did),
                    Err(law) => return Err(format!("{law}\n  at {op}: {}", world.describe())),
                }
                at += 1;
            }
            world.drain().await
        }))
    }));
    match ran {
        Ok(Ok(())) => Ok(done),
        Ok(Err(law)) => Err(Broken { step: at, law }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(Broken { step: at, law: format!("panic: {}", text.unwrap_or_default()) })
        }
    }
}

/// Leaves out steps as long as the script breaks the same law: large pieces first, then single steps.
fn shrink(script: &Script, broken: Broken) -> (Script, Broken) {
    let (mut least, mut broken) = (script.clone(), broken);
    least.ops.truncate(broken.step + 1);
    let begun = Instant::now();
    let mut piece = least.ops.len().div_ceil(2);
    loop {
        let (mut at, mut shorter) = (0, false);
        while at < least.ops.len() && begun.elapsed() < Duration::from_secs(60) {
            let mut tried = least.clone();
            tried.ops.drain(at..(at + piece).min(least.ops.len()));
            match run(&tried) {
                Err(other) if other.name() == broken.name() => {
                    (least, broken, shorter) = (tried, other, true);
                }
                _ => at += piece,
            }
        }
        if piece == 1 && !shorter {
            return (least, broken);
        }
        piece = if piece > 1 { piece / 2 } else { 1 };
        if begun.elapsed() >= Duration::from_secs(60) {
            return (least, broken);
        }
    }
}

fn fail(what: &str, script: &Script, broken: Broken) -> ! {
    println!("{what}: step {}: {}", broken.step, broken.law);
    // The library's own alarm goes off once for a process and each run would print it.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (least, least_broken) = shrink(script, broken);
    std::panic::set_hook(hook);
    println!("shrunk to {} steps:\n{least}# {}", least.ops.len(), least_broken.law.replace('\n', "\n# "));
    panic!("{what} broke a law: {}", least_broken.law);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn run_what_was_kept() -> usize {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/kept");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of kept scripts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a kept script");
        let name = file.display().to_string();
        let script = Script::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(Script::parse(&script.to_string()), Ok(script.clone()), "a script is its text");
        if let Err(broken) = run(&script) {
            fail(&name, &script, broken);
        }
    }
    files.len()
}

#[test]
fn the_library_does_what_the_model_says() {
    let kept = run_what_was_kept();
    let steps = number("STEPS").map_or(STEPS, |steps| steps as usize);
    let only = number("SEED");
    let wanted = number("LATENT_SIM_STEPS");
    let first = only.or_else(|| number("LATENT_SIM_FROM")).unwrap_or(1);
    let runs_for = number("LATENT_SIM_SECONDS").map(Duration::from_secs);
    let begun = Instant::now();
    let (mut runs, mut taken, mut by_kind) = (0_u64, 0_u64, vec![0_u64; Kind::ALL.len()]);
    for seed in first.. {
        let script = Script::of_seed(seed, steps);
        match run(&script) {
            Ok(done) => by_kind.iter_mut().zip(&done.by_kind).for_each(|(sum, more)| *sum += more),
            Err(broken) => fail(&format!("SEED={seed} STEPS={steps}"), &script, broken),
        }
        runs += 1;
        taken = by_kind.iter().sum();
        let enough = match (wanted, runs_for) {
            (Some(wanted), _) => taken >= wanted,
            (None, Some(runs_for)) => begun.elapsed() >= runs_for,
            (None, None) => runs >= RUNS,
        };
        if only.is_some() || enough {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    for (kind, count) in Kind::ALL.iter().zip(&by_kind) {
        println!("{:<16} {count:>10}", kind.word());
    }
    println!(
        "simulation: {runs} runs (seeds {first} to {}), {taken} steps, {kept} kept, {seconds:.1} s, {:.0} steps/s",
        first + runs - 1,
        taken as f64 / seconds
    );
    // In a run of any length each kind of step finds something to do.
    if only.is_none() && runs >= 200 {
        for (kind, count) in Kind::ALL.iter().zip(&by_kind) {
            assert!(*count > 0, "no step of {} did anything", kind.word());
        }
    }
}
