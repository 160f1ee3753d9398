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
use super::floor::{PROVIDERS, TENANTS};
use crate::sync::Table;
use crate::sync::atomic::AtomicU16;
use crate::sync::order;

const TENANT_WORDS: usize = TENANTS.div_ceil(64);
const PROVIDER_WORDS: usize = PROVIDERS.div_ceil(64);

/// The links of the operations, by index; the turn alone writes them.
pub trait Links {
    /// The next in the group, index + 1.
    fn next(&self, index: u16) -> &AtomicU16;
    /// The previous in the group, index + 1.
    fn previous(&self, index: u16) -> &AtomicU16;
}

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

/// Head and tail of a FIFO, index + 1; zero is empty.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
struct Fifo {
    head: u16,
    tail: u16,
}

impl Fifo {
    fn push(&mut self, links: &impl Links, index: u16) {
        links.next(index).store(0, order::COUNT);
        links.previous(index).store(self.tail, order::COUNT);
        match self.tail.checked_sub(1) {
            Some(tail) => links.next(tail).store(index + 1, order::COUNT),
            None => self.head = index + 1,
        }
        self.tail = index + 1;
    }
    fn remove(&mut self, links: &impl Links, index: u16) {
        let next = links.next(index).load(order::COUNT);
        let previous = links.previous(index).load(order::COUNT);
        match previous.checked_sub(1) {
            Some(previous) => links.next(previous).store(next, order::COUNT),
            None => self.head = next,
        }
        match next.checked_sub(1) {
            Some(next) => links.previous(next).store(previous, order::COUNT),
            None => self.tail = previous,
        }
    }
    fn first(&self) -> Option<u16> {
        self.head.checked_sub(1)
    }
}

/// Tenants waiting for one provider, with the words that are not empty.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct TenantSet {
    words: [u64; TENANT_WORDS],
    summary: u64,
}

impl Default for TenantSet {
    fn default() -> Self {
        TenantSet { words: [0; TENANT_WORDS], summary: 0 }
    }
}

impl TenantSet {
    fn insert(&mut self, tenant: u16) {
        let (word, bit) = place(tenant);
        self.words[word] |= bit;
        self.summary |= 1 << word;
    }
    fn remove(&mut self, tenant: u16) {
        let (word, bit) = place(tenant);
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }
    fn contains(&self, tenant: u16) -> bool {
        let (word, bit) = place(tenant);
        self.words[word] & bit != 0
    }
    fn is_empty(&self) -> bool {
        self.summary == 0
    }
    /// The first from this one on that is here and not in `other`.
    fn first_from(&self, from: usize, other: &TenantSet) -> Option<u16> {
        if self.summary == 0 {
            return None;
        }
        let mut word = from / 64;
        let mut mask = u64::MAX << (from % 64);
        // Behind the last tenant there is none.
        while word < TENANT_WORDS {
            let tenants = self.words[word] & !other.words[word] & mask;
            if tenants != 0 {
                return Some((word * 64) as u16 + tenants.trailing_zeros() as u16);
            }
            mask = u64::MAX;
            let above = if word >= 63 { 0 } else { self.summary & (u64::MAX << (word + 1)) };
            if above == 0 {
                return None;
            }
            word = above.trailing_zeros() as usize;
        }
        None
    }
}

const fn place(number: u16) -> (usize, u64) {
    (number as usize / 64, 1 << (number % 64))
}

type ProviderSet = [u64; PROVIDER_WORDS];

