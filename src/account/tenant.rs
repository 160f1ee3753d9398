//! A tenant's word: its pool requests. (Its bytes have a word of their own, in [`super::bytes`].)
//!
//! ```text
//!  63        23 22    21              11 10               0
//! │           │MARK│ running per tenant │ requests per tenant │
//! ```
//!
//! * T1. A pool operation holds one request from admission to its end, and one running unit while it is granted.
//! * T2. MARK is set only by the turn, in the step that found no running room for a waiter of this tenant, and cleared
//!   only by the turn. While it is set, no newcomer of this tenant takes a running unit.
//! * T3. Zero is the word of a number that no tenant has: it has no room.
//!
//! Rooms: see [`super::room`], R1 to R5.

use std::convert::Infallible;

use super::dimension::Dimension;
use super::room::{Field, Layout, Lowering, Rooms, lowering, taken};
use super::scope::{Blocked, Heed, NotLowered, RequestUnits};

const REQUESTS: Field = Field::new(0, 11, Dimension::PoolsRequestsPerTenant);
const RUNNING: Field = Field::new(11, 11, Dimension::PoolsRunningPerTenant);
const MARK: u64 = 1 << 22;

#[derive(Debug)]
struct TenantLayout;

impl Layout for TenantLayout {
    const FIELDS: &'static [Field] = &[REQUESTS, RUNNING];
}

#[inline]
const fn units(asked: RequestUnits) -> u64 {
    match asked {
        RequestUnits::Requests => const { REQUESTS.units(1) },
        RequestUnits::Running => const { RUNNING.units(1) },
        RequestUnits::Both => const { REQUESTS.units(1) | RUNNING.units(1) },
    }
}

#[inline(always)]
fn reserved(word: u64, asked: RequestUnits, heed: Heed) -> Result<u64, Blocked> {
    let left = taken::<TenantLayout>(word, units(asked))?;
    if heed == Heed::Marks && asked.runs() && word & MARK != 0 {
        return Err(Blocked::Promised(RUNNING.dimension()));
    }
    Ok(left)
}

lowering!(TenantWord);

/// The room of one tenant.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct TenantWord {
    rooms: Rooms<TenantLayout>,
}

/// What is used of a tenant or a provider, at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestUse {
    /// Pool requests, waiting and running.
    pub requests: u32,
    /// Of these: running.
    pub running: u32,
}

impl TenantWord {
    /// Gives a number to a tenant: its limits and all their room. Control path. `false`: the number is in use.
    pub fn open(&self, requests: u32, running: u32) -> bool {
        self.rooms.open(REQUESTS.units(u64::from(requests)) | RUNNING.units(u64::from(running)))
    }

    /// Takes the number back, if nothing is in use and nobody waits. Control path.
    pub fn retire(&self) -> bool {
        self.rooms.retire(0)
    }

    /// Takes `asked`, all or nothing, in one step.
    ///
    /// # Errors
    ///
    /// What stands against it, in the value that decided.
    #[inline(always)]
    pub fn reserve(&self, asked: RequestUnits, heed: Heed) -> Result<(), Blocked> {
        refusable!(REQUESTS.dimension(), Blocked::Full(REQUESTS.dimension()));
        self.rooms.step(|word| reserved(word, asked, heed)).map(drop)
    }

    /// For the turn only: whether there is a running unit, over the mark. If not, the mark is set, by a step that found none;
    /// if it stands already, whoever gives one will see it.
    #[inline]
    pub fn has_running_or_mark(&self) -> bool {
        let marked = self.rooms.step(|word| match reserved(word, RequestUnits::Running, Heed::Nothing) {
            Ok(_) => Err(true),
            Err(_) if word & MARK != 0 => Err(false),
            Err(_) => Ok(word | MARK),
        });
        marked.is_err_and(|has| has)
    }

    /// For the turn only: takes a running unit over the mark, or sets the mark, in one step. `false`: not taken.
    #[inline]
    pub fn take_or_mark_running(&self) -> bool {
        let running = |word| reserved(word, RequestUnits::Running, Heed::Nothing);
        let Ok(replaced) =
            self.rooms.step(|word| Ok::<u64, Infallible>(running(word).unwrap_or(word | MARK)));
        running(replaced).is_ok()
    }

