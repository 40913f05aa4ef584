//! `konkordia calibration compare`

use super::args::CompareArgs;
use super::file::read;
use crate::console;
use konkordia_calibration::reasons::{REASONS, median};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, MODULE_PIXELS, StagePedestal};
use serde_json::{Value, json};

/// How one module differs in one cell and stage, over the pixels that are good in both.
struct Row {
    module: usize,
    cell: u8,
    stage: GainStage,
    /// Median shift of the pedestals, after minus before, in ADU.
    shift_adu: f32,
    /// Spread of the shifts in ADU: half of the distance from the 16th to the 84th percentile.
    spread_adu: f32,
    /// Median RMS before and after, in ADU.
    rms_adu: [f32; 2],
    /// Pixels that are masked only after, and only before.
    masked: [u64; 2],
    /// Reasons of those that are masked only after.
    reasons: Vec<(&'static str, u64)>,
}

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
        let rows: Vec<Value> = rows.iter().map(to_json).collect();
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

fn compare(before: &CalibrationFile, after: &CalibrationFile) -> Vec<Row> {
    let common = before.pedestals.iter().filter_map(|(key, b)| Some((*key, b, after.pedestals.get(key)?)));
    common.flat_map(|(key, b, a)| (0..before.modules).map(move |module| row(key, module, b, a))).collect()
}

fn row((cell, stage): (u8, GainStage), module: usize, before: &StagePedestal, after: &StagePedestal) -> Row {
    let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
    let good: Vec<usize> = range.clone().filter(|p| before.mask[*p] == 0 && after.mask[*p] == 0).collect();
    let shifts: Vec<f32> = good.iter().map(|p| after.mean_adu[*p] - before.mean_adu[*p]).collect();
    let (low, high) = if shifts.is_empty() { (0.0, 0.0) } else { konkordia_picture::percentiles(&shifts, 0.16, 0.84) };
    let rms = |planes: &StagePedestal| median(good.iter().map(|p| planes.rms_adu[*p]), 1).unwrap_or(f32::NAN);
    let newly: Vec<u32> = range.clone().filter(|p| before.mask[*p] == 0).map(|p| after.mask[p]).collect();
    let count = |bit: u32| newly.iter().filter(|m| **m & bit != 0).count() as u64;
    Row {
        module,
        cell,
        stage,
        shift_adu: median(shifts.iter().copied(), 1).unwrap_or(f32::NAN),
        spread_adu: (high - low) / 2.0,
        rms_adu: [rms(before), rms(after)],
        masked: [
            newly.iter().filter(|m| **m != 0).count() as u64,
            range.filter(|p| before.mask[*p] != 0 && after.mask[*p] == 0).count() as u64,
        ],
        reasons: REASONS.iter().map(|(bit, name, _)| (*name, count(*bit))).filter(|(_, n)| *n > 0).collect(),
    }
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

fn to_json(r: &Row) -> Value {
    let reasons: serde_json::Map<String, Value> = r.reasons.iter().map(|(name, n)| ((*name).to_string(), json!(n))).collect();
    json!({
        "module": r.module, "cell": r.cell, "stage": r.stage.name(), "median_shift_adu": r.shift_adu, "spread_adu": r.spread_adu,
        "median_rms_before_adu": r.rms_adu[0], "median_rms_after_adu": r.rms_adu[1], "newly_masked": r.masked[0],
        "no_longer_masked": r.masked[1], "newly_masked_reasons": reasons,
    })
}

fn table(rows: &[Row]) -> String {
    let head = ["module", "cell", "stage", "shift", "+-", "RMS before", "after", "newly masked", "no longer", ""];
    let adu = |rms: f32| if rms.is_nan() { "-".into() } else { format!("{rms:.2}") };
    let line = |r: &Row| {
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
