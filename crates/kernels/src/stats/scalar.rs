//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use super::number::{Measured, PORTION, PixelStats};

/// See [`super::add`].
#[inline(always)]
pub fn add<P: Measured>(pixels: &[P], stats: &mut PixelStats<P::Wide>) {
    for portion in pixels.chunks(PORTION) {
        P::add(portion, stats);
    }
}
