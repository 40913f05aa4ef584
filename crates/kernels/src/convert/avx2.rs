//! Sixteen words at a time with AVX2.

use super::constants::Constants;
use super::scalar;
use super::tracker::{Drift, Tracker};
use crate::isa::Isa;
use konkordia_core::pixel::Pixel;
use std::arch::x86_64::*;

/// Words per step.
const LANES: usize = 16;

/// The last step of a conversion: sixteen values in photons to sixteen pixels, by the rules of `Pixel::from_photons`.
pub trait Finish: Pixel {
    /// Rounds, clamps, saturates and stores sixteen values.
    ///
    /// # Safety
    /// AVX2 must be available and `out` must be valid for writing sixteen pixels.
    unsafe fn store_two(low: __m256, high: __m256, out: *mut Self);
}

/// See [`super::jungfrau`], which has checked that all slices have the length of `raw`.
pub fn jungfrau<P: Finish>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    split::<P, false>(raw, constants, out);
}

/// The baseline for comparison: selects among the constants of all stages for every pixel.
pub fn jungfrau_select<P: Finish>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    split::<P, true>(raw, constants, out);
}

/// Whole steps with AVX2, the rest with the reference.
fn split<P: Finish, const SELECT: bool>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    assert!(Isa::Avx2.is_available() && out.len() == raw.len());
    constants.check(raw.len());
    let whole = raw.len() / LANES * LANES;
    let (pedestal, factor) = (constants.pedestal.map(<[f32]>::as_ptr), constants.factor.map(<[f32]>::as_ptr));
    // SAFETY: AVX2 is available and all slices hold at least `whole` items (asserted above).
    unsafe { run::<P, SELECT>(raw.as_ptr(), &pedestal, &factor, out.as_mut_ptr(), whole) };
    scalar::jungfrau(&raw[whole..], &constants.slice(whole, raw.len() - whole), &mut out[whole..]);
}

/// # Safety
/// AVX2 must be available; all pointers must be valid for `count` items, a multiple of [`LANES`].
#[target_feature(enable = "avx2")]
unsafe fn run<P: Finish, const SELECT: bool>(
    raw: *const u16,
    pedestal: &[*const f32; 3],
    factor: &[*const f32; 3],
    out: *mut P,
    count: usize,
) {
    let gain_bits = _mm256_set1_epi16(0xC000u16 as i16);
    for i in (0..count).step_by(LANES) {
        // SAFETY: `i + LANES <= count`, for which the caller vouches.
        unsafe {
            let words = _mm256_loadu_si256(raw.add(i).cast());
            if SELECT {
                select(words, pedestal, factor, i, out);
            } else if _mm256_testz_si256(words, gain_bits) != 0 {
                let low = linear(low_half(words), _mm256_loadu_ps(pedestal[0].add(i)), _mm256_loadu_ps(factor[0].add(i)));
                let high =
                    linear(high_half(words), _mm256_loadu_ps(pedestal[0].add(i + 8)), _mm256_loadu_ps(factor[0].add(i + 8)));
                P::store_two(low, high, out.add(i));
            } else {
                switched(words, pedestal, factor, i, out);
            }
        }
    }
}

/// See [`super::tracking::jungfrau_tracking`], which does the rest; returns the number of words done, a multiple of
/// [`LANES`].
pub fn jungfrau_tracking<P: Finish>(raw: &[u16], constants: &Constants<'_>, tracker: &mut Tracker<'_>, out: &mut [P]) -> usize {
    assert!(Isa::Avx2.is_available() && out.len() == raw.len());
    constants.check(raw.len());
    tracker.check(raw.len());
    let whole = raw.len() / LANES * LANES;
    let drift = Drift::of(tracker);
    let pedestal = [drift.pedestal.cast_const(), constants.pedestal[1].as_ptr(), constants.pedestal[2].as_ptr()];
    // SAFETY: AVX2 is available and all slices hold at least `whole` items (asserted above); nothing else uses the
    // pedestals meanwhile.
    unsafe { run_tracking(raw.as_ptr(), &pedestal, &constants.factor.map(<[f32]>::as_ptr), &drift, out.as_mut_ptr(), whole) };
    whole
}

