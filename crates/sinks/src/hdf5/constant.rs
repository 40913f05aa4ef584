//! The chunk of an image of which nothing arrived: every pixel *missing*. Stored because neggia ends XDS when a chunk is absent, while
//! the compressed constant takes about 10 KB per 512 x 1024 pixels. Written by hand, since this crate holds no compressor.

use super::low::missing_bytes;
use super::spec::{Compression, FileSpec};

const BLOCK_BYTES: usize = 8192;

/// The whole chunk, or `None` where it would be as large as an image (no compression).
pub(crate) fn missing_chunk(spec: &FileSpec) -> Option<Vec<u8>> {
    if spec.compression == Compression::None {
        return None;
    }
    let value = missing_bytes(spec.pixel);
    let total = spec.image_bytes();
    let block_elements = BLOCK_BYTES / value.len();
    let mut out = Vec::new();
    out.extend((total as u64).to_be_bytes());
    out.extend((BLOCK_BYTES as u32).to_be_bytes());
    let full = compressed_block(&value, block_elements);
    let (blocks, rest) = (spec.pixels() / block_elements, spec.pixels() % block_elements);
    (0..blocks).for_each(|_| out.extend(&full));
    if rest >= 8 {
        out.extend(compressed_block(&value, rest / 8 * 8));
    }
    (0..rest % 8).for_each(|_| out.extend(&value));
    Some(out)
}

/// Length and LZ4 data of one bitshuffled block of equal elements: plane `8 * byte + bit` is all ones or all zeros.
fn compressed_block(value: &[u8], elements: usize) -> Vec<u8> {
    let mut planes = Vec::with_capacity(elements * value.len());
    for byte in value {
        for bit in 0..8 {
            let filled = planes.len() + elements / 8;
            planes.resize(filled, if byte >> bit & 1 == 1 { 0xFF } else { 0 });
        }
    }
    let data = lz4_of_runs(&planes);
    let mut out = (data.len() as u32).to_be_bytes().to_vec();
    out.extend(data);
    out
}

/// LZ4 block of data that consists of long runs: each run is one literal and a match at distance 1. The last match starts at least 12
/// bytes before the end and the last 5 bytes are literals, as the format demands.
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
            sequence(&mut out, &literals, Some(run));
            literals.clear();
            at += run;
        }
    }
    sequence(&mut out, &literals, None);
    out
}

fn sequence(out: &mut Vec<u8>, literals: &[u8], run: Option<usize>) {
    let extra = |out: &mut Vec<u8>, mut rest: usize| {
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest as u8);
    };
    let match_code = run.map_or(0, |length| length - 4);
    out.push(((literals.len().min(15) << 4) | match_code.min(15)) as u8);
    if literals.len() >= 15 {
        extra(out, literals.len() - 15);
    }
    out.extend(literals);
    if run.is_some() {
        out.extend(1u16.to_le_bytes());
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn runs_decode(runs in proptest::collection::vec((0u8..3, 1usize..700), 1..12)) {
            let data: Vec<u8> = runs.iter().flat_map(|&(b, n)| std::iter::repeat_n(b, n)).collect();
            prop_assert_eq!(lz4_decode(&lz4_of_runs(&data), data.len()), data);
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
                let value = missing_bytes(pixel);
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
