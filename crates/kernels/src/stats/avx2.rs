//! The loops of `scalar.rs`, compiled for AVX2.

use super::number::{Measured, PixelStats};
use super::scalar;
use crate::isa::Isa;

/// See [`super::add`].
pub fn add<P: Measured>(pixels: &[P], stats: &mut PixelStats<P::Wide>) {
    assert!(Isa::Avx2.is_available());
    // SAFETY: AVX2 is available, as asserted above.
    unsafe { compiled(pixels, stats) }
}

#[target_feature(enable = "avx2")]
fn compiled<P: Measured>(pixels: &[P], stats: &mut PixelStats<P::Wide>) {
    scalar::add(pixels, stats);
}

/// See [`super::add_within`].
pub fn add_within<P: Measured>(pixels: &[P], usable: &[bool], range: (P, P), stats: &mut PixelStats<P::Wide>) {
    assert!(Isa::Avx2.is_available());
    // SAFETY: the instructions are available, as asserted above.
    unsafe { compiled_within(pixels, usable, range, stats) }
}

#[target_feature(enable = "avx2")]
fn compiled_within<P: Measured>(pixels: &[P], usable: &[bool], range: (P, P), stats: &mut PixelStats<P::Wide>) {
    scalar::add_within(pixels, usable, range, stats);
}
