//! Mutation testing with one build.
//!
//! `cargo mutants` builds the library once for each mutant, and this one has some three thousand. This program takes its list
//! (`cargo mutants --list --json`), writes all of them into one copy of the source, each behind a question (`plant`), and
//! builds that once (`build`). Then it runs each test alone to see which mutants it reaches, and for each mutant the tests
//! that reach it, until one fails (`run`).
//!
//! ```text
//! latent-mutants LIST SOURCE TREE RESULTS [OPTION VALUE]... -- CARGO-TEST-ARGUMENTS
//! ```
//!
//! * `LIST`: what `cargo mutants --list --json` printed
//! * `SOURCE`, `TREE`: the repository, and a copy of it that may be written to
//! * `RESULTS`: a line for each mutant: outcome, seconds, name, and what caught it
//! * `--sample 2/8`: every eighth mutant, from the third
//! * `--quick SECONDS`: leaves out the tests that take longer
//! * `--slow SECONDS`: only the tests of the mutant's own module that take longer
//! * `--resume yes`: goes on with earlier `RESULTS` of the same source
//! * `--missed-of`: only those that earlier results call missed
//!
//! `latent-mutants table [--survivors FILE] RESULTS...` counts them for each folder; what a later file caught is caught. With
//! a file of survivors it names those that are missed and not explained there, and fails if there are any.

mod build;
mod plant;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use plant::{Left, Mutant};
use run::{Outcome, Which};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("table") => table(&arguments[1..]),
        _ => Asked::of(&arguments).and_then(|asked| whole(&asked)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

struct Asked {
    list: PathBuf,
    source: PathBuf,
    tree: PathBuf,
    results: PathBuf,
    jobs: usize,
    sample: (usize, usize),
    only: Option<String>,
    missed_of: Vec<String>,
    resume: bool,
    which: Which,
    cargo: Vec<String>,
}

impl Asked {
    fn of(arguments: &[String]) -> Result<Self, String> {
        let split = arguments.iter().position(|one| one == "--").unwrap_or(arguments.len());
        let (mut own, cargo) =
            (arguments[..split].iter(), arguments.get(split + 1..).unwrap_or_default().to_vec());
        let mut path = || own.next().map(PathBuf::from).ok_or("give LIST SOURCE TREE RESULTS".to_owned());
        let (list, source, tree, results) = (path()?, path()?, path()?, path()?);
        let mut asked = Self {
            list,
            source,
            tree,
            results,
            jobs: 1,
            sample: (0, 1),
            only: None,
            missed_of: Vec::new(),
            resume: false,
            which: Which::All,
            cargo,
        };
        while let Some(name) = own.next() {
            let value = own.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{name} {value}: no number"));
            match name.as_str() {
                "--jobs" => asked.jobs = number(value)?.max(1),
                "--sample" => {
                    let (part, of) = value.split_once('/').ok_or("--sample K/N")?;
                    asked.sample = (number(part)?, number(of)?.max(1));
                }
                "--only" => asked.only = Some(value.clone()),
                "--quick" => asked.which = Which::Quick(Duration::from_secs(number(value)? as u64)),
                "--slow" => asked.which = Which::SlowNear(Duration::from_secs(number(value)? as u64)),
                "--resume" => asked.resume = value == "yes",
                "--missed-of" => asked.missed_of.push(value.clone()),
                _ => return Err(format!("{name} is not known")),
            }
        }
        Ok(asked)
    }
}

fn whole(asked: &Asked) -> Result<(), String> {
    let said = |why: std::io::Error| why.to_string();
    let list = std::fs::read_to_string(&asked.list).map_err(said)?;
    let all: Vec<Mutant> = serde_json::from_str(&list).map_err(|why| why.to_string())?;
    // Lines move between one source and the next; a mutant is known by the rest of its name.
    let earlier = results(&asked.missed_of)?.into_iter().filter(|(_, (outcome, _))| outcome == "missed");
    let earlier: BTreeSet<String> = earlier.map(|(name, _)| lasting(&name)).collect();
    let own = asked.results.to_string_lossy().into_owned();
    let done = if asked.resume && asked.results.exists() { results(&[own])? } else { BTreeMap::new() };
    let (part, of) = asked.sample;
    let wanted = |number: usize, mutant: &Mutant| {
        number % of == part
            && asked.only.as_ref().is_none_or(|only| mutant.name.contains(only.as_str()))
            && (asked.missed_of.is_empty() || earlier.contains(&lasting(&mutant.name)))
            && !done.contains_key(&mutant.name)
    };
    // All are planted, whichever are wanted: so one build serves for every part.
    let mutants: Vec<(usize, &Mutant)> = all.iter().enumerate().collect();

    // What did not compile last time does not now: the list is the same.
    let known = asked.results.with_extension("left.json");
    let mut left: Left = match std::fs::read_to_string(&known) {
        Ok(text) if asked.resume => serde_json::from_str(&text).map_err(|why| why.to_string())?,
        _ => Left::default(),
    };
    let sources = build::sources(&asked.source).map_err(said)?;
    let build::Built { programs, not } =
        build::build(&sources, &mutants, &asked.tree, &asked.cargo, &mut left)?;
    std::fs::write(&known, serde_json::to_string(&left).map_err(|why| why.to_string())?).map_err(said)?;
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).truncate(false).open(&asked.results).map_err(said)?;
    if !asked.resume {
        file.set_len(0).map_err(said)?;
    }
    let file = Mutex::new(file);
    let line = |outcome: &str, seconds: f64, name: &str, by: &str| {
        let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = writeln!(file, "{outcome}\t{seconds:.1}\t{name}\t{by}");
    };
    let mut planted = Vec::new();
    for (id, mutant) in &mutants {
        match not.get(id) {
            _ if !wanted(*id, mutant) => {}
            _ if left.unviable.contains(id) => line("unviable", 0.0, &mutant.name, "does not compile"),
            Some(why) if why.starts_with("unviable") => line("unviable", 0.0, &mutant.name, why),
            Some(why) => line("unplanted", 0.0, &mutant.name, why),
            None => planted.push(*id),
        }
    }
    let package =
        asked.tree.join(if asked.cargo.iter().any(|one| one == "loom-tests") { "loom-tests" } else { "." });
    let scratch = asked.results.parent().unwrap_or(Path::new("."));
    let reach = asked.results.with_extension("reach.json");
    let tests = match std::fs::read_to_string(&reach) {
        Ok(text) if asked.resume => serde_json::from_str(&text).map_err(|why| why.to_string())?,
        _ => run::tests(&programs, &package, scratch, asked.jobs).map_err(said)?,
    };
    std::fs::write(&reach, serde_json::to_string(&tests).map_err(|why| why.to_string())?).map_err(said)?;
    let reached: BTreeSet<usize> = tests.iter().flat_map(|test| test.reaches.iter().copied()).collect();
    eprintln!(
        "{} mutants, {} of them to be run; {} tests reach {}",
        all.len(),
        planted.len(),
        tests.len(),
        reached.len()
    );
    // Most bits are joined with those they are not yet in: there it is the same, and every test has to be run to see it.
    let late = |id: usize| all[id].name.contains("replace | with ^");
    // Otherwise in an order that has nothing to do with the source: wherever it is stopped, it has seen a fair sample.
    planted.sort_by_key(|id| (late(*id), *id as u64 * 0x9E37_79B9 % 0xFFFF_FFFB));
    let each = |id: usize, outcome: &Outcome, took: Duration| {
        let (outcome, by) = match outcome {
            Outcome::Caught(by) => ("caught", by.clone()),
            Outcome::Timeout(by) => ("timeout", by.clone()),
            Outcome::Missed(tests) => ("missed", format!("{tests} tests reach it")),
        };
        line(outcome, took.as_secs_f64(), &all[id].name, &by);
    };
    // `src/mem/arena/word.rs` is tested by `mem::arena::…`.
    let module = |id: usize| {
        let path: Vec<&str> = all[id].file.split(['/', '.']).skip(1).take(2).collect();
        path.join("::")
    };
    run::mutants(&planted, &tests, asked.jobs, asked.which, module, each).map_err(said)?;
    table(&[asked.results.to_string_lossy().into_owned()])
}

