//! Whether `docs/invariants.md` is complete and true: every invariant that is numbered at the top of a file has its row there,
//! with the first sentence of its definition and with tests or models that exist, and every number that a comment of the
//! library cites is defined. Each test prints every place that breaks its rule.

#[path = "support/source.rs"]
#[allow(dead_code, reason = "the rules of the repository use the rest")]
mod source;

#[path = "support/named.rs"]
mod named;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use named::tests_of;
use source::{Source, files};

const DOCUMENT: &str = "docs/invariants.md";

/// Sentences about the whole library.
const SENTENCES: usize = 13;

/// Numbers that look like those of invariants and are something else: cases and behaviours have a document of their own.
const OTHERS: [&str; 1] = ["S"];

/// One row of a table.
#[derive(Debug)]
struct Row {
    /// The file that defines it; empty for the library's own.
    file: String,
    number: String,
    short: String,
    shown: String,
    line: usize,
}

impl Row {
    fn tests(&self) -> Vec<&str> {
        self.shown.split('`').skip(1).step_by(2).collect()
    }
    fn at(&self) -> String {
        format!("{DOCUMENT}:{}: {} {}", self.line, self.file, self.number)
    }
}

fn document() -> Source {
    let document = files(&[".md"]).into_iter().find(|file| file.name == DOCUMENT);
    document.unwrap_or_else(|| panic!("{DOCUMENT} does not exist"))
}

fn rows() -> Vec<Row> {
    let (mut rows, mut file) = (Vec::new(), String::new());
    for (line, number) in document().text.lines().zip(1..) {
        if let Some(name) = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`')) {
            name.clone_into(&mut file);
        }
        let Some(inside) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<_> = inside.split(" | ").map(str::to_owned).collect();
        let row = match cells.as_slice() {
            [name, shown] if name.parse::<u32>().is_ok() => ["", name.as_str(), "", shown.as_str()],
            [name, short, shown] if is_number(name) => [file.as_str(), name, short, shown],
            _ => continue,
        };
        let [file, name, short, shown] = row.map(str::to_owned);
        rows.push(Row { file, number: name, short, shown, line: number });
    }
    rows
}

/// One or two capital letters and one or two digits.
fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    (1..=2).contains(&(word.len() - digits.len()))
        && (1..=2).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The comment at the top of a file.
fn head(file: &Source) -> impl Iterator<Item = &str> {
    file.text.lines().map_while(|line| line.strip_prefix("//!"))
}

/// The invariants that are defined at the top of a file, with the whole definition.
fn defined(file: &Source) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in head(file) {
        let number =
            line.strip_prefix(" * ").and_then(|item| item.split_once(' ')).and_then(|(number, rest)| {
                let number = number.trim_matches('*').trim_end_matches('.');
                is_number(number).then(|| (number.to_owned(), rest.to_owned()))
            });
        match (number, found.last_mut()) {
            (Some(number), _) => {
                found.push(number);
                open = true;
            }
            (None, Some((_, text))) if open && line.starts_with("   ") => {
                text.push(' ');
                text.push_str(line.trim());
            }
            _ => open = false,
        }
    }
    found
}

/// Up to the first full stop. A row of a table has no bars inside.
fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.').replace('|', "/")
}

fn library() -> Vec<Source> {
    let library: Vec<_> = files(&[".rs"]).into_iter().filter(|file| file.name.starts_with("src/")).collect();
    assert!(!library.is_empty(), "the library was not found");
    library
}

fn no_findings(rule: &str, findings: &[String]) {
    let mut report = String::new();
    for finding in findings {
        writeln!(report, "  {finding}").expect("a text can be written to");
    }
    assert!(findings.is_empty(), "{rule}:\n{report}");
}

#[test]
fn every_invariant_has_one_row_with_its_first_sentence() {
    let rows = rows();
    let own = rows.iter().filter(|row| row.file.is_empty()).count();
    assert_eq!(own, SENTENCES, "rows of sentences about the whole library");
    let mut left: BTreeMap<_, _> =
        rows.iter().map(|row| ((row.file.clone(), row.number.clone()), row)).collect();
    assert_eq!(left.len(), rows.len(), "a row stands twice");
    left.retain(|(file, _), _| !file.is_empty());
    let mut findings = Vec::new();
    for file in library() {
        for (number, text) in defined(&file) {
            let wanted = first_sentence(&text);
            match left.remove(&(file.name.clone(), number.clone())) {
                None => findings.push(format!("{} {number} has no row: {wanted}.", file.name)),
                Some(row) if row.short.trim_end_matches('.') != wanted => {
                    findings.push(format!("{} says otherwise: {wanted}.", row.at()));
                }
                Some(_) => {}
            }
        }
    }
    findings.extend(left.values().map(|row| format!("{} is defined nowhere", row.at())));
    no_findings("invariants and their rows differ", &findings);
}

#[test]
fn every_invariant_names_tests_that_exist() {
    let tests = tests_of(&files(&[".rs"]));
    let mut findings = Vec::new();
    for row in rows() {
        let named = row.tests();
        if named.is_empty() {
            findings.push(format!("{}: names no test", row.at()));
        }
        let missing = named.into_iter().filter(|test| !tests.contains_key(*test));
        findings.extend(missing.map(|test| format!("{}: {test}", row.at())));
    }
    no_findings("invariants without a test, or with one that does not exist", &findings);
}

/// A comment of the library, of a model or of a test that cites a number cites one that is defined at the top of some file.
#[test]
fn every_number_that_is_cited_is_defined() {
    let all: BTreeSet<String> =
        library().iter().flat_map(|file| defined(file).into_iter().map(|(number, _)| number)).collect();
    let mut findings = Vec::new();
    let mut cited = 0;
    let cites = |file: &Source| file.name.starts_with("src/") || file.name.starts_with("loom-tests/");
    for file in files(&[".rs"]).iter().filter(|file| cites(file)) {
        for (line, number) in file.text.lines().zip(1..) {
            let Some((_, comment)) = line.split_once("//") else { continue };
            for word in
                comment.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| is_number(word))
            {
                let case = OTHERS
                    .iter()
                    .any(|letter| word.strip_prefix(letter).is_some_and(|digits| digits.len() == 2));
                cited += 1;
                if !case && !all.contains(word) {
                    findings.push(format!("{}:{number}: {word}: {}", file.name, line.trim()));
                }
            }
        }
    }
    assert!(cited > 100, "{cited} citations found: is this the library?");
    no_findings("a comment cites an invariant that no file defines", &findings);
}

// The reading itself.

#[test]
fn definitions_are_read_over_several_lines() {
    let text = "//! Of a word:\n//!\n//! * **M1.** It falls. Always\n//!   and ever.\n//! * PL12. Nothing\n//!   else | more.\n//! more\n\n//! * K3. too late\n";
    let file = Source { name: String::new(), text: text.to_owned(), code: text.to_owned() };
    let found = defined(&file);
    assert_eq!(found.iter().map(|(number, _)| number.as_str()).collect::<Vec<_>>(), ["M1", "PL12"]);
    assert_eq!(first_sentence(&found[0].1), "It falls");
    assert_eq!(first_sentence(&found[1].1), "Nothing else / more");
    assert!(["R1", "LW3", "M10"].iter().all(|number| is_number(number)));
    assert!(["S60x", "R", "ABC1", "R100", "r1", "1"].iter().all(|word| !is_number(word)));
}
