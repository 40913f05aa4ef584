//! How each compression is declared to HDF5, and what its chunks begin with. The caller compresses; this crate only
//! writes the bytes.

use super::spec::Compression;
use konkordia_core::array::Packing;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{BlockSize, DecodeOther, ErrorBound, OtherFilter, OtherFilters};
use std::sync::{Mutex, OnceLock, PoisonError};

const DEFLATE: i32 = id(Packing::Gzip);
/// HDF5 filter id of bitshuffle.
pub(crate) const BITSHUFFLE: i32 = id(Packing::BitshuffleLz4);
pub(crate) const LZ4: i32 = id(Packing::Lz4);
pub(crate) const ZSTD: i32 = id(Packing::Zstd);
pub(crate) const SZ3: i32 = id(Packing::Sz3);

/// The filter id of a packing that has one; checked when this is compiled.
const fn id(packing: Packing) -> i32 {
    packing.filter().expect("it has a filter")
}

const MANDATORY: u32 = 0;
const OPTIONAL: u32 = 1;

/// A filter as the library stores it: id, flags, values.
pub(crate) type Filter = (i32, u32, Vec<u32>);

/// The filter of a compression (docs/formats.md, Compression) for images of (rows, columns); `None` for plain pixels.
pub(crate) fn filter(compression: Compression, pixel: PixelType, shape: [u32; 2]) -> Option<Filter> {
    filter_of(compression, pixel.bytes(), Some(pixel), shape)
}

/// As [`filter`], for pixels of any type; only SZ3 needs the type.
pub(crate) fn filter_of(
    compression: Compression,
    element_bytes: usize,
    pixel: Option<PixelType>,
    shape: [u32; 2],
) -> Option<Filter> {
    let element = element_bytes as u32;
    let block = compression.block_bytes() as u32;
    Some(match compression {
        Compression::None => return None,
        // Bitshuffle 0.4, default block, LZ4.
        Compression::BSLZ4 => (BITSHUFFLE, MANDATORY, vec![0, 4, element, 0, 2]),
        Compression::Bslz4 { .. } => (BITSHUFFLE, MANDATORY, vec![0, 4, element, block / element, 2]),
        Compression::Bszstd { level, .. } => (BITSHUFFLE, MANDATORY, vec![0, 4, element, block / element, 3, level.into()]),
        Compression::Lz4 { .. } => (LZ4, MANDATORY, vec![block]),
        Compression::Zstd { level } => (ZSTD, MANDATORY, vec![level.into()]),
        // As `H5Pset_deflate` does. The linked library is built without zlib, and would refuse its own filter 1 if it
        // were mandatory.
        Compression::Gzip { level } => (DEFLATE, OPTIONAL, vec![level.into()]),
        Compression::Sz3 { bound } => (SZ3, MANDATORY, sz3_values(bound, pixel?, shape)),
        Compression::Other(_) => return None,
    })
}

/// The values as the plugin stores them: dimensions, type, shape, mode (0: absolute bound), and four bounds as two
/// halves each, the high one first.
fn sz3_values(bound: ErrorBound, pixel: PixelType, [rows, columns]: [u32; 2]) -> Vec<u32> {
    let kind = match pixel {
        PixelType::Float32 => 0,
        PixelType::Uint16 => 4,
        PixelType::Int16 => 5,
        PixelType::Uint32 => 6,
        PixelType::Int32 => 7,
        PixelType::Float64 => 1,
        PixelType::Uint8 => 2,
        PixelType::Int8 => 3,
        PixelType::Uint64 => 8,
        PixelType::Int64 => 9,
    };
    let bits = bound.value().to_bits();
    let mut values = vec![2, kind, columns, rows, 0, (bits >> 32) as u32, bits as u32];
    values.resize(13, 0);
    values
}

fn sz3_bound(values: &[u32]) -> Option<ErrorBound> {
    let [2, _, _, _, 0, high, low, ..] = values else { return None };
    ErrorBound::new(f64::from_bits(u64::from(*high) << 32 | u64::from(*low)))
}

