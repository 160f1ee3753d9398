//! The promises of `broker::pools`, checked through the public interface alone.
//!
//! Each test says which sentences it checks: `pools.N` is the number of the sentence in the specification; the number at the
//! end of a test's name is the behaviour in the list that the tests follow. [`support`] makes a node; every test ends with
//! the node holding nothing.
mod acquire;
mod cases;
mod cleanup;
mod connections;
mod credits;
mod counts;
mod deadlines;
mod epochs;
mod fairness;
mod figures;
mod followup;
mod hostile;
mod idle;
mod ingress;
mod interrupted;
mod jobs;
mod keeper;
mod lifetime;
mod limits;
mod loopback;
mod lowering;
mod maintenance;
mod justified;
mod panics;
mod requests;
mod shutdown;
mod stress;
mod support;
mod sweeps;
mod trials;

use crate::broker::poll;
