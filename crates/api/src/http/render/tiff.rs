//! TIFF with exact numbers: one uncompressed grey image with the same type of pixel.

use crate::http::problem::Problem;
use konkordia_acquire::handle::PixelPlane;
use konkordia_core::array::{Element, PackedBits};
use std::io::Cursor;
use tiff::encoder::colortype as c;
use tiff::encoder::{TiffEncoder, TiffValue};

/// Larger files do not fit the 32-bit offsets of TIFF.
const BYTES_MAX: usize = u32::MAX as usize - (1 << 20);

/// The file.
///
/// # Errors
/// If the image is too large for TIFF.
pub fn file(pixels: &PixelPlane<'_>) -> Result<Vec<u8>, Problem> {
    match pixels.element {
        Element::Uint8 | Element::Packed(PackedBits::Four) => write::<c::Gray8, u8, 1>(pixels, u8::from_le_bytes),
        Element::Uint16 | Element::Packed(_) => write::<c::Gray16, u16, 2>(pixels, u16::from_le_bytes),
        Element::Uint32 => write::<c::Gray32, u32, 4>(pixels, u32::from_le_bytes),
        Element::Uint64 => write::<c::Gray64, u64, 8>(pixels, u64::from_le_bytes),
        Element::Int8 => write::<c::GrayI8, i8, 1>(pixels, i8::from_le_bytes),
        Element::Int16 => write::<c::GrayI16, i16, 2>(pixels, i16::from_le_bytes),
        Element::Int32 => write::<c::GrayI32, i32, 4>(pixels, i32::from_le_bytes),
        Element::Int64 => write::<c::GrayI64, i64, 8>(pixels, i64::from_le_bytes),
        Element::Float32 => write::<c::Gray32Float, f32, 4>(pixels, f32::from_le_bytes),
        Element::Float64 => write::<c::Gray64Float, f64, 8>(pixels, f64::from_le_bytes),
    }
}

fn write<C, T, const N: usize>(pixels: &PixelPlane<'_>, number: fn([u8; N]) -> T) -> Result<Vec<u8>, Problem>
where
    C: c::ColorType<Inner = T>,
    [T]: TiffValue,
{
    let (rows, columns) = pixels.size();
    let too_large =
        || Problem::new("bad_image", format!("{rows} x {columns} pixels are too large for TIFF"), "ask for format=npy");
    let (Ok(height), Ok(width)) = (u32::try_from(rows), u32::try_from(columns)) else { return Err(too_large()) };
    if pixels.bytes.len() > BYTES_MAX {
        return Err(too_large());
    }
    let numbers: Vec<T> = pixels.bytes.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect();
    let mut file = Cursor::new(Vec::with_capacity(pixels.bytes.len() + 4096));
    let written = TiffEncoder::new(&mut file).and_then(|mut encoder| encoder.write_image::<C>(width, height, &numbers));
    written.map_err(|error| Problem::bug(format!("the TIFF file could not be made: {error}")))?;
    Ok(file.into_inner())
}
