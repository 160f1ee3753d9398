//! Models of limits that are lowered while others reserve, release, wait and are granted: `account::lower` (W1 to W4) on the
//! words of `queue::floor`.
//!
//! Library invariants 1 (conservation), 2 (ceiling), 5 (no loss) and 13 (justified refusals).
#![cfg(loom)]

use latent_capabilities::model::account::charge::{self, Held, Request, Scopes};
use latent_capabilities::model::account::dimension::Dimension::{
    self, PoolsRequestsPerTenant, PoolsRunning, PoolsRunningPerProvider, PoolsRunningPerTenant,
};
use latent_capabilities::model::account::lower::{Change, Lower, lower_all};
use latent_capabilities::model::account::node::NodeWord;
use latent_capabilities::model::account::provider::ProviderWord;
use latent_capabilities::model::account::room::Lowering;
use latent_capabilities::model::account::scope::{Blocked, NotLowered, Scope};
use latent_capabilities::model::account::tenant::TenantWord;
use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::queue::model::{self, OperationLease, Session, admit, drop_front, step};
use latent_capabilities::model::queue::operation::Step;
use latent_capabilities::model::queue::wait::enter;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

type Ground = Anchor<Session, model::Ground>;

const REQUEST: Request = Request::new(0, 0, 1);

/// The words of one request, each with room for two.
struct Words {
    node: NodeWord,
    tenant: TenantWord,
    provider: ProviderWord,
}

impl Words {
    fn new() -> Arc<Words> {
        let words = Words {
            node: NodeWord::new(4, 4, 4),
            tenant: TenantWord::default(),
            provider: ProviderWord::default(),
        };
        assert!(words.node.open_pools(4, 2) && words.tenant.open(4, 2) && words.provider.open(4, 2));
        words.provider.swap_tag(0, REQUEST.tag()).unwrap();
        Arc::new(words)
    }
    fn scopes(&self) -> Scopes<'_> {
        Scopes { node: &self.node, tenant: &self.tenant, provider: &self.provider }
    }
    /// All three to one.
    fn to_one(&self) -> [Change<'_>; 3] {
        let to_one = |word, scope, dimension| Change { word, scope, dimension, limit: 1 };
        [
            to_one(&self.node, Scope::Node, PoolsRunning),
            to_one(&self.tenant, Scope::Tenant(0), PoolsRunningPerTenant),
            to_one(&self.provider, Scope::Provider(0), PoolsRunningPerProvider),
        ]
    }
    fn reserve(&self) -> Result<(), Blocked> {
        charge::reserve_now(&self.scopes(), Some(REQUEST)).map_err(|refused| refused.blocked)
    }
    fn release(&self) {
        assert!(charge::release(&self.scopes(), Some(REQUEST), Held::Running).none());
    }
    fn running(&self) -> [u32; 3] {
        let node = self.node.snapshot().pool_running;
        [node, self.tenant.snapshot().running, self.provider.snapshot().running]
    }
    /// How many more can run, to the end.
    fn fill(&self) -> u32 {
        (0..).take_while(|_| self.reserve().is_ok()).count() as u32
    }
}

/// Three words are lowered while one holder releases and one newcomer reserves: all limits fall or none does, use is never
/// above them, and everything comes back.
#[test]
fn lowering_meets_admission_and_release() {
    check("lowering::lowering_meets_admission_and_release", Bound::Preemptions(3), || {
        let words = Words::new();
        words.reserve().unwrap();
        let newcomer = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.reserve())
        };
        let holder = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.release())
        };
        let lowered = lower_all(&words.to_one()).is_ok();
        let taken = newcomer.join().unwrap();
        holder.join().unwrap();
        // Two units of each word: of the holder, of the newcomer, or of the lowering. With one holder and one newcomer,
        // whoever was refused met two others.
        match taken {
            Ok(()) => {}
            Err(Blocked::Full(dimension)) => {
                assert!([PoolsRunning, PoolsRunningPerTenant, PoolsRunningPerProvider].contains(&dimension));
            }
            Err(other) => panic!("{other:?}"),
        }
        let held = u32::from(taken.is_ok());
        assert_eq!(words.running(), [held; 3]);
        let limit = if lowered { 1 } else { 2 };
        assert_eq!(words.fill() + held, limit, "the same limit at every word");
        assert_eq!(words.running(), [limit; 3]);
        for _ in 0..limit {
            words.release();
        }
        assert_eq!(words.running(), [0; 3]);
    });
}

