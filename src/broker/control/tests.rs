use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::account::provider::TakenRunning;
use crate::account::scope::{Heed, RequestUnits};
use crate::broker::capability::Capability;
use crate::broker::ground::GroundAnchor;
use crate::broker::limits::BrokerLimits;
use crate::broker::plan::{Plan, ProviderRef};
use crate::broker::session::{self, Activation};
use crate::time::{Clock, Deadline};

static CAPABILITY: Capability = Capability::new("test:control", &["go"]);

const REQUESTS: RequestLimits = RequestLimits {
    requests_per_tenant: 3,
    running_per_tenant: 2,
    requests_per_provider: 5,
    running_per_provider: 4,
};

fn ground() -> GroundAnchor {
    Ground::lay(BrokerLimits::default(), Clock::system())
}

fn far() -> Activation {
    Activation::until(Deadline::after(std::time::Duration::from_secs(60)).expect("a minute from now exists"))
}

/// An instance of a provider of this name, current from now on.
fn install(ground: &Ground, name: &str, kind: Kind, kept: Option<Arc<dyn Any + Send + Sync>>) -> ProviderRef {
    let mut control = ground.control();
    let logical = control.logical(ground, name, kind).expect("there is a number");
    let tag = control.next_tag().expect("there is a tag");
    let word = &ground.floor.providers[usize::from(logical.number())];
    word.swap_tag(word.tag(), tag).expect("nobody else installs");
    ProviderRef::new(logical, tag, 1, kept)
}

fn seal(ground: &Ground, tenant: &str, provider: &ProviderRef) -> Plan {
    let spec = PlanSpec::new(tenant, "publication").bind(&CAPABILITY, provider);
    Plan { core: ground.control().seal(ground, &spec).expect("there is room for a plan") }
}

fn sweep(ground: &Ground) {
    let swept = ground.control().sweep(ground);
    drop(swept);
}

