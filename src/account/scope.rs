//! What the words of all scopes have in common: whose word it is, and why it does not let somebody pass.

use std::fmt;

use super::dimension::Dimension;

/// Whose limit it is. The numbers are the small integers given out on the control path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The node: shared by everybody.
    Node,
    /// One tenant.
    Tenant(u16),
    /// One logical provider, over all its epochs.
    Provider(u16),
    /// One client: an origin of one epoch.
    Client(u16),
    /// The session that asked.
    Session,
}

impl Scope {
    /// The kind of scope as one word, for metrics and messages.
    pub const fn kind(self) -> &'static str {
        match self {
            Scope::Node => "node",
            Scope::Tenant(_) => "tenant",
            Scope::Provider(_) => "provider",
            Scope::Client(_) => "client",
            Scope::Session => "session",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.kind())
    }
}

/// Why a word did not let somebody pass, from the load that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Closed for good: nothing is admitted any more.
    Closed,
    /// The word has another instance tag: the epoch was replaced.
    Stale,
    /// No room in this dimension.
    Full(Dimension),
    /// There is room in this dimension, but it belongs to those who wait in front.
    Promised(Dimension),
}

/// Whether somebody respects the marks of those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heed {
    /// A newcomer: a mark on the word that it needs stops it.
    Marks,
    /// Nobody waits for what is asked (a place in the line), or the one who asks is the turn itself.
    Nothing,
}

/// Why a limit was not lowered. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLowered {
    /// More than the new limit is in use, or reserved for a moment by an attempt in flight.
    InUse {
        /// The dimension.
        dimension: Dimension,
        /// Units in use at the load that decided.
        used: u64,
    },
    /// The new limit is above the present one.
    Raised {
        /// The dimension.
        dimension: Dimension,
        /// The present limit.
        limit: u64,
    },
    /// The word does not count this dimension.
    NotHere(Dimension),
}

impl fmt::Display for NotLowered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLowered::InUse { dimension, used } => {
                write!(out, "{dimension} cannot be lowered below its use, which is {}", dimension.show(*used))
            }
            NotLowered::Raised { dimension, limit } => {
                write!(out, "{dimension} cannot be raised; its limit is {}", dimension.show(*limit))
            }
            NotLowered::NotHere(dimension) => write!(out, "{dimension} is not counted here"),
        }
    }
}

impl std::error::Error for NotLowered {}

/// Units of a tenant's or a provider's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestUnits {
    /// The request itself.
    Requests,
    /// A running unit.
    Running,
    /// Both.
    Both,
}

impl RequestUnits {
    /// Whether a running unit is among them.
    #[inline]
    pub(super) const fn runs(self) -> bool {
        matches!(self, RequestUnits::Running | RequestUnits::Both)
    }
}
