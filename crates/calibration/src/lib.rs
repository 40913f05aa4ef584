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

mod calibration;
pub mod compare;
pub mod dark;
pub mod guard;
pub mod in_use;
pub mod levels;
pub mod load;
pub mod planes;
pub mod reasons;

use calibration::arrange;
pub use calibration::{Calibration, CellPlanes};
use konkordia_config::model::Config;
use konkordia_core::failure::Failure;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::plan::Recipe;
use konkordia_kernels::constants::PixelConstants;
use levels::Levels;
pub use load::load;
use reasons::{NXMX_GAP, NXMX_USER};

/// The calibration of a run, in the order of the image pixels, for the conversion and for the file.
pub struct Loaded {
    /// For the engine.
    pub constants: PixelConstants,
    /// For the file, bits of the NXmx pixel mask: bit 0 gap, bit 1 dead, bit 4 noisy, bit 8 marked by the source.
    pub mask: Vec<u32>,
    /// Why the calibration masks a pixel ([`reasons::REASONS`]); empty without one.
    pub reasons: Vec<u8>,
    /// Hash of the calibration; empty without one.
    pub hash: String,
    /// When the oldest pedestals of the first stage were taken, seconds since 1970; `None` if that is not known.
    pub taken_s: Option<u64>,
    /// Summary for people; empty without calibration.
    pub report: String,
    /// Module ids that the packets must have, by module; empty if the calibration has none.
    pub module_ids: Vec<Option<u16>>,
    /// Whether the constants of the first stage are those of HG0; `None` without constants.
    pub high_gain: Option<bool>,
    /// Noise and range in units of the file, if words are converted.
    pub levels: Option<Levels>,
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
    of_calibration(config, &load(config, files)?)
}

/// The form that a run of `config` needs of its calibration.
///
/// # Errors
/// The calibration does not fit the pixels that the configuration asks for.
pub fn of_calibration(config: &Config, calibration: &Calibration) -> Result<Loaded, Failure> {
    let geometry = &config.geometry;
    let (mut report, mut levels) = (calibration.report.clone(), None);
    let constants = match config.recipe {
        Recipe::JungfrauPhotons => {
            let step = config.options.step;
            let step_kev = step.kev(config.metadata.energy_kev.unwrap_or(1.0)) as f32;
            let found = Levels::new(calibration, step_kev);
            if let Some(note) = found.check(step, config.pixel)? {
                report = format!("{report}\n{note}");
            }
            levels = Some(found);
            let mut constants = calibration.arrange(geometry, step_kev);
            let gates = levels::gates(calibration, config)?;
            constants.gate_adu = gates.iter().map(|gate| arrange(geometry, gate, f32::NAN)).collect();
            PixelConstants::Jungfrau(constants)
        }
        _ => PixelConstants::None,
    };
    Ok(Loaded {
        high_gain: matches!(constants, PixelConstants::Jungfrau(_)).then_some(calibration.high_gain),
        constants,
        mask: mask(geometry, &calibration.mask),
        reasons: arrange(geometry, &calibration.reasons, 0),
        hash: calibration.hash.clone(),
        taken_s: calibration.taken_s,
        report,
        module_ids: calibration.module_ids.clone(),
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
    Loaded {
        constants,
        mask,
        reasons: Vec::new(),
        hash: String::new(),
        taken_s: None,
        report: String::new(),
        module_ids: Vec::new(),
        high_gain: None,
        levels: None,
    }
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

#[cfg(test)]
mod tests;
