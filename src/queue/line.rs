//! The line: who waits is granted by whoever holds the turn.
//!
//! Nobody waits for the turn. Whoever adds work leaves it where the holder is bound to look before it lets go (an
//! intrusive inbox for waiters that come or leave, dirty bits for words that got room) and takes the turn if it is
//! free. Callers therefore never wait for each other; what the word lock-free does *not* mean here: grants pause
//! while the thread that holds the turn is off its core.
//!
//! * L1. Work posted before the turn's word was last changed is seen by the holder before it leaves.
//! * L2. A waiter is granted only after a unit of node, tenant and provider was taken for it, or passed on to it by a call that
//!   ends; a step that finds the waiter gone gives the units back.
//! * L3. If a waiter is eligible and there is room, it is granted without any further event: a word that blocked
//!   somebody carries a mark, and whoever gives room to a marked word signals the turn.
//! * L4. Foreign code (wakers) runs after the turn was left, and may panic or come back in.
//! * L5. Who leaves the turn clean leaves nobody in it who can be granted. So where nothing was collected, only what the holder
//!   brings itself can change that: a waiter that comes, or the units of a call that ends.
//!
//! A pass grants at most [`BATCH`], then leaves the turn with its dirty bit set and comes back for the rest if nobody
//! else did, so that the longest time between two looks at the inbox is bounded.
use super::fifo::Links;
use super::floor::{Floor, PROVIDERS, TENANTS, Tenure};
use super::operation::{Operation, State};
use super::select::{Emptied, Group, Selection};
use super::watched::{note_for_session, tell_session};
use crate::account::charge::{Marks, Request};
use crate::foreign::{Panics, WakeBatch};
use crate::mem::arena::{Lease, Nest};
use crate::mem::bitset::BitSet;
use crate::mem::park::Seat;
use crate::mem::turn::{Collected, Turn, TurnGuard, older, oldest_first};
use crate::sync::atomic::AtomicU16;
use std::ops::Index;

mod grant;

use grant::{grant, pass_on, stays_behind};

/// Grants per pass.
pub const BATCH: usize = 16;

/// The turn of the line, with what waited for it.
pub type TakenTurn<'a> = (TurnGuard<'a, Selection>, Collected);

/// The line of a node.
#[derive(Debug)]
pub struct Line {
    turn: Turn<Selection>,
    dirty_tenants: BitSet,
    dirty_providers: BitSet,
}

impl<K: Tenure> Links for Nest<Operation<K>> {
    fn next(&self, index: u16) -> &AtomicU16 {
        &self.peek(index).next
    }
    fn previous(&self, index: u16) -> &AtomicU16 {
        &self.peek(index).previous
    }
}

/// The links of the inbox, which run through the operations.
pub(super) struct InboxLinks<'a, K: Tenure>(pub(super) &'a Nest<Operation<K>>);

