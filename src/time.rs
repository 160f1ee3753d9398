//! The node's clock and the one kind of deadline.
//!
//! A [`Deadline`] is an absolute instant that can only narrow: every stage of an operation uses the same one. A [`Clock`]
//! answers whether it has passed. There are two clocks: the system's, and tokio's, which a test can pause and advance.
//!
//! Fast paths read no exact clock. [`Clock::coarse`] reads the kernel's coarse monotonic clock (about 4 ns), which is
//! never early and late by at most one kernel tick (1 to 10 ms): what it calls passed has passed; what it calls open may
//! have passed a moment ago. Where that moment matters, [`Clock::passed_exactly`] asks the exact clock (about 25 ns).

use std::time::{Duration, Instant};

use thiserror::Error;

/// A duration that leads to an instant which the system cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[error("the duration reaches past the last instant of the clock")]
pub struct TimeOutOfRange;

/// An absolute instant until which something may go on. It has passed when the clock reads it or more.
///
/// It can be narrowed, never widened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline at `instant`.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The deadline `duration` from now. Inside a tokio runtime whose clock is paused, from that clock's now.
    ///
    /// # Errors
    ///
    /// [`TimeOutOfRange`] if the system's clock cannot express that instant.
    pub fn after(duration: Duration) -> Result<Self, TimeOutOfRange> {
        let now = tokio::time::Instant::now().into_std();
        now.checked_add(duration).map(Self).ok_or(TimeOutOfRange)
    }

    /// The earlier of the two: a deadline only narrows.
    #[must_use]
    pub fn narrow(self, other: Self) -> Self {
        if planted!("deadline_reset") { other } else { self.min(other) }
    }

    /// The instant itself.
    #[must_use]
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// The instant as tokio's timers take it.
    #[must_use]
    pub fn tokio(self) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.0)
    }
}

/// A duration in nanoseconds. A time may saturate: 580 years are as good as for ever.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where the time comes from. A few machine words; copied freely.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// What milliseconds and nanoseconds are counted from.
    base: Instant,
    /// The longest that the coarse time can be late, in nanoseconds.
    tick: u64,
    source: Source,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    /// The system's monotonic clock, and its coarse sibling.
    System(coarse::Coarse),
    /// Tokio's clock, which follows `tokio::time::pause` and `advance`.
    Tokio,
}

impl Clock {
    /// The system's monotonic clock. Its base is now.
    #[must_use]
    pub fn system() -> Self {
        let (base, coarse) = coarse::Coarse::calibrate();
        Self { base, tick: coarse::tick(), source: Source::System(coarse) }
    }

    /// Tokio's clock: the system's, unless the runtime on this thread has paused it. Its base is now. For tests and
    /// simulations; [`Self::coarse`] is exact here.
    #[must_use]
    pub fn tokio() -> Self {
        Self { base: tokio::time::Instant::now().into_std(), tick: 0, source: Source::Tokio }
    }

    /// The exact time.
    #[must_use]
    pub fn now(&self) -> Instant {
        clock_door!();
        match self.source {
            Source::System(_) => Instant::now(),
            Source::Tokio => tokio::time::Instant::now().into_std(),
        }
    }

    /// The time, cheaply: never early, late by at most one kernel tick. Never before the base of this clock.
    #[must_use]
    pub fn coarse(&self) -> Instant {
        match self.source {
            Source::System(coarse) => coarse.read(self.base),
            Source::Tokio => self.now(),
        }
    }

    /// [`Self::coarse`] in nanoseconds from the base: what a slot's deadline is compared with, without an instant in
    /// between.
    #[inline]
    #[must_use]
    pub fn coarse_nanos(&self) -> u64 {
        match self.source {
            Source::System(coarse) => coarse.nanos(self.base),
            Source::Tokio => self.nanos_since_base(self.now()),
        }
    }

    /// By how many nanoseconds [`Self::coarse`] is late at most: one kernel tick, or 0 if it is exact.
    #[inline]
    #[must_use]
    pub const fn coarse_tick(&self) -> u64 {
        self.tick
    }

