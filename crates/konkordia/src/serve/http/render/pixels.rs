//! Pixels of an image, unpacked.

use crate::serve::http::problem::Problem;
use axum::body::Bytes;
use konkordia_core::array::{Element, Packing, Shape};
use konkordia_core::plan::Compression;
use konkordia_core::series::Array;
use konkordia_kernels::bitshuffle::ElementSize;
use konkordia_kernels::isa::Isa;
use konkordia_kernels::{codec, lz4};

/// Pixels, little-endian, row by row.
pub struct Pixels {
    /// Dimensions, slowest first.
    pub shape: Shape,
    /// Their type; never `Mono12p`.
    pub element: Element,
    /// Their bytes.
    pub data: Bytes,
}

impl Pixels {
    /// Unpacks an array. Its bytes come from elsewhere: they are held against its shape.
    ///
    /// # Errors
    /// If they are not what shape, type and packing say.
    pub fn of(array: &Array) -> Result<Self, Problem> {
        let bad = |why: String| {
            Problem::new("bad_image", format!("the pixels cannot be unpacked: {why}"), "ask for format=raw to look at the bytes")
        };
        let bytes = unpacked_bytes(array).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| bad("they are too many".into()))?;
        let data = match (&array.packing, &array.pieces[..]) {
            (Packing::None, [piece]) if piece.len() == bytes => piece.clone(),
            _ => unpack(array, bytes).map_err(bad)?.into(),
        };
        if array.element == Element::Mono12p {
            return Ok(Self {
                shape: array.shape,
                element: Element::Uint16,
                data: unpacked_12(&data, array.shape.elements()).into(),
            });
        }
        Ok(Self { shape: array.shape, element: array.element, data })
    }

    /// Rows and columns of a picture: all but the last dimension are rows.
    pub fn size(&self) -> (usize, usize) {
        let columns = self.shape.dimensions().last().copied().unwrap_or(1);
        ((self.shape.elements() / columns) as usize, columns as usize)
    }
}

/// Bytes of the pixels when unpacked; `None` if no number holds them.
pub fn unpacked_bytes(array: &Array) -> Option<u64> {
    array.shape.elements().checked_mul(u64::from(array.element.bits())).map(|bits| bits.div_ceil(8))
}

fn unpack(array: &Array, bytes: usize) -> Result<Vec<u8>, String> {
    let pieces = array.pieces.len();
    if pieces == 0 || !bytes.is_multiple_of(pieces) {
        return Err(format!("{bytes} bytes do not come in {pieces} equal pieces"));
    }
    let mut out = vec![0; bytes];
    for (packed, unpacked) in array.pieces.iter().zip(out.chunks_mut((bytes / pieces).max(1))) {
        unpack_piece(array.packing, array.element, packed, unpacked)?;
    }
    Ok(out)
}

fn unpack_piece(packing: Packing, element: Element, packed: &[u8], out: &mut [u8]) -> Result<(), String> {
    let codec = match packing {
        Packing::None => Compression::None,
        Packing::Lz4 => Compression::Lz4,
        Packing::BitshuffleLz4 => Compression::Bslz4,
        // The level is of no account when unpacking.
        Packing::BitshuffleZstd => Compression::Bszstd { level: 1 },
        Packing::Lz4Block => {
            let found = lz4::decompress(packed, out);
            return (found == Some(out.len()))
                .then_some(())
                .ok_or_else(|| format!("this is no LZ4 block of {} bytes", out.len()));
        }
    };
    let size = ElementSize::new(element.bits() as usize / 8).filter(|_| element != Element::Mono12p);
    let is_shuffled = matches!(packing, Packing::BitshuffleLz4 | Packing::BitshuffleZstd);
    let size = match size {
        Some(size) => size,
        None if is_shuffled => return Err(format!("{} cannot be shuffled", element.name())),
        None => ElementSize::One,
    };
    codec::decompress(codec, Isa::detect(), packed, size, out).map_err(|error| error.to_string())
}

/// Two pixels of 12 bits in three bytes, low bits first, as `u16`.
fn unpacked_12(data: &[u8], count: u64) -> Vec<u8> {
    let pairs = data.chunks(3).flat_map(|three| {
        let at = |n: usize| u16::from(three.get(n).copied().unwrap_or(0));
        [at(0) | (at(1) & 0x0F) << 8, at(1) >> 4 | at(2) << 4]
    });
    pairs.take(count as usize).flat_map(u16::to_le_bytes).collect()
}
