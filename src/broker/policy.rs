//! What a plan allows on one binding: operations, how long a call may take, how much it may move, what it must pay.
//!
//! A [`Policy`] is what the operator writes; [`Terms`] are what the plan keeps of it, every number checked and filled in
//! at sealing. Terms never change. What can be taken back later, operation by operation or as a whole, is the binding's
//! word ([`super::plan`]).

use std::time::Duration;

use crate::account::dimension::Dimension;
use crate::broker::capability::{Capability, Operation};
use crate::broker::error::{Denied, Error, Invalid};
use crate::broker::ledger::{Budget, Cost};
use crate::broker::limits::BrokerLimits;
use crate::broker::session_core::BUDGETS;
use crate::queue::operation::Permission;

/// Bytes that one call may stream, each way, added up over its life. Apart from its inline input and output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamBudget {
    input: u64,
    output: u64,
}

impl StreamBudget {
    /// A budget of `input` bytes to the provider and `output` bytes from it; one of them may be 0.
    ///
    /// # Errors
    ///
    /// Both are 0, or one is above 1 GiB, the ceiling of its dimension.
    pub const fn new(input: u64, output: u64) -> Result<StreamBudget, Error> {
        if input == 0 && output == 0 {
            return Err(Error::invalid(Invalid::ZeroLimit));
        }
        if input > Dimension::BrokerStreamInputBytes.ceiling() {
            return Err(Error::too_large(Dimension::BrokerStreamInputBytes));
        }
        if output > Dimension::BrokerStreamOutputBytes.ceiling() {
            return Err(Error::too_large(Dimension::BrokerStreamOutputBytes));
        }
        Ok(StreamBudget { input, output })
    }

    /// Bytes to the provider.
    #[must_use]
    pub const fn input(self) -> u64 {
        self.input
    }

    /// Bytes from the provider.
    #[must_use]
    pub const fn output(self) -> u64 {
        self.output
    }
}

/// What one binding of a plan allows. The default allows every operation and as many bytes as the broker does, sets no
/// wall time and demands no charge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    operations: Option<u16>,
    wall_time: Option<Duration>,
    input: Option<u64>,
    output: Option<u64>,
    stream: Streams,
    minimums: Vec<(Operation, Budget, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Streams {
    /// As much as the broker's limits.
    #[default]
    Any,
    None,
    UpTo(StreamBudget),
}

impl Policy {
    /// The default: everything that the broker's limits allow.
    #[must_use]
    pub fn new() -> Policy {
        Policy::default()
    }

    /// Allows these operations only, by their bits: bit `n` is the operation with index `n`.
    #[must_use]
    pub fn operations(mut self, bits: u16) -> Policy {
        self.operations = Some(bits);
        self
    }

    /// Allows these operations only.
    #[must_use]
    pub fn only(self, operations: &[Operation]) -> Policy {
        self.operations(operations.iter().fold(0, |bits, operation| bits | operation.bit()))
    }

    /// Ends each call at most this long after it was accepted. More than the session's deadline changes nothing.
    #[must_use]
    pub fn wall_time(mut self, duration: Duration) -> Policy {
        self.wall_time = Some(duration);
        self
    }

    /// Refuses calls that declare more inline input than this.
    #[must_use]
    pub fn maximum_input(mut self, bytes: u64) -> Policy {
        self.input = Some(bytes);
        self
    }

    /// Refuses calls that ask for more inline output than this; calls that ask for nothing in particular get this.
    #[must_use]
    pub fn maximum_output(mut self, bytes: u64) -> Policy {
        self.output = Some(bytes);
        self
    }

    /// Refuses calls that ask for a larger stream budget than this.
    #[must_use]
    pub fn stream(mut self, most: StreamBudget) -> Policy {
        self.stream = Streams::UpTo(most);
        self
    }

    /// Refuses calls that ask for a stream budget.
    #[must_use]
    pub fn no_streams(mut self) -> Policy {
        self.stream = Streams::None;
        self
    }

    /// Refuses calls of `operation` that charge less than `amount` of `budget`. Said twice, the last word counts.
    #[must_use]
    pub fn minimum(mut self, operation: Operation, budget: Budget, amount: u64) -> Policy {
        self.minimums.push((operation, budget, amount));
        self
    }
}

/// A policy as a plan keeps it. Byte ceilings of 0 allow nothing of their kind.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Operations allowed at sealing; what the binding's word starts with.
    pub(crate) operations: u16,
    /// Nanoseconds; `u64::MAX` for none.
    wall_time: u64,
    input: u64,
    output: u64,
    stream_input: u64,
    stream_output: u64,
    /// By operation and budget; empty if there is none at all.
    minimums: Box<[[u64; BUDGETS]]>,
}

