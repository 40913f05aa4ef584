//! Pixels of any type as numbers: which values are special (the table of [`konkordia_core::pixel`]), how they are
//! added, and how a total becomes a pixel again.

use bytemuck::Pod;
use konkordia_core::array::Element;
use konkordia_core::pixel::Pixel;

/// What becomes of a result above the highest number of the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The special value *saturated*.
    #[default]
    Saturated,
    /// The highest number.
    Clamped,
}

/// The kind of a pixel. Where several pixels become one, the highest kind wins.
pub type Kind = u8;
/// A measurement.
pub const NUMBER: Kind = 0;
/// Above the range.
pub const SATURATED: Kind = 1;
/// An illegal word.
pub const INVALID: Kind = 2;
/// No data arrived.
pub const MISSING: Kind = 3;
/// Of no use: no calibration, or a gap.
pub const MASKED: Kind = 4;

/// A pixel type. Numbers below the valid range that are not special count as numbers, those above as saturated.
pub trait Sample: Pod + PartialOrd {
    /// Its name.
    const ELEMENT: Element;
    /// Type in which pixels are added: exact for integers.
    type Total: Total;

    /// See [`Kind`].
    fn kind(self) -> Kind;
    /// The special value of a kind other than [`NUMBER`].
    fn special(kind: Kind) -> Self;
    /// True for a number of the valid range; cheap enough to test many pixels at once.
    fn is_plain(self) -> bool;
    /// The pixel in the type of totals.
    fn widen(self) -> Self::Total;
    /// Exact up to 32 bits.
    fn to_f64(self) -> f64;
    /// Clamped at the low end; `overflow` at the high end.
    fn of_integer(value: i128, overflow: Overflow) -> Self;
    /// The same for values of 64 bits, which is faster.
    fn of_i64(value: i64, overflow: Overflow) -> Self;
    /// As [`Self::of_integer`]; for integer types the value is first rounded half to even. `value` is not NaN.
    fn of_float(value: f64, overflow: Overflow) -> Self;
}

/// A sum of pixels.
pub trait Total: Pod + Default + std::ops::AddAssign {
    /// The sum as a pixel.
    fn sum<T: Sample>(self, overflow: Overflow) -> T;
    /// The sum over `count` as a pixel: integers rounded half to even, exactly.
    fn mean<T: Sample>(self, count: u32, overflow: Overflow) -> T;
}

macro_rules! integer_total {
    ($($t:ty, $of:ident);*) => { $(impl Total for $t {
        #[inline(always)]
        fn sum<T: Sample>(self, overflow: Overflow) -> T {
            T::$of(self, overflow)
        }
        #[inline(always)]
        fn mean<T: Sample>(self, count: u32, overflow: Overflow) -> T {
            if matches!(T::ELEMENT, Element::Float32 | Element::Float64) {
                return T::of_float(self as f64 / f64::from(count), overflow);
            }
            let count = Self::from(count);
            let (quotient, rest) = (self.div_euclid(count), self.rem_euclid(count));
            let is_up = 2 * rest > count || (2 * rest == count && quotient % 2 != 0);
            T::$of(quotient + Self::from(is_up), overflow)
        }
    })* };
}
integer_total!(i64, of_i64; i128, of_integer);

impl Total for f64 {
    #[inline(always)]
    fn sum<T: Sample>(self, overflow: Overflow) -> T {
        T::of_float(self, overflow)
    }
    #[inline(always)]
    fn mean<T: Sample>(self, count: u32, overflow: Overflow) -> T {
        T::of_float(self / f64::from(count), overflow)
    }
}

