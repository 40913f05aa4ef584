//! Conversion in integers, as programmable logic does it (Leonarski et al. 2020: pedestal of G0 in 22 bits, all other
//! constants in 16).
//!
//! `docs/formats/fixed-point.md` describes it in enough detail to build the logic;
//! `docs/formats/fixed-point-vectors.csv` holds words, constants and results to test it with. In short, per stage with
//! its fraction bits `f`, `factor` and `shift`:
//!
//! `pixel = limit(((±((adc << f) - pedestal)) * factor + (1 << (shift - 1))) >> shift)`
//!
//! with + in G0 and - in G1 and G2, an arithmetic shift (so a half is rounded up), and the special values, clamping and
//! saturation of `core::pixel`. Special words are those of [`super::jungfrau`]; a factor of 0 takes the place of NaN.

use super::constants::Constants;
use super::output_pixel::OutputPixel;
use konkordia_core::pixel::Pixel;

/// Fraction bits of the pedestals of G0, G1 and G2: 14.8, 14.2 and 14.2 bits.
pub const FRACTION_BITS: [u32; 3] = [8, 2, 2];
/// Width of a pedestal in bits.
const PEDESTAL_BITS: [u32; 3] = [22, 16, 16];
/// Range of the shifts. The upper bound keeps every sum within 48 bits (39 of the product, and the half).
pub const SHIFTS: std::ops::RangeInclusive<u8> = 1..=47;
/// A factor above this multiple of the median of its stage is a mistake, and must not cost all others their precision.
const FACTOR_TO_MEDIAN_MAX: f64 = 8.0;

/// Constants of a run in integers. All planes have the same length, in the pixel order of the raw words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedConstants {
    /// Pedestals of G0 in 1/256 ADU, 22 bits.
    pub pedestal_g0: Vec<u32>,
    /// Pedestals of G1 in 1/4 ADU.
    pub pedestal_g1: Vec<u16>,
    /// Pedestals of G2 in 1/4 ADU.
    pub pedestal_g2: Vec<u16>,
    /// Magnitudes of the factors of each stage; 0 = not usable in this stage.
    pub factor: [Vec<u16>; 3],
    /// Shift of each stage, 1 to 47, the same for all pixels.
    pub shift: [u8; 3],
}

/// [`FixedConstants`] of a run of pixels.
#[derive(Clone, Copy, Debug)]
pub struct FixedView<'a> {
    /// Pedestals of G0 in 1/256 ADU.
    pub pedestal_g0: &'a [u32],
    /// Pedestals of G1 in 1/4 ADU.
    pub pedestal_g1: &'a [u16],
    /// Pedestals of G2 in 1/4 ADU.
    pub pedestal_g2: &'a [u16],
    /// Magnitudes of the factors of each stage; 0 = not usable in this stage.
    pub factor: [&'a [u16]; 3],
    /// Shift of each stage.
    pub shift: [u8; 3],
}

impl FixedConstants {
    /// The integers nearest to the constants of a whole run.
    ///
    /// The shift of a stage is the largest one with which the largest factor fits into 16 bits. A pixel is not usable
    /// in a stage, and so masked, in these cases:
    /// - Its pedestal or factor is not finite.
    /// - Its pedestal does not round into its bits: it rounds to less than 0, or is too large (in G0 from 1/512 ADU, in
    ///   G1 and G2 from 1/8 ADU below 16384).
    /// - Its factor has the wrong sign (G0 is positive, G1 and G2 are negative), is more than 8 times the median of the
    ///   stage, or rounds to 0.
    ///
    /// # Panics
    /// If the planes differ in length.
    pub fn quantise(constants: &Constants<'_>) -> Self {
        constants.check(constants.pedestal[0].len());
        let mut factor = [Vec::new(), Vec::new(), Vec::new()];
        let mut pedestal = [Vec::new(), Vec::new(), Vec::new()];
        let mut shift = [0; 3];
        for stage in 0..3 {
            let sign = if stage == 0 { 1.0 } else { -1.0 };
            let sizes: Vec<f64> = constants.factor[stage].iter().map(|factor| sign * f64::from(*factor)).collect();
            let largest = largest_factor(&sizes);
            shift[stage] = shift_for(largest, FRACTION_BITS[stage]);
            let scale = 2f64.powi(i32::from(shift[stage]) - FRACTION_BITS[stage] as i32);
            for (&size, &adu) in sizes.iter().zip(constants.pedestal[stage]) {
                let fixed = fixed_pedestal(adu, stage);
                let size = if size <= largest { (size * scale).round_ties_even() } else { 0.0 };
                let usable = fixed.is_some() && (1.0..=65535.0).contains(&size);
                factor[stage].push(if usable { size as u16 } else { 0 });
                pedestal[stage].push(fixed.unwrap_or(0));
            }
        }
        let [pedestal_g0, g1, g2] = pedestal;
        let narrow = |plane: Vec<u32>| plane.into_iter().map(|adu| adu as u16).collect();
        Self { pedestal_g0, pedestal_g1: narrow(g1), pedestal_g2: narrow(g2), factor, shift }
    }

