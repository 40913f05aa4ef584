//! The loops compiled for AVX2, and the unpacking of 12 bits by byte shuffles.

use super::sample::{Kind, Sample};
use super::{bin, pixels, place};
use crate::isa::Isa;
use std::arch::x86_64::*;

super::compiled_for!(Avx2, "avx2");

/// Pixels per step.
const STEP: usize = 16;
/// Bytes that a step takes.
const STEP_BYTES: usize = STEP / 2 * 3;

/// Unpacks whole steps (see [`pixels::mono12p`]) and returns the pixels done.
pub fn mono12p(packed: &[u8], out: &mut [u8]) -> usize {
    assert!(Isa::Avx2.is_available());
    // The second load of a step reads 16 bytes from its byte 12 on.
    let steps = (packed.len().saturating_sub(4) / STEP_BYTES).min(out.len() / (2 * STEP));
    // SAFETY: AVX2 is available (asserted above); the last step reads up to byte `steps * 24 + 4`, which is inside `packed`, and writes
    // up to byte `steps * 32`, which is inside `out`.
    unsafe { mono12p_steps(packed.as_ptr(), out.as_mut_ptr(), steps) };
    steps * STEP
}

/// # Safety
/// AVX2 must be available; `steps * 24 + 4` bytes must be readable and `steps * 32` writable.
#[target_feature(enable = "avx2")]
unsafe fn mono12p_steps(packed: *const u8, out: *mut u8, steps: usize) {
    // Each pixel gets the two bytes in which it lies; the odd ones lie four bits higher.
    let spread = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11));
    let low = _mm256_set1_epi16(0xFFF);
    for step in 0..steps {
        // SAFETY: the caller vouches for the bytes of all steps.
        let (first, second) = unsafe {
            let at = packed.add(step * STEP_BYTES);
            (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(12).cast()))
        };
        let pairs = _mm256_shuffle_epi8(_mm256_set_m128i(second, first), spread);
        let even = _mm256_and_si256(pairs, low);
        let odd = _mm256_srli_epi16::<4>(pairs);
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(out.add(step * 2 * STEP).cast(), _mm256_blend_epi16::<0xAA>(even, odd)) };
    }
}
