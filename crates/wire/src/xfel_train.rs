//! Trains of European XFEL: the images of all X-ray pulses of a train that one module of a detector took, cut into UDP
//! packets. All integers are little-endian. Sources and layout: docs/protocols.md 7.
//!
//! Facts relied on for packets ([`XfelTrain`], 7.1): a datagram is data and then 8 bytes, a frame number and a packet
//! word; the data of packet p are the bytes of the train from p x 8184 on; only the last packet has fewer than 8184;
//! bit 31 of the packet word marks packet 0, bit 30 the last one, bits 0 to 29 are p. The length of a train is in none
//! of its packets but packet 0, so it follows from the configuration ([`TileFormat::xfel_train`]).
//!
//! Facts relied on for trains ([`Train`], 7.2): a header of 64 bytes, the images, cell ids (u16), pulse ids (u64),
//! states (u16) and lengths (u32) of the images, each list padded to 32 bytes, two sections whose lengths are in the
//! header, and a trailer of 32 bytes. Nothing else tells where a section begins.

use crate::packet::{Claims, Decoder, Description, TilePacket, array};
use konkordia_core::frame_header::{ColumnType, ColumnValue, FrameColumn, FrameHeader};
use konkordia_core::ledger::Malformed;
use konkordia_core::setup::{HeaderFields, Port};
use konkordia_core::tile::{DetectorKind, TileFormat};
use std::fmt;
use std::ops::Range;

/// Byte ranges of the end of a datagram.
mod word {
    use std::ops::Range;
    pub const FRAME_NUMBER: Range<usize> = 0..4;
    pub const PACKET: Range<usize> = 4..8;
    pub const IS_FIRST: u32 = 1 << 31;
    pub const IS_LAST: u32 = 1 << 30;
    pub const MARKS: u32 = IS_FIRST | IS_LAST;
}

/// Byte ranges of the header of a train.
mod header {
    use std::ops::Range;
    pub const MAGIC: Range<usize> = 0..8;
    pub const MAJOR_VERSION: Range<usize> = 8..12;
    pub const MINOR_VERSION: Range<usize> = 12..16;
    pub const TRAIN_ID: Range<usize> = 16..24;
    pub const DATA_ID: Range<usize> = 24..32;
    pub const LINK_ID: Range<usize> = 32..40;
    pub const IMAGE_COUNT: Range<usize> = 40..48;
    pub const DETECTOR_SPECIFIC_BYTES: Range<usize> = 48..52;
    pub const BUILDER_SPECIFIC_BYTES: Range<usize> = 52..56;
}

/// Byte ranges of the trailer of a train.
mod trailer {
    use std::ops::Range;
    pub const CHECKSUM: Range<usize> = 0..16;
    pub const STATUS: Range<usize> = 16..24;
    pub const MAGIC: Range<usize> = 24..32;
}

/// Bytes at the end of a datagram that are not data of the train.
pub const PACKET_TRAILER_BYTES: usize = 8;
/// Data bytes of every packet but the last.
pub const PAYLOAD_BYTES: usize = 8184;
/// Bytes of the header of a train.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the trailer of a train.
pub const TRAILER_BYTES: usize = 32;
/// The header of a train begins with it.
pub const MAGIC_BEGIN: u64 = 0x5854_4446_BEEF_FACE;
/// The trailer of a train ends with it.
pub const MAGIC_END: u64 = 0x5854_4446_DEAD_ABCD;
/// Each list of descriptors is padded to a multiple of this.
const LIST_ALIGNMENT: usize = 32;

const TRAIN_ID: usize = 0;
const DATA_ID: usize = 1;
const LINK_ID: usize = 2;
const IMAGE_COUNT: usize = 3;

const fn column(name: &'static str, field: usize, meaning: &'static str) -> FrameColumn {
    FrameColumn::of_tiles(name, ColumnType::U64, ColumnValue::Field(field), meaning)
}

/// The columns of the file. Each module says them on its own, because modules may disagree.
static COLUMNS: [FrameColumn; 4] = [
    column("train_id", TRAIN_ID, "number of the train, per tile; 0 if the packet that carries it did not arrive"),
    column("data_id", DATA_ID, "data id of the train, per tile"),
    column("link_id", LINK_ID, "link id of the train, per tile: which module and link it came from"),
    column("image_count", IMAGE_COUNT, "images in the train as its header says, per tile"),
];

