//! Figures: counted to be looked at, and nothing else. No step of the library depends on any of them.
//!
//! * F1. A figure is a [`Counter`]: it takes part in no order, so models need not see it.
//! * F2. No figure is on a line that requests share. Refusals are the cold way out and have a line for each dimension; the age
//!   of a request is noted by those alone that really stood in line, each thread on one of a few lines of its own.
//! * F3. No figure wraps: 64 bits hold one event a nanosecond for 584 years, and a microsecond each of a million waiters for
//!   half a million years of waiting by all of them together.

use super::dimension::Dimension;
use crate::sync::{Counter, Line, Table, thread_number};

/// Lines that threads note ages on.
const STRIPES: usize = if cfg!(loom) { 2 } else { 16 };
/// How many buckets of ages there are: up to 1 microsecond, then up to twice as long each, then everything longer than
/// the last bound of 2^26 microseconds, which is 67 s and above every queue age that can be configured.
pub const BUCKETS: usize = 28;

/// How often each dimension was the reason of a refusal.
#[derive(Debug)]
pub struct Refusals(Table<Line<Counter>>);

impl Refusals {
    /// None yet.
    #[must_use]
    pub fn new() -> Refusals {
        Refusals(Table::new(Dimension::ALL.len()))
    }

    /// One more.
    #[cold]
    pub fn note(&self, dimension: Dimension) {
        self.0[dimension as usize].add(1);
    }

    /// How many there were.
    #[must_use]
    pub fn of(&self, dimension: Dimension) -> u64 {
        self.0[dimension as usize].get()
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Refusals::new()
    }
}

/// What the threads of one line noted.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
struct Stripe {
    buckets: [Counter; BUCKETS],
    micros: Counter,
}

/// How long requests stood in line before their grant.
#[derive(Debug)]
pub struct Ages(Table<Line<Stripe>>);

impl Ages {
    /// None yet.
    #[must_use]
    pub fn new() -> Ages {
        Ages(Table::new(STRIPES))
    }

    /// A request stood in line for so many nanoseconds, by a clock that may be wrong by as many as `tick`. It goes into the
    /// bucket of the longest that it can have been. Rounded up to whole microseconds.
    pub fn note(&self, nanos: u64, tick: u64) {
        let stripe = &self.0[thread_number() % STRIPES];
        stripe.buckets[bucket((nanos + tick).div_ceil(1_000))].add(1);
        // Most are shorter than a tick: nothing to add.
        if nanos > 0 {
            stripe.micros.add(nanos.div_ceil(1_000));
        }
    }

    /// How many are in each bucket, and how many microseconds all of them are together. Of about one moment.
    #[must_use]
    pub fn sum(&self) -> ([u64; BUCKETS], u64) {
        let (mut buckets, mut micros) = ([0; BUCKETS], 0);
        for stripe in self.0.iter() {
            for (sum, bucket) in buckets.iter_mut().zip(&stripe.buckets) {
                *sum += bucket.get();
            }
            micros += stripe.micros.get();
        }
        (buckets, micros)
    }
}

impl Default for Ages {
    fn default() -> Self {
        Ages::new()
    }
}

/// The bucket of an age in microseconds: the first whose bound is not below it.
const fn bucket(micros: u64) -> usize {
    if micros <= 1 {
        return 0;
    }
    let above = (micros - 1).ilog2() as usize + 1;
    if above < BUCKETS { above } else { BUCKETS - 1 }
}

/// The longest age in this bucket, in microseconds. `None`: it has no bound.
#[must_use]
pub const fn bound(bucket: usize) -> Option<u64> {
    if bucket + 1 < BUCKETS { Some(1 << bucket) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_the_first_bucket_that_reaches_it() {
        for micros in (0..5_000).chain((0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) | 1])) {
            let expected = (0..BUCKETS).find(|at| bound(*at).is_none_or(|bound| micros <= bound));
            assert_eq!(Some(bucket(micros)), expected, "{micros} us");
        }
        assert_eq!((bound(0), bound(26), bound(27)), (Some(1), Some(67_108_864), None));
        for dimension in [Dimension::PoolsQueueAge, Dimension::IoQueueWait] {
            assert!(dimension.ceiling() * 1_000 <= 67_108_864, "{dimension} reaches past the last bound");
        }
    }

    #[test]
    fn ages_of_all_threads_are_added_up() {
        let ages = std::sync::Arc::new(Ages::new());
        let threads: Vec<_> = (0..20_u64)
            .map(|thread| {
                let ages = ages.clone();
                std::thread::spawn(move || (0..100).for_each(|_| ages.note(thread * 1_000, 0)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (buckets, micros) = ages.sum();
        assert_eq!(&buckets[..7], &[200, 100, 200, 400, 800, 300, 0]);
        assert_eq!((buckets.iter().sum::<u64>(), micros), (2_000, 19_000));
        // However many threads there were before.
        let later = if cfg!(miri) { 1 } else { STRIPES * STRIPES };
        for _ in 0..later {
            let ages = ages.clone();
            std::thread::spawn(move || ages.note(0, 0)).join().unwrap();
        }
        assert_eq!(ages.sum().0[0], 200 + later as u64);
    }

    #[test]
    fn refusals_are_counted_by_dimension() {
        let refusals = Refusals::new();
        for (count, dimension) in (0_u64..).zip(Dimension::ALL) {
            (0..count).for_each(|_| refusals.note(*dimension));
        }
        for (count, dimension) in (0_u64..).zip(Dimension::ALL) {
            assert_eq!(refusals.of(*dimension), count);
        }
    }
}
