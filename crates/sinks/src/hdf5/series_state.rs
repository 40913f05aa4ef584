//! The state of a file sink, readable by others while it works: numbers that only grow, names, the last error.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use konkordia_core::ports::SinkError;

use super::error::Error;
use crate::durable::Durable;

/// Readable from any thread. The numbers are those of the run or series that is being written, or of the last one.
#[derive(Debug, Default)]
pub struct SharedState {
    images: AtomicU64,
    bytes: AtomicU64,
    unpacked_bytes: AtomicU64,
    refused: AtomicU64,
    passed: AtomicU64,
    positions: AtomicU64,
    series: AtomicU64,
    names: Mutex<Names>,
    /// `None` where nothing is promised.
    durable: Mutex<Option<Durable>>,
}

/// The files of a run or series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The file to open: the master, or the one file of the append layout. `None` if this series has no file.
    pub main: Option<PathBuf>,
    /// The file to which images go now, once there is one.
    pub current: Option<PathBuf>,
    /// What went wrong last, ready to print.
    pub last_error: Option<String>,
}

impl SharedState {
    /// Images of this run or series whose pixels are in the file: after a SIGKILL they can be read (docs/formats.md
    /// says how in each layout).
    pub fn images(&self) -> u64 {
        self.images.load(Ordering::Relaxed)
    }

    /// Bytes of the chunks of these images.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the pixels of these images.
    pub fn unpacked_bytes(&self) -> u64 {
        self.unpacked_bytes.load(Ordering::Relaxed)
    }

    /// Images of this series that the file could not take (another shape than the first, for example): their positions
    /// are lost.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts an image that the file did not take because it could no longer be written.
    pub fn pass(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// Images of this series that came and are not in the file: the file could no longer be written, or they did not
    /// fit it.
    pub fn unwritten(&self) -> u64 {
        self.passed.load(Ordering::Relaxed) + self.refused()
    }

    /// Positions in the file, once it is closed.
    pub fn positions(&self) -> u64 {
        self.positions.load(Ordering::Relaxed)
    }

    /// Images before this position are on the disk, and survive a power cut; `None` without a file, if the files are
    /// not synced before their end, and in a layout that cannot promise it.
    pub fn durable_end(&self) -> Option<u64> {
        locked(&self.durable).as_ref().map(Durable::end)
    }

    /// Where it is read up to which position images are on the disk, also after the end.
    pub fn durable(&self) -> Option<Durable> {
        locked(&self.durable).clone()
    }

    /// Runs or series with a file since the sink was made.
    pub fn series(&self) -> u64 {
        self.series.load(Ordering::Relaxed)
    }

    /// The files and the last error.
    pub fn names(&self) -> Names {
        locked(&self.names).clone()
    }

    pub(crate) fn begin(&self, main: Option<PathBuf>) {
        for number in [&self.images, &self.bytes, &self.unpacked_bytes, &self.refused, &self.passed, &self.positions] {
            number.store(0, Ordering::Relaxed);
        }
        self.is_durable_to(None);
        self.series.fetch_add(u64::from(main.is_some()), Ordering::Relaxed);
        *locked(&self.names) = Names { main, current: None, last_error: None };
    }

    /// Counts images, their bytes as they are packed, and those of their pixels.
    pub(crate) fn wrote(&self, images: u64, [bytes, unpacked_bytes]: [u64; 2]) {
        self.images.fetch_add(images, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.unpacked_bytes.fetch_add(unpacked_bytes, Ordering::Relaxed);
    }

    /// From now on this says what is on the disk, until the next run or series begins.
    pub fn is_durable_to(&self, durable: Option<Durable>) {
        *locked(&self.durable) = durable;
    }

    pub(crate) fn has_positions(&self, positions: u64) {
        self.positions.store(positions, Ordering::Relaxed);
    }

    pub(crate) fn writes_into(&self, file: PathBuf) {
        locked(&self.names).current = Some(file);
    }

    pub(crate) fn refuse(&self, why: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        locked(&self.names).last_error = Some(why);
    }

    /// Records an error and converts it to the form that the sink returns.
    pub(crate) fn fail(&self, error: Error) -> SinkError {
        locked(&self.names).last_error = Some(error.to_string());
        error.into()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
