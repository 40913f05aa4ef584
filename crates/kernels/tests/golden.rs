//! Real data, where they are present: conversion against PSI's own, chunks of real detectors, the fused kernel against
//! the plain way.

#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_core::pixel::Pixel;
use konkordia_kernels::baseline::Passes;
use konkordia_kernels::chunk::{self, bslz4_bound, decompress_chunk};
use konkordia_kernels::convert::{self, Constants, count_words};
use konkordia_kernels::fused::{FusedScratch, block_pixels, compress_chunk};
use konkordia_kernels::{ElementSize, Isa};
use std::path::PathBuf;

const PIXELS: usize = 512 * 1024;
const ENERGY_KEV: f64 = 12.4;

fn floats(path: PathBuf) -> Vec<f32> {
    let bytes = std::fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn frame(folder: &std::path::Path, index: usize) -> Vec<u16> {
    let bytes = std::fs::read(folder.join(format!("raw_{index:02}.u16"))).unwrap();
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Pedestals and factors as the program makes them at arm: the reciprocal of gain times energy in double precision,
/// rounded once to single.
struct Calibration {
    pedestal: Vec<Vec<f32>>,
    factor: Vec<Vec<f32>>,
}

impl Calibration {
    fn read(folder: &std::path::Path) -> Self {
        let pedestal: Vec<Vec<f32>> = (0..3).map(|stage| floats(folder.join(format!("pedestal_g{stage}.f32")))).collect();
        let gain = floats(folder.join("gain_adu_per_kev.f32"));
        let factor = |(i, gain): (usize, &f32)| match pedestal[0][i] {
            0.0 | 16383.0 => f32::NAN,
            _ => (1.0 / (f64::from(*gain) * ENERGY_KEV)) as f32,
        };
        let factor = gain.chunks_exact(PIXELS).map(|plane| plane.iter().enumerate().map(factor).collect()).collect();
        Self { pedestal, factor }
    }

    fn constants(&self) -> Constants<'_> {
        Constants {
            pedestal: [&self.pedestal[0], &self.pedestal[1], &self.pedestal[2]],
            factor: [&self.factor[0], &self.factor[1], &self.factor[2]],
        }
    }
}

/// Every pixel of ten frames equals the reference, rounded half to even. A reference value that is exactly a whole
/// number and a half is a tie; there the last bit of the reference decides, so ties are counted separately.
#[test]
fn ten_frames_equal_the_reference_conversion() {
    let Some(folder) = skip::data("jungfrau-lyso") else { return };
    let calibration = Calibration::read(&folder);
    let (mut compared, mut different, mut ties, mut ties_different, mut masked) =
        ([0u64; 3], [0u64; 3], [0u64; 3], [0u64; 3], 0u64);
    for index in 0..10 {
        let raw = frame(&folder, index);
        let reference = floats(folder.join(format!("photons_{index:02}.f32")));
        let mut ours = vec![0i16; PIXELS];
        convert::jungfrau(Isa::Scalar, &raw, &calibration.constants(), &mut ours);
        for &isa in Isa::available() {
            let mut same = vec![0i16; PIXELS];
            convert::jungfrau(isa, &raw, &calibration.constants(), &mut same);
            assert!(same == ours, "{isa}, frame {index}");
        }
        for i in 0..PIXELS {
            let (word, reference) = (raw[i], reference[i]);
            if calibration.factor[0][i].is_nan() {
                assert_eq!(ours[i], i16::MASKED, "pixel {i} is not usable");
                masked += 1;
            } else if word == 0xC000 {
                assert_eq!((ours[i], reference), (i16::SATURATED, 32678.0), "pixel {i} is saturated");
            } else {
                let stage = [0, 1, 9, 2][usize::from(word >> 14)];
                let tie = (reference - reference.floor()) == 0.5;
                let differs = f32::from(ours[i]) != reference.round_ties_even();
                compared[stage] += 1;
                ties[stage] += u64::from(tie);
                *(if tie { &mut ties_different[stage] } else { &mut different[stage] }) += u64::from(differs);
            }
        }
        let counts = count_words(&raw);
        assert_eq!((counts.illegal, counts.missing), (0, 0));
    }
    println!(
        "G0, G1, G2: {compared:?} pixels compared, {different:?} differ; of {ties:?} exact ties {ties_different:?} differ; {masked} masked"
    );
    assert_eq!(different, [0, 0, 0]);
    assert!(compared[0] > 5_200_000 && compared[1] > 4000 && compared[2] > 100);
    assert_eq!(masked, 10 * 83);
}

#[test]
fn fused_real_frames_have_the_pixels_of_the_plain_way_and_are_hardly_larger() {
    let Some(folder) = skip::data("jungfrau-lyso") else { return };
    let calibration = Calibration::read(&folder);
    let constants = calibration.constants();
    let room = bslz4_bound(PIXELS, ElementSize::Two);
    let (mut passes, mut scratch) = (Passes::<i16>::new(PIXELS), FusedScratch::new());
    for index in [0, 7] {
        let raw = frame(&folder, index);
        let mut plain = vec![0; room];
        let length = passes.run(&raw, &constants, &mut plain);
        let mut pixels = vec![0i16; PIXELS];
        convert::jungfrau(Isa::Scalar, &raw, &constants, &mut pixels);
        let mut back = vec![0; PIXELS * 2];
        decompress_chunk(Isa::detect(), &plain[..length], ElementSize::Two, &mut back).unwrap();
        assert!(back == bytemuck::cast_slice::<i16, u8>(&pixels));
        let mut whole = vec![0; room];
        let whole_length = compress_chunk(Isa::Scalar, &mut scratch, ElementSize::Two, &back, &mut whole);
        assert!(whole_length as f64 <= 1.025 * length as f64, "{whole_length} bytes, {length} the plain way");
        for &isa in Isa::available() {
            let mut fused = vec![0; room];
            chunk::write_header(&mut fused, 2 * PIXELS as u64, 8192);
            let mut at = chunk::HEADER_BYTES;
            for (block, words) in raw.chunks(block_pixels::<i16>()).enumerate() {
                let constants = constants.slice(block * block_pixels::<i16>(), words.len());
                at += scratch.convert_and_pack_block::<i16>(isa, words, &constants, &mut fused[at..]);
            }
            assert!(fused[..at] == whole[..whole_length], "{isa}, frame {index}");
            let mut same = vec![0; PIXELS * 2];
            decompress_chunk(isa, &fused[..at], ElementSize::Two, &mut same).unwrap();
            assert!(same == back, "{isa}, frame {index}");
        }
    }
}

/// The chunks in a V2 stream: byte strings behind CBOR tag 56500 over ["bslz4", element size, bytes].
fn cbor_chunks(message: &[u8]) -> Vec<(usize, &[u8])> {
    let mark = b"\xD9\xDC\xB4\x83\x65bslz4";
    let mut found = Vec::new();
    for at in 0..message.len().saturating_sub(mark.len() + 6) {
        if !message[at..].starts_with(mark) {
            continue;
        }
        let rest = &message[at + mark.len()..];
        let (width, element) = (usize::from(rest[1] & 7), usize::from(rest[0]));
        let head = [1usize, 2, 4, 8][width];
        let length = rest[2..2 + head].iter().fold(0, |length, &b| length << 8 | usize::from(b));
        found.push((element, &rest[2 + head..2 + head + length]));
    }
    found
}

/// The chunks in a V1 stream: the part after a `dimage_d` with encoding bsN-lz4.
fn json_chunks<'a>(parts: &[&'a [u8]]) -> Vec<(usize, &'a [u8])> {
    let is_chunk = |part: &[u8]| part.starts_with(b"{") && part.windows(9).any(|text| text == b"bs32-lz4<");
    parts.windows(2).filter(|pair| is_chunk(pair[0])).map(|pair| (4, pair[1])).collect()
}

