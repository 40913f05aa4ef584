//! The spool of a detector, and the thread that drains it: oldest run first, file by file.

use super::folder::{RunFolder, Step, bytes_in};
use super::moving::move_file;
use super::note::Note;
use super::status::SpoolStatus;
use konkordia_config::spool::Spool as Settings;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::SinkError;
use konkordia_core::text;
use konkordia_engine::contain::contain;
use konkordia_sinks::durable::Durable;
use konkordia_sinks::hdf5::{FileReport, FileSpec, Writer, free_bytes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often the thread looks for finished files and at the bytes in the spool.
const TICK: Duration = Duration::from_millis(100);
/// After a failure a run is tried again after this time.
const RETRY: Duration = Duration::from_secs(2);
/// Images wait for a full spool from which nothing moves, at most for this time.
const STUCK: Duration = Duration::from_secs(60);

/// What happens in a spool.
#[derive(Clone, Debug)]
pub enum News {
    /// All files of a run have moved; this is its master.
    Moved(PathBuf),
    /// Files cannot move; this is why. It is tried again.
    Failing(Failure),
    /// They move again.
    Moving(PathBuf),
    /// The files of a master stay in a spool: those of this master, in this spool.
    Left(PathBuf, PathBuf),
}

impl News {
    /// What people should know of it, as a warning; `None` if all is well.
    pub fn to_text(&self) -> Option<String> {
        match self {
            Self::Moved(_) => None,
            Self::Failing(failure) => {
                let Failure { what, why, fix, .. } = failure;
                Some(format!("files cannot move from the spool: {what}: {why}; fix: {fix}; it is tried again"))
            }
            Self::Moving(master) => Some(format!("the files of {} move again", master.display())),
            Self::Left(master, spool) => {
                Some(format!("files of {} stay in the spool; later, {}", master.display(), repair_command(spool)))
            }
        }
    }
}

/// Gets what happens.
pub type Tell = Box<dyn Fn(&News) + Send + Sync>;

/// What a run needed of its spool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpoolReport {
    /// Most bytes in the spool.
    pub peak_bytes: u64,
    /// Most bytes that may lie in it.
    pub limit_bytes: u64,
    /// Bytes of the files that have moved, as they were in the spool.
    pub moved_bytes: u64,
    /// For how long files moved.
    pub moving: Duration,
    /// For how long images waited because the spool was full.
    pub full: Duration,
}

impl SpoolReport {
    /// Bytes per second that left the spool, while files moved; `None` if none has moved.
    pub fn drain_bytes_per_s(&self) -> Option<f64> {
        (self.moved_bytes > 0).then(|| self.moved_bytes as f64 / self.moving.as_secs_f64().max(1e-6))
    }

    /// In words.
    pub fn to_text(&self) -> String {
        let moved = self
            .drain_bytes_per_s()
            .map_or(String::new(), |rate| format!("; {} moved at {}/s", text::bytes(self.moved_bytes), text::bytes(rate as u64)));
        let full = match self.full {
            Duration::ZERO => String::new(),
            full => format!("; it was full for {:.1} s, and images waited for the disk", full.as_secs_f64()),
        };
        format!("at most {} of {}{moved}{full}", text::bytes(self.peak_bytes), text::bytes(self.limit_bytes))
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "peak_bytes": self.peak_bytes, "limit_bytes": self.limit_bytes, "moved_bytes": self.moved_bytes,
            "drain_bytes_per_s": self.drain_bytes_per_s(), "full_s": self.full.as_secs_f64(),
        })
    }
}

/// The spool of a detector. Dropping it ends its thread; what has not moved stays.
pub struct Spool {
    common: Arc<Common>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A run whose files are in the spool.
pub struct SpoolRun {
    common: Arc<Common>,
    folder: RunFolder,
    durable: Durable,
    report: Mutex<SpoolReport>,
}

struct Common {
    settings: Settings,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
    tell: Tell,
}

#[derive(Default)]
struct State {
    /// Bytes at the last look.
    looked_bytes: u64,
    /// Bytes of the images that were given to the writers since then.
    since_bytes: u64,
    /// Files that were still to move at the last look.
    files_waiting: u64,
    /// A file is on its way.
    is_moving: bool,
    /// When the newest file had moved.
    moved: Option<Instant>,
    /// Bytes per second that left the spool with the newest file.
    bytes_per_s: Option<f64>,
    /// Oldest first.
    runs: Vec<Entry>,
}

struct Entry {
    run: Arc<SpoolRun>,
    /// Its positions, once its files are closed.
    images: Option<u64>,
    failure: Option<Failure>,
    failed: Option<Instant>,
}

impl State {
    fn used_bytes(&self) -> u64 {
        self.looked_bytes + self.since_bytes
    }

