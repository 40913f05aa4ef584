//! Thirty-two words at a time with AVX-512.

use super::constants::Constants;
use super::scalar;
use super::tracker::{Drift, Tracker};
use crate::isa::Isa;
use konkordia_core::pixel::Pixel;
use std::arch::x86_64::*;

/// Words per step.
const LANES: usize = 32;

/// The last step of a conversion: sixteen values in photons to sixteen pixels, by the rules of `Pixel::from_photons`.
pub trait Finish: Pixel {
    /// Rounds, clamps, saturates and stores sixteen values.
    ///
    /// # Safety
    /// AVX-512 F, BW, DQ and VL must be available and `out` must be valid for writing sixteen pixels.
    unsafe fn store16(value: __m512, out: *mut Self);
}

/// See [`super::jungfrau`], which has checked that all slices have the length of `raw`.
pub fn jungfrau<P: Finish>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    split::<P, false>(raw, constants, out);
}

/// The baseline for comparison: selects among the constants of all stages for every pixel.
pub fn jungfrau_select<P: Finish>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    split::<P, true>(raw, constants, out);
}

/// Whole steps with AVX-512, the rest with the reference.
fn split<P: Finish, const SELECT: bool>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    assert!(Isa::Avx512.is_available() && out.len() == raw.len());
    constants.check(raw.len());
    let whole = raw.len() / LANES * LANES;
    // SAFETY: AVX-512 is available and all slices hold at least `whole` items (asserted above).
    unsafe {
        run::<P, SELECT>(
            raw.as_ptr(),
            &constants.pedestal.map(<[f32]>::as_ptr),
            &constants.factor.map(<[f32]>::as_ptr),
            out.as_mut_ptr(),
            whole,
        )
    };
    scalar::jungfrau(&raw[whole..], &constants.slice(whole, raw.len() - whole), &mut out[whole..]);
}

/// # Safety
/// AVX-512 must be available; all pointers must be valid for `count` items, a multiple of [`LANES`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run<P: Finish, const SELECT: bool>(
    raw: *const u16,
    pedestal: &[*const f32; 3],
    factor: &[*const f32; 3],
    out: *mut P,
    count: usize,
) {
    let gain_bits = _mm512_set1_epi16(0xC000u16 as i16);
    for i in (0..count).step_by(LANES) {
        // SAFETY: `i + LANES <= count`, for which the caller vouches.
        unsafe {
            let words = _mm512_loadu_si512(raw.add(i).cast());
            if SELECT {
                select(words, pedestal, factor, i, out);
            } else if _mm512_test_epi16_mask(words, gain_bits) == 0 {
                let low = linear(low_half(words), _mm512_loadu_ps(pedestal[0].add(i)), _mm512_loadu_ps(factor[0].add(i)));
                let high =
                    linear(high_half(words), _mm512_loadu_ps(pedestal[0].add(i + 16)), _mm512_loadu_ps(factor[0].add(i + 16)));
                P::store16(low, out.add(i));
                P::store16(high, out.add(i + 16));
            } else {
                switched(words, pedestal, factor, i, out);
            }
        }
    }
}

/// See [`super::tracking::jungfrau_tracking`], which does the rest; returns the number of words done, a multiple of
/// [`LANES`].
pub fn jungfrau_tracking<P: Finish>(raw: &[u16], constants: &Constants<'_>, tracker: &mut Tracker<'_>, out: &mut [P]) -> usize {
    assert!(Isa::Avx512.is_available() && out.len() == raw.len());
    constants.check(raw.len());
    tracker.check(raw.len());
    let whole = raw.len() / LANES * LANES;
    let drift = Drift::of(tracker);
    let pedestal = [drift.pedestal.cast_const(), constants.pedestal[1].as_ptr(), constants.pedestal[2].as_ptr()];
    // SAFETY: AVX-512 is available and all slices hold at least `whole` items (asserted above); nothing else uses the
    // pedestals meanwhile.
    unsafe { run_tracking(raw.as_ptr(), &pedestal, &constants.factor.map(<[f32]>::as_ptr), &drift, out.as_mut_ptr(), whole) };
    whole
}

/// See [`super::tracking::jungfrau_track_only`], which does the rest; returns the number of words done, a multiple of
/// [`LANES`].
pub fn jungfrau_track_only(raw: &[u16], tracker: &mut Tracker<'_>) -> usize {
    assert!(Isa::Avx512.is_available());
    tracker.check(raw.len());
    let whole = raw.len() / LANES * LANES;
    let drift = Drift::of(tracker);
    // SAFETY: AVX-512 is available and all slices hold at least `whole` items (asserted above).
    unsafe { run_track_only(raw.as_ptr(), &drift, whole) };
    whole
}

