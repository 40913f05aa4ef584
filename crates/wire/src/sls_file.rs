//! Binary files of the slsReceiver: one per UDP port. A record is a header, the mask of the packets caught, and the
//! pixels of one frame. Source: slsDetectorPackage 9.2, `sls_receiver_header` and its file names
//! (docs/protocols.md 1.7). All integers are little-endian.
//!
//! Facts relied on: the header is that of the first packet seen, but its packet number is the number of packets caught;
//! bit p % 8 of mask byte p / 8 says that packet p came; pixels of other packets are 0xFF bytes; a new file begins
//! after a fixed number of frames. Older receivers and converters write the header without mask
//! ([`crate::sls_udp::HEADER_BYTES`]), or only frame number and bunch id ([`PLAIN_HEADER_BYTES`]).

use crate::sls_udp::{self, HEADER_BYTES};
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::ledger::Malformed;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::DetectorKind;

/// Bytes of the mask of packets caught: one bit for each of 512.
pub const MASK_BYTES: usize = 64;
/// Bytes before the pixels of a frame: header and mask.
pub const RECORD_HEADER_BYTES: usize = HEADER_BYTES + MASK_BYTES;
/// Bytes before the pixels in files of calibration receivers ("JungfrauDataFile"): frame number and bunch id, 8 bytes
/// each.
pub const PLAIN_HEADER_BYTES: usize = 16;
/// Numbers from here on are not frame numbers: those of an EIGER have 48 bits, and no JUNGFRAU counts that far.
pub const FRAME_NUMBER_END: u64 = 1 << 48;

/// A checked view of what stands before the pixels of a frame: known version and detector, and a possible frame number.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeader<'a> {
    bytes: &'a [u8],
}

impl<'a> RecordHeader<'a> {
    /// Checks `bytes`: a header of [`HEADER_BYTES`], or header and mask of [`RECORD_HEADER_BYTES`].
    ///
    /// # Errors
    /// The first check that fails, in the order length, version (1 and 2 have the same layout), detector type, frame
    /// number (an impossible number is reported as [`Malformed::PacketNumber`]).
    pub fn new_checked(bytes: &'a [u8], kind: DetectorKind) -> Result<Self, Malformed> {
        if bytes.len() != HEADER_BYTES && bytes.len() != RECORD_HEADER_BYTES {
            return Err(Malformed::Length);
        }
        if !(1..=sls_udp::HEADER_VERSION).contains(&sls_udp::version(bytes)) {
            return Err(Malformed::Version);
        }
        if sls_udp::detector_type_of(bytes) != sls_udp::detector_type(kind) {
            return Err(Malformed::DetectorType);
        }
        if sls_udp::frame_header(bytes).frame_number >= FRAME_NUMBER_END {
            return Err(Malformed::PacketNumber);
        }
        Ok(Self { bytes })
    }

    /// The fields that describe the frame.
    pub fn frame_header(&self) -> SlsHeader {
        sls_udp::frame_header(self.bytes)
    }

    /// Packets caught, as the receiver counted them; a duplicate counts too.
    pub fn packets_caught(&self) -> u32 {
        sls_udp::packet_number(self.bytes)
    }

    /// Which of the first `packets` packets came; `None` for a header without mask.
    pub fn bitmap(&self, packets: u32) -> Option<PacketBitmap> {
        let mask = self.bytes.get(HEADER_BYTES..)?;
        (mask.len() == MASK_BYTES).then(|| mask_bitmap(mask, packets))
    }
}

/// Writes what stands before the pixels of a frame: the header that describes it, with the number of packets caught,
/// and their mask.
pub fn write_record_header(
    header: &SlsHeader,
    kind: DetectorKind,
    caught: &PacketBitmap,
    record: &mut [u8; RECORD_HEADER_BYTES],
) {
    // A tile has at most 512 packets, and a bit for each.
    sls_udp::write_header(header, kind, caught.count() as u16, record);
    record[HEADER_BYTES..].copy_from_slice(&mask_bytes(caught));
}

/// The mask of packets caught as it stands in a record: bit p % 8 of byte p / 8 for packet p.
pub fn mask_bytes(caught: &PacketBitmap) -> [u8; MASK_BYTES] {
    let mut mask = [0; MASK_BYTES];
    for (bytes, word) in mask.chunks_exact_mut(8).zip(caught.0) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    mask
}

/// Which of the first `packets` packets a mask of packets caught names. Bytes beyond the end of the mask count as 0.
pub fn mask_bitmap(mask: &[u8], packets: u32) -> PacketBitmap {
    let mut bitmap = PacketBitmap::default();
    let most = packets.min(konkordia_core::MAX_PACKETS_PER_TILE as u32) as u16;
    for packet in (0..most).filter(|p| mask.get(usize::from(*p) / 8).is_some_and(|byte| byte >> (p % 8) & 1 == 1)) {
        bitmap.set(packet);
    }
    bitmap
}

/// Frame number and bunch id of a file of a calibration receiver; `None` if the frame number is impossible.
pub fn plain_header(bytes: &[u8; PLAIN_HEADER_BYTES]) -> Option<SlsHeader> {
    let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let header = SlsHeader { frame_number: number(0), bunch_id: number(8), ..SlsHeader::default() };
    (header.frame_number < FRAME_NUMBER_END).then_some(header)
}

/// The parts of a file name of the receiver: `<stem>_d<port>_f<sub_file>_<acquisition>.<extension>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataFileName {
    /// What the user chose.
    pub stem: String,
    /// Number of the UDP port in the detector: module x interfaces + interface.
    pub port: u32,
    /// Number of the file of this port, from 0. Old releases write it with leading zeros.
    pub sub_file: u64,
    /// Number of the acquisition.
    pub acquisition: u64,
}

