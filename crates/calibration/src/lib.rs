//! The calibration of a JUNGFRAU: pedestals and gains of every pixel with their masks, loaded for a run or made from
//! dark frames. It never receives a frame or prints a text; whoever calls it does.
//! Read [`for_config`] first, then [`dark::make`].
//!
//! `[calibration] kind` says where a calibration comes from: float32 planes ("files"), a file of `konkordia pedestal`
//! ("konkordia"), or the pair of files that jungfrau_utils uses ("jungfrau_utils"). Each kind becomes a [`Calibration`]
//! in module order.
//!
//! ```no_run
//! let config = konkordia_config::load("run.toml".as_ref())?;
//! let loaded = konkordia_calibration::for_config(&config)?;
//! println!("{} masked pixels", loaded.mask.iter().filter(|bits| **bits != 0).count());
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod dark;
pub mod guard;
pub mod levels;
pub mod load;
pub mod planes;
pub mod reasons;

use konkordia_config::model::Config;
use konkordia_core::failure::Failure;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::plan::Recipe;
use konkordia_kernels::constants::{CELLS, CellConstants, ConstantPlanes, PixelConstants};
use konkordia_sinks::hdf5::calibration::{GainStage, MODULE_PIXELS};
use levels::Levels;
pub use load::load;
use planes::Stages;
use reasons::{DEAD, NO_GAIN, NXMX_GAP, NXMX_USER, nxmx, usable_gain, usable_pedestal};
use sha2::{Digest, Sha256};

/// The calibration of a run, in the order of the image pixels, for the conversion and for the file.
pub struct Loaded {
    /// For the engine.
    pub constants: PixelConstants,
    /// For the file, bits of the NXmx pixel mask: bit 0 gap, bit 1 dead, bit 4 noisy, bit 8 marked by the source.
    pub mask: Vec<u32>,
    /// Hash of the calibration; empty without one.
    pub hash: String,
    /// Summary for people; empty without calibration.
    pub report: String,
    /// Module ids that the packets must have, by module; empty if the calibration has none.
    pub module_ids: Vec<Option<u16>>,
    /// Whether the constants of the first stage are those of HG0; `None` without constants.
    pub high_gain: Option<bool>,
    /// Noise and range in units of the file, if words are converted.
    pub levels: Option<Levels>,
}

/// Pedestals of one storage cell, or of all cells. Each plane has modules x 512 rows and 1024 columns, modules one
/// below the other (tile order).
pub struct CellPlanes {
    /// The storage cell (DAQ info bits 8 to 11); `None` = these planes are for all cells.
    pub cell: Option<u8>,
    /// Pedestals in ADU of G0 (HG0 with `high_gain`), G1 and G2, the stages of words with the gain bits 00, 01 and 11.
    /// NaN where there is none.
    pub pedestals: [Vec<f32>; 3],
    /// RMS in ADU of G0 (HG0); `None` if the source has none, NaN where it is not known.
    pub rms_g0: Option<Vec<f32>>,
    /// For each pixel, bit s is set if stage s is not usable. If the first stage is not, all three bits are set.
    pub unusable: Vec<u8>,
}

/// A calibration in module order, with every pixel judged.
pub struct Calibration {
    /// At least one entry. Several entries are in ascending order of their cells, and none of them is for all cells.
    pub cells: Vec<CellPlanes>,
    /// Gains in ADU/keV of the three stages: G0 positive, G1 and G2 negative.
    pub gains: [Vec<f32>; 3],
    /// Bits of the NXmx pixel mask: a pixel is masked if its first stage is bad in any of the cells.
    pub mask: Vec<u32>,
    /// "sha256:" and 64 hex digits, over pedestals, gains and masks. The RMS is included only for files of `konkordia
    /// pedestal`.
    pub hash: String,
    /// Summary for people.
    pub report: String,
    /// Module ids by module; empty if the source has none.
    pub module_ids: Vec<Option<u16>>,
}

/// Planes as read from a source, before they are judged.
struct Source {
    cell: Option<u8>,
    pedestals: [Vec<f32>; 3],
    rms_g0: Option<Vec<f32>>,
    /// Reason bits of each stage.
    reasons: [Option<Vec<u32>>; 3],
}

impl Calibration {
    /// Output units per ADU of the three stages, for the entry `cells[cell]`. `step_kev` is the energy of one output
    /// unit (photons: the photon energy). NaN where a stage is not usable.
    ///
    /// # Panics
    /// When there is no such entry.
    pub fn factors(&self, cell: usize, step_kev: f32) -> [Vec<f32>; 3] {
        let unusable = &self.cells[cell].unusable;
        [0, 1, 2].map(|stage| {
            let of = |(gain, bad): (&f32, &u8)| if bad >> stage & 1 == 0 { 1.0 / (gain * step_kev) } else { f32::NAN };
            self.gains[stage].iter().zip(unusable).map(of).collect()
        })
    }

