//! What is wrong with a configuration: all of it, in the order of the file.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};

/// One thing that is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Line in the file, from 1; `None` for what concerns the file as a whole.
    pub(crate) line: Option<usize>,
    /// Dotted key, for example `tenants[1].token`; empty for what concerns the file as a whole.
    pub(crate) key: String,
    /// The value as written. `None` where it is missing, or secret.
    pub(crate) value: Option<String>,
    /// What is wrong with it, and what would be right.
    pub(crate) text: String,
}

/// Collects problems while a file is read, so that one run tells all of them.
#[derive(Debug)]
pub(crate) struct Problems {
    file: PathBuf,
    /// Byte offsets of the line starts, to turn a span into a line.
    lines: Vec<usize>,
    found: RefCell<Vec<Problem>>,
}

/// A configuration that cannot be used.
#[derive(Debug)]
pub(crate) struct Refused {
    file: PathBuf,
    problems: Vec<Problem>,
}

impl Problems {
    /// For the file of this name with this content.
    pub(crate) fn new(file: &Path, content: &str) -> Self {
        let starts = content.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self {
            file: file.to_owned(),
            lines: std::iter::once(0).chain(starts).collect(),
            found: RefCell::default(),
        }
    }

    /// The line, from 1, that holds this byte.
    pub(crate) fn line_of(&self, byte: usize) -> usize {
        self.lines.partition_point(|start| *start <= byte)
    }

    pub(crate) fn add(&self, problem: Problem) {
        self.found.borrow_mut().push(problem);
    }

    /// Something about the file as a whole.
    pub(crate) fn add_general(&self, key: &str, text: impl Into<String>) {
        self.add(Problem { line: None, key: key.to_owned(), value: None, text: text.into() });
    }

    /// Where the file lies: relative names in it are meant from there.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// `Ok` if nothing was found.
    pub(crate) fn finish(self) -> Result<(), Refused> {
        let mut problems = self.found.into_inner();
        if problems.is_empty() {
            return Ok(());
        }
        // By line; what has no line comes last, in the order it was found.
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        Err(Refused { file: self.file, problems })
    }
}

impl Refused {
    /// One problem with the file as a whole.
    pub(crate) fn whole(file: &Path, text: impl Into<String>) -> Self {
        let problem = Problem { line: None, key: String::new(), value: None, text: text.into() };
        Self { file: file.to_owned(), problems: vec![problem] }
    }

    #[cfg(test)]
    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            write!(out, "{}", self.file.display())?;
            if let Some(line) = problem.line {
                write!(out, ":{line}")?;
            }
            out.write_str(": ")?;
            if !problem.key.is_empty() {
                out.write_str(&problem.key)?;
                if let Some(value) = &problem.value {
                    write!(out, " = {value}")?;
                }
                out.write_str(": ")?;
            }
            writeln!(out, "{}", problem.text)?;
        }
        match self.problems.len() {
            1 => write!(out, "1 problem"),
            several => write!(out, "{several} problems"),
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_leads_to_its_line() {
        let problems = Problems::new(Path::new("a.toml"), "a\nbc\n\nd");
        let lines: Vec<usize> = (0..7).map(|byte| problems.line_of(byte)).collect();
        assert_eq!(lines, [1, 1, 2, 2, 2, 3, 4]);
    }

    #[test]
    fn problems_are_shown_in_the_order_of_the_file() {
        let problems = Problems::new(Path::new("a.toml"), "x = 1\ny = 2\n");
        problems.add_general("", "no tenant");
        let at = |line, key: &str| Problem {
            line: Some(line),
            key: key.to_owned(),
            value: Some("2".to_owned()),
            text: "unknown key".to_owned(),
        };
        problems.add(at(2, "y"));
        problems.add(at(1, "x"));
        let refused = problems.finish().expect_err("three problems");
        let text =
            "a.toml:1: x = 2: unknown key\na.toml:2: y = 2: unknown key\na.toml: no tenant\n3 problems";
        assert_eq!(refused.to_string(), text);
        assert_eq!(refused.problems().len(), 3);
    }
}
