//! The pixel types that conversion gives.

#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use konkordia_core::pixel::Pixel;

#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub trait Wide: avx2::Finish + avx512::Finish {}
#[cfg(target_arch = "x86_64")]
impl<T: avx2::Finish + avx512::Finish> Wide for T {}
#[cfg(not(target_arch = "x86_64"))]
#[doc(hidden)]
pub trait Wide {}
#[cfg(not(target_arch = "x86_64"))]
impl<T> Wide for T {}

/// A pixel type that the kernels can produce and pack: `i16`, `i32`, `u16`, `u32`, `f32`.
pub trait OutputPixel: Pixel + bytemuck::Pod + Wide {
    /// A whole number as a pixel: clamped at the low end, saturated at the high end.
    fn from_whole(value: i64) -> Self;
}

macro_rules! integer_output {
    ($($t:ty)*) => { $(impl OutputPixel for $t {
        #[inline]
        fn from_whole(value: i64) -> Self {
            if value > Self::VALID_MAX as i64 { Self::SATURATED } else { value.max(Self::VALID_MIN as i64) as Self }
        }
    })* };
}
integer_output!(i16 i32 u16 u32);

impl OutputPixel for f32 {
    #[inline]
    fn from_whole(value: i64) -> Self {
        value as Self
    }
}
