//! Rounds the counts of an image to fewer values, so that a lossless codec makes it smaller, and keeps their sum. Whole
//! numbers only: results are the same on every machine.
//!
//! 1. A count `v` may move by at most `floor(sigma * sqrt(v))`, its own Poisson error times `sigma`. Its step is twice
//!    the largest power of two that this allows, and it goes to the nearest multiple of its step: then its lowest bits
//!    are 0, and the bit planes that bitshuffle makes of them are empty.
//! 2. Of a count in the middle of two multiples either is allowed. In tiles of [`TILE`] x [`TILE`] pixels, as many of
//!    these go up as make the sum of all errors so far nearest to 0: first those of the even rows of the image, then
//!    those of the odd ones, so that no part of a tile is higher than another.
//! 3. If they cannot bring the sum to within half a step, the steps of the tile are limited to half of its longest one,
//!    and so on. So the errors of a whole image always sum to less than one step.
//!
//! Zero and negative numbers, and counts from [`COUNTS_END`] on, never change.

use konkordia_core::pixel::Pixel;

/// Edge of a tile, pixels.
pub const TILE: usize = 32;
/// Counts from here on do not change.
pub const COUNTS_END: i64 = 1 << 16;
/// The largest factor of the Poisson error. With larger ones the lowest counts would have steps that are several times
/// as long as the counts are high.
pub const SIGMA_MAX: f64 = 2.0;

/// A pixel type of whole numbers.
pub trait Whole: Pixel {
    /// The lowest number of the type.
    const LOWEST: i64;
    /// The highest number of the type.
    const HIGHEST: i64;
    /// As a signed number, exact.
    fn wide(self) -> i64;
    /// From a number that the type can hold.
    fn of_wide(value: i64) -> Self;
}

macro_rules! whole {
    ($($t:ty)*) => { $(
        impl Whole for $t {
            const LOWEST: i64 = <$t>::MIN as i64;
            const HIGHEST: i64 = <$t>::MAX as i64;
            fn wide(self) -> i64 {
                self.into()
            }
            fn of_wide(value: i64) -> Self {
                Self::try_from(value).expect("a number between two of the type")
            }
        }
    )* };
}
whole!(i16 i32 u16 u32);

/// How counts are rounded; see the module.
#[derive(Clone, Debug)]
pub struct Rounding {
    sigma: f64,
    /// Binary logarithm of the step of each count.
    steps: Vec<u8>,
}

/// What became of the pixels of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Pixels that are measurements.
    pub pixels: u64,
    /// Those of them that had to stay as they are.
    pub pixels_exact: u64,
    /// Pixels with another value than before.
    pub pixels_changed: u64,
    /// Largest difference of a pixel, counts.
    pub error_max: u64,
    /// Largest difference of a pixel divided by the square root of its count.
    pub error_sigma_max: f64,
    /// Sum of the measurements before.
    pub sum_before: i64,
    /// Sum of the differences, after less before.
    pub error_sum: i64,
}

/// The image that is rounded: its pixels, the length of a row, which pixels must stay (not 0), and the lowest and
/// highest value that is a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a, P> {
    /// `rows * columns` pixels.
    pub pixels: &'a [P],
    /// Length of a row.
    pub columns: usize,
    /// As many as pixels.
    pub is_exact: &'a [u8],
    /// Lowest and highest measurement.
    pub range: (P, P),
}

/// What is known of a tile before it is rounded with a limit of its steps.
#[derive(Clone, Copy, Default)]
struct Balance {
    /// Sum of errors if all counts in the middle go down.
    lowest: i64,
    /// Sum of the steps of these counts.
    middle: i64,
}

impl<P: Whole> Counts<'_, P> {
    /// The count at a place if it may change, and its step with this limit (both limits are binary logarithms).
    fn count(&self, steps: &[u8], at: usize, limit: u8) -> Option<(i64, i64)> {
        let pixel = self.pixels[at];
        let value = pixel.wide();
        if self.is_exact[at] != 0 || !(1..COUNTS_END).contains(&value) || pixel < self.range.0 || pixel > self.range.1 {
            return None;
        }
        let step = 1i64 << steps[value as usize].min(limit);
        // Neither of the neighbours may be anything but a measurement.
        let is_inside = (value & -step) >= self.range.0.wide() && (value & -step) + step <= self.range.1.wide();
        (step > 1 && is_inside).then_some((value, step))
    }

    /// The rows of a tile, as first pixel and pixel after the last one; those of even numbers first.
    fn tile(&self, row: usize, column: usize) -> impl Iterator<Item = (usize, usize)> + use<P> {
        let (columns, rows) = (self.columns, self.pixels.len() / self.columns);
        let (end, right) = ((row + TILE).min(rows), (column + TILE).min(columns));
        let lines = (row..end).step_by(2).chain((row + 1..end).step_by(2));
        lines.map(move |row| (row * columns + column, row * columns + right))
    }
}

