//! What the packets of a frame say of it, in the same form for every packet format: the number of the frame, its time,
//! the part of the detector, and a few numbers that the format names ([`FrameColumn`]).

use crate::pixel::Number;
use crate::setup::Port;
use std::borrow::Cow;

/// Most numbers that a format can give to a frame.
pub const FIELDS_MAX: usize = 6;

/// The header of a tile, from its first packet, or from the packet that carries it. Formats that have no such value
/// leave it 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHeader {
    /// Frame number of the detector.
    pub frame_number: u64,
    /// Start of exposure by the clock of the detector, in 100 ns.
    pub timestamp_100ns: u64,
    /// The part of the detector from which the tile comes, as its packets say.
    pub port: Port,
    /// The numbers that the format names, in its order.
    pub fields: [u64; FIELDS_MAX],
}

impl FrameHeader {
    /// The value of a column.
    ///
    /// # Panics
    /// If the column names a field from [`FIELDS_MAX`] on.
    pub fn value(&self, column: ColumnValue) -> u64 {
        match column {
            ColumnValue::Timestamp => self.timestamp_100ns,
            ColumnValue::Field(field) => self.fields[field],
        }
    }
}

/// Where the value of a column comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnValue {
    /// [`FrameHeader::timestamp_100ns`].
    Timestamp,
    /// One of [`FrameHeader::fields`].
    Field(usize),
}

/// Type of the numbers of a per-image column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ColumnType {
    U8,
    U16,
    U32,
    U64,
    I64,
    F64,
}

impl ColumnType {
    /// All types.
    pub const ALL: [Self; 6] = [Self::U8, Self::U16, Self::U32, Self::U64, Self::I64, Self::F64];

    /// Bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Name as numpy spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F64 => "float64",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The number that these bits are.
    pub fn number(self, bits: u64) -> Number {
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Number::Unsigned(bits),
            Self::I64 => Number::Signed(bits.cast_signed()),
            Self::F64 => Number::Float(f64::from_bits(bits)),
        }
    }
}

/// One per-frame column of the file, as a packet format describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameColumn {
    /// Its name: letters, digits and `_`.
    pub name: Cow<'static, str>,
    /// Type of its values.
    pub kind: ColumnType,
    /// Where they come from.
    pub value: ColumnValue,
    /// True: one value for each tile of an image. False: one value, from the first tile of which a packet came.
    pub is_per_tile: bool,
    /// What the values are, with their unit, in one line.
    pub meaning: Cow<'static, str>,
}

impl FrameColumn {
    /// A column with one value for an image.
    pub const fn of_image(name: &'static str, kind: ColumnType, value: ColumnValue, meaning: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), kind, value, is_per_tile: false, meaning: Cow::Borrowed(meaning) }
    }

    /// A column with one value for each tile.
    pub const fn of_tiles(name: &'static str, kind: ColumnType, value: ColumnValue, meaning: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), kind, value, is_per_tile: true, meaning: Cow::Borrowed(meaning) }
    }
}
