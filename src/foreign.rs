//! Foreign code: wakers, destructors of resources, providers. It may panic and it may call back into the library, so it
//! runs outside every step, and only through here.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// A caught panic of foreign code. It is carried on by [`Panic::resume`]; dropping it loses it.
///
/// What a panic carries is foreign too, so it is destroyed through here as well: a payload that panics when it is dropped
/// interrupts nobody's steps.
#[must_use = "a caught panic is carried on once our own steps are done"]
pub struct Panic(Option<Box<dyn Any + Send>>);

impl Panic {
    /// Carries the panic on, unless the thread is panicking already.
    ///
    /// # Panics
    ///
    /// With the payload that was caught.
    pub fn resume(mut self) {
        if !std::thread::panicking()
            && let Some(payload) = self.0.take()
        {
            resume_unwind(payload);
        }
    }

    /// The payload, for a report.
    #[must_use]
    pub fn into_payload(mut self) -> Box<dyn Any + Send> {
        // It is there: nobody takes it but this, `resume` and the drop, and each of them is the last.
        self.0.take().unwrap_or_else(|| Box::new(()))
    }
}

impl Drop for Panic {
    fn drop(&mut self) {
        let mut carried = self.0.take();
        for _ in 0..8 {
            let Some(payload) = carried else { return };
            carried = catch_unwind(AssertUnwindSafe(|| drop(payload))).err();
        }
        // What still panics after so many of them is not dropped: there may be no end to it.
        std::mem::forget(carried);
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
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Panic(Some(payload)))
}

/// The first of several panics of foreign code, kept until our own steps are done.
#[must_use = "a caught panic is carried on once our own steps are done"]
#[derive(Debug, Default)]
pub struct Panics {
    first: Option<Panic>,
    count: u64,
}

impl Panics {
    /// None so far.
    pub const fn none() -> Self {
        Panics { first: None, count: 0 }
    }

    /// Runs foreign code and keeps its panic.
    pub fn run(&mut self, f: impl FnOnce()) {
        if let Err(panic) = foreign(f) {
            self.first.get_or_insert(panic);
            self.count += 1;
        }
    }

    /// Takes over what `other` kept.
    pub fn add(&mut self, other: Panics) {
        if let Some(panic) = other.first {
            self.first.get_or_insert(panic);
        }
        self.count += other.count;
    }

    /// Whether there was one.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.first.is_some()
    }

    /// How many there were.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Carries the first one on, unless the thread is panicking already.
    ///
    /// # Panics
    ///
    /// With the payload that was caught first.
    pub fn resume(self) {
        if let Some(panic) = self.first {
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
    /// Empty whenever the batch is dropped, so that none of its places has to be looked at.
    wakers: ManuallyDrop<[Option<Waker>; N]>,
    length: usize,
}

/// The wakers of one slot: at most one for each of its four cells.
pub type Wakers = WakeBatch<4>;

impl<const N: usize> WakeBatch<N> {
    /// An empty batch.
    pub const fn new() -> Self {
        Self { wakers: ManuallyDrop::new([const { None }; N]), length: 0 }
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

    /// Panics when it is dropped, with one of its kind, and so on.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb);
        }
    }

    /// A waker that panics with one.
    struct Explodes;

    impl Wake for Explodes {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(Bomb);
        }
    }

    #[test]
    fn a_payload_that_panics_interrupts_nobody() {
        let counter = Counter::new(false);
        let mut batch = WakeBatch::<4>::new();
        for waker in [Arc::new(Explodes).into(), Arc::new(Explodes).into(), counter.clone().into()] {
            batch.push(waker);
        }
        // Of two bombs one is carried on, to be lost by whoever caught it.
        drop(foreign(|| batch.wake_all()).expect_err("the first panic is carried on"));
        assert_eq!(counter.woken(), 1, "the second panic is lost, not the wake behind it");
        let (mut panics, mut done) = (Panics::none(), 0);
        for _ in 0..3 {
            panics.run(|| std::panic::panic_any(Bomb));
            done += 1;
        }
        let mut more = Panics::none();
        more.run(|| std::panic::panic_any(Bomb));
        panics.add(more);
        assert!(panics.any() && done == 3);
        drop(panics);
        // A thread that panics already carries nothing on, and must not panic anew.
        let outer = foreign(|| {
            struct Loses(Option<Panic>);
            impl Drop for Loses {
                fn drop(&mut self) {
                    if let Some(panic) = self.0.take() {
                        panic.resume();
                    }
                }
            }
            let _loses = Loses(foreign(|| std::panic::panic_any(Bomb)).err());
            panic!("the first panic");
        });
        let text =
            outer.map_err(|panic| panic.into_payload().downcast_ref::<&str>().map(|text| (*text).to_owned()));
        assert_eq!(text, Err(Some("the first panic".to_owned())));
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
