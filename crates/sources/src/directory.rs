//! New files of one folder as messages: name and content.
//!
//! A file is taken when the kernel reports that its writer closed it or moved it here, or when its size and times do
//! not change for a while (network file systems do not notify). Files that are hidden, temporary or not plain files are
//! ignored; this includes links, so that nothing from outside the folder is read. Folders inside the folder are not
//! entered. A file that is written again under its old name is a new file.

use crate::sys;
use crate::sys::inotify::{Notice, Watch};
use bytes::Bytes;
use konkordia_core::ports::{Message, MessageSource};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ends of names that writers give to files that they have not finished.
const UNFINISHED: [&[u8]; 3] = [b".tmp", b".part", b"~"];

/// Sweeps take at most 1/`SWEEP_SHARE` of the time.
const SWEEP_SHARE: u32 = 20;

/// Which files are taken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySpec {
    /// The folder. It must exist when the source is opened; later it may disappear and come back.
    pub folder: PathBuf,
    /// Ends of the names that are wanted, such as `.cbf`, in large or small letters; empty for all.
    pub suffixes: Vec<String>,
    /// Also takes the files that were there before.
    pub existing: bool,
    /// Removes each file after [`MessageSource::accepted`], unless it was changed since it was read.
    pub remove: bool,
    /// A file without a notice from the kernel is complete when its size and times have not changed for this long.
    pub settle: Duration,
    /// How often the folder is searched for files without a notice from the kernel.
    pub sweep: Duration,
    /// A larger file is refused: its message has an empty content and a third part, which says why.
    pub file_bytes_max: u64,
}

impl DirectorySpec {
    /// All new files of `folder` up to 1 GiB, searched every second, complete after 0.5 s without change.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            suffixes: Vec::new(),
            existing: false,
            remove: false,
            settle: Duration::from_millis(500),
            sweep: Duration::from_secs(1),
            file_bytes_max: 1 << 30,
        }
    }
}

/// What distinguishes one content of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), bytes: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

/// What is known of a file of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It may still be written. This is its state when it was last seen to change.
    Resting { identity: Identity, since: Instant },
    /// Taken, or present before the source was opened.
    Done(Identity),
}

/// Hands over the new files of a folder.
pub struct DirectorySource {
    spec: DirectorySpec,
    watch: Option<Watch>,
    known: HashMap<OsString, Known>,
    /// Complete files that are to be read; the first in the order of names is at the end.
    ready: Vec<OsString>,
    /// Files handed over and not yet accepted, if files are to be removed; `None` = this file is not to be removed.
    handed: VecDeque<Option<(OsString, Identity)>>,
    /// True if a file may still be written.
    resting: bool,
    swept: Instant,
    sweep_took: Duration,
    queue_bytes: u64,
}

impl DirectorySource {
    /// Begins to watch the folder; files that come after this returns are not missed.
    ///
    /// # Errors
    /// The folder does not exist or cannot be read.
    pub fn open(spec: DirectorySpec) -> io::Result<Self> {
        let folder = spec.folder.clone();
        let mut source = Self {
            // Without notices (each user has a limit of them) the folder is searched nevertheless.
            watch: Watch::new(&folder).ok(),
            spec,
            known: HashMap::new(),
            ready: Vec::new(),
            handed: VecDeque::new(),
            resting: false,
            swept: Instant::now(),
            sweep_took: Duration::ZERO,
            queue_bytes: u64::MAX,
        };
        let wrong = |e: io::Error| {
            let text = format!("cannot watch the folder {}: {e}; create it, or check its path and permissions", folder.display());
            io::Error::new(e.kind(), text)
        };
        let there = source.files().map_err(wrong)?;
        if !source.spec.existing {
            source.known = there.into_iter().map(|(name, identity)| (name, Known::Done(identity))).collect();
        } else {
            source.sweep(Instant::now());
        }
        Ok(source)
    }

