//! Frames for a live view: the visible part of an image, with few enough values for a screen. Each is the largest
//! number of a square of pixels, so a spot of one pixel stays visible. `docs/live.md` describes the numbers.

use crate::image::Pixels;
use konkordia_core::array::{Element, PackedBits};
use konkordia_core::percentile::percentiles;
use konkordia_core::pixel::Pixel;

/// A part of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First column.
    pub column: usize,
    /// First row.
    pub row: usize,
    /// Number of columns.
    pub columns: usize,
    /// Number of rows.
    pub rows: usize,
}

/// How the values of a frame are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Codes of 16 bits.
    Code16,
    /// Numbers of 32 bits with the special values of this type.
    Int32,
    /// Floats of 32 bits with the special values of this type.
    Float32,
}

/// What the codes of 16 bits mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Whole numbers, exact up to [`EXACT_MAX`].
    Count,
    /// The upper half of floats.
    Float,
}

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The part of the image that it has.
    pub region: Region,
    /// Side of the squares, in pixels.
    pub bin: usize,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
    /// How the values are written.
    pub format: Format,
    /// What codes mean.
    pub coding: Coding,
    /// The values, little-endian, row by row.
    pub bytes: Vec<u8>,
    /// Below the first value lie 0.5 % of the numbers, below the second 99.5 %; `None` without numbers.
    pub levels: Option<(f64, f64)>,
}

/// Lowest whole number with a code of its own.
const EXACT_MIN: i64 = -4096;
/// Highest whole number with a code of its own.
pub const EXACT_MAX: i64 = 20464;
/// What is added to a whole number to get its code.
const CODE_OF_0: i64 = 4112;
/// Code of [`EXACT_MAX`]. Above it, each octave has [`CODES_OF_OCTAVE`] codes.
const LOG_BEGINS: u16 = (EXACT_MAX + CODE_OF_0) as u16;
const CODES_OF_OCTAVE: f64 = 2048.0;
const MISSING: u16 = 0;
const MASKED: u16 = 1;
const INVALID: u16 = 2;
const SATURATED: u16 = u16::MAX;
/// Codes below are special.
const NUMBERS_BEGIN: u16 = 16;

/// A frame of the pixels in `region`, which is made larger so that it has whole squares, with at most about
/// `values_max` values.
pub fn frame(pixels: Pixels<'_>, region: Region, values_max: usize) -> Frame {
    let rows = pixels.bytes.len() / (pixels.columns * pixels.element.bits() as usize / 8).max(1);
    let (region, bin) = squares(region, [rows, pixels.columns], values_max);
    pooled_frame(pixels, region, region, bin)
}

/// A frame of the part `part` of `pixels`, which is the region `region` of the image, with squares of the side `bin`.
pub(crate) fn pooled_frame(pixels: Pixels<'_>, part: Region, region: Region, bin: usize) -> Frame {
    match pixels.element {
        Element::Uint8 | Element::Packed(PackedBits::Four) => frame_of::<u8>(pixels, part, region, bin),
        Element::Int8 => frame_of::<i8>(pixels, part, region, bin),
        Element::Uint16 | Element::Packed(_) => frame_of::<u16>(pixels, part, region, bin),
        Element::Int16 => frame_of::<i16>(pixels, part, region, bin),
        Element::Uint32 => frame_of::<u32>(pixels, part, region, bin),
        Element::Int32 => frame_of::<i32>(pixels, part, region, bin),
        Element::Uint64 => frame_of::<u64>(pixels, part, region, bin),
        Element::Int64 => frame_of::<i64>(pixels, part, region, bin),
        Element::Float32 => frame_of::<f32>(pixels, part, region, bin),
        Element::Float64 => frame_of::<f64>(pixels, part, region, bin),
    }
}

fn frame_of<S: Sample>(pixels: Pixels<'_>, part: Region, region: Region, bin: usize) -> Frame {
    let (rows, columns) = (region.rows.div_ceil(bin), region.columns.div_ceil(bin));
    let keys = pooled::<S>(pixels, part, bin);
    let codes: Vec<u16> = keys.iter().map(|key| S::value(*key).code()).collect();
    let levels = levels(&codes, S::CODING);
    let (format, bytes) = if bin > 1 || keys.iter().all(|key| S::value(*key).has_code()) {
        (Format::Code16, codes.iter().flat_map(|code| code.to_le_bytes()).collect())
    } else if S::CODING == Coding::Float {
        (Format::Float32, keys.iter().flat_map(|key| S::value(*key).float32().to_le_bytes()).collect())
    } else {
        (Format::Int32, keys.iter().flat_map(|key| S::value(*key).int32().to_le_bytes()).collect())
    };
    Frame { region, bin, rows, columns, format, coding: S::CODING, bytes, levels }
}

