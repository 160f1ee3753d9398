//! The harness of the exhaustive models.
//!
//! A model is a short closure that runs two to four threads on the *real* types of `latent-capabilities`. Under
//! `--cfg loom` those types stand on loom's atomics and cells, and `check` tries every interleaving up to a
//! [`Bound`], every value that a weakly ordered load may return included.
//!
//! loom itself ends in silence when it runs into a limit of time or of permutations: a search that was cut short
//! looks like one that ended. So the harness gives loom no limits. It counts the executions and watches the clock
//! itself, and a model that runs out of time **fails**. So does one that explored only a handful of executions,
//! since such a model usually touches nothing that loom can see.
//!
//! Each model is searched twice: with its loads as loads, and with its loads as read-modify-writes that change nothing.
//! Each way finds what the other cannot (`src/sync/doubles.rs` says why). `executions` counts both.
//!
//! Each model writes one line, to its output and to the figures file:
//!
//! ```text
//! model release_meets_lowering bound 3 executions 5088 ms 611 ended on latent_capabilities::account::node::NodeWord
//! ```
//!
//! Behind `on` stands the path of the real type that the models of its file search, as the compiler names it.
//!
//! Instead of `ended` it says `FAILED` when an execution broke the model, `CUT` when the time was up, and `resumed` when
//! the search began at a checkpoint.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p loom-tests --release --locked
//! ```
//!
//! | variable | means |
//! | --- | --- |
//! | `LATENT_LOOM_BOUND` | `4`, `+1`, `-1` or `complete`: replaces or moves the bound of every model that has one |
//! | `LATENT_LOOM_LOADS` | `loads` or `steps`: searches every model in one of the two ways only |
//! | `LATENT_LOOM_SECONDS` | the time one model may take; default 300 |
//! | `LATENT_LOOM_FIGURES` | the file that the figure lines are appended to; default `loom-figures.txt` in the target folder |
//! | `LOOM_LOG`, `LOOM_LOCATION`, `LOOM_CHECKPOINT_FILE`, `LOOM_CHECKPOINT_INTERVAL` | loom's own, to look at one failing execution |
//!
//! `LOOM_MAX_DURATION`, `LOOM_MAX_PERMUTATIONS` and `LOOM_MAX_PREEMPTIONS` are ignored.

#[cfg(loom)]
pub use harness::{FEWEST, check, check_few, check_within, figures_file};

/// How far a model is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Every execution in which threads are preempted at most this often. Switches at which a thread has nothing
    /// to do are not counted.
    Preemptions(usize),
    /// Every execution there is.
    Complete,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Preemptions(bound) => write!(f, "{bound}"),
            Self::Complete => f.write_str("complete"),
        }
    }
}

impl Bound {
    /// The bound to use when the environment says `change`: a number, a number with a sign, or `complete`.
    /// A complete search stays complete.
    ///
    /// # Errors
    ///
    /// Says what is wrong with `change`, or that it takes the bound below zero.
    pub fn changed(self, change: &str) -> Result<Self, String> {
        let Self::Preemptions(bound) = self else { return Ok(self) };
        let wrong = || format!("`{change}` is no bound: give a number, +number, -number or `complete`");
        if change == "complete" {
            return Ok(Self::Complete);
        }
        let number: usize = change.trim_start_matches(['+', '-']).parse().map_err(|_| wrong())?;
        let changed = match change.as_bytes().first() {
            Some(b'+') => bound.checked_add(number),
            Some(b'-') => bound.checked_sub(number),
            _ => Some(number),
        };
        changed.map(Self::Preemptions).ok_or_else(wrong)
    }
}

#[cfg(loom)]
mod real;

#[cfg(loom)]
mod harness {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::Bound;

    /// Fewer executions than this, and [`check`] takes the model for one that shows loom nothing.
    pub const FEWEST: usize = 10;

    /// Branches of one execution: enough for three threads of a dozen steps each. Past it, loom panics.
    const BRANCHES: usize = 20_000;

