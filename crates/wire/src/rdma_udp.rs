//! RDMA over UDP, the protocol that ESRF proposes beside RoCEv2 (EUCALL D5.2, 3.2.7): a datagram that says in the ports
//! of its UDP header where its payload belongs. Both integers of the ports and of the extension are big-endian, as in
//! UDP. Sources and layout: docs/protocols.md 11.
//!
//! Facts relied on (D5.2): the transfer information lies in the ports that UDP has and that the protocol does not need,
//! and names a buffer of the receiver by its id; the receiver has a table of the ids and their physical addresses. The
//! report does not say which bit is where. Ours: the destination port is the id of the buffer (not 0), the source port
//! the low 16 bits of the offset in units of the buffer; an extension of 8 bytes behind the header, where both sides
//! agreed on it, has a sequence number and the next 32 bits of the offset.
//!
//! ```
//! use konkordia_wire::rdma_udp::{Header, Packet, write_header};
//!
//! let header = Header { buffer: 7, offset_units: 0x1_0002, sequence: Some(9) };
//! let mut segment = vec![0; header.bytes() + 3];
//! write_header(&header, 3, &mut segment).expect("it fits");
//! assert_eq!(segment, [0, 2, 0, 7, 0, 19, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0]);
//! let packet = Packet::new_checked(&segment, true).expect("a packet");
//! assert_eq!((packet.header(), packet.payload()), (header, &[0; 3][..]));
//! ```

use crate::packet::array;

/// Byte ranges of the segment: the header of UDP, and the extension.
mod field {
    use std::ops::Range;
    pub const SOURCE_PORT: Range<usize> = 0..2;
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    pub const LENGTH: Range<usize> = 4..6;
    pub const CHECKSUM: Range<usize> = 6..8;
    pub const SEQUENCE: Range<usize> = 8..12;
    pub const OFFSET_HIGH: Range<usize> = 12..16;
}

/// Bytes of the header of UDP.
pub const UDP_HEADER_BYTES: usize = 8;
/// Bytes of the extension.
pub const EXTENSION_BYTES: usize = 8;
/// Bits of the offset in the source port.
const LOW_BITS: u32 = 16;

/// Bytes of a segment before its payload.
pub const fn header_bytes(has_extension: bool) -> usize {
    UDP_HEADER_BYTES + if has_extension { EXTENSION_BYTES } else { 0 }
}

/// Why a segment is no packet of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPacket {
    /// Fewer bytes than its headers have.
    Short,
    /// The length in the header of UDP is more than came, or less than the headers have.
    Length,
    /// Destination port 0, which is no id of a buffer.
    NoBuffer,
    /// No payload: nothing to write.
    Empty,
}

/// Why a header cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoesNotFit {
    /// The offset has more than 16 bits, or with the extension more than 48.
    Offset,
    /// The segment has more bytes than UDP can say (65 535), or no payload.
    Payload,
    /// A buffer has an id from 1 on.
    Buffer,
    /// The place to write to is shorter than the header.
    Place,
}

/// What a packet says beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Id of the buffer of the receiver; not 0.
    pub buffer: u16,
    /// Where the payload begins in the buffer, in units of the buffer.
    pub offset_units: u64,
    /// Number of the packet among those of its sender to this receiver; `None` without the extension.
    pub sequence: Option<u32>,
}

impl Header {
    /// Bytes that it takes before the payload.
    pub const fn bytes(&self) -> usize {
        header_bytes(self.sequence.is_some())
    }
}

/// Writes the header into the first bytes of `segment`; the payload of `payload_bytes` belongs behind it. The checksum
/// is 0, which in UDP over IPv4 says that there is none.
///
/// # Errors
/// The first thing that does not fit; nothing is written then.
pub fn write_header(header: &Header, payload_bytes: usize, segment: &mut [u8]) -> Result<(), DoesNotFit> {
    if header.buffer == 0 {
        return Err(DoesNotFit::Buffer);
    }
    let high = header.offset_units >> LOW_BITS;
    let high_max = if header.sequence.is_some() { u64::from(u32::MAX) } else { 0 };
    if high > high_max {
        return Err(DoesNotFit::Offset);
    }
    let length = u16::try_from(header.bytes() + payload_bytes).ok().filter(|_| payload_bytes > 0);
    let length = length.ok_or(DoesNotFit::Payload)?;
    let head = segment.get_mut(..header.bytes()).ok_or(DoesNotFit::Place)?;
    head[field::SOURCE_PORT].copy_from_slice(&(header.offset_units as u16).to_be_bytes());
    head[field::DESTINATION_PORT].copy_from_slice(&header.buffer.to_be_bytes());
    head[field::LENGTH].copy_from_slice(&length.to_be_bytes());
    head[field::CHECKSUM].fill(0);
    if let Some(sequence) = header.sequence {
        head[field::SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        head[field::OFFSET_HIGH].copy_from_slice(&(high as u32).to_be_bytes());
    }
    Ok(())
}

/// A checked view of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    segment: &'a [u8],
    has_extension: bool,
}

