//! Why a pixel is not usable: the mask bits of a calibration file, the thresholds that set them, and the bits of the
//! NXmx `pixel_mask` that they become in an image file.

use konkordia_sinks::hdf5::calibration::{GainStage, MODULE_PIXELS, StagePedestal};
use serde_json::{Value, json};

/// Largest ADC value; as a pedestal it marks an unusable pixel, as does 0.
pub const ADC_MAX: f32 = 16383.0;

/// Too few words for a pedestal.
pub const NO_DATA: u32 = 1 << 0;
/// The pedestal lies at an end of the ADC, as it does where nothing is connected.
pub const DEAD: u32 = 1 << 1;
/// Far less noise than the median of the module: the pixel does not see its amplifier.
pub const STUCK: u32 = 1 << 2;
/// Far more noise than the median of the module.
pub const NOISY: u32 = 1 << 3;
/// Many words far from the pedestal: the pixel jumps between levels.
pub const UNSTABLE: u32 = 1 << 4;
/// Words of another gain stage than the detector was set to.
pub const WRONG_STAGE: u32 = 1 << 5;
/// No usable gain: it is 0, not finite, or of the wrong sign.
pub const NO_GAIN: u32 = 1 << 6;
/// Marked by the program that made the planes, which gives no reason.
pub const MARKED: u32 = 1 << 7;

/// Bit, name and NXmx bits of each reason.
pub const REASONS: [(u32, &str, u32); 8] = [
    (NO_DATA, "no data", NXMX_DEAD),
    (DEAD, "dead", NXMX_DEAD),
    (STUCK, "stuck", NXMX_DEAD),
    (NOISY, "noisy", NXMX_NOISY),
    (UNSTABLE, "unstable", NXMX_NOISY),
    (WRONG_STAGE, "wrong stage", NXMX_DEAD),
    (NO_GAIN, "no gain", NXMX_DEAD),
    (MARKED, "marked by the source", NXMX_USER),
];

/// NXmx pixel mask: gap between chips or modules.
pub const NXMX_GAP: u32 = 1;
/// NXmx pixel mask: dead pixel.
pub const NXMX_DEAD: u32 = 1 << 1;
/// NXmx pixel mask: noisy pixel.
pub const NXMX_NOISY: u32 = 1 << 4;
/// NXmx pixel mask: masked by the user.
pub const NXMX_USER: u32 = konkordia_core::user_mask::NXMX_USER;

/// The NXmx bits of reason bits. Unknown reason bits become the mask of the user.
pub fn nxmx(reasons: u32) -> u32 {
    let known = REASONS.iter().filter(|r| reasons & r.0 != 0).fold(0, |bits, r| bits | r.2);
    let all = REASONS.iter().fold(0, |bits, r| bits | r.0);
    if reasons & !all == 0 { known } else { known | NXMX_USER }
}

/// Bit and name of each reason, as a calibration file stores them.
pub fn table() -> Vec<(u8, String)> {
    REASONS.iter().map(|(bit, name, _)| (bit.trailing_zeros() as u8, (*name).to_string())).collect()
}

/// Number of pixels with each reason. Reasons without pixels are left out.
pub fn counts(mask: &[u32]) -> Vec<(&'static str, u64)> {
    let of = |bit: u32| mask.iter().filter(|m| **m & bit != 0).count() as u64;
    REASONS.iter().map(|(bit, name, _)| (*name, of(*bit))).filter(|(_, n)| *n > 0).collect()
}

/// Limits beyond which a pixel is masked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Noisy: RMS above this multiple of the median RMS of the module.
    pub noisy_k: f32,
    /// Stuck: RMS below this fraction of the median RMS of the module.
    pub stuck_fraction: f32,
    /// Unstable: more than this fraction of the words of the pixel outside the gate around its pedestal.
    pub outside_max: f32,
    /// Wrong stage: more than this fraction of the words of the pixel in another stage.
    pub wrong_stage_max: f32,
    /// No data: words in less than this fraction of the frames.
    pub data_min: f32,
}

impl Default for Thresholds {
    /// A real module at an exposure of 840 microseconds has 95 % of its pixels between 0.9 and 1.2 times the median
    /// RMS, and 0.1 % above 3 times. A pixel at 3 times the median of 24 ADU has a noise of 0.14 photon at 12.4 keV.
    /// Words outside the gate are rare strays (below 0.1 %).
    fn default() -> Self {
        Self { noisy_k: 3.0, stuck_fraction: 0.2, outside_max: 0.05, wrong_stage_max: 0.01, data_min: 0.5 }
    }
}

impl Thresholds {
    /// As JSON, for the calibration file.
    pub fn to_json(self) -> Value {
        json!({
            "noisy_k": self.noisy_k, "stuck_fraction": self.stuck_fraction, "outside_max": self.outside_max,
            "wrong_stage_max": self.wrong_stage_max, "data_min": self.data_min,
        })
    }
}

