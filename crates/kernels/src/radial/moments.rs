//! Number, sum and sum of squares of the pixels of each ring.

use konkordia_core::pixel::Pixel;

/// Values between two limits, without the limits themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueRange {
    /// Lower limit.
    pub above: f64,
    /// Upper limit.
    pub below: f64,
}

impl ValueRange {
    /// True if the value lies between the limits.
    #[inline(always)]
    pub fn contains(&self, value: f64) -> bool {
        value > self.above && value < self.below
    }
}

/// Number, sum and sum of squares of some pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments<S, Q> {
    /// Number of pixels.
    pub count: u64,
    /// Sum of the pixels.
    pub sum: S,
    /// Sum of the squares of the pixels.
    pub squares: Q,
}

/// Those of integers: exact for up to 2^32 pixels below 2^30.
pub type WholeMoments = Moments<i64, i128>;

/// Those of floats, summed in double precision in the order of the pixels.
pub type RealMoments = Moments<f64, f64>;

impl WholeMoments {
    /// Mean and standard deviation, of which the variance is exact before its last division; `None` without pixels.
    pub fn mean_and_sigma(&self) -> Option<(f64, f64)> {
        let count = i128::from(self.count);
        let sum = i128::from(self.sum);
        let variance = (count * self.squares - sum * sum) as f64 / (count * count) as f64;
        (count > 0).then(|| (self.sum as f64 / self.count as f64, variance.sqrt()))
    }
}

impl RealMoments {
    /// Mean and standard deviation; `None` without pixels.
    pub fn mean_and_sigma(&self) -> Option<(f64, f64)> {
        let count = self.count as f64;
        let mean = self.sum / count;
        (self.count > 0).then(|| (mean, (self.squares / count - mean * mean).max(0.0).sqrt()))
    }
}

/// Adds each pixel of integers to the moments of its ring if it lies in `low ..= high` and in the range of its ring.
/// Ring 0 is left out.
///
/// # Panics
/// If the lengths of `pixels` and `rings` differ, or a ring has no range or no moments.
pub fn add_whole<P: Pixel>(
    pixels: &[P],
    rings: &[u16],
    [low, high]: [P; 2],
    ranges: &[ValueRange],
    moments: &mut [WholeMoments],
) {
    each(pixels, rings, [low, high], ranges, |ring, value| {
        let whole = value as i64;
        let moments = &mut moments[ring];
        moments.count += 1;
        moments.sum += whole;
        moments.squares += i128::from(whole * whole);
    });
}

/// Adds each pixel of floats, likewise.
///
/// # Panics
/// If the lengths of `pixels` and `rings` differ, or a ring has no range or no moments.
pub fn add_real<P: Pixel>(pixels: &[P], rings: &[u16], [low, high]: [P; 2], ranges: &[ValueRange], moments: &mut [RealMoments]) {
    each(pixels, rings, [low, high], ranges, |ring, value| {
        let moments = &mut moments[ring];
        moments.count += 1;
        moments.sum += value;
        moments.squares += value * value;
    });
}

#[inline(always)]
fn each<P: Pixel>(pixels: &[P], rings: &[u16], [low, high]: [P; 2], ranges: &[ValueRange], mut add: impl FnMut(usize, f64)) {
    assert_eq!(pixels.len(), rings.len(), "one ring for each pixel");
    for (&pixel, &ring) in pixels.iter().zip(rings) {
        let value = pixel.to_f64();
        if ring != 0 && pixel >= low && pixel <= high && ranges[usize::from(ring)].contains(value) {
            add(usize::from(ring), value);
        }
    }
}
