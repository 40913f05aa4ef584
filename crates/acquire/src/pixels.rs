//! Pixels of an image of the preview buffer, unpacked: for servers that show or pass on numbers.

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_kernels::isa::Isa;
use konkordia_kernels::transform::pixels::mono12p;
use konkordia_kernels::transform::unpack::{self, UnpackScratch};

/// Pixels, little-endian, row by row.
pub struct Pixels {
    /// Dimensions, slowest first.
    pub shape: Shape,
    /// Their type; never `Mono12p`.
    pub element: Element,
    /// Their bytes.
    pub data: Bytes,
}

impl Pixels {
    /// Unpacks an array. Its bytes come from outside, so they are checked against its shape. Takes as long as decoding.
    ///
    /// # Errors
    /// The bytes do not agree with shape, type and packing; in words for people.
    pub fn of(array: &Array) -> Result<Self, String> {
        let bytes = Some(array.unpacked_bytes()).filter(|bytes| *bytes < u64::MAX).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or("they are too many")?;
        let data = match (&array.packing, &array.pieces[..]) {
            (Packing::None, [piece]) if piece.len() == bytes => piece.clone(),
            _ => unpack(array, bytes)?.into(),
        };
        if array.element == Element::Mono12p {
            let mut pixels = vec![0; 2 * array.shape.elements() as usize];
            mono12p(Isa::detect(), &data, &mut pixels);
            return Ok(Self { shape: array.shape, element: Element::Uint16, data: pixels.into() });
        }
        Ok(Self { shape: array.shape, element: array.element, data })
    }

    /// Rows and columns of a picture: all but the last dimension are rows.
    pub fn size(&self) -> (usize, usize) {
        let columns = self.shape.dimensions().last().copied().unwrap_or(1);
        ((self.shape.elements() / columns) as usize, columns as usize)
    }
}

fn unpack(array: &Array, bytes: usize) -> Result<Vec<u8>, String> {
    let pieces = array.pieces.len();
    if pieces == 0 || !bytes.is_multiple_of(pieces) {
        return Err(format!("{bytes} bytes cannot be divided into {pieces} equal pieces"));
    }
    let (mut out, mut scratch) = (vec![0; bytes], UnpackScratch::new(Isa::detect()));
    for (packed, unpacked) in array.pieces.iter().zip(out.chunks_mut((bytes / pieces).max(1))) {
        unpack::array(array.packing, array.element, packed, unpacked, &mut scratch)?;
    }
    Ok(out)
}
