//! From `[calibration]` to a [`Calibration`]: reads the files, refuses those that cannot belong to this detector, and
//! reports what was found.

use super::calibration::{Calibration, Source};
use super::planes::{configuration, names, read_gains, read_pedestals, read_plain, read_values};
use super::reasons::{NO_DATA, median, usable_gain, usable_pedestal};
use konkordia_config::model::{CalibrationFiles, CalibrationKind, Config};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::moment;
use konkordia_core::text;
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, MODULE_PIXELS};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Plausible medians of |gain| in ADU/keV of G0, G1 and G2; typical are 41, 1.4 and 0.11 (docs/protocols.md 1.4),
/// high-gain G0 about 100.
pub const GAIN_MEDIANS: [(f32, f32); 3] = [(4.0, 500.0), (0.1, 20.0), (0.01, 2.0)];

/// Reads and checks the files that `[calibration]` names.
///
/// # Errors
/// A file cannot be read, is damaged, too old, or cannot be of this detector.
pub fn load(config: &Config, files: &CalibrationFiles) -> Result<Calibration, Failure> {
    match files.kind {
        CalibrationKind::Konkordia => own(config, files),
        CalibrationKind::Files | CalibrationKind::JungfrauUtils => foreign(files, Foreign::read(config.modules as usize, files)?),
    }
}

/// Planes of other programs. They apply to all storage cells.
pub(super) struct Foreign {
    /// Of the stages of a run.
    pub pedestals: [Vec<f32>; 3],
    /// Reason bits, if their program has judged the pixels.
    pub mask: Option<Vec<u32>>,
    pub gains: [Vec<f32>; 3],
    pub rms_g0: Option<Vec<f32>>,
}

impl Foreign {
    pub(super) fn read(modules: usize, files: &CalibrationFiles) -> Result<Self, Failure> {
        let (pedestals, mask) = match files.kind {
            CalibrationKind::JungfrauUtils => {
                let (pedestals, mask) = read_pedestals(&files.pedestal[0], modules)?;
                (pedestals, Some(mask))
            }
            _ => (read_plain(&files.pedestal, modules, if files.high_gain { 4 } else { 3 }, "pedestal")?, None),
        };
        let pedestals = pedestals.of_run(files.high_gain, "pedestal", &files.pedestal)?;
        let gains = gains_of_run(modules, files)?;
        let rms_g0 = match &files.pedestal_rms[..] {
            [] => None,
            paths => Some(read_values(paths, modules, 1, "pedestal_rms")?),
        };
        Ok(Self { pedestals, mask, gains, rms_g0 })
    }
}

/// The gains that `[calibration] gain` names, of the stages of a run.
pub(super) fn gains_of_run(modules: usize, files: &CalibrationFiles) -> Result<[Vec<f32>; 3], Failure> {
    read_gains(&files.gain, modules, files.high_gain)?.of_run(files.high_gain, "gain", &files.gain)
}

fn foreign(files: &CalibrationFiles, planes: Foreign) -> Result<Calibration, Failure> {
    let Foreign { pedestals, mask, gains, rms_g0 } = planes;
    judge_gains(&gains, &names(&files.gain))?;
    judge_pedestals(&pedestals[0], &names(&files.pedestal))?;
    let planes = pedestals.iter().chain(&gains).chain(&rms_g0).map(Vec::as_slice);
    let hash = hash("", planes, mask.as_deref().unwrap_or(&[]));
    let pixels = 0..gains[0].len();
    let count = |f: &dyn Fn(usize) -> bool| text::count(pixels.clone().filter(|p| f(*p)).count() as u64);
    let nan = count(&|p| (0..3).any(|g| !gains[g][p].is_finite() || !pedestals[g][p].is_finite()));
    let zero = count(&|p| (0..3).any(|g| gains[g][p] == 0.0));
    let source = Source { cell: None, pedestals, rms_g0, reasons: [mask.clone(), mask.clone(), mask] };
    let mut calibration = Calibration::new(vec![source], gains, files.high_gain, hash);
    calibration.report =
        format!("{}; {nan} pixels with a value that is not a number, {zero} with a gain of 0", masked_words(&calibration));
    Ok(calibration)
}

