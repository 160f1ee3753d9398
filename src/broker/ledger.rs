//! The session's ledger: cumulative budgets that calls spend and nothing fills up again.
//!
//! Each budget is one word in the session's slot: what is left of it, or [`UNLIMITED`]. Invariants:
//!
//! * L1. A reservation takes every charge of a cost or none: what was taken before the one that failed is given back.
//! * L2. What was given back never makes a budget larger than it was when the session was opened.
//! * L3. A reservation that became an accepted call is committed by doing nothing, and is never refunded, however the
//!   call ends.
//!
//! While a reservation is in flight its charges count as spent: a second one beside it may be refused although the first
//! is given back in the end. That refusal was justified by the words it saw.

use crate::account::budget;
pub(crate) use crate::account::budget::UNLIMITED;
use crate::broker::policy::StreamBudget;
use crate::broker::session_core::BUDGETS;
use crate::sync::atomic::AtomicU64;

/// A cumulative budget of one session. Unlimited unless [`Activation::budget`](super::Activation::budget) sets it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Budget {
    /// Fuel of the guest's processor time.
    CpuFuel = 0,
    /// Calls to other activations.
    ChildCalls = 1,
    /// Requests sent to the outside.
    OutboundRequests = 2,
    /// Bytes read from state.
    StateRead = 3,
    /// Bytes written to state.
    StateWrite = 4,
    /// Bytes read from blobs.
    BlobRead = 5,
    /// Bytes written to blobs.
    BlobWrite = 6,
    /// Bytes of log lines.
    LogBytes = 7,
    /// Effects on the outside that cannot be taken back.
    Effects = 8,
}

impl Budget {
    /// All of them, in the order of their numbers.
    pub const ALL: [Budget; BUDGETS] = [
        Budget::CpuFuel,
        Budget::ChildCalls,
        Budget::OutboundRequests,
        Budget::StateRead,
        Budget::StateWrite,
        Budget::BlobRead,
        Budget::BlobWrite,
        Budget::LogBytes,
        Budget::Effects,
    ];

    /// Its name, for people and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Budget::CpuFuel => "cpu-fuel",
            Budget::ChildCalls => "child-calls",
            Budget::OutboundRequests => "outbound-requests",
            Budget::StateRead => "state-read",
            Budget::StateWrite => "state-write",
            Budget::BlobRead => "blob-read",
            Budget::BlobWrite => "blob-write",
            Budget::LogBytes => "log-bytes",
            Budget::Effects => "effects",
        }
    }

    pub(crate) const fn at(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What one call declares before it is accepted: charges against the ledger, and what it may move.
///
/// Every part is checked against the sealed policy, and the charges are taken together or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    pub(crate) charges: [u64; BUDGETS],
    pub(crate) input: u64,
    /// `None`: as much as the policy allows.
    pub(crate) output: Option<u64>,
    pub(crate) stream: Option<StreamBudget>,
    /// Whether anything is charged.
    charged: bool,
    /// A charge was added that 64 bits cannot hold; the call is refused.
    pub(crate) overflowed: bool,
}

impl Cost {
    /// Nothing is charged, no inline input is declared, output as the policy allows, no stream budget.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            charges: [0; BUDGETS],
            input: 0,
            output: None,
            stream: None,
            charged: false,
            overflowed: false,
        }
    }

    /// Charges `amount` more of `budget`. A sum that 64 bits cannot hold refuses the call.
    #[must_use]
    pub const fn charge(mut self, budget: Budget, amount: u64) -> Self {
        self.charged |= amount > 0;
        match self.charges[budget.at()].checked_add(amount) {
            Some(sum) => self.charges[budget.at()] = sum,
            None => self.overflowed = true,
        }
        self
    }

    /// Declares `bytes` of inline input.
    #[must_use]
    pub const fn input(mut self, bytes: u64) -> Self {
        self.input = bytes;
        self
    }

    /// Allows the call to turn at most `bytes` into inline output, added up over its life.
    #[must_use]
    pub const fn maximum_output(mut self, bytes: u64) -> Self {
        self.output = Some(bytes);
        self
    }

    /// Asks for a stream budget, which the call's one transfer may use.
    #[must_use]
    pub const fn stream(mut self, budget: StreamBudget) -> Self {
        self.stream = Some(budget);
        self
    }

    /// Whether it is as [`Self::new`] makes it.
    #[inline]
    pub(crate) const fn declares_nothing(&self) -> bool {
        !self.charged && !self.overflowed && self.input == 0 && self.output.is_none() && self.stream.is_none()
    }

    /// Whether any budget is charged.
    #[inline]
    pub(crate) const fn charges_anything(&self) -> bool {
        self.charged
    }

    /// What is charged of `budget`.
    #[must_use]
    pub const fn charged(&self, budget: Budget) -> u64 {
        self.charges[budget.at()]
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::new()
    }
}

