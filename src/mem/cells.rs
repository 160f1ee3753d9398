//! A fixed number of typed cells, and the set of those that are idle.
//!
//! For the connections of one client: a cell is reserved, filled, parked as idle, taken again, and at last removed. Each
//! of these hands on a [`Cell`], an affine token of 8 bytes.
//!
//! ```text
//!            reserve                 park
//!   free ─────────────▶ token ◀──────────────▶ idle
//!     ▲                   │       take_idle
//!     └───────────────────┘
//!             remove
//! ```
//!
//! * **C1** A cell is in one place: on the free list, in the idle set, in the handed set, in one token, or in the hands of one call in this
//!   file. A free cell is empty.
//! * **C2** A token with the instance number of these `Cells` was made by them (the number is never given out twice), so
//!   its index is in range.
//! * **C3** A cell in a token is touched only through it: shared through `&Cell`, exclusively through `&mut Cell` or by
//!   value. An idle or free one by nobody.
//! * **C4** Parking hands the cell over to whoever takes it (S1 of the bit set), removing it to whoever reserves it (L4 of
//!   the list).
//! * **C5** After [`Cells::close`] has returned, nothing is parked: closing writes CLOSED, then steps on every word of the
//!   idle set; parking steps on one, then reads CLOSED. If parking came first, the closer finds the cell idle. If
//!   closing came first, the parker sees CLOSED and takes its cell back, if nobody else did.
//!
//! A token that is dropped is a lost cell: nothing unsound, but the cell never comes back and what is in it stays until
//! the `Cells` go.

use std::marker::PhantomData;
use std::num::NonZeroU64;

use crate::foreign::foreign;
use crate::mem::bitset::BitSet;
use crate::mem::list::{Links, List};
use crate::sync::atomic::AtomicBool;
use crate::sync::{self, Apart, UnsafeCell, order};

/// The most cells there can be in one [`Cells`].
pub const MOST: usize = 256;

const INDEX_BITS: u32 = 8;

const _: () = assert!(MOST == 1 << INDEX_BITS, "every cell has an index");

/// The right to one cell of [`Cells`] and to what is in it.
///
/// It ends by [`Cells::remove`] or [`Cells::park`]. Dropping it loses the cell.
#[must_use = "a cell that is not parked or removed is lost"]
pub struct Cell<T> {
    place: NonZeroU64,
    of: PhantomData<fn() -> T>,
}

const _: () = assert!(size_of::<Option<Cell<String>>>() == 8);

impl<T> Cell<T> {
    /// The number of the cell among its [`Cells`].
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "masked to 8 bits")]
    pub const fn index(&self) -> u8 {
        (self.place.get() & (MOST as u64 - 1)) as u8
    }
}

impl<T> std::fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cell({})", self.index())
    }
}

/// A fixed number of cells for a `T` each.
pub struct Cells<T> {
    /// Names this value in its tokens; shifted to its place.
    instance: NonZeroU64,
    closed: AtomicBool,
    free: List,
    links: Links,
    idle: BitSet,
    /// Cells on their way from one token to the next: see [`Cells::hand_over`].
    handed: BitSet,
    cells: Box<[Apart<UnsafeCell<Option<T>>>]>,
}

// SAFETY: C3, C4: a `T` is reached by one thread after another. (`get` shares one, and asks for `T: Sync` itself.)
unsafe impl<T: Send> Sync for Cells<T> {}

impl<T> Cells<T> {
    /// What one cell takes. Each lies on lines of its own: neighbours are used by different threads.
    pub const PLACE_BYTES: u64 = size_of::<Apart<UnsafeCell<Option<T>>>>() as u64;

    /// `count` free cells. Allocates; nothing else here does.
    ///
    /// # Panics
    ///
    /// If `count` is above [`MOST`].
    #[must_use]
    pub fn new(count: usize) -> Self {
        assert!(count <= MOST, "{count} cells: the ceiling is {MOST}");
        let instance = sync::unique().checked_mul(1 << INDEX_BITS).and_then(NonZeroU64::new);
        Self {
            instance: instance.expect("2^56 instances: C2 would end with them"),
            closed: AtomicBool::new(false),
            free: List::complete(),
            links: Links::new(count),
            idle: BitSet::new(count),
            handed: BitSet::new(count),
            cells: (0..count).map(|_| Apart(UnsafeCell::new(None))).collect(),
        }
    }

    /// How many cells there are.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// Takes a free cell. None: at one moment there was none.
    #[inline]
    pub fn reserve(&self) -> Option<Cell<T>> {
        self.free.pop(&self.links).map(|index| self.token(index as usize))
    }