    /// The files of the folder that are wanted.
    fn files(&self) -> io::Result<Vec<(OsString, Identity)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.spec.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if !self.wants(&name) {
                continue;
            }
            // The metadata of a link, not of its target. A file that is gone by now is left out.
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                found.push((name, Identity::of(&metadata)));
            }
        }
        Ok(found)
    }

    fn wants(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let ends = |end: &[u8]| name.len() >= end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end);
        let suffixes = &self.spec.suffixes;
        !name.starts_with(b".")
            && !UNFINISHED.iter().any(|end| ends(end))
            && (suffixes.is_empty() || suffixes.iter().any(|end| ends(end.as_bytes())))
    }

    /// Searches the folder. A folder that is gone counts as empty.
    fn sweep(&mut self, now: Instant) {
        self.swept = now;
        self.resting = false;
        let Ok(files) = self.files() else {
            self.watch = None;
            self.known.clear();
            return;
        };
        if self.watch.is_none() {
            // Files that come between these lines are found by the next sweep.
            self.watch = Watch::new(&self.spec.folder).ok();
        }
        let mut known = HashMap::with_capacity(files.len());
        for (name, identity) in files {
            let now_known = match self.known.get(&name) {
                Some(Known::Done(before)) if *before == identity => Known::Done(identity),
                Some(Known::Resting { identity: before, since }) if *before == identity => {
                    if now.saturating_duration_since(*since) >= self.spec.settle && identity.bytes > 0 {
                        self.ready.push(name.clone());
                        Known::Done(identity)
                    } else {
                        Known::Resting { identity, since: *since }
                    }
                }
                _ => Known::Resting { identity, since: now },
            };
            self.resting |= matches!(now_known, Known::Resting { .. });
            known.insert(name, now_known);
        }
        self.known = known;
        self.sweep_took = now.elapsed();
    }

    /// Reads the notices of the kernel.
    fn notices(&mut self, now: Instant) {
        let Some(mut watch) = self.watch.take() else { return };
        let (mut complete, mut lost) = (Vec::new(), false);
        let read = watch.read(|notice| match notice {
            Notice::Complete(name) => complete.push(name),
            Notice::Lost => lost = true,
        });
        if read.is_ok() && !lost {
            self.watch = Some(watch);
        }
        for name in complete.into_iter().filter(|name| self.wants(name)).collect::<Vec<_>>() {
            let Ok(metadata) = std::fs::symlink_metadata(self.spec.folder.join(&name)) else { continue };
            let identity = Identity::of(&metadata);
            if metadata.is_file() && identity.bytes > 0 && self.known.get(&name) != Some(&Known::Done(identity)) {
                self.known.insert(name.clone(), Known::Done(identity));
                self.ready.push(name);
            }
        }
        if lost {
            self.sweep(now);
        }
    }

    /// Finds new files and puts them in the order of their names.
    fn look(&mut self) {
        let (now, before) = (Instant::now(), self.ready.len());
        self.notices(now);
        if now.saturating_duration_since(self.swept) >= self.sweep_after() {
            self.sweep(now);
        }
        if self.ready.len() > before {
            self.ready.sort_by(|a, b| natural(b.as_bytes(), a.as_bytes()));
            self.ready.dedup();
        }
    }

    /// Time between two sweeps: shorter while a file may still be written, longer if the folder has so many files that
    /// a sweep takes more than a small part of the time.
    fn sweep_after(&self) -> Duration {
        let wanted = if self.resting { self.spec.settle.min(self.spec.sweep) } else { self.spec.sweep };
        wanted.max(self.sweep_took * SWEEP_SHARE).max(Duration::from_millis(1))
    }

    /// Reads one file; `None` if it is gone, no plain file, or was written meanwhile (then it will come again).
    fn read(&mut self, name: &OsStr) -> Option<Message> {
        let path = self.spec.folder.join(name);
        // Does not wait for the writer of a pipe, and does not follow a link, even if it was put there just now.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let outcome = OpenOptions::new().read(true).custom_flags(flags).open(&path).and_then(|file| self.content(&file));
        let (content, identity) = match outcome {
            Ok(Some((content, identity))) => (Ok(content), Some(identity)),
            Ok(None) => return None,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => (Err(error.to_string()), None),
        };
        let first = Bytes::copy_from_slice(name.as_bytes());
        let parts = match content {
            Ok(content) => vec![first, Bytes::from(content)],
            Err(why) => vec![first, Bytes::new(), Bytes::from(why)],
        };
        if let Some(identity) = identity {
            self.known.insert(name.to_owned(), Known::Done(identity));
        }
        if self.spec.remove {
            self.handed.push_back(identity.map(|identity| (name.to_owned(), identity)));
        }
        Some(Message { parts })
    }

    /// The bytes of a file; `None` if it changed while it was read, or is not a plain file.
    fn content(&self, file: &File) -> io::Result<Option<(Vec<u8>, Identity)>> {
        let before = file.metadata()?;
        let (bytes, most) = (before.len(), self.spec.file_bytes_max);
        if !before.is_file() {
            return Ok(None);
        }
        if bytes > most {
            return Err(io::Error::other(format!("the file has {bytes} bytes; files up to {most} bytes are read")));
        }
        let mut content = Vec::with_capacity(usize::try_from(bytes).map_err(io::Error::other)? + 1);
        // One byte more, to notice that it grows.
        file.take(bytes + 1).read_to_end(&mut content)?;
        let identity = Identity::of(&file.metadata()?);
        let whole = identity == Identity::of(&before) && content.len() as u64 == bytes;
        Ok(whole.then_some((content, identity)))
    }
}

