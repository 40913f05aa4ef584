//! The loops compiled for AVX2, the unpacking of packed pixels by byte shuffles, and transposition in registers.

use super::sample::{Kind, Overflow, Sample, Total};
use super::transpose::{Square, Turn, by_squares, transpose_rest};
use super::{pixel_loops, totals};
use crate::isa::Isa;
use std::arch::x86_64::*;

/// Compiles the shared loops for one instruction set, so that the compiler vectorises them with it. The loops do no
/// arithmetic that depends on the order of floats, so every set gives the same bits.
macro_rules! compiled_for {
    ($isa:ident, $features:literal) => {
        /// See [`totals::add_row`].
        pub fn add_row<T: Sample>(row: &[u8], sums: &mut [T::Total], kinds: &mut [Kind]) {
            #[target_feature(enable = $features)]
            fn inner<T: Sample>(row: &[u8], sums: &mut [T::Total], kinds: &mut [Kind]) {
                totals::add_row::<T>(row, sums, kinds);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<T>(row, sums, kinds) }
        }

        /// See [`pixel_loops::subtract_plane`].
        pub fn subtract_plane<T: Sample, B: Sample>(image: &[u8], plane: &[B], out: &mut [u8]) {
            #[target_feature(enable = $features)]
            fn inner<T: Sample, B: Sample>(image: &[u8], plane: &[B], out: &mut [u8]) {
                pixel_loops::subtract_plane::<T, B>(image, plane, out);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<T, B>(image, plane, out) }
        }

        /// See [`totals::write_totals`].
        pub fn write_totals<U: Sample, S: Total>(
            totals: (&[S], &[Kind]),
            columns: usize,
            count: u32,
            how: &totals::Bin,
            out: &mut [u8],
        ) {
            #[target_feature(enable = $features)]
            fn inner<U: Sample, S: Total>(
                totals: (&[S], &[Kind]),
                columns: usize,
                count: u32,
                how: &totals::Bin,
                out: &mut [u8],
            ) {
                totals::write_totals::<U, S>(totals, columns, count, how, out);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<U, S>(totals, columns, count, how, out) }
        }

        /// See [`pixel_loops::convert_row`].
        pub fn convert_row<U: Sample, T: Sample>(image: &[u8], overflow: Overflow, out: &mut [u8]) {
            #[target_feature(enable = $features)]
            fn inner<U: Sample, T: Sample>(image: &[u8], overflow: Overflow, out: &mut [u8]) {
                pixel_loops::convert_row::<U, T>(image, overflow, out);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<U, T>(image, overflow, out) }
        }
    };
}
pub(super) use compiled_for;

compiled_for!(Avx2, "avx2");

/// Pixels of a step of [`unpack_words`].
const STEP: usize = 16;

/// Unpacks whole steps of pixels of `BITS` bits (see [`super::packed::unpack`]) and returns the pixels done.
pub fn unpack_words<const BITS: u32>(packed: &[u8], out: &mut [u8]) -> usize {
    assert!(Isa::Avx2.is_available());
    let quarter = BITS as usize / 2;
    // The last load of a step reads 8 bytes from the last four of its pixels on.
    let steps = ((packed.len() + quarter).saturating_sub(8) / (4 * quarter)).min(out.len() / (2 * STEP));
    // SAFETY: AVX2 is available (asserted above). The last step reads up to byte `(4 * steps - 1) * quarter + 8`, which
    // is inside `packed`, and writes up to byte `steps * 32`, which is inside `out`.
    unsafe { unpack_steps::<BITS>(packed.as_ptr(), out.as_mut_ptr(), steps) };
    steps * STEP
}

