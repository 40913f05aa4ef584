//! Conversion with pedestals of G0 that follow the drift of the detector (Leonarski et al. 2020: up to 100 ADU in the
//! first seconds).
//!
//! The pixel is converted with the pedestal as it was before this frame. Afterwards, for every word with gain bits 00:
//! `d = adc - pedestal`, and if `|d| <= gate` then `pedestal = pedestal + d * weight`, in single precision, one
//! rounding per operation, no fused multiply-add. All other words leave their pedestal as it is. A pedestal never moves
//! if it is NaN, or if its gate is NaN or below zero. Every instruction set gives the same bits, in pixels and in
//! pedestals.
//!
//! **Resolution.** A pedestal below 16384 ADU is a multiple of 2^-10 ADU or finer, so a step of less than 2^-11 ADU may
//! be lost. A pixel without any noise would stop within `2^-11 / weight` ADU of its true pedestal (0.5 ADU for a window
//! of 1024 frames; half of that below 8192 ADU, and so on). The noise of a real pixel, several ADU, makes the steps so
//! much larger that the pedestal follows the mean without that error; `tests/tracking.rs` shows it.

use super::constants::Constants;
use super::output_pixel::OutputPixel;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Isa;
use konkordia_core::pixel::Pixel;

pub use super::tracker::Tracker;

/// Converts JUNGFRAU words as [`super::jungfrau`] does, with the pedestals of `tracker` in the place of
/// `constants.pedestal[0]` (which only has to have the right length), then moves the pedestals.
///
/// # Panics
/// If lengths differ, or the weight is not in `0 < weight <= 1`.
pub fn jungfrau_tracking<P: OutputPixel>(
    isa: Isa,
    raw: &[u16],
    constants: &Constants<'_>,
    tracker: &mut Tracker<'_>,
    out: &mut [P],
) {
    assert_eq!(raw.len(), out.len(), "one output pixel per word");
    constants.check(raw.len());
    tracker.check(raw.len());
    let done = match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::jungfrau_tracking(raw, constants, tracker, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::jungfrau_tracking(raw, constants, tracker, out),
        _ => 0,
    };
    let rest = raw.len() - done;
    scalar_tracking(&raw[done..], &constants.slice(done, rest), &mut tracker.slice(done, rest), &mut out[done..]);
}

/// Moves the pedestals as [`jungfrau_tracking`] does, for dark frames of which no image is made.
///
/// # Panics
/// If lengths differ, or the weight is not in `0 < weight <= 1`.
pub fn jungfrau_track_only(isa: Isa, raw: &[u16], tracker: &mut Tracker<'_>) {
    tracker.check(raw.len());
    let done = match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::jungfrau_track_only(raw, tracker),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::jungfrau_track_only(raw, tracker),
        _ => 0,
    };
    scalar_track_only(&raw[done..], &mut tracker.slice(done, raw.len() - done));
}

/// The reference.
fn scalar_tracking<P: Pixel>(raw: &[u16], constants: &Constants<'_>, tracker: &mut Tracker<'_>, out: &mut [P]) {
    for (i, (pixel, &word)) in out.iter_mut().zip(raw).enumerate() {
        let pedestal = [tracker.pedestal[i], constants.pedestal[1][i], constants.pedestal[2][i]];
        *pixel = scalar::word(word, pedestal, constants.factor.map(|plane| plane[i]));
        tracker.pedestal[i] = moved(word, tracker.pedestal[i], tracker.gate[i], tracker.weight);
    }
}

/// The reference.
fn scalar_track_only(raw: &[u16], tracker: &mut Tracker<'_>) {
    for ((pedestal, &gate), &word) in tracker.pedestal.iter_mut().zip(tracker.gate).zip(raw) {
        *pedestal = moved(word, *pedestal, gate, tracker.weight);
    }
}

/// The pedestal after a word.
#[inline]
fn moved(word: u16, pedestal: f32, gate: f32, weight: f32) -> f32 {
    let distance = f32::from(word & 0x3FFF) - pedestal;
    if word < 0x4000 && distance.abs() <= gate { pedestal + distance * weight } else { pedestal }
}
