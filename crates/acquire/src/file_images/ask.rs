//! The process that looks at a file: this program with another verb, with little priority, a time limit and a limit of
//! what it may say.

use super::index::FileIndex;
use crate::hooks;
use crate::machine;
use crossbeam_channel::bounded;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_engine::hand_over::NICE;
use rustix::process::{Pid, setpriority_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time in which a file is looked at.
const INDEX_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time in which a file is checked: every image is read and unpacked.
const CHECK_TIMEOUT: Duration = Duration::from_secs(240);
/// Most bytes of an index: [`super::index::CHUNKS_MAX`] chunks of a large file, and a tree.
const INDEX_BYTES_MAX: u64 = 192 << 20;
/// Most bytes of the findings of a check.
const CHECK_BYTES_MAX: u64 = 4 << 20;
/// Findings that are kept.
const NOTES_MAX: usize = 200;
/// How long is waited for the last words of a process.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What `konkordia check` says of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCheck {
    /// No error was found.
    pub is_valid: bool,
    /// Every image is there and complete.
    pub is_whole: bool,
    /// What was found, as text.
    pub notes: Vec<String>,
}

/// Has another process look at a file.
///
/// # Errors
/// The file holds no images that can be offered, is damaged, is still being written, or kept the process busy.
pub fn index(path: &Path) -> Result<FileIndex, Failure> {
    let said = said_of(path, &["inspect", "--index", "--json"], INDEX_TIMEOUT, INDEX_BYTES_MAX)?;
    serde_json::from_slice(&said).map_err(|error| failed(path, format!("what it was said to hold is not understood: {error}")))
}

/// Has another process check a file: `konkordia check`.
///
/// # Errors
/// It took too long, or ended the process.
pub fn check(path: &Path) -> Result<FileCheck, Failure> {
    let said = said_of(path, &["check", "--json"], CHECK_TIMEOUT, CHECK_BYTES_MAX)?;
    let said: Value = serde_json::from_slice(&said).map_err(|error| failed(path, error.to_string()))?;
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    let note = |finding: &Value| {
        let [severity, what, place, fix] = ["severity", "what", "place", "fix"].map(|name| text(finding, name));
        format!("{severity}: {what} ({place}); {fix}")
    };
    let findings = said["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut notes: Vec<String> = findings.iter().take(NOTES_MAX).map(note).collect();
    if findings.len() > NOTES_MAX {
        notes.push(format!("and {} more findings; `konkordia check` lists all", findings.len() - NOTES_MAX));
    }
    let is = |name: &str| said[name].as_bool().unwrap_or(false);
    Ok(FileCheck { is_valid: is("valid"), is_whole: is("whole"), notes })
}

fn failed(path: &Path, why: String) -> Failure {
    let fix = "run `konkordia check FILE` on this machine";
    Failure::new(Exit::Incomplete, format!("{} cannot be read", path.display()), why, fix)
}

/// What this program writes to its stdout with these arguments and the path.
fn said_of(path: &Path, arguments: &[&str], timeout: Duration, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let until = Instant::now() + timeout;
    let mut command = Command::new(machine::own_program());
    // `--`: the name of a file may begin with a hyphen.
    command.args(arguments).arg("--").arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let cannot = |error: &std::io::Error| failed(path, format!("no process can be started to read it: {}", reason(error)));
    let mut child = Running(command.spawn().map_err(|error| cannot(&error))?);
    // Before it starts the process that reads, which inherits it. If that is refused, it works as well.
    let _ = setpriority_process(Some(Pid::from_child(&child.0)), NICE);
    let last_words = hooks::listen(&mut child.0);
    let stdout = child.0.stdout.take().ok_or_else(|| failed(path, "the process has no output".into()))?;
    let (sender, said) = bounded(1);
    let read = move || {
        let mut said = Vec::new();
        let _ = sender.send(stdout.take(bytes_max + 1).read_to_end(&mut said).map(|_| said));
    };
    let thread = std::thread::Builder::new().name("file-index".into()).stack_size(128 << 10).spawn(read);
    thread.map_err(|error| cannot(&error))?;
    let Ok(said) = said.recv_deadline(until) else {
        let why = format!("it takes longer than {} s", timeout.as_secs());
        let fix = "run `konkordia check FILE` on this machine, which may take longer";
        return Err(Failure::new(Exit::Timeout, format!("{} cannot be read", path.display()), why, fix));
    };
    let said = said.map_err(|error| failed(path, reason(&error)))?;
    if said.len() as u64 > bytes_max {
        return Err(failed(path, format!("more than {bytes_max} bytes are to be said about it")));
    }
    let status = child.0.wait().map_err(|error| cannot(&error))?;
    if let Some(failure) = failure_in(&said) {
        return Err(failure);
    }
    // 1: the file is not whole, which is an answer too.
    if matches!(status.code(), Some(0 | 1)) && !said.is_empty() {
        return Ok(said);
    }
    let words = last_words.and_then(|words| words.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
    Err(failed(path, format!("the process that read it ended with {status} {}", words.trim())))
}

/// The error that a verb reports with `--json`.
fn failure_in(said: &[u8]) -> Option<Failure> {
    // An index is long, and is no error.
    let said: Value = serde_json::from_slice(said.get(..said.len().min(64 << 10))?).ok()?;
    let error = said.get("error").filter(|_| said["event"] == "error")?;
    let text = |name: &str| error[name].as_str().unwrap_or_default();
    let exit = match error["exit_code"].as_u64() {
        Some(5) => Exit::State,
        Some(7) => Exit::Timeout,
        Some(6) => Exit::Io,
        _ => Exit::Incomplete,
    };
    Some(Failure::new(exit, text("what"), text("why"), text("fix")))
}

/// A process that is ended when this is dropped, and with it the one that it started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_verb_is_a_failure_and_an_index_is_none() {
        let failure = Failure::new(Exit::State, "a.h5 cannot be read", "it is being written", "wait");
        let said = failure.to_json().to_string();
        assert_eq!(failure_in(said.as_bytes()), Some(failure));
        assert_eq!((failure_in(b"{\"master\": 1}"), failure_in(b"no JSON"), failure_in(b"")), (None, None, None));
    }
}