/// As [`frame`], but each value is the mean of the finite numbers in its square; masked if there is none. For planes of
/// which the usual value is to be seen, and not the largest.
pub fn mean_frame(values: &[f32], image_columns: usize, region: Region, values_max: usize) -> Frame {
    let (region, bin) = squares(region, [values.len() / image_columns.max(1), image_columns], values_max);
    let (rows, columns) = (region.rows.div_ceil(bin), region.columns.div_ceil(bin));
    let (mut sums, mut numbers) = (vec![(0.0f64, 0u32); columns], Vec::with_capacity(rows * columns));
    let lines = values.chunks_exact(image_columns.max(1)).skip(region.row).take(region.rows);
    for (n, line) in lines.enumerate() {
        for (sum, square) in sums.iter_mut().zip(line[region.column..][..region.columns].chunks(bin)) {
            for value in square.iter().filter(|value| value.is_finite()) {
                *sum = (sum.0 + f64::from(*value), sum.1 + 1);
            }
        }
        if (n + 1) % bin == 0 || n + 1 == region.rows {
            let mean = |(sum, count): (f64, u32)| if count > 0 { (sum / f64::from(count)) as f32 } else { f32::MASKED };
            numbers.extend(sums.iter_mut().map(|sum| mean(std::mem::take(sum))));
        }
    }
    let levels = percentiles(&numbers, 0.005, 0.995).map(|(low, high)| (f64::from(low), f64::from(high)));
    let bytes = numbers.iter().flat_map(|value| value.to_le_bytes()).collect();
    Frame { region, bin, rows, columns, format: Format::Float32, coding: Coding::Float, bytes, levels }
}

/// The part of the image with whole squares, and their side. Squares lie at multiples of their side in the image, so
/// that they stay the same when the region moves.
pub(crate) fn squares(region: Region, [rows, columns]: [usize; 2], values_max: usize) -> (Region, usize) {
    // The image may have become smaller since its reader last saw it.
    let is_outside = region.column >= columns || region.row >= rows || region.columns == 0 || region.rows == 0;
    let region = if is_outside { Region { column: 0, row: 0, columns, rows } } else { region };
    let Region { column, row, .. } = region;
    let end_column = column.saturating_add(region.columns).min(columns);
    let end_row = row.saturating_add(region.rows).min(rows);
    let aligned = |bin: usize| Region {
        column: column / bin * bin,
        row: row / bin * bin,
        columns: (end_column.next_multiple_of(bin)).min(columns) - column / bin * bin,
        rows: (end_row.next_multiple_of(bin)).min(rows) - row / bin * bin,
    };
    let values = |bin: usize| {
        let region = aligned(bin);
        region.rows.div_ceil(bin) * region.columns.div_ceil(bin)
    };
    let pixels = (end_row - row) * (end_column - column);
    // A square of the side `first` has at most so many values; alignment may ask for a little more.
    let first = (pixels as f64 / values_max.max(1) as f64).sqrt() as usize;
    let bin = (first.max(1)..).find(|bin| values(*bin) <= values_max.max(4)).unwrap_or(1);
    (aligned(bin), bin)
}

fn pooled<S: Sample>(pixels: Pixels<'_>, region: Region, bin: usize) -> Vec<S::Key> {
    let columns = region.columns.div_ceil(bin);
    let mut keys = vec![S::LOWEST; region.rows.div_ceil(bin) * columns];
    let mut line = vec![S::LOWEST; region.columns];
    for (n, keys) in keys.chunks_exact_mut(columns.max(1)).enumerate() {
        line.fill(S::LOWEST);
        let first = region.row + n * bin;
        for row in first..(first + bin).min(region.row + region.rows) {
            let at = (row * pixels.columns + region.column) * size_of::<S>();
            S::largest(&pixels.bytes[at..][..region.columns * size_of::<S>()], &mut line);
        }
        for (key, square) in keys.iter_mut().zip(line.chunks(bin)) {
            *key = square.iter().copied().fold(S::LOWEST, Ord::max);
        }
    }
    keys
}

