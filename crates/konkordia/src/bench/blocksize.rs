//! `konkordia bench blocksize`: bits per pixel and speed of bitshuffle and compression against the size of the blocks,
//! with the encoders of this program and with those of the libraries.

use super::args::BenchKernelsArgs;
use super::output::Output;
use super::rows::harness::{Row, seconds};
use super::spread::Spread;
use super::tables::{converted, decodes};
use super::{caches, frames};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_kernels::bitshuffle::{self, ElementSize};
use konkordia_kernels::chunk::{HEADER_BYTES, write_block, write_header};
use konkordia_kernels::codec::{Packer, piece_bound};
use konkordia_kernels::{Isa, lz4, zstd};
use serde_json::{Value, json};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

/// Sizes of a block; 128 KiB is the largest that our encoder of Zstd takes, because a block of Zstd is no longer.
const BLOCKS_KIB: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const CODECS: [Compression; 2] = [Compression::BSLZ4, Compression::BSZSTD];

/// What makes a block of transposed pixels smaller.
enum Encoder {
    Own(Box<Packer>),
    Lz4(lz4::Encoder),
    Zstd(zstd::Encoder),
}

/// Packs images in blocks of one size.
struct Job {
    codec: Compression,
    encoder: Encoder,
    block_bytes: usize,
    planes: Vec<u8>,
    chunk: Vec<u8>,
}

/// A line of the table.
struct Line {
    codec: Compression,
    encoder: &'static str,
    block_bytes: usize,
    gb_per_s: Spread,
    bits_per_pixel: f64,
    verified: bool,
}

/// `konkordia bench blocksize`
pub fn command(args: &BenchKernelsArgs) -> Result<Exit, Failure> {
    frames::with_folder(|folder| measure(args, folder))
}

fn measure(args: &BenchKernelsArgs, folder: &Path) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "blocksize")?;
    let frames = frames::load(&args.frames, folder)?;
    let images = converted(&frames, 1.0);
    let lines = lines(&images, args.seconds);
    let verified = lines.iter().all(|line| line.verified);
    let report = json!({
        "machine": machine::facts(), "frames": frames.source, "frame_count": images.len(),
        "rows": lines.iter().map(Line::to_json).collect::<Vec<_>>(), "verified": verified,
    });
    let [first, second, _] = caches::levels_bytes();
    let head = format!(
        "{}\n{} frames ({}), int16, photons; first cache {} KiB, second {} KiB; one core\n\
         GB/s of pixels: median (lowest .. highest) of all samples; library: LZ4 and Zstd of level 1",
        machine::line(),
        images.len(),
        frames.source,
        first >> 10,
        second >> 10
    );
    output.print(report, &format!("{head}\n\n{}", table(&lines)));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// Measures all sizes, codecs and encoders in turn.
fn lines(images: &[Vec<u8>], seconds_each: f64) -> Vec<Line> {
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for codec in CODECS {
        for is_own in [true, false] {
            for kib in BLOCKS_KIB {
                let mut job = Job::new(codec, is_own, kib << 10, images[0].len());
                let (mut bytes, mut verified) = (0, true);
                for image in images {
                    let length = job.pack(image);
                    verified &= decodes(codec, &job.chunk[..length], image);
                    bytes += length;
                }
                let bits_per_pixel = bytes as f64 * 8.0 / (images.len() * images[0].len() / 2) as f64;
                let (encoder, none) = (if is_own { "own" } else { "library" }, Spread::of([]));
                lines.push(Line { codec, encoder, block_bytes: kib << 10, gb_per_s: none, bits_per_pixel, verified });
                let work = Box::new(move |round: usize| {
                    black_box(job.pack(&images[round % images.len()]));
                });
                let (name, isa, raw_bytes) = (codec.name(), Isa::detect(), images[0].len() as f64);
                let bits_per_pixel = Some(bits_per_pixel);
                rows.push(Row { name, isa, plain: 0, raw_bytes, bits_per_pixel, verified, every: 1, work });
            }
        }
    }
    let budget = Duration::from_secs_f64((seconds_each * rows.len() as f64).clamp(0.01, 3600.0));
    for (line, samples) in lines.iter_mut().zip(seconds(&mut rows, budget)) {
        line.gb_per_s = Spread::of(samples.iter().map(|seconds| images[0].len() as f64 / seconds / 1e9));
    }
    lines
}

impl Job {
    fn new(codec: Compression, is_own: bool, block_bytes: usize, image_bytes: usize) -> Self {
        let encoder = match codec {
            _ if is_own => Encoder::Own(Box::new(Packer::new(codec, Isa::detect(), block_bytes))),
            Compression::Bslz4 { .. } => Encoder::Lz4(lz4::Encoder::new()),
            _ => Encoder::Zstd(zstd::Encoder::new(1)),
        };
        let room = HEADER_BYTES + image_bytes.div_ceil(block_bytes) * piece_bound(codec, block_bytes);
        Self { codec, encoder, block_bytes, planes: vec![0; block_bytes], chunk: vec![0; room] }
    }

    /// Makes the chunk of an image of whole blocks and returns its length.
    fn pack(&mut self, image: &[u8]) -> usize {
        assert!(image.len().is_multiple_of(self.block_bytes), "{} has leftover pixels", self.codec.name());
        write_header(&mut self.chunk, image.len() as u64, self.block_bytes as u32);
        let mut at = HEADER_BYTES;
        for block in image.chunks(self.block_bytes) {
            let out = &mut self.chunk[at..];
            at += match &mut self.encoder {
                Encoder::Own(packer) => packer.pack_bytes(ElementSize::Two, block, out),
                Encoder::Lz4(encoder) => {
                    bitshuffle::shuffle(Isa::detect(), ElementSize::Two, block, &mut self.planes);
                    write_block(encoder, &self.planes, out)
                }
                Encoder::Zstd(encoder) => {
                    bitshuffle::shuffle(Isa::detect(), ElementSize::Two, block, &mut self.planes);
                    encoder.block(&self.planes, out)
                }
            };
        }
        at
    }
}

impl Line {
    fn block(&self) -> String {
        format!("{} KiB", self.block_bytes >> 10)
    }

    fn to_json(&self) -> Value {
        json!({
            "codec": self.codec.name(), "encoder": self.encoder, "block": self.block(), "block_bytes": self.block_bytes,
            "gigabytes_per_second": self.gb_per_s.to_json(), "bits_per_pixel": self.bits_per_pixel, "verified": self.verified,
        })
    }
}

fn table(lines: &[Line]) -> String {
    let head = ["codec", "encoder", "block", "GB/s", "bit/pixel", "output"].map(str::to_string).to_vec();
    let row = |line: &Line| {
        vec![
            line.codec.name().into(),
            line.encoder.into(),
            line.block(),
            line.gb_per_s.to_text(2),
            format!("{:.3}", line.bits_per_pixel),
            if line.verified { "equal".into() } else { "WRONG".into() },
        ]
    };
    text::table(&std::iter::once(head).chain(lines.iter().map(row)).collect::<Vec<_>>())
}
