//! Checks whether it was dark. Light moves pedestals, and a file of pedestals does not show it afterwards.
//!
//! There are four signs of light, each with a limit that dark frames stay far below: words far from their pedestal
//! (photons of more than 8 times the noise), noise far above that of the detector, a lopsided distribution (photons
//! within the noise), and pixels that switch to a lower gain.

use konkordia_kernels::pedestal::PedestalPlanes;
use konkordia_sinks::hdf5::calibration::{GainStage, MODULE_PIXELS};
use std::ops::Range;

/// Largest fraction of words outside the gates. Strays from the surroundings are below 1e-4 at exposures of a
/// millisecond.
const OUTSIDE_MAX: f64 = 0.005;
/// Largest median RMS in ADU for G0, G1, G2 and HG0. At 840 microseconds a module has 30 ADU in G0 (200 electrons), 4
/// and 3 in G1 and G2.
const RMS_ADU_MAX: [f32; 4] = [120.0, 25.0, 25.0, 250.0];
/// Largest median over the pixels of the skewness (third standardised moment) within 5 standard deviations. It is 0 for
/// noise; 0.1 photon of 1 keV gives 0.2.
const SKEW_MAX: f64 = 0.12;
/// Largest fraction of words of another stage in a run without forced gain.
const SWITCHED_MAX: f64 = 0.01;
/// Pixels of a module that are sampled: every 509th, so that no row or column is preferred.
const SAMPLED: usize = 1024;
const SAMPLE_STEP: usize = 509;
/// Most frames of which samples are kept. When so many are reached, every other one is dropped, and from then on half
/// as many frames are sampled.
const FRAMES_MAX: usize = 512;
/// Least number of frames that says something about a distribution.
const FRAMES_MIN: usize = 64;

/// The words of a few pixels in many frames.
pub struct Samples {
    modules: usize,
    stage: GainStage,
    /// One frame of so many is kept.
    every: u64,
    seen: u64,
    /// By frame, module and pixel.
    words: Vec<u16>,
}

impl Samples {
    /// No samples yet, for this number of modules.
    pub fn new(modules: usize, stage: GainStage) -> Self {
        Self { modules, stage, every: 1, seen: 0, words: Vec::new() }
    }

    fn frame_words(&self) -> usize {
        self.modules * SAMPLED
    }

    /// Takes the samples of a frame.
    pub fn add(&mut self, raw: &[u16]) {
        let turn = self.seen;
        self.seen += 1;
        if !turn.is_multiple_of(self.every) {
            return;
        }
        for module in raw.chunks_exact(MODULE_PIXELS) {
            self.words.extend(module.iter().step_by(SAMPLE_STEP).take(SAMPLED));
        }
        let frame = self.frame_words();
        if self.words.len() == FRAMES_MAX * frame {
            for kept in 1..FRAMES_MAX / 2 {
                self.words.copy_within(2 * kept * frame..(2 * kept + 1) * frame, kept * frame);
            }
            self.words.truncate(FRAMES_MAX / 2 * frame);
            self.every *= 2;
        }
    }

    /// ADC values of one sampled pixel in frame order, without words of other stages.
    fn pixel(&self, module: usize, nth: usize) -> Vec<f64> {
        let bits = [0u16, 1, 3][self.stage.of_words()];
        let words = self.words.iter().skip(module * SAMPLED + nth).step_by(self.frame_words());
        words.filter(|w| **w >> 14 == bits && **w != 0xFFFF).map(|w| f64::from(w & 0x3FFF)).collect()
    }

    /// How far the pedestals of a module moved from the first half of the frames to the second, in ADU; `None` if there
    /// are too few.
    pub fn drift_adu(&self, module: usize) -> Option<f64> {
        let moved = |nth| {
            let values = self.pixel(module, nth);
            let half = values.len() / 2;
            let median = |part: &[f64]| {
                let mut sorted = part.to_vec();
                sorted.sort_by(f64::total_cmp);
                // The mean of the inner half: robust, and finer than whole ADU.
                let inner = &sorted[part.len() / 4..part.len() - part.len() / 4];
                inner.iter().sum::<f64>() / inner.len() as f64
            };
            (half >= FRAMES_MIN / 2).then(|| median(&values[half..]) - median(&values[..half]))
        };
        median((0..SAMPLED).filter_map(moved).collect())
    }

    /// Skewness (third standardised moment): the median over the sampled pixels of a module, positive in the direction
    /// in which light moves the words.
    pub fn skew(&self, module: usize) -> Option<f64> {
        let sign = if self.stage.of_words() == 0 { 1.0 } else { -1.0 };
        let of = |nth| {
            let mut values = self.pixel(module, nth);
            if values.len() < FRAMES_MIN {
                return None;
            }
            // Photons far from the pedestal are counted elsewhere, and would hide the rest.
            for _ in 0..2 {
                let (mean, variance, _) = moments(&values);
                let limit = 5.0 * variance.sqrt().max(0.5);
                values.retain(|v| (v - mean).abs() <= limit);
            }
            let (_, variance, third) = moments(&values);
            (variance > 0.1).then(|| sign * third / variance.powf(1.5))
        };
        median((0..SAMPLED).filter_map(of).collect())
    }
}