impl MessageSource for DirectorySource {
    fn receive(&mut self, timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> io::Result<()> {
        let end = Instant::now() + timeout;
        self.look();
        while self.ready.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let wait = left.min(self.sweep_after().saturating_sub(self.swept.elapsed())).max(Duration::from_millis(1));
            match &self.watch {
                Some(watch) => sys::wait_readable(watch, wait)?,
                None => std::thread::sleep(wait),
            }
            self.look();
        }
        let (mut taken, mut bytes) = (0, 0);
        while taken < messages_max && (taken == 0 || bytes < self.queue_bytes) {
            let Some(name) = self.ready.pop() else { break };
            match self.read(&name) {
                Some(message) => {
                    bytes += message.bytes();
                    into.push(message);
                    taken += 1;
                }
                // It will be treated as a new file.
                None => {
                    self.known.remove(&name);
                }
            }
        }
        Ok(())
    }

    fn bound(&mut self, _message_bytes: u64, queue_bytes: u64) {
        self.queue_bytes = queue_bytes;
    }

    fn accepted(&mut self, messages: usize) {
        let messages = messages.min(self.handed.len());
        for (name, identity) in self.handed.drain(..messages).flatten() {
            let path = self.spec.folder.join(&name);
            let unchanged = std::fs::symlink_metadata(&path).is_ok_and(|metadata| Identity::of(&metadata) == identity);
            if unchanged && std::fs::remove_file(&path).is_ok() {
                self.known.remove(&name);
            }
        }
    }

    fn refused(&mut self, messages: usize) {
        self.handed.drain(..messages.min(self.handed.len()));
    }

    fn name(&self) -> String {
        self.spec.folder.display().to_string()
    }
}

/// The order of names in which 2 comes before 10; names that differ only in leading zeros by their bytes.
pub fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        let order = match (x.first(), y.first()) {
            (Some(p), Some(q)) if p.is_ascii_digit() && q.is_ascii_digit() => {
                let (p, q);
                (p, x) = digits(x);
                (q, y) = digits(y);
                p.len().cmp(&q.len()).then(p.cmp(q))
            }
            (Some(p), Some(q)) => {
                (x, y) = (&x[1..], &y[1..]);
                p.cmp(q)
            }
            (p, q) => return p.cmp(&q).then(a.cmp(b)),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The digits in front, without leading zeros, and the rest.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let (number, rest) = text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let zeros = number.iter().take_while(|byte| **byte == b'0').count();
    (&number[zeros..], rest)
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
