//! Models of the slot word and of the head words: `mem::arena`, invariants M1 to M11.
//!
//! What an occupant holds is read and written here by relaxed loads and stores. Such a pair loses an update, or reads an old
//! value, unless the arena's own steps order the threads: so a tally that comes out right shows that they do.
#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use latent_capabilities::model::mem::arena::{
    Anchor, Bits, Ending, Lease, Nest, Occupant, Root, RootPin, Sheaf,
};
use latent_capabilities::model::mem::kept::Kept;
use latent_capabilities::model::sync::atomic::{AtomicBool, AtomicU64};
use latent_capabilities::model::sync::order;
use loom::thread;
use loom_tests::{Bound, check, check_few};

/// Kept outside of the model's eyes: only read when all threads are joined.
#[derive(Default)]
struct Seen {
    calls_ended: AtomicUsize,
    sessions_ended: AtomicUsize,
    freed: AtomicUsize,
    freed_by_ending: AtomicUsize,
    noted: AtomicUsize,
}

struct Ground {
    calls: Nest<Call>,
    closed: AtomicBool,
    /// Written by holders, read by whoever frees the root.
    note: AtomicU64,
    seen: std::sync::Arc<Seen>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.seen.freed.fetch_add(1, Relaxed);
        self.seen.noted.store(self.note.load(order::COUNT) as usize, Relaxed);
    }
}

#[derive(Default)]
struct Session {
    tally: AtomicU64,
}

impl Session {
    fn bump(&self) {
        bump(&self.tally);
    }
}

#[derive(Default)]
struct Call {
    tally: AtomicU64,
    one: AtomicU64,
    two: AtomicU64,
    /// Written by whoever holds the slot without a lease.
    link: AtomicU64,
}

/// One more, by a load and a store: exact only if whoever did it before is ordered before.
fn bump(tally: &AtomicU64) {
    tally.store(tally.load(order::COUNT) + 1, order::COUNT);
}

impl Occupant for Session {
    type Pin = RootPin<Session, Ground>;

    fn last_lease(ending: Ending<'_, Self>) {
        ending.shared().seen.sessions_ended.fetch_add(1, Relaxed);
        drop(ending.finish());
    }
}

impl Occupant for Call {
    type Pin = Lease<Session>;

    fn last_lease(ending: Ending<'_, Self>) {
        // Whatever any holder wrote is here for the last one.
        let sum = ending.one.load(order::COUNT) + ending.two.load(order::COUNT);
        ending.tally.store(ending.tally.load(order::COUNT) + sum, order::COUNT);
        let seen = ending.shared().seen.clone();
        seen.calls_ended.fetch_add(1, Relaxed);
        let (pin, freed) = ending.finish_telling();
        seen.freed_by_ending.fetch_add(usize::from(freed), Relaxed);
        drop(pin);
    }
}

fn broker(slots: usize) -> (Anchor<Session, Ground>, std::sync::Arc<Seen>) {
    let seen = std::sync::Arc::new(Seen::default());
    let ground = Ground {
        calls: Nest::new(slots),
        closed: AtomicBool::new(false),
        note: AtomicU64::new(0),
        seen: seen.clone(),
    };
    (Root::new(slots, ground), seen)
}

fn session(broker: &Anchor<Session, Ground>) -> Lease<Session> {
    broker.take(u32::MAX, |_| {}).expect("a free session")
}

fn call(session: Lease<Session>) -> Option<Lease<Call>> {
    Nest::<Call>::take(session, |ground| &ground.calls).ok()
}

/// M3, M5: one slot, two takers: never both at once, and who comes after finds what the other left.
#[test]
fn last_slot_two_takers() {
    check("last_slot_two_takers", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let use_it = |broker: &Anchor<Session, Ground>| {
            broker.take(1, |_| {}).map(|session| session.bump()).is_ok() as u64
        };
        let other = broker.clone();
        let thread = thread::spawn(move || use_it(&other));
        let took = use_it(&broker) + thread.join().unwrap();
        assert!(took >= 1, "one of them finds the slot free");
        let last = session(&broker);
        assert_eq!((last.tally.load(order::COUNT), last.incarnation()), (took, took));
        assert_eq!(seen.sessions_ended.load(Relaxed) as u64, took);
        assert_eq!(broker.live(), 1);
    });
}

