//! Errors in a configuration: what is wrong, where, and how to correct it.

use std::fmt;
use std::ops::Range;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Byte range in the text; `None` for something that the text lacks.
    pub span: Option<Range<usize>>,
    /// What is wrong.
    pub what: String,
    /// Why; empty if `what` is enough.
    pub why: String,
    /// What to do.
    pub fix: String,
}

/// All findings of one file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// Name of the file as the user gave it.
    pub file: String,
    /// Text of the file.
    pub text: String,
    /// The findings.
    pub found: Vec<Diagnostic>,
}

impl Diagnostics {
    /// No finding yet.
    pub fn new(file: &str, text: &str) -> Self {
        Self { file: file.into(), text: text.into(), found: Vec::new() }
    }

    /// Adds a finding.
    pub fn add(&mut self, span: Option<Range<usize>>, what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) {
        self.found.push(Diagnostic { span, what: what.into(), why: why.into(), fix: fix.into() });
    }

    /// `value`, if there are no findings.
    ///
    /// # Errors
    /// All findings, in the order of the text.
    pub fn finish<T>(mut self, value: Option<T>) -> Result<T, Self> {
        self.found.sort_by_key(|d| d.span.as_ref().map_or(usize::MAX, |s| s.start));
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// Line and column of a byte, both from 1; columns count characters.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let before = &self.text[..floor_char(&self.text, byte)];
        let line_start = before.rfind('\n').map_or(0, |n| n + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

impl Diagnostics {
    /// File, line and column of a finding.
    pub fn place(&self, finding: &Diagnostic) -> String {
        match &finding.span {
            None => self.file.clone(),
            Some(span) => {
                let (line, column) = self.position(span.start);
                format!("{}:{line}:{column}", self.file)
            }
        }
    }
}

fn floor_char(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len())).rev().find(|&b| text.is_char_boundary(b)).unwrap_or(0)
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, d) in self.found.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            writeln!(f, "error: {}", d.what)?;
            match &d.span {
                None => writeln!(f, "  --> {}", self.place(d))?,
                Some(span) => {
                    let (line, column) = self.position(span.start);
                    let text = self.text.lines().nth(line - 1).unwrap_or("").replace('\t', " ");
                    let width = self.text[floor_char(&self.text, span.start)..floor_char(&self.text, span.end)]
                        .chars()
                        .take_while(|c| *c != '\n')
                        .count();
                    let gutter = " ".repeat(line.to_string().len());
                    writeln!(f, "  --> {}", self.place(d))?;
                    writeln!(f, "{gutter}  |")?;
                    writeln!(f, "{line}  | {text}")?;
                    writeln!(f, "{gutter}  | {}{}", " ".repeat(column - 1), "^".repeat(width.max(1)))?;
                }
            }
            for (label, words) in [("why", &d.why), ("fix", &d.fix)] {
                if !words.is_empty() {
                    writeln!(f, "  {label}: {words}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_empty_spans_still_show() {
        let mut d = Diagnostics::new("x.toml", "a = 1\nö = \"ü\" # é\n");
        assert_eq!((d.position(0), d.position(6), d.position(11)), ((1, 1), (2, 1), (2, 5)));
        d.add(Some(1000..2000), "beyond", "", "nothing");
        d.add(None, "absent", "because", "add it");
        let text = d.finish(Some(())).unwrap_err().to_string();
        assert!(
            text.contains("x.toml:3:1") && text.ends_with("error: absent\n  --> x.toml\n  why: because\n  fix: add it\n"),
            "{text}"
        );
    }
}