    /// Whether `deadline` has passed, by the coarse clock: true is certain, false may be one kernel tick old.
    #[must_use]
    pub fn passed(&self, deadline: Deadline) -> bool {
        self.coarse() >= deadline.0
    }

    /// Whether `deadline` has passed, by the exact clock.
    #[must_use]
    pub fn passed_exactly(&self, deadline: Deadline) -> bool {
        self.now() >= deadline.0
    }

    /// The deadline `duration` from this clock's exact now.
    ///
    /// # Errors
    ///
    /// [`TimeOutOfRange`] if the system's clock cannot express that instant.
    pub fn deadline_after(&self, duration: Duration) -> Result<Deadline, TimeOutOfRange> {
        self.now().checked_add(duration).map(Deadline).ok_or(TimeOutOfRange)
    }

    /// Whole milliseconds from the base to `instant`, rounded down; 0 for an instant before the base.
    ///
    /// Saturates, which only a time may do: what lies 580 million years ahead never comes.
    #[must_use]
    pub fn millis_since_base(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.base).as_millis()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds from the base to `instant`; 0 for an instant before the base.
    ///
    /// Saturates, which only a time may do: what lies 580 years ahead never comes.
    #[must_use]
    pub fn nanos_since_base(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The instant `nanos` nanoseconds after the base: the inverse of [`Self::nanos_since_base`].
    ///
    /// # Panics
    ///
    /// If the system's clock cannot express it, which no 64-bit clock comes near to.
    #[must_use]
    pub fn at_nanos(&self, nanos: u64) -> Instant {
        self.base + Duration::from_nanos(nanos)
    }

    /// The instant `millis` milliseconds after the base, or none if the system's clock cannot express it.
    #[must_use]
    pub fn at_millis(&self, millis: u64) -> Option<Instant> {
        self.base.checked_add(Duration::from_millis(millis))
    }
}

/// The kernel's coarse monotonic clock as instants of `std`.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
mod coarse {
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

    /// How long the coarse clock stands still.
    pub(super) fn tick() -> u64 {
        let tick = clock_getres(ClockId::MonotonicCoarse);
        u64::try_from(tick.tv_sec * 1_000_000_000 + tick.tv_nsec).unwrap_or(0)
    }

    /// The reading of the exact kernel clock that belongs to the clock's base instant.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Coarse {
        base: Timespec,
    }

    impl Coarse {
        /// Reads the same moment as an instant and as a reading of the kernel's clock: of some tries the one with the
        /// least time between two instants around the reading. The instant is the one before it, so that an error makes
        /// the coarse clock late and never early.
        pub(super) fn calibrate() -> (Instant, Self) {
            let attempt = || {
                let before = Instant::now();
                let base = clock_gettime(ClockId::Monotonic);
                (before.elapsed(), before, base)
            };
            let mut best = attempt();
            for _ in 0..7 {
                let next = attempt();
                if next.0 < best.0 {
                    best = next;
                }
            }
            (best.1, Self { base: best.2 })
        }

        /// Nanoseconds from the base to the coarse time. A tick older than the base reads as the base.
        #[inline]
        pub(super) fn nanos(self, _base: Instant) -> u64 {
            let now = clock_gettime(ClockId::MonotonicCoarse);
            let nanos = (now.tv_sec - self.base.tv_sec) * 1_000_000_000 + (now.tv_nsec - self.base.tv_nsec);
            u64::try_from(nanos).unwrap_or(0)
        }

        /// The coarse time; `base` is the instant that was calibrated. A tick older than the base reads as the base.
        #[inline]
        pub(super) fn read(self, base: Instant) -> Instant {
            let now = clock_gettime(ClockId::MonotonicCoarse);
            let (mut seconds, mut nanos) = (now.tv_sec - self.base.tv_sec, now.tv_nsec - self.base.tv_nsec);
            if nanos < 0 {
                (seconds, nanos) = (seconds - 1, nanos + 1_000_000_000);
            }
            match (u64::try_from(seconds), u32::try_from(nanos)) {
                (Ok(seconds), Ok(nanos)) => base + Duration::new(seconds, nanos),
                _ => base,
            }
        }
    }
}