/// True if the value can be a pedestal.
pub fn usable_pedestal(value: f32) -> bool {
    value > 0.0 && value < ADC_MAX
}

/// True if the value can be a gain: positive in G0 and HG0, negative in G1 and G2.
pub fn usable_gain(stage: GainStage, value: f32) -> bool {
    value.is_finite() && if stage.of_words() == 0 { value > 0.0 } else { value < 0.0 }
}

/// The median of the finite values among every `step`-th value; `None` if there are none.
pub fn median(values: impl Iterator<Item = f32>, step: usize) -> Option<f32> {
    let mut sample: Vec<f32> = values.step_by(step).filter(|v| v.is_finite()).collect();
    if sample.is_empty() {
        return None;
    }
    let middle = sample.len() / 2;
    Some(*sample.select_nth_unstable_by(middle, f32::total_cmp).1)
}

/// Marks [`DEAD`] and, if the noise is known, [`STUCK`] and [`NOISY`] against the median of each module.
pub fn mark_pedestals(planes: &mut StagePedestal, thresholds: &Thresholds) {
    for start in (0..planes.mean_adu.len()).step_by(MODULE_PIXELS) {
        let module = start..start + MODULE_PIXELS;
        let with_data = |p: &usize| planes.mask[*p] & NO_DATA == 0 && usable_pedestal(planes.mean_adu[*p]);
        let typical = median(module.clone().filter(with_data).map(|p| planes.rms_adu[p]), 1).unwrap_or(f32::NAN);
        for pixel in module.filter(|p| planes.mask[*p] & NO_DATA == 0).collect::<Vec<_>>() {
            let (mean, rms) = (planes.mean_adu[pixel], planes.rms_adu[pixel]);
            let mut reasons = 0;
            if !usable_pedestal(mean) {
                reasons |= DEAD;
            } else if rms < thresholds.stuck_fraction * typical {
                reasons |= STUCK;
            } else if rms > thresholds.noisy_k * typical {
                reasons |= NOISY;
            }
            planes.mask[pixel] |= reasons;
        }
    }
}

/// Pedestals of another program, which has judged its pixels: `marked` has its reasons, and pedestals of 0 and 16383
/// mark pixels that are not usable.
pub fn of_source(mean_adu: Vec<f32>, rms_adu: Vec<f32>, marked: &[u32]) -> StagePedestal {
    let mark = |(mean, marked): (&f32, &u32)| *marked | if usable_pedestal(*mean) { 0 } else { DEAD };
    StagePedestal {
        mask: mean_adu.iter().zip(marked).map(mark).collect(),
        count: vec![0; mean_adu.len()],
        mean_adu,
        rms_adu,
        ..StagePedestal::default()
    }
}

/// Sets or clears [`NO_GAIN`] of each pixel, from the gains of this stage.
pub fn mark_gains(mask: &mut [u32], gains: &[f32], stage: GainStage) {
    for (mask, gain) in mask.iter_mut().zip(gains) {
        *mask = *mask & !NO_GAIN | if usable_gain(stage, *gain) { 0 } else { NO_GAIN };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_nxmx_bit() {
        assert_eq!((nxmx(0), nxmx(DEAD), nxmx(NOISY | NO_GAIN), nxmx(MARKED)), (0, 2, 18, 256));
        assert_eq!(nxmx(1 << 20), NXMX_USER);
        assert_eq!(table()[3], (3, "noisy".into()));
        assert_eq!(counts(&[DEAD, DEAD | NOISY, 0]), [("dead", 2), ("noisy", 1)]);
        assert_eq!(counts(&[0, 0]), []);
    }

    #[test]
    fn pedestals_are_judged_against_their_module() {
        let mut planes = StagePedestal {
            mean_adu: vec![3000.0; 2 * MODULE_PIXELS],
            rms_adu: [vec![20.0; MODULE_PIXELS], vec![40.0; MODULE_PIXELS]].concat(),
            count: vec![100; 2 * MODULE_PIXELS],
            mask: vec![0; 2 * MODULE_PIXELS],
            ..StagePedestal::default()
        };
        (planes.mean_adu[0], planes.mean_adu[1], planes.mean_adu[2]) = (0.0, ADC_MAX, f32::NAN);
        (planes.rms_adu[3], planes.rms_adu[4], planes.rms_adu[5]) = (61.0, 59.0, 3.9);
        planes.rms_adu[MODULE_PIXELS + 3] = 61.0;
        (planes.mean_adu[6], planes.mask[6]) = (f32::NAN, NO_DATA);
        mark_pedestals(&mut planes, &Thresholds::default());
        assert_eq!(planes.mask[..7], [DEAD, DEAD, DEAD, NOISY, 0, STUCK, NO_DATA]);
        assert_eq!(planes.mask[MODULE_PIXELS + 3], 0);
        let mut mask = vec![0, NO_GAIN, 0];
        mark_gains(&mut mask, &[0.0, 41.0, -3.0], GainStage::G0);
        assert_eq!(mask, [NO_GAIN, 0, NO_GAIN]);
    }
}
