//! The pixels of an image as analysis takes them.

use konkordia_kernels::stats::Measured;

/// The pixels of an image, row by row. A pixel counts if its value is in the range `low ..= high` and if it is usable;
/// which pixels are usable is known before the run (masks, gaps, modules that are off), and each analysis is made for
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a, P> {
    /// `rows * columns` pixels.
    pub pixels: &'a [P],
    /// Length of the slow axis.
    pub rows: usize,
    /// Length of the fast axis.
    pub columns: usize,
    /// Lowest value that is a measurement.
    pub low: P,
    /// Highest value that is a measurement.
    pub high: P,
}

impl<'a, P: Measured> Plane<'a, P> {
    /// An image of Konkordia, whose special values lie outside of the valid range of its type.
    ///
    /// # Panics
    /// If `pixels` is not a whole number of rows.
    pub fn own(pixels: &'a [P], columns: usize) -> Self {
        Self::new(pixels, columns, P::VALID_MIN, P::VALID_MAX)
    }

    /// An image in which the values `low ..= high` are measurements.
    ///
    /// # Panics
    /// If `pixels` is not a whole number of rows.
    pub fn new(pixels: &'a [P], columns: usize, low: P, high: P) -> Self {
        assert!(columns > 0 && pixels.len().is_multiple_of(columns), "{} pixels in rows of {columns}", pixels.len());
        Self { pixels, rows: pixels.len() / columns, columns, low, high }
    }

    /// True if the value is a measurement; never for NaN.
    pub fn is_valid(&self, pixel: P) -> bool {
        pixel >= self.low && pixel <= self.high
    }
}
