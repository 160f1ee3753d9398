//! Models of the typed cells: `mem::cells`, invariants C1 to C5. What is in a cell stands in a cell of loom's.
#![cfg(loom)]

use latent_capabilities::model::mem::cells::{Cell, Cells};
use latent_capabilities::model::sync::atomic::AtomicBool;
use latent_capabilities::model::sync::{Arc, order};
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Preemptions(3);

fn cells(count: usize) -> (Arc<Cells<u32>>, Vec<Cell<u32>>) {
    let cells = Arc::new(Cells::new(count));
    let filled = (0..).map_while(|number| {
        let mut cell = cells.reserve()?;
        assert_eq!(cells.put(&mut cell, number), None);
        Some(cell)
    });
    let filled = filled.collect();
    (cells, filled)
}

fn close(cells: &Cells<u32>) -> Vec<u32> {
    cells.close();
    cells.take_all_idle().map(|cell| cells.remove(cell).expect("an idle cell is filled")).collect()
}

#[test]
fn park_vs_close() {
    check("cells_park_vs_close", BOUND, || {
        let (shared, mut filled) = cells(1);
        let (cells, cell) = (shared.clone(), filled.remove(0));
        let parker = thread::spawn(move || cells.park(cell).err().and_then(|cell| cells.remove(cell)));
        let closed = close(&shared);
        let kept = parker.join().unwrap();
        assert_eq!(closed.len() + usize::from(kept.is_some()), 1, "one of the two destroys it");
        assert_eq!(shared.idle_count(), 0, "parked after the close");
        assert!(shared.reserve().is_some(), "it was freed");
    });
}

/// Nobody takes the idle cells here, so only the close itself meets who parks.
#[test]
fn park_after_close() {
    check("cells_park_after_close", BOUND, || {
        let (shared, mut filled) = cells(1);
        let closed = Arc::new(AtomicBool::new(false));
        let (cells, says) = (shared.clone(), closed.clone());
        let closer = thread::spawn(move || {
            cells.close();
            // Says that it happened, and hands nothing over.
            says.store(true, order::COUNT);
        });
        let was_closed = closed.load(order::COUNT);
        let parked = shared.park(filled.remove(0)).is_ok();
        assert!(!(was_closed && parked), "parked after the close");
        closer.join().unwrap();
        assert_eq!(shared.idle_count(), usize::from(parked));
    });
}

#[test]
fn checkout_vs_close() {
    check("cells_checkout_vs_close", BOUND, || {
        let (shared, filled) = cells(2);
        for cell in filled {
            shared.park(cell).expect("not closed");
        }
        let cells = shared.clone();
        let user = thread::spawn(move || {
            let mut cell = cells.take_idle()?;
            *cells.get_mut(&mut cell) += 10;
            cells.park(cell).err().and_then(|cell| cells.remove(cell))
        });
        let mut all = close(&shared);
        all.extend(user.join().unwrap());
        all.iter_mut().for_each(|value| *value %= 10);
        all.sort_unstable();
        assert_eq!(all, [0, 1], "each is destroyed once");
        assert_eq!(shared.idle_count(), 0, "parked after the close");
    });
}

#[test]
fn two_users_of_one_cell() {
    check("cells_two_users", BOUND, || {
        let (shared, mut filled) = cells(1);
        shared.park(filled.remove(0)).expect("not closed");
        let work = |cells: &Cells<u32>| {
            let Some(mut cell) = cells.take_idle() else { return 0 };
            *cells.get_mut(&mut cell) += 1;
            cells.park(cell).expect("not closed");
            1
        };
        let cells = shared.clone();
        let other = thread::spawn(move || work(&cells));
        let done = work(&shared) + other.join().unwrap();
        let cell = shared.take_idle().expect("it was parked again");
        assert_eq!(shared.remove(cell), Some(done));
    });
}

#[test]
fn remove_vs_reserve() {
    check("cells_remove_vs_reserve", BOUND, || {
        let (shared, mut filled) = cells(2);
        let (cells, cell) = (shared.clone(), filled.remove(0));
        let other = thread::spawn(move || {
            assert_eq!(cells.remove(cell), Some(0));
            cells.reserve().map(|mut cell| cells.put(&mut cell, 7)).is_some()
        });
        let mine = shared.reserve();
        if let Some(mut cell) = mine {
            assert_eq!(shared.put(&mut cell, 8), None, "a free cell is empty");
            assert_eq!(shared.remove(cell), Some(8));
        }
        let reserved = other.join().unwrap();
        let more = std::iter::from_fn(|| shared.reserve()).count();
        assert_eq!(usize::from(reserved) + more, 1, "one of two was freed");
    });
}