/// Ports that a detector may have.
pub const PORTS_MAX: u32 = 1024;

impl DataFileName {
    /// Takes a name with this extension apart; `None` for any other name.
    pub fn parse(name: &str, extension: &str) -> Option<Self> {
        let rest = name.strip_suffix(extension)?.strip_suffix('.')?;
        let (rest, acquisition) = rest.rsplit_once('_')?;
        let (rest, sub_file) = rest.rsplit_once("_f")?;
        let (stem, port) = rest.rsplit_once("_d")?;
        let port = digits(port)?;
        (port < u64::from(PORTS_MAX)).then_some(())?;
        let (sub_file, acquisition) = (digits(sub_file)?, digits(acquisition)?);
        Some(Self { stem: stem.to_owned(), port: port as u32, sub_file, acquisition })
    }

    /// The name with this extension.
    pub fn with_extension(&self, extension: &str) -> String {
        format!("{}_d{}_f{}_{}.{extension}", self.stem, self.port, self.sub_file, self.acquisition)
    }
}

/// Master file name of an acquisition.
pub fn master_name(stem: &str, acquisition: u64, extension: &str) -> String {
    format!("{stem}_master_{acquisition}.{extension}")
}

/// Stem and acquisition of a master file name: `<stem>_master_<acquisition>.<extension>`.
pub fn parse_master_name(name: &str, extension: &str) -> Option<(String, u64)> {
    let rest = name.strip_suffix(extension)?.strip_suffix('.')?;
    let (rest, acquisition) = rest.rsplit_once('_')?;
    Some((rest.strip_suffix("_master")?.to_owned(), digits(acquisition)?))
}

/// Nothing but digits; `u64::from_str` would also take a sign.
fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then_some(())?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(frame: u64, caught: u32) -> Vec<u8> {
        let mut r = vec![0u8; RECORD_HEADER_BYTES];
        r[..8].copy_from_slice(&frame.to_le_bytes());
        r[12..16].copy_from_slice(&caught.to_le_bytes());
        (r[46], r[47]) = (3, 2);
        r
    }

    #[test]
    fn masks_are_read_bit_by_bit_and_cut_to_the_packets() {
        let mut r = record(7, 3);
        (r[48], r[48 + 15], r[48 + 16]) = (0b101, 0x80, 0x01);
        let header = RecordHeader::new_checked(&r, DetectorKind::Jungfrau).unwrap();
        let bitmap = header.bitmap(128).unwrap();
        assert!(bitmap.has(0) && !bitmap.has(1) && bitmap.has(2) && bitmap.has(127));
        assert_eq!((bitmap.count(), header.packets_caught(), header.frame_header().frame_number), (3, 3, 7));
        assert_eq!(header.bitmap(u32::MAX).unwrap().count(), 4);
        assert!(RecordHeader::new_checked(&r[..48], DetectorKind::Jungfrau).unwrap().bitmap(128).is_none());
        assert_eq!(mask_bitmap(&[0xFF], 128).count(), 8);
    }

    #[test]
    fn what_is_written_is_read() {
        let header = SlsHeader { frame_number: 9, bunch_id: 3, daq_info: 1 << 31, module_id: 12, ..SlsHeader::default() };
        let mut caught = PacketBitmap::default();
        for packet in [0, 63, 64, 100, 511] {
            caught.set(packet);
        }
        let mut record = [0xAA; RECORD_HEADER_BYTES];
        write_record_header(&header, DetectorKind::Jungfrau, &caught, &mut record);
        let read = RecordHeader::new_checked(&record, DetectorKind::Jungfrau).unwrap();
        assert_eq!((read.frame_header(), read.packets_caught(), read.bitmap(512)), (header, 5, Some(caught)));
    }

    #[test]
    fn each_check_refuses_what_it_should() {
        let check = |r: &[u8]| RecordHeader::new_checked(r, DetectorKind::Jungfrau).err();
        assert_eq!(check(&record(1, 128)), None);
        assert_eq!(check(&record(1, 128)[..111]), Some(Malformed::Length));
        assert_eq!(check(&record(FRAME_NUMBER_END, 128)), Some(Malformed::PacketNumber));
        let mut r = record(1, 128);
        r[46] = 1;
        assert_eq!(check(&r), Some(Malformed::DetectorType));
        r[47] = 3;
        assert_eq!(check(&r), Some(Malformed::Version));
        let mut plain = [0; PLAIN_HEADER_BYTES];
        (plain[0], plain[8]) = (9, 5);
        let header = plain_header(&plain).unwrap();
        assert_eq!((header.frame_number, header.bunch_id), (9, 5));
        assert_eq!(plain_header(&[0xFF; PLAIN_HEADER_BYTES]), None);
    }

    #[test]
    fn names_are_taken_apart() {
        let name = DataFileName::parse("my_d3_run_d15_f000000000002_7.raw", "raw").unwrap();
        assert_eq!((name.stem.as_str(), name.port, name.sub_file, name.acquisition), ("my_d3_run", 15, 2, 7));
        assert_eq!(name.with_extension("raw"), "my_d3_run_d15_f2_7.raw");
        assert_eq!(parse_master_name(&master_name("a_b", 3, "json"), "json"), Some(("a_b".into(), 3)));
        for other in
            ["run_d0_f0_0.h5", "run_d0_0.raw", "run_dx_f0_0.raw", "run_d0_f0_+1.raw", "run_d9999_f0_0.raw", "raw", ".raw"]
        {
            assert_eq!(DataFileName::parse(other, "raw"), None, "{other}");
        }
        assert_eq!(parse_master_name("run_master_12.json", "json"), Some(("run".into(), 12)));
        assert_eq!(parse_master_name("run_12.json", "json"), None);
    }
}
