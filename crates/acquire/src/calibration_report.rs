//! The calibration that the runs of a detector use, as control servers give it: numbers of each module, and maps.

pub use konkordia_calibration::in_use::{Map as CalibrationMap, MapRequest, NotShown, Quantity, Values as MapValues};

use konkordia_calibration::compare::Change;
use konkordia_calibration::in_use::{InUse, Report, Row};
use konkordia_calibration::reasons;
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_core::failure::Failure;
use konkordia_core::moment;
use konkordia_sinks::clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// The calibration that the next run uses.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CalibrationReport {
    /// `konkordia`, `files` or `jungfrau_utils`, as in `[calibration] kind`.
    pub kind: String,
    /// Files of the pedestals.
    pub files: Vec<String>,
    /// Files of gains that replace those of the calibration file.
    pub gain_files: Vec<String>,
    /// Modules of the detector.
    pub modules: usize,
    /// Storage cells that have pedestals; empty if the pedestals are for all cells.
    pub cells: Vec<u8>,
    /// Gain stages of a run, in the order of the gain bits: `hg0` instead of `g0` if the detector is set to high gain.
    pub stages: Vec<String>,
    /// When the oldest pedestals of the first stage were taken, ISO 8601; null if that is not known.
    pub taken: Option<String>,
    /// Seconds since then.
    pub age_s: Option<f64>,
    /// Age at which the alarm `pedestal_age` is raised; null without that alarm.
    pub recommended_age_s: Option<f64>,
    /// Age from which on runs are refused (`[calibration] max_age_hours`); null without.
    pub max_age_s: Option<f64>,
    /// When the file was written; empty if that is not known, as the next three.
    pub created: String,
    /// "sha256:" and 64 hexadecimal digits, as in the files of runs.
    pub hash: String,
    /// Serial number of the detector.
    pub detector_serial: String,
    /// Where the gains come from.
    pub gain_source: String,
    /// Module ids of the packet headers, by module; empty if they are not known.
    pub module_ids: Vec<Option<u16>>,
    /// Why a run would refuse this calibration; null if nothing is known against it.
    pub refused: Option<CalibrationProblem>,
    /// Meaning of the bits of the mask.
    pub reasons: Vec<MaskReason>,
    /// One entry for each storage cell, gain stage and module.
    pub rows: Vec<CalibrationRow>,
    /// The calibration before this one; null if none is kept.
    pub previous: Option<PreviousCalibration>,
}

/// Why there is no calibration, or what is wrong with it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CalibrationProblem {
    /// What is wrong, and why.
    pub detail: String,
    /// What to do.
    pub hint: String,
}

impl From<&Failure> for CalibrationProblem {
    fn from(failure: &Failure) -> Self {
        Self { detail: failure.detail(), hint: failure.fix.clone() }
    }
}

/// A bit of the mask.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MaskReason {
    /// Its number, from 0.
    #[schema(example = 3)]
    pub bit: u8,
    /// What it means.
    #[schema(example = "noisy")]
    pub name: String,
}

/// One module in one storage cell and gain stage. Medians are of the pixels that are not masked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CalibrationRow {
    /// Module, from 0.
    pub module: usize,
    /// Storage cell; null if the pedestals are for all cells.
    pub cell: Option<u8>,
    /// `g0`, `g1`, `g2` or `hg0`.
    pub stage: String,
    /// When the dark frames were taken, ISO 8601; null if that is not known.
    pub taken: Option<String>,
    /// Dark frames; 0 if that is not known.
    pub frames: u64,
    /// Median of the pedestals.
    pub median_pedestal_adu: Option<f32>,
    /// Median of the noise.
    pub median_rms_adu: Option<f32>,
    /// Median of the gains.
    pub median_gain_adu_per_kev: Option<f32>,
    /// Masked pixels.
    pub masked_pixels: u64,
    /// Masked pixels by reason.
    pub masked: BTreeMap<String, u64>,
    /// Nothing is unusual.
    pub good: bool,
    /// What is unusual, in words.
    pub remarks: Vec<String>,
    /// What changed since the previous calibration; null if that has no such pedestals.
    pub since_previous: Option<CalibrationChange>,
}

/// How one module differs from the previous calibration, over the pixels that are good in both.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CalibrationChange {
    /// Median shift of the pedestals.
    pub median_shift_adu: Option<f32>,
    /// Half of the distance from the 16th to the 84th percentile of the shifts.
    pub spread_adu: f32,
    /// Median of the noise before.
    pub median_rms_before_adu: Option<f32>,
    /// Pixels that were not masked before.
    pub newly_masked: u64,
    /// Pixels that were.
    pub no_longer_masked: u64,
}

/// The calibration that was replaced last.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PreviousCalibration {
    /// Its file.
    pub file: String,
    /// When the oldest of its pedestals of the first stage were taken; null if that is not known.
    pub taken: Option<String>,
    /// Seconds since then.
    pub age_s: Option<f64>,
    /// Why nothing can be compared with it.
    pub problem: Option<CalibrationProblem>,
}

