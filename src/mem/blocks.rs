//! Power-of-two byte blocks that are all zero whenever they are free.
//!
//! Classes are 512 B, 1 KiB, ... up to the chunk limit, one region of pages each. A [`Block`] is an affine token of 8
//! bytes without a pointer; bytes are reached only through the [`Blocks`] it came from. Each block has a side record:
//! what its owner keeps about it (`M`), and how far it was exposed for writing.
//!
//! Free blocks of a class stand on two lists. `cold`: never touched, or given back to the system: its pages cost
//! nothing. `warm`: used before, pages resident. A block is taken from `warm` first; [`Blocks::purge`] moves blocks from
//! `warm` to `cold`.
//!
//! ```text
//!            take                      give: wipe [0, exposed), then push
//!   cold ───────────▶ token (in use) ───────────────────────────────────▶ warm
//!     ▲                     ▲                                              │ │
//!     │                     └───────────────── take ───────────────────────┘ │
//!     └──────────────── purge: pages back to the system ─────────────────────┘
//! ```
//!
//! * **B1** A block is in one place: on `warm`, on `cold`, in one token (which may lie in a word: see `arena::spare`), or in
//!   the hands of one call in this file. Tokens are
//!   made only from a number just taken off a list, and a number goes back only by consuming its token.
//! * **B2** A token with the instance number of these `Blocks` was made by them (the number is never given out twice), so
//!   its class and number are in range.
//! * **B3** The bytes and the side record of a block in a token are touched only through the token: shared through
//!   `&Block`, exclusively through `&mut Block` or by value. Those of a free block only by who took it off.
//! * **B4** In a block, bytes at or above `exposed` are zero. In a free block `exposed` is zero: so a free block is all
//!   zero.
//! * **B5** A push hands bytes and record over to the pop that takes the number (L4 of the list).
//! * **B6** A purge holds at most one block per call, which is less than the spare of its class.
//! * **B7** A take by a caller with a charge finds a block. Say N blocks of the class can be charged for, so N and the spare
//!   exist. When a taker has found `warm` empty, every block is on `cold`, in use, or with a purge. Those in use belong to
//!   charges other than this taker's, and other than those of takers that are on their way to `cold` as well. So `cold` has
//!   at least as many blocks as takers are on their way to it, and each of them takes one.
//!
//! A token that is dropped or forgotten is a lost block: nothing unsound, but the block never comes back. The owner of
//! the token sees to that.

mod pages;

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;

use zeroize::Zeroize;

use self::pages::Pages;
use crate::mem::list::{self, Links, List};
use crate::sync::atomic::AtomicU64;
use crate::sync::{self, Table, UnsafeCell, Zero, order};

/// The smallest block, in bytes.
pub const SMALLEST: usize = 512;

/// The largest block, in bytes.
pub const LARGEST: usize = 1 << 20;

/// Blocks of a class beyond those that the limits can hold, so that a purge never makes a take fail.
pub const SPARE: usize = if cfg!(loom) { 1 } else { 64 };

const CLASS_BITS: u32 = 4;
const INSTANCE_SHIFT: u32 = list::TOP_BITS + CLASS_BITS;

const _: () = assert!((LARGEST / SMALLEST).ilog2() < 1 << CLASS_BITS, "every class has a number");

/// The right to one block, and to its bytes. Not a pointer: it is used together with the [`Blocks`] it came from.
///
/// It goes back by [`Blocks::give`]. Dropping it loses the block.
#[must_use = "a block that is not given back is lost"]
#[derive(PartialEq, Eq)]
pub struct Block(NonZeroU64);

const _: () = assert!(size_of::<Option<Block>>() == 8);

impl Block {
    fn new(instance: NonZeroU64, class: usize, number: u32) -> Self {
        let place = (class as u64) << list::TOP_BITS | u64::from(number);
        Self(instance | place)
    }