/// The budgets of one session.
pub(crate) type Ledger = [AtomicU64; BUDGETS];

/// Takes all of `charges`, or none (L1).
///
/// # Errors
///
/// The budget that does not cover its charge.
#[inline]
pub(crate) fn reserve(ledger: &Ledger, charges: &[u64; BUDGETS]) -> Result<(), Budget> {
    budget::take_all(ledger, charges).map_err(|at| Budget::ALL[at])
}

/// Gives back a reservation that did not become an accepted call (L3).
pub(crate) fn refund(ledger: &Ledger, charges: &[u64; BUDGETS]) {
    budget::give_before(ledger, charges, BUDGETS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::order;

    fn ledger(values: [u64; BUDGETS]) -> Ledger {
        values.map(AtomicU64::new)
    }

    fn left(ledger: &Ledger) -> [u64; BUDGETS] {
        std::array::from_fn(|at| ledger[at].load(order::COUNT))
    }

    #[test]
    fn a_group_is_taken_whole_or_not_at_all() {
        let ledger = ledger([5, 5, 5, UNLIMITED, 5, 5, 5, 5, 5]);
        let before = left(&ledger);
        let cost = Cost::new()
            .charge(Budget::CpuFuel, 5)
            .charge(Budget::StateRead, 1 << 40)
            .charge(Budget::Effects, 6);
        assert_eq!(reserve(&ledger, &cost.charges), Err(Budget::Effects));
        assert_eq!(left(&ledger), before);
        let cost = Cost::new().charge(Budget::CpuFuel, 5).charge(Budget::Effects, 2);
        assert_eq!(reserve(&ledger, &cost.charges), Ok(()));
        assert_eq!(left(&ledger), [0, 5, 5, UNLIMITED, 5, 5, 5, 5, 3]);
        assert_eq!(reserve(&ledger, &cost.charges), Err(Budget::CpuFuel));
        assert_eq!(left(&ledger), [0, 5, 5, UNLIMITED, 5, 5, 5, 5, 3]);
    }

    #[test]
    fn a_refund_restores_exactly_what_was_taken() {
        let ledger = ledger([10, 20, UNLIMITED, 0, UNLIMITED - 1, 1, 1, 1, 1]);
        let before = left(&ledger);
        let cost = Cost::new()
            .charge(Budget::CpuFuel, 10)
            .charge(Budget::OutboundRequests, u64::MAX)
            .charge(Budget::StateWrite, UNLIMITED - 1);
        assert_eq!(reserve(&ledger, &cost.charges), Ok(()));
        refund(&ledger, &cost.charges);
        assert_eq!(left(&ledger), before);
    }

    #[test]
    fn a_cost_adds_up_and_remembers_an_overflow() {
        let cost = Cost::new().charge(Budget::LogBytes, 3).charge(Budget::LogBytes, 4);
        assert_eq!(cost.charged(Budget::LogBytes), 7);
        assert!(!cost.overflowed);
        assert!(cost.charge(Budget::LogBytes, u64::MAX).overflowed);
    }

    #[test]
    fn names_and_numbers_of_budgets_differ() {
        for (at, budget) in Budget::ALL.into_iter().enumerate() {
            assert_eq!(budget.at(), at);
            assert!(Budget::ALL.iter().filter(|other| other.name() == budget.name()).count() == 1);
        }
    }

    #[test]
    fn threads_never_spend_more_than_there_was() {
        let ledger = std::sync::Arc::new(ledger([1000; BUDGETS]));
        let cost = Cost::new().charge(Budget::CpuFuel, 1).charge(Budget::Effects, 3);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let ledger = ledger.clone();
                std::thread::spawn(move || {
                    (0..500).filter(|_| reserve(&ledger, &cost.charges).is_ok()).count() as u64
                })
            })
            .collect();
        let accepted: u64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        let rest = left(&ledger);
        assert_eq!(rest[Budget::CpuFuel.at()], 1000 - accepted);
        assert_eq!(rest[Budget::Effects.at()], 1000 - 3 * accepted);
        assert_eq!(accepted, 333);
    }
}