/// What is masked, in words.
fn masked_words(calibration: &Calibration) -> String {
    let count = |n: usize| text::count(n as u64);
    format!(
        "calibration: {} pixels masked, of the others {} not usable in G1 and {} in G2",
        count(calibration.mask.iter().filter(|m| **m != 0).count()),
        count(calibration.unusable_in(1)),
        count(calibration.unusable_in(2))
    )
}

/// A file of `konkordia pedestal`.
fn own(config: &Config, files: &CalibrationFiles) -> Result<Calibration, Failure> {
    of_file(config, files, CalibrationFile::read(&files.pedestal[0]).map_err(configuration)?)
}

/// The content of a file of `konkordia pedestal`, which need not have been written. `files` names it in messages.
///
/// # Errors
/// It is of another detector, too old, or lacks pedestals or gains.
pub fn of_file(config: &Config, files: &CalibrationFiles, mut file: CalibrationFile) -> Result<Calibration, Failure> {
    let path = &files.pedestal[0];
    let first = if files.high_gain { GainStage::Hg0 } else { GainStage::G0 };
    check_detector(config, &file, path)?;
    check_age(files, &file, first, path)?;
    let hash_of_file = file.hash();
    let taken_s = oldest(&file, first).map(|(_, seconds)| seconds);
    let gains = own_gains(config, files, &mut file, first, path)?;
    let gain_files = if files.gain.is_empty() { path.display().to_string() } else { names(&files.gain) };
    judge_gains(&gains, &gain_files)?;
    let hash = if files.gain.is_empty() {
        hash_of_file
    } else {
        hash(&format!("{hash_of_file}\n"), gains.iter().map(Vec::as_slice), &[])
    };
    let (module_ids, pixels) = (std::mem::take(&mut file.module_ids), file.pixels());
    let mut lacking = Vec::new();
    let mut sources = Vec::new();
    for cell in file.cells() {
        let Some(base) = file.pedestals.remove(&(cell, first)) else {
            lacking.push(format!("{} of cell {cell}", first.name().to_uppercase()));
            continue;
        };
        judge_pedestals(&base.mean_adu, &path.display().to_string())?;
        let mut low = |stage: GainStage| match file.pedestals.remove(&(cell, stage)) {
            Some(planes) => (planes.mean_adu, Some(planes.mask)),
            None => {
                lacking.push(format!("{} of cell {cell}", stage.name().to_uppercase()));
                (vec![f32::NAN; pixels], Some(vec![NO_DATA; pixels]))
            }
        };
        let (g1, mask1) = low(GainStage::G1);
        let (g2, mask2) = low(GainStage::G2);
        sources.push(Source {
            cell: Some(cell),
            pedestals: [base.mean_adu, g1, g2],
            rms_g0: Some(base.rms_adu),
            reasons: [Some(base.mask), mask1, mask2],
        });
    }
    if sources.is_empty() {
        return Err(no_pedestals(path, &file, first));
    }
    let mut calibration = Calibration::new(sources, gains, files.high_gain, hash);
    (calibration.module_ids, calibration.taken_s) = (module_ids, taken_s);
    calibration.report = own_report(&calibration, &lacking);
    Ok(calibration)
}

fn own_report(calibration: &Calibration, lacking: &[String]) -> String {
    let cells: Vec<String> = calibration.cells.iter().filter_map(|c| Some(c.cell?.to_string())).collect();
    let mut report = format!("{}; storage cell {}", masked_words(calibration), cells.join(", "));
    if !lacking.is_empty() {
        report += &format!(
            "; there are no pedestals for {}: pixels that switch to a stage without pedestals are masked",
            lacking.join(", ")
        );
    }
    report
}

/// For example "g0 of cell 0, g1 of cell 0".
fn contents(file: &CalibrationFile) -> String {
    let list: Vec<String> = file.pedestals.keys().map(|(cell, stage)| format!("{} of cell {cell}", stage.name())).collect();
    if list.is_empty() { "no pedestals".into() } else { list.join(", ") }
}

