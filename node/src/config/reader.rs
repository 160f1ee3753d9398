//! Walks a parsed TOML file. It notes where everything was written, which keys were asked for, and goes on after a
//! mistake, so that one run finds all of them.

use std::cell::RefCell;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems};
use super::secret::Secret;
use super::units;

/// Keys whose value is never shown.
const SECRET_KEYS: &[&str] = &["token", "credential"];

/// One table of the file.
pub(crate) struct Section<'a> {
    problems: &'a Problems,
    /// Dotted key of this table; empty for the file itself.
    path: String,
    line: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    asked: RefCell<Vec<&'static str>>,
}

/// A value that was found, with where.
#[derive(Clone)]
pub(crate) struct Found<'a, T> {
    problems: &'a Problems,
    pub(crate) key: String,
    pub(crate) line: usize,
    shown: Option<String>,
    pub(crate) value: T,
}

impl<'a, T> Found<'a, T> {
    /// Says what is wrong with this value.
    pub(crate) fn wrong(&self, text: impl Into<String>) {
        self.problems.add(Problem {
            line: Some(self.line),
            key: self.key.clone(),
            value: self.shown.clone(),
            text: text.into(),
        });
    }

    pub(crate) fn with<U>(&self, value: U) -> Found<'a, U> {
        Found {
            problems: self.problems,
            key: self.key.clone(),
            line: self.line,
            shown: self.shown.clone(),
            value,
        }
    }

    /// `read` of the value; its error is said as what is wrong.
    pub(crate) fn read<U, W: Into<String>>(self, read: impl FnOnce(&T) -> Result<U, W>) -> Option<U> {
        match read(&self.value) {
            Ok(value) => Some(value),
            Err(text) => {
                self.wrong(text);
                None
            }
        }
    }
}

impl<'a> Section<'a> {
    /// The file itself.
    pub(crate) fn root(problems: &'a Problems, table: &'a DeTable<'a>) -> Self {
        Self { problems, path: String::new(), line: None, table: Some(table), asked: RefCell::default() }
    }

