//! The line of a client: who waits for one of its connections, or for the right to dial, whichever comes first.
//!
//! Each client has its own, with a combining turn like the node's: whoever comes or leaves posts its operation, whoever
//! parks a connection, destroys one or ends a dial on a marked client signals. First come, first served.
//!
//! ```text
//!            enter                answered by the turn              take_answer, unseat
//!   (no seat) ─────▶ ACQUIRE, SEATED ─────▶ SEATED, the answer in `handed` ─────▶ (no seat)
//!                        │ leave                │ leave: the answer goes to the next
//!                        └──────▶ (no seat) ◀───┘
//! ```
//!
//! * A1. A waiter is answered by one step of its own word (ACQUIRE goes), after the answer stands in its slot. A waiter
//!   that leaves takes ACQUIRE away itself. One of the two steps wins; an answer that comes too late goes to the next.
//! * A2. The client's word is marked while somebody waits for a connection, before the line looks for the last time. A
//!   park sets its idle bit by a step on the idle words and then looks at the mark; the line marks, then steps on the
//!   idle words. One of them sees the other. Dials and units come back by a step on the marked word itself.
//! * A3. SEATED belongs to one future from its entry until it has taken its answer or left. `handed` is written by the
//!   line for who sits there, and emptied by who sits there after the answer; it is 0 for everyone else.
//! * A4. The links of the line are touched by its turn alone, and those of an operation only while the line holds its
//!   slot (LINKED, so HELD): an operation is taken out of the links *before* the step that lets go of the slot, which may
//!   stand in another client's line a moment later.
//! * A5. What the line took and gave to nobody is back before the turn is left, so whoever comes later finds it.
//! * A6. Foreign code (wakers, destructors) runs after the turn was left, and its panics after the work.
use super::fifo::{Fifo, Links};
use super::floor::{Floor, Tenure};
use super::line::InboxLinks;
use super::operation::{ALL_CELLS, Operation, State};
use crate::account::client::{ClientWord, Dial};
use crate::foreign::{Panics, WakeBatch};
use crate::mem::arena::{Lease, Nest};
use crate::mem::cells::{Cell, Cells};
use crate::mem::turn::{Collected, Turn, TurnGuard, older, oldest_first};
use crate::sync::atomic::AtomicU16;
use crate::sync::order;

/// Answers per pass.
const BATCH: usize = 16;

/// A client as its line sees it.
pub trait Client {
    /// What pins its operations.
    type Tenure: Tenure;
    /// What a cell holds.
    type Kept;
    /// Where its operations stand.
    fn floor(&self) -> &Floor<Self::Tenure>;
    /// Its line.
    fn line(&self) -> &AcquireLine;
    /// Its word.
    fn word(&self) -> &ClientWord;
    /// Its cells.
    fn cells(&self) -> &Cells<Self::Kept>;
    /// A cell that the line had taken rests again.
    fn rests_again(&self, index: u8);
    /// A cell that the line had taken cannot rest any more, because the cells were closed: it is to be destroyed. May run
    /// foreign code.
    fn orphaned(&self, cell: Cell<Self::Kept>);
}

/// The line of one client.
#[derive(Debug)]
pub struct AcquireLine {
    turn: Turn<Places>,
}

impl AcquireLine {
    /// An empty line.
    pub fn new() -> Self {
        AcquireLine { turn: Turn::new(Places::default()) }
    }
    /// Whether nobody is about to enter or leave. Together with an unmarked word it lets a newcomer go straight through.
    pub fn is_quiet(&self) -> bool {
        self.turn.inbox_is_empty()
    }
}

impl Default for AcquireLine {
    fn default() -> Self {
        Self::new()
    }
}

/// What a waiter was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The idle cell with this index, left for it: see [`Cells::receive`].
    Idle(u8),
    /// The right to dial and a unit of the client's room.
    Dial,
    /// The client pauses or is closed: its word says which.
    Refused,
}

const DIAL: u32 = 1 << 16;
const REFUSED: u32 = 1 << 17;

impl Answer {
    fn code(self) -> u32 {
        match self {
            Answer::Idle(index) => u32::from(index) + 1,
            Answer::Dial => DIAL,
            Answer::Refused => REFUSED,
        }
    }
    fn of(code: u32) -> Option<Answer> {
        match code {
            0 => None,
            DIAL => Some(Answer::Dial),
            REFUSED => Some(Answer::Refused),
            // A cell's index is at most 255.
            idle => u8::try_from(idle - 1).ok().map(Answer::Idle),
        }
    }
}

/// Who is in line, and whether the client's word is marked. Turn-private.
#[derive(Debug, Default)]
struct Places {
    line: Fifo,
    marked: bool,
}

type Slots<C> = Nest<Operation<<C as Client>::Tenure>>;

/// The links of clients' lines, which run through the operations.
struct AcquireLinks<'a, K: Tenure>(&'a Nest<Operation<K>>);

impl<K: Tenure> Links for AcquireLinks<'_, K> {
    fn next(&self, index: u16) -> &AtomicU16 {
        &self.0.peek(index).acquire_next
    }
    fn previous(&self, index: u16) -> &AtomicU16 {
        &self.0.peek(index).acquire_previous
    }
}

