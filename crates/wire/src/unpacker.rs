//! Arrays in the form that a protocol can carry.

use bytes::{Bytes, BytesMut};
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::ports::PixelUnpacker;

/// Unpacks arrays where a protocol asks for it.
pub struct ArrayUnpacker {
    pixels: Box<dyn PixelUnpacker>,
}

impl ArrayUnpacker {
    /// Arrays whose pixels `pixels` unpacks.
    pub fn new(pixels: Box<dyn PixelUnpacker>) -> Self {
        Self { pixels }
    }

    /// The array with its pieces unpacked; pieces that are not packed are shared.
    ///
    /// # Errors
    /// Its pieces are not equal parts of it, or not what they claim to be; in words for people.
    pub fn pieces(&mut self, array: &Array) -> Result<Array, String> {
        let whole = |pieces| Array { shape: array.shape, element: array.element, packing: Packing::None, pieces };
        if array.packing == Packing::None {
            return Ok(whole(array.pieces.clone()));
        }
        let shape = array.piece_shape().ok_or_else(|| uneven(array))?;
        let bytes = (shape.elements() * u64::from(array.element.bits())).div_ceil(8) as usize;
        let unpacked = array.pieces.iter().map(|piece| {
            let mut out = vec![0; bytes];
            self.pixels.unpack(array.packing, array.element, piece, &mut out)?;
            Ok(Bytes::from(out))
        });
        Ok(whole(unpacked.collect::<Result<_, String>>()?))
    }

    /// The array as it is if it has one piece in one of these packings, else in one piece and not packed.
    ///
    /// # Errors
    /// As [`Self::pieces`].
    pub fn one_piece(&mut self, array: &Array, packings: &[Packing]) -> Result<Array, String> {
        if array.pieces.len() == 1 && packings.contains(&array.packing) {
            return Ok(array.clone());
        }
        let mut unpacked = self.pieces(array)?;
        if unpacked.pieces.len() != 1 {
            let mut all = BytesMut::with_capacity(unpacked.pieces.iter().map(Bytes::len).sum());
            unpacked.pieces.iter().for_each(|piece| all.extend_from_slice(piece));
            unpacked.pieces = vec![all.freeze()];
        }
        Ok(unpacked)
    }

    /// The array in whole bytes per pixel: of packed pixels the numbers in one piece, else as it is.
    ///
    /// # Errors
    /// As [`Self::pieces`], or it has not as many bytes as its shape needs.
    pub fn whole_bytes(&mut self, array: &Array) -> Result<Array, String> {
        let Element::Packed(bits) = array.element else { return Ok(array.clone()) };
        let packed = self.one_piece(array, &[Packing::None])?;
        let pixel_count = packed.shape.elements() as usize;
        let data = packed.pieces.first().filter(|bytes| bytes.len() as u64 == packed.unpacked_bytes());
        let data = data.ok_or_else(|| "its number of bytes does not match its shape".to_owned())?;
        let element = bits.unpacked();
        let mut out = vec![0; pixel_count * (element.bits() as usize / 8)];
        self.pixels.whole_bytes(bits, data, &mut out);
        Ok(Array { shape: packed.shape, element, packing: Packing::None, pieces: vec![out.into()] })
    }
}

fn uneven(array: &Array) -> String {
    format!("an array of shape {:?} cannot have {} pieces", array.shape.dimensions(), array.pieces.len())
}

/// The shape without leading dimensions of 1, down to two dimensions.
pub fn flat(shape: Shape) -> Shape {
    let dimensions = shape.dimensions();
    let ones = dimensions.iter().take(dimensions.len().saturating_sub(2)).take_while(|n| **n == 1).count();
    Shape::new(&dimensions[ones..]).unwrap_or(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_ones_are_dropped_down_to_two_dimensions() {
        let dimensions = |shape: &[u64]| flat(Shape::new(shape).unwrap()).dimensions().to_vec();
        assert_eq!(dimensions(&[1, 1, 2, 3]), [2, 3]);
        assert_eq!(dimensions(&[2, 1, 3]), [2, 1, 3]);
        assert_eq!(dimensions(&[1, 3]), [1, 3]);
        assert_eq!(dimensions(&[3]), [3]);
    }
}
