//! Packs pixels to the bytes of files and messages. `Lz4`, `BitshuffleLz4` and `BitshuffleZstd` give whole HDF5 chunks,
//! with their header.

use crate::bitshuffle::ElementSize;
use crate::codec::{Framing, Packer, piece_bound};
use crate::isa::Isa;
use crate::lz4;
use konkordia_core::array::{Element, Packing};
use konkordia_core::plan::Compression;

/// Buffers for packing, kept between images: the packer of the packing that was used last, and room for one of its
/// blocks (for a whole image with `Lz4Block`).
pub struct PackScratch {
    packer: Option<(Compression, Isa, Packer)>,
    lz4: Option<lz4::Encoder>,
    room: Vec<u8>,
}

impl PackScratch {
    /// Allocates nothing yet.
    pub const fn new() -> Self {
        Self { packer: None, lz4: None, room: Vec::new() }
    }
}

impl Default for PackScratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends the packed form of an image (its bytes, little-endian) to `out`, with the usual level and block of this
/// packing.
///
/// # Errors
/// As [`compress`], or if one LZ4 block cannot hold the image.
pub fn pack(
    packing: Packing,
    isa: Isa,
    element: Element,
    pixels: &[u8],
    out: &mut Vec<u8>,
    scratch: &mut PackScratch,
) -> Result<(), String> {
    match Compression::of(packing) {
        _ if packing == Packing::Lz4Block => lz4_block(pixels, out, scratch),
        Some(compression) => compress(compression, isa, element, pixels, out, scratch),
        None => Err(unusual(packing)),
    }
}

fn unusual(packing: Packing) -> String {
    format!("images of messages are not packed with {}", packing.name())
}

/// Appends the packed form of an image (its bytes, little-endian) to `out`.
///
/// # Errors
/// A text for users, if the image is not a whole number of elements, the type cannot be bit-transposed, or messages are
/// not packed so.
pub fn compress(
    compression: Compression,
    isa: Isa,
    element: Element,
    pixels: &[u8],
    out: &mut Vec<u8>,
    scratch: &mut PackScratch,
) -> Result<(), String> {
    match compression {
        Compression::None => {
            out.extend_from_slice(pixels);
            return Ok(());
        }
        Compression::Lz4 { .. } | Compression::Bslz4 { .. } | Compression::Bszstd { .. } => {}
        other => return Err(unusual(other.packing())),
    }
    let size = match ElementSize::new(element.bits() as usize / 8) {
        _ if compression.packing() == Packing::Lz4 => ElementSize::One,
        Some(size) if !element.is_packed() => size,
        _ => return Err(format!("pixels of type {} cannot be bit-transposed", element.name())),
    };
    if !pixels.len().is_multiple_of(size.bytes()) {
        return Err(format!("an image of {} bytes is no whole number of pixels of type {}", pixels.len(), element.name()));
    }
    let (piece, bound) = (compression.block_bytes(), piece_bound(compression, compression.block_bytes()));
    let mut framing = Framing::new(compression, pixels.len());
    let mut frame = [&[][..]; 2];
    framing.join(&[], &mut frame);
    out.extend_from_slice(frame[0]);
    if !scratch.packer.as_ref().is_some_and(|(of, on, _)| (*of, *on) == (compression, isa)) {
        scratch.packer = Some((compression, isa, Packer::new(compression, isa, piece)));
    }
    if scratch.room.len() < bound {
        scratch.room.resize(bound, 0);
    }
    let Some((_, _, packer)) = &mut scratch.packer else { unreachable!("it was just made") };
    for block in pixels.chunks(piece) {
        let written = packer.pack_bytes(size, block, &mut scratch.room);
        out.extend_from_slice(&scratch.room[..written]);
    }
    out.extend_from_slice(frame[1]);
    Ok(())
}

fn lz4_block(pixels: &[u8], out: &mut Vec<u8>, scratch: &mut PackScratch) -> Result<(), String> {
    if pixels.len() > lz4::INPUT_BYTES_MAX {
        return Err(format!("an LZ4 block holds at most {} bytes, the image has {}", lz4::INPUT_BYTES_MAX, pixels.len()));
    }
    let bound = lz4::bound(pixels.len());
    if scratch.room.len() < bound {
        scratch.room.resize(bound, 0);
    }
    let written = scratch.lz4.get_or_insert_default().compress(pixels, &mut scratch.room);
    out.extend_from_slice(&scratch.room[..written]);
    Ok(())
}
