//! The selection against a plain model of what it promises: vectors and a linear scan.
use super::*;
use crate::sync::atomic::AtomicU16;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

struct Chains {
    next: Vec<AtomicU16>,
    previous: Vec<AtomicU16>,
}

impl Chains {
    fn new() -> Self {
        let zeros = || (0..4096).map(|_| AtomicU16::new(0)).collect();
        Chains { next: zeros(), previous: zeros() }
    }
}

impl Links for Chains {
    fn next(&self, index: u16) -> &AtomicU16 {
        &self.next[usize::from(index)]
    }
    fn previous(&self, index: u16) -> &AtomicU16 {
        &self.previous[usize::from(index)]
    }
}

/// What the selection promises, with no regard for cost.
#[derive(Default)]
struct Model {
    groups: BTreeMap<(u16, u16), VecDeque<u16>>,
    direct: VecDeque<u16>,
    full_tenants: BTreeSet<u16>,
    full_providers: BTreeSet<u16>,
    /// Providers that were found full, as long as somebody was left waiting for them.
    contested: BTreeSet<u16>,
    /// Those of them that got room since.
    opening: BTreeSet<u16>,
    /// Tenants that were found full, as long as something of theirs waits.
    blocked: BTreeSet<u16>,
    last: Option<u16>,
    /// The tenant after whose turn class 0 had its own, and whether a tenant had one since.
    direct_after: Option<(u16, bool)>,
    served: BTreeMap<u16, u16>,
    served_last: BTreeMap<u16, u16>,
}

