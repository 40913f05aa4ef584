//! Statistics of an image for reports: how many pixels of each kind, and the range and sum of the valid ones.

use konkordia_core::pixel::Pixel;

/// Statistics of an image. The kinds add up to `pixels`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageStats {
    /// All pixels.
    pub pixels: u64,
    /// Pixels that hold a measurement.
    pub valid: u64,
    /// Pixels whose packet never came.
    pub missing: u64,
    /// Pixels without usable calibration, and gaps.
    pub masked: u64,
    /// Pixels with an illegal word.
    pub invalid: u64,
    /// Pixels above the range.
    pub saturated: u64,
    /// Pixels with a number that is neither valid nor special; Konkordia writes none.
    pub other: u64,
    /// Lowest valid value; `None` without valid pixels.
    pub min: Option<f64>,
    /// Highest valid value; `None` without valid pixels.
    pub max: Option<f64>,
    /// Sum of the valid values, in double precision in pixel order.
    pub sum: f64,
}

impl ImageStats {
    /// Sum over count of the valid values; `None` without valid pixels.
    pub fn mean(&self) -> Option<f64> {
        (self.valid > 0).then(|| self.sum / self.valid as f64)
    }
}

/// Computes the statistics in one pass.
pub fn image<P: Pixel>(pixels: &[P]) -> ImageStats {
    let mut stats = ImageStats { pixels: pixels.len() as u64, ..ImageStats::default() };
    let mut range: Option<(P, P)> = None;
    for &pixel in pixels {
        if pixel >= P::VALID_MIN && pixel <= P::VALID_MAX {
            let (low, high) = range.unwrap_or((pixel, pixel));
            range = Some((if pixel < low { pixel } else { low }, if pixel > high { pixel } else { high }));
            stats.valid += 1;
            stats.sum += pixel.to_f64();
        } else {
            *special(&mut stats, pixel) += 1;
        }
    }
    stats.min = range.map(|(low, _)| low.to_f64());
    stats.max = range.map(|(_, high)| high.to_f64());
    stats
}

/// The counter of a pixel that is not valid. Masked floats are NaN, which equals nothing.
fn special<P: Pixel>(stats: &mut ImageStats, pixel: P) -> &mut u64 {
    if pixel == P::MISSING {
        &mut stats.missing
    } else if pixel == P::MASKED || pixel.to_f64().is_nan() {
        &mut stats.masked
    } else if pixel == P::INVALID {
        &mut stats.invalid
    } else if pixel == P::SATURATED {
        &mut stats.saturated
    } else {
        &mut stats.other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<P: Pixel>(other: &[P]) {
        let numbers = [P::VALID_MIN, P::from_photons(3.0), P::VALID_MAX, P::from_photons(5.0)];
        let special = [P::MISSING, P::MASKED, P::MASKED, P::INVALID, P::INVALID, P::INVALID, P::SATURATED];
        let all: Vec<P> = special.iter().chain(&numbers).chain(other).copied().collect();
        let stats = image(&all);
        assert_eq!((stats.pixels, stats.valid), (all.len() as u64, 4));
        assert_eq!((stats.missing, stats.masked, stats.invalid, stats.saturated, stats.other), (1, 2, 3, 1, other.len() as u64));
        assert_eq!((stats.min, stats.max), (Some(P::VALID_MIN.to_f64()), Some(P::VALID_MAX.to_f64())));
        assert_eq!(stats.sum, numbers.iter().map(|v| v.to_f64()).sum::<f64>());
        let few = image(&[P::from_photons(2.0), P::from_photons(4.0), P::MISSING]);
        assert_eq!((few.min, few.max, few.mean()), (Some(2.0), Some(4.0), Some(3.0)));
    }

    #[test]
    fn every_kind_is_counted_and_only_valid_pixels_make_the_range() {
        check::<i16>(&[]);
        check::<u16>(&[]);
        check::<i32>(&[i32::MAX - 1, i32::MIN + 3]);
        check::<u32>(&[1 << 31]);
        check::<f32>(&[f32::MIN * 0.75]);
        assert_eq!(image::<i16>(&[]), ImageStats::default());
        assert_eq!(image(&[i16::MASKED]).mean(), None);
    }
}
