//! `konkordia pedestal`: from dark frames to a calibration file.

pub mod args;
mod collect;
pub mod judge;
mod light;
pub mod store;
mod take;

pub use take::{frames_of_stage, is_live};

use crate::calibration::reasons;
use crate::config::service::DetectorConfig;
use crate::console;
use crate::failure::{Exit, Failure};
use crate::run::signals::Watch;
use args::PedestalArgs;
use judge::ModuleRow;
use konkordia_sinks::hdf5::calibration::CalibrationFile;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use store::Target;
use take::Taken;

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

/// `konkordia pedestal ...`
pub fn command(args: &PedestalArgs) -> Result<Exit, Failure> {
    let target = Target::open(args.output.as_deref(), args.into.as_deref(), args.overwrite)?;
    if args.input.is_empty() {
        return only_gains(args, target);
    }
    let Some(made) = make(args, target, take::take(args)?)? else {
        console::to_stderr("stopped: nothing was written");
        return Ok(Exit::Interrupted);
    };
    report(args, &made);
    Ok(made.exit)
}

/// Makes pedestals from dark frames of this detector. `None` if the run was stopped; nothing is written then.
pub fn from_detector(args: &PedestalArgs, detector: DetectorConfig, watch: &mut Watch) -> Result<Option<Made>, Failure> {
    let target = Target::open(args.output.as_deref(), args.into.as_deref(), args.overwrite)?;
    make(args, target, take::from_detector(args, detector, watch)?)
}

fn make(args: &PedestalArgs, target: Target, mut taken: Vec<Taken>) -> Result<Option<Made>, Failure> {
    if taken.iter().any(|taken| taken.exit == Exit::Interrupted) {
        return Ok(None);
    }
    let (path, mut file) = target.into_file();
    let (mut rows, mut what) = (Vec::new(), Vec::new());
    for taken in &mut taken {
        let (planes, judged) = judge::judge(taken, &args.thresholds(), args.force)?;
        let serial = args.serial.as_deref().or(taken.serial.as_deref());
        store::identify(&mut file, &path, taken.collector.module_ids.len(), serial, &taken.collector.module_ids)?;
        what.extend(planes.iter().map(|((cell, stage), p)| format!("{} of cell {cell} ({} frames)", stage.name(), p.frames)));
        file.pedestals.extend(planes);
        rows.extend(judged);
    }
    if !args.gain.is_empty() {
        store::add_gains(&mut file, &args.gain)?;
    }
    let source = taken.first().map_or("", |taken| &taken.source);
    let hash = store::write(&mut file, &path, format!("pedestals of {} from {source}", what.join(", ")))?;
    count_masks(&mut rows, &file);
    // Missing packets hardly change a mean, so the file is written in any case. The exit code says whether all frames
    // arrived.
    let exit = taken.iter().map(|taken| taken.exit).find(|exit| *exit != Exit::Complete).unwrap_or(Exit::Complete);
    Ok(Some(Made { path, file, hash, taken, rows, exit }))
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

fn only_gains(args: &PedestalArgs, target: Target) -> Result<Exit, Failure> {
    if args.gain.is_empty() || args.into.is_none() {
        let why = "without dark frames only gains can be added, and only to a file that exists";
        let fix = "give a configuration or files with dark frames, or --into FILE --gain FILES";
        return Err(Failure::new(Exit::Usage, "there is nothing to do", why, fix));
    }
    let (path, mut file) = target.into_file();
    let planes = store::add_gains(&mut file, &args.gain)?;
    let step = format!("gains from {}", file.gain_source);
    let hash = store::write(&mut file, &path, step)?;
    if args.json {
        console::json(&json!({ "file": path, "hash": hash, "gain_planes": planes }), true);
    } else {
        console::to_stdout(&format!("{}: {planes} planes of gains\n{hash}", path.display()));
    }
    Ok(Exit::Complete)
}

impl Made {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The remarks of modules that have any.
    pub fn remarks(&self) -> Vec<String> {
        let bad = self.rows.iter().filter(|row| !row.remarks.is_empty());
        bad.map(|row| format!("module {}, {}: {}", row.module, row.stage.name().to_uppercase(), row.remarks.join("; "))).collect()
    }

    fn refused(&self) -> BTreeMap<String, u64> {
        let mut refused = BTreeMap::new();
        for (why, n) in self.taken.iter().flat_map(|taken| &taken.collector.refused) {
            *refused.entry(why.words()).or_insert(0) += n;
        }
        refused
    }

    fn notes(&self) -> Vec<&String> {
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

fn report(args: &PedestalArgs, made: &Made) {
    if args.json {
        console::json(&made.to_json(), true);
        return;
    }
    console::to_stdout(&judge::table(&made.rows));
    for (why, n) in &made.refused() {
        console::to_stdout(&format!("refused: {} frames {why}", console::count(*n)));
    }
    made.notes().iter().for_each(|note| console::to_stdout(&format!("note: {note}")));
    console::to_stdout(&format!("{}\n{}", made.path.display(), made.hash));
}

#[cfg(test)]
mod tests;
