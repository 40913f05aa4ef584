//! Pixel types of the output image, and the special values that mark a pixel without a number.
//!
//! This is the one place that decides them; kernels, writer, reader, simulator and documentation take them from here.
//! | type      | missing    | masked    | invalid   | saturated | valid range                    |
//! |-----------|------------|-----------|-----------|-----------|--------------------------------|
//! | `int16`   | -32766     | -32768    | -32767    | 32767     | -32765 ..= 32766               |
//! | `int32`   | MIN + 2    | MIN       | MIN + 1   | MAX       | -2147483392 ..= 2147483392     |
//! | `uint16`  | 65535      | 65534     | 65533     | 65532     | 0 ..= 65531                    |
//! | `uint32`  | MAX        | MAX - 1   | MAX - 2   | MAX - 3   | 0 ..= 2147483392               |
//! | `float32` | -infinity  | NaN       | f32::MIN  | +infinity | -MAX / 2 ..= MAX               |
//! | `int8`    | -126       | -128      | -127      | 127       | -125 ..= 126                   |
//! | `int64`   | MIN + 2    | MIN       | MIN + 1   | MAX       | MIN + 3 ..= MAX - 1            |
//! | `uint8`   | 255        | 254       | 253       | 252       | 0 ..= 251                      |
//! | `uint64`  | MAX        | MAX - 1   | MAX - 2   | MAX - 3   | 0 ..= MAX - 4                  |
//! | `float64` | -infinity  | NaN       | f64::MIN  | +infinity | -MAX / 2 ..= MAX               |
//!
//! The last five types occur only in the images of series, whose pixels come from the sender. Of the special values
//! Konkordia writes into series only *missing*, *masked* (masks and gaps of `[transform]` and `join`) and *saturated*
//! (results of `[transform]`). [`PixelType::CONVERTED`] lists the types into which words are converted.
//!
//! *missing*: the packet never came, as the arrival bitmap says, whatever the words in memory are. *masked*: the pixel
//! has no usable calibration, or lies in a gap. *invalid*: gain code 10, G1 with ADC 0, or the word 0xFFFF.
//! *saturated*: G2 with ADC 0, HG0 with the highest ADC value (0x3FFF), or above the valid range. A number below the
//! valid range is clamped to its lower end, which is 0 in unsigned types. Values are rounded half to even. 2147483392
//! is the largest `f32` whose successor still fits in an `i32`.

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
    /// 8 bit, signed.
    Int8,
    /// 64 bit, signed.
    Int64,
    /// 8 bit, unsigned.
    Uint8,
    /// 64 bit, unsigned.
    Uint64,
    /// IEEE 754 double precision.
    Float64,
}

/// A number exactly as a pixel holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl Number {
    /// As `f64`; whole numbers beyond 2^53 are rounded.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// Null if JSON cannot express it (NaN, infinity).
impl From<Number> for serde_json::Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Signed(value) => value.into(),
            Number::Unsigned(value) => value.into(),
            Number::Float(value) => value.into(),
        }
    }
}

impl PixelType {
    /// Types that images in files can have.
    pub const ALL: [Self; 10] = [
        Self::Int16,
        Self::Int32,
        Self::Uint16,
        Self::Uint32,
        Self::Float32,
        Self::Int8,
        Self::Int64,
        Self::Uint8,
        Self::Uint64,
        Self::Float64,
    ];

    /// Types into which words of a detector are converted: those that implement [`Pixel`].
    pub const CONVERTED: [Self; 5] = [Self::Int16, Self::Int32, Self::Uint16, Self::Uint32, Self::Float32];

