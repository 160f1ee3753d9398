//! What the limits may come to, against what the machine has.

use latent_capabilities::Dimension;

use crate::config::Config;

/// The bytes that every limit together allows the node to hold, besides its own code and threads.
pub(crate) fn bytes_allowed(config: &Config) -> u64 {
    let library = [
        Dimension::IoStagedBytes,
        Dimension::IoResultBytes,
        Dimension::IoMetadataBytes,
        Dimension::BrokerMetadataBytes,
        Dimension::PoolsMetadataBytes,
    ];
    let library: u64 = library.iter().map(|dimension| config.limits.value(*dimension)).sum();
    // Each inbound connection has a buffer to read into and one to write from.
    let inbound = config.ingress.connections as u64 * 2 * config.ingress.head_bytes as u64;
    library + inbound
}

/// The file descriptors that every limit together allows the node to open.
pub(crate) fn descriptors_allowed(config: &Config) -> u64 {
    // Standard streams, listeners, the runtime's own, files that are read: rounded up.
    const OWN: u64 = 32;
    config.ingress.connections as u64 + config.limits.value(Dimension::PoolsConnections) + OWN
}

/// The memory that this process may use: the smaller of the machine's and the control group's.
fn memory_of_process() -> Option<u64> {
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok())
        .min();
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    group.into_iter().chain(machine).min()
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Compares the limits with the machine. `Err`: they cannot be kept. `Ok`: what is worth a warning.
pub(crate) fn compare(config: &Config) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    let wanted = bytes_allowed(config);
    if let Some(has) = memory_of_process() {
        weigh(wanted, has, &mut warnings)?;
    }
    let wanted = descriptors_allowed(config);
    if let Some(may) = raise_descriptors(wanted)
        && may < wanted
    {
        warnings.push(format!(
            "ingress.connections and pools.connections allow {wanted} open files, this process may open {may} \
             (ulimit -n): connections will be refused before the limits are reached"
        ));
    }
    if !config.node.listen.ip().is_loopback() {
        warnings.push(format!(
            "{} is not a loopback address, and tokens travel in the clear: put TLS in front",
            config.node.listen
        ));
    }
    Ok(warnings)
}

fn weigh(wanted: u64, has: u64, warnings: &mut Vec<String>) -> Result<(), String> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let compared = format!(
        "the limits (io.staged_bytes, io.result_bytes, *.metadata_bytes, ingress.connections x 2 x ingress.head_bytes) \
         allow {} MiB, this process may have {} MiB",
        mib(wanted),
        mib(has)
    );
    if wanted > has {
        return Err(format!("{compared}: lower them"));
    }
    if wanted > has / 4 * 3 {
        warnings.push(format!("{compared}: little is left for anything else"));
    }
    Ok(())
}

/// Raises the soft limit of open files as far as needed and allowed. Gives what it is then.
fn raise_descriptors(wanted: u64) -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current?;
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if soft >= wanted {
        return Some(soft);
    }
    limit.current = Some(wanted.min(hard));
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.current,
        Err(_) => Some(soft),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_above_the_memory_are_refused_and_near_it_warned_of() {
        let mut warnings = Vec::new();
        assert!(weigh(2 << 30, 1 << 30, &mut warnings).expect_err("too much").contains("allow 2048 MiB"));
        weigh(1 << 20, 1 << 30, &mut warnings).expect("little");
        assert_eq!(warnings.len(), 0);
        weigh(900 << 20, 1 << 30, &mut warnings).expect("fits");
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn total_memory_is_read() {
        assert_eq!(total("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(total("nothing"), None);
    }
}
