//! Text output: results go to stdout, everything else to stderr. A reader that went away (`| head`) is no error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Prints a line of the result.
pub fn to_stdout(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a line for people that is not the result.
pub fn to_stderr(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a remark.
pub fn note(text: &str) {
    to_stderr(&format!("note: {text}"));
}

/// Prints a JSON value on stdout, on one line where `compact`.
pub fn json(value: &serde_json::Value, compact: bool) {
    let text = if compact { value.to_string() } else { format!("{value:#}") };
    to_stdout(&text);
}

/// True if stderr is a terminal and `NO_COLOR` is not set.
pub fn takes_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// A progress line on stderr: rewritten in place on a terminal, otherwise one line every 5 s. `NO_COLOR` also asks for
/// plain lines.
pub struct Progress {
    rewrites: bool,
    every: Duration,
    last: Instant,
    shown: bool,
}

impl Progress {
    /// Nothing is shown before the first [`Progress::update`].
    pub fn new(quiet: bool) -> Self {
        let rewrites = takes_colours();
        let every = match (quiet, rewrites) {
            (true, _) => Duration::MAX,
            (false, true) => Duration::from_millis(200),
            (false, false) => Duration::from_secs(5),
        };
        Self { rewrites, every, last: Instant::now(), shown: false }
    }

    /// Shows `text()` if enough time has passed since the last one.
    pub fn update(&mut self, text: impl FnOnce() -> String) {
        if self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        if self.rewrites {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{}", text()).and_then(|()| err.flush());
            self.shown = true;
        } else {
            to_stderr(&text());
        }
    }

    /// Clears the line, so that the next text starts on a line of its own.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Clears the progress line of a process that was ended before it could do so.
pub fn leave_progress() {
    if takes_colours() {
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
    }
}
