//! Five hundred and twelve elements at a time with AVX-512: the byte permute of VBMI gathers bytes, the 8 x 8 bit
//! matrix of GFNI transposes eight elements at once, and whole registers of a plane are stored.

use super::block::{ElementSize, check};
use super::scalar;
use crate::isa::Isa;
use std::arch::x86_64::*;

/// Elements per step: one register of 64 bytes in each plane.
const STEP: usize = 512;
/// Elements of which a register holds one byte.
const PART: usize = 64;
/// The matrix multiplication takes this as its vectors: byte `j` asks for column `j`.
const COLUMNS: i64 = 0x8040_2010_0804_0201_u64 as i64;

/// Indices for a byte permute.
#[repr(align(64))]
struct Index([u8; 64]);

/// For forward: byte `byte` of 64 elements of `size` bytes, each eight in reverse, from a pair of registers. The upper
/// half of the elements of four bytes lies in a second pair and has the same indices, modulo 128.
const fn gather_index(size: usize, byte: usize) -> Index {
    let mut index = [0; 64];
    let mut at = 0;
    while at < 64 {
        let element = at / 8 * 8 + 7 - at % 8;
        index[at] = ((element * size + byte) % 128) as u8;
        at += 1;
    }
    Index(index)
}

/// For forward: two registers of transposed groups (eight planes for each of eight groups) to four planes of sixteen
/// groups each.
const fn planes_index(first_plane: usize) -> Index {
    let mut index = [0; 64];
    let mut at = 0;
    while at < 64 {
        let (plane, group) = (first_plane + at / 16, at % 16);
        index[at] = (group * 8 + plane) as u8;
        at += 1;
    }
    Index(index)
}

/// For inverse: sixteen bytes of each of eight planes, in two registers, to the groups `first_group ..` with planes in
/// reverse.
const fn groups_index(first_group: usize) -> Index {
    let mut index = [0; 64];
    let mut at = 0;
    while at < 64 {
        let (group, plane) = (first_group + at / 8, 7 - at % 8);
        index[at] = (plane * 16 + group) as u8;
        at += 1;
    }
    Index(index)
}

/// For inverse: interleaves the items `first ..` of two registers; counted in items, for bytes or 16-bit words (then
/// read as such).
const fn weave_index(first: usize, items: usize) -> [u8; 64] {
    let mut index = [0; 64];
    let mut at = 0;
    while at < items {
        index[at] = (first + at / 2 + at % 2 * items) as u8;
        at += 1;
    }
    index
}

static GATHER1: [Index; 1] = [gather_index(1, 0)];
static GATHER2: [Index; 2] = [gather_index(2, 0), gather_index(2, 1)];
static GATHER4: [Index; 4] = [gather_index(4, 0), gather_index(4, 1), gather_index(4, 2), gather_index(4, 3)];
static PLANES: [Index; 2] = [planes_index(0), planes_index(4)];
static GROUPS: [Index; 2] = [groups_index(0), groups_index(8)];
static WEAVE8: [Index; 2] = [Index(weave_index(0, 64)), Index(weave_index(32, 64))];
static WEAVE16: [Index; 2] = [Index(weave_index(0, 32)), Index(weave_index(16, 32))];

#[inline]
#[target_feature(enable = "avx512f")]
fn bytes_of(index: &Index) -> __m512i {
    // SAFETY: an index has 64 bytes and is aligned to 64.
    unsafe { _mm512_load_si512(index.0.as_ptr().cast()) }
}

/// Thirty-two indices, widened to 16 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words_of(index: &Index) -> __m512i {
    // SAFETY: an index has 64 bytes, of which 32 are read.
    _mm512_cvtepu8_epi16(unsafe { _mm256_loadu_si256(index.0.as_ptr().cast()) })
}

/// See [`super::shuffle`].
pub fn shuffle(element: ElementSize, input: &[u8], out: &mut [u8]) {
    check(element, input, out);
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 is available and both slices hold the same whole number of groups of eight elements (both
    // asserted above).
    let done = unsafe {
        match element {
            ElementSize::One => forward::<1>(input, out),
            ElementSize::Two => forward::<2>(input, out),
            ElementSize::Four => forward::<4>(input, out),
            ElementSize::Eight => unreachable!("elements of eight bytes come in halves"),
        }
    };
    scalar::shuffle(element, input, out, done / 8);
}

/// See [`super::unshuffle`].
pub fn unshuffle(element: ElementSize, input: &[u8], out: &mut [u8]) {
    check(element, input, out);
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 is available and both slices hold the same whole number of groups of eight elements (both
    // asserted above).
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

/// Transposes all whole steps and returns how many elements that was.
///
/// # Safety
/// AVX-512 with VBMI and GFNI must be available; both slices must have the length of a block of elements of `E` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni")]
unsafe fn forward<const E: usize>(input: &[u8], out: &mut [u8]) -> usize {
    let count = input.len() / E;
    let plane_bytes = count / 8;
    let whole = count / STEP * STEP;
    let columns = _mm512_set1_epi64(COLUMNS);
    for first in (0..whole).step_by(STEP) {
        for byte in 0..E {
            let part = |i: usize| {
                // SAFETY: `first + STEP <= count`, and part `i < 8` of `PART` elements lies inside the step.
                let reversed = unsafe { gather::<E>(input.as_ptr().add((first + i * PART) * E), byte) };
                _mm512_gf2p8affine_epi64_epi8::<0>(columns, reversed)
            };
            let pairs: [[__m512i; 2]; 4] = std::array::from_fn(|i| [part(2 * i), part(2 * i + 1)]);
            for (half, index) in PLANES.iter().enumerate() {
                let index = bytes_of(index);
                let planes = transpose_quarters(pairs.map(|[a, b]| _mm512_permutex2var_epi8(a, index, b)));
                for (i, plane) in planes.into_iter().enumerate() {
                    let at = (8 * byte + 4 * half + i) * plane_bytes + first / 8;
                    // SAFETY: the plane ends inside `out`, and `first / 8 + 64 <= plane_bytes`.
                    unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), plane) };
                }
            }
        }
    }
    whole
}

