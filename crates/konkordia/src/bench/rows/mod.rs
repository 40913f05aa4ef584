//! Times the kernels on the caller's frames, each against the plain way (the baseline) in the same run.
//!
//! All figures are gigabytes (10^9) of raw words per second on one core, medians over interleaved rounds: in each round
//! every row does the same frame, so that a busy machine disturbs all of them alike. Output is `int16`.

pub mod block;
pub mod codecs;
pub mod harness;
pub mod roofline;
pub mod steps;
#[cfg(test)]
mod tests;

use super::spread::median;
use konkordia_core::plan::Compression;
use konkordia_kernels::baseline::{self, Passes};
use konkordia_kernels::bitshuffle::{self, ElementSize};
use konkordia_kernels::chunk::{self, BLOCK_BYTES, bslz4_bound, write_header};
use konkordia_kernels::codec::{self, Packer};
use konkordia_kernels::convert::{self, Constants, scalar};
use konkordia_kernels::fused::{FusedScratch, block_pixels, compress_chunk};
use konkordia_kernels::isa::Isa;
use konkordia_kernels::lz4;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Rounds that are made even if the time is up, so that a median is meaningful.
const ROUNDS_MIN: usize = 3;
/// The rows of the scalar reference run in one round of these.
const SCALAR_EVERY: usize = 20;
/// The codec of the Zstd rows.
const ZSTD: Compression = Compression::BSZSTD;
/// Pixels of a strip for the rows that keep constants in the cache, as the engine's workers do.
const STRIP_PIXELS: usize = 16 * block_pixels::<i16>();

/// One line of the table.
#[derive(Clone, Debug)]
pub struct KernelRow {
    /// What was done.
    pub name: &'static str,
    /// With which instruction set.
    pub isa: Isa,
    /// GB of raw words per second, median.
    pub gb_per_s_raw: f64,
    /// Speed relative to the same work done the plain way in the same run.
    pub ratio_to_baseline: f64,
    /// Bits of compressed output per pixel over all frames, where the row compresses.
    pub bits_per_pixel: Option<f64>,
    /// Was the output equal to the reference?
    pub verified: bool,
}

/// What a row does with a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    PlainConvert,
    PlainShuffle,
    PlainCompress,
    PlainAll,
    /// Decompress each block with the library's call, then transpose the image back.
    PlainDecode,
    Convert,
    Shuffle,
    Unshuffle,
    Fused,
    FusedStrips,
    ConvertShuffle,
    Decode,
    /// Transpose the image in blocks of 64 KiB, then compress each with the library's simple call at level 1.
    PlainZstd,
    /// Decompress each block with the library's simple call, then transpose the image back.
    PlainZstdBack,
    /// The codec `bszstd` on pixels.
    Zstd,
    ZstdBack,
}

struct Job {
    name: &'static str,
    isa: Isa,
    work: Work,
    /// Index of the row that does the same work the plain way.
    plain: usize,
    seconds: Vec<f64>,
}

impl Job {
    fn is_plain(&self) -> bool {
        use Work::{PlainAll, PlainCompress, PlainConvert, PlainDecode, PlainShuffle, PlainZstd, PlainZstdBack};
        matches!(self.work, PlainConvert | PlainShuffle | PlainCompress | PlainAll | PlainZstd | PlainZstdBack | PlainDecode)
    }
}

/// All buffers of the rows.
struct Bench<'a> {
    frames: &'a [Vec<u16>],
    constants: Constants<'a>,
    /// Of each frame: pixels by the scalar reference, their planes, their chunk by the plain way and ours.
    pixels: Vec<Vec<i16>>,
    planes: Vec<Vec<u8>>,
    plain_chunks: Vec<Vec<u8>>,
    chunks: Vec<Vec<u8>>,
    /// Chunks of `bszstd` the plain way and ours.
    plain_zstd: Vec<Vec<u8>>,
    zstd: Vec<Vec<u8>>,
    packer: Packer,
    passes: Passes<i16>,
    scratch: FusedScratch,
    image: Vec<i16>,
    bytes: Vec<u8>,
    planes_back: Vec<u8>,
    chunk: Vec<u8>,
}

