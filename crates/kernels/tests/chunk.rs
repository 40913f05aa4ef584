//! Chunks: round trips, another decoder, the plain way, real chunks, damaged chunks.

use konkordia_kernels::baseline;
use konkordia_kernels::bitshuffle::unshuffle;
use konkordia_kernels::chunk::{self, ChunkError, blocks_bound, bslz4_bound, decompress_chunk, default_block_elements};
use konkordia_kernels::convert::{self, Constants};
use konkordia_kernels::fused::{FusedScratch, block_pixels, compress_chunk};
use konkordia_kernels::{ElementSize, Isa};
use proptest::prelude::*;

/// 19 times the number 1 in 16 bits: a block of 16 pixels, and three pixels as they are. Plane 0 is two bytes 0xFF, and
/// the 30 bytes after it are 0. In LZ4 that is three literals, a match of 24 bytes at distance 1, and five literals.
const TINY: [u8; 35] =
    [0, 0, 0, 0, 0, 0, 0, 38, 0, 0, 0x20, 0, 0, 0, 0, 13, 0x3F, 0xFF, 0xFF, 0, 1, 0, 5, 0x50, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0];

fn pack(isa: Isa, element: ElementSize, image: &[u8]) -> Vec<u8> {
    let mut out = vec![0; bslz4_bound(image.len() / element.bytes(), element)];
    let length = compress_chunk(isa, &mut FusedScratch::new(), element, image, &mut out);
    out.truncate(length);
    out
}

/// Counts with structure: mostly small, some large, runs of one value.
fn image(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if i % 2 == 0 || (i / 3000) % 2 == 1 { (state >> 60) as u8 & 3 } else { 0 }
        })
        .collect()
}

/// Decodes with another LZ4 and without code of the chunk module, except the transposition, which has its own oracle.
fn other_decoder(chunk: &[u8], element: usize) -> Vec<u8> {
    let number = |at: usize| u32::from_be_bytes(chunk[at..at + 4].try_into().unwrap()) as usize;
    let (total, block) = (number(4), number(8));
    let (mut at, mut out) = (12, Vec::new());
    while out.len() < total / (8 * element) * (8 * element) {
        let bytes = block.min(total / (8 * element) * (8 * element) - out.len());
        let planes = lz4_flex::block::decompress(&chunk[at + 4..at + 4 + number(at)], bytes).unwrap();
        let mut pixels = vec![0; bytes];
        unshuffle(Isa::Scalar, ElementSize::new(element).unwrap(), &planes, &mut pixels);
        out.extend(pixels);
        at += 4 + number(at);
    }
    out.extend(&chunk[at..]);
    out
}

#[test]
fn a_tiny_chunk_by_hand() {
    let image: Vec<u8> = [1u16; 19].iter().flat_map(|v| v.to_le_bytes()).collect();
    for &isa in Isa::available() {
        assert_eq!(pack(isa, ElementSize::Two, &image), TINY);
        let mut back = vec![0; 38];
        decompress_chunk(isa, &TINY, ElementSize::Two, &mut back).unwrap();
        assert_eq!(back, image);
    }
    assert_eq!(other_decoder(&TINY, 2), image);
}

#[test]
fn odd_sizes_come_back_and_every_path_gives_the_same_bytes() {
    assert_eq!(ElementSize::ALL.map(default_block_elements), [8192, 4096, 2048, 1024]);
    for element in ElementSize::ALL {
        let block = default_block_elements(element);
        for pixels in
            [0, 1, 7, 8, 9, 15, 17, 100, block - 1, block, block + 1, block + 8, 2 * block + 13, 5 * block + 4001 % block]
        {
            let image = image(pixels * element.bytes(), pixels as u64);
            let chunk = pack(Isa::Scalar, element, &image);
            assert!(chunk.len() <= bslz4_bound(pixels, element));
            assert_eq!(other_decoder(&chunk, element.bytes()), image);
            let mut planes = vec![0; image.len()];
            baseline::shuffle(element, &image, &mut planes);
            let mut plain = vec![0; bslz4_bound(pixels, element)];
            let length = baseline::compress(element, &planes, &mut plain);
            assert_eq!(other_decoder(&plain[..length], element.bytes()), image);
            for &isa in Isa::available() {
                assert_eq!(pack(isa, element, &image), chunk, "{isa}");
                let mut back = vec![0xA5; image.len()];
                decompress_chunk(isa, &chunk, element, &mut back).unwrap();
                assert_eq!(back, image, "{isa}");
            }
        }
    }
}

