//! Who is next: the selection that the turn runs on, plain data behind `&mut`.
//!
//! * Tenants in rotation, and direct I/O (class 0) as one more place in that rotation.
//! * Providers in rotation inside a tenant: more providers give a tenant no more turns.
//! * FIFO inside (tenant, provider): an index of the pair table, no hash and no comparison of names.
//!
//! A choice costs the same however many wait, however many tenants there are and however many of them are blocked:
//! whole words of bit sets decide. What makes that so:
//!
//! * A blocked tenant is one bit in `blocked`, outside every choice until its word gets room.
//! * A provider that was found full is *closed*. Tenants that wait for closed providers only are taken out of
//!   `active` when they are met, each at most once per time it was put there, and they are put there only by an
//!   enqueue or by their own unblocking.
//! * A closed provider that got room is *opening*: it adds the one of its waiting tenants that is next to the choice, so that
//!   a unit that comes free puts nobody back one by one. It closes again when it is found full, and is *open* when
//!   nobody waits for it any more.
//!
//! Whoever is passed over because what it waits for is full keeps its place. The rotation over all tenants does not know
//! that place any more, since others had their turns meanwhile, at other providers or as direct I/O. So each provider goes
//! round its own tenants while it is closed or opening, and a turn of class 0 does not move the rotation of the tenants.
use super::fifo::{Fifo, Links};
use super::floor::{PROVIDERS, TENANTS};
use crate::sync::Table;

const TENANT_WORDS: usize = TENANTS.div_ceil(64);
const PROVIDER_WORDS: usize = PROVIDERS.div_ceil(64);

/// A group of waiters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Class 0: admitted without a pool.
    Direct,
    /// Pool admissions of one tenant to one logical provider.
    Pair {
        /// The tenant's number.
        tenant: u16,
        /// The logical provider's number.
        provider: u16,
    },
}

/// The next to be granted, if its words have room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The operation's index.
    pub operation: u16,
    /// Its group.
    pub group: Group,
}

/// A set of tenants or of providers, with the words that are not empty: what is looked through is only what there is.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Set<const WORDS: usize> {
    words: [u64; WORDS],
    summary: u64,
}

type TenantSet = Set<TENANT_WORDS>;
type ProviderSet = Set<PROVIDER_WORDS>;

impl<const WORDS: usize> Default for Set<WORDS> {
    fn default() -> Self {
        Set { words: [0; WORDS], summary: 0 }
    }
}

impl<const WORDS: usize> Set<WORDS> {
    #[inline]
    fn insert(&mut self, number: u16) {
        let (word, bit) = place(number);
        self.words[word] |= bit;
        self.summary |= 1 << word;
    }
    #[inline]
    fn remove(&mut self, number: u16) {
        let (word, bit) = place(number);
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }
    #[inline]
    fn contains(&self, number: u16) -> bool {
        let (word, bit) = place(number);
        self.words[word] & bit != 0
    }
    #[inline]
    fn is_empty(&self) -> bool {
        self.summary == 0
    }
    /// Whether it holds this one and nobody else.
    #[inline]
    fn is_alone(&self, number: u16) -> bool {
        let (word, bit) = place(number);
        self.summary == 1 << word && self.words[word] == bit
    }
    /// The only one that it holds, if there is exactly one.
    #[inline(always)]
    fn only(&self) -> Option<u16> {
        let word = self.summary.trailing_zeros() as usize;
        if !self.summary.is_power_of_two() || !self.words[word].is_power_of_two() {
            return None;
        }
        Some(number(word, self.words[word]))
    }
    /// Shows each of them. Plain loops: this is in the middle of every choice.
    #[inline(always)]
    fn each(&self, mut show: impl FnMut(u16)) {
        let mut words = self.summary;
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            let mut rest = self.words[word];
            while rest != 0 {
                show(number(word, rest));
                rest &= rest - 1;
            }
            words &= words - 1;
        }
    }
    /// The first from this one on that is here and not in `other`.
    #[inline(always)]
    fn first_from(&self, from: usize, other: &Set<WORDS>) -> Option<u16> {
        let start = from / 64;
        if start >= WORDS {
            return None;
        }
        let mut words = self.summary & (u64::MAX << start);
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            let ahead = if word == start { u64::MAX << (from % 64) } else { u64::MAX };
            let rest = self.words[word] & !other.words[word] & ahead;
            if rest != 0 {
                return Some(number(word, rest));
            }
            words &= words - 1;
        }
        None
    }
    /// The same, round the end.
    #[inline(always)]
    fn round_from(&self, from: usize, other: &Set<WORDS>) -> Option<u16> {
        self.first_from(from, other).or_else(|| if from == 0 { None } else { self.first_from(0, other) })
    }
}

