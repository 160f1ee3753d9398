//! Models of what meets at the words of scopes: marks and releases, tags and admissions, the one dial.
//!
//! `account::{node, tenant, provider, client, charge}`; library invariants 2 (ceiling), 5 (no loss), 6 (no newcomer
//! overtakes) and 7 (finality).
#![cfg(loom)]

use latent_capabilities::model::account::charge::{
    Held, Marks, Request, Scopes, move_to_running, release, reserve_now, reserve_staged,
};
use latent_capabilities::model::account::client::{ClientWord, Dial};
use latent_capabilities::model::account::dimension::Dimension;
use latent_capabilities::model::account::node::{NodeUnits, NodeWord};
use latent_capabilities::model::account::provider::{ProviderWord, TakenRunning};
use latent_capabilities::model::account::scope::{Blocked, Heed, RequestUnits, Scope};
use latent_capabilities::model::account::tenant::TenantWord;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

/// Most of these searches end: every execution there is.
const BOUND: Bound = Bound::Complete;
const TAG: u32 = 1;
const REQUEST: Request = Request::new(0, 0, TAG);

struct Words {
    node: NodeWord,
    tenant: TenantWord,
    provider: ProviderWord,
}

impl Words {
    /// Two requests everywhere; running units as given.
    fn new(node: u32, tenant: u32, provider: u32) -> Arc<Words> {
        let words = Words {
            node: NodeWord::new(4, 2, node),
            tenant: TenantWord::default(),
            provider: ProviderWord::default(),
        };
        assert!(words.node.open_pools(2, 2));
        assert!(words.tenant.open(2, tenant) && words.provider.open(2, provider));
        words.provider.swap_tag(0, TAG).unwrap();
        Arc::new(words)
    }

    fn scopes(&self) -> Scopes<'_> {
        Scopes { node: &self.node, tenant: &self.tenant, provider: &self.provider }
    }

    fn running(&self) -> [u32; 3] {
        [self.node.snapshot().running, self.tenant.snapshot().running, self.provider.snapshot().running]
    }
}

/// The releaser sees the mark, or the marker sees the room. Never neither: that would be a waiter nobody wakes.
#[test]
fn take_or_mark_vs_give() {
    check("take_or_mark_vs_give", BOUND, || {
        let node = Arc::new(NodeWord::new(1, 1, 1));
        node.reserve(NodeUnits::RUN_IO, Heed::Marks).unwrap();
        let turn = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.take_or_mark(NodeUnits::RUN_IO))
        };
        let marked = node.give(NodeUnits::RUN_IO).io_marked;
        let taken = turn.join().unwrap();
        assert_ne!(taken, marked);
    });
}

#[test]
fn take_or_mark_vs_give_at_tenant_and_provider() {
    check("take_or_mark_vs_give_at_tenant_and_provider", BOUND, || {
        let words = Words::new(2, 1, 1);
        reserve_now(&words.scopes(), Some(REQUEST)).unwrap();
        let turn = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let tenant = words.tenant.take_or_mark_running();
                (tenant, words.provider.take_or_mark_running(TAG, false))
            })
        };
        let marks = release(&words.scopes(), Some(REQUEST), Held::Running);
        let (tenant, provider) = turn.join().unwrap();
        assert_ne!(tenant, marks.tenant);
        assert_ne!(provider == TakenRunning::Yes, marks.provider);
        assert_ne!(provider, TakenRunning::Stale);
    });
}

