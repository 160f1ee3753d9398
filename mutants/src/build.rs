//! Builds the planted library, leaving out what the compiler refuses until nothing is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::plant::{Left, Mutant, Planted, plant};

/// A program of tests.
#[derive(Debug)]
pub struct Program {
    pub executable: PathBuf,
}

/// What was built, and the mutants that could not be planted, with the reason.
#[derive(Debug)]
pub struct Built {
    pub programs: Vec<Program>,
    pub not: BTreeMap<usize, &'static str>,
}

/// The source as it is, by the name of each file.
pub fn sources(root: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.join("src")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                found.insert(name, std::fs::read_to_string(path)?);
            }
        }
    }
    Ok(found)
}

/// Plants, builds, and leaves out, until it builds.
pub fn build(
    sources: &BTreeMap<String, String>,
    mutants: &[(usize, &Mutant)],
    tree: &Path,
    cargo: &[String],
    left: &mut Left,
) -> Result<Built, String> {
    for round in 1..=60 {
        let planted = write(sources, mutants, tree, left)?;
        let (programs, refused) = compile(tree, cargo)?;
        if refused.is_empty() {
            let not = planted.into_values().flat_map(|file| file.not).collect();
            return Ok(Built { programs, not });
        }
        let before = (left.unviable.len(), left.constant.len());
        let mut unknown = Vec::new();
        for error in &refused {
            if !blame(error, &planted, left) {
                unknown.push(error["rendered"].as_str().unwrap_or("an error without a text").to_owned());
            }
        }
        eprintln!(
            "build {round}: {} errors, {} mutants do not compile, {} functions stay const",
            refused.len(),
            left.unviable.len(),
            left.constant.len()
        );
        if before == (left.unviable.len(), left.constant.len()) {
            return Err(format!("errors of no mutant:\n{}", unknown.join("\n")));
        }
    }
    Err("it does not come to an end".to_owned())
}

fn write(
    sources: &BTreeMap<String, String>,
    mutants: &[(usize, &Mutant)],
    tree: &Path,
    left: &Left,
) -> Result<BTreeMap<String, Planted>, String> {
    let mut planted = BTreeMap::new();
    for (name, text) in sources {
        let of_file: Vec<_> = mutants.iter().copied().filter(|(_, mutant)| mutant.file == *name).collect();
        let mut file = plant(text, &of_file, left).map_err(|why| format!("{name}: {why}"))?;
        if name == "src/lib.rs" {
            file.text += "\n#[doc(hidden)]\npub mod mutant;\n";
        }
        put(&tree.join(name), &file.text)?;
        planted.insert(name.clone(), file);
    }
    put(&tree.join("src/mutant.rs"), include_str!("asked.rs"))?;
    Ok(planted)
}

/// Writes what is new only: the compiler looks at the time.
fn put(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}

fn compile(tree: &Path, cargo: &[String]) -> Result<(Vec<Program>, Vec<Value>), String> {
    let said = Command::new("cargo")
        .args(["test", "--locked", "--no-run", "--message-format=json"])
        .args(cargo)
        .current_dir(tree)
        .stderr(Stdio::null())
        .output()
        .map_err(|why| format!("cargo: {why}"))?;
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            let error = message["message"].clone();
            if error["spans"].as_array().is_some_and(|spans| !spans.is_empty()) {
                errors.push(error);
            }
        }
        if let (true, Some(executable)) = (message["profile"]["test"] == true, message["executable"].as_str())
        {
            programs.push(Program { executable: executable.into() });
        }
    }
    if !said.status.success() && errors.is_empty() {
        return Err("cargo failed and no error has a place".to_owned());
    }
    Ok((programs, errors))
}

/// Whose error it is. False if nobody's.
fn blame(error: &Value, planted: &BTreeMap<String, Planted>, left: &mut Left) -> bool {
    let spans = error["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = false;
    // Where the error is; where it comes from only if nobody is there.
    for primary in [true, false] {
        for span in spans.iter().filter(|span| (span["is_primary"] == true) == primary) {
            if found && !primary {
                break;
            }
            let Some(file) = span["file_name"].as_str().and_then(|name| planted.get(name)) else { continue };
            let at =
                |key: &str| span[key].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
            let (start, end) = (at("byte_start"), at("byte_end"));
            for (id, range) in &file.ranges {
                if range.start <= start && end <= range.end {
                    found |= left.unviable.insert(*id);
                }
            }
        }
    }
    let message = error["message"].as_str().unwrap_or_default();
    if !found && error["code"]["code"] == "E0015" {
        let name = message.split('`').nth(1).unwrap_or_default();
        let name = name.split("::<").next().unwrap_or_default().rsplit("::").next().unwrap_or_default();
        found |= left.constant.insert(name.to_owned());
    }
    found
}
