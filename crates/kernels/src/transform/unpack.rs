//! Unpacks the bytes of messages and files to pixels. The bytes are untrusted; only the length of the output is
//! trusted.

use crate::bitshuffle::ElementSize;
use crate::isa::Isa;
use crate::transform::packed;
use crate::{byte_offset, chunk, codec, deflate, lz4, zstd};
use konkordia_core::array::{Element, PackedBits, Packing};
use konkordia_core::ports::PixelUnpacker;

/// Buffers for unpacking, kept between images: at most the bytes of one image, and a Zstd decoder once it was needed.
pub struct UnpackScratch {
    isa: Isa,
    planes: Vec<u8>,
    zstd: Option<zstd::Decoder>,
}

impl UnpackScratch {
    /// Allocates nothing yet.
    pub fn new(isa: Isa) -> Self {
        Self { isa, planes: Vec::new(), zstd: None }
    }
}

/// Unpacks `data` into exactly `out`, the bytes of the pixels. Bitshuffle blocks may have any length that the header
/// states and the format allows, elements 1, 2, 4 or 8 bytes.
///
/// # Errors
/// Says where the data are wrong. The content of `out` is then of no use. Nothing is ever read outside `data` or
/// written outside `out`.
pub fn array(packing: Packing, element: Element, data: &[u8], out: &mut [u8], scratch: &mut UnpackScratch) -> Result<(), String> {
    let UnpackScratch { isa, planes, zstd } = scratch;
    let size = || {
        let size = ElementSize::new(element.bits() as usize / 8).filter(|_| !element.is_packed());
        size.ok_or_else(|| format!("pixels of type {} cannot be bit-transposed", element.name()))
    };
    match packing {
        Packing::None if data.len() == out.len() => {
            out.copy_from_slice(data);
            Ok(())
        }
        Packing::None => Err(format!("the image has {} bytes, {} were expected", data.len(), out.len())),
        Packing::Lz4Block if lz4::decompress(data, out) == Some(out.len()) => Ok(()),
        Packing::Lz4Block => Err(format!("the {} bytes are not an LZ4 block of {} bytes", data.len(), out.len())),
        Packing::Lz4 => codec::decompress_lz4(data, out).map_err(|e| e.to_string()),
        Packing::BitshuffleLz4 => chunk::decompress_lz4_blocks(*isa, data, size()?, out, planes).map_err(|e| e.to_string()),
        Packing::BitshuffleZstd => {
            let decoder = zstd.get_or_insert_with(zstd::Decoder::new);
            let decompress = |block: &[u8], planes: &mut [u8]| decoder.decompress(block, planes);
            chunk::decompress_blocks(*isa, data, size()?, out, planes, decompress).map_err(|e| e.to_string())
        }
        Packing::Zstd if zstd.get_or_insert_with(zstd::Decoder::new).decompress(data, out) => Ok(()),
        Packing::Zstd => Err(format!("the {} bytes are not a Zstd frame of {} bytes", data.len(), out.len())),
        Packing::Gzip if deflate::decompress(data, out) => Ok(()),
        Packing::Gzip => Err(format!("the {} bytes are not a zlib stream of {} bytes", data.len(), out.len())),
        Packing::Sz3 => Err("it is packed with SZ3, which only archive copies of files are".into()),
        Packing::Other => Err("it is packed by filters of other programs, which only files are".into()),
    }
}

/// These kernels, those of packed pixels and those of CBF files, with their memory, for decoders and encoders of
/// messages.
pub struct Unpacker {
    scratch: UnpackScratch,
}

impl Unpacker {
    /// For this processor. Allocates nothing yet.
    #[expect(clippy::new_without_default, reason = "it looks at the processor")]
    pub fn new() -> Self {
        Self { scratch: UnpackScratch::new(Isa::detect()) }
    }
}

impl PixelUnpacker for Unpacker {
    fn unpack(&mut self, packing: Packing, element: Element, packed: &[u8], out: &mut [u8]) -> Result<(), String> {
        array(packing, element, packed, out, &mut self.scratch)
    }

    fn whole_bytes(&mut self, bits: PackedBits, packed: &[u8], out: &mut [u8]) {
        packed::unpack(self.scratch.isa, bits, packed, out);
    }

    fn byte_offset(&mut self, packed: &[u8], out: &mut [u8]) -> Result<usize, String> {
        byte_offset::decode(packed, out).map_err(|why| why.to_string())
    }
}
