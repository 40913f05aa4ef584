//! Captures: a `.zmsg` file holds the messages. A text file with `.times` after the same name holds when each message
//! arrived and by which upstream. The `.zmsg` file alone is a capture too, without times. The times end at the first
//! line that cannot be read.

use bytes::Bytes;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::Message;
use konkordia_sources::replay::TimedMessage;
use konkordia_wire::zmsg;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Lines, Write};
use std::path::{Path, PathBuf};

const TIMES_HEAD: &str = "time_ns,upstream";
/// Small messages are collected up to this many bytes and written together. Larger ones are written by themselves,
/// without a copy.
const BUFFER_BYTES: u64 = 1 << 18;

/// The file with the times of `capture`.
pub fn times_path(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".times");
    name.into()
}

/// A capture that is being written. It ends with a whole message whatever happens, except when the program is killed.
pub struct Recording {
    path: PathBuf,
    file: File,
    /// Whole messages that wait to be written together.
    pending: Vec<u8>,
    /// Bytes of the whole messages in the file.
    written: u64,
    times: BufWriter<File>,
}

impl Recording {
    /// Creates both files; replaces existing ones only with `overwrite`.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, Failure> {
        let create = |path: &Path| {
            let mut options = File::options();
            options.write(true).create_new(!overwrite).create(true).truncate(true);
            options.open(path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    let what = format!("{} exists already", path.display());
                    Failure::new(
                        Exit::State,
                        what,
                        "an existing capture is not replaced without --overwrite",
                        "choose another name, or add --overwrite",
                    )
                }
                _ => Failure::io("cannot write", path, &error),
            })
        };
        let file = create(path)?;
        let mut times = BufWriter::new(create(&times_path(path))?);
        writeln!(times, "{TIMES_HEAD}").map_err(|e| Failure::io("cannot write", &times_path(path), &e))?;
        Ok(Self { path: path.to_owned(), file, pending: Vec::new(), written: 0, times })
    }

    /// Appends one message.
    pub fn write(&mut self, message: &Message, time_ns: u64, upstream: usize) -> Result<(), Failure> {
        let bytes = 4 + message.parts.iter().map(|part| 4 + part.len() as u64).sum::<u64>();
        if self.pending.len() as u64 + bytes > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes > BUFFER_BYTES {
            let outcome = zmsg::write(&mut self.file, &message.parts);
            self.wrote(bytes, outcome)?;
        } else {
            zmsg::write(&mut self.pending, &message.parts).map_err(|e| Failure::io("cannot write", &self.path, &e))?;
        }
        writeln!(self.times, "{time_ns},{upstream}").map_err(|e| Failure::io("cannot write", &times_path(&self.path), &e))
    }

    /// Bytes of the capture.
    pub fn bytes(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Writes out what is in memory.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let pending = std::mem::take(&mut self.pending);
        let outcome = self.file.write_all(&pending);
        self.wrote(pending.len() as u64, outcome)?;
        self.pending = pending;
        self.pending.clear();
        self.times.flush().map_err(|e| Failure::io("cannot write", &times_path(&self.path), &e))
    }

    /// Counts what was written. After an error the file is cut after its last whole message.
    fn wrote(&mut self, bytes: u64, outcome: io::Result<()>) -> Result<(), Failure> {
        match outcome {
            Ok(()) => self.written += bytes,
            Err(error) => {
                let _ = self.file.set_len(self.written);
                return Err(Failure::io("cannot write", &self.path, &error));
            }
        }
        Ok(())
    }
}

/// Accepts messages of up to 4 GiB, the largest part that the file format allows.
fn bounds() -> zmsg::Bounds {
    zmsg::Bounds { message_bytes_max: u32::MAX as usize, ..zmsg::Bounds::default() }
}

/// A message of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The message and when it came.
    pub timed: TimedMessage,
    /// The upstream that it came by, from 0.
    pub upstream: usize,
}