impl<'a> Packet<'a> {
    /// Checks a UDP segment: the header of UDP and all behind it. Bytes behind the length that UDP says are padding of
    /// a short Ethernet frame and are cut off. Whether there is an extension is an agreement of both sides; nothing in
    /// the packet says it. The checksum is left to whoever received the datagram.
    ///
    /// # Errors
    /// The first check that fails, in the order of [`NoPacket`].
    #[inline]
    pub fn new_checked(segment: &'a [u8], has_extension: bool) -> Result<Self, NoPacket> {
        let head_bytes = header_bytes(has_extension);
        if segment.len() < head_bytes {
            return Err(NoPacket::Short);
        }
        let length = usize::from(u16::from_be_bytes(array(segment, field::LENGTH)));
        let segment = segment.get(..length).filter(|_| length >= head_bytes).ok_or(NoPacket::Length)?;
        let packet = Self { segment, has_extension };
        if packet.buffer() == 0 {
            return Err(NoPacket::NoBuffer);
        }
        (length > head_bytes).then_some(packet).ok_or(NoPacket::Empty)
    }

    /// Id of the buffer; not 0.
    #[inline]
    pub fn buffer(&self) -> u16 {
        u16::from_be_bytes(array(self.segment, field::DESTINATION_PORT))
    }

    /// Where the payload begins in the buffer, in units of the buffer.
    #[inline]
    pub fn offset_units(&self) -> u64 {
        let low = u16::from_be_bytes(array(self.segment, field::SOURCE_PORT));
        let high = if self.has_extension { u32::from_be_bytes(array(self.segment, field::OFFSET_HIGH)) } else { 0 };
        u64::from(high) << LOW_BITS | u64::from(low)
    }

    /// Number of the packet; `None` without the extension.
    #[inline]
    pub fn sequence(&self) -> Option<u32> {
        self.has_extension.then(|| u32::from_be_bytes(array(self.segment, field::SEQUENCE)))
    }

    /// All that it says beside its payload.
    pub fn header(&self) -> Header {
        Header { buffer: self.buffer(), offset_units: self.offset_units(), sequence: self.sequence() }
    }

    /// The bytes to write; at least one.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.segment[header_bytes(self.has_extension)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(header: Header, payload: &[u8]) -> Vec<u8> {
        let mut segment = vec![0xEE; header.bytes()];
        write_header(&header, payload.len(), &mut segment).expect("it fits");
        segment.extend(payload);
        segment
    }

    /// The bytes of docs/protocols.md 11.2, written by hand from its table.
    #[test]
    fn the_vectors_of_the_documentation() {
        let plain = Header { buffer: 0x1234, offset_units: 0xABCD, sequence: None };
        assert_eq!(written(plain, &[1, 2]), [0xAB, 0xCD, 0x12, 0x34, 0x00, 0x0A, 0, 0, 1, 2]);
        let extended = Header { buffer: 0x1234, offset_units: 0x89AB_CDEF_0123, sequence: Some(0x0102_0304) };
        let bytes = [0x01, 0x23, 0x12, 0x34, 0x00, 0x11, 0, 0, 1, 2, 3, 4, 0x89, 0xAB, 0xCD, 0xEF, 0x55];
        assert_eq!(written(extended, &[0x55]), bytes);
    }

    #[test]
    fn what_is_no_packet() {
        let segment = written(Header { buffer: 5, offset_units: 3, sequence: Some(1) }, &[9; 4]);
        assert!(Packet::new_checked(&segment, true).is_ok());
        for bytes in 0..16 {
            assert_eq!(Packet::new_checked(&segment[..bytes], true).err(), Some(NoPacket::Short), "{bytes}");
        }
        assert_eq!(Packet::new_checked(&segment[..19], true).err(), Some(NoPacket::Length), "cut");
        let changed = |at: usize, to: u8| {
            let mut segment = segment.clone();
            segment[at] = to;
            Packet::new_checked(&segment, true).err()
        };
        assert_eq!(changed(5, 15), Some(NoPacket::Length), "shorter than its headers");
        assert_eq!(changed(5, 16), Some(NoPacket::Empty));
        assert_eq!(changed(3, 0), Some(NoPacket::NoBuffer));
        let mut padded = segment.clone();
        padded.resize(60, 0);
        assert_eq!(Packet::new_checked(&padded, true).map(|packet| packet.payload().len()), Ok(4));
    }

    #[test]
    fn what_cannot_be_written() {
        let header = Header { buffer: 1, offset_units: 0xFFFF, sequence: None };
        let tried = |header: Header, payload: usize, place: usize| write_header(&header, payload, &mut vec![0; place]);
        assert_eq!(tried(header, 65_527, 8), Ok(()));
        assert_eq!(tried(header, 65_528, 8), Err(DoesNotFit::Payload));
        assert_eq!(tried(header, 0, 8), Err(DoesNotFit::Payload));
        assert_eq!(tried(header, 1, 7), Err(DoesNotFit::Place));
        assert_eq!(tried(Header { offset_units: 0x1_0000, ..header }, 1, 8), Err(DoesNotFit::Offset));
        assert_eq!(tried(Header { buffer: 0, ..header }, 1, 8), Err(DoesNotFit::Buffer));
        let extended = Header { offset_units: (1 << 48) - 1, sequence: Some(0), ..header };
        assert_eq!(tried(extended, 1, 16), Ok(()));
        assert_eq!(tried(Header { offset_units: 1 << 48, ..extended }, 1, 16), Err(DoesNotFit::Offset));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            buffer in 1_u16.., offset in 0_u64..1 << 48, sequence: Option<u32>, payload in prop::collection::vec(any::<u8>(), 1..99)
        ) {
            let offset_units = if sequence.is_some() { offset } else { offset & 0xFFFF };
            let header = Header { buffer, offset_units, sequence };
            let segment = written(header, &payload);
            let packet = Packet::new_checked(&segment, sequence.is_some()).expect("it was written");
            prop_assert_eq!(packet.header(), header);
            prop_assert_eq!(packet.payload(), &payload[..]);
        }
    }
}
