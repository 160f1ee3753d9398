//! Reading Rust source for the tidy test: enough of a lexer to tell code from comments and texts, and the library from
//! its tests.

use std::fs;
use std::path::{Path, PathBuf};

/// One file of the repository.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the root of the repository, with `/`.
    pub(crate) name: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The code: comments, and what stands inside texts and characters, are blanks. Same lines, same columns (in bytes).
    pub(crate) code: String,
}

/// A place to complain about, as `file:line`.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// The whole line, as it is in the file.
    pub(crate) line: &'a str,
    /// Where it is.
    pub(crate) at: String,
}

impl Source {
    fn read(root: &Path, path: &Path) -> Self {
        let name =
            path.strip_prefix(root).expect("the file lies in the repository").to_string_lossy().into_owned();
        let bytes = fs::read(path).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let code = if name.ends_with(".rs") { code_of(&text) } else { text.clone() };
        Self { name, text, code }
    }

    /// The code without what is compiled for tests only: items behind `#[cfg(test)]`.
    pub(crate) fn library_code(&self) -> String {
        without_test_items(&self.code)
    }

    /// The place of byte `offset`, which is the same in the text and in the code.
    pub(crate) fn place(&self, offset: usize) -> Place<'_> {
        let before = &self.code[..offset];
        let number = before.matches('\n').count();
        let line = self.text.lines().nth(number).unwrap_or("").trim();
        Place { line, at: format!("{}:{}", self.name, number + 1) }
    }
}

/// Every file below the root whose name ends with one of `endings`, sorted; build output and hidden folders but `.ci` are
/// left out.
pub(crate) fn files(endings: &[&str]) -> Vec<Source> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be listed") {
            let path = entry.expect("an entry of a folder can be read").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && (!name.starts_with('.') || name == ".ci") {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(Source::read(&root, &path));
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The offsets of `word` in `code` where it stands alone: no letter, digit or underscore on either side. If `word` itself
/// begins or ends with something else, that side is free.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let (first, last) = (word.starts_with(part), word.ends_with(part));
    code.match_indices(word).map(|(offset, _)| offset).filter(move |&offset| {
        let before = code[..offset].chars().next_back().is_some_and(part);
        let after = code[offset + word.len()..].chars().next().is_some_and(part);
        let joined = first && before || last && after;
        !joined
    })
}

/// Blanks out comments, and what is inside of texts and characters.
pub(crate) fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => find(bytes, at, b"\n").unwrap_or(bytes.len()),
            b'/' if bytes[at..].starts_with(b"/*") => end_of_comment(bytes, at),
            b'"' => end_of_text(bytes, at),
            b'r' if !in_word(bytes, at) && raw_hashes(bytes, at).is_some() => end_of_raw_text(bytes, at),
            b'\'' => end_of_character(bytes, at),
            _ => {
                at += 1;
                continue;
            }
        };
        // The delimiters of texts stay, so that the code keeps its shape.
        let keep = usize::from(bytes[at] != b'/');
        for byte in &mut code[(at + keep).min(end)..end.saturating_sub(keep).max(at + keep).min(end)] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    (from..bytes.len()).find(|&at| bytes[at..].starts_with(what))
}

fn in_word(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    before.is_some_and(|byte| byte != b'b' && (byte.is_ascii_alphanumeric() || byte == b'_'))
}

fn end_of_comment(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// How many `#` stand between `r` and the quote, if a raw text begins here.
fn raw_hashes(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|&&byte| byte == b'#').count();
    (bytes.get(start + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn end_of_raw_text(bytes: &[u8], start: usize) -> usize {
    let hashes = raw_hashes(bytes, start).unwrap_or(0);
    let closing = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    find(bytes, start + hashes + 2, &closing).map_or(bytes.len(), |at| at + closing.len())
}

/// The end of a character, or the byte after the quote of a lifetime.
fn end_of_character(bytes: &[u8], start: usize) -> usize {
    if bytes.get(start + 1) == Some(&b'\\') {
        return find(bytes, start + 3, b"'").map_or(bytes.len(), |at| at + 1);
    }
    let width = match bytes.get(start + 1) {
        Some(0xF0..) => 4,
        Some(0xE0..) => 3,
        Some(0xC0..) => 2,
        _ => 1,
    };
    if bytes.get(start + 1 + width) == Some(&b'\'') { start + 2 + width } else { start + 1 }
}

/// Blanks out each item behind `#[cfg(test)]` (or `#[cfg(all(test, ...))]`).
fn without_test_items(code: &str) -> String {
    let mut kept = code.as_bytes().to_vec();
    for (start, _) in code.match_indices("#[cfg(test)]").chain(code.match_indices("#[cfg(all(test,")) {
        let body = code[start..].find(['{', ';']).map(|at| start + at);
        let end = body.map_or(code.len(), |at| {
            if code.as_bytes()[at] == b'{' { end_of_block(code, at) } else { at + 1 }
        });
        for byte in &mut kept[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The offset after the bracket that closes the one at `open`.
pub(crate) fn end_of_block(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}
