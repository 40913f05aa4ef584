//! Pixel types of the output image and the values that stand for "no number here".
//!
//! This is the one place that decides them; kernels, writer, reader, simulator and documentation take them from here.
//! | type      | missing    | masked    | invalid   | saturated | valid range                    |
//! |-----------|------------|-----------|-----------|-----------|--------------------------------|
//! | `int16`   | -32766     | -32768    | -32767    | 32767     | -32765 ..= 32766               |
//! | `int32`   | MIN + 2    | MIN       | MIN + 1   | MAX       | -2147483392 ..= 2147483392     |
//! | `uint16`  | 65535      | 65534     | 65533     | 65532     | 0 ..= 65531                    |
//! | `uint32`  | MAX        | MAX - 1   | MAX - 2   | MAX - 3   | 0 ..= 2147483392               |
//! | `float32` | -infinity  | NaN       | f32::MIN  | +infinity | every other finite value       |
//!
//! *missing*: the packet never came (or the word is 0xFFFF, which other receivers use as padding). *masked*: the pixel has no
//! usable calibration, or lies in a gap. *invalid*: gain code 10, or G1 with ADC 0. *saturated*: G2 with ADC 0, or above the valid range.
//! A valid value below the range (only signed types can have one) is clamped to its lower end, and to 0 in unsigned types.
//! Values are rounded half to even. 2147483392 is the largest `f32` whose successor still fits in an `i32`.

use std::fmt;

/// Type of one pixel of the output image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PixelType {
    /// 16 bit, signed.
    Int16,
    /// 32 bit, signed.
    Int32,
    /// 16 bit, unsigned.
    Uint16,
    /// 32 bit, unsigned.
    Uint32,
    /// IEEE 754 single precision.
    Float32,
}

impl PixelType {
    /// All types, for tests and tables.
    pub const ALL: [Self; 5] = [Self::Int16, Self::Int32, Self::Uint16, Self::Uint32, Self::Float32];

    /// Bytes of one pixel.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
        }
    }

    /// Name as numpy, HDF5 and the configuration spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Uint16 => "uint16",
            Self::Uint32 => "uint32",
            Self::Float32 => "float32",
        }
    }

    /// A pixel of this type as it stands in a file, little-endian. `value` is one that the type can hold.
    pub fn le_bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::Int16 => (value as i16).to_le_bytes().to_vec(),
            Self::Int32 => (value as i32).to_le_bytes().to_vec(),
            Self::Uint16 => (value as u16).to_le_bytes().to_vec(),
            Self::Uint32 => (value as u32).to_le_bytes().to_vec(),
            Self::Float32 => (value as f32).to_le_bytes().to_vec(),
        }
    }

    /// The special values as `f64` (exact for every type): missing, masked, invalid, saturated, lowest and highest valid value.
    pub fn special(self) -> Special {
        fn of<P: Pixel>() -> Special {
            Special {
                missing: P::MISSING.to_f64(),
                masked: P::MASKED.to_f64(),
                invalid: P::INVALID.to_f64(),
                saturated: P::SATURATED.to_f64(),
                valid_min: P::VALID_MIN.to_f64(),
                valid_max: P::VALID_MAX.to_f64(),
            }
        }
        match self {
            Self::Int16 => of::<i16>(),
            Self::Int32 => of::<i32>(),
            Self::Uint16 => of::<u16>(),
            Self::Uint32 => of::<u32>(),
            Self::Float32 => of::<f32>(),
        }
    }
}

impl fmt::Display for PixelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for PixelType {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|t| t.name() == s).ok_or_else(|| format!("'{s}' is not a pixel type"))
    }
}

/// The special values of a type, see [`PixelType::special`].
#[derive(Clone, Copy, Debug)]
pub struct Special {
    /// Packet never came.
    pub missing: f64,
    /// No usable calibration, or gap.
    pub masked: f64,
    /// Illegal word.
    pub invalid: f64,
    /// Above the range of the detector or of the type.
    pub saturated: f64,
    /// Lowest number that is a measurement.
    pub valid_min: f64,
    /// Highest number that is a measurement.
    pub valid_max: f64,
}

/// A Rust type that can be a pixel of the output image. Sealed by the table above.
pub trait Pixel: Copy + Default + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static {
    /// The run-time name of this type.
    const TYPE: PixelType;
    /// Packet never came, or word 0xFFFF.
    const MISSING: Self;
    /// No usable calibration, or gap.
    const MASKED: Self;
    /// Gain code 10, or G1 with ADC 0.
    const INVALID: Self;
    /// G2 with ADC 0, or above [`Pixel::VALID_MAX`].
    const SATURATED: Self;
    /// Lowest valid number; smaller ones are clamped to it.
    const VALID_MIN: Self;
    /// Highest valid number; larger ones become [`Pixel::SATURATED`].
    const VALID_MAX: Self;
    /// The value as `f64`, exact.
    fn to_f64(self) -> f64;
    /// Round half to even, clamp at the low end, saturate at the high end; NaN becomes masked. Integers only round; floats do not.
    fn from_photons(value: f32) -> Self;
    /// A count of a photon-counting detector: above the valid range becomes saturated.
    fn from_count(count: u32) -> Self;
    /// True for a measurement, false for the special values.
    #[inline]
    fn is_number(self) -> bool {
        self >= Self::VALID_MIN && self <= Self::VALID_MAX
    }
    /// The `nth` part (from 0) of a number that is divided into `parts` (2 or 4), for [`crate::share`]: integers are rounded down and the
    /// remainder goes to the first parts; floats are divided.
    fn part_of(self, nth: u8, parts: u8) -> Self;
}