/// The decoder of the receivers.
#[derive(Clone, Copy, Debug)]
pub struct XfelTrain;

impl Decoder for XfelTrain {
    const DESCRIPTION: Description = Description {
        name: "xfel-train",
        kinds: &[DetectorKind::XfelTrain],
        overhead_bytes: PACKET_TRAILER_BYTES as u32,
        version: 0,
        columns: &COLUMNS,
        flags: None,
        has_head: false,
    };

    /// In the order: length of any packet, packet number, marks of first and last, length of this packet.
    #[inline]
    fn decode<'a>(datagram: &'a [u8], tile: &TileFormat) -> Result<TilePacket<'a>, Malformed> {
        let Some((payload, end)) = datagram.split_last_chunk::<PACKET_TRAILER_BYTES>() else { return Err(Malformed::Length) };
        let word = u32::from_le_bytes(array(end, word::PACKET));
        let (number, marks) = (word & !word::MARKS, word & word::MARKS);
        // Only a packet that is marked as the last one may be short.
        let is_short = payload.len() < tile.payload_bytes as usize && marks & word::IS_LAST == 0;
        if is_short || payload.is_empty() || payload.len() > tile.payload_bytes as usize {
            return Err(Malformed::Length);
        }
        let last = tile.packets() - 1;
        let (is_first, is_last) = (number == 0, number == last);
        let expected = if is_first { word::IS_FIRST } else { 0 } | if is_last { word::IS_LAST } else { 0 };
        // A packet that is marked as the last one, and is not, says that the train has another length.
        if number > last || marks != expected {
            return Err(Malformed::PacketNumber);
        }
        if payload.len() != tile.payload_bytes_of(number) as usize {
            return Err(Malformed::Length);
        }
        Ok(TilePacket {
            datagram,
            payload,
            frame_number: u32::from_le_bytes(array(end, word::FRAME_NUMBER)).into(),
            number,
            packet: number as u16,
            port: Port::default(),
            brings_header: is_first,
            is_last,
            is_apart: false,
            place: None,
        })
    }

    fn claims(datagram: &[u8]) -> Option<Claims> {
        let (_, end) = datagram.split_last_chunk::<PACKET_TRAILER_BYTES>()?;
        let packet_number = u32::from_le_bytes(array(end, word::PACKET)) & !word::MARKS;
        Some(Claims {
            frame_number: u32::from_le_bytes(array(end, word::FRAME_NUMBER)).into(),
            port: Port::default(),
            fields: HeaderFields { detector_type: 0, version: 0, packet_number },
        })
    }

    /// Packet 0 has the header of the train; if its magic number is damaged, it says nothing.
    fn header(packet: &TilePacket<'_>) -> FrameHeader {
        let mut found = FrameHeader { frame_number: packet.frame_number, ..FrameHeader::default() };
        if packet.packet == 0
            && let Ok(head) = TrainHeader::new_checked(packet.payload)
        {
            found.fields[TRAIN_ID] = head.train_id();
            found.fields[DATA_ID] = head.data_id();
            found.fields[LINK_ID] = head.link_id();
            found.fields[IMAGE_COUNT] = head.image_count();
        }
        found
    }
}

/// Why bytes are no train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTrain {
    /// It does not begin with [`MAGIC_BEGIN`].
    Begin,
    /// It does not end with [`MAGIC_END`].
    End,
    /// The header announces another length.
    Length {
        /// Bytes that it has.
        bytes: usize,
        /// Bytes by its header; `usize::MAX` = more than any memory holds.
        announced: usize,
    },
}

impl fmt::Display for NoTrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("it does not begin with the number that marks a train"),
            Self::End => f.write_str("it does not end with the number that marks the end of a train"),
            Self::Length { bytes, announced } => write!(f, "it has {bytes} bytes, but its header announces {announced}"),
        }
    }
}

impl std::error::Error for NoTrain {}

/// A checked view of the header of a train.
#[derive(Clone, Copy, Debug)]
pub struct TrainHeader<'a>(&'a [u8]);

