//! The loops compiled for AVX2, the unpacking of 12 bits by byte shuffles, and transposition in registers.

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

/// Pixels per step.
const STEP: usize = 16;
/// Packed bytes that a step unpacks.
const STEP_BYTES: usize = STEP / 2 * 3;

/// Unpacks whole steps (see [`super::pixels::mono12p`]) and returns the pixels done.
pub fn mono12p(packed: &[u8], out: &mut [u8]) -> usize {
    assert!(Isa::Avx2.is_available());
    // The second load of a step reads 16 bytes from its byte 12 on.
    let steps = (packed.len().saturating_sub(4) / STEP_BYTES).min(out.len() / (2 * STEP));
    // SAFETY: AVX2 is available (asserted above); the last step reads up to byte `steps * 24 + 4`, which is inside
    // `packed`, and writes up to byte `steps * 32`, which is inside `out`.
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
        // SAFETY: the caller vouches for the output of all steps.
        unsafe { _mm256_storeu_si256(out.add(step * 2 * STEP).cast(), _mm256_blend_epi16::<0xAA>(even, odd)) };
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