impl<K: Tenure> Index<u16> for InboxLinks<'_, K> {
    type Output = AtomicU16;
    fn index(&self, index: u16) -> &AtomicU16 {
        &self.0.peek(index).inbox_next
    }
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Line {
            turn: Turn::new(Selection::new()),
            dirty_tenants: BitSet::new(TENANTS),
            dirty_providers: BitSet::new(PROVIDERS),
        }
    }

    /// Whether nothing lies in the inbox. Together with unmarked words it lets a newcomer go straight through.
    pub fn is_quiet(&self) -> bool {
        self.turn.inbox_is_empty()
    }

    /// A STAGED operation comes into the line: at once, if the turn is free, else by way of the inbox. One step on its word does
    /// all that it takes to wait there: phase, hold, the note that a stop of its session must reach it, and a park cell of
    /// `cells`, whose seat is left in `seat`. Does nothing for one that was stopped.
    pub fn come<K: Tenure>(
        &self,
        floor: &Floor<K>,
        lease: &Lease<Operation<K>>,
        cells: u8,
        seat: &mut Option<Seat>,
    ) {
        // Who waits must be given what lies about (C4 in `super::credit`).
        floor.recall();
        let has_no_seat = seat.is_none();
        tell_session(lease);
        let turn = self.turn.try_hold();
        let by_turn = turn.is_some();
        let came = lease.step_and_claim(
            |bits| if by_turn { State(bits).enqueued_by_turn() } else { State(bits).enqueued() },
            if has_no_seat { cells } else { 0 },
        );
        let has_come = came.is_ok();
        match came {
            Ok((_, Some(claimed))) => *seat = Some(claimed),
            Ok((_, None)) => {}
            // Its word says so, too: the end of the operation takes the bit away.
            Err(_) => note_for_session(lease),
        }
        match turn {
            Some((mut guard, collected)) => {
                // Who stands in the inbox came before.
                if let Some(newest) = collected.newest {
                    floor.buried(take_inbox(floor, guard.state(), newest));
                }
                if has_come {
                    let (index, group) = (lease.index(), group_of(lease));
                    guard.state().link(&floor.operations, index, group);
                    if collected.is_nothing() && stays_behind(floor, guard.state(), index, group) {
                        match guard.leave() {
                            Ok(()) => return,
                            Err(again) => guard = again,
                        }
                    }
                }
                self.run(floor, guard, Collected { newest: None, ..collected }, None);
            }
            None if has_come => self.post(floor, lease.index()),
            None => {}
        }
    }

    /// Leaves an operation in the inbox: it came (QUEUED) or went (LEFT). Runs the turn if it is free.
    ///
    /// The caller has set INBOX in the operation's word, which makes the membership unique (O4).
    pub fn post<K: Tenure>(&self, floor: &Floor<K>, index: u16) {
        if let Some((guard, collected)) = self.turn.post(index, &InboxLinks(&floor.operations)) {
            self.run(floor, guard, collected, None);
        }
    }

    /// The turn, if it is free, for [`pass_on`](Line::pass_on).
    #[inline]
    pub fn try_hold(&self) -> Option<TakenTurn<'_>> {
        self.turn.try_hold()
    }

    /// A call has run and is over, at a provider that is marked, and its slot is free. The next in line gets its running units as
    /// they are, if they are of its provider; what is not passed on is given back, as by any other end.
    pub fn pass_on<K: Tenure>(&self, floor: &Floor<K>, (guard, collected): TakenTurn<'_>, ends: Request) {
        self.run(floor, guard, collected, Some(ends));
    }

    /// Marked words got room. Who finds the turn free looks at them at once; else they are noted for the one who has it.
    pub fn released<K: Tenure>(&self, floor: &Floor<K>, marks: Marks, request: Option<Request>) {
        if let Some((mut guard, collected)) = self.turn.try_hold() {
            if let Some(request) = request {
                if marks.tenant {
                    tenant_has_room(floor, guard.state(), request.tenant());
                }
                if marks.provider {
                    provider_has_room(floor, guard.state(), request.provider());
                }
            }
            return self.run(floor, guard, collected, None);
        }
        if let Some(request) = request {
            if marks.tenant {
                self.dirty_tenants.set(usize::from(request.tenant()));
            }
            if marks.provider {
                self.dirty_providers.set(usize::from(request.provider()));
            }
        }
        if let Some((guard, collected)) = self.turn.signal() {
            self.run(floor, guard, collected, None);
        }
    }

    /// Looks again at everything: after limits changed or an epoch was swapped.
    pub fn look_again<K: Tenure>(&self, floor: &Floor<K>) {
        for tenant in 0..TENANTS {
            if floor.tenants[tenant].is_marked() {
                self.dirty_tenants.set(tenant);
            }
        }
        for provider in 0..PROVIDERS {
            if floor.providers[provider].is_marked() {
                self.dirty_providers.set(provider);
            }
        }
        if let Some((guard, collected)) = self.turn.signal() {
            self.run(floor, guard, collected, None);
        }
    }

    fn run<'a, K: Tenure>(
        &'a self,
        floor: &Floor<K>,
        mut guard: TurnGuard<'a, Selection>,
        mut collected: Collected,
        mut ends: Option<Request>,
    ) {
        let mut panics = Panics::none();
        let mut woken = WakeBatch::new();
        loop {
            let mut freed = 0_u32;
            let left = loop {
                if let Some(newest) = collected.newest {
                    freed += take_inbox(floor, guard.state(), newest);
                }
                if collected.dirty {
                    self.take_dirty(floor, guard.state());
                }
                // Where nothing else has changed, nobody else can be granted (L5).
                let as_before = ends.take().is_some_and(|ends| {
                    pass_on(floor, guard.state(), ends, &mut woken, &mut freed) && collected.is_nothing()
                });
                if !as_before && grant(floor, guard.state(), &mut woken, &mut freed) {
                    guard.leave_dirty();
                    break false;
                }
                if planted!("wake_under_the_turn") {
                    woken.wake_all();
                }
                match guard.leave() {
                    Ok(()) => break true,
                    Err(again) => guard = again,
                }
                collected = guard.collect();
            };
            // The turn is left: what follows may run foreign code.
            floor.buried(freed);
            // A panic waits for the rest: who stands behind must not be forgotten for it (L3).
            panics.run(|| woken.wake_all());
            if left {
                break;
            }
            match self.turn.try_hold() {
                Some(again) => (guard, collected) = again,
                None => break,
            }
        }
        panics.resume();
    }

    fn take_dirty<K: Tenure>(&self, floor: &Floor<K>, selection: &mut Selection) {
        self.dirty_tenants.drain(|tenant| tenant_has_room(floor, selection, tenant as u16));
        self.dirty_providers.drain(|provider| provider_has_room(floor, selection, provider as u16));
    }
}

/// The tenant's marked word got room.
fn tenant_has_room<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, tenant: u16) {
    if !selection.unblock_tenant(tenant) {
        floor.tenants[usize::from(tenant)].unmark();
    }
}

/// The provider's marked word got room.
fn provider_has_room<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, provider: u16) {
    if !selection.open_provider(provider) {
        floor.providers[usize::from(provider)].unmark();
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

/// Links who came and unlinks who left, oldest first. Returns how many slots the hold was the last to keep.
fn take_inbox<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, newest: u16) -> u32 {
    let slots = &floor.operations;
    let links = InboxLinks(slots);
    let mut freed = 0;
    let mut at = oldest_first(&links, Some(newest));
    while let Some(index) = at {
        // Read before INBOX is cleared: afterwards the operation may be posted again.
        at = older(&links, index);
        let slot = slots.peek(index);
        let group = group_of(slot);
        if let Ok(done) = slots.step_held(index, |bits| Some(State(bits).collected())) {
            freed += u32::from(done.freed);
            if State(done.after).is_linked() {
                selection.link(slots, index, group);
            } else if State(done.before).is_linked() {
                let emptied = selection.unlink(slots, index, group);
                take_marks_off(floor, emptied);
            }
        }
    }
    freed
}

fn group_of<K>(slot: &Operation<K>) -> Group {
    match slot.request() {
        Some(request) => Group::Pair { tenant: request.tenant(), provider: request.provider() },
        None => Group::Direct,
    }
}

fn take_marks_off<K: Tenure>(floor: &Floor<K>, emptied: Emptied) {
    if let Some(tenant) = emptied.tenant {
        floor.tenants[usize::from(tenant)].unmark();
    }
    if let Some(provider) = emptied.provider {
        floor.providers[usize::from(provider)].unmark();
    }
}