/// A newcomer takes the unit before the mark is there, or not at all; if it has it, its own give sees the mark.
#[test]
fn a_newcomer_never_takes_a_unit_on_its_way() {
    check("a_newcomer_never_takes_a_unit_on_its_way", BOUND, || {
        let node = Arc::new(NodeWord::new(1, 1, 1));
        node.reserve(NodeUnits::RUN_IO, Heed::Marks).unwrap();
        // A waiter is marked: the unit that is given now is promised.
        assert!(!node.take_or_mark(NodeUnits::RUN_IO));
        let newcomer = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.reserve(NodeUnits::RUN_IO, Heed::Marks))
        };
        // The release, and the turn that it signals: the mark stays set while the unit is handed over.
        assert!(node.give(NodeUnits::RUN_IO).io_marked);
        assert!(node.take_or_mark(NodeUnits::RUN_IO), "the unit was for the waiter");
        node.unmark_io();
        let refused = newcomer.join().unwrap().unwrap_err();
        let (full, promised) = (Blocked::Full(Dimension::IoRunning), Blocked::Promised(Dimension::IoRunning));
        assert!(refused == full || refused == promised);
        assert_eq!(node.snapshot().running, 1);
    });
}

/// One unit, a release, a newcomer and the turn: whoever does not get it leaves a mark that somebody sees.
#[test]
fn a_waiter_is_never_lost_between_a_release_and_a_newcomer() {
    check("a_waiter_is_never_lost_between_a_release_and_a_newcomer", BOUND, || {
        let node = Arc::new(NodeWord::new(1, 1, 1));
        node.reserve(NodeUnits::RUN_IO, Heed::Marks).unwrap();
        let newcomer = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let taken = node.reserve(NodeUnits::RUN_IO, Heed::Marks).is_ok();
                taken.then(|| node.give(NodeUnits::RUN_IO).io_marked)
            })
        };
        let turn = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.take_or_mark(NodeUnits::RUN_IO))
        };
        let first = node.give(NodeUnits::RUN_IO).io_marked;
        let second = newcomer.join().unwrap();
        let taken = turn.join().unwrap();
        assert!(taken || first || second == Some(true), "a marked waiter and nobody to signal");
        assert!(!(taken && (first || second == Some(true))), "nobody waits any more");
    });
}

/// A reservation that fails at the last word gives back what it took on the way, and that is a release: the turn that
/// found the tenant full because of it is signalled by the marks that the refusal carries.
#[test]
fn a_rollback_is_a_release() {
    check("a_rollback_is_a_release", BOUND, || {
        let words = Words::new(1, 1, 1);
        let rival = {
            let words = Arc::clone(&words);
            thread::spawn(move || reserve_now(&words.scopes(), None))
        };
        let turn = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.tenant.take_or_mark_running())
        };
        let mine = reserve_now(&words.scopes(), Some(REQUEST));
        let rival = rival.join().unwrap();
        let taken = turn.join().unwrap();
        let by_turn = u32::from(taken);
        match mine {
            Ok(()) => {
                assert!(!taken && rival.is_err(), "one unit of the node, one of the tenant");
                assert_eq!(words.running(), [1, 1, 1]);
                let marks = release(&words.scopes(), Some(REQUEST), Held::Running);
                assert_eq!(marks, Marks { tenant: true, ..Marks::NONE });
            }
            Err(refused) => {
                // Nothing is held, and if the turn had to mark, this refusal tells.
                assert_eq!(words.running()[1..], [by_turn, 0]);
                assert!(taken || refused.marks.tenant, "a marked tenant and nobody to signal");
                match refused.scope {
                    Scope::Node => assert_eq!(refused.blocked, Blocked::Full(Dimension::IoRunning)),
                    Scope::Tenant(_) => assert!(taken || refused.blocked != Blocked::Closed),
                    other => panic!("refused at {other:?}"),
                }
                assert!(rival.is_ok() || taken);
            }
        }
    });
}

/// Two requests over three words with one unit each: one gets all of them, or both back off; nothing stays behind.
#[test]
fn two_reservations_over_three_words() {
    check("two_reservations_over_three_words", BOUND, || {
        let words = Words::new(1, 2, 1);
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || reserve_now(&words.scopes(), Some(REQUEST)).is_ok())
        };
        let mine = reserve_now(&words.scopes(), Some(REQUEST)).is_ok();
        let other = other.join().unwrap();
        assert!(!(mine && other));
        let held = u32::from(mine) + u32::from(other);
        assert_eq!(words.running(), [held; 3]);
        if held == 1 {
            assert!(release(&words.scopes(), Some(REQUEST), Held::Running).none());
        }
        assert_eq!(words.running(), [0; 3]);
        reserve_now(&words.scopes(), Some(REQUEST)).unwrap();
    });
}

