//! Whether an operation may go on, asked again and again from the same place.
//!
//! Reading the clock costs as much as two steps, more than handing a chunk over. It need not be read where whatever ends the
//! operation is told to its own word: its expiry by the keeper, if that watches it; a stop of its session, if the session was told
//! to reach it (B3 of the session). Then a look is one load. Only every so often the clock is read all the same, so that an owner that
//! never lets the control task run meets its deadline too.
use crate::broker::error::Error;
use crate::broker::ground::OperationLease;
use crate::broker::io::admission::{check_by_clock, goes_on};
use crate::broker::session_core::SessionBits;
use crate::queue::operation::State;
use crate::queue::watched::note_for_session;
use crate::sync::order;

/// How many looks in a row may be no more than a load.
const QUICK: u8 = 15;
/// What was looked at is under way.
const UNDER_WAY: u8 = u8::MAX;

/// The looks of one place.
#[derive(Debug)]
pub(super) struct Looks {
    /// So many more may be quick; or [`UNDER_WAY`].
    left: u8,
    /// There was a look before.
    again: bool,
}

impl Looks {
    /// None yet.
    pub(super) const fn new() -> Self {
        Looks { left: 0, again: false }
    }

    /// Whether the operation goes on, by one load; fifteen times in a row at most. A stop is seen at once, an expiry once the keeper
    /// has told of it. `false`: by way of [`check`](Self::check).
    #[inline]
    pub(super) fn quick(&self, lease: &OperationLease) -> bool {
        self.left.wrapping_sub(1) < QUICK && !State(lease.word().load()).has_cause()
    }

    /// A [`quick`](Self::quick) look was used.
    #[inline]
    pub(super) fn spend(&mut self) {
        self.left -= 1;
    }

    /// Whether the operation goes on, quickly or not. The first look is a few loads, if these can tell: who looks once need not
    /// prepare for more.
    #[cold]
    pub(super) fn check(&mut self, lease: &OperationLease) -> Result<(), Error> {
        if self.quick(lease) {
            self.spend();
            return Ok(());
        }
        self.left = 0;
        if !std::mem::replace(&mut self.again, true) && goes_on(lease) {
            return Ok(());
        }
        // Noted first: a stop of the session reaches it from here on, or is seen by the check.
        note_for_session(lease);
        check_by_clock(lease)?;
        // It has started, which was a step on its word (D2 of the keeper); what was narrowed since is watched from here on.
        let watched = lease.shared().floor.keeper.watch(lease, lease.deadline.load(order::COUNT));
        if watched && !SessionBits(lease.pin().word().load()).is_probed() {
            self.left = QUICK;
        }
        Ok(())
    }

    /// What was looked at begins. If it is not [over](Self::over) before the next look, it panicked.
    #[inline]
    pub(super) fn begin(&mut self) -> u8 {
        std::mem::replace(&mut self.left, UNDER_WAY)
    }

    /// It is over; `before` is from its beginning.
    #[inline]
    pub(super) fn over(&mut self, before: u8) {
        self.left = if before == 0 { 0 } else { before - 1 };
    }

    /// Whether something began and was never over.
    pub(super) fn is_under_way(&self) -> bool {
        self.left == UNDER_WAY
    }

    /// The next look is not a quick one.
    pub(super) fn reset(&mut self) {
        self.left = 0;
    }
}