/// Runs all rows for about `budget`; two seconds give stable medians for frames of a megapixel.
///
/// `constants` serve every frame and have its length.
///
/// # Errors
/// If there is no frame, or frames or constants differ in length.
pub fn run(frames: &[Vec<u16>], constants: &Constants<'_>, budget: Duration) -> Result<Vec<KernelRow>, String> {
    check(frames, constants)?;
    let mut bench = Bench::new(frames, *constants);
    let mut jobs = jobs();
    let verified: Vec<bool> = jobs.iter().map(|job| (0..frames.len()).all(|frame| bench.verify(job, frame))).collect();
    let start = Instant::now();
    let mut round = 0;
    while round < ROUNDS_MIN || start.elapsed() < budget {
        // The scalar reference takes ten times as long as all else together, so it runs in few rounds.
        for job in jobs.iter_mut().filter(|job| job.isa != Isa::Scalar || job.is_plain() || round % SCALAR_EVERY == 0) {
            job.seconds.push(bench.time(job, round % frames.len()));
        }
        round += 1;
    }
    Ok(rows(&bench, &mut jobs, &verified))
}

fn check(frames: &[Vec<u16>], constants: &Constants<'_>) -> Result<(), String> {
    let pixels = frames.first().map_or(0, Vec::len);
    if pixels == 0 {
        return Err("the benchmark needs at least one frame with at least one pixel".into());
    }
    if let Some(i) = frames.iter().position(|frame| frame.len() != pixels) {
        return Err(format!("frame {i} has {} pixels, the first has {pixels}; give frames of one size", frames[i].len()));
    }
    if constants.pedestal.iter().chain(&constants.factor).any(|plane| plane.len() != pixels) {
        return Err(format!("the constants do not have the {pixels} pixels of the frames"));
    }
    Ok(())
}

/// The rows: the plain way first, then each instruction set.
fn jobs() -> Vec<Job> {
    let job = |name, isa, work, plain| Job { name, isa, work, plain, seconds: Vec::new() };
    let base = baseline::isa();
    let mut jobs = vec![
        job("plain: convert", base, Work::PlainConvert, 0),
        job("plain: bitshuffle", base, Work::PlainShuffle, 1),
        job("plain: lz4", base, Work::PlainCompress, 2),
        job("plain: all three in passes", base, Work::PlainAll, 3),
        job("plain: bitshuffle, zstd (64 KiB)", base, Work::PlainZstd, 4),
        job("plain: unzstd, bitshuffle back", base, Work::PlainZstdBack, 5),
        job("plain: unlz4, bitshuffle back", base, Work::PlainDecode, 6),
    ];
    for &isa in Isa::available() {
        jobs.push(job("convert", isa, Work::Convert, 0));
        jobs.push(job("bitshuffle", isa, Work::Shuffle, 1));
        jobs.push(job("bitshuffle back", isa, Work::Unshuffle, 1));
        jobs.push(job("fused convert + bitshuffle", isa, Work::ConvertShuffle, 3));
        jobs.push(job("fused convert + bitshuffle + lz4", isa, Work::Fused, 3));
        jobs.push(job("the same, strip by strip", isa, Work::FusedStrips, 3));
        jobs.push(job("decode", isa, Work::Decode, 6));
    }
    // Zstd itself takes nearly all of the time, whatever the instruction set of the rest.
    jobs.push(job("bszstd of pixels", Isa::detect(), Work::Zstd, 4));
    jobs.push(job("bszstd decode", Isa::detect(), Work::ZstdBack, 5));
    jobs
}

fn rows(bench: &Bench<'_>, jobs: &mut [Job], verified: &[bool]) -> Vec<KernelRow> {
    let pixels = bench.frames[0].len();
    let medians: Vec<f64> = jobs.iter_mut().map(|job| median(&mut job.seconds)).collect();
    let bits = |chunks: &[Vec<u8>]| {
        let compressed: usize = chunks.iter().map(Vec::len).sum();
        Some(compressed as f64 * 8.0 / (pixels * bench.frames.len()) as f64)
    };
    let row = |(i, job): (usize, &Job)| KernelRow {
        name: job.name,
        isa: job.isa,
        gb_per_s_raw: raw_bytes(bench, job.work) / medians[i] / 1e9,
        ratio_to_baseline: medians[job.plain] / raw_bytes(bench, Work::Fused) * raw_bytes(bench, job.work) / medians[i],
        bits_per_pixel: match job.work {
            Work::PlainAll | Work::PlainCompress => bits(&bench.plain_chunks),
            Work::Fused | Work::FusedStrips => bits(&bench.chunks),
            Work::PlainZstd => bits(&bench.plain_zstd),
            Work::Zstd => bits(&bench.zstd),
            _ => None,
        },
        verified: verified[i],
    };
    jobs.iter().enumerate().map(row).collect()
}

