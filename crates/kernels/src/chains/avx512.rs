//! The peak rate of additions and multiplications with AVX-512, without memory.

use crate::isa::Isa;
use std::arch::x86_64::*;

/// Operations of a round: 12 independent chains of one multiplication and one subtraction of 16 numbers.
pub(super) const FLOPS_PER_ROUND: usize = 12 * 2 * 16;

/// Does `rounds` rounds; the result only keeps the compiler from removing them.
pub(super) fn chains(rounds: usize) -> f32 {
    assert!(Isa::Avx512.is_available());
    // SAFETY: AVX-512 is available (asserted above).
    unsafe { run(rounds) }
}

#[target_feature(enable = "avx512f")]
fn run(rounds: usize) -> f32 {
    let (factor, step) = (_mm512_set1_ps(0.9999), _mm512_set1_ps(1.0e-4));
    let mut chains = [_mm512_set1_ps(1.0); 12];
    for _ in 0..rounds {
        for x in &mut chains {
            *x = _mm512_sub_ps(_mm512_mul_ps(*x, factor), step);
        }
    }
    chains.into_iter().map(|x| _mm512_cvtss_f32(x)).sum()
}
