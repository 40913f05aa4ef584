//! Filter 32008: bitshuffle, alone, with LZ4, or with Zstd, in the format of the bitshuffle library of K. Masui.
//!
//! | parameter | content |
//! |---|---|
//! | 0, 1 | version of the library that wrote |
//! | 2 | bytes of an element |
//! | 3 | elements of a block; 0: those of about 8 KiB |
//! | 4 | 0: the transposed blocks alone; 2: LZ4; 3: Zstd |
//! | 5 | level of Zstd |
//!
//! A chunk with LZ4 or Zstd is as in [`konkordia_kernels::chunk`]; the block size is that of its header. A chunk
//! without them has the transposed blocks one after the other, then the last `elements % 8` elements as they are.

use crate::elements::Transposition;
use crate::sys::output::Output;
use konkordia_kernels::chunk::{HEADER_BYTES, write_header};
use konkordia_kernels::length::LENGTH_BYTES;
use konkordia_kernels::planes::{Lz4Encoder, ZstdEncoder, decompress_lz4};
use konkordia_kernels::{ElementSize, Isa, lz4, zstd};

/// Bytes of a block that the library aims at, and the fewest elements of one; both are part of the format.
const BLOCK_BYTES: usize = 8192;
const BLOCK_ELEMENTS_MIN: usize = 128;
/// Level of Zstd where none is given, or 0.
const LEVEL: u8 = 3;
/// Longest block that the encoders without a search take: what Zstd takes as one block.
const PLANES_BYTES_MAX: usize = 1 << 17;

/// What follows the transposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Alone,
    Lz4,
    Zstd { level: u8 },
}

/// The parameters of a data set, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    element_bytes: usize,
    block_elements: usize,
    coding: Coding,
}

impl Settings {
    fn read(values: &[u32]) -> Result<Self, String> {
        let &[_, _, element_bytes, ref rest @ ..] = values else {
            return Err(format!("{} parameters; the third is the size of an element", values.len()));
        };
        let element_bytes = element_bytes as usize;
        if element_bytes == 0 || element_bytes > lz4::INPUT_BYTES_MAX / BLOCK_ELEMENTS_MIN {
            return Err(format!("elements of {element_bytes} bytes"));
        }
        let block_elements = match rest.first() {
            None | Some(0) => default_block_elements(element_bytes),
            Some(elements) => *elements as usize,
        };
        let coding = match rest.get(1) {
            None | Some(0) => Coding::Alone,
            Some(2) => Coding::Lz4,
            Some(3) => Coding::Zstd { level: rest.get(2).map_or(LEVEL, |level| level_of(*level)) },
            Some(other) => return Err(format!("coding {other} behind bitshuffle; 0, 2 (LZ4) and 3 (Zstd) are known")),
        };
        let settings = Self { element_bytes, block_elements, coding };
        settings.check_block(block_elements.saturating_mul(element_bytes))?;
        Ok(settings)
    }

    fn check_block(&self, block_bytes: usize) -> Result<(), String> {
        if block_bytes == 0 || !block_bytes.is_multiple_of(self.group_bytes()) || block_bytes > lz4::INPUT_BYTES_MAX {
            return Err(format!("blocks of {block_bytes} bytes with elements of {} bytes", self.element_bytes));
        }
        Ok(())
    }

    /// Bytes of 8 elements, the smallest block.
    fn group_bytes(&self) -> usize {
        8 * self.element_bytes
    }
}

fn level_of(value: u32) -> u8 {
    if value == 0 { LEVEL } else { value.min(22) as u8 }
}

/// Elements of a block where the parameters do not say.
fn default_block_elements(element_bytes: usize) -> usize {
    (BLOCK_BYTES / element_bytes / 8 * 8).max(BLOCK_ELEMENTS_MIN)
}

/// The parameters as they are stored, from those that a user gave for elements of `element_bytes` bytes. A user gives
/// up to three: block, coding, level. Parameters that are complete already, as in a copy of the properties of another
/// data set, only get the size of the element.
///
/// # Errors
/// Says which parameter is wrong.
pub fn stored_values(given: &[u32], element_bytes: usize) -> Result<Vec<u32>, String> {
    let element = u32::try_from(element_bytes).map_err(|_| format!("elements of {element_bytes} bytes"))?;
    // Three parameters may be block, coding and level, or a version (0.4, 0.5) and the size of the element.
    let is_complete = given.len() > 3 || matches!(given, [_, minor, _] if ![0, 2, 3].contains(minor));
    let mut values = vec![0, 4, element];
    values.extend(if is_complete { &given[3..] } else { given });
    // With a block and a coding, the parameters cannot be taken for those of a user when they are copied.
    values.resize(values.len().max(5), 0);
    Settings::read(&values)?;
    Ok(values)
}