/// Moving from the line to running is one step at the node: no snapshot shows the operation in neither state.
#[test]
fn moving_to_running_has_no_gap() {
    check("moving_to_running_has_no_gap", BOUND, || {
        let words = Words::new(1, 1, 1);
        reserve_staged(&words.scopes(), Some(REQUEST)).unwrap();
        let reader = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                for _ in 0..2 {
                    let seen = words.node.snapshot();
                    assert_eq!((seen.queued + seen.running, seen.pending + seen.pool_running), (1, 1));
                    assert_eq!(seen.owners, 1);
                }
            })
        };
        move_to_running(&words.scopes(), Some(REQUEST)).unwrap();
        reader.join().unwrap();
        assert_eq!(words.running(), [1, 1, 1]);
    });
}

/// Once the tag was swapped nothing is reserved for the old epoch; what was reserved before is there to be found.
#[test]
fn tag_swap_vs_reserve() {
    check("tag_swap_vs_reserve", Bound::Preemptions(4), || {
        let words = Words::new(2, 2, 2);
        let old = {
            let words = Arc::clone(&words);
            thread::spawn(move || reserve_staged(&words.scopes(), Some(REQUEST)))
        };
        let turn = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.provider.take_or_mark_running(TAG, false))
        };
        words.provider.swap_tag(TAG, TAG + 1).unwrap();
        let found = words.provider.snapshot();
        let (old, turn) = (old.join().unwrap(), turn.join().unwrap());
        // A request that got past the provider before the swap keeps it: its owner was let in by the old tag.
        assert_eq!(found.requests, u32::from(old.is_ok()), "reserved on the old tag after the swap");
        assert_eq!(found.running, u32::from(turn == TakenRunning::Yes));
        if let Err(refused) = old {
            assert_eq!((refused.scope, refused.blocked), (Scope::Provider(0), Blocked::Stale));
            assert!(refused.marks.none());
        }
        let new = Request::new(REQUEST.tenant(), REQUEST.provider(), TAG + 1);
        reserve_staged(&words.scopes(), Some(new)).unwrap();
    });
}

/// Two swaps expect the same epoch: one is installed, the other learns which.
#[test]
fn tag_swap_vs_tag_swap() {
    check("tag_swap_vs_tag_swap", BOUND, || {
        let words = Words::new(1, 1, 1);
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.provider.swap_tag(TAG, 2))
        };
        let taker = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.provider.reserve(RequestUnits::Requests, TAG, Heed::Nothing).is_ok())
        };
        let mine = words.provider.swap_tag(TAG, 3);
        let other = other.join().unwrap();
        let taken = taker.join().unwrap();
        match mine {
            Ok(()) => assert_eq!((other, words.provider.tag()), (Err(3), 3)),
            Err(found) => assert_eq!((found, other, words.provider.tag()), (2, Ok(()), 2)),
        }
        assert_eq!(words.provider.snapshot().requests, u32::from(taken));
    });
}

/// A closed provider gives nothing, and what it gave before is counted when it was closed.
#[test]
fn provider_close_vs_turn() {
    check("provider_close_vs_turn", BOUND, || {
        let words = Words::new(1, 1, 1);
        let turn = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.provider.take_or_mark_running(TAG, false))
        };
        let newcomer = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.provider.reserve(RequestUnits::Running, TAG, Heed::Marks))
        };
        words.provider.close();
        let found = words.provider.snapshot().running;
        let taken = u32::from(turn.join().unwrap() == TakenRunning::Yes);
        let taken = taken + u32::from(newcomer.join().unwrap().is_ok());
        assert_eq!(taken, found);
    });
}

fn client(connections: u32) -> Arc<ClientWord> {
    let client = ClientWord::default();
    assert!(client.open(connections));
    Arc::new(client)
}

