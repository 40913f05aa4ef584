//! The compression of blocks that are bitshuffled already.

use konkordia_fabric::card::{BLOCK_BYTES, Layout};
use konkordia_kernels::chunk::{HEADER_BYTES, LENGTH_BYTES, blocks_bound, write_header};
use konkordia_kernels::planes::Lz4Encoder;
use konkordia_kernels::{ElementSize, Isa};
use std::ops::Range;

/// A frame, as it was copied out of the memory, and its chunk.
pub struct Packer {
    isa: Isa,
    element: ElementSize,
    encoder: Lz4Encoder,
    frame: Vec<u8>,
    chunk: Vec<u8>,
    masks: Range<usize>,
}

impl Packer {
    /// For frames of a layout.
    pub fn new(layout: &Layout) -> Self {
        let image_bytes = layout.masks().start;
        let element = ElementSize::new(2).expect("pixels of 2 bytes can be shuffled");
        let chunk = vec![0; HEADER_BYTES + blocks_bound(image_bytes / 2, element)];
        let (frame, encoder) = (vec![0; layout.frame_bytes()], Lz4Encoder::new(BLOCK_BYTES));
        Self { isa: Isa::detect(), element, encoder, frame, chunk, masks: layout.masks() }
    }

    /// Where the next frame is copied to, with its masks.
    pub fn frame(&mut self) -> &mut [u8] {
        &mut self.frame
    }

    /// Its masks.
    pub fn masks(&self) -> &[u8] {
        &self.frame[self.masks.clone()]
    }

    /// The chunk of the pixels.
    pub fn chunk(&mut self) -> Vec<u8> {
        let pixels = &self.frame[..self.masks.start];
        write_header(&mut self.chunk, pixels.len() as u64, BLOCK_BYTES as u32);
        let mut end = HEADER_BYTES;
        for block in pixels.chunks_exact(BLOCK_BYTES) {
            let (length, packed) = self.chunk[end..].split_at_mut(LENGTH_BYTES);
            let bytes = self.encoder.compress(self.isa, self.element, block, packed);
            length.copy_from_slice(&(bytes as u32).to_be_bytes());
            end += LENGTH_BYTES + bytes;
        }
        self.chunk[..end].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_fabric::card::Form;
    use konkordia_kernels::bitshuffle::shuffle;
    use konkordia_kernels::chunk;
    use konkordia_kernels::chunk::decompress_chunk;
    use konkordia_kernels::codec::compress;

    #[test]
    fn shuffled_blocks_become_the_chunk_of_the_image() {
        let element = ElementSize::new(2).unwrap();
        let form =
            Form { image_bytes: 3 * 8192, is_unsigned: true, tiles: 1, tile_packets: 3, slots: 2, first_frame: 1, rows: 1 };
        let mut packer = Packer::new(&Layout::new(form).unwrap());
        let image: Vec<u8> = (0..3 * 4096_u32).flat_map(|n| ((n * n) as u16 % 37).to_le_bytes()).collect();
        for (pixels, block) in image.chunks(BLOCK_BYTES).zip(packer.frame().chunks_mut(BLOCK_BYTES)) {
            shuffle(Isa::detect(), element, pixels, block);
        }
        let found = packer.chunk();
        let mut back = vec![0; image.len()];
        decompress_chunk(Isa::detect(), &found, element, &mut back).unwrap();
        assert_eq!(back, image);
        // The same bytes as of images that are shuffled here.
        let whole = compress(konkordia_core::plan::Compression::BSLZ4, Isa::detect(), element, &image, chunk::BLOCK_BYTES);
        assert_eq!(found, whole);
    }
}
