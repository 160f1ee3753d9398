//! The bytes words: blocks on the staged and on the result side of the node, and the bytes of one tenant.
//!
//! ```text
//! node    63       58   57   56      40 39            20 19            0
//!        │ loosened 6 │TIGHT│ buffers  │  result bytes  │ staged bytes │      bytes in units of 512
//!
//! tenant  63       32 31          0
//!        │           │ tenant bytes │                            in units of 512
//! ```
//!
//! * B1. A block that is out holds its size on one side, and one buffer.
//! * B2. `retain` moves a block from the staged to the result side in one step: no instant, and no snapshot, shows it on
//!   neither side or on both.
//! * B3. Limits are rounded down to 512 bytes; blocks are powers of two from 512 up, so nothing else is rounded.
//! * B4. Nobody waits at these words; there are no marks.
//! * B5. A block that an operation keeps ready stays charged. TIGHT is set before anything is refused or counted: from then on
//!   no operation begins to keep one, and whoever set it takes back what is kept. `loosened` counts, modulo 64, how often TIGHT
//!   was cleared: where it is the same before the taking back and after the refusal, nothing was kept in between.
//!
//! Rooms: see [`super::room`], R1 to R5.

use super::dimension::Dimension;
use super::peaks::Peaks;
use super::room::{Field, Layout, Lowering, Rooms, given, lowering, taken};
use super::rules::SMALLEST_BLOCK;
use super::scope::{Blocked, NotLowered};

const STAGED: Field = Field::new(0, 20, Dimension::IoStagedBytes);
const RESULT: Field = Field::new(20, 20, Dimension::IoResultBytes);
const BUFFERS: Field = Field::new(40, 17, Dimension::IoBuffers);
const TIGHT: u64 = 1 << 57;
const LOOSENED: u64 = 1 << 58;
const TENANT: Field = Field::new(0, 32, Dimension::IoTenantBytes);

/// Bytes of whole blocks, in units of 512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units(u32);

impl Units {
    /// The units of `bytes`, which are rounded down: for limits.
    ///
    /// # Panics
    ///
    /// Never for numbers within the ceilings, the largest of which is 512 MiB.
    pub const fn within(bytes: u64) -> Units {
        let units = bytes / SMALLEST_BLOCK;
        assert!(units <= u32::MAX as u64, "bytes far above every ceiling");
        Units(units as u32)
    }

    /// The units of a block: a multiple of 512.
    pub const fn of_block(bytes: usize) -> Units {
        assert!((bytes as u64).is_multiple_of(SMALLEST_BLOCK), "blocks are whole units");
        Units::within(bytes as u64)
    }

    /// The bytes.
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * SMALLEST_BLOCK
    }

    #[inline]
    const fn number(self) -> u64 {
        self.0 as u64
    }
}

#[derive(Debug)]
struct BytesLayout;

impl Layout for BytesLayout {
    const FIELDS: &'static [Field] = &[STAGED, RESULT, BUFFERS];
}

#[derive(Debug)]
struct TenantBytesLayout;

impl Layout for TenantBytesLayout {
    const FIELDS: &'static [Field] = &[TENANT];
}

lowering!(BytesWord, TenantBytesWord);

/// The room of the node for blocks.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct BytesWord {
    rooms: Rooms<BytesLayout>,
    peaks: Peaks<BytesLayout>,
}

/// The state of the word beside its counts. Equal before and after: it was not loosened in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tightness(u64);

impl Tightness {
    /// Whether no operation may begin to keep a block ready.
    pub const fn is_tight(self) -> bool {
        self.0 & TIGHT != 0
    }
}

/// What is used of the node's bytes, at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesUse {
    /// Bytes of blocks on the staged side.
    pub staged_bytes: u64,
    /// Bytes of blocks on the result side.
    pub result_bytes: u64,
    /// Blocks that are out.
    pub buffers: u32,
}

/// Which side a block, or a window of blocks, is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Inputs, and buffers being filled.
    Staged,
    /// Retained outputs, queued and delivered chunks.
    Result,
}

