//! SLS detector UDP packets: a 48-byte header, then the payload. Source: slsDetectorPackage 9.2, `sls_detector_header`
//! version 2 (field names since 7.0; the layout is that of 4.0). All integers are little-endian.
//!
//! Facts relied on: the datagram is exactly header plus payload; the payload's length, the pixel depth and the number
//! of packets are not in the packet but follow from the detector's configuration ([`TileFormat`]); packet numbers start
//! at 0 on each port and lie in payload order, except that a JUNGFRAU that reads part of its rows numbers their packets
//! as if all were read (docs/protocols.md 1.3); frame numbers start at 1 and EIGER's have 48 bits.

use crate::packet::{Claims, Decoder, Description, TilePacket, array};
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::ledger::Malformed;
use konkordia_core::setup::{HeaderFields, Port};
use konkordia_core::sls_header::{self, SlsHeader};
use konkordia_core::tile::{DetectorKind, TileFormat};

/// Byte ranges of the header.
mod field {
    use std::ops::Range;
    pub const FRAME_NUMBER: Range<usize> = 0..8;
    pub const EXPOSURE_LENGTH: Range<usize> = 8..12;
    pub const PACKET_NUMBER: Range<usize> = 12..16;
    pub const DETECTOR_SPECIFIC_1: Range<usize> = 16..24;
    pub const TIMESTAMP: Range<usize> = 24..32;
    pub const MODULE_ID: Range<usize> = 32..34;
    pub const ROW: Range<usize> = 34..36;
    pub const COLUMN: Range<usize> = 36..38;
    pub const DETECTOR_SPECIFIC_3: Range<usize> = 40..44;
    pub const DETECTOR_TYPE: usize = 46;
    pub const VERSION: usize = 47;
}

/// Where the header says what decides where a packet belongs, for programs that have this as data (crate `fabric`).
pub mod places {
    use super::field;
    use std::ops::Range;
    /// Number of the frame.
    pub const FRAME_NUMBER: Range<usize> = field::FRAME_NUMBER;
    /// Number of the packet.
    pub const PACKET_NUMBER: Range<usize> = field::PACKET_NUMBER;
    /// Type of the detector, one byte ([`super::detector_type`]).
    pub const DETECTOR_TYPE: usize = field::DETECTOR_TYPE;
    /// Version of the header, one byte ([`super::HEADER_VERSION`]).
    pub const VERSION: usize = field::VERSION;
}

/// Bytes of the header.
pub const HEADER_BYTES: usize = 48;
/// The header version that is understood.
pub const HEADER_VERSION: u8 = 2;

/// Value of the header's detector type for `kind`.
pub const fn detector_type(kind: DetectorKind) -> u8 {
    match kind {
        DetectorKind::Eiger => 1,
        DetectorKind::Jungfrau => 3,
        // No SLS detector; 0 is the type of none.
        _ => 0,
    }
}

/// A checked view of one datagram: right length, version and detector, and a packet number inside the tile.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    datagram: &'a [u8],
    packet: u16,
}

impl<'a> Packet<'a> {
    /// Checks `datagram` against the format of the stream that it came from ([`TileFormat::of_tile`]).
    ///
    /// # Errors
    /// The first check that fails, in the order length, version, detector type, packet number.
    #[inline]
    pub fn new_checked(datagram: &'a [u8], format: &TileFormat) -> Result<Self, Malformed> {
        check(datagram, datagram.len(), format).map(|packet| Self { datagram, packet })
    }

    /// Number of the frame.
    #[inline]
    pub fn frame_number(&self) -> u64 {
        u64::from_le_bytes(array(self.datagram, field::FRAME_NUMBER))
    }

    /// Index of the packet in the tile, below the number of its packets.
    #[inline]
    pub fn packet(&self) -> u16 {
        self.packet
    }

    /// Number of the packet as the header says it.
    #[inline]
    pub fn number(&self) -> u32 {
        packet_number(self.datagram)
    }

    /// The detector port from which the packet comes.
    #[inline]
    pub fn port(&self) -> Port {
        port(self.datagram)
    }

    /// All bytes.
    #[inline]
    pub fn datagram(&self) -> &'a [u8] {
        self.datagram
    }

    /// The pixels, as many bytes as the format says.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.datagram[HEADER_BYTES..]
    }

    /// The fields that describe the frame.
    pub fn frame_header(&self) -> SlsHeader {
        frame_header(self.datagram)
    }
}