/// # Safety
/// AVX2 must be available; `(4 * steps - 1) * BITS / 2 + 8` bytes must be readable and `steps * 32` writable.
#[target_feature(enable = "avx2")]
unsafe fn unpack_steps<const BITS: u32>(packed: *const u8, out: *mut u8, steps: usize) {
    let quarter = BITS as usize / 2;
    // Each pixel gets the four bytes from that on in which it begins; bytes that four pixels do not have are 0.
    let spread: [i8; 16] = std::array::from_fn(|n| {
        let byte = n / 4 * BITS as usize / 8 + n % 4;
        if byte < quarter { byte as i8 } else { -128 }
    });
    let begins: [i32; 8] = std::array::from_fn(|n| (n % 4 * BITS as usize % 8) as i32);
    // SAFETY: both arrays are as long as the registers.
    let (spread, begins) = unsafe {
        (_mm256_broadcastsi128_si256(_mm_loadu_si128(spread.as_ptr().cast())), _mm256_loadu_si256(begins.as_ptr().cast()))
    };
    let low = _mm256_set1_epi32((1 << BITS) - 1);
    for step in 0..steps {
        // SAFETY: the caller vouches for the bytes of all steps.
        let fours: [__m128i; 4] =
            std::array::from_fn(|n| unsafe { _mm_loadl_epi64(packed.add((4 * step + n) * quarter).cast()) });
        let wide = |first, second| {
            let words = _mm256_shuffle_epi8(_mm256_set_m128i(second, first), spread);
            _mm256_and_si256(_mm256_srlv_epi32(words, begins), low)
        };
        // Packing takes the lower half of both, then the upper half of both.
        let words = _mm256_packus_epi32(wide(fours[0], fours[2]), wide(fours[1], fours[3]));
        // SAFETY: the caller vouches for the output of all steps.
        unsafe { _mm256_storeu_si256(out.add(step * 2 * STEP).cast(), words) };
    }
}

/// Bytes of a register in which pixels are transposed.
const REGISTER: usize = 16;

/// See [`by_squares`].
pub fn transpose<const N: usize>(
    tile: &[[u8; N]],
    size: (usize, usize),
    image: &mut [[u8; N]],
    lines: (usize, usize),
    turn: Turn,
) {
    assert!(Isa::Avx2.is_available());
    by_squares(tile, size, image, lines, turn, |tile, square, out, edge| {
        let lanes = REGISTER / N;
        let (rows, columns) = (square.rows / lanes * lanes, square.columns / lanes * lanes);
        for row in (0..rows).step_by(lanes) {
            for column in (0..columns).step_by(lanes) {
                // SAFETY: AVX2 is available (asserted above).
                unsafe { registers::<N>(tile, square, (row, column), out, edge) };
            }
        }
        transpose_rest(tile, square, (rows, columns), out, edge);
    });
}

/// Transposes as many rows as a register has pixels. Interleaving row i with row i + n/2 of n rows, log2(n) times,
/// transposes them.
#[target_feature(enable = "avx2")]
fn registers<const N: usize>(tile: &[[u8; N]], square: Square, (row, column): (usize, usize), out: &mut [[u8; N]], edge: usize) {
    let lanes = REGISTER / N;
    let mut rows = [_mm_setzero_si128(); REGISTER];
    for (i, register) in rows[..lanes].iter_mut().enumerate() {
        let line = &tile[square.row(row + i) + column..][..lanes];
        // SAFETY: `lanes` pixels of `N` bytes are the 16 bytes of a register.
        *register = unsafe { _mm_loadu_si128(line.as_ptr().cast()) };
    }
    for _ in 0..lanes.trailing_zeros() {
        let before = rows;
        for i in 0..lanes / 2 {
            let (a, b) = (before[i], before[i + lanes / 2]);
            (rows[2 * i], rows[2 * i + 1]) = match N {
                1 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
                2 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
                4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
                _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
            };
        }
    }
    for (i, register) in rows[..lanes].iter().enumerate() {
        let line = &mut out[(column + i) * edge + row..][..lanes];
        // SAFETY: `lanes` pixels of `N` bytes are the 16 bytes of a register.
        unsafe { _mm_storeu_si128(line.as_mut_ptr().cast(), *register) };
    }
}
