//! The line: who waits is granted by whoever holds the turn.
//!
//! Nobody waits for the turn. Whoever adds work leaves it where the holder is bound to look before it lets go (an
//! intrusive inbox for waiters that come or leave, dirty bits for words that got room) and takes the turn if it is
//! free. Callers therefore never wait for each other; what the word lock-free does *not* mean here: grants pause
//! while the thread that holds the turn is off its core.
//!
//! * L1. Work posted before the turn's word was last changed is seen by the holder before it leaves.
//! * L2. A waiter is granted only after a unit of node, tenant and provider was taken for it; a step that finds the
//!   waiter gone gives the units back.
//! * L3. If a waiter is eligible and there is room, it is granted without any further event: a word that blocked
//!   somebody carries a mark, and whoever gives room to a marked word signals the turn.
//! * L4. Foreign code (wakers) runs after the turn was left, and may panic or come back in.
//!
//! A pass grants at most [`BATCH`], then leaves the turn with its dirty bit set and comes back for the rest if nobody
//! else did, so that the longest time between two looks at the inbox is bounded.
use super::floor::{Floor, PROVIDERS, TENANTS, Tenure};
use super::operation::{ALL_CELLS, Cause, Operation, State};
use super::select::{Candidate, Emptied, Group, Links, Selection};
use crate::account::charge::{Marks, Request};
use crate::account::dimension::Dimension;
use crate::account::node::NodeUnits;
use crate::account::provider::TakenRunning;
use crate::account::scope::Blocked;
use crate::foreign::{Panics, WakeBatch};
use crate::mem::arena::Nest;
use crate::mem::bitset::BitSet;
use crate::mem::turn::{Turn, TurnGuard, older, oldest_first};
use crate::sync::atomic::AtomicU16;
use std::ops::Index;