/// Checks the header at the beginning of `bytes`, of a datagram of `datagram_bytes`; returns the index of the packet in
/// the tile.
#[inline]
fn check(bytes: &[u8], datagram_bytes: usize, format: &TileFormat) -> Result<u16, Malformed> {
    if datagram_bytes != HEADER_BYTES + format.payload_bytes as usize || bytes.len() < HEADER_BYTES {
        return Err(Malformed::Length);
    }
    if bytes[field::VERSION] != HEADER_VERSION {
        return Err(Malformed::Version);
    }
    if bytes[field::DETECTOR_TYPE] != detector_type(format.kind) {
        return Err(Malformed::DetectorType);
    }
    match packet_number(bytes).checked_sub(format.first_packet) {
        Some(packet) if packet < format.packets() => Ok(packet as u16),
        _ => Err(Malformed::PacketNumber),
    }
}

/// The decoder of the receivers.
#[derive(Clone, Copy, Debug)]
pub struct SlsUdp;

impl Decoder for SlsUdp {
    const DESCRIPTION: Description = Description {
        name: "sls-udp",
        kinds: &[DetectorKind::Jungfrau, DetectorKind::Eiger],
        overhead_bytes: HEADER_BYTES as u32,
        version: HEADER_VERSION,
        columns: &sls_header::COLUMNS,
        flags: Some(sls_header::DAQ_INFO),
        has_head: true,
    };

    #[inline]
    fn decode<'a>(datagram: &'a [u8], tile: &TileFormat) -> Result<TilePacket<'a>, Malformed> {
        let packet = Packet::new_checked(datagram, tile)?;
        Ok(TilePacket {
            datagram,
            payload: packet.payload(),
            frame_number: packet.frame_number(),
            number: packet.number(),
            packet: packet.packet(),
            port: packet.port(),
            brings_header: false,
            is_last: u32::from(packet.packet()) + 1 == tile.packets(),
            is_apart: false,
            place: None,
        })
    }

    #[inline]
    fn decode_head<'a>(head: &'a [u8], payload_bytes: usize, tile: &TileFormat) -> Result<TilePacket<'a>, Malformed> {
        // A head of another length would have its payload elsewhere.
        let datagram_bytes = if head.len() == HEADER_BYTES { HEADER_BYTES + payload_bytes } else { 0 };
        let packet = check(head, datagram_bytes, tile)?;
        Ok(TilePacket {
            datagram: head,
            payload: &[],
            frame_number: u64::from_le_bytes(array(head, field::FRAME_NUMBER)),
            number: packet_number(head),
            packet,
            port: port(head),
            brings_header: false,
            is_last: u32::from(packet) + 1 == tile.packets(),
            is_apart: true,
            place: None,
        })
    }

    fn claims(datagram: &[u8]) -> Option<Claims> {
        (datagram.len() >= HEADER_BYTES).then(|| Claims {
            frame_number: u64::from_le_bytes(array(datagram, field::FRAME_NUMBER)),
            port: port(datagram),
            fields: HeaderFields {
                detector_type: detector_type_of(datagram),
                version: version(datagram),
                packet_number: packet_number(datagram),
            },
        })
    }

    fn header(packet: &TilePacket<'_>) -> FrameHeader {
        frame_header(packet.datagram).into()
    }

    fn detector_type(kind: DetectorKind) -> u8 {
        detector_type(kind)
    }
}

fn port(datagram: &[u8]) -> Port {
    let number = |range| u16::from_le_bytes(array(datagram, range));
    Port { row: number(field::ROW), column: number(field::COLUMN), module_id: number(field::MODULE_ID) }
}

/// The fields of a header that describe the frame; `bytes` has at least [`HEADER_BYTES`].
pub(crate) fn frame_header(bytes: &[u8]) -> SlsHeader {
    SlsHeader {
        frame_number: u64::from_le_bytes(array(bytes, field::FRAME_NUMBER)),
        timestamp_100ns: u64::from_le_bytes(array(bytes, field::TIMESTAMP)),
        bunch_id: u64::from_le_bytes(array(bytes, field::DETECTOR_SPECIFIC_1)),
        exposure_length: u32::from_le_bytes(array(bytes, field::EXPOSURE_LENGTH)),
        daq_info: u32::from_le_bytes(array(bytes, field::DETECTOR_SPECIFIC_3)),
        module_id: u16::from_le_bytes(array(bytes, field::MODULE_ID)),
        row: u16::from_le_bytes(array(bytes, field::ROW)),
        column: u16::from_le_bytes(array(bytes, field::COLUMN)),
    }
}

