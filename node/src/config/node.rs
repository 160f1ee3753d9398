//! Listening, times, and what inbound connections may do.

use std::net::SocketAddr;
use std::time::Duration;

use super::reader::{Found, Section};
use super::units;

/// Listening, and the times of start and stop.
#[derive(Debug)]
pub(crate) struct Node {
    /// Where tenants call.
    pub(crate) listen: SocketAddr,
    /// Where `/snapshot` and `/` are served instead of on `listen`.
    pub(crate) status: Option<SocketAddr>,
    /// How long accepted requests may take to finish once the node is told to stop.
    pub(crate) grace: Duration,
    /// How long the pools may take to close what is left after that.
    pub(crate) close: Duration,
    /// Worker threads; `None`: one for each core.
    pub(crate) workers: Option<usize>,
}

/// What inbound connections may do.
#[derive(Debug)]
pub(crate) struct Ingress {
    /// Connections at a time; more wait in the system's backlog.
    pub(crate) connections: usize,
    /// Bytes of a request head, and of the buffer that it is read into.
    pub(crate) head_bytes: usize,
    /// Time for a request head to arrive; also how long a connection may be idle.
    pub(crate) head_timeout: Duration,
    /// Deadline of a request that names none.
    pub(crate) deadline: Duration,
    /// The longest deadline that a request may name.
    pub(crate) longest_deadline: Duration,
    /// Whether a client that closes its sending half gives up its answer.
    pub(crate) early_abort: bool,
}

impl Ingress {
    pub(crate) const CONNECTIONS: std::ops::RangeInclusive<u64> = 1..=65_536;
    pub(crate) const HEAD_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=256 << 10;
    const HEAD_TIMEOUT: std::ops::RangeInclusive<u64> = 10..=300_000;
    const DEADLINE: std::ops::RangeInclusive<u64> = 1..=86_400_000;
}

const LISTEN: &str = "127.0.0.1:8080";
const GRACE: std::ops::RangeInclusive<u64> = 0..=600_000;

pub(super) fn read(root: &Section<'_>) -> Node {
    let listen = root.string("listen");
    let status = root.string("status");
    let listen_at = listen.clone().and_then(address);
    let status_at = status.clone().and_then(address);
    if let (Some(one), Some(other), Some(found)) = (listen_at, status_at, &status)
        && one == other
        && one.port() != 0
    {
        found.wrong("the same as listen; leave it out to serve the status page there");
    }
    let workers = root.count("workers").and_then(|found| {
        found.read(|count| match *count {
            1..=1_024 => Ok(*count as usize),
            _ => Err("must be 1 to 1024; leave it out for one thread per core"),
        })
    });
    Node {
        listen: listen_at.unwrap_or_else(|| LISTEN.parse().expect("the default address is one")),
        status: status_at,
        grace: time(root.duration("grace"), GRACE, Duration::from_secs(10)),
        close: time(root.duration("close"), GRACE, Duration::from_secs(5)),
        workers,
    }
}

pub(super) fn read_ingress(section: Section<'_>) -> Ingress {
    let deadline = section.duration("deadline");
    let longest = section.duration("longest_deadline");
    let ingress = Ingress {
        connections: number(section.count("connections"), Ingress::CONNECTIONS, 1_024),
        head_bytes: number(section.bytes("head_bytes"), Ingress::HEAD_BYTES, 16 << 10),
        head_timeout: time(section.duration("head_timeout"), Ingress::HEAD_TIMEOUT, Duration::from_secs(10)),
        deadline: time(deadline.clone(), Ingress::DEADLINE, Duration::from_secs(30)),
        longest_deadline: time(longest.clone(), Ingress::DEADLINE, Duration::from_secs(300)),
        early_abort: section.boolean("early_abort").unwrap_or(false),
    };
    if ingress.deadline > ingress.longest_deadline
        && let Some(found) = deadline.or(longest)
    {
        let (deadline, longest) = (units::show(ingress.deadline), units::show(ingress.longest_deadline));
        found.wrong(format!("deadline {deadline} must not be longer than longest_deadline {longest}"));
    }
    section.finish();
    ingress
}

pub(super) fn address(found: Found<'_, &str>) -> Option<SocketAddr> {
    found.read(|text| {
        text.parse().map_err(|_| "must be an address with a port, for example \"127.0.0.1:8080\"")
    })
}

fn number(found: Option<Found<'_, u64>>, range: std::ops::RangeInclusive<u64>, default: usize) -> usize {
    let Some(found) = found else { return default };
    if !range.contains(&found.value) {
        found.wrong(format!("must be {} to {}", range.start(), range.end()));
        return default;
    }
    usize::try_from(found.value).unwrap_or(default)
}

fn time(
    found: Option<Found<'_, Duration>>,
    millis: std::ops::RangeInclusive<u64>,
    default: Duration,
) -> Duration {
    let Some(found) = found else { return default };
    let (least, most) = (Duration::from_millis(*millis.start()), Duration::from_millis(*millis.end()));
    if !(least..=most).contains(&found.value) {
        found.wrong(format!("must be {} to {}", units::show(least), units::show(most)));
        return default;
    }
    found.value
}