/// Raw bytes that one sample of a row does: a frame, or one strip of every frame.
fn raw_bytes(bench: &Bench<'_>, work: Work) -> f64 {
    let frame = bench.frames[0].len();
    2.0 * if work == Work::FusedStrips { frame.min(STRIP_PIXELS) * bench.frames.len() } else { frame } as f64
}

impl<'a> Bench<'a> {
    fn new(frames: &'a [Vec<u16>], constants: Constants<'a>) -> Self {
        let pixels = frames[0].len();
        let room = bslz4_bound(pixels, ElementSize::Two);
        let mut bench = Self {
            frames,
            constants,
            pixels: Vec::new(),
            planes: Vec::new(),
            plain_chunks: Vec::new(),
            chunks: Vec::new(),
            plain_zstd: Vec::new(),
            zstd: Vec::new(),
            packer: Packer::new(ZSTD, Isa::detect(), ZSTD.block_bytes()),
            passes: Passes::new(pixels),
            scratch: FusedScratch::new(),
            image: vec![0; pixels],
            bytes: vec![0; pixels * 2],
            planes_back: vec![0; pixels * 2],
            chunk: vec![0; room + pixels / 64 + 4096],
        };
        for frame in frames {
            let mut reference = vec![0i16; pixels];
            scalar::jungfrau(frame, &constants, &mut reference);
            let mut planes = vec![0; pixels * 2];
            baseline::shuffle(ElementSize::Two, bytemuck::cast_slice(&reference), &mut planes);
            let length = baseline::compress(ElementSize::Two, &planes, &mut bench.chunk);
            bench.plain_chunks.push(bench.chunk[..length].to_vec());
            let image = bytemuck::cast_slice(&reference);
            let length = compress_chunk(Isa::Scalar, &mut bench.scratch, ElementSize::Two, image, &mut bench.chunk);
            bench.chunks.push(bench.chunk[..length].to_vec());
            let length = plain_zstd(bytemuck::cast_slice(&reference), &mut bench.bytes, &mut bench.chunk);
            bench.plain_zstd.push(bench.chunk[..length].to_vec());
            let length = zstd_pack(&mut bench.packer, bytemuck::cast_slice(&reference), &mut bench.chunk);
            bench.zstd.push(bench.chunk[..length].to_vec());
            bench.pixels.push(reference);
            bench.planes.push(planes);
        }
        bench
    }

    fn time(&mut self, job: &Job, frame: usize) -> f64 {
        let start = Instant::now();
        black_box(self.work(job, frame));
        start.elapsed().as_secs_f64()
    }

    /// Does the work of a row on a frame; returns the length of the chunk if it makes one.
    fn work(&mut self, job: &Job, frame: usize) -> usize {
        let raw = &self.frames[frame];
        match job.work {
            Work::PlainConvert => baseline::convert(raw, &self.constants, &mut self.image),
            Work::PlainShuffle => baseline::shuffle(ElementSize::Two, bytemuck::cast_slice(&self.pixels[frame]), &mut self.bytes),
            Work::PlainCompress => return baseline::compress(ElementSize::Two, &self.planes[frame], &mut self.chunk),
            Work::PlainAll => return self.passes.run(raw, &self.constants, &mut self.chunk),
            Work::PlainDecode => plain_decode(&self.plain_chunks[frame], &mut self.planes_back, &mut self.bytes),
            Work::Convert => convert::jungfrau(job.isa, raw, &self.constants, &mut self.image),
            Work::Shuffle => by_block(bytemuck::cast_slice(&self.pixels[frame]), &mut self.bytes, |input, out| {
                bitshuffle::shuffle(job.isa, ElementSize::Two, input, out)
            }),
            Work::Unshuffle => by_block(&self.planes[frame], &mut self.bytes, |input, out| {
                bitshuffle::unshuffle(job.isa, ElementSize::Two, input, out)
            }),
            Work::ConvertShuffle => self.convert_and_shuffle(job.isa, frame),
            Work::Fused => return self.fused(job.isa, frame),
            Work::FusedStrips => return self.strips(job.isa, frame),
            Work::Decode => {
                let done = chunk::decompress_chunk(job.isa, &self.chunks[frame], ElementSize::Two, &mut self.bytes);
                done.expect("the bench made this chunk");
            }
            Work::PlainZstd => return plain_zstd(bytemuck::cast_slice(&self.pixels[frame]), &mut self.bytes, &mut self.chunk),
            Work::PlainZstdBack => plain_zstd_back(&self.plain_zstd[frame], &mut self.planes_back, &mut self.bytes),
            Work::Zstd => return zstd_pack(&mut self.packer, bytemuck::cast_slice(&self.pixels[frame]), &mut self.chunk),
            Work::ZstdBack => {
                let done = codec::decompress(ZSTD, job.isa, &self.zstd[frame], ElementSize::Two, &mut self.bytes);
                done.expect("the bench made this chunk");
            }
        }
        0
    }

