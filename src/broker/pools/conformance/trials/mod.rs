//! Trials: every scenario of the conformance tests, once as it is, then once for each way in which the world may spoil it.
//!
//! | sweep | one run for each |
//! | --- | --- |
//! | refusals | reservation that the scenario makes: that one is refused |
//! | drops | poll of a future that it awaits: that future is dropped after it; and poll of the scenario: all of it is dropped |
//! | panics | passing of a door to foreign code, and reading of the clock: that one panics |
//!
//! [`run`] says what has to hold after each run, [`world`] what is foreign, `crate::refuse` where reservations are refused.
//! A scenario is a function of a [`run::Cx`]; it says what it expects of a clean run by itself, and passes on what it was
//! refused. `LATENT_TRIALS=pairs` refuses every two reservations of each scenario, too.
mod bytes;
mod connections;
mod control;
mod inbound;
mod jobs;
mod requests;
mod run;
mod world;

use super::support::{Error, IoLimits, Kind, PoolLimits, ms};
use run::{Scenario, Seen, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use world::{DOORS, Door, End, Trial};

/// Room for everything.
fn roomy() -> (IoLimits, PoolLimits) {
    let pools = PoolLimits { initial_backoff: ms(1), maximum_backoff: ms(1), ..PoolLimits::default() };
    (IoLimits::default(), pools)
}

/// One of each.
fn tight() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    let pools = PoolLimits {
        connections_per_client: 1,
        running: 1,
        running_per_tenant: 1,
        running_per_provider: 1,
        ..pools
    };
    (io, pools)
}

/// Room for requests, and one connection of each client.
fn one_connection() -> (IoLimits, PoolLimits) {
    let (io, pools) = roomy();
    (io, PoolLimits { connections_per_client: 1, ..pools })
}

/// A refusal that the scenario asked for is what it wanted; another one is passed on.
#[track_caller]
fn refused<T>(result: Result<T, Error>, wanted: impl FnOnce(Kind) -> bool) -> Result<(), End> {
    match result {
        Ok(_) => panic!("this was to be refused"),
        Err(error) if wanted(error.kind()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A list of scenarios, each a function of this module, with the limits of its node.
macro_rules! scenarios {
    ($($limits:path: $($name:ident),+;)+) => {
        pub(super) const ALL: &[$crate::broker::pools::conformance::trials::run::Scenario] = &[
            $($($crate::broker::pools::conformance::trials::run::Scenario {
                name: stringify!($name),
                limits: $limits,
                run: |cx| Box::pin($name(cx)),
            },)+)+
        ];
    };
}
use scenarios;

const FILES: [&[Scenario]; 6] =
    [requests::ALL, connections::ALL, bytes::ALL, jobs::ALL, inbound::ALL, control::ALL];

fn all() -> impl Iterator<Item = &'static Scenario> {
    // One alone, for whoever looks for what broke.
    let only = std::env::var("LATENT_TRIALS_ONLY").ok();
    let all = FILES.into_iter().flatten();
    all.filter(move |scenario| only.as_ref().is_none_or(|only| scenario.name == only))
}

/// What a sweep did.
struct Figures {
    sweep: &'static str,
    begun: Instant,
    /// See `assert_told_at_once`.
    slowness: u32,
    asked: u32,
    scenarios: u32,
    runs: u32,
    happened: u32,
    deepest: u32,
    broken: Vec<String>,
}

impl Figures {
    /// Runs every scenario as it is, and hands it on with what was counted.
    fn of(sweep: &'static str, mut each: impl FnMut(&mut Figures, &Scenario, Seen)) {
        let begun = Instant::now();
        let slowness = std::env::var("LATENT_SLOWNESS").map_or(1, |factor| factor.parse().expect("a number"));
        let mut figures = Figures {
            sweep,
            begun,
            slowness,
            asked: 0,
            scenarios: 0,
            runs: 0,
            happened: 0,
            deepest: 0,
            broken: Vec::new(),
        };
        for scenario in all() {
            figures.scenarios += 1;
            if let Some(seen) = figures.run(scenario, Trial::Nothing) {
                each(&mut figures, scenario, seen);
            }
        }
        figures.tell();
    }
    /// In a runtime of its own: what a run leaves behind is no other's. All that broke is told at the end.
    fn run(&mut self, scenario: &Scenario, trial: Trial) -> Option<Seen> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let seen = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(scenario, trial))));
        seen.inspect_err(|panic| self.broken.push(run::said(&**panic))).ok()
    }
    /// Runs a trial that has to come about. Where every step takes so many times as long, one of so many.
    fn one(&mut self, scenario: &Scenario, trial: Trial) {
        self.asked += 1;
        if !self.asked.is_multiple_of(self.slowness) {
            return;
        }
        let happened = self.run(scenario, trial).is_none_or(|seen| seen.happened);
        // A thread may be done a poll earlier or later than it was in the clean run.
        self.runs += u32::from(happened || !jobs::ON_THREADS.contains(&scenario.name));
        self.happened += u32::from(happened);
    }
    /// One line, and what broke.
    fn tell(self) {
        let Figures { sweep, begun, slowness: _, asked: _, scenarios, runs, happened, deepest, broken } =
            self;
        let took = begun.elapsed();
        println!("trials: {sweep}: {scenarios} scenarios, {runs} runs, deepest {deepest}, {took:.1?}");
        let shown = &broken[..broken.len().min(40)];
        assert!(broken.is_empty(), "{} of {runs} runs broke a law:\n{}", broken.len(), shown.join("\n"));
        assert_eq!(happened, runs, "what was counted in a clean run comes about in the next");
    }
}