macro_rules! integer {
    ($t:ty, $element:ident, $total:ty, [$saturated:expr, $invalid:expr, $missing:expr, $masked:expr], $min:expr, $max:expr) => {
        impl Sample for $t {
            const ELEMENT: Element = Element::$element;
            type Total = $total;

            #[inline(always)]
            fn kind(self) -> Kind {
                if self == $masked {
                    MASKED
                } else if self == $missing {
                    MISSING
                } else if self == $invalid {
                    INVALID
                } else if self > $max {
                    SATURATED
                } else {
                    NUMBER
                }
            }
            #[inline(always)]
            fn special(kind: Kind) -> Self {
                [$max, $saturated, $invalid, $missing, $masked][usize::from(kind)]
            }
            #[inline(always)]
            fn is_plain(self) -> bool {
                ($min..=$max).contains(&self)
            }
            #[inline(always)]
            fn widen(self) -> $total {
                <$total>::from(self)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn of_integer(value: i128, overflow: Overflow) -> Self {
                if value > $max as i128 {
                    if overflow == Overflow::Clamped { $max } else { $saturated }
                } else {
                    value.max($min as i128) as Self
                }
            }
            #[inline(always)]
            fn of_i64(value: i64, overflow: Overflow) -> Self {
                if size_of::<Self>() == 8 {
                    return Self::of_integer(i128::from(value), overflow);
                }
                let above = if overflow == Overflow::Clamped { $max } else { $saturated };
                let number = value.max($min as i64) as Self;
                if value > $max as i64 { above } else { number }
            }
            #[inline(always)]
            fn of_float(value: f64, overflow: Overflow) -> Self {
                // An i128 holds the whole range of every type and the cast saturates beyond.
                Self::of_integer(value.round_ties_even() as i128, overflow)
            }
        }
    };
    ($t:ty, $element:ident, $total:ty) => {
        integer!(
            $t,
            $element,
            $total,
            [<$t>::SATURATED, <$t>::INVALID, <$t>::MISSING, <$t>::MASKED],
            <$t>::VALID_MIN,
            <$t>::VALID_MAX
        );
    };
    ($t:ty, $element:ident, $total:ty, signed) => {
        integer!($t, $element, $total, [<$t>::MAX, <$t>::MIN + 1, <$t>::MIN + 2, <$t>::MIN], <$t>::MIN + 3, <$t>::MAX - 1);
    };
    ($t:ty, $element:ident, $total:ty, unsigned) => {
        integer!($t, $element, $total, [<$t>::MAX - 3, <$t>::MAX - 2, <$t>::MAX, <$t>::MAX - 1], 0, <$t>::MAX - 4);
    };
}

integer!(u8, Uint8, i64, unsigned);
integer!(i8, Int8, i64, signed);
integer!(u16, Uint16, i64);
integer!(i16, Int16, i64);
integer!(u32, Uint32, i64);
integer!(i32, Int32, i64);
integer!(u64, Uint64, i128, unsigned);
integer!(i64, Int64, i128, signed);

macro_rules! float {
    ($t:ident, $element:ident) => {
        impl Sample for $t {
            const ELEMENT: Element = Element::$element;
            type Total = f64;

            #[inline(always)]
            fn kind(self) -> Kind {
                if self.is_nan() {
                    MASKED
                } else if self == $t::NEG_INFINITY {
                    MISSING
                } else if self == $t::MIN {
                    INVALID
                } else if self == $t::INFINITY {
                    SATURATED
                } else {
                    NUMBER
                }
            }
            #[inline(always)]
            fn special(kind: Kind) -> Self {
                [0.0, $t::INFINITY, $t::MIN, $t::NEG_INFINITY, $t::NAN][usize::from(kind)]
            }
            #[inline(always)]
            fn is_plain(self) -> bool {
                (-$t::MAX * 0.5..=$t::MAX).contains(&self)
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn of_integer(value: i128, overflow: Overflow) -> Self {
                // No i128 is above the range of either float. Going through `of_float` would round the value twice.
                let _ = overflow;
                (value as Self).max(-$t::MAX * 0.5)
            }
            #[inline(always)]
            fn of_i64(value: i64, _: Overflow) -> Self {
                value as Self
            }
            #[inline(always)]
            fn of_float(value: f64, overflow: Overflow) -> Self {
                let value = value as Self;
                if value > $t::MAX {
                    return if overflow == Overflow::Clamped { $t::MAX } else { $t::INFINITY };
                }
                value.max(-$t::MAX * 0.5)
            }
        }
    };
}
float!(f32, Float32);
float!(f64, Float64);

/// Reads pixels from bytes of any alignment.
#[inline(always)]
pub fn read<T: Sample>(bytes: &[u8]) -> impl ExactSizeIterator<Item = T> + '_ {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// Writes pixels to bytes of any alignment.
#[inline(always)]
pub fn write<T: Pod>(out: &mut [u8], pixels: impl Iterator<Item = T>) {
    for (out, pixel) in out.chunks_exact_mut(size_of::<T>()).zip(pixels) {
        out.copy_from_slice(bytemuck::bytes_of(&pixel));
    }
}

/// Calls a function with the Rust type of an element as its first type argument; a packed type, which has none, gives
/// `$none`.
macro_rules! for_element {
    ($element:expr, $($function:ident)::+ $(::<_ $(, $more:ty)*>)? ($($argument:expr),* $(,)?), $none:expr) => {
        match $element {
            Element::Uint8 => $($function)::+::<u8 $($(, $more)*)?>($($argument),*),
            Element::Uint16 => $($function)::+::<u16 $($(, $more)*)?>($($argument),*),
            Element::Uint32 => $($function)::+::<u32 $($(, $more)*)?>($($argument),*),
            Element::Uint64 => $($function)::+::<u64 $($(, $more)*)?>($($argument),*),
            Element::Int8 => $($function)::+::<i8 $($(, $more)*)?>($($argument),*),
            Element::Int16 => $($function)::+::<i16 $($(, $more)*)?>($($argument),*),
            Element::Int32 => $($function)::+::<i32 $($(, $more)*)?>($($argument),*),
            Element::Int64 => $($function)::+::<i64 $($(, $more)*)?>($($argument),*),
            Element::Float32 => $($function)::+::<f32 $($(, $more)*)?>($($argument),*),
            Element::Float64 => $($function)::+::<f64 $($(, $more)*)?>($($argument),*),
            Element::Packed(_) => $none,
        }
    };
}
pub(super) use for_element;

/// The special value *masked* of an element, as bytes in a file; empty for packed types, which has none.
pub fn masked_le_bytes(element: Element) -> Vec<u8> {
    fn of<T: Sample>() -> Vec<u8> {
        bytemuck::bytes_of(&T::special(MASKED)).to_vec()
    }
    for_element!(element, of(), Vec::new())
}

/// The special value *missing*, likewise.
pub fn missing_le_bytes(element: Element) -> Vec<u8> {
    fn of<T: Sample>() -> Vec<u8> {
        bytemuck::bytes_of(&T::special(MISSING)).to_vec()
    }
    for_element!(element, of(), Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Sample>() {
        let (special, pixel) = (T::ELEMENT.pixel().map(|p| p.special()), T::ELEMENT);
        for kind in [SATURATED, INVALID, MISSING, MASKED] {
            let value = T::special(kind);
            assert_eq!(value.kind(), kind, "{pixel:?}");
            assert!(!value.is_plain());
            let Some(special) = special else { continue };
            let expected = [0.0, special.saturated, special.invalid, special.missing, special.masked][usize::from(kind)];
            assert!(value.to_f64() == expected || (expected.is_nan() && value.to_f64().is_nan()), "{pixel:?} {kind}");
        }
        let many = T::of_integer(i128::MAX, Overflow::Clamped);
        assert!(many.is_plain() && many.kind() == NUMBER);
        assert!(T::of_integer(i128::MIN, Overflow::Clamped).is_plain());
        assert_eq!(T::of_float(f64::MAX, Overflow::Clamped).kind(), NUMBER);
        assert!(T::of_float(-f64::MAX, Overflow::Clamped).is_plain());
        if T::ELEMENT != Element::Float64 {
            assert_eq!(T::of_float(f64::MAX, Overflow::Saturated).kind(), SATURATED);
        }
    }

    #[test]
    fn special_values_are_those_of_the_table() {
        for element in Element::ALL {
            for_element!(element, check(), ());
        }
        assert_eq!(masked_le_bytes(Element::Uint16), [0xFE, 0xFF]);
        assert_eq!(missing_le_bytes(Element::Uint8), [0xFF]);
    }

    #[test]
    fn means_are_rounded_half_to_even() {
        let mean = |total: i64, count: u32| total.mean::<i16>(count, Overflow::Saturated);
        assert_eq!([5, 7, -5, -7, 6, -6].map(|total| mean(total, 2)), [2, 4, -2, -4, 3, -3]);
        assert_eq!([1, 2, -1, -2].map(|total| mean(total, 3)), [0, 1, 0, -1]);
        assert_eq!(7i64.mean::<f32>(2, Overflow::Saturated), 3.5);
        assert_eq!(2.5f64.sum::<u8>(Overflow::Saturated), 2);
    }
}
