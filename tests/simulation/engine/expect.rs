//! What is expected of an attempt: that it succeeds, or the reasons for which it may be refused.

use latent_capabilities::broker::{Denied, Dimension, Invalid, Kind, StopCause, What, Which};

/// Reasons why something is refused, as bits.
pub(crate) mod why {
    pub(crate) const CALLER: u32 = 1;
    pub(crate) const SESSION: u32 = 1 << 1;
    pub(crate) const DEADLINE: u32 = 1 << 2;
    pub(crate) const QUEUE: u32 = 1 << 3;
    pub(crate) const EPOCH: u32 = 1 << 4;
    pub(crate) const RETIRED: u32 = 1 << 5;
    pub(crate) const WITHDRAWN: u32 = 1 << 6;
    pub(crate) const REVOKED: u32 = 1 << 7;
    pub(crate) const UNBOUND: u32 = 1 << 8;
    pub(crate) const SPENT: u32 = 1 << 9;
    pub(crate) const TOO_LARGE: u32 = 1 << 10;
    pub(crate) const EMPTY: u32 = 1 << 11;
    pub(crate) const PAST: u32 = 1 << 12;
    pub(crate) const SIDE: u32 = 1 << 13;
    pub(crate) const NOT_STARTED: u32 = 1 << 14;
    pub(crate) const DELIVERED: u32 = 1 << 15;
    pub(crate) const DEPTH: u32 = 1 << 16;
    pub(crate) const SECOND: u32 = 1 << 17;
    pub(crate) const BUSY: u32 = 1 << 18;
    pub(crate) const BACKOFF: u32 = 1 << 19;
    pub(crate) const WIDENED: u32 = 1 << 20;
    pub(crate) const ENDED: u32 = 1 << 21;
    pub(crate) const NOT_REUSABLE: u32 = 1 << 22;
    pub(crate) const NO_STREAM: u32 = 1 << 23;
    pub(crate) const CLOSED_TRANSFER: u32 = 1 << 24;
    pub(crate) const THIRD: u32 = 1 << 25;
    pub(crate) const FAILED: u32 = 1 << 26;
    pub(crate) const EXHAUSTED: u32 = 1 << 27;
    pub(crate) const MAINTENANCE: u32 = 1 << 28;
    pub(crate) const OTHER: u32 = 1 << 31;
}

/// Whose limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    Node,
    Session,
    Tenant(usize),
    Provider(usize),
    Client,
}

/// What may come of an attempt: it fails if, and only if, there is a reason that must make it fail or a full limit.
#[derive(Clone, Default, Debug)]
pub(crate) struct Expect {
    pub(crate) must: u32,
    pub(crate) may: u32,
    pub(crate) full: Vec<(Dimension, Whose)>,
    /// Limits that may be full: what was handed over and not taken counts, and the model does not see it.
    pub(crate) may_full: Vec<(Dimension, Whose)>,
    /// Somebody stands in line, so room may be promised.
    pub(crate) promised: bool,
}

impl Expect {
    pub(crate) fn when(&mut self, holds: bool, reason: u32) {
        if holds {
            self.must |= reason;
        }
    }
    /// One more of `dimension` does not fit.
    pub(crate) fn room(&mut self, dimension: Dimension, whose: Whose, used: u64, more: u64, limit: u64) {
        if used + more > limit {
            self.full.push((dimension, whose));
        }
    }
    pub(crate) fn succeeds(&self) -> bool {
        self.must == 0 && self.full.is_empty()
    }
}

/// The reason that an error names.
pub(crate) fn bit(kind: Kind) -> u32 {
    match kind {
        Kind::Stopped(StopCause::Caller) => why::CALLER,
        Kind::Stopped(StopCause::Session) => why::SESSION,
        Kind::Deadline(Which::Operation | Which::Session) => why::DEADLINE,
        Kind::Deadline(Which::Queue) => why::QUEUE,
        Kind::Retired(What::Epoch) => why::EPOCH,
        Kind::Retired(What::Io | What::Pools | What::Admission) => why::RETIRED,
        Kind::Denied(Denied::Withdrawn) => why::WITHDRAWN,
        Kind::Denied(Denied::Policy) => why::REVOKED,
        Kind::Denied(Denied::NotBound) => why::UNBOUND,
        Kind::Denied(Denied::WidenedDeadline) => why::WIDENED,
        Kind::Denied(Denied::NotStarted) => why::NOT_STARTED,
        Kind::Denied(Denied::Delivered) => why::DELIVERED,
        Kind::Denied(Denied::SecondConnection | Denied::SecondTransfer) => why::SECOND,
        Kind::Denied(Denied::NoStreamBudget) => why::NO_STREAM,
        Kind::Denied(Denied::TransferClosed) => why::CLOSED_TRANSFER,
        Kind::Denied(Denied::ThirdWaiter) => why::THIRD,
        Kind::Denied(Denied::Exhausted) => why::EXHAUSTED,
        Kind::Denied(Denied::Maintenance) => why::MAINTENANCE,
        Kind::JobFailed => why::FAILED,
        Kind::Denied(Denied::NotReusable) => why::NOT_REUSABLE,
        Kind::Spent(_) => why::SPENT,
        Kind::TooLarge(_) => why::TOO_LARGE,
        Kind::Invalid(Invalid::EmptyChunk) => why::EMPTY,
        Kind::Invalid(Invalid::PastCapacity) => why::PAST,
        Kind::Invalid(Invalid::NotStaged) => why::SIDE,
        Kind::Invalid(Invalid::Depth) => why::DEPTH,
        Kind::Busy => why::BUSY,
        Kind::Backoff { .. } => why::BACKOFF,
        Kind::Ended(_) => why::ENDED,
        _ => why::OTHER,
    }
}
