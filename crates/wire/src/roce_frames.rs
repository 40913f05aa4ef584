//! Frames that a detector writes by RoCEv2 into the pages that it was given: each packet a WRITE_ONLY of UC with an
//! absolute address, the last one of a frame with immediate data and the block of the Holoscan sensor bridge behind the
//! pixels. Sources and layout: docs/protocols.md 10.6.
//!
//! Facts relied on: page p begins at the address of page 0 + p x [`TileFormat::page_bytes`]; packet k of a frame brings
//! the bytes of the page from k x [`TileFormat::payload_bytes`] on; the sender takes the pages in turn and counts all
//! its packets by sequence numbers. A packet says its page only, so its frame follows from the packets before
//! ([`konkordia_core::pages`]).
//!
//! The iCRC is compared if the packets come with their IP and UDP header
//! ([`konkordia_core::tile::RemotePages::has_outer_headers`]), as rings lend them. A UDP socket does not show all that
//! it covers, so it is not compared behind one.

use crate::hsb_metadata::{FrameEnd, ImmediateLayout};
use crate::packet::{Claims, Decoder, Description, TilePacket};
use crate::roce::opcode::{Operation, Part, Transport};
use crate::roce::outer::{NoDatagram, Outer};
use crate::roce::{NoPacket, Packet};
use konkordia_core::frame_header::{ColumnType, ColumnValue, FrameColumn, FrameHeader};
use konkordia_core::ledger::Malformed;
use konkordia_core::pages::PagePlace;
use konkordia_core::setup::{HeaderFields, Port};
use konkordia_core::tile::TileFormat;

/// Byte of a datagram behind the number of the queue pair.
pub const QUEUE_PAIR_END: u32 = 8;

const SENDER_FRAME: usize = 0;
const BYTES_WRITTEN: usize = 1;
const SEQUENCE: usize = 2;

/// The columns of the file.
static COLUMNS: [FrameColumn; 4] = [
    FrameColumn::of_tiles(
        "timestamp",
        ColumnType::U64,
        ColumnValue::Timestamp,
        "begin of the frame by the clock of the sender, in 100 ns, per tile; 0 if its last packet did not arrive",
    ),
    FrameColumn::of_tiles(
        "sender_frame_number",
        ColumnType::U16,
        ColumnValue::Field(SENDER_FRAME),
        "number of the frame by the sender, which wraps at 65536, per tile; 0 if its last packet did not arrive",
    ),
    FrameColumn::of_tiles(
        "bytes_written",
        ColumnType::U64,
        ColumnValue::Field(BYTES_WRITTEN),
        "bytes that the sender wrote of the frame, per tile; 0 if its last packet did not arrive",
    ),
    FrameColumn::of_tiles(
        "packet_sequence_number",
        ColumnType::U32,
        ColumnValue::Field(SEQUENCE),
        "sequence number (24 bits) of the packet that says this of the frame, per tile",
    ),
];

/// The decoder of the receivers.
#[derive(Clone, Copy, Debug)]
pub struct RoceFrames;

impl Decoder for RoceFrames {
    const DESCRIPTION: Description = Description {
        name: "roce",
        // Any detector may be told to write its frames by RDMA; `PacketFormat::of` looks at the tile.
        kinds: &[],
        overhead_bytes: 36,
        version: 0,
        columns: &COLUMNS,
        flags: None,
        has_head: false,
    };

