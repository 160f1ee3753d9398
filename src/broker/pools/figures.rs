//! Figures for operators: what happened since the start, as numbers that only grow.
use super::registry::Registry;
use crate::account::dimension::Dimension;
use crate::account::figures::{BUCKETS, bound};
use crate::broker::ground::Ground;
use crate::queue::glance::Ever;
use std::time::Duration;

const DIMENSIONS: usize = Dimension::ALL.len();

/// What happened on the node since it was made. All of it is exact while nothing moves; else an observation.
///
/// It is a value of about a kilobyte, made without allocation. Every number grows only, and none can wrap: 64 bits hold one
/// event a nanosecond for 584 years.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolFigures {
    /// Operations that were admitted, pool requests and direct ones.
    pub operations: u64,
    /// Of these: those that were granted, at once or in line. Whoever left before is not among them.
    pub grants: u64,
    /// How long requests stood in line before they were granted.
    pub queue_age: QueueAges,
    refusals: [u64; DIMENSIONS],
    peaks: [Option<u64>; DIMENSIONS],
}

impl PoolFigures {
    pub(super) fn of(ground: &Ground) -> PoolFigures {
        let floor = &ground.floor;
        let Ever { operations, grants } = floor.ever();
        let (buckets, micros) = floor.ages.sum();
        let mut refusals = [0; DIMENSIONS];
        for (count, dimension) in refusals.iter_mut().zip(Dimension::ALL) {
            *count = floor.refusals.of(*dimension);
        }
        let mut peaks = [None; DIMENSIONS];
        let words = floor.node.peaks().chain(ground.shares.peaks());
        for (dimension, most) in words.chain(ground.bytes.peaks()).chain(ground.jobs.peaks()) {
            peaks[dimension as usize] = Some(most);
        }
        PoolFigures { operations, grants, queue_age: QueueAges { buckets, micros }, refusals, peaks }
    }

    /// The most that was ever used of this dimension by the whole node, in its own unit. `None` for dimensions that have no
    /// mark: there is one for operations and requests (all, queued, running), streams, connections, idle connections, bytes
    /// on either side, buffers, workers and cleanup jobs.
    ///
    /// Never more than was used at some instant. A height that lasted for less than the moment between a step and the look
    /// behind it may be missed.
    pub fn high_water(&self, dimension: Dimension) -> Option<u64> {
        self.peaks[dimension as usize]
    }

    /// All high-water marks, in the order of the table of limits.
    pub fn all_high_water(&self) -> impl Iterator<Item = (Dimension, u64)> {
        Dimension::ALL
            .iter()
            .copied()
            .zip(self.peaks)
            .filter_map(|(dimension, most)| Some((dimension, most?)))
    }

    /// How often an attempt was refused because of this dimension: no room, or more than could ever fit.
    ///
    /// Whatever the scope, and whichever part of the library said so: sealing, opening, admission, dispatch, buffers, streams,
    /// clients, dials, parking. A refusal is counted once, when the caller is told. Other reasons (a passed deadline, a
    /// replaced epoch, a pause) have no dimension and are not counted; nor is what a running call moves beyond its own budget.
    pub fn refusals(&self, dimension: Dimension) -> u64 {
        self.refusals[dimension as usize]
    }

    /// All refusals, by dimension, in the order of the table of limits.
    pub fn all_refusals(&self) -> impl Iterator<Item = (Dimension, u64)> {
        Dimension::ALL.iter().copied().zip(self.refusals)
    }
}

/// A histogram of the time that requests stood in line, from the first poll of their wait to the poll that had the grant.
/// Those that were granted at once are not in it, nor those that left without a grant.
///
/// Bounds are powers of two microseconds, so quantiles are right within a factor of two. Times are told by the coarse clock and
/// counted where they are at the longest: what is shorter than a tick of the kernel (1 to 10 ms) is in the bucket of the tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueAges {
    buckets: [u64; BUCKETS],
    micros: u64,
}

impl QueueAges {
    /// The buckets, shortest age first: the longest age that is in it (none for the last), and how many are.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = (0..BUCKETS).map(|at| bound(at).map(Duration::from_micros));
        bounds.zip(self.buckets)
    }

    /// How many there are in all.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All ages together, each rounded up to a microsecond. Each may be wrong by a tick, either way; on the whole they are right.
    pub fn total(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// The bound below which so many of a thousand are: 500 for the median, 999 for all but one of a thousand. `None`: nobody
    /// stood in line, or it lies in the last bucket, which has no bound.
    pub fn quantile(&self, per_mille: u16) -> Option<Duration> {
        let wanted = (u128::from(self.count()) * u128::from(per_mille)).div_ceil(1_000).max(1);
        let mut seen = 0_u128;
        let reached = |(bound, count): (Option<Duration>, u64)| {
            seen += u128::from(count);
            (seen >= wanted).then_some(bound)
        };
        self.buckets().find_map(reached).flatten()
    }
}

impl Registry {
    /// See [`ProviderPools::figures`](super::ProviderPools::figures).
    pub(super) fn figures(&self) -> PoolFigures {
        PoolFigures::of(self.ground())
    }
}
