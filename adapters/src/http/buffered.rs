//! A buffered response: all of it, or an error.

use bytes::Buf;
use http::{HeaderMap, StatusCode};
use latent_capabilities::broker::io::{IoBuffer, IoCall};

use super::download::{Download, Piece};
use super::error::{HttpError, HttpErrorKind};
use super::exchange::Accepted;
use super::headers::Framing;

/// A whole response. Its body stays charged as a result until it is dropped.
#[derive(Debug)]
pub struct BufferedResponse {
    /// The final status, from 200 to 599.
    pub status: StatusCode,
    /// End-to-end header fields.
    pub headers: HeaderMap,
    body: Option<IoBuffer>,
}

impl BufferedResponse {
    /// The body.
    pub fn bytes(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], IoBuffer::bytes)
    }

    /// The buffer that holds the body; `None` for an empty one.
    pub fn into_body(self) -> Option<IoBuffer> {
        self.body
    }

    pub(crate) async fn read(call: &IoCall, accepted: Accepted, maximum: usize) -> Result<Self, HttpError> {
        let Accepted { status, headers, mut download, .. } = accepted;
        let body = match download.framing() {
            Framing::Empty | Framing::Length(0) => None,
            Framing::Length(length) => match usize::try_from(length) {
                Ok(length) if length <= maximum => Some(collect(call, &mut download, length).await?),
                _ => return Err(download.fail(HttpErrorKind::ResponseTooLarge)),
            },
            Framing::Chunked | Framing::UntilClose => Some(collect(call, &mut download, maximum).await?),
        };
        Ok(Self { status, headers, body })
    }
}

/// Reads to the verified end into one buffer.
async fn collect(call: &IoCall, download: &mut Download, capacity: usize) -> Result<IoBuffer, HttpError> {
    let effect = download.effect();
    let library = |error| HttpError::new(HttpErrorKind::Library(error), effect);
    let mut buffer = call.buffer(capacity, 0).map_err(library)?;
    let mut room = capacity;
    loop {
        let piece = call.wait_for(std::future::poll_fn(|cx| download.poll_piece(cx))).await;
        match piece.map_err(library)?.transpose()? {
            Some(Piece::Data(mut data)) => {
                if data.remaining() > room {
                    return Err(download.fail(HttpErrorKind::ResponseTooLarge));
                }
                room -= data.remaining();
                while data.has_remaining() {
                    let spare = buffer.spare_mut(data.remaining()).map_err(library)?;
                    let size = spare.len();
                    data.copy_to_slice(spare);
                    buffer.advance_written(size).map_err(library)?;
                }
            }
            // Trailers belong to streams; a buffered response has a head and a body.
            Some(Piece::Trailers(_)) => {}
            None => return buffer.retain().map_err(library),
        }
    }
}
