//! The log of a run, and the checker that replays it.
//!
//! Each call of the library is bracketed by two ticks of one counter that all threads share. From the brackets follow two
//! bounds on what is in use of a limit at any tick, without a look into the library:
//!
//! * *at most*: a unit counts from the tick before the call that may take it to the tick after the call that gave it back.
//!   If another thread may hold it a little longer, it counts to the end of the call in which that thread is: an
//!   installation looks at every request, and what it looks at lives until it has; whoever has the turn may have taken
//!   running units for a waiter that leaves meanwhile, and gives them back when it sees that; and it gives the place in line of
//!   whoever it has granted back when that one may have gone on already;
//! * *at least*: from the tick after the call that took it to the tick before the call that may give it back.
//!
//! The library's own count, attempts in flight included, lies between the two, but for what is being recalled: units that an
//! operation left as a credit are in the hands of whoever sweeps them, for another call, until that has given them to the words
//! (C5 of `queue::credit`). Which these are no bracket tells. So a refusal is also believed if each other thread that was in a
//! call may have had a cell of credits in its hands; how many need that is counted apart.
use latent_capabilities::{Dimension, Error};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A limit of one scope: of the node, or of the tenant, provider or client with this number. A client's right to dial is
/// counted as if it were a limit of one, under the initial backoff.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(pub(crate) Dimension, pub(crate) u32);

/// A call: the ticks before and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What a refusal said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// No room in the named limit.
    Full(Key),
    /// What room there is belongs to those who wait in front.
    Promised(Key),
    /// The provider with this number has a newer epoch than this one.
    Replaced(u32, u64),
    /// Nothing that a run can justify.
    Other(Error),
}

/// Limits that were asked for, and whether they came about.
type Lowering = (Span, Vec<(Dimension, u64)>, bool);

#[derive(Clone, Copy, Debug)]
struct Step {
    at: u64,
    /// Another thread may still hold the unit, and lets go before its present call returns.
    late: bool,
    most: i64,
    least: i64,
}

/// What one thread saw.
#[derive(Debug, Default)]
pub(crate) struct Log {
    steps: BTreeMap<Key, Vec<Step>>,
    refusals: Vec<(Span, Said)>,
    lowerings: Vec<Lowering>,
    /// Uses that a refused lowering named.
    named: Vec<(Span, Key, u64)>,
    installs: Vec<(Span, u32, u64)>,
    calls: Vec<Span>,
}

static TICKS: AtomicU64 = AtomicU64::new(1);

fn tick() -> u64 {
    TICKS.fetch_add(1, SeqCst)
}

struct Current {
    log: Log,
    /// Units whose resource was destroyed in the present call, whoever they belonged to.
    destroyed: Option<Vec<Key>>,
}

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::new(Current { log: Log::default(), destroyed: None });
}

fn with<R>(f: impl FnOnce(&mut Log) -> R) -> R {
    CURRENT.with_borrow_mut(|current| f(&mut current.log))
}

/// The log of this thread, which starts a new one.
pub(crate) fn take_log() -> Log {
    with(std::mem::take)
}

/// Brackets a call of the library.
pub(crate) fn call<R>(f: impl FnOnce() -> R) -> (R, Span) {
    CURRENT.with_borrow_mut(|current| current.destroyed = Some(Vec::new()));
    let from = tick();
    let result = f();
    let span = Span { from, to: tick() };
    let destroyed = CURRENT.with_borrow_mut(|current| {
        current.log.calls.push(span);
        current.destroyed.take()
    });
    for key in destroyed.into_iter().flatten() {
        gave(key, span);
    }
    (result, span)
}

/// A resource was destroyed, and with it these units are given back before the present call of this thread returns. Outside
/// of any call it is the control task that destroys: when it has given them back, nobody knows.
pub(crate) fn destroyed(keys: &[Key]) {
    CURRENT.with_borrow_mut(|current| match &mut current.destroyed {
        Some(list) => list.extend_from_slice(keys),
        None => panic!("no run lets connections expire"),
    });
}

fn step(key: Key, at: u64, most: i64, least: i64) {
    note(key, Step { at, late: false, most, least });
}

