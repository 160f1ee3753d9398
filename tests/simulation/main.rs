//! The simulator: the real library against a plain model, on virtual time, with a seeded scheduler.
//!
//! A run is a script: small random limits, and some hundred steps of one language (`engine/script.rs`). Each step is done by
//! the library and by the model; then everything is looked at and compared (`engine/world.rs`). Counts are compared after every
//! step in half of the runs, and seldom in the others, for whoever counts recalls the credits, which are to be lent and used
//! too; a third of all runs leave room for that. Steps are written as the run goes on, most of them such that find something to do. A step may be a fault; half of the faults are left out of a run.
//! After the last step comes the liveness phase (`engine/drain.rs`): nothing new, no faults, no time; everything must end by
//! itself. The fuzz target `operations` runs the same scripts from bytes.
//!
//! ```text
//! cargo test --test simulation                              700 runs, with what was kept first
//! LATENT_SIM_SECONDS=90 cargo test --test simulation        as many as the time allows; LATENT_SIM_FROM says the first seed
//! LATENT_SIM_STEPS=10000000 cargo test --test simulation    so many steps
//! SEED=7 STEPS=400 cargo test --test simulation             one run again; with TRACE=1 each step in a line, LEAKS=1 if it leaked
//! ```
//!
//! A run that breaks a law is shrunk: steps are left out as long as it breaks the same law. What is left is printed as a
//! script; put into `kept/NAME.txt` it is run first, for ever. One run in 64 is repeated, from the script that it left: it
//! must leave the same trace of everything that was seen.
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
//! | jobs, panics | a job keeps its place until it is joined, and its call until it has ended; each panic of foreign code is counted or is the caller's |
//! | bytes, streams | bytes in order and once; the first end stays |
//! | connections, backoff | no expired, dead or replaced one is handed out; none is destroyed for no reason; pauses are exact |
//! | ledger, finality | what is spent is spent; what is closed stays closed |
//! | liveness, zero, shutdown | without faults everything drains, to zero, and is clean |
//!
//! Covered: sessions, budgets, admission (direct and pooled, staged and at once, with instants of its own), waiting in any
//! order of polls, cancellation anywhere, stops, buffers, streams, transfers, connections, dials, acquire lines, jobs of all
//! kinds, cleanup, ingress, maintenance, follow-ups, metadata of protocols, rotation, retirement of epochs, revocation, withdrawal,
//! lowering of limits, closing, retirement, time, lifetimes, leaked buffers, panics of wakers, destructors and jobs. Not yet:
//! probes, scratch memory, observers and the resource table, leaks of anything but buffers. One thread runs it,
//! but for jobs that block: races of steps are for the models in `loom-tests/`.
#![allow(clippy::print_stdout, reason = "the figures of a run are its result")]

mod engine;

use engine::{Broken, Done, Kind, Script, run, run_seed, shrink};
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

/// What many runs did, together.
#[derive(Default)]
struct Sum {
    runs: u64,
    steps: u64,
    effective: u64,
    looks: u64,
    repeated: u64,
    by_kind: Vec<u64>,
}

impl Sum {
    fn add(&mut self, done: &Done) {
        self.runs += 1;
        self.steps += done.steps;
        self.looks += done.looks;
        self.by_kind.resize(Kind::ALL.len(), 0);
        self.by_kind.iter_mut().zip(&done.by_kind).for_each(|(sum, more)| *sum += more);
        self.effective = self.by_kind.iter().sum();
    }
    fn print(&self, seconds: f64) {
        for (kind, count) in Kind::ALL.iter().zip(&self.by_kind) {
            println!("{:<16} {count:>10}{}", kind.word(), if kind.is_fault() { "  fault" } else { "" });
        }
        let faults = || Kind::ALL.iter().zip(&self.by_kind).filter(|(kind, _)| kind.is_fault());
        println!("figure: seeds: {}", self.runs);
        println!("figure: steps: {}", self.steps);
        println!("figure: steps that did something: {}", self.effective);
        println!("figure: steps/s: {:.0}", self.steps as f64 / seconds);
        println!("figure: kinds of steps: {}", Kind::ALL.len());
        println!("figure: kinds of faults: {}", faults().count());
        println!("figure: kinds of faults that fired: {}", faults().filter(|(_, count)| **count > 0).count());
        println!("figure: faults fired: {}", faults().map(|(_, count)| count).sum::<u64>());
        println!("figure: comparisons with the model: {}", self.looks);
        println!("figure: runs repeated with one trace: {}", self.repeated);
        println!("figure: laws broken: 0");
    }
}

/// What a fuzzer writes is a script too.
#[test]
fn any_bytes_are_a_script() {
    let mut steps = 0;
    for length in 0_u32..40 {
        let mut word = length | 1;
        let bytes: Vec<u8> = (0..length * 25)
            .map(|_| {
                word = word.wrapping_mul(0x915f_77f5).rotate_left(7) ^ 0x2545;
                (word >> 11) as u8
            })
            .collect();
        let script = Script::of_bytes(&bytes);
        assert_eq!(Script::parse(&script.to_string()), Ok(script.clone()), "a script is its text");
        match run(&script) {
            Ok(done) => steps += done.steps,
            Err(broken) => fail("bytes", &script, broken),
        }
    }
    assert!(steps > 2_000, "only {steps} steps");
}

#[test]
fn the_library_does_what_the_model_says() {
    let kept = run_what_was_kept();
    let steps = number("STEPS").map_or(STEPS, |steps| steps as usize);
    let only = number("SEED");
    let wanted = number("LATENT_SIM_STEPS");
    let first = only.or_else(|| number("LATENT_SIM_FROM")).unwrap_or(1);
    let runs_for = number("LATENT_SIM_SECONDS").map(Duration::from_secs);
    // A leak is what leak sanitizers tell of, so the tests' own runs have none.
    let leaks = runs_for.is_some() || number("LEAKS").is_some();
    let begun = Instant::now();
    let mut sum = Sum::default();
    for seed in first.. {
        let (script, done) = run_seed(seed, steps, leaks);
        let what = format!("SEED={seed} STEPS={steps}");
        let done = done.unwrap_or_else(|broken| fail(&what, &script, broken));
        if seed % 64 == 0 {
            // The same script does the same, whether it is written meanwhile or was written before.
            let again = run(&script).unwrap_or_else(|broken| fail(&what, &script, broken));
            assert_eq!(done, again, "{what}: it did something else when it was repeated");
            sum.repeated += 1;
        }
        sum.add(&done);
        let enough = match (wanted, runs_for) {
            (Some(wanted), _) => sum.steps >= wanted,
            (None, Some(runs_for)) => begun.elapsed() >= runs_for,
            (None, None) => sum.runs >= RUNS,
        };
        if only.is_some() || enough {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    sum.print(seconds);
    let last = first + sum.runs - 1;
    println!("simulation: seeds {first} to {last}, {} steps, {kept} kept, {seconds:.1} s", sum.steps);
    // In a run of any length each kind of step finds something to do.
    if only.is_none() && sum.runs >= 200 {
        for (kind, count) in Kind::ALL.iter().zip(&sum.by_kind) {
            assert!(*count > 0 || kind.word() == "forget", "no step of {} did anything", kind.word());
        }
    }
}
