//! Typed slots: who holds what, and when the last hold is gone.
//!
//! # Handles
//!
//! | handle | holds | undone by |
//! | --- | --- | --- |
//! | [`Anchor`] | a root's allocation (control path: brokers, registries) | drop |
//! | [`Lease`] | one slot, counted in the slot's word | drop; the last one runs [`Occupant::last_lease`] |
//! | [`Sheaf`] | the same, several at once, to be given out | drop, in one step |
//! | [`Owner`] | what its lease does; and stands for more than that | drop, which gives the lease to [`End::end`] |
//! | [`Near`] | what its lease does; and has the address of a part of what that reaches | drop |
//! | [`Pin`] | what a slot itself hangs from; stored in the slot, moved out by [`Ending::finish`] | drop, last of all |
//! | HELD | the slot, but not its leases: membership in a line | [`Nest::release_hold`], [`Nest::step_held`] |
//! | (index, incarnation) | nothing; [`Nest::upgrade`] makes a lease of it while the slot still has one | - |
//!
//! There are two kinds of arena and one kind of slot. A [`Root`] is the outermost heap allocation: its slots, and the
//! state `C` that every lease can reach. A [`Nest`] lives inside such a `C`, and its slots are pinned by leases: a
//! buffer's stream by its operation, an operation by its session, a session by the root. So whatever lives keeps alive
//! what it lives in, without an `Arc` and without a step on a word that is shared by all.
//!
//! ```text
//!   Anchor ─────────▶ Root { head word, shared: C { .. Nest<Operation>, Nest<Stream> .. }, slots }
//!                       ▲                            │                │
//!   Lease<Session> ───▶ slot ── RootPin              │                │
//!                       ▲                            ▼                │
//!   Lease<Operation> ──│──────────────────────────▶ slot ── pin: Lease<Session>
//!                      │                             ▲                ▼
//!   Lease<Stream> ─────│─────────────────────────────│─────────────▶ slot ── pin: Lease<Operation>
//! ```
//!
//! # Words
//!
//! ```text
//!  slot   63    60 59    56 55     52 51                    20  19      18     17            0
//!        ┌────────┬────────┬─────────┬────────────────────────┬───────┬──────┬───────────────┐
//!        │ TAKING │ PARKED │ CLAIMED │ user 32                │ ENDED │ HELD │ leases 18     │
//!        └────────┴────────┴─────────┴────────────────────────┴───────┴──────┴───────────────┘
//!         one bit per park cell: see `mem::park`     the occupant's own          top bit: guard
//!
//!  root   63               42 41        26 25         13 12          0
//!  head  ┌───────────────────┬────────────┬─────────────┬─────────────┐
//!        │ tag 22            │ anchors 16 │ live 13     │ head 13     │   live: slots in use
//!        └───────────────────┴────────────┴─────────────┴─────────────┘
//!  nest  ┌────────────────────────────────────────────────┬───────────┐
//!  head  │ tag 51                                         │ head 13   │   head: first free index, or the length
//!        └────────────────────────────────────────────────┴───────────┘
//! ```
//!
//! The life of a slot, by the fields of its word:
//!
//! ```text
//!             take: pop, write, swap(leases 1)        last fetch_sub
//!     free ───────────────────────────────▶ live ───────────────────▶ ending ──▶ finish ──┐ HELD was clear
//!      ▲                                     ▲ │ duplicate, upgrade,                       ├──────────▶ give ──▶ free
//!      │                                     └─┘ drop of others                            │
//!      │                                                                   HELD: or(ENDED) │ HELD gone meanwhile
//!      │                                                                                   ├──────────▶ give ──▶ free
//!      └──────────────── give ◀── release_hold: and(!HELD) finds ENDED ◀── still HELD ─────┘
//! ```
//!
//! # Who may touch what
//!
//! | field of a slot | may be written by | may be read by |
//! | --- | --- | --- |
//! | word | anyone, by read-modify-write only (M1) | anyone |
//! | `next` | whoever is about to push the slot (M3) | anyone who pops; believed only if the pop succeeds (M4) |
//! | incarnation | the giver (M3) | anyone; believed only under a lease |
//! | home, index, pin | the taker, before publication (M3); the pin is moved out by the ending (M6) | any lease |
//! | value | the ending, if in a root; else it is shared, and changes only through cells of its own | any lease; in a nest, anyone (M8) |
//! | park cells | see `mem::park` | see `mem::park` |
//! | spare | any lease, by exchange (`spare`) | any lease |
//!
//! # Invariants
//!
//! * **M1.** A word changes by read-modify-write only, so all its changes stand in one order and every release
//!   sequence runs on through them.
//! * **M2.** Leases are counted: each `Lease` is one unit in `leases`. It is raised by publication (0 to 1, by the taker),
//!   by whoever already has a lease, or by a step that sees it above zero. So from zero it is raised only by a taker.
//! * **M3.** A slot off the free list with no leases belongs to one thread: from the pop to the publication to the taker;
//!   from the step that took the last lease to the push to the ending, or, if the ending left it to a holder, to the one
//!   whose step clears HELD and finds ENDED.
//! * **M4.** Each pop moves the tag, and `next` of a slot is written only between its pop and its push. So a pop whose
//!   compare succeeds read the `next` that belongs to the head it replaced.
//! * **M5.** A slot stands on the free list at most once. It is pushed exactly once for each pop: by the ending if HELD
//!   was clear at the last `fetch_sub` (nobody without a lease sets HELD), else by the second of `or(ENDED)` and the step
//!   that clears HELD, which the one order of M1 tells apart. Whoever did not see its own step clear HELD gives nothing.
//! * **M6.** The pin is in its cell from before publication until the ending moves it out; it is moved out once.
//! * **M7.** A slot with a lease keeps the memory it lies in: its pin leads, over at most a few slots, to a `RootPin`,
//!   which counts in `live`; the allocation is freed by the one step that brings `live + anchors` to zero, and without
//!   either nobody is left to raise them.
//! * **M8.** The value is a valid `T` at all times: zero pages at first, and whatever its occupants left later. It is lent
//!   mutably only by the ending of a root's slot: a root, unlike a nest, lends no value without a lease.
//! * **M9.** Nothing refers to a slot by `&` across the step that gives up the right to it: the last steps work on raw
//!   pointers and on references to the atomic alone.
//! * **M10.** The address of a slot does not change: tables are made before the first lease and never move their
//!   elements; a nest's home is reached from `&C`, and nobody has `&mut C` while the root lives.
//! * **M11.** What a pin reaches, for any lifetime that it is borrowed for, stays where it is as long as the pin does: a slot
//!   with a lease keeps its pin (M6), and nobody borrows a pin, or what it reaches, exclusively.
//!
//! # What it costs
//!
//! Taking: one step on the head word, one on the slot's. Giving: one on the slot's, one on the head, and for a root one
//! more (`live`). Nothing allocates after `new`. Callers never wait; a compare-and-swap that lost is tried again, and
//! lost only because another thread got on.

pub(in crate::mem) mod word;
mod slot;
mod held;
mod lease;
mod root;
mod nest;
mod stock;
mod near;
mod owner;
mod spare;

pub use held::SteppedHeld;
pub use lease::{Ending, Lease, Occupant, Pin, Rest, Taken};
pub use near::{Near, Sheaf};
pub use owner::{End, Owner};
pub use nest::{Nest, Stepped};
pub use root::{Anchor, Full, Root, RootPin};
pub use stock::{Cell, Drained, KEEPS_MAX, KEPT_MAX, LABEL_BITS, Spare};
pub use spare::{Leased, Returns};
pub use word::{BareWord, Bits, LEASES_MAX, USER_BITS, Word};

/// The longest arena: an index fits 13 bits, and one value of them means the end of the list.
pub const SLOTS_MAX: usize = 8_191;

/// The bytes that one slot for a `T` takes, its occupant included: what an owner costs in fixed memory.
#[must_use]
pub const fn slot_bytes<T: Occupant>() -> u64 {
    size_of::<slot::Slot<T>>() as u64
}

#[cfg(all(test, not(loom)))]
mod tests;
