//! Slots by the instant at which each is to be looked at: a binary heap in which every slot has at most one place.
//!
//! It belongs to the keeper alone, so nothing here is shared. Its memory is reserved once, for every slot there is, as
//! zero pages that cost nothing until they are used; it cannot overflow and never allocates afterwards. Putting a slot in,
//! bringing it forward and taking the first one out cost at most twelve steps at 4,096 slots, however many are in it.

/// Slots by instant.
#[derive(Debug)]
pub struct Due {
    /// The heap: slots, the earliest first, each not later than its children at twice its place and one more.
    order: Vec<u16>,
    /// Where each slot stands in the heap, from 1; 0: it does not.
    place: Vec<u16>,
    /// The instant of each slot that stands in the heap.
    at: Vec<u64>,
}

impl Due {
    /// Room for `slots` slots, none of them in it.
    ///
    /// # Panics
    ///
    /// Above 32,768 slots: a place fits 16 bits.
    #[must_use]
    pub fn new(slots: usize) -> Due {
        assert!(slots <= 1 << 15, "{slots} slots");
        Due { order: Vec::with_capacity(slots), place: vec![0; slots], at: vec![0; slots] }
    }

    /// How many slots are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The earliest instant.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.order.first().map(|&slot| self.at[usize::from(slot)])
    }

    /// Puts a slot in, or brings it forward. A later instant than it has changes nothing.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn put(&mut self, slot: u16, at: u64) {
        let number = usize::from(slot);
        match usize::from(self.place[number]).checked_sub(1) {
            Some(place) => {
                if at < self.at[number] {
                    self.at[number] = at;
                    self.rise(place);
                }
            }
            None => {
                self.at[number] = at;
                self.order.push(slot);
                self.rise(self.order.len() - 1);
            }
        }
    }

    /// Takes the earliest slot out, if its instant is `now` or before.
    pub fn take(&mut self, now: u64) -> Option<u16> {
        if self.first()? > now {
            return None;
        }
        let slot = self.order.swap_remove(0);
        self.place[usize::from(slot)] = 0;
        if !self.order.is_empty() {
            self.sink(0);
        }
        Some(slot)
    }

    /// Asks for every slot anew when it is to be looked at; `None` takes it out.
    pub fn revise(&mut self, mut when: impl FnMut(u16) -> Option<u64>) {
        let Due { order, place, at } = self;
        order.retain(|&slot| {
            let (number, again) = (usize::from(slot), when(slot));
            at[number] = again.unwrap_or(0);
            place[number] = 0;
            again.is_some()
        });
        for place in (0..self.order.len()).rev() {
            self.sink(place);
        }
    }

    fn at_place(&self, place: usize) -> u64 {
        self.at[usize::from(self.order[place])]
    }

    fn stand(&mut self, place: usize, slot: u16) {
        self.order[place] = slot;
        // At most 32,768.
        self.place[usize::from(slot)] = (place + 1) as u16;
    }

    fn rise(&mut self, mut place: usize) {
        let slot = self.order[place];
        let at = self.at[usize::from(slot)];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.at_place(parent) <= at {
                break;
            }
            self.stand(place, self.order[parent]);
            place = parent;
        }
        self.stand(place, slot);
    }

    fn sink(&mut self, mut place: usize) {
        let slot = self.order[place];
        let at = self.at[usize::from(slot)];
        loop {
            let left = 2 * place + 1;
            if left >= self.order.len() {
                break;
            }
            let right = left + 1;
            let right_is_earlier = right < self.order.len() && self.at_place(right) < self.at_place(left);
            let child = if right_is_earlier { right } else { left };
            if self.at_place(child) >= at {
                break;
            }
            self.stand(place, self.order[child]);
            place = child;
        }
        self.stand(place, slot);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A small generator, so that a failure comes again.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    fn check(due: &Due, model: &BTreeMap<u16, u64>) {
        assert_eq!((due.len(), due.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(due.first(), model.values().min().copied());
        for (place, &slot) in due.order.iter().enumerate() {
            assert_eq!(usize::from(due.place[usize::from(slot)]), place + 1);
            assert_eq!(due.at[usize::from(slot)], model[&slot]);
            assert!(place == 0 || due.at_place((place - 1) / 2) <= due.at_place(place));
        }
    }

    #[test]
    fn it_says_what_a_sorted_list_would() {
        const SLOTS: u64 = 64;
        let (mut due, mut model, mut random) = (Due::new(SLOTS as usize), BTreeMap::new(), Random(7));
        for round in 0..20_000_u64 {
            match random.below(8) {
                0..5 => {
                    let (slot, at) = (random.below(SLOTS) as u16, round + random.below(500));
                    due.put(slot, at);
                    model.entry(slot).and_modify(|old: &mut u64| *old = at.min(*old)).or_insert(at);
                }
                5..7 => {
                    let now = round + random.below(100);
                    match due.take(now) {
                        Some(slot) => {
                            let at = model.remove(&slot).expect("it was in it");
                            assert!(at <= now && model.values().all(|&other| other >= at));
                        }
                        None => assert!(model.values().all(|&at| at > now)),
                    }
                }
                _ if round % 50 == 0 => {
                    let mut again = |slot: u16| (!slot.is_multiple_of(3)).then_some(round + u64::from(slot) * 7 % 31);
                    due.revise(&mut again);
                    model = model.keys().filter_map(|&slot| Some((slot, again(slot)?))).collect();
                }
                _ => {}
            }
            check(&due, &model);
        }
    }

    #[test]
    fn it_holds_every_slot_and_grows_no_further() {
        let mut due = Due::new(4_096);
        let room = due.order.capacity();
        for slot in 0..4_096 {
            due.put(slot, u64::from(4_096 - slot));
        }
        assert_eq!((due.len(), due.order.capacity()), (4_096, room));
        let taken: Vec<u16> = std::iter::from_fn(|| due.take(u64::MAX)).collect();
        assert_eq!(taken, (0..4_096).rev().collect::<Vec<_>>());
        assert!(due.is_empty());
    }
}
