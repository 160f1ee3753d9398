//! The embedded origin of the demo: something to call, on a loopback port of its own.
//!
//! | path | answers with |
//! | --- | --- |
//! | `/` | a small JSON object |
//! | `/bytes/N` | N bytes, as a stream |
//! | `/slow`, `/slow/MS` | a small JSON object, after 1,000 or MS milliseconds |
//! | `/echo` | the body that was sent, at most 1 MiB |

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

/// Most bytes that `/bytes` gives, and most milliseconds that `/slow` takes.
const MOST: (u64, u64) = (1 << 30, 60_000);
const LARGEST_ECHO: usize = 1 << 20;

/// Serves on a free loopback port until the runtime ends, and says where.
pub(crate) async fn start() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
                Err(error) => {
                    tracing::warn!(%error, "the embedded origin cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(address)
}

async fn serve(stream: tokio::net::TcpStream) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(60))
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the embedded origin ended early");
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut segments = path.trim_matches('/').splitn(2, '/');
    let (first, second) = (segments.next().unwrap_or_default(), segments.next());
    let number = |default| second.map_or(Some(default), |text| text.parse::<u64>().ok());
    Ok(match (first, number(0), number(1_000)) {
        ("", ..) => {
            json(format!("{{\"origin\":\"latent-node demo\",\"method\":\"{}\"}}\n", request.method()))
        }
        ("bytes", Some(count), _) if count <= MOST.0 => Response::new(if request.method() == Method::HEAD {
            Answer::Zeros(0)
        } else {
            Answer::Zeros(count)
        }),
        ("slow", _, Some(millis)) if millis <= MOST.1 => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            json(format!("{{\"slept_ms\":{millis}}}\n"))
        }
        ("echo", ..) => echo(request).await,
        _ => {
            let mut response = json("{\"error\":\"try /, /bytes/N, /slow/MS or /echo\"}\n".to_owned());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    })
}

/// Gives the body back once all of it is there: an answer that begins earlier would end the upload.
async fn echo(request: Request<Incoming>) -> Response<Answer> {
    let kind = request.headers().get(CONTENT_TYPE).cloned();
    let Ok(body) = Limited::new(request.into_body(), LARGEST_ECHO).collect().await else {
        let mut response = json("{\"error\":\"at most 1 MiB is given back\"}\n".to_owned());
        *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return response;
    };
    let mut response = Response::new(Answer::Text(Some(body.to_bytes())));
    if let Some(kind) = kind {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

fn json(text: String) -> Response<Answer> {
    let mut response = Response::new(Answer::Text(Some(text.into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body of the embedded origin.
enum Answer {
    Text(Option<Bytes>),
    /// So many bytes are still to come.
    Zeros(u64),
}

/// What `/bytes` gives, a piece at a time.
static PIECE: [u8; 16 << 10] = [b'.'; 16 << 10];

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Answer::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Answer::Zeros(0) => Poll::Ready(None),
            Answer::Zeros(left) => {
                let piece = PIECE.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece as u64;
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE[..piece])))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Text(text) => text.is_none(),
            Answer::Zeros(left) => *left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Answer::Zeros(left) => SizeHint::with_exact(*left),
        }
    }
}
