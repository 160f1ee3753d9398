//! Answers whose head or framing breaks a rule, or that arrive in pieces. After each: the expected error, the origin
//! sees the end of the connection, nothing is held any more.

use std::time::Duration;

use latent_adapters::http::{HttpErrorKind, ResponseFault};

use crate::chaos::{Then, get};
use crate::support::origin::Origin;
use crate::support::{World, kind};

async fn held(bytes: impl Into<bytes::Bytes>) -> HttpErrorKind {
    kind(get(bytes, Then::Hold).await)
}

/// Complete answers, each with the body `abcde`.
const ANSWERS: [&str; 3] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\nx-a: 1\r\n\r\n",
];

#[tokio::test]
async fn data_after_the_promised_length() {
    // The answer is whole, so it is an answer; what follows it makes the connection useless.
    let (_, body) =
        get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", Then::Hold).await.expect("complete");
    assert_eq!(&body[..], b"abc");
    let twice = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb";
    let (_, body) = get(twice, Then::Hold).await.expect("complete");
    assert_eq!(&body[..], b"a", "an unasked second response");
}

#[tokio::test]
async fn length_too_long_for_the_body() {
    let bytes = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc";
    assert_eq!(kind(get(bytes, Then::Fin).await), HttpErrorKind::Truncated { received: 3 });
}

#[tokio::test]
async fn contradictory_lengths() {
    let length = HttpErrorKind::Response(ResponseFault::ContentLength);
    let malformed = HttpErrorKind::Response(ResponseFault::Malformed);
    assert_eq!(held("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc").await, length);
    assert_eq!(held("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc").await, length);
    assert_eq!(
        held("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd").await,
        malformed
    );
    assert_eq!(held("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc").await, malformed);
    assert_eq!(held("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nabc").await, malformed);
}

#[tokio::test]
async fn length_with_chunked_and_other_codings() {
    let coding = HttpErrorKind::Response(ResponseFault::TransferEncoding);
    let both =
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(held(both).await, coding);
    assert_eq!(held("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc").await, coding);
    assert_eq!(held("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n").await, coding);
    assert_eq!(held("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n").await, coding);
}

#[tokio::test]
async fn broken_chunks() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let framing = HttpErrorKind::Response(ResponseFault::Framing);
    for chunks in [
        "ffffffffffffffffff\r\n",   // overflow
        "12345678901234567890\r\n", // 20 digits
        "zz\r\nabc\r\n",            // garbage
        "-3\r\nabc\r\n",            // a sign
        "3\nabc\r\n",               // half a line end
        "3\r\nabcdef\r\n",          // longer than its size
        "\r\n",                     // no size
    ] {
        assert_eq!(held(format!("{head}{chunks}")).await, framing, "{chunks:?}");
    }
    let unfinished = get(format!("{head}3\r\nabc"), Then::Fin).await;
    assert_eq!(kind(unfinished), HttpErrorKind::Truncated { received: 3 }, "no line end");
}

