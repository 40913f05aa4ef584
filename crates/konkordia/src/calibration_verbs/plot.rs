//! `konkordia calibration plot`: maps and histograms as PNG.

use super::args::PlotArgs;
use super::file::read;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_picture::{HeatMap, Histogram, Picture, bins, heat_map, histogram, marked_map, percentiles, stacked};
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, MODULE_COLUMNS, MODULE_PIXELS, MODULE_ROWS, StagePedestal};
use serde_json::json;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bins of a histogram.
const BINS: usize = 200;

/// Draws the file.
pub fn command(args: &PlotArgs) -> Result<Exit, Failure> {
    let file = read(&args.file)?;
    let modules = match args.module {
        Some(module) if module >= file.modules => {
            let what = format!("there is no module {module} in {}", args.file.display());
            return Err(Failure::new(
                Exit::Usage,
                what,
                format!("it has {}, counted from 0", file.modules),
                "give another number",
            ));
        }
        Some(module) => module..module + 1,
        None => 0..file.modules,
    };
    let beside = args.file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = args.dir.as_deref().unwrap_or(beside);
    std::fs::create_dir_all(folder).map_err(|e| Failure::io("cannot make the folder", folder, &e))?;
    let stem = args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = |part: &str| match args.module {
        Some(module) => folder.join(format!("{stem}_{part}_module{module}.png")),
        None => folder.join(format!("{stem}_{part}.png")),
    };
    let mut written: Vec<PathBuf> = Vec::new();
    for ((cell, stage), planes) in &file.pedestals {
        let path = name(&format!("{}_cell{cell:02}", stage.name()));
        pedestals(*cell, *stage, planes, &modules).write(&path)?;
        written.push(path);
    }
    if let Some(picture) = gains(&file, &modules) {
        let path = name("gain");
        picture.write(&path)?;
        written.push(path);
    }
    if args.json {
        console::json(&json!({ "pictures": written }), true);
    } else {
        written.iter().for_each(|path| console::to_stdout(&path.display().to_string()));
    }
    Ok(Exit::Complete)
}

/// Map and histogram of a plane.
fn both(title: &str, unit: &str, values: &[f32], log: bool) -> [Picture; 2] {
    let (low, high) = percentiles(values, 0.0005, 0.9995);
    let (low, high) = (f64::from(low), f64::from(high));
    // A plane with the same value everywhere gets a width, too.
    let margin = (0.2 * (high - low)).max(1e-3 * low.abs()).max(1e-6);
    let (from, to) = (low - margin, high + margin);
    let counts = bins(values, from, to, BINS);
    let map = HeatMap { title, unit, rows: values.len() / MODULE_COLUMNS, columns: MODULE_COLUMNS, values, range: None };
    let label = if unit.is_empty() { title.to_string() } else { format!("{title} ({unit})") };
    let histogram = histogram(&Histogram { title: &format!("{title}: pixels"), x_label: &label, from, to, counts: &counts, log });
    [heat_map(&map), histogram]
}

fn pixels(modules: &Range<usize>) -> Range<usize> {
    modules.start * MODULE_PIXELS..modules.end * MODULE_PIXELS
}

fn pedestals(cell: u8, stage: GainStage, planes: &StagePedestal, modules: &Range<usize>) -> Picture {
    let (range, name) = (pixels(modules), stage.name().to_uppercase());
    let mask = &planes.mask[range.clone()];
    // Masked pixels would stretch every scale; they have a map of their own.
    let good = |plane: &[f32]| -> Vec<f32> {
        plane[range.clone()].iter().zip(mask).map(|(v, m)| if *m == 0 { *v } else { f32::NAN }).collect()
    };
    let mut pictures = Vec::from(both(&format!("{name}, cell {cell}: pedestal"), "ADU", &good(&planes.mean_adu), false));
    let rms = good(&planes.rms_adu);
    if rms.iter().any(|v| v.is_finite()) {
        pictures.extend(both(&format!("{name}, cell {cell}: RMS"), "ADU", &rms, true));
    }
    pictures.push(mask_map(&format!("{name}, cell {cell}"), mask));
    stacked(&pictures)
}

fn mask_map(title: &str, mask: &[u32]) -> Picture {
    let marked: Vec<bool> = mask.iter().map(|reasons| *reasons != 0).collect();
    let masked = text::count(marked.iter().filter(|marked| **marked).count() as u64);
    marked_map(&format!("{title}: {masked} masked pixels, drawn enlarged"), MODULE_COLUMNS, &marked)
}

fn gains(file: &CalibrationFile, modules: &Range<usize>) -> Option<Picture> {
    let mut pictures = Vec::new();
    for stage in GainStage::ALL {
        let Some(plane) = &file.gains[stage.index()] else { continue };
        let values = &plane[pixels(modules)];
        debug_assert_eq!(values.len() % (MODULE_ROWS * MODULE_COLUMNS), 0);
        pictures.extend(both(&format!("gain of {}", stage.name().to_uppercase()), "ADU/keV", values, true));
    }
    (!pictures.is_empty()).then(|| stacked(&pictures))
}
