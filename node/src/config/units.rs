//! Numbers with a unit: `"64 KiB"`, `"2s"`, `"250 ms"`.

use std::time::Duration;

const BYTES: &[(&str, u64)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
const MILLIS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("min", 60_000), ("m", 60_000), ("h", 3_600_000)];

/// Bytes, from a number with `B`, `KiB`, `MiB` or `GiB`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    scaled(text, BYTES)
}

/// Milliseconds, from a number with `ms`, `s`, `min` (or `m`) or `h`.
pub(crate) fn millis(text: &str) -> Option<u64> {
    scaled(text, MILLIS)
}

/// A whole number, then a unit of the table; thousands may be parted by `_`.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(word, _)| *word == unit.trim_start())?;
    number.replace('_', "").parse::<u64>().ok()?.checked_mul(*scale)
}

/// A time for people: `250 ms`, `2 s`, `1 min`.
pub(crate) fn show(time: Duration) -> String {
    let millis = time.as_millis();
    match millis {
        0 => "0 ms".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{} h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{} min", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{} s", millis / 1_000),
        _ => format!("{millis} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_needs_a_unit_of_its_kind() {
        let read = [
            (bytes("0 B"), Some(0)),
            (bytes("64KiB"), Some(65_536)),
            (bytes(" 1_000 MiB "), Some(1_048_576_000)),
            (bytes("64"), None),
            (bytes("64 kb"), None),
            (bytes("1.5 MiB"), None),
            (bytes("99999999999 GiB"), None),
            (millis("250ms"), Some(250)),
            (millis("5 s"), Some(5_000)),
            (millis("1m"), Some(60_000)),
            (millis("-1 s"), None),
            (millis("s"), None),
        ];
        for (found, expected) in read {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_time_is_shown_in_its_largest_whole_unit() {
        let shown = [(0, "0 ms"), (250, "250 ms"), (1_500, "1500 ms"), (2_000, "2 s"), (60_000, "1 min")];
        for (time, text) in shown {
            assert_eq!(show(Duration::from_millis(time)), text);
        }
    }
}
