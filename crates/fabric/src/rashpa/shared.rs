//! What a module tells of its writes into memory that it shares with a receiver: an entry of a queue for each packet,
//! with what the header of RDMA over UDP says. The payload is at its place before its entry can be read. Numbers are
//! little endian:
//!
//! | offset | what |
//! |---|---|
//! | 0 | u16: the local buffer |
//! | 2 | u16: 0 |
//! | 4 | u32: bytes of the payload |
//! | 8 | u64: where it begins in the local buffer, in units |
//! | 16 | u32: number of the packet |
//! | 20 | 12 bytes: 0 |
//!
//! The queue of a module is behind the records of its ring of events, in the same local buffer. A receiver believes an
//! entry no more than a packet: it gets a verdict by the same rules.

use konkordia_wire::rdma_udp::Header;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;
/// Bytes before the first entry: counters of both sides.
const HEAD_BYTES: u64 = 128;
/// Entries of a queue at least. A module whose queue is full loses packets, because it does not wait.
pub const ENTRIES_MIN: u32 = 1 << 14;

/// Bytes of a queue.
pub const fn queue_bytes(entries: u32) -> u64 {
    HEAD_BYTES + entries as u64 * ENTRY_BYTES as u64
}

/// The entry of a packet; a payload has less than 4 GiB.
pub fn entry(header: &Header, payload_bytes: usize) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..2].copy_from_slice(&header.buffer.to_le_bytes());
    entry[4..8].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    entry[8..16].copy_from_slice(&header.offset_units.to_le_bytes());
    entry[16..20].copy_from_slice(&header.sequence.unwrap_or(0).to_le_bytes());
    entry
}

/// What an entry says; any bytes are one.
pub fn read(entry: &[u8; ENTRY_BYTES]) -> (Header, usize) {
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| entry[at + n]));
    let offset_units = u64::from_le_bytes(std::array::from_fn(|n| entry[8 + n]));
    let header = Header { buffer: u16::from_le_bytes([entry[0], entry[1]]), offset_units, sequence: Some(word(16)) };
    (header, word(4) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_was_written() {
        let header = Header { buffer: 0x0201, offset_units: 0x0F0E_0D0C_0B0A_0908, sequence: Some(0x1312_1110) };
        let written = entry(&header, 0x0706_0504);
        let bytes = [1, 2, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19];
        assert_eq!((&written[..20], &written[20..]), (&bytes[..], &[0; 12][..]));
        assert_eq!(read(&written), (header, 0x0706_0504));
        assert_eq!(queue_bytes(2), 128 + 64);
    }
}