fn note(key: Key, step: Step) {
    with(|log| log.steps.entry(key).or_default().push(step));
}

/// The call took a unit.
pub(crate) fn took(key: Key, span: Span) {
    step(key, span.from, 1, 0);
    step(key, span.to, 0, 1);
}
/// From before the call on, a unit may be taken.
pub(crate) fn may_take(key: Key, span: Span) {
    step(key, span.from, 1, 0);
}
/// A unit that might be taken has been, as the call shows.
pub(crate) fn was_taken(key: Key, span: Span) {
    step(key, span.to, 0, 1);
}
/// A unit that might be taken is not, or not any more, once the call has returned.
pub(crate) fn is_not_taken(key: Key, span: Span) {
    step(key, span.to, -1, 0);
}
/// As [`is_not_taken`], but whoever has the turn may still hold the unit: for a waiter that left, or of one that was granted.
pub(crate) fn was_left(key: Key, span: Span) {
    note(key, Step { at: span.to, late: true, most: -1, least: 0 });
}
/// From before the call on, a unit may be given back.
pub(crate) fn may_give(key: Key, span: Span) {
    step(key, span.from, 0, -1);
}
/// The call gave a unit back.
pub(crate) fn gave(key: Key, span: Span) {
    may_give(key, span);
    is_not_taken(key, span);
}
/// The call may have held a unit for a moment.
pub(crate) fn tried(key: Key, span: Span) {
    may_take(key, span);
    is_not_taken(key, span);
}
/// The call was refused.
pub(crate) fn refused(span: Span, said: Said) {
    with(|log| log.refusals.push((span, said)));
}
/// The call lowered limits, or was to.
pub(crate) fn lowered(span: Span, asked: Vec<(Dimension, u64)>, done: bool) {
    with(|log| log.lowerings.push((span, asked, done)));
}
/// A lowering was refused because so much is in use.
pub(crate) fn in_use(span: Span, key: Key, found: u64) {
    with(|log| log.named.push((span, key, found)));
}
/// The call installed this epoch of the provider.
pub(crate) fn installed(span: Span, provider: u32, epoch: u64) {
    with(|log| log.installs.push((span, provider, epoch)));
}

/// What the checker found. All of them are counts of refusals.
#[derive(Debug, Default, Clone)]
pub(crate) struct Verdict {
    /// Use alone, as low as it can have been, filled the limit throughout the call.
    pub(crate) certain: u64,
    /// Use, as high as it can have been, filled the limit at some instant of the call.
    pub(crate) explained: u64,
    /// Only with the units that a lowering in flight was about to take.
    pub(crate) by_lowering: u64,
    /// Only with the credits that others, who were in a call, may just have been recalling.
    pub(crate) by_recall: u64,
    /// Somebody waited in front.
    pub(crate) promised: u64,
    /// The epoch was replaced.
    pub(crate) replaced: u64,
    /// Nobody waited any more, but somebody had until the call before: the mark was not yet off.
    pub(crate) late_marks: u64,
    /// Uses that refused lowerings named, all of them possible.
    pub(crate) named: u64,
    pub(crate) accepted_lowerings: u64,
    pub(crate) refused_lowerings: u64,
    pub(crate) installs: u64,
    pub(crate) calls: u64,
    /// What nothing justifies, in words.
    pub(crate) unjustified: Vec<String>,
    pub(crate) by_limit: BTreeMap<&'static str, u64>,
}

impl Verdict {
    pub(crate) fn refusals(&self) -> u64 {
        let justified = self.certain + self.explained + self.by_lowering + self.by_recall + self.promised;
        justified + self.replaced + self.late_marks + self.unjustified.len() as u64
    }
    pub(crate) fn add(&mut self, other: Verdict) {
        self.certain += other.certain;
        self.explained += other.explained;
        self.by_lowering += other.by_lowering;
        self.by_recall += other.by_recall;
        self.promised += other.promised;
        self.replaced += other.replaced;
        self.late_marks += other.late_marks;
        self.named += other.named;
        self.accepted_lowerings += other.accepted_lowerings;
        self.refused_lowerings += other.refused_lowerings;
        self.installs += other.installs;
        self.calls += other.calls;
        self.unjustified.extend(other.unjustified);
        for (limit, count) in other.by_limit {
            *self.by_limit.entry(limit).or_default() += count;
        }
    }
}

