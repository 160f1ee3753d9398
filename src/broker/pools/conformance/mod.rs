//! The registry by its public API alone: real loopback sockets, real time.
mod support;

mod requests;
mod stress;
