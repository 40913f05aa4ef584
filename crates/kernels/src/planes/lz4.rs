//! LZ4 blocks of bit-transposed pixels, without a search.
//!
//! Runs of one byte, and planes that repeat the one before, are matches; what lies between is copied.
//!
//! Format: `lz4_Block_format.md` of the LZ4 library. A block is a list of sequences: a token (length of the literals in
//! the upper four bits, length of the match less 4 in the lower), literals, distance of the match (two bytes,
//! little-endian). A length of 15 goes on in more bytes. The last sequence has no match; the last 5 bytes are always
//! literals, and no match begins in the last 12.

use super::by_isa::find;
use super::repeats::{Repeats, WORD_BYTES};
use crate::bitshuffle::ElementSize;
use crate::isa::Isa;
use crate::lz4::bound;

/// A match is at least this long.
const MATCH_BYTES_MIN: usize = 4;
/// These bytes at the end of a block are literals.
const END_LITERALS: usize = 5;
/// A match begins at least so many bytes before the end of a block.
const END_MATCH: usize = 12;
/// A length that goes on in more bytes.
const LONG: usize = 15;
/// Literals that are copied by one instruction where there is room.
const SHORT: usize = 16;

/// The encoder, with the memory that it uses between blocks: half a byte for each byte of a block.
pub struct Lz4Encoder(Repeats);

impl Lz4Encoder {
    /// For blocks of at most `block_bytes_max` bytes.
    ///
    /// # Panics
    /// If their planes are longer than 65 535 bytes, which is as far as a match can reach.
    pub fn new(block_bytes_max: usize) -> Self {
        assert!(block_bytes_max / 8 <= usize::from(u16::MAX), "blocks of {block_bytes_max} bytes");
        Self(Repeats::new(block_bytes_max))
    }

    /// Compresses a transposed block of elements of this size to the start of `out`, and returns the bytes written.
    ///
    /// # Panics
    /// If `out` has less than [`bound`] bytes for the block, or the block is too long or no whole planes.
    pub fn compress(&mut self, isa: Isa, element: ElementSize, block: &[u8], out: &mut [u8]) -> usize {
        let planes = 8 * element.bytes();
        assert!(block.len().is_multiple_of(planes), "a block of {} bytes has no {planes} planes", block.len());
        assert!(out.len() >= bound(block.len()), "{} bytes of output are too few for {} of input", out.len(), block.len());
        let plane_bytes = (block.len() / planes).max(1);
        find::<MATCH_BYTES_MIN>(isa, &mut self.0, block, plane_bytes);
        write(&self.0, block, plane_bytes, out)
    }
}

/// Writes the sequences: from the first byte on, the longer one of the runs that begin here is a match.
fn write(repeats: &Repeats, block: &[u8], plane_bytes: usize, out: &mut [u8]) -> usize {
    let mut writer = Writer { block, out, written: 0, done: 0 };
    let last = block.len().checked_sub(END_MATCH);
    while let Some(start) = next_run(repeats, writer.done).filter(|start| Some(*start) <= last) {
        let (byte, plane) = (repeats.byte.run_length(start), repeats.plane.run_length(start));
        let (distance, length) = if plane > byte { (plane_bytes, plane) } else { (1, byte) };
        // At least 7, because a match does not begin in the last 12 bytes: so it never gets shorter than a match may
        // be.
        let length = length.min(block.len() - END_LITERALS - start);
        writer.sequence(start, distance as u16, length);
    }
    writer.end()
}

/// The first byte from `at` on with which a run begins or goes on.
fn next_run(repeats: &Repeats, at: usize) -> Option<usize> {
    let (first, bit) = (at / WORD_BYTES, at % WORD_BYTES);
    let (byte, plane) = (&repeats.byte.runs[first..], &repeats.plane.runs[first..]);
    let now = (byte[0] | plane[0]) >> bit;
    if now != 0 {
        return Some(at + now.trailing_zeros() as usize);
    }
    let mut words = byte.iter().zip(plane).map(|(byte, plane)| byte | plane).enumerate().skip(1);
    words.find(|(_, runs)| *runs != 0).map(|(word, runs)| (first + word) * WORD_BYTES + runs.trailing_zeros() as usize)
}

