//! The types of which a sparse matrix of pixels and bins is made, and the sums that it fills.

use crate::stats::{Measured, Wide};

/// Sums of a bin that are made side by side: pixel n of a stretch goes to sum `n % LANES`, so that neighbours in the
/// same bin do not wait for each other.
pub const LANES: usize = 4;

/// Pixels that are looked at together.
pub const CHUNK: usize = 64;

/// Weights and shares that leave the normalisation are whole numbers of 1 / `ONE`: they are summed exactly, in any
/// order. Of 2^26 whole pixels the sum still fits.
pub const ONE: i64 = 1 << 36;

/// A number as a multiple of 1 / [`ONE`].
#[inline(always)]
pub fn fixed(number: f64) -> i64 {
    // Rounded half away from zero, without a call into libm on older instruction sets.
    (number * ONE as f64 + if number < 0.0 { -0.5 } else { 0.5 }) as i64
}

/// The number of a bin as a matrix stores it.
pub trait BinIndex: Copy + Send + Sync + 'static {
    /// As index of a slice.
    fn get(self) -> usize;
}

impl BinIndex for u16 {
    #[inline(always)]
    fn get(self) -> usize {
        self.into()
    }
}

impl BinIndex for u32 {
    #[inline(always)]
    fn get(self) -> usize {
        self as usize
    }
}

/// A pixel type that can be summed into bins.
pub trait Summed: Measured {
    /// The pixel in the type of its sums.
    fn wide(self) -> Self::Wide;
    /// The sums of this type.
    fn sums(sums: &mut WholeSums) -> &mut [[Self::Wide; LANES]];
}

macro_rules! integers {
    ($($t:ty)*) => { $(impl Summed for $t {
        #[inline(always)]
        fn wide(self) -> i64 {
            i64::from(self)
        }
        fn sums(sums: &mut WholeSums) -> &mut [[i64; LANES]] {
            &mut sums.integers
        }
    })* };
}
integers!(i16 i32 u16 u32);

impl Summed for f32 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn sums(sums: &mut WholeSums) -> &mut [[f64; LANES]] {
        &mut sums.floats
    }
}

/// Sums of bins into which pixels fall as a whole: exact ones for integers, and those of floats.
#[derive(Clone, Debug, Default)]
pub struct WholeSums {
    integers: Vec<[i64; LANES]>,
    floats: Vec<[f64; LANES]>,
}

impl WholeSums {
    /// Zeros for so many bins.
    pub fn new(bins: usize) -> Self {
        Self { integers: vec![[0; LANES]; bins], floats: vec![[0.0; LANES]; bins] }
    }

    /// Sum of a bin of pixels of this type, and sets it to zero. Floats are added in a fixed order.
    pub fn take<P: Summed>(&mut self, bin: usize) -> f64 {
        let lanes = std::mem::take(&mut P::sums(self)[bin]);
        lanes.into_iter().fold(P::Wide::default(), |sum, lane| sum + lane).to_f64()
    }
}

/// What invalid pixels would have added to a bin, in units of 1 / [`ONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Pixels, or shares of pixels.
    pub pixels: i64,
    /// Normalisation.
    pub weight: i64,
}

/// A matrix in which each pixel falls into one bin.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a, I> {
    /// The bin of each pixel.
    pub bins: &'a [I],
    /// The normalisation of each pixel; empty if it is 1 for all.
    pub weights: &'a [f32],
}

/// A further bin of a pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extra {
    /// Number of the pixel in its chunk.
    pub pixel: u32,
    /// Its bin.
    pub bin: u32,
    /// Share of the pixel that falls into the bin, 0 to 1.
    pub share: f32,
}

/// A matrix in which each pixel is split among bins. Most pixels touch one or two bins next to each other.
#[derive(Clone, Copy, Debug)]
pub struct Split<'a, I> {
    /// First bin of each pixel.
    pub bins: &'a [I],
    /// Shares of the pixel that fall into its first bin and into the bin after it.
    pub shares: &'a [[f32; 2]],
    /// As [`Whole::weights`].
    pub weights: &'a [f32],
    /// For each chunk of [`CHUNK`] pixels its first element of `extras`, and the end of the last.
    pub chunks: &'a [u32],
    /// Further bins, in the order of their pixels.
    pub extras: &'a [Extra],
}

/// Sums of bins into which pixels fall with shares. `N` numbers go with a first bin: the sums for it and for the next
/// bin, and, if `N` is 4, the sums of the squares of the shares times the pixel for both.
pub type SplitSums<const N: usize> = [[[f64; N]; LANES]];
