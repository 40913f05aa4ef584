//! Zstd frames of bit-transposed pixels (RFC 8878), without a search.
//!
//! A frame holds one transposed block. Neighbouring planes of one kind are a block of Zstd: noise as it is, a plane of
//! one value as that value, and others as matches and literals with Huffman codes. Matches are runs of one byte, or
//! repeat the plane before.

mod bits;
mod fse;
mod huffman;
mod literals;
mod sequences;

use super::by_isa::{count, find};
use super::repeats::{Marks, Repeats, WORD_BYTES};
use crate::bitshuffle::ElementSize;
use crate::isa::Isa;
use crate::zstd::{FRAME_END, bound};
use sequences::{Sequence, SequenceWriter};
use std::ops::Range;

/// Runs that are shorter stay literals: with a bit or two for each byte, they take less than a match.
const RUN_BYTES_MIN: usize = 16;
/// Of independent bits, half of them set, one byte in 256 is equal to the one before. Up to so many times as often, a
/// plane is noise: with a third of its bits set, a code would save 8 %.
const NOISE: usize = 3;
/// A plane is nearly empty if so many of 256 bytes are equal to the one before.
const SPARSE: usize = 218;
/// Shorter planes are not looked at one by one: the headers of 64 planes would not fit in the [`bound`].
const PLANE_BYTES_MIN: usize = 512;
/// Longest block of Zstd.
const BLOCK_BYTES_MAX: usize = 1 << 17;

/// Offset value of the distance that a decoder begins with, which is 1 (RFC 8878, 3.1.1.5).
const FIRST_DISTANCE: u32 = 1;
/// Distances are so much less than their offset values.
const OFFSET: u32 = 3;

/// What a plane is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Bits without order.
    Noise,
    /// One value.
    One(u8),
    /// Some bytes; few of them if it is `sparse`.
    Bytes { is_sparse: bool },
    /// Mostly the plane before.
    Repeated,
}

impl Kind {
    /// True if a plane of the kind `next` behind this one goes into the same block.
    fn takes(self, next: Self) -> bool {
        match self {
            Self::Bytes { is_sparse } => is_sparse && matches!(next, Self::Bytes { is_sparse: true } | Self::One(_)),
            _ => self == next,
        }
    }
}

/// The encoder, with the memory that it uses between blocks: about four bytes for each byte of a block.
pub struct ZstdEncoder {
    repeats: Repeats,
    body: Body,
}

impl ZstdEncoder {
    /// For blocks of at most `block_bytes_max` bytes.
    ///
    /// # Panics
    /// If that is more than 128 KiB.
    pub fn new(block_bytes_max: usize) -> Self {
        assert!(block_bytes_max <= BLOCK_BYTES_MAX, "a block of {block_bytes_max} bytes is too long");
        Self { repeats: Repeats::new(block_bytes_max), body: Body::new(block_bytes_max) }
    }

    /// Compresses a transposed block of elements of this size to a frame at the start of `out`, and returns the bytes
    /// written.
    ///
    /// # Panics
    /// If `out` has less than [`bound`] bytes for the block, or the block is too long or no whole planes.
    pub fn compress(&mut self, isa: Isa, element: ElementSize, block: &[u8], out: &mut [u8]) -> usize {
        let planes = 8 * element.bytes();
        assert!(block.len().is_multiple_of(planes), "a block of {} bytes has no {planes} planes", block.len());
        assert!(out.len() >= bound(block.len()), "{} bytes of output are too few for {} of input", out.len(), block.len());
        let Self { repeats, body } = self;
        let plane_bytes = (block.len() / planes).max(1);
        find::<RUN_BYTES_MIN>(isa, repeats, block, plane_bytes);
        (body.code, body.byte_offset) = (None, FIRST_DISTANCE);
        let mut written = frame_header(block.len(), out);
        let mut kinds = kinds(isa, repeats, block, plane_bytes).peekable();
        let mut from = 0;
        while let Some((kind, bytes)) = kinds.next() {
            let mut to = from + bytes;
            while let Some((_, more)) = kinds.next_if(|(next, _)| kind.takes(*next)) {
                to += more;
            }
            let out = &mut out[written..];
            let packed = match kind {
                Kind::Noise => None,
                Kind::One(value) => Some((ONE_VALUE, to - from, &[value][..])),
                Kind::Bytes { .. } => body.of_runs(&repeats.byte, block, from..to),
                Kind::Repeated => body.of_repeats(&repeats.plane, block, from..to, plane_bytes),
            };
            let (how, size, content) = packed.unwrap_or((PLAIN, to - from, &block[from..to]));
            let header = u32::from(to == block.len()) | how << 1 | (size as u32) << 3;
            out[..3].copy_from_slice(&header.to_le_bytes()[..3]);
            out[3..][..content.len()].copy_from_slice(content);
            written += 3 + content.len();
            from = to;
        }
        if block.is_empty() {
            out[written..][..3].copy_from_slice(&FRAME_END);
            written += 3;
        }
        written
    }
}

