//! Charging an operation to its scopes: the node, and with pools its tenant and its provider.
//!
//! | held | node | tenant | provider |
//! | --- | --- | --- | --- |
//! | staged, queued, left | owner, queued (+ pending) | request | request |
//! | granted, started | owner, running (+ pool running) | request, running | request, running |
//! | returned | owner | request | request |
//!
//! All of a row move in one step per word.
//!
//! * H1. A reservation looks at all words first, wide to narrow, and refuses there without having written. Then it
//!   takes narrow to wide: tenant, provider, node. It is all or nothing.
//! * H2. What a failed reservation took it gives back, and that is a release like any other: whoever waits may have found
//!   the word full because of it, so the marks it finds must be signalled.
//! * H3. A release gives provider, tenant, node. The owner may be given apart, after the slot.
//! * H4. Direct I/O has no request: it is charged to the node alone.

use super::node::{Given, NodeUnits, NodeWord};
use super::provider::ProviderWord;
use super::scope::{Blocked, Heed, RequestUnits, Scope};
use super::tenant::TenantWord;

/// Whom a pool operation is charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The tenant's number.
    pub tenant: u16,
    /// The logical provider's number.
    pub provider: u16,
    /// The instance tag of the epoch that it was admitted for.
    pub tag: u32,
}

/// The words of one operation. Those of tenant and provider are used only with a [`Request`].
#[derive(Clone, Copy, Debug)]
pub struct Scopes<'a> {
    /// The node's.
    pub node: &'a NodeWord,
    /// The tenant's.
    pub tenant: &'a TenantWord,
    /// The provider's.
    pub provider: &'a ProviderWord,
}

/// What an operation holds besides its owner; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A place in the line.
    Staged,
    /// Running units.
    Running,
    /// Neither: it was granted and gave its running units back.
    Returned,
}

/// Who waits at the words that units were given to. Signal the turn if it is not [`none`](Marks::none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a marked word has somebody waiting at it: signal the turn"]
pub struct Marks {
    /// At the tenant's running units.
    pub tenant: bool,
    /// At the provider's running units.
    pub provider: bool,
    /// At `io.running`.
    pub io: bool,
    /// At `pools.running`.
    pub pool: bool,
}

impl Marks {
    /// Nobody waits.
    pub const NONE: Marks = Marks { tenant: false, provider: false, io: false, pool: false };

    /// Whether nobody waits.
    #[inline]
    pub const fn none(self) -> bool {
        !(self.tenant | self.provider | self.io | self.pool)
    }

    /// Adds what another release found.
    #[inline]
    pub fn add(&mut self, other: Marks) {
        self.tenant |= other.tenant;
        self.provider |= other.provider;
        self.io |= other.io;
        self.pool |= other.pool;
    }

    const fn at_node(given: Given) -> Marks {
        Marks { tenant: false, provider: false, io: given.io_marked, pool: given.pool_marked }
    }
}

/// A reservation that was refused. Nothing is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why, from the load that decided.
    pub blocked: Blocked,
    /// Whose word it was.
    pub scope: Scope,
    /// Who waits at the words that were given back (H2).
    pub marks: Marks,
}

impl Refused {
    const fn at(scope: Scope, blocked: Blocked) -> Refused {
        Refused { blocked, scope, marks: Marks::NONE }
    }
}

/// Takes an owner and a place in the line. Marks are not heeded: who waits for running units does not wait for places.
///
/// # Errors
///
/// The word that stands against it; nothing is held.
#[inline]
pub fn reserve_staged(scopes: &Scopes<'_>, request: Option<Request>) -> Result<(), Refused> {
    let units = wait_units(request).and(NodeUnits::OWNER);
    let at_node = || scopes.node.reserve(units, Heed::Nothing);
    take(scopes, request, (units, RequestUnits::Requests), Heed::Nothing, at_node)
}

/// Takes an owner and running units at once, unless somebody waits in front.
///
/// # Errors
///
/// The word that stands against it; nothing is held.
#[inline]
pub fn reserve_now(scopes: &Scopes<'_>, request: Option<Request>) -> Result<(), Refused> {
    let units = run_units(request).and(NodeUnits::OWNER);
    let at_node = || scopes.node.reserve(units, Heed::Marks);
    take(scopes, request, (units, RequestUnits::Both), Heed::Marks, at_node)
}