fn own_gains(
    config: &Config,
    files: &CalibrationFiles,
    file: &mut CalibrationFile,
    first: GainStage,
    path: &Path,
) -> Result<[Vec<f32>; 3], Failure> {
    if !files.gain.is_empty() {
        return gains_of_run(config.modules as usize, files);
    }
    let mut take = |stage: GainStage| file.gains[stage.index()].take().ok_or_else(|| no_gains(path, stage));
    Ok([take(first)?, take(GainStage::G1)?, take(GainStage::G2)?])
}

fn no_gains(path: &Path, stage: GainStage) -> Failure {
    let what = format!("the calibration {} has no gains of {}", path.display(), stage.name().to_uppercase());
    let why = "gains do not come from dark frames, but for example from the `.bin` files of PSI";
    let fix = format!(
        "add calibration.gain = ..., or add gains to the file: konkordia pedestal --gain FILES --into {}",
        path.display()
    );
    Failure::new(Exit::Configuration, what, why, fix)
}

fn no_pedestals(path: &Path, file: &CalibrationFile, first: GainStage) -> Failure {
    let what = format!("the calibration {} has no pedestals of {}", path.display(), first.name().to_uppercase());
    let fix = format!("add them: konkordia pedestal --stage {} --into {} ...", first.name(), path.display());
    Failure::new(Exit::Configuration, what, format!("it has {}", contents(file)), fix)
}

/// Why a run does not take a file of `konkordia pedestal`, as far as that is seen without its planes.
pub(super) fn refusal(config: &Config, files: &CalibrationFiles, file: &CalibrationFile, first: GainStage) -> Option<Failure> {
    let path = &files.pedestal[0];
    let check = || {
        check_detector(config, file, path)?;
        check_age(files, file, first, path)?;
        if !file.pedestals.keys().any(|key| key.1 == first) {
            return Err(no_pedestals(path, file, first));
        }
        let lacks = |stage: &GainStage| files.gain.is_empty() && file.gains[stage.index()].is_none();
        [first, GainStage::G1, GainStage::G2].into_iter().find(lacks).map_or(Ok(()), |stage| Err(no_gains(path, stage)))
    };
    check().err()
}

/// When the oldest pedestals of this stage were taken, as text and in seconds since 1970; `None` if one of them does
/// not say.
pub(super) fn oldest(file: &CalibrationFile, stage: GainStage) -> Option<(String, u64)> {
    let of_stage = file.pedestals.iter().filter(|(key, _)| key.1 == stage);
    let taken: Option<Vec<_>> =
        of_stage.map(|(_, planes)| Some((planes.taken.clone(), moment::unix_s(&planes.taken)?))).collect();
    taken?.into_iter().min_by_key(|(_, seconds)| *seconds)
}

/// Compares module count and serial number. Module ids are compared when packets arrive (see `guard`).
pub(super) fn check_detector(config: &Config, file: &CalibrationFile, path: &Path) -> Result<(), Failure> {
    let what = format!("the calibration {} is of another detector", path.display());
    if file.modules != config.modules as usize {
        let why = format!("it has {} module(s), the configuration {}", file.modules, config.modules);
        return Err(Failure::new(
            Exit::Configuration,
            what,
            why,
            "correct [detector] modules, or give the calibration of this detector",
        ));
    }
    match &config.metadata.detector_serial {
        Some(serial) if !file.detector_serial.is_empty() && *serial != file.detector_serial => {
            let why = format!("it is of serial number \"{}\", the configuration says \"{serial}\"", file.detector_serial);
            let fix = "give the calibration of this detector, or correct [detector] serial_number";
            Err(Failure::new(Exit::Configuration, what, why, fix))
        }
        _ => Ok(()),
    }
}

