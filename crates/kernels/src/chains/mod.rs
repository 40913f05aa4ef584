//! Chains of multiplications and subtractions that need no memory: as many as a core can do at once. Whoever takes the
//! time of a round gets the peak rate of a roofline.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::isa::Isa;

/// Does so many rounds; the result only keeps the compiler from removing them. Also returns the operations of a round.
pub fn run(isa: Isa, rounds: usize) -> (f32, usize) {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => (avx512::chains(rounds), avx512::FLOPS_PER_ROUND),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => (avx2::chains(rounds), avx2::FLOPS_PER_ROUND),
        _ => (scalar(rounds), 12 * 2),
    }
}

/// Plain Rust; the compiler uses the vectors of 128 bits that every x86-64 has.
fn scalar(rounds: usize) -> f32 {
    let mut chains = [1.0f32; 12];
    for _ in 0..rounds {
        for x in &mut chains {
            *x = *x * 0.9999 - 1.0e-4;
        }
    }
    chains.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_chains_come_to_the_same_numbers() {
        for &isa in Isa::available() {
            // Each chain is one number; a vector has several alike, of which the sum takes the first.
            assert_eq!(run(isa, 1000).0, run(Isa::Scalar, 1000).0, "{isa}");
            assert!(run(isa, 1).1.is_multiple_of(24));
        }
    }
}
