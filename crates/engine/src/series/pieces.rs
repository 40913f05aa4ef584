//! Joins the pieces of an image from several upstreams to one array. Pieces are unpacked only if their packings differ.

use super::join::Joined;
use crate::unpack::unpacked;
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::Channel;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{PackScratch, UnpackScratch, missing_le_bytes, pack};

/// The replacement of a missing piece, and the form of the pieces that it is for.
struct Blank {
    of: (Shape, Element, Packing),
    piece: Bytes,
}

/// Joins the pieces of images.
pub(crate) struct PieceJoiner {
    isa: Isa,
    pack: PackScratch,
    unpack: UnpackScratch,
    /// The last one that was made.
    blank: Option<Blank>,
}

/// Shape of an image of `count` pieces.
pub(crate) fn whole_shape(piece: Shape, count: u64) -> Option<Shape> {
    match piece.dimensions() {
        [first, rest @ ..] if rest.len() >= 2 => Shape::new(&[&[first.checked_mul(count)?], rest].concat()),
        plane => Shape::new(&[&[count], plane].concat()),
    }
}

impl PieceJoiner {
    pub fn new(isa: Isa) -> Self {
        Self { isa, pack: PackScratch::new(), unpack: UnpackScratch::new(isa), blank: None }
    }

    /// Joins `parts`, the channels of each; a missing part has none. Parts were checked: same forms, one piece each.
    pub fn join(&mut self, parts: &[Vec<Channel>]) -> Joined {
        let mut joined = Joined { channels: Vec::new(), unreadable: 0, why: None };
        let Some(first) = parts.iter().find(|channels| !channels.is_empty()) else { return joined };
        let channels: Result<_, String> = (0..first.len()).map(|index| self.channel(parts, index, &first[index])).collect();
        match channels {
            Ok(channels) => joined.channels = channels,
            Err(why) => {
                let came = parts.iter().enumerate().filter(|(_, channels)| !channels.is_empty());
                joined.unreadable = came.fold(0, |bits, (n, _)| bits | 1 << n);
                joined.why = Some(why);
            }
        }
        joined
    }

    fn channel(&mut self, parts: &[Vec<Channel>], index: usize, first: &Channel) -> Result<Channel, String> {
        let arrays: Vec<Option<&Array>> =
            parts.iter().map(|channels| channels.get(index).map(|channel| &channel.array)).collect();
        let (shape, element) = (first.array.shape, first.array.element);
        let is_alike = arrays.iter().flatten().all(|array| array.packing == first.array.packing);
        let packing = if is_alike { first.array.packing } else { Packing::None };
        let mut pieces = Vec::with_capacity(parts.len());
        for array in arrays {
            pieces.push(match array {
                None => self.blank((shape, element, packing))?,
                Some(array) if array.packing == packing => array.pieces.first().ok_or("a piece has no pixels")?.clone(),
                Some(array) => unpacked(array, &mut self.unpack)?,
            });
        }
        let whole = whole_shape(shape, parts.len() as u64);
        let shape = whole.ok_or_else(|| format!("{} pieces of shape {:?} are not an image", parts.len(), shape.dimensions()))?;
        Ok(Channel { name: first.name.clone(), array: Array { shape, element, packing, pieces } })
    }

    /// A piece of missing pixels, packed like the others; made once.
    fn blank(&mut self, of: (Shape, Element, Packing)) -> Result<Bytes, String> {
        if let Some(blank) = self.blank.as_ref().filter(|blank| blank.of == of) {
            return Ok(blank.piece.clone());
        }
        let (shape, element, packing) = of;
        let pixels = missing_le_bytes(element).repeat(shape.elements() as usize);
        let piece = if packing == Packing::None {
            Bytes::from(pixels)
        } else {
            let mut out = Vec::new();
            pack(packing, self.isa, element, &pixels, &mut out, &mut self.pack)?;
            Bytes::from(out)
        };
        self.blank = Some(Blank { of, piece: piece.clone() });
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_kernels::transform::unpack;

    fn array(packing: Packing, value: u16) -> Array {
        let pixels = value.to_le_bytes().repeat(6);
        let mut out = Vec::new();
        pack(packing, Isa::detect(), Element::Uint16, &pixels, &mut out, &mut PackScratch::new()).unwrap();
        Array { shape: Shape::new(&[2, 3]).unwrap(), element: Element::Uint16, packing, pieces: vec![out.into()] }
    }

    fn channels(array: Array) -> Vec<Channel> {
        vec![Channel { name: "".into(), array }]
    }

    fn values(array: &Array) -> Vec<u16> {
        let mut all = Vec::new();
        for piece in &array.pieces {
            let mut out = vec![0; 12];
            unpack::array(array.packing, array.element, piece, &mut out, &mut UnpackScratch::new(Isa::detect())).unwrap();
            all.extend(out.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)));
        }
        all
    }

    #[test]
    fn pieces_stay_as_they_came_and_a_missing_one_is_packed_like_them() {
        let mut joiner = PieceJoiner::new(Isa::detect());
        for packing in [Packing::None, Packing::BitshuffleLz4] {
            let parts = [channels(array(packing, 1)), Vec::new(), channels(array(packing, 3))];
            for _ in 0..2 {
                let joined = joiner.join(&parts);
                let image = &joined.channels[0].array;
                assert_eq!((joined.unreadable, image.shape.dimensions(), image.packing), (0, &[3u64, 2, 3][..], packing));
                assert_eq!(image.pieces[2].as_ptr(), parts[2][0].array.pieces[0].as_ptr(), "not copied");
                assert_eq!(image.piece_shape().unwrap().dimensions(), [1, 2, 3]);
                assert_eq!(values(image), [[1; 6], [u16::MAX; 6], [3; 6]].concat());
            }
        }
    }

    #[test]
    fn unlike_packings_are_unpacked_and_what_cannot_be_is_refused() {
        let mut joiner = PieceJoiner::new(Isa::detect());
        let mut parts = [channels(array(Packing::None, 1)), channels(array(Packing::BitshuffleLz4, 2))];
        let joined = joiner.join(&parts);
        assert_eq!(
            (joined.channels[0].array.packing, values(&joined.channels[0].array)),
            (Packing::None, [[1; 6], [2; 6]].concat())
        );
        parts[1][0].array.pieces[0] = Bytes::from_static(&[1; 20]);
        let joined = joiner.join(&parts);
        assert_eq!((joined.channels.len(), joined.unreadable), (0, 3));
        assert!(joined.why.is_some());
    }

    #[test]
    fn shapes_of_images_of_pieces() {
        let whole = |piece: &[u64]| whole_shape(Shape::new(piece).unwrap(), 4).unwrap().dimensions().to_vec();
        assert_eq!([whole(&[1, 2, 3]), whole(&[2, 3]), whole(&[2, 5, 3])], [vec![4, 2, 3], vec![4, 2, 3], vec![8, 5, 3]]);
        assert_eq!(whole(&[7]), [4, 7]);
    }
}
