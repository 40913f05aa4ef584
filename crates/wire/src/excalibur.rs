//! EXCALIBUR: the packets in which a FEM (front-end module) sends the counts of its stripe of 8 Medipix3 chips. All
//! integers are little-endian. Sources and layout: docs/protocols.md 9.
//!
//! Facts relied on for packets (9.1), with counters of 12 bits: a frame of a FEM is two subframes of 4 chips each. A
//! datagram is a header of 8 bytes, the subframe counter and the packet word, and then data; the frame is the counter
//! divided by 2. Bits 0 to 29 of the packet word are the number of the packet in its subframe, bit 31 marks packet 0
//! (start of the subframe), bit 30 the last one (end). A subframe is 65 primary packets with 8000 bytes of data and a
//! tail packet with 4296, of which the last 8 are no pixels, but the trailer: the number of the frame, counted from 1.
//! Nothing in a packet says which FEM sent it.

use crate::packet::{Claims, Decoder, Description, TilePacket, array};
use konkordia_core::frame_header::{ColumnType, ColumnValue, FrameColumn, FrameHeader};
use konkordia_core::ledger::Malformed;
use konkordia_core::setup::{HeaderFields, Port};
use konkordia_core::tile::{DetectorKind, TileFormat};

/// Byte ranges of the header of a datagram.
mod field {
    use std::ops::Range;
    pub const SUBFRAME_COUNTER: Range<usize> = 0..4;
    pub const PACKET: Range<usize> = 4..8;
    pub const IS_START: u32 = 1 << 31;
    pub const IS_END: u32 = 1 << 30;
    pub const MARKS: u32 = IS_START | IS_END;
}

/// Bytes of a datagram before its data.
pub const HEADER_BYTES: usize = 8;
/// Bytes of a tail packet behind its pixels.
pub const TRAILER_BYTES: usize = 8;

const TRAILER_FRAME: usize = 0;

/// The column of the file.
static COLUMNS: [FrameColumn; 1] = [FrameColumn::of_tiles(
    "trailer_frame",
    ColumnType::U64,
    ColumnValue::Field(TRAILER_FRAME),
    "number of the frame in the trailer of a subframe, from 1, per tile; 0 if no tail packet arrived",
)];

/// The decoder of the receivers.
#[derive(Clone, Copy, Debug)]
pub struct Excalibur;

impl Decoder for Excalibur {
    const DESCRIPTION: Description = Description {
        name: "excalibur",
        kinds: &[DetectorKind::Excalibur],
        overhead_bytes: HEADER_BYTES as u32,
        version: 0,
        columns: &COLUMNS,
        flags: None,
        has_head: false,
    };

    /// In the order: a header, packet number, marks of start and end, length of this packet.
    #[inline]
    fn decode<'a>(datagram: &'a [u8], tile: &TileFormat) -> Result<TilePacket<'a>, Malformed> {
        let Some((header, data)) = datagram.split_first_chunk::<HEADER_BYTES>() else { return Err(Malformed::Length) };
        let counter = u32::from_le_bytes(array(header, field::SUBFRAME_COUNTER));
        let word = u32::from_le_bytes(array(header, field::PACKET));
        let (in_subframe, marks) = (word & !field::MARKS, word & field::MARKS);
        let last = tile.section_packets() - 1;
        let (is_start, is_end) = (in_subframe == 0, in_subframe == last);
        let expected = if is_start { field::IS_START } else { 0 } | if is_end { field::IS_END } else { 0 };
        // An end at another packet says that the counters have another depth.
        if in_subframe > last || marks != expected {
            return Err(Malformed::PacketNumber);
        }
        let number = counter % tile.sections * tile.section_packets() + in_subframe;
        let pixel_bytes = tile.payload_bytes_of(number) as usize;
        if data.len() != pixel_bytes + if is_end { TRAILER_BYTES } else { 0 } {
            return Err(Malformed::Length);
        }
        Ok(TilePacket {
            datagram,
            payload: &data[..pixel_bytes],
            frame_number: (counter / tile.sections).into(),
            number,
            packet: number as u16,
            port: Port::default(),
            brings_header: is_end,
            is_last: number == tile.packets() - 1,
            is_apart: false,
            place: None,
        })
    }

    fn claims(datagram: &[u8]) -> Option<Claims> {
        let (sections, packets) = const { (TileFormat::excalibur().sections, TileFormat::excalibur().section_packets()) };
        let header = datagram.first_chunk::<HEADER_BYTES>()?;
        let counter = u32::from_le_bytes(array(header, field::SUBFRAME_COUNTER));
        let in_subframe = u32::from_le_bytes(array(header, field::PACKET)) & !field::MARKS;
        let packet_number = in_subframe.saturating_add(counter % sections * packets);
        Some(Claims {
            frame_number: (counter / sections).into(),
            port: Port::default(),
            fields: HeaderFields { detector_type: 0, version: 0, packet_number },
        })
    }

    /// Each tail packet has the trailer of its subframe; that of the frame is that of the newest one that came.
    fn header(packet: &TilePacket<'_>) -> FrameHeader {
        let mut found = FrameHeader { frame_number: packet.frame_number, ..FrameHeader::default() };
        if packet.brings_header
            && let Some(trailer) = packet.datagram.last_chunk::<TRAILER_BYTES>()
        {
            found.fields[TRAILER_FRAME] = u64::from_le_bytes(*trailer);
        }
        found
    }
}