/// M2, M7: the limit is part of the step that takes, so two slots and a limit of one are one slot.
#[test]
fn limit_two_takers() {
    check("limit_two_takers", Bound::Complete, || {
        let (broker, _) = broker(2);
        let other = broker.clone();
        let thread = thread::spawn(move || {
            let taken = other.take(1, |_| {}).ok();
            assert!(other.live() <= 1);
            taken.is_some()
        });
        let mine = broker.take(1, |_| {}).ok();
        assert!(broker.live() <= 1);
        let theirs = thread.join().unwrap();
        assert!(mine.is_some() || theirs);
        drop(mine);
        assert_eq!(broker.live(), 0);
    });
}

/// M2, M3: a weak name never reaches the next occupant of the slot.
#[test]
fn give_then_take_new_generation() {
    check("give_then_take_new_generation", Bound::Complete, || {
        let (broker, _) = broker(1);
        let first = broker.take(1, |session| session.tally.store(10, order::COUNT)).unwrap();
        let name = (first.index(), first.incarnation());
        let other = broker.clone();
        let thread = thread::spawn(move || {
            if let Some(lease) = other.upgrade(name.0, name.1) {
                assert_eq!((lease.incarnation(), lease.tally.load(order::COUNT)), (0, 10));
            }
        });
        drop(first);
        // The slot is free unless the other thread is the one to end it.
        if let Ok(second) = broker.take(1, |session| session.tally.store(11, order::COUNT)) {
            assert_eq!((second.incarnation(), second.tally.load(order::COUNT)), (1, 11));
        }
        thread.join().unwrap();
        assert_eq!(broker.live(), 0);
    });
}

/// M2, M5: an upgrade either finds a lease or none; the slot ends once.
#[test]
fn upgrade_vs_last_drop() {
    check("upgrade_vs_last_drop", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let first = session(&broker);
        let other = broker.clone();
        let thread = thread::spawn(move || {
            if let Some(lease) = other.upgrade_live(0) {
                lease.bump();
            }
        });
        drop(first);
        thread.join().unwrap();
        assert_eq!((seen.sessions_ended.load(Relaxed), broker.live()), (1, 0));
        assert_eq!(session(&broker).incarnation(), 1);
    });
}

/// M4: the slot on top comes back while a taker still looks at it. Without the tag its stale `next` would be believed.
#[test]
fn free_list_aba() {
    check("free_list_aba", Bound::Preemptions(3), || {
        let (broker, _) = broker(3);
        let root = session(&broker);
        let take =
            |session: &Lease<Session>| call(session.duplicate()).expect("three slots, three at most in use");
        let theirs = root.duplicate();
        let thread = thread::spawn(move || {
            let top = take(&theirs);
            let under = take(&theirs);
            drop(top);
            under
        });
        let mine = take(&root);
        let under = thread.join().unwrap();
        let third = take(&root);
        assert!(call(root.duplicate()).is_none(), "all three are in use");
        let mut indices = [mine.index(), under.index(), third.index()];
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2]);
    });
}

/// M4, M5 with three threads: two take and give, one moves the top away and back.
#[test]
fn free_list_three_threads() {
    check("free_list_three_threads", Bound::Preemptions(2), || {
        let (broker, _) = broker(3);
        let root = session(&broker);
        let visit = |session: &Lease<Session>| {
            let call = call(session.duplicate()).expect("three slots, three threads");
            bump(&call.tally);
        };
        let threads =
            [root.duplicate(), root.duplicate()].map(|theirs| thread::spawn(move || visit(&theirs)));
        visit(&root);
        for thread in threads {
            thread.join().unwrap();
        }
        let all: Vec<_> = (0..3).map(|_| call(root.duplicate()).expect("all are free")).collect();
        assert_eq!(all.iter().map(|call| call.tally.load(order::COUNT)).sum::<u64>(), 3);
        assert_eq!(all.iter().map(|call| call.incarnation()).sum::<u64>(), 3);
        assert!(call(root).is_none());
    });
}