#[test]
fn one_of_two_gets_the_dial() {
    check("one_of_two_gets_the_dial", BOUND, || {
        let client = client(2);
        let other = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial(0, Heed::Marks))
        };
        let mine = client.reserve_dial(0, Heed::Marks);
        let other = other.join().unwrap();
        assert!((mine, other) == (Ok(()), Err(Dial::Busy)) || (mine, other) == (Err(Dial::Busy), Ok(())));
        assert_eq!((client.room(), client.connections()), (1, 1));
    });
}

/// A failed dial starts its pause in the step that lets the next one look: no dial slips in between.
#[test]
fn dial_failed_vs_dial() {
    check("dial_failed_vs_dial", BOUND, || {
        let client = client(1);
        client.reserve_dial(0, Heed::Marks).unwrap();
        let early = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial(12, Heed::Marks))
        };
        let late = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial(15, Heed::Marks))
        };
        let paused = client.dial_failed(10, 5, 5);
        assert_eq!(paused.until_ms, 15);
        let (early, late) = (early.join().unwrap(), late.join().unwrap());
        assert!(matches!(early, Err(Dial::Busy | Dial::Backoff(15))), "a dial inside the pause");
        assert!(matches!(late, Ok(()) | Err(Dial::Busy)));
        assert_eq!(client.connections(), u32::from(late.is_ok()));
    });
}

/// Who waits to acquire is seen by whoever ends the dial, or sees that it has ended.
#[test]
fn acquire_vs_end_of_a_dial() {
    check("acquire_vs_end_of_a_dial", BOUND, || {
        let client = client(2);
        client.reserve_dial(0, Heed::Marks).unwrap();
        let waiter = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial_or_mark(0))
        };
        let newcomer = {
            let client = Arc::clone(&client);
            thread::spawn(move || {
                let taken = client.reserve_dial(0, Heed::Marks).is_ok();
                taken.then(|| client.dial_done())
            })
        };
        let first = client.dial_done();
        let second = newcomer.join().unwrap();
        let taken = waiter.join().unwrap();
        match taken {
            Ok(()) => assert!(!first && second != Some(true)),
            Err(Dial::Busy) => assert!(first || second == Some(true), "nobody signals the waiter"),
            // Both connections exist by now: it waits for one of them to go.
            Err(Dial::Full) => assert!(second.is_some() && client.give_connection()),
            Err(other) => panic!("{other:?}"),
        }
    });
}

/// The same for a connection that is destroyed, with a newcomer who wants its unit.
#[test]
fn acquire_vs_destruction() {
    check("acquire_vs_destruction", BOUND, || {
        let client = client(1);
        client.reserve_dial(0, Heed::Marks).unwrap();
        assert!(!client.dial_done());
        let waiter = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial_or_mark(0))
        };
        let newcomer = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial(0, Heed::Marks).is_ok())
        };
        let marked = client.give_connection();
        let (waiter, newcomer) = (waiter.join().unwrap(), newcomer.join().unwrap());
        match waiter {
            Ok(()) => assert!(!marked && !newcomer),
            // Either the give saw the mark, or the newcomer was before it and will see it when its dial ends.
            Err(Dial::Busy | Dial::Full) => assert!(marked != newcomer && (marked || client.dial_done())),
            Err(other) => panic!("{other:?}"),
        }
    });
}

/// Closed in the step that a dial would start in: after close returned no dial starts.
#[test]
fn client_close_vs_dial() {
    check("client_close_vs_dial", BOUND, || {
        let client = client(2);
        let dial = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial(0, Heed::Marks))
        };
        let turn = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reserve_dial_or_mark(0))
        };
        let before = client.close();
        let (dial, turn) = (dial.join().unwrap(), turn.join().unwrap());
        assert!(!(dial.is_ok() && turn.is_ok()));
        assert_eq!(dial.is_ok() || turn.is_ok(), before.dialing);
        assert_eq!(client.reserve_dial_or_mark(0), Err(Dial::Closed));
    });
}
