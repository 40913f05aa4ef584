//! The byte-offset packing of CBF files (`x-CBF_BYTE_OFFSET`): 32-bit signed pixels as differences to the pixel before.
//!
//! | difference | bytes, little-endian |
//! |---|---|
//! | -127 ..= 127 | 1 |
//! | of 16 bits, but not -32768 | `80`, 2 |
//! | of 32 bits, but not the lowest | `80`, `00 80`, 4 |
//! | others | `80`, `00 80`, `00 00 00 80`, 8 |
//!
//! The pixel before the first one is 0. Sums wrap around at 32 bits: writers that subtract in 32 bits (fabio) let a
//! difference wrap, and only a sum that wraps too gives their pixels back.

const ESCAPE8: u8 = 0x80;
const ESCAPE16: [u8; 2] = [0, 0x80];
const ESCAPE32: [u8; 4] = [0, 0, 0, 0x80];
/// Bytes of one pixel when unpacked.
const PIXEL_BYTES: usize = 4;
/// Pixels that are decoded at once where no difference has an escape.
const RUN: usize = 8;

/// Why bytes are not an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ByteOffsetError {
    /// The data end too early.
    #[error("the byte-offset data end at byte {bytes}, before pixel {pixel} of {pixels}")]
    Truncated {
        /// Bytes that are there.
        bytes: usize,
        /// The first pixel, from 0, that is absent or incomplete.
        pixel: usize,
        /// Pixels of the image.
        pixels: usize,
    },
}

/// Largest packed size of `pixels` pixels, in bytes.
pub const fn bound(pixels: usize) -> usize {
    // 1 + 2 + 4 + 8 bytes for each, as when the lowest and the highest number alternate.
    pixels * 15
}

/// Unpacks exactly `out.len() / 4` pixels (`int32`, little-endian) and returns the number of bytes read. The caller
/// decides whether more bytes may follow. Nothing is read beyond `data`, whatever it holds.
///
/// # Errors
/// [`ByteOffsetError`]; `out` then holds the pixels up to there.
///
/// # Panics
/// If `out` is no multiple of 4 bytes long.
pub fn decode(data: &[u8], out: &mut [u8]) -> Result<usize, ByteOffsetError> {
    assert_eq!(out.len() % PIXEL_BYTES, 0, "pixels have 4 bytes");
    let pixels = out.len() / PIXEL_BYTES;
    let (mut at, mut pixel, mut value) = (0, 0, 0i32);
    while pixel < pixels {
        if let Some(deltas) = small_run(&data[at..])
            && pixels - pixel >= RUN
        {
            for (out, delta) in out[pixel * PIXEL_BYTES..][..RUN * PIXEL_BYTES].as_chunks_mut().0.iter_mut().zip(deltas) {
                value = value.wrapping_add(i32::from(delta as i8));
                *out = value.to_le_bytes();
            }
            (at, pixel) = (at + RUN, pixel + RUN);
            continue;
        }
        let (delta, bytes) = one(&data[at..]).ok_or(ByteOffsetError::Truncated { bytes: data.len(), pixel, pixels })?;
        value = value.wrapping_add(delta as i32);
        out[pixel * PIXEL_BYTES..][..PIXEL_BYTES].copy_from_slice(&value.to_le_bytes());
        (at, pixel) = (at + bytes, pixel + 1);
    }
    Ok(at)
}

/// The next eight differences, if each has one byte.
#[inline]
fn small_run(data: &[u8]) -> Option<[u8; RUN]> {
    let deltas: &[u8; RUN] = data.first_chunk()?;
    // The XOR turns an escape into a zero byte. The word has one if the borrow of the subtraction reaches a sign bit
    // that was not set.
    let word = u64::from_le_bytes(*deltas) ^ 0x8080_8080_8080_8080;
    let has_escape = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080 != 0;
    (!has_escape).then_some(*deltas)
}

/// The next difference, and its length in bytes.
fn one(data: &[u8]) -> Option<(i64, usize)> {
    let (&first, rest) = data.split_first()?;
    if first != ESCAPE8 {
        return Some((i64::from(first as i8), 1));
    }
    let (&two, rest) = rest.split_first_chunk()?;
    if two != ESCAPE16 {
        return Some((i64::from(i16::from_le_bytes(two)), 3));
    }
    let (&four, rest) = rest.split_first_chunk()?;
    if four != ESCAPE32 {
        return Some((i64::from(i32::from_le_bytes(four)), 7));
    }
    Some((i64::from_le_bytes(*rest.first_chunk()?), 15))
}

