//! The loops of `scalar.rs`, compiled for AVX-512.

use super::scalar;
use super::sums::{RegionSums, Stretch};
use crate::isa::Isa;
use crate::stats::Measured;

/// See [`super::sum`].
pub fn sum<P: Measured>(pixels: &[P], columns: usize, stretches: &[Stretch], range: (P, P)) -> RegionSums {
    assert!(Isa::Avx512.is_available());
    // SAFETY: the instructions are available, as asserted above.
    unsafe { compiled(pixels, columns, stretches, range) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn compiled<P: Measured>(pixels: &[P], columns: usize, stretches: &[Stretch], range: (P, P)) -> RegionSums {
    scalar::sum(pixels, columns, stretches, range)
}
