//! The statistics of some pixels, and the pixel types of which they are made.

use crate::above::Value;
use konkordia_core::pixel::Pixel;

/// A number that holds the sum of many pixels: `i64` for integers, `f64` for floats.
pub trait Wide: Copy + PartialOrd + std::ops::Add<Output = Self> + std::fmt::Debug + Default {
    /// Whether it can have a fraction.
    const IS_FLOAT: bool;
    /// No pixel is above it.
    const HIGHEST: Self;
    /// No pixel is below it.
    const LOWEST: Self;
    /// As `f64`.
    fn to_f64(self) -> f64;
    /// Its bits.
    fn bits(self) -> u64;
    /// The number with these bits.
    fn from_bits(bits: u64) -> Self;
}

impl Wide for i64 {
    const IS_FLOAT: bool = false;
    const HIGHEST: Self = Self::MAX;
    const LOWEST: Self = Self::MIN;
    fn to_f64(self) -> f64 {
        self as f64
    }
    fn bits(self) -> u64 {
        self.cast_unsigned()
    }
    fn from_bits(bits: u64) -> Self {
        bits.cast_signed()
    }
}

impl Wide for f64 {
    const IS_FLOAT: bool = true;
    const HIGHEST: Self = Self::INFINITY;
    const LOWEST: Self = Self::NEG_INFINITY;
    fn to_f64(self) -> f64 {
        self
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

/// Numbers of which [`PixelStats`] consists.
pub const STATS_NUMBERS: usize = 6;

/// What is said of some pixels; those of an image are merged from those of its strips. Pixels that are neither valid
/// nor missing nor saturated are masked or invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelStats<W> {
    /// Pixels that hold a measurement.
    pub valid: u64,
    /// Pixels whose packet never came.
    pub missing: u64,
    /// Pixels above the range.
    pub saturated: u64,
    /// Lowest valid value, see [`Self::range`].
    pub min: W,
    /// Highest valid value, see [`Self::range`].
    pub max: W,
    /// Sum of the valid values. For integers it is exact; sums of floats are made in double precision in a fixed order.
    pub sum: W,
}

impl<W: Wide> Default for PixelStats<W> {
    fn default() -> Self {
        Self { valid: 0, missing: 0, saturated: 0, min: W::HIGHEST, max: W::LOWEST, sum: W::default() }
    }
}

impl<W: Wide> PixelStats<W> {
    /// Adds the statistics of other pixels.
    pub fn merge(&mut self, other: &Self) {
        self.valid += other.valid;
        self.missing += other.missing;
        self.saturated += other.saturated;
        self.min = if other.min < self.min { other.min } else { self.min };
        self.max = if other.max > self.max { other.max } else { self.max };
        self.sum = self.sum + other.sum;
    }

    /// Lowest and highest valid value; `None` without valid pixels.
    pub fn range(&self) -> Option<(W, W)> {
        (self.valid > 0).then_some((self.min, self.max))
    }

    /// All fields in their order.
    pub fn bits(&self) -> [u64; STATS_NUMBERS] {
        [self.valid, self.missing, self.saturated, self.min.bits(), self.max.bits(), self.sum.bits()]
    }