const fn place(number: u16) -> (usize, u64) {
    (number as usize / 64, 1 << (number % 64))
}

/// The number of the lowest bit of `rest` in a word.
const fn number(word: usize, rest: u64) -> u16 {
    (word * 64) as u16 + rest.trailing_zeros() as u16
}

/// The selection. Built once; nothing in it grows.
#[derive(Debug)]
pub struct Selection {
    /// `tenant * PROVIDERS + provider`. Only the pages of tenants that wait are ever touched.
    pairs: Table<Fifo>,
    /// Per tenant: the providers it waits for.
    wanted: Table<ProviderSet>,
    /// Per tenant: the provider served last.
    served: Table<u16>,
    /// Per provider: the tenants that wait for it.
    waiting: Table<TenantSet>,
    /// Per provider: the tenant behind the one that it served last.
    next_served: Table<u16>,
    active: TenantSet,
    blocked: TenantSet,
    /// Tenants that were unblocked and whose mark is still on.
    reopened: TenantSet,
    closed: ProviderSet,
    opening: ProviderSet,
    direct: Fifo,
    /// The tenant served last.
    last: usize,
    /// The place of class 0 in the rotation: after this tenant, which was the last one when class 0 had its turn.
    direct_after: usize,
    /// Whether no tenant was served since.
    direct_was_last: bool,
    /// How many are linked.
    linked: usize,
}

impl Selection {
    /// An empty selection. Reserves address space; touches a few pages.
    pub fn new() -> Self {
        Selection {
            pairs: Table::new(TENANTS * PROVIDERS),
            wanted: Table::new(TENANTS),
            served: Table::new(TENANTS),
            waiting: Table::new(PROVIDERS),
            next_served: Table::new(PROVIDERS),
            active: TenantSet::default(),
            blocked: TenantSet::default(),
            reopened: TenantSet::default(),
            closed: ProviderSet::default(),
            opening: ProviderSet::default(),
            direct: Fifo::default(),
            last: TENANTS - 1,
            direct_after: TENANTS - 1,
            direct_was_last: true,
            linked: 0,
        }
    }

    fn pair(&mut self, tenant: u16, provider: u16) -> &mut Fifo {
        &mut self.pairs[usize::from(tenant) * PROVIDERS + usize::from(provider)]
    }

    /// Puts an operation at the end of its group.
    pub fn link(&mut self, links: &impl Links, index: u16, group: Group) {
        self.linked += 1;
        match group {
            Group::Direct => self.direct.push(links, index),
            Group::Pair { tenant, provider } => {
                self.pair(tenant, provider).push(links, index);
                self.wanted[usize::from(tenant)].insert(provider);
                self.waiting[usize::from(provider)].insert(tenant);
                if !self.closed.contains(provider) {
                    self.active.insert(tenant);
                }
            }
        }
    }

    /// What it means that an operation was just linked, where nobody else can be granted.
    #[inline]
    pub fn coming(&self, index: u16, group: Group) -> Coming {
        let Group::Pair { tenant, provider } = group else { return Coming::Among };
        let fifo = &self.pairs[usize::from(tenant) * PROVIDERS + usize::from(provider)];
        if self.is_closed(provider) || self.blocked.contains(tenant) || fifo.first() != Some(index) {
            return Coming::Behind;
        }
        let alone = self.active.is_alone(tenant) && self.wanted[usize::from(tenant)].is_alone(provider);
        if alone && self.opening.is_empty() && self.direct.is_empty() { Coming::Alone } else { Coming::Among }
    }

    /// Takes an operation out of its group, wherever it stands.
    pub fn unlink(&mut self, links: &impl Links, index: u16, group: Group) -> Emptied {
        match self.linked.checked_sub(1) {
            Some(rest) => self.linked = rest,
            None => crate::broken::accounting("an operation was unlinked that nobody had linked"),
        }
        match group {
            Group::Direct => {
                self.direct.remove(links, index);
                Emptied::default()
            }
            Group::Pair { tenant, provider } => {
                let pair = self.pair(tenant, provider);
                pair.remove(links, index);
                if !pair.is_empty() {
                    return Emptied::default();
                }
                self.wanted[usize::from(tenant)].remove(provider);
                self.waiting[usize::from(provider)].remove(tenant);
                let tenant_idle = self.wanted[usize::from(tenant)].is_empty();
                if tenant_idle {
                    self.active.remove(tenant);
                }
                let provider_idle = self.waiting[usize::from(provider)].is_empty();
                // Nobody is left to be blocked there: the word's mark can go.
                let unblock = tenant_idle && self.blocked.contains(tenant);
                let open = provider_idle && self.closed.contains(provider);
                if unblock {
                    self.blocked.remove(tenant);
                }
                if open {
                    self.closed.remove(provider);
                    self.opening.remove(provider);
                }
                Emptied { tenant: unblock.then_some(tenant), provider: open.then_some(provider) }
            }
        }
    }

