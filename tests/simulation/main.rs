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
#![allow(clippy::print_stdout, reason = "the figures of a run are its result")]

mod engine;

use engine::{Broken, Kind, Script, run, run_seed, shrink};
use std::time::{Duration, Instant};

/// Steps of one run, unless `STEPS` says otherwise.
const STEPS: usize = 400;
/// How many runs the test does, unless `LATENT_SIM_SECONDS` says for how long or `LATENT_SIM_STEPS` how far.
const RUNS: u64 = 700;

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
        let (script, done) = run_seed(seed, steps);
        match done {
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