impl<'a> TrainHeader<'a> {
    /// Takes the first bytes of `bytes`.
    ///
    /// # Errors
    /// [`NoTrain::Begin`], also if there are fewer bytes than a header has.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, NoTrain> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(NoTrain::Begin)?;
        let is_train = u64::from_le_bytes(array(bytes, header::MAGIC)) == MAGIC_BEGIN;
        is_train.then_some(Self(bytes)).ok_or(NoTrain::Begin)
    }

    fn wide(&self, range: Range<usize>) -> u64 {
        u64::from_le_bytes(array(self.0, range))
    }

    fn narrow(&self, range: Range<usize>) -> u32 {
        u32::from_le_bytes(array(self.0, range))
    }

    /// Version of the format: major, minor.
    pub fn version(&self) -> (u32, u32) {
        (self.narrow(header::MAJOR_VERSION), self.narrow(header::MINOR_VERSION))
    }

    /// Number of the train.
    pub fn train_id(&self) -> u64 {
        self.wide(header::TRAIN_ID)
    }

    /// Data id.
    pub fn data_id(&self) -> u64 {
        self.wide(header::DATA_ID)
    }

    /// Link id; sources differ in which half is the link of the detector (docs/protocols.md 7.2).
    pub fn link_id(&self) -> u64 {
        self.wide(header::LINK_ID)
    }

    /// Images of the train.
    pub fn image_count(&self) -> u64 {
        self.wide(header::IMAGE_COUNT)
    }

    /// Bytes of the section that belongs to the type of detector.
    pub fn detector_specific_bytes(&self) -> u32 {
        self.narrow(header::DETECTOR_SPECIFIC_BYTES)
    }

    /// Bytes of the section of the train builder.
    pub fn builder_specific_bytes(&self) -> u32 {
        self.narrow(header::BUILDER_SPECIFIC_BYTES)
    }
}

/// What decides where everything lies in a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainShape {
    /// Images.
    pub images: usize,
    /// Bytes of an image.
    pub image_bytes: usize,
    /// Bytes of the section that belongs to the type of detector.
    pub detector_specific_bytes: usize,
    /// Bytes of the section of the train builder.
    pub builder_specific_bytes: usize,
}

impl TrainShape {
    /// What a header announces, with images of `image_bytes`; `None` if the numbers do not fit this machine.
    pub fn announced(head: &TrainHeader<'_>, image_bytes: usize) -> Option<Self> {
        Some(Self {
            images: usize::try_from(head.image_count()).ok()?,
            image_bytes,
            detector_specific_bytes: usize::try_from(head.detector_specific_bytes()).ok()?,
            builder_specific_bytes: usize::try_from(head.builder_specific_bytes()).ok()?,
        })
    }

    /// Where the sections lie; `None` if they do not fit into any memory.
    pub fn sections(&self) -> Option<Sections> {
        let mut at = HEADER_BYTES;
        let mut section = |bytes: Option<usize>| {
            let start = at;
            at = at.checked_add(bytes?)?;
            Some(start)
        };
        let list = |width: usize| self.images.checked_mul(width)?.checked_next_multiple_of(LIST_ALIGNMENT);
        Some(Sections {
            images: section(self.images.checked_mul(self.image_bytes))?,
            cell_ids: section(list(2))?,
            pulse_ids: section(list(8))?,
            states: section(list(2))?,
            lengths: section(list(4))?,
            detector_specific: section(Some(self.detector_specific_bytes))?,
            builder_specific: section(Some(self.builder_specific_bytes))?,
            trailer: section(Some(TRAILER_BYTES))?,
            end: section(Some(0))?,
        })
    }
}

/// Where the sections of a train begin, in bytes from its first one; each ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    /// Images.
    pub images: usize,
    /// Cell ids, u16 each.
    pub cell_ids: usize,
    /// Pulse ids, u64 each.
    pub pulse_ids: usize,
    /// States of the images, u16 each.
    pub states: usize,
    /// Lengths of the images, u32 each.
    pub lengths: usize,
    /// The section that belongs to the type of detector.
    pub detector_specific: usize,
    /// The section of the train builder.
    pub builder_specific: usize,
    /// The trailer.
    pub trailer: usize,
    /// Bytes of the train.
    pub end: usize,
}