/// How the content of a block is to be read (RFC 8878, 3.1.1.2.2).
const PLAIN: u32 = 0;
const ONE_VALUE: u32 = 1;
const PACKED: u32 = 2;

/// Magic number, one segment, and the length of the content (RFC 8878, 3.1.1.1).
fn frame_header(bytes: usize, out: &mut [u8]) -> usize {
    let (flags, size, size_bytes) = match bytes {
        0..256 => (0x20, bytes, 1),
        256..65_792 => (0x60, bytes - 256, 2),
        _ => (0xA0, bytes, 4),
    };
    out[..4].copy_from_slice(&[0x28, 0xB5, 0x2F, 0xFD]);
    out[4] = flags;
    out[5..][..size_bytes].copy_from_slice(&size.to_le_bytes()[..size_bytes]);
    5 + size_bytes
}

/// The kinds of the planes of a block, each with its bytes. Short planes, and those that do not begin with a word of
/// marks, are taken together.
fn kinds<'a>(isa: Isa, repeats: &'a Repeats, block: &'a [u8], plane_bytes: usize) -> impl Iterator<Item = (Kind, usize)> + 'a {
    let is_apart = plane_bytes >= PLANE_BYTES_MIN && plane_bytes.is_multiple_of(WORD_BYTES);
    let part = if is_apart { plane_bytes } else { block.len().max(1) };
    block.chunks(part).enumerate().map(move |(number, bytes)| {
        if !is_apart {
            return (Kind::Bytes { is_sparse: false }, part);
        }
        let words = number * part / WORD_BYTES..(number + 1) * part / WORD_BYTES;
        let before = repeats.byte.equal[words.start] & 1;
        let byte = count(isa, &repeats.byte.equal[words.clone()]);
        let plane = count(isa, &repeats.plane.equal[words]);
        let kind = if byte - before as usize == part - 1 {
            Kind::One(bytes[0])
        } else if plane > byte + part / 64 && plane > part / 2 {
            Kind::Repeated
        } else if 256 * byte < NOISE * part {
            Kind::Noise
        } else {
            Kind::Bytes { is_sparse: 256 * byte > SPARSE * part }
        };
        (kind, part)
    })
}

/// How to read a block, the size that its header says, and its content.
type Packed<'a> = Option<(u32, usize, &'a [u8])>;

/// Makes the content of packed blocks.
struct Body {
    sequences: Vec<Sequence>,
    literals: Vec<u8>,
    packed: Vec<u8>,
    writer: SequenceWriter,
    /// The code that the decoder has.
    code: Option<usize>,
    /// The offset value of a distance of one byte.
    byte_offset: u32,
}

impl Body {
    fn new(block_bytes_max: usize) -> Self {
        let sequences_max = block_bytes_max / RUN_BYTES_MIN + 1;
        let room_bytes = literals::room_bytes(block_bytes_max) + SequenceWriter::room_bytes(sequences_max);
        Self {
            sequences: Vec::with_capacity(sequences_max),
            literals: vec![0; block_bytes_max],
            packed: vec![0; room_bytes],
            writer: SequenceWriter::new(),
            code: None,
            byte_offset: FIRST_DISTANCE,
        }
    }

