//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use super::number::{Measured, PixelStats};

/// See [`super::add`]; `sum_of_16` gives the sum of at most a portion.
#[inline(always)]
pub fn add<P: Measured>(pixels: &[P], stats: &mut PixelStats<P::Wide>, sum_of_16: impl Fn(&[i16]) -> i32) {
    for portion in pixels.chunks(P::PORTION) {
        P::add(portion, stats, &sum_of_16);
    }
}

/// The sum of at most a portion.
#[inline(always)]
pub fn sum(pixels: &[i16]) -> i32 {
    let mut sum = 0;
    for &pixel in pixels {
        sum += i32::from(pixel);
    }
    sum
}
