//! All lossless codecs behind one interface: pack strips, join strips to a chunk, decode a chunk.
//!
//! | codec | HDF5 filter | chunk |
//! |---|---|---|
//! | `Bslz4`, `Bszstd` | 32008 | see [`crate::chunk`]; usually blocks of 8 KiB of LZ4, or of 64 KiB of Zstd |
//! | `Lz4` | 32004 | the same header; usually blocks of 64 KiB; a block as long as its pixels is stored as it is; no leftover |
//! | `Zstd` | 32015 | one frame; each strip is one or more of its blocks |
//! | `Gzip` | 1 | one zlib stream; each strip ends with a full flush |
//!
//! Lossy streams hold whole images, not strips: [`crate::sz3`] makes them; this module only decodes them.
//!
//! `Other` are filters of others: whoever made the value decodes them.
//!
//! The fused path for `Bslz4` with blocks of 8 KiB is [`crate::fused`]; a [`Packer`] gives the same bytes.

use crate::bitshuffle::{self, ElementSize};
use crate::chunk::{self, ChunkError, Cursor, HEADER_BYTES, write_header};
use crate::convert::OutputPixel;
use crate::isa::Isa;
use crate::length::{LENGTH_BYTES, with_length};
use crate::planes::{Lz4Encoder, ZstdEncoder};
use crate::{deflate, lz4, zstd};
use konkordia_core::plan::Compression;

enum Encoder {
    Plain,
    PlanesLz4(Lz4Encoder),
    PlanesZstd(ZstdEncoder),
    Lz4(lz4::Encoder),
    Zstd(zstd::Encoder),
    Deflate(deflate::Encoder),
}

/// The buffers that one worker needs to pack: the pixels of a block or a strip, their planes, the compressor. Allocated
/// once.
pub struct Packer {
    codec: Compression,
    isa: Isa,
    /// In units of 64 bits, so that every pixel type is aligned.
    pixels: Vec<u64>,
    planes: Vec<u8>,
    encoder: Encoder,
}

impl Packer {
    /// For pieces of at most `bytes_max` bytes: a block, or a strip for `Zstd` and `Gzip`.
    ///
    /// # Panics
    /// For `Sz3` and `Other`.
    pub fn new(codec: Compression, isa: Isa, bytes_max: usize) -> Self {
        let (encoder, planes) = match codec {
            Compression::None => (Encoder::Plain, 0),
            Compression::Bslz4 { .. } => (Encoder::PlanesLz4(Lz4Encoder::new(bytes_max)), bytes_max),
            Compression::Bszstd { level: 1, .. } => (Encoder::PlanesZstd(ZstdEncoder::new(bytes_max)), bytes_max),
            Compression::Lz4 { .. } => (Encoder::Lz4(lz4::Encoder::new()), 0),
            Compression::Bszstd { level, .. } => (Encoder::Zstd(zstd::Encoder::new(level)), bytes_max),
            Compression::Zstd { level } => (Encoder::Zstd(zstd::Encoder::new(level)), 0),
            Compression::Gzip { level } => (Encoder::Deflate(deflate::Encoder::new(level, bytes_max)), 0),
            Compression::Sz3 { .. } | Compression::Other(_) => panic!("{} packs no pieces", codec.name()),
        };
        let mut packer = Self { codec, isa, pixels: vec![0; bytes_max.div_ceil(8)], planes: vec![0; planes], encoder };
        if matches!(packer.encoder, Encoder::Zstd(_)) {
            // Zstd allocates its memory with the first piece, by its size. Packing one here keeps that out of the run.
            packer.pack_bytes(ElementSize::One, &vec![0; bytes_max], &mut vec![0; piece_bound(codec, bytes_max)]);
        }
        packer
    }

    /// The pixels to be packed. Until they are overwritten they hold those of the last piece.
    pub fn pixels_mut<P: OutputPixel>(&mut self) -> &mut [P] {
        bytemuck::cast_slice_mut(&mut self.pixels)
    }

