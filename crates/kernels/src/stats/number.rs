//! The statistics of some pixels, and the pixel types of which they are made.

use crate::convert::OutputPixel;
use konkordia_core::pixel::Pixel;

/// A number that holds the sum of many pixels: `i64` for integers, `f64` for floats.
pub trait Wide: Copy + PartialOrd + std::ops::Add<Output = Self> + std::fmt::Debug + Default {
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

/// A pixel type of which statistics are made.
pub trait Measured: OutputPixel {
    /// Type of its sums.
    type Wide: Wide;
    /// Pixels that are added together, at most. The more there are, the rarer are the steps that put the lanes of
    /// registers together.
    const PORTION: usize;
    /// Adds at most [`Self::PORTION`] pixels, see [`super::add`]. Inlined into each instruction set, which gives a
    /// function for sums of a portion of 16 bits with sign.
    fn add(pixels: &[Self], stats: &mut PixelStats<Self::Wide>, sum_of_16: impl Fn(&[i16]) -> i32);
}

/// Numbers that are added side by side in sums of floats, so that the order is the same in all instruction sets.
const LANES: usize = 16;

/// Integers of a portion that holds a special value are added so many at a time, so that the others stay fast.
const PART: usize = 512;

macro_rules! integers {
    ($($t:ty, $narrow:ty, $counter:ty, $unsigned:ty, $sum:path;)*) => { $(impl Measured for $t {
        type Wide = i64;
        /// A block of 16-bit pixels, see [`crate::fused`].
        const PORTION: usize = 4096;

        #[inline(always)]
        fn add(pixels: &[Self], stats: &mut PixelStats<i64>, sum_of_16: impl Fn(&[i16]) -> i32) {
            const MIN: $t = <$t as Pixel>::VALID_MIN;
            const MAX: $t = <$t as Pixel>::VALID_MAX;
            const {
                // The narrow sum holds that of any portion, special values included, and the narrow counter its pixels.
                let pixels = <$t as Measured>::PORTION as i128;
                assert!(pixels * <$t>::MAX as i128 <= <$narrow>::MAX as i128);
                assert!(pixels * <$t>::MIN as i128 >= <$narrow>::MIN as i128);
                assert!(pixels <= <$counter>::MAX as i128);
            }
            debug_assert!(pixels.len() <= Self::PORTION);
            let (low, high) = range((<$t>::MAX, <$t>::MIN), pixels);
            if low >= MIN && high <= MAX {
                let sum: $narrow = $sum(pixels, &sum_of_16);
                return put(stats, pixels.len(), (low, high), sum);
            }
            for part in pixels.chunks(PART) {
                let (low, high) = range((<$t>::MAX, <$t>::MIN), part);
                if low >= MIN && high <= MAX {
                    let sum: $narrow = $sum(part, &sum_of_16);
                    put(stats, part.len(), (low, high), sum);
                } else {
                    add_mixed(part, (low, high), stats);
                }
            }

            /// Adds numbers and special values; `low` and `high` are the range of both.
            #[inline(always)]
            fn add_mixed(pixels: &[$t], (low, high): ($t, $t), stats: &mut PixelStats<i64>) {
                const RANGE: $unsigned = MAX.wrapping_sub(MIN) as $unsigned;
                for (count, special) in
                    [(&mut stats.missing, <$t as Pixel>::MISSING), (&mut stats.saturated, <$t as Pixel>::SATURATED)]
                {
                    // Most often pixels are only masked.
                    if low <= special && special <= high {
                        let mut found = 0 as $counter;
                        for &pixel in pixels {
                            found += <$counter>::from(pixel == special);
                        }
                        *count += u64::from(found);
                    }
                }
                // Distances from the ends of the range wrap, so those of a special value are larger than the range.
                let (mut above, mut below) = (<$unsigned>::MAX, <$unsigned>::MAX);
                let (mut valid, mut sum) = (0 as $counter, 0 as $narrow);
                for &pixel in pixels {
                    let distance = pixel.wrapping_sub(MIN) as $unsigned;
                    above = above.min(distance);
                    below = below.min(MAX.wrapping_sub(pixel) as $unsigned);
                    valid += <$counter>::from(distance <= RANGE);
                }
                // A loop of its own: lanes of another width would make the other one slower.
                for &pixel in pixels {
                    let is_valid = pixel.wrapping_sub(MIN) as $unsigned <= RANGE;
                    sum += <$narrow>::from(if is_valid { pixel } else { 0 });
                }
                let range = (MIN.wrapping_add(above as $t), MAX.wrapping_sub(below as $t));
                put(stats, valid as usize, range, sum);
            }
        }
    })* };
}
integers! {
    i16, i32, u16, u16, by_isa;
    u16, u32, u16, u16, plain;
    i32, i64, u32, u32, plain;
    u32, i64, u32, u32, plain;
}

/// The lowest and highest value.
#[inline(always)]
fn range<T: Copy + Ord>((mut low, mut high): (T, T), pixels: &[T]) -> (T, T) {
    for &pixel in pixels {
        low = low.min(pixel);
        high = high.max(pixel);
    }
    (low, high)
}

/// Adds `valid` numbers of this range and sum.
#[inline(always)]
fn put<T: Into<i64>>(stats: &mut PixelStats<i64>, valid: usize, (low, high): (T, T), sum: impl Into<i64>) {
    if valid > 0 {
        stats.valid += valid as u64;
        stats.min = stats.min.min(low.into());
        stats.max = stats.max.max(high.into());
        stats.sum += sum.into();
    }
}

/// The sum of a portion, by the function of the instruction set.
#[inline(always)]
fn by_isa(pixels: &[i16], sum_of_16: impl Fn(&[i16]) -> i32) -> i32 {
    sum_of_16(pixels)
}

/// The sum of a portion as compilers make it.
#[inline(always)]
fn plain<T: Copy, N: From<T> + Default + std::ops::AddAssign>(pixels: &[T], _: impl Fn(&[i16]) -> i32) -> N {
    let mut sum = N::default();
    for &pixel in pixels {
        sum += N::from(pixel);
    }
    sum
}

impl Measured for f32 {
    type Wide = f64;
    /// Never changes: the order in which floats are added is part of the result.
    const PORTION: usize = 256;

