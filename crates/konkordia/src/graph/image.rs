//! An image as the bytes that follow `Work`: the type of its pixels, rows and columns, then the pixels, little endian.

use konkordia_core::pixel::PixelType;

/// Bytes before the pixels.
pub const HEAD_BYTES: usize = 32;
const TYPES: [PixelType; 10] = [
    PixelType::Int8,
    PixelType::Uint8,
    PixelType::Int16,
    PixelType::Uint16,
    PixelType::Int32,
    PixelType::Uint32,
    PixelType::Int64,
    PixelType::Uint64,
    PixelType::Float32,
    PixelType::Float64,
];

/// An image.
pub struct Image<'a> {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Type of the pixels.
    pub pixel: PixelType,
    /// The pixels, little endian.
    pub pixels: &'a [u8],
}

impl<'a> Image<'a> {
    /// The image as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.pixels.len());
        out.extend(format!("{:<16}", self.pixel.to_string()).as_bytes());
        self.shape.iter().for_each(|edge| out.extend((*edge as u64).to_le_bytes()));
        out.extend(self.pixels);
        out
    }

    /// The image in these bytes.
    ///
    /// # Errors
    /// They are none, in words.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let (head, pixels) = bytes.split_at_checked(HEAD_BYTES).ok_or("the bytes of an image are too few")?;
        let name = String::from_utf8_lossy(&head[..16]);
        let pixel = TYPES.into_iter().find(|pixel| pixel.to_string() == name.trim_end());
        let pixel = pixel.ok_or_else(|| format!("pixels of type '{}' are not possible", name.trim_end().escape_debug()))?;
        let edge = |at: usize| head[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
        let edges = [edge(16), edge(24)];
        let expected = edges[0].checked_mul(edges[1]).and_then(|pixels| pixels.checked_mul(pixel.bytes() as u64));
        if expected != Some(pixels.len() as u64) || pixels.is_empty() {
            return Err(format!("an image of {} x {} {pixel} pixels cannot have {} bytes", edges[0], edges[1], pixels.len()));
        }
        Ok(Self { shape: edges.map(|edge| edge as usize), pixel, pixels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_back_and_wrong_ones_are_refused() {
        for pixel in TYPES {
            let pixels = vec![7; 6 * pixel.bytes()];
            let bytes = Image { shape: [2, 3], pixel, pixels: &pixels }.encode();
            let found = Image::decode(&bytes).unwrap();
            assert_eq!((found.shape, found.pixel, found.pixels), ([2, 3], pixel, &pixels[..]));
            assert!(Image::decode(&bytes[..bytes.len() - 1]).is_err());
            assert!(Image::decode(&bytes[..HEAD_BYTES]).is_err());
        }
    }
}
