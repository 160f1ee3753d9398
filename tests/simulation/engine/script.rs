//! The language: settings of a run, and its steps. Text in, text out, and a seeded writer of both.
//!
//! A step is a word and two numbers. The numbers choose among what exists at that moment (modulo), so every part of a
//! script is a script, and a failing one can be shrunk by leaving steps out.

use std::fmt;

/// SplitMix64: one word of state, the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

macro_rules! kinds {
    ($($(#[$about:meta])+ $name:ident $word:literal $weight:literal $($fault:ident)?;)+) => {
        /// What a step does.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind {$($(#[$about])+ $name,)+}

        impl Kind {
            pub(crate) const ALL: &'static [Kind] = &[$(Kind::$name,)+];

            pub(crate) fn word(self) -> &'static str {
                match self {$(Kind::$name => $word,)+}
            }
            /// How often it is written, relative to the others.
            fn weight(self) -> u64 {
                match self {$(Kind::$name => $weight,)+}
            }
            /// Whether it is a fault: half of them are never written in a run.
            pub(crate) fn is_fault(self) -> bool {
                match self {$(Kind::$name => matches!(stringify!($($fault)?), "fault"),)+}
            }
        }
    };
}

kinds! {
    /// Opens a session of tenant `a`; `b` says how long it lasts and what it may spend.
    Open "open" 22;
    /// Closes session `a`.
    Close "close" 6;
    /// Stops session `a`.
    StopSession "stop-session" 3 fault;
    /// Admits a request of session `a` to provider `b` (one more than there are: direct I/O), to be staged.
    Admit "admit" 50;
    /// The same, straight to ready or refused.
    AdmitNow "admit-now" 20;
    /// An inbound event of tenant `a` at provider `b`, at once or in its tenant's turn.
    Ingress "ingress" 12;
    /// Inbound event `a` begins one of its operations.
    BeginOperation "begin-operation" 6;
    /// The request that follows from call `a`, to provider `b`.
    FollowUp "follow-up" 8;
    /// Metadata of a protocol, `a` bytes, or given back.
    Metadata "metadata" 3;
    /// A permit for maintenance at provider `a`.
    Maintain "maintain" 4;
    /// Permit `a` begins its next request.
    BeginRequest "begin-request" 10;
    /// The request of permit `a` asks for the right to dial.
    MaintenanceDial "maintenance-dial" 14;
    /// The request of permit `a` ends, or the permit.
    EndMaintenance "end-maintenance" 8;
    /// Admission `a` asks for its turn, for the first time with the next poll.
    Wait "wait" 110;
    /// Polls future `a`, woken or not.
    Poll "poll" 90 fault;
    /// Polls the `a`-th of the woken futures.
    Run "run" 160;
    /// Drops future `a`.
    Cancel "cancel" 14 fault;
    /// Stops operation `a` from elsewhere.
    Stop "stop" 4 fault;
    /// Drops the front of operation `a`: the admission, the ready request or the call.
    Leave "leave" 44 fault;
    /// Dispatches ready request `a` at cost 1.
    Dispatch "dispatch" 160;
    /// A buffer of operation `a`, of `b` bytes: input before the start, output after it.
    Buffer "buffer" 60;
    /// Writes `b` bytes into buffer `a`.
    Fill "fill" 110;
    /// Makes a result of buffer `a`.
    Retain "retain" 40;
    /// Moves past `b` bytes of buffer `a`.
    Consume "consume" 16;
    /// Drops buffer `a`.
    Free "free" 70;
    /// A stream of call `a` with `b` places.
    Stream "stream" 18;
    /// Writes a buffer of its operation into stream `a`: a future.
    Write "write" 240;
    /// The same at once or not at all.
    TryWrite "try-write" 90;
    /// Reads from stream `a`: a future.
    Read "read" 45;
    /// The same at once or not at all.
    TryRead "try-read" 24;
    /// Ends stream `a`: complete, failed, uncertain, or by dropping the writer.
    Finish "finish" 24;
    /// Drops the reader of stream `a`.
    Shut "shut" 14 fault;
    /// A transfer of call `a`: chunks and places by `b`.
    Transfer "transfer" 24;
    /// Copies `b` bytes into transfer `a`.
    Send "send" 160;
    /// A buffer of transfer `a`, of `b` bytes.
    Receive "receive" 160;
    /// Writes `b` bytes into the buffer `a` of a transfer.
    FillChunk "fill-chunk" 240;
    /// Accepts what is in the buffer `a` of a transfer.
    FinishChunk "finish-chunk" 200;
    /// Drops the buffer or the chunk `a` of a transfer.
    FreeChunk "free-chunk" 120;
    /// Waits for a place of transfer `a`, in the direction that `b` says: a future.
    AwaitPlace "await-place" 90;
    /// Drops transfer `a`.
    DropTransfer "drop-transfer" 6;
    /// Moves pooled call `a` into a job.
    Spawn "spawn" 16;
    /// The same into one that blocks its thread.
    SpawnBlocking "spawn-blocking" 1 fault;
    /// Work of the operator, which blocks its thread.
    ControlWork "control-work" 1 fault;
    /// Closes connection `a` politely, in a job.
    CleanUp "clean-up" 16 fault;
    /// Job `a` ends as `b` says: answers, fails, panics.
    EndJob "end-job" 30;
    /// Wakes job `a` for nothing.
    WakeJob "wake-job" 3 fault;
    /// Asks for an idle connection for call `a`.
    Checkout "checkout" 22;
    /// Asks for the right to dial for call `a`.
    Reserve "reserve" 22;
    /// Waits for either, for call `a`: a future.
    Acquire "acquire" 30;
    /// The dial `a` succeeds.
    DialOk "dial-ok" 120;
    /// The dial `a` fails.
    DialFail "dial-fail" 12 fault;
    /// Parks connection `a`.
    Park "park" 90;
    /// Destroys connection `a`.
    Destroy "destroy" 14 fault;
    /// The peer closes connection `a`, wherever it is.
    Kill "kill" 8 fault;
    /// Destroys the idle connections of client `a`.
    CloseIdle "close-idle" 1 fault;
    /// Replaces the epoch of provider `a`, or installs it again.
    Rotate "rotate" 2 fault;
    /// Takes provider `a` away.
    RetireProvider "retire-provider" 1 fault;
    /// A new plan of tenant `a`, bound to what is installed.
    Seal "seal" 3;
    /// Revokes the operation of tenant `a`'s plan on provider `b`.
    Revoke "revoke" 1 fault;
    /// Withdraws the plan of tenant `a`.
    Withdraw "withdraw" 1 fault;
    /// Lowers limit `a`, by one.
    Lower "lower" 2 fault;
    /// Buffer `a` is leaked.
    Forget "forget" 1 fault;
    /// A future is polled with another waker.
    SwapWaker "swap-waker" 10 fault;
    /// Time goes to exactly the next instant at which something of an operation ends.
    Exact "exact" 4 fault;
    /// So many seconds pass in one step.
    Jump "jump" 1 fault;
    /// Time passes in pieces, and the control task runs once afterwards.
    Bunch "bunch" 4 fault;
    /// An installation that expects another epoch than there is.
    StaleInstall "stale-install" 2 fault;
    /// Another registry on the same broker.
    SecondRegistry "second-registry" 1 fault;
    /// Front `a` is dropped, and whoever is woken by that panics.
    LoudWake "loud-wake" 4 fault;
    /// Connection `a` is destroyed, and its destructor panics.
    LoudDestroy "loud-destroy" 4 fault;
    /// All that rests gets too old, and the destructors panic.
    LoudExpiry "loud-expiry" 2 fault;
    /// `a` milliseconds pass, few or many as `b` says, and the control task runs.
    Time "time" 10;
    /// The control task runs.
    Control "control" 5;
    /// Nothing is admitted any more.
    CloseAdmission "close-admission" 0 fault;
    /// The registry is retired.
    Retire "retire" 0 fault;
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) a: u16,
    pub(crate) b: u16,
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.kind.word(), self.a, self.b)
    }
}

