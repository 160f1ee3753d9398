//! Who is granted, with which units: taken, or passed on by a call that ends (L2). All of it is run by the holder of the turn.
use super::super::floor::{Floor, Tenure};
use super::super::operation::{ALL_CELLS, Cause, State};
use super::super::select::{Candidate, Coming, Group, Selection};
use super::{BATCH, provider_has_room, take_marks_off, tenant_has_room};
use crate::account::charge::Request;
use crate::account::dimension::Dimension;
use crate::account::node::NodeUnits;
use crate::account::provider::TakenRunning;
use crate::account::scope::{Blocked, RequestUnits};
use crate::foreign::WakeBatch;

/// Whether who was just linked, where nobody else can be granted, cannot be granted either; then it is marked where.
pub(super) fn stays_behind<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, index: u16, group: Group) -> bool {
    match selection.coming(index, group) {
        Coming::Behind => true,
        Coming::Among => false,
        Coming::Alone => {
            let candidate = Candidate { operation: index, group };
            floor.node.has_or_mark(NodeUnits::RUN_POOL).is_err()
                || matches!(narrow_or_mark(floor, selection, candidate), Narrow::Blocked)
        }
    }
}

/// Passes the running units of a call that is over on to the next in line, or gives them back. Whether that is all that has
/// changed for those who wait: one of them was granted what another had.
pub(super) fn pass_on<K: Tenure>(
    floor: &Floor<K>,
    selection: &mut Selection,
    ends: Request,
    woken: &mut WakeBatch,
    freed: &mut u32,
) -> bool {
    let provider = &floor.providers[usize::from(ends.provider())];
    // The tenant's part goes back as ever: in rotation, the next is another one's.
    let reopens = floor.tenants[usize::from(ends.tenant())].give(RequestUnits::Both);
    if reopens {
        tenant_has_room(floor, selection, ends.tenant());
    }
    let closed = selection.is_closed(ends.provider());
    provider_has_room(floor, selection, ends.provider());
    let next = selection.candidate(true, true).filter(|next| takes_over(floor, selection, *next, ends.provider()));
    let Some(next) = next else {
        let _marked = provider.give(RequestUnits::Both);
        give_in_turn(floor, NodeUnits::NOW_POOL);
        return false;
    };
    // The node's running unit passes on: its place in the line goes back, and the owner of the slot that is free.
    if !give_to(floor, selection, next, NodeUnits::OWNER.and(NodeUnits::WAIT_POOL), woken, freed) {
        give_back(floor, next, NodeUnits::NOW_POOL);
        return false;
    }
    if closed {
        // As full as before.
        selection.stays_closed(ends.provider());
    }
    closed && !reopens
}

/// Whether the unit of a call that is over at `provider` is the next one's now: then it has its tenant's, too.
fn takes_over<K: Tenure>(
    floor: &Floor<K>,
    selection: &mut Selection,
    next: Candidate,
    provider: u16,
) -> bool {
    let Group::Pair { tenant, provider: wanted } = next.group else { return false };
    if wanted != provider {
        return false;
    }
    let word = &floor.tenants[usize::from(tenant)];
    if !word.take_or_mark_running() {
        selection.block_tenant(tenant);
        return false;
    }
    let last = selection.is_last_at_marked_provider(next);
    let passed = floor.providers[usize::from(provider)].pass_running(tag_of(floor, next), last);
    if !passed {
        word.give_running();
    }
    passed
}

