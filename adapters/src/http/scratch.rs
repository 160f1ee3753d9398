//! What the HTTP machinery holds for one call beside the window, and the charge for it.

use latent_capabilities::broker::Error;
use latent_capabilities::broker::io::{IoCall, IoMemory};

use super::config::{BodyLimits, HeadLimits};

/// The smallest buffer that the machinery works with.
const MINIMUM_BUFFER: usize = 8 * 1024;
/// Bytes of a parsed field beside its text.
const FIELD: usize = 96;
/// The most plaintext that TLS keeps while the socket is full.
pub(crate) const TLS_WRITE_BUFFER: usize = 16 * 1024;
/// A record in each direction.
const TLS_BYTES: usize = TLS_WRITE_BUFFER + 18 * 1024;

/// The size of a connection's buffer: a whole response head must fit, and one chunk should.
pub(crate) fn buffer_bytes(head: &HeadLimits, body: &BodyLimits) -> usize {
    MINIMUM_BUFFER.max(head.response_bytes).max((body.chunk_bytes as usize).min(64 * 1024))
}

/// The charges of one call. Each is at most a chunk of the library, so that any of them fits.
pub(crate) struct Scratch {
    /// One buffer is being read into while the last one is handed out.
    _buffers: [IoMemory; 2],
    /// Both heads, as text and parsed. A request's body is sent from the window, without a copy.
    _heads: IoMemory,
    _tls: Option<IoMemory>,
}

impl Scratch {
    pub(crate) fn reserve(
        call: &IoCall,
        head: &HeadLimits,
        body: &BodyLimits,
        tls: bool,
    ) -> Result<Self, Error> {
        let buffer = || call.reserve_scratch(buffer_bytes(head, body), 0);
        let fields = FIELD * (head.request_headers + head.response_headers);
        Ok(Self {
            _buffers: [buffer()?, buffer()?],
            _heads: call.reserve_scratch(head.target_bytes + head.request_bytes + fields, 0)?,
            _tls: if tls { Some(call.reserve_scratch(TLS_BYTES, 0)?) } else { None },
        })
    }
}
