//! The node's word: places of operations, running units, and the two marks of the line.
//!
//! ```text
//!  63        62       61      60          50 49       39 38        26 25        13 12         0
//! │POOL_MARK│IO_MARK│CLOSED│ pools.running │pools.pending│ io.running │ io.queued │ io.owners │
//! ```
//!
//! * N1. Every operation holds one owner. It holds one queued (and one pending, with pools) until it is granted, and
//!   one running (of both kinds, with pools) afterwards.
//! * N2. CLOSED is set once and never cleared. It is read by each compare-and-swap that reserves.
//! * N3. A mark is set only by the turn, in the step that found no room for a waiter, and cleared only by the turn, after
//!   a pass that left nobody blocked here. While it is set no newcomer takes what the waiter needs, also while a freed
//!   unit is on its way to the waiter.
//! * N4. Whoever gives to a marked word sees the mark in the step that gives, and signals the turn.
//!
//! Rooms: see [`super::room`], R1 to R5.

use std::convert::Infallible;

use super::dimension::Dimension;
use super::peaks::Peaks;
use super::room::{Field, Layout, Lowering, Planned, Rooms, given, lowering, taken};
use super::scope::{Blocked, Heed, NotLowered};

const OWNERS: Field = Field::new(0, 13, Dimension::IoOwners);
const QUEUED: Field = Field::new(13, 13, Dimension::IoQueued);
const RUNNING: Field = Field::new(26, 13, Dimension::IoRunning);
const PENDING: Field = Field::new(39, 11, Dimension::PoolsPending);
const POOL_RUNNING: Field = Field::new(50, 11, Dimension::PoolsRunning);
const CLOSED: u64 = 1 << 61;
const IO_MARK: u64 = 1 << 62;
const POOL_MARK: u64 = 1 << 63;

#[derive(Debug)]
struct NodeLayout;

impl Layout for NodeLayout {
    const FIELDS: &'static [Field] = &[OWNERS, QUEUED, RUNNING, PENDING, POOL_RUNNING];
}

/// Units of the node's word, several dimensions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeUnits(u64);

impl NodeUnits {
    /// Nothing.
    pub const NONE: NodeUnits = NodeUnits(0);
    /// The place of the operation itself.
    pub const OWNER: NodeUnits = NodeUnits(OWNERS.units(1));
    /// Waiting, direct.
    pub const WAIT_IO: NodeUnits = NodeUnits(QUEUED.units(1));
    /// Waiting, with pools.
    pub const WAIT_POOL: NodeUnits = NodeUnits::WAIT_IO.and(NodeUnits(PENDING.units(1)));
    /// Running, direct.
    pub const RUN_IO: NodeUnits = NodeUnits(RUNNING.units(1));
    /// Running, with pools.
    pub const RUN_POOL: NodeUnits = NodeUnits::RUN_IO.and(NodeUnits(POOL_RUNNING.units(1)));
    /// Owner and waiting, direct.
    pub const STAGED_IO: NodeUnits = NodeUnits::OWNER.and(NodeUnits::WAIT_IO);
    /// Owner and waiting, with pools.
    pub const STAGED_POOL: NodeUnits = NodeUnits::OWNER.and(NodeUnits::WAIT_POOL);
    /// Owner and running, direct.
    pub const NOW_IO: NodeUnits = NodeUnits::OWNER.and(NodeUnits::RUN_IO);
    /// Owner and running, with pools.
    pub const NOW_POOL: NodeUnits = NodeUnits::OWNER.and(NodeUnits::RUN_POOL);

    /// Both together. They must not name the same dimension.
    #[must_use]
    #[inline]
    pub const fn and(self, other: NodeUnits) -> NodeUnits {
        debug_assert!(self.0 & other.0 == 0, "the same unit twice");
        NodeUnits(self.0 | other.0)
    }

    /// What the lowest of these units is counted as: by it a trial refuses them.
    #[cfg(test)]
    fn first(self) -> Dimension {
        let field = NodeLayout::FIELDS.iter().find(|field| field.of(self.0) > 0);
        field.map_or(Dimension::IoOwners, |field| field.dimension())
    }

    /// The marks that stand in front of these units: running units have them, places in the line do not.
    #[inline]
    const fn marks(self) -> u64 {
        let io = if RUNNING.of(self.0) > 0 { IO_MARK } else { 0 };
        let pool = if POOL_RUNNING.of(self.0) > 0 { POOL_MARK } else { 0 };
        io | pool
    }
}

/// Who waits at the node, as the step saw it that gave. Whoever gave running units must signal the turn if one is set;
/// the turn itself looks again anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Somebody waits for `io.running`.
    pub io_marked: bool,
    /// Somebody waits for `pools.running`.
    pub pool_marked: bool,
}

impl Given {
    #[inline]
    const fn of(word: u64) -> Given {
        Given { io_marked: word & IO_MARK != 0, pool_marked: word & POOL_MARK != 0 }
    }
}

