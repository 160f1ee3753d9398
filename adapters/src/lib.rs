//! Protocol adapters on `latent-capabilities`: clients of outside providers whose every connection, byte and moment
//! of waiting is counted by the library.
//!
//! | feature | module | what |
//! | --- | --- | --- |
//! | `http` (default) | [`http`] | HTTP/1.1 over TCP and TLS, streaming and buffered |
//! | `http` (default) | [`tcp`] | sockets that several own, read and written with few system calls |

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
pub mod tcp;
