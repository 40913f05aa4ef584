//! The file of results, if one is asked for.

use super::order::Outcome;
use konkordia_acquire::analysis::tasks;
use konkordia_analysis::analyser::{Analyser, Tasks};
use konkordia_core::failure::Failure;
use konkordia_core::results::{self, ResultKind};
use konkordia_sinks::hdf5::{ResultsAbout, ResultsFile};
use std::path::{Path, PathBuf};

/// A file of results while it is written.
pub struct Output {
    nothing: Vec<u64>,
    file: ResultsFile,
}

impl Output {
    /// Creates the file, for images of `shape` (rows and columns).
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(
        path: &Path,
        files: &[PathBuf],
        tasks: &Tasks,
        kinds: &[ResultKind],
        analyser: &Analyser,
        shape: [usize; 2],
    ) -> Result<Self, Failure> {
        let about = ResultsAbout {
            software: konkordia_core::SOFTWARE.into(),
            source: files.iter().map(|file| file.display().to_string()).collect(),
            settings: tasks::to_json(tasks).to_string(),
            profile_axis: analyser.profile_axis().zip(tasks.profile_unit()),
            cake_azimuth_deg: analyser.cake_azimuth_deg().unwrap_or_default(),
            sparse_shape: tasks.keep_above.map(|_| shape),
            regions: analyser.regions().iter().map(|region| region.name.clone()).collect(),
        };
        let file = ResultsFile::create(path, kinds, &about)?;
        Ok(Self { nothing: vec![0; results::numbers(kinds)], file })
    }

    /// Appends an image. If it was not analysed, all its numbers are 0.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn image(&mut self, image: u64, outcome: &Outcome) -> Result<(), Failure> {
        let (figures, pixels) = match outcome {
            Outcome::Done(done) => (&done.figures, done.results.above_pixels.as_ref()),
            Outcome::Absent | Outcome::Failed(_) => (&self.nothing, None),
        };
        self.file.push(image, figures)?;
        let (indices, values) = pixels.map_or((&[][..], &[][..]), |pixels| (&pixels.indices, &pixels.values));
        Ok(self.file.push_pixels(indices, values)?)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn finish(self) -> Result<(), Failure> {
        Ok(self.file.finish()?)
    }
}
