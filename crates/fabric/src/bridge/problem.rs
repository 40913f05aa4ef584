//! What is wrong with a program, where, and what to write instead.

use std::fmt;
use toml::de::{DeTable, DeValue};

/// Problems that are reported of one program; one mistake may have many consequences.
const PROBLEMS_MAX: usize = 20;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the text, from 1; `None` for a program that was made in Rust.
    pub line: Option<usize>,
    /// Where, in the words of the text: `[headers.sls] frame`.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What to write.
    pub fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        write!(f, "{}; {}", self.what, self.fix)
    }
}

/// All mistakes that were found, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// One step to a value of the text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Collects problems, and finds their lines.
pub(super) struct Finder<'a> {
    text: Option<&'a str>,
    found: Vec<Problem>,
}

impl<'a> Finder<'a> {
    /// For the program that `text` says, or for one without a text.
    pub(super) fn new(text: Option<&'a str>) -> Self {
        Self { text, found: Vec::new() }
    }

    /// Notes a problem of the value at `path`.
    pub(super) fn add(&mut self, path: &[Step<'_>], what: impl Into<String>, fix: impl Into<String>) {
        if self.found.len() < PROBLEMS_MAX {
            let line = self.text.and_then(|text| line_at(text, path));
            self.found.push(Problem { line, place: words(path), what: what.into(), fix: fix.into() });
        }
    }

    /// All problems so far, if there are any.
    pub(super) fn finish(&mut self) -> Result<(), Problems> {
        if self.found.is_empty() { Ok(()) } else { Err(Problems(std::mem::take(&mut self.found))) }
    }
}

/// Line of a byte of the text, from 1.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
}

/// The path as people read it.
fn words(path: &[Step<'_>]) -> String {
    match path {
        [] => String::new(),
        [Step::Key(table), Step::Key(name)] => format!("[{table}.{name}]"),
        [Step::Key(table), Step::Key(name), rest @ ..] => format!("[{table}.{name}] {}", tail(rest)),
        [Step::Key(table), Step::Index(index)] => format!("[[{table}]] number {}", index + 1),
        [Step::Key(table), Step::Index(index), rest @ ..] => format!("[[{table}]] number {} {}", index + 1, tail(rest)),
        rest => tail(rest),
    }
}

fn tail(path: &[Step<'_>]) -> String {
    let word = |step: &Step<'_>| match step {
        Step::Key(name) => (*name).to_string(),
        Step::Index(index) => format!("number {}", index + 1),
    };
    path.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The line of the value at `path`, or of the last table on the way to it that is there.
fn line_at(text: &str, path: &[Step<'_>]) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut byte = 0;
    let mut table = Some(root.get_ref());
    let mut value: Option<&DeValue<'_>> = None;
    for step in path {
        let found = match (step, table, value) {
            (Step::Key(name), Some(table), _) => {
                let entry = table.iter().find(|(key, _)| key.get_ref() == name);
                entry.map(|(key, value)| (key.span().start, value.get_ref()))
            }
            (Step::Index(index), _, Some(DeValue::Array(array))) => {
                array.get(*index).map(|value| (value.span().start, value.get_ref()))
            }
            _ => None,
        };
        let Some((start, next)) = found else { break };
        byte = start;
        value = Some(next);
        table = if let DeValue::Table(entries) = next { Some(entries) } else { None };
    }
    Some(line_of(text, byte))
}
