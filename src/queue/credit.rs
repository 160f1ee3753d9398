//! Credits: what an operation that ended leaves for the next one of the same tenant and provider nearby.
//!
//! Three words that all threads share are charged when an operation comes, moved when it is granted and given back when it
//! goes, and its slot comes from a list that all share. An operation that ends while nobody is in want puts all of it,
//! slot and charges together, into a cell of its thread's lane, from where the next one takes it in one step:
//!
//! ```text
//!               the three words, slot list              a cell of the lane (one word, see `mem::arena::stock`)
//!  admit_now  ─ reserve x 3, pop ───────────▶ runs ◀─── take: slot, request, running
//!  admit      ─ reserve x 3, pop ───────────▶ staged ◀─ take: slot, request, pending
//!  wait       ─ exchange x 3 ───────────────▶ runs ◀─── trade: gives pending, takes running
//!  end        ◀─ push, give x 3 ────────────── runs ──▶ leave: slot, request, running
//! ```
//!
//! What lies in a cell is charged in the three words as if it were in use, so limits are as hard as without. What would be
//! wrong is to refuse, queue or count because of it. Who is about to do so recalls the credits first, and as long as they
//! are recalled everybody works on the three words alone. One word says which:
//!
//! ```text
//!  63        26 25        14 13         2    1       0        LENT ──recall──▶ OFF ──all cells were swept──▶ OFF|COVERED
//! ┌────────────┬────────────┬────────────┬───────┬─────┐       ▲                                               │
//! │ round      │ sweepers 12│ keepers 12 │COVERED│ OFF │       └───── enough has ended, nobody is staged, no sweeper,
//! └────────────┴────────────┴────────────┴───────┴─────┘              no keeper: the next round ◀────────────────┘
//! ```
//!
//! * C1. All that lies in cells is charged: a slot's owner and its request at node, tenant and provider, each `running` at
//!   all three, each `pending` at the node. Charges and slot change hands together.
//! * C2. OFF is set before the cells are swept. Whoever put something into a cell looks at the word afterwards and sweeps
//!   the cell if credits are recalled. So in a round that is COVERED nothing lies in a cell but what is on its way out,
//!   and the release that it belongs to has not returned.
//! * C3. Whoever sweeps is counted before its first step on a cell and until all that it found is with the words, and no
//!   round ends while one is counted. COVERED is set by one who has swept every cell in this round.
//! * C4. Nobody queues while credits are lent: who queues is staged first and recalls then, and who lends again looks,
//!   after the step that lends, whether anybody is staged, by a step on the node's word. If so, it recalls.
//! * C5. A refusal for want of room is told only if the word that was full was read within one covered round. What another
//!   one is just sweeping counts as used, as the units of any attempt in flight do; who counts waits for it.
//! * C6. A lane is noted as used before anything is left in it, and never taken off; a sweep asks by a step, after OFF, which
//!   ones are. Whoever notes a lane after that, or sees it noted by one who did, sees OFF when it looks.
mod label;
mod mode;

use super::floor::{Floor, Tenure};
use crate::account::charge::{self, Held, Marks, Refused, Request};
use crate::account::node::NodeUnits;
use crate::account::scope::Blocked;
use crate::foreign::Panics;
use crate::mem::arena::{Cell, KEPT_MAX, Spare};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Counter, Line, Rows, order, thread_number};
use label::Label;
use mode::{COVERED, Mode, OFF, ONE_KEEPER};

/// How many threads have a lane of their own; more share them.
const LANES: usize = if cfg!(loom) { 1 } else { 64 };
/// Cells of a lane: for as many pairs of tenant and provider.
const CELLS: usize = if cfg!(loom) { 2 } else { 8 };
/// How many operations end on a lane, in the first round that is swept, before credits are lent again. It grows with the
/// rounds, so that recalls cost less than one step in eight operations, whatever comes. With debug assertions and in models
/// one is enough: there are then as many recalls as there can be.
const PATIENCE: u64 = if cfg!(any(loom, debug_assertions)) { 1 } else { 64 };
const PATIENCE_MOST: u64 = if cfg!(any(loom, debug_assertions)) { 1 } else { 64 * 64 };

/// Where the calling thread leaves and takes.
#[inline]
fn own_lane() -> usize {
    // One lane under loom, and never none.
    thread_number().checked_rem(LANES).unwrap_or(0)
}