    /// Runs of one byte. None begins with the first byte: behind no literal, the first offset value means another
    /// distance. Elsewhere a run that ends has a literal behind it.
    fn of_runs(&mut self, marks: &Marks, block: &[u8], range: Range<usize>) -> Packed<'_> {
        self.pack(marks, block, range.clone(), range.start + 1, self.byte_offset)
    }

    /// Matches with the plane before. From then on the decoder has to be told the distance of one byte.
    fn of_repeats(&mut self, marks: &Marks, block: &[u8], range: Range<usize>, plane_bytes: usize) -> Packed<'_> {
        self.byte_offset = 1 + OFFSET;
        self.pack(marks, block, range.clone(), range.start, plane_bytes as u32 + OFFSET)
    }

    /// `None` if it would not be shorter.
    fn pack(&mut self, marks: &Marks, block: &[u8], range: Range<usize>, first: usize, offset_value: u32) -> Packed<'_> {
        let Self { sequences, literals, packed, writer, code, .. } = self;
        sequences.clear();
        let (mut done, mut at, mut count) = (range.start, first, 0);
        let mut keep = |from: usize, to: usize| {
            literals[count..][..to - from].copy_from_slice(&block[from..to]);
            count += to - from;
        };
        while let Some((start, length)) = next_run(marks, at, range.end) {
            keep(done, start);
            sequences.push(Sequence { literals: (start - done) as u32, match_bytes: length as u32 });
            (done, at) = (start + length, start + length);
        }
        keep(done, range.end);
        let before = *code;
        let mut length = literals::write(&literals[..count], code, packed);
        length += writer.write(sequences, offset_value, &mut packed[length..]);
        if length < range.len() {
            return Some((PACKED, length, &packed[..length]));
        }
        *code = before;
        None
    }
}

/// The first run from `at` on, and its length within `end`.
fn next_run(marks: &Marks, at: usize, end: usize) -> Option<(usize, usize)> {
    let (first, bit) = (at / WORD_BYTES, at % WORD_BYTES);
    let words = marks.runs[first..end.div_ceil(WORD_BYTES).max(first)].iter().copied();
    // Bits before `at` do not count.
    let mut words = words.enumerate().map(|(word, runs)| (word, if word == 0 { runs >> bit << bit } else { runs }));
    let (word, runs) = words.find(|(_, runs)| *runs != 0)?;
    let start = (first + word) * WORD_BYTES + runs.trailing_zeros() as usize;
    let length = marks.run_length(start).min(end.saturating_sub(start));
    (length >= RUN_BYTES_MIN).then_some((start, length))
}

#[cfg(test)]
mod tests {
    use super::super::samples::Numbers;
    use super::*;
    use crate::bitshuffle;
    use crate::zstd::Decoder;

    const BLOCK_BYTES: usize = 65_536;

    /// The stock decoder gives the block back, and the bytes are the same with every instruction set.
    fn check(element: ElementSize, block: &[u8]) -> usize {
        let mut encoder = ZstdEncoder::new(BLOCK_BYTES);
        let mut first: Option<Vec<u8>> = None;
        for &isa in Isa::available() {
            let mut out = vec![0xEE; bound(BLOCK_BYTES)];
            // What an earlier block left in the encoder changes nothing.
            encoder.compress(isa, ElementSize::Two, &[7; BLOCK_BYTES], &mut out);
            let out = &mut out[..bound(block.len())];
            let written = encoder.compress(isa, element, block, out);
            let mut back = vec![0; block.len()];
            assert!(Decoder::new().decompress(&out[..written], &mut back), "{isa}, {} bytes of {element:?}", block.len());
            assert!(back == block, "{isa}, {} bytes of {element:?}", block.len());
            assert!(*first.get_or_insert_with(|| out[..written].to_vec()) == out[..written], "{isa} gives other bytes");
        }
        first.map_or(0, |bytes| bytes.len())
    }

    #[test]
    fn blocks_of_every_kind_come_back() {
        let mut numbers = Numbers(0x1234_5678_9ABC_DEF1);
        for element in ElementSize::ALL {
            let group = 8 * element.bytes();
            for groups in [1, 2, 3, 17, 63, 64, 65, 128, 500, BLOCK_BYTES / group - 1, BLOCK_BYTES / group] {
                for rarity in [1, 3, 20, 100, 5000] {
                    check(element, &numbers.runs(groups * group, rarity));
                }
            }
        }
    }