    /// Packs the first `pixels` pixels to the start of `out` and returns the bytes written. Every piece except the last
    /// of an image is whole blocks.
    ///
    /// # Panics
    /// If there are not so many pixels, or `out` has less than [`piece_bound`] bytes.
    pub fn pack<P: OutputPixel>(&mut self, pixels: usize, out: &mut [u8]) -> usize {
        let bytes = pixels * size_of::<P>();
        let piece = &bytemuck::cast_slice::<u64, u8>(&self.pixels)[..bytes];
        pack(self.codec, self.isa, crate::fused::element_size::<P>(), piece, &mut self.planes, &mut self.encoder, out)
    }

    /// As [`Self::pack`], for the bytes of a piece that are not in this packer.
    ///
    /// # Panics
    /// As [`Self::pack`].
    pub fn pack_bytes(&mut self, element: ElementSize, piece: &[u8], out: &mut [u8]) -> usize {
        pack(self.codec, self.isa, element, piece, &mut self.planes, &mut self.encoder, out)
    }
}

fn pack(
    codec: Compression,
    isa: Isa,
    element: ElementSize,
    piece: &[u8],
    planes: &mut [u8],
    encoder: &mut Encoder,
    out: &mut [u8],
) -> usize {
    match (codec, encoder) {
        (Compression::Bslz4 { .. }, Encoder::PlanesLz4(encoder)) => shuffled(isa, element, piece, planes, out, |planes, out| {
            with_length(out, |out| encoder.compress(isa, element, planes, out))
        }),
        (Compression::Bszstd { .. }, Encoder::PlanesZstd(encoder)) => {
            shuffled(isa, element, piece, planes, out, |planes, out| {
                with_length(out, |out| encoder.compress(isa, element, planes, out))
            })
        }
        (Compression::Bszstd { .. }, Encoder::Zstd(encoder)) => {
            shuffled(isa, element, piece, planes, out, |p, out| encoder.block(p, out))
        }
        (Compression::Lz4 { .. }, Encoder::Lz4(encoder)) => lz4_block(encoder, piece, out),
        (Compression::Zstd { .. }, Encoder::Zstd(encoder)) => encoder.strip(piece, out),
        (Compression::Gzip { .. }, Encoder::Deflate(encoder)) => encoder.strip(piece, out),
        _ => {
            out[..piece.len()].copy_from_slice(piece);
            piece.len()
        }
    }
}

/// Transposes a block and passes it to `write`; the last pixels beyond a multiple of 8 follow as they are.
fn shuffled(
    isa: Isa,
    element: ElementSize,
    block: &[u8],
    planes: &mut [u8],
    out: &mut [u8],
    mut write: impl FnMut(&[u8], &mut [u8]) -> usize,
) -> usize {
    let (grouped, leftover) = block.split_at(block.len() / (8 * element.bytes()) * (8 * element.bytes()));
    let mut written = 0;
    if !grouped.is_empty() {
        let planes = &mut planes[..grouped.len()];
        bitshuffle::shuffle(isa, element, grouped, planes);
        written = write(planes, out);
    }
    out[written..][..leftover.len()].copy_from_slice(leftover);
    written + leftover.len()
}

/// Packs a block of filter 32004. A block that does not shrink is stored as it is, which shows in its length.
fn lz4_block(encoder: &mut lz4::Encoder, block: &[u8], out: &mut [u8]) -> usize {
    let written = chunk::write_block(encoder, block, out);
    if written < LENGTH_BYTES + block.len() {
        return written;
    }
    out[..LENGTH_BYTES].copy_from_slice(&(block.len() as u32).to_be_bytes());
    out[LENGTH_BYTES..][..block.len()].copy_from_slice(block);
    LENGTH_BYTES + block.len()
}

/// Largest packed size of a piece, in bytes.
///
/// # Panics
/// For `Sz3` and `Other`.
pub fn piece_bound(codec: Compression, bytes: usize) -> usize {
    match codec {
        Compression::None => bytes,
        Compression::Bslz4 { .. } | Compression::Lz4 { .. } => LENGTH_BYTES + lz4::bound(bytes),
        Compression::Bszstd { .. } | Compression::Zstd { .. } => LENGTH_BYTES + zstd::bound(bytes),
        Compression::Gzip { .. } => deflate::bound(bytes),
        Compression::Sz3 { .. } | Compression::Other(_) => panic!("{} packs no pieces", codec.name()),
    }
}

