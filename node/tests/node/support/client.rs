//! An HTTP/1.1 client that does what it is told, however wrong, and shows what came back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to its declared end.
    pub(crate) complete: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Read, and not yet part of an answer.
    rest: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).expect("the node accepts")
    }

    pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, rest: Vec::new() })
    }

    /// Sends these bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// A request without a body. Header lines end in `\r\n`.
    pub(crate) fn get(&mut self, path: &str, headers: &str) -> std::io::Result<Answer> {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: node\r\n{headers}\r\n"))?;
        self.answer()
    }

    /// A request without a body, of any method.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str) -> std::io::Result<Answer> {
        self.send(format!("{method} {path} HTTP/1.1\r\nhost: node\r\n{headers}\r\n"))?;
        self.answer()
    }

    /// Reads one answer to a request that is not `HEAD`. An error if none comes, or if its head is cut.
    pub(crate) fn answer(&mut self) -> std::io::Result<Answer> {
        let head = loop {
            if let Some(end) = find(&self.rest, b"\r\n\r\n") {
                let mut head: Vec<u8> = self.rest.drain(..end + 4).collect();
                head.truncate(end);
                break String::from_utf8_lossy(&head).into_owned();
            }
            if self.fill()? == 0 {
                let kind = std::io::ErrorKind::UnexpectedEof;
                return Err(std::io::Error::new(kind, format!("cut in the head: {:?}", self.rest)));
            }
        };
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no status in {head:?}"));
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        if status == 100 {
            return self.answer();
        }
        let mut answer = Answer { status, headers, body: Vec::new(), complete: true };
        if answer.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            self.chunks(&mut answer)?;
        } else if let Some(length) =
            answer.header("content-length").and_then(|text| text.parse::<usize>().ok())
        {
            answer.complete = self.take(length, &mut answer.body)?;
        }
        Ok(answer)
    }

    fn chunks(&mut self, answer: &mut Answer) -> std::io::Result<()> {
        loop {
            let Some(end) = find(&self.rest, b"\r\n") else {
                if self.fill().unwrap_or(0) == 0 {
                    answer.complete = false;
                    return Ok(());
                }
                continue;
            };
            let line: Vec<u8> = self.rest.drain(..end + 2).collect();
            let size = String::from_utf8_lossy(&line[..end]).into_owned();
            let size =
                usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("chunk size {size:?}"));
            let mut after = Vec::new();
            if !self.take(size, &mut answer.body)? || !self.take(2, &mut after)? {
                answer.complete = false;
                return Ok(());
            }
            if size == 0 {
                return Ok(());
            }
        }
    }

    /// Moves so many bytes; `false` if the connection ends before.
    fn take(&mut self, mut count: usize, into: &mut Vec<u8>) -> std::io::Result<bool> {
        loop {
            let now = count.min(self.rest.len());
            into.extend(self.rest.drain(..now));
            count -= now;
            if count == 0 {
                return Ok(true);
            }
            match self.fill() {
                Ok(0) => return Ok(false),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let mut piece = [0; 16 << 10];
        let read = self.stream.read(&mut piece)?;
        self.rest.extend_from_slice(&piece[..read]);
        Ok(read)
    }

    /// Whether the other side has closed, with nothing more to read.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.fill() {
            Ok(read) => read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The header line of a token.
pub(crate) fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}
