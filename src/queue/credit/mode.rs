//! The word of credits: lent, recalled, swept. Pure functions; the picture is in [`super`].

pub(super) const OFF: u64 = 1;
pub(super) const COVERED: u64 = 2;
pub(super) const ONE_KEEPER: u64 = 1 << 2;
pub(super) const KEEPERS: u64 = 0xFFF << 2;
pub(super) const ONE_SWEEPER: u64 = 1 << 14;
pub(super) const SWEEPERS: u64 = 0xFFF << 14;
pub(super) const ONE_ROUND: u64 = 1 << 26;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode(pub(super) u64);

impl Mode {
    pub(super) const fn lends(self) -> bool {
        self.0 & OFF == 0
    }
    pub(super) const fn is_covered(self) -> bool {
        self.0 & COVERED != 0
    }
    /// Nothing lies in cells, and nothing that did is in anybody's hands.
    pub(super) const fn is_swept(self) -> bool {
        self.is_covered() && self.0 & SWEEPERS == 0
    }
    pub(super) const fn round(self) -> u64 {
        self.0 / ONE_ROUND
    }
    pub(super) const fn kept(self) -> Mode {
        Mode((self.0 | OFF) + ONE_KEEPER)
    }
    /// With one who sweeps all, unless that is done.
    pub(super) const fn swept_by_one(self) -> Option<Mode> {
        if self.is_covered() { None } else { Some(Mode((self.0 | OFF) + ONE_SWEEPER)) }
    }
    /// With one who sweeps a cell, unless what lies there may lie there.
    pub(super) const fn looked_at_by_one(self) -> Option<Mode> {
        if self.lends() { None } else { Some(Mode(self.0 + ONE_SWEEPER)) }
    }
    /// Without one who swept. `all`: every cell.
    pub(super) const fn left_by_one(self, all: bool) -> Mode {
        Mode((self.0 - ONE_SWEEPER) | if all { COVERED } else { 0 })
    }
    /// The next round, if nobody keeps this one. Rounds are told apart, not counted: the number may come round.
    pub(super) const fn lent_again(self) -> Option<Mode> {
        let at_rest = self.is_swept() && self.0 & KEEPERS == 0;
        if at_rest { Some(Mode((self.0 & !(OFF | COVERED)).wrapping_add(ONE_ROUND))) } else { None }
    }
}