    /// Searches `model` up to `bound` in both ways, prints its figure line and appends it to the figures file.
    ///
    /// # Panics
    ///
    /// When an execution fails, when the search does not end in time, and when it ended after fewer than [`FEWEST`]
    /// executions.
    #[track_caller]
    pub fn check(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
        check_within(time_limit(), name, bound, model);
    }

    /// Like [`check`], for a search that is allowed `limit` instead of `LATENT_LOOM_SECONDS`.
    ///
    /// # Panics
    ///
    /// As [`check`].
    #[track_caller]
    pub fn check_within(limit: Duration, name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
        let executions = search(limit, name, bound, model);
        assert!(
            executions >= FEWEST,
            "model {name} explored {executions} executions only: is what it races made of loom's types? \
             If it really has no more, say why with `check_few`"
        );
    }

    /// Like [`check`], for a model that really has only a few executions; `why` says how that comes.
    ///
    /// # Panics
    ///
    /// When an execution fails, when the search does not end in time, when there was only one execution (nothing
    /// raced) and when there were enough of them for [`check`].
    #[track_caller]
    pub fn check_few(name: &str, why: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
        let executions = search(time_limit(), name, bound, model);
        println!("model {name} is small: {why}");
        assert!(executions > 1, "model {name} has one execution: nothing in it races");
        assert!(executions < FEWEST, "model {name} explored {executions} executions: use `check`");
    }

    #[track_caller]
    fn search(limit: Duration, name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) -> usize {
        let bound = match std::env::var("LATENT_LOOM_BOUND") {
            Ok(change) => bound.changed(&change).unwrap_or_else(|wrong| panic!("LATENT_LOOM_BOUND: {wrong}")),
            Err(_) => bound,
        };
        let mut builder = loom::model::Builder::new();
        builder.max_branches = BRANCHES;
        builder.preemption_bound = match bound {
            Bound::Preemptions(bound) => Some(bound),
            Bound::Complete => None,
        };
        // No limits that end the search in silence: the clock below fails it instead.
        builder.max_permutations = None;
        builder.max_duration = None;
        let resumed = builder.checkpoint_file.as_ref().is_some_and(|file| file.exists());

        let search = Search {
            name: name.to_owned(),
            on: crate::real::searched_in(std::panic::Location::caller().file()),
            bound,
            started: Instant::now(),
            executions: Arc::new(AtomicUsize::new(0)),
            late: Arc::new(AtomicBool::new(false)),
            outcome: "FAILED",
        };
        let model = Arc::new(model);
        let mut most = 0;
        // Twice, for what loom misses when loads are loads, and what it cannot show when they are not: see there.
        for &steps in ways() {
            latent_capabilities::model::sync::loads_are_steps(steps);
            let before = search.executions.load(Ordering::Relaxed);
            let (count, late) = (Arc::clone(&search.executions), Arc::clone(&search.late));
            let (model, started) = (Arc::clone(&model), search.started);
            builder.check(move || {
                // Between two executions, while no thread of the model exists: the panic ends the search loudly.
                if started.elapsed() >= limit {
                    late.store(true, Ordering::Relaxed);
                    panic!("the search did not end within {limit:?}");
                }
                count.fetch_add(1, Ordering::Relaxed);
                model();
            });
            most = most.max(search.executions.load(Ordering::Relaxed) - before);
        }
        latent_capabilities::model::sync::loads_are_steps(false);
        search.end(if resumed { "resumed" } else { "ended" });
        most
    }

