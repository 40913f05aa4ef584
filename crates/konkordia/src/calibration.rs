//! Loads and judges the calibration of a JUNGFRAU: pedestals and gains of three stages for every pixel.
//!
//! Files hold planes of 512 x 1024 values per module, row by row, little-endian, without headers. Given one after the other they are: G0 of
//! all modules, G1 of all modules, G2 of all modules (float32), or, for gains in PSI `.bin` files, one file per module with 3, 4 or 6 planes
//! of float64, of which the first three count (protocols 6.6).

use crate::config::model::{CalibrationFiles, Config};
use crate::failure::{Exit, Failure};
use crate::say;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::plan::Recipe;
use konkordia_engine::run::{Calibration, ConstantPlanes, PixelConstants};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Pixels of a module.
const MODULE_PIXELS: usize = 512 * 1024;
/// Bytes of one plane of a module in float32.
const PLANE_BYTES: usize = MODULE_PIXELS * 4;
/// PSI `.bin` files have so many planes of float64.
const PSI_PLANES: [usize; 3] = [3, 4, 6];
/// Largest ADC value; as a pedestal it marks an unusable pixel, as does 0.
const ADC_MAX: f32 = 16383.0;
/// Plausible medians of |gain| in ADU/keV of G0, G1 and G2; typical are 41, 1.4 and 0.11 (protocols 1.4), high-gain G0 about 100.
const GAIN_MEDIANS: [(f32, f32); 3] = [(4.0, 500.0), (0.1, 20.0), (0.01, 2.0)];
/// Bits of the pixel mask (NXmx).
const MASK_GAP: u32 = 1;
const MASK_DEAD: u32 = 2;

/// Everything that conversion and the file need to know of the pixels.
pub struct Loaded {
    /// For the engine, in output order.
    pub constants: PixelConstants,
    /// For the file, in output order: bit 0 gap, bit 1 dead.
    pub mask: Vec<u32>,
    /// Of the calibration; empty without one.
    pub hash: String,
    /// What was found, for people; empty without calibration.
    pub report: String,
}

/// Loads the calibration that `config` names, or none.
pub fn for_config(config: &Config) -> Result<Loaded, Failure> {
    match &config.calibration {
        Some(files) => load(config, files),
        None => Ok(without(config)),
    }
}

/// Only gaps are masked.
fn without(config: &Config) -> Loaded {
    let geometry = &config.geometry;
    let mask = arrange(geometry, &vec![0; tile_pixels(geometry)], MASK_GAP);
    let constants = match config.recipe {
        Recipe::Counts => PixelConstants::Mask(mask.iter().map(|m| u8::from(*m != 0)).collect()),
        _ => PixelConstants::None,
    };
    Loaded { constants, mask, hash: String::new(), report: String::new() }
}

fn tile_pixels(geometry: &ImageGeometry) -> usize {
    geometry.placements().len() * geometry.format().pixels() as usize
}

/// Tile t of the streams is the t-th equal share of the planes of all modules, whatever the number of interfaces.
fn arrange<T: Copy>(geometry: &ImageGeometry, planes: &[T], gap: T) -> Vec<T> {
    let tiles: Vec<&[T]> = planes.chunks_exact(geometry.format().pixels() as usize).collect();
    geometry.arrange(&tiles, gap)
}

/// Reads, checks and arranges the files.
pub fn load(config: &Config, files: &CalibrationFiles) -> Result<Loaded, Failure> {
    let energy_kev = config.metadata.energy_kev.unwrap_or(1.0) as f32;
    let modules = config.modules as usize;
    let pedestal = read_planes(&files.pedestal, modules, "pedestal")?;
    let gain = if files.gain.iter().all(|p| has_extension(p, "bin")) {
        read_psi(&files.gain, modules)?
    } else {
        read_planes(&files.gain, modules, "gain")?
    };
    let mut planes = Planes { pedestal, gain };
    let hash = planes.hash();
    let counts = planes.judge(files)?;
    let (factor, dead) = planes.factors(energy_kev);
    let geometry = &config.geometry;
    let mask = arrange(geometry, &dead, MASK_GAP);
    let constants = match config.recipe {
        Recipe::JungfrauPhotons => PixelConstants::Jungfrau(Calibration::from(ConstantPlanes {
            pedestal: planes.pedestal.map(|plane| arrange(geometry, &plane, f32::NAN)),
            factor: factor.map(|plane| arrange(geometry, &plane, f32::NAN)),
        })),
        _ => PixelConstants::None,
    };
    Ok(Loaded { constants, mask, hash, report: counts })
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension))
}

