//! The files that were asked for last.

use crate::http::problem::Problem;
use konkordia_acquire::handle::{FileCheck, FileIdentity, FileImages};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, Semaphore};

/// Files that are kept.
const FILES_MAX: usize = 6;
/// Chunks that all of them have together: 16 bytes each.
const CHUNKS_MAX: usize = 6 << 20;
/// So long it is taken for granted that a path still leads to the same file.
const TRUSTED: Duration = Duration::from_secs(2);
/// So long is kept that a file cannot be read.
const REFUSED: Duration = Duration::from_secs(10);

/// A detector by its name, and a path as a client gave it.
pub type Key = (String, String);
/// A file, or why it cannot be offered.
pub type Found = Result<Arc<Kept>, Problem>;

/// A file that was looked into.
pub struct Kept {
    /// Its images.
    pub images: Arc<FileImages>,
    /// What a check found, once somebody had it checked.
    pub check: OnceCell<FileCheck>,
}

impl Kept {
    /// Not checked yet.
    pub fn new(images: Arc<FileImages>) -> Self {
        Self { images, check: OnceCell::new() }
    }
}

struct Entry {
    master: PathBuf,
    identity: FileIdentity,
    /// The path with which it was asked for last, and when that path was followed.
    key: Key,
    followed: Instant,
    since: Instant,
    found: Found,
}

impl Entry {
    fn is_outdated(&self) -> bool {
        self.found.as_ref().is_ok_and(|kept| kept.images.is_outdated())
    }
}

/// See the top of this module.
pub struct Cache {
    entries: Mutex<VecDeque<Entry>>,
    /// Permits to follow paths.
    pub looks: Arc<Semaphore>,
    /// Permits to have a file looked into.
    pub reads: Arc<Semaphore>,
    /// Permits to have a file checked.
    pub checks: Arc<Semaphore>,
}

impl Cache {
    /// Threads that may wait for files at once.
    pub const THREADS_MAX: usize = 4;

    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that this path led to just now.
    pub fn seen(&self, key: &Key, now: Instant) -> Option<Found> {
        let entries = self.entries();
        let is_it = |entry: &&Entry| entry.key == *key && now.duration_since(entry.followed) < TRUSTED && !entry.is_outdated();
        entries.iter().find(is_it).map(|entry| entry.found.clone())
    }

    /// This very file, if it was looked into. `key` led to it at this moment.
    pub fn find(&self, master: &Path, identity: &FileIdentity, key: &Key, now: Instant) -> Option<Found> {
        let mut entries = self.entries();
        let is_old = |entry: &Entry| entry.found.is_err() && now.duration_since(entry.since) >= REFUSED;
        entries.retain(|entry| !is_old(entry) && !entry.is_outdated() && (entry.master != master || entry.identity == *identity));
        let place = entries.iter().position(|entry| entry.master == master)?;
        let mut entry = entries.remove(place)?;
        (entry.key, entry.followed) = (key.clone(), now);
        let found = entry.found.clone();
        entries.push_back(entry);
        Some(found)
    }

    /// Keeps a file that was looked into; the one that nobody has asked for the longest time goes.
    pub fn keep(&self, master: PathBuf, identity: FileIdentity, key: Key, found: &Found, now: Instant) {
        let mut entries = self.entries();
        entries.retain(|entry| entry.master != master);
        entries.push_back(Entry { master, identity, key, followed: now, since: now, found: found.clone() });
        let chunks = |entry: &Entry| entry.found.as_ref().map_or(0, |kept| kept.images.chunks());
        while entries.len() > 1 && (entries.len() > FILES_MAX || entries.iter().map(chunks).sum::<usize>() > CHUNKS_MAX) {
            entries.pop_front();
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let permits = |many| Arc::new(Semaphore::new(many));
        Self { entries: Mutex::default(), looks: permits(2), reads: permits(1), checks: permits(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_kept_as_long_as_it_is_the_same_and_a_refusal_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        std::fs::write(&path, "a").unwrap();
        let (cache, now, key) = (Cache::default(), Instant::now(), ("eiger".to_owned(), "a.h5".to_owned()));
        let identity = FileIdentity::at(&path).unwrap();
        assert!(cache.seen(&key, now).is_none() && cache.find(&path, &identity, &key, now).is_none());
        cache.keep(path.clone(), identity, key.clone(), &Err(Problem::new("bad_file", "", "")), now);
        assert!(cache.seen(&key, now + TRUSTED / 2).is_some_and(|found| found.is_err()));
        assert!(cache.seen(&key, now + TRUSTED).is_none() && cache.seen(&("jungfrau".into(), key.1.clone()), now).is_none());
        assert!(cache.find(&path, &identity, &key, now + TRUSTED).is_some());
        // A refusal goes after a while, and any knowledge with the file that it is about.
        assert!(cache.find(&path, &identity, &key, now + REFUSED).is_none());
        cache.keep(path.clone(), identity, key.clone(), &Err(Problem::new("bad_file", "", "")), now);
        std::fs::write(&path, "another").unwrap();
        assert!(cache.find(&path, &FileIdentity::at(&path).unwrap(), &key, now).is_none());
        for n in 0..2 * FILES_MAX {
            cache.keep(format!("{n}").into(), identity, key.clone(), &Err(Problem::new("bad_file", "", "")), now);
        }
        assert_eq!(cache.entries().len(), FILES_MAX);
    }
}