    /// The number that stands for it while it lies in a word; at least 2^21.
    #[inline]
    pub(in crate::mem) fn into_token(self) -> NonZeroU64 {
        self.0
    }

    /// The block that a token stands for.
    ///
    /// # Safety
    ///
    /// The token was made of a block, and no other block is made of it (B1).
    #[inline]
    pub(in crate::mem) unsafe fn from_token(token: NonZeroU64) -> Self {
        Self(token)
    }

    fn class(&self) -> usize {
        (self.0.get() >> list::TOP_BITS & ((1 << CLASS_BITS) - 1)) as usize
    }

    #[allow(clippy::cast_possible_truncation, reason = "masked to 17 bits")]
    fn number(&self) -> u32 {
        (self.0.get() & ((1 << list::TOP_BITS) - 1)) as u32
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} B, {})", SMALLEST << self.class(), self.number())
    }
}

/// What is known about one block beside its bytes. Neighbours are used by different threads and share no line.
#[derive(Debug, Zero)]
struct Side<M> {
    /// One past the last byte that was ever exposed for writing since the block was zero.
    exposed: u32,
    owner: M,
    _gap: [u64; 11],
}

// As large as the broker's. What is written of it and the next one's beginning are further apart than a line is long.
const _: () = assert!(size_of::<Side<[u64; 4]>>() == 128);

/// All blocks of one size.
struct Class<M> {
    warm: List,
    cold: List,
    links: Links,
    sides: Table<UnsafeCell<Side<M>>>,
    pages: Pages,
    size: usize,
    /// The head of `cold` after the last purge: a take from `cold` since then means that the class is growing.
    cold_seen: AtomicU64,
}

/// What a [`Blocks::purge`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Blocks whose pages went back to the system.
    pub blocks: usize,
    /// Whether there may be more to give back later.
    pub more: bool,
}

/// What [`Blocks::scan`] found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scan {
    /// Free blocks, of all classes.
    pub free: usize,
    /// Blocks of all classes, free or not.
    pub total: usize,
    /// Free blocks that are not all zero. Anything but 0 is a bug.
    pub dirty: usize,
}

/// The byte blocks of one node. `M` is what the owner of a block keeps beside it; it is zero at first, and its owner
/// resets it.
pub struct Blocks<M> {
    /// Names this value in its tokens; shifted to its place.
    instance: NonZeroU64,
    classes: Box<[Class<M>]>,
}

// SAFETY: B3: through a shared `Blocks` and a token, one thread gets `&M` or `&mut M` of the token's block, and by B5 one
// after another: as much as a lock around M would give, and `&M` on several threads through a shared token.
unsafe impl<M: Send + Sync> Sync for Blocks<M> {}

impl<M: Zero> Blocks<M> {
    /// Blocks for chunks of up to `chunk` bytes, of which at most `buffers` are held at once and at most `bytes` in all (the
    /// sum of all byte limits that a block can be charged to). A class has as many blocks as those two allow, and
    /// [`SPARE`] more, so that a take after a successful charge finds one.
    ///
    /// Reserves address space only; pages are committed when first touched.
    ///
    /// # Errors
    ///
    /// If the system refuses the address space.
    ///
    /// # Panics
    ///
    /// If `chunk` is above [`LARGEST`] or `buffers` above 65,536.
    pub fn new(chunk: usize, buffers: usize, bytes: usize) -> io::Result<Self> {
        assert!(chunk <= LARGEST, "chunks of {chunk} bytes: the ceiling is {LARGEST}");
        assert!(buffers <= 1 << 16, "{buffers} buffers: the ceiling is 65,536");
        let classes = Self::rounded(chunk).ilog2() - SMALLEST.ilog2() + 1;
        let count = |class: u32| buffers.min(bytes / (SMALLEST << class)) + SPARE;
        let counts: Vec<usize> = (0..classes).map(count).collect();
        Self::with_counts(&counts)
    }

