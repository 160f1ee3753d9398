//! Which mutant is on. This file is part of the planted library, not of the program that plants.
//!
//! `LATENT_MUTANT` holds its number. With `LATENT_MUTANT_REACHED` the numbers of all that were asked for are appended to the
//! file that it names, each once.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

static SEEN: [AtomicU8; 16384] = [const { AtomicU8::new(0) }; 16384];

struct Taken {
    id: usize,
    reached: Option<File>,
}

/// Whether this mutant is on. Takes no memory after the first question: the allocation gate counts.
#[inline]
pub fn on(id: usize) -> bool {
    static TAKEN: OnceLock<Taken> = OnceLock::new();
    let open = |name| OpenOptions::new().append(true).create(true).open(name).ok();
    let taken = TAKEN.get_or_init(|| Taken {
        id: std::env::var("LATENT_MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(usize::MAX),
        reached: std::env::var_os("LATENT_MUTANT_REACHED").and_then(open),
    });
    if let Some(file) = &taken.reached
        && SEEN[id].swap(1, Relaxed) == 0
    {
        let mut line = [0_u8; 8];
        let mut rest = &mut line[..];
        let _ = writeln!(rest, "{id}");
        let unused = rest.len();
        let mut file = file;
        let _ = file.write_all(&line[..8 - unused]);
    }
    taken.id == id
}