impl Terms {
    /// Checks `policy` against the capability and the broker's limits, and fills in what it leaves open.
    pub(crate) fn seal(
        policy: &Policy,
        capability: &'static Capability,
        limits: &BrokerLimits,
    ) -> Result<Terms, Error> {
        let operations = policy.operations.unwrap_or(u16::MAX) & capability.all_bits();
        if operations == 0 || policy.operations.is_some_and(|bits| bits & !capability.all_bits() != 0) {
            return Err(Error::invalid(Invalid::Operation));
        }
        let wall_time = match policy.wall_time {
            None => u64::MAX,
            Some(Duration::ZERO) => return Err(Error::invalid(Invalid::ZeroLimit)),
            // A time may saturate: 580 years are as good as none.
            Some(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        };
        let most = |asked: Option<u64>, limit, dimension| match asked {
            None => Ok(limit),
            Some(bytes) if bytes <= limit => Ok(bytes),
            Some(_) => Err(Error::too_large(dimension)),
        };
        let stream = match policy.stream {
            Streams::Any => (None, None),
            Streams::None => (Some(0), Some(0)),
            Streams::UpTo(budget) => (Some(budget.input), Some(budget.output)),
        };
        Ok(Terms {
            operations,
            wall_time,
            input: most(policy.input, limits.input_bytes, Dimension::BrokerInputBytes)?,
            output: most(policy.output, limits.output_bytes, Dimension::BrokerOutputBytes)?,
            stream_input: most(stream.0, limits.stream_input_bytes, Dimension::BrokerStreamInputBytes)?,
            stream_output: most(stream.1, limits.stream_output_bytes, Dimension::BrokerStreamOutputBytes)?,
            minimums: minimums(policy, capability)?,
        })
    }

    /// Whether the policy allows what a call declares, and what it gets. Inline and streamed bytes both count.
    #[inline]
    pub(crate) fn grant(&self, operation: Operation, cost: &Cost) -> Result<Permission, Error> {
        if cost.overflowed {
            return Err(Error::invalid(Invalid::Overflow));
        }
        if cost.input > self.input {
            return Err(Error::too_large(Dimension::BrokerInputBytes));
        }
        let maximum_output = cost.output.unwrap_or(self.output);
        if maximum_output > self.output {
            return Err(Error::too_large(Dimension::BrokerOutputBytes));
        }
        if let Some(stream) = cost.stream {
            if self.stream_input == 0 && self.stream_output == 0 {
                return Err(Error::denied(Denied::NoStreamBudget));
            }
            if stream.input > self.stream_input {
                return Err(Error::too_large(Dimension::BrokerStreamInputBytes));
            }
            if stream.output > self.stream_output {
                return Err(Error::too_large(Dimension::BrokerStreamOutputBytes));
            }
        }
        if let Some(minimums) = self.minimums.get(usize::from(operation.index()))
            && minimums.iter().zip(&cost.charges).any(|(least, charged)| charged < least)
        {
            return Err(Error::denied(Denied::BelowMinimum));
        }
        let (stream_input, stream_output) =
            cost.stream.map_or((0, 0), |stream| (stream.input, stream.output));
        Ok(Permission { output: maximum_output, stream_input, stream_output })
    }

    /// Whether a call has a time of its own to end in.
    #[inline]
    pub(crate) fn has_wall_time(&self) -> bool {
        self.wall_time != u64::MAX
    }

    /// When a call that is accepted at `now` ends, in nanoseconds of the node's clock; the end of time without a wall time.
    #[inline]
    pub(crate) fn ends(&self, now: u64) -> u64 {
        // A time may saturate: what lies 580 years ahead never comes.
        now.saturating_add(self.wall_time)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        size_of_val(&*self.minimums) as u64
    }
}

fn minimums(policy: &Policy, capability: &'static Capability) -> Result<Box<[[u64; BUDGETS]]>, Error> {
    if policy.minimums.is_empty() {
        return Ok(Box::default());
    }
    let mut table = vec![[0; BUDGETS]; capability.operation_count()];
    for &(operation, budget, amount) in &policy.minimums {
        if !operation.capability().is(capability) {
            return Err(Error::invalid(Invalid::Operation));
        }
        if amount == 0 {
            return Err(Error::invalid(Invalid::ZeroLimit));
        }
        table[usize::from(operation.index())][budget.at()] = amount;
    }
    Ok(table.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    static CAPABILITY: Capability = Capability::new("test:policy", &["send", "open"]);
    static OTHER: Capability = Capability::new("test:policy", &["send", "open"]);

    fn sealed(policy: &Policy) -> Terms {
        Terms::seal(policy, &CAPABILITY, &BrokerLimits::default()).expect("the policy is sound")
    }

    fn refusal(policy: &Policy) -> Error {
        Terms::seal(policy, &CAPABILITY, &BrokerLimits::default()).expect_err("the policy is not sound")
    }

    #[test]
    fn what_is_left_open_is_what_the_broker_allows() {
        let limits = BrokerLimits::default();
        let terms = sealed(&Policy::new());
        let send = CAPABILITY.operation(0);
        assert_eq!(terms.operations, 0b11);
        assert_eq!(
            terms.grant(send, &Cost::new()),
            Ok(Permission { output: limits.output_bytes, stream_input: 0, stream_output: 0 })
        );
        let stream = StreamBudget::new(limits.stream_input_bytes, limits.stream_output_bytes)
            .expect("the limits are no more than the ceilings");
        let cost = Cost::new().input(limits.input_bytes).maximum_output(1).stream(stream);
        let granted = Permission { output: 1, stream_input: stream.input(), stream_output: stream.output() };
        assert_eq!(terms.grant(send, &cost), Ok(granted));
        assert_eq!(terms.ends(7), u64::MAX);
    }

    #[test]
    fn more_than_a_ceiling_of_the_policy_is_refused_by_dimension() {
        let stream = StreamBudget::new(100, 200).expect("small");
        let policy = Policy::new().maximum_input(10).maximum_output(20).stream(stream);
        let (terms, send) = (sealed(&policy), CAPABILITY.operation(0));
        let stream = |input, output| Cost::new().stream(StreamBudget::new(input, output).expect("small"));
        for (cost, dimension) in [
            (Cost::new().input(11), Dimension::BrokerInputBytes),
            (Cost::new().maximum_output(21), Dimension::BrokerOutputBytes),
            (stream(101, 0), Dimension::BrokerStreamInputBytes),
            (stream(0, 201), Dimension::BrokerStreamOutputBytes),
        ] {
            assert_eq!(terms.grant(send, &cost), Err(Error::too_large(dimension)));
        }
        assert!(terms.grant(send, &stream(100, 200).input(10).maximum_output(20)).is_ok());
        let none = sealed(&Policy::new().no_streams());
        assert_eq!(none.grant(send, &stream(1, 1)), Err(Error::denied(Denied::NoStreamBudget)));
    }

    #[test]
    fn minimum_charges_are_of_one_operation_and_every_budget() {
        let (send, open) = (CAPABILITY.operation(0), CAPABILITY.operation(1));
        let policy =
            Policy::new().minimum(send, Budget::OutboundRequests, 1).minimum(send, Budget::Effects, 2);
        let terms = sealed(&policy);
        let cost = Cost::new().charge(Budget::OutboundRequests, 1);
        assert_eq!(terms.grant(send, &cost), Err(Error::denied(Denied::BelowMinimum)));
        assert!(terms.grant(send, &cost.charge(Budget::Effects, 2)).is_ok());
        assert!(terms.grant(open, &Cost::new()).is_ok());
    }

    #[test]
    fn a_policy_that_makes_no_sense_is_not_sealed() {
        let foreign = OTHER.operation(0);
        for (policy, why) in [
            (Policy::new().operations(0), Invalid::Operation),
            (Policy::new().operations(0b100), Invalid::Operation),
            (Policy::new().wall_time(Duration::ZERO), Invalid::ZeroLimit),
            (Policy::new().minimum(foreign, Budget::Effects, 1), Invalid::Operation),
            (Policy::new().minimum(CAPABILITY.operation(0), Budget::Effects, 0), Invalid::ZeroLimit),
        ] {
            assert_eq!(refusal(&policy), Error::invalid(why));
        }
        let too_much = BrokerLimits::default().input_bytes + 1;
        assert_eq!(
            refusal(&Policy::new().maximum_input(too_much)),
            Error::too_large(Dimension::BrokerInputBytes)
        );
    }

    #[test]
    fn a_stream_budget_is_something_and_below_its_ceiling() {
        let most = Dimension::BrokerStreamInputBytes.ceiling();
        assert!(StreamBudget::new(most, 0).is_ok());
        assert_eq!(StreamBudget::new(0, 0), Err(Error::invalid(Invalid::ZeroLimit)));
        assert_eq!(StreamBudget::new(most + 1, 0), Err(Error::too_large(Dimension::BrokerStreamInputBytes)));
    }

    #[test]
    fn a_wall_time_only_narrows_and_never_wraps() {
        let terms = sealed(&Policy::new().wall_time(Duration::from_nanos(5)));
        assert_eq!(terms.ends(7), 12);
        assert_eq!(terms.ends(u64::MAX - 1), u64::MAX);
    }

    #[test]
    fn a_cost_that_overflowed_is_refused() {
        let cost = Cost::new().charge(Budget::Effects, u64::MAX).charge(Budget::Effects, 1);
        assert_eq!(
            sealed(&Policy::new()).grant(CAPABILITY.operation(0), &cost),
            Err(Error::invalid(Invalid::Overflow))
        );
    }
}
