//! Huffman codes of literals (RFC 8878, 4.2), for distributions that are known beforehand.

use super::bits::BitWriter;
use super::fse::{self, Table};

/// Longest code, in bits.
const BITS_MAX: u8 = 11;
/// Shares of the weights in the description of a code, in 1/64: it fits all codes well enough.
const WEIGHTS: [i16; 12] = [14, 13, 10, 8, 6, 4, 3, 2, 1, 1, 1, 1];
const WEIGHTS_LOG: u32 = 6;

/// A code for all 256 bytes.
pub struct Code {
    /// The code of each byte, and in the lowest 6 bits its length.
    table: [u32; 256],
    description: Vec<u8>,
}

impl Code {
    /// The code for bytes with these shares, nearly the best one.
    pub fn new(shares: &[f64; 256]) -> Self {
        let mut lengths = shares.map(|share| (-share.log2()).round().clamp(1.0, BITS_MAX.into()) as u8);
        complete(&mut lengths);
        let longest = lengths.iter().copied().max().unwrap_or(1);
        // Longer codes come first, and equally long ones in the order of their bytes.
        let (mut table, mut code) = ([0; 256], 0u32);
        for length in (1..=longest).rev() {
            for (entry, _) in table.iter_mut().zip(&lengths).filter(|(_, own)| **own == length) {
                *entry = code << 6 | u32::from(length);
                code += 1;
            }
            code >>= 1;
        }
        Self { table, description: describe(&lengths, longest) }
    }

    /// What a decoder needs to know of the code.
    pub fn description(&self) -> &[u8] {
        &self.description
    }

    /// Room that four streams of so many bytes need, in bytes.
    pub fn room_bytes(bytes: usize) -> usize {
        JUMPS_BYTES + STREAMS * stream_room(bytes.div_ceil(STREAMS))
    }

    /// Writes bytes as four streams, behind the table of their lengths; returns the bytes written. Each stream encodes
    /// a quarter.
    pub fn streams(&self, bytes: &[u8], out: &mut [u8]) -> usize {
        let part = bytes.len().div_ceil(STREAMS);
        let mut written = JUMPS_BYTES;
        for (stream, part) in bytes.chunks(part).enumerate() {
            let length = self.stream(part, &mut out[written..]);
            if let Some(jump) = out[..JUMPS_BYTES].as_chunks_mut::<2>().0.get_mut(stream) {
                *jump = (length as u16).to_le_bytes();
            }
            written += length;
        }
        written
    }

    fn stream(&self, bytes: &[u8], out: &mut [u8]) -> usize {
        let entry = |byte: &u8| u64::from(self.table[usize::from(*byte)]);
        let mut bits = BitWriter::new(out);
        let (fours, rest) = bytes.as_chunks::<4>();
        for byte in rest.iter().rev() {
            bits.add(entry(byte) >> 6, (entry(byte) & 63) as u32);
        }
        bits.flush();
        for four in fours.iter().rev() {
            // Two and two are put together first: that does not wait for what is already written.
            let [a, b, c, d] = four.each_ref().map(entry);
            let (dc, ba) = (d >> 6 | (c >> 6) << (d & 63), b >> 6 | (a >> 6) << (b & 63));
            let (dc_bits, ba_bits) = ((d & 63) + (c & 63), (b & 63) + (a & 63));
            bits.add(dc | ba << dc_bits, (dc_bits + ba_bits) as u32);
            bits.flush();
        }
        bits.end()
    }
}

/// Streams of literals; the lengths of all but the last stand before them.
const STREAMS: usize = 4;
const JUMPS_BYTES: usize = 2 * (STREAMS - 1);

fn stream_room(bytes: usize) -> usize {
    bytes * usize::from(BITS_MAX) / 8 + 1 + BitWriter::SPARE_BYTES
}

/// Makes the code complete: the shares of all codes, 2^-length, add up to 1. Rare bytes come first where codes get
/// longer, frequent ones where they get shorter.
fn complete(lengths: &mut [u8; 256]) {
    const ALL: u32 = 1 << BITS_MAX;
    let share = |length: u8| 1 << (BITS_MAX - length);
    let mut sum: u32 = lengths.iter().map(|length| share(*length)).sum();
    let mut long = BITS_MAX - 1;
    while sum > ALL {
        for length in lengths.iter_mut().filter(|length| **length == long) {
            if sum > ALL {
                sum -= share(long) / 2;
                *length += 1;
            }
        }
        long = if long > 1 { long - 1 } else { BITS_MAX - 1 };
    }
    let mut short = 2;
    while sum < ALL {
        for length in lengths.iter_mut().filter(|length| **length == short) {
            if share(short) <= ALL - sum {
                sum += share(short);
                *length -= 1;
            }
        }
        short = if short < BITS_MAX { short + 1 } else { 2 };
    }
}

/// The weights of all bytes but the last, which follows from them, packed by two states that take turns.
fn describe(lengths: &[u8; 256], longest: u8) -> Vec<u8> {
    let weights: Vec<u8> = lengths[..255].iter().map(|length| longest + 1 - length).collect();
    let table = Table::new(&WEIGHTS, WEIGHTS_LOG);
    let mut packed = vec![0; weights.len() + BitWriter::SPARE_BYTES];
    let mut bits = BitWriter::new(&mut packed);
    let mut states = [table.start(weights[254]), table.start(weights[253])];
    for (n, weight) in weights[..253].iter().enumerate().rev() {
        table.add(&mut states[n % 2], *weight, &mut bits);
        bits.flush();
    }
    table.end(states[1], &mut bits);
    table.end(states[0], &mut bits);
    bits.flush();
    let written = bits.end();
    let mut description = vec![0];
    description.extend(fse::describe(&WEIGHTS, WEIGHTS_LOG));
    description.extend(&packed[..written]);
    let length = description.len() - 1;
    assert!(length < 128, "descriptions of {length} bytes mean something else");
    description[0] = length as u8;
    description
}
