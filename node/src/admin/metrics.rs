//! Counts and figures in the text format of Prometheus.

use std::fmt::Write;

use latent_capabilities::{Dimension, PoolFigures};
use serde_json::{Map, Value};

use super::full;
use crate::ingress::front::Desk;

/// What stands for a name in a list, though it is a number.
const NUMBERS_THAT_NAME: [&str; 2] = ["epoch", "origin"];

/// One line for each count, named `latent_` and its place in the snapshot; an entry of a list carries its names as labels.
pub(super) fn text(desk: &Desk) -> String {
    let mut out = String::with_capacity(16 << 10);
    if let Value::Object(mut all) = full(desk) {
        // These only grow, and have a form of their own.
        all.remove("figures");
        counts(&mut out, &all);
    }
    figures(&mut out, &desk.gateway.pools.figures());
    out
}

fn counts(out: &mut String, all: &Map<String, Value>) {
    for (group, fields) in all {
        match fields {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(value) = number(value) {
                        family(out, &format!("{group}_{name}"), "gauge", &[(String::new(), value)]);
                    }
                }
            }
            Value::Array(rows) => list(out, group.trim_end_matches('s'), rows),
            _ => {}
        }
    }
}

/// All entries of one field together, as the format wants it.
fn list(out: &mut String, group: &str, rows: &[Value]) {
    let Some(first) = rows.first().and_then(Value::as_object) else { return };
    for field in first.keys().filter(|field| !NUMBERS_THAT_NAME.contains(&field.as_str())) {
        let each = rows.iter().filter_map(|row| Some((labels(row), number(row.get(field)?)?)));
        family(out, &format!("{group}_{field}"), "gauge", &each.collect::<Vec<_>>());
    }
}

fn figures(out: &mut String, figures: &PoolFigures) {
    let one = |value: u64| [(String::new(), value.to_string())];
    family(out, "operations_total", "counter", &one(figures.operations));
    family(out, "grants_total", "counter", &one(figures.grants));
    let of = |(dimension, count): (Dimension, u64)| {
        (format!("{{dimension=\"{}\"}}", dimension.name()), count.to_string())
    };
    family(out, "refusals_total", "counter", &figures.all_refusals().map(of).collect::<Vec<_>>());
    family(out, "high_water", "gauge", &figures.all_high_water().map(of).collect::<Vec<_>>());

    let ages = &figures.queue_age;
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# TYPE latent_queue_age_seconds histogram");
    let mut below = 0;
    for (bound, count) in ages.buckets() {
        below += count;
        let bound = bound.map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
        let _ = writeln!(out, "latent_queue_age_seconds_bucket{{le=\"{bound}\"}} {below}");
    }
    let _ = writeln!(out, "latent_queue_age_seconds_sum {}", ages.total().as_secs_f64());
    let _ = writeln!(out, "latent_queue_age_seconds_count {}", ages.count());
}

fn family(out: &mut String, name: &str, kind: &str, lines: &[(String, String)]) {
    if lines.is_empty() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# TYPE latent_{name} {kind}");
    for (labels, value) in lines {
        let _ = writeln!(out, "latent_{name}{labels} {value}");
    }
}

/// What names an entry. Names are letters, digits, `-`, `_` and `.`: nothing in them needs escaping.
fn labels(row: &Value) -> String {
    let fields = row.as_object().into_iter().flatten();
    let each = fields.filter_map(|(name, value)| match value {
        Value::String(text) => Some(format!("{name}=\"{text}\"")),
        Value::Number(number) if NUMBERS_THAT_NAME.contains(&name.as_str()) => {
            Some(format!("{name}=\"{number}\""))
        }
        _ => None,
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() { String::new() } else { format!("{{{}}}", each.join(",")) }
}

fn number(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(set) => Some(u8::from(*set).to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_become_lines_and_names_become_labels() {
        let all = json!({
            "io": {"closed": false, "owners": 2},
            "epochs": [
                {"provider": "a", "epoch": 3, "connections": 0},
                {"provider": "b", "epoch": 1, "connections": 7},
            ],
        });
        let expected = "# TYPE latent_epoch_connections gauge\n\
                        latent_epoch_connections{epoch=\"3\",provider=\"a\"} 0\n\
                        latent_epoch_connections{epoch=\"1\",provider=\"b\"} 7\n\
                        # TYPE latent_io_closed gauge\nlatent_io_closed 0\n\
                        # TYPE latent_io_owners gauge\nlatent_io_owners 2\n";
        let mut out = String::new();
        counts(&mut out, all.as_object().expect("an object"));
        assert_eq!(out, expected);
    }
}