impl Model {
    fn waits(&self, tenant: u16, provider: u16) -> bool {
        self.groups.get(&(tenant, provider)).is_some_and(|queue| !queue.is_empty())
    }
    /// Who of those that wait for the provider is next there.
    fn next_of(&self, provider: u16) -> Option<u16> {
        let able = |tenant: &u16| self.waits(*tenant, provider) && !self.blocked.contains(tenant);
        let from = self.served_last.get(&provider).map_or(0, |tenant| tenant + 1);
        let all: BTreeSet<u16> = self.groups.keys().map(|(tenant, _)| *tenant).filter(able).collect();
        all.range(from..).next().or_else(|| all.first()).copied()
    }
    fn next(&self) -> Option<Candidate> {
        let next_there: BTreeMap<u16, Option<u16>> =
            self.contested.iter().map(|provider| (*provider, self.next_of(*provider))).collect();
        let usable = |tenant: u16| -> Vec<u16> {
            let of_it = self.groups.keys().filter(|(t, _)| *t == tenant).map(|(_, provider)| *provider);
            of_it
                .filter(|provider| self.waits(tenant, *provider) && !self.full_providers.contains(provider))
                .filter(|provider| next_there.get(provider).is_none_or(|next| *next == Some(tenant)))
                .collect()
        };
        let tenants: BTreeSet<u16> = self
            .groups
            .keys()
            .map(|(tenant, _)| *tenant)
            .filter(|tenant| !self.full_tenants.contains(tenant) && !usable(*tenant).is_empty())
            .collect();
        let pair = |tenant: u16| {
            let providers = usable(tenant);
            let served = self.served.get(&tenant).copied().unwrap_or(0);
            let provider = *providers.iter().find(|p| **p > served).unwrap_or(&providers[0]);
            let operation = self.groups[&(tenant, provider)][0];
            Candidate { operation, group: Group::Pair { tenant, provider } }
        };
        let direct =
            self.direct.front().map(|operation| Candidate { operation: *operation, group: Group::Direct });
        let last = self.last.unwrap_or(u16::MAX);
        let (place, since) = self.direct_after.unwrap_or((u16::MAX, false));
        if place == last && since && direct.is_some() {
            return direct;
        }
        // How far behind the last one, round the end.
        let distance = |tenant: u16| tenant.wrapping_sub(last).wrapping_sub(1);
        let next = tenants.iter().copied().min_by_key(|tenant| distance(*tenant));
        match (next, direct) {
            (Some(tenant), Some(direct)) if distance(tenant) > distance(place) => Some(direct),
            (Some(tenant), _) => Some(pair(tenant)),
            (None, direct) => direct,
        }
    }
    fn grant(&mut self, candidate: Candidate) {
        match candidate.group {
            Group::Direct => {
                self.direct.pop_front();
                self.direct_after = Some((self.last.unwrap_or(u16::MAX), false));
            }
            Group::Pair { tenant, provider } => {
                if let Some(queue) = self.groups.get_mut(&(tenant, provider)) {
                    queue.pop_front();
                }
                self.last = Some(tenant);
                if let Some((_, since)) = &mut self.direct_after {
                    *since = true;
                }
                self.served.insert(tenant, provider);
                self.served_last.insert(provider, tenant);
                self.settle(tenant, provider);
            }
        }
    }
    /// A provider that nobody waits for is contested no more, a tenant that waits for nothing is not blocked.
    fn settle(&mut self, tenant: u16, provider: u16) {
        self.groups.retain(|_, queue| !queue.is_empty());
        if !self.groups.keys().any(|(at, provider)| *at == tenant && self.waits(tenant, *provider)) {
            self.blocked.remove(&tenant);
        }
        if !self.groups.keys().any(|(tenant, at)| *at == provider && self.waits(*tenant, provider)) {
            self.contested.remove(&provider);
            self.opening.remove(&provider);
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Numbers all over the words of the sets.
fn spread(number: u64) -> u16 {
    (number * 341 % 4096) as u16
}

/// Runs `steps` random steps; whenever the words would be asked, the model's full sets answer.
fn run(seed: u64, tenants: u64, providers: u64, steps: usize) -> usize {
    let chains = Chains::new();
    let mut selection = Selection::new();
    let mut model = Model::default();
    let mut random = Random(seed | 1);
    let mut free: Vec<u16> = (0..200).rev().collect();
    let mut queued: Vec<(u16, Group)> = Vec::new();
    let mut granted = 0;
    for _ in 0..steps {
        match random.below(10) {
            0..=3 => {
                let Some(index) = free.pop() else { continue };
                let group = if random.below(8) == 0 {
                    model.direct.push_back(index);
                    Group::Direct
                } else {
                    let (tenant, provider) = (spread(random.below(tenants)), random.below(providers) as u16);
                    model.groups.entry((tenant, provider)).or_default().push_back(index);
                    Group::Pair { tenant, provider }
                };
                let settled = selection.candidate(true, true).is_none();
                selection.link(&chains, index, group);
                queued.push((index, group));
                if settled {
                    let found = selection.candidate(true, true);
                    match selection.coming(index, group) {
                        Coming::Behind => assert_eq!(found, None, "seed {seed}: it was to be next"),
                        Coming::Alone => assert_eq!(found, Some(Candidate { operation: index, group }), "seed {seed}"),
                        Coming::Among => {}
                    }
                }
            }
            4 => {
                if queued.is_empty() {
                    continue;
                }
                let (index, group) = queued.swap_remove(random.below(queued.len() as u64) as usize);
                match group {
                    Group::Direct => model.direct.retain(|other| *other != index),
                    Group::Pair { tenant, provider } => {
                        if let Some(queue) = model.groups.get_mut(&(tenant, provider)) {
                            queue.retain(|other| *other != index);
                        }
                        model.settle(tenant, provider);
                    }
                }
                selection.unlink(&chains, index, group);
                free.push(index);
            }
            5 => {
                // A tenant's word changes; the selection hears of room only (of fullness it learns by asking).
                let tenant = spread(random.below(tenants));
                if model.full_tenants.remove(&tenant) {
                    selection.unblock_tenant(tenant);
                    model.blocked.remove(&tenant);
                } else {
                    model.full_tenants.insert(tenant);
                }
            }
            6 => {
                let provider = random.below(providers) as u16;
                if model.full_providers.remove(&provider) {
                    selection.open_provider(provider);
                    if model.contested.contains(&provider) {
                        model.opening.insert(provider);
                    }
                } else {
                    model.full_providers.insert(provider);
                }
            }
            _ => loop {
                let expected = model.next();
                let Some(candidate) = selection.candidate(true, true) else {
                    assert_eq!(expected, None, "seed {seed}: an eligible waiter was not found");
                    selection.settle_opening(|_| {});
                    let opening = std::mem::take(&mut model.opening);
                    model.contested.retain(|provider| !opening.contains(provider));
                    selection.settle_reopened(|_| {});
                    break;
                };
                if let Group::Pair { tenant, provider } = candidate.group {
                    if model.full_tenants.contains(&tenant) {
                        selection.block_tenant(tenant);
                        model.blocked.insert(tenant);
                        continue;
                    }
                    if model.full_providers.contains(&provider) {
                        selection.close_provider(tenant, provider);
                        model.contested.insert(provider);
                        model.opening.remove(&provider);
                        continue;
                    }
                }
                assert_eq!(Some(candidate), expected, "seed {seed}: not the next in rotation");
                model.grant(candidate);
                let last = selection.is_last_at_marked_provider(candidate);
                let emptied = selection.granted(&chains, candidate);
                assert_eq!(last, emptied.provider.is_some(), "seed {seed}");
                queued.retain(|(index, _)| *index != candidate.operation);
                free.push(candidate.operation);
                granted += 1;
                if random.below(3) == 0 {
                    break;
                }
            },
        }
        assert_eq!(selection.linked, queued.len());
    }
    granted
}

#[test]
fn agrees_with_the_plain_model() {
    let mut granted = 0;
    for seed in 1..40 {
        granted += run(seed * 0x9e37_79b9, 1 + seed % 7, 1 + seed % 5, 2_000);
    }
    for seed in 1..8 {
        granted += run(seed * 0x51_7cc1, 12, 9, 3_000);
    }
    assert!(granted > 10_000, "the runs granted only {granted}");
}

#[test]
fn more_providers_give_no_more_turns() {
    let chains = Chains::new();
    let mut selection = Selection::new();
    let mut index = 0;
    let mut put = |selection: &mut Selection, tenant, provider| {
        selection.link(&chains, index, Group::Pair { tenant, provider });
        index += 1;
    };
    for _ in 0..20 {
        for provider in 0..4 {
            put(&mut selection, 1, provider);
        }
        put(&mut selection, 2, 0);
    }
    let mut turns = [0; 3];
    for _ in 0..20 {
        let candidate = selection.candidate(true, true).expect("somebody waits");
        let Group::Pair { tenant, .. } = candidate.group else { panic!("nobody waits directly") };
        turns[usize::from(tenant)] += 1;
        selection.granted(&chains, candidate);
    }
    assert_eq!(turns, [0, 10, 10]);
}

#[test]
fn direct_admissions_get_one_turn_per_rotation() {
    let chains = Chains::new();
    let mut selection = Selection::new();
    for index in 0..30 {
        let group = match index % 3 {
            0 => Group::Direct,
            tenant => Group::Pair { tenant, provider: 9 },
        };
        selection.link(&chains, index, group);
    }
    let mut order = Vec::new();
    while let Some(candidate) = selection.candidate(true, true) {
        order.push(candidate.operation);
        selection.granted(&chains, candidate);
    }
    let expected: Vec<u16> = (0..30).map(|n| [1, 2, 0][n % 3] + (n as u16 / 3) * 3).collect();
    assert_eq!(order, expected);
}

#[test]
fn who_is_passed_over_keeps_its_place() {
    // Tenants 1 and 2 wait for provider 7, which has one unit. Between two of its grants another tenant has a turn at
    // another provider, or class 0 has one while the pools are full.
    for pools_full in [false, true] {
        let chains = Chains::new();
        let mut selection = Selection::new();
        for index in 0..8 {
            selection.link(&chains, index, Group::Pair { tenant: 1 + index % 2, provider: 7 });
            let other = if pools_full { Group::Direct } else { Group::Pair { tenant: 3, provider: 8 } };
            selection.link(&chains, 100 + index, other);
        }
        let mut order = Vec::new();
        for _ in 0..8 {
            loop {
                let candidate = selection.candidate(true, false).expect("provider 7 has room");
                if let Group::Pair { tenant, provider: 7 } = candidate.group {
                    order.push(tenant);
                    selection.granted(&chains, candidate);
                    break;
                }
                selection.close_provider(3, 8);
            }
            if pools_full {
                let between = selection.candidate(false, true).expect("class 0 waits");
                selection.granted(&chains, between);
                continue;
            }
            selection.close_provider(1, 7);
            selection.open_provider(8);
            let between = selection.candidate(true, false).expect("provider 8 has room");
            assert_eq!(between.group, Group::Pair { tenant: 3, provider: 8 });
            selection.granted(&chains, between);
            selection.close_provider(3, 8);
            selection.open_provider(7);
        }
        assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2], "pools full between: {pools_full}");
    }
}

#[test]
fn a_unit_of_a_stalled_provider_costs_no_walk_over_its_waiters() {
    // 1,000 tenants wait for a closed provider. Each opening grants one of them and closes again; nobody else may be
    // put back, or the next choice would have to look at all of them.
    let chains = Chains::new();
    let mut selection = Selection::new();
    for tenant in 0..1000 {
        selection.link(&chains, tenant, Group::Pair { tenant, provider: 3 });
    }
    let first = selection.candidate(true, true).expect("somebody waits");
    assert_eq!(first.group, Group::Pair { tenant: 0, provider: 3 });
    selection.close_provider(0, 3);
    assert_eq!(selection.candidate(true, true), None);
    assert!(selection.active.is_empty(), "each was met once and taken out");
    for tenant in 0..1000 {
        selection.open_provider(3);
        let candidate = selection.candidate(true, true).expect("the provider has room");
        assert_eq!(candidate.operation, tenant);
        selection.granted(&chains, candidate);
        selection.close_provider(0, 3);
        assert!(selection.active.is_empty());
    }
}

/// Numbers at the ends of words and of the sets.
const CORNERS: [u16; 9] = [0, 1, 62, 63, 64, 65, 127, 128, 191];

#[test]
fn a_set_of_tenants_is_a_set_of_numbers() {
    let last = [TENANTS as u16 - 65, TENANTS as u16 - 64, TENANTS as u16 - 1];
    let corners: Vec<u16> = CORNERS.into_iter().chain(last).collect();
    let (mut set, mut blocked) = (TenantSet::default(), TenantSet::default());
    let (mut model, mut without) = (BTreeSet::new(), BTreeSet::new());
    let mut random = Random(11);
    for _ in 0..2_000 {
        let tenant = corners[random.below(corners.len() as u64) as usize];
        let (set, model) = match random.below(3) {
            0 => (&mut blocked, &mut without),
            _ => (&mut set, &mut model),
        };
        if random.below(2) == 0 {
            set.insert(tenant);
            model.insert(tenant);
        } else {
            set.remove(tenant);
            model.remove(&tenant);
        }
        assert_eq!(set.is_empty(), model.is_empty());
        let words: BTreeSet<u16> = model.iter().map(|tenant| tenant / 64).collect();
        assert_eq!(set.summary, words.iter().fold(0, |summary, word| summary | 1 << word));
        for &tenant in &corners {
            assert_eq!(set.contains(tenant), model.contains(&tenant));
        }
        check_first_from(&corners, (&*set, &*model), &TenantSet::default(), &BTreeSet::new());
    }
    for from in [&model, &without] {
        assert!(from.len() > 1);
    }
    check_first_from(&corners, (&set, &model), &blocked, &without);
    check_first_from(&corners, (&blocked, &without), &set, &model);
}

fn check_first_from(
    corners: &[u16],
    (set, model): (&TenantSet, &BTreeSet<u16>),
    other: &TenantSet,
    without: &BTreeSet<u16>,
) {
    for &from in corners {
        let wanted = model.range(from..).find(|tenant| !without.contains(tenant)).copied();
        assert_eq!(set.first_from(usize::from(from), other), wanted);
    }
    assert_eq!(set.first_from(TENANTS, other), None, "behind the last");
}

#[test]
fn a_set_of_providers_is_a_set_of_numbers() {
    let corners: Vec<u16> = CORNERS
        .into_iter()
        .chain([PROVIDERS as u16 - 1])
        .filter(|provider| usize::from(*provider) < PROVIDERS)
        .collect();
    let (mut set, mut model) = (ProviderSet::default(), BTreeSet::new());
    let none = ProviderSet::default();
    let mut random = Random(13);
    for _ in 0..2_000 {
        let provider = corners[random.below(corners.len() as u64) as usize];
        if random.below(2) == 0 {
            set.insert(provider);
            model.insert(provider);
        } else {
            set.remove(provider);
            model.remove(&provider);
        }
        for &provider in &corners {
            assert_eq!(set.contains(provider), model.contains(&provider));
            assert_eq!(set.is_alone(provider), model.iter().eq([&provider]));
            let next = model.range(provider..).next().copied();
            assert_eq!(set.first_from(usize::from(provider), &none), next);
            let round = next.or_else(|| model.first().copied());
            assert_eq!(set.round_from(usize::from(provider), &none), round);
        }
        assert_eq!(set.first_from(PROVIDERS, &none), None, "behind the last");
        let mut shown = Vec::new();
        set.each(|provider| shown.push(provider));
        assert!(shown.iter().eq(&model));
    }
}

/// A tenant that was blocked, and has room again, is reported once, wherever its number lies; not if it is blocked again.
#[test]
fn reopened_tenants_of_every_word_are_settled() {
    let chains = Chains::new();
    let mut selection = Selection::new();
    let tenants = [3, 70, 130, TENANTS as u16 - 1];
    for (index, tenant) in tenants.into_iter().enumerate() {
        assert!(!selection.unblock_tenant(tenant), "nobody of it waits");
        selection.link(&chains, index as u16, Group::Pair { tenant, provider: 65 });
        selection.block_tenant(tenant);
        assert!(selection.unblock_tenant(tenant), "somebody waits");
    }
    selection.block_tenant(70);
    let mut settled = Vec::new();
    selection.settle_reopened(|tenant| settled.push(tenant));
    assert_eq!(settled, [3, 130, TENANTS as u16 - 1]);
    selection.settle_reopened(|tenant| panic!("{tenant} was settled before"));
}