    fn entry(&mut self, run: &SpoolRun) -> Option<&mut Entry> {
        self.runs.iter_mut().find(|entry| entry.run.folder.path == run.folder.path)
    }
}

impl Spool {
    /// Makes the folder of the spool, if it is not there yet, and starts the thread. `tell` gets what happens.
    ///
    /// # Errors
    /// The folder cannot be made, or the machine has no threads left.
    pub fn open(settings: &Settings, tell: Tell) -> Result<Arc<Self>, Failure> {
        let mut settings = settings.clone();
        // Only the last folder: a wrong path must not fill another disk.
        if !settings.directory.is_dir() {
            let made = std::fs::create_dir(&settings.directory);
            made.map_err(|error| Failure::io("cannot make the spool", &settings.directory, &error))?;
        }
        let real = settings.directory.canonicalize();
        settings.directory = real.map_err(|error| Failure::io("cannot use the spool", &settings.directory, &error))?;
        let (state, changed, stop) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let common = Arc::new(Common { settings, state, changed, stop, tell });
        let own = Arc::clone(&common);
        let thread = Builder::new().name("drain".into()).spawn(move || own.drain());
        let thread = thread.map_err(|error| {
            Failure::new(Exit::Io, "no thread could be started for the spool", reason(&error), "end other programs")
        })?;
        Ok(Arc::new(Self { common, thread: Mutex::new(Some(thread)) }))
    }

    /// Makes the folder of a run whose files belong to `spec.directory`, and removes older files there if they may be
    /// replaced. `image_bytes`: those of an uncompressed image, if known.
    ///
    /// # Errors
    /// There is not enough room in the spool, or the target cannot take the files.
    pub fn begin(&self, spec: &FileSpec, image_bytes: Option<u64>) -> Result<Arc<SpoolRun>, Failure> {
        let common = &self.common;
        let target = spec.directory.canonicalize();
        let target = target.map_err(|error| Failure::io("cannot use the output folder", &spec.directory, &error))?;
        common.check_room(spec.images_per_file, image_bytes)?;
        common.refuse_left_over(&target, &spec.prefix)?;
        Writer::make_way(spec)?;
        let note = Note::new(&spec.prefix, &target, spec.images_per_file, common.settings.repack_to);
        let folder = RunFolder::create(&common.settings.directory, note)?;
        let report = Mutex::new(SpoolReport { limit_bytes: common.settings.limit_bytes, ..SpoolReport::default() });
        let run = Arc::new(SpoolRun { common: Arc::clone(common), folder, durable: Durable::default(), report });
        common.locked().runs.push(Entry { run: Arc::clone(&run), images: None, failure: None, failed: None });
        common.changed.notify_all();
        Ok(run)
    }

    /// What people should know of it.
    pub fn status(&self) -> SpoolStatus {
        let (state, settings) = (self.common.locked(), &self.common.settings);
        SpoolStatus {
            directory: settings.directory.display().to_string(),
            used_bytes: state.used_bytes(),
            limit_bytes: settings.limit_bytes,
            files_waiting: state.files_waiting,
            drain_bytes_per_s: state.bytes_per_s,
            problem: state.runs.iter().find_map(|entry| entry.failure.as_ref()).map(Failure::detail),
        }
    }

    /// True while the files of this master have not all moved.
    pub fn has(&self, master: &Path) -> bool {
        self.common.locked().runs.iter().any(|entry| entry.run.folder.target_master() == master)
    }