/// Grants in rotation until nobody is eligible, the node is full, or the batch is. `true`: the batch is full.
pub(super) fn grant<K: Tenure>(
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
        // Who is blocked is marked where it is, wide to narrow, before anything is taken: so nothing is taken in vain, unless
        // somebody else is quicker, and then the step that takes is the one that marks.
        let mut at_node = floor.node.has_or_mark(units);
        if at_node.is_ok() {
            match narrow_or_mark(floor, selection, candidate) {
                Narrow::Blocked => continue,
                Narrow::Taken => at_node = floor.node.try_or_mark(NodeUnits::NONE, units),
                Narrow::Stale => {
                    leave_stale(floor, selection, candidate, woken, freed);
                    done += 1;
                    continue;
                }
            }
        }
        if let Err(why) = at_node {
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
        let waited = match candidate.group {
            Group::Direct => NodeUnits::WAIT_IO,
            Group::Pair { .. } => NodeUnits::WAIT_POOL,
        };
        if give_to(floor, selection, candidate, waited, woken, freed) {
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

/// Looks for the tenant's and the provider's running unit, and marks which of them blocks.
fn narrow_or_mark<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, candidate: Candidate) -> Narrow {
    let Group::Pair { tenant, provider } = candidate.group else { return Narrow::Taken };
    if !floor.tenants[usize::from(tenant)].has_running_or_mark() {
        selection.block_tenant(tenant);
        return Narrow::Blocked;
    }
    let tag = tag_of(floor, candidate);
    match floor.providers[usize::from(provider)].has_running_or_mark(tag) {
        TakenRunning::Yes => Narrow::Taken,
        TakenRunning::Marked => {
            selection.close_provider(tenant, provider);
            Narrow::Blocked
        }
        TakenRunning::Stale => Narrow::Stale,
    }
}

fn tag_of<K: Tenure>(floor: &Floor<K>, candidate: Candidate) -> u32 {
    floor.operations.peek(candidate.operation).request().map_or(0, Request::tag)
}

/// Takes the tenant's and the provider's running unit, or notes which of them blocks.
fn take_narrow<K: Tenure>(floor: &Floor<K>, selection: &mut Selection, candidate: Candidate) -> Narrow {
    let Group::Pair { tenant, provider } = candidate.group else { return Narrow::Taken };
    if !floor.tenants[usize::from(tenant)].take_or_mark_running() {
        selection.block_tenant(tenant);
        return Narrow::Blocked;
    }
    let last = selection.is_last_at_marked_provider(candidate);
    match floor.providers[usize::from(provider)].take_or_mark_running(tag_of(floor, candidate), last) {
        TakenRunning::Yes => return Narrow::Taken,
        TakenRunning::Marked => selection.close_provider(tenant, provider),
        TakenRunning::Stale => {
            floor.tenants[usize::from(tenant)].give_running();
            return Narrow::Stale;
        }
    }
    floor.tenants[usize::from(tenant)].give_running();
    Narrow::Blocked
}

/// Moves the waiter to GRANTED, and gives `back` to the node. `false`: it had left, nobody was granted and nothing given.
///
/// The links are the turn's until it is left, so the group is put right after the step, although the slot may be used
/// again by then.
fn give_to<K: Tenure>(
    floor: &Floor<K>,
    selection: &mut Selection,
    candidate: Candidate,
    back: NodeUnits,
    woken: &mut WakeBatch,
    freed: &mut u32,
) -> bool {
    let slots = &floor.operations;
    let granted = |bits| State(bits).granted();
    match slots.step_held_and_wake(candidate.operation, granted, ALL_CELLS, woken) {
        Ok(done) => {
            // The running units were taken before; the pending ones go after: no gap.
            give_in_turn(floor, back);
            // While its wakers were moved out the hold stayed, and the waiter may have been granted, left and ended.
            *freed += u32::from(done.freed);
            let emptied = selection.granted(slots, candidate);
            take_marks_off(floor, emptied);
            true
        }
        Err(_) => {
            // It left and lies in the inbox, which goes on holding the slot.
            let emptied = selection.unlink(slots, candidate.operation, candidate.group);
            take_marks_off(floor, emptied);
            let kept = slots.step_held(candidate.operation, |bits| Some(State(bits).unlinked()));
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
    let leave = |bits| {
        let state = State(bits);
        Some(state.left_by_turn(Cause::Epoch).unwrap_or_else(|| state.unlinked()))
    };
    if let Ok(done) = slots.step_held_and_wake(candidate.operation, leave, ALL_CELLS, woken) {
        *freed += u32::from(done.freed);
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