/// See [`super::tracking::jungfrau_track_only`], which does the rest; returns the number of words done, a multiple of
/// [`LANES`].
pub fn jungfrau_track_only(raw: &[u16], tracker: &mut Tracker<'_>) -> usize {
    assert!(Isa::Avx2.is_available());
    tracker.check(raw.len());
    let whole = raw.len() / LANES * LANES;
    let drift = Drift::of(tracker);
    // SAFETY: AVX2 is available and all slices hold at least `whole` items (asserted above).
    unsafe { run_track_only(raw.as_ptr(), &drift, whole) };
    whole
}

impl Drift {
    /// Moves eight pedestals by those words that `lanes` selects (the ones in G0). Returns the distance of every word
    /// from its pedestal as it was before.
    ///
    /// # Safety
    /// AVX2 must be available; the pointers must be valid for the items `i .. i + 8`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn step8(&self, adc: __m256i, i: usize, lanes: __m256i) -> __m256 {
        // SAFETY: the caller vouches for the items `i .. i + 8`.
        unsafe {
            let before = _mm256_loadu_ps(self.pedestal.add(i));
            let distance = _mm256_sub_ps(_mm256_cvtepi32_ps(adc), before);
            let size = _mm256_andnot_ps(_mm256_set1_ps(-0.0), distance);
            let near = _mm256_cmp_ps::<_CMP_LE_OQ>(size, _mm256_loadu_ps(self.gate.add(i)));
            let by = _mm256_mul_ps(distance, _mm256_set1_ps(self.weight));
            let moves = _mm256_and_ps(near, _mm256_castsi256_ps(lanes));
            // A pedestal that stays gets -0.0 added, which changes no number. Choosing between old and new instead
            // would be compiled to a masked store, which is slow on AMD processors.
            let by = _mm256_blendv_ps(_mm256_set1_ps(-0.0), by, moves);
            _mm256_storeu_ps(self.pedestal.add(i), _mm256_add_ps(before, by));
            distance
        }
    }

    /// Moves the pedestals of sixteen words of which some are not in G0.
    ///
    /// # Safety
    /// As [`Drift::step8`], for the items `i .. i + 16`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn step_some(&self, words: __m256i, i: usize) {
        let in_g0 = |words| _mm256_cmpgt_epi32(_mm256_set1_epi32(0x4000), words);
        // SAFETY: the caller vouches for the items `i .. i + 16`.
        unsafe {
            self.step8(low_half(words), i, in_g0(low_half(words)));
            self.step8(high_half(words), i + 8, in_g0(high_half(words)));
        }
    }
}

/// # Safety
/// AVX2 must be available; all pointers must be valid for `count` items, a multiple of [`LANES`]; `pedestal[0]` is that
/// of `drift`.
#[target_feature(enable = "avx2")]
unsafe fn run_tracking<P: Finish>(
    raw: *const u16,
    pedestal: &[*const f32; 3],
    factor: &[*const f32; 3],
    drift: &Drift,
    out: *mut P,
    count: usize,
) {
    let gain_bits = _mm256_set1_epi16(0xC000u16 as i16);
    let all = _mm256_set1_epi32(-1);
    for i in (0..count).step_by(LANES) {
        // SAFETY: `i + LANES <= count`, for which the caller vouches.
        unsafe {
            let words = _mm256_loadu_si256(raw.add(i).cast());
            if _mm256_testz_si256(words, gain_bits) != 0 {
                // The factors are loaded before the pedestals are stored: planes often lie a multiple of 4 KiB apart,
                // where a load waits for a store.
                let (low, high) = (_mm256_loadu_ps(factor[0].add(i)), _mm256_loadu_ps(factor[0].add(i + 8)));
                let low = _mm256_mul_ps(drift.step8(low_half(words), i, all), low);
                let high = _mm256_mul_ps(drift.step8(high_half(words), i + 8, all), high);
                P::store_two(low, high, out.add(i));
            } else {
                switched(words, pedestal, factor, i, out);
                drift.step_some(words, i);
            }
        }
    }
}