    /// Puts `value` into the cell, and gives back what was there before.
    ///
    /// # Panics
    ///
    /// If the cell is not one of these.
    #[inline]
    pub fn put(&self, cell: &mut Cell<T>, value: T) -> Option<T> {
        // SAFETY: C3: the token is borrowed exclusively.
        self.cell(cell).with_mut(|place| unsafe { &mut *place }.replace(value))
    }

    /// What is in the cell.
    ///
    /// # Panics
    ///
    /// If the cell is not one of these, or empty.
    #[must_use]
    #[inline]
    pub fn get_mut<'a>(&'a self, cell: &'a mut Cell<T>) -> &'a mut T {
        // SAFETY: C3: the token is borrowed exclusively for `'a`.
        let place = self.cell(cell).with_mut(|place| unsafe { &mut *place });
        place.as_mut().expect("an empty cell was asked for its value")
    }

    /// What is in the cell, to look at.
    ///
    /// # Panics
    ///
    /// If the cell is not one of these, or empty.
    #[must_use]
    #[inline]
    pub fn get<'a>(&'a self, cell: &'a Cell<T>) -> &'a T
    where
        T: Sync,
    {
        // SAFETY: C3: the token is shared for `'a`, so nobody writes.
        let place = self.cell(cell).with(|place| unsafe { &*place });
        place.as_ref().expect("an empty cell was asked for its value")
    }

    /// Empties the cell, which stays the caller's.
    ///
    /// # Panics
    ///
    /// If the cell is not one of these.
    #[inline]
    pub fn take(&self, cell: &mut Cell<T>) -> Option<T> {
        // SAFETY: C3: the token is borrowed exclusively.
        self.cell(cell).with_mut(|place| unsafe { &mut *place }.take())
    }

    /// Empties the cell and frees it. What was in it is the caller's to drop.
    ///
    /// # Panics
    ///
    /// If the cell is not one of these; it is lost then.
    #[inline]
    pub fn remove(&self, cell: Cell<T>) -> Option<T> {
        // SAFETY: C3: the token was given by value.
        let value = self.cell(&cell).with_mut(|place| unsafe { &mut *place }.take());
        self.free.push(&self.links, u32::from(cell.index()));
        value
    }

    /// Parks the cell with what is in it: from now on anybody may take it.
    ///
    /// # Errors
    ///
    /// The cell, if the `Cells` are closed.
    ///
    /// # Panics
    ///
    /// If the cell is not one of these; it is lost then.
    #[inline]
    pub fn park(&self, cell: Cell<T>) -> Result<(), Cell<T>> {
        self.check(&cell);
        let index = usize::from(cell.index());
        self.idle.set(index);
        // C5: the step above comes first. If the bit is gone, somebody else has the cell.
        if self.closed.load(order::COUNT) && self.idle.clear(index) {
            return Err(self.token(index));
        }
        Ok(())
    }

    /// Takes the idle cell with the lowest index, so that load gathers on few cells and the others age. None: there was no
    /// cell that was idle all along.
    #[inline]
    pub fn take_idle(&self) -> Option<Cell<T>> {
        self.idle.take_lowest().map(|index| self.token(index))
    }

    /// Takes the idle cell with the lowest index at or above `start`, to go through all of them.
    pub fn take_idle_from(&self, start: usize) -> Option<Cell<T>> {
        self.idle.take_from(start).map(|index| self.token(index))
    }

    /// Whether the cell with this index is idle, by a look.
    ///
    /// # Panics
    ///
    /// If there is no such cell.
    #[must_use]
    pub fn is_idle(&self, index: usize) -> bool {
        self.idle.contains(index)
    }

    /// Takes the cell with this index, if it is idle.
    ///
    /// # Panics
    ///
    /// If there is no such cell.
    pub fn take_idle_at(&self, index: usize) -> Option<Cell<T>> {
        self.idle.clear(index).then(|| self.token(index))
    }

