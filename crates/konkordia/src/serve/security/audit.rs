//! The audit log: who tried to change what, when, from where, and what became of it; a JSON object a line.
//!
//! The file is opened anew for each line, so that log rotation may move it away at any time.

use crate::failure::Failure;
use crate::run::clock;
use serde::Serialize;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// When it was answered, UTC.
    pub time: String,
    /// Name of the token, or `local`.
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
    /// Of the answer.
    pub status: u16,
    /// Why not, as the `code` of the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What was asked for, as far as it is no secret and no mass of data.
    pub request: Value,
}

impl Record {
    /// With the time of now.
    pub fn now() -> String {
        clock::now()
    }
}

/// Where the lines go.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

impl AuditLog {
    /// Checks that the file can be written; makes it, readable for its owner and group, if it does not exist.
    ///
    /// # Errors
    /// If it cannot.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        append(path).map_err(|error| Failure::io("cannot write the audit log", path, &error))?;
        Ok(Self { path: path.into() })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        // One write of a whole line: lines of two processes do not mix.
        append(&self.path)?.write_all(&line)
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
    }
}
