//! Planes from files: float32 without a header, PSI gain `.bin`, and the HDF5 files of jungfrau_utils.

use super::reasons::MARKED;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::calibration::{MODULE_COLUMNS, MODULE_PIXELS, MODULE_ROWS};
use konkordia_sinks::hdf5::calibration_planes::{Planes, read_floats, read_mask};
use std::path::{Path, PathBuf};

/// Bytes of one plane of a module in float32.
pub const PLANE_BYTES: usize = MODULE_PIXELS * 4;
/// Possible numbers of planes in PSI `.bin` files and gain data sets: G0, G1, G2, then HG0, then HG1 and HG2.
const GAIN_PLANES: [usize; 3] = [3, 4, 6];

/// Planes by stage (G0, G1, G2 and perhaps HG0), each with the pixels of all modules.
#[derive(Clone, Debug)]
pub struct Stages {
    /// G0, G1, G2.
    pub low: [Vec<f32>; 3],
    /// HG0, if the files have it.
    pub high: Option<Vec<f32>>,
}

impl Stages {
    /// The three stages of a run: with `high_gain`, HG0 replaces G0.
    ///
    /// # Errors
    /// When HG0 is asked for and the files have none.
    pub fn of_run(self, high_gain: bool, what: &str, paths: &[PathBuf]) -> Result<[Vec<f32>; 3], Failure> {
        let [g0, g1, g2] = self.low;
        match (high_gain, self.high) {
            (false, _) => Ok([g0, g1, g2]),
            (true, Some(high)) => Ok([high, g1, g2]),
            (true, None) => Err(Failure::new(
                Exit::Configuration,
                format!("the {what} files have no plane of HG0: {}", names(paths)),
                "calibration.high_gain = true takes the fourth plane for words without gain bits",
                "give files with HG0, or remove high_gain",
            )),
        }
    }
}

/// The paths in one line.
pub fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// True if the file name has one of these extensions.
pub fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|e| extensions.iter().any(|x| e.eq_ignore_ascii_case(x)))
}

/// Reads a whole file of a calibration.
pub fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure { exit: Exit::Configuration, ..Failure::io("cannot read the calibration", path, &error) })
}

/// What a file of this size could hold, as a help if it is the wrong file.
fn guess(bytes: u64) -> String {
    let pixels: [(&str, u64); 3] = [
        ("modules of 512 x 1024", MODULE_PIXELS as u64),
        ("half modules of 256 x 1024", MODULE_PIXELS as u64 / 2),
        ("chips of 256 x 256", 65536),
    ];
    for (shape, pixels) in pixels {
        for (kind, width) in [("float32", 4), ("float64", 8), ("16-bit", 2)] {
            if bytes > 0 && bytes.is_multiple_of(pixels * width) {
                return format!(
                    "{} bytes would be {} plane(s) of {kind} values for {shape} pixels",
                    bytes,
                    bytes / (pixels * width)
                );
            }
        }
    }
    format!("{bytes} bytes are not a whole number of planes; does the file have a header, or was it cut short?")
}

/// float32 planes of `what`, `stages` for each module, from one or several files in the order in which they are given.
pub fn read_values(paths: &[PathBuf], modules: usize, stages: usize, what: &str) -> Result<Vec<f32>, Failure> {
    let expected = stages * modules * PLANE_BYTES;
    let mut values = Vec::with_capacity(expected / 4);
    for path in paths {
        let bytes = read_file(path)?;
        if bytes.is_empty() || bytes.len() % PLANE_BYTES != 0 {
            let what = format!("the {what} file {} has the wrong size", path.display());
            let why =
                format!("{}; a plane of one module is 512 x 1024 float32 values, {PLANE_BYTES} bytes", guess(bytes.len() as u64));
            let fix = "give files of whole planes (docs/configuration.md, Calibration files)";
            return Err(Failure::new(Exit::Configuration, what, why, fix));
        }
        values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    }
    if values.len() * 4 != expected {
        let why = format!(
            "{} planes in {} file(s), but {stages} stages x {modules} module(s) are {} planes",
            values.len() / MODULE_PIXELS,
            paths.len(),
            stages * modules
        );
        let fix = "give G0 of all modules, then G1, then G2, in one or several files, or correct [detector] modules";
        return Err(Failure::new(
            Exit::Configuration,
            format!("the {what} files do not fit the detector: {}", names(paths)),
            why,
            fix,
        ));
    }
    Ok(values)
}

