//! The bslz4 form of an image: HDF5 chunks of filter 32008 with LZ4, and "bslz4" in DECTRIS and STINS streams.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | length of the image in bytes, big-endian |
//! | 4 | length of a block in bytes, big-endian |
//! | per block: 4 | length of the compressed block, big-endian |
//! | per block | the bit-transposed block as one LZ4 block |
//! | the rest | the last `pixels % 8` pixels as they are |
//!
//! All blocks are full except the last, which holds the remaining pixels, rounded down to a multiple of 8. It is absent
//! if that is none.

use crate::bitshuffle::{self, ElementSize};
use crate::isa::Isa;
pub use crate::length::LENGTH_BYTES;
use crate::length::with_length;
use crate::lz4;
use crate::planes::decompress_lz4;

/// Bytes before the first block.
pub const HEADER_BYTES: usize = 12;
/// Bytes of a full block: the default of the bitshuffle library for elements of 1, 2, 4 and 8 bytes.
pub const BLOCK_BYTES: usize = 8192;

/// Elements of a full block: 8192, 4096, 2048 or 1024 for elements of 1, 2, 4 or 8 bytes.
pub const fn default_block_elements(element: ElementSize) -> usize {
    BLOCK_BYTES / element.bytes()
}

/// Largest size in bytes of the blocks of `pixels` pixels, without the header. The pixels are a strip of whole blocks,
/// or the last strip.
pub fn blocks_bound(pixels: usize, element: ElementSize) -> usize {
    let block = default_block_elements(element);
    let last = pixels % block / 8 * 8 * element.bytes();
    let full = pixels / block * (LENGTH_BYTES + lz4::bound(BLOCK_BYTES));
    full + if last > 0 { LENGTH_BYTES + lz4::bound(last) } else { 0 } + pixels % 8 * element.bytes()
}

/// Largest size in bytes of the chunk of an image of `pixels` pixels.
pub fn bslz4_bound(pixels: usize, element: ElementSize) -> usize {
    HEADER_BYTES + blocks_bound(pixels, element)
}

/// Writes the header of a chunk.
///
/// # Panics
/// If `out` is shorter than [`HEADER_BYTES`].
pub fn write_header(out: &mut [u8], total_bytes: u64, block_bytes: u32) {
    out[..8].copy_from_slice(&total_bytes.to_be_bytes());
    out[8..HEADER_BYTES].copy_from_slice(&block_bytes.to_be_bytes());
}

/// Compresses one block to the start of `out` with the search of the stock encoder, length first, and returns the bytes
/// written.
///
/// # Panics
/// If `out` has less than [`LENGTH_BYTES`] plus [`lz4::bound`] of the block.
pub fn write_block(encoder: &mut lz4::Encoder, block: &[u8], out: &mut [u8]) -> usize {
    with_length(out, |payload| encoder.compress(block, payload))
}

/// Why bytes are not a chunk of the expected image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The chunk ends too early.
    #[error("the chunk ends at byte {at} inside {what}")]
    Truncated {
        /// Where it ends.
        at: usize,
        /// The part in which it ends.
        what: &'static str,
    },
    /// The chunk is that of an image of another size.
    #[error("the chunk holds {found} bytes of image, {expected} were expected")]
    WrongLength {
        /// Bytes of the image that the header states.
        found: u64,
        /// Bytes of the image that were expected.
        expected: usize,
    },
    /// A block length that is 0, no multiple of eight elements, or more than LZ4 can hold.
    #[error("blocks of {0} bytes are impossible with this element size")]
    BlockBytes(u32),
    /// A block does not decompress to the right length.
    #[error("block {block}, from byte {at} of the chunk, is not compressed data of {bytes} bytes")]
    Block {
        /// Number of the block from 0.
        block: usize,
        /// Where its payload starts.
        at: usize,
        /// Bytes that it should decompress to.
        bytes: usize,
    },
    /// The chunk as a whole is not valid for its filter.
    #[error("the chunk is not {what} of {bytes} bytes")]
    Stream {
        /// What it should be.
        what: &'static str,
        /// Bytes that it should decompress to.
        bytes: usize,
    },
    /// The filters of another program refused it; in words.
    #[error("{0}")]
    Other(String),
    /// Bytes follow the end of the image.
    #[error("{0} bytes follow the end of the image in the chunk")]
    Trailing(usize),
}