/// Writes sequences. What is written never overtakes the [`bound`] of what is done: a match takes three bytes besides
/// those of long lengths and stands for at least four, and each 255 literals take one byte more.
struct Writer<'a> {
    block: &'a [u8],
    out: &'a mut [u8],
    written: usize,
    /// Bytes of the block that are done.
    done: usize,
}

impl Writer<'_> {
    /// The literals up to `start`, and a match of `length` bytes that begins there.
    fn sequence(&mut self, start: usize, distance: u16, length: usize) {
        let (literals, more) = (start - self.done, length - MATCH_BYTES_MIN);
        self.put((literals.min(LONG) << 4 | more.min(LONG)) as u8);
        self.literals(literals);
        self.out[self.written..][..2].copy_from_slice(&distance.to_le_bytes());
        self.written += 2;
        self.rest(more);
        self.done = start + length;
    }

    /// The last literals.
    fn end(mut self) -> usize {
        let literals = self.block.len() - self.done;
        self.put((literals.min(LONG) << 4) as u8);
        self.literals(literals);
        self.written
    }

    fn literals(&mut self, count: usize) {
        self.rest(count);
        let (from, to) = (&self.block[self.done..], &mut self.out[self.written..]);
        match (from.first_chunk::<SHORT>(), to.first_chunk_mut::<SHORT>()) {
            // Bytes behind the literals are overwritten by what follows.
            (Some(from), Some(to)) if count <= SHORT => *to = *from,
            _ => to[..count].copy_from_slice(&from[..count]),
        }
        self.written += count;
    }

    /// What a length has beyond the [`LONG`] of its token.
    fn rest(&mut self, length: usize) {
        let Some(mut rest) = length.checked_sub(LONG) else { return };
        while rest >= 255 {
            self.put(255);
            rest -= 255;
        }
        self.put(rest as u8);
    }

    fn put(&mut self, byte: u8) {
        self.out[self.written] = byte;
        self.written += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::Numbers;
    use super::*;
    use crate::bitshuffle;
    use crate::lz4::{Encoder, decompress};

    const BLOCK_BYTES: usize = 8192;

    /// The same rule in the simplest words: from each byte on, count how far it repeats in both ways.
    fn naive(block: &[u8], plane_bytes: usize) -> Vec<u8> {
        let repeats = |at: usize, distance: usize| {
            (at..block.len()).take_while(|at| *at >= distance && block[*at] == block[at - distance]).count()
        };
        let length_rest = |length: usize| match length.checked_sub(15) {
            None => vec![],
            Some(rest) => [vec![255; rest / 255], vec![(rest % 255) as u8]].concat(),
        };
        let (mut out, mut literals, mut at) = (Vec::new(), Vec::new(), 0);
        while at < block.len() {
            let (byte, plane) = (repeats(at, 1), repeats(at, plane_bytes));
            if byte.max(plane) < MATCH_BYTES_MIN || at + 12 > block.len() {
                literals.push(block[at]);
                at += 1;
                continue;
            }
            let (distance, length) = if plane > byte { (plane_bytes, plane) } else { (1, byte) };
            let length = length.min(block.len() - 5 - at);
            out.push((literals.len().min(15) << 4 | (length - 4).min(15)) as u8);
            out.extend(length_rest(literals.len()));
            out.append(&mut literals);
            out.extend((distance as u16).to_le_bytes());
            out.extend(length_rest(length - 4));
            at += length;
        }
        out.push((literals.len().min(15) << 4) as u8);
        out.extend(length_rest(literals.len()));
        [out, literals].concat()
    }

    /// With every instruction set: the bytes of the naive encoder, and the stock decoder gives the block back.
    fn check(element: ElementSize, block: &[u8]) -> usize {
        let expected = naive(block, (block.len() / (8 * element.bytes())).max(1));
        let mut encoder = Lz4Encoder::new(BLOCK_BYTES);
        let mut out = vec![0xEE; bound(block.len())];
        for &isa in Isa::available() {
            // What an earlier block left in the encoder changes nothing.
            encoder.compress(isa, ElementSize::One, &[7; BLOCK_BYTES], &mut vec![0; bound(BLOCK_BYTES)]);
            let written = encoder.compress(isa, element, block, &mut out);
            assert!(out[..written] == expected, "{isa}, {} bytes of {element:?}", block.len());
            let mut back = vec![0; block.len()];
            assert_eq!(decompress(&out[..written], &mut back), Some(block.len()));
            assert_eq!(back, block);
        }
        expected.len()
    }

    #[test]
    fn blocks_of_every_kind_come_back() {
        let mut numbers = Numbers(0x1234_5678_9ABC_DEF1);
        for element in ElementSize::ALL {
            let group = 8 * element.bytes();
            for groups in [0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 65, BLOCK_BYTES / group - 1, BLOCK_BYTES / group] {
                for rarity in [1, 2, 3, 10, 100, 5000] {
                    check(element, &numbers.runs(groups * group, rarity));
                }
            }
        }
    }

    /// Pixels as detectors have them, of 16 and 32 bits, with and without sign.
    #[test]
    fn planes_of_pixels_come_back_and_are_little_larger_than_those_of_a_search() {
        let mut numbers = Numbers(0xFEED_5678_9ABC_DEF1);
        let mut photons = |mean: u64| (0..4 * mean).filter(|_| numbers.next().is_multiple_of(4)).count() as i32;
        for (mean, is_signed) in [(0, false), (1, false), (3, true), (20, false), (200, true)] {
            let pixels: Vec<i32> = (0..4096).map(|n| photons(mean + n / 4000) - i32::from(is_signed) * mean as i32).collect();
            let as_16: Vec<u8> = pixels.iter().flat_map(|pixel| (*pixel as i16).to_le_bytes()).collect();
            let as_32: Vec<u8> = pixels[..2048].iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
            for (element, bytes) in [(ElementSize::Two, as_16), (ElementSize::Four, as_32)] {
                let mut planes = vec![0; bytes.len()];
                bitshuffle::shuffle(Isa::Scalar, element, &bytes, &mut planes);
                let ours = check(element, &planes);
                let stock = Encoder::new().compress(&planes, &mut vec![0; bound(planes.len())]);
                assert!(
                    ours as f64 <= 1.12 * stock as f64 + 16.0,
                    "{ours} bytes, {stock} with a search, mean {mean}, {element:?}"
                );
            }
        }
    }

    #[test]
    fn the_worst_block_is_within_the_bound() {
        // Literals of every length between matches of the shortest kind.
        for literals in [0, 1, 14, 15, 16, 269, 270, 271, 600] {
            let one: Vec<u8> = (0..literals).map(|n| (n * 37 % 251) as u8).chain([252; 1 + MATCH_BYTES_MIN]).collect();
            let block: Vec<u8> = one.iter().copied().cycle().take(BLOCK_BYTES).collect();
            assert!(check(ElementSize::Two, &block) <= bound(BLOCK_BYTES));
        }
        let mut numbers = Numbers(77);
        let noise: Vec<u8> = (0..BLOCK_BYTES).map(|_| numbers.next() as u8).collect();
        assert!(check(ElementSize::Two, &noise) <= BLOCK_BYTES + BLOCK_BYTES / 255 + 2);
        assert!(check(ElementSize::Two, &[0; BLOCK_BYTES]) < 50);
    }

    #[test]
    #[should_panic(expected = "too few")]
    fn an_output_below_the_bound_is_refused() {
        Lz4Encoder::new(BLOCK_BYTES).compress(Isa::Scalar, ElementSize::Two, &[1; 96], &mut [0; 96]);
    }
}
