//! Arrays in messages and files: types of elements, shapes, and how the bytes are packed.

use crate::pixel::PixelType;
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use std::fmt;

/// Type of one pixel, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Element {
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    /// Pixels of fewer bits than whole bytes have, one after the other with no bits between them, low bits first
    /// (GenICam's `Mono4p` to `Mono14p`: Pixel Format Naming Convention, "lsb packed"). The last byte is filled up.
    Packed(PackedBits),
}

/// Bits of a pixel that is packed without regard to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum PackedBits {
    Four,
    Ten,
    Twelve,
    Fourteen,
}

impl PackedBits {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Four, Self::Ten, Self::Twelve, Self::Fourteen];

    /// As a number.
    pub const fn count(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Ten => 10,
            Self::Twelve => 12,
            Self::Fourteen => 14,
        }
    }

    /// The type of a pixel when it is unpacked: the smallest unsigned type of whole bytes.
    pub const fn unpacked(self) -> Element {
        match self {
            Self::Four => Element::Uint8,
            Self::Ten | Self::Twelve | Self::Fourteen => Element::Uint16,
        }
    }

    /// Bytes of this many pixels.
    pub const fn bytes(self, pixels: usize) -> usize {
        // In parts of eight pixels, so that no product overflows.
        pixels / 8 * self.count() as usize + (pixels % 8 * self.count() as usize).div_ceil(8)
    }
}

impl Element {
    /// All types.
    pub const ALL: [Self; 14] = [
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Float32,
        Self::Float64,
        Self::Packed(PackedBits::Four),
        Self::Packed(PackedBits::Ten),
        Self::Packed(PackedBits::Twelve),
        Self::Packed(PackedBits::Fourteen),
    ];

    /// Name as numpy and all the formats spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uint8 => "uint8",
            Self::Uint16 => "uint16",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Packed(PackedBits::Four) => "mono4p",
            Self::Packed(PackedBits::Ten) => "mono10p",
            Self::Packed(PackedBits::Twelve) => "mono12p",
            Self::Packed(PackedBits::Fourteen) => "mono14p",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }

    /// The pixel type of images in files; `None` if no file has images of this type.
    pub const fn pixel(self) -> Option<PixelType> {
        match self {
            Self::Int8 => Some(PixelType::Int8),
            Self::Int64 => Some(PixelType::Int64),
            Self::Uint8 => Some(PixelType::Uint8),
            Self::Uint64 => Some(PixelType::Uint64),
            Self::Float64 => Some(PixelType::Float64),
            Self::Int16 => Some(PixelType::Int16),
            Self::Int32 => Some(PixelType::Int32),
            Self::Uint16 => Some(PixelType::Uint16),
            Self::Uint32 => Some(PixelType::Uint32),
            Self::Float32 => Some(PixelType::Float32),
            Self::Packed(_) => None,
        }
    }

    /// Bits of one pixel.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Uint8 | Self::Int8 => 8,
            Self::Packed(bits) => bits.count(),
            Self::Uint16 | Self::Int16 => 16,
            Self::Uint32 | Self::Int32 | Self::Float32 => 32,
            Self::Uint64 | Self::Int64 | Self::Float64 => 64,
        }
    }

    /// True for pixels that do not have whole bytes.
    pub const fn is_packed(self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// The type of the pixels once they have whole bytes.
    pub const fn unpacked(self) -> Self {
        match self {
            Self::Packed(bits) => bits.unpacked(),
            other => other,
        }
    }
}

/// Dimensions of an array, slowest first, 1 to [`Shape::DIMENSIONS_MAX`] of them, none of them 0, with a product that
/// fits 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    dimensions: [u64; Self::DIMENSIONS_MAX],
    count: usize,
}

impl Shape {
    /// Dimensions that an array may have.
    pub const DIMENSIONS_MAX: usize = 6;