#[test]
fn noise_stays_within_the_bound() {
    for element in ElementSize::ALL {
        let bytes = 3 * 8192 + 8 * 4 * 5 + element.bytes();
        let noise: Vec<u8> =
            (0..bytes as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31) >> 13) as u8).collect();
        let chunk = pack(Isa::detect(), element, &noise);
        let mut back = vec![0; bytes];
        decompress_chunk(Isa::detect(), &chunk, element, &mut back).unwrap();
        assert_eq!(back, noise);
    }
}

/// Converting and packing block by block, gathered from pieces, gives the chunk of the whole converted image.
#[test]
fn fused_blocks_are_the_chunk_of_the_image() {
    fn check<P: konkordia_kernels::OutputPixel>(pixels: usize) {
        let raw: Vec<u16> =
            (0..pixels).map(|i| ((i * 2_654_435_761) >> 9) as u16 & if i % 50 == 0 { 0xFFFF } else { 0x07FF }).collect();
        let plane =
            |value: f32| (0..pixels).map(|i| if i % 97 == 5 { f32::NAN } else { value + (i % 7) as f32 }).collect::<Vec<_>>();
        let planes: Vec<Vec<f32>> = [1000.0, 15000.0, 14000.0, 0.01, -0.5, -3.0].map(plane).into();
        let constants =
            Constants { pedestal: [&planes[0], &planes[1], &planes[2]], factor: [&planes[3], &planes[4], &planes[5]] };
        let mut whole = vec![P::default(); pixels];
        convert::jungfrau(Isa::Scalar, &raw, &constants, &mut whole);
        let element = ElementSize::new(size_of::<P>()).unwrap();
        let expected = pack(Isa::Scalar, element, bytemuck::cast_slice(&whole));
        for &isa in Isa::available() {
            let mut scratch = FusedScratch::new();
            let mut out = vec![0; bslz4_bound(pixels, element)];
            chunk::write_header(&mut out, size_of_val(&whole[..]) as u64, 8192);
            let (mut at, mut first) = (chunk::HEADER_BYTES, 0);
            while first < pixels {
                let count = block_pixels::<P>().min(pixels - first);
                let cut = count / 3;
                for (from, to) in [(0, cut), (cut, count)] {
                    let part = constants.slice(first + from, to - from);
                    convert::jungfrau(isa, &raw[first + from..first + to], &part, &mut scratch.pixels_mut::<P>()[from..to]);
                }
                let room = at + blocks_bound(count, element);
                at += scratch.pack_block::<P>(isa, count, &mut out[at..room]);
                first += count;
            }
            assert_eq!(out[..at], expected, "{isa}");
        }
    }
    for pixels in [5, 8, 4096, 3 * 4096 + 1003] {
        check::<i16>(pixels);
        check::<u16>(pixels);
        check::<i32>(pixels);
        check::<u32>(pixels);
        check::<f32>(pixels);
    }
}

#[test]
fn the_block_length_of_the_header_holds() {
    // jungfrau_utils writes blocks of 32768 elements.
    let image = image(2 * 70_001, 3);
    let mut chunk = vec![0; 300_000];
    chunk::write_header(&mut chunk, image.len() as u64, 65536);
    let mut encoder = konkordia_kernels::lz4::Encoder::new();
    let mut at = 12;
    let grouped = image.len() / 16 * 16;
    for block in image[..grouped].chunks(65536) {
        let mut planes = vec![0; block.len()];
        konkordia_kernels::bitshuffle::shuffle(Isa::detect(), ElementSize::Two, block, &mut planes);
        at += chunk::write_block(&mut encoder, &planes, &mut chunk[at..]);
    }
    chunk[at..at + image.len() - grouped].copy_from_slice(&image[grouped..]);
    chunk.truncate(at + image.len() - grouped);
    let mut back = vec![0; image.len()];
    decompress_chunk(Isa::detect(), &chunk, ElementSize::Two, &mut back).unwrap();
    assert_eq!(back, image);
}

