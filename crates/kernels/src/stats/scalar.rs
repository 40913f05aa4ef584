//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use super::number::{Measured, PORTION, PixelStats};

/// See [`super::add`].
#[inline(always)]
pub fn add<P: Measured>(pixels: &[P], stats: &mut PixelStats<P::Wide>) {
    for portion in pixels.chunks(PORTION) {
        P::add(portion, stats);
    }
}

/// See [`super::add_within`].
#[inline(always)]
pub fn add_within<P: Measured>(pixels: &[P], usable: &[bool], (low, high): (P, P), stats: &mut PixelStats<P::Wide>) {
    for (portion, usable) in pixels.chunks(PORTION).zip(usable.chunks(PORTION)) {
        P::add_within(portion, usable, (low, high), stats);
    }
}
