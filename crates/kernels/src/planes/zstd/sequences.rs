//! The matches of a block (RFC 8878, 3.1.1.3.2): with the distributions that every decoder knows, and all of one
//! distance.

use super::bits::BitWriter;
use super::fse::Table;

/// Shares of the codes of literal lengths and of match lengths, in 1/64 (RFC 8878, 3.1.1.3.2.2.1 and 2).
const LITERALS_SHARES: [i16; 36] =
    [4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1];
const MATCH_SHARES: [i16; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];
const SHARES_LOG: u32 = 6;

/// Codes that stand for several lengths: the first length, and the bits that say which one it is.
const LONG_LITERALS: [(u32, u32); 20] = [
    (16, 1),
    (18, 1),
    (20, 1),
    (22, 1),
    (24, 2),
    (28, 2),
    (32, 3),
    (40, 3),
    (48, 4),
    (64, 6),
    (128, 7),
    (256, 8),
    (512, 9),
    (1024, 10),
    (2048, 11),
    (4096, 12),
    (8192, 13),
    (16384, 14),
    (32768, 15),
    (65536, 16),
];
const LONG_MATCHES: [(u32, u32); 21] = [
    (35, 1),
    (37, 1),
    (39, 1),
    (41, 1),
    (43, 2),
    (47, 2),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 5),
    (131, 7),
    (259, 8),
    (515, 9),
    (1027, 10),
    (2051, 11),
    (4099, 12),
    (8195, 13),
    (16387, 14),
    (32771, 15),
    (65539, 16),
];
/// Shortest match of the format.
const MATCH_BYTES_MIN: u32 = 3;

/// Some literals, and the match behind them.
#[derive(Clone, Copy)]
pub struct Sequence {
    pub literals: u32,
    pub match_bytes: u32,
}

/// A length: its code, and the bits that follow.
struct Length {
    code: u8,
    extra: u64,
    bits: u32,
}

impl Length {
    fn new(value: u32, least: u32, long: &[(u32, u32)]) -> Self {
        if value < long[0].0 {
            return Self { code: (value - least) as u8, extra: 0, bits: 0 };
        }
        let which = long.partition_point(|(first, _)| *first <= value) - 1;
        let (first, bits) = long[which];
        Self { code: (long[0].0 - least) as u8 + which as u8, extra: u64::from(value - first), bits }
    }
}

/// Writes the sequences of blocks.
pub struct SequenceWriter {
    literals: Table,
    matches: Table,
}

impl SequenceWriter {
    /// With the tables that every decoder knows.
    pub fn new() -> Self {
        Self { literals: Table::new(&LITERALS_SHARES, SHARES_LOG), matches: Table::new(&MATCH_SHARES, SHARES_LOG) }
    }

    /// Room that so many sequences need, in bytes.
    pub fn room_bytes(sequences: usize) -> usize {
        // Two states, the bits of both lengths and of the distance.
        16 + BitWriter::SPARE_BYTES + sequences * (2 * SHARES_LOG as usize + 3 * 16 + 2).div_ceil(8)
    }

    /// Writes the sequences section. The offset value of the distance is the same for all.
    pub fn write(&self, sequences: &[Sequence], offset_value: u32, out: &mut [u8]) -> usize {
        let count = sequences.len();
        let head = if count < 128 { 1 } else { 2 };
        let number = if count < 128 { [count as u8, 0] } else { [(count >> 8) as u8 + 128, count as u8] };
        out[..head].copy_from_slice(&number[..head]);
        let Some((last, others)) = sequences.split_last() else { return head };
        // Known distributions of the lengths; one code for all distances.
        let offset_bits = offset_value.ilog2();
        let offset_extra = u64::from(offset_value - (1 << offset_bits));
        out[head..head + 2].copy_from_slice(&[1 << 4, offset_bits as u8]);
        let mut bits = BitWriter::new(&mut out[head + 2..]);
        let lengths = |sequence: &Sequence| {
            (Length::new(sequence.literals, 0, &LONG_LITERALS), Length::new(sequence.match_bytes, MATCH_BYTES_MIN, &LONG_MATCHES))
        };
        let (literals, matched) = lengths(last);
        let (mut literals_state, mut match_state) = (self.literals.start(literals.code), self.matches.start(matched.code));
        let add_extra = |literals: Length, matched: Length, bits: &mut BitWriter<'_>| {
            bits.add(literals.extra, literals.bits);
            bits.add(matched.extra, matched.bits);
            bits.flush();
            bits.add(offset_extra, offset_bits);
            bits.flush();
        };
        add_extra(literals, matched, &mut bits);
        for sequence in others.iter().rev() {
            let (literals, matched) = lengths(sequence);
            self.matches.add(&mut match_state, matched.code, &mut bits);
            self.literals.add(&mut literals_state, literals.code, &mut bits);
            add_extra(literals, matched, &mut bits);
        }
        self.matches.end(match_state, &mut bits);
        self.literals.end(literals_state, &mut bits);
        bits.flush();
        head + 2 + bits.end()
    }
}
