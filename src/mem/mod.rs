//! Fixed memory and exclusive access to it. The only folder with unsafe code.
//!
//! | module | gives |
//! | --- | --- |
//! | [`arena`] | typed slots with leases: who holds what, and when the last hold is gone |
//! | [`kept`] | a cell that is filled once while it is shared, and emptied while it is not |
//! | [`park`] | one waker in one cell, guarded by three bits of the word that decides |
//! | [`ring`] | a single-producer single-consumer ring and its one word |
//! | [`turn`] | the right to run, held by at most one thread, never waited for |
//! | [`bitset`] | fixed atomic bit sets |
//! | [`cells`] | typed cells with a set of idle ones, for connections |
//! | [`blocks`] | power-of-two byte blocks that are zero whenever they are free |
//!
//! Each file opens with its word, its numbered invariants and the rule who may touch what under which bits. A `SAFETY`
//! comment cites those numbers.

#![allow(unsafe_code, reason = "this folder is where the unsafe code of the library lives")]

pub mod arena;
pub mod kept;
pub mod park;
pub mod ring;
pub mod turn;
mod list;
pub mod bitset;
pub mod cells;
pub mod blocks;
