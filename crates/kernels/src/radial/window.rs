//! Which values are small.

use konkordia_core::pixel::Pixel;

/// Slots of a ring: one for each small value, and the last for all other values.
pub const SLOTS: usize = 256;

/// The values that are measurements, those that are small, and those of which the pixels are listed. All numbers are
/// kept modulo 2^32, in which differences of pixels of every integer type are exact.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    lowest: i64,
    /// Lowest value that is a measurement.
    pub(super) low: u32,
    /// Highest value that is a measurement, less the lowest.
    pub(super) span: u32,
    /// The value of the first slot.
    pub(super) base: u32,
    /// Pixels are listed from the value `base + cut` on, and below `base`.
    pub(super) cut: u32,
}

impl Window {
    /// The values `low ..= high` are measurements, the value `base` belongs to the first slot. Pixels above `threshold`
    /// and those without a slot of their own are listed.
    ///
    /// # Panics
    /// If `low` is above `high`, or the pixels are floats.
    pub fn new<P: Pixel>(low: P, high: P, base: i64, threshold: f64) -> Self {
        assert!(!P::TYPE.is_float(), "floats have no slots");
        let [low, high] = [low, high].map(|pixel| pixel.to_f64() as i64);
        assert!(low <= high, "a range of values");
        let first_above = (threshold.floor() as i64).saturating_add(1);
        let cut = first_above.saturating_sub(base).clamp(0, SLOTS as i64 - 1);
        Self { lowest: low, low: low as u32, span: (high - low) as u32, base: base as u32, cut: cut as u32 }
    }

    /// The value of a measurement from what it is modulo 2^32.
    #[inline]
    pub fn value(&self, word: u32) -> i64 {
        self.lowest + i64::from(word.wrapping_sub(self.low))
    }

    /// True if the pixel with this value is listed, provided that it is a measurement.
    pub fn is_listed(&self, value: i64) -> bool {
        (value as u32).wrapping_sub(self.base) >= self.cut
    }

    /// True if the value has a slot of its own.
    pub fn has_slot(&self, value: i64) -> bool {
        (value as u32).wrapping_sub(self.base) < SLOTS as u32 - 1
    }
}