/// The calibration that the runs of a detector use.
pub struct UsedCalibration {
    recommended_age: Option<Duration>,
    in_use: InUse,
}

impl UsedCalibration {
    /// The calibration that a configuration names, if it names one. Reads nothing.
    pub fn new(config: &DetectorConfig) -> Option<Self> {
        let DetectorKindConfig::Udp(own) = &config.kind else { return None };
        let recommended_age = config.alarms.as_ref().and_then(|alarms| alarms.pedestal_age);
        Some(Self { recommended_age, in_use: InUse::new(own)? })
    }

    /// What it is like. Reads files that have changed: not for async threads.
    ///
    /// # Errors
    /// It is not there, damaged, or of another detector.
    pub fn report(&self) -> Result<CalibrationReport, NotShown> {
        let (report, files) = (self.in_use.report()?, self.in_use.files());
        let (taken, age_s) = of_moment(report.taken.as_ref());
        let facts = &report.facts;
        Ok(CalibrationReport {
            kind: files.kind.name().into(),
            files: texts(&files.pedestal),
            gain_files: texts(&files.gain),
            modules: facts.modules,
            cells: if report.is_for_all_cells { Vec::new() } else { facts.cells() },
            stages: report.stages.iter().map(|stage| stage.name().into()).collect(),
            taken,
            age_s,
            recommended_age_s: self.recommended_age.map(|age| age.as_secs_f64()),
            max_age_s: files.max_age_hours.map(|hours| 3600.0 * hours),
            created: facts.created.clone(),
            hash: report.hash.clone(),
            detector_serial: facts.detector_serial.clone(),
            gain_source: facts.gain_source.clone(),
            module_ids: facts.module_ids.clone(),
            refused: report.refusal.as_ref().map(CalibrationProblem::from),
            reasons: reasons::table().into_iter().map(|(bit, name)| MaskReason { bit, name }).collect(),
            rows: report.rows.iter().map(|row| row_of(row, &report)).collect(),
            previous: report.previous.as_ref().map(|previous| {
                let (taken, age_s) = of_moment(previous.taken.as_ref());
                let problem = previous.failure.as_ref().map(CalibrationProblem::from);
                PreviousCalibration { file: text(&previous.path), taken, age_s, problem }
            }),
        })
    }

    /// A map in the geometry of the images. Reads files: not for async threads.
    ///
    /// # Errors
    /// There is no such map, or the files cannot be read.
    pub fn map(&self, request: MapRequest) -> Result<Arc<CalibrationMap>, NotShown> {
        self.in_use.map(request)
    }

    /// Bytes of memory that a report or a map takes while it is made.
    pub fn bytes(&self) -> u64 {
        self.in_use.map_bytes()
    }

    /// Frees what nobody has asked for since so long.
    pub fn forget(&self, unasked_for: Duration) {
        self.in_use.forget(unasked_for);
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn texts(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| text(path)).collect()
}

/// A moment as text, and the seconds since then.
fn of_moment(moment: Option<&(String, u64)>) -> (Option<String>, Option<f64>) {
    let now = moment::unix_s(&clock::now());
    let age_s = moment.zip(now).map(|((_, then), now)| now.saturating_sub(*then) as f64);
    (moment.map(|(text, _)| text.clone()), age_s)
}

fn row_of(row: &Row, report: &Report) -> CalibrationRow {
    let judged = &row.judged;
    let taken = report.facts.pedestals.get(&(judged.cell, judged.stage)).map(|planes| planes.taken.clone());
    CalibrationRow {
        module: judged.module,
        cell: (!report.is_for_all_cells).then_some(judged.cell),
        stage: judged.stage.name().into(),
        taken: taken.filter(|taken| !taken.is_empty()),
        frames: judged.frames,
        median_pedestal_adu: known(judged.pedestal_adu),
        median_rms_adu: known(judged.rms_adu),
        median_gain_adu_per_kev: row.gain_adu_per_kev.and_then(known),
        masked_pixels: judged.masked_pixels,
        masked: judged.masked.iter().map(|(name, pixels)| ((*name).into(), *pixels)).collect(),
        good: judged.remarks.is_empty(),
        remarks: judged.remarks.clone(),
        since_previous: row.change.as_ref().map(change_of),
    }
}

fn change_of(change: &Change) -> CalibrationChange {
    let [newly_masked, no_longer_masked] = change.masked;
    CalibrationChange {
        median_shift_adu: known(change.shift_adu),
        spread_adu: change.spread_adu,
        median_rms_before_adu: known(change.rms_adu[0]),
        newly_masked,
        no_longer_masked,
    }
}

/// JSON has no NaN.
fn known(value: f32) -> Option<f32> {
    value.is_finite().then_some(value)
}