#[test]
fn chunks_of_real_dectris_detectors_decode() {
    let Some(folder) = skip::data("eiger-streams") else { return };
    let files = [("eiger-1m-stream-v1.zmsg", 9), ("eiger-1m-stream-v2.zmsg", 10), ("eiger2-500k-3channel-stream-v2.zmsg", 9)];
    for (name, expected) in files {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (mut at, mut chunks) = (0, Vec::new());
        while at < bytes.len() {
            let mut parts = Vec::new();
            let count = number(at);
            at += 4;
            for _ in 0..count {
                parts.push(&bytes[at + 4..at + 4 + number(at)]);
                at += 4 + number(at);
            }
            chunks.extend(json_chunks(&parts));
            chunks.extend(parts.iter().flat_map(|part| cbor_chunks(part)));
        }
        assert_eq!(chunks.len(), expected, "{name}");
        for (element, chunk) in chunks {
            let element = ElementSize::new(element).unwrap();
            let total = u64::from_be_bytes(chunk[..8].try_into().unwrap()) as usize;
            let mut first: Option<Vec<u8>> = None;
            for &isa in Isa::available() {
                let mut image = vec![0; total];
                decompress_chunk(isa, chunk, element, &mut image).unwrap();
                assert!(*first.get_or_insert_with(|| image.clone()) == image, "{name}, {isa}");
            }
            let image = first.unwrap();
            let mut again = vec![0; bslz4_bound(total / element.bytes(), element)];
            let length = compress_chunk(Isa::detect(), &mut FusedScratch::new(), element, &image, &mut again);
            let mut same = vec![0; total];
            decompress_chunk(Isa::detect(), &again[..length], element, &mut same).unwrap();
            assert!(same == image, "{name}: packed again, it is the same image");
            assert!(length as f64 <= 1.05 * chunk.len() as f64, "{name}: {length} bytes, {} of the detector", chunk.len());
        }
    }
}