    fn convert_and_shuffle(&mut self, isa: Isa, frame: usize) {
        let mut first = 0;
        for raw in self.frames[frame].chunks(block_pixels::<i16>()) {
            let pixels = &mut self.scratch.pixels_mut::<i16>()[..raw.len()];
            convert::jungfrau(isa, raw, &self.constants.slice(first, raw.len()), pixels);
            let whole = raw.len() / 8 * 16;
            let pixels: &[u8] = bytemuck::cast_slice(pixels);
            bitshuffle::shuffle(isa, ElementSize::Two, &pixels[..whole], &mut self.chunk[..whole]);
            black_box(&self.chunk[..whole]);
            first += raw.len();
        }
    }

    fn fused(&mut self, isa: Isa, frame: usize) -> usize {
        let raw = &self.frames[frame];
        write_header(&mut self.chunk, 2 * raw.len() as u64, BLOCK_BYTES as u32);
        let end = chunk::HEADER_BYTES;
        end + pack(&mut self.scratch, isa, raw, &self.constants, &mut self.chunk[end..])
    }

    /// The same strip of every frame, one after the other: its constants come from memory once.
    fn strips(&mut self, isa: Isa, round: usize) -> usize {
        let strip = self.strip_of(round);
        let constants = self.constants.slice(strip.start, strip.len());
        let pack = |frame: &Vec<u16>| pack(&mut self.scratch, isa, &frame[strip.clone()], &constants, &mut self.chunk);
        self.frames.iter().map(pack).sum()
    }

    /// Is the output of a row on a frame what the reference gives?
    fn verify(&mut self, job: &Job, frame: usize) -> bool {
        self.image.fill(-1);
        self.bytes.fill(0xA5);
        self.chunk.fill(0xA5);
        let length = self.work(job, frame);
        let whole = self.bytes.len() / 16 * 16;
        let pixels: &[u8] = bytemuck::cast_slice(&self.pixels[frame]);
        match job.work {
            Work::PlainConvert | Work::Convert => self.image == self.pixels[frame],
            Work::PlainShuffle | Work::Shuffle => self.bytes[..whole] == self.planes[frame][..whole],
            Work::PlainCompress | Work::PlainAll => self.chunk[..length] == self.plain_chunks[frame],
            Work::Fused => {
                let mut back = vec![0xA5; pixels.len()];
                plain_decode(&self.chunk[..length], &mut vec![0; pixels.len()], &mut back);
                self.chunk[..length] == self.chunks[frame] && back == pixels
            }
            Work::Decode | Work::PlainDecode | Work::PlainZstdBack | Work::ZstdBack => self.bytes == pixels,
            Work::PlainZstd | Work::Zstd => {
                let mut back = vec![0xA5; pixels.len()];
                let done = codec::decompress(ZSTD, Isa::Scalar, &self.chunk[..length], ElementSize::Two, &mut back);
                done.is_ok() && back == pixels
            }
            Work::Unshuffle => self.bytes[..whole] == pixels[..whole],
            Work::ConvertShuffle => {
                let last = self.planes[frame].chunks(BLOCK_BYTES).next_back().expect("a frame has a block");
                let grouped = last.len() / 16 * 16;
                self.chunk[..grouped] == last[..grouped]
            }
            Work::FusedStrips => {
                // The strip of the last frame is what lies in the buffer, packed again from the reference pixels.
                let strip = self.strip_of(frame);
                let last = self.pixels.last().expect("there is a frame");
                let mut expected = vec![0; bslz4_bound(strip.len(), ElementSize::Two)];
                let mut at = 0;
                for block in bytemuck::cast_slice::<i16, u8>(&last[strip]).chunks(BLOCK_BYTES) {
                    at += self.scratch.pack_bytes(Isa::Scalar, ElementSize::Two, block, &mut expected[at..]);
                }
                self.chunk[..at] == expected[..at]
            }
        }
    }