    /// Blocks with the given number of each class, smallest class first. Models and tests use it directly.
    ///
    /// # Errors
    ///
    /// If the system refuses the address space.
    ///
    /// # Panics
    ///
    /// If a class has no block or 2^17 and more, and if there are more classes than up to [`LARGEST`].
    pub fn with_counts(counts: &[usize]) -> io::Result<Self> {
        assert!(counts.len() <= (LARGEST / SMALLEST).ilog2() as usize + 1, "too many classes of blocks");
        let class = |(class, &count): (usize, &usize)| {
            assert!(count > 0, "a class without blocks");
            let (links, size) = (Links::new(count), SMALLEST << class);
            let (warm, cold) = (List::empty(&links), List::complete());
            let (sides, pages) = (Table::new(count), Pages::new(count * size)?);
            Ok(Class { warm, cold, links, sides, pages, size, cold_seen: AtomicU64::new(0) })
        };
        let classes = counts.iter().enumerate().map(class).collect::<io::Result<_>>()?;
        let instance = sync::unique().checked_mul(1 << INSTANCE_SHIFT).and_then(NonZeroU64::new);
        Ok(Self { instance: instance.expect("2^43 instances: B2 would end with them"), classes })
    }
}

impl<M> Blocks<M> {
    /// The size of the block that `bytes` bytes take: the next power of two, at least [`SMALLEST`]. This is what is charged.
    ///
    /// # Panics
    ///
    /// If `bytes` is above 2^63.
    #[must_use]
    pub const fn rounded(bytes: usize) -> usize {
        if bytes <= SMALLEST { SMALLEST } else { bytes.next_power_of_two() }
    }

    /// Takes a block of [`Self::rounded`]`(bytes)` bytes, all zero. None: `bytes` is above the largest class, or all its
    /// blocks are in use, which cannot be if the caller holds a charge for it (B7).
    ///
    /// Never allocates, never locks. Touches no page of the block.
    #[inline]
    pub fn take(&self, bytes: usize) -> Option<Block> {
        self.take_with(bytes, |_| ())
    }

    /// [`take`](Self::take), and writes what its owner keeps beside it: one look for both.
    #[inline(always)]
    pub fn take_with(&self, bytes: usize, begin: impl FnOnce(&mut M)) -> Option<Block> {
        let index = (bytes.max(SMALLEST) - 1).ilog2() + 1 - SMALLEST.ilog2();
        let class = self.classes.get(index as usize)?;
        let number = class.take()?;
        // SAFETY: B3: the number was just taken off, so the block is this call's.
        class.side(number, |side| begin(unsafe { &mut (*side).owner }));
        Some(Block::new(self.instance, index as usize, number))
    }

    /// Takes `block` back: wipes what was exposed, then puts it on its list. The wipe runs at memory speed and cannot be
    /// optimised away. The side record stays as it is.
    ///
    /// # Panics
    ///
    /// If the block is not one of these; it is lost then.
    #[inline]
    pub fn give(&self, block: Block) {
        self.give_with(block, |_, _| ());
    }

    /// [`give`](Self::give), and before it hands what its owner keeps beside it, and its size, to `end`: one look for both.
    ///
    /// # Panics
    ///
    /// As `give`.
    #[inline(always)]
    pub fn give_with<R>(&self, block: Block, end: impl FnOnce(&mut M, usize) -> R) -> R {
        let (class, number) = self.find(&block);
        let (exposed, ended) = class.side(number, |side| {
            // SAFETY: B3: the token was given by value, so nobody else has access.
            let side = unsafe { &mut *side };
            (std::mem::take(&mut side.exposed), end(&mut side.owner, class.size))
        });
        // (Wiping nothing is not free: it would cost ten times the rest.)
        if exposed > 0 {
            // SAFETY: B3: as above.
            unsafe { class.pages.bytes_mut(number as usize * class.size, exposed as usize) }.zeroize();
        }
        class.warm.push(&class.links, number);
        ended
    }

