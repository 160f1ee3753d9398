//! One question to one name server: two datagrams (IPv4 and IPv6), each answered, and TCP where an answer is cut off.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::error::ResolveFault;

/// The longest answer that is read, by datagram or TCP.
const MAXIMUM_ANSWER: usize = 4096;
/// The most aliases that are followed inside one answer.
const MAXIMUM_ALIASES: usize = 8;
/// The most records of an answer that are looked at.
const MAXIMUM_RECORDS: usize = 64;
/// The most datagrams that do not belong to the question before the server is given up for this attempt.
const MAXIMUM_STRAYS: usize = 64;

/// The addresses of a name and how long they hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    pub(crate) addresses: Vec<IpAddr>,
    /// Seconds.
    pub(crate) ttl: u32,
}

/// How asking one server ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Answer(Answer),
    Failed(ResolveFault),
    /// It said nothing in time.
    Silent,
}

/// What one datagram or TCP message says.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Answer(Answer),
    /// The answer did not fit into the datagram.
    CutOff,
    Failed(ResolveFault),
    /// Not an answer to this question.
    Stray,
}

/// A question that was asked.
#[derive(Debug)]
struct Question {
    id: u16,
    name: Name,
    kind: RecordType,
    bytes: Vec<u8>,
}

impl Question {
    fn new(name: &str, kind: RecordType) -> Option<Self> {
        let mut name = Name::from_ascii(name).ok()?;
        name.set_fqdn(true);
        // The identifier is random; the port is picked by the system, and the socket takes only the server's datagrams.
        let mut message = Message::query();
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(name.clone(), kind));
        Some(Self { id: message.metadata.id, name, kind, bytes: message.to_vec().ok()? })
    }

    fn reply(&self, bytes: &[u8]) -> Reply {
        let Ok(message) = Message::from_vec(bytes) else { return Reply::Failed(ResolveFault::Malformed) };
        let [query] = message.queries.as_slice() else { return Reply::Stray };
        if message.metadata.id != self.id
            || message.metadata.message_type != MessageType::Response
            || message.metadata.op_code != OpCode::Query
            || query.name != self.name
            || query.query_type != self.kind
        {
            return Reply::Stray;
        }
        match message.metadata.response_code {
            ResponseCode::NoError if message.metadata.truncation => Reply::CutOff,
            ResponseCode::NoError => Reply::Answer(self.addresses(&message)),
            ResponseCode::NXDomain => Reply::Answer(Answer::default()),
            _ => Reply::Failed(ResolveFault::ServerFailed),
        }
    }

    /// The addresses that the question's name leads to through the answer's aliases. Records of other names are not
    /// looked at.
    fn addresses(&self, message: &Message) -> Answer {
        let records = &message.answers[..message.answers.len().min(MAXIMUM_RECORDS)];
        let mut name = &self.name;
        let mut answer = Answer { addresses: Vec::new(), ttl: u32::MAX };
        for _ in 0..=MAXIMUM_ALIASES {
            for record in records.iter().filter(|record| record.name == *name) {
                let address = match &record.data {
                    RData::A(address) if self.kind == RecordType::A => IpAddr::V4(address.0),
                    RData::AAAA(address) if self.kind == RecordType::AAAA => IpAddr::V6(address.0),
                    _ => continue,
                };
                answer.addresses.push(address);
                answer.ttl = answer.ttl.min(record.ttl);
            }
            if !answer.addresses.is_empty() {
                break;
            }
            let alias =
                records.iter().filter(|record| record.name == *name).find_map(|record| match &record.data {
                    RData::CNAME(target) => Some((&target.0, record.ttl)),
                    _ => None,
                });
            let Some((target, ttl)) = alias else { break };
            name = target;
            answer.ttl = answer.ttl.min(ttl);
        }
        answer
    }
}

