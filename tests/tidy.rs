//! Rules of this repository that no compiler checks. Each test prints every place that breaks its rule.

#[path = "support/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use source::{Source, code_of, files, words};

/// The folders that hold shipped Rust code.
const SHIPPED: [&str; 4] = ["src/", "adapters/src/", "node/src/", "wasmtime/src/"];

/// Lines of one shipped file.
const LONGEST: usize = 560;

/// The floors from the ground up. A file may use its own floor and those before it.
const FLOORS: [&[&str]; 7] = [
    &["sync", "broken", "foreign", "time"],
    &["mem"],
    &["account"],
    &["queue"],
    &["broker"],
    &["broker::io"],
    &["broker::pools"],
];

fn shipped() -> Vec<Source> {
    files(&[".rs"])
        .into_iter()
        .filter(|file| SHIPPED.iter().any(|folder| file.name.starts_with(folder)))
        .collect()
}

fn library() -> Vec<Source> {
    let library: Vec<_> = files(&[".rs"]).into_iter().filter(|file| file.name.starts_with("src/")).collect();
    assert!(!library.is_empty(), "the library was not found");
    library
}

/// Whether the whole file is compiled for tests only: its name says so.
fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs")
        || name.ends_with("_tests.rs")
        || name.contains("/conformance/")
        || name.contains("/tests/")
}

fn no_findings(rule: &str, findings: &[String]) {
    let mut report = String::new();
    for finding in findings {
        writeln!(report, "  {finding}").expect("a text can be written to");
    }
    assert!(findings.is_empty(), "{rule}:\n{report}");
}

/// Every place in `code` where one of `banned` stands as a word.
fn find(file: &Source, code: &str, banned: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for word in banned {
        for offset in words(code, word) {
            let place = file.place(offset);
            found.push(format!("{}: {}", place.at, place.line));
        }
    }
    found
}

#[test]
fn unsafe_code_lives_in_mem_only() {
    let mut findings = Vec::new();
    for file in shipped().iter().filter(|file| !file.name.starts_with("src/mem/")) {
        findings.extend(find(file, &file.code, &["unsafe"]));
        let allows = file.code.lines().zip(1..).filter(|(line, _)| {
            ["allow(", "warn(", "expect("].iter().any(|attribute| line.contains(attribute))
                && line.contains("unsafe_code")
        });
        findings.extend(allows.map(|(line, number)| format!("{}:{number}: {}", file.name, line.trim())));
    }
    no_findings("`unsafe` outside src/mem", &findings);
}

#[test]
fn every_reason_for_unsafe_code_names_an_invariant() {
    let library = library();
    let memory = || library.iter().filter(|file| file.name.starts_with("src/mem/"));
    // An arena is written in several files and cites the park cell, so the heads of the whole folder count.
    let heads = memory().flat_map(|file| {
        file.text.lines().take_while(|line| line.starts_with("//!") || line.trim().is_empty())
    });
    let defined: BTreeSet<String> = heads.flat_map(invariants).collect();
    let mut findings = Vec::new();
    for file in memory() {
        for (line, number) in file.text.lines().zip(1..) {
            let Some((_, reason)) = line.split_once(concat!("// SAF", "ETY:")) else { continue };
            let named = invariants(reason);
            if named.is_empty() || named.iter().any(|name| !defined.contains(name)) {
                findings.push(format!("{}:{number}: {}", file.name, line.trim()));
            }
        }
    }
    no_findings("a SAFETY comment without an invariant (M1, R2, ...) from the top of a file", &findings);
}