/// The compression of a data set with these filters, if this program knows it. Whichever program wrote it, the values
/// only give a level and a block; a block that this program would not choose is taken for the usual one, since readers
/// take the size from the chunk.
pub(crate) fn compression(filters: &[Filter]) -> Option<Compression> {
    let level = |c: Compression, level: Option<&u32>| level.and_then(|l| c.with_level((*l).try_into().ok()?)).unwrap_or(c);
    let block = |c: Compression, bytes: usize| BlockSize::new(bytes).and_then(|block| c.with_block(block)).unwrap_or(c);
    // 0 elements: what the bitshuffle library chooses.
    let of_elements = |values: &[u32]| match values {
        [_, _, _, 0, ..] => BlockSize::KIB_8.bytes(),
        [_, _, element, elements, ..] => (*element as usize).saturating_mul(*elements as usize),
        _ => 0,
    };
    match filters {
        [] => Some(Compression::None),
        [(BITSHUFFLE, _, values)] if values.get(4) == Some(&2) => Some(block(Compression::BSLZ4, of_elements(values))),
        [(BITSHUFFLE, _, values)] if values.get(4) == Some(&3) => {
            Some(block(level(Compression::BSZSTD, values.get(5)), of_elements(values)))
        }
        [(LZ4, _, values)] => Some(block(Compression::LZ4, values.first().map_or(0, |bytes| *bytes as usize))),
        [(ZSTD, _, values)] => Some(level(Compression::Zstd { level: 1 }, values.first())),
        [(DEFLATE, _, values)] => Some(level(Compression::Gzip { level: 1 }, values.first())),
        [(SZ3, _, values)] => sz3_bound(values).map(|bound| Compression::Sz3 { bound }),
        _ => other(filters),
    }
}

/// Who decodes chunks of filters that this program does not have; set at most once.
static DECODE_OTHER: OnceLock<DecodeOther> = OnceLock::new();
/// The lists of such filters that were seen: they are few, and are kept as long as the program runs.
static SEEN: Mutex<Vec<&'static [OtherFilter]>> = Mutex::new(Vec::new());
/// Lists that are kept at most, so that no file makes them grow without bound.
const SEEN_MAX: usize = 1000;

/// From here on, files whose filters this program does not have are read too, and `decode` decodes their chunks. The
/// first call counts.
pub fn decode_others_by(decode: DecodeOther) {
    DECODE_OTHER.get_or_init(|| decode);
}

fn other(filters: &[Filter]) -> Option<Compression> {
    let decode = *DECODE_OTHER.get()?;
    let filters: Vec<OtherFilter> =
        filters.iter().map(|(id, _, values)| OtherFilter { id: *id, values: values.clone() }).collect();
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = seen.iter().copied().find(|known| *known == filters.as_slice());
    let kept = match known {
        Some(known) => known,
        None if seen.len() < SEEN_MAX => {
            let kept: &'static [OtherFilter] = Vec::leak(filters);
            seen.push(kept);
            kept
        }
        None => return None,
    };
    Some(Compression::Other(OtherFilters::new(kept, decode)))
}

/// Bytes of a chunk that [`begins_right`] examines.
pub(crate) const HEAD_BYTES: usize = 13;

/// Whether a chunk of `bytes` bytes that begins with `head` (up to [`HEAD_BYTES`]) can be an image of `image_bytes`.
pub(crate) fn begins_right(compression: Compression, image_bytes: usize, bytes: usize, head: &[u8]) -> bool {
    match compression {
        Compression::None => bytes == image_bytes,
        Compression::Bslz4 { .. } | Compression::Bszstd { .. } | Compression::Lz4 { .. } => {
            bytes >= 12 && head.starts_with(&(image_bytes as u64).to_be_bytes())
        }
        // A frame header with the size of the content as 64 bits.
        Compression::Zstd { .. } => {
            bytes >= 16
                && head.starts_with(&[0x28, 0xB5, 0x2F, 0xFD, 0xE0])
                && head[5..].starts_with(&(image_bytes as u64).to_le_bytes())
        }
        Compression::Gzip { .. } => bytes >= 8 && head.starts_with(&[0x78, 0x01]),
        // The length of a body and a frame of Zstd.
        Compression::Other(_) => bytes > 0,
        Compression::Sz3 { .. } => bytes >= 12 && head[8..].starts_with(&[0x28, 0xB5, 0x2F, 0xFD]),
    }
}
