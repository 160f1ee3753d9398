//! `check`: says whether a configuration can be used, and explains every limit.

use std::fmt::Write;

use latent_capabilities::{Dimension, Group};

use crate::config::{Config, Source, units};
use crate::resources;

/// Every limit with its value, where that comes from, and how far it may go.
pub(crate) fn explain(config: &Config) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, config);
    text
}

fn write_all(out: &mut String, config: &Config) -> std::fmt::Result {
    let origins: usize = config.providers.iter().map(|provider| provider.http.origins.len()).sum();
    writeln!(
        out,
        "tenants {}, providers {}, origins {origins}",
        config.tenants.len(),
        config.providers.len()
    )?;
    for provider in &config.providers {
        for (slot, origin) in provider.http.origins.iter().enumerate() {
            writeln!(out, "  /http/{}@{slot}/  ->  {}", provider.name, origin.url)?;
        }
    }
    let (node, ingress) = (&config.node, &config.ingress);
    writeln!(out, "\nlisten {}", node.listen)?;
    match node.status {
        Some(address) => writeln!(out, "status page and snapshot on {address}")?,
        None => writeln!(out, "status page and snapshot on the same address")?,
    }
    match &config.admin {
        Some(admin) => writeln!(
            out,
            "operators on {} (rotate, limits, retire, snapshot, metrics), token from {}",
            admin.listen, admin.source
        )?,
        None => writeln!(out, "no listener for operators; [admin] makes one")?,
    }
    writeln!(out, "grace {}, then {} to close", units::show(node.grace), units::show(node.close))?;
    writeln!(
        out,
        "ingress: {} connections, heads of {} bytes within {}, deadline {} (at most {}), {}",
        ingress.connections,
        ingress.head_bytes,
        units::show(ingress.head_timeout),
        units::show(ingress.deadline),
        units::show(ingress.longest_deadline),
        if ingress.early_abort {
            "half-closed clients are given up"
        } else {
            "half-closed clients get their answer"
        },
    )?;
    writeln!(
        out,
        "all limits together: {} MiB of bytes, {} open files\n",
        resources::bytes_allowed(config).div_ceil(1 << 20),
        resources::descriptors_allowed(config)
    )?;
    writeln!(
        out,
        "{:<30}{:>12}  {:<12}{:>12}{:>12}  what it bounds",
        "limit", "value", "source", "default", "ceiling"
    )?;
    for dimension in Dimension::ALL.iter().copied() {
        let show = |value| dimension.show(value).to_string();
        let source = match config.limits.source(dimension) {
            Source::Default => "default".to_owned(),
            Source::Config(line) => format!("config:{line}"),
        };
        writeln!(
            out,
            "{:<30}{:>12}  {source:<12}{:>12}{:>12}  {}",
            dimension.name(),
            show(config.limits.value(dimension)),
            show(dimension.default_value()),
            show(dimension.ceiling()),
            dimension.about(),
        )?;
    }
    Ok(())
}

/// All limits of one group in one line, for the log at startup; those from the configuration carry a star.
pub(crate) fn summary(config: &Config, group: Group) -> String {
    let of_group = Dimension::ALL.iter().copied().filter(|dimension| dimension.group() == group);
    let each = of_group.map(|dimension| {
        let name = dimension.name().split_once('.').map_or(dimension.name(), |(_, field)| field);
        let star = match config.limits.source(dimension) {
            Source::Default => "",
            Source::Config(_) => "*",
        };
        let value = dimension.show(config.limits.value(dimension)).to_string().replace(' ', "");
        format!("{name}={value}{star}")
    });
    each.collect::<Vec<_>>().join(" ")
}