/// The use of one limit over the ticks: what holds from each tick on.
struct Timeline(Vec<Step>);

impl Timeline {
    fn new(mut steps: Vec<Step>) -> Timeline {
        steps.sort_by_key(|step| step.at);
        let (mut most, mut least) = (0, 0);
        for step in &mut steps {
            most += step.most;
            least += step.least;
            (step.most, step.least) = (most, least);
        }
        Timeline(steps)
    }
    /// The highest *at most* and the lowest *at least* from the first tick to the second.
    fn within(&self, span: Span) -> (i64, i64) {
        let first = self.0.partition_point(|step| step.at <= span.from);
        let before = first.checked_sub(1).map_or((0, 0), |at| (self.0[at].most, self.0[at].least));
        let inside = self.0[first..].iter().take_while(|step| step.at <= span.to);
        inside.fold(before, |(most, least), step| (most.max(step.most), least.min(step.least)))
    }
}

/// The limits over a run, from one log of all threads.
struct Run<'a> {
    timelines: BTreeMap<Key, Timeline>,
    startup: &'a dyn Fn(Dimension) -> u64,
    lowerings: Vec<Lowering>,
    installs: Vec<(Span, u32, u64)>,
    /// By thread, in their order.
    calls: Vec<Vec<Span>>,
}

impl Run<'_> {
    /// When a unit that was given back in this step was so for sure.
    fn let_go(&self, step: Step) -> u64 {
        let installs = self.installs.iter().map(|(span, _, _)| *span);
        let looks = installs.filter(|span| (span.from..span.to).contains(&step.at)).map(|span| span.to);
        // Each thread is in one call at most.
        let under_way = |calls: &Vec<Span>| {
            let last = calls.partition_point(|call| call.from < step.at).checked_sub(1)?;
            (step.late && calls[last].to > step.at).then_some(calls[last].to)
        };
        looks.chain(self.calls.iter().filter_map(under_way)).max().unwrap_or(step.at)
    }
    fn within(&self, key: Key, span: Span) -> (i64, i64) {
        self.timelines.get(&key).map_or((0, 0), |timeline| timeline.within(span))
    }
    /// The limit as it was before anything that the call met, and the lowest that anybody asked for by its end.
    fn limits(&self, dimension: Dimension, span: Span) -> (i64, i64) {
        let asked = |counts: &dyn Fn(Span, bool) -> bool| {
            let values = self.lowerings.iter().filter(|(lowering, _, done)| counts(*lowering, *done));
            let values = values.flat_map(|(_, asked, _)| asked.iter().filter(|one| one.0 == dimension));
            let lowest = values.map(|one| one.1).min().unwrap_or(u64::MAX);
            lowest.min((self.startup)(dimension)) as i64
        };
        let before = asked(&|lowering, done| done && lowering.to < span.from);
        let lowest = asked(&|lowering, done| lowering.from < span.to && (done || lowering.to > span.from));
        (before, lowest)
    }
    /// How many units of a limit others can have had in their hands during a call of this thread: of one cell of credits each.
    fn being_recalled(&self, dimension: Dimension, thread: usize, span: Span) -> i64 {
        const OF_A_CELL: i64 = 3;
        let in_a_call = |calls: &Vec<Span>| {
            let after = calls.partition_point(|call| call.from < span.to);
            after.checked_sub(1).is_some_and(|last| calls[last].to > span.from)
        };
        let others =
            self.calls.iter().enumerate().filter(|(number, calls)| *number != thread && in_a_call(calls));
        if is_of_requests(dimension) { OF_A_CELL * others.count() as i64 } else { 0 }
    }
    fn judge(&self, thread: usize, span: Span, said: Said, verdict: &mut Verdict) {
        match said {
            Said::Full(key) => {
                *verdict.by_limit.entry(key.0.name()).or_default() += 1;
                let (most, least) = self.within(key, span);
                // The caller's own attempt is one of the units that may have been taken, and not what refused it.
                let others = most - 1;
                let (limit, lowest) = self.limits(key.0, span);
                match () {
                    () if least >= limit => verdict.certain += 1,
                    () if others >= limit => verdict.explained += 1,
                    () if others >= lowest => verdict.by_lowering += 1,
                    () if others + self.being_recalled(key.0, thread, span) >= lowest => {
                        verdict.by_recall += 1
                    }
                    () => verdict.unjustified.push(format!(
                        "{key:?} was full for {span:?}: at most {others} of {lowest} were in use"
                    )),
                }
            }
            Said::Promised(key) => {
                *verdict.by_limit.entry("promised").or_default() += 1;
                // Waiters are counted under the queue age.
                let waits = |span| self.within(Key(Dimension::PoolsQueueAge, 0), span).0;
                match () {
                    () if waits(span) > 0 => verdict.promised += 1,
                    () if waits(Span { from: span.from.saturating_sub(64), to: span.to }) > 0 => {
                        verdict.late_marks += 1;
                    }
                    () => verdict.unjustified.push(format!("{key:?} was promised, and nobody waited")),
                }
            }
            Said::Replaced(provider, epoch) => {
                let newer = |(install, number, new): &(Span, u32, u64)| {
                    *number == provider && *new > epoch && install.from < span.to
                };
                match self.installs.iter().any(newer) {
                    true => verdict.replaced += 1,
                    false => verdict.unjustified.push(format!("epoch {epoch} was the current one")),
                }
            }
            Said::Other(error) => verdict.unjustified.push(format!("{span:?}: {error}")),
        }
    }
}

