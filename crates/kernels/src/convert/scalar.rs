//! The reference: one word at a time, as the module documentation says it.

use super::constants::Constants;
use konkordia_core::pixel::Pixel;

/// Index of the constants for each gain code; code 2 is illegal and never converted.
const STAGE: [usize; 4] = [0, 1, 0, 2];

/// The pixel of one word, given its constants of the three stages.
#[inline]
pub fn word<P: Pixel>(word: u16, pedestal: [f32; 3], factor: [f32; 3]) -> P {
    let gain = usize::from(word >> 14);
    if matches!(word, 0xFFFF | 0xC000 | 0x4000) || gain == 2 {
        return special(word, pedestal[0], factor[0]);
    }
    let stage = STAGE[gain];
    P::from_photons((f32::from(word & 0x3FFF) - pedestal[stage]) * factor[stage])
}

/// The pixel of a special word, given the constants of G0.
#[inline]
pub fn special<P: Pixel>(word: u16, pedestal: f32, factor: f32) -> P {
    if pedestal.is_nan() || factor.is_nan() {
        return P::MASKED;
    }
    match word {
        0xC000 => P::SATURATED,
        _ => P::INVALID,
    }
}

/// See [`super::jungfrau`].
pub fn jungfrau<P: Pixel>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    let at = |planes: &[&[f32]; 3], i: usize| [planes[0][i], planes[1][i], planes[2][i]];
    for (i, (pixel, &raw)) in out.iter_mut().zip(raw).enumerate() {
        *pixel = word(raw, at(&constants.pedestal, i), at(&constants.factor, i));
    }
}