/// Each reservation of each scenario is refused, once.
#[test]
fn every_reservation_is_refused_once() {
    let pairs = std::env::var("LATENT_TRIALS").is_ok_and(|size| size == "pairs");
    Figures::of("refused", |figures, scenario, clean| {
        figures.deepest = figures.deepest.max(clean.reservations);
        for first in 1..=clean.reservations {
            figures.one(scenario, Trial::Refuse(vec![first]));
            for second in first + 1..=if pairs { clean.reservations } else { 0 } {
                figures.one(scenario, Trial::Refuse(vec![first, second]));
            }
        }
    });
}

/// Each future of each scenario is dropped after each of its polls that was pending.
#[test]
fn every_future_is_dropped_after_every_poll() {
    Figures::of("dropped one", |figures, scenario, clean| {
        figures.deepest = figures.deepest.max(clean.polls_of_futures);
        for number in clean.pending {
            figures.one(scenario, Trial::DropOne(number));
        }
    });
}

/// Each scenario is dropped as a whole after each of its polls, and before the first.
#[test]
fn every_scenario_is_dropped_after_every_poll() {
    Figures::of("dropped all", |figures, scenario, clean| {
        figures.deepest = figures.deepest.max(clean.polls);
        for number in 0..clean.polls {
            figures.one(scenario, Trial::DropAll(number));
        }
    });
}

/// Foreign code panics wherever the library calls it, once.
#[test]
fn foreign_code_panics_at_every_door() {
    Figures::of("panicked", |figures, scenario, clean| {
        for (door, passed) in DOORS.into_iter().zip(clean.passed) {
            figures.deepest = figures.deepest.max(passed);
            for number in 1..=passed {
                figures.one(scenario, Trial::Panic(door, number));
            }
        }
    });
}

/// The probe of a session panics wherever it is asked, once.
#[test]
fn probes_panic_wherever_they_are_asked() {
    Figures::of("probes panicked", |figures, scenario, _| {
        let Some(probed) = figures.run(scenario, Trial::Probed) else { return };
        let asked = probed.passed[Door::Probe as usize];
        figures.deepest = figures.deepest.max(asked);
        for number in 1..=asked {
            figures.one(scenario, Trial::Panic(Door::Probe, number));
        }
    });
}

/// The clock panics at each reading on behalf of a scenario.
#[test]
fn the_clock_panics_at_every_reading() {
    Figures::of("clock", |figures, scenario, clean| {
        figures.deepest = figures.deepest.max(clean.clock_reads);
        for number in 1..=clean.clock_reads {
            figures.one(scenario, Trial::Clock(number));
        }
    });
}