    /// Ends the thread after the current block, and tells which files stay in the spool.
    pub fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // With the lock, so that nobody looks at the flag and then misses the call.
        let state = self.common.locked();
        self.common.stop.store(true, Ordering::Release);
        drop(state);
        self.common.changed.notify_all();
        // The panic hook has reported a panic.
        let _ = thread.join();
        let left: Vec<PathBuf> = self.common.locked().runs.iter().map(|entry| entry.run.folder.target_master()).collect();
        left.into_iter().for_each(|master| self.common.tell_left(master));
        self.common.changed.notify_all();
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SpoolRun {
    /// Where its files are written.
    pub fn directory(&self) -> &Path {
        &self.folder.path
    }

    /// Its master in the end.
    pub fn target_master(&self) -> PathBuf {
        self.folder.target_master()
    }

    /// Up to which position its images are in the target.
    pub fn durable(&self) -> Durable {
        self.durable.clone()
    }

    /// The same files where they belong.
    #[must_use]
    pub fn in_target(&self, mut file: FileReport) -> FileReport {
        file.master = self.folder.target_of(&file.master);
        file.data_files.iter_mut().for_each(|path| *path = self.folder.target_of(path));
        file
    }

    /// Waits until there is room for so many bytes more, and takes it.
    ///
    /// # Errors
    /// The spool is full and nothing leaves it.
    pub fn wait_for_room(&self, bytes: u64) -> Result<(), SinkError> {
        let (common, began) = (&self.common, Instant::now());
        let limit = common.settings.limit_bytes;
        let mut state = common.locked();
        while state.used_bytes() + bytes > limit {
            if let Some(failure) = common.stuck(&mut state, self, began) {
                return Err(failure.into());
            }
            state = common.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.since_bytes += bytes;
        let used = state.used_bytes();
        drop(state);
        self.noted(|report| {
            report.peak_bytes = report.peak_bytes.max(used);
            // Below that it is the time to look.
            report.full += Some(began.elapsed()).filter(|waited| *waited >= Duration::from_millis(1)).unwrap_or_default();
        });
        Ok(())
    }

    /// The files are closed, with so many positions; the rest of them moves too.
    pub fn over(&self, images: u64) {
        if let Some(entry) = self.common.locked().entry(self) {
            entry.images = Some(images);
        }
        self.common.changed.notify_all();
    }

    /// The files could not be closed: they stay for `konkordia repair --spool`.
    pub fn leave(&self) {
        self.common.locked().runs.retain(|entry| entry.run.folder.path != self.folder.path);
        self.common.tell_left(self.folder.target_master());
    }

    /// Removes everything of a run that nobody wants.
    pub fn abandon(&self) {
        self.common.locked().runs.retain(|entry| entry.run.folder.path != self.folder.path);
        self.folder.abandon();
    }

    /// Where the files have not moved, why not, and which command goes on.
    pub fn left(&self, why: impl Into<String>) -> Failure {
        let what = format!("files of {} are still in the spool", self.folder.target_master().display());
        Failure::new(Exit::Io, what, why, repair_command(&self.common.settings.directory))
    }

    /// Waits until all files have moved, or for `longest`; returns whether they have.
    ///
    /// # Errors
    /// They cannot move now, or the spool was stopped.
    pub fn wait(&self, longest: Duration) -> Result<bool, Failure> {
        let state = self.common.locked();
        let goes_on = |state: &mut State| {
            !self.common.stop.load(Ordering::Acquire) && state.entry(self).is_some_and(|entry| entry.failure.is_none())
        };
        let waited = self.common.changed.wait_timeout_while(state, longest, goes_on);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match state.entry(self) {
            None => Ok(true),
            Some(Entry { failure: Some(failure), .. }) => {
                let why = failure.detail();
                Err(self.left(why))
            }
            Some(_) if self.common.stop.load(Ordering::Acquire) => Err(self.left("the program ends")),
            Some(_) => Ok(false),
        }
    }

    /// Waits until all files have moved, whatever happens meanwhile. False if the spool was stopped before.
    pub fn wait_till_moved(&self) -> bool {
        let state = self.common.locked();
        let goes_on = |state: &mut State| !self.common.stop.load(Ordering::Acquire) && state.entry(self).is_some();
        let mut state = self.common.changed.wait_while(state, goes_on).unwrap_or_else(PoisonError::into_inner);
        state.entry(self).is_none()
    }

    /// What it has needed so far.
    pub fn report(&self) -> SpoolReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noted(&self, note: impl FnOnce(&mut SpoolReport)) {
        note(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What to do about files that a program has left in a spool.
pub fn repair_command(directory: &Path) -> String {
    format!("run: konkordia repair --spool {}", directory.display())
}

impl Common {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a run for which the spool is too small or too full. A data file leaves the spool when the next one is
    /// begun, so two of them must fit: otherwise images would wait for a file that cannot be finished.
    fn check_room(&self, images_per_file: u32, image_bytes: Option<u64>) -> Result<(), Failure> {
        let Settings { directory, limit_bytes, .. } = &self.settings;
        let file_bytes = image_bytes.unwrap_or(0).saturating_mul(u64::from(images_per_file));
        let (needed, limit) = (file_bytes.saturating_mul(2), *limit_bytes);
        let image_bytes = image_bytes.unwrap_or(1).max(1);
        if needed > limit {
            let what = "the spool is too small for this run";
            let why = format!(
                "two data files of {images_per_file} images take {} before compression, the spool has {}",
                text::bytes(needed),
                text::bytes(limit)
            );
            let fix = match limit / 2 / image_bytes {
                0 => "set a larger [output] spool_gib".into(),
                most => format!("set [output] images_per_file = {most} or less, or a larger spool_gib"),
            };
            return Err(Failure::new(Exit::Configuration, what, why, fix));
        }
        let used = bytes_in(directory);
        if used.saturating_add(needed) > limit || used >= limit {
            let what = "the spool is too full for another run";
            let why = format!(
                "{} of {} are taken by earlier runs, and two data files of this one need {}",
                text::bytes(used),
                text::bytes(limit),
                text::bytes(needed)
            );
            let fix = format!("wait until their files have moved; after a crash, {}", repair_command(directory));
            return Err(Failure::new(Exit::State, what, why, fix));
        }
        let free = free_bytes(directory).map_err(|error| Failure::io("cannot ask for the free space of", directory, &error))?;
        if free.saturating_add(used) < limit {
            let what = format!("there is no room for the spool {}", directory.display());
            let why = format!("it may take {}, and {} are free", text::bytes(limit), text::bytes(free));
            return Err(Failure::new(Exit::Io, what, why, "set a smaller [output] spool_gib, or make room there"));
        }
        Ok(())
    }

    /// Refuses a name of which files are still in the spool: they would come to the same place.
    fn refuse_left_over(&self, target: &Path, prefix: &str) -> Result<(), Failure> {
        for folder in RunFolder::all(&self.settings.directory)? {
            if Note::read(&folder).is_ok_and(|note| note.target == target && note.prefix == prefix) {
                let what = format!("an earlier run '{prefix}' is still in the spool");
                let why = format!("its files in {} belong to {} too", folder.display(), target.display());
                let fix = format!("wait until they have moved, or choose another prefix; after a crash, {}", self.repair());
                return Err(Failure::new(Exit::State, what, why, fix));
            }
        }
        Ok(())
    }

    fn tell_left(&self, master: PathBuf) {
        (self.tell)(&News::Left(master, self.settings.directory.clone()));
    }

    fn repair(&self) -> String {
        repair_command(&self.settings.directory)
    }

    /// Why images of this run wait in vain; `None` if there will be room.
    fn stuck(&self, state: &mut State, run: &SpoolRun, began: Instant) -> Option<Failure> {
        let full = |why: String, fix: &str| {
            let limit = text::bytes(self.settings.limit_bytes);
            let what = format!("the spool {} is full ({limit})", self.settings.directory.display());
            Failure::new(Exit::Io, what, why, format!("{fix}; for what is left in the spool, {}", self.repair()))
        };
        let is_moving = state.is_moving;
        let idle = state.moved.map_or(began.elapsed(), |moved| moved.elapsed().min(began.elapsed()));
        if let Some(failure) = state.entry(run).and_then(|entry| entry.failure.as_ref()) {
            return Some(full(failure.detail(), &failure.fix));
        }
        let why = format!("nothing has left it for {} s", STUCK.as_secs());
        (!is_moving && idle > STUCK).then(|| full(why, "set a larger [output] spool_gib, or a smaller images_per_file"))
    }

    /// The thread.
    fn drain(&self) {
        while !self.stop.load(Ordering::Acquire) {
            self.look();
            match self.next() {
                Some((run, Step::Move(file))) => self.move_one(&run, &file),
                Some((run, step)) => self.end(&run, &step),
                None => {
                    let state = self.locked();
                    // Without a run there is nothing to look at until one begins.
                    if state.runs.is_empty() && !self.stop.load(Ordering::Acquire) {
                        drop(self.changed.wait(state));
                    } else {
                        drop(self.changed.wait_timeout(state, TICK));
                    }
                }
            }
        }
    }

    /// Looks at the bytes in the spool. What writers were given meanwhile counts twice rather than not at all.
    fn look(&self) {
        let since = self.locked().since_bytes;
        let bytes = bytes_in(&self.settings.directory);
        let runs: Vec<Arc<SpoolRun>> = self.locked().runs.iter().map(|entry| Arc::clone(&entry.run)).collect();
        let files_waiting = runs.iter().map(|run| run.folder.waiting()).sum();
        let mut state = self.locked();
        state.looked_bytes = bytes;
        state.since_bytes -= since;
        state.files_waiting = files_waiting;
        drop(state);
        self.changed.notify_all();
    }

    /// What has to be done next, of the oldest run of which something can be done.
    fn next(&self) -> Option<(Arc<SpoolRun>, Step)> {
        let is_due = |entry: &&Entry| entry.failed.is_none_or(|failed| failed.elapsed() >= RETRY);
        let state = self.locked();
        let runs: Vec<_> = state.runs.iter().filter(is_due).map(|e| (Arc::clone(&e.run), e.images.is_some())).collect();
        drop(state);
        runs.into_iter().find_map(|(run, is_over)| {
            let step = run.folder.next(is_over);
            (step != Step::Wait).then_some((run, step))
        })
    }

    fn move_one(&self, run: &SpoolRun, file: &Path) {
        self.locked().is_moving = true;
        let began = Instant::now();
        let moved = contain(|| move_file(&run.folder, file, &self.stop)).unwrap_or_else(|panic| Err((&panic).into()));
        let seconds = began.elapsed();
        if let Ok(Some(bytes)) = moved {
            run.noted(|report| {
                report.moved_bytes += bytes;
                report.moving += seconds;
            });
        }
        let mut state = self.locked();
        (state.is_moving, state.moved) = (false, Some(Instant::now()));
        let news = match moved {
            Ok(None) => None,
            Ok(Some(bytes)) => {
                state.bytes_per_s = Some(bytes as f64 / seconds.as_secs_f64().max(1e-6));
                let entry = state.entry(run);
                let most = entry.as_ref().and_then(|entry| entry.images).unwrap_or(u64::MAX);
                run.durable.raise_to(run.folder.moved_positions().min(most));
                let had_failed = entry.and_then(|entry| {
                    entry.failed = None;
                    entry.failure.take()
                });
                had_failed.map(|_| News::Moving(run.folder.target_master()))
            }
            Err(failure) => state.entry(run).and_then(|entry| entry.fails(failure)),
        };
        drop(state);
        self.changed.notify_all();
        news.iter().for_each(|news| (self.tell)(news));
    }

    /// The last file of a run has moved, or a file of it was never closed.
    fn end(&self, run: &SpoolRun, step: &Step) {
        if let Step::Unfinished(file) = step {
            let why = format!("{} was not closed", file.display());
            let news = self.locked().entry(run).and_then(|entry| entry.fails(run.left(why)));
            self.changed.notify_all();
            return news.iter().for_each(|news| (self.tell)(news));
        }
        let removed = run.folder.remove();
        let mut state = self.locked();
        if let Some(at) = state.runs.iter().position(|entry| entry.run.folder.path == run.folder.path) {
            let images = state.runs.remove(at).images;
            run.durable.raise_to(images.unwrap_or(0));
        }
        drop(state);
        if let Err(failure) = removed {
            (self.tell)(&News::Failing(failure));
        }
        (self.tell)(&News::Moved(run.folder.target_master()));
        self.changed.notify_all();
    }
}

impl Entry {
    /// Records a failure; it is news if it is another one than the last.
    fn fails(&mut self, failure: Failure) -> Option<News> {
        self.failed = Some(Instant::now());
        let is_known = self.failure.as_ref().is_some_and(|last| (&last.what, &last.why) == (&failure.what, &failure.why));
        self.failure = Some(failure.clone());
        (!is_known).then_some(News::Failing(failure))
    }
}
