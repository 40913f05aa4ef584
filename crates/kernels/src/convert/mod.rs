//! From detector words to pixels of the output image.
//!
//! A word of JUNGFRAU holds the gain stage in bits 15-14 (00 G0, 01 G1, 11 G2, 10 illegal) and the ADC value in bits
//! 13-0. A pixel becomes `from_photons((adc - pedestal) * factor)` with the constants of its stage, in single
//! precision, with one rounding per operation and no fused multiply-add, so that every instruction set gives the same
//! bits. Order of the tests:
//! 1. Words 0xFFFF, 0xC000, 0x4000 and every word with gain 10 are special. A special word of a pixel without a usable
//!    G0 (pedestal or factor of stage 0 is NaN) is masked; otherwise 0xC000 is saturated and the others are invalid. No
//!    word means missing: the caller knows which packets did not arrive, and fills their pixels.
//! 2. Every other word is converted with the constants of its own stage. A result of NaN means masked, so a pixel can
//!    be masked in one stage only. A result above or below the range of the type is saturated or clamped as
//!    `core::pixel` says.
//!
//! A pixel that the mask excludes has NaN as its constants in all three stages.
//!
//! If the detector was set to high gain (HG0), its ADC ends before gains switch: [`saturate_high_gain`] makes such
//! pixels saturated.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod constants;
pub mod fixed;
mod output_pixel;
pub mod scalar;
mod tracker;
pub mod tracking;

pub use constants::Constants;
pub use fixed::{FixedConstants, FixedView, jungfrau_fixed};
pub use output_pixel::OutputPixel;
pub use tracking::{Tracker, jungfrau_track_only, jungfrau_tracking};

use crate::isa::Isa;
use crate::unpack;
use konkordia_core::pixel::Pixel;

/// Converts JUNGFRAU words to pixels; see the module for the rules. All slices have the same length.
///
/// # Panics
/// If the lengths differ.
pub fn jungfrau<P: OutputPixel>(isa: Isa, raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    assert_eq!(raw.len(), out.len(), "one output pixel per word");
    constants.check(raw.len());
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::jungfrau(raw, constants, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::jungfrau(raw, constants, out),
        _ => scalar::jungfrau(raw, constants, out),
    }
}

/// Gives the result of [`jungfrau`] by selecting among the constants of all stages for every pixel: the baseline for
/// comparison.
///
/// # Panics
/// If the lengths differ.
pub fn jungfrau_all_branches<P: OutputPixel>(isa: Isa, raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    assert_eq!(raw.len(), out.len(), "one output pixel per word");
    constants.check(raw.len());
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::jungfrau_select(raw, constants, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::jungfrau_select(raw, constants, out),
        _ => scalar::jungfrau(raw, constants, out),
    }
}

/// G0 with the highest ADC value. In high gain (HG0), the signal is beyond what the ADC can show.
pub const HIGH_GAIN_SATURATED: u16 = 0x3FFF;

/// Makes the pixels of the words [`HIGH_GAIN_SATURATED`] saturated, unless they are masked: the last step of every
/// conversion of words taken in high gain. `out` holds what the words were converted to.
///
/// # Panics
/// If the lengths differ.
pub fn saturate_high_gain<P: Pixel>(raw: &[u16], out: &mut [P]) {
    assert_eq!(raw.len(), out.len(), "one output pixel per word");
    for (raw, out) in raw.chunks(256).zip(out.chunks_mut(256)) {
        // Looking at all of a run, without an early end, is what compilers make vectors of.
        if !raw.iter().fold(false, |found, &word| found | (word == HIGH_GAIN_SATURATED)) {
            continue;
        }
        for (pixel, _) in out.iter_mut().zip(raw).filter(|(_, word)| **word == HIGH_GAIN_SATURATED) {
            *pixel = if pixel.is_number() { P::SATURATED } else { *pixel };
        }
    }
}

/// How many words of each kind a tile or an image holds. `g0` to `g2` count usable words only; the sum is the number of
/// words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordCounts {
    /// Gain 00.
    pub g0: u64,
    /// Gain 01 without 0x4000.
    pub g1: u64,
    /// Gain 11 without 0xC000 and 0xFFFF.
    pub g2: u64,
    /// Gain 10, or 0x4000 (G1 with ADC 0).
    pub illegal: u64,
    /// 0xC000 (G2 with ADC 0).
    pub saturated: u64,
    /// 0xFFFF: the padding of other receivers in raw files. It is never a measurement.
    pub missing: u64,
}

/// Counts the kinds of words.
pub fn count_words(raw: &[u16]) -> WordCounts {
    let mut sum = WordCounts::default();
    // 16-bit counters keep the vectors full; a run of 32768 words cannot overflow them.
    for run in raw.chunks(1 << 15) {
        let (mut g0, mut g1, mut g3, mut low, mut top, mut full) = (0u16, 0u16, 0u16, 0u16, 0u16, 0u16);
        for &word in run {
            g0 += u16::from(word < 0x4000);
            g1 += u16::from(word & 0xC000 == 0x4000);
            g3 += u16::from(word >= 0xC000);
            low += u16::from(word == 0x4000);
            top += u16::from(word == 0xC000);
            full += u16::from(word == 0xFFFF);
        }
        let illegal = run.len() as u64 - u64::from(g0) - u64::from(g1) - u64::from(g3) + u64::from(low);
        sum.g0 += u64::from(g0);
        sum.g1 += u64::from(g1 - low);
        sum.g2 += u64::from(g3) - u64::from(top) - u64::from(full);
        sum.illegal += illegal;
        sum.saturated += u64::from(top);
        sum.missing += u64::from(full);
    }
    sum
}

/// Unpacks EIGER counts of `bits` bits and turns them into pixels: a count above the valid range becomes saturated, and
/// a pixel whose `mask` byte is not 0 becomes masked. `packed` is the whole tile; `out` takes the pixels from
/// `first_pixel` on.
///
/// # Panics
/// If `packed` is too short for the pixels asked for, or the mask has another length than `out`.
pub fn counts<P: Pixel>(bits: unpack::Bits, packed: &[u8], first_pixel: usize, mask: Option<&[u8]>, out: &mut [P]) {
    let mut run = [0u32; 256];
    for (index, part) in out.chunks_mut(run.len()).enumerate() {
        let run = &mut run[..part.len()];
        unpack::eiger(bits, packed, first_pixel + index * 256, run);
        for (pixel, &count) in part.iter_mut().zip(run.iter()) {
            *pixel = P::from_count(count);
        }
    }
    if let Some(mask) = mask {
        assert_eq!(mask.len(), out.len(), "one mask byte per pixel");
        for (pixel, &masked) in out.iter_mut().zip(mask) {
            *pixel = if masked == 0 { *pixel } else { P::MASKED };
        }
    }
}