/// The cells that threads leave credits in, on lines of their own.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
#[repr(C)]
struct Lane {
    cells: [Cell; CELLS],
    /// Operations that ended on this lane in rounds that were swept. Several threads may lose counts of each other: it only
    /// says when it is worth a look.
    ended: Counter,
    gap: [u64; 7],
}

/// The credits of a node.
#[derive(Debug)]
pub struct Credits {
    mode: Line<AtomicU64>,
    /// The lanes that something was ever left in, one bit each (C6).
    used: Line<AtomicU64>,
    lanes: Rows<Lane, LANES>,
}

impl Credits {
    /// Credits that are never lent, for models: all works the same without them.
    #[cfg(any(test, loom))]
    pub fn none() -> Credits {
        Credits { mode: Line::new(AtomicU64::new(OFF | COVERED | ONE_KEEPER)), used: Line::default(), lanes: Rows::new() }
    }

    /// No credits yet, but cells for them.
    pub fn lent() -> Credits {
        Credits { mode: Line::new(AtomicU64::new(0)), used: Line::default(), lanes: Rows::new() }
    }

    #[inline]
    fn mode(&self) -> Mode {
        Mode(self.mode.load(order::OBSERVE))
    }

    /// Whether credits are lent just now.
    #[inline]
    pub fn are_lent(&self) -> bool {
        self.mode().lends()
    }

    /// How many slots, pending and running units lie in some cells: an observation, exact while nothing moves.
    fn lie_in<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> [u32; 3] {
        let mut sums = [0; 3];
        for cell in cells {
            let (label, slots) = cell.look();
            let here = [slots, Label(label).pending(), Label(label).running()];
            for (sum, here) in sums.iter_mut().zip(here) {
                *sum += here;
            }
        }
        sums
    }

    fn step(&self, mut next: impl FnMut(Mode) -> Option<Mode>) -> Result<Mode, Mode> {
        let mut mode = self.mode();
        loop {
            let Some(Mode(replacement)) = next(mode) else { return Err(mode) };
            match self.mode.compare_exchange(mode.0, replacement, order::STEP, order::LOST) {
                Ok(_) => return Ok(Mode(replacement)),
                Err(found) => mode = Mode(found),
            }
        }
    }

    /// C6: something is about to be left in this lane.
    #[inline]
    fn use_lane(&self, lane: usize) {
        if self.used.load(order::OBSERVE) & 1 << lane == 0 {
            self.used.fetch_or(1 << lane, order::STEP);
        }
    }

    /// The cells of these lanes.
    fn cells_of(&self, used: u64) -> impl Iterator<Item = &Cell> {
        let is_used = move |(number, _): &(usize, &Lane)| used & 1 << number != 0;
        self.lanes.iter().enumerate().filter(is_used).flat_map(|(_, lane)| &lane.cells)
    }

    /// The two cells in which credits of a pair may lie, in a lane. Two pairs that share one still have another each.
    #[inline(always)]
    fn cells(&self, lane: usize, request: Request) -> [&Cell; 2] {
        let first = usize::from(request.tenant() ^ request.provider()) % CELLS;
        let cells = &self.lanes[lane].cells;
        [&cells[first], &cells[(first + CELLS / 2) % CELLS]]
    }
}

/// Keeps credits recalled until it is dropped.
#[must_use = "credits are lent again when it is dropped"]
#[derive(Debug)]
pub struct Exactly<'a>(&'a Credits);

impl Drop for Exactly<'_> {
    fn drop(&mut self) {
        self.0.mode.fetch_sub(ONE_KEEPER, order::STEP);
    }
}

#[inline(always)]
fn trade_in(cell: &Cell, pair: Label) -> bool {
    cell.relabel(|label| Some(Label(label).traded(pair)?.0))
}

#[inline(never)]
fn trade_in_other(cell: &Cell, pair: Label) -> bool {
    trade_in(cell, pair)
}

impl<K: Tenure> Floor<K> {
    /// Takes a slot and what it needs from the lane, if credits are lent and there are some of this pair.
    #[inline(always)]
    pub(super) fn take_credit(&self, request: Request, now: bool) -> Option<Spare> {
        let pair = Label::of(request);
        let [first, second] = self.credits.cells(own_lane(), request);
        match self.take_from(first, pair, now) {
            None => self.take_from_other(second, pair, now),
            taken => taken,
        }
    }

    #[inline(always)]
    fn take_from(&self, cell: &Cell, pair: Label, now: bool) -> Option<Spare> {
        self.operations.fetch(cell, |label| Some(Label(label).taken(pair, now)?.0))
    }