    /// Planes of each share of bits that are set, so that every code is used, and planes that repeat each other.
    #[test]
    fn planes_of_every_density_come_back() {
        let mut numbers = Numbers(0x0BAD_5678_9ABC_DEF1);
        for share in (0..=64).map(|n| n * 16) {
            let mut byte = || (0..8).fold(0, |byte, bit| byte | u8::from(numbers.next() % 1024 < share) << bit);
            let mut block: Vec<u8> = (0..BLOCK_BYTES / 2).map(|_| byte()).collect();
            let bytes = check(ElementSize::One, &block);
            // Of the entropy of independent bits, and what the planes of noise give away.
            let share = (share as f64 / 1024.0).clamp(1e-9, 1.0 - 1e-9);
            let bits = -share * share.log2() - (1.0 - share) * (1.0 - share).log2();
            let whole = block.len() as f64;
            assert!(bytes as f64 <= (1.11 * bits + 0.06) * whole, "{bytes} bytes where {share} of the bits are set: {bits}");
            let plane = block[BLOCK_BYTES / 2 - 4096..].to_vec();
            block.extend((0..8).flat_map(|n| plane.iter().enumerate().map(move |(i, byte)| byte ^ u8::from(i % 700 == 90 * n))));
            check(ElementSize::Two, &block);
        }
    }

    #[test]
    fn the_worst_block_is_within_the_bound() {
        let mut numbers = Numbers(77);
        for groups in [1, 7, 64, 1000, 8192] {
            let noise: Vec<u8> = (0..8 * groups).map(|_| numbers.next() as u8).collect();
            assert!(check(ElementSize::One, &noise) <= noise.len() + 9 + 3 * 8);
        }
        // Every plane a block of its own: noise, and runs that are just not worth a match.
        for element in ElementSize::ALL {
            for plane_bytes in [64, 256, 448, 512, 576, 1024] {
                let run = |i: usize, number: u64| if i % 14 == 13 { number as u8 } else { 0x55 };
                let plane = |p: usize, i: usize, number: u64| if p.is_multiple_of(2) { number as u8 } else { run(i, number) };
                let planes = 8 * element.bytes();
                let block: Vec<u8> =
                    (0..planes * plane_bytes).map(|i| plane(i / plane_bytes, i % plane_bytes, numbers.next())).collect();
                check(element, &block);
            }
        }
        assert!(check(ElementSize::Two, &[0; BLOCK_BYTES]) < 30);
        assert_eq!(check(ElementSize::Two, &[]), 6 + 3);
    }

    /// Bytes of a frame of the stock library with a search that is tuned for planes: matches shorter than 7 bytes are
    /// left to the entropy coder, and the search takes longer steps where it finds nothing.
    fn searched_bytes(planes: &[u8]) -> usize {
        use zstd_safe::{CCtx, CParameter, ParamSwitch, Strategy};
        let mut context = CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(1),
            CParameter::Strategy(Strategy::ZSTD_fast),
            CParameter::HashLog(12),
            CParameter::MinMatch(7),
            CParameter::TargetLength(3),
            CParameter::LiteralCompressionMode(ParamSwitch::Enable),
        ] {
            context.set_parameter(parameter).expect("the parameter is one of the library's");
        }
        let mut out = vec![0u8; crate::zstd::bound(planes.len())];
        context.compress2(&mut out[..], planes).expect("Zstd always succeeds within its bound")
    }

    /// Pixels as detectors have them are little larger than those of a search, or smaller.
    #[test]
    fn planes_of_pixels_come_back() {
        let mut numbers = Numbers(0xFEED_5678_9ABC_DEF1);
        let mut photons = |mean: u64| (0..4 * mean).filter(|_| numbers.next().is_multiple_of(4)).count() as i32;
        for (mean, is_signed) in [(0, false), (1, false), (3, true), (20, false), (100, true)] {
            let pixels = (0..32_768).map(|n| photons(mean + n / 32_000) - i32::from(is_signed) * mean as i32);
            let bytes: Vec<u8> = pixels.flat_map(|pixel| (pixel as i16).to_le_bytes()).collect();
            let mut planes = vec![0; bytes.len()];
            bitshuffle::shuffle(Isa::Scalar, ElementSize::Two, &bytes, &mut planes);
            let ours = check(ElementSize::Two, &planes);
            let searched = searched_bytes(&planes);
            assert!(ours as f64 <= 1.05 * searched as f64 + 68.0, "{ours} bytes, {searched} with a search, mean {mean}");
        }
    }

    #[test]
    #[should_panic(expected = "too few")]
    fn an_output_below_the_bound_is_refused() {
        ZstdEncoder::new(BLOCK_BYTES).compress(Isa::Scalar, ElementSize::Two, &[1; 96], &mut [0; 96]);
    }
}
