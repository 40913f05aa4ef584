//! What follows from the calibration for the values in the file: noise, largest value of each stage, gates of dark
//! words.

use super::calibration::{Calibration, CellPlanes};
use super::reasons::ADC_MAX;
use konkordia_config::Config;
use konkordia_config::processing::Step;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::CommonMode;

/// Medians over the usable pixels of the first cell, in units of the pixels in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Levels {
    /// RMS of the dark signal in G0, if it is known.
    pub noise: Option<f64>,
    /// Value of a pixel at the end of the range of G0, G1 and G2.
    pub largest: [f64; 3],
}

fn median(values: impl Iterator<Item = f32>) -> Option<f64> {
    // Every 16th pixel is enough for the median.
    let mut sample: Vec<f32> = values.step_by(16).filter(|v| v.is_finite()).collect();
    if sample.is_empty() {
        return None;
    }
    let middle = sample.len() / 2;
    Some(f64::from(*sample.select_nth_unstable_by(middle, f32::total_cmp).1))
}

impl Levels {
    /// The levels of a calibration; `step_kev` is the energy of one output unit.
    pub fn new(calibration: &Calibration, step_kev: f32) -> Self {
        let (cells, factors) = (&calibration.cells, calibration.factors(0, step_kev));
        let noise =
            cells[0].rms_g0.as_ref().and_then(|rms| median(rms.iter().zip(&factors[0]).map(|(rms, factor)| rms * factor)));
        // In G1 and G2 the ADC value falls with the signal.
        let ends = [ADC_MAX, 0.0, 0.0];
        let largest = [0, 1, 2].map(|stage| {
            let of = |(pedestal, factor): (&f32, &f32)| (ends[stage] - pedestal) * factor;
            median(cells[0].pedestals[stage].iter().zip(&factors[stage]).map(of)).unwrap_or(0.0)
        });
        Self { noise, largest }
    }

    /// The offset that lifts nearly all noise above zero: 6 times the noise.
    pub fn offset_against_negatives(&self) -> Option<i32> {
        self.noise.map(|noise| (6.0 * noise).ceil().clamp(1.0, 1e6) as i32)
    }

    /// Refuses a rounding with which not even G0 fits into the type. Returns a note if G1 or G2 does not fit.
    pub fn check(&self, step: Step, pixel: PixelType) -> Result<Option<String>, Failure> {
        let most = pixel.special().valid_max;
        if self.largest[0] > most {
            let what = format!("the rounding of {} {} is too fine for {pixel} pixels", step.size(), step.unit());
            let why = format!("G0 alone reaches {:.0} units, but the type holds at most {most:.0}", self.largest[0]);
            return Err(Failure::new(
                Exit::Configuration,
                what,
                why,
                "choose a coarser rounding, or [processing] dtype = \"int32\"",
            ));
        }
        let (largest, stage) = if self.largest[2] > self.largest[1] { (self.largest[2], "G2") } else { (self.largest[1], "G1") };
        Ok((largest > most).then(|| {
            format!(
                "pixels above {:.0} {} are written as saturated: larger values do not fit into {pixel}, and {stage} reaches {:.0}; all fit with dtype = \"int32\"",
                most * step.size(),
                step.unit(),
                largest * step.size()
            )
        }))
    }
}

/// The gates of the pixels in ADU and in module order, for each cell; empty if neither tracking nor common mode needs
/// them.
pub fn gates(calibration: &Calibration, config: &Config) -> Result<Vec<Vec<f32>>, Failure> {
    let processing = &config.options.processing;
    if processing.tracking.is_none() && processing.common_mode == CommonMode::None {
        return Ok(Vec::new());
    }
    let unusable = |cell: &CellPlanes, pixel: usize| cell.unusable[pixel] & 1 == 1;
    let of_cell = |cell: &CellPlanes| {
        let rms = cell.rms_g0.as_ref()?;
        let gate = |pixel: usize| if unusable(cell, pixel) { f32::NAN } else { rms[pixel] * config.options.gate_rms as f32 };
        Some((0..rms.len()).map(gate).collect())
    };
    let gates: Option<Vec<Vec<f32>>> = calibration.cells.iter().map(of_cell).collect();
    gates.ok_or_else(|| {
        let why = "the RMS of each pixel decides which of its words are dark, and this calibration has no RMS";
        let fix = "give a calibration of `konkordia pedestal` (kind = \"konkordia\"), or [calibration] pedestal_rms = ...";
        Failure::new(Exit::Configuration, "tracking and common mode need the noise of the pixels", why, fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounding_that_overflows_the_type_is_refused() {
        let levels = Levels { noise: Some(0.07), largest: [20.0, 1500.0, 11_000.0] };
        assert_eq!(levels.check(Step::Photons(1.0), PixelType::Int16).unwrap(), None);
        assert_eq!(levels.offset_against_negatives(), Some(1));
        let fine = Levels { noise: Some(0.6), largest: levels.largest.map(|l| l * 8.0) };
        let note = fine.check(Step::Photons(0.125), PixelType::Int16).unwrap().unwrap();
        assert!(note.contains("pixels above 4096 photon") && note.contains("int32"), "{note}");
        assert_eq!(fine.check(Step::Photons(0.125), PixelType::Int32).unwrap(), None);
        let absurd = Levels { noise: None, largest: levels.largest.map(|l| l * 12_400.0) };
        let failure = absurd.check(Step::Kev(0.001), PixelType::Int16).unwrap_err();
        assert_eq!(failure.exit, Exit::Configuration);
    }
}