/// Packet number of a header (in files: packets caught).
pub(crate) fn packet_number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(array(bytes, field::PACKET_NUMBER))
}

/// Detector type of a header.
pub(crate) fn detector_type_of(bytes: &[u8]) -> u8 {
    bytes[field::DETECTOR_TYPE]
}

/// Version of a header.
pub(crate) fn version(bytes: &[u8]) -> u8 {
    bytes[field::VERSION]
}

/// Writes the header of the packet with number `packet` of the frame that `header` describes into the first
/// [`HEADER_BYTES`] of `datagram`, as a detector of this kind sends it.
///
/// # Panics
/// If `datagram` is shorter.
pub fn write_header(header: &SlsHeader, kind: DetectorKind, packet: u16, datagram: &mut [u8]) {
    let d = &mut datagram[..HEADER_BYTES];
    d.fill(0);
    d[field::FRAME_NUMBER].copy_from_slice(&header.frame_number.to_le_bytes());
    d[field::EXPOSURE_LENGTH].copy_from_slice(&header.exposure_length.to_le_bytes());
    d[field::PACKET_NUMBER].copy_from_slice(&u32::from(packet).to_le_bytes());
    d[field::DETECTOR_SPECIFIC_1].copy_from_slice(&header.bunch_id.to_le_bytes());
    d[field::TIMESTAMP].copy_from_slice(&header.timestamp_100ns.to_le_bytes());
    d[field::MODULE_ID].copy_from_slice(&header.module_id.to_le_bytes());
    d[field::ROW].copy_from_slice(&header.row.to_le_bytes());
    d[field::COLUMN].copy_from_slice(&header.column.to_le_bytes());
    d[field::DETECTOR_SPECIFIC_3].copy_from_slice(&header.daq_info.to_le_bytes());
    d[field::DETECTOR_TYPE] = detector_type(kind);
    d[field::VERSION] = HEADER_VERSION;
}

