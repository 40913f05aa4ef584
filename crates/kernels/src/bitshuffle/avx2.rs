//! Thirty-two elements at a time with AVX2: gather one byte of each, then one `movemask` per bit.

use super::{ElementSize, scalar};
use crate::isa::Isa;
use std::arch::x86_64::*;

/// Elements per step.
const STEP: usize = 32;

/// See [`super::shuffle`].
pub fn shuffle(element: ElementSize, input: &[u8], out: &mut [u8]) {
    super::check(element, input, out);
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available and both slices hold the same whole number of groups of eight elements (both asserted above).
    let done = unsafe {
        match element {
            ElementSize::One => forward::<1>(input, out),
            ElementSize::Two => forward::<2>(input, out),
            ElementSize::Four => forward::<4>(input, out),
        }
    };
    scalar::shuffle(element, input, out, done / 8);
}

/// See [`super::unshuffle`].
pub fn unshuffle(element: ElementSize, input: &[u8], out: &mut [u8]) {
    super::check(element, input, out);
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available and both slices hold the same whole number of groups of eight elements (both asserted above).
    let done = unsafe {
        match element {
            ElementSize::One => inverse::<1>(input, out),
            ElementSize::Two => inverse::<2>(input, out),
            ElementSize::Four => inverse::<4>(input, out),
        }
    };
    scalar::unshuffle(element, input, out, done / 8);
}

/// Transposes all whole steps and returns how many elements that was.
///
/// # Safety
/// AVX2 must be available; both slices must have the length of a block of elements of `E` bytes.
#[target_feature(enable = "avx2")]
unsafe fn forward<const E: usize>(input: &[u8], out: &mut [u8]) -> usize {
    let count = input.len() / E;
    let plane_bytes = count / 8;
    let whole = count / STEP * STEP;
    for first in (0..whole).step_by(STEP) {
        // SAFETY: `first + STEP <= count`, so `STEP * E` bytes can be read from here.
        let bytes = unsafe { gather::<E>(input.as_ptr().add(first * E)) };
        for (byte, mut values) in bytes.into_iter().enumerate() {
            for bit in (0..8).rev() {
                let word = _mm256_movemask_epi8(values);
                let at = (8 * byte + bit) * plane_bytes + first / 8;
                // SAFETY: the plane ends at `(8 * byte + bit + 1) * plane_bytes <= out.len()`, and `first / 8 + 4 <= plane_bytes`.
                unsafe { out.as_mut_ptr().add(at).cast::<i32>().write_unaligned(word) };
                values = _mm256_add_epi8(values, values);
            }
        }
    }
    whole
}

/// Byte `b` of thirty-two elements, for each `b`.
///
/// # Safety
/// `32 * E` bytes must be readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather<const E: usize>(input: *const u8) -> [__m256i; E] {
    // SAFETY: the caller vouches for `32 * E` bytes, and `i < E`.
    let load = |i: usize| unsafe { _mm256_loadu_si256(input.add(32 * i).cast()) };
    let mut bytes = [_mm256_setzero_si256(); E];
    match E {
        1 => bytes[0] = load(0),
        2 => {
            let (a, b, low) = (load(0), load(1), _mm256_set1_epi16(0xFF));
            let even = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
            let odd = _mm256_packus_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
            bytes[0] = _mm256_permute4x64_epi64::<0b11_01_10_00>(even);
            bytes[1] = _mm256_permute4x64_epi64::<0b11_01_10_00>(odd);
        }
        _ => {
            let lane = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let by_byte = _mm256_broadcastsi128_si256(lane);
            let group = |i| _mm256_shuffle_epi8(load(i), by_byte);
            let (a, b, c, d) = (group(0), group(1), group(2), group(3));
            let (ab, ab2) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            let (cd, cd2) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
            let in_order = |v| _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            bytes[0] = in_order(_mm256_unpacklo_epi64(ab, cd));
            bytes[1] = in_order(_mm256_unpackhi_epi64(ab, cd));
            bytes[2] = in_order(_mm256_unpacklo_epi64(ab2, cd2));
            bytes[3] = in_order(_mm256_unpackhi_epi64(ab2, cd2));
        }
    }
    bytes
}

/// The inverse of [`forward`].
///
/// # Safety
/// As [`forward`].
#[target_feature(enable = "avx2")]
unsafe fn inverse<const E: usize>(input: &[u8], out: &mut [u8]) -> usize {
    let count = input.len() / E;
    let plane_bytes = count / 8;
    let whole = count / STEP * STEP;
    // Byte k of a plane word serves elements 8k .. 8k + 8; a shuffle cannot cross the halves, but every half holds all four bytes.
    let spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    let own_bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    for first in (0..whole).step_by(STEP) {
        let mut bytes = [_mm256_setzero_si256(); E];
        for (byte, values) in bytes.iter_mut().enumerate() {
            for bit in 0..8 {
                let at = (8 * byte + bit) * plane_bytes + first / 8;
                // SAFETY: the plane ends at `(8 * byte + bit + 1) * plane_bytes <= input.len()`, and `first / 8 + 4 <= plane_bytes`.
                let word = unsafe { input.as_ptr().add(at).cast::<i32>().read_unaligned() };
                let mine = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), spread), own_bit);
                let value = _mm256_and_si256(_mm256_cmpeq_epi8(mine, own_bit), _mm256_set1_epi8((1u8 << bit) as i8));
                *values = _mm256_or_si256(*values, value);
            }
        }
        // SAFETY: `first + STEP <= count`, so `STEP * E` bytes can be written from here.
        unsafe { scatter::<E>(&bytes, out.as_mut_ptr().add(first * E)) };
    }
    whole
}

/// The inverse of [`gather`].
///
/// # Safety
/// `32 * E` bytes must be writable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn scatter<const E: usize>(bytes: &[__m256i; E], out: *mut u8) {
    // SAFETY: the caller vouches for `32 * E` bytes, and `i < E`.
    let store = |i: usize, v| unsafe { _mm256_storeu_si256(out.add(32 * i).cast(), v) };
    match E {
        1 => store(0, bytes[0]),
        2 => {
            let (low, high) = (_mm256_unpacklo_epi8(bytes[0], bytes[1]), _mm256_unpackhi_epi8(bytes[0], bytes[1]));
            store(0, _mm256_permute2x128_si256::<0x20>(low, high));
            store(1, _mm256_permute2x128_si256::<0x31>(low, high));
        }
        _ => {
            let (a, b) = (_mm256_unpacklo_epi8(bytes[0], bytes[1]), _mm256_unpackhi_epi8(bytes[0], bytes[1]));
            let (c, d) = (_mm256_unpacklo_epi8(bytes[2], bytes[3]), _mm256_unpackhi_epi8(bytes[2], bytes[3]));
            let (ac, ac2) = (_mm256_unpacklo_epi16(a, c), _mm256_unpackhi_epi16(a, c));
            let (bd, bd2) = (_mm256_unpacklo_epi16(b, d), _mm256_unpackhi_epi16(b, d));
            store(0, _mm256_permute2x128_si256::<0x20>(ac, ac2));
            store(1, _mm256_permute2x128_si256::<0x20>(bd, bd2));
            store(2, _mm256_permute2x128_si256::<0x31>(ac, ac2));
            store(3, _mm256_permute2x128_si256::<0x31>(bd, bd2));
        }
    }
}
