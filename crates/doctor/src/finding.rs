//! What a check found, and how it is shown.

use std::fmt::Write;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// Could not be looked at.
    Skip,
    /// Works, but less well than it could, or not always.
    Warn,
    /// Will lose data, or cannot work.
    Fail,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Skip, Self::Warn, Self::Fail];

    /// Its name, as programs get it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check, on one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// The interface or folder that was looked at; empty for the host.
    pub subject: String,
    /// How it ended.
    pub verdict: Verdict,
    /// What is; where that is not known, why not.
    pub measured: String,
    /// What should be.
    pub wanted: String,
    /// Why that matters.
    pub why: String,
    /// Lines of shell that mend it, for root. A line that begins with `#` says what no command can do.
    pub fix: Vec<String>,
    /// Keys and values of `sysctl` that mend it, to be kept over a restart.
    pub sysctl: Vec<(String, String)>,
}

impl Finding {
    /// A check of the whole host, which has found nothing yet.
    pub fn of(check: &'static str, wanted: impl Into<String>, why: impl Into<String>) -> Self {
        let (subject, measured, fix, sysctl) = Default::default();
        let (wanted, why) = (wanted.into(), why.into());
        Self { check, subject, verdict: Verdict::Pass, measured, wanted, why, fix, sysctl }
    }

    /// The same for one interface or folder.
    pub fn at(self, subject: &str) -> Self {
        Self { subject: one_line(subject), ..self }
    }

    /// With the result.
    pub fn is(self, verdict: Verdict, measured: impl AsRef<str>) -> Self {
        Self { verdict, measured: one_line(measured.as_ref()), ..self }
    }

    /// Not looked at.
    pub fn skip(self, reason: impl AsRef<str>) -> Self {
        self.is(Verdict::Skip, format!("not known: {}", reason.as_ref()))
    }

    /// Judges a value, or skips the check where the value could not be had.
    pub fn judge<T>(self, value: Result<T, String>, judge: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Ok(value) => judge(self, value),
            Err(reason) => self.skip(reason),
        }
    }

    /// Adds a line that mends it; nothing where there is nothing to mend.
    pub fn fix(mut self, line: impl Into<String>) -> Self {
        if self.is_wrong() {
            self.fix.push(line.into());
        }
        self
    }

    /// Mends it by `sysctl`; nothing where there is nothing to mend.
    pub fn sysctl(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        if self.is_wrong() {
            self.sysctl.push((key.into(), value.to_string()));
        }
        self
    }

    /// True for what should be mended.
    pub fn is_wrong(&self) -> bool {
        matches!(self.verdict, Verdict::Warn | Verdict::Fail)
    }

    /// The commands that mend it now, for root.
    pub fn commands(&self) -> Vec<String> {
        let sysctl = self.sysctl.iter().map(|(key, value)| format!("sysctl -w {}", quoted(&format!("{key}={value}"))));
        sysctl.chain(self.fix.iter().cloned()).collect()
    }
}

/// A text of the kernel or of a user, fit for one line: no line breaks, no control characters.
pub fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A word for the shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The findings as text: one line for each, and below what is not as it should be the rest.
pub fn to_text(findings: &[Finding]) -> String {
    let mut out = String::new();
    let width = |text: fn(&Finding) -> &str| findings.iter().map(|f| text(f).chars().count()).max().unwrap_or(0);
    let (checks, subjects) = (width(|f| f.check), width(|f| &f.subject));
    for finding in findings {
        let Finding { check, subject, measured, wanted, why, .. } = finding;
        let verdict = finding.verdict.name().to_uppercase();
        let _ = writeln!(out, "{verdict}  {check:<checks$}  {subject:<subjects$}  {measured}");
        if finding.is_wrong() {
            let _ = writeln!(out, "      wanted  {wanted}\n      why     {why}");
            for line in finding.commands() {
                let _ = writeln!(out, "      fix     {}", line.strip_prefix("# ").unwrap_or(&line));
            }
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let counts = Verdict::ALL.map(|verdict| format!("{} {}", count(verdict), verdict.name()));
    let _ = write!(out, "{}", counts.join(", "));
    out
}
