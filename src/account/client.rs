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
        refusable!(CONNECTIONS.dimension(), Dial::Full);
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
        let after = |word| match planted!("second_dial_after_cancel") {
            true => word & !DIALING,
            false => failed(word, now_ms, initial_ms, maximum_ms),
        };
        let Ok(replaced) = self.rooms.step(|word| {
            Ok::<u64, Infallible>(given::<ClientLayout>(after(word), CONNECTIONS.units(1), limits))
        });
        if replaced & DIALING == 0 {
            crate::broken::accounting_in_drop("a dial failed that nobody had started");
        }
        Paused { until_ms: after(replaced) >> NOT_BEFORE_SHIFT, marked: replaced & MARK != 0 }
    }

    /// A right to dial that nobody used goes back, with its unit, in one step: as if it had not been taken. `true`: somebody
    /// waits to acquire; signal the turn.
    ///
    /// # Panics
    ///
    /// Broken accounting, if no dial was in progress.
    #[must_use = "a marked word has somebody waiting at it: signal the turn"]
    pub fn undo_dial(&self) -> bool {
        let limits = self.rooms.limits();
        let Ok(replaced) = self.rooms.step(|word| {
            Ok::<u64, Infallible>(given::<ClientLayout>(word & !DIALING, CONNECTIONS.units(1), limits))
        });
        if replaced & DIALING == 0 {
            crate::broken::accounting_in_drop("a dial was undone that nobody had started");
        }
        replaced & MARK != 0
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 2;
    const NOW: u64 = 1_000;
    const INITIAL: u64 = 100;
    const MAXIMUM: u64 = 30_000;

    fn at(word: u64) -> ClientWord {
        ClientWord { rooms: Rooms::at(word, CONNECTIONS.units(LIMIT)) }
    }

    /// Rooms, flags, the interesting failures and instants, all combined.
    fn words() -> Vec<u64> {
        let mut words = Vec::new();
        for room in 0..=LIMIT {
            for flags in 0..8 {
                let flag = |bit: u64, mask: u64| if flags & (1 << bit) != 0 { mask } else { 0 };
                let flags = flag(0, DIALING) | flag(1, CLOSED) | flag(2, MARK);
                for failures in [0, 1, 2, 31, 32] {
                    for not_before in [0, NOW - 1, NOW, NOW + 1, FAR] {
                        let pause = (failures << FAILURES_SHIFT) | (not_before << NOT_BEFORE_SHIFT);
                        words.push(CONNECTIONS.units(room) | flags | pause);
                    }
                }
            }
        }
        words
    }

    /// The law, told by the view.
    fn verdict(view: ClientView, heed: Heed) -> Result<(), Dial> {
        match view {
            ClientView { closed: true, .. } => Err(Dial::Closed),
            ClientView { dialing: true, .. } => Err(Dial::Busy),
            ClientView { not_before_ms, .. } if not_before_ms > NOW => Err(Dial::Backoff(not_before_ms)),
            ClientView { room: 0, .. } => Err(Dial::Full),
            ClientView { marked: true, .. } if heed == Heed::Marks => Err(Dial::Marked),
            _ => Ok(()),
        }
    }

    #[test]
    fn the_word_is_full_and_nothing_overlaps() {
        let parts = [CONNECTIONS.mask(), DIALING, FAILURES, CLOSED, MARK, NOT_BEFORE];
        let all = parts.iter().fold(0, |mask, part| {
            assert_eq!(mask & part, 0);
            mask | part
        });
        assert_eq!(all, u64::MAX);
        assert!(CONNECTIONS.largest() >= 2 * Dimension::PoolsConnectionsPerClient.ceiling() - 1);
    }

    #[test]
    fn a_dial_starts_only_where_it_may_in_every_word() {
        for word in words() {
            let before = at(word).view();
            for heed in [Heed::Marks, Heed::Nothing] {
                let client = at(word);
                let expected = verdict(before, heed);
                assert_eq!(client.reserve_dial(NOW, heed), expected);
                let after = match expected {
                    Ok(()) => ClientView { room: before.room - 1, dialing: true, ..before },
                    Err(_) => before,
                };
                assert_eq!(client.view(), after);
            }
            let client = at(word);
            let expected = verdict(before, Heed::Nothing);
            assert_eq!(client.reserve_dial_or_mark(NOW), expected);
            let after = match expected {
                Ok(()) => ClientView { room: before.room - 1, dialing: true, ..before },
                Err(Dial::Busy | Dial::Full) => ClientView { marked: true, ..before },
                Err(_) => before,
            };
            assert_eq!(client.view(), after);
        }
    }

    #[test]
    fn a_dial_ends_in_a_connection_or_a_pause_in_every_word() {
        for word in words() {
            let before = at(word).view();
            if !before.dialing || u64::from(before.room) == LIMIT {
                continue; // No dial is in progress.
            }
            let client = at(word);
            assert_eq!(client.dial_done(), before.marked);
            let connected = ClientView { dialing: false, failures: 0, not_before_ms: 0, ..before };
            assert_eq!(client.view(), connected);
            assert_eq!(client.give_connection(), before.marked);
            assert_eq!(client.view(), ClientView { room: before.room + 1, ..connected });

            let client = at(word);
            assert_eq!(client.undo_dial(), before.marked);
            assert_eq!(client.view(), ClientView { room: before.room + 1, dialing: false, ..before });

            let client = at(word);
            let paused = client.dial_failed(NOW, INITIAL, MAXIMUM);
            let failures = if before.failures == 32 { 32 } else { before.failures + 1 };
            let pause = MAXIMUM.min(INITIAL << (failures - 1));
            assert_eq!(paused, Paused { until_ms: NOW + pause, marked: before.marked });
            let after = ClientView {
                room: before.room + 1,
                dialing: false,
                failures,
                not_before_ms: NOW + pause,
                ..before
            };
            assert_eq!(client.view(), after);
            assert_eq!(client.retry_after(NOW), Some(pause));
            assert_eq!(client.retry_after(NOW + pause), None);
        }
    }

    #[test]
    fn the_pause_doubles_to_its_bound_and_a_success_ends_it() {
        let client = ClientWord::default();
        assert!(client.open(2));
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            client.reserve_dial(now, Heed::Marks).unwrap();
            let until = client.dial_failed(now, INITIAL, MAXIMUM).until_ms;
            assert_eq!(client.reserve_dial(until - 1, Heed::Marks), Err(Dial::Backoff(until)));
            pauses.push(until - now);
            now = until;
        }
        assert_eq!(pauses[..10], [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
        assert!(pauses[10..].iter().all(|pause| *pause == MAXIMUM));
        client.reserve_dial(now, Heed::Marks).unwrap();
        assert!(!client.dial_done());
        assert_eq!((client.view().failures, client.connections()), (0, 1));
        client.reserve_dial(now, Heed::Marks).unwrap();
        assert_eq!(client.dial_failed(now, INITIAL, MAXIMUM).until_ms, now + INITIAL);
        // A pause that no clock reaches is still a pause.
        let far = at(DIALING);
        assert_eq!(far.dial_failed(u64::MAX, u64::MAX, u64::MAX).until_ms, FAR);
    }

    #[test]
    fn a_number_is_given_and_taken_back() {
        let client = ClientWord::default();
        assert_eq!(client.reserve_dial(0, Heed::Nothing), Err(Dial::Full));
        assert!(client.open(256) && !client.open(1));
        for _ in 0..256 {
            client.reserve_dial(0, Heed::Marks).unwrap();
            assert!(!client.dial_done());
        }
        assert_eq!(client.reserve_dial_or_mark(0), Err(Dial::Full));
        assert!(client.is_marked() && client.room() == 0 && client.connections() == 256);
        assert!(!client.close().closed && client.is_closed());
        for _ in 0..256 {
            assert!(!client.retire());
            assert!(client.give_connection());
        }
        assert!(!client.retire(), "somebody waits");
        client.unmark();
        assert!(client.retire() && !client.is_closed());
        assert!(!client.mark().marked && client.mark().marked);
    }
    #[cfg(not(any(loom, miri)))]
    #[test]
    fn an_end_of_no_dial_breaks_the_accounting() {
        crate::broken::in_a_process_of_its_own(
            "account::client::tests::an_end_of_no_dial_breaks_the_accounting",
            || {
                let ends: [fn(&ClientWord); 3] = [
                    |client| {
 let _given = client.dial_done();
 },
                    |client| {
 let _given = client.dial_failed(NOW, INITIAL, MAXIMUM);
 },
                    |client| {
 let _given = client.undo_dial();
 },
                ];
                for end in ends {
                    // One connection is there, so that its unit is no reason to break.
                    let client = at(CONNECTIONS.units(LIMIT - 1));
                    assert!(crate::foreign::foreign(|| end(&client)).is_err());
                }
            },
        );
    }

    #[test]
    fn room_is_what_is_left_of_the_limit() {
        let client = at(CONNECTIONS.units(LIMIT));
        for left in (0..LIMIT).rev() {
            client.reserve_dial(0, Heed::Nothing).unwrap();
            assert!(!client.dial_done());
            assert_eq!((u64::from(client.room()), u64::from(client.connections())), (left, LIMIT - left));
        }
    }
}