/// The names of invariants in a line: a capital letter and a number.
fn invariants(line: &str) -> Vec<String> {
    let parts = line.split(|c: char| !c.is_alphanumeric());
    let names = parts.filter(|part| {
        part.split_at_checked(1).is_some_and(|(letter, number)| {
            letter.chars().all(|letter| letter.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
        })
    });
    names.map(str::to_owned).collect()
}

#[test]
fn memory_orders_and_atomics_come_from_sync() {
    let mut findings = Vec::new();
    // `broken` has one static flag that outlives every model; loom's atomics cannot be static.
    let doors = ["src/sync.rs", "src/sync/doubles.rs", "src/broken.rs"];
    for file in
        library().iter().filter(|file| !doors.contains(&file.name.as_str()) && !is_test_file(&file.name))
    {
        let code = file.library_code();
        let banned = ["Ordering::Relaxed", "Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel"];
        findings.extend(find(file, &code, &banned));
        let banned =
            ["SeqCst", "sync::atomic", "cell::UnsafeCell", "loom::sync", "loom::cell", "loom::thread"];
        findings
            .extend(find(file, &code, &banned).into_iter().filter(|line| !line.contains("crate::sync::")));
    }
    no_findings("orders, atomics and cells that the models cannot see", &findings);
}

#[test]
fn nothing_is_left_undone_or_ignored() {
    let mut findings = Vec::new();
    for file in files(&[".rs"]) {
        findings.extend(find(&file, &file.code, &["#[ignore", "todo!(", "unimplemented!(", "dbg!("]));
    }
    no_findings("unfinished or ignored", &findings);
}

#[test]
fn the_library_does_not_unwrap() {
    let mut findings = Vec::new();
    for file in library().iter().filter(|file| !is_test_file(&file.name)) {
        findings.extend(find(file, &file.library_code(), &[".unwrap()", ".unwrap_err()", ".expect(\"\")"]));
    }
    no_findings("an unwrap names no invariant", &findings);
}

/// A lock that nobody else holds is not seen by RealtimeSanitizer (`realtime`), so each function that takes one says so to it.
#[test]
fn every_function_that_takes_a_lock_is_marked() {
    let (mut findings, mut locks) = (Vec::new(), 0);
    for file in library().iter().filter(|file| !is_test_file(&file.name)) {
        let code = file.library_code();
        findings.extend(find(file, &code, &["RwLock", "Condvar", "Barrier", "LazyLock", ".try_lock("]));
        for (offset, _) in code.match_indices(".lock(") {
            locks += 1;
            let function = words(&code[..offset], "fn").last().expect("a lock is taken in a function");
            let before = file.text[..function].lines().rev().nth(1).unwrap_or("");
            if !before.contains("sanitize(realtime = \"blocking\")") {
                findings.push(file.place(offset).at);
            }
        }
    }
    assert!(locks >= 3, "{locks} locks found");
    no_findings("a lock that the sanitizer cannot see", &findings);
}

#[test]
fn no_file_is_longer_than_one_subject() {
    let long = shipped().into_iter().map(|file| (file.text.lines().count(), file.name));
    let findings: Vec<_> = long
        .filter(|(lines, _)| *lines > LONGEST)
        .map(|(lines, name)| format!("{name}: {lines} lines"))
        .collect();
    no_findings("files of more lines than one subject needs", &findings);
}

#[test]
fn no_file_names_a_folder_of_somebodys_machine() {
    // Taken apart, so that this file does not find itself.
    let folders =
        [concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/"), concat!("/tmp/", "target")];
    let mut findings = Vec::new();
    for file in files(&[".rs", ".md", ".toml", ".sh", ".yml", ".py", "run"]) {
        for (line, number) in file.text.lines().zip(1..) {
            if folders.iter().any(|folder| line.contains(folder)) {
                findings.push(format!("{}:{number}: {}", file.name, line.trim()));
            }
        }
    }
    no_findings("paths of one machine", &findings);
}

#[test]
fn dependencies_point_down_only() {
    let mut findings = Vec::new();
    for file in library().iter().filter(|file| !is_test_file(&file.name)) {
        let Some(floor) = floor_of(&module_of(&file.name)) else { continue };
        for (offset, path) in paths(&file.library_code(), &module_of(&file.name)) {
            if floor_of(&path).is_some_and(|used| used > floor) {
                findings.push(format!("{}: {}", file.place(offset).at, path.join("::")));
            }
        }
    }
    no_findings("a floor uses what lies above it", &findings);
}

/// The module that a file of the library is: `src/broker/io/mod.rs` is `broker::io`.
fn module_of(name: &str) -> Vec<String> {
    let name = name.strip_prefix("src/").unwrap_or(name).trim_end_matches(".rs");
    let name = name.strip_suffix("/mod").unwrap_or(name);
    name.split('/').filter(|part| *part != "lib").map(str::to_owned).collect()
}

/// Which floor a module or a path into it belongs to: the last one of which it is a part.
fn floor_of(path: &[String]) -> Option<usize> {
    let path = format!("{}::", path.join("::"));
    FLOORS.iter().rposition(|floor| floor.iter().any(|module| path.starts_with(&format!("{module}::"))))
}

/// Every path in `code` that begins with `crate::` or `super::`, from the root of the crate; groups in braces are spread.
/// What a module declares or gives out itself (`mod x;`, `pub use x::...`) is none of these.
fn paths(code: &str, module: &[String]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for offset in words(code, "crate") {
        if let Some(rest) = code[offset + 5..].strip_prefix("::") {
            spread(rest, &mut Vec::new(), &mut |path| found.push((offset, path.to_vec())));
        }
    }
    for offset in words(code, "super") {
        if code[..offset].ends_with("super::") {
            continue;
        }
        let (mut rest, mut base) = (&code[offset..], module.to_vec());
        while let Some(after) = rest.strip_prefix("super::") {
            rest = after;
            base.pop();
        }
        spread(rest, &mut base, &mut |path| found.push((offset, path.to_vec())));
    }
    found
}

/// Calls `each` with every path that `text` begins with, below `base`.
fn spread<'a>(mut text: &'a str, base: &mut Vec<String>, each: &mut impl FnMut(&[String])) -> &'a str {
    let depth = base.len();
    loop {
        text = text.trim_start();
        if let Some(mut group) = text.strip_prefix('{') {
            loop {
                group = spread(group, base, each).trim_start();
                match group.strip_prefix(',') {
                    Some(after) => group = after,
                    None => break,
                }
            }
            base.truncate(depth);
            return group.strip_prefix('}').unwrap_or(group);
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if !name.is_empty() {
            base.push(name.to_owned());
        }
        match rest.strip_prefix("::") {
            Some(after) => text = after,
            None => {
                each(base);
                base.truncate(depth);
                let rest = rest.trim_start();
                // `name as other`
                return rest.strip_prefix("as ").map_or(rest, |alias| {
                    alias.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
                });
            }
        }
    }
}

#[test]
fn every_document_that_is_linked_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(root.join("README.md").is_file(), "README.md does not exist");
    let mut findings = Vec::new();
    for file in files(&[".md"]) {
        let folder = root.join(&file.name).parent().expect("a file lies in a folder").to_path_buf();
        for (line, number) in file.text.lines().zip(1..) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let target = link.split('#').next().unwrap_or("");
                if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                    findings.push(format!("{}:{number}: {link}", file.name));
                }
            }
            // `docs/architecture.md` in backticks is a promise too.
            for named in line
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
            {
                if !root.join(named).exists() {
                    findings.push(format!("{}:{number}: {named}", file.name));
                }
            }
        }
    }
    no_findings("links to what does not exist", &findings);
}

