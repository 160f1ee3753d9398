//! A client's word: the room for connections, the one dial, and the pause after failures.
//!
//! ```text
//!  63                 18 17   16     15      10    9     8           0
//! │ not before (ms)      │MARK│CLOSED│ failures │DIALING│ connections │
//! ```
//!
//! ```text
//!            reserve_dial                    dial_done
//!   ready ─────────────────► DIALING ─────────────────────► ready, failures = 0, the connection keeps its unit
//!     ▲                         │ dial_failed
//!     └── not before passed ── pause, failures + 1, the unit given back
//! ```
//!
//! * C1. At most one dial at a time: DIALING is set in the step that takes the connection unit, and only when clear.
//! * C2. A connection holds one unit from the reservation of its dial to its destruction. A failed or cancelled dial
//!   gives it back in the step that starts the pause.
//! * C3. `failures` is no count of anything held. It stops at 32; the pause doubles with each and is bounded anyway.
//! * C4. MARK means that somebody waits to acquire. While it is set no newcomer dials; whoever ends a dial or gives a
//!   unit sees it in that step, and signals the turn.
//! * C5. CLOSED is set once, for the life of the client's epoch: no dial starts afterwards.
//!
//! Rooms: see [`super::room`], R1 to R5. Times are milliseconds since the node's base; 46 bits are two thousand years.

use std::convert::Infallible;

use super::dimension::Dimension;
use super::room::{Field, Layout, Lowering, Rooms, given, lowering, taken};
use super::scope::{Heed, NotLowered};

const CONNECTIONS: Field = Field::new(0, 9, Dimension::PoolsConnectionsPerClient);
const DIALING: u64 = 1 << 9;
const FAILURES_SHIFT: u32 = 10;
const FAILURES: u64 = 0b11_1111 << FAILURES_SHIFT;
const CLOSED: u64 = 1 << 16;
const MARK: u64 = 1 << 17;
const NOT_BEFORE_SHIFT: u32 = 18;
const NOT_BEFORE: u64 = u64::MAX << NOT_BEFORE_SHIFT;
/// The latest instant that the word can hold.
const FAR: u64 = u64::MAX >> NOT_BEFORE_SHIFT;
/// Failures that make the pause grow.
const MOST_FAILURES: u64 = 32;

#[derive(Debug)]
struct ClientLayout;

impl Layout for ClientLayout {
    const FIELDS: &'static [Field] = &[CONNECTIONS];
}

/// Why a dial may not start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dial {
    /// The client's epoch is retired, or the registry is.
    Closed,
    /// A dial is in progress; there is one at a time.
    Busy,
    /// Paused after failures until this instant (milliseconds since the node's base).
    Backoff(u64),
    /// All of the client's connections exist.
    Full,
    /// There is room, but somebody waits to acquire.
    Marked,
}

/// What a failed dial left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a marked word has somebody waiting at it: signal the turn"]
pub struct Paused {
    /// No dial before this instant (milliseconds since the node's base).
    pub until_ms: u64,
    /// Somebody waits to acquire: signal the turn.
    pub marked: bool,
}

/// The state of a client at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// Connections that could still be made.
    pub room: u32,
    /// Whether a dial is in progress.
    pub dialing: bool,
    /// Failed dials since the last success, at most 32.
    pub failures: u32,
    /// No dial before this instant; 0 if there was no failure.
    pub not_before_ms: u64,
    /// Whether it is closed.
    pub closed: bool,
    /// Whether somebody waits to acquire.
    pub marked: bool,
}

impl ClientView {
    const fn of(word: u64) -> ClientView {
        ClientView {
            room: CONNECTIONS.count(word),
            dialing: word & DIALING != 0,
            failures: ((word & FAILURES) >> FAILURES_SHIFT) as u32,
            not_before_ms: word >> NOT_BEFORE_SHIFT,
            closed: word & CLOSED != 0,
            marked: word & MARK != 0,
        }
    }
}

#[inline]
fn dialing(word: u64, now_ms: u64, heed: Heed) -> Result<u64, Dial> {
    if word & CLOSED != 0 {
        return Err(Dial::Closed);
    }
    if word & DIALING != 0 {
        return Err(Dial::Busy);
    }
    let not_before = word >> NOT_BEFORE_SHIFT;
    if not_before > now_ms {
        return Err(Dial::Backoff(not_before));
    }
    let left = taken::<ClientLayout>(word, CONNECTIONS.units(1)).map_err(|_| Dial::Full)?;
    if heed == Heed::Marks && word & MARK != 0 {
        return Err(Dial::Marked);
    }
    Ok(left | DIALING)
}

/// A failed dial: the pause begins, the unit comes back.
fn failed(word: u64, now_ms: u64, initial_ms: u64, maximum_ms: u64) -> u64 {
    let failures = (((word & FAILURES) >> FAILURES_SHIFT) + 1).min(MOST_FAILURES);
    let doublings = failures - 1;
    let pause = if initial_ms > maximum_ms >> doublings { maximum_ms } else { initial_ms << doublings };
    // Time, not a count: an instant two thousand years ahead is as good as any later one.
    let until = now_ms.saturating_add(pause).min(FAR);
    let kept = word & !(DIALING | FAILURES | NOT_BEFORE);
    kept | (failures << FAILURES_SHIFT) | (until << NOT_BEFORE_SHIFT)
}

