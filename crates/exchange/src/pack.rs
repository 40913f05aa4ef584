//! Packs the pixels of images into chunks, with memory that is used again.

use konkordia_core::array::Element;
use konkordia_core::plan::Compression;
use konkordia_kernels::codec::{Framing, Packer, piece_bound};
use konkordia_kernels::{ElementSize, Isa};

/// Bytes that Zstd and gzip, which have no blocks, pack at once.
const STRIP_BYTES: usize = 1 << 20;

/// Packs images of one type; one for each thread.
pub struct Pack {
    compression: Compression,
    element: ElementSize,
    piece_bytes: usize,
    packer: Packer,
    out: Vec<u8>,
}

impl Pack {
    /// For images of `image_bytes`; `None` for pixels that no codec takes.
    pub fn new(compression: Compression, element: Element, image_bytes: usize) -> Option<Self> {
        let size = ElementSize::new(element.bits() as usize / 8)?;
        let piece_bytes = match compression {
            Compression::Zstd { .. } | Compression::Gzip { .. } => STRIP_BYTES.min(image_bytes.max(1)),
            _ => compression.block_bytes(),
        };
        let packer = Packer::new(compression, Isa::detect(), piece_bytes);
        Some(Self { compression, element: size, piece_bytes, packer, out: Vec::new() })
    }

    /// The chunk of an image.
    pub fn pack(&mut self, pixels: &[u8]) -> Vec<u8> {
        if self.compression == Compression::None {
            return pixels.to_vec();
        }
        let room = piece_bound(self.compression, self.piece_bytes);
        let count = pixels.len().div_ceil(self.piece_bytes);
        if self.out.len() < room * count {
            self.out.resize(room * count, 0);
        }
        let mut lengths = Vec::with_capacity(count);
        for (piece, out) in pixels.chunks(self.piece_bytes).zip(self.out.chunks_exact_mut(room)) {
            lengths.push(self.packer.pack_bytes(self.element, piece, out));
        }
        let strips: Vec<&[u8]> = self.out.chunks_exact(room).zip(&lengths).map(|(out, length)| &out[..*length]).collect();
        let mut parts = vec![&[][..]; strips.len() + 2];
        let mut framing = Framing::new(self.compression, pixels.len());
        framing.join(&strips, &mut parts);
        parts.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_kernels::codec::decode;

    #[test]
    fn chunks_of_all_codecs_decode() {
        for name in ["none", "bslz4", "bszstd", "lz4", "zstd", "gzip"] {
            let compression = Compression::from_name(name).unwrap();
            for (element, bytes) in
                [(Element::Uint16, 34_562), (Element::Int32, 8192), (Element::Uint8, 1), (Element::Float64, 800_008)]
            {
                let pixels: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8 / 7).collect();
                let mut pack = Pack::new(compression, element, bytes).unwrap();
                for _ in 0..2 {
                    let mut back = vec![0; bytes];
                    decode(compression, &pack.pack(&pixels), element.bits() as usize / 8, &mut back).unwrap();
                    assert!(back == pixels, "{name} {element:?}");
                }
            }
        }
    }
}
