//! What the layouts of files have in common for [`super::FileSink`].

use konkordia_core::image::CommittedImage;
use konkordia_core::latency::Meter;
use konkordia_core::series::SeriesEnd;

use super::error::Error;
use super::series_state::SharedState;

/// The open files of one run or series.
pub(super) trait OpenFiles: Send {
    /// Writes an image, or counts it as refused if it does not fit the files.
    ///
    /// # Errors
    /// The files cannot be written any more.
    fn image(&mut self, image: &CommittedImage, shared: &SharedState) -> Result<(), Error>;

    /// Counts at `meter` when images are written, and when they are on the disk. For files that are made before the
    /// start of their run.
    fn measure(&mut self, meter: &Meter) {
        let _ = meter;
    }

    /// Flushes what is due; `now_ns` is any clock that never goes back.
    ///
    /// # Errors
    /// As [`OpenFiles::image`].
    fn tick(&mut self, now_ns: u64, shared: &SharedState) -> Result<(), Error>;

    /// Closes the files. `has_failed`: they could not be written any more.
    ///
    /// # Errors
    /// Something could not be closed.
    fn end(self: Box<Self>, end: &SeriesEnd, has_failed: bool, shared: &SharedState) -> Result<(), Error>;
}
