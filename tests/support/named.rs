//! The tests of the repository by name, for documents that name them.

use std::collections::BTreeMap;

use crate::source::{Source, end_of_block, words};

/// Every test of the repository by its path, with the comment above it.
pub(crate) fn tests_of(files: &[Source]) -> BTreeMap<String, String> {
    let mut tests = BTreeMap::new();
    for file in files {
        let Some(module) = module_of(&file.name) else { continue };
        for (offset, attribute) in file.code.match_indices("#[") {
            let attribute = &file.code[offset + attribute.len()..];
            let is_test =
                ["test]", "tokio::test]", "tokio::test("].iter().any(|start| attribute.starts_with(start));
            if !is_test {
                continue;
            }
            let Some(name) = words(attribute, "fn").next().and_then(|at| name_at(&attribute[at + 2..]))
            else {
                continue;
            };
            let path = [&module[..], &inner_modules(&file.code, offset), &[name]].concat().join("::");
            tests.insert(path, comment_above(&file.text, offset));
        }
    }
    tests
}

/// The module that a file is, as its path begins in the document: `src/broker/io/mod.rs` is `broker::io`; of other packages
/// and binaries the folder or the file comes first: `adapters/tests/http::cancel`, `tests/tidy`, `node/src::config`.
pub(crate) fn module_of(name: &str) -> Option<Vec<String>> {
    let file = name.strip_suffix(".rs")?;
    let folders: Vec<_> = file.split('/').collect();
    let root = match folders.iter().position(|folder| ["src", "tests"].contains(folder))? {
        0 if folders[0] == "src" => 0,
        at if folders[at] == "src" => at + 1,
        // A folder of tests is one binary, and so is a file beside it.
        at => at + 2,
    };
    let first = (root > 0).then(|| folders[..root].join("/"));
    let rest = folders[root.max(1)..].iter();
    let rest = rest.filter(|part| !["mod", "lib", "main"].contains(*part)).map(|part| (*part).to_owned());
    Some(first.into_iter().chain(rest).collect())
}

/// The modules with a body in this file that `offset` stands in, from the outside.
fn inner_modules(code: &str, offset: usize) -> Vec<String> {
    let mut inside = Vec::new();
    for at in words(code, "mod").take_while(|&at| at < offset) {
        let Some(open) = code[at..].find(['{', ';']).map(|open| at + open) else { continue };
        if code.as_bytes()[open] == b'{' && end_of_block(code, open) > offset {
            inside.extend(name_at(&code[at + 3..]));
        }
    }
    inside
}

/// The name that `code` begins with.
fn name_at(code: &str) -> Option<String> {
    let code = code.trim_start();
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    (end > 0).then(|| code[..end].to_owned())
}

/// The comment lines right above the line of `offset`.
fn comment_above(text: &str, offset: usize) -> String {
    let lines: Vec<_> = text[..offset].lines().collect();
    let above = if text[..offset].ends_with('\n') { &lines[..] } else { &lines[..lines.len() - 1] };
    let comment: Vec<_> =
        above.iter().rev().map(|line| line.trim()).take_while(|line| line.starts_with("//")).collect();
    comment.into_iter().rev().collect::<Vec<_>>().join("\n")
}