/// The numbers of a header that do not follow from the shape of the train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainNumbers {
    /// Version of the format: major, minor.
    pub version: (u32, u32),
    /// Number of the train.
    pub train_id: u64,
    /// Data id.
    pub data_id: u64,
    /// Link id.
    pub link_id: u64,
}

/// Writes the header of a train; the reserved bytes become zero.
///
/// # Panics
/// If `train` has fewer than [`HEADER_BYTES`], or a section has more than `u32::MAX` bytes.
pub fn write_header(train: &mut [u8], numbers: &TrainNumbers, shape: &TrainShape) {
    let head = &mut train[..HEADER_BYTES];
    head.fill(0);
    let specific = |bytes: usize| u32::try_from(bytes).expect("a section of at most 4 GiB").to_le_bytes();
    head[header::MAGIC].copy_from_slice(&MAGIC_BEGIN.to_le_bytes());
    head[header::MAJOR_VERSION].copy_from_slice(&numbers.version.0.to_le_bytes());
    head[header::MINOR_VERSION].copy_from_slice(&numbers.version.1.to_le_bytes());
    head[header::TRAIN_ID].copy_from_slice(&numbers.train_id.to_le_bytes());
    head[header::DATA_ID].copy_from_slice(&numbers.data_id.to_le_bytes());
    head[header::LINK_ID].copy_from_slice(&numbers.link_id.to_le_bytes());
    head[header::IMAGE_COUNT].copy_from_slice(&(shape.images as u64).to_le_bytes());
    head[header::DETECTOR_SPECIFIC_BYTES].copy_from_slice(&specific(shape.detector_specific_bytes));
    head[header::BUILDER_SPECIFIC_BYTES].copy_from_slice(&specific(shape.builder_specific_bytes));
}

/// Writes the last number of the trailer, which marks the end of a train.
///
/// # Panics
/// If `train` has fewer than 8 bytes.
pub fn write_end(train: &mut [u8]) {
    let at = train.len() - 8;
    train[at..].copy_from_slice(&MAGIC_END.to_le_bytes());
}

/// Packets of a train of so many bytes.
pub const fn packets_of(train_bytes: usize) -> usize {
    train_bytes.div_ceil(PAYLOAD_BYTES)
}

/// Replaces `out` by packet `packet` of a train.
///
/// # Panics
/// If the train has no such packet.
pub fn write_packet(train: &[u8], frame_number: u32, packet: usize, out: &mut Vec<u8>) {
    let last = packets_of(train.len()) - 1;
    let data = &train[packet * PAYLOAD_BYTES..train.len().min((packet + 1) * PAYLOAD_BYTES)];
    let marks = if packet == 0 { word::IS_FIRST } else { 0 } | if packet == last { word::IS_LAST } else { 0 };
    out.clear();
    out.extend_from_slice(data);
    out.extend_from_slice(&frame_number.to_le_bytes());
    out.extend_from_slice(&(packet as u32 | marks).to_le_bytes());
}

/// A checked view of a datagram of a train whose length is not known beforehand: only the last packet is short, and the
/// first one alone has the mark of the first.
#[derive(Clone, Copy, Debug)]
pub struct TrainPacket<'a> {
    data: &'a [u8],
    frame_number: u32,
    packet_word: u32,
}

impl<'a> TrainPacket<'a> {
    /// Checks a datagram.
    ///
    /// # Errors
    /// No data, more than [`PAYLOAD_BYTES`] of them, or fewer in a packet that is not the last; then a mark of the
    /// first packet at another one, or none at the first.
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let Some((data, end)) = datagram.split_last_chunk::<PACKET_TRAILER_BYTES>() else { return Err(Malformed::Length) };
        let packet_word = u32::from_le_bytes(array(end, word::PACKET));
        let is_short = data.len() < PAYLOAD_BYTES && packet_word & word::IS_LAST == 0;
        if data.is_empty() || data.len() > PAYLOAD_BYTES || is_short {
            return Err(Malformed::Length);
        }
        let packet = Self { data, frame_number: u32::from_le_bytes(array(end, word::FRAME_NUMBER)), packet_word };
        let is_right = (packet.number() == 0) == (packet_word & word::IS_FIRST != 0);
        is_right.then_some(packet).ok_or(Malformed::PacketNumber)
    }

    /// The data of the train in this packet.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Which train it belongs to; wraps.
    pub fn frame_number(&self) -> u32 {
        self.frame_number
    }

    /// Number of the packet in its train.
    pub fn number(&self) -> usize {
        (self.packet_word & !word::MARKS) as usize
    }

    /// True for the last packet of a train.
    pub fn is_last(&self) -> bool {
        self.packet_word & word::IS_LAST != 0
    }
}