impl Drift {
    /// Moves sixteen pedestals by those words that `lanes` selects (the ones in G0). Returns the distance of every word
    /// from its pedestal as it was before.
    ///
    /// # Safety
    /// AVX-512 must be available; the pointers must be valid for the items `i .. i + 16`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn step16(&self, adc: __m512i, i: usize, lanes: __mmask16) -> __m512 {
        // SAFETY: the caller vouches for the items `i .. i + 16`.
        unsafe {
            let before = _mm512_loadu_ps(self.pedestal.add(i));
            let distance = _mm512_sub_ps(_mm512_cvtepi32_ps(adc), before);
            let gate = _mm512_loadu_ps(self.gate.add(i));
            let moves = _mm512_mask_cmp_ps_mask::<_CMP_LE_OQ>(lanes, _mm512_abs_ps(distance), gate);
            let by = _mm512_mul_ps(distance, _mm512_set1_ps(self.weight));
            _mm512_storeu_ps(self.pedestal.add(i), _mm512_mask_add_ps(before, moves, before, by));
            distance
        }
    }
}

/// # Safety
/// AVX-512 must be available; all pointers must be valid for `count` items, a multiple of [`LANES`]; `pedestal[0]` is
/// that of `drift`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run_tracking<P: Finish>(
    raw: *const u16,
    pedestal: &[*const f32; 3],
    factor: &[*const f32; 3],
    drift: &Drift,
    out: *mut P,
    count: usize,
) {
    let gain_bits = _mm512_set1_epi16(0xC000u16 as i16);
    for i in (0..count).step_by(LANES) {
        // SAFETY: `i + LANES <= count`, for which the caller vouches.
        unsafe {
            let words = _mm512_loadu_si512(raw.add(i).cast());
            let in_g0 = _mm512_testn_epi16_mask(words, gain_bits);
            if in_g0 == u32::MAX {
                // The factors are loaded before the pedestals are stored: planes often lie a multiple of 4 KiB apart,
                // where a load waits for a store.
                let (low, high) = (_mm512_loadu_ps(factor[0].add(i)), _mm512_loadu_ps(factor[0].add(i + 16)));
                let low = _mm512_mul_ps(drift.step16(low_half(words), i, u16::MAX), low);
                let high = _mm512_mul_ps(drift.step16(high_half(words), i + 16, u16::MAX), high);
                P::store16(low, out.add(i));
                P::store16(high, out.add(i + 16));
            } else {
                switched(words, pedestal, factor, i, out);
                drift.step16(low_half(words), i, in_g0 as u16);
                drift.step16(high_half(words), i + 16, (in_g0 >> 16) as u16);
            }
        }
    }
}

/// # Safety
/// AVX-512 must be available; all pointers must be valid for `count` items, a multiple of [`LANES`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run_track_only(raw: *const u16, drift: &Drift, count: usize) {
    for i in (0..count).step_by(LANES) {
        // SAFETY: `i + LANES <= count`, for which the caller vouches.
        unsafe {
            let words = _mm512_loadu_si512(raw.add(i).cast());
            let in_g0 = _mm512_testn_epi16_mask(words, _mm512_set1_epi16(0xC000u16 as i16));
            drift.step16(low_half(words), i, in_g0 as u16);
            drift.step16(high_half(words), i + 16, (in_g0 >> 16) as u16);
        }
    }
}

/// Thirty-two words of which at least one has a gain bit set; a separate function, to keep the common loop small.
///
/// # Safety
/// As [`run`], for the items `i .. i + LANES`.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn switched<P: Finish>(words: __m512i, pedestal: &[*const f32; 3], factor: &[*const f32; 3], i: usize, out: *mut P) {
    // SAFETY: the caller vouches for the items `i .. i + LANES` of all pointers.
    unsafe { select(words, pedestal, factor, i, out) }
}

/// Thirty-two words with the constants of the stage of each.
///
/// # Safety
/// As [`run`], for the items `i .. i + LANES`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn select<P: Finish>(words: __m512i, pedestal: &[*const f32; 3], factor: &[*const f32; 3], i: usize, out: *mut P) {
    // SAFETY: the caller vouches for the items `i .. i + LANES` of all pointers.
    unsafe {
        P::store16(by_stage(low_half(words), pedestal, factor, i), out.add(i));
        P::store16(by_stage(high_half(words), pedestal, factor, i + 16), out.add(i + 16));
    }
    let mut special = special_lanes(words);
    if special == 0 {
        return;
    }
    let mut all = [0u16; LANES];
    // SAFETY: the array has the 64 bytes of the register.
    unsafe { _mm512_storeu_si512(all.as_mut_ptr().cast(), words) };
    while special != 0 {
        let lane = special.trailing_zeros() as usize;
        special &= special - 1;
        // SAFETY: `lane < LANES`, so the item lies inside what the caller vouches for.
        unsafe { *out.add(i + lane) = scalar::special(all[lane], *pedestal[0].add(i + lane), *factor[0].add(i + lane)) };
    }
}