#[test]
fn broken_chunks_say_what_is_wrong() {
    let decode = |chunk: &[u8], bytes: usize| decompress_chunk(Isa::detect(), chunk, ElementSize::Two, &mut vec![0; bytes]);
    let with = |at: usize, value: u8| {
        let mut chunk = TINY;
        chunk[at] = value;
        chunk
    };
    assert_eq!(decode(&TINY, 38), Ok(()));
    assert_eq!(decode(&TINY, 36), Err(ChunkError::WrongLength { found: 38, expected: 36 }));
    assert_eq!(decode(&with(0, 0xFF), 38), Err(ChunkError::WrongLength { found: 0xFF00_0000_0000_0026, expected: 38 }));
    assert_eq!(decode(&TINY[..11], 38), Err(ChunkError::Truncated { at: 11, what: "the header" }));
    assert_eq!(decode(&TINY[..14], 38), Err(ChunkError::Truncated { at: 14, what: "the length of a block" }));
    assert_eq!(decode(&TINY[..20], 38), Err(ChunkError::Truncated { at: 20, what: "a block" }));
    assert_eq!(decode(&TINY[..34], 38), Err(ChunkError::Truncated { at: 34, what: "the last pixels" }));
    assert_eq!(decode(&with(12, 0xFF), 38), Err(ChunkError::Truncated { at: 35, what: "a block" }));
    assert_eq!(decode(&with(10, 0), 38), Err(ChunkError::BlockBytes(0)));
    assert_eq!(decode(&with(11, 4), 38), Err(ChunkError::BlockBytes(0x2004)));
    assert_eq!(decode(&with(8, 0xFF), 38), Err(ChunkError::BlockBytes(0xFF00_2000)));
    assert_eq!(decode(&with(22, 4), 38), Err(ChunkError::Block { block: 0, at: 16, bytes: 32 }));
    assert_eq!(decode(&with(20, 9), 38), Err(ChunkError::Block { block: 0, at: 16, bytes: 32 }));
    assert_eq!(decode(&[&TINY[..], &[0]].concat(), 38), Err(ChunkError::Trailing(1)));
    assert_eq!(decode(&[0; 12], 0), Err(ChunkError::BlockBytes(0)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_image_comes_back(bytes in prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0..20_000), size in 0usize..3) {
        let element = ElementSize::ALL[size];
        let image = &bytes[..bytes.len() / element.bytes() * element.bytes()];
        let chunk = pack(Isa::detect(), element, image);
        let mut back = vec![0; image.len()];
        prop_assert_eq!(decompress_chunk(Isa::detect(), &chunk, element, &mut back), Ok(()));
        prop_assert_eq!(&back[..], image);
        prop_assert_eq!(&other_decoder(&chunk, element.bytes())[..], image);
    }

    /// Whatever happens to the bytes, decoding ends with a result and never with a panic.
    #[test]
    fn damaged_chunks_never_panic(seed in any::<u64>(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20), cut in any::<prop::sample::Index>(), size in 0usize..3) {
        let element = ElementSize::ALL[size];
        let image = image(9000 * element.bytes(), seed);
        let mut chunk = pack(Isa::detect(), element, &image);
        for (place, value) in hits {
            let place = place.index(chunk.len());
            chunk[place] = value;
        }
        let mut back = vec![0; image.len()];
        let _ = decompress_chunk(Isa::detect(), &chunk, element, &mut back);
        let short = decompress_chunk(Isa::detect(), &chunk[..cut.index(chunk.len())], element, &mut back);
        prop_assert!(short.is_err() || back.is_empty());
    }

    #[test]
    fn random_bytes_never_panic(chunk in prop::collection::vec(any::<u8>(), 0..200), bytes in 0u8..200, size in 0usize..3) {
        let mut chunk = chunk;
        if chunk.len() >= 12 {
            chunk[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, bytes, 0, 0, 0, 64]);
        }
        let _ = decompress_chunk(Isa::detect(), &chunk, ElementSize::ALL[size], &mut vec![0; usize::from(bytes)]);
    }
}
