//! Pixels in the form that a protocol can carry.

use bytes::{Bytes, BytesMut};
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{UnpackScratch, pixels, unpack};

/// Unpacks where a protocol asks for it; reuses its memory.
pub struct Unpacker {
    isa: Isa,
    scratch: UnpackScratch,
}

impl Default for Unpacker {
    fn default() -> Self {
        let isa = Isa::detect();
        Self { isa, scratch: UnpackScratch::new(isa) }
    }
}

impl Unpacker {
    /// The array with its pieces unpacked; pieces that are not packed are shared.
    pub fn pieces(&mut self, array: &Array) -> Result<Array, String> {
        let whole = |pieces| Array { shape: array.shape, element: array.element, packing: Packing::None, pieces };
        if array.packing == Packing::None {
            return Ok(whole(array.pieces.clone()));
        }
        let shape = array.piece_shape().ok_or_else(|| uneven(array))?;
        let bytes = (shape.elements() * u64::from(array.element.bits())).div_ceil(8) as usize;
        let unpacked = array.pieces.iter().map(|piece| {
            let mut out = vec![0; bytes];
            unpack::array(array.packing, array.element, piece, &mut out, &mut self.scratch)?;
            Ok(Bytes::from(out))
        });
        Ok(whole(unpacked.collect::<Result<_, String>>()?))
    }

    /// The array as it is if it has one piece in one of these packings, else in one piece and not packed.
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

    /// The array in whole bytes per pixel: of `mono12p` the numbers in one piece as `uint16`, else as it is.
    pub fn whole_bytes(&mut self, array: &Array) -> Result<Array, String> {
        if array.element != Element::Mono12p {
            return Ok(array.clone());
        }
        let packed = self.one_piece(array, &[Packing::None])?;
        let pixel_count = packed.shape.elements() as usize;
        let bytes = packed.pieces.first().filter(|bytes| bytes.len() as u64 == packed.unpacked_bytes());
        let bytes = bytes.ok_or_else(|| "its number of bytes does not match its shape".to_owned())?;
        let mut out = vec![0; pixel_count * 2];
        pixels::mono12p(self.isa, bytes, &mut out);
        Ok(Array { shape: packed.shape, element: Element::Uint16, packing: Packing::None, pieces: vec![out.into()] })
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

    fn array(dimensions: &[u64], element: Element, pieces: &[&'static [u8]]) -> Array {
        let pieces = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
        Array { shape: Shape::new(dimensions).unwrap(), element, packing: Packing::None, pieces }
    }

    #[test]
    fn pieces_are_joined_and_single_ones_shared() {
        let two = array(&[2, 2], Element::Uint8, &[&[1, 2], &[3, 4]]);
        let mut unpacker = Unpacker::default();
        assert_eq!(unpacker.one_piece(&two, &[Packing::None]).unwrap().pieces, [Bytes::from_static(&[1, 2, 3, 4])]);
        let one = array(&[2, 2], Element::Uint8, &[&[1, 2, 3, 4]]);
        assert_eq!(unpacker.one_piece(&one, &[]).unwrap().pieces[0].as_ptr(), one.pieces[0].as_ptr());
        let odd = Array { packing: Packing::Lz4, ..array(&[3, 2], Element::Uint8, &[&[1], &[2]]) };
        assert!(unpacker.pieces(&odd).unwrap_err().contains("cannot have 2 pieces"));
        let broken = Array { packing: Packing::Lz4, ..array(&[2, 2], Element::Uint8, &[&[1]]) };
        assert!(unpacker.pieces(&broken).is_err());
    }

    #[test]
    fn twelve_bits_become_sixteen() {
        let packed = array(&[3], Element::Mono12p, &[&[0x21, 0x43, 0x65, 0x87, 0x09]]);
        let wide = Unpacker::default().whole_bytes(&packed).unwrap();
        assert_eq!((wide.element, &wide.pieces[0][..]), (Element::Uint16, &[0x21, 0x03, 0x54, 0x06, 0x87, 0x09][..]));
        let short = array(&[4], Element::Mono12p, &[&[0x21, 0x43, 0x65, 0x87, 0x09]]);
        assert!(Unpacker::default().whole_bytes(&short).is_err());
    }

    #[test]
    fn leading_ones_are_dropped_down_to_two_dimensions() {
        let dimensions = |shape: &[u64]| flat(Shape::new(shape).unwrap()).dimensions().to_vec();
        assert_eq!(dimensions(&[1, 1, 2, 3]), [2, 3]);
        assert_eq!(dimensions(&[2, 1, 3]), [2, 1, 3]);
        assert_eq!(dimensions(&[1, 3]), [1, 3]);
        assert_eq!(dimensions(&[3]), [3]);
    }
}