/// A checked view of a whole train: its length is what its header announces, and it begins and ends as a train does.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    bytes: &'a [u8],
    image_bytes: usize,
    sections: Sections,
}

impl<'a> Train<'a> {
    /// Checks `bytes`, a train with images of `image_bytes`.
    ///
    /// # Errors
    /// The first check that fails, in the order begin, length, end.
    pub fn new_checked(bytes: &'a [u8], image_bytes: usize) -> Result<Self, NoTrain> {
        let head = TrainHeader::new_checked(bytes)?;
        let sections = TrainShape::announced(&head, image_bytes).and_then(|shape| shape.sections());
        let announced = sections.map_or(usize::MAX, |sections| sections.end);
        let Some(sections) = sections.filter(|_| announced == bytes.len()) else {
            return Err(NoTrain::Length { bytes: bytes.len(), announced });
        };
        let train = Self { bytes, image_bytes, sections };
        if u64::from_le_bytes(array(train.trailer(), trailer::MAGIC)) != MAGIC_END {
            return Err(NoTrain::End);
        }
        Ok(train)
    }

    /// Where its sections lie.
    pub fn sections(&self) -> Sections {
        self.sections
    }

    /// All images, one after the other.
    pub fn all_images(&self) -> &'a [u8] {
        &self.bytes[self.sections.images..self.sections.cell_ids]
    }

    /// Its header.
    pub fn header(&self) -> TrainHeader<'a> {
        TrainHeader(&self.bytes[..HEADER_BYTES])
    }

    /// Number of its images.
    pub fn images(&self) -> usize {
        // The header was checked against the length of the train, so the number fits.
        self.header().image_count() as usize
    }

    /// The bytes of image `n`; `None` if there is no such image.
    pub fn image(&self, n: usize) -> Option<&'a [u8]> {
        (n < self.images()).then(|| &self.bytes[self.sections.images + n * self.image_bytes..][..self.image_bytes])
    }

    /// Element `n` of a list of numbers of `N` bytes.
    fn element<const N: usize>(&self, list: usize, n: usize) -> Option<[u8; N]> {
        (n < self.images()).then(|| array(self.bytes, list + n * N..list + (n + 1) * N))
    }

    /// The memory cell of image `n`.
    pub fn cell_id(&self, n: usize) -> Option<u16> {
        self.element(self.sections.cell_ids, n).map(u16::from_le_bytes)
    }

    /// The pulse of image `n`.
    pub fn pulse_id(&self, n: usize) -> Option<u64> {
        self.element(self.sections.pulse_ids, n).map(u64::from_le_bytes)
    }

    /// The state of image `n`.
    pub fn status(&self, n: usize) -> Option<u16> {
        self.element(self.sections.states, n).map(u16::from_le_bytes)
    }

    /// The length of image `n` as the train says it.
    pub fn length(&self, n: usize) -> Option<u32> {
        self.element(self.sections.lengths, n).map(u32::from_le_bytes)
    }

    /// The section that belongs to the type of detector.
    pub fn detector_specific(&self) -> &'a [u8] {
        &self.bytes[self.sections.detector_specific..self.sections.builder_specific]
    }

    /// The section of the train builder.
    pub fn builder_specific(&self) -> &'a [u8] {
        &self.bytes[self.sections.builder_specific..self.sections.trailer]
    }

    fn trailer(&self) -> &'a [u8] {
        &self.bytes[self.sections.trailer..self.sections.end]
    }

    /// The checksum; how it is computed is not public, so it is not checked.
    pub fn checksum(&self) -> [u8; 16] {
        array(self.trailer(), trailer::CHECKSUM)
    }

    /// The state of the train.
    pub fn train_status(&self) -> u64 {
        u64::from_le_bytes(array(self.trailer(), trailer::STATUS))
    }
}
