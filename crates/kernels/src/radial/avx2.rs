//! Eight pixels at a time with AVX2.

use super::portion::{self, Out, PORTION, Whole};
use super::window::{SLOTS, Window};
use crate::isa::Isa;
use std::arch::x86_64::*;

/// See [`super::count`].
pub fn count<W: Whole>(pixels: &[W], rings: &[u16], window: &Window, out: &mut Out<'_>) {
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 with the bit instructions is available, as asserted above.
    unsafe { compiled(pixels, rings, window, out) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn compiled<W: Whole>(pixels: &[W], rings: &[u16], window: &Window, out: &mut Out<'_>) {
    portion::count(pixels, rings, out, |words, rings, at| places(words, rings, window, at));
}

/// See [`portion::place`]; `a <= b` of unsigned numbers is `min(a, b) == a`.
#[inline]
#[target_feature(enable = "avx2")]
fn places(words: &[u32; PORTION], rings: &[u16; PORTION], window: &Window, at: &mut [u32; PORTION]) -> u64 {
    let all = |value: u32| _mm256_set1_epi32(value.cast_signed());
    let [low, span, base, cut, last] = [window.low, window.span, window.base, window.cut, SLOTS as u32 - 1].map(all);
    let mut listed = 0;
    for n in 0..PORTION / 8 {
        // SAFETY: 8 words and 8 rings from position `8 n` on lie within the arrays of 64.
        let (word, ring) = unsafe {
            let ring = _mm_loadu_si128(rings.as_ptr().add(8 * n).cast());
            (_mm256_loadu_si256(words.as_ptr().add(8 * n).cast()), _mm256_cvtepu16_epi32(ring))
        };
        let above_low = _mm256_sub_epi32(word, low);
        let is_valid = _mm256_cmpeq_epi32(_mm256_min_epu32(above_low, span), above_low);
        let is_unused = _mm256_cmpeq_epi32(ring, _mm256_setzero_si256());
        let is_used = _mm256_andnot_si256(is_unused, is_valid);
        let above = _mm256_sub_epi32(word, base);
        let slot = _mm256_min_epu32(above, last);
        let place = _mm256_and_si256(_mm256_add_epi32(_mm256_slli_epi32::<8>(ring), slot), is_used);
        let is_listed = _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_max_epu32(above, cut), above), is_used);
        let bits = _mm256_movemask_ps(_mm256_castsi256_ps(is_listed)).cast_unsigned();
        listed |= u64::from(bits) << (8 * n);
        // SAFETY: 8 places from position `8 n` on lie within the array of 64.
        unsafe { _mm256_storeu_si256(at.as_mut_ptr().add(8 * n).cast(), place) };
    }
    listed
}

const _: () = assert!(SLOTS == 1 << 8, "the shift above");