    /// All pixels.
    pub fn view(&self) -> FixedView<'_> {
        FixedView {
            pedestal_g0: &self.pedestal_g0,
            pedestal_g1: &self.pedestal_g1,
            pedestal_g2: &self.pedestal_g2,
            factor: [&self.factor[0], &self.factor[1], &self.factor[2]],
            shift: self.shift,
        }
    }
}

/// The largest factor that is not a mistake; 0 if there is none above 0.
fn largest_factor(sizes: &[f64]) -> f64 {
    let mut usable: Vec<f64> = sizes.iter().copied().filter(|size| *size > 0.0 && size.is_finite()).collect();
    if usable.is_empty() {
        return 0.0;
    }
    let middle = (usable.len() - 1) / 2;
    let limit = *usable.select_nth_unstable_by(middle, f64::total_cmp).1 * FACTOR_TO_MEDIAN_MAX;
    usable.into_iter().filter(|size| *size <= limit).fold(0.0, f64::max)
}

/// The largest shift with which `largest` rounds to at most 65535.
fn shift_for(largest: f64, fraction_bits: u32) -> u8 {
    let size = |shift: u8| (largest * 2f64.powi(i32::from(shift) - fraction_bits as i32)).round_ties_even();
    SHIFTS.rev().find(|shift| size(*shift) <= 65535.0).unwrap_or(*SHIFTS.start())
}

fn fixed_pedestal(adu: f32, stage: usize) -> Option<u32> {
    let fixed = (f64::from(adu) * f64::from(1u32 << FRACTION_BITS[stage])).round_ties_even();
    let most = f64::from((1u32 << PEDESTAL_BITS[stage]) - 1);
    (fixed >= 0.0 && fixed <= most).then_some(fixed as u32)
}

impl<'a> FixedView<'a> {
    /// The constants of the pixels `first .. first + count`.
    pub fn slice(&self, first: usize, count: usize) -> Self {
        let pixels = first..first + count;
        Self {
            pedestal_g0: &self.pedestal_g0[pixels.clone()],
            pedestal_g1: &self.pedestal_g1[pixels.clone()],
            pedestal_g2: &self.pedestal_g2[pixels.clone()],
            factor: self.factor.map(|plane| &plane[pixels.clone()]),
            shift: self.shift,
        }
    }

    fn check(&self, pixels: usize) {
        let planes = [self.pedestal_g1, self.pedestal_g2, self.factor[0], self.factor[1], self.factor[2]];
        assert!(self.pedestal_g0.len() == pixels && planes.iter().all(|p| p.len() == pixels), "one constant per pixel and stage");
        assert!(self.shift.iter().all(|shift| SHIFTS.contains(shift)), "shifts are 1 to 47");
    }
}

/// Converts JUNGFRAU words to pixels in integers. Meant for integer pixels; `f32` takes the whole number (rounded to
/// its 24 bits).
///
/// # Panics
/// If lengths differ, or a shift is not in [`SHIFTS`].
pub fn jungfrau_fixed<P: OutputPixel>(raw: &[u16], constants: &FixedView<'_>, out: &mut [P]) {
    assert_eq!(raw.len(), out.len(), "one output pixel per word");
    constants.check(raw.len());
    let half = constants.shift.map(|shift| 1i64 << (shift - 1));
    let g0 = constants.pedestal_g0.iter().zip(constants.factor[0]);
    for (i, ((pixel, &word), (&pedestal, &factor))) in out.iter_mut().zip(raw).zip(g0).enumerate() {
        // Nearly all words; a product of at most 39 bits.
        *pixel = if word < 0x4000 {
            let diff = i64::from((i32::from(word) << FRACTION_BITS[0]) - pedestal as i32);
            let whole = (diff * i64::from(factor) + half[0]) >> constants.shift[0];
            if factor == 0 { P::MASKED } else { P::from_whole(whole) }
        } else {
            switched(word, constants, half, i)
        };
    }
}

/// The pixel of a word with a gain bit.
fn switched<P: OutputPixel>(word: u16, constants: &FixedView<'_>, half: [i64; 3], i: usize) -> P {
    let (stage, pedestal) = match word {
        0xFFFF | 0xC000 | 0x4000 | 0x8000..=0xBFFF => return special(word, constants.factor[0][i]),
        0x4001..=0x7FFF => (1, constants.pedestal_g1[i]),
        _ => (2, constants.pedestal_g2[i]),
    };
    let diff = i64::from(pedestal) - (i64::from(word & 0x3FFF) << FRACTION_BITS[stage]);
    let factor = constants.factor[stage][i];
    let whole = (diff * i64::from(factor) + half[stage]) >> constants.shift[stage];
    if factor == 0 { P::MASKED } else { P::from_whole(whole) }
}

/// The pixel of a special word, given the factor of G0.
fn special<P: Pixel>(word: u16, factor: u16) -> P {
    match word {
        _ if factor == 0 => P::MASKED,
        0xC000 => P::SATURATED,
        _ => P::INVALID,
    }
}