/// `count` blocks of `each` on one side, as units of the word; `None` if no word could hold so much.
#[inline]
fn charge(side: Side, count: u32, each: Units) -> Option<u64> {
    let field = field_of(side);
    let bytes = u64::from(count) * each.number();
    (bytes <= field.largest() && u64::from(count) <= BUFFERS.largest())
        .then(|| field.units(bytes) | BUFFERS.units(u64::from(count)))
}

const fn field_of(side: Side) -> Field {
    match side {
        Side::Staged => STAGED,
        Side::Result => RESULT,
    }
}

/// Of what [`charge`] had too much.
#[cold]
fn too_much(side: Side, count: u32) -> Dimension {
    if u64::from(count) > BUFFERS.largest() { BUFFERS.dimension() } else { field_of(side).dimension() }
}

impl BytesWord {
    /// A word with these limits; bytes are rounded down to 512.
    pub fn new(staged_bytes: u64, result_bytes: u64, buffers: u32) -> BytesWord {
        let rooms = Rooms::new(bytes_limits(staged_bytes, result_bytes, buffers));
        BytesWord { rooms, peaks: Peaks::default() }
    }

    /// Gives a word made with zeros its limits. `false`: it has them already.
    pub fn open(&self, staged_bytes: u64, result_bytes: u64, buffers: u32) -> bool {
        let opened = self.rooms.open(bytes_limits(staged_bytes, result_bytes, buffers));
        self.peaks.limits_rose();
        opened
    }

    /// Takes one block of `size` on a side, and its buffer.
    ///
    /// # Errors
    ///
    /// The dimension that has no room.
    #[inline]
    pub fn reserve(&self, side: Side, size: Units) -> Result<(), Dimension> {
        self.reserve_window(side, 1, size)
    }

    /// Takes `count` blocks of `size` on a side, and their buffers, all or none.
    ///
    /// # Errors
    ///
    /// The dimension that has no room.
    #[inline]
    pub fn reserve_window(&self, side: Side, count: u32, size: Units) -> Result<(), Dimension> {
        let wanted = charge(side, count, size).ok_or_else(|| too_much(side, count))?;
        refusable!(BUFFERS.dimension(), BUFFERS.dimension());
        match self.rooms.step(|word| taken::<BytesLayout>(word, wanted)) {
            Ok(_) => {
                self.peaks.see(&self.rooms);
                Ok(())
            }
            Err(Blocked::Full(dimension)) => Err(dimension),
            Err(Blocked::Closed | Blocked::Stale | Blocked::Promised(_)) => {
                crate::broken::accounting("the flags of the bytes word refuse nothing")
            }
        }
    }

    /// Moves one block of `size` from the staged to the result side, in one step (B2).
    ///
    /// # Errors
    ///
    /// `io.result_bytes`, if the result side has no room; the block stays on the staged side.
    #[inline]
    pub fn retain(&self, size: Units) -> Result<(), Dimension> {
        refusable!(RESULT.dimension(), RESULT.dimension());
        if planted!("staged_given_first") {
            self.rooms.give(STAGED.units(size.number()));
        }
        let limits = self.rooms.limits();
        let moved = self.rooms.step(|word| {
            let left = taken::<BytesLayout>(word, RESULT.units(size.number()))?;
            if planted!("staged_given_first") {
                return Ok(left);
            }
            Ok::<u64, Blocked>(given::<BytesLayout>(left, STAGED.units(size.number()), limits))
        });
        moved.map_err(|_| RESULT.dimension())?;
        self.peaks.see(&self.rooms);
        Ok(())
    }

    /// Moves one block of `size` back from the result to the staged side, in one step (B2), for a block that is kept ready.
    /// `false`: the staged side has no room, and nothing was moved.
    #[inline]
    pub fn unretain(&self, size: Units) -> bool {
        let limits = self.rooms.limits();
        let moved = self.rooms.step(|word| {
            let left = taken::<BytesLayout>(word, STAGED.units(size.number()))?;
            Ok::<u64, Blocked>(given::<BytesLayout>(left, RESULT.units(size.number()), limits))
        });
        let moved = moved.is_ok();
        if moved {
            self.peaks.see(&self.rooms);
        }
        moved
    }

