//! Atomics for the models: loom's doubles, whose loads can be made steps.
//!
//! loom finds the orders worth trying by looking, at each access, for the last access that it conflicts with. It keeps
//! one such access per atomic, so a thread that loads before it steps, as every compare-and-swap loop does, hides the
//! other threads' loads from its own step: the order "step first, then their load" is never tried (loom issues 166 and
//! 392). Of
//!
//! ```text
//!   one thread:  word.load()                other thread:  old = word.load(); word.compare_exchange(old, 1)
//! ```
//!
//! it runs one execution, in which the load finds nothing.
//!
//! So each model is searched twice by the harness. Once loads are loads, and may return every value that a weak order
//! allows. Once each load is a read-modify-write that changes nothing, and each store one that forgets what it read
//! (loom does not keep a plain store out from between a step's read and its write, issue 282): they see the newest value
//! only, but no order is missed.

use std::cell::Cell;
use std::sync::atomic::Ordering;

pub use loom::sync::atomic::fence;

thread_local! {
    // loom runs all threads of a model on the thread that started the search.
    static LOADS_ARE_STEPS: Cell<bool> = const { Cell::new(false) };
}

/// Makes every load and store of the searches that this thread starts a read-modify-write, or itself again.
pub fn loads_are_steps(yes: bool) {
    LOADS_ARE_STEPS.set(yes);
}

macro_rules! doubles {
    ($($name:ident($value:ty), nothing $nothing:literal { $($more:ident),* })*) => {
        $(
            /// The double of the atomic of the same name.
            #[derive(Debug, Default)]
            pub struct $name(loom::sync::atomic::$name);

            impl $name {
                /// An atomic that holds `value`.
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                /// A load, or a step that changes nothing.
                #[track_caller]
                pub fn load(&self, order: Ordering) -> $value {
                    if LOADS_ARE_STEPS.get() { self.0.fetch_or($nothing, order) } else { self.0.load(order) }
                }

                /// A store, or a step that forgets what it read.
                #[track_caller]
                pub fn store(&self, value: $value, order: Ordering) {
                    if LOADS_ARE_STEPS.get() {
                        self.0.swap(value, order);
                    } else {
                        self.0.store(value, order);
                    }
                }

                /// As on the real one.
                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    old: $value,
                    new: $value,
                    step: Ordering,
                    lost: Ordering,
                ) -> Result<$value, $value> {
                    self.0.compare_exchange(old, new, step, lost)
                }

                /// As on the real one; it never fails without cause.
                #[track_caller]
                pub fn compare_exchange_weak(
                    &self,
                    old: $value,
                    new: $value,
                    step: Ordering,
                    lost: Ordering,
                ) -> Result<$value, $value> {
                    self.0.compare_exchange(old, new, step, lost)
                }

                $(
                    /// As on the real one.
                    #[track_caller]
                    pub fn $more(&self, value: $value, order: Ordering) -> $value {
                        self.0.$more(value, order)
                    }
                )*
            }
        )*
    };
}

doubles! {
    AtomicBool(bool), nothing false { swap, fetch_and, fetch_or, fetch_xor }
    AtomicU8(u8), nothing 0 { swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min }
    AtomicU16(u16), nothing 0 { swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min }
    AtomicU32(u32), nothing 0 { swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min }
    AtomicU64(u64), nothing 0 { swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min }
    AtomicUsize(usize), nothing 0 { swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min }
}