/// A reader that never goes past the end.
pub(crate) struct Cursor<'a> {
    chunk: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(chunk: &'a [u8]) -> Self {
        Self { chunk, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], ChunkError> {
        let rest = &self.chunk[self.at..];
        let part = rest.get(..count).ok_or(ChunkError::Truncated { at: self.chunk.len(), what })?;
        self.at += count;
        Ok(part)
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u32, ChunkError> {
        let bytes = self.take(4, what)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads the header of a chunk for an image of `expected` bytes and returns the bytes of a block.
    pub(crate) fn header(&mut self, expected: usize) -> Result<u32, ChunkError> {
        let total = u64::from(self.number("the header")?) << 32 | u64::from(self.number("the header")?);
        if total != expected as u64 {
            return Err(ChunkError::WrongLength { found: total, expected });
        }
        self.number("the header")
    }

    pub(crate) fn end(&self) -> Result<(), ChunkError> {
        match self.chunk.len() - self.at {
            0 => Ok(()),
            more => Err(ChunkError::Trailing(more)),
        }
    }
}

/// Decodes an untrusted chunk into exactly `out`, the bytes of the image. The block length is that of the header,
/// whichever program wrote it. Allocates at most as much as `out`.
///
/// # Errors
/// Says where the chunk is wrong.
pub fn decompress_chunk(isa: Isa, chunk: &[u8], element: ElementSize, out: &mut [u8]) -> Result<(), ChunkError> {
    decompress_lz4_blocks(isa, chunk, element, out, &mut Vec::new())
}

/// As [`decompress_chunk`], with a buffer that the caller keeps: `planes` grows to the length of a block, at most to
/// that of `out`.
pub(crate) fn decompress_lz4_blocks(
    isa: Isa,
    chunk: &[u8],
    element: ElementSize,
    out: &mut [u8],
    planes: &mut Vec<u8>,
) -> Result<(), ChunkError> {
    let decoded = |payload: &[u8], planes: &mut [u8]| decompress_lz4(payload, planes) == Some(planes.len());
    decompress_blocks(isa, chunk, element, out, planes, decoded)
}

/// As [`decompress_lz4_blocks`], with `decompress` for the payload of a block: true if it filled the planes exactly.
pub(crate) fn decompress_blocks(
    isa: Isa,
    chunk: &[u8],
    element: ElementSize,
    out: &mut [u8],
    planes: &mut Vec<u8>,
    mut decompress: impl FnMut(&[u8], &mut [u8]) -> bool,
) -> Result<(), ChunkError> {
    let mut cursor = Cursor::new(chunk);
    let block_bytes = cursor.header(out.len())?;
    let group = 8 * element.bytes();
    let block = block_bytes as usize;
    if block == 0 || !block.is_multiple_of(group) || block > lz4::INPUT_BYTES_MAX {
        return Err(ChunkError::BlockBytes(block_bytes));
    }
    let grouped = out.len() / group * group;
    let (grouped, leftover) = out.split_at_mut(grouped);
    let planes_bytes = block.min(grouped.len());
    if planes.len() < planes_bytes {
        planes.resize(planes_bytes, 0);
    }
    for (index, pixels) in grouped.chunks_mut(block).enumerate() {
        let length = cursor.number("the length of a block")? as usize;
        let at = cursor.at();
        let payload = cursor.take(length, "a block")?;
        let planes = &mut planes[..pixels.len()];
        if !decompress(payload, planes) {
            return Err(ChunkError::Block { block: index, at, bytes: pixels.len() });
        }
        bitshuffle::unshuffle(isa, element, planes, pixels);
    }
    leftover.copy_from_slice(cursor.take(leftover.len(), "the last pixels")?);
    cursor.end()
}