    /// The next of the rotation. `pool` false: only direct waiters are asked for.
    pub fn candidate(&mut self, pool: bool, direct: bool) -> Option<Candidate> {
        let direct = direct && !self.direct.is_empty();
        if !pool {
            return if direct { self.direct_candidate() } else { None };
        }
        let (last, place) = (self.last, self.direct_after);
        if !direct {
            // The one that a busy provider asks again and again.
            if self.active.is_empty()
                && let Some(provider) = self.opening.only()
            {
                return self.candidate_at(provider);
            }
            return self.tenant_between(last, last);
        }
        if place == last && !self.direct_was_last {
            return self.direct_candidate();
        }
        // From the tenant after the last one to the place of class 0, then class 0.
        self.tenant_between(last, place).or_else(|| self.direct_candidate())
    }

    /// The next where this provider is the only opening one and no tenant is active: whoever waits, waits for closed ones, so
    /// the one whose turn it is here is the only choice.
    #[inline(always)]
    fn candidate_at(&mut self, provider: u16) -> Option<Candidate> {
        let tenant = self.next_of(provider)?;
        let operation = self.pair(tenant, provider).first()?;
        Some(Candidate { operation, group: Group::Pair { tenant, provider } })
    }

    /// The next behind `after`, round the end, up to and including `to`.
    fn tenant_between(&mut self, after: usize, to: usize) -> Option<Candidate> {
        while let Some(tenant) = self.next_tenant(after) {
            if behind(after, usize::from(tenant)) > behind(after, to) {
                return None;
            }
            match self.next_provider(tenant) {
                Some(provider) => {
                    let operation = self.pair(tenant, provider).first()?;
                    return Some(Candidate { operation, group: Group::Pair { tenant, provider } });
                }
                // It waits for closed providers only.
                None => self.active.remove(tenant),
            }
        }
        None
    }

    fn direct_candidate(&self) -> Option<Candidate> {
        self.direct.first().map(|operation| Candidate { operation, group: Group::Direct })
    }

    /// The first behind `after`, round the end, that may be chosen.
    #[inline(always)]
    fn next_tenant(&self, after: usize) -> Option<u16> {
        let mut found = self.active.round_from(after + 1, &self.blocked);
        self.opening.each(|provider| {
            if let Some(next) = self.next_of(provider) {
                let nearer = |tenant| behind(after, usize::from(next)) < behind(after, usize::from(tenant));
                if found.is_none_or(nearer) {
                    found = Some(next);
                }
            }
        });
        found
    }

    /// Whose turn it is at a provider: the tenants that wait for it go round, those that are blocked left out.
    #[inline(always)]
    fn next_of(&self, provider: u16) -> Option<u16> {
        let from = usize::from(self.next_served[usize::from(provider)]);
        self.waiting[usize::from(provider)].round_from(from, &self.blocked)
    }

    /// The provider after the one served last, in rotation, of those that the tenant waits for: one that is not closed, or an
    /// opening one where the tenant is next.
    #[inline(always)]
    fn next_provider(&self, tenant: u16) -> Option<u16> {
        let wanted = &self.wanted[usize::from(tenant)];
        let mut shut = self.closed;
        self.opening.each(|provider| {
            if self.next_of(provider) == Some(tenant) {
                shut.remove(provider);
            }
        });
        wanted.round_from(usize::from(self.served[usize::from(tenant)]) + 1, &shut)
    }

    /// Whether the candidate is the only one that waits for its provider, which is closed or opening: when it is granted, nobody
    /// is left to be blocked there.
    pub fn is_last_at_marked_provider(&self, candidate: Candidate) -> bool {
        let Group::Pair { tenant, provider } = candidate.group else { return false };
        let fifo = &self.pairs[usize::from(tenant) * PROVIDERS + usize::from(provider)];
        self.closed.contains(provider)
            && fifo.has_one()
            && self.waiting[usize::from(provider)].is_alone(tenant)
    }