/// Packs `input`, or unpacks it where `is_reverse`. `values` are the parameters as they are stored. Whatever `input`
/// holds, this takes no more memory than a chunk of such a length can need.
///
/// # Errors
/// Says where input or parameters are wrong, or that there is no memory.
pub fn apply(values: &[u32], is_reverse: bool, input: &[u8]) -> Result<Output, String> {
    let settings = Settings::read(values)?;
    match (settings.coding, is_reverse) {
        (Coding::Alone, _) => transpose(settings, is_reverse, input),
        (_, true) => unpack(settings, input),
        (_, false) => pack(settings, input),
    }
}

fn room(bytes: usize) -> Result<Output, String> {
    Output::new(bytes).ok_or_else(|| format!("no memory for {bytes} bytes"))
}

/// The elements that are transposed, and the last few that are not.
fn parts(settings: Settings, image: &[u8]) -> Result<(&[u8], &[u8]), String> {
    if !image.len().is_multiple_of(settings.element_bytes) {
        return Err(format!("{} bytes are no whole elements of {} bytes", image.len(), settings.element_bytes));
    }
    Ok(image.split_at(image.len() / settings.group_bytes() * settings.group_bytes()))
}

fn transpose(settings: Settings, is_reverse: bool, input: &[u8]) -> Result<Output, String> {
    let (grouped, rest) = parts(settings, input)?;
    let mut out = room(input.len())?;
    let mut transposition = Transposition::new(settings.element_bytes);
    for block in grouped.chunks(settings.block_elements * settings.element_bytes) {
        let to = out.next(block.len());
        if is_reverse { transposition.back(block, to) } else { transposition.forward(block, to) }
    }
    out.append(rest);
    Ok(out)
}

/// Most bytes that one byte of a chunk can stand for: with LZ4 a byte of a length is 255 at most; a block of Zstd has
/// at least 4 bytes and at most 128 KiB.
fn expansion_max(coding: Coding) -> u64 {
    if coding == Coding::Lz4 { 255 } else { 1 << 15 }
}

fn unpack(settings: Settings, chunk: &[u8]) -> Result<Output, String> {
    let (header, mut rest) = chunk.split_at_checked(HEADER_BYTES).ok_or("the chunk ends inside its header")?;
    let total = u64::from_be_bytes(header[..8].try_into().expect("8 bytes"));
    let block_bytes = u32::from_be_bytes(header[8..].try_into().expect("4 bytes")) as usize;
    settings.check_block(block_bytes)?;
    let total = match usize::try_from(total) {
        Ok(bytes) if total / expansion_max(settings.coding) <= chunk.len() as u64 => bytes,
        _ => return Err(format!("a chunk of {} bytes cannot hold {total}", chunk.len())),
    };
    if !total.is_multiple_of(settings.element_bytes) {
        return Err(format!("{total} bytes are no whole elements of {} bytes", settings.element_bytes));
    }
    let grouped = total / settings.group_bytes() * settings.group_bytes();
    let mut out = room(total)?;
    let mut transposition = Transposition::new(settings.element_bytes);
    let mut planes = vec![0; block_bytes.min(grouped)];
    let mut decoder = (settings.coding != Coding::Lz4).then(zstd::Decoder::new);
    let mut begin = 0;
    while begin < grouped {
        let planes = &mut planes[..block_bytes.min(grouped - begin)];
        let at = chunk.len() - rest.len();
        let (length, behind) = rest.split_at_checked(LENGTH_BYTES).ok_or("the chunk ends inside the length of a block")?;
        let length = u32::from_be_bytes(length.try_into().expect("4 bytes")) as usize;
        let (payload, behind) = behind.split_at_checked(length).ok_or("the chunk ends inside a block")?;
        let is_whole = match &mut decoder {
            None => decompress_lz4(payload, planes) == Some(planes.len()),
            Some(decoder) => decoder.decompress(payload, planes),
        };
        if !is_whole {
            return Err(format!("the block at byte {at} of the chunk does not hold {} bytes", planes.len()));
        }
        transposition.back(planes, out.next(planes.len()));
        begin += planes.len();
        rest = behind;
    }
    if rest.len() != total - grouped {
        return Err(format!("{} bytes at the end of the chunk, {} were expected", rest.len(), total - grouped));
    }
    out.append(rest);
    Ok(out)
}

/// Encoders of a transposed block: those of the libraries, which search for repeated strings, and those without a
/// search, which are faster and made for images.
enum Encoder {
    Lz4(lz4::Encoder),
    Zstd(Box<zstd::Encoder>),
    PlanesLz4(ElementSize, Lz4Encoder),
    PlanesZstd(ElementSize, Box<ZstdEncoder>),
}

