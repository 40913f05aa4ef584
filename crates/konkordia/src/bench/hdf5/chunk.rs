//! One image of 16M that several threads compress to one chunk, as the workers of a run over UDP do: the image is cut
//! into strips, each thread has its own strips of every image, and the framing of the codec joins them.

use super::args::BenchHdf5Args;
use super::cells::{cells, table};
use super::files::{Frames, PREFIX, Run, clear, is_right};
use super::noise::threads as in_words;
use crate::bench::spread::median;
use konkordia_core::failure::Failure;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, STRIPS_MAX};
use konkordia_kernels::codec::{Framing, Packer, piece_bound};
use konkordia_kernels::{ElementSize, Isa};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

/// Edge of the image in pixels: 16M.
pub const EDGE: usize = 4096;
/// Bits of noise in the image.
const NOISE_BITS: u32 = 4;
/// Different images, and how often each of them is compressed in a repeat.
const IMAGES: usize = 2;
const TURNS: usize = 2;
/// The largest file: all images, of four bytes per pixel, should they not shrink.
pub const FILE_BYTES_MAX: usize = IMAGES * 4 * EDGE * EDGE;
/// Types of the pixels.
const PIXELS: [PixelType; 2] = [PixelType::Uint16, PixelType::Int32];
/// How they are compressed.
const CODEC: Compression = Compression::BSLZ4;
/// Bytes of a strip, unless an image has too many of them.
const STRIP_BYTES: usize = 128 << 10;

/// One type of pixels by one number of threads: GB/s of pixels, median of the repeats.
pub struct Chunk {
    pixel: PixelType,
    threads: usize,
    edge: usize,
    chunk_bytes: usize,
    /// Strips compressed.
    pack: f64,
    /// And joined to one chunk by one thread.
    joined: f64,
    /// Compressed, over one thread: median of the ratios of the repeats.
    pub speed_up: f64,
    /// The chunk is the same as by one thread, and the image was read back from the file as it was.
    pub verified: bool,
}

impl Chunk {
    /// All types and numbers of threads, beginning with one thread.
    pub fn measure_all(args: &BenchHdf5Args, folder: &Path, edge: usize) -> Result<Vec<Self>, Failure> {
        let mut counts = vec![1];
        counts.extend(args.threads.iter().filter(|threads| **threads != 1));
        let mut rows = Vec::new();
        for pixel in PIXELS {
            let frames = Frames::of(pixel, edge, NOISE_BITS, IMAGES);
            let mut rates = vec![<[Vec<f64>; 3]>::default(); counts.len()];
            let mut chunks = Vec::new();
            for _ in 0..args.rounds() {
                chunks.clear();
                let mut one = f64::NAN;
                for (rates, threads) in rates.iter_mut().zip(&counts) {
                    let made = compress(&frames, *threads);
                    if *threads == 1 {
                        one = made.pack;
                    }
                    let once = [made.pack, made.joined, made.pack / one];
                    rates.iter_mut().zip(once).for_each(|(rates, rate)| rates.push(rate));
                    chunks.push(made.chunks);
                }
            }
            for ((rates, threads), made) in rates.into_iter().zip(&counts).zip(&chunks) {
                let [pack, joined, speed_up] = rates.map(|mut rates| median(&mut rates));
                let verified = *made == chunks[0] && is_stored(folder, &frames, made)?;
                let chunk_bytes = made[0].len();
                rows.push(Self { pixel, threads: *threads, edge, chunk_bytes, pack, joined, speed_up, verified });
            }
        }
        Ok(rows)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "name": format!("{}, {}", self.pixel, in_words(self.threads)), "threads": self.threads, "edge_pixels": self.edge,
            "chunk_bytes": self.chunk_bytes, "pack_gb_per_s": self.pack, "joined_gb_per_s": self.joined,
            "speed_up": self.speed_up, "verified": self.verified,
        })
    }
}

/// What some threads made of the images.
struct Made {
    chunks: Vec<Vec<u8>>,
    pack: f64,
    joined: f64,
}

/// One thread with its strips: every so many of them, as in a run.
struct Worker {
    packer: Packer,
    element: ElementSize,
    /// Numbers of the strips, and what they became.
    strips: Vec<(usize, Vec<u8>)>,
    lengths: Vec<usize>,
}

impl Worker {
    fn new(element: ElementSize, own: impl Iterator<Item = usize>, strip_bytes: usize) -> Self {
        let blocks = strip_bytes.div_ceil(CODEC.block_bytes());
        let room = blocks * piece_bound(CODEC, CODEC.block_bytes());
        let strips: Vec<_> = own.map(|strip| (strip, vec![0; room])).collect();
        let packer = Packer::new(CODEC, Isa::detect(), CODEC.block_bytes());
        Self { packer, element, lengths: vec![0; strips.len()], strips }
    }

    fn pack(&mut self, image: &[u8], strip_bytes: usize) {
        for ((strip, out), length) in self.strips.iter_mut().zip(&mut self.lengths) {
            let begin = *strip * strip_bytes;
            let pixels = &image[begin..image.len().min(begin + strip_bytes)];
            *length = 0;
            for block in pixels.chunks(CODEC.block_bytes()) {
                *length += self.packer.pack_bytes(self.element, block, &mut out[*length..]);
            }
        }
    }
}

