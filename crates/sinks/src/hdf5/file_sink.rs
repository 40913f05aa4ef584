//! The sink of committed images into files, of runs and of series alike. It opens the files, hands images to their
//! writer, publishes what is in the files and on the disk ([`SharedState`]), and closes them. After a failure it takes
//! no further images, and still closes what is there.
//!
//! Three layouts differ in what a file is, and each has a file of its own here:
//! - A **run** (`run_files.rs`) has a plan, so its files are made at arm, with everything that can fail. It is closed
//!   by whoever has armed it, because the ledger of its packets is summed up only when all threads have ended.
//! - A **series** (`series_file.rs`) has no plan: its first image decides shape, type and packing. Its files are made
//!   then; only what stands in the way of them is known at its start. Its end brings its ledger.
//! - The layout of **MAX IV** (`append.rs`) is one file, which may hold older images: an image is appended to it, and
//!   its position is not its number.

use std::path::PathBuf;
use std::sync::Arc;

use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::series::{SeriesEnd, SeriesStart};

use super::append::{AppendFile, AppendSpec};
use super::error::Error;
use super::names::master_path;
use super::open_files::OpenFiles;
use super::series_file::{SeriesFileSpec, SeriesFiles};
use super::series_state::SharedState;

/// Where the images of a series go.
#[derive(Clone, Debug)]
pub enum SeriesTarget {
    /// A master and data files.
    Files(Box<SeriesFileSpec>),
    /// The end of one file, in the layout of the MAX IV receiver.
    Append(AppendSpec),
}

impl SeriesTarget {
    /// The file to open: the master, or the one file.
    pub fn main_file(&self) -> PathBuf {
        match self {
            Self::Files(spec) => master_path(&spec.file.directory, &spec.file.prefix),
            Self::Append(spec) => spec.path.clone(),
        }
    }

    fn open(self, start: &Arc<SeriesStart>) -> Result<Box<dyn OpenFiles>, Error> {
        Ok(match self {
            Self::Files(spec) => Box::new(SeriesFiles::new(*spec, start)?),
            Self::Append(spec) => Box::new(AppendFile::open(spec, start)?),
        })
    }
}

impl From<SeriesFileSpec> for SeriesTarget {
    fn from(spec: SeriesFileSpec) -> Self {
        Self::Files(Box::new(spec))
    }
}

impl From<AppendSpec> for SeriesTarget {
    fn from(spec: AppendSpec) -> Self {
        Self::Append(spec)
    }
}

/// Decides for each series where its images go; `None` = the series has no file.
pub type SeriesTargets = Box<dyn FnMut(&SeriesStart) -> Result<Option<SeriesTarget>, SinkError> + Send>;

/// Writes committed images into files; see the module.
pub struct FileSink {
    /// `None` for a run, whose files are open from the beginning.
    targets: Option<SeriesTargets>,
    shared: Arc<SharedState>,
    open: Option<Box<dyn OpenFiles>>,
    /// The open files could not be written and get nothing more but their end.
    has_failed: bool,
}

impl FileSink {
    /// A sink for series, whose images go where `targets` says.
    pub fn of_series(targets: SeriesTargets) -> Self {
        Self { targets: Some(targets), shared: Arc::default(), open: None, has_failed: false }
    }

    /// A sink for the run that has these files.
    pub(super) fn of_run(open: Box<dyn OpenFiles>, shared: Arc<SharedState>) -> Self {
        Self { targets: None, shared, open: Some(open), has_failed: false }
    }

    /// The state of this sink, readable from other threads.
    pub fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.shared)
    }

    /// Does something with the open files, unless they have failed.
    fn with_open(&mut self, what: impl FnOnce(&mut dyn OpenFiles, &SharedState) -> Result<(), Error>) -> Result<(), SinkError> {
        let Some(open) = self.open.as_mut().filter(|_| !self.has_failed) else { return Ok(()) };
        what(&mut **open, &self.shared).map_err(|error| {
            self.has_failed = true;
            self.shared.fail(error)
        })
    }
}

impl Sink for FileSink {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        let Some(targets) = &mut self.targets else {
            self.open.iter_mut().for_each(|open| open.measure(&start.meter));
            return Ok(());
        };
        (self.open, self.has_failed) = (None, false);
        self.shared.begin(None);
        let Some(target) = targets(start)?.filter(|_| start.store) else { return Ok(()) };
        let (main, is_one_file) = (target.main_file(), matches!(target, SeriesTarget::Append(_)));
        let open = target.open(start).map_err(|error| self.shared.fail(error))?;
        self.shared.begin(Some(main.clone()));
        if is_one_file {
            self.shared.writes_into(main);
        }
        self.open = Some(open);
        Ok(())
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        self.with_open(|open, shared| open.image(image, shared))
    }

    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.end(end, self.has_failed, &self.shared).map_err(|error| self.shared.fail(error))
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.with_open(|open, shared| open.tick(now_ns, shared))
    }
}
