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
use std::fmt;
use std::num::NonZeroU64;

/// Whom a pool operation is charged to, and the epoch that it was admitted for: one word, which is moved as one.
///
/// ```text
///  63          32 31   20 19      12 11       0
/// │ instance tag │ unused│ provider │ tenant  │   no tag is 0, so no request is 0
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Request(NonZeroU64);

const TENANT: u64 = 0xFFF;
const PROVIDER_SHIFT: u32 = 12;
const PROVIDER: u64 = 0xFF;

impl Request {
    /// How many tenants there can be.
    pub const TENANTS: usize = TENANT as usize + 1;
    /// How many logical providers there can be.
    pub const PROVIDERS: usize = PROVIDER as usize + 1;
    /// The bits of [`Self::pair`].
    pub const PAIR: u32 = (PROVIDER << PROVIDER_SHIFT | TENANT) as u32;

    /// Of a tenant and a logical provider, by their numbers, for the epoch with this instance tag.
    #[inline]
    pub const fn new(tenant: u16, provider: u16, tag: u32) -> Request {
        debug_assert!(tenant as u64 <= TENANT && provider as u64 <= PROVIDER, "numbers of tenants and providers");
        match NonZeroU64::new((tag as u64) << 32 | (provider as u64) << PROVIDER_SHIFT | tenant as u64) {
            Some(packed) if tag != 0 => Request(packed),
            _ => panic!("no epoch has tag 0"),
        }
    }

    /// The tenant's number.
    #[inline]
    pub const fn tenant(self) -> u16 {
        (self.0.get() & TENANT) as u16
    }

    /// The logical provider's number.
    #[inline]
    pub const fn provider(self) -> u16 {
        (self.0.get() >> PROVIDER_SHIFT & PROVIDER) as u16
    }

    /// Tenant and provider without the epoch, in 20 bits.
    #[inline]
    pub const fn pair(self) -> u32 {
        self.0.get() as u32 & Self::PAIR
    }