/// What is used of the node, at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// Operations.
    pub owners: u32,
    /// Operations staged or waiting.
    pub queued: u32,
    /// Operations running.
    pub running: u32,
    /// Of the queued: pool requests.
    pub pending: u32,
    /// Of the running: pool requests.
    pub pool_running: u32,
    /// Whether admission is closed for good.
    pub closed: bool,
}

lowering!(NodeWord);

/// The room of the node.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct NodeWord {
    rooms: Rooms<NodeLayout>,
    peaks: Peaks<NodeLayout>,
}

/// Takes `units`, or says what stands against it. CLOSED comes first; marks come last, because where there is no room
/// at all, "full" is a truer answer than "somebody waits".
#[inline(always)]
fn reserved(word: u64, units: NodeUnits, heed: Heed) -> Result<u64, Blocked> {
    if word & CLOSED != 0 {
        return Err(Blocked::Closed);
    }
    let left = taken::<NodeLayout>(word, units.0)?;
    if heed == Heed::Marks {
        match word & units.marks() {
            0 => {}
            marks if marks & IO_MARK != 0 => return Err(Blocked::Promised(RUNNING.dimension())),
            _ => return Err(Blocked::Promised(POOL_RUNNING.dimension())),
        }
    }
    Ok(left)
}

/// Takes `take` and gives `give`, or says what stands against it. `limits` count only if something is given.
#[inline(always)]
fn moved(word: u64, give: NodeUnits, take: NodeUnits, heed: Heed, limits: u64) -> Result<u64, Blocked> {
    let left = reserved(word, take, heed)?;
    Ok(if give == NodeUnits::NONE { left } else { given::<NodeLayout>(left, give.0, limits) })
}

/// The mark of what blocks the turn.
#[inline]
const fn marked(word: u64, why: Blocked) -> u64 {
    match why {
        Blocked::Full(Dimension::PoolsRunning) => word | POOL_MARK,
        Blocked::Full(_) => word | IO_MARK,
        Blocked::Closed | Blocked::Stale | Blocked::Promised(_) => word,
    }
}

const fn io_limits(owners: u32, queued: u32, running: u32) -> u64 {
    OWNERS.units(owners as u64) | QUEUED.units(queued as u64) | RUNNING.units(running as u64)
}

impl NodeWord {
    /// A word with room for these numbers of operations, and none for pools. Zeros are a node not yet opened.
    pub fn new(owners: u32, queued: u32, running: u32) -> NodeWord {
        NodeWord { rooms: Rooms::new(io_limits(owners, queued, running)), peaks: Peaks::default() }
    }

    /// Gives a word made with zeros its limits for operations. `false`: it has them already.
    pub fn open_io(&self, owners: u32, queued: u32, running: u32) -> bool {
        let opened = self.rooms.open(io_limits(owners, queued, running));
        self.peaks.limits_rose();
        opened
    }

    /// Gives the word its limits for pool requests. `false`: it has them already.
    pub fn open_pools(&self, pending: u32, running: u32) -> bool {
        let limits = PENDING.units(u64::from(pending)) | POOL_RUNNING.units(u64::from(running));
        let opened = self.rooms.open(limits);
        self.peaks.limits_rose();
        opened
    }

    /// Works out, on the word as it is now, the step that takes `take` and gives `give`. Writes nothing.
    ///
    /// # Errors
    ///
    /// What stands against it.
    #[inline(always)]
    pub fn plan(&self, give: NodeUnits, take: NodeUnits, heed: Heed) -> Result<Planned, Blocked> {
        refusable!(take.first(), Blocked::Full(take.first()));
        let limits = self.limits_for(give);
        let seen = self.rooms.load();
        Ok(Planned::new(seen, moved(seen, give, take, heed, limits)?))
    }

    /// Takes a step that [`plan`](NodeWord::plan) worked out for the same units, or works it out anew.
    ///
    /// # Errors
    ///
    /// What stands against it, in the value that decided; then nothing was given either.
    #[inline(always)]
    pub fn step_planned(
        &self,
        planned: Planned,
        give: NodeUnits,
        take: NodeUnits,
        heed: Heed,
    ) -> Result<Given, Blocked> {
        if planted!("waiting_given_first") {
            self.give(give);
            return self.reserve(take, heed).map(|()| Given::of(0));
        }
        refusable!(take.first(), Blocked::Full(take.first()));
        let limits = self.limits_for(give);
        let again = |word| moved(word, give, take, heed, limits);
        self.rooms.step_planned(planned, again).map(Given::of)
    }

    /// The limits that a step which gives `give` is checked against, loaded before the word is (R3).
    #[inline]
    fn limits_for(&self, give: NodeUnits) -> u64 {
        if give == NodeUnits::NONE { 0 } else { self.rooms.limits() }
    }

    /// Takes `units`, all or none, in one step.
    ///
    /// # Errors
    ///
    /// What stands against it, in the value that decided.
    #[inline]
    pub fn reserve(&self, units: NodeUnits, heed: Heed) -> Result<(), Blocked> {
        refusable!(units.first(), Blocked::Full(units.first()));
        self.rooms.step(|word| reserved(word, units, heed)).map(drop)
    }

