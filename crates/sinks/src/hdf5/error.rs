//! Errors of file operations. Each says what failed, where, why, and what to do next.

use crate::sys::space;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::SinkError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A disk with less free space than this counts as full: libhdf5 writes several of its pages together.
const FULL_BYTES: u64 = 1 << 16;

/// The reason, in a form for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No space left on the device, or quota exceeded.
    DiskFull,
    /// Read-only file system, or no permission.
    NotWritable,
    /// The directory or file does not exist.
    NotFound,
    /// A file of this run exists and the overwrite policy is to refuse.
    Exists,
    /// Another process is writing this run.
    InUse,
    /// No file descriptor is free.
    OutOfFiles,
    /// The file specification or a record contradicts itself.
    Invalid,
    /// The file is damaged.
    Damaged,
    /// The file is not an HDF5 file.
    NotHdf5,
    /// Everything else that the operating system or libhdf5 reports.
    Io,
}

/// A failed file operation.
#[derive(Clone, Debug)]
pub struct Error {
    /// The reason.
    pub kind: ErrorKind,
    /// What was tried, as the object of "cannot": "create the data file".
    pub operation: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Why, as the system reports it.
    pub cause: String,
    /// What to do next.
    pub hint: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use ErrorKind as K;
        let exit = match error.kind {
            K::InUse => Exit::State,
            K::Invalid => Exit::Configuration,
            K::Damaged => Exit::Incomplete,
            _ => Exit::Io,
        };
        Self::new(exit, format!("cannot {}: {}", error.operation, error.path.display()), error.cause, error.hint)
    }
}

impl From<Error> for SinkError {
    fn from(error: Error) -> Self {
        let what = format!("cannot {}: {}", error.operation, error.path.display());
        Self { what, why: error.cause, fix: error.hint }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}\n  why:  {}\n  fix:  {}", self.operation, self.path.display(), self.cause, self.hint)
    }
}

impl std::error::Error for Error {}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, path: &Path, cause: impl Into<String>) -> Self {
        let hint = match kind {
            ErrorKind::NotFound if operation.starts_with("read") => "check the path",
            kind => hint(kind),
        };
        Self { kind, operation, path: path.to_owned(), cause: cause.into(), hint: hint.to_owned() }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(crate) fn io(operation: &'static str, path: &Path, error: &io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(code) => kind_of_errno(code),
            None => ErrorKind::Io,
        };
        Self::new(kind, operation, path, reason(error))
    }

    /// Converts an error of libhdf5. Its stack leads from the call to the cause; where a system call failed, one of its
    /// lines holds "errno = N".
    pub(crate) fn hdf5(operation: &'static str, path: &Path, error: hdf5::Error) -> Self {
        let text = match error {
            hdf5::Error::Internal(text) => text,
            hdf5::Error::HDF5(stack) => match stack.expand() {
                Ok(stack) => cause(stack.iter().map(|frame| frame.description())),
                Err(error) => error.to_string(),
            },
        };
        if let Some(code) = errno_in(&text) {
            return Self::io(operation, path, &io::Error::from_raw_os_error(code));
        }
        if text.is_empty() && is_full(path) {
            return Self::io(operation, path, &io::Error::from_raw_os_error(libc::ENOSPC));
        }
        if text.contains("file signature not found") {
            return Self::new(ErrorKind::NotHdf5, operation, path, "it does not begin as an HDF5 file does");
        }
        if text.contains("truncated file") {
            return Self::new(ErrorKind::Damaged, operation, path, format!("the file is cut short ({text})"));
        }
        Self::new(ErrorKind::Io, operation, path, format!("libhdf5: {text}"))
    }
}

/// Attaches operation and path to the errors of libhdf5 and the system.
pub(crate) trait Context<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for Result<T, hdf5::Error> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::hdf5(operation, path, error))
    }
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::io(operation, path, &error))
    }
}

/// The last line of a stack about a system call; if there is none, the last line that is not empty.
fn cause<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let said: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let of_system = said.iter().rfind(|line| errno_in(line).is_some());
    of_system.or(said.last()).copied().unwrap_or_default().to_owned()
}

/// True if the disk has no room for another page of data. Used for errors without a message.
fn is_full(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    space::free_bytes(folder).is_ok_and(|free| free < FULL_BYTES)
}

fn errno_in(text: &str) -> Option<i32> {
    let digits = text.split("errno = ").nth(1)?;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn kind_of_errno(code: i32) -> ErrorKind {
    match code {
        libc::ENOSPC | libc::EDQUOT => ErrorKind::DiskFull,
        libc::EROFS | libc::EACCES | libc::EPERM => ErrorKind::NotWritable,
        libc::ENOENT | libc::ENOTDIR => ErrorKind::NotFound,
        libc::EEXIST => ErrorKind::Exists,
        libc::EMFILE | libc::ENFILE => ErrorKind::OutOfFiles,
        _ => ErrorKind::Io,
    }
}

fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::DiskFull => "free some space or choose another directory; images written before this are safe",
        ErrorKind::NotWritable => "choose a directory that this user may write to, or remount it read-write",
        ErrorKind::NotFound => "create the directory, or correct the path",
        ErrorKind::Exists => "choose another prefix, move the old files, or set the overwrite policy to replace",
        ErrorKind::InUse => "wait for the other process to finish, or stop it",
        ErrorKind::OutOfFiles => {
            "close other connections to this program, or raise its limit of open files (`ulimit -n`, LimitNOFILE), then run `konkordia repair FILE`"
        }
        ErrorKind::Invalid => "correct the value named above",
        ErrorKind::Damaged => "run `konkordia repair FILE`",
        ErrorKind::NotHdf5 => "give the master of a run (PREFIX_master.h5) or one of its data files",
        ErrorKind::Io => "look at the system log (dmesg) for the disk or network behind this path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_found_in_the_words_of_libhdf5() {
        assert_eq!(errno_in("write failed, errno = 28, error message = 'No space'"), Some(28));
        assert_eq!(errno_in("nothing here"), None);
        let error = Error::hdf5("write", Path::new("/x"), hdf5::Error::Internal("a; errno = 28, b".into()));
        assert_eq!(error.kind, ErrorKind::DiskFull);
        // The line of the system call need not be the last one, and the last one may be empty.
        assert_eq!(cause(["write failed, errno = 28, x", "cannot flush", ""].into_iter()), "write failed, errno = 28, x");
        assert_eq!((cause(["a", "b", ""].into_iter()), cause([].into_iter())), ("b".into(), String::new()));
        assert!(!is_full(Path::new("a.h5")) && is_full(Path::new("/proc/a.h5")), "a file system without any room");
        let wordless = hdf5::Error::Internal(String::new());
        assert_eq!(Error::hdf5("write", Path::new("/proc/a.h5"), wordless).kind, ErrorKind::DiskFull);
        let shown = error.to_string();
        assert!(shown.contains("cannot write: /x") && shown.contains("fix:"), "{shown}");
    }
}
