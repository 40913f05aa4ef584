//! The reference: plain copies.

use super::segment::Segment;

/// See [`super::place`].
#[inline]
pub fn place(packet: &[u8], memory: &mut [u8], segments: impl Iterator<Item = Segment>) {
    for segment in segments {
        if let Some((from, to)) = segment.slices(packet, memory) {
            to.copy_from_slice(from);
        }
    }
}
