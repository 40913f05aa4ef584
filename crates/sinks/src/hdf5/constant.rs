//! The chunk of an image of which nothing arrived: every pixel is *missing*. It is stored because neggia ends XDS if a
//! chunk is absent. Compressed, the constant takes about 10 KB per 512 x 1024 pixels. The compressed form is
//! constructed here, since this crate holds no compressor.

use super::spec::{Compression, FileSpec};

/// What a run, or a repair, may still spend on the chunks of lost images where these are not small: in uncompressed
/// files, and in data files that hold only lost images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostBudget {
    bytes_left: usize,
}

impl LostBudget {
    pub(crate) const WHOLE: Self = Self::of(1 << 30);

    pub(crate) const fn of(bytes: usize) -> Self {
        Self { bytes_left: bytes }
    }
}

/// The chunk for the lost images of a run.
pub(crate) struct MissingChunk {
    bytes: Vec<u8>,
    is_compressed: bool,
    /// If it was promised that XDS can read the run, every lost image gets its chunk.
    has_no_limit: bool,
}

impl MissingChunk {
    /// `None` if lost images rely on the fill value.
    pub(crate) fn of(spec: &FileSpec) -> Option<Self> {
        let is_compressed = spec.compression != Compression::None;
        Some(Self { bytes: missing_chunk(spec)?, is_compressed, has_no_limit: spec.xds == Some(true) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many of the `lost` images of a data file, each of `pieces` pieces, may be written where `free_bytes` are
    /// free. Asks for the free space only if images are lost.
    pub(crate) fn allow(
        &self,
        lost: usize,
        pieces: usize,
        file_has_pixels: bool,
        budget: &mut LostBudget,
        free_bytes: impl FnOnce() -> u64,
    ) -> usize {
        if lost == 0 {
            return 0;
        }
        let image_bytes = self.bytes.len() * pieces;
        // The space needed to close the file has priority.
        let room = usize::try_from(free_bytes() / 2).unwrap_or(usize::MAX);
        if self.has_no_limit || (self.is_compressed && file_has_pixels) {
            return lost.min(room / image_bytes);
        }
        let allowed = lost.min(budget.bytes_left.min(room) / image_bytes);
        budget.bytes_left -= allowed * image_bytes;
        allowed
    }
}

/// One chunk (of one piece, if an image has several). `None` if lost images rely on the fill value: codecs with one
/// stream per chunk (`zstd`, `gzip`, `sz3`) would need a real compressor, and neggia does not read them.
fn missing_chunk(spec: &FileSpec) -> Option<Vec<u8>> {
    use Compression::{Gzip, None as Plain, Other, Sz3, Zstd};
    if matches!(spec.compression, Zstd { .. } | Gzip { .. } | Sz3 { .. } | Other(_)) {
        return None;
    }
    let value = spec.pixel.missing_le_bytes();
    let total = spec.piece_bytes();
    if spec.compression == Plain {
        return Some(value.repeat(total / value.len()));
    }
    // Filter 32004 requires blocks no longer than the image.
    let is_lz4 = matches!(spec.compression, Compression::Lz4 { .. });
    let block_bytes = spec.compression.block_bytes().min(if is_lz4 { total } else { usize::MAX });
    let block_elements = block_bytes / value.len();
    let mut out = Vec::new();
    out.extend((total as u64).to_be_bytes());
    out.extend((block_bytes as u32).to_be_bytes());
    if is_lz4 {
        let mut left = total;
        while left > 0 {
            let bytes = left.min(block_bytes);
            out.extend(plain_block(&value, bytes));
            left -= bytes;
        }
        return Some(out);
    }
    let zstd = matches!(spec.compression, Compression::Bszstd { .. });
    let full = compressed_block(&value, block_elements, zstd);
    let elements = spec.elements() / spec.pieces();
    let (blocks, rest) = (elements / block_elements, elements % block_elements);
    (0..blocks).for_each(|_| out.extend(&full));
    if rest >= 8 {
        out.extend(compressed_block(&value, rest / 8 * 8, zstd));
    }
    (0..rest % 8).for_each(|_| out.extend(&value));
    Some(out)
}

/// Length and LZ4 data of one block of equal elements. If these are not shorter than the elements, the elements follow
/// as they are, which the length shows.
fn plain_block(value: &[u8], bytes: usize) -> Vec<u8> {
    let mut data = Vec::new();
    // One element, a match at the distance of one element, and at least the last five bytes as literals.
    let run = bytes.saturating_sub(value.len() + 12);
    if run >= 4 {
        sequence(&mut data, value, Some((run, value.len() as u16)));
    }
    let start = if run >= 4 { value.len() + run } else { 0 };
    let rest: Vec<u8> = (start..bytes).map(|at| value[at % value.len()]).collect();
    sequence(&mut data, &rest, None);
    if data.len() >= bytes {
        data = value.iter().copied().cycle().take(bytes).collect();
    }
    [&(data.len() as u32).to_be_bytes()[..], &data].concat()
}

/// Zstd frame (RFC 8878) of data that consist of runs: each run is a block that names its byte. The first byte is a
/// stored block of its own, because decoders before version 1.4.4 do not accept a frame that begins with a run.
fn zstd_of_runs(data: &[u8]) -> Vec<u8> {
    const BLOCK_BYTES_MAX: usize = 1 << 17;
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0xA0];
    out.extend((data.len() as u32).to_le_bytes());
    let mut block = |last: bool, kind: u32, count: usize, byte: u8| {
        out.extend(&(u32::from(last) | kind << 1 | (count as u32) << 3).to_le_bytes()[..3]);
        out.push(byte);
    };
    block(data.len() == 1, 0, 1, data[0]);
    let mut at = 1;
    while at < data.len() {
        let run = data[at..].iter().take(BLOCK_BYTES_MAX.min(data.len())).take_while(|&&b| b == data[at]).count();
        block(at + run == data.len(), 1, run, data[at]);
        at += run;
    }
    out
}

/// Length and LZ4 or Zstd data of one bitshuffled block of equal elements: plane `8 * byte + bit` is all ones or all
/// zeros.
fn compressed_block(value: &[u8], elements: usize, zstd: bool) -> Vec<u8> {
    let mut planes = Vec::with_capacity(elements * value.len());
    for byte in value {
        for bit in 0..8 {
            let filled = planes.len() + elements / 8;
            planes.resize(filled, if byte >> bit & 1 == 1 { 0xFF } else { 0 });
        }
    }
    let data = if zstd { zstd_of_runs(&planes) } else { lz4_of_runs(&planes) };
    let mut out = (data.len() as u32).to_be_bytes().to_vec();
    out.extend(data);
    out
}

/// LZ4 block of data that consist of long runs: each run is one literal and a match at distance 1. The last match
/// starts at least 12 bytes before the end and the last 5 bytes are literals, as the format requires.
fn lz4_of_runs(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut literals = Vec::new();
    let limit = data.len().saturating_sub(12);
    let mut at = 0;
    while at < data.len() {
        literals.push(data[at]);
        at += 1;
        let run = data[at..limit.max(at)].iter().take_while(|&&b| b == data[at - 1]).count();
        if run >= 4 {
            sequence(&mut out, &literals, Some((run, 1)));
            literals.clear();
            at += run;
        }
    }
    sequence(&mut out, &literals, None);
    out
}

fn sequence(out: &mut Vec<u8>, literals: &[u8], run: Option<(usize, u16)>) {
    let extra = |out: &mut Vec<u8>, mut rest: usize| {
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest as u8);
    };
    let match_code = run.map_or(0, |(length, _)| length - 4);
    out.push(((literals.len().min(15) << 4) | match_code.min(15)) as u8);
    if literals.len() >= 15 {
        extra(out, literals.len() - 15);
    }
    out.extend(literals);
    if let Some((_, distance)) = run {
        out.extend(distance.to_le_bytes());
        if match_code >= 15 {
            extra(out, match_code - 15);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::pixel::PixelType;
    use proptest::prelude::*;

    /// LZ4 block decoder after the format description, with the end conditions checked.
    fn lz4_decode(data: &[u8], size: usize) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        let length = |at: &mut usize, nibble: usize| {
            let mut total = nibble;
            if nibble == 15 {
                loop {
                    let b = data[*at];
                    *at += 1;
                    total += b as usize;
                    if b != 255 {
                        break;
                    }
                }
            }
            total
        };
        loop {
            let token = data[at];
            at += 1;
            let literals = length(&mut at, (token >> 4) as usize);
            out.extend(&data[at..at + literals]);
            at += literals;
            if at == data.len() {
                assert!(literals >= 5 || literals == size, "the last five bytes are literals");
                return out;
            }
            let distance = u16::from_le_bytes([data[at], data[at + 1]]) as usize;
            at += 2;
            assert!(size - out.len() >= 12, "no match starts in the last 12 bytes");
            let run = length(&mut at, (token & 15) as usize) + 4;
            (0..run).for_each(|_| out.push(out[out.len() - distance]));
        }
    }

    #[test]
    fn the_disk_is_asked_only_where_something_is_lost() {
        let spec = FileSpec { rows: 2, columns: 3, compression: Compression::None, ..FileSpec::default() };
        let (missing, mut budget) = (MissingChunk::of(&spec).unwrap(), LostBudget::of(1 << 20));
        assert_eq!(missing.allow(0, 1, true, &mut budget, || panic!("nothing is lost")), 0);
        let image_bytes = spec.image_bytes() as u64;
        assert_eq!(missing.allow(9, 1, true, &mut budget, || 2 * 5 * image_bytes), 5, "half of what is free");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn runs_decode(runs in proptest::collection::vec((0u8..3, 1usize..700), 1..12)) {
            let data: Vec<u8> = runs.iter().flat_map(|&(b, n)| std::iter::repeat_n(b, n)).collect();
            prop_assert_eq!(lz4_decode(&lz4_of_runs(&data), data.len()), data);
        }

        #[test]
        fn plain_blocks_decode(bytes in 1usize..3000, which in 0usize..5) {
            let value = PixelType::ALL[which].missing_le_bytes();
            let bytes = bytes.next_multiple_of(value.len());
            let block = plain_block(&value, bytes);
            prop_assert_eq!(block[..4].to_vec(), (block.len() as u32 - 4).to_be_bytes());
            let expected: Vec<u8> = value.repeat(bytes / value.len());
            let got = if block.len() - 4 == bytes { block[4..].to_vec() } else { lz4_decode(&block[4..], bytes) };
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn frames_of_runs_decode(runs in proptest::collection::vec((0u8..3, 1usize..700), 1..12)) {
            let data: Vec<u8> = runs.iter().flat_map(|&(b, n)| std::iter::repeat_n(b, n)).collect();
            let frame = zstd_of_runs(&data);
            prop_assert_eq!(u32::from_le_bytes(frame[5..9].try_into().unwrap()) as usize, data.len());
            let mut back = Vec::new();
            for (i, block) in frame[9..].chunks(4).enumerate() {
                let head = u32::from_le_bytes([block[0], block[1], block[2], 0]);
                prop_assert_eq!(head & 1 == 1, 9 + 4 * (i + 1) == frame.len(), "the last block says so");
                prop_assert_eq!(head >> 1 & 3, u32::from(i > 0), "stored, then runs");
                back.resize(back.len() + (head >> 3) as usize, block[3]);
            }
            prop_assert_eq!(back, data);
        }

        #[test]
        fn chunk_has_the_size_it_says(rows in 1u32..70, columns in 1u32..200, which in 0usize..5) {
            let pixel = PixelType::ALL[which];
            let spec = FileSpec { rows, columns, pixel, ..FileSpec::default() };
            let chunk = missing_chunk(&spec).unwrap();
            prop_assert_eq!(u64::from_be_bytes(chunk[..8].try_into().unwrap()), spec.image_bytes() as u64);
            let (mut at, mut left) = (12, spec.pixels() / 8 * 8);
            while left > 0 {
                let n = u32::from_be_bytes(chunk[at..at + 4].try_into().unwrap()) as usize;
                let elements = left.min(8192 / pixel.bytes());
                let planes = lz4_decode(&chunk[at + 4..at + 4 + n], elements * pixel.bytes());
                let value = pixel.missing_le_bytes();
                for (i, plane) in planes.chunks(elements / 8).enumerate() {
                    let bit = value[i / 8] >> (i % 8) & 1;
                    prop_assert!(plane.iter().all(|&b| b == bit * 0xFF));
                }
                at += 4 + n;
                left -= elements;
            }
            prop_assert_eq!(chunk.len() - at, spec.pixels() % 8 * pixel.bytes());
        }
    }
}
