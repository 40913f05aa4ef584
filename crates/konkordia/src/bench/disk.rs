//! `konkordia bench disk`: the cost of HDF5. The first table compares frames that are written as a run writes them with
//! the same frames written by plain `write`, one call per frame, and in large blocks as `dd` writes them. The second
//! table has frames that are compressed before they are written, for several amounts of noise. The third has several
//! runs at the same time, whose chunks are written inside and outside the lock of libhdf5
//! (docs/decisions/0031-file-data-outside-the-hdf5-lock.md). The HDF5 files of the first repeat are read back and
//! compared.

use super::args::BenchDiskArgs;
use super::frames::in_folder;
use super::output::Output;
use super::spread::median;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_kernels::codec;
use konkordia_kernels::{ElementSize, Isa};
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{
    ChunkWrites, FileSpec, LedgerRecord, Overwrite, Reader, SeriesInfo, SeriesRecord, Writer, master_path,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of different frames; they are written in turn.
const FRAMES: usize = 8;
/// The block size that is mostly used with `dd`.
const BLOCK_BYTES: usize = 8 << 20;
/// Bytes of a strip that is compressed at once.
const STRIP_BYTES: usize = 128 << 10;
/// Prefix of the runs that are written alone.
const PREFIX: &str = "bench";
/// Bits of noise of the frames that are written uncompressed.
const PLAIN_NOISE_BITS: u32 = 8;

/// `konkordia bench disk`
pub fn command(args: &BenchDiskArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "disk")?;
    in_folder(args.dir.as_deref(), |folder| {
        let plain = args.sizes.iter().map(|&edge| Plain::measure(args, folder, edge)).collect::<Result<Vec<_>, _>>()?;
        let edge = args.sizes.iter().copied().max().unwrap_or(1024).min(2048);
        let packed = args.noise_bits.iter().map(|&bits| Packed::measure(args, folder, edge, bits));
        let packed = packed.collect::<Result<Vec<_>, _>>()?;
        let parallel = args.writers.iter().map(|&writers| Parallel::measure(args, folder, edge, writers));
        let tables = Tables { edge, plain, packed, parallel: parallel.collect::<Result<Vec<_>, _>>()? };
        output.print(tables.to_json(args), &tables.to_text(args));
        Ok(if tables.is_verified() { Exit::Complete } else { Exit::Bug })
    })
}

/// Frames of `uint16` with this many bits of noise, the same in every call.
fn frames(edge: usize, noise_bits: u32) -> Vec<Vec<u8>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut frame = || {
        let mut bytes = Vec::with_capacity(2 * edge * edge);
        for _ in 0..edge * edge {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&((state >> 32) as u16 & ((1u32 << noise_bits) - 1) as u16).to_le_bytes());
        }
        bytes
    };
    (0..FRAMES).map(|_| frame()).collect()
}

/// Frames written uncompressed: GB/s, median of the repeats.
struct Plain {
    edge: usize,
    images: usize,
    /// One `write` per frame.
    write: f64,
    /// Large blocks.
    blocks: f64,
    /// HDF5: from the first image to the last one.
    hdf5: f64,
    /// HDF5: from making the first file to closing the last one.
    hdf5_whole: f64,
    /// HDF5 over plain `write`, median of the ratios of the repeats.
    ratio: f64,
    verified: bool,
}

impl Plain {
    fn measure(args: &BenchDiskArgs, folder: &Path, edge: usize) -> Result<Self, Failure> {
        let frames = frames(edge, PLAIN_NOISE_BITS);
        let images = (args.mib << 20).div_ceil(frames[0].len()).max(FRAMES);
        let mut rates: [Vec<f64>; 5] = Default::default();
        let mut verified = true;
        for repeat in 0..args.repeats.max(1) {
            let write = by_write(&folder.join("plain"), &frames, images, args.sync, frames[0].len())?;
            let blocks = by_write(&folder.join("blocks"), &frames, images, args.sync, BLOCK_BYTES)?;
            let mut run = Run::new(folder, PREFIX, edge, Compression::None, args.sync)?;
            (0..images).try_for_each(|n| run.write(n, &frames[n % FRAMES]))?;
            let [hdf5, whole] = run.finish(images * frames[0].len())?;
            if repeat == 0 {
                verified = is_right(folder, PREFIX, &frames, images)?;
            }
            for (rates, rate) in rates.iter_mut().zip([write, blocks, hdf5, whole, hdf5 / write]) {
                rates.push(rate);
            }
        }
        let [write, blocks, hdf5, hdf5_whole, ratio] = rates.map(|mut rates| median(&mut rates));
        Ok(Self { edge, images, write, blocks, hdf5, hdf5_whole, ratio, verified })
    }
}

