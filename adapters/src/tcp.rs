//! Reading from and writing to a [`TcpStream`] that several own, with as few system calls as there can be.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that are copied together rather than handed over piece by piece: sending one piece takes the system less than
/// looking at a list of them does.
const TOGETHER: usize = 1024;

/// Reads what is there, up to the room in `buffer`.
///
/// A read that does not fill the buffer has emptied the socket, so the next one waits for the system to say that more has
/// come, instead of asking first. That is how tokio reads a stream of its own.
///
/// # Errors
///
/// Those of the system but for `WouldBlock`.
pub fn poll_read(stream: &TcpStream, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let mut emptied = false;
        // What the stream is ready for is looked up before the read. If more comes during it, the look-up is out of date,
        // and forgetting it forgets nothing.
        let outcome = stream.try_io(Interest::READABLE, || {
            let room = buffer.remaining();
            let read = stream.try_read_buf(buffer)?;
            emptied = 0 < read && read < room;
            if emptied { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !emptied => {}
            Err(_) if emptied => return Poll::Ready(Ok(())),
            outcome => return Poll::Ready(outcome),
        }
    }
}

/// Writes as much of `slices` as the system takes now.
///
/// # Errors
///
/// Those of the system; `WouldBlock` where it takes nothing.
pub fn try_write_vectored(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    if let [one] = slices {
        return stream.try_write(one);
    }
    if total > TOGETHER {
        return stream.try_write_vectored(slices);
    }
    let mut together = [0; TOGETHER];
    let mut filled = 0;
    for slice in slices {
        together[filled..filled + slice.len()].copy_from_slice(slice);
        filled += slice.len();
    }
    stream.try_write(&together[..filled])
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let stream =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (peer, _) = listener.accept().await.expect("a connection");
        (stream, peer)
    }

    async fn read(stream: &TcpStream, room: usize) -> Vec<u8> {
        let mut storage = vec![0; room];
        let mut buffer = ReadBuf::new(&mut storage);
        poll_fn(|cx| poll_read(stream, cx, &mut buffer)).await.expect("read");
        let read = buffer.filled().len();
        storage.truncate(read);
        storage
    }

    #[tokio::test]
    async fn a_short_read_is_the_last_one_until_more_comes() {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"first").await.expect("sent");
        assert_eq!(read(&stream, 64).await, b"first");
        let mut storage = [0; 8];
        let waits = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut storage);
            Poll::Ready(poll_read(&stream, cx, &mut buffer).is_pending())
        });
        assert!(waits.await);
        peer.write_all(b"second").await.expect("sent");
        assert_eq!(read(&stream, 3).await, b"sec", "a full read may have left something");
        assert_eq!(read(&stream, 3).await, b"ond");
        drop(peer);
        assert_eq!(read(&stream, 3).await, b"", "the end is told");
    }

    #[tokio::test]
    async fn what_came_together_with_the_end_is_read_and_the_end_is_told() {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"last words").await.expect("sent");
        drop(peer);
        assert_eq!(read(&stream, 64).await, b"last words");
        let end = tokio::time::timeout(std::time::Duration::from_secs(5), read(&stream, 64)).await;
        assert_eq!(end.expect("the end is told"), b"");
    }

    #[tokio::test]
    async fn pieces_are_written_in_their_order_however_long() {
        for (first, second) in [(0, 0), (1, 0), (3, 4), (TOGETHER - 1, 1), (TOGETHER, 1), (5_000, 5_000)] {
            let (stream, mut peer) = pair().await;
            let (a, b) = (vec![b'a'; first], vec![b'b'; second]);
            let written =
                try_write_vectored(&stream, &[IoSlice::new(&a), IoSlice::new(&b)]).expect("written");
            assert_eq!(written, first + second);
            drop(stream);
            let mut got = Vec::new();
            peer.read_to_end(&mut got).await.expect("received");
            assert_eq!(got, [a, b].concat());
        }
    }
}
