//! The baseline to compare with: three passes through memory, which convert the whole image, transpose it, and compress
//! it block by block. Each pass is a good one, so that a comparison judges only the fusion and the choice of steps. The
//! conversion selects among all three stages with AVX2 (a loop left to the compiler is not vectorised and is eight
//! times slower). The transposition is our own AVX2 one, which is faster than the common library. The encoder is called
//! as everybody calls it.

use crate::bitshuffle::{self, ElementSize};
use crate::chunk::{BLOCK_BYTES, HEADER_BYTES, write_header};
use crate::convert::{self, Constants, OutputPixel};
use crate::fused::element_size;
use crate::isa::Isa;
use crate::length::LENGTH_BYTES;
use crate::lz4;

/// The instruction set of the baseline: AVX2, or scalar where the machine has no AVX2.
pub fn isa() -> Isa {
    Isa::Avx2.usable()
}

/// Converts JUNGFRAU words with all six constants of every pixel. Same result as [`crate::convert::jungfrau`].
///
/// # Panics
/// If the lengths differ.
pub fn convert<P: OutputPixel>(raw: &[u16], constants: &Constants<'_>, out: &mut [P]) {
    convert::jungfrau_all_branches(isa(), raw, constants, out);
}

/// Transposes a whole image block by block into another buffer; the last `pixels % 8` pixels are copied.
///
/// # Panics
/// If the lengths differ.
pub fn shuffle(element: ElementSize, image: &[u8], planes: &mut [u8]) {
    for (block, planes) in image.chunks(BLOCK_BYTES).zip(planes.chunks_mut(BLOCK_BYTES)) {
        let whole = block.len() / (8 * element.bytes()) * (8 * element.bytes());
        bitshuffle::shuffle(isa(), element, &block[..whole], &mut planes[..whole]);
        planes[whole..].copy_from_slice(&block[whole..]);
    }
}

/// Makes the chunk of a transposed image with `LZ4_compress_default` and returns its length.
///
/// # Panics
/// If `out` has less than [`crate::chunk::bslz4_bound`] bytes.
pub fn compress(element: ElementSize, planes: &[u8], out: &mut [u8]) -> usize {
    write_header(out, planes.len() as u64, BLOCK_BYTES as u32);
    let mut at = HEADER_BYTES;
    for block in planes.chunks(BLOCK_BYTES) {
        let (grouped, leftover) = block.split_at(block.len() / (8 * element.bytes()) * (8 * element.bytes()));
        if !grouped.is_empty() {
            let written = lz4::compress_default(grouped, &mut out[at + LENGTH_BYTES..]);
            out[at..at + LENGTH_BYTES].copy_from_slice(&(written as u32).to_be_bytes());
            at += LENGTH_BYTES + written;
        }
        out[at..at + leftover.len()].copy_from_slice(leftover);
        at += leftover.len();
    }
    at
}

/// The buffers of the three passes: a converted and a transposed image.
pub struct Passes<P> {
    pixels: Vec<P>,
    planes: Vec<u8>,
}

impl<P: OutputPixel> Passes<P> {
    /// Buffers for an image of `pixels` pixels.
    pub fn new(pixels: usize) -> Self {
        Self { pixels: vec![P::default(); pixels], planes: vec![0; pixels * size_of::<P>()] }
    }

    /// The three passes; returns the length of the chunk in `out`.
    ///
    /// # Panics
    /// If lengths differ or `out` has less than [`crate::chunk::bslz4_bound`] bytes.
    pub fn run(&mut self, raw: &[u16], constants: &Constants<'_>, out: &mut [u8]) -> usize {
        convert(raw, constants, &mut self.pixels);
        shuffle(element_size::<P>(), bytemuck::cast_slice(&self.pixels), &mut self.planes);
        compress(element_size::<P>(), &self.planes, out)
    }
}