/// Joins the packed strips of an image to its chunk without copying them.
pub struct Framing {
    codec: Compression,
    header: [u8; FRAMING_HEADER_MAX],
    header_bytes: usize,
    trailer: [u8; FRAMING_TRAILER_MAX],
    trailer_bytes: usize,
}

/// The longest header: that of a Zstd frame.
const FRAMING_HEADER_MAX: usize = zstd::FRAME_HEADER_BYTES;
/// The longest trailer: the end of a zlib stream, with its checksum.
const FRAMING_TRAILER_MAX: usize = 6;

impl Framing {
    /// Bytes of a chunk besides those of its strips, at most.
    pub const BYTES_MAX: usize = FRAMING_HEADER_MAX + FRAMING_TRAILER_MAX;

    /// For images of `image_bytes` bytes.
    pub fn new(codec: Compression, image_bytes: usize) -> Self {
        let mut framing =
            Self { codec, header: [0; FRAMING_HEADER_MAX], header_bytes: 0, trailer: [0; FRAMING_TRAILER_MAX], trailer_bytes: 0 };
        match codec {
            Compression::None | Compression::Sz3 { .. } | Compression::Other(_) => {}
            Compression::Bslz4 { .. } | Compression::Bszstd { .. } | Compression::Lz4 { .. } => {
                write_header(
                    &mut framing.header,
                    image_bytes as u64,
                    codec.block_bytes().min(lz4_block_max(codec, image_bytes)) as u32,
                );
                framing.header_bytes = HEADER_BYTES;
            }
            Compression::Zstd { .. } => {
                framing.header = zstd::frame_header(image_bytes as u64);
                framing.header_bytes = zstd::FRAME_HEADER_BYTES;
                framing.trailer[..3].copy_from_slice(&zstd::FRAME_END);
                framing.trailer_bytes = 3;
            }
            Compression::Gzip { .. } => {
                framing.header[..2].copy_from_slice(&deflate::STREAM_HEADER);
                framing.header_bytes = 2;
                framing.trailer[..2].copy_from_slice(&deflate::STREAM_END);
                framing.trailer_bytes = 6;
            }
        }
        framing
    }

    /// Fills `parts` with the slices that make the chunk when written one after the other, and returns their number:
    /// two more than strips.
    ///
    /// # Panics
    /// If `parts` has fewer than that.
    pub fn join<'a>(&'a mut self, strips: &[&'a [u8]], parts: &mut [&'a [u8]]) -> usize {
        let inner = &mut parts[1..=strips.len()];
        inner.copy_from_slice(strips);
        if matches!(self.codec, Compression::Gzip { .. }) {
            let mut sum = 1;
            for part in inner {
                let (body, checksum, bytes) = deflate::split(part);
                sum = deflate::adler32_combine(sum, checksum, bytes);
                *part = body;
            }
            self.trailer[2..].copy_from_slice(&sum.to_be_bytes());
        }
        parts[0] = &self.header[..self.header_bytes];
        parts[strips.len() + 1] = &self.trailer[..self.trailer_bytes];
        strips.len() + 2
    }
}

/// The largest block length to state. The LZ4 plugin assumes that a block is no longer than the image.
fn lz4_block_max(codec: Compression, image_bytes: usize) -> usize {
    if matches!(codec, Compression::Lz4 { .. }) { image_bytes } else { usize::MAX }
}

