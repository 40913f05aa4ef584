//! Statistics of pixels: of a whole image for reports ([`image()`]), and of a few pixels while they are in the cache
//! ([`add`]), which workers do for every image.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod image;
mod number;
mod scalar;

pub use image::{ImageStats, image};
pub use number::{Measured, PixelStats, STATS_NUMBERS, Wide};

use crate::isa::Isa;

/// Adds `pixels` to the statistics. The pixels of a strip always come in the same portions, so that sums of floats are
/// the same too.
pub fn add<P: Measured>(isa: Isa, pixels: &[P], stats: &mut PixelStats<P::Wide>) {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::add(pixels, stats),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::add(pixels, stats),
        _ => scalar::add(pixels, stats),
    }
}

/// Adds the pixels of an image in which the values `low ..= high` are measurements, if the pixel is usable. Pixels that
/// are not usable count as nothing; above the range, but for the special values of the type, they are saturated. NaN is
/// nothing.
///
/// # Panics
/// If it is not known of each pixel whether it is usable.
pub fn add_within<P: Measured>(isa: Isa, pixels: &[P], usable: &[bool], (low, high): (P, P), stats: &mut PixelStats<P::Wide>) {
    assert_eq!(pixels.len(), usable.len());
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::add_within(pixels, usable, (low, high), stats),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::add_within(pixels, usable, (low, high), stats),
        _ => scalar::add_within(pixels, usable, (low, high), stats),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::pixel::Pixel;

    /// Pixels of which about one of `rarity` is special; whole stretches are gaps.
    fn pixels<P: Measured>(count: usize, rarity: u64, seed: u64) -> Vec<P> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 16
        };
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
        let pixel = |n: usize| match next() {
            _ if n % 700 > 600 => P::MASKED,
            word if (word >> 8).is_multiple_of(rarity) => special[word as usize % special.len()],
            word => P::from_photons((word % 4000) as f32 - 900.25),
        };
        (0..count).map(pixel).collect()
    }

    fn check<P: Measured>() {
        let sizes = [0, 1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 700, 1264, 2048, 4095, 4096, 4097, 40_001];
        for (n, count) in sizes.into_iter().enumerate() {
            for rarity in [2, 50, 100_000] {
                let pixels = pixels::<P>(count, rarity, n as u64 + rarity);
                let naive = image(&pixels);
                let valid = pixels.iter().filter(|pixel| pixel.is_number());
                let sizes_sum: f64 = valid.map(|pixel| pixel.to_f64().abs()).sum();
                let mut first = None;
                for &isa in Isa::available() {
                    let mut stats = PixelStats::default();
                    let (some, rest) = pixels.split_at(count / 3);
                    add(isa, some, &mut stats);
                    let mut more = PixelStats::default();
                    add(isa, rest, &mut more);
                    stats.merge(&more);
                    let context = format!("{:?}, {count} pixels, one of {rarity} special, {isa}", P::TYPE);
                    let counts = (stats.valid, stats.missing, stats.saturated);
                    assert_eq!(counts, (naive.valid, naive.missing, naive.saturated), "{context}");
                    let range = stats.range().map(|(min, max)| (min.to_f64(), max.to_f64()));
                    assert_eq!(range, naive.min.zip(naive.max), "{context}");
                    let sum = stats.sum.to_f64();
                    assert!((sum - naive.sum).abs() <= sizes_sum * 1e-12, "{context}: {sum} instead of {}", naive.sum);
                    let bits = stats.bits();
                    assert_eq!(*first.get_or_insert(bits), bits, "{context}: other bits than {}", Isa::Scalar);
                    assert_eq!(PixelStats::from_bits(bits), stats, "{context}");
                }
            }
        }
    }

    #[test]
    fn every_path_equals_the_statistics_of_the_report() {
        check::<i16>();
        check::<u16>();
        check::<i32>();
        check::<u32>();
        check::<f32>();
    }

    fn check_within<P: Measured>() {
        for (n, count) in [0, 1, 15, 16, 17, 255, 256, 257, 700, 4097, 40_001].into_iter().enumerate() {
            for (rarity, low, high) in [(2, -3.0, 900.0), (50, 5.0, 4000.0), (100_000, -1e9, 1e9)] {
                let (low, high) = (P::from_photons(low), P::from_photons(high));
                let (low, high) =
                    (if low.is_number() { low } else { P::VALID_MIN }, if high.is_number() { high } else { P::VALID_MAX });
                let pixels = pixels::<P>(count, rarity, n as u64 + rarity);
                let usable: Vec<bool> = (0..count).map(|n| n % 640 < 600 || rarity == 50).collect();
                let used = || pixels.iter().zip(&usable).filter(|(_, usable)| **usable).map(|(pixel, _)| *pixel);
                let valid: Vec<f64> = used().filter(|p| *p >= low && *p <= high).map(P::to_f64).collect();
                let special = [P::MISSING, P::MASKED, P::INVALID];
                let saturated = used().filter(|p| *p > high && !special.contains(p)).count() as u64;
                let missing = used().filter(|p| *p == P::MISSING).count() as u64;
                let mut first = None;
                for &isa in Isa::available() {
                    let mut stats = PixelStats::default();
                    add_within(isa, &pixels, &usable, (low, high), &mut stats);
                    let context = format!("{:?}, {count} pixels, one of {rarity} special, {isa}", P::TYPE);
                    assert_eq!(
                        (stats.valid, stats.missing, stats.saturated),
                        (valid.len() as u64, missing, saturated),
                        "{context}"
                    );
                    let range = valid.iter().copied().reduce(f64::min).zip(valid.iter().copied().reduce(f64::max));
                    assert_eq!(stats.range().map(|(min, max)| (min.to_f64(), max.to_f64())), range, "{context}");
                    let (sum, size) = (valid.iter().sum::<f64>(), valid.iter().map(|value| value.abs()).sum::<f64>());
                    assert!((stats.sum.to_f64() - sum).abs() <= size * 1e-12, "{context}");
                    assert_eq!(*first.get_or_insert(stats.bits()), stats.bits(), "{context}: other bits");
                }
            }
        }
    }

    #[test]
    fn only_usable_pixels_within_the_range_are_measurements() {
        check_within::<i16>();
        check_within::<u16>();
        check_within::<i32>();
        check_within::<u32>();
        check_within::<f32>();
        let mut stats = PixelStats::default();
        let pixels = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.5];
        add_within(Isa::detect(), &pixels, &[true; 4], (0.0, 100.0), &mut stats);
        assert_eq!((stats.valid, stats.range(), stats.sum), (1, Some((2.5, 2.5)), 2.5));
    }

    #[test]
    fn the_highest_values_do_not_overflow() {
        for &isa in Isa::available() {
            let mut stats = PixelStats::default();
            add(isa, &vec![u16::VALID_MAX; 1 << 20], &mut stats);
            assert_eq!(stats.sum, i64::from(u16::VALID_MAX) << 20);
            let mut stats = PixelStats::default();
            add(isa, &vec![i16::VALID_MIN; 1 << 20], &mut stats);
            assert_eq!((stats.sum, stats.valid), (i64::from(i16::VALID_MIN) << 20, 1 << 20));
            let mut stats = PixelStats::default();
            add(isa, &vec![u32::VALID_MAX; 1 << 20], &mut stats);
            assert_eq!((stats.sum, stats.range()), (i64::from(u32::VALID_MAX) << 20, Some((2_147_483_392, 2_147_483_392))));
        }
    }
}
