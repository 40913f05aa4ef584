//! Convert, transpose and compress one block while it is in the first-level cache.
//!
//! A block is filled into [`FusedScratch::pixels_mut`] by one or more calls of [`crate::convert`] (the pixels of a
//! block may come from several tiles), then packed by [`FusedScratch::pack_block`]. Blocks packed one after the other,
//! behind a header of [`write_header`], are byte for byte what [`compress_chunk`] makes of the whole image.

use crate::bitshuffle::{self, ElementSize};
use crate::chunk::{BLOCK_BYTES, HEADER_BYTES, write_header};
use crate::convert::{self, Constants, OutputPixel};
use crate::isa::Isa;
use crate::length::with_length;
use crate::planes::Lz4Encoder;

const _: () = assert!(cfg!(target_endian = "little"), "pixels are stored as they lie in memory, which must be little-endian");

#[repr(C, align(64))]
struct Block([u8; BLOCK_BYTES]);

/// What one worker needs to pack blocks: about 32 KiB, allocated once.
pub struct FusedScratch {
    pixels: Box<Block>,
    planes: Box<Block>,
    encoder: Lz4Encoder,
}

/// Pixels of a full block: 4096 of two bytes, 2048 of four.
pub const fn block_pixels<P: OutputPixel>() -> usize {
    BLOCK_BYTES / size_of::<P>()
}

/// Element size of a pixel type.
pub const fn element_size<P: OutputPixel>() -> ElementSize {
    match ElementSize::new(size_of::<P>()) {
        Some(element) => element,
        None => panic!("pixels have two or four bytes"),
    }
}

impl FusedScratch {
    /// Allocates the buffers.
    pub fn new() -> Self {
        Self {
            pixels: Box::new(Block([0; BLOCK_BYTES])),
            planes: Box::new(Block([0; BLOCK_BYTES])),
            encoder: Lz4Encoder::new(BLOCK_BYTES),
        }
    }

    /// The pixels of the block to be packed, [`block_pixels`] of them. Until they are overwritten they hold those of
    /// the last block.
    pub fn pixels_mut<P: OutputPixel>(&mut self) -> &mut [P] {
        bytemuck::cast_slice_mut(&mut self.pixels.0)
    }

    /// Packs the first `pixels` pixels: writes the length (u32, big-endian) and the compressed block to the start of
    /// `out` and returns the bytes written. Only the last block of an image may be short; pixels beyond a multiple of 8
    /// follow uncompressed, as the format requires.
    ///
    /// # Panics
    /// If `pixels` is more than [`block_pixels`] or `out` has less than [`crate::chunk::blocks_bound`] bytes for them.
    pub fn pack_block<P: OutputPixel>(&mut self, isa: Isa, pixels: usize, out: &mut [u8]) -> usize {
        let bytes = pixels * size_of::<P>();
        pack(isa, element_size::<P>(), &self.pixels.0[..bytes], &mut self.planes, &mut self.encoder, out)
    }

    /// As [`Self::pack_block`], for the bytes of a block that are not in this scratch.
    ///
    /// # Panics
    /// As [`Self::pack_block`].
    pub fn pack_bytes(&mut self, isa: Isa, element: ElementSize, block: &[u8], out: &mut [u8]) -> usize {
        pack(isa, element, block, &mut self.planes, &mut self.encoder, out)
    }

    /// Converts one run of JUNGFRAU words and packs it as a block.
    ///
    /// # Panics
    /// As [`convert::jungfrau`] and [`Self::pack_block`].
    pub fn convert_and_pack_block<P: OutputPixel>(
        &mut self,
        isa: Isa,
        raw: &[u16],
        constants: &Constants<'_>,
        out: &mut [u8],
    ) -> usize {
        convert::jungfrau(isa, raw, constants, &mut self.pixels_mut::<P>()[..raw.len()]);
        self.pack_block::<P>(isa, raw.len(), out)
    }
}

impl Default for FusedScratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Compresses a whole image (its bytes, little-endian) on this thread and returns the bytes written.
///
/// # Panics
/// If the image is not a whole number of elements or `out` has less than [`crate::chunk::bslz4_bound`] bytes.
pub fn compress_chunk(isa: Isa, scratch: &mut FusedScratch, element: ElementSize, image: &[u8], out: &mut [u8]) -> usize {
    assert_eq!(image.len() % element.bytes(), 0, "an image is a whole number of elements");
    write_header(out, image.len() as u64, BLOCK_BYTES as u32);
    let mut at = HEADER_BYTES;
    for block in image.chunks(BLOCK_BYTES) {
        at += scratch.pack_bytes(isa, element, block, &mut out[at..]);
    }
    at
}

fn pack(isa: Isa, element: ElementSize, block: &[u8], planes: &mut Block, encoder: &mut Lz4Encoder, out: &mut [u8]) -> usize {
    let (grouped, leftover) = block.split_at(block.len() / (8 * element.bytes()) * (8 * element.bytes()));
    let mut written = 0;
    if !grouped.is_empty() {
        let planes = &mut planes.0[..grouped.len()];
        bitshuffle::shuffle(isa, element, grouped, planes);
        written = with_length(out, |payload| encoder.compress(isa, element, planes, payload));
    }
    out[written..][..leftover.len()].copy_from_slice(leftover);
    written + leftover.len()
}
