//! Which tests reach which mutant, and which of them it breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::build::Program;

/// A test that says nothing for so long hangs.
const LONGEST_SILENCE: Duration = Duration::from_secs(240);
/// Memory that one program of tests may map, in KiB: a mutant that takes without end is ended by it.
const MOST_MEMORY: u64 = 8 << 20;
/// How many tests one process runs before the next one is begun, the likeliest first, and how many threads it has for them.
const BATCHES: [(usize, &str); 3] =
    [(6, "--test-threads=1"), (40, "--test-threads=2"), (usize::MAX, "--test-threads=4")];

/// One test, and what it needs when no mutant is on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Test {
    pub name: String,
    pub program: PathBuf,
    pub folder: PathBuf,
    pub took: Duration,
    pub reaches: BTreeSet<usize>,
}

/// Which of the tests that reach a mutant are run for it.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    All,
    /// Those that take no longer than this.
    Quick(Duration),
    /// Those of its own module that take longer.
    SlowNear(Duration),
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Caught(String),
    Timeout(String),
    /// Survived so many tests that reach it.
    Missed(usize),
}

enum End {
    Passed,
    Failed(String),
    TimedOut,
}

fn command(program: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -v {MOST_MEMORY}; ulimit -c 0; exec \"$@\""), "sh"])
        .arg(program)
        .args(arguments);
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// Runs a program of tests until one of them fails, or says nothing for `limit`.
fn run(mut command: Command, limit: Duration) -> std::io::Result<End> {
    let mut child = command.spawn()?;
    let group = child.id();
    let (send, lines) = channel();
    let reader = child.stdout.take().map(|out| {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        })
    });
    let mut end = None;
    while end.is_none() {
        match lines.recv_timeout(limit) {
            Ok(line) if line.starts_with("test ") && line.contains("... FAILED") => {
                end = Some(End::Failed(line.split(' ').nth(1).unwrap_or_default().to_owned()));
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => end = Some(End::TimedOut),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if end.is_some() {
        // The group is ours: the child was made its leader.
        let _ =
            Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
    }
    let status: ExitStatus = child.wait()?;
    if let Some(reader) = reader {
        let _ = reader.join();
    }
    Ok(end.unwrap_or_else(|| if status.success() { End::Passed } else { End::Failed(format!("({status})")) }))
}

/// Every test of the programs, each run alone once. Those that fail so are left out and named.
pub fn tests(programs: &[Program], folder: &Path, scratch: &Path, jobs: usize) -> std::io::Result<Vec<Test>> {
    let mut all = Vec::new();
    for program in programs {
        let list = command(&program.executable, folder, &["--list", "--format", "terse"]).output()?;
        for line in String::from_utf8_lossy(&list.stdout).lines() {
            if let Some(name) = line.strip_suffix(": test") {
                all.push((name.to_owned(), program.executable.clone()));
            }
        }
    }
    let (next, done) = (Mutex::new(all.into_iter().enumerate()), Mutex::new(Vec::new()));
    workers(jobs, || {
        while let Some((number, (name, program))) = taken(&next) {
            let reached = scratch.join(format!("reached-{number}"));
            let _ = std::fs::remove_file(&reached);
            let mut command = command(&program, folder, &["--exact", &name, "--test-threads=1"]);
            command.env("LATENT_MUTANT_REACHED", &reached).env_remove("LATENT_MUTANT");
            let begun = Instant::now();
            let end = run(command, Duration::from_secs(600))?;
            let took = begun.elapsed();
            let text = std::fs::read_to_string(&reached).unwrap_or_default();
            let _ = std::fs::remove_file(&reached);
            if matches!(end, End::Passed) {
                let reaches = text.lines().filter_map(|id| id.parse().ok()).collect();
                locked(&done).push(Test { name, program, folder: folder.to_owned(), took, reaches });
            } else {
                eprintln!("left out, for it fails without a mutant: {name}");
            }
        }
        Ok(())
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next one. A function of its own, so that the lock is not held while it is worked on.
fn taken<I: Iterator>(next: &Mutex<I>) -> Option<I::Item> {
    locked(next).next()
}

fn workers(jobs: usize, work: impl Fn() -> std::io::Result<()> + Sync) -> std::io::Result<()> {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..jobs).map(|_| scope.spawn(&work)).collect();
        all.into_iter().try_for_each(|one| {
            one.join().unwrap_or_else(|_| Err(std::io::Error::other("a worker panicked")))
        })
    })
}

/// Runs the tests that reach each mutant as `which` says; `each` hears of every
/// outcome at once.
pub fn mutants(
    ids: &[usize],
    tests: &[Test],
    jobs: usize,
    which: Which,
    module: impl Fn(usize) -> String + Sync,
    each: impl Fn(usize, &Outcome, Duration) + Sync,
) -> std::io::Result<BTreeMap<usize, Outcome>> {
    let kills: Mutex<BTreeMap<&str, usize>> = Mutex::default();
    let (next, outcomes) = (Mutex::new(ids.iter().copied()), Mutex::new(BTreeMap::new()));
    workers(jobs, || {
        while let Some(id) = taken(&next) {
            let begun = Instant::now();
            let near = module(id);
            let mut reaching: Vec<&Test> = tests.iter().filter(|test| test.reaches.contains(&id)).collect();
            reaching.retain(|test| match which {
                Which::All => true,
                Which::Quick(limit) => test.took <= limit,
                Which::SlowNear(limit) => test.took > limit && test.name.starts_with(&near),
            });
            // First those that caught most, then those of the same module, then the quick ones.
            reaching.sort_by_key(|test| (!test.name.starts_with(&near), test.took));
            {
                let kills = locked(&kills);
                reaching.sort_by_key(|test| {
                    let killed = kills.get(test.name.as_str()).copied().unwrap_or(0);
                    std::cmp::Reverse(if test.took < Duration::from_secs(2) { killed.min(20) } else { 0 })
                });
            }
            let outcome = one(id, &reaching)?;
            if let Outcome::Caught(by) = &outcome
                && let Some(test) = reaching.iter().find(|test| test.name == *by)
            {
                *locked(&kills).entry(&test.name).or_default() += 1;
            }
            each(id, &outcome, begun.elapsed());
            locked(&outcomes).insert(id, outcome);
        }
        Ok(())
    })?;
    Ok(outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn one(id: usize, reaching: &[&Test]) -> std::io::Result<Outcome> {
    let mut rest = reaching;
    for (size, threads) in BATCHES {
        let (batch, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        let mut programs: Vec<&PathBuf> = batch.iter().map(|test| &test.program).collect();
        programs.sort();
        programs.dedup();
        for program in programs {
            let of_program: Vec<&Test> =
                batch.iter().copied().filter(|test| test.program == *program).collect();
            let mut arguments = vec!["--exact", threads];
            arguments.extend(of_program.iter().map(|test| test.name.as_str()));
            let longest = of_program.iter().map(|test| test.took).max().unwrap_or_default();
            let mut command = command(program, &of_program[0].folder, &arguments);
            command.env("LATENT_MUTANT", id.to_string()).env_remove("LATENT_MUTANT_REACHED");
            match run(command, (Duration::from_secs(15) + longest * 8).min(LONGEST_SILENCE))? {
                End::Passed => {}
                End::Failed(by) => return Ok(Outcome::Caught(by)),
                End::TimedOut => return Ok(Outcome::Timeout(format!("one of {}", of_program[0].name))),
            }
        }
    }
    Ok(Outcome::Missed(reaching.len()))
}
