//! The HTTP adapter against origins that follow a script, byte by byte.

mod support;

mod cancel;
mod chaos;
mod dns;
mod framing;
mod lifetime;
mod reuse;
mod stream;
mod tls;