/// Grants per pass.
pub const BATCH: usize = 16;

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

    /// Leaves an operation in the inbox: it came (QUEUED) or went (LEFT). Runs the turn if it is free.
    ///
    /// The caller has set INBOX in the operation's word, which makes the membership unique (O4).
    pub fn post<K: Tenure>(&self, floor: &Floor<K>, index: u16) {
        if let Some(guard) = self.turn.post(index, &InboxLinks(&floor.operations)) {
            self.run(floor, guard);
        }
    }

    /// Marked words got room.
    pub fn released<K: Tenure>(&self, floor: &Floor<K>, marks: Marks, request: Option<Request>) {
        if let Some(request) = request {
            if marks.tenant {
                self.dirty_tenants.set(usize::from(request.tenant()));
            }
            if marks.provider {
                self.dirty_providers.set(usize::from(request.provider()));
            }
        }
        if let Some(guard) = self.turn.signal() {
            self.run(floor, guard);
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
        if let Some(guard) = self.turn.signal() {
            self.run(floor, guard);
        }
    }

    fn run<'a, K: Tenure>(&'a self, floor: &Floor<K>, mut guard: TurnGuard<'a, Selection>) {
        let mut panics = Panics::none();
        loop {
            let mut woken = WakeBatch::new();
            let mut freed = 0_u32;
            let left = loop {
                let collected = guard.collect();
                if let Some(newest) = collected.newest {
                    freed += take_inbox(floor, guard.state(), newest);
                }
                if collected.dirty {
                    self.take_dirty(floor, guard.state());
                }
                if grant(floor, guard.state(), &mut woken, &mut freed) {
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
            };
            // The turn is left: what follows may run foreign code.
            floor.buried(freed);
            // A panic waits for the rest: who stands behind must not be forgotten for it (L3).
            panics.run(|| woken.wake_all());
            if left {
                break;
            }
            match self.turn.try_hold() {
                Some(again) => guard = again,
                None => break,
            }
        }
        panics.resume();
    }

    fn take_dirty<K: Tenure>(&self, floor: &Floor<K>, selection: &mut Selection) {
        self.dirty_tenants.drain(|tenant| {
            if !selection.unblock_tenant(tenant as u16) {
                floor.tenants[tenant].unmark();
            }
        });
        self.dirty_providers.drain(|provider| {
            if !selection.open_provider(provider as u16) {
                floor.providers[provider].unmark();
            }
        });
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
        if let Ok(done) = slots.step_held(index, |bits| Some(State(bits).collected()), 0) {
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

/// Grants in rotation until nobody is eligible, the node is full, or the batch is. `true`: the batch is full.
fn grant<K: Tenure>(
    floor: &Floor<K>,
    selection: &mut Selection,
    woken: &mut WakeBatch,
    freed: &mut u32,
) -> bool {
    let (mut pool, mut direct) = (true, true);
    // Whether somebody is blocked at `io.running`, which pool waiters need too.
    let mut blocked_at_io = false;
    let mut done = 0;
    while done < BATCH {
        let Some(candidate) = selection.candidate(pool, direct) else {
            settle(floor, selection, pool, blocked_at_io);
            return false;
        };
        let units = match candidate.group {
            Group::Direct => NodeUnits::RUN_IO,
            Group::Pair { .. } => NodeUnits::RUN_POOL,
        };
        if let Err(why) = floor.node.try_or_mark(NodeUnits::NONE, units) {
            blocked_at_io |= why != Blocked::Full(Dimension::PoolsRunning);
            // A pool grant needs a direct one's unit and its own: without pool room, direct I/O may go on.
            match candidate.group {
                Group::Direct => direct = false,
                Group::Pair { .. } => pool = false,
            }
            continue;
        }
        match take_narrow(floor, selection, candidate) {
            Narrow::Taken => {}
            Narrow::Blocked => {
                give_in_turn(floor, units);
                continue;
            }
            Narrow::Stale => {
                give_in_turn(floor, units);
                leave_stale(floor, selection, candidate, woken, freed);
                done += 1;
                continue;
            }
        }
        if give_to(floor, selection, candidate, woken, freed) {
            floor.note_use_in_turn();
            done += 1;
        } else {
            give_back(floor, candidate, units);
        }
    }
    true
}

/// Nobody more can be granted: takes off the marks of words at which nobody is blocked.
fn settle<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, pool: bool, blocked_at_io: bool) {
    selection.settle_reopened(|tenant| floor.tenants[usize::from(tenant)].unmark());
    if pool {
        selection.settle_opening(|provider| floor.providers[usize::from(provider)].unmark());
        floor.node.unmark_pool();
    }
    if !blocked_at_io {
        floor.node.unmark_io();
    }
}

enum Narrow {
    Taken,
    Blocked,
    /// The epoch that the waiter was admitted on is no longer the current one.
    Stale,
}

/// Takes the tenant's and the provider's running unit, or notes which of them blocks.
fn take_narrow<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, candidate: Candidate) -> Narrow {
    let Group::Pair { tenant, provider } = candidate.group else { return Narrow::Taken };
    if !floor.tenants[usize::from(tenant)].take_or_mark_running() {
        selection.block_tenant(tenant);
        return Narrow::Blocked;
    }
    let tag = floor.operations.peek(candidate.operation).request().map_or(0, Request::tag);
    match floor.providers[usize::from(provider)].take_or_mark_running(tag) {
        TakenRunning::Yes => return Narrow::Taken,
        TakenRunning::Marked => selection.close_provider(provider),
        TakenRunning::Stale => {
            floor.tenants[usize::from(tenant)].give_running();
            return Narrow::Stale;
        }
    }
    floor.tenants[usize::from(tenant)].give_running();
    Narrow::Blocked
}

/// Moves the waiter to GRANTED. `false`: it had left, and nobody was granted.
///
/// The links are the turn's until it is left, so the group is put right after the step, although the slot may be used
/// again by then.
fn give_to<K: Tenure>(
    floor: &Floor<K>,
    selection: &mut Selection,
    candidate: Candidate,
    woken: &mut WakeBatch,
    freed: &mut u32,
) -> bool {
    let slots = &floor.operations;
    let step =
        slots.step_held(candidate.operation, |bits| State(bits).granted(), ALL_CELLS);
    match step {
        Ok(mut done) => {
            // The running units were taken before; the pending ones go after: no gap.
            let waited = match candidate.group {
                Group::Direct => NodeUnits::WAIT_IO,
                Group::Pair { .. } => NodeUnits::WAIT_POOL,
            };
            give_in_turn(floor, waited);
            // While its wakers were moved out the hold stayed, and the waiter may have been granted, left and ended.
            *freed += u32::from(done.freed);
            woken.append(&mut done.wakers);
            let emptied = selection.granted(slots, candidate);
            take_marks_off(floor, emptied);
            true
        }
        Err(_) => {
            // It left and lies in the inbox, which goes on holding the slot.
            let emptied = selection.unlink(slots, candidate.operation, candidate.group);
            take_marks_off(floor, emptied);
            let kept = slots.step_held(candidate.operation, |bits| Some(State(bits).unlinked()), 0);
            debug_assert!(kept.is_ok_and(|done| !done.freed), "O4: who left is in the inbox");
            false
        }
    }
}

/// The turn itself takes a waiter of a replaced epoch out of the line; the retirement finds it gone.
fn leave_stale<K: Tenure>(
    floor: &Floor<K>,
    selection: &mut Selection,
    candidate: Candidate,
    woken: &mut WakeBatch,
    freed: &mut u32,
) {
    let slots = &floor.operations;
    let emptied = selection.unlink(slots, candidate.operation, candidate.group);
    take_marks_off(floor, emptied);
    let step = slots.step_held(
        candidate.operation,
        |bits| {
            let state = State(bits);
            Some(state.left_by_turn(Cause::Epoch).unwrap_or_else(|| state.unlinked()))
        },
        ALL_CELLS,
    );
    if let Ok(mut done) = step {
        *freed += u32::from(done.freed);
        woken.append(&mut done.wakers);
    }
}

/// Gives units that the turn took for somebody who could not use them. Who is marked there is blocked by units of others,
/// whose release finds the mark and makes the turn look again; and nothing was marked while the turn held these.
fn give_in_turn<K: Tenure>(floor: &Floor<K>, units: NodeUnits) {
    let _marked = floor.node.give(units);
}

fn give_back<K: Tenure>(floor: &Floor<K>, candidate: Candidate, units: NodeUnits) {
    if let Group::Pair { tenant, provider } = candidate.group {
        floor.providers[usize::from(provider)].give_running();
        floor.tenants[usize::from(tenant)].give_running();
    }
    give_in_turn(floor, units);
}
