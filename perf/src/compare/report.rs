//! What was found: as a table to read, and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::machine::CONTROL;
use super::measure::{Group, Subject, middle};
use super::targets::{Bound, TARGETS, step};

/// Instructions of our operations, as `perf/check.sh` counts them.
const COUNTED: &str = include_str!("../../figures.txt");

/// Which count belongs to which group.
const COUNTS: &[(&str, &str)] = &[
    ("admit-now", "request_admitted_now.one"),
    ("admit-wait", "request_granted_at_once.one"),
    ("checkout", "connection_checkout_park.one"),
    ("stream-one", "stream_write_read.one"),
    ("buffer", "buffer_take_drop.untouched"),
];

/// One release with its grant, by what must not matter.
const GRANTS: [(&str, &str); 4] = [
    ("1 waiter", "release_and_grant.behind_2_waiters"),
    ("1,000 waiters", "release_and_grant.behind_1000_waiters"),
    ("1 blocked tenant", "release_and_grant.beside_1_blocked_tenant"),
    ("1,000 blocked tenants", "release_and_grant.beside_1000_blocked_tenants"),
];

fn counted(name: &str) -> Option<u64> {
    COUNTED.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// All that was found in one run.
pub(super) struct Report<'a> {
    groups: &'a [Group],
    step: f64,
    quick: bool,
    took: Duration,
    load: [String; 2],
}

/// The best of the peers, the control left out.
pub(super) fn best_peer(group: &Group) -> Option<&Subject> {
    group
        .subjects
        .iter()
        .filter(|subject| !subject.ours && subject.name != CONTROL)
        .min_by(|a, b| a.best().total_cmp(&b.best()))
}

/// The peer that the first condition on a group names, or the best one.
pub(super) fn judged_peer(group: &Group) -> Option<&Subject> {
    let target = TARGETS.iter().find(|target| target.key == group.key)?;
    target.must.iter().find_map(|bound| group.subject(bound.peer()?)).or_else(|| best_peer(group))
}

/// What else the machine does: its load average over one minute.
pub(super) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

impl<'a> Report<'a> {
    pub(super) fn new(groups: &'a [Group], quick: bool, took: Duration, load_before: String) -> Self {
        Self { groups, step: step(groups), quick, took, load: [load_before, load()] }
    }

