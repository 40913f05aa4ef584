//! Whether any of some values lies above a level and is a measurement, with one subtraction and one minimum for each.

use crate::convert::OutputPixel;
use std::cmp::Ordering;

/// Minima that are kept beside each other, so that wide registers are full.
const LANES: usize = 16;

/// A value that can be above a level.
pub trait Value: OutputPixel {
    /// What its bits are, as a whole number.
    type Whole: Copy;

    /// What is above `level` and at most `high`.
    fn above(level: Self, high: Self) -> Above<Self, Self::Whole>;

    /// Whether any of these is. Their number is a multiple of 16.
    fn any(values: &[Self], above: &Above<Self, Self::Whole>) -> bool;
}

/// The values above a level.
pub enum Above<P, W> {
    /// None is.
    Nothing,
    /// Those whose bits are, from the first on, so many further; all others are further still, because they wrap.
    From {
        /// Bits of the lowest of them.
        first: W,
        /// Bits of the highest less those of the lowest.
        span: W,
    },
    /// Those above the first and at most the second, whose bits are not in their order.
    Between(P, P),
}

macro_rules! value {
    ($($t:ty: $whole:ty, $bits:expr, $are_ordered:expr;)*) => { $(
        impl Value for $t {
            type Whole = $whole;

            #[inline(always)]
            fn above(level: Self, high: Self) -> Above<Self, $whole> {
                // Nothing is above NaN.
                if level.partial_cmp(&high) != Some(Ordering::Less) {
                    return Above::Nothing;
                }
                if !$are_ordered(level) {
                    return Above::Between(level, high);
                }
                let first = $bits(level).wrapping_add(1);
                Above::From { first, span: $bits(high).wrapping_sub(first) }
            }

            #[inline(always)]
            fn any(values: &[Self], above: &Above<Self, $whole>) -> bool {
                match above {
                    Above::Nothing => false,
                    Above::Between(level, high) => values.iter().fold(false, |any, value| any | ((value > level) & (value <= high))),
                    Above::From { first, span } => {
                        let mut least = [<$whole>::MAX; LANES];
                        for chunk in values.as_chunks::<LANES>().0 {
                            for (least, value) in least.iter_mut().zip(chunk) {
                                *least = (*least).min($bits(*value).wrapping_sub(*first));
                            }
                        }
                        least.iter().fold(false, |any, least| any | (least <= span))
                    }
                }
            }
        }
    )* };
}

value! {
    i16: u16, i16::cast_unsigned, |_| true;
    u16: u16, std::convert::identity, |_| true;
    i32: u32, i32::cast_unsigned, |_| true;
    u32: u32, std::convert::identity, |_| true;
    // The bits of floats that are not negative are in the order of the floats; those of negative ones and NaN are
    // higher.
    f32: u32, f32::to_bits, f32::is_sign_positive;
}