/// Compresses a whole image (its bytes, little-endian) in strips of `strip_bytes` on this thread.
///
/// # Panics
/// If the image is not a whole number of elements, or the strips not of blocks.
pub fn compress(codec: Compression, isa: Isa, element: ElementSize, image: &[u8], strip_bytes: usize) -> Vec<u8> {
    assert_eq!(image.len() % element.bytes(), 0, "an image is a whole number of elements");
    assert_eq!(strip_bytes % codec.block_bytes(), 0, "a strip is whole blocks");
    let piece =
        if matches!(codec, Compression::Zstd { .. } | Compression::Gzip { .. }) { strip_bytes } else { codec.block_bytes() };
    let mut packer = Packer::new(codec, isa, piece);
    let mut out = vec![0; piece_bound(codec, piece)];
    let mut pack = |piece: &[u8]| {
        let written = packer.pack_bytes(element, piece, &mut out);
        out[..written].to_vec()
    };
    let strips: Vec<Vec<u8>> = image.chunks(piece).map(&mut pack).collect();
    let strips: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
    let mut parts = vec![&[][..]; strips.len() + 2];
    let mut framing = Framing::new(codec, image.len());
    framing.join(&strips, &mut parts);
    parts.concat()
}

/// Decodes an untrusted chunk into exactly `out`, the bytes of the image. Allocates at most as much as `out` and the
/// state of a decoder; for `Sz3` several times as much, bounded by the size of the image.
///
/// # Errors
/// Says where the chunk is wrong.
pub fn decompress(codec: Compression, isa: Isa, chunk: &[u8], element: ElementSize, out: &mut [u8]) -> Result<(), ChunkError> {
    let bytes = out.len();
    match codec {
        Compression::None if chunk.len() == bytes => out.copy_from_slice(chunk),
        Compression::None => return Err(ChunkError::WrongLength { found: chunk.len() as u64, expected: bytes }),
        Compression::Bslz4 { .. } => return chunk::decompress_chunk(isa, chunk, element, out),
        Compression::Bszstd { .. } => {
            let mut decoder = zstd::Decoder::new();
            return chunk::decompress_blocks(isa, chunk, element, out, &mut Vec::new(), |block, planes| {
                decoder.decompress(block, planes)
            });
        }
        Compression::Lz4 { .. } => return decompress_lz4(chunk, out),
        Compression::Other(filters) => return filters.decode(chunk, out).map_err(ChunkError::Other),
        Compression::Sz3 { .. } => return crate::sz3::decompress(chunk, element, out),
        Compression::Zstd { .. } if zstd::Decoder::new().decompress(chunk, out) => {}
        Compression::Gzip { .. } if deflate::decompress(chunk, out) => {}
        Compression::Zstd { .. } => return Err(ChunkError::Stream { what: "a Zstd frame", bytes }),
        Compression::Gzip { .. } => return Err(ChunkError::Stream { what: "a zlib stream", bytes }),
    }
    Ok(())
}

/// The chunk of filter 32004, whatever its block length.
pub(crate) fn decompress_lz4(chunk: &[u8], out: &mut [u8]) -> Result<(), ChunkError> {
    let mut cursor = Cursor::new(chunk);
    let block_bytes = cursor.header(out.len())?;
    if block_bytes == 0 || block_bytes as usize > lz4::INPUT_BYTES_MAX {
        return Err(ChunkError::BlockBytes(block_bytes));
    }
    for (index, pixels) in out.chunks_mut(block_bytes as usize).enumerate() {
        let length = cursor.number("the length of a block")? as usize;
        let at = cursor.at();
        let payload = cursor.take(length, "a block")?;
        if length == pixels.len() {
            pixels.copy_from_slice(payload);
        } else if lz4::decompress(payload, pixels) != Some(pixels.len()) {
            return Err(ChunkError::Block { block: index, at, bytes: pixels.len() });
        }
    }
    cursor.end()
}

/// As [`decompress`], with the instructions of this processor, for pixels of `element_bytes` bytes.
///
/// # Errors
/// Says where the chunk is wrong, or that there are no such pixels.
pub fn decode(codec: Compression, chunk: &[u8], element_bytes: usize, out: &mut [u8]) -> Result<(), String> {
    let element = ElementSize::new(element_bytes).ok_or_else(|| format!("pixels of {element_bytes} bytes"))?;
    decompress(codec, Isa::detect(), chunk, element, out).map_err(|error| error.to_string())
}
