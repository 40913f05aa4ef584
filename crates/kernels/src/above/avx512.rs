//! The loops of `scalar.rs`, compiled for AVX-512.

use super::scalar;
use super::value::Value;
use crate::isa::Isa;

/// See [`super::count`].
pub fn count<P: Value>(pixels: &[P], usable: &[bool], level: P, high: P) -> u64 {
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 is available, as asserted above.
    unsafe { compiled_count(pixels, usable, level, high) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn compiled_count<P: Value>(pixels: &[P], usable: &[bool], level: P, high: P) -> u64 {
    scalar::count(pixels, usable, level, high)
}

/// See [`super::collect`].
pub fn collect<P: Value>(row: &[P], usable: &[bool], level: P, high: P, columns: &mut [u32], values: &mut [P]) -> usize {
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 is available, as asserted above.
    unsafe { compiled_collect(row, usable, level, high, columns, values) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn compiled_collect<P: Value>(row: &[P], usable: &[bool], level: P, high: P, columns: &mut [u32], values: &mut [P]) -> usize {
    scalar::collect(row, usable, level, high, columns, values)
}
