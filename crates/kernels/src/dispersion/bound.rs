//! Which index of dispersion is too high for background.

/// Largest half width of a window in pixels.
pub const HALF_WIDTH_MAX: usize = 7;

/// For each number of pixels under a window: how far their variance may exceed the sum of their values. With `m`
/// pixels, their sum `x` and the sum of their squares `y`, the pixel in the middle is not background if
/// `m * y - x * x > factor[m] * x`.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Half width of the window along the rows.
    pub half_width: usize,
    /// Number of pixels of a whole window.
    pub whole: usize,
    factors: Vec<f64>,
}

impl Bound {
    /// For windows of `2 * half_height + 1` rows and `2 * half_width + 1` columns, of which at least `count_min` pixels
    /// must count. The variance divided by the mean, in units of `gain`, may be `sigma` standard deviations above 1;
    /// that of `m` pixels is `sqrt(2 / (m - 1))`.
    ///
    /// # Panics
    /// If a half width is 0 or above [`HALF_WIDTH_MAX`].
    pub fn new(half_height: usize, half_width: usize, count_min: usize, sigma: f64, gain: f64) -> Self {
        let is_possible = |half: usize| (1..=HALF_WIDTH_MAX).contains(&half);
        assert!(is_possible(half_height) && is_possible(half_width), "a window of {half_height} and {half_width}");
        let whole = (2 * half_height + 1) * (2 * half_width + 1);
        let factor = |count: usize| match count {
            0 | 1 => f64::INFINITY,
            _ if count < count_min => f64::INFINITY,
            _ => gain * ((count - 1) as f64 + sigma * (2.0 * (count - 1) as f64).sqrt()),
        };
        Self { half_width, whole, factors: (0..=whole).map(factor).collect() }
    }

    /// Values of at most this size, and at least the negative of it, are summed in 32 bits without loss.
    pub fn small_max(&self) -> i32 {
        (f64::from(i32::MAX) / self.whole as f64).sqrt() as i32
    }

    /// The factor for this number of pixels; infinite if they are too few.
    #[inline(always)]
    pub fn factor(&self, count: usize) -> f64 {
        self.factors[count]
    }

    /// True if the middle of a window is not background; see [`Bound`].
    pub fn is_above(&self, count: usize, sum: f64, squares: f64) -> bool {
        is_above(count as f64, sum, squares, self.factor(count))
    }
}

/// See [`Bound`]. Without branches, for loops over many windows.
#[inline(always)]
pub fn is_above(count: f64, sum: f64, squares: f64, factor: f64) -> bool {
    (sum >= 0.0) & (factor < f64::INFINITY) & (count * squares - sum * sum > factor * sum)
}
