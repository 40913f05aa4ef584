//! Chooses the path of an instruction set.

use super::lz4_write;
use super::repeats::{Repeats, ones, scalar};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Isa;

/// Looks for what repeats in a block of planes of `plane_bytes` bytes, at least 1, and for runs of at least `RUN`
/// bytes, a power of 2 of at most 32.
///
/// # Panics
/// If the block is longer than those that `repeats` was made for.
pub fn find<const RUN: usize>(isa: Isa, repeats: &mut Repeats, block: &[u8], plane_bytes: usize) {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::find::<RUN>(repeats, block, plane_bytes),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::find::<RUN>(repeats, block, plane_bytes),
        _ => repeats.find::<RUN>(block, plane_bytes, scalar),
    }
}

/// Bits that are set.
pub fn count(isa: Isa, words: &[u64]) -> usize {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::count(words),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::count(words),
        _ => ones(words),
    }
}

/// Writes a block of which `repeats` says what repeats as LZ4 to the start of `out`, and returns the bytes written.
pub fn write_lz4(isa: Isa, repeats: &Repeats, block: &[u8], plane_bytes: usize, out: &mut [u8]) -> usize {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::write_lz4(repeats, block, plane_bytes, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::write_lz4(repeats, block, plane_bytes, out),
        _ => lz4_write::write(repeats, block, plane_bytes, out),
    }
}