#[test]
fn numbers_are_the_lowest_free_ones_and_bounded() {
    let mut numbers = Numbers::new();
    for (expected, name) in [(0, "a"), (1, "b"), (2, "c")] {
        let number = numbers.free(3).expect("there is room");
        assert_eq!(number, expected);
        numbers.give(number, name.into(), ());
    }
    assert_eq!(numbers.free(3), None);
    assert_eq!(numbers.take(1), Some(()));
    assert_eq!(numbers.find("b"), None);
    assert_eq!(numbers.free(3), Some(1));
    assert_eq!(numbers.numbers().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(numbers.find("c"), Some(2));
}

// b93: what tells instances apart ends in a refusal, and never starts again.
#[test]
fn tags_are_never_given_twice_and_end_in_a_refusal() {
    let mut control = Control::new();
    assert_eq!(control.next_tag(), Ok(1));
    assert_eq!(control.next_tag(), Ok(2));
    control.last_tag = u32::MAX - 1;
    assert_eq!(control.next_tag(), Ok(u32::MAX));
    for _ in 0..2 {
        assert_eq!(control.next_tag(), Err(Error::denied(Denied::TagsExhausted)));
    }
}

/// Says when it is dropped, and looks whether the control mutex was free then.
struct Epoch {
    ground: GroundAnchor,
    dropped_freely: Arc<AtomicBool>,
}

impl Drop for Epoch {
    fn drop(&mut self) {
        let free = self.ground.shared().control.try_lock().is_ok();
        self.dropped_freely.store(free, Ordering::SeqCst);
    }
}

// PL3, C4: the last reference of a plan, and with it of an epoch, dies on the control path and outside of its mutex.
#[test]
fn an_epoch_never_dies_with_a_session_nor_under_the_mutex() {
    let anchor = ground();
    let ground = anchor.shared();
    let dropped_freely = Arc::new(AtomicBool::new(false));
    let epoch = Epoch { ground: anchor.clone(), dropped_freely: dropped_freely.clone() };
    let provider = install(ground, "provider", Kind::Direct, Some(Arc::new(epoch)));
    let plan = seal(ground, "tenant", &provider);
    drop(provider);
    let id = ground.control().id();
    let session = session::open(&anchor, id, &plan, far()).expect("there is room for a session");
    drop(plan);
    sweep(ground);
    assert!(!dropped_freely.load(Ordering::SeqCst), "the session keeps the plan");
    drop(session);
    assert!(!dropped_freely.load(Ordering::SeqCst), "the session was not the last to keep it");
    sweep(ground);
    assert!(dropped_freely.load(Ordering::SeqCst));
    sweep(ground);
    assert_eq!(ground.counts.providers.load(order::COUNT), 0, "the number follows in the next sweep");
    assert_eq!(ground.broker_metadata.used(), 0);
}

// C4: a refused seal does not drop the last reference of an epoch under the mutex either.
#[test]
fn a_refused_seal_drops_nothing_under_the_mutex() {
    let anchor = ground();
    let ground = anchor.shared();
    let dropped_freely = Arc::new(AtomicBool::new(false));
    let epoch = Epoch { ground: anchor.clone(), dropped_freely: dropped_freely.clone() };
    let provider = install(ground, "provider", Kind::Direct, Some(Arc::new(epoch)));
    let policy = crate::broker::Policy::new().operations(0);
    let spec = PlanSpec::new("tenant", "publication").bind_with(&CAPABILITY, &provider, policy);
    drop(provider);
    let refused = ground.control().seal(ground, &spec);
    assert_eq!(refused.map(drop), Err(Error::invalid(Invalid::Operation)));
    assert!(!dropped_freely.load(Ordering::SeqCst));
    drop(spec);
    assert!(dropped_freely.load(Ordering::SeqCst));
}

// pools.42: limits of tenants and providers reach those that are there and those that come later.
#[test]
fn request_limits_reach_numbers_given_before_and_after() {
    let anchor = ground();
    let ground = anchor.shared();
    let pooled = install(ground, "pooled", Kind::Pooled, None);
    let early = seal(ground, "early", &pooled);
    let tenant = |plan: &Plan| &ground.floor.tenants[usize::from(plan.core.tenant())];
    let requests = |plan: &Plan| {
        (0..9).take_while(|_| tenant(plan).reserve(RequestUnits::Requests, Heed::Marks).is_ok()).count()
    };
    assert_eq!(requests(&early), 0, "there is no room before there are pools");
    ground.control().open_requests(ground, REQUESTS);
    let late = seal(ground, "late", &pooled);
    assert_eq!((requests(&early), requests(&late)), (3, 3));
    let other = install(ground, "other", Kind::Pooled, None);
    for provider in [&pooled, &other] {
        let word = &ground.floor.providers[usize::from(provider.number())];
        let taken =
            (0..9).take_while(|_| word.take_or_mark_running(provider.tag(), false) == TakenRunning::Yes);
        assert_eq!(taken.count(), 4);
    }
    let control = ground.control();
    assert_eq!(control.tenants.numbers().collect::<Vec<_>>(), [early.core.tenant(), late.core.tenant()]);
    assert_eq!(control.logicals.numbers().collect::<Vec<_>>(), [pooled.number(), other.number()]);
}

// C2: a number with anything in use stays with its name, all of its words do, and it comes back whole.
#[test]
fn a_tenants_number_is_free_only_when_its_words_are_full() {
    let anchor = ground();
    let ground = anchor.shared();
    ground.control().open_requests(ground, REQUESTS);
    ground.control().open_tenant_bytes(ground, 1024);
    let provider = install(ground, "provider", Kind::Pooled, None);
    let plan = seal(ground, "tenant", &provider);
    let number = usize::from(plan.core.tenant());
    let word = &ground.floor.tenants[number];
    assert_eq!(word.reserve(RequestUnits::Requests, Heed::Marks), Ok(()));
    drop(plan);
    sweep(ground);
    let control = ground.control();
    assert_eq!((control.tenants.numbers().count(), control.plans.len()), (1, 0));
    drop(control);
    let units = crate::account::bytes::Units::of_block(1024);
    assert_eq!(ground.tenant_bytes[number].reserve(1, units), Ok(()), "its bytes were opened again");
    ground.tenant_bytes[number].give(1, units);
    assert!(!word.give(RequestUnits::Requests));
    sweep(ground);
    assert_eq!(ground.control().tenants.numbers().count(), 0);
    assert!(word.reserve(RequestUnits::Requests, Heed::Marks).is_err(), "nobody's number has no room");
    let again = seal(ground, "another", &provider);
    assert_eq!(usize::from(again.core.tenant()), number);
    assert_eq!(word.reserve(RequestUnits::Requests, Heed::Marks), Ok(()));
    assert!(!word.give(RequestUnits::Requests));
}

#[test]
fn a_name_has_one_kind_of_provider_while_it_has_a_number() {
    let anchor = ground();
    let ground = anchor.shared();
    let direct = install(ground, "name", Kind::Direct, None);
    let mut control = ground.control();
    assert_eq!(
        control.logical(ground, "name", Kind::Pooled).map(drop),
        Err(Error::denied(Denied::ProviderExists))
    );
    let same = control.logical(ground, "name", Kind::Direct).expect("it is there");
    assert!(Arc::ptr_eq(&same, direct.logical()));
    drop((same, direct));
    drop(control.sweep(ground));
    assert!(control.logical(ground, "name", Kind::Pooled).is_ok());
}

// 10 of the invariants' kin: a refused seal leaves counts and metadata as they were.
#[test]
fn a_refused_seal_charges_nothing() {
    let limits = BrokerLimits { tenants: 1, ..BrokerLimits::default() };
    let anchor = Ground::lay(limits, Clock::system());
    let ground = anchor.shared();
    let provider = install(ground, "provider", Kind::Direct, None);
    let plan = seal(ground, "tenant", &provider);
    let used = ground.broker_metadata.used();
    let long = "n".repeat(256);
    let spec = PlanSpec::new(&long, &long).bind(&CAPABILITY, &provider);
    let refused = ground.control().seal(ground, &spec);
    assert_eq!(refused.map(drop), Err(Error::full(Dimension::BrokerTenants, Scope::Node)));
    assert_eq!(ground.broker_metadata.used(), used);
    assert_eq!(ground.counts.plans.load(order::COUNT), 1);
    drop(plan);
}

#[test]
fn retirement_takes_every_right_once() {
    let anchor = ground();
    let ground = anchor.shared();
    let provider = install(ground, "provider", Kind::Direct, None);
    let plan = seal(ground, "tenant", &provider);
    assert!(ground.control().retire());
    assert!(!ground.control().retire());
    let retired = Error::retired(What::Broker);
    assert_eq!(plan.core.admits(), Err(retired));
    assert_eq!(ground.control().next_tag(), Err(retired));
    assert_eq!(ground.control().logical(ground, "late", Kind::Direct).map(drop), Err(retired));
    assert_eq!(ground.control().withdraw("publication"), 0);
}
