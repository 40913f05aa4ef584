//! `konkordia calibration show`

use super::args::ShowArgs;
use super::file::read;
use crate::console;
use konkordia_calibration::dark::judge::{ModuleRow, rows, table};
use konkordia_calibration::reasons::median;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, MODULE_PIXELS};
use serde_json::{Value, json};
use std::path::Path;

/// Prints each file.
pub fn command(args: &ShowArgs) -> Result<Exit, Failure> {
    let mut all = Vec::new();
    for path in &args.files {
        let file = read(path)?;
        if args.json {
            all.push(to_json(path, &file));
        } else {
            console::to_stdout(&describe(path, &file));
        }
    }
    if args.json {
        console::json(&Value::Array(all), false);
    }
    Ok(Exit::Complete)
}

/// All rows of a file.
pub fn all_rows(file: &CalibrationFile) -> Vec<ModuleRow> {
    file.pedestals.iter().flat_map(|((cell, stage), planes)| rows(*cell, *stage, planes)).collect()
}

/// Median gains of a module in the order of the stages, `None` where the file has none.
fn gains(file: &CalibrationFile, module: usize) -> [Option<f32>; 4] {
    let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
    GainStage::ALL
        .map(|stage| median(file.gains[stage.index()].as_ref()?[range.clone()].iter().copied().filter(|g| *g != 0.0), 1))
}

fn id_words(id: Option<u16>) -> String {
    id.map_or("unknown".into(), |id| id.to_string())
}

/// The file in words.
pub fn describe(path: &Path, file: &CalibrationFile) -> String {
    let serial = if file.detector_serial.is_empty() { "not known" } else { &file.detector_serial };
    let ids: Vec<String> = file.module_ids.iter().map(|id| id_words(*id)).collect();
    let mut lines = vec![
        format!("{}: calibration of {} module(s)", path.display(), file.modules),
        format!("  written      {} by {}", file.created, file.software),
        format!(
            "  detector     serial number {serial}; module ids {}",
            if ids.is_empty() { "not known".into() } else { ids.join(", ") }
        ),
        format!("  hash         {}", file.hash()),
    ];
    for ((cell, stage), planes) in &file.pedestals {
        let when = if planes.taken.is_empty() { "at an unknown time" } else { &planes.taken };
        lines.push(format!("  {:<12} cell {cell}, taken {when} from {}", stage.name().to_uppercase(), planes.source));
        if let Some(forced) = forced(&planes.settings) {
            lines.push(format!("  {:<12} used although it was not dark: {forced}", ""));
        }
    }
    for module in 0..file.modules {
        let words = |(stage, gain): (GainStage, Option<f32>)| Some(format!("{} {:.4}", stage.name().to_uppercase(), gain?));
        let medians: Vec<String> = GainStage::ALL.into_iter().zip(gains(file, module)).filter_map(words).collect();
        if !medians.is_empty() {
            lines.push(format!("  gains        module {module}: median {} ADU/keV ({})", medians.join(", "), file.gain_source));
        }
    }
    if file.gains.iter().all(Option::is_none) {
        lines.push("  gains        none; add them: konkordia pedestal --gain FILES --into FILE".into());
    }
    lines.push(table(&all_rows(file)));
    lines.join("\n")
}

/// What `--force` overrode.
fn forced(settings: &str) -> Option<String> {
    let value: Value = serde_json::from_str(settings).ok()?;
    let list: Vec<&str> = value["forced"].as_array()?.iter().filter_map(Value::as_str).collect();
    Some(list.join("; "))
}

/// The file for programs.
pub fn to_json(path: &Path, file: &CalibrationFile) -> Value {
    let stages: Vec<Value> = file
        .pedestals
        .iter()
        .map(|((cell, stage), p)| {
            let settings: Value = serde_json::from_str(&p.settings).unwrap_or(Value::Null);
            json!({
                "cell": cell, "stage": stage.name(), "taken": p.taken, "source": p.source, "frames": p.frames,
                "frames_refused": p.frames_refused, "settings": settings,
            })
        })
        .collect();
    let gains: Vec<Value> = (0..file.modules).map(|m| json!(gains(file, m))).collect();
    json!({
        "file": path, "modules": file.modules, "created": file.created, "software": file.software, "hash": file.hash(),
        "detector_serial": file.detector_serial, "module_ids": file.module_ids, "history": file.history, "stages": stages,
        "median_gains_adu_per_kev": gains, "gain_source": file.gain_source,
        "rows": all_rows(file).iter().map(ModuleRow::to_json).collect::<Vec<_>>(),
    })
}