    /// The shape with these dimensions, slowest first; `None` if there is no such array.
    pub fn new(dimensions: &[u64]) -> Option<Self> {
        let product = dimensions.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
        let mut all = [0; Self::DIMENSIONS_MAX];
        all.get_mut(..dimensions.len())?.copy_from_slice(dimensions);
        (!dimensions.is_empty() && product? > 0).then_some(Self { dimensions: all, count: dimensions.len() })
    }

    /// The dimensions, slowest first.
    pub fn dimensions(&self) -> &[u64] {
        &self.dimensions[..self.count]
    }

    /// Product of the dimensions, at least 1.
    pub fn elements(&self) -> u64 {
        self.dimensions().iter().product()
    }

    /// The same with the fastest dimension first, which some formats use.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let mut other = *self;
        other.dimensions[..self.count].reverse();
        other
    }
}

impl From<PixelType> for Element {
    fn from(pixel: PixelType) -> Self {
        match pixel {
            PixelType::Int16 => Self::Int16,
            PixelType::Int32 => Self::Int32,
            PixelType::Uint16 => Self::Uint16,
            PixelType::Uint32 => Self::Uint32,
            PixelType::Float32 => Self::Float32,
            PixelType::Int8 => Self::Int8,
            PixelType::Int64 => Self::Int64,
            PixelType::Uint8 => Self::Uint8,
            PixelType::Uint64 => Self::Uint64,
            PixelType::Float64 => Self::Float64,
        }
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Dimensions;
        impl<'de> Visitor<'de> for Dimensions {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "a shape: 1 to {} whole numbers above 0", Shape::DIMENSIONS_MAX)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Shape, A::Error> {
                let (mut dimensions, mut count) = ([0; Shape::DIMENSIONS_MAX], 0);
                while let Some(n) = sequence.next_element::<u64>()? {
                    let Some(place) = dimensions.get_mut(count) else {
                        return Err(serde::de::Error::invalid_length(count + 1, &self));
                    };
                    (*place, count) = (n, count + 1);
                }
                Shape::new(&dimensions[..count])
                    .ok_or_else(|| serde::de::Error::custom(format!("an array cannot have shape {:?}", &dimensions[..count])))
            }
        }
        deserializer.deserialize_seq(Dimensions)
    }
}

macro_rules! packings {
    ($($(#[doc = $doc:literal])+ $packing:ident: $name:literal, $filter:expr;)+) => {
        /// How the bytes of pixels are packed, in messages and in files. What the messages of a protocol can carry is
        /// listed in [`crate::protocol`]; [`crate::plan::Compression`] adds the level or the error bound for packing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Packing {
            $($(#[doc = $doc])+ $packing,)+
        }

        impl Packing {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$packing),+];

            /// Name in configurations and for programs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$packing => $name,)+
                }
            }

            /// The id of the HDF5 filter whose chunks are packed in this way; `None` if there is none.
            pub const fn filter(self) -> Option<i32> {
                match self {
                    $(Self::$packing => $filter,)+
                }
            }
        }
    };
}

packings! {
    /// Not at all.
    None: "none", None;
    /// As by HDF5's LZ4 filter (32004): 12 bytes, then blocks with their lengths.
    Lz4: "lz4", Some(32004);
    /// One LZ4 block and nothing else; DECTRIS Stream V1 calls it "lz4".
    Lz4Block: "lz4-block", None;
    /// As by HDF5's bitshuffle filter (32008) with LZ4: 12 bytes, then blocks with their lengths.
    BitshuffleLz4: "bslz4", Some(32008);
    /// The same with zstd.
    BitshuffleZstd: "bszstd", Some(32008);
    /// One Zstd frame, as by HDF5's filter 32015. No message has it.
    Zstd: "zstd", Some(32015);
    /// One zlib stream, as by HDF5's filter 1. No message has it.
    Gzip: "gzip", Some(1);
    /// One SZ3 stream, as by HDF5's filter 32024, with loss. Only archive copies of files have it.
    Sz3: "sz3", Some(32024);
    /// By filters of HDF5 that this program does not have. Only files of others have it.
    Other: "other", None;
}

