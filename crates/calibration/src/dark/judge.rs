//! From sums to planes with their masks, and the remarks on each module.

use super::collect::{Collector, Refusal};
use super::light::{Samples, sign_of_light};
use super::taken::Taken;
use crate::reasons::{self, NO_DATA, Thresholds, UNSTABLE, WRONG_STAGE, median};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_kernels::pedestal::PedestalPlanes;
use konkordia_sinks::hdf5::calibration::{GainStage, MODULE_PIXELS, StagePedestal};
use serde_json::{Value, json};

/// Least number of frames of a cell and stage that make a pedestal.
const FRAMES_MIN: u64 = 10;
/// With fewer frames a module gets a remark. With so many, the error of a pedestal is an eighth of the noise.
const FRAMES_GOOD: u64 = 64;
/// Median RMS in ADU above which a module gets a remark, for G0, G1, G2 and HG0.
const RMS_ADU_GOOD: [f32; 4] = [60.0, 12.0, 12.0, 150.0];
/// Usual median pedestals in ADU for G0, G1, G2 and HG0. They leave the stage its range.
const PEDESTAL_ADU_GOOD: [(f32, f32); 4] = [(500.0, 8000.0), (8000.0, 16300.0), (8000.0, 16300.0), (500.0, 8000.0)];
/// Fraction of the pixels that may be masked without a remark.
const MASKED_GOOD: f64 = 0.01;
/// Movement of the pedestals within the run above which a module gets a remark, in units of the median RMS.
const DRIFT_GOOD: f64 = 0.25;

/// Up to so many words outside the gate do not make a pixel unstable: the gate is set from the first frames only.
const OUTSIDE_MIN: f32 = 8.0;

/// The result for one module in one cell and stage.
pub struct ModuleRow {
    /// Storage cell.
    pub cell: u8,
    /// Gain stage.
    pub stage: GainStage,
    /// Module, from 0.
    pub module: usize,
    /// Frames used.
    pub frames: u64,
    /// Median pedestal in ADU.
    pub pedestal_adu: f32,
    /// Median RMS in ADU.
    pub rms_adu: f32,
    /// Movement of the pedestals from the first to the second half of the frames, if there are enough.
    pub drift_adu: Option<f64>,
    /// Masked pixels by reason.
    pub masked: Vec<(&'static str, u64)>,
    /// Masked pixels.
    pub masked_pixels: u64,
    /// Remarks; empty = good.
    pub remarks: Vec<String>,
}

impl ModuleRow {
    /// "good", or "check" and the remarks.
    pub fn verdict(&self) -> String {
        if self.remarks.is_empty() { "good".into() } else { format!("check: {}", self.remarks.join("; ")) }
    }