lowering!(ClientWord);

/// The room of one client.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct ClientWord {
    rooms: Rooms<ClientLayout>,
}

impl ClientWord {
    /// Gives a number to a client: its limit and all the room. Control path. `false`: the number is in use.
    pub fn open(&self, connections: u32) -> bool {
        self.rooms.open(CONNECTIONS.units(u64::from(connections)))
    }

    /// Takes the number back, if no connection exists and nobody waits. Forgets failures, pause and CLOSED.
    pub fn retire(&self) -> bool {
        self.rooms.retire(FAILURES | NOT_BEFORE | CLOSED)
    }

    /// Takes a connection unit and the right to dial, in one step.
    ///
    /// # Errors
    ///
    /// Why not, in the value that decided.
    #[inline]
    pub fn reserve_dial(&self, now_ms: u64, heed: Heed) -> Result<(), Dial> {
        self.rooms.step(|word| dialing(word, now_ms, heed)).map(drop)
    }

    /// For the turn only: takes the right to dial over the mark, or sets the mark if a later step of somebody else can
    /// make it possible (a dial in progress, no room), in one step.
    ///
    /// # Errors
    ///
    /// Why not. Marked for `Busy` and `Full`.
    #[inline]
    pub fn reserve_dial_or_mark(&self, now_ms: u64) -> Result<(), Dial> {
        let attempt = |word| dialing(word, now_ms, Heed::Nothing);
        let Ok(replaced) = self.rooms.step(|word| {
            Ok::<u64, Infallible>(match attempt(word) {
                Ok(left) => left,
                Err(Dial::Busy | Dial::Full) => word | MARK,
                Err(_) => word,
            })
        });
        attempt(replaced).map(drop)
    }

    /// The dial succeeded: the right to dial and all failures go, the connection keeps its unit. `true`: somebody waits
    /// to acquire; signal the turn.
    ///
    /// # Panics
    ///
    /// Broken accounting, if no dial was in progress.
    #[must_use = "a marked word has somebody waiting at it: signal the turn"]
    pub fn dial_done(&self) -> bool {
        let Ok(replaced) =
            self.rooms.step(|word| Ok::<u64, Infallible>(word & !(DIALING | FAILURES | NOT_BEFORE)));
        if replaced & DIALING == 0 {
            crate::broken::accounting_in_drop("a dial ended that nobody had started");
        }
        replaced & MARK != 0
    }

    /// The dial failed or was cancelled: the pause begins, and the unit comes back, in one step.
    ///
    /// # Panics
    ///
    /// Broken accounting, if no dial was in progress.
    pub fn dial_failed(&self, now_ms: u64, initial_ms: u64, maximum_ms: u64) -> Paused {
        let limits = self.rooms.limits();
        let after = |word| failed(word, now_ms, initial_ms, maximum_ms);
        let Ok(replaced) = self.rooms.step(|word| {
            Ok::<u64, Infallible>(given::<ClientLayout>(after(word), CONNECTIONS.units(1), limits))
        });
        if replaced & DIALING == 0 {
            crate::broken::accounting_in_drop("a dial failed that nobody had started");
        }
        Paused { until_ms: after(replaced) >> NOT_BEFORE_SHIFT, marked: replaced & MARK != 0 }
    }

    /// A connection is destroyed: gives its unit back. `true`: somebody waits to acquire; signal the turn.
    ///
    /// # Panics
    ///
    /// Broken accounting, if it had none.
    #[inline]
    #[must_use = "a marked word has somebody waiting at it: signal the turn"]
    pub fn give_connection(&self) -> bool {
        self.rooms.give(CONNECTIONS.units(1)) & MARK != 0
    }

    /// Somebody waits to acquire. Returns what the step replaced: room or an ended dial that is seen here will not be
    /// signalled any more, so the marker looks itself.
    pub fn mark(&self) -> ClientView {
        ClientView::of(self.rooms.set(MARK))
    }

    /// Nobody waits to acquire any more.
    pub fn unmark(&self) {
        self.rooms.clear(MARK);
    }

    /// Whether somebody waits to acquire. Decides only after a step on a word that the other side also steps on.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.rooms.load() & MARK != 0
    }

    /// No dial starts from now on. Returns what the step replaced.
    pub fn close(&self) -> ClientView {
        ClientView::of(self.rooms.set(CLOSED))
    }

    /// Whether it is closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.rooms.load() & CLOSED != 0
    }

    /// The state at this instant. An observation.
    pub fn view(&self) -> ClientView {
        ClientView::of(self.rooms.load())
    }

    /// Connections that could still be made.
    pub fn room(&self) -> u32 {
        self.view().room
    }

    /// Connections that exist, the one being dialled included.
    pub fn connections(&self) -> u32 {
        CONNECTIONS.count(self.rooms.used().0)
    }

    /// How long the pause after failures still lasts, in milliseconds; `None` if there is none.
    pub fn retry_after(&self, now_ms: u64) -> Option<u64> {
        self.view().not_before_ms.checked_sub(now_ms).filter(|left| *left > 0)
    }
}