/// By name: the outcome, and what is said to it. What was caught once is caught.
fn results(files: &[String]) -> Result<BTreeMap<String, (String, String)>, String> {
    let mut found: BTreeMap<String, (String, String)> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
        for line in text.lines() {
            let mut parts = line.split('\t');
            let (Some(outcome), Some(_), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let new = (outcome.to_owned(), parts.next().unwrap_or_default().to_owned());
            let old = found.get(name).map_or("", |(outcome, _)| outcome.as_str());
            if !matches!((old, outcome), ("caught" | "timeout", _) | ("missed", "unviable" | "unplanted")) {
                found.insert(name.to_owned(), new);
            }
        }
    }
    Ok(found)
}

/// The mutants that a file explains, named as cargo-mutants does, but without line and column.
fn explained(file: &str) -> Result<BTreeSet<String>, String> {
    let text = std::fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

/// The name without line and column.
fn lasting(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    let file = parts.next().unwrap_or_default();
    format!("{file}:{}", parts.nth(2).unwrap_or_default())
}

fn table(arguments: &[String]) -> Result<(), String> {
    let (explained, files) = match arguments {
        [option, file, rest @ ..] if option == "--survivors" => (Some(explained(file)?), rest),
        _ => (None, arguments),
    };
    let mut folders: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    let (results, mut open, mut figures) = (results(files)?, Vec::new(), Vec::new());
    for (name, (outcome, by)) in &results {
        let path = name.split(':').next().unwrap_or_default();
        let depth = if path.starts_with("src/broker/") { 3 } else { 2 };
        let folder = path.split('/').take(depth).collect::<Vec<_>>().join("/");
        let why = explained.as_ref().is_some_and(|explained| explained.contains(&lasting(name)));
        let outcome = if outcome == "missed" && why { "explained" } else { outcome.as_str() };
        for folder in [folder, "all".to_owned()] {
            *folders.entry(folder).or_default().entry(outcome).or_default() += 1;
        }
        if outcome == "missed" {
            open.push(format!("missed: {name} ({by})"));
        }
    }
    println!(
        "| folder | mutants | unviable | not planted | tested | caught | timeout | missed | of these explained | score |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (folder, counts) in &folders {
        let count = |outcome: &str| counts.get(outcome).copied().unwrap_or(0);
        let (caught, timeout, explained) = (count("caught"), count("timeout"), count("explained"));
        let missed = count("missed") + explained;
        let (all, tested) = (counts.values().sum::<usize>(), caught + timeout + missed);
        let tenths = (1000 * (caught + timeout)).checked_div(tested).unwrap_or(0);
        println!(
            "| `{folder}` | {all} | {} | {} | {tested} | {caught} | {timeout} | {missed} | {explained} | {}.{} % |",
            count("unviable"),
            count("unplanted"),
            tenths / 10,
            tenths % 10
        );
        figures.push(format!(
            "figure: mutants tested, {folder}: {tested}\nfigure: mutants missed, {folder}: {missed}"
        ));
    }
    println!("{}", figures.join("\n"));
    if explained.is_none() {
        return Ok(());
    }
    open.iter().for_each(|line| println!("{line}"));
    if open.is_empty() { Ok(()) } else { Err(format!("{} mutants are missed and not explained", open.len())) }
}
