//! Whether `docs/conformance.md` is complete and true: every sentence, behaviour and case is in it once, and every test that
//! it names exists. Each test prints every row that breaks its rule.

#[path = "support/source.rs"]
#[allow(dead_code, reason = "the rules of the repository use the rest")]
mod source;

#[path = "support/named.rs"]
mod named;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use named::{module_of, tests_of};
use source::{Source, files, words};

const DOCUMENT: &str = "docs/conformance.md";

/// Sentences of the specification of `broker::io`.
const IO_SENTENCES: u32 = 105;
/// Sentences of the specification of `broker::pools`.
const POOLS_SENTENCES: u32 = 97;
/// Behaviours of the first implementation, of `broker::io` and `broker::pools`.
const BEHAVIOURS: u32 = 78;
/// Cases: what hurts those who run pools, queues and proxies.
const CASES: u32 = 60;
/// Rows that say `not yet`.
const NOT_YET: usize = 0;

/// What a row may say, and what it must then name: tests, and a reason beside them.
const STATES: [(&str, bool, bool); 6] = [
    ("tested", true, false),
    // Some of it is shown, some is out of scope: which, and why.
    ("in part", true, true),
    // It is done in another way: how, and why.
    ("departure", true, true),
    ("out of scope", false, true),
    // It states nothing that code can do.
    ("no claim", false, true),
    ("not yet", false, true),
];

/// One row of a table.
#[derive(Debug)]
struct Row {
    /// `io.12`, `pools.3`, `b.44`, `S08`.
    number: String,
    state: String,
    shown: String,
    /// The line in the document.
    line: usize,
}

impl Row {
    /// The tests it names: what stands in backticks and has a `::`.
    fn tests(&self) -> Vec<&str> {
        self.quoted().filter(|quoted| quoted.contains("::")).collect()
    }
    /// The files it names.
    fn files(&self) -> Vec<&str> {
        let ends = [".rs", ".md", ".toml"];
        let is_file = |quoted: &&str| {
            !quoted.contains("::") && quoted.contains('/') && ends.iter().any(|end| quoted.ends_with(end))
        };
        self.quoted().filter(is_file).collect()
    }
    fn quoted(&self) -> impl Iterator<Item = &str> {
        self.shown.split('`').skip(1).step_by(2)
    }
    /// What it says beside the names.
    fn reason(&self) -> String {
        let said: Vec<_> = self.shown.split('`').step_by(2).collect();
        said.join(" ")
    }
}

/// The rows of all tables, with the numbers of what they are about.
fn rows() -> Vec<Row> {
    let document = files(&[".md"]).into_iter().find(|file| file.name == DOCUMENT);
    let document = document.unwrap_or_else(|| panic!("{DOCUMENT} does not exist"));
    let mut rows = Vec::new();
    for (line, number) in document.text.lines().zip(1..) {
        let Some(inside) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<_> = inside.split(" | ").map(str::trim).collect();
        if !is_number(cells[0]) {
            continue;
        }
        assert_eq!(
            cells.len(),
            4,
            "{DOCUMENT}:{number}: a row has a number, words, a state and what shows it"
        );
        assert!(cells[1].len() >= 3, "{DOCUMENT}:{number}: what it is about is missing");
        let [number_cell, _, state, shown] = [0, 1, 2, 3].map(|at: usize| cells[at].to_owned());
        rows.push(Row { number: number_cell, state, shown, line: number });
    }
    rows
}

fn is_number(cell: &str) -> bool {
    let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    ["io.", "pools.", "b.", "S"].iter().any(|prefix| cell.strip_prefix(prefix).is_some_and(digits))
}

/// Every number that must have a row.
fn numbers() -> BTreeSet<String> {
    let series = |prefix: &'static str, last: u32| (1..=last).map(move |number| format!("{prefix}{number}"));
    let cases = (1..=CASES).map(|number| format!("S{number:02}"));
    let sentences = series("io.", IO_SENTENCES).chain(series("pools.", POOLS_SENTENCES));
    sentences.chain(series("b.", BEHAVIOURS)).chain(cases).collect()
}

fn no_findings(rule: &str, findings: &[String]) {
    let mut report = String::new();
    for finding in findings {
        writeln!(report, "  {finding}").expect("a text can be written to");
    }
    assert!(findings.is_empty(), "{rule}:\n{report}");
}

#[test]
fn every_number_has_exactly_one_row() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows() {
        *found.entry(row.number).or_default() += 1;
    }
    let wanted = numbers();
    let mut findings: Vec<_> =
        found.iter().filter(|&(_, &times)| times > 1).map(|(number, _)| format!("{number} twice")).collect();
    findings.extend(
        wanted.iter().filter(|&number| !found.contains_key(number)).map(|at| format!("{at} missing")),
    );
    findings
        .extend(found.keys().filter(|&number| !wanted.contains(number)).map(|at| format!("{at} is none")));
    no_findings("sentences, behaviours and cases that are not there once", &findings);
}