impl Encoder {
    fn of_library(coding: Coding) -> Self {
        match coding {
            Coding::Zstd { level } => Self::Zstd(Box::new(zstd::Encoder::new(level))),
            Coding::Alone | Coding::Lz4 => Self::Lz4(lz4::Encoder::new()),
        }
    }

    /// The one without a search, where there is one for such blocks.
    fn without_search(settings: Settings, block_bytes: usize) -> Option<Self> {
        let element = ElementSize::new(settings.element_bytes).filter(|_| block_bytes <= PLANES_BYTES_MAX)?;
        match settings.coding {
            Coding::Lz4 => Some(Self::PlanesLz4(element, Lz4Encoder::new(block_bytes))),
            Coding::Zstd { level: 1 } => Some(Self::PlanesZstd(element, Box::new(ZstdEncoder::new(block_bytes)))),
            _ => None,
        }
    }

    /// Writes a block, with its length before it, to the start of `out`, and returns the bytes written.
    fn block(&mut self, isa: Isa, planes: &[u8], out: &mut [u8]) -> usize {
        let (length, payload) = out.split_at_mut(LENGTH_BYTES);
        let written = match self {
            Self::Lz4(encoder) => encoder.compress(planes, payload),
            Self::PlanesLz4(element, encoder) => encoder.compress(isa, *element, planes, payload),
            Self::PlanesZstd(element, encoder) => encoder.compress(isa, *element, planes, payload),
            Self::Zstd(encoder) => return encoder.block(planes, out),
        };
        length.copy_from_slice(&(written as u32).to_be_bytes());
        LENGTH_BYTES + written
    }
}

/// Bytes of a packed block with its length, at most.
fn block_bound(coding: Coding, bytes: usize) -> usize {
    LENGTH_BYTES + if coding == Coding::Lz4 { lz4::bound(bytes) } else { zstd::bound(bytes) }
}

/// How many blocks of a chunk are tried before an encoder is chosen, and the fewest blocks of a chunk for that: the
/// library packs smaller chunks.
const TRIED: usize = 3;
const BLOCKS_MIN: usize = 8;

/// The encoder for the blocks of a chunk. Images, for which the encoders without a search were made, become at most a
/// few hundredths larger with them; other numbers may become much larger, and go to the library.
fn choose(settings: Settings, grouped: &[u8], block_bytes: usize) -> Encoder {
    let mut library = Encoder::of_library(settings.coding);
    let blocks = grouped.len() / block_bytes;
    if blocks < BLOCKS_MIN {
        return library;
    }
    let Some(mut fast) = Encoder::without_search(settings, block_bytes) else { return library };
    let mut transposition = Transposition::new(settings.element_bytes);
    let (mut planes, mut out) = (vec![0; block_bytes], vec![0; block_bound(settings.coding, block_bytes)]);
    let (mut bytes_fast, mut bytes_library) = (0, 0);
    for tried in 0..TRIED {
        let at = (blocks - 1) * tried / (TRIED - 1) * block_bytes;
        transposition.forward(&grouped[at..at + block_bytes], &mut planes);
        bytes_fast += fast.block(Isa::detect(), &planes, &mut out);
        bytes_library += library.block(Isa::detect(), &planes, &mut out);
    }
    if bytes_fast <= bytes_library + bytes_library / 32 { fast } else { library }
}

