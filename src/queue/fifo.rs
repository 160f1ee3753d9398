//! First come, first served: a doubly linked list whose links stand in the slots that it links.
//!
//! It belongs to whoever has the turn of its line. The links are atomics because the slots are shared; nothing is handed over by
//! them.
use crate::sync::atomic::AtomicU16;
use crate::sync::order;

/// The links of the operations, by index; the turn alone writes them.
pub trait Links {
    /// The next in the group, index + 1.
    fn next(&self, index: u16) -> &AtomicU16;
    /// The previous in the group, index + 1.
    fn previous(&self, index: u16) -> &AtomicU16;
}

/// Head and tail of a list, index + 1; zero is empty.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Fifo {
    head: u16,
    tail: u16,
}

impl Fifo {
    /// Puts one at the end.
    pub fn push(&mut self, links: &impl Links, index: u16) {
        links.next(index).store(0, order::COUNT);
        links.previous(index).store(self.tail, order::COUNT);
        match self.tail.checked_sub(1) {
            Some(tail) => links.next(tail).store(index + 1, order::COUNT),
            None => self.head = index + 1,
        }
        self.tail = index + 1;
    }

    /// Puts one in front of all.
    pub fn push_first(&mut self, links: &impl Links, index: u16) {
        links.previous(index).store(0, order::COUNT);
        links.next(index).store(self.head, order::COUNT);
        match self.head.checked_sub(1) {
            Some(head) => links.previous(head).store(index + 1, order::COUNT),
            None => self.tail = index + 1,
        }
        self.head = index + 1;
    }

    /// Takes one out, wherever it stands.
    pub fn remove(&mut self, links: &impl Links, index: u16) {
        let next = links.next(index).load(order::COUNT);
        let previous = links.previous(index).load(order::COUNT);
        match previous.checked_sub(1) {
            Some(previous) => links.next(previous).store(next, order::COUNT),
            None => self.head = next,
        }
        match next.checked_sub(1) {
            Some(next) => links.previous(next).store(previous, order::COUNT),
            None => self.tail = previous,
        }
    }

    /// Who is first.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<u16> {
        self.head.checked_sub(1)
    }

    /// Whether just one is in it, of one that is not empty.
    #[inline]
    #[must_use]
    pub fn has_one(&self) -> bool {
        self.head == self.tail
    }

    /// Whether nobody is in it.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const SLOTS: u16 = 6;

    struct Chains {
        next: [AtomicU16; SLOTS as usize],
        previous: [AtomicU16; SLOTS as usize],
    }

    impl Links for Chains {
        fn next(&self, index: u16) -> &AtomicU16 {
            &self.next[usize::from(index)]
        }
        fn previous(&self, index: u16) -> &AtomicU16 {
            &self.previous[usize::from(index)]
        }
    }

    /// Many steps in no order, and after each of them the whole list both ways.
    #[test]
    fn it_is_a_queue_that_one_may_leave_anywhere() {
        let slots = || std::array::from_fn(|_| AtomicU16::new(99));
        let (links, mut fifo) = (Chains { next: slots(), previous: slots() }, Fifo::default());
        let (mut model, mut word) = (VecDeque::new(), 1_u32);
        let mut longest = 0;
        for _ in 0..10_000 {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            let index = (word >> 8) as u16 % SLOTS;
            match model.iter().position(|&at| at == index) {
                Some(place) => {
                    model.remove(place);
                    fifo.remove(&links, index);
                }
                None if word & 1 == 0 => {
                    model.push_front(index);
                    fifo.push_first(&links, index);
                }
                None => {
                    model.push_back(index);
                    fifo.push(&links, index);
                }
            }
            longest = longest.max(model.len());
            let walk = |from: Option<u16>, step: &dyn Fn(u16) -> u16| -> Vec<u16> {
                std::iter::successors(from, |&at| step(at).checked_sub(1)).take(9).collect()
            };
            let forwards = walk(fifo.first(), &|at| links.next(at).load(order::COUNT));
            let backwards = walk(fifo.tail.checked_sub(1), &|at| links.previous(at).load(order::COUNT));
            assert!(forwards.iter().eq(&model) && backwards.iter().eq(model.iter().rev()), "{model:?}");
            assert_eq!((fifo.is_empty(), fifo.first()), (model.is_empty(), model.front().copied()));
            assert!(model.is_empty() || fifo.has_one() == (model.len() == 1));
        }
        assert_eq!(longest, usize::from(SLOTS));
    }
}
