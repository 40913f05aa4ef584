//! How the count of a pixel of double or fourfold size is shared among the output pixels that it covers.
//!
//! The shares of a whole number add up to it exactly, so that no photon is gained or lost. The remainder of the
//! division is given out one by one to the parts from a start on. The start changes from pixel to pixel and from image
//! to image, so that no pattern appears.

use crate::pixel::Pixel;

/// The share of part `part` (from 0) of `parts` (2 or 4) of the number `value`; the parts from `start` on get one of
/// the remainder each. Special values are not shared: every part has them. Floating point numbers are divided.
#[inline]
pub fn share<P: Pixel>(value: P, part: u8, parts: u8, start: u8) -> P {
    debug_assert!(part < parts && (parts == 2 || parts == 4));
    if !value.is_number() {
        return value;
    }
    value.part_of(part.wrapping_sub(start) % parts, parts)
}

/// The part at which the remainder of a pixel begins in an image: a hash, the same on every machine. `group` is the
/// number of the raw pixel.
#[inline]
pub fn share_start(group: u32, image: u64) -> u8 {
    let mut h = (u64::from(group) << 32 ^ image).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    h = (h ^ h >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (h >> 61) as u8 & 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares<P: Pixel>(value: P, parts: u8, start: u8) -> Vec<P> {
        (0..parts).map(|part| share(value, part, parts, start)).collect()
    }

    #[test]
    fn special_values_stay_and_floats_are_divided() {
        for parts in [2, 4] {
            for special in [i16::MISSING, i16::MASKED, i16::INVALID, i16::SATURATED] {
                assert_eq!(shares(special, parts, 1), vec![special; usize::from(parts)]);
            }
            assert_eq!(shares(3.0f32, parts, 1), vec![3.0 / f32::from(parts); usize::from(parts)]);
            assert!(shares(f32::NAN, parts, 0).iter().all(|v| v.is_nan()));
            assert_eq!(shares(f32::MISSING, parts, 0), vec![f32::MISSING; usize::from(parts)]);
        }
        assert_eq!(shares(-7i16, 4, 2), [-2, -2, -1, -2].map(|v: i16| v));
    }

    #[test]
    fn the_remainder_goes_everywhere_alike() {
        let mut counts = [0u32; 4];
        for group in 0..1000 {
            for image in 0..100 {
                counts[usize::from(share_start(group, image))] += 1;
            }
        }
        assert!(counts.iter().all(|n| (24_000..26_000).contains(n)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn the_sum_is_exact(value in -32765i16..32767, wide in -2_147_483_392i32..=2_147_483_392, count in 0u32..=2_147_483_392, start in 0u8..4, four: bool) {
            let parts = if four { 4 } else { 2 };
            let sum = |list: Vec<i64>| {
                assert!(list.iter().max().unwrap() - list.iter().min().unwrap() <= 1);
                list.iter().sum::<i64>()
            };
            prop_assert_eq!(sum(shares(value, parts, start).into_iter().map(i64::from).collect()), i64::from(value));
            prop_assert_eq!(sum(shares(wide, parts, start).into_iter().map(i64::from).collect()), i64::from(wide));
            prop_assert_eq!(sum(shares(count, parts, start).into_iter().map(i64::from).collect()), i64::from(count));
        }
    }
}
