//! Broken accounting: a word left its range, or a step was taken from a state in which it cannot happen.
//!
//! That is a bug of this library, never of its user. It is not saturated, wrapped or repaired. The first one sets a flag
//! for the whole process: from then on no session is opened and nothing is admitted, installed or submitted as a job, on
//! any node of the process, and no snapshot is clean. Control tasks are told: each retires its registry, which wakes
//! everybody who waits. Then it panics, unless the thread is panicking already.

use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::sync::order;

/// Set once, never cleared. A plain flag of `std`: it outlives every model, and nobody meets at it.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Tells control tasks. Only they listen, and their wakers are their runtime's.
static TOLD: Notify = Notify::const_new();

/// Whether any accounting of this process was ever found broken.
#[must_use]
pub fn is_broken() -> bool {
    BROKEN.load(order::OBSERVE)
}

/// Resolves when accounting is found broken. Made before a look at [`is_broken`], it misses nothing.
pub fn told() -> Notified<'static> {
    TOLD.notified()
}

fn close() {
    BROKEN.store(true, order::PUBLISH);
    // The caller may be in the middle of a step, so nothing may panic here.
    if let Err(panic) = crate::foreign::foreign(|| TOLD.notify_waiters()) {
        drop(panic);
    }
}

/// Closes admission for good and panics. `what` names the invariant.
///
/// # Panics
///
/// Always.
#[cold]
#[inline(never)]
pub fn accounting(what: &'static str) -> ! {
    close();
    panic!("broken accounting: {what}");
}

/// The same for a destructor: returns if the thread is panicking already, because a second panic would end the process.
/// The caller then leaves its step undone.
///
/// # Panics
///
/// Unless the thread is already panicking.
#[cold]
#[inline(never)]
pub fn accounting_in_drop(what: &'static str) {
    close();
    if !std::thread::panicking() {
        panic!("broken accounting: {what}");
    }
}

/// For tests of what breaks: the flag is of the whole process and would spoil the snapshots of the tests beside it, so
/// `test` runs in a process of its own. `name` is the path of the calling test, from the root of the crate.
#[cfg(all(test, not(loom), not(miri)))]
pub fn in_a_process_of_its_own(name: &str, test: impl FnOnce()) {
    const INSIDE: &str = "LATENT_TEST_BREAKS";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        assert!(!is_broken());
        test();
        assert!(is_broken(), "nothing broke");
        return;
    }
    let binary = std::env::current_exe().expect("a test binary has a path");
    let mut child = std::process::Command::new(binary);
    // What breaks is left as it is, so a child of a sanitized build leaks, and is to.
    child.args([name, "--exact", "--test-threads=1"]).env(INSIDE, name).env("ASAN_OPTIONS", "detect_leaks=0");
    let output = child.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::foreign::foreign;

    #[test]
    fn a_break_panics_and_is_never_forgotten() {
        in_a_process_of_its_own("broken::tests::a_break_panics_and_is_never_forgotten", || {
            assert!(foreign(|| accounting("a count left its range")).is_err());
            assert!(is_broken());
        });
    }

    #[test]
    fn a_break_in_a_destructor_does_not_panic_twice() {
        struct Breaks;
        impl Drop for Breaks {
            fn drop(&mut self) {
                accounting_in_drop("a destructor found it");
            }
        }
        in_a_process_of_its_own("broken::tests::a_break_in_a_destructor_does_not_panic_twice", || {
            let doubly = foreign(|| {
                let _breaks = Breaks;
                panic!("the first panic");
            });
            let text = doubly
                .map_err(|panic| panic.into_payload().downcast_ref::<&str>().map(|text| (*text).to_owned()));
            assert_eq!(text, Err(Some("the first panic".to_owned())));
            assert!(foreign(|| drop(Breaks)).is_err(), "alone it panics");
        });
    }
}
