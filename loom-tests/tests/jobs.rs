//! Models of jobs: `queue::inventory`, invariants I1 to I4, and the word that workers are charged to, `account::jobs` J4.
//! What a job is joined by carries a cell that loom watches: whoever takes it without having been handed it fails the model.
#![cfg(loom)]

use latent_capabilities::model::account::dimension::Dimension;
use latent_capabilities::model::account::jobs::{Job, JobsWord};
use latent_capabilities::model::account::scope::Blocked;
use latent_capabilities::model::queue::inventory::{Inventory, Posted};
use latent_capabilities::model::sync::atomic::AtomicBool;
use latent_capabilities::model::sync::{Arc, UnsafeCell, order};
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Preemptions(4);

/// What the job wrote until its end, and what its submission left.
struct Trace {
    job: UnsafeCell<u32>,
    submission: UnsafeCell<u32>,
}

type Held = Arc<Trace>;

/// An inventory with one place, taken, and what is raced about it.
fn taken() -> (Arc<Inventory<Held>>, usize, Held) {
    let inventory = Arc::new(Inventory::new(1));
    let place = inventory.take();
    (inventory, place, Arc::new(Trace { job: UnsafeCell::new(0), submission: UnsafeCell::new(0) }))
}

/// Joins and frees a place: whoever does it alone has seen everything of the job and of its submission.
fn settle(inventory: &Inventory<Held>, place: usize, held: &Held) {
    held.job.with_mut(|_| {});
    held.submission.with_mut(|_| {});
    inventory.free(place);
}

fn submit(inventory: &Inventory<Held>, place: usize, held: Held) -> usize {
    held.submission.with_mut(|_| {});
    settled(inventory, place, inventory.submitted(place, held))
}

fn end(inventory: &Inventory<Held>, place: usize, held: &Held) -> usize {
    held.job.with_mut(|_| {});
    settled(inventory, place, inventory.ended(place))
}

/// How many places the step left to its maker.
fn settled(inventory: &Inventory<Held>, place: usize, posted: Posted<Held>) -> usize {
    match posted {
        Posted::NotYet | Posted::ForTheOwner => 0,
        Posted::ForTheCaller(held) => {
            settle(inventory, place, &held);
            1
        }
    }
}

/// Whatever lies there, for the owner who comes to look.
fn drain(inventory: &Inventory<Held>) -> usize {
    inventory.look();
    rest(inventory)
}

/// Whatever lies there.
fn rest(inventory: &Inventory<Held>) -> usize {
    let mut count = 0;
    while let Some((place, held)) = inventory.next() {
        settle(inventory, place, &held);
        count += 1;
    }
    count
}

/// I2: the end of a job and the storing of its handle, while the owner looks.
#[test]
fn submission_meets_the_end_and_the_owner() {
    check("jobs_submission_end_owner", BOUND, || {
        let (inventory, place, held) = taken();
        let (here, job) = (inventory.clone(), held.clone());
        let ends = thread::spawn(move || end(&here, place, &job));
        let here = inventory.clone();
        let owner = thread::spawn(move || drain(&here));
        assert_eq!(submit(&inventory, place, held), 0, "there is an owner");
        assert_eq!(ends.join().unwrap(), 0);
        assert_eq!(owner.join().unwrap() + drain(&inventory), 1, "it is joined once");
        assert_eq!(inventory.take(), place, "it can be taken again");
    });
}

/// I3: the owner is cut off while a job ends and its handle is stored. Somebody frees the place, and only one does.
#[test]
fn the_owner_goes_while_a_job_ends() {
    check("jobs_owner_goes", BOUND, || {
        let (inventory, place, held) = taken();
        let (here, job) = (inventory.clone(), held.clone());
        let ends = thread::spawn(move || end(&here, place, &job));
        let here = inventory.clone();
        let owner = thread::spawn(move || {
            let before = drain(&here);
            here.forsake();
            before + rest(&here)
        });
        let mine = submit(&inventory, place, held);
        let sum = mine + ends.join().unwrap() + owner.join().unwrap();
        assert_eq!(sum, 1, "the place is freed once, by whoever is there");
        assert_eq!(inventory.take(), place);
    });
}

/// I1 and I3: a place that was freed is taken by the next job while the owner is cut off: no step of the first job is taken
/// for one of the second.
#[test]
fn a_place_is_taken_again_while_the_owner_goes() {
    check("jobs_place_again", Bound::Preemptions(3), || {
        let (inventory, place, held) = taken();
        assert_eq!(submit(&inventory, place, held.clone()), 0);
        let here = inventory.clone();
        let owner = thread::spawn(move || {
            here.forsake();
            rest(&here)
        });
        let mut sum = end(&inventory, place, &held);
        if sum == 1 {
            // It was left to this thread, so the place is free; a second job goes the same way.
            let again = inventory.take();
            assert_eq!(again, place);
            sum += submit(&inventory, again, held.clone());
            sum += end(&inventory, again, &held);
        }
        sum += owner.join().unwrap();
        assert!(sum == 1 || sum == 2, "each job is settled once");
        assert_eq!(inventory.take(), place);
    });
}

/// A retirement says so, then looks; a job posts its place, then asks. Whoever looks in vain is told.
#[test]
fn a_job_that_the_drain_missed_tells_it() {
    check("jobs_drain_is_told", BOUND, || {
        let (inventory, place, held) = taken();
        assert_eq!(submit(&inventory, place, held.clone()), 0);
        let retired = Arc::new(AtomicBool::new(false));
        let (here, asked) = (inventory.clone(), retired.clone());
        let ends = thread::spawn(move || {
            assert_eq!(end(&here, place, &held), 0);
            asked.load(order::OBSERVE)
        });
        retired.store(true, order::PUBLISH);
        let found = drain(&inventory);
        let told = ends.join().unwrap();
        assert!(found == 1 || told, "it sleeps, and nobody wakes it");
        assert_eq!(found + drain(&inventory), 1);
    });
}

/// J4: after closing returned there is no worker more; cleanup goes on.
#[test]
fn a_worker_meets_the_retirement() {
    check("jobs_worker_meets_close", Bound::Complete, || {
        let word = Arc::new(JobsWord::new(1, 1, 1, 1));
        let workers = [(); 2].map(|()| {
            let word = word.clone();
            thread::spawn(move || word.reserve(Job::Worker))
        });
        assert!(!word.close());
        let seen = word.snapshot().workers;
        let got = workers.map(|worker| worker.join().unwrap());
        let now = word.snapshot().workers;
        assert_eq!(now, seen, "a worker came after closing had returned");
        assert_eq!(got.iter().filter(|got| got.is_ok()).count() as u32, now);
        for refused in got.iter().filter_map(|got| got.err()) {
            assert!(
                refused == Blocked::Closed || refused == Blocked::Full(Dimension::PoolsWorkers) && now == 1,
                "{refused:?}"
            );
        }
        word.reserve(Job::Cleanup).expect("cleanup is possible to the end");
        word.give(Job::Cleanup);
        if now == 1 {
            word.give(Job::Worker);
        }
        assert_eq!(word.reserve(Job::Worker), Err(Blocked::Closed));
        assert_eq!(word.snapshot().workers, 0);
    });
}
