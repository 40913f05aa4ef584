//! Brings files to the disk while they are written, in a thread of its own. What a program has written stays in the
//! memory of the kernel for half a minute, and a power cut would lose it. The writer reports which files grow and which
//! are closed, and never waits; anybody can read up to which image everything is on the disk.
//!
//! A closed file is synced at once, a growing file once per interval. A number counts as on the disk when the files
//! that hold it were synced after it was written, and the folder was synced after their names were made. Files of one
//! group are synced in the order in which they are given: the data before the journal that names them, so that a
//! journal on the disk names only data on the disk.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use konkordia_core::latency::{Meter, Stage};

use crate::sys::writeback;

/// How often, and after which pause, an operation is tried again while no file descriptor is free.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Images that were received within this time wait together until they are on the disk, and count as received with the
/// first of them; so their latency is never too short.
const TOGETHER_NS: u64 = 1_000_000;
/// So many groups of images may wait, 192 KiB: those of 8 s. Behind them, images join the last group.
const WAITING_MAX: usize = 8192;

/// Calls `make`, which needs file descriptors. While none is free it tries again for some seconds, because surplus
/// connections are closed one after the other.
///
/// # Errors
/// Those of `make`.
pub fn while_out_of_files<T, E>(is_out: impl Fn(&E) -> bool, mut make: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..ATTEMPTS {
        match make() {
            Err(error) if is_out(&error) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    make()
}

/// True if no descriptor was free.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// When written data are brought to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToDisk {
    /// Whenever the kernel does it.
    Never,
    /// At the end, which waits until it is done.
    #[default]
    AtEnd,
    /// While the files are written, in a separate thread: closed files at once, growing files once per interval. `None`
    /// = only closed files. The end waits until it is done.
    Beside(Option<Duration>),
    /// The same, for files in a spool, from which they move to where they belong: that they are on the disk of the
    /// spool does not yet count.
    InSpool(Option<Duration>),
}

/// An open file and its path.
pub type OpenFile = (PathBuf, Arc<File>);

/// A file that could not be brought to the disk, and why.
#[derive(Clone, Debug)]
pub struct SyncFailed(Arc<(PathBuf, io::Error)>);

impl SyncFailed {
    /// Which file.
    pub fn path(&self) -> &Path {
        &self.0.0
    }

    /// Why.
    pub fn error(&self) -> &io::Error {
        &self.0.1
    }
}

/// The number up to which everything is on the disk, readable from any thread.
#[derive(Clone, Debug, Default)]
pub struct Durable(Arc<AtomicU64>);

impl Durable {
    /// Images (or frames) before this number survive a power cut.
    pub fn end(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Everything before `end` is on the disk. Returns the number that holds now: it never goes back.
    pub fn raise_to(&self, end: u64) -> u64 {
        self.0.fetch_max(end, Ordering::AcqRel).max(end)
    }
}

/// The thread that brings files to the disk. Dropping it brings the remaining files to the disk and waits for that.
#[derive(Debug)]
pub struct DiskSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    interval: Option<Duration>,
    written_end: AtomicU64,
    durable: Durable,
    todo: Mutex<Todo>,
    changed: Condvar,
    /// Locked after `todo`, and only while a few numbers are moved.
    waiting: Mutex<Waiting>,
}

/// Images that are written and not on the disk yet, for their latency.
#[derive(Debug, Default)]
struct Waiting {
    meter: Meter,
    groups: VecDeque<WaitingGroup>,
}

#[derive(Debug)]
struct WaitingGroup {
    /// One past the last of them.
    end: u64,
    received_ns: u64,
    images: u64,
}

impl Waiting {
    fn add(&mut self, end: u64, received_ns: u64) {
        let is_full = self.groups.len() >= WAITING_MAX;
        let last = self.groups.back_mut();
        match last.filter(|last| is_full || received_ns.abs_diff(last.received_ns) < TOGETHER_NS) {
            Some(last) => {
                (last.end, last.images) = (end, last.images + 1);
                last.received_ns = last.received_ns.min(received_ns);
            }
            None => self.groups.push_back(WaitingGroup { end, received_ns, images: 1 }),
        }
    }

    /// Counts the images before `durable_end`.
    fn count(&mut self, durable_end: u64) {
        while let Some(group) = self.groups.front().filter(|group| group.end <= durable_end) {
            self.meter.reached_by(Stage::Durable, group.received_ns, group.images);
            self.groups.pop_front();
        }
    }
}

/// A closed file, with the files of its group.
#[derive(Debug)]
struct Closed {
    group: u64,
    files: Vec<PathBuf>,
    end: u64,
    then_remove: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Todo {
    /// Files that grow, by group.
    growing: BTreeMap<u64, Vec<OpenFile>>,
    /// At most one for each data file of the run.
    closed: Vec<Closed>,
    /// The group that was closed last. Its locks are held until it is on the disk, so that the run never looks
    /// abandoned.
    newest_closed: Option<(u64, Vec<OpenFile>)>,
    has_new_names: bool,
    is_ending: bool,
    failed: Option<SyncFailed>,
}

/// What the thread does in one pass.
#[derive(Default)]
struct Work {
    growing: Vec<OpenFile>,
    closed: Vec<Closed>,
    has_new_names: bool,
    end: Option<u64>,
    is_last: bool,
}

impl DiskSync {
    /// Starts the thread for files in `directory`.
    ///
    /// # Errors
    /// If the machine has no threads left.
    pub fn start(directory: &Path, interval: Option<Duration>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            interval,
            written_end: AtomicU64::new(0),
            durable: Durable::default(),
            todo: Mutex::default(),
            changed: Condvar::new(),
            waiting: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("sync".into()).stack_size(128 << 10).spawn(move || own.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The progress, for other threads.
    pub fn durable(&self) -> Durable {
        self.shared.durable.clone()
    }

    /// Reports new files that grow from now on; they are synced in this order.
    pub fn opened(&self, group: u64, files: Vec<OpenFile>) {
        let mut todo = self.shared.locked();
        todo.growing.insert(group, files);
        todo.has_new_names = true;
        self.shared.changed.notify_one();
    }

    /// From now on, counts at `meter` when the images that [`Self::wrote`] reports come to the disk.
    pub fn measure(&self, meter: Meter) {
        let mut waiting = self.shared.waiting();
        waiting.groups.reserve(if meter.is_on() { WAITING_MAX } else { 0 });
        waiting.meter = meter;
    }

    /// Reports the newest image for the meter: `end` is one past it, and its first byte was received at `received_ns`.
    pub fn wrote(&self, end: u64, received_ns: u64) {
        let mut waiting = self.shared.waiting();
        if waiting.meter.is_on() && received_ns > 0 {
            waiting.add(end, received_ns);
            // It may be there already; then the thread need not look at it again.
            waiting.count(self.shared.durable.end());
        }
    }

    /// Reports that everything before this number was written into files that were [`Self::opened`].
    pub fn written(&self, end: u64) {
        self.shared.written_end.store(end, Ordering::Release);
    }

    /// Reports that the files of a group are complete, and with them everything before `end`. When they are on the
    /// disk, `then_remove` is removed.
    pub fn closed(&self, group: u64, files: Vec<PathBuf>, end: u64, then_remove: Option<PathBuf>) {
        let mut todo = self.shared.locked();
        todo.newest_closed = todo.growing.remove(&group).map(|files| (group, files));
        todo.closed.push(Closed { group, files, end, then_remove });
        self.shared.changed.notify_one();
    }

    /// Reports that the files of a group are gone.
    pub fn forget(&self, group: u64) {
        self.shared.locked().growing.remove(&group);
    }

    /// The first failure. After it, nothing more counts as on the disk.
    pub fn failure(&self) -> Option<SyncFailed> {
        self.shared.locked().failed.clone()
    }

    /// Brings the remaining files to the disk, waits for that, and ends the thread.
    ///
    /// # Errors
    /// The first failure.
    pub fn finish(mut self) -> Result<(), SyncFailed> {
        self.join();
        self.shared.locked().failed.clone().map_or(Ok(()), Err)
    }

    fn join(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.locked().is_ending = true;
        self.shared.changed.notify_one();
        // The panic hook has reported a panic.
        let _ = thread.join();
        let mut todo = self.shared.locked();
        (todo.growing, todo.newest_closed) = (BTreeMap::new(), None);
    }
}

impl Drop for DiskSync {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut synced, mut synced_end, mut is_first) = (Instant::now(), 0, true);
        loop {
            let work = self.wait(synced, synced_end);
            let has_failed = self.locked().failed.is_some();
            let done = self.sync(&work, is_first, has_failed);
            if let Some(end) = work.end {
                (synced, synced_end) = (Instant::now(), end);
            }
            is_first &= !work.has_new_names;
            let mut todo = self.locked();
            match done {
                Ok(()) if todo.failed.is_none() => {
                    let end = work.closed.iter().map(|closed| closed.end).chain(work.end).max();
                    let durable_end = self.durable.raise_to(end.unwrap_or(0));
                    self.waiting().count(durable_end);
                }
                Ok(()) => {}
                Err(error) => drop(todo.failed.get_or_insert(error)),
            }
            if todo.newest_closed.as_ref().is_some_and(|(group, _)| work.closed.iter().any(|closed| closed.group == *group)) {
                todo.newest_closed = None;
            }
            if work.is_last {
                return;
            }
        }
    }

    /// Waits until there is work, and takes it.
    fn wait(&self, synced: Instant, synced_end: u64) -> Work {
        let mut todo = self.locked();
        loop {
            // Read before the lists are read, so that everything counted here is in one of them.
            let written_end = self.written_end.load(Ordering::Acquire);
            let left = self.interval.map(|interval| interval.saturating_sub(synced.elapsed()));
            let is_due = left.is_some_and(|left| left.is_zero()) && written_end != synced_end;
            if todo.is_ending || todo.has_new_names || is_due || !todo.closed.is_empty() {
                let with_growing = todo.is_ending || todo.has_new_names || is_due;
                let growing = if with_growing { todo.growing.values().flatten().cloned().collect() } else { Vec::new() };
                return Work {
                    growing,
                    closed: std::mem::take(&mut todo.closed),
                    has_new_names: std::mem::take(&mut todo.has_new_names),
                    end: with_growing.then_some(written_end),
                    is_last: todo.is_ending,
                };
            }
            todo = match left {
                // Nothing was written since the last sync: check again after an interval.
                Some(left) => {
                    let pause = if left.is_zero() { self.interval.unwrap_or_default() } else { left };
                    self.changed.wait_timeout(todo, pause).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(todo).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// After a failure nothing is removed any more: the kernel reports a failure once, and the next `fdatasync` of the
    /// same file may report success.
    fn sync(&self, work: &Work, is_first: bool, has_failed: bool) -> Result<(), SyncFailed> {
        let paths = || work.closed.iter().flat_map(|closed| &closed.files);
        if work.closed.len() > 1 {
            paths().filter_map(|path| File::open(path).ok()).for_each(|file| writeback::begin(&file));
        }
        if work.has_new_names {
            sync_directory(&self.directory, is_first);
        }
        let failed = |path: &Path, error| SyncFailed(Arc::new((path.to_owned(), error)));
        for path in paths() {
            match while_out_of_files(is_out_of_files, || File::open(path)).and_then(|file| file.sync_data()) {
                // Somebody moved the file away after it was complete, and is responsible for it now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done.map_err(|error| failed(path, error))?,
            }
        }
        for (path, file) in &work.growing {
            file.sync_data().map_err(|error| failed(path, error))?;
        }
        for path in work.closed.iter().filter_map(|closed| closed.then_remove.as_ref()).filter(|_| !has_failed) {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done.map_err(|error| failed(path, error))?,
            }
        }
        Ok(())
    }
}

/// Makes the names in a directory durable; the first time also those of the folders above it, which may be new as well.
/// Errors are ignored: a file system that cannot do this loses nothing that it promised.
fn sync_directory(directory: &Path, with_above: bool) {
    let Ok(directory) = directory.canonicalize() else { return };
    let device = |path: &Path| path.metadata().map(|facts| facts.dev()).ok();
    let own = device(&directory);
    let above = directory.ancestors().skip(1).take_while(|path| with_above && device(path) == own);
    for path in std::iter::once(directory.as_path()).chain(above) {
        let _ = File::open(path).and_then(|folder| folder.sync_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_wait_for_the_disk_are_bounded_and_none_is_forgotten() {
        let (mut waiting, all) = (Waiting::default(), 4 * WAITING_MAX as u64);
        // Two in the time that they may wait together.
        (0..all).for_each(|image| waiting.add(image + 1, 1 + image * TOGETHER_NS / 2));
        let images = |waiting: &Waiting| waiting.groups.iter().map(|group| group.images).sum::<u64>();
        assert_eq!((waiting.groups.len(), images(&waiting)), (WAITING_MAX, all));
        waiting.count(5);
        assert_eq!(images(&waiting), all - 4, "the fifth waits with the sixth");
        waiting.count(all);
        assert!(waiting.groups.is_empty());
    }
}
