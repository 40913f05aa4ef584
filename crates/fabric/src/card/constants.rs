//! The constants of pixels as `pixel_pipeline` takes them: 102 bits for each, those of 32 pixels side by side.

use konkordia_kernels::convert::fixed::FixedView;

/// Bits of a pixel: its three pedestals, then its three factors.
const PIXEL_BITS: u32 = 22 + 5 * 16;
/// Pixels that are converted in one clock.
pub const PIXELS: usize = 32;
/// Bytes of their constants.
pub const CONSTANT_BYTES: usize = PIXELS * PIXEL_BITS as usize / 8;

/// The constants in the order of the pixels: [`CONSTANT_BYTES`] for every 32 of them.
///
/// # Panics
/// If the number of pixels is no multiple of 32.
pub fn packed(constants: &FixedView<'_>) -> Vec<u8> {
    let pixels = constants.pedestal_g0.len();
    assert!(pixels.is_multiple_of(PIXELS), "whole words of constants");
    let mut bytes = Vec::with_capacity(pixels / PIXELS * CONSTANT_BYTES);
    // Bits that are not in a byte yet, at most 7 before a pixel.
    let (mut bits, mut count) = (0u128, 0);
    for pixel in 0..pixels {
        let [g0, g1, g2] = constants.factor.map(|plane| u128::from(plane[pixel]));
        let pedestals = u128::from(constants.pedestal_g0[pixel])
            | u128::from(constants.pedestal_g1[pixel]) << 22
            | u128::from(constants.pedestal_g2[pixel]) << 38;
        bits |= (pedestals | g0 << 54 | g1 << 70 | g2 << 86) << count;
        count += PIXEL_BITS;
        while count >= 8 {
            bytes.push(bits as u8);
            (bits, count) = (bits >> 8, count - 8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_kernels::convert::fixed::FixedConstants;
    use proptest::prelude::*;

    /// One bit after the other, the lowest one of a number first.
    fn naive(constants: &FixedConstants) -> Vec<u8> {
        let mut bits = Vec::new();
        let mut add = |value: u32, width: u32| bits.extend((0..width).map(|n| value >> n & 1));
        for n in 0..constants.pedestal_g0.len() {
            add(constants.pedestal_g0[n], 22);
            add(constants.pedestal_g1[n].into(), 16);
            add(constants.pedestal_g2[n].into(), 16);
            constants.factor.iter().for_each(|plane| add(plane[n].into(), 16));
        }
        bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |all, bit| all << 1 | *bit as u8)).collect()
    }

    proptest! {
        #[test]
        fn every_bit_has_its_place(
            seeds in prop::collection::vec(any::<[u16; 6]>(), 96),
        ) {
            let plane = |n: usize| seeds.iter().map(|of| of[n]).collect::<Vec<u16>>();
            let constants = FixedConstants {
                pedestal_g0: seeds.iter().map(|of| u32::from(of[0]) << 6 | u32::from(of[1]) & 63).collect(),
                pedestal_g1: plane(1),
                pedestal_g2: plane(2),
                factor: [plane(3), plane(4), plane(5)],
                shift: [20, 18, 18],
            };
            let found = packed(&constants.view());
            prop_assert_eq!(found.len(), 3 * CONSTANT_BYTES);
            prop_assert_eq!(found, naive(&constants));
        }
    }
}
