//! A small node for one test.
use std::time::Duration;

pub(super) use crate::account::dimension::Dimension;
pub(super) use crate::account::limits::{BrokerLimits, IoLimits};
pub(super) use crate::broker::Broker;
pub(super) use crate::broker::broker::{Provider, ProviderSpec};
pub(super) use crate::broker::capability::Capability;
pub(super) use crate::broker::error::{Denied, Error, Invalid, Kind, StopCause, Terminal, What, Which};
pub(super) use crate::broker::io::*;
pub(super) use crate::broker::ledger::Cost;
pub(super) use crate::broker::plan::{Plan, PlanSpec};
pub(super) use crate::broker::policy::{Policy, StreamBudget};
pub(super) use crate::broker::session::{Activation, CapabilitySession};
pub(super) use crate::time::{Clock, Deadline};

/// What the node of a test offers.
pub(super) static TEST: Capability = Capability::new("latent:test/bytes", &["send", "open"]);

/// The smallest block: what a charge is rounded up to.
pub(super) const BLOCK: u64 = 512;

/// A broker, its I/O runtime and one sealed plan. Its clock is tokio's, so a paused test moves it.
pub(super) struct Node {
    pub(super) broker: Broker,
    pub(super) io: IoRuntime,
    pub(super) plan: Plan,
    pub(super) _provider: Provider,
}

/// Chunks of 4 KiB, everything else by default.
pub(super) fn small() -> IoLimits {
    IoLimits { chunk_bytes: 4096, ..IoLimits::default() }
}

impl Node {
    pub(super) fn new() -> Node {
        Node::with(small())
    }
    pub(super) fn with(limits: IoLimits) -> Node {
        Node::made(limits, BrokerLimits::default(), Policy::new())
    }
    pub(super) fn made(limits: IoLimits, broker: BrokerLimits, policy: Policy) -> Node {
        let broker = Broker::with_clock(broker, Clock::tokio()).expect("the limits agree");
        let io = IoRuntime::new(&broker, limits).expect("the limits agree");
        let provider = broker.register(ProviderSpec::new("origin")).expect("the name is free");
        let spec = PlanSpec::new("tenant", "publication").bind_with(&TEST, &provider.reference(), policy);
        let plan = broker.seal(spec).expect("there is room for one plan");
        Node { broker, io, plan, _provider: provider }
    }
    /// A session that ends in a minute.
    pub(super) fn session(&self) -> CapabilitySession {
        self.session_until(in_ms(60_000))
    }
    pub(super) fn session_until(&self, deadline: Deadline) -> CapabilitySession {
        self.broker.open(&self.plan, Activation::until(deadline)).expect("there is room for a session")
    }
    /// A started call.
    pub(super) fn call(&self, session: &CapabilitySession) -> IoCall {
        self.call_with(session, Cost::new()).expect("there is room for a call")
    }
    pub(super) fn call_with(&self, session: &CapabilitySession, cost: Cost) -> Result<IoCall, Error> {
        let ready = self.io.admit_now(session)?;
        ready.start(session.dispatch(TEST.operation(0), cost)?)
    }
    /// A started call with a stream budget of as many bytes each way.
    pub(super) fn bulk_call(&self, session: &CapabilitySession, bytes: u64) -> IoCall {
        let budget = StreamBudget::new(bytes, bytes).expect("within the ceilings");
        self.call_with(session, Cost::new().stream(budget)).expect("there is room for a call")
    }
    /// Nothing is held any more.
    #[track_caller]
    pub(super) fn assert_zero(&self) {
        let snapshot = self.io.snapshot();
        assert!(snapshot.is_zero(), "something is still held: {snapshot:?}");
    }
}

/// So many milliseconds from now.
pub(super) fn in_ms(ms: u64) -> Deadline {
    Deadline::after(Duration::from_millis(ms)).expect("a moment ahead exists")
}

/// A staged buffer of the call that holds `bytes`.
pub(super) fn filled(call: &IoCall, bytes: &[u8]) -> IoBuffer {
    let mut buffer = call.buffer(bytes.len(), 0).expect("there is room for a buffer");
    fill(&mut buffer, bytes);
    buffer
}

pub(super) fn fill(buffer: &mut IoBuffer, bytes: &[u8]) {
    buffer.spare_mut(bytes.len()).expect("the call goes on").copy_from_slice(bytes);
    buffer.advance_written(bytes.len()).expect("it fits");
}

/// An error's kind, of a result that must not be a success.
#[track_caller]
pub(super) fn refused<T>(result: Result<T, Error>) -> Kind {
    match result {
        Ok(_) => panic!("this must be refused"),
        Err(error) => error.kind(),
    }
}

/// The dimension that had no room, of a result that must be refused for want of room.
#[track_caller]
pub(super) fn full<T>(result: Result<T, Error>) -> Dimension {
    match refused(result) {
        Kind::Full(refusal) => refusal.dimension,
        other => panic!("this must be refused for want of room, not with {other:?}"),
    }
}
