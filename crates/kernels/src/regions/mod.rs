//! Sums over a region of an image: how many of its pixels count, their sum, the highest, and the moments from which the
//! centre of mass follows.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
mod sums;

use crate::isa::Isa;
use crate::stats::Measured;
pub use sums::{RegionSums, Stretch};

/// The sums of the pixels of these stretches whose values are within the range, ends included; NaN never is. The image
/// has rows of `columns` pixels.
///
/// # Panics
/// If a stretch ends behind the image, or `columns` is 0.
pub fn sum<P: Measured>(isa: Isa, pixels: &[P], columns: usize, stretches: &[Stretch], range: (P, P)) -> RegionSums {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::sum(pixels, columns, stretches, range),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::sum(pixels, columns, stretches, range),
        _ => scalar::sum(pixels, columns, stretches, range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::pixel::Pixel;

    const COLUMNS: usize = 131;

    fn check<P: Measured>() {
        let pixel = |n: usize| match n * 7 % 53 {
            4 => P::MISSING,
            9 => P::SATURATED,
            _ => P::from_photons((n * 31 % 997) as f32 - 40.0),
        };
        let pixels: Vec<P> = (0..COLUMNS * 40).map(pixel).collect();
        let stretches: Vec<Stretch> = (0..40)
            .map(|row| (row * COLUMNS + row % 5, row * 3))
            .map(|(first, length)| Stretch { first, end: first + length })
            .collect();
        let range = (P::from_photons(1.0), P::from_photons(900.0));
        let places = || stretches.iter().flat_map(|stretch| stretch.first..stretch.end);
        let valid: Vec<(usize, f64)> =
            places().filter(|n| pixels[*n] >= range.0 && pixels[*n] <= range.1).map(|n| (n, pixels[n].to_f64())).collect();
        let total = |of: &dyn Fn(usize, f64) -> f64| valid.iter().map(|(n, value)| of(*n, *value)).sum::<f64>();
        let naive = RegionSums {
            pixels: valid.len() as u64,
            sum: total(&|_, value| value),
            highest: valid.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max),
            moments: [total(&|n, value| value * (n % COLUMNS) as f64), total(&|n, value| value * (n / COLUMNS) as f64)],
        };
        assert!(naive.pixels > 1000);
        for &isa in Isa::available() {
            // All these numbers are whole, so every order of the sums gives the same.
            assert_eq!(sum(isa, &pixels, COLUMNS, &stretches, range), naive, "{:?}, {isa}", P::TYPE);
        }
    }

    #[test]
    fn every_instruction_set_sums_what_naive_code_sums() {
        check::<i16>();
        check::<u16>();
        check::<i32>();
        check::<u32>();
        check::<f32>();
    }

    #[test]
    fn floats_have_the_same_bits_with_every_instruction_set_and_nan_counts_for_nothing() {
        let pixels: Vec<f32> = (0..5000).map(|n| if n % 97 == 3 { f32::NAN } else { (n as f32 * 0.37).sin() * 1e3 }).collect();
        let stretches = [Stretch { first: 1, end: 78 }, Stretch { first: 100, end: 200 }, Stretch { first: 300, end: 300 }];
        let of = |isa| sum(isa, &pixels, 100, &stretches, (f32::VALID_MIN, f32::VALID_MAX));
        let first = of(Isa::Scalar);
        assert_eq!(first.pixels, 174);
        assert!(Isa::available().iter().all(|isa| of(*isa) == first));
        let none = sum(Isa::detect(), &pixels, 100, &[], (0.0, 1.0));
        assert_eq!((none.pixels, none.sum, none.highest), (0, 0.0, f64::NEG_INFINITY));
    }
}