    /// The tables.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a text can be written to");
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "R = {:.2} ns; best of all batches (two threads: the middle){}; load average {} before and {} after; {:.0} s",
            self.step,
            if self.quick { "; quick: figures are only a hint" } else { "" },
            self.load[0],
            self.load[1],
            self.took.as_secs_f64()
        )?;
        for group in self.groups {
            self.write_group(out, group)?;
        }
        self.write_verdicts(out)
    }

    fn write_group(&self, out: &mut String, group: &Group) -> std::fmt::Result {
        writeln!(out, "\n{} [{}]", group.title, group.key)?;
        if !group.note.is_empty() {
            writeln!(out, "  {}", group.note)?;
        }
        let twice = group.is_twice();
        let best = best_peer(group).map(Subject::best);
        let two = if twice { format!(" {:>8} {:>6}", "2 thr.", "scale") } else { String::new() };
        writeln!(
            out,
            "  {:<44} {:>8} {:>7}{two} {:>7} {:>6}  what it does not do",
            "", "ns", "R", "of best", "allocs"
        )?;
        for subject in &group.subjects {
            let two = match (subject.is_twice(), subject.both.is_empty()) {
                (true, false) => format!(" {:>8.1} {:>6.2}", subject.of_two(), subject.scale()),
                (true, true) => format!(" {:>8} {:>6}", "-", "-"),
                _ if twice => " ".repeat(16),
                _ => String::new(),
            };
            let of_best = match best {
                Some(best) if subject.name != CONTROL && group.key != "machine" => {
                    format!("{:.2}", subject.best() / best)
                }
                _ => "-".to_owned(),
            };
            let line = format!(
                "  {:<44} {:>8.1} {:>7.1}{two} {:>7} {:>6.2}  {}",
                subject.name,
                subject.best(),
                subject.best() / self.step,
                of_best,
                subject.blocks,
                subject.lacks
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        if twice {
            let together: usize = group.subjects.iter().map(|subject| subject.both.len()).sum();
            let apart: u32 = group.subjects.iter().map(|subject| subject.apart).sum();
            writeln!(
                out,
                "  batches in which both threads had a core: {together} of {}",
                together + apart as usize
            )?;
        }
        if let Some(count) = instructions(group.key) {
            writeln!(out, "  instructions of ours: {count} (counted by perf/check.sh)")?;
        }
        Ok(())
    }

    fn write_verdicts(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nwhat must hold, and what is aimed at (found, asked)")?;
        for target in TARGETS {
            let Some(group) = self.groups.iter().find(|group| group.key == target.key) else { continue };
            writeln!(out, "  {}", group.title)?;
            for (kind, bounds) in [("must", target.must), ("aim", target.aim)] {
                for bound in bounds {
                    let (mark, text) = self.judged(bound, group);
                    writeln!(out, "    {kind:<4}  {mark:<7}  {text}")?;
                }
            }
            if let Some(ours) = group.subjects.iter().find(|subject| subject.ours) {
                let met = if ours.blocks < 0.005 { "met" } else { "NOT MET" };
                writeln!(out, "    must  {met:<7}  {:.2} allocations per operation, asked 0", ours.blocks)?;
            }
        }
        let first = counted(GRANTS[0].1).unwrap_or(0);
        writeln!(out, "  instructions per release and grant (counted by perf/check.sh)")?;
        for (what, name) in GRANTS {
            let count = counted(name).unwrap_or(0);
            let ratio = count as f64 / first as f64;
            let met = |limit| if ratio <= limit { "met" } else { "NOT MET" };
            writeln!(
                out,
                "    {what}: {count}, {ratio:.3} times the first; must 1.2: {}, aim 1.05: {}",
                met(1.2),
                met(1.05)
            )?;
        }
        Ok(())
    }

    fn judged(&self, bound: &Bound, group: &Group) -> (&'static str, String) {
        match bound.judge(group, self.step) {
            Some(verdict) => (if verdict.met { "met" } else { "NOT MET" }, verdict.text),
            None => {
                ("unknown", "not measured: a peer is missing, or two threads never ran at once".to_owned())
            }
        }
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> String {
        let groups: Vec<Value> = self.groups.iter().map(|group| self.group_json(group)).collect();
        let whole = json!({
            "locked_step_ns": self.step,
            "quick": self.quick,
            "seconds": self.took.as_secs_f64(),
            "load_average": self.load,
            "groups": groups,
        });
        format!("{whole:#}\n")
    }

    fn group_json(&self, group: &Group) -> Value {
        let subjects: Vec<Value> = group
            .subjects
            .iter()
            .map(|subject| {
                let mut value = json!({
                    "name": subject.name,
                    "ours": subject.ours,
                    "best_ns": subject.best(),
                    "middle_ns": middle(&subject.times),
                    "allocations": subject.blocks,
                    "does_not": subject.lacks,
                });
                if subject.is_twice() {
                    value["two_threads_middle_ns"] = json!(subject.of_two());
                    value["batches_together"] = json!(subject.both.len());
                    value["batches_apart"] = json!(subject.apart);
                    value["scale"] = json!(subject.scale());
                }
                value
            })
            .collect();
        let verdicts: Vec<Value> = TARGETS
            .iter()
            .filter(|target| target.key == group.key)
            .flat_map(|target| [("must", target.must), ("aim", target.aim)])
            .flat_map(|(kind, bounds)| bounds.iter().map(move |bound| (kind, bound)))
            .map(|(kind, bound)| {
                let (met, found) = self.judged(bound, group);
                json!({ "kind": kind, "verdict": met, "found": found })
            })
            .collect();
        json!({
            "key": group.key,
            "title": group.title,
            "instructions": instructions(group.key),
            "subjects": subjects,
            "verdicts": verdicts,
        })
    }
}

fn instructions(key: &str) -> Option<u64> {
    COUNTS.iter().find(|(of, _)| *of == key).and_then(|(_, name)| counted(name))
}
