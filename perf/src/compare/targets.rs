//! What we hold ourselves to: per path, what must hold and what is aimed at, as ratios within one run.

use super::machine::LOCKED_STEP;
use super::measure::Group;

/// One condition on the first of our subjects in a group.
pub(super) enum Bound {
    /// At most so many times a peer's time.
    Times(f64, &'static str),
    /// At most so many locked steps.
    Steps(f64),
    /// Two threads do at least so many times what one does.
    Scale(f64),
    /// By two threads, never slower than this peer by two threads.
    NeverSlower(&'static str),
    /// What the first of ours costs above the second runs at this share of the peer's speed.
    Share(f64, &'static str),
}

/// A path with its conditions.
pub(super) struct Target {
    pub(super) key: &'static str,
    pub(super) must: &'static [Bound],
    pub(super) aim: &'static [Bound],
}

use Bound::{NeverSlower, Scale, Share, Steps, Times};

/// All of them. Paths of which the issue names instructions only are held by `perf/check.sh`.
pub(super) const TARGETS: &[Target] = &[
    Target {
        key: "admit-now",
        must: &[Times(0.9, "5 tokio semaphores, borrowed"), Times(0.6, "5 tokio semaphores, owned")],
        aim: &[Steps(14.0)],
    },
    Target {
        key: "admit-wait",
        must: &[Times(1.0, "5 tokio semaphores, borrowed"), Times(0.65, "5 tokio semaphores, owned")],
        aim: &[Steps(17.0)],
    },
    Target {
        key: "handoff",
        must: &[Times(0.85, "3 tokio semaphores in line"), Times(1.2, "1 tokio semaphore")],
        aim: &[Times(0.65, "3 tokio semaphores in line"), Times(1.0, "1 tokio semaphore"), Steps(40.0)],
    },
    Target {
        key: "saturated",
        must: &[Times(0.85, "3 tokio semaphores in line"), Times(1.2, "1 tokio semaphore")],
        aim: &[Times(0.65, "3 tokio semaphores in line"), Times(1.0, "1 tokio semaphore")],
    },
    Target { key: "checkout", must: &[Times(0.2, "deadpool")], aim: &[Steps(8.5)] },
    Target { key: "stream-one", must: &[Times(1.1, "tachyonix")], aim: &[Steps(4.0)] },
    Target { key: "stream-four", must: &[Times(0.6, "tachyonix")], aim: &[Steps(3.0)] },
    Target { key: "stream-tasks", must: &[Times(1.2, "kanal")], aim: &[Times(1.0, "kanal")] },
    Target { key: "stream-threads", must: &[Times(1.0, "tokio mpsc")], aim: &[Times(0.7, "tachyonix")] },
    Target { key: "buffer", must: &[Times(1.6, "Mutex<Vec>")], aim: &[Steps(4.0)] },
    Target { key: "wipe", must: &[Share(0.8, "memset")], aim: &[Share(0.95, "memset")] },
    Target {
        key: "request",
        must: &[Times(0.5, "owned semaphores + deadpool + mpsc + malloc")],
        aim: &[Times(0.3, "owned semaphores + deadpool + mpsc + malloc")],
    },
    Target { key: "two-own", must: &[Scale(0.5)], aim: &[Scale(1.6)] },
    Target {
        key: "two-same",
        must: &[Scale(0.25), NeverSlower("5 tokio semaphores, owned")],
        aim: &[Scale(0.4)],
    },
    Target { key: "two-checkout-own", must: &[Scale(0.5)], aim: &[Scale(1.8)] },
    Target { key: "two-checkout-same", must: &[Scale(0.3)], aim: &[Scale(0.8)] },
];

/// How a condition came out.
pub(super) struct Verdict {
    pub(super) met: bool,
    /// What was found, and what was asked.
    pub(super) text: String,
}

impl Bound {
    /// The peer it names.
    pub(super) fn peer(&self) -> Option<&'static str> {
        match *self {
            Times(_, name) | Share(_, name) | NeverSlower(name) => Some(name),
            Steps(_) | Scale(_) => None,
        }
    }

    /// Judges a group; `None` if what is needed was not measured.
    pub(super) fn judge(&self, group: &Group, step: f64) -> Option<Verdict> {
        let mut ours = group.subjects.iter().filter(|subject| subject.ours);
        let first = ours.next()?;
        Some(match *self {
            Times(factor, name) => {
                let ratio = first.best() / group.subject(name)?.best();
                Verdict { met: ratio <= factor, text: format!("{ratio:.2} x {name}, asked {factor}") }
            }
            Steps(steps) => {
                let found = first.best() / step;
                Verdict { met: found <= steps, text: format!("{found:.1} R, asked {steps}") }
            }
            Scale(least) => {
                let found = first.scale();
                if found.is_nan() {
                    return None;
                }
                Verdict { met: found >= least, text: format!("scale {found:.2}, asked {least}") }
            }
            NeverSlower(name) => {
                let (found, peer) = (first.of_two(), group.subject(name)?.of_two());
                if found.is_nan() || peer.is_nan() {
                    return None;
                }
                Verdict {
                    met: found <= peer,
                    text: format!("{found:.0} ns, asked the {peer:.0} ns of {name}"),
                }
            }
            Share(share, name) => {
                let found = group.subject(name)?.best() / (first.best() - ours.next()?.best());
                Verdict { met: found >= share, text: format!("{found:.2} of {name}'s speed, asked {share}") }
            }
        })
    }
}

/// R, if it was measured.
pub(super) fn step(groups: &[Group]) -> f64 {
    groups.iter().find_map(|group| group.subject(LOCKED_STEP)).map_or(f64::NAN, |subject| subject.best())
}
