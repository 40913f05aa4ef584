//! The loops of `scalar.rs`, compiled for AVX2.

use super::matrix::{BinIndex, LANES, Lost, Split, SplitSums, Summed, Whole};
use super::scalar;
use crate::isa::Isa;

/// See [`super::add_whole`].
pub fn add_whole<P: Summed, I: BinIndex>(
    pixels: &[P],
    range: [P; 2],
    matrix: &Whole<'_, I>,
    sums: &mut [[P::Wide; LANES]],
    lost: &mut [Lost],
) {
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available, as asserted above.
    unsafe { whole(pixels, range, matrix, sums, lost) }
}

#[target_feature(enable = "avx2")]
fn whole<P: Summed, I: BinIndex>(
    pixels: &[P],
    range: [P; 2],
    matrix: &Whole<'_, I>,
    sums: &mut [[P::Wide; LANES]],
    lost: &mut [Lost],
) {
    scalar::add_whole(pixels, range, matrix, sums, lost);
}

/// See [`super::add_split`].
pub fn add_split<P: Summed, I: BinIndex, const N: usize>(
    pixels: &[P],
    range: [P; 2],
    matrix: &Split<'_, I>,
    sums: &mut SplitSums<N>,
    lost: &mut [Lost],
) {
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available, as asserted above.
    unsafe { split(pixels, range, matrix, sums, lost) }
}

#[target_feature(enable = "avx2")]
fn split<P: Summed, I: BinIndex, const N: usize>(
    pixels: &[P],
    range: [P; 2],
    matrix: &Split<'_, I>,
    sums: &mut SplitSums<N>,
    lost: &mut [Lost],
) {
    scalar::add_split(pixels, range, matrix, sums, lost);
}