fn provider_has(set: &ProviderSet, provider: u16) -> bool {
    let (word, bit) = place(provider);
    set[word] & bit != 0
}
fn provider_put(set: &mut ProviderSet, provider: u16, yes: bool) {
    let (word, bit) = place(provider);
    if yes {
        set[word] |= bit;
    } else {
        set[word] &= !bit;
    }
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
            closed: [0; PROVIDER_WORDS],
            opening: [0; PROVIDER_WORDS],
            direct: Fifo::default(),
            last: TENANTS - 1,
            direct_after: TENANTS - 1,
            direct_was_last: true,
            linked: 0,
        }
    }

    /// How many wait.
    pub fn linked(&self) -> usize {
        self.linked
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
                provider_put(&mut self.wanted[usize::from(tenant)], provider, true);
                self.waiting[usize::from(provider)].insert(tenant);
                if !provider_has(&self.closed, provider) {
                    self.active.insert(tenant);
                }
            }
        }
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
                if pair.head != 0 {
                    return Emptied::default();
                }
                provider_put(&mut self.wanted[usize::from(tenant)], provider, false);
                self.waiting[usize::from(provider)].remove(tenant);
                let tenant_idle = self.wanted[usize::from(tenant)].iter().all(|word| *word == 0);
                if tenant_idle {
                    self.active.remove(tenant);
                }
                let provider_idle = self.waiting[usize::from(provider)].is_empty();
                // Nobody is left to be blocked there: the word's mark can go.
                let unblock = tenant_idle && self.blocked.contains(tenant);
                let open = provider_idle && provider_has(&self.closed, provider);
                if unblock {
                    self.blocked.remove(tenant);
                }
                if open {
                    provider_put(&mut self.closed, provider, false);
                    provider_put(&mut self.opening, provider, false);
                }
                Emptied { tenant: unblock.then_some(tenant), provider: open.then_some(provider) }
            }
        }
    }

    /// The next of the rotation. `pool` false: only direct waiters are asked for.
    pub fn candidate(&mut self, pool: bool, direct: bool) -> Option<Candidate> {
        let direct = direct && self.direct.head != 0;
        if !pool {
            return if direct { self.direct_candidate() } else { None };
        }
        let (last, place) = (self.last, self.direct_after);
        if !direct {
            return self.tenant_between(last, last);
        }
        if place == last && !self.direct_was_last {
            return self.direct_candidate();
        }
        // From the tenant after the last one to the place of class 0, then class 0.
        self.tenant_between(last, place).or_else(|| self.direct_candidate())
    }

    /// The next behind `after`, round the end, up to and including `to`.
    fn tenant_between(&mut self, after: usize, to: usize) -> Option<Candidate> {
        if after < to {
            return self.tenant_from(after + 1, to + 1);
        }
        self.tenant_from(after + 1, TENANTS).or_else(|| self.tenant_from(0, to + 1))
    }

    fn direct_candidate(&self) -> Option<Candidate> {
        self.direct.first().map(|operation| Candidate { operation, group: Group::Direct })
    }

    fn tenant_from(&mut self, from: usize, to: usize) -> Option<Candidate> {
        let mut at = from;
        while at < to {
            let tenant = self.next_tenant(at, to)?;
            match self.next_provider(tenant) {
                Some(provider) => {
                    let operation = self.pair(tenant, provider).first()?;
                    return Some(Candidate { operation, group: Group::Pair { tenant, provider } });
                }
                // It waits for closed providers only.
                None => self.active.remove(tenant),
            }
            at = usize::from(tenant) + 1;
        }
        None
    }

    fn next_tenant(&self, from: usize, to: usize) -> Option<u16> {
        let mut found = self.active.first_from(from, &self.blocked);
        if self.is_opening() {
            for provider in bits(&self.opening) {
                if let Some(next) = self.next_of(provider)
                    && usize::from(next) >= from
                    && found.is_none_or(|tenant| next < tenant)
                {
                    found = Some(next);
                }
            }
        }
        found.filter(|tenant| usize::from(*tenant) < to)
    }

    fn is_opening(&self) -> bool {
        self.opening.iter().fold(0, |all, word| all | word) != 0
    }

    /// Whose turn it is at a provider: the tenants that wait for it go round, those that are blocked left out.
    fn next_of(&self, provider: usize) -> Option<u16> {
        let waiting = &self.waiting[provider];
        let from = usize::from(self.next_served[provider]);
        waiting.first_from(from, &self.blocked).or_else(|| waiting.first_from(0, &self.blocked))
    }

    fn next_provider(&self, tenant: u16) -> Option<u16> {
        let wanted = &self.wanted[usize::from(tenant)];
        let mut usable: ProviderSet = core::array::from_fn(|word| wanted[word] & !self.closed[word]);
        if self.is_opening() {
            // Offered to the one that is next there, and to no other.
            let offered = core::array::from_fn(|word| wanted[word] & self.opening[word]);
            for provider in bits(&offered) {
                if self.next_of(provider) == Some(tenant) {
                    provider_put(&mut usable, provider as u16, true);
                }
            }
        }
        let after = usize::from(self.served[usize::from(tenant)]) + 1;
        bit_from(&usable, after).or_else(|| bit_from(&usable, 0)).map(|provider| provider as u16)
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
        let wanted = self.wanted[usize::from(tenant)];
        if (0..PROVIDER_WORDS).any(|word| wanted[word] & !self.closed[word] != 0) {
            self.active.insert(tenant);
        }
        let waits = wanted.iter().any(|word| *word != 0);
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
    /// The provider's word was found full and marked.
    pub fn close_provider(&mut self, provider: u16) {
        provider_put(&mut self.closed, provider, true);
        provider_put(&mut self.opening, provider, false);
    }
    /// The provider's marked word got room. Whether somebody waits for it.
    pub fn open_provider(&mut self, provider: u16) -> bool {
        let waited_for = !self.waiting[usize::from(provider)].is_empty();
        if provider_has(&self.closed, provider) {
            provider_put(&mut self.opening, provider, waited_for);
            if !waited_for {
                provider_put(&mut self.closed, provider, false);
            }
        }
        waited_for
    }
    /// Providers that have room and a mark, when a pass found nobody more to grant: whoever waits for them is
    /// blocked at its tenant, so they are open, and the caller takes their marks off.
    pub fn settle_opening(&mut self, mut opened: impl FnMut(u16)) {
        let opening = self.opening;
        for provider in bits(&opening) {
            opened(provider as u16);
        }
        for (closed, opened) in self.closed.iter_mut().zip(opening) {
            *closed &= !opened;
        }
        self.opening = [0; PROVIDER_WORDS];
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self::new()
    }
}

/// Scopes at which nobody waits any more and whose mark can be taken off.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Emptied {
    /// A tenant that was blocked at its own word.
    pub tenant: Option<u16>,
    /// A provider that was closed.
    pub provider: Option<u16>,
}

fn bits(set: &ProviderSet) -> impl Iterator<Item = usize> + use<> {
    let (set, mut word) = (*set, 0);
    let mut rest = set[0];
    core::iter::from_fn(move || {
        while rest == 0 {
            word += 1;
            rest = *set.get(word)?;
        }
        let bit = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(word * 64 + bit)
    })
}

fn bit_from(set: &ProviderSet, from: usize) -> Option<usize> {
    let mut word = from / 64;
    let mut mask = u64::MAX << (from % 64);
    while word < PROVIDER_WORDS {
        let rest = set[word] & mask;
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        mask = u64::MAX;
        word += 1;
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests;
