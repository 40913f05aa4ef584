//! Loops over the pixels of an image that are compiled for each instruction set: subtraction and conversion.

use super::sample::{MASKED, NUMBER, Overflow, Sample, Total, read, write};
use konkordia_core::pixel::Pixel;

/// Pixels that are examined together.
const CHUNK: usize = 64;
/// Adding this to an `f64` of less than 2^51 leaves the number, rounded half to even, in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
const MIN: f64 = <i32 as Pixel>::VALID_MIN as f64;
const MAX: f64 = <i32 as Pixel>::VALID_MAX as f64;

#[inline(always)]
fn to_i32(value: f64) -> i32 {
    let rounded = (value.clamp(MIN, MAX) + ROUND).to_bits() as i32;
    // Half a step above is still rounded down, to the even number.
    if value > MAX + 0.5 { <i32 as Pixel>::SATURATED } else { rounded }
}

/// See [`super::pixels::subtract`].
#[inline(always)]
pub(super) fn subtract_plane<T: Sample, B: Sample>(image: &[u8], plane: &[B], out: &mut [u8]) {
    let images = image.chunks(CHUNK * size_of::<T>());
    for ((image, plane), out) in images.zip(plane.chunks(CHUNK)).zip(out.chunks_mut(CHUNK * 4)) {
        let image_is_plain = read::<T>(image).fold(true, |all, pixel| all & pixel.is_plain());
        let plane_is_plain = plane.iter().fold(true, |all, pixel| all & pixel.is_plain());
        let pairs = read::<T>(image).zip(plane);
        if image_is_plain & plane_is_plain {
            write(out, pairs.map(|(pixel, background)| to_i32(pixel.to_f64() - background.to_f64())));
        } else {
            let one = |(pixel, background): (T, &B)| match (pixel.kind(), background.kind()) {
                (NUMBER, NUMBER) => to_i32(pixel.to_f64() - background.to_f64()),
                (NUMBER, _) => <i32 as Sample>::special(MASKED),
                (special, _) => <i32 as Sample>::special(special),
            };
            write(out, pairs.map(one));
        }
    }
}

/// See [`super::pixels::convert`].
#[inline(always)]
pub(super) fn convert_row<U: Sample, T: Sample>(image: &[u8], overflow: Overflow, out: &mut [u8]) {
    for (image, out) in image.chunks(CHUNK * size_of::<T>()).zip(out.chunks_mut(CHUNK * size_of::<U>())) {
        let pixels = read::<T>(image);
        if read::<T>(image).fold(true, |all, pixel| all & pixel.is_plain()) {
            write(out, pixels.map(|pixel| pixel.widen().sum::<U>(overflow)));
        } else {
            let one = |pixel: T| match pixel.kind() {
                NUMBER => pixel.widen().sum::<U>(overflow),
                special => U::special(special),
            };
            write(out, pixels.map(one));
        }
    }
}