    /// Gives units back, in one step. `true`: somebody waits for a running unit here; signal the turn.
    ///
    /// # Panics
    ///
    /// Broken accounting, if they were not taken.
    #[inline(always)]
    #[must_use = "a marked word has somebody waiting at it: signal the turn"]
    pub fn give(&self, back: RequestUnits) -> bool {
        self.rooms.give(units(back)) & MARK != 0
    }

    /// Gives one running unit back. For the turn, which looks again by itself; everybody else uses
    /// [`give`](TenantWord::give).
    #[inline]
    pub fn give_running(&self) -> bool {
        self.give(RequestUnits::Running)
    }

    /// For the turn only: nobody of this tenant is blocked here.
    pub fn unmark(&self) {
        if self.is_marked() {
            self.rooms.clear(MARK);
        }
    }

    /// Whether somebody waits here now. An observation.
    pub fn is_marked(&self) -> bool {
        self.rooms.load() & MARK != 0
    }

    /// What is used, of one instant.
    pub fn snapshot(&self) -> RequestUse {
        let (used, _) = self.rooms.used();
        RequestUse { requests: REQUESTS.count(used), running: RUNNING.count(used) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::small;
    use super::*;

    const LIMIT: u64 = 2;
    const ASKED: [RequestUnits; 3] = [RequestUnits::Requests, RequestUnits::Running, RequestUnits::Both];

    fn at(word: u64) -> TenantWord {
        TenantWord { rooms: Rooms::at(word, small::limits::<TenantLayout>(LIMIT)) }
    }

    fn verdict(word: u64, asked: RequestUnits, heed: Heed) -> Result<(), Blocked> {
        if REQUESTS.of(word) < REQUESTS.of(units(asked)) {
            return Err(Blocked::Full(Dimension::PoolsRequestsPerTenant));
        }
        if RUNNING.of(word) < RUNNING.of(units(asked)) {
            return Err(Blocked::Full(Dimension::PoolsRunningPerTenant));
        }
        if heed == Heed::Marks && asked.runs() && word & MARK != 0 {
            return Err(Blocked::Promised(Dimension::PoolsRunningPerTenant));
        }
        Ok(())
    }

    #[test]
    fn every_step_of_every_small_word() {
        for word in small::words::<TenantLayout>(LIMIT, MARK) {
            for asked in ASKED {
                for heed in [Heed::Marks, Heed::Nothing] {
                    let tenant = at(word);
                    let expected = verdict(word, asked, heed);
                    assert_eq!(tenant.reserve(asked, heed), expected);
                    let after = if expected.is_ok() { word - units(asked) } else { word };
                    assert_eq!(tenant.rooms.load(), after);
                    if expected.is_ok() {
                        assert_eq!(tenant.give(asked), word & MARK != 0);
                        assert_eq!(tenant.rooms.load(), word);
                    }
                }
            }
            let (tenant, looked) = (at(word), at(word));
            let taken = tenant.take_or_mark_running();
            assert_eq!((taken, looked.has_running_or_mark()), (RUNNING.of(word) > 0, taken));
            assert_eq!(looked.rooms.load(), if taken { word } else { word | MARK });
            let after = if taken { word - RUNNING.units(1) } else { word | MARK };
            assert_eq!(tenant.rooms.load(), after);
            tenant.unmark();
            assert!(!tenant.is_marked());
        }
    }

    #[test]
    fn a_number_is_given_and_taken_back() {
        let tenant = TenantWord::default();
        let none = tenant.reserve(RequestUnits::Requests, Heed::Nothing);
        assert_eq!(none, Err(Blocked::Full(Dimension::PoolsRequestsPerTenant)));
        assert!(tenant.open(1_024, 1_024) && !tenant.open(1, 1));
        for _ in 0..1_024 {
            tenant.reserve(RequestUnits::Both, Heed::Marks).unwrap();
        }
        assert_eq!(tenant.snapshot(), RequestUse { requests: 1_024, running: 1_024 });
        assert!(!tenant.take_or_mark_running() && tenant.is_marked());
        for _ in 0..1_024 {
            assert!(!tenant.retire());
            assert!(tenant.give(RequestUnits::Both), "somebody waits");
        }
        assert!(!tenant.retire(), "somebody waits");
        tenant.unmark();
        assert!(tenant.retire());
        assert!(tenant.open(1, 1));
    }
}