macro_rules! settings {
    ($($name:ident $low:literal ..= $high:literal;)+) => {
        /// The limits of a run, all small. Bytes in units of 512, times in units of 10 ms, where the model says so.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub(crate) struct Settings {$(pub(crate) $name: u64,)+}

        impl Settings {
            fn lowest() -> Settings {
                Settings {$($name: $low,)+}
            }
            fn highest() -> Settings {
                Settings {$($name: $high,)+}
            }
            fn random(rng: &mut Rng) -> Settings {
                Settings {$($name: $low + rng.below($high - $low + 1),)+}
            }
            fn of_bytes(bytes: &mut impl Iterator<Item = u8>) -> Settings {
                let mut value = |low: u64, high: u64| {
                    let byte = u64::from(bytes.next().unwrap_or(0));
                    // A byte is a share of what is wide, and a number of what is not.
                    if high - low > 255 { low + (high - low) * byte / 255 } else { low + byte % (high - low + 1) }
                };
                Settings {$($name: value($low, $high),)+}
            }
            fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)+
                    _ => return false,
                }
                true
            }
            fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

settings! {
    tenants 1..=4;
    providers 1..=3;
    sessions 2..=8;
    calls_per_session 1..=6;
    owners 1..=12;
    running 1..=5;
    queued 1..=6;
    pool_running 1..=5;
    pending 1..=6;
    tenant_requests 1..=6;
    tenant_running 1..=4;
    provider_requests 1..=8;
    provider_running 1..=4;
    chunk_units 1..=2;
    staged_units 1..=8;
    result_units 1..=8;
    tenant_units 0..=8;
    buffers 1..=8;
    streams 1..=3;
    stream_chunks 1..=3;
    stream_bytes 200..=4000;
    output_bytes 0..=4000;
    stream_in 0..=4000;
    stream_out 0..=6000;
    queue_wait 1..=60;
    queue_age 1..=60;
    connections 1..=5;
    client_connections 1..=3;
    idle_connections 1..=4;
    idle_age 1..=60;
    workers 1..=3;
    cleanup_jobs 1..=3;
    lifetime 0..=90;
    leaks 0..=0;
    backoff_first 1..=50;
    backoff_most 1..=400;
    look_every 1..=1024;
}

