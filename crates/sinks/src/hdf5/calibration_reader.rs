//! Reads a calibration file in parts. A whole one of a large detector has gigabytes, and whoever only looks at it needs
//! the planes of one module at a time. Parts are small, since libhdf5 does one thing at a time and a run may be
//! writing.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5::{File, H5Type, Hyperslab, SliceOrIndex};

use super::calibration::{
    CalibrationFile, ContentHash, GAIN, GainStage, MODULE_COLUMNS, MODULE_ROWS, StagePedestal, compare_hash, damaged, facts,
    open, plane_of, stage_group,
};
use super::error::Error;

/// An open calibration file.
pub struct CalibrationReader {
    path: PathBuf,
    file: File,
    facts: CalibrationFile,
}

impl CalibrationReader {
    /// Opens a file and reads all but its planes.
    ///
    /// # Errors
    /// If it cannot be read or is no calibration of this version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = open(path)?;
        let facts = facts(&file).map_err(|cause| damaged(path, format!("the file is damaged: {cause}")))?;
        Ok(Self { path: path.to_owned(), file, facts })
    }

    /// All but the planes; those are empty where the file has them.
    pub fn facts(&self) -> &CalibrationFile {
        &self.facts
    }

    /// The pedestals of one module. Without any if the file has none of this cell and stage.
    ///
    /// # Errors
    /// If a plane cannot be read.
    pub fn pedestals(&self, key: (u8, GainStage), module: usize) -> Result<Option<StagePedestal>, Error> {
        let Some(facts) = self.facts.pedestals.get(&key) else { return Ok(None) };
        let (group, rows) = (stage_group(key.0, key.1), rows_of(module));
        Ok(Some(StagePedestal {
            mean_adu: self.rows(&group, "mean", rows.clone())?,
            rms_adu: self.rows(&group, "rms", rows.clone())?,
            count: self.rows(&group, "count", rows.clone())?,
            mask: self.rows(&group, "mask", rows)?,
            ..facts.clone()
        }))
    }

    /// The gains of one module; `None` if the file has none of this stage.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn gain(&self, stage: GainStage, module: usize) -> Result<Option<Vec<f32>>, Error> {
        if self.facts.gains[stage.index()].is_none() {
            return Ok(None);
        }
        self.rows(GAIN, stage.name(), rows_of(module)).map(Some)
    }

    /// Compares the content with the hash that the file states, and returns it.
    ///
    /// # Errors
    /// If the file cannot be read or does not match its hash.
    pub fn check_hash(&self) -> Result<String, Error> {
        let mut hash = ContentHash::new(&self.facts);
        for (key, planes) in &self.facts.pedestals {
            hash.stage(*key, &planes.taken);
            let group = stage_group(key.0, key.1);
            self.each_module::<f32>(&group, "mean", |values| hash.floats(values))?;
            self.each_module::<f32>(&group, "rms", |values| hash.floats(values))?;
            self.each_module::<u32>(&group, "count", |values| hash.words(values))?;
            self.each_module::<u32>(&group, "mask", |values| hash.words(values))?;
        }
        for (stage, gain) in GainStage::ALL.into_iter().zip(&self.facts.gains) {
            if gain.is_some() {
                hash.gain(stage);
                self.each_module::<f32>(GAIN, stage.name(), |values| hash.floats(values))?;
            }
        }
        let found = hash.finish();
        compare_hash(&self.path, &self.file, &found)?;
        Ok(found)
    }

    fn each_module<T: H5Type>(&self, group: &str, name: &str, mut visit: impl FnMut(&[T])) -> Result<(), Error> {
        (0..self.facts.modules).try_for_each(|module| {
            visit(&self.rows(group, name, rows_of(module))?);
            Ok(())
        })
    }

    fn rows<T: H5Type>(&self, group: &str, name: &str, rows: Range<usize>) -> Result<Vec<T>, Error> {
        let read = || {
            let group = self.file.group(group).map_err(|error| error.to_string())?;
            let data = plane_of(&group, name, [self.facts.modules * MODULE_ROWS, MODULE_COLUMNS])?;
            let part = Hyperslab::new(vec![SliceOrIndex::from(rows), SliceOrIndex::from(0..MODULE_COLUMNS)]);
            let values = data.read_slice_2d::<T, _>(part).map_err(|error| format!("'{name}' cannot be read: {error}"))?;
            Ok(values.into_iter().collect())
        };
        read().map_err(|cause: String| damaged(&self.path, format!("the file is damaged: {group}: {cause}")))
    }
}

fn rows_of(module: usize) -> Range<usize> {
    module * MODULE_ROWS..(module + 1) * MODULE_ROWS
}
