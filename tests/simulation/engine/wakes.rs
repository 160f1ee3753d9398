//! Wakes: who can go on was woken, and who stands in line was not.

use super::model::{Phase, why};
use super::real::{About, Task};
use super::world::{Law, World};
use std::collections::BTreeMap;

/// So many of an operation can wait in a cell of it. The others look for themselves, every ten milliseconds.
const CELLS: usize = 4;
const LOOK_EVERY: u64 = 10;

impl World {
    /// The operation whose stop a future waits for, beside what it is about.
    fn waits_for_stop(&self, task: &Task) -> Option<usize> {
        match task.about {
            About::Read(stream) | About::Write { stream, .. } => Some(self.m.stream(stream).oper),
            About::Place { transfer, .. } => Some(self.m.transfer(transfer).oper),
            About::Acquire(oper) => Some(oper),
            About::Wait(_) | About::Job(_) => None,
        }
    }
    /// Remembers operations of which more wait than have a cell: which of them has none is not to be seen.
    pub(crate) fn note_crowds(&mut self) {
        let mut waiting = BTreeMap::new();
        for task in self.tasks.iter().filter(|task| task.polled) {
            if let Some(oper) = self.waits_for_stop(task) {
                *waiting.entry(oper).or_insert(0) += 1;
            }
        }
        self.crowded.extend(waiting.into_iter().filter(|(_, count)| *count > CELLS).map(|(oper, _)| oper));
    }

    /// A future that could go on was woken; one that waits in line and was not granted, was not.
    pub(crate) fn wakes(&self, settled: bool) -> Law {
        for task in self.tasks.iter().filter(|task| task.polled) {
            let goes_on = match task.about {
                About::Wait(oper) => self.m.oper(oper).phase != Phase::Queued,
                About::Write { stream, .. } => self.m.write_goes_on(stream, settled),
                About::Read(stream) => self.m.read_goes_on(stream, settled),
                About::Place { transfer, way } => self.m.place_goes_on(transfer, way, settled),
                About::Job(job) => self.m.jobs[job].as_ref().is_some_and(|job| !job.has_place()),
                About::Acquire(_) => continue,
            };
            if goes_on && !task.is_woken() && !self.looks_for_itself(task, settled) {
                return Err(format!("wakes: {:?} can go on and was not woken", task.about));
            }
            if let About::Wait(oper) = task.about
                && !goes_on
                && task.is_woken()
            {
                return Err(format!("wakes: {:?} was woken for nothing", self.m.oper(oper)));
            }
        }
        Ok(())
    }
    /// Whether it may still learn of a stop by its own look.
    fn looks_for_itself(&self, task: &Task, settled: bool) -> bool {
        let looked = settled && self.passed >= LOOK_EVERY;
        let stopped = |oper: usize| self.m.stops(oper).must & !why::DEADLINE != 0;
        self.waits_for_stop(task).is_some_and(|oper| self.crowded.contains(&oper) && stopped(oper) && !looked)
    }
}
