//! The allocation gate: on warmed threads no hot operation takes or gives back a block of the heap, on any thread.
//!
//! One test in one binary: the window counts all threads, the runner's too. `LATENT_ALLOC_TRAP=1` shows where the first
//! counted block comes from.
#[path = "support/mod.rs"]
mod support;

use support::alloc::{Counting, Counts, Whose, Window};
use support::hot::{LISTINGS, Node, SCENARIOS};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_hot_operation_takes_or_gives_back_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let node = Node::new();
    let mut found = Vec::with_capacity(SCENARIOS.len() + 1);
    for (name, scenario) in SCENARIOS.iter().chain([&LISTINGS]) {
        // To warm up.
        for _ in 0..3 {
            scenario(&node);
        }
        let window = Window::open(Whose::AllThreads);
        for _ in 0..3 {
            scenario(&node);
        }
        let counts = window.close();
        println!("{name}: {} taken, {} given back", counts.allocations, counts.deallocations);
        if counts != Counts::NONE {
            found.push(*name);
        }
    }
    assert!(found.is_empty(), "these touch the heap: {found:?}");
    assert!(node.io.snapshot().is_zero(), "{:?}", node.io.snapshot());
    assert!(node.pools.snapshot().is_idle(), "{:?}", node.pools.snapshot());
}