/// M1, M2: the last lease sees what every other holder wrote, and so does the next occupant.
#[test]
fn lease_hands_over_contents() {
    check_few("lease_hands_over_contents", "one step each", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let first = call(session(&broker)).unwrap();
        let second = first.duplicate();
        let thread = thread::spawn(move || second.two.store(20, order::COUNT));
        first.one.store(1, order::COUNT);
        drop(first);
        thread.join().unwrap();
        assert_eq!(seen.calls_ended.load(Relaxed), 1);
        assert_eq!(broker.shared().calls.peek(0).tally.load(order::COUNT), 21);
        assert_eq!(broker.live(), 0);
    });
}

/// The same with three, and with a weak handle that joins in.
#[test]
fn lease_hands_over_contents_three() {
    check("lease_hands_over_contents_three", Bound::Preemptions(3), || {
        let (broker, seen) = broker(1);
        let first = call(session(&broker)).unwrap();
        let second = first.duplicate();
        let looking = broker.clone();
        let threads = [
            thread::spawn(move || second.two.store(20, order::COUNT)),
            thread::spawn(move || drop(looking.shared().calls.upgrade(0, 0))),
        ];
        first.one.store(1, order::COUNT);
        drop(first);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(seen.calls_ended.load(Relaxed), 1);
        assert_eq!(broker.shared().calls.peek(0).tally.load(order::COUNT), 21);
    });
}

fn held_call(session: Lease<Session>) -> Lease<Call> {
    let call = call(session).expect("a free call");
    call.word().update(|bits| Some(bits.with_held(true).with(0b11))).expect("a step");
    call
}

/// M5: of the ending and the release of the hold exactly one gives the slot.
#[test]
fn hold_vs_last_lease() {
    check("hold_vs_last_lease", Bound::Complete, || {
        let (broker, seen) = broker(2);
        let root = session(&broker);
        let held = held_call(root.duplicate());
        let line = root.duplicate();
        let thread = thread::spawn(move || line.shared().calls.release_hold(0, 0b01));
        held.one.store(5, order::COUNT);
        drop(held);
        thread.join().unwrap();
        assert_eq!(seen.calls_ended.load(Relaxed), 1);
        let first = call(root.duplicate()).expect("it was given back");
        let second = call(root.duplicate()).expect("the other one");
        assert!(call(root.duplicate()).is_none(), "and it was given back once");
        assert_eq!((first.index(), first.incarnation(), second.incarnation()), (0, 1, 0));
        assert_eq!(first.tally.load(order::COUNT), 5);
    });
}

/// M3, M5 with a taker waiting for the slot.
#[test]
fn hold_vs_last_lease_vs_taker() {
    check("hold_vs_last_lease_vs_taker", Bound::Preemptions(3), || {
        let (broker, seen) = broker(1);
        let root = session(&broker);
        let held = held_call(root.duplicate());
        let line = root.duplicate();
        let releaser = thread::spawn(move || {
            let calls = &line.shared().calls;
            calls.peek(0).link.store(9, order::COUNT);
            calls.release_hold(0, 0b01)
        });
        let theirs = root.duplicate();
        let taker = thread::spawn(move || {
            call(theirs).map(|call| {
                assert_eq!((call.incarnation(), call.tally.load(order::COUNT)), (1, 5));
                assert_eq!(call.link.load(order::COUNT), 9, "what was written under the hold");
                assert!(!call.word().load().is_held() && call.word().load().user() == 0);
            })
        });
        held.one.store(5, order::COUNT);
        drop(held);
        releaser.join().unwrap();
        let taken = usize::from(taker.join().unwrap().is_some());
        assert_eq!(seen.calls_ended.load(Relaxed), 1 + taken);
        assert_eq!(call(root.duplicate()).expect("free").incarnation(), 1 + taken as u64);
    });
}