/// Three stages, each with the pixels of all modules.
struct Planes {
    pedestal: [Vec<f32>; 3],
    gain: [Vec<f32>; 3],
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure { exit: Exit::Configuration, ..Failure::io("cannot read the calibration", path, &error) })
}

/// What so many bytes could be, to help with a wrong file.
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
    format!("{bytes} bytes are no whole number of planes; a header, or a file cut short?")
}

/// float32 planes, in one or several files.
fn read_planes(paths: &[PathBuf], modules: usize, what: &str) -> Result<[Vec<f32>; 3], Failure> {
    let expected = 3 * modules * PLANE_BYTES;
    let mut values = Vec::with_capacity(expected / 4);
    for path in paths {
        let bytes = read_file(path)?;
        if bytes.is_empty() || bytes.len() % PLANE_BYTES != 0 {
            let what = format!("the {what} file {} has the wrong size", path.display());
            let why =
                format!("{}; a plane of one module is 512 x 1024 float32 values, {PLANE_BYTES} bytes", guess(bytes.len() as u64));
            return Err(Failure::new(
                Exit::Configuration,
                what,
                why,
                "give files of whole planes (docs/configuration.md, Calibration files)",
            ));
        }
        values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    }
    if values.len() * 4 != expected {
        let why = format!(
            "{} planes in {} file(s), but 3 stages x {modules} module(s) are {} planes",
            values.len() / MODULE_PIXELS,
            paths.len(),
            3 * modules
        );
        let fix = "give G0 of all modules, then G1, then G2, in one or several files, or correct [detector] modules";
        let names = paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(Exit::Configuration, format!("the {what} files do not fit the detector: {names}"), why, fix));
    }
    let stage = modules * MODULE_PIXELS;
    Ok([0, 1, 2].map(|g| values[g * stage..(g + 1) * stage].to_vec()))
}

/// PSI gain files, one per module.
fn read_psi(paths: &[PathBuf], modules: usize) -> Result<[Vec<f32>; 3], Failure> {
    if paths.len() != modules {
        let why = format!("{} `.bin` file(s) for {modules} module(s)", paths.len());
        return Err(Failure::new(
            Exit::Configuration,
            "the gain files do not fit the detector",
            why,
            "give one PSI gain file per module, in module order",
        ));
    }
    let mut gain = [const { Vec::new() }; 3];
    for path in paths {
        let bytes = read_file(path)?;
        let planes = bytes.len() / (2 * PLANE_BYTES);
        if bytes.len() % (2 * PLANE_BYTES) != 0 || !PSI_PLANES.contains(&planes) {
            let sizes = PSI_PLANES.map(|n| format!("{} ({n} planes)", n * 2 * PLANE_BYTES)).join(", ");
            let why = format!("{}; PSI gain files have {sizes} bytes of float64", guess(bytes.len() as u64));
            let what = format!("the gain file {} has the wrong size", path.display());
            return Err(Failure::new(
                Exit::Configuration,
                what,
                why,
                "give a PSI gain file, or float32 planes under another extension than .bin",
            ));
        }
        for (stage, plane) in bytes.chunks_exact(2 * PLANE_BYTES).take(3).enumerate() {
            let value = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32;
            gain[stage].extend(plane.chunks_exact(8).map(value));
        }
    }
    Ok(gain)
}

fn usable_pedestal(value: f32) -> bool {
    value > 0.0 && value < ADC_MAX
}

/// G0 rises, G1 and G2 fall.
fn usable_gain(stage: usize, value: f32) -> bool {
    value.is_finite() && if stage == 0 { value > 0.0 } else { value < 0.0 }
}

fn median(values: impl Iterator<Item = f32>) -> Option<f32> {
    // Every 16th pixel is enough to tell a plane of gains from a plane of something else.
    let mut sample: Vec<f32> = values.step_by(16).filter(|v| v.is_finite()).collect();
    if sample.is_empty() {
        return None;
    }
    let middle = sample.len() / 2;
    Some(*sample.select_nth_unstable_by(middle, f32::total_cmp).1)
}

