//! The window of a transfer: places that chunks take and give back, and those who wait for one.
//!
//! ```text
//!  user bits  17            16           15..8        7..0
//!            ┌─────────────┬────────────┬────────────┬────────────┐
//!            │OUTPUT_CLOSED│INPUT_CLOSED│ output out │ input out  │      of the transfer's slot (mem::arena)
//!            └─────────────┴────────────┴────────────┴────────────┘
//!  park cells  0, 1: who waits for an input place     2, 3: for an output place
//! ```
//!
//! Each direction has a fixed number of places, all paid for in advance. Who pays for a place that is given back is
//! decided by the word that the giving step leaves:
//!
//! * X1. Each chunk that is out is one unit of its direction's count and one lease of the slot; both are taken in one
//!   step, which sees a place free.
//! * X2. Before a direction is closed all of its places are the transfer's. The step that closes it leaves the places
//!   that are out, at that value of the word, to their chunks; the others go back at once. A chunk that gives a place back
//!   into a closed direction gives back what it cost, too. So each place goes back once.
//! * X3. A waiter parks by a step that sees no place free, and every step that frees one takes the wakers of its direction.
use crate::foreign::Wakers;
use crate::mem::arena::{Bits, Lease, Occupant};
use crate::mem::park::{ALL, Park, Seat};
use std::task::Waker;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the provider.
    Input,
    /// From the provider.
    Output,
}

/// The most places that one direction can have: its count is 8 bits.
pub const PLACES_MAX: u32 = 255;

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::Input, Direction::Output];

    /// Its place in a pair: 0 or 1.
    pub const fn index(self) -> usize {
        self as usize
    }
    const fn shift(self) -> u32 {
        8 * self as u32
    }
    const fn one(self) -> u64 {
        1 << self.shift()
    }
    const fn closed(self) -> u64 {
        1 << (16 + self as u32)
    }
    const fn cells(self) -> u8 {
        0b11 << (2 * self as u32)
    }
    /// Whether a seat is at one of this direction's cells.
    pub fn has_seat(self, seat: &Seat) -> bool {
        self.cells() & (1 << seat.cell()) != 0
    }
}

/// A reading of the word: pure arithmetic.
#[derive(Clone, Copy, Debug)]
pub struct Window(pub Bits);

impl Window {
    /// Places that are out.
    pub fn out(self, direction: Direction) -> u32 {
        // Masked to 8 bits.
        ((self.0.user() >> direction.shift()) & 0xff) as u32
    }
    /// Whether the direction is closed: what comes back is not the transfer's any more.
    pub fn is_closed(self, direction: Direction) -> bool {
        self.0.has(direction.closed())
    }
    /// Whether one of `places` is free.
    pub fn has_place(self, direction: Direction, places: u32) -> bool {
        self.out(direction) < places
    }
    fn taken(self, direction: Direction, places: u32) -> Option<Bits> {
        self.has_place(direction, places).then(|| self.0.with_user(self.0.user() + direction.one()))
    }
    fn freed(self, direction: Direction) -> Option<Bits> {
        (self.out(direction) > 0).then(|| self.0.with_user(self.0.user() - direction.one()))
    }
    fn closed(self) -> Bits {
        self.0.with(Direction::Input.closed() | Direction::Output.closed())
    }
}

/// A place that came back.
#[derive(Debug)]
#[must_use = "an orphaned place is given back by whoever freed it"]
pub struct Freed {
    /// The direction is closed: the one who freed the place gives back what it cost (X2).
    pub orphaned: bool,
    /// Who waited for it.
    pub wakers: Wakers,
}

/// Takes a place together with a lease of the slot (X1). `Err`: the window is full.
#[inline]
pub fn take<T: Occupant>(lease: &Lease<T>, direction: Direction, places: u32) -> Result<Lease<T>, Bits> {
    lease.duplicate_if(|bits| Window(bits).taken(direction, places))
}

/// Gives a place back (X3). The lease that came with it is the caller's to drop afterwards.
#[inline]
pub fn free<T: Occupant>(lease: &Lease<T>, direction: Direction) -> Freed {
    match lease.word().update_and_wake(|bits| Window(bits).freed(direction), direction.cells()) {
        Ok((_, after, wakers)) => Freed { orphaned: Window(after).is_closed(direction), wakers },
        Err(_) => crate::broken::accounting("a place came back that nobody had taken"),
    }
}

/// Closes both directions. Gives the places of each that are free: they are the caller's to give back (X2).
#[inline]
pub fn close<T: Occupant>(lease: &Lease<T>, places: [u32; 2]) -> ([u32; 2], Wakers) {
    match lease.word().update_and_wake(|bits| Some(Window(bits).closed()), ALL) {
        Ok((before, _, wakers)) => {
            let free = Direction::BOTH.map(|side| places[side.index()] - Window(before).out(side));
            (free, wakers)
        }
        Err(_) => crate::broken::accounting("a window can always be closed"),
    }
}

/// Sits down to wait for a place of the direction. `None`: two others wait for one already.
pub fn sit<T: Occupant>(lease: &Lease<T>, direction: Direction) -> Option<Seat> {
    lease.claim_any(direction.cells())
}

/// Parks until a place is free (X3). `false`: one is free now.
pub fn park<T: Occupant>(
    lease: &Lease<T>,
    seat: &mut Seat,
    direction: Direction,
    places: u32,
    waker: &Waker,
) -> bool {
    lease.park(seat, waker, |bits| !Window(bits).has_place(direction, places)) == Park::Parked
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_word_counts_each_direction_on_its_own() {
        use Direction::{Input, Output};
        assert_eq!((Input.index(), Output.index()), (0, 1));
        assert_eq!((Input.cells(), Output.cells()), (0b0011, 0b1100));
        for (input, output, closed) in
            (0..=255_u64).flat_map(|input| [0, 1, 2, 254, 255].map(|output| (input, output, input % 4)))
        {
            let word = |input: u64, output: u64| {
                Bits::NOTHING.with_user(input | output << 8 | closed << 16)
            };
            let window = Window(word(input, output));
            let out = |direction| u64::from(window.out(direction));
            assert_eq!((out(Input), out(Output)), (input, output));
            assert_eq!((window.is_closed(Input), window.is_closed(Output)), (closed & 1 != 0, closed & 2 != 0));
            for places in [1, 2, 255] {
                assert_eq!(window.has_place(Input, places), input < u64::from(places));
                let one_more = |has: bool, word: Bits| has.then_some(word);
                let taken = one_more(input < u64::from(places), word(input + 1, output));
                assert_eq!(window.taken(Input, places), taken);
                let taken = one_more(output < u64::from(places), word(input, output + 1));
                assert_eq!(window.taken(Output, places), taken);
            }
            assert_eq!(window.freed(Input), input.checked_sub(1).map(|input| word(input, output)));
            assert_eq!(window.freed(Output), output.checked_sub(1).map(|output| word(input, output)));
            let both = Bits::NOTHING.with_user(input | output << 8 | 0b11 << 16);
            assert_eq!(window.closed(), both);
        }
    }
}