    /// The inverse of [`Self::bits`].
    pub fn from_bits([valid, missing, saturated, min, max, sum]: [u64; STATS_NUMBERS]) -> Self {
        let [min, max, sum] = [min, max, sum].map(W::from_bits);
        Self { valid, missing, saturated, min, max, sum }
    }
}

impl PixelStats<i64> {
    /// Adds so many valid pixels between two values.
    #[inline(always)]
    fn add_integers(&mut self, valid: u64, (low, high): (i64, i64), sum: i64) {
        if valid > 0 {
            self.valid += valid;
            self.min = self.min.min(low);
            self.max = self.max.max(high);
            self.sum += sum;
        }
    }
}

/// A pixel type of which statistics are made.
pub trait Measured: Value {
    /// Type of its sums.
    type Wide: Wide;
    /// Adds a few pixels, see [`super::add`]. Inlined into each instruction set.
    fn add(pixels: &[Self], stats: &mut PixelStats<Self::Wide>);
    /// Adds a few pixels, see [`super::add_within`]. Inlined into each instruction set.
    fn add_within(pixels: &[Self], usable: &[bool], range: (Self, Self), stats: &mut PixelStats<Self::Wide>);
}

/// Pixels that are added together: few enough that their sum and their number fit into the narrow counters of the loop,
/// and that a special value among them costs little.
pub const PORTION: usize = 256;

/// Numbers that are added side by side in sums of floats, so that the order is the same in all instruction sets.
const LANES: usize = 16;

macro_rules! integers {
    ($($t:ty, $narrow:ty, $counter:ty;)*) => { $(impl Measured for $t {
        type Wide = i64;

        #[inline(always)]
        fn add(pixels: &[Self], stats: &mut PixelStats<i64>) {
            const MIN: $t = <$t as Pixel>::VALID_MIN;
            const MAX: $t = <$t as Pixel>::VALID_MAX;
            debug_assert!(pixels.len() <= PORTION);
            let (mut low, mut high, mut sum) = (<$t>::MAX, <$t>::MIN, 0 as $narrow);
            for &pixel in pixels {
                low = low.min(pixel);
                high = high.max(pixel);
                sum += <$narrow>::from(pixel);
            }
            let mut valid = pixels.len() as u64;
            if low < MIN || high > MAX {
                (low, high, sum) = (<$t>::MAX, <$t>::MIN, 0);
                let mut counts = [0 as $counter; 3];
                for &pixel in pixels {
                    let is_valid = pixel.is_number();
                    low = low.min(if is_valid { pixel } else { <$t>::MAX });
                    high = high.max(if is_valid { pixel } else { <$t>::MIN });
                    sum += <$narrow>::from(if is_valid { pixel } else { 0 });
                    counts[0] += <$counter>::from(is_valid);
                    counts[1] += <$counter>::from(pixel == <$t as Pixel>::MISSING);
                    counts[2] += <$counter>::from(pixel == <$t as Pixel>::SATURATED);
                }
                valid = u64::from(counts[0]);
                stats.missing += u64::from(counts[1]);
                stats.saturated += u64::from(counts[2]);
            }
            stats.add_integers(valid, (i64::from(low), i64::from(high)), i64::from(sum));
        }

        #[inline(always)]
        fn add_within(pixels: &[Self], usable: &[bool], (lowest, highest): ($t, $t), stats: &mut PixelStats<i64>) {
            debug_assert!(pixels.len() <= PORTION && pixels.len() == usable.len());
            let (mut low, mut high, mut sum, mut are_usable) = (<$t>::MAX, <$t>::MIN, 0 as $narrow, true);
            for (&pixel, &usable) in pixels.iter().zip(usable) {
                low = low.min(pixel);
                high = high.max(pixel);
                sum += <$narrow>::from(pixel);
                are_usable &= usable;
            }
            let mut valid = pixels.len() as u64;
            if !are_usable || low < lowest || high > highest {
                (low, high, sum) = (<$t>::MAX, <$t>::MIN, 0);
                let mut counts = [0 as $counter; 3];
                for (&pixel, &usable) in pixels.iter().zip(usable) {
                    let is_valid = usable & (pixel >= lowest) & (pixel <= highest);
                    low = low.min(if is_valid { pixel } else { <$t>::MAX });
                    high = high.max(if is_valid { pixel } else { <$t>::MIN });
                    sum += <$narrow>::from(if is_valid { pixel } else { 0 });
                    let is_missing = pixel == <$t as Pixel>::MISSING;
                    let is_special = is_missing | (pixel == <$t as Pixel>::MASKED) | (pixel == <$t as Pixel>::INVALID);
                    counts[0] += <$counter>::from(is_valid);
                    counts[1] += <$counter>::from(usable & is_missing);
                    counts[2] += <$counter>::from(usable & (pixel > highest) & !is_special);
                }
                valid = u64::from(counts[0]);
                stats.missing += u64::from(counts[1]);
                stats.saturated += u64::from(counts[2]);
            }
            stats.add_integers(valid, (i64::from(low), i64::from(high)), i64::from(sum));
        }
    })* };
}
integers! {
    i16, i32, u16;
    u16, u32, u16;
    i32, i64, u32;
    u32, i64, u32;
}

impl Measured for f32 {
    type Wide = f64;

    #[inline(always)]
    fn add(pixels: &[Self], stats: &mut PixelStats<f64>) {
        let missing_and_saturated = |pixel: Self| [pixel == Self::MISSING, pixel == Self::SATURATED];
        add_floats(pixels, |_, pixel| (pixel.is_number(), missing_and_saturated(pixel)), stats);
    }

    #[inline(always)]
    fn add_within(pixels: &[Self], usable: &[bool], (lowest, highest): (Self, Self), stats: &mut PixelStats<f64>) {
        debug_assert_eq!(pixels.len(), usable.len());
        let verdict = |n: usize, pixel: Self| {
            let (usable, is_missing) = (usable[n], pixel == Self::MISSING);
            let is_special = is_missing | (pixel == Self::MASKED) | (pixel == Self::INVALID);
            let is_valid = usable & (pixel >= lowest) & (pixel <= highest);
            (is_valid, [usable & is_missing, usable & (pixel > highest) & !is_special])
        };
        add_floats(pixels, verdict, stats);
    }
}

/// Adds floats, of which `verdict` says by place and value whether they are valid, missing and saturated.
#[inline(always)]
fn add_floats(pixels: &[f32], verdict: impl Fn(usize, f32) -> (bool, [bool; 2]), stats: &mut PixelStats<f64>) {
    let mut low = [f32::INFINITY; LANES];
    let mut high = [f32::NEG_INFINITY; LANES];
    let mut sums = [0.0f64; LANES];
    let mut counts = [[0u32; LANES]; 3];
    for (n, row) in pixels.chunks(LANES).enumerate() {
        for (lane, &pixel) in row.iter().enumerate() {
            let (is_valid, [is_missing, is_saturated]) = verdict(n * LANES + lane, pixel);
            low[lane] = if is_valid && pixel < low[lane] { pixel } else { low[lane] };
            high[lane] = if is_valid && pixel > high[lane] { pixel } else { high[lane] };
            sums[lane] += if is_valid { f64::from(pixel) } else { 0.0 };
            counts[0][lane] += u32::from(is_valid);
            counts[1][lane] += u32::from(is_missing);
            counts[2][lane] += u32::from(is_saturated);
        }
    }
    let [valid, missing, saturated] = counts.map(|lanes| lanes.iter().map(|n| u64::from(*n)).sum());
    let portion = PixelStats {
        valid,
        missing,
        saturated,
        min: f64::from(low.into_iter().fold(f32::INFINITY, |a, b| if b < a { b } else { a })),
        max: f64::from(high.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })),
        sum: sums.into_iter().sum(),
    };
    stats.merge(&portion);
}
