//! The promises of `broker::io`, checked through the public interface alone.
//!
//! Each test says which sentences it checks: `io.N` is the number of the sentence in the specification; the number at the
//! end of a test's name is the behaviour in the list that the tests follow. [`support`] makes a small node; every test
//! ends with the node holding nothing.
mod buffers;
mod lifecycle;
mod limits;
mod panics;
mod streams;
mod support;
mod sweeps;
mod transfers;
mod waiting;

use crate::broker::poll;
