//! Pixels as the window sums take them.

use crate::stats::Measured;
use konkordia_core::pixel::PixelType;

/// A number of which windows are summed: `i32` for integer pixels, `f32` for floats.
pub trait Value: Copy + Default + PartialOrd + Send + Sync + std::fmt::Debug + 'static {
    /// True if sums in 32 bits are exact where the values are small; false: sums are always made in `f64`.
    const IS_WHOLE: bool;
    /// The lowest value that counts as small if `limit` is the highest.
    fn lowest(limit: i32) -> Self;
    /// The highest value that counts as small.
    fn highest(limit: i32) -> Self;
    /// The value of a pixel whose type is whole exactly if [`Self::IS_WHOLE`]; numbers above `i32::MAX` become it.
    fn of<P: Measured>(pixel: P) -> Self;
    /// As `i32`; only for whole values.
    fn whole(self) -> i32;
    /// As `f64`, exact.
    fn wide(self) -> f64;
}

impl Value for i32 {
    const IS_WHOLE: bool = true;
    #[inline(always)]
    fn lowest(limit: i32) -> Self {
        -limit
    }
    #[inline(always)]
    fn highest(limit: i32) -> Self {
        limit
    }
    #[inline(always)]
    fn of<P: Measured>(pixel: P) -> Self {
        match P::TYPE {
            PixelType::Int16 => Self::from(bytemuck::cast::<P, i16>(pixel)),
            PixelType::Uint16 => Self::from(bytemuck::cast::<P, u16>(pixel)),
            PixelType::Int32 => bytemuck::cast::<P, Self>(pixel),
            PixelType::Uint32 => bytemuck::cast::<P, u32>(pixel).min(Self::MAX.cast_unsigned()).cast_signed(),
            _ => 0,
        }
    }
    #[inline(always)]
    fn whole(self) -> i32 {
        self
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Value for f32 {
    const IS_WHOLE: bool = false;
    #[inline(always)]
    fn lowest(_limit: i32) -> Self {
        Self::INFINITY
    }
    #[inline(always)]
    fn highest(_limit: i32) -> Self {
        Self::NEG_INFINITY
    }
    #[inline(always)]
    fn of<P: Measured>(pixel: P) -> Self {
        match P::TYPE {
            PixelType::Float32 => bytemuck::cast::<P, Self>(pixel),
            _ => 0.0,
        }
    }
    #[inline(always)]
    fn whole(self) -> i32 {
        0
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}