/// Something changed that the line may wait for: looks at it, by whoever has the line's turn.
pub fn serve<C: Client>(client: &C) {
    if let Some((guard, collected)) = client.line().turn.signal() {
        run(client, guard, collected);
    }
}

/// Takes the operation's seat and stands at the end of the line. `false`: somebody sits there, or the operation has a
/// connection of the client.
pub fn enter<C: Client>(client: &C, lease: &Lease<Operation<C::Tenure>>) -> bool {
    match lease.word().update(|bits| State(bits).acquire_enqueued()) {
        Ok((before, _)) => {
            post(client, lease, State(before));
            true
        }
        Err(_) => false,
    }
}

/// Stands at the front of the line again: for who was given something of no use, and had been the first. A holder of the
/// turn that is past its inbox already may still answer the one behind first.
pub fn enter_again<C: Client>(client: &C, lease: &Lease<Operation<C::Tenure>>) {
    match lease.word().update(|bits| State(bits).acquire_again()) {
        Ok((before, _)) => post(client, lease, State(before)),
        Err(_) => crate::broken::accounting("who goes back to the front of a line does not sit there"),
    }
}

/// Whether who sits there was answered.
pub fn is_answered<K: Tenure>(lease: &Lease<Operation<K>>) -> bool {
    !State(lease.word().load()).is_acquiring()
}

/// Takes the answer. The seat stays taken until [`unseat`].
pub fn take_answer<K: Tenure>(lease: &Lease<Operation<K>>) -> Option<Answer> {
    Answer::of(lease.handed.swap(0, order::STEP))
}

/// Leaves the seat with what was given: the lease stands for the operation's one connection. The answer is taken.
pub fn unseat_with_connection<K: Tenure>(lease: &Lease<Operation<K>>) -> Lease<Operation<K>> {
    match lease.duplicate_if(|bits| State(bits).acquire_received()) {
        Ok(holding) => holding,
        Err(_) => crate::broken::accounting("who takes an answer does not sit in the line"),
    }
}

/// Leaves the seat with nothing; the answer is taken.
pub fn unseat<K: Tenure>(lease: &Lease<Operation<K>>) {
    let left = lease.word().update(|bits| State(bits).acquire_taken());
    debug_assert!(left.is_ok(), "A3: it sat there and was answered");
}

/// Leaves the line and the seat; an answer that came already goes to the next.
pub fn leave<C: Client>(client: &C, lease: &Lease<Operation<C::Tenure>>) {
    match lease.word().update(|bits| State(bits).acquire_left()) {
        Ok((before, _)) => post(client, lease, State(before)),
        Err(_) => {
            let answer = take_answer(lease);
            unseat(lease);
            let mut panics = Panics::none();
            match answer {
                Some(Answer::Dial) => {
                    // The line is served below, marked or not.
                    let _marked = client.word().undo_dial();
                }
                Some(Answer::Idle(index)) => {
                    if let Some(cell) = client.cells().receive(usize::from(index)) {
                        panics.run(|| put_back(client, cell));
                    }
                }
                Some(Answer::Refused) | None => {}
            }
            panics.run(|| serve(client));
            panics.resume();
        }
    }
}

/// Lets a cell rest that was taken and not used. Whoever may be waiting is to be served afterwards.
pub fn put_back<C: Client>(client: &C, cell: Cell<C::Kept>) {
    let index = cell.index();
    match client.cells().park(cell) {
        Ok(()) => client.rests_again(index),
        Err(cell) => client.orphaned(cell),
    }
}

fn post<C: Client>(client: &C, lease: &Lease<Operation<C::Tenure>>, before: State) {
    if before.in_inbox() {
        return;
    }
    let links = InboxLinks(&client.floor().operations);
    if let Some((guard, collected)) = client.line().turn.post(lease.index(), &links) {
        run(client, guard, collected);
    }
}

/// What is left to do once the turn is left.
struct After<C: Client> {
    woken: WakeBatch,
    answered: usize,
    /// Slots that the line was the last to hold.
    freed: u32,
    parked: Option<u8>,
    orphan: Option<Cell<C::Kept>>,
}

impl<C: Client> After<C> {
    fn new() -> Self {
        After { woken: WakeBatch::new(), answered: 0, freed: 0, parked: None, orphan: None }
    }
    /// Whether the turn is to be left before another answer: the batch is done, or there is no room for what an answer
    /// can leave behind (an operation has four park cells).
    fn is_full(&self) -> bool {
        let room = self.woken.has_room(4) && self.orphan.is_none() && self.parked.is_none();
        self.answered == BATCH || !room
    }
    fn finish(&mut self, client: &C, panics: &mut Panics) {
        self.answered = 0;
        client.floor().buried(std::mem::take(&mut self.freed));
        if let Some(index) = self.parked.take() {
            client.rests_again(index);
        }
        panics.run(|| self.woken.wake_all());
        if let Some(cell) = self.orphan.take() {
            panics.run(|| client.orphaned(cell));
        }
    }
}