    /// In the order: headers, form of a packet, iCRC, opcode, queue pair and key, page, place in the page, length, end
    /// of the frame.
    #[inline]
    fn decode<'a>(datagram: &'a [u8], tile: &TileFormat) -> Result<TilePacket<'a>, Malformed> {
        let packet = packet_of(datagram, tile)?;
        let opcode = packet.opcode();
        let is_write = opcode.transport() == Transport::UnreliableConnection
            && opcode.operation() == Operation::Write
            && opcode.part() == Part::Only;
        let (true, Some(memory), Some(pages)) = (is_write, packet.remote_memory(), tile.remote) else {
            return Err(Malformed::Version);
        };
        if packet.destination().get() != pages.queue_pair || memory.key != pages.key {
            return Err(Malformed::Access);
        }
        let offset = memory.address.checked_sub(pages.address).ok_or(Malformed::Access)?;
        let (page, within) = (offset / tile.page_bytes(), offset % tile.page_bytes());
        if page >= u64::from(pages.pages) {
            return Err(Malformed::Access);
        }
        let payload_bytes = u64::from(tile.payload_bytes);
        if !within.is_multiple_of(payload_bytes) || within / payload_bytes >= u64::from(tile.packets()) {
            return Err(Malformed::PacketNumber);
        }
        let number = (within / payload_bytes) as u32;
        let payload = packet.payload();
        if payload.len() != tile.payload_bytes_of(number) as usize || memory.length_bytes as usize != payload.len() {
            return Err(Malformed::Length);
        }
        let is_last = number + 1 == tile.packets();
        if is_last != packet.immediate().is_some() {
            return Err(Malformed::PacketNumber);
        }
        let psn = packet.psn().get();
        if is_last && end_of(payload, &packet).is_none_or(|(named, end)| named != page as u16 || end.psn != psn) {
            return Err(Malformed::PacketNumber);
        }
        let place = PagePlace {
            page: page as u16,
            pages: pages.pages,
            sequence: psn,
            packet: number as u16,
            packets: tile.packets() as u16,
        };
        Ok(TilePacket {
            datagram,
            payload,
            frame_number: page,
            number,
            packet: number as u16,
            port: Port::default(),
            brings_header: is_last,
            is_last,
            is_apart: false,
            place: Some(place),
        })
    }

    fn claims(datagram: &[u8]) -> Option<Claims> {
        // No packet begins as an IP packet of UDP does.
        let packet = Packet::new_checked(Outer::of_ip_packet(datagram).map_or(datagram, |(_, packet)| packet)).ok()?;
        let fields = HeaderFields { detector_type: 0, version: 0, packet_number: packet.psn().get() };
        Some(Claims { frame_number: 0, port: Port::default(), fields })
    }

    /// The last packet has all but the number of the frame; the others have nothing.
    fn header(packet: &TilePacket<'_>) -> FrameHeader {
        let mut found = FrameHeader { frame_number: packet.frame_number, ..FrameHeader::default() };
        if packet.is_last
            && let Some(end) = FrameEnd::of_payload(packet.payload)
        {
            let (seconds, nanoseconds) = end.begin;
            found.timestamp_100ns = seconds.wrapping_mul(10_000_000).wrapping_add(u64::from(nanoseconds / 100));
            found.fields[SENDER_FRAME] = end.frame_number.into();
            found.fields[BYTES_WRITTEN] = end.bytes_written;
            found.fields[SEQUENCE] = end.psn.into();
        }
        found
    }
}

/// The packet in a datagram, or in an IP packet whose headers its iCRC covers.
#[inline]
fn packet_of<'a>(datagram: &'a [u8], tile: &TileFormat) -> Result<Packet<'a>, Malformed> {
    let no_packet = |why| match why {
        NoPacket::Length => Malformed::Length,
        NoPacket::Opcode(_) | NoPacket::Version(_) => Malformed::Version,
    };
    if !tile.remote.is_some_and(|pages| pages.has_outer_headers) {
        return Packet::new_checked(datagram).map_err(no_packet);
    }
    let (outer, bytes) = Outer::of_ip_packet(datagram).map_err(|why| match why {
        NoDatagram::Length => Malformed::Length,
        NoDatagram::OtherTraffic | NoDatagram::Fragment => Malformed::Version,
    })?;
    let packet = Packet::new_checked(bytes).map_err(no_packet)?;
    if outer.is_right(&packet) { Ok(packet) } else { Err(Malformed::Icrc) }
}

/// What the end of a frame says: the page by the immediate data, and the block.
fn end_of(payload: &[u8], packet: &Packet<'_>) -> Option<(u16, FrameEnd)> {
    let end = FrameEnd::of_payload(payload)?;
    ImmediateLayout::default().page(packet.immediate()?, &end).map(|page| (page, end))
}

#[cfg(test)]
#[path = "roce/frames_tests.rs"]
mod tests;