impl Planes {
    /// SHA-256 over pedestals G0, G1, G2 and gains G0, G1, G2 as little-endian float32.
    fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        let mut bytes = Vec::with_capacity(PLANE_BYTES);
        for plane in self.pedestal.iter().chain(&self.gain) {
            bytes.clear();
            bytes.extend(plane.iter().flat_map(|v| v.to_le_bytes()));
            hasher.update(&bytes);
        }
        let hex: String = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
        format!("sha256:{hex}")
    }

    /// Refuses what cannot be the calibration of this detector; otherwise counts what is unusable, for people.
    fn judge(&mut self, files: &CalibrationFiles) -> Result<String, Failure> {
        let name = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
        let refuse = |what: &str, paths: &[PathBuf], why: String, fix: &str| {
            Err(Failure::new(Exit::Configuration, format!("{what}: {}", name(paths)), why, fix))
        };
        let check_order = "check the order of the files: G0, G1, G2, and that pedestal and gain are not exchanged";
        for (module, start) in (0..self.gain[0].len()).step_by(MODULE_PIXELS).enumerate() {
            let range = start..start + MODULE_PIXELS;
            for (stage, (low, high)) in GAIN_MEDIANS.into_iter().enumerate() {
                let sign = if stage == 0 { 1.0 } else { -1.0 };
                let typical = median(self.gain[stage][range.clone()].iter().copied().filter(|v| *v != 0.0));
                let plausible = typical.is_some_and(|m| (low..high).contains(&(m * sign)));
                if !plausible {
                    let found = typical.map_or("no usable value".into(), |m| format!("a median of {m:.4} ADU/keV"));
                    let why = format!(
                        "G{stage} of module {module} has {found}; a JUNGFRAU has {} to {} there",
                        low * sign,
                        high * sign
                    );
                    return refuse("these are not gains of a JUNGFRAU", &files.gain, why, check_order);
                }
            }
            let bad_pedestals = self.pedestal[0][range.clone()].iter().filter(|v| !usable_pedestal(**v)).count();
            let bad_gains = self.gain[0][range.clone()].iter().filter(|v| !usable_gain(0, **v)).count();
            for (bad, what, paths) in [(bad_pedestals, "pedestal", &files.pedestal), (bad_gains, "gain", &files.gain)] {
                if bad > MODULE_PIXELS / 2 {
                    let why = format!(
                        "{} of {} pixels of module {module} have no usable G0 {what}",
                        say::count(bad as u64),
                        say::count(MODULE_PIXELS as u64)
                    );
                    let fix = "give the files of this module and this gain mode, taken with the same settings";
                    return refuse("this calibration belongs to another module or is none", paths, why, fix);
                }
            }
        }
        Ok(self.report())
    }

    fn report(&self) -> String {
        let pixels = 0..self.gain[0].len();
        let count = |f: &dyn Fn(usize) -> bool| say::count(pixels.clone().filter(|p| f(*p)).count() as u64);
        let nan = count(&|p| (0..3).any(|g| !self.gain[g][p].is_finite() || !self.pedestal[g][p].is_finite()));
        let zero = count(&|p| (0..3).any(|g| self.gain[g][p] == 0.0));
        let g0 = |p| usable_pedestal(self.pedestal[0][p]) && usable_gain(0, self.gain[0][p]);
        let dead = count(&|p| !g0(p));
        let stage = |g: usize| count(&|p| g0(p) && !(usable_pedestal(self.pedestal[g][p]) && usable_gain(g, self.gain[g][p])));
        format!(
            "calibration: {dead} pixels masked, of the others {} not usable in G1 and {} in G2; {nan} pixels with a value that is no number, {zero} with a gain of 0",
            stage(1),
            stage(2)
        )
    }

    /// Photons per ADU, NaN where a stage is not usable (all stages of a dead pixel), and the mask bits of the pixels.
    fn factors(&self, energy_kev: f32) -> ([Vec<f32>; 3], Vec<u32>) {
        let usable = |g: usize, p: usize| usable_pedestal(self.pedestal[g][p]) && usable_gain(g, self.gain[g][p]);
        let mask: Vec<u32> = (0..self.gain[0].len()).map(|p| if usable(0, p) { 0 } else { MASK_DEAD }).collect();
        let factor = |g: usize| {
            let of = |p: usize| if mask[p] == 0 && usable(g, p) { 1.0 / (self.gain[g][p] * energy_kev) } else { f32::NAN };
            (0..mask.len()).map(of).collect()
        };
        ([factor(0), factor(1), factor(2)], mask)
    }
}

#[cfg(test)]
#[path = "calibration_tests.rs"]
mod tests;
