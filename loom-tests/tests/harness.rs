//! The harness itself: what it counts, and what it must refuse to call a success.
//!
//! The names of these searches begin with `harness_`: the table of figures leaves them out.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_tests::{Bound, FEWEST, check, check_few, check_within, figures_file};

/// Runs a search that must not pass, and returns what it said.
fn refused(search: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(search)).expect_err("the harness called it a success");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("the harness panics with a text")
}

/// The last figure line of the search called `name`.
fn figures(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(figures_file()).expect("the figures file can be read");
    let line = text.lines().rfind(|line| line.starts_with(&format!("model {name} "))).expect("a figure line");
    line.split(' ').map(str::to_owned).collect()
}

fn two_threads_add() {
    let word = Arc::new(AtomicUsize::new(0));
    let other = Arc::clone(&word);
    let thread = thread::spawn(move || {
        other.fetch_add(1, Ordering::AcqRel);
        other.fetch_add(1, Ordering::AcqRel);
    });
    word.fetch_add(1, Ordering::AcqRel);
    word.fetch_add(1, Ordering::AcqRel);
    thread.join().unwrap();
    assert_eq!(word.load(Ordering::Acquire), 4);
}

fn two_threads_publish(order: Ordering) {
    let shared = Arc::new((UnsafeCell::new(0), AtomicUsize::new(0)));
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        other.0.with_mut(|_cell| ());
        other.1.store(1, order);
    });
    if shared.1.load(Ordering::Acquire) == 1 {
        shared.0.with(|_cell| ());
    }
    thread.join().unwrap();
}

#[test]
fn a_search_that_ends_is_counted_and_written_down() {
    check("harness_ends", Bound::Complete, two_threads_add);
    let line = figures("harness_ends");
    assert_eq!(line[2..4], ["bound", "complete"]);
    assert!(line[5].parse::<usize>().unwrap() >= FEWEST, "{line:?}");
    assert_eq!(line[8], "ended");
}

#[test]
fn a_search_out_of_time_is_refused() {
    let said = refused(|| check_within(Duration::ZERO, "harness_late", Bound::Complete, two_threads_add));
    assert!(said.contains("did not end"), "{said}");
    assert_eq!(figures("harness_late")[8], "CUT");
}

#[test]
fn a_search_that_loom_cannot_see_is_refused() {
    let unseen = || {
        let word = std::sync::atomic::AtomicUsize::new(0);
        word.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
    };
    let said = refused(|| check("harness_unseen", Bound::Complete, unseen));
    assert!(said.contains("explored 1 executions only"), "{said}");
    let said = refused(|| check_few("harness_unseen", "there is none", Bound::Complete, unseen));
    assert!(said.contains("nothing in it races"), "{said}");
}

#[test]
fn a_small_search_must_be_called_small_and_a_large_one_not() {
    check_few("harness_small", "one store, one load", Bound::Complete, || {
        two_threads_publish(Ordering::Release)
    });
    let said = refused(|| check_few("harness_large", "it is not", Bound::Complete, two_threads_add));
    assert!(said.contains("use `check`"), "{said}");
}

#[test]
fn a_relaxed_publication_is_found() {
    let said =
        refused(|| check("harness_race", Bound::Preemptions(2), || two_threads_publish(Ordering::Relaxed)));
    assert!(said.contains("Causality violation"), "{said}");
    assert_eq!(figures("harness_race")[8], "FAILED");
}