/// The values below which 0.5 % and 99.5 % of the numbers lie.
fn levels(codes: &[u16], coding: Coding) -> Option<(f64, f64)> {
    let mut counts = vec![0u32; 1 << 16];
    codes.iter().for_each(|code| counts[usize::from(*code)] += 1);
    let numbers = usize::from(NUMBERS_BEGIN)..usize::from(SATURATED);
    let all: u64 = counts[numbers.clone()].iter().map(|count| u64::from(*count)).sum();
    let below = |part: f64| {
        let mut left = (all as f64 * part) as u64;
        numbers.clone().find(|code| match left.checked_sub(u64::from(counts[*code])) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
    };
    let value = |part| below(part).map(|code| number_of(code as u16, coding));
    value(0.005).zip(value(0.995))
}

/// The number that a code stands for.
fn number_of(code: u16, coding: Coding) -> f64 {
    match coding {
        Coding::Count if code <= LOG_BEGINS => f64::from(code) - CODE_OF_0 as f64,
        Coding::Count => EXACT_MAX as f64 * (f64::from(code - LOG_BEGINS) / CODES_OF_OCTAVE).exp2(),
        Coding::Float => {
            let upper = if code & 0x8000 == 0 { !code } else { code & 0x7FFF };
            f64::from(f32::from_bits(u32::from(upper) << 16))
        }
    }
}

/// The value of a square.
#[derive(Clone, Copy)]
enum Value {
    Missing,
    Masked,
    Invalid,
    Saturated,
    Count(i64),
    Float(f32),
}

impl Value {
    /// Its code is exactly its value.
    fn has_code(self) -> bool {
        match self {
            Self::Count(count) => (EXACT_MIN..=EXACT_MAX).contains(&count),
            Self::Float(_) => false,
            _ => true,
        }
    }

    fn code(self) -> u16 {
        match self {
            Self::Missing => MISSING,
            Self::Masked => MASKED,
            Self::Invalid => INVALID,
            Self::Saturated => SATURATED,
            Self::Count(count) if count <= EXACT_MAX => (count.max(EXACT_MIN) + CODE_OF_0) as u16,
            Self::Count(count) => {
                let octaves = (count as f64 / EXACT_MAX as f64).log2();
                (f64::from(LOG_BEGINS) + (CODES_OF_OCTAVE * octaves).round()).min(f64::from(SATURATED - 1)) as u16
            }
            Self::Float(value) => {
                let upper = (value.to_bits() >> 16) as u16;
                if upper & 0x8000 == 0 { upper | 0x8000 } else { !upper }
            }
        }
    }

    fn int32(self) -> i32 {
        match self {
            Self::Missing => i32::MISSING,
            Self::Masked => i32::MASKED,
            Self::Invalid => i32::INVALID,
            Self::Saturated => i32::SATURATED,
            Self::Count(count) => count.clamp(i32::VALID_MIN.into(), i32::VALID_MAX.into()) as i32,
            Self::Float(value) => i32::from_photons(value),
        }
    }

    fn float32(self) -> f32 {
        match self {
            Self::Missing => f32::MISSING,
            Self::Masked => f32::MASKED,
            Self::Invalid => f32::INVALID,
            Self::Saturated => f32::SATURATED,
            Self::Count(count) => count as f32,
            Self::Float(value) => value,
        }
    }
}

/// A type of pixels. A key is a number whose order is: masked, the other special values, numbers, saturated.
trait Sample: Copy {
    type Key: Copy + Ord;
    const LOWEST: Self::Key;
    const CODING: Coding;
    /// Makes each key the larger one of itself and that of its pixel.
    fn largest(bytes: &[u8], keys: &mut [Self::Key]);
    fn value(key: Self::Key) -> Value;
}

macro_rules! sample {
    ($t:ty, $key:ty, $lowest:expr, $coding:ident, $key_of:expr, $value_of:expr) => {
        impl Sample for $t {
            type Key = $key;
            const LOWEST: $key = $lowest;
            const CODING: Coding = Coding::$coding;
            fn largest(bytes: &[u8], keys: &mut [$key]) {
                let (values, _) = bytes.as_chunks::<{ size_of::<$t>() }>();
                for (key, bytes) in keys.iter_mut().zip(values) {
                    let of_pixel: $key = $key_of(<$t>::from_le_bytes(*bytes));
                    *key = (*key).max(of_pixel);
                }
            }
            fn value(key: $key) -> Value {
                $value_of(key)
            }
        }
    };
}

/// Signed: the special values are the three lowest numbers, masked first, and the highest.
macro_rules! signed {
    ($($t:ty)*) => { $(sample!($t, $t, <$t>::MIN, Count, |value| value, |key: $t| match key {
        <$t>::MIN => Value::Masked,
        key if key == <$t>::MIN + 1 => Value::Invalid,
        key if key == <$t>::MIN + 2 => Value::Missing,
        <$t>::MAX => Value::Saturated,
        key => Value::Count(key.into()),
    });)* };
}
signed!(i16 i32 i64);

/// Unsigned: the special values are the four highest numbers. The key of a number is three more.
macro_rules! unsigned {
    ($($t:ty)*) => { $(sample!($t, $t, 0, Count, |value: $t| {
        let key = value.wrapping_add(3);
        // Masked has a lower key than invalid.
        key ^ <$t>::from(key < 2)
    }, |key: $t| match key {
        0 => Value::Masked,
        1 => Value::Invalid,
        2 => Value::Missing,
        <$t>::MAX => Value::Saturated,
        key => Value::Count(i64::try_from(key - 3).unwrap_or(i64::MAX)),
    });)* };
}
unsigned!(u16 u32 u64);

// Cameras of 8 bits use the whole range.
sample!(u8, u8, 0, Count, |value| value, |key: u8| Value::Count(key.into()));
sample!(i8, i8, i8::MIN, Count, |value| value, |key: i8| Value::Count(key.into()));

/// Bits of a float as a number of the same order; NaN, which is masked, is the lowest.
fn ordered(value: f32) -> i32 {
    let bits = value.to_bits().cast_signed();
    if value.is_nan() { i32::MIN } else { bits ^ ((bits >> 31) & i32::MAX) }
}

fn float_of(key: i32) -> Value {
    let value = f32::from_bits((key ^ ((key >> 31) & i32::MAX)).cast_unsigned());
    match value {
        _ if key == i32::MIN => Value::Masked,
        f32::INVALID => Value::Invalid,
        f32::MISSING => Value::Missing,
        f32::SATURATED => Value::Saturated,
        value => Value::Float(value),
    }
}

sample!(f32, i32, i32::MIN, Float, ordered, float_of);
sample!(f64, i32, i32::MIN, Float, |value: f64| ordered(if value == f64::MIN { f32::MIN } else { value as f32 }), float_of);

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Region = Region { column: 0, row: 0, columns: usize::MAX, rows: usize::MAX };

    fn of<T: bytes_of::Bytes>(values: &[T], element: Element, columns: usize, region: Region, values_max: usize) -> Frame {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        frame(Pixels { element, columns, bytes: &bytes }, region, values_max)
    }

    mod bytes_of {
        pub trait Bytes {
            fn bytes(&self) -> Vec<u8>;
        }
        macro_rules! bytes {
            ($($t:ty)*) => { $(impl Bytes for $t {
                fn bytes(&self) -> Vec<u8> { self.to_le_bytes().to_vec() }
            })* };
        }
        bytes!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);
    }

    fn codes(frame: &Frame) -> Vec<u16> {
        assert_eq!(frame.format, Format::Code16);
        frame.bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn codes_keep_the_order_and_come_back() {
        let counts = (-5000..70_000).chain((17..62).map(|bits| 1 << bits)).chain([i64::MAX]);
        let mut last = 0;
        for count in counts {
            let code = Value::Count(count).code();
            assert!(code >= last && (NUMBERS_BEGIN..SATURATED).contains(&code), "{count}");
            last = code;
            let back = number_of(code, Coding::Count);
            if (EXACT_MIN..=EXACT_MAX).contains(&count) {
                assert_eq!(back, count as f64);
            } else if (EXACT_MAX..20_000_000_000).contains(&count) {
                assert!((back / count as f64 - 1.0).abs() < 2e-4, "{count}: {back}");
            }
        }
        let floats = [f32::MIN / 2.0, -1e9, -3.5, -1e-30, -0.0, 0.0, 1e-30, 0.25, 1.0, 1e9, f32::MAX];
        let of_floats: Vec<u16> = floats.iter().map(|value| Value::Float(*value).code()).collect();
        assert!(of_floats.is_sorted() && of_floats[0] >= NUMBERS_BEGIN && of_floats[10] < SATURATED);
        for (value, code) in floats.iter().zip(of_floats) {
            let back = number_of(code, Coding::Float);
            assert!((back - f64::from(*value)).abs() <= f64::from(value.abs()) / 128.0, "{value}: {back}");
        }
    }

    #[test]
    fn a_square_has_its_largest_number_and_else_a_special_value() {
        macro_rules! check {
            ($t:ty, $element:ident) => {
                let [missing, masked, invalid, saturated] = [<$t>::MISSING, <$t>::MASKED, <$t>::INVALID, <$t>::SATURATED];
                let two = 2 as $t;
                let rows = [
                    [two, masked, masked, masked, saturated, 7 as $t, invalid],
                    [missing, 5 as $t, masked, missing, missing, two, masked],
                ];
                let frame = of(&rows.concat(), Element::$element, 7, ALL, 4);
                assert_eq!((frame.bin, frame.rows, frame.columns), (2, 1, 4), stringify!($t));
                let five = Value::Count(5).code();
                let expected = if frame.coding == Coding::Float { Value::Float(5.0).code() } else { five };
                assert_eq!(codes(&frame), [expected, MISSING, SATURATED, INVALID], stringify!($t));
            };
        }
        check!(i16, Int16);
        check!(u16, Uint16);
        check!(i32, Int32);
        check!(u32, Uint32);
        check!(f32, Float32);
    }

    #[test]
    fn means_are_of_the_numbers_in_a_square() {
        let values: Vec<f32> = [[1.0, 3.0, f32::NAN], [5.0, f32::NAN, f32::NAN], [7.0, 9.5, 4.25]].concat();
        let single = mean_frame(&values, 3, ALL, 100);
        assert_eq!((single.bin, single.format, single.coding), (1, Format::Float32, Coding::Float));
        let frame = mean_frame(&values, 3, ALL, 4);
        let numbers: Vec<f32> = frame.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!((frame.bin, frame.rows, frame.columns, numbers[0], numbers[2], numbers[3]), (2, 2, 2, 3.0, 8.25, 4.25));
        assert!(numbers[1].is_nan());
        let part = mean_frame(&values, 3, Region { column: 1, row: 2, columns: 2, rows: 1 }, 100);
        assert_eq!((part.region.column, part.levels), (1, Some((4.25, 9.5))));
    }

    #[test]
    fn frames_of_single_pixels_are_exact() {
        let frame_16 = of(&[-3i32, 20_464, i32::MASKED, i32::MISSING], Element::Int32, 2, ALL, 100);
        assert_eq!(codes(&frame_16), [4109, 24_576, MASKED, MISSING]);
        let wide = of(&[20_465u32, u32::SATURATED, u32::INVALID, 0], Element::Uint32, 4, ALL, 100);
        let values: Vec<i32> = wide.bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
        assert_eq!((wide.format, values), (Format::Int32, vec![20_465, i32::SATURATED, i32::INVALID, 0]));
        let floats = of(&[0.1f32, f32::MASKED, f32::MISSING], Element::Float32, 3, ALL, 100);
        let values: Vec<f32> = floats.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!((floats.format, values[0], values[2]), (Format::Float32, 0.1, f32::NEG_INFINITY));
        assert!(values[1].is_nan());
        assert_eq!(codes(&of(&[200u8, 255], Element::Uint8, 2, ALL, 9)), [4312, 4367]);
    }

    #[test]
    fn a_region_has_whole_squares_at_fixed_places() {
        let image: Vec<u16> = (0..100 * 70).map(|n| (n % 251) as u16).collect();
        for (column, row, columns, rows, values_max) in [
            (0, 0, 70, 100, 1000),
            (13, 57, 30, 30, 100),
            (69, 99, 1, 1, 16),
            (3, 3, 500, 500, 24),
            (80, 200, 5, 5, 50),
            (5, 9, 40, 2, 7),
        ] {
            let region = Region { column, row, columns, rows };
            let found = of(&image, Element::Uint16, 70, region, values_max);
            let Region { column: left, row: top, columns: wide, rows: high } = found.region;
            assert!(left % found.bin == 0 && top % found.bin == 0 && left + wide <= 70 && top + high <= 100, "{found:?}");
            assert_eq!((found.rows, found.columns), (high.div_ceil(found.bin), wide.div_ceil(found.bin)));
            assert!(found.rows * found.columns <= values_max.max(4) && codes(&found).len() == found.rows * found.columns);
            for (n, code) in codes(&found).into_iter().enumerate() {
                let (y, x) = (top + n / found.columns * found.bin, left + n % found.columns * found.bin);
                let square =
                    (y..(y + found.bin).min(top + high)).flat_map(|y| (x..(x + found.bin).min(left + wide)).map(move |x| (y, x)));
                let largest = square.map(|(y, x)| image[70 * y + x]).max().unwrap();
                assert_eq!(code, Value::Count(largest.into()).code(), "square {n} of {region:?}");
            }
        }
    }

    #[test]
    fn levels_leave_out_special_values_and_the_ends() {
        let values: Vec<u16> = (0..1000).chain([u16::MASKED; 500]).chain([u16::SATURATED; 100]).collect();
        assert_eq!(of(&values, Element::Uint16, 1600, ALL, 10_000).levels, Some((5.0, 995.0)));
        assert_eq!(of(&[u16::MASKED; 10], Element::Uint16, 5, ALL, 100).levels, None);
        assert_eq!(of::<u16>(&[], Element::Uint16, 5, ALL, 100).bytes.len(), 0);
    }
}
