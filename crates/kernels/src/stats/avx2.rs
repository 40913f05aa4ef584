//! The loops of `scalar.rs`, compiled for AVX2.

use super::number::{Measured, PixelStats};
use super::scalar;
use crate::isa::Isa;
use std::arch::x86_64::*;

/// See [`super::add`].
pub fn add<P: Measured>(pixels: &[P], stats: &mut PixelStats<P::Wide>) {
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available, as asserted above.
    unsafe { compiled(pixels, stats) }
}

#[target_feature(enable = "avx2")]
fn compiled<P: Measured>(pixels: &[P], stats: &mut PixelStats<P::Wide>) {
    scalar::add(pixels, stats, |pixels| sum(pixels));
}

/// The sum of at most a portion. One instruction widens 16 numbers and adds them in pairs, by a product with 1;
/// compilers take three.
#[inline]
#[target_feature(enable = "avx2")]
fn sum(pixels: &[i16]) -> i32 {
    const NUMBERS: usize = 16;
    let mut sums = [_mm256_setzero_si256(); 4];
    let (rows, rest) = pixels.as_chunks::<{ 4 * NUMBERS }>();
    for row in rows {
        for (numbers, sum) in row.as_chunks::<NUMBERS>().0.iter().zip(&mut sums) {
            // SAFETY: as many numbers are read as the array has.
            let numbers = unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) };
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(numbers, _mm256_set1_epi16(1)));
        }
    }
    let both = |a, b| _mm256_add_epi32(a, b);
    let mut lanes = [0i32; NUMBERS / 2];
    // SAFETY: the array is as long as the register.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), both(both(sums[0], sums[1]), both(sums[2], sums[3]))) };
    lanes.iter().sum::<i32>() + scalar::sum(rest)
}
