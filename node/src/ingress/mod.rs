//! Inbound HTTP/1.1: a bounded number of connections, each with bounded heads and bounded patience.
//!
//! | file | holds |
//! | --- | --- |
//! | `front` | a listener: accepts, counts, drains |
//! | `connection` | one connection, from its first byte to its orderly end |
//! | `route` | what a path means |
//! | `handle` | what is done about it |
//! | `proxy` | the way to a provider |
//! | `upload`, `reply` | bodies of requests and responses |

pub(crate) mod front;
pub(crate) mod reply;

mod canned;
mod connection;
mod handle;
mod pace;
pub(crate) mod proxy;
mod route;
mod upload;