    /// Gives one block back to a side, and its buffer.
    ///
    /// # Panics
    ///
    /// Broken accounting, if it was not taken.
    #[inline]
    pub fn give(&self, side: Side, size: Units) {
        self.give_window(side, 1, size);
    }

    /// Gives `count` blocks back to a side, and their buffers.
    ///
    /// # Panics
    ///
    /// Broken accounting, if they were not taken.
    #[inline]
    pub fn give_window(&self, side: Side, count: u32, size: Units) {
        match charge(side, count, size) {
            Some(units) => {
                self.rooms.give(units);
            }
            None => crate::broken::accounting_in_drop("blocks were given back that no word could have held"),
        }
    }

    /// From now on no operation begins to keep a block ready (B5). Gives what [`tightness`](Self::tightness) is then.
    pub fn tighten(&self) -> Tightness {
        Tightness((self.rooms.set(TIGHT) | TIGHT) & !BytesLayout::COUNTS)
    }

    /// Whether operations may keep blocks ready, and how often it was allowed again.
    pub fn tightness(&self) -> Tightness {
        Tightness(self.rooms.load() & !BytesLayout::COUNTS)
    }

    /// Allows it again where at least half of everything is free. Whether it is allowed.
    pub fn loosen(&self) -> bool {
        let limits = self.rooms.limits();
        let ample = |word| BytesLayout::FIELDS.iter().all(|field| 2 * field.of(word) >= field.of(limits));
        let loosened = self.rooms.step(|word| match word & TIGHT {
            0 => Err(true),
            _ if ample(word) => Ok((word & !TIGHT).wrapping_add(LOOSENED)),
            _ => Err(false),
        });
        loosened.map_or_else(|is_loose| is_loose, |_| true)
    }

    /// The most that was ever used in each dimension. A block that an operation keeps ready counts as used here.
    pub fn peaks(&self) -> impl Iterator<Item = (Dimension, u64)> {
        let size = |dimension| if dimension == BUFFERS.dimension() { 1 } else { SMALLEST_BLOCK };
        self.peaks.each().map(move |(dimension, most)| (dimension, most * size(dimension)))
    }

    /// What is used, all of one instant.
    pub fn snapshot(&self) -> BytesUse {
        let (used, _) = self.rooms.used();
        BytesUse {
            staged_bytes: STAGED.of(used) * SMALLEST_BLOCK,
            result_bytes: RESULT.of(used) * SMALLEST_BLOCK,
            buffers: BUFFERS.count(used),
        }
    }
}

const fn bytes_limits(staged_bytes: u64, result_bytes: u64, buffers: u32) -> u64 {
    STAGED.units(Units::within(staged_bytes).number())
        | RESULT.units(Units::within(result_bytes).number())
        | BUFFERS.units(buffers as u64)
}

/// The room of one tenant for blocks, on whichever side.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct TenantBytesWord {
    rooms: Rooms<TenantBytesLayout>,
}

impl TenantBytesWord {
    /// Gives the word its limit, rounded down to 512. `false`: it has one already.
    pub fn open(&self, bytes: u64) -> bool {
        self.rooms.open(TENANT.units(Units::within(bytes).number()))
    }

    /// Takes the limit away, if nothing is in use.
    pub fn retire(&self) -> bool {
        self.rooms.retire(0)
    }

    /// Takes `count` blocks of `size`.
    ///
    /// # Errors
    ///
    /// `io.tenant_bytes`.
    #[inline]
    pub fn reserve(&self, count: u32, size: Units) -> Result<(), Dimension> {
        let bytes = u64::from(count) * size.number();
        if bytes > TENANT.largest() {
            return Err(TENANT.dimension());
        }
        refusable!(TENANT.dimension(), TENANT.dimension());
        let reserved = self.rooms.step(|word| taken::<TenantBytesLayout>(word, TENANT.units(bytes)));
        reserved.map(drop).map_err(|_| TENANT.dimension())
    }