    /// The row as JSON.
    pub fn to_json(&self) -> Value {
        let masked: serde_json::Map<String, Value> =
            self.masked.iter().map(|(name, n)| ((*name).to_string(), json!(n))).collect();
        json!({
            "cell": self.cell, "stage": self.stage.name(), "module": self.module, "frames": self.frames,
            "median_pedestal_adu": self.pedestal_adu, "median_rms_adu": self.rms_adu, "drift_adu": self.drift_adu,
            "masked_pixels": self.masked_pixels, "masked": masked, "good": self.remarks.is_empty(), "verdict": self.verdict(),
        })
    }
}

/// The rows as a text table.
pub fn table(rows: &[ModuleRow]) -> String {
    let head = ["module", "cell", "stage", "frames", "pedestal", "RMS", "masked", "", "verdict"].map(str::to_string).to_vec();
    let line = |r: &ModuleRow| {
        vec![
            r.module.to_string(),
            r.cell.to_string(),
            r.stage.name().to_uppercase(),
            if r.frames == 0 { "-".into() } else { text::count(r.frames) },
            format!("{:.1} ADU", r.pedestal_adu),
            if r.rms_adu.is_nan() { "-".into() } else { format!("{:.2} ADU", r.rms_adu) },
            text::count(r.masked_pixels),
            r.masked.iter().map(|(name, n)| format!("{} {name}", text::count(*n))).collect::<Vec<_>>().join(", "),
            r.verdict(),
        ]
    };
    text::table(&std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>())
}

/// Rows of one cell and stage of a calibration file, without the values that only a dark run has.
pub fn rows(cell: u8, stage: GainStage, planes: &StagePedestal) -> Vec<ModuleRow> {
    let modules = planes.mean_adu.len() / MODULE_PIXELS;
    (0..modules).map(|module| row(cell, stage, planes, module)).collect()
}

fn row(cell: u8, stage: GainStage, planes: &StagePedestal, module: usize) -> ModuleRow {
    let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
    let mask = &planes.mask[range.clone()];
    let good = |plane: &[f32]| {
        let values = plane[range.clone()].iter().zip(mask).filter(|(_, m)| **m == 0).map(|(v, _)| *v);
        median(values, 1).unwrap_or(f32::NAN)
    };
    let (pedestal_adu, rms_adu) = (good(&planes.mean_adu), good(&planes.rms_adu));
    let masked_pixels = mask.iter().filter(|m| **m != 0).count() as u64;
    let mut remarks = Vec::new();
    let (low, high) = PEDESTAL_ADU_GOOD[stage.index()];
    if !(low..high).contains(&pedestal_adu) {
        remarks.push(format!("pedestals are usually {low:.0} to {high:.0} ADU"));
    }
    if rms_adu > RMS_ADU_GOOD[stage.index()] {
        remarks.push(format!("noise is usually below {:.0} ADU", RMS_ADU_GOOD[stage.index()]));
    }
    let part = masked_pixels as f64 / MODULE_PIXELS as f64;
    if part > MASKED_GOOD {
        remarks.push(format!("{:.1} % masked", 100.0 * part));
    }
    if (1..FRAMES_GOOD).contains(&planes.frames) {
        remarks.push(format!("few frames; {FRAMES_GOOD} or more are better"));
    }
    ModuleRow {
        cell,
        stage,
        module,
        frames: planes.frames,
        pedestal_adu,
        rms_adu,
        drift_adu: None,
        masked: reasons::counts(mask),
        masked_pixels,
        remarks,
    }
}

/// Planes of every cell and stage, and the rows of the table.
pub type Judged = (Vec<((u8, GainStage), StagePedestal)>, Vec<ModuleRow>);

/// Makes the planes of a dark run. Refuses frames of the wrong stage, too few frames, and frames that are not dark.
/// With `force`, light is a remark only.
pub fn judge(taken: &mut Taken, thresholds: &Thresholds, force: bool) -> Result<Judged, Failure> {
    refuse_wrong_stage(&taken.collector)?;
    let refused: u64 = taken.collector.refused.values().sum();
    let (mut all, mut table) = (Vec::new(), Vec::new());
    let slots = std::mem::take(&mut taken.collector.slots);
    let some_make_pedestals = slots.values().any(|slot| slot.frames() >= FRAMES_MIN);
    for ((cell, stage), slot) in slots {
        if slot.frames() < FRAMES_MIN && some_make_pedestals {
            // Such frames came before a change of the settings took effect. The others are worth keeping.
            taken.notes.push(format!(
                "{} of storage cell {cell} has only {} frames ({FRAMES_MIN} are needed): left out",
                stage.name().to_uppercase(),
                slot.frames()
            ));
            continue;
        }
        let (sums, samples) = slot.finish();
        if sums.frames < FRAMES_MIN {
            let what = format!("too few dark frames of {} in storage cell {cell}", stage.name().to_uppercase());
            let why = format!("{} frames; a pedestal needs at least {FRAMES_MIN}, a good one several hundred", sums.frames);
            let fix = "take more frames (--frames N), or give the gain stage with --stage";
            return Err(Failure::new(Exit::Configuration, what, why, fix));
        }
        let mut settings = thresholds.to_json();
        let light = light(cell, stage, &sums, &samples, force)?;
        if !light.is_empty() {
            settings["forced"] = json!(light.iter().map(|(module, why)| format!("module {module}: {why}")).collect::<Vec<_>>());
        }
        let mut planes = planes(sums, thresholds);
        (planes.frames_refused, planes.taken, planes.source) = (refused, taken.taken.clone(), taken.source.clone());
        planes.settings = settings.to_string();
        let mut rows = rows(cell, stage, &planes);
        for row in &mut rows {
            row.drift_adu = samples.drift_adu(row.module);
            if let Some(drift) = row.drift_adu.filter(|d| d.abs() > DRIFT_GOOD * f64::from(row.rms_adu)) {
                row.remarks.push(format!("pedestals moved by {drift:+.1} ADU during the run; is the detector warm?"));
            }
            row.remarks.extend(light.iter().filter(|(module, _)| *module == row.module).map(|(_, why)| why.clone()));
        }
        all.push(((cell, stage), planes));
        table.extend(rows);
    }
    Ok((all, table))
}

/// Signs of light by module; a failure unless `force`.
fn light(
    cell: u8,
    stage: GainStage,
    sums: &PedestalPlanes,
    samples: &Samples,
    force: bool,
) -> Result<Vec<(usize, String)>, Failure> {
    let modules = sums.mean_adu.len() / MODULE_PIXELS;
    let found: Vec<(usize, String)> =
        (0..modules).filter_map(|module| Some((module, sign_of_light(sums, samples, module)?))).collect();
    if found.is_empty() || force {
        return Ok(found);
    }
    let what = format!("the frames of {} in storage cell {cell} are not dark", stage.name().to_uppercase());
    let why: Vec<String> = found.iter().map(|(module, why)| format!("module {module}: {why}")).collect();
    let fix = "close the shutter and take them again; --force uses them nevertheless and records it in the file";
    Err(Failure::new(Exit::Configuration, what, why.join("\n"), fix))
}

/// Refuses a run of which no frame was used, or more frames were refused than used.
fn refuse_wrong_stage(collector: &Collector) -> Result<(), Failure> {
    let (used, refused) = (collector.frames(), collector.refused.values().sum::<u64>());
    if used > 0 && refused <= used {
        return Ok(());
    }
    if used + refused == 0 {
        let fix = "start the detector after `armed`; --skip must be less than the number of frames";
        return Err(Failure::new(Exit::Timeout, "there are no dark frames", "no frame arrived", fix));
    }
    let words: Vec<String> = collector.refused.iter().map(|(why, n)| format!("{} {}", text::count(*n), why.words())).collect();
    let stage = collector.refused.keys().any(|r| matches!(r, Refusal::OtherStage(_) | Refusal::Contradiction | Refusal::NoStage));
    let what = if stage { "the dark frames are in the wrong gain stage" } else { "most dark frames cannot be used" };
    let why = format!("{} of {} frames were refused: {}", text::count(refused), text::count(used + refused), words.join(", "));
    let fix = "set the gain of the detector (forced to G1 or G2, or normal for G0) and --stage to the same";
    Err(Failure::new(Exit::Configuration, what, why, fix))
}

/// Means, noise, and the mask reasons that follow from the sums.
fn planes(sums: PedestalPlanes, thresholds: &Thresholds) -> StagePedestal {
    let frames = sums.frames as f32;
    let reason = |pixel: usize| {
        let (count, outside) = (sums.count[pixel] as f32, sums.outside[pixel] as f32);
        let other = (sums.wrong_stage[pixel] + sums.illegal[pixel]) as f32;
        let mut reasons = 0;
        if other > thresholds.wrong_stage_max * frames {
            reasons |= WRONG_STAGE;
        }
        if outside > (thresholds.outside_max * (count + outside)).max(OUTSIDE_MIN) {
            reasons |= UNSTABLE;
        }
        if reasons == 0 && count < (thresholds.data_min * frames).max(2.0) {
            reasons |= NO_DATA;
        }
        reasons
    };
    let mask = (0..sums.mean_adu.len()).map(reason).collect();
    let mut planes = StagePedestal {
        mask,
        frames: sums.frames,
        mean_adu: sums.mean_adu,
        rms_adu: sums.rms_adu,
        count: sums.count,
        ..StagePedestal::default()
    };
    reasons::mark_pedestals(&mut planes, thresholds);
    planes
}