    /// The pixels of the strip that a round does.
    fn strip_of(&self, round: usize) -> Range<usize> {
        let pixels = self.frames[0].len();
        let strip = STRIP_PIXELS.min(pixels);
        let first = round % (pixels / strip) * strip;
        first..first + strip
    }
}

/// Two passes: all blocks of 64 KiB transposed, then each compressed. The last pixels beyond a multiple of 8 follow as
/// they are.
fn plain_zstd(image: &[u8], planes: &mut [u8], out: &mut [u8]) -> usize {
    let whole = image.len() / 16 * 16;
    for (block, planes) in image[..whole].chunks(ZSTD.block_bytes()).zip(planes.chunks_mut(ZSTD.block_bytes())) {
        bitshuffle::shuffle(baseline::isa(), ElementSize::Two, block, &mut planes[..block.len()]);
    }
    write_header(out, image.len() as u64, ZSTD.block_bytes() as u32);
    let mut at = chunk::HEADER_BYTES;
    for planes in planes[..whole].chunks(ZSTD.block_bytes()) {
        let written = zstd_safe::compress(&mut out[at + 4..], planes, 1).expect("there is room");
        out[at..at + 4].copy_from_slice(&(written as u32).to_be_bytes());
        at += 4 + written;
    }
    out[at..][..image.len() - whole].copy_from_slice(&image[whole..]);
    at + image.len() - whole
}

fn plain_decode(chunk: &[u8], planes: &mut [u8], image: &mut [u8]) {
    let whole = image.len() / 16 * 16;
    let mut at = chunk::HEADER_BYTES;
    for planes in planes[..whole].chunks_mut(BLOCK_BYTES) {
        let length = u32::from_be_bytes([chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]]) as usize;
        lz4::decompress(&chunk[at + 4..at + 4 + length], planes).expect("the bench made this chunk");
        at += 4 + length;
    }
    for (planes, image) in planes[..whole].chunks(BLOCK_BYTES).zip(image.chunks_mut(BLOCK_BYTES)) {
        bitshuffle::unshuffle(baseline::isa(), ElementSize::Two, planes, &mut image[..planes.len()]);
    }
    image[whole..].copy_from_slice(&chunk[at..]);
}

fn plain_zstd_back(chunk: &[u8], planes: &mut [u8], image: &mut [u8]) {
    let whole = image.len() / 16 * 16;
    let mut at = chunk::HEADER_BYTES;
    for planes in planes[..whole].chunks_mut(ZSTD.block_bytes()) {
        let length = u32::from_be_bytes([chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]]) as usize;
        zstd_safe::decompress(planes, &chunk[at + 4..at + 4 + length]).expect("the bench made this chunk");
        at += 4 + length;
    }
    for (planes, image) in planes[..whole].chunks(ZSTD.block_bytes()).zip(image.chunks_mut(ZSTD.block_bytes())) {
        bitshuffle::unshuffle(baseline::isa(), ElementSize::Two, planes, &mut image[..planes.len()]);
    }
    image[whole..].copy_from_slice(&chunk[at..]);
}

fn zstd_pack(packer: &mut Packer, image: &[u8], out: &mut [u8]) -> usize {
    write_header(out, image.len() as u64, ZSTD.block_bytes() as u32);
    let mut at = chunk::HEADER_BYTES;
    for block in image.chunks(ZSTD.block_bytes()) {
        at += packer.pack_bytes(ElementSize::Two, block, &mut out[at..]);
    }
    at
}

fn by_block(input: &[u8], out: &mut [u8], f: impl Fn(&[u8], &mut [u8])) {
    for (block, out) in input.chunks(BLOCK_BYTES).zip(out.chunks_mut(BLOCK_BYTES)) {
        let whole = block.len() / 16 * 16;
        f(&block[..whole], &mut out[..whole]);
    }
}

fn pack(scratch: &mut FusedScratch, isa: Isa, raw: &[u16], constants: &Constants<'_>, out: &mut [u8]) -> usize {
    let (mut at, mut first) = (0, 0);
    for block in raw.chunks(block_pixels::<i16>()) {
        at += scratch.convert_and_pack_block::<i16>(isa, block, &constants.slice(first, block.len()), &mut out[at..]);
        first += block.len();
    }
    at
}
