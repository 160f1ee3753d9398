//! The inventory of jobs: which places are taken, whose job has ended, and who joins it.
//!
//! ```text
//!   take ──▶ (build, submit) ──submitted(held)──▶┐
//!                     │                          ├─ the second of the two posts the place ──▶ next ──▶ free
//!                     └──────job runs, ended ───▶┘                                       (join)
//! ```
//!
//! * I1. Whoever takes a place has charged its unit before, and gives the unit back after the place. So there is a free
//!   place for each unit.
//! * I2. A place is *posted* once: by the second of two steps on its word, the storing of what the submission gave
//!   (its join handle) and the end of its job. Either may come first.
//! * I3. A posted place is taken by whoever clears its bit: the owner of the inventory, or after [`forsake`]
//!   whoever posts it. Each step on that bit is a read-modify-write, and the owner steps on every word after it has said
//!   that it is gone. So a place that was posted is taken exactly once.
//! * I4. Jobs end on threads of others, so ending one takes no lock that anybody holds for long: the one beside a place is
//!   held for moves in and out only, and never by two at once, because I2 and I3 give each move to one.
//!
//! [`forsake`]: Inventory::forsake

use crate::mem::bitset::BitSet;
use crate::sync::atomic::{AtomicBool, AtomicU32};
use crate::sync::{order, spin};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SUBMITTED: u32 = 1;
const ENDED: u32 = 2;

/// A fixed number of places. `H` is what the submission of a job gives back: what it is joined by.
#[derive(Debug)]
pub struct Inventory<H> {
    free: BitSet,
    posted: BitSet,
    places: Box<[Place<H>]>,
    forsaken: AtomicBool,
}

#[derive(Debug)]
struct Place<H> {
    word: AtomicU32,
    held: Mutex<Option<H>>,
}

impl<H> Place<H> {
    #[cfg_attr(latent_realtime, sanitize(realtime = "blocking"))]
    fn held(&self) -> MutexGuard<'_, Option<H>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// One of the two steps. Whether the other one came before.
    fn step(&self, step: u32) -> bool {
        let before = self.word.fetch_or(step, order::STEP);
        if before & step != 0 {
            crate::broken::accounting_in_drop("a job was submitted or ended twice");
        }
        before | step == SUBMITTED | ENDED
    }
}

/// Bytes that a place takes.
pub const fn place_bytes<H>() -> u64 {
    size_of::<Place<H>>() as u64
}

/// What became of a step on a place.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Posted<H> {
    /// The other step is still to come.
    NotYet,
    /// The place lies where the owner looks: wake it.
    ForTheOwner,
    /// The owner is gone: the caller frees the place, with what was held there.
    ForTheCaller(H),
}

impl<H> Inventory<H> {
    /// So many free places.
    pub fn new(places: usize) -> Self {
        let free = BitSet::new(places);
        for place in 0..places {
            free.set(place);
        }
        let empty = || Place { word: AtomicU32::new(0), held: Mutex::new(None) };
        Inventory {
            free,
            posted: BitSet::new(places),
            places: (0..places).map(|_| empty()).collect(),
            forsaken: AtomicBool::new(false),
        }
    }

    /// Takes a free place. The caller has charged a unit, so there is one (I1): a look that misses it was overtaken by
    /// another, which took the place that the look would have found and left this one.
    pub fn take(&self) -> usize {
        loop {
            if let Some(place) = self.free.take_lowest() {
                return place;
            }
            spin();
        }
    }

    /// The job of a place was submitted: `held` is what it is joined by.
    pub fn submitted(&self, place: usize, held: H) -> Posted<H> {
        *self.places[place].held() = Some(held);
        self.step(place, SUBMITTED)
    }

    /// The job of a place has ended; the caller is the last of it.
    pub fn ended(&self, place: usize) -> Posted<H> {
        self.step(place, ENDED)
    }

    fn step(&self, place: usize, step: u32) -> Posted<H> {
        let second = self.places[place].step(step) || planted!("place_posted_by_the_end") && step == ENDED;
        if !second {
            return Posted::NotYet;
        }
        self.posted.set(place);
        if self.forsaken.load(order::OBSERVE) && self.posted.clear(place) {
            return Posted::ForTheCaller(self.taken(place));
        }
        Posted::ForTheOwner
    }

    /// Looks again from the start: what was posted before is found by [`next`](Self::next), and whoever posts afterwards
    /// sees what the caller did before. For the owner.
    pub fn look(&self) {
        self.posted.meet();
    }

    /// The next posted place, with what was held there. For the owner, who joins it and then [frees](Self::free) it.
    pub fn next(&self) -> Option<(usize, H)> {
        self.posted.take_lowest().map(|place| (place, self.taken(place)))
    }

    fn taken(&self, place: usize) -> H {
        let held = self.places[place].held().take();
        match held {
            Some(held) => held,
            None => crate::broken::accounting("a posted place holds nothing to join"),
        }
    }

    /// The place can be taken again. Its unit is given back after this.
    pub fn free(&self, place: usize) {
        // Nobody else knows the place: its job has ended, and the bit below hands it on.
        self.places[place].word.store(0, order::COUNT);
        if self.free.set(place) {
            crate::broken::accounting_in_drop("a place of a job was freed twice");
        }
    }

    /// The owner is gone: from now on whoever posts a place takes it. What was posted before is still to be taken by the
    /// caller, with [`next`](Self::next).
    pub fn forsake(&self) {
        self.forsaken.store(true, order::PUBLISH);
        self.posted.meet();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_posted_by_the_second_step_whichever_it_is() {
        let inventory = Inventory::new(2);
        let (first, second) = (inventory.take(), inventory.take());
        assert_eq!(inventory.submitted(first, 'a'), Posted::NotYet);
        assert_eq!(inventory.ended(second), Posted::NotYet);
        assert_eq!(inventory.next(), None);
        assert_eq!(inventory.submitted(second, 'b'), Posted::ForTheOwner);
        assert_eq!(inventory.ended(first), Posted::ForTheOwner);
        assert_eq!(inventory.next(), Some((first, 'a')));
        inventory.free(first);
        assert_eq!(inventory.take(), first, "it can be taken again");
        assert_eq!(inventory.next(), Some((second, 'b')));
        assert_eq!(inventory.next(), None);
        inventory.free(second);
    }

    #[test]
    fn without_an_owner_whoever_posts_takes() {
        let inventory = Inventory::new(2);
        let (before, after) = (inventory.take(), inventory.take());
        assert_eq!(inventory.ended(before), Posted::NotYet);
        assert_eq!(inventory.submitted(before, 'a'), Posted::ForTheOwner);
        inventory.forsake();
        assert_eq!(inventory.next(), Some((before, 'a')));
        assert_eq!(inventory.submitted(after, 'b'), Posted::NotYet);
        assert_eq!(inventory.ended(after), Posted::ForTheCaller('b'));
        assert_eq!(inventory.next(), None);
    }
}
