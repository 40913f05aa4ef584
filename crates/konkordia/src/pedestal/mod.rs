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
use std::collections::BTreeMap;
use std::path::Path;
use store::Target;
use take::Taken;

pub use take::is_live;

/// `konkordia pedestal ...`
pub fn command(args: &PedestalArgs) -> Result<Exit, Failure> {
    let target = Target::open(args.output.as_deref(), args.into.as_deref(), args.overwrite)?;
    if args.input.is_empty() {
        return only_gains(args, target);
    }
    let mut all = take::take(args)?;
    if all.iter().any(|taken| taken.exit == Exit::Interrupted) {
        say::to_stderr("stopped: nothing was written");
        return Ok(Exit::Interrupted);
    }
    let (path, mut file) = target.into_file();
    let (mut rows, mut what) = (Vec::new(), Vec::new());
    for taken in &mut all {
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
    let source = all.first().map_or("", |taken| &taken.source);
    let hash = store::write(&mut file, &path, format!("pedestals of {} from {source}", what.join(", ")))?;
    count_masks(&mut rows, &file);
    report(args, &all, &rows, &path, &file, &hash);
    // Few packets more or less do not matter to a mean, and are told; a run that ended early is told by its exit code.
    Ok(all.iter().map(|taken| taken.exit).find(|exit| *exit != Exit::Complete).unwrap_or(Exit::Complete))
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

fn report(args: &PedestalArgs, all: &[Taken], rows: &[ModuleRow], path: &Path, file: &CalibrationFile, hash: &str) {
    let mut refused = BTreeMap::new();
    for (why, n) in all.iter().flat_map(|taken| &taken.collector.refused) {
        *refused.entry(why.words()).or_insert(0) += n;
    }
    let notes: Vec<&String> = all.iter().flat_map(|taken| &taken.notes).collect();
    if args.json {
        let reasons: Vec<_> = refused.iter().map(|(why, n)| json!({ "frames": n, "why": why })).collect();
        let first = all.first();
        say::json(
            &json!({
                "file": path, "hash": hash, "modules": file.modules, "module_ids": file.module_ids,
                "detector_serial": file.detector_serial, "source": first.map(|taken| &taken.source), "taken": first.map(|taken| &taken.taken),
                "frames_used": rows.iter().filter(|r| r.module == 0).map(|r| r.frames).sum::<u64>(),
                "frames_refused": refused.values().sum::<u64>(), "refused": reasons,
                "incomplete_frames": all.iter().map(|taken| taken.incomplete_frames).sum::<u64>(), "notes": notes,
                "rows": rows.iter().map(ModuleRow::to_json).collect::<Vec<_>>(),
            }),
            true,
        );
        return;
    }
    say::to_stdout(&judge::table(rows));
    for (why, n) in &refused {
        say::to_stdout(&format!("refused: {} frames {why}", say::count(*n)));
    }
    notes.iter().for_each(|note| say::to_stdout(&format!("note: {note}")));
    say::to_stdout(&format!("{}\n{hash}", path.display()));
}

#[cfg(test)]
mod tests;
