//! Us and the peers in one process: every group's subjects take turns, batch by batch, in several passes over all groups.

mod admission;
mod alloc;
mod buffers;
mod lanes;
mod machine;
mod measure;
mod ours;
mod plot;
mod pools;
mod report;
mod request;
mod streams;
mod targets;
mod tasks;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use measure::Group;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// How much is measured.
#[derive(Debug, Default)]
struct Options {
    quick: bool,
    only: Option<String>,
    json: Option<String>,
    svg: Option<String>,
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let (mut options, mut arguments) = (Options::default(), arguments.iter());
    while let Some(word) = arguments.next() {
        let mut value = || arguments.next().cloned().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--quick" => options.quick = true,
            "--only" => options.only = Some(value()?),
            "--json" => options.json = Some(value()?),
            "--svg" => options.svg = Some(value()?),
            other => return Err(format!("no such option: {other}")),
        }
    }
    Ok(options)
}

pub(super) fn run(arguments: &[String]) -> ExitCode {
    let options = match options(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if let Err(why) = compare(&options) {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Makes every group whose key has the word. The node of the first groups is driven by hand: the thread is inside a runtime, for its
/// timers, but in no task of it, which would be made to yield every now and then.
fn groups() -> Vec<Group> {
    let by_hand = ours::runtime(1);
    // Never left: nodes that are kept stand on it.
    std::mem::forget(by_hand.enter());
    let handle = by_hand.handle();
    let mut groups = vec![machine::group()];
    groups.extend(admission::groups(handle));
    groups.extend(tasks::groups());
    groups.extend(pools::groups(handle));
    groups.extend(streams::groups(handle));
    groups.extend(buffers::groups(handle));
    groups.extend(request::groups(handle));
    groups.extend(admission::by_two(handle));
    groups.extend(pools::by_two(handle));
    groups.extend(buffers::by_two(handle));
    groups
}

fn compare(options: &Options) -> Result<(), String> {
    let begun = Instant::now();
    let (passes, rounds, span) =
        if options.quick { (2, 6, Duration::from_micros(400)) } else { (5, 40, Duration::from_micros(1500)) };
    let load = report::load();
    let mut groups = groups();
    if let Some(word) = &options.only {
        groups.retain(|group| group.key.contains(word.as_str()) || group.key == "machine");
    }
    let mut step = 0;
    let steps = groups.len() * (passes as usize + 1);
    let mut progress = |what: &str, title: &str| {
        step += 1;
        eprintln!("[{step:3}/{steps}] {:5.1} s  {what}: {title}", begun.elapsed().as_secs_f64());
    };
    for group in &mut groups {
        progress("warming", group.title);
        group.prepare(span);
    }
    for pass in 1..=passes {
        for group in &mut groups {
            progress(&format!("pass {pass} of {passes}"), group.title);
            group.rounds(rounds);
        }
    }
    let report = report::Report::new(&groups, options.quick, begun.elapsed(), load);
    print!("{}", report.text());
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()).map_err(|why| format!("{file}: {why}"))?;
    }
    if let Some(folder) = &options.svg {
        plot::write(folder, &groups)?;
    }
    Ok(())
}