    /// Out of the way: what a pair leaves lies in its first cell, unless another pair's does.
    #[inline(never)]
    fn take_from_other(&self, cell: &Cell, pair: Label, now: bool) -> Option<Spare> {
        self.take_from(cell, pair, now)
    }

    /// Whether a running unit was to be had for a pending one, without the words.
    #[inline(always)]
    pub(super) fn trades(&self, request: Request) -> bool {
        self.credits.are_lent() && self.trade_credit(request)
    }

    /// Gives the lane a pending unit for a running one, if credits are lent and there is one of this pair.
    #[inline(always)]
    fn trade_credit(&self, request: Request) -> bool {
        let pair = Label::of(request);
        let [first, second] = self.credits.cells(own_lane(), request);
        trade_in(first, pair) || trade_in_other(second, pair)
    }

    /// Leaves the slot and the charges of an operation that ran for the next one.
    ///
    /// # Errors
    ///
    /// The slot: credits are recalled, or there is no place. The charges are still the caller's.
    #[inline(always)]
    pub(super) fn leave_credit(
        &self,
        request: Request,
        spare: Spare,
        panics: &mut Panics,
    ) -> Result<(), Spare> {
        if !self.credits.are_lent() {
            return Err(spare);
        }
        let lane = own_lane();
        self.credits.use_lane(lane);
        let [first, second] = self.credits.cells(lane, request);
        match self.leave_in(first, request, spare, panics) {
            Err(spare) => self.leave_in_other(second, request, spare, panics),
            left => left,
        }
    }

    #[inline(never)]
    fn leave_in_other(
        &self,
        cell: &Cell,
        request: Request,
        spare: Spare,
        panics: &mut Panics,
    ) -> Result<(), Spare> {
        self.leave_in(cell, request, spare, panics)
    }