    /// The candidate was granted: it leaves its group and the rotation moves on.
    pub fn granted(&mut self, links: &impl Links, candidate: Candidate) -> Emptied {
        match candidate.group {
            Group::Direct => {
                self.direct_after = self.last;
                self.direct_was_last = true;
            }
            Group::Pair { tenant, provider } => {
                // Its next provider in the same rotation.
                let again = planted!("rotor_counts_providers") && provider > self.served[usize::from(tenant)];
                if !again {
                    self.last = usize::from(tenant);
                }
                self.direct_was_last = false;
                self.served[usize::from(tenant)] = provider;
                // At most the number of tenants.
                self.next_served[usize::from(provider)] = tenant + 1;
            }
        }
        self.unlink(links, candidate.operation, candidate.group)
    }

    /// The tenant's word was found full and marked.
    pub fn block_tenant(&mut self, tenant: u16) {
        self.blocked.insert(tenant);
    }
    /// The tenant's marked word got room. Whether somebody of it waits; then the mark stays on until
    /// [`Self::settle_reopened`], so that no newcomer takes the unit that is being handed over.
    pub fn unblock_tenant(&mut self, tenant: u16) -> bool {
        self.blocked.remove(tenant);
        let wanted = &self.wanted[usize::from(tenant)];
        let waits = !wanted.is_empty();
        if wanted.first_from(0, &self.closed).is_some() {
            self.active.insert(tenant);
        }
        if waits {
            self.reopened.insert(tenant);
        }
        waits
    }
    /// Tenants that were unblocked and not blocked again: nobody is blocked at their words, the caller takes their
    /// marks off.
    pub fn settle_reopened(&mut self, mut reopened: impl FnMut(u16)) {
        while self.reopened.summary != 0 {
            let word = self.reopened.summary.trailing_zeros() as usize;
            let tenant = (word * 64) as u16 + self.reopened.words[word].trailing_zeros() as u16;
            self.reopened.remove(tenant);
            if !self.blocked.contains(tenant) {
                reopened(tenant);
            }
        }
    }
    /// The provider's word was found full and marked, for a waiter of this tenant.
    pub fn close_provider(&mut self, tenant: u16, provider: u16) {
        self.closed.insert(provider);
        self.opening.remove(provider);
        // It need not be met once more to be taken out.
        if self.next_provider(tenant).is_none() {
            self.active.remove(tenant);
        }
    }
    /// Whether the provider is closed, and no room of it is left to look for.
    pub fn is_closed(&self, provider: u16) -> bool {
        self.closed.contains(provider) && !self.opening.contains(provider)
    }
    /// The room that a closed provider had got is taken, and there is no other: if somebody waits still, it stays closed.
    pub fn stays_closed(&mut self, provider: u16) {
        self.opening.remove(provider);
    }
    /// The provider's marked word got room. Whether somebody waits for it.
    pub fn open_provider(&mut self, provider: u16) -> bool {
        let waited_for = !self.waiting[usize::from(provider)].is_empty();
        if self.closed.contains(provider) {
            if waited_for {
                self.opening.insert(provider);
            } else {
                self.opening.remove(provider);
                self.closed.remove(provider);
            }
        }
        waited_for
    }
    /// Providers that have room and a mark, when a pass found nobody more to grant: whoever waits for them is
    /// blocked at its tenant, so they are open, and the caller takes their marks off.
    pub fn settle_opening(&mut self, mut opened: impl FnMut(u16)) {
        let closed = &mut self.closed;
        self.opening.each(|provider| {
            closed.remove(provider);
            opened(provider);
        });
        self.opening = ProviderSet::default();
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self::new()
    }
}

/// What the coming of an operation means for who is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coming {
    /// Nothing: it stands behind others, or is blocked where others are.
    Behind,
    /// It is the only one that can be next.
    Alone,
    /// The rotation decides.
    Among,
}

/// Scopes at which nobody waits any more and whose mark can be taken off.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Emptied {
    /// A tenant that was blocked at its own word.
    pub tenant: Option<u16>,
    /// A provider that was closed.
    pub provider: Option<u16>,
}

/// How far a tenant's place lies behind another's, round the end: 0 for the next, the most for the same.
#[inline]
const fn behind(after: usize, tenant: usize) -> usize {
    if tenant > after { tenant - after - 1 } else { tenant + TENANTS - after - 1 }
}

#[cfg(all(test, not(loom)))]
mod tests;
