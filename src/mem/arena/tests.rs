//! The arena by one thread, and by several that race for real. What races can do in principle is searched by the models
//! in `loom-tests/tests/arena.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::foreign::foreign;
use crate::mem::kept::Kept;
use crate::sync::Zero;

/// A small node: sessions in the root, calls in a nest of its shared state, chunks in another.
struct Ground {
    calls: Nest<Call>,
    chunks: Nest<Chunk>,
    ended: AtomicUsize,
    /// Dropped with the ground, and only then.
    freed: Arc<AtomicUsize>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Relaxed);
    }
}

#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
struct Session {
    number: AtomicU64,
    label: Kept<Arc<str>>,
    /// Not a cell: lent mutably by the ending.
    visits: u64,
}

impl Occupant for Session {
    type Pin = RootPin<Session, Ground>;

    fn last_lease(mut ending: Ending<'_, Self>) {
        ending.shared().ended.fetch_add(1, Relaxed);
        let session = ending.get_mut();
        session.visits += 1;
        let label = session.label.take();
        drop(ending.finish());
        drop(label);
    }
}

#[derive(Zero)]
struct Call {
    number: AtomicU64,
    panics: AtomicU64,
}

impl Occupant for Call {
    type Pin = Lease<Session>;

    fn last_lease(ending: Ending<'_, Self>) {
        ending.shared().ended.fetch_add(1, Relaxed);
        assert_eq!(ending.bits().leases(), 1, "the last one is still counted");
        assert!(ending.panics.load(Relaxed) == 0, "told to panic");
        drop(ending.finish());
    }
}

#[derive(Zero)]
struct Chunk {
    _bytes: [u8; 24],
}