#[tokio::test]
async fn trailers_are_bounded() {
    let start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n";
    let long = format!("{start}x-long: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(held(long).await, HttpErrorKind::Response(ResponseFault::Framing));
    let many = format!("{start}{}\r\n", "x-a: 1\r\n".repeat(1000));
    assert_eq!(held(many).await, HttpErrorKind::Response(ResponseFault::Framing));
}

#[tokio::test]
async fn heads_are_bounded() {
    let too_large = HttpErrorKind::Response(ResponseFault::HeadTooLarge);
    assert_eq!(held(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20))).await, too_large);
    assert_eq!(held(format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: 1\r\n".repeat(10_000))).await, too_large);
    assert_eq!(held(format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:1\r\n".repeat(101))).await, too_large);
}

#[tokio::test]
async fn a_storm_of_interim_responses_is_bounded() {
    let many = HttpErrorKind::Response(ResponseFault::TooManyInterim);
    assert_eq!(held("HTTP/1.1 100 Continue\r\n\r\n".repeat(17)).await, many);
    let few = format!(
        "{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        "HTTP/1.1 103 Hints\r\n\r\n".repeat(16)
    );
    let (status, body) = get(few, Then::Hold).await.expect("an answer");
    assert_eq!((status, &body[..]), (200, &b"ok"[..]));
}

#[tokio::test]
async fn bytes_before_the_status_line() {
    let malformed = HttpErrorKind::Response(ResponseFault::Malformed);
    assert_eq!(held("garbage HTTP/1.1 200 OK\r\n\r\n").await, malformed);
    assert_eq!(held("\0HTTP/1.1 200 OK\r\n\r\n").await, malformed);
    assert_eq!(held("HTTP/2.0 200 OK\r\n\r\n").await, malformed);
    assert_eq!(held("HTTP/1.1\r\n\r\n").await, malformed);
}

#[tokio::test]
async fn statuses_out_of_range() {
    let status = HttpErrorKind::Response(ResponseFault::Status);
    assert_eq!(
        held("HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n").await,
        HttpErrorKind::Response(ResponseFault::Malformed)
    );
    assert_eq!(held("HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n").await, status);
    assert_eq!(held("HTTP/1.1 600 What\r\nContent-Length: 0\r\n\r\n").await, status);
    let upgrade = HttpErrorKind::Response(ResponseFault::Upgrade);
    assert_eq!(held("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw").await, upgrade);
}

#[tokio::test]
async fn folded_and_misshapen_header_lines() {
    let malformed = HttpErrorKind::Response(ResponseFault::Malformed);
    assert_eq!(held("HTTP/1.1 200 OK\r\nx: a\r\n b\r\nContent-Length: 0\r\n\r\n").await, malformed, "folded");
    assert_eq!(
        held("HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n").await,
        malformed,
        "space before the colon"
    );
    assert_eq!(held("HTTP/1.1 200 OK\r\nx(y): 0\r\n\r\n").await, malformed, "a bad name");
    assert_eq!(held("HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n").await, malformed, "a bad value");
    assert_eq!(held("HTTP/1.1 200 OK\r\nno-colon\r\n\r\n").await, malformed);
    assert_eq!(
        held("HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 0\r\n\r\n").await,
        malformed
    );
}

#[tokio::test]
async fn s55_no_cut_answer_is_ever_a_success() {
    for answer in ANSWERS {
        let origin = Origin::play(move |mut peer, number| async move {
            peer.head().await;
            peer.write(&answer[..number]).await;
        })
        .await;
        let world = World::plain(origin.address);
        for cut in 0..answer.len() {
            match kind(world.get("/").await) {
                HttpErrorKind::Closed => assert!(cut < answer.len() - 5, "{cut}"),
                HttpErrorKind::Truncated { received } => assert!(received <= 5, "{cut}"),
                other => panic!("{cut}: {other:?}"),
            }
        }
        assert_eq!(&world.get("/").await.expect("the whole answer").1[..], b"abcde");
        world.assert_quiet();
        origin.done().await;
    }
}

#[tokio::test]
async fn an_answer_in_two_pieces_is_the_same_answer() {
    for answer in ANSWERS {
        let origin = Origin::play(move |mut peer, _| async move {
            for cut in 1..answer.len() {
                peer.head().await;
                peer.write(&answer[..cut]).await;
                tokio::time::sleep(Duration::from_micros(200)).await;
                peer.write(&answer[cut..]).await;
            }
            peer.closed().await;
        })
        .await;
        let world = World::plain(origin.address);
        for cut in 1..answer.len() {
            let (status, body) = world.get("/").await.expect("an answer");
            assert_eq!((status, &body[..]), (200, &b"abcde"[..]), "{cut}");
        }
        assert_eq!(origin.accepted(), 1, "each was read to its end");
        world.assert_quiet();
        origin.done().await;
    }
}