/// float32 planes of `what` in one or several files: G0 of all modules, then G1, then G2, then HG0 where `stages` is 4.
pub fn read_plain(paths: &[PathBuf], modules: usize, stages: usize, what: &str) -> Result<Stages, Failure> {
    let values = read_values(paths, modules, stages, what)?;
    let stage = modules * MODULE_PIXELS;
    let of = |g: usize| values[g * stage..(g + 1) * stage].to_vec();
    Ok(Stages { low: [of(0), of(1), of(2)], high: (stages > 3).then(|| of(3)) })
}

/// One float32 plane for all modules, in one or several files.
pub fn read_single(paths: &[PathBuf], modules: usize, what: &str) -> Result<Vec<f32>, Failure> {
    let mut values = Vec::with_capacity(modules * MODULE_PIXELS);
    for path in paths {
        let bytes = read_file(path)?;
        if bytes.len() % 4 != 0 {
            let what = format!("the {what} file {} has the wrong size", path.display());
            let why = format!("{} bytes are not a whole number of float32 values", bytes.len());
            return Err(Failure::new(Exit::Configuration, what, why, "give whole planes of float32; was the file cut short?"));
        }
        values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        if values.len() > modules * MODULE_PIXELS {
            break;
        }
    }
    if values.len() == modules * MODULE_PIXELS {
        return Ok(values);
    }
    let what = format!("the {what} files do not fit the detector: {}", names(paths));
    let why = format!("a plane of {modules} module(s) has {} bytes of float32", modules * PLANE_BYTES);
    Err(Failure::new(Exit::Configuration, what, why, "give one plane of each module, or correct --modules"))
}

/// Gains from files of any format: PSI `.bin` (one per module), HDF5 with `/gains`, or float32 planes.
pub fn read_gains(paths: &[PathBuf], modules: usize, high_gain: bool) -> Result<Stages, Failure> {
    if paths.iter().all(|p| has_extension(p, &["bin"])) {
        read_psi(paths, modules)
    } else if paths.iter().all(|p| has_extension(p, &["h5", "hdf5"])) {
        read_gain_sets(paths, modules)
    } else {
        read_plain(paths, modules, if high_gain { 4 } else { 3 }, "gain")
    }
}

/// PSI gain files of float64, one per module.
fn read_psi(paths: &[PathBuf], modules: usize) -> Result<Stages, Failure> {
    if paths.len() != modules {
        let why = format!("{} `.bin` file(s) for {modules} module(s)", paths.len());
        let fix = "give one PSI gain file per module, in module order";
        return Err(Failure::new(Exit::Configuration, "the gain files do not fit the detector", why, fix));
    }
    let mut gain = [const { Vec::new() }; 4];
    for path in paths {
        let bytes = read_file(path)?;
        let planes = bytes.len() / (2 * PLANE_BYTES);
        if bytes.len() % (2 * PLANE_BYTES) != 0 || !GAIN_PLANES.contains(&planes) {
            let sizes = GAIN_PLANES.map(|n| format!("{} ({n} planes)", n * 2 * PLANE_BYTES)).join(", ");
            let why = format!("{}; PSI gain files have {sizes} bytes of float64", guess(bytes.len() as u64));
            let what = format!("the gain file {} has the wrong size", path.display());
            let fix = "give a PSI gain file, or float32 planes under another extension than .bin";
            return Err(Failure::new(Exit::Configuration, what, why, fix));
        }
        for (stage, plane) in bytes.chunks_exact(2 * PLANE_BYTES).take(4).enumerate() {
            let value = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32;
            gain[stage].extend(plane.chunks_exact(8).map(value));
        }
    }
    let [g0, g1, g2, high] = gain;
    // HG0 counts only if the files of all modules have it.
    let high = (high.len() == g0.len()).then_some(high);
    Ok(Stages { low: [g0, g1, g2], high })
}

