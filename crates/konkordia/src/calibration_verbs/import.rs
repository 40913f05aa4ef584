//! `konkordia calibration import`: a calibration file from planes of other programs.

use super::args::ImportArgs;
use super::show::{describe, to_json};
use crate::console;
use konkordia_calibration::dark::store::{self, Target};
use konkordia_calibration::planes::{Stages, names, read_pedestals, read_single};
use konkordia_calibration::reasons::{self, Thresholds};
use konkordia_calibration::{load, planes};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::moment;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, Keep, StagePedestal};

/// Reads the planes, marks bad pixels, writes the file.
pub fn command(args: &ImportArgs) -> Result<Exit, Failure> {
    let target = Target::open(Some(&args.output), None, args.overwrite)?;
    if let Some(taken) = args.taken.as_deref().filter(|t| moment::unix_s(t).is_none()) {
        let what = format!("--taken \"{taken}\" is not a time");
        return Err(Failure::new(Exit::Usage, what, "", "write it in UTC, for example 2026-11-21T05:18:00Z"));
    }
    let (path, mut file) = target.into_file();
    store::identify(&mut file, &path, args.modules as usize, args.serial.as_deref(), &[])?;
    pedestals(args, &mut file)?;
    if !args.gain.is_empty() {
        store::add_gains(&mut file, &args.gain)?;
    }
    store::write(&mut file, &path, format!("imported from {}", names(&args.pedestal)), Keep::Previous)?;
    if args.json {
        console::json(&to_json(&path, &file), false);
    } else {
        console::to_stdout(&describe(&path, &file));
    }
    Ok(Exit::Complete)
}

fn pedestals(args: &ImportArgs, file: &mut CalibrationFile) -> Result<(), Failure> {
    let modules = args.modules as usize;
    let (Stages { low: [g0, g1, g2], high }, marked) = read_any(args, modules)?;
    let rms = match args.rms.as_slice() {
        [] => vec![f32::NAN; g0.len()],
        paths => read_single(paths, modules, "RMS")?,
    };
    load::judge_pedestals(&g0, &names(&args.pedestal))?;
    let planes = [(GainStage::G0, Some(g0)), (GainStage::G1, Some(g1)), (GainStage::G2, Some(g2)), (GainStage::Hg0, high)];
    for (stage, plane) in planes.into_iter().filter_map(|(stage, plane)| Some((stage, plane?))) {
        let noise = if stage == GainStage::G0 { rms.clone() } else { vec![f32::NAN; plane.len()] };
        let planes = marked_planes(args, plane, noise, &marked);
        for cell in &args.cell {
            file.pedestals.insert((*cell, stage), planes.clone());
        }
    }
    Ok(())
}

fn read_any(args: &ImportArgs, modules: usize) -> Result<(Stages, Vec<u32>), Failure> {
    if let [path] = args.pedestal.as_slice()
        && planes::has_extension(path, &["h5", "hdf5"])
    {
        return read_pedestals(path, modules);
    }
    let stages = planes::read_plain(&args.pedestal, modules, 3, "pedestal")
        .or_else(|e| planes::read_plain(&args.pedestal, modules, 4, "pedestal").map_err(|_| e))?;
    let pixels = stages.low[0].len();
    Ok((stages, vec![0; pixels]))
}

/// Noise is judged only with `--noisy-k`.
fn marked_planes(args: &ImportArgs, mean_adu: Vec<f32>, rms_adu: Vec<f32>, marked: &[u32]) -> StagePedestal {
    let (taken, source) = (args.taken.clone().unwrap_or_default(), names(&args.pedestal));
    let mut planes = StagePedestal { taken, source, ..reasons::of_source(mean_adu, rms_adu, marked) };
    if let Some(noisy_k) = args.noisy_k {
        reasons::mark_pedestals(&mut planes, &Thresholds { noisy_k, ..Thresholds::default() });
    }
    planes
}