    /// How many cells are idle: exact at a quiet point.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.idle.count()
    }

    /// Whether nothing can be parked any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(order::OBSERVE)
    }

    /// Lets nothing be parked from now on (C5). Cells that are idle stay so until they are taken: see
    /// [`Self::take_all_idle`].
    pub fn close(&self) {
        self.closed.store(true, order::PUBLISH);
        self.idle.meet();
    }

    /// Takes every cell that is idle when its turn comes, lowest index first.
    pub fn take_all_idle(&self) -> AllIdle<'_, T> {
        AllIdle { cells: self, word: 0, taken: 0 }
    }

    /// Leaves a cell for somebody who knows its index and will [`receive`](Self::receive) it: the token ends here, and
    /// another one begins there. What is never received is a lost cell.
    pub fn hand_over(&self, cell: Cell<T>) {
        self.check(&cell);
        self.handed.set(usize::from(cell.index()));
    }

    /// Takes a cell that was left by [`hand_over`](Self::hand_over). `None`: none was left at this index, or somebody else
    /// has taken it.
    pub fn receive(&self, index: usize) -> Option<Cell<T>> {
        (index < self.capacity() && self.handed.clear(index)).then(|| self.token(index))
    }

    /// Steps on every word of the idle set: what was parked before is seen afterwards, and who parks afterwards sees what
    /// was written before.
    pub fn meet(&self) {
        if planted!("look_without_a_meeting") {
            return;
        }
        self.idle.meet();
    }

    /// The token of a cell that the caller just took from its place (C1).
    fn token(&self, index: usize) -> Cell<T> {
        Cell { place: self.instance | index as u64, of: PhantomData }
    }

    #[inline]
    fn check(&self, cell: &Cell<T>) {
        assert!(cell.place.get() >> INDEX_BITS == self.instance.get() >> INDEX_BITS, "a cell of other cells");
    }

    #[inline]
    fn cell(&self, cell: &Cell<T>) -> &UnsafeCell<Option<T>> {
        self.check(cell);
        &self.cells[usize::from(cell.index())].0
    }
}

/// Drops what is still in a cell, each even if another one's destructor panics.
impl<T> Drop for Cells<T> {
    fn drop(&mut self) {
        let mut first = None;
        for place in &self.cells {
            // SAFETY: C3: exclusively borrowed, so no token is in use.
            let value = place.0.with_mut(|place| unsafe { &mut *place }.take());
            if let Err(panic) = foreign(|| drop(value)) {
                first.get_or_insert(panic);
            }
        }
        if let Some(panic) = first {
            panic.resume();
        }
    }
}

impl<T> std::fmt::Debug for Cells<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cells")
            .field("cells", &self.capacity())
            .field("idle", &self.idle_count())
            .finish_non_exhaustive()
    }
}

/// The idle cells, taken one word of the set at a time. What is not asked for when it is dropped is idle again.
#[derive(Debug)]
pub struct AllIdle<'a, T> {
    cells: &'a Cells<T>,
    /// The word to take next; `taken` are bits of the one before it.
    word: usize,
    taken: u64,
}

impl<T> Iterator for AllIdle<'_, T> {
    type Item = Cell<T>;

    fn next(&mut self) -> Option<Cell<T>> {
        while self.taken == 0 {
            if self.word == self.cells.idle.words() {
                return None;
            }
            self.taken = self.cells.idle.take_word(self.word);
            self.word += 1;
        }
        let index = (self.word - 1) * 64 + self.taken.trailing_zeros() as usize;
        self.taken &= self.taken - 1;
        Some(self.cells.token(index))
    }
}

