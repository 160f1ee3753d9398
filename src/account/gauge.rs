//! A gauge: one dimension, used and limit in one word. For bytes of metadata, which nobody waits for.
//!
//! ```text
//!  63        32 31         0
//! │   limit    │   used   │      units of 1
//! ```
//!
//! * G1. used <= limit at every instant: both are in the word that the step replaces, lowering included.
//! * G2. Each unit given back was charged. A `give` that would break it is broken accounting.

use std::fmt;

use super::dimension::Dimension;
use super::lower::Lower;
use super::room::Lowering;
use super::scope::NotLowered;
use crate::broken;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Backoff, order};

const LIMIT_SHIFT: u32 = 32;

const fn used(word: u64) -> u64 {
    word & u32::MAX as u64
}

const fn limit(word: u64) -> u64 {
    word >> LIMIT_SHIFT
}

/// `word` with `amount` more in use, or nothing if there is no room.
const fn charged(word: u64, amount: u64) -> Option<u64> {
    if amount > limit(word) - used(word) { None } else { Some(word + amount) }
}

/// `word` with another limit, or what is in use.
const fn lowered(word: u64, to: u64) -> Result<u64, u64> {
    if used(word) > to { Err(used(word)) } else { Ok((to << LIMIT_SHIFT) | used(word)) }
}

/// There is no room in a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full(pub Dimension);

/// One counted dimension with its limit.
pub struct Gauge {
    word: AtomicU64,
    dimension: Dimension,
}

impl Gauge {
    /// An unused gauge.
    ///
    /// # Panics
    ///
    /// The limit is 4 GiB or more, which is above every ceiling.
    pub fn new(dimension: Dimension, limit: u64) -> Gauge {
        let limit =
            u32::try_from(limit).expect("the ceilings of metadata are far below 4 GiB: limits are validated");
        Gauge { word: AtomicU64::new(u64::from(limit) << LIMIT_SHIFT), dimension }
    }

    fn step<E>(&self, next: impl Fn(u64) -> Result<u64, E>) -> Result<u64, E> {
        let mut backoff = Backoff::new();
        let mut word = self.word.load(order::OBSERVE);
        loop {
            match self.word.compare_exchange_weak(word, next(word)?, order::STEP, order::LOST) {
                Ok(replaced) => return Ok(replaced),
                Err(found) => word = found,
            }
            backoff.lost();
        }
    }

    /// Gives a gauge made with a limit of 0 its limit. Control path. `false`: it has one already, or the limit is 4 GiB
    /// or more.
    pub fn raise(&self, to: u64) -> bool {
        let opened = u64::from(u32::MAX).min(to) << LIMIT_SHIFT;
        to <= u64::from(u32::MAX) && self.step(|word| if word == 0 { Ok(opened) } else { Err(()) }).is_ok()
    }

    /// Charges `amount`, all or nothing.
    ///
    /// # Errors
    ///
    /// There is no room for it.
    pub fn charge(&self, amount: u64) -> Result<(), Full> {
        refusable!(self.dimension, Full(self.dimension));
        self.step(|word| charged(word, amount).ok_or(Full(self.dimension))).map(drop)
    }

    /// Gives `amount` back.
    ///
    /// # Panics
    ///
    /// Broken accounting, if so much was not charged; then nothing is given (unless the thread is panicking already).
    pub fn give(&self, amount: u64) {
        if self.step(|word| if amount > used(word) { Err(()) } else { Ok(word - amount) }).is_err() {
            broken::accounting_in_drop("more was given back to a gauge than was charged");
        }
    }

    /// Lowers the limit, or changes nothing.
    ///
    /// # Errors
    ///
    /// More is in use, or the limit is lower already.
    pub fn lower(&self, to: u64) -> Result<(), NotLowered> {
        self.step(|word| self.lower_word(word, to)).map(drop)
    }

    fn lower_word(&self, word: u64, to: u64) -> Result<u64, NotLowered> {
        let dimension = self.dimension;
        match limit(word) {
            limit if limit < to => Err(NotLowered::Raised { dimension, limit }),
            _ => lowered(word, to).map_err(|used| NotLowered::InUse { dimension, used }),
        }
    }

    fn check(&self, dimension: Dimension) -> Result<(), NotLowered> {
        if dimension == self.dimension { Ok(()) } else { Err(NotLowered::NotHere(dimension)) }
    }

    /// What is in use.
    pub fn used(&self) -> u64 {
        used(self.word.load(order::OBSERVE))
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        limit(self.word.load(order::OBSERVE))
    }

