//! Stores past the caches, a line of 64 bytes at a time.

use super::segment::Segment;
use crate::isa::Isa;
use std::arch::x86_64::*;

/// Bytes of a line of the caches.
const LINE: usize = 64;
/// Shorter segments are copied plainly: their first and last line would be most of them.
const SHORT_BYTES: usize = 4 * LINE;

/// See [`super::place`].
#[inline]
pub fn place(packet: &[u8], memory: &mut [u8], segments: impl Iterator<Item = Segment>) {
    assert!(Isa::Avx2.is_available());
    for segment in segments {
        let Some((from, to)) = segment.slices(packet, memory) else { continue };
        if to.len() < SHORT_BYTES {
            to.copy_from_slice(from);
            continue;
        }
        let head = to.as_ptr().align_offset(LINE);
        let lines = (to.len() - head) / LINE * LINE;
        let (to_head, to_rest) = to.split_at_mut(head);
        let (to_lines, to_tail) = to_rest.split_at_mut(lines);
        to_head.copy_from_slice(&from[..head]);
        to_tail.copy_from_slice(&from[head + lines..]);
        // SAFETY: AVX2 is available, as asserted above; the place begins at a line and both have whole lines.
        unsafe { stream(&from[head..head + lines], to_lines) };
    }
    // Stores past the caches may become visible later than the stores behind them, so nobody may be told before this.
    // SAFETY: every processor with AVX2 has this instruction.
    unsafe { _mm_sfence() };
}

/// Copies whole lines. `to` begins at a line and has the length of `from`.
#[target_feature(enable = "avx2")]
unsafe fn stream(from: &[u8], to: &mut [u8]) {
    debug_assert!(from.len() == to.len() && from.len().is_multiple_of(LINE) && to.as_ptr().align_offset(LINE) == 0);
    for (from, to) in from.chunks_exact(LINE).zip(to.chunks_exact_mut(LINE)) {
        // SAFETY: both chunks have 64 bytes, and the place is aligned, as the caller promises.
        unsafe {
            let (from, to) = (from.as_ptr().cast::<__m256i>(), to.as_mut_ptr().cast::<__m256i>());
            let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, low);
            _mm256_stream_si256(to.add(1), high);
        }
    }
}
