//! What the HTTP machinery holds for one call beside the window, and the charge for it.

use latent_capabilities::broker::io::{IoCall, IoMemory};
use latent_capabilities::broker::{Error, Kind};

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

/// The charges of one call: one for everything where that is at most a chunk of the library, else one for each part,
/// each of which is.
pub(crate) struct Scratch {
    _charges: [Option<IoMemory>; 4],
}

impl Scratch {
    pub(crate) fn reserve(
        call: &IoCall,
        head: &HeadLimits,
        body: &BodyLimits,
        tls: bool,
    ) -> Result<Self, Error> {
        // One buffer is being read into while the last one is handed out.
        let buffer = buffer_bytes(head, body);
        // Both heads, as text and parsed. A request's body is sent from the window, without a copy.
        let fields = FIELD * (head.request_headers + head.response_headers);
        let heads = head.target_bytes + head.request_bytes + fields;
        let tls = if tls { TLS_BYTES } else { 0 };
        let charge = |bytes| match bytes {
            0 => Ok(None),
            _ => call.reserve_scratch(bytes, 0).map(Some),
        };
        let charges = match charge(2 * buffer + heads + tls) {
            Ok(all) => [all, None, None, None],
            Err(error) if matches!(error.kind(), Kind::TooLarge(_)) => {
                [charge(buffer)?, charge(buffer)?, charge(heads)?, charge(tls)?]
            }
            Err(error) => return Err(error),
        };
        Ok(Self { _charges: charges })
    }
}
