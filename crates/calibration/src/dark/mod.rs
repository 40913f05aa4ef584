//! From dark frames to a calibration file.

pub mod collect;
pub mod judge;
mod light;
pub mod store;
mod taken;
#[cfg(test)]
mod tests;

use crate::reasons::{self, Thresholds};
use judge::ModuleRow;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::calibration::{CalibrationFile, Keep};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use store::Target;
pub use taken::Taken;

/// A calibration file that was made, or whose pedestals were renewed.
pub struct Made {
    path: PathBuf,
    file: CalibrationFile,
    hash: String,
    taken: Vec<Taken>,
    rows: Vec<ModuleRow>,
    /// [`Exit::Complete`] if all dark frames arrived.
    pub exit: Exit,
}

/// How dark frames become a calibration file.
#[derive(Clone, Debug, Default)]
pub struct MakeOptions {
    /// Limits beyond which a pixel is masked.
    pub thresholds: Thresholds,
    /// Frames are used even if they do not look dark.
    pub force: bool,
    /// Serial number of the detector, if it is not that of the dark runs.
    pub serial: Option<String>,
    /// Gains to store with the pedestals.
    pub gain: Vec<PathBuf>,
}

/// Makes pedestals of dark runs and stores them in `target`. `None` if a dark run was stopped; nothing is written then.
///
/// # Errors
/// Frames of the wrong stage, too few, or not dark; a file that cannot be read or written.
pub fn make(options: &MakeOptions, target: Target, mut taken: Vec<Taken>) -> Result<Option<Made>, Failure> {
    if taken.iter().any(|taken| taken.exit == Exit::Interrupted) {
        return Ok(None);
    }
    let (path, mut file) = target.into_file();
    let (rows, step) = add(options, &path, &mut file, &mut taken)?;
    let hash = store::write(&mut file, &path, step, Keep::Previous)?;
    // Missing packets hardly change a mean, so the file is written in any case. The exit code says whether all frames
    // arrived.
    let exit = taken.iter().map(|taken| taken.exit).find(|exit| *exit != Exit::Complete).unwrap_or(Exit::Complete);
    Ok(Some(Made { path, file, hash, taken, rows, exit }))
}

/// Makes pedestals of dark runs and adds them to a calibration file in memory, which `path` names in messages; with the
/// gains of the options. Returns the results by module, and a line for the history of the file.
///
/// # Errors
/// As of [`make`].
pub fn add(
    options: &MakeOptions,
    path: &Path,
    file: &mut CalibrationFile,
    taken: &mut [Taken],
) -> Result<(Vec<ModuleRow>, String), Failure> {
    let (mut rows, mut what) = (Vec::new(), Vec::new());
    for taken in &mut *taken {
        let (planes, judged) = judge::judge(taken, &options.thresholds, options.force)?;
        let serial = options.serial.as_deref().or(taken.serial.as_deref());
        store::identify(file, path, taken.collector.module_ids.len(), serial, &taken.collector.module_ids)?;
        what.extend(planes.iter().map(|((cell, stage), p)| format!("{} of cell {cell} ({} frames)", stage.name(), p.frames)));
        file.pedestals.extend(planes);
        rows.extend(judged);
    }
    if !options.gain.is_empty() {
        store::add_gains(file, &options.gain)?;
    }
    store::mark(file);
    count_masks(&mut rows, file);
    let source = taken.first().map_or("", |taken| &taken.source);
    Ok((rows, format!("pedestals of {} from {source}", what.join(", "))))
}

/// Counts masked pixels again: the file may also mask pixels without gain, which the dark run does not know.
fn count_masks(rows: &mut [ModuleRow], file: &CalibrationFile) {
    for row in rows {
        if let Some(planes) = file.pedestals.get(&(row.cell, row.stage)) {
            let pixels = konkordia_sinks::hdf5::calibration::MODULE_PIXELS;
            let mask = &planes.mask[row.module * pixels..(row.module + 1) * pixels];
            row.masked = reasons::counts(mask);
            row.masked_pixels = mask.iter().filter(|m| **m != 0).count() as u64;
        }
    }
}

impl Made {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hash of the calibration.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The results by module, cell and stage.
    pub fn rows(&self) -> &[ModuleRow] {
        &self.rows
    }

    /// The remarks of modules that have any.
    pub fn remarks(&self) -> Vec<String> {
        let bad = self.rows.iter().filter(|row| !row.remarks.is_empty());
        bad.map(|row| format!("module {}, {}: {}", row.module, row.stage.name().to_uppercase(), row.remarks.join("; "))).collect()
    }

    /// Frames that were not used, by reason.
    pub fn refused(&self) -> BTreeMap<String, u64> {
        let mut refused = BTreeMap::new();
        for (why, n) in self.taken.iter().flat_map(|taken| &taken.collector.refused) {
            *refused.entry(why.words()).or_insert(0) += n;
        }
        refused
    }

    /// Notes of the dark runs.
    pub fn notes(&self) -> Vec<&String> {
        self.taken.iter().flat_map(|taken| &taken.notes).collect()
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let (file, first, refused) = (&self.file, self.taken.first(), self.refused());
        let reasons: Vec<_> = refused.iter().map(|(why, n)| json!({ "frames": n, "why": why })).collect();
        json!({
            "file": self.path, "hash": self.hash, "modules": file.modules, "module_ids": file.module_ids,
            "detector_serial": file.detector_serial, "source": first.map(|taken| &taken.source), "taken": first.map(|taken| &taken.taken),
            "frames_used": self.rows.iter().filter(|r| r.module == 0).map(|r| r.frames).sum::<u64>(),
            "frames_refused": refused.values().sum::<u64>(), "refused": reasons,
            "incomplete_frames": self.taken.iter().map(|taken| taken.incomplete_frames).sum::<u64>(), "notes": self.notes(),
            "rows": self.rows.iter().map(ModuleRow::to_json).collect::<Vec<_>>(),
        })
    }
}