/// The direct path of `wait`: turns a place in the line into running units, unless somebody waits in front. The node's
/// part is one step, so that the place is never given without the unit being taken.
///
/// # Errors
///
/// The word that stands against it; the place in the line is still held.
#[inline]
pub fn move_to_running(scopes: &Scopes<'_>, request: Option<Request>) -> Result<(), Refused> {
    let (wait, run) = (wait_units(request), run_units(request));
    // It heeds the marks, so it gives to nobody who waits: places in the line have no marks.
    let at_node = || scopes.node.exchange(wait, run).map(drop);
    take(scopes, request, (run, RequestUnits::Running), Heed::Marks, at_node)
}

/// H1, with the node's step as given.
#[inline]
fn take(
    scopes: &Scopes<'_>,
    request: Option<Request>,
    (units, asked): (NodeUnits, RequestUnits),
    heed: Heed,
    at_node: impl FnOnce() -> Result<(), Blocked>,
) -> Result<(), Refused> {
    let Some(Request { tenant, provider, tag }) = request else {
        return at_node().map_err(|blocked| Refused::at(Scope::Node, blocked));
    };
    let (tenant, provider) = (Scope::Tenant(tenant), Scope::Provider(provider));
    scopes.node.peek(units, heed).map_err(|blocked| Refused::at(Scope::Node, blocked))?;
    scopes.provider.peek(asked, tag, heed).map_err(|blocked| Refused::at(provider, blocked))?;
    scopes.tenant.reserve(asked, heed).map_err(|blocked| Refused::at(tenant, blocked))?;
    if let Err(blocked) = scopes.provider.reserve(asked, tag, heed) {
        let mut refused = Refused::at(provider, blocked);
        refused.marks.tenant = scopes.tenant.give(asked);
        return Err(refused);
    }
    if let Err(blocked) = at_node() {
        let mut refused = Refused::at(Scope::Node, blocked);
        refused.marks.provider = scopes.provider.give(asked);
        refused.marks.tenant = scopes.tenant.give(asked);
        return Err(refused);
    }
    Ok(())
}

/// Gives back all that an operation holds, its owner included. For ends where the slot is free already.
#[inline]
pub fn release(scopes: &Scopes<'_>, request: Option<Request>, held: Held) -> Marks {
    give(scopes, request, held, NodeUnits::OWNER)
}

/// Gives back all but the owner: for an operation whose slot the line still holds.
#[inline]
pub fn release_units(scopes: &Scopes<'_>, request: Option<Request>, held: Held) -> Marks {
    give(scopes, request, held, NodeUnits::NONE)
}

/// Gives the owner back, when the slot is free.
#[inline]
pub fn release_owner(scopes: &Scopes<'_>) -> Marks {
    Marks::at_node(scopes.node.give(NodeUnits::OWNER))
}

/// Gives back the running units of an operation that was granted and will not start, or no longer runs; the owner and
/// the request stay.
#[inline]
pub fn return_running(scopes: &Scopes<'_>, request: Option<Request>) -> Marks {
    give_units(scopes, request, RequestUnits::Running, run_units(request))
}

#[inline]
fn give(scopes: &Scopes<'_>, request: Option<Request>, held: Held, owner: NodeUnits) -> Marks {
    let (units, back) = match held {
        Held::Staged => (wait_units(request), RequestUnits::Requests),
        Held::Running => (run_units(request), RequestUnits::Both),
        Held::Returned => (NodeUnits::NONE, RequestUnits::Requests),
    };
    give_units(scopes, request, back, units.and(owner))
}

/// H3.
#[inline]
fn give_units(scopes: &Scopes<'_>, request: Option<Request>, back: RequestUnits, units: NodeUnits) -> Marks {
    let mut marks = Marks::NONE;
    if request.is_some() {
        marks.provider = scopes.provider.give(back);
        marks.tenant = scopes.tenant.give(back);
    }
    if units != NodeUnits::NONE {
        marks.add(Marks::at_node(scopes.node.give(units)));
    }
    marks
}

const fn wait_units(request: Option<Request>) -> NodeUnits {
    if request.is_some() { NodeUnits::WAIT_POOL } else { NodeUnits::WAIT_IO }
}

const fn run_units(request: Option<Request>) -> NodeUnits {
    if request.is_some() { NodeUnits::RUN_POOL } else { NodeUnits::RUN_IO }
}
