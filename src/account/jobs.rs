//! The jobs word: places of jobs on the supplied runtime, and two counts that snapshots want exactly.
//!
//! ```text
//!  63  43   42    41            29 28        16 15      8 7       0
//! │      │CLOSED│ failed cleanup │ connecting │ cleanup │ workers │
//! ```
//!
//! * J1. A job holds its place from before its closure is built until its task was really joined.
//! * J2. Cleanup has places of its own: ordinary workers cannot take them.
//! * J3. A connecting or failed unit is held beside a connection unit. Their limits are the connections of startup, and
//!   are never what blocks: the shares word is asked first.
//! * J4. CLOSED refuses workers; cleanup goes on, because destruction must be possible to the end.
//!
//! Rooms: see [`super::room`], R1 to R5.

use super::dimension::Dimension;
use super::peaks::Peaks;
use super::room::{Field, Layout, Lowering, Rooms, lowering, taken};
use super::scope::{Blocked, NotLowered};

const WORKERS: Field = Field::new(0, 8, Dimension::PoolsWorkers);
const CLEANUP: Field = Field::new(8, 8, Dimension::PoolsCleanupJobs);
const CONNECTING: Field = Field::new(16, 13, Dimension::PoolsConnections);
const FAILED: Field = Field::new(29, 13, Dimension::PoolsConnections);
const CLOSED: u64 = 1 << 42;

#[derive(Debug)]
struct JobsLayout;

impl Layout for JobsLayout {
    const FIELDS: &'static [Field] = &[WORKERS, CLEANUP, CONNECTING, FAILED];
}

/// One unit of the jobs word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// A provider's job, or explicit operator work.
    Worker,
    /// A cleanup job.
    Cleanup,
    /// A dial in progress.
    Connecting,
    /// A connection whose cleanup failed and that is still owned.
    FailedCleanup,
}

impl Job {
    /// What it is counted as.
    pub const fn dimension(self) -> Dimension {
        self.field().dimension()
    }
    const fn field(self) -> Field {
        match self {
            Job::Worker => WORKERS,
            Job::Cleanup => CLEANUP,
            Job::Connecting => CONNECTING,
            Job::FailedCleanup => FAILED,
        }
    }
}

lowering!(JobsWord);

/// The room of the node for jobs.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct JobsWord {
    rooms: Rooms<JobsLayout>,
    peaks: Peaks<JobsLayout>,
}

/// What is used of the jobs, at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobsUse {
    /// Workers.
    pub workers: u32,
    /// Cleanup jobs.
    pub cleanup_jobs: u32,
    /// Dials in progress.
    pub connecting: u32,
    /// Connections whose cleanup failed.
    pub failed_cleanup: u32,
}

impl JobsWord {
    /// A word with these limits. Zeros are a node not yet opened.
    pub fn new(workers: u32, cleanup_jobs: u32, connecting: u32, failed_cleanup: u32) -> JobsWord {
        let rooms = Rooms::new(limits(workers, cleanup_jobs, connecting, failed_cleanup));
        JobsWord { rooms, peaks: Peaks::default() }
    }

    /// Gives a word made with zeros its limits. `false`: it has them already.
    pub fn open(&self, workers: u32, cleanup_jobs: u32, connections: u32) -> bool {
        let opened = self.rooms.open(limits(workers, cleanup_jobs, connections, connections));
        self.peaks.limits_rose();
        opened
    }

    /// Takes one unit.
    ///
    /// # Errors
    ///
    /// No room, or closed (workers only).
    #[inline]
    pub fn reserve(&self, job: Job) -> Result<(), Blocked> {
        if matches!(job, Job::Worker | Job::Cleanup) {
            // The others are never what blocks (J3).
            refusable!(job.dimension(), Blocked::Full(job.dimension()));
        }
        let reserved = self.rooms.step(|word| {
            if job == Job::Worker && word & CLOSED != 0 {
                return Err(Blocked::Closed);
            }
            taken::<JobsLayout>(word, job.field().units(1))
        });
        reserved?;
        self.peaks.see(&self.rooms);
        Ok(())
    }

    /// Gives one unit back.
    ///
    /// # Panics
    ///
    /// Broken accounting, if it was not taken.
    #[inline]
    pub fn give(&self, job: Job) {
        self.rooms.give(job.field().units(1));
    }

    /// Refuses workers from now on. `true`: it did before.
    pub fn close(&self) -> bool {
        self.rooms.set(CLOSED) & CLOSED != 0
    }

    /// The most that there ever were of workers and of cleanup jobs.
    pub fn peaks(&self) -> impl Iterator<Item = (Dimension, u64)> {
        // The other two are not counted under a dimension of their own.
        self.peaks.each().take(2)
    }

    /// What is used, all of one instant.
    pub fn snapshot(&self) -> JobsUse {
        let (used, _) = self.rooms.used();
        JobsUse {
            workers: WORKERS.count(used),
            cleanup_jobs: CLEANUP.count(used),
            connecting: CONNECTING.count(used),
            failed_cleanup: FAILED.count(used),
        }
    }
}

const fn limits(workers: u32, cleanup_jobs: u32, connecting: u32, failed_cleanup: u32) -> u64 {
    WORKERS.units(workers as u64)
        | CLEANUP.units(cleanup_jobs as u64)
        | CONNECTING.units(connecting as u64)
        | FAILED.units(failed_cleanup as u64)
}

#[cfg(test)]
mod tests {
    use super::super::room::small;
    use super::*;

    const LIMIT: u64 = 1;
    const JOBS: [Job; 4] = [Job::Worker, Job::Cleanup, Job::Connecting, Job::FailedCleanup];

    #[test]
    fn every_step_of_every_small_word() {
        for word in small::words::<JobsLayout>(LIMIT, CLOSED) {
            for job in JOBS {
                let jobs = JobsWord { rooms: Rooms::at(word, small::limits::<JobsLayout>(LIMIT)), ..JobsWord::default() };
                let expected = if job == Job::Worker && word & CLOSED != 0 {
                    Err(Blocked::Closed)
                } else if job.field().of(word) == 0 {
                    Err(Blocked::Full(job.field().dimension()))
                } else {
                    Ok(())
                };
                assert_eq!(jobs.reserve(job), expected);
                if expected.is_ok() {
                    assert_eq!(jobs.rooms.load(), word - job.field().units(1));
                    jobs.give(job);
                }
                assert_eq!(jobs.rooms.load(), word);
            }
        }
    }

    #[test]
    fn workers_cannot_take_places_of_cleanup() {
        let jobs = JobsWord::default();
        assert!(jobs.open(128, 128, 4_096) && !jobs.open(1, 1, 1));
        for _ in 0..128 {
            jobs.reserve(Job::Worker).unwrap();
        }
        assert_eq!(jobs.reserve(Job::Worker), Err(Blocked::Full(Dimension::PoolsWorkers)));
        assert!(!jobs.close() && jobs.close());
        assert_eq!(jobs.reserve(Job::Worker), Err(Blocked::Closed));
        for _ in 0..128 {
            jobs.reserve(Job::Cleanup).unwrap();
        }
        let used = jobs.snapshot();
        assert_eq!((used.workers, used.cleanup_jobs, used.connecting, used.failed_cleanup), (128, 128, 0, 0));
        assert_eq!(JobsWord::new(1, 2, 3, 4).snapshot(), JobsUse::default());
    }
}
