//! The counts of a snapshot in the text format of Prometheus.

use std::fmt::Write;

use serde_json::Value;

/// One line for each count, named `latent_` and its place in the snapshot; what a list tells of carries the list's names as
/// labels.
pub(super) fn text(snapshot: &Value) -> String {
    let mut out = String::with_capacity(4 << 10);
    for (group, fields) in snapshot.as_object().into_iter().flatten() {
        match fields {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(value) = number(value) {
                        one(&mut out, group, name, &[("", &value)]);
                    }
                }
            }
            Value::Array(rows) => list(&mut out, group, rows),
            _ => {}
        }
    }
    out
}

/// All rows of one field together, as the format wants it.
fn list(out: &mut String, group: &str, rows: &[Value]) {
    let Some(first) = rows.first().and_then(Value::as_object) else { return };
    for field in first.keys() {
        let each = rows.iter().filter_map(|row| Some((labels(row), number(row.get(field)?)?)));
        let each: Vec<(String, String)> = each.collect();
        if each.is_empty() {
            continue;
        }
        let lines: Vec<(&str, &String)> =
            each.iter().map(|(labels, value)| (labels.as_str(), value)).collect();
        one(out, group.trim_end_matches('s'), field, &lines);
    }
}

fn one(out: &mut String, group: &str, name: &str, lines: &[(&str, &String)]) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# TYPE latent_{group}_{name} gauge");
    for (labels, value) in lines {
        let _ = writeln!(out, "latent_{group}_{name}{labels} {value}");
    }
}

/// The texts of a row. Names are letters, digits, `-`, `_` and `.`: nothing in them needs a word before it.
fn labels(row: &Value) -> String {
    let texts = row.as_object().into_iter().flatten();
    let each = texts.filter_map(|(name, value)| Some(format!("{name}=\"{}\"", value.as_str()?)));
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
        let snapshot = json!({
            "io": {"closed": false, "owners": 2},
            "providers": [{"provider": "a", "epoch": 3}, {"provider": "b", "epoch": 1}],
        });
        let expected = "# TYPE latent_io_closed gauge\nlatent_io_closed 0\n# TYPE latent_io_owners gauge\n\
                        latent_io_owners 2\n# TYPE latent_provider_epoch gauge\n\
                        latent_provider_epoch{provider=\"a\"} 3\nlatent_provider_epoch{provider=\"b\"} 1\n";
        assert_eq!(text(&snapshot), expected);
    }
}
