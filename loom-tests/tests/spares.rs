//! Models of the blocks that operations keep ready: `mem::arena::spare`, invariants V1 to V4, and `queue::spares`, D1 to D3.
#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use latent_capabilities::model::account::bytes::{BytesUse, BytesWord, Side, Units};
use latent_capabilities::model::mem::arena::{
    Anchor, Ending, Lease, Leased, Nest, Occupant, Returns, Root, RootPin,
};
use latent_capabilities::model::mem::blocks::{Block, Blocks, Scan};
use latent_capabilities::model::queue::spares::Spares;
use loom::thread;
use loom_tests::{Bound, check};

/// The smallest block, of which there is one.
const SIZE: usize = 512;
const UNIT: Units = Units::of_block(SIZE);

struct Ground {
    calls: Nest<Call>,
    bytes: BytesWord,
    blocks: Blocks<u32>,
    spares: Spares,
    calls_ended: std::sync::Arc<AtomicUsize>,
}

#[derive(Default)]
struct Session;

#[derive(Default)]
struct Call;

impl Occupant for Session {
    type Pin = RootPin<Session, Ground>;

    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

impl Occupant for Call {
    type Pin = Lease<Session>;

    fn last_lease(ending: Ending<'_, Self>) {
        ending.shared().calls_ended.fetch_add(1, Relaxed);
        drop(ending.finish());
    }
}

impl Returns for Call {
    fn come_back(mut lease: Lease<Call>, mut block: Block) {
        if lease.has_room_for_spare() && lease.shared().blocks.wipe_if(&mut block, |_, _| true) {
            match lease.leave_spare(block) {
                Ok(()) => return,
                Err(both) => (lease, block) = both,
            }
        }
        give_back(lease, block);
    }
}

fn give_back(lease: Lease<Call>, block: Block) {
    lease.shared().blocks.give(block);
    lease.shared().bytes.give(Side::Staged, UNIT);
}

/// A node with room for one block, and a session of it.
fn node() -> (Anchor<Session, Ground>, Lease<Session>, std::sync::Arc<AtomicUsize>) {
    let calls_ended = std::sync::Arc::new(AtomicUsize::new(0));
    let ground = Ground {
        calls: Nest::new(2),
        bytes: BytesWord::new(SIZE as u64, 0, 1),
        blocks: Blocks::with_counts(&[1]).expect("boxes, under loom"),
        spares: Spares::new(2),
        calls_ended: calls_ended.clone(),
    };
    let broker = Root::new(1, ground);
    let session = broker.take(1, |_| {}).expect("a free session");
    (broker, session, calls_ended)
}

fn call(session: &Lease<Session>) -> Lease<Call> {
    Nest::<Call>::take(session.duplicate(), |ground| &ground.calls).expect("a free slot")
}

/// Takes the one block from the node.
fn take(lease: &Lease<Call>) -> Option<Leased<Call>> {
    let ground = lease.shared();
    ground.bytes.reserve(Side::Staged, UNIT).ok()?;
    let mut block = ground.blocks.take(SIZE).expect("charged, so one is free");
    assert!(ground.blocks.bytes(&block).iter().all(|&byte| byte == 0), "a block that was not wiped");
    ground.blocks.bytes_mut(&mut block, 0..1)[0] = 7;
    Some(Leased::new(lease.duplicate(), block))
}

/// As the library does before it refuses.
fn take_from_all(lease: &Lease<Call>) -> Option<Leased<Call>> {
    let ground = lease.shared();
    if let Some(taken) = take(lease) {
        return Some(taken);
    }
    loop {
        let tight = ground.spares.take_back(&ground.bytes, &ground.calls, give_back);
        match take(lease) {
            Some(taken) => return Some(taken),
            None if ground.bytes.tightness() == tight => return None,
            None => {}
        }
    }
}

fn assert_all_is_back(broker: &Anchor<Session, Ground>, ended: usize, calls_ended: &AtomicUsize) {
    let ground = broker.shared();
    assert_eq!(ground.bytes.snapshot(), BytesUse::default());
    assert_eq!(ground.blocks.scan(), Scan { free: 1, total: 1, dirty: 0 });
    assert_eq!(calls_ended.load(Relaxed), ended, "each call ends once");
}

/// D2, D3: a call begins to keep its block while another is refused for it: after the refusal nothing is kept.
#[test]
fn beginning_to_keep_meets_a_refusal() {
    check("spares_begin_meets_refusal", Bound::Preemptions(3), || {
        let (broker, session, ended) = node();
        let (first, second) = (call(&session), call(&session));
        let buffer = take(&first).expect("it is free");
        let keeper = thread::spawn(move || {
            let ground = first.shared();
            ground.spares.begin(&ground.bytes, &first, give_back);
            drop(buffer);
            first
        });
        let got = take_from_all(&second);
        let refused = got.is_none();
        drop(got);
        let first = keeper.join().unwrap();
        if refused {
            let direct = take(&second);
            assert!(direct.is_some(), "it was refused for what nobody uses");
        }
        first.shared().spares.end(&first, give_back);
        drop((first, second, session));
        assert_all_is_back(&broker, 2, &ended);
    });
}

/// D1, V1: a buffer comes back while its call ends and while somebody takes back: block, charge and lease are one's or another's,
/// and never lost.
#[test]
fn leaving_meets_the_end_and_a_taking_back() {
    check("spares_leave_meets_end", Bound::Preemptions(3), || {
        let (broker, session, ended) = node();
        let first = call(&session);
        let ground = first.shared();
        let buffer = take(&first).expect("it is free");
        ground.spares.begin(&ground.bytes, &first, give_back);
        let leaver = thread::spawn(move || drop(buffer));
        let other = session.duplicate();
        let sweeper = thread::spawn(move || {
            let ground = other.shared();
            ground.spares.take_back(&ground.bytes, &ground.calls, give_back);
        });
        ground.spares.end(&first, give_back);
        drop((first, session));
        leaver.join().unwrap();
        sweeper.join().unwrap();
        assert_all_is_back(&broker, 1, &ended);
    });
}

/// V1, V2: two threads of one call take what is kept, one of them leaves it again, and somebody takes back: it is never with two.
#[test]
fn what_is_kept_is_found_by_one() {
    check("spares_found_by_one", Bound::Preemptions(3), || {
        let (broker, session, ended) = node();
        let first = call(&session);
        let ground = first.shared();
        let buffer = take(&first).expect("it is free");
        ground.spares.begin(&ground.bytes, &first, give_back);
        drop(buffer);
        let find = |lease: &Lease<Call>| {
            let (lease, mut block) = lease.find_spare(|_| true)?;
            let bytes = lease.shared().blocks.bytes_mut(&mut block, 0..1);
            assert_eq!(bytes[0], 0, "what is kept is clean");
            bytes[0] = 7;
            Some(Leased::new(lease, block))
        };
        let theirs = first.duplicate();
        let other = thread::spawn(move || {
            drop(find(&theirs));
            drop(find(&theirs));
        });
        let mine = find(&first);
        drop(mine);
        ground.spares.take_back(&ground.bytes, &ground.calls, give_back);
        other.join().unwrap();
        ground.spares.end(&first, give_back);
        drop((first, session));
        assert_all_is_back(&broker, 1, &ended);
    });
}
