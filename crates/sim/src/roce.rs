//! Packets of a detector that writes its frames by RoCEv2 into pages of the receiver's memory (docs/protocols.md 10):
//! each a WRITE_ONLY of UC with an absolute address, the last one with immediate data and a block of 128 bytes that
//! says which frame it was. Big-endian, but for the iCRC.

use std::net::SocketAddrV4;

const WRITE_ONLY: u8 = 0x2A;
const WRITE_ONLY_WITH_IMMEDIATE: u8 = 0x2B;
const END_BYTES: usize = 128;

/// A sender, and the memory that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoceModel {
    /// Queue pair of stream 0; those of the others follow.
    pub queue_pair: u32,
    /// Key of the memory.
    pub key: u32,
    /// Address of page 0.
    pub address: u64,
    /// Pages, taken in turn.
    pub pages: u16,
    /// Bytes from one page to the next.
    pub page_bytes: u64,
    /// Payload bytes of every packet but the last.
    pub path_mtu: usize,
    /// Sequence number of the first packet.
    pub first_sequence: u32,
    /// Time from one frame to the next, ns.
    pub period_ns: u64,
}

impl RoceModel {
    /// Packets of a frame of so many bytes.
    pub fn packets(&self, pixel_bytes: usize) -> usize {
        (pixel_bytes + END_BYTES).div_ceil(self.path_mtu)
    }

    /// The UDP payloads of frame `frame` of a stream, as they leave a socket at `from`: identification 0, not to be
    /// cut.
    pub fn datagrams(&self, stream: usize, frame: u64, pixels: &[u8], from: SocketAddrV4, to: SocketAddrV4) -> Vec<Vec<u8>> {
        let packets = self.packets(pixels.len()) as u64;
        let sequence = |packet: u64| ((u64::from(self.first_sequence) + frame * packets + packet) & 0xFF_FFFF) as u32;
        let (page, last) = (frame % u64::from(self.pages), sequence(packets - 1));
        let content = [pixels, &self.end(frame, last, pixels.len())].concat();
        let packet = |(n, payload): (usize, &[u8])| {
            let address = self.address + page * self.page_bytes + (n * self.path_mtu) as u64;
            let immediate = (n as u64 + 1 == packets).then_some(page as u32 | last << 12);
            let mut bytes = self.headers(stream, sequence(n as u64), address, payload.len(), immediate);
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            let icrc = icrc(&bytes, from, to);
            bytes.extend(icrc.to_le_bytes());
            bytes
        };
        content.chunks(self.path_mtu).enumerate().map(packet).collect()
    }

    fn headers(&self, stream: usize, sequence: u32, address: u64, payload_bytes: usize, immediate: Option<u32>) -> Vec<u8> {
        let opcode = if immediate.is_some() { WRITE_ONLY_WITH_IMMEDIATE } else { WRITE_ONLY };
        let pad = (payload_bytes.next_multiple_of(4) - payload_bytes) as u8;
        // MigReq and padding; the default partition.
        let mut bytes = vec![opcode, 0x40 | pad << 4, 0xFF, 0xFF];
        bytes.extend((self.queue_pair + stream as u32).to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(address.to_be_bytes());
        bytes.extend(self.key.to_be_bytes());
        bytes.extend((payload_bytes as u32).to_be_bytes());
        bytes.extend(immediate.map(u32::to_be_bytes).iter().flatten());
        bytes
    }

    /// The block behind the pixels.
    fn end(&self, frame: u64, sequence: u32, bytes: usize) -> [u8; END_BYTES] {
        let mut block = [0; END_BYTES];
        let mut put = |at: usize, field: &[u8]| block[at..at + field.len()].copy_from_slice(field);
        let begin_ns = frame * self.period_ns;
        put(4, &sequence.to_be_bytes());
        put(12, &(begin_ns / 1_000_000_000).to_be_bytes());
        put(20, &((begin_ns % 1_000_000_000) as u32).to_be_bytes());
        put(24, &(bytes as u64).to_be_bytes());
        put(34, &(frame as u16).to_be_bytes());
        put(36, &(begin_ns / 1_000_000_000).to_be_bytes());
        put(44, &((begin_ns % 1_000_000_000) as u32).to_be_bytes());
        block
    }
}

/// The checksum over what no switch may change: fields that they may change count as ones.
fn icrc(packet: &[u8], from: SocketAddrV4, to: SocketAddrV4) -> u32 {
    let udp_bytes = (8 + packet.len() + 4) as u16;
    let mut head = vec![0xFF; 8];
    head.extend([0x45, 0xFF]);
    head.extend((20 + udp_bytes).to_be_bytes());
    // Identification 0, "don't fragment"; time to live and checksum as ones, UDP.
    head.extend([0, 0, 0x40, 0, 0xFF, 17, 0xFF, 0xFF]);
    head.extend(from.ip().octets());
    head.extend(to.ip().octets());
    head.extend(from.port().to_be_bytes());
    head.extend(to.port().to_be_bytes());
    head.extend(udp_bytes.to_be_bytes());
    head.extend([0xFF, 0xFF]);
    head.extend(&packet[..4]);
    head.push(0xFF);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(&packet[5..]);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: RoceModel = RoceModel {
        queue_pair: 0x1234,
        key: 7,
        address: 0x10_0000,
        pages: 4,
        page_bytes: 12288,
        path_mtu: 4096,
        first_sequence: 0xFF_FFFF,
        period_ns: 1_500_000_000,
    };

    #[test]
    fn a_frame_is_written_into_its_page() {
        let (from, to) = ("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
        let pixels: Vec<u8> = (0..8192).map(|n| (n * 7) as u8).collect();
        let packets = MODEL.datagrams(1, 5, &pixels, from, to);
        assert_eq!((packets.len(), MODEL.packets(8192)), (3, 3));
        assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [28 + 4096 + 4, 28 + 4096 + 4, 32 + 128 + 4]);
        // Frame 5 is in page 1; its packets are the 15th to 17th after the first one, which wraps.
        assert_eq!(packets[1][..12], [0x2A, 0x40, 0xFF, 0xFF, 0, 0, 0x12, 0x35, 0, 0, 0, 15]);
        assert_eq!(packets[1][12..28], [0, 0, 0, 0, 0, 0x10, 0x40, 0, 0, 0, 0, 7, 0, 0, 0x10, 0]);
        assert_eq!(packets[1][28..4124], pixels[4096..]);
        assert_eq!((packets[2][0], &packets[2][28..32]), (0x2B, &(1u32 | 16 << 12).to_be_bytes()[..]));
        let block = &packets[2][32..160];
        assert_eq!(
            (&block[4..8], &block[20..24], &block[34..36]),
            (&[0, 0, 0, 16][..], &500_000_000u32.to_be_bytes()[..], &[0, 5][..])
        );
    }
}
