//! Every codec gives the image back, strips may be cut anywhere, and no bytes make a decoder panic.

use konkordia_core::plan::{BlockSize, Compression};
use konkordia_kernels::codec;
use konkordia_kernels::fused::{FusedScratch, compress_chunk};
use konkordia_kernels::{ElementSize, Isa, chunk};
use proptest::prelude::*;

const CODECS: [Compression; 10] = [
    Compression::None,
    Compression::BSLZ4,
    Compression::LZ4,
    Compression::BSZSTD,
    Compression::Bszstd { level: 5, block: BlockSize::KIB_64 },
    Compression::Zstd { level: 1 },
    Compression::Zstd { level: 9 },
    Compression::Gzip { level: 1 },
    Compression::Gzip { level: 6 },
    Compression::Bszstd { level: 19, block: BlockSize::KIB_64 },
];

/// Bytes of an image, from empty to incompressible by `kind`.
fn image(bytes: usize, kind: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    };
    (0..bytes)
        .map(|i| match kind {
            0 => 0,
            1 => [2, 0x80][i % 2],
            2 => (next() % 3 * (1 - i as u64 % 2)) as u8,
            3 => (i / 7) as u8,
            _ => next() as u8,
        })
        .collect()
}

fn back(codec: Compression, chunk: &[u8], element: ElementSize, bytes: usize) -> Result<Vec<u8>, chunk::ChunkError> {
    let mut out = vec![0xA5; bytes];
    codec::decompress(codec, Isa::detect(), chunk, element, &mut out).map(|()| out)
}

#[test]
fn images_come_back_whatever_their_size() {
    for codec in CODECS {
        for element in ElementSize::ALL {
            for elements in [1, 7, 8, 9, 2047, 4096, 4099, 32768, 32771, 70_001, 150_003] {
                for kind in 0..5 {
                    let image = image(elements * element.bytes(), kind, elements as u64 * 77 + kind as u64);
                    let chunk = codec::compress(codec, Isa::detect(), element, &image, 131_072);
                    assert!(
                        back(codec, &chunk, element, image.len()).unwrap() == image,
                        "{codec:?} {element:?} {elements} {kind}"
                    );
                }
            }
        }
    }
}

/// The strips of the standard streams decode with decoders that know nothing of strips: the one-shot decoders of the
/// crates for Zstd and zlib. The readers' tests do the same with the plugins.
#[test]
fn many_strips_are_one_frame_and_one_stream() {
    use std::io::Read;
    for kind in 0..5 {
        let image = image(1_000_003 * 2, kind, 5);
        for strip in [65536, 131_072, 655_360] {
            let frame = codec::compress(Compression::Zstd { level: 1 }, Isa::detect(), ElementSize::Two, &image, strip);
            let mut out = vec![0; image.len()];
            assert_eq!(zstd_safe::find_frame_compressed_size(&frame), Ok(frame.len()), "one frame");
            assert_eq!(zstd_safe::get_frame_content_size(&frame).unwrap(), Some(image.len() as u64));
            assert_eq!(zstd_safe::decompress(&mut out[..], &frame), Ok(image.len()));
            assert!(out == image);
            let stream = codec::compress(Compression::Gzip { level: 1 }, Isa::detect(), ElementSize::Two, &image, strip);
            let mut out = Vec::new();
            flate2::read::ZlibDecoder::new(&stream[..]).read_to_end(&mut out).unwrap();
            assert!(out == image);
        }
    }
}

/// Blocks of every size, in all codecs that have blocks, with strips of several blocks and images that end inside one.
#[test]
fn images_come_back_whatever_the_block() {
    for block in BlockSize::all() {
        let codecs = [Compression::BSLZ4, Compression::BSZSTD, Compression::BSZSTD.with_level(3).unwrap(), Compression::LZ4];
        for codec in codecs.map(|codec| codec.with_block(block).unwrap()) {
            for element in ElementSize::ALL {
                let whole = block.bytes() / element.bytes();
                for elements in [5, whole, 2 * whole + 11, 70_001] {
                    for kind in 0..5 {
                        let image = image(elements * element.bytes(), kind, elements as u64 * 77 + kind as u64);
                        let chunk = codec::compress(codec, Isa::detect(), element, &image, 131_072);
                        // Filter 32004 has no blocks longer than the image.
                        let is_lz4 = matches!(codec, Compression::Lz4 { .. });
                        let stated = if is_lz4 { block.bytes().min(image.len()) } else { block.bytes() };
                        assert_eq!(chunk[8..12], (stated as u32).to_be_bytes(), "{codec:?}");
                        assert!(back(codec, &chunk, element, image.len()).unwrap() == image, "{codec:?} {element:?} {elements}");
                    }
                }
            }
        }
    }
}

#[test]
fn fused_and_packer_give_the_same_chunk() {
    let image = image(50_001 * 2, 2, 3);
    let mut scratch = FusedScratch::new();
    let mut out = vec![0; chunk::bslz4_bound(50_001, ElementSize::Two)];
    let length = compress_chunk(Isa::detect(), &mut scratch, ElementSize::Two, &image, &mut out);
    assert!(out[..length] == codec::compress(Compression::BSLZ4, Isa::detect(), ElementSize::Two, &image, 65536));
}

/// The memory that a plan counts for each worker (`Plan::memory`): 2 MiB up to level 4, 16 MiB above.
#[test]
fn zstd_takes_no_more_memory_than_planned() {
    let image = image(256 << 10, 2, 9);
    let mut out = vec![0; codec::piece_bound(Compression::Zstd { level: 1 }, image.len())];
    for level in 1..=22 {
        let mut blocks = konkordia_kernels::zstd::Encoder::new(level);
        blocks.block(&image[..65536], &mut out);
        let mut strips = konkordia_kernels::zstd::Encoder::new(level);
        strips.strip(&image, &mut out);
        let planned = if level < 5 { 2 << 20 } else { 16 << 20 };
        let taken = [blocks.memory_bytes(), strips.memory_bytes()];
        assert!(taken.iter().all(|bytes| *bytes <= planned), "level {level}: {taken:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_chunks_are_refused_or_give_an_image(
        which in 0usize..10, elements in 1usize..9000, kind in 0usize..5,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(), cuts in any::<bool>(),
    ) {
        let (codec, element) = (CODECS[which], ElementSize::Two);
        let image = image(elements * 2, kind, elements as u64);
        let mut chunk = codec::compress(codec, Isa::detect(), element, &image, 65536);
        if cuts {
            chunk.truncate(cut.index(chunk.len()));
            prop_assert!(back(codec, &chunk, element, image.len()).is_err());
        } else {
            damage.iter().for_each(|(at, value)| { let at = at.index(chunk.len()); chunk[at] = *value; });
            let _ = back(codec, &chunk, element, image.len());
            chunk.extend([0, 1, 2]);
            prop_assert!(back(codec, &chunk, element, image.len()).is_err());
        }
        prop_assert!(back(codec, &[], element, image.len()).is_err());
    }

    #[test]
    fn noise_is_refused(which in 1usize..10, noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(back(CODECS[which], &noise, ElementSize::Four, 4096).is_err());
    }

    #[test]
    fn checksums_combine(bytes in proptest::collection::vec(any::<u8>(), 0..20_000), cut in any::<prop::sample::Index>()) {
        use konkordia_kernels::deflate::{adler32, adler32_combine};
        let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(adler32_combine(adler32(first), adler32(second), second.len() as u32), adler32(&bytes));
    }
}
