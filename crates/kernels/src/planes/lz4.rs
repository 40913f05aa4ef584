//! LZ4 blocks of bit-transposed pixels, without a search.
//!
//! Runs of one byte, and planes that repeat the one before, are matches; what lies between is copied.
//!
//! Format: `lz4_Block_format.md` of the LZ4 library. A block is a list of sequences: a token (length of the literals in
//! the upper four bits, length of the match less 4 in the lower), literals, distance of the match (two bytes,
//! little-endian). A length of 15 goes on in more bytes. The last sequence has no match; the last 5 bytes are always
//! literals, and no match begins in the last 12.

use super::by_isa::{find, write_lz4};
use super::lz4_write::MATCH_BYTES_MIN;
use super::repeats::Repeats;
use crate::bitshuffle::ElementSize;
use crate::isa::Isa;
use crate::lz4::bound;

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
        write_lz4(isa, &self.0, block, plane_bytes, out)
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
