//! The model: what exists, in plain vectors, and what follows from it. It is written from the specification; it knows
//! nothing of words, arenas or turns.
//!
//! Nothing is counted as it happens. What should be counted is found by looking at all that exists, every time, so a
//! count that the library keeps can only agree with the model if it is the sum of what lives.

pub(crate) use super::expect::{Expect, Whose, why};
use super::jobs::{Job, What};
use super::maintenance::Permit;
use super::script::Settings;
use super::transfers::{Chunk, INPUT, OUTPUT, Transfer};
use latent_capabilities::broker::{Dimension, Terminal, fixed_cost};
use std::collections::VecDeque;

pub(crate) const TENANTS: usize = 4;
pub(crate) const PROVIDERS: usize = 3;
pub(crate) const MS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Admitted, has not asked for its turn.
    Staged,
    /// In line.
    Queued,
    /// Ended before a grant.
    Left,
    /// Has its running units.
    Granted,
    Started,
    /// Was granted, gave its running units back without a start.
    Returned,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) epochs: [Option<u64>; PROVIDERS],
    pub(crate) withdrawn: bool,
    pub(crate) revoked: [bool; PROVIDERS],
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) tenant: usize,
    pub(crate) plan: usize,
    pub(crate) open: bool,
    pub(crate) stopped: bool,
    /// Of an inbound event: nobody has it, it ends with its operation.
    pub(crate) inner: bool,
    pub(crate) deadline: u64,
    pub(crate) calls: u64,
    pub(crate) budget: Option<u64>,
}

/// Where a pool request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) provider: usize,
    pub(crate) client: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Oper {
    pub(crate) session: usize,
    pub(crate) tenant: usize,
    pub(crate) target: Option<Target>,
    pub(crate) phase: Phase,
    pub(crate) front: bool,
    /// Reasons for which it was ended; they stay.
    pub(crate) cause: u32,
    pub(crate) deadline: u64,
    pub(crate) queue_until: u64,
    /// Its place in the order of arrival in line.
    pub(crate) arrived: u64,
    pub(crate) output_left: u64,
    /// What its one transfer may carry, and whether it was made.
    pub(crate) stream: [u64; 2],
    pub(crate) transferred: bool,
    /// Ended in line, perhaps after a grant: see [`Model::hidden`].
    pub(crate) unsure: bool,
    /// Operations that an inbound event may still begin.
    pub(crate) operations: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) oper: usize,
    pub(crate) capacity: u64,
    pub(crate) framing: u64,
    pub(crate) retained: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) cursor: usize,
    /// The stream that delivered it.
    pub(crate) delivered: Option<usize>,
    /// Not in the caller's hands: in a ring, or with a write under way.
    pub(crate) away: bool,
}

impl Buffer {
    pub(crate) fn block(&self) -> u64 {
        self.capacity.max(512).next_power_of_two()
    }
    pub(crate) fn live(&self) -> &[u8] {
        &self.bytes[self.cursor..]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) oper: usize,
    pub(crate) depth: usize,
    pub(crate) writer: bool,
    pub(crate) reader: bool,
    pub(crate) ring: VecDeque<usize>,
    pub(crate) terminal: Option<Terminal>,
    /// The reader is gone, or has read the end.
    pub(crate) closed: bool,
    pub(crate) ended: Option<Terminal>,
    pub(crate) accepted: u64,
    pub(crate) gap: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Dialing(usize),
    Active(usize),
    Idle(u64),
}

/// Whether a connection has lived for its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Goes,
    PerhapsOver,
    Over,
}

#[derive(Clone, Debug)]
pub(crate) struct Conn {
    pub(crate) client: usize,
    pub(crate) link: Link,
    pub(crate) dead: bool,
    /// When it was made.
    pub(crate) born: u64,
    /// Its close failed.
    pub(crate) failed: bool,
    /// Which socket it is, once it is made.
    pub(crate) socket: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) provider: usize,
    pub(crate) epoch: u64,
    pub(crate) failures: u32,
    pub(crate) not_before: u64,
    /// Operations that wait for a connection, in order, and whether they were woken since.
    pub(crate) line: Vec<usize>,
}

/// All limits that are asked, with the live ones as they are now.
pub(crate) type Limits = Settings;

pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) now: u64,
    pub(crate) plans: Vec<Plan>,
    /// The installed epoch of each provider.
    pub(crate) installed: [Option<u64>; PROVIDERS],
    pub(crate) sessions: Vec<Option<Session>>,
    pub(crate) opers: Vec<Option<Oper>>,
    pub(crate) buffers: Vec<Option<Buffer>>,
    pub(crate) streams: Vec<Option<Stream>>,
    pub(crate) transfers: Vec<Option<Transfer>>,
    pub(crate) chunks: Vec<Option<Chunk>>,
    pub(crate) conns: Vec<Option<Conn>>,
    pub(crate) jobs: Vec<Option<Job>>,
    pub(crate) permits: Vec<Option<Permit>>,
    /// Panics that were contained.
    pub(crate) contained: u64,
    pub(crate) clients: Vec<Client>,
    pub(crate) arrivals: u64,
    pub(crate) closed: bool,
    pub(crate) retired: bool,
    /// The step may destroy an idle connection to make room for a dial.
    pub(crate) evicting: bool,
    /// Handles that were leaked: what they hold is held for ever.
    pub(crate) forgotten: u64,
    /// How many of the unsure operations, direct and pooled, were granted and returned before they left the line.
    pub(crate) hidden: [u64; 2],
    /// Unsure operations that went in this step.
    pub(crate) reaped_unsure: [u64; 2],
    /// Turns that a place of the rotation had while another one waited and could have had them: see `order.rs`.
    pub(crate) owed: super::order::Owed,
}

/// What is held, by the look at everything.
#[derive(Clone, Default, Debug)]
pub(crate) struct Used {
    pub(crate) owners: u64,
    pub(crate) queued: u64,
    pub(crate) running: u64,
    pub(crate) pending: u64,
    pub(crate) pool_running: u64,
    pub(crate) tenant_requests: [u64; TENANTS],
    pub(crate) tenant_running: [u64; TENANTS],
    pub(crate) provider_requests: [u64; PROVIDERS],
    pub(crate) provider_running: [u64; PROVIDERS],
    pub(crate) staged: u64,
    pub(crate) result: u64,
    pub(crate) tenant_bytes: [u64; TENANTS],
    pub(crate) buffers: u64,
    pub(crate) streams: u64,
    pub(crate) framing: u64,
    pub(crate) sessions: u64,
    pub(crate) connections: u64,
    pub(crate) active: u64,
    pub(crate) idle: u64,
    pub(crate) connecting: u64,
    pub(crate) of_replaced: u64,
    pub(crate) failed: u64,
    pub(crate) workers: u64,
    pub(crate) cleaners: u64,
}

impl Used {
    /// What `io.metadata_bytes` should say.
    pub(crate) fn io_metadata(&self) -> u64 {
        self.framing
            + self.owners * fixed_cost(Dimension::IoOwners)
            + self.buffers * fixed_cost(Dimension::IoBuffers)
            + self.streams * fixed_cost(Dimension::IoStreams)
    }
}

/// Puts a value into the first free place.
pub(crate) fn put<T>(places: &mut Vec<Option<T>>, value: T) -> usize {
    match places.iter().position(Option::is_none) {
        Some(free) => {
            places[free] = Some(value);
            free
        }
        None => {
            places.push(Some(value));
            places.len() - 1
        }
    }
}

/// The places that are taken and fit, in order.
pub(crate) fn which<T>(places: &[Option<T>], fits: impl Fn(&T) -> bool) -> Vec<usize> {
    let fit = |(at, place): (usize, &Option<T>)| place.as_ref().is_some_and(&fits).then_some(at);
    places.iter().enumerate().filter_map(fit).collect()
}