    /// Whether a request for `bytes` is served by blocks of this size: so that this one can serve it.
    #[inline(always)]
    #[must_use]
    pub fn serves(&self, block: &Block, bytes: usize) -> bool {
        let index = (bytes.max(SMALLEST) - 1).ilog2() + 1 - SMALLEST.ilog2();
        block.class() == index as usize
    }

    /// Makes `block` as one that was just taken, if its owner says so of what is kept beside it and its size: wipes what was exposed. For a
    /// block that is used again by the same owner.
    ///
    /// # Panics
    ///
    /// If the block is not one of these.
    #[inline(always)]
    pub fn wipe_if(&self, block: &mut Block, when: impl FnOnce(&mut M, usize) -> bool) -> bool {
        let (class, number) = self.find(block);
        let exposed = class.side(number, |side| {
            // SAFETY: B3: the token is borrowed exclusively.
            let side = unsafe { &mut *side };
            when(&mut side.owner, class.size).then(|| std::mem::take(&mut side.exposed))
        });
        let Some(exposed) = exposed else { return false };
        if exposed > 0 {
            // SAFETY: B3: as above.
            unsafe { class.pages.bytes_mut(number as usize * class.size, exposed as usize) }.zeroize();
        }
        true
    }

    /// The size of `block` in bytes.
    ///
    /// # Panics
    ///
    /// If the block is not one of these.
    #[must_use]
    #[inline]
    pub fn capacity(&self, block: &Block) -> usize {
        self.find(block).0.size
    }

    /// All bytes of `block`.
    ///
    /// # Panics
    ///
    /// If the block is not one of these.
    #[must_use]
    #[inline]
    pub fn bytes<'a>(&'a self, block: &'a Block) -> &'a [u8] {
        let (class, number) = self.find(block);
        class.sides[number as usize].with(|_| ());
        // SAFETY: B3: the token is shared for `'a`, so nobody writes.
        unsafe { class.pages.bytes(number as usize * class.size, class.size) }
    }

    /// The bytes of `range` in `block`, for writing. They count as exposed from now on: the wipe covers them.
    ///
    /// # Panics
    ///
    /// If the block is not one of these, or the range is not inside it.
    #[inline]
    pub fn bytes_mut<'a>(&'a self, block: &'a mut Block, range: Range<usize>) -> &'a mut [u8] {
        let (class, number) = self.find(block);
        assert!(range.start <= range.end && range.end <= class.size, "a range outside of its block");
        #[allow(clippy::cast_possible_truncation, reason = "at most LARGEST by the assertion")]
        let end = range.end as u32;
        class.side(number, |side| {
            // SAFETY: B3: the token is borrowed exclusively.
            let exposed = unsafe { &mut (*side).exposed };
            *exposed = end.max(*exposed);
        });
        // SAFETY: B3: the token is borrowed exclusively for `'a`.
        unsafe { class.pages.bytes_mut(number as usize * class.size + range.start, range.len()) }
    }

    /// What the owner keeps beside `block`.
    ///
    /// # Panics
    ///
    /// If the block is not one of these.
    #[must_use]
    #[inline]
    pub fn meta<'a>(&'a self, block: &'a Block) -> &'a M {
        let (class, number) = self.find(block);
        // SAFETY: B3: the token is shared for `'a`, so nobody writes.
        class.sides[number as usize].with(|side| unsafe { &(*side).owner })
    }

    /// What the owner keeps beside `block`, to be changed.
    ///
    /// # Panics
    ///
    /// If the block is not one of these.
    #[must_use]
    #[inline]
    pub fn meta_mut<'a>(&'a self, block: &'a mut Block) -> &'a mut M {
        let (class, number) = self.find(block);
        // SAFETY: B3: the token is borrowed exclusively for `'a`.
        class.side(number, |side| unsafe { &mut (*side).owner })
    }