/// Frames compressed by one core and written: GB/s of pixels.
struct Packed {
    noise_bits: u32,
    bits_per_pixel: f64,
    /// Compressed only.
    pack: f64,
    /// Compressed and written.
    hdf5: f64,
    verified: bool,
}

impl Packed {
    fn measure(args: &BenchDiskArgs, folder: &Path, edge: usize, noise_bits: u32) -> Result<Self, Failure> {
        let frames = frames(edge, noise_bits);
        let images = ((args.mib << 20) / 2).div_ceil(frames[0].len()).max(FRAMES);
        let pack =
            |n: usize| codec::compress(Compression::BSLZ4, Isa::detect(), ElementSize::Two, &frames[n % FRAMES], STRIP_BYTES);
        let (mut alone, mut written, mut bytes, mut verified) = (Vec::new(), Vec::new(), 0, true);
        for repeat in 0..args.repeats.max(1) {
            let begin = Instant::now();
            bytes = (0..images).map(|n| pack(n).len()).sum();
            alone.push(rate(images * frames[0].len(), begin));
            let mut run = Run::new(folder, PREFIX, edge, Compression::BSLZ4, args.sync)?;
            (0..images).try_for_each(|n| run.write(n, &pack(n)))?;
            written.push(run.finish(images * frames[0].len())?[0]);
            if repeat == 0 {
                verified = is_right(folder, PREFIX, &frames, images)?;
            }
        }
        let bits_per_pixel = bytes as f64 * 8.0 / (images * edge * edge) as f64;
        Ok(Self { noise_bits, bits_per_pixel, pack: median(&mut alone), hdf5: median(&mut written), verified })
    }
}

/// Several runs written at the same time, uncompressed, with the data of one run in all: GB/s, median of the repeats.
struct Parallel {
    writers: u32,
    /// libhdf5 writes the chunks, which locks out the other runs.
    inside: f64,
    /// The threads of the runs write them.
    outside: f64,
    /// Outside over inside, median of the ratios of the repeats.
    ratio: f64,
    verified: bool,
}

impl Parallel {
    fn measure(args: &BenchDiskArgs, folder: &Path, edge: usize, writers: u32) -> Result<Self, Failure> {
        let frames = frames(edge, PLAIN_NOISE_BITS);
        let images = (args.mib << 20).div_ceil(frames[0].len() * writers as usize).max(FRAMES);
        let prefixes: Vec<String> = (0..writers).map(|n| format!("{PREFIX}_{n}")).collect();
        let mut rates: [Vec<f64>; 3] = Default::default();
        let mut verified = true;
        for repeat in 0..args.repeats.max(1) {
            let mut once = [0.0; 2];
            for (rate, writes) in once.iter_mut().zip([ChunkWrites::InsideLock, ChunkWrites::OutsideLock]) {
                *rate = together(args, folder, &prefixes, &frames, images, writes)?;
                if repeat == 0 {
                    for prefix in &prefixes {
                        verified &= is_right(folder, prefix, &frames, images)?;
                    }
                }
            }
            let [inside, outside] = once;
            rates.iter_mut().zip([inside, outside, outside / inside]).for_each(|(rates, rate)| rates.push(rate));
        }
        let [inside, outside, ratio] = rates.map(|mut rates| median(&mut rates));
        Ok(Self { writers, inside, outside, ratio, verified })
    }
}

/// Writes a run with each prefix at the same time; GB/s of all, from the first image to the last one.
fn together(
    args: &BenchDiskArgs,
    folder: &Path,
    prefixes: &[String],
    frames: &[Vec<u8>],
    images: usize,
    writes: ChunkWrites,
) -> Result<f64, Failure> {
    let edge = (frames[0].len() / 2).isqrt();
    let runs = prefixes.iter().map(|prefix| Run::new(folder, prefix, edge, Compression::None, args.sync));
    let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
    runs.iter_mut().for_each(|run| run.writer.set_chunk_writes(writes));
    let write = |run: &mut Run| (0..images).try_for_each(|n| run.write(n, &frames[n % FRAMES]));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = runs.iter_mut().map(|run| scope.spawn(move || write(run))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread of a run does not panic"))
    })?;
    let rate = rate(prefixes.len() * images * frames[0].len(), begin);
    runs.into_iter().try_for_each(|run| run.finish(1).map(drop))?;
    Ok(rate)
}

/// A run that is being written.
struct Run {
    writer: Writer,
    made: Instant,
    begin: Instant,
}