    /// The instance tag of the epoch that it was admitted for.
    #[inline]
    pub const fn tag(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// As a slot keeps it: 0 is direct I/O.
    #[inline]
    pub const fn packed(request: Option<Request>) -> u64 {
        match request {
            Some(request) => request.0.get(),
            None => 0,
        }
    }

    /// The inverse of [`Request::packed`].
    #[inline]
    pub const fn unpacked(packed: u64) -> Option<Request> {
        match NonZeroU64::new(packed) {
            Some(packed) => Some(Request(packed)),
            None => None,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tenant, provider, tag) = (self.tenant(), self.provider(), self.tag());
        write!(out, "Request(tenant {tenant}, provider {provider}, tag {tag})")
    }
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

    #[inline]
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
    #[cold]
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
    match request {
        None => at_node_alone(scopes, NodeUnits::STAGED_IO, Heed::Nothing),
        Some(request) => {
            take(scopes, request, STAGE, RequestUnits::Requests, Heed::Nothing)
        }
    }
}

/// Takes an owner and running units at once, unless somebody waits in front.
///
/// # Errors
///
/// The word that stands against it; nothing is held.
#[inline]
pub fn reserve_now(scopes: &Scopes<'_>, request: Option<Request>) -> Result<(), Refused> {
    match request {
        None => at_node_alone(scopes, NodeUnits::NOW_IO, Heed::Marks),
        Some(request) => take(scopes, request, NOW, RequestUnits::Both, Heed::Marks),
    }
}

/// The direct path of `wait`: turns a place in the line into running units, unless somebody waits in front. The node's
/// part is one step, so that the place is never given without the unit being taken.
///
/// # Errors
///
/// The word that stands against it; the place in the line is still held.
#[inline]
pub fn move_to_running(scopes: &Scopes<'_>, request: Option<Request>) -> Result<(), Refused> {
    // It heeds the marks, so it gives to nobody who waits: places in the line have no marks.
    match request {
        None => {
            let moved = scopes.node.exchange(NodeUnits::WAIT_IO, NodeUnits::RUN_IO);
            moved.map(drop).map_err(|blocked| Refused::at(Scope::Node, blocked))
        }
        Some(request) => take(scopes, request, MOVE, RequestUnits::Running, Heed::Marks),
    }
}

/// What a step at the node gives and takes.
type Move = (NodeUnits, NodeUnits);
const STAGE: Move = (NodeUnits::NONE, NodeUnits::STAGED_POOL);
const NOW: Move = (NodeUnits::NONE, NodeUnits::NOW_POOL);
const MOVE: Move = (NodeUnits::WAIT_POOL, NodeUnits::RUN_POOL);

#[inline]
fn at_node_alone(scopes: &Scopes<'_>, units: NodeUnits, heed: Heed) -> Result<(), Refused> {
    scopes.node.reserve(units, heed).map_err(|blocked| Refused::at(Scope::Node, blocked))
}

/// H1. Each step is worked out while the words are looked at, and taken from the value that was seen then.
///
/// Inlined so that units and heed are constants of the caller.
#[inline(always)]
fn take(
    scopes: &Scopes<'_>,
    request: Request,
    at_node: Move,
    asked: RequestUnits,
    heed: Heed,
) -> Result<(), Refused> {
    let (tenant, provider, tag) =
        (Scope::Tenant(request.tenant()), Scope::Provider(request.provider()), request.tag());
    let (give, want) = at_node;
    let refused = |scope| move |blocked| Refused::at(scope, blocked);
    let node_step = scopes.node.plan(give, want, heed).map_err(refused(Scope::Node))?;
    let provider_step = scopes.provider.plan(asked, tag, heed).map_err(refused(provider))?;
    scopes.tenant.reserve(asked, heed).map_err(refused(tenant))?;
    if planted!("a_box_on_the_way") {
        drop(std::hint::black_box(Box::new(asked)));
    }
    if let Err(blocked) = scopes.provider.reserve_planned(provider_step, asked, tag, heed) {
        return Err(take_back(scopes, Refused::at(provider, blocked), false, asked));
    }
    if let Err(blocked) = scopes.node.step_planned(node_step, give, want, heed) {
        return Err(take_back(scopes, Refused::at(Scope::Node, blocked), true, asked));
    }
    Ok(())
}

/// H2: gives back what was taken before the word that refused; `with_provider`: the provider's too.
#[cold]
fn take_back(
    scopes: &Scopes<'_>,
    mut refused: Refused,
    with_provider: bool,
    asked: RequestUnits,
) -> Refused {
    if with_provider {
        refused.marks.provider = scopes.provider.give(asked);
    }
    if !planted!("rollback_skips_the_last") {
        refused.marks.tenant = scopes.tenant.give(asked);
    }
    refused
}

/// Gives back all that an operation holds, its owner included. For ends where the slot is free already.
#[inline(always)]
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

#[inline(always)]
fn give(scopes: &Scopes<'_>, request: Option<Request>, held: Held, owner: NodeUnits) -> Marks {
    // As most end: with constants, and inlined.
    if held == Held::Running && request.is_some() && owner == NodeUnits::OWNER {
        return give_pooled(scopes, RequestUnits::Both, NodeUnits::NOW_POOL);
    }
    give_other(scopes, request, held, owner)
}

#[inline(never)]
fn give_other(scopes: &Scopes<'_>, request: Option<Request>, held: Held, owner: NodeUnits) -> Marks {
    let (units, back) = match held {
        Held::Staged => (wait_units(request), RequestUnits::Requests),
        Held::Running => (run_units(request), RequestUnits::Both),
        Held::Returned => (NodeUnits::NONE, RequestUnits::Requests),
    };
    give_units(scopes, request, back, units.and(owner))
}

#[inline(always)]
fn give_pooled(scopes: &Scopes<'_>, back: RequestUnits, units: NodeUnits) -> Marks {
    let mut marks = Marks::NONE;
    marks.provider = scopes.provider.give(back);
    marks.tenant = scopes.tenant.give(back);
    if planted!("refund_twice") {
        marks.tenant = scopes.tenant.give(back);
    }
    marks.add(Marks::at_node(scopes.node.give(units)));
    marks
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

#[inline]
const fn wait_units(request: Option<Request>) -> NodeUnits {
    if request.is_some() { NodeUnits::WAIT_POOL } else { NodeUnits::WAIT_IO }
}

#[inline]
const fn run_units(request: Option<Request>) -> NodeUnits {
    if request.is_some() { NodeUnits::RUN_POOL } else { NodeUnits::RUN_IO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::dimension::Dimension;
    use crate::account::node::NodeUse;
    use crate::account::tenant::RequestUse;

    const TAG: u32 = 5;
    const REQUEST: Request = Request::new(1, 2, TAG);

    struct Words {
        node: NodeWord,
        tenant: TenantWord,
        provider: ProviderWord,
    }

    impl Words {
        fn new(node: [u32; 5], tenant: [u32; 2], provider: [u32; 2]) -> Words {
            let words = Words {
                node: NodeWord::new(node[0], node[1], node[2]),
                tenant: TenantWord::default(),
                provider: ProviderWord::default(),
            };
            assert!(words.node.open_pools(node[3], node[4]));
            assert!(words.tenant.open(tenant[0], tenant[1]) && words.provider.open(provider[0], provider[1]));
            words.provider.swap_tag(0, TAG).unwrap();
            words
        }

        fn scopes(&self) -> Scopes<'_> {
            Scopes { node: &self.node, tenant: &self.tenant, provider: &self.provider }
        }

        fn used(&self) -> (NodeUse, RequestUse, RequestUse) {
            (self.node.snapshot(), self.tenant.snapshot(), self.provider.snapshot())
        }

        /// What the table at the top of the file says an operation holds.
        fn expected(request: Option<Request>, held: Held) -> (NodeUse, RequestUse, RequestUse) {
            let pooled = u32::from(request.is_some());
            let (waits, runs) = (u32::from(held == Held::Staged), u32::from(held == Held::Running));
            let node = NodeUse {
                owners: 1,
                queued: waits,
                running: runs,
                pending: waits * pooled,
                pool_running: runs * pooled,
                closed: false,
            };
            let scope = RequestUse { requests: pooled, running: runs * pooled };
            (node, scope, scope)
        }
    }

    /// Every way through the table of charges, direct and pooled: each row holds what it says, and all comes back.
    #[test]
    fn an_operation_holds_what_the_table_says_and_gives_it_back() {
        for request in [None, Some(REQUEST)] {
            let words = Words::new([1; 5], [1; 2], [1; 2]);
            let scopes = words.scopes();
            let zero = words.used();

            reserve_staged(&scopes, request).unwrap();
            assert_eq!(words.used(), Words::expected(request, Held::Staged));
            assert!(release(&scopes, request, Held::Staged).none());
            assert_eq!(words.used(), zero);

            reserve_staged(&scopes, request).unwrap();
            move_to_running(&scopes, request).unwrap();
            assert_eq!(words.used(), Words::expected(request, Held::Running));
            assert!(return_running(&scopes, request).none());
            assert_eq!(words.used(), Words::expected(request, Held::Returned));
            assert!(release(&scopes, request, Held::Returned).none());
            assert_eq!(words.used(), zero);

            reserve_now(&scopes, request).unwrap();
            assert_eq!(words.used(), Words::expected(request, Held::Running));
            assert!(release_units(&scopes, request, Held::Running).none());
            assert_eq!(words.used().0, NodeUse { owners: 1, ..NodeUse::default() });
            assert!(release_owner(&scopes).none());
            assert_eq!(words.used(), zero);
        }
    }

    /// Each single limit at zero in turn: the refusal names it, and nothing is held afterwards.
    #[test]
    fn a_refusal_names_the_full_word_and_leaves_nothing() {
        use Dimension::{IoOwners, IoQueued, IoRunning, PoolsPending, PoolsRunning};
        let node = [IoOwners, IoQueued, IoRunning, PoolsPending, PoolsRunning];
        let tenant = [Dimension::PoolsRequestsPerTenant, Dimension::PoolsRunningPerTenant];
        let provider = [Dimension::PoolsRequestsPerProvider, Dimension::PoolsRunningPerProvider];
        for (index, dimension) in node.iter().chain(&tenant).chain(&provider).enumerate() {
            let limit = |position: usize| u32::from(position != index);
            let words = Words::new(
                [limit(0), limit(1), limit(2), limit(3), limit(4)],
                [limit(5), limit(6)],
                [limit(7), limit(8)],
            );
            let scope = match index {
                0..5 => Scope::Node,
                5..7 => Scope::Tenant(REQUEST.tenant()),
                _ => Scope::Provider(REQUEST.provider()),
            };
            for request in [None, Some(REQUEST)] {
                let zero = words.used();
                let refused = Err(Refused::at(scope, Blocked::Full(*dimension)));
                let of_pools = index >= 3;
                let (waits, runs) = (matches!(index, 1 | 3), matches!(index, 2 | 4 | 6 | 8));
                let concerned = request.is_some() || !of_pools;

                let staged = reserve_staged(&words.scopes(), request);
                assert_eq!(staged, if concerned && !runs { refused } else { Ok(()) });
                if staged.is_ok() {
                    let held = words.used();
                    let moved = move_to_running(&words.scopes(), request);
                    assert_eq!(moved, if concerned && runs { refused } else { Ok(()) });
                    if moved.is_ok() {
                        assert!(release(&words.scopes(), request, Held::Running).none());
                    } else {
                        assert_eq!(words.used(), held, "the place in the line is still held");
                        assert!(release(&words.scopes(), request, Held::Staged).none());
                    }
                }
                assert_eq!(words.used(), zero);

                let now = reserve_now(&words.scopes(), request);
                assert_eq!(now, if concerned && !waits { refused } else { Ok(()) });
                if now.is_ok() {
                    assert!(release(&words.scopes(), request, Held::Running).none());
                }
                assert_eq!(words.used(), zero);
            }
        }
    }

    #[test]
    fn newcomers_pass_no_mark_but_may_stage() {
        let words = Words::new([4; 5], [4; 2], [4; 2]);
        // The turn finds the tenant full, and marks it.
        for _ in 0..4 {
            assert!(words.tenant.take_or_mark_running());
        }
        assert!(!words.tenant.take_or_mark_running());
        assert!(words.tenant.give_running(), "somebody waits");
        let promised = Blocked::Promised(Dimension::PoolsRunningPerTenant);
        let refused = Err(Refused::at(Scope::Tenant(REQUEST.tenant()), promised));
        assert_eq!(reserve_now(&words.scopes(), Some(REQUEST)), refused);
        reserve_staged(&words.scopes(), Some(REQUEST)).unwrap();
        assert_eq!(move_to_running(&words.scopes(), Some(REQUEST)), refused);
        reserve_now(&words.scopes(), None).unwrap();
        words.tenant.unmark();
        move_to_running(&words.scopes(), Some(REQUEST)).unwrap();
    }

    #[test]
    fn a_release_reports_every_mark() {
        let words = Words::new([1, 1, 1, 1, 1], [1; 2], [1; 2]);
        reserve_now(&words.scopes(), Some(REQUEST)).unwrap();
        assert!(!words.node.take_or_mark(NodeUnits::RUN_POOL));
        assert!(!words.tenant.take_or_mark_running());
        assert_eq!(words.provider.take_or_mark_running(TAG, false), super::super::provider::TakenRunning::Marked);
        let marks = release(&words.scopes(), Some(REQUEST), Held::Running);
        assert_eq!(marks, Marks { tenant: true, provider: true, io: true, pool: false });
        let mut sum = Marks { pool: true, ..Marks::NONE };
        sum.add(marks);
        assert_eq!(sum, Marks { tenant: true, provider: true, io: true, pool: true });
    }

    #[test]
    fn a_replaced_epoch_and_a_closed_node_refuse() {
        let words = Words::new([4; 5], [4; 2], [4; 2]);
        reserve_staged(&words.scopes(), Some(REQUEST)).unwrap();
        words.provider.swap_tag(TAG, TAG + 1).unwrap();
        let stale = Err(Refused::at(Scope::Provider(REQUEST.provider()), Blocked::Stale));
        assert_eq!(reserve_staged(&words.scopes(), Some(REQUEST)), stale);
        assert_eq!(reserve_now(&words.scopes(), Some(REQUEST)), stale);
        assert_eq!(move_to_running(&words.scopes(), Some(REQUEST)), stale);
        words.node.close();
        let closed = Err(Refused::at(Scope::Node, Blocked::Closed));
        assert_eq!(reserve_now(&words.scopes(), None), closed);
        assert_eq!(move_to_running(&words.scopes(), Some(REQUEST)), closed);
        // What was held before comes back all the same.
        assert!(release(&words.scopes(), Some(REQUEST), Held::Staged).none());
        assert_eq!(
            words.used(),
            (NodeUse { closed: true, ..NodeUse::default() }, RequestUse::default(), RequestUse::default())
        );
    }
}