/// The pedestals of the first stage drift fastest, so the limit is for them.
fn check_age(files: &CalibrationFiles, file: &CalibrationFile, first: GainStage, path: &Path) -> Result<(), Failure> {
    let Some(limit) = files.max_age_hours else { return Ok(()) };
    let name = first.name();
    let now = moment::unix_s(files.data_time.as_deref().unwrap_or(&clock::now())).unwrap_or(0);
    let before = if files.data_time.is_some() { "before the data" } else { "ago" };
    for (cell, planes) in file.pedestals.iter().filter(|(key, _)| key.1 == first).map(|(key, planes)| (key.0, planes)) {
        let fix = format!(
            "take new darks: konkordia pedestal CONFIG.toml --stage {name} --into {}; or raise calibration.max_age_hours",
            path.display()
        );
        let Some(taken) = moment::unix_s(&planes.taken) else {
            let what = format!("the age of the calibration {} is not known", path.display());
            let why = format!(
                "it does not say when {name} of cell {cell} was taken, and calibration.max_age_hours = {limit} limits its age"
            );
            return Err(Failure::new(Exit::Configuration, what, why, fix));
        };
        let hours = now.saturating_sub(taken) as f64 / 3600.0;
        if hours > limit {
            let what = format!("the calibration {} is too old", path.display());
            let why = format!(
                "{name} of cell {cell} was taken {hours:.1} hours {before} ({}); calibration.max_age_hours = {limit}",
                planes.taken
            );
            return Err(Failure::new(Exit::Configuration, what, why, fix));
        }
    }
    Ok(())
}

/// Refuses planes that cannot be gains of a JUNGFRAU.
pub fn judge_gains(gains: &[Vec<f32>; 3], paths: &str) -> Result<(), Failure> {
    let fix = "check that the files are in the order G0, G1, G2, and that pedestal and gain are not exchanged";
    for (module, start) in (0..gains[0].len()).step_by(MODULE_PIXELS).enumerate() {
        let range = start..start + MODULE_PIXELS;
        for (stage, (low, high)) in GAIN_MEDIANS.into_iter().enumerate() {
            let sign = if stage == 0 { 1.0 } else { -1.0 };
            // Every 16th pixel is enough to distinguish gains from other planes.
            let typical = median(gains[stage][range.clone()].iter().copied().filter(|v| *v != 0.0), 16);
            if !typical.is_some_and(|m| (low..high).contains(&(m * sign))) {
                let found = typical.map_or("no usable value".into(), |m| format!("a median of {m:.4} ADU/keV"));
                let why =
                    format!("G{stage} of module {module} has {found}; a JUNGFRAU has {} to {} there", low * sign, high * sign);
                return Err(Failure::new(Exit::Configuration, format!("these are not gains of a JUNGFRAU: {paths}"), why, fix));
            }
        }
        let bad = gains[0][range].iter().filter(|v| !usable_gain(GainStage::G0, **v)).count();
        too_many(bad, "gain", module, paths)?;
    }
    Ok(())
}

/// Refuses pedestals if most pixels of a module are not usable.
pub fn judge_pedestals(base: &[f32], paths: &str) -> Result<(), Failure> {
    for (module, pedestals) in base.chunks_exact(MODULE_PIXELS).enumerate() {
        too_many(pedestals.iter().filter(|v| !usable_pedestal(**v)).count(), "pedestal", module, paths)?;
    }
    Ok(())
}

fn too_many(bad: usize, what: &str, module: usize, paths: &str) -> Result<(), Failure> {
    if bad <= MODULE_PIXELS / 2 {
        return Ok(());
    }
    let why = format!(
        "{} of {} pixels of module {module} have no usable G0 {what}",
        text::count(bad as u64),
        text::count(MODULE_PIXELS as u64)
    );
    let fix = "give the files of this module and this gain mode, taken with the same settings";
    Err(Failure::new(Exit::Configuration, format!("this is not a calibration of this module: {paths}"), why, fix))
}

/// SHA-256 over planes as little-endian 32-bit values, after some text.
fn hash<'a>(text: &str, planes: impl IntoIterator<Item = &'a [f32]>, masks: &[u32]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(text);
    let mut bytes = Vec::with_capacity(4 * MODULE_PIXELS);
    for plane in planes {
        bytes.clear();
        bytes.extend(plane.iter().flat_map(|v| v.to_le_bytes()));
        hasher.update(&bytes);
    }
    bytes.clear();
    bytes.extend(masks.iter().flat_map(|v| v.to_le_bytes()));
    hasher.update(&bytes);
    let hex: String = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}
