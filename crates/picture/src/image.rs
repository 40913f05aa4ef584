//! Pictures of detector images: the largest value of each square of pixels, on a logarithmic scale.

use konkordia_core::array::{Element, PackedBits};

use super::{map_colour, percentiles};

/// Index of the colour for squares without a value.
const NOTHING: u8 = 255;
/// Index of the brightest colour.
const BRIGHTEST: f32 = 254.0;
/// Fraction of the dots that are darker than the brightest colour, so that a few hot pixels do not darken all others.
const BELOW: f64 = 0.9995;

/// The pixels of an image, little endian, row after row.
#[derive(Clone, Copy)]
pub struct Pixels<'a> {
    /// Type of a pixel.
    pub element: Element,
    /// Pixels of a row; there are as many rows as the bytes give.
    pub columns: usize,
    /// The pixels.
    pub bytes: &'a [u8],
}

/// A PNG of at most `size` x `size` dots.
///
/// # Errors
/// If the PNG cannot be encoded.
pub fn png(pixels: Pixels<'_>, size: u32) -> Result<Vec<u8>, String> {
    let (rows, columns, values) = pooled(pixels, size as usize);
    let (_, high) = percentiles(&values, 0.0, BELOW);
    let scale = high.max(1.0).ln_1p();
    let dots: Vec<u8> = values.iter().map(|value| dot(*value, scale)).collect();
    let mut palette: Vec<u8> = (0..255u8).flat_map(|index| map_colour(f32::from(index) / BRIGHTEST)).collect();
    palette.extend(map_colour(f32::NAN));
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, columns as u32, rows as u32);
    encoder.set_color(::png::ColorType::Indexed);
    encoder.set_depth(::png::BitDepth::Eight);
    encoder.set_palette(palette);
    encoder.set_compression(::png::Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&dots));
    written.map_err(|error| format!("the picture could not be made: {error}"))?;
    Ok(bytes)
}

/// Index of the colour of a value; `scale` = ln(1 + value of the brightest colour).
fn dot(value: f32, scale: f32) -> u8 {
    if value.is_nan() {
        return NOTHING;
    }
    // Values at and below 0 are the darkest; the cast cannot wrap.
    (BRIGHTEST * (value.max(0.0).ln_1p() / scale).min(1.0)).round() as u8
}

/// Rows, columns and the largest value of each square; NaN where a square has none.
fn pooled(pixels: Pixels<'_>, size: usize) -> (usize, usize, Vec<f32>) {
    let Pixels { element, columns, bytes } = pixels;
    let row_bytes = columns * (element.bits() as usize / 8);
    let rows = bytes.len() / row_bytes.max(1);
    let side = rows.max(columns).div_ceil(size).max(1);
    let (out_rows, out_columns) = (rows.div_ceil(side), columns.div_ceil(side));
    let mut values = vec![f32::NAN; out_rows * out_columns];
    let mut row_values = vec![f32::NAN; columns];
    for (row, bytes) in bytes.chunks_exact(row_bytes.max(1)).enumerate() {
        numbers(element, bytes, &mut row_values);
        let out = &mut values[row / side * out_columns..][..out_columns];
        for (out, square) in out.iter_mut().zip(row_values.chunks(side)) {
            // The maximum of a value and NaN is the value.
            *out = square.iter().fold(*out, |most, value| most.max(*value));
        }
    }
    (out_rows, out_columns, values)
}

/// The values of a row; NaN for special values (missing, masked, invalid). Types of 8 bits have no special values,
/// because cameras use the whole range.
fn numbers(element: Element, bytes: &[u8], out: &mut [f32]) {
    macro_rules! row {
        ($type:ty, $number:expr) => {
            for (out, value) in out.iter_mut().zip(bytes.chunks_exact(size_of::<$type>())) {
                let value = <$type>::from_le_bytes(value.try_into().expect("as many bytes as the type has"));
                *out = $number(value);
            }
        };
    }
    macro_rules! unsigned {
        ($type:ty) => {
            row!($type, |value| if value >= <$type>::MAX - 2 { f32::NAN } else { value as f32 })
        };
    }
    macro_rules! signed {
        ($type:ty) => {
            row!($type, |value| if value <= <$type>::MIN + 2 { f32::NAN } else { value as f32 })
        };
    }
    match element {
        Element::Uint8 | Element::Packed(PackedBits::Four) => row!(u8, f32::from),
        Element::Int8 => row!(i8, f32::from),
        Element::Uint16 | Element::Packed(_) => unsigned!(u16),
        Element::Uint32 => unsigned!(u32),
        Element::Uint64 => unsigned!(u64),
        Element::Int16 => signed!(i16),
        Element::Int32 => signed!(i32),
        Element::Int64 => signed!(i64),
        Element::Float32 => {
            row!(f32, |value: f32| if value == f32::NEG_INFINITY || value == f32::MIN { f32::NAN } else { value })
        }
        Element::Float64 => {
            row!(f64, |value: f64| if value == f64::NEG_INFINITY || value == f64::MIN { f32::NAN } else { value as f32 })
        }
    }
}