/// Asks one server for both families, for at most `pause` until the datagrams are in.
pub(crate) async fn lookup(server: SocketAddr, name: &str, pause: Duration) -> Lookup {
    let (Some(v4), Some(v6)) = (Question::new(name, RecordType::A), Question::new(name, RecordType::AAAA))
    else {
        return Lookup::Failed(ResolveFault::NoAddress);
    };
    let questions = [v4, v6];
    let replies = match datagrams(server, &questions, Instant::now() + pause).await {
        Ok(replies) => replies,
        // Nobody listens at the server's port, or there is no way to it.
        Err(_) => return Lookup::Failed(ResolveFault::ServerFailed),
    };
    let mut found: Option<Answer> = None;
    let mut failed = None;
    let mut silent = false;
    for (question, reply) in questions.iter().zip(replies) {
        let reply = match reply {
            Some(Reply::CutOff) => over_tcp(server, question).await,
            Some(reply) => reply,
            None => {
                silent = true;
                continue;
            }
        };
        match reply {
            Reply::Answer(answer) => found = Some(join(found, answer)),
            Reply::Failed(fault) => failed = Some(fault),
            Reply::CutOff | Reply::Stray => failed = Some(ResolveFault::Malformed),
        }
    }
    match (found, failed) {
        // One family is enough where it has addresses; that it has none proves nothing about the other.
        (Some(answer), _) if !answer.addresses.is_empty() => Lookup::Answer(answer),
        (_, Some(fault)) => Lookup::Failed(fault),
        (Some(answer), None) if !silent => Lookup::Answer(answer),
        (_, None) => Lookup::Silent,
    }
}

fn join(found: Option<Answer>, more: Answer) -> Answer {
    let Some(mut found) = found else { return more };
    match (found.addresses.is_empty(), more.addresses.is_empty()) {
        (true, _) => more,
        (_, true) => found,
        _ => {
            found.addresses.extend(more.addresses);
            found.ttl = found.ttl.min(more.ttl);
            found
        }
    }
}

async fn datagrams(
    server: SocketAddr,
    questions: &[Question; 2],
    until: Instant,
) -> io::Result<[Option<Reply>; 2]> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    for question in questions {
        socket.send(&question.bytes).await?;
    }
    let mut replies = [None, None];
    let mut strays = 0;
    let mut bytes = vec![0_u8; MAXIMUM_ANSWER];
    while replies.iter().any(Option::is_none) && strays < MAXIMUM_STRAYS {
        let Ok(received) = timeout_at(until, socket.recv(&mut bytes)).await else { break };
        let bytes = &bytes[..received?];
        let open = questions.iter().zip(&mut replies).filter(|(_, reply)| reply.is_none());
        let mut stray = true;
        for (question, place) in open {
            match question.reply(bytes) {
                Reply::Stray => {}
                // A datagram that cannot be read may be anybody's: it decides nothing while time is left.
                Reply::Failed(ResolveFault::Malformed) => {}
                reply => {
                    *place = Some(reply);
                    stray = false;
                    break;
                }
            }
        }
        strays += usize::from(stray);
    }
    Ok(replies)
}

async fn over_tcp(server: SocketAddr, question: &Question) -> Reply {
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(question.bytes.len()).map_err(io::Error::other)?;
        let mut message = Vec::with_capacity(question.bytes.len() + 2);
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&question.bytes);
        stream.write_all(&message).await?;
        let length = usize::from(stream.read_u16().await?);
        if length > MAXIMUM_ANSWER {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut answer = vec![0_u8; length];
        stream.read_exact(&mut answer).await?;
        io::Result::Ok(answer)
    };
    match exchange.await {
        Ok(answer) => question.reply(&answer),
        Err(_) => Reply::Failed(ResolveFault::ServerFailed),
    }
}

/// Reads what is to be an answer to a question for `example.org`, whose identifier is taken from it.
#[cfg(fuzzing)]
pub(crate) fn read(bytes: &[u8]) {
    for kind in [RecordType::A, RecordType::AAAA] {
        let Some(mut question) = Question::new("example.org", kind) else { return };
        if let Some(id) = bytes.first_chunk() {
            question.id = u16::from_be_bytes(*id);
        }
        if let Reply::Answer(answer) = question.reply(bytes) {
            assert!(answer.addresses.len() <= MAXIMUM_RECORDS);
            assert!(answer.addresses.iter().all(|address| address.is_ipv4() == (kind == RecordType::A)));
        }
    }
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