/// One bit for each lane that holds a special word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn special_lanes(words: __m512i) -> u32 {
    let is = |value: u16| _mm512_cmpeq_epi16_mask(words, _mm512_set1_epi16(value as i16));
    let gain = _mm512_and_si512(words, _mm512_set1_epi16(0xC000u16 as i16));
    let illegal = _mm512_cmpeq_epi16_mask(gain, _mm512_set1_epi16(0x8000u16 as i16));
    is(0xFFFF) | is(0xC000) | is(0x4000) | illegal
}

/// Sixteen words converted with the constants of the stage of each.
///
/// # Safety
/// All pointers must be valid for reading the items `i .. i + 16`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn by_stage(words: __m512i, pedestal: &[*const f32; 3], factor: &[*const f32; 3], i: usize) -> __m512 {
    let gain = _mm512_srli_epi32::<14>(words);
    let is1 = _mm512_cmpeq_epi32_mask(gain, _mm512_set1_epi32(1));
    let is3 = _mm512_cmpeq_epi32_mask(gain, _mm512_set1_epi32(3));
    // SAFETY: the caller vouches for the items `i .. i + 16` of all pointers.
    let choose = |planes: &[*const f32; 3]| unsafe {
        let upto1 = _mm512_mask_loadu_ps(_mm512_loadu_ps(planes[0].add(i)), is1, planes[1].add(i));
        _mm512_mask_loadu_ps(upto1, is3, planes[2].add(i))
    };
    linear(_mm512_and_si512(words, _mm512_set1_epi32(0x3FFF)), choose(pedestal), choose(factor))
}

/// `(adc - pedestal) * factor`, two roundings.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn linear(adc: __m512i, pedestal: __m512, factor: __m512) -> __m512 {
    _mm512_mul_ps(_mm512_sub_ps(_mm512_cvtepi32_ps(adc), pedestal), factor)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn low_half(words: __m512i) -> __m512i {
    _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn high_half(words: __m512i) -> __m512i {
    _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64::<1>(words))
}

/// Clamps at the low end and keeps NaN: `max` returns its second operand when one is NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn at_least(low: f32, value: __m512) -> __m512 {
    _mm512_max_ps(_mm512_set1_ps(low), value)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn at_most(high: f32, value: __m512) -> __m512 {
    _mm512_min_ps(_mm512_set1_ps(high), value)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn choose(otherwise: __m512i, when: __mmask16, then: i32) -> __m512i {
    _mm512_mask_mov_epi32(otherwise, when, _mm512_set1_epi32(then))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn above(value: __m512, limit: f32) -> __mmask16 {
    _mm512_cmp_ps_mask::<_CMP_GT_OQ>(value, _mm512_set1_ps(limit))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn is_nan(value: __m512) -> __mmask16 {
    _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value)
}

impl Finish for i16 {
    /// Saturated is the number above the valid range, and NaN turns into masked (the lowest `i32`, packed), so no blend
    /// is needed. Clamping before rounding gives the same result because both limits are whole numbers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store16(value: __m512, out: *mut Self) {
        let whole = _mm512_cvtps_epi32(at_most(Self::SATURATED.into(), at_least(Self::VALID_MIN.into(), value)));
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { _mm256_storeu_si256(out.cast(), _mm512_cvtsepi32_epi16(whole)) }
    }
}

impl Finish for u16 {
    /// As for `i16`; NaN becomes 0x8000_0000, which is brought down to the number that means masked.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store16(value: __m512, out: *mut Self) {
        let whole = _mm512_cvtps_epi32(at_most(Self::SATURATED.into(), at_least(0.0, value)));
        let whole = _mm512_min_epu32(whole, _mm512_set1_epi32(Self::MASKED.into()));
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { _mm256_storeu_si256(out.cast(), _mm512_cvtepi32_epi16(whole)) }
    }
}

impl Finish for i32 {
    /// NaN turns into the lowest `i32`, which is masked. A value above the valid range is a whole number, so it need
    /// not be rounded.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store16(value: __m512, out: *mut Self) {
        let whole = _mm512_cvtps_epi32(at_least(Self::VALID_MIN as f32, value));
        let pixels = choose(whole, above(value, Self::VALID_MAX as f32), Self::SATURATED);
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { _mm512_storeu_si512(out.cast(), pixels) }
    }
}

impl Finish for u32 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store16(value: __m512, out: *mut Self) {
        let whole = _mm512_cvtps_epi32(at_least(0.0, value));
        let whole = choose(whole, above(value, Self::VALID_MAX as f32), Self::SATURATED as i32);
        let pixels = choose(whole, is_nan(value), Self::MASKED as i32);
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { _mm512_storeu_si512(out.cast(), pixels) }
    }
}

impl Finish for f32 {
    /// Not rounded; every NaN becomes the same NaN.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store16(value: __m512, out: *mut Self) {
        let clamped = _mm512_castps_si512(at_least(Self::VALID_MIN, value));
        let pixels = choose(clamped, is_nan(value), Self::MASKED.to_bits() as i32);
        // SAFETY: the caller vouches for sixteen pixels at `out`.
        unsafe { _mm512_storeu_si512(out.cast(), pixels) }
    }
}