    /// The ways in which a model is searched: with loads as loads, and with loads as steps.
    fn ways() -> &'static [bool] {
        match std::env::var("LATENT_LOOM_LOADS").as_deref() {
            Ok("loads") => &[false],
            Ok("steps") => &[true],
            Ok(other) => panic!("LATENT_LOOM_LOADS: `{other}` is neither `loads` nor `steps`"),
            Err(_) => &[false, true],
        }
    }

    fn time_limit() -> Duration {
        let seconds = std::env::var("LATENT_LOOM_SECONDS").map_or(Ok(300), |text| text.parse());
        Duration::from_secs(seconds.unwrap_or_else(|wrong| panic!("LATENT_LOOM_SECONDS: {wrong}")))
    }

    /// One search; leaves its figure line behind however it ends.
    struct Search {
        name: String,
        on: String,
        bound: Bound,
        started: Instant,
        executions: Arc<AtomicUsize>,
        late: Arc<AtomicBool>,
        outcome: &'static str,
    }

    impl Search {
        fn end(mut self, outcome: &'static str) {
            self.outcome = outcome;
        }
    }

    impl Drop for Search {
        fn drop(&mut self) {
            let line = format!(
                "model {} bound {} executions {} ms {} {} on {}\n",
                self.name,
                self.bound,
                self.executions.load(Ordering::Relaxed),
                self.started.elapsed().as_millis(),
                if self.late.load(Ordering::Relaxed) { "CUT" } else { self.outcome },
                self.on,
            );
            print!("{line}");
            let file = figures_file();
            // One write of a whole line in append mode: lines of models that run side by side don't mix.
            let written = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&file)
                .and_then(|mut open| open.write_all(line.as_bytes()));
            if let Err(wrong) = written {
                let wrong = format!("{}: {wrong}", file.display());
                // A second panic would hide the first.
                if std::thread::panicking() { eprintln!("{wrong}") } else { panic!("{wrong}") }
            }
        }
    }

    /// The file that the figure lines are appended to.
    ///
    /// # Panics
    ///
    /// When the running binary is not where cargo puts test binaries and `LATENT_LOOM_FIGURES` is not set.
    pub fn figures_file() -> PathBuf {
        if let Some(file) = std::env::var_os("LATENT_LOOM_FIGURES") {
            return PathBuf::from(file);
        }
        // A test binary lies in TARGET/PROFILE/deps/.
        let binary = std::env::current_exe().expect("the running binary has a path");
        let target =
            binary.ancestors().nth(3).expect("a test binary lies three folders deep in the target folder");
        target.join("loom-figures.txt")
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn the_environment_replaces_moves_or_lifts_a_bound() {
        let three = Bound::Preemptions(3);
        assert_eq!(three.changed("5"), Ok(Bound::Preemptions(5)));
        assert_eq!(three.changed("+1"), Ok(Bound::Preemptions(4)));
        assert_eq!(three.changed("-3"), Ok(Bound::Preemptions(0)));
        assert_eq!(three.changed("complete"), Ok(Bound::Complete));
        assert_eq!(Bound::Complete.changed("2"), Ok(Bound::Complete));
        for wrong in ["", "+", "-4", "three", "++1x"] {
            assert!(three.changed(wrong).is_err(), "`{wrong}` was taken for a bound");
        }
    }

    /// Without `--cfg loom` the model files are empty crates. This test stands in for them: it reads their source, so
    /// that none can be left out of the search or go around the harness.
    #[test]
    fn every_model_file_is_for_loom_only_and_goes_through_the_harness() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut models = 0;
        for file in std::fs::read_dir(&folder).expect("loom-tests/tests can be listed") {
            let path = file.expect("an entry of loom-tests/tests can be read").path();
            if path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a model file can be read");
            let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let (tests, name) = (code().filter(|line| line.trim() == "#[test]").count(), path.display());
            assert!(code().any(|line| line == "#![cfg(loom)]"), "{name}: lacks #![cfg(loom)]");
            assert!(tests > 0, "{name}: has no model");
            for forbidden in ["loom::model(", "Builder", "#[ignore", "LOOM_MAX"] {
                assert!(
                    !code().any(|line| line.contains(forbidden)),
                    "{name}: `{forbidden}` goes around the harness"
                );
            }
            if !path.ends_with("harness.rs") {
                models += tests;
            }
        }
        println!(
            "{models} models are searched only under --cfg loom (RUSTFLAGS); this build searches none of them"
        );
        assert!(models > 0, "there is no model in {}", folder.display());
    }
}