#[test]
fn every_package_takes_the_lints_of_the_workspace() {
    let manifests = files(&["Cargo.toml"]);
    let takes = |file: &Source| file.text.contains("[lints]\nworkspace = true");
    // Workspaces of their own.
    let own = |file: &Source| ["fuzz/", "mutants/"].iter().any(|folder| file.name.starts_with(folder));
    // The fuzz targets are a workspace of their own.
    let findings: Vec<_> = manifests
        .iter()
        .filter(|file| file.text.contains("[package]") && !own(file) && !takes(file))
        .map(|file| file.name.clone())
        .collect();
    assert!(manifests.len() >= 5, "{} packages found", manifests.len());
    no_findings("packages without `[lints] workspace = true`", &findings);
}

// The reading itself.

#[test]
fn comments_texts_and_characters_are_no_code() {
    let text = concat!(
        "let a = \"unsafe \\\" {\"; // unsafe\n",
        "/* unsafe /* unsafe */ unsafe */ let b = 'u'; let c: &'static str = r#\"unsafe \" unsafe\"#;\n",
        "let d = '\\''; let e = b\"unsafe\"; let f = br\"unsafe\"; let g = 'ü'; unsafe {}\n",
    );
    let code = code_of(text);
    assert_eq!(words(&code, "unsafe").count(), 1, "{code}");
    assert_eq!(code.lines().count(), 3);
    assert!(code.contains("'static str"), "{code}");
    assert!(code.ends_with("unsafe {}\n"), "{code}");
}

#[test]
fn items_for_tests_only_are_not_the_library() {
    let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { if x {} }\n}\nfn c() {}\n#[cfg(test)]\nuse d;\nfn e() {}\n";
    let file = Source { name: String::new(), text: code.to_owned(), code: code.to_owned() };
    let library = file.library_code();
    for (name, kept) in [("a", true), ("b", false), ("c", true), ("d", false), ("e", true)] {
        assert_eq!(words(&library, name).count() == 1, kept, "{name} in {library}");
    }
}

#[test]
fn paths_are_spread_and_taken_from_the_root() {
    let module = module_of("src/broker/io/stream.rs");
    let code = "use crate::{mem::{arena::Lease, ring as r}, queue};\nuse super::super::pools::Pool; fn f(x: crate::time::Clock) {}";
    let found: Vec<String> = paths(code, &module).into_iter().map(|(_, path)| path.join("::")).collect();
    assert_eq!(found, ["mem::arena::Lease", "mem::ring", "queue", "time::Clock", "broker::pools::Pool"]);
    let floors: Vec<_> =
        ["time", "mem::arena", "broker::plan", "broker::io", "broker::iota", "broker::pools::x", "other"]
            .map(|path| floor_of(&path.split("::").map(str::to_owned).collect::<Vec<_>>()))
            .into();
    assert_eq!(floors, [Some(0), Some(1), Some(4), Some(5), Some(4), Some(6), None]);
}
