//! HTTP/1.1 towards configured origins.
//!
//! A provider is installed from a configuration that names its origins; plans bind [`HTTP`] to it; a session's calls
//! then go through [`HttpProvider::open`] (streaming) or [`HttpProvider::send`] (buffered). What holds for every call:
//!
//! * One deadline covers the queue, the name, TCP, TLS, both heads and both bodies.
//! * No task, thread or timer works for a call besides the one that polls it: the connection's machinery is polled
//!   inside the call, and dropping the call closes what it had opened.
//! * Bodies flow through the call's window, a few chunks in each direction. A slow reader stops the origin, a slow
//!   origin stops the writer, and nothing else grows: the machinery's own buffers are bounded and charged.
//! * A connection is used again only after a wholly sent request and a wholly received response that both leave it
//!   open, and only if the origin has said nothing since. Otherwise it is closed.
//! * A request is sent once. Each error says whether anything of it may have arrived.
//! * Where a request goes is decided by the configuration alone. Redirects are returned. Addresses of special ranges
//!   are dialled only where the origin allows them, and what was checked is what is dialled.
//!
//! ```no_run
//! use latent_adapters::http::{HttpProvider, HttpProviderConfig, HttpRequest, OriginConfig};
//! # async fn example(pools: latent_capabilities::broker::pools::ProviderPools, session: latent_capabilities::broker::CapabilitySession)
//! # -> Result<(), latent_adapters::http::HttpError> {
//! let config = HttpProviderConfig::new("orders", 1).origin(OriginConfig::new("https://orders.example.org"));
//! let orders = HttpProvider::install(&pools, config, latent_capabilities::broker::pools::Epoch::NONE)?;
//! let answer = orders.send(&session, HttpRequest::get("/health"), b"").await?;
//! println!("{} {:?}", answer.status, answer.bytes());
//! # Ok(()) }
//! ```

mod address;
mod buffered;
mod config;
mod connection;
mod dial;
mod dns;
mod download;
mod error;
mod exchange;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod origin;
mod provider;
mod request;
mod resolve;
mod response;
mod scratch;
mod socket;
mod tls;
mod upload;

pub use buffered::BufferedResponse;
pub use config::{
    AllowedAddresses, BodyLimits, DialLimits, HeadLimits, HttpCredential, HttpProviderConfig,
    MAXIMUM_ADDRESSES, MAXIMUM_CHUNK_BYTES, MAXIMUM_CREDENTIAL_BYTES, MAXIMUM_HEAD_BYTES, MAXIMUM_ORIGINS,
    OriginConfig, ResolverConfig, TlsConfig, TlsRoots,
};
pub use error::{
    ConfigFault, ConnectFault, HttpError, HttpErrorKind, RequestFault, ResolveFault, ResponseFault, TlsFault,
};
pub use provider::{HTTP, HttpProvider};
pub use request::HttpRequest;
pub use response::{HttpResponse, ResponseBody};
