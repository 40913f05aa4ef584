//! Thirty-two elements at a time with AVX2: gather one byte of each, then one `movemask` per bit.

use super::block::{ElementSize, check};
use super::scalar;
use crate::isa::Isa;
use std::arch::x86_64::*;

/// Elements per step.
const STEP: usize = 32;

/// See [`super::shuffle`].
pub fn shuffle(element: ElementSize, input: &[u8], out: &mut [u8]) {
    check(element, input, out);
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available and both slices hold the same whole number of groups of eight elements (both asserted
    // above).
    unsafe {
        match element {
            ElementSize::One => forward::<1>(input, out),
            ElementSize::Two => forward::<2>(input, out),
            ElementSize::Four => forward::<4>(input, out),
            ElementSize::Eight => unreachable!("elements of eight bytes come in halves"),
        }
    }
    scalar::shuffle(element, input, out, whole_steps(element, input) / 8);
}

/// Elements in whole steps.
fn whole_steps(element: ElementSize, input: &[u8]) -> usize {
    input.len() / element.bytes() / STEP * STEP
}

/// See [`super::unshuffle`].
pub fn unshuffle(element: ElementSize, input: &[u8], out: &mut [u8]) {
    check(element, input, out);
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available and both slices hold the same whole number of groups of eight elements (both asserted
    // above).
    let done = unsafe {
        match element {
            ElementSize::One => inverse::<1>(input, out),
            ElementSize::Two => inverse::<2>(input, out),
            ElementSize::Four => inverse::<4>(input, out),
            ElementSize::Eight => unreachable!("elements of eight bytes come in halves"),
        }
    };
    scalar::unshuffle(element, input, out, done / 8);
}

/// Transposes all whole steps. Counts are small numbers and a masked pixel is a single bit, so most blocks have bits in
/// a few planes only. The OR of the block shows, for each byte, the lowest and the highest plane with bits; the planes
/// outside are filled with 0.
///
/// # Safety
/// AVX2 must be available; both slices must have the length of a block of elements of `E` bytes.
#[target_feature(enable = "avx2")]
unsafe fn forward<const E: usize>(input: &[u8], out: &mut [u8]) {
    let plane_bytes = input.len() / E / 8;
    for (byte, used) in or_of::<E>(input).into_iter().enumerate() {
        let (low, end) = ((used.trailing_zeros() % 8) as usize, 8 - used.leading_zeros() as usize);
        let planes = &mut out[8 * byte * plane_bytes..][..8 * plane_bytes];
        planes[..low * plane_bytes].fill(0);
        planes[end * plane_bytes..].fill(0);
        let planes = &mut planes[low * plane_bytes..];
        // SAFETY: the caller vouches for AVX2 and the lengths; `byte < E`, and `low < end <= 8` unless there is no
        // work.
        unsafe {
            match end - low {
                0 => {}
                1 => planes_of::<E, 1>(input, planes, byte, end),
                2 => planes_of::<E, 2>(input, planes, byte, end),
                3 => planes_of::<E, 3>(input, planes, byte, end),
                4 => planes_of::<E, 4>(input, planes, byte, end),
                5 => planes_of::<E, 5>(input, planes, byte, end),
                6 => planes_of::<E, 6>(input, planes, byte, end),
                7 => planes_of::<E, 7>(input, planes, byte, end),
                _ => planes_of::<E, 8>(input, planes, byte, end),
            }
        }
    }
}

/// The OR of all elements (a block is a multiple of 8 bytes long).
#[target_feature(enable = "avx2")]
fn or_of<const E: usize>(input: &[u8]) -> [u8; E] {
    let (words, _) = input.as_chunks::<8>();
    let word = words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word)).to_le_bytes();
    std::array::from_fn(|byte| (byte..8).step_by(E).fold(0, |all, i| all | word[i]))
}

/// The `PLANES` planes below bit `end` of one byte, to the start of `out`.
///
/// # Safety
/// As [`forward`], and `byte < E`, `PLANES <= end <= 8`; `out` must have room for the planes.
#[target_feature(enable = "avx2")]
unsafe fn planes_of<const E: usize, const PLANES: usize>(input: &[u8], out: &mut [u8], byte: usize, end: usize) {
    let count = input.len() / E;
    let plane_bytes = count / 8;
    let out = out.as_mut_ptr();
    let up = _mm_cvtsi32_si128(8 - end as i32);
    for first in (0..count / STEP * STEP).step_by(STEP) {
        // SAFETY: `first + STEP <= count`, so `STEP * E` bytes can be read from here.
        let bytes = unsafe { gather::<E>(input.as_ptr().add(first * E), byte) };
        // The highest plane moves into the sign bit of each byte, which `movemask` reads. This shifts 16-bit words, but
        // the bits that leave a byte upwards are 0.
        let mut values = _mm256_sll_epi16(bytes, up);
        for plane in (0..PLANES).rev() {
            let word = _mm256_movemask_epi8(values);
            // SAFETY: the plane ends inside `out`, for which the caller vouches, and `first / 8 + 4 <= plane_bytes`.
            unsafe { out.add(plane * plane_bytes + first / 8).cast::<i32>().write_unaligned(word) };
            values = _mm256_add_epi8(values, values);
        }
    }
}

/// Byte `byte` of thirty-two elements.
///
/// # Safety
/// `32 * E` bytes must be readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather<const E: usize>(input: *const u8, byte: usize) -> __m256i {
    // SAFETY: the caller vouches for `32 * E` bytes, and `i < E`.
    let load = |i: usize| unsafe { _mm256_loadu_si256(input.add(32 * i).cast()) };
    let down = _mm_cvtsi32_si128(8 * byte as i32);
    match E {
        1 => load(0),
        2 => {
            let part = |i| _mm256_and_si256(_mm256_srl_epi16(load(i), down), _mm256_set1_epi16(0xFF));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(part(0), part(1)))
        }
        _ => {
            let part = |i| _mm256_and_si256(_mm256_srl_epi32(load(i), down), _mm256_set1_epi32(0xFF));
            let (low, high) = (_mm256_packus_epi32(part(0), part(1)), _mm256_packus_epi32(part(2), part(3)));
            _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
        }
    }
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
    // Byte k of a plane word serves elements 8k .. 8k + 8; a shuffle cannot cross the halves, but every half holds all
    // four bytes.
    let spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    let own_bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    for first in (0..whole).step_by(STEP) {
        let mut bytes = [_mm256_setzero_si256(); E];
        for (byte, values) in bytes.iter_mut().enumerate() {
            for bit in 0..8 {
                let at = (8 * byte + bit) * plane_bytes + first / 8;
                // SAFETY: the plane ends at `(8 * byte + bit + 1) * plane_bytes <= input.len()`, and
                // `first / 8 + 4 <= plane_bytes`.
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

/// The inverse of [`gather`], for all bytes at once.
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