/// # Safety
/// AVX2 must be available; all pointers must be valid for `count` items, a multiple of [`LANES`].
#[target_feature(enable = "avx2")]
unsafe fn run_track_only(raw: *const u16, drift: &Drift, count: usize) {
    for i in (0..count).step_by(LANES) {
        // SAFETY: `i + LANES <= count`, for which the caller vouches.
        unsafe { drift.step_some(_mm256_loadu_si256(raw.add(i).cast()), i) };
    }
}

/// Sixteen words of which at least one has a gain bit set; a separate function, to keep the common loop small.
///
/// # Safety
/// As [`run`], for the items `i .. i + LANES`.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn switched<P: Finish>(words: __m256i, pedestal: &[*const f32; 3], factor: &[*const f32; 3], i: usize, out: *mut P) {
    // SAFETY: the caller vouches for the items `i .. i + LANES` of all pointers.
    unsafe { select(words, pedestal, factor, i, out) }
}

/// Sixteen words with the constants of the stage of each.
///
/// # Safety
/// As [`run`], for the items `i .. i + LANES`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn select<P: Finish>(words: __m256i, pedestal: &[*const f32; 3], factor: &[*const f32; 3], i: usize, out: *mut P) {
    // SAFETY: the caller vouches for the items `i .. i + LANES` of all pointers.
    unsafe {
        let low = by_stage(low_half(words), pedestal, factor, i);
        let high = by_stage(high_half(words), pedestal, factor, i + 8);
        P::store_two(low, high, out.add(i));
    }
    let mut special = special_lanes(words);
    if special == 0 {
        return;
    }
    let mut all = [0u16; LANES];
    // SAFETY: the array has the 32 bytes of the register.
    unsafe { _mm256_storeu_si256(all.as_mut_ptr().cast(), words) };
    while special != 0 {
        let lane = special.trailing_zeros() as usize / 2;
        special &= !(3 << (2 * lane));
        // SAFETY: `lane < LANES`, so the item lies inside what the caller vouches for.
        unsafe { *out.add(i + lane) = scalar::special(all[lane], *pedestal[0].add(i + lane), *factor[0].add(i + lane)) };
    }
}

/// Two bits for each lane that holds a special word.
#[inline]
#[target_feature(enable = "avx2")]
fn special_lanes(words: __m256i) -> u32 {
    let is = |value: u16| _mm256_cmpeq_epi16(words, _mm256_set1_epi16(value as i16));
    let gain = _mm256_and_si256(words, _mm256_set1_epi16(0xC000u16 as i16));
    let illegal = _mm256_cmpeq_epi16(gain, _mm256_set1_epi16(0x8000u16 as i16));
    let special = _mm256_or_si256(_mm256_or_si256(is(0xFFFF), is(0xC000)), _mm256_or_si256(is(0x4000), illegal));
    _mm256_movemask_epi8(special) as u32
}

/// Eight words converted with the constants of the stage of each.
///
/// # Safety
/// All pointers must be valid for reading the items `i .. i + 8`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn by_stage(words: __m256i, pedestal: &[*const f32; 3], factor: &[*const f32; 3], i: usize) -> __m256 {
    let gain = _mm256_srli_epi32::<14>(words);
    let is1 = _mm256_castsi256_ps(_mm256_cmpeq_epi32(gain, _mm256_set1_epi32(1)));
    let is3 = _mm256_castsi256_ps(_mm256_cmpeq_epi32(gain, _mm256_set1_epi32(3)));
    // SAFETY: the caller vouches for the items `i .. i + 8` of all pointers.
    let choose = |planes: &[*const f32; 3]| unsafe {
        let upto1 = _mm256_blendv_ps(_mm256_loadu_ps(planes[0].add(i)), _mm256_loadu_ps(planes[1].add(i)), is1);
        _mm256_blendv_ps(upto1, _mm256_loadu_ps(planes[2].add(i)), is3)
    };
    linear(_mm256_and_si256(words, _mm256_set1_epi32(0x3FFF)), choose(pedestal), choose(factor))
}

/// `(adc - pedestal) * factor`, two roundings.
#[inline]
#[target_feature(enable = "avx2")]
fn linear(adc: __m256i, pedestal: __m256, factor: __m256) -> __m256 {
    _mm256_mul_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(adc), pedestal), factor)
}

#[inline]
#[target_feature(enable = "avx2")]
fn low_half(words: __m256i) -> __m256i {
    _mm256_cvtepu16_epi32(_mm256_castsi256_si128(words))
}