/// Says yes when it is looked at, and no when it is asked: whatever was begun before it is undone.
struct Late;

impl Lower for Late {
    fn look_lower(&self, _: Dimension, _: u64) -> Result<(), NotLowered> {
        Ok(())
    }
    fn begin_lower(&self, dimension: Dimension, _: u64) -> Result<Lowering, NotLowered> {
        Err(NotLowered::InUse { dimension, used: 9 })
    }
    fn finish_lower(&self, lowering: Lowering) -> Result<(), Lowering> {
        Err(lowering)
    }
    fn undo_lower(&self, _: Lowering) {
        panic!("nothing was begun here");
    }
}

/// Lowers the running units of a floor, then has the line look again, as the registry does. Whether they were lowered.
fn lower(anchor: &Ground, limit: u64, undone: bool) -> bool {
    let floor = &anchor.shared().floor;
    let at = |word, scope, dimension, limit| Change { word, scope, dimension, limit };
    let mut changes = vec![at(&*floor.node as &dyn Lower, Scope::Node, PoolsRunning, limit)];
    if undone {
        changes.push(at(&Late, Scope::Client(0), PoolsRunning, limit));
    }
    let lowered = lower_all(&changes).is_ok();
    floor.line.look_again(floor);
    lowered
}

fn staged(session: &Lease<Session>) -> OperationLease {
    admit(session, Some(0), false).expect("there is room for owners")
}

fn running(session: &Lease<Session>) -> OperationLease {
    admit(session, Some(0), true).expect("there is room to run")
}

/// A waiter that finds no room because a lowering holds it is granted once that is undone.
#[test]
fn an_undone_lowering_loses_no_waiter() {
    check("lowering::an_undone_lowering_loses_no_waiter", Bound::Preemptions(3), || {
        let anchor = model::lay(1, 4, 4);
        let session = model::open(&anchor);
        let waiter = staged(&session);
        let lowering = {
            let anchor = anchor.clone();
            thread::spawn(move || lower(&anchor, 0, true))
        };
        enter(&anchor.shared().floor, &waiter);
        assert!(!lowering.join().unwrap(), "it was undone");
        assert_eq!(step(&waiter), Step::Granted, "it waits, and all the room is there");
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

/// The same at a tenant's word, which the line looks at only when it is told to.
#[test]
fn an_undone_lowering_of_a_tenant_loses_no_waiter() {
    check("lowering::an_undone_lowering_of_a_tenant_loses_no_waiter", Bound::Preemptions(3), || {
        let anchor = model::lay(4, 1, 4);
        let session = model::open(&anchor);
        let waiter = staged(&session);
        let lowering = {
            let anchor = anchor.clone();
            thread::spawn(move || {
                let floor = &anchor.shared().floor;
                let to_none = |word, scope, dimension| Change { word, scope, dimension, limit: 0 };
                let changes = [
                    to_none(&*floor.tenants[0] as &dyn Lower, Scope::Tenant(0), PoolsRunningPerTenant),
                    to_none(&Late, Scope::Tenant(0), PoolsRequestsPerTenant),
                ];
                assert!(lower_all(&changes).is_err());
                floor.line.look_again(floor);
            })
        };
        enter(&anchor.shared().floor, &waiter);
        lowering.join().unwrap();
        assert_eq!(step(&waiter), Step::Granted, "it waits, and all the room is there");
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}

/// One unit comes free: the waiter is granted it, or the lowering takes it away, never both. Either way the next unit is the
/// waiter's.
#[test]
fn lowering_meets_grant() {
    check("lowering::lowering_meets_grant", Bound::Preemptions(3), || {
        let anchor = model::lay(2, 4, 4);
        let session = model::open(&anchor);
        let (first, second) = (running(&session), running(&session));
        let waiter = staged(&session);
        enter(&anchor.shared().floor, &waiter);
        assert_eq!(step(&waiter), Step::Queued);
        let releaser = thread::spawn(move || drop_front(first));
        let lowered = lower(&anchor, 1, false);
        releaser.join().unwrap();
        let granted = step(&waiter) == Step::Granted;
        assert!(granted != lowered, "the unit is the waiter's, or gone");
        let used = anchor.shared().floor.node.snapshot().pool_running;
        assert_eq!(used, 1 + u32::from(granted));
        drop_front(second);
        assert_eq!(step(&waiter), Step::Granted, "one is left for it, whatever the limit");
        drop_front(waiter);
        model::assert_zero(&anchor);
    });
}
