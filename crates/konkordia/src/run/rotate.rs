//! A sink for measurements that are longer than the disk: after so many images the files are closed, deleted and begun anew.

use super::sink::{FileSink, SharedWriter};
use konkordia_core::plan::Plan;
use konkordia_core::ports::{CommittedImage, Sink, SinkError};
use konkordia_sinks::hdf5::{Error, FileReport, FileSpec, LedgerRecord, Overwrite, Writer};

/// Writes like [`FileSink`] into files that do not last.
pub struct RotatingSink {
    spec: FileSpec,
    plan: Plan,
    images: u64,
    current: (SharedWriter, FileSink),
    /// First image of the current files.
    base: u64,
}

fn open(spec: &FileSpec, plan: &Plan) -> Result<(SharedWriter, FileSink), Error> {
    let writer = SharedWriter::new(Writer::create(spec.clone())?);
    Ok((writer.clone(), FileSink::new(writer, plan)))
}

fn sink_error(e: Error) -> SinkError {
    SinkError { what: format!("cannot {}: {}", e.operation, e.path.display()), why: e.cause, fix: e.hint }
}

/// Deletes the files of a finished run. What cannot be deleted is left to whoever looks at the folder.
pub fn delete(report: &FileReport) {
    for path in report.data_files.iter().chain([&report.master]) {
        let _ = std::fs::remove_file(path);
    }
}

impl RotatingSink {
    /// Creates the first files.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create(spec: FileSpec, plan: &Plan, images: u64) -> Result<Self, Error> {
        let spec = FileSpec { overwrite: Overwrite::Replace, images_planned: None, ..spec };
        let current = open(&spec, plan)?;
        Ok(Self { spec, plan: plan.clone(), images, current, base: 0 })
    }

    fn close(&self) -> Result<(), Error> {
        if let Some(report) = self.current.0.finish(&LedgerRecord::default()) {
            delete(&report?);
        }
        Ok(())
    }
}

impl Sink for RotatingSink {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        if image.image >= self.base + self.images {
            self.close().map_err(sink_error)?;
            self.current = open(&self.spec, &self.plan).map_err(sink_error)?;
            self.base = image.image;
        }
        self.current.1.write(&CommittedImage { image: image.image - self.base, ..*image })
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.current.1.tick(now_ns)
    }
}

impl Drop for RotatingSink {
    fn drop(&mut self) {
        let _ = self.close();
    }
}
