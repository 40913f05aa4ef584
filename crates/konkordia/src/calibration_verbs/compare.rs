//! `konkordia calibration compare`

use super::args::CompareArgs;
use super::file::read;
use crate::console;
use konkordia_calibration::compare::{Change, change};
use konkordia_calibration::reasons::median;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, MODULE_PIXELS, StagePedestal};
use serde_json::{Value, json};

/// Compares two files.
pub fn command(args: &CompareArgs) -> Result<Exit, Failure> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    if before.modules != after.modules {
        let what = format!("{} and {} are of different detectors", args.before.display(), args.after.display());
        let why = format!("they have {} and {} modules", before.modules, after.modules);
        return Err(Failure::new(Exit::Configuration, what, why, "give two calibrations of one detector"));
    }
    let rows = compare(&before, &after);
    let gains = gain_changes(&before, &after);
    let only: Vec<String> = only_in(&before, &after, &args.before.display().to_string())
        .chain(only_in(&after, &before, &args.after.display().to_string()))
        .collect();
    if args.json {
        let gains: Vec<Value> = gains
            .iter()
            .map(|(module, stage, percent)| json!({ "module": module, "stage": stage.name(), "median_change_percent": percent }))
            .collect();
        let rows: Vec<Value> = rows.iter().map(Change::to_json).collect();
        let value = json!({
            "before": args.before, "after": args.after, "equal": before.hash() == after.hash(), "rows": rows, "gains": gains, "only_in_one": only,
        });
        console::json(&value, false);
    } else {
        console::to_stdout(&table(&rows));
        for (module, stage, percent) in gains {
            console::to_stdout(&format!(
                "gains of {} in module {module}: median change {percent:+.3} %",
                stage.name().to_uppercase()
            ));
        }
        only.iter().for_each(|line| console::to_stdout(line));
        if before.hash() == after.hash() {
            console::to_stdout("the two are equal");
        }
    }
    Ok(Exit::Complete)
}

fn only_in<'a>(one: &'a CalibrationFile, other: &'a CalibrationFile, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let missing = one.pedestals.keys().filter(|key| !other.pedestals.contains_key(key));
    missing.map(move |(cell, stage)| format!("only in {name}: {} of cell {cell}", stage.name().to_uppercase()))
}

fn compare(before: &CalibrationFile, after: &CalibrationFile) -> Vec<Change> {
    let common = before.pedestals.iter().filter_map(|(key, b)| Some((*key, b, after.pedestals.get(key)?)));
    let of_module =
        |key, module, b: &StagePedestal, a: &StagePedestal| change(key, module, &b.of_module(module), &a.of_module(module));
    common.flat_map(|(key, b, a)| (0..before.modules).map(move |module| of_module(key, module, b, a))).collect()
}

/// Median relative change of the gains in percent, where both files have them and they differ.
fn gain_changes(before: &CalibrationFile, after: &CalibrationFile) -> Vec<(usize, GainStage, f32)> {
    let mut changes = Vec::new();
    for stage in GainStage::ALL {
        let (Some(b), Some(a)) = (&before.gains[stage.index()], &after.gains[stage.index()]) else { continue };
        for (module, (b, a)) in b.chunks_exact(MODULE_PIXELS).zip(a.chunks_exact(MODULE_PIXELS)).enumerate() {
            if b != a {
                let percent = median(b.iter().zip(a).filter(|(b, _)| **b != 0.0).map(|(b, a)| 100.0 * (a / b - 1.0)), 1);
                changes.push((module, stage, percent.unwrap_or(f32::NAN)));
            }
        }
    }
    changes
}

fn table(rows: &[Change]) -> String {
    let head = ["module", "cell", "stage", "shift", "+-", "RMS before", "after", "newly masked", "no longer", ""];
    let adu = |rms: f32| if rms.is_nan() { "-".into() } else { format!("{rms:.2}") };
    let line = |r: &Change| {
        vec![
            r.module.to_string(),
            r.cell.to_string(),
            r.stage.name().to_uppercase(),
            format!("{:+.2} ADU", r.shift_adu),
            format!("{:.2}", r.spread_adu),
            adu(r.rms_adu[0]),
            adu(r.rms_adu[1]),
            text::count(r.masked[0]),
            text::count(r.masked[1]),
            r.reasons.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", "),
        ]
    };
    text::table(&std::iter::once(head.map(str::to_string).to_vec()).chain(rows.iter().map(line)).collect::<Vec<_>>())
}
