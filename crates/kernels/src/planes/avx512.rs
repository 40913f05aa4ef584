//! Sixty-four bytes at a time with AVX-512.

use super::lz4_write;
use super::repeats::{Repeats, WORD_BYTES, ones};
use crate::isa::Isa;
use std::arch::x86_64::*;

/// See [`super::by_isa::find`].
pub fn find<const RUN: usize>(repeats: &mut Repeats, block: &[u8], plane_bytes: usize) {
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 is available, as asserted above.
    unsafe { compiled::<RUN>(repeats, block, plane_bytes) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn compiled<const RUN: usize>(repeats: &mut Repeats, block: &[u8], plane_bytes: usize) {
    repeats.find::<RUN>(block, plane_bytes, |block, distance, first, words| {
        assert!(first >= distance || words.is_empty(), "every byte has one before it");
        assert!(words.is_empty() || first + WORD_BYTES * words.len() <= block.len(), "words are whole");
        for (index, word) in words.iter_mut().enumerate() {
            let at = first + WORD_BYTES * index;
            // SAFETY: AVX-512 is available where this is compiled for it; `at >= distance` and `at + 64 <=
            // block.len()`, as asserted above.
            *word = unsafe { equal(block.as_ptr().add(at), distance) };
        }
    });
}

/// See [`super::by_isa::count`].
pub fn count(words: &[u64]) -> usize {
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 is available, as asserted above.
    unsafe { compiled_count(words) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn compiled_count(words: &[u64]) -> usize {
    ones(words)
}

/// See [`super::by_isa::write_lz4`].
pub fn write_lz4(repeats: &Repeats, block: &[u8], plane_bytes: usize, out: &mut [u8]) -> usize {
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 with the bit instructions is available, as asserted above.
    unsafe { compiled_write_lz4(repeats, block, plane_bytes, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt")]
fn compiled_write_lz4(repeats: &Repeats, block: &[u8], plane_bytes: usize, out: &mut [u8]) -> usize {
    lz4_write::write(repeats, block, plane_bytes, out)
}

/// Which of 64 bytes are equal to the one `distance` bytes before them.
///
/// # Safety
/// AVX-512 F and BW must be available; the bytes from `distance` before `bytes` to 64 behind it must be readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn equal(bytes: *const u8, distance: usize) -> u64 {
    // SAFETY: the caller vouches for these bytes.
    unsafe { _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(bytes.cast()), _mm512_loadu_si512(bytes.sub(distance).cast())) }
}