/// HDF5 files with `/gains`: one for all modules, or several with equally many modules each.
fn read_gain_sets(paths: &[PathBuf], modules: usize) -> Result<Stages, Failure> {
    let each = modules / paths.len().max(1);
    if each == 0 || each * paths.len() != modules {
        let why = format!("{} file(s) for {modules} module(s)", paths.len());
        let fix = "give one file for all modules, or one for each, in module order";
        return Err(Failure::new(Exit::Configuration, "the gain files do not fit the detector", why, fix));
    }
    let mut all = Stages { low: [const { Vec::new() }; 3], high: Some(Vec::new()) };
    for path in paths {
        let mut stages = read_stages(path, each, &GAIN_PLANES)?;
        all.low.iter_mut().zip(&mut stages.low).for_each(|(all, plane)| all.append(plane));
        all.high = all.high.zip(stages.high).map(|(all, high)| [all, high].concat());
    }
    Ok(all)
}

/// The data set `/gains` of one file. In files of jungfrau_utils it holds gains or pedestals.
fn read_stages(path: &Path, modules: usize, planes: &[usize]) -> Result<Stages, Failure> {
    let Planes { shape, values } = read_floats(path, "gains").map_err(configuration)?;
    let count = shape.first().copied().unwrap_or(0);
    if shape.len() != 3 || !planes.contains(&count) {
        return Err(wrong_shape(path, "gains", &shape, &format!("{planes:?} planes of {} x 1024", modules * MODULE_ROWS)));
    }
    let of = |n: usize| {
        let plane = &values[n * shape[1] * shape[2]..(n + 1) * shape[1] * shape[2]];
        in_module_order(plane, &shape[1..], modules).ok_or_else(|| {
            wrong_shape(path, "gains", &shape, &format!("planes of {} x 1024 for {modules} module(s)", modules * MODULE_ROWS))
        })
    };
    Ok(Stages { low: [of(0)?, of(1)?, of(2)?], high: if count > 3 { Some(of(3)?) } else { None } })
}

/// Pedestals of jungfrau_utils with their mask as reason bits (zero where there is none).
pub fn read_pedestals(path: &Path, modules: usize) -> Result<(Stages, Vec<u32>), Failure> {
    let stages = read_stages(path, modules, &[3, 4])?;
    let pixels = modules * MODULE_PIXELS;
    let mask = match read_mask(path, "pixel_mask").map_err(configuration)? {
        None => vec![0; pixels],
        Some(Planes { shape, values }) => in_module_order(&values, &shape, modules)
            .ok_or_else(|| wrong_shape(path, "pixel_mask", &shape, &format!("{} x 1024", modules * MODULE_ROWS)))?
            .into_iter()
            .map(|bad| if bad == 0 { 0 } else { MARKED })
            .collect(),
    };
    Ok((stages, mask))
}

/// Puts modules one below the other, as everywhere in this program. Some detectors have them side by side.
fn in_module_order<T: Copy>(plane: &[T], shape: &[usize], modules: usize) -> Option<Vec<T>> {
    if shape == [modules * MODULE_ROWS, MODULE_COLUMNS] {
        return Some(plane.to_vec());
    }
    if shape != [MODULE_ROWS, modules * MODULE_COLUMNS] {
        return None;
    }
    let row = |module: usize, row: usize| {
        let at = row * shape[1] + module * MODULE_COLUMNS;
        &plane[at..at + MODULE_COLUMNS]
    };
    Some((0..modules).flat_map(|m| (0..MODULE_ROWS).map(move |r| (m, r))).flat_map(|(m, r)| row(m, r)).copied().collect())
}

fn wrong_shape(path: &Path, name: &str, shape: &[usize], expected: &str) -> Failure {
    let what = format!("the calibration {} does not fit the detector", path.display());
    let why = format!("'{name}' has the shape {shape:?}; expected: {expected}");
    Failure::new(Exit::Configuration, what, why, "give the files of this detector, or correct [detector] modules")
}

/// Whatever is wrong with a calibration file, it is an error of the configuration.
pub fn configuration(error: konkordia_sinks::hdf5::Error) -> Failure {
    Failure { exit: Exit::Configuration, ..error.into() }
}
