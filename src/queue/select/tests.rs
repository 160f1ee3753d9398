//! The selection against a plain model of what it promises: vectors and a linear scan.
use super::*;
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
    last: Option<u16>,
    served: BTreeMap<u16, u16>,
}

impl Model {
    fn next(&self) -> Option<Candidate> {
        let usable = |tenant: u16| -> Vec<u16> {
            let providers = self.groups.iter().filter(|((t, p), queue)| {
                *t == tenant && !queue.is_empty() && !self.full_providers.contains(p)
            });
            providers.map(|((_, p), _)| *p).collect()
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
        let direct = self.direct.front().map(|operation| Candidate {
            operation: *operation,
            group: Group::Direct,
        });
        match self.last {
            // Class 0 was last: the first tenant is next.
            None => tenants.first().map(|tenant| pair(*tenant)).or(direct),
            Some(last) => match tenants.range(last + 1..).next() {
                Some(tenant) => Some(pair(*tenant)),
                None => direct.or_else(|| tenants.first().map(|tenant| pair(*tenant))),
            },
        }
    }
    fn grant(&mut self, candidate: Candidate) {
        match candidate.group {
            Group::Direct => {
                self.direct.pop_front();
                self.last = None;
            }
            Group::Pair { tenant, provider } => {
                if let Some(queue) = self.groups.get_mut(&(tenant, provider)) {
                    queue.pop_front();
                }
                self.last = Some(tenant);
                self.served.insert(tenant, provider);
            }
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
                selection.link(&chains, index, group);
                queued.push((index, group));
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
                } else {
                    model.full_tenants.insert(tenant);
                }
            }
            6 => {
                let provider = random.below(providers) as u16;
                if model.full_providers.remove(&provider) {
                    selection.open_provider(provider);
                } else {
                    model.full_providers.insert(provider);
                }
            }
            _ => loop {
                let expected = model.next();
                let Some(candidate) = selection.candidate(true, true) else {
                    assert_eq!(expected, None, "seed {seed}: an eligible waiter was not found");
                    selection.settle_opening(|_| {});
                    selection.settle_reopened(|_| {});
                    break;
                };
                if let Group::Pair { tenant, provider } = candidate.group {
                    if model.full_tenants.contains(&tenant) {
                        selection.block_tenant(tenant);
                        continue;
                    }
                    if model.full_providers.contains(&provider) {
                        selection.close_provider(provider);
                        continue;
                    }
                }
                assert_eq!(Some(candidate), expected, "seed {seed}: not the next in rotation");
                model.grant(candidate);
                selection.granted(&chains, candidate);
                queued.retain(|(index, _)| *index != candidate.operation);
                free.push(candidate.operation);
                granted += 1;
                if random.below(3) == 0 {
                    break;
                }
            },
        }
        assert_eq!(selection.linked(), queued.len());
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
    selection.close_provider(3);
    assert_eq!(selection.candidate(true, true), None);
    assert!(selection.active.is_empty(), "each was met once and taken out");
    for tenant in 0..1000 {
        selection.open_provider(3);
        let candidate = selection.candidate(true, true).expect("the provider has room");
        assert_eq!(candidate.operation, tenant);
        selection.granted(&chains, candidate);
        selection.close_provider(3);
        assert!(selection.active.is_empty());
    }
}
