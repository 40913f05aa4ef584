//! The audit log: who tried to change what, when, from where, and the outcome; one JSON object per line.
//!
//! The file is opened anew for each line, so that log rotation may move it away at any time. If nobody moves it, it is
//! moved away here when it is large. Requests without a token cost their sender nothing, so they are recorded at a
//! limited rate, and the others are only counted.

use konkordia_acquire::handle::time_now;
use konkordia_core::failure::Failure;
use serde::Serialize;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A file that has reached this size is moved away: FILE.1 is the newest of the old files, and FILE.4 is the oldest
/// that is kept.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// Old files that are kept.
const FILES_KEPT: usize = 4;
/// Lines for requests without a token: per second on average, and at once.
const STRANGERS_PER_S: f64 = 2.0;
const STRANGERS_BURST: f64 = 50.0;
/// Longest path in a line, in characters.
const PATH_CHARS_MAX: usize = 200;
/// Longest request in a line, in bytes.
const REQUEST_BYTES_MAX: usize = 4096;

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// When it was answered, UTC.
    pub time: String,
    /// Name of the token, or `local`; `(no token)` and `(wrong token)` where there is none.
    pub who: String,
    /// Its role.
    pub role: Option<&'static str>,
    /// Address of the sender.
    pub address: String,
    /// `POST`, ...
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Detector that was asked for.
    pub detector: Option<String>,
    /// Status of the answer.
    pub status: u16,
    /// Why the request was refused, as the `code` of the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What was asked for, without secrets and without large data.
    pub request: Value,
    /// Requests without a token that were not recorded since the last such line.
    #[serde(skip_serializing_if = "is_zero")]
    pub unrecorded: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Record {
    /// The current time.
    pub fn now() -> String {
        time_now()
    }

    /// A path as it is recorded: cut after 200 characters.
    pub fn path(path: &str) -> String {
        match path.char_indices().nth(PATH_CHARS_MAX) {
            None => path.into(),
            Some((end, _)) => format!("{}... ({} bytes)", &path[..end], path.len()),
        }
    }

    /// What was asked for, as it is recorded: only its size if it is large.
    pub fn request(request: Value) -> Value {
        let bytes = request.to_string().len();
        if bytes <= REQUEST_BYTES_MAX { request } else { Value::String(format!("({bytes} bytes)")) }
    }
}

/// How many lines requests without a token may still write.
#[derive(Debug)]
struct LinesWithoutToken {
    lines: f64,
    at: Instant,
    unrecorded: u64,
}

/// Where the lines go.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    without_token: Arc<Mutex<LinesWithoutToken>>,
    file_bytes_max: u64,
}

impl AuditLog {
    /// Checks that the file can be written; makes it, readable for its owner and group, if it does not exist.
    ///
    /// # Errors
    /// If it cannot.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        append(path).map_err(|error| Failure::io("cannot write the audit log", path, &error))?;
        let without_token = LinesWithoutToken { lines: STRANGERS_BURST, at: Instant::now(), unrecorded: 0 };
        Ok(Self { path: path.into(), without_token: Arc::new(Mutex::new(without_token)), file_bytes_max: FILE_BYTES_MAX })
    }

    /// Whether to record a request without a token. `None` = it is only counted; otherwise the number of requests that
    /// were only counted before it.
    pub fn admit_unknown(&self, now: Instant) -> Option<u64> {
        let mut without_token = self.without_token.lock().unwrap_or_else(PoisonError::into_inner);
        let passed_s = now.saturating_duration_since(without_token.at).as_secs_f64();
        without_token.lines = (without_token.lines + passed_s * STRANGERS_PER_S).min(STRANGERS_BURST);
        without_token.at = now;
        if without_token.lines < 1.0 {
            without_token.unrecorded += 1;
            return None;
        }
        without_token.lines -= 1.0;
        Some(std::mem::take(&mut without_token.unrecorded))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut file = append(&self.path)?;
        if file.metadata()?.len() >= self.file_bytes_max {
            self.move_away()?;
            file = append(&self.path)?;
        }
        // One write for a whole line, so that lines of two processes do not mix.
        file.write_all(&line)
    }

    fn move_away(&self) -> io::Result<()> {
        let old = |n: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{n}"));
            PathBuf::from(name)
        };
        for n in (1..FILES_KEPT).rev() {
            match std::fs::rename(old(n), old(n + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match std::fs::rename(&self.path, old(1)) {
            // Another request has moved it at the same time.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_also_after_the_file_was_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::open(&path).unwrap();
        let record = Record {
            time: Record::now(),
            who: "alice".into(),
            role: Some("operate"),
            address: "10.0.0.1".into(),
            method: "POST".into(),
            path: "/api/v1/arm".into(),
            detector: None,
            status: 200,
            code: None,
            request: serde_json::json!({"images": 10, "prefix": "a\nb"}),
            unrecorded: 0,
        };
        log.write(&record).unwrap();
        std::fs::rename(&path, folder.path().join("audit.1")).unwrap();
        log.write(&record).unwrap();
        log.write(&record).unwrap();
        let lines = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap().lines().count();
        assert_eq!((lines("audit.1"), lines("audit.jsonl")), (1, 2));
        let text = std::fs::read_to_string(&path).unwrap();
        let back: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((back["who"].as_str(), back["request"]["prefix"].as_str()), (Some("alice"), Some("a\nb")));
        assert!(AuditLog::open(&folder.path().join("no/folder")).unwrap_err().what.contains("audit log"));

        // Large files are moved away, and only so many old ones are kept.
        let log = AuditLog { file_bytes_max: 1000, ..log };
        (0..60).for_each(|_| log.write(&record).unwrap());
        let names: std::collections::BTreeSet<String> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let expected = ["audit.1", "audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3", "audit.jsonl.4"];
        assert!(names.iter().eq(expected), "{names:?}");
        assert!(names.iter().all(|name| std::fs::metadata(folder.path().join(name)).unwrap().len() < 1500));
    }

    #[test]
    fn requests_without_a_token_are_recorded_at_a_bounded_rate_and_counted_beyond_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::open(&folder.path().join("audit.jsonl")).unwrap();
        let now = Instant::now();
        let admitted = (0..10_000).filter(|_| log.admit_unknown(now).is_some()).count();
        assert_eq!(admitted, STRANGERS_BURST as usize);
        assert_eq!(log.admit_unknown(now + std::time::Duration::from_secs(1)), Some(10_000 - admitted as u64));
        assert_eq!(log.admit_unknown(now + std::time::Duration::from_secs(1)), Some(0));
        assert_eq!(log.admit_unknown(now + std::time::Duration::from_secs(1)), None);
    }

    #[test]
    fn long_paths_and_large_requests_are_cut() {
        assert_eq!(Record::path("/api/v1/arm"), "/api/v1/arm");
        let long = format!("/{}", "\u{e4}".repeat(10_000));
        let cut = Record::path(&long);
        assert!(cut.chars().count() < PATH_CHARS_MAX + 20 && cut.ends_with("... (20001 bytes)"), "{cut}");
        let small = serde_json::json!({"images": 3});
        assert_eq!(Record::request(small.clone()), small);
        assert_eq!(Record::request(Value::String("a".repeat(10_000))), Value::String("(10002 bytes)".into()));
    }
}