impl Settings {
    /// Makes the limits agree with each other, as the rules between them demand.
    fn agree(mut self) -> Settings {
        self.owners = self.owners.max(self.running).max(self.queued);
        self.tenant_running = self.tenant_running.min(self.pool_running).min(self.tenant_requests);
        self.provider_running = self.provider_running.min(self.pool_running).min(self.provider_requests);
        self.staged_units = self.staged_units.max(self.chunk_units);
        self.result_units = self.result_units.max(self.chunk_units);
        if self.tenant_units > 0 {
            self.tenant_units =
                self.tenant_units.max(self.chunk_units).min(self.staged_units + self.result_units);
        }
        self.client_connections = self.client_connections.min(self.connections);
        self.idle_connections = self.idle_connections.min(self.connections);
        self.backoff_most = self.backoff_most.max(self.backoff_first);
        // In a third of the runs connections live for ever.
        self.lifetime = self.lifetime.saturating_sub(30);
        // Half of the runs look at every count after every step. As that takes back whatever is lent, the others do so seldom.
        self.look_every = self.look_every.saturating_sub(512).max(1);
        self
    }
    /// With as many requests as may be, and few looks.
    fn roomy(self) -> Settings {
        let most = Settings::highest();
        Settings {
            calls_per_session: most.calls_per_session,
            owners: most.owners,
            running: most.running,
            pool_running: most.pool_running,
            tenant_requests: most.tenant_requests,
            tenant_running: most.tenant_running,
            provider_requests: most.provider_requests,
            provider_running: most.provider_running,
            look_every: most.look_every,
            ..self
        }
    }
}

/// A whole run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Script {
    pub(crate) settings: Settings,
    pub(crate) ops: Vec<Op>,
}

