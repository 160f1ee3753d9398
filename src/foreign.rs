//! Foreign code: wakers, destructors of resources, providers. It may panic and it may call back into the library, so it
//! runs outside every step, and only through here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// A caught panic of foreign code. It is carried on by [`Panic::resume`]; dropping it loses it.
#[must_use = "a caught panic is carried on once our own steps are done"]
pub struct Panic(Box<dyn Any + Send>);

impl Panic {
    /// Carries the panic on, unless the thread is panicking already.
    ///
    /// # Panics
    ///
    /// With the payload that was caught.
    pub fn resume(self) {
        if !std::thread::panicking() {
            resume_unwind(self.0);
        }
    }

    /// The payload, for a report.
    #[must_use]
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.0
    }
}

impl std::fmt::Debug for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Panic")
    }
}

/// Runs foreign code.
///
/// # Errors
///
/// The panic of `f`, to be resumed by the caller when its own steps are done.
pub fn foreign<R>(f: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(f)).map_err(Panic)
}

/// The first of several panics of foreign code, kept until our own steps are done.
#[must_use = "a caught panic is carried on once our own steps are done"]
#[derive(Debug, Default)]
pub struct Panics(Option<Panic>);

impl Panics {
    /// None so far.
    pub const fn none() -> Self {
        Panics(None)
    }

    /// Runs foreign code and keeps its panic.
    pub fn run(&mut self, f: impl FnOnce()) {
        if let Err(panic) = foreign(f) {
            self.0.get_or_insert(panic);
        }
    }

    /// Takes over what `other` kept.
    pub fn add(&mut self, other: Panics) {
        if let Some(panic) = other.0 {
            self.0.get_or_insert(panic);
        }
    }

    /// Whether there was one.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Carries the first one on, unless the thread is panicking already.
    ///
    /// # Panics
    ///
    /// With the payload that was caught first.
    pub fn resume(self) {
        if let Some(panic) = self.0 {
            panic.resume();
        }
    }
}

/// Wakers taken by steps, to be woken when no step is under way. Of fixed size: it never allocates.
///
/// Dropping a batch wakes it too, so that no panic between a step and its wake can lose one.
#[must_use = "whoever was parked here sleeps until the batch is woken"]
#[derive(Debug)]
pub struct WakeBatch<const N: usize = 16> {
    wakers: [Option<Waker>; N],
    length: usize,
}

/// The wakers of one slot: at most one for each of its four cells.
pub type Wakers = WakeBatch<4>;

impl<const N: usize> WakeBatch<N> {
    /// An empty batch.
    pub const fn new() -> Self {
        Self { wakers: [const { None }; N], length: 0 }
    }

    /// An empty batch: nobody to wake.
    pub const fn none() -> Self {
        Self::new()
    }

    /// How many wakers are in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether `more` further wakers fit.
    #[must_use]
    pub const fn has_room(&self, more: usize) -> bool {
        more <= N - self.length
    }

    /// Adds one. True: the batch is full now, and must be woken before the next push.
    ///
    /// # Panics
    ///
    /// If it was full already: the caller's bound is wrong.
    pub fn push(&mut self, waker: Waker) -> bool {
        let Some(place) = self.wakers.get_mut(self.length) else {
            crate::broken::accounting("a batch of wakers overflowed");
        };
        *place = Some(waker);
        self.length += 1;
        self.length == N
    }

    /// Moves all of `other` into this batch; there must be room for them (see [`Self::has_room`]).
    pub fn append<const M: usize>(&mut self, other: &mut WakeBatch<M>) {
        let length = std::mem::take(&mut other.length);
        for waker in other.wakers.iter_mut().take(length).filter_map(Option::take) {
            self.push(waker);
        }
    }

    /// Wakes all, in the order in which they came, and empties the batch. Each gets its wake even if another panics;
    /// the first panic is carried on at the end unless the thread is panicking already.
    pub fn wake_all(&mut self) {
        let length = std::mem::take(&mut self.length);
        let mut first: Option<Panic> = None;
        for place in self.wakers.iter_mut().take(length) {
            if let Some(waker) = place.take()
                && let Err(panic) = foreign(|| waker.wake())
            {
                first.get_or_insert(panic);
            }
        }
        if let Some(panic) = first {
            panic.resume();
        }
    }
}

impl<const N: usize> Default for WakeBatch<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Drop for WakeBatch<N> {
    fn drop(&mut self) {
        if self.length > 0 {
            self.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Counter {
        woken: AtomicUsize,
        panics: bool,
    }

    impl Counter {
        fn new(panics: bool) -> Arc<Self> {
            Arc::new(Self { woken: AtomicUsize::new(0), panics })
        }

        fn woken(&self) -> usize {
            self.woken.load(Ordering::Relaxed)
        }
    }

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "told to panic");
        }
    }

    #[test]
    fn every_waker_is_woken_though_one_panics() {
        let (bad, good) = (Counter::new(true), Counter::new(false));
        let mut batch = WakeBatch::<4>::new();
        assert!(!batch.push(bad.clone().into()));
        assert!(!batch.push(good.clone().into()));
        assert!(!batch.push(bad.clone().into()));
        assert!(batch.push(good.clone().into()));
        let panic = foreign(|| batch.wake_all()).expect_err("the first panic is carried on");
        assert_eq!(panic.into_payload().downcast_ref::<&str>(), Some(&"told to panic"));
        assert_eq!((bad.woken(), good.woken()), (2, 2));
        assert!(batch.is_empty());
    }

    #[test]
    fn dropping_a_batch_wakes_it() {
        let counter = Counter::new(false);
        let mut batch = Wakers::new();
        batch.push(counter.clone().into());
        drop(batch);
        assert_eq!(counter.woken(), 1);
    }

    #[test]
    fn appending_moves_every_waker() {
        let counter = Counter::new(false);
        let mut small = Wakers::new();
        small.push(counter.clone().into());
        small.push(counter.clone().into());
        let mut large = WakeBatch::<16>::new();
        large.append(&mut small);
        assert!(small.is_empty() && large.len() == 2 && large.has_room(14) && !large.has_room(15));
        large.wake_all();
        assert_eq!(counter.woken(), 2);
    }
}
