//! The simulator itself: the language, the model, the world in which both are done, and what runs a script. The test in
//! `main.rs` drives it with seeds, the fuzz target `operations` with bytes.

mod bytes;
mod conns;
mod control;
mod drain;
mod expect;
mod faults;
mod gates;
mod inbound;
mod jobs;
mod maintenance;
mod model;
mod order;
mod polls;
mod possible;
mod real;
mod requests;
mod script;
mod sockets;
mod transfers;
mod wakes;
mod world;

pub(crate) use script::{Kind, Script};

use script::{Op, Writer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use world::World;

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    /// Steps that found something to do, by kind.
    pub(crate) by_kind: Vec<u64>,
    /// Steps, the others included.
    pub(crate) steps: u64,
    /// How often something was compared with what the model says.
    pub(crate) looks: u64,
    /// Everything that was seen of the library after each step, as one number.
    pub(crate) trace: u64,
}

/// Where and how a run broke a law.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) step: usize,
    pub(crate) law: String,
}

impl Broken {
    /// The first word: which law it was.
    fn name(&self) -> &str {
        self.law.split(':').next().unwrap_or_default()
    }
}

/// Where steps come from.
enum Source<'a> {
    /// As they were written.
    Script(&'a [Op]),
    /// Written as the run goes on, by the state that it has come to, and noted.
    Seed(Writer, &'a mut Vec<Op>),
}

impl Source<'_> {
    fn next(&mut self, at: usize, world: &World) -> Option<Op> {
        match self {
            Source::Script(ops) => ops.get(at).copied(),
            Source::Seed(writer, noted) => {
                let op = writer.next(|kind| world.can(kind))?;
                noted.push(op);
                Some(op)
            }
        }
    }
}

/// Runs a script from an empty node to a clean shutdown.
pub(crate) fn run(script: &Script) -> Result<Done, Broken> {
    run_from(&script.settings, Source::Script(&script.ops))
}

/// Writes the script of a seed, and runs it meanwhile.
pub(crate) fn run_seed(seed: u64, steps: usize, leaks: bool) -> (Script, Result<Done, Broken>) {
    let (settings, writer) = Writer::of_seed(seed, steps, leaks);
    let mut ops = Vec::with_capacity(steps);
    let done = run_from(&settings, Source::Seed(writer, &mut ops));
    (Script { settings, ops }, done)
}

/// The panics that a script wants are nothing to be told about.
fn hush() {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str() != Some(gates::OURS) {
                hook(panic);
            }
        }));
    });
}

fn run_from(settings: &script::Settings, mut source: Source<'_>) -> Result<Done, Broken> {
    hush();
    let mut at = 0;
    // Each step in a line, so that two runs can be laid side by side.
    let told = std::env::var_os("TRACE").is_some();
    let mut done = Done { by_kind: vec![0; Kind::ALL.len()], steps: 0, looks: 0, trace: 0 };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        // Futures are polled by hand: tokio's budget for a task would end some of those polls early.
        runtime.block_on(tokio::task::unconstrained(async {
            let mut world = World::new(settings);
            world.told = told;
            while let Some(op) = source.next(at, &world) {
                let stepped = world.step(op).await;
                if told {
                    println!("{at:>6} {:016x} {op}: {}", world.trace(), world.tell());
                }
                match stepped {
                    Ok(did) => done.by_kind[op.kind as usize] += u64::from(did),
                    Err(law) => return Err(format!("{law}\n  at {op}: {}", world.describe())),
                }
                at += 1;
            }
            done.steps = at as u64;
            (done.trace, done.looks) = (world.trace(), world.compared());
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
pub(crate) fn shrink(script: &Script, broken: Broken) -> (Script, Broken) {
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