/// No coarse clock here: the exact one takes its place.
#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
mod coarse {
    use std::time::Instant;

    pub(super) const fn tick() -> u64 {
        0
    }

    #[derive(Debug, Clone, Copy)]
    pub(super) struct Coarse;

    impl Coarse {
        pub(super) fn calibrate() -> (Instant, Self) {
            (Instant::now(), Self)
        }

        pub(super) fn nanos(self, base: Instant) -> u64 {
            let since = Instant::now().saturating_duration_since(base);
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        }

        pub(super) fn read(self, base: Instant) -> Instant {
            Instant::now().max(base)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_only_narrows() {
        let now = Instant::now();
        let (early, late) = (Deadline::at(now), Deadline::at(now + Duration::from_secs(1)));
        assert_eq!(early.narrow(late), early);
        assert_eq!(late.narrow(early), early);
        assert_eq!(early.tokio().into_std(), early.instant());
    }

    #[test]
    fn a_duration_without_end_is_refused() {
        assert_eq!(Deadline::after(Duration::MAX), Err(TimeOutOfRange));
        assert_eq!(Clock::system().deadline_after(Duration::MAX), Err(TimeOutOfRange));
        assert!(Deadline::after(Duration::from_secs(3600)).is_ok());
    }

    #[test]
    fn the_coarse_clock_is_never_early_and_never_goes_back() {
        let clock = Clock::system();
        let mut last = clock.coarse();
        for _ in 0..20_000 {
            let coarse = clock.coarse();
            assert!(coarse >= last);
            assert!(coarse <= clock.now(), "the coarse clock was early");
            let nanos = clock.coarse_nanos();
            assert!(nanos >= clock.nanos_since_base(coarse) && nanos <= clock.nanos_since_base(clock.now()));
            last = coarse;
        }
    }

    #[test]
    fn the_coarse_clock_follows_the_exact_one() {
        let clock = Clock::system();
        let deadline = clock.deadline_after(Duration::from_millis(30)).expect("30 ms from now exist");
        assert!(!clock.passed(deadline) || clock.passed_exactly(deadline));
        while !clock.passed_exactly(deadline) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(40));
        assert!(clock.passed(deadline), "late by more than the longest kernel tick");
    }

    #[test]
    fn numbers_and_instants_are_inverse() {
        let clock = Clock::system();
        let instant = clock.at_nanos(1_234_567_890);
        assert_eq!(clock.nanos_since_base(instant), 1_234_567_890);
        assert_eq!(clock.millis_since_base(instant), 1_234);
        assert_eq!(clock.at_millis(1_234).map(|at| clock.millis_since_base(at)), Some(1_234));
        let before =
            clock.base.checked_sub(Duration::from_nanos(1)).expect("the clock did not start this nanosecond");
        assert_eq!(clock.nanos_since_base(before), 0);
        assert_eq!(clock.nanos_since_base(clock.at_nanos(u64::MAX)), u64::MAX);
    }

    #[test]
    fn tokios_clock_can_be_paused_and_advanced() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without I/O can be built").block_on(async {
            let clock = Clock::tokio();
            let deadline = Deadline::after(Duration::from_secs(60)).expect("a minute from now exists");
            assert_eq!(
                deadline,
                clock.deadline_after(Duration::from_secs(60)).expect("a minute from now exists")
            );
            tokio::time::advance(Duration::from_secs(59)).await;
            assert!(!clock.passed(deadline) && !clock.passed_exactly(deadline));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(clock.passed(deadline) && clock.passed_exactly(deadline));
            assert_eq!(clock.millis_since_base(clock.now()), 60_000);
        });
    }
}
