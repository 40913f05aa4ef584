//! `konkordia pedestal`: from dark frames to a calibration file.

pub mod args;
mod collect;
pub mod judge;
mod light;
pub mod store;
mod take;

use crate::calibration::reasons;
use crate::failure::{Exit, Failure};
use crate::say;
use args::PedestalArgs;
use judge::ModuleRow;
use konkordia_sinks::hdf5::calibration::CalibrationFile;
use serde_json::json;
use std::path::Path;
use store::Target;

/// `konkordia pedestal ...`
pub fn command(args: &PedestalArgs) -> Result<Exit, Failure> {
    let target = Target::open(args.output.as_deref(), args.into.as_deref(), args.overwrite)?;
    if args.input.is_empty() {
        return only_gains(args, target);
    }
    let mut taken = take::take(args)?;
    if taken.exit == Exit::Interrupted {
        say::to_stderr("stopped: nothing was written");
        return Ok(Exit::Interrupted);
    }
    let (mut planes, mut rows) = judge::judge(&mut taken, &args.thresholds(), args.force)?;
    let (path, mut file) = target.into_file();
    let collector = &taken.collector;
    let serial = args.serial.as_deref().or(taken.serial.as_deref());
    store::identify(&mut file, &path, collector.module_ids.len(), serial, &collector.module_ids)?;
    if !args.gain.is_empty() {
        store::add_gains(&mut file, &args.gain)?;
    }
    let what: Vec<String> =
        planes.iter().map(|((cell, stage), p)| format!("{} of cell {cell} ({} frames)", stage.name(), p.frames)).collect();
    for (key, planes) in planes.drain(..) {
        file.pedestals.insert(key, planes);
    }
    let step = format!("pedestals of {} from {}", what.join(", "), taken.source);
    let hash = store::write(&mut file, &path, step)?;
    count_masks(&mut rows, &file);
    report(args, &taken, &rows, &path, &file, &hash);
    // Few packets more or less do not matter to a mean, and are told; a run that ended early is told by its exit code.
    Ok(taken.exit)
}

/// Masks of the file may have more reasons than the dark run knew: gains.
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
        say::json(&json!({ "file": path, "hash": hash, "gain_planes": planes }), true);
    } else {
        say::to_stdout(&format!("{}: {planes} planes of gains\n{hash}", path.display()));
    }
    Ok(Exit::Complete)
}

fn report(args: &PedestalArgs, taken: &take::Taken, rows: &[ModuleRow], path: &Path, file: &CalibrationFile, hash: &str) {
    let refused: u64 = taken.collector.refused.values().sum();
    if args.json {
        let reasons: Vec<_> = taken.collector.refused.iter().map(|(why, n)| json!({ "frames": n, "why": why.words() })).collect();
        say::json(
            &json!({
                "file": path, "hash": hash, "modules": file.modules, "module_ids": file.module_ids,
                "detector_serial": file.detector_serial, "source": taken.source, "taken": taken.taken,
                "frames_used": rows.iter().filter(|r| r.module == 0).map(|r| r.frames).sum::<u64>(),
                "frames_refused": refused, "refused": reasons, "incomplete_frames": taken.incomplete_frames, "notes": taken.notes,
                "rows": rows.iter().map(ModuleRow::to_json).collect::<Vec<_>>(),
            }),
            true,
        );
        return;
    }
    say::to_stdout(&judge::table(rows));
    for (why, n) in &taken.collector.refused {
        say::to_stdout(&format!("refused: {} frames {}", say::count(*n), why.words()));
    }
    taken.notes.iter().for_each(|note| say::to_stdout(&format!("note: {note}")));
    say::to_stdout(&format!("{}\n{hash}", path.display()));
}

#[cfg(test)]
mod tests;