macro_rules! integer_pixel {
    ($t:ty, $name:ident, $missing:expr, $masked:expr, $invalid:expr, $saturated:expr, $min:expr, $max:expr) => {
        impl Pixel for $t {
            const TYPE: PixelType = PixelType::$name;
            const MISSING: Self = $missing;
            const MASKED: Self = $masked;
            const INVALID: Self = $invalid;
            const SATURATED: Self = $saturated;
            const VALID_MIN: Self = $min;
            const VALID_MAX: Self = $max;
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline]
            fn from_photons(value: f32) -> Self {
                let rounded = value.round_ties_even();
                if rounded.is_nan() {
                    Self::MASKED
                } else if rounded > Self::VALID_MAX as f32 {
                    Self::SATURATED
                } else if rounded < Self::VALID_MIN as f32 {
                    Self::VALID_MIN
                } else {
                    rounded as Self
                }
            }
            #[inline]
            fn from_count(count: u32) -> Self {
                if count > Self::VALID_MAX as u32 { Self::SATURATED } else { count as Self }
            }
            #[inline]
            fn part_of(self, nth: u8, parts: u8) -> Self {
                let shift = parts.trailing_zeros();
                // The shift rounds down, also below zero.
                (self >> shift) + Self::from((self & (parts as Self - 1)) > nth as Self)
            }
        }
    };
}

integer_pixel!(i16, Int16, i16::MIN + 2, i16::MIN, i16::MIN + 1, i16::MAX, i16::MIN + 3, i16::MAX - 1);
integer_pixel!(i32, Int32, i32::MIN + 2, i32::MIN, i32::MIN + 1, i32::MAX, -2_147_483_392, 2_147_483_392);
integer_pixel!(u16, Uint16, u16::MAX, u16::MAX - 1, u16::MAX - 2, u16::MAX - 3, 0, u16::MAX - 4);
integer_pixel!(u32, Uint32, u32::MAX, u32::MAX - 1, u32::MAX - 2, u32::MAX - 3, 0, 2_147_483_392);

impl Pixel for f32 {
    const TYPE: PixelType = PixelType::Float32;
    const MISSING: Self = f32::NEG_INFINITY;
    const MASKED: Self = f32::NAN;
    const INVALID: Self = f32::MIN;
    const SATURATED: Self = f32::INFINITY;
    const VALID_MIN: Self = -f32::MAX * 0.5;
    const VALID_MAX: Self = f32::MAX;
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline]
    fn from_photons(value: f32) -> Self {
        if value.is_nan() { f32::NAN } else { value.clamp(Self::VALID_MIN, f32::INFINITY) }
    }
    #[inline]
    fn from_count(count: u32) -> Self {
        count as f32
    }
    #[inline]
    fn part_of(self, _nth: u8, parts: u8) -> Self {
        self / f32::from(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<P: Pixel>() {
        let all = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED];
        for (i, a) in all.iter().enumerate() {
            assert!(!(*a >= P::VALID_MIN && *a <= P::VALID_MAX), "{:?}: {a:?} is also a valid number", P::TYPE);
            assert!(all[..i].iter().all(|b| a != b));
        }
        assert_eq!(P::from_photons(P::VALID_MAX.to_f64() as f32 * 2.0), P::SATURATED);
        assert_eq!(P::from_photons(-1.0e38), if P::TYPE == PixelType::Float32 { P::from_photons(-1.0e38) } else { P::VALID_MIN });
        let masked = P::from_photons(f32::NAN);
        assert!(masked == P::MASKED || masked.to_f64().is_nan());
    }

    #[test]
    fn special_values_are_distinct_and_outside_the_valid_range() {
        check::<i16>();
        check::<i32>();
        check::<u16>();
        check::<u32>();
        check::<f32>();
    }

    #[test]
    fn rounds_half_to_even() {
        let got: Vec<i16> = [-1.5f32, -0.5, 0.5, 1.5, 2.5, 0.49999997].iter().map(|&v| i16::from_photons(v)).collect();
        assert_eq!(got, [-2, 0, 0, 2, 2, 0]);
        assert_eq!(u16::from_photons(-3.0), 0);
        assert_eq!(i16::from_photons(32766.4), 32766);
        assert_eq!(i16::from_photons(32766.6), i16::SATURATED);
        assert_eq!(u16::from_count(65532), u16::SATURATED);
    }
}