    #[inline(always)]
    fn add(pixels: &[Self], stats: &mut PixelStats<f64>, _: impl Fn(&[i16]) -> i32) {
        let mut low = [Self::INFINITY; LANES];
        let mut high = [Self::NEG_INFINITY; LANES];
        let mut sums = [0.0f64; LANES];
        let mut counts = [[0u32; LANES]; 3];
        for row in pixels.chunks(LANES) {
            for (lane, &pixel) in row.iter().enumerate() {
                let is_valid = pixel.is_number();
                low[lane] = if is_valid && pixel < low[lane] { pixel } else { low[lane] };
                high[lane] = if is_valid && pixel > high[lane] { pixel } else { high[lane] };
                sums[lane] += if is_valid { f64::from(pixel) } else { 0.0 };
                counts[0][lane] += u32::from(is_valid);
                counts[1][lane] += u32::from(pixel == Self::MISSING);
                counts[2][lane] += u32::from(pixel == Self::SATURATED);
            }
        }
        let [valid, missing, saturated] = counts.map(|lanes| lanes.iter().map(|n| u64::from(*n)).sum());
        let portion = PixelStats {
            valid,
            missing,
            saturated,
            min: f64::from(low.into_iter().fold(Self::INFINITY, |a, b| if b < a { b } else { a })),
            max: f64::from(high.into_iter().fold(Self::NEG_INFINITY, |a, b| if b > a { b } else { a })),
            sum: sums.into_iter().sum(),
        };
        stats.merge(&portion);
    }
}