impl Run {
    fn new(folder: &Path, prefix: &str, edge: usize, compression: Compression, sync: bool) -> Result<Self, Failure> {
        let made = Instant::now();
        let size = edge as u32;
        let spec = FileSpec {
            directory: folder.to_owned(),
            prefix: prefix.into(),
            overwrite: Overwrite::Replace,
            rows: size,
            columns: size,
            pixel: PixelType::Uint16,
            compression,
            pixel_mask: Vec::new(),
            series: Some(SeriesInfo { image_shape: vec![edge as u64; 2], ..SeriesInfo::default() }),
            ..FileSpec::default()
        };
        let mut writer = Writer::create(spec)?;
        // With --sync the files are synced as in a run, otherwise the kernel decides.
        writer.set_to_disk(if sync { ToDisk::Beside(Some(Duration::from_secs(2))) } else { ToDisk::Never })?;
        Ok(Self { writer, made, begin: Instant::now() })
    }

    fn write(&mut self, index: usize, chunk: &[u8]) -> Result<(), Failure> {
        let record = SeriesRecord {
            index: index as u64,
            status: ImageStatus::Complete,
            pieces: &[chunk],
            times: None,
            parts_missing: 0,
            extra: &[],
        };
        self.writer.write_series(&record)?;
        Ok(self.writer.tick(self.made.elapsed().as_nanos() as u64)?)
    }

    /// GB/s of `bytes` bytes of pixels: until the last image was written, and including the creation and closing of the
    /// files.
    fn finish(self, bytes: usize) -> Result<[f64; 2], Failure> {
        let written = rate(bytes, self.begin);
        self.writer.finish(&LedgerRecord::default())?;
        Ok([written, rate(bytes, self.made)])
    }
}

/// GB/s of the frames, written one after the other by calls of `write` of `block_bytes` each (of a frame each, if that
/// is larger). The file is removed.
fn by_write(path: &Path, frames: &[Vec<u8>], images: usize, sync: bool, block_bytes: usize) -> Result<f64, Failure> {
    let failed = |error: std::io::Error| Failure::io("cannot write", path, &error);
    let joined = if block_bytes > frames[0].len() { frames.concat() } else { Vec::new() };
    let mut file = File::create(path).map_err(failed)?;
    let begin = Instant::now();
    let mut left = images * frames[0].len();
    let mut turn = 0;
    while left > 0 {
        let one: &[u8] = if joined.is_empty() { &frames[turn % frames.len()] } else { &joined[..block_bytes.min(joined.len())] };
        let now = one.len().min(left);
        file.write_all(&one[..now]).map_err(failed)?;
        (left, turn) = (left - now, turn + 1);
    }
    if sync {
        file.sync_data().map_err(failed)?;
    }
    let rate = rate(images * frames[0].len(), begin);
    std::fs::remove_file(path).map_err(failed)?;
    Ok(rate)
}

/// Reads the run back; true if its images are right.
fn is_right(folder: &Path, prefix: &str, frames: &[Vec<u8>], images: usize) -> Result<bool, Failure> {
    let decode = |compression: Compression, chunk: &[u8], _: usize, out: &mut [u8]| {
        codec::decompress(compression, Isa::detect(), chunk, ElementSize::Two, out).map_err(|error| error.to_string())
    };
    let reader = Reader::open(&master_path(folder, prefix))?;
    for n in 0..images {
        if reader.read_image(n as u64, &decode)? != frames[n % frames.len()] {
            return Ok(false);
        }
    }
    Ok(reader.summary().images == images as u64)
}

fn rate(bytes: usize, begin: Instant) -> f64 {
    bytes as f64 / 1e9 / begin.elapsed().as_secs_f64().max(1e-9)
}

/// What was measured.
struct Tables {
    /// Edge length of the frames of the second and third table.
    edge: usize,
    plain: Vec<Plain>,
    packed: Vec<Packed>,
    parallel: Vec<Parallel>,
}

impl Tables {
    fn is_verified(&self) -> bool {
        let (mut plain, mut packed, mut parallel) = (self.plain.iter(), self.packed.iter(), self.parallel.iter());
        plain.all(|line| line.verified) && packed.all(|line| line.verified) && parallel.all(|line| line.verified)
    }