    /// Bytes of one pixel.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
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
            Self::Int8 => "int8",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Uint64 => "uint64",
            Self::Float64 => "float64",
        }
    }

    /// True for `float32` and `float64`.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }

    /// True for the types without numbers below zero.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Self::Uint8 | Self::Uint16 | Self::Uint32 | Self::Uint64)
    }

    /// The value *missing*, exact.
    pub fn missing(self) -> Number {
        match self {
            Self::Int64 => Number::Signed(i64::MIN + 2),
            Self::Uint64 => Number::Unsigned(u64::MAX),
            Self::Float32 | Self::Float64 => Number::Float(self.special().missing),
            _ if self.is_unsigned() => Number::Unsigned(self.special().missing as u64),
            _ => Number::Signed(self.special().missing as i64),
        }
    }

    /// The value *missing* as it stands in a file, little-endian.
    pub fn missing_le_bytes(self) -> Vec<u8> {
        match (self, self.missing()) {
            (Self::Int64, Number::Signed(value)) => value.to_le_bytes().to_vec(),
            (Self::Uint64, Number::Unsigned(value)) => value.to_le_bytes().to_vec(),
            _ => self.le_bytes(self.special().missing),
        }
    }

    /// A pixel of this type as it stands in a file, little-endian. `value` must be one that the type can hold; `f64`
    /// cannot express all 64-bit integers beyond 2^53.
    pub fn le_bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::Int16 => (value as i16).to_le_bytes().to_vec(),
            Self::Int32 => (value as i32).to_le_bytes().to_vec(),
            Self::Uint16 => (value as u16).to_le_bytes().to_vec(),
            Self::Uint32 => (value as u32).to_le_bytes().to_vec(),
            Self::Float32 => (value as f32).to_le_bytes().to_vec(),
            Self::Int8 => (value as i8).to_le_bytes().to_vec(),
            Self::Int64 => (value as i64).to_le_bytes().to_vec(),
            Self::Uint8 => (value as u8).to_le_bytes().to_vec(),
            Self::Uint64 => (value as u64).to_le_bytes().to_vec(),
            Self::Float64 => value.to_le_bytes().to_vec(),
        }
    }

    /// The special values as `f64` (rounded for 64-bit integers, exact for all others): missing, masked, invalid,
    /// saturated, lowest and highest valid value.
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
            Self::Int8 => Special::signed(i8::MIN.into(), i8::MAX.into()),
            Self::Int64 => Special::signed(i64::MIN.into(), i64::MAX.into()),
            Self::Uint8 => Special::unsigned(u8::MAX.into()),
            Self::Uint64 => Special::unsigned(u64::MAX.into()),
            Self::Float64 => Special {
                missing: f64::NEG_INFINITY,
                masked: f64::NAN,
                invalid: f64::MIN,
                saturated: f64::INFINITY,
                valid_min: -f64::MAX * 0.5,
                valid_max: f64::MAX,
            },
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

impl Special {
    /// Signed types, according to the table above.
    fn signed(min: i128, max: i128) -> Self {
        let [missing, masked, invalid] = [min + 2, min, min + 1].map(|value| value as f64);
        Self { missing, masked, invalid, saturated: max as f64, valid_min: (min + 3) as f64, valid_max: (max - 1) as f64 }
    }

    /// Unsigned types, according to the table above.
    fn unsigned(max: i128) -> Self {
        let [missing, masked, invalid, saturated, valid_max] = [0, 1, 2, 3, 4].map(|less| (max - less) as f64);
        Self { missing, masked, invalid, saturated, valid_min: 0.0, valid_max }
    }
}

impl PixelType {
    /// Lowest and highest number that is a measurement, where files say `underload` and `saturation`, or nothing.
    pub fn valid_range(self, underload: Option<f64>, saturation: Option<f64>) -> (f64, f64) {
        let special = self.special();
        (underload.unwrap_or(special.valid_min), saturation.unwrap_or(special.valid_max))
    }
}

/// A Rust type that can be a pixel of the output image: one of the first five of the table above.
pub trait Pixel: Copy + Default + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static {
    /// The run-time name of this type.
    const TYPE: PixelType;
    /// Packet never came.
    const MISSING: Self;
    /// No usable calibration, or gap.
    const MASKED: Self;
    /// Gain code 10, G1 with ADC 0, or word 0xFFFF.
    const INVALID: Self;
    /// G2 with ADC 0, HG0 with ADC 0x3FFF, or above [`Pixel::VALID_MAX`].
    const SATURATED: Self;
    /// Lowest valid number; smaller ones are clamped to it.
    const VALID_MIN: Self;
    /// Highest valid number; larger ones become [`Pixel::SATURATED`].
    const VALID_MAX: Self;
    /// The value as `f64`, exact.
    fn to_f64(self) -> f64;
    /// Rounds half to even (integers only), clamps at the low end, saturates at the high end; NaN becomes masked.
    fn from_photons(value: f32) -> Self;
    /// A count of a photon-counting detector: above the valid range becomes saturated.
    fn from_count(count: u32) -> Self;
    /// True for a measurement, false for the special values.
    #[inline]
    fn is_number(self) -> bool {
        self >= Self::VALID_MIN && self <= Self::VALID_MAX
    }
    /// The `nth` part (from 0) of a number that is divided into `parts` (2 or 4), for [`crate::share`]: integers are
    /// rounded down and the remainder goes to the first parts; floats are divided.
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
    fn missing_is_exact_in_every_type() {
        let bytes = |pixel: PixelType| pixel.missing_le_bytes();
        assert_eq!(bytes(PixelType::Int64), (i64::MIN + 2).to_le_bytes());
        assert_eq!(bytes(PixelType::Uint64), u64::MAX.to_le_bytes());
        assert_eq!(bytes(PixelType::Int8), (-126i8).to_le_bytes());
        assert_eq!(bytes(PixelType::Uint8), [255]);
        assert_eq!(bytes(PixelType::Float64), f64::NEG_INFINITY.to_le_bytes());
        for pixel in PixelType::CONVERTED {
            assert_eq!(bytes(pixel), pixel.le_bytes(pixel.special().missing), "{pixel}");
        }
        for pixel in PixelType::ALL {
            assert_eq!(bytes(pixel).len(), pixel.bytes());
            assert_eq!(pixel.name().parse(), Ok(pixel));
        }
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
