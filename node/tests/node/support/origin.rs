//! An origin that misbehaves on request. The path says how.
//!
//! | path | does |
//! | --- | --- |
//! | `/ok` | answers `fine` |
//! | `/slow/MS` | answers `slept` after MS milliseconds |
//! | `/bytes/N` | answers N bytes |
//! | `/chunks/N` | answers N bytes, one to a chunk |
//! | `/flood` | sends as long as anybody reads |
//! | `/echo` | answers the body (which must have a length) |
//! | `/sink` | reads the body slowly, never answers |
//! | `/stall` | never answers |
//! | `/cut` | announces 100 bytes, sends 10, closes |
//! | `/garbage` | answers something that is not HTTP |
//! | `/redirect` | 302 to elsewhere |

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running origin. Its threads end with the test process.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Connections accepted so far.
    accepted: AtomicUsize,
    /// Connections open now.
    open: AtomicUsize,
    /// Body bytes written by `/flood`.
    flooded: AtomicUsize,
    /// Request heads.
    heads: Mutex<Vec<String>>,
}

impl Origin {
    pub(crate) fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let seen = Arc::new(Seen::default());
        let counts = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = counts.clone();
                counts.accepted.fetch_add(1, Ordering::SeqCst);
                counts.open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    // Whatever breaks a connection ends it; tests look at what the other side makes of it.
                    let _ = serve(stream, &counts);
                    counts.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Origin { address, seen }
    }

    pub(crate) fn accepted(&self) -> usize {
        self.seen.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }

    pub(crate) fn flooded(&self) -> usize {
        self.seen.flooded.load(Ordering::SeqCst)
    }

    /// Every request head so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.seen.heads.lock().expect("no server thread panicked").clone()
    }
}

fn serve(stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut head = String::new();
        loop {
            let before = head.len();
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
            if &head[before..] == "\r\n" {
                break;
            }
        }
        seen.heads.lock().expect("no server thread panicked").push(head.clone());
        if !answer(&head, &mut reader, &mut writer, seen)? {
            return Ok(());
        }
    }
}

/// Whether the connection goes on.
fn answer(head: &str, reader: &mut impl Read, writer: &mut TcpStream, seen: &Seen) -> std::io::Result<bool> {
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let path = path.split('?').next().unwrap_or_default();
    let mut segments = path.trim_start_matches('/').splitn(2, '/');
    let kind = segments.next().unwrap_or_default();
    let number: u64 = segments.next().and_then(|text| text.parse().ok()).unwrap_or(0);
    match kind {
        "ok" => whole(writer, b"fine"),
        "slow" => {
            std::thread::sleep(Duration::from_millis(number));
            whole(writer, b"slept")
        }
        "bytes" => {
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {number}\r\n\r\n")?;
            std::io::copy(&mut std::io::repeat(b'x').take(number), writer)?;
            Ok(true)
        }
        "chunks" => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            for _ in 0..number {
                writer.write_all(b"1\r\nx\r\n")?;
            }
            writer.write_all(b"0\r\n\r\n")?;
            Ok(true)
        }
        "flood" => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(4_096));
            loop {
                writer.write_all(chunk.as_bytes())?;
                seen.flooded.fetch_add(4_096, Ordering::SeqCst);
            }
        }
        "echo" => {
            let length =
                header(head, "content-length").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            let mut body = Vec::new();
            reader.take(length).read_to_end(&mut body)?;
            whole(writer, &body)
        }
        "sink" => {
            let mut piece = [0; 1_024];
            while reader.read(&mut piece)? > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(false)
        }
        "stall" => {
            // Until the other side goes away.
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest)?;
            Ok(false)
        }
        "cut" => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789")?;
            Ok(false)
        }
        "garbage" => {
            writer.write_all(b"220 mail.example ESMTP\r\n\r\n")?;
            Ok(false)
        }
        "redirect" => {
            writer.write_all(
                b"HTTP/1.1 302 Found\r\nlocation: http://192.0.2.1/\r\ncontent-length: 0\r\n\r\n",
            )?;
            Ok(true)
        }
        _ => {
            writer.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            Ok(true)
        }
    }
}

fn whole(writer: &mut TcpStream, body: &[u8]) -> std::io::Result<bool> {
    write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len())?;
    writer.write_all(body)?;
    Ok(true)
}

/// The value of a header in a head; names are compared without case.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
