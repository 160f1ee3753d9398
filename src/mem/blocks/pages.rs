//! One region of zero pages.
//!
//! * **Z1** `base` points to `length` bytes that stay mapped and writable until the region is dropped, and to which
//!   nothing else in the program holds a pointer.
//! * **Z2** The bytes are zero at first, and again after [`Pages::give_back`].

#[cfg(any(loom, miri))]
pub(super) use boxed::Pages;
#[cfg(not(any(loom, miri)))]
pub(super) use mapped::Pages;

/// Anonymous memory of the system: address space until touched, and pages can go back.
#[cfg(not(any(loom, miri)))]
mod mapped {
    use std::io;
    use std::ptr::NonNull;

    use memmap2::{Advice, MmapMut, MmapOptions, UncheckedAdvice};

    pub(in super::super) struct Pages {
        base: NonNull<u8>,
        length: usize,
        map: MmapMut,
    }

    // SAFETY: Z1: the pointer is the only one to memory that belongs to `map`, which is Send. Who may touch the bytes is
    // decided by the caller of the unsafe methods.
    unsafe impl Send for Pages {}
    // SAFETY: Z1: a shared region gives access through unsafe methods only.
    unsafe impl Sync for Pages {}

    impl Pages {
        /// Maps `length` bytes.
        pub(in super::super) fn new(length: usize) -> io::Result<Self> {
            let mut map = MmapOptions::new().len(length).no_reserve_swap().map_anon()?;
            // A huge page would commit 2 MiB for the first touched block. A kernel that knows no huge pages refuses the
            // advice and needs none.
            let _without_huge_pages = map.advise(Advice::NoHugePage);
            let base = NonNull::from(&mut map[..]).cast();
            Ok(Self { base, length, map })
        }

        /// Whether blocks of `size` bytes can go back to the system: whole pages only.
        pub(in super::super) fn can_give_back(size: usize) -> bool {
            size.is_multiple_of(rustix::param::page_size())
        }

        /// Gives the pages of a range back to the system; they read as zeros from now on (Z2).
        ///
        /// # Safety
        ///
        /// The range is made of whole pages inside the region, and nobody else reads or writes it meanwhile.
        pub(in super::super) unsafe fn give_back(&self, start: usize, length: usize) -> io::Result<()> {
            self.check(start, length);
            // SAFETY: Z2: on private anonymous memory the advice turns whole pages into zeros, which are valid bytes, and
            // by the contract of this function nobody looks.
            unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, length) }
        }

        pub(super) fn base(&self) -> NonNull<u8> {
            self.base
        }

        /// How long the region is.
        #[cfg(all(test, target_os = "linux"))]
        pub(in super::super) fn length(&self) -> usize {
            self.length
        }

        pub(super) fn check(&self, start: usize, length: usize) {
            assert!(start <= self.length && length <= self.length - start, "a range outside of its region");
        }
    }
}

/// A box on the heap, for loom and Miri, which know no mappings.
#[cfg(any(loom, miri))]
mod boxed {
    use std::io;
    use std::ptr::NonNull;

    pub(in super::super) struct Pages {
        base: NonNull<u8>,
        length: usize,
    }

    // SAFETY: Z1: the pointer is the only one to a box that is owned by this value. Who may touch the bytes is decided by
    // the caller of the unsafe methods.
    unsafe impl Send for Pages {}
    // SAFETY: Z1: a shared region gives access through unsafe methods only.
    unsafe impl Sync for Pages {}

    impl Pages {
        #[allow(clippy::unnecessary_wraps, reason = "a mapping can fail")]
        pub(in super::super) fn new(length: usize) -> io::Result<Self> {
            let bytes = Box::leak(vec![0_u8; length].into_boxed_slice());
            Ok(Self { base: NonNull::from(bytes).cast(), length })
        }

        pub(in super::super) fn can_give_back(size: usize) -> bool {
            size >= 4_096
        }

        /// Blocks are zero already when they are given back, and a box keeps its pages.
        ///
        /// # Safety
        ///
        /// As for a mapping: nobody else reads or writes the range meanwhile.
        #[allow(clippy::unnecessary_wraps, reason = "a mapping can fail")]
        pub(in super::super) unsafe fn give_back(&self, start: usize, length: usize) -> io::Result<()> {
            self.check(start, length);
            Ok(())
        }

        pub(super) fn base(&self) -> NonNull<u8> {
            self.base
        }

        pub(super) fn check(&self, start: usize, length: usize) {
            assert!(start <= self.length && length <= self.length - start, "a range outside of its region");
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            let bytes = NonNull::slice_from_raw_parts(self.base, self.length);
            // SAFETY: Z1: made by `Box::leak` in `new` with this length, and freed only here.
            drop(unsafe { Box::from_raw(bytes.as_ptr()) });
        }
    }
}

impl Pages {
    /// The bytes of a range.
    ///
    /// # Panics
    ///
    /// If the range is not inside the region.
    ///
    /// # Safety
    ///
    /// Nobody writes the range while the slice lives.
    pub(super) unsafe fn bytes(&self, start: usize, length: usize) -> &[u8] {
        self.check(start, length);
        // SAFETY: Z1: `start` is inside the region by the check above.
        let first = unsafe { self.base().add(start) };
        // SAFETY: Z1: initialised bytes inside the region, borrowed from it; unwritten by the contract of this function.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), length) }
    }

    /// The bytes of a range, for writing.
    ///
    /// # Panics
    ///
    /// If the range is not inside the region.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the range while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the contract of this function")]
    pub(super) unsafe fn bytes_mut(&self, start: usize, length: usize) -> &mut [u8] {
        self.check(start, length);
        // SAFETY: Z1: `start` is inside the region by the check above.
        let first = unsafe { self.base().add(start) };
        // SAFETY: Z1: initialised bytes inside the region, borrowed from it; exclusive by the contract of this function.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), length) }
    }

    /// Where the region begins, to find it in the system's own account of memory.
    #[cfg(all(test, target_os = "linux", not(any(loom, miri))))]
    pub(super) fn address(&self) -> usize {
        self.base().addr().get()
    }
}
