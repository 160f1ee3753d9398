//! How one figure is taken: batches of all subjects of a group in turn, round after round, pass after pass.
//!
//! Of one thread the best batch counts, because everything that disturbs a batch makes it longer. Two threads that get in each
//! other's way are also fast when something keeps them apart, so there only batches count in which both had a core nearly
//! all the time, and of those the middle one.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::alloc;

/// The share of a batch that both threads must have had a core for.
const TOGETHER: f64 = 0.85;

/// Does that many operations and gives the time they took, without what had to be prepared for them.
pub(super) type Work = Box<dyn FnMut(u64) -> Duration>;

/// Does that many operations, on any thread.
pub(super) type Part = Box<dyn FnMut(u64) + Send>;

/// What is run.
pub(super) enum Run {
    /// On this thread, or with threads of its own.
    Alone(Work),
    /// The first part alone, then both at once.
    Twice([Part; 2]),
}

/// One thing that is measured: ours, a peer, or a control.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) ours: bool,
    /// What ours does in the same time and this does not.
    pub(super) lacks: &'static str,
    run: Run,
    batch: u64,
    /// Nanoseconds per operation of every batch; of the first part alone where there are two.
    pub(super) times: Vec<f64>,
    /// Nanoseconds per operation and thread of every batch in which both parts really ran at once.
    pub(super) both: Vec<f64>,
    /// Batches of two threads in which they did not.
    pub(super) apart: u32,
    /// Blocks taken per operation in steady state.
    pub(super) blocks: f64,
}

impl Subject {
    fn new(name: &'static str, ours: bool, lacks: &'static str, run: Run) -> Self {
        Self { name, ours, lacks, run, batch: 0, times: Vec::new(), both: Vec::new(), apart: 0, blocks: 0.0 }
    }

    /// Ours.
    pub(super) fn ours(name: &'static str, work: Work) -> Self {
        Self::new(name, true, "", Run::Alone(work))
    }

    /// A peer.
    pub(super) fn peer(name: &'static str, lacks: &'static str, work: Work) -> Self {
        Self::new(name, false, lacks, Run::Alone(work))
    }

    /// Ours, by one thread and by two.
    pub(super) fn ours_twice(name: &'static str, parts: [Part; 2]) -> Self {
        Self::new(name, true, "", Run::Twice(parts))
    }

    /// A peer, by one thread and by two.
    pub(super) fn peer_twice(name: &'static str, lacks: &'static str, parts: [Part; 2]) -> Self {
        Self::new(name, false, lacks, Run::Twice(parts))
    }

    /// The best batch.
    pub(super) fn best(&self) -> f64 {
        least(&self.times)
    }

    /// Whether it is run by two threads too.
    pub(super) fn is_twice(&self) -> bool {
        matches!(self.run, Run::Twice(_))
    }

    /// The middle batch of two threads; not a number if they never ran at once.
    pub(super) fn of_two(&self) -> f64 {
        middle(&self.both)
    }

    /// Two threads' throughput as a multiple of one thread's.
    pub(super) fn scale(&self) -> f64 {
        2.0 * self.best() / self.of_two()
    }

    /// Finds how many operations take `span`, and counts the blocks.
    fn prepare(&mut self, span: Duration) {
        self.one(16);
        let mut batch = 32;
        let took = loop {
            let took = self.one(batch).max(Duration::from_nanos(1));
            if took * 4 >= span || batch >= 1 << 24 {
                break took;
            }
            batch *= 2;
        };
        self.batch = ((batch as f64 * span.as_secs_f64() / took.as_secs_f64()) as u64).max(32);
        // What a batch takes once, for its tasks and threads, is in both and falls out.
        let (short, long) = (self.blocks_of(self.batch), self.blocks_of(2 * self.batch));
        self.blocks = (long as f64 - short as f64).max(0.0) / self.batch as f64;
    }

    fn one(&mut self, operations: u64) -> Duration {
        match &mut self.run {
            Run::Alone(work) => work(operations),
            Run::Twice([first, _]) => {
                let start = Instant::now();
                first(operations);
                start.elapsed()
            }
        }
    }

    fn blocks_of(&mut self, operations: u64) -> u64 {
        let before = alloc::taken();
        self.one(operations);
        alloc::taken() - before
    }

    fn round(&mut self) {
        let batch = self.batch;
        let per = |took: Duration| took.as_nanos() as f64 / batch as f64;
        match &mut self.run {
            Run::Alone(work) => self.times.push(per(work(batch))),
            Run::Twice(parts) => {
                let (alone, _) = together(&mut parts[..1], batch);
                self.times.push(per(alone));
                let (both, share) = together(parts, batch);
                if share >= TOGETHER {
                    self.both.push(per(both));
                } else {
                    self.apart += 1;
                }
            }
        }
    }
}

/// The time that this thread had a core.
fn on_core() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Runs the parts at once, each on a thread of its own. Gives the time from the first start to the last end, and the share
/// of it for which the threads had a core.
fn together(parts: &mut [Part], operations: u64) -> (Duration, f64) {
    let (ready, count) = (AtomicU32::new(0), parts.len() as u32);
    let spans: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter_mut()
            .map(|part| {
                scope.spawn(|| {
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < count {
                        spin_loop();
                    }
                    let (start, before) = (Instant::now(), on_core());
                    part(operations);
                    (start, Instant::now(), on_core() - before)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a subject does not panic")).collect()
    });
    let first = spans.iter().map(|span| span.0).min().expect("one part at least");
    let last = spans.iter().map(|span| span.1).max().expect("one part at least");
    let (wall, core) = (last - first, spans.iter().map(|span| span.2).sum::<Duration>());
    (wall, core.as_secs_f64() / (wall.as_secs_f64() * f64::from(count)))
}

/// Subjects that do the same.
pub(super) struct Group {
    /// By which `--only` and the targets find it.
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) subjects: Vec<Subject>,
}

impl Group {
    /// The subject of that name.
    pub(super) fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// Whether its subjects ran on two threads too.
    pub(super) fn is_twice(&self) -> bool {
        self.subjects.iter().any(Subject::is_twice)
    }

    pub(super) fn prepare(&mut self, span: Duration) {
        for subject in &mut self.subjects {
            subject.prepare(span);
        }
    }

    pub(super) fn rounds(&mut self, rounds: u32) {
        for _ in 0..rounds {
            for subject in &mut self.subjects {
                subject.round();
            }
        }
    }
}

/// A loop over `operation`, timed as a whole.
pub(super) fn looped(mut operation: impl FnMut() + 'static) -> Work {
    Box::new(move |operations| {
        let start = Instant::now();
        for _ in 0..operations {
            operation();
        }
        start.elapsed()
    })
}

/// A loop over `operation` that any thread can run.
pub(super) fn part(mut operation: impl FnMut() + Send + 'static) -> Part {
    Box::new(move |operations| {
        for _ in 0..operations {
            operation();
        }
    })
}

/// Keeps a value for the rest of the process, so that threads and tasks can share it without counting.
pub(super) fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The middle of some figures.
pub(super) fn middle(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