#[inline]
#[target_feature(enable = "avx2")]
fn high_half(words: __m256i) -> __m256i {
    _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(words))
}

/// Clamps at the low end and keeps NaN: `max` returns its second operand when one is NaN.
#[inline]
#[target_feature(enable = "avx2")]
fn at_least(low: f32, value: __m256) -> __m256 {
    _mm256_max_ps(_mm256_set1_ps(low), value)
}

#[inline]
#[target_feature(enable = "avx2")]
fn at_most(high: f32, value: __m256) -> __m256 {
    _mm256_min_ps(_mm256_set1_ps(high), value)
}

impl Finish for i16 {
    /// Saturated is the number above the valid range, and NaN turns into masked (the lowest `i32`, packed), so no blend
    /// is needed. Clamping before rounding gives the same result because both limits are whole numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store_two(low: __m256, high: __m256, out: *mut Self) {
        let whole = |v| _mm256_cvtps_epi32(at_most(Self::SATURATED.into(), at_least(Self::VALID_MIN.into(), v)));
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(whole(low), whole(high)));
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { _mm256_storeu_si256(out.cast(), packed) }
    }
}

impl Finish for u16 {
    /// As for `i16`; NaN becomes 0x8000_0000, which is brought down to the number that means masked.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store_two(low: __m256, high: __m256, out: *mut Self) {
        let whole = |v| {
            let whole = _mm256_cvtps_epi32(at_most(Self::SATURATED.into(), at_least(0.0, v)));
            _mm256_min_epu32(whole, _mm256_set1_epi32(Self::MASKED.into()))
        };
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(whole(low), whole(high)));
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { _mm256_storeu_si256(out.cast(), packed) }
    }
}

/// Stores the two halves as 32-bit pixels.
///
/// # Safety
/// `out` must be valid for writing sixteen pixels of four bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_halves<P>(low: __m256i, high: __m256i, out: *mut P) {
    const { assert!(size_of::<P>() == 4) }
    // SAFETY: the caller vouches for sixteen pixels at `out`.
    unsafe {
        _mm256_storeu_si256(out.cast(), low);
        _mm256_storeu_si256(out.add(8).cast(), high);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn choose(otherwise: __m256i, when: __m256, then: i32) -> __m256i {
    _mm256_blendv_epi8(otherwise, _mm256_set1_epi32(then), _mm256_castps_si256(when))
}

#[inline]
#[target_feature(enable = "avx2")]
fn above(value: __m256, limit: f32) -> __m256 {
    _mm256_cmp_ps::<_CMP_GT_OQ>(value, _mm256_set1_ps(limit))
}

#[inline]
#[target_feature(enable = "avx2")]
fn is_nan(value: __m256) -> __m256 {
    _mm256_cmp_ps::<_CMP_UNORD_Q>(value, value)
}

impl Finish for i32 {
    /// NaN turns into the lowest `i32`, which is masked. A value above the valid range is a whole number, so it need
    /// not be rounded.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store_two(low: __m256, high: __m256, out: *mut Self) {
        let whole = |v| {
            let whole = _mm256_cvtps_epi32(at_least(Self::VALID_MIN as f32, v));
            choose(whole, above(v, Self::VALID_MAX as f32), Self::SATURATED)
        };
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { store_halves(whole(low), whole(high), out) }
    }
}

impl Finish for u32 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store_two(low: __m256, high: __m256, out: *mut Self) {
        let whole = |v| {
            let whole = _mm256_cvtps_epi32(at_least(0.0, v));
            let whole = choose(whole, above(v, Self::VALID_MAX as f32), Self::SATURATED as i32);
            choose(whole, is_nan(v), Self::MASKED as i32)
        };
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { store_halves(whole(low), whole(high), out) }
    }
}

impl Finish for f32 {
    /// Not rounded; every NaN becomes the same NaN.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store_two(low: __m256, high: __m256, out: *mut Self) {
        let whole = |v| choose(_mm256_castps_si256(at_least(Self::VALID_MIN, v)), is_nan(v), Self::MASKED.to_bits() as i32);
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { store_halves(whole(low), whole(high), out) }
    }
}