impl Packing {
    /// The packing with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|packing| packing.name() == name)
    }
}

/// An array with its bytes as they are packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Dimensions, slowest first.
    pub shape: Shape,
    /// Type of one element.
    pub element: Element,
    /// How each piece is packed.
    pub packing: Packing,
    /// The packed bytes, in pieces of equal length along the first dimension, each packed separately; usually one
    /// piece.
    pub pieces: Vec<Bytes>,
}

impl Array {
    /// Packed size in bytes.
    pub fn packed_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Unpacked size in bytes; `u64::MAX` if the size in bits does not fit 64 bits.
    pub fn unpacked_bytes(&self) -> u64 {
        self.shape.elements().checked_mul(u64::from(self.element.bits())).map_or(u64::MAX, |bits| bits.div_ceil(8))
    }

    /// Dimensions of one piece; `None` if the first dimension is not a multiple of the number of pieces.
    pub fn piece_shape(&self) -> Option<Shape> {
        let (first, rest) = self.shape.dimensions().split_first()?;
        let pieces = self.pieces.len() as u64;
        let is_whole = pieces > 0 && first % pieces == 0;
        is_whole.then(|| Shape::new(&[&[first / pieces], rest].concat())).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_types() {
        for element in Element::ALL {
            assert_eq!(Element::from_name(element.name()), Some(element));
        }
        assert_eq!(Element::from_name("uint128"), None);
    }

    #[test]
    fn names_lead_to_packings_with_a_filter() {
        for &packing in Packing::ALL {
            assert_eq!(Packing::from_name(packing.name()), Some(packing));
            assert_eq!(
                packing.filter().is_none(),
                matches!(packing, Packing::None | Packing::Lz4Block | Packing::Other),
                "{packing:?}"
            );
        }
        assert_eq!(Packing::from_name("lz5"), None);
    }

    #[test]
    fn shapes_that_are_no_arrays_are_refused() {
        assert_eq!(Shape::new(&[2, 3]).unwrap().reversed().dimensions(), [3, 2]);
        assert_eq!(Shape::new(&[1 << 32, 1 << 31]).unwrap().elements(), 1 << 63);
        for none in [&[][..], &[0], &[5, 0], &[1 << 32, 1 << 32], &[1; 7]] {
            assert_eq!(Shape::new(none), None, "{none:?}");
        }
        let read = |text: &str| serde_json::from_str::<Shape>(text).map_err(|e| e.to_string());
        assert_eq!(read("[2,3]"), Ok(Shape::new(&[2, 3]).unwrap()));
        assert!(read("[1,1,1,1,1,1,1]").unwrap_err().contains("invalid length 7"));
        assert!(read("[0]").unwrap_err().contains("cannot have shape [0]"));
        assert!(read("[-1]").is_err() && read("3").is_err() && read("[1.5]").is_err());
    }

    #[test]
    fn a_shape_beyond_all_memory_does_not_wrap() {
        let shape = Shape::new(&[1 << 61]).unwrap();
        let array = Array { shape, element: Element::Uint16, packing: Packing::None, pieces: Vec::new() };
        assert_eq!(array.unpacked_bytes(), u64::MAX);
    }

    #[test]
    fn pieces_divide_the_first_dimension() {
        let array = |pieces| Array {
            shape: Shape::new(&[4, 3]).unwrap(),
            element: Element::Uint8,
            packing: Packing::None,
            pieces: vec![Bytes::new(); pieces],
        };
        assert_eq!(array(2).piece_shape(), Shape::new(&[2, 3]));
        assert_eq!(array(3).piece_shape(), None);
        assert_eq!(array(0).piece_shape(), None);
    }
}
