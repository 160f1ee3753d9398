//! Short runs of `examples/justified`: no refusal that no order of the calls explains, and none at all below all limits.
#[path = "../examples/justified/check.rs"]
#[allow(dead_code, reason = "shared with the example, which prints more of it")]
mod check;
#[path = "../examples/justified/limits.rs"]
mod limits;
#[path = "../examples/justified/load.rs"]
mod load;

use limits::Load;
use load::round;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[test]
fn every_refusal_of_a_saturated_node_is_justified() {
    let runtime = runtime();
    let mut all = check::Verdict::default();
    // A machine that takes the threads' cores away for long leaves fewer refusals that are certain: then some more.
    for seed in 1..=12 {
        if seed > 3 && all.certain > 100 && all.explained > 100 {
            break;
        }
        all.add(round(Load::Saturated, seed, 2_000, runtime.handle()));
    }
    assert_eq!(all.unjustified, Vec::<String>::new());
    // Of recalls there are here as many as there can be.
    assert!(all.by_recall * 20 < all.refusals(), "{all:?}");
    // It was a run in which there was something to refuse, to rotate and to lower.
    assert!(all.certain > 100 && all.explained > 100, "{all:?}");
    assert!(all.replaced > 0 && all.accepted_lowerings > 0 && all.refused_lowerings > 0, "{all:?}");
}

#[test]
fn nothing_is_refused_below_all_limits() {
    let runtime = runtime();
    let mut all = check::Verdict::default();
    for seed in 1..=2 {
        all.add(round(Load::Quiet, seed, 2_000, runtime.handle()));
    }
    assert_eq!((all.refusals(), all.refused_lowerings), (0, 0), "{:?}", all.unjustified);
    assert!(all.accepted_lowerings > 0 && all.installs > 6, "{all:?}");
}

/// The checker finds what it is there for: a refusal for a limit that was never full, and one for which nobody waited.
#[test]
fn the_checker_catches_a_refusal_that_nothing_explains() {
    use check::{Key, Said, call};
    use latent_capabilities::Dimension::PoolsRunning;
    let key = Key(PoolsRunning, 0);
    let judged = |held: u64, said: Said| {
        let spans: Vec<_> = (0..held)
            .map(|_| {
                let span = call(|| ()).1;
                check::took(key, span);
                span
            })
            .collect();
        let span = call(|| ()).1;
        check::tried(key, span);
        check::refused(span, said);
        for _ in spans {
            check::gave(key, call(|| ()).1);
        }
        check::check(vec![check::take_log()], &|_| 2)
    };
    let full = judged(2, Said::Full(key));
    assert_eq!((full.certain, full.unjustified.len()), (1, 0));
    let early = judged(1, Said::Full(key));
    assert_eq!((early.certain, early.explained, early.unjustified.len()), (0, 0, 1), "{early:?}");
    let alone = judged(2, Said::Promised(key));
    assert_eq!((alone.promised, alone.unjustified.len()), (0, 1), "{alone:?}");
}