impl Rounding {
    /// A count may move by `sigma` of its Poisson errors.
    ///
    /// # Errors
    /// If it is not above 0 and at most [`SIGMA_MAX`].
    pub fn new(sigma: f64) -> Result<Self, String> {
        if !(sigma > 0.0 && sigma <= SIGMA_MAX) {
            return Err(format!("the error of the background is {sigma} sigma; it is above 0 and at most {SIGMA_MAX}"));
        }
        let step = |count: i64| match allowed(sigma, count) {
            0 => 0,
            most => most.ilog2() as u8 + 1,
        };
        Ok(Self { sigma, steps: (0..COUNTS_END).map(step).collect() })
    }

    /// How many Poisson errors a count may move.
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// Rounds an image into `out`.
    ///
    /// # Panics
    /// If the slices do not have the same number of pixels, in whole rows.
    pub fn round<P: Whole>(&self, image: &Counts<'_, P>, out: &mut [P]) {
        let Counts { pixels, columns, is_exact, .. } = *image;
        assert!(columns > 0 && pixels.len().is_multiple_of(columns), "{} pixels in rows of {columns}", pixels.len());
        assert_eq!((pixels.len(), pixels.len()), (is_exact.len(), out.len()), "the same number of pixels");
        out.copy_from_slice(pixels);
        let rows = pixels.len() / columns;
        let mut excess = 0;
        for row in (0..rows).step_by(TILE) {
            for column in (0..columns).step_by(TILE) {
                excess = self.tile(image, (row, column), excess, out);
            }
        }
    }

    /// Rounds a tile; `excess` is the sum of the errors so far. Gives the sum with those of the tile.
    fn tile<P: Whole>(&self, image: &Counts<'_, P>, (row, column): (usize, usize), excess: i64, out: &mut [P]) -> i64 {
        let all = || image.tile(row, column).flat_map(|(first, end)| first..end);
        let longest = all().filter_map(|at| image.count(&self.steps, at, u8::MAX)).map(|(_, step)| step.ilog2() as u8).max();
        let fitting = (1..=longest.unwrap_or(0)).rev().find(|limit| {
            let Balance { lowest, middle } = self.balance(image, all(), *limit, excess);
            let half = 1i64 << (limit - 1);
            lowest <= half && lowest + middle >= -half
        });
        let Some(limit) = fitting else { return excess };
        let mut sum = self.balance(image, all(), limit, excess).lowest;
        for at in all() {
            let Some((value, step)) = image.count(&self.steps, at, limit) else { continue };
            let below = value & -step;
            let twice = 2 * (value - below);
            let goes_up = twice > step || (twice == step && 2 * sum < -step);
            sum += if twice == step && goes_up { step } else { 0 };
            out[at] = P::of_wide(if goes_up { below + step } else { below });
        }
        sum
    }

    fn balance<P: Whole>(&self, image: &Counts<'_, P>, all: impl Iterator<Item = usize>, limit: u8, excess: i64) -> Balance {
        let mut balance = Balance { lowest: excess, middle: 0 };
        for (value, step) in all.filter_map(|at| image.count(&self.steps, at, limit)) {
            let below = value & -step;
            let twice = 2 * (value - below);
            balance.lowest += below - value + if twice > step { step } else { 0 };
            balance.middle += if twice == step { step } else { 0 };
        }
        balance
    }

    /// Compares an image with what came of it. `None` if a pixel that had to stay has changed, if a measurement has
    /// moved further than allowed, or if it has become something else than a measurement.
    ///
    /// # Panics
    /// If the slices do not have the same number of pixels.
    pub fn compare<P: Whole>(&self, before: &Counts<'_, P>, after: &[P]) -> Option<Loss> {
        let (low, high) = before.range;
        assert_eq!((before.pixels.len(), before.pixels.len()), (before.is_exact.len(), after.len()), "the same pixels");
        let mut loss = Loss::default();
        for ((was, is), exact) in before.pixels.iter().zip(after).zip(before.is_exact) {
            let is_measured = *was >= low && *was <= high;
            if is_measured {
                loss.pixels += 1;
                loss.pixels_exact += u64::from(*exact != 0);
                loss.sum_before += was.wide();
            }
            if was == is {
                continue;
            }
            let error = is.wide() - was.wide();
            let most = if is_measured && *exact == 0 { allowed(self.sigma, was.wide()) } else { 0 };
            if error.unsigned_abs() > most || *is < low || *is > high {
                return None;
            }
            loss.pixels_changed += 1;
            loss.error_sum += error;
            loss.error_max = loss.error_max.max(error.unsigned_abs());
            loss.error_sigma_max = loss.error_sigma_max.max(error.unsigned_abs() as f64 / (was.wide() as f64).sqrt());
        }
        Some(loss)
    }
}

/// The farthest that a count may move.
fn allowed(sigma: f64, count: i64) -> u64 {
    if (1..COUNTS_END).contains(&count) { (sigma * (count as f64).sqrt()).floor() as u64 } else { 0 }
}
