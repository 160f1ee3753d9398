//! Models of a transfer's window: `queue::window`, invariants X1 to X3, on the real slots and park cells. What a place
//! costs is counted outside of the model's eyes; whoever gives one back twice, or never, fails the model.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};

use latent_capabilities::model::mem::arena::{Anchor, Ending, Lease, Nest, Occupant, Root, RootPin};
use latent_capabilities::model::queue::window::{self, Direction, Window};
use loom::thread;
use loom_tests::{Bound, check};

use Direction::{Input, Output};

#[derive(Default)]
struct Operation;

impl Occupant for Operation {
    type Pin = RootPin<Operation, Nest<Transfer>>;

    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

#[derive(Default)]
struct Transfer;

impl Occupant for Transfer {
    type Pin = Lease<Operation>;

    fn last_lease(ending: Ending<'_, Self>) {
        drop(ending.finish());
    }
}

fn transfer() -> (Anchor<Operation, Nest<Transfer>>, Lease<Transfer>) {
    let root = Root::new(1, Nest::new(1));
    let operation = root.take(1, |_: &Operation| {}).expect("free");
    let transfer = Nest::<Transfer>::take(operation, |nest| nest).expect("free");
    (root, transfer)
}

/// Places that were given back.
type Given = Arc<AtomicUsize>;

/// What dropping a chunk does.
fn drop_chunk(chunk: Lease<Transfer>, direction: Direction, given: &Given) {
    let freed = window::free(&chunk, direction);
    given.fetch_add(usize::from(freed.orphaned), Relaxed);
    drop(freed);
}

/// What dropping the transfer does, with so many places each way.
fn drop_transfer(transfer: Lease<Transfer>, places: u32, given: &Given) {
    let (free, wakers) = window::close(&transfer, [places; 2]);
    given.fetch_add(free.iter().sum::<u32>() as usize, Relaxed);
    drop(wakers);
}

struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn counter() -> (Arc<Counter>, Waker) {
    let counter = Arc::new(Counter(AtomicUsize::new(0)));
    (counter.clone(), counter.into())
}

/// X2: chunks of both directions come back while the transfer closes: each place goes back once.
#[test]
fn close_vs_chunks() {
    check("close_vs_chunks", Bound::Preemptions(4), || {
        let (_root, transfer) = transfer();
        let given = Given::default();
        let input = window::take(&transfer, Input, 2).expect("free");
        let output = window::take(&transfer, Output, 2).expect("free");
        let threads = [(input, Input), (output, Output)].map(|(chunk, direction)| {
            let given = given.clone();
            thread::spawn(move || drop_chunk(chunk, direction, &given))
        });
        drop_transfer(transfer, 2, &given);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(given.load(Relaxed), 4);
    });
}

/// X1: two takers and one place: one of them gets it; a place that came back can be taken again.
#[test]
fn two_takers_one_place() {
    check("two_takers_one_place", Bound::Complete, || {
        let (_root, transfer) = transfer();
        let given = Given::default();
        let (other, others) = (transfer.duplicate(), given.clone());
        let thread = thread::spawn(move || match window::take(&other, Output, 1) {
            Ok(chunk) => drop_chunk(chunk, Output, &others),
            Err(bits) => assert_eq!(Window(bits).out(Output), 1),
        });
        match window::take(&transfer, Output, 1) {
            Ok(chunk) => drop_chunk(chunk, Output, &given),
            Err(bits) => assert_eq!(Window(bits).out(Output), 1),
        }
        thread.join().unwrap();
        assert_eq!(given.load(Relaxed), 0, "the transfer is open: its places are its own");
        drop_transfer(transfer, 1, &given);
        assert_eq!(given.load(Relaxed), 2);
    });
}

/// X3: whoever parks for a place is woken by the chunk that frees one, or sees it; a chunk of the other direction wakes
/// nobody.
#[test]
fn waiter_vs_chunks() {
    check("waiter_vs_chunks", Bound::Preemptions(3), || {
        let (_root, transfer) = transfer();
        let given = Given::default();
        let chunk = window::take(&transfer, Output, 1).expect("free");
        let other = window::take(&transfer, Input, 1).expect("free");
        let (woken, waker) = counter();
        let (frees, others) = (given.clone(), given.clone());
        let freeing = thread::spawn(move || drop_chunk(chunk, Output, &frees));
        let other = thread::spawn(move || drop_chunk(other, Input, &others));
        let mut seat = window::sit(&transfer, Output).expect("nobody sits there");
        let parked = window::park(&transfer, &mut seat, Output, 1, &waker);
        freeing.join().unwrap();
        other.join().unwrap();
        assert_eq!(woken.0.load(Relaxed), usize::from(parked));
        let again = window::take(&transfer, Output, 1).expect("the place came back");
        transfer.release(seat);
        drop_transfer(transfer, 1, &given);
        assert_eq!(given.load(Relaxed), 1);
        drop_chunk(again, Output, &given);
        assert_eq!(given.load(Relaxed), 2);
        drop(waker);
        assert_eq!(Arc::strong_count(&woken), 1, "a waker was leaked");
    });
}

/// X3: a waiter that leaves while the place comes back takes nothing with it that the other waiter needs.
#[test]
fn a_leaving_waiter_and_a_staying_one() {
    check("a_leaving_waiter_and_a_staying_one", Bound::Preemptions(3), || {
        let (_root, transfer) = transfer();
        let given = Given::default();
        let chunk = window::take(&transfer, Input, 1).expect("free");
        let ((_leaver, leaving), (stayer, staying)) = (counter(), counter());
        let mut stays = window::sit(&transfer, Input).expect("a cell is free");
        let stayed = window::park(&transfer, &mut stays, Input, 1, &staying);
        assert!(stayed, "the window is full");
        let (leaves, frees) = (transfer.duplicate(), given.clone());
        let thread = thread::spawn(move || {
            let mut seat = window::sit(&leaves, Input).expect("another cell is free");
            window::park(&leaves, &mut seat, Input, 1, &leaving);
            leaves.release(seat);
        });
        drop_chunk(chunk, Input, &frees);
        assert_eq!(stayer.0.load(Relaxed), 1);
        thread.join().unwrap();
        transfer.release(stays);
        drop_transfer(transfer, 1, &given);
        assert_eq!(given.load(Relaxed), 2);
    });
}
