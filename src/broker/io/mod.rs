//! Bounded asynchronous host I/O: the shared ownership of everything that a call holds.
//!
//! One [`IoRuntime`] stands on a broker. It makes no executor, thread, socket or worker; it decides who may run,
//! counts bytes, buffers and streams, and gives everything back exactly once, when the last owner of it is really gone.
//!
//! ```text
//!   admit ──▶ IoAdmission ──wait──▶ IoReady ──start(ProviderCall)──▶ IoCall
//!                 │ input                                             │ buffer, stream, transfer, wait_for
//!                 ▼                                                   ▼
//!              IoBuffer (staged) ─────────────────────────────────▶ retain ▶ stream ▶ consumer
//! ```
//!
//! The states of an operation, as a stop handle shows them:
//!
//! ```text
//! Queued ─▶ Ready ─▶ Running ◀─▶ WaitingProvider
//!    │        │         │
//!    └────────┴─────────┴──▶ Cleaning ─▶ Retired
//! ```
mod admission;
mod buffer;
mod call;
mod chunk;
mod job;
mod look;
mod memory;
mod ready;
mod runtime;
mod snapshot;
mod stop;
mod stream;
mod transfer;
mod wait;

#[cfg(test)]
mod conformance;

pub use admission::{IoAdmission, IoReady, Wait};
pub use buffer::IoBuffer;
pub use call::{IoCall, IoLease, StopWatch, WaitFor};
pub use chunk::{IoTransferBuffer, IoTransferChunk};
pub use job::{IoJobWaiter, JobWait};
pub use memory::IoMemory;
pub use ready::{TransferReady, TransferWait};
pub(crate) use runtime::retire;
pub use runtime::{IoRuntime, SetupError};
pub use snapshot::IoSnapshot;
pub use stop::{IoStopHandle, Phase};
pub use stream::{IoStreamReader, IoStreamWriter, TryWrite};
pub use transfer::{IoTransfer, TransferOptions};
pub use wait::IoWait;

pub(crate) use admission::{
    Front, QueueAge, admit, admit_again, check_at as check_operation_at, check_unsent as check_operation,
    glance as glance_at_operation,
};
pub(crate) use call::stop_seen;