/// Bytes of a strip: as a run cuts images.
fn strip_bytes(image_bytes: usize) -> usize {
    let block = CODEC.block_bytes();
    STRIP_BYTES.max(image_bytes.div_ceil(block).div_ceil(STRIPS_MAX) * block)
}

/// Compresses every image in turn with so many threads, of which this is one.
fn compress(frames: &Frames, threads: usize) -> Made {
    let element = ElementSize::new(frames.pixel.bytes()).expect("pixels of the bench have 2 or 4 bytes");
    let strip_bytes = strip_bytes(frames.bytes());
    let strips = frames.bytes().div_ceil(strip_bytes);
    let worker = |number: usize| Worker::new(element, (number..strips).step_by(threads), strip_bytes);
    let mut workers: Vec<Worker> = (0..threads).map(worker).collect();
    let mut framing = Framing::new(CODEC, frames.bytes());
    let (mut packing, mut joining) = (0.0, 0.0);
    let (mut chunk, mut chunks) = (Vec::new(), Vec::new());
    // The first time does not count: a run has used its memory before.
    for turn in 0..=TURNS * IMAGES {
        let image = frames.image(turn);
        let packed_s = in_parallel(&mut workers, |worker| worker.pack(image, strip_bytes));
        let begin = Instant::now();
        join(&mut framing, &workers, strips, &mut chunk);
        if turn > 0 {
            packing += packed_s;
            joining += begin.elapsed().as_secs_f64();
        }
        if chunks.len() < IMAGES {
            chunks.push(chunk.clone());
        }
    }
    let gigabytes = (TURNS * IMAGES * frames.bytes()) as f64 / 1e9;
    Made { chunks, pack: gigabytes / packing, joined: gigabytes / (packing + joining) }
}

/// Has each worker do `work` on a thread of its own, of which this is the first; seconds from the moment in which all
/// are ready until the last one is done.
fn in_parallel(workers: &mut [Worker], work: impl Fn(&mut Worker) + Sync) -> f64 {
    let (ready, done) = (Barrier::new(workers.len()), Barrier::new(workers.len()));
    let run = |worker: &mut Worker| {
        ready.wait();
        let begin = Instant::now();
        work(worker);
        done.wait();
        begin.elapsed().as_secs_f64()
    };
    let (first, others) = workers.split_first_mut().expect("there is at least one thread");
    std::thread::scope(|scope| {
        for worker in others {
            scope.spawn(|| run(worker));
        }
        run(first)
    })
}

/// Replaces `chunk` by the strips of all workers as one chunk.
fn join(framing: &mut Framing, workers: &[Worker], strips: usize, chunk: &mut Vec<u8>) {
    let mut packed = vec![&[][..]; strips];
    for worker in workers {
        for ((strip, bytes), length) in worker.strips.iter().zip(&worker.lengths) {
            packed[*strip] = &bytes[..*length];
        }
    }
    let mut parts = vec![&[][..]; strips + 2];
    let count = framing.join(&packed, &mut parts);
    chunk.clear();
    parts[..count].iter().for_each(|part| chunk.extend_from_slice(part));
}

/// Writes the chunks into a file and reads the images back.
fn is_stored(folder: &Path, frames: &Frames, chunks: &[Vec<u8>]) -> Result<bool, Failure> {
    let mut run = Run::new((folder, PREFIX), frames, CODEC, false)?;
    for (number, chunk) in chunks.iter().enumerate() {
        run.write(number, chunk)?;
    }
    run.finish(1)?;
    let is_right = is_right((folder, PREFIX), frames, chunks.len())?;
    clear(folder)?;
    Ok(is_right)
}

/// For people.
pub fn to_text(rows: &[Chunk]) -> String {
    let line = |row: &Chunk| {
        let first = vec![row.pixel.to_string(), row.threads.to_string(), row.chunk_bytes.to_string()];
        cells(first, &[row.pack, row.joined, row.speed_up], row.verified)
    };
    let head = ["pixels", "threads", "chunk, bytes", "compressed GB/s", "and joined", "x one thread", "read back"];
    let edge = rows.first().map_or(EDGE, |row| row.edge);
    let table = table(&head, rows.iter().map(line));
    format!(
        "one image of {edge} x {edge}, {NOISE_BITS} bit of noise, in strips by several threads to one chunk ({}), as the workers \
         of a run over UDP compress; \"equal\": the same bytes as by one thread, and the image was read back from its file\n\n{table}",
        CODEC.text()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_kernels::codec;

    #[test]
    fn the_chunk_does_not_depend_on_the_threads() {
        // 1.5 strips of uint16, and 3 of int32.
        for pixel in PIXELS {
            let frames = Frames::of(pixel, 313, NOISE_BITS, IMAGES);
            let one = compress(&frames, 1).chunks;
            let element = ElementSize::new(pixel.bytes()).unwrap();
            for (number, chunk) in one.iter().enumerate() {
                let whole = codec::compress(CODEC, Isa::detect(), element, frames.image(number), STRIP_BYTES);
                assert!(*chunk == whole, "{pixel}");
            }
            for threads in [2, 3, 7] {
                assert!(compress(&frames, threads).chunks == one, "{pixel}, {threads} threads");
            }
        }
    }

    #[test]
    fn strips_are_those_of_a_run() {
        assert_eq!(strip_bytes(2 * EDGE * EDGE), STRIP_BYTES);
        assert_eq!(4 * EDGE * EDGE / strip_bytes(4 * EDGE * EDGE), STRIPS_MAX);
    }
}