/// The line grants a waiter that is just leaving: the step gets a lease or none, and the slot ends once.
#[test]
fn step_vs_last_drop() {
    check("step_vs_last_drop", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let root = session(&broker);
        let held = held_call(root.duplicate());
        let line = root.duplicate();
        let thread = thread::spawn(move || {
            let calls = &line.shared().calls;
            match calls.step(0, |bits| Some(bits.with(0b100).with_held(false)), 0) {
                Ok(stepped) => stepped.lease.two.store(20, order::COUNT),
                Err(bits) => {
                    assert!(bits.leases() == 0 && bits.is_held());
                    calls.release_hold(0, 0);
                }
            }
        });
        held.one.store(1, order::COUNT);
        drop(held);
        thread.join().unwrap();
        assert_eq!(seen.calls_ended.load(Relaxed), 1);
        let next = call(root).expect("free");
        assert_eq!(next.incarnation(), 1);
        assert!(matches!(next.tally.load(order::COUNT), 1 | 21));
    });
}

/// M5: the line lets go by a step that it may also refuse to take; the ending tells whether the slot was free.
#[test]
fn step_held_vs_last_lease() {
    check("step_held_vs_last_lease", Bound::Complete, || {
        let (broker, seen) = broker(2);
        let root = session(&broker);
        let held = held_call(root.duplicate());
        let line = root.duplicate();
        let thread = thread::spawn(move || {
            let leave = |bits: Bits| Some(bits.without(0b01).with_held(false));
            line.shared().calls.step_held(0, leave).expect("a step").freed
        });
        held.one.store(5, order::COUNT);
        drop(held);
        let by_line = thread.join().unwrap();
        let by_ending = seen.freed_by_ending.load(Relaxed) == 1;
        assert!(by_line != by_ending, "exactly one of them gave the slot");
        let first = call(root.duplicate()).expect("it was given back");
        let second = call(root.duplicate()).expect("the other one");
        assert!(call(root.duplicate()).is_none(), "and it was given back once");
        assert_eq!((first.index(), first.incarnation(), second.incarnation()), (0, 1, 0));
    });
}

/// M2: leases that are counted, or dropped, in one step with the occupant's own count.
#[test]
fn counted_duplicates_vs_release() {
    check("counted_duplicates_vs_release", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let root = session(&broker);
        let call = call(root).unwrap();
        let one_more = |call: &Lease<Call>| {
            call.duplicate_if(|bits| (bits.user() < 2).then(|| bits.with_user(bits.user() + 1)))
        };
        let first = one_more(&call).expect("none yet");
        let other = call.duplicate();
        let thread = thread::spawn(move || {
            let second = one_more(&other);
            drop(other);
            second.map(|lease| lease.release_with(1)).is_ok()
        });
        first.release_with(1);
        let third = one_more(&call).map(|lease| lease.release_with(1)).is_ok();
        assert!(thread.join().unwrap() && third, "never more than two at a time");
        let bits = call.word().load();
        assert_eq!((bits.leases(), bits.user()), (1, 0));
        call.release_with(0);
        assert_eq!(seen.calls_ended.load(Relaxed), 1);
    });
}

/// M7: the anchor and the last lease go at once; the root is freed once, and not before both.
#[test]
fn root_freed_once() {
    check_few("root_freed_once", "two steps and one", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let lease = session(&broker);
        let seen_by_lease = seen.clone();
        let thread = thread::spawn(move || {
            assert_eq!(seen_by_lease.freed.load(Relaxed), 0);
            lease.shared().note.store(7, order::COUNT);
            drop(lease);
        });
        assert_eq!(seen.freed.load(Relaxed), 0);
        drop(broker);
        thread.join().unwrap();
        assert_eq!((seen.freed.load(Relaxed), seen.sessions_ended.load(Relaxed)), (1, 1));
        assert_eq!(seen.noted.load(Relaxed), 7, "whoever frees sees what the other one wrote");
    });
}

