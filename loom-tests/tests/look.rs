//! Models of the look for connections that rested too long: `queue::look`, invariant F1, with the real cells that connections are
//! parked in.
#![cfg(loom)]

use latent_capabilities::model::mem::cells::Cells;
use latent_capabilities::model::queue::look::NextLook;
use latent_capabilities::model::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Complete;

/// When the look that is under way was planned, and when what is parked meanwhile is due.
const NOW: u64 = 3;
const DUE: u64 = 5;

struct Client {
    cells: Cells<u32>,
    next: NextLook,
}

/// A client with a look that was planned.
fn client(places: usize) -> Arc<Client> {
    let client = Client { cells: Cells::new(places), next: NextLook::new() };
    assert!(client.next.step_to(NOW));
    Arc::new(client)
}

fn park(client: &Client, due: u64) {
    let mut cell = client.cells.reserve().expect("there is a place");
    assert_eq!(client.cells.put(&mut cell, 0), None);
    client.cells.park(cell).expect("it is open");
    let _wakes = client.next.at_most(due);
}

/// What the control task does: whether it found something that rests.
fn look(client: &Client) -> bool {
    client.next.forget();
    client.cells.meet();
    let rests = (0..client.cells.capacity()).any(|place| client.cells.is_idle(place));
    if rests {
        let _wakes = client.next.at_most(DUE);
    }
    rests
}

#[test]
fn a_park_meets_a_look() {
    check("look::a_park_meets_a_look", BOUND, || {
        let client = client(1);
        let parker = thread::spawn({
            let client = client.clone();
            move || park(&client, DUE)
        });
        look(&client);
        parker.join().unwrap();
        assert_eq!(client.next.at(), DUE, "nobody looks at what rests");
    });
}

/// Two park, the second one of them for a shorter time.
#[test]
fn two_parks_meet_a_look() {
    check("look::two_parks_meet_a_look", Bound::Preemptions(3), || {
        let client = client(2);
        let parkers = [DUE, DUE - 1].map(|due| {
            thread::spawn({
                let client = client.clone();
                move || park(&client, due)
            })
        });
        look(&client);
        for parker in parkers {
            parker.join().unwrap();
        }
        let next = client.next.at();
        assert!(next == DUE || next == DUE - 1, "nobody looks at what rests: {next}");
    });
}