#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use super::*;

    fn jungfrau() -> TileFormat {
        TileFormat::jungfrau(1).unwrap()
    }

    fn datagram(packet: u32) -> Vec<u8> {
        let mut d: Vec<u8> = (0..HEADER_BYTES as u8).collect();
        d[12..16].copy_from_slice(&packet.to_le_bytes());
        d[46] = 3;
        d[47] = 2;
        d.resize(HEADER_BYTES + 8192, 0xAB);
        d
    }

    #[test]
    fn fields_are_read_from_their_offsets() {
        let d = datagram(127);
        let p = Packet::new_checked(&d, &jungfrau()).unwrap();
        let h = p.frame_header();
        assert_eq!((p.packet(), p.payload().len(), p.payload()[0]), (127, 8192, 0xAB));
        assert_eq!(h.frame_number, 0x0706_0504_0302_0100);
        assert_eq!(h.exposure_length, 0x0b0a_0908);
        assert_eq!(h.bunch_id, 0x1716_1514_1312_1110);
        assert_eq!(h.timestamp_100ns, 0x1f1e_1d1c_1b1a_1918);
        assert_eq!((h.module_id, h.row, h.column), (0x2120, 0x2322, 0x2524));
        assert_eq!(h.daq_info, 0x2b2a_2928);
    }

    #[test]
    fn what_is_written_is_read() {
        let header = SlsHeader {
            frame_number: 1 << 40,
            timestamp_100ns: 2,
            bunch_id: 3,
            exposure_length: 4,
            daq_info: 5,
            module_id: 6,
            row: 7,
            column: 8,
        };
        let mut d = vec![0xFF; HEADER_BYTES + 8192];
        write_header(&header, DetectorKind::Jungfrau, 127, &mut d);
        let p = Packet::new_checked(&d, &jungfrau()).unwrap();
        assert_eq!((p.frame_header(), p.packet(), p.payload()[0]), (header, 127, 0xFF));
    }

    /// Partial readout of 64 rows: 16 packets around the middle, with the numbers that they have when all rows are
    /// read.
    #[test]
    fn packets_of_partial_readout_keep_their_numbers() {
        let one = jungfrau().with_rows(64).unwrap();
        let index = |number, format: &TileFormat| Packet::new_checked(&datagram(number), format).map(|p| p.packet());
        assert_eq!((index(56, &one), index(71, &one)), (Ok(0), Ok(15)));
        assert_eq!(
            (index(55, &one), index(72, &one), index(0, &one)),
            (Err(Malformed::PacketNumber), Err(Malformed::PacketNumber), Err(Malformed::PacketNumber))
        );
        let two = TileFormat::jungfrau(2).unwrap().with_rows(64).unwrap();
        let (first, second) = (two.of_tile(0), two.of_tile(1));
        assert_eq!((index(56, &first), index(63, &first), index(55, &first)), (Ok(0), Ok(7), Err(Malformed::PacketNumber)));
        assert_eq!((index(0, &second), index(7, &second), index(8, &second)), (Ok(0), Ok(7), Err(Malformed::PacketNumber)));
    }

    #[test]
    fn each_check_refuses_what_it_should() {
        let check = |d: &[u8]| Packet::new_checked(d, &jungfrau()).unwrap_err();
        assert_eq!(check(&[]), Malformed::Length);
        assert_eq!(check(&datagram(0)[..8239]), Malformed::Length);
        assert_eq!(check(&[datagram(0), vec![0]].concat()), Malformed::Length);
        assert_eq!(check(&datagram(128)), Malformed::PacketNumber);
        assert_eq!(check(&datagram(u32::MAX)), Malformed::PacketNumber);
        let mut d = datagram(0);
        d[46] = 1;
        assert_eq!(check(&d), Malformed::DetectorType);
        d[47] = 1;
        assert_eq!(check(&d), Malformed::Version);
    }

    /// A head gives the same answer as the datagram, whatever is damaged.
    #[test]
    fn a_payload_may_lie_apart() {
        let tile = jungfrau();
        let lengths = [8239, 8240, 8241].map(|length| (0, 0, length));
        let changes = [12, 13, 46, 47].map(|at| (at, 0xFF, 8240));
        for (at, change, length) in lengths.into_iter().chain(changes) {
            let mut d = datagram(3);
            d[at] ^= change;
            d.resize(length, 0);
            let (whole, apart) = (SlsUdp::decode(&d, &tile), SlsUdp::decode_head(&d[..48], d.len() - 48, &tile));
            let facts = |p: TilePacket<'_>| {
                let said = (p.frame_number(), p.number(), p.packet(), p.port(), p.is_last(), p.brings_header());
                (said, SlsUdp::header(&p))
            };
            assert_eq!(whole.map(facts), apart.map(facts));
            let (whole, apart) = (whole.map(|p| p.payload().len()), apart.map(|p| (p.payload().len(), p.is_apart())));
            assert_eq!(whole.map(|bytes| (bytes - 8192, true)), apart);
        }
        let d = datagram(3);
        for head in [&d[..0], &d[..47], &d[..49]] {
            assert_eq!(SlsUdp::decode_head(head, d.len() - head.len(), &tile).unwrap_err(), Malformed::Length);
        }
    }

    /// The four ports of the real EIGER capture: every datagram is a packet, in order, with the fields of
    /// docs/protocols.md 1.6.
    #[test]
    fn reads_the_real_eiger_capture() {
        let Some(folder) = skip::data("eiger-udp") else { return };
        let format = TileFormat::eiger(32).unwrap();
        for port in 0..4u16 {
            let file = std::fs::read(folder.join(format!("{}.dat", 50020 + port))).unwrap();
            let records: Vec<&[u8]> = file.chunks(4152).collect();
            assert_eq!(records.len(), 640);
            for (i, record) in records.iter().enumerate() {
                let p = Packet::new_checked(&record[8..], &format).unwrap();
                let h = p.frame_header();
                assert_eq!((usize::from(p.packet()), h.frame_number), (i % 128, 29512 + i as u64 / 128));
                assert_eq!((h.row, h.column), (port / 2, port % 2));
                assert_eq!((h.exposure_length, h.daq_info), (376 * (i as u32 / 128 + 1), 0x6AE1));
            }
        }
    }
}