    /// Gives pages of free blocks back to the system, at most `most` blocks per class. Control path.
    ///
    /// A class from whose `cold` list blocks were taken since the last call is growing: it is left alone this time. So
    /// called at intervals, this takes away what a burst left behind, and little of what is used again and again. Blocks
    /// smaller than a page stay resident. When [`Purged::more`] is false there is nothing to come back for until blocks
    /// were used.
    ///
    /// It never makes a take fail (B6).
    ///
    /// # Errors
    ///
    /// If the system refuses to take pages back, as it does when the process has locked its memory.
    pub fn purge(&self, most: usize) -> io::Result<Purged> {
        let mut purged = Purged::default();
        for class in self.classes.iter().filter(|class| Pages::can_give_back(class.size)) {
            let (blocks, more) = class.purge(most)?;
            purged = Purged { blocks: purged.blocks + blocks, more: purged.more || more };
        }
        Ok(purged)
    }

    /// Looks whether every free block is all zero. For tests, and only at a quiet point: it takes all free blocks out while
    /// it looks, so takes fail meanwhile. It allocates, and reads all of the address space.
    #[must_use]
    pub fn scan(&self) -> Scan {
        let mut scan = Scan::default();
        for class in &self.classes {
            scan.total += class.links.len() as usize;
            for list in [&class.warm, &class.cold] {
                let numbers: Vec<u32> = std::iter::from_fn(|| list.pop(&class.links)).collect();
                for &number in numbers.iter().rev() {
                    scan.free += 1;
                    scan.dirty += usize::from(!class.is_zero(number));
                    list.push(&class.links, number);
                }
            }
        }
        scan
    }

    #[inline]
    fn find(&self, block: &Block) -> (&Class<M>, u32) {
        assert!(
            block.0.get() >> INSTANCE_SHIFT == self.instance.get() >> INSTANCE_SHIFT,
            "a block of other blocks"
        );
        (&self.classes[block.class()], block.number())
    }
}

impl<M> Class<M> {
    /// Takes a number off: off `warm` if there is one. See B7.
    #[inline]
    fn take(&self) -> Option<u32> {
        self.warm.pop(&self.links).or_else(|| self.cold.pop(&self.links))
    }

    /// A write access to a side record.
    #[inline]
    fn side<R>(&self, number: u32, f: impl FnOnce(*mut Side<M>) -> R) -> R {
        self.sides[number as usize].with_mut(f)
    }

    fn purge(&self, most: usize) -> io::Result<(usize, bool)> {
        let cold = self.cold.head().raw();
        if self.cold_seen.swap(cold, order::COUNT) != cold {
            return Ok((0, true));
        }
        let mut blocks = 0;
        let more = loop {
            if blocks == most {
                break true;
            }
            let Some(number) = self.warm.pop(&self.links) else { break false };
            // SAFETY: B3: the number was just taken off, so the block is this call's. It is made of whole pages.
            let returned = unsafe { self.pages.give_back(number as usize * self.size, self.size) };
            match returned {
                Ok(()) => self.cold.push(&self.links, number),
                Err(refused) => {
                    self.warm.push(&self.links, number);
                    return Err(refused);
                }
            }
            blocks += 1;
        };
        self.cold_seen.store(self.cold.head().raw(), order::COUNT);
        Ok((blocks, more))
    }

    /// Whether a block that was taken off a list is as B4 says.
    fn is_zero(&self, number: u32) -> bool {
        // SAFETY: B3: the number was taken off by the caller.
        let exposed = self.sides[number as usize].with(|side| unsafe { (*side).exposed });
        // SAFETY: B3: as above.
        let bytes = unsafe { self.pages.bytes(number as usize * self.size, self.size) };
        exposed == 0 && bytes.iter().all(|&byte| byte == 0)
    }
}

impl<M> std::fmt::Debug for Blocks<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let classes = self.classes.iter().map(|class| (class.size, class.links.len()));
        f.debug_map().entries(classes).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