impl Occupant for Chunk {
    type Pin = Lease<Call>;

    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

type Broker = Anchor<Session, Ground>;

fn broker(slots: usize) -> (Broker, Arc<AtomicUsize>) {
    let freed = Arc::new(AtomicUsize::new(0));
    let ground = Ground {
        calls: Nest::new(slots),
        chunks: Nest::new(slots),
        ended: AtomicUsize::new(0),
        freed: freed.clone(),
    };
    (Root::new(slots, ground), freed)
}

fn session(broker: &Broker) -> Lease<Session> {
    broker.take(u32::MAX, |_| {}).expect("a free session")
}

fn call(session: Lease<Session>) -> Lease<Call> {
    Nest::<Call>::take(session, |ground| &ground.calls).expect("a free call")
}

#[test]
fn handles_are_one_pointer() {
    assert_eq!(size_of::<Lease<Call>>(), 8);
    assert_eq!(size_of::<Option<Lease<Call>>>(), 8);
    assert_eq!(size_of::<Option<RootPin<Session, Ground>>>(), 8);
}

#[test]
fn a_limit_and_the_slots_both_bound_what_is_in_use() {
    let (broker, _) = broker(3);
    let one = broker.take(2, |_| {}).expect("below the limit");
    let two = broker.take(2, |_| {}).expect("below the limit");
    assert_eq!(broker.take(2, |_| {}).err(), Some(Full));
    let three = broker.take(9, |_| {}).expect("a slot is free");
    assert_eq!(broker.take(9, |_| {}).err(), Some(Full));
    assert_eq!((broker.live(), broker.slots()), (3, 3));
    drop(two);
    assert_eq!(broker.live(), 2);
    drop((one, three));
    assert_eq!((broker.live(), broker.shared().ended.load(Relaxed)), (0, 3));
}

#[test]
fn slots_come_back_last_in_first_out_and_each_once() {
    let (broker, _) = broker(4);
    let taken: Vec<_> = (0..4).map(|_| session(&broker)).collect();
    assert_eq!(taken.iter().map(Lease::index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(taken.iter().all(|lease| lease.incarnation() == 0));
    for lease in taken {
        drop(lease);
    }
    let again: Vec<_> = (0..4).map(|_| session(&broker)).collect();
    assert_eq!(again.iter().map(Lease::index).collect::<Vec<_>>(), [3, 2, 1, 0]);
    assert!(again.iter().all(|lease| lease.incarnation() == 1));
}

#[test]
fn a_weak_name_reaches_its_occupant_and_no_other() {
    let (broker, _) = broker(2);
    let first = session(&broker);
    let (index, incarnation) = (first.index(), first.incarnation());
    let strong = broker.upgrade(index, incarnation).expect("it lives");
    assert!(strong.is_same(&first) && strong.word().load().leases() == 2);
    drop(first);
    assert!(broker.upgrade(index, incarnation).is_some(), "one lease is left");
    drop(strong);
    assert!(broker.upgrade(index, incarnation).is_none(), "none is left");
    assert!(broker.upgrade_live(index).is_none());
    let second = session(&broker);
    assert_eq!((second.index(), second.incarnation()), (index, incarnation + 1));
    assert!(broker.upgrade(index, incarnation).is_none(), "that was somebody else");
    assert!(broker.upgrade_live(index).is_some());
    assert!(broker.upgrade(7, 0).is_none(), "no such slot");
    assert_eq!(second.word().load().leases(), 1, "a refused upgrade leaves no lease");
}

#[test]
fn whatever_lives_keeps_what_it_lives_in() {
    let (broker, freed) = broker(2);
    let call = call(session(&broker));
    let chunk = Nest::<Chunk>::take(call, |ground| &ground.chunks).expect("a free chunk");
    drop(broker);
    assert_eq!(
        freed.load(Relaxed),
        0,
        "the chunk keeps the call, the call the session, the session the root"
    );
    assert_eq!(chunk.shared().ended.load(Relaxed), 0);
    let anchor = chunk.pin().pin().pin().anchor();
    drop(chunk);
    assert_eq!((anchor.shared().ended.load(Relaxed), freed.load(Relaxed)), (2, 0));
    let other = anchor.clone();
    drop(anchor);
    assert_eq!(freed.load(Relaxed), 0);
    drop(other);
    assert_eq!(freed.load(Relaxed), 1);
}

#[test]
fn what_is_near_a_lease_is_kept_by_it() {
    let (broker, freed) = broker(1);
    let near = Near::new(call(session(&broker)), |session| &session.shared().ended);
    drop(broker);
    let moved = Box::new(near);
    assert!(std::ptr::eq(moved.part(), &raw const moved.lease().shared().ended));
    moved.part().fetch_add(5, Relaxed);
    assert_eq!((moved.part().load(Relaxed), freed.load(Relaxed)), (5, 0));
    drop(moved);
    assert_eq!(freed.load(Relaxed), 1);
}

/// Ends by a mark on its session, and the lease with it.
enum Marked {}

impl End<Call> for Marked {
    fn end(lease: Lease<Call>) {
        lease.pin().number.fetch_add(1, Relaxed);
        drop(lease);
    }
}

#[test]
fn an_owner_gives_its_lease_to_its_end_once() {
    let (broker, freed) = broker(1);
    let session = session(&broker);
    let owner = Owner::<Call, Marked>::new(call(session.duplicate()));
    assert_eq!(size_of_val(&Some(owner)), 8, "and dropped");
    let marked = session.number.load(Relaxed);
    let owner = Owner::<Call, Marked>::new(call(session.duplicate()));
    owner.number.store(3, Relaxed);
    let lease = owner.into_lease();
    assert_eq!((lease.number.load(Relaxed), lease.word().load().leases()), (3, 1));
    drop(lease);
    assert_eq!(session.number.load(Relaxed), marked, "who stands for it no more does not end it");
    drop(Owner::<Call, Marked>::new(call(session.duplicate())));
    assert_eq!(session.number.load(Relaxed), marked + 1);
    drop((session, broker));
    assert_eq!(freed.load(Relaxed), 1);
}

#[test]
fn a_sheaf_counts_more_each_time_and_gives_back_what_is_left() {
    let (broker, _) = broker(1);
    let call = call(session(&broker));
    let mut sheaf = Sheaf::new();
    let mut taken = Vec::new();
    for count in 1..=40 {
        taken.push(sheaf.take(&call));
        // One, two, four, eight, sixteen, sixteen.
        let counted = [1, 3, 7, 15, 31, 47].into_iter().find(|&counted| counted >= count);
        assert_eq!(Some(call.word().load().leases() - 1), counted, "after {count}");
    }
    assert!(taken.iter().all(|lease| lease.is_same(&call)));
    drop(taken);
    assert_eq!(call.word().load().leases(), 1 + 7);
    drop(call);
    assert_eq!(broker.live(), 1, "the sheaf keeps the slot");
    drop(sheaf);
    assert_eq!(broker.live(), 0);
    drop(Sheaf::<Call>::new());
}

#[test]
fn the_ending_of_a_root_slot_has_the_occupant_to_itself() {
    let (broker, _) = broker(1);
    let label: Arc<str> = "a label".into();
    for visits in 0..3 {
        let session = session(&broker);
        assert_eq!((session.visits, session.label.get()), (visits, None));
        session.label.put(label.clone());
        let other = session.duplicate();
        drop(session);
        assert_eq!(other.label.get(), Some(&label));
    }
    assert_eq!(Arc::strong_count(&label), 1, "each ending took its own");
}

#[test]
fn a_full_nest_hands_the_pin_back() {
    let (broker, _) = broker(1);
    let session = session(&broker);
    let first = call(session.duplicate());
    let pin = Nest::<Call>::take(session, |ground| &ground.calls).expect_err("no call is free");
    assert_eq!(pin.word().load().leases(), 2);
    drop(first);
    assert_eq!(call(pin).incarnation(), 1);
}

#[test]
fn contents_are_prepared_before_anyone_can_reach_them_and_stay_for_the_next() {
    let (broker, _) = broker(1);
    let taken = Nest::<Call>::take_with(
        session(&broker),
        |ground| &ground.calls,
        0b101,
        |call: &Call| {
            call.number.store(7, Relaxed);
        },
    );
    let taken = taken.expect("a free call");
    assert_eq!((taken.before.user(), taken.lease.word().load().user()), (0, 0b101));
    assert_eq!(taken.lease.number.load(Relaxed), 7);
    drop(taken);
    assert_eq!(broker.shared().calls.peek(0).number.load(Relaxed), 7);
}

#[test]
fn a_panic_while_preparing_gives_everything_back() {
    let (broker, _) = broker(1);
    let take = || {
        let prepare = |_: &Call| panic!("told to panic");
        Nest::<Call>::take_with(session(&broker), |ground| &ground.calls, 0, prepare).map(drop)
    };
    assert!(foreign(take).is_err());
    assert_eq!(broker.live(), 0, "the pin was dropped");
    assert_eq!(call(session(&broker)).incarnation(), 1, "the slot was given back");
}

#[test]
fn a_panic_of_the_last_lease_gives_everything_back() {
    let (broker, _) = broker(1);
    let doomed = call(session(&broker));
    doomed.panics.store(1, Relaxed);
    assert!(foreign(|| drop(doomed)).is_err());
    broker.shared().calls.peek(0).panics.store(0, Relaxed);
    assert_eq!(broker.live(), 0);
    assert_eq!(call(session(&broker)).incarnation(), 1);
}

#[test]
fn marks_on_a_free_slot_are_seen_by_the_next_taker() {
    let (broker, _) = broker(1);
    const SEEN: u64 = 1 << 31;
    let before = broker.shared().calls.word(0).set(SEEN);
    assert_eq!((before.leases(), before.user()), (0, 0));
    let taken =
        Nest::<Call>::take_with(session(&broker), |ground| &ground.calls, 1, |_: &Call| {}).expect("free");
    assert!(taken.before.has(SEEN));
    assert_eq!(taken.lease.word().load().user(), 1, "publication replaces the marks");
    assert_eq!(broker.shared().calls.word(0).clear(1).user(), 1);
    assert_eq!(taken.lease.word().load().user(), 0);
}

#[test]
fn a_held_slot_outlives_its_leases() {
    let (broker, _) = broker(1);
    let calls = &broker.shared().calls;
    let held = call(session(&broker));
    held.number.store(9, Relaxed);
    let (before, after) = held.word().update(|bits| Some(bits.with_held(true).with(0b11))).expect("a step");
    assert!(!before.is_held() && after.is_held());
    drop(held);
    assert_eq!(broker.live(), 0, "the pin does not wait for the hold");
    assert!(calls.upgrade_live(0).is_none() && calls.upgrade(0, 0).is_none());
    assert!(calls.word(0).load().is_ended() && calls.peek(0).number.load(Relaxed) == 9);
    assert!(
        Nest::<Call>::take(session(&broker), |ground| &ground.calls).is_err(),
        "the slot is not free yet"
    );
    assert!(calls.word(0).update(|bits| Some(bits.with_held(false))).is_ok());
    assert!(calls.word(0).load().is_held(), "a bare word cannot let go of a hold");
    assert!(calls.release_hold(0, 0b01));
    assert_eq!(calls.word(0).load().user(), 0b10);
    assert_eq!(call(session(&broker)).incarnation(), 1);
}

#[test]
fn a_hold_released_in_time_leaves_the_slot_to_its_leases() {
    let (broker, _) = broker(1);
    let held = call(session(&broker));
    held.word().update(|bits| Some(bits.with_held(true))).expect("a step");
    assert!(!broker.shared().calls.release_hold(0, 0));
    drop(held);
    assert_eq!(call(session(&broker)).incarnation(), 1);
}

#[test]
fn a_step_without_a_lease_gets_one() {
    let (broker, _) = broker(1);
    let calls = &broker.shared().calls;
    assert!(calls.step(0, |bits| Some(bits.with(1)), 0).is_err(), "a free slot takes no step");
    let mine = call(session(&broker));
    let stepped = calls.step(0, |bits| Some(bits.with(1)), 0).expect("it has a lease");
    assert_eq!((stepped.before.user(), stepped.after.user()), (0, 1));
    assert_eq!((stepped.after.leases(), mine.word().load().leases()), (2, 2));
    let refused = calls.step(0, |_| None, 0).expect_err("left alone");
    assert_eq!(refused.leases(), 2);
    drop(mine);
    assert_eq!(stepped.lease.word().load().leases(), 1);
}

#[test]
fn a_holder_steps_without_a_lease_and_may_let_go() {
    let (broker, _) = broker(1);
    let calls = &broker.shared().calls;
    let held = call(session(&broker));
    held.word().update(|bits| Some(bits.with_held(true))).expect("a step");
    let stepped = calls.step_held(0, |bits| Some(bits.with(0b10))).expect("held");
    assert!(!stepped.freed && stepped.after.is_held() && stepped.after.user() == 0b10);
    assert_eq!(calls.step_held(0, |_| None).expect_err("left alone").leases(), 1);
    drop(held);
    let stepped = calls.step_held(0, |bits| Some(bits.with_held(false))).expect("held");
    assert!(stepped.freed && stepped.before.is_ended());
    assert_eq!(call(session(&broker)).incarnation(), 1);
}

#[test]
fn a_lease_can_be_counted_with_the_occupants_own_bits() {
    let (broker, _) = broker(1);
    let mine = call(session(&broker));
    let below_two = |bits: Bits| (bits.user() < 2).then(|| bits.with_user(bits.user() + 1));
    let one = mine.duplicate_if(below_two).expect("none yet");
    let two = mine.duplicate_if(below_two).expect("one so far");
    assert_eq!(mine.duplicate_if(below_two).expect_err("two").user(), 2);
    one.release_with(1);
    assert_eq!((mine.word().load().leases(), mine.word().load().user()), (2, 1));
    drop(mine);
    two.release_with(1);
    assert_eq!(broker.shared().ended.load(Relaxed), 2, "the call and its session");
    assert_eq!(broker.live(), 0);
}

#[test]
fn a_word_step_cannot_touch_the_leases() {
    let (broker, _) = broker(1);
    let mine = call(session(&broker));
    let stale = mine.word().load();
    let other = mine.duplicate();
    let (_, after) = mine.word().update(|_| Some(stale.with(4))).expect("a step");
    assert_eq!((after.leases(), after.user()), (2, 4));
    drop(other);
    assert_eq!(mine.word().load().leases(), 1);
    assert!(foreign(|| stale.with_user(1 << USER_BITS)).is_err());
}

#[cfg(not(miri))]
mod breaks {
    use super::*;
    use crate::broken::in_a_process_of_its_own;

    #[test]
    fn a_hold_that_nobody_has() {
        in_a_process_of_its_own("mem::arena::tests::breaks::a_hold_that_nobody_has", || {
            let (broker, _) = broker(1);
            let call = call(session(&broker));
            assert!(foreign(|| broker.shared().calls.release_hold(0, 0)).is_err());
            assert!(foreign(|| broker.shared().calls.step_held(0, Some).map(drop)).is_err());
            assert_eq!((call.word().load().leases(), call.word().load().is_ended()), (1, false));
        });
    }

    #[test]
    fn more_leases_than_the_word_can_count() {
        in_a_process_of_its_own("mem::arena::tests::breaks::more_leases_than_the_word_can_count", || {
            let (broker, _) = broker(1);
            let call = call(session(&broker));
            for _ in 1..LEASES_MAX {
                std::mem::forget(call.duplicate());
            }
            assert!(foreign(|| call.duplicate()).is_err());
            assert!(foreign(|| broker.shared().calls.upgrade_live(0)).is_err());
            let bits = call.word().load();
            assert_eq!((bits.leases(), bits.is_held()), (LEASES_MAX, false), "the refused ones left nothing");
        });
    }

    #[test]
    fn units_that_are_not_there() {
        in_a_process_of_its_own("mem::arena::tests::breaks::units_that_are_not_there", || {
            let (broker, _) = broker(1);
            let call = call(session(&broker));
            call.word().set(0b1);
            assert!(foreign(|| call.duplicate().release_with(2)).is_err());
            let bits = call.word().load();
            assert_eq!((bits.leases(), bits.user()), (2, 1), "the word is untouched; the lease is lost");
        });
    }
}

#[test]
fn the_word_reads_well() {
    let bits = Bits(0).with_user(0x2a).with_held(true);
    assert_eq!(format!("{bits:?}"), "[leases 0 HELD user 0x2a claimed 0000 parked 0000 taking 0000]");
}

#[test]
fn flags_are_put_in_and_taken_out_one_by_one() {
    let bits = Bits(0).with(0b0110);
    assert!(bits.has(0b0110) && bits.has(0b0010) && !bits.has(0b0111) && !bits.has(0b1000));
    assert_eq!((bits.with(0b0011).user(), bits.without(0b0011).user()), (0b0111, 0b0100));
    assert_eq!(bits.without(0b1001), bits);
}

#[test]
fn one_lease_less_is_never_less_than_none() {
    let bits = Bits(2).with_user(5);
    assert_eq!((bits.less_one_lease().leases(), bits.less_one_lease().user()), (1, 5));
    let none = bits.less_one_lease().less_one_lease();
    assert_eq!((none.leases(), none.less_one_lease()), (0, none));
}

#[test]
fn units_are_taken_off_to_the_last() {
    let (broker, _) = broker(1);
    let mine = call(session(&broker));
    mine.word().update(|bits| Some(bits.with_user(3))).expect("a step");
    mine.word().sub(2);
    assert_eq!(mine.word().load().user(), 1);
    mine.word().sub(1);
    assert_eq!((mine.word().load().user(), mine.word().load().leases()), (0, 1));
}

#[test]
fn an_arena_has_bounds() {
    assert!(foreign(|| broker(0)).is_err());
    assert!(foreign(|| broker(SLOTS_MAX + 1)).is_err());
    // Miri looks at every slot when the arena goes.
    let most = if cfg!(miri) { 50 } else { SLOTS_MAX };
    let (broker, _) = broker(most);
    assert_eq!(broker.slots(), most);
    let all: Vec<_> = (0..most).map(|_| session(&broker)).collect();
    assert_eq!(broker.take(u32::MAX, |_| {}).err(), Some(Full));
    assert_eq!(all.last().map(|last| usize::from(last.index()) + 1), Some(most));
}

#[test]
fn threads_that_race_for_few_slots_lose_and_double_none() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };
    let (broker, freed) = broker(2);
    let took = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (broker, took) = (broker.clone(), &took);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let Ok(session) = broker.take(2, |_| {}) else { continue };
                    let mark = thread * ROUNDS + round;
                    session.number.store(mark, Relaxed);
                    let weak = (session.index(), session.incarnation());
                    if let Ok(call) = Nest::<Call>::take(session.duplicate(), |ground| &ground.calls) {
                        call.number.store(mark, Relaxed);
                        if let Some(other) = broker.upgrade(1 - weak.0, round) {
                            drop(other);
                        }
                        assert_eq!(
                            (call.number.load(Relaxed), call.pin().number.load(Relaxed)),
                            (mark, mark)
                        );
                    }
                    let again = broker.upgrade(weak.0, weak.1).expect("a lease is here");
                    drop(session);
                    assert_eq!(again.number.load(Relaxed), mark);
                    took.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert!(took.load(Relaxed) > 0);
    assert_eq!((broker.live(), freed.load(Relaxed)), (0, 0));
    let all: Vec<_> = (0..2).map(|_| session(&broker)).collect();
    let before: u64 = all.iter().map(Lease::incarnation).sum();
    assert_eq!(before, took.load(Relaxed), "each take was given back once");
    drop(all);
    drop(broker);
    assert_eq!(freed.load(Relaxed), 1);
}