fn run<'a, C: Client>(client: &'a C, mut guard: TurnGuard<'a, Places>, mut collected: Collected) {
    let mut after = After::new();
    let mut panics = Panics::none();
    loop {
        take_inbox(client, guard.state(), collected.newest, &mut after);
        answer(client, guard.state(), &mut after);
        if after.is_full() {
            guard.leave_dirty();
            after.finish(client, &mut panics);
            match client.line().turn.try_hold() {
                Some(again) => (guard, collected) = again,
                None => break,
            }
            continue;
        }
        match guard.leave() {
            Ok(()) => break,
            Err(again) => guard = again,
        }
        collected = guard.collect();
    }
    after.finish(client, &mut panics);
    panics.resume();
}

/// Links who came and unlinks who left, oldest first.
fn take_inbox<C: Client>(client: &C, places: &mut Places, newest: Option<u16>, after: &mut After<C>) {
    let slots = &client.floor().operations;
    let links = InboxLinks(slots);
    let mut at = oldest_first(&links, newest);
    while let Some(index) = at {
        // Read before INBOX is cleared: afterwards the operation may be posted again.
        at = older(&links, index);
        // LINKED is the turn's own. Who left and came back loses its place; who left lets go of its slot (A4).
        if State(slots.word(index).load()).is_linked() {
            places.line.remove(&AcquireLinks(slots), index);
        }
        let Ok(step) = slots.step_held(index, |bits| Some(State(bits).acquire_collected())) else {
            continue;
        };
        after.freed += u32::from(step.freed);
        if State(step.after).is_linked() {
            if State(step.before).asks_for_the_front() {
                places.line.push_first(&AcquireLinks(slots), index);
            } else {
                places.line.push(&AcquireLinks(slots), index);
            }
        }
    }
}

/// Answers from the head of the line as long as there is something to give. The client is marked while somebody is left.
fn answer<C: Client>(client: &C, places: &mut Places, after: &mut After<C>) {
    let slots: &Slots<C> = &client.floor().operations;
    let (word, cells) = (client.word(), client.cells());
    let mut spare: Option<Cell<C::Kept>> = None;
    let mut right_to_dial = false;
    let mut looked = false;
    while let Some(index) = places.line.first() {
        if after.is_full() {
            break;
        }
        spare = spare.or_else(|| cells.take_idle());
        let given = match &spare {
            Some(cell) => Answer::Idle(cell.index()),
            None if right_to_dial => Answer::Dial,
            None => match word.reserve_dial_or_mark(now_ms(client)) {
                Ok(()) => {
                    right_to_dial = true;
                    Answer::Dial
                }
                Err(Dial::Backoff(_) | Dial::Closed) => Answer::Refused,
                Err(_) if looked => break,
                Err(_) => {
                    // Marked now: step on the idle words and look once more (A2).
                    places.marked = true;
                    looked = true;
                    cells.meet();
                    continue;
                }
            },
        };
        places.line.remove(&AcquireLinks(slots), index);
        if let Answer::Idle(_) = given
            && let Some(cell) = spare.take()
        {
            cells.hand_over(cell);
        }
        slots.peek(index).handed.store(given.code(), order::PUBLISH);
        let answered = |bits| State(bits).acquire_answered();
        match slots.step_held_and_wake(index, answered, ALL_CELLS, &mut after.woken) {
            Ok(step) => {
                after.freed += u32::from(step.freed);
                after.answered += 1;
                if step.freed {
                    // Its future was leaked and its operation is over: nobody takes the answer. The slot may be somebody
                    // else's by now.
                    spare = take_back(cells, given);
                } else if given == Answer::Dial {
                    right_to_dial = false;
                }
            }
            Err(_) => {
                // It left by itself and lies in the inbox, which goes on holding it; what it was to get is the next one's.
                slots.peek(index).handed.store(0, order::COUNT);
                spare = take_back(cells, given);
                let left = slots.step_held(index, |bits| Some(State(bits).unlinked()));
                debug_assert!(left.is_ok(), "O4: who left is in the inbox");
            }
        }
    }
    // A5: what nobody took is back before the turn is left.
    if let Some(cell) = spare {
        let index = cell.index();
        match cells.park(cell) {
            Ok(()) => after.parked = Some(index),
            Err(cell) => after.orphan = Some(cell),
        }
    }
    if right_to_dial {
        // If somebody is left, the batch is full and the next pass offers it again.
        let _marked = word.undo_dial();
    }
    if places.line.is_empty() && places.marked {
        places.marked = false;
        word.unmark();
    }
}

/// The answer was not taken: the cell, if it was one.
fn take_back<T>(cells: &Cells<T>, given: Answer) -> Option<Cell<T>> {
    match given {
        Answer::Idle(index) => cells.receive(usize::from(index)),
        Answer::Dial | Answer::Refused => None,
    }
}

/// Exact: dials are no fast path.
fn now_ms<C: Client>(client: &C) -> u64 {
    // Inside of the turn: there is no way out of it by a panic, so a trial may make none.
    #[cfg(test)]
    let _shut = crate::refuse::shut();
    let clock = &client.floor().clock;
    clock.millis_since_base(clock.now())
}
