//! Real frames of a JUNGFRAU: converted, packed and counted by the kernels one after the other, as on the CPU.

use konkordia_core::pixel::Pixel;
use konkordia_core::plan::Compression;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_gpu::program::{BLOCK_BYTES, SLOT_BYTES};
use konkordia_kernels::{Constants, ElementSize, Isa, above, bitshuffle, chunk, codec, convert, lz4};
use std::path::Path;

#[path = "../../../tests/skip.rs"]
mod skip;

const PIXELS: usize = 512 * 1024;
const IMAGE_BYTES: usize = 2 * PIXELS;
const BLOCKS: usize = IMAGE_BYTES / BLOCK_BYTES;
const ONE: Grid = Grid { x: 1, y: 1 };

fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

/// Pedestals and factors of photons of 12.4 keV; NaN where G0 has no usable pedestal.
fn calibration(folder: &Path) -> (Vec<f32>, Vec<f32>) {
    let plane = |stage| floats(&folder.join(format!("pedestal_g{stage}.f32")));
    let pedestal = [plane(0), plane(1), plane(2)].concat();
    let usable = |at: usize| pedestal[at] > 0.0 && pedestal[at] < 16383.0;
    let gains = floats(&folder.join("gain_adu_per_kev.f32"));
    let factor =
        |(at, gain): (usize, &f32)| if usable(at % PIXELS) { (1.0 / (f64::from(*gain) * 12.4)) as f32 } else { f32::NAN };
    let factor = gains.iter().enumerate().map(factor).collect();
    (pedestal, factor)
}

/// Photons of the words by the kernel.
fn photons(words: &[u16], pedestal: &[f32], factor: &[f32]) -> Vec<i16> {
    let mut out = vec![0i16; PIXELS];
    let arguments = [
        Argument::read(words),
        Argument::read(pedestal),
        Argument::read(factor),
        Argument::number(0u32),
        Argument::write(&mut out),
        Argument::number(PIXELS as u32),
        Argument::number(1u32),
    ];
    launch("convert_int16", Grid { x: 64, y: 1 }, Order::Parallel(2), &arguments).expect("no fault");
    out
}

/// The chunk of an image by the kernels.
fn packed(image: &[u8]) -> Vec<u8> {
    let (bytes, element) = (IMAGE_BYTES as u64, 2u32);
    let (mut slots, mut sizes, mut places) = (vec![0u8; BLOCKS * SLOT_BYTES], vec![0u32; BLOCKS], vec![0u32; BLOCKS]);
    let bound = chunk::bslz4_bound(PIXELS, ElementSize::Two);
    let (mut out, mut length) = (vec![0u8; bound], [0u32]);
    let grid = Grid { x: BLOCKS as u32, y: 1 };
    let blocks = [
        Argument::read(image),
        Argument::number(bytes),
        Argument::number(element),
        Argument::write(&mut slots),
        Argument::write(&mut sizes),
    ];
    launch("bslz4_blocks", grid, Order::Parallel(2), &blocks).expect("no fault");
    let header = [
        Argument::read(&sizes),
        Argument::number(BLOCKS as u32),
        Argument::number(bytes),
        Argument::number(element),
        Argument::number(BLOCK_BYTES as u32),
        Argument::write(&mut places),
        Argument::write(&mut out),
        Argument::number(bound as u64),
        Argument::write(&mut length),
    ];
    launch("chunk_places", ONE, Order::Parallel(2), &header).expect("no fault");
    let gather = [
        Argument::read(image),
        Argument::number(bytes),
        Argument::number(element),
        Argument::read(&slots),
        Argument::read(&sizes),
        Argument::read(&places),
        Argument::number(BLOCKS as u32),
        Argument::write(&mut out),
        Argument::number(bound as u64),
        Argument::read(&length),
    ];
    launch("chunk_gather", grid, Order::Parallel(2), &gather).expect("no fault");
    out.truncate(length[0] as usize);
    out
}

/// Number of pixels above `level` by the kernel.
fn above_level(image: &[i16], level: i16) -> u32 {
    let (usable, mut counts) = (vec![1u8; PIXELS], [0u32]);
    let arguments = [
        Argument::read(image),
        Argument::read(&usable),
        Argument::number(level),
        Argument::number(i16::VALID_MAX),
        Argument::write(&mut counts),
        Argument::number(PIXELS as u32),
    ];
    launch("count_above_int16", Grid { x: 16, y: 1 }, Order::Parallel(2), &arguments).expect("no fault");
    counts[0]
}

/// Bytes of the LZ4 blocks of the stock encoder, which searches.
fn with_a_search(image: &[u8]) -> usize {
    let (mut planes, mut out) = (vec![0; BLOCK_BYTES], vec![0; lz4::bound(BLOCK_BYTES)]);
    let mut encoder = lz4::Encoder::new();
    let block = |block: &[u8]| {
        bitshuffle::shuffle(Isa::Scalar, ElementSize::Two, block, &mut planes);
        4 + encoder.compress(&planes, &mut out)
    };
    chunk::HEADER_BYTES + image.chunks(BLOCK_BYTES).map(block).sum::<usize>()
}

#[test]
fn real_frames_become_the_chunks_of_the_cpu() {
    let Some(folder) = skip::data("jungfrau-lyso") else { return };
    let (pedestal, factor) = calibration(&folder);
    let plane = |all: &'_ [f32], stage: usize| all[stage * PIXELS..(stage + 1) * PIXELS].to_vec();
    let [p, f] = [&pedestal, &factor].map(|all| [plane(all, 0), plane(all, 1), plane(all, 2)]);
    let constants = Constants { pedestal: [&p[0], &p[1], &p[2]], factor: [&f[0], &f[1], &f[2]] };
    for index in [0, 7] {
        let bytes = std::fs::read(folder.join(format!("raw_{index:02}.u16"))).expect("a frame");
        let words: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|two| u16::from_le_bytes(*two)).collect();
        let image = photons(&words, &pedestal, &factor);
        let mut expected = vec![0i16; PIXELS];
        convert::jungfrau(Isa::Scalar, &words, &constants, &mut expected);
        assert!(image == expected, "photons of frame {index}");

        let image_bytes: &[u8] = bytemuck::cast_slice(&image);
        let chunk = packed(image_bytes);
        assert!(chunk == codec::compress(Compression::BSLZ4, Isa::Scalar, ElementSize::Two, image_bytes, 1 << 17));
        let mut back = vec![0; IMAGE_BYTES];
        codec::decompress(Compression::BSLZ4, Isa::Scalar, &chunk, ElementSize::Two, &mut back).expect("a whole chunk");
        assert!(back == image_bytes, "frame {index} comes back");
        let searched = with_a_search(image_bytes);
        println!("frame {index}: {IMAGE_BYTES} bytes, packed {}, by the search of the stock encoder {searched}", chunk.len());
        assert!(chunk.len() < IMAGE_BYTES);

        let expected = above::count(Isa::Scalar, &image, &vec![true; PIXELS], 3, i16::VALID_MAX);
        assert_eq!(u64::from(above_level(&image, 3)), expected);
        assert!(expected > 0, "a frame with spots");
    }
}