    fn to_json(&self, args: &BenchDiskArgs) -> Value {
        let plain = self.plain.iter().map(|line| {
            json!({
                "edge_pixels": line.edge, "images": line.images, "write_gb_per_s": line.write, "blocks_gb_per_s": line.blocks,
                "hdf5_gb_per_s": line.hdf5, "hdf5_whole_gb_per_s": line.hdf5_whole, "hdf5_of_write": line.ratio,
                "hdf5_images_per_second": line.hdf5 * 1e9 / (2 * line.edge * line.edge) as f64, "verified": line.verified,
            })
        });
        let packed = self.packed.iter().map(|line| {
            json!({
                "noise_bits": line.noise_bits, "edge_pixels": self.edge, "bits_per_pixel": line.bits_per_pixel,
                "pack_gb_per_s": line.pack, "pack_and_hdf5_gb_per_s": line.hdf5, "verified": line.verified,
            })
        });
        let parallel = self.parallel.iter().map(|line| {
            json!({
                "writers": line.writers, "edge_pixels": self.edge, "inside_lock_gb_per_s": line.inside,
                "outside_lock_gb_per_s": line.outside, "outside_of_inside": line.ratio, "verified": line.verified,
            })
        });
        json!({
            "bench": "disk", "machine": machine::facts(), "sync": args.sync, "repeats": args.repeats, "mib": args.mib,
            "plain": plain.collect::<Vec<_>>(), "compressed": packed.collect::<Vec<_>>(),
            "parallel": parallel.collect::<Vec<_>>(), "verified": self.is_verified(),
        })
    }

    fn to_text(&self, args: &BenchDiskArgs) -> String {
        let edge = self.edge;
        let lines = self.plain.iter().map(|line| {
            let rates = [line.write, line.blocks, line.hdf5, line.hdf5_whole, line.ratio];
            cells(format!("{0} x {0}", line.edge), &rates, line.verified)
        });
        let head = ["uint16 frame", "write GB/s", "8 MiB blocks", "HDF5 GB/s", "with open, close", "HDF5 / write", "read back"];
        let plain = table(&head, lines);
        let lines = self
            .packed
            .iter()
            .map(|line| cells(format!("{} bit", line.noise_bits), &[line.bits_per_pixel, line.pack, line.hdf5], line.verified));
        let packed = table(&["noise", "bit/pixel", "bslz4 GB/s", "bslz4 + HDF5 GB/s", "read back"], lines);
        let lines = self
            .parallel
            .iter()
            .map(|line| cells(line.writers.to_string(), &[line.inside, line.outside, line.ratio], line.verified));
        let parallel = table(&["runs", "inside the lock GB/s", "outside GB/s", "outside / inside", "read back"], lines);
        let (mib, repeats, sync) = (args.mib, args.repeats.max(1), if args.sync { ", synced to the disk" } else { "" });
        format!(
            "frames uncompressed, {mib} MiB each time, median of {repeats}{sync}; {}\n\n{plain}\n\nframes of {edge} x {edge} \
             compressed by one core, GB/s of pixels\n\n{packed}\n\nframes of {edge} x {edge}, runs at the same time, chunks \
             written inside and outside the lock of libhdf5\n\n{parallel}",
            machine::line()
        )
    }
}

fn cells(first: String, rates: &[f64], verified: bool) -> Vec<String> {
    let rates = rates.iter().map(|value| format!("{value:.2}"));
    std::iter::once(first).chain(rates).chain([if verified { "equal" } else { "WRONG" }.to_owned()]).collect()
}

fn table(head: &[&str], lines: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|&name| name.to_owned()).collect();
    text::table(&std::iter::once(head).chain(lines).collect::<Vec<Vec<String>>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_written_and_read_back() {
        let output = crate::bench::args::OutputArgs { json: true, compare: None };
        let (sizes, noise_bits, writers) = (vec![64, 100], vec![0, 3], vec![3]);
        let args = BenchDiskArgs { dir: None, sizes, noise_bits, writers, mib: 1, repeats: 2, sync: true, output };
        let folder = std::env::temp_dir().join(format!("konkordia-bench-disk-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let plain = Plain::measure(&args, &folder, 100).unwrap();
        assert!(plain.verified && plain.write > 0.0 && plain.hdf5 > 0.0);
        let packed = [0, 3].map(|bits| Packed::measure(&args, &folder, 64, bits).unwrap());
        assert!(packed.iter().all(|line| line.verified));
        assert!(packed[0].bits_per_pixel < 1.0 && (3.0..5.0).contains(&packed[1].bits_per_pixel), "{}", packed[1].bits_per_pixel);
        let parallel = Parallel::measure(&args, &folder, 64, 3).unwrap();
        assert!(parallel.verified && parallel.inside > 0.0 && parallel.outside > 0.0);
        // Other frames than those that were written are noticed.
        assert!(!is_right(&folder, PREFIX, &frames(64, 4), 8).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
