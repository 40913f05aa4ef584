//! Packs whole images on one thread as the workers of a run pack strips: pieces, joined by the framing of the codec.

use konkordia_core::plan::Compression;
use konkordia_kernels::codec::{Framing, Packer, piece_bound};
use konkordia_kernels::{ElementSize, Isa};

/// Bytes of a strip, for codecs that compress strips and not blocks.
const STRIP_BYTES: usize = 128 << 10;

/// For images of one size and codec; its buffers are kept.
pub struct ImagePacker {
    codec: Compression,
    element: ElementSize,
    packer: Packer,
    packed: Vec<Vec<u8>>,
    lengths: Vec<usize>,
    framing: Framing,
}

impl ImagePacker {
    /// For images of `image_bytes` bytes.
    pub fn new(codec: Compression, element: ElementSize, image_bytes: usize) -> Self {
        let piece = piece_bytes(codec);
        let pieces = image_bytes.div_ceil(piece);
        Self {
            codec,
            element,
            packer: Packer::new(codec, Isa::detect(), piece),
            packed: vec![vec![0; piece_bound(codec, piece)]; pieces],
            lengths: vec![0; pieces],
            framing: Framing::new(codec, image_bytes),
        }
    }

    /// The chunk of an image.
    pub fn pack(&mut self, image: &[u8]) -> Vec<u8> {
        let work = self.packed.iter_mut().zip(&mut self.lengths).zip(image.chunks(piece_bytes(self.codec)));
        work.for_each(|((room, length), piece)| *length = self.packer.pack_bytes(self.element, piece, room));
        let pieces: Vec<&[u8]> = self.packed.iter().zip(&self.lengths).map(|(room, length)| &room[..*length]).collect();
        let mut parts = vec![&[][..]; pieces.len() + 2];
        let count = self.framing.join(&pieces, &mut parts);
        // One gather copy, as a run makes it.
        parts[..count].concat()
    }
}

fn piece_bytes(codec: Compression) -> usize {
    if codec.is_by_strip() { STRIP_BYTES } else { codec.block_bytes() }
}
