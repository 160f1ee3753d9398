//! What the kernel says of a process, read from `/proc`.

use std::fs;
use std::path::PathBuf;

/// A process to look at.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    id: u32,
}

/// Context switches, summed over the threads that are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// A thread went to sleep: each wake-up of an idle process is one.
    pub voluntary: u64,
    /// A thread was taken off its core.
    pub involuntary: u64,
}

impl Process {
    /// This one.
    pub fn this() -> Self {
        Self { id: std::process::id() }
    }

    /// The one with this id.
    pub fn with_id(id: u32) -> Self {
        Self { id }
    }

    /// Resident memory in bytes.
    pub fn resident(self) -> u64 {
        self.status_value("VmRSS") * 1024
    }

    /// The highest resident memory so far, in bytes.
    pub fn resident_peak(self) -> u64 {
        self.status_value("VmHWM") * 1024
    }

    /// Address space in bytes: what is reserved, touched or not.
    pub fn reserved(self) -> u64 {
        self.status_value("VmSize") * 1024
    }

    /// Threads.
    pub fn threads(self) -> u64 {
        self.status_value("Threads")
    }

    /// Open descriptors. Looking at this process, the one that the look itself needs is left out.
    pub fn descriptors(self) -> usize {
        let open = fs::read_dir(self.folder().join("fd")).expect("the descriptors can be listed").count();
        if self.id == std::process::id() { open - 1 } else { open }
    }

    /// Context switches of all threads.
    pub fn switches(self) -> Switches {
        let mut sum = Switches::default();
        for task in fs::read_dir(self.folder().join("task")).expect("the threads can be listed") {
            let file = task.expect("an entry of the threads can be read").path().join("status");
            // A thread that ended meanwhile is none of the living.
            let Ok(status) = fs::read_to_string(file) else { continue };
            sum.voluntary += value(&status, "voluntary_ctxt_switches").unwrap_or(0);
            sum.involuntary += value(&status, "nonvoluntary_ctxt_switches").unwrap_or(0);
        }
        sum
    }

    fn folder(self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.id))
    }

    fn status_value(self, key: &str) -> u64 {
        let file = self.folder().join("status");
        let status = fs::read_to_string(&file).unwrap_or_else(|wrong| panic!("{}: {wrong}", file.display()));
        value(&status, key).unwrap_or_else(|| panic!("{}: no {key}", file.display()))
    }
}

/// The number behind `key:` in the text of a status file.
fn value(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}
