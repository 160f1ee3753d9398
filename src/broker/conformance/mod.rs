//! What the broker promises, checked on the public API alone.
//!
//! Tests are named after the behaviours that they show; the numbers in their comments are those of the specification
//! (`io.N`, `pools.N`: sentences; `bN`: behaviours of the broker that users of the first implementation rely on).

mod authority;
mod identity;
mod ledger;
mod lifetime;
mod limits;
mod races;

use std::time::Duration;

use crate::Deadline;
use crate::broker::io::{IoCall, IoRuntime};
use crate::broker::{
    Activation, Broker, Capability, CapabilitySession, Cost, Operation, Plan, PlanSpec, Provider,
    ProviderSpec,
};
use crate::broker::{BrokerLimits, IoLimits};

static HTTP: Capability = Capability::new("test:http", &["send", "open"]);
static BLOB: Capability = Capability::new("test:blob", &["read"]);

const SEND: Operation = HTTP.operation(0);
const OPEN: Operation = HTTP.operation(1);
const READ: Operation = BLOB.operation(0);

/// A node with one direct provider and a plan that binds `HTTP` to it.
struct Node {
    io: IoRuntime,
    plan: Plan,
    provider: Provider,
    broker: Broker,
}

impl Node {
    fn new() -> Node {
        Node::with(BrokerLimits::default())
    }

    fn with(limits: BrokerLimits) -> Node {
        let broker = Broker::new(limits).expect("the limits are valid");
        let io = IoRuntime::new(&broker, IoLimits::default()).expect("the limits are valid");
        let provider = broker.register(ProviderSpec::new("origin")).expect("the first provider");
        let plan = broker.seal(plan_of("tenant").bind(&HTTP, &provider.reference())).expect("the first plan");
        Node { io, plan, provider, broker }
    }

    fn open(&self) -> CapabilitySession {
        self.broker.open(&self.plan, soon()).expect("there is room for a session")
    }

    /// A call that runs.
    fn start(&self, session: &CapabilitySession, cost: Cost) -> IoCall {
        let ready = self.io.admit_now(session).expect("there is room for a call");
        ready
            .start(session.dispatch(SEND, cost).expect("the call is allowed"))
            .expect("nothing changed since")
    }

    /// Nothing of any session is left.
    fn assert_clean(&self) {
        let (broker, io) = (self.broker.snapshot(), self.io.snapshot());
        assert!(broker.is_clean(), "{broker:?}");
        assert!(io.is_zero(), "{io:?}");
    }
}

fn plan_of(tenant: &str) -> PlanSpec {
    PlanSpec::new(tenant, "publication-1")
}

/// An activation that ends long after the test.
fn soon() -> Activation {
    Activation::until(after(Duration::from_secs(60)))
}

fn after(duration: Duration) -> Deadline {
    Deadline::after(duration).expect("the clock goes on for a while")
}
