//! Sixteen pixels at a time with AVX-512.

use super::portion::{self, Out, PORTION, Whole};
use super::window::{SLOTS, Window};
use crate::isa::Isa;
use std::arch::x86_64::*;

/// See [`super::count`].
pub fn count<W: Whole>(pixels: &[W], rings: &[u16], window: &Window, out: &mut Out<'_>) {
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 and what AVX2 brings are available, as asserted above.
    unsafe { compiled(pixels, rings, window, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt")]
fn compiled<W: Whole>(pixels: &[W], rings: &[u16], window: &Window, out: &mut Out<'_>) {
    portion::count(pixels, rings, out, |words, rings, at| places(words, rings, window, at));
}

/// See [`portion::place`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn places(words: &[u32; PORTION], rings: &[u16; PORTION], window: &Window, at: &mut [u32; PORTION]) -> u64 {
    let all = |value: u32| _mm512_set1_epi32(value.cast_signed());
    let [low, span, base, cut, last] = [window.low, window.span, window.base, window.cut, SLOTS as u32 - 1].map(all);
    let mut listed = 0;
    for n in 0..PORTION / 16 {
        // SAFETY: 16 words and 16 rings from position `16 n` on lie within the arrays of 64.
        let (word, ring) = unsafe {
            let ring = _mm256_loadu_si256(rings.as_ptr().add(16 * n).cast());
            (_mm512_loadu_si512(words.as_ptr().add(16 * n).cast()), _mm512_cvtepu16_epi32(ring))
        };
        let is_usable = _mm512_test_epi32_mask(ring, ring);
        let is_used = _mm512_mask_cmple_epu32_mask(is_usable, _mm512_sub_epi32(word, low), span);
        let above = _mm512_sub_epi32(word, base);
        let slot = _mm512_min_epu32(above, last);
        let place = _mm512_maskz_add_epi32(is_used, _mm512_slli_epi32::<8>(ring), slot);
        let is_listed = _mm512_mask_cmpge_epu32_mask(is_used, above, cut);
        listed |= u64::from(is_listed) << (16 * n);
        // SAFETY: 16 places from position `16 n` on lie within the array of 64.
        unsafe { _mm512_storeu_si512(at.as_mut_ptr().add(16 * n).cast(), place) };
    }
    listed
}

const _: () = assert!(SLOTS == 1 << 8, "the shift above");
