//! Frames that are compressed and written, by the noise in them, the codec, and the number of threads.
//!
//! Whole frames are compressed in parallel, and one more thread writes them in order: what `konkordia repack` ships,
//! and what workers of a series do with whole images. [`super::chunk`] has several threads on one frame, as a run over
//! UDP.

use super::args::BenchHdf5Args;
use super::cells::{cells, table};
use super::files::{Frames, PREFIX, Run, by_write, clear, is_right, rate};
use crate::bench::packer::ImagePacker;
use crate::bench::spread::{Spread, median};
use konkordia_core::failure::Failure;
use konkordia_core::plan::Compression;
use konkordia_kernels::ElementSize;
use konkordia_repack::pipeline;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Of the data of a measurement, these tables compress this part; `gzip` and `zstd`, which are slow, a smaller one.
const PART: usize = 2;
const PART_OF_SLOW_CODECS: usize = 16;

/// One codec on frames with one amount of noise: GB/s of pixels, median of the repeats.
pub struct Packed {
    pub codec: Compression,
    pub noise_bits: u32,
    pub threads: usize,
    edge: usize,
    images: usize,
    pub bits_per_pixel: f64,
    /// Compressed only.
    pack: f64,
    /// Compressed and written.
    pub hdf5: f64,
    /// Plain `write` of the same frames, not compressed.
    pub write: f64,
    /// Compressed and written, over plain `write`: median of the ratios of the repeats.
    of_write: f64,
    /// Milliseconds in which the file takes an image, and bytes of its chunk: of all images of all repeats.
    image_ms: Spread,
    chunk_bytes: Spread,
    verified: bool,
}

/// What is measured together: the frames, and how often.
struct Case<'a> {
    args: &'a BenchHdf5Args,
    folder: &'a Path,
    frames: Frames,
    noise_bits: u32,
}

impl Packed {
    /// All codecs and numbers of threads, on frames with this edge and these bits of noise.
    pub fn measure(args: &BenchHdf5Args, folder: &Path, edge: usize, noise_bits: u32) -> Result<Vec<Self>, Failure> {
        let case = Case { args, folder, frames: Frames::new(edge, noise_bits), noise_bits };
        let settings = args.compression.iter().flat_map(|codec| args.threads.iter().map(|threads| (*codec, *threads)));
        settings.map(|(codec, threads)| case.measure(codec, threads)).collect()
    }

    /// Whether all frames were read back as they were written.
    pub fn is_verified(rows: &[Self]) -> bool {
        rows.iter().all(|row| row.verified)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "name": format!("{}, {} bit of noise, {}", self.codec.text(), self.noise_bits, threads(self.threads)),
            "noise_bits": self.noise_bits, "threads": self.threads, "edge_pixels": self.edge, "images": self.images,
            "bits_per_pixel": self.bits_per_pixel, "pack_gb_per_s": self.pack, "pack_and_hdf5_gb_per_s": self.hdf5,
            "write_gb_per_s": self.write, "pack_and_hdf5_of_write": self.of_write, "image_write_ms": self.image_ms.to_json(),
            "image_chunk_bytes": self.chunk_bytes.to_json(), "verified": self.verified,
        })
    }

    fn cells(&self) -> Vec<String> {
        let noise = format!("{} bit", self.noise_bits);
        let first = vec![self.codec.text(), noise, self.threads.to_string(), self.image_ms.to_text(1)];
        cells(first, &[self.bits_per_pixel, self.pack, self.hdf5, self.write, self.of_write], self.verified)
    }
}

impl Case<'_> {
    fn measure(&self, codec: Compression, threads: usize) -> Result<Packed, Failure> {
        let (frames, sync) = (&self.frames, self.args.sync);
        let part = if codec.is_by_strip() { PART_OF_SLOW_CODECS } else { PART };
        let images = frames.images_in(self.args.bytes() / part);
        let pixels = images * frames.bytes();
        let mut rates: [Vec<f64>; 4] = Default::default();
        let (mut bytes, mut verified) = (0, true);
        let (mut image_ms, mut chunk_bytes) = (Vec::new(), Vec::new());
        for repeat in 0..self.args.rounds() {
            let write = by_write(self.folder, frames, images, sync, frames.bytes())?;
            bytes = 0;
            let begin = Instant::now();
            pack(codec, threads, frames, images, |_, chunk| {
                bytes += chunk.len();
                Ok(())
            })?;
            let alone = rate(pixels, begin);
            let mut run = Run::new((self.folder, PREFIX), frames, codec, sync)?;
            pack(codec, threads, frames, images, |number, chunk| {
                let begin = Instant::now();
                run.write(number, &chunk)?;
                image_ms.push(begin.elapsed().as_secs_f64() * 1e3);
                chunk_bytes.push(chunk.len() as f64);
                Ok(())
            })?;
            let hdf5 = run.finish(pixels)?.compared(sync);
            if repeat == 0 {
                verified = is_right((self.folder, PREFIX), frames, images)?;
            }
            clear(self.folder)?;
            rates.iter_mut().zip([alone, hdf5, write, hdf5 / write]).for_each(|(rates, rate)| rates.push(rate));
        }
        let [pack, hdf5, write, of_write] = rates.map(|mut rates| median(&mut rates));
        let bits_per_pixel = bytes as f64 * 8.0 / (images * frames.edge * frames.edge) as f64;
        Ok(Packed {
            codec,
            noise_bits: self.noise_bits,
            threads,
            edge: frames.edge,
            images,
            bits_per_pixel,
            pack,
            hdf5,
            write,
            of_write,
            image_ms: Spread::of(image_ms),
            chunk_bytes: Spread::of(chunk_bytes),
            verified,
        })
    }
}

/// Has `threads` threads compress frames, and gives the chunks to `take` in order, on this thread.
fn pack(
    codec: Compression,
    threads: usize,
    frames: &Frames,
    images: usize,
    mut take: impl FnMut(usize, Vec<u8>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let element = ElementSize::new(frames.pixel.bytes()).expect("pixels of the bench have 2 or 4 bytes");
    let mut numbers = 0..images;
    pipeline::run(
        threads,
        || Ok(numbers.next()),
        || ImagePacker::new(codec, element, frames.bytes()),
        |packer, number| Ok((number, packer.pack(frames.image(number)))),
        |(number, chunk)| take(number, chunk),
    )
}

/// A number of threads in words.
pub fn threads(count: usize) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

/// For people.
pub fn to_text(rows: &[Packed], place: &str) -> String {
    let edge = rows.first().map_or(0, |row| row.edge);
    let head = [
        "codec",
        "noise",
        "threads",
        "file takes an image, ms",
        "bit/pixel",
        "compressed GB/s",
        "and written",
        "plain write",
        "written / write",
        "read back",
    ];
    let table = table(&head, rows.iter().map(Packed::cells));
    format!(
        "frames of {edge} x {edge}, uint16, compressed and written to {place}; GB/s of pixels; frames in parallel, as \
         `konkordia repack` does it, and one more thread writes; \"file takes an image\": median (lowest .. highest) of all\n\n{table}"
    )
}
