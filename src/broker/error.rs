//! Every refusal and every failure of the library: one small value.
//!
//! An [`Error`] says what happened ([`Kind`]), whether anything reached the provider ([`Effect`]), and when another
//! attempt can make sense ([`Retry`]). It is `Copy`, holds no string and allocates nothing. The words of
//! [`code`](Error::code) are stable; sentences are for people and may change.

use std::fmt;
use std::time::Duration;

use crate::account::charge::Refused;
use crate::account::client::Dial;
use crate::account::dimension::Dimension;
use crate::account::gauge;
use crate::account::scope::{Blocked, Scope};
use crate::broker::ledger::Budget;
use crate::queue::operation::Cause;

/// A refusal or a failure of the library.
// Aligned like what results hold beside it: a result is then moved word by word, as it was written. Moved in other pieces
// than it was written in, it waits for the processor's store buffer, which costs more than most operations do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
pub struct Error {
    kind: Kind,
    effect: Effect,
}

const _: () = assert!(size_of::<Error>() <= 16);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// No room now; there will be when something is released.
    Full(Refusal),
    /// More than the limit of this dimension; it can never fit.
    TooLarge(Dimension),
    /// What is left of a cumulative budget of the session does not cover the cost, and never will again.
    Spent(Budget),
    /// A dial of this client is in progress, and there is one at a time.
    Busy,
    /// The client is paused after failed dials.
    Backoff {
        /// How long the pause lasted when the refusal was made.
        wait_ms: u32,
    },
    /// What was asked is closed for good.
    Retired(What),
    /// Somebody stopped it.
    Stopped(StopCause),
    /// Its time is over.
    Deadline(Which),
    /// It must not be done.
    Denied(Denied),
    /// It cannot be done like this, now or later.
    Invalid(Invalid),
    /// The stream has ended.
    Ended(Terminal),
    /// A job panicked or was lost.
    JobFailed,
}

/// Which word had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is counted.
    pub dimension: Dimension,
    /// Whose limit it is.
    pub scope: Scope,
    /// There was room, but it belongs to those who wait in front.
    pub promised: bool,
}

/// Whether anything reached the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing did. Of a refusal by a running call for want of room, or for a connection or a job that it asked for: nothing
    /// of what was to follow; what it sent before stays sent.
    NotSent,
    /// It did.
    Sent,
    /// It may have: the call had started.
    Uncertain,
}

/// When another attempt can make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same attempt will fail again.
    Never,
    /// When something is released; nobody can say when that is.
    Released,
    /// Not before so much time has passed.
    After(Duration),
    /// With the current epoch, plan, session or deadline, which must be asked for anew.
    Renewed,
}