/// The `a`-th of the places that are taken and fit.
pub(crate) fn nth<T>(places: &[Option<T>], a: u16, fits: impl Fn(&T) -> bool) -> Option<usize> {
    let count = places.iter().flatten().filter(|value| fits(value)).count();
    let wanted = usize::from(a).checked_rem(count)?;
    let fit = |(at, place): (usize, &Option<T>)| place.as_ref().is_some_and(&fits).then_some(at);
    places.iter().enumerate().filter_map(fit).nth(wanted)
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Model {
        Model {
            limits,
            now: 0,
            plans: Vec::new(),
            installed: [None; PROVIDERS],
            sessions: Vec::new(),
            opers: Vec::new(),
            buffers: Vec::new(),
            streams: Vec::new(),
            transfers: Vec::new(),
            chunks: Vec::new(),
            conns: Vec::new(),
            jobs: Vec::new(),
            permits: Vec::new(),
            contained: 0,
            clients: Vec::new(),
            arrivals: 0,
            closed: false,
            retired: false,
            evicting: false,
            forgotten: 0,
            hidden: [0; 2],
            reaped_unsure: [0; 2],
            owed: super::order::Owed::default(),
        }
    }
    pub(crate) fn oper(&self, at: usize) -> &Oper {
        self.opers[at].as_ref().expect("a script's operation exists")
    }
    pub(crate) fn oper_mut(&mut self, at: usize) -> &mut Oper {
        self.opers[at].as_mut().expect("a script's operation exists")
    }
    pub(crate) fn session(&self, at: usize) -> &Session {
        self.sessions[at].as_ref().expect("an operation's session exists")
    }
    pub(crate) fn buffer(&self, at: usize) -> &Buffer {
        self.buffers[at].as_ref().expect("a script's buffer exists")
    }
    pub(crate) fn buffer_mut(&mut self, at: usize) -> &mut Buffer {
        self.buffers[at].as_mut().expect("a script's buffer exists")
    }
    pub(crate) fn stream(&self, at: usize) -> &Stream {
        self.streams[at].as_ref().expect("a script's stream exists")
    }
    pub(crate) fn stream_mut(&mut self, at: usize) -> &mut Stream {
        self.streams[at].as_mut().expect("a script's stream exists")
    }
    pub(crate) fn conn(&self, at: usize) -> &Conn {
        self.conns[at].as_ref().expect("a script's connection exists")
    }

    pub(crate) fn is_current(&self, client: usize) -> bool {
        let client = &self.clients[client];
        self.installed[client.provider] == Some(client.epoch)
    }

    /// Why an operation must not go on, and why it perhaps may not.
    pub(crate) fn stops(&self, at: usize) -> Expect {
        let oper = self.oper(at);
        let session = self.session(oper.session);
        let mut expect = Expect { must: oper.cause, ..Expect::default() };
        expect.when(session.stopped || !(session.open || session.inner), why::SESSION);
        expect.when(self.now >= oper.deadline, why::DEADLINE);
        expect.when(self.retired, why::RETIRED);
        let started = oper.phase == Phase::Started;
        if oper.target.is_some_and(|target| !self.is_current(target.client)) {
            match started {
                false => expect.may |= why::EPOCH,
                // An inbound event ends with its epoch.
                true => expect.when(session.inner, why::EPOCH),
            }
        }
        if self.now >= oper.queue_until && !matches!(oper.phase, Phase::Granted | Phase::Started) {
            expect.may |= why::QUEUE;
        }
        expect
    }

    /// So many of the unsure operations were returned. Sure again: none of them, or all.
    pub(crate) fn hide(&mut self, pooled: bool, hidden: u64) {
        let unsure = |oper: &&mut Oper| oper.unsure && oper.target.is_some() == pooled;
        let count = self.opers.iter_mut().flatten().filter(unsure).count() as u64;
        let all = hidden == count;
        if hidden == 0 || all {
            for oper in self.opers.iter_mut().flatten().filter(unsure) {
                oper.unsure = false;
                if all {
                    oper.phase = Phase::Returned;
                }
            }
        }
        self.hidden[usize::from(pooled)] = if all { 0 } else { hidden };
    }

    /// Whether anything still holds an operation.
    fn is_held(&self, at: usize) -> bool {
        self.oper(at).front
            || self.buffers.iter().flatten().any(|buffer| buffer.oper == at)
            || self.streams.iter().flatten().any(|stream| stream.oper == at)
            || self.transfers.iter().flatten().any(|transfer| transfer.oper == at)
            || self.conns.iter().flatten().any(|conn| match conn.link {
                Link::Dialing(oper) | Link::Active(oper) => oper == at,
                Link::Idle(_) => false,
            })
    }

    /// Forgets what nothing holds any more. Gives the operations that went.
    pub(crate) fn reap(&mut self) -> Vec<usize> {
        for at in 0..self.streams.len() {
            let Some(stream) = &self.streams[at] else { continue };
            let delivered = self.buffers.iter().flatten().any(|buffer| buffer.delivered == Some(at));
            if !stream.writer && !stream.reader && !delivered {
                self.streams[at] = None;
            }
        }
        for at in 0..self.transfers.len() {
            let Some(transfer) = &self.transfers[at] else { continue };
            if !transfer.open && !self.chunks.iter().flatten().any(|chunk| chunk.transfer == at) {
                self.transfers[at] = None;
            }
        }
        self.reap_permits();
        let mut gone = Vec::new();
        for at in 0..self.opers.len() {
            if self.opers[at].is_some() && !self.is_held(at) {
                let oper = self.oper(at);
                self.reaped_unsure[usize::from(oper.target.is_some())] += u64::from(oper.unsure);
                self.opers[at] = None;
                gone.push(at);
            }
        }
        for at in 0..self.sessions.len() {
            let open = self.sessions[at].as_ref().is_none_or(|session| session.open);
            if !open && !self.opers.iter().flatten().any(|oper| oper.session == at) {
                self.sessions[at] = None;
            }
        }
        gone
    }

    /// Looks at everything.
    pub(crate) fn used(&self) -> Used {
        let mut used = Used { sessions: self.sessions.iter().flatten().count() as u64, ..Used::default() };
        for oper in self.opers.iter().flatten() {
            used.owners += 1;
            let waits = matches!(oper.phase, Phase::Staged | Phase::Queued | Phase::Left);
            let runs = matches!(oper.phase, Phase::Granted | Phase::Started);
            used.queued += u64::from(waits);
            used.running += u64::from(runs);
            if let Some(target) = oper.target {
                used.pending += u64::from(waits);
                used.pool_running += u64::from(runs);
                used.tenant_requests[oper.tenant] += 1;
                used.tenant_running[oper.tenant] += u64::from(runs);
                used.provider_requests[target.provider] += 1;
                used.provider_running[target.provider] += u64::from(runs);
            }
        }
        let [direct, pooled] = self.hidden;
        used.queued = used.queued.saturating_sub(direct + pooled);
        used.pending = used.pending.saturating_sub(pooled);
        for buffer in self.buffers.iter().flatten() {
            let side = if buffer.retained { &mut used.result } else { &mut used.staged };
            *side += buffer.block();
            used.tenant_bytes[self.oper(buffer.oper).tenant] += buffer.block();
            used.buffers += 1;
            used.framing += buffer.framing;
        }
        used.streams = self.streams.iter().flatten().count() as u64;
        for (at, transfer) in self.transfers.iter().enumerate() {
            let Some(transfer) = transfer else { continue };
            let [input, output] = [INPUT, OUTPUT].map(|way| self.paid_places(at, way));
            used.streams += 1;
            used.buffers += input + 2 * output;
            used.staged += (input + output) * transfer.place();
            used.result += output * transfer.place();
            used.tenant_bytes[self.oper(transfer.oper).tenant] += (input + 2 * output) * transfer.place();
        }
        for conn in self.conns.iter().flatten() {
            used.connections += 1;
            match conn.link {
                Link::Dialing(_) => used.connecting += 1,
                Link::Active(_) => used.active += 1,
                Link::Idle(_) => used.idle += 1,
            }
            used.of_replaced += u64::from(!self.is_current(conn.client));
            used.failed += u64::from(conn.failed);
        }
        used.cleaners += self.permits.iter().flatten().count() as u64;
        for job in self.jobs.iter().flatten().filter(|job| job.has_place()) {
            match job.what {
                What::Close { .. } => used.cleaners += 1,
                What::Work { .. } | What::Control => used.workers += 1,
            }
        }
        used
    }

    /// Connections of a client, dials included.
    pub(crate) fn connections_of(&self, client: usize) -> u64 {
        self.conns.iter().flatten().filter(|conn| conn.client == client).count() as u64
    }
    pub(crate) fn is_dialing(&self, client: usize) -> bool {
        let dials = |conn: &Conn| conn.client == client && matches!(conn.link, Link::Dialing(_));
        self.conns.iter().flatten().any(dials)
    }
    pub(crate) fn has_connection(&self, oper: usize) -> bool {
        self.conns.iter().flatten().any(|conn| match conn.link {
            Link::Dialing(by) | Link::Active(by) => by == oper,
            Link::Idle(_) => false,
        })
    }
    /// Whether an idle connection may be handed out.
    pub(crate) fn is_usable(&self, conn: &Conn) -> bool {
        let rested =
            matches!(conn.link, Link::Idle(since) if self.now >= since + self.limits.idle_age * 10 * MS);
        let rests = matches!(conn.link, Link::Idle(_));
        rests && !rested && !conn.dead && self.life(conn) != Life::Over
    }
    /// Each connection lives for nine tenths of the longest time, or somewhat longer.
    pub(crate) fn life(&self, conn: &Conn) -> Life {
        let (lived, longest) = (self.now.saturating_sub(conn.born), self.limits.lifetime * 10 * MS);
        match longest {
            0 => Life::Goes,
            _ if lived >= longest => Life::Over,
            _ if lived >= longest - longest / 10 => Life::PerhapsOver,
            _ => Life::Goes,
        }
    }
    /// How long a dial has to wait.
    pub(crate) fn failed_dial(&mut self, client: usize) {
        let (first, most) = (self.limits.backoff_first, self.limits.backoff_most);
        let client = &mut self.clients[client];
        client.failures = (client.failures + 1).min(32);
        let pause = (first << (client.failures - 1).min(20)).min(most);
        client.not_before = self.now + pause * MS;
    }
}
