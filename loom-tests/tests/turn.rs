//! Models of the combining turn: `mem::turn`, invariants T1 to T5.
#![cfg(loom)]

use std::ops::Index;

use latent_capabilities::model::mem::turn::{Collected, Turn, TurnGuard, older, oldest_first};
use latent_capabilities::model::sync::Arc;
use latent_capabilities::model::sync::atomic::{AtomicBool, AtomicU16};
use latent_capabilities::model::sync::order;
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Preemptions(3);

/// The turn, and what its holder looks at: links, and a mark as a release sets it.
struct Floor {
    turn: Turn<State>,
    links: Links,
    mark: AtomicBool,
}

/// What only the holder touches. Plain data: loom sees the cell around it.
#[derive(Debug, Default)]
struct State {
    posts: Vec<u16>,
    marks: usize,
}

struct Links([AtomicU16; 3]);

impl Index<u16> for Links {
    type Output = AtomicU16;

    fn index(&self, index: u16) -> &AtomicU16 {
        &self.0[usize::from(index)]
    }
}

impl Floor {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turn: Turn::new(State::default()),
            links: Links(std::array::from_fn(|_| AtomicU16::new(0))),
            mark: AtomicBool::new(false),
        })
    }

    fn post(&self, index: u16) {
        if let Some((guard, collected)) = self.turn.post(index, &self.links) {
            self.run(guard, collected);
        }
    }

    fn signal(&self) {
        self.mark.store(true, order::COUNT);
        if let Some((guard, collected)) = self.turn.signal() {
            self.run(guard, collected);
        }
    }

    /// A release that finds the turn free looks at once; else it leaves its mark for the holder.
    fn release(&self) {
        match self.turn.try_hold() {
            Some((mut guard, collected)) => {
                guard.state().marks += 1;
                self.run(guard, collected);
            }
            None => self.signal(),
        }
    }

    /// Works through the inbox. Gives whether the holder has to look at the mark.
    fn take_inbox(&self, guard: &mut TurnGuard<'_, State>, collected: Collected) -> bool {
        let mut next = oldest_first(&self.links, collected.newest);
        while let Some(index) = next {
            next = older(&self.links, index);
            guard.state().posts.push(index);
        }
        collected.dirty
    }

    fn run(&self, mut guard: TurnGuard<'_, State>, mut collected: Collected) {
        loop {
            if self.take_inbox(&mut guard, collected) && self.mark.load(order::COUNT) {
                self.mark.store(false, order::COUNT);
                guard.state().marks += 1;
            }
            match guard.leave() {
                Ok(()) => return,
                Err(again) => guard = again,
            }
            collected = guard.collect();
        }
    }

    /// What was done, when all threads are gone.
    fn done(&self) -> (Vec<u16>, usize) {
        assert!(self.turn.is_at_rest(), "work was left behind");
        let (mut guard, _) = self.turn.try_hold().expect("nobody holds it");
        let state = std::mem::take(guard.state());
        assert!(guard.leave().is_ok());
        (state.posts, state.marks)
    }
}

fn spawn(floor: &Arc<Floor>, work: impl FnOnce(&Floor) + 'static) -> thread::JoinHandle<()> {
    let floor = floor.clone();
    thread::spawn(move || work(&floor))
}

#[test]
fn post_vs_leave() {
    check("turn_post_vs_leave", BOUND, || {
        let floor = Floor::new();
        let other = spawn(&floor, |floor| floor.post(0));
        floor.post(1);
        floor.post(2);
        other.join().unwrap();
        let (posts, _) = floor.done();
        assert_eq!(posts.len(), 3);
        let place =
            |index| posts.iter().position(|&post| post == index).expect("every post was worked through");
        assert!(place(1) < place(2), "posts of one thread keep their order: {posts:?}");
        assert!(place(0) < 3);
    });
}

#[test]
fn two_posts_and_a_signal() {
    check("turn_two_posts_and_a_signal", BOUND, || {
        let floor = Floor::new();
        let others = [spawn(&floor, |floor| floor.post(0)), spawn(&floor, Floor::signal)];
        floor.post(1);
        for other in others {
            other.join().unwrap();
        }
        let (mut posts, marks) = floor.done();
        posts.sort_unstable();
        assert_eq!((posts, marks), (vec![0, 1], 1));
    });
}

/// Releases that may find the turn free, and one that comes late: each is seen once.
#[test]
fn releases_and_a_post() {
    check("turn_releases_and_a_post", BOUND, || {
        let floor = Floor::new();
        let other = spawn(&floor, Floor::release);
        floor.post(0);
        floor.release();
        other.join().unwrap();
        // A mark that two leave is one to the holder.
        let (posts, marks) = floor.done();
        assert_eq!(posts, vec![0]);
        assert!((1..=2).contains(&marks), "{marks}");
    });
}

/// The holder's batch is full before it looked at the mark: it leaves the turn dirty, then tries again. Whoever gets the
/// turn does the rest.
#[test]
fn dirty_left_is_seen() {
    check("turn_dirty_left_is_seen", BOUND, || {
        let floor = Floor::new();
        let other = spawn(&floor, |floor| {
            floor.mark.store(true, order::COUNT);
            if let Some((mut guard, collected)) = floor.turn.signal() {
                floor.take_inbox(&mut guard, collected);
                guard.leave_dirty();
                if let Some((guard, collected)) = floor.turn.try_hold() {
                    floor.run(guard, collected);
                }
            }
        });
        floor.post(0);
        other.join().unwrap();
        assert_eq!(floor.done(), (vec![0], 1));
    });
}

/// A holder that panics before it looked at the mark leaves the turn dirty for the next one.
#[test]
fn a_dropped_guard_vs_post() {
    check("turn_dropped_guard_vs_post", BOUND, || {
        let floor = Floor::new();
        let other = spawn(&floor, |floor| {
            floor.mark.store(true, order::COUNT);
            if let Some((mut guard, collected)) = floor.turn.signal() {
                floor.take_inbox(&mut guard, collected);
                drop(guard);
            }
        });
        floor.post(0);
        other.join().unwrap();
        // Either the poster found the work, or it lies in the turn for the next one.
        if let Some((guard, collected)) = floor.turn.try_hold() {
            floor.run(guard, collected);
        }
        assert_eq!(floor.done(), (vec![0], 1));
    });
}

/// An index is posted again by another thread as soon as the holder gave it free.
#[test]
fn an_index_comes_back_while_the_holder_runs() {
    check("turn_index_comes_back", BOUND, || {
        let floor = Floor::new();
        let other = spawn(&floor, |floor| {
            // The mark stands for the poster's own word: clear, so the index is in no inbox.
            if let Some((mut guard, collected)) = floor.turn.post(0, &floor.links) {
                assert_eq!(collected.newest, Some(0));
                let next = older(&floor.links, 0);
                guard.state().posts.push(0);
                floor.mark.store(true, order::PUBLISH);
                assert_eq!(next, None);
                match guard.leave() {
                    Ok(()) => {}
                    Err(mut guard) => {
                        let collected = guard.collect();
                        floor.run(guard, collected);
                    }
                }
            }
        });
        let again = floor.mark.load(order::OBSERVE);
        if again {
            floor.post(0);
        }
        other.join().unwrap();
        assert_eq!(floor.done().0.len(), 1 + usize::from(again));
    });
}
