//! Refusals under threads: each shows the word that decided, and the word had no room (DESIGN's thirteenth invariant).
//!
//! `tests/justified.rs` judges refusals from outside, by what can have been in use; this file reads the deciding words
//! themselves, by the places that the words' own pages give for their fields.
use super::support::*;
use crate::account::room::decided;
use std::sync::atomic::AtomicU64;

/// Where the room of a dimension stands in its word: the lowest bit, and how many.
fn place(dimension: Dimension) -> (u32, u32) {
    match dimension {
        Dimension::PoolsPending => (39, 11),
        Dimension::PoolsRunning => (50, 11),
        Dimension::PoolsRequestsPerTenant | Dimension::PoolsRequestsPerProvider => (0, 11),
        Dimension::PoolsRunningPerTenant | Dimension::PoolsRunningPerProvider => (11, 11),
        Dimension::PoolsConnections => (13, 13),
        Dimension::PoolsIdleConnections => (26, 11),
        Dimension::PoolsConnectionsPerClient => (0, 9),
        other => panic!("{other} is refused nobody here"),
    }
}

/// Calls, and looks at the word behind a refusal. Whether it was one.
#[track_caller]
fn justified<T>(call: impl FnOnce() -> Result<T, Error>) -> Option<T> {
    decided::take();
    let error = match call() {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    match error.kind() {
        Kind::Full(Refusal { dimension, promised: false, .. }) => {
            let (shift, bits) = place(dimension);
            let words = decided::take();
            // The call may have run the turn too, which met words of its own.
            let named: Vec<_> = words.iter().filter(|word| word.dimension == dimension).collect();
            assert!(!named.is_empty(), "{error}: no word decided so, but {words:?}");
            for decided in named {
                let count = |word: u64| (word >> shift) & ((1 << bits) - 1);
                assert_eq!((count(decided.word), count(decided.units)), (0, 1), "{error}: {decided:?}");
            }
        }
        Kind::Busy | Kind::Full(Refusal { promised: true, .. }) => {}
        other => panic!("{other:?} is no refusal of this run"),
    }
    None
}

/// pools.40, pools.45, by the invariant: a refusal names a word that had no room in the load that decided, through every race
/// of admissions, ends, parks and lowerings.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_refusal_shows_a_word_without_room() {
    let limits = PoolLimits {
        pending: 5,
        running: 5,
        running_per_tenant: 4,
        running_per_provider: 4,
        requests_per_tenant: 6,
        requests_per_provider: 6,
        connections: 4,
        connections_per_client: 3,
        idle_connections: 3,
        ..PoolLimits::default()
    };
    let node = Node::new(limits);
    let providers = ["orders", "stock"].map(|name| node.install(name, 1, 0));
    let clients = providers.each_ref().map(|provider| node.client::<Nothing>(provider));
    let plans = [0, 1, 2].map(|n| node.plan(&format!("tenant-{}", n % 2), &providers[n % 2]));
    let (refused, lowered) = (AtomicU64::new(0), AtomicU64::new(0));
    let handle = tokio::runtime::Handle::current();
    // A busy machine may let the threads run one after the other for a while: they go on until they have met.
    let begun = std::time::Instant::now();
    let patient = || begun.elapsed() < Duration::from_secs(20);
    let run = |number: usize| {
        let _timers = handle.enter();
        let (client, session) = (&clients[number % 2], node.session(&plans[number % 2]));
        let mut held = std::collections::VecDeque::new();
        let mut staged = std::collections::VecDeque::new();
        for round in 0_u64.. {
            if round >= 1_500 && (refused.load(SeqCst) > 100 || !patient()) {
                break;
            }
            match justified(|| node.pools.admit(client, &session)) {
                Some(admission) => staged.push_back(admission),
                None => drop(staged.pop_front()),
            }
            let Some(ready) = justified(|| node.pools.admit_now(client, &session)) else {
                refused.fetch_add(1, SeqCst);
                drop(held.pop_front());
                continue;
            };
            let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
            let connection = match client.checkout(&call).expect("nobody waits for one") {
                Some(idle) => Some(idle),
                None => justified(|| client.reserve_connection(&call))
                    .map(|reserved| reserved.connected(Nothing).expect("in time")),
            };
            match connection {
                Some(connection) if round % 3 == 0 => {
                    // No room to rest is an answer too.
                    let _parked = justified(|| connection.park(Exchange::complete()));
                }
                connection => held.push_back((call, connection)),
            }
            if held.len() > 1 {
                held.pop_front();
            }
        }
    };
    let lower = || {
        for round in 0_u64.. {
            if round >= 400 && (lowered.load(SeqCst) > 0 || !patient()) {
                break;
            }
            let mut next = node.pools.limits();
            next.pending = next.pending.saturating_sub(1).max(3);
            next.running_per_provider = next.running_per_provider.saturating_sub(1).max(2);
            next.running_per_tenant = next.running_per_tenant.saturating_sub(1).max(2);
            next.connections_per_client = next.connections_per_client.saturating_sub(1).max(2);
            next.requests_per_tenant = next.requests_per_tenant.saturating_sub(1).max(4);
            match node.pools.lower_limits(next) {
                Ok(()) => lowered.fetch_add(1, SeqCst),
                Err(error) => {
                    let in_use = |obstacle: &Obstacle| {
                        obstacle.why == Standing::InUse && obstacle.found > obstacle.asked
                    };
                    assert!(error.obstacles().iter().all(in_use), "{error}");
                    0
                }
            };
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for number in 0..3 {
            let run = &run;
            scope.spawn(move || run(number));
        }
        scope.spawn(lower);
    });
    assert!(refused.load(SeqCst) > 100 && lowered.load(SeqCst) > 0);
    assert!(node.counts().is_idle(), "{:?}", node.counts());
    // What is in force now is what holds, to the last unit.
    let limits = node.pools.limits();
    let session = node.session(&plans[0]);
    let most = limits.running_per_tenant.min(limits.running_per_provider);
    let calls: Vec<_> = (0..most).map(|_| node.call(&clients[0], &session)).collect();
    assert!(justified(|| node.pools.admit_now(&clients[0], &session)).is_none(), "one too many");
    drop((calls, session));
    node.assert_clean_end().await;
}
