//! Fields of a room word, and all of them compared at once.

use super::super::dimension::Dimension;
use super::super::scope::Blocked;
#[cfg(test)]
use super::decided;
use crate::broken;

/// One count inside a word.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    shift: u32,
    bits: u32,
    dimension: Dimension,
}

impl Field {
    /// The field of `bits` bits above the lowest `shift` ones. It must hold twice the ceiling less one, so that a unit
    /// given twice is seen before it carries into the next field.
    pub const fn new(shift: u32, bits: u32, dimension: Dimension) -> Field {
        assert!(shift + bits <= 64);
        Field { shift, bits, dimension }
    }

    /// What the field counts.
    pub const fn dimension(self) -> Dimension {
        self.dimension
    }

    /// The largest number that the field can hold.
    #[inline]
    pub const fn largest(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// All bits of the field.
    #[inline]
    pub const fn mask(self) -> u64 {
        self.largest() << self.shift
    }

    /// The number in this field of `word`.
    #[inline]
    pub const fn of(self, word: u64) -> u64 {
        (word >> self.shift) & self.largest()
    }

    /// The number in this field of `word`, as a count. For fields of at most 32 bits.
    #[inline]
    pub const fn count(self, word: u64) -> u32 {
        assert!(self.bits <= 32);
        self.of(word) as u32
    }

    /// `count` units of this field, ready to be added to a word.
    #[inline]
    pub const fn units(self, count: u64) -> u64 {
        assert!(count <= self.largest(), "a count that its field cannot hold");
        count << self.shift
    }
}

/// Where the counts of a word lie.
pub trait Layout: 'static {
    /// The fields, from the lowest bits up. They do not overlap.
    const FIELDS: &'static [Field];

    /// All bits of all fields; the others are flags.
    const COUNTS: u64 = every(Self::FIELDS, false);

    /// The highest bit of each field.
    const TOPS: u64 = every(Self::FIELDS, true);
}

const fn every(fields: &[Field], top: bool) -> u64 {
    let (mut mask, mut index) = (0, 0);
    while index < fields.len() {
        let field = fields[index].mask();
        assert!(mask & field == 0, "fields overlap");
        mask |= if top { field & !(field >> 1) } else { field };
        index += 1;
    }
    mask
}

// All fields of a word are compared at once. A subtraction of whole words borrows out of the highest bit of a field
// exactly if that field, or one that borrowed into it, holds too little; so no field lacks anything if no highest bit
// borrows. Addition and carries likewise. A result that did borrow or carry is looked at and thrown away.

/// Whether some field of `have` is below that of `want`.
#[inline]
pub(super) const fn below<L: Layout>(have: u64, want: u64) -> bool {
    let difference = have.wrapping_sub(want);
    let borrows = (!have & want) | ((!have | want) & difference);
    borrows & L::TOPS != 0
}

/// `word` with `units` taken out of its rooms, or the first dimension that has too little.
#[inline]
pub fn taken<L: Layout>(word: u64, units: u64) -> Result<u64, Blocked> {
    if below::<L>(word, units) { Err(Blocked::Full(lacking::<L>(word, units))) } else { Ok(word - units) }
}

/// The dimension of the first field of `word` that is below that of `units`, which exists.
#[cold]
fn lacking<L: Layout>(word: u64, units: u64) -> Dimension {
    match L::FIELDS.iter().find(|field| field.of(word) < field.of(units)) {
        Some(field) => {
            #[cfg(test)]
            decided::note(field.dimension, word, units);
            field.dimension
        }
        None => broken::accounting("a borrow in a room word without a field that lacks"),
    }
}

/// Whether every room of `word`, with `units` given back, is within `limits`.
#[inline]
pub(super) const fn within<L: Layout>(word: u64, units: u64, limits: u64) -> bool {
    let rooms = word & L::COUNTS;
    let sum = rooms.wrapping_add(units);
    let carries = (rooms & units) | ((rooms | units) & !sum);
    carries & L::TOPS == 0 && !below::<L>(limits, sum)
}

/// Whether giving `units` back to `word` stays within `limits` in the fields that get some (R3).
///
/// The others are compared too, because that is cheaper; only if one of them seems to be above is each field looked at by
/// itself. It may have been opened between the load of the limits and the step (R4).
#[inline]
pub fn fits<L: Layout>(word: u64, units: u64, limits: u64) -> bool {
    within::<L>(word, units, limits) || each_fits::<L>(word, units, limits)
}

#[cold]
pub(super) fn each_fits<L: Layout>(word: u64, units: u64, limits: u64) -> bool {
    let mut touched = L::FIELDS.iter().filter(|field| field.of(units) > 0);
    touched.all(|field| field.of(word) + field.of(units) <= field.of(limits))
}

/// `word` with `units` given back to its rooms, for a step that gives and takes at once. `limits` were loaded before
/// `word` was (R3).
///
/// # Panics
///
/// Broken accounting, if the units were not taken.
#[inline]
pub fn given<L: Layout>(word: u64, units: u64, limits: u64) -> u64 {
    if !fits::<L>(word, units, limits) {
        broken::accounting("more was given back to a room word than was taken from it");
    }
    word + units
}