    #[inline(always)]
    fn leave_in(&self, cell: &Cell, request: Request, spare: Spare, panics: &mut Panics) -> Result<(), Spare> {
        let pair = Label::of(request);
        self.operations.store(cell, spare, |label, kept| Some(Label(label).left(pair, kept)?.0))?;
        // C2.
        if !self.credits.are_lent() && !planted!("credit_after_the_sweep") {
            panics.run(|| self.look_back(cell));
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn look_back(&self, cell: &Cell) {
        if self.credits.step(Mode::looked_at_by_one).is_ok() {
            self.sweep([cell].into_iter(), false);
        }
    }

    /// C5: tries, and believes that there is no room only within a swept round.
    #[inline(always)]
    pub(super) fn try_exactly<R>(
        &self,
        request: Option<Request>,
        panics: &mut Panics,
        mut attempt: impl FnMut() -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        loop {
            let before = self.credits.mode();
            match attempt() {
                Err(refused) if !self.is_believed(before, refused.blocked) => {
                    panics.run(|| self.signal(refused.marks, request));
                    panics.run(|| self.recall());
                }
                result => return result,
            }
        }
    }

    fn is_believed(&self, before: Mode, why: Blocked) -> bool {
        let in_one_round = before.is_covered() && self.credits.mode().round() == before.round();
        in_one_round || matches!(why, Blocked::Closed | Blocked::Stale)
    }

    /// Recalls the credits, unless they are.
    #[inline]
    pub(super) fn recall(&self) {
        if !self.credits.mode().is_covered() {
            self.sweep_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn sweep_all(&self) {
        if self.credits.step(Mode::swept_by_one).is_ok() {
            // C6: a step, so that who uses a lane from now on sees what was said before.
            let used = self.credits.used.fetch_or(0, order::STEP);
            self.sweep(self.credits.cells_of(used), true);
        }
    }

    /// C3: the caller is counted. Whoever waited for what was found is looked at when nothing is in hand any more: to wake
    /// is foreign code.
    fn sweep<'a>(&self, cells: impl Iterator<Item = &'a Cell>, all: bool) {
        let mut marked = false;
        for cell in cells {
            marked |= self.sweep_cell(cell);
        }
        let left = self.credits.step(|mode| Some(mode.left_by_one(all)));
        debug_assert!(left.is_ok(), "it is always possible to leave");
        if marked {
            self.line.look_again(self);
        }
        if self.node.is_closed() {
            self.ended.notify_waiters();
        }
    }

    /// Gives what lies in a cell to the words. `true`: somebody waits for it.
    fn sweep_cell(&self, cell: &Cell) -> bool {
        let drained = self.operations.drain(cell);
        let label = Label(drained.label);
        let slots = drained.spares.into_iter().flatten().map(|spare| self.operations.put_back(spare)).count();
        let most = (slots as u32).max(label.running()).max(label.pending());
        if most == 0 {
            return false;
        }
        let request = Some(label.request());
        let scopes = self.scopes(request);
        let mut marks = Marks::NONE;
        // One by one: at most three of each, and a sweep is rare.
        for one in 0..most {
            if one < label.running() {
                marks.add(charge::return_running(&scopes, request));
            }
            if one < label.pending() {
                let _places_have_no_marks = scopes.node.give(NodeUnits::WAIT_POOL);
            }
            if one < slots as u32 {
                marks.add(charge::release(&scopes, request, Held::Returned));
            }
        }
        !marks.none()
    }

    /// An operation gave its charges to the words themselves. After enough of them, with nobody in line, credits are lent
    /// again.
    #[inline]
    pub(super) fn ended_without_credit(&self, panics: &mut Panics) {
        let mode = self.credits.mode();
        if mode.lent_again().is_some() {
            let lane = own_lane();
            let ended = &self.credits.lanes[lane].ended;
            ended.add_alone();
            if ended.get() >= (PATIENCE * (mode.round() + 1)).min(PATIENCE_MOST) {
                panics.run(|| self.lend_again(ended));
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lend_again(&self, ended: &Counter) {
        ended.set(0);
        if self.node.are_staged() {
            return;
        }
        if self.credits.step(Mode::lent_again).is_ok() && self.node.are_staged() {
            // C4.
            self.sweep_all();
        }
    }

    /// How many slots lie in cells, and how often credits were lent again.
    #[cfg(test)]
    pub(crate) fn credits_lie_about(&self) -> (u32, u64) {
        let credits = &self.credits;
        let [slots, ..] = Credits::lie_in(credits.cells_of(credits.used.load(order::OBSERVE)));
        (slots, credits.mode().round())
    }

    /// What was taken is of use, and counts for the most that ever was used. Credits are of no use, so they do not.
    ///
    /// It may wake others, so it is for whoever can leave all as it is if that panics.
    #[inline]
    pub(super) fn note_use(&self, request: Option<Request>) {
        if self.node.is_more_than_ever() {
            self.note_most(request);
        }
    }

    /// The same for the turn, which wakes nobody. Whoever waits there has recalled the credits (C4); if they are lent again
    /// for a moment, the next one notes it.
    pub(super) fn note_use_in_turn(&self) {
        if !self.credits.are_lent() {
            self.node.note_use();
        }
    }

    /// What lies about nearby explains it mostly, and is seen without a look at what other threads write; for that nothing is
    /// recalled. What lies elsewhere is: to look for it in every operation would cost more than credits spare, and what
    /// nobody has taken up since there were as many as now is of little use.
    #[cold]
    #[inline(never)]
    fn note_most(&self, request: Option<Request>) {
        let credits = &self.credits;
        let explained = |lies: [u32; 3]| !self.node.is_more_than_ever_but(lies);
        if request.is_some_and(|request| explained(Credits::lie_in(credits.cells(own_lane(), request))))
            || explained(Credits::lie_in(&credits.lanes[own_lane()].cells))
        {
            return;
        }
        let _recalled = self.recalled();
        // Others may be sweeping for reasons of their own. A request does not wait for them: the next one notes it.
        if self.credits.mode().is_swept() {
            self.node.note_use();
        }
    }

    /// Recalls the credits and keeps them recalled: the words count what is in use, and nothing else, until what this gives
    /// is dropped. Control path: it looks at every cell, and waits for others who do so.
    ///
    /// # Panics
    ///
    /// With what a waker panicked with, if somebody was woken.
    pub fn exactly(&self) -> Exactly<'_> {
        let guard = self.recalled();
        while !self.credits.mode().is_swept() {
            // A sweep is a few hundred steps and runs no foreign code.
            crate::sync::thread::yield_now();
        }
        guard
    }

    /// The same, but while others sweep it does not wait for them: until they have, the words may count what is of no use.
    fn recalled(&self) -> Exactly<'_> {
        let kept = self.credits.step(|mode| Some(mode.kept()));
        let guard = Exactly(&self.credits);
        if kept.is_ok_and(|mode| !mode.is_covered()) {
            self.sweep_all();
        }
        guard
    }

    /// No credits any more, for good.
    pub fn end_credits(&self) {
        std::mem::forget(self.exactly());
    }
}

const _: () = assert!(KEPT_MAX == 3, "as many slots in a cell as units of each kind");

#[cfg(test)]
mod tests;
