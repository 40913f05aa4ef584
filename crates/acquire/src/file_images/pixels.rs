//! The pixels of one image of a file, from its chunks.

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::plan::{Compression, ErrorBound};
use konkordia_kernels::codec;
use konkordia_kernels::isa::Isa;
use konkordia_kernels::transform::{UnpackScratch, unpack};

/// A chunk as it was read; `None` = it was never written.
pub type Chunk = Option<(Bytes, Packing)>;

/// What the pixels of a channel are.
pub struct Form {
    /// Dimensions, slowest first.
    pub shape: Shape,
    /// Type of a pixel.
    pub element: Element,
    /// A pixel that was never written, little-endian.
    pub missing: Vec<u8>,
}

impl Form {
    /// Bytes of the pixels of one of so many pieces; `None` if they do not divide the image.
    pub fn piece_bytes(&self, pieces: usize) -> Option<usize> {
        let bytes = self.shape.elements().checked_mul(u64::from(self.element.bits() / 8))?;
        let pieces = u64::try_from(pieces).ok().filter(|pieces| *pieces > 0 && bytes % pieces == 0)?;
        usize::try_from(bytes / pieces).ok()
    }

    /// The pixels as the file holds them if a ring could hold them so, else unpacked.
    ///
    /// # Errors
    /// A chunk is not what it claims to be; in words.
    pub fn array(&self, chunks: Vec<Chunk>) -> Result<Array, String> {
        let Self { shape, element, .. } = self;
        let packing = chunks.first().and_then(Option::as_ref).map(|(_, packing)| *packing);
        let is_same = |chunk: &Chunk| chunk.as_ref().map(|(_, packing)| *packing) == packing;
        // Nothing else unpacks SZ3, which only archive copies have.
        let as_it_is = packing.filter(|packing| *packing != Packing::Sz3 && chunks.iter().all(is_same));
        let divides = shape.dimensions().first().is_some_and(|first| first % chunks.len().max(1) as u64 == 0);
        match as_it_is.filter(|_| divides) {
            Some(packing) => {
                let pieces = chunks.into_iter().flatten().map(|(bytes, _)| bytes).collect();
                Ok(Array { shape: *shape, element: *element, packing, pieces })
            }
            None => {
                let pieces = vec![self.unpacked(&chunks)?.into()];
                Ok(Array { shape: *shape, element: *element, packing: Packing::None, pieces })
            }
        }
    }

    fn unpacked(&self, chunks: &[Chunk]) -> Result<Vec<u8>, String> {
        let piece_bytes = self.piece_bytes(chunks.len()).ok_or("its chunks do not divide the image")?;
        let mut pixels = vec![0; piece_bytes * chunks.len()];
        let mut scratch = UnpackScratch::new(Isa::detect());
        for (chunk, out) in chunks.iter().zip(pixels.chunks_mut(piece_bytes.max(1))) {
            match chunk {
                None => out.chunks_exact_mut(self.missing.len().max(1)).for_each(|pixel| pixel.copy_from_slice(&self.missing)),
                Some((bytes, Packing::Sz3)) => {
                    // The bound stands in the stream too; only writers need it.
                    let bound = ErrorBound::new(1.0).ok_or("no bound")?;
                    codec::decode(Compression::Sz3 { bound }, bytes, self.missing.len(), out)?;
                }
                &Some((ref bytes, packing)) => unpack::array(packing, self.element, bytes, out, &mut scratch)?,
            }
        }
        Ok(pixels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Form {
        Form { shape: Shape::new(&[2, 3]).unwrap(), element: Element::Uint16, missing: vec![0xFF, 0xFF] }
    }

    #[test]
    fn chunks_stay_as_they_are_where_a_ring_could_hold_them() {
        let plain = |bytes: Vec<u8>| Some((Bytes::from(bytes), Packing::None));
        let whole = form().array(vec![plain((0..12).collect())]).unwrap();
        assert_eq!(
            (whole.packing, whole.pieces.len(), &whole.pieces[0][..]),
            (Packing::None, 1, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][..])
        );
        let rows = form().array(vec![plain(vec![1; 6]), plain(vec![2; 6])]).unwrap();
        assert_eq!(rows.pieces.len(), 2);
        // A piece that was never written has the missing value, and the image is one piece then.
        let half = form().array(vec![plain(vec![1; 6]), None]).unwrap();
        assert_eq!((half.packing, &half.pieces[0][..]), (Packing::None, &[1, 1, 1, 1, 1, 1, 255, 255, 255, 255, 255, 255][..]));
        // Three pieces do not divide two rows.
        let three = form().array(vec![plain(vec![1; 4]), plain(vec![2; 4]), plain(vec![3; 4])]).unwrap();
        assert_eq!(&three.pieces[0][..], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        assert!(form().array(vec![plain(vec![1; 4]), None, plain(vec![3; 5])]).is_err(), "too many bytes");
        assert!(form().array(vec![plain(vec![1; 4]), None]).is_err(), "too few bytes");
    }
}