/// Appends the packed form of pixels (`int32`, little-endian) to `out`.
///
/// # Panics
/// If `pixels` is no multiple of 4 bytes long.
pub fn encode(pixels: &[u8], out: &mut Vec<u8>) {
    assert_eq!(pixels.len() % PIXEL_BYTES, 0, "pixels have 4 bytes");
    let mut value = 0i64;
    for &pixel in pixels.as_chunks().0 {
        let pixel = i64::from(i32::from_le_bytes(pixel));
        let delta = pixel - value;
        value = pixel;
        match delta.unsigned_abs() {
            0..=127 => out.push(delta as u8),
            128..=32767 => {
                out.push(ESCAPE8);
                out.extend_from_slice(&(delta as i16).to_le_bytes());
            }
            wide => {
                out.push(ESCAPE8);
                out.extend_from_slice(&ESCAPE16);
                if wide <= i32::MAX as u64 {
                    out.extend_from_slice(&(delta as i32).to_le_bytes());
                } else {
                    out.extend_from_slice(&ESCAPE32);
                    out.extend_from_slice(&delta.to_le_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(pixels: &[i32]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(bytemuck::cast_slice(pixels), &mut out);
        out
    }

    fn unpacked(data: &[u8], pixels: usize) -> Result<(Vec<i32>, usize), ByteOffsetError> {
        let mut out = vec![0; pixels];
        let taken = decode(data, bytemuck::cast_slice_mut(&mut out))?;
        Ok((out, taken))
    }

    #[test]
    fn every_width_by_hand() {
        let pixels = [1, -126, 2, -32765, 3, 40_000, i32::MIN, i32::MAX];
        let expected = [
            &[1][..],
            &[0x81],
            &[0x80, 128, 0],
            &[0x80, 1, 0x80],
            &[0x80, 0, 0x80, 0, 0x80, 0, 0],
            &[0x80, 0, 0x80, 0x3D, 0x9C, 0, 0],
            &[0x80, 0, 0x80, 0, 0, 0, 0x80, 0xC0, 0x63, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0x80, 0, 0x80, 0, 0, 0, 0x80, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(packed(&pixels), expected);
        assert_eq!(unpacked(&expected, 8), Ok((pixels.to_vec(), expected.len())));
        assert!(expected.len() <= bound(pixels.len()));
    }

    #[test]
    fn runs_and_escapes_at_every_place() {
        for pixels in 0..40usize {
            for escape in 0..pixels {
                let mut image: Vec<i32> = (0..pixels as i32).map(|i| 50 - i * 3).collect();
                image[escape] = 1000;
                let mut data = packed(&image);
                let bytes = data.len();
                data.extend_from_slice(&[7; 9]);
                assert_eq!(unpacked(&data, pixels), Ok((image, bytes)));
                for cut in 0..bytes {
                    assert!(matches!(unpacked(&data[..cut], pixels), Err(ByteOffsetError::Truncated { .. })), "{cut} of {bytes}");
                }
            }
        }
    }

    /// `fabio.cbfimage` subtracts in 32 bits: from the lowest to the highest number it writes -1, and back 1.
    #[test]
    fn differences_that_wrap_around_give_the_pixels_back() {
        let wrapped = [&[0x80, 0, 0x80, 0, 0, 0, 0x80][..], &i64::from(i32::MIN).to_le_bytes(), &[0xFF, 1, 0xFF]].concat();
        let pixels = vec![i32::MIN, i32::MAX, i32::MIN, i32::MAX];
        assert_eq!(unpacked(&wrapped, 4), Ok((pixels, wrapped.len())));
        // In a run of small differences too.
        let mut data = packed(&[i32::MAX - 20]);
        data.extend_from_slice(&[9; 16]);
        let expected: Vec<i32> = (0..17).map(|n| (i32::MAX - 20).wrapping_add(9 * n)).collect();
        assert_eq!(unpacked(&data, 17), Ok((expected, data.len())));
        let lowest = [&[0x80, 0, 0x80, 0, 0, 0, 0x80][..], &i64::MIN.to_le_bytes()].concat();
        assert_eq!(unpacked(&lowest, 1), Ok((vec![0], 15)));
    }
}
