//! What one grant costs, by how many wait and of how many tenants they are: `cargo bench --bench scale`. The lines must be flat.

#[allow(dead_code, unreachable_pub, reason = "each bench uses a part of what they share")]
#[path = "../perf/src/lib.rs"]
mod perf;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Poll;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use latent_capabilities::broker::pools::{PoolCall, PoolWait};
use latent_capabilities::broker::{BrokerLimits, CapabilitySession, Cost};
use perf::{Node, SEND, must, plan, poll, until_later};

/// With the one that runs, the 1,024 requests that a provider may have.
const MANY: usize = 1023;

/// One that waits, and the session it asks again with.
struct Waiting {
    wait: Pin<Box<PoolWait>>,
    session: usize,
}

/// A line that never gets shorter behind the one running unit of a provider.
struct Line {
    running: Option<PoolCall>,
    waiting: VecDeque<Waiting>,
    sessions: Vec<CapabilitySession>,
    node: Node,
}

impl Line {
    fn new(waiters: usize, tenants: usize) -> Self {
        let node = Node::new(1);
        // One of them may run.
        let per_session = BrokerLimits::ceilings().calls_per_session as usize - 1;
        let per_tenant = waiters.div_ceil(tenants).div_ceil(per_session);
        let sessions = (0..tenants * per_tenant)
            .map(|number| {
                let plan = plan(&node.broker, &format!("tenant-{}", number % tenants), &node.fast);
                must(node.broker.open(&plan, until_later()))
            })
            .collect();
        let mut line = Self { running: Some(node.call()), waiting: VecDeque::new(), sessions, node };
        for waiter in 0..waiters {
            line.queue(waiter % line.sessions.len());
        }
        line
    }

    fn queue(&mut self, session: usize) {
        let admission = must(self.node.pools.admit(&self.node.fast.client, &self.sessions[session]));
        let mut wait = Box::pin(admission.wait());
        assert!(poll(wait.as_mut()).is_pending(), "the provider's running unit is taken");
        self.waiting.push_back(Waiting { wait, session });
    }

    /// A release, the grant that follows, the start, and a newcomer at the end of the line.
    fn turn(&mut self) {
        drop(self.running.take());
        loop {
            let mut next = self.waiting.pop_front().expect("the line never gets shorter");
            if let Poll::Ready(ready) = poll(next.wait.as_mut()) {
                self.running = Some(must(must(ready).dispatch(SEND, Cost::new())));
                return self.queue(next.session);
            }
            // At first the tenants' turns may come in another order than they asked.
            self.waiting.push_back(next);
        }
    }
}

fn waiters(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("grant, by waiters of one tenant");
    for waiters in [1, 4, 16, 64, 256, MANY] {
        let mut line = Line::new(waiters, 1);
        group.bench_function(BenchmarkId::from_parameter(waiters), |bencher| bencher.iter(|| line.turn()));
        std::mem::forget(line);
    }
}

fn tenants(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("grant, by tenants of 1,023 waiters");
    for tenants in [1, 4, 16, 64, 256, MANY] {
        let mut line = Line::new(MANY, tenants);
        group.bench_function(BenchmarkId::from_parameter(tenants), |bencher| bencher.iter(|| line.turn()));
        std::mem::forget(line);
    }
}

criterion_group!(benches, waiters, tenants);
criterion_main!(benches);