/// A table of reasons: variant, stable word, sentence.
macro_rules! reasons {
    ($(
        $(#[$meta:meta])*
        $name:ident {$(
            $(#[$variant_meta:meta])*
            $variant:ident $(= $value:literal)?, $code:literal, $sentence:literal;
        )+}
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {$(
            $(#[$variant_meta])*
            $variant $(= $value)?,
        )+}

        impl $name {
            /// Every variant.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The stable word.
            pub const fn code(self) -> &'static str {
                match self {
                    $($name::$variant => $code,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(match self {
                    $($name::$variant => $sentence,)+
                })
            }
        }
    )+};
}

reasons! {
    /// What is closed for good.
    What {
        /// The epoch was replaced or retired; the provider may have a newer one.
        Epoch, "retired-epoch", "the provider's epoch is retired";
        /// The plan was withdrawn as a whole.
        Plan, "retired-plan", "the plan is withdrawn";
        /// The I/O runtime.
        Io, "retired-io", "the I/O runtime is retired";
        /// The pool registry.
        Pools, "retired-pools", "the pools are retired";
        /// Pool admission, while accepted work goes on.
        Admission, "retired-admission", "admission is closed; accepted work goes on";
        /// The broker.
        Broker, "retired-broker", "the broker is retired";
    }

    /// Who stopped it.
    StopCause {
        /// An explicit stop, or the owner went away.
        Caller, "stopped-caller", "the caller stopped the operation";
        /// Its session was stopped or closed.
        Session, "stopped-session", "the session is stopped";
        /// The execution probe of its session says cancelled.
        Probe, "stopped-probe", "the execution was cancelled";
    }

    /// Whose time is over.
    Which {
        /// The operation's deadline.
        Operation, "deadline-operation", "the operation's deadline has passed";
        /// The longest time in the line.
        Queue, "deadline-queue", "the operation waited too long for its turn";
        /// The session's deadline.
        Session, "deadline-session", "the session's deadline has passed";
    }

    /// Why it must not be done.
    #[non_exhaustive]
    Denied {
        /// The policy does not allow this operation, or no longer.
        Policy, "denied-policy", "the policy does not allow the operation";
        /// The publication was withdrawn.
        Withdrawn, "denied-withdrawn", "the publication is withdrawn";
        /// The plan does not bind this capability.
        NotBound, "denied-not-bound", "the plan does not bind the capability";
        /// An operation needs a deadline.
        UnboundedDeadline, "denied-unbounded-deadline", "the session has no deadline";
        /// A deadline can only get earlier.
        WidenedDeadline, "denied-widened-deadline", "the deadline is later than the session's";
        /// The call belongs to another session, whatever its identifiers say.
        ForeignSession, "denied-foreign-session", "it belongs to another session";
        /// It belongs to another provider or another epoch.
        ForeignProvider, "denied-foreign-provider", "it belongs to another provider";
        /// It belongs to another client or another registry.
        ForeignClient, "denied-foreign-client", "it belongs to another client";
        /// The buffer belongs to another operation.
        ForeignBuffer, "denied-foreign-buffer", "the buffer belongs to another operation";
        /// A call has one transfer, for its whole life.
        SecondTransfer, "denied-second-transfer", "the call has had its transfer";
        /// A broker has one registry, for its whole life.
        SecondRegistry, "denied-second-registry", "the broker has had its registry";
        /// The call declared no stream budget.
        NoStreamBudget, "denied-no-stream-budget", "the call has no stream budget";
        /// The expected epoch is not the installed one, or the new one does not advance it.
        StaleEpoch, "denied-stale-epoch", "another epoch is installed";
        /// The plan was sealed by another broker.
        ForeignPlan, "denied-foreign-plan", "the plan belongs to another broker";
        /// The cost charges less than the policy demands.
        BelowMinimum, "denied-below-minimum", "the cost is below what the policy demands";
        /// A provider of this name is installed already.
        ProviderExists, "denied-provider-exists", "a provider of this name is installed";
        /// The numbers that tell instances apart are used up, for good.
        TagsExhausted, "denied-tags-exhausted", "no further instance can be told apart";
        /// An operation has one connection of its client at a time.
        SecondConnection, "denied-second-connection", "the operation has a connection of the client already";
        /// Every use that was asked for has begun.
        Exhausted, "denied-exhausted", "everything that was asked for has begun";
        /// Connections of maintenance are nobody else's.
        Maintenance, "denied-maintenance", "the connection belongs to a maintenance request";
        /// Nothing of this name is installed.
        Unknown, "denied-unknown", "nothing of this name is installed";
        /// The client of this origin has another resource type.
        OtherType, "denied-other-type", "the origin's client has another resource type";
        /// The connection or the exchange is not in a state that can be parked.
        NotReusable, "denied-not-reusable", "the connection cannot be used again";
        /// What waits for its turn cannot become output yet.
        NotStarted, "denied-not-started", "the operation has not started";
        /// A chunk that a stream delivered belongs to its consumer.
        Delivered, "denied-delivered", "the buffer was delivered by a stream";
        /// The transfer of this chunk is closed.
        TransferClosed, "denied-transfer-closed", "the transfer is closed";
        /// Two tasks wait for the same direction of the transfer already.
        ThirdWaiter, "denied-third-waiter", "two tasks wait for this direction of the transfer already";
    }

    /// Why it cannot be done like this.
    #[non_exhaustive]
    Invalid {
        /// A chunk holds at least one byte.
        EmptyChunk, "invalid-empty-chunk", "the chunk is empty";
        /// A ring holds at least one chunk, and at most the limit.
        Depth, "invalid-depth", "the depth is not between 1 and the limit";
        /// More than the buffer holds.
        PastCapacity, "invalid-past-capacity", "it goes past what the buffer holds";
        /// Only a staged buffer can be retained.
        NotStaged, "invalid-not-staged", "the buffer is not on the staged side";
        /// Only a retained buffer can be written to a stream.
        NotRetained, "invalid-not-retained", "the buffer is not on the result side";
        /// Nothing would be allowed at all.
        ZeroLimit, "invalid-zero-limit", "the limit is zero";
        /// Names have 1 to 256 characters: ASCII letters, digits and `- _ . : / @`.
        Name, "invalid-name", "the name is empty, too long, or has other characters than letters, digits and - _ . : / @";
        /// The same thing twice.
        Twice, "invalid-twice", "the same thing is named twice";
        /// A plan has at most 11 bindings.
        Bindings, "invalid-bindings", "the plan has more than 11 bindings";
        /// A number outside of the bounds that the call documents.
        Bounds, "invalid-bounds", "the number is out of bounds";
        /// A deadline further ahead than the call allows.
        TooFar, "invalid-too-far", "the deadline is too far ahead";
        /// A sum that 64 bits cannot hold.
        Overflow, "invalid-overflow", "the sum cannot be represented";
        /// An instant or a duration that the clock cannot hold.
        Time, "invalid-time", "the time cannot be represented";
        /// The operation's phase does not allow it.
        Phase, "invalid-phase", "the operation's phase does not allow it";
        /// There is no such operation of the capability.
        Operation, "invalid-operation", "the capability has no such operation";
    }

    /// How a stream ended. The first end stays.
    Terminal {
        /// Everything was written.
        Eof = 1, "ended-eof", "the stream is complete";
        /// The reader closed it.
        Closed = 2, "ended-closed", "the reader closed the stream";
        /// The operation was stopped.
        Cancelled = 3, "ended-cancelled", "the operation was stopped";
        /// The operation's deadline passed.
        DeadlineExceeded = 4, "ended-deadline", "the operation's deadline has passed";
        /// The provider sent more than was allowed.
        TooLarge = 5, "ended-too-large", "the provider sent more than was allowed";
        /// The provider failed.
        Failed = 6, "ended-failed", "the provider failed";
        /// The writer went away without a word.
        Uncertain = 7, "ended-uncertain", "the writer went away before the end";
    }
}

impl Terminal {
    /// The four bits of a stream's word; 0 is no end yet.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The end that these bits stand for.
    pub const fn from_bits(bits: u8) -> Option<Terminal> {
        match bits {
            1 => Some(Terminal::Eof),
            2 => Some(Terminal::Closed),
            3 => Some(Terminal::Cancelled),
            4 => Some(Terminal::DeadlineExceeded),
            5 => Some(Terminal::TooLarge),
            6 => Some(Terminal::Failed),
            7 => Some(Terminal::Uncertain),
            _ => None,
        }
    }
}

impl From<Kind> for Error {
    /// With the effect that the kind has by itself: none for everything the library refuses before a call starts.
    fn from(kind: Kind) -> Error {
        let effect = match kind {
            Kind::Ended(Terminal::Eof | Terminal::TooLarge) => Effect::Sent,
            Kind::Ended(_) | Kind::JobFailed => Effect::Uncertain,
            _ => Effect::NotSent,
        };
        Error { kind, effect }
    }
}

impl From<Terminal> for Error {
    fn from(terminal: Terminal) -> Error {
        Kind::Ended(terminal).into()
    }
}

impl Error {
    /// What happened.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether anything reached the provider.
    pub const fn effect(&self) -> Effect {
        self.effect
    }

    /// The same error of a call that had started: what is not known to be sent may have been.
    #[must_use]
    pub const fn after_start(self) -> Error {
        match self.effect {
            Effect::NotSent => Error { kind: self.kind, effect: Effect::Uncertain },
            Effect::Sent | Effect::Uncertain => self,
        }
    }

    /// When another attempt can make sense.
    pub const fn retry(&self) -> Retry {
        match self.kind {
            Kind::Full(_) | Kind::Busy | Kind::Deadline(Which::Queue) => Retry::Released,
            Kind::Backoff { wait_ms } => Retry::After(Duration::from_millis(wait_ms as u64)),
            Kind::Retired(What::Epoch | What::Plan) | Kind::Denied(Denied::StaleEpoch) => Retry::Renewed,
            Kind::Deadline(Which::Operation | Which::Session) | Kind::Stopped(_) => Retry::Renewed,
            Kind::TooLarge(_)
            | Kind::Spent(_)
            | Kind::Retired(What::Io | What::Pools | What::Admission | What::Broker)
            | Kind::Denied(_)
            | Kind::Invalid(_)
            | Kind::Ended(_)
            | Kind::JobFailed => Retry::Never,
        }
    }

    /// How long to wait before another attempt, where that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.retry() {
            Retry::After(wait) => Some(wait),
            Retry::Never | Retry::Released | Retry::Renewed => None,
        }
    }

    /// The dimension that it is about, if it is about one.
    pub const fn dimension(&self) -> Option<Dimension> {
        match self.kind {
            Kind::Full(Refusal { dimension, .. }) | Kind::TooLarge(dimension) => Some(dimension),
            _ => None,
        }
    }

    /// The scope whose limit it is about, if it is about one.
    pub const fn scope(&self) -> Option<Scope> {
        match self.kind {
            Kind::Full(Refusal { scope, .. }) => Some(scope),
            Kind::Busy | Kind::Backoff { .. } => None,
            _ => None,
        }
    }

    /// A stable word for logs, metrics and bodies.
    pub const fn code(&self) -> &'static str {
        match self.kind {
            Kind::Full(_) => "full",
            Kind::TooLarge(_) => "too-large",
            Kind::Spent(_) => "budget-spent",
            Kind::Busy => "dial-in-progress",
            Kind::Backoff { .. } => "backoff",
            Kind::Retired(what) => what.code(),
            Kind::Stopped(cause) => cause.code(),
            Kind::Deadline(which) => which.code(),
            Kind::Denied(why) => why.code(),
            Kind::Invalid(why) => why.code(),
            Kind::Ended(terminal) => terminal.code(),
            Kind::JobFailed => "job-failed",
        }
    }
}

/// How the library makes its errors.
impl Error {
    pub(crate) const fn busy() -> Error {
        Error { kind: Kind::Busy, effect: Effect::NotSent }
    }

    pub(crate) const fn full(dimension: Dimension, scope: Scope) -> Error {
        let kind = Kind::Full(Refusal { dimension, scope, promised: false });
        Error { kind, effect: Effect::NotSent }
    }

    pub(crate) const fn too_large(dimension: Dimension) -> Error {
        Error { kind: Kind::TooLarge(dimension), effect: Effect::NotSent }
    }

    pub(crate) const fn spent(budget: Budget) -> Error {
        Error { kind: Kind::Spent(budget), effect: Effect::NotSent }
    }

    pub(crate) const fn retired(what: What) -> Error {
        Error { kind: Kind::Retired(what), effect: Effect::NotSent }
    }

    pub(crate) const fn stopped(cause: StopCause) -> Error {
        Error { kind: Kind::Stopped(cause), effect: Effect::NotSent }
    }

    pub(crate) const fn deadline(which: Which) -> Error {
        Error { kind: Kind::Deadline(which), effect: Effect::NotSent }
    }

    pub(crate) const fn denied(why: Denied) -> Error {
        Error { kind: Kind::Denied(why), effect: Effect::NotSent }
    }

    pub(crate) const fn invalid(why: Invalid) -> Error {
        Error { kind: Kind::Invalid(why), effect: Effect::NotSent }
    }

    /// A session that gives no call: it is stopped, or all of its calls exist.
    pub(crate) const fn no_call(stopped: bool) -> Error {
        if stopped {
            Error::stopped(StopCause::Session)
        } else {
            Error::full(Dimension::BrokerCallsPerSession, Scope::Session)
        }
    }

    /// Why an operation was ended. Of one that had started, say so with [`after_start`](Error::after_start).
    ///
    /// # Panics
    ///
    /// Broken accounting, if nothing ended it.
    pub(crate) fn from_cause(cause: Cause) -> Error {
        match cause {
            Cause::Dropped | Cause::Stopped => Error::stopped(StopCause::Caller),
            Cause::Session => Error::stopped(StopCause::Session),
            Cause::Probe => Error::stopped(StopCause::Probe),
            Cause::Deadline => Error::deadline(Which::Operation),
            Cause::QueueAge => Error::deadline(Which::Queue),
            Cause::Epoch => Error::retired(What::Epoch),
            Cause::Retired => Error::retired(What::Io),
            Cause::None => crate::broken::accounting("an operation ended without a cause"),
        }
    }

    /// Why an admission was refused by the words.
    pub(crate) fn from_refused(refused: Refused) -> Error {
        let Refused { blocked, scope, marks: _ } = refused;
        match blocked {
            Blocked::Full(dimension) => Error::full(dimension, scope),
            Blocked::Promised(dimension) => Kind::Full(Refusal { dimension, scope, promised: true }).into(),
            Blocked::Stale => Error::retired(What::Epoch),
            Blocked::Closed => match scope {
                Scope::Node => Error::retired(What::Io),
                Scope::Provider(_) | Scope::Client(_) | Scope::Tenant(_) | Scope::Session => {
                    Error::retired(What::Epoch)
                }
            },
        }
    }

    /// Why a client may not dial at `now_ms`.
    pub(crate) fn from_dial(dial: Dial, client: u16, now_ms: u64) -> Error {
        let scope = Scope::Client(client);
        let dimension = Dimension::PoolsConnectionsPerClient;
        match dial {
            Dial::Closed => Error::retired(What::Epoch),
            Dial::Busy => Kind::Busy.into(),
            Dial::Backoff(until_ms) => {
                let wait = until_ms.saturating_sub(now_ms);
                // Time, not a count. The ceiling of a pause is five minutes.
                Kind::Backoff { wait_ms: u32::try_from(wait).unwrap_or(u32::MAX) }.into()
            }
            Dial::Full => Error::full(dimension, scope),
            Dial::Marked => Kind::Full(Refusal { dimension, scope, promised: true }).into(),
        }
    }
}

impl From<gauge::Full> for Error {
    fn from(full: gauge::Full) -> Error {
        Error::full(full.0, Scope::Node)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Full(Refusal { dimension, scope, promised: false }) => {
                write!(out, "no room in {dimension} of the {scope}")
            }
            Kind::Full(Refusal { dimension, scope, promised: true }) => {
                write!(
                    out,
                    "what room there is in {dimension} of the {scope} belongs to those who wait in front"
                )
            }
            Kind::TooLarge(dimension) => write!(out, "more than {dimension} allows"),
            Kind::Spent(budget) => {
                write!(out, "what is left of the session's {budget} does not cover the cost")
            }
            Kind::Busy => out.write_str("a dial of the client is in progress"),
            Kind::Backoff { wait_ms } => {
                write!(out, "the client is paused after failed dials, for {wait_ms} ms more")
            }
            Kind::Retired(what) => what.fmt(out),
            Kind::Stopped(cause) => cause.fmt(out),
            Kind::Deadline(which) => which.fmt(out),
            Kind::Denied(why) => why.fmt(out),
            Kind::Invalid(why) => why.fmt(out),
            Kind::Ended(terminal) => terminal.fmt(out),
            Kind::JobFailed => out.write_str("the job panicked or was lost"),
        }?;
        match self.effect {
            Effect::NotSent | Effect::Sent => Ok(()),
            Effect::Uncertain => out.write_str("; whether the provider was reached is uncertain"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