    /// Where what is wrong is collected.
    pub(crate) fn problems(&self) -> &'a Problems {
        self.problems
    }

    /// The dotted key of `key` in this table; of the table itself if `key` is empty.
    fn key(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (_, true) => self.path.clone(),
            _ => format!("{}.{key}", self.path),
        }
    }

    /// Something that is missing from this table, or wrong with it as a whole.
    pub(crate) fn wrong(&self, key: &str, text: impl Into<String>) {
        self.problems.add(Problem { line: self.line, key: self.key(key), value: None, text: text.into() });
    }

    /// Whether the table was written at all.
    pub(crate) fn is_written(&self) -> bool {
        self.table.is_some()
    }

    /// Whether `key` was written in it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    fn raw(&self, key: &'static str) -> Option<Found<'a, &'a DeValue<'a>>> {
        self.asked.borrow_mut().push(key);
        self.any(key)
    }

    /// A value under a name that is not known beforehand.
    fn any(&self, key: &str) -> Option<Found<'a, &'a DeValue<'a>>> {
        let value = self.table?.get(key)?;
        Some(self.found(self.key(key), key, value))
    }

    fn found(&self, path: String, key: &str, value: &'a Spanned<DeValue<'a>>) -> Found<'a, &'a DeValue<'a>> {
        let shown = if SECRET_KEYS.contains(&key) { None } else { show(value.get_ref()) };
        Found {
            problems: self.problems,
            key: path,
            line: self.problems.line_of(value.span().start),
            shown,
            value: value.get_ref(),
        }
    }

    pub(crate) fn string(&self, key: &'static str) -> Option<Found<'a, &'a str>> {
        string(self.raw(key)?)
    }

    /// A string whose value is never shown.
    pub(crate) fn secret(&self, key: &'static str) -> Option<Found<'a, Secret>> {
        debug_assert!(SECRET_KEYS.contains(&key), "{key} would be shown in an error");
        let found = string(self.raw(key)?)?;
        Some(found.with(Secret::new(found.value)))
    }

    pub(crate) fn boolean(&self, key: &'static str) -> Option<bool> {
        self.raw(key)?.read(|value| value.as_bool().ok_or("must be true or false"))
    }

    pub(crate) fn count(&self, key: &'static str) -> Option<Found<'a, u64>> {
        count(self.raw(key)?)
    }

    pub(crate) fn duration(&self, key: &'static str) -> Option<Found<'a, Duration>> {
        let millis = millis(self.raw(key)?)?;
        Some(millis.with(Duration::from_millis(millis.value)))
    }

    pub(crate) fn bytes(&self, key: &'static str) -> Option<Found<'a, u64>> {
        bytes(self.raw(key)?)
    }

    pub(crate) fn strings(&self, key: &'static str) -> Option<Vec<Found<'a, &'a str>>> {
        let found = self.raw(key)?;
        let Some(array) = found.value.as_array() else {
            found.wrong("must be a list of strings, for example [\"one\", \"two\"]");
            return None;
        };
        let each = array
            .iter()
            .enumerate()
            .map(|(at, value)| string(self.found(format!("{}[{at}]", found.key), key, value)));
        Some(each.flatten().collect())
    }

    /// A table in this one; an empty section if it was not written.
    pub(crate) fn section(&self, key: &'static str) -> Section<'a> {
        let found = self.raw(key);
        let table = found.as_ref().and_then(|found| {
            let table = found.value.as_table();
            if table.is_none() {
                found.wrong(format!("must be a table: [{}]", found.key));
            }
            table
        });
        Section {
            problems: self.problems,
            path: self.key(key),
            line: found.map(|found| found.line),
            table,
            asked: RefCell::default(),
        }
    }

    /// A list of tables.
    pub(crate) fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let Some(found) = self.raw(key) else { return Vec::new() };
        let Some(array) = found.value.as_array() else {
            found.wrong(format!("must be a list of tables: [[{}]]", found.key));
            return Vec::new();
        };
        let each = array.iter().enumerate().filter_map(|(at, value)| {
            let found = self.found(format!("{}[{at}]", found.key), key, value);
            let Some(table) = found.value.as_table() else {
                found.wrong("must be a table");
                return None;
            };
            Some(Section {
                problems: self.problems,
                path: found.key,
                line: Some(found.line),
                table: Some(table),
                asked: RefCell::default(),
            })
        });
        each.collect()
    }

    /// A count, bytes or a time under a name from a table of names.
    pub(crate) fn limit(&self, key: &str, unit: latent_capabilities::Unit) -> Option<Found<'a, u64>> {
        use latent_capabilities::Unit;
        let found = self.any(key)?;
        match unit {
            Unit::Count => count(found),
            Unit::Bytes => bytes(found),
            Unit::Millis => millis(found),
        }
    }

    /// Refuses every key that nobody asked for.
    pub(crate) fn finish(self) {
        let asked = self.asked.borrow();
        self.refuse_unknown(asked.iter().copied());
    }

    /// Refuses every key that is not among these.
    pub(crate) fn refuse_unknown<'k>(&self, known: impl Iterator<Item = &'k str>) {
        let known: Vec<&str> = known.collect();
        for (key, _) in self.table.into_iter().flat_map(|table| table.iter()) {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let text = match nearest(name, &known) {
                Some(near) => format!("unknown key; did you mean {near}?"),
                None => format!("unknown key; known here: {}", known.join(", ")),
            };
            let line = Some(self.problems.line_of(key.span().start));
            self.problems.add(Problem { line, key: self.key(name), value: None, text });
        }
    }
}

fn string<'a>(found: Found<'a, &'a DeValue<'a>>) -> Option<Found<'a, &'a str>> {
    let text = found.clone().read(|value| value.as_str().ok_or("must be a string in quotes"))?;
    Some(found.with(text))
}

fn count<'a>(found: Found<'a, &'a DeValue<'a>>) -> Option<Found<'a, u64>> {
    let value = found.clone().read(|value| integer(value).ok_or("must be a whole number, 0 or more"))?;
    Some(found.with(value))
}

fn bytes<'a>(found: Found<'a, &'a DeValue<'a>>) -> Option<Found<'a, u64>> {
    let read = |value: &&DeValue<'_>| integer(value).or_else(|| units::bytes(value.as_str()?));
    let right = "must be a number of bytes, for example 65536 or \"64 KiB\" (B, KiB, MiB, GiB)";
    let value = found.clone().read(|value| read(value).ok_or(right))?;
    Some(found.with(value))
}

/// A time needs its unit: a bare number has been read as seconds by some and milliseconds by others too often.
fn millis<'a>(found: Found<'a, &'a DeValue<'a>>) -> Option<Found<'a, u64>> {
    let right = "must be a time with its unit, for example \"250 ms\" or \"5 s\" (ms, s, min, h)";
    let value = found.clone().read(|value| value.as_str().and_then(units::millis).ok_or(right))?;
    Some(found.with(value))
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The value as written, shortened. Lists and tables are not repeated: they may hold secrets, and are long.
fn show(value: &DeValue<'_>) -> Option<String> {
    let text = match value {
        DeValue::String(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
        DeValue::Integer(integer) => integer.as_str().to_owned(),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    };
    Some(text)
}

/// The known key that a slip of the keyboard may have meant.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let (distance, near) = known.iter().map(|key| (distance(name, key), *key)).min()?;
    (distance <= 2 || near.contains(name) && name.len() > 3).then_some(near)
}

/// How many letters must be put in, taken out or changed to come from one word to the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_key_that_was_meant() {
        let known = ["listen", "grace", "workers", "head_timeout"];
        assert_eq!(nearest("lisen", &known), Some("listen"));
        assert_eq!(nearest("timeout", &known), Some("head_timeout"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("x", &[]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
