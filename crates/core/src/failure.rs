//! Errors, as people and programs see them, and the exit codes.

use crate::ports::SinkError;
use serde_json::{Value, json};
use std::fmt;
use std::process::ExitCode;

/// The exit codes of the program. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, nothing missing.
    Complete = 0,
    /// Done, but data are missing or were thrown away, or a file is not whole.
    Incomplete = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration, the calibration or an input is not valid.
    Configuration = 3,
    /// The service cannot be reached, or does not answer.
    Unreachable = 4,
    /// Not possible in the present state, for example because another run writes the same file.
    State = 5,
    /// A file, a disk or a socket failed.
    Io = 6,
    /// Data or an answer did not come in time.
    Timeout = 7,
    /// A bug in the program.
    Bug = 70,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Printed by `konkordia help` and at the end of the help of each command.
pub const EXIT_CODES: &str = "Exit codes: 0 complete, 1 data incomplete, 2 usage, 3 configuration, 4 service not reached, 5 wrong state, 6 I/O, 7 timeout, \
                              70 bug, 130 interrupted (files closed and valid)";

/// An error for people: what happened and where, why, what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code of the program.
    pub exit: Exit,
    /// What happened and where.
    pub what: String,
    /// Why; may have several lines.
    pub why: String,
    /// What to do next.
    pub fix: String,
    /// Lines of a configuration with the errors in them. People see them before the failure, instead of `why`, which is
    /// then for programs only.
    pub excerpts: String,
}

impl Failure {
    /// An error from its three parts.
    pub fn new(exit: Exit, what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: why.into(), fix: fix.into(), excerpts: String::new() }
    }

    /// What happened and why, in one text; what to do is not in it.
    pub fn detail(&self) -> String {
        if self.why.is_empty() { self.what.clone() } else { format!("{}: {}", self.what, self.why) }
    }

    /// The error as JSON, for programs.
    pub fn to_json(&self) -> Value {
        json!({ "event": "error", "error": { "what": self.what, "why": self.why, "fix": self.fix, "exit_code": self.exit as u8 } })
    }

    /// A failed system call on `path`.
    pub fn io(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let fix = match error.kind() {
            K::NotFound => "check the path",
            K::PermissionDenied | K::ReadOnlyFilesystem => "choose a path that this user may use, or change its permissions",
            K::StorageFull | K::QuotaExceeded => "free some space or choose another directory",
            K::FileTooLarge => "raise the limit on the size of a file (ulimit -f), or choose another file system",
            K::AlreadyExists => "give another name, or move the file that is there",
            K::IsADirectory => "this is a folder: name the files in it",
            _ => "look at the system log (dmesg) for the disk or network behind this path",
        };
        Self::new(Exit::Io, format!("{what} {}", path.display()), reason(error), fix)
    }
}

/// The error text of the system, without Rust's "(os error N)".
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.excerpts.is_empty() {
            writeln!(f, "{}", self.excerpts)?;
        }
        write!(f, "error: {}", self.what)?;
        let why = if self.excerpts.is_empty() { self.why.as_str() } else { "" };
        for (label, text) in [("why", why), ("fix", &self.fix)] {
            for (n, line) in text.lines().enumerate() {
                let head = if n == 0 { format!("{label}: ") } else { "     ".into() };
                write!(f, "\n  {head}{line}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        Self::new(Exit::Io, error.what, error.why, error.fix)
    }
}

impl From<Failure> for SinkError {
    fn from(Failure { what, why, fix, .. }: Failure) -> Self {
        Self { what, why, fix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_three_parts() {
        let failure = Failure::new(Exit::Io, "cannot open a.f32", "no such file\nand more", "check the path");
        assert_eq!(failure.to_string(), "error: cannot open a.f32\n  why: no such file\n       and more\n  fix: check the path");
        assert_eq!(failure.detail(), "cannot open a.f32: no such file\nand more");
        assert_eq!(Failure::new(Exit::Io, "cannot open a.f32", "", "").detail(), "cannot open a.f32");
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(Failure::io("cannot read", std::path::Path::new("/x"), &error).why, "No such file or directory");
    }
}
