//! Refusals at will, and a clock that panics at will: what the trials in `broker::pools::conformance::trials` need of the
//! library itself.
//!
//! `refusable!(dimension, refusal)` stands where a reservation begins that may find no room, and `clock_door!()` where the
//! clock is read. In a build for tests they count, and the one that the trial named is refused, or panics. In every other
//! build they are nothing at all.
//!
//! What the turn of a line takes for those who wait is no reservation: whoever is found without room there is marked and
//! waits, and nobody is refused. Where the clock is read inside of a turn, and where a connection is parked, it is no door.

#[cfg(not(test))]
macro_rules! refusable {
    ($dimension:expr, $refusal:expr) => {};
}

#[cfg(test)]
macro_rules! refusable {
    ($dimension:expr, $refusal:expr) => {
        if $crate::refuse::this($dimension) {
            return Err($refusal);
        }
    };
}

#[cfg(not(test))]
macro_rules! clock_door {
    () => {};
}

#[cfg(test)]
macro_rules! clock_door {
    () => {
        $crate::refuse::clock_is_read()
    };
}

#[cfg(test)]
pub(crate) use of_tests::*;

/// All of it is of one thread: a trial runs on the thread of its test.
#[cfg(test)]
mod of_tests {
    use crate::account::dimension::Dimension;
    use std::cell::{Cell, RefCell};

    /// What is to happen: numbers from 1, in the order in which this thread comes by.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Orders {
        /// Reservations that are refused.
        pub(crate) refuse: Vec<u32>,
        /// The reading of the clock that panics.
        pub(crate) clock: Option<u32>,
    }

    /// What happened.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Counted {
        pub(crate) reservations: u32,
        pub(crate) clock_reads: u32,
        /// The dimensions of what was refused. None: a dimension that the place does not know.
        pub(crate) refused: Vec<Option<Dimension>>,
        pub(crate) clock_fired: bool,
    }

    thread_local! {
        static COUNTING: Cell<bool> = const { Cell::new(false) };
        static ORDERS: RefCell<Orders> = RefCell::default();
        static COUNTED: RefCell<Counted> = RefCell::default();
    }

    /// Forgets what was counted.
    pub(crate) fn begin(orders: Orders) {
        ORDERS.set(orders);
        COUNTED.take();
    }

    /// What was counted since [`begin`]; nothing is refused any more.
    pub(crate) fn end() -> Counted {
        ORDERS.take();
        COUNTED.take()
    }

    /// Counts again, or not, as before.
    pub(crate) struct Back(bool);

    impl Drop for Back {
        fn drop(&mut self) {
            COUNTING.set(self.0);
        }
    }

    /// Counts what `f` does; what others do in between is not counted.
    pub(crate) fn counting<R>(f: impl FnOnce() -> R) -> R {
        let _back = Back(COUNTING.replace(true));
        f()
    }

    /// Counts nothing while what it gives is there.
    pub(crate) fn shut() -> Back {
        Back(COUNTING.replace(false))
    }

    /// Whether this reservation is the one to be refused.
    pub(crate) fn this(dimension: impl Into<Option<Dimension>>) -> bool {
        if !COUNTING.get() {
            return false;
        }
        COUNTED.with_borrow_mut(|counted| {
            counted.reservations += 1;
            let refused = ORDERS.with_borrow(|orders| orders.refuse.contains(&counted.reservations));
            if refused {
                counted.refused.push(dimension.into());
            }
            refused
        })
    }

    /// The clock is read.
    pub(crate) fn clock_is_read() {
        if !COUNTING.get() {
            return;
        }
        let fires = COUNTED.with_borrow_mut(|counted| {
            counted.clock_reads += 1;
            let fires = ORDERS.with_borrow(|orders| orders.clock == Some(counted.clock_reads));
            counted.clock_fired |= fires && !std::thread::panicking();
            fires
        });
        assert!(!fires || std::thread::panicking(), "planted: the clock");
    }
}
