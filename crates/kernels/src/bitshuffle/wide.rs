//! Elements of eight bytes, taken as two elements of four: the low halves give the first 32 planes, the high halves the
//! last 32.

use super::block::ElementSize;
use super::by_isa;
use crate::isa::Isa;

/// Elements per step: what the widest path does at once.
const STEP: usize = 512;
const HALF_BYTES: usize = 4;

/// See [`super::shuffle`].
pub fn shuffle(isa: Isa, input: &[u8], out: &mut [u8]) {
    let plane_bytes = input.len() / 64;
    let (mut half, mut planes) = ([0; STEP * HALF_BYTES], [0; STEP * HALF_BYTES]);
    for (step, elements) in input.chunks(8 * STEP).enumerate() {
        let count = elements.len() / 8;
        let (half, planes) = (&mut half[..count * HALF_BYTES], &mut planes[..count * HALF_BYTES]);
        for which in 0..2 {
            for (half, element) in half.as_chunks_mut::<HALF_BYTES>().0.iter_mut().zip(elements.as_chunks::<8>().0) {
                half.copy_from_slice(&element[which * HALF_BYTES..][..HALF_BYTES]);
            }
            by_isa::shuffle(isa, ElementSize::Four, half, planes);
            for (plane, bytes) in planes.chunks(count / 8).enumerate() {
                out[(32 * which + plane) * plane_bytes + step * STEP / 8..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

/// See [`super::unshuffle`].
pub fn unshuffle(isa: Isa, input: &[u8], out: &mut [u8]) {
    let plane_bytes = input.len() / 64;
    let (mut half, mut planes) = ([0; STEP * HALF_BYTES], [0; STEP * HALF_BYTES]);
    for (step, elements) in out.chunks_mut(8 * STEP).enumerate() {
        let count = elements.len() / 8;
        let (half, planes) = (&mut half[..count * HALF_BYTES], &mut planes[..count * HALF_BYTES]);
        for which in 0..2 {
            for (plane, bytes) in planes.chunks_mut(count / 8).enumerate() {
                bytes.copy_from_slice(&input[(32 * which + plane) * plane_bytes + step * STEP / 8..][..count / 8]);
            }
            by_isa::unshuffle(isa, ElementSize::Four, planes, half);
            for (half, element) in half.as_chunks::<HALF_BYTES>().0.iter().zip(elements.as_chunks_mut::<8>().0) {
                element[which * HALF_BYTES..][..HALF_BYTES].copy_from_slice(half);
            }
        }
    }
}
