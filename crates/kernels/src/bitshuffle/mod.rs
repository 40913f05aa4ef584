//! The bit transposition of one block, in the format of the bitshuffle library of K. Masui (HDF5 filter 32008).
//!
//! A block of `n` elements of `E` bytes (little-endian), `n` a multiple of 8, becomes `8 * E` planes of `n / 8` bytes.
//! Plane `8 * byte + bit` holds that bit (0 = lowest) of every element; in it byte `k` holds elements `8k .. 8k + 8`,
//! the first in its lowest bit.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod by_isa;
mod scalar;
mod wide;

pub use block::ElementSize;

use crate::isa::Isa;
use block::check;

/// Transposes one block of `input.len() / element` elements.
///
/// # Panics
/// If the lengths differ or the number of elements is not a multiple of 8.
pub fn shuffle(isa: Isa, element: ElementSize, input: &[u8], out: &mut [u8]) {
    check(element, input, out);
    match isa.usable() {
        isa @ (Isa::Avx2 | Isa::Avx512) if element == ElementSize::Eight => wide::shuffle(isa, input, out),
        isa => by_isa::shuffle(isa, element, input, out),
    }
}

/// The inverse of [`shuffle`].
///
/// # Panics
/// As [`shuffle`].
pub fn unshuffle(isa: Isa, element: ElementSize, input: &[u8], out: &mut [u8]) {
    check(element, input, out);
    match isa.usable() {
        isa @ (Isa::Avx2 | Isa::Avx512) if element == ElementSize::Eight => wide::unshuffle(isa, input, out),
        isa => by_isa::unshuffle(isa, element, input, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit.
    fn naive(element: usize, input: &[u8]) -> Vec<u8> {
        let mut out = vec![0; input.len()];
        let count = input.len() / element;
        for e in 0..count {
            for plane in 0..8 * element {
                let bit = input[e * element + plane / 8] >> (plane % 8) & 1;
                out[plane * (count / 8) + e / 8] |= bit << (e % 8);
            }
        }
        out
    }

    fn noise(bytes: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn every_path_equals_the_definition_and_its_inverse_gives_the_block_back() {
        for element in ElementSize::ALL {
            for count in (0..700).step_by(8).chain([1016, 1024, 1032, 1264, 2048, 4096, 4104, 8192]) {
                let input = noise(count * element.bytes(), count as u64 + 1);
                let expected = naive(element.bytes(), &input);
                for &isa in Isa::available() {
                    let mut planes = vec![0xA5; input.len()];
                    shuffle(isa, element, &input, &mut planes);
                    assert!(planes == expected, "{isa}, {element:?}, {count} elements");
                    let mut back = vec![0xA5; input.len()];
                    unshuffle(isa, element, &planes, &mut back);
                    assert!(back == input, "inverse: {isa}, {element:?}, {count} elements");
                }
            }
        }
    }

    #[test]
    fn eight_small_numbers_by_hand() {
        let input: Vec<u8> = [1u16, 0, 0, 0, 0, 0, 0x0100, 0x8001].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut expected = [0u8; 16];
        (expected[0], expected[8], expected[15]) = (0b1000_0001, 0b0100_0000, 0b1000_0000);
        let mut out = [0; 16];
        shuffle(Isa::detect(), ElementSize::Two, &input, &mut out);
        assert_eq!(out, expected);
    }

    #[test]
    #[should_panic(expected = "multiple of 8")]
    fn a_block_of_nine_elements_is_refused() {
        shuffle(Isa::Scalar, ElementSize::Two, &[0; 18], &mut [0; 18]);
    }
}