#[test]
fn every_row_says_what_its_state_asks_for() {
    let mut findings = Vec::new();
    let mut open = Vec::new();
    for row in rows() {
        let at = format!("{DOCUMENT}:{}: {}", row.line, row.number);
        let Some(&(_, tests, reason)) = STATES.iter().find(|(state, _, _)| *state == row.state) else {
            findings.push(format!("{at}: `{}` is no state", row.state));
            continue;
        };
        if tests && row.tests().is_empty() {
            findings.push(format!("{at}: names no test"));
        }
        // A few words, not a dash.
        if reason && row.reason().split_whitespace().count() < 3 {
            findings.push(format!("{at}: gives no reason"));
        }
        if row.state == "not yet" {
            open.push(row.number);
        }
    }
    no_findings("rows that do not say enough", &findings);
    assert_eq!(open.len(), NOT_YET, "rows that say `not yet`: {open:?}");
}

#[test]
fn every_test_that_is_named_exists() {
    let (tests, all) = (tests_of(&files(&[".rs"])), files(&[".rs", ".md", ".toml"]));
    let mut findings = Vec::new();
    for row in rows() {
        let missing = row.tests().into_iter().filter(|test| !tests.contains_key(*test));
        findings.extend(missing.map(|test| format!("{DOCUMENT}:{}: {test}", row.line)));
        let missing = row.files().into_iter().filter(|name| !all.iter().any(|file| file.name == *name));
        findings.extend(missing.map(|name| format!("{DOCUMENT}:{}: {name}", row.line)));
    }
    no_findings("tests and files that are named and do not exist", &findings);
}

/// Behaviours and cases: the test says itself which one it is, in its name or in the comment above it.
#[test]
fn a_test_of_a_behaviour_or_a_case_says_which_one() {
    let tests = tests_of(&files(&[".rs"]));
    let mut findings = Vec::new();
    for row in rows() {
        let says: fn(&str, &str, &str) -> bool = match row.number.split_at(1).0 {
            "b" => says_behaviour,
            "S" => says_case,
            _ => continue,
        };
        let named = row.tests();
        let number = row.number.trim_start_matches(['b', '.', 'S']);
        let said = |path: &&str| {
            let name = path.rsplit("::").next().unwrap_or(path);
            tests.get(*path).is_some_and(|comment| says(number, name, comment))
        };
        if !named.is_empty() && !named.iter().any(said) {
            findings.push(format!("{DOCUMENT}:{}: {}: {}", row.line, row.number, named.join(", ")));
        }
    }
    no_findings("behaviours and cases that none of their tests says to be", &findings);
}

/// `..._31`, or `(31)` in the comment.
fn says_behaviour(number: &str, name: &str, comment: &str) -> bool {
    name.split('_').any(|part| part == number) || words(comment, &format!("({number})")).next().is_some()
}

/// `s08_...`, `..._s08_...`, or `S08` in the comment.
fn says_case(number: &str, name: &str, comment: &str) -> bool {
    let (small, large) = (format!("s{number}"), format!("S{number}"));
    name.split('_').any(|part| part == small) || words(comment, &large).next().is_some()
}

// The reading itself.

#[test]
fn a_test_is_found_by_its_path() {
    let code = "// Not S01.\n\n/// S02: here.\n// And b (12).\n#[test]\nfn first() {}\nmod inner {\n    mod more {}\n    #[tokio::test(start_paused = true)]\n    async fn second_7() { if x {} }\n    fn third() {}\n}\n";
    let file = |name: &str| Source { name: name.to_owned(), text: code.to_owned(), code: code.to_owned() };
    let names =
        ["src/broker/io/mod.rs", "adapters/tests/http/main.rs", "node/src/config/tests.rs", "tests/tidy.rs"];
    let found = tests_of(&names.map(file));
    let roots = ["broker::io", "adapters/tests/http", "node/src::config::tests", "tests/tidy"];
    let wanted: BTreeSet<_> = roots
        .iter()
        .flat_map(|root| [format!("{root}::first"), format!("{root}::inner::second_7")])
        .collect();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    let comment = &found["tests/tidy::first"];
    assert!(says_case("02", "first", comment) && !says_case("01", "first", comment));
    assert!(says_behaviour("12", "first", comment) && says_behaviour("7", "second_7", ""));
    assert_eq!(
        module_of("loom-tests/tests/line.rs").expect("it is a file of tests"),
        ["loom-tests/tests/line"]
    );
}