/// Mean, variance and third central moment.
fn moments(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let power = |k: i32| values.iter().map(|v| (v - mean).powi(k)).sum::<f64>() / n;
    (mean, power(2), power(3))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The first sign of light in one module, if there is one.
pub fn sign_of_light(planes: &PedestalPlanes, samples: &Samples, module: usize) -> Option<String> {
    let stage = samples.stage;
    let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
    let words = sum(&planes.count, &range) + sum(&planes.outside, &range);
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let switched = sum(&planes.wrong_stage, &range);
    if stage.of_words() == 0 && percent(switched, words + switched) > 100.0 * SWITCHED_MAX {
        let percent = percent(switched, words + switched);
        return Some(format!("{percent:.1} % of the words are of another gain stage: light switches pixels; darks have none"));
    }
    let rms = crate::reasons::median(planes.rms_adu[range.clone()].iter().copied(), 1).unwrap_or(0.0);
    if rms > RMS_ADU_MAX[stage.index()] {
        let most = RMS_ADU_MAX[stage.index()];
        return Some(format!(
            "the median RMS is {rms:.0} ADU; darks have less than {most:.0} in {}",
            stage.name().to_uppercase()
        ));
    }
    let outside = percent(outside_of_good(planes, &range), words);
    if outside > 100.0 * OUTSIDE_MAX {
        let most = 100.0 * OUTSIDE_MAX;
        return Some(format!(
            "{outside:.2} % of the words lie far from their pedestal, as photons do; darks have less than {most} %"
        ));
    }
    let skew = samples.skew(module).unwrap_or(0.0);
    (skew > SKEW_MAX).then(|| {
        format!(
            "the words are spread unevenly around the pedestal (skewness {skew:.2}, darks below {SKEW_MAX}), as with weak light"
        )
    })
}

/// Words outside the gates, without those of pixels that jump all the time: such pixels are masked, and are no sign of
/// light.
fn outside_of_good(planes: &PedestalPlanes, range: &Range<usize>) -> u64 {
    let counts = planes.outside[range.clone()].iter().zip(&planes.count[range.clone()]);
    counts.filter(|(outside, count)| *outside <= *count).map(|(outside, _)| u64::from(*outside)).sum()
}

fn sum(counts: &[u32], range: &Range<usize>) -> u64 {
    counts[range.clone()].iter().map(|n| u64::from(*n)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_kernels::pedestal::PedestalAccumulator;
    use konkordia_sim::rng::Rng;

    /// Frames of noise with `photons` per pixel of `adu` each, and a drift over the run.
    fn run(stage: GainStage, photons: f64, adu: f64, drift: f64) -> (PedestalPlanes, Samples) {
        let frames = 96;
        let mut rng = Rng::new(3);
        let mut accumulator = PedestalAccumulator::new(MODULE_PIXELS, stage.of_words() as u8);
        let mut samples = Samples::new(1, stage);
        let bits = [0u16, 0x4000, 0xC000][stage.of_words()];
        // Noise from a table at random places: fast, and as independent as needed here.
        let noise: Vec<f32> = (0..1 << 16).map(|_| 3000.0 + 29.0 * rng.normal() as f32).collect();
        for frame in 0..frames {
            let shift = (drift * f64::from(frame) / f64::from(frames)) as f32;
            let mut raw = Vec::with_capacity(MODULE_PIXELS);
            while raw.len() < MODULE_PIXELS {
                let from = rng.below(1 << 15) as usize;
                raw.extend(noise[from..from + 1024].iter().map(|v| (v + shift).round() as u16));
            }
            for _ in 0..rng.poisson(photons * MODULE_PIXELS as f64) {
                let pixel = &mut raw[rng.below(MODULE_PIXELS as u64) as usize];
                *pixel = (f64::from(*pixel) + adu).clamp(1.0, 16382.0) as u16;
            }
            raw.iter_mut().for_each(|word| *word |= bits);
            accumulator.add(&raw);
            samples.add(&raw);
        }
        (accumulator.finish(), samples)
    }

    #[test]
    fn darkness_and_light_are_distinguished() {
        for (photons, adu, drift, sign) in [
            (0.0, 0.0, 0.0, None),
            (0.0, 0.0, 20.0, None),
            (0.001, 508.0, 0.0, None),
            (0.01, 508.0, 0.0, Some("far from their pedestal")),
            (0.15, 45.0, 0.0, Some("unevenly")),
            (3.0, 508.0, 0.0, Some("the median RMS is")),
        ] {
            let (planes, samples) = run(GainStage::G0, photons, adu, drift);
            let found = sign_of_light(&planes, &samples, 0);
            let fits = match (&found, sign) {
                (Some(found), Some(part)) => found.contains(part),
                (found, sign) => found.is_none() && sign.is_none(),
            };
            assert!(fits, "{photons} photons of {adu} ADU, drift {drift}: {found:?}, skew {:?}", samples.skew(0));
            let moved = samples.drift_adu(0).unwrap();
            assert!(photons > 0.0 || (moved - drift / 2.0).abs() < 1.0, "{moved}");
        }
        // In G1 light moves words down.
        let (planes, samples) = run(GainStage::G1, 0.01, -300.0, 0.0);
        assert!(sign_of_light(&planes, &samples, 0).is_some());
    }

    #[test]
    fn samples_of_long_runs_are_thinned_evenly() {
        let mut samples = Samples::new(1, GainStage::G0);
        for frame in 0..3000u16 {
            samples.add(&vec![frame; MODULE_PIXELS]);
        }
        let values = samples.pixel(0, 7);
        assert!(values.len() < FRAMES_MAX && values.len() >= FRAMES_MAX / 2 - 1, "{}", values.len());
        assert!(values.windows(2).all(|w| w[1] - w[0] == 8.0));
    }
}