    /// What it counts.
    pub fn dimension(&self) -> Dimension {
        self.dimension
    }
}

/// The limit is in the word itself, so it is lowered by the first half already, and raised again if that is undone.
impl Lower for Gauge {
    fn look_lower(&self, dimension: Dimension, limit: u64) -> Result<(), NotLowered> {
        self.check(dimension)?;
        self.lower_word(self.word.load(order::OBSERVE), limit).map(drop)
    }
    fn begin_lower(&self, dimension: Dimension, to: u64) -> Result<Lowering, NotLowered> {
        self.check(dimension)?;
        refusable!(dimension, NotLowered::InUse { dimension, used: self.used() });
        let replaced = self.step(|word| self.lower_word(word, to))?;
        Ok(Lowering::at_once((limit(replaced) - to) << LIMIT_SHIFT))
    }
    fn finish_lower(&self, _lowering: Lowering) -> Result<(), Lowering> {
        Ok(())
    }
    fn undo_lower(&self, lowering: Lowering) {
        self.word.fetch_add(lowering.units, order::STEP);
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(order::OBSERVE);
        let show = |value| self.dimension.show(value);
        write!(out, "Gauge({}: {} of {})", self.dimension, show(used(word)), show(limit(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIMENSION: Dimension = Dimension::IoMetadataBytes;
    const MOST: u64 = 4;

    fn at(used: u64, limit: u64) -> Gauge {
        Gauge { word: AtomicU64::new((limit << LIMIT_SHIFT) | used), dimension: DIMENSION }
    }

    #[test]
    fn every_step_of_every_small_gauge() {
        for limit in 0..=MOST {
            for used in 0..=limit {
                for amount in 0..=MOST + 1 {
                    let gauge = at(used, limit);
                    let fits = used + amount <= limit;
                    assert_eq!(gauge.charge(amount), if fits { Ok(()) } else { Err(Full(DIMENSION)) });
                    assert_eq!(gauge.used(), if fits { used + amount } else { used });
                    if fits {
                        gauge.give(amount);
                    }
                    assert_eq!((gauge.used(), gauge.limit()), (used, limit));

                    let lowered = gauge.lower(amount);
                    if amount > limit {
                        assert_eq!(lowered, Err(NotLowered::Raised { dimension: DIMENSION, limit }));
                    } else if amount < used {
                        assert_eq!(lowered, Err(NotLowered::InUse { dimension: DIMENSION, used }));
                    } else {
                        assert_eq!(lowered, Ok(()));
                    }
                    let limit_after = if lowered.is_ok() { amount } else { limit };
                    assert_eq!((gauge.used(), gauge.limit()), (used, limit_after));

                    let halves = at(used, limit);
                    assert_eq!(halves.look_lower(DIMENSION, amount), lowered);
                    match halves.begin_lower(DIMENSION, amount) {
                        Ok(lowering) => {
                            assert_eq!((lowered, halves.limit()), (Ok(()), amount));
                            halves.undo_lower(lowering);
                        }
                        Err(why) => assert_eq!(lowered, Err(why)),
                    }
                    assert_eq!((halves.used(), halves.limit()), (used, limit));
                }
            }
        }
    }

    #[test]
    fn the_largest_gauge_counts_to_the_end() {
        let gauge = Gauge::new(DIMENSION, 0);
        assert_eq!(gauge.charge(1), Err(Full(DIMENSION)));
        assert!(!gauge.raise(1 << 32), "above every ceiling");
        assert!(gauge.raise(u64::from(u32::MAX)) && !gauge.raise(1));
        gauge.charge(u64::from(u32::MAX) - 1).unwrap();
        assert_eq!(gauge.charge(2), Err(Full(DIMENSION)));
        assert_eq!(gauge.charge(u64::MAX), Err(Full(DIMENSION)));
        gauge.charge(1).unwrap();
        gauge.give(u64::from(u32::MAX));
        assert_eq!((gauge.used(), gauge.limit(), gauge.dimension()), (0, u64::from(u32::MAX), DIMENSION));
        assert_eq!(format!("{:?}", at(1_024, 2_048)), "Gauge(io.metadata_bytes: 1 KiB of 2 KiB)");
        assert_eq!(at(0, 1).check(DIMENSION), Ok(()));
        let elsewhere = Dimension::IoOwners;
        assert_eq!(at(0, 1).check(elsewhere), Err(NotLowered::NotHere(elsewhere)));
    }
}