impl<T> Drop for AllIdle<'_, T> {
    fn drop(&mut self) {
        while self.taken != 0 {
            self.cells.idle.set((self.word - 1) * 64 + self.taken.trailing_zeros() as usize);
            self.taken &= self.taken - 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;

    fn filled(cells: &Cells<String>, value: &str) -> Cell<String> {
        let mut cell = cells.reserve().expect("a free cell");
        assert_eq!(cells.put(&mut cell, value.to_owned()), None);
        cell
    }

    #[test]
    fn a_cell_goes_round() {
        let cells = Cells::new(2);
        let mut first = filled(&cells, "first");
        let second = filled(&cells, "second");
        assert!(cells.reserve().is_none());
        cells.get_mut(&mut first).push('!');
        assert_eq!((cells.get(&first).as_str(), cells.get(&second).as_str()), ("first!", "second"));
        cells.park(second).expect("not closed");
        cells.park(first).expect("not closed");
        assert_eq!(cells.idle_count(), 2);
        let lowest = cells.take_idle().expect("two are idle");
        assert_eq!((lowest.index(), cells.remove(lowest)), (0, Some("first!".to_owned())));
        let freed = cells.reserve().expect("one was freed");
        assert_eq!((freed.index(), cells.remove(freed)), (0, None));
        assert_eq!(cells.take_idle_from(1).map(|cell| cells.remove(cell)), Some(Some("second".to_owned())));
        assert!(cells.take_idle().is_none());
    }

    #[test]
    fn all_idle_cells_are_taken_and_what_is_not_wanted_is_idle_again() {
        let cells = Cells::new(MOST);
        let tokens: Vec<_> = (0..MOST).map(|number| filled(&cells, &number.to_string())).collect();
        let mut kept = Vec::new();
        for token in tokens {
            if token.index() % 3 == 0 {
                cells.park(token).expect("not closed");
            } else {
                kept.push(token);
            }
        }
        let idle = cells.idle_count();
        let mut all = cells.take_all_idle();
        let first: Vec<_> = all.by_ref().take(5).collect();
        assert_eq!(first.iter().map(Cell::index).collect::<Vec<_>>(), [0, 3, 6, 9, 12]);
        drop(all);
        assert_eq!(cells.idle_count(), idle - 5);
        // The same far behind the first ones.
        let mut all = cells.take_all_idle();
        let more: Vec<_> = all.by_ref().take(idle - 8).collect();
        drop(all);
        assert_eq!(cells.idle_count(), 3);
        for token in cells.take_all_idle().chain(first).chain(more).chain(kept) {
            let index = token.index().to_string();
            assert_eq!(cells.remove(token), Some(index));
        }
        assert_eq!((cells.idle_count(), std::iter::from_fn(|| cells.reserve()).count()), (0, MOST));
    }

    #[test]
    fn nothing_is_parked_after_a_close() {
        let cells = Cells::new(2);
        cells.park(filled(&cells, "idle")).expect("not closed");
        let late = filled(&cells, "late");
        assert!(!cells.is_closed());
        cells.close();
        assert!(cells.is_closed());
        let late = cells.park(late).expect_err("closed");
        assert_eq!(cells.remove(late).as_deref(), Some("late"));
        let values: Vec<_> = cells.take_all_idle().map(|cell| cells.remove(cell)).collect();
        assert_eq!(values, [Some("idle".to_owned())]);
    }

    #[test]
    fn a_cell_is_received_once_by_whom_it_was_left_for() {
        let cells = Cells::new(64);
        for _ in 0..64 {
            cells.park(filled(&cells, "kept")).expect("not closed");
        }
        let last = cells.take_idle_from(63).expect("it is idle");
        cells.hand_over(last);
        for index in [0, 62, 64, 65, 1 << 20] {
            assert!(cells.receive(index).is_none(), "{index} was not left for anybody");
        }
        let received = cells.receive(63).expect("it was left");
        assert!(cells.receive(63).is_none());
        assert_eq!(cells.remove(received).as_deref(), Some("kept"));
    }

    #[test]
    fn a_cell_of_other_cells_is_refused() {
        let (ours, theirs) = (Cells::<u8>::new(1), Cells::<u8>::new(1));
        let mut token = theirs.reserve().expect("a free cell");
        let _ = theirs.put(&mut token, 1);
        let refused = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
        assert!(refused(&mut || assert_eq!(ours.get(&token), &1)));
        assert!(refused(&mut || *ours.get_mut(&mut token) = 2));
        assert!(refused(&mut || drop(ours.park(theirs.token(0)))));
        assert!(refused(&mut || assert_eq!(ours.remove(theirs.token(0)), None)));
        assert_eq!((ours.idle_count(), theirs.remove(token)), (0, Some(1)));
    }

    #[test]
    fn what_is_left_in_the_cells_is_dropped_with_them() {
        struct Item(Arc<()>);
        impl Drop for Item {
            fn drop(&mut self) {
                panic!("told to");
            }
        }
        let (count, cells) = (Arc::new(()), Cells::new(4));
        for _ in 0..3 {
            let mut cell = cells.reserve().expect("a free cell");
            assert!(cells.put(&mut cell, Item(Arc::clone(&count))).is_none());
            assert!(cells.park(cell).is_ok());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| drop(cells))).is_err());
        assert_eq!(Arc::strong_count(&count), 1, "each was dropped though each panicked");
    }

    #[test]
    fn cells_wander_between_threads_and_none_is_lost() {
        let rounds = if cfg!(miri) { 30 } else { 20_000 };
        let cells = Cells::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..rounds {
                        // Three threads and three cells: if none is idle for this one, one is free for it, or will be.
                        let mut cell = loop {
                            if let Some(cell) = cells.take_idle().or_else(|| cells.reserve()) {
                                break cell;
                            }
                            std::thread::yield_now();
                        };
                        let _ = cells.put(&mut cell, Box::new(round));
                        **cells.get_mut(&mut cell) += 1;
                        assert_eq!(**cells.get(&cell), round + 1);
                        if round % 3 == 0 {
                            assert_eq!(cells.remove(cell).as_deref(), Some(&(round + 1)));
                        } else {
                            cells.park(cell).expect("not closed");
                        }
                    }
                });
            }
        });
        let (idle, free) = (cells.take_all_idle().count(), std::iter::from_fn(|| cells.reserve()).count());
        assert_eq!(idle + free, 3);
    }
}
