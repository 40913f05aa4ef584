//! The sink of files in a spool: it waits for room before each image.

use super::drain::SpoolRun;
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_sinks::hdf5::FileSink;
use std::sync::{Arc, Mutex, PoisonError};

/// The run whose files are being written. For series, whoever chooses their names puts it here.
#[derive(Clone, Default)]
pub struct CurrentRun(Arc<Mutex<Option<Arc<SpoolRun>>>>);

impl CurrentRun {
    /// With this run.
    pub fn of(run: Arc<SpoolRun>) -> Self {
        let current = Self::default();
        current.put(Some(run));
        current
    }

    /// Puts a run here, and returns the one before.
    pub fn put(&self, run: Option<Arc<SpoolRun>>) -> Option<Arc<SpoolRun>> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), run)
    }

    fn get(&self) -> Option<Arc<SpoolRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A file sink whose files are in a spool.
pub struct SpooledSink {
    /// Writes the files.
    pub inner: FileSink,
    /// The run of its files.
    pub current: CurrentRun,
    /// The end of a series closes its files. Those of a run are closed by whoever has armed it.
    pub closes: bool,
}

impl Sink for SpooledSink {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        let started = self.inner.start(start);
        if !self.closes {
            return started;
        }
        match (&started, self.current.get()) {
            (Ok(()), Some(run)) => self.inner.shared().is_durable_to(Some(run.durable())),
            (Err(_), Some(run)) => {
                self.current.put(None);
                run.abandon();
            }
            (_, None) => {}
        }
        started
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        if let Some(run) = self.current.get().filter(|_| image.status.has_pixels()) {
            run.wait_for_room(image.packed_bytes())?;
        }
        self.inner.image(image)
    }

    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        let ended = self.inner.end(end);
        if let Some(run) = self.closes.then(|| self.current.put(None)).flatten() {
            match &ended {
                Ok(()) => run.over(self.inner.shared().positions()),
                Err(_) => run.leave(),
            }
        }
        ended
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.inner.tick(now_ns)
    }
}