/// M7 down the chain of pins: two leases of a call, its session and the anchor, in three threads.
#[test]
fn root_freed_once_by_the_chain() {
    check("root_freed_once_by_the_chain", Bound::Preemptions(3), || {
        let (broker, seen) = broker(1);
        let one = call(session(&broker)).unwrap();
        let two = one.duplicate();
        let threads = [thread::spawn(move || drop(one)), thread::spawn(move || drop(two))];
        drop(broker);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(seen.freed.load(Relaxed), 1);
        assert_eq!((seen.calls_ended.load(Relaxed), seen.sessions_ended.load(Relaxed)), (1, 1));
    });
}

/// M7: a lease makes a new anchor while the last one goes.
#[test]
fn anchor_from_a_pin_vs_last_anchor() {
    check("anchor_from_a_pin_vs_last_anchor", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let lease = session(&broker);
        let thread = thread::spawn(move || {
            let anchor = lease.pin().anchor();
            drop(lease);
            assert_eq!(anchor.live(), 0);
            drop(anchor);
        });
        drop(broker);
        thread.join().unwrap();
        assert_eq!(seen.freed.load(Relaxed), 1);
    });
}

/// K1, K2 of `mem::kept`: a reader sees the whole value or none.
#[test]
fn kept_put_vs_get() {
    check("kept_put_vs_get", Bound::Complete, || {
        let kept = loom::sync::Arc::new(Kept::<u64>::empty());
        let reader = loom::sync::Arc::clone(&kept);
        let thread = thread::spawn(move || reader.get().copied());
        kept.put(7);
        assert!(matches!(thread.join().unwrap(), None | Some(7)));
        assert_eq!(kept.get(), Some(&7));
    });
}

/// A closer marks every slot and then looks for leases; a taker publishes and then looks for the mark. One of them
/// sees the other.
#[test]
fn mark_vs_take() {
    check("mark_vs_take", Bound::Complete, || {
        const SEEN: u64 = 0b1000;
        let (broker, _) = broker(1);
        let root = session(&broker);
        let closer = root.duplicate();
        let thread = thread::spawn(move || {
            let ground = closer.shared();
            ground.closed.store(true, order::PUBLISH);
            let reached = ground.calls.word(0).set(SEEN).leases() > 0;
            reached && ground.calls.upgrade_live(0).is_some()
        });
        let taken =
            Nest::<Call>::take_with(root.duplicate(), |ground| &ground.calls, 0, |_| {}).expect("free");
        let saw = taken.before.has(SEEN);
        if saw {
            assert!(taken.lease.shared().closed.load(order::OBSERVE), "who sees the mark sees the flag");
        }
        let reached = thread.join().unwrap();
        assert!(saw || reached, "they missed each other");
    });
}

/// M2: leases that are counted together and given out one by one end their slot once, whoever goes last.
#[test]
fn a_sheaf_meets_the_last_lease() {
    check("arena_sheaf", Bound::Complete, || {
        let (broker, seen) = broker(1);
        let call = call(session(&broker)).expect("a free call");
        let mut sheaf = Sheaf::new();
        // One, then two, of which one is left.
        let given = [sheaf.take(&call), sheaf.take(&call)];
        let other = thread::spawn(move || {
            let [first, second] = given;
            first.one.store(1, order::COUNT);
            drop((first, second));
        });
        call.two.store(1, order::COUNT);
        drop(call);
        drop(sheaf);
        other.join().unwrap();
        assert_eq!(seen.calls_ended.load(Relaxed), 1);
        drop(broker);
        assert_eq!((seen.sessions_ended.load(Relaxed), seen.freed.load(Relaxed)), (1, 1));
    });
}
