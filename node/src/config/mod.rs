//! Configuration: what an operator writes, read and checked as a whole before anything starts.
//!
//! | file | holds |
//! | --- | --- |
//! | `reader` | walks the TOML file, notes lines, goes on after mistakes |
//! | `problem` | what is wrong, all of it |
//! | `node` | listening, times, ingress |
//! | `admin` | the listener of operators |
//! | `tenants`, `providers`, `limits` | the sections of these names |
//! | `bounds` | what bounds one call of a provider |
//! | `secret`, `units` | text that is never shown; numbers with a unit |

mod admin;
mod bounds;
mod limits;
mod node;
mod problem;
mod providers;
mod reader;
mod secret;
mod tenants;
pub(crate) mod units;

use std::io::Read;
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use zeroize::Zeroizing;

pub(crate) use admin::Admin;
pub(crate) use limits::{Limits, Source};
pub(crate) use node::{Ingress, Node};
pub(crate) use problem::Refused;
pub(crate) use providers::Provider;
pub(crate) use secret::Secret;
pub(crate) use tenants::Tenant;

use problem::{Problem, Problems};
use reader::Section;

/// The largest file that is read: far above what the ceilings allow to be used.
const LARGEST_FILE: u64 = 16 << 20;

/// A configuration without mistakes.
#[derive(Debug)]
pub(crate) struct Config {
    /// Where it was read from, to read it again.
    pub(crate) file: PathBuf,
    /// Listening, times.
    pub(crate) node: Node,
    /// The listener of operators, if there is to be one.
    pub(crate) admin: Option<Admin>,
    /// What inbound connections may do.
    pub(crate) ingress: Ingress,
    /// Every limit of the library, with where its value comes from.
    pub(crate) limits: Limits,
    /// Who may call.
    pub(crate) tenants: Vec<Tenant>,
    /// What may be called.
    pub(crate) providers: Vec<Provider>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub(crate) fn load(file: &Path) -> Result<Self, Refused> {
        let unreadable = |error: std::io::Error| Refused::whole(file, format!("cannot be read: {error}"));
        let length = std::fs::metadata(file).map_err(unreadable)?.len();
        if length > LARGEST_FILE {
            return Err(Refused::whole(file, format!("{length} bytes; at most {LARGEST_FILE} are read")));
        }
        // Bounded again: a pipe or a device has no length to look at, and a file may grow.
        let mut content = Zeroizing::new(String::new());
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        let read = opened.take(LARGEST_FILE + 1).read_to_string(&mut content).map_err(unreadable)?;
        if read as u64 > LARGEST_FILE {
            return Err(Refused::whole(file, format!("endless; at most {LARGEST_FILE} bytes are read")));
        }
        Self::parse(file, &content)
    }

    /// Checks the content of a file.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub(crate) fn parse(file: &Path, content: &str) -> Result<Self, Refused> {
        let problems = Problems::new(file, content);
        let (table, errors) = DeTable::parse_recoverable(content);
        for error in &errors {
            // The message only: the error's `Display` repeats the line, which may hold a token.
            let line = error.span().map(|span| problems.line_of(span.start));
            let text = format!("not TOML: {}", error.message().replace('\n', "; "));
            problems.add(Problem { line, key: String::new(), value: None, text });
        }
        if !errors.is_empty() {
            // What could be recovered of a broken file is a guess: judging it would add noise.
            problems.finish()?;
            return Err(Refused::whole(file, "not TOML"));
        }
        let root = Section::root(&problems, table.get_ref());
        let node = node::read(&root);
        let ingress = node::read_ingress(root.section("ingress"));
        let limits = limits::read(root.section("limits"));
        let providers = providers::read(root.sections("providers"), &limits);
        let tenants = tenants::read(root.sections("tenants"), &providers, &limits, &ingress);
        tenants::check_grants(&problems, &tenants, &limits);
        let admin = admin::read(root.section("admin"), &node, &tenants);
        if !root.has("tenants") {
            problems.add_general("tenants", "missing: nobody could call; write at least one [[tenants]]");
        }
        if !root.has("providers") {
            problems.add_general(
                "providers",
                "missing: nothing could be called; write at least one [[providers]]",
            );
        }
        root.finish();
        problems.finish()?;
        Ok(Self { file: file.to_owned(), node, admin, ingress, limits, tenants, providers })
    }
}

/// Names stand in URLs, logs and the library's plans: letters, digits, `-`, `_` and `.`, 1 to 64 of them.
fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(letter) && text.bytes().any(|byte| byte != b'.')
}

/// The name of a section, which no other of its kind may have.
fn read_name(section: &Section<'_>, others: &mut Vec<(String, usize)>) -> String {
    let Some(found) = section.string("name") else {
        if !section.has("name") {
            section.wrong("name", "missing: every entry needs a name of its own");
        }
        return String::new();
    };
    if !is_name(found.value) {
        found.wrong("must be 1 to 64 letters, digits, '-', '_' or '.'");
    } else if let Some((_, line)) = others.iter().find(|(other, _)| other == found.value) {
        found.wrong(format!("used already in line {line}: every name must be used once"));
    } else {
        others.push((found.value.to_owned(), found.line));
    }
    found.value.to_owned()
}

/// A file named by the configuration, relative to its folder.
fn read_file(problems: &Problems, name: &str, largest: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let path = problems.folder().join(name);
    let unreadable = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let file = std::fs::File::open(&path).map_err(unreadable)?;
    // Read into one allocation, so that no copy of a secret is left where the vector grew.
    let mut content = Zeroizing::new(Vec::with_capacity(largest + 1));
    file.take(largest as u64 + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() > largest {
        return Err(format!("{} is longer than {largest} bytes", path.display()));
    }
    Ok(content)
}

#[cfg(test)]
mod tests;
