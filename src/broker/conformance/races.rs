//! Threads that take rights back while others use them: what is refused after the taking returned stays refused, and at
//! the end nothing is left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Node, SEND, soon};
use crate::broker::{Broker, Budget, Cost, Plan, Provider};

const ROUNDS: usize = 40;

/// Two threads admit, dispatch and start as fast as they can while this one takes the right away. None may start with a
/// dispatch that began after `take` had returned.
fn nothing_starts_after(take: impl Fn(&Broker, &Plan, &mut Option<Provider>)) {
    for _ in 0..ROUNDS {
        let Node { io, plan, provider, broker } = Node::new();
        let mut provider = Some(provider);
        let (taken, started, late) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let Ok(session) = broker.open(&plan, soon()) else { return };
                    loop {
                        let after = taken.load(Ordering::SeqCst);
                        let call = io
                            .admit_now(&session)
                            .and_then(|ready| ready.start(session.dispatch(SEND, Cost::new())?));
                        if call.is_ok() {
                            let count = if after { &late } else { &started };
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                        if after {
                            return;
                        }
                    }
                });
            }
            while started.load(Ordering::SeqCst) < 3 {
                std::hint::spin_loop();
            }
            take(&broker, &plan, &mut provider);
            taken.store(true, Ordering::SeqCst);
        });
        assert_eq!(late.load(Ordering::SeqCst), 0, "a call started after the right was taken away");
        assert!(io.snapshot().is_zero(), "{:?}", io.snapshot());
        assert!(broker.snapshot().is_clean(), "{:?}", broker.snapshot());
    }
}

// pools.55: a revoked policy cannot authorize a later start.
#[test]
fn nothing_starts_after_a_revocation_returned() {
    nothing_starts_after(|_, plan, _| assert_eq!(plan.revoke(SEND), Ok(true)));
}

// b82, b83.
#[test]
fn nothing_starts_after_a_withdrawal_returned() {
    nothing_starts_after(|broker, _, _| assert_eq!(broker.withdraw("publication-1"), 1));
}

// pools.55, b85: a retired provider cannot authorize a later start.
#[test]
fn nothing_starts_after_a_providers_retirement_returned() {
    nothing_starts_after(|_, _, provider| drop(provider.take()));
}

// pools.81 for the broker.
#[test]
fn nothing_starts_after_the_brokers_retirement_returned() {
    nothing_starts_after(|broker, _, _| broker.retire());
}

// b86, b87: sessions opened, used, stopped and closed by all threads at once leave nothing.
#[test]
fn sessions_stopped_while_they_work_leave_nothing() {
    let node = Node::new();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let activation = soon().budget(Budget::Effects, 10);
                    let Ok(session) = node.broker.open(&node.plan, activation) else { continue };
                    let (stop, observer) = (session.stop_handle(), session.observer());
                    std::thread::scope(|inner| {
                        inner.spawn(move || stop.stop());
                        let cost = Cost::new().charge(Budget::Effects, 1);
                        for _ in 0..3 {
                            let call = node
                                .io
                                .admit_now(&session)
                                .and_then(|ready| ready.start(session.dispatch(SEND, cost)?));
                            drop((call, session.reserve_resource_table(1)));
                        }
                        assert!(session.remaining(Budget::Effects) >= 7);
                    });
                    assert!(session.check().is_err() && session.dispatch(SEND, Cost::new()).is_err());
                    session.close();
                    assert!(observer.is_quiescent());
                }
            });
        }
    });
    node.assert_clean();
}