    /// Gives `units` back, in one step.
    ///
    /// # Panics
    ///
    /// Broken accounting, if they were not taken.
    #[inline(always)]
    pub fn give(&self, units: NodeUnits) -> Given {
        let word = self.rooms.give(units.0);
        Given::of(if planted!("release_without_a_signal") { 0 } else { word })
    }

    /// Moves an operation on: takes `take` and gives `give` in one step. Heeds marks.
    ///
    /// # Errors
    ///
    /// What stands against `take`; then nothing was given either.
    #[inline]
    pub fn exchange(&self, give: NodeUnits, take: NodeUnits) -> Result<Given, Blocked> {
        refusable!(take.first(), Blocked::Full(take.first()));
        let limits = self.limits_for(give);
        self.rooms.step(|word| moved(word, give, take, Heed::Marks, limits)).map(Given::of)
    }

    /// For the turn only: takes `units` over every mark, or marks what blocks, in one step. `false`: not taken. A
    /// closed node grants nothing and needs no mark.
    pub fn take_or_mark(&self, units: NodeUnits) -> bool {
        self.try_or_mark(NodeUnits::NONE, units).is_ok()
    }

    /// [`exchange`](NodeWord::exchange) over every mark, or marks what blocks, and says so.
    ///
    /// # Errors
    ///
    /// What stands against `take`; then nothing was given either.
    #[inline]
    pub fn try_or_mark(&self, give: NodeUnits, take: NodeUnits) -> Result<(), Blocked> {
        let limits = self.rooms.limits();
        let Ok(replaced) = self.rooms.step(|word| {
            Ok::<u64, Infallible>(match reserved(word, take, Heed::Nothing) {
                Ok(left) => given::<NodeLayout>(left, give.0, limits),
                Err(why) => marked(word, why),
            })
        });
        reserved(replaced, take, Heed::Nothing).map(drop)
    }

    /// For the turn only: nobody is blocked at `io.running`. Nobody else changes a mark (N3): a look shows what there is to do.
    pub fn unmark_io(&self) {
        if self.rooms.load() & IO_MARK != 0 {
            self.rooms.clear(IO_MARK);
        }
    }

    /// For the turn only: nobody is blocked at `pools.running`.
    pub fn unmark_pool(&self) {
        if self.rooms.load() & POOL_MARK != 0 {
            self.rooms.clear(POOL_MARK);
        }
    }

    /// For the turn only: whether there is room, over every mark. If not, what blocks is marked, by a step if it is not yet.
    pub fn has_or_mark(&self, units: NodeUnits) -> Result<(), Blocked> {
        let mut blocked = Ok(());
        let _marked = self.rooms.step(|word| {
            blocked = reserved(word, units, Heed::Nothing).map(drop);
            let next = blocked.err().map_or(word, |why| marked(word, why));
            if next == word { Err(()) } else { Ok(next) }
        });
        blocked
    }

    /// Closes admission for good. `true`: it was closed before.
    pub fn close(&self) -> bool {
        self.rooms.set(CLOSED) & CLOSED != 0
    }

    /// Whether admission is closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.rooms.load() & CLOSED != 0
    }

    /// What was taken here is of use, and counts for the most that ever was used. Until that is known it is an attempt.
    #[inline]
    pub fn note_use(&self) {
        self.peaks.see(&self.rooms);
    }

    /// Whether more is charged than was ever used: then [`note_use`](NodeWord::note_use) has something to note.
    #[inline]
    pub fn is_more_than_ever(&self) -> bool {
        self.peaks.are_passed(&self.rooms, 0)
    }

    /// The same, if so many owners, waiting and running units of pools among it are of no use just now.
    pub fn is_more_than_ever_but(&self, [owners, waiting, running]: [u32; 3]) -> bool {
        let idle = |field: Field, units: u32| field.units(1) * u64::from(units);
        let waiting = idle(QUEUED, waiting) + idle(PENDING, waiting);
        let running = idle(RUNNING, running) + idle(POOL_RUNNING, running);
        self.peaks.are_passed(&self.rooms, idle(OWNERS, owners) + waiting + running)
    }

    /// Whether an operation is staged or waits, by a step: whoever staged one before is seen, and whoever does so afterwards
    /// sees what the caller did before.
    pub fn are_staged(&self) -> bool {
        let word = self.rooms.set(0);
        QUEUED.of(word) != QUEUED.of(self.rooms.limits())
    }

    /// The most that was ever used in each dimension.
    pub fn peaks(&self) -> impl Iterator<Item = (Dimension, u64)> {
        self.peaks.each()
    }

    /// What is used, all of one instant.
    pub fn snapshot(&self) -> NodeUse {
        let (used, word) = self.rooms.used();
        NodeUse {
            owners: OWNERS.count(used),
            queued: QUEUED.count(used),
            running: RUNNING.count(used),
            pending: PENDING.count(used),
            pool_running: POOL_RUNNING.count(used),
            closed: word & CLOSED != 0,
        }
    }
}

#[cfg(test)]
mod tests;
