//! What the integration tests share. Each test binary uses a part of it.
//!
//! * [`alloc`]: a global allocator that counts, over all threads.
//! * [`hot`]: what a request does on the hot path.
//! * [`poll`]: polling by hand, dropping at the k-th poll, wakers that count, call back or panic.
//! * [`process`]: what the kernel says of a process: memory, threads, context switches, descriptors.
//! * [`secret`]: a global allocator that looks whether secrets were wiped before they are freed.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of the shared helpers")]

pub mod alloc;
pub mod hot;
pub mod poll;
pub mod process;
pub mod secret;