/// The messages of a capture in order; nothing follows an error.
pub struct Capture {
    path: PathBuf,
    reader: zmsg::Reader<BufReader<File>>,
    times: Option<Lines<BufReader<File>>>,
    message: zmsg::Message,
    failed: bool,
}

impl Capture {
    /// Opens a capture; the file with the times may be missing.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|e| Failure::io("cannot read", path, &e))?;
        let reader = zmsg::Reader::new(BufReader::with_capacity(BUFFER_BYTES as usize, file), bounds());
        let mut times = File::open(times_path(path)).ok().map(|file| BufReader::new(file).lines());
        let head = times.as_mut().and_then(Iterator::next).and_then(Result::ok);
        let times = times.filter(|_| head.as_deref() == Some(TIMES_HEAD));
        Ok(Self { path: path.to_owned(), reader, times, message: zmsg::Message::default(), failed: false })
    }

    fn time(&mut self) -> Option<(u64, usize)> {
        let line = self.times.as_mut()?.next().and_then(Result::ok);
        let found = line
            .as_deref()
            .and_then(|line| line.split_once(','))
            .and_then(|(time_ns, upstream)| Some((time_ns.parse().ok()?, upstream.parse().ok()?)));
        if found.is_none() {
            self.times = None;
        }
        found
    }
}

impl Iterator for Capture {
    type Item = io::Result<Captured>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.reader.read(&mut self.message) {
            Ok(true) => {
                let parts = self.message.parts().into_iter().map(Bytes::copy_from_slice).collect();
                let time = self.time();
                let timed = TimedMessage { message: Message { parts }, time_ns: time.map(|(time_ns, _)| time_ns) };
                Some(Ok(Captured { timed, upstream: time.map_or(0, |(_, upstream)| upstream) }))
            }
            Ok(false) => None,
            Err(error) => {
                self.failed = true;
                Some(Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", self.path.display()))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: &[&str]) -> Message {
        Message { parts: parts.iter().map(|part| Bytes::copy_from_slice(part.as_bytes())).collect() }
    }

    #[test]
    fn what_was_written_is_read_with_and_without_times() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zmsg");
        let mut recording = Recording::create(&path, false).unwrap();
        for n in 0..3 {
            recording.write(&message(&["a", "", &"b".repeat(n)]), 10 * n as u64, n % 2).unwrap();
        }
        let bytes = recording.bytes();
        recording.flush().unwrap();
        assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
        let read = || Capture::open(&path).unwrap().map(|m| m.map_err(|e| e.to_string())).collect::<Vec<_>>();
        let expected = |n: usize, known: bool| {
            let timed = TimedMessage { message: message(&["a", "", &"b".repeat(n)]), time_ns: known.then_some(10 * n as u64) };
            Ok(Captured { timed, upstream: if known { n % 2 } else { 0 } })
        };
        assert_eq!(read(), (0..3).map(|n| expected(n, true)).collect::<Vec<_>>());
        std::fs::write(times_path(&path), "time_ns,upstream\n0,0\nrubbish\n20,0\n").unwrap();
        assert_eq!(read(), [expected(0, true), expected(1, false), expected(2, false)]);
        std::fs::remove_file(times_path(&path)).unwrap();
        assert_eq!(read(), (0..3).map(|n| expected(n, false)).collect::<Vec<_>>());
        std::fs::write(&path, &std::fs::read(&path).unwrap()[..bytes as usize - 1]).unwrap();
        assert!(matches!(read().as_slice(), [Ok(_), Ok(_), Err(why)] if why.contains("a.zmsg: message 2")));
    }

    #[test]
    fn a_capture_is_not_replaced_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zmsg");
        drop(Recording::create(&path, false).unwrap());
        assert!(Recording::create(&path, false).err().unwrap().fix.contains("--overwrite"));
        drop(Recording::create(&path, true).unwrap());
        assert!(Capture::open(&path).unwrap().next().is_none());
    }
}
