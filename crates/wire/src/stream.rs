//! What the message formats have in common: types of pixels, shapes, how pixels are packed, the bounds that a caller
//! sets, and the error of a refused message. Each format has a file of its own beside this one.
//!
//! Facts relied on: bitshuffle with LZ4 or zstd begins with the unpacked bytes as u64 and the bytes of a block as u32,
//! both big-endian, and a block is a whole number of eight elements; HDF5's LZ4 has the same 12 bytes with a block of
//! any size; DECTRIS Stream V1 sends LZ4 as one bare block.

pub use konkordia_core::array::{Element, Packing, Shape};
use serde::Deserialize;
use std::fmt;

/// Limits of a message. Every size that a message announces is checked against them before memory is allocated for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a JSON part or an appendix. Free-form JSON takes up to about 50 times its bytes in memory once it is
    /// parsed.
    pub text_bytes_max: usize,
    /// Bytes of an image when unpacked, all channels together.
    pub image_bytes_max: u64,
    /// Bytes of one table (flat field, mask, count rate correction) when unpacked.
    pub table_bytes_max: u64,
    /// Channels of an image, and parts of an image that comes in pieces.
    pub channels_max: usize,
}

impl Default for Bounds {
    /// 1 MiB of text, images and tables of 1 GiB, 16 channels.
    fn default() -> Self {
        Self { text_bytes_max: 1 << 20, image_bytes_max: 1 << 30, table_bytes_max: 1 << 30, channels_max: 16 }
    }
}

/// Why a message is refused, as a text for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The part that is wrong, from 0; the number of parts if one is missing.
    pub part: usize,
    /// What is wrong with it.
    pub why: String,
}

impl Refusal {
    /// A refusal of part `part` (from 0).
    pub fn new(part: usize, why: impl Into<String>) -> Self {
        Self { part, why: why.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "part {} of the message: {}", self.part + 1, self.why)
    }
}

impl std::error::Error for Refusal {}

/// Bytes before the first block in the packings that have a header.
pub const PACKING_HEADER_BYTES: usize = 12;

/// Pixels of one image, channel or table, as they came. There are as many bytes as the shape requires; packed bytes
/// announce this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pixels<'a> {
    shape: Shape,
    element: Element,
    packing: Packing,
    data: &'a [u8],
    header: Option<[u8; PACKING_HEADER_BYTES]>,
}

impl<'a> Pixels<'a> {
    /// Checks the bytes against the shape, and the unpacked size against `bytes_max`. The contents of packed blocks are
    /// not checked.
    ///
    /// # Errors
    /// A text for the user: too large, not as many bytes as the shape has, or packed bytes that announce another size
    /// or block size.
    pub fn new_checked(shape: Shape, element: Element, packing: Packing, data: &'a [u8], bytes_max: u64) -> Result<Self, String> {
        let is = || format!("{} of shape {:?}", element.name(), shape.dimensions());
        let bytes = unpacked_bytes(shape, element, bytes_max)?;
        match packing {
            Packing::None if data.len() as u64 != bytes => Err(format!("{} has {bytes} bytes, but {} came", is(), data.len())),
            Packing::Lz4Block if data.is_empty() => Err(format!("{} cannot be packed into 0 bytes", is())),
            Packing::None | Packing::Lz4Block => Ok(()),
            Packing::Lz4 | Packing::BitshuffleLz4 | Packing::BitshuffleZstd => check_header(data, bytes, element, packing),
            Packing::Zstd | Packing::Gzip | Packing::Sz3 | Packing::Other => {
                Err(format!("{} is packed in a way that no message has", is()))
            }
        }?;
        Ok(Self { shape, element, packing, data, header: None })
    }

    /// As [`Self::new_checked`], for bytes of [`Packing::BitshuffleLz4`] that may lack the header of 12 bytes, as those
    /// of Python's `bitshuffle.compress_lz4` do. They are recognised by the lengths of the blocks, which must lead to
    /// the end of the bytes.
    ///
    /// # Errors
    /// Those of [`Self::new_checked`], if the bytes have neither form.
    pub fn new_bare_or_checked(shape: Shape, element: Element, data: &'a [u8], bytes_max: u64) -> Result<Self, String> {
        let packing = Packing::BitshuffleLz4;
        let as_it_is = Self::new_checked(shape, element, packing, data, bytes_max);
        let bytes = unpacked_bytes(shape, element, bytes_max)?;
        if as_it_is.is_ok() || !are_bare_blocks(data, bytes, element) {
            return as_it_is;
        }
        let mut header = [0; PACKING_HEADER_BYTES];
        header[..8].copy_from_slice(&bytes.to_be_bytes());
        header[8..].copy_from_slice(&BARE_BLOCK_BYTES.to_be_bytes());
        Ok(Self { shape, element, packing, data, header: Some(header) })
    }

    /// The header that [`Self::data`] lacks, to be put in front of it; `None` if it lacks none.
    pub fn lacking_header(&self) -> Option<[u8; PACKING_HEADER_BYTES]> {
        self.header
    }

    /// Dimensions, slowest first.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Type of one pixel.
    pub fn element(&self) -> Element {
        self.element
    }

    /// How the bytes are packed.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// The bytes as they came.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Bytes when unpacked.
    pub fn unpacked_bytes(&self) -> u64 {
        (self.shape.elements() * u64::from(self.element.bits())).div_ceil(8)
    }
}

/// Bytes of an array when unpacked, if they are no more than `bytes_max`.
pub(crate) fn unpacked_bytes(shape: Shape, element: Element, bytes_max: u64) -> Result<u64, String> {
    let bytes = shape.elements().checked_mul(u64::from(element.bits())).map(|bits| bits.div_ceil(8));
    bytes.filter(|bytes| *bytes <= bytes_max).ok_or_else(|| {
        let is = format!("{} of shape {:?}", element.name(), shape.dimensions());
        format!("{is} has more than the {bytes_max} bytes that are accepted")
    })
}

