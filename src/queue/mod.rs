//! The operation core and waiting.
//!
//! An *operation* is one admitted call: the arena slot that everything else of the call hangs from. This floor knows
//! its phases, what it has charged in each of them, how it waits in line for a running unit, and how it ends. It
//! does not know sessions, policies, buffers or connections: those are floors above, which reach it through a
//! [`Lease`](crate::mem::arena::Lease).
//!
//! ```text
//!            admit                wait (first poll)          turn
//!   ───────────────▶ STAGED ──────────────────▶ QUEUED ─────────────▶ GRANTED ──start──▶ STARTED
//!                      │   └──────direct──────────────────────────────▶ │                  │
//!                 drop, stop, expiry              drop, stop, expiry    │ drop, stop       │ last lease
//!                      ▼                               ▼                ▼                  ▼
//!                     LEFT ◀───────────────────────── LEFT           RETURNED ─────────▶ (slot free)
//! ```
//!
//! * [`operation`]: the phases, their transitions and their charges.
//! * [`floor`]: the words and the arena an operation is charged to, and its end.
//! * [`credit`]: what an operation that ended leaves for the next one, past all words that are shared.
//! * [`fifo`]: the list that those who wait stand in.
//! * [`select`]: who is next: tenants in rotation, providers in rotation inside a tenant, FIFO inside both.
//! * [`line`]: the turn that grants: inbox, dirty bits, batches.
//! * [`wait`]: the future that waits for a grant.
//! * [`watched`]: whom a stop of the session must reach.
//! * [`keeper`]: deadlines without a timer per wait, where there is a control task; [`due`]: in which order.
//! * [`look`]: when idle connections are looked at next.
//! * [`acquire`]: the small line of each client, for a connection or the right to dial.
//! * [`window`]: the places of a transfer, and those who wait for one.
//! * [`spares`]: blocks that operations keep ready, and how they come back.
//! * [`glance`]: a look at every operation from outside, to count them.
//! * [`inventory`]: the places of jobs, and who joins whose.
pub mod operation;
pub mod credit;
pub mod floor;
pub mod fifo;
pub mod select;
pub mod line;
pub mod due;
pub mod keeper;
pub mod look;
pub mod watched;
pub mod wait;
pub mod acquire;
pub mod window;
pub mod spares;
pub mod glance;
pub mod inventory;

#[cfg(loom)]
pub mod model;