/// Byte `byte` of 64 elements, each eight in reverse order.
///
/// # Safety
/// `64 * E` bytes must be readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni")]
unsafe fn gather<const E: usize>(input: *const u8, byte: usize) -> __m512i {
    // SAFETY: the caller vouches for `64 * E` bytes, and `i < E`.
    let load = |i: usize| unsafe { _mm512_loadu_si512(input.add(64 * i).cast()) };
    match E {
        1 => _mm512_permutexvar_epi8(bytes_of(&GATHER1[0]), load(0)),
        2 => _mm512_permutex2var_epi8(load(0), bytes_of(&GATHER2[byte]), load(1)),
        _ => {
            let index = bytes_of(&GATHER4[byte]);
            let low = _mm512_permutex2var_epi8(load(0), index, load(1));
            let high = _mm512_permutex2var_epi8(load(2), index, load(3));
            _mm512_mask_blend_epi32(0xFF00, low, high)
        }
    }
}

/// Transposes a 4 x 4 matrix of 16-byte quarters; its own inverse.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_quarters([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, cd) = (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0x44>(c, d));
    let (ab2, cd2) = (_mm512_shuffle_i64x2::<0xEE>(a, b), _mm512_shuffle_i64x2::<0xEE>(c, d));
    [
        _mm512_shuffle_i64x2::<0x88>(ab, cd),
        _mm512_shuffle_i64x2::<0xDD>(ab, cd),
        _mm512_shuffle_i64x2::<0x88>(ab2, cd2),
        _mm512_shuffle_i64x2::<0xDD>(ab2, cd2),
    ]
}

/// The inverse of [`forward`].
///
/// # Safety
/// As [`forward`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni")]
unsafe fn inverse<const E: usize>(input: &[u8], out: &mut [u8]) -> usize {
    let count = input.len() / E;
    let plane_bytes = count / 8;
    let whole = count / STEP * STEP;
    let columns = _mm512_set1_epi64(COLUMNS);
    for first in (0..whole).step_by(STEP) {
        // parts[i][byte]: that byte of the 64 elements of part i.
        let mut parts = [[_mm512_setzero_si512(); E]; STEP / PART];
        for byte in 0..E {
            let plane = |i: usize| {
                let at = (8 * byte + i) * plane_bytes + first / 8;
                // SAFETY: the plane ends inside `input`, and `first / 8 + 64 <= plane_bytes`.
                unsafe { _mm512_loadu_si512(input.as_ptr().add(at).cast()) }
            };
            let low = transpose_quarters(std::array::from_fn(plane));
            let high = transpose_quarters(std::array::from_fn(|i| plane(i + 4)));
            for (i, part) in parts.iter_mut().enumerate() {
                let groups = _mm512_permutex2var_epi8(low[i / 2], bytes_of(&GROUPS[i % 2]), high[i / 2]);
                part[byte] = _mm512_gf2p8affine_epi64_epi8::<0>(columns, groups);
            }
        }
        for (i, part) in parts.iter().enumerate() {
            // SAFETY: `first + STEP <= count`, and part `i < 8` of `PART` elements lies inside the step.
            unsafe { scatter::<E>(part, out.as_mut_ptr().add((first + i * PART) * E)) };
        }
    }
    whole
}

/// Writes 64 elements, given each of their bytes.
///
/// # Safety
/// `64 * E` bytes must be writable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni")]
unsafe fn scatter<const E: usize>(bytes: &[__m512i; E], out: *mut u8) {
    // SAFETY: the caller vouches for `64 * E` bytes, and `i < E`.
    let store = |i: usize, v| unsafe { _mm512_storeu_si512(out.add(64 * i).cast(), v) };
    let weave = |a, b| WEAVE8.each_ref().map(|index| _mm512_permutex2var_epi8(a, bytes_of(index), b));
    match E {
        1 => store(0, bytes[0]),
        2 => {
            let [low, high] = weave(bytes[0], bytes[1]);
            store(0, low);
            store(1, high);
        }
        _ => {
            let (below, above) = (weave(bytes[0], bytes[1]), weave(bytes[2], bytes[3]));
            for (half, (a, b)) in below.into_iter().zip(above).enumerate() {
                for (i, index) in WEAVE16.iter().enumerate() {
                    store(2 * half + i, _mm512_permutex2var_epi16(a, words_of(index), b));
                }
            }
        }
    }
}
