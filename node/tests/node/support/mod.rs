//! A node process, an origin that misbehaves on request, and a client that sees every byte.

pub(crate) mod client;
pub(crate) mod node;
pub(crate) mod origin;

use std::time::{Duration, Instant};

/// How long anything in a test may take before it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks until the answer is yes; fails with `what` when it never is.
pub(crate) fn wait_until(what: &str, mut ask: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ask() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