    /// Gives `count` blocks of `size` back.
    ///
    /// # Panics
    ///
    /// Broken accounting, if they were not taken.
    #[inline]
    pub fn give(&self, count: u32, size: Units) {
        let bytes = u64::from(count) * size.number();
        if bytes > TENANT.largest() {
            return crate::broken::accounting_in_drop("blocks were given back that no word could have held");
        }
        self.rooms.give(TENANT.units(bytes));
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        TENANT.of(self.rooms.used().0) * SMALLEST_BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::small;
    use super::*;

    const LIMIT: u64 = 3;

    fn at(word: u64) -> BytesWord {
        BytesWord { rooms: Rooms::at(word, small::limits::<BytesLayout>(LIMIT)), ..BytesWord::default() }
    }

    fn units(count: u64) -> Units {
        Units::within(count * SMALLEST_BLOCK)
    }

    /// Every reservation, window and retention of every small word, against plain subtraction.
    #[test]
    fn every_step_of_every_small_word() {
        for word in small::words::<BytesLayout>(LIMIT, 0) {
            let (staged, result, buffers) = (STAGED.of(word), RESULT.of(word), BUFFERS.of(word));
            for (count, size) in (0..=LIMIT).flat_map(|count| (1..=LIMIT).map(move |size| (count, size))) {
                let number = u32::try_from(count).unwrap();
                for (side, room, dimension) in [
                    (Side::Staged, staged, Dimension::IoStagedBytes),
                    (Side::Result, result, Dimension::IoResultBytes),
                ] {
                    let bytes = at(word);
                    let expected = if room < count * size {
                        Err(dimension)
                    } else if buffers < count {
                        Err(Dimension::IoBuffers)
                    } else {
                        Ok(())
                    };
                    assert_eq!(bytes.reserve_window(side, number, units(size)), expected);
                    if expected.is_ok() {
                        bytes.give_window(side, number, units(size));
                    }
                    assert_eq!(bytes.rooms.load(), word, "all or none, and all back");
                }
            }
            for size in 1..=LIMIT {
                if staged + size > LIMIT {
                    continue; // No such block is staged.
                }
                let bytes = at(word);
                let expected = if result < size { Err(Dimension::IoResultBytes) } else { Ok(()) };
                assert_eq!(bytes.retain(units(size)), expected);
                let after = if expected.is_ok() {
                    STAGED.units(staged + size) | RESULT.units(result - size) | BUFFERS.units(buffers)
                } else {
                    word
                };
                assert_eq!(bytes.rooms.load(), after);
                if expected.is_ok() {
                    assert!(bytes.unretain(units(size)), "there is the room that it left");
                    assert_eq!(bytes.rooms.load(), word);
                }
            }
        }
    }

    /// Every small word, tight or not: tightening and loosening leave the counts alone, and are told apart.
    #[test]
    fn a_word_is_tightened_at_once_and_loosened_where_half_is_free() {
        for word in small::words::<BytesLayout>(LIMIT, TIGHT | LOOSENED | LOOSENED << 5) {
            let bytes = at(word);
            let before = bytes.tightness();
            assert_eq!(before.is_tight(), word & TIGHT != 0);
            let tight = bytes.tighten();
            assert!(tight.is_tight() && tight == bytes.tightness());
            assert_eq!(small::counts::<BytesLayout>(bytes.rooms.load()), small::counts::<BytesLayout>(word));
            let ample = BytesLayout::FIELDS.iter().all(|field| 2 * field.of(word) >= LIMIT);
            assert_eq!(bytes.loosen(), ample);
            assert_eq!(small::counts::<BytesLayout>(bytes.rooms.load()), small::counts::<BytesLayout>(word));
            assert_eq!(bytes.tightness() == tight, !ample);
            if ample {
                let loose = bytes.tightness();
                assert!(!loose.is_tight() && bytes.loosen() && bytes.tightness() == loose);
                assert_ne!(bytes.tighten(), tight, "tight again is not tight all along");
            }
        }
    }

    #[test]
    fn a_node_at_every_ceiling_counts_to_the_end() {
        let (staged, result) = (Dimension::IoStagedBytes.ceiling(), Dimension::IoResultBytes.ceiling());
        let buffers = u32::try_from(Dimension::IoBuffers.ceiling()).unwrap();
        let bytes = BytesWord::default();
        assert!(bytes.open(staged, result, buffers) && !bytes.open(1_024, 0, 0));
        let largest = Units::of_block(1 << 20);
        for _ in 0..256 {
            bytes.reserve(Side::Staged, largest).unwrap();
        }
        assert_eq!(bytes.reserve(Side::Staged, units(1)), Err(Dimension::IoStagedBytes));
        for _ in 0..256 {
            bytes.retain(largest).unwrap();
        }
        assert_eq!(bytes.retain(largest), Err(Dimension::IoResultBytes));
        let used = bytes.snapshot();
        assert_eq!((used.staged_bytes, used.result_bytes, used.buffers), (0, result, 256));
        for _ in 0..256 {
            bytes.give(Side::Result, largest);
        }
        assert_eq!(bytes.snapshot(), BytesUse::default());
        bytes.reserve_window(Side::Staged, buffers, units(1)).unwrap();
        assert_eq!(bytes.reserve(Side::Staged, units(1)), Err(Dimension::IoBuffers));
        assert_eq!(bytes.reserve_window(Side::Result, u32::MAX, largest), Err(Dimension::IoBuffers));
        // So many buffers there may be, and as many bytes no word can hold; and the other way round.
        assert_eq!(bytes.reserve_window(Side::Result, buffers, largest), Err(Dimension::IoResultBytes));
        let too_many = u32::try_from(BUFFERS.largest() + 1).unwrap();
        assert!(u64::from(too_many) <= RESULT.largest());
        assert_eq!(bytes.reserve_window(Side::Result, too_many, units(1)), Err(Dimension::IoBuffers));
    }

    /// As large as the field, and not larger.
    #[test]
    fn a_tenant_can_hold_all_that_its_field_can() {
        let (tenant, all) = (TenantBytesWord::default(), units(TENANT.largest()));
        assert!(tenant.open(all.bytes()));
        assert_eq!(tenant.reserve(2, units(TENANT.largest() / 2 + 1)), Err(Dimension::IoTenantBytes));
        tenant.reserve(1, all).unwrap();
        assert_eq!(tenant.used(), all.bytes());
        assert_eq!(tenant.reserve(1, units(1)), Err(Dimension::IoTenantBytes));
        tenant.give(1, all);
        assert_eq!(tenant.used(), 0);
    }

    #[test]
    fn limits_round_down_and_blocks_are_whole() {
        let bytes = BytesWord::new(1_023, 512, 2);
        bytes.reserve(Side::Staged, units(1)).unwrap();
        assert_eq!(bytes.reserve(Side::Staged, units(1)), Err(Dimension::IoStagedBytes));
        assert_eq!(Units::of_block(4_096).bytes(), 4_096);
        assert_eq!(Units::within(1_023).bytes(), 512);
    }

    #[test]
    fn a_tenant_holds_at_most_its_share() {
        let tenant = TenantBytesWord::default();
        assert_eq!(tenant.reserve(1, units(1)), Err(Dimension::IoTenantBytes));
        assert!(tenant.open(Dimension::IoTenantBytes.ceiling()));
        tenant.reserve(512, Units::of_block(1 << 20)).unwrap();
        assert_eq!(tenant.reserve(1, units(1)), Err(Dimension::IoTenantBytes));
        assert_eq!(tenant.reserve(u32::MAX, Units::of_block(1 << 20)), Err(Dimension::IoTenantBytes));
        assert_eq!(tenant.used(), Dimension::IoTenantBytes.ceiling());
        assert!(!tenant.retire());
        tenant.give(512, Units::of_block(1 << 20));
        assert_eq!(tenant.used(), 0);
        assert!(tenant.retire());
    }
}
