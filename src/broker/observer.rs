//! The observer: is everything of a session gone?
//!
//! Whoever destroys the execution that a session belonged to (a Wasm store, a worker) asks here whether the place can be
//! used again. The answer counts what lives in the session's one word; nothing is inferred from time or from budgets.

use crate::broker::session::Weak;
use crate::broker::session_core::SessionBits;
use crate::sync::atomic::AtomicBool;
use crate::sync::order;

/// A weak view of one session. It keeps nothing of it.
#[derive(Debug)]
pub struct CapabilitySessionObserver {
    session: Weak,
    /// This observer has reported quarantine, and will not take it back.
    quarantined: AtomicBool,
}

/// What lives of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remaining {
    /// The session was not closed.
    pub open: bool,
    /// Operations: waiting, running, or held by buffers, streams and chunks that were delivered.
    pub calls: u32,
    /// Calls that were dispatched and neither started nor dropped.
    pub accepted: u32,
    /// Resource tables.
    pub tables: u32,
}

impl Remaining {
    fn of(bits: SessionBits) -> Remaining {
        Remaining {
            open: !bits.is_closed(),
            calls: bits.calls() as u32,
            accepted: bits.accepted() as u32,
            tables: bits.tables() as u32,
        }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Remaining::default()
    }
}

/// The verdict on what a session belonged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// Everything of the session is gone: the place can be used again.
    Reusable,
    /// Something was left when it was asked first, so the place is not to be used again by itself. With what is left
    /// now, which may be nothing.
    Quarantined(Remaining),
}

impl CapabilitySessionObserver {
    pub(crate) fn new(session: Weak) -> Self {
        CapabilitySessionObserver { session, quarantined: AtomicBool::new(false) }
    }

    fn bits(&self) -> Option<SessionBits> {
        self.session.upgrade().map(|session| SessionBits(session.word().load()))
    }

    /// What lives of the session now.
    #[must_use]
    pub fn remaining(&self) -> Remaining {
        self.bits().map(Remaining::of).unwrap_or_default()
    }

    /// Whether the session was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.remaining().open
    }

    /// How many calls live: accepted, waiting, running, or held by what they delivered.
    #[must_use]
    pub fn live_calls(&self) -> u32 {
        let remaining = self.remaining();
        remaining.calls + remaining.accepted
    }

    /// Whether the session is closed and nothing of it lives.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.remaining().is_nothing()
    }

    /// The cleanup check, to be asked once the execution was destroyed.
    ///
    /// If anything of the session lives at that moment, the verdict is quarantine, and stays so for this observer, its
    /// later clones, and whoever asks while something is left: what is reclaimed later does not take it back.
    #[must_use]
    pub fn after_store_dropped(&self) -> Reclaim {
        let remaining = match self.session.upgrade() {
            None => Remaining::default(),
            // One step looks and marks, so that of two who ask at once none calls reusable what the other does not.
            Some(session) => match session.word().update(|bits| SessionBits(bits).quarantined()) {
                Ok((before, _)) => Remaining::of(SessionBits(before)),
                Err(bits) => {
                    if SessionBits(bits).is_quarantined() {
                        self.quarantined.store(true, order::PUBLISH);
                    }
                    Remaining::of(SessionBits(bits))
                }
            },
        };
        if !remaining.is_nothing() {
            self.quarantined.store(true, order::PUBLISH);
        }
        if self.quarantined.load(order::OBSERVE) {
            Reclaim::Quarantined(remaining)
        } else {
            Reclaim::Reusable
        }
    }
}

impl Clone for CapabilitySessionObserver {
    fn clone(&self) -> Self {
        let quarantined = AtomicBool::new(self.quarantined.load(order::OBSERVE));
        CapabilitySessionObserver { session: self.session.clone(), quarantined }
    }
}