/// Default block size of bitshuffle in bytes; it holds whole groups of eight elements of 1, 2, 4 and 8 bytes.
const BARE_BLOCK_BYTES: u32 = 8192;

/// True if `data` holds the blocks of `bytes` bytes of such elements, each after its length, and then the leftover
/// elements unpacked.
fn are_bare_blocks(data: &[u8], bytes: u64, element: Element) -> bool {
    let (group, mut left, mut rest) = (u64::from(element.bits()), bytes, data);
    // Without a block the form cannot be recognised.
    if element.is_packed() || bytes < group {
        return false;
    }
    while left >= group {
        let block = left.min(u64::from(BARE_BLOCK_BYTES)) / group * group;
        let Some((length, behind)) = rest.split_first_chunk() else { return false };
        let length = u32::from_be_bytes(*length);
        // The largest size that LZ4 makes of a block.
        if length == 0 || u64::from(length) > block + block / 255 + 16 {
            return false;
        }
        let Some(behind) = behind.get(length as usize..) else { return false };
        (left, rest) = (left - block, behind);
    }
    rest.len() as u64 == left
}

fn check_header(data: &[u8], bytes: u64, element: Element, packing: Packing) -> Result<(), String> {
    let (Some(announced), Some(block)) = (data.first_chunk(), data.get(8..).and_then(|rest| rest.first_chunk())) else {
        return Err(format!("{} packed bytes are fewer than their {PACKING_HEADER_BYTES} bytes of header", data.len()));
    };
    let (announced, block) = (u64::from_be_bytes(*announced), u32::from_be_bytes(*block));
    if announced != bytes {
        return Err(format!("the packed bytes announce {announced} bytes; {bytes} follow from shape and type"));
    }
    let step = if packing == Packing::Lz4 { 1 } else { element.bits() };
    if element.is_packed() || block == 0 || block % step != 0 {
        return Err(format!("the packed bytes announce blocks of {block} bytes, not a valid block size for {}", element.name()));
    }
    Ok(())
}

/// Part `part` as JSON.
pub(crate) fn json<'a, T: Deserialize<'a>>(parts: &[&'a [u8]], part: usize, bounds: &Bounds) -> Result<T, Refusal> {
    let text = text(parts, part, bounds)?;
    serde_json::from_slice(text).map_err(|why| Refusal::new(part, format!("it is not the JSON that was expected: {why}")))
}

/// Part `part`, if it is no longer than texts may be.
pub(crate) fn text<'a>(parts: &[&'a [u8]], part: usize, bounds: &Bounds) -> Result<&'a [u8], Refusal> {
    let text = *parts.get(part).ok_or_else(|| Refusal::new(part, format!("it is missing; only {} parts came", parts.len())))?;
    if text.len() > bounds.text_bytes_max {
        let most = bounds.text_bytes_max;
        return Err(Refusal::new(part, format!("it has {} bytes; a text may have {most}", text.len())));
    }
    Ok(text)
}

/// Refuses a message that does not have `least` to `most` parts.
pub(crate) fn part_count(parts: &[&[u8]], least: usize, most: usize, what: &str) -> Result<(), Refusal> {
    if (least..=most).contains(&parts.len()) {
        return Ok(());
    }
    let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
    Err(Refusal::new(parts.len().min(most), format!("{what} has {wanted} parts, but {} came", parts.len())))
}

/// A text from a message, escaped and shortened for an error.
pub(crate) fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(40).collect();
    format!("'{}'{}", cut.escape_debug(), if cut.len() < text.len() { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::array::PackedBits;

    #[test]
    fn bytes_are_held_against_the_shape() {
        let shape = Shape::new(&[3, 5]).unwrap();
        let check =
            |element, packing, data: &[u8]| Pixels::new_checked(shape, element, packing, data, 60).map(|p| p.unpacked_bytes());
        assert_eq!(check(Element::Uint32, Packing::None, &[0; 60]), Ok(60));
        assert_eq!(check(Element::Packed(PackedBits::Twelve), Packing::None, &[0; 23]), Ok(23));
        assert!(check(Element::Uint64, Packing::None, &[0; 120]).unwrap_err().contains("more than the 60 bytes"));
        assert!(check(Element::Uint16, Packing::None, &[0; 60]).unwrap_err().contains("has 30 bytes, but 60 came"));
        assert!(check(Element::Uint16, Packing::Lz4Block, &[]).is_err());
        let header = |bytes: u64, block: u32| [&bytes.to_be_bytes()[..], &block.to_be_bytes()].concat();
        assert_eq!(check(Element::Uint16, Packing::BitshuffleLz4, &header(30, 16)), Ok(30));
        assert_eq!(check(Element::Uint16, Packing::Lz4, &header(30, 30)), Ok(30));
        for (bytes, block) in [(31, 16), (30, 0), (30, 30), (30, 8)] {
            assert!(check(Element::Uint16, Packing::BitshuffleZstd, &header(bytes, block)).is_err());
        }
        assert!(check(Element::Uint16, Packing::Lz4, &header(30, 30)[..11]).unwrap_err().contains("11 packed bytes"));
        let huge = Shape::new(&[u64::MAX]).unwrap();
        assert!(Pixels::new_checked(huge, Element::Uint8, Packing::None, &[], u64::MAX).is_err());
    }

    #[test]
    fn quotes_are_short_and_plain() {
        assert_eq!(quoted("a\n"), "'a\\n'");
        assert_eq!(quoted(&"ä".repeat(50)), format!("'{}'...", "ä".repeat(40)));
    }
}