impl Script {
    /// A script of bytes, any bytes: one for each limit, then five for each step.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Script {
        let mut bytes = bytes.iter().copied();
        let settings = Settings::of_bytes(&mut bytes).agree();
        let mut ops = Vec::new();
        while let (Some(kind), true) = (bytes.next(), ops.len() < 400) {
            let mut number = || u16::from_le_bytes([bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)]);
            let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
            ops.push(Op { kind, a: number(), b: number() });
        }
        Script { settings, ops }
    }

    /// Reads what [`fmt::Display`] writes. Lines that begin with `#` are comments.
    pub(crate) fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script { settings: Settings::lowest(), ops: Vec::new() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let (first, mut number) = (words.next().unwrap_or_default(), None);
            if first == "set" {
                number = words.next();
            }
            let mut value = || words.next().and_then(|word| word.parse::<u64>().ok());
            let (a, b) = (value(), value());
            match (number, a, b) {
                (Some(name), Some(to), None) if script.settings.set(name, to) => {}
                (None, Some(a), Some(b)) => {
                    let kind = Kind::ALL.iter().find(|kind| kind.word() == first);
                    let kind = *kind.ok_or_else(|| format!("no such step: {line}"))?;
                    script.ops.push(Op { kind, a: a as u16, b: b as u16 });
                }
                _ => return Err(format!("cannot be read: {line}")),
            }
        }
        Ok(script)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.settings.each() {
            writeln!(out, "set {name} {value}")?;
        }
        for op in &self.ops {
            writeln!(out, "{op}")?;
        }
        Ok(())
    }
}

/// Writes the script of a seed, step by step: its mix of steps (each kind never, as usual, or often; half of the faults never), and among those the
/// ones that are possible at that moment.
pub(crate) struct Writer {
    rng: Rng,
    /// Each kind as often as its weight says.
    mix: Vec<u8>,
    left: usize,
    /// Steps that are not chosen but come when so many are left.
    fixed: Vec<(usize, Kind)>,
}

impl Writer {
    pub(crate) fn of_seed(seed: u64, steps: usize, leaks: bool) -> (Settings, Writer) {
        let mut rng = Rng::new(seed);
        let calm = rng.below(3) == 0;
        let mut settings = Settings::random(&mut rng).agree();
        if calm {
            settings = settings.roomy();
        }
        // What is leaked keeps the memory of its node for the rest of the process, so few runs leak.
        settings.leaks = u64::from(leaks && rng.below(64) == 0);
        let mut mix = Vec::new();
        for (number, kind) in Kind::ALL.iter().enumerate() {
            let factor = [0, 2, 2, 2, 2, 2, 3, 6][rng.below(8) as usize];
            let vital = matches!(*kind, Kind::Open | Kind::Admit | Kind::Wait | Kind::Run | Kind::Dispatch);
            let factor = match kind.is_fault() {
                // A random half of the faults.
                true => factor * rng.below(2),
                false if vital => factor.max(2),
                false => factor,
            };
            // Credits are lent while nobody waits, nothing is refused and nobody counts: calm runs mostly go straight and end soon.
            let factor = match kind {
                Kind::AdmitNow | Kind::Dispatch | Kind::Leave if calm => 12,
                Kind::Admit if calm => rng.below(2),
                _ if calm && !vital => factor.min(rng.below(2)),
                _ => factor,
            };
            mix.extend(std::iter::repeat_n(number as u8, (kind.weight() * factor) as usize));
        }
        // Admission closes, or everything is retired, somewhere in the last tenth of some runs.
        let mut fixed = Vec::new();
        for (kind, often) in [(Kind::CloseAdmission, 4), (Kind::Retire, 3)] {
            if rng.below(often) == 0 {
                fixed.push((rng.below(steps as u64 / 10 + 1) as usize, kind));
            }
        }
        (settings, Writer { rng, mix, left: steps, fixed })
    }

    /// The next step, or `None` at the end.
    pub(crate) fn next(&mut self, can: impl Fn(Kind) -> bool) -> Option<Op> {
        if let Some(at) = self.fixed.iter().position(|(left, _)| *left >= self.left) {
            return Some(Op { kind: self.fixed.swap_remove(at).1, a: 0, b: 0 });
        }
        self.left = self.left.checked_sub(1)?;
        let mut kind = self.kind();
        // Some steps that find nothing to do are part of it.
        for _ in 0..24 {
            if can(kind) {
                break;
            }
            kind = self.kind();
        }
        Some(Op { kind, a: self.rng.next() as u16, b: self.rng.next() as u16 })
    }
    fn kind(&mut self) -> Kind {
        let at = self.rng.below(self.mix.len() as u64);
        Kind::ALL[usize::from(self.mix[at as usize])]
    }
}