fn is_of_requests(dimension: Dimension) -> bool {
    use Dimension::*;
    let of_tenant = matches!(dimension, PoolsRequestsPerTenant | PoolsRunningPerTenant);
    let of_provider = matches!(dimension, PoolsRequestsPerProvider | PoolsRunningPerProvider);
    of_tenant || of_provider || matches!(dimension, PoolsPending | PoolsRunning)
}

/// Replays the logs of all threads of one run and judges every refusal.
pub(crate) fn check(logs: Vec<Log>, startup: &dyn Fn(Dimension) -> u64) -> Verdict {
    let mut verdict = Verdict::default();
    let (mut steps, mut refusals, mut named) = (BTreeMap::<Key, Vec<Step>>::new(), Vec::new(), Vec::new());
    let mut run = Run {
        timelines: BTreeMap::new(),
        startup,
        lowerings: Vec::new(),
        installs: Vec::new(),
        calls: Vec::new(),
    };
    for log in logs {
        for (key, more) in log.steps {
            steps.entry(key).or_default().extend(more);
        }
        refusals.extend(log.refusals.into_iter().map(|(span, said)| (run.calls.len(), span, said)));
        named.extend(log.named);
        run.lowerings.extend(log.lowerings);
        run.installs.extend(log.installs);
        verdict.calls += log.calls.len() as u64;
        run.calls.push(log.calls);
    }
    for (_, steps) in steps.iter_mut().filter(|(key, _)| is_of_requests(key.0)) {
        steps.iter_mut().filter(|step| step.most < 0).for_each(|step| step.at = run.let_go(*step));
    }
    run.timelines = steps.into_iter().map(|(key, steps)| (key, Timeline::new(steps))).collect();
    for (key, timeline) in &run.timelines {
        if let Some(last) = timeline.0.last()
            && (last.most, last.least) != (0, 0)
        {
            verdict.unjustified.push(format!("the log of {key:?} does not add up: {last:?}"));
        }
    }
    verdict.installs = run.installs.len() as u64;
    verdict.accepted_lowerings = run.lowerings.iter().filter(|lowering| lowering.2).count() as u64;
    verdict.refused_lowerings = run.lowerings.len() as u64 - verdict.accepted_lowerings;
    for (thread, span, said) in refusals {
        run.judge(thread, span, said, &mut verdict);
    }
    for (span, key, found) in named {
        let (most, least) = run.within(key, span);
        match (least..=most).contains(&(found as i64)) {
            true => verdict.named += 1,
            false => verdict
                .unjustified
                .push(format!("a lowering named {found} in use of {key:?}, not {least} to {most}")),
        }
    }
    verdict
}