    /// Combines planes and gains, and judges every pixel.
    fn new(sources: Vec<Source>, gains: [Vec<f32>; 3], high_gain: bool, hash: String) -> Self {
        let stages = [if high_gain { GainStage::Hg0 } else { GainStage::G0 }, GainStage::G1, GainStage::G2];
        let mut mask = vec![0; gains[0].len()];
        let judge = |source: Source| {
            let mut unusable = vec![0u8; mask.len()];
            for (stage, gain_stage) in stages.into_iter().enumerate() {
                for (pixel, bad) in unusable.iter_mut().enumerate() {
                    // Gains are judged anew: when the file was made, it may have had other gains or none.
                    let mut reasons = source.reasons[stage].as_ref().map_or(0, |r| r[pixel]) & !NO_GAIN;
                    if reasons == 0 && !usable_pedestal(source.pedestals[stage][pixel]) {
                        reasons = DEAD;
                    }
                    if !usable_gain(gain_stage, gains[stage][pixel]) {
                        reasons |= NO_GAIN;
                    }
                    if reasons != 0 {
                        *bad |= if stage == 0 { 7 } else { 1 << stage };
                    }
                    if stage == 0 {
                        mask[pixel] |= nxmx(reasons);
                    }
                }
            }
            CellPlanes { cell: source.cell, pedestals: source.pedestals, rms_g0: source.rms_g0, unusable }
        };
        let cells = sources.into_iter().map(judge).collect();
        Self { cells, gains, mask, hash, report: String::new(), module_ids: Vec::new() }
    }

    /// Number of pixels that are not masked but not usable in a stage.
    fn unusable_in(&self, stage: u8) -> usize {
        let bad = |p: usize| self.mask[p] == 0 && self.cells.iter().any(|c| c.unusable[p] >> stage & 1 == 1);
        (0..self.mask.len()).filter(|p| bad(*p)).count()
    }

    /// The form for the engine: image order, one set of constants per entry of `cells`.
    fn arrange(&self, geometry: &ImageGeometry, step_kev: f32) -> CellConstants {
        let sets = (0..self.cells.len()).map(|n| ConstantPlanes {
            pedestal: [0, 1, 2].map(|stage| arrange(geometry, &self.cells[n].pedestals[stage], f32::NAN)),
            factor: self.factors(n, step_kev).map(|plane| arrange(geometry, &plane, f32::NAN)),
        });
        let set_of = |cell: usize| self.cells.iter().position(|c| c.cell.is_none_or(|c| usize::from(c) == cell));
        CellConstants {
            sets: sets.collect(),
            set_of_cell: Box::new(std::array::from_fn::<_, CELLS, _>(set_of)),
            gate_adu: Vec::new(),
        }
    }
}

impl Loaded {
    /// Expected values of the packet headers.
    pub fn expected(&self) -> guard::Expected {
        let cells = match &self.constants {
            PixelConstants::Jungfrau(calibration) => {
                calibration.set_of_cell.iter().enumerate().fold(0, |cells, (cell, set)| cells | u16::from(set.is_some()) << cell)
            }
            _ => u16::MAX,
        };
        guard::Expected { ids: self.module_ids.clone(), cells, high_gain: self.high_gain }
    }
}

/// Loads the calibration that `config` names, if it names one.
pub fn for_config(config: &Config) -> Result<Loaded, Failure> {
    let Some(files) = &config.calibration else { return Ok(without(config)) };
    let calibration = load(config, files)?;
    let geometry = &config.geometry;
    let (mut report, mut levels) = (calibration.report.clone(), None);
    let constants = match config.recipe {
        Recipe::JungfrauPhotons => {
            let step = config.options.step;
            let step_kev = step.kev(config.metadata.energy_kev.unwrap_or(1.0)) as f32;
            let found = Levels::new(&calibration, step_kev);
            if let Some(note) = found.check(step, config.pixel)? {
                report = format!("{report}\n{note}");
            }
            levels = Some(found);
            let mut constants = calibration.arrange(geometry, step_kev);
            let gates = levels::gates(&calibration, config)?;
            constants.gate_adu = gates.iter().map(|gate| arrange(geometry, gate, f32::NAN)).collect();
            PixelConstants::Jungfrau(constants)
        }
        _ => PixelConstants::None,
    };
    Ok(Loaded {
        high_gain: matches!(constants, PixelConstants::Jungfrau(_)).then_some(files.high_gain),
        constants,
        mask: mask(geometry, &calibration.mask),
        hash: calibration.hash,
        report,
        module_ids: calibration.module_ids,
        levels,
    })
}

/// Without calibration: gaps and double pixels may be masked, nothing else.
fn without(config: &Config) -> Loaded {
    let geometry = &config.geometry;
    let mask = mask(geometry, &vec![0; tile_pixels(geometry)]);
    let constants = match config.recipe {
        Recipe::Counts => PixelConstants::Mask(mask.iter().map(|m| u8::from(*m != 0)).collect()),
        _ => PixelConstants::None,
    };
    Loaded { constants, mask, hash: String::new(), report: String::new(), module_ids: Vec::new(), high_gain: None, levels: None }
}

/// The mask of the file: gaps, bad pixels of the calibration, and double pixels that the configuration masks.
fn mask(geometry: &ImageGeometry, tiles: &[u32]) -> Vec<u32> {
    let mut mask = arrange(geometry, tiles, NXMX_GAP);
    geometry.for_each_masked_double(|pixel| mask[pixel] = NXMX_USER);
    mask
}

fn tile_pixels(geometry: &ImageGeometry) -> usize {
    geometry.placements().len() * geometry.format().whole().pixels() as usize
}

/// Arranges planes in module order as the image. Whatever the number of interfaces, tile t is the t-th of equal parts
/// of all planes. With partial readout, only the rows that are read are used.
fn arrange<T: Copy>(geometry: &ImageGeometry, planes: &[T], gap: T) -> Vec<T> {
    let format = geometry.format();
    let whole = planes.chunks_exact(format.whole().pixels() as usize);
    let tiles: Vec<&[T]> = whole.enumerate().map(|(tile, plane)| &plane[format.pixels_read(tile)]).collect();
    geometry.arrange(&tiles, gap)
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

#[cfg(test)]
mod tests;
