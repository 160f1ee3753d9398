//! What lies in a cell beside its slots. Pure functions.
use crate::account::charge::Request;

/// Charges know no epochs: what one leaves serves another.
pub(super) const ANY_TAG: u32 = u32::MAX;

/// What lies in a cell beside its slots, in the 24 bits of its label. Each slot comes with its request.
///
/// ```text
///  23      22 21      20 19        12 11         0
/// ┌──────────┬──────────┬────────────┬────────────┐
/// │ pending 2│ running 2│ provider 8 │ tenant 12  │
/// └──────────┴──────────┴────────────┴────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label(pub(super) u32);

const _: () = assert!(Request::PAIR == Label::RUNNING - 1, "the counts stand above the pair");

impl Label {
    pub(super) const PAIR: u32 = Request::PAIR;
    pub(super) const RUNNING: u32 = 1 << 20;
    pub(super) const PENDING: u32 = 1 << 22;

    pub(super) const fn of(request: Request) -> Label {
        Label(request.pair())
    }
    pub(super) const fn running(self) -> u32 {
        self.0 >> 20 & 0b11
    }
    pub(super) const fn pending(self) -> u32 {
        self.0 >> 22
    }
    pub(super) const fn is_of(self, pair: Label) -> bool {
        (self.0 ^ pair.0) & Self::PAIR == 0
    }
    pub(super) const fn request(self) -> Request {
        Request::new((self.0 & 0xFFF) as u16, (self.0 >> 12 & 0xFF) as u16, ANY_TAG)
    }
    /// Less what an operation needs that is granted, or staged, at once.
    pub(super) const fn taken(self, pair: Label, now: bool) -> Option<Label> {
        let (has, unit) = if now { (self.running(), Self::RUNNING) } else { (self.pending(), Self::PENDING) };
        if self.is_of(pair) && has > 0 { Some(Label(self.0 - unit)) } else { None }
    }
    /// A running unit for a pending one.
    pub(super) const fn traded(self, pair: Label) -> Option<Label> {
        let can = self.is_of(pair) && self.running() > 0 && self.pending() < 3;
        if can { Some(Label(self.0 - Self::RUNNING + Self::PENDING)) } else { None }
    }
    /// With the running unit of an operation that ended. A cell in which nothing lies is anybody's.
    pub(super) const fn left(self, pair: Label, kept: u32) -> Option<Label> {
        if self.is_of(pair) {
            return if self.running() < 3 { Some(Label(self.0 + Self::RUNNING)) } else { None };
        }
        let is_empty = kept == 0 && self.0 & !Self::PAIR == 0;
        if is_empty { Some(Label(pair.0 | Self::RUNNING)) } else { None }
    }
}