fn pack(settings: Settings, image: &[u8]) -> Result<Output, String> {
    let (grouped, rest) = parts(settings, image)?;
    let block_bytes = settings.block_elements * settings.element_bytes;
    let bound = block_bound(settings.coding, block_bytes.min(grouped.len()));
    let blocks = grouped.len().div_ceil(block_bytes);
    let mut out = room(HEADER_BYTES + blocks * bound + rest.len())?;
    write_header(out.next(HEADER_BYTES), image.len() as u64, block_bytes as u32);
    let mut encoder = choose(settings, grouped, block_bytes);
    let mut transposition = Transposition::new(settings.element_bytes);
    let (mut planes, mut packed) = (vec![0; block_bytes.min(grouped.len())], vec![0; bound]);
    for block in grouped.chunks(block_bytes) {
        let planes = &mut planes[..block.len()];
        transposition.forward(block, planes);
        let written = encoder.block(Isa::detect(), planes, &mut packed);
        out.append(&packed[..written]);
    }
    out.append(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| if n % 2 == 0 { (n * n / 7 % 11) as u8 } else { 0 }).collect()
    }

    fn both_ways(values: &[u32], image: &[u8]) -> usize {
        let packed = apply(values, false, image).unwrap_or_else(|why| panic!("{values:?}, {} bytes: {why}", image.len()));
        let back = apply(values, true, packed.written()).unwrap_or_else(|why| panic!("{values:?}, {} bytes: {why}", image.len()));
        assert!(back.written() == image, "{values:?}, {} bytes", image.len());
        packed.written().len()
    }

    #[test]
    fn every_size_of_elements_blocks_and_images_comes_back() {
        for element in [1u32, 2, 3, 4, 6, 8, 12, 16, 100] {
            for coding in [&[][..], &[0], &[2], &[3, 1], &[3, 7], &[3]] {
                for block in [0, 8, 128, 4096] {
                    for elements in [0, 1, 7, 8, 9, 127, 1024, 4096, 5003, 33_000] {
                        let values = [&[0, 4, element, block][..], coding].concat();
                        both_ways(&values, &image(elements * element as usize));
                    }
                }
            }
        }
    }

    #[test]
    fn a_chunk_is_that_of_the_codec_of_the_program() {
        use konkordia_kernels::codec::decode;
        let image = image(200_000);
        let packed = apply(&[0, 4, 2, 0, 2], false, &image).unwrap();
        let mut back = vec![0; image.len()];
        decode(konkordia_core::plan::Compression::BSLZ4, packed.written(), 2, &mut back).unwrap();
        assert_eq!(back, image);
    }

    /// Numbers in which a search finds what comparing with two places does not.
    #[test]
    fn what_repeats_at_other_distances_is_left_to_the_library() {
        let pattern: Vec<u8> = (0..1000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let image = pattern.repeat(200);
        let values = [0, 4, 1, 64 << 10, 2];
        assert!(both_ways(&values, &image) * 4 < image.len(), "the search of LZ4 finds the pattern");
    }

    #[test]
    fn parameters_of_a_user_are_completed_and_complete_ones_are_kept() {
        assert_eq!(stored_values(&[], 2), Ok(vec![0, 4, 2, 0, 0]));
        assert_eq!(stored_values(&[0, 5, 2], 4), Ok(vec![0, 4, 4, 0, 0]), "of the bitshuffle library");
        assert_eq!(stored_values(&[0, 2], 4), Ok(vec![0, 4, 4, 0, 2]));
        assert_eq!(stored_values(&[0, 3, 2], 2), Ok(vec![0, 4, 2, 0, 3, 2]));
        assert_eq!(stored_values(&[32768, 3, 5], 2), Ok(vec![0, 4, 2, 32768, 3, 5]));
        assert_eq!(stored_values(&[0, 5, 2, 0, 2], 4), Ok(vec![0, 4, 4, 0, 2]));
        for wrong in [&[12, 2][..], &[0, 7], &[u32::MAX - 7, 2]] {
            assert!(stored_values(wrong, 2).is_err(), "{wrong:?}");
        }
        assert!(stored_values(&[0, 2], 0).is_err());
    }

    #[test]
    fn hostile_chunks_are_refused_before_memory_is_taken() {
        let huge = [&(1u64 << 40).to_be_bytes()[..], &8192u32.to_be_bytes(), &[0; 64]].concat();
        let why = apply(&[0, 4, 2, 0, 2], true, &huge).err().unwrap();
        assert_eq!(why, "a chunk of 76 bytes cannot hold 1099511627776");
        let packed = apply(&[0, 4, 2, 0, 2], false, &image(50_000)).unwrap().written().to_vec();
        for cut in 0..packed.len() {
            assert!(apply(&[0, 4, 2, 0, 2], true, &packed[..cut]).is_err(), "cut to {cut}");
        }
        assert!(apply(&[0, 4, 2, 0, 2], true, &[&packed[..], &[0]].concat()).is_err());
        assert!(apply(&[0, 4, 2], true, &[0; 3]).is_err() && apply(&[0, 4], true, &[0; 4]).is_err());
    }

    proptest! {
        #[test]
        fn no_chunk_and_no_parameters_panic(
            values in prop::collection::vec(prop_oneof![0u32..9, any::<u32>()], 0..8),
            mut chunk in prop::collection::vec(any::<u8>(), 0..300),
            total in 0u16..3000,
            has_header in any::<bool>(),
        ) {
            if has_header && chunk.len() >= 12 {
                chunk[..12].copy_from_slice(&[&u64::from(total).to_be_bytes()[..], &128u32.to_be_bytes()].concat());
            }
            let _ = apply(&values, true, &chunk);
            if values.get(3).is_none_or(|block| *block < 1 << 20) {
                let _ = apply(&values, false, &chunk);
            }
        }
    }
}
