//! Pixels of files in the form that everything downstream expects: in one piece, little-endian.

use bytes::{Bytes, BytesMut};
use konkordia_core::array::Element;

/// The pixels of these pieces of `content`: shared where they lie in one piece and little-endian, else copied once.
pub fn whole(content: &Bytes, pieces: &[&[u8]], element: Element, is_big_endian: bool) -> Bytes {
    let each = element.bits() as usize / 8;
    if let ([piece], false) = (pieces, is_big_endian && each > 1) {
        return content.slice_ref(piece);
    }
    let mut all = BytesMut::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    if is_big_endian {
        match each {
            2 => all.as_chunks_mut::<2>().0.iter_mut().for_each(|bytes| bytes.reverse()),
            4 => all.as_chunks_mut::<4>().0.iter_mut().for_each(|bytes| bytes.reverse()),
            8 => all.as_chunks_mut::<8>().0.iter_mut().for_each(|bytes| bytes.reverse()),
            _ => {}
        }
    }
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_turned_and_pieces_joined_or_shared() {
        let content = Bytes::from_static(&[9, 1, 2, 3, 4, 9, 5, 6, 7, 8]);
        let one = whole(&content, &[&content[1..5]], Element::Uint16, false);
        assert_eq!((&one[..], one.as_ptr()), (&[1, 2, 3, 4][..], content[1..].as_ptr()));
        let two: [&[u8]; 2] = [&content[1..5], &content[6..10]];
        assert_eq!(whole(&content, &two, Element::Uint32, false), [1, 2, 3, 4, 5, 6, 7, 8].as_slice());
        assert_eq!(whole(&content, &two, Element::Uint16, true), [2, 1, 4, 3, 6, 5, 8, 7].as_slice());
        assert_eq!(whole(&content, &two, Element::Float32, true), [4, 3, 2, 1, 8, 7, 6, 5].as_slice());
        assert_eq!(whole(&content, &two, Element::Float64, true), [8, 7, 6, 5, 4, 3, 2, 1].as_slice());
        assert_eq!(whole(&content, &[&content[1..5]], Element::Uint8, true).as_ptr(), content[1..].as_ptr());
    }
}
